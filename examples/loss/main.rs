//! Frames over unreliable queue pairs that lose, double, reorder and corrupt them: every fault is noticed at the very frame,
//! nothing bad is delivered, and the stream goes on over a new link.
//!
//! `cargo run --release --example loss` needs no RDMA: the software fabric lets faults befall frames by a plan drawn from
//! `--seed`, so the program knows what the receiver must say, and where, and holds it to that. With `--device-pair A B` the
//! frames go over two devices of this machine, and the faults are the network's (netem's, say); then what is held is that
//! each frame delivered is the next one, byte for byte, and that what is missing was reported.
//!
//! What happens, in order:
//! 1. Two endpoints are made over static storage and connected ([`link`]): fresh queue pairs, first numbers drawn anew.
//! 2. Numbered frames stream from one to the other. Each is checked when it is handed out ([`content`]).
//! 3. At the first fault the link breaks, for good: it does not try to guess what is missing. The receiver's error says what
//!    it saw ([`verdict`]). The loss of the last frames before a pause has no successor that gives it away: a deadline does.
//!    With `--credits on` a credit message can be lost as well: the sender then sends what was granted before, and its deadline
//!    says that it has no credit for more.
//! 4. Both ends are torn down, in order, which gives the storage back; the next link goes on from the first frame that was not
//!    delivered.
//! 5. The books ([`ledger`]) are the last line.

mod content;
mod ledger;
mod link;
mod plan;
mod verdict;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{bail, ensure};
use bareverbs_core::link::{Carrier, CreditMode, Header, Immediate, Raw};
use bareverbs_examples::{CreditChoice, in_range, say};
use bareverbs_shell::objects::DeviceContext;
use bareverbs_shell::soft::{MessageOdds, SoftConfig, SoftDevice, SoftFabric};
use bareverbs_shell::{Fabric, FabricKind};
use clap::{Parser, ValueEnum};

use ledger::Ledger;
use link::{Ended, Link, MAX_SIZE, Network, RING, Terms};
use plan::{Kind, Plan, Planned};

/// Links in a row that may deliver nothing.
const FRUITLESS_LINKS: u32 = 30;
/// Faults that are told one by one; the rest is counted.
const TOLD: u64 = 8;

/// How a frame's number travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CarrierChoice {
    /// As immediate data. Nothing tells a payload that was corrupted: `--faults corrupt` shows that, and fails.
    Immediate,
    /// In a header at the frame's start, with a CRC32C of the payload.
    Header,
    /// Not at all: to see what becomes of the stream then. It fails.
    None,
}

/// Streams frames over links that lose, double, reorder and corrupt them, and shows that none of it goes unnoticed.
///
/// The exit status is 0 only when every frame was delivered, in order and byte for byte, and every fault was reported at the
/// frame that it befell.
///
/// The last line: frames delivered; faults reported; frames that were sent and neither arrived in order nor lie behind a
/// report; frames handed out with a wrong number or content; links made anew.
#[derive(Parser)]
struct Options {
    /// Two RDMA devices of this machine, the sender's and the receiver's, instead of the software fabric's two.
    #[arg(long, num_args = 2, value_names = ["A", "B"], conflicts_with_all = ["faults", "every"])]
    device_pair: Option<Vec<String>>,
    /// Frames to deliver.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    frames: u64,
    /// Payload bytes of a frame: 8 to 65536.
    #[arg(long, default_value_t = 1024, value_parser = in_range::<usize>(content::NUMBER_BYTES as u64..=MAX_SIZE as u64))]
    size: usize,
    /// Frames that may be unanswered: 1 to 31. One receive more is posted, so that a frame that comes twice finds one.
    #[arg(long, default_value_t = 16, value_parser = in_range::<u64>(1..=RING as u64 - 1))]
    window: u64,
    /// How a frame's number travels.
    #[arg(long, value_enum, default_value = "header")]
    carrier: CarrierChoice,
    /// Whether the receiver grants credits. Without them a window is all that keeps frames from finding no receive.
    #[arg(long, value_enum, default_value = "off")]
    credits: CreditChoice,
    /// Where the plan of faults and the frames' bytes come from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// What befalls frames, separated by commas; all that the carrier can tell, if not given.
    #[arg(long, value_enum, value_delimiter = ',')]
    faults: Option<Vec<Kind>>,
    /// Frames from one fault to the next, on the average: at least 2.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(2..=1 << 40))]
    every: u64,
    /// Milliseconds without a frame after which those that were sent count as lost; 20, and 2000 with --device-pair.
    #[arg(long)]
    patience_ms: Option<u64>,
}

impl Options {
    fn terms(&self) -> Terms {
        let patience_ms = self.patience_ms.unwrap_or(if self.device_pair.is_some() { 2000 } else { 20 });
        let Self { frames, size, window, seed, .. } = *self;
        let credits = CreditMode::from(self.credits);
        Terms { frames, size, window, seed, patience: Duration::from_millis(patience_ms), credits }
    }

    /// What befalls frames. Corruption only where it is asked for or a checksum can tell it; credit messages only where there
    /// are some.
    fn kinds(&self) -> Vec<Kind> {
        let can_tell = |kind: &Kind| match kind {
            Kind::Corrupt => self.carrier == CarrierChoice::Header,
            Kind::Credit => self.credits == CreditChoice::On,
            _ => true,
        };
        self.faults.clone().unwrap_or_else(|| Kind::value_variants().iter().copied().filter(can_tell).collect())
    }

    /// Whether the carrier promises to tell every fault that is planned.
    fn is_promised(&self) -> bool {
        match self.carrier {
            CarrierChoice::Header => true,
            CarrierChoice::Immediate => !self.kinds().contains(&Kind::Corrupt),
            CarrierChoice::None => false,
        }
    }
}

fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    let with_credits = options.credits == CreditChoice::On;
    ensure!(!with_credits || options.carrier != CarrierChoice::None, "credits count numbers: they want a --carrier");
    ensure!(with_credits || !options.kinds().contains(&Kind::Credit), "no credit message is sent: give --credits on");
    match options.carrier {
        CarrierChoice::Immediate => run(&options, Immediate),
        CarrierChoice::Header => run(&options, Header::<64>::with_checksum()),
        CarrierChoice::None => run(&options, Raw),
    }
}

fn run<C: Carrier>(options: &Options, carrier: C) -> anyhow::Result<ExitCode> {
    let mut stream = Stream::default();
    match options.device_pair.as_deref() {
        Some([a, b]) => {
            let fabric = Fabric::system()?;
            let devices = [fabric.open(Some(a))?, fabric.open(Some(b))?];
            stream.over_devices(&options.terms(), &devices, carrier)?;
        }
        _ => stream.over_software(options, carrier)?,
    }
    for ((who, kind), count) in &stream.kinds {
        say!("{count} times the {who} said: {kind}");
    }
    say!("result {}", stream.ledger);
    Ok(if stream.ledger.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The stream, over link after link.
#[derive(Debug, Default)]
struct Stream {
    ledger: Ledger,
    /// How often who said what.
    kinds: BTreeMap<(&'static str, &'static str), u64>,
    told: u64,
    fruitless: u32,
}

impl Stream {
    /// Over two devices, with whatever befalls frames between them.
    fn over_devices<C: Carrier>(
        &mut self,
        terms: &Terms,
        devices: &[Arc<DeviceContext>; 2],
        carrier: C,
    ) -> anyhow::Result<()> {
        while self.goes_on(terms) {
            let mut link = self.next_link(devices, carrier, terms)?;
            let ended = link.stream(terms, terms.frames, &mut self.ledger, &mut ())?;
            self.end_link(link, &ended, "")?;
        }
        Ok(())
    }

    /// Over the software fabric, with faults by plan: the receiver is held to what it must say of each.
    fn over_software<C: Carrier>(&mut self, options: &Options, carrier: C) -> anyhow::Result<()> {
        let devices = vec![SoftDevice::new("soft0"), SoftDevice::new("soft1")];
        let soft = SoftFabric::new(SoftConfig::default().devices(devices))?;
        let fabric = Fabric::with_symbols(soft.symbols(), FabricKind::Soft);
        let devices = [fabric.open(Some("soft0"))?, fabric.open(Some("soft1"))?];
        let terms = options.terms();
        let mut plan = Plan::new(options.seed, options.kinds(), options.every, options.size);
        let mut befallen = 0;
        while self.goes_on(&terms) {
            let mut link = self.next_link(&devices, carrier, &terms)?;
            // A fault beyond the stream's end befalls nothing.
            let planned = plan.draw(self.ledger.delivered()).filter(|fault| fault.first < terms.frames);
            let stop = planned.and_then(|fault| fault.pause()).map_or(terms.frames, |pause| pause.min(terms.frames));
            let room_bytes = C::ROOM_BYTES;
            let mut network = Planning { soft: &soft, planned, room_bytes, befallen: 0, loses: None, may_send: None };
            let ended = link.stream(&terms, stop, &mut self.ledger, &mut network)?;
            let said = planned.map(|fault| fault.to_string()).unwrap_or_default();
            befallen += network.befallen;
            if options.is_promised() {
                let expected = planned.and_then(|fault| fault.expected(terms.window, stop, network.may_send));
                let seen = match ended {
                    Ended::Fault(verdict, _) => Some(plan::Expected { delivered: self.ledger.delivered(), verdict }),
                    Ended::Done | Ended::Bad(_) => None,
                };
                ensure!(seen == expected, "{said}: what was to be said is {expected:?}, what was said is {ended:?}");
            }
            self.end_link(link, &ended, &said)?;
        }
        let met = soft.message_faults_met().len();
        ensure!(met == befallen, "{befallen} faults were planned, {met} befell a message");
        Ok(())
    }

    const fn goes_on(&self, terms: &Terms) -> bool {
        self.ledger.delivered() < terms.frames
    }

    fn next_link<C: Carrier>(
        &mut self,
        devices: &[Arc<DeviceContext>; 2],
        carrier: C,
        terms: &Terms,
    ) -> anyhow::Result<Link<C>> {
        self.ledger.link_made();
        Link::make(devices, carrier, terms, self.ledger.links())
    }

    /// Takes a link down and says why it ended.
    fn end_link<C: Carrier>(&mut self, link: Link<C>, ended: &Ended, planned: &str) -> anyhow::Result<()> {
        link.close(&mut self.ledger)?;
        let delivered_before = self.ledger.delivered_before_link();
        self.ledger.link_ended();
        self.fruitless = if self.ledger.delivered() == delivered_before { self.fruitless + 1 } else { 0 };
        let (who, said) = match ended {
            Ended::Done => return Ok(()),
            Ended::Fault(verdict, error) => {
                *self.kinds.entry((verdict.who(), verdict.kind())).or_default() += 1;
                (verdict.who(), format!("{verdict}: {error}"))
            }
            Ended::Bad(wrong) => ("receiver", format!("nothing, and handed out a bad frame: {wrong}")),
        };
        if self.told < TOLD {
            self.told += 1;
            let planned = if planned.is_empty() { String::new() } else { format!("{planned}; ") };
            say!("{planned}after {} frames the {who} said {said}", self.ledger.delivered());
        }
        if self.fruitless == FRUITLESS_LINKS {
            bail!("{FRUITLESS_LINKS} links in a row delivered nothing, the last one for {said}");
        }
        Ok(())
    }
}

/// The software fabric, with the fault of one link.
struct Planning<'a> {
    soft: &'a SoftFabric,
    planned: Option<Planned>,
    room_bytes: u32,
    /// Messages that it befell.
    befallen: usize,
    /// Messages that met a fault before the receiver polled, where what it sends now is lost.
    loses: Option<usize>,
    /// One past the last frame that the sender has credit for, once a credit message was lost.
    may_send: Option<u64>,
}

impl Network for Planning<'_> {
    fn before_frame(&mut self, frame: u64) {
        if let Some(fault) = self.planned.and_then(|planned| planned.on(frame, self.room_bytes)) {
            // Delivered within the post, so the next message is this frame.
            self.soft.message_fault(1, fault);
            self.befallen += 1;
        }
    }

    fn before_poll(&mut self, delivered: u64) {
        if self.may_send.is_none() && self.planned.is_some_and(|planned| planned.on_credit(delivered)) {
            self.loses = Some(self.soft.message_faults_met().len());
            self.soft.message_odds(0, MessageOdds { drop: 1_000_000, ..MessageOdds::default() });
        }
    }

    fn after_poll(&mut self, may_send: u64) {
        let Some(met_before) = self.loses.take() else { return };
        self.soft.message_odds(0, MessageOdds::default());
        if self.soft.message_faults_met().len() > met_before {
            self.may_send = Some(may_send);
            self.befallen += 1;
        }
    }
}
