//! A layer of tests that runs or is skipped as a whole, and counts what passed.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bareverbs_layout_tests::layers::{self, Outcome};
use libtest_mimic::{Failed, Trial};

/// Tests that need the same thing.
pub struct Layer {
    name: &'static str,
    skipped: Option<String>,
    /// Why single tests were skipped, where the layer was not.
    remarks: Vec<String>,
    tests: Vec<Trial>,
    passed: Arc<AtomicUsize>,
    failed: Arc<AtomicUsize>,
}

impl Layer {
    /// A layer without tests; `skipped` says why its tests cannot run, if they cannot.
    pub fn new(name: &'static str, skipped: Option<String>) -> Self {
        Self { name, skipped, remarks: Vec::new(), tests: Vec::new(), passed: Arc::default(), failed: Arc::default() }
    }

    /// Adds a test.
    pub fn test(&mut self, name: &str, body: impl FnOnce() -> Result<(), Failed> + Send + 'static) {
        self.test_unless(None, name, body);
    }

    /// Adds a test that is ignored for a reason of its own.
    pub fn test_unless(
        &mut self,
        skipped: Option<String>,
        name: &str,
        body: impl FnOnce() -> Result<(), Failed> + Send + 'static,
    ) {
        let (passed, failed) = (Arc::clone(&self.passed), Arc::clone(&self.failed));
        if self.skipped.is_none() {
            self.remarks.extend(skipped.iter().map(|reason| format!("{name}: skipped, {reason}")));
        }
        let reason = self.skipped.clone().or(skipped);
        let ignored = reason.is_some();
        let counted = move || {
            // Asked for in spite of all (`--ignored`): it has nothing to run on.
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| match reason {
                Some(reason) => Err(reason.into()),
                None => body(),
            }));
            let count = if matches!(result, Ok(Ok(()))) { passed } else { failed };
            count.fetch_add(1, Ordering::Relaxed);
            result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        let title = format!("{}: {name}", self.name.trim_start_matches("layouts: "));
        self.tests.push(Trial::test(title, counted).with_ignored_flag(ignored));
    }

    /// The tests, to be run.
    pub fn take_tests(&mut self) -> Vec<Trial> {
        std::mem::take(&mut self.tests)
    }

    /// Says what became of the layer. One of which a filter left nothing says nothing.
    ///
    /// # Errors
    /// What the file system says.
    pub fn report(&self) -> io::Result<()> {
        let (passed, failed) = (self.passed.load(Ordering::Relaxed), self.failed.load(Ordering::Relaxed));
        match &self.skipped {
            Some(reason) => layers::report(self.name, &Outcome::Skipped(reason.clone())),
            None if passed + failed == 0 => Ok(()),
            None => {
                let failures = (failed > 0).then(|| format!("{failed} failed"));
                let remarks: Vec<String> = failures.into_iter().chain(self.remarks.iter().cloned()).collect();
                layers::report(self.name, &Outcome::Ran(passed, remarks.join("; ")))
            }
        }
    }
}
