//! Ends that agree: connected, ready, numbers random, by every way of exchanging.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use bareverbs_core::connect::{Hello, Service, agree};
use bareverbs_core::link::{Header, Immediate, Outstanding, Raw, Sequence};
use bareverbs_core::teardown_order::{self, Step};
use bareverbs_core::verbs::{Mtu, QpState};
use bareverbs_shell::EndpointConfig;
use bareverbs_shell::endpoint::EndpointErrorKind;
use bareverbs_shell::exchange::{self, ExchangeErrorKind, Phase, Terms};
use bareverbs_shell::soft::{SoftConfig, SoftDevice};

use super::scene::{AMPLE, End, Scene, alike, both, loopback, passes};

#[test]
fn both_ends_have_receives_posted_and_are_in_rts_when_it_ends() {
    let scene = Scene::new();
    let (mut a, mut b) = (scene.uc("b"), scene.uc("a"));
    assert_eq!(a.outstanding().receives, 0);
    let (here, there) = both(&mut a, &mut b, alike(Terms::within(AMPLE).nonce(7)));
    let (here, there) = (here.expect("a meeting"), there.expect("a meeting"));
    assert_eq!((here.agreement.remote, there.agreement.remote), (b.destination(), a.destination()));
    assert_eq!((a.outstanding().receives, b.outstanding().receives), (8, 8));
    assert_eq!((here.agreement.remote_recv_depth, there.agreement.remote_recv_depth), (8, 8));
    assert_eq!((scene.moves_to(QpState::RTR), scene.moves_to(QpState::RTS)), (2, 2));
    passes(&mut a, &mut b, b"from a");
    passes(&mut b, &mut a, b"from b");
}

#[test]
fn the_first_message_of_whoever_is_done_first_finds_a_receive() {
    for seed in 0..8 {
        let scene = Scene::adversarial(seed);
        let (mut a, mut b) = (scene.uc("b"), scene.uc("a"));
        let terms = Terms::within(AMPLE);
        let listener = loopback(&terms);
        let address = listener.address();
        thread::scope(|scope| {
            let ends: [&mut End; 2] = [&mut a, &mut b];
            let [a, b] = ends;
            scope.spawn(|| {
                exchange::accept(&listener, a, &terms).expect("a meeting");
                a.send(5, |room| room[..5].copy_from_slice(b"early")).expect("a send");
            });
            scope.spawn(move || {
                exchange::connect(&[address], b, &terms).expect("a meeting");
                b.send(5, |room| room[..5].copy_from_slice(b"early")).expect("a send");
            });
        });
        for end in [&mut a, &mut b] {
            let mut received = 0;
            while received == 0 {
                end.wait(&bareverbs_shell::Wait::at_most(AMPLE), |event| {
                    received += usize::from(matches!(event, bareverbs_shell::endpoint::Event::Received(_)));
                })
                .expect("the message");
            }
        }
    }
}

#[test]
fn first_numbers_are_random_for_each_connection_and_direction_and_known_at_both_ends() {
    let scene = Scene::new();
    let mut seen = Vec::new();
    for _ in 0..8 {
        let (mut a, mut b) = (scene.uc("b"), scene.uc("a"));
        let (here, there) = both(&mut a, &mut b, alike(Terms::within(AMPLE)));
        let (here, there) = (here.expect("a meeting").agreement, there.expect("a meeting").agreement);
        assert_eq!((here.tx_start, here.rx_start), (there.rx_start, there.tx_start));
        seen.extend([here.tx_start.number(), here.rx_start.number()]);
        passes(&mut a, &mut b, b"number");
        passes(&mut b, &mut a, b"number");
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 16, "16 numbers of 32 bits, no two alike");
}

#[test]
fn packet_numbers_are_random_and_each_end_sends_from_its_own_and_hears_from_the_others() {
    let scene = Scene::new();
    let mut seen = Vec::new();
    for _ in 0..4 {
        scene.fabric.clear_record();
        let (mut a, mut b) = (scene.uc("b"), scene.uc("a"));
        let (here, _) = both(&mut a, &mut b, alike(Terms::within(AMPLE)));
        here.expect("a meeting");
        let (of_a, of_b) = (a.destination().psn.get(), b.destination().psn.get());
        let mut moves: Vec<_> = scene.moves(QpState::RTR).iter().map(|attr| (attr.dest_qp_num, attr.rq_psn)).collect();
        let mut wanted = vec![(a.qp_num(), of_a), (b.qp_num(), of_b)];
        moves.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(moves, wanted);
        let mut sends: Vec<_> = scene.moves(QpState::RTS).iter().map(|attr| attr.sq_psn).collect();
        let mut own = vec![of_a, of_b];
        sends.sort_unstable();
        own.sort_unstable();
        assert_eq!(sends, own);
        seen.extend(own);
    }
    seen.sort_unstable();
    seen.dedup();
    assert!(seen.len() >= 7, "8 numbers of 24 bits: {seen:?}");
    assert!(seen.iter().all(|psn| *psn < 1 << 24) && seen.iter().any(|psn| *psn >= 1 << 16));
}

#[test]
fn numbers_go_on_across_the_wrap() {
    let scene = Scene::new();
    let config = |peer| EndpointConfig::uc(peer).sequences(Sequence::new(0xFFFF_FFFE), Sequence::default());
    let (mut a, mut b) = (scene.end(Immediate, config("b")), scene.uc("a"));
    let (here, _) = both(&mut a, &mut b, alike(Terms::within(AMPLE)));
    assert_eq!(here.expect("a meeting").agreement.tx_start.number(), 0xFFFF_FFFE);
    (0..6u8).for_each(|count| passes(&mut a, &mut b, &[count; 9]));
}

#[test]
fn every_carrier_meets_its_like() {
    let scene = Scene::new();
    macro_rules! meets {
        ($carrier:expr) => {
            let (mut a, mut b) =
                (scene.end($carrier, EndpointConfig::uc("b")), scene.end($carrier, EndpointConfig::uc("a")));
            let (here, there) = both(&mut a, &mut b, alike(Terms::within(AMPLE)));
            assert!(here.is_ok() && there.is_ok());
            passes(&mut a, &mut b, b"carried");
        };
    }
    meets!(Immediate);
    meets!(Header::<64>::new());
    meets!(Header::<128>::with_checksum());
    meets!(Raw);
}

#[test]
fn the_lower_mtu_wins() {
    let scene = Scene::new();
    let config = |peer, mtu| {
        let config = EndpointConfig::uc(peer);
        let queue_pair = config.queue_pair.path_mtu(mtu);
        config.queue_pair(queue_pair)
    };
    let mut a = scene.end(Immediate, config("b", Mtu::B512));
    let mut b = scene.end(Immediate, config("a", Mtu::B256));
    let (here, there) = both(&mut a, &mut b, alike(Terms::within(AMPLE)));
    assert_eq!(here.expect("a meeting").agreement.path_mtu, Mtu::B256);
    assert_eq!(there.expect("a meeting").agreement.path_mtu, Mtu::B256);
    passes(&mut a, &mut b, &[1; 3000]);
}

#[test]
fn an_end_says_of_itself_what_it_is() {
    let scene = Scene::of(SoftConfig::default().devices(vec![SoftDevice::new("soft0").active_mtu(Mtu::B2048)]));
    let end = scene.end(Header::<128>::with_checksum(), EndpointConfig::uc("b").frame_bytes(8192));
    let hello = end.hello(9);
    assert_eq!(hello.destination, end.destination());
    assert_eq!((hello.service, hello.frame_bytes, hello.header_room_bytes), (Service::Uc, 8192, 128));
    assert_eq!((hello.recv_depth, hello.nonce, hello.path_mtu), (8, 9, Mtu::B1024));
    assert_eq!(hello.checksum, bareverbs_core::link::Checksum::Crc32c);
    assert_eq!(end.hello(9), hello, "the same each time");
}

#[test]
fn a_channel_of_the_callers_will_do() {
    let scene = Scene::new();
    let (mut a, mut b) = (scene.uc("b"), scene.uc("a"));
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    let by = |end: &mut End, stream: UnixStream| {
        let (mut out, mut inn) = (&stream, &stream);
        exchange::over(end, 3, |bytes| out.write_all(bytes), |room| inn.read_exact(room))
    };
    let (here, there) = thread::scope(|scope| {
        let there = scope.spawn(|| by(&mut b, theirs));
        (by(&mut a, ours), there.join().expect("no panic"))
    });
    assert_eq!(here.expect("a meeting").tx_start, there.expect("a meeting").rx_start);
    passes(&mut a, &mut b, b"own channel");
}

#[test]
fn a_channel_that_fails_is_told_as_it_failed() {
    let scene = Scene::new();
    let mut end = scene.uc("rank 3");
    let error = exchange::over(&mut end, 3, |_| Ok(()), |_| Err(std::io::ErrorKind::NotConnected.into()))
        .expect_err("nothing comes");
    let ExchangeErrorKind::Io { during: Phase::Hello, error: why } = error.kind else { panic!("{error}") };
    assert_eq!(why.kind, std::io::ErrorKind::NotConnected);
    assert!(error.to_string().contains("rank 3"), "{error}");
    assert_eq!(scene.moves_to(QpState::RTR), 0);
}

#[test]
fn step_by_step_will_do_too() {
    let scene = Scene::new();
    let (mut a, mut b) = (scene.uc("b"), scene.uc("a"));
    let (from_a, from_b) = (a.hello(1).encode(), b.hello(1).encode());
    let heard_by = |bytes: &[u8]| Hello::decode(bytes).expect("a hello");
    let here = agree(&a.hello(1), &heard_by(&from_b)).expect("alike");
    let there = agree(&b.hello(1), &heard_by(&from_a)).expect("alike");
    a.connect_as_agreed(&here).expect("connected");
    b.connect_as_agreed(&there).expect("connected");
    passes(&mut a, &mut b, b"step by step");
    assert!(a.connect_as_agreed(&here).is_err(), "once only");
    passes(&mut b, &mut a, b"and unharmed by that");
}

#[test]
fn a_last_word_is_said_by_both() {
    let scene = Scene::new();
    let (mut a, mut b) = (scene.uc("b"), scene.uc("rank 0"));
    let (here, there) = both(&mut a, &mut b, alike(Terms::within(AMPLE)));
    let (here, there) = (here.expect("a meeting").channel, there.expect("a meeting").channel);
    thread::scope(|scope| {
        scope.spawn(|| here.leave(AMPLE).expect("a last word"));
        there.leave(AMPLE).expect("a last word");
    });
    let (mut a, mut b) = (scene.uc("b"), scene.uc("rank 0"));
    let (here, there) = both(&mut a, &mut b, alike(Terms::within(AMPLE)));
    let (_here, there) = (here.expect("a meeting"), there.expect("a meeting").channel);
    let error = there.leave(Duration::from_millis(50)).expect_err("nobody answers");
    assert!(matches!(error.kind, ExchangeErrorKind::Timeout { during: Phase::Leaving, got_bytes: 0, need_bytes: 12 }));
    assert!(error.to_string().contains("rank 0"), "{error}");
}

#[test]
fn a_listener_that_comes_late_is_found() {
    let scene = Scene::new();
    let (mut a, mut b) = (scene.uc("b"), scene.uc("a"));
    let terms = Terms::within(AMPLE);
    // A port that was free a moment ago.
    let address = loopback(&terms).address();
    thread::scope(|scope| {
        let there = scope.spawn(|| exchange::connect(&[address], &mut b, &terms));
        thread::sleep(Duration::from_millis(60));
        let listener = exchange::Listener::bind(address, &terms).expect("still free");
        exchange::accept(&listener, &mut a, &terms).expect("a meeting");
        there.join().expect("no panic").expect("a meeting");
    });
    passes(&mut a, &mut b, b"late");
}

#[test]
fn an_abandoned_end_posts_and_polls_nothing() {
    let scene = Scene::new();
    let (mut a, mut b) = (scene.uc("b"), scene.uc("a"));
    let (here, _) = both(&mut a, &mut b, alike(Terms::within(AMPLE)));
    here.expect("a meeting");
    passes(&mut b, &mut a, b"before");
    // Something is in the completion queue, whose frame could be posted again.
    b.send(1, |_| ()).expect("a send");
    a.abandon();
    assert_eq!(a.send(1, |_| ()).expect_err("gone").kind, EndpointErrorKind::NotConnected);
    assert_eq!(a.post_receives(8).expect_err("gone").kind, EndpointErrorKind::NotConnected);
    assert_eq!(a.poll(|_| panic!("nothing is given out")).expect_err("gone").kind, EndpointErrorKind::NotConnected);
    assert!(a.next_frame().is_err() && a.chain().is_err());
    assert_eq!(a.outstanding(), Outstanding::default(), "all of it went with the queue pair");
    let told = a.close().expect("an orderly end");
    // Its queue pair went first, and that is told.
    let done: Vec<_> = told.done().collect();
    assert_eq!(done[..2], [Step::QueuePair, Step::MemoryRegion], "{told:?}");
    assert_eq!(teardown_order::check(told.quiesced, told.done()), Ok(()));
    drop(b);
    assert_eq!(scene.fabric.misuse(), Vec::<String>::new());
}
