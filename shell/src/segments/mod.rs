//! GPU segments: many regions behind few keys.
//!
//! What is to be registered, and which regions share a key, is decided in [`bareverbs_core::segments`]; here it is done.
//!
//! | file | idea |
//! |---|---|
//! | `binding` | gives keys their regions, over one queue pair for each protection domain |
//! | `bind_error` | why a key has none |
//! | `bound_window` | a key with its regions, and views of what it presents |
//! | `carry_out` | carries out a plan: registers, binds, takes over |
//! | `scanner`, `driver_scanner` | who knows which segments there are |
//! | `served`, `served_identity` | one segment that is served, and which memory it is |
//! | `served_table` | the table that requests are served from |
//! | `domain`, `domain_config` | registers, from the table if it can |
//! | `domain_place` | else by a round, or by a region of its own |
//! | `domain_turn`, `domain_round`, `domain_prune` | whose turn it is to scan; what is bound, grown and dropped then |
//! | `domain_memory` | local memory registered through a domain |
//! | `fallback` | regions of their own for what no key serves |
//! | `error`, `statistics` | why not; what was done |
//!
//! The rule they protect: **what is handed out is bound, and stays so while a view of it lives**. A key is bound once, and
//! never again to others: what grows gets a fresh key, and the old one goes with the last view of it.

mod bind_error;
mod binding;
mod bound_window;
mod carry_out;
mod domain;
mod domain_config;
mod domain_memory;
mod domain_place;
mod domain_prune;
mod domain_round;
mod domain_turn;
mod driver_scanner;
mod error;
mod fallback;
mod scanner;
mod served;
mod served_identity;
mod served_table;
mod statistics;

pub use bind_error::BindError;
pub use binding::{BINDABLE_ACCESS, Binder, BinderConfig};
pub use bound_window::BoundWindow;
pub use carry_out::{CarryOutError, Windows, bind_segment, grow};
pub use domain::SegmentDomain;
pub use domain_config::{IdentityPolicy, SegmentDomainConfig};
pub use domain_round::Pruned;
pub use driver_scanner::DriverScanner;
pub use error::{NoKey, NotBound, PartError, SegmentError, SegmentErrorKind};
pub use scanner::{ScanError, Scanner, SegmentScan, register_scanner};
pub use served_table::MAX_SEGMENTS;
pub use statistics::SegmentStatistics;
