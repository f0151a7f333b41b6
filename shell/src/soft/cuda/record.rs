//! What was called, in order, and which calls are to fail.

use std::collections::VecDeque;

use bareverbs_core::cuda::CuResult;

/// One call of a driver's entry point and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CudaCall {
    /// Its number, counted from 0 over all calls.
    pub number: u64,
    /// The entry point's name in C.
    pub symbol: &'static str,
    /// The address, context or ordinal that it was asked for; 0 where there is none.
    pub subject: u64,
    /// The length that it was asked for, bytes; or the attribute's number; 0 where there is none.
    pub size: u64,
    /// What it answered.
    pub result: CuResult,
}

#[derive(Debug)]
pub(super) struct CudaRecord {
    kept: VecDeque<CudaCall>,
    bound: usize,
    next: u64,
}

impl CudaRecord {
    pub(super) fn new(bound: usize) -> Self {
        Self { kept: VecDeque::new(), bound, next: 0 }
    }

    /// Adds a call, whose number is given here; the oldest makes room.
    pub(super) fn add(&mut self, mut call: CudaCall) {
        call.number = self.next;
        self.next += 1;
        if self.bound == 0 {
            return;
        }
        if self.kept.len() == self.bound {
            self.kept.pop_front();
        }
        self.kept.push_back(call);
    }

    pub(super) fn calls(&self) -> Vec<CudaCall> {
        self.kept.iter().copied().collect()
    }
}

/// Failures that are to come: the symbol, calls before it, whether those after it fail too, and the answer.
#[derive(Debug, Default)]
pub(super) struct CudaPlan(Vec<(&'static str, u64, bool, CuResult)>);

impl CudaPlan {
    /// # Panics
    /// If there is no such symbol, `nth` is 0, or the answer is success, which a call that does nothing must not say.
    pub(super) fn add(&mut self, symbol: &str, nth: u64, for_good: bool, answer: CuResult) {
        let name = crate::symbols::cuda::OPTIONAL.iter().find(|name| **name == symbol);
        let name = name.unwrap_or_else(|| panic!("{symbol} is not an entry point"));
        assert!(answer != CuResult::SUCCESS, "success from {symbol} would say that it was done");
        self.0.push((name, nth.checked_sub(1).expect("calls are counted from 1"), for_good, answer));
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn on_call(&mut self, symbol: &str) -> Option<CuResult> {
        let mut met = None;
        self.0.retain_mut(|(name, spare, for_good, answer)| {
            if *name != symbol {
                return true;
            }
            if let Some(left) = spare.checked_sub(1) {
                *spare = left;
                return true;
            }
            met = met.or(Some(*answer));
            *for_good
        });
        met
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_call_can_be_planned_to_say_that_it_was_done() {
        for symbol in crate::symbols::cuda::OPTIONAL {
            let planned = |answer| {
                let plan = || CudaPlan::default().add(symbol, 1, false, answer);
                std::panic::catch_unwind(plan).is_ok()
            };
            assert_eq!([planned(CuResult::SUCCESS), planned(CuResult::INVALID_DEVICE)], [false, true], "{symbol}");
        }
    }
}
