//! What is served after a scan: looked at from outside, and held against what was to come of it.
//!
//! Requests for whole segments, by parts, tell their keys. While that is looked at the scanner fails, so that nothing changes.

use std::rc::Rc;
use std::sync::Arc;

use bareverbs_core::range::AddressRange;
use bareverbs_shell::segments::SegmentScan;

use super::machine::Machine;
use super::scanner::Manner;
use super::table::{Expected, Region, Row, Window, compare};

/// A row that is to be served.
#[derive(Clone)]
struct Awaited {
    row: Row,
    /// What it was before it grew.
    before: Option<Row>,
    /// Whether keys are bound for it.
    is_new: bool,
}

impl Machine {
    /// Brings the expected table to what scans showed; what was exported meanwhile.
    pub fn after_scans(&mut self, scans: &[SegmentScan], binds: bool, troubled: bool) -> Vec<AddressRange> {
        let exports = self.exports();
        let mut fresh: Vec<Rc<Region>> = Vec::new();
        for range in exports.iter().rev() {
            if let Some(pieces) = self.memory.pieces(*range) {
                fresh.push(Rc::new(Region { range: *range, pieces, lkey: None }));
            }
        }
        let mut rows: Vec<Awaited> =
            self.rows.drain(..).map(|row| Awaited { row, before: None, is_new: false }).collect();
        for scan in scans {
            rows = self.await_rows(&rows, scan, binds);
        }
        for Awaited { row, before, is_new } in rows {
            let may_have_changed = troubled && !scans.is_empty() && row.holds(&self.memory, row.range);
            if !is_new && !may_have_changed {
                self.rows.push(row);
                continue;
            }
            let settled = self.settle(&row, &fresh);
            assert!(troubled || settled.is_some(), "{row:?} is to be served, and is not");
            self.came(match (is_new, settled.is_some(), before.is_some()) {
                (true, true, true) => "a segment grew",
                (true, true, false) => "a segment was bound",
                (true, false, true) => "a growth failed",
                (true, false, false) => "a binding failed",
                (false, ..) => "a segment was looked at after a fault",
            });
            let failed_growth = is_new && settled.is_none() && before.is_some();
            let settled = settled.or_else(|| before.and_then(|before| self.settle(&before, &fresh)));
            if failed_growth && settled.is_some() {
                self.came("a growth that failed left its segment as it was");
            }
            self.rows.extend(settled);
        }
        self.rows.sort_by_key(|row| (row.range.base(), row.ordinal));
        drop(self.exports());
        exports
    }

    /// What is to come of a scan.
    fn await_rows(&self, rows: &[Awaited], scan: &SegmentScan, binds: bool) -> Vec<Awaited> {
        let served: Vec<_> = rows.iter().map(|awaited| awaited.row.clone()).collect();
        let expected = compare(&served, scan, &self.served, &self.memory, binds).into_iter().map(|one| match one {
            Expected::Same(row) => {
                let is_it = |awaited: &&Awaited| (awaited.row.range, awaited.row.ordinal) == (row.range, row.ordinal);
                rows.iter().find(is_it).expect("one of them").clone()
            }
            Expected::Fresh(range, ordinal) => {
                Awaited { row: self.row(range, ordinal, Vec::new()), before: None, is_new: true }
            }
            Expected::Grown(old, to) => {
                let row = self.row(to, old.ordinal, old.windows.clone());
                Awaited { row, before: Some(old), is_new: true }
            }
        });
        expected.collect()
    }

    fn row(&self, range: AddressRange, ordinal: u32, windows: Vec<Rc<Window>>) -> Row {
        Row { range, ordinal, identity: self.memory.identity(range).unwrap_or_default(), windows }
    }

    /// The row with the keys that serve it now; none if none do.
    fn settle(&mut self, row: &Row, fresh: &[Rc<Region>]) -> Option<Row> {
        let (addr, size) = (row.range.base(), row.range.len_bytes());
        let domain = Arc::clone(&self.domain);
        let fallbacks = domain.statistics().fallbacks;
        self.scanner.be(Manner::Fails);
        let seen = self.watch.run(move || {
            let views = domain.register_parts(addr, size).ok()?;
            Some(views.into_iter().map(|view| (view.lkey(), view.addr(), view.len_bytes())).collect::<Vec<_>>())
        });
        self.be_well();
        drop(self.scanner.take());
        let seen = seen.expect("it does not panic")?;
        let is_region =
            |lkey| self.fallbacks.iter().any(|region| region.upgrade().is_some_and(|r| r.lkey == Some(lkey)));
        if self.domain.statistics().fallbacks != fallbacks || is_region(seen[0].0) {
            return None;
        }
        let (mut windows, mut next) = (Vec::new(), addr);
        for (lkey, base, len) in seen {
            assert_eq!(base, next, "windows follow each other");
            next += len;
            let range = AddressRange::new(base, len).expect("a view's");
            let old = row.windows.iter().find(|window| window.lkey == lkey && window.range == range);
            windows.push(old.map_or_else(|| self.window(lkey, range, row, fresh), Rc::clone));
        }
        assert_eq!(next, addr + size, "windows cover the segment");
        Some(Row { windows, ..row.clone() })
    }

    /// A new key, over the latest regions that make it up.
    fn window(&self, lkey: u32, range: AddressRange, row: &Row, fresh: &[Rc<Region>]) -> Rc<Window> {
        let old = row.windows.iter().rev().flat_map(|window| &window.regions);
        let all: Vec<_> = fresh.iter().chain(old).collect();
        let (mut regions, mut next) = (Vec::new(), range.base());
        while next < range.base() + range.len_bytes() {
            let fits = |region: &&&Rc<Region>| region.range.base() == next && range.covers(region.range);
            let Some(region) = all.iter().find(fits) else {
                panic!("nothing was registered at {next:#x} for a key over {range:?}: {all:#?}");
            };
            regions.push(Rc::clone(region));
            next += region.range.len_bytes();
        }
        assert!(regions.len() <= usize::from(self.setup.cap.min(30)), "{} entries", regions.len());
        let longest = u64::from(self.setup.chunk_units) * crate::segments::domain_scene::M;
        assert!(regions.iter().all(|region| region.range.len_bytes() <= longest));
        Rc::new(Window { lkey, range, regions })
    }
}
