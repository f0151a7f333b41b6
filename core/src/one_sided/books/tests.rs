use proptest::prelude::*;
use std::collections::VecDeque;
use std::vec::Vec;

use super::*;
use crate::verbs::{Be32, WcFlags};

const QP: u32 = 17;

fn books<const N: usize>(slots: u32) -> Books<N> {
    Books::new(QueueId::of(core::ptr::null()), QP, slots).expect("numbers")
}

fn begin<const N: usize>(books: &mut Books<N>, parts: u32) -> (OperationId, usize) {
    let start = books.start(parts).expect("room");
    let slot = start.slot();
    (books.posted(start), slot)
}

fn success(wr_id: u64) -> Wc {
    Wc { wr_id, qp_num: QP, ..Wc::default() }
}

fn failure(wr_id: u64) -> FailedCompletion {
    FailedCompletion { wr_id, status: WcStatus::REM_ACCESS_ERR, qp_num: QP, vendor_err: 0 }
}

fn succeeds<const N: usize>(books: &mut Books<N>, wr_id: u64) -> Accepted {
    books.take(wr_id, Ok(&success(wr_id)))
}

fn fails<const N: usize>(books: &mut Books<N>, wr_id: u64) -> Accepted {
    books.take(wr_id, Err(failure(wr_id)))
}

#[test]
fn the_last_operation_and_the_last_slot_are_given_and_no_more() {
    let mut books = books::<2>(5);
    assert_eq!(books.start(6), Err(NotStarted::NoSlots { free: 5, need: 6 }));
    let (first, _) = begin(&mut books, 3);
    let before = books;
    assert_eq!(books.start(3), Err(NotStarted::NoSlots { free: 2, need: 3 }));
    assert_eq!(books, before, "a refusal changes nothing");
    let (second, _) = begin(&mut books, 2);
    assert_eq!(books.start(1), Err(NotStarted::Full { operations: 2 }));
    assert_eq!(succeeds(&mut books, first.raw() + 2), Accepted::Ended { operation: first, slot: 0 });
    assert_eq!(books.start(4), Err(NotStarted::NoSlots { free: 3, need: 4 }));
    let (third, slot) = begin(&mut books, 3);
    assert_eq!((slot, books.untold(), books.in_flight()), (0, 2, 2));
    assert_eq!(books.pending().collect::<Vec<_>>(), [second, third]);
}

#[test]
fn an_operation_of_no_requests_which_nothing_would_end_is_not_started() {
    for slots in [0, 1, 5, u32::MAX] {
        let mut books = books::<2>(slots);
        assert_eq!(books.start(0), Err(NotStarted::NoSlots { free: slots, need: 0 }));
        assert_eq!(books.start(slots).is_ok(), slots > 0, "all of {slots}");
    }
}

#[test]
fn a_start_that_is_dropped_has_taken_nothing() {
    let mut books = books::<2>(5);
    let first = books.start(2).expect("room").wr_id(0);
    let again = books.start(2).expect("room");
    assert_eq!((again.wr_id(0), again.wr_id(1)), (first, first + 1));
    assert_eq!(books.posted(again).raw(), first);
}

#[test]
fn an_error_on_any_part_is_the_operations_and_its_place_is_free_with_its_last() {
    for at in 0..3 {
        let mut books = books::<4>(9);
        let (first, slot) = begin(&mut books, 3);
        let (second, _) = begin(&mut books, 1);
        let wr_id = first.raw() + at;
        let freed = (at == 2).then_some(slot);
        let failed = Accepted::Failed { operation: first, slot: freed, failure: failure(wr_id) };
        assert_eq!(fails(&mut books, wr_id), failed);
        let cause = Fault::Failed(failure(wr_id));
        assert_eq!(books.cause(), Some(cause));
        assert_eq!(books.start(1), Err(NotStarted::Broken { cause }));
        for rest in at + 1..3 {
            let settled = if rest == 2 { Accepted::Settled { slot } } else { Accepted::Quiet };
            assert_eq!(fails(&mut books, first.raw() + rest), settled, "told of once");
        }
        // What was behind it is told of by its own completion, or without one.
        assert_eq!(books.tell_next(), Some(second));
        assert_eq!(books.tell_next(), None);
        assert_eq!((books.untold(), books.in_flight()), (0, 1));
        assert_eq!(fails(&mut books, second.raw()), Accepted::Settled { slot: 1 });
        assert_eq!(books.in_flight(), 0);
        assert_eq!(books.cause(), Some(cause), "the first stays");
    }
}

#[test]
fn whole_books_tell_nothing_that_has_not_completed() {
    let mut books = books::<4>(9);
    begin(&mut books, 1);
    assert_eq!(books.tell_next(), None);
    assert_eq!(books.untold(), 1);
}

#[test]
fn a_completion_of_a_later_operation_breaks_and_ends_nothing() {
    let mut books = books::<4>(9);
    let (first, _) = begin(&mut books, 3);
    let (second, _) = begin(&mut books, 2);
    assert_eq!(succeeds(&mut books, first.raw()), Accepted::Quiet, "a part that nobody asked to hear of");
    let wr_id = second.raw() + 1;
    assert_eq!(succeeds(&mut books, wr_id), Accepted::Quiet);
    assert_eq!(books.cause(), Some(Fault::Skipped { wr_id, skipped: 3 }));
    assert_eq!((books.untold(), books.in_flight()), (2, 2));
}

#[test]
fn numbers_that_are_not_in_flight_break_and_end_nothing() {
    let (other, _) = begin(&mut books::<4>(9), 1);
    let mut fresh = books::<4>(9);
    let (ended, _) = begin(&mut fresh, 2);
    succeeds(&mut fresh, ended.raw() + 1);
    let (live, _) = begin(&mut fresh, 2);
    let marker = WorkId::SEND_MARKER.raw();
    let before_and_after = [live.raw().wrapping_sub(1), live.raw() + 2];
    // Its last, but of another block, or a receive's.
    let last = live.raw() + 1;
    let alike = [last ^ 1 << 32, last ^ 1 << 62, last ^ 1 << 63, last & u64::from(u32::MAX)];
    let odd = [0, 1, other.raw(), ended.raw(), ended.raw() + 1, marker];
    for wr_id in odd.into_iter().chain(before_and_after).chain(alike) {
        let mut books = fresh;
        assert_eq!(succeeds(&mut books, wr_id), Accepted::Quiet, "{wr_id:#x}");
        assert_eq!(books.cause(), Some(Fault::UnknownId { wr_id }));
        assert_eq!((books.untold(), books.in_flight()), (1, 1));
    }
}

#[test]
fn a_part_that_has_completed_is_not_in_flight_again() {
    let mut fresh = books::<4>(9);
    let (operation, slot) = begin(&mut fresh, 3);
    assert_eq!(succeeds(&mut fresh, operation.raw() + 1), Accepted::Quiet, "the first two");
    for at in 0..2 {
        for fail in [false, true] {
            let (mut books, wr_id) = (fresh, operation.raw() + at);
            let accepted = if fail { fails(&mut books, wr_id) } else { succeeds(&mut books, wr_id) };
            assert_eq!((accepted, books.cause()), (Accepted::Quiet, Some(Fault::UnknownId { wr_id })));
            assert_eq!((books.untold(), books.in_flight()), (1, 1));
        }
    }
    // An error, and then success for the same request.
    let wr_id = operation.raw() + 2;
    let failed = Accepted::Failed { operation, slot: Some(slot), failure: failure(wr_id) };
    assert_eq!((fails(&mut fresh, wr_id), succeeds(&mut fresh, wr_id)), (failed, Accepted::Quiet));
    assert_eq!((fresh.untold(), fresh.in_flight()), (0, 0), "told of once");
}

#[test]
fn a_receive_is_a_write_with_immediate_data_or_breaks() {
    let arrived = |wr_id, opcode, wc_flags| Wc {
        opcode,
        wc_flags,
        byte_len: 9,
        imm_data: Be32::new(0x0102_0304),
        ..success(wr_id)
    };
    let posted = || {
        let mut books = books::<1>(1);
        let first = books.next_receive().expect("a number");
        books.receive_posted();
        books.next_receive().expect("a number");
        books.receive_posted();
        (books, first)
    };
    let (mut books, first) = posted();
    let wc = arrived(first, WcOpcode::RECV_RDMA_WITH_IMM, WcFlags::WITH_IMM);
    let arrival = Arrival { immediate: 0x0102_0304, len_bytes: 9 };
    assert_eq!(books.take(first, Ok(&wc)), Accepted::Arrived(arrival));
    assert_eq!((books.receives(), books.cause()), (1, None));
    assert_eq!(books.take(first, Ok(&wc)), Accepted::Quiet);
    assert_eq!(books.cause(), Some(Fault::UnknownId { wr_id: first }), "a replay");

    let cases = [
        (arrived(first, WcOpcode::RECV, WcFlags::WITH_IMM), CarrierError::Opcode { got: WcOpcode::RECV }),
        (arrived(first, WcOpcode::RECV_RDMA_WITH_IMM, WcFlags::empty()), CarrierError::NoImmediate),
    ];
    for (wc, error) in cases {
        let (mut books, _) = posted();
        assert_eq!(books.take(first_of(&books), Ok(&Wc { wr_id: first_of(&books), ..wc })), Accepted::Quiet);
        assert!(matches!(books.cause(), Some(Fault::Unreadable { error: got, .. }) if got == error));
    }
    let (mut books, first) = posted();
    assert_eq!(fails(&mut books, first), Accepted::Quiet);
    assert_eq!(books.cause(), Some(Fault::Failed(failure(first))));
    let (mut books, first) = posted();
    assert_eq!(succeeds(&mut books, first + 1), Accepted::Quiet);
    assert_eq!(books.cause(), Some(Fault::Skipped { wr_id: first + 1, skipped: 1 }));
}

/// The number of the oldest receive: two are posted and none has come.
fn first_of<const N: usize>(books: &Books<N>) -> u64 {
    let mut books = *books;
    books.next_receive().expect("a number") - 2
}

#[test]
fn a_flushed_receive_leaves_it_to_the_operation_that_failed_to_say_why() {
    let mut broken = books::<4>(9);
    let receives = [(); 2].map(|()| {
        let wr_id = broken.next_receive().expect("a number");
        broken.receive_posted();
        wr_id
    });
    let (first, slot) = begin(&mut broken, 2);
    let (second, _) = begin(&mut broken, 1);
    let flushed = |wr_id| FailedCompletion { status: WcStatus::WR_FLUSH_ERR, ..failure(wr_id) };
    for wr_id in receives {
        assert_eq!(broken.take(wr_id, Err(flushed(wr_id))), Accepted::Quiet);
        let cause = Fault::Failed(flushed(receives[0]));
        assert_eq!((broken.cause(), broken.is_over(), broken.tell_next()), (Some(cause), false, None));
        assert_eq!(broken.start(1), Err(NotStarted::Broken { cause }));
    }
    let mut flushed_alike = broken;
    let why = failure(first.raw() + 1);
    assert_eq!(fails(&mut broken, why.wr_id), Accepted::Failed { operation: first, slot: Some(slot), failure: why });
    assert_eq!((broken.cause(), broken.is_over()), (Some(Fault::Failed(why)), true));
    assert_eq!((broken.tell_next(), broken.tell_next()), (Some(second), None));
    // Where the other end was at fault, all are flushed alike.
    let alike = flushed(first.raw());
    let accepted = flushed_alike.take(alike.wr_id, Err(alike));
    assert_eq!(accepted, Accepted::Failed { operation: first, slot: None, failure: alike });
    assert_eq!((flushed_alike.is_over(), flushed_alike.tell_next()), (true, Some(second)));
    // With nothing outstanding there is nobody else to say more.
    let mut idle = books::<4>(9);
    let wr_id = idle.next_receive().expect("a number");
    idle.receive_posted();
    idle.take(wr_id, Err(flushed(wr_id)));
    assert!(idle.is_over());
}

#[test]
fn with_the_queue_pair_all_that_was_outstanding_is_gone_and_nothing_is_started() {
    let mut books = books::<4>(9);
    let (ended, _) = begin(&mut books, 3);
    let receive = books.next_receive().expect("a number");
    books.receive_posted();
    books.queue_pair_gone();
    assert_eq!((books.in_flight(), books.untold(), books.receives(), books.pending().count()), (0, 0, 0, 0));
    let cause = Fault::Abandoned;
    assert_eq!((books.tell_next(), books.start(1)), (None, Err(NotStarted::Broken { cause })));
    // Its completions can still be polled, and end nothing.
    for late in [ended.raw(), ended.raw() + 2, receive] {
        assert_eq!(succeeds(&mut books, late), Accepted::Quiet);
    }
    assert_eq!((books.cause(), books.in_flight(), books.receives()), (Some(cause), 0, 0));
}

/// The books as a list of requests, each with its operation.
#[derive(Default)]
struct Twin {
    /// Number, operation, place, whether it is the operation's last.
    requests: VecDeque<(u64, OperationId, usize, bool)>,
    told: Vec<OperationId>,
    cause: Option<Fault>,
}

impl Twin {
    fn take(&mut self, wr_id: u64, fails: bool) -> Accepted {
        let fault = match self.requests.iter().position(|request| request.0 == wr_id) {
            None => Fault::UnknownId { wr_id },
            Some(at) => {
                let before = self.requests.iter().take(at).filter(|before| before.1 != self.requests[at].1).count();
                if before > 0 {
                    // All before it, those of its own operation too.
                    Fault::Skipped { wr_id, skipped: at as u32 }
                } else {
                    return self.take_oldest(at, fails);
                }
            }
        };
        self.cause = self.cause.or(Some(fault));
        Accepted::Quiet
    }

    fn take_oldest(&mut self, at: usize, fails: bool) -> Accepted {
        let (wr_id, operation, slot, is_last) = self.requests[at];
        self.requests.drain(..=at);
        if fails {
            self.cause = self.cause.or(Some(Fault::Failed(failure(wr_id))));
        }
        let tell = !self.told.contains(&operation) && (is_last || fails);
        if tell {
            self.told.push(operation);
        }
        match (tell, fails) {
            (true, true) => Accepted::Failed { operation, slot: is_last.then_some(slot), failure: failure(wr_id) },
            (true, false) => Accepted::Ended { operation, slot },
            (false, _) if is_last => Accepted::Settled { slot },
            (false, _) => Accepted::Quiet,
        }
    }

    fn in_flight(&self) -> Vec<OperationId> {
        let mut all: Vec<_> = self.requests.iter().map(|request| request.1).collect();
        all.dedup();
        all
    }
}

proptest! {
    #[test]
    fn the_books_are_a_list_of_requests(steps in prop::collection::vec((0u8..8, 0u64..12, 1u32..5), 0..60)) {
        let (mut books, mut twin) = (books::<3>(7), Twin::default());
        for (what, which, parts) in steps {
            let (untold, in_flight) = (books.untold(), twin.in_flight());
            match what {
                0..3 => {
                    let free = 7 - twin.requests.len() as u32;
                    // Requests that are done but the last of their operation keep their slot.
                    match books.start(parts) {
                        Ok(start) => {
                            let slot = start.slot();
                            prop_assert!(twin.cause.is_none() && in_flight.len() < 3 && parts <= free);
                            prop_assert!(twin.requests.iter().all(|request| request.2 != slot), "a place for one");
                            let first = start.wr_id(0);
                            let operation = books.posted(start);
                            let all = (0..parts).map(|n| (first + u64::from(n), operation, slot, n + 1 == parts));
                            twin.requests.extend(all);
                        }
                        Err(NotStarted::Broken { cause }) => prop_assert_eq!(Some(cause), twin.cause),
                        Err(NotStarted::Full { .. }) => prop_assert_eq!(in_flight.len(), 3),
                        Err(NotStarted::NoSlots { free: told, need }) => {
                            prop_assert!(told < parts && told <= free && need == parts);
                        }
                        Err(other) => prop_assert!(false, "{other:?}"),
                    }
                }
                3..7 => {
                    // Mostly one of the oldest, sometimes one far off.
                    let oldest = twin.requests.front().map_or(1 << 32, |request| request.0);
                    let (wr_id, fail) = (oldest.wrapping_add(which / 3), what == 6 && which % 2 == 0);
                    let accepted = if fail { fails(&mut books, wr_id) } else { succeeds(&mut books, wr_id) };
                    prop_assert_eq!(accepted, twin.take(wr_id, fail));
                }
                _ => {
                    let next = twin.in_flight().into_iter().find(|operation| !twin.told.contains(operation));
                    let next = if twin.cause.is_some() { next } else { None };
                    prop_assert_eq!(books.tell_next(), next);
                    twin.told.extend(next);
                    prop_assert!(untold >= books.untold());
                }
            }
            let waited: Vec<_> = twin.in_flight().into_iter().filter(|live| !twin.told.contains(live)).collect();
            prop_assert_eq!(books.cause(), twin.cause);
            prop_assert_eq!(books.in_flight(), twin.in_flight().len());
            prop_assert_eq!(books.untold(), waited.len());
            prop_assert_eq!(books.pending().collect::<Vec<_>>(), waited);
        }
    }
}
