//! Two endpoints on a fabric that is led step by step, and their twin beside them.

use std::sync::Arc;

use bareverbs_core::connect::{QueuePairConfig, Service};
use bareverbs_core::link::{Carrier, CarrierError, CreditMode, Fault, HeaderError, LinkError, SendError};
use bareverbs_shell::endpoint::{EndpointConfig, EndpointErrorKind, Event, Frames, connect_pair};
use bareverbs_shell::objects::DeviceContext;
use bareverbs_shell::soft::{Does, LiveCounts, Mode, SoftConfig, SoftFabric, Step};
use bareverbs_shell::{Endpoint, Fabric, FabricKind};

use super::twin::{Act, Rules, Twin, Why};
use super::walk::Choose;

const SEND: usize = 4;

type End<C, const RECV: usize> = Endpoint<C, SEND, RECV>;

/// A fabric that moves by steps.
pub struct World {
    fabric: SoftFabric,
    context: Arc<DeviceContext>,
}

impl World {
    pub fn new() -> Self {
        let fabric = SoftFabric::new(SoftConfig::default().mode(Mode::Stepped)).expect("a free slot");
        let opened = Fabric::with_symbols(fabric.symbols(), FabricKind::Soft);
        let context = opened.open(Some("soft0")).expect("it is there");
        Self { fabric, context }
    }

    pub fn assert_clean(self) {
        drop(self.context);
        assert_eq!(self.fabric.live(), LiveCounts::default());
        assert_eq!(self.fabric.misuse(), Vec::<String>::new());
    }

    /// Makes two ends anew and lets happen what is chosen, until nothing is.
    pub fn lead<C: Carrier, const RECV: usize>(&self, carrier: C, rules: &Rules, choose: &mut Choose<'_>) {
        let mut led = Led::<C, RECV>::new(self, carrier, rules);
        loop {
            let acts = led.acts();
            match choose(&led.twin, &acts) {
                Some(act) => led.take(act),
                None if acts.is_empty() => break led.say_one_more(),
                None => break self.fabric.run_freely(),
            }
        }
        drop(led);
        self.fabric.step_again();
    }
}

struct Led<'world, C: Carrier, const RECV: usize> {
    fabric: &'world SoftFabric,
    rules: &'world Rules,
    ends: [End<C, RECV>; 2],
    twin: Twin,
    /// What the fabric can do now.
    steps: Vec<Step>,
    said: [u8; 2],
    handed_out: [u8; 2],
    broke: [Option<Why>; 2],
    /// What was done, for whoever reads of a failure.
    way: Vec<Act>,
    is_faultless: bool,
}

impl<'world, C: Carrier, const RECV: usize> Led<'world, C, RECV> {
    fn new(world: &'world World, carrier: C, rules: &'world Rules) -> Self {
        assert_eq!((rules.send_depth, usize::from(rules.receives)), (SEND, RECV));
        let config = config_of(rules);
        let end = || Endpoint::new(&world.context, carrier, config.clone(), Frames::Owned).expect("an endpoint");
        let mut ends = [end(), end()];
        let [a, b] = &mut ends;
        connect_pair(a, b).expect("both are in INIT");
        let twin = Twin::new(rules);
        let mut new = Self {
            fabric: &world.fabric,
            rules,
            ends,
            twin,
            steps: Vec::new(),
            said: [0; 2],
            handed_out: [0; 2],
            broke: [None; 2],
            way: Vec::new(),
            is_faultless: true,
        };
        if !rules.posts_between {
            for at in 0..2 {
                (0..rules.messages[at]).for_each(|_| new.say(at));
            }
        }
        new
    }

    /// What can happen: the twin says what, and the fabric can do that and nothing else.
    fn acts(&mut self) -> Vec<Act> {
        let acts = self.twin.acts(self.rules);
        self.steps = self.fabric.steps();
        let steps = &self.steps;
        let offered = |step: &&Step| match step.does {
            Does::Send(fate) => self.rules.fates.contains(&fate),
            _ => true,
        };
        let device = steps.iter().filter(offered).map(|step| Act::Device(self.end_of(step), step.does));
        let own = acts.iter().copied().filter(|act| !matches!(act, Act::Device(..)));
        assert!(device.chain(own).eq(acts.iter().copied()), "after {:?}: {acts:?}, not {steps:?}", self.way);
        acts
    }

    fn end_of(&self, step: &Step) -> usize {
        self.ends.iter().position(|end| end.qp_num() == step.queue_pair).expect("there are no others")
    }

    fn take(&mut self, act: Act) {
        self.way.push(act);
        match act {
            Act::Post(at) => self.say(at),
            Act::Repost(at) => assert_eq!(self.ends[at].post_receives(1).expect("a healthy link"), 1),
            Act::Device(at, does) => {
                let step = self.steps.iter().find(|step| step.does == does && self.end_of(step) == at);
                self.is_faultless &= !matches!(does, Does::Send(Some(_)));
                assert!(self.fabric.take(*step.expect("it was offered")), "{:?}", self.way);
            }
        }
        if let Some((at, why)) = self.twin.take(act, self.rules) {
            self.broke[at] = Some(why);
        }
        // What the other end has not been shown, it has not been shown when its turn comes either.
        self.look(at_of(act));
        self.compare(at_of(act));
    }

    fn say(&mut self, at: usize) {
        let bytes = content(at, self.said[at]);
        self.ends[at].send(8, |payload| payload[..8].copy_from_slice(&bytes)).expect("there is room");
        self.said[at] += 1;
    }

    /// Polls one end.
    fn look(&mut self, at: usize) {
        let (mut handed_out, way) = (self.handed_out[at], &self.way);
        let polled = self.ends[at].poll(|event| {
            if let Event::Received(frame) = event {
                assert_eq!(frame.payload(), content(1 - at, handed_out), "in order, whole, once: {way:?}");
                handed_out += 1;
            }
        });
        self.handed_out[at] = handed_out;
        let error = polled.err().map(|error| error.kind);
        match (self.broke[at], error) {
            (None, None) => {}
            (Some(why), Some(EndpointErrorKind::Link(LinkError::Fault(cause) | LinkError::Broken { cause }))) => {
                assert_eq!(why_of(&cause), why, "{way:?}");
            }
            (why, error) => panic!("{why:?}, not {error:?}, after {way:?}"),
        }
    }

    /// That an end is as its twin is.
    fn compare(&mut self, at: usize) {
        let (end, twin, way) = (&mut self.ends[at], &self.twin.ends[at], &self.way);
        assert_eq!(self.handed_out[at], twin.handed_out, "{way:?}");
        assert_eq!(end.next_frame().is_ok(), twin.may_post(self.rules), "{way:?}");
        let outstanding = end.outstanding();
        if !twin.broken {
            assert_eq!((outstanding.sends, outstanding.receives), twin.outstanding(), "{way:?}");
            assert!(!self.rules.credits || end.credits_left() == twin.credits_left(), "{way:?}");
        }
    }

    /// Nothing can happen any more: what was lost was seen, or is shown by one more message, or the sender knows.
    fn say_one_more(&mut self) {
        for at in 0..2 {
            self.look(at);
            self.compare(at);
        }
        self.fabric.run_freely();
        let mut saw = self.broke.iter().any(Option::is_some);
        for from in (0..2).filter(|at| self.rules.messages[*at] > 0) {
            let to = 1 - from;
            let all_came = self.handed_out[to] == self.said[from];
            assert!(!self.is_faultless || !self.rules.credits || all_came, "lost without a fault: {:?}", self.way);
            if saw {
                continue;
            }
            self.ends[to].post_receives(RECV).expect("a healthy link");
            self.look(from);
            match self.ends[from].send(8, |payload| payload[..8].copy_from_slice(&content(from, self.said[from]))) {
                Ok(_) => self.said[from] += 1,
                Err(error) => {
                    // A credit message was lost: the sender's deadline tells.
                    let starves = matches!(error.kind, EndpointErrorKind::Send(SendError::NoCredit { .. }, _));
                    assert!(starves && !self.is_faultless, "{error}: {:?}", self.way);
                    continue;
                }
            }
            let mut handed_out = self.handed_out[to];
            for _ in 0..2 {
                let polled = self.ends[to].poll(|event| {
                    if let Event::Received(frame) = event {
                        assert_eq!(frame.payload(), content(from, handed_out));
                        handed_out += 1;
                    }
                });
                saw |= polled.is_err();
            }
            assert!(saw || handed_out == self.said[from], "lost unnoticed: {:?}", self.way);
        }
    }
}

fn config_of(rules: &Rules) -> EndpointConfig {
    let mut queue_pair = QueuePairConfig::uc();
    if let Some(retries) = rules.retries {
        queue_pair = QueuePairConfig::rc();
        (queue_pair.retry_cnt, queue_pair.rnr_retry) = (retries.lost, retries.not_ready);
        assert_eq!(queue_pair.service, Service::Rc);
    }
    let credits = if rules.credits { CreditMode::On } else { CreditMode::Off };
    EndpointConfig::uc("the other end").queue_pair(queue_pair).frame_bytes(128).credits(credits)
}

const fn at_of(act: Act) -> usize {
    match act {
        Act::Device(at, _) | Act::Post(at) | Act::Repost(at) => at,
    }
}

/// What an end's message says.
fn content(from: usize, number: u8) -> [u8; 8] {
    [0x10 * (1 + from as u8) + number; 8]
}

fn why_of(fault: &Fault) -> Why {
    match fault {
        Fault::Gap { .. } => Why::Gap,
        Fault::Old { .. } => Why::Old,
        Fault::Grant { .. } => Why::NoNews,
        Fault::Failed(_) => Why::Failed,
        Fault::Unreadable { error: CarrierError::Header(HeaderError::Corrupt { .. }), .. } => Why::Corrupt,
        other => panic!("{other}"),
    }
}
