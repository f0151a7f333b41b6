//! One link of the stream's life: two endpoints made, connected, used until a fault or the end, and taken down in order.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use bareverbs_core::connect::agree;
use bareverbs_core::link::{Carrier, CreditMode, FrameMemory, FrameStorage, SendError};
use bareverbs_core::teardown_order;
use bareverbs_shell::endpoint::{Endpoint, EndpointConfig, EndpointError, EndpointErrorKind, Event, RecvFrame};
use bareverbs_shell::objects::DeviceContext;
use bareverbs_shell::{Relax, Wait};

use crate::content::{self, Wrong};
use crate::ledger::Ledger;
use crate::verdict::Verdict;

/// Frames of each ring.
pub(crate) const RING: usize = 32;
/// Largest payload, bytes.
pub(crate) const MAX_SIZE: usize = 65536;
/// A frame's room at most: a header and a payload.
const MAX_FRAME: usize = 64 + MAX_SIZE;

/// The ends' frames, link after link: a device may write to them at any time until its end is closed, so until then nobody
/// else can claim them.
static STORAGE: [FrameStorage<{ 2 * RING * MAX_FRAME }>; 2] = [const { FrameStorage::new() }; 2];

/// As much of an end's storage as its frames take.
fn claim(end: usize, len_bytes: usize) -> anyhow::Result<FrameMemory> {
    let claimed = STORAGE[end].claim().context("the end of the last link gave its storage back")?;
    let (frames, _) = claimed.split_at(len_bytes).map_err(|_| anyhow!("frames are larger than their storage"))?;
    Ok(frames)
}

/// What does not change from link to link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) frames: u64,
    pub(crate) size: usize,
    pub(crate) window: u64,
    pub(crate) seed: u64,
    pub(crate) patience: Duration,
    pub(crate) credits: CreditMode,
}

/// What befalls messages: it is told what is about to go out.
pub(crate) trait Network {
    /// This frame is about to be posted.
    fn before_frame(&mut self, _frame: u64) {}

    /// The receiver, which has delivered so many frames, is about to poll: a credit message that is due goes out then.
    fn before_poll(&mut self, _delivered: u64) {}

    /// It has polled. The sender has credit for the frames before `may_send`.
    fn after_poll(&mut self, _may_send: u64) {}
}

/// What befalls messages is not ours to say.
impl Network for () {}

/// How a link ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// Everything was sent and arrived.
    Done,
    /// An end reported that the link is no good.
    Fault(Verdict, EndpointError),
    /// A frame was handed out that was not the next: nobody reported anything.
    Bad(Wrong),
}

/// Two connected ends: frames go from `a` to `b`.
pub(crate) struct Link<C: Carrier> {
    a: Endpoint<C, RING, RING>,
    b: Endpoint<C, RING, RING>,
}

impl<C: Carrier> Link<C> {
    /// Makes fresh queue pairs and connects them. Each end draws the number of its first message, and a hello tells it to
    /// the other: a frame of an earlier link that is still on its way will not have the next number.
    pub(crate) fn make(
        devices: &[Arc<DeviceContext>; 2],
        carrier: C,
        terms: &Terms,
        nonce: u64,
    ) -> anyhow::Result<Self> {
        let frame_bytes = (terms.size + C::ROOM_BYTES as usize).next_multiple_of(64);
        // Without credits the window sees to it that each frame finds a receive.
        let config = |peer| EndpointConfig::uc(peer).frame_bytes(frame_bytes as u32).credits(terms.credits);
        let frames = |end| claim(end, 2 * RING * frame_bytes);
        let mut a = Endpoint::new(&devices[0], carrier, config("the receiver"), frames(0)?)?;
        let mut b = Endpoint::new(&devices[1], carrier, config("the sender"), frames(1)?)?;
        // Two processes would exchange these: see pingpong.
        let (from_a, from_b) = (a.hello(nonce), b.hello(nonce));
        a.connect_as_agreed(&agree(&from_a, &from_b)?)?;
        b.connect_as_agreed(&agree(&from_b, &from_a)?)?;
        Ok(Self { a, b })
    }

    /// Streams until frame `stop` has arrived, or a fault.
    pub(crate) fn stream(
        &mut self,
        terms: &Terms,
        stop: u64,
        ledger: &mut Ledger,
        network: &mut impl Network,
    ) -> anyhow::Result<Ended> {
        let mut last_progress = Instant::now();
        loop {
            let before = *ledger;
            let sent = self.send(terms, stop, ledger, network)?;
            let received = match sent {
                Ended::Done => {
                    network.before_poll(ledger.delivered());
                    let received = self.receive(terms, ledger, Duration::ZERO)?;
                    network.after_poll(ledger.next_to_send() + u64::from(self.a.credits_left()));
                    received
                }
                fault => return Ok(fault),
            };
            match received {
                Ended::Done if *ledger != before => last_progress = Instant::now(),
                // What comes after the last frame belongs to the link, too: a duplicate of it, say.
                Ended::Done if ledger.delivered() == terms.frames => return self.settle(terms, ledger),
                Ended::Done if last_progress.elapsed() >= terms.patience => {
                    // Polls once more; the error says who, what is outstanding, and what to do.
                    return match self.a.credits_left() {
                        0 if ledger.next_to_send() < limit(terms, stop, ledger) => self.starve(terms, ledger),
                        _ => self.receive(terms, ledger, terms.patience),
                    };
                }
                // The two ends may share a core with the fabric.
                Ended::Done => std::thread::yield_now(),
                fault => return Ok(fault),
            }
        }
    }

    /// Sends what the window allows. The last of a burst is signalled, so that no frame stays out for want of a signal.
    fn send(
        &mut self,
        terms: &Terms,
        stop: u64,
        ledger: &mut Ledger,
        network: &mut impl Network,
    ) -> anyhow::Result<Ended> {
        // Takes what was sent out of the queue.
        if let Err(error) = self.a.poll(|_| {}) {
            return fault(error, ledger);
        }
        loop {
            let number = ledger.next_to_send();
            let limit = limit(terms, stop, ledger);
            if number >= limit {
                return Ok(Ended::Done);
            }
            let mut frame = match self.a.next_frame() {
                Ok(frame) => frame,
                Err(error) if is_not_now(&error) => return Ok(Ended::Done),
                Err(error) => return fault(error, ledger),
            };
            content::fill(&mut frame.payload_mut()[..terms.size], terms.seed, number);
            network.before_frame(number);
            if number + 1 == limit {
                frame.post(terms.size)?
            } else {
                frame.post_more(terms.size)?
            };
            ledger.frame_sent();
        }
    }

    /// Waits for credit, at most as long as the patience goes.
    fn starve(&mut self, terms: &Terms, ledger: &mut Ledger) -> anyhow::Result<Ended> {
        match self.a.wait(&Wait::at_most(terms.patience).relax(Relax::Yield), |_| {}) {
            Ok(_) => Ok(Ended::Done),
            Err(error) => fault(error, ledger),
        }
    }

    /// Takes what came, checks number and content, and posts the frames again. Waits at most `limit` for something to come;
    /// with none, nothing is a good answer too.
    fn receive(&mut self, terms: &Terms, ledger: &mut Ledger, limit: Duration) -> anyhow::Result<Ended> {
        let Self { b, .. } = self;
        let mut bad = None;
        let mut reposted = Ok(());
        let on = |event: Event<'_, RING>| {
            if let Event::Received(frame) = event
                && bad.is_none()
            {
                bad = judge(terms, ledger, &frame).err();
                if let Err(error) = frame.repost() {
                    reposted = Err(error);
                }
            }
        };
        let came = match limit {
            Duration::ZERO => b.poll(on),
            limit => b.wait(&Wait::at_most(limit).relax(Relax::Yield), on),
        };
        match (bad, came) {
            (Some(wrong), _) => Ok(Ended::Bad(wrong)),
            (None, Err(error)) => fault(error, ledger),
            (None, Ok(_)) => reposted.map(|()| Ended::Done).map_err(anyhow::Error::from),
        }
    }

    /// Waits until the last sends have completed, and looks once more at what came.
    fn settle(&mut self, terms: &Terms, ledger: &mut Ledger) -> anyhow::Result<Ended> {
        while self.a.outstanding().sends > 0 {
            if let Err(error) = self.a.wait(&Wait::at_most(terms.patience), |_| {}) {
                return fault(error, ledger);
            }
        }
        self.receive(terms, ledger, Duration::ZERO)
    }

    /// Takes both ends down, in order. What still comes on a link that broke must not be handed out.
    pub(crate) fn close(mut self, ledger: &mut Ledger) -> anyhow::Result<()> {
        let handed_out = |event: Event<'_, RING>| {
            if let Event::Received(_) = event {
                ledger.frame_handed_out(false);
            }
        };
        // Its error is that the link is broken, where it is.
        drop(self.b.poll(handed_out));
        for teardown in [self.a.close()?, self.b.close()?] {
            teardown_order::check(teardown.quiesced, teardown.done())?;
        }
        Ok(())
    }
}

/// One past the last frame that may be sent now, as far as the window and the next pause go.
fn limit(terms: &Terms, stop: u64, ledger: &Ledger) -> u64 {
    stop.min(ledger.delivered() + terms.window)
}

/// Enters a frame that was handed out into the books.
fn judge(terms: &Terms, ledger: &mut Ledger, frame: &RecvFrame<'_, RING>) -> Result<(), Wrong> {
    let judged = content::check(frame.payload(), terms.size, terms.seed, ledger.delivered());
    ledger.frame_handed_out(judged.is_ok());
    judged
}

/// Enters an end's error into the books, if it is one that says that the link is no good.
fn fault(error: EndpointError, ledger: &mut Ledger) -> anyhow::Result<Ended> {
    match Verdict::of(&error) {
        Some(verdict) => {
            ledger.fault_reported();
            Ok(Ended::Fault(verdict, error))
        }
        None => Err(error.into()),
    }
}

/// Whether a send is to be tried again later: all frames are out, say.
fn is_not_now(error: &EndpointError) -> bool {
    use SendError::{Broken, Refused, TooLong, Unregistered, WorkIdsUsedUp};
    match error.kind {
        EndpointErrorKind::Send(Broken { .. } | Refused { .. } | TooLong { .. } | Unregistered | WorkIdsUsedUp, _) => {
            false
        }
        EndpointErrorKind::Send(..) => true,
        _ => false,
    }
}
