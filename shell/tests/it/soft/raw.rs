//! Verbs called raw, with the owner's duties left to the test: what the shell's own objects never let happen can be done
//! here.
#![allow(unsafe_code)]
#![allow(clippy::undocumented_unsafe_blocks, reason = "every block calls the table with handles that the test owns")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "as above")]

use std::ffi::{CStr, c_int, c_void};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bareverbs_core::verbs::{
    AccessFlags, AhAttr, Be32, Context, Cq, Device, Gid, GlobalRoute, LinkLayer, Mr, Mtu, Pd, PortAttr, Qp, QpAttr,
    QpAttrMask, QpCap, QpInitAttr, QpState, QpType, RecvWr, SendFlags, SendWr, Sge, Wc, WcStatus, WrOpcode,
};
use bareverbs_shell::symbols::Symbols;

/// What a test runs on.
#[derive(Clone)]
pub struct Env {
    pub symbols: Arc<Symbols>,
    pub device: &'static str,
    /// Whether the stricter rules hold that the software fabric has on purpose.
    pub strict: bool,
    /// How long nothing is to be seen before a test believes that nothing comes.
    pub quiet: Duration,
}

/// The calling thread's errno.
pub fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Sets the calling thread's errno to 0.
pub fn clear_errno() {
    #[cfg(target_os = "linux")]
    unsafe {
        *libc::__errno_location() = 0;
    }
    #[cfg(target_os = "macos")]
    unsafe {
        *libc::__error() = 0;
    }
}

/// Names of all devices.
pub fn device_names(symbols: &Symbols) -> Vec<String> {
    unsafe {
        let mut count = 0;
        let list = (symbols.get_device_list)(&mut count);
        assert!(!list.is_null(), "errno {}", errno());
        let names = (0..count as usize).map(|at| name_of(symbols, *list.add(at))).collect();
        (symbols.free_device_list)(list);
        names
    }
}

fn name_of(symbols: &Symbols, device: *mut Device) -> String {
    unsafe { CStr::from_ptr((symbols.get_device_name)(device)).to_string_lossy().into_owned() }
}

impl Env {
    pub fn open(&self) -> *mut Context {
        open(&self.symbols, self.device)
    }

    pub fn close(&self, context: *mut Context) -> c_int {
        unsafe { (self.symbols.close_device)(context) }
    }

    pub fn alloc_pd(&self, context: *mut Context) -> *mut Pd {
        unsafe { (self.symbols.alloc_pd)(context) }
    }

    pub fn dealloc_pd(&self, pd: *mut Pd) -> c_int {
        unsafe { (self.symbols.dealloc_pd)(pd) }
    }

    pub fn reg_mr(&self, pd: *mut Pd, memory: *mut [u8], access: AccessFlags) -> *mut Mr {
        unsafe { (self.symbols.reg_mr)(pd, memory.cast::<c_void>(), memory.len(), access.bits() as c_int) }
    }

    pub fn dereg_mr(&self, mr: *mut Mr) -> c_int {
        unsafe { (self.symbols.dereg_mr)(mr) }
    }

    pub fn create_cq(&self, context: *mut Context, entries: c_int) -> *mut Cq {
        unsafe { (self.symbols.create_cq)(context, entries, std::ptr::null_mut(), std::ptr::null_mut(), 0) }
    }

    pub fn destroy_cq(&self, cq: *mut Cq) -> c_int {
        unsafe { (self.symbols.destroy_cq)(cq) }
    }

    pub fn create_qp(&self, pd: *mut Pd, init: &mut QpInitAttr) -> *mut Qp {
        unsafe { (self.symbols.create_qp)(pd, init) }
    }

    pub fn destroy_qp(&self, qp: *mut Qp) -> c_int {
        unsafe { (self.symbols.destroy_qp)(qp) }
    }

    pub fn modify(&self, qp: *mut Qp, attr: &QpAttr, mask: QpAttrMask) -> c_int {
        let mut attr = *attr;
        unsafe { (self.symbols.modify_qp)(qp, &mut attr, mask.bits() as c_int) }
    }

    pub fn move_to(&self, qp: *mut Qp, state: QpState) -> c_int {
        self.modify(qp, &QpAttr { qp_state: state, ..QpAttr::default() }, QpAttrMask::STATE)
    }

    pub fn port(&self, context: *mut Context) -> PortAttr {
        let mut attr = [PortAttr::default(); 2];
        assert_eq!(unsafe { (self.symbols.query_port)(context, 1, attr.as_mut_ptr()) }, 0);
        attr[0]
    }

    /// The first GID of the port that is IPv4-mapped, with its index; else index 0.
    pub fn gid(&self, context: *mut Context) -> (u8, Gid) {
        let gids = (0..self.port(context).gid_tbl_len).map(|index| {
            let mut gid = Gid::ZERO;
            unsafe { (self.symbols.query_gid)(context, 1, index, &mut gid) };
            (index as u8, gid)
        });
        let gids: Vec<_> = gids.take(16).collect();
        gids.iter().find(|(_, gid)| gid.ipv4().is_some()).copied().unwrap_or(gids[0])
    }

    /// Polls until `count` completions came, or for long.
    pub fn poll(&self, cq: *mut Cq, count: usize) -> Vec<Wc> {
        let deadline = Instant::now() + Duration::from_secs(10);
        let mut found = Vec::new();
        while found.len() < count {
            assert!(Instant::now() < deadline, "{} of {count} completions came: {found:?}", found.len());
            found.extend(self.poll_once(cq));
            std::thread::yield_now();
        }
        found
    }

    /// Polls for one completion.
    pub fn poll_once(&self, cq: *mut Cq) -> Option<Wc> {
        let mut wc = Wc::default();
        match poll_raw(cq, std::slice::from_mut(&mut wc)) {
            0 => None,
            1 => Some(wc),
            other => panic!("polling answered {other}"),
        }
    }

    /// Polls until nothing came for long enough; what came before.
    pub fn drain(&self, cq: *mut Cq) -> Vec<Wc> {
        let mut found = Vec::new();
        let (mut since, mut polls) = (Instant::now(), 0);
        while since.elapsed() < self.quiet || polls < 200 {
            polls += 1;
            if let Some(wc) = self.poll_once(cq) {
                found.push(wc);
                (since, polls) = (Instant::now(), 0);
            }
            std::thread::yield_now();
        }
        found
    }
}

/// Opens a device by name.
pub fn open(symbols: &Symbols, device: &str) -> *mut Context {
    unsafe {
        let mut count = 0;
        let list = (symbols.get_device_list)(&mut count);
        assert!(!list.is_null(), "errno {}", errno());
        let found = (0..count as usize).map(|at| *list.add(at)).find(|entry| name_of(symbols, *entry) == device);
        let context = (symbols.open_device)(found.expect("the device is listed"));
        (symbols.free_device_list)(list);
        assert!(!context.is_null(), "errno {}", errno());
        context
    }
}

/// One poll.
pub fn poll_raw(cq: *mut Cq, room: &mut [Wc]) -> c_int {
    unsafe { ((*(*cq).context).ops.poll_cq.unwrap())(cq, room.len() as c_int, room.as_mut_ptr()) }
}

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

/// The sizes that most tests ask for.
pub const CAP: QpCap = QpCap { max_send_wr: 16, max_recv_wr: 16, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 0 };

/// What a UC queue pair is made with.
pub fn uc(cq: *mut Cq, cap: QpCap) -> QpInitAttr {
    QpInitAttr {
        qp_context: std::ptr::null_mut(),
        send_cq: cq,
        recv_cq: cq,
        srq: std::ptr::null_mut(),
        cap,
        qp_type: QpType::UC,
        sq_sig_all: 0,
    }
}

pub const INIT_MASK: QpAttrMask =
    QpAttrMask::STATE.union(QpAttrMask::PKEY_INDEX).union(QpAttrMask::PORT).union(QpAttrMask::ACCESS_FLAGS);
pub const RTR_MASK: QpAttrMask = QpAttrMask::STATE
    .union(QpAttrMask::AV)
    .union(QpAttrMask::PATH_MTU)
    .union(QpAttrMask::DEST_QPN)
    .union(QpAttrMask::RQ_PSN);
pub const RTS_MASK: QpAttrMask = QpAttrMask::STATE.union(QpAttrMask::SQ_PSN);

pub fn init_attr() -> QpAttr {
    QpAttr { qp_state: QpState::INIT, port_num: 1, qp_access_flags: AccessFlags::LOCAL_WRITE, ..QpAttr::default() }
}

pub fn rtr_attr(to: u32, dgid: Gid, sgid_index: u8) -> QpAttr {
    QpAttr {
        qp_state: QpState::RTR,
        path_mtu: Mtu::B1024,
        dest_qp_num: to,
        rq_psn: 7,
        ah_attr: AhAttr {
            grh: GlobalRoute { dgid, sgid_index, hop_limit: 255, ..GlobalRoute::default() },
            is_global: 1,
            port_num: 1,
            ..AhAttr::default()
        },
        ..QpAttr::default()
    }
}

pub fn rts_attr() -> QpAttr {
    QpAttr { qp_state: QpState::RTS, sq_psn: 7, ..QpAttr::default() }
}

/// One end of a connection: everything it takes, and memory of its own.
pub struct End {
    pub env: Env,
    pub context: *mut Context,
    pub pd: *mut Pd,
    pub cq: *mut Cq,
    pub qp: *mut Qp,
    pub mr: *mut Mr,
    memory: *mut [u8],
}

/// Bytes of an end's memory: 16 frames of 4 KiB.
pub const MEMORY: usize = 16 * 4096;

impl End {
    pub fn new(env: &Env) -> Self {
        Self::with(env, CAP, |_| ())
    }

    pub fn with(env: &Env, cap: QpCap, change: impl FnOnce(&mut QpInitAttr)) -> Self {
        let context = env.open();
        let pd = env.alloc_pd(context);
        assert!(!pd.is_null());
        let cq = env.create_cq(context, 64);
        assert!(!cq.is_null());
        let memory = Box::into_raw(vec![0_u8; MEMORY].into_boxed_slice());
        let mr = env.reg_mr(pd, memory, AccessFlags::LOCAL_WRITE);
        assert!(!mr.is_null());
        let mut init = uc(cq, cap);
        change(&mut init);
        let qp = env.create_qp(pd, &mut init);
        assert!(!qp.is_null(), "errno {}", errno());
        Self { env: env.clone(), context, pd, cq, qp, mr, memory }
    }

    pub fn number(&self) -> u32 {
        unsafe { (*self.qp).qp_num }
    }

    pub fn lkey(&self) -> u32 {
        unsafe { (*self.mr).lkey }
    }

    pub fn to_init(&self) {
        assert_eq!(self.env.modify(self.qp, &init_attr(), INIT_MASK), 0);
    }

    pub fn to_rtr(&self, peer: &Self) -> c_int {
        let (index, _) = self.env.gid(self.context);
        let (_, dgid) = peer.env.gid(peer.context);
        self.env.modify(self.qp, &rtr_attr(peer.number(), dgid, index), RTR_MASK)
    }

    pub fn to_rts(&self) {
        assert_eq!(self.env.modify(self.qp, &rts_attr(), RTS_MASK), 0);
    }

    /// An entry of its memory.
    pub fn sge(&self, offset: usize, length: u32) -> Sge {
        Sge { addr: (self.memory.cast::<u8>().expose_provenance() + offset) as u64, length, lkey: self.lkey() }
    }

    pub fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= MEMORY);
        unsafe { self.memory.cast::<u8>().add(offset).copy_from(bytes.as_ptr(), bytes.len()) };
    }

    pub fn read(&self, offset: usize, length: usize) -> Vec<u8> {
        assert!(offset + length <= MEMORY);
        let mut bytes = vec![0; length];
        unsafe { self.memory.cast::<u8>().add(offset).copy_to(bytes.as_mut_ptr(), length) };
        bytes
    }

    pub fn post_receive(&self, wr_id: u64, offset: usize, length: u32) {
        assert_eq!(post_recv(self.qp, &mut [receive(wr_id, self.sge(offset, length))]), (0, None));
    }

    pub fn post_send(&self, wr_id: u64, offset: usize, length: u32) {
        assert_eq!(post_send(self.qp, &mut [send(wr_id, self.sge(offset, length))]), (0, None));
    }

    pub fn poll(&self, count: usize) -> Vec<Wc> {
        self.env.poll(self.cq, count)
    }

    /// Destroys everything in order, and asserts that each call was granted.
    pub fn tear_down(self) {
        let env = &self.env;
        let answers = [
            env.dereg_mr(self.mr),
            env.destroy_qp(self.qp),
            env.destroy_cq(self.cq),
            env.dealloc_pd(self.pd),
            env.close(self.context),
        ];
        assert_eq!(answers, [0; 5]);
        drop(unsafe { Box::from_raw(self.memory) });
    }
}

/// Two ends connected to each other.
pub fn pair(env: &Env) -> (End, End) {
    connect(End::new(env), End::new(env))
}

pub fn connect(one: End, other: End) -> (End, End) {
    for (end, peer) in [(&one, &other), (&other, &one)] {
        end.to_init();
        assert_eq!(end.to_rtr(peer), 0);
        end.to_rts();
    }
    (one, other)
}

/// Statuses of completions, by request.
pub fn statuses(completions: &[Wc]) -> Vec<(u64, WcStatus)> {
    completions.iter().map(|wc| (wc.wr_id, wc.status)).collect()
}

/// Whether packets of the port need a global route.
pub fn link_layer(env: &Env, context: *mut Context) -> LinkLayer {
    env.port(context).link_layer
}

/// Asserts that every object of an end names its parents, its memory and itself.
pub fn check_back_pointers(end: &End) {
    unsafe {
        assert_eq!((*end.pd).context, end.context);
        assert_eq!((*end.cq).context, end.context);
        assert!((*end.cq).cqe >= 64);
        assert_eq!(((*end.mr).context, (*end.mr).pd), (end.context, end.pd));
        assert_eq!(((*end.mr).addr.addr() as u64, (*end.mr).length), (end.sge(0, 0).addr, MEMORY));
        assert_eq!(((*end.qp).context, (*end.qp).pd), (end.context, end.pd));
        assert_eq!(((*end.qp).send_cq, (*end.qp).recv_cq), (end.cq, end.cq));
        assert_eq!((*end.qp).qp_type, QpType::UC);
    }
}

/// What `ibv_query_qp` says, where there is one.
pub fn query(end: &End) -> Option<(QpAttr, QpInitAttr)> {
    let call = end.env.symbols.query_qp?;
    let (mut attr, mut init) = (QpAttr::default(), uc(std::ptr::null_mut(), QpCap::default()));
    let mask = QpAttrMask::STATE | QpAttrMask::CAP | QpAttrMask::DEST_QPN | QpAttrMask::SQ_PSN;
    assert_eq!(unsafe { call(end.qp, &mut attr, mask.bits() as c_int, &mut init) }, 0);
    Some((attr, init))
}

/// Whether the list of devices is null.
pub fn device_list_is_null(symbols: &Symbols) -> bool {
    unsafe { (symbols.get_device_list)(std::ptr::null_mut()).is_null() }
}

/// Opens a device by name: `None` where the list is refused, null where the device is.
pub fn try_open(symbols: &Symbols, device: &str) -> Option<*mut Context> {
    unsafe {
        let mut count = 0;
        let list = (symbols.get_device_list)(&mut count);
        if list.is_null() {
            return None;
        }
        let found = (0..count as usize).map(|at| *list.add(at)).find(|entry| name_of(symbols, *entry) == device);
        let context = found.map(|device| (symbols.open_device)(device));
        (symbols.free_device_list)(list);
        context
    }
}

/// The context of a completion queue.
pub fn context_of(cq: *mut Cq) -> *mut Context {
    unsafe { (*cq).context }
}

/// What the port query answers.
pub fn port_answer(env: &Env, context: *mut Context) -> c_int {
    unsafe { (env.symbols.query_port)(context, 1, &mut PortAttr::default()) }
}

/// Uses a device after its list was freed, in every way.
pub fn use_device_after_free(symbols: &Symbols) {
    unsafe {
        let list = (symbols.get_device_list)(std::ptr::null_mut());
        let device = *list;
        (symbols.free_device_list)(list);
        assert!((symbols.get_device_name)(device).is_null());
        assert!((symbols.open_device)(device).is_null());
        (symbols.free_device_list)(list);
    }
}

/// The transport that the context's device claims.
pub fn transport(context: *mut Context) -> bareverbs_core::verbs::TransportType {
    unsafe { (*(*context).device).transport_type }
}

/// The file of asynchronous events.
pub fn async_fd(context: *mut Context) -> c_int {
    unsafe { (*context).async_fd }
}

/// A region's key.
pub fn key_of(mr: *mut Mr) -> u32 {
    unsafe { (*mr).lkey }
}

/// Frees memory that was leaked from a box.
pub fn free(memory: *mut [u8]) {
    drop(unsafe { Box::from_raw(memory) });
}

/// One slot of the port's GID table, as the plain query tells it.
pub fn query_gid(env: &Env, context: *mut Context, index: c_int) -> (c_int, Gid) {
    let mut gid = Gid::ZERO;
    let answer = unsafe { (env.symbols.query_gid)(context, 1, index, &mut gid) };
    (answer, gid)
}

/// Index and type of one slot of the port's GID table.
pub fn query_gid_ex(env: &Env, context: *mut Context, index: u32) -> Result<(u32, u32), c_int> {
    let mut entry = bareverbs_core::verbs::GidEntry::default();
    let call = env.symbols.query_gid_ex.expect("it is there");
    match unsafe { call(context, 1, index, &mut entry, 0, 32) } {
        0 => Ok((entry.gid_index, entry.gid_type.0)),
        other => Err(other),
    }
}

/// How many bytes of a struct a query fills: found out by two fillings of the room.
fn bytes_filled(query: impl Fn(*mut PortAttr) -> c_int) -> usize {
    let filled_over = |word: u64| {
        let mut room = [word; 8];
        assert_eq!(query(room.as_mut_ptr().cast()), 0);
        room.map(u64::to_ne_bytes).concat()
    };
    let (zeros, ones) = (filled_over(0), filled_over(u64::MAX));
    let last = zeros.iter().zip(&ones).rposition(|(zero, one)| zero == one);
    last.map_or(0, |last| last + 1)
}

/// Bytes that the exported port query fills.
pub fn bytes_of_port_query(env: &Env, context: *mut Context) -> usize {
    bytes_filled(|room| unsafe { (env.symbols.query_port)(context, 1, room) })
}

/// An operation in front of the context, after the checks that a caller must make.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn extended(context: *mut Context, slot: bareverbs_core::verbs::context::ExtendedSlot) -> *mut c_void {
    use bareverbs_core::verbs::context::{ABI_COMPAT_OFFSET, ABI_IS_EXTENDED, VERBS_CONTEXT_SZ};
    let abi_at = ABI_COMPAT_OFFSET.expect("measured for this target");
    let at = |offset: isize| context.cast::<u8>().wrapping_offset(offset).cast::<usize>();
    unsafe {
        assert_eq!(at(abi_at as isize).read(), ABI_IS_EXTENDED);
        let recorded = at(-(VERBS_CONTEXT_SZ.distance_bytes as isize)).read();
        assert!(recorded >= slot.least_recorded_bytes(abi_at + 8));
        at(-(slot.distance_bytes as isize)).cast::<*mut c_void>().read()
    }
}

/// Bytes that the port query with a length fills.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn bytes_of_extended_port_query(context: *mut Context, length: usize) -> usize {
    type QueryPort = unsafe extern "C" fn(*mut Context, u8, *mut PortAttr, usize) -> c_int;
    let call: QueryPort = unsafe { std::mem::transmute(extended(context, bareverbs_core::verbs::context::QUERY_PORT)) };
    bytes_filled(|room| unsafe { call(context, 1, room, length) })
}

/// A device's attributes by the exported query and by the one in front of the context, and the answer of the latter to a
/// mask that is not 0.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn query_device_both_ways(
    env: &Env,
    context: *mut Context,
) -> (bareverbs_core::verbs::DeviceAttr, bareverbs_core::verbs::DeviceAttrEx, c_int) {
    use bareverbs_core::verbs::device::QueryDeviceExInput;
    use bareverbs_core::verbs::{DeviceAttr, DeviceAttrEx};
    type Query = unsafe extern "C" fn(*mut Context, *const QueryDeviceExInput, *mut DeviceAttrEx, usize) -> c_int;
    let slot = extended(context, bareverbs_core::verbs::context::QUERY_DEVICE_EX);
    unsafe {
        let mut plain: DeviceAttr = std::mem::zeroed();
        assert_eq!((env.symbols.query_device.expect("it is there"))(context, &mut plain), 0);
        let call: Query = std::mem::transmute(slot);
        let mut extended: DeviceAttrEx = std::mem::zeroed();
        assert_eq!(call(context, std::ptr::null(), &mut extended, size_of::<DeviceAttrEx>()), 0);
        let refused = call(context, &QueryDeviceExInput { comp_mask: 1 }, &mut extended, size_of::<DeviceAttrEx>());
        (plain, extended, refused)
    }
}

/// Which of poll, arm, post_send and post_recv the context has.
pub fn inline_operations(context: *mut Context) -> [bool; 4] {
    let ops = unsafe { (*context).ops };
    [ops.poll_cq.is_some(), ops.req_notify_cq.is_some(), ops.post_send.is_some(), ops.post_recv.is_some()]
}

/// An end on its way to another thread.
pub struct Moved(pub End);

// SAFETY: verbs objects may be used from any thread, and an end is used by one at a time.
unsafe impl Send for Moved {}

impl Moved {
    /// The whole of it, so that a closure takes it as that.
    pub fn whole(self) -> Self {
        self
    }
}
