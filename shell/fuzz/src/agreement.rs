//! What two hellos make together, beside a list of what both must have alike.

use bareverbs_core::connect::{Agreement, CreditMode, Hello, Mismatch, agree};

use crate::reader::Reader;

/// Both ends of any two hellos come to the answer that the list gives, and so to the same one.
///
/// Bytes: a hello, 16 bits of which fields the other end has alike, the other end's hello.
pub fn agreement(bytes: &[u8]) {
    let mut reader = Reader::new(bytes);
    let ours = reader.hello();
    let alike = reader.u16();
    let mut theirs = reader.hello();
    let mut bit = 0;
    macro_rules! alike {
        ($($field:ident)*) => { $( if alike >> bit & 1 != 0 { theirs.$field = ours.$field; } bit += 1; )* };
    }
    alike! {
        nonce service link_layer frame_bytes carrier header_room_bytes checksum credits recv_depth path_mtu destination
        first_sequence
    }
    debug_assert_eq!(bit, 12);
    // What it goes with may have been changed.
    if !(theirs.service == bareverbs_core::connect::Service::Rc && theirs.frame_bytes == 0) {
        theirs.max_rd_atomic = 0;
    }
    let (here, there) = (agree(&ours, &theirs), agree(&theirs, &ours));
    assert_eq!(here, expected(&ours, &theirs));
    assert_eq!(there, expected(&theirs, &ours));
    match (here, there) {
        (Ok(here), Ok(there)) => {
            assert_eq!((here.path_mtu, here.credits), (there.path_mtu, there.credits));
            assert_eq!((here.tx_start, here.rx_start), (there.rx_start, there.tx_start));
        }
        (Err(here), Err(there)) => assert_eq!(std::mem::discriminant(&here), std::mem::discriminant(&there)),
        (here, there) => panic!("{here:?} here, {there:?} there"),
    }
}

/// The first in the list whose values differ.
fn expected(ours: &Hello, theirs: &Hello) -> Result<Agreement, Mismatch> {
    let mut reasons = vec![(ours == theirs, Mismatch::OwnHello)];
    macro_rules! must_be_alike {
        ($($field:ident $variant:ident)*) => { $(
            let why = Mismatch::$variant { ours: ours.$field, theirs: theirs.$field };
            reasons.push((ours.$field != theirs.$field, why));
        )* };
    }
    must_be_alike! {
        nonce Nonce service Service link_layer LinkLayer frame_bytes FrameBytes carrier Carrier
        header_room_bytes HeaderRoom checksum Checksum credits Credits
    }
    let none = Mismatch::NoReceives { ours: ours.recv_depth, theirs: theirs.recv_depth };
    reasons.push((ours.recv_depth.min(theirs.recv_depth) == 0, none));
    // One receive for messages and one for credit messages; sums with numbers stay within half of their range.
    let no_credits = Mismatch::CreditReceives { ours: ours.recv_depth, theirs: theirs.recv_depth };
    let cannot = |receives: u32| !(2..=1 << 30).contains(&receives);
    let lacking = cannot(ours.recv_depth) || cannot(theirs.recv_depth);
    reasons.push((ours.credits == CreditMode::On && lacking, no_credits));
    match reasons.into_iter().find(|(differs, _)| *differs) {
        Some((_, why)) => Err(why),
        None => Ok(Agreement {
            remote: theirs.destination,
            path_mtu: if ours.path_mtu.0 < theirs.path_mtu.0 { ours.path_mtu } else { theirs.path_mtu },
            tx_start: ours.first_sequence,
            rx_start: theirs.first_sequence,
            credits: ours.credits,
            max_rd_atomic: ours.max_rd_atomic.min(theirs.max_rd_atomic),
            remote_recv_depth: theirs.recv_depth,
        }),
    }
}
