//! A device that carries out plans: it keeps regions and keys, counts calls, and can refuse one.

use std::collections::BTreeMap;

use bareverbs_core::range::AddressRange;
use bareverbs_core::segments::{BoundSegment, Ordinal, PartSource, Plan, WindowLimits};

pub type Segment = BoundSegment<u64, 64, 640>;
pub type SegmentPlan = Plan<64, 640>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

/// Region and key numbers are never given twice.
#[derive(Default)]
pub struct Device {
    next_number: u32,
    pub regions: BTreeMap<u32, AddressRange>,
    /// The regions bound to each key, in order.
    pub keys: BTreeMap<u32, Vec<u32>>,
    pub registered: Vec<AddressRange>,
    pub registered_bytes: u64,
    pub binds: u32,
    /// Calls until one is refused; none: never.
    pub refuse_after: Option<u32>,
}

impl Device {
    fn number(&mut self) -> u32 {
        self.next_number += 1;
        self.next_number
    }

    fn call(&mut self) -> Result<(), Refused> {
        match &mut self.refuse_after {
            Some(0) => Err(Refused),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn register(&mut self, range: AddressRange) -> Result<u32, Refused> {
        self.call()?;
        let region = self.number();
        self.regions.insert(region, range);
        self.registered.push(range);
        self.registered_bytes += range.len_bytes();
        Ok(region)
    }

    fn bind(&mut self, regions: Vec<u32>) -> Result<u32, Refused> {
        self.call()?;
        self.binds += 1;
        let key = self.number();
        self.keys.insert(key, regions);
        Ok(key)
    }

    /// What a key presents: the ranges of its regions, in order.
    pub fn presents(&self, key: u32) -> Vec<AddressRange> {
        self.keys[&key].iter().map(|region| self.regions[region]).collect()
    }
}

/// A segment with the regions and keys that serve it.
pub struct Served {
    pub segment: Segment,
    pub regions: Vec<u32>,
    pub keys: Vec<u32>,
}

/// What a plan made on the device, to be taken in or undone.
struct Made {
    regions: Vec<u32>,
    keys: Vec<u32>,
}

fn carry_out(device: &mut Device, plan: &SegmentPlan, old: Option<&Served>) -> Result<Made, Refused> {
    let mut fresh = Vec::new();
    let mut made_keys = Vec::new();
    let outcome = (|| {
        for range in plan.to_register() {
            fresh.push(device.register(range)?);
        }
        let mut registered = fresh.iter().copied();
        let regions: Vec<u32> = plan
            .sources()
            .iter()
            .map(|source| match source {
                PartSource::Register => registered.next().unwrap(),
                PartSource::Reuse(part) => old.unwrap().regions[*part as usize],
            })
            .collect();
        let kept = plan.kept_windows() as usize;
        let mut keys = old.map_or(Vec::new(), |old| old.keys[..kept].to_vec());
        let entries: usize = plan.fresh_windows().map(|window| window.part_count() as usize).sum();
        let mut rest = &regions[regions.len() - entries..];
        for window in plan.fresh_windows() {
            let (own, others) = rest.split_at(window.part_count() as usize);
            let ranges: Vec<_> = window.parts().map(|part| part.range).collect();
            assert_eq!(ranges, own.iter().map(|region| device.regions[region]).collect::<Vec<_>>());
            let key = device.bind(own.to_vec())?;
            made_keys.push(key);
            keys.push(key);
            rest = others;
        }
        Ok(Made { regions, keys })
    })();
    if outcome.is_err() {
        device.keys.retain(|key, _| !made_keys.contains(key));
        device.regions.retain(|region, _| !fresh.contains(region));
    }
    outcome
}

impl Served {
    pub fn bind(device: &mut Device, range: AddressRange, limits: WindowLimits) -> Result<Self, Refused> {
        let plan = Segment::plan_bind(range, limits).unwrap();
        let made = carry_out(device, &plan, None)?;
        let served = Self { segment: Segment::new(plan, Ordinal(0), 0), regions: made.regions, keys: made.keys };
        served.check(device);
        Ok(served)
    }

    /// Grows; with no view alive, what retires goes at once.
    pub fn grow(&mut self, device: &mut Device, to: AddressRange) -> Result<(), Refused> {
        let Some(plan) = self.segment.plan_growth(to).unwrap() else { return Ok(()) };
        let made = carry_out(device, &plan, Some(self))?;
        for window in plan.retired_windows() {
            device.keys.remove(&self.keys[window as usize]).unwrap();
        }
        for part in plan.released_parts() {
            device.regions.remove(&self.regions[part as usize]).unwrap();
        }
        (self.regions, self.keys) = (made.regions, made.keys);
        self.segment.grow(plan, 0).unwrap();
        Ok(())
    }

    /// What must hold of every bound segment, and of the device that serves this one alone.
    pub fn check(&self, device: &Device) {
        let Self { segment, regions, keys } = self;
        let limits = segment.limits();
        let mut next = segment.range().base();
        for (index, key) in (0..).zip(keys) {
            let parts: Vec<_> = segment.parts(index).collect();
            assert_eq!(device.presents(*key), parts, "the key presents what the segment says");
            assert!(parts.len() <= usize::from(limits.cap().entries()));
            let window = segment.window(index).unwrap();
            assert_eq!(window.base(), next);
            assert!(window.len_bytes() <= limits.window_bytes());
            for part in parts {
                assert_eq!(part.base(), next, "no gap, no overlap");
                assert!(part.len_bytes() > 0 && part.len_bytes() <= u64::from(limits.chunk().max_bytes()));
                assert!(part.len_bytes().is_multiple_of(u64::from(limits.chunk().alignment().bytes())));
                next = next.wrapping_add(part.len_bytes());
            }
            assert_eq!(window.base().wrapping_add(window.len_bytes()), next);
        }
        assert_eq!(next, segment.range().base().wrapping_add(segment.range().len_bytes()));
        assert_eq!((keys.len(), regions.len()), (segment.window_count() as usize, segment.part_count() as usize));
        assert_eq!(device.keys.len(), keys.len(), "retired keys do not pile up");
        assert_eq!(device.regions.len(), regions.len(), "nor do their regions");
    }
}
