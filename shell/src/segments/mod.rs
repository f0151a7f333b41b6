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
//!
//! The rule they protect: **what is handed out is bound, and stays so while a view of it lives**. A key is bound once, and
//! never again to others: what grows gets a fresh key, and the old one goes with the last view of it.

mod bind_error;
mod binding;
mod bound_window;
mod carry_out;

pub use bind_error::BindError;
pub use binding::{BINDABLE_ACCESS, Binder, BinderConfig};
pub use bound_window::BoundWindow;
pub use carry_out::{CarryOutError, Windows, bind_segment, grow};
