//! Requests that the table does not serve as it is: by a scan, or by a region of their own.
//!
//! Protects: what is known to have no key is not scanned for, and nobody scans for what another's scan has shown meanwhile. A
//! request is answered by a round that began after it came and looked where it is, or by a view; never by what was known before.

use std::sync::Arc;
use std::time::Instant;

use bareverbs_core::range::AddressRange;
use bareverbs_core::segments::Ordinal;

use super::domain::{Hit, Placed, SegmentDomain};
use super::domain_round::Round;
use super::domain_turn::Entry;
use super::error::{NoKey, NotBound, SegmentErrorKind};
use super::fallback::{FallbackRegion, Maker};
use super::served_table::MAX_SEGMENTS;
use super::statistics::Counters;
use crate::cuda::CudaError;
use crate::memory::{Location, View};

impl SegmentDomain {
    #[cold]
    pub(super) fn register_missed(&self, asked: AddressRange, hit: Hit) -> Result<View, SegmentErrorKind> {
        let placed = match hit {
            Hit::View(view) => return Ok(view),
            Hit::Straddles => Placed::Straddles,
            Hit::Miss => self.place(asked)?,
        };
        match placed {
            Placed::View(view) => Ok(view),
            Placed::Straddles => match self.fallbacks.live_view(&self.cuda, asked) {
                Some(view) => Ok(view),
                None => self.fall_back(asked, NoKey::Straddles),
            },
        }
    }

    /// Finds the place of what the table does not serve as it is.
    pub(super) fn place(&self, asked: AddressRange) -> Result<Placed, SegmentErrorKind> {
        let ordinal =
            match self.cuda.location(asked.base()).map_err(|error| SegmentErrorKind::Driver(Box::new(error)))? {
                Location::Managed => return Err(SegmentErrorKind::Managed),
                Location::Device { ordinal: Some(ordinal) } => Some(Ordinal(ordinal)),
                // The host's, or freed: segments that were there are to go.
                _ => None,
            };
        let fall_back = |why| self.fall_back(asked, why).map(Placed::View);
        if let Some(ordinal) = ordinal {
            if let Some(view) = self.fallbacks.live_view(&self.cuda, asked) {
                return Ok(Placed::View(view));
            }
            if let Err(reason) = &self.binder {
                return fall_back(NoKey::NoProvider { reason: Arc::clone(reason) });
            }
            if !self.served().serves(ordinal) {
                return fall_back(NoKey::NotServed { ordinal });
            }
            match self.fallbacks.beyond_keys(&self.cuda, asked) {
                // The table has room by now.
                Some(why) if matches!(*why, NotBound::TableFull { .. }) && self.table.read().len() < MAX_SEGMENTS => {}
                Some(why) => return fall_back(NoKey::NotBound(why)),
                None => {}
            }
        } else if self.binder.is_err() {
            return Err(SegmentErrorKind::NotCovered);
        }
        self.place_by_scan(asked, ordinal)
    }

    /// How often memory may change while it is being bound before a request gives up.
    pub(super) const ROUNDS: u32 = 3;

    fn place_by_scan(&self, asked: AddressRange, ordinal: Option<Ordinal>) -> Result<Placed, SegmentErrorKind> {
        let arrived = self.turns.arrive();
        // A patience beyond what a clock counts is none that ends.
        let patience_ends = Instant::now().checked_add(self.config.patience);
        let mut rounds = 0;
        while rounds < Self::ROUNDS {
            let round = match self.turns.enter(arrived, patience_ends) {
                Entry::Mine(turn) => {
                    // Another's turn may have ended between the first look and this one.
                    match self.hit(asked) {
                        Hit::View(view) => return Ok(Placed::View(view)),
                        Hit::Straddles => return Ok(Placed::Straddles),
                        Hit::Miss => {}
                    }
                    rounds += 1;
                    self.round(turn, asked).map_err(SegmentErrorKind::Scan)?
                }
                // Only what looked where this request is answers it.
                Entry::Ended(Some(round)) if round.covers.all_of(asked) => round,
                Entry::Ended(_) => match self.hit(asked) {
                    Hit::View(view) => return Ok(Placed::View(view)),
                    Hit::Straddles => return Ok(Placed::Straddles),
                    Hit::Miss => continue,
                },
                Entry::Reentered => return Err(SegmentErrorKind::Reentered),
                Entry::StillScanning if ordinal.is_some() => {
                    return self.fall_back(asked, NoKey::StillScanning).map(Placed::View);
                }
                Entry::StillScanning => return Err(SegmentErrorKind::StillScanning),
            };
            if let Some(placed) = self.judge(asked, ordinal, &round)? {
                return Ok(placed);
            }
        }
        Err(SegmentErrorKind::Changing)
    }

    /// What a round came to for a request; none if the memory changed again.
    fn judge(
        &self,
        asked: AddressRange,
        ordinal: Option<Ordinal>,
        round: &Round,
    ) -> Result<Option<Placed>, SegmentErrorKind> {
        match self.hit(asked) {
            Hit::View(view) => return Ok(Some(Placed::View(view))),
            Hit::Straddles => return Ok(Some(Placed::Straddles)),
            Hit::Miss => {}
        }
        if let Some((segment, why)) = round.failure_of(asked) {
            if matches!(**why, NotBound::Changed) {
                return Ok(None);
            }
            if why.falls_back() && ordinal.is_some() {
                return self.fall_back(asked, NoKey::NotBound(Arc::clone(why))).map(|view| Some(Placed::View(view)));
            }
            return Err(SegmentErrorKind::NotBound { segment, why: Arc::clone(why) });
        }
        if round.showed(asked) {
            return Ok(None);
        }
        if ordinal.is_none() {
            return Err(SegmentErrorKind::NotCovered);
        }
        self.fall_back(asked, NoKey::NotScanned).map(|view| Some(Placed::View(view)))
    }

    /// A region of its own.
    fn fall_back(&self, asked: AddressRange, why: NoKey) -> Result<View, SegmentErrorKind> {
        let maker = Maker {
            domain: self.protection_domain(),
            device: *self.device(),
            cuda: &self.cuda,
            access: self.config.access,
        };
        let region = maker.register(asked, &why)?;
        let view = region.view(asked).ok_or_else(|| SegmentErrorKind::Export {
            why: why.clone(),
            error: Box::new(CudaError::NotDevice { address: asked.base() }),
        })?;
        self.fallbacks.share(&region);
        Counters::add(&self.counters.fallbacks, 1);
        self.tell(asked, &region, &why);
        Ok(view)
    }

    /// Tells why no key serves a request: once for each segment or allocation, with nothing held.
    fn tell(&self, asked: AddressRange, region: &FallbackRegion, why: &NoKey) {
        if !log::log_enabled!(log::Level::Warn) || self.fallbacks.is_told(asked, why) {
            return;
        }
        let of = self.cuda.extent(asked.base()).map_or(region.range(), |extent| extent.range);
        if !self.fallbacks.tell(of, why) {
            return;
        }
        let device = self.protection_domain().context().name();
        log::warn!("device {device}: memory of {of} gets regions of its own: {why}");
    }
}
