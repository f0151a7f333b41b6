//! The scanner of the machine: a walk or an allocator's snapshot, and what can go wrong with either.

use std::sync::{Arc, Mutex};

use bareverbs_core::range::AddressRange;
use bareverbs_core::segments::{Covers, ScannedSegment};
use bareverbs_shell::cuda::CudaDriver;
use bareverbs_shell::segments::{DriverScanner, ScanError, Scanner, SegmentScan};

use crate::segments::domain_scene::M;

/// What the scanner does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// It is well.
    Well,
    Fails,
    Panics,
    /// The last segment that it shows is a unit longer than it is.
    Boasts,
    /// It does not show its first segment.
    Hides,
    /// A snapshot is that of before the latest change.
    Late,
    /// It shows its last segment once more, without its first unit.
    ShowsTwice,
}

impl Manner {
    /// Whether requests for memory that is mapped may be refused for it.
    pub fn is_trouble(self) -> bool {
        !matches!(self, Self::Well | Self::Hides)
    }
}

struct State {
    /// None while the driver is asked.
    snapshot: Option<Vec<ScannedSegment>>,
    former: Option<Vec<ScannedSegment>>,
    manner: Manner,
    scans: Vec<SegmentScan>,
    asked: u64,
}

pub struct LifeScanner {
    driver: DriverScanner,
    state: Mutex<State>,
}

impl LifeScanner {
    pub fn new(driver: CudaDriver) -> Arc<Self> {
        let state = State { snapshot: None, former: None, manner: Manner::Well, scans: Vec::new(), asked: 0 };
        Arc::new(Self { driver: DriverScanner::new(driver), state: Mutex::new(state) })
    }

    pub fn snapshot(&self, segments: Option<Vec<ScannedSegment>>) {
        let mut state = self.state.lock().expect("whole");
        state.former = std::mem::replace(&mut state.snapshot, segments);
    }

    pub fn be(&self, manner: Manner) {
        self.state.lock().expect("whole").manner = manner;
    }

    /// What was answered since this was asked last, and how often the scanner was asked.
    pub fn take(&self) -> (Vec<SegmentScan>, u64) {
        let mut state = self.state.lock().expect("whole");
        (std::mem::take(&mut state.scans), std::mem::take(&mut state.asked))
    }
}

/// What a scanner that panics says.
pub const PANIC: &str = "a scanner's panic";

impl Scanner for LifeScanner {
    fn scan(&self, hint: AddressRange) -> Result<SegmentScan, ScanError> {
        let (snapshot, manner) = {
            let mut state = self.state.lock().expect("whole");
            state.asked += 1;
            let late = state.manner == Manner::Late && state.snapshot.is_some() && state.former.is_some();
            (if late { state.former.clone() } else { state.snapshot.clone() }, state.manner)
        };
        match manner {
            Manner::Fails => return Err(ScanError::new("told so")),
            // Past the hook, which would tell of each.
            Manner::Panics => std::panic::resume_unwind(Box::new(PANIC)),
            _ => {}
        }
        let mut scan = match snapshot {
            Some(segments) => SegmentScan { segments, covers: Covers::Everything },
            None => self.driver.scan(hint)?,
        };
        match (manner, scan.segments.last_mut()) {
            (Manner::Boasts, Some(last)) => last.size_bytes += M,
            (Manner::ShowsTwice, Some(last)) => {
                let twin = ScannedSegment { address: last.address + M, size_bytes: last.size_bytes - M, ..*last };
                scan.segments.push(twin);
            }
            (Manner::Hides, Some(_)) => drop(scan.segments.remove(0)),
            _ => {}
        }
        self.state.lock().expect("whole").scans.push(scan.clone());
        Ok(scan)
    }
}
