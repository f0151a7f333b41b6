//! What an end posts, and when: as the library sees it.

use bareverbs_core::verbs::QpState;
use bareverbs_shell::objects::DeviceContext;
use bareverbs_shell::one_sided::connect_pair;
use bareverbs_shell::soft::{Detail, Record, SoftConfig, SoftDevice, SoftFabric};

use crate::ledger::calls_of;
use crate::scene::{ALL, End, memory, pair, pattern, published, succeed, transfers_config, view};
use crate::world::World;
use crate::wrapped::{sends, wrap};

#[test]
fn of_an_operations_requests_the_last_alone_is_signalled() {
    let devices = vec![SoftDevice::new("signalled").max_message_bytes(100)];
    let soft = SoftFabric::new(SoftConfig::default().devices(devices)).expect("a free slot");
    let context = DeviceContext::open(&wrap(soft.symbols(), None), None).expect("the device");
    let end = || End::new(&context, transfers_config()).expect("a queue pair");
    let (mut a, mut b) = (end(), end());
    connect_pair(&mut a, &mut b).expect("both are in INIT");
    let (here, there) = (memory(&pattern(250, 1)), memory(&[0; 250]));
    let (local, lease) = (view(&a, &here, ALL), published(&b, &there, ALL));
    for write in [true, false] {
        let before = sends().len();
        let operation = if write { a.write(&local, lease.remote()) } else { a.read(&local, lease.remote()) };
        succeed(&mut a, operation.expect("posted"));
        let signalled: Vec<_> = sends()[before..].iter().map(|posted| posted.signalled).collect();
        assert_eq!(signalled, [false, false, true]);
    }
}

#[test]
fn receives_are_posted_between_rtr_and_rts() {
    let world = World::of_config(SoftConfig::default().record(Record::Bounded(10_000)), "soft");
    let soft = world.soft.as_ref().expect("a software fabric");
    let _ends = pair(&world, &transfers_config());
    let record = soft.record();
    assert_eq!(calls_of(&record, "ibv_post_recv"), 2 * transfers_config().queue_pair.recv_depth as usize);
    let mut states = std::collections::BTreeMap::new();
    for call in &record {
        match (&call.detail, call.symbol) {
            (Detail::Modify { attr, .. }, _) => drop(states.insert(call.handle, attr.qp_state)),
            (_, "ibv_post_recv") => {
                assert_eq!(
                    states.get(&call.handle),
                    Some(&QpState::RTR),
                    "before, a receive is no use; after, it is late"
                );
            }
            _ => {}
        }
    }
    assert!(states.values().eq([&QpState::RTS; 2]), "{states:?}");
}
