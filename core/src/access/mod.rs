//! Who may touch memory now: the access lock.
//!
//! A lock in three modes over one region: **read** (many), **disjoint write** (many: the writers promise that their byte ranges
//! do not overlap) and **exclusive** (one). Holders of different modes never overlap. The lock *orders* accesses to bytes that
//! lie elsewhere; it owns none, its guards hold no reference into any, and it does not vouch for what the bytes say: a holder
//! that panics just leaves, and nothing is poisoned.
//!
//! | file | what |
//! |---|---|
//! | `mode` | the words: [`Mode`], [`Phase`], [`AccessRefused`] |
//! | `state` | [`State`]: the lock's 32-bit word and all its transitions, as pure functions |
//! | `batch` | [`Batch`]: who of the waiting enters next |
//! | `line` | [`Line`]: a waiting line in one word, for those who have no memory for a queue |
//! | `word` | [`Word`]: the atomic word, and the orderings |
//! | `spin`, `spin_wait` | [`SpinAccessLock`]: waits by spinning; `no_std`, without an allocator |
//!
//! Parking threads is for those who have threads: a parking form uses [`Word`] and [`Batch`] and brings its own queue, as
//! `bareverbs-shell` does with its `AccessLock`.
//!
//! # Fairness
//!
//! A **phase** is all that hold the lock together; an exclusive hold is one. Once a waiter is registered, what runs before its
//! own phase is the phase in progress, the exclusive waiters registered before it, and at most one phase of each other shared
//! mode. When a phase ends, all that wait in the next mode enter *together*. The `batch` module's file says why this follows.
//!
//! The state is one word in every form: who holds, and whether anybody waits. Who waits, and in what order, is told elsewhere:
//! a parking form has the system's queue, the spinning form a second word, its [`Line`]. One word cannot be both. Twenty-one
//! bits count holders, and a line in which each waiter has a place that it can give up takes 32; a longer one would be nodes on
//! the waiters' stacks, linked by raw pointers, which this crate does without. So places are few ([`MAX_SHARED_PLACES`]
//! readers, as many disjoint writers, [`MAX_EXCLUSIVE_PLACES`] exclusive ones), and the bound is for those that have one.
//!
//! A phase may have more holders than can be counted only by leaked guards. Who *arrives* then is told
//! [`Full`](AccessRefused::Full); who waits already waits, like everybody in the line, for a phase in progress to end that
//! never does: use a limit in time where guards may be leaked.
//!
//! # Recursion
//!
//! A thread that holds a guard and asks for another one in *any* blocking way, except `read_recursive` while it holds a read
//! guard, can wait for ever: even a second `read`, since a waiter that came between the two is not overtaken, and itself waits
//! for the first guard to go. `read_recursive` joins a running read phase past waiters. It cannot deadlock on a thread that
//! reads already; and since it overtakes, a stream of such calls that never lets the phase end starves the waiters.
//!
//! # Interrupts
//!
//! Between a thread and an interrupt (or signal handler) that preempts it, only `try_*` may be used in the interrupt. A
//! blocking call there waits for a holder that cannot run until the interrupt returns. That is so even if the holder is another
//! thread: the preempted one may be next in the line, and nobody passes it. `try_*` waits for nobody: it looks at one
//! word, and changes it at once or not at all. A guard got that way may be dropped in the interrupt with the spinning form,
//! since handing over never waits either (a handover that the interrupt preempted is left a note to look again). It may not be
//! with a parking form: waking threads takes the queue's lock, which the preempted thread may hold.

mod atomic;
mod batch;
mod line;
#[cfg(all(loom, test))]
mod loom;
mod mode;
mod spin;
mod spin_wait;
mod state;
mod word;

/// Strategies for [`SpinAccessLock`]: what a spinning thread does between two looks.
pub use ::spin::relax;
pub use atomic::AtomicWord;
pub use batch::{Batch, Verdict};
pub use line::{Call, Line, MAX_EXCLUSIVE_PLACES, MAX_SHARED_PLACES, Place};
pub use mode::{AccessRefused, Mode, Phase, Waiting};
pub use spin::{SpinAccessLock, SpinDisjointGuard, SpinExclusiveGuard, SpinReadGuard};
pub use state::{Arrival, Handover, Left, MAX_HOLDERS, State};
pub use word::{Entry, Word};
