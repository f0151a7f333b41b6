//! One-sided operations: a reliable queue pair that writes, reads, adds and swaps in the other end's memory.
//!
//! Memory is registered beforehand ([`HostDomain`](crate::memory::HostDomain)), in the queue pair's
//! [domain](Transfers::domain); the other end [publishes](View::publish) a view of its own and sends its wire form over
//! whatever there is. An operation is between a local [`View`] and a [`RemoteView`], or parts of them.
//!
//! # What is held
//!
//! A local view's guard is held from the call until the last request of the operation has completed, or the queue pair is gone:
//! however the caller waits, gives up, forgets or drops. The remote view is numbers: its owner says until when it holds.
//!
//! # Who may touch the bytes
//!
//! Nothing here takes an [access lock](crate::memory::LocalMemory::access_lock). Until an operation has ended, a **write**
//! reads its local bytes: hold the lock for reading. A **read** or an **atomic** writes them: hold it for disjoint writing, or
//! exclusively. At the other end the same holds the other way round, and only the two applications can agree on it.
//!
//! # Order
//!
//! Operations begin in the order of their calls. A read or an atomic may land after a later write has gone out: what depends on
//! its bytes waits for its end first.
//!
//! # Atomics
//!
//! They are atomic among operations that go through the other end's device; towards its processors only if that device says
//! [`GLOB`](bareverbs_core::verbs::device::AtomicCap::GLOB) ([`Transfers::atomics`] tells of the own one, soft-RoCE says
//! `HCA`). An atomic whose answer has no place to land may have changed the word all the same.
//!
//! # Safety
//!
//! This file guarantees that the local view of an operation in flight is held until its last request has completed or the
//! queue pair, which this value alone has, was destroyed; and that calls are made only while the queue pair lives.
#![allow(unsafe_code)]

mod completing;
mod config;
mod connecting;
mod error;
mod held;
mod posting;

use std::sync::Arc;

use bareverbs_core::connect::{Psn, QueuePairConfig, Service, Transition};
use bareverbs_core::link::{Direction, Fault};
use bareverbs_core::one_sided::{Books, Limits, Operation, OperationId, Plan, Start};
use bareverbs_core::verbs::device::AtomicCap;
use bareverbs_core::verbs::inline_calls::QueuePairCalls;
use bareverbs_core::verbs::{AccessFlags, DeviceAttr, Wc};
use bareverbs_core::view::RemoteView;

pub use completing::{Ended, Event};
pub use config::TransfersConfig;
pub use connecting::connect_pair;
pub use error::{OperationError, TransferError, TransferErrorKind};

use crate::endpoint::teardown::{self, Plumbing, Teardown};
use crate::endpoint::{Waking, random_bits};
use crate::errno;
use crate::error::Error;
use crate::memory::{OfDomain, View};
use crate::objects::gid::{self, GidInfo};
use crate::objects::port::PortInfo;
use crate::objects::queue_pair::MARKER_SLOTS;
use crate::objects::report::{DropFailure, report};
use crate::objects::{CompletionChannel, CompletionQueue, DeviceContext, ProtectionDomain, QueuePair, drain};
use held::Held;
use posting::NotPosted;

/// Completions that a poll takes at most.
const POLL_AT_ONCE: usize = 16;

/// Most reads that a hello can say.
const MOST_READS: u8 = bareverbs_core::connect::hello::MOST_RD_ATOMIC;

/// One end of a reliable connection for one-sided operations, of which at most `N` are in flight.
///
/// ```
/// use bareverbs_shell::memory::{HostDomain, LocalMemory, OwnedBytes};
/// use bareverbs_shell::one_sided::{Event, Transfers, TransfersConfig, connect_pair};
/// use bareverbs_shell::{Fabric, Wait};
/// use std::time::Duration;
///
/// let device = Fabric::soft()?.open(None)?;
/// let mut here = Transfers::<8>::new(&device, TransfersConfig::new("there"))?;
/// let mut there = Transfers::<8>::new(&device, TransfersConfig::new("here"))?;
/// connect_pair(&mut here, &mut there)?;
///
/// let source = LocalMemory::new(OwnedBytes::from(b"hello".to_vec()))?;
/// let target = LocalMemory::new(OwnedBytes::from(vec![0; 5]))?;
/// let local = HostDomain::new(here.domain().expect("not closed"))?.register(&source)?;
/// let lease = HostDomain::new(there.domain().expect("not closed"))?.register(&target)?.publish()?;
///
/// let write = here.write(&local, lease.remote())?;
/// here.wait_for_all(&Wait::at_most(Duration::from_secs(5)), |event| match event {
///     Event::Ended(ended) => assert_eq!((ended.operation, ended.result), (write, Ok(()))),
///     other => panic!("{other:?}"),
/// })?;
/// let mut came = [0; 5];
/// // SAFETY: the write has ended, and nobody else touches the bytes.
/// unsafe { target.read_at(0, &mut came) }?;
/// assert_eq!(&came, b"hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// One with no place for an operation does not compile:
///
/// ```compile_fail
/// # use bareverbs_shell::Fabric;
/// # use bareverbs_shell::one_sided::{Transfers, TransfersConfig};
/// let device = Fabric::soft().unwrap().open(None).unwrap();
/// let end = Transfers::<0>::new(&device, TransfersConfig::new("there"));
/// ```
pub struct Transfers<const N: usize> {
    calls: QueuePairCalls,
    books: Books<N>,
    /// Where a poll puts completions: not cleared for each, which would cost an empty one more than all the rest.
    room: [Wc; POLL_AT_ONCE],
    held: Held<N>,
    plumbing: Plumbing,
    config: TransfersConfig,
    limits: Limits,
    port: PortInfo,
    psn: Psn,
    gid: Option<GidInfo>,
    qp_num: u32,
    recv_depth: u32,
    stage: Stage,
    /// Whether only the thread that opened the device may post and poll.
    one_thread: bool,
    /// Fatal events of the device that this value has heeded.
    fatal_seen: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// In INIT, with nothing posted.
    Fresh,
    /// In RTS, with receives posted.
    Connected,
    /// The queue pair is gone.
    Failed,
}

impl<const N: usize> std::fmt::Debug for Transfers<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transfers")
            .field("peer", &self.config.peer)
            .field("device", &self.plumbing.device)
            .field("qp_num", &self.qp_num)
            .field("stage", &self.stage)
            .finish_non_exhaustive()
    }
}

impl<const N: usize> Transfers<N> {
    /// Makes a queue pair in a protection domain of its own, up to the INIT state: what it has to tell the other end is then
    /// known.
    ///
    /// # Errors
    /// [`Error`] of the step that failed; what was made is destroyed, in order.
    pub fn new(context: &Arc<DeviceContext>, config: TransfersConfig) -> Result<Self, Error> {
        let domain = ProtectionDomain::new(context, config.queue_pair.port)?;
        Self::in_domain(&domain, config)
    }

    /// As [`new`](Self::new), in a domain that others use too: memory is then registered once for all of them.
    ///
    /// # Errors
    /// As [`new`](Self::new); [`Error::State`] for a configuration of an unreliable queue pair.
    pub fn in_domain(domain: &Arc<ProtectionDomain>, config: TransfersConfig) -> Result<Self, Error> {
        const { assert!(N > 0, "Transfers::<0> has no place for an operation: at least 1 may be in flight") };
        let context = domain.context();
        if config.queue_pair.service != Service::Rc {
            let what = "one-sided operations are for a reliable queue pair: begin with QueuePairConfig::rc";
            return Err(Error::State { device: Arc::clone(context.name()), what });
        }
        let port = context.port(config.queue_pair.port)?;
        let gid = gid::find(context, &port, config.gid)?;
        let device = device_limits(context)?;
        let config = with_limits(config, device.as_ref());
        let (send_depth, recv_depth) = (config.queue_pair.send_depth, config.queue_pair.recv_depth);
        let entries = send_depth.saturating_add(recv_depth).saturating_add(2 * MARKER_SLOTS);
        let channel = match config.waking {
            Waking::Polling => None,
            Waking::Events => Some(CompletionChannel::new(context)?),
        };
        let queue = match &channel {
            None => CompletionQueue::new(context, entries)?,
            Some(channel) => CompletionQueue::with_channel(channel, entries)?,
        };
        let mut queue_pair = QueuePair::new(domain, &queue, &queue, &config.queue_pair)?;
        queue_pair.modify(&Transition::to_init(&config.queue_pair))?;
        let state = |what| Error::State { device: Arc::clone(context.name()), what };
        let calls = queue_pair.take_calls().ok_or_else(|| state("the queue pair's calls were taken"))?;
        let (qp_num, cap) = (queue_pair.qp_num(), queue_pair.cap());
        let send_slots = send_depth.min(cap.max_send_wr.saturating_sub(MARKER_SLOTS));
        let recv_depth = recv_depth.min(cap.max_recv_wr.saturating_sub(MARKER_SLOTS));
        let books = Books::new(queue.id(), qp_num, send_slots).ok_or_else(|| state("request numbers are used up"))?;
        let limits = Limits {
            max_message_bytes: port.attr.max_msg_sz,
            send_slots,
            max_rd_atomic: config.queue_pair.max_rd_atomic,
            atomics: device.map_or(AtomicCap::NONE, |attr| attr.atomic_cap),
        };
        let one_thread = context.is_for_one_thread();
        let psn = config.queue_pair.psn.choose(port.link_layer(), random_bits());
        let plumbing = Plumbing {
            region: None,
            queue_pair: Some(queue_pair),
            queue: Some(queue),
            channel,
            domain: Some(Arc::clone(domain)),
            context: Some(Arc::clone(context)),
            device: Arc::clone(context.name()),
            abandoned: None,
        };
        let stage = Stage::Fresh;
        let fatal_seen = 0;
        Ok(Self {
            calls,
            books,
            room: [Wc::default(); POLL_AT_ONCE],
            held: Held::new(),
            plumbing,
            config,
            limits,
            port,
            psn,
            gid,
            qp_num,
            recv_depth,
            stage,
            one_thread,
            fatal_seen,
        })
    }

    /// Writes the local view's bytes into the remote view.
    ///
    /// # Errors
    /// Nothing was posted with [`TransferErrorKind::Refused`], [`NotStarted`](TransferErrorKind::NotStarted),
    /// [`ForeignView`](TransferErrorKind::ForeignView), [`LocalAccess`](TransferErrorKind::LocalAccess),
    /// [`Post`](TransferErrorKind::Post), [`NotConnected`](TransferErrorKind::NotConnected), [`Gone`](TransferErrorKind::Gone).
    /// With [`Broken`](TransferErrorKind::Broken) a part may have been: the queue pair is broken, the operation is over for
    /// the caller, and its memory is held until the queue pair is gone.
    pub fn write(&mut self, local: &View, remote: &RemoteView) -> Result<OperationId, TransferError> {
        self.start(Operation::Write, local, remote)
    }

    /// As [`write`](Self::write), and gives the other end a number with the last of the bytes: [`Event::Arrived`] there. It
    /// ends a receive, of which the other end posts a new one whenever it polls.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_with_imm(
        &mut self,
        local: &View,
        remote: &RemoteView,
        immediate: u32,
    ) -> Result<OperationId, TransferError> {
        self.start(Operation::WriteWithImmediate { immediate }, local, remote)
    }

    /// Reads the remote view's bytes into the local view.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn read(&mut self, local: &View, remote: &RemoteView) -> Result<OperationId, TransferError> {
        self.start(Operation::Read, local, remote)
    }

    /// Adds to the 8 bytes of the remote view, a number in the other end's byte order. What it was before comes to the 8 bytes
    /// of the local view, in this end's byte order.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn fetch_add(&mut self, local: &View, remote: &RemoteView, add: u64) -> Result<OperationId, TransferError> {
        self.start(Operation::FetchAdd { add }, local, remote)
    }

    /// Stores `swap` into the 8 bytes of the remote view if they are `compare`. What they were before comes to the 8 bytes of
    /// the local view; it was stored if that is `compare`.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn compare_swap(
        &mut self,
        local: &View,
        remote: &RemoteView,
        compare: u64,
        swap: u64,
    ) -> Result<OperationId, TransferError> {
        self.start(Operation::CompareSwap { compare, swap }, local, remote)
    }

    /// Inlined into each kind of operation, which is then known: what it does not need is not looked at.
    #[inline(always)]
    fn start(&mut self, operation: Operation, local: &View, remote: &RemoteView) -> Result<OperationId, TransferError> {
        if self.one_thread {
            self.check_thread()?;
        }
        if self.stage != Stage::Connected {
            return Err(self.not_connected());
        }
        self.check_owner(local)?;
        self.check_access(operation, local)?;
        let plan = match Plan::new(operation, local.range(), remote, &self.limits) {
            Ok(plan) => plan,
            Err(refused) => return Err(self.failed(TransferErrorKind::Refused(refused))),
        };
        let start = match self.books.start(plan.parts()) {
            Ok(start) => start,
            Err(why) => return Err(self.failed(TransferErrorKind::NotStarted(why))),
        };
        self.held.hold(start.slot(), local);
        errno::clear();
        // SAFETY: the view is held; it leaves its place when its last request has completed (`Books`), or when the queue pair
        // was drained or destroyed. A view's bytes have no Rust references (`View::new`, 2).
        let posted = unsafe { posting::post(&mut self.calls, &plan, &start) };
        match posted {
            Ok(()) => Ok(self.books.posted(start)),
            Err(refused) => Err(self.not_posted(refused, start)),
        }
    }

    #[cold]
    #[inline(never)]
    fn not_connected(&self) -> TransferError {
        self.failed(match self.stage {
            Stage::Fresh | Stage::Connected => TransferErrorKind::NotConnected,
            Stage::Failed => TransferErrorKind::Gone,
        })
    }

    #[cold]
    #[inline(never)]
    fn not_posted(&mut self, refused: NotPosted, start: Start) -> TransferError {
        let raw = refused.error.raw();
        let errno = errno::of_return(raw);
        if refused.nothing_accepted {
            self.held.give_back(start.slot());
            return self.failed(TransferErrorKind::Post(raw, errno));
        }
        let cause = Fault::PostUnknown { direction: Direction::Send, raw };
        let operation = self.books.posted(start);
        self.books.break_with(cause);
        self.books.told(operation);
        self.failed(TransferErrorKind::Broken { cause })
    }

    /// That this queue pair can use the view's key.
    #[inline]
    fn check_owner(&self, local: &View) -> Result<(), TransferError> {
        match &self.plumbing.domain {
            Some(domain) if local.is_of(domain) == OfDomain::Yes => Ok(()),
            _ => self.check_device(local),
        }
    }

    /// The same of a view that does not name this domain: where it names none, its device has to do.
    #[cold]
    #[inline(never)]
    fn check_device(&self, local: &View) -> Result<(), TransferError> {
        let of = self.plumbing.domain.as_ref().map_or(OfDomain::Unknown, |domain| local.is_of(domain));
        let ours = of == OfDomain::Unknown && local.device().as_str() == &*self.plumbing.device;
        if ours { Ok(()) } else { Err(self.failed(TransferErrorKind::ForeignView)) }
    }

    /// That the view lets the own device do what the operation does to it.
    #[inline]
    fn check_access(&self, operation: Operation, local: &View) -> Result<(), TransferError> {
        let needs = operation.local_access();
        match local.access() {
            Some(has) if !has.contains(needs) => Err(self.failed(TransferErrorKind::LocalAccess { needs, has })),
            _ => Ok(()),
        }
    }

    /// That this thread may post and poll, where only one may.
    #[cold]
    #[inline(never)]
    fn check_thread(&self) -> Result<(), TransferError> {
        match self.plumbing.context.as_ref().map(|context| context.check_use()) {
            Some(Err(Error::SecondThread { .. })) => Err(self.failed(TransferErrorKind::SecondThread)),
            _ => Ok(()),
        }
    }

    /// The protection domain: local memory is registered in it. `None` after the teardown.
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

    /// Towards whom the own device's atomics are atomic, as it says. What counts is what the other end's says.
    pub fn atomics(&self) -> AtomicCap {
        self.limits.atomics
    }

    /// What the queue pair can do.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Operations that have not ended, oldest first.
    pub fn pending(&self) -> impl Iterator<Item = OperationId> {
        self.books.pending()
    }

    #[cold]
    #[inline(never)]
    fn failed(&self, kind: TransferErrorKind) -> TransferError {
        TransferError { peer: Arc::clone(&self.config.peer), device: Arc::clone(&self.plumbing.device), kind }
    }

    /// Takes everything down, in order, and tells what happened. Operations that have not ended are not told of any more.
    ///
    /// # Errors
    /// [`Error::Call`] of the first call that the library refused, as [`Endpoint::close`](crate::Endpoint::close).
    /// [`Error::Forked`] in a forked child: nothing was done.
    pub fn close(mut self) -> Result<Teardown, Error> {
        let allowed = self.plumbing.check_process();
        let done = self.take_down();
        allowed?;
        teardown::outcome(done, &self.plumbing.device, self.qp_num)
    }

    fn is_ours(&self) -> bool {
        self.plumbing.context.as_ref().is_some_and(|context| context.is_ours())
    }

    fn take_down(&mut self) -> Teardown {
        let ours = self.is_ours();
        let Self { calls, books, held, plumbing, config, .. } = self;
        let had_queue_pair = plumbing.queue_pair.is_some();
        let done = plumbing.take_down(|queue_pair, queue| {
            // Nothing to end, or not ours to end: a forked child makes no call.
            if books.in_flight() == 0 && books.receives() == 0 || !ours {
                return None;
            }
            let post_marker = |direction: Direction| posting::post_marker(calls, direction);
            let drained = drain::drain(queue_pair, queue, post_marker, config.drain_limit);
            if drained.is_ok() {
                // Regions go before the queue pair, once nothing uses them.
                held.give_back_all();
            }
            Some(drained)
        });
        let kept = done
            .steps
            .iter()
            .any(|(step, outcome)| *step == bareverbs_core::teardown_order::Step::QueuePair && outcome.is_err());
        if kept {
            self.report_kept();
        } else if had_queue_pair && ours {
            self.held.give_back_all();
        }
        done
    }

    /// Reports views that stay registered for ever, since the device may still use them.
    fn report_kept(&mut self) {
        for len_bytes in self.held.lengths() {
            report(&DropFailure::Leaked { device: Arc::clone(&self.plumbing.device), len_bytes });
        }
        self.held.leave_all();
    }
}

impl<const N: usize> Drop for Transfers<N> {
    fn drop(&mut self) {
        // After `close` nothing is there any more, and nothing happens here.
        let done = self.take_down();
        teardown::report_failures(&done, &self.plumbing.device, self.qp_num);
    }
}

/// What the device says of itself; `None` of a library that cannot be asked.
fn device_limits(context: &Arc<DeviceContext>) -> Result<Option<DeviceAttr>, Error> {
    match context.attributes() {
        Ok(attributes) => Ok(Some(attributes.orig_attr)),
        Err(Error::Unsupported { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// No more reads than the device has room for, and access for the other end where the caller has not set it.
fn with_limits(config: TransfersConfig, device: Option<&DeviceAttr>) -> TransfersConfig {
    let mut queue_pair = config.queue_pair;
    queue_pair.max_rd_atomic = queue_pair.max_rd_atomic.min(MOST_READS);
    if let Some(device) = device {
        for most in [device.max_qp_rd_atom, device.max_qp_init_rd_atom] {
            queue_pair.max_rd_atomic = queue_pair.max_rd_atomic.min(u8::try_from(most.max(0)).unwrap_or(u8::MAX));
        }
    }
    if queue_pair.access == QueuePairConfig::rc().access {
        queue_pair.access |= AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ;
        if device.is_some_and(|device| device.atomic_cap != AtomicCap::NONE) {
            queue_pair.access |= AccessFlags::REMOTE_ATOMIC;
        }
    }
    TransfersConfig { queue_pair, ..config }
}
