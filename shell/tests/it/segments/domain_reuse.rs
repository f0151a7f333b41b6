//! Addresses that are used again: what is known of the memory that was there, by key, by a region or as beyond keys, is of no use
//! for what is there now, at whatever moment that changes.
//!
//! # Safety
//!
//! The function here stands in for one of the driver in software, and calls that with what it was given.
#![allow(unsafe_code)]

use std::collections::BTreeSet;
use std::ffi::c_void;
use std::sync::{Arc, Mutex};

use bareverbs_core::cuda::{CuResult, RangeHandleType};
use bareverbs_core::segments::{EntryCap, Ordinal};
use bareverbs_shell::cuda::CudaDriver;
use bareverbs_shell::segments::{
    BinderConfig, IdentityPolicy, MAX_SEGMENTS, SegmentDomain, SegmentDomainConfig, SegmentErrorKind,
};
use bareverbs_shell::soft::Answer;
use bareverbs_shell::soft::cuda::SoftCuda;
use bareverbs_shell::symbols::CudaSymbols;

use super::domain_scene::{M, MAX, Making, Scene, range, seen};
use crate::scene::ALL;
use crate::soft::raw::cuda::Driver;

/// Where the memory is that is swapped.
const AT: u64 = 0x7000_0000_0000;

#[test]
fn a_region_of_freed_memory_that_a_view_keeps_does_not_hide_the_one_of_what_is_there_now() {
    let scene = Making { provider: false, ..Making::default() }.scene();
    let base = scene.segment(M);
    let stale = scene.view(base, 4096);
    scene.cuda.unmap(base);
    scene.cuda.map(base, M);
    scene.soft.clear_record();
    let views: Vec<_> = (0..10).map(|_| scene.view(base, 4096)).collect();
    let keys: BTreeSet<_> = views.iter().map(|view| view.lkey()).collect();
    assert_eq!((scene.calls("ibv_reg_dmabuf_mr"), keys.len()), (1, 1), "they share one");
    let mut peer = scene.peer();
    peer.prove(&scene.cuda, &views[9]);
    peer.leave();
    drop((stale, views));
    scene.assert_all_goes();
}

#[test]
fn what_is_invalidated_while_another_scans_is_not_bound_by_that_scan() {
    for identity in [IdentityPolicy::Verify, IdentityPolicy::Trust] {
        for grows in [false, true] {
            let mut making = Making::default();
            making.config = making.config.identity(identity);
            let scene = making.scene();
            let base = scene.segment(M);
            let mut old = None;
            if grows {
                scene.scanner.shows(&[seen(base, M)]);
                old = Some(scene.view(base, 4096));
                scene.cuda.map(base + M, M);
            }
            let (size, tail) = if grows { (2 * M, base + M) } else { (M, base) };
            scene.scanner.shows(&[seen(base, size)]);
            let (scans, bound) = (scene.scanner.scans(), scene.bound().len());
            let (domain, cuda) = (Arc::clone(&scene.domain), scene.cuda.clone());
            scene.scanner.within(move || {
                cuda.unmap(tail);
                domain.invalidate(range(tail, M));
                cuda.map(tail, M);
            });
            let view = scene.view(tail, 4096);
            let counts = (scene.scanner.scans() - scans, scene.bound().len() - bound);
            assert_eq!(counts, (2, 1), "bound by the scan after it: {identity:?}, grows: {grows}");
            let mut peer = scene.peer();
            peer.prove(&scene.cuda, &view);
            peer.leave();
            drop((old, view));
            scene.assert_all_goes();
        }
    }
}

#[test]
fn what_is_mapped_where_something_was_beyond_keys_is_bound() {
    let scene = Scene::new();
    let base = scene.segment(M);
    scene.scanner.shows(&[seen(base, M)]);
    scene.soft.fail("mlx5dv_create_mkey", 1, Answer::null(libc::EOPNOTSUPP));
    drop(scene.view(base, 4096));
    assert_eq!((scene.domain.statistics().fallbacks, scene.live()), (1, (0, 0)));
    scene.cuda.unmap(base);
    scene.cuda.map(base, M);
    drop(scene.view(base, 4096));
    assert_eq!((scene.domain.statistics().fallbacks, scene.live()), (1, (1, 1)));
    scene.assert_all_goes();
}

#[test]
fn a_segment_that_was_longer_than_all_keys_is_bound_once_it_has_shrunk_at_either_end() {
    for end_goes in [true, false] {
        let mut making = Making::default();
        let one = EntryCap::new(1).expect("an entry");
        making.config = making.config.binder(BinderConfig::default().max_entries(one));
        let scene = making.scene();
        // Keys of one region, of which a segment has 256.
        let (kept, rest) = (2 * M, 258 * MAX);
        let base = scene.cuda.reserve(0, 1 << 41);
        let parts = if end_goes { [(base, kept), (base + kept, rest)] } else { [(base + rest, kept), (base, rest)] };
        parts.iter().for_each(|(at, len_bytes)| scene.cuda.map(*at, *len_bytes));
        let [(stays, _), (goes, _)] = parts;
        scene.scanner.shows(&[seen(base, kept + rest)]);
        for _ in 0..2 {
            drop(scene.view(stays, 4096));
        }
        let statistics = scene.domain.statistics();
        assert_eq!((statistics.fallbacks, statistics.scans, statistics.keys), (2, 1, 0));
        scene.cuda.unmap(goes);
        scene.scanner.shows(&[seen(stays, kept)]);
        let view = scene.view(stays, 4096);
        assert_eq!((scene.domain.statistics().fallbacks, scene.live()), (2, (1, 1)), "end goes: {end_goes}");
        let mut peer = scene.peer();
        peer.prove(&scene.cuda, &view);
        peer.leave();
        drop(view);
        scene.assert_all_goes();
    }
}

#[test]
fn a_segment_for_which_there_was_no_room_is_bound_once_there_is() {
    let scene = Scene::new();
    // Somebody else keeps the context: it does not end after each export.
    Driver(scene.cuda.symbols()).retain_primary(0).expect("a context");
    let count = MAX_SEGMENTS as u64 + 1;
    let base = scene.cuda.reserve(0, 2 * M * count);
    let segments: Vec<_> = (0..count).map(|at| seen(base + 2 * M * at, M)).collect();
    segments.iter().for_each(|segment| scene.cuda.map(segment.address, M));
    scene.scanner.shows(&segments);
    let last = base + 2 * M * (count - 1);
    for _ in 0..2 {
        drop(scene.view(last, 4096));
    }
    let statistics = scene.domain.statistics();
    let counts = (statistics.segments, statistics.fallbacks, statistics.scans);
    assert_eq!(counts, (count - 1, 2, 1), "no room, and no scan in vain");
    scene.cuda.unmap(base);
    scene.scanner.shows(&segments[1..]);
    scene.domain.invalidate(range(base, M));
    let view = scene.view(last, 4096);
    let statistics = scene.domain.statistics();
    assert_eq!((statistics.segments, statistics.fallbacks, statistics.scans), (count - 1, 2, 2));
    drop(view);
    scene.assert_all_goes();
}

type Export = unsafe extern "C" fn(*mut c_void, u64, usize, RangeHandleType, u64) -> CuResult;

/// The driver's function, where memory is swapped after it, and how often yet.
static SWAPS: Mutex<Option<(Export, SoftCuda, u32)>> = Mutex::new(None);

/// Exports, and then swaps the memory for other.
unsafe extern "C" fn export_and_swap(
    handle: *mut c_void,
    address: u64,
    size: usize,
    kind: RangeHandleType,
    flags: u64,
) -> CuResult {
    let mut swaps = SWAPS.lock().expect("whole");
    let Some((export, cuda, left)) = swaps.as_mut() else { return CuResult::INVALID_VALUE };
    // SAFETY: the arguments are those that this was called with, whose promises are the same.
    let answer = unsafe { export(handle, address, size, kind, flags) };
    if *left > 0 {
        *left -= 1;
        cuda.free(AT);
        cuda.allocate_at(0, AT, M);
    }
    answer
}

#[test]
fn memory_that_is_swapped_while_it_gets_a_region_of_its_own_is_registered_anew_and_refused_if_that_goes_on() {
    let scene = Making { provider: false, ..Making::default() }.scene();
    scene.cuda.allocate_at(0, AT, M);
    let mut table = scene.cuda.symbols().table().clone();
    let export = table.mem_get_handle_for_address_range.replace(export_and_swap).expect("it exports");
    let swaps = |count| *SWAPS.lock().expect("whole") = Some((export, scene.cuda.clone(), count));
    // SAFETY: the table is the driver's in software, but for one function of the same type that calls it.
    let driver = CudaDriver::with_symbols(Arc::new(unsafe { CudaSymbols::new(table) }));
    let config = SegmentDomainConfig::default().given([Ordinal(0)]).access(ALL);
    let domain = SegmentDomain::new(&scene.pd, driver, None, config).expect("a device that can be asked");
    swaps(1);
    let view = domain.register(AT, 4096).expect("it changed once");
    let mut peer = scene.peer();
    peer.prove(&scene.cuda, &view);
    peer.leave();
    drop(view);
    let exported = scene.exported().len();
    swaps(u32::MAX);
    assert_eq!(domain.register(AT, 4096).expect_err("it changes each time").kind, SegmentErrorKind::Changing);
    assert_eq!((scene.exported().len() - exported, scene.live()), (3, (0, 0)));
    *SWAPS.lock().expect("whole") = None;
    drop(domain);
    scene.assert_all_goes();
}
