//! Shows that no panic can be reached from the hot paths: `check` links each of them, by itself, into a C program.
//!
//! The panic handler calls a function that nobody defines. The linker drops what cannot be reached; so a path links
//! exactly when no panic can be reached from it, as it is after optimising. The controls (`controls.rs`) can reach one,
//! and must not link: else the check has seen nothing.
//!
//! Each function named `proof_*` is one path, each named `control_*` a control; `check` reads the names here.
#![no_std]
#![allow(unsafe_code)]

mod access;
mod controls;
mod link;
mod one_sided;
mod segments;
mod view;
mod wire;

use core::mem::MaybeUninit;
use core::panic::PanicInfo;

unsafe extern "C" {
    /// Defined nowhere.
    fn a_panic_is_reachable() -> !;
}

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    // SAFETY: never called: a program with a call to it does not link.
    unsafe { a_panic_is_reachable() }
}

/// Exports functions to C. Their answers go through a pointer, so that nothing that they work out is left out; their
/// arguments come from outside, so that nothing is known of them.
macro_rules! exported {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $answer:ty $body:block)*) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(answer: &mut core::mem::MaybeUninit<$answer>, $($arg: $type),*) {
            crate::answered(answer, move || -> $answer { $body });
        }
    )*};
}
pub(crate) use exported;

#[inline(always)]
fn answered<R>(answer: &mut MaybeUninit<R>, body: impl FnOnce() -> R) {
    answer.write(body());
}
