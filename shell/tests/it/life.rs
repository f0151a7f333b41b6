//! The whole life of one endpoint, connected to itself, on a software fabric: every entry point that the shell calls is
//! called, and how it ends can be chosen.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bareverbs_core::link::{CreditMode, Immediate};
use bareverbs_core::teardown_order::Quiesced;
use bareverbs_shell::endpoint::{Endpoint, EndpointConfig, EndpointError, EndpointErrorKind, Event, Frames, Waking};
use bareverbs_shell::objects::report::DropFailure;
use bareverbs_shell::soft::{Call, Record, SoftConfig, SoftDevice, SoftFabric};
use bareverbs_shell::wait::Clock;
use bareverbs_shell::{Error, Fabric, FabricKind, Wait};

use crate::drop_log;

/// How a life ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By drop, with sends and receives outstanding.
    Drop,
    /// By an explicit close, with sends and receives outstanding.
    Close,
}

/// Why a life ended early.
#[derive(Debug)]
pub enum Failed {
    Shell(Error),
    Endpoint(EndpointError),
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Shell(error) => error.fmt(f),
            Self::Endpoint(error) => error.fmt(f),
        }
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Shell(error)
    }
}

impl From<EndpointError> for Failed {
    fn from(error: EndpointError) -> Self {
        Self::Endpoint(error)
    }
}

/// What a life left behind.
pub struct Lived {
    pub soft: SoftFabric,
    pub device: String,
    pub outcome: Result<(), Failed>,
    pub record: Vec<Call>,
    /// What drops reported, in order.
    pub dropped: Vec<DropFailure>,
    /// Calls before the endpoint was begun, and before its end was.
    pub listed: usize,
    pub ended: usize,
    stage: Stage,
}

/// How far a life came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Making,
    Connecting,
    Using,
    Ending,
    /// Closed, and the close told whether the queue pair was drained.
    Closed(Quiesced),
}

impl Lived {
    /// Which order the teardown had to keep.
    pub fn quiesced(&self) -> Quiesced {
        match self.stage {
            Stage::Closed(quiesced) => quiesced,
            // A queue pair that could not be connected is destroyed at once.
            Stage::Connecting => Quiesced::No,
            _ if self.dropped.iter().any(|failure| matches!(failure, DropFailure::Quiesce { .. })) => Quiesced::No,
            _ => Quiesced::Yes,
        }
    }

    /// Whether memory was reported to be kept for ever.
    pub fn leaked(&self) -> bool {
        self.dropped.iter().any(|failure| matches!(failure, DropFailure::Leaked { .. }))
    }
}

/// A fabric to live on, life after life: what could not be destroyed in one keeps a fabric for ever, and there are not so
/// many.
pub struct Bench {
    pub soft: SoftFabric,
    pub device: String,
    waking: Waking,
}

impl Bench {
    /// A fabric whose device has a name of its own, by which drops report; for lives that learn of completions so.
    pub fn new(waking: Waking) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        drop_log::keep();
        let device = format!("life{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let config = SoftConfig::default().devices(vec![SoftDevice::new(&device)]).record(Record::Bounded(10_000));
        Self { soft: SoftFabric::new(config).expect("a free slot"), device, waking }
    }

    /// Whether its lives sleep while they wait.
    pub fn sleeps(&self) -> bool {
        self.waking == Waking::Events
    }

    /// Lives once, with the fabric told first what is to go wrong.
    pub fn live(&self, ending: Ending, plan: impl FnOnce(&SoftFabric)) -> Lived {
        let Self { soft, device, waking } = self;
        soft.clear_record();
        plan(soft);
        let (outcome, record, dropped) = (Ok(()), Vec::new(), Vec::new());
        let (soft, device) = (soft.clone(), device.clone());
        let mut lived = Lived { soft, device, outcome, record, dropped, listed: 0, ended: 0, stage: Stage::Making };
        lived.outcome = lived.go_through(*waking, ending);
        lived.record = lived.soft.record();
        lived.soft.clear_plan();
        lived.dropped = drop_log::take(&lived.device);
        lived
    }
}

impl Lived {
    fn go_through(&mut self, waking: Waking, ending: Ending) -> Result<(), Failed> {
        let (soft, device) = (&self.soft, &self.device);
        let fabric = Fabric::with_symbols(soft.symbols(), FabricKind::Soft);
        // What a device of the list cannot tell is that entry's error, not ours.
        fabric.devices()?;
        self.listed = soft.record().len();
        let context = fabric.open(Some(device))?;
        let config = EndpointConfig::uc("itself").frame_bytes(256).drain_limit(Duration::ZERO).waking(waking);
        // So that each call is one that is written below.
        let config = config.credits(CreditMode::Off);
        let mut end = Endpoint::<_, 4, 4>::new(&context, Immediate, config, Frames::Owned)?;
        // The endpoint is the last owner.
        drop(context);
        self.stage = Stage::Connecting;
        let itself = end.destination();
        end.connect(&itself, end.path_mtu())?;
        self.stage = Stage::Using;
        idle(&mut end)?;
        for _ in 0..2 {
            send(&mut end)?;
        }
        receive(&mut end, 2)?;
        end.post_receives(2)?;
        let mut chain = end.chain()?;
        for _ in 0..2 {
            chain.next_frame()?.stage(9)?;
        }
        chain.post()?;
        receive(&mut end, 1)?;
        idle(&mut end)?;
        send(&mut end)?;
        self.ended = soft.record().len();
        self.stage = Stage::Ending;
        match ending {
            Ending::Drop => drop(end),
            Ending::Close => self.stage = Stage::Closed(end.close()?.quiesced),
        }
        Ok(())
    }
}

fn send(end: &mut Endpoint<Immediate, 4, 4>) -> Result<(), EndpointError> {
    end.send(100, |payload| payload.fill(7)).map(drop)
}

/// A clock that goes on by 1 ms whenever it is asked: lives are alike, call for call, however slow the machine is.
struct Steps(Cell<u64>);

impl Clock for Steps {
    fn now(&self) -> Duration {
        Duration::from_millis(self.0.replace(self.0.get() + 1))
    }
}

fn wait(
    end: &mut Endpoint<Immediate, 4, 4>,
    limit_ms: u64,
    on: impl FnMut(Event<'_, 4>),
) -> Result<usize, EndpointError> {
    end.wait(&Wait::at_most(Duration::from_millis(limit_ms)).clock(&Steps(Cell::new(0))), on)
}

/// Waits where nothing comes any more: a wait that sleeps arms the queue, and takes the events that there are.
fn idle(end: &mut Endpoint<Immediate, 4, 4>) -> Result<(), EndpointError> {
    loop {
        match wait(end, 2, |_| ()) {
            Ok(_) => {}
            Err(error) if matches!(error.kind, EndpointErrorKind::Timeout { .. }) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Waits until at least that many messages came.
fn receive(end: &mut Endpoint<Immediate, 4, 4>, count: usize) -> Result<(), EndpointError> {
    let mut came = 0;
    while came < count {
        wait(end, 5, |event| {
            if let Event::Received(_) = event {
                came += 1;
            }
        })?;
    }
    Ok(())
}
