//! One end of a conversation: frames, numbers, and who holds what.
//!
//! A [`Link`] owns the calls of one queue pair and the memory of its frames. It sends from one ring and receives into
//! another, stamps and checks numbers through its [carrier](Carrier), and breaks once, for good, at the first thing that is
//! not as it must be. The rule these files protect: **what is handed out as a message is the next message, whole, and no
//! frame is touched while the device has it.**
//!
//! | file | idea |
//! |---|---|
//! | `link` | rings, numbers and health together; completions in, events out |
//! | `send_ring`, `send_chain`, `recv_ring` | one direction each: lengths, signalling, refusals; order |
//! | `claim` | static storage has one owner at a time |
//! | `frame` | bytes that a device writes, and who holds them: the only unsafe code here |
//! | `carrier`, `header`, `crc32c` | how a number travels |
//! | `credits` | how many messages the other end takes |
//! | `sequence`, `work_id` | what numbers mean |
//! | `rules`, `bounds`, `error`, `health` | what a fabric demands; what can go wrong, and what it leaves behind |
//!
//! Left to others: making and connecting queue pairs, registering memory, waiting, and undoing it all in order.
//!
//! # Example
//!
//! An embedded user, with static buffers and a provider of its own; no shell, no allocator.
//!
//! ```
//! use bareverbs_core::link::{
//!     Event, FrameKey, FrameStorage, Geometry, Immediate, Link, LinkRules, LinkSetup, Sequence,
//! };
//! use bareverbs_core::verbs::inline_calls::{CheckedContext, CompletionQueueCalls, QueuePairCalls};
//! use bareverbs_core::verbs::{Context, Cq, LinkLayer, Qp, Wc};
//! # use bareverbs_core::verbs::{ContextOps, QpState, QpType, RecvWr, SendWr, WcFlags, WcOpcode};
//! # use std::collections::VecDeque;
//! # use std::ptr::{null_mut, NonNull};
//! # use std::sync::Mutex;
//! # static RECEIVES: Mutex<VecDeque<(u64, u64)>> = Mutex::new(VecDeque::new());
//! # static DONE: Mutex<VecDeque<Wc>> = Mutex::new(VecDeque::new());
//! # unsafe extern "C" fn post_recv(_: *mut Qp, mut wr: *mut RecvWr, _: *mut *mut RecvWr) -> i32 {
//! #     while !wr.is_null() {
//! #         let (request, entry) = unsafe { (*wr, *(*wr).sg_list) };
//! #         RECEIVES.lock().unwrap().push_back((request.wr_id, entry.addr));
//! #         wr = request.next;
//! #     }
//! #     0
//! # }
//! # unsafe extern "C" fn post_send(_: *mut Qp, wr: *mut SendWr, _: *mut *mut SendWr) -> i32 {
//! #     let (request, entry) = unsafe { (*wr, *(*wr).sg_list) };
//! #     let (wr_id, target) = RECEIVES.lock().unwrap().pop_front().unwrap();
//! #     let source = std::ptr::with_exposed_provenance::<u8>(entry.addr as usize);
//! #     let target = std::ptr::with_exposed_provenance_mut::<u8>(target as usize);
//! #     unsafe { std::ptr::copy_nonoverlapping(source, target, entry.length as usize) };
//! #     let (byte_len, imm_data) = (entry.length, request.imm_data);
//! #     let (opcode, wc_flags, qp_num) = (WcOpcode::RECV, WcFlags::WITH_IMM, 7);
//! #     let mut done = DONE.lock().unwrap();
//! #     done.push_back(Wc { wr_id: request.wr_id, qp_num, ..Wc::default() });
//! #     done.push_back(Wc { wr_id, opcode, byte_len, imm_data, wc_flags, qp_num, ..Wc::default() });
//! #     0
//! # }
//! # unsafe extern "C" fn poll_cq(_: *mut Cq, room: i32, wc: *mut Wc) -> i32 {
//! #     let mut count = 0;
//! #     while count < room {
//! #         let Some(entry) = DONE.lock().unwrap().pop_front() else { break };
//! #         unsafe { *wc.add(count as usize) = entry };
//! #         count += 1;
//! #     }
//! #     count
//! # }
//! # unsafe extern "C" fn req_notify_cq(_: *mut Cq, _: i32) -> i32 { 0 }
//! # fn open() -> (NonNull<Context>, NonNull<Cq>, NonNull<Qp>) {
//! #     let ops = ContextOps {
//! #         poll_cq: Some(poll_cq), req_notify_cq: Some(req_notify_cq),
//! #         post_send: Some(post_send), post_recv: Some(post_recv), ..ContextOps::EMPTY
//! #     };
//! #     let context = Context { device: null_mut(), ops, cmd_fd: -1, async_fd: -1, num_comp_vectors: 1 };
//! #     let context = NonNull::from(Box::leak(Box::new(context)));
//! #     let cq = Cq {
//! #         context: context.as_ptr(), channel: null_mut(), cq_context: null_mut(), handle: 0, cqe: 16,
//! #     };
//! #     let cq = NonNull::from(Box::leak(Box::new(cq)));
//! #     let qp = Qp {
//! #         context: context.as_ptr(), qp_context: null_mut(), pd: null_mut(), send_cq: cq.as_ptr(),
//! #         recv_cq: cq.as_ptr(), srq: null_mut(), handle: 0, qp_num: 7, state: QpState::RTS, qp_type: QpType::UC,
//! #     };
//! #     (context, cq, NonNull::from(Box::leak(Box::new(qp))))
//! # }
//!
//! const FRAME_BYTES: u32 = 4096;
//! static FRAMES: FrameStorage<{ (4 + 8) * FRAME_BYTES as usize }> = FrameStorage::new();
//!
//! let memory = FRAMES.claim().ok_or("claimed twice")?;
//! // The provider's own: a queue pair ready to send, looped back to itself, and the key of the registered memory.
//! let (context, cq, qp) = open();
//! // SAFETY: the objects live for ever, and are used here alone; the key's region maps addresses to themselves.
//! let (calls, mut queue, key) = unsafe {
//!     let context = CheckedContext::new(context)?;
//!     (QueuePairCalls::new(qp, context)?, CompletionQueueCalls::new(cq, context)?, FrameKey::new(1))
//! };
//! let setup = LinkSetup {
//!     send_queue: queue.id(),
//!     recv_queue: queue.id(),
//!     geometry: Geometry { frame_bytes: FRAME_BYTES, send_capacity: 4, recv_capacity: 8 },
//!     rules: LinkRules::for_link_layer(LinkLayer::ETHERNET),
//!     tx_start: Sequence::default(),
//!     rx_start: Sequence::default(),
//!     key: Some(key),
//! };
//! let mut link: Link<Immediate, 4, 8> = Link::new(Immediate, calls, memory, setup)?;
//! assert_eq!(link.post_receives(usize::MAX)?, 8);
//!
//! let mut frame = link.next_frame()?;
//! frame.payload_mut()[..5].copy_from_slice(b"hello");
//! assert_eq!(frame.post(5)?, Sequence::new(0));
//!
//! let mut room = [Wc::default(); 16];
//! let mut came = 0;
//! for completion in queue.poll(&mut room)? {
//!     match link.accept(&completion)? {
//!         Event::Sent { released } => assert_eq!(released, 1),
//!         Event::Received(frame) => {
//!             assert_eq!(frame.payload(), b"hello");
//!             frame.repost()?;
//!             came += 1;
//!         }
//!         Event::Granted { .. } => unreachable!("the link has no credits"),
//!         Event::Drained(_) => unreachable!("no marker was posted"),
//!     }
//! }
//! assert_eq!(came, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A frame that was posted cannot be written to any more: posting consumes it.
//!
//! ```compile_fail,E0382
//! # fn f<C: bareverbs_core::link::Carrier>(link: &mut bareverbs_core::link::Link<C, 4, 4>) -> Option<()> {
//! let mut frame = link.next_frame().ok()?;
//! frame.payload_mut()[0] = 1;
//! frame.post(1).ok()?;
//! frame.payload_mut()[0] = 2; // use of moved value
//! # None }
//! ```
//!
//! Nor can a reference to its bytes be kept past the post.
//!
//! ```compile_fail,E0505
//! # fn f<C: bareverbs_core::link::Carrier>(link: &mut bareverbs_core::link::Link<C, 4, 4>) -> Option<()> {
//! let mut frame = link.next_frame().ok()?;
//! let payload = frame.payload_mut();
//! frame.post(1).ok()?;
//! payload[0] = 2; // cannot move out of `frame` because it is borrowed
//! # None }
//! ```
//!
//! Nor one to a received payload past its frame's next post.
//!
//! ```compile_fail,E0505
//! # fn f(frame: bareverbs_core::link::RecvFrame<'_, 4>) -> u8 {
//! let payload = frame.payload();
//! let _ = frame.repost();
//! payload[0] // cannot move out of `frame` because it is borrowed
//! # }
//! ```

pub mod carrier;
pub mod crc32c;
pub mod credits;
pub mod error;
pub mod frame;
pub mod header;
#[allow(clippy::module_inception, reason = "the house's name for it")]
pub mod link;
pub mod rules;
pub mod sequence;
pub mod work_id;

mod bounds;
mod claim;
mod health;
mod recv_ring;
mod send_chain;
mod send_ring;

pub use carrier::{Carrier, CarrierError, CarrierKind, Immediate, Raw, ReadError};
pub use credits::CreditMode;
pub use error::{AgreeError, AlreadyStarted, Fault, LinkError, ReceiveError, SendError};
pub use frame::{FrameKey, FrameMemory, FrameStorage, HeldMemory, PAGE_BYTES};
pub use header::{Checksum, Header, HeaderError, HeaderFields};
pub use link::{Event, Link, Outstanding};
pub use recv_ring::RecvFrame;
pub use rules::{
    ByteLen, DepthUnit, Geometry, LinkRules, LinkSetup, LinkSetupError, Posting, THUNDERBOLT_FRAME_BYTES, WireLength,
};
pub use send_chain::{ChainFrame, Posted, SendChain};
pub use send_ring::SendFrame;
pub use sequence::{Sequence, SequenceChecker, Verdict};
pub use work_id::{Direction, WorkId};
