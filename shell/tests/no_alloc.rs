//! Post, poll and wait allocate nothing: a counting allocator over a whole run of messages both ways, after set-up. And an
//! exchange with a peer that floods it takes no more memory than its error.
//!
//! A binary of its own, since the allocator is the process's. What the C library allocates on its own is not seen.
//!
//! # Safety
//!
//! The allocator passes everything on to the system's.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use bareverbs_core::connect::{HELLO_BYTES, Hello, Step};
use bareverbs_core::link::{Carrier, Checksum, Header, Immediate, Raw, SendError};
use bareverbs_core::verbs::PortState;
use bareverbs_shell::endpoint::{Endpoint, EndpointErrorKind, Event, Frames, Waking};
use bareverbs_shell::exchange::{self, ExchangeErrorKind, Listener, Terms};
use bareverbs_shell::memory::{AccessLock, Backend, HostDomain, LocalMemory, OwnedBytes};
use bareverbs_shell::objects::ProtectionDomain;
use bareverbs_shell::soft::{Mode, Record, SoftConfig};
use bareverbs_shell::wait::{Relax, Wait};

#[path = "it/world.rs"]
mod world;

use world::{PATIENCE, World, config, patiently};

struct Counting;

thread_local! {
    /// Whether this thread's allocations count, and how many did.
    static ARMED: Cell<bool> = const { Cell::new(false) };
    static COUNT: Cell<u64> = const { Cell::new(0) };
    /// Bytes that they asked for.
    static BYTES: Cell<usize> = const { Cell::new(0) };
}

fn count(bytes: usize) {
    // While a thread ends its values are gone; it then does nothing that counts.
    let _ = ARMED.try_with(|armed| {
        if armed.get() {
            COUNT.set(COUNT.get() + 1);
            BYTES.set(BYTES.get() + bytes);
        }
    });
}

// SAFETY: every duty is the system allocator's, to which everything is passed on.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's duties are the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        count(0);
        // SAFETY: the caller's duties are the same.
        unsafe { System.dealloc(start, layout) }
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        // SAFETY: the caller's duties are the same.
        unsafe { System.realloc(start, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How often `action` allocates or frees on this thread.
fn allocations(action: impl FnOnce()) -> u64 {
    COUNT.set(0);
    BYTES.set(0);
    ARMED.set(true);
    action();
    ARMED.set(false);
    COUNT.get()
}

const MESSAGES: u64 = 1000;

/// One end's part of a round: a send, a chain of two, and a refusal where the ring is full. How many were sent.
fn send<C: Carrier>(end: &mut Endpoint<C, 8, 8>, allowed: u64) -> u64 {
    let mut sent = 0;
    if allowed >= 1 {
        match end.send(100, |payload| payload[0] = 1) {
            Ok(_) => sent += 1,
            Err(error) => assert!(matches!(
                error.kind,
                EndpointErrorKind::Send(SendError::Full { .. } | SendError::NoCredit { .. }, None)
            )),
        }
    }
    if allowed >= 3 {
        let mut chain = end.chain().expect("connected");
        for _ in 0..2 {
            if let Ok(frame) = chain.next_frame() {
                frame.stage(200).expect("it fits");
            }
        }
        sent += u64::from(chain.post().expect("a healthy link").count);
    }
    sent
}

/// Takes what came; every second frame is posted again at once, the others together.
fn take<C: Carrier>(end: &mut Endpoint<C, 8, 8>, wait: Option<&Wait<'_>>) -> u64 {
    let mut came = 0;
    let on = |event: Event<'_, 8>| {
        if let Event::Received(frame) = event {
            came += 1;
            if came % 2 == 0 {
                frame.repost().expect("its place is free");
            }
        }
    };
    match wait {
        Some(wait) => end.wait(wait, on).expect("something comes"),
        None => end.poll(on).expect("a healthy link"),
    };
    end.post_receives(8).expect("a healthy link");
    came
}

fn run<C: Carrier>(world: &World, carrier: C, waking: Waking) {
    let (mut a, mut b) = world.pair::<C, 8, 8>(carrier, &config().waking(waking));
    let began = Instant::now();
    let counted = allocations(|| {
        let (mut sent, mut taken) = ([0; 2], [0; 2]);
        while taken[0] < MESSAGES || taken[1] < MESSAGES {
            assert!(began.elapsed() < PATIENCE, "it does not end");
            sent[0] += send(&mut a, 8 - (sent[0] - taken[1]));
            sent[1] += send(&mut b, 8 - (sent[1] - taken[0]));
            taken[1] += take(&mut b, None);
            // Where messages take their time a wait polls many times before one comes.
            let patience = patiently();
            taken[0] += take(&mut a, (sent[1] > taken[0]).then_some(&patience));
        }
        // A refusal before posting allocates as little.
        assert!(a.send(1 << 20, |_| ()).is_err());
    });
    assert_eq!(counted, 0, "{}", world.name);
}

fn every_carrier(world: &World) {
    for waking in [Waking::Polling, Waking::Events] {
        run(world, Immediate, waking);
        run(world, Header::<64>::default(), waking);
        run(world, Header::<64> { checksum: Checksum::Crc32c }, waking);
        run(world, Raw, waking);
    }
}

#[test]
fn the_counter_sees_an_allocation() {
    assert_eq!(allocations(|| drop(std::hint::black_box(Box::new(7)))), 2, "one is made and freed");
    assert_eq!(allocations(|| ()), 0);
}

#[test]
fn post_poll_and_wait_allocate_nothing_on_the_software_fabric() {
    every_carrier(&World::of_config(SoftConfig::default().mode(Mode::Prompt).record(Record::Off), "soft"));
}

#[test]
fn uncontended_locks_allocate_nothing_in_any_mode() {
    let (lock, time) = (AccessLock::new(), Duration::from_secs(1));
    let pairs = || {
        for _ in 0..100 {
            drop(lock.read());
            drop(lock.try_read());
            drop(lock.read_timeout(time));
            drop((lock.read(), lock.read(), lock.read_recursive(), lock.try_read_recursive()));
            drop(lock.disjoint());
            drop(lock.try_disjoint());
            drop((lock.disjoint_timeout(time), lock.disjoint()));
            drop(lock.try_exclusive());
            drop(lock.exclusive_timeout(time));
            drop((lock.exclusive(), lock.try_read(), lock.try_disjoint(), lock.try_exclusive()));
        }
    };
    // From the first on: nothing is set up for a thread that does not wait.
    assert_eq!(allocations(pairs), 0);
}

#[test]
fn a_wait_that_sleeps_and_hears_of_the_device_allocates_nothing() {
    let world = World::of_config(SoftConfig::default().record(Record::Bounded(10_000)), "soft");
    let soft = world.soft.as_ref().expect("a software fabric");
    let (mut a, mut b) = world.pair::<_, 8, 8>(Immediate, &config().waking(Waking::Events));
    let armed = || soft.record().iter().filter(|call| call.symbol == "ibv_req_notify_cq").count();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let began = Instant::now();
            // Asleep for the first time, and again after what wakes it: the port comes and goes, of no concern to it.
            for (round, state) in [(1, PortState::DOWN), (2, PortState::ACTIVE)] {
                while armed() < round {
                    assert!(began.elapsed() < PATIENCE, "it does not go to sleep");
                    std::thread::yield_now();
                }
                soft.set_port_state("soft0", 1, state);
            }
            std::thread::sleep(Duration::from_millis(20));
            a.send(1, |_| ()).expect("a healthy link");
        });
        let counted = allocations(|| assert_eq!(b.wait(&patiently(), |_| ()), Ok(1)));
        assert_eq!(counted, 0);
    });
}

#[test]
fn a_wait_that_is_cancelled_allocates_nothing() {
    let world = World::of_config(SoftConfig::default().record(Record::Off), "soft");
    let (mut a, _b) = world.pair::<_, 8, 8>(Immediate, &config());
    let flag = std::sync::atomic::AtomicBool::new(true);
    let wait = Wait::at_most(Duration::from_secs(1)).cancelled_by(&flag).relax(Relax::Spin);
    let counted = allocations(|| assert!(a.wait(&wait, |_| ()).is_err()));
    assert_eq!(counted, 0);
}

/// What answers a hello.
type Script = fn(&Hello) -> Vec<u8>;

/// Connects, answers the hello with what `script` makes of it, and then sends `block` for as long as it is listened to.
fn flood(address: SocketAddr, script: Script, block: &[u8]) {
    let mut stream = TcpStream::connect(address).expect("it listens");
    let mut hello = [0; HELLO_BYTES];
    stream.read_exact(&mut hello).expect("a hello");
    let script = script(&Hello::decode(&hello).expect("a good one"));
    stream.set_write_timeout(Some(Duration::from_millis(500))).expect("a timeout");
    let mut sent = stream.write(&script).expect("it listens");
    let block = block.repeat(4096);
    while sent < 64 << 20 {
        match stream.write(&block) {
            Ok(count) => sent += count,
            Err(_) => return,
        }
    }
    panic!("all of it was taken");
}

fn agreeing(hello: &Hello) -> Vec<u8> {
    let mut hello = *hello;
    hello.destination.qp_num ^= 1;
    hello.encode().to_vec()
}

#[test]
fn a_flood_costs_an_exchange_no_more_memory_than_its_error() {
    let world = World::of_config(SoftConfig::default().record(Record::Off), "soft");
    let agreed = Step::Agreed.encode();
    let floods: [(Script, &[u8]); 4] = [
        (|_| Vec::new(), b"\0"),
        (|_| Vec::new(), b"BVhi\x01"),
        (agreeing, b"\xff"),
        // Where a step is due that it does not say.
        (agreeing, &agreed),
    ];
    let terms = Terms::within(Duration::from_secs(20));
    for (number, (script, block)) in floods.into_iter().enumerate() {
        let listener = Listener::bind("127.0.0.1:0".parse().expect("an address"), &terms).expect("a port");
        let address = listener.address();
        let mut end: Endpoint<_, 8, 8> =
            Endpoint::new(&world.open(), Immediate, config(), Frames::Owned).expect("an endpoint");
        std::thread::scope(|scope| {
            scope.spawn(move || flood(address, script, block));
            let calls = allocations(|| {
                let error = exchange::accept(&listener, &mut end, &terms).expect_err("a flood");
                assert!(!matches!(error.kind, ExchangeErrorKind::Timeout { .. }), "flood {number}: {error}");
            });
            let bytes = BYTES.get();
            assert!(calls < 100 && bytes < 4096, "flood {number}: {bytes} bytes in {calls} calls");
        });
    }
}

#[test]
fn memory_that_is_registered_is_found_without_an_allocation() {
    let world = World::of_config(SoftConfig::default().record(Record::Off), "soft");
    let domain = ProtectionDomain::new(&world.open(), 1).expect("a domain");
    let host = HostDomain::new(&domain).expect("the device can be asked");
    let memory = LocalMemory::new(OwnedBytes::from(vec![0; 64])).expect("host memory");
    let key = host.register(&memory).expect("the library takes it").lkey();
    let counted = allocations(|| {
        for _ in 0..100 {
            let found = memory.registrations(Backend::VERBS).registered(world.device());
            assert_eq!(found.view().map(|view| view.lkey()), Some(key));
            assert_eq!(memory.registrations(Backend::VERBS).iter().count(), 1);
            let view = host.register(&memory).expect("in force");
            assert_eq!(view.part(8, 8).map(|part| part.lkey()), Ok(key));
        }
    });
    assert_eq!(counted, 0);
}

#[cfg(target_os = "linux")]
#[test]
fn a_request_in_a_bound_segment_allocates_nothing() {
    use bareverbs_core::segments::Ordinal;
    use bareverbs_shell::cuda::CudaDriver;
    use bareverbs_shell::segments::{DriverScanner, IdentityPolicy, SegmentDomain, SegmentDomainConfig};
    use bareverbs_shell::soft::SoftDevice;
    use bareverbs_shell::soft::cuda::{CudaConfig, SoftCuda};

    let config = SoftConfig::default().devices(vec![SoftDevice::mlx5("mlx5_0")]).record(Record::Off);
    let world = World::of_config(config, "mlx5");
    let soft = world.soft.as_ref().expect("a software fabric");
    let cuda = SoftCuda::new(CudaConfig::default()).expect("a free slot");
    let driver = CudaDriver::with_symbols(cuda.symbols());
    let pd = ProtectionDomain::new(&world.open(), 1).expect("a domain");
    let base = cuda.reserve(0, 1 << 30);
    (0..4).for_each(|at| cuda.map(base + at * (2 << 20), 2 << 20));
    for identity in [IdentityPolicy::Verify, IdentityPolicy::Trust] {
        let config = SegmentDomainConfig::default().given([Ordinal(0)]).identity(identity);
        let domain = SegmentDomain::new(&pd, driver.clone(), Some(soft.mlx5_symbols()), config).expect("a device");
        domain.set_scanner(Some(std::sync::Arc::new(DriverScanner::new(driver.clone()))));
        let key = domain.register(base, 4096).expect("bound").lkey();
        let counted = allocations(|| {
            for at in 0..100 {
                // Over the edge of two mappings, too.
                let view = domain.register(base + at * 65_536, 100_000).expect("a hit");
                assert_eq!((view.lkey(), view.key_addr()), (key, at * 65_536));
            }
        });
        assert_eq!(counted, 0, "{identity:?}");
    }
}

/// On the system's library, where it has a device: in the soft-RoCE guest, `--include-ignored`.
#[test]
#[ignore = "needs an RDMA device"]
fn post_poll_and_wait_allocate_nothing_on_the_system() {
    every_carrier(&World::system().expect("a device with an active port"));
}
