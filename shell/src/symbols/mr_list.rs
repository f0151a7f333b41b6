//! The one builder of an mlx5 work request that is called: a list of regions for an indirect key.
//!
//! In C it is a run of inline calls, each through a pointer in the extended queue pair: flags and number first, then start, the
//! list, and complete. Starting takes the provider's lock of the send queue, and only complete or abort gives it back, so they
//! always come in pairs here. Builders return nothing; complete returns what went wrong in any of them, and then nothing was
//! posted.
//!
//! # Safety
//!
//! This file guarantees the order of the calls and their pairing, that flags and number are written before the start, and that
//! fields of the extended queue pair are reached only at offsets that are known for this target.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::fmt;

use bareverbs_core::verbs::inline_calls::RawErrno;
use bareverbs_core::verbs::mlx5dv::{Mkey, Mlx5QpEx, QpEx, WrMrListFn, qp_ex};
use bareverbs_core::verbs::{AccessFlags, Qp, SendFlags, Sge};

use crate::symbols::{Mlx5Symbols, Symbols};

type StartFn = unsafe extern "C" fn(*mut QpEx);
type CompleteFn = unsafe extern "C" fn(*mut QpEx) -> c_int;

/// Why a queue pair cannot bind keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoBuilder {
    /// Nobody has measured where the fields are on this target.
    Target,
    /// The verbs library has no `ibv_qp_to_qp_ex`, or it says that the queue pair is not an extended one.
    NotExtended,
    /// The library left a pointer null: the queue pair was made without the operation.
    Missing {
        /// The member's name in C.
        member: &'static str,
    },
}

impl fmt::Display for NoBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Target => f.write_str("where an extended queue pair has its builders is not known on this platform"),
            Self::NotExtended => f.write_str("the queue pair is not an extended one: make it by mlx5dv_create_qp"),
            Self::Missing { member } => {
                write!(f, "the queue pair has no {member}: ask for MR_LIST and MKEY_CONFIGURE when it is made")
            }
        }
    }
}

impl std::error::Error for NoBuilder {}

/// What is to be bound: a key, what it permits, and its regions in order.
#[derive(Debug)]
pub struct Binding<'list> {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// The key.
    pub key: *mut Mkey,
    /// What the key permits.
    pub access: AccessFlags,
    /// The regions: at most 65 535, each with the address that it goes by.
    pub entries: &'list [Sge],
}

/// The builders of one queue pair: possessing one proves that they are there.
#[derive(Debug)]
pub struct MrListBuilder {
    qp: *mut QpEx,
    mlx5: *mut Mlx5QpEx,
    wr_id: *mut u64,
    wr_flags: *mut u32,
    start: StartFn,
    complete: CompleteFn,
    abort: StartFn,
    mr_list: WrMrListFn,
}

impl MrListBuilder {
    /// The builders of a queue pair.
    ///
    /// # Errors
    /// [`NoBuilder`]
    ///
    /// # Safety
    /// 1. `qp` is a live queue pair of the library that `verbs` is of, made by `mlx5`'s `create_qp` with a `comp_mask` that
    ///    asks for send operations.
    /// 2. Both tables stay for as long as the builder is used.
    pub unsafe fn of(verbs: &Symbols, mlx5: &Mlx5Symbols, qp: *mut Qp) -> Result<Self, NoBuilder> {
        let at = |offset: Option<usize>| offset.ok_or(NoBuilder::Target);
        let (wr_id, wr_flags) = (at(qp_ex::WR_ID)?, at(qp_ex::WR_FLAGS)?);
        let slots = [at(qp_ex::WR_START)?, at(qp_ex::WR_COMPLETE)?, at(qp_ex::WR_ABORT)?];
        let extend = verbs.qp_to_qp_ex.ok_or(NoBuilder::NotExtended)?;
        // SAFETY: live, by 1.
        let qp = unsafe { extend(qp) }.cast::<QpEx>();
        if qp.is_null() {
            return Err(NoBuilder::NotExtended);
        }
        // SAFETY: an extended queue pair of `mlx5dv_create_qp`, by 1.
        let mlx5 = unsafe { (mlx5.qp_ex_from_ibv_qp_ex)(qp) };
        if mlx5.is_null() {
            return Err(NoBuilder::NotExtended);
        }
        let word = |offset: usize, member| {
            // SAFETY: an extended queue pair reaches at least to `wr_abort`, and holds a pointer here or null.
            let word = unsafe { qp.wrapping_byte_add(offset).cast::<usize>().read() };
            if word == 0 { Err(NoBuilder::Missing { member }) } else { Ok(word) }
        };
        let [start, complete, abort] =
            [word(slots[0], "wr_start")?, word(slots[1], "wr_complete")?, word(slots[2], "wr_abort")?];
        // SAFETY: the library made it, by 1.
        let mr_list = unsafe { (*mlx5).wr_mr_list }.ok_or(NoBuilder::Missing { member: "wr_mr_list" })?;
        Ok(Self {
            qp,
            mlx5,
            wr_id: qp.wrapping_byte_add(wr_id).cast(),
            wr_flags: qp.wrapping_byte_add(wr_flags).cast(),
            // SAFETY: not null, and the member of that name.
            start: unsafe { std::mem::transmute::<usize, StartFn>(start) },
            // SAFETY: as above.
            complete: unsafe { std::mem::transmute::<usize, CompleteFn>(complete) },
            // SAFETY: as above.
            abort: unsafe { std::mem::transmute::<usize, StartFn>(abort) },
            mr_list,
        })
    }

    /// Posts one binding, to be signalled. Nothing is posted where it is refused.
    ///
    /// # Errors
    /// What complete returned: a positive errno from mlx5.
    ///
    /// # Panics
    /// If there are more than 65 535 entries.
    ///
    /// # Safety
    /// 1. The queue pair is alive, and nobody else posts to it.
    /// 2. The key is alive, is not in use by work in flight, and stays until the binding has completed or the queue pair is
    ///    gone.
    pub unsafe fn post(&mut self, binding: &Binding<'_>) -> Result<(), RawErrno> {
        let count = u16::try_from(binding.entries.len()).expect("a key has at most 65 535 entries");
        let flags = SendFlags::INLINE | SendFlags::SIGNALED;
        // SAFETY: a field of the queue pair, alive and ours alone by 1.
        unsafe { self.wr_flags.write(flags.bits()) };
        // SAFETY: as above.
        unsafe { self.wr_id.write(binding.wr_id) };
        // SAFETY: alive, by 1; what it locks is given back by `started`, whatever happens.
        unsafe { (self.start)(self.qp) };
        let started = Started(self);
        // The list is read only: C leaves out the word for it.
        let list = binding.entries.as_ptr().cast_mut();
        // SAFETY: started; key and queue pair are alive, by 1 and 2; so many entries are there.
        unsafe { (self.mr_list)(self.mlx5, binding.key, binding.access.bits(), count, list) };
        match started.complete() {
            0 => Ok(()),
            returned => Err(RawErrno(returned)),
        }
    }
}

/// A run of builders that was started: it is completed, or else aborted.
struct Started<'builder>(&'builder MrListBuilder);

impl Started<'_> {
    fn complete(self) -> c_int {
        let builder = self.0;
        std::mem::forget(self);
        // SAFETY: started, and neither completed nor aborted since.
        unsafe { (builder.complete)(builder.qp) }
    }
}

impl Drop for Started<'_> {
    fn drop(&mut self) {
        // SAFETY: started, and neither completed nor aborted since.
        unsafe { (self.0.abort)(self.0.qp) };
    }
}
