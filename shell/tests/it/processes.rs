//! Threads and processes: ends move between threads, one thread only where the provider's locks are off, and a forked child
//! calls nothing.
//!
//! # Safety
//!
//! The one `fork` here is in a process of its own, in which no other thread holds a lock; its child ends by `_exit`.
#![allow(unsafe_code)]

use std::ffi::OsStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bareverbs_core::connect::QueuePairConfig;
use bareverbs_core::link::{FrameStorage, Header, Immediate, Sequence};
use bareverbs_core::teardown_order::Quiesced;
use bareverbs_core::verbs::inline_calls::Notify;
use bareverbs_core::verbs::{AccessFlags, Wc};
use bareverbs_shell::endpoint::{Endpoint, EndpointErrorKind, Frames, Waking, connect_pair};
use bareverbs_shell::errno::Errno;
use bareverbs_shell::memory::pages::{PAGE_BYTES, Pages};
use bareverbs_shell::objects::{
    CompletionChannel, CompletionQueue, DeviceContext, MemoryRegion, ProtectionDomain, QueuePair,
};
use bareverbs_shell::soft::{Answer, LiveCounts, Mode, Record, SoftConfig, SoftFabric};
use bareverbs_shell::{Error, Fabric, Wait};

use crate::own_process;
use crate::world::{PATIENCE, World, config, send_next, stream, take};

#[test]
fn an_endpoint_goes_on_in_another_thread() {
    for mode in [Mode::Prompt, Mode::Adversarial { seed: 1 }] {
        let world = World::soft(mode);
        let (mut a, mut b) = world.pair::<Header, 8, 8>(Header::default(), &config());
        stream(&mut a, &mut b, 20, 8, 900, Some(Sequence::new(0)));
        let (a, b) = std::thread::spawn(move || (a, b)).join().expect("no panic");
        // Each end streams on a thread of its own, and is dropped there.
        let ends = [(a, 1, 2), (b, 2, 1)].map(|(mut end, seed, other)| {
            std::thread::spawn(move || {
                let (mut sent, mut taken) = (20, 20);
                let deadline = std::time::Instant::now() + PATIENCE;
                while sent < 200 || taken < 200 {
                    assert!(std::time::Instant::now() < deadline, "sent {sent}, received {taken}");
                    // Half a ring ahead of what came: the other end has posted as much.
                    while sent < 200 && sent < taken + 4 && send_next(&mut end, sent, 900, seed) {
                        sent += 1;
                    }
                    taken = take(&mut end, taken, 900, other, Some(Sequence::new(0)));
                    std::thread::yield_now();
                }
                end
            })
        });
        drop(ends.map(|end| end.join().expect("all of it in order")));
        world.assert_clean();
    }
}

#[test]
fn preparing_for_fork_is_one_call_of_the_library_and_a_refusal_or_a_missing_call_is_told() {
    let soft = SoftFabric::new(SoftConfig::default().record(Record::Bounded(100))).expect("a free slot");
    let fabric = Fabric::of_soft(&soft);
    assert_eq!(fabric.prepare_for_fork(), Ok(()));
    let symbols: Vec<_> = soft.record().iter().map(|call| call.symbol).collect();
    assert_eq!(symbols, ["ibv_fork_init"]);
    soft.fail("ibv_fork_init", 1, Answer::returned(libc::EINVAL));
    let Err(Error::Call(refused)) = fabric.prepare_for_fork() else { panic!("it was refused") };
    assert_eq!((refused.call, refused.errno), ("ibv_fork_init", Some(Errno(libc::EINVAL))));
    let soft = SoftFabric::new(SoftConfig::default().without("ibv_fork_init")).expect("a free slot");
    let missing = Fabric::of_soft(&soft).prepare_for_fork();
    assert!(matches!(missing, Err(Error::Unsupported { symbol: "ibv_fork_init", .. })), "{missing:?}");
}

fn open(soft: &SoftFabric) -> Arc<DeviceContext> {
    DeviceContext::open(&soft.symbols(), None).expect("the device")
}

#[test]
fn a_second_thread_is_refused_where_the_providers_locks_are_off() {
    own_process::run(
        "processes::a_second_thread_is_refused_where_the_providers_locks_are_off",
        &[("MLX5_SINGLE_THREADED", OsStr::new("1"))],
        || {
            let soft = SoftFabric::new(SoftConfig::default()).expect("a free slot");
            let context = open(&soft);
            let domain = ProtectionDomain::new(&context, 1).expect("the first thread may");
            let queue = CompletionQueue::new(&context, 8).expect("the first thread may");
            let config = QueuePairConfig::uc().depths(2, 2);
            let refused = Error::SecondThread { device: Arc::from("soft0") };
            std::thread::scope(|scope| {
                let other = scope.spawn(|| {
                    let endpoint = Endpoint::<_, 2, 2>::new(&context, Immediate, crate::world::config(), Frames::Owned);
                    [
                        context.port(1).map(drop),
                        ProtectionDomain::new(&context, 1).map(drop),
                        CompletionQueue::new(&context, 8).map(drop),
                        endpoint.map(drop),
                        // A device of one's own is one's own.
                        ProtectionDomain::new(&open(&soft), 1).map(drop),
                    ]
                });
                let outcomes = other.join().expect("no panic");
                assert_eq!(outcomes[..4], [const { None }; 4].map(|_: Option<()>| Err(refused.clone())));
                assert_eq!(outcomes[4], Ok(()));
            });
            assert!(refused.to_string().contains("MLX5_SINGLE_THREADED=1"), "{refused}");
            drop(QueuePair::new(&domain, &queue, &queue, &config).expect("the first thread may still"));
        },
    );
}

#[test]
fn a_second_thread_may_neither_post_nor_poll_where_the_providers_locks_are_off() {
    own_process::run(
        "processes::a_second_thread_may_neither_post_nor_poll_where_the_providers_locks_are_off",
        &[("MLX5_SINGLE_THREADED", OsStr::new("1"))],
        || {
            crate::drop_log::keep();
            let world = World::soft(Mode::Prompt);
            let (mut a, mut b) = world.pair::<Header, 4, 4>(Header::default(), &config());
            stream(&mut a, &mut b, 10, 4, 900, Some(Sequence::new(0)));
            let (mut a, refused) = std::thread::spawn(move || {
                let refused = [
                    a.send(1, |_| panic!("the frame is not asked for")).map(drop),
                    a.next_frame().map(drop),
                    a.chain().map(drop),
                    a.post_receives(1).map(drop),
                    a.poll(|_| ()).map(drop),
                    a.wait(&crate::world::patiently(), |_| ()).map(drop),
                ];
                (a, refused.map(|outcome| outcome.map_err(|error| error.kind)))
            })
            .join()
            .expect("no panic");
            assert_eq!(refused, [const { Err(EndpointErrorKind::SecondThread) }; 6]);
            // Nothing happened: the first thread goes on. And wherever an end is dropped, it is gone.
            assert!(send_next(&mut a, 10, 900, 1));
            assert_eq!(take(&mut b, 10, 900, 1, Some(Sequence::new(0))), 11);
            std::thread::spawn(move || drop((a, b))).join().expect("no panic");
            world.assert_clean();
        },
    );
}

#[test]
fn a_second_thread_may_use_neither_queue_nor_channel_of_ones_own() {
    own_process::run(
        "processes::a_second_thread_may_use_neither_queue_nor_channel_of_ones_own",
        &[("MLX5_SINGLE_THREADED", OsStr::new("1"))],
        || {
            let soft = SoftFabric::new(SoftConfig::default().record(Record::Bounded(100))).expect("a free slot");
            let context = open(&soft);
            let channel = CompletionChannel::new(&context).expect("the first thread may");
            let mut queue = CompletionQueue::with_channel(&channel, 8).expect("the first thread may");
            let mut use_them = || {
                [
                    queue.poll(&mut [Wc::default()]).map(|completions| assert_eq!(completions.len(), 0)),
                    queue.arm(Notify::Any),
                    channel.wait(Duration::ZERO).map(drop),
                    context.take_events().map(drop),
                ]
            };
            assert_eq!(use_them(), [const { Ok(()) }; 4]);
            soft.clear_record();
            let refused = std::thread::scope(|scope| scope.spawn(use_them).join().expect("no panic"));
            let second = Error::SecondThread { device: Arc::from("soft0") };
            assert_eq!(refused, std::array::from_fn::<_, 4, _>(|_| Err(second.clone())));
            assert!(soft.record().is_empty(), "{:?}", soft.record());
        },
    );
}

#[test]
fn without_that_setting_any_thread_may() {
    for value in ["0", "", "yes"] {
        own_process::run(
            "processes::without_that_setting_any_thread_may",
            &[("MLX5_SINGLE_THREADED", OsStr::new(value))],
            || {
                let soft = SoftFabric::new(SoftConfig::default()).expect("a free slot");
                let context = open(&soft);
                std::thread::spawn(move || ProtectionDomain::new(&context, 1).map(drop))
                    .join()
                    .expect("no panic")
                    .expect("any");
            },
        );
    }
}

/// Runs `child` in a forked child: true if it said so.
pub fn in_forked_child(child: impl FnOnce() -> bool) -> bool {
    // SAFETY: this process runs one test, whose thread is the only one that does anything.
    match unsafe { libc::fork() } {
        0 => {
            let good = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child)).unwrap_or(false);
            // SAFETY: ends the child here: nothing of the test harness runs in it.
            unsafe { libc::_exit(if good { 0 } else { 1 }) }
        }
        pid => {
            assert!(pid > 0, "fork: {}", std::io::Error::last_os_error());
            let mut status = 0;
            // SAFETY: our own child; the status is ours.
            let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
            waited == pid && libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
        }
    }
}

#[test]
fn a_wait_that_sleeps_is_refused_in_a_forked_child_and_takes_none_of_its_parents_events() {
    own_process::run(
        "processes::a_wait_that_sleeps_is_refused_in_a_forked_child_and_takes_none_of_its_parents_events",
        &[],
        || {
            let soft = SoftFabric::new(SoftConfig::default().record(Record::Bounded(1000))).expect("a free slot");
            let context = open(&soft);
            let end = || Endpoint::<_, 4, 4>::new(&context, Immediate, config().waking(Waking::Events), Frames::Owned);
            let (mut a, mut b) = (end().expect("an endpoint"), end().expect("an endpoint"));
            connect_pair(&mut a, &mut b).expect("both are in INIT");
            b.wait(&Wait::at_most(Duration::from_millis(1)), |_| ()).expect_err("nobody sends; the queue is armed");
            let channel = CompletionChannel::new(&context).expect("a channel");
            let mut queue = CompletionQueue::with_channel(&channel, 4).expect("a queue");
            soft.clear_record();
            let forked = Error::Forked { device: Arc::from("soft0") };
            let refused = || {
                // Where nothing has come, it would sleep.
                let told = b.wait(&Wait::at_most(PATIENCE), |_| ()).map_err(|error| error.kind);
                let slept = told == Err(EndpointErrorKind::Sleep(Box::new(forked.clone())));
                let outside = channel.wait(Duration::ZERO) == Err(forked.clone());
                let armed = queue.arm(Notify::Any) == Err(forked.clone());
                let fetched = soft.record().iter().any(|call| call.symbol != "ibv_poll_cq");
                slept && outside && armed && !fetched
            };
            assert!(in_forked_child(refused), "it was not refused, or something was fetched");
            a.send(1, |_| ()).expect("a healthy link");
            assert_eq!(b.wait(&Wait::at_most(PATIENCE), |_| ()), Ok(1), "the parent's wait is as it was");
        },
    );
}

static RELEASED: AtomicU32 = AtomicU32::new(0);

/// Pages whose release is counted.
struct Kept(Pages);

impl Drop for Kept {
    fn drop(&mut self) {
        RELEASED.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_forked_child_makes_no_verbs_call_and_the_parent_goes_on() {
    own_process::run("processes::a_forked_child_makes_no_verbs_call_and_the_parent_goes_on", &[], || {
        let soft = SoftFabric::new(SoftConfig::default().record(Record::Bounded(10_000))).expect("a free slot");
        let context = open(&soft);
        static FRAMES: FrameStorage<{ 8 * 1024 }> = FrameStorage::new();
        let frames = FRAMES.claim().expect("nobody else has it");
        let mut end = Endpoint::<_, 4, 4>::new(&context, Immediate, config(), frames).expect("an endpoint");
        let itself = end.destination();
        end.agree_credits(end.recv_depth()).expect("nothing was sent");
        end.connect(&itself, end.path_mtu()).expect("it is in INIT");
        end.send(8, |_| ()).expect("a healthy link");
        // Registered memory whose release can be seen.
        let domain = ProtectionDomain::new(&context, 1).expect("the device");
        let keeper: Arc<Kept> = Arc::new(Kept(Pages::new(PAGE_BYTES).expect("a page")));
        let (start, bytes) = (keeper.0.start().addr().get(), keeper.0.len_bytes());
        // SAFETY: 1: the keeper holds the pages. 2: only their address is known.
        let region = unsafe { MemoryRegion::register(&domain, start, bytes, AccessFlags::LOCAL_WRITE, Some(keeper)) };
        let mut region = Some(region.expect("a region"));
        let mut queue = CompletionQueue::new(&context, 8).expect("the device");
        assert_eq!(queue.arm(Notify::Any), Ok(()));
        let config = QueuePairConfig::uc().depths(2, 2);
        let queue_pair = QueuePair::new(&domain, &queue, &queue, &config).expect("the device");
        let (mut domain, mut pair) = (Some(domain), Some((queue, queue_pair)));
        let sleeping = crate::world::config().waking(Waking::Events);
        let mut asleep = Endpoint::<_, 4, 4>::new(&context, Immediate, sleeping, Frames::Owned).expect("an endpoint");
        let before = soft.live();
        let mut end = Some(end);

        soft.clear_record();
        let dropped = || {
            drop(end.take());
            // The frames are the parent's device's: a child may have no such pages.
            soft.record().is_empty() && soft.live() == before && FRAMES.claim().is_none()
        };
        assert!(in_forked_child(dropped), "the drop called something, or panicked");
        let closed = || {
            // Nothing was done, so no record of steps is told.
            let told = end.take().map(|end| end.close().map(drop));
            let untouched = soft.record().is_empty() && soft.live() == before && FRAMES.claim().is_none();
            told == Some(Err(Error::Forked { device: Arc::from("soft0") })) && untouched
        };
        assert!(in_forked_child(closed), "the close called something, or panicked");
        let abandoned = || {
            let had = end.as_ref().map(Endpoint::outstanding);
            if let Some(end) = &mut end {
                end.abandon();
            }
            end.as_ref().map(Endpoint::outstanding) == had && soft.record().is_empty() && soft.live() == before
        };
        assert!(in_forked_child(abandoned), "what the parent's queue pair has was said to be gone");
        let one_by_one = || {
            let forked = |outcome: Result<(), Error>| outcome == Err(Error::Forked { device: Arc::from("soft0") });
            let (mut queue, queue_pair) = pair.take().expect("still here");
            let armed = forked(queue.arm(Notify::Any));
            armed
                && region.take().is_some_and(|region| forked(region.close()))
                && forked(queue_pair.close())
                && forked(queue.close())
                && forked(domain.take().expect("still here").close())
                && soft.record().is_empty()
                && soft.live() == before
        };
        assert!(in_forked_child(one_by_one), "a close said that it was done");
        let waited = || {
            let refused = asleep.wait(&crate::world::patiently(), |_| ()).expect_err("a child");
            let forked = Error::Forked { device: Arc::from("soft0") };
            refused.kind == EndpointErrorKind::Sleep(Box::new(forked))
                && soft.record().iter().all(|call| call.symbol == "ibv_poll_cq")
        };
        assert!(in_forked_child(waited), "a child slept on its parent's channel");
        let kept = || {
            drop(region.take());
            // Where `ibv_fork_init` was called, registered pages are not mapped in a child: to free them would be a fault.
            RELEASED.load(Ordering::Relaxed) == 0 && soft.record().is_empty()
        };
        assert!(in_forked_child(kept), "memory that is not the child's was freed");
        let used = || {
            let forked = |outcome: Result<(), Error>| outcome == Err(Error::Forked { device: Arc::from("soft0") });
            forked(ProtectionDomain::new(&context, 1).map(drop))
                && forked(CompletionQueue::new(&context, 8).map(drop))
                && forked(context.port(1).map(drop))
                && forked(context.gids(1).map(drop))
                && soft.record().is_empty()
        };
        assert!(in_forked_child(used), "a use was not refused");

        // The parent's are as they were.
        let told = end.take().expect("still here").close().expect("nothing refuses");
        assert_eq!(told.quiesced, Quiesced::Yes);
        drop((region.take(), pair.take(), domain.take(), asleep));
        assert_eq!(RELEASED.load(Ordering::Relaxed), 1);
        assert!(FRAMES.claim().is_some());
        drop(context);
        assert_eq!(soft.live(), LiveCounts::default());
    });
}
