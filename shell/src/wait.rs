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
    ///
    /// By the system's clock a wait that spins begins with its first look, and ends with the first after its time: each comes after
    /// up to 256 polls that found nothing. By a [`clock`](Self::clock) of the caller's it is exact.
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
        Waiting { wait: *self, own: None, began: began.unwrap_or_default(), polls: 0, unasked: 0 }
    }
}

/// Why a wait ended without a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Deadline { waited: Duration },
    Cancelled,
}

/// A wait in progress: [`spin`](Self::spin) before each poll, [`idle`](Self::idle) after one that found nothing.
pub(crate) struct Waiting<'a> {
    wait: Wait<'a>,
    /// The system's clock, from the first look at it.
    own: Option<Monotonic>,
    /// By the caller's clock, if there is one.
    began: Duration,
    /// How many polls there were, or might have been.
    polls: u32,
    /// And since the device was last asked for its events.
    unasked: u32,
}

/// How often the next poll may follow itself, as long as it finds nothing.
///
/// A thread that spins has as few instructions as can be between two polls, and the same ones each time: no look at a clock, no
/// call but the poll.
pub(crate) struct Spin<'a> {
    left: u32,
    hint: bool,
    cancel: Option<&'a AtomicBool>,
}

impl Spin<'_> {
    /// No poll follows itself.
    pub(crate) const NONE: Self = Self { left: 0, hint: false, cancel: None };

    /// After a poll that found nothing: whether another one is to follow at once.
    #[inline(always)]
    pub(crate) fn again(&mut self) -> bool {
        if self.left == 0 || self.cancel.is_some_and(|cancel| cancel.load(Ordering::Relaxed)) {
            return false;
        }
        self.left -= 1;
        if self.hint {
            std::hint::spin_loop();
        }
        true
    }
}

impl<'a> Waiting<'a> {
    /// What the next poll may do on its own: more than one where the wait spins by the system's clock. A look at that may be a
    /// system call, and takes longer than many polls. The caller's flag is looked at each time, and so is the caller's clock.
    #[inline]
    pub(crate) fn spin(&mut self) -> Spin<'a> {
        let Wait { clock, cancel, relax, .. } = self.wait;
        let polls = match relax {
            _ if clock.is_some() => 1,
            Relax::Busy | Relax::Spin => POLLS_AT_ONCE,
            Relax::SpinThenYield(spins) => spins.saturating_sub(self.polls).clamp(1, POLLS_AT_ONCE),
            Relax::Yield => 1,
        };
        let left = polls - 1;
        self.count(left);
        Spin { left, hint: relax != Relax::Busy, cancel }
    }

    /// To be called after a poll that found nothing, whether it was one of several or not: looks at flag and clock, and relaxes,
    /// or says that the wait is over.
    #[inline]
    pub(crate) fn idle(&mut self) -> Result<(), Ended> {
        self.left()?;
        let relax = match self.wait.relax {
            Relax::SpinThenYield(spins) if self.polls < spins => Relax::Spin,
            Relax::SpinThenYield(_) => Relax::Yield,
            relax => relax,
        };
        self.count(1);
        match relax {
            Relax::Busy => {}
            Relax::Spin => std::hint::spin_loop(),
            Relax::Yield | Relax::SpinThenYield(_) => std::thread::yield_now(),
        }
        Ok(())
    }

    fn count(&mut self, polls: u32) {
        self.polls = self.polls.saturating_add(polls);
        self.unasked = self.unasked.saturating_add(polls);
    }

    /// Whether it is time to ask the device what it has reported on its own, which is a system call: about once in 256 polls.
    #[inline]
    pub(crate) fn events_are_due(&mut self) -> bool {
        let due = self.unasked >= POLLS_AT_ONCE;
        if due {
            self.unasked = 0;
        }
        due
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

/// How many polls follow each other where nothing but polls is to be done: between two looks at the system's clock and at what
/// the device has reported.
const POLLS_AT_ONCE: u32 = 256;
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

    const EACH_RELAX: [Relax; 4] = [Relax::Busy, Relax::Spin, Relax::SpinThenYield(300), Relax::Yield];

    /// How many polls follow each other before anything else is looked at.
    fn polls(waiting: &mut Waiting<'_>) -> u32 {
        let mut spin = waiting.spin();
        let again = (0..10_000).take_while(|_| spin.again()).count();
        1 + again as u32
    }

    #[test]
    fn a_wait_looks_at_the_callers_clock_after_each_poll() {
        let clock = Steps(Cell::new(0));
        for relax in EACH_RELAX {
            let mut waiting = Wait::at_most(Duration::from_secs(3600)).clock(&clock).relax(relax).begin();
            let before = clock.0.get();
            for _ in 0..100 {
                assert_eq!(polls(&mut waiting), 1, "{relax:?}");
                assert_eq!(waiting.idle(), Ok(()));
            }
            assert_eq!(clock.0.get() - before, 1000, "{relax:?}");
        }
    }

    #[test]
    fn a_wait_looks_at_the_callers_flag_after_each_poll() {
        let flag = AtomicBool::new(false);
        for relax in EACH_RELAX {
            for spun in 0..2 * POLLS_AT_ONCE {
                let mut waiting = Wait::at_most(Duration::from_secs(3600)).cancelled_by(&flag).relax(relax).begin();
                let mut spin = waiting.spin();
                for poll in 0..spun {
                    if !spin.again() {
                        assert_eq!(waiting.idle(), Ok(()), "{relax:?} after {poll}");
                        spin = waiting.spin();
                    }
                }
                flag.store(true, Ordering::Relaxed);
                assert!(!spin.again(), "{relax:?} after {spun}");
                assert_eq!(waiting.idle(), Err(Ended::Cancelled), "{relax:?} after {spun}");
                flag.store(false, Ordering::Relaxed);
            }
        }
    }

    #[test]
    fn a_wait_that_spins_polls_so_often_between_two_looks_and_one_that_yields_once() {
        let polls_of = |relax: Relax| {
            let mut waiting = Wait::at_most(Duration::from_secs(3600)).relax(relax).begin();
            let mut polled = [0; 4];
            for polled in &mut polled {
                *polled = polls(&mut waiting);
                assert_eq!(waiting.idle(), Ok(()));
            }
            polled
        };
        assert_eq!(polls_of(Relax::Busy), [POLLS_AT_ONCE; 4]);
        assert_eq!(polls_of(Relax::Spin), [POLLS_AT_ONCE; 4]);
        assert_eq!(polls_of(Relax::Yield), [1; 4]);
        assert_eq!(polls_of(Relax::SpinThenYield(0)), [1; 4]);
        assert_eq!(polls_of(Relax::SpinThenYield(64)), [64, 1, 1, 1], "it spins that many times");
        assert_eq!(polls_of(Relax::SpinThenYield(POLLS_AT_ONCE + 2)), [POLLS_AT_ONCE, 2, 1, 1]);
    }

    #[test]
    fn a_wait_whose_polls_do_not_follow_each_other_yields_after_as_many() {
        let mut waiting = Wait::at_most(Duration::from_secs(3600)).relax(Relax::SpinThenYield(5)).begin();
        for _ in 0..5 {
            assert!(waiting.polls < 5);
            assert_eq!(waiting.idle(), Ok(()));
        }
        assert_eq!(polls(&mut waiting), 1);
        assert!(waiting.polls >= 5);
    }

    #[test]
    fn the_device_is_asked_about_once_in_256_polls_however_the_wait_relaxes() {
        let clock = Steps(Cell::new(0));
        let long = Wait::at_most(Duration::from_secs(3600));
        for wait in EACH_RELAX.map(|relax| long.relax(relax)).into_iter().chain([long.clock(&clock)]) {
            let mut waiting = wait.begin();
            let (mut polled, mut asked) = (0, 0);
            while polled < 100 * POLLS_AT_ONCE {
                polled += polls(&mut waiting);
                assert_eq!(waiting.idle(), Ok(()));
                asked += u32::from(waiting.events_are_due());
            }
            assert!((99..=101).contains(&asked), "{wait:?}: {asked}");
        }
    }

    #[test]
    fn a_wait_without_time_ends_at_its_first_look_and_any_at_the_first_after_its_time() {
        for relax in EACH_RELAX {
            let mut waiting = Wait::at_most(Duration::ZERO).relax(relax).begin();
            assert!(matches!(waiting.idle(), Err(Ended::Deadline { .. })), "{relax:?}");
            let mut waiting = Wait::at_most(Duration::from_nanos(1)).relax(relax).begin();
            // The first look is the beginning, and may be the end where it is looked at once more for the time that passed.
            let _ = waiting.idle();
            assert!(matches!(waiting.idle(), Err(Ended::Deadline { .. })), "{relax:?}");
        }
    }

    #[test]
    fn a_wait_goes_on_asking_the_device_after_polls_that_found_something_and_after_any_number_of_polls() {
        for relax in EACH_RELAX {
            for done in [0, 1, 7, u32::MAX - 10] {
                let mut waiting = Wait::at_most(Duration::from_secs(3600)).relax(relax).begin();
                waiting.polls = done;
                // What came ended these waits before anything else was looked at.
                for _ in 0..3 {
                    let _ = waiting.spin();
                }
                let due = (0..2 * POLLS_AT_ONCE).filter(|_| {
                    polls(&mut waiting);
                    assert_eq!(waiting.idle(), Ok(()));
                    waiting.events_are_due()
                });
                assert!(due.count() >= 2, "{relax:?} after {done}");
            }
        }
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
