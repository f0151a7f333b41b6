//! `ibverbs` 0.9.2: each post fills a request in.

use bareverbs_benches::c_side::Work;
use bareverbs_benches::provider::PAYLOAD_BYTES;
use ibverbs::{CompletionQueue, MemoryRegion, QueuePair, ibv_qp_type, ibv_wc};

use crate::Peer;

struct Loops<'a> {
    queue_pair: QueuePair<'a>,
    send_queue: &'a CompletionQueue<'a>,
    recv_queue: &'a CompletionQueue<'a>,
    region: MemoryRegion<u8>,
}

/// Sets up, and hands the loops over.
pub fn with(then: impl FnOnce(&mut dyn Peer)) {
    let devices = ibverbs::devices().expect("the stand-in has a device");
    let context = devices.get(0).expect("the stand-in has a device").open().expect("it can be opened");
    let send_queue = context.create_cq(1024, 0).expect("a queue");
    let recv_queue = context.create_cq(1024, 1).expect("a queue");
    let domain = context.alloc_pd().expect("a domain");
    let prepared = domain.create_qp(&send_queue, &recv_queue, ibv_qp_type::IBV_QPT_UC).build().expect("a queue pair");
    let endpoint = prepared.endpoint();
    let queue_pair = prepared.handshake(endpoint).expect("the stand-in agrees");
    let region = domain.allocate::<u8>(4096).expect("a region");
    then(&mut Loops { queue_pair, send_queue: &send_queue, recv_queue: &recv_queue, region });
}

impl Peer for Loops<'_> {
    fn run(&mut self, work: Work, n: u64) -> u64 {
        match work {
            Work::Post => (0..n).map(|i| u64::from(self.post(i))).sum(),
            Work::PostReceive => (0..n).map(|i| u64::from(self.post_receive(i))).sum(),
            Work::PollSends => polls(self.send_queue, n),
            Work::PollReceives => polls(self.recv_queue, n),
            Work::PollEmpty => empty_polls(self.send_queue, n),
            _ => 0,
        }
    }
}

impl Loops<'_> {
    #[inline]
    fn post(&mut self, wr_id: u64) -> bool {
        // SAFETY: the provider follows no address.
        unsafe { self.queue_pair.post_send(&mut self.region, ..PAYLOAD_BYTES, wr_id) }.is_ok()
    }

    #[inline]
    fn post_receive(&mut self, wr_id: u64) -> bool {
        // SAFETY: the provider follows no address.
        unsafe { self.queue_pair.post_receive(&mut self.region, ..PAYLOAD_BYTES, wr_id) }.is_ok()
    }
}

#[inline(never)]
fn polls(queue: &CompletionQueue<'_>, n: u64) -> u64 {
    let mut room = [ibv_wc::default(); 16];
    let mut sum = 0;
    for _ in 0..n {
        let Ok(completions) = queue.poll(&mut room) else { return 0 };
        for completion in completions {
            if completion.error().is_some() {
                return 0;
            }
            sum += (completion.wr_id() & 0xff) | 1;
        }
    }
    sum
}

#[inline(never)]
fn empty_polls(queue: &CompletionQueue<'_>, n: u64) -> u64 {
    let mut room = [ibv_wc::default(); 16];
    (0..n).map(|_| u64::from(queue.poll(&mut room).is_ok_and(|completions| completions.is_empty()))).sum()
}
