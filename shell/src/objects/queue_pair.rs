//! Queue pairs: made, moved through their states, destroyed before their completion queues.
//!
//! # Safety
//!
//! This file guarantees that a queue pair is made of objects of one context, and that its calls are handed out once.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::Arc;

use bareverbs_core::connect::{QueuePairConfig, Transition};
use bareverbs_core::verbs::inline_calls::{QueuePairCalls, RawErrno};
use bareverbs_core::verbs::{Cq, Qp, QpAttr, QpAttrMask, QpCap, QpInitAttr, QpState};

use crate::errno;
use crate::error::{CallError, Doing, Error};
use crate::objects::completion_queue::CompletionQueue;
use crate::objects::handle::{Handle, Object, Origin};
use crate::objects::memory_region::Keeper;
use crate::objects::protection_domain::ProtectionDomain;

/// What must outlive a queue pair. When destroying it fails, all of it stays.
#[derive(Debug)]
pub(super) struct Parents {
    // Field order is drop order: queues before the domain, as the teardown order has it.
    send_queue: Arc<Handle<Cq>>,
    recv_queue: Arc<Handle<Cq>>,
    domain: Arc<ProtectionDomain>,
    #[expect(dead_code, reason = "held, not read: it keeps the memory that requests name")]
    keeper: Keeper,
}

impl Object for Qp {
    type Parents = Parents;
    const DESTROY: &'static str = "ibv_destroy_qp";

    fn destroy(parents: &Parents) -> unsafe extern "C" fn(*mut Self) -> c_int {
        Self::origin(parents).symbols.destroy_qp
    }

    fn origin(parents: &Parents) -> &Origin {
        parents.domain.context().origin()
    }
}

/// A queue pair.
#[derive(Debug)]
pub struct QueuePair {
    handle: Handle<Qp>,
    calls: Option<QueuePairCalls>,
    cap: QpCap,
    qp_num: u32,
}

/// What a queue pair is made of.
pub(super) struct MadeOf<'a> {
    pub(super) domain: &'a Arc<ProtectionDomain>,
    pub(super) send_queue: &'a CompletionQueue,
    pub(super) recv_queue: &'a CompletionQueue,
    pub(super) keeper: Keeper,
}

impl MadeOf<'_> {
    /// That this process and thread may use the device, and that all is of one context, which the kernel does not look at.
    pub(super) fn check(&self) -> Result<(), Error> {
        let context = self.domain.context();
        context.check_use()?;
        for queue in [self.send_queue, self.recv_queue] {
            if !Arc::ptr_eq(queue.context(), context) {
                return Err(Error::ForeignContext { device: Arc::clone(context.name()), making: "a queue pair" });
            }
        }
        Ok(())
    }
}

/// Slots of each queue that a drain needs for its marker.
pub const MARKER_SLOTS: u32 = 1;

impl QueuePair {
    /// Makes a queue pair, with one slot more on each queue than the configuration says, for a drain's marker.
    ///
    /// # Errors
    /// [`Error::ForeignContext`] if domain and queues are of two contexts, which the kernel does not catch;
    /// [`Error::Call`] if the library refuses (EBUSY is not retried: it means that the device has no queue pair left);
    /// [`Error::Layout`] if what it made is not laid out as its header says.
    #[doc(alias = "ibv_create_qp")]
    pub fn new(
        domain: &Arc<ProtectionDomain>,
        send_queue: &CompletionQueue,
        recv_queue: &CompletionQueue,
        config: &QueuePairConfig,
    ) -> Result<Self, Error> {
        Self::for_memory(domain, send_queue, recv_queue, config, None)
    }

    /// As [`new`](Self::new), for requests that name memory which `keeper` keeps: it is let go only after the queue pair was
    /// destroyed, and never when that failed.
    pub(crate) fn for_memory(
        domain: &Arc<ProtectionDomain>,
        send_queue: &CompletionQueue,
        recv_queue: &CompletionQueue,
        config: &QueuePairConfig,
        keeper: Keeper,
    ) -> Result<Self, Error> {
        let made_of = MadeOf { domain, send_queue, recv_queue, keeper };
        made_of.check()?;
        let asked = sizes(config);
        let mut init = QpInitAttr {
            qp_context: std::ptr::null_mut(),
            send_cq: send_queue.shared().as_ptr(),
            recv_cq: recv_queue.shared().as_ptr(),
            srq: std::ptr::null_mut(),
            cap: asked,
            qp_type: config.service.qp_type(),
            sq_sig_all: 0,
        };
        errno::clear();
        // SAFETY: the domain and both queues are live and of one context; the attributes are ours.
        let raw = unsafe { (domain.context().symbols().create_qp)(domain.as_ptr(), &raw mut init) };
        // SAFETY: just returned by this library for these, or null; errno was cleared.
        unsafe { Self::adopt(raw, made_of, config, "ibv_create_qp", init.cap) }
    }

    /// Takes ownership of what a creating call returned for `made_of`, after a look whether it is laid out as we think.
    /// `granted` is what the call wrote as its sizes.
    ///
    /// # Safety
    /// 1. `raw` is null, or was made by the library of `made_of` and is owned by nobody else.
    /// 2. `errno` was cleared before the call that returned it.
    pub(super) unsafe fn adopt(
        raw: *mut Qp,
        made_of: MadeOf<'_>,
        config: &QueuePairConfig,
        call: &'static str,
        granted: QpCap,
    ) -> Result<Self, Error> {
        let MadeOf { domain, send_queue, recv_queue, keeper } = made_of;
        let context = domain.context();
        let parents = Parents {
            send_queue: Arc::clone(send_queue.shared()),
            recv_queue: Arc::clone(recv_queue.shared()),
            domain: Arc::clone(domain),
            keeper,
        };
        // SAFETY: 1 and 2, as here.
        let handle = unsafe { Handle::adopt(raw, parents, call) }
            .map_err(|error| error.doing(Doing::Create(in_words_of_size(&sizes(config), config))))?;
        self_check(&handle, config)?;
        // SAFETY: the queue pair is live, and its start is laid out as we think, as was just seen.
        let qp_num = unsafe { (*handle.as_ptr()).qp_num };
        // SAFETY: 1: whoever takes the calls keeps this queue pair (`take_calls`); 2: they are handed out once.
        let calls = unsafe { QueuePairCalls::new(handle.raw(), context.checked()) }
            .map_err(|_| Error::ForeignContext { device: Arc::clone(context.name()), making: "a queue pair" })?;
        context.events().forget_pair(qp_num);
        let cap = read_back(&handle).unwrap_or(granted);
        Ok(Self { handle, calls: Some(calls), cap, qp_num })
    }

    pub(super) fn as_ptr(&self) -> *mut Qp {
        self.handle.as_ptr()
    }

    /// Its number, 24 bits.
    pub const fn qp_num(&self) -> u32 {
        self.qp_num
    }

    /// Sizes as the library reads them back, markers included; as its creation wrote them where it cannot be asked.
    pub const fn cap(&self) -> QpCap {
        self.cap
    }

    /// The domain it belongs to.
    pub fn domain(&self) -> &Arc<ProtectionDomain> {
        &self.handle.parents().domain
    }

    /// Moves it to another state.
    ///
    /// # Errors
    /// [`Error::Call`] says which state was being entered and with which attributes. A queue pair whose move to RTR failed
    /// is to be destroyed, not moved again.
    #[doc(alias = "ibv_modify_qp")]
    pub fn modify(&mut self, transition: &Transition) -> Result<(), Error> {
        let context = self.domain().context();
        context.check_use()?;
        let mut attr = transition.attr;
        errno::clear();
        // SAFETY: the queue pair is live; the attributes are ours.
        let returned = unsafe {
            (context.symbols().modify_qp)(self.handle.as_ptr(), &raw mut attr, transition.mask.bits() as c_int)
        };
        if returned == 0 {
            return Ok(());
        }
        let errno = errno::of_return(RawErrno(returned));
        let port =
            if transition.state() == QpState::ERR { None } else { Some(attr.ah_attr.port_num.max(attr.port_num)) };
        let port = port.filter(|port| *port != 0);
        let doing = Doing::Enter { state: transition.state(), attributes: in_words(transition) };
        Err(context.call_error("ibv_modify_qp", errno, port).doing(doing).into())
    }

    /// The calls of this queue pair, once. They must not be used after it is closed or dropped: whoever takes them keeps
    /// this value beside them.
    pub(crate) fn take_calls(&mut self) -> Option<QueuePairCalls> {
        self.calls.take()
    }

    /// Destroys the queue pair now.
    ///
    /// # Errors
    /// [`Error::Call`] if the library refuses: it and its parents then stay for ever. [`Error::Forked`] in a forked child:
    /// nothing was done.
    #[doc(alias = "ibv_destroy_qp")]
    pub fn close(self) -> Result<(), Error> {
        self.handle.origin().check_process()?;
        Ok(self.destroy()?)
    }

    /// As [`close`](Self::close); in a forked child it does nothing.
    pub(crate) fn destroy(self) -> Result<(), CallError> {
        self.handle.close()
    }
}

/// The sizes to ask for: those of the configuration, and the markers' slots.
pub(super) fn sizes(config: &QueuePairConfig) -> QpCap {
    QpCap {
        max_send_wr: config.send_depth.saturating_add(MARKER_SLOTS),
        max_recv_wr: config.recv_depth.saturating_add(MARKER_SLOTS),
        max_send_sge: config.max_sge,
        max_recv_sge: config.max_sge,
        max_inline_data: config.inline_bytes,
    }
}

/// Compares what the library made with what was asked, through our mirror: a library laid out otherwise is refused before
/// the first post. `ibv_query_qp` does not tell the number, so of that only its 24 bits can be checked; every completion
/// carries it again.
fn self_check(handle: &Handle<Qp>, config: &QueuePairConfig) -> Result<(), Error> {
    let parents = handle.parents();
    let context = parents.domain.context();
    // SAFETY: the queue pair is live, and nobody else has it yet; its start is the same in every library, which is what is
    // being checked.
    let &Qp { context: owner, pd, send_cq, recv_cq, qp_num, state, qp_type, .. } = unsafe { handle.raw().as_ref() };
    for (field, expected, got) in [
        ("ibv_qp.context", context.as_ptr().addr() as u64, owner.addr() as u64),
        ("ibv_qp.pd", parents.domain.as_ptr().addr() as u64, pd.addr() as u64),
        ("ibv_qp.send_cq", parents.send_queue.as_ptr().addr() as u64, send_cq.addr() as u64),
        ("ibv_qp.recv_cq", parents.recv_queue.as_ptr().addr() as u64, recv_cq.addr() as u64),
        ("ibv_qp.qp_num, top byte", 0, u64::from(qp_num >> 24)),
        ("ibv_qp.state", u64::from(QpState::RESET.0), u64::from(state.0)),
        ("ibv_qp.qp_type", u64::from(config.service.qp_type().0), u64::from(qp_type.0)),
    ] {
        super::check_layout(context.name(), field, expected, got)?;
    }
    Ok(())
}

/// The capacities in force, where the library can be asked.
fn read_back(handle: &Handle<Qp>) -> Option<QpCap> {
    let call = handle.origin().symbols.query_qp?;
    let mut attr = QpAttr::default();
    let mut init = MaybeUninit::<QpInitAttr>::zeroed();
    let mask = QpAttrMask::STATE | QpAttrMask::CAP;
    // SAFETY: the queue pair is live; both structs are ours.
    let returned = unsafe { call(handle.as_ptr(), &raw mut attr, mask.bits() as c_int, init.as_mut_ptr()) };
    (returned == 0 && attr.cap.max_send_wr != 0).then_some(attr.cap)
}

fn in_words_of_size(asked: &QpCap, config: &QueuePairConfig) -> String {
    let QpCap { max_send_wr, max_recv_wr, .. } = asked;
    format!("a {:?} queue pair of {max_send_wr} sends and {max_recv_wr} receives", config.service.qp_type())
}

fn in_words(transition: &Transition) -> String {
    let attr = &transition.attr;
    match attr.qp_state {
        QpState::INIT => {
            format!("port {}, pkey index {}, access {:#x}", attr.port_num, attr.pkey_index, attr.qp_access_flags.bits())
        }
        QpState::RTR if attr.ah_attr.is_global != 0 => format!(
            "queue pair {} at GID {} from GID index {}, hop limit {}, {:?}, PSN {}",
            attr.dest_qp_num,
            attr.ah_attr.grh.dgid,
            attr.ah_attr.grh.sgid_index,
            attr.ah_attr.grh.hop_limit,
            attr.path_mtu,
            attr.rq_psn
        ),
        QpState::RTR => format!(
            "queue pair {} at LID {}, {:?}, PSN {}",
            attr.dest_qp_num, attr.ah_attr.dlid, attr.path_mtu, attr.rq_psn
        ),
        QpState::RTS => format!("PSN {}", attr.sq_psn),
        _ => "no attribute".into(),
    }
}
