//! The steps of the allocator and of the application.

use bareverbs_core::range::AddressRange;

use super::machine::Machine;
use super::memory::{self, Kind};
use super::steps::{Place, Size, Step};
use crate::segments::domain_scene::{M, range};

impl Machine {
    /// Takes a step; whether it was one of these.
    pub fn allocate(&mut self, step: Step) -> bool {
        match step {
            Step::Map { reservation, unit, units } => {
                self.memory.map(reservation.into(), unit.into(), units.into());
            }
            Step::Grow { reservation, units } => {
                let all = self.memory.reservations[usize::from(reservation)];
                let last = self.mappings_of(reservation).last().map_or(all.base, |(base, len)| base + len);
                self.memory.map(reservation.into(), (last - all.base) / M, units.into());
            }
            Step::Shrink { reservation } => {
                let last = self.mappings_of(reservation).pop();
                last.into_iter().for_each(|(base, _)| self.free(base));
            }
            Step::FreeAll { reservation } => {
                self.mappings_of(reservation).into_iter().for_each(|(base, _)| self.free(base));
            }
            Step::Hole { pick } => {
                let picked = self.pick(pick, true);
                picked.into_iter().for_each(|(_, base, _)| self.free(base));
            }
            Step::Free { pick } => {
                let picked = self.pick(pick, false);
                picked.into_iter().for_each(|(_, base, _)| self.free(base));
            }
            Step::Swap { pick, cut } => self.swap(pick, cut),
            Step::Allocate { kind, ordinal, kib } => {
                let kind = [Kind::Plain, Kind::Plain, Kind::Pool, Kind::Managed][usize::from(kind)];
                // Half of them are whole units, of which segments can be.
                let len = if kib % 2 == 0 { M * (1 + u64::from(kib) % 3) } else { u64::from(kib) * 1000 };
                if self.memory.blocks.len() < 40 {
                    self.memory.allocate(kind, ordinal.into(), len);
                }
            }
            Step::Write { place } => self.write(place),
            _ => return false,
        }
        self.show();
        true
    }

    fn mappings_of(&self, reservation: u8) -> Vec<(u64, u64)> {
        let kind = Kind::Growing { reservation: reservation.into() };
        let blocks = self.memory.blocks.values().filter(|block| block.kind == kind);
        blocks.map(|block| (block.base, block.len())).collect()
    }

    /// A mapping, or an allocation.
    fn pick(&self, pick: u16, growing: bool) -> Option<(Kind, u64, u64)> {
        let is_growing = |kind| matches!(kind, Kind::Growing { .. });
        let blocks: Vec<_> = self.memory.blocks.values().filter(|block| is_growing(block.kind) == growing).collect();
        let block = blocks.get(usize::from(pick) % blocks.len().max(1))?;
        Some((block.kind, block.base, block.len()))
    }

    /// Frees it; where the domain trusts its caller, it is told.
    fn free(&mut self, base: u64) {
        let block = self.memory.free(base);
        if self.setup.trust {
            self.invalidate(range(base, block.len()));
        }
    }

    fn swap(&mut self, pick: u16, cut: bool) {
        let Some((Kind::Growing { reservation }, base, len)) = self.pick(pick, true) else { return };
        self.free(base);
        let (unit, units) = ((base - self.memory.reservations[reservation].base) / M, len / M);
        let first = if cut { units.div_ceil(2) } else { units };
        assert!(self.memory.map(reservation, unit, first));
        assert!(first == units || self.memory.map(reservation, unit + first, units - first));
    }

    fn write(&mut self, place: Place) {
        let (addr, size) = self.resolve(place);
        let Ok(asked) = AddressRange::new(addr, size.min(5000)) else { return };
        if let Some(pieces) = self.memory.pieces(asked) {
            let bytes = self.memory.news(asked.len_bytes());
            self.memory.cuda.write(addr, &bytes);
            memory::write(&pieces, &bytes);
        }
    }

    pub fn invalidate(&mut self, range: AddressRange) {
        let domain = std::sync::Arc::clone(&self.domain);
        self.watch.run(move || domain.invalidate(range)).expect("it does not panic");
        let before = self.rows.len();
        self.rows.retain(|row| !row.range.overlaps(range));
        if self.rows.len() < before {
            self.came("a segment was invalidated");
        }
    }

    /// The addresses that a place comes to now.
    pub fn resolve(&self, place: Place) -> (u64, u64) {
        let blocks = self.memory.blocks.values().flat_map(|block| [block.base, block.end()]);
        let windows = self.rows.iter().flat_map(|row| &row.windows).map(|window| window.range.base());
        let reservations = self.memory.reservations.iter().map(|all| all.base + all.units * M / 2);
        let mut edges: Vec<u64> = blocks.chain(windows).chain(reservations).collect();
        edges.sort_unstable();
        edges.dedup();
        let at = usize::from(place.edge) % edges.len();
        let addr = edges[at].saturating_add_signed(place.delta.into());
        let size = match place.size {
            Size::Bytes(bytes) => bytes.into(),
            Size::Units(units) => u64::from(units) * M,
            Size::Edges(count) => {
                let to = edges[(at + usize::from(count)).min(edges.len() - 1)];
                to.saturating_sub(addr).min(64 * M)
            }
            Size::TooMany => u64::MAX - addr + 2,
        };
        (addr, size)
    }
}
