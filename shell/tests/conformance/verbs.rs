//! The cases of raw verbs, on the system's library. On the software fabric the binary `it` runs them.

use std::time::Duration;

use crate::conformance;
use crate::raw::Env;
use crate::world::World;

/// The system's device, with what it is laxer in than the software fabric.
pub fn env(world: &World) -> Env {
    Env {
        symbols: world.fabric.symbols().clone(),
        device: world.device().to_owned().leak(),
        strict: false,
        quiet: Duration::from_millis(300),
    }
}

/// A name, and what is to hold on every fabric.
pub type Case = (&'static str, fn(&Env));

macro_rules! cases {
    ($($name:ident)*) => {
        /// Every case; one that is forgotten here is dead code, and a warning.
        pub fn cases() -> Vec<Case> {
            vec![$((stringify!($name), conformance::$name)),*]
        }
    };
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
    completions_outlive_their_queue_pair
    registrations_are_checked
    completion_queue_sizes_are_checked
    objects_point_back_to_their_parents
    attributes_are_told_back
    a_reset_queue_pair_can_be_connected_anew
    an_empty_message_arrives
    a_queue_pair_may_be_connected_to_itself
    a_draining_queue_pair_holds_its_sends_until_it_runs_again
}
