//! What every fabric must do, through the table of entry points: one suite, run on the software fabric and on the devices
//! of the system's library.
//!
//! The numbers are those measured on soft-RoCE (kernel 6.1, rdma-core 44.0). Where the software fabric answers otherwise on
//! purpose, [`differences`] says so, and a case asserts either answer where it belongs.
//!
//! A trial that needs a device counts as ignored where there is none.

mod differences;
mod dma_buf;
mod events;
mod failures;
mod keys;
mod limits;
mod messages;
mod one_sided;
#[path = "../raw/mod.rs"]
mod raw;
mod refusals;
mod reliable;
mod states;
mod teardown;
mod trials;

use std::process::ExitCode;

use bareverbs_core::verbs::WcStatus;

const EBUSY: i32 = 16;
const EINVAL: i32 = 22;
const ENOMEM: i32 = 12;
const OK: WcStatus = WcStatus::SUCCESS;
const FLUSHED: WcStatus = WcStatus::WR_FLUSH_ERR;

/// Something that every fabric must do.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    run: fn(&raw::Env),
    /// Whether it does on purpose what the software fabric grants and notes as misuse.
    misuse: bool,
    /// Whether it needs an mlx5 device.
    mlx5: bool,
}

macro_rules! cases {
    ($($room:ident { $($name:ident $(($word:ident))?)* })*) => {
        const CASES: &[Case] = &[$($(
            Case { name: concat!(stringify!($room), "::", stringify!($name)), run: $room::$name, misuse: has(&[$(stringify!($word))?], "misuse"), mlx5: has(&[$(stringify!($word))?], "mlx5") },
        )*)*];
    };
}

/// Whether a case has a word in parentheses behind it.
const fn has(words: &[&str], word: &str) -> bool {
    let ([found], word) = (words, word.as_bytes()) else { return false };
    let (found, mut at) = (found.as_bytes(), 0);
    while at < found.len() && at < word.len() && found[at] == word[at] {
        at += 1;
    }
    at == found.len() && at == word.len()
}

cases! {
    messages {
        a_message_arrives_whole
        an_immediate_travels_big_endian
        messages_arrive_in_order
        a_message_without_a_receive_is_gone_and_the_next_arrives
        unsignalled_sends_make_no_completion
        every_send_completes_where_the_queue_pair_says_so
        inline_bytes_are_read_within_the_post
        an_empty_message_arrives
        a_queue_pair_may_be_connected_to_itself
        a_draining_queue_pair_holds_its_sends_until_it_runs_again
        a_message_of_many_packets_arrives_whole
        entries_are_gathered_and_scattered_in_order
        a_queue_pair_that_cannot_send_yet_receives
        a_peer_that_is_gone_is_not_missed
    }
    states {
        steps_with_a_missing_attribute_are_refused
        wrong_steps_are_refused
        an_unreachable_gid_times_out
        an_empty_gid_index_has_no_data
        posts_in_the_wrong_state_are_refused
        attributes_are_told_back
        a_reset_queue_pair_can_be_connected_anew
    }
    reliable {
        steps_need_the_attributes_of_reliability
        messages_arrive_in_order_with_their_immediates
        a_send_waits_for_its_receive
        a_send_without_a_receive_and_retries_fails_at_once
        a_send_without_a_receive_fails_when_its_retries_are_used_up
        a_message_too_long_fails_both_ends
        a_receive_with_a_wrong_key_fails_both_ends
        a_send_with_a_wrong_key_fails_the_sender_only
        a_peer_that_is_gone_is_missed
        seven_retries_are_no_more_than_seven
        a_third_queue_pair_is_not_heard
        a_third_queue_pair_with_the_number_that_is_due
        a_peer_that_is_not_connected_is_missed
        a_peer_in_error_is_missed
        a_send_goes_out_once_its_peer_is_connected
        a_reset_queue_pair_is_connected_anew
        the_error_state_flushes_sends_that_wait
    }
    one_sided {
        a_write_lands_byte_for_byte_and_nobody_is_told
        a_write_with_immediate_uses_up_a_receive_and_none_of_its_memory
        a_read_brings_byte_for_byte_and_nobody_is_told
        writes_gather_and_reads_scatter_over_as_many_entries_as_there_may_be
        an_operation_of_no_bytes_needs_no_key_and_no_address
        inline_bytes_of_a_write_are_read_within_the_post
        an_addition_wraps_and_brings_what_was_there
        a_word_is_swapped_only_where_it_is_what_was_expected
        an_atomic_brings_eight_bytes_however_long_its_entries_are
        operations_take_effect_in_the_order_of_their_posts
        more_reads_than_may_be_under_way_wait_their_turn
        only_signalled_operations_complete
        a_queue_pair_that_cannot_send_yet_is_operated_on
        additions_of_several_queue_pairs_are_all_counted
        a_region_is_addressed_from_where_its_registration_says
        a_write_may_be_as_long_as_the_port_says
    }
    refusals {
        a_key_that_nobody_has_is_refused
        a_key_ends_with_its_region
        a_key_of_another_domain_is_refused
        a_region_without_the_right_is_refused
        a_queue_pair_without_the_right_calls_it_an_invalid_request
        an_operation_that_leaves_the_region_is_refused
        an_operation_may_reach_both_ends_of_the_region
        a_long_operation_that_leaves_the_region_is_refused
        a_responder_that_answers_nothing_refuses_reads_and_atomics
        a_requester_that_may_have_none_under_way_waits_until_it_is_flushed
        limits_of_reads_and_atomics_are_checked
        an_atomic_on_no_word_is_refused_by_the_post
        a_region_is_not_addressed_from_another_place_within_its_page
        entries_of_ones_own_that_are_not_granted_fail_the_requester_only
        a_region_not_for_writing_may_be_sent_from_and_not_read_into
        an_answer_has_no_place_in_an_inline_request
        a_write_with_immediate_waits_for_a_receive
        a_write_with_immediate_without_a_receive_fails_when_its_retries_are_used_up
        a_peer_in_error_is_missed_by_every_operation
        an_unreliable_write_that_is_refused_is_lost_in_silence
        an_unreliable_write_with_immediate_without_a_receive_is_lost
        what_must_be_answered_fails_on_unreliable_queue_pairs
        the_error_state_flushes_operations_in_order
    }
    events {
        an_armed_queue_makes_one_event_at_its_next_completion
        completions_that_lie_in_the_queue_make_no_event
        a_queue_armed_for_solicited_ones_hears_of_no_others
        arming_for_any_is_not_undone_by_arming_for_solicited_ones
        a_flushed_receive_wakes_who_armed_for_solicited_ones
        a_failed_send_wakes_who_armed_for_solicited_ones
        a_thread_that_waits_is_woken
        a_channel_is_busy_while_a_queue_reports_to_it
        events_that_nobody_fetched_go_with_their_queue
        a_queue_with_an_unacknowledged_event_is_not_destroyed (misuse)
        a_channel_of_another_context_is_refused
        a_queue_that_overflows_is_told_as_an_event
        a_send_queue_that_is_drained_is_told_once_its_sends_have_completed
        a_send_that_is_being_tried_is_finished_before_its_queue_is_drained
        an_idle_send_queue_is_drained_at_once
        no_asynchronous_event_is_eagain
    }
    failures {
        the_error_state_flushes_what_was_posted_and_what_is_posted
        unsignalled_sends_that_succeeded_are_not_flushed
        a_wrong_key_fails_the_send_and_the_queue_pair
        a_message_too_long_fails_the_receiver_only
        a_read_on_unreliable_queue_pairs_fails_its_completion
        a_receive_with_a_wrong_key_fails_the_receiver_only
        a_send_beyond_its_region_fails
        a_queue_pair_in_error_hears_nothing
        statuses_have_the_words_that_core_knows_them_by
    }
    limits {
        oversize_inline_is_refused
        a_full_receive_queue_answers_enomem_and_names_the_request
        a_refused_request_of_a_chain_is_named_and_those_before_it_are_accepted
        registrations_are_checked
        completion_queue_sizes_are_checked
        sizes_of_queues_are_granted_up_to_the_device_limits
        a_queue_whose_sends_are_never_signalled_fills_up
    }
    dma_buf {
        a_file_is_registered_or_not_as_the_device_says
        the_provider_says_whether_it_is_an_mlx5
    }
    keys {
        a_key_presents_its_regions_as_one_range (mlx5)
        reads_atomics_and_local_entries_go_through_a_key (mlx5)
        a_key_starts_at_zero_and_ends_with_its_regions (mlx5)
        a_key_permits_what_it_was_bound_with (mlx5)
        a_key_that_is_not_bound_reaches_nothing (mlx5)
        a_binding_completes_with_its_number_and_opcode (mlx5)
        what_complete_refuses_posts_nothing (mlx5)
        keys_are_made_of_fours_and_of_known_flags (mlx5)
        a_key_bound_twice_needs_an_invalidation_between (mlx5)
    }
    teardown {
        parents_with_live_children_are_busy_and_work_on
        a_region_may_go_while_receives_are_posted_on_it
        objects_point_back_to_their_parents
        completions_outlive_their_queue_pair
        a_domain_is_busy_while_a_queue_pair_or_a_region_is_left
        a_device_with_live_objects_is_closed_without_a_word (misuse)
        a_queue_pair_of_two_contexts_is_made (misuse)
    }
}

fn main() -> ExitCode {
    let arguments = libtest_mimic::Arguments::from_args();
    let whole = arguments.filter.is_none() && arguments.skip.is_empty() && !arguments.list;
    let (trials, sides) = trials::all(CASES);
    let conclusion = libtest_mimic::run(&arguments, trials);
    if whole && !conclusion.has_failed() {
        let untold = differences::not_asserted(&sides);
        if !untold.is_empty() {
            eprintln!("differences that no case asserted: {untold:#?}");
            return ExitCode::FAILURE;
        }
    }
    conclusion.exit_code()
}
