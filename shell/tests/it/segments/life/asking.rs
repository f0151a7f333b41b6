//! The steps of those who ask the domain, and what is to come of them.

use std::rc::{Rc, Weak};
use std::sync::Arc;

use bareverbs_core::range::AddressRange;
use bareverbs_shell::memory::View;
use bareverbs_shell::segments::{SegmentError, SegmentErrorKind};

use super::machine::{DEVICE, Held, Machine, Under};
use super::memory::{Piece, Truth, part_of};
use super::scanner::{Manner, PANIC};
use super::steps::{Fault, Step};
use super::table::{Region, Row, Window};

/// What is asked for, and how.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    pub addr: u64,
    pub size: u64,
    pub parts: bool,
    pub keep: bool,
    pub manner: Manner,
    pub fault: Option<Fault>,
}

/// What the table is to say to a request.
enum Hit {
    Window(Rc<Window>),
    Straddles,
    Miss,
}

/// Views that are kept at a time.
const KEPT: usize = 24;

impl Machine {
    pub fn step(&mut self, step: Step) {
        if self.allocate(step) {
            return self.count();
        }
        match step {
            Step::Ask { place, parts, keep, manner, fault } => {
                let (addr, size) = self.resolve(place);
                self.ask(Asked { addr, size, parts, keep, manner, fault });
            }
            Step::AskWhole { pick, parts, keep } => {
                let segments = self.memory.segments();
                let Some(segment) = segments.get(usize::from(pick) % segments.len().max(1)) else { return };
                let (addr, size) = (segment.address, segment.size_bytes);
                self.ask(Asked { addr, size, parts, keep, manner: Manner::Well, fault: None });
            }
            Step::Invalidate { place } => {
                let (addr, size) = self.resolve(place);
                if let Ok(range) = AddressRange::new(addr, size) {
                    self.invalidate(range);
                }
            }
            Step::Prune { manner, fault } => self.prune(manner, fault),
            Step::Prove { pick } => {
                if let Some(held) = self.held.get(usize::from(pick) % self.held.len().max(1)).cloned() {
                    self.prove(&held);
                    self.memory.check();
                }
            }
            Step::Drop { pick } => {
                if !self.held.is_empty() {
                    let held = self.held.swap_remove(usize::from(pick) % self.held.len());
                    self.watch.run(move || drop(held.view)).expect("no drop panics");
                }
            }
            Step::Clone { pick } => {
                let held = self.held.get(usize::from(pick) % self.held.len().max(1)).cloned();
                self.held.extend(held);
            }
            Step::Scanner { snapshot } => self.show_by(snapshot),
            _ => unreachable!("the allocator's"),
        }
        self.count();
    }

    fn ask(&mut self, asked: Asked) {
        let Asked { addr, size, parts, manner, fault, .. } = asked;
        let hit = AddressRange::new(addr, size).map_or(Hit::Miss, |range| self.hit(range));
        drop(self.exports());
        self.soft.clear_record();
        let troubled = self.plan(fault) || manner.is_trouble();
        self.scanner.be(manner);
        let domain = Arc::clone(&self.domain);
        let outcome = self.watch.run(move || match parts {
            true => domain.register_parts(addr, size),
            false => domain.register(addr, size).map(|view| vec![view]),
        });
        let calls = self.soft.record().len();
        self.be_well();
        let (scans, looks) = self.scanner.take();
        let fast = matches!(hit, Hit::Window(_)) || (parts && matches!(hit, Hit::Straddles));
        assert!(!fast || fault.is_some() || (calls, looks) == (0, 0), "{asked:?} made {calls} calls and {looks} scans");
        let exports = self.after_scans(&scans, true, troubled);
        match outcome {
            Err(panic) => {
                let said = panic.downcast_ref::<&str>().copied();
                assert!(manner == Manner::Panics && said == Some(PANIC), "{asked:?}: {said:?}");
                self.came("a scanner panicked");
            }
            Ok(Err(error)) => self.refused(asked, troubled, &error),
            Ok(Ok(views)) => self.serves(asked, troubled, &hit, &exports, views),
        }
    }

    /// What is served without a scan.
    fn hit(&self, asked: AddressRange) -> Hit {
        if asked.is_empty() {
            return Hit::Miss;
        }
        let holds = |row: &&Row| row.range.covers(asked) && (self.setup.trust || row.holds(&self.memory, asked));
        match self.rows.iter().find(holds) {
            None => Hit::Miss,
            Some(row) => row.window_of(asked).map_or(Hit::Straddles, |window| Hit::Window(Rc::clone(window))),
        }
    }

    fn refused(&mut self, asked: Asked, troubled: bool, error: &SegmentError) {
        let Asked { addr, size, .. } = asked;
        let mapped = size > 0 && matches!(self.memory.at(addr, size), Truth::Whole(_));
        assert!(troubled || !mapped, "{asked:?} is mapped, and refused: {error}");
        assert_eq!(size == 0, matches!(error.kind, SegmentErrorKind::Empty), "{error}");
        self.came(match mapped {
            true => "a request was refused for a fault",
            false => "a request for what is not mapped was refused",
        });
        let text = error.to_string();
        let served = self.served.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        for part in [format!("{addr:#x}"), size.to_string(), DEVICE.to_owned(), format!("ordinals {served}")] {
            assert!(text.contains(&part), "{part} in {text}");
        }
    }

    /// That views are of what was asked for, under keys of what is mapped there now; and what they see.
    fn serves(&mut self, asked: Asked, troubled: bool, hit: &Hit, exports: &[AddressRange], views: Vec<View>) {
        let Asked { addr, size, parts, .. } = asked;
        let truth = if size == 0 { Truth::Not } else { self.memory.at(addr, size) };
        let (Truth::Whole(pieces) | Truth::Several(pieces)) = truth else {
            panic!("{asked:?} is not all mapped, and served: {views:?}");
        };
        assert!(parts || views.len() == 1);
        let (mut next, mut served) = (addr, Vec::new());
        for view in views {
            assert_eq!(view.addr(), next, "{asked:?}");
            let pieces = part_of(&pieces, next - addr, view.len_bytes());
            next += view.len_bytes();
            let under = self.under(&view, exports);
            served.push(Held { view, pieces, under });
        }
        assert_eq!(next, addr + size, "{asked:?}");
        let asked_range = AddressRange::new(addr, size).expect("it is mapped");
        self.tell(asked, troubled, hit, &served);
        // What is served by a key now, and was scanned for, is served by that key.
        if let (false, Hit::Window(window)) = (troubled, hit) {
            assert!(matches!(&served[0].under, Under::Window(under) if Rc::ptr_eq(under, window)), "{served:?}");
        }
        if let (false, Hit::Straddles, true) = (troubled, hit, parts) {
            let row = self.rows.iter().find(|row| row.range.covers(asked_range)).expect("it straddled");
            let windows = row.windows.iter().filter(|window| window.range.overlaps(asked_range)).count();
            assert_eq!(served.len(), windows, "{asked:?}");
        }
        for held in &served {
            self.prove(held);
        }
        self.memory.check();
        if asked.keep {
            self.held.extend(served);
            let too_many = self.held.len().saturating_sub(KEPT);
            self.held.drain(..too_many);
        }
    }

    /// What came to pass.
    fn tell(&mut self, asked: Asked, troubled: bool, hit: &Hit, served: &[Held]) {
        self.came(match (hit, &served[0].under) {
            (Hit::Window(_), _) => "a key served at once",
            (_, Under::Window(_)) if served.len() > 1 => "several keys served parts",
            (_, Under::Window(_)) => "a key served after a scan",
            (Hit::Straddles, _) => "a region served what straddles",
            (_, Under::Region(_)) => "a region served what no key does",
        });
        if troubled {
            self.came("a request was served in spite of a fault");
        }
        if asked.keep {
            self.came("a view was kept");
        }
    }

    /// What a new view is under: a key that is served now, or a region of its own.
    fn under(&mut self, view: &View, exports: &[AddressRange]) -> Under {
        let asked = AddressRange::new(view.addr(), view.len_bytes()).expect("a view's");
        let mut windows = self.rows.iter().flat_map(|row| &row.windows);
        if let Some(window) = windows.find(|window| window.lkey == view.lkey()) {
            assert!(window.range.covers(asked), "{view:?} under {window:?}");
            assert_eq!(view.key_addr(), view.addr() - window.range.base(), "{window:?}");
            return Under::Window(Rc::clone(window));
        }
        self.fallbacks.retain(|region| region.strong_count() > 0);
        let known = self.fallbacks.iter().filter_map(Weak::upgrade).find(|region| region.lkey == Some(view.lkey()));
        let region = known.unwrap_or_else(|| {
            let range = *exports.last().unwrap_or_else(|| panic!("{view:?} is under no key that is served"));
            let pieces = self.pieces_up_to(range);
            Rc::new(Region { range, pieces, lkey: Some(view.lkey()) })
        });
        assert!(region.range.covers(asked), "{view:?} under {region:?}");
        assert_eq!(view.key_addr(), view.addr() - region.range.base(), "{region:?}");
        self.fallbacks.push(Rc::downgrade(&region));
        Under::Region(region)
    }

    /// The pieces of an export, which may go to the end of a page that is not all allocated.
    fn pieces_up_to(&self, exported: AddressRange) -> Vec<Piece> {
        let blocks: Vec<_> = self.memory.blocks_in(exported.base(), exported.len_bytes()).collect();
        let end =
            blocks.last().map_or(exported.base(), |block| block.end()).min(exported.base() + exported.len_bytes());
        let range = AddressRange::new(exported.base(), end - exported.base()).expect("shorter");
        self.memory.pieces(range).expect("it was exported")
    }

    fn prune(&mut self, manner: Manner, fault: Option<Fault>) {
        drop(self.exports());
        self.soft.clear_record();
        let troubled = self.plan(fault) || manner.is_trouble();
        self.scanner.be(manner);
        let domain = Arc::clone(&self.domain);
        let outcome = self.watch.run(move || domain.prune());
        self.be_well();
        let (scans, _) = self.scanner.take();
        let before = self.rows.len();
        self.after_scans(&scans, false, troubled);
        match outcome {
            Err(panic) => assert!(manner == Manner::Panics && panic.downcast_ref() == Some(&PANIC)),
            Ok(Err(error)) => assert!(troubled, "{error}"),
            Ok(Ok(pruned)) => {
                if pruned.vanished + pruned.replaced > 0 {
                    self.came("a segment was pruned");
                }
                assert_eq!(pruned.vanished + pruned.replaced, before - self.rows.len(), "{pruned:?}");
                let stale = self.rows.iter().find(|row| !row.holds(&self.memory, row.range));
                assert!(troubled || stale.is_none(), "{stale:?} is left");
            }
        }
    }
}
