//! One-sided operations over a reliable queue pair: writes, reads and atomics between views.
//!
//! The rule these files protect: **nothing is posted that cannot be right, and what was posted is accounted for until the last
//! request of it has completed**. Nothing here posts: what names memory for a device goes with what keeps that memory, which
//! is the shell's.
//!
//! | file | idea |
//! |---|---|
//! | `plan` | an operation held against both views and the queue pair's limits, and its parts |
//! | `numbers` | request numbers in order, from blocks that are handed out once |
//! | `operations` | operations in flight, oldest first |
//! | `arrivals` | receives that writes with immediate data end |
//! | `books` | both, with what broke them |

pub mod arrivals;
pub mod books;
pub mod operations;
pub mod plan;

mod numbers;

pub use arrivals::Arrival;
pub use books::{Accepted, Books, NotStarted};
pub use operations::{OperationId, Start};
pub use plan::{LARGEST_MESSAGE_BYTES, Limits, Operation, Part, Plan, PlanRefused};
