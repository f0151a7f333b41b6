//! What a peer sends while two ends connect, beside the documented order.

use std::io;

use bareverbs_core::connect::{Agreement, HELLO_BYTES, Hello, Reason, Refusal, STEP_BYTES, Step, agree};
use bareverbs_core::link::CarrierKind;
use bareverbs_shell::Error;
use bareverbs_shell::exchange::{self, Connect, ExchangeErrorKind, Phase};
use std::sync::Arc;

use crate::reader::Reader;
use crate::wire::{hello_by_table, step_by_table};

/// An end that notes what is done to it.
struct End {
    peer: Arc<str>,
    hello: Hello,
    connected: Option<Agreement>,
    abandoned: bool,
}

impl Connect for End {
    fn peer(&self) -> &Arc<str> {
        &self.peer
    }

    fn hello(&self, nonce: u64) -> Hello {
        Hello { nonce, ..self.hello }
    }

    fn connect_as_agreed(&mut self, agreement: &Agreement) -> Result<(), Error> {
        assert!(self.connected.is_none(), "once");
        self.connected = Some(*agreement);
        Ok(())
    }

    fn abandon(&mut self) {
        assert!(!self.abandoned, "once");
        self.abandoned = true;
    }
}

/// How an exchange must end.
struct Outcome {
    /// What it answers: the error's kind as text, without what the channel itself said.
    answer: Result<Agreement, String>,
    /// What went out after the hello.
    said: Vec<Step>,
    connected: bool,
    abandoned: bool,
}

/// Whatever a peer sends, an exchange ends as the order says: nothing moves before both agree, an end that goes no further
/// says why, and no more is read than the next step's bytes.
///
/// Bytes: what a peer sends until it closes. What comes at a place where a hello or step is due, and starts with 0xFF, stands
/// for the right one.
pub fn exchange(bytes: &[u8]) {
    let hello = Hello { carrier: CarrierKind::Header, recv_depth: 4, ..Reader::new(&[0x5A; 80]).hello() };
    let sent = what_is_sent(bytes, &hello);
    let expected = by_the_order(&sent, &hello);
    let mut end = End { peer: Arc::from("rank 3"), hello, connected: None, abandoned: false };
    let (mut rest, mut said) = (sent.as_slice(), Vec::new());
    let got = exchange::over(
        &mut end,
        hello.nonce,
        |out| {
            said.push(out.to_vec());
            Ok(())
        },
        |room| {
            assert!(room.len() <= HELLO_BYTES);
            let (came, left) = rest.split_at_checked(room.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
            room.copy_from_slice(came);
            rest = left;
            Ok(())
        },
    );
    let answer = got.map_err(|error| {
        assert_eq!(&*error.peer, "rank 3");
        assert!(error.to_string().contains("rank 3"), "{error}");
        without_reason(&error.kind)
    });
    assert_eq!(answer, expected.answer);
    assert_eq!(said[0], hello.encode());
    let steps: Vec<_> = said[1..].iter().map(|step| Step::decode(step[..].try_into().unwrap()).unwrap()).collect();
    assert_eq!(steps, expected.said);
    assert_eq!((end.connected.is_some(), end.abandoned), (expected.connected, expected.abandoned));
}

/// The error as text; of a channel's own error only that there was one.
fn without_reason(kind: &ExchangeErrorKind) -> String {
    match kind {
        ExchangeErrorKind::Io { during, .. } => format!("channel, {during:?}"),
        kind => format!("{kind:?}"),
    }
}

/// Puts the right hello and steps in where the bytes ask for them.
fn what_is_sent(bytes: &[u8], ours: &Hello) -> Vec<u8> {
    let mut other = *ours;
    other.destination.qp_num ^= 1;
    let right = [&other.encode()[..], &Step::Agreed.encode(), &Step::Ready.encode()];
    let (mut rest, mut sent) = (bytes, Vec::new());
    for right in right {
        match rest.split_first() {
            Some((0xFF, more)) => {
                sent.extend_from_slice(right);
                rest = more;
            }
            _ => {
                let (piece, more) = rest.split_at(right.len().min(rest.len()));
                sent.extend_from_slice(piece);
                rest = more;
            }
        }
    }
    sent.extend_from_slice(rest);
    sent
}

fn by_the_order(sent: &[u8], ours: &Hello) -> Outcome {
    let fails = |kind: ExchangeErrorKind, said: &[Step]| Outcome {
        answer: Err(without_reason(&kind)),
        said: said.to_vec(),
        connected: said.contains(&Step::Ready),
        abandoned: said.contains(&Step::Ready),
    };
    let closed = |during: Phase, said: &[Step]| Outcome {
        answer: Err(format!("channel, {during:?}")),
        ..fails(ExchangeErrorKind::Refused { during, refusal: refusal(Reason::Withdrawn) }, said)
    };
    // Another program may never send a whole hello: its start is judged alone.
    if let Some(start) = sent.get(..5) {
        let mut whole = ours.encode();
        whole[..5].copy_from_slice(start);
        if let Err((error, _)) = hello_by_table(&whole) {
            return fails(ExchangeErrorKind::Hello(error), &[refused(Reason::Unreadable)]);
        }
    }
    let Some((hello, mut rest)) = sent.split_at_checked(HELLO_BYTES) else { return closed(Phase::Hello, &[]) };
    let theirs = match hello_by_table(hello) {
        Ok(theirs) => theirs,
        Err((error, _)) => return fails(ExchangeErrorKind::Hello(error), &[refused(Reason::Unreadable)]),
    };
    let agreement = match agree(ours, &theirs) {
        Ok(agreement) => agreement,
        Err(why) => return fails(ExchangeErrorKind::Mismatch(why), &[refused(Reason::Mismatch)]),
    };
    let mut said = Vec::new();
    for (step, during) in [(Step::Agreed, Phase::Agreement), (Step::Ready, Phase::Ready)] {
        said.push(step);
        let Some((came, more)) = rest.split_first_chunk::<STEP_BYTES>() else { return closed(during, &said) };
        rest = more;
        let kind = match step_by_table(came) {
            Ok(came) if came == step => continue,
            Ok(Step::Refused(refusal)) => return fails(ExchangeErrorKind::Refused { during, refusal }, &said),
            Ok(got) => ExchangeErrorKind::OutOfTurn { during, got },
            Err((error, _)) => ExchangeErrorKind::Step { during, error },
        };
        said.push(refused(Reason::Unreadable));
        return fails(kind, &said);
    }
    Outcome { answer: Ok(agreement), said, connected: true, abandoned: false }
}

const fn refusal(reason: Reason) -> Refusal {
    Refusal { reason, errno: 0 }
}

const fn refused(reason: Reason) -> Step {
    Step::Refused(refusal(reason))
}
