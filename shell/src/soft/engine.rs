//! What a device does with posted requests: sends go out, receives fill, completions appear.
//!
//! Each function takes one step on one queue pair. When which step is taken is decided in [`crate::soft::schedule`].

use bareverbs_core::verbs::{Be32, QpState, QpType, Sge, Wc, WcFlags, WcOpcode, WcStatus, WrOpcode};

use crate::soft::bytes::Span;
use crate::soft::channels::Armed;
use crate::soft::completion::{CompletionQueue, Direction, Entry};
use crate::soft::indirect_keys::is_indirect;
use crate::soft::message_faults::{Held, MessageFault};
use crate::soft::one_sided::Target;
use crate::soft::profile::FRAME_BYTES;
use crate::soft::queue_pair::{Peer, ReceiveRequest, SendRequest};
use crate::soft::queue_state::hears;
use crate::soft::state::State;

/// A message's bytes, where they are.
#[derive(Clone, Copy)]
pub(super) enum Parts<'message> {
    /// In registered memory of the sender's domain.
    Entries { domain: u32, entries: &'message [Sge] },
    /// In the fabric's own memory.
    Bytes(&'message [u8]),
}

/// A message on its way.
#[derive(Clone, Copy)]
pub(super) struct Message<'message> {
    pub parts: Parts<'message>,
    pub length_bytes: u32,
    pub immediate: Option<Be32>,
    pub from_device: u32,
    pub kind: QpType,
    /// Whether the receiver is to be woken.
    pub solicited: bool,
    /// Where it is to be written, if that is not where a receive says.
    pub target: Option<Target>,
}

/// A completion, and which request of which life of its queue pair it is of.
struct Made {
    wc: Wc,
    life: u64,
    number: u64,
}

/// What became of a send that its own end found nothing wrong with.
#[derive(Clone, Copy, Debug)]
pub(super) enum Sent {
    /// It is done.
    Done { arrival: Arrival, status: WcStatus },
    /// It stays in its queue, to be tried again.
    Waits,
}

/// Where a message went: the index of the queue pair whose receive it ended.
pub(super) type Arrival = Option<u32>;

impl State {
    /// Whether the next send of a queue pair can be taken up.
    pub(super) fn may_transmit(&self, index: u32) -> bool {
        let Some(pair) = self.pairs.get(index) else { return false };
        if pair.sends.waiting() == 0 {
            return false;
        }
        match pair.state {
            QpState::ERR => true,
            QpState::RTS if pair.profile.send_waits_for_receive() => pair
                .peer
                .and_then(|peer| self.pairs.get(self.find_peer(peer)?))
                .is_some_and(|peer| hears(peer.state) && peer.receives.waiting() > 0),
            QpState::SQD => pair.waits() && self.may_try(index),
            QpState::RTS => !self.is_late(index) && (pair.kind != QpType::RC || self.may_try(index)),
            _ => false,
        }
    }

    /// Takes up the next send of a queue pair: its bytes are read now.
    pub(super) fn transmit(&mut self, index: u32) -> Arrival {
        let pair = self.pairs.get_mut(index)?;
        let (place, request) = pair.sends.to_do()?;
        let request = *request;
        if pair.state == QpState::ERR {
            pair.sends.mark_done(|request| request.status = WcStatus::WR_FLUSH_ERR);
            self.take_binding(index, place);
            return None;
        }
        if pair.lists.is_some() && matches!(request.opcode, WrOpcode::DRIVER1 | WrOpcode::LOCAL_INV) {
            let (status, lost) = self.bind_or_invalidate(index, place, &request);
            let pair = self.pairs.get_mut(index)?;
            pair.sends.mark_done(|request| (request.status, request.signaled) = (status, request.signaled && !lost));
            if status != WcStatus::SUCCESS {
                pair.state = QpState::ERR;
            }
            return None;
        }
        let entries = pair.sends.take_entries();
        let inline = std::mem::take(&mut pair.inline);
        let own_entries = pair.sends.of_request(&entries, place);
        let inline_room = pair.cap.max_inline_data as usize;
        let parts = if request.inline {
            Parts::Bytes(&inline[place * inline_room..][..request.length_bytes as usize])
        } else {
            Parts::Entries { domain: pair.domain, entries: own_entries }
        };
        let outcome = self.send(index, place, &request, parts);
        let pair = self.pairs.get_mut(index)?;
        pair.sends.restore(entries);
        pair.inline = inline;
        let (arrival, end) = match outcome {
            Ok(Sent::Done { arrival, status }) => (arrival, status),
            Ok(Sent::Waits) => return None,
            Err(status) => (None, status),
        };
        pair.sends.mark_done(|request| request.status = end);
        if end != WcStatus::SUCCESS {
            pair.state = QpState::ERR;
        }
        arrival
    }

    /// Sends a message, or says why it fails.
    fn send(&mut self, index: u32, place: usize, request: &SendRequest, parts: Parts<'_>) -> Result<Sent, WcStatus> {
        let pair = self.pairs.get_mut(index).ok_or(WcStatus::GENERAL_ERR)?;
        let device = self.devices.get(pair.device as usize).ok_or(WcStatus::GENERAL_ERR)?;
        let port = device.port(pair.attr.port_num).ok_or(WcStatus::GENERAL_ERR)?;
        let immediate = match request.opcode {
            WrOpcode::SEND_WITH_IMM if pair.profile.carries_immediate() => Some(request.immediate),
            WrOpcode::SEND | WrOpcode::SEND_WITH_IMM => None,
            _ if pair.profile.checks_opcode() => return self.perform(index, place, request, parts),
            _ => None,
        };
        if request.length_bytes > port.max_message_bytes {
            return Err(WcStatus::LOC_LEN_ERR);
        }
        if let Parts::Entries { domain, entries } = parts {
            self.regions.check_read(domain, entries)?;
        }
        let sends = device.is_active(pair.attr.port_num);
        let (length_bytes, from_device, kind) = (request.length_bytes, pair.device, pair.kind);
        let solicited = request.solicited;
        let message = Message { parts, length_bytes, immediate, from_device, kind, solicited, target: None };
        if kind == QpType::RC {
            return self.send_reliably(index, &message);
        }
        let peer = pair.peer.filter(|_| sends);
        let arrival = self.send_unreliably(index, peer, &message);
        Ok(Sent::Done { arrival, status: WcStatus::SUCCESS })
    }

    /// Sends a message off; nobody learns whether it arrives.
    #[inline]
    pub(super) fn send_unreliably(&mut self, index: u32, peer: Option<Peer>, message: &Message<'_>) -> Arrival {
        let fault = self.faults.on_message();
        let mut peer = peer?;
        let found = self.find_peer(peer)?;
        if peer.guess != found {
            peer.guess = found;
            if let Some(pair) = self.pairs.get_mut(index) {
                pair.peer = Some(peer);
            }
        }
        match fault {
            None if self.faults.held.is_empty() => self.arrive(found, message),
            fault => self.arrive_with(fault, peer, found, message),
        }
    }

    /// The queue pair that a peer is, if there is one.
    #[inline]
    pub(super) fn find_peer(&self, peer: Peer) -> Option<u32> {
        let is_it = |index: &u32| {
            self.pairs.get(*index).is_some_and(|pair| pair.number == peer.number && pair.device == peer.device)
        };
        if is_it(&peer.guess) { Some(peer.guess) } else { (0..self.pairs.bound()).find(is_it) }
    }

    /// Lets a message arrive as a fault has it, and what waited for it after it.
    #[cold]
    fn arrive_with(&mut self, fault: Option<MessageFault>, peer: Peer, found: u32, message: &Message<'_>) -> Arrival {
        let target = (peer.device, peer.number);
        let wait = match fault {
            Some(MessageFault::Drop) => return None,
            Some(MessageFault::Reorder) => Some(Some(1)),
            Some(MessageFault::Delay { messages }) => Some(Some(messages)),
            Some(MessageFault::Hold) => Some(None),
            Some(MessageFault::Duplicate | MessageFault::Corrupt { .. }) | None => None,
        };
        if let Some(wait) = wait.filter(|wait| *wait != Some(0)) {
            let (bytes, immediate) = (self.copy_out(message), message.immediate);
            let Message { from_device, solicited, target: write_to, .. } = *message;
            self.faults.held.push(Held { bytes, immediate, target, from_device, solicited, write_to, wait });
            return None;
        }
        let arrival = match fault {
            Some(MessageFault::Corrupt { offset_bytes }) => {
                let mut bytes = self.copy_out(message);
                let at = (offset_bytes as usize).min(bytes.len().saturating_sub(1));
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1;
                }
                self.arrive(found, &Message { parts: Parts::Bytes(&bytes), ..*message })
            }
            _ => self.arrive(found, message),
        };
        if fault == Some(MessageFault::Duplicate) {
            self.arrive(found, message);
        }
        for held in self.faults.due_after_arrival(target) {
            self.arrive_late(&held);
        }
        arrival
    }

    /// Lets a message arrive that was kept back.
    pub(super) fn arrive_late(&mut self, held: &Held) -> Arrival {
        let (device, number) = held.target;
        let found = self.find_peer(Peer { device, number, guess: 0 })?;
        let message = Message {
            parts: Parts::Bytes(&held.bytes),
            length_bytes: held.bytes.len() as u32,
            immediate: held.immediate,
            from_device: held.from_device,
            kind: QpType::UC,
            solicited: held.solicited,
            target: held.write_to,
        };
        self.arrive(found, &message)
    }

    fn copy_out(&self, message: &Message<'_>) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(message.length_bytes as usize);
        match message.parts {
            Parts::Bytes(own) => bytes.extend_from_slice(own),
            Parts::Entries { domain, entries } => {
                for entry in entries {
                    // An entry out of reach failed the send before it got here.
                    let _ = self.regions.each_span(domain, entry, |span| {
                        span.append_to(&mut bytes);
                        Ok(())
                    });
                }
            }
        }
        bytes
    }

    /// Lets a message arrive: it ends the next posted receive, or nobody hears of it.
    #[inline]
    pub(super) fn arrive(&mut self, index: u32, message: &Message<'_>) -> Arrival {
        let pair = self.pairs.get_mut(index)?;
        let device = self.devices.get(pair.device as usize)?;
        let expected = pair.peer.is_some_and(|peer| peer.device == message.from_device) && pair.kind == message.kind;
        if !hears(pair.state) || !expected || !device.is_active(pair.attr.port_num) {
            return None;
        }
        if let Some(target) = message.target {
            return self.take_write(index, message, &target).0;
        }
        let (place, request) = pair.receives.to_do()?;
        let room_bytes = request.room_bytes;
        let (profile, domain) = (pair.profile, pair.domain);
        let entries = pair.receives.take_entries();
        let own_entries = pair.receives.of_request(&entries, place);
        let outcome = profile
            .fit(message.length_bytes, room_bytes)
            .and_then(|()| self.fill(domain, own_entries, message.parts, message.length_bytes));
        let pair = self.pairs.get_mut(index)?;
        pair.receives.restore(entries);
        let whole_frames = profile.whole_frames();
        pair.receives.mark_done(|request| {
            request.status = outcome.err().unwrap_or(WcStatus::SUCCESS);
            request.byte_len = message.length_bytes;
            request.solicited = message.solicited;
            request.written = false;
            if whole_frames {
                request.byte_len = message.length_bytes.next_multiple_of(FRAME_BYTES).min(room_bytes);
            }
            request.immediate = message.immediate.unwrap_or_default();
            request.flags = if message.immediate.is_some() { WcFlags::WITH_IMM } else { WcFlags::empty() };
        });
        if outcome.is_err() {
            pair.state = QpState::ERR;
        }
        Some(index)
    }

    /// Writes bytes into entries: all of them or, where a key does not reach, none.
    #[inline]
    pub(super) fn fill(
        &self,
        domain: u32,
        entries: &[Sge],
        parts: Parts<'_>,
        length_bytes: u32,
    ) -> Result<(), WcStatus> {
        match (parts, entries) {
            (Parts::Entries { domain: from_domain, entries: [from] }, [to])
                if !is_indirect(from.lkey) && !is_indirect(to.lkey) =>
            {
                let from = self.regions.span(from_domain, from)?;
                self.regions.span_mut(domain, to, 0, length_bytes)?.write(from);
                Ok(())
            }
            _ => self.fill_parts(domain, entries, parts, length_bytes),
        }
    }

    fn fill_parts(&self, domain: u32, entries: &[Sge], parts: Parts<'_>, length_bytes: u32) -> Result<(), WcStatus> {
        self.regions.check_write(domain, entries, length_bytes)?;
        let mut at = 0;
        let mut write = |mut rest: Span<'_>| {
            let end = at + rest.len() as u32;
            let start = std::mem::replace(&mut at, end);
            self.regions.each_part(domain, entries, start, end, |mut room| {
                let (now, later) = rest.split(room.len());
                room.write(now);
                rest = later;
            })
        };
        match parts {
            Parts::Bytes(bytes) => write(Span::from(bytes)),
            Parts::Entries { domain, entries } => {
                entries.iter().try_for_each(|entry| self.regions.each_span(domain, entry, &mut write))
            }
        }
    }

    /// Whether a posted receive can be flushed.
    pub(super) fn may_flush(&self, index: u32) -> bool {
        self.pairs.get(index).is_some_and(|pair| pair.state == QpState::ERR && pair.receives.waiting() > 0)
    }

    /// Flushes the next posted receive.
    pub(super) fn flush_receive(&mut self, index: u32) {
        if let Some(pair) = self.pairs.get_mut(index).filter(|pair| pair.receives.waiting() > 0) {
            pair.receives.mark_done(|request| request.status = WcStatus::WR_FLUSH_ERR);
        }
    }

    /// Reports the next send that is done; false if there is none.
    #[inline]
    pub(super) fn report_send(&mut self, index: u32) -> bool {
        let Some(pair) = self.pairs.get_mut(index) else { return false };
        let drains = pair.tells_drained;
        let Some((number, request)) = pair.sends.report() else { return false };
        if !request.makes_completion() {
            if drains {
                self.tell_if_drained(index);
            }
            return true;
        }
        let (queue, solicits) = (pair.send_cq, request.status != WcStatus::SUCCESS);
        let made = Made { wc: send_completion(request, pair.number), life: pair.life, number };
        self.put(queue, index, Direction::Send, made, solicits);
        if drains {
            self.tell_if_drained(index);
        }
        true
    }

    /// Reports the next receive that is done; false if there is none.
    #[inline]
    pub(super) fn report_receive(&mut self, index: u32) -> bool {
        let Some(pair) = self.pairs.get_mut(index) else { return false };
        let Some((number, request)) = pair.receives.report() else { return false };
        let (queue, solicits) = (pair.recv_cq, request.solicited || request.status != WcStatus::SUCCESS);
        let made = Made { wc: receive_completion(request, pair.number), life: pair.life, number };
        self.put(queue, index, Direction::Receive, made, solicits);
        true
    }

    /// Puts a completion of a queue pair into a queue.
    #[inline]
    fn put(&mut self, queue: u32, pair: u32, direction: Direction, made: Made, solicits: bool) {
        let to = self.queues.get_mut(queue);
        let armed = to.as_ref().is_some_and(|queue| queue.armed != Armed::No);
        match to.map(CompletionQueue::push) {
            Some(Ok(entry)) => {
                *entry = Entry { wc: made.wc, queue_pair: pair, life: made.life, direction, number: made.number };
                self.schedule.spoil_undefined(&mut entry.wc);
            }
            // The queue pair fails with its completion queue.
            _ => return self.overflow(queue, pair),
        }
        if armed {
            self.wake(queue, solicits);
        }
    }

    /// Takes a completion out of a queue, and frees the slots that it ends.
    #[inline]
    pub(super) fn take_completion(&mut self, queue: u32) -> Option<&Wc> {
        let entry = self.queues.get_mut(queue)?.pop()?;
        if let Some(pair) = self.pairs.get_mut(entry.queue_pair).filter(|pair| pair.life == entry.life) {
            match entry.direction {
                Direction::Send => pair.sends.recycle_through(entry.number),
                Direction::Receive => pair.receives.recycle_through(entry.number),
            }
        }
        Some(&entry.wc)
    }
}

#[inline]
fn send_completion(request: &SendRequest, qp_num: u32) -> Wc {
    let opcode = match request.opcode {
        WrOpcode::RDMA_WRITE | WrOpcode::RDMA_WRITE_WITH_IMM => WcOpcode::RDMA_WRITE,
        WrOpcode::RDMA_READ => WcOpcode::RDMA_READ,
        WrOpcode::ATOMIC_FETCH_AND_ADD => WcOpcode::FETCH_ADD,
        WrOpcode::ATOMIC_CMP_AND_SWP => WcOpcode::COMP_SWAP,
        WrOpcode::DRIVER1 => WcOpcode::DRIVER1,
        WrOpcode::LOCAL_INV => WcOpcode::LOCAL_INV,
        _ => WcOpcode::SEND,
    };
    Wc { wr_id: request.wr_id, status: request.status, opcode, qp_num, byte_len: request.length_bytes, ..Wc::default() }
}

#[inline]
fn receive_completion(request: &ReceiveRequest, qp_num: u32) -> Wc {
    Wc {
        wr_id: request.wr_id,
        status: request.status,
        opcode: if request.written { WcOpcode::RECV_RDMA_WITH_IMM } else { WcOpcode::RECV },
        byte_len: request.byte_len,
        imm_data: request.immediate,
        qp_num,
        wc_flags: request.flags,
        ..Wc::default()
    }
}
