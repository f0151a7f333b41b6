//! What two hellos make together.
//!
//! The rule this file protects: **both ends come to the same answer**, from the same two hellos, before either has moved
//! its queue pair. The lower MTU wins; any other difference in what both must have alike is a [`Mismatch`].
//!
//! Not compared: where an end is, the number it starts with and the receives it keeps posted. Each end has its own, and
//! the other goes by it.

use crate::connect::config::Service;
use crate::connect::destination::Destination;
use crate::connect::hello::Hello;
use crate::link::credits::{LEAST_DEPTH, MOST_RECEIVES};
use crate::link::{CarrierKind, Checksum, CreditMode, Sequence};
use crate::verbs::port::{LinkLayer, Mtu};

/// What both ends go by, as one of them sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Agreement {
    /// Where the other end is.
    pub remote: Destination,
    /// The lower of both path MTUs.
    pub path_mtu: Mtu,
    /// The number of our first message.
    pub tx_start: Sequence,
    /// The number of the other end's first message.
    pub rx_start: Sequence,
    /// Whether the link carries credits.
    pub credits: CreditMode,
    /// Reads and atomics that may be under way: the lower of both ends' numbers.
    pub max_rd_atomic: u8,
    /// Receives that the other end keeps posted; at least 1.
    pub remote_recv_depth: u32,
}

/// What two ends have differently and must have alike. `ours` is the value of the end that says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum Mismatch {
    /// What came is what we sent: something echoes.
    OwnHello,
    /// Callers gave different nonces: these two were not to meet.
    Nonce {
        /// This end's.
        ours: u64,
        /// The other end's.
        theirs: u64,
    },
    /// Services differ.
    Service {
        /// This end's.
        ours: Service,
        /// The other end's.
        theirs: Service,
    },
    /// Link layers differ.
    LinkLayer {
        /// This end's.
        ours: LinkLayer,
        /// The other end's.
        theirs: LinkLayer,
    },
    /// Frame sizes differ, bytes.
    FrameBytes {
        /// This end's.
        ours: u32,
        /// The other end's.
        theirs: u32,
    },
    /// Carriers differ.
    Carrier {
        /// This end's.
        ours: CarrierKind,
        /// The other end's.
        theirs: CarrierKind,
    },
    /// The carrier's rooms at a frame's start differ, bytes.
    HeaderRoom {
        /// This end's.
        ours: u16,
        /// The other end's.
        theirs: u16,
    },
    /// One end checks payloads and the other does not.
    Checksum {
        /// This end's.
        ours: Checksum,
        /// The other end's.
        theirs: Checksum,
    },
    /// One end goes by credits and the other does not.
    Credits {
        /// This end's.
        ours: CreditMode,
        /// The other end's.
        theirs: CreditMode,
    },
    /// An end keeps no receive posted: nothing could ever be sent to it.
    NoReceives {
        /// This end's receives.
        ours: u32,
        /// The other end's receives.
        theirs: u32,
    },
    /// With credits, the receives of an end are fewer or more than a link with credits can have.
    CreditReceives {
        /// This end's receives.
        ours: u32,
        /// The other end's receives.
        theirs: u32,
    },
}

impl core::fmt::Display for Mismatch {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::OwnHello => f.write_str("our own hello came back: something echoes what it is sent"),
            Self::Nonce { ours, theirs } => {
                write!(f, "nonce {ours:#x} here and {theirs:#x} there: these two were not to meet")
            }
            Self::Service { ours, theirs } => write!(f, "service {ours:?} here and {theirs:?} there"),
            Self::LinkLayer { ours, theirs } => write!(f, "link layer {ours:?} here and {theirs:?} there"),
            Self::FrameBytes { ours, theirs } => write!(f, "frames of {ours} bytes here and of {theirs} there"),
            Self::Carrier { ours, theirs } => write!(f, "carrier {ours:?} here and {theirs:?} there"),
            Self::HeaderRoom { ours, theirs } => {
                write!(f, "{ours} bytes of header room here and {theirs} there")
            }
            Self::Checksum { ours, theirs } => write!(f, "checksum {ours:?} here and {theirs:?} there"),
            Self::Credits { ours, theirs } => write!(f, "credits {ours:?} here and {theirs:?} there"),
            Self::NoReceives { ours, theirs } => {
                write!(f, "{ours} receives posted here and {theirs} there: each end needs one at least")
            }
            Self::CreditReceives { ours, theirs } => write!(
                f,
                "{ours} receives posted here and {theirs} there: with credits each end needs {LEAST_DEPTH} to {MOST_RECEIVES}"
            ),
        }
    }
}

impl core::error::Error for Mismatch {}

/// What this end goes by, given both hellos.
///
/// # Errors
/// [`Mismatch`] of the first difference in the order of its variants. The other end, which has the same two hellos, finds
/// the same one with the values exchanged.
pub fn agree(ours: &Hello, theirs: &Hello) -> Result<Agreement, Mismatch> {
    if ours == theirs {
        return Err(Mismatch::OwnHello);
    }
    macro_rules! alike {
        ($($field:ident => $variant:ident;)*) => { $(
            if ours.$field != theirs.$field {
                return Err(Mismatch::$variant { ours: ours.$field, theirs: theirs.$field });
            }
        )* };
    }
    alike! {
        nonce => Nonce;
        service => Service;
        link_layer => LinkLayer;
        frame_bytes => FrameBytes;
        carrier => Carrier;
        header_room_bytes => HeaderRoom;
        checksum => Checksum;
        credits => Credits;
    }
    if ours.recv_depth == 0 || theirs.recv_depth == 0 {
        return Err(Mismatch::NoReceives { ours: ours.recv_depth, theirs: theirs.recv_depth });
    }
    let makes_credits = |receives: u32| (LEAST_DEPTH..=MOST_RECEIVES).contains(&receives);
    if ours.credits == CreditMode::On && !(makes_credits(ours.recv_depth) && makes_credits(theirs.recv_depth)) {
        return Err(Mismatch::CreditReceives { ours: ours.recv_depth, theirs: theirs.recv_depth });
    }
    Ok(Agreement {
        remote: theirs.destination,
        path_mtu: ours.path_mtu.min(theirs.path_mtu),
        tx_start: ours.first_sequence,
        rx_start: theirs.first_sequence,
        credits: ours.credits,
        max_rd_atomic: if ours.max_rd_atomic < theirs.max_rd_atomic {
            ours.max_rd_atomic
        } else {
            theirs.max_rd_atomic
        },
        remote_recv_depth: theirs.recv_depth,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::connect::hello::tests::{any_hello, example};

    fn other_end() -> Hello {
        let destination = Destination { qp_num: 99, ..example().destination };
        Hello { destination, first_sequence: Sequence::new(5), recv_depth: 7, ..example() }
    }

    /// As the other end says it.
    fn mirrored(mismatch: Mismatch) -> Mismatch {
        macro_rules! swap {
            ($($variant:ident)*) => {
                match mismatch {
                    Mismatch::OwnHello => Mismatch::OwnHello,
                    $(Mismatch::$variant { ours, theirs } => Mismatch::$variant { ours: theirs, theirs: ours },)*
                }
            };
        }
        swap!(Nonce Service LinkLayer FrameBytes Carrier HeaderRoom Checksum Credits NoReceives CreditReceives)
    }

    #[test]
    fn ends_that_agree_see_each_other() {
        let (ours, theirs) = (example(), other_end());
        let here = agree(&ours, &theirs).expect("alike");
        assert_eq!(
            (here.remote, here.tx_start, here.rx_start),
            (theirs.destination, ours.first_sequence, Sequence::new(5))
        );
        assert_eq!((here.remote_recv_depth, here.credits), (7, CreditMode::On));
        let there = agree(&theirs, &ours).expect("alike");
        assert_eq!((there.remote, there.tx_start, there.rx_start), (ours.destination, here.rx_start, here.tx_start));
        assert_eq!(there.remote_recv_depth, 32);
    }

    #[test]
    fn one_receive_is_enough_where_there_are_no_credits_and_two_where_there_are() {
        for (credits, receives) in
            [(CreditMode::Off, 1), (CreditMode::Off, u32::MAX), (CreditMode::On, 2), (CreditMode::On, MOST_RECEIVES)]
        {
            let at = |end| Hello { credits, recv_depth: receives, ..end };
            let agreed = agree(&at(example()), &at(other_end())).expect("enough, and not too many");
            assert_eq!((agreed.credits, agreed.remote_recv_depth), (credits, receives));
        }
    }

    #[test]
    fn the_lower_mtu_wins_whichever_end_has_it() {
        for ours in 1..=5 {
            for theirs in 1..=5 {
                let (a, b) =
                    (Hello { path_mtu: Mtu(ours), ..example() }, Hello { path_mtu: Mtu(theirs), ..other_end() });
                let lower = Mtu(ours.min(theirs));
                assert_eq!(agree(&a, &b).expect("alike").path_mtu, lower);
                assert_eq!(agree(&b, &a).expect("alike").path_mtu, lower);
            }
        }
    }

    #[test]
    fn each_difference_is_told_with_both_values() {
        let ours = example();
        let at = other_end();
        let cases = [
            (Hello { nonce: 1, ..at }, Mismatch::Nonce { ours: ours.nonce, theirs: 1 }),
            (Hello { service: Service::Uc, ..at }, Mismatch::Service { ours: Service::Rc, theirs: Service::Uc }),
            (
                Hello { link_layer: LinkLayer(2), ..at },
                Mismatch::LinkLayer { ours: LinkLayer::THUNDERBOLT, theirs: LinkLayer::ETHERNET },
            ),
            (Hello { frame_bytes: 64, ..at }, Mismatch::FrameBytes { ours: 0x0102_0304, theirs: 64 }),
            (
                Hello { carrier: CarrierKind::Raw, ..at },
                Mismatch::Carrier { ours: CarrierKind::Header, theirs: CarrierKind::Raw },
            ),
            (Hello { header_room_bytes: 20, ..at }, Mismatch::HeaderRoom { ours: 64, theirs: 20 }),
            (
                Hello { checksum: Checksum::Off, ..at },
                Mismatch::Checksum { ours: Checksum::Crc32c, theirs: Checksum::Off },
            ),
            (
                Hello { credits: CreditMode::Off, ..at },
                Mismatch::Credits { ours: CreditMode::On, theirs: CreditMode::Off },
            ),
            (Hello { recv_depth: 0, ..at }, Mismatch::NoReceives { ours: 32, theirs: 0 }),
            (Hello { recv_depth: 1, ..at }, Mismatch::CreditReceives { ours: 32, theirs: 1 }),
            (
                Hello { recv_depth: MOST_RECEIVES + 1, ..at },
                Mismatch::CreditReceives { ours: 32, theirs: MOST_RECEIVES + 1 },
            ),
            (ours, Mismatch::OwnHello),
        ];
        for (theirs, mismatch) in cases {
            assert_eq!(agree(&ours, &theirs), Err(mismatch));
            assert_eq!(agree(&theirs, &ours), Err(mirrored(mismatch)));
            assert!(!std::format!("{mismatch}").is_empty());
        }
    }

    /// The same two hellos, but for a few fields: most pairs at random would differ in the nonce.
    fn near_pair() -> impl Strategy<Value = (Hello, Hello)> {
        (any_hello(), any_hello(), any::<u16>()).prop_map(|(ours, other, same)| {
            let keep = |bit: u32| same & (1 << bit) != 0;
            let mut theirs = other;
            macro_rules! keep_fields {
                ($($bit:literal $field:ident)*) => { $( if keep($bit) { theirs.$field = ours.$field; } )* };
            }
            theirs.nonce = ours.nonce;
            keep_fields!(0 service 1 link_layer 2 frame_bytes 3 carrier 4 header_room_bytes 5 checksum 6 credits);
            keep_fields!(7 recv_depth 8 path_mtu 9 destination 10 first_sequence);
            (ours, theirs)
        })
    }

    proptest! {
        #[test]
        fn both_ends_come_to_the_same_answer((ours, theirs) in near_pair()) {
            match (agree(&ours, &theirs), agree(&theirs, &ours)) {
                (Ok(here), Ok(there)) => {
                    prop_assert_eq!(here.path_mtu, there.path_mtu);
                    prop_assert_eq!(here.credits, there.credits);
                    prop_assert_eq!(here.max_rd_atomic, there.max_rd_atomic);
                    prop_assert_eq!(here.max_rd_atomic, ours.max_rd_atomic.min(theirs.max_rd_atomic));
                    prop_assert_eq!((here.tx_start, here.rx_start), (there.rx_start, there.tx_start));
                    prop_assert_eq!((here.remote, there.remote), (theirs.destination, ours.destination));
                }
                (Err(here), Err(there)) => prop_assert_eq!(here, mirrored(there)),
                (here, there) => prop_assert!(false, "{here:?} here, {there:?} there"),
            }
        }

        #[test]
        fn what_differs_is_never_agreed_to((ours, theirs) in near_pair()) {
            if agree(&ours, &theirs).is_ok() {
                let own = Hello {
                    destination: theirs.destination,
                    path_mtu: theirs.path_mtu,
                    first_sequence: theirs.first_sequence,
                    recv_depth: theirs.recv_depth,
                    max_rd_atomic: theirs.max_rd_atomic,
                    ..ours
                };
                prop_assert_eq!(own, theirs);
            }
        }
    }
}
