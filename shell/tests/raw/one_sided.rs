//! One-sided operations, and ends that let each other perform them.
#![allow(unsafe_code)]
#![allow(clippy::undocumented_unsafe_blocks, reason = "every block reads what the table made for the test")]

use std::time::{Duration, Instant};

use bareverbs_core::verbs::{AccessFlags, Be32, Mr, QpAttr, QpAttrMask, QpCap, QpType, SendWr, Sge, WrOpcode};

use bareverbs_core::verbs::work_request::{AtomicTarget, RdmaTarget, SendTarget};

use super::calls::Env;
use super::ends::{CAP, End, INIT_MASK, RTR_MASK, RTS_MASK, init_attr, rtr_attr, rts_attr};
use super::reliable::{PATIENT, Patience, RC_RTR_MASK, RC_RTS_MASK, rc_rtr_attr, rc_rts_attr};
use super::requests::{Request, gather};

/// Every access that the other end can be given, and one's own.
pub const ALL: AccessFlags = AccessFlags::LOCAL_WRITE
    .union(AccessFlags::REMOTE_WRITE)
    .union(AccessFlags::REMOTE_READ)
    .union(AccessFlags::REMOTE_ATOMIC);

/// A place in the other end's memory.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    pub addr: u64,
    pub rkey: u32,
}

/// How two ends are made and connected.
#[derive(Clone, Copy)]
pub struct Setting {
    pub kind: QpType,
    pub cap: QpCap,
    /// What the other queue pair permits.
    pub queue_pair: AccessFlags,
    /// What the other end's region permits.
    pub region: AccessFlags,
    /// Reads and atomics under way at a time, as the requester has it.
    pub reads: u8,
    /// The same as the responder has it.
    pub answers: u8,
    pub patience: Patience,
}

/// A reliable pair with every right.
pub const RELIABLE: Setting = Setting {
    kind: QpType::RC,
    cap: CAP,
    queue_pair: ALL,
    region: ALL,
    reads: 4,
    answers: 4,
    patience: Patience { rnr_retry: 0, ..PATIENT },
};
/// An unreliable pair with every right.
pub const UNRELIABLE: Setting = Setting { kind: QpType::UC, ..RELIABLE };

/// An end that operates on the memory of another.
pub struct Scene {
    pub env: Env,
    pub one: End,
    pub other: End,
    /// The other end's memory, for all to reach whom its rights let.
    pub exposed: *mut Mr,
}

impl Scene {
    pub fn new(env: &Env, setting: Setting) -> Self {
        let end = || End::with(env, setting.cap, |init| init.qp_type = setting.kind);
        let (one, other) = (end(), end());
        connect(&one, &other, setting);
        Self::of(one, other, setting.region)
    }

    /// Of two ends that are connected.
    pub fn of(one: End, other: End, region: AccessFlags) -> Self {
        let exposed = other.register(region);
        Self { env: one.env.clone(), one, other, exposed }
    }

    /// Waits until a byte of the other end's memory is not 0: a write that nobody hears of arrives in its own time.
    pub fn await_byte(&self, offset: usize) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while self.other.read(offset, 1) == [0] {
            assert!(Instant::now() < deadline, "the write does not arrive");
            std::thread::yield_now();
        }
    }

    /// A place in the other end's exposed memory.
    pub fn target(&self, offset: usize) -> Target {
        self.other.target(self.exposed, offset)
    }

    pub fn post(&self, request: Request<SendWr>) {
        assert_eq!(super::requests::post_send(self.one.qp, &mut [request]), (0, None));
    }

    pub fn tear_down(self) {
        assert_eq!(self.env.dereg_mr(self.exposed), 0);
        self.tear_down_but_for_the_region();
    }

    /// As [`Scene::tear_down`] where the exposed region is gone already.
    pub fn tear_down_but_for_the_region(self) {
        self.one.tear_down();
        self.other.tear_down();
    }
}

/// Connects two ends.
pub fn connect(one: &End, other: &End, setting: Setting) {
    connect_ends(one, other, setting, [true, true]);
}

/// Connects two ends, of which the other cannot send.
pub fn connect_one_way(one: &End, other: &End, setting: Setting) {
    connect_ends(one, other, setting, [true, false]);
}

/// Connects an end to itself.
pub fn connect_to_itself(end: &End, setting: Setting) {
    connect_ends(end, end, setting, [true, false]);
}

fn connect_ends(one: &End, other: &End, setting: Setting, sends: [bool; 2]) {
    let both = if std::ptr::eq(one, other) { 1 } else { 2 };
    for ((end, peer), sends) in [(one, other), (other, one)].into_iter().zip(sends).take(both) {
        let env = &end.env;
        let attr = QpAttr { qp_access_flags: setting.queue_pair, ..init_attr() };
        assert_eq!(env.modify(end.qp, &attr, INIT_MASK), 0);
        let ((index, _), (_, dgid)) = (env.gid(end.context), env.gid(peer.context));
        let rtr = rtr_attr(peer.number(), dgid, index);
        if setting.kind == QpType::RC {
            let rtr = QpAttr { max_dest_rd_atomic: setting.answers, ..rc_rtr_attr(rtr) };
            assert_eq!(env.modify(end.qp, &rtr, RC_RTR_MASK), 0);
            if !sends {
                continue;
            }
            let rts = QpAttr { max_rd_atomic: setting.reads, ..rc_rts_attr(setting.patience) };
            assert_eq!(env.modify(end.qp, &rts, RC_RTS_MASK), 0);
        } else {
            assert_eq!(env.modify(end.qp, &rtr, RTR_MASK), 0);
            assert_eq!(env.modify(end.qp, &rts_attr(), RTS_MASK), 0);
        }
    }
}

/// A number of 8 bytes in an end's memory.
pub trait Word {
    fn word(&self, offset: usize) -> u64;
    fn set_word(&self, offset: usize, value: u64);
}

impl Word for End {
    fn word(&self, offset: usize) -> u64 {
        u64::from_ne_bytes(self.read(offset, 8).try_into().expect("8 bytes"))
    }

    fn set_word(&self, offset: usize, value: u64) {
        self.write(offset, &value.to_ne_bytes());
    }
}

/// Registers an end's memory from `skip` on, to be addressed from `iova` on; null where that is refused.
pub fn register_at(end: &End, skip: usize, length: usize, iova: u64) -> *mut Mr {
    let from = end.memory.cast::<u8>().wrapping_add(skip).cast();
    let call = end.env.symbols.reg_mr_iova2.expect("it is there");
    unsafe { call(end.pd, from, length, iova, ALL.bits()) }
}

/// Memory of any length, registered with every right.
pub struct Buffer {
    mr: *mut Mr,
    memory: *mut [u8],
}

impl Buffer {
    pub fn new(end: &End, length: usize, filled_with: u8) -> Self {
        let memory = Box::into_raw(vec![filled_with; length].into_boxed_slice());
        let mr = end.env.reg_mr(end.pd, memory, ALL);
        assert!(!mr.is_null());
        Self { mr, memory }
    }

    fn addr(&self) -> u64 {
        self.memory.cast::<u8>().expose_provenance() as u64
    }

    pub fn sge(&self) -> Sge {
        Sge { addr: self.addr(), length: self.memory.len() as u32, lkey: rkey(self.mr) }
    }

    pub fn target(&self) -> Target {
        Target { addr: self.addr(), rkey: rkey(self.mr) }
    }

    /// Waits until the last byte is `value`.
    pub fn await_last(&self, value: u8) {
        let deadline = Instant::now() + Duration::from_secs(20);
        let last = self.memory.cast::<u8>().wrapping_add(self.memory.len() - 1);
        while unsafe { last.read_volatile() } != value {
            assert!(Instant::now() < deadline, "the write does not arrive");
            std::thread::yield_now();
        }
    }

    pub fn all_are(&self, value: u8) -> bool {
        unsafe { &*self.memory }.iter().all(|byte| *byte == value)
    }

    pub fn free(self, env: &Env) {
        assert_eq!(env.dereg_mr(self.mr), 0);
        drop(unsafe { Box::from_raw(self.memory) });
    }
}

/// The key that the other end needs.
pub fn rkey(mr: *mut Mr) -> u32 {
    unsafe { (*mr).rkey }
}

/// A signalled operation on the other end's memory.
pub fn rdma(wr_id: u64, opcode: WrOpcode, entries: Vec<Sge>, at: Target) -> Request<SendWr> {
    let mut request = gather(wr_id, entries);
    request.opcode = opcode;
    request.wr.wr = SendTarget { rdma: RdmaTarget { remote_addr: at.addr, rkey: at.rkey } };
    request
}

pub fn write(wr_id: u64, entry: Sge, to: Target) -> Request<SendWr> {
    rdma(wr_id, WrOpcode::RDMA_WRITE, vec![entry], to)
}

pub fn write_imm(wr_id: u64, entry: Sge, to: Target, immediate: u32) -> Request<SendWr> {
    let mut request = rdma(wr_id, WrOpcode::RDMA_WRITE_WITH_IMM, vec![entry], to);
    request.imm_data = Be32::new(immediate);
    request
}

pub fn read(wr_id: u64, entry: Sge, from: Target) -> Request<SendWr> {
    rdma(wr_id, WrOpcode::RDMA_READ, vec![entry], from)
}

fn atomic(wr_id: u64, opcode: WrOpcode, entry: Sge, at: Target, compare_add: u64, swap: u64) -> Request<SendWr> {
    let mut request = gather(wr_id, vec![entry]);
    request.opcode = opcode;
    request.wr.wr = SendTarget { atomic: AtomicTarget { remote_addr: at.addr, compare_add, swap, rkey: at.rkey } };
    request
}

pub fn fetch_add(wr_id: u64, entry: Sge, at: Target, add: u64) -> Request<SendWr> {
    atomic(wr_id, WrOpcode::ATOMIC_FETCH_AND_ADD, entry, at, add, 0)
}

pub fn compare_swap(wr_id: u64, entry: Sge, at: Target, compare: u64, swap: u64) -> Request<SendWr> {
    atomic(wr_id, WrOpcode::ATOMIC_CMP_AND_SWP, entry, at, compare, swap)
}

/// How an operation on 8 bytes is made.
pub type Build = fn(u64, Sge, Target) -> Request<SendWr>;

/// An operation, and what matters of it.
pub struct Operation {
    pub name: &'static str,
    pub needs: AccessFlags,
    pub build: Build,
    /// Whether it uses up a receive.
    pub uses_receive: bool,
    /// Whether bytes come back.
    pub is_answered: bool,
    pub is_atomic: bool,
}

const WRITE: Operation = Operation {
    name: "write",
    needs: AccessFlags::REMOTE_WRITE,
    build: write,
    uses_receive: false,
    is_answered: false,
    is_atomic: false,
};
const ATOMIC: Operation = Operation {
    name: "fetch-and-add",
    needs: AccessFlags::REMOTE_ATOMIC,
    build: |wr_id, entry, at| fetch_add(wr_id, entry, at, 1),
    is_answered: true,
    is_atomic: true,
    ..WRITE
};

/// Every operation; the atomics make a 0 a 1.
pub const OPERATIONS: [Operation; 5] = [
    WRITE,
    Operation {
        name: "write with immediate",
        build: |wr_id, entry, at| write_imm(wr_id, entry, at, 7),
        uses_receive: true,
        ..WRITE
    },
    Operation { name: "read", needs: AccessFlags::REMOTE_READ, build: read, is_answered: true, ..WRITE },
    ATOMIC,
    Operation { name: "compare-and-swap", build: |wr_id, entry, at| compare_swap(wr_id, entry, at, 0, 1), ..ATOMIC },
];
