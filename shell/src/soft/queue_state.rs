//! The states of a connected queue pair, and which attributes each step needs and takes.
//!
//! Source: the InfiniBand specification's table as the Linux kernel holds it (`qp_state_table` in
//! `drivers/infiniband/core/verbs.c`), its columns for UC and RC.

use bareverbs_core::verbs::{QpAttrMask, QpState, QpType};

/// One step and its attributes.
struct Step {
    from: QpState,
    to: QpState,
    needs: QpAttrMask,
    takes: QpAttrMask,
    /// What a reliable queue pair needs and takes besides.
    reliable: Reliable,
}

/// What a step of a reliable queue pair has besides.
#[derive(Clone, Copy)]
struct Reliable {
    needs: QpAttrMask,
    takes: QpAttrMask,
}

const fn mask(bits: &[QpAttrMask]) -> QpAttrMask {
    let (mut all, mut at) = (0, 0);
    while at < bits.len() {
        all |= bits[at].bits();
        at += 1;
    }
    QpAttrMask::from_bits_retain(all)
}

const NONE: QpAttrMask = QpAttrMask::empty();
const TO_INIT: QpAttrMask = mask(&[QpAttrMask::PKEY_INDEX, QpAttrMask::PORT, QpAttrMask::ACCESS_FLAGS]);
const TO_RTR: QpAttrMask = mask(&[QpAttrMask::AV, QpAttrMask::PATH_MTU, QpAttrMask::DEST_QPN, QpAttrMask::RQ_PSN]);
const WITH_RTR: QpAttrMask = mask(&[QpAttrMask::ALT_PATH, QpAttrMask::ACCESS_FLAGS, QpAttrMask::PKEY_INDEX]);
const RUNNING: QpAttrMask =
    mask(&[QpAttrMask::CUR_STATE, QpAttrMask::ACCESS_FLAGS, QpAttrMask::ALT_PATH, QpAttrMask::PATH_MIG_STATE]);
const DRAINED: QpAttrMask = mask(&[
    QpAttrMask::AV,
    QpAttrMask::ALT_PATH,
    QpAttrMask::ACCESS_FLAGS,
    QpAttrMask::PKEY_INDEX,
    QpAttrMask::PATH_MIG_STATE,
]);

const NO_MORE: Reliable = Reliable { needs: NONE, takes: NONE };
const TIMER: Reliable = Reliable { needs: NONE, takes: QpAttrMask::MIN_RNR_TIMER };
const RELIABLE_RTR: Reliable =
    Reliable { needs: mask(&[QpAttrMask::MAX_DEST_RD_ATOMIC, QpAttrMask::MIN_RNR_TIMER]), takes: NONE };
const TRIES: QpAttrMask =
    mask(&[QpAttrMask::TIMEOUT, QpAttrMask::RETRY_CNT, QpAttrMask::RNR_RETRY, QpAttrMask::MAX_QP_RD_ATOMIC]);
const RELIABLE_RTS: Reliable = Reliable { needs: TRIES, takes: QpAttrMask::MIN_RNR_TIMER };
const RELIABLE_DRAINED: Reliable = Reliable {
    needs: NONE,
    takes: mask(&[TRIES, QpAttrMask::PORT, QpAttrMask::MAX_DEST_RD_ATOMIC, QpAttrMask::MIN_RNR_TIMER]),
};

/// A step and its attributes, for both services and for reliable queue pairs besides.
const fn step(from: QpState, to: QpState, needs: QpAttrMask, takes: QpAttrMask, reliable: Reliable) -> Step {
    Step { from, to, needs, takes, reliable }
}

/// Every step but those to RESET and to ERR, which every state allows with no attribute.
const STEPS: &[Step] = &[
    step(QpState::RESET, QpState::INIT, TO_INIT, NONE, NO_MORE),
    step(QpState::INIT, QpState::INIT, NONE, TO_INIT, NO_MORE),
    step(QpState::INIT, QpState::RTR, TO_RTR, WITH_RTR, RELIABLE_RTR),
    step(QpState::RTR, QpState::RTS, QpAttrMask::SQ_PSN, RUNNING, RELIABLE_RTS),
    step(QpState::RTS, QpState::RTS, NONE, RUNNING, TIMER),
    step(QpState::RTS, QpState::SQD, NONE, QpAttrMask::EN_SQD_ASYNC_NOTIFY, NO_MORE),
    step(QpState::SQD, QpState::RTS, NONE, RUNNING, TIMER),
    step(QpState::SQD, QpState::SQD, NONE, DRAINED, RELIABLE_DRAINED),
];

/// Whether the step from one state to another may be taken with these attributes.
///
/// RESET to ERR is refused, as the kernel does: there is nothing to flush.
pub(super) fn allows(kind: QpType, from: QpState, to: QpState, attributes: QpAttrMask) -> bool {
    let attributes = attributes.difference(QpAttrMask::STATE);
    match to {
        QpState::RESET => attributes.is_empty(),
        QpState::ERR => attributes.is_empty() && from != QpState::RESET,
        _ => STEPS.iter().filter(|step| (step.from, step.to) == (from, to)).any(|step| {
            let more = if kind == QpType::RC { step.reliable } else { NO_MORE };
            let (needs, takes) = (step.needs | more.needs, step.takes | more.takes);
            attributes.contains(needs) && (needs | takes).contains(attributes)
        }),
    }
}

/// Whether a send may be posted.
#[inline]
pub(super) const fn takes_sends(state: QpState) -> bool {
    matches!(state, QpState::RTS | QpState::SQD | QpState::SQE | QpState::ERR)
}

/// Whether a receive may be posted.
#[inline]
pub(super) const fn takes_receives(state: QpState) -> bool {
    !matches!(state, QpState::RESET)
}

/// Whether a message that comes in is taken.
#[inline]
pub(super) const fn hears(state: QpState) -> bool {
    matches!(state, QpState::RTR | QpState::RTS | QpState::SQD)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uc_allows(from: QpState, to: QpState, attributes: QpAttrMask) -> bool {
        allows(QpType::UC, from, to, attributes)
    }

    const STATES: [QpState; 7] =
        [QpState::RESET, QpState::INIT, QpState::RTR, QpState::RTS, QpState::SQD, QpState::SQE, QpState::ERR];

    /// The least attributes of the steps of a life.
    const LIFE: [(QpState, QpState, QpAttrMask); 3] = [
        (QpState::RESET, QpState::INIT, TO_INIT),
        (QpState::INIT, QpState::RTR, TO_RTR),
        (QpState::RTR, QpState::RTS, QpAttrMask::SQ_PSN),
    ];

    #[test]
    fn each_step_of_a_life_needs_every_one_of_its_attributes() {
        for (from, to, needs) in LIFE {
            assert!(uc_allows(from, to, needs | QpAttrMask::STATE), "{from:?} {to:?}");
            for missing in needs.iter() {
                assert!(!uc_allows(from, to, needs.difference(missing)), "{from:?} {to:?} without {missing:?}");
            }
        }
    }

    #[test]
    fn attributes_of_reliable_queue_pairs_are_refused() {
        for (from, to, needs) in LIFE {
            for reliable in [QpAttrMask::TIMEOUT, QpAttrMask::RETRY_CNT, QpAttrMask::MIN_RNR_TIMER, QpAttrMask::QKEY] {
                assert!(!uc_allows(from, to, needs | reliable), "{from:?} {to:?} {reliable:?}");
            }
        }
    }

    #[test]
    fn no_state_but_the_one_before_leads_on() {
        for from in STATES {
            for (before, to, needs) in LIFE {
                let again = from == QpState::INIT && to == QpState::INIT;
                assert_eq!(uc_allows(from, to, needs), from == before || again, "{from:?} to {to:?}");
            }
            assert!(uc_allows(from, QpState::RESET, QpAttrMask::STATE));
            assert_eq!(uc_allows(from, QpState::ERR, QpAttrMask::STATE), from != QpState::RESET);
            assert!(!uc_allows(from, QpState::RESET, QpAttrMask::SQ_PSN), "RESET takes no attribute");
        }
        assert!(uc_allows(QpState::RTS, QpState::SQD, NONE) && !uc_allows(QpState::RTR, QpState::SQD, NONE));
        assert!(!uc_allows(QpState::ERR, QpState::RTS, QpAttrMask::SQ_PSN));
    }

    #[test]
    fn reliable_queue_pairs_need_each_attribute_of_their_own() {
        let life = [
            (QpState::RESET, QpState::INIT, TO_INIT),
            (QpState::INIT, QpState::RTR, TO_RTR | RELIABLE_RTR.needs),
            (QpState::RTR, QpState::RTS, QpAttrMask::SQ_PSN | TRIES),
        ];
        for (from, to, needs) in life {
            assert!(allows(QpType::RC, from, to, needs), "{from:?} {to:?}");
            for missing in needs.iter() {
                assert!(
                    !allows(QpType::RC, from, to, needs.difference(missing)),
                    "{from:?} {to:?} without {missing:?}"
                );
            }
            assert!(!allows(QpType::RC, from, to, needs | QpAttrMask::QKEY), "{from:?} {to:?}");
        }
        assert!(allows(QpType::RC, QpState::SQD, QpState::SQD, QpAttrMask::TIMEOUT));
        assert!(!uc_allows(QpState::SQD, QpState::SQD, QpAttrMask::TIMEOUT));
    }
}
