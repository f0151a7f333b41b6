//! Where an end is, as rdma-core's ping-pong tools write it: `LID:QPN:PSN:GID` in hex of 4, 6, 6 and 32 digits, and a NUL;
//! no newline.

use anyhow::{Context, ensure};
use bareverbs_core::connect::{Destination, Psn};
use bareverbs_core::verbs::Gid;

/// Length of an address on the wire, its NUL included.
pub const ADDRESS_BYTES: usize = 52;

/// An address as the tools write it.
pub fn write(of: &Destination) -> [u8; ADDRESS_BYTES] {
    let gid = u128::from_be_bytes(of.gid.raw);
    let text = format!("{:04x}:{:06x}:{:06x}:{gid:032x}\0", of.lid, of.qp_num, of.psn.get());
    let mut bytes = [0; ADDRESS_BYTES];
    // Queue pair numbers have 24 bits, so the text has its length.
    bytes.copy_from_slice(&text.as_bytes()[..ADDRESS_BYTES]);
    bytes
}

/// Reads an address. Hex digits of either case are taken.
///
/// # Errors
/// What is not as it must be.
pub fn parse(bytes: &[u8; ADDRESS_BYTES]) -> anyhow::Result<Destination> {
    let text = std::str::from_utf8(bytes)?.strip_suffix('\0').context("the NUL at its end is missing")?;
    let fields: Vec<&str> = text.split(':').collect();
    let lengths: Vec<usize> = fields.iter().map(|field| field.len()).collect();
    ensure!(lengths == [4, 6, 6, 32], "fields of {lengths:?} digits came, 4, 6, 6 and 32 are due");
    ensure!(fields.iter().all(|field| field.bytes().all(|digit| digit.is_ascii_hexdigit())), "not all are hex digits");
    Ok(Destination {
        lid: u16::from_str_radix(fields[0], 16)?,
        qp_num: u32::from_str_radix(fields[1], 16)?,
        psn: Psn::from_low_bits(u32::from_str_radix(fields[2], 16)?),
        gid: Gid::new(u128::from_str_radix(fields[3], 16)?.to_be_bytes()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEEN: &[u8; ADDRESS_BYTES] = b"0000:000012:d080ba:00000000000000000000ffff7f000001\0";

    #[test]
    fn an_address_as_traced_is_read_and_written() {
        let there = parse(SEEN).expect("an address");
        assert_eq!((there.lid, there.qp_num, there.psn.get()), (0, 0x12, 0xd0_80ba));
        assert_eq!(there.gid.ipv4(), Some([127, 0, 0, 1]));
        assert_eq!(&write(&there), SEEN);
    }

    #[test]
    fn what_is_not_an_address_is_refused() {
        for (at, byte) in [(51, b'\n'), (4, b'0'), (3, b':'), (0, b'g'), (0, b'+'), (0, 0xff), (20, b' ')] {
            let mut bytes = *SEEN;
            bytes[at] = byte;
            assert!(parse(&bytes).is_err(), "{byte:#x} at {at}");
        }
    }
}
