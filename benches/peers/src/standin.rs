//! Hands the provider's objects to the stand-in for libibverbs.

use std::ffi::{CStr, c_char, c_int, c_void};

use bareverbs_benches::provider::Provider;

unsafe extern "C" {
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

type Use = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void, *mut c_void);

const RTLD_NOW: c_int = 2;

/// Starts the provider anew and lets the stand-in answer its objects.
pub fn hand_in(provider: &mut Provider) {
    provider.start();
    let name: &CStr = c"libibverbs.so.1";
    // SAFETY: the name is a string that ends.
    let library = unsafe { dlopen(name.as_ptr(), RTLD_NOW) };
    assert!(!library.is_null(), "the stand-in is found by LD_LIBRARY_PATH");
    // SAFETY: the library was just opened, the name is a string that ends.
    let function = unsafe { dlsym(library, c"standin_use".as_ptr()) };
    assert!(!function.is_null(), "libibverbs.so.1 is the stand-in");
    // SAFETY: the stand-in's function has this type.
    let function: Use = unsafe { std::mem::transmute(function) };
    let [context, qp, send_cq, recv_cq] = provider.objects();
    // SAFETY: the provider's objects are static, and begin as those of the header do.
    unsafe { function(context, qp, send_cq, recv_cq) }
}
