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
    /// Nothing: poll again at once. Least latency, for a thread whose core nobody else wants.
    Busy,
    /// Tell the processor that this is a spin, which leaves more to the thread that shares its core. That takes about 40 to 140
    /// cycles of an x86 processor, and some microseconds of an emulated one.
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
        // Its first look is the beginning: what is there already costs no look at a clock.
        let began = self.clock.map(Clock::now);
        Waiting { wait: *self, own: None, began: began.unwrap_or_default(), rounds: 0 }
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
    /// The system's clock, from the first look at it.
    own: Option<Monotonic>,
    /// By the caller's clock, if there is one.
    began: Duration,
    rounds: u32,
}

impl Waiting<'_> {
    /// To be called after a poll that found nothing: relaxes, or says that the wait is over.
    ///
    /// While it spins it looks at the system's clock every [`LOOK_EVERY_SPINS`] times only: where a look is a system call, it
    /// takes longer than many polls. The caller's flag and clock are looked at each time.
    #[inline]
    pub(crate) fn idle(&mut self) -> Result<(), Ended> {
        let relax = match self.wait.relax {
            Relax::SpinThenYield(spins) if self.rounds < spins => Relax::Spin,
            Relax::SpinThenYield(_) => Relax::Yield,
            relax => relax,
        };
        if relax != Relax::Yield && self.wait.clock.is_none() && !self.rounds.is_multiple_of(LOOK_EVERY_SPINS) {
            self.check_flag()?;
        } else {
            self.left()?;
        }
        // It goes round: one that stood still between two looks would wait for ever.
        self.rounds = self.rounds.wrapping_add(1);
        match relax {
            Relax::Busy => {}
            Relax::Spin => std::hint::spin_loop(),
            Relax::Yield | Relax::SpinThenYield(_) => std::thread::yield_now(),
        }
        Ok(())
    }

    /// How many polls found nothing so far, going round.
    pub(crate) fn rounds(&self) -> u32 {
        self.rounds
    }

    #[inline]
    fn check_flag(&self) -> Result<(), Ended> {
        let cancelled = self.wait.cancel.is_some_and(|cancel| cancel.load(Ordering::Relaxed));
        if cancelled { Err(Ended::Cancelled) } else { Ok(()) }
    }

    /// How long a sleep may be until somebody has to look again, or that the wait is over.
    pub(crate) fn left(&mut self) -> Result<Duration, Ended> {
        self.check_flag()?;
        let waited = match self.wait.clock {
            Some(clock) => clock.now().saturating_sub(self.began),
            None => self.own.get_or_insert_default().now(),
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

/// Every how many empty polls a wait that spins looks at the system's clock.
const LOOK_EVERY_SPINS: u32 = 16;
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
    fn a_wait_that_spins_looks_at_the_callers_clock_and_flag_each_time() {
        let (clock, flag) = (Steps(Cell::new(0)), AtomicBool::new(false));
        for relax in [Relax::Busy, Relax::Spin, Relax::SpinThenYield(3), Relax::Yield] {
            let mut waiting = Wait::at_most(Duration::from_secs(3600)).clock(&clock).relax(relax).begin();
            let before = clock.0.get();
            for _ in 0..100 {
                assert_eq!(waiting.idle(), Ok(()));
            }
            assert_eq!(clock.0.get() - before, 1000, "{relax:?}");
            for spun in 0..2 * LOOK_EVERY_SPINS {
                let mut waiting = Wait::at_most(Duration::from_secs(3600)).cancelled_by(&flag).relax(relax).begin();
                assert!((0..spun).all(|_| waiting.idle() == Ok(())));
                flag.store(true, Ordering::Relaxed);
                assert_eq!(waiting.idle(), Err(Ended::Cancelled), "{relax:?} after {spun}");
                flag.store(false, Ordering::Relaxed);
            }
        }
    }

    #[test]
    fn a_wait_without_time_ends_at_its_first_look_and_one_that_spins_a_few_polls_after_its_time() {
        for relax in [Relax::Busy, Relax::Spin, Relax::SpinThenYield(64), Relax::Yield] {
            let mut waiting = Wait::at_most(Duration::ZERO).relax(relax).begin();
            assert!(matches!(waiting.idle(), Err(Ended::Deadline { .. })), "{relax:?}");
            let mut waiting = Wait::at_most(Duration::from_nanos(1)).relax(relax).begin();
            let rounds = (0..1000).find(|_| waiting.idle().is_err()).expect("its time is over at once");
            assert!(rounds <= LOOK_EVERY_SPINS, "{relax:?}: {rounds}");
        }
    }

    #[test]
    fn a_wait_goes_on_looking_when_the_count_of_its_polls_has_gone_round() {
        let mut waiting = Wait::at_most(Duration::from_nanos(1)).relax(Relax::Spin).begin();
        waiting.rounds = u32::MAX;
        assert!((0..1000).any(|_| waiting.idle().is_err()));
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
