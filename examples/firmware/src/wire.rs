//! What goes over a wire: destinations, hellos, headers with their checksum, numbers.

use bareverbs_core::connect::{
    CreditMode, Destination, DestinationError, Hello, HelloError, Mismatch, Psn, QueuePairConfig, Service, agree,
};
use bareverbs_core::link::{CarrierKind, Checksum, Header, HeaderError, Sequence, SequenceChecker, Verdict};
use bareverbs_core::verbs::{Gid, LinkLayer, Mtu};

use crate::Check;

pub const CHECKS: &[Check] = &[
    ("a destination survives the wire, and a reserved bit is refused", destinations),
    ("two hellos make the same agreement at both ends, or the same mismatch", hellos),
    ("a header brings number and payload, and its checksum finds a flipped bit", headers),
    ("numbers pass the wrap; gap and repeat are told apart", numbers),
];

fn here() -> Destination {
    Destination {
        lid: 0,
        qp_num: 17,
        psn: Psn::JACCL,
        gid: Gid::new([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 10, 0, 0, 2]),
    }
}

fn destinations() {
    let mut wire = here().encode();
    assert_eq!(Destination::decode(&wire), Ok(here()));
    wire[8] = 0x80;
    assert_eq!(Destination::decode(&wire), Err(DestinationError::ReservedBits { byte: 8, got: 0x80 }));
    assert_eq!(Destination::decode(&wire[1..]), Err(DestinationError::Length { got_bytes: 31 }));
}

fn hello() -> Hello {
    Hello {
        destination: here(),
        service: Service::Uc,
        link_layer: LinkLayer::THUNDERBOLT,
        path_mtu: Mtu::B1024,
        frame_bytes: 4096,
        carrier: CarrierKind::Header,
        header_room_bytes: 64,
        max_rd_atomic: 0,
        checksum: Checksum::Crc32c,
        credits: CreditMode::Off,
        recv_depth: QueuePairConfig::jaccl().recv_depth,
        first_sequence: Sequence::new(0xFFFF_FFFE),
        nonce: 7,
    }
}

fn hellos() {
    let ours = hello();
    let theirs = Hello { destination: Destination { qp_num: 18, ..here() }, path_mtu: Mtu::B512, ..ours };
    let came = Hello::decode(&theirs.encode()).expect("a hello");
    let (one, other) = (agree(&ours, &came).expect("alike"), agree(&came, &ours).expect("alike"));
    assert_eq!((one.path_mtu, other.path_mtu), (Mtu::B512, Mtu::B512));
    assert_eq!((one.remote.qp_num, other.remote.qp_num), (18, 17));
    let plain = Hello { checksum: Checksum::Off, ..theirs };
    let why = Mismatch::Checksum { ours: Checksum::Crc32c, theirs: Checksum::Off };
    assert_eq!(agree(&ours, &plain), Err(why));
    assert_eq!(agree(&ours, &ours), Err(Mismatch::OwnHello));
    assert_eq!(Hello::check_start(b"GET /"), Err(HelloError::Magic { got: *b"GET " }));
}

fn headers() {
    let header = Header::<64>::with_checksum();
    let mut frame = [0; 128];
    frame[64..69].copy_from_slice(b"hello");
    header.encode(&mut frame, Sequence::new(9), 5);
    let fields = header.decode(&frame).expect("a header");
    assert_eq!((fields.sequence.number(), fields.payload_bytes), (9, 5));
    frame[66] ^= 1;
    assert!(matches!(header.decode(&frame), Err(HeaderError::Corrupt { .. })));
    assert_eq!(header.decode(&frame[..20]), Err(HeaderError::TooShort { got_bytes: 20, need_bytes: 64 }));
}

fn numbers() {
    let mut checker = SequenceChecker { expected: Sequence::new(u32::MAX) };
    assert_eq!(checker.check(Sequence::new(u32::MAX)), Verdict::InOrder);
    assert_eq!(checker.check(Sequence::new(0)), Verdict::InOrder);
    assert_eq!(checker.check(Sequence::new(3)), Verdict::Gap { missing: 2 });
    assert_eq!(checker.check(Sequence::new(u32::MAX)), Verdict::Old { behind: 2 });
}
