//! How an endpoint learns of completions: polling, waiting, sleeping, and what the device reports on its own.

use std::time::Duration;

use bareverbs_core::link::{Carrier, CreditMode, Fault, Link, LinkError, WorkId};

use crate::endpoint::posting::Names;
use crate::endpoint::teardown::Plumbing;
use crate::endpoint::{Endpoint, EndpointError, EndpointErrorKind, Event, Stage};
use crate::errno;
use crate::error::Error;
use crate::wait::{Ended, Spin, Wait, Waiting};

/// A link while a batch of completions is given out. When the caller's code panics in between, the rest of the batch is
/// lost, and with it messages: the link breaks. A batch that was given out is forgotten.
struct Batch<'link, C: Carrier, const SEND: usize, const RECV: usize>(&'link mut Link<C, SEND, RECV>);

impl<C: Carrier, const SEND: usize, const RECV: usize> Drop for Batch<'_, C, SEND, RECV> {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

impl<C: Carrier, const SEND: usize, const RECV: usize> Endpoint<C, SEND, RECV> {
    /// Takes what has completed and gives each event to `on`, in order; answers how many. A received frame goes back to
    /// the ring when `on` returns, unless it was reposted.
    ///
    /// When `on` panics, the link is broken: what had completed after that event is lost.
    ///
    /// With credits, what came makes a grant due. Unless the other end is short of credit, it goes out at the start of the *next*
    /// poll, or wait: what the caller has to answer goes first. So an end that will not poll again for long, while the other is
    /// to go on sending, polls once more before.
    ///
    /// # Errors
    /// The first completion that is not what it must be breaks the link, and ends the call; those before it were given
    /// out. A link that is broken says so, and why, when nothing came. [`EndpointErrorKind::Send`] if a credit message was
    /// refused: what completed was given out all the same, and every later poll tries again.
    #[inline]
    pub fn poll(&mut self, on: impl FnMut(Event<'_, RECV>)) -> Result<usize, EndpointError> {
        self.poll_while(|| false, on)
    }

    /// As [`poll`](Self::poll), and once more as long as nothing comes and `again` says so.
    #[inline]
    fn poll_while(
        &mut self,
        mut again: impl FnMut() -> bool,
        mut on: impl FnMut(Event<'_, RECV>),
    ) -> Result<usize, EndpointError> {
        self.check_thread()?;
        // A frame given out can be posted again: not on a queue pair that is gone.
        if self.stage == Stage::Failed {
            return Err(self.failed(EndpointErrorKind::NotConnected));
        }
        self.heed_events()?;
        let refused = if self.grant_may_be_due { self.grant_before_polling()? } else { None };
        let Self { link, plumbing, config, room, .. } = self;
        let Some(queue) = &mut plumbing.queue else { return Err(self.failed(EndpointErrorKind::NotConnected)) };
        // What there is to say already is said at once.
        let has_news = refused.is_some() || link.cause().is_some();
        let completions = match queue.poll_here_while(room, || again() && !has_news) {
            Ok(completions) => completions,
            Err(error) => {
                link.break_with(error);
                return Err(self.failed(EndpointErrorKind::Poll(error)));
            }
        };
        if completions.len() == 0 {
            self.check_whole()?;
            return refused.map_or(Ok(0), Err);
        }
        let mut events = 0;
        let mut first_error = None;
        let names = Names::new(&config.peer, &plumbing.device);
        let batch = Batch(link);
        for completion in completions {
            match batch.0.accept(&completion) {
                Ok(event) => {
                    events += 1;
                    on(Event::of(event, names));
                }
                // Later completions of the same poll only keep the books.
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        std::mem::forget(batch);
        if let Some(error) = first_error {
            return Err(self.failed(EndpointErrorKind::Link(error)));
        }
        if events == 0 {
            self.check_whole()?;
        } else if self.link.grant_is_due() {
            self.grant_may_be_due = true;
            if self.link.peer_is_short_of_credit() && refused.is_none() {
                self.grant_credits()?;
            }
        }
        refused.map_or(Ok(events), Err)
    }

    /// Posts the credit message that is due since the last poll, if one is; answers the error of one that was refused, which
    /// is no reason to leave what completed where it is. One of which nobody knows has broken the link.
    #[inline(never)]
    fn grant_before_polling(&mut self) -> Result<Option<EndpointError>, EndpointError> {
        match self.grant_credits() {
            Ok(()) => Ok(None),
            Err(refused) if self.link.cause().is_none() => Ok(Some(refused)),
            Err(unknown) => Err(unknown),
        }
    }

    /// Posts a credit message if one is due: the other end may be waiting for it. It is due after arrivals, receives posted
    /// and sends completed only, and is asked for after each of them; one that was refused is due still.
    #[inline(never)]
    pub(super) fn grant_credits(&mut self) -> Result<(), EndpointError> {
        self.grant_may_be_due = self.link.credit_mode() == CreditMode::On;
        if !self.grant_may_be_due {
            return Ok(());
        }
        errno::clear();
        match self.link.grant_credits() {
            Ok(_) => {
                self.grant_may_be_due = false;
                Ok(())
            }
            Err(error) => Err(self.names().send_refused(error)),
        }
    }

    /// That the link is not broken: a wait on one that is would end at its deadline and blame the peer.
    #[inline]
    fn check_whole(&self) -> Result<(), EndpointError> {
        match self.link.cause() {
            None => Ok(()),
            Some(cause) => Err(self.failed(EndpointErrorKind::Link(LinkError::Broken { cause }))),
        }
    }

    /// Polls, or sleeps on the completion channel, until something came, and gives it to `on`; answers how many.
    ///
    /// A device that fails ends it before its deadline, asleep or not, where the library reports such events; Apple's does
    /// not.
    ///
    /// # Errors
    /// As [`poll`](Self::poll); [`EndpointErrorKind::Timeout`] names what is outstanding; [`EndpointErrorKind::Cancelled`].
    pub fn wait(&mut self, wait: &Wait<'_>, on: impl FnMut(Event<'_, RECV>)) -> Result<usize, EndpointError> {
        self.wait_on(&mut wait.begin(), on)
    }

    /// As [`wait`](Self::wait), within a wait that has begun.
    pub(super) fn wait_on(
        &mut self,
        waiting: &mut Waiting<'_>,
        mut on: impl FnMut(Event<'_, RECV>),
    ) -> Result<usize, EndpointError> {
        let mut armed = None;
        loop {
            let mut spin = if self.plumbing.channel.is_none() { waiting.spin() } else { Spin::NONE };
            match self.poll_while(|| spin.again(), &mut on)? {
                0 => self.rest(waiting, &mut armed)?,
                events => return Ok(events),
            }
        }
    }

    /// What is to be done after a poll that found nothing, and before the next: looks at clock and flag, and relaxes, or sleeps;
    /// and what the device has to say is heard. `armed`: how long it may sleep, when the queue is armed and was polled since.
    #[inline(never)]
    fn rest(&mut self, waiting: &mut Waiting<'_>, armed: &mut Option<Duration>) -> Result<(), EndpointError> {
        if self.plumbing.channel.is_none() {
            if let Err(ended) = waiting.idle() {
                return Err(self.over(ended));
            }
            return if waiting.events_are_due() { self.take_events() } else { Ok(()) };
        }
        if let Some(left) = armed.take() {
            return self.plumbing.sleep(left).map_err(|error| self.asleep(error));
        }
        self.take_events()?;
        let left = self.time_left(waiting)?;
        // What came before the queue was armed makes no event: a poll comes first, then the sleep.
        self.plumbing.arm().map_err(|error| self.asleep(error))?;
        *armed = Some(left);
        Ok(())
    }

    /// How long the wait may go on, or that it is over.
    pub(super) fn time_left(&mut self, waiting: &mut Waiting<'_>) -> Result<Duration, EndpointError> {
        waiting.left().map_err(|ended| self.over(ended))
    }

    /// Takes what the device has reported on its own, and heeds it: before anything else is asked of a device that failed.
    fn take_events(&mut self) -> Result<(), EndpointError> {
        let taken = self.plumbing.context.as_ref().map_or(Ok(0), |context| context.each_event(drop));
        taken.map_err(|error| self.asleep(error))?;
        self.heed_events()
    }

    /// Why a wait ends without anything: before the peer is blamed, what the device has to say is heard.
    #[cold]
    fn over(&mut self, ended: Ended) -> EndpointError {
        let heard = match ended {
            Ended::Deadline { .. } => self.take_events(),
            Ended::Cancelled => Ok(()),
        };
        heard.err().unwrap_or_else(|| self.ended(ended))
    }

    /// Breaks the link if a fatal event concerns it. One look at a counter when there was none.
    #[inline]
    fn heed_events(&mut self) -> Result<(), EndpointError> {
        let Some(context) = &self.plumbing.context else { return Ok(()) };
        let fatal = context.fatal_count();
        if fatal == self.fatal_seen { Ok(()) } else { self.heed_fatal(fatal) }
    }

    #[cold]
    fn heed_fatal(&mut self, fatal: u32) -> Result<(), EndpointError> {
        self.fatal_seen = fatal;
        let Plumbing { context: Some(context), queue: Some(queue), .. } = &self.plumbing else { return Ok(()) };
        let Some(event) = context.fault_of(self.qp_num, queue.id()) else { return Ok(()) };
        self.link.break_for_event(event);
        let cause = Fault::Device { event };
        Err(self.failed(EndpointErrorKind::Link(LinkError::Fault(cause))))
    }

    #[cold]
    fn asleep(&self, error: Error) -> EndpointError {
        self.failed(EndpointErrorKind::Sleep(Box::new(error)))
    }

    #[cold]
    fn ended(&self, ended: Ended) -> EndpointError {
        self.failed(match ended {
            Ended::Cancelled => EndpointErrorKind::Cancelled,
            Ended::Deadline { waited } => EndpointErrorKind::Timeout {
                waited,
                outstanding: self.link.outstanding(),
                no_credit: self.link.no_credit(),
                pending: self.link.pending().map(WorkId::raw).collect(),
                service: self.config.queue_pair.service,
            },
        })
    }
}
