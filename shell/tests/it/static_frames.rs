//! Static frames serve link after link: their claim comes back when region and queue pair are gone, however an endpoint ends,
//! and never when either had to be left behind.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bareverbs_core::link::{FrameStorage, Immediate, Sequence};
use bareverbs_shell::endpoint::{Endpoint, EndpointConfig, connect_pair};
use bareverbs_shell::objects::DeviceContext;
use bareverbs_shell::soft::{Answer, LiveCounts, Mode, Record, SoftConfig, SoftDevice, SoftFabric};
use bareverbs_shell::{Error, Fabric, FabricKind};

use crate::drop_log;
use crate::ledger::Ledger;
use crate::world::{World, config, send_next, stream};

type Storage = FrameStorage<{ 8 * 1024 }>;
type End = Endpoint<Immediate, 4, 4>;

/// Storage of a test's own: some of it stays claimed for good.
fn storage() -> &'static Storage {
    Box::leak(Box::new(FrameStorage::new()))
}

fn end_over(context: &Arc<DeviceContext>, storage: &'static Storage) -> Result<End, Error> {
    let memory = storage.claim().expect("nobody else has it");
    Endpoint::new(context, Immediate, config().drain_limit(Duration::ZERO), memory)
}

/// A software fabric whose device has this name, by which drops report.
fn fabric(device: &str) -> (SoftFabric, Arc<DeviceContext>) {
    drop_log::keep();
    let config = SoftConfig::default().devices(vec![SoftDevice::new(device)]).record(Record::Bounded(10_000));
    let soft = SoftFabric::new(config).expect("a free slot");
    let context = Fabric::with_symbols(soft.symbols(), FabricKind::Soft).open(None).expect("its device");
    (soft, context)
}

/// Connected to itself, with receives and a send outstanding.
fn busy(context: &Arc<DeviceContext>, storage: &'static Storage) -> End {
    let mut end = end_over(context, storage).expect("an endpoint");
    let itself = end.destination();
    end.agree_credits(end.recv_depth()).expect("nothing was sent");
    end.connect(&itself, end.path_mtu()).expect("it is in INIT");
    end.send(8, |_| ()).expect("a healthy link");
    end
}

#[test]
fn static_frames_serve_one_link_after_the_other_by_close_and_by_drop() {
    for mode in [Mode::Prompt, Mode::Adversarial { seed: 3 }] {
        let world = World::soft(mode);
        let places = [storage(), storage()];
        for round in 0..6 {
            let mut ends = places.map(|storage| {
                let memory = storage.claim().expect("the link before is gone");
                Endpoint::<_, 4, 4>::new(&world.open(), Immediate, config(), memory).expect("an endpoint")
            });
            let [a, b] = &mut ends;
            connect_pair(a, b).expect("both are in INIT");
            stream(a, b, 10, 4, 1024, Some(Sequence::new(0)));
            // One more is under way when they end.
            while !send_next(a, 10, 1024, 1) {
                for end in [&mut *a, &mut *b] {
                    end.poll(|_| ()).expect("a healthy link");
                }
            }
            for (end, storage) in ends.into_iter().zip(places) {
                assert!(storage.claim().is_none(), "the link has it");
                if round % 2 == 0 {
                    drop(end)
                } else {
                    drop(end.close().expect("nothing refuses"))
                }
                drop(storage.claim().expect("the link is gone"));
            }
        }
        world.assert_clean();
    }
}

#[test]
fn frames_that_no_endpoint_took_come_back() {
    let (soft, context) = fabric("untaken");
    let storage = storage();
    // No such port: the frames were not looked at.
    let config = EndpointConfig::uc("b").queue_pair(bareverbs_core::connect::QueuePairConfig::uc().port(9));
    let memory = storage.claim().expect("nobody else has it");
    let error = Endpoint::<_, 4, 4>::new(&context, Immediate, config, memory).expect_err("no port 9");
    assert!(matches!(error, Error::Call(_)), "{error}");
    drop(storage.claim().expect("they came back"));
    drop(context);
    assert_eq!(soft.live(), LiveCounts::default());
}

/// How often each call is made by `body`.
fn calls_of(soft: &SoftFabric, body: impl FnOnce()) -> BTreeMap<&'static str, u64> {
    let before = soft.record().len();
    body();
    let mut calls = BTreeMap::new();
    for call in &soft.record()[before..] {
        *calls.entry(call.symbol).or_default() += 1;
    }
    calls
}

/// Ends what a test has left behind.
fn sweep(soft: &SoftFabric, context: Arc<DeviceContext>) {
    drop(context);
    soft.clear_plan();
    Ledger::replay(&soft.record()).sweep(soft);
}

const DESTROYS: [&str; 2] = ["ibv_dereg_mr", "ibv_destroy_qp"];

#[test]
fn an_endpoint_that_cannot_be_made_gives_its_frames_back_whichever_call_refuses() {
    let (soft, context) = fabric("unmade");
    let calls = calls_of(&soft, || drop(end_over(&context, storage()).expect("nothing refuses")));
    let mut refused = Vec::new();
    for (symbol, count) in calls.into_iter().filter(|(symbol, _)| !DESTROYS.contains(symbol)) {
        for nth in 1..=count {
            let storage = storage();
            soft.fail(symbol, nth, Answer::returned(5));
            let made = end_over(&context, storage);
            soft.clear_plan();
            if made.is_err() {
                refused.push(symbol);
            }
            drop(made);
            assert!(storage.claim().is_some(), "call {nth} of {symbol}");
        }
    }
    refused.dedup();
    let steps = ["ibv_query_port", "ibv_query_gid", "ibv_alloc_pd", "ibv_create_cq", "ibv_create_qp", "ibv_reg_mr"];
    assert!(steps.iter().all(|step| refused.contains(step)) && refused.contains(&"ibv_modify_qp"), "{refused:?}");
    drop_log::take("unmade");
    sweep(&soft, context);
}

#[test]
fn an_endpoint_that_cannot_be_made_keeps_its_frames_where_region_or_queue_pair_stays() {
    for destroy in DESTROYS {
        let device = format!("halfmade {destroy}");
        let (soft, context) = fabric(&device);
        let storage = storage();
        soft.fail("ibv_modify_qp", 1, Answer::returned(22));
        soft.fail(destroy, 1, Answer::returned(16));
        end_over(&context, storage).expect_err("INIT is refused");
        assert!(storage.claim().is_none(), "{destroy} was refused");
        assert_eq!(drop_log::take(&device).len(), 1);
        sweep(&soft, context);
        assert!(storage.claim().is_none(), "for good");
    }
}

#[test]
fn no_plan_gives_frames_back_by_a_destroy_that_only_says_that_it_was_done() {
    let (soft, context) = fabric("said done");
    let storage = storage();
    let end = busy(&context, storage);
    for call in ["ibv_modify_qp", "ibv_destroy_qp", "ibv_dereg_mr", "ibv_destroy_cq", "ibv_req_notify_cq"] {
        let plan = || soft.fail_from(call, 1, Answer::nothing());
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(plan)).expect_err("it would say that it was done");
    }
    drop(end);
    assert_eq!(soft.live().mrs + soft.live().qps, 0, "nothing was planned, all of it was done");
    assert!(storage.claim().is_some());
    sweep(&soft, context);
}

#[test]
fn frames_stay_claimed_where_a_teardown_leaves_region_or_queue_pair_behind() {
    for (at, refused) in
        [&DESTROYS[..1], &DESTROYS[1..], &DESTROYS, &["ibv_modify_qp", "ibv_destroy_qp"]].iter().enumerate()
    {
        for close in [false, true] {
            let device = format!("kept {at} {close}");
            let (soft, context) = fabric(&device);
            let storage = storage();
            let end = busy(&context, storage);
            for call in *refused {
                soft.fail_from(call, 1, Answer::returned(16));
            }
            if close {
                drop(end.close().expect_err("refused"))
            } else {
                drop(end)
            }
            assert!(storage.claim().is_none(), "{refused:?}, close: {close}");
            drop_log::take(&device);
            sweep(&soft, context);
            assert!(storage.claim().is_none(), "for good");
        }
    }
}

#[test]
fn what_else_a_teardown_leaves_behind_does_not_keep_the_frames() {
    // A queue pair that could not be drained is destroyed before its region; the rest does not know the frames.
    for (at, refused) in ["ibv_modify_qp", "ibv_poll_cq", "ibv_destroy_cq", "ibv_dealloc_pd"].iter().enumerate() {
        let device = format!("rest {at}");
        let (soft, context) = fabric(&device);
        let storage = storage();
        let end = busy(&context, storage);
        soft.fail_from(refused, 1, Answer::returned(-5));
        drop(end);
        assert!(storage.claim().is_some(), "{refused}");
        drop_log::take(&device);
        sweep(&soft, context);
    }
}

#[test]
fn an_endpoint_that_fails_to_connect_keeps_its_frames_until_it_goes() {
    let (soft, context) = fabric("unconnected");
    let storage = storage();
    let mut end = end_over(&context, storage).expect("an endpoint");
    soft.fail("ibv_modify_qp", 1, Answer::returned(22));
    let itself = end.destination();
    end.connect(&itself, end.path_mtu()).expect_err("RTR is refused");
    assert!(storage.claim().is_none(), "the queue pair is gone, the region is not");
    end.close().expect("nothing refuses");
    drop(storage.claim().expect("all of it is gone"));
    sweep(&soft, context);
}

#[test]
fn a_forgotten_endpoint_keeps_its_frames() {
    let (soft, context) = fabric("forgotten frames");
    let storage = storage();
    std::mem::forget(busy(&context, storage));
    assert!(storage.claim().is_none());
    sweep(&soft, context);
    assert!(storage.claim().is_none(), "for good");
}

#[test]
fn frames_of_one_storage_serve_two_links_and_come_back_with_the_last() {
    let (soft, context) = fabric("split");
    let storage = storage();
    let (first, rest) = storage.claim().expect("nobody else has it").split_at(4 * 1024).expect("it is larger");
    let config = config().drain_limit(Duration::ZERO);
    let end = |memory| Endpoint::<_, 2, 2>::new(&context, Immediate, config.clone(), memory).expect("an endpoint");
    let (a, b) = (end(first), end(rest));
    drop(a);
    assert!(storage.claim().is_none(), "the other half is out");
    drop(b);
    drop(storage.claim().expect("both came back"));
    sweep(&soft, context);
}
