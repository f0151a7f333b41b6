//! Post, poll and wait allocate nothing: a counting allocator over a whole run of messages both ways, after set-up.
//!
//! A binary of its own, since the allocator is the process's. What the C library allocates on its own is not seen.
//!
//! # Safety
//!
//! The allocator passes everything on to the system's.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::{Duration, Instant};

use bareverbs_core::link::{Carrier, Checksum, Event, Header, Immediate, Raw, SendError};
use bareverbs_shell::endpoint::{Endpoint, EndpointErrorKind};
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
}

fn count() {
    // While a thread ends its values are gone; it then does nothing that counts.
    let _ = ARMED.try_with(|armed| {
        if armed.get() {
            COUNT.set(COUNT.get() + 1);
        }
    });
}

// SAFETY: every duty is the system allocator's, to which everything is passed on.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's duties are the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        count();
        // SAFETY: the caller's duties are the same.
        unsafe { System.dealloc(start, layout) }
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's duties are the same.
        unsafe { System.realloc(start, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How often `action` allocates or frees on this thread.
fn allocations(action: impl FnOnce()) -> u64 {
    COUNT.set(0);
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

fn run<C: Carrier>(world: &World, carrier: C) {
    let (mut a, mut b) = world.pair::<C, 8, 8>(carrier, &config());
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
    run(world, Immediate);
    run(world, Header::<64>::default());
    run(world, Header::<64> { checksum: Checksum::Crc32c });
    run(world, Raw);
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
fn a_wait_that_is_cancelled_allocates_nothing() {
    let world = World::of_config(SoftConfig::default().record(Record::Off), "soft");
    let (mut a, _b) = world.pair::<_, 8, 8>(Immediate, &config());
    let flag = std::sync::atomic::AtomicBool::new(true);
    let wait = Wait::at_most(Duration::from_secs(1)).cancelled_by(&flag).relax(Relax::Spin);
    let counted = allocations(|| assert!(a.wait(&wait, |_| ()).is_err()));
    assert_eq!(counted, 0);
}

/// On the system's library, where it has a device: in the soft-RoCE guest, `--include-ignored`.
#[test]
#[ignore = "needs an RDMA device"]
fn post_poll_and_wait_allocate_nothing_on_the_system() {
    every_carrier(&World::system().expect("a device with an active port"));
}
