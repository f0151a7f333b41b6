//! Ends that were abandoned: what was outstanding goes with the queue pair, and stays where that stays.

use bareverbs_core::teardown_order::{Quiesced, Step};
use bareverbs_shell::memory::{Lease, View, WeakLocalMemory};
use bareverbs_shell::objects::report::DropFailure;
use bareverbs_shell::one_sided::TransferErrorKind;
use bareverbs_shell::soft::{Answer, Record, SoftConfig, SoftDevice};

use crate::drop_log;
use crate::ledger::calls_of;
use crate::scene::{ALL, End, memory, pair, pattern, published, transfers_config, view};
use crate::world::{World, patiently};

fn world(device: &str) -> World {
    drop_log::keep();
    World::of_config(SoftConfig::default().devices(vec![SoftDevice::new(device)]), device)
}

/// An end with a write outstanding, and no handle of its memory; the other end.
fn busy(world: &World) -> (End, End, WeakLocalMemory) {
    let (mut a, b) = pair(world, &transfers_config());
    let (here, there) = (memory(&pattern(64, 1)), memory(&[0; 64]));
    let weak = here.downgrade().expect("owned bytes have a weak form");
    let (local, lease) = (view(&a, &here, ALL), published(&b, &there, ALL));
    a.write(&local, lease.remote()).expect("posted");
    // The other end's memory is not what this is about.
    std::mem::forget((lease, there));
    (a, b, weak)
}

fn says_that_it_is_gone(end: &mut End) {
    let told = end.poll(|event| panic!("{event:?}")).expect_err("for good").to_string();
    assert!(told.contains("make it anew") && !told.contains("connect first"), "{told}");
    let kinds =
        [end.poll(|event| panic!("{event:?}")), end.wait(&patiently(), |_| ()), end.wait_for_all(&patiently(), |_| ())];
    assert_eq!(kinds.map(|outcome| outcome.map_err(|error| error.kind)), [const { Err(TransferErrorKind::Gone) }; 3]);
}

#[test]
fn an_abandoned_end_has_nothing_outstanding_and_its_memory_is_given_back() {
    let world = world("abandoned");
    let (mut a, b, weak) = busy(&world);
    assert_eq!(a.pending().count(), 1);
    a.abandon();
    assert_eq!(a.pending().count(), 0);
    assert!(weak.upgrade().is_err(), "nothing of the device reaches it");
    says_that_it_is_gone(&mut a);
    a.abandon();
    let told = a.close().expect("nothing refuses");
    assert_eq!(told.quiesced, Quiesced::No);
    assert!(told.done().any(|step| step == Step::QueuePair), "{told:?}");
    drop(b);
    assert_eq!(drop_log::take("abandoned"), []);
}

#[test]
fn h3_where_an_abandoned_ends_queue_pair_stays_its_operations_and_memory_stay() {
    let world = world("abandonedkept");
    let soft = world.soft.as_ref().expect("a software fabric");
    let (mut a, b, weak) = busy(&world);
    let regions = soft.live().mrs;
    soft.fail_from("ibv_destroy_qp", 1, Answer::returned(libc::EBUSY));
    a.abandon();
    soft.clear_plan();
    assert_eq!(a.pending().count(), 1, "the device may be at it");
    says_that_it_is_gone(&mut a);
    drop((a, b));
    let reported = drop_log::take("abandonedkept");
    let kept = |failure: &&DropFailure| matches!(failure, DropFailure::Leaked { len_bytes: 64, .. });
    assert_eq!(reported.iter().filter(kept).count(), 1, "{reported:?}");
    assert!(weak.upgrade().is_ok(), "mapped for ever");
    assert_eq!((soft.live().qps, soft.live().mrs), (1, regions));
}

/// Every operation, and how it is refused.
fn operations(end: &mut End, local: &View, lease: &Lease) -> [Option<TransferErrorKind>; 5] {
    let remote = lease.remote();
    let refused = [
        end.write(local, remote),
        end.write_with_imm(local, remote, 1),
        end.read(local, remote),
        end.fetch_add(local, remote, 1),
        end.compare_swap(local, remote, 1, 2),
    ];
    refused.map(|outcome| outcome.err().map(|error| error.kind))
}

#[test]
fn before_it_is_connected_and_when_it_is_gone_an_end_posts_nothing_and_says_which() {
    drop_log::keep();
    let devices = vec![SoftDevice::new("unconnected")];
    let world = World::of_config(SoftConfig::default().devices(devices).record(Record::Bounded(10_000)), "unconnected");
    let soft = world.soft.as_ref().expect("a software fabric");
    for destroyed in [true, false] {
        let end = || End::new(&world.open(), transfers_config()).expect("a queue pair");
        let (mut a, b) = (end(), end());
        let (here, there) = (memory(&[1; 8]), memory(&[0; 8]));
        let weak = here.downgrade().expect("owned bytes have a weak form");
        let (local, lease) = (view(&a, &here, ALL), published(&b, &there, ALL));
        soft.clear_record();
        let all = |kind: fn() -> TransferErrorKind| [(); 5].map(|()| Some(kind()));
        assert_eq!(operations(&mut a, &local, &lease), all(|| TransferErrorKind::NotConnected));
        if !destroyed {
            soft.fail("ibv_destroy_qp", 1, Answer::returned(libc::EBUSY));
        }
        a.abandon();
        assert_eq!(operations(&mut a, &local, &lease), all(|| TransferErrorKind::Gone), "destroyed: {destroyed}");
        assert_eq!(calls_of(&soft.record(), "ibv_post_send"), 0);
        drop((here, local));
        assert!(weak.upgrade().is_err(), "nothing is held");
    }
}
