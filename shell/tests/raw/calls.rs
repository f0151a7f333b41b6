//! The table, call by call, on one device.
#![allow(unsafe_code)]
#![allow(clippy::undocumented_unsafe_blocks, reason = "every block calls the table with handles that the test owns")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "as above")]

use std::ffi::{CStr, c_int, c_void};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bareverbs_core::verbs::{
    AccessFlags, Context, Cq, Device, Gid, Mr, Pd, PortAttr, Qp, QpAttr, QpAttrMask, QpInitAttr, QpState, Wc,
};
use bareverbs_shell::symbols::{Mlx5Symbols, Symbols};

/// What a test runs on.
#[derive(Clone)]
pub struct Env {
    pub symbols: Arc<Symbols>,
    /// The provider's own calls, where there is one.
    pub mlx5: Option<Arc<Mlx5Symbols>>,
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

pub(super) fn name_of(symbols: &Symbols, device: *mut Device) -> String {
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
