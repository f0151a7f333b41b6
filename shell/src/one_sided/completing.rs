//! How ends of operations are learnt of: polling, waiting, sleeping, and what the device reports on its own.
//!
//! The rule this file protects: **each operation ends once for its caller**, by a completion of its own, or with the queue
//! pair.

use std::time::Duration;

use bareverbs_core::link::Fault;
use bareverbs_core::one_sided::{Accepted, Arrival, Books, OperationId};
use bareverbs_core::verbs::inline_calls::PostError;

use crate::errno;
use crate::error::Error;
use crate::one_sided::error::{OperationError, TransferError, TransferErrorKind};
use crate::one_sided::{Stage, Transfers, posting};
use crate::wait::{Ended as WaitEnded, Spin, Wait, Waiting};

/// What came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// An operation ended; of each, this comes once.
    Ended(Ended),
    /// The other end wrote with immediate data: its bytes are in place. Nothing tells where, but what both agreed on.
    Arrived(Arrival),
}

/// The end of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Which.
    pub operation: OperationId,
    /// How. After success a write's bytes are the other end's, a read's and an atomic's are here. After an error nothing is
    /// known of the bytes, and the queue pair is broken.
    pub result: Result<(), OperationError>,
}

/// Books while a batch of completions is given out. When the caller's code panics in between, the rest of the batch is lost:
/// they break. A batch that was given out is forgotten.
struct Batch<'end, const N: usize>(&'end mut Books<N>);

impl<const N: usize> Drop for Batch<'_, N> {
    fn drop(&mut self) {
        self.0.break_with(Fault::Abandoned);
    }
}

impl<const N: usize> Transfers<N> {
    /// Takes what has completed and gives each event to `on`, in order; answers how many.
    ///
    /// An operation that fails breaks the queue pair: whatever else is outstanding ends with it, in the same call. So does a
    /// completion that cannot be, a poll that fails, and a fatal event of the device.
    /// A receive that was flushed says only that something has failed: the operations outstanding then say what, each by its own
    /// completion.
    ///
    /// # Errors
    /// When nothing came: [`TransferErrorKind::Broken`] of a queue pair that is, for good. [`TransferErrorKind::Gone`].
    pub fn poll(&mut self, on: impl FnMut(Event)) -> Result<usize, TransferError> {
        self.poll_while(|| false, on)
    }

    /// As [`poll`](Self::poll), and once more as long as nothing comes and `again` says so.
    #[inline]
    fn poll_while(
        &mut self,
        mut again: impl FnMut() -> bool,
        mut on: impl FnMut(Event),
    ) -> Result<usize, TransferError> {
        if self.one_thread {
            self.check_thread()?;
        }
        if self.stage == Stage::Failed {
            return Err(self.failed(TransferErrorKind::Gone));
        }
        self.heed_events();
        let mut events = 0;
        let mut arrived = 0;
        let Self { plumbing, books, held, room, .. } = self;
        let Some(queue) = &mut plumbing.queue else { return Err(self.failed(TransferErrorKind::Gone)) };
        let batch = Batch(books);
        // What there is to tell already is told at once.
        match queue.poll_here_while(room, || again() && !batch.0.is_broken()) {
            Err(error) => batch.0.break_with(Fault::Poll(error)),
            Ok(completions) => {
                for completion in completions {
                    let (event, freed) = match batch.0.accept(&completion) {
                        Accepted::Ended { operation, slot } => (ended(operation, Ok(())), Some(slot)),
                        Accepted::Failed { operation, slot, failure } => {
                            (ended(operation, Err(OperationError::Failed(failure))), slot)
                        }
                        Accepted::Settled { slot } => (None, Some(slot)),
                        Accepted::Arrived(arrival) => {
                            arrived += 1;
                            (Some(Event::Arrived(arrival)), None)
                        }
                        _ => (None, None),
                    };
                    if let Some(slot) = freed {
                        held.give_back(slot);
                    }
                    if let Some(event) = event {
                        events += 1;
                        on(event);
                    }
                }
            }
        }
        std::mem::forget(batch);
        if arrived > 0 {
            self.replace_receives(arrived);
        }
        if self.books.is_broken() { self.tell_the_rest(events, &mut on) } else { Ok(events) }
    }

    /// Polls, or sleeps on the completion channel, until something came, and gives it to `on`; answers how many.
    ///
    /// # Errors
    /// As [`poll`](Self::poll); [`TransferErrorKind::Timeout`] and [`TransferErrorKind::Cancelled`] name what is outstanding,
    /// which stays so: its memory stays registered, and its end comes with a later call, or this value's.
    pub fn wait(&mut self, wait: &Wait<'_>, mut on: impl FnMut(Event)) -> Result<usize, TransferError> {
        self.wait_within(&mut wait.begin(), &mut on)
    }

    /// Waits until no operation is outstanding, and gives what comes to `on`; answers how many events.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_for_all(&mut self, wait: &Wait<'_>, mut on: impl FnMut(Event)) -> Result<usize, TransferError> {
        if self.stage == Stage::Failed {
            return Err(self.failed(TransferErrorKind::Gone));
        }
        let mut waiting = wait.begin();
        let mut events = 0;
        while self.books.untold() > 0 {
            events += self.wait_within(&mut waiting, &mut on)?;
            if self.books.untold() > 0 {
                // What came may be the peer's, who must not hold this up for ever.
                waiting.left().map_err(|ended| self.ended(ended))?;
            }
        }
        Ok(events)
    }

    fn wait_within(&mut self, waiting: &mut Waiting<'_>, on: &mut impl FnMut(Event)) -> Result<usize, TransferError> {
        let mut armed = None;
        loop {
            let mut spin = if self.plumbing.channel.is_none() { waiting.spin() } else { Spin::NONE };
            match self.poll_while(|| spin.again(), &mut *on)? {
                0 => self.rest(waiting, &mut armed)?,
                events => return Ok(events),
            }
        }
    }

    /// What is to be done after a poll that found nothing, and before the next: looks at clock and flag, and relaxes, or sleeps;
    /// and what the device has to say is heard. `armed`: how long it may sleep, when the queue is armed and was polled since.
    #[inline(never)]
    fn rest(&mut self, waiting: &mut Waiting<'_>, armed: &mut Option<Duration>) -> Result<(), TransferError> {
        if self.plumbing.channel.is_none() {
            if let Err(ended) = waiting.idle() {
                self.over(ended)?;
            }
            return if waiting.events_are_due() { self.take_events() } else { Ok(()) };
        }
        if let Some(left) = armed.take() {
            return self.plumbing.sleep(left).map_err(|error| self.asleep(error));
        }
        self.take_events()?;
        if self.books.is_over() {
            return Ok(());
        }
        let left = waiting.left().map_err(|ended| self.ended(ended))?;
        // What came before the queue was armed makes no event: a poll comes first, then the sleep.
        self.plumbing.arm().map_err(|error| self.asleep(error))?;
        *armed = Some(left);
        Ok(())
    }

    /// Posts a receive for each that has ended. One that is refused breaks the queue pair: the other end would wait for ever.
    fn replace_receives(&mut self, count: u32) {
        for _ in 0..count {
            if self.books.cause().is_some() {
                return;
            }
            let Some(wr_id) = self.books.next_receive() else { return };
            errno::clear();
            match posting::post_receive(&mut self.calls, wr_id) {
                Ok(()) => self.books.receive_posted(),
                Err(PostError::Refused { raw, .. } | PostError::Unknown { raw }) => {
                    let direction = bareverbs_core::link::Direction::Receive;
                    self.books.break_with(Fault::PostUnknown { direction, raw });
                }
                Err(_) => return,
            }
        }
    }

    /// Ends what is outstanding on a queue pair that is broken, and answers for a poll of which so many events were told.
    #[cold]
    #[inline(never)]
    fn tell_the_rest(&mut self, told: usize, on: &mut impl FnMut(Event)) -> Result<usize, TransferError> {
        let Some(cause) = self.books.cause() else { return Ok(told) };
        let mut told = told;
        while let Some(operation) = self.books.tell_next() {
            told += 1;
            on(Event::Ended(Ended { operation, result: Err(OperationError::Broken { cause }) }));
        }
        if told == 0 && self.books.is_over() { Err(self.failed(TransferErrorKind::Broken { cause })) } else { Ok(told) }
    }

    /// Takes what the device has reported on its own, and heeds it; the next poll tells what it ended.
    fn take_events(&mut self) -> Result<(), TransferError> {
        let taken = self.plumbing.context.as_ref().map_or(Ok(0), |context| context.each_event(drop));
        taken.map_err(|error| self.asleep(error))?;
        self.heed_events();
        Ok(())
    }

    /// A wait that polls is over, unless the device has something to say first.
    #[cold]
    #[inline(never)]
    fn over(&mut self, ended: WaitEnded) -> Result<(), TransferError> {
        if let WaitEnded::Deadline { .. } = ended {
            self.take_events()?;
        }
        if self.books.is_over() { Ok(()) } else { Err(self.ended(ended)) }
    }

    /// Breaks if a fatal event concerns it. One look at a counter when there was none.
    #[inline]
    fn heed_events(&mut self) {
        let Some(context) = &self.plumbing.context else { return };
        let fatal = context.fatal_count();
        if fatal != self.fatal_seen {
            self.heed_fatal(fatal);
        }
    }

    #[cold]
    #[inline(never)]
    fn heed_fatal(&mut self, count: u32) {
        self.fatal_seen = count;
        let (Some(context), Some(queue)) = (&self.plumbing.context, &self.plumbing.queue) else { return };
        if let Some(event) = context.fault_of(self.qp_num, queue.id()) {
            self.books.break_with(Fault::Device { event });
        }
    }

    #[cold]
    #[inline(never)]
    fn asleep(&self, error: Error) -> TransferError {
        self.failed(TransferErrorKind::Sleep(Box::new(error)))
    }

    #[cold]
    #[inline(never)]
    fn ended(&self, ended: WaitEnded) -> TransferError {
        let pending = self.books.pending().collect();
        self.failed(match ended {
            WaitEnded::Cancelled => TransferErrorKind::Cancelled { pending },
            WaitEnded::Deadline { waited } => {
                TransferErrorKind::Timeout { waited, pending, receives: self.books.receives() }
            }
        })
    }
}

fn ended(operation: OperationId, result: Result<(), OperationError>) -> Option<Event> {
    Some(Event::Ended(Ended { operation, result }))
}
