//! What goes before keys are bound, on every fabric: which device binds them, and regions over files.
//!
//! No fabric here has an mlx5 device, and the system's has the real provider beside its library where that is installed.
//!
//! # Safety
//!
//! The functions here pass on what they are given, to the table that they stand in front of.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::ffi::c_int;
use std::os::fd::AsFd;
use std::sync::Arc;

use bareverbs_core::range::AddressRange;
use bareverbs_core::verbs::mlx5dv::{Mkey, MkeyInitAttr, Mlx5QpEx, Mlx5QpInitAttr, QpEx};
use bareverbs_core::verbs::{Context, Device, Qp, QpInitAttrEx};
use bareverbs_shell::memory::pages::Pages;
use bareverbs_shell::objects::{MemoryRegion, ProtectionDomain};
use bareverbs_shell::segments::{BindError, Binder, BinderConfig};
use bareverbs_shell::symbols::{Mlx5Symbols, Mlx5Table};
use bareverbs_shell::{Error, FabricKind};

use crate::endpoints::Case;
use crate::world::World;

pub fn cases() -> Vec<Case> {
    vec![
        ("a_device_that_is_no_mlx5_is_told_so_and_the_provider_asked_nothing_else", no_mlx5_device),
        ("a_dma_buf_is_registered_or_else_the_plain_range", dma_buf_or_plain),
    ]
}

thread_local! {
    static CALLED: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) };
    static REAL: RefCell<Option<Arc<Mlx5Symbols>>> = const { RefCell::new(None) };
}

/// Notes a call of this thread's, and gives the table that it goes on to.
fn noted(symbol: &'static str) -> Arc<Mlx5Symbols> {
    CALLED.with_borrow_mut(|called| called.push(symbol));
    REAL.with_borrow(|real| Arc::clone(real.as_ref().expect("wrapped on this thread")))
}

/// The table, with functions in front that note what this thread calls.
fn counting(real: Arc<Mlx5Symbols>) -> Arc<Mlx5Symbols> {
    let table = Mlx5Table {
        library: Arc::clone(&real.library),
        is_supported,
        create_qp,
        qp_ex_from_ibv_qp_ex,
        create_mkey,
        destroy_mkey,
    };
    let (release, file_name) = (real.release(), real.file_name().map(Arc::from));
    REAL.set(Some(real));
    CALLED.take();
    // SAFETY: each passes on what it is given to the entry point of its name, in a table that was vouched for.
    Arc::new(unsafe { Mlx5Symbols::new(table, release, file_name) })
}

unsafe extern "C" fn is_supported(device: *mut Device) -> bool {
    // SAFETY: passed on.
    unsafe { (noted("mlx5dv_is_supported").is_supported)(device) }
}

unsafe extern "C" fn create_qp(context: *mut Context, init: *mut QpInitAttrEx, mlx5: *mut Mlx5QpInitAttr) -> *mut Qp {
    // SAFETY: passed on.
    unsafe { (noted("mlx5dv_create_qp").create_qp)(context, init, mlx5) }
}

unsafe extern "C" fn qp_ex_from_ibv_qp_ex(pair: *mut QpEx) -> *mut Mlx5QpEx {
    // SAFETY: passed on.
    unsafe { (noted("mlx5dv_qp_ex_from_ibv_qp_ex").qp_ex_from_ibv_qp_ex)(pair) }
}

unsafe extern "C" fn create_mkey(attr: *mut MkeyInitAttr) -> *mut Mkey {
    // SAFETY: passed on.
    unsafe { (noted("mlx5dv_create_mkey").create_mkey)(attr) }
}

unsafe extern "C" fn destroy_mkey(key: *mut Mkey) -> c_int {
    // SAFETY: passed on.
    unsafe { (noted("mlx5dv_destroy_mkey").destroy_mkey)(key) }
}

fn no_mlx5_device(world: &World) {
    let provider = world.fabric.mlx5();
    let Some(provider) = provider else {
        assert_eq!(world.fabric.kind(), FabricKind::System, "the software fabric has one");
        return eprintln!("skipped on {}: the system has no libmlx5.so.1", world.name);
    };
    let domain = ProtectionDomain::new(&world.open(), 1).expect("a domain");
    let refused = Binder::new(&domain, counting(provider), BinderConfig::default()).map(drop);
    assert_eq!(refused, Err(BindError::Unsupported { device: world.device().into() }));
    assert_eq!(CALLED.take(), ["mlx5dv_is_supported"]);
}

/// Case E5: soft-RoCE takes no dma-buf and says so; the software fabric takes any file.
fn dma_buf_or_plain(world: &World) {
    let domain = ProtectionDomain::new(&world.open(), 1).expect("a domain");
    let pages = Arc::new(Pages::new(8192).expect("pages"));
    let base = pages.start().as_ptr().expose_provenance() as u64;
    let range = AddressRange::new(base, 8192).expect("a range");
    let file = tempfile::tempfile().expect("a file");
    file.set_len(8192).expect("a size");
    let access = crate::scene::ALL;
    // SAFETY: 1: nothing is written or read. 2: there are no references to the file's bytes.
    let alone = unsafe { MemoryRegion::of_dma_buf(&domain, file.as_fd(), range, access) };
    let keeper = Some(Arc::clone(&pages) as _);
    // SAFETY: 1: as above. 2: the keeper keeps the pages, of which there are no references.
    let region = unsafe { MemoryRegion::of_dma_buf_or_plain(&domain, file.as_fd(), range, access, keeper) };
    let region = region.expect("one of the two");
    assert_eq!(region.range(), range);
    match alone {
        Ok(alone) => assert_eq!((alone.key_base(), region.key_base()), (0, 0)),
        Err(error) => {
            assert!(error.is_unsupported(), "{error}");
            assert!(matches!(error, Error::Call(_) | Error::Unsupported { .. }), "{error:?}");
            assert_eq!(region.key_base(), base, "the plain range, by its own addresses");
        }
    }
}
