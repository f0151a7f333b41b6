//! What a fabric is to be like.

use crate::soft::device::SoftDevice;
use crate::soft::plan::INLINE;
use crate::symbols::verbs::OPTIONAL;

/// When work moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// A message is delivered within the post that sends it.
    Prompt,
    /// Whatever is legal may happen, and happens inside posts and polls: a send's bytes are read late, posted receives are
    /// scribbled over until they complete, and so are the entries that a read's or an atomic's answer will land in; pieces
    /// of an RDMA write land in any order before it completes; either end may complete first, fields that a completion does
    /// not define hold junk. The same seed and calls give the same run.
    Adversarial {
        /// Of all its choices.
        seed: u64,
    },
    /// Nothing moves but by [`SoftFabric::take`](crate::soft::SoftFabric::take).
    Stepped,
}

/// What a fabric remembers of the calls made to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Record {
    /// Nothing.
    Off,
    /// The latest so many calls.
    Bounded(usize),
    /// The latest so many calls other than posts and polls.
    Control(usize),
}

/// The description of a fabric, built up call by call.
///
/// ```
/// use bareverbs_shell::soft::{Mode, Record, SoftConfig, SoftDevice, SoftFabric};
///
/// let config = SoftConfig::default()
///     .devices(vec![SoftDevice::new("soft0"), SoftDevice::thunderbolt("rdma_en2")])
///     .mode(Mode::Adversarial { seed: 7 })
///     .record(Record::Bounded(1000));
/// let fabric = SoftFabric::new(config)?;
/// assert_eq!(fabric.live().contexts, 0);
/// # Ok::<(), bareverbs_shell::soft::SoftError>(())
/// ```
#[derive(Clone, Debug)]
pub struct SoftConfig {
    pub(super) devices: Vec<SoftDevice>,
    pub(super) mode: Mode,
    pub(super) record: Record,
    pub(super) missing: Vec<&'static str>,
    pub(super) query_port_bytes: usize,
    pub(super) old_mlx5: bool,
}

impl Default for SoftConfig {
    /// One device `soft0` in prompt mode, nothing recorded, every optional entry point there that the fabric has.
    fn default() -> Self {
        Self {
            devices: vec![SoftDevice::new("soft0")],
            mode: Mode::Prompt,
            record: Record::Off,
            missing: Vec::new(),
            query_port_bytes: 48,
            old_mlx5: false,
        }
    }
}

impl SoftConfig {
    /// One Thunderbolt-like device `rdma_en2`, and none of the entry points that a Mac's library may lack.
    pub fn thunderbolt() -> Self {
        Self::default()
            .devices(vec![SoftDevice::thunderbolt("rdma_en2")])
            .without("ibv_wc_status_str")
            .without("ibv_fork_init")
            .without("_ibv_query_gid_ex")
    }

    /// Replaces the devices. None at all is a machine with RDMA and no device.
    #[must_use]
    pub fn devices(mut self, devices: Vec<SoftDevice>) -> Self {
        self.devices = devices;
        self
    }

    /// Sets when work moves.
    #[must_use]
    pub const fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Sets what is remembered.
    #[must_use]
    pub const fn record(mut self, record: Record) -> Self {
        self.record = record;
        self
    }

    /// Takes an optional entry point away, by its C name; or one that C has inline (`ibv_post_send`), whose slot in the
    /// context's table is then null.
    ///
    /// # Panics
    /// If no optional or inline entry point has that name.
    #[must_use]
    pub fn without(mut self, symbol: &str) -> Self {
        let name = OPTIONAL.iter().chain(INLINE).find(|name| **name == symbol);
        self.missing.push(name.unwrap_or_else(|| panic!("{symbol} is not an optional entry point")));
        self
    }

    /// Makes the mlx5 provider one of before rdma-core 61: it sums a key's length in a signed 32-bit number, and its file name
    /// tells its age.
    #[must_use]
    pub const fn old_mlx5_provider(mut self) -> Self {
        self.old_mlx5 = true;
        self
    }

    /// Sets how many bytes the exported `ibv_query_port` fills: 48, as every library that we know, unless told otherwise.
    ///
    /// # Panics
    /// If it is not one of the sizes that the struct has had: 48, 52, 56.
    #[must_use]
    pub fn query_port_bytes(mut self, bytes: usize) -> Self {
        assert!(matches!(bytes, 48 | 52 | 56), "the struct has never measured {bytes} bytes");
        self.query_port_bytes = bytes;
        self
    }
}

/// Why a fabric cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SoftError {
    /// As many fabrics are in use as one process can have. One stays in use until its last object is destroyed and its last
    /// table of entry points is dropped.
    TooManyFabrics {
        /// How many that is.
        limit: usize,
    },
    /// A device's name that C cannot have: empty, longer than 63 bytes, or with a zero byte in it.
    DeviceName {
        /// The name.
        name: String,
    },
    /// Two devices of one name.
    DuplicateDevice {
        /// The name.
        name: String,
    },
    /// More ports than a port number of eight bits counts, or none.
    Ports {
        /// The device.
        name: String,
        /// Its ports.
        ports: usize,
    },
}

impl std::fmt::Display for SoftError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooManyFabrics { limit } => {
                write!(
                    f,
                    "all {limit} software fabrics of this process are in use: destroy their objects, drop their tables"
                )
            }
            Self::DeviceName { name } => {
                write!(f, "{name:?} cannot be a device's name: 1 to 63 bytes, none of them zero")
            }
            Self::DuplicateDevice { name } => write!(f, "two devices are named {name:?}"),
            Self::Ports { name, ports } => write!(f, "device {name:?} has {ports} ports; 1 to 254 are possible"),
        }
    }
}

impl std::error::Error for SoftError {}

impl SoftConfig {
    /// Checks what can be wrong with it and fills in what depends on the order of devices.
    pub(super) fn checked(mut self) -> Result<Self, SoftError> {
        for (place, device) in self.devices.iter().enumerate() {
            let name = &device.name;
            if name.is_empty() || name.len() > 63 || name.contains('\0') {
                return Err(SoftError::DeviceName { name: name.clone() });
            }
            if self.devices[..place].iter().any(|other| other.name == *name) {
                return Err(SoftError::DuplicateDevice { name: name.clone() });
            }
            if !(1..=254).contains(&device.ports.len()) {
                return Err(SoftError::Ports { name: name.clone(), ports: device.ports.len() });
            }
        }
        self.devices = self.devices.into_iter().enumerate().map(|(place, device)| device.placed(place)).collect();
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(devices: Vec<SoftDevice>) -> Option<SoftError> {
        SoftConfig::default().devices(devices).checked().err()
    }

    #[test]
    fn names_are_checked_at_their_limits() {
        let name = |length: usize| "n".repeat(length);
        assert_eq!(refusal(vec![SoftDevice::new(name(63))]), None);
        assert_eq!(refusal(vec![SoftDevice::new(name(64))]), Some(SoftError::DeviceName { name: name(64) }));
        assert_eq!(refusal(vec![SoftDevice::new("")]), Some(SoftError::DeviceName { name: String::new() }));
        let twins = vec![SoftDevice::new("a"), SoftDevice::new("a")];
        assert_eq!(refusal(twins), Some(SoftError::DuplicateDevice { name: "a".into() }));
    }

    #[test]
    fn ports_are_checked_at_their_limits() {
        let ports = |count| vec![SoftDevice::new("a").ports(vec![crate::soft::SoftPort::default(); count])];
        assert_eq!(refusal(ports(1)), None);
        assert_eq!(refusal(ports(254)), None);
        assert_eq!(refusal(ports(0)), Some(SoftError::Ports { name: "a".into(), ports: 0 }));
        assert_eq!(refusal(ports(255)), Some(SoftError::Ports { name: "a".into(), ports: 255 }));
    }

    #[test]
    #[should_panic(expected = "not an optional entry point")]
    fn a_required_entry_point_cannot_be_taken_away() {
        let _ = SoftConfig::default().without("ibv_create_qp");
    }
}
