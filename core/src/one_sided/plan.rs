//! What an operation is, whether it can be, and the requests that it is made of.
//!
//! The rule this file protects: **an operation that has a plan stays within both views**, whatever the port's largest message
//! is. Both views are ranges that exist, equally long, so each part lies in both.

use core::fmt;

use crate::verbs::AccessFlags;
use crate::verbs::device::AtomicCap;
use crate::view::{KeyedRange, RemoteView};

/// The largest message that there is, bytes: 2 GiB (InfiniBand specification, 9.3.3.1.5, DMA length).
pub const LARGEST_MESSAGE_BYTES: u32 = 1 << 31;

/// What is to be done between a local and a remote view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Operation {
    /// Local bytes go to the remote view.
    Write,
    /// The same, and the other end gets a number with them, which ends a receive there.
    WriteWithImmediate {
        /// The number.
        immediate: u32,
    },
    /// Remote bytes come to the local view.
    Read,
    /// Adds to 8 remote bytes; what they were before comes to the local view.
    FetchAdd {
        /// What is added; the sum wraps.
        add: u64,
    },
    /// Stores into 8 remote bytes if they are what they should be; what they were before comes to the local view.
    CompareSwap {
        /// What they should be.
        compare: u64,
        /// What is stored then.
        swap: u64,
    },
}

impl Operation {
    /// Whether it is an atomic: 8 bytes, aligned at the other end.
    #[inline]
    pub const fn is_atomic(self) -> bool {
        matches!(self, Self::FetchAdd { .. } | Self::CompareSwap { .. })
    }

    /// Whether an answer comes back, which lands in the local view.
    #[inline]
    pub const fn has_answer(self) -> bool {
        self.is_atomic() || matches!(self, Self::Read)
    }

    /// What the local view's region must permit: the own device writes what comes back.
    #[inline]
    pub const fn local_access(self) -> AccessFlags {
        if self.has_answer() { AccessFlags::LOCAL_WRITE } else { AccessFlags::empty() }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Write => "write",
            Self::WriteWithImmediate { .. } => "write with immediate",
            Self::Read => "read",
            Self::FetchAdd { .. } => "fetch-add",
            Self::CompareSwap { .. } => "compare-swap",
        })
    }
}

/// What a queue pair can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Limits {
    /// The port's `max_msg_sz`; 0, or more than [`LARGEST_MESSAGE_BYTES`], counts as that.
    pub max_message_bytes: u32,
    /// Requests that the send queue holds.
    pub send_slots: u32,
    /// Reads and atomics that may be under way, as both ends agreed. With 0 a read would wait for ever.
    pub max_rd_atomic: u8,
    /// Towards whom the device's atomics are atomic.
    pub atomics: AtomicCap,
}

/// Why an operation cannot be. Nothing was posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum PlanRefused {
    /// The views differ in length.
    Lengths {
        /// The local view's, bytes.
        local_bytes: u64,
        /// The remote view's, bytes.
        remote_bytes: u64,
    },
    /// An atomic of other than 8 bytes.
    AtomicLength {
        /// The views' length, bytes.
        got_bytes: u64,
    },
    /// An atomic at a remote address that is not a multiple of 8.
    AtomicAlignment {
        /// The address as the key sees it.
        key_addr: u64,
    },
    /// The remote view has no key (its number is 0): nothing may be done with it.
    NoRemoteKey,
    /// Reads and atomics were agreed to be none: one end's device, or its configuration, has no room for them.
    NoReads,
    /// The device has no atomics.
    NoAtomics,
    /// More requests than the send queue holds.
    TooLong {
        /// The operation's length, bytes.
        len_bytes: u64,
        /// What the send queue takes of one operation, bytes.
        limit_bytes: u64,
    },
}

impl fmt::Display for PlanRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lengths { local_bytes, remote_bytes } => {
                write!(f, "{local_bytes} bytes here and {remote_bytes} there: take parts of equal length")
            }
            Self::AtomicLength { got_bytes } => write!(f, "an atomic is of 8 bytes, the views have {got_bytes}"),
            Self::AtomicAlignment { key_addr } => {
                write!(f, "an atomic is at a multiple of 8, the remote view is at {key_addr:#x}")
            }
            Self::NoRemoteKey => f.write_str("the remote view has no key (rkey 0): it cannot be reached"),
            Self::NoReads => f.write_str(
                "no reads and atomics were agreed on (max_rd_atomic 0): one end's device or configuration allows none",
            ),
            Self::NoAtomics => f.write_str("the device has no atomics"),
            Self::TooLong { len_bytes, limit_bytes } => write!(
                f,
                "{len_bytes} bytes, the send queue takes {limit_bytes} at once: take parts, or make it with more slots"
            ),
        }
    }
}

impl core::error::Error for PlanRefused {}

/// An operation that can be posted: its parts follow each other through both views.
///
/// ```
/// use bareverbs_core::one_sided::{Limits, Operation, Plan};
/// use bareverbs_core::verbs::device::AtomicCap;
/// use bareverbs_core::view::{DeviceName, KeyedRange, RemoteView};
///
/// let here = KeyedRange::new(0x1000, 0x1000, 20, 10, 20)?;
/// let there = RemoteView::new(0x8000, 20, 7, DeviceName::new(b"rxe0")?)?;
/// let limits = Limits { max_message_bytes: 8, send_slots: 16, max_rd_atomic: 16, atomics: AtomicCap::HCA };
/// let plan = Plan::new(Operation::Write, &here, &there, &limits)?;
/// assert_eq!(plan.parts(), 3);
/// let last = plan.part(2).expect("the third");
/// assert_eq!((last.local_addr, last.remote_addr, last.len_bytes, last.is_last), (0x1010, 0x8010, 4, true));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    operation: Operation,
    local: KeyedRange,
    remote_addr: u64,
    rkey: u32,
    part_bytes: u32,
    parts: u32,
}

/// Without the keys, which are capabilities: not for logs.
impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan")
            .field("operation", &self.operation)
            .field("local", &self.local)
            .field("remote_addr", &format_args!("{:#x}", self.remote_addr))
            .field("part_bytes", &self.part_bytes)
            .field("parts", &self.parts)
            .finish_non_exhaustive()
    }
}

/// One request of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Part {
    /// Where it is here, as the key sees it.
    pub local_addr: u64,
    /// Where it is there, as the key sees it.
    pub remote_addr: u64,
    /// How long it is; at least 1.
    pub len_bytes: u32,
    /// Whether it is the operation's last: the one that is signalled, and carries the immediate data.
    pub is_last: bool,
}

impl Plan {
    /// Holds an operation against both views and the queue pair's limits.
    ///
    /// # Errors
    /// [`PlanRefused`] says what is wrong first, in the order of its variants.
    #[inline]
    pub const fn new(
        operation: Operation,
        local: &KeyedRange,
        remote: &RemoteView,
        limits: &Limits,
    ) -> Result<Self, PlanRefused> {
        let (local_bytes, remote_bytes) = (local.len_bytes(), remote.len_bytes());
        if local_bytes != remote_bytes {
            return Err(PlanRefused::Lengths { local_bytes, remote_bytes });
        }
        if operation.is_atomic() && local_bytes != 8 {
            return Err(PlanRefused::AtomicLength { got_bytes: local_bytes });
        }
        if operation.is_atomic() && remote.key_addr() & 7 != 0 {
            return Err(PlanRefused::AtomicAlignment { key_addr: remote.key_addr() });
        }
        if remote.rkey() == 0 {
            return Err(PlanRefused::NoRemoteKey);
        }
        if operation.has_answer() && limits.max_rd_atomic == 0 {
            return Err(PlanRefused::NoReads);
        }
        if operation.is_atomic() && limits.atomics.0 == AtomicCap::NONE.0 {
            return Err(PlanRefused::NoAtomics);
        }
        let part_bytes = if operation.is_atomic() { 8 } else { largest_part(limits.max_message_bytes) };
        // Both are at least 1, so neither subtraction wraps; the count fits once it is at most the slots. What is one message,
        // as nearly all are, is not divided.
        let parts_less_1 =
            if local_bytes <= part_bytes as u64 { 0 } else { local_bytes.wrapping_sub(1) / part_bytes as u64 };
        if parts_less_1 >= limits.send_slots as u64 {
            let limit_bytes = (part_bytes as u64).wrapping_mul(limits.send_slots as u64);
            return Err(PlanRefused::TooLong { len_bytes: local_bytes, limit_bytes });
        }
        let parts = (parts_less_1 as u32).wrapping_add(1);
        Ok(Self { operation, local: *local, remote_addr: remote.key_addr(), rkey: remote.rkey(), part_bytes, parts })
    }

    /// What is to be done.
    #[inline]
    pub const fn operation(&self) -> Operation {
        self.operation
    }

    /// How many requests it is; at least 1, and no more than the send queue holds.
    #[inline]
    pub const fn parts(&self) -> u32 {
        self.parts
    }

    /// How many bytes it moves.
    #[inline]
    pub const fn len_bytes(&self) -> u64 {
        self.local.len_bytes()
    }

    /// Key of the local bytes.
    #[inline]
    pub const fn lkey(&self) -> u32 {
        self.local.lkey()
    }

    /// Key of the remote bytes.
    #[inline]
    pub const fn rkey(&self) -> u32 {
        self.rkey
    }

    /// The one request that it is; `None` if there are more.
    #[inline]
    pub const fn whole(&self) -> Option<Part> {
        if self.parts != 1 {
            return None;
        }
        let (local_addr, len_bytes) = (self.local.key_addr(), self.local.len_bytes() as u32);
        Some(Part { local_addr, remote_addr: self.remote_addr, len_bytes, is_last: true })
    }

    /// The `n`-th request, counted from 0; `None` beyond the last.
    #[inline]
    pub const fn part(&self, n: u32) -> Option<Part> {
        if n >= self.parts {
            return None;
        }
        // Within the view, so none of the sums overflows.
        let offset = (n as u64).wrapping_mul(self.part_bytes as u64);
        let left = self.local.len_bytes().wrapping_sub(offset);
        let is_last = left <= self.part_bytes as u64;
        Some(Part {
            local_addr: self.local.key_addr().wrapping_add(offset),
            remote_addr: self.remote_addr.wrapping_add(offset),
            len_bytes: if is_last { left as u32 } else { self.part_bytes },
            is_last,
        })
    }
}

#[inline]
const fn largest_part(max_message_bytes: u32) -> u32 {
    if max_message_bytes == 0 || max_message_bytes > LARGEST_MESSAGE_BYTES {
        LARGEST_MESSAGE_BYTES
    } else {
        max_message_bytes
    }
}

#[cfg(test)]
mod tests;
