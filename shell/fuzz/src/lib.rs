//! What must hold of any bytes from outside.
//!
//! Each property is a function of bytes that panics when it does not hold. Three things run them:
//!
//! | who | how |
//! |---|---|
//! | `targets/` | a fuzzer, `.ci/fuzz`: one target a property |
//! | `tests/it` | property tests in the unit layer: bytes near the corpus, and any bytes |
//! | `corpus/` | seeds, one folder a property, and each input that ever failed: replayed by the same tests |
//!
//! | file | what it judges | beside |
//! |---|---|---|
//! | `wire` | decoders of wire forms | the documented table, read from the front |
//! | `agreement` | what two hellos make together | a list of what both must have alike |
//! | `exchange` | what a peer sends while two ends connect | the documented order |
//! | `link` | what a device completes, writes and answers | the requests that it has |
//! | `one_sided` | what a device completes of one-sided operations | the requests that it has |
//! | `segments` | chunks, windows, growth, reconciling | the slow twins of `core/tests/twins` |

mod agreement;
mod exchange;
mod link;
mod one_sided;
mod reader;
mod segments;
mod wire;

pub use agreement::agreement;
pub use exchange::exchange;
pub use link::link;
pub use one_sided::one_sided;
pub use segments::{chunks, growth, reconcile, windows};
pub use wire::{destination, header, hello, step, tool_address};

/// A property: panics when it does not hold.
pub type Property = fn(&[u8]);

/// All of them, by name.
pub const PROPERTIES: [(&str, Property); 13] = [
    ("agreement", agreement),
    ("chunks", chunks),
    ("destination", destination),
    ("exchange", exchange),
    ("growth", growth),
    ("header", header),
    ("hello", hello),
    ("link", link),
    ("one_sided", one_sided),
    ("reconcile", reconcile),
    ("step", step),
    ("tool_address", tool_address),
    ("windows", windows),
];
