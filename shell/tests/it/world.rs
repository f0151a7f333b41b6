//! What tests run on: the software fabric, promptly or by an adversary, and the system's library where it has a device.
//!
//! Shared by the binaries `it`, `conformance` and `no_alloc`: the same code asserts the same things on every world.
#![allow(dead_code, reason = "each of the three binaries uses a part of it")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use bareverbs_core::link::{Carrier, CreditMode, SendError, Sequence};
use bareverbs_core::verbs::{GidType, PortState};
use bareverbs_shell::endpoint::{Endpoint, EndpointConfig, EndpointErrorKind, Event, Frames, connect_pair};
use bareverbs_shell::objects::DeviceContext;
use bareverbs_shell::soft::{LiveCounts, Mode, SoftConfig, SoftFabric};
use bareverbs_shell::{Fabric, Relax, Wait};

/// How long a test waits for what must come. Long: an emulated guest on a busy machine is slow.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// One fabric and one device of it.
pub struct World {
    pub name: String,
    pub fabric: Fabric,
    /// The software fabric's control, where it is that.
    pub soft: Option<SoftFabric>,
    device: String,
}

impl World {
    /// A software fabric in this mode, device `soft0`, that records what is called.
    pub fn soft(mode: Mode) -> Self {
        Self::of_config(SoftConfig::default().mode(mode), &format!("soft, {mode:?}"))
    }

    pub fn of_config(config: SoftConfig, name: &str) -> Self {
        let soft = SoftFabric::new(config).expect("a free slot");
        let fabric = Fabric::of_soft(&soft);
        let device = fabric.devices().expect("a list")[0].name.clone();
        Self { name: name.to_owned(), fabric, soft: Some(soft), device }
    }

    /// The system's library, if it has a device with an active port and an IPv4-mapped GID; else why it cannot be used.
    pub fn system() -> Result<Self, String> {
        let fabric = Fabric::system().map_err(|error| error.to_string())?;
        let devices = fabric.devices().map_err(|error| error.to_string())?;
        let usable = devices.iter().find(|device| {
            let ports = device.ports.iter().flatten();
            ports.filter(|port| port.info.state() == PortState::ACTIVE).any(|port| {
                port.gids.iter().any(|gid| gid.gid.ipv4().is_some() && gid.gid_type != Some(GidType::ROCE_V1))
            })
        });
        let device = usable.ok_or("no device has an active port with an IPv4-mapped GID")?.name.clone();
        Ok(Self { name: format!("system, {device}"), fabric, soft: None, device })
    }

    pub fn open(&self) -> Arc<DeviceContext> {
        self.fabric.open(Some(&self.device)).expect("a device that was just listed")
    }

    pub fn device(&self) -> &str {
        &self.device
    }

    /// Lets messages that are on their way arrive, or be lost: nothing else can be waited for then.
    pub fn settle(&self) {
        if self.soft.is_none() {
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// That nothing is left and nothing was done wrong, as far as the fabric can tell.
    pub fn assert_clean(&self) {
        if let Some(soft) = &self.soft {
            assert_eq!(soft.live(), LiveCounts::default(), "{}", self.name);
            assert_eq!(soft.misuse(), Vec::<String>::new(), "{}", self.name);
        }
    }

    /// Two endpoints of their own contexts, not connected; each knows what the other posts.
    pub fn ends<C: Carrier, const S: usize, const R: usize>(
        &self,
        carrier: C,
        config: &EndpointConfig,
    ) -> (Endpoint<C, S, R>, Endpoint<C, S, R>) {
        let end = || Endpoint::new(&self.open(), carrier, config.clone(), Frames::Owned).expect("an endpoint");
        let (mut a, mut b) = (end(), end());
        a.agree_credits(b.recv_depth()).expect("nothing was sent");
        b.agree_credits(a.recv_depth()).expect("nothing was sent");
        (a, b)
    }

    /// Two endpoints, connected.
    pub fn pair<C: Carrier, const S: usize, const R: usize>(
        &self,
        carrier: C,
        config: &EndpointConfig,
    ) -> (Endpoint<C, S, R>, Endpoint<C, S, R>) {
        let (mut a, mut b) = self.ends(carrier, config);
        connect_pair(&mut a, &mut b).expect("both are in INIT");
        (a, b)
    }
}

/// The configuration that most tests use: 1 KiB frames, so that many rings fit anywhere.
pub fn config() -> EndpointConfig {
    EndpointConfig::uc("the other end").frame_bytes(1024)
}

/// The same without credits: for what they forbid, such as a message that finds no receive.
pub fn without_credits() -> EndpointConfig {
    config().credits(CreditMode::Off)
}

/// A wait that ends, and gives the processor away: emulated machines have few.
pub fn patiently() -> Wait<'static> {
    Wait::at_most(PATIENCE).relax(Relax::Yield)
}

/// The payload of the `number`-th message from `seed`: its length goes through all that fit.
pub fn payload_len(number: u64, room: usize) -> usize {
    (number as usize).wrapping_mul(61) % (room + 1)
}

pub fn fill(payload: &mut [u8], number: u64, seed: u8) {
    for (at, byte) in payload.iter_mut().enumerate() {
        *byte = (number as u8).wrapping_mul(31).wrapping_add(at as u8).wrapping_add(seed);
    }
}

pub fn is_filled(payload: &[u8], number: u64, seed: u8) -> bool {
    let mut wanted = payload.iter().enumerate();
    wanted.all(|(at, byte)| *byte == (number as u8).wrapping_mul(31).wrapping_add(at as u8).wrapping_add(seed))
}

/// Sends the next message of a stream; false where the ring is full, or there is no credit.
pub fn send_next<C: Carrier, const S: usize, const R: usize>(
    end: &mut Endpoint<C, S, R>,
    number: u64,
    room: usize,
    seed: u8,
) -> bool {
    match end.send(payload_len(number, room), |payload| fill(payload, number, seed)) {
        Ok(_) => true,
        Err(error)
            if matches!(
                error.kind,
                EndpointErrorKind::Send(SendError::Full { .. } | SendError::NoCredit { .. }, _)
            ) =>
        {
            false
        }
        Err(error) => panic!("message {number}: {error}"),
    }
}

/// Takes what came, checks it as messages `number..` from `seed`, posts the frames again; answers the next number.
pub fn take<C: Carrier, const S: usize, const R: usize>(
    end: &mut Endpoint<C, S, R>,
    mut number: u64,
    room: usize,
    seed: u8,
    first: Option<Sequence>,
) -> u64 {
    end.poll(|event| {
        if let Event::Received(frame) = event {
            assert_eq!(frame.payload().len(), payload_len(number, room), "length of message {number}");
            assert!(is_filled(frame.payload(), number, seed), "content of message {number}");
            assert_eq!(frame.sequence(), first.map(|first| first.plus(number as u32)), "number of message {number}");
            frame.repost().expect("its place is free");
            number += 1;
        }
    })
    .unwrap_or_else(|error| panic!("after message {number}: {error}"));
    number
}

/// Streams messages both ways, never more than `window` unanswered, and checks every length, byte and number.
pub fn stream<C: Carrier, const S: usize, const R: usize>(
    a: &mut Endpoint<C, S, R>,
    b: &mut Endpoint<C, S, R>,
    messages: u64,
    window: u64,
    room: usize,
    first: Option<Sequence>,
) {
    let (mut sent, mut taken) = ([0; 2], [0; 2]);
    let deadline = Instant::now() + PATIENCE;
    while taken != [messages; 2] {
        assert!(Instant::now() < deadline, "sent {sent:?}, received {taken:?} of {messages}");
        while sent[0] < messages && sent[0] - taken[1] < window && send_next(a, sent[0], room, 1) {
            sent[0] += 1;
        }
        while sent[1] < messages && sent[1] - taken[0] < window && send_next(b, sent[1], room, 2) {
            sent[1] += 1;
        }
        taken[1] = take(b, taken[1], room, 1, first);
        taken[0] = take(a, taken[0], room, 2, first);
        std::thread::yield_now();
    }
}

/// Polls until both ends have nothing in flight but their posted receives.
pub fn let_sends_complete<C: Carrier, const S: usize, const R: usize>(end: &mut Endpoint<C, S, R>) {
    let deadline = Instant::now() + PATIENCE;
    while end.outstanding().sends > 0 {
        assert!(Instant::now() < deadline, "{:?}", end.outstanding());
        end.poll(|_| ()).expect("a healthy link");
        std::thread::yield_now();
    }
}
