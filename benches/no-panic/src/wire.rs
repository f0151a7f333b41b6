//! Decoders: whatever bytes come.

use bareverbs_core::connect::{Destination, DestinationError};
use bareverbs_core::link::{
    Header, HeaderError, HeaderFields, Immediate, ReadError, Sequence, SequenceChecker, Verdict,
};
use bareverbs_core::verbs::Wc;

use crate::exported;

exported! {
    fn proof_header_decode(header: &Header, bytes: &&[u8]) -> Result<HeaderFields, HeaderError> {
        header.decode(bytes)
    }

    fn proof_header_encode(header: &Header, frame: &mut &mut [u8], number: u32, payload_bytes: u32) -> () {
        header.encode(frame, Sequence::new(number), payload_bytes);
    }

    fn proof_destination_decode(bytes: &&[u8]) -> Result<Destination, DestinationError> {
        Destination::decode(bytes)
    }

    fn proof_destination_encode(destination: &Destination) -> [u8; 32] {
        destination.encode()
    }

    fn proof_immediate_read(entry: &Wc) -> Result<Sequence, ReadError> {
        Immediate::read(entry)
    }

    fn proof_sequence_check(checker: &mut SequenceChecker, number: u32) -> Verdict {
        checker.check(Sequence::new(number))
    }
}
