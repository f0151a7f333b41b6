//! The link beside a slow, obvious twin: two queues of what is in flight.

use std::collections::VecDeque;

use bareverbs_core::link::{Immediate, LinkError, LinkRules, Outstanding, SendError};
use bareverbs_core::verbs::{LinkLayer, SendFlags, Wc};
use proptest::prelude::*;

use super::provider::{Answer, QP_NUM, Rig, Seen, Wishes, accept};

const DEPTH: usize = 4;
type Small = Rig<Immediate, DEPTH, DEPTH>;

#[derive(Clone, Copy, Debug)]
enum Step {
    Post {
        more: bool,
    },
    RefusedPost,
    Chain {
        count: usize,
        accepted: Option<usize>,
    },
    CompleteSend,
    PostReceives {
        max: usize,
        accepted: Option<usize>,
    },
    Arrive,
    /// Replays a completion of the past, or makes one up: `of` chooses which, `qp` whose.
    Forge {
        of: usize,
        foreign: bool,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let accepted = prop_oneof![3 => Just(None), 1 => (0..DEPTH).prop_map(Some)];
    let step = prop_oneof![
        4 => any::<bool>().prop_map(|more| Step::Post { more }),
        1 => Just(Step::RefusedPost),
        2 => (0..DEPTH + 2, accepted.clone()).prop_map(|(count, accepted)| Step::Chain { count, accepted }),
        5 => Just(Step::CompleteSend),
        2 => (0..DEPTH + 2, accepted).prop_map(|(max, accepted)| Step::PostReceives { max, accepted }),
        4 => Just(Step::Arrive),
        1 => (any::<usize>(), any::<bool>()).prop_map(|(of, foreign)| Step::Forge { of, foreign }),
    ];
    prop::collection::vec(step, 1..120)
}

/// What the twin knows: numbers of what is in flight, and what comes next.
#[derive(Default)]
struct Twin {
    sends: VecDeque<u32>,
    receives: usize,
    next: u32,
    expected: u32,
    past: Vec<Wc>,
    broken: bool,
}

struct Both {
    rig: Small,
    twin: Twin,
}

impl Both {
    fn new(signal_every: u32) -> Self {
        let rules = LinkRules { signal_every, ..LinkRules::for_link_layer(LinkLayer::ETHERNET) };
        // Across the wrap of the number.
        let start = u32::MAX - 5;
        let rig = Rig::wish(Immediate, Wishes { rules, start, ..Wishes::default() }).unwrap();
        Self { rig, twin: Twin { next: start, expected: start, ..Twin::default() } }
    }

    fn twin_posts(&mut self, count: usize) {
        for _ in 0..count {
            self.twin.sends.push_back(self.twin.next);
            self.twin.next = self.twin.next.wrapping_add(1);
        }
    }

    /// No frame that is the device's can be reached.
    fn check(&mut self) {
        let Twin { sends, receives, next, expected, .. } = &self.twin;
        let outstanding = Outstanding { sends: sends.len() as u32, receives: *receives as u32 };
        assert_eq!(self.rig.link.outstanding(), outstanding);
        assert_eq!(self.rig.link.next_sequence().number(), *next);
        assert_eq!(self.rig.link.expected_sequence().number(), *expected);
        assert_eq!(self.rig.link.cause().is_some(), self.twin.broken);
        let held: Vec<u64> = self.rig.device.world().sends.iter().map(|send| send.sge.addr).collect();
        match self.rig.link.next_frame() {
            Ok(mut frame) => {
                assert!(!self.twin.broken && sends.len() < DEPTH);
                assert!(!held.contains(&(frame.payload_mut().as_ptr().addr() as u64)));
            }
            Err(SendError::Full { depth }) => assert_eq!((sends.len(), depth), (DEPTH, DEPTH as u32)),
            Err(error) => assert!(self.twin.broken && matches!(error, SendError::Broken { .. })),
        }
    }

    fn post(&mut self, more: bool) {
        let expected = self.twin.next;
        let full = self.twin.sends.len() == DEPTH;
        match self.rig.link.next_frame() {
            Ok(frame) => {
                let posted = if more { frame.post_more(8) } else { frame.post(8) };
                assert_eq!(posted.unwrap().number(), expected);
                self.twin_posts(1);
            }
            Err(_) => assert!(full || self.twin.broken),
        }
    }

    fn chain(&mut self, count: usize, accepted: Option<usize>) {
        let free = DEPTH - self.twin.sends.len();
        if self.twin.broken {
            return;
        }
        let mut chain = self.rig.link.chain();
        let mut staged = 0;
        for _ in 0..count {
            match chain.next_frame() {
                Ok(frame) => {
                    assert_eq!(frame.stage(3).unwrap().number(), self.twin.next.wrapping_add(staged as u32));
                    staged += 1;
                }
                Err(error) => assert!(matches!(error, SendError::Full { .. }) && staged == free),
            }
        }
        assert_eq!(staged, count.min(free));
        let refuse_at = accepted.filter(|accepted| *accepted < staged);
        if let Some(accepted) = refuse_at {
            self.rig.device.world().answers.push_back(Answer::Refuse { accepted, returned: 12 });
        }
        let posted = chain.post();
        match refuse_at {
            Some(at) => {
                assert!(matches!(posted, Err(SendError::Refused { accepted, .. }) if accepted as usize == at));
                self.twin_posts(at);
            }
            None => {
                assert_eq!(posted.unwrap().count as usize, staged);
                self.twin_posts(staged);
            }
        }
    }

    fn complete_send(&mut self) {
        let world = self.rig.device.world();
        let last = world.sends.iter().position(|send| send.wr.send_flags.contains(SendFlags::SIGNALED));
        let Some(last) = last else {
            assert!(self.twin.sends.len() < DEPTH, "a full ring has a signalled send");
            return;
        };
        self.rig.complete_send();
        self.twin.past.push(*self.rig.device.world().completions.back().unwrap());
        self.twin.sends.drain(..=last);
        let seen = accept!(self.rig);
        if self.twin.broken {
            assert!(matches!(seen, Seen::Error(LinkError::Broken { .. })));
        } else {
            assert_eq!(seen, Seen::Sent(last as u32 + 1));
        }
    }

    fn post_receives(&mut self, max: usize, accepted: Option<usize>) {
        if self.twin.broken {
            assert!(self.rig.link.post_receives(max).is_err());
            return;
        }
        let fitting = max.min(DEPTH - self.twin.receives);
        let refuse_at = accepted.filter(|accepted| *accepted < fitting);
        if let Some(accepted) = refuse_at {
            self.rig.device.world().answers.push_back(Answer::Refuse { accepted, returned: 12 });
        }
        let posted = self.rig.link.post_receives(max);
        assert_eq!(posted.ok(), if refuse_at.is_some() { None } else { Some(fitting) });
        self.twin.receives += refuse_at.unwrap_or(fitting);
    }

    fn arrive(&mut self) {
        if self.twin.receives == 0 {
            return;
        }
        let number = self.twin.expected;
        let wr_id = self.rig.arrive(&number.to_le_bytes(), Some(number));
        self.twin.past.push(*self.rig.device.world().completions.back().unwrap());
        self.twin.receives -= 1;
        let seen = accept!(self.rig);
        if self.twin.broken {
            assert!(matches!(seen, Seen::Error(LinkError::Broken { .. })));
        } else {
            let payload = number.to_le_bytes().to_vec();
            assert_eq!(seen, Seen::Received { payload, sequence: Some(number), wr_id });
            self.twin.expected = number.wrapping_add(1);
        }
    }

    fn forge(&mut self, of: usize, foreign: bool) {
        let made_up = Wc { wr_id: of as u64, qp_num: QP_NUM, ..Wc::default() };
        let mut wc = self.twin.past.get(of % (self.twin.past.len() + 1)).copied().unwrap_or(made_up);
        if foreign {
            wc.qp_num ^= 1;
        }
        self.rig.device.world().completions.push_back(wc);
        let Seen::Error(error) = accept!(self.rig) else { panic!("a forgery passed") };
        assert_eq!(matches!(error, LinkError::ForeignQueuePair { .. }), foreign);
        self.twin.broken |= !foreign;
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Post { more } => self.post(more),
            Step::RefusedPost => {
                if self.twin.broken || self.twin.sends.len() == DEPTH {
                    return;
                }
                self.rig.device.world().answers.push_back(Answer::Refuse { accepted: 0, returned: 12 });
                assert!(matches!(self.rig.send(b"no"), Err(SendError::Refused { accepted: 0, .. })));
            }
            Step::Chain { count, accepted } => self.chain(count, accepted),
            Step::CompleteSend => self.complete_send(),
            Step::PostReceives { max, accepted } => self.post_receives(max, accepted),
            Step::Arrive => self.arrive(),
            Step::Forge { of, foreign } => self.forge(of, foreign),
        }
        self.check();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn the_link_agrees_with_its_twin(signal_every in 1u32..5, steps in steps()) {
        let mut both = Both::new(signal_every);
        for step in steps {
            both.step(step);
        }
    }
}

#[test]
fn the_link_agrees_with_its_twin_in_every_short_history() {
    let all = [
        Step::Post { more: false },
        Step::Post { more: true },
        Step::RefusedPost,
        Step::Chain { count: 3, accepted: Some(1) },
        Step::CompleteSend,
        Step::PostReceives { max: 2, accepted: None },
        Step::Arrive,
        Step::Forge { of: 0, foreign: false },
    ];
    let length: u32 = if cfg!(miri) { 2 } else { 5 };
    for history in 0..all.len().pow(length) {
        let mut both = Both::new(2);
        let mut rest = history;
        for _ in 0..length {
            both.step(all[rest % all.len()]);
            rest /= all.len();
        }
    }
}
