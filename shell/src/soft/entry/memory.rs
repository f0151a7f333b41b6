//! Protection domains and memory regions.
//!
//! # Safety
//!
//! This file guarantees that memory is believed in only after a registration of it was checked, and only until its region
//! is destroyed; that it is there is what `ibv_reg_mr` asks of its caller.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_uint, c_void};

use bareverbs_core::verbs::{AccessFlags, Context, Mr, Pd};

use crate::soft::bytes::RegisteredMemory;
use crate::soft::dma_buf;
use crate::soft::entry::{Asked, pointer, status};
use crate::soft::handles::Kind;
use crate::soft::mapping::Use;
use crate::soft::objects::Registration;
use crate::soft::record::Detail;

pub(in crate::soft) extern "C" fn alloc_pd(context: *mut Context) -> *mut Pd {
    let asked = Asked::making("ibv_alloc_pd", Kind::Context, context.addr());
    pointer(asked.call(|state, index| state.allocate_domain(index)))
}

pub(in crate::soft) extern "C" fn dealloc_pd(pd: *mut Pd) -> c_int {
    let asked = Asked::on("ibv_dealloc_pd", Kind::Domain, pd.addr());
    status(asked.call(|state, index| state.deallocate_domain(index).map(|()| 0)))
}

/// # Safety
/// 1. The memory is readable, and writable where `access` permits writing, until the region is destroyed.
pub(in crate::soft) unsafe extern "C" fn reg_mr(
    pd: *mut Pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut Mr {
    let access = AccessFlags::from_bits_retain(access.cast_unsigned());
    let asked =
        Registration { address: addr.expose_provenance(), length_bytes: length, iova: addr.addr() as u64, access };
    // SAFETY: 1 is the caller's promise too.
    unsafe { register("ibv_reg_mr", pd, &asked) }
}

/// # Safety
/// 1. The memory is readable, and writable where `access` permits writing, until the region is destroyed.
pub(in crate::soft) unsafe extern "C" fn reg_mr_iova2(
    pd: *mut Pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut Mr {
    let access = AccessFlags::from_bits_retain(access);
    let asked = Registration { address: addr.expose_provenance(), length_bytes: length, iova, access };
    // SAFETY: 1 is the caller's promise too.
    unsafe { register("ibv_reg_mr_iova2", pd, &asked) }
}

/// # Safety
/// 1. The memory is readable, and writable where its access permits writing, until the region is destroyed.
unsafe fn register(symbol: &'static str, pd: *mut Pd, asked: &Registration) -> *mut Mr {
    let detail = Detail::Register { address: asked.address, length_bytes: asked.length_bytes, access: asked.access };
    let call = Asked::making(symbol, Kind::Domain, pd.addr()).with(detail);
    pointer(call.call(|state, domain| {
        state.check_registration(domain, asked)?;
        let writable = asked.access.contains(AccessFlags::LOCAL_WRITE);
        // SAFETY: by 1 until the region, which holds the value, is destroyed; that no thread touches what a posted request
        // names, other than by requests of a device, is what every post asks of its caller.
        let memory = unsafe { RegisteredMemory::new(asked.address, asked.length_bytes, writable) };
        state.register(domain, asked, memory, None)
    }))
}

/// The region's `addr` is the offset, whatever the iova: so does the library.
///
/// # Safety
/// 1. `fd`, if it is open, stays so for the call, and its file keeps its size until the region is destroyed.
/// 2. While requests name bytes of the file, it is used only as `ibv_reg_mr` asks of memory.
pub(in crate::soft) unsafe extern "C" fn reg_dmabuf_mr(
    pd: *mut Pd,
    offset: u64,
    length: usize,
    iova: u64,
    fd: c_int,
    access: c_int,
) -> *mut Mr {
    let access = AccessFlags::from_bits_retain(access.cast_unsigned());
    let detail = Detail::RegisterDmaBuf { fd, offset_bytes: offset, length_bytes: length, iova, access };
    let call = Asked::making("ibv_reg_dmabuf_mr", Kind::Domain, pd.addr()).with(detail);
    pointer(call.call(|state, domain| {
        let address = usize::try_from(offset).map_err(|_| libc::EINVAL)?;
        let asked = Registration { address, length_bytes: length, iova, access };
        state.check_dma_buf(domain, &asked)?;
        let writable = access.contains(AccessFlags::LOCAL_WRITE);
        let attached = dma_buf::attach(fd, offset, length, if writable { Use::ReadWrite } else { Use::Read })?;
        // SAFETY: mapped, for writing where it is to be written, until `attached` goes, which the region holds beside it; by 1
        // the file reaches so far, and by 2 no thread touches what a posted request names.
        let memory = unsafe { RegisteredMemory::new(attached.address(), length, writable) };
        state.register(domain, &asked, memory, Some(attached))
    }))
}

pub(in crate::soft) extern "C" fn dereg_mr(mr: *mut Mr) -> c_int {
    let asked = Asked::on("ibv_dereg_mr", Kind::Region, mr.addr());
    status(asked.call(|state, index| state.deregister(index).map(|()| 0)))
}
