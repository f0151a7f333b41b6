//! What the example programs share: the command line's choices, saying a line, and what others' tools say over
//! TCP.

pub mod tool_address;

use std::io::Write;
use std::ops::RangeBounds;

use bareverbs_core::link::CreditMode;
use bareverbs_shell::{Error, Fabric};
use clap::ValueEnum;
use clap::builder::RangedU64ValueParser;

/// Which fabric to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FabricChoice {
    /// The system's library when it has a device with an active port, else the software fabric.
    Best,
    /// The system's library.
    System,
    /// The embedded software fabric.
    Soft,
}

impl FabricChoice {
    /// Makes the fabric.
    ///
    /// # Errors
    /// As [`Fabric::best`], [`Fabric::system`] and [`Fabric::soft`].
    pub fn make(self) -> Result<Fabric, Error> {
        match self {
            Self::Best => Fabric::best(),
            Self::System => Fabric::system(),
            Self::Soft => Fabric::soft(),
        }
    }
}

/// Whether the ends grant each other credits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CreditChoice {
    /// An end sends what the other one has posted receives for.
    On,
    /// An end sends as it likes.
    Off,
}

impl From<CreditChoice> for CreditMode {
    fn from(choice: CreditChoice) -> Self {
        match choice {
            CreditChoice::On => Self::On,
            CreditChoice::Off => Self::Off,
        }
    }
}

/// Reads a number of an option; one out of range is refused with exit status 2, as everything that cannot be understood on
/// the command line is.
pub fn in_range<T: TryFrom<u64>>(range: impl RangeBounds<u64>) -> RangedU64ValueParser<T> {
    RangedU64ValueParser::new().range(range)
}

/// As `println!`. Where nobody reads any more (`| head -1`) the program ends with status 1, and without a panic.
#[macro_export]
macro_rules! say {
    ($($words:tt)*) => { $crate::say_line(format_args!($($words)*)) };
}

/// Writes what [`say!`] says.
pub fn say_line(line: std::fmt::Arguments<'_>) {
    if writeln!(std::io::stdout(), "{line}").is_err() {
        std::process::exit(1);
    }
}

/// The README's code compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
