use proptest::prelude::*;

use super::*;
use crate::connect::Psn;
use crate::verbs::Gid;

pub(crate) fn example() -> Hello {
    Hello {
        destination: Destination {
            lid: 0x0102,
            qp_num: 0x0a_0b0c,
            psn: Psn::from_low_bits(0x11_2233),
            gid: Gid::new([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 2]),
        },
        service: Service::Rc,
        link_layer: LinkLayer::THUNDERBOLT,
        path_mtu: Mtu::B4096,
        frame_bytes: 0x0102_0304,
        carrier: CarrierKind::Header,
        header_room_bytes: 64,
        checksum: Checksum::Crc32c,
        credits: CreditMode::On,
        max_rd_atomic: 0,
        recv_depth: 32,
        first_sequence: Sequence::new(0xfedc_ba98),
        nonce: 0x1122_3344_5566_7788,
    }
}

/// Any hello that has a wire form.
pub(crate) fn any_hello() -> impl Strategy<Value = Hello> {
    let what = (any::<bool>(), any::<u8>(), 1u32..=5, 0u8..3, any::<bool>(), any::<bool>());
    let numbers = (any::<u16>(), any::<u32>(), any::<u32>(), any::<u32>(), any::<u64>());
    let place = (any::<u16>(), 0u32..1 << 24, any::<u32>(), any::<[u8; 16]>());
    (what, numbers, place).prop_map(|(what, numbers, place)| {
        let (reliable, link_layer, mtu, carrier, checksum, credits) = what;
        let (header_room_bytes, frame_bytes, recv_depth, first, nonce) = numbers;
        let (lid, qp_num, psn, gid) = place;
        let service = if reliable { Service::Rc } else { Service::Uc };
        // One in eight is for one-sided operations.
        let frame_bytes = if nonce % 8 == 0 { 0 } else { frame_bytes };
        let max_rd_atomic = if is_one_sided(service, frame_bytes) { lid as u8 & MOST_RD_ATOMIC } else { 0 };
        Hello {
            destination: Destination { lid, qp_num, psn: Psn::from_low_bits(psn), gid: Gid::new(gid) },
            service,
            link_layer: LinkLayer(link_layer),
            path_mtu: Mtu(mtu),
            frame_bytes,
            carrier: carrier_of(carrier + 1).expect("three carriers"),
            header_room_bytes,
            checksum: if checksum { Checksum::Crc32c } else { Checksum::Off },
            credits: if credits { CreditMode::On } else { CreditMode::Off },
            max_rd_atomic,
            recv_depth,
            first_sequence: Sequence::new(first),
            nonce,
        }
    })
}

#[test]
fn the_wire_form_is_as_documented() {
    let wire = example().encode();
    assert_eq!(wire[..10], *b"BVhi\x01\x02\x64\x05\x02\x03");
    assert_eq!(wire[10..24], [0, 64, 1, 2, 3, 4, 0, 0, 0, 32, 0xfe, 0xdc, 0xba, 0x98]);
    assert_eq!(wire[24..32], [0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88]);
    assert_eq!(wire[32..], example().destination.encode());
    let least = Hello {
        service: Service::Uc,
        link_layer: LinkLayer::ETHERNET,
        path_mtu: Mtu::B256,
        carrier: CarrierKind::Immediate,
        checksum: Checksum::Off,
        credits: CreditMode::Off,
        ..example()
    };
    assert_eq!(least.encode()[5..10], [1, 2, 1, 1, 0]);
    assert_eq!(Hello { carrier: CarrierKind::Raw, ..least }.encode()[8], 3);
}

#[test]
fn lengths_next_to_the_right_one_are_refused() {
    let mut wire = example().encode().to_vec();
    for got_bytes in (0..HELLO_BYTES).rev() {
        assert_eq!(Hello::decode(&wire[..got_bytes]), Err(HelloError::Length { got_bytes }));
    }
    wire.push(0);
    assert_eq!(Hello::decode(&wire), Err(HelloError::Length { got_bytes: 65 }));
}

#[test]
fn every_flipped_bit_is_refused_or_read_as_another_hello() {
    let sent = example();
    for bit in 0..HELLO_BYTES * 8 {
        let mut wire = sent.encode();
        wire[bit / 8] ^= 1 << (bit % 8);
        match Hello::decode(&wire) {
            Ok(read) => {
                assert_ne!(read, sent, "bit {bit}");
                assert_eq!(read.encode(), wire, "bit {bit}: one hello, one wire form");
            }
            Err(error) => {
                let right = match bit / 8 {
                    0..4 => matches!(error, HelloError::Magic { .. }),
                    4 => matches!(error, HelloError::Version { .. }),
                    5 => matches!(error, HelloError::Service { .. }),
                    7 => matches!(error, HelloError::Mtu { .. }),
                    8 => matches!(error, HelloError::Carrier { .. }),
                    9 => matches!(error, HelloError::ReservedBits { byte: 9, .. }),
                    32..64 => matches!(error, HelloError::Destination(_)),
                    _ => false,
                };
                assert!(right, "bit {bit}: {error}");
            }
        }
    }
}

#[test]
fn every_value_of_every_coded_byte_is_known_or_refused_by_its_name() {
    for value in 0..=u8::MAX {
        let with = |byte: usize| {
            let mut wire = example().encode();
            wire[byte] = value;
            Hello::decode(&wire)
        };
        assert_eq!(with(4).is_ok(), value == 1);
        assert_eq!(
            with(5).map_err(|error| error == HelloError::Service { got: value }).is_ok(),
            matches!(value, 1 | 2)
        );
        assert_eq!(
            with(6).map(|hello| hello.link_layer),
            Ok(LinkLayer(value)),
            "an unknown link layer keeps its number"
        );
        assert_eq!(with(7).err(), (!(1..=5).contains(&value)).then_some(HelloError::Mtu { got: value }));
        assert_eq!(with(8).err(), (!(1..=3).contains(&value)).then_some(HelloError::Carrier { got: value }));
        assert_eq!(with(9).err(), (value > 3).then_some(HelloError::ReservedBits { byte: 9, got: value }));
    }
}

#[test]
fn only_a_reliable_end_without_frames_says_how_many_reads_it_has_room_for() {
    let one_sided = Hello { frame_bytes: 0, max_rd_atomic: 16, ..example() };
    assert_eq!(one_sided.encode()[9], 16 << 2 | 3);
    for max_rd_atomic in 0..=MOST_RD_ATOMIC {
        let hello = Hello { max_rd_atomic, ..one_sided };
        assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
        let mut wire = hello.encode();
        wire[5] = 1;
        let reserved = (max_rd_atomic != 0).then_some(HelloError::ReservedBits { byte: 9, got: wire[9] });
        assert_eq!(Hello::decode(&wire).err(), reserved, "unreliable");
        wire = hello.encode();
        wire[15] = 1;
        assert_eq!(Hello::decode(&wire).err(), reserved, "with frames");
    }
}

#[test]
fn a_start_tells_another_program_and_another_version() {
    assert_eq!(Hello::check_start(b"BVhi\x01"), Ok(()));
    assert_eq!(Hello::check_start(b"BVhi\x02"), Err(HelloError::Version { got: 2 }));
    assert_eq!(Hello::check_start(b"GET /"), Err(HelloError::Magic { got: *b"GET " }));
}

proptest! {
    #[test]
    fn any_hello_survives_the_wire(hello in any_hello()) {
        prop_assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
    }

    #[test]
    fn any_bytes_are_refused_or_encode_back_to_themselves(bytes in prop::collection::vec(any::<u8>(), 0..140)) {
        if let Ok(hello) = Hello::decode(&bytes) {
            prop_assert_eq!(hello.encode().to_vec(), bytes);
        }
    }

    #[test]
    fn bytes_with_a_right_start_are_refused_or_encode_back(tail: [u8; 32], coded in [1u8..3, 0..255, 1..6, 1..4, 0..4]) {
        let mut wire = example().encode();
        wire[5..10].copy_from_slice(&coded);
        wire[10..42].copy_from_slice(&tail);
        if let Ok(hello) = Hello::decode(&wire) {
            prop_assert_eq!(hello.encode(), wire);
        }
    }
}
