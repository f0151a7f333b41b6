//! One end of a connection: device, protection domain, completion queue, queue pair, registered frames, and the link over
//! them.
//!
//! An [`Endpoint`] is used with static dispatch: its carrier and ring lengths are in its type. [`MessageEndpoint`] is the
//! form for those who store several kinds in one place.
//!
//! # Safety
//!
//! This file guarantees that a link's calls are used only while its queue pair lives, that a link's frames are covered by
//! the region whose key it has, and that their memory outlives both.
#![allow(unsafe_code)]

mod completing;
mod config;
mod connecting;
mod error;
mod frames;
pub(crate) mod local;
mod message;
mod posting;
pub(crate) mod teardown;

use std::sync::Arc;

use bareverbs_core::connect::{Psn, Transition};
use bareverbs_core::link::{
    Carrier, CreditMode, DepthUnit, Direction, FrameKey, Geometry, Link, LinkRules, LinkSetup, Outstanding, Sequence,
    THUNDERBOLT_FRAME_BYTES,
};
use bareverbs_core::verbs::Wc;

pub use config::{EndpointConfig, Waking};
pub use error::{EndpointError, EndpointErrorKind};
pub use frames::Frames;
pub use message::MessageEndpoint;
pub use posting::{ChainFrame, Event, RecvFrame, SendChain, SendFrame};
pub use teardown::Teardown;

use crate::errno;
use crate::error::Error;
use crate::objects::gid::{self, GidInfo};
use crate::objects::port::PortInfo;
use crate::objects::queue_pair::MARKER_SLOTS;
use crate::objects::{
    CompletionChannel, CompletionQueue, DeviceContext, MemoryRegion, ProtectionDomain, QueuePair, drain,
};
use posting::Names;
use teardown::Plumbing;

/// One end of a connection, with `SEND` frames to send from and `RECV` to receive into.
///
/// ```
/// use bareverbs_core::link::Immediate;
/// use bareverbs_shell::endpoint::{Endpoint, EndpointConfig, Event, Frames, connect_pair};
/// use bareverbs_shell::{Fabric, Wait};
/// use std::time::Duration;
///
/// let device = Fabric::soft()?.open(None)?;
/// let mut a = Endpoint::<_, 8, 8>::new(&device, Immediate, EndpointConfig::uc("b"), Frames::Owned)?;
/// let mut b = Endpoint::<_, 8, 8>::new(&device, Immediate, EndpointConfig::uc("a"), Frames::Owned)?;
/// connect_pair(&mut a, &mut b)?;
///
/// a.send(5, |payload| payload[..5].copy_from_slice(b"hello"))?;
/// let mut seen = Vec::new();
/// b.wait(&Wait::at_most(Duration::from_secs(5)), |event| {
///     if let Event::Received(frame) = event {
///         seen.extend_from_slice(frame.payload());
///     }
/// })?;
/// assert_eq!(seen, b"hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Endpoint<C: Carrier, const SEND: usize, const RECV: usize> {
    link: Link<C, SEND, RECV>,
    plumbing: Plumbing,
    config: EndpointConfig,
    port: PortInfo,
    psn: Psn,
    /// Number of the first message, as a hello publishes it.
    first_sequence: Sequence,
    gid: Option<GidInfo>,
    qp_num: u32,
    stage: Stage,
    /// Whether only the thread that opened the device may post and poll.
    one_thread: bool,
    /// Fatal events of the device that this endpoint has heeded.
    fatal_seen: u32,
    /// Whether the link, which carries credits, is to be asked for a credit message: something came since it was, or it was
    /// refused.
    grant_may_be_due: bool,
    /// Where polls put completions: kept, for clearing it each time would cost more than a poll that finds nothing.
    room: [Wc; POLL_AT_ONCE],
}

/// How many completions one poll takes at most.
const POLL_AT_ONCE: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// In INIT, with nothing posted.
    Fresh,
    /// In RTS, with receives posted.
    Connected,
    /// The queue pair is gone.
    Failed,
}

impl<C: Carrier, const SEND: usize, const RECV: usize> std::fmt::Debug for Endpoint<C, SEND, RECV> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint")
            .field("peer", &self.config.peer)
            .field("device", &self.plumbing.device)
            .field("qp_num", &self.qp_num)
            .field("stage", &self.stage)
            .finish_non_exhaustive()
    }
}

impl<C: Carrier, const SEND: usize, const RECV: usize> Endpoint<C, SEND, RECV> {
    /// Makes an endpoint up to the INIT state: what it has to tell the other end is then known
    /// ([`destination`](Self::destination)).
    ///
    /// In order: port and GID are read, then domain, completion queue, queue pair and region are made, then the queue pair
    /// enters INIT. When a step fails, what was made is destroyed, in order.
    ///
    /// # Errors
    /// [`Error`] of the step that failed.
    pub fn new(
        context: &Arc<DeviceContext>,
        carrier: C,
        config: EndpointConfig,
        frames: impl Into<Frames>,
    ) -> Result<Self, Error> {
        let mut config = config;
        let port = context.port(config.queue_pair.port)?;
        let gid = gid::find(context, &port, config.gid)?;
        let mut rules = rules_for::<C>(&config, &port);
        config.queue_pair = config
            .queue_pair
            .depths(depth_to_ask(&rules, SEND, config.frame_bytes), depth_to_ask(&rules, RECV, config.frame_bytes));
        let domain = ProtectionDomain::new(context, port.number)?;
        let (channel, queue) = queue_for(context, &config)?;
        // Region and queue pair each hold the keeper: the memory is let go when both are gone.
        let (memory, keeper) = frames::memory(frames.into(), (SEND + RECV) * config.frame_bytes as usize)?;
        let mut queue_pair = QueuePair::for_memory(&domain, &queue, &queue, &config.queue_pair, keeper.clone())?;
        let region = MemoryRegion::of_frames(&domain, &memory, keeper)?;
        queue_pair.modify(&Transition::to_init(&config.queue_pair))?;
        // What was granted, where that is less than was asked.
        rules.inline_limit_bytes = rules.inline_limit_bytes.min(queue_pair.cap().max_inline_data);
        // SAFETY: the region was registered at its own address, without an iova.
        let key = unsafe { FrameKey::new(region.lkey()) };
        let setup = link_setup(&config, &queue, &queue_pair, rules, key);
        let calls = queue_pair
            .take_calls()
            .ok_or(Error::State { device: Arc::clone(context.name()), what: "the queue pair's calls were taken" })?;
        let link = Link::new(carrier, calls, memory, setup).map_err(Error::Link)?;
        Ok(Self {
            psn: config.queue_pair.psn.choose(port.link_layer(), random_bits()),
            first_sequence: config.tx_start.unwrap_or_else(|| Sequence::new(random_bits())),
            link,
            config,
            port,
            gid,
            qp_num: queue_pair.qp_num(),
            stage: Stage::Fresh,
            one_thread: context.is_for_one_thread(),
            // What came before concerns it if it names this queue pair, this queue or the whole device.
            fatal_seen: 0,
            grant_may_be_due: false,
            room: [Wc::default(); POLL_AT_ONCE],
            plumbing: Plumbing {
                region: Some(region),
                queue_pair: Some(queue_pair),
                queue: Some(queue),
                channel,
                domain: Some(domain),
                context: Some(Arc::clone(context)),
                device: Arc::clone(context.name()),
                abandoned: None,
            },
        })
    }

    /// The next frame to fill in place and post.
    ///
    /// # Errors
    /// [`EndpointErrorKind::Send`]; [`EndpointErrorKind::NotConnected`].
    #[inline]
    pub fn next_frame(&mut self) -> Result<SendFrame<'_, C, SEND>, EndpointError> {
        self.check_connected()?;
        let Self { link, config, plumbing, .. } = self;
        let names = Names::new(&config.peer, &plumbing.device);
        match link.next_frame() {
            Ok(frame) => Ok(SendFrame { frame, names }),
            Err(error) => Err(names.not_posted(error)),
        }
    }

    /// Messages to be staged and posted in one call.
    ///
    /// # Errors
    /// [`EndpointErrorKind::NotConnected`].
    #[inline]
    pub fn chain(&mut self) -> Result<SendChain<'_, C, SEND>, EndpointError> {
        self.check_connected()?;
        let Self { link, config, plumbing, .. } = self;
        Ok(SendChain { chain: link.chain(), names: Names::new(&config.peer, &plumbing.device) })
    }

    #[inline]
    fn check_connected(&self) -> Result<(), EndpointError> {
        self.check_thread()?;
        if self.stage == Stage::Connected { Ok(()) } else { Err(self.failed(EndpointErrorKind::NotConnected)) }
    }

    /// That this thread may post and poll.
    #[inline]
    fn check_thread(&self) -> Result<(), EndpointError> {
        if self.one_thread { self.check_which_thread() } else { Ok(()) }
    }

    #[cold]
    fn check_which_thread(&self) -> Result<(), EndpointError> {
        match self.plumbing.context.as_ref().map(|context| context.check_use()) {
            Some(Err(Error::SecondThread { .. })) => Err(self.failed(EndpointErrorKind::SecondThread)),
            _ => Ok(()),
        }
    }

    /// The endpoint's protection domain, to register more memory in; `None` after its teardown.
    pub fn domain(&self) -> Option<&Arc<ProtectionDomain>> {
        self.plumbing.domain.as_ref()
    }

    /// Who is at the other end.
    pub fn peer(&self) -> &Arc<str> {
        &self.config.peer
    }

    /// The own device's name.
    pub fn device(&self) -> &Arc<str> {
        &self.plumbing.device
    }

    /// The own queue pair's number.
    pub fn qp_num(&self) -> u32 {
        self.qp_num
    }

    /// The GID in use, with its index.
    pub fn gid(&self) -> Option<GidInfo> {
        self.gid
    }

    /// Whether the link carries credits: the other end's must too.
    pub fn credit_mode(&self) -> CreditMode {
        self.link.credit_mode()
    }

    /// Receives that this end posts before the first message.
    pub fn recv_depth(&self) -> u32 {
        self.link.recv_depth()
    }

    /// How many messages the other end takes now; very many where the link carries no credits.
    pub fn credits_left(&self) -> u32 {
        self.link.credits_left()
    }

    /// Requests that the device has, or may have; none once an abandoned queue pair is gone.
    pub fn outstanding(&self) -> Outstanding {
        if self.plumbing.is_abandoned() { Outstanding::default() } else { self.link.outstanding() }
    }

    /// Fills the next frame's room and posts its first `payload_bytes`.
    ///
    /// # Errors
    /// [`EndpointErrorKind::Send`]; a refused send used up no sequence number.
    /// [`SendError::NoCredit`](bareverbs_core::link::SendError::NoCredit) before anything is filled in: [`poll`](Self::poll) or
    /// [`wait`](Self::wait) until [`Event::Granted`], or a message, comes.
    #[inline]
    pub fn send(&mut self, payload_bytes: usize, fill: impl FnOnce(&mut [u8])) -> Result<Sequence, EndpointError> {
        let mut frame = self.next_frame()?;
        fill(frame.payload_mut());
        frame.post(payload_bytes)
    }

    /// Posts at most `max` receives, of the frames that are not posted; answers how many.
    ///
    /// # Errors
    /// [`EndpointErrorKind::Receive`]; [`EndpointErrorKind::NotConnected`]. [`EndpointErrorKind::Send`] if the receives were
    /// posted, and a credit message that tells of them was refused; it is tried again at the next poll.
    #[inline(never)]
    pub fn post_receives(&mut self, max: usize) -> Result<usize, EndpointError> {
        self.check_connected()?;
        errno::clear();
        let posted = self.link.post_receives(max).map_err(|error| self.names().receive_refused(error))?;
        self.grant_credits()?;
        Ok(posted)
    }

    #[cold]
    fn failed(&self, kind: EndpointErrorKind) -> EndpointError {
        self.names().failed(kind)
    }

    fn names(&self) -> Names<'_> {
        Names::new(&self.config.peer, &self.plumbing.device)
    }

    /// Takes the endpoint down, in order, and tells what happened.
    ///
    /// Nothing is left to do when it returns, and nothing is tried again.
    ///
    /// # Errors
    /// [`Error::Call`] of the first call that the library refused: what it was to destroy, and what that needs, stays. What
    /// else could not be done is reported as by a drop ([`set_drop_hook`](crate::objects::report::set_drop_hook)).
    /// [`Error::Forked`] in a forked child: nothing was done, all of it is the parent's.
    ///
    /// A use after it does not compile:
    ///
    /// ```compile_fail,E0382
    /// # use bareverbs_core::link::Immediate;
    /// # use bareverbs_shell::endpoint::{Endpoint, EndpointConfig, Frames};
    /// # let device = bareverbs_shell::Fabric::soft()?.open(None)?;
    /// let end = Endpoint::<_, 8, 8>::new(&device, Immediate, EndpointConfig::uc("b"), Frames::Owned)?;
    /// end.close()?;
    /// end.outstanding();
    /// # Ok::<(), bareverbs_shell::Error>(())
    /// ```
    pub fn close(mut self) -> Result<Teardown, Error> {
        let allowed = self.plumbing.check_process();
        let done = self.take_down();
        allowed?;
        teardown::outcome(done, &self.plumbing.device, self.qp_num)
    }

    fn take_down(&mut self) -> Teardown {
        let Self { link, plumbing, config, .. } = self;
        let ours = plumbing.context.as_ref().is_some_and(|context| context.is_ours());
        plumbing.take_down(|queue_pair, queue| {
            let Outstanding { sends, receives } = link.outstanding();
            // Nothing to end, or not ours to end: a forked child makes no call.
            if sends == 0 && receives == 0 || !ours {
                return None;
            }
            let post_marker = |direction: Direction| link.post_marker(direction);
            Some(drain::drain(queue_pair, queue, post_marker, config.drain_limit))
        })
    }
}

impl<C: Carrier, const SEND: usize, const RECV: usize> Drop for Endpoint<C, SEND, RECV> {
    fn drop(&mut self) {
        // After `close` nothing is there any more, and nothing happens here.
        let done = self.take_down();
        teardown::report_failures(&done, &self.plumbing.device, self.qp_num);
    }
}

/// Connects two endpoints of one process to each other: the lower path MTU wins, and both have receives posted when this
/// returns.
///
/// # Errors
/// As [`Endpoint::connect`].
pub fn connect_pair<A: Carrier, B: Carrier, const AS: usize, const AR: usize, const BS: usize, const BR: usize>(
    a: &mut Endpoint<A, AS, AR>,
    b: &mut Endpoint<B, BS, BR>,
) -> Result<(), Error> {
    if a.credit_mode() != b.credit_mode() {
        let device = Arc::clone(a.device());
        return Err(Error::State { device, what: "one end's link carries credits and the other's does not" });
    }
    a.agree_credits(b.recv_depth())?;
    b.agree_credits(a.recv_depth())?;
    let path_mtu = a.path_mtu().min(b.path_mtu());
    let (to_a, to_b) = (a.destination(), b.destination());
    a.connect(&to_b, path_mtu)?;
    b.connect(&to_a, path_mtu)
}

fn rules_for<C: Carrier>(config: &EndpointConfig, port: &PortInfo) -> LinkRules {
    let mut rules = LinkRules::for_link_layer(port.link_layer());
    rules.inline_limit_bytes = config.queue_pair.inline_bytes;
    rules.credits = config.credits.unwrap_or(CreditMode::default_for::<C>(port.link_layer()));
    if let Some(signal_every) = config.signal_every {
        rules.signal_every = signal_every;
    }
    rules
}

/// The completion queue for all that the two queues hold and their teardown markers, and the channel to sleep on if it is to
/// have one.
fn queue_for(
    context: &Arc<DeviceContext>,
    config: &EndpointConfig,
) -> Result<(Option<Arc<CompletionChannel>>, CompletionQueue), Error> {
    let entries = config.queue_pair.send_depth.saturating_add(config.queue_pair.recv_depth);
    let entries = entries.saturating_add(2 * MARKER_SLOTS);
    match config.waking {
        Waking::Polling => Ok((None, CompletionQueue::new(context, entries)?)),
        Waking::Events => {
            let channel = CompletionChannel::new(context)?;
            let queue = CompletionQueue::with_channel(&channel, entries)?;
            Ok((Some(channel), queue))
        }
    }
}

fn link_setup(
    config: &EndpointConfig,
    queue: &CompletionQueue,
    queue_pair: &QueuePair,
    rules: LinkRules,
    key: FrameKey,
) -> LinkSetup {
    LinkSetup {
        send_queue: queue.id(),
        recv_queue: queue.id(),
        geometry: Geometry::of_queues(config.frame_bytes, &queue_pair.cap()),
        rules,
        tx_start: config.tx_start.unwrap_or_default(),
        rx_start: config.rx_start.unwrap_or_default(),
        key: Some(key),
    }
}

/// What to ask a queue for, so that it holds `frames` frames: Thunderbolt counts 4 KiB pieces.
fn depth_to_ask(rules: &LinkRules, frames: usize, frame_bytes: u32) -> u32 {
    let frames = u32::try_from(frames).unwrap_or(u32::MAX);
    match rules.depth_unit {
        DepthUnit::Requests => frames,
        DepthUnit::ThunderboltFrames => frames.saturating_mul(frame_bytes.div_ceil(THUNDERBOLT_FRAME_BYTES)),
    }
}

/// Bits that nobody can guess: the seed of the standard library's hash maps.
pub(crate) fn random_bits() -> u32 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish() as u32
}
