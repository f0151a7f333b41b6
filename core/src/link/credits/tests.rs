//! The rules beside a twin that counts in wide numbers and forgets nothing.

use std::{vec, vec::Vec};

use super::*;

/// Both ends of one direction, counted from 0 in 64 bits.
#[derive(Clone, Debug, Default)]
struct Twin {
    sent: u64,
    received: u64,
    posted: u64,
    /// All grants in order, with whether a credit message brought it; the first one was agreed.
    given: Vec<(u64, bool)>,
    taken: usize,
}

impl Twin {
    fn due(&self, receives: u64) -> Option<u64> {
        let given = self.given.last()?.0;
        let grant = (self.received + self.posted).checked_sub(1)?;
        let last_alone = self.given.iter().rposition(|(_, alone)| *alone);
        let proven = last_alone.is_none_or(|at| self.received > self.given[at - 1].0);
        let enough = grant >= given + ((receives - 1) / 2).max(1) || grant > given && self.received == given;
        (enough && proven).then_some(grant)
    }
}

/// All orders of sending, receiving, posting and granting, a number of steps deep.
fn walk(credits: [Credits; 2], twin: &Twin, start: u32, receives: u64, depth: u32) {
    let [sender, mut receiver] = credits;
    let number = |count: u64| Sequence::new(start).plus(count as u32);
    let granted = twin.given[twin.taken].0;
    assert_eq!(u64::from(sender.left(number(twin.sent))), granted - twin.sent);
    let due = receiver.due(number(twin.received), twin.posted as u32);
    assert_eq!(due, twin.due(receives).map(number), "{twin:?}");
    if depth == 0 {
        return;
    }
    let go = |credits, twin: Twin| walk(credits, &twin, start, receives, depth - 1);
    if twin.sent < granted {
        go(credits, Twin { sent: twin.sent + 1, ..twin.clone() });
    }
    if twin.received < twin.sent && twin.posted > 0 {
        go(credits, Twin { received: twin.received + 1, posted: twin.posted - 1, ..twin.clone() });
    }
    if twin.posted < receives {
        go(credits, Twin { posted: twin.posted + 1, ..twin.clone() });
    }
    if let Some(grant) = twin.due(receives) {
        let mut receiver = receiver;
        let news = grant - twin.given.last().unwrap().0;
        assert_eq!(u64::from(receiver.sent_alone(number(grant))), news);
        let mut given = twin.given.clone();
        given.push((grant, true));
        go([sender, receiver], Twin { given, ..twin.clone() });
    }
    if let Some((grant, _)) = twin.given.get(twin.taken + 1) {
        let mut sender = sender;
        let news = sender.take(number(*grant), number(twin.sent), GrantBy::CreditMessage);
        assert_eq!(news.map(u64::from), Ok(grant - granted));
        go([sender, receiver], Twin { taken: twin.taken + 1, ..twin.clone() });
    }
}

#[test]
fn every_short_history_is_judged_as_by_the_twin() {
    for receives in 2..=4 {
        for start in [0, u32::MAX - 1, 0x7FFF_FFFE] {
            let at = Sequence::new(start);
            let credits = Credits::new(CreditMode::On, receives as u32, at, at);
            let twin = Twin { posted: receives, given: vec![(receives - 1, false)], ..Twin::default() };
            walk([credits.agreed(receives as u32, at), credits], &twin, start, receives, 12);
        }
    }
}

#[test]
fn a_credit_message_that_was_proven_stays_so_however_many_messages_come_after_it() {
    for start in [0, 0x7FFF_FFFE, u32::MAX - 3] {
        let at = Sequence::new(start);
        let receives = 8;
        let mut receiver = Credits::new(CreditMode::On, receives, at, at).agreed(receives, at);
        // Four came and were posted again: half of the window is news, so a credit message goes.
        let mut expected = at.plus(4);
        let grant = receiver.due(expected, receives).expect("half of the window");
        receiver.sent_alone(grant);
        // From here on each message is answered by one whose header grants, more of them than half of all numbers.
        for _ in 0..(1_u64 << 31) / 1000 + 10 {
            expected = expected.plus(1000);
            receiver.sent_in_message(receiver.grant(expected, receives));
            assert_eq!(receiver.due(expected, receives), None, "the header said so already");
        }
        // Then the other end alone sends, all that it may.
        let all_came = expected.plus(receives - 1);
        assert_eq!(receiver.due(all_came, receives), Some(all_came.plus(receives - 1)), "start {start}");
    }
}

#[test]
fn a_credit_message_is_read_as_it_was_written_and_no_other_bytes_are_one() {
    let message = CreditMessage { place: Sequence::new(0x0102_0304), grant: Sequence::new(u32::MAX) };
    let bytes = message.encode();
    assert_eq!(bytes[..12], *b"bVcr\x01\x02\x03\x04\xFF\xFF\xFF\xFF");
    assert_eq!(CreditMessage::decode(&bytes), Some(message));
    for len in 0..16 {
        assert_eq!(CreditMessage::decode(&bytes[..len]), None);
    }
    for bit in 0..128 {
        let mut bytes = bytes;
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(CreditMessage::decode(&bytes), None, "bit {bit}");
    }
}

#[test]
fn the_other_end_is_short_at_half_of_its_window_and_not_one_above() {
    // Windows of 1 to 8: the receives less one.
    for receives in 2..=9_u32 {
        let half = (receives - 1) / 2;
        for start in [0, 100, u32::MAX - 4, 0x7FFF_FFFE] {
            let at = Sequence::new(start);
            let of = |mode| Credits::new(mode, receives, at, at);
            for left in 0..receives {
                let expected = at.plus(receives - 1 - left);
                assert_eq!(of(CreditMode::On).is_short(expected), left <= half, "{left} left of {}", receives - 1);
                assert!(!of(CreditMode::Off).is_short(expected), "without credits nobody is");
            }
            // What is granted since counts.
            let mut granted = of(CreditMode::On);
            granted.sent_alone(at.plus(receives - 1 + half));
            for (left, short) in [(half.saturating_sub(1), true), (half, true), (half + 1, false)] {
                let expected = at.plus(receives - 1 + half - left);
                assert_eq!(granted.is_short(expected), short, "{left} left of {}", receives - 1);
            }
        }
    }
}
