//! What an mlx5 provider adds: extended queue pairs that bind keys, and the keys.
//!
//! What each call refuses, and with which number, was read in rdma-core's provider; the sizes were measured on it with its
//! device emulated. None of it was run on an mlx5 device.

use std::ffi::c_int;

use bareverbs_core::verbs::mlx5dv::{Mkey, MkeyFlags, Mlx5QpMask, Mlx5SendOps};
use bareverbs_core::verbs::{CreateQpMask, QpCap, QpInitAttr, QpInitAttrEx, QpType};

use crate::soft::handles::{self, Kind};
use crate::soft::indirect_keys::IndirectKey;
use crate::soft::pairs::PairRequest;
use crate::soft::state::State;

/// The file name of the provider that sums a key's length in a signed 32-bit number, and the release that it tells.
pub(super) const OLD_PROVIDER: (&str, u16) = ("libmlx5.so.1.24.44.0", 44);
/// The same of one that sums in 64 bits.
pub(super) const CURRENT_PROVIDER: (&str, u16) = ("libmlx5.so.1.25.61.0", 61);

/// Bytes of a binding's descriptor besides its entries.
const FIXED_BYTES: u32 = 192;
/// The unit of a send queue's slots, bytes.
const SLOT_BYTES: u32 = 64;
/// Bytes of an entry, and what inline data is rounded up to.
const ENTRY_BYTES: u32 = 16;
/// Bytes in front of inline data.
const INLINE_HEADER_BYTES: u32 = 4;

/// What an extended queue pair gets of the sizes that were asked for: the descriptor of its largest request is a multiple of
/// 64 bytes, and what is left of it is reported as inline room.
///
/// # Errors
/// EINVAL where the descriptor would be longer than the device takes.
pub(super) fn sizes_for_lists(asked: QpCap, descriptor_bytes: u32) -> Result<QpCap, c_int> {
    let inline_bytes = match asked.max_inline_data {
        0 => Some(0),
        bytes => bytes.checked_add(INLINE_HEADER_BYTES).and_then(|bytes| bytes.checked_next_multiple_of(ENTRY_BYTES)),
    };
    let entries_bytes = asked.max_send_sge.checked_mul(ENTRY_BYTES);
    let whole = inline_bytes
        .zip(entries_bytes)
        .and_then(|(inline, entries)| inline.max(entries).checked_add(FIXED_BYTES))
        .filter(|bytes| *bytes <= descriptor_bytes);
    let slot = whole.ok_or(libc::EINVAL)?.next_multiple_of(SLOT_BYTES);
    let max_inline_data = slot.saturating_sub(FIXED_BYTES + INLINE_HEADER_BYTES);
    Ok(QpCap { max_inline_data, ..asked })
}

/// Entries that a binding carries on a queue pair with so much inline room.
const fn list_entries(max_inline_data: u32) -> u32 {
    (max_inline_data + INLINE_HEADER_BYTES) / ENTRY_BYTES
}

/// What `mlx5dv_create_qp` is asked for besides the extended attributes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mlx5Ask {
    pub comp_mask: Mlx5QpMask,
    pub send_ops_flags: Mlx5SendOps,
}

impl State {
    /// Makes an extended queue pair; the sizes granted come back with its handle.
    pub(super) fn create_mlx5_pair(
        &mut self,
        context: u32,
        asked: &QpInitAttrEx,
        mlx5: Option<Mlx5Ask>,
        parents: (u32, [u32; 2]),
    ) -> Result<(usize, QpCap), c_int> {
        let (domain, queues) = parents;
        let device = self.device_of(context).ok_or(libc::EINVAL)?;
        if !device.profile.is_mlx5() {
            return Err(libc::EOPNOTSUPP);
        }
        let known = CreateQpMask::PD | CreateQpMask::SEND_OPS_FLAGS;
        if !known.contains(asked.comp_mask) || !asked.comp_mask.contains(CreateQpMask::PD) {
            return Err(libc::EINVAL);
        }
        let extended = asked.comp_mask.contains(CreateQpMask::SEND_OPS_FLAGS);
        let ops = match mlx5 {
            Some(mlx5) if !Mlx5QpMask::SEND_OPS_FLAGS.contains(mlx5.comp_mask) => return Err(libc::EOPNOTSUPP),
            Some(mlx5) if mlx5.comp_mask.contains(Mlx5QpMask::SEND_OPS_FLAGS) => mlx5.send_ops_flags,
            _ => Mlx5SendOps::empty(),
        };
        if !ops.is_empty() && !extended {
            return Err(libc::EINVAL);
        }
        if !(Mlx5SendOps::MR_LIST | Mlx5SendOps::MKEY_CONFIGURE).contains(ops) {
            return Err(libc::EOPNOTSUPP);
        }
        let lists = ops.contains(Mlx5SendOps::MR_LIST);
        if lists && asked.qp_type != QpType::RC {
            return Err(libc::EOPNOTSUPP);
        }
        let cap = if lists { sizes_for_lists(asked.cap, device.descriptor_bytes)? } else { asked.cap };
        let init = QpInitAttr {
            qp_context: asked.qp_context,
            send_cq: asked.send_cq,
            recv_cq: asked.recv_cq,
            srq: asked.srq,
            cap,
            qp_type: asked.qp_type,
            sq_sig_all: asked.sq_sig_all,
        };
        let list_entries = lists.then_some(list_entries(cap.max_inline_data));
        let (handle, cap, _) = self.create_pair(domain, &PairRequest { init, queues, extended, list_entries })?;
        Ok((handle, cap))
    }

    /// Makes an indirect key; what its `max_entries` was rounded to comes back with its handle.
    pub(super) fn create_key(&mut self, domain: u32, flags: MkeyFlags, asked: u16) -> Result<(usize, u16), c_int> {
        let context = self.domains.get(domain).ok_or(libc::EINVAL)?.context;
        let device = self.device_of(context).ok_or(libc::EINVAL)?;
        if !device.profile.is_mlx5() || flags != MkeyFlags::INDIRECT {
            return Err(libc::EOPNOTSUPP);
        }
        let reachable = device.limits.entries;
        // As the provider rounds, in the field's own 16 bits: 65 533 becomes 0.
        let capacity = asked.wrapping_add(3) & !3;
        let (index, key) = (self.regions.indirect.next_index(), self.regions.indirect.next_key());
        let handle = handles::create(self.place(index), Mkey { lkey: key, rkey: key });
        self.regions.indirect.insert(IndirectKey {
            handle,
            domain,
            key,
            capacity,
            reachable,
            in_flight: 0,
            bound: None,
        });
        self.count_key(domain, 1);
        Ok((handle, capacity))
    }

    /// Destroys an indirect key; refused, and noted as misuse, while a binding that names it has not completed.
    pub(super) fn destroy_key(&mut self, index: u32) -> Result<(), c_int> {
        let key = self.regions.indirect.get(index).ok_or(libc::EINVAL)?;
        let (handle, domain) = (key.handle, key.domain);
        if key.in_flight > 0 {
            self.blame(format!("mlx5dv_destroy_mkey: a binding of indirect key {handle:#x} has not completed"));
            return Err(libc::EBUSY);
        }
        self.regions.indirect.remove(index);
        self.count_key(domain, -1);
        handles::scrub_key(handle);
        self.bury(Kind::IndirectKey, handle);
        Ok(())
    }

    fn count_key(&mut self, domain: u32, by: i32) {
        let Some(domain) = self.domains.get_mut(domain) else { return };
        domain.children = domain.children.saturating_add_signed(by);
        let context = domain.context;
        self.adopt(context, by);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(max_send_sge: u32, max_inline_data: u32) -> Result<u32, c_int> {
        let asked = QpCap { max_send_wr: 16, max_recv_wr: 16, max_send_sge, max_recv_sge: 1, max_inline_data };
        sizes_for_lists(asked, 1024).map(|cap| list_entries(cap.max_inline_data))
    }

    /// The rows measured on rdma-core's provider, with a send descriptor of at most 1024 bytes.
    #[test]
    fn as_many_entries_fit_as_the_real_provider_grants() {
        for (inline, granted) in [(0, 4), (64, 8), (128, 12), (256, 20), (512, 36), (764, 48), (765, 52), (828, 52)] {
            assert_eq!(entries(1, inline), Ok(granted), "{inline}");
        }
        assert_eq!(entries(1, 829), Err(22));
        assert_eq!(entries(30, 0), Ok(32));
        assert_eq!((entries(52, 0), entries(53, 0)), (Ok(52), Err(22)));
        assert_eq!((entries(u32::MAX, 0), entries(1, u32::MAX)), (Err(22), Err(22)));
    }

    #[test]
    fn the_file_names_tell_their_releases() {
        for (name, release) in [OLD_PROVIDER, CURRENT_PROVIDER] {
            assert_eq!(bareverbs_core::segments::provider_release(name), Some(release));
        }
    }
}
