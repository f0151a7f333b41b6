//! The books of one-sided operations and a device that completes anything: what it has and what it has not, as it likes.
//!
//! The judge is a list of the requests that the device has.

use std::collections::VecDeque;

use bareverbs_core::link::{CarrierError, Direction, Fault, WorkId};
use bareverbs_core::one_sided::{Accepted, Arrival, Books, NotStarted, OperationId};
use bareverbs_core::verbs::completion::FailedCompletion;
use bareverbs_core::verbs::inline_calls::CompletionQueueCalls;
use bareverbs_core::verbs::{Be32, Wc, WcFlags, WcOpcode, WcStatus};

use crate::link::provider::{Device, QP_NUM};
use crate::reader::Reader;

/// Operations at a time.
const MOST: usize = 3;

/// Whatever a device completes, each operation that was in flight is told of once, its place is free only when the device has
/// none of its requests, and what matches nothing in flight ends nothing and breaks the books for good.
///
/// Bytes: slots of the send queue; then one step after the other.
pub fn one_sided(bytes: &[u8]) {
    thread_local! {
        static DEVICE: Device = Device::new(QP_NUM);
    }
    let mut reader = Reader::new(bytes);
    let mut judge = Judge::new(DEVICE.with(Clone::clone), reader.below(12) as u32);
    for _ in 0..200 {
        if reader.is_empty() {
            break;
        }
        judge.step(&mut reader);
        judge.check();
    }
}

/// A request that the device has.
#[derive(Clone, Copy)]
struct Request {
    wr_id: u64,
    operation: OperationId,
    slot: usize,
    is_last: bool,
}

struct Judge {
    books: Books<MOST>,
    queue: CompletionQueueCalls,
    device: Device,
    slots: u32,
    requests: VecDeque<Request>,
    /// Of each operation in flight, how many requests it began with: their slots are free with the last of them.
    parts: VecDeque<(OperationId, u32)>,
    receives: VecDeque<u64>,
    told: Vec<OperationId>,
    cause: Option<Fault>,
    past: Vec<u64>,
}

impl Judge {
    fn new(mut device: Device, slots: u32) -> Self {
        *device.world() = Default::default();
        let queue = device.queue();
        let books = Books::new(queue.id(), QP_NUM, slots).expect("numbers");
        Self {
            books,
            queue,
            device,
            slots,
            requests: VecDeque::new(),
            parts: VecDeque::new(),
            receives: VecDeque::new(),
            told: Vec::new(),
            cause: None,
            past: Vec::new(),
        }
    }

    fn step(&mut self, reader: &mut Reader<'_>) {
        match reader.below(10) {
            0 | 1 => self.start(reader),
            2 => self.post_receive(),
            3 | 4 => self.complete_honestly(reader),
            5 => self.arrive_honestly(reader),
            6 | 7 => self.complete_as_it_likes(reader),
            8 => self.tell_next(),
            _ => match reader.below(8) {
                0 => self.break_books(),
                1 => self.queue_pair_gone(),
                _ => self.complete_as_it_likes(reader),
            },
        }
    }

    /// What is true at any time.
    fn check(&self) {
        let in_flight: Vec<_> = self.parts.iter().map(|(operation, _)| *operation).collect();
        let waited_for: Vec<_> = in_flight.iter().filter(|live| !self.told.contains(live)).copied().collect();
        assert_eq!(self.books.cause(), self.cause, "the first stays");
        assert_eq!((self.books.in_flight(), self.books.untold()), (in_flight.len(), waited_for.len()));
        assert_eq!(self.books.pending().collect::<Vec<_>>(), waited_for);
        assert_eq!(self.books.receives() as usize, self.receives.len());
        let is_over = self.cause.is_some() && (waited_for.is_empty() || !self.is_flushed_only());
        assert_eq!(self.books.is_over(), is_over);
    }

    fn free(&self) -> u32 {
        self.slots - self.parts.iter().map(|(_, parts)| parts).sum::<u32>()
    }

    fn start(&mut self, reader: &mut Reader<'_>) {
        let (parts, drops_it) = (1 + reader.below(5) as u32, reader.below(8) == 0);
        let due = match (self.cause, self.parts.len(), self.free()) {
            (Some(cause), ..) => Some(NotStarted::Broken { cause }),
            (None, MOST, _) => Some(NotStarted::Full { operations: MOST }),
            (None, _, free) if free < parts => Some(NotStarted::NoSlots { free, need: parts }),
            _ => None,
        };
        let start = match self.books.start(parts) {
            Ok(start) => start,
            Err(refused) => {
                assert!(!refused.to_string().is_empty());
                return assert_eq!(Some(refused), due);
            }
        };
        assert_eq!(due, None);
        if drops_it {
            return;
        }
        let (slot, first) = (start.slot(), start.wr_id(0));
        assert!(slot < MOST && self.requests.iter().all(|request| request.slot != slot), "a place for one");
        let operation = self.books.posted(start);
        assert_eq!(operation.raw(), first);
        self.parts.push_back((operation, parts));
        for n in 0..parts {
            let wr_id = first + u64::from(n);
            assert!(!self.past.contains(&wr_id) && self.requests.iter().all(|request| request.wr_id != wr_id), "once");
            self.requests.push_back(Request { wr_id, operation, slot, is_last: n + 1 == parts });
        }
        if parts == 5 {
            // As where nobody knows what of it was accepted: told of by the post's error.
            self.books.break_with(Fault::Abandoned);
            self.breaks_with(Fault::Abandoned);
            self.books.told(operation);
            self.told.push(operation);
        }
    }

    fn post_receive(&mut self) {
        let wr_id = self.books.next_receive().expect("a number");
        assert!(!self.receives.contains(&wr_id) && !self.past.contains(&wr_id), "once");
        self.books.receive_posted();
        self.receives.push_back(wr_id);
    }

    /// The last request of the oldest operation, which is signalled, or one before it that failed.
    fn complete_honestly(&mut self, reader: &mut Reader<'_>) {
        let Some(last) = self.requests.iter().position(|request| request.is_last) else { return };
        let fails = reader.below(8) == 0;
        let at = if fails { reader.below(last as u64 + 1) as usize } else { last };
        let status = if fails { WcStatus::REM_ACCESS_ERR } else { WcStatus::SUCCESS };
        let wr_id = self.requests[at].wr_id;
        self.complete(Wc { wr_id, status, qp_num: QP_NUM, ..Wc::default() });
    }

    fn arrive_honestly(&mut self, reader: &mut Reader<'_>) {
        let Some(wr_id) = self.receives.front().copied() else { return };
        let (imm_data, byte_len) = (Be32::new(reader.u32()), reader.u32());
        let (opcode, wc_flags) = (WcOpcode::RECV_RDMA_WITH_IMM, WcFlags::WITH_IMM);
        self.complete(Wc { wr_id, opcode, wc_flags, imm_data, byte_len, qp_num: QP_NUM, ..Wc::default() });
    }

    fn complete_as_it_likes(&mut self, reader: &mut Reader<'_>) {
        let which = reader.below(6) as usize;
        let wr_id = match reader.below(8) {
            0 => reader.u64(),
            1 => WorkId::SEND_MARKER.raw(),
            2 => WorkId::RECV_MARKER.raw(),
            3 => self.past.get(which).copied().unwrap_or_default(),
            4 | 5 => self.requests.get(which).map_or(0, |request| request.wr_id),
            _ => self.receives.get(which).copied().unwrap_or_default(),
        };
        let odd = reader.byte();
        let mut wc = Wc { wr_id, qp_num: QP_NUM, imm_data: Be32::new(7), ..Wc::default() };
        if odd & 1 != 0 {
            wc.status = if odd & 16 != 0 { WcStatus::WR_FLUSH_ERR } else { WcStatus(reader.u32() & 0xff) };
        }
        wc.opcode = if odd & 2 != 0 { WcOpcode(reader.u32()) } else { WcOpcode::RECV_RDMA_WITH_IMM };
        wc.wc_flags = if odd & 4 != 0 { WcFlags::from_bits_retain(reader.u32()) } else { WcFlags::WITH_IMM };
        if odd & 8 != 0 {
            wc.qp_num = reader.u32();
        }
        self.complete(wc);
    }

    /// Gives a completion to the books and judges what comes of it.
    fn complete(&mut self, wc: Wc) {
        let (before, due) = (self.books, self.due(&wc));
        self.device.world().completions.push_back(wc);
        let mut room = [Wc::default()];
        let completion = self.queue.poll(&mut room).expect("it is there").next().expect("it is there");
        assert_eq!(self.books.accept(&completion), due, "{wc:?}");
        if due == Accepted::Foreign {
            assert_eq!(self.books, before);
        }
        self.past.insert(0, wc.wr_id);
        self.past.truncate(6);
    }

    /// What a completion must come to, by what the device has; and what it has then.
    fn due(&mut self, wc: &Wc) -> Accepted {
        if wc.qp_num != QP_NUM {
            return Accepted::Foreign;
        }
        let Wc { wr_id, status, qp_num, vendor_err, .. } = *wc;
        let failure = (status != WcStatus::SUCCESS).then_some(FailedCompletion { wr_id, status, qp_num, vendor_err });
        match WorkId::from_raw(wr_id).direction() {
            Direction::Send => self.due_send(wr_id, failure),
            Direction::Receive => self.due_receive(wc, failure),
        }
    }

    fn due_send(&mut self, wr_id: u64, failure: Option<FailedCompletion>) -> Accepted {
        let oldest = self.requests.front().map(|request| request.operation);
        let Some(at) = self.requests.iter().position(|request| request.wr_id == wr_id) else {
            return self.breaks(Fault::UnknownId { wr_id });
        };
        let Request { operation, slot, is_last, .. } = self.requests[at];
        if Some(operation) != oldest {
            return self.breaks(Fault::Skipped { wr_id, skipped: at as u32 });
        }
        self.requests.drain(..=at);
        if is_last {
            self.parts.pop_front();
        }
        if let Some(failure) = failure {
            self.breaks_with(Fault::Failed(failure));
        }
        let tell = !self.told.contains(&operation) && (is_last || failure.is_some());
        if tell {
            self.told.push(operation);
        }
        match (tell, failure) {
            (true, Some(failure)) => Accepted::Failed { operation, slot: is_last.then_some(slot), failure },
            (true, None) => Accepted::Ended { operation, slot },
            (false, _) if is_last => Accepted::Settled { slot },
            (false, _) => Accepted::Quiet,
        }
    }

    fn due_receive(&mut self, wc: &Wc, failure: Option<FailedCompletion>) -> Accepted {
        let wr_id = wc.wr_id;
        match self.receives.iter().position(|receive| *receive == wr_id) {
            None => return self.breaks(Fault::UnknownId { wr_id }),
            Some(0) => self.receives.pop_front(),
            Some(skipped) => return self.breaks(Fault::Skipped { wr_id, skipped: skipped as u32 }),
        };
        if let Some(failure) = failure {
            return self.breaks(Fault::Failed(failure));
        }
        if wc.opcode != WcOpcode::RECV_RDMA_WITH_IMM {
            return self.breaks(Fault::Unreadable { wr_id, error: CarrierError::Opcode { got: wc.opcode } });
        }
        if !wc.wc_flags.contains(WcFlags::WITH_IMM) {
            return self.breaks(Fault::Unreadable { wr_id, error: CarrierError::NoImmediate });
        }
        Accepted::Arrived(Arrival { immediate: wc.imm_data.get(), len_bytes: wc.byte_len })
    }

    /// The first stays, unless it is of a flushed receive, which says nothing of what was wrong.
    fn breaks_with(&mut self, fault: Fault) {
        if self.cause.is_none() || self.is_flushed_only() && !is_flush(&fault) {
            self.cause = Some(fault);
        }
    }

    fn is_flushed_only(&self) -> bool {
        self.cause.as_ref().is_some_and(is_flush)
    }

    fn breaks(&mut self, fault: Fault) -> Accepted {
        self.breaks_with(fault);
        Accepted::Quiet
    }

    fn tell_next(&mut self) {
        let next = self.parts.iter().map(|(operation, _)| *operation).find(|live| !self.told.contains(live));
        let next = next.filter(|_| self.cause.is_some() && !self.is_flushed_only());
        assert_eq!(self.books.tell_next(), next);
        self.told.extend(next);
    }

    fn break_books(&mut self) {
        self.books.break_with(Fault::Abandoned);
        self.breaks_with(Fault::Abandoned);
    }

    fn queue_pair_gone(&mut self) {
        self.books.queue_pair_gone();
        self.breaks_with(Fault::Abandoned);
        self.past.extend(self.requests.drain(..).map(|request| request.wr_id));
        self.past.extend(self.receives.drain(..));
        self.parts.clear();
    }
}

fn is_flush(fault: &Fault) -> bool {
    match fault {
        Fault::Failed(failure) => {
            failure.status == WcStatus::WR_FLUSH_ERR
                && WorkId::from_raw(failure.wr_id).direction() == Direction::Receive
        }
        _ => false,
    }
}
