use bareverbs_core::link::{Sequence, SequenceChecker, Verdict};
use proptest::prelude::*;

#[test]
fn b3_the_wrap_from_all_ones_to_zero_passes() {
    let mut sender = Sequence::new(0xFFFF_FFFE);
    let mut checker = SequenceChecker::new(sender);
    let mut sent = Vec::new();
    for _ in 0..5 {
        sent.push(sender.number());
        assert_eq!(checker.check(sender), Verdict::InOrder);
        sender = sender.next();
    }
    assert_eq!(sent, [0xFFFF_FFFE, 0xFFFF_FFFF, 0, 1, 2]);
}

#[test]
fn b3_at_zero_the_last_number_is_old_and_two_is_a_gap_of_two() {
    let mut checker = SequenceChecker::new(Sequence::new(0));
    assert_eq!(Sequence::new(0xFFFF_FFFF).distance_from(checker.expected), -1);
    assert_eq!(checker.check(Sequence::new(0xFFFF_FFFF)), Verdict::Old { behind: 1 });
    assert_eq!(checker.check(Sequence::new(2)), Verdict::Gap { missing: 2 });
    assert_eq!(checker.check(Sequence::new(0)), Verdict::InOrder, "the others moved nothing");
}

#[test]
fn gaps_are_told_from_repeats_up_to_half_the_circle() {
    let half = 1 << 31;
    for expected in [0, 1, half - 1, half, half + 1, u32::MAX] {
        let verdict =
            |ahead: u32| SequenceChecker::new(Sequence::new(expected)).check(Sequence::new(expected).plus(ahead));
        assert_eq!(verdict(half - 1), Verdict::Gap { missing: half - 1 });
        assert_eq!(verdict(half), Verdict::Old { behind: half });
        assert_eq!(verdict(half + 1), Verdict::Old { behind: half - 1 });
    }
    assert_eq!(Sequence::default(), Sequence::new(0), "the start, where none was agreed");
}

/// The slow, obvious twin: the representative of the distance that is nearest to zero, in 64 bits.
fn twin(expected: u32, got: u32) -> Verdict {
    let circle = 1i64 << 32;
    let mut distance = i64::from(got) - i64::from(expected);
    while distance >= circle / 2 {
        distance -= circle;
    }
    while distance < -circle / 2 {
        distance += circle;
    }
    match distance {
        0 => Verdict::InOrder,
        1.. => Verdict::Gap { missing: distance as u32 },
        _ => Verdict::Old { behind: -distance as u32 },
    }
}

proptest! {
    #[test]
    fn the_verdict_agrees_with_its_twin(expected: u32, near in -3i32..4, far: u32) {
        for got in [expected.wrapping_add_signed(near), far] {
            let mut checker = SequenceChecker::new(Sequence::new(expected));
            let verdict = checker.check(Sequence::new(got));
            prop_assert_eq!(verdict, twin(expected, got));
            let moved = if verdict == Verdict::InOrder { got.wrapping_add(1) } else { expected };
            prop_assert_eq!(checker.expected.number(), moved);
        }
    }
}
