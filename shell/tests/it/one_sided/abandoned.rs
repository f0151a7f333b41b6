//! Ends that were abandoned: what was outstanding goes with the queue pair, and stays where that stays.

use bareverbs_core::teardown_order::{Quiesced, Step};
use bareverbs_shell::memory::WeakLocalMemory;
use bareverbs_shell::objects::report::DropFailure;
use bareverbs_shell::one_sided::TransferErrorKind;
use bareverbs_shell::soft::{Answer, SoftConfig, SoftDevice};

use crate::drop_log;
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
