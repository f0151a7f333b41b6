//! Another thread on which a domain is asked, and a watch over how long that takes: nothing stays locked.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

/// How long a call may take. Much longer than any does.
const LIMIT: Duration = Duration::from_secs(30);

type Job = Box<dyn FnOnce() + Send>;

/// The thread. It ends when this is dropped.
pub struct Watch(Sender<Job>);

impl Watch {
    pub fn new() -> Self {
        let (jobs, taken) = channel::<Job>();
        thread::spawn(move || taken.into_iter().for_each(|job| job()));
        Self(jobs)
    }

    /// Runs it there, and answers what it answered, or with what it panicked.
    ///
    /// # Panics
    /// If it takes too long.
    pub fn run<R: Send + 'static>(&self, action: impl FnOnce() -> R + Send + 'static) -> thread::Result<R> {
        let (answer, answered) = channel();
        let job = move || drop(answer.send(catch_unwind(AssertUnwindSafe(action))));
        self.0.send(Box::new(job)).expect("the thread lives");
        answered.recv_timeout(LIMIT).expect("the call came back")
    }
}
