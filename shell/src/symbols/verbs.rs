//! The table of verbs entry points.
//!
//! Signatures are those of rdma-core 44.0's `<infiniband/verbs.h>`. What is inline in C (post, poll, arm) is not here: it
//! is reached through the device context's own table ([`bareverbs_core::verbs::inline_calls`]).
//!
//! # Safety
//!
//! This file guarantees that a pointer becomes a function only with the signature that its name has in the header.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::Arc;

use bareverbs_core::verbs::{
    AsyncEvent, CompChannel, Context, Cq, Device, DeviceAttr, Gid, GidEntry, Mr, Pd, PortAttr, Qp, QpAttr, QpInitAttr,
    WcStatus,
};

macro_rules! symbols {
    (
        required { $( $(#[$rmeta:meta])* $rname:ident = $rc:literal: fn($($rarg:ty),*) $(-> $rret:ty)?; )* }
        optional { $( $(#[$ometa:meta])* $oname:ident = $oc:literal: fn($($oarg:ty),*) $(-> $oret:ty)?; )* }
    ) => {
        /// C entry points, as plain data: what [`Symbols`] is made of, once somebody vouches for it.
        ///
        /// The required ones are present by type; an optional one that a library lacks is `None`, and using it is a typed
        /// error, never a call through null.
        #[derive(Clone, Debug)]
        pub struct SymbolTable {
            /// What filled the table: a library's name, or the software fabric's. For error messages.
            pub library: Arc<str>,
            $(
                #[doc = concat!("`", $rc, "`")]
                $(#[$rmeta])*
                pub $rname: unsafe extern "C" fn($($rarg),*) $(-> $rret)?,
            )*
            $(
                #[doc = concat!("`", $oc, "`, where the library has it.")]
                $(#[$ometa])*
                pub $oname: Option<unsafe extern "C" fn($($oarg),*) $(-> $oret)?>,
            )*
        }

        /// Names of the entry points without which a library is of no use, in C.
        pub const REQUIRED: &[&str] = &[$($rc),*];
        /// Names of the entry points that a library may lack, in C.
        pub const OPTIONAL: &[&str] = &[$($oc),*];

        impl SymbolTable {
            /// Fills the table by asking `find` for each name.
            ///
            /// # Errors
            /// The C name of the first required entry point for which `find` answers null.
            ///
            /// # Safety
            /// 1. What `find` returns for a name is null or the function of that name with the header's signature.
            /// 2. It stays callable for as long as the process runs.
            pub(crate) unsafe fn from_lookup(
                library: Arc<str>,
                mut find: impl FnMut(&'static str) -> *mut c_void,
            ) -> Result<Self, &'static str> {
                $(
                    let $rname = find($rc);
                    if $rname.is_null() {
                        return Err($rc);
                    }
                )*
                $( let $oname = find($oc); )*
                Ok(Self {
                    library,
                    $(
                        // SAFETY: not null, and by 1 a function of this signature; by 2 it stays one.
                        $rname: unsafe {
                            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($rarg),*) $(-> $rret)?>($rname)
                        },
                    )*
                    $(
                        // SAFETY: null, which is `None`, or by 1 a function of this signature; by 2 it stays one.
                        $oname: unsafe {
                            std::mem::transmute::<*mut c_void, Option<unsafe extern "C" fn($($oarg),*) $(-> $oret)?>>(
                                $oname,
                            )
                        },
                    )*
                })
            }
        }
    };
}

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

symbols! {
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
