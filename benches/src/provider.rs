//! Links and bare calls over the provider that does nothing (`c/provider.c`).
//!
//! # Safety
//!
//! This file alone guarantees that the provider's queue pair for one side is used by one owner at a time: starting it anew
//! takes the process's [`Provider`] for that side, and what is made from that borrows it.
#![allow(unsafe_code)]

use core::ffi::c_void;
use core::ptr::NonNull;
use std::alloc::{Layout, alloc_zeroed};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};

use bareverbs_core::link::{FrameKey, FrameMemory, Geometry, Immediate, Link, LinkRules, LinkSetup, Sequence};
use bareverbs_core::verbs::inline_calls::{CheckedContext, CompletionQueueCalls, QueuePairCalls};
use bareverbs_core::verbs::{Context, Cq, LinkLayer, Qp};

unsafe extern "C" {
    fn provider_start(side: i32);
    fn provider_answer(side: i32, answers: i32);
    fn provider_context(side: i32) -> *mut Context;
    fn provider_qp(side: i32) -> *mut Qp;
    fn provider_send_cq(side: i32) -> *mut Cq;
    fn provider_recv_cq(side: i32) -> *mut Cq;
}

/// Bytes of a frame, as in `c/loops.c`.
pub const FRAME_BYTES: u32 = 64;
/// Bytes of every message.
pub const PAYLOAD_BYTES: usize = 48;

/// What polls answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// Nothing.
    Nothing = 0,
    /// Send completions, as many as there is room for.
    Sends = 1,
    /// Receive completions, likewise.
    Receives = 2,
}

/// For whom the provider's objects are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum For {
    /// Us.
    Ours = 0,
    /// C.
    C = 1,
    /// Another library (`peers/`).
    Peer = 2,
}

/// The provider for one side: one of each in a process.
#[derive(Debug)]
pub struct Provider(For);

static TAKEN: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];

/// A link and its completion queues.
pub struct Connected<'provider, const FRAMES: usize> {
    /// The link, signalling every 16th send.
    pub link: Box<Link<Immediate, FRAMES, FRAMES>>,
    /// Where sends complete.
    pub send_queue: CompletionQueueCalls,
    /// Where receives complete.
    pub recv_queue: CompletionQueueCalls,
    side: For,
    provider: PhantomData<&'provider mut Provider>,
}

impl<const FRAMES: usize> Connected<'_, FRAMES> {
    /// Chooses what polls answer from now on.
    pub fn answer(&mut self, answers: Answers) {
        // SAFETY: it takes any of these numbers; the provider's one user is borrowed here.
        unsafe { provider_answer(self.side as i32, answers as i32) }
    }
}

impl Provider {
    /// The provider for one side, for the first who asks.
    pub fn take(side: For) -> Option<Self> {
        if TAKEN[side as usize].swap(true, Ordering::AcqRel) { None } else { Some(Self(side)) }
    }

    /// Forgets what was posted; polls answer nothing until told otherwise.
    pub fn start(&mut self) {
        // SAFETY: what was made from the provider borrowed it, and is gone.
        unsafe { provider_start(self.0 as i32) }
    }

    /// Chooses what polls answer from now on.
    pub fn answer(&mut self, answers: Answers) {
        // SAFETY: it takes any of these numbers.
        unsafe { provider_answer(self.0 as i32, answers as i32) }
    }

    /// Its objects, for a library that knows them by C's names: context, queue pair, queue of sends, queue of receives.
    pub fn objects(&mut self) -> [*mut c_void; 4] {
        let side = self.0 as i32;
        // SAFETY: it only answers a pointer to a static object.
        let context = unsafe { provider_context(side) };
        // SAFETY: as before.
        let qp = unsafe { provider_qp(side) };
        // SAFETY: as before.
        let send_cq = unsafe { provider_send_cq(side) };
        // SAFETY: as before.
        let recv_cq = unsafe { provider_recv_cq(side) };
        [context.cast(), qp.cast(), send_cq.cast(), recv_cq.cast()]
    }

    /// Starts anew with a link of `FRAMES` frames each way. Needs some 600 bytes of stack per frame.
    pub fn link<const FRAMES: usize>(&mut self) -> Connected<'_, FRAMES> {
        self.start();
        let send_queue = self.queue(false);
        let recv_queue = self.queue(true);
        let setup = LinkSetup {
            send_queue: send_queue.id(),
            recv_queue: recv_queue.id(),
            geometry: Geometry { frame_bytes: FRAME_BYTES, send_capacity: FRAMES as u32, recv_capacity: FRAMES as u32 },
            rules: LinkRules::for_link_layer(LinkLayer::ETHERNET),
            tx_start: Sequence::default(),
            rx_start: Sequence::default(),
            // SAFETY: the provider follows no address.
            key: Some(unsafe { FrameKey::new(7) }),
        };
        let memory = frame_memory(2 * FRAMES * FRAME_BYTES as usize);
        let link = Link::new(Immediate, self.queue_pair(), memory, setup).expect("the setup is right");
        Connected { link: Box::new(link), send_queue, recv_queue, side: self.0, provider: PhantomData }
    }

    /// The calls of the queue pair, bare. The caller makes one at a time.
    pub fn queue_pair(&mut self) -> QueuePairCalls {
        // SAFETY: it only answers a pointer to a static object.
        let qp = unsafe { provider_qp(self.0 as i32) };
        let qp = NonNull::new(qp).expect("the provider has a queue pair");
        // SAFETY: 1: the object is static. 2: the provider is one, and its users come one after the other.
        unsafe { QueuePairCalls::new(qp, self.context()) }.expect("it is of this context")
    }

    fn queue(&mut self, receives: bool) -> CompletionQueueCalls {
        let cq = if receives {
            // SAFETY: it only answers a pointer to a static object.
            unsafe { provider_recv_cq(self.0 as i32) }
        } else {
            // SAFETY: as before.
            unsafe { provider_send_cq(self.0 as i32) }
        };
        let cq = NonNull::new(cq).expect("the provider has two queues");
        // SAFETY: 1: the object is static. 2: the provider is one, and its users come one after the other.
        unsafe { CompletionQueueCalls::new(cq, self.context()) }.expect("it is of this context")
    }

    fn context(&self) -> CheckedContext {
        // SAFETY: it only answers a pointer to a static object.
        let context = unsafe { provider_context(self.0 as i32) };
        let context = NonNull::new(context).expect("the provider has a context");
        // SAFETY: 1: the object is static. 2: slots change from one function to another, never to null.
        unsafe { CheckedContext::new(context) }.expect("the provider has all operations")
    }
}

/// Memory that is never freed: the provider follows no address, and a process makes few links.
fn frame_memory(len_bytes: usize) -> FrameMemory {
    let layout = Layout::from_size_align(len_bytes, 4096).expect("a size that memory has");
    // SAFETY: the size is not 0.
    let base = NonNull::new(unsafe { alloc_zeroed(layout) }).expect("there is memory");
    // SAFETY: 1: just allocated, zeroed. 2: never freed. 3: nobody else has the pointer.
    unsafe { FrameMemory::from_raw_parts(base, len_bytes) }
}
