//! Every order of sends, losses, duplicates, delays and completions of three frames between two endpoints: nothing bad is
//! delivered, and nothing is lost unnoticed.

use std::sync::Arc;

use bareverbs_core::link::{CreditMode, Immediate};
use bareverbs_shell::endpoint::{EndpointConfig, Event, Frames, connect_pair};
use bareverbs_shell::objects::DeviceContext;
use bareverbs_shell::soft::{LiveCounts, Mode, SoftConfig, SoftFabric};
use bareverbs_shell::{Endpoint, Fabric, FabricKind};

const FRAMES: u64 = 3;
/// Orders that there are, counted by a run: fewer would mean that some are no longer met.
const ORDERS: u64 = 90_855;

/// The choices of one run: those that are prescribed, then always the first.
#[derive(Default)]
struct Choices {
    made: Vec<(usize, usize)>,
    at: usize,
}

impl Choices {
    /// One of `count`.
    fn pick(&mut self, count: usize) -> usize {
        if self.at == self.made.len() {
            self.made.push((0, count));
        }
        let (chosen, of) = self.made[self.at];
        assert_eq!(of, count, "the same choices meet the same world");
        self.at += 1;
        chosen
    }

    /// Prescribes the next run; false when all were met.
    fn advance(&mut self) -> bool {
        self.at = 0;
        while let Some((chosen, of)) = self.made.pop() {
            if chosen + 1 < of {
                self.made.push((chosen + 1, of));
                return true;
            }
        }
        false
    }
}

type End = Endpoint<Immediate, 4, 4>;

/// What a receiver has seen.
#[derive(Default)]
struct Seen {
    good: u64,
    broken: bool,
}

impl Seen {
    fn look(&mut self, end: &mut End) {
        let mut good = self.good;
        let polled = end.poll(|event| {
            if let Event::Received(frame) = event {
                assert_eq!(frame.payload(), [good as u8; 8], "in order, whole, once");
                good += 1;
            }
        });
        assert!(!self.broken || good == self.good, "a broken link delivers nothing more");
        self.good = good;
        self.broken |= polled.is_err();
    }
}

/// One run. What was lost is seen at once, or shown by one more frame.
fn run(fabric: &SoftFabric, context: &Arc<DeviceContext>, choices: &mut Choices) {
    // So that the steps are the messages' alone.
    let config = EndpointConfig::uc("the other end").frame_bytes(64).credits(CreditMode::Off);
    let end = || -> End { Endpoint::new(context, Immediate, config.clone(), Frames::Owned).expect("an endpoint") };
    let (mut from, mut to) = (end(), end());
    connect_pair(&mut from, &mut to).expect("both are in INIT");
    for number in 0..FRAMES {
        from.send(8, |payload| payload[..8].fill(number as u8)).expect("there is room");
    }
    let mut seen = Seen::default();
    loop {
        let steps = fabric.steps();
        if steps.is_empty() {
            break;
        }
        let step = steps[choices.pick(steps.len())];
        assert!(fabric.take(step), "{step:?}");
        seen.look(&mut to);
        from.poll(|_| ()).expect("the sender's own end is fine");
    }
    fabric.run_freely();
    from.poll(|_| ()).expect("the sender's own end is fine");
    from.send(8, |payload| payload[..8].fill(FRAMES as u8)).expect("there is room again");
    seen.look(&mut to);
    assert!(seen.broken || seen.good == FRAMES + 1, "lost unnoticed: {} came, {:?}", seen.good, choices.made);
    drop((from, to));
    fabric.step_again();
}

#[test]
fn no_order_delivers_what_is_bad_or_loses_unnoticed() {
    let fabric = SoftFabric::new(SoftConfig::default().mode(Mode::Stepped)).expect("a free slot");
    let opened = Fabric::with_symbols(fabric.symbols(), FabricKind::Soft);
    let context = opened.open(Some("soft0")).expect("it is there");
    let mut choices = Choices::default();
    let mut runs = 0_u64;
    loop {
        run(&fabric, &context, &mut choices);
        runs += 1;
        if !choices.advance() {
            break;
        }
    }
    assert_eq!(runs, ORDERS, "as many orders as there are");
    drop(context);
    assert_eq!(fabric.live(), LiveCounts::default());
}
