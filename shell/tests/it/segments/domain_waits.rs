//! Who waits for another's turn, and for how long: by the hook that is told of what could not be freed, by a device that does not
//! answer, and by a scan that began too early or looked elsewhere.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use bareverbs_core::range::AddressRange;
use bareverbs_shell::objects::report::set_drop_hook;
use bareverbs_shell::segments::{
    BindError, DriverScanner, NotBound, ScanError, Scanner, SegmentErrorKind, SegmentScan,
};
use bareverbs_shell::soft::{Answer, BindingFault};

use super::domain_scene::{M, MAX, Making, Scene, Script, seen};
use crate::own_process;
use crate::world::PATIENCE;

fn patient(patience: Duration) -> Scene {
    let mut making = Making::default();
    making.config = making.config.patience(patience);
    making.scene()
}

/// Has the hook for what could not be freed need a lock, once, and say so. What it says last is whether it got it.
fn hook_that_needs(interpreter: &Arc<Mutex<()>>) -> Receiver<bool> {
    let (says, said) = channel();
    let once = Mutex::new(Some((Arc::clone(interpreter), says)));
    set_drop_hook(Some(Arc::new(move |_| {
        let Some((interpreter, says)) = once.lock().expect("whole").take() else { return };
        says.send(false).expect("the test listens");
        let began = Instant::now();
        while matches!(interpreter.try_lock(), Err(TryLockError::WouldBlock)) {
            if began.elapsed() > PATIENCE {
                return;
            }
            thread::yield_now();
        }
        says.send(true).expect("the test listens");
    })));
    said
}

#[test]
fn a_hook_that_needs_what_a_waiting_caller_holds_does_not_deadlock() {
    let test = "segments::domain_waits::a_hook_that_needs_what_a_waiting_caller_holds_does_not_deadlock";
    own_process::run(test, &[], || {
        let scene = patient(Duration::from_millis(20));
        let (base, other) = (scene.segment(M), scene.segment(M));
        scene.scanner.shows(&[seen(base, M)]);
        let view = scene.view(base, 4096);
        scene.cuda.map(base + M, MAX + M);
        scene.scanner.shows(&[seen(base, MAX + 2 * M)]);
        // The second tail region is refused, then the first cannot be deregistered, and the hook is told within the turn.
        scene.soft.fail("ibv_reg_dmabuf_mr", 2, Answer::null(libc::ENOMEM));
        scene.soft.fail("ibv_dereg_mr", 1, Answer::returned(libc::EBUSY));
        let interpreter = Arc::new(Mutex::new(()));
        let said = hook_that_needs(&interpreter);
        thread::scope(|threads| {
            let held = interpreter.lock().expect("whole");
            let binding = threads.spawn(|| scene.register(base + MAX, M).map(drop));
            said.recv().expect("the hook runs");
            // The turn cannot end before this returns.
            let own = scene.view(other, 4096);
            assert_eq!(scene.domain.statistics().fallbacks, 1, "a region of its own");
            drop(held);
            assert!(binding.join().expect("no panic").is_err());
            drop(own);
        });
        assert_eq!(said.recv(), Ok(true));
        set_drop_hook(None);
        drop(view);
    });
}

#[test]
fn what_a_growth_retires_goes_after_the_turn() {
    let test = "segments::domain_waits::what_a_growth_retires_goes_after_the_turn";
    own_process::run(test, &[], || {
        let scene = patient(Duration::from_secs(600));
        let (base, other) = (scene.segment(M), scene.segment(M));
        scene.scanner.shows(&[seen(base, M)]);
        drop(scene.view(base, 4096));
        scene.cuda.map(base + M, M);
        scene.scanner.shows(&[seen(base, 2 * M)]);
        scene.soft.fail("mlx5dv_destroy_mkey", 1, Answer::returned(libc::EBUSY));
        let interpreter = Arc::new(Mutex::new(()));
        let said = hook_that_needs(&interpreter);
        thread::scope(|threads| {
            let held = interpreter.lock().expect("whole");
            let growing = threads.spawn(|| scene.view(base + M, 4096).key_addr());
            said.recv().expect("the hook runs");
            scene.scanner.shows(&[seen(base, 2 * M), seen(other, M)]);
            // By a turn of its own, while the hook waits.
            drop(scene.view(other, 4096));
            drop(held);
            assert_eq!(growing.join().expect("no panic"), M);
        });
        assert_eq!(said.recv(), Ok(true));
        assert_eq!(scene.domain.statistics().fallbacks, 0);
        set_drop_hook(None);
    });
}

#[test]
fn a_device_that_does_not_answer_costs_a_round_one_deadline_whatever_there_is_to_bind() {
    let scene = Scene::new();
    let bases: Vec<_> = (0..10).map(|_| scene.segment(M)).collect();
    scene.scanner.shows(&bases.iter().map(|base| seen(*base, M)).collect::<Vec<_>>());
    scene.soft.binding_fault(3, BindingFault::Lost);
    let SegmentErrorKind::NotBound { why, .. } = scene.refusal(bases[9], 4096) else { panic!("not bound") };
    assert!(matches!(*why, NotBound::Bind(BindError::Late { .. })), "{why}");
    assert_eq!(scene.bound().len(), 3, "those after it were not tried");
    // What was bound before it is served; the next round binds the rest.
    drop(scene.view(bases[1], 4096));
    assert_eq!(scene.bound().len(), 3);
    drop(scene.view(bases[9], 4096));
    assert_eq!(scene.bound().len(), 3 + 8);
    scene.assert_all_goes();
    // Without a queue pair for the one, there is none for the others.
    let scene = Scene::new();
    let (a, b) = (scene.segment(M), scene.segment(M));
    scene.scanner.shows(&[seen(a, M), seen(b, M)]);
    scene.soft.fail("mlx5dv_create_qp", 1, Answer::null(libc::ENOMEM));
    assert!(matches!(scene.refusal(b, 4096), SegmentErrorKind::NotBound { .. }));
    assert_eq!((scene.calls("mlx5dv_create_qp"), scene.bound().len()), (1, 0));
    drop((scene.view(a, 4096), scene.view(b, 4096)));
    scene.assert_all_goes();
}

/// Stops the first scans: each says that it began, and goes on when it is let.
struct Gates<S> {
    inner: S,
    /// Whether the answer is made before it is let go.
    looks_first: bool,
    gates: Mutex<VecDeque<(Sender<()>, Receiver<()>)>>,
}

impl<S: Scanner> Scanner for Gates<S> {
    fn scan(&self, hint: AddressRange) -> Result<SegmentScan, ScanError> {
        let early = self.looks_first.then(|| self.inner.scan(hint));
        let gate = self.gates.lock().expect("whole").pop_front();
        if let Some((began, goes)) = gate {
            began.send(()).expect("the test listens");
            goes.recv().expect("the test lets it go");
        }
        early.unwrap_or_else(|| self.inner.scan(hint))
    }
}

/// What a test has of a gate: to hear that a scan began, and to let it go.
type Gate = (Receiver<()>, Sender<()>);

fn gates<S: Scanner + 'static, const N: usize>(scene: &Scene, inner: S, looks_first: bool) -> [Gate; N] {
    let made = [(); N].map(|()| (channel(), channel()));
    let (mut inside, mut outside) = (VecDeque::new(), Vec::new());
    for ((began, begins), (go, goes)) in made {
        inside.push_back((began, goes));
        outside.push((begins, go));
    }
    scene.domain.set_scanner(Some(Arc::new(Gates { inner, looks_first, gates: Mutex::new(inside) })));
    outside.try_into().expect("as many")
}

struct Told(Arc<Script>);

impl Scanner for Told {
    fn scan(&self, hint: AddressRange) -> Result<SegmentScan, ScanError> {
        self.0.scan(hint)
    }
}

/// Long enough for a thread to come to wait; if it is not, the test shows less.
fn a_while() {
    thread::sleep(Duration::from_millis(100));
}

#[test]
fn a_walk_elsewhere_is_no_answer_to_those_who_waited_for_it() {
    let scene = patient(Duration::from_secs(600));
    let [first, second] = gates(&scene, DriverScanner::new(scene.driver.clone()), false);
    let bases = [(); 3].map(|()| scene.segment(M));
    thread::scope(|threads| {
        let scene = &scene;
        let asks = bases.map(|base| {
            let asks = threads.spawn(move || drop(scene.view(base, 4096)));
            a_while();
            asks
        });
        first.0.recv().expect("it scans");
        first.1.send(()).expect("it waits");
        // One of the two walks around what it asks for, the other waits for that.
        second.0.recv().expect("it scans");
        a_while();
        second.1.send(()).expect("it waits");
        asks.into_iter().for_each(|asks| asks.join().expect("no panic"));
    });
    assert_eq!((scene.domain.statistics().fallbacks, scene.live()), (0, (3, 3)));
    scene.assert_all_goes();
}

#[test]
fn a_scan_that_began_before_a_caller_came_is_no_answer_to_it() {
    let scene = patient(Duration::from_secs(600));
    let (a, b) = (scene.segment(M), scene.segment(M));
    scene.scanner.shows(&[seen(a, M)]);
    let [gate] = gates(&scene, Told(Arc::clone(&scene.scanner)), true);
    thread::scope(|threads| {
        let first = threads.spawn(|| drop(scene.view(a, 4096)));
        gate.0.recv().expect("it has looked");
        scene.scanner.shows(&[seen(a, M), seen(b, M)]);
        let second = threads.spawn(|| drop(scene.view(b, 4096)));
        a_while();
        gate.1.send(()).expect("it waits");
        [first, second].into_iter().for_each(|asks| asks.join().expect("no panic"));
    });
    assert_eq!((scene.domain.statistics().fallbacks, scene.live()), (0, (2, 2)));
    scene.assert_all_goes();
}
