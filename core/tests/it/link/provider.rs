//! A provider and its device, played by the test: posts are queued, completions come when the test says so.

use std::collections::VecDeque;
use std::ptr::{self, NonNull};

use bareverbs_core::link::{
    Carrier, FrameKey, FrameMemory, Geometry, Link, LinkRules, LinkSetup, LinkSetupError, Sequence,
};
use bareverbs_core::verbs::inline_calls::{CheckedContext, CompletionQueueCalls, QueuePairCalls};
use bareverbs_core::verbs::{
    Be32, Context, ContextOps, Cq, LinkLayer, Qp, QpState, QpType, RecvWr, SendFlags, SendWr, Sge, Wc, WcFlags,
    WcOpcode, WcStatus,
};

pub const QP_NUM: u32 = 0x1234;
pub const LKEY: u32 = 0x77;

/// What a post is to answer.
#[derive(Clone, Copy, Debug)]
pub enum Answer {
    /// Accepts the first `accepted`, refuses the next one and names it.
    Refuse { accepted: usize, returned: i32 },
    /// Accepts the first `accepted`, and answers an error without naming one.
    Silent { accepted: usize, returned: i32 },
    /// Accepts none, and names an address that was not posted.
    Nonsense { returned: i32 },
}

/// A request as the device has it.
#[derive(Clone, Copy)]
pub struct Posted<W> {
    pub wr: W,
    pub sge: Sge,
}

/// All that the provider keeps. Ops reach it through `qp_context` and `cq_context`.
#[derive(Default)]
pub struct World {
    pub sends: VecDeque<Posted<SendWr>>,
    pub receives: VecDeque<Posted<RecvWr>>,
    /// Lengths of the chains that were posted, accepted or not.
    pub send_chains: Vec<usize>,
    pub receive_chains: Vec<usize>,
    pub answers: VecDeque<Answer>,
    pub completions: VecDeque<Wc>,
    pub poll_returns: Option<i32>,
}

/// Walks a chain as a provider does; `take` is called for what is accepted.
unsafe fn post<W: Copy>(
    chain: *mut W,
    bad_wr: *mut *mut W,
    answer: Option<Answer>,
    next: impl Fn(&W) -> (*mut W, *mut Sge, i32),
    mut take: impl FnMut(Posted<W>),
) -> (i32, usize) {
    let limit = match answer {
        None => usize::MAX,
        Some(Answer::Refuse { accepted, .. } | Answer::Silent { accepted, .. }) => accepted,
        Some(Answer::Nonsense { .. }) => 0,
    };
    let (mut wr, mut count, mut refused) = (chain, 0, ptr::null_mut::<W>());
    while !wr.is_null() {
        let request = unsafe { *wr };
        let (following, entries, num_sge) = next(&request);
        if count < limit {
            let sge = if num_sge == 0 { Sge::default() } else { unsafe { *entries } };
            take(Posted { wr: request, sge });
        } else if refused.is_null() {
            refused = wr;
        }
        count += 1;
        wr = following;
    }
    let returned = match answer {
        None => 0,
        Some(Answer::Refuse { returned, .. }) => {
            unsafe { *bad_wr = refused };
            returned
        }
        Some(Answer::Silent { returned, .. }) => returned,
        Some(Answer::Nonsense { returned }) => {
            unsafe { *bad_wr = ptr::without_provenance_mut(0x40) };
            returned
        }
    };
    (returned, count)
}

unsafe extern "C" fn post_send(qp: *mut Qp, wr: *mut SendWr, bad_wr: *mut *mut SendWr) -> i32 {
    let world = unsafe { &mut *(*qp).qp_context.cast::<World>() };
    let answer = world.answers.pop_front();
    let sends = &mut world.sends;
    let (returned, count) =
        unsafe { post(wr, bad_wr, answer, |w| (w.next, w.sg_list, w.num_sge), |posted| sends.push_back(posted)) };
    world.send_chains.push(count);
    returned
}

unsafe extern "C" fn post_recv(qp: *mut Qp, wr: *mut RecvWr, bad_wr: *mut *mut RecvWr) -> i32 {
    let world = unsafe { &mut *(*qp).qp_context.cast::<World>() };
    let answer = world.answers.pop_front();
    let receives = &mut world.receives;
    let (returned, count) =
        unsafe { post(wr, bad_wr, answer, |w| (w.next, w.sg_list, w.num_sge), |posted| receives.push_back(posted)) };
    world.receive_chains.push(count);
    returned
}

unsafe extern "C" fn poll_cq(cq: *mut Cq, room: i32, wc: *mut Wc) -> i32 {
    let world = unsafe { &mut *(*cq).cq_context.cast::<World>() };
    if let Some(returned) = world.poll_returns.take() {
        return returned;
    }
    let mut count = 0;
    while count < room {
        let Some(entry) = world.completions.pop_front() else { break };
        unsafe { *wc.add(count as usize) = entry };
        count += 1;
    }
    count
}

unsafe extern "C" fn req_notify_cq(_cq: *mut Cq, _solicited: i32) -> i32 {
    0
}

/// Page-aligned memory that is never freed, as static storage is not.
pub fn leaked_memory(bytes: usize) -> FrameMemory {
    // SAFETY: zeroed, never freed, and nobody else has it.
    unsafe { FrameMemory::from_raw_parts(leaked_bytes(bytes), bytes) }
}

/// Where that many zeroed bytes are, page-aligned, for ever.
pub fn leaked_bytes(bytes: usize) -> NonNull<u8> {
    let layout = std::alloc::Layout::from_size_align(bytes.max(1), 4096).unwrap();
    // SAFETY: the layout is not empty.
    NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) }).unwrap()
}

/// The C objects of one queue pair with one completion queue, and the world behind them. Leaked: a link may outlive it.
#[derive(Clone)]
pub struct Device {
    context: NonNull<Context>,
    qp: NonNull<Qp>,
    cq: NonNull<Cq>,
    world: NonNull<World>,
}

fn leak<T>(value: T) -> NonNull<T> {
    NonNull::from(Box::leak(Box::new(value)))
}

impl Device {
    pub fn new(qp_num: u32) -> Self {
        let world = leak(World::default());
        let ops = ContextOps {
            poll_cq: Some(poll_cq),
            req_notify_cq: Some(req_notify_cq),
            post_send: Some(post_send),
            post_recv: Some(post_recv),
            ..ContextOps::EMPTY
        };
        let context = leak(Context { device: ptr::null_mut(), ops, cmd_fd: -1, async_fd: -1, num_comp_vectors: 1 });
        let cq = leak(Cq {
            context: context.as_ptr(),
            channel: ptr::null_mut(),
            cq_context: world.as_ptr().cast(),
            handle: 1,
            cqe: 64,
        });
        let qp = leak(Qp {
            context: context.as_ptr(),
            qp_context: world.as_ptr().cast(),
            pd: ptr::null_mut(),
            send_cq: cq.as_ptr(),
            recv_cq: cq.as_ptr(),
            srq: ptr::null_mut(),
            handle: 1,
            qp_num,
            state: QpState::RTS,
            qp_type: QpType::UC,
        });
        Self { context, qp, cq, world }
    }

    pub fn calls(&self) -> QueuePairCalls {
        let checked = unsafe { CheckedContext::new(self.context) }.unwrap();
        unsafe { QueuePairCalls::new(self.qp, checked) }.unwrap()
    }

    pub fn queue(&self) -> CompletionQueueCalls {
        let checked = unsafe { CheckedContext::new(self.context) }.unwrap();
        unsafe { CompletionQueueCalls::new(self.cq, checked) }.unwrap()
    }

    pub fn world(&mut self) -> &mut World {
        // SAFETY: leaked, and the ops use it only while a call of ours runs.
        unsafe { self.world.as_mut() }
    }
}

pub fn key() -> FrameKey {
    // SAFETY: the test's device reads no keys.
    unsafe { FrameKey::new(LKEY) }
}

pub const FRAME_BYTES: u32 = 256;

/// A link with all that is around it.
pub struct Rig<C: Carrier, const SEND: usize = 8, const RECV: usize = 8> {
    pub device: Device,
    pub link: Link<C, SEND, RECV>,
    pub queue: CompletionQueueCalls,
}

/// What a test may want otherwise.
pub struct Wishes {
    pub rules: LinkRules,
    pub geometry: Geometry,
    pub start: u32,
    pub registered: bool,
}

impl Default for Wishes {
    fn default() -> Self {
        Self {
            rules: LinkRules { signal_every: 1, ..LinkRules::for_link_layer(LinkLayer::ETHERNET) },
            geometry: Geometry { frame_bytes: FRAME_BYTES, send_capacity: 1000, recv_capacity: 1000 },
            start: 0,
            registered: true,
        }
    }
}

impl<C: Carrier, const SEND: usize, const RECV: usize> Rig<C, SEND, RECV> {
    pub fn new(carrier: C) -> Self {
        Self::wish(carrier, Wishes::default()).unwrap()
    }

    pub fn wish(carrier: C, wishes: Wishes) -> Result<Self, LinkSetupError> {
        let memory = leaked_memory((SEND + RECV) * wishes.geometry.frame_bytes as usize);
        Self::over(carrier, wishes, Device::new(QP_NUM), memory)
    }

    /// Over a device and memory that no other link has.
    pub fn over(carrier: C, wishes: Wishes, device: Device, memory: FrameMemory) -> Result<Self, LinkSetupError> {
        let queue = device.queue();
        let setup = LinkSetup {
            send_queue: queue.id(),
            recv_queue: queue.id(),
            geometry: wishes.geometry,
            rules: wishes.rules,
            tx_start: Sequence::new(wishes.start),
            rx_start: Sequence::new(wishes.start),
            key: wishes.registered.then(key),
        };
        let link = Link::new(carrier, device.calls(), memory, setup)?;
        Ok(Self { device, link, queue })
    }

    /// Sends what `payload` says.
    pub fn send(&mut self, payload: &[u8]) -> Result<Sequence, bareverbs_core::link::SendError> {
        let mut frame = self.link.next_frame()?;
        frame.payload_mut()[..payload.len()].copy_from_slice(payload);
        frame.post(payload.len())
    }

    /// The device is done with the sends up to the first signalled one.
    pub fn complete_send(&mut self) -> Option<u64> {
        let world = self.device.world();
        loop {
            let send = world.sends.pop_front()?;
            if send.wr.send_flags.contains(SendFlags::SIGNALED) {
                let wr_id = send.wr.wr_id;
                world.completions.push_back(Wc { wr_id, qp_num: QP_NUM, ..Wc::default() });
                return Some(wr_id);
            }
        }
    }

    /// A message comes with `immediate`, into the oldest posted receive; answers its wr_id.
    pub fn arrive(&mut self, payload: &[u8], immediate: Option<u32>) -> u64 {
        self.arrive_as(payload, |wc| {
            if let Some(number) = immediate {
                wc.imm_data = Be32::new(number);
                wc.wc_flags = WcFlags::WITH_IMM;
            }
        })
    }

    /// As `arrive`, with a completion as the test wants it.
    pub fn arrive_as(&mut self, payload: &[u8], shape: impl FnOnce(&mut Wc)) -> u64 {
        let world = self.device.world();
        let receive = world.receives.pop_front().expect("a receive is posted");
        assert_eq!(receive.sge.lkey, LKEY);
        assert!(payload.len() <= receive.sge.length as usize);
        let target = ptr::with_exposed_provenance_mut::<u8>(receive.sge.addr as usize);
        // SAFETY: the frame is the device's, and the device is we.
        unsafe { ptr::copy_nonoverlapping(payload.as_ptr(), target, payload.len()) };
        let wr_id = receive.wr.wr_id;
        let byte_len = payload.len() as u32;
        let mut wc = Wc { wr_id, byte_len, opcode: WcOpcode::RECV, qp_num: QP_NUM, ..Wc::default() };
        shape(&mut wc);
        world.completions.push_back(wc);
        wr_id
    }

    /// The oldest posted receive ends with `status`, all undefined fields full of rubbish.
    pub fn fail_receive(&mut self, status: WcStatus) -> u64 {
        let receive = self.device.world().receives.pop_front().expect("a receive is posted");
        let wr_id = receive.wr.wr_id;
        self.device.world().completions.push_back(rubbish(wr_id, status));
        wr_id
    }

    /// The next completion, as an entry of its own.
    pub fn take(&mut self) -> Wc {
        let mut room = [Wc::default()];
        assert_eq!(self.queue.poll(&mut room).unwrap().len(), 1);
        room[0]
    }

    /// Bytes that the device would send next.
    pub fn wire(&mut self) -> Vec<u8> {
        let send = self.device.world().sends.back().expect("a send is posted");
        let source = ptr::with_exposed_provenance::<u8>(send.sge.addr as usize);
        // SAFETY: the frame is the device's, and the device is we.
        unsafe { std::slice::from_raw_parts(source, send.sge.length as usize) }.to_vec()
    }
}

/// A failed completion with every undefined field set to something impossible.
pub fn rubbish(wr_id: u64, status: WcStatus) -> Wc {
    Wc {
        wr_id,
        status,
        opcode: WcOpcode(0x2317),
        vendor_err: 9,
        byte_len: u32::MAX,
        imm_data: Be32::new(0xDEAD_BEEF),
        qp_num: QP_NUM,
        wc_flags: WcFlags::from_bits_retain(u32::MAX),
        ..Wc::default()
    }
}

/// Feeds the next completion to the link and evaluates `$then` with what it answers.
macro_rules! accept {
    ($rig:expr) => {{
        let mut room = [bareverbs_core::verbs::Wc::default()];
        let completion = $rig.queue.poll(&mut room).unwrap().next().expect("a completion");
        $crate::link::provider::Seen::of($rig.link.accept(&completion))
    }};
}
pub(crate) use accept;

/// An event, with what the tests look at.
#[derive(Debug, PartialEq, Eq)]
pub enum Seen {
    Sent(u32),
    Received { payload: Vec<u8>, sequence: Option<u32>, wr_id: u64 },
    Granted(u32),
    Drained(bareverbs_core::link::Direction),
    Error(bareverbs_core::link::LinkError),
}

impl Seen {
    pub fn of<const RECV: usize>(
        event: Result<bareverbs_core::link::Event<'_, RECV>, bareverbs_core::link::LinkError>,
    ) -> Self {
        use bareverbs_core::link::Event;
        match event {
            Ok(Event::Sent { released }) => Self::Sent(released),
            Ok(Event::Received(frame)) => Self::Received {
                payload: frame.payload().to_vec(),
                sequence: frame.sequence().map(Sequence::number),
                wr_id: frame.wr_id().raw(),
            },
            Ok(Event::Granted { messages }) => Self::Granted(messages),
            Ok(Event::Drained(direction)) => Self::Drained(direction),
            Err(error) => Self::Error(error),
        }
    }
}
