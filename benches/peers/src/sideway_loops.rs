//! `sideway` 0.4.3, its basic queue pair and queue: a guard for each post, a poller for each batch.

use std::num::NonZeroU32;
use std::sync::Arc;

use bareverbs_benches::c_side::Work;
use bareverbs_benches::provider::PAYLOAD_BYTES;
use sideway::ibverbs::completion::{BasicCompletionQueue, GenericCompletionQueue, PollCompletionQueueError};
use sideway::ibverbs::device::DeviceList;
use sideway::ibverbs::queue_pair::{
    BasicQueuePair, PostSendGuard, QueuePair, QueuePairType, SetScatterGatherEntry, WorkRequestFlags,
};

use crate::Peer;

struct Loops {
    queue_pair: BasicQueuePair,
    send_queue: Arc<BasicCompletionQueue>,
    recv_queue: Arc<BasicCompletionQueue>,
}

/// Sets up, and hands the loops over.
pub fn with(then: impl FnOnce(&mut dyn Peer)) {
    let devices = DeviceList::new().expect("the stand-in has a device");
    let context = devices.get(0).expect("the stand-in has a device").open().expect("it can be opened");
    let queue = || {
        let mut queue = context.create_cq_builder().setup_cqe(1024).build().expect("a queue");
        Arc::get_mut(&mut queue).expect("nobody else has it yet").setup_poll_batch(NonZeroU32::new(16).expect("not 0"));
        queue
    };
    let (send_queue, recv_queue) = (queue(), queue());
    let domain = context.alloc_pd().expect("a domain");
    let queue_pair = domain
        .create_qp_builder()
        .setup_qp_type(QueuePairType::UnreliableConnection)
        .setup_send_cq(GenericCompletionQueue::from(Arc::clone(&send_queue)))
        .setup_recv_cq(GenericCompletionQueue::from(Arc::clone(&recv_queue)))
        .build()
        .expect("a queue pair");
    then(&mut Loops { queue_pair, send_queue, recv_queue });
}

impl Peer for Loops {
    fn run(&mut self, work: Work, n: u64) -> u64 {
        match work {
            Work::Post => (0..n).map(|i| u64::from(self.post(i))).sum(),
            Work::PostReceive => (0..n).map(|i| u64::from(self.post_receive(i))).sum(),
            Work::PollSends => polls(&self.send_queue, n),
            Work::PollReceives => polls(&self.recv_queue, n),
            Work::PollEmpty => empty_polls(&self.send_queue, n),
            _ => 0,
        }
    }
}

impl Loops {
    #[inline]
    fn post(&mut self, wr_id: u64) -> bool {
        let mut guard = self.queue_pair.start_post_send();
        let request = guard.construct_wr(wr_id, WorkRequestFlags::Signaled).setup_send();
        // SAFETY: the provider follows no address.
        unsafe { request.setup_sge(7, 4096, PAYLOAD_BYTES as u32) };
        guard.post().is_ok()
    }

    #[inline]
    fn post_receive(&mut self, wr_id: u64) -> bool {
        let mut guard = self.queue_pair.start_post_recv();
        // SAFETY: the provider follows no address.
        unsafe { guard.construct_wr(wr_id).setup_sge(7, 4096, PAYLOAD_BYTES as u32) };
        guard.post().is_ok()
    }
}

#[inline(never)]
fn polls(queue: &BasicCompletionQueue, n: u64) -> u64 {
    let mut sum = 0;
    for _ in 0..n {
        let Ok(poller) = queue.start_poll() else { return 0 };
        // A poller polls again when its batch is used up.
        for completion in poller.take(16) {
            if completion.status() != 0 {
                return 0;
            }
            sum += (completion.wr_id() & 0xff) | 1;
        }
    }
    sum
}

#[inline(never)]
fn empty_polls(queue: &BasicCompletionQueue, n: u64) -> u64 {
    let empty = || matches!(queue.start_poll(), Err(PollCompletionQueueError::CompletionQueueEmpty));
    (0..n).map(|_| u64::from(empty())).sum()
}
