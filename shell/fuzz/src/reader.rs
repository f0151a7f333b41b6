//! Values out of bytes: big-endian from the front, zeros after the end.

use bareverbs_core::connect::{CreditMode, Destination, Hello, Psn, Service};
use bareverbs_core::link::{CarrierKind, Checksum, Sequence};
use bareverbs_core::verbs::{Gid, LinkLayer, Mtu};

/// What is left to read.
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let count = N.min(self.0.len());
        array[..count].copy_from_slice(self.slice(count));
        array
    }

    /// At most so many bytes.
    pub(crate) fn slice(&mut self, most: usize) -> &'a [u8] {
        let (slice, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        slice
    }

    pub(crate) fn byte(&mut self) -> u8 {
        u8::from_be_bytes(self.array())
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_be_bytes(self.array())
    }

    pub(crate) fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.array())
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.array())
    }

    pub(crate) fn flag(&mut self) -> bool {
        self.byte() & 1 != 0
    }

    /// One of the first `count` numbers; `count` at most 256.
    pub(crate) fn below(&mut self, count: u64) -> u64 {
        u64::from(self.byte()) % count
    }

    /// A small number, or any: addresses and lengths are mostly small, near the top, or rubbish.
    pub(crate) fn address(&mut self) -> u64 {
        match self.below(8) {
            0 => self.u64(),
            1 => u64::MAX - u64::from(self.byte()),
            _ => u64::from(self.byte()),
        }
    }

    pub(crate) fn destination(&mut self) -> Destination {
        Destination {
            lid: self.u16(),
            qp_num: self.u32() >> 8,
            psn: Psn::from_low_bits(self.u32()),
            gid: Gid::new(self.array()),
        }
    }

    /// Any hello that has a wire form.
    pub(crate) fn hello(&mut self) -> Hello {
        let hello = Hello {
            destination: self.destination(),
            service: if self.flag() { Service::Rc } else { Service::Uc },
            link_layer: LinkLayer(self.byte()),
            path_mtu: Mtu(1 + self.below(5) as u32),
            frame_bytes: self.u32(),
            carrier: [CarrierKind::Immediate, CarrierKind::Header, CarrierKind::Raw][self.below(3) as usize],
            header_room_bytes: self.u16(),
            checksum: if self.flag() { Checksum::Crc32c } else { Checksum::Off },
            credits: if self.flag() { CreditMode::On } else { CreditMode::Off },
            recv_depth: self.u32(),
            first_sequence: Sequence::new(self.u32()),
            nonce: self.u64(),
            max_rd_atomic: 0,
        };
        // Of those that say so anyway, and of a few more, so that both ends of a pair do.
        match hello {
            Hello { service: Service::Rc, frame_bytes: 0..=0xFFFF, .. } => {
                Hello { frame_bytes: 0, max_rd_atomic: self.byte() >> 2, ..hello }
            }
            _ => hello,
        }
    }
}
