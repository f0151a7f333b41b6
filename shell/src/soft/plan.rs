//! Which calls are to fail, and how.

use std::ffi::c_int;

use crate::symbols::mlx5;
use crate::symbols::verbs::{OPTIONAL, REQUIRED};

/// The operations that C has inline, by their names in C.
pub(super) const INLINE: &[&str] = &["ibv_post_send", "ibv_post_recv", POLL, "ibv_req_notify_cq"];
/// The one call whose answer 0 is no claim that something was done.
const POLL: &str = "ibv_poll_cq";
/// The calls that return nothing: no caller can be told that one of them did nothing.
const SILENT: &[&str] = &["ibv_free_device_list", "ibv_ack_cq_events", "ibv_ack_async_event", "ibv_wr_abort"];

/// The builders that C has inline, by their names in C. One that is planned to fail does so at the end of its run.
const BUILDERS: &[&str] = &["ibv_wr_start", "ibv_wr_complete", "ibv_wr_abort", "mlx5dv_wr_mr_list"];

/// All that a failure can be planned for.
const ALL: &[&[&str]] = &[REQUIRED, OPTIONAL, INLINE, mlx5::REQUIRED, BUILDERS];

/// What a failing post says of the requests that it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadWr {
    /// The first request is named; none is accepted.
    Named,
    /// None is named and none is accepted, as from Apple's library.
    NullNoneAccepted,
    /// None is named and all are accepted, as from soft-RoCE when its doorbell fails.
    NullAllAccepted,
    /// One is named that was not among them, and all are accepted: what no library should do.
    StrayAllAccepted,
}

/// How a call fails: what it returns, and what it leaves in `errno`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    pub(super) returned: c_int,
    pub(super) errno: Option<c_int>,
    pub(super) bad_wr: BadWr,
}

impl Answer {
    /// Null from a call that makes something, with this errno; 0 for a library that leaves none.
    pub const fn null(errno: c_int) -> Self {
        Self { returned: -1, errno: Some(errno), bad_wr: BadWr::Named }
    }

    /// -1, with this errno; 0 for a library that leaves none.
    pub const fn minus_one(errno: c_int) -> Self {
        Self::null(errno)
    }

    /// This number, positive or negative, with `errno` untouched. From a call that makes something: null. From a poll, a
    /// positive number comes with as many entries as there is room for, of failed requests of no queue pair.
    ///
    /// # Panics
    /// If it is 0, which is no failure of a call that returns a status. For a poll that finds nothing see
    /// [`Answer::nothing`].
    pub const fn returned(number: c_int) -> Self {
        assert!(number != 0, "0 is not a failure");
        Self { returned: number, errno: None, bad_wr: BadWr::Named }
    }

    /// 0 from a poll, whatever has completed: a peer that is dead, or a device that is slow. Of any other call 0 says that
    /// it was done, so there it cannot be planned: the shell lets go of memory when a destroy says that it was done.
    pub const fn nothing() -> Self {
        Self { returned: 0, errno: None, bad_wr: BadWr::Named }
    }

    /// Sets what a failing post says of its requests; [`BadWr::Named`] unless this is called.
    #[must_use]
    pub const fn bad_wr(self, bad_wr: BadWr) -> Self {
        Self { bad_wr, ..self }
    }
}

#[derive(Debug)]
struct Failure {
    symbol: &'static str,
    /// Calls of the symbol before the one that fails.
    spare: u64,
    /// Whether those after it fail too.
    for_good: bool,
    answer: Answer,
}

/// The failures that are to come.
#[derive(Debug, Default)]
pub(super) struct Plan {
    failures: Vec<Failure>,
}

impl Plan {
    /// Plans a failure of the `nth` call from now, counted from 1.
    ///
    /// # Panics
    /// If there is no such symbol, the answer is none that its failing call has ([`Answer::nothing`] but for a poll; any
    /// for a call that returns nothing), or `nth` is 0.
    pub(super) fn add(&mut self, symbol: &str, nth: u64, for_good: bool, answer: Answer) {
        let known = ALL.iter().copied().flatten().find(|name| **name == symbol);
        let symbol = known.unwrap_or_else(|| panic!("{symbol} is not an entry point"));
        assert!(!SILENT.contains(symbol), "{symbol} returns nothing: it cannot fail");
        assert!(answer.returned != 0 || *symbol == POLL, "0 from {symbol} would say that it was done");
        let spare = nth.checked_sub(1).expect("calls are counted from 1");
        self.failures.push(Failure { symbol, spare, for_good, answer });
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.failures.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.failures.clear();
    }

    /// Counts a call, and tells how it is to fail if it is.
    pub(super) fn on_call(&mut self, symbol: &str) -> Option<Answer> {
        let mut answer = None;
        self.failures.retain_mut(|failure| {
            if failure.symbol != symbol {
                return true;
            }
            if let Some(spare) = failure.spare.checked_sub(1) {
                failure.spare = spare;
                return true;
            }
            answer = answer.or(Some(failure.answer));
            failure.for_good
        });
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nth_call_from_now_fails_and_only_that() {
        let mut plan = Plan::default();
        plan.add("ibv_reg_mr", 2, false, Answer::null(12));
        assert_eq!(plan.on_call("ibv_reg_mr"), None);
        assert_eq!(plan.on_call("ibv_create_qp"), None);
        assert_eq!(plan.on_call("ibv_reg_mr"), Some(Answer::null(12)));
        assert_eq!(plan.on_call("ibv_reg_mr"), None);
        assert!(plan.is_empty());
    }

    #[test]
    fn a_failure_for_good_stays() {
        let mut plan = Plan::default();
        plan.add("ibv_poll_cq", 1, true, Answer::nothing());
        assert!((0..3).all(|_| plan.on_call("ibv_poll_cq") == Some(Answer::nothing())));
        plan.clear();
        assert_eq!(plan.on_call("ibv_poll_cq"), None);
    }

    #[test]
    fn no_call_but_a_poll_can_be_planned_to_say_that_it_was_done() {
        for symbol in ALL.iter().copied().flatten() {
            let planned = |answer| std::panic::catch_unwind(|| Plan::default().add(symbol, 1, false, answer)).is_ok();
            assert_eq!(planned(Answer::nothing()), *symbol == POLL, "{symbol}");
            assert_eq!(planned(Answer::nothing().bad_wr(BadWr::NullAllAccepted)), *symbol == POLL, "{symbol}");
            assert_eq!(planned(Answer::returned(5)), !SILENT.contains(symbol), "{symbol}");
        }
        assert!(SILENT.iter().all(|symbol| ALL.iter().any(|names| names.contains(symbol))));
    }

    #[test]
    #[should_panic(expected = "not an entry point")]
    fn a_misspelt_symbol_is_the_callers_bug() {
        Plan::default().add("ibv_create_pq", 1, false, Answer::null(0));
    }
}
