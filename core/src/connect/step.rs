//! What ends tell each other after their hellos: agreed, ready, leaving; or why not.
//!
//! | bytes | what |
//! |---|---|
//! | 0-3 | magic `BVst` |
//! | 4 | version, 1 |
//! | 5 | 1 agreed, 2 ready, 3 leaving, 4 refused |
//! | 6 | of a refusal: the reason, 1 unreadable, 2 mismatch, 3 cannot connect, 4 withdrawn, others kept; else 0 |
//! | 7 | reserved, 0 |
//! | 8-11 | of a refusal: an error's number on the refusing system, 0 where there is none; else 0 |
//!
//! Integers are big-endian.

/// Length of a step's wire form, in bytes.
pub const STEP_BYTES: usize = 12;
const MAGIC: [u8; 4] = *b"BVst";
const VERSION: u8 = 1;

/// How far an end has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Step {
    /// It has read the other's hello and agrees; nothing has moved yet.
    Agreed,
    /// It has receives posted and can send.
    Ready,
    /// It has all that it waited for: the other end may go.
    Leaving,
    /// It goes no further.
    Refused(Refusal),
}

/// Why an end goes no further, as it tells the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Refusal {
    /// Why.
    pub reason: Reason,
    /// The error's number, as the refusing end's system counts; 0 where there is none.
    pub errno: i32,
}

/// Why an end goes no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum Reason {
    /// It could not read our hello, or what came after it.
    Unreadable,
    /// The hellos do not match.
    Mismatch,
    /// It could not connect its queue pair.
    CannotConnect,
    /// Its caller gave up.
    Withdrawn,
    /// A reason that this version does not know.
    Other(u8),
}

impl core::fmt::Display for Refusal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.reason {
            Reason::Unreadable => f.write_str("it could not read what we sent")?,
            Reason::Mismatch => f.write_str("what we have does not match what it has")?,
            Reason::CannotConnect => f.write_str("it could not connect its queue pair")?,
            Reason::Withdrawn => f.write_str("its caller gave up")?,
            Reason::Other(code) => write!(f, "reason {code}, which this version does not know")?,
        }
        match self.errno {
            0 => Ok(()),
            errno => write!(f, " (error number {errno} there)"),
        }
    }
}

/// Why bytes are not a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum StepError {
    /// Not our magic.
    Magic {
        /// What came.
        got: [u8; 4],
    },
    /// A version that this library does not speak.
    Version {
        /// What came; 1 is expected.
        got: u8,
    },
    /// No step has this number.
    Kind {
        /// What came.
        got: u8,
    },
    /// A byte that must be 0 is not.
    ReservedBits {
        /// Index of the byte.
        byte: usize,
        /// What it holds.
        got: u8,
    },
}

impl core::fmt::Display for StepError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Magic { got } => write!(f, "a step starts with {MAGIC:02x?}, {got:02x?} came"),
            Self::Version { got } => write!(f, "step version {VERSION} is spoken here, {got} came"),
            Self::Kind { got } => write!(f, "no step has number {got}: 1 to 4 are known"),
            Self::ReservedBits { byte, got } => write!(f, "byte {byte} of a step must be 0, {got:#04x} came"),
        }
    }
}

impl core::error::Error for StepError {}

impl Step {
    /// The wire form.
    pub fn encode(self) -> [u8; STEP_BYTES] {
        let (kind, reason, errno) = match self {
            Self::Agreed => (1, 0, 0),
            Self::Ready => (2, 0, 0),
            Self::Leaving => (3, 0, 0),
            Self::Refused(Refusal { reason, errno }) => (4, reason.code(), errno),
        };
        let [m0, m1, m2, m3] = MAGIC;
        let [e0, e1, e2, e3] = errno.to_be_bytes();
        [m0, m1, m2, m3, VERSION, kind, reason, 0, e0, e1, e2, e3]
    }

    /// Reads the wire form. Total: any bytes give an answer.
    ///
    /// # Errors
    /// [`StepError`] says what is wrong first, from the front.
    pub fn decode(wire: &[u8; STEP_BYTES]) -> Result<Self, StepError> {
        let [m0, m1, m2, m3, version, kind, reason, reserved, errno @ ..] = *wire;
        let magic = [m0, m1, m2, m3];
        if magic != MAGIC {
            return Err(StepError::Magic { got: magic });
        }
        if version != VERSION {
            return Err(StepError::Version { got: version });
        }
        let zero = |byte: usize, got: u8| if got == 0 { Ok(()) } else { Err(StepError::ReservedBits { byte, got }) };
        let step = match kind {
            1 => Self::Agreed,
            2 => Self::Ready,
            3 => Self::Leaving,
            4 => {
                zero(7, reserved)?;
                let errno = i32::from_be_bytes(errno);
                return Ok(Self::Refused(Refusal { reason: Reason::of(reason), errno }));
            }
            got => return Err(StepError::Kind { got }),
        };
        for (byte, got) in [(6, reason), (7, reserved)].into_iter().chain((8..).zip(errno)) {
            zero(byte, got)?;
        }
        Ok(step)
    }
}

impl Reason {
    const fn code(self) -> u8 {
        match self {
            Self::Unreadable => 1,
            Self::Mismatch => 2,
            Self::CannotConnect => 3,
            Self::Withdrawn => 4,
            Self::Other(code) => code,
        }
    }

    const fn of(code: u8) -> Self {
        match code {
            1 => Self::Unreadable,
            2 => Self::Mismatch,
            3 => Self::CannotConnect,
            4 => Self::Withdrawn,
            code => Self::Other(code),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all() -> std::vec::Vec<Step> {
        let refused = (0..=u8::MAX).map(|code| Step::Refused(Refusal { reason: Reason::of(code), errno: -5 }));
        [Step::Agreed, Step::Ready, Step::Leaving].into_iter().chain(refused).collect()
    }

    #[test]
    fn every_step_survives_the_wire() {
        for step in all() {
            assert_eq!(Step::decode(&step.encode()), Ok(step));
        }
        let refused = Step::Refused(Refusal { reason: Reason::CannotConnect, errno: 110 });
        assert_eq!(refused.encode(), *b"BVst\x01\x04\x03\x00\x00\x00\x00\x6e");
    }

    #[test]
    fn every_flipped_bit_is_refused_or_read_as_another_step() {
        for step in all() {
            for bit in 0..STEP_BYTES * 8 {
                let mut wire = step.encode();
                wire[bit / 8] ^= 1 << (bit % 8);
                match Step::decode(&wire) {
                    Ok(read) => {
                        assert_ne!(read, step);
                        assert_eq!(read.encode(), wire);
                    }
                    Err(error) => assert!(match bit / 8 {
                        0..4 => matches!(error, StepError::Magic { .. }),
                        4 => matches!(error, StepError::Version { .. }),
                        5 => matches!(error, StepError::Kind { .. } | StepError::ReservedBits { .. }),
                        byte => matches!(error, StepError::ReservedBits { byte: at, .. } if at == byte),
                    }),
                }
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_encode_back_to_themselves(wire: [u8; STEP_BYTES], ours: bool) {
            let mut wire = wire;
            if ours {
                wire[..5].copy_from_slice(b"BVst\x01");
                wire[5] %= 6;
            }
            if let Ok(step) = Step::decode(&wire) {
                prop_assert_eq!(step.encode(), wire);
            }
        }
    }
}
