//! Memory registered on every fabric: found again, refused and remembered, published and reached; on a real kernel also its
//! limit on locked memory, and huge pages.
//!
//! # Safety
//!
//! A process of its own gives up a right; and a system's own mapping is asked for, of memory that nobody else knows.
#![allow(unsafe_code)]

use std::ffi::OsStr;
use std::sync::Arc;

use bareverbs_core::teardown_order::check;
use bareverbs_core::verbs::AccessFlags;
use bareverbs_shell::errno::{Errno, locked_memory_limit};
use bareverbs_shell::memory::pages::{HUGE_PAGE_BYTES, HugePages, Pages};
use bareverbs_shell::memory::{
    Backend, HostDomain, Keepalive, LocalMemory, Location, PublishError, RegisterError, Registered,
};
use bareverbs_shell::objects::ProtectionDomain;
use bareverbs_shell::soft::Answer;

use crate::endpoints::Case;
use crate::own_process;
use crate::scene::{ALL, End, at, content, memory, pair, pattern, published, succeed, transfers_config, view};
use crate::world::World;

pub fn cases() -> Vec<Case> {
    vec![
        ("memory_is_registered_once_and_found_by_every_handle", registered_once),
        ("a_refusal_is_remembered_and_told_until_it_is_forgotten", refusal_remembered),
        ("memory_is_of_one_domain_of_a_device", one_domain),
        ("a_published_view_is_reached_by_any_queue_pair_of_its_domain", published_view),
        ("parts_cover_the_memory_and_each_is_reached_by_its_own_key", parts),
        ("pages_huge_or_not_are_registered_and_reached", pages),
        ("a_region_goes_with_the_last_view_and_before_its_domain", goes_with_the_last_view),
    ]
}

/// Those that are for one fabric only: with the whole name of the test.
pub const LOCKED_MEMORY: &str = "registrations::system::out_of_memory_names_the_limit_on_locked_memory_and_the_size";

fn domain(world: &World) -> (Arc<ProtectionDomain>, HostDomain) {
    let domain = ProtectionDomain::new(&world.open(), 1).expect("a domain");
    let host = HostDomain::new(&domain).expect("the device can be asked");
    (domain, host)
}

fn registered_once(world: &World) {
    let (domain, host) = domain(world);
    let memory = memory(&pattern(10_000, 1));
    assert_eq!(memory.location(), Location::Host { numa: None });
    assert!(host.registered(&memory).is_none());
    let view = host.register(&memory).expect("the library takes it");
    assert_eq!((view.addr(), view.len_bytes()), (memory.addr() as u64, 10_000));
    assert_eq!((view.device().as_str(), view.access()), (world.device(), Some(HostDomain::ACCESS)));
    assert!(view.protection_domain().is_some_and(|of| Arc::ptr_eq(of, &domain)));
    let keys = (view.lkey(), view.rkey());
    for handle in
        [&memory, &memory.clone(), &memory.downgrade().expect("it has a weak form").upgrade().expect("it lives")]
    {
        let again = host.register(handle).expect("in force");
        assert_eq!((again.lkey(), again.rkey()), keys);
        assert_eq!(host.registered(handle).map(|hit| (hit.lkey(), hit.rkey())), Some(keys));
        assert_eq!(handle.registrations(Backend::VERBS).iter().count(), 1);
    }
    if let Some(soft) = &world.soft {
        assert_eq!(soft.live().mrs, 1);
    }
}

fn refusal_remembered(world: &World) {
    let (_domain, host) = domain(world);
    let memory = memory(&[0; 4321]);
    // What every kernel refuses: others shall write, and the own device not.
    let refused = |access| host.clone().access(access).register(&memory).expect_err("refused").to_string();
    let text = refused(AccessFlags::REMOTE_WRITE);
    let addr = format!("{:#x}", memory.addr());
    for part in [&*addr, "4321 bytes", world.device(), "ibv_reg_mr", &Errno(libc::EINVAL).to_string()] {
        assert!(text.contains(part), "{part} in {text}");
    }
    // It would succeed now, and is not asked for again.
    assert_eq!(refused(HostDomain::ACCESS), text);
    let registrations = memory.registrations(Backend::VERBS);
    assert_eq!(
        registrations.registered(world.device()).failure().map(|failure| failure.to_string()),
        Some(text.clone())
    );
    assert!(host.registered(&memory).is_none());
    assert_eq!(registrations.forget_failure(world.device()).map(|failure| failure.to_string()), Some(text));
    assert!(matches!(registrations.registered(world.device()), Registered::Nothing));
    let view = host.register(&memory).expect("it is asked for again");
    assert_eq!(registrations.registered(world.device()).view().map(|hit| hit.lkey()), Some(view.lkey()));
}

fn one_domain(world: &World) {
    let (first, host) = domain(world);
    let second = ProtectionDomain::new(first.context(), 1).expect("a domain");
    let second = HostDomain::new(&second).expect("the device can be asked");
    let memory = memory(&[0; 64]);
    let view = host.register(&memory).expect("the library takes it");
    let error = second.register(&memory).expect_err("the other's keys");
    assert!(matches!(&error, RegisterError::OtherDomain { device } if device.as_str() == world.device()), "{error}");
    assert!(second.registered(&memory).is_none());
    assert_eq!(host.register(&memory).map(|again| again.lkey()), Ok(view.lkey()));
    // A handle of its own for that one.
    let separate =
        LocalMemory::with_driver(Arc::clone(memory.keepalive()), Arc::new(bareverbs_shell::memory::HostOnly));
    let separate = second.register(&separate.expect("host memory")).expect("the library takes it");
    assert_ne!((separate.lkey(), separate.rkey()), (view.lkey(), view.rkey()));
}

fn published_view(world: &World) {
    let (mut a, b) = pair(world, &transfers_config());
    let there = memory(&[0; 100]);
    let host = HostDomain::new(b.domain().expect("not closed")).expect("the device can be asked");
    // For the own device and for nobody else.
    let private = memory(&[0; 8]);
    let device = *host.device();
    let local_only = host.clone().access(AccessFlags::LOCAL_WRITE).register(&private).expect("the library takes it");
    let access = AccessFlags::LOCAL_WRITE;
    assert_eq!(local_only.publish().map(drop), Err(PublishError::NothingPermitted { device, access }));
    // One registration, which two queue pairs of the domain serve.
    let part = host.register(&there).expect("the library takes it").part(40, 20).expect("within");
    let lease = part.publish().expect("it permits something");
    assert_eq!((lease.remote().key_addr(), lease.remote().len_bytes()), (there.addr() as u64 + 40, 20));
    let mut c = End::in_domain(b.domain().expect("not closed"), transfers_config()).expect("a queue pair");
    let mut d = End::new(&world.open(), transfers_config()).expect("a queue pair");
    bareverbs_shell::one_sided::connect_pair(&mut c, &mut d).expect("both are in INIT");
    let mut wanted = vec![0; 100];
    for (end, seed, from) in [(&mut a, 1, 0), (&mut d, 2, 10)] {
        let here = memory(&pattern(10, seed));
        let write = end.write(&view(end, &here, ALL), &at(lease.remote(), from, 10)).expect("posted");
        succeed(end, write);
        wanted[40 + from as usize..][..10].copy_from_slice(&pattern(10, seed));
        assert_eq!(content(&there), wanted);
    }
}

fn parts(world: &World) {
    let (mut a, b) = pair(world, &transfers_config());
    let (here, there) = (memory(&pattern(5000, 3)), memory(&[0; 5000]));
    let host = HostDomain::new(b.domain().expect("not closed")).expect("the device can be asked");
    let views = host.register_parts(&there).expect("parts that the device takes");
    assert!(host.registered(&there).is_none(), "they are the caller's");
    let (local, mut next) = (view(&a, &here, ALL), 0);
    for part in &views {
        assert_eq!(part.addr(), there.addr() as u64 + next);
        let lease = part.publish().expect("it permits something");
        let source = local.part(next, part.len_bytes()).expect("within");
        let write = a.write(&source, lease.remote()).expect("posted");
        succeed(&mut a, write);
        next += part.len_bytes();
    }
    assert_eq!((next, content(&there)), (5000, pattern(5000, 3)));
}

/// Asks the guest's kernel for huge pages; a machine of somebody's is left as it is.
fn reserve_huge_pages() -> bool {
    std::env::var_os("BAREVERBS_GUEST_NET").is_some_and(|_| {
        std::fs::write("/proc/sys/vm/nr_hugepages", "16").expect("the guest is ours");
        true
    })
}

fn pages(world: &World) {
    let reserved = world.soft.is_none() && reserve_huge_pages();
    let len = HUGE_PAGE_BYTES + 1;
    let pages = Pages::in_huge_pages_if_any(len).expect("memory");
    match pages.huge_pages() {
        HugePages::Used => assert_eq!((pages.addr() % HUGE_PAGE_BYTES, pages.size()), (0, 2 * HUGE_PAGE_BYTES)),
        other => assert!(!reserved, "there are huge pages: {other:?}"),
    }
    if reserved {
        assert_eq!(kernel_page_kib(pages.addr()), Some(2048));
    }
    let there = LocalMemory::new(pages).expect("host memory");
    let (mut a, b) = pair(world, &transfers_config());
    let (lease, here) = (published(&b, &there, ALL), memory(&pattern(3000, 5)));
    let local = view(&a, &here, ALL);
    // Over the edge of the first huge page.
    let edge = HUGE_PAGE_BYTES as u64 - 2000;
    let write = a.write(&local, &at(lease.remote(), edge, 3000)).expect("posted");
    succeed(&mut a, write);
    assert!(content(&there)[edge as usize..][..3000] == pattern(3000, 5));
}

/// How large the pages are of the mapping that starts there, as the kernel says.
fn kernel_page_kib(start: usize) -> Option<u64> {
    let smaps = std::fs::read_to_string("/proc/self/smaps").ok()?;
    let of_ours = smaps.lines().skip_while(|line| !line.starts_with(&format!("{start:x}-")));
    let size = of_ours.into_iter().find_map(|line| line.strip_prefix("KernelPageSize:"))?;
    size.trim().strip_suffix(" kB")?.parse().ok()
}

fn goes_with_the_last_view(world: &World) {
    let (a, b) = pair(world, &transfers_config());
    let (here, there) = (memory(&[1; 64]), memory(&[0; 64]));
    let (local, lease) = (view(&a, &here, ALL), published(&b, &there, ALL));
    let (weak, acknowledgement) = (there.downgrade().expect("it has a weak form"), lease.acknowledgement());
    drop((there, local, here));
    lease.withdraw();
    assert!(weak.upgrade().is_ok(), "the peer's word has not come");
    // Its queue pair may go before it, and its domain may not: that goes with the last view.
    let told = b.close().expect("nothing refuses");
    assert_eq!(check(told.quiesced, told.done()), Ok(()));
    acknowledgement.came();
    assert!(weak.upgrade().is_err());
    drop(a);
}

/// The kernel counts what is locked, of who has not the right to lock as much as there is.
pub fn locked_memory() {
    own_process::run(LOCKED_MEMORY, &[] as &[(&str, &OsStr)], || {
        let limit = libc::rlimit { rlim_cur: 64 << 10, rlim_max: 64 << 10 };
        // SAFETY: a limit of ours, of this process.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) }, 0);
        give_up_locking();
        let world = World::system().expect("it was there at the start");
        let (_domain, host) = domain(&world);
        let (large, small) = (memory(&vec![0; 1 << 20]), memory(&[0; 64]));
        let RegisterError::Failed(failure) = host.register(&large).expect_err("above the limit") else {
            panic!("the device was to refuse")
        };
        assert_eq!(failure.errno(), Some(Errno(libc::ENOMEM)));
        let text = failure.to_string();
        assert!(locked_memory_limit().contains("65536"), "{}", locked_memory_limit());
        for part in ["1048576 bytes were asked for", &locked_memory_limit(), "ulimit -l", "ENOMEM", world.device()] {
            assert!(text.contains(part), "{part} in {text}");
        }
        host.register(&small).expect("within the limit");
    });
}

/// Without `CAP_IPC_LOCK` (14), which root has.
fn give_up_locking() {
    // As `linux/capability.h`, version 3: for this thread; effective, permitted and inheritable sets, low word and high word.
    let header: [u32; 2] = [0x2008_0522, 0];
    let mut sets = [0_u32; 6];
    // SAFETY: the header and room for its version's sets, both of this call.
    let got = unsafe { libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()) };
    assert_eq!(got, 0, "{}", std::io::Error::last_os_error());
    for low in [0, 1, 2] {
        sets[low] &= !(1 << 14);
    }
    // SAFETY: as above.
    let set = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}

/// What a kernel does of its own accord the software fabric is told to.
pub fn out_of_memory_in_software() {
    let world = World::soft(bareverbs_shell::soft::Mode::Prompt);
    let (_domain, host) = domain(&world);
    let memory = memory(&[0; 4096]);
    world.soft.as_ref().expect("a software fabric").fail("ibv_reg_mr", 1, Answer::null(libc::ENOMEM));
    let text = host.register(&memory).expect_err("refused").to_string();
    for part in ["4096 bytes were asked for", &locked_memory_limit(), "ulimit -l", "ENOMEM"] {
        assert!(text.contains(part), "{part} in {text}");
    }
}
