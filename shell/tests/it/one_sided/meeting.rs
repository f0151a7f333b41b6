//! How two ends meet over the exchange, and whom they do not take for one of theirs.

use std::time::Duration;

use bareverbs_core::link::Raw;
use bareverbs_shell::endpoint::{Endpoint, EndpointConfig, Frames};
use bareverbs_shell::exchange::{self, ExchangeErrorKind, Listener, Terms};
use bareverbs_shell::soft::Mode;

use crate::scene::{ALL, End, content, memory, published, succeed, transfers_config, view};
use crate::world::World;

const TERMS: Terms = Terms::within(Duration::from_secs(20));

fn listen() -> Listener {
    Listener::bind("127.0.0.1:0".parse().expect("an address"), &TERMS).expect("a free port")
}

#[test]
fn two_ends_meet_over_tcp_and_agree_on_the_fewer_reads() {
    let world = World::soft(Mode::Prompt);
    let (few, many) = (3, 16);
    let end = |reads| {
        let mut config = transfers_config();
        config.queue_pair.max_rd_atomic = reads;
        End::new(&world.open(), config).expect("a queue pair")
    };
    let (mut a, mut b) = (end(few), end(many));
    let listener = listen();
    let address = listener.address();
    std::thread::scope(|scope| {
        let there = scope.spawn(|| exchange::connect(&[address], &mut b, &TERMS));
        let here = exchange::accept(&listener, &mut a, &TERMS).expect("they agree");
        let there = there.join().expect("no panic").expect("they agree");
        assert_eq!((here.agreement.max_rd_atomic, there.agreement.max_rd_atomic), (few, few));
    });
    assert_eq!((a.max_rd_atomic(), b.max_rd_atomic()), (few, few));
    let (here, there) = (memory(b"reach"), memory(&[0; 5]));
    let (local, lease) = (view(&a, &here, ALL), published(&b, &there, ALL));
    let write = a.write(&local, lease.remote()).expect("posted");
    succeed(&mut a, write);
    assert_eq!(content(&there), b"reach");
}

#[test]
fn an_end_does_not_connect_to_an_endpoint_of_messages() {
    let world = World::soft(Mode::Prompt);
    let mut one_sided = End::new(&world.open(), transfers_config()).expect("a queue pair");
    let config = EndpointConfig::rc("the other end").frame_bytes(1024);
    let mut messages = Endpoint::<_, 4, 4>::new(&world.open(), Raw, config, Frames::Owned).expect("an endpoint");
    let listener = listen();
    let address = listener.address();
    std::thread::scope(|scope| {
        let there = scope.spawn(|| exchange::connect(&[address], &mut messages, &TERMS));
        let here = exchange::accept(&listener, &mut one_sided, &TERMS).expect_err("they have nothing to say");
        let there = there.join().expect("no panic").expect_err("they have nothing to say");
        for error in [here, there] {
            assert!(matches!(error.kind, ExchangeErrorKind::Mismatch(_)), "{error}");
        }
    });
    drop((one_sided, messages));
    world.assert_clean();
}
