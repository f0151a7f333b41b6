//! Reliable connected message endpoints: on the software fabric, and on a real device, which is soft-RoCE in the guest.

use std::path::Path;
use std::sync::Arc;
use std::thread;

use bareverbs_core::connect::{Reason, Service};
use bareverbs_core::link::{Carrier, Header, Immediate};
use bareverbs_core::verbs::Mtu;
use bareverbs_shell::endpoint::{Endpoint, Event, Frames};
use bareverbs_shell::exchange::{self, ExchangeErrorKind, Terms};
use bareverbs_shell::objects::DeviceContext;
use bareverbs_shell::{EndpointConfig, Fabric, Wait};

use super::scene::{AMPLE, Scene, alike, both, loopback};

type End<C> = Endpoint<C, 16, 16>;

/// Whether the kernel has a device.
fn has_device() -> bool {
    Path::new("/sys/class/infiniband").read_dir().is_ok_and(|mut entries| entries.next().is_some())
}

fn fabric() -> Fabric {
    assert!(has_device(), "this test needs an RDMA device: run it in the guest");
    Fabric::system().expect("the library")
}

/// Emulated soft-RoCE answers slowly.
fn config(peer: &str) -> EndpointConfig {
    EndpointConfig::rc(peer).timeout(18)
}

#[test]
fn reliable_ends_have_wide_queues_and_the_ports_mtu() {
    let config = EndpointConfig::rc("b");
    let queue_pair = config.queue_pair;
    assert_eq!((queue_pair.service, queue_pair.send_depth, queue_pair.recv_depth), (Service::Rc, 512, 512));
    assert_eq!((queue_pair.timeout, queue_pair.retry_cnt, queue_pair.rnr_retry), (14, 7, 7));
    assert_eq!((queue_pair.min_rnr_timer, queue_pair.max_rd_atomic), (12, 16));
    assert_eq!((queue_pair.path_mtu_on(Mtu::B1024), queue_pair.path_mtu_on(Mtu::B4096)), (Mtu::B1024, Mtu::B4096));
    assert_eq!(config.timeout(18).queue_pair.timeout, 18);
}

fn converse<C: Carrier>(device: &Arc<DeviceContext>, carrier: C, text: &[u8]) {
    let mut a = End::new(device, carrier, config("b"), Frames::Owned).expect("an end");
    let mut b = End::new(device, carrier, config("a"), Frames::Owned).expect("an end");
    let (here, there) = both(&mut a, &mut b, alike(Terms::within(AMPLE)));
    let (here, there) = (here.expect("a meeting"), there.expect("a meeting"));
    assert_eq!(here.agreement.path_mtu, a.path_mtu());
    for round in 0..200u32 {
        say(&mut a, &mut b, text, round);
        say(&mut b, &mut a, text, round);
    }
    thread::scope(|scope| {
        scope.spawn(|| here.channel.leave(AMPLE).expect("a last word"));
        there.channel.leave(AMPLE).expect("a last word");
    });
    a.close().expect("an orderly end");
    b.close().expect("an orderly end");
}

fn say<C: Carrier>(from: &mut End<C>, to: &mut End<C>, text: &[u8], round: u32) {
    from.send(text.len(), |room| room[..text.len()].copy_from_slice(text)).expect("a send");
    let (mut came, mut sent) = (0, 0);
    while came == 0 {
        to.wait(&Wait::at_most(AMPLE), |event| {
            if let Event::Received(frame) = event {
                assert_eq!(frame.payload(), text, "round {round}");
                frame.repost().expect("a receive");
                came += 1;
            }
        })
        .expect("a message");
    }
    while sent == 0 {
        from.wait(&Wait::at_most(AMPLE), |event| sent += u32::from(matches!(event, Event::Sent { .. })))
            .expect("an acknowledgement");
    }
}

#[test]
#[ignore = "needs an RDMA device"]
fn reliable_ends_converse_with_numbers_as_immediates() {
    converse(&fabric().open(None).expect("a device"), Immediate, &[0x5a; 3000]);
}

#[test]
#[ignore = "needs an RDMA device"]
fn reliable_ends_converse_with_numbers_in_headers() {
    converse(&fabric().open(None).expect("a device"), Header::<64>::with_checksum(), &[0xa5; 3000]);
}

#[test]
fn reliable_ends_converse_on_the_software_fabric() {
    for scene in [Scene::new(), Scene::adversarial(3), Scene::adversarial(4)] {
        converse(&scene.device, Immediate, &[0x5a; 3000]);
        converse(&scene.device, Header::<64>::with_checksum(), &[0xa5; 3000]);
        assert_eq!(scene.fabric.misuse(), Vec::<String>::new());
    }
}

#[test]
#[ignore = "needs an RDMA device"]
fn a_reliable_and_an_unreliable_end_do_not_match() {
    let device = fabric().open(None).expect("a device");
    let mut a = End::new(&device, Immediate, config("b"), Frames::Owned).expect("an end");
    let mut b = End::new(&device, Immediate, EndpointConfig::uc("a"), Frames::Owned).expect("an end");
    let (here, there) = both(&mut a, &mut b, alike(Terms::within(AMPLE)));
    for outcome in [here, there] {
        let kind = outcome.expect_err("two services").kind;
        assert!(matches!(kind, ExchangeErrorKind::Mismatch(_)), "{kind}");
    }
}

#[test]
#[ignore = "needs an RDMA device"]
fn an_end_that_a_real_device_refuses_tells_the_other_one() {
    let device = fabric().open(None).expect("a device");
    let mut a = End::new(&device, Immediate, config("b"), Frames::Owned).expect("an end");
    // Nobody has this address: the device cannot resolve it, and says so when the queue pair is to enter RTR.
    let terms = Terms::within(AMPLE);
    let (here, told) = super::scene::against(&mut a, terms, |mut peer| {
        let mut hello = super::scene::answer_to(&peer.hello());
        hello.destination.gid =
            bareverbs_core::verbs::Gid::new([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 203, 0, 113, 9]);
        peer.send(&hello.encode());
        peer.send(&bareverbs_core::connect::Step::Agreed.encode());
        peer.step();
        peer.step()
    });
    assert!(matches!(here.expect_err("unreachable").kind, ExchangeErrorKind::Endpoint(_)));
    let bareverbs_core::connect::Step::Refused(refusal) = told else { panic!("{told:?}") };
    assert_eq!(refusal.reason, Reason::CannotConnect);
    assert_ne!(refusal.errno, 0);
}

#[test]
#[ignore = "needs an RDMA device"]
fn unreliable_ends_meet_on_a_real_device() {
    let device = fabric().open(None).expect("a device");
    let mut a = End::new(&device, Immediate, EndpointConfig::uc("b"), Frames::Owned).expect("an end");
    let mut b = End::new(&device, Immediate, EndpointConfig::uc("a"), Frames::Owned).expect("an end");
    let terms = Terms::within(AMPLE);
    let listener = loopback(&terms);
    let address = listener.address();
    thread::scope(|scope| {
        let there = scope.spawn(|| exchange::connect(&[address], &mut b, &terms).expect("a meeting"));
        exchange::accept(&listener, &mut a, &terms).expect("a meeting");
        there.join().expect("no panic");
    });
    (0..50).for_each(|round| say(&mut a, &mut b, b"unreliable, and here", round));
}
