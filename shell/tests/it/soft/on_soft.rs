//! The conformance cases, on the software fabric: promptly, and with several adversaries.

use std::time::Duration;

use bareverbs_shell::soft::{LiveCounts, Mode, SoftConfig, SoftFabric};

use super::conformance;
use super::raw::Env;

/// The ways that every case runs in.
pub fn modes() -> impl Iterator<Item = Mode> {
    std::iter::once(Mode::Prompt).chain((1..=24).map(|seed| Mode::Adversarial { seed }))
}

/// What tests on the software fabric run on.
pub fn env(fabric: &SoftFabric, device: &'static str) -> Env {
    Env { symbols: fabric.symbols(), device, strict: true, quiet: Duration::ZERO }
}

fn run(case: impl Fn(&Env)) {
    for mode in modes() {
        let fabric = SoftFabric::new(SoftConfig::default().mode(mode)).expect("a free slot");
        case(&env(&fabric, "soft0"));
        assert_eq!(fabric.live(), LiveCounts::default(), "{mode:?}");
        assert_eq!(fabric.misuse(), Vec::<String>::new(), "{mode:?}");
    }
}

macro_rules! cases {
    ($($name:ident)*) => { $(
        #[test]
        fn $name() {
            run(conformance::$name);
        }
    )* };
}

cases! {
    a_message_arrives_whole
    an_immediate_travels_big_endian
    messages_arrive_in_order
    a_message_without_a_receive_is_gone_and_the_next_arrives
    unsignalled_sends_make_no_completion
    every_send_completes_where_the_queue_pair_says_so
    inline_bytes_are_read_within_the_post
    oversize_inline_is_refused
    steps_with_a_missing_attribute_are_refused
    wrong_steps_are_refused
    an_unreachable_gid_times_out
    posts_in_the_wrong_state_are_refused
    the_error_state_flushes_what_was_posted_and_what_is_posted
    unsignalled_sends_that_succeeded_are_not_flushed
    a_full_receive_queue_answers_enomem_and_names_the_request
    a_refused_request_of_a_chain_is_named_and_those_before_it_are_accepted
    a_wrong_key_fails_the_send_and_the_queue_pair
    a_message_too_long_fails_the_receiver_only
    a_read_on_unreliable_queue_pairs_fails_its_completion
    parents_with_live_children_are_busy_and_work_on
    a_region_may_go_while_receives_are_posted_on_it
    registrations_are_checked
    completion_queue_sizes_are_checked
    objects_point_back_to_their_parents
    attributes_are_told_back
    a_reset_queue_pair_can_be_connected_anew
    an_empty_message_arrives
    a_queue_pair_may_be_connected_to_itself
    completions_outlive_their_queue_pair
    a_draining_queue_pair_holds_its_sends_until_it_runs_again
}
