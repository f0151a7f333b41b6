//! What the example programs share: how a fabric is chosen on the command line, and what others' tools say over TCP.

pub mod tool_address;

use bareverbs_core::link::CreditMode;
use bareverbs_shell::{Error, Fabric};
use clap::ValueEnum;

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

/// The README's code compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
