//! What the process around the library may do to it: variables that are no text, hooks that panic.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bareverbs_core::link::Immediate;
use bareverbs_shell::endpoint::{Endpoint, Frames};
use bareverbs_shell::objects::DeviceContext;
use bareverbs_shell::objects::report::set_drop_hook;
use bareverbs_shell::soft::{Answer, SoftConfig, SoftFabric};
use bareverbs_shell::symbols::system::LoadError;
use bareverbs_shell::{Error, Fabric};

use crate::own_process;
use crate::world::config;

/// A panic's payload that panics when it is dropped, and whose panic carries another, so many times.
struct Bomb(u32);

impl Drop for Bomb {
    fn drop(&mut self) {
        if self.0 > 0 {
            panic_any(Self(self.0 - 1));
        }
    }
}

/// An endpoint whose drop has something to report.
fn end_with_a_refused_destroy(soft: &SoftFabric) -> Endpoint<Immediate, 8, 8> {
    let context = DeviceContext::open(&soft.symbols(), None).expect("a device");
    let end = Endpoint::new(&context, Immediate, config(), Frames::Owned).expect("an endpoint");
    soft.fail("ibv_dereg_mr", 1, Answer::returned(16));
    end
}

#[test]
fn a_drop_hook_that_panics_with_what_panics_when_dropped_leaves_a_drop_as_it_is() {
    own_process::run(
        "hostile_surroundings::a_drop_hook_that_panics_with_what_panics_when_dropped_leaves_a_drop_as_it_is",
        &[],
        || {
            static TOLD: AtomicU32 = AtomicU32::new(0);
            let soft = SoftFabric::new(SoftConfig::default()).expect("a free slot");
            for links in 0..4 {
                set_drop_hook(Some(Arc::new(move |_| {
                    TOLD.fetch_add(1, Ordering::Relaxed);
                    panic_any(Bomb(links));
                })));
                let end = end_with_a_refused_destroy(&soft);
                assert!(catch_unwind(AssertUnwindSafe(|| drop(end))).is_ok(), "a drop panicked");
                // Nor does it abort a thread that unwinds.
                let end = end_with_a_refused_destroy(&soft);
                let unwound = std::thread::spawn(move || {
                    let _end = end;
                    panic!("something else");
                });
                let payload = unwound.join().expect_err("it panicked");
                assert_eq!(payload.downcast_ref::<&str>(), Some(&"something else"));
            }
            assert_eq!(TOLD.load(Ordering::Relaxed), 8, "each was told");
        },
    );
}

#[test]
fn a_drop_hook_may_hold_what_reports_when_the_hook_is_replaced() {
    own_process::run("hostile_surroundings::a_drop_hook_may_hold_what_reports_when_the_hook_is_replaced", &[], || {
        let soft = SoftFabric::new(SoftConfig::default()).expect("a free slot");
        let held = std::sync::Mutex::new(end_with_a_refused_destroy(&soft));
        set_drop_hook(Some(Arc::new(move |_| drop(held.lock()))));
        static TOLD: AtomicU32 = AtomicU32::new(0);
        set_drop_hook(Some(Arc::new(|_| {
            TOLD.fetch_add(1, Ordering::Relaxed);
        })));
        assert_eq!(TOLD.load(Ordering::Relaxed), 1, "the new hook was told");
    });
}

#[cfg(target_os = "linux")]
#[test]
fn a_librarys_name_that_is_no_text_is_tried_by_its_bytes_and_no_other_is_loaded() {
    let test = "hostile_surroundings::a_librarys_name_that_is_no_text_is_tried_by_its_bytes_and_no_other_is_loaded";
    if own_process::is_child_of(test) {
        let error = Fabric::system().expect_err("that is no library");
        let Error::Load(LoadError::NotFound { library, overridden: true, reason }) = &error else { panic!("{error}") };
        assert!(library.ends_with("library\u{fffd}.so"), "{library}");
        assert!(error.to_string().contains("BAREVERBS_LIBRARY"), "{error}");
        // The file is there under those bytes only.
        assert!(!reason.contains("No such file"), "{reason}");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(OsStr::from_bytes(b"library\xff.so"));
    std::fs::write(&path, "this is no library").expect("a file");
    own_process::start(test, &[("BAREVERBS_LIBRARY", path.as_os_str())]);
}
