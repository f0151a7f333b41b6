//! The states of an unreliable connected queue pair, and which attributes each step needs and takes.
//!
//! Source: the InfiniBand specification's table as the Linux kernel holds it (`qp_state_table` in
//! `drivers/infiniband/core/verbs.c`), its columns for UC.

use bareverbs_core::verbs::{QpAttrMask, QpState};

/// One step and its attributes.
struct Step {
    from: QpState,
    to: QpState,
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

/// Every step but those to RESET and to ERR, which every state allows with no attribute.
const STEPS: &[Step] = &[
    Step { from: QpState::RESET, to: QpState::INIT, needs: TO_INIT, takes: NONE },
    Step { from: QpState::INIT, to: QpState::INIT, needs: NONE, takes: TO_INIT },
    Step { from: QpState::INIT, to: QpState::RTR, needs: TO_RTR, takes: WITH_RTR },
    Step { from: QpState::RTR, to: QpState::RTS, needs: QpAttrMask::SQ_PSN, takes: RUNNING },
    Step { from: QpState::RTS, to: QpState::RTS, needs: NONE, takes: RUNNING },
    Step { from: QpState::RTS, to: QpState::SQD, needs: NONE, takes: QpAttrMask::EN_SQD_ASYNC_NOTIFY },
    Step { from: QpState::SQD, to: QpState::RTS, needs: NONE, takes: RUNNING },
    Step { from: QpState::SQD, to: QpState::SQD, needs: NONE, takes: DRAINED },
];

/// Whether the step from one state to another may be taken with these attributes.
///
/// RESET to ERR is refused, as the kernel does: there is nothing to flush.
pub(super) fn allows(from: QpState, to: QpState, attributes: QpAttrMask) -> bool {
    let attributes = attributes.difference(QpAttrMask::STATE);
    match to {
        QpState::RESET => attributes.is_empty(),
        QpState::ERR => attributes.is_empty() && from != QpState::RESET,
        _ => STEPS.iter().any(|step| {
            step.from == from
                && step.to == to
                && attributes.contains(step.needs)
                && (step.needs | step.takes).contains(attributes)
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
            assert!(allows(from, to, needs | QpAttrMask::STATE), "{from:?} {to:?}");
            for missing in needs.iter() {
                assert!(!allows(from, to, needs.difference(missing)), "{from:?} {to:?} without {missing:?}");
            }
        }
    }

    #[test]
    fn attributes_of_reliable_queue_pairs_are_refused() {
        for (from, to, needs) in LIFE {
            for reliable in [QpAttrMask::TIMEOUT, QpAttrMask::RETRY_CNT, QpAttrMask::MIN_RNR_TIMER, QpAttrMask::QKEY] {
                assert!(!allows(from, to, needs | reliable), "{from:?} {to:?} {reliable:?}");
            }
        }
    }

    #[test]
    fn no_state_but_the_one_before_leads_on() {
        for from in STATES {
            for (before, to, needs) in LIFE {
                let again = from == QpState::INIT && to == QpState::INIT;
                assert_eq!(allows(from, to, needs), from == before || again, "{from:?} to {to:?}");
            }
            assert!(allows(from, QpState::RESET, QpAttrMask::STATE));
            assert_eq!(allows(from, QpState::ERR, QpAttrMask::STATE), from != QpState::RESET);
            assert!(!allows(from, QpState::RESET, QpAttrMask::SQ_PSN), "RESET takes no attribute");
        }
        assert!(allows(QpState::RTS, QpState::SQD, NONE) && !allows(QpState::RTR, QpState::SQD, NONE));
        assert!(!allows(QpState::ERR, QpState::RTS, QpAttrMask::SQ_PSN));
    }
}
