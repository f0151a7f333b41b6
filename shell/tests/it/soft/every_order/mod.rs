//! Every order of posts, sends, losses, duplicates, delays, corruption and completions between two endpoints: nothing bad is
//! handed out, and nothing is lost unnoticed.
//!
//! A twin that knows only the rules ([`twin`]) goes along: after each step the fabric must be able to do what the twin says,
//! no less and no more, and the endpoints must have handed out, refused and broken what the twin has. It also counts the
//! orders that there are. Where they are too many to be gone through, every step is taken from every state;
//! `BAREVERBS_LONG=1` goes through some hundred thousand more.

mod led;
mod twin;
mod walk;

use std::thread;

use bareverbs_core::link::{Carrier, Header, Immediate};
use bareverbs_shell::soft::MessageFault;

use led::World;
use twin::{Retries, Rules, count};
use walk::{Choose, Part};

/// The last byte: of the payload where there is one.
const CORRUPT: MessageFault = MessageFault::Corrupt { offset_bytes: u32::MAX };
/// What a carrier with a checksum tells.
const ALL: &[Option<MessageFault>] =
    &[None, Some(MessageFault::Drop), Some(MessageFault::Duplicate), Some(MessageFault::Hold), Some(CORRUPT)];
/// What numbers alone tell.
const BUT_CORRUPTION: &[Option<MessageFault>] = ALL.split_at(4).0;
/// What differs on a reliable queue pair: what spoils a message or keeps it loses it.
const RELIABLE: &[Option<MessageFault>] = ALL.split_at(3).0;

/// Three messages one way, posted before the first step.
const UC: Rules = Rules {
    retries: None,
    credits: false,
    fates: ALL,
    send_depth: 4,
    receives: 4,
    messages: [3, 0],
    posts_between: false,
    reposts: [0, 0],
};
const RC: Rules = Rules { retries: Some(Retries { lost: 1, not_ready: 0 }), fates: RELIABLE, ..UC };
const CHECKED: Header<64> = Header::with_checksum();

fn is_long() -> bool {
    std::env::var_os("BAREVERBS_LONG").is_some()
}

/// Goes through all orders, in two threads: as many as the twin counts.
fn all_orders<C: Carrier + Sync, const RECV: usize>(carrier: C, rules: &Rules) {
    let part = |which| {
        let world = World::new();
        let lead = &mut |choose: &mut Choose<'_>| world.lead::<C, RECV>(carrier, rules, choose);
        let met = walk::all_orders(Part { which, of: 2 }, lead);
        world.assert_clean();
        met
    };
    let met = thread::scope(|scope| {
        let other = scope.spawn(|| part(1));
        part(0) + other.join().expect("no panic")
    });
    assert_eq!(met, count(rules).orders, "as many orders as there are");
}

/// Takes every step from every state, and with `BAREVERBS_LONG=1` goes through all orders where they are few enough.
fn every_step<C: Carrier + Sync, const RECV: usize>(carrier: C, rules: &Rules) {
    let world = World::new();
    let met = walk::every_step(rules, &mut |choose| world.lead::<C, RECV>(carrier, rules, choose));
    world.assert_clean();
    let there = count(rules);
    assert_eq!(met, there.steps, "as many steps as there are");
    if is_long() && there.orders < 3_000_000 {
        all_orders::<C, RECV>(carrier, rules);
    }
}

#[test]
fn the_twin_counts_as_one_does_by_hand() {
    let orders = |fates| count(&Rules { fates, messages: [1, 0], ..UC }).orders;
    // It goes out; then the two completions, in either order.
    assert_eq!(orders(&[None]), 2);
    // Lost: one completion. Twice: one among two. Held: one among an arrival and its completion.
    let singly = [(MessageFault::Drop, 1), (MessageFault::Duplicate, 3), (MessageFault::Hold, 3), (CORRUPT, 2)];
    assert_eq!(ALL[1..].iter().flatten().copied().collect::<Vec<_>>(), singly.map(|(fault, _)| fault));
    assert_eq!(orders(ALL), 2 + singly.iter().map(|(_, orders)| orders).sum::<u128>());
    assert_eq!(count(&Rules { messages: [1, 1], fates: &[None], ..UC }).orders, 80, "20 times 2 times 2");
}

#[test]
fn no_order_of_three_messages_hands_out_what_is_bad_or_loses_unnoticed() {
    // The third finds no receive, unless one before it was lost.
    all_orders::<_, 2>(CHECKED, &Rules { receives: 2, ..UC });
    every_step::<_, 4>(CHECKED, &UC);
}

#[test]
fn nor_does_one_where_messages_are_posted_between_steps_and_receives_posted_anew() {
    all_orders::<_, 2>(CHECKED, &Rules { receives: 2, messages: [2, 0], posts_between: true, reposts: [0, 2], ..UC });
    every_step::<_, 2>(CHECKED, &Rules { receives: 2, posts_between: true, reposts: [0, 3], ..UC });
}

#[test]
fn nor_does_one_where_both_ends_send() {
    let numbers_alone = Rules { fates: BUT_CORRUPTION, messages: [1, 1], posts_between: true, ..UC };
    all_orders::<_, 4>(Immediate, &numbers_alone);
    every_step::<_, 4>(CHECKED, &Rules { messages: [2, 1], posts_between: true, ..UC });
}

#[test]
fn nor_does_one_with_credits_and_without_a_fault_nothing_is_lost() {
    let one_way = Rules { credits: true, receives: 2, posts_between: true, ..UC };
    all_orders::<_, 2>(CHECKED, &Rules { messages: [1, 0], reposts: [0, 1], ..one_way });
    every_step::<_, 2>(CHECKED, &Rules { messages: [3, 0], reposts: [0, 3], ..one_way });
    every_step::<_, 2>(CHECKED, &Rules { messages: [1, 1], reposts: [1, 1], ..one_way });
    // Here a credit message is due before the one before it is known to have come.
    every_step::<_, 4>(CHECKED, &Rules { messages: [2, 0], reposts: [0, 2], receives: 4, ..one_way });
}

#[test]
fn no_order_of_reliable_messages_loses_one_of_which_its_sender_does_not_know() {
    all_orders::<_, 1>(CHECKED, &Rules { receives: 1, messages: [2, 0], reposts: [0, 1], ..RC });
    every_step::<_, 2>(CHECKED, &Rules { receives: 2, reposts: [0, 1], ..RC });
    every_step::<_, 2>(
        CHECKED,
        &Rules { receives: 2, messages: [2, 1], posts_between: true, reposts: [1, 1], fates: ALL, ..RC },
    );
}
