//! The order of an exchange, over anything that carries bytes.
//!
//! The rules this file protects: **no queue pair moves before both ends agree, and an end that goes no further says so.**

use std::io;

use bareverbs_core::connect::hello::HELLO_START_BYTES;
use bareverbs_core::connect::{Agreement, HELLO_BYTES, Hello, HelloError, Reason, Refusal, STEP_BYTES, Step, agree};

use crate::error::Error;
use crate::exchange::Connect;
use crate::exchange::error::{ExchangeErrorKind, Phase};

/// What carries the bytes.
pub(super) trait Wire {
    /// Sends all of `bytes`.
    fn send(&mut self, bytes: &[u8], during: Phase) -> Result<(), ExchangeErrorKind>;

    /// Fills all of `room`.
    fn receive(&mut self, room: &mut [u8], during: Phase) -> Result<(), ExchangeErrorKind>;

    /// Sends a last step, if that is possible at once, and sees that it is not lost.
    fn send_last(&mut self, bytes: &[u8]);
}

/// The caller's own channel.
pub(super) struct Closures<S, R> {
    pub(super) send: S,
    pub(super) receive: R,
}

impl<S: FnMut(&[u8]) -> io::Result<()>, R: FnMut(&mut [u8]) -> io::Result<()>> Wire for Closures<S, R> {
    fn send(&mut self, bytes: &[u8], during: Phase) -> Result<(), ExchangeErrorKind> {
        (self.send)(bytes).map_err(|error| ExchangeErrorKind::Io { during, error: error.into() })
    }

    fn receive(&mut self, room: &mut [u8], during: Phase) -> Result<(), ExchangeErrorKind> {
        (self.receive)(room).map_err(|error| ExchangeErrorKind::Io { during, error: error.into() })
    }

    fn send_last(&mut self, bytes: &[u8]) {
        // The first error is the one that is told.
        let _ = (self.send)(bytes);
    }
}

/// Brings an endpoint from its making to being connected, with its peer.
pub(super) fn run(endpoint: &mut dyn Connect, nonce: u64, wire: &mut dyn Wire) -> Result<Agreement, ExchangeErrorKind> {
    let agreed = agreed(&endpoint.hello(nonce), wire);
    let agreement = agreed.inspect_err(|why| tell(wire, why))?;
    if let Err(error) = endpoint.connect_as_agreed(&agreement) {
        let kind = ExchangeErrorKind::Endpoint(Box::new(error));
        tell(wire, &kind);
        return Err(kind);
    }
    if let Err(why) = meet(wire, Step::Ready, Phase::Ready) {
        // The other end will send nothing, or is not there: this one is of no use to anybody.
        endpoint.abandon();
        tell(wire, &why);
        return Err(why);
    }
    Ok(agreement)
}

/// Both hellos, and that both ends agree.
fn agreed(ours: &Hello, wire: &mut dyn Wire) -> Result<Agreement, ExchangeErrorKind> {
    wire.send(&ours.encode(), Phase::Hello)?;
    let theirs = receive_hello(wire)?;
    let agreement = agree(ours, &theirs).map_err(ExchangeErrorKind::Mismatch)?;
    meet(wire, Step::Agreed, Phase::Agreement)?;
    Ok(agreement)
}

fn receive_hello(wire: &mut dyn Wire) -> Result<Hello, ExchangeErrorKind> {
    let mut bytes = [0; HELLO_BYTES];
    let (start, rest) = bytes.split_at_mut(HELLO_START_BYTES);
    wire.receive(start, Phase::Hello).map_err(|kind| of_a_hello(0, kind))?;
    let start = start.first_chunk().ok_or(HelloError::Length { got_bytes: 0 });
    start.and_then(Hello::check_start).map_err(ExchangeErrorKind::Hello)?;
    wire.receive(rest, Phase::Hello).map_err(|kind| of_a_hello(HELLO_START_BYTES, kind))?;
    Hello::decode(&bytes).map_err(ExchangeErrorKind::Hello)
}

/// A hello is received in two pieces, and is one thing to whoever reads of its failure.
fn of_a_hello(before: usize, kind: ExchangeErrorKind) -> ExchangeErrorKind {
    let need_bytes = HELLO_BYTES;
    match kind {
        ExchangeErrorKind::Timeout { during, got_bytes, .. } => {
            ExchangeErrorKind::Timeout { during, got_bytes: before + got_bytes, need_bytes }
        }
        ExchangeErrorKind::PeerClosed { during, got_bytes, .. } => {
            ExchangeErrorKind::PeerClosed { during, got_bytes: before + got_bytes, need_bytes }
        }
        kind => kind,
    }
}

/// Says `step` and waits until the other end says the same.
pub(super) fn meet(wire: &mut dyn Wire, step: Step, during: Phase) -> Result<(), ExchangeErrorKind> {
    let mut bytes = [0; STEP_BYTES];
    match wire.send(&step.encode(), during) {
        Ok(()) => wire.receive(&mut bytes, during)?,
        // It may have said why before it closed.
        Err(closed @ ExchangeErrorKind::PeerClosed { .. }) => {
            wire.receive(&mut bytes, during).map_err(|_| closed)?;
        }
        Err(kind) => return Err(kind),
    }
    match Step::decode(&bytes).map_err(|error| ExchangeErrorKind::Step { during, error })? {
        came if came == step => Ok(()),
        Step::Refused(refusal) => Err(ExchangeErrorKind::Refused { during, refusal }),
        got => Err(ExchangeErrorKind::OutOfTurn { during, got }),
    }
}

/// Tells the other end that this one goes no further, where it does not know.
fn tell(wire: &mut dyn Wire, why: &ExchangeErrorKind) {
    let (reason, errno) = match why {
        ExchangeErrorKind::Mismatch(_) => (Reason::Mismatch, 0),
        ExchangeErrorKind::Hello(_) | ExchangeErrorKind::Step { .. } | ExchangeErrorKind::OutOfTurn { .. } => {
            (Reason::Unreadable, 0)
        }
        ExchangeErrorKind::Endpoint(error) => (Reason::CannotConnect, errno_of(error)),
        ExchangeErrorKind::Timeout { .. } => (Reason::Withdrawn, 0),
        // It said so itself, or is not there.
        _ => return,
    };
    wire.send_last(&Step::Refused(Refusal { reason, errno }).encode());
}

fn errno_of(error: &Error) -> i32 {
    match error {
        Error::Call(call) => call.errno.map_or(0, |errno| errno.0),
        _ => 0,
    }
}
