//! Registered memory as numbers: what a key reaches, what a peer is told of it, what a device takes.
//!
//! The rule these files protect: **a range that exists has bytes, and no later sum over it overflows**; what leaves it is an
//! error with the numbers. Nothing here registers, and nothing here proves that a key is in force: that is the shell's guard.
//!
//! | file | idea |
//! |---|---|
//! | `part` | whether a place lies within a size |
//! | `keyed_range` | the same bytes by their virtual address and as their key sees them |
//! | `remote` | what a peer needs, in its wire form |
//! | `device_name` | a device's name, bounded |
//! | `region_rules` | which ranges a device takes as one region |

pub mod device_name;
pub mod keyed_range;
pub mod part;
pub mod region_rules;
pub mod remote;

pub use device_name::{DeviceName, DeviceNameError};
pub use keyed_range::{KeyedRange, KeyedRangeError};
pub use part::{OutOfBounds, check_part};
pub use region_rules::{RegionParts, RegionRefused, RegionRules};
pub use remote::{REMOTE_VIEW_BYTES, RemoteView, RemoteViewError};
