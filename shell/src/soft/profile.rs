//! What kind of device a device pretends to be, as one question per habit.
//!
//! The rest of the fabric asks these questions and never which device it has. Where the habits of Thunderbolt RDMA come
//! from: Apple's technote TN3205 and measurements that users published.

use std::ffi::c_int;

use bareverbs_core::verbs::{TransportType, WcStatus};

/// Bytes of a Thunderbolt frame, by which its queues count.
pub(super) const FRAME_BYTES: u32 = 4096;

/// The habits of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Profile {
    /// Verbs as soft-RoCE and hardware have them, by the stricter of the two.
    Verbs,
    /// Verbs, and what an mlx5 provider adds: indirect keys.
    Mlx5,
    /// Thunderbolt RDMA as Macs have it.
    Thunderbolt,
}

/// Darwin's numbers, which the profile answers on every platform.
const DARWIN_EOPNOTSUPP: c_int = 102;
const DARWIN_ETIMEDOUT: c_int = 60;

impl Profile {
    const fn is_thunderbolt(self) -> bool {
        matches!(self, Self::Thunderbolt)
    }

    /// Whether mlx5dv's calls are for it.
    pub(super) const fn is_mlx5(self) -> bool {
        matches!(self, Self::Mlx5)
    }

    pub(super) const fn transport(self) -> TransportType {
        if self.is_thunderbolt() { TransportType::THUNDERBOLT } else { TransportType::IB }
    }

    /// Whether a send stays in its queue until the other end has a receive for it.
    pub(super) const fn send_waits_for_receive(self) -> bool {
        self.is_thunderbolt()
    }

    /// Whether there are reliable connected queue pairs.
    pub(super) const fn has_reliable_service(self) -> bool {
        !self.is_thunderbolt()
    }

    /// Whether a message has room for immediate data.
    pub(super) const fn carries_immediate(self) -> bool {
        !self.is_thunderbolt()
    }

    /// Whether the operation code of a send is looked at; if not, everything is a plain send.
    pub(super) const fn checks_opcode(self) -> bool {
        !self.is_thunderbolt()
    }

    /// Slots of a queue that a request of so many bytes takes.
    pub(super) const fn slots(self, length_bytes: u32) -> u32 {
        if self.is_thunderbolt() { frames(length_bytes) } else { 1 }
    }

    /// Whether messages come in whole frames, of which a send and its receive must have equally many.
    pub(super) const fn whole_frames(self) -> bool {
        self.is_thunderbolt()
    }

    /// What a refused post returns, and whether it names the refused request.
    pub(super) const fn post_refusal(self, errno: c_int) -> (c_int, bool) {
        if self.is_thunderbolt() { (-errno, false) } else { (errno, true) }
    }

    /// Whether regions must be older than the queue pair's move to INIT.
    pub(super) const fn wants_regions_before_init(self) -> bool {
        self.is_thunderbolt()
    }

    /// Whether `alloc_pd` needs an active port.
    pub(super) const fn domain_needs_active_port(self) -> bool {
        self.is_thunderbolt()
    }

    /// Whether a region may be addressed from another start than its own.
    pub(super) const fn takes_iova(self) -> bool {
        !self.is_thunderbolt()
    }

    /// What is answered when a service is asked for that the device lacks.
    pub(super) const fn unsupported(self) -> c_int {
        if self.is_thunderbolt() { DARWIN_EOPNOTSUPP } else { libc::EOPNOTSUPP }
    }

    /// What the move to RTR answers when the path has no global route and needs one.
    pub(super) const fn no_global_route(self) -> c_int {
        if self.is_thunderbolt() { DARWIN_ETIMEDOUT } else { libc::EINVAL }
    }

    /// What one queue pair too many is answered.
    pub(super) const fn too_many_queue_pairs(self) -> c_int {
        if self.is_thunderbolt() { libc::EBUSY } else { libc::ENOMEM }
    }

    /// Whether there are completion channels and a file of asynchronous events.
    pub(super) const fn has_events(self) -> bool {
        !self.is_thunderbolt()
    }

    /// Whether the operations in front of the context exist.
    pub(super) const fn has_extended_context(self) -> bool {
        !self.is_thunderbolt()
    }

    /// Whether the sizes granted are written back at creation; if not, only `query_qp` tells.
    pub(super) const fn writes_back_sizes(self) -> bool {
        !self.is_thunderbolt()
    }

    /// How a receive ends that a message of so many bytes came for.
    pub(super) const fn fit(self, message_bytes: u32, room_bytes: u32) -> Result<(), WcStatus> {
        let fits = if self.is_thunderbolt() {
            frames(message_bytes) == frames(room_bytes)
        } else {
            message_bytes <= room_bytes
        };
        if fits { Ok(()) } else { Err(WcStatus::LOC_LEN_ERR) }
    }
}

/// Frames of a message; an empty one takes one too.
const fn frames(length_bytes: u32) -> u32 {
    if length_bytes == 0 { 1 } else { length_bytes.div_ceil(FRAME_BYTES) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thunderbolt_request_takes_as_many_slots_as_it_has_frames() {
        let slots: Vec<_> = [0, 1, 4095, 4096, 4097, 8192, 8193].map(|n| Profile::Thunderbolt.slots(n)).into();
        assert_eq!(slots, [1, 1, 1, 1, 2, 2, 3]);
        assert_eq!(Profile::Verbs.slots(1 << 20), 1);
    }

    #[test]
    fn a_thunderbolt_message_fits_a_receive_of_equally_many_frames_only() {
        assert_eq!(Profile::Thunderbolt.fit(100, 4096), Ok(()));
        assert_eq!(Profile::Thunderbolt.fit(4096, 8192), Err(WcStatus::LOC_LEN_ERR));
        assert_eq!(Profile::Thunderbolt.fit(4097, 4096), Err(WcStatus::LOC_LEN_ERR));
        assert_eq!(Profile::Verbs.fit(100, 4096), Ok(()));
        assert_eq!(Profile::Verbs.fit(4096, 4096), Ok(()));
        assert_eq!(Profile::Verbs.fit(4097, 4096), Err(WcStatus::LOC_LEN_ERR));
    }
}
