//! One-sided operations: a queue pair writes to, reads from or changes memory at the other end, whose program has no part in
//! it but where a write brings an immediate.
//!
//! What the other end permits is said twice, by its queue pair and by the region that the key names, and both are asked
//! each time; a key is good for as long as its region. Checked in this order, as soft-RoCE does: the queue pair's rights
//! and depth, a receive where one is used up, the key and both ends of the region. Where reliable queue pairs are refused,
//! both fail, and the owner of the other one is told by an asynchronous event; unreliable ones lose the write in silence.
//!
//! An operation of no bytes names no memory, so its key and address are not looked at.

use std::ffi::c_int;

use bareverbs_core::verbs::{
    AccessFlags, Be32, EventType, QpAttr, QpAttrMask, QpState, QpType, SendWr, Sge, WcFlags, WcStatus, WrOpcode,
};

use crate::soft::bytes::InlineBytes;
use crate::soft::engine::{Arrival, Message, Parts, Sent};
use crate::soft::pairs::total_bytes;
use crate::soft::queue_pair::{QueuePair, SendRequest};
use crate::soft::state::State;

/// What an operation does at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Write,
    WriteWithImmediate,
    Read,
    FetchAdd,
    CompareSwap,
}

/// What an operation names at the other end, and what it brings besides bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Target {
    pub address: u64,
    pub key: u32,
    pub compare_add: u64,
    pub swap: u64,
}

/// Bytes that an atomic operation changes.
const WORD_BYTES: u32 = 8;

/// Reads and atomics under way at a time, at most: soft-RoCE's limit.
pub(super) const MOST_READS: u8 = 128;

impl Operation {
    #[inline]
    pub(super) const fn of(opcode: WrOpcode) -> Option<Self> {
        match opcode {
            WrOpcode::RDMA_WRITE => Some(Self::Write),
            WrOpcode::RDMA_WRITE_WITH_IMM => Some(Self::WriteWithImmediate),
            WrOpcode::RDMA_READ => Some(Self::Read),
            WrOpcode::ATOMIC_FETCH_AND_ADD => Some(Self::FetchAdd),
            WrOpcode::ATOMIC_CMP_AND_SWP => Some(Self::CompareSwap),
            _ => None,
        }
    }

    /// The right that it needs at the other end.
    pub(super) const fn needs(self) -> AccessFlags {
        match self {
            Self::Write | Self::WriteWithImmediate => AccessFlags::REMOTE_WRITE,
            Self::Read => AccessFlags::REMOTE_READ,
            Self::FetchAdd | Self::CompareSwap => AccessFlags::REMOTE_ATOMIC,
        }
    }

    /// Whether bytes come back, so that the local entries are written.
    pub(super) const fn is_answered(self) -> bool {
        !matches!(self, Self::Write | Self::WriteWithImmediate)
    }

    const fn is_atomic(self) -> bool {
        matches!(self, Self::FetchAdd | Self::CompareSwap)
    }
}

impl Target {
    /// The memory at the other end, as an entry of its domain.
    pub(super) const fn entry(&self, length_bytes: u32) -> Sge {
        Sge { addr: self.address, length: length_bytes, lkey: self.key }
    }
}

impl QueuePair {
    /// Whether the other end may do so, as far as the queue pair says.
    pub(super) const fn permits(&self, operation: Operation) -> bool {
        let answers = self.attr.max_dest_rd_atomic > 0 || !operation.is_answered();
        answers && self.attr.qp_access_flags.contains(operation.needs())
    }

    /// The next request that it takes up, where that is a one-sided operation.
    pub(super) fn next_operation(&self) -> Option<Operation> {
        Operation::of(self.sends.to_do()?.1.opcode).filter(|_| self.profile.checks_opcode())
    }

    /// Whether its next request is one of which none may be under way.
    pub(super) fn lacks_depth(&self) -> bool {
        self.attr.max_rd_atomic == 0 && self.next_operation().is_some_and(Operation::is_answered)
    }
}

/// Whether the limits of reads and atomics that a move brings are granted.
pub(super) fn grants_depth(attr: &QpAttr, mask: QpAttrMask) -> bool {
    let within = |bit, asked: u8| !mask.contains(bit) || asked <= MOST_READS;
    within(QpAttrMask::MAX_QP_RD_ATOMIC, attr.max_rd_atomic)
        && within(QpAttrMask::MAX_DEST_RD_ATOMIC, attr.max_dest_rd_atomic)
}

impl State {
    /// Takes in one operation.
    pub(super) fn accept_one_sided(
        &mut self,
        index: u32,
        wr: &SendWr,
        entries: &[Sge],
        inline: InlineBytes<'_>,
        target: Target,
    ) -> Result<(), c_int> {
        let pair = self.pairs.get_mut(index).ok_or(libc::EINVAL)?;
        let operation = Operation::of(wr.opcode).filter(|_| pair.profile.checks_opcode());
        if let Some(operation) = operation {
            let is_word = total_bytes(entries) >= WORD_BYTES && target.address.is_multiple_of(WORD_BYTES.into());
            if operation.is_atomic() && !is_word {
                return Err(libc::EINVAL);
            }
            if let Ok(place) = pair.sends.room(1) {
                pair.targets[place] = target;
            }
        }
        self.accept_send(index, wr, entries, inline)?;
        if operation.is_some_and(Operation::is_answered) {
            self.scribble_answer_posted(index);
        }
        Ok(())
    }

    /// Performs an operation, or says why it fails.
    pub(super) fn perform(
        &mut self,
        index: u32,
        place: usize,
        request: &SendRequest,
        parts: Parts<'_>,
    ) -> Result<Sent, WcStatus> {
        let pair = self.pairs.get(index).ok_or(WcStatus::GENERAL_ERR)?;
        let operation = Operation::of(request.opcode).ok_or(WcStatus::LOC_QP_OP_ERR)?;
        if operation.is_answered() && pair.kind != QpType::RC {
            return Err(WcStatus::LOC_QP_OP_ERR);
        }
        let device = self.devices.get(pair.device as usize).ok_or(WcStatus::GENERAL_ERR)?;
        let port = device.port(pair.attr.port_num).ok_or(WcStatus::GENERAL_ERR)?;
        if request.length_bytes > port.max_message_bytes {
            return Err(WcStatus::LOC_LEN_ERR);
        }
        let target = pair.targets[place];
        let outcome = if operation.is_answered() {
            self.fetch(index, operation, &target, request.length_bytes, parts)
        } else {
            self.write(index, target, request, parts)
        };
        if !matches!(outcome, Ok(Sent::Waits))
            && let Some(pair) = self.pairs.get_mut(index)
        {
            pair.landed_early = false;
        }
        outcome
    }

    fn write(&mut self, index: u32, target: Target, request: &SendRequest, parts: Parts<'_>) -> Result<Sent, WcStatus> {
        if let Parts::Entries { domain, entries } = parts {
            self.regions.check_read(domain, entries)?;
        }
        let pair = self.pairs.get(index).ok_or(WcStatus::GENERAL_ERR)?;
        let message = Message {
            parts,
            length_bytes: request.length_bytes,
            immediate: (request.opcode == WrOpcode::RDMA_WRITE_WITH_IMM).then_some(request.immediate),
            from_device: pair.device,
            kind: pair.kind,
            solicited: request.solicited,
            target: Some(target),
        };
        if pair.kind == QpType::RC {
            let Some(found) = self.find_taker(index)? else { return Ok(Sent::Waits) };
            let (arrival, status) = self.take_write(found, &message, &target);
            return Ok(Sent::Done { arrival, status });
        }
        let active = self.devices.get(pair.device as usize).is_some_and(|device| device.is_active(pair.attr.port_num));
        let peer = pair.peer.filter(|_| active);
        let arrival = self.send_unreliably(index, peer, &message);
        Ok(Sent::Done { arrival, status: WcStatus::SUCCESS })
    }

    /// Lets a write arrive at a queue pair that hears; what its sender is told, if anything.
    pub(super) fn take_write(&mut self, index: u32, message: &Message<'_>, target: &Target) -> (Arrival, WcStatus) {
        let operation = if message.immediate.is_some() { Operation::WriteWithImmediate } else { Operation::Write };
        if let Err(status) = self.check_rights(index, operation) {
            return self.refuse(index, operation, status);
        }
        let Some(pair) = self.pairs.get(index) else { return (None, WcStatus::RETRY_EXC_ERR) };
        if message.immediate.is_some() && pair.receives.waiting() == 0 {
            return (None, WcStatus::RNR_RETRY_EXC_ERR);
        }
        let (domain, to) = (pair.domain, target.entry(message.length_bytes));
        if !self.regions.reaches(domain, &to, operation.needs())
            || (to.length > 0 && self.fill(domain, &[to], message.parts, to.length).is_err())
        {
            return self.refuse(index, operation, WcStatus::REM_ACCESS_ERR);
        }
        let Some(immediate) = message.immediate else { return (None, WcStatus::SUCCESS) };
        self.use_up_receive(index, message.length_bytes, immediate, message.solicited);
        (Some(index), WcStatus::SUCCESS)
    }

    /// A write that brought an immediate ends a receive, whose own memory it leaves alone.
    fn use_up_receive(&mut self, index: u32, length_bytes: u32, immediate: Be32, solicited: bool) {
        let Some(pair) = self.pairs.get_mut(index) else { return };
        pair.receives.mark_done(|request| {
            request.status = WcStatus::SUCCESS;
            request.byte_len = length_bytes;
            request.immediate = immediate;
            request.flags = WcFlags::WITH_IMM;
            request.solicited = solicited;
            request.written = true;
        });
    }

    /// Reads or changes memory at the other end; what it was lands in the local entries.
    fn fetch(
        &mut self,
        index: u32,
        operation: Operation,
        target: &Target,
        length_bytes: u32,
        parts: Parts<'_>,
    ) -> Result<Sent, WcStatus> {
        let Some(found) = self.find_taker(index)? else { return Ok(Sent::Waits) };
        let other_domain = self.pairs.get(found).map_or(u32::MAX, |pair| pair.domain);
        let at = target.entry(if operation.is_atomic() { WORD_BYTES } else { length_bytes });
        let answer = self
            .check_rights(found, operation)
            .and_then(|()| match self.regions.reaches(other_domain, &at, operation.needs()) {
                true => Ok(()),
                false => Err(WcStatus::REM_ACCESS_ERR),
            })
            .and_then(|()| if operation.is_atomic() { self.change(other_domain, operation, target) } else { Ok(0) });
        let status = match answer {
            Err(status) => {
                let (arrival, status) = self.refuse(found, operation, status);
                return Ok(Sent::Done { arrival, status });
            }
            // The other end has done its part; whether the answer can land is found when it comes.
            Ok(word) => self.land(parts, &word.to_ne_bytes(), operation, other_domain, &at),
        };
        Ok(Sent::Done { arrival: None, status })
    }

    /// Lets an answer land in the entries of who asked.
    fn land(&self, to: Parts<'_>, word: &[u8], operation: Operation, other_domain: u32, at: &Sge) -> WcStatus {
        if at.length == 0 {
            return WcStatus::SUCCESS;
        }
        let from = if operation.is_atomic() {
            Parts::Bytes(word)
        } else {
            Parts::Entries { domain: other_domain, entries: std::slice::from_ref(at) }
        };
        match to {
            Parts::Entries { domain, entries } => {
                self.fill(domain, entries, from, at.length).err().unwrap_or(WcStatus::SUCCESS)
            }
            // Inline bytes are no place to land in.
            Parts::Bytes(_) => WcStatus::LOC_PROT_ERR,
        }
    }

    /// Changes a word at the other end; what it was.
    fn change(&self, domain: u32, operation: Operation, target: &Target) -> Result<u64, WcStatus> {
        let change = |old| match operation {
            Operation::CompareSwap if old != target.compare_add => old,
            Operation::CompareSwap => target.swap,
            _ => old.wrapping_add(target.compare_add),
        };
        let mut old = None;
        self.regions
            .each_span_mut(domain, &target.entry(WORD_BYTES), 0, WORD_BYTES, |mut word| old = word.update_word(change))
            .map_err(|_| WcStatus::REM_ACCESS_ERR)?;
        // Aligned as the region counts, but not in memory; or in two regions of an indirect key.
        old.ok_or(WcStatus::REM_INV_REQ_ERR)
    }

    fn check_rights(&self, index: u32, operation: Operation) -> Result<(), WcStatus> {
        match self.pairs.get(index) {
            Some(pair) if pair.permits(operation) => Ok(()),
            _ => Err(WcStatus::REM_INV_REQ_ERR),
        }
    }

    /// Refuses an operation at the queue pair that it came to: what the other end is told.
    fn refuse(&mut self, index: u32, operation: Operation, status: WcStatus) -> (Arrival, WcStatus) {
        let Some(pair) = self.pairs.get_mut(index).filter(|pair| pair.kind == QpType::RC) else {
            return (None, status);
        };
        pair.state = QpState::ERR;
        let event = if status == WcStatus::REM_ACCESS_ERR { EventType::QP_ACCESS_ERR } else { EventType::QP_REQ_ERR };
        if operation == Operation::WriteWithImmediate
            && status == WcStatus::REM_ACCESS_ERR
            && pair.receives.waiting() > 0
        {
            pair.receives.mark_done(|request| request.status = status);
        }
        let context = pair.context;
        self.tell(context, event, index);
        (Some(index), status)
    }
}
