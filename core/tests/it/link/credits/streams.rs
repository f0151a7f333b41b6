//! Nothing is lost for want of a receive, and nobody waits for ever: for every window, ring and order of events.

use bareverbs_core::link::{Carrier, Header, Immediate};
use proptest::prelude::*;

use super::wire::{Asks, End, Pair, Repost, Shape};

const DEPTHS: std::ops::RangeInclusive<u32> = 2..=8;

/// One step of a schedule: what happens, at which end, how much.
#[derive(Clone, Copy, Debug)]
enum Step {
    Send { more: bool },
    Transmit,
    Arrive,
    Poll { max: usize, repost: Repost },
    Post { max: usize },
}

fn steps() -> impl Strategy<Value = Vec<(usize, Step)>> {
    let step = prop_oneof![
        3 => any::<bool>().prop_map(|more| Step::Send { more }),
        3 => Just(Step::Transmit),
        3 => Just(Step::Arrive),
        3 => (1usize..4, any::<bool>()).prop_map(|(max, at_once)| Step::Poll {
            max,
            repost: if at_once { Repost::AtOnce } else { Repost::Later },
        }),
        2 => (1usize..4).prop_map(|max| Step::Post { max }),
    ];
    prop::collection::vec((0usize..2, step), 0..400)
}

fn shapes() -> impl Strategy<Value = [Shape; 2]> {
    let start = prop_oneof![Just(0), Just(u32::MAX - 3), any::<u32>()];
    (DEPTHS, DEPTHS, DEPTHS, DEPTHS, start).prop_map(|(s0, r0, s1, r1, start)| {
        [(s0, r0), (s1, r1)].map(|(send_depth, recv_depth)| Shape { send_depth, recv_depth, start })
    })
}

fn asks() -> impl Strategy<Value = [Asks; 2]> {
    let one = prop_oneof![Just(Asks::AfterEachPoll), Just(Asks::BeforeTheNext)];
    [one.clone(), one]
}

/// Does what the schedule says; `senders` says who sends at all.
fn follow<C: Carrier>(pair: &mut Pair<C, 8, 8>, schedule: &[(usize, Step)], senders: [bool; 2]) {
    for &(at, step) in schedule {
        let end = &mut pair.ends[at];
        match step {
            Step::Send { more } if senders[at] => drop(end.send(more)),
            Step::Send { .. } => {}
            Step::Transmit => drop(end.transmit(&mut pair.wires[1 - at])),
            Step::Arrive => drop(end.arrive(&mut pair.wires[at])),
            Step::Poll { max, repost } => drop(end.poll(max, repost)),
            Step::Post { max } => drop(end.post(max)),
        }
        pair.assert_nothing_dropped();
    }
}

/// From wherever the schedule left it, each sender gets more messages through than any window has.
fn goes_on<C: Carrier>(pair: &mut Pair<C, 8, 8>, senders: [bool; 2]) {
    for at in (0..2).filter(|at| senders[*at]) {
        let goal = pair.ends[at].sent + 40;
        while pair.ends[at].sent < goal {
            let sent = pair.ends[at].send(false);
            let moved = pair.settle();
            assert!(sent || moved, "end {at} is stuck at message {}", pair.ends[at].sent);
        }
        pair.settle();
        assert_eq!(pair.ends[1 - at].received, pair.ends[at].sent, "all of it came");
    }
    pair.assert_nothing_dropped();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn no_schedule_loses_a_message_or_leaves_both_ends_waiting(
        shapes in shapes(), schedule in steps(), senders in prop_oneof![Just([true, true]), Just([true, false])],
        asks in asks(),
    ) {
        let mut pair = Pair::new(Immediate, shapes).asking(asks);
        follow(&mut pair, &schedule, senders);
        goes_on(&mut pair, senders);
    }

    #[test]
    fn nor_does_one_where_headers_carry_grants(
        shapes in shapes(), schedule in steps(), senders in prop_oneof![Just([true, true]), Just([true, false])],
        asks in asks(),
    ) {
        let mut pair = Pair::new(Header::<64>::with_checksum(), shapes).asking(asks);
        follow(&mut pair, &schedule, senders);
        goes_on(&mut pair, senders);
    }
}

/// Every pair of depths, with ends that post again one frame at a time, as late as they can: only once all that was
/// granted has come.
fn lazily<C: Carrier>(carrier: C, asks: Asks) {
    for (send_depth, recv_depth) in DEPTHS.flat_map(|send| DEPTHS.map(move |recv| (send, recv))) {
        let shape = Shape { send_depth, recv_depth, start: u32::MAX - 20 };
        let mut pair: Pair<C, 8, 8> = Pair::new(carrier, [shape; 2]).asking([asks; 2]);
        for round in 0..60 {
            let before = [pair.ends[0].sent, pair.ends[1].sent];
            let mut moved = true;
            while moved {
                moved = false;
                for at in 0..2 {
                    moved |= pair.ends[at].send(true);
                    moved |= pair.ends[at].transmit(&mut pair.wires[1 - at]);
                    moved |= pair.ends[at].arrive(&mut pair.wires[at]);
                    moved |= pair.ends[at].poll(16, Repost::Later);
                }
            }
            // First all that was granted to begin with, then one for each receive.
            let more = if round == 0 { u64::from(recv_depth) - 1 } else { 1 };
            let now = [pair.ends[0].sent, pair.ends[1].sent];
            assert_eq!(now, before.map(|sent| sent + more), "depths {send_depth}, {recv_depth}, round {round}");
            for end in &mut pair.ends {
                end.post(1);
            }
        }
        pair.assert_nothing_dropped();
    }
}

#[test]
fn a_receiver_that_posts_one_frame_at_a_time_starves_nobody() {
    for asks in [Asks::AfterEachPoll, Asks::BeforeTheNext] {
        lazily(Immediate, asks);
        lazily(Header::<64>::new(), asks);
    }
}

#[test]
fn the_first_credits_are_the_other_ends_receives_less_one_and_not_one_more() {
    for recv_depth in DEPTHS {
        let shape = Shape { send_depth: 8, recv_depth, start: u32::MAX };
        let mut pair: Pair<_, 16, 8> = Pair::new(Immediate, [Shape { send_depth: 16, ..shape }; 2]);
        for left in (1..recv_depth).rev() {
            assert_eq!(pair.ends[0].rig.link.credits_left(), left);
            assert!(pair.ends[0].send(false));
        }
        assert!(!pair.ends[0].send(false));
        assert_eq!(pair.ends[0].no_credit, 1);
        // One more, as soon as the other end has granted it.
        pair.settle();
        assert!(pair.ends[0].rig.link.credits_left() >= 1);
        assert!(pair.ends[0].send(false));
    }
}

#[test]
fn a_receiver_that_posts_nothing_again_stops_the_sender_and_loses_nothing() {
    for carrier_is_header in [false, true] {
        let shape = Shape { send_depth: 8, recv_depth: 4, start: 7 };
        if carrier_is_header {
            never_posts(Pair::new(Header::<64>::new(), [shape; 2]));
        } else {
            never_posts(Pair::new(Immediate, [shape; 2]));
        }
    }
}

fn never_posts<C: Carrier>(mut pair: Pair<C, 8, 8>) {
    for _ in 0..50 {
        let [a, b] = &mut pair.ends;
        a.send(false);
        a.transmit(&mut pair.wires[1]);
        b.arrive(&mut pair.wires[1]);
        b.poll(16, Repost::Later);
        a.poll(16, Repost::Later);
    }
    assert_eq!((pair.ends[0].sent, pair.ends[1].received, pair.ends[0].no_credit), (3, 3, 47));
    pair.assert_nothing_dropped();
    assert!(pair.ends[1].post(1), "one receive is enough to go on");
    pair.settle();
    assert!(pair.ends[0].send(false));
}

/// End 0 has sent all that it may; end 1 has taken it, and its credit message was lost.
fn lose_a_credit_message<C: Carrier>(carrier: C) -> Pair<C, 8, 8> {
    let shape = Shape { send_depth: 8, recv_depth: 4, start: 0 };
    let mut pair: Pair<_, 8, 8> = Pair::new(carrier, [shape; 2]);
    while pair.ends[0].send(false) {}
    while pair.ends[0].transmit(&mut pair.wires[1]) {}
    while pair.ends[1].arrive(&mut pair.wires[1]) {}
    pair.ends[1].poll(16, Repost::AtOnce);
    assert!(pair.ends[1].transmit(&mut pair.wires[0]), "a credit message");
    pair.wires[0].clear();
    for _ in 0..10 {
        pair.settle();
        assert!(!pair.ends[0].send(false), "nobody told it");
    }
    pair
}

#[test]
fn a_lost_credit_message_starves_the_sender_for_good_where_no_message_carries_a_grant_and_corrupts_nothing() {
    let mut pair = lose_a_credit_message(Immediate);
    // The other direction goes on, and tells nothing: a credit message has no number that would be missing.
    for _ in 0..10 {
        assert!(pair.ends[1].send(false));
        pair.settle();
        assert!(!pair.ends[0].send(false));
    }
    assert_eq!((pair.ends[0].sent, pair.ends[1].received, pair.ends[0].received), (3, 3, 10));
    pair.assert_nothing_dropped();
}

#[test]
fn where_headers_carry_grants_the_next_message_the_other_way_makes_up_for_a_lost_credit_message() {
    let mut pair = lose_a_credit_message(Header::<64>::new());
    assert!(pair.ends[1].send(false));
    pair.settle();
    assert_eq!(pair.ends[0].rig.link.credits_left(), 3);
    // And credit messages go again, with nothing sent the other way any more.
    for _ in 0..20 {
        assert!(pair.ends[0].send(false));
        pair.settle();
    }
    assert_eq!((pair.ends[0].sent, pair.ends[1].received), (23, 23));
    pair.assert_nothing_dropped();
}

#[test]
fn numbers_wrap_with_credits_as_without() {
    let shape = Shape { send_depth: 4, recv_depth: 4, start: u32::MAX - 5 };
    let mut pair: Pair<_, 8, 8> = Pair::new(Immediate, [shape; 2]);
    for _ in 0..20 {
        assert!(pair.ends[0].send(false));
        pair.settle();
    }
    assert_eq!(pair.ends[0].next().number(), 14);
    pair.assert_nothing_dropped();
}

#[test]
fn a_chain_is_staged_as_far_as_credits_go() {
    let shape = Shape { send_depth: 8, recv_depth: 4, start: 0 };
    let mut end: End<_, 8, 8> = End::new(Immediate, shape);
    end.begin(4);
    let mut chain = end.rig.link.chain();
    for _ in 0..3 {
        chain.next_frame().unwrap().stage(8).unwrap();
    }
    let until = bareverbs_core::link::Sequence::new(3);
    assert_eq!(chain.next_frame().err(), Some(bareverbs_core::link::SendError::NoCredit { until }));
    assert_eq!(chain.post().unwrap().count, 3);
    assert_eq!(end.rig.link.credits_left(), 0);
}
