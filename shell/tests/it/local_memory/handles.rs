//! Handles: what clones share and separate ones do not, weak handles, what goes before what.
//!
//! # Safety
//!
//! The owners here own what nobody reaches.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bareverbs_core::access::AccessRefused;
use bareverbs_core::link::FrameStorage;
use bareverbs_core::view::{DeviceName, KeyedRange};
use bareverbs_shell::memory::pages::Pages;
use bareverbs_shell::memory::{
    Backend, Keepalive, LocalMemory, LocalMemoryError, OwnedBytes, PLACEHOLDER_HOST_BYTES_PER_S, Registered,
    UpgradeError, View, ViewGuard, WeakKeepalive,
};

use super::{content, device, fake_failure, fake_view, host_memory};

#[test]
fn boxes_vectors_static_storage_and_pages_are_memory_that_can_be_read_and_written() {
    static STORAGE: FrameStorage<8192> = FrameStorage::new();
    let storage = STORAGE.claim().expect("nobody else has it");
    let owners: [(LocalMemory, usize); 4] = [
        (LocalMemory::new(OwnedBytes::from(vec![0; 100])).expect("host memory"), 100),
        (LocalMemory::new(OwnedBytes::from(vec![0; 7].into_boxed_slice())).expect("host memory"), 7),
        (LocalMemory::new(storage).expect("host memory"), 8192),
        (LocalMemory::new(Pages::new(1).expect("a page")).expect("host memory"), 4096),
    ];
    for (memory, least) in owners {
        assert!(memory.size() >= least);
        let last = memory.size() - 1;
        // SAFETY: nobody else knows the bytes.
        unsafe { memory.write_at(last, &[9]) }.expect("inside");
        let read = content(&memory);
        assert_eq!((read[last], read[..last].iter().all(|byte| *byte == 0)), (9, true));
    }
}

#[test]
fn clones_share_registrations_and_lock_and_separate_handles_over_the_same_memory_share_nothing() {
    let bytes = OwnedBytes::from(vec![0; 8]);
    let memory = LocalMemory::new(bytes.clone()).expect("host memory");
    let (clone, other) = (memory.clone(), LocalMemory::new(bytes).expect("host memory"));
    assert_eq!(memory.addr(), other.addr());
    memory.registrations(Backend::VERBS).install(fake_view(memory.bytes(), "d", 1).0).expect("the first");
    let _alone = memory.access_lock().exclusive();
    assert_eq!(clone.registrations(Backend::VERBS).registered("d").view().map(|view| view.lkey()), Some(1));
    assert_eq!(clone.access_lock().try_read().err(), Some(AccessRefused::Busy));
    assert!(matches!(other.registrations(Backend::VERBS).registered("d"), Registered::Nothing));
    assert!(other.access_lock().try_exclusive().is_ok());
}

/// An owner whose address and size a test changes, and that notes its end.
struct Restless {
    place: Arc<Place>,
    ended: Arc<Mutex<Vec<&'static str>>>,
}

struct Place {
    addr: AtomicUsize,
    size: AtomicUsize,
}

// SAFETY: 1: a test changes it only where the change is what is tested. 2, 3: nobody reaches the bytes. 4: it owns none.
unsafe impl Keepalive for Restless {
    fn addr(&self) -> usize {
        self.place.addr.load(Ordering::Relaxed)
    }

    fn size(&self) -> usize {
        self.place.size.load(Ordering::Relaxed)
    }

    fn downgrade(&self) -> Option<Arc<dyn WeakKeepalive>> {
        Some(Arc::new(WeakRestless { place: Arc::downgrade(&self.place), ended: Arc::clone(&self.ended) }))
    }
}

impl Drop for Restless {
    fn drop(&mut self) {
        self.ended.lock().expect("no panic").push("memory");
    }
}

struct WeakRestless {
    place: std::sync::Weak<Place>,
    ended: Arc<Mutex<Vec<&'static str>>>,
}

impl WeakKeepalive for WeakRestless {
    fn upgrade(&self) -> Option<Arc<dyn Keepalive>> {
        Some(Arc::new(Restless { place: self.place.upgrade()?, ended: Arc::clone(&self.ended) }))
    }
}

fn restless(addr: usize, size: usize) -> (Arc<Place>, Restless, Arc<Mutex<Vec<&'static str>>>) {
    let place = Arc::new(Place { addr: AtomicUsize::new(addr), size: AtomicUsize::new(size) });
    let ended = Arc::default();
    (Arc::clone(&place), Restless { place, ended: Arc::clone(&ended) }, ended)
}

#[test]
fn a_weak_handle_whose_owner_moved_or_changed_size_is_not_upgraded_and_says_why() {
    let (place, owner, _) = restless(0x1000, 64);
    let memory = LocalMemory::new(owner).expect("host memory");
    let weak = memory.downgrade().expect("it has a weak form");
    assert!(weak.upgrade().is_ok());
    place.addr.store(0x2000, Ordering::Relaxed);
    let error = weak.upgrade().expect_err("another address");
    assert_eq!(error, UpgradeError::Moved { was: 0x1000, now: 0x2000 });
    assert!(error.to_string().contains("0x1000") && error.to_string().contains("0x2000"), "{error}");
    place.addr.store(0x1000, Ordering::Relaxed);
    place.size.store(65, Ordering::Relaxed);
    let error = weak.upgrade().expect_err("another size");
    assert_eq!(error, UpgradeError::Resized { was: 64, now: 65 });
    assert!(error.to_string().contains("64") && error.to_string().contains("65"), "{error}");
    place.size.store(64, Ordering::Relaxed);
    assert!(weak.upgrade().is_ok());
    drop((memory, place));
    assert_eq!(weak.upgrade().expect_err("nobody has it"), UpgradeError::Gone);
}

#[test]
fn a_weak_handle_shares_lock_and_failures_and_while_a_handle_lives_views_too() {
    let bytes = OwnedBytes::from(vec![0; 8]);
    let memory = LocalMemory::new(bytes.clone()).expect("host memory");
    let weak = memory.downgrade().expect("it has a weak form");
    let registrations = memory.registrations(Backend::VERBS);
    let (view, gone) = fake_view(memory.bytes(), "d0", 1);
    registrations.install(view).expect("the first");
    let failure = fake_failure(memory.bytes(), "d1", libc::EAGAIN, "ibv_reg_mr");
    let recorded = registrations.record_failure(failure).expect("nothing is in force");
    let again = weak.upgrade().expect("it lives");
    {
        let _alone = again.access_lock().exclusive();
        assert_eq!(memory.access_lock().try_read().err(), Some(AccessRefused::Busy));
    }
    assert_eq!(again.registrations(Backend::VERBS).registered("d0").view().map(|view| view.lkey()), Some(1));
    assert_eq!(again.registrations(Backend::VERBS).registered("d1").failure(), Some(recorded.clone()));
    // The last handle takes its views with it: they would keep the memory that the weak handle does not.
    drop(memory);
    assert_eq!(gone.load(Ordering::Relaxed), 0);
    drop(again);
    assert_eq!(gone.load(Ordering::Relaxed), 1);
    let anew = weak.upgrade().expect("its owner lives");
    assert!(matches!(anew.registrations(Backend::VERBS).registered("d0"), Registered::Nothing));
    assert_eq!(anew.registrations(Backend::VERBS).registered("d1").failure(), Some(recorded));
    drop((anew, bytes));
    assert_eq!(weak.upgrade().expect_err("nobody has it"), UpgradeError::Gone);
}

#[test]
fn an_owner_without_a_weak_form_gives_no_weak_handle() {
    let memory = LocalMemory::new(Pages::new(1).expect("a page")).expect("host memory");
    assert!(memory.downgrade().is_none());
}

#[test]
fn an_owner_whose_bytes_would_wrap_gets_no_handle() {
    let (_, owner, _) = restless(usize::MAX, 2);
    assert!(matches!(LocalMemory::new(owner).expect_err("it wraps"), LocalMemoryError::Range(_)));
    let (_, owner, _) = restless(usize::MAX, 1);
    assert!(LocalMemory::new(owner).is_ok(), "it ends at the top");
}

/// A registration that holds nothing of the memory, and notes its end.
struct Loose {
    name: DeviceName,
    ended: Arc<Mutex<Vec<&'static str>>>,
}

impl ViewGuard for Loose {
    fn device(&self) -> &DeviceName {
        &self.name
    }
}

impl Drop for Loose {
    fn drop(&mut self) {
        self.ended.lock().expect("no panic").push("registration");
    }
}

#[test]
fn registrations_go_before_the_memory_also_those_that_hold_nothing_of_it() {
    let (place, owner, ended) = restless(0x1000, 64);
    let memory = LocalMemory::new(owner).expect("host memory");
    drop(place);
    for name in ["d0", "d1"] {
        let range = KeyedRange::new(0x1000, 0x1000, 64, 1, 1).expect("bytes");
        let guard = Loose { name: device(name), ended: Arc::clone(&ended) };
        // SAFETY: 1, 2: no device knows the key. 3: the name is the guard's own.
        let view = unsafe { View::new(range, Arc::new(guard)) };
        memory.registrations(Backend::VERBS).install(view).expect("the first");
    }
    let clone = memory.clone();
    drop(memory);
    assert!(ended.lock().expect("no panic").is_empty());
    drop(clone);
    assert_eq!(*ended.lock().expect("no panic"), ["registration", "registration", "memory"]);
}

#[test]
fn debug_shows_place_and_bandwidths_and_not_the_owner() {
    let memory = host_memory(&[0; 77]);
    let text = format!("{memory:?}");
    let bandwidth = format!("host_bytes_per_s: Some({PLACEHOLDER_HOST_BYTES_PER_S})");
    let addr = format!("addr: {:#x}", memory.addr());
    for part in [addr.as_str(), "size: 77", "Host { numa: None }", &bandwidth, "device_bytes_per_s: None"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(!text.contains("keepalive") && !text.contains("OwnedBytes") && !text.contains("Allocation"), "{text}");
}

#[test]
fn a_lease_keeps_the_generation_until_it_is_withdrawn_and_acknowledged() {
    let memory = host_memory(&[0; 64]);
    for (acknowledged, withdrawn_first) in [(false, true), (true, true), (true, false)] {
        let (view, gone) = fake_view(memory.bytes(), "d", 7);
        let lease = view.publish().expect("it has a key for others");
        let remote = *lease.remote();
        assert_eq!((remote.key_addr(), remote.len_bytes(), remote.rkey()), (memory.addr() as u64, 64, 7));
        assert_eq!(remote.device().as_str(), "d");
        let acknowledgement = acknowledged.then(|| lease.acknowledgement());
        drop(view);
        let live = |count: &Arc<AtomicU32>| count.load(Ordering::Relaxed) == 0;
        assert!(live(&gone));
        match (acknowledgement, withdrawn_first) {
            (None, _) => lease.withdraw(),
            (Some(acknowledgement), true) => {
                lease.withdraw();
                assert!(live(&gone), "the peer's word has not come");
                acknowledgement.came();
            }
            (Some(acknowledgement), false) => {
                acknowledgement.came();
                assert!(live(&gone), "the lease is not withdrawn");
                lease.withdraw();
            }
        }
        assert!(!live(&gone));
    }
}

#[test]
fn a_view_without_a_key_for_others_is_not_published_and_a_part_is_published_as_a_part() {
    let memory = host_memory(&[0; 64]);
    let (view, _) = fake_view(memory.bytes(), "d", 0);
    assert!(view.publish().expect_err("no rkey").to_string().contains("device d"));
    let (view, gone) = fake_view(memory.bytes(), "d", 5);
    let part = view.part(16, 8).expect("inside");
    assert!(view.part(60, 5).is_err() && view.part(0, 0).is_err());
    drop(view);
    let lease = part.publish().expect("it has a key for others");
    assert_eq!((lease.remote().key_addr(), lease.remote().len_bytes()), (memory.addr() as u64 + 16, 8));
    drop(part);
    assert_eq!(gone.load(Ordering::Relaxed), 0);
    drop(lease);
    assert_eq!(gone.load(Ordering::Relaxed), 1);
}
