//! Memory regions: which bytes a key reaches.

use bareverbs_core::verbs::{AccessFlags, Sge, WcStatus};

use crate::soft::bytes::{RegisteredMemory, Span, SpanMut};
use crate::soft::dma_buf::Attached;
use crate::soft::indirect_keys::{IndirectKeys, is_indirect};
use crate::soft::slab::Slab;

/// A region.
#[derive(Debug)]
pub(super) struct Region {
    pub handle: usize,
    pub domain: u32,
    /// What a request's address counts from.
    pub iova: u64,
    pub memory: RegisteredMemory,
    pub lkey: u32,
    pub access: AccessFlags,
    /// When it was registered, on the fabric's count of events.
    pub born: u64,
    /// The dma-buf that the memory is of; it goes after it.
    pub _attached: Option<Attached>,
}

/// The regions of a fabric.
#[derive(Debug)]
pub(super) struct Regions {
    all: Slab<Region>,
    next_tag: u8,
    /// Keys that present several regions as one.
    pub indirect: IndirectKeys,
}

impl Regions {
    pub(super) const fn new() -> Self {
        Self { all: Slab::new(), next_tag: 1, indirect: IndirectKeys::new() }
    }

    /// The index and the key that the next region will get. A key is never 0, and an index comes back with another key.
    pub(super) fn next(&self) -> (u32, u32) {
        let index = self.all.next_index();
        (index, (index + 1) << 8 | u32::from(self.next_tag))
    }

    pub(super) fn insert(&mut self, region: Region) {
        self.next_tag = self.next_tag.wrapping_add(1);
        self.all.insert(region);
    }

    pub(super) fn remove(&mut self, index: u32) -> Option<Region> {
        self.all.remove(index)
    }

    pub(super) fn get(&self, index: u32) -> Option<&Region> {
        self.all.get(index)
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    #[inline]
    fn by_key(&self, domain: u32, key: u32) -> Option<&Region> {
        let region = self.all.get((key >> 8).wrapping_sub(1))?;
        (region.lkey == key && region.domain == domain).then_some(region)
    }

    /// When the region of an entry was registered, if it has one.
    pub(super) fn born(&self, domain: u32, entry: &Sge) -> Option<u64> {
        Some(self.by_key(domain, entry.lkey)?.born)
    }

    #[inline]
    fn offset(region: &Region, address: u64) -> Option<usize> {
        usize::try_from(address.checked_sub(region.iova)?).ok()
    }

    /// The bytes of an entry of one region, to be read. Of an indirect key see [`Regions::each_span`].
    #[inline]
    pub(super) fn span(&self, domain: u32, entry: &Sge) -> Result<Span<'_>, WcStatus> {
        if entry.length == 0 {
            return Ok(Span::from(&[][..]));
        }
        self.by_key(domain, entry.lkey)
            .and_then(|region| region.memory.span(Self::offset(region, entry.addr)?, entry.length as usize))
            .ok_or(WcStatus::LOC_PROT_ERR)
    }

    /// Calls `action` on the parts of an entry in order, to be read; on none where one is out of reach.
    #[inline]
    pub(super) fn each_span(
        &self,
        domain: u32,
        entry: &Sge,
        mut action: impl FnMut(Span<'_>) -> Result<(), WcStatus>,
    ) -> Result<(), WcStatus> {
        if !is_indirect(entry.lkey) || entry.length == 0 {
            return action(self.span(domain, entry)?);
        }
        let parts = self.parts(domain, entry, 0, entry.length, AccessFlags::empty()).ok_or(WcStatus::LOC_PROT_ERR)?;
        parts.iter().try_for_each(|part| action(self.span(domain, part)?))
    }

    /// Calls `action` on the parts of the first `length_bytes` bytes of an entry after the first `skip_bytes`, to be written;
    /// on none where one is out of reach.
    #[inline]
    pub(super) fn each_span_mut(
        &self,
        domain: u32,
        entry: &Sge,
        skip_bytes: u32,
        length_bytes: u32,
        mut action: impl FnMut(SpanMut<'_>),
    ) -> Result<(), WcStatus> {
        if !is_indirect(entry.lkey) {
            action(self.span_mut(domain, entry, skip_bytes, length_bytes)?);
            return Ok(());
        }
        let parts = self.parts(domain, entry, skip_bytes, length_bytes, AccessFlags::LOCAL_WRITE);
        let parts = parts.ok_or(WcStatus::LOC_PROT_ERR)?;
        for part in &parts {
            self.span_mut(domain, part, 0, part.length)?;
        }
        parts.iter().try_for_each(|part| self.span_mut(domain, part, 0, part.length).map(&mut action))
    }

    /// What bytes of an indirect key's entry are in its regions, where each of them may be used so.
    #[cold]
    fn parts(
        &self,
        domain: u32,
        entry: &Sge,
        skip_bytes: u32,
        length_bytes: u32,
        needs: AccessFlags,
    ) -> Option<Vec<Sge>> {
        let offset = entry.addr.checked_add(skip_bytes.into())?;
        let parts = self.indirect.resolve(domain, entry.lkey, offset, length_bytes, needs)?;
        parts.iter().all(|part| self.reaches_region(domain, part, needs)).then_some(parts)
    }

    fn reaches_region(&self, domain: u32, part: &Sge, access: AccessFlags) -> bool {
        let region = self.by_key(domain, part.lkey).filter(|region| region.access.contains(access));
        region.and_then(|region| region.memory.span(Self::offset(region, part.addr)?, part.length as usize)).is_some()
    }

    /// The first `length_bytes` bytes of an entry of one region after the first `skip_bytes`, to be written.
    #[inline]
    pub(super) fn span_mut(
        &self,
        domain: u32,
        entry: &Sge,
        skip_bytes: u32,
        length_bytes: u32,
    ) -> Result<SpanMut<'_>, WcStatus> {
        self.by_key(domain, entry.lkey)
            .and_then(|region| {
                let offset = Self::offset(region, entry.addr)?.checked_add(skip_bytes as usize)?;
                region.memory.span_mut(offset, length_bytes as usize)
            })
            .ok_or(WcStatus::LOC_PROT_ERR)
    }

    /// Whether the other end of a connection may use an entry, whose key it was told, as `access` says.
    pub(super) fn reaches(&self, domain: u32, entry: &Sge, access: AccessFlags) -> bool {
        if entry.length == 0 {
            return true;
        }
        if is_indirect(entry.lkey) {
            return self.parts(domain, entry, 0, entry.length, access).is_some();
        }
        self.reaches_region(domain, entry, access)
    }

    /// Whether all entries may be read.
    #[inline]
    pub(super) fn check_read(&self, domain: u32, entries: &[Sge]) -> Result<(), WcStatus> {
        entries.iter().try_for_each(|entry| self.each_span(domain, entry, |_| Ok(())))
    }

    /// Whether the first `length_bytes` bytes of the entries may be written.
    #[inline]
    pub(super) fn check_write(&self, domain: u32, entries: &[Sge], length_bytes: u32) -> Result<(), WcStatus> {
        self.each_part(domain, entries, 0, length_bytes, |_| ())
    }

    /// Calls `action` on each part of the bytes `from_byte..to_byte` of the entries taken as one range.
    #[inline]
    pub(super) fn each_part(
        &self,
        domain: u32,
        entries: &[Sge],
        from_byte: u32,
        to_byte: u32,
        mut action: impl FnMut(SpanMut<'_>),
    ) -> Result<(), WcStatus> {
        let mut start = 0;
        for entry in entries {
            let end = u32::saturating_add(start, entry.length);
            let (first, last) = (from_byte.max(start), to_byte.min(end));
            if first < last {
                self.each_span_mut(domain, entry, first - start, last - first, &mut action)?;
            }
            start = end;
        }
        Ok(())
    }
}

/// What is wrong with the access that a region asks for, by the errno that the kernel answers.
pub(super) fn check_access(access: AccessFlags) -> Result<(), i32> {
    let known = AccessFlags::LOCAL_WRITE
        | AccessFlags::REMOTE_WRITE
        | AccessFlags::REMOTE_READ
        | AccessFlags::REMOTE_ATOMIC
        | AccessFlags::MW_BIND
        | AccessFlags::HUGETLB
        | AccessFlags::OPTIONAL_RANGE;
    let needs_local_write = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
    if !known.contains(access) {
        return Err(libc::EINVAL);
    }
    if access.intersects(needs_local_write) && !access.contains(AccessFlags::LOCAL_WRITE) {
        return Err(libc::EINVAL);
    }
    Ok(())
}

#[cfg(test)]
#[allow(unsafe_code, reason = "to register memory")]
mod tests {
    use super::*;

    fn regions(bytes: &mut [u8], iova: u64) -> (Regions, u32) {
        let mut regions = Regions::new();
        let (_, lkey) = regions.next();
        let address = bytes.as_mut_ptr().expose_provenance();
        // SAFETY: the tests keep the bytes for as long as the regions.
        let memory = unsafe { RegisteredMemory::new(address, bytes.len(), true) };
        let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
        regions.insert(Region { handle: 1, domain: 0, iova, memory, lkey, access, born: 0, _attached: None });
        (regions, lkey)
    }

    #[test]
    fn an_entry_is_checked_against_key_domain_and_both_ends() {
        let mut bytes = [0; 32];
        let (regions, lkey) = regions(&mut bytes, 1000);
        let entry = |addr, length| Sge { addr, length, lkey };
        assert!(regions.span(0, &entry(1000, 32)).is_ok());
        assert!(regions.span(0, &entry(1031, 1)).is_ok());
        for bad in
            [entry(999, 1), entry(1000, 33), entry(1032, 1), entry(u64::MAX, 1), Sge { lkey: 0, ..entry(1000, 1) }]
        {
            assert_eq!(regions.span(0, &bad).map(Span::len), Err(WcStatus::LOC_PROT_ERR), "{bad:?}");
        }
        assert!(regions.span(1, &entry(1000, 1)).is_err(), "another domain's key");
        assert!(regions.span(1, &entry(0, 0)).is_ok(), "an empty entry has no key");
    }

    #[test]
    fn a_key_dies_with_its_region_though_the_index_comes_back() {
        let mut bytes = [0; 32];
        let (mut regions, lkey) = regions(&mut bytes, 0);
        regions.remove(0);
        let (index, new_key) = regions.next();
        assert_eq!(index, 0);
        assert_ne!(new_key, lkey);
    }

    #[test]
    fn parts_of_several_entries_are_met_in_order() {
        let mut bytes = [0; 32];
        let (regions, lkey) = regions(&mut bytes, 0);
        let entries =
            [Sge { addr: 0, length: 4, lkey }, Sge { addr: 16, length: 0, lkey }, Sge { addr: 8, length: 4, lkey }];
        let mut lengths = Vec::new();
        regions.each_part(0, &entries, 2, 7, |span| lengths.push(span.len())).expect("all inside");
        assert_eq!(lengths, [2, 3]);
    }

    #[test]
    fn access_follows_the_kernel() {
        assert_eq!(check_access(AccessFlags::empty()), Ok(()));
        assert_eq!(check_access(AccessFlags::REMOTE_READ), Ok(()));
        assert_eq!(check_access(AccessFlags::REMOTE_WRITE), Err(22));
        assert_eq!(check_access(AccessFlags::REMOTE_WRITE | AccessFlags::LOCAL_WRITE), Ok(()));
        assert_eq!(check_access(AccessFlags::ON_DEMAND), Err(22));
        assert_eq!(check_access(AccessFlags::RELAXED_ORDERING), Ok(()));
    }
}
