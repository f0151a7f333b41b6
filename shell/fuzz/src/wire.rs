//! Decoders of wire forms, each beside the documented table read from the front: one list of what can be wrong, in order.
//!
//! Of each: the answer is the table's; what is accepted goes out again as it came; a refusal says the number that is wrong;
//! and any value survives the way there and back.

#[path = "../../../examples/tool_address.rs"]
mod tools;

use std::fmt::Display;

use bareverbs_core::connect::{
    CreditMode, Destination, DestinationError, Hello, HelloError, Psn, Reason, Refusal, STEP_BYTES, Service, Step,
    StepError,
};
use bareverbs_core::link::{CarrierKind, Checksum, Header, HeaderError, HeaderFields, Sequence};
use bareverbs_core::verbs::{Gid, LinkLayer, Mtu};

use crate::reader::Reader;
use tools::ADDRESS_BYTES;

/// What can be wrong, in order: whether it is, the error, and the number that its text must have.
type Reasons<E> = Vec<(bool, E, String)>;

/// The one of several reasons that is to be told, and its number.
fn first<E>(reasons: Reasons<E>) -> Result<(), (E, String)> {
    match reasons.into_iter().find(|(wrong, ..)| *wrong) {
        Some((_, error, number)) => Err((error, number)),
        None => Ok(()),
    }
}

/// Whether a decoder answers as the table says.
fn answers_as<T, E>(got: Result<T, E>, table: Result<T, (E, String)>) -> Option<T>
where
    T: PartialEq + std::fmt::Debug,
    E: PartialEq + std::fmt::Debug + Display,
{
    match (got, table) {
        (Ok(value), Ok(expected)) => {
            assert_eq!(value, expected);
            Some(value)
        }
        (Err(error), Err((expected, number))) => {
            assert_eq!(error, expected);
            let text = error.to_string();
            assert!(text.contains(&number), "{text:?} does not say {number}");
            None
        }
        (got, table) => panic!("{got:?}, where the table says {table:?}"),
    }
}

/// Bytes of a field.
fn at<const N: usize>(bytes: &[u8], from: usize) -> [u8; N] {
    bytes[from..from + N].try_into().unwrap()
}

fn magic_text(bytes: &[u8]) -> String {
    format!("{:02x?}", &bytes[..4])
}

/// `Destination`, decoded from the bytes and made of them.
pub fn destination(bytes: &[u8]) {
    if let Some(there) = answers_as(Destination::decode(bytes), destination_by_table(bytes)) {
        assert_eq!(there.encode(), *bytes);
    }
    let any = Reader::new(bytes).destination();
    assert_eq!(Destination::decode(&any.encode()), Ok(any));
}

fn destination_by_table(bytes: &[u8]) -> Result<Destination, (DestinationError, String)> {
    let got_bytes = bytes.len();
    first(vec![(got_bytes != 32, DestinationError::Length { got_bytes }, format!("{got_bytes} came"))])?;
    let mut reasons = vec![
        (bytes[..4] != *b"BVdt", DestinationError::Magic { got: at(bytes, 0) }, magic_text(bytes)),
        (bytes[4] != 1, DestinationError::Version { got: bytes[4] }, format!("{} came", bytes[4])),
    ];
    for byte in [5, 8, 12] {
        let got = bytes[byte];
        reasons.push((got != 0, DestinationError::ReservedBits { byte, got }, format!("{got:#04x}")));
    }
    first(reasons)?;
    Ok(Destination {
        lid: u16::from_be_bytes(at(bytes, 6)),
        qp_num: u32::from_be_bytes(at(bytes, 8)),
        psn: Psn::new(u32::from_be_bytes(at(bytes, 12))).expect("the top byte is 0"),
        gid: Gid::new(at(bytes, 16)),
    })
}

/// `Hello`, decoded from the bytes and made of them; and its start.
pub fn hello(bytes: &[u8]) {
    if let Some(hello) = answers_as(Hello::decode(bytes), hello_by_table(bytes)) {
        assert_eq!(hello.encode(), *bytes);
    }
    if let Some(start) = bytes.first_chunk() {
        let reasons = hello_start_reasons(bytes);
        answers_as(Hello::check_start(start), first(reasons));
    }
    let any = Reader::new(bytes).hello();
    assert_eq!(Hello::decode(&any.encode()), Ok(any));
}

fn hello_start_reasons(bytes: &[u8]) -> Reasons<HelloError> {
    vec![
        (bytes[..4] != *b"BVhi", HelloError::Magic { got: at(bytes, 0) }, magic_text(bytes)),
        (bytes[4] != 1, HelloError::Version { got: bytes[4] }, format!("{} came", bytes[4])),
    ]
}

/// Also what the property of an exchange goes by.
pub(crate) fn hello_by_table(bytes: &[u8]) -> Result<Hello, (HelloError, String)> {
    let got_bytes = bytes.len();
    first(vec![(got_bytes != 64, HelloError::Length { got_bytes }, format!("{got_bytes} came"))])?;
    let [service, link_layer, mtu, carrier, flags] = at(bytes, 5);
    let one_sided = service == 2 && bytes[12..16] == [0; 4];
    let mut reasons = hello_start_reasons(bytes);
    reasons.extend([
        (![1, 2].contains(&service), HelloError::Service { got: service }, format!("service {service}:")),
        (!(1..=5).contains(&mtu), HelloError::Mtu { got: mtu }, format!("MTU code {mtu}:")),
        (!(1..=3).contains(&carrier), HelloError::Carrier { got: carrier }, format!("carrier {carrier}:")),
        (flags > 3 && !one_sided, HelloError::ReservedBits { byte: 9, got: flags }, format!("{flags:#04x}")),
    ]);
    first(reasons)?;
    let destination =
        destination_by_table(&bytes[32..]).map_err(|(error, number)| (HelloError::Destination(error), number))?;
    Ok(Hello {
        destination,
        service: if service == 1 { Service::Uc } else { Service::Rc },
        link_layer: LinkLayer(link_layer),
        path_mtu: Mtu(u32::from(mtu)),
        frame_bytes: u32::from_be_bytes(at(bytes, 12)),
        carrier: match carrier {
            1 => CarrierKind::Immediate,
            2 => CarrierKind::Header,
            _ => CarrierKind::Raw,
        },
        header_room_bytes: u16::from_be_bytes(at(bytes, 10)),
        checksum: if flags & 2 == 0 { Checksum::Off } else { Checksum::Crc32c },
        credits: if flags & 1 == 0 { CreditMode::Off } else { CreditMode::On },
        max_rd_atomic: flags / 4,
        recv_depth: u32::from_be_bytes(at(bytes, 16)),
        first_sequence: Sequence::new(u32::from_be_bytes(at(bytes, 20))),
        nonce: u64::from_be_bytes(at(bytes, 24)),
    })
}

/// `Step`: of the bytes as many as it has, zeros after them.
pub fn step(bytes: &[u8]) {
    let wire: [u8; STEP_BYTES] = Reader::new(bytes).array();
    if let Some(step) = answers_as(Step::decode(&wire), step_by_table(&wire)) {
        assert_eq!(step.encode(), wire);
    }
}

/// Also what the property of an exchange goes by.
pub(crate) fn step_by_table(wire: &[u8; STEP_BYTES]) -> Result<Step, (StepError, String)> {
    let kind = wire[5];
    let mut reasons = vec![
        (wire[..4] != *b"BVst", StepError::Magic { got: at(wire, 0) }, magic_text(wire)),
        (wire[4] != 1, StepError::Version { got: wire[4] }, format!("{} came", wire[4])),
        (!(1..=4).contains(&kind), StepError::Kind { got: kind }, format!("number {kind}:")),
    ];
    // A refusal says why in bytes 6 and 8 to 11.
    let reserved = if kind == 4 { 7..8 } else { 6..12 };
    reasons.extend(reserved.map(|byte| {
        let got = wire[byte];
        (got != 0, StepError::ReservedBits { byte, got }, format!("{got:#04x}"))
    }));
    first(reasons)?;
    let reason = match wire[6] {
        1 => Reason::Unreadable,
        2 => Reason::Mismatch,
        3 => Reason::CannotConnect,
        4 => Reason::Withdrawn,
        other => Reason::Other(other),
    };
    Ok(match kind {
        1 => Step::Agreed,
        2 => Step::Ready,
        3 => Step::Leaving,
        _ => Step::Refused(Refusal { reason, errno: i32::from_be_bytes(at(wire, 8)) }),
    })
}

/// A header and the payload behind it. The first byte chooses room and checksum, the others are a frame.
pub fn header(bytes: &[u8]) {
    let Some((choice, frame)) = bytes.split_first() else { return };
    let checksum = if choice & 1 == 0 { Checksum::Off } else { Checksum::Crc32c };
    if choice & 2 == 0 {
        header_of_room::<64>(checksum, frame);
    } else {
        header_of_room::<20>(checksum, frame);
    }
}

fn header_of_room<const ROOM: usize>(checksum: Checksum, frame: &[u8]) {
    let header = Header::<ROOM> { checksum };
    if let Some(fields) = answers_as(header.decode(frame), header_by_table(ROOM, checksum, frame)) {
        let mut again = frame.to_vec();
        again[..20].fill(0xEE);
        header.encode(&mut again, fields.sequence, fields.payload_bytes);
        // The words that no sender fills in are not looked at: the grant, and the checksum where there is none.
        again[12..16].copy_from_slice(&frame[12..16]);
        if checksum == Checksum::Off {
            again[16..20].copy_from_slice(&frame[16..20]);
        }
        assert_eq!(again, frame);
    }
    // And the way there: any frame becomes a message, as long as there is room.
    if let Some(room) = frame.len().checked_sub(ROOM) {
        let (sequence, payload_bytes) = (Sequence::new(frame[0].into()), room.min(frame[1].into()) as u32);
        let mut made = frame.to_vec();
        header.encode(&mut made, sequence, payload_bytes);
        assert_eq!(header.decode(&made), Ok(HeaderFields { sequence, payload_bytes, credits: 0 }));
        assert_eq!(made[20..], frame[20..], "nothing but the header is written");
    }
}

fn header_by_table(room: usize, checksum: Checksum, frame: &[u8]) -> Result<HeaderFields, (HeaderError, String)> {
    let came = frame.len();
    let too_short = HeaderError::TooShort { got_bytes: came as u64, need_bytes: room as u32 };
    first(vec![(came < room, too_short, format!("got {came}"))])?;
    let [magic @ .., version, flags]: [u8; 4] = at(frame, 0);
    let magic_word = u16::from_be_bytes(magic);
    let word = |from| u32::from_be_bytes(at(frame, from));
    let (got_bytes, room_bytes, stated) = (word(8), (came - room) as u32, word(16));
    let disagrees = (flags == 1) != (checksum == Checksum::Crc32c);
    first(vec![
        (magic != *b"bV", HeaderError::Magic { got: magic_word }, format!("{magic_word:#06x}")),
        (version != 1, HeaderError::Version { got: version }, format!("got {version}")),
        (flags > 1, HeaderError::ReservedBits { got: flags }, format!("{flags:#04x}")),
        (disagrees, HeaderError::ChecksumDisagreement { expected: checksum }, "agreed on".to_owned()),
        (got_bytes > room_bytes, HeaderError::TooLong { got_bytes, room_bytes }, format!("says {got_bytes} bytes")),
    ])?;
    if checksum == Checksum::Crc32c {
        let got = crc32c_bit_by_bit(&frame[room..][..got_bytes as usize]);
        let corrupt = HeaderError::Corrupt { expected: stated, got };
        first(vec![(stated != got, corrupt, format!("{got:#010x}"))])?;
    }
    Ok(HeaderFields { sequence: Sequence::new(word(4)), payload_bytes: got_bytes, credits: word(12) })
}

/// CRC32C as its definition has it: the reflected polynomial, all ones before and after.
fn crc32c_bit_by_bit(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 0 { crc >> 1 } else { crc >> 1 ^ 0x82F6_3B78 };
        }
    }
    !crc
}

/// The address of others' ping-pong tools: of the bytes as many as it has, zeros after them.
pub fn tool_address(bytes: &[u8]) {
    let text: [u8; ADDRESS_BYTES] = Reader::new(bytes).array();
    let good = text.iter().enumerate().all(|(at, byte)| match at {
        4 | 11 | 18 => *byte == b':',
        51 => *byte == 0,
        _ => byte.is_ascii_hexdigit(),
    });
    match tools::parse(&text) {
        Ok(there) => {
            assert!(good, "{text:?} is no address");
            assert_eq!(tools::write(&there), text.to_ascii_lowercase()[..]);
        }
        Err(error) => assert!(!good, "{text:?}: {error}"),
    }
    let any = Reader::new(bytes).destination();
    assert_eq!(tools::parse(&tools::write(&any)).ok(), Some(any));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slow_checksum_has_the_published_check_value() {
        assert_eq!(crc32c_bit_by_bit(b"123456789"), 0xE306_9283);
    }

    #[test]
    #[should_panic(expected = "where the table says")]
    fn a_decoder_that_takes_what_the_table_refuses_is_found() {
        let wire = Reader::new(&[]).destination().encode();
        let careless = |bytes: &[u8]| Destination::decode(&bytes[..32]);
        let long = [&wire[..], &[0]].concat();
        answers_as(careless(&long), destination_by_table(&long));
    }

    #[test]
    #[should_panic(expected = "does not say 33 came")]
    fn a_refusal_that_does_not_say_the_number_is_found() {
        #[derive(Debug, PartialEq)]
        struct Vague;
        impl Display for Vague {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("wrong length")
            }
        }
        answers_as::<(), _>(Err(Vague), Err((Vague, "33 came".to_owned())));
    }

    #[test]
    #[should_panic(expected = "left == right")]
    fn a_refusal_for_another_reason_than_the_first_is_found() {
        let mut wire = Reader::new(&[]).destination().encode();
        (wire[4], wire[8]) = (9, 9);
        let got = Err(DestinationError::ReservedBits { byte: 8, got: 9 });
        answers_as(got, destination_by_table(&wire));
    }
}
