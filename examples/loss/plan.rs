//! The software fabric's faults: a plan drawn from a seed, which knows of each fault what a receiver must say, and where.

use std::fmt;

use bareverbs_shell::soft::MessageFault;
use clap::ValueEnum;

use crate::content::NUMBER_BYTES;
use crate::verdict::Verdict;

/// What can befall frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// One to three frames in a row are lost.
    Drop,
    /// A frame arrives twice.
    Duplicate,
    /// A frame arrives after the next one.
    Reorder,
    /// A bit of a frame's payload is turned over.
    Corrupt,
    /// The last one to three frames before a pause are lost: nothing that follows gives them away.
    Tail,
    /// A credit message is lost: the sender may send what was granted before it, and no more.
    Credit,
}

/// A fault that is to come on a link, frames counted from the stream's first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Planned {
    pub(crate) kind: Kind,
    /// The first frame that it befalls.
    pub(crate) first: u64,
    /// How many frames it befalls.
    pub(crate) count: u64,
    /// Offset of the byte that is corrupted, in the payload.
    offset_bytes: u32,
}

/// What an end must say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expected {
    /// Frames that were delivered by then, over the whole stream.
    pub(crate) delivered: u64,
    pub(crate) verdict: Verdict,
}

impl Planned {
    /// One past the last frame that it befalls.
    const fn end(&self) -> u64 {
        self.first + self.count
    }

    /// Where the sender pauses.
    pub(crate) fn pause(&self) -> Option<u64> {
        (self.kind == Kind::Tail).then_some(self.end())
    }

    /// What the fabric is to do with a frame.
    pub(crate) fn on(&self, frame: u64, room_bytes: u32) -> Option<MessageFault> {
        let fault = match self.kind {
            Kind::Drop | Kind::Tail => MessageFault::Drop,
            Kind::Duplicate => MessageFault::Duplicate,
            Kind::Reorder => MessageFault::Reorder,
            Kind::Corrupt => MessageFault::Corrupt { offset_bytes: room_bytes + self.offset_bytes },
            Kind::Credit => return None,
        };
        (self.first..self.end()).contains(&frame).then_some(fault)
    }

    /// Whether it befalls the next credit message, where so many frames were delivered.
    pub(crate) fn on_credit(&self, delivered: u64) -> bool {
        self.kind == Kind::Credit && delivered > self.first
    }

    /// What must be said, where the sender stops before frame `stop` and has at most `window` frames unanswered. Where a
    /// credit message was lost, the sender may send the frames before `may_send`; nothing is said where it sends no others.
    pub(crate) fn expected(&self, window: u64, stop: u64, may_send: Option<u64>) -> Option<Expected> {
        // The first frame to arrive after those that are missing, if it is sent at all.
        let next = self.end();
        let gap_or_silence = if next < stop && self.count < window {
            Verdict::Gap { missing: self.count as u32 }
        } else {
            Verdict::Silence
        };
        Some(match self.kind {
            Kind::Drop | Kind::Reorder => Expected { delivered: self.first, verdict: gap_or_silence },
            Kind::Duplicate => Expected { delivered: next, verdict: Verdict::Old { behind: 1 } },
            Kind::Corrupt => Expected { delivered: self.first, verdict: Verdict::Checksum },
            Kind::Tail => Expected { delivered: self.first, verdict: Verdict::Silence },
            Kind::Credit => {
                let delivered = may_send.filter(|may_send| *may_send < stop)?;
                Expected { delivered, verdict: Verdict::NoCredit }
            }
        })
    }
}

impl fmt::Display for Planned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, first, count, offset_bytes } = self;
        match kind {
            Kind::Drop => write!(f, "{count} dropped from frame {first} on"),
            Kind::Duplicate => write!(f, "frame {first} doubled"),
            Kind::Reorder => write!(f, "frame {first} held back behind the next"),
            Kind::Corrupt => write!(f, "frame {first} corrupted in byte {offset_bytes}"),
            Kind::Tail => write!(f, "{count} dropped from frame {first} on, before a pause"),
            Kind::Credit => write!(f, "a credit message dropped after frame {first}"),
        }
    }
}

/// Draws one fault for each link: the first that a link meets ends it.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    state: u64,
    kinds: Vec<Kind>,
    every: u64,
    size: usize,
}

impl Plan {
    /// Faults of these kinds, one in `every` frames on the average.
    pub(crate) fn new(seed: u64, kinds: Vec<Kind>, every: u64, size: usize) -> Self {
        Self { state: seed, kinds, every, size }
    }

    /// The fault of a link whose first frame is `from`; `None` without kinds.
    pub(crate) fn draw(&mut self, from: u64) -> Option<Planned> {
        if self.kinds.is_empty() {
            return None;
        }
        let place = self.below(self.kinds.len() as u64);
        let kind = self.kinds[place as usize];
        let first = from + self.below(2 * self.every - 1);
        let count = match kind {
            Kind::Drop | Kind::Tail => 1 + self.below(3),
            Kind::Duplicate | Kind::Reorder | Kind::Corrupt | Kind::Credit => 1,
        };
        Some(Planned { kind, first, count, offset_bytes: self.below(self.size as u64) as u32 })
    }

    /// A number below `bound`, by splitmix64.
    fn below(&mut self, bound: u64) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

const _: () = assert!(NUMBER_BYTES > 0, "every payload has a byte that can be corrupted");

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(kind: Kind, first: u64, count: u64) -> Planned {
        Planned { kind, first, count, offset_bytes: 0 }
    }

    #[test]
    fn a_loss_shows_as_a_gap_only_if_a_later_frame_is_sent() {
        let loss = planned(Kind::Drop, 10, 3);
        let verdict = |window, stop| loss.expected(window, stop, None).expect("it is seen").verdict;
        assert_eq!(verdict(4, 14), Verdict::Gap { missing: 3 });
        assert_eq!(verdict(4, 13), Verdict::Silence, "the sender stops at the last one that is lost");
        assert_eq!(verdict(3, 14), Verdict::Silence, "the window is full of frames that are lost");
        assert_eq!(planned(Kind::Tail, 10, 3).pause(), Some(13));
        assert_eq!(loss.pause(), None);
    }

    #[test]
    fn each_kind_is_seen_at_its_own_frame() {
        let delivered = |kind| planned(kind, 10, 1).expected(16, 100, None).expect("it is seen");
        assert_eq!(delivered(Kind::Reorder), Expected { delivered: 10, verdict: Verdict::Gap { missing: 1 } });
        assert_eq!(delivered(Kind::Duplicate), Expected { delivered: 11, verdict: Verdict::Old { behind: 1 } });
        assert_eq!(delivered(Kind::Corrupt), Expected { delivered: 10, verdict: Verdict::Checksum });
        assert_eq!(delivered(Kind::Tail), Expected { delivered: 10, verdict: Verdict::Silence });
    }

    #[test]
    fn a_lost_credit_message_shows_where_the_credit_ends_if_the_stream_does_not_end_before() {
        let lost = planned(Kind::Credit, 10, 1);
        let starved = |delivered| Some(Expected { delivered, verdict: Verdict::NoCredit });
        assert_eq!(lost.expected(16, 100, Some(41)), starved(41));
        assert_eq!(lost.expected(16, 100, Some(99)), starved(99));
        assert_eq!(lost.expected(16, 100, Some(100)), None, "all were sent");
        assert_eq!(lost.expected(16, 100, None), None, "there was no credit message");
        assert_eq!([10, 11, 50].map(|delivered| lost.on_credit(delivered)), [false, true, true]);
        assert_eq!((0..50).find_map(|frame| lost.on(frame, 0)), None);
        assert!(!planned(Kind::Drop, 10, 1).on_credit(50));
    }

    #[test]
    fn a_fault_befalls_its_frames_and_no_others() {
        let loss = planned(Kind::Drop, 10, 2);
        let befallen: Vec<_> = (0..20).filter(|frame| loss.on(*frame, 0).is_some()).collect();
        assert_eq!(befallen, [10, 11]);
        assert_eq!(planned(Kind::Corrupt, 1, 1).on(1, 64), Some(MessageFault::Corrupt { offset_bytes: 64 }));
    }

    #[test]
    fn a_seed_gives_the_same_plan_again_and_every_kind_comes() {
        let kinds = Kind::value_variants().to_vec();
        let draw = |seed| {
            let mut plan = Plan::new(seed, kinds.clone(), 50, 64);
            std::iter::repeat_with(move || plan.draw(100)).take(200).flatten().collect::<Vec<_>>()
        };
        let drawn = draw(1);
        assert_eq!(drawn, draw(1));
        assert_ne!(drawn, draw(2));
        assert!(drawn.iter().all(|fault| (100..199).contains(&fault.first) && fault.offset_bytes < 64));
        assert!(kinds.iter().all(|kind| drawn.iter().any(|fault| fault.kind == *kind)));
        assert_eq!(Plan::new(1, vec![], 50, 64).draw(0), None);
    }
}
