//! The CUDA driver's table, call by call.
#![allow(unsafe_code)]
#![allow(clippy::undocumented_unsafe_blocks, reason = "every block calls the table with what the test owns")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::Arc;

use bareverbs_core::cuda::{CuContext, CuResult, DeviceAttribute, PointerAttribute, RangeHandleType};
use bareverbs_shell::symbols::CudaSymbols;

pub type Outcome<T> = Result<T, CuResult>;

/// Success with a value, or the driver's answer.
fn outcome<T>(answer: CuResult, value: T) -> Outcome<T> {
    if answer == CuResult::SUCCESS { Ok(value) } else { Err(answer) }
}

/// A driver.
#[derive(Clone)]
pub struct Driver(pub Arc<CudaSymbols>);

impl Driver {
    pub fn init(&self) -> Outcome<()> {
        outcome(unsafe { self.0.init.unwrap()(0) }, ())
    }

    pub fn device_count(&self) -> Outcome<c_int> {
        let mut count = -1;
        outcome(unsafe { self.0.device_get_count.unwrap()(&mut count) }, ()).map(|()| count)
    }

    pub fn device(&self, ordinal: c_int) -> Outcome<c_int> {
        let mut device = -1;
        outcome(unsafe { self.0.device_get.unwrap()(&mut device, ordinal) }, ()).map(|()| device)
    }

    pub fn device_attribute(&self, attribute: DeviceAttribute, device: c_int) -> Outcome<c_int> {
        let mut value = -1;
        outcome(unsafe { self.0.device_get_attribute.unwrap()(&mut value, attribute, device) }, ()).map(|()| value)
    }

    pub fn pci_bus_id(&self, device: c_int, room: usize) -> Outcome<String> {
        let mut text = [0 as c_char; 32];
        let answer = unsafe { self.0.device_get_pci_bus_id.unwrap()(text.as_mut_ptr(), room as c_int, device) };
        outcome(answer, ()).map(|()| unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned())
    }

    /// An attribute's eight bytes, of which it may fill four.
    pub fn attribute(&self, attribute: PointerAttribute, address: u64) -> Outcome<u64> {
        let mut value = 0_u64;
        let place = (&raw mut value).cast::<c_void>();
        outcome(unsafe { self.0.pointer_get_attribute.unwrap()(place, attribute, address) }, ()).map(|()| value)
    }

    pub fn id(&self, address: u64) -> Outcome<u64> {
        self.attribute(PointerAttribute::BUFFER_ID, address)
    }

    pub fn range(&self, address: u64) -> Outcome<(u64, usize)> {
        let (mut base, mut size) = (0, 0);
        let answer = unsafe { self.0.mem_get_address_range.unwrap()(&mut base, &mut size, address) };
        outcome(answer, ()).map(|()| (base, size))
    }

    pub fn export(&self, address: u64, size: u64) -> Outcome<OwnedFd> {
        self.export_with(address, size, RangeHandleType::DMA_BUF_FD, 0)
    }

    pub fn export_with(&self, address: u64, size: u64, kind: RangeHandleType, flags: u64) -> Outcome<OwnedFd> {
        let mut fd: c_int = -1;
        let place = (&raw mut fd).cast::<c_void>();
        let export = self.0.mem_get_handle_for_address_range.unwrap();
        outcome(unsafe { export(place, address, size as usize, kind, flags) }, ())
            .map(|()| unsafe { OwnedFd::from_raw_fd(fd) })
    }

    pub fn current(&self) -> Outcome<usize> {
        let mut context = std::ptr::null_mut();
        outcome(unsafe { self.0.ctx_get_current.unwrap()(&mut context) }, ()).map(|()| context.addr())
    }

    pub fn set_current(&self, context: usize) -> Outcome<()> {
        let context = std::ptr::with_exposed_provenance_mut::<CuContext>(context);
        outcome(unsafe { self.0.ctx_set_current.unwrap()(context) }, ())
    }

    pub fn retain_primary(&self, device: c_int) -> Outcome<usize> {
        let mut context = std::ptr::null_mut();
        let answer = unsafe { self.0.device_primary_ctx_retain.unwrap()(&mut context, device) };
        outcome(answer, ()).map(|()| context.expose_provenance())
    }

    pub fn release_primary(&self, device: c_int) -> Outcome<()> {
        outcome(unsafe { self.0.device_primary_ctx_release.unwrap()(device) }, ())
    }

    pub fn alloc(&self, size: usize) -> Outcome<u64> {
        let mut address = 0;
        outcome(unsafe { self.0.mem_alloc.unwrap()(&mut address, size) }, ()).map(|()| address)
    }

    pub fn free(&self, address: u64) -> Outcome<()> {
        outcome(unsafe { self.0.mem_free.unwrap()(address) }, ())
    }

    pub fn copy_out(&self, address: u64, length: usize) -> Outcome<Vec<u8>> {
        let mut bytes = vec![0; length];
        outcome(unsafe { self.0.memcpy_dtoh.unwrap()(bytes.as_mut_ptr().cast(), address, length) }, ()).map(|()| bytes)
    }

    pub fn copy_in(&self, address: u64, bytes: &[u8]) -> Outcome<()> {
        outcome(unsafe { self.0.memcpy_htod.unwrap()(address, bytes.as_ptr().cast(), bytes.len()) }, ())
    }

    pub fn synchronize(&self) -> Outcome<()> {
        outcome(unsafe { self.0.stream_synchronize.unwrap()(std::ptr::null_mut()) }, ())
    }

    pub fn flush(&self) -> Outcome<()> {
        outcome(unsafe { self.0.flush_gpu_direct_rdma_writes.unwrap()(0, 100) }, ())
    }
}
