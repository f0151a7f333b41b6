//! The table of verbs entry points.
//!
//! Signatures are those of rdma-core 44.0's `<infiniband/verbs.h>`. What is inline in C (post, poll, arm) is not here: it
//! is reached through the device context's own table ([`bareverbs_core::verbs::inline_calls`]).
//!
//! # Safety
//!
//! This file guarantees that each name stands with the signature that it has in the header.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_uint, c_void};

use bareverbs_core::verbs::{
    AsyncEvent, CompChannel, Context, Cq, Device, DeviceAttr, Gid, GidEntry, Mr, Pd, PortAttr, Qp, QpAttr, QpInitAttr,
    WcStatus,
};

use crate::symbols::table::symbol_table;

/// The C entry points that a fabric supplies, vouched for.
///
/// Possessing one proves that each entry point does what the header says of its name, and stays callable for as long as the
/// process runs. It reads like its [`SymbolTable`].
///
/// Safe code can put no function of its own into it: neither by making one,
///
/// ```compile_fail,E0133
/// # use bareverbs_shell::symbols::{SymbolTable, Symbols};
/// fn vouched_for(table: SymbolTable) -> Symbols {
///     Symbols::new(table) // call to unsafe function
/// }
/// ```
/// ```compile_fail,E0423
/// # use bareverbs_shell::symbols::{SymbolTable, Symbols};
/// fn vouched_for(table: SymbolTable) -> Symbols {
///     Symbols(table) // private field
/// }
/// ```
///
/// nor by changing one.
///
/// ```compile_fail,E0594
/// # use bareverbs_shell::symbols::{SymbolTable, Symbols};
/// fn change(symbols: &mut Symbols, table: &SymbolTable) {
///     symbols.close_device = table.close_device; // behind `Deref`, which gives no mutable access
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Symbols(SymbolTable);

impl Symbols {
    /// Vouches for a table: a wrapped library's, say.
    ///
    /// # Safety
    /// 1. Each entry point does what `<infiniband/verbs.h>` and its manual page say of its name, for all that made by the
    ///    others, from any thread.
    /// 2. It stays callable for as long as the process runs.
    pub const unsafe fn new(table: SymbolTable) -> Self {
        Self(table)
    }

    /// The table, to be copied and changed.
    pub const fn table(&self) -> &SymbolTable {
        &self.0
    }
}

impl std::ops::Deref for Symbols {
    type Target = SymbolTable;

    fn deref(&self) -> &SymbolTable {
        &self.0
    }
}

symbol_table! {
    /// C entry points, as plain data: what [`Symbols`] is made of, once somebody vouches for it.
    SymbolTable
    required {
        get_device_list = "ibv_get_device_list": fn(*mut c_int) -> *mut *mut Device;
        free_device_list = "ibv_free_device_list": fn(*mut *mut Device);
        get_device_name = "ibv_get_device_name": fn(*mut Device) -> *const c_char;
        open_device = "ibv_open_device": fn(*mut Device) -> *mut Context;
        close_device = "ibv_close_device": fn(*mut Context) -> c_int;
        alloc_pd = "ibv_alloc_pd": fn(*mut Context) -> *mut Pd;
        dealloc_pd = "ibv_dealloc_pd": fn(*mut Pd) -> c_int;
        /// The plain symbol. In C the name is a macro that takes `ibv_reg_mr_iova2` for optional access bits.
        reg_mr = "ibv_reg_mr": fn(*mut Pd, *mut c_void, usize, c_int) -> *mut Mr;
        dereg_mr = "ibv_dereg_mr": fn(*mut Mr) -> c_int;
        create_cq = "ibv_create_cq": fn(*mut Context, c_int, *mut c_void, *mut CompChannel, c_int) -> *mut Cq;
        destroy_cq = "ibv_destroy_cq": fn(*mut Cq) -> c_int;
        create_qp = "ibv_create_qp": fn(*mut Pd, *mut QpInitAttr) -> *mut Qp;
        modify_qp = "ibv_modify_qp": fn(*mut Qp, *mut QpAttr, c_int) -> c_int;
        destroy_qp = "ibv_destroy_qp": fn(*mut Qp) -> c_int;
        /// Fills 48 bytes, whatever the header says.
        query_port = "ibv_query_port": fn(*mut Context, u8, *mut PortAttr) -> c_int;
        /// Succeeds with an all-zero GID for an empty slot.
        query_gid = "ibv_query_gid": fn(*mut Context, u8, c_int, *mut Gid) -> c_int;
    }
    optional {
        wc_status_str = "ibv_wc_status_str": fn(WcStatus) -> *const c_char;
        query_device = "ibv_query_device": fn(*mut Context, *mut DeviceAttr) -> c_int;
        query_qp = "ibv_query_qp": fn(*mut Qp, *mut QpAttr, c_int, *mut QpInitAttr) -> c_int;
        reg_mr_iova2 = "ibv_reg_mr_iova2": fn(*mut Pd, *mut c_void, usize, u64, c_uint) -> *mut Mr;
        reg_dmabuf_mr = "ibv_reg_dmabuf_mr": fn(*mut Pd, u64, usize, u64, c_int, c_int) -> *mut Mr;
        qp_to_qp_ex = "ibv_qp_to_qp_ex": fn(*mut Qp) -> *mut c_void;
        create_comp_channel = "ibv_create_comp_channel": fn(*mut Context) -> *mut CompChannel;
        destroy_comp_channel = "ibv_destroy_comp_channel": fn(*mut CompChannel) -> c_int;
        get_cq_event = "ibv_get_cq_event": fn(*mut CompChannel, *mut *mut Cq, *mut *mut c_void) -> c_int;
        ack_cq_events = "ibv_ack_cq_events": fn(*mut Cq, c_uint);
        get_async_event = "ibv_get_async_event": fn(*mut Context, *mut AsyncEvent) -> c_int;
        ack_async_event = "ibv_ack_async_event": fn(*mut AsyncEvent);
        /// The number is big-endian.
        get_device_guid = "ibv_get_device_guid": fn(*mut Device) -> u64;
        fork_init = "ibv_fork_init": fn() -> c_int;
        /// The last argument is the entry's size, 32.
        query_gid_ex = "_ibv_query_gid_ex": fn(*mut Context, u32, u32, *mut GidEntry, u32, usize) -> c_int;
    }
}
