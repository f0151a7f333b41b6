//! Making, moving and destroying queue pairs, and taking in what is posted to them.

use std::ffi::c_int;
use std::ptr::with_exposed_provenance_mut;

use bareverbs_core::verbs::{
    Cq, Gid, Mtu, Qp, QpAttr, QpAttrMask, QpCap, QpInitAttr, QpState, RecvWr, SendFlags, SendWr, Sge, WrOpcode,
};

use crate::soft::async_events::{Subject, Unacknowledged};
use crate::soft::bindings::Lists;
use crate::soft::bytes::InlineBytes;
use crate::soft::c_objects::WholeQp;
use crate::soft::device::GidSlot;
use crate::soft::handles::{self, Kind};
use crate::soft::one_sided::{Target, grants_depth};
use crate::soft::queue_pair::{Peer, QueuePair, ReceiveRequest, SendRequest, Tries, granted};
use crate::soft::queue_state::{allows, takes_receives, takes_sends};
use crate::soft::state::{DeviceState, State};
use crate::soft::work_queue::WorkQueue;

/// What a queue pair is made with besides its parents.
pub(super) struct PairRequest {
    pub init: QpInitAttr,
    /// The completion queues, by index.
    pub queues: [u32; 2],
    /// Whether it has builders.
    pub extended: bool,
    /// Entries that one binding of an indirect key carries, where it binds keys.
    pub list_entries: Option<u32>,
}

impl PairRequest {
    /// What `ibv_create_qp` makes.
    pub(super) const fn plain(init: QpInitAttr, queues: [u32; 2]) -> Self {
        Self { init, queues, extended: false, list_entries: None }
    }
}

impl State {
    /// Makes a queue pair; the sizes granted come back with its handle.
    pub(super) fn create_pair(&mut self, domain: u32, asked: &PairRequest) -> Result<(usize, QpCap, bool), c_int> {
        let context = self.domains.get(domain).ok_or(libc::EINVAL)?.context;
        let device_index = self.contexts.get(context).ok_or(libc::EINVAL)?.device;
        let device = self.devices.get_mut(device_index as usize).ok_or(libc::EINVAL)?;
        if !asked.init.srq.is_null() {
            return Err(device.profile.unsupported());
        }
        let cap = granted(asked.init.cap, asked.init.qp_type, device.profile, &device.limits)?;
        if device.queue_pairs >= device.limits.queue_pairs {
            return Err(device.profile.too_many_queue_pairs());
        }
        let (number, profile) = (device.next_number, device.profile);
        device.next_number = if number == 0xff_ffff { FIRST_NUMBER } else { number + 1 };
        self.note_foreign_queues(context, asked);
        let index = self.pairs.next_index();
        let head = self.pair_head(domain, context, asked, number, index);
        let body = match asked.list_entries {
            Some(_) => WholeQp::with_builders(head),
            None => WholeQp::new(head),
        };
        let handle = handles::create(self.place(index), body);
        let ring = (cap.max_send_wr as usize).next_power_of_two();
        let sends = WorkQueue::new(cap.max_send_wr, cap.max_send_sge);
        let inline_bytes = ring * cap.max_inline_data as usize;
        let targets = if profile.checks_opcode() { ring } else { 0 };
        let life = self.next_event();
        let [send_cq, recv_cq] = asked.queues;
        self.pairs.insert(QueuePair {
            handle,
            number,
            life,
            device: device_index,
            profile,
            context,
            domain,
            send_cq,
            recv_cq,
            kind: asked.init.qp_type,
            every_send_signaled: asked.init.sq_sig_all != 0,
            state: QpState::RESET,
            cap,
            attr: QpAttr::default(),
            peer: None,
            tries: Tries::default(),
            events: Unacknowledged::default(),
            initialised: 0,
            sends,
            receives: WorkQueue::new(cap.max_recv_wr, cap.max_recv_sge),
            inline: vec![0; inline_bytes].into(),
            targets: vec![Target::default(); targets].into(),
            landed_early: false,
            tells_drained: false,
            extended: asked.extended,
            lists: asked.list_entries.map(|entries| Box::new(Lists::new(entries, ring))),
        });
        self.count_pair(domain, asked.queues, 1);
        Ok((handle, cap, profile.writes_back_sizes()))
    }

    /// A queue of another context is taken, as the kernel takes it, and noted.
    fn note_foreign_queues(&mut self, context: u32, asked: &PairRequest) {
        for queue in asked.queues {
            if let Some(foreign) = self.queues.get(queue).filter(|queue| queue.context != context) {
                let handle = foreign.handle;
                self.blame(format!("ibv_create_qp: completion queue {handle:#x} is of another context"));
            }
        }
    }

    fn pair_head(&self, domain: u32, context: u32, asked: &PairRequest, number: u32, index: u32) -> Qp {
        let queue = |index| with_exposed_provenance_mut::<Cq>(self.queues.get(index).map_or(0, |queue| queue.handle));
        Qp {
            context: self.context_pointer(context),
            qp_context: asked.init.qp_context,
            pd: with_exposed_provenance_mut(self.domains.get(domain).map_or(0, |domain| domain.handle)),
            send_cq: queue(asked.queues[0]),
            recv_cq: queue(asked.queues[1]),
            srq: std::ptr::null_mut(),
            handle: index,
            qp_num: number,
            state: QpState::RESET,
            qp_type: asked.init.qp_type,
        }
    }

    /// What a queue pair was made with, as `ibv_query_qp` tells it.
    pub(super) fn creation_attributes(&self, index: u32) -> Option<QpInitAttr> {
        let pair = self.pairs.get(index)?;
        let queue = |index| with_exposed_provenance_mut::<Cq>(self.queues.get(index).map_or(0, |queue| queue.handle));
        Some(QpInitAttr {
            qp_context: std::ptr::null_mut(),
            send_cq: queue(pair.send_cq),
            recv_cq: queue(pair.recv_cq),
            srq: std::ptr::null_mut(),
            cap: pair.cap,
            qp_type: pair.kind,
            sq_sig_all: pair.every_send_signaled.into(),
        })
    }

    /// Destroys a queue pair. Its completions stay where they are; what it had not completed is gone.
    pub(super) fn destroy_pair(&mut self, index: u32) -> Result<(), c_int> {
        let pair = self.pairs.get(index).ok_or(libc::EINVAL)?;
        let (handle, events) = (pair.handle, pair.events);
        self.refuse_unacknowledged("ibv_destroy_qp", handle, events)?;
        if self.is_in_run(index) {
            self.blame(format!("ibv_destroy_qp: queue pair {handle:#x} is in a run of builders"));
        }
        self.drop_bindings(index);
        let pair = self.pairs.remove(index).ok_or(libc::EINVAL)?;
        self.forget_events(pair.context, Subject::Pair, index);
        self.count_pair(pair.domain, [pair.send_cq, pair.recv_cq], -1);
        self.bury(Kind::QueuePair, pair.handle);
        Ok(())
    }

    /// Moves a queue pair, or changes its attributes; a refusal changes nothing.
    pub(super) fn modify_pair(&mut self, index: u32, attr: &QpAttr, mask: QpAttrMask) -> Result<(), c_int> {
        let pair = self.pairs.get(index).ok_or(libc::EINVAL)?;
        let from = pair.state;
        let to = if mask.contains(QpAttrMask::STATE) { attr.qp_state } else { from };
        if mask.contains(QpAttrMask::CUR_STATE) && attr.cur_qp_state != from {
            return Err(libc::EINVAL);
        }
        if !allows(pair.kind, from, to, mask) {
            return Err(libc::EINVAL);
        }
        let device = self.devices.get(pair.device as usize).ok_or(libc::EINVAL)?;
        if mask.contains(QpAttrMask::PORT) && device.port(attr.port_num).is_none() {
            return Err(libc::EINVAL);
        }
        if mask.contains(QpAttrMask::PATH_MTU) && Mtu::bytes(attr.path_mtu).is_none() {
            return Err(libc::EINVAL);
        }
        if (mask.contains(QpAttrMask::TIMEOUT) && attr.timeout > LONGEST_TIMER)
            || (mask.contains(QpAttrMask::MIN_RNR_TIMER) && attr.min_rnr_timer > LONGEST_TIMER)
        {
            return Err(libc::EINVAL);
        }
        if !grants_depth(attr, mask) {
            return Err(libc::EINVAL);
        }
        let peer_device = match mask.contains(QpAttrMask::AV) {
            true => Some(self.reach(device, pair.device, attr)?),
            false => None,
        };
        let event = self.next_event();
        if to == QpState::RESET {
            self.drop_bindings(index);
        }
        let pair = self.pairs.get_mut(index).ok_or(libc::EINVAL)?;
        match to {
            QpState::RESET => pair.reset(event),
            _ => pair.state = to,
        }
        pair.tells_drained = to == QpState::SQD
            && (mask.contains(QpAttrMask::EN_SQD_ASYNC_NOTIFY) && attr.en_sqd_async_notify != 0
                || from == QpState::SQD && pair.tells_drained);
        if from == QpState::RESET && to == QpState::INIT {
            pair.initialised = event;
        }
        pair.take_attributes(attr, mask);
        if let Some(device) = peer_device {
            pair.peer = Some(Peer { device, number: pair.attr.dest_qp_num, guess: 0 });
        }
        handles::set_queue_pair_state(pair.handle, to);
        self.after_change();
        self.tell_if_drained(index);
        Ok(())
    }

    /// The device at the other end of a path, by the checks of the move to RTR.
    fn reach(&self, device: &DeviceState, own: u32, attr: &QpAttr) -> Result<u32, c_int> {
        let path = &attr.ah_attr;
        let port = device.port(path.port_num).ok_or(libc::EINVAL)?;
        if path.is_global == 0 {
            if port.link_layer.needs_global_route() {
                return Err(device.profile.no_global_route());
            }
            return self.device_where(own, |port| port.lid == path.dlid).ok_or(libc::ETIMEDOUT);
        }
        match port.gids.get(usize::from(path.grh.sgid_index)) {
            Some(GidSlot::Gid(..)) => {}
            Some(GidSlot::Empty) => return Err(libc::ENODATA),
            Some(GidSlot::Fails(errno)) => return Err(*errno),
            None => return Err(libc::EINVAL),
        }
        let wanted: Gid = path.grh.dgid;
        self.device_where(own, |port| {
            port.gids.iter().any(|slot| matches!(slot, GidSlot::Gid(gid, _) if *gid == wanted))
        })
        .ok_or(libc::ETIMEDOUT)
    }

    /// The device that has such a port: the own one if it has, else the first.
    fn device_where(&self, own: u32, is_it: impl Fn(&crate::soft::device::SoftPort) -> bool) -> Option<u32> {
        let has = |index: &u32| self.devices.get(*index as usize).is_some_and(|device| device.ports.iter().any(&is_it));
        Some(own).filter(has).or_else(|| (0..self.devices.len() as u32).find(has))
    }

    /// Takes in one send.
    #[inline]
    pub(super) fn accept_send(
        &mut self,
        index: u32,
        wr: &SendWr,
        entries: &[Sge],
        inline: InlineBytes<'_>,
    ) -> Result<(), c_int> {
        let pair = self.pairs.get_mut(index).ok_or(libc::EINVAL)?;
        if !takes_sends(pair.state) || wr.opcode.0 > LAST_OPCODE {
            return Err(libc::EINVAL);
        }
        let length_bytes = total_bytes(entries);
        let is_inline = wr.send_flags.contains(SendFlags::INLINE);
        if is_inline && length_bytes > pair.cap.max_inline_data {
            return Err(libc::EINVAL);
        }
        let request = SendRequest::new(wr, pair.every_send_signaled, length_bytes, pair.profile.slots(length_bytes));
        let place = pair.sends.room(request.slots).map_err(|_| libc::ENOMEM)?;
        if is_inline {
            let room = pair.cap.max_inline_data as usize;
            inline.copy_into(&mut pair.inline[place * room..][..length_bytes as usize]);
        }
        pair.sends.push(request, if is_inline { &[] } else { entries }).map_err(|_| libc::ENOMEM)
    }

    /// Takes in one receive.
    #[inline]
    pub(super) fn accept_receive(&mut self, index: u32, wr: &RecvWr, entries: &[Sge]) -> Result<(), c_int> {
        let pair = self.pairs.get_mut(index).ok_or(libc::EINVAL)?;
        if !takes_receives(pair.state) {
            return Err(libc::EINVAL);
        }
        if pair.profile.wants_regions_before_init() {
            let (domain, initialised) = (pair.domain, pair.initialised);
            if entries.iter().any(|entry| self.regions.born(domain, entry).is_none_or(|born| born > initialised)) {
                return Err(libc::EFAULT);
            }
        }
        let room_bytes = total_bytes(entries);
        let request = ReceiveRequest {
            wr_id: wr.wr_id,
            room_bytes,
            entries: entries.len() as u32,
            slots: pair.profile.slots(room_bytes),
            ..ReceiveRequest::default()
        };
        pair.receives.push(request, entries).map_err(|_| libc::ENOMEM)?;
        self.scribble_posted(index);
        Ok(())
    }
}

/// The number of a device's first queue pair: 0 and 1 are the subnet's.
pub(super) const FIRST_NUMBER: u32 = 17;

/// The highest code of a timer: five bits.
const LONGEST_TIMER: u8 = 31;

/// The highest opcode that a header has.
const LAST_OPCODE: u32 = WrOpcode::ATOMIC_WRITE.0;

#[inline]
pub(super) fn total_bytes(entries: &[Sge]) -> u32 {
    entries.iter().fold(0, |sum, entry| u32::saturating_add(sum, entry.length))
}
