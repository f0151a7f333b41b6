//! Host memory on a device: limits and parts, access, domains, and teardown that asks nobody (case G3, host memory).
//!
//! # Safety
//!
//! The owner here owns bytes that a test keeps, and counts who asks it.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use bareverbs_core::verbs::AccessFlags;
use bareverbs_core::view::RegionRefused;
use bareverbs_shell::Error;
use bareverbs_shell::memory::pages::Pages;
use bareverbs_shell::memory::{
    Backend, HostDomain, Keepalive, LocalMemory, OwnedBytes, PublishError, RegisterError, Registered, WeakKeepalive,
};
use bareverbs_shell::objects::{DeviceContext, ProtectionDomain};
use bareverbs_shell::soft::{Answer, Detail, Limits, LiveCounts, Record, SoftConfig, SoftDevice, SoftFabric};

use super::{device, fake_view, host_memory};
use crate::drop_log;
use crate::ledger::{Ledger, calls_of};

fn scene(device: SoftDevice) -> (SoftFabric, Arc<ProtectionDomain>) {
    let config = SoftConfig::default().devices(vec![device]).record(Record::Bounded(1000));
    let soft = SoftFabric::new(config).expect("a free slot");
    let context = DeviceContext::open(&soft.symbols(), None).expect("the device");
    let domain = ProtectionDomain::new(&context, 1).expect("a domain");
    (soft, domain)
}

fn plain() -> (SoftFabric, Arc<ProtectionDomain>, HostDomain) {
    let (soft, domain) = scene(SoftDevice::new("soft0"));
    let host = HostDomain::new(&domain).expect("the device can be asked");
    (soft, domain, host)
}

fn limited(limit: u64) -> (SoftFabric, HostDomain) {
    let limits = Limits { region_bytes: limit, ..Limits::default() };
    let (soft, domain) = scene(SoftDevice::new("soft0").limits(limits));
    (soft, HostDomain::new(&domain).expect("the device can be asked"))
}

#[test]
fn a_view_has_the_regions_numbers_and_the_memorys_place() {
    let (soft, domain, host) = plain();
    let memory = host_memory(&[0; 100]);
    let view = host.register(&memory).expect("the library takes it");
    assert_eq!((view.addr(), view.key_addr(), view.len_bytes()), (memory.addr() as u64, memory.addr() as u64, 100));
    assert_eq!(view.device(), host.device());
    assert!(view.protection_domain().is_some_and(|of| Arc::ptr_eq(of, &domain)));
    assert!(view.lkey() != 0 && view.rkey() != 0);
    let record = soft.record();
    let asked = record.iter().find(|call| call.symbol == "ibv_reg_mr").expect("it was called");
    let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ;
    assert_eq!(asked.detail, Detail::Register { address: memory.addr(), length_bytes: 100, access });
}

#[test]
fn nothing_is_refused_typed_without_a_call_or_a_record() {
    let (soft, _, host) = plain();
    let memory = host_memory(&[]);
    let refused = RegisterError::Region { device: device("soft0"), refused: RegionRefused::Empty };
    assert_eq!(host.register(&memory).map(drop), Err(refused.clone()));
    assert_eq!(host.register_parts(&memory).map(drop), Err(refused));
    assert_eq!(calls_of(&soft.record(), "ibv_reg_mr"), 0);
    assert!(matches!(memory.registrations(Backend::VERBS).registered("soft0"), Registered::Nothing));
}

#[test]
fn the_devices_limit_is_taken_and_a_byte_more_is_refused_by_name_or_given_in_parts() {
    for (len, parts) in [(4095, 1), (4096, 1), (4097, 2), (3 * 4096, 3)] {
        let (soft, host) = limited(4096);
        let memory = LocalMemory::new(OwnedBytes::from(vec![0; len])).expect("host memory");
        match host.register(&memory) {
            Ok(view) => assert!(parts == 1 && view.len_bytes() == len as u64),
            Err(error) => {
                let refused = RegionRefused::TooLarge { len_bytes: len as u64, limit_bytes: 4096 };
                assert_eq!(error, RegisterError::Region { device: device("soft0"), refused });
                assert!(error.to_string().contains("4096") && error.to_string().contains("max_mr_size"), "{error}");
                assert_eq!(calls_of(&soft.record(), "ibv_reg_mr"), 0);
            }
        }
        let views = host.register_parts(&memory).expect("parts that the device takes");
        assert_eq!(views.len(), parts);
        let mut next = memory.addr() as u64;
        for view in &views {
            assert_eq!(view.addr(), next);
            next += view.len_bytes();
        }
        assert_eq!(next, (memory.addr() + len) as u64);
    }
}

#[test]
fn a_part_that_is_refused_takes_those_before_it_along() {
    let (soft, host) = limited(4096);
    let memory = host_memory(&[0; 3 * 4096]);
    soft.fail("ibv_reg_mr", 3, Answer::null(libc::ENOMEM));
    let RegisterError::Failed(failure) = host.register_parts(&memory).expect_err("the third part is refused") else {
        panic!("the device refused")
    };
    assert_eq!((failure.region().base(), failure.region().len_bytes()), (memory.addr() as u64 + 8192, 4096));
    assert!(!failure.is_recorded() && !failure.to_string().contains("forgotten"), "{failure}");
    assert_eq!((calls_of(&soft.record(), "ibv_reg_mr"), soft.live().mrs), (3, 0));
    assert_eq!(host.register_parts(&memory).map(|views| views.len()), Ok(3), "nothing is recorded");
}

#[test]
fn thunderbolt_takes_whole_pages_only() {
    let (soft, domain) = scene(SoftDevice::thunderbolt("rdma_en2"));
    let host = HostDomain::new(&domain).expect("the device needs not be asked");
    let pages = LocalMemory::new(Pages::new(1).expect("a page")).expect("host memory");
    assert!(host.register(&pages).is_ok());
    let error = host.register(&host_memory(&[0; 100])).expect_err("no page");
    assert!(matches!(error, RegisterError::Region { refused: RegionRefused::NotPages { .. }, .. }), "{error}");
    assert_eq!(calls_of(&soft.record(), "ibv_reg_mr"), 1);
}

#[test]
fn relaxed_ordering_is_off_unless_asked_for_and_goes_by_the_newer_call() {
    let (soft, _, host) = plain();
    let relaxed = host.clone().access(HostDomain::ACCESS | AccessFlags::RELAXED_ORDERING);
    assert!(!HostDomain::ACCESS.intersects(AccessFlags::OPTIONAL_RANGE));
    let (one, other) = (host_memory(&[0; 8]), host_memory(&[0; 8]));
    host.register(&one).expect("the library takes it");
    assert_eq!(calls_of(&soft.record(), "ibv_reg_mr_iova2"), 0);
    relaxed.register(&other).expect("the library takes it");
    assert_eq!(calls_of(&soft.record(), "ibv_reg_mr_iova2"), 1);
}

#[test]
fn memory_registered_in_another_domain_of_the_device_is_refused_and_not_given_out_under_wrong_keys() {
    let (soft, domain, host) = plain();
    let memory = host_memory(&[0; 8]);
    let view = host.register(&memory).expect("the library takes it");
    let second = ProtectionDomain::new(domain.context(), 1).expect("a domain");
    let second = HostDomain::new(&second).expect("the device can be asked");
    let error = second.register(&memory).expect_err("the other's keys");
    assert_eq!(error, RegisterError::OtherDomain { device: device("soft0") });
    assert_eq!(calls_of(&soft.record(), "ibv_reg_mr"), 1);
    assert_eq!(host.register(&memory).map(|again| again.lkey()), Ok(view.lkey()));
}

#[test]
fn a_hit_by_a_domain_is_the_view_in_force_there_and_nothing_in_another_domain_or_before() {
    let (_soft, domain, host) = plain();
    let memory = host_memory(&[0; 8]);
    assert!(host.registered(&memory).is_none());
    let view = host.register(&memory).expect("the library takes it");
    assert_eq!(host.registered(&memory).map(|hit| hit.lkey()), Some(view.lkey()));
    assert_eq!(host.clone().registered(&memory.clone()).map(|hit| hit.lkey()), Some(view.lkey()));
    let second = HostDomain::new(&ProtectionDomain::new(domain.context(), 1).expect("a domain"));
    assert!(second.expect("the device can be asked").registered(&memory).is_none(), "the other's keys");
}

#[test]
fn a_view_in_force_that_names_no_domain_is_any_domains_of_its_device() {
    let (soft, _, host) = plain();
    let memory = host_memory(&[0; 8]);
    let (view, _) = fake_view(memory.bytes(), host.device().as_str(), 77);
    memory.registrations(Backend::VERBS).install(view).expect("nothing is in force");
    assert_eq!(host.registered(&memory).map(|hit| hit.lkey()), Some(77));
    assert_eq!(host.register(&memory).map(|view| view.lkey()), Ok(77));
    assert_eq!(soft.live().mrs, 0, "none was registered beside it");
}

#[test]
fn a_view_tells_its_access_and_one_that_permits_others_nothing_is_not_published() {
    let (_soft, _, host) = plain();
    let local = AccessFlags::LOCAL_WRITE;
    let published = [AccessFlags::REMOTE_READ, local | AccessFlags::REMOTE_WRITE, local | AccessFlags::REMOTE_ATOMIC];
    for (access, is_published) in
        [(AccessFlags::empty(), false), (local, false)].into_iter().chain(published.map(|of| (of, true)))
    {
        let memory = host_memory(&[0; 8]);
        let view = host.clone().access(access).register(&memory).expect("the library takes it");
        let part = view.part(1, 1).expect("inside");
        assert_eq!((view.access(), part.access()), (Some(access), Some(access)));
        // What is in force stays as it was registered.
        assert_eq!(host.register(&memory).map(|again| again.access()), Ok(Some(access)));
        let device = device("soft0");
        match part.publish() {
            Ok(_) => assert!(is_published, "{access:?}"),
            Err(error) => assert_eq!((error, is_published), (PublishError::NothingPermitted { device, access }, false)),
        }
    }
}

#[test]
fn what_is_printed_of_views_and_leases_has_no_key() {
    let (_soft, _, host) = plain();
    let lease = host.register(&host_memory(&[0; 8])).expect("the library takes it").publish().expect("a key");
    let (view, remote) = (lease.view(), lease.remote());
    let texts = [format!("{view:?}"), format!("{:?}", view.range()), format!("{remote:?}"), format!("{lease:?}")];
    for (text, key) in texts.iter().flat_map(|text| [view.lkey(), view.rkey()].map(|key| (text, key))) {
        let numbers: Vec<&str> = text.split(|c: char| !c.is_ascii_alphanumeric()).collect();
        let is_there = [key.to_string(), format!("{key:#x}")].iter().any(|key| numbers.contains(&key.as_str()));
        assert!(!is_there && !text.contains("rkey") && text.contains("8 bytes"), "{text}");
    }
}

#[test]
fn a_device_that_cannot_be_asked_is_an_error_and_a_library_that_cannot_ask_sets_no_limit() {
    let (soft, domain) = scene(SoftDevice::new("soft0"));
    soft.fail_from("ibv_query_device", 1, Answer::returned(libc::EIO));
    assert!(matches!(HostDomain::new(&domain), Err(Error::Call(_))));
    let soft = SoftFabric::new(SoftConfig::default().without("ibv_query_device")).expect("a free slot");
    let context = DeviceContext::open(&soft.symbols(), None).expect("the device");
    let domain = ProtectionDomain::new(&context, 1).expect("a domain");
    assert_eq!(HostDomain::new(&domain).map(|host| host.rules().limit_bytes()), Ok(u64::MAX));
}

/// An owner that notes who asks it, and when it ends.
struct Asked {
    bytes: OwnedBytes,
    asked: Arc<AtomicU32>,
    ended: Arc<Mutex<Vec<usize>>>,
    soft: SoftFabric,
}

impl Asked {
    fn count(&self) {
        self.asked.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: 1 to 4 are its bytes' own.
unsafe impl Keepalive for Asked {
    fn addr(&self) -> usize {
        self.count();
        self.bytes.addr()
    }

    fn size(&self) -> usize {
        self.count();
        self.bytes.size()
    }

    fn downgrade(&self) -> Option<Arc<dyn WeakKeepalive>> {
        self.count();
        None
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.ended.lock().expect("no panic").push(self.soft.live().mrs);
    }
}

/// Every order of four things.
fn orders() -> Vec<[usize; 4]> {
    let mut all = Vec::new();
    for code in 0..256_usize {
        let order = [code & 3, code >> 2 & 3, code >> 4 & 3, code >> 6];
        if (0..4).all(|thing| order.contains(&thing)) {
            all.push(order);
        }
    }
    all
}

#[test]
fn g3_dropping_view_handle_and_domain_in_any_order_asks_the_owner_nothing() {
    for order in orders() {
        for elsewhere in [false, true] {
            let (soft, domain, host) = plain();
            let (asked, ended) = (Arc::new(AtomicU32::new(0)), Arc::new(Mutex::new(Vec::new())));
            let bytes = OwnedBytes::from(vec![0; 2 << 20]);
            let owner = Asked { bytes, asked: Arc::clone(&asked), ended: Arc::clone(&ended), soft: soft.clone() };
            let memory = LocalMemory::new(owner).expect("host memory");
            let view = host.register(&memory).expect("the library takes it");
            let before = asked.load(Ordering::Relaxed);
            let mut things: [Option<Box<dyn std::any::Any + Send>>; 4] =
                [Some(Box::new(view)), Some(Box::new(memory)), Some(Box::new(host)), Some(Box::new(domain))];
            let mut drop_all = || order.iter().for_each(|thing| drop(things[*thing].take()));
            if elsewhere {
                std::thread::scope(|threads| threads.spawn(drop_all).join().expect("no panic"));
            } else {
                drop_all();
            }
            assert_eq!(asked.load(Ordering::Relaxed), before, "{order:?}");
            assert_eq!(*ended.lock().expect("no panic"), [0], "{order:?}: the region went first, the memory once");
            let record = soft.record();
            assert_eq!(calls_of(&record, "ibv_dereg_mr"), 1);
            Ledger::replay(&record).assert_all_gone();
            assert_eq!(soft.live(), LiveCounts::default());
        }
    }
}

#[test]
fn memory_whose_region_cannot_be_deregistered_is_kept_and_reported_once() {
    drop_log::keep();
    let (soft, domain) = scene(SoftDevice::new("keptmemory"));
    let host = HostDomain::new(&domain).expect("the device can be asked");
    let ended = Arc::new(Mutex::new(Vec::new()));
    let bytes = OwnedBytes::from(vec![0; 64]);
    let owner = Asked { bytes, asked: Arc::default(), ended: Arc::clone(&ended), soft: soft.clone() };
    let memory = LocalMemory::new(owner).expect("host memory");
    let view = host.register(&memory).expect("the library takes it");
    soft.fail_from("ibv_dereg_mr", 1, Answer::returned(libc::EBUSY));
    drop((view, memory, host, domain));
    soft.clear_plan();
    assert!(ended.lock().expect("no panic").is_empty(), "the device may still write");
    assert_eq!(drop_log::take("keptmemory").len(), 1);
    assert_eq!((calls_of(&soft.record(), "ibv_dereg_mr"), soft.live().mrs, soft.live().pds), (1, 1, 1));
}
