//! Whether a link is broken, and why: the first cause stays.
//!
//! Hot paths answer a [`Refusal`], which fits a register; what is to be told about it is kept here, and read out at the
//! very end. (An error type as large as a fault, returned by value, would be built in memory on the good path, too.)

use crate::link::bounds::Mismatch;
use crate::link::carrier::CarrierError;
use crate::link::credits::AbsurdGrant;
use crate::link::error::{Fault, LinkError};
use crate::link::sequence::{Sequence, SequenceChecker, Verdict};
use crate::link::work_id::{Direction, WorkId};
use crate::verbs::inline_calls::Completion;

/// The state of a link, apart from its rings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Health {
    /// What a ring's limit is masked with: all ones, and 0 once there is a cause, so that posts need no other look.
    open: u32,
    /// Requests that one send completion may end at a glance; 0 once broken, so that completions need no other look, and
    /// with credits, so that each gets another look.
    sends_at_once: u32,
    /// As much for receives.
    receives_at_once: u32,
    cause: Option<Fault>,
    send_marker: bool,
    receive_marker: bool,
    send_drained: bool,
    receive_drained: bool,
    /// What the last refusal with a number says.
    noted: u32,
}

/// That a number is kept in the [`Health`] ([`Health::noted`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Noted(());

/// Why a completion is not, at a glance, a message or sends that are done; the rest is in the [`Health`] and the completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    ForeignQueue,
    ForeignQueuePair,
    /// The link has just been broken.
    Fault,
    /// It was broken before.
    Broken,
    /// It is a teardown marker.
    Drained(Direction),
    /// It is a credit message; its grant is kept, to be taken in.
    Credit(Noted),
    /// A credit message was taken in; how many messages it grants is kept.
    Granted(Noted),
    /// It is what a link with credits makes of a send; how many messages are done is kept.
    Sent(Noted),
}

impl Health {
    /// Of a link that nothing is wrong with, whose completions may end so many requests.
    pub(crate) const fn new(sends_at_once: u32, receives_at_once: u32) -> Self {
        Self {
            open: u32::MAX,
            sends_at_once,
            receives_at_once,
            cause: None,
            send_marker: false,
            receive_marker: false,
            send_drained: false,
            receive_drained: false,
            noted: 0,
        }
    }

    /// Keeps a number, so that what says it fits a register.
    pub(crate) const fn note(&mut self, number: u32) -> Noted {
        self.noted = number;
        Noted(())
    }

    /// The number kept last.
    pub(crate) const fn noted(&self, Noted(()): Noted) -> u32 {
        self.noted
    }

    /// Requests that one completion may end at a glance: none once the link is broken.
    #[inline(always)]
    pub(crate) const fn released_at_once(&self, direction: Direction) -> u32 {
        match direction {
            Direction::Send => self.sends_at_once,
            Direction::Receive => self.receives_at_once,
        }
    }

    #[inline]
    pub(crate) const fn cause(&self) -> Option<Fault> {
        self.cause
    }

    #[inline]
    pub(crate) const fn is_broken(&self) -> bool {
        self.open == 0
    }

    /// All ones while posts are allowed, else 0.
    #[inline(always)]
    pub(crate) const fn open(&self) -> u32 {
        self.open
    }

    /// Breaks; the first cause stays.
    #[cold]
    #[inline(never)]
    pub(crate) fn break_now(&mut self, fault: Fault) -> Refusal {
        match self.cause {
            Some(_) => Refusal::Broken,
            None => {
                self.cause = Some(fault);
                self.open = 0;
                (self.sends_at_once, self.receives_at_once) = (0, 0);
                Refusal::Fault
            }
        }
    }

    /// Breaks for a completion that failed.
    #[cold]
    #[inline(never)]
    pub(crate) fn failed(&mut self, completion: Completion<'_>) -> Refusal {
        match completion.outcome() {
            Err(failed) => self.break_now(Fault::Failed(failed)),
            // Nobody asks for one that succeeded.
            Ok(_) => Refusal::Broken,
        }
    }

    /// Breaks for a frame that is not a message of the carrier.
    #[cold]
    #[inline(never)]
    pub(crate) fn unreadable(&mut self, completion: Completion<'_>, error: CarrierError) -> Refusal {
        self.break_now(Fault::Unreadable { wr_id: completion.wr_id(), error })
    }

    /// Breaks for a message that was not the next one.
    #[cold]
    #[inline(never)]
    pub(crate) fn out_of_order(
        &mut self,
        checker: &SequenceChecker,
        completion: Completion<'_>,
        got: Sequence,
    ) -> Refusal {
        let (wr_id, expected) = (completion.wr_id(), checker.expected);
        self.break_now(match checker.out_of_order(got) {
            Verdict::Gap { missing } => Fault::Gap { wr_id, expected, got, missing },
            Verdict::Old { behind } => Fault::Old { wr_id, expected, got, behind },
            // Nobody asks for the next one; it would be a repeat of itself.
            Verdict::InOrder => Fault::Old { wr_id, expected, got, behind: 0 },
        })
    }

    /// Breaks for a grant that cannot be true.
    #[cold]
    #[inline(never)]
    pub(crate) fn absurd(&mut self, completion: Completion<'_>, got: Sequence, absurd: AbsurdGrant) -> Refusal {
        let AbsurdGrant { least, most } = absurd;
        self.break_now(Fault::Grant { wr_id: completion.wr_id(), least, most, got })
    }

    /// What a completion means that ends no request of the link.
    #[cold]
    #[inline(never)]
    pub(crate) fn mismatched(&mut self, completion: Completion<'_>, mismatch: Mismatch) -> Refusal {
        let wr_id = completion.wr_id();
        match (mismatch, WorkId::from_raw(wr_id).marker()) {
            (Mismatch::Queue, _) => Refusal::ForeignQueue,
            (Mismatch::QueuePair, _) => Refusal::ForeignQueuePair,
            (_, Some(direction)) if self.is_marker_posted(direction) => {
                self.drain(direction);
                Refusal::Drained(direction)
            }
            // A marker that nobody posted ends nothing: it is a number like any other that is not in flight.
            (_, Some(_)) | (Mismatch::NotInFlight, None) => self.break_now(Fault::UnknownId { wr_id }),
            (Mismatch::Settled, None) => Refusal::Broken,
            (Mismatch::Skipped { skipped }, None) => self.break_now(Fault::Skipped { wr_id, skipped }),
        }
    }

    /// The error that a refusal stands for; a marker, and what goes by credits, is none.
    #[inline(always)]
    pub(crate) fn error(&self, refusal: Refusal, completion: Completion<'_>, qp_num: u32) -> LinkError {
        // A link that refuses for a fault has one.
        let cause = self.cause.unwrap_or(Fault::UnknownId { wr_id: completion.wr_id() });
        match refusal {
            Refusal::ForeignQueue => LinkError::ForeignQueue,
            Refusal::ForeignQueuePair => LinkError::ForeignQueuePair { expected: qp_num, got: completion.qp_num() },
            Refusal::Fault => LinkError::Fault(cause),
            Refusal::Broken | Refusal::Drained(_) | Refusal::Credit(_) | Refusal::Granted(_) | Refusal::Sent(_) => {
                LinkError::Broken { cause }
            }
        }
    }

    /// A queue's teardown marker came: nothing of it is outstanding.
    fn drain(&mut self, direction: Direction) {
        self.break_now(Fault::Teardown { direction });
        match direction {
            Direction::Send => self.send_drained = true,
            Direction::Receive => self.receive_drained = true,
        }
    }

    /// A queue's teardown marker was posted: its completion will be believed.
    pub(crate) fn marker_posted(&mut self, direction: Direction) {
        match direction {
            Direction::Send => self.send_marker = true,
            Direction::Receive => self.receive_marker = true,
        }
    }

    const fn is_marker_posted(&self, direction: Direction) -> bool {
        match direction {
            Direction::Send => self.send_marker,
            Direction::Receive => self.receive_marker,
        }
    }

    pub(crate) const fn is_drained(&self, direction: Direction) -> bool {
        match direction {
            Direction::Send => self.send_drained,
            Direction::Receive => self.receive_drained,
        }
    }
}
