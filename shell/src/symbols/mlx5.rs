//! The table of mlx5dv entry points: what binding indirect keys takes.
//!
//! Signatures are those of rdma-core 44.0's `<infiniband/mlx5dv.h>`. What C reaches through pointers in the extended queue pair
//! is not here but in [`crate::symbols::mr_list`].
//!
//! # Safety
//!
//! This file guarantees that each name stands with the signature that it has in the header.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::sync::Arc;

use bareverbs_core::segments::LengthSum;
use bareverbs_core::verbs::mlx5dv::{Mkey, MkeyInitAttr, Mlx5QpEx, Mlx5QpInitAttr, QpEx};
use bareverbs_core::verbs::{Context, Device, Qp, QpInitAttrEx};

use crate::symbols::table::symbol_table;
use crate::symbols::{Symbols, mlx5_system, system};

symbol_table! {
    /// mlx5dv entry points, as plain data: what [`Mlx5Symbols`] is made of, once somebody vouches for it.
    Mlx5Table
    required {
        /// Only says that the device is an mlx5, not that keys can be made on it.
        is_supported = "mlx5dv_is_supported": fn(*mut Device) -> bool;
        create_qp = "mlx5dv_create_qp": fn(*mut Context, *mut QpInitAttrEx, *mut Mlx5QpInitAttr) -> *mut Qp;
        /// For extended queue pairs made by `mlx5dv_create_qp` only: it looks at nothing.
        qp_ex_from_ibv_qp_ex = "mlx5dv_qp_ex_from_ibv_qp_ex": fn(*mut QpEx) -> *mut Mlx5QpEx;
        create_mkey = "mlx5dv_create_mkey": fn(*mut MkeyInitAttr) -> *mut Mkey;
        /// 0 or a positive errno; on failure the key still exists.
        destroy_mkey = "mlx5dv_destroy_mkey": fn(*mut Mkey) -> c_int;
    }
    optional {}
}

/// The mlx5dv entry points, vouched for, and what is known of who supplies them.
///
/// Possessing one proves that each entry point does what the header says of its name, for objects of the library that the
/// verbs table is of, and stays callable for as long as the process runs. It reads like its [`Mlx5Table`].
#[derive(Clone, Debug)]
pub struct Mlx5Symbols {
    table: Mlx5Table,
    release: Option<u16>,
    file_name: Option<Arc<str>>,
}

impl Mlx5Symbols {
    /// Vouches for a table. `release` is that of rdma-core, where it is known; `file_name` the provider's own, links
    /// followed, where there is one.
    ///
    /// # Safety
    /// 1. Each entry point does what `<infiniband/mlx5dv.h>` and its manual page say of its name, from any thread, for objects
    ///    of the verbs library that [`goes_with`](Self::goes_with) tells by its name.
    /// 2. It stays callable for as long as the process runs.
    /// 3. If `release` is 61 or later, the provider sums a key's length in 64 bits.
    pub const unsafe fn new(table: Mlx5Table, release: Option<u16>, file_name: Option<Arc<str>>) -> Self {
        Self { table, release, file_name }
    }

    /// The table, to be copied and changed.
    pub const fn table(&self) -> &Mlx5Table {
        &self.table
    }

    /// The rdma-core release of the provider, if it can be told.
    pub const fn release(&self) -> Option<u16> {
        self.release
    }

    /// The provider's file name, links followed: what its release was told by.
    pub fn file_name(&self) -> Option<&str> {
        self.file_name.as_deref()
    }

    /// Whether objects made through a verbs table may be given to this one: both are one software's, by the same name, or the
    /// system's provider and the library that loads it. Another library's objects are laid out otherwise.
    pub fn goes_with(&self, verbs: &Symbols) -> bool {
        let both_of_the_system = *self.library == *mlx5_system::LIBRARY && *verbs.library == *system::LIBRARY;
        *self.library == *verbs.library || both_of_the_system
    }

    /// How the provider sums a key's length; unknown counts as old.
    pub const fn length_sum(&self) -> LengthSum {
        LengthSum::of_release(self.release)
    }
}

impl std::ops::Deref for Mlx5Symbols {
    type Target = Mlx5Table;

    fn deref(&self) -> &Mlx5Table {
        &self.table
    }
}
