//! What a binding asks of the provider, seen by functions that stand before the provider's own: the software's refuses less than
//! this asks for.
//!
//! # Safety
//!
//! This file guarantees that each function passes on what it was called with, and reads only what the caller's promises cover.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::sync::Arc;

use bareverbs_core::verbs::mlx5dv::{Mlx5QpEx, Mlx5QpInitAttr, Mlx5QpMask, Mlx5SendOps, QpEx, qp_ex};
use bareverbs_core::verbs::{Context, CreateQpMask, Qp, QpInitAttrEx, QpType, SendFlags, SendOpsFlags};
use bareverbs_shell::segments::Binder;
use bareverbs_shell::symbols::{Mlx5Symbols, Mlx5Table};

use super::binding_scene::{BASE, Bench, M, config, mlx5, range};
use crate::scene::ALL;

type StartFn = unsafe extern "C" fn(*mut QpEx);

/// What one queue pair was asked to be.
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    masks: (CreateQpMask, Mlx5QpMask),
    qp_type: QpType,
    ops: (SendOpsFlags, Mlx5SendOps),
    all_signalled: i32,
    inline_bytes: u32,
    one_queue: bool,
}

#[derive(Default)]
struct Seen {
    real: Option<(Arc<Mlx5Symbols>, Option<StartFn>)>,
    made: Vec<Asked>,
    /// Number and flags, as they were when a run of builders was started.
    started: Vec<(u64, SendFlags)>,
}

thread_local! {
    static SEEN: RefCell<Seen> = RefCell::default();
}

fn real() -> (Arc<Mlx5Symbols>, Option<StartFn>) {
    SEEN.with_borrow(|seen| seen.real.clone()).expect("set on this thread")
}

fn field<T>(qp: *mut QpEx, offset: Option<usize>) -> *mut T {
    qp.wrapping_byte_add(offset.expect("known where the tests run")).cast()
}

unsafe extern "C" fn create_qp(context: *mut Context, attr: *mut QpInitAttrEx, lists: *mut Mlx5QpInitAttr) -> *mut Qp {
    // SAFETY: the caller's attributes.
    let plain = unsafe { *attr };
    // SAFETY: as above.
    let more = unsafe { *lists };
    let asked = Asked {
        masks: (plain.comp_mask, more.comp_mask),
        qp_type: plain.qp_type,
        ops: (plain.send_ops_flags, more.send_ops_flags),
        all_signalled: plain.sq_sig_all,
        inline_bytes: plain.cap.max_inline_data,
        one_queue: plain.send_cq == plain.recv_cq && !plain.send_cq.is_null() && plain.srq.is_null(),
    };
    SEEN.with_borrow_mut(|seen| seen.made.push(asked));
    // SAFETY: passed on.
    unsafe { (real().0.create_qp)(context, attr, lists) }
}

/// Puts [`start`] in the place of the queue pair's own.
unsafe extern "C" fn qp_ex_from_ibv_qp_ex(qp: *mut QpEx) -> *mut Mlx5QpEx {
    let place = field::<StartFn>(qp, qp_ex::WR_START);
    // SAFETY: an extended queue pair with builders, of which the field is one.
    let before = unsafe { place.replace(start) };
    SEEN.with_borrow_mut(|seen| seen.real.as_mut().expect("set on this thread").1 = Some(before));
    // SAFETY: passed on.
    unsafe { (real().0.qp_ex_from_ibv_qp_ex)(qp) }
}

unsafe extern "C" fn start(qp: *mut QpEx) {
    // SAFETY: fields of a live queue pair, which nobody else uses.
    let wr_id = unsafe { field::<u64>(qp, qp_ex::WR_ID).read() };
    // SAFETY: as above.
    let flags = unsafe { field::<u32>(qp, qp_ex::WR_FLAGS).read() };
    SEEN.with_borrow_mut(|seen| seen.started.push((wr_id, SendFlags::from_bits_retain(flags))));
    // SAFETY: passed on.
    unsafe { real().1.expect("replaced before")(qp) };
}

/// What binding three keys on one queue pair asks for.
fn seen(device: &str) -> Seen {
    let bench = Bench::new(mlx5(device), 16 * M);
    let provider = bench.soft.mlx5_symbols();
    let table = Mlx5Table { create_qp, qp_ex_from_ibv_qp_ex, ..provider.table().clone() };
    SEEN.set(Seen { real: Some((Arc::clone(&provider), None)), ..Seen::default() });
    // SAFETY: the fabric's own entry points, and two that pass on to them.
    let watched = Arc::new(unsafe { Mlx5Symbols::new(table, provider.release(), None) });
    let binder = Binder::new(&bench.domain, watched, config()).expect("mlx5");
    for at in 0..3 {
        let region = Arc::new(bench.register(range(BASE + at * M, M)).expect("a region"));
        drop(binder.bind(ALL, vec![region], range(BASE + at * M, M)).expect("bound"));
    }
    drop(binder);
    bench.assert_all_goes();
    SEEN.take()
}

#[test]
fn the_queue_pair_is_asked_for_as_a_reliable_one_with_all_that_a_binding_is_made_of() {
    let asked = Asked {
        masks: (CreateQpMask::PD | CreateQpMask::SEND_OPS_FLAGS, Mlx5QpMask::SEND_OPS_FLAGS),
        qp_type: QpType::RC,
        ops: (
            SendOpsFlags::RDMA_WRITE | SendOpsFlags::SEND | SendOpsFlags::RDMA_READ,
            Mlx5SendOps::MKEY_CONFIGURE | Mlx5SendOps::MR_LIST,
        ),
        all_signalled: 0,
        // The device's 30 entries, in fours, of 16 bytes each, less the 4 bytes in front of inline data.
        inline_bytes: 16 * 32 - 4,
        one_queue: true,
    };
    assert_eq!(seen("asked").made, [asked]);
}

#[test]
fn number_and_flags_are_set_before_a_run_of_builders_is_started() {
    let flags = SendFlags::INLINE | SendFlags::SIGNALED;
    assert_eq!(seen("started").started, [(0, flags), (1, flags), (2, flags)]);
}
