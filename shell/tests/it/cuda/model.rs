//! Any history of allocations, pools, mappings and contexts: each query answers as a list of blocks says.

use std::collections::BTreeSet;

use bareverbs_core::cuda::CuResult;
use bareverbs_core::range::AddressRange;
use bareverbs_core::segments::Ordinal;
use bareverbs_shell::cuda::{CudaError, Edge};
use bareverbs_shell::memory::Location;
use proptest::prelude::*;

use super::{MIB, World, gpus, range, world};

const GRANULE: u64 = 2 * MIB;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Plain { context: Option<usize> },
    Pool,
    Growing { reservation: u64 },
    Managed,
    Pinned,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    base: u64,
    len: u64,
    ordinal: u32,
    kind: Kind,
    id: u64,
}

impl Block {
    fn range(&self) -> AddressRange {
        range(self.base, self.len)
    }

    fn end(&self) -> u64 {
        self.base + self.len
    }

    fn is_device(&self) -> bool {
        !matches!(self.kind, Kind::Managed | Kind::Pinned)
    }

    fn grows(&self) -> bool {
        matches!(self.kind, Kind::Growing { .. })
    }
}

/// What an application does. Numbers choose among what there is.
#[derive(Clone, Copy, Debug)]
enum Action {
    Allocate(u32, u64),
    AllocateBeside(usize, u64),
    AllocateInContext(u32, u64),
    AllocateFromPool(u32, u64),
    AllocateManaged(u64),
    AllocatePinned(u64),
    Reserve(u32, u64),
    Map(usize, u64, u64),
    Free(usize),
    DestroyContext(usize),
}

fn actions() -> impl Strategy<Value = Action> {
    use Action::*;
    let ordinal = || 0..2_u32;
    let size = || prop_oneof![Just(15), Just(100), Just(4096), Just(GRANULE), Just(2 * GRANULE), 1..3 * GRANULE];
    let which = || 0..64_usize;
    prop_oneof![
        2 => (ordinal(), size()).prop_map(|(ordinal, len)| Allocate(ordinal, len)),
        3 => (which(), size()).prop_map(|(beside, len)| AllocateBeside(beside, len)),
        1 => (ordinal(), size()).prop_map(|(ordinal, len)| AllocateInContext(ordinal, len)),
        2 => (ordinal(), size()).prop_map(|(ordinal, len)| AllocateFromPool(ordinal, len)),
        1 => size().prop_map(AllocateManaged),
        1 => size().prop_map(AllocatePinned),
        3 => (ordinal(), 1..9_u64).prop_map(|(ordinal, granules)| Reserve(ordinal, granules)),
        12 => (which(), 0..8_u64, 1..4_u64).prop_map(|(of, at, granules)| Map(of, at, granules)),
        4 => which().prop_map(Free),
        1 => which().prop_map(DestroyContext),
    ]
}

struct Model {
    world: World,
    blocks: Vec<Block>,
    /// Start, ordinal, length.
    reservations: Vec<(u64, u32, u64)>,
    contexts: Vec<usize>,
    ids: BTreeSet<u64>,
}

impl Model {
    fn new() -> Self {
        let (blocks, reservations, contexts, ids) = <_>::default();
        Self { world: world(gpus(2)), blocks, reservations, contexts, ids }
    }

    fn add(&mut self, base: u64, len: u64, ordinal: u32, kind: Kind) {
        let id = self.world.cuda.buffer_id(base).expect("it can be asked").expect("just mapped");
        assert!(self.ids.insert(id), "no id is used twice");
        self.blocks.push(Block { base, len, ordinal, kind, id });
    }

    fn is_free(&self, base: u64, len: u64) -> bool {
        self.blocks.iter().all(|block| !block.range().overlaps(range(base, len)))
    }

    fn act(&mut self, action: Action) {
        let soft = self.world.soft.clone();
        match action {
            Action::Allocate(ordinal, len) => {
                let base = soft.allocate(ordinal as i32, len);
                self.add(base, len, ordinal, Kind::Plain { context: None });
            }
            Action::AllocateBeside(beside, len) => {
                let Some(beside) = self.pick(beside).filter(Block::is_device) else { return };
                if self.is_free(beside.end(), len) {
                    soft.allocate_at(beside.ordinal as i32, beside.end(), len);
                    self.add(beside.end(), len, beside.ordinal, Kind::Plain { context: None });
                }
            }
            Action::AllocateInContext(ordinal, len) => {
                let context = soft.create_context(ordinal as i32);
                self.contexts.push(context);
                self.add(soft.allocate_in(context, len), len, ordinal, Kind::Plain { context: Some(context) });
            }
            Action::AllocateFromPool(ordinal, len) => {
                self.add(soft.allocate_from_pool(ordinal as i32, len), len, ordinal, Kind::Pool);
            }
            Action::AllocateManaged(len) => self.add(soft.allocate_managed(0, len), len, 0, Kind::Managed),
            Action::AllocatePinned(len) => self.add(soft.allocate_pinned(0, len), len, 0, Kind::Pinned),
            Action::Reserve(ordinal, granules) => {
                let base = soft.reserve(ordinal as i32, granules * GRANULE);
                self.reservations.push((base, ordinal, granules * GRANULE));
            }
            Action::Map(of, at, granules) => {
                let Some(of) = of.checked_rem(self.reservations.len()) else { return };
                let (reservation, ordinal, reserved) = self.reservations[of];
                let (at, len) = (at * GRANULE, granules * GRANULE);
                if at + len <= reserved && self.is_free(reservation + at, len) {
                    soft.map(reservation + at, len);
                    self.add(reservation + at, len, ordinal, Kind::Growing { reservation });
                }
            }
            Action::Free(which) => {
                let Some(block) = self.pick(which) else { return };
                self.blocks.retain(|other| other.base != block.base);
                if block.grows() { soft.unmap(block.base) } else { soft.free(block.base) }
            }
            Action::DestroyContext(which) => {
                let Some(which) = which.checked_rem(self.contexts.len()) else { return };
                let context = self.contexts.swap_remove(which);
                soft.destroy_context(context);
                self.blocks.retain(|block| block.kind != Kind::Plain { context: Some(context) });
            }
        }
    }

    fn pick(&self, which: usize) -> Option<Block> {
        Some(self.blocks[which.checked_rem(self.blocks.len())?])
    }

    fn at(&self, address: u64) -> Option<&Block> {
        self.blocks.iter().find(|block| block.range().offset_of(address).is_some())
    }

    fn location(&self, address: u64) -> Location {
        match self.at(address) {
            Some(block) if block.kind == Kind::Managed => Location::Managed,
            Some(block) if block.is_device() => Location::Device { ordinal: Some(block.ordinal) },
            _ => Location::Host { numa: None },
        }
    }

    fn device_block(&self, address: u64) -> Result<&Block, CudaError> {
        match (self.location(address), self.at(address)) {
            (Location::Device { .. }, Some(block)) => Ok(block),
            (Location::Managed, _) => Err(CudaError::Managed { address }),
            _ => Err(CudaError::NotDevice { address }),
        }
    }

    /// Whether growing memory goes on with what is at an address; why not.
    fn goes_on(&self, ordinal: u32, address: u64) -> Result<&Block, Edge> {
        let block = self.at(address).ok_or(Edge::Unmapped)?;
        match block.is_device() {
            true if block.ordinal != ordinal => Err(Edge::OtherDevice),
            true if block.grows() => Ok(block),
            _ => Err(Edge::OtherKind),
        }
    }

    /// Start, length, ordinal, whether it grows, its edges.
    fn extent(&self, address: u64) -> Result<(u64, u64, Ordinal, bool, [Edge; 2]), CudaError> {
        let block = self.device_block(address)?;
        let (mut start, mut end) = (block.base, block.end());
        if !block.grows() {
            return Ok((start, block.len, Ordinal(block.ordinal), false, [Edge::Allocation; 2]));
        }
        let above = loop {
            match self.goes_on(block.ordinal, end) {
                Ok(next) => end = next.end(),
                Err(edge) => break edge,
            }
        };
        let below = loop {
            match self.goes_on(block.ordinal, start - 1) {
                Ok(next) => start = next.base,
                Err(edge) => break edge,
            }
        };
        Ok((start, end - start, Ordinal(block.ordinal), true, [below, above]))
    }

    /// The blocks that a range touches, in order, up to the first address in it that none holds, and that.
    fn touched(&self, asked: AddressRange) -> (Vec<Block>, Result<(), CudaError>) {
        let (mut at, mut touched) = (asked.base(), Vec::new());
        while asked.offset_of(at).is_some() {
            let Some(block) = self.at(at) else { return (touched, Err(CudaError::Hole { range: asked, address: at })) };
            touched.push(*block);
            at = block.end();
        }
        (touched, Ok(()))
    }

    /// What is exported, and where the range starts in it; `None` where the driver refuses.
    fn export(&self, asked: AddressRange) -> Result<Option<(AddressRange, u64)>, CudaError> {
        if asked.is_empty() {
            return Err(CudaError::Empty { address: asked.base() });
        }
        self.device_block(asked.base())?;
        let (touched, whole) = self.touched(asked);
        if let Some(pair) = touched.windows(2).find(|pair| !pair.iter().all(Block::grows)) {
            return Err(CudaError::Several { range: asked, address: pair[1].base });
        }
        whole?;
        let (first, last) = (touched[0], touched[touched.len() - 1]);
        let is_pages = [asked.base(), asked.len_bytes()].iter().all(|number| number.is_multiple_of(4096));
        let exported = if is_pages { asked } else { range(first.base, last.end() - first.base) };
        if !exported.base().is_multiple_of(4096) {
            return Err(CudaError::Unaligned { mapping: exported, page_bytes: 4096 });
        }
        let one_run = touched.iter().all(|block| block.kind == first.kind);
        Ok(one_run.then(|| (exported, asked.base() - exported.base())))
    }

    fn check_address(&self, address: u64) {
        let cuda = &self.world.cuda;
        let what = || format!("{address:#x} of {:#x?}", self.blocks);
        assert_eq!(cuda.location(address), Ok(self.location(address)), "{}", what());
        assert_eq!(cuda.is_device_ptr(address), self.device_block(address).is_ok());
        assert_eq!(cuda.buffer_id(address), Ok(self.at(address).map(|block| block.id)), "{}", what());
        let held = self.at(address).map(Block::range).ok_or(CudaError::Unmapped { address });
        assert_eq!(cuda.allocation(address), held, "{}", what());
        let extent = cuda.extent(address).map(|extent| {
            let (base, len_bytes) = (extent.range.base(), extent.range.len_bytes());
            (base, len_bytes, extent.ordinal, extent.expandable, [extent.below, extent.above])
        });
        assert_eq!(extent, self.extent(address), "{}", what());
    }

    fn check_range(&self, asked: AddressRange) {
        let cuda = &self.world.cuda;
        let what = || format!("{asked} of {:#x?}", self.blocks);
        let mut seen = Vec::new();
        let answer = cuda.mappings(asked, |mapping| seen.push((mapping.range, mapping.buffer_id)));
        let (touched, whole) = self.touched(asked);
        let all: Vec<_> = touched.iter().map(|block| (block.range(), block.id)).collect();
        assert_eq!((seen, answer), (all, whole), "{}", what());
        let export = cuda.export(asked).map(|export| (export.range(), export.offset_bytes()));
        match (export, self.export(asked)) {
            (Err(CudaError::Export { error, .. }), Ok(None)) => assert_eq!(error.result, CuResult::INVALID_VALUE),
            (Ok(got), Ok(Some(due))) => assert_eq!(got, due, "{}", what()),
            (Err(got), Err(due)) => assert_eq!(got, due, "{}", what()),
            (got, due) => panic!("{got:?} and not {due:?}: {}", what()),
        }
    }

    /// First, middle and last bytes of all blocks, and those beside them.
    fn places(&self) -> Vec<u64> {
        let of = |block: &Block| [block.base - 1, block.base, block.base + block.len / 2, block.end() - 1, block.end()];
        let reserved = self.reservations.iter().map(|(start, ..)| *start);
        self.blocks.iter().flat_map(of).chain(reserved).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_query_answers_as_a_list_of_blocks_does(
        history in prop::collection::vec(actions(), 1..40),
        ranges in prop::collection::vec((any::<usize>(), 0..4100_u64, 0..4 * GRANULE, any::<bool>()), 12),
        former in 0..3_usize,
    ) {
        let mut model = Model::new();
        let soft = model.world.soft.clone();
        let former = [0, soft.primary_context(1), soft.create_context(0)][former];
        model.world.raw.set_current(former).expect("known");
        for action in history {
            model.act(action);
        }
        let places = model.places();
        places.iter().for_each(|place| model.check_address(*place));
        for (which, skip, len, whole_pages) in ranges {
            let Some(which) = which.checked_rem(places.len()) else { break };
            let (mut base, mut len) = (places[which] + skip, len);
            if whole_pages {
                (base, len) = (base / 4096 * 4096, len / 4096 * 4096);
            }
            model.check_range(range(base, len));
        }
        prop_assert_eq!(model.world.raw.current(), Ok(former));
        for ordinal in 0..2 {
            let (retained, released) = soft.retained_and_released(ordinal);
            prop_assert_eq!(retained, released);
        }
    }
}
