//! Dropping what vanished without waiting for a request.

use std::time::Instant;

use bareverbs_core::segments::Covers;

use super::domain::SegmentDomain;
use super::domain_round::Pruned;
use super::domain_turn::Entry;
use super::error::{SegmentError, SegmentErrorKind};

impl SegmentDomain {
    /// Drops segments that vanished: a region can keep GPU memory that its allocator has freed. Nothing is bound.
    ///
    /// A scanner that covers everything is asked once, one that walks once for each bound segment. No segments, no scan.
    ///
    /// # Errors
    /// [`SegmentErrorKind::Scan`] of the first scan that failed; the others were carried out all the same.
    /// [`SegmentErrorKind::Reentered`] from within a scan; [`SegmentErrorKind::StillScanning`] where another's, or the
    /// bindings after it, take longer than the domain's patience.
    pub fn prune(&self) -> Result<Pruned, SegmentError> {
        let ranges: Vec<_> = self.table.read().rows().iter().map(|row| row.range).collect();
        let patience_ends = Instant::now().checked_add(self.config.patience);
        let (mut pruned, mut failed) = (Pruned::default(), None);
        for range in ranges {
            if self.table.read().lookup(range).is_none_or(|row| row.range != range) {
                continue;
            }
            let error = |kind| self.error(range.base(), range.len_bytes(), kind);
            let turn = loop {
                match self.turns.enter(self.turns.arrive(), patience_ends) {
                    Entry::Mine(turn) => break turn,
                    Entry::Reentered => return Err(error(SegmentErrorKind::Reentered)),
                    Entry::StillScanning => return Err(error(SegmentErrorKind::StillScanning)),
                    Entry::Ended(_) => {}
                }
            };
            match self.prune_round(turn, range) {
                Ok((covers, more)) => {
                    pruned.vanished += more.vanished;
                    pruned.replaced += more.replaced;
                    if covers == Covers::Everything {
                        break;
                    }
                }
                Err(refused) => failed = failed.or_else(|| Some(error(SegmentErrorKind::Scan(refused)))),
            }
        }
        failed.map_or(Ok(pruned), Err)
    }
}
