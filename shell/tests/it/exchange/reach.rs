//! Which addresses are taken, and what nobody's answer costs.

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use bareverbs_shell::exchange::{self, Channel, ExchangeErrorKind, Listener, Reach, Terms};

use super::scene::{AMPLE, Scene, alike, both, loopback};

const SOON: Terms = Terms::within(Duration::from_millis(120));
/// What a call may need beyond its limit, on a busy machine.
const SLACK: Duration = Duration::from_secs(5);

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

#[test]
fn only_loopback_addresses_are_taken_unless_told_otherwise() {
    for text in ["0.0.0.0:0", "192.0.2.1:9", "[::]:0", "[2001:db8::1]:9", "[::ffff:192.0.2.1]:9"] {
        let refused = ExchangeErrorKind::NotLoopback { address: address(text) };
        assert_eq!(Listener::bind(address(text), &SOON).expect_err("not ours").kind, refused);
        assert_eq!(Channel::connect(&[address(text)], &SOON).expect_err("not ours").kind, refused);
        let one_is_enough = [address("127.0.0.1:9"), address(text)];
        assert_eq!(Channel::connect(&one_is_enough, &SOON).expect_err("not ours").kind, refused);
    }
    for text in ["127.0.0.1:0", "127.9.9.9:0"] {
        assert!(Listener::bind(address(text), &SOON).is_ok());
    }
    assert!(Listener::bind(address("0.0.0.0:0"), &SOON.reach(Reach::Anywhere)).is_ok());
}

#[test]
fn a_refusal_names_the_remedy() {
    let error = Listener::bind(address("0.0.0.0:7"), &SOON).expect_err("not ours");
    assert!(error.to_string().contains("Reach::Anywhere") && error.to_string().contains("0.0.0.0:7"), "{error}");
}

#[test]
fn a_port_that_is_taken_is_told_with_the_systems_reason() {
    let taken = loopback(&SOON);
    let error = Listener::bind(taken.address(), &SOON).expect_err("taken");
    let ExchangeErrorKind::Listen { error: why, .. } = error.kind else { panic!("{error}") };
    assert_eq!(why.kind, std::io::ErrorKind::AddrInUse);
}

#[test]
fn nobody_comes_and_nobody_listens_cost_the_limit() {
    let scene = Scene::new();
    let mut end = scene.uc("rank 2");
    let began = Instant::now();
    let listener = loopback(&SOON);
    let error = exchange::accept(&listener, &mut end, &SOON).expect_err("nobody");
    assert!(matches!(error.kind, ExchangeErrorKind::NobodyCame { waited } if waited >= SOON.limit), "{error}");
    assert!(error.to_string().contains("rank 2"), "{error}");

    let nobody = listener.address();
    drop(listener);
    let error = exchange::connect(&[nobody], &mut end, &SOON).expect_err("nobody");
    let ExchangeErrorKind::Unreachable { tries, last: Some(last), waited } = error.kind else { panic!("{error}") };
    assert!(tries > 1 && waited >= SOON.limit);
    assert_eq!(last.kind, std::io::ErrorKind::ConnectionRefused);
    assert!(error.to_string().contains("rank 2") && error.to_string().contains("127.0.0.1"), "{error}");
    assert!(began.elapsed() < 2 * SOON.limit + SLACK);

    let nowhere = exchange::connect(&[], &mut end, &SOON).expect_err("no address");
    assert!(matches!(nowhere.kind, ExchangeErrorKind::Unreachable { tries: 0, last: None, .. }));
}

#[test]
fn two_ends_that_both_wait_or_both_come_do_not_meet_and_both_are_told() {
    let scene = Scene::new();
    let (mut a, mut b) = (scene.uc("rank 1"), scene.uc("rank 0"));
    let (ours, theirs) = (loopback(&SOON), loopback(&SOON));
    let (here, there) = thread::scope(|scope| {
        let there = scope.spawn(|| exchange::accept(&theirs, &mut b, &SOON));
        (exchange::accept(&ours, &mut a, &SOON), there.join().expect("no panic"))
    });
    for (outcome, peer) in [(here, "rank 1"), (there, "rank 0")] {
        let error = outcome.expect_err("nobody comes");
        assert!(matches!(error.kind, ExchangeErrorKind::NobodyCame { .. }), "{error}");
        assert!(error.to_string().contains(peer), "{error}");
    }
    // Each comes to where it takes the other one to listen.
    let (at_us, at_them) = (ours.address(), theirs.address());
    drop((ours, theirs));
    let (here, there) = thread::scope(|scope| {
        let there = scope.spawn(|| exchange::connect(&[at_us], &mut b, &SOON));
        (exchange::connect(&[at_them], &mut a, &SOON), there.join().expect("no panic"))
    });
    for (outcome, peer) in [(here, "rank 1"), (there, "rank 0")] {
        let error = outcome.expect_err("nobody listens");
        assert!(matches!(error.kind, ExchangeErrorKind::Unreachable { .. }), "{error}");
        assert!(error.to_string().contains(peer), "{error}");
    }
    // Nothing has moved: once one of them listens, they meet.
    let (here, there) = both(&mut a, &mut b, alike(Terms::within(AMPLE)));
    assert!(here.is_ok() && there.is_ok());
}

#[test]
fn the_first_address_that_answers_is_taken() {
    let terms = Terms::within(AMPLE);
    let listener = loopback(&terms);
    let refusing = loopback(&terms).address();
    let channel = Channel::connect(&[refusing, listener.address()], &terms).expect("one answers");
    assert_eq!(channel.address(), listener.address());
    assert!(listener.accept(AMPLE).is_ok());
}

/// A port that does not even refuse: its queue is full, and nobody takes anything out of it.
fn silent() -> (TcpListener, Vec<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let waiting = (0..5000).map_while(|_| TcpStream::connect_timeout(&address, Duration::from_millis(100)).ok());
    let waiting = waiting.collect::<Vec<_>>();
    assert!(waiting.len() < 5000, "its queue has an end");
    (listener, waiting)
}

#[test]
fn an_address_that_is_silent_leaves_time_for_the_next_one() {
    let terms = Terms::within(Duration::from_secs(3));
    let (listener, (silent, _waiting)) = (loopback(&terms), silent());
    let silent = silent.local_addr().expect("bound");
    let channel = Channel::connect(&[silent, listener.address()], &terms).expect("the second answers");
    assert_eq!(channel.address(), listener.address());
}

/// An address of this machine that is no loopback, where it has one.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // Nothing is sent: the system only says from where it would be.
    socket.connect("192.0.2.1:9").ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|ip| !ip.is_loopback())
}

#[test]
fn one_from_beyond_the_reach_is_sent_away_though_the_listener_hears_it() {
    let Some(own) = own_address() else {
        eprintln!("not shown: this machine has loopback addresses only");
        return;
    };
    let scene = Scene::new();
    let mut end = scene.uc("rank 2");
    let listener = Listener::bind(address("0.0.0.0:0"), &SOON.reach(Reach::Anywhere)).expect("a free port");
    let stranger = TcpStream::connect((own, listener.address().port())).expect("it listens");
    let error = exchange::accept(&listener, &mut end, &SOON).expect_err("nobody who may");
    assert!(matches!(error.kind, ExchangeErrorKind::NobodyCame { .. }), "{error}");
    drop(stranger);
    let stranger = TcpStream::connect((own, listener.address().port())).expect("it listens");
    let error = exchange::accept(&listener, &mut end, &SOON.reach(Reach::Anywhere)).expect_err("it says nothing");
    assert!(!matches!(error.kind, ExchangeErrorKind::NobodyCame { .. }), "{error}");
    drop(stranger);
}
