//! Teardown in every order in which safe code drops handles: cases H1 and H4.

use std::sync::Arc;

use bareverbs_core::connect::{QueuePairConfig, Transition};
use bareverbs_core::link::Immediate;
use bareverbs_core::teardown_order::{Quiesced, Step};
use bareverbs_core::verbs::AccessFlags;
use bareverbs_shell::Error;
use bareverbs_shell::endpoint::{Endpoint, Frames};
use bareverbs_shell::memory::pages::{PAGE_BYTES, Pages};
use bareverbs_shell::objects::report::DropFailure;
use bareverbs_shell::objects::{CompletionQueue, DeviceContext, MemoryRegion, ProtectionDomain, QueuePair};
use bareverbs_shell::soft::{Answer, LiveCounts, Mode, Record, SoftConfig, SoftDevice, SoftFabric};

use crate::drop_log;
use crate::ledger::{Ledger, calls_of};
use crate::world::config;

fn fabric(device: &str) -> SoftFabric {
    let config = SoftConfig::default().devices(vec![SoftDevice::new(device)]).record(Record::Bounded(10_000));
    SoftFabric::new(config).expect("a free slot")
}

/// The ways in which most of this is tried.
pub fn modes() -> impl Iterator<Item = Mode> {
    std::iter::once(Mode::Prompt).chain((1..=8).map(|seed| Mode::Adversarial { seed }))
}

/// One of each handle, made as safe code makes them, for dropping in any order.
enum Held {
    Region(MemoryRegion),
    QueuePair(QueuePair),
    Queue(CompletionQueue),
    Domain(Arc<ProtectionDomain>),
    Device(Arc<DeviceContext>),
}

fn region(domain: &Arc<ProtectionDomain>) -> Result<MemoryRegion, Error> {
    let pages = Arc::new(Pages::new(PAGE_BYTES).expect("a page"));
    let (start, bytes) = (pages.start().addr().get(), pages.len_bytes());
    #[allow(unsafe_code)]
    // SAFETY: 1: the keeper holds the pages. 2: only their address is known.
    unsafe {
        MemoryRegion::register(domain, start, bytes, AccessFlags::LOCAL_WRITE, Some(pages))
    }
}

/// In the order MR, QP, CQ, PD, device; the queue pair in INIT.
fn one_of_each(soft: &SoftFabric) -> Result<[Held; 5], Error> {
    let device = DeviceContext::open(&soft.symbols(), None)?;
    let domain = ProtectionDomain::new(&device, 1)?;
    let queue = CompletionQueue::new(&device, 8)?;
    let mut pair = QueuePair::new(&domain, &queue, &queue, &QueuePairConfig::uc().depths(2, 2))?;
    let region = region(&domain)?;
    pair.modify(&Transition::to_init(&QueuePairConfig::uc()))?;
    Ok([Held::Region(region), Held::QueuePair(pair), Held::Queue(queue), Held::Domain(domain), Held::Device(device)])
}

/// All orders of so many things.
fn orders(of: usize) -> Vec<Vec<usize>> {
    let Some(last) = of.checked_sub(1) else { return vec![Vec::new()] };
    let shorter = orders(last);
    shorter.iter().flat_map(|order| (0..of).map(|at| [&order[..at], &[last], &order[at..]].concat())).collect()
}

fn drop_in_order(held: [Held; 5], order: &[usize]) {
    let mut held = held.map(Some);
    for at in order {
        match held[*at].take() {
            Some(Held::Region(region)) => drop(region),
            Some(Held::QueuePair(pair)) => drop(pair),
            Some(Held::Queue(queue)) => drop(queue),
            Some(Held::Domain(domain)) => drop(domain),
            Some(Held::Device(device)) => drop(device),
            None => panic!("dropped twice: {order:?}"),
        }
    }
}

/// That everything went, once, without a refusal, and the device last.
fn assert_all_went(soft: &SoftFabric, what: &str) {
    let record = soft.record();
    let ledger = Ledger::replay(&record);
    ledger.assert_all_gone();
    assert_eq!(ledger.steps.last(), Some(&Step::DeviceContext), "{what}");
    assert_eq!(soft.misuse(), Vec::<String>::new(), "{what}");
    assert_eq!(soft.live(), LiveCounts::default(), "{what}");
}

#[test]
fn h1_all_120_orders_of_dropping_five_handles_destroy_each_once_and_the_device_last() {
    let orders = orders(5);
    assert_eq!(orders.len(), 120);
    for order in orders {
        let soft = fabric("soft0");
        drop_in_order(one_of_each(&soft).expect("one of each"), &order);
        let what = format!("{order:?}");
        assert_all_went(&soft, &what);
        assert_eq!(Ledger::replay(&soft.record()).steps.len(), 5, "{what}");
    }
}

#[test]
fn h1_an_early_return_after_the_queue_pair_and_a_refused_move_to_init_leave_nothing() {
    let soft = fabric("soft0");
    soft.fail("ibv_reg_mr", 1, Answer::null(12));
    assert!(one_of_each(&soft).is_err(), "an early return with a queue pair in RESET");
    assert_all_went(&soft, "before RTR");

    for with_endpoint in [false, true] {
        let soft = fabric("soft0");
        soft.fail("ibv_modify_qp", 1, Answer::returned(22));
        let error = if with_endpoint {
            let device = DeviceContext::open(&soft.symbols(), None).expect("the device");
            Endpoint::<_, 2, 2>::new(&device, Immediate, config(), Frames::Owned).map(drop).expect_err("refused")
        } else {
            one_of_each(&soft).map(drop).expect_err("refused")
        };
        let Error::Call(call) = &error else { panic!("{error}") };
        assert_eq!((call.call, call.errno.map(|errno| errno.0)), ("ibv_modify_qp", Some(22)));
        assert!(error.to_string().contains("INIT") && error.to_string().contains("port 1"), "{error}");
        assert_all_went(&soft, "INIT refused");
        assert_eq!(calls_of(&soft.record(), "ibv_modify_qp"), 1, "it is not moved again");
    }
}

#[test]
fn h1_a_destroy_that_fails_once_is_reported_once_and_not_tried_again_in_any_order() {
    drop_log::keep();
    for symbol in ["ibv_dereg_mr", "ibv_destroy_qp", "ibv_destroy_cq", "ibv_dealloc_pd", "ibv_close_device"] {
        let device = format!("h1{symbol}");
        // One fabric: what cannot be destroyed keeps one for ever.
        let soft = fabric(&device);
        for order in orders(5) {
            soft.clear_record();
            let held = one_of_each(&soft).expect("one of each");
            soft.fail(symbol, 1, Answer::returned(16));
            drop_in_order(held, &order);
            let reported = drop_log::take(&device);
            let [DropFailure::Destroy(call)] = &reported[..] else { panic!("{symbol}, {order:?}: {reported:?}") };
            assert_eq!((call.call, call.errno.map(|errno| errno.0)), (symbol, Some(16)));
            let ledger = Ledger::replay(&soft.record());
            ledger.assert_only_refused_stay(false);
            assert_eq!(ledger.refused.len(), 1);
            ledger.assert_counts(&soft.live());
            ledger.sweep(&soft);
        }
    }
}

/// Makes a queue pair on these queues; the pointers that the library was given.
fn pair_on(
    soft: &SoftFabric,
    domain: &Arc<ProtectionDomain>,
    send: &CompletionQueue,
    recv: &CompletionQueue,
) -> (QueuePair, [usize; 2]) {
    let pair = QueuePair::new(domain, send, recv, &QueuePairConfig::uc().depths(2, 2)).expect("a queue pair");
    let record = soft.record();
    let made = record.iter().rfind(|call| call.symbol == "ibv_create_qp").expect("just made");
    (pair, [made.parents[1], made.parents[2]])
}

fn last_queue(soft: &SoftFabric) -> usize {
    let record = soft.record();
    record.iter().rfind(|call| call.symbol == "ibv_create_cq").expect("one was made").handle
}

#[test]
fn h4_a_queue_pair_gets_exactly_the_queues_asked_for_and_each_is_destroyed_once_after_its_last_user() {
    for (shared, pairs) in [(true, 1), (true, 2), (false, 1), (false, 2)] {
        for queues_first in [true, false] {
            let soft = fabric("soft0");
            let device = DeviceContext::open(&soft.symbols(), None).expect("the device");
            let domain = ProtectionDomain::new(&device, 1).expect("a domain");
            let send = CompletionQueue::new(&device, 8).expect("a queue");
            let send_handle = last_queue(&soft);
            let recv = (!shared).then(|| CompletionQueue::new(&device, 8).expect("a queue"));
            let recv_handle = last_queue(&soft);
            let mut made = Vec::new();
            for _ in 0..pairs {
                let (pair, given) = pair_on(&soft, &domain, &send, recv.as_ref().unwrap_or(&send));
                assert_eq!(given, [send_handle, recv_handle]);
                made.push(pair);
            }
            if queues_first {
                drop((send, recv));
                assert_eq!(calls_of(&soft.record(), "ibv_destroy_cq"), 0, "a queue pair uses it");
                drop(made);
            } else {
                drop(made);
                drop((send, recv));
            }
            drop((domain, device));
            assert_all_went(&soft, "queues");
            assert_eq!(calls_of(&soft.record(), "ibv_destroy_cq"), if shared { 1 } else { 2 });
        }
    }
}

#[test]
fn h4_an_explicit_close_is_the_only_destroy() {
    let soft = fabric("soft0");
    let device = DeviceContext::open(&soft.symbols(), None).expect("the device");
    let domain = ProtectionDomain::new(&device, 1).expect("a domain");
    let queue = CompletionQueue::new(&device, 8).expect("a queue");
    let (pair, _) = pair_on(&soft, &domain, &queue, &queue);
    let region = region(&domain).expect("a region");
    // Not while something uses them: refused without a call, and they go with their last user.
    let busy = CompletionQueue::new(&device, 8).expect("another queue");
    let (user, _) = pair_on(&soft, &domain, &busy, &busy);
    assert!(matches!(busy.close(), Err(Error::State { .. })));
    assert!(matches!(Arc::clone(&domain).close(), Err(Error::State { .. })));
    assert_eq!(calls_of(&soft.record(), "ibv_destroy_cq") + calls_of(&soft.record(), "ibv_dealloc_pd"), 0);
    user.close().expect("nothing refuses");
    region.close().expect("nothing refuses");
    pair.close().expect("nothing refuses");
    queue.close().expect("nothing refuses");
    domain.close().expect("nothing refuses");
    drop(device);
    assert_all_went(&soft, "closed");
}

#[test]
fn a_panic_while_endpoints_live_takes_them_down_in_order() {
    for mode in modes() {
        let devices = vec![SoftDevice::new("soft0")];
        let soft = SoftFabric::new(SoftConfig::default().devices(devices).mode(mode).record(Record::Bounded(10_000)))
            .expect("a free slot");
        let panicked = std::panic::catch_unwind(|| {
            let device = DeviceContext::open(&soft.symbols(), None).expect("the device");
            let mut end = Endpoint::<_, 4, 4>::new(&device, Immediate, config(), Frames::Owned).expect("an endpoint");
            drop(device);
            let itself = end.destination();
            end.agree_credits(end.recv_depth()).expect("nothing was sent");
            end.connect(&itself, end.path_mtu()).expect("it is in INIT");
            end.send(8, |_| ()).expect("a healthy link");
            std::panic::resume_unwind(Box::new("while work is in flight"));
        });
        assert!(panicked.is_err());
        let ledger = Ledger::replay(&soft.record());
        ledger.assert_in_order(Quiesced::Yes);
        assert_eq!(ledger.steps.first(), Some(&Step::Quiesce), "{mode:?}");
        assert_all_went(&soft, "unwound");
    }
}
