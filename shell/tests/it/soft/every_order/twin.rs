//! The rules, once more and slowly: two ends, what each has posted, what is on its way, and what can happen next.
//!
//! It knows neither the fabric nor the link. What can happen and what comes of it is said here by the rules of the two
//! services, of numbers and of credits, and the orders are counted by walking all of them.

use std::collections::HashMap;

use bareverbs_shell::soft::{Does, MessageFault};

/// What both ends are alike in.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// How often a message is sent again that is lost, and that finds no receive; on unreliable queue pairs, never.
    pub retries: Option<Retries>,
    pub credits: bool,
    /// What may befall a message on its way.
    pub fates: &'static [Option<MessageFault>],
    /// Sends in flight at most.
    pub send_depth: usize,
    /// Receives that each end posts before the first message.
    pub receives: u8,
    /// Messages that each end sends.
    pub messages: [u8; 2],
    /// Whether they are posted between steps; else all of them before the first.
    pub posts_between: bool,
    /// Receives that each end posts anew, between steps.
    pub reposts: [u8; 2],
}

#[derive(Clone, Copy, Debug)]
pub struct Retries {
    pub lost: u8,
    pub not_ready: u8,
}

/// What can happen next; ends by their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    Device(usize, Does),
    Post(usize),
    Repost(usize),
}

/// Why a link breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    Gap,
    Old,
    Corrupt,
    /// A credit message that grants nothing new.
    NoNews,
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Message {
    number: u8,
    grant: u8,
    is_credit: bool,
    is_corrupt: bool,
}

/// One end. Queues are oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct End {
    to_send: u8,
    reposts: u8,
    /// The number of the next message.
    next: u8,
    sends: Vec<Message>,
    /// Sends that are done, and whether well.
    sent: Vec<bool>,
    posted: u8,
    /// Receives that are done: with a message, or flushed.
    came: Vec<Option<Message>>,
    /// Frames that messages came in.
    free: u8,
    /// Messages handed out, which is the number of the next one.
    pub handed_out: u8,
    pub broken: bool,
    /// Whether the queue pair is in error.
    failed: bool,
    unheard: u8,
    not_ready: u8,
    /// The first number that may not be sent.
    until: u8,
    /// The first number that the other end was not told that it may send.
    granted: u8,
    /// What was granted before the credit message that is not yet known to have come.
    granted_before: Option<u8>,
}

/// Two ends, and the messages held on their way to one of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Twin {
    pub ends: [End; 2],
    held: Vec<(usize, Message)>,
}

impl End {
    fn in_flight(&self) -> usize {
        self.sends.len() + self.sent.len()
    }

    /// Sends and receives that the device has, as far as the link knows.
    pub fn outstanding(&self) -> (u32, u32) {
        (self.in_flight() as u32, u32::from(self.posted) + self.came.len() as u32)
    }

    /// Messages that may be sent, while there are credits.
    pub fn credits_left(&self) -> u32 {
        u32::from(self.until - self.next)
    }

    pub fn may_post(&self, rules: &Rules) -> bool {
        // One place is kept for a credit message.
        let depth = rules.send_depth - usize::from(rules.credits);
        !self.broken && self.in_flight() < depth && (!rules.credits || self.next < self.until)
    }

    /// One receive is kept for a credit message.
    fn grant(&self) -> u8 {
        (self.handed_out + self.posted + self.came.len() as u8 - 1).max(self.granted)
    }

    fn post(&mut self, rules: &Rules) {
        if rules.credits {
            self.granted = self.grant();
        }
        self.to_send -= 1;
        let grant = self.granted;
        self.sends.push(Message { number: self.next, grant, is_credit: false, is_corrupt: false });
        self.next += 1;
    }

    /// Sends a credit message if there is news enough, and the last one is known to have come.
    fn grant_alone(&mut self, rules: &Rules) {
        if self.broken {
            return;
        }
        if self.granted_before.is_some_and(|before| self.handed_out > before) {
            self.granted_before = None;
        }
        let news = self.grant() - self.granted;
        let enough = news >= (rules.receives - 1) / 2 || self.handed_out == self.granted;
        let has_place = self.in_flight() < rules.send_depth;
        if news == 0 || !enough || self.granted_before.is_some() || !has_place {
            return;
        }
        self.granted_before = Some(self.granted);
        self.granted += news;
        self.sends.push(Message { number: self.next, grant: self.granted, is_credit: true, is_corrupt: false });
    }

    /// Looks at a receive that is done.
    fn hear(&mut self, rules: &Rules) -> Option<Why> {
        let came = self.came.remove(0);
        if self.broken {
            return None;
        }
        let why = match came {
            None => Some(Why::Failed),
            Some(Message { is_corrupt: true, .. }) => Some(Why::Corrupt),
            Some(message) if message.number > self.handed_out => Some(Why::Gap),
            Some(message) if message.number < self.handed_out => Some(Why::Old),
            Some(message) if message.is_credit && message.grant <= self.until => Some(Why::NoNews),
            Some(message) => {
                match message.is_credit {
                    true => self.posted += 1,
                    false => (self.handed_out, self.free) = (self.handed_out + 1, self.free + 1),
                }
                if rules.credits {
                    assert!(message.grant >= self.until, "what is granted stays so");
                    self.until = message.grant;
                }
                None
            }
        };
        self.broken = why.is_some();
        why
    }
}

impl Twin {
    pub fn new(rules: &Rules) -> Self {
        let end = |at: usize| End {
            to_send: rules.messages[at],
            reposts: rules.reposts[at],
            posted: rules.receives,
            until: rules.receives - 1,
            granted: rules.receives - 1,
            ..End::default()
        };
        let mut new = Self { ends: [end(0), end(1)], held: Vec::new() };
        if !rules.posts_between {
            for end in &mut new.ends {
                (0..end.to_send).for_each(|_| end.post(rules));
            }
        }
        new
    }

    /// All that can happen: what devices can do by end, then what the ends can.
    pub fn acts(&self, rules: &Rules) -> Vec<Act> {
        let mut acts = Vec::new();
        for (at, end) in self.ends.iter().enumerate() {
            let mut device = |does| acts.push(Act::Device(at, does));
            if !end.sends.is_empty() {
                let fates = if end.failed { &[None] } else { rules.fates };
                fates.iter().for_each(|fate| device(Does::Send(*fate)));
            }
            let held = self.held.iter().enumerate().filter(|(_, (to, _))| *to == at);
            held.for_each(|(place, _)| device(Does::Arrive(place)));
            if end.failed && end.posted > 0 {
                device(Does::FlushReceive);
            }
            if !end.sent.is_empty() {
                device(Does::CompleteSend);
            }
            if !end.came.is_empty() {
                device(Does::CompleteReceive);
            }
        }
        for (at, end) in self.ends.iter().enumerate() {
            if end.to_send > 0 && end.may_post(rules) {
                acts.push(Act::Post(at));
            }
            if end.reposts > 0 && end.free > 0 && !end.broken {
                acts.push(Act::Repost(at));
            }
        }
        acts
    }

    /// Lets it happen; the end whose link that breaks, and why.
    pub fn take(&mut self, act: Act, rules: &Rules) -> Option<(usize, Why)> {
        let mut broke = None;
        match act {
            Act::Post(at) => self.ends[at].post(rules),
            Act::Repost(at) => {
                let end = &mut self.ends[at];
                (end.reposts, end.free, end.posted) = (end.reposts - 1, end.free - 1, end.posted + 1);
            }
            Act::Device(at, Does::Send(fate)) => self.send(at, fate, rules),
            Act::Device(_, Does::Arrive(place)) => {
                let (to, message) = self.held.remove(place);
                self.arrive(to, message);
            }
            Act::Device(at, Does::FlushReceive) => {
                self.ends[at].posted -= 1;
                self.ends[at].came.push(None);
            }
            Act::Device(at, Does::CompleteSend) => {
                let end = &mut self.ends[at];
                if !end.sent.remove(0) && !end.broken {
                    (end.broken, broke) = (true, Some((at, Why::Failed)));
                }
            }
            Act::Device(at, Does::CompleteReceive) => broke = self.ends[at].hear(rules).map(|why| (at, why)),
            Act::Device(..) => unreachable!("nothing else is offered"),
        }
        if rules.credits {
            self.ends.iter_mut().for_each(|end| end.grant_alone(rules));
        }
        broke
    }

    fn send(&mut self, at: usize, fate: Option<MessageFault>, rules: &Rules) {
        if self.ends[at].failed {
            return self.done(at, false);
        }
        match rules.retries {
            Some(retries) => self.try_to_send(at, fate, retries),
            None => self.send_off(at, fate),
        }
    }

    /// Ends the next send.
    fn done(&mut self, at: usize, well: bool) {
        let end = &mut self.ends[at];
        end.sends.remove(0);
        end.sent.push(well);
        end.failed |= !well;
    }

    /// Unreliable: it is done whatever becomes of it.
    fn send_off(&mut self, at: usize, fate: Option<MessageFault>) {
        let (mut message, to) = (self.ends[at].sends[0], 1 - at);
        self.done(at, true);
        match fate {
            None => self.arrive(to, message),
            Some(MessageFault::Drop) => {}
            Some(MessageFault::Duplicate) => (0..2).for_each(|_| self.arrive(to, message)),
            Some(MessageFault::Hold) => self.held.push((to, message)),
            Some(MessageFault::Corrupt { .. }) => {
                // A credit message ends in bytes that mean nothing.
                message.is_corrupt = !message.is_credit;
                self.arrive(to, message);
            }
            Some(other) => unreachable!("{other:?} is not offered"),
        }
    }

    /// Reliable: it is done when it was delivered, or was tried in vain once too often.
    fn try_to_send(&mut self, at: usize, fate: Option<MessageFault>, retries: Retries) {
        let (message, to) = (self.ends[at].sends[0], 1 - at);
        let (is_silent, is_ready) = (self.ends[to].failed, self.ends[to].posted > 0);
        let gets_there = matches!(fate, None | Some(MessageFault::Duplicate));
        let end = &mut self.ends[at];
        let over = if is_silent || is_ready && !gets_there {
            end.unheard += 1;
            end.unheard > retries.lost
        } else if !is_ready {
            end.not_ready += 1;
            end.not_ready > retries.not_ready
        } else {
            (end.unheard, end.not_ready) = (0, 0);
            self.done(at, true);
            return self.arrive(to, message);
        };
        if over {
            self.done(at, false);
        }
    }

    /// What finds no receive is gone.
    fn arrive(&mut self, to: usize, message: Message) {
        let end = &mut self.ends[to];
        if end.posted > 0 && !end.failed {
            end.posted -= 1;
            end.came.push(Some(message));
        }
    }
}

/// What there is to meet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Ways from the beginning to where nothing can happen any more.
    pub orders: u128,
    /// Things that can happen, over all states.
    pub steps: u64,
}

/// Counts by walking; a state met twice has as many ways on as the first time.
pub fn count(rules: &Rules) -> Counts {
    fn walk(twin: &Twin, rules: &Rules, known: &mut HashMap<Twin, u128>, steps: &mut u64) -> u128 {
        if let Some(orders) = known.get(twin) {
            return *orders;
        }
        let acts = twin.acts(rules);
        *steps += acts.len() as u64;
        let after = |act: &Act| {
            let mut after = twin.clone();
            after.take(*act, rules);
            after
        };
        let orders = match &acts[..] {
            [] => 1,
            acts => acts.iter().map(|act| walk(&after(act), rules, known, steps)).sum(),
        };
        known.insert(twin.clone(), orders);
        orders
    }
    let (mut known, mut steps) = (HashMap::new(), 0);
    let orders = walk(&Twin::new(rules), rules, &mut known, &mut steps);
    Counts { orders, steps }
}
