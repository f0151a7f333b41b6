//! What can happen: the steps of a life, and how they are drawn.

use proptest::prelude::*;

use super::scanner::Manner;

/// On what a life runs.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// A provider that sums lengths in 32 bits.
    pub old_provider: bool,
    /// Requests do not ask whether the memory is the same; the allocator says what it frees.
    pub trust: bool,
    /// Entries of a key at most.
    pub cap: u16,
    /// Units of 2 MiB of a region at most.
    pub chunk_units: u16,
    /// Whether the second GPU's memory is served.
    pub serves_both: bool,
    /// Whether the scanner is an allocator's snapshot at first, and not a walk.
    pub snapshot: bool,
    /// The seed of a fabric that does what is legal.
    pub adversary: Option<u64>,
}

/// Which bytes are asked for.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Among the edges that there are.
    pub edge: u16,
    /// From there.
    pub delta: i32,
    pub size: Size,
}

#[derive(Clone, Copy, Debug)]
pub enum Size {
    Bytes(u32),
    Units(u8),
    /// Up to the next edge but so many.
    Edges(u8),
    /// Beyond the end of the address space.
    TooMany,
}

/// What goes wrong meanwhile.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// A call of the library, by its place in the machine's list.
    Fabric { which: u8, nth: u8 },
    /// A call of the driver, and all after it where told so.
    Cuda { which: u8, answer: u8, nth: u8, for_good: bool },
    /// The next binding.
    Binding(u8),
}

#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// Maps memory somewhere.
    Map {
        reservation: u8,
        unit: u8,
        units: u8,
    },
    /// Maps memory behind the last mapping.
    Grow {
        reservation: u8,
        units: u8,
    },
    /// Unmaps the last mapping.
    Shrink {
        reservation: u8,
    },
    /// Unmaps any mapping.
    Hole {
        pick: u16,
    },
    /// Unmaps all.
    FreeAll {
        reservation: u8,
    },
    /// Maps other memory in the place of a mapping, cut in two where told so.
    Swap {
        pick: u16,
        cut: bool,
    },
    /// Allocates memory that is no segment's.
    Allocate {
        kind: u8,
        ordinal: u8,
        kib: u16,
    },
    /// Frees some.
    Free {
        pick: u16,
    },
    /// Has the application write some.
    Write {
        place: Place,
    },
    /// Asks for a view, by parts where told so, and keeps it where told so.
    Ask {
        place: Place,
        parts: bool,
        keep: bool,
        manner: Manner,
        fault: Option<Fault>,
    },
    /// Asks for a whole segment.
    AskWhole {
        pick: u16,
        parts: bool,
        keep: bool,
    },
    /// Says that memory was freed.
    Invalidate {
        place: Place,
    },
    Prune {
        manner: Manner,
        fault: Option<Fault>,
    },
    /// Has a peer read and write by a view.
    Prove {
        pick: u16,
    },
    Drop {
        pick: u16,
    },
    Clone {
        pick: u16,
    },
    /// The scanner is a snapshot from now on, or a walk.
    Scanner {
        snapshot: bool,
    },
}

pub fn setups() -> impl Strategy<Value = Setup> {
    let caps = prop_oneof![Just(1_u16), Just(2), Just(3), 4_u16..12, 12_u16..16, Just(30)];
    let chunks = prop_oneof![Just(1_u16), Just(2), Just(3), Just(2047)];
    let adversary = prop_oneof![4 => Just(None), 1 => any::<u64>().prop_map(Some)];
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    (flags, caps, chunks, adversary).prop_map(|(flags, cap, chunk_units, adversary)| {
        let (old_provider, trust, serves_both, snapshot) = flags;
        Setup { old_provider, trust, cap, chunk_units, serves_both, snapshot, adversary }
    })
}

fn places() -> impl Strategy<Value = Place> {
    let deltas = prop_oneof![4 => Just(0), 4 => -200_i32..200, 2 => -8192_i32..8192, 1 => -3_000_000_i32..3_000_000,
        2 => (-4_i32..4).prop_map(|pages| pages * 4096)];
    let sizes = prop_oneof![
        1 => Just(Size::Bytes(0)),
        6 => (1_u32..9000).prop_map(Size::Bytes),
        2 => (1_u32..5).prop_map(|pages| Size::Bytes(pages * 4096)),
        4 => (1_u8..7).prop_map(Size::Units),
        4 => (1_u8..5).prop_map(Size::Edges),
        1 => Just(Size::TooMany),
    ];
    (any::<u16>(), deltas, sizes).prop_map(|(edge, delta, size)| Place { edge, delta, size })
}

fn faults() -> impl Strategy<Value = Fault> {
    prop_oneof![
        3 => (any::<u8>(), 1_u8..4).prop_map(|(which, nth)| Fault::Fabric { which, nth }),
        3 => (any::<u8>(), any::<u8>(), 1_u8..24, any::<bool>())
            .prop_map(|(which, answer, nth, for_good)| Fault::Cuda { which, answer, nth, for_good }),
        1 => any::<u8>().prop_map(Fault::Binding),
    ]
}

fn manners() -> impl Strategy<Value = Manner> {
    prop_oneof![
        16 => Just(Manner::Well),
        1 => Just(Manner::Fails),
        1 => Just(Manner::Panics),
        1 => Just(Manner::Boasts),
        1 => Just(Manner::Hides),
        1 => Just(Manner::Late),
        1 => Just(Manner::ShowsTwice),
    ]
}

fn some_faults() -> impl Strategy<Value = Option<Fault>> {
    prop_oneof![5 => Just(None), 1 => faults().prop_map(Some)]
}

fn allocator_steps() -> impl Strategy<Value = Step> {
    let reservation = || 0_u8..3;
    prop_oneof![
        4 => (reservation(), 0_u8..14, 1_u8..4).prop_map(|(reservation, unit, units)| Step::Map { reservation, unit, units }),
        12 => (reservation(), 1_u8..4).prop_map(|(reservation, units)| Step::Grow { reservation, units }),
        3 => reservation().prop_map(|reservation| Step::Shrink { reservation }),
        3 => any::<u16>().prop_map(|pick| Step::Hole { pick }),
        1 => reservation().prop_map(|reservation| Step::FreeAll { reservation }),
        4 => (any::<u16>(), any::<bool>()).prop_map(|(pick, cut)| Step::Swap { pick, cut }),
        2 => (0_u8..4, 0_u8..2, 1_u16..5000).prop_map(|(kind, ordinal, kib)| Step::Allocate { kind, ordinal, kib }),
        1 => any::<u16>().prop_map(|pick| Step::Free { pick }),
        2 => places().prop_map(|place| Step::Write { place }),
    ]
}

fn request_steps() -> impl Strategy<Value = Step> {
    let ask = (places(), any::<bool>(), any::<bool>(), manners(), some_faults());
    prop_oneof![
        12 => ask.prop_map(|(place, parts, keep, manner, fault)| Step::Ask { place, parts, keep, manner, fault }),
        12 => (any::<u16>(), any::<bool>(), any::<bool>())
            .prop_map(|(pick, parts, keep)| Step::AskWhole { pick, parts, keep }),
        1 => places().prop_map(|place| Step::Invalidate { place }),
        2 => (manners(), some_faults()).prop_map(|(manner, fault)| Step::Prune { manner, fault }),
        4 => any::<u16>().prop_map(|pick| Step::Prove { pick }),
        3 => any::<u16>().prop_map(|pick| Step::Drop { pick }),
        1 => any::<u16>().prop_map(|pick| Step::Clone { pick }),
        1 => any::<bool>().prop_map(|snapshot| Step::Scanner { snapshot }),
    ]
}

pub fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![2 => allocator_steps(), 3 => request_steps()];
    // Memory first: there is little to see without.
    let first = [(0, 0, 2), (0, 2, 1), (2, 3, 2)];
    let first = first.map(|(reservation, unit, units)| Step::Map { reservation, unit, units });
    proptest::collection::vec(step, 20..60).prop_map(move |mut steps| {
        steps.splice(0..0, first);
        steps
    })
}
