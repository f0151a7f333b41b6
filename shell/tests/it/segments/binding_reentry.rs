//! Who is let go, or told, by a binding that fails may ask the binder: nothing of the caller's runs under its lock.

use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use bareverbs_shell::memory::pages::Pages;
use bareverbs_shell::objects::MemoryRegion;
use bareverbs_shell::objects::report::set_drop_hook;
use bareverbs_shell::segments::Binder;
use bareverbs_shell::soft::{Answer, BindingFault, SoftFabric};

use super::binding_scene::{BASE, Bench, M, config, mlx5, range};
use crate::own_process;
use crate::scene::ALL;

const LEN_BYTES: usize = 4096;

/// That this comes to an end: it is what a deadlock would not.
fn ends(what: &str, body: impl FnOnce() + Send + 'static) {
    let (ended, end) = mpsc::channel();
    let thread = thread::spawn(move || {
        body();
        let _ = ended.send(());
    });
    // A panic ends it, too, and is passed on.
    if end.recv_timeout(Duration::from_secs(60)) == Err(mpsc::RecvTimeoutError::Timeout) {
        panic!("{what}: it does not come to an end");
    }
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

/// Keeps memory, and asks the binder when it goes.
struct Asks {
    #[expect(dead_code, reason = "held, not read: it keeps the memory mapped")]
    pages: Arc<Pages>,
    binder: Arc<Binder>,
    answers: Sender<bool>,
}

impl Drop for Asks {
    fn drop(&mut self) {
        let _ = self.answers.send(self.binder.limits().is_ok());
    }
}

/// What is made to fail.
type Fault = fn(&SoftFabric);

fn binder(bench: &Bench) -> Arc<Binder> {
    Arc::new(Binder::new(&bench.domain, bench.soft.mlx5_symbols(), config()).expect("an mlx5 device"))
}

#[test]
fn what_keeps_memory_may_ask_the_binder_when_a_failed_binding_lets_it_go() {
    let faults: [(&str, Fault); 5] = [
        ("no queue pair", |soft| soft.fail("mlx5dv_create_qp", 1, Answer::null(12))),
        ("no key", |soft| soft.fail("mlx5dv_create_mkey", 1, Answer::null(12))),
        ("refused", |soft| soft.fail("ibv_wr_complete", 1, Answer::returned(12))),
        ("late", |soft| soft.binding_fault(1, BindingFault::Late { polls: u64::MAX })),
        ("a poll that fails", |soft| soft.fail("ibv_poll_cq", 1, Answer::returned(-1))),
    ];
    for (what, fault) in faults {
        ends(what, move || {
            let bench = Bench::new(mlx5("asks"), M);
            let binder = binder(&bench);
            let pages = Arc::new(Pages::new(LEN_BYTES).expect("pages"));
            let base = pages.start().as_ptr().expose_provenance();
            let (answers, answered) = mpsc::channel();
            let keeper = Arc::new(Asks { pages, binder: Arc::clone(&binder), answers });
            #[allow(unsafe_code)]
            // SAFETY: the keeper keeps the pages, to which nobody has a reference.
            let region = unsafe { MemoryRegion::register(&bench.domain, base, LEN_BYTES, ALL, Some(keeper)) };
            let region = Arc::new(region.expect("a region"));
            fault(&bench.soft);
            let asked = region.range();
            binder.bind(ALL, vec![region], asked).map(|_| ()).expect_err(what);
            assert_eq!(answered.try_iter().collect::<Vec<_>>(), [true], "{what}: asked once, and answered");
            drop(binder);
            bench.assert_all_goes();
        });
    }
}

#[test]
fn a_drop_hook_may_ask_the_binder_whose_queue_pair_cannot_be_destroyed() {
    let name = "segments::binding_reentry::a_drop_hook_may_ask_the_binder_whose_queue_pair_cannot_be_destroyed";
    let body = || {
        let (bench, (answers, answered)) = (Bench::new(mlx5("hooked"), 16 * M), mpsc::channel());
        let binder = binder(&bench);
        let asked = Arc::clone(&binder);
        set_drop_hook(Some(Arc::new(move |_: &_| {
            let _ = answers.send(asked.limits().is_ok());
        })));
        // One that does not come to be, asked for its limits.
        bench.soft.fail("ibv_modify_qp", 1, Answer::returned(12));
        bench.soft.fail("ibv_destroy_qp", 1, Answer::returned(16));
        binder.limits().expect_err("it is not connected");
        assert_eq!(answered.try_iter().collect::<Vec<_>>(), [true], "told once, and answered");
        // One on which a binding is late.
        let region = Arc::new(bench.register(range(BASE, M)).expect("a region"));
        bench.soft.binding_fault(1, BindingFault::Late { polls: u64::MAX });
        bench.soft.fail("ibv_destroy_qp", 1, Answer::returned(16));
        binder.bind(ALL, vec![region], range(BASE, M)).map(|_| ()).expect_err("late");
        assert_eq!(answered.try_iter().collect::<Vec<_>>(), [true], "told once, and answered");
        set_drop_hook(None);
        drop(binder);
        bench.assert_stays(1, 1);
    };
    own_process::run(name, &[], || ends("a hook", body));
}
