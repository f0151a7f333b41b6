//! Work requests that own their entries, and how they are posted.
#![allow(unsafe_code)]
#![allow(clippy::undocumented_unsafe_blocks, reason = "every block calls the table with handles that the test owns")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "as above")]

use std::ffi::c_int;

use bareverbs_core::verbs::{Be32, Qp, RecvWr, SendFlags, SendWr, Sge, WrOpcode};

/// A work request with its entries, which it is pointed at when it is posted.
#[derive(Clone)]
pub struct Request<W> {
    pub wr: W,
    pub entries: Vec<Sge>,
}

impl<W> std::ops::Deref for Request<W> {
    type Target = W;
    fn deref(&self) -> &W {
        &self.wr
    }
}

impl<W> std::ops::DerefMut for Request<W> {
    fn deref_mut(&mut self) -> &mut W {
        &mut self.wr
    }
}

/// Links a chain, calls `post` with its first request, and tells the index of the one that `bad_wr` named.
fn post_chain<W: Copy>(
    chain: &mut [Request<W>],
    link: impl Fn(&mut W, *mut Sge, *mut W),
    post: impl Fn(*mut W, *mut *mut W) -> c_int,
) -> (c_int, Option<usize>) {
    let mut linked: Vec<W> = chain.iter().map(|request| request.wr).collect();
    let base = linked.as_mut_ptr();
    for (at, request) in chain.iter_mut().enumerate() {
        let next = if at + 1 < linked.len() { base.wrapping_add(at + 1) } else { std::ptr::null_mut() };
        let list = if request.entries.is_empty() { std::ptr::null_mut() } else { request.entries.as_mut_ptr() };
        link(unsafe { &mut *base.add(at) }, list, next);
    }
    let mut bad: *mut W = std::ptr::null_mut();
    let answer = post(base, &mut bad);
    (answer, (!bad.is_null()).then(|| (bad.addr() - base.addr()) / size_of::<W>()))
}

/// One post of sends, with the index of the request that `bad_wr` named.
pub fn post_send(qp: *mut Qp, chain: &mut [Request<SendWr>]) -> (c_int, Option<usize>) {
    post_chain(
        chain,
        |wr, list, next| (wr.sg_list, wr.next) = (list, next),
        |wr, bad| unsafe { ((*(*qp).context).ops.post_send.unwrap())(qp, wr, bad) },
    )
}

/// One post of receives, with the index of the request that `bad_wr` named.
pub fn post_recv(qp: *mut Qp, chain: &mut [Request<RecvWr>]) -> (c_int, Option<usize>) {
    post_chain(
        chain,
        |wr, list, next| (wr.sg_list, wr.next) = (list, next),
        |wr, bad| unsafe { ((*(*qp).context).ops.post_recv.unwrap())(qp, wr, bad) },
    )
}

/// A signalled send of several entries.
pub fn gather(wr_id: u64, entries: Vec<Sge>) -> Request<SendWr> {
    let wr = SendWr {
        wr_id,
        num_sge: entries.len() as c_int,
        opcode: WrOpcode::SEND,
        send_flags: SendFlags::SIGNALED,
        ..SendWr::EMPTY
    };
    Request { wr, entries }
}

/// A plain signalled send.
pub fn send(wr_id: u64, entry: Sge) -> Request<SendWr> {
    gather(wr_id, vec![entry])
}

/// A signalled send with immediate data.
pub fn send_imm(wr_id: u64, entry: Sge, immediate: u32) -> Request<SendWr> {
    let mut request = send(wr_id, entry);
    request.opcode = WrOpcode::SEND_WITH_IMM;
    request.imm_data = Be32::new(immediate);
    request
}

/// A receive into several entries.
pub fn scatter(wr_id: u64, entries: Vec<Sge>) -> Request<RecvWr> {
    let wr = RecvWr { wr_id, num_sge: entries.len() as c_int, ..RecvWr::EMPTY };
    Request { wr, entries }
}

/// A receive.
pub fn receive(wr_id: u64, entry: Sge) -> Request<RecvWr> {
    scatter(wr_id, vec![entry])
}
