//! Looks at what objects and queries say, and at what happens to handles that must not be used.
#![allow(unsafe_code)]
#![allow(clippy::undocumented_unsafe_blocks, reason = "every block calls the table with handles that the test owns")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "as above")]

use std::ffi::{c_int, c_void};

use bareverbs_core::verbs::{
    Context, Cq, Gid, LinkLayer, Mr, PortAttr, QpAttr, QpAttrMask, QpCap, QpInitAttr, QpType, Wc, WcStatus,
};
use bareverbs_shell::symbols::Symbols;

use super::calls::{Env, name_of};
use super::ends::{End, MEMORY, uc};

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

/// The library's words for a status, where it has any.
pub fn status_text(env: &Env, status: WcStatus) -> Option<String> {
    let call = env.symbols.wc_status_str?;
    Some(unsafe { std::ffi::CStr::from_ptr(call(status)) }.to_string_lossy().into_owned())
}

/// What the device says of its limits.
pub fn device_attributes(env: &Env, context: *mut Context) -> bareverbs_core::verbs::DeviceAttr {
    unsafe {
        let mut attr = std::mem::zeroed();
        assert_eq!((env.symbols.query_device.expect("it is there"))(context, &mut attr), 0);
        attr
    }
}
