//! Two links, and a wire between them that is as unreliable as a queue pair that drops what finds no receive.

use std::collections::VecDeque;
use std::ptr;

use bareverbs_core::link::{Carrier, CreditMode, Event, Geometry, LinkRules, SendError, Sequence};
use bareverbs_core::verbs::{Be32, LinkLayer, RecvWr, SendFlags, SendWr, Wc, WcFlags, WcOpcode, WrOpcode};

use crate::link::provider::{FRAME_BYTES, Posted, QP_NUM, Rig, Wishes};

/// A message on the wire.
pub struct OnWire {
    bytes: Vec<u8>,
    immediate: Option<u32>,
}

/// What an end may do with what came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repost {
    /// Post each frame again at once.
    AtOnce,
    /// Keep the frames for a later `post`.
    Later,
}

/// When an end that polls asks whether a grant is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asks {
    /// When it has taken what came.
    AfterEachPoll,
    /// When it polls next, if anything came: what it has to answer goes first.
    BeforeTheNext,
}

/// One end: a link, what it did, and what was seen of it.
pub struct End<C: Carrier, const S: usize, const R: usize> {
    pub rig: Rig<C, S, R>,
    pub sent: u64,
    pub received: u64,
    pub no_credit: u64,
    /// Messages that the device took from the wire and found no receive for.
    pub dropped: u64,
    pub asks: Asks,
    may_be_due: bool,
}

/// How deep the queues are, and where numbers start.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub send_depth: u32,
    pub recv_depth: u32,
    pub start: u32,
}

pub fn wishes(shape: Shape) -> Wishes {
    let rules = LinkRules { credits: CreditMode::On, ..LinkRules::for_link_layer(LinkLayer::ETHERNET) };
    let Shape { send_depth, recv_depth, start } = shape;
    let geometry = Geometry { frame_bytes: FRAME_BYTES, send_capacity: send_depth, recv_capacity: recv_depth };
    Wishes { rules, geometry, start, registered: true }
}

impl<C: Carrier, const S: usize, const R: usize> End<C, S, R> {
    pub fn new(carrier: C, shape: Shape) -> Self {
        let rig = Rig::wish(carrier, wishes(shape)).expect("a right setup");
        let asks = Asks::AfterEachPoll;
        Self { rig, sent: 0, received: 0, no_credit: 0, dropped: 0, asks, may_be_due: false }
    }

    /// Says what the other end posts, and posts all of this end's.
    pub fn begin(&mut self, peer_receives: u32) {
        self.rig.link.agree_credits(peer_receives).expect("nothing was sent");
        assert_eq!(self.rig.link.post_receives(usize::MAX), Ok(self.rig.link.recv_depth() as usize));
    }

    /// Sends the next message, if it may be sent.
    pub fn send(&mut self, more: bool) -> bool {
        let number = self.sent;
        let payload = number.to_be_bytes();
        let before = (self.rig.link.next_sequence(), self.rig.link.outstanding(), self.rig.link.credits_left());
        let posted = self.rig.link.next_frame().and_then(|mut frame| {
            frame.payload_mut()[..8].copy_from_slice(&payload);
            if more { frame.post_more(8) } else { frame.post(8) }
        });
        let after = (self.rig.link.next_sequence(), self.rig.link.outstanding(), self.rig.link.credits_left());
        match posted {
            Ok(_) => {
                self.sent += 1;
                assert_eq!(after.2 + 1, before.2);
                return true;
            }
            Err(SendError::NoCredit { until }) => {
                assert_eq!((after.2, until), (0, after.0));
                self.no_credit += 1;
            }
            Err(SendError::Full { .. }) => {}
            Err(error) => panic!("message {number}: {error}"),
        }
        assert_eq!(before, after, "a refusal changes nothing");
        false
    }

    /// The device puts its oldest send on the wire, and completes it if it is signalled.
    pub fn transmit(&mut self, wire: &mut VecDeque<OnWire>) -> bool {
        let world = self.rig.device.world();
        let Some(Posted::<SendWr> { wr, sge }) = world.sends.pop_front() else { return false };
        let source = ptr::with_exposed_provenance::<u8>(sge.addr as usize);
        // SAFETY: the frame is the device's, and the device is the test.
        let bytes = unsafe { std::slice::from_raw_parts(source, sge.length as usize) }.to_vec();
        let immediate = (wr.opcode == WrOpcode::SEND_WITH_IMM).then(|| wr.imm_data.get());
        wire.push_back(OnWire { bytes, immediate });
        if wr.send_flags.contains(SendFlags::SIGNALED) {
            world.completions.push_back(Wc { wr_id: wr.wr_id, qp_num: QP_NUM, ..Wc::default() });
        }
        true
    }

    /// The oldest message on the wire reaches this end's device: into a receive, or nowhere.
    pub fn arrive(&mut self, wire: &mut VecDeque<OnWire>) -> bool {
        let Some(OnWire { bytes, immediate }) = wire.pop_front() else { return false };
        let world = self.rig.device.world();
        let Some(Posted::<RecvWr> { wr, sge }) = world.receives.pop_front() else {
            self.dropped += 1;
            return true;
        };
        let target = ptr::with_exposed_provenance_mut::<u8>(sge.addr as usize);
        // SAFETY: the frame is the device's, and the device is the test.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len()) };
        let byte_len = bytes.len() as u32;
        let mut wc = Wc { wr_id: wr.wr_id, byte_len, opcode: WcOpcode::RECV, qp_num: QP_NUM, ..Wc::default() };
        if let Some(number) = immediate {
            wc.imm_data = Be32::new(number);
            wc.wc_flags = WcFlags::WITH_IMM;
        }
        world.completions.push_back(wc);
        true
    }

    /// Takes at most `max` completions, checks every message, and grants what is due.
    pub fn poll(&mut self, max: usize, repost: Repost) -> bool {
        let granted = self.asks == Asks::BeforeTheNext && self.may_be_due && self.grant();
        let mut room = [Wc::default(); 16];
        let max = max.clamp(1, 16);
        let completions = self.rig.queue.poll(&mut room[..max]).expect("polls do not fail");
        let came = completions.len();
        for completion in completions {
            match self.rig.link.accept(&completion).expect("a healthy link") {
                Event::Received(frame) => {
                    assert_eq!(frame.payload(), self.received.to_be_bytes());
                    self.received += 1;
                    if repost == Repost::AtOnce {
                        frame.repost().expect("its place is free");
                    }
                }
                Event::Granted { messages } => assert!(messages > 0),
                Event::Sent { .. } => {}
                Event::Drained(_) => panic!("nobody drains"),
            }
        }
        self.may_be_due |= came > 0;
        granted || self.asks == Asks::AfterEachPoll && self.grant() || came > 0
    }

    pub fn post(&mut self, max: usize) -> bool {
        let posted = self.rig.link.post_receives(max).expect("there are frames");
        self.grant() || posted > 0
    }

    /// Posts receives if there are any to be posted: an end that has none does not ask either.
    fn post_what_is_free(&mut self) -> bool {
        let posted = self.rig.link.outstanding().receives;
        posted < self.rig.link.recv_depth() && self.post(usize::MAX)
    }

    fn grant(&mut self) -> bool {
        self.may_be_due = false;
        self.rig.link.grant_credits().expect("the provider takes all") > 0
    }

    pub fn next(&self) -> Sequence {
        self.rig.link.next_sequence()
    }
}

/// Two ends and both directions of the wire.
pub struct Pair<C: Carrier, const S: usize, const R: usize> {
    pub ends: [End<C, S, R>; 2],
    /// Towards the end with that index.
    pub wires: [VecDeque<OnWire>; 2],
}

impl<C: Carrier, const S: usize, const R: usize> Pair<C, S, R> {
    pub fn new(carrier: C, shapes: [Shape; 2]) -> Self {
        let mut ends = shapes.map(|shape| End::new(carrier, shape));
        let depths = [ends[0].rig.link.recv_depth(), ends[1].rig.link.recv_depth()];
        ends[0].begin(depths[1]);
        ends[1].begin(depths[0]);
        Self { ends, wires: [VecDeque::new(), VecDeque::new()] }
    }

    pub fn asking(mut self, asks: [Asks; 2]) -> Self {
        self.ends.iter_mut().zip(asks).for_each(|(end, asks)| end.asks = asks);
        self
    }

    /// Lets everything move that moves without a new message, both ends posting all that they have. Answers whether
    /// anything did.
    pub fn settle(&mut self) -> bool {
        let mut moved = false;
        for _ in 0..10_000 {
            let mut now = false;
            for at in 0..2 {
                now |= self.ends[at].transmit(&mut self.wires[1 - at]);
                now |= self.ends[at].arrive(&mut self.wires[at]);
                now |= self.ends[at].poll(16, Repost::AtOnce);
                now |= self.ends[at].post_what_is_free();
            }
            if !now {
                return moved;
            }
            moved = true;
        }
        panic!("it never comes to rest");
    }

    pub fn assert_nothing_dropped(&self) {
        for end in &self.ends {
            assert_eq!(end.dropped, 0, "messages without a receive");
            assert_eq!(end.rig.link.cause(), None);
        }
    }
}
