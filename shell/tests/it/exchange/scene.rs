//! What the tests of the exchange share: ends on a software fabric, and a peer that is played.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bareverbs_core::connect::{HELLO_BYTES, Hello, STEP_BYTES, Step};
use bareverbs_core::link::{Carrier, Immediate};
use bareverbs_core::verbs::{QpAttr, QpState};
use bareverbs_shell::endpoint::{Endpoint, Event, Frames};
use bareverbs_shell::exchange::{self, Connect, ExchangeError, Exchanged, Listener, Terms};
use bareverbs_shell::objects::DeviceContext;
use bareverbs_shell::soft::{Detail, Mode, Record, SoftConfig, SoftFabric};
use bareverbs_shell::{EndpointConfig, Wait};

/// Far more than anything here takes; a test that needs it has failed.
pub const AMPLE: Duration = Duration::from_secs(20);

pub type End<C = Immediate> = Endpoint<C, 4, 8>;

/// A software fabric whose record can be asked.
pub struct Scene {
    pub fabric: SoftFabric,
    pub device: Arc<DeviceContext>,
}

impl Scene {
    pub fn new() -> Self {
        Self::of(SoftConfig::default())
    }

    pub fn adversarial(seed: u64) -> Self {
        Self::of(SoftConfig::default().mode(Mode::Adversarial { seed }))
    }

    pub fn of(config: SoftConfig) -> Self {
        let fabric = SoftFabric::new(config.record(Record::Control(100_000))).expect("a free slot");
        let device = DeviceContext::open(&fabric.symbols(), None).expect("a device");
        Self { fabric, device }
    }

    pub fn end<C: Carrier>(&self, carrier: C, config: EndpointConfig) -> End<C> {
        Endpoint::new(&self.device, carrier, config, Frames::Owned).expect("an end")
    }

    pub fn uc(&self, peer: &str) -> End {
        self.end(Immediate, EndpointConfig::uc(peer))
    }

    /// With what queue pairs were to enter a state, in order.
    pub fn moves(&self, state: QpState) -> Vec<QpAttr> {
        let to = |detail| match detail {
            Detail::Modify { attr, .. } if attr.qp_state == state => Some(attr),
            _ => None,
        };
        self.fabric.record().iter().filter_map(|call| to(call.detail)).collect()
    }

    /// How often a queue pair was to enter a state.
    pub fn moves_to(&self, state: QpState) -> usize {
        self.moves(state).len()
    }
}

pub type Outcome = Result<Exchanged, ExchangeError>;

/// Both ends exchange with each other, each in a thread.
pub fn both(a: &mut (dyn Connect + Send), b: &mut (dyn Connect + Send), terms: [Terms; 2]) -> (Outcome, Outcome) {
    let [ours, theirs] = terms;
    let listener = loopback(&ours);
    let address = listener.address();
    thread::scope(|scope| {
        let there = scope.spawn(move || exchange::connect(&[address], b, &theirs));
        let here = exchange::accept(&listener, a, &ours);
        (here, there.join().expect("no panic"))
    })
}

pub fn alike(terms: Terms) -> [Terms; 2] {
    [terms; 2]
}

pub fn loopback(terms: &Terms) -> Listener {
    Listener::bind("127.0.0.1:0".parse().expect("an address"), terms).expect("a port")
}

/// An end that accepts, against a peer that is played; answers the end's outcome and the player's.
pub fn against<R: Send>(
    end: &mut (dyn Connect + Send),
    terms: Terms,
    play: impl FnOnce(Played) -> R + Send,
) -> (Outcome, R) {
    let listener = loopback(&terms);
    let address = listener.address();
    thread::scope(|scope| {
        let played = scope.spawn(move || play(Played::connect(address)));
        let here = exchange::accept(&listener, end, &terms);
        (here, played.join().expect("no panic"))
    })
}

/// An end that connects, against a listener that is played; answers the end's outcome and the player's.
pub fn against_listener<R: Send>(
    end: &mut (dyn Connect + Send),
    terms: Terms,
    play: impl FnOnce(Played) -> R + Send,
) -> (Outcome, R) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::scope(|scope| {
        let played = scope.spawn(move || {
            let (stream, _) = listener.accept().expect("somebody comes");
            play(Played::over(stream))
        });
        let outcome = exchange::connect(&[address], end, &terms);
        (outcome, played.join().expect("no panic"))
    })
}

/// A peer, played by hand.
pub struct Played(pub TcpStream);

impl Played {
    pub fn connect(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).expect("somebody listens"))
    }

    fn over(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(AMPLE)).expect("a timeout");
        stream.set_nodelay(true).expect("an option");
        Self(stream)
    }

    pub fn hello(&mut self) -> Hello {
        let mut bytes = [0; HELLO_BYTES];
        self.0.read_exact(&mut bytes).expect("a hello");
        Hello::decode(&bytes).expect("a good one")
    }

    pub fn step(&mut self) -> Step {
        let mut bytes = [0; STEP_BYTES];
        self.0.read_exact(&mut bytes).expect("a step");
        Step::decode(&bytes).expect("a good one")
    }

    /// The next step; `None` if the other end closes without one.
    pub fn step_if_any(&mut self) -> Option<Step> {
        let mut bytes = [0; STEP_BYTES];
        self.0.read_exact(&mut bytes).ok().map(|()| Step::decode(&bytes).expect("a good one"))
    }

    /// Sends what can still be sent.
    pub fn send(&mut self, bytes: &[u8]) {
        let _ = self.0.write_all(bytes);
    }

    /// That the other end sends nothing more, and closes.
    pub fn hears_the_end(&mut self) {
        let mut rest = Vec::new();
        // A reset is an end too.
        let _ = self.0.read_to_end(&mut rest);
        assert_eq!(rest, []);
    }
}

/// A hello that agrees with one, of a queue pair that is not it.
pub fn answer_to(hello: &Hello) -> Hello {
    let mut answer = *hello;
    answer.destination.qp_num ^= 1;
    answer
}

/// Sends a message and sees it arrive.
pub fn passes<C: Carrier>(from: &mut End<C>, to: &mut End<C>, text: &[u8]) {
    from.send(text.len(), |room| room[..text.len()].copy_from_slice(text)).expect("a send");
    let mut came = Vec::new();
    let mut patience = 100;
    while came.is_empty() && patience > 0 {
        patience -= 1;
        to.wait(&Wait::at_most(AMPLE), |event| {
            if let Event::Received(frame) = event {
                came.extend_from_slice(frame.payload());
                frame.repost().expect("a receive");
            }
        })
        .expect("a message");
    }
    assert_eq!(came, text);
    while from.outstanding().sends > 0 {
        from.wait(&Wait::at_most(AMPLE), |_| ()).expect("the send's completion");
    }
}
