//! Reliable connected queue pairs: a send is done when its message was delivered, and tried again until then.
//!
//! There is no clock. A try is made when the send's turn comes, whenever something changes that was in its way, and, for
//! the time that passes on a device, at each poll of its completion queue that finds nothing. So many tries in vain as the
//! queue pair allows, and one more, fail the send: `RNR_RETRY_EXC_ERR` where the other end had no receive posted,
//! `RETRY_EXC_ERR` where nobody answered. With an RNR retry of 7, or a timeout of 0, that never happens; a retry count of 7
//! is a count like any other.
//!
//! What befalls a message on its way ([`MessageFault`]) befalls one try: a message lost or spoilt is sent again, one that
//! arrives twice is taken once.

use bareverbs_core::verbs::{QpState, QpType, WcStatus};

use crate::soft::engine::{Message, Sent};
use crate::soft::message_faults::MessageFault;
use crate::soft::one_sided::Operation;
use crate::soft::queue_pair::{QueuePair, Tries};
use crate::soft::queue_state::hears;
use crate::soft::state::State;

/// What keeps a message from being delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Obstacle {
    /// Nobody answers: there is no such queue pair, or it is not connected to this one, or a port is down.
    Silence,
    /// No receive is posted.
    NotReady,
}

/// The RNR retry count that means: for ever.
const FOR_EVER: u8 = 7;

impl QueuePair {
    /// Whether its next send was tried in vain and waits for another try.
    pub(super) fn waits(&self) -> bool {
        // A queue that drains goes on with what it has begun.
        let goes_on = matches!(self.state, QpState::RTS | QpState::SQD);
        self.tries != Tries::default() && goes_on && self.sends.waiting() > 0
    }

    /// Counts a try in vain; the status of the send if it was one too many.
    fn tried(&mut self, obstacle: Obstacle) -> Option<WcStatus> {
        let (tries, limit, status) = match obstacle {
            Obstacle::Silence => {
                let limit = (self.attr.timeout != 0).then_some(self.attr.retry_cnt);
                (&mut self.tries.unheard, limit, WcStatus::RETRY_EXC_ERR)
            }
            Obstacle::NotReady => {
                let limit = Some(self.attr.rnr_retry).filter(|limit| *limit != FOR_EVER);
                (&mut self.tries.not_ready, limit, WcStatus::RNR_RETRY_EXC_ERR)
            }
        };
        *tries = tries.saturating_add(1);
        limit.is_some_and(|limit| *tries > limit).then_some(status)
    }
}

impl State {
    /// Whether the next send of a reliable queue pair may be taken up: it was not tried yet, or nothing is in its way.
    pub(super) fn may_try(&self, index: u32) -> bool {
        let Some(pair) = self.pairs.get(index).filter(|pair| !pair.lacks_depth()) else { return false };
        pair.tries == Tries::default() || self.find_way(index).is_ok()
    }

    /// The queue pair that hears what this one sends.
    pub(super) fn find_listener(&self, index: u32) -> Option<u32> {
        let is_active = |pair: &QueuePair| {
            self.devices.get(pair.device as usize).is_some_and(|device| device.is_active(pair.attr.port_num))
        };
        let from = self.pairs.get(index).filter(|pair| is_active(pair))?;
        let found = from.peer.and_then(|peer| self.find_peer(peer))?;
        let to = self.pairs.get(found).filter(|pair| is_active(pair) && hears(pair.state))?;
        let peer = to.peer.filter(|peer| peer.device == from.device && to.kind == from.kind)?;
        (to.kind != QpType::RC || peer.number == from.number).then_some(found)
    }

    /// The queue pair that a message of this one would be delivered to, or what is in the way.
    fn find_way(&self, index: u32) -> Result<u32, Obstacle> {
        let found = self.find_listener(index).ok_or(Obstacle::Silence)?;
        let (Some(from), Some(to)) = (self.pairs.get(index), self.pairs.get(found)) else {
            return Err(Obstacle::Silence);
        };
        let takes_receive = match from.next_operation() {
            None => true,
            Some(operation) => operation == Operation::WriteWithImmediate && to.permits(operation),
        };
        if takes_receive && to.receives.waiting() == 0 { Err(Obstacle::NotReady) } else { Ok(found) }
    }

    /// Tries to deliver a message of a reliable queue pair.
    pub(super) fn send_reliably(&mut self, index: u32, message: &Message<'_>) -> Result<Sent, WcStatus> {
        let Some(found) = self.find_taker(index)? else { return Ok(Sent::Waits) };
        let arrival = self.arrive(found, message);
        Ok(Sent::Done { arrival, status: self.acknowledgement(found) })
    }

    /// Makes one try: the queue pair that takes what this one has next, or `None` where that stays in its queue.
    pub(super) fn find_taker(&mut self, index: u32) -> Result<Option<u32>, WcStatus> {
        let way = self.find_way(index).and_then(|found| match self.faults.on_message() {
            None | Some(MessageFault::Duplicate) => Ok(found),
            Some(_) => Err(Obstacle::Silence),
        });
        let pair = self.pairs.get_mut(index).ok_or(WcStatus::GENERAL_ERR)?;
        match way {
            Ok(found) => {
                pair.tries = Tries::default();
                if let Some(peer) = &mut pair.peer {
                    peer.guess = found;
                }
                Ok(Some(found))
            }
            Err(obstacle) => {
                self.schedule.somebody_waits = true;
                pair.tried(obstacle).map_or(Ok(None), Err)
            }
        }
    }

    /// How the sender's completion says that the receive ended which a queue pair ended last.
    fn acknowledgement(&self, receiver: u32) -> WcStatus {
        let last = self.pairs.get(receiver).and_then(|pair| pair.receives.last_done());
        match last.map(|request| request.status) {
            Some(WcStatus::SUCCESS) => WcStatus::SUCCESS,
            Some(WcStatus::LOC_LEN_ERR) => WcStatus::REM_INV_REQ_ERR,
            _ => WcStatus::REM_OP_ERR,
        }
    }

    /// Lets time pass for the sends that wait and complete to a queue: one more try for each.
    #[cold]
    pub(super) fn try_again(&mut self, queue: u32) {
        self.schedule.somebody_waits = false;
        for index in 0..self.pairs.bound() {
            let Some(pair) = self.pairs.get(index).filter(|pair| pair.waits()) else { continue };
            self.schedule.somebody_waits = true;
            if pair.send_cq == queue {
                self.deliver(index);
                self.settle(index);
            }
        }
    }
}
