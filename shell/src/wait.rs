//! How long to wait for a completion, and what to do meanwhile.
//!
//! The rule this file protects: **no wait is for ever**. A dead peer of an unreliable queue pair makes no completion and no
//! event at all; only a deadline tells.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Where waits take the time from. Tests bring their own.
pub trait Clock {
    /// Time since some fixed moment; never goes back.
    fn now(&self) -> Duration;
}

/// The system's monotonic clock, from its making.
#[derive(Clone, Copy, Debug)]
pub struct Monotonic(Instant);

impl Monotonic {
    /// A clock that starts now.
    pub fn new() -> Self {
        Self(Instant::now())
    }
}

impl Default for Monotonic {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for Monotonic {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }
}

/// What to do between two polls that found nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relax {
    /// Tell the processor that this is a spin: for a thread with a core of its own.
    Spin,
    /// Give the processor away each time: for threads that share cores, and for emulated machines.
    Yield,
    /// Spin that many times, then yield.
    SpinThenYield(u32),
}

/// Until when to wait, unless cancelled, and how.
#[derive(Clone, Copy)]
pub struct Wait<'a> {
    limit: Duration,
    clock: Option<&'a dyn Clock>,
    cancel: Option<&'a AtomicBool>,
    relax: Relax,
}

impl std::fmt::Debug for Wait<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wait").field("limit", &self.limit).field("relax", &self.relax).finish_non_exhaustive()
    }
}

impl<'a> Wait<'a> {
    /// At most this long, from the moment the wait begins.
    pub fn at_most(limit: Duration) -> Self {
        Self { limit, clock: None, cancel: None, relax: Relax::SpinThenYield(64) }
    }

    /// Until the flag is set, if that comes first.
    pub fn cancelled_by(self, cancel: &'a AtomicBool) -> Self {
        Self { cancel: Some(cancel), ..self }
    }

    /// With this between polls.
    pub fn relax(self, relax: Relax) -> Self {
        Self { relax, ..self }
    }

    /// By this clock.
    pub fn clock(self, clock: &'a dyn Clock) -> Self {
        Self { clock: Some(clock), ..self }
    }

    pub(crate) fn begin(&self) -> Waiting<'a> {
        let own = Monotonic::new();
        Waiting { wait: *self, own, began: self.clock.map_or(Duration::ZERO, Clock::now), rounds: 0 }
    }
}

/// Why a wait ended without a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Deadline { waited: Duration },
    Cancelled,
}

/// A wait in progress.
pub(crate) struct Waiting<'a> {
    wait: Wait<'a>,
    own: Monotonic,
    began: Duration,
    rounds: u32,
}

impl Waiting<'_> {
    /// To be called after a poll that found nothing: relaxes, or says that the wait is over.
    pub(crate) fn idle(&mut self) -> Result<(), Ended> {
        self.left()?;
        self.rounds = self.rounds.saturating_add(1);
        match self.wait.relax {
            Relax::Spin => std::hint::spin_loop(),
            Relax::SpinThenYield(spins) if self.rounds <= spins => std::hint::spin_loop(),
            Relax::Yield | Relax::SpinThenYield(_) => std::thread::yield_now(),
        }
        Ok(())
    }

    /// How many polls found nothing so far.
    pub(crate) fn rounds(&self) -> u32 {
        self.rounds
    }

    /// How long a sleep may be until somebody has to look again, or that the wait is over.
    pub(crate) fn left(&self) -> Result<Duration, Ended> {
        if self.wait.cancel.is_some_and(|cancel| cancel.load(Ordering::Relaxed)) {
            return Err(Ended::Cancelled);
        }
        let waited = match self.wait.clock {
            Some(clock) => clock.now().saturating_sub(self.began),
            None => self.own.now(),
        };
        if waited >= self.wait.limit {
            return Err(Ended::Deadline { waited });
        }
        let left = self.wait.limit.saturating_sub(waited);
        // A flag, and a clock that is not the system's, wake nobody: look at them from time to time.
        let watched = self.wait.cancel.is_some() || self.wait.clock.is_some();
        Ok(if watched { left.min(LOOK_EVERY) } else { left })
    }
}

/// How often a sleeping wait looks at its flag.
const LOOK_EVERY: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    struct Steps(Cell<u64>);

    impl Clock for Steps {
        fn now(&self) -> Duration {
            let at = self.0.get();
            self.0.set(at + 10);
            Duration::from_millis(at)
        }
    }

    #[test]
    fn a_wait_ends_at_its_deadline_and_not_before() {
        let clock = Steps(Cell::new(0));
        let mut waiting = Wait::at_most(Duration::from_millis(30)).clock(&clock).begin();
        assert_eq!(waiting.idle(), Ok(()));
        assert_eq!(waiting.idle(), Ok(()));
        assert_eq!(waiting.idle(), Err(Ended::Deadline { waited: Duration::from_millis(30) }));
    }

    #[test]
    fn a_flag_ends_a_wait_before_its_deadline() {
        let flag = AtomicBool::new(false);
        let mut waiting = Wait::at_most(Duration::from_secs(3600)).cancelled_by(&flag).begin();
        assert_eq!(waiting.idle(), Ok(()));
        flag.store(true, Ordering::Relaxed);
        assert_eq!(waiting.idle(), Err(Ended::Cancelled));
    }
}
