use bareverbs_core::link::crc32c::crc32c;
use bareverbs_core::link::{Checksum, Header, HeaderError, Immediate, LinkRules, Raw, ReadError, SendError, Sequence};
use bareverbs_core::verbs::{Be32, LinkLayer, SendFlags, Wc, WcFlags, WcStatus, WrOpcode};
use proptest::prelude::*;

use super::provider::{FRAME_BYTES, Rig, Seen, Wishes, accept, rubbish};

fn imm_bytes(word: Be32) -> [u8; 4] {
    // SAFETY: a transparent word of four bytes.
    unsafe { core::mem::transmute(word) }
}

#[test]
fn b2_immediates_travel_big_endian() {
    for number in [0x0102_0304, 0x89AB_CDEF] {
        let mut rig: Rig<Immediate> = Rig::wish(Immediate, Wishes { start: number, ..Wishes::default() }).unwrap();
        rig.send(b"x").unwrap();
        let raw = imm_bytes(rig.device.world().sends[0].wr.imm_data);
        assert_eq!(raw, number.to_be_bytes());
        // SAFETY: four bytes make a word.
        let imm_data: Be32 = unsafe { core::mem::transmute(raw) };
        let wc = Wc { imm_data, wc_flags: WcFlags::WITH_IMM, ..Wc::default() };
        assert_eq!(Immediate::read(&wc), Ok(Sequence::new(number)));
    }
}

#[test]
fn b2_without_the_flag_there_is_no_number() {
    let wc = Wc { wr_id: 5, imm_data: Be32::new(7), ..Wc::default() };
    assert_eq!(Immediate::read(&wc), Err(ReadError::NoImmediate { wr_id: 5 }));
}

#[test]
fn a_failed_entry_gives_no_number_by_itself() {
    let read = Immediate::read(&rubbish(2, WcStatus(5)));
    let Err(ReadError::Failed(failed)) = read else { panic!("{read:?}") };
    assert_eq!((failed.wr_id, failed.status, failed.vendor_err), (2, WcStatus(5), 9));
}

#[test]
fn each_carrier_sends_what_it_says() {
    let mut rig: Rig<Immediate> = Rig::new(Immediate);
    rig.send(b"hello").unwrap();
    assert_eq!(rig.wire(), b"hello");
    assert_eq!(rig.device.world().sends[0].wr.opcode, WrOpcode::SEND_WITH_IMM);
    let mut rig: Rig<Raw> = Rig::new(Raw);
    rig.send(b"hello").unwrap();
    assert_eq!((rig.wire(), rig.device.world().sends[0].wr.opcode), (b"hello".to_vec(), WrOpcode::SEND));
}

#[test]
fn the_header_is_the_documented_bytes() {
    let wishes = Wishes { start: 0x0A0B_0C0D, ..Wishes::default() };
    let mut rig: Rig<Header> = Rig::wish(Header::with_checksum(), wishes).unwrap();
    rig.send(b"123456789").unwrap();
    let wire = rig.wire();
    assert_eq!(wire.len(), 64 + 9);
    assert_eq!(wire[..20], *b"bV\x01\x01\x0A\x0B\x0C\x0D\0\0\0\x09\0\0\0\0\xE3\x06\x92\x83");
    assert_eq!(wire[64..], *b"123456789");
    assert_eq!(rig.device.world().sends[0].wr.opcode, WrOpcode::SEND);
}

#[test]
fn a_header_with_another_room_keeps_it() {
    let mut rig: Rig<Header<128>> = Rig::new(Header::new());
    assert_eq!(rig.link.payload_room_bytes(), FRAME_BYTES - 128);
    let room = rig.link.payload_room_bytes() as usize;
    assert_eq!(rig.link.next_frame().unwrap().payload_mut().len(), room);
    assert_eq!(
        rig.link.next_frame().unwrap().post(room + 1),
        Err(SendError::TooLong { got_bytes: room as u64 + 1, room_bytes: room as u32 })
    );
    rig.link.next_frame().unwrap().post(room).unwrap();
    assert_eq!(rig.wire().len(), FRAME_BYTES as usize);
}

/// A frame with a header, changed at one place.
fn decode(change: impl FnOnce(&mut Vec<u8>)) -> Result<u32, HeaderError> {
    let header = Header::<64>::with_checksum();
    let mut frame = vec![0; 96];
    frame[64..].fill(7);
    header.encode(&mut frame, Sequence::new(9), 32);
    change(&mut frame);
    header.decode(&frame).map(|fields| fields.payload_bytes)
}

#[test]
fn whatever_is_wrong_with_a_header_has_its_own_error() {
    assert_eq!(decode(|_| ()), Ok(32));
    assert_eq!(decode(|f| f.truncate(63)), Err(HeaderError::TooShort { got_bytes: 63, need_bytes: 64 }));
    assert_eq!(decode(|f| f[0] = b'B'), Err(HeaderError::Magic { got: 0x4256 }));
    assert_eq!(decode(|f| f[2] = 2), Err(HeaderError::Version { got: 2 }));
    assert_eq!(decode(|f| f[3] = 3), Err(HeaderError::ReservedBits { got: 3 }));
    assert_eq!(decode(|f| f[3] = 0), Err(HeaderError::ChecksumDisagreement { expected: Checksum::Crc32c }));
    assert_eq!(decode(|f| f[11] = 33), Err(HeaderError::TooLong { got_bytes: 33, room_bytes: 32 }));
    let got = crc32c(&[&[7; 31][..], &[6]].concat());
    let expected = crc32c(&[7; 32]);
    assert_eq!(decode(|f| f[95] = 6), Err(HeaderError::Corrupt { expected, got }));
    let mut frame = vec![0; 96];
    Header::<64>::with_checksum().encode(&mut frame, Sequence::new(9), 32);
    let unchecked = Header::<64>::new().decode(&frame);
    assert_eq!(unchecked, Err(HeaderError::ChecksumDisagreement { expected: Checksum::Off }));
}

#[test]
fn a_frame_too_short_to_encode_into_is_left_alone() {
    for len in [0, 63, 64 + 31] {
        let mut frame = vec![0x55; len];
        Header::<64>::new().encode(&mut frame, Sequence::new(1), 32);
        assert!(frame.iter().all(|byte| *byte == 0x55), "{len}");
    }
}

#[test]
fn on_thunderbolt_whole_frames_go_one_at_a_time_and_the_length_is_the_headers() {
    let rules = LinkRules::for_link_layer(LinkLayer::THUNDERBOLT);
    let mut geometry = Wishes::default().geometry;
    geometry.frame_bytes = 8192;
    (geometry.send_capacity, geometry.recv_capacity) = (7, 8);
    let mut rig: Rig<Header> = Rig::wish(Header::new(), Wishes { rules, geometry, ..Wishes::default() }).unwrap();
    assert_eq!((rig.link.send_depth(), rig.link.recv_depth()), (3, 4), "capacity counts 4 KiB frames");
    assert_eq!(rig.link.post_receives(100), Ok(4));
    assert_eq!(rig.device.world().receive_chains, [1, 1, 1, 1]);
    let mut chain = rig.link.chain();
    for len in [5, 0] {
        chain.next_frame().unwrap().stage(len).unwrap();
    }
    assert_eq!(chain.post().unwrap().count, 2);
    assert_eq!(rig.device.world().send_chains, [1, 1]);
    let world = rig.device.world();
    assert!(world.sends.iter().all(|send| send.sge.length == 8192 && send.wr.send_flags == SendFlags::SIGNALED));
    let wire = rig.wire();
    // The completion's length is rubbish there, and not looked at.
    let mut first = wire.clone();
    first[7] = 0;
    first[11] = 5;
    rig.arrive_as(&first, |wc| wc.byte_len = 3);
    rig.arrive_as(&wire, |wc| wc.byte_len = u32::MAX);
    let Seen::Received { payload, sequence, .. } = accept!(rig) else { panic!() };
    assert_eq!((payload.len(), sequence), (5, Some(0)));
    let Seen::Received { payload, sequence, .. } = accept!(rig) else { panic!() };
    assert_eq!((payload.len(), sequence), (0, Some(1)));
}

#[test]
fn where_the_length_is_not_vouched_for_a_raw_message_is_the_frame() {
    let rules = LinkRules::for_link_layer(LinkLayer::THUNDERBOLT);
    let mut geometry = Wishes::default().geometry;
    geometry.frame_bytes = 4096;
    let mut rig: Rig<Raw> = Rig::wish(Raw, Wishes { rules, geometry, ..Wishes::default() }).unwrap();
    rig.link.post_receives(1).unwrap();
    rig.arrive_as(b"whatever", |wc| wc.byte_len = 0);
    let Seen::Received { payload, sequence: None, .. } = accept!(rig) else { panic!() };
    assert_eq!((payload.len(), &payload[..8]), (4096, &b"whatever"[..]));
}

proptest! {
    #[test]
    fn decoding_is_total(bytes in prop::collection::vec(any::<u8>(), 0..200), head in any::<bool>(), crc: bool) {
        let header = if crc { Header::<64>::with_checksum() } else { Header::new() };
        let mut bytes = bytes;
        if head && bytes.len() >= 4 {
            bytes[..4].copy_from_slice(&[b'b', b'V', 1, u8::from(crc)]);
        }
        if let Ok(fields) = header.decode(&bytes) {
            prop_assert!(64 + fields.payload_bytes as usize <= bytes.len());
        }
    }

    #[test]
    fn what_is_encoded_decodes(number: u32, len in 0usize..100, crc: bool) {
        let header = if crc { Header::<64>::with_checksum() } else { Header::new() };
        let mut frame = vec![0xA5; 164];
        header.encode(&mut frame, Sequence::new(number), len as u32);
        let fields = header.decode(&frame).unwrap();
        prop_assert_eq!((fields.sequence.number(), fields.payload_bytes, fields.credits), (number, len as u32, 0));
        prop_assert!(frame[64..].iter().all(|byte| *byte == 0xA5), "the payload is not touched");
    }
}
