use proptest::prelude::*;
use std::vec::Vec;

use super::*;
use crate::view::DeviceName;

const LIMITS: Limits = Limits { max_message_bytes: 8, send_slots: 4, max_rd_atomic: 1, atomics: AtomicCap::HCA };

const ALL: [Operation; 5] = [
    Operation::Write,
    Operation::WriteWithImmediate { immediate: 7 },
    Operation::Read,
    Operation::FetchAdd { add: 1 },
    Operation::CompareSwap { compare: 1, swap: 2 },
];

fn here(len_bytes: u64) -> KeyedRange {
    KeyedRange::new(0x1000, 0x40, len_bytes, 10, 11).expect("bytes")
}

fn there(key_addr: u64, len_bytes: u64) -> RemoteView {
    RemoteView::new(key_addr, len_bytes, 20, DeviceName::new(b"rxe0").expect("a name")).expect("bytes")
}

/// The parts, cut one after the other.
fn twin(local_addr: u64, remote_addr: u64, len_bytes: u64, most: u64) -> Vec<Part> {
    let (mut parts, mut done) = (Vec::new(), 0);
    while done < len_bytes {
        let len = most.min(len_bytes - done);
        let is_last = done + len == len_bytes;
        let len_bytes = u32::try_from(len).expect("at most 2 GiB");
        parts.push(Part { local_addr: local_addr + done, remote_addr: remote_addr + done, len_bytes, is_last });
        done += len;
    }
    parts
}

fn all_parts(plan: &Plan) -> Vec<Part> {
    (0..plan.parts()).map(|n| plan.part(n).expect("below the count")).collect()
}

#[test]
fn views_of_two_lengths_are_refused_with_both() {
    for operation in ALL {
        for (local_bytes, remote_bytes) in [(8, 7), (7, 8), (8, 9), (1, u64::MAX)] {
            let refused = Plan::new(operation, &here(local_bytes), &there(0, remote_bytes), &LIMITS);
            assert_eq!(refused, Err(PlanRefused::Lengths { local_bytes, remote_bytes }));
        }
    }
}

#[test]
fn an_atomic_is_of_8_bytes_at_a_multiple_of_8() {
    for operation in ALL.into_iter().filter(|operation| operation.is_atomic()) {
        for got_bytes in [1, 7, 9, 16] {
            let refused = Plan::new(operation, &here(got_bytes), &there(8, got_bytes), &LIMITS);
            assert_eq!(refused, Err(PlanRefused::AtomicLength { got_bytes }));
        }
        for key_addr in (1..8).chain([12, u64::MAX - 8]) {
            let refused = Plan::new(operation, &here(8), &there(key_addr, 8), &LIMITS);
            assert_eq!(refused, Err(PlanRefused::AtomicAlignment { key_addr }));
        }
        for key_addr in [0, 8, u64::MAX - 7] {
            let plan = Plan::new(operation, &here(8), &there(key_addr, 8), &LIMITS).expect("8 aligned bytes");
            assert_eq!(all_parts(&plan), twin(0x40, key_addr, 8, 8));
        }
        // A device with a largest message below 8 would still take an atomic whole.
        let small = Limits { max_message_bytes: 4, ..LIMITS };
        assert_eq!(Plan::new(operation, &here(8), &there(8, 8), &small).map(|plan| plan.parts()), Ok(1));
    }
}

#[test]
fn what_the_queue_pair_cannot_do_is_refused() {
    for operation in ALL {
        let keyless = RemoteView::new(0, 8, 0, DeviceName::new(b"a").expect("a name")).expect("bytes");
        assert_eq!(Plan::new(operation, &here(8), &keyless, &LIMITS), Err(PlanRefused::NoRemoteKey));
        let plan = |limits| Plan::new(operation, &here(8), &there(0, 8), &limits).err();
        let no_reads = operation.has_answer().then_some(PlanRefused::NoReads);
        assert_eq!(plan(Limits { max_rd_atomic: 0, ..LIMITS }), no_reads);
        let no_atomics = operation.is_atomic().then_some(PlanRefused::NoAtomics);
        assert_eq!(plan(Limits { atomics: AtomicCap::NONE, ..LIMITS }), no_atomics);
        assert_eq!(plan(LIMITS), None);
    }
}

#[test]
fn as_many_parts_as_there_are_slots_and_no_more() {
    for (len_bytes, parts) in [(1, 1), (8, 1), (9, 2), (31, 4), (32, 4)] {
        let plan = Plan::new(Operation::Read, &here(len_bytes), &there(0, len_bytes), &LIMITS).expect("it fits");
        assert_eq!((plan.parts(), plan.part(parts)), (parts, None));
        assert_eq!(plan.whole(), plan.part(0).filter(|part| part.is_last), "the one request, where it is one");
    }
    let refused = Plan::new(Operation::Read, &here(33), &there(0, 33), &LIMITS);
    assert_eq!(refused, Err(PlanRefused::TooLong { len_bytes: 33, limit_bytes: 32 }));
    let none = Limits { send_slots: 0, ..LIMITS };
    let refused = Plan::new(Operation::Write, &here(1), &there(0, 1), &none);
    assert_eq!(refused, Err(PlanRefused::TooLong { len_bytes: 1, limit_bytes: 0 }));
}

#[test]
fn a_port_that_does_not_say_or_exaggerates_has_the_largest_message_there_is() {
    for max_message_bytes in [0, LARGEST_MESSAGE_BYTES, LARGEST_MESSAGE_BYTES + 1, u32::MAX] {
        let limits = Limits { max_message_bytes, ..LIMITS };
        let len_bytes = u64::from(LARGEST_MESSAGE_BYTES) + 1;
        let plan = Plan::new(Operation::Write, &here(len_bytes), &there(0, len_bytes), &limits).expect("two parts");
        assert_eq!(all_parts(&plan), twin(0x40, 0, len_bytes, u64::from(LARGEST_MESSAGE_BYTES)));
    }
}

#[test]
fn parts_reach_the_top_of_the_address_space() {
    let local = KeyedRange::new(u64::MAX - 19, u64::MAX - 19, 20, 1, 2).expect("ends at 2^64");
    let plan = Plan::new(Operation::Write, &local, &there(u64::MAX - 19, 20), &LIMITS).expect("three parts");
    let last = plan.part(2).expect("the third");
    assert_eq!((last.local_addr, last.remote_addr, last.len_bytes), (u64::MAX - 3, u64::MAX - 3, 4));
}

proptest! {
    #[test]
    fn parts_are_those_that_are_cut_one_after_the_other(
        len in 1u64..200,
        most in 1u32..40,
        addr in any::<u32>(),
        kind in 0usize..3,
    ) {
        let limits = Limits { max_message_bytes: most, send_slots: 50, ..LIMITS };
        let wanted = twin(0x40, u64::from(addr), len, u64::from(most));
        match Plan::new(ALL[kind], &here(len), &there(u64::from(addr), len), &limits) {
            Ok(plan) => {
                prop_assert_eq!(all_parts(&plan), wanted);
                prop_assert_eq!((plan.len_bytes(), plan.lkey(), plan.rkey()), (len, 10, 20));
            }
            Err(refused) => {
                prop_assert!(wanted.len() > 50);
                prop_assert_eq!(refused, PlanRefused::TooLong { len_bytes: len, limit_bytes: 50 * u64::from(most) });
            }
        }
    }
}
