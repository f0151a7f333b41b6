//! What an allocator did, as the machine knows it: which physical memory is where, and what its bytes are.
//!
//! A physical memory is known by a number that never comes back, and keeps its bytes here for as long as anybody asks, mapped or
//! not. Bytes are kept by pages of 4 KiB, those that were never written being zero.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use bareverbs_core::range::AddressRange;
use bareverbs_core::segments::{Ordinal, ScannedSegment};
use bareverbs_shell::soft::cuda::SoftCuda;

use crate::scene::pattern;
use crate::segments::domain_scene::M;

const PAGE: u64 = 4096;

/// One physical memory.
pub struct Physical {
    pub number: u32,
    pub ordinal: u32,
    pub len_bytes: u64,
    pages: RefCell<BTreeMap<u64, Box<[u8]>>>,
}

impl fmt::Debug for Physical {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "memory {} of {} bytes", self.number, self.len_bytes)
    }
}

impl Physical {
    pub fn read(&self, offset: u64, len: u64) -> Vec<u8> {
        let pages = self.pages.borrow();
        let mut bytes = vec![0; len as usize];
        for (at, byte) in (offset..).zip(&mut bytes) {
            if let Some(page) = pages.get(&(at / PAGE)) {
                *byte = page[(at % PAGE) as usize];
            }
        }
        bytes
    }

    pub fn write(&self, offset: u64, bytes: &[u8]) {
        let mut pages = self.pages.borrow_mut();
        for (at, byte) in (offset..).zip(bytes) {
            let page = pages.entry(at / PAGE).or_insert_with(|| vec![0; PAGE as usize].into());
            page[(at % PAGE) as usize] = *byte;
        }
    }
}

/// A run of bytes of one physical memory.
#[derive(Clone, Debug)]
pub struct Piece {
    pub physical: Rc<Physical>,
    pub offset: u64,
    pub len: u64,
}

/// The part of some bytes that starts `offset` into them.
pub fn part_of(pieces: &[Piece], mut offset: u64, mut len: u64) -> Vec<Piece> {
    let mut found = Vec::new();
    for piece in pieces {
        if offset >= piece.len {
            offset -= piece.len;
            continue;
        }
        let taken = len.min(piece.len - offset);
        if taken > 0 {
            found.push(Piece { physical: Rc::clone(&piece.physical), offset: piece.offset + offset, len: taken });
        }
        (offset, len) = (0, len - taken);
    }
    found
}

pub fn read(pieces: &[Piece]) -> Vec<u8> {
    pieces.iter().flat_map(|piece| piece.physical.read(piece.offset, piece.len)).collect()
}

pub fn write(pieces: &[Piece], mut bytes: &[u8]) {
    for piece in pieces {
        let (now, later) = bytes.split_at(piece.len as usize);
        piece.physical.write(piece.offset, now);
        bytes = later;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Growing { reservation: usize },
    Plain,
    Pool,
    Managed,
}

/// What was allocated or mapped at once.
#[derive(Clone, Debug)]
pub struct Block {
    pub base: u64,
    pub kind: Kind,
    pub physical: Rc<Physical>,
}

impl Block {
    pub fn len(&self) -> u64 {
        self.physical.len_bytes
    }

    pub fn end(&self) -> u64 {
        self.base + self.len()
    }
}

/// What is at some addresses.
pub enum Truth {
    /// Device memory that can be registered at once.
    Whole(Vec<Piece>),
    /// Device memory of several allocations: whether they can be registered at once is the driver's to say.
    Several(Vec<Piece>),
    /// Something of it is no device memory.
    Not,
}

/// Addresses of one device, of which the last 2 MiB are never mapped.
#[derive(Clone, Copy, Debug)]
pub struct Reservation {
    pub base: u64,
    pub units: u64,
    pub ordinal: u32,
}

pub struct Memory {
    pub cuda: SoftCuda,
    pub reservations: Vec<Reservation>,
    pub blocks: BTreeMap<u64, Block>,
    next: u32,
    turn: u8,
}

impl Memory {
    pub fn new(cuda: SoftCuda, reservations: &[(u64, u32)]) -> Self {
        let reserve = |&(units, ordinal): &(u64, u32)| {
            let base = cuda.reserve(ordinal.cast_signed(), (units + 1) * M);
            Reservation { base, units, ordinal }
        };
        let reservations = reservations.iter().map(reserve).collect();
        Self { cuda, reservations, blocks: BTreeMap::new(), next: 0, turn: 0 }
    }

    /// Bytes that are no others'.
    pub fn news(&mut self, len: u64) -> Vec<u8> {
        self.turn = self.turn.wrapping_add(1);
        pattern(len as usize, self.turn.wrapping_mul(29))
    }

    /// Maps new memory, if nothing is there; whether it did.
    pub fn map(&mut self, reservation: usize, unit: u64, units: u64) -> bool {
        let Reservation { base, units: all, ordinal } = self.reservations[reservation];
        let (base, len) = (base + unit * M, units * M);
        if unit + units > all || self.blocks_in(base, len).next().is_some() {
            return false;
        }
        self.cuda.map(base, len);
        self.add(base, len, ordinal, Kind::Growing { reservation });
        true
    }

    pub fn allocate(&mut self, kind: Kind, ordinal: u32, len: u64) {
        let signed = ordinal.cast_signed();
        let base = match kind {
            Kind::Plain => self.cuda.allocate(signed, len),
            Kind::Pool => self.cuda.allocate_from_pool(signed, len),
            Kind::Managed => self.cuda.allocate_managed(signed, len),
            Kind::Growing { .. } => panic!("it is mapped"),
        };
        self.add(base, len, ordinal, kind);
    }

    /// New memory is zero; its first and last bytes, and those at each unit's edges, are then written.
    fn add(&mut self, base: u64, len_bytes: u64, ordinal: u32, kind: Kind) {
        let number = self.next;
        self.next += 1;
        let physical = Rc::new(Physical { number, ordinal, len_bytes, pages: RefCell::default() });
        self.blocks.insert(base, Block { base, kind, physical: Rc::clone(&physical) });
        for unit in (0..len_bytes).step_by(M as usize) {
            let last = (unit + M).min(len_bytes);
            for at in [unit, last.saturating_sub(64).max(unit)] {
                let bytes = self.news(64.min(last - at));
                self.cuda.write(base + at, &bytes);
                physical.write(at, &bytes);
            }
        }
    }

    /// Unmaps or frees what starts there.
    pub fn free(&mut self, base: u64) -> Block {
        let block = self.blocks.remove(&base).expect("it was picked from those that are there");
        match block.kind {
            Kind::Growing { .. } => self.cuda.unmap(base),
            _ => self.cuda.free(base),
        }
        block
    }

    pub fn blocks_in(&self, base: u64, len: u64) -> impl Iterator<Item = &Block> {
        let end = base.saturating_add(len);
        self.blocks.range(..end).map(|(_, block)| block).filter(move |block| block.end() > base)
    }

    pub fn at(&self, base: u64, len: u64) -> Truth {
        let (mut pieces, mut next, mut first) = (Vec::new(), base, None);
        let mut several = false;
        let Some(end) = base.checked_add(len) else { return Truth::Not };
        for block in self.blocks_in(base, len) {
            if block.base > next || block.kind == Kind::Managed {
                return Truth::Not;
            }
            let growing = matches!(block.kind, Kind::Growing { .. });
            several |= first.is_some_and(|first| first != block.kind || !growing);
            first = first.or(Some(block.kind));
            let last = block.end().min(end);
            pieces.push(Piece { physical: Rc::clone(&block.physical), offset: next - block.base, len: last - next });
            next = last;
        }
        match next < end || pieces.is_empty() {
            true => Truth::Not,
            false if several => Truth::Several(pieces),
            false => Truth::Whole(pieces),
        }
    }

    /// The pieces there, all of device memory.
    pub fn pieces(&self, of: AddressRange) -> Option<Vec<Piece>> {
        match self.at(of.base(), of.len_bytes()) {
            Truth::Whole(pieces) | Truth::Several(pieces) => Some(pieces),
            Truth::Not => None,
        }
    }

    /// Which memory is in a range: each mapping that it touches, with its place.
    pub fn identity(&self, of: AddressRange) -> Option<Vec<(u64, u32)>> {
        self.pieces(of)?;
        let blocks = self.blocks_in(of.base(), of.len_bytes());
        Some(blocks.map(|block| (block.base, block.physical.number)).collect())
    }

    /// The segments, as an allocator lists them: runs of mappings, and allocations of whole units.
    pub fn segments(&self) -> Vec<ScannedSegment> {
        let mut found: Vec<(Kind, ScannedSegment)> = Vec::new();
        for block in self.blocks.values() {
            let expandable = matches!(block.kind, Kind::Growing { .. });
            if let Some((kind, last)) = found.last_mut()
                && expandable
                && *kind == block.kind
                && last.address + last.size_bytes == block.base
            {
                last.size_bytes += block.len();
            } else if expandable || (block.kind == Kind::Plain && block.len().is_multiple_of(M)) {
                let (address, size_bytes, ordinal) = (block.base, block.len(), Ordinal(block.physical.ordinal));
                found.push((block.kind, ScannedSegment { address, size_bytes, ordinal, expandable }));
            }
        }
        found.into_iter().map(|(_, segment)| segment).collect()
    }

    /// That all that was ever written in what is mapped is what it is to be, and nothing else is there.
    pub fn check(&self) {
        for block in self.blocks.values() {
            for (page, bytes) in &*block.physical.pages.borrow() {
                let len = bytes.len().min((block.len() - page * PAGE) as usize);
                let is = self.cuda.read(block.base + page * PAGE, len);
                assert!(is == bytes[..len], "{:?}, page {page}: {}", block.physical, first_difference(&is, bytes));
            }
        }
    }

    /// The same of every byte of what is mapped.
    pub fn check_every_byte(&self) {
        for block in self.blocks.values() {
            let is = self.cuda.read(block.base, block.len() as usize);
            let pages = block.physical.pages.borrow();
            let zero = vec![0; PAGE as usize];
            for (page, bytes) in (0..).zip(is.chunks(PAGE as usize)) {
                let wanted = pages.get(&page).map_or(&zero[..], |page| page);
                assert!(*bytes == wanted[..bytes.len()], "{:?}, page {page}", block.physical);
            }
        }
    }
}

pub fn first_difference(is: &[u8], wanted: &[u8]) -> String {
    let at = is.iter().zip(wanted).position(|(is, wanted)| is != wanted);
    at.map_or_else(|| "no difference".into(), |at| format!("byte {at} is {}, and not {}", is[at], wanted[at]))
}
