//! All that a queue pair for one-sided operations has outstanding, and what broke it.
//!
//! The rules this file protects: **a completion that matches nothing in flight ends nothing, and breaks the books for good**;
//! after that nothing is started, while what is outstanding is still accounted for. Each operation that was in flight is told
//! of once: by a completion of its own, or by [`Books::tell_next`].

use core::fmt;

use crate::link::work_id::{Direction, WorkId};
use crate::link::{CarrierError, Fault};
use crate::one_sided::arrivals::{Arrival, Posted};
use crate::one_sided::numbers::Numbers;
use crate::one_sided::operations::{Matched, NoPlace, OperationId, Operations, Start, Status};
use crate::verbs::completion::{FailedCompletion, Wc};
use crate::verbs::inline_calls::{Completion, QueueId};
use crate::verbs::{WcOpcode, WcStatus};

/// Why no operation was started. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum NotStarted {
    /// As many operations as may be are in flight, or have requests that are.
    Full {
        /// How many that is.
        operations: usize,
    },
    /// The send queue has too few slots left.
    NoSlots {
        /// Slots that are free.
        free: u32,
        /// Slots that the operation needs.
        need: u32,
    },
    /// The queue pair is broken.
    Broken {
        /// Why.
        cause: Fault,
    },
    /// The process has used up its work request numbers.
    WorkIdsUsedUp,
}

impl fmt::Display for NotStarted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full { operations } => write!(f, "all {operations} operations are in flight: take completions first"),
            Self::NoSlots { free, need } => {
                write!(f, "{need} requests, and the send queue has room for {free}: take completions first")
            }
            Self::Broken { cause } => write!(f, "the queue pair is broken: {cause}"),
            Self::WorkIdsUsedUp => f.write_str("work request numbers are used up"),
        }
    }
}

impl core::error::Error for NotStarted {}

/// What a completion means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Accepted {
    /// It is of another queue or queue pair. Nothing changed.
    Foreign,
    /// Nothing that anybody waits for: the books are kept, or have just been broken ([`Books::cause`]).
    Quiet,
    /// An operation succeeded. Nothing of it is outstanding.
    Ended {
        /// Which.
        operation: OperationId,
        /// Its place, which is free: what kept its memory may go.
        slot: usize,
    },
    /// An operation failed, and with it all that follow.
    Failed {
        /// Which.
        operation: OperationId,
        /// Its place, if nothing of it is outstanding.
        slot: Option<usize>,
        /// How.
        failure: FailedCompletion,
    },
    /// Nothing of an operation that was told of before is outstanding any more.
    Settled {
        /// Its place, which is free: what kept its memory may go.
        slot: usize,
    },
    /// A write with immediate data came.
    Arrived(Arrival),
}

/// What one queue pair has outstanding: at most `N` operations, and receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Books<const N: usize> {
    queue: QueueId,
    qp_num: u32,
    operations: Operations<N>,
    receives: Posted,
    cause: Option<Fault>,
}

impl<const N: usize> Books<N> {
    /// Of a queue pair whose completions come from `queue`, and whose send queue holds so many requests. `None` when the
    /// process has used up its work request numbers.
    pub fn new(queue: QueueId, qp_num: u32, send_slots: u32) -> Option<Self> {
        let numbers = Numbers::new(Direction::Send)?;
        let operations = Operations::new(numbers, send_slots);
        Some(Self { queue, qp_num, operations, receives: Posted::new()?, cause: None })
    }

    /// A place for an operation of so many requests, at least 1.
    ///
    /// # Errors
    /// [`NotStarted`]; of no requests, always: nothing would end it.
    #[inline]
    pub fn start(&mut self, parts: u32) -> Result<Start, NotStarted> {
        if let Some(cause) = self.cause {
            return Err(NotStarted::Broken { cause });
        }
        self.operations.start(parts).map_err(|why| match why {
            NoPlace::Operations => NotStarted::Full { operations: N },
            NoPlace::Slots { free } => NotStarted::NoSlots { free, need: parts },
            NoPlace::WorkIdsUsedUp => NotStarted::WorkIdsUsedUp,
        })
    }

    /// Enters an operation whose requests were posted, or may have been. The start must be the latest of these books.
    #[inline]
    pub fn posted(&mut self, start: Start) -> OperationId {
        self.operations.posted(&start)
    }

    /// The `wr_id` of the next receive; `None` when numbers are used up.
    pub fn next_receive(&mut self) -> Option<u64> {
        self.receives.next()
    }

    /// Enters a receive that was posted with [`next_receive`](Self::next_receive)'s number.
    pub fn receive_posted(&mut self) {
        self.receives.posted();
    }

    /// Takes a completion.
    #[inline]
    pub fn accept(&mut self, completion: &Completion<'_>) -> Accepted {
        if completion.queue() != self.queue || completion.qp_num() != self.qp_num {
            return Accepted::Foreign;
        }
        self.take(completion.wr_id(), completion.outcome())
    }

    #[inline]
    fn take(&mut self, wr_id: u64, outcome: Result<&Wc, FailedCompletion>) -> Accepted {
        // What nearly always comes; the number alone tells that it is a send's.
        if outcome.is_ok()
            && let Some((operation, slot)) = self.operations.end_oldest(wr_id)
        {
            return Accepted::Ended { operation, slot };
        }
        self.take_any(wr_id, outcome)
    }

    #[inline(never)]
    fn take_any(&mut self, wr_id: u64, outcome: Result<&Wc, FailedCompletion>) -> Accepted {
        match WorkId::from_raw(wr_id).direction() {
            Direction::Send => self.take_send(wr_id, outcome.err()),
            Direction::Receive => self.take_receive(wr_id, outcome),
        }
    }

    #[inline]
    fn take_send(&mut self, wr_id: u64, failure: Option<FailedCompletion>) -> Accepted {
        let status = if failure.is_none() { Status::Success } else { Status::Failed };
        let matched = self.operations.complete(wr_id, status);
        if let Matched::Oldest { .. } = matched
            && let Some(failure) = failure
        {
            self.break_with(Fault::Failed(failure));
        }
        match (matched, failure) {
            (Matched::Oldest { operation, tell: true, freed }, Some(failure)) => {
                Accepted::Failed { operation, slot: freed, failure }
            }
            (Matched::Oldest { operation, tell: true, freed: Some(slot) }, None) => Accepted::Ended { operation, slot },
            (Matched::Oldest { freed: Some(slot), .. }, _) => Accepted::Settled { slot },
            (Matched::Oldest { .. }, _) => Accepted::Quiet,
            (Matched::Later { skipped }, _) => self.broken(Fault::Skipped { wr_id, skipped }),
            (Matched::Unknown, _) => self.broken(Fault::UnknownId { wr_id }),
        }
    }

    fn take_receive(&mut self, wr_id: u64, outcome: Result<&Wc, FailedCompletion>) -> Accepted {
        match self.receives.complete(wr_id) {
            Ok(()) => {}
            Err(Some(skipped)) => return self.broken(Fault::Skipped { wr_id, skipped }),
            Err(None) => return self.broken(Fault::UnknownId { wr_id }),
        }
        match outcome {
            Err(failure) => self.broken(Fault::Failed(failure)),
            Ok(wc) if wc.opcode != WcOpcode::RECV_RDMA_WITH_IMM => {
                self.broken(Fault::Unreadable { wr_id, error: CarrierError::Opcode { got: wc.opcode } })
            }
            Ok(wc) => match wc.immediate() {
                Some(immediate) => Accepted::Arrived(Arrival { immediate, len_bytes: wc.byte_len }),
                None => self.broken(Fault::Unreadable { wr_id, error: CarrierError::NoImmediate }),
            },
        }
    }

    fn broken(&mut self, fault: Fault) -> Accepted {
        self.break_with(fault);
        Accepted::Quiet
    }

    /// Breaks, for what completions do not tell. The first cause stays; but a flushed receive tells only that there is one.
    #[cold]
    pub fn break_with(&mut self, fault: Fault) {
        match self.cause {
            None => self.cause = Some(fault),
            Some(first) if is_flush(first) && !is_flush(fault) => self.cause = Some(fault),
            Some(_) => {}
        }
    }

    /// Whether it is broken and nothing of what was outstanding has still to be told by its own completion:
    /// [`tell_next`](Self::tell_next) tells the rest. Where a receive was flushed and no more is known, the operation that
    /// failed has yet to say so, and each behind it is flushed too.
    pub const fn is_over(&self) -> bool {
        match self.cause {
            None => false,
            Some(cause) => self.untold() == 0 || !is_flush(cause),
        }
    }

    /// The queue pair is gone, and what it had outstanding with it: nobody is told of that any more, and nothing is started.
    pub fn queue_pair_gone(&mut self) {
        self.break_with(Fault::Abandoned);
        self.operations.forget_all();
        self.receives.forget_all();
    }

    /// Whether it is broken.
    #[inline]
    pub const fn is_broken(&self) -> bool {
        self.cause.is_some()
    }

    /// Why it is broken, if it is.
    pub const fn cause(&self) -> Option<Fault> {
        self.cause
    }

    /// The oldest operation that nobody was told the end of, which the caller now tells: for books that are
    /// [over](Self::is_over), since no completion needs to come any more. Its place is free only when its requests have completed,
    /// or never.
    pub fn tell_next(&mut self) -> Option<OperationId> {
        if self.is_over() { self.operations.tell_next() } else { None }
    }

    /// The caller was told otherwise that this operation, the latest, is over.
    pub fn told(&mut self, latest: OperationId) {
        self.operations.tell_latest(latest);
    }

    /// Operations whose end was not told.
    #[inline]
    pub const fn untold(&self) -> usize {
        self.operations.untold()
    }

    /// Operations of which requests are, or may be, outstanding.
    pub const fn in_flight(&self) -> usize {
        self.operations.live()
    }

    /// Receives that are posted.
    pub const fn receives(&self) -> u32 {
        self.receives.count()
    }

    /// The operations whose end was not told, oldest first.
    pub fn pending(&self) -> impl Iterator<Item = OperationId> {
        self.operations.waited_for()
    }
}

/// Whether it is a receive that was flushed: of what was wrong it says nothing.
const fn is_flush(cause: Fault) -> bool {
    match cause {
        Fault::Failed(FailedCompletion { wr_id, status: WcStatus::WR_FLUSH_ERR, .. }) => {
            matches!(WorkId::from_raw(wr_id).direction(), Direction::Receive)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests;
