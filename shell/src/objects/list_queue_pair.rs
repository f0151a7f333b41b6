//! The queue pair that gives mlx5 keys their regions: extended, reliable, connected to itself, with its own completion queue.
//!
//! The rule this file protects: **a key whose binding may still be in flight stays, with its regions, until the queue pair is
//! gone**. It lies in a place that the queue pair keeps from before the post until somebody who saw the completion takes it
//! out: so a failure, a deadline or a panic in between leaves it there, and it goes after the queue pair was destroyed, and
//! never if that failed.
//!
//! # Safety
//!
//! This file guarantees that the builder is used only while its queue pair lives, by one thread at a time, with keys that lie
//! in that place.
#![allow(unsafe_code)]

use std::sync::{Arc, Mutex, PoisonError};

use bareverbs_core::connect::{ConnectParams, Destination, Psn, QueuePairConfig, Transition};
use bareverbs_core::verbs::inline_calls::{Completions, PollError};
use bareverbs_core::verbs::mlx5dv::{DcInitAttr, DcKeyOrStreams, Mlx5QpInitAttr, Mlx5QpMask, Mlx5SendOps};
use bareverbs_core::verbs::queue_pair::RxHashConf;
use bareverbs_core::verbs::{AccessFlags, CreateQpMask, Gid, QpInitAttrEx, SendOpsFlags, Sge, Wc};

use crate::errno::{self, Errno};
use crate::error::Error;
use crate::objects::completion_queue::CompletionQueue;
use crate::objects::gid::{self, GidPolicy};
use crate::objects::indirect_key::IndirectKey;
use crate::objects::protection_domain::ProtectionDomain;
use crate::objects::queue_pair::{MadeOf, QueuePair, sizes};
use crate::symbols::Mlx5Symbols;
use crate::symbols::mr_list::{Binding, MrListBuilder, NoBuilder};

/// Where a key lies while a binding of it may be in flight.
type Place = Arc<Mutex<Option<IndirectKey>>>;

/// Bindings are made one at a time.
const COMPLETIONS: u32 = 4;

/// The first packet's number: nobody else is on this connection.
const FIRST_PACKET: Psn = Psn::JACCL;

/// Why there is no such queue pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoListQueuePair {
    /// A call failed, or there is no GID.
    Shell(Error),
    /// It has no builders.
    Builder(NoBuilder),
}

impl From<Error> for NoListQueuePair {
    fn from(error: Error) -> Self {
        Self::Shell(error)
    }
}

/// A queue pair that binds keys of its domain.
#[derive(Debug)]
pub(crate) struct ListQueuePair {
    builder: MrListBuilder,
    // It holds its completion queue and the place, and lets go of both only after it was destroyed: whatever the order here.
    pair: QueuePair,
    queue: CompletionQueue,
    in_flight: Place,
    inline_bytes: u32,
}

// SAFETY: the builder's pointers lead into the queue pair, which goes with it; verbs objects may be used from any thread, one at
// a time, and what uses the builder needs `&mut`.
unsafe impl Send for ListQueuePair {}

impl ListQueuePair {
    /// Makes one that carries so many bytes inline, and connects it to itself.
    ///
    /// # Errors
    /// [`NoListQueuePair`]; what was made is destroyed.
    pub(crate) fn new(
        domain: &Arc<ProtectionDomain>,
        mlx5: &Mlx5Symbols,
        (port, policy): (u8, GidPolicy),
        inline_bytes: u32,
    ) -> Result<Self, NoListQueuePair> {
        let config = QueuePairConfig::rc().port(port).depths(1, 1).inline_bytes(inline_bytes);
        let queue = CompletionQueue::new(domain.context(), COMPLETIONS)?;
        let in_flight = Place::default();
        let keeper = Some(Arc::clone(&in_flight) as _);
        let made_of = MadeOf { domain, send_queue: &queue, recv_queue: &queue, keeper };
        let (mut pair, inline_bytes) = create(mlx5, made_of, &config)?;
        connect(&mut pair, &config, policy)?;
        // SAFETY: 1: just made so, live, and of one library with the table, as the caller of this file's owner checked
        // (`Mlx5Symbols::goes_with`). 2: the context's table is the library's, and entry points stay for the process.
        let builder = unsafe { MrListBuilder::of(domain.context().symbols(), mlx5, pair.as_ptr()) };
        let builder = builder.map_err(NoListQueuePair::Builder)?;
        Ok(Self { builder, pair, queue, in_flight, inline_bytes })
    }

    /// Bytes that a request carries inline, as the creation answered.
    pub(crate) const fn inline_bytes(&self) -> u32 {
        self.inline_bytes
    }

    /// Its number.
    pub(crate) const fn qp_num(&self) -> u32 {
        self.pair.qp_num()
    }

    /// Posts the binding of a key to its regions, each from its start. The key stays here until it is
    /// [taken](Self::take_key).
    ///
    /// # Errors
    /// The errno that the provider answered, if any: nothing was posted, it says.
    ///
    /// # Panics
    /// If a key lies here already, or it has more than 65 535 regions.
    pub(crate) fn post(
        &mut self,
        wr_id: u64,
        access: AccessFlags,
        key: IndirectKey,
        entries: &[Sge],
    ) -> Result<(), Option<Errno>> {
        let raw = key.as_ptr();
        let before = self.place().replace(key);
        assert!(before.is_none(), "bindings are made one at a time");
        errno::clear();
        // SAFETY: 1: the queue pair is beside the builder, and `&mut` makes it one at a time. 2: the key is fresh, so nothing
        // uses it, and lies where the queue pair keeps it until it is taken out, by who saw the completion.
        let posted = unsafe { self.builder.post(&Binding { wr_id, key: raw, access, entries }) };
        posted.map_err(errno::of_return)
    }

    /// Takes completions out of the own queue.
    pub(crate) fn poll<'room>(&mut self, room: &'room mut [Wc]) -> Result<Completions<'room>, PollError> {
        self.queue.poll_here(room)
    }

    /// The key that was posted: for who saw its binding complete.
    pub(crate) fn take_key(&mut self) -> Option<IndirectKey> {
        self.place().take()
    }

    fn place(&self) -> std::sync::MutexGuard<'_, Option<IndirectKey>> {
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes the queue pair; how many bytes it carries inline comes with it.
fn create(mlx5: &Mlx5Symbols, made_of: MadeOf<'_>, config: &QueuePairConfig) -> Result<(QueuePair, u32), Error> {
    made_of.check()?;
    let mut init = QpInitAttrEx {
        qp_context: std::ptr::null_mut(),
        send_cq: made_of.send_queue.shared().as_ptr(),
        recv_cq: made_of.recv_queue.shared().as_ptr(),
        srq: std::ptr::null_mut(),
        cap: sizes(config),
        qp_type: config.service.qp_type(),
        sq_sig_all: 0,
        comp_mask: CreateQpMask::PD | CreateQpMask::SEND_OPS_FLAGS,
        pd: made_of.domain.as_ptr(),
        xrcd: std::ptr::null_mut(),
        create_flags: 0,
        max_tso_header: 0,
        rwq_ind_tbl: std::ptr::null_mut(),
        rx_hash_conf: RxHashConf {
            rx_hash_function: 0,
            rx_hash_key_len: 0,
            rx_hash_key: std::ptr::null_mut(),
            rx_hash_fields_mask: 0,
        },
        source_qpn: 0,
        send_ops_flags: SendOpsFlags::RDMA_WRITE | SendOpsFlags::SEND | SendOpsFlags::RDMA_READ,
    };
    let mut lists = Mlx5QpInitAttr {
        comp_mask: Mlx5QpMask::SEND_OPS_FLAGS,
        create_flags: 0,
        dc_init_attr: DcInitAttr { dc_type: 0, key_or_streams: DcKeyOrStreams { dct_access_key: 0 } },
        send_ops_flags: Mlx5SendOps::MR_LIST | Mlx5SendOps::MKEY_CONFIGURE,
    };
    errno::clear();
    let context = made_of.domain.context().as_ptr();
    // SAFETY: context, domain and queue are live and of one context; the attributes are ours.
    let raw = unsafe { (mlx5.create_qp)(context, &raw mut init, &raw mut lists) };
    // SAFETY: just returned by this library for these, or null; errno was cleared.
    let pair = unsafe { QueuePair::adopt(raw, made_of, config, "mlx5dv_create_qp", init.cap) }?;
    Ok((pair, init.cap.max_inline_data))
}

/// INIT, RTR and RTS, towards itself: by GID where the port is Ethernet, by LID on InfiniBand.
fn connect(pair: &mut QueuePair, config: &QueuePairConfig, policy: GidPolicy) -> Result<(), Error> {
    let context = Arc::clone(pair.domain().context());
    let port = context.port(config.port)?;
    let gid = gid::find(&context, &port, policy)?;
    let remote = Destination {
        lid: port.lid(),
        qp_num: pair.qp_num(),
        psn: FIRST_PACKET,
        gid: gid.map_or(Gid::ZERO, |found| found.gid),
    };
    let params = ConnectParams {
        config: *config,
        link_layer: port.link_layer(),
        path_mtu: config.path_mtu_on(port.active_mtu()),
        psn: FIRST_PACKET,
        sgid_index: gid.map(|found| found.index),
        remote,
    };
    pair.modify(&Transition::to_init(config))?;
    pair.modify(&Transition::to_rtr(&params).map_err(Error::Route)?)?;
    pair.modify(&Transition::to_rts(&params))
}
