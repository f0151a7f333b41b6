//! What a key may permit: as much as each of its regions does, and no more.

use std::sync::Arc;

use bareverbs_core::verbs::AccessFlags;
use bareverbs_shell::memory::PublishError;
use bareverbs_shell::memory::pages::Pages;
use bareverbs_shell::objects::MemoryRegion;
use bareverbs_shell::segments::{BINDABLE_ACCESS, BindError};

use super::binding_scene::{Bench, M, mlx5, range};
use crate::scene::ALL;

const PART_BYTES: usize = 4096;

/// A region over the n-th of these pages.
fn region(bench: &Bench, pages: &Arc<Pages>, n: usize, access: AccessFlags) -> Arc<MemoryRegion> {
    let at = pages.start().as_ptr().expose_provenance() + n * PART_BYTES;
    let keeper = Some(Arc::clone(pages) as _);
    #[allow(unsafe_code)]
    // SAFETY: the pages are kept by the region, and nobody has a reference to them.
    let region = unsafe { MemoryRegion::register(&bench.domain, at, PART_BYTES, access, keeper) };
    Arc::new(region.expect("a region"))
}

/// Every set of the bits that a binding can give.
fn every_access() -> impl Iterator<Item = AccessFlags> {
    (0..=BINDABLE_ACCESS.bits()).map(AccessFlags::from_bits_retain)
}

/// Whether a device registers so: what others may write, the device itself may.
fn can_be_registered(access: AccessFlags) -> bool {
    access.contains(AccessFlags::LOCAL_WRITE)
        || !access.intersects(AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC)
}

#[test]
fn a_key_is_given_what_each_region_permits_or_less_and_otherwise_refused_before_any_call() {
    let bench = Bench::new(mlx5("permits"), M);
    let pages = Arc::new(Pages::new(2 * PART_BYTES).expect("pages"));
    let base = pages.start().as_ptr().expose_provenance() as u64;
    let whole = range(base, 2 * PART_BYTES as u64);
    for has in every_access().filter(|access| can_be_registered(*access)) {
        let parts = [region(&bench, &pages, 0, ALL), region(&bench, &pages, 1, has)];
        assert_eq!([parts[0].access(), parts[1].access()], [ALL, has]);
        for asked in every_access() {
            bench.soft.clear_record();
            let bound = bench.binder.bind(asked, parts.to_vec(), whole);
            if (has & ALL).contains(asked) {
                assert_eq!(bound.map(|window| window.access()), Ok(asked));
                continue;
            }
            // The first region that permits less is named.
            let short = if ALL.contains(asked) { &parts[1] } else { &parts[0] };
            let (device, range, access) = ("permits".into(), short.range(), short.access());
            assert_eq!(bound.map(|_| ()), Err(BindError::RegionAccess { device, range, access, got: asked }));
            assert!(bench.soft.record().is_empty(), "{:?}", bench.soft.record());
        }
    }
    bench.assert_all_goes();
}

#[test]
fn memory_that_others_may_read_at_most_is_not_written_through_a_key() {
    let (bench, mut peer) = Bench::with_peer(mlx5("unwritten"), M);
    let pages = Arc::new(Pages::new(PART_BYTES).expect("pages"));
    let region = region(&bench, &pages, 0, AccessFlags::REMOTE_READ);
    let range = region.range();
    let refused = bench.binder.bind(ALL, vec![Arc::clone(&region)], range).map(|_| ());
    assert!(matches!(refused, Err(BindError::RegionAccess { .. })), "{refused:?}");
    let window = bench.binder.bind(AccessFlags::REMOTE_READ, vec![region], range).expect("bound");
    let lease = window.view(range).expect("within").publish().expect("a key for others");
    assert_eq!(peer.read(lease.remote()), Some(vec![0; PART_BYTES]));
    assert!(!peer.write(lease.remote(), &[9; PART_BYTES]));
    #[allow(unsafe_code)]
    // SAFETY: the pages live, and nothing is on its way.
    let first = unsafe { pages.start().as_ptr().cast::<u8>().read_volatile() };
    assert_eq!(first, 0);
    drop((lease, window, peer));
    bench.assert_all_goes();
}

#[test]
fn a_view_tells_what_its_key_permits_and_one_that_permits_others_nothing_is_not_published() {
    let bench = Bench::new(mlx5("tells"), M);
    let pages = Arc::new(Pages::new(PART_BYTES).expect("pages"));
    let region = region(&bench, &pages, 0, ALL);
    let range = region.range();
    for access in [AccessFlags::LOCAL_WRITE, AccessFlags::REMOTE_READ, ALL] {
        let window = bench.binder.bind(access, vec![Arc::clone(&region)], range).expect("bound");
        let view = window.view(range).expect("within");
        assert_eq!(view.access(), Some(access));
        let published = view.publish().map(|_| ());
        if access == AccessFlags::LOCAL_WRITE {
            assert_eq!(published, Err(PublishError::NothingPermitted { device: *view.device(), access }));
        } else {
            assert_eq!(published, Ok(()));
        }
    }
    drop(region);
    bench.assert_all_goes();
}
