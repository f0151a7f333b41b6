//! A forked child of a process with one-sided operations under way: it calls nothing, ends nothing, frees nothing.
//!
//! # Safety
//!
//! A view is made here of another's numbers, and its guard holds that other one.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bareverbs_core::view::DeviceName;

use bareverbs_shell::endpoint::Waking;
use bareverbs_shell::memory::{HostDomain, RegisterError, View, ViewGuard};
use bareverbs_shell::one_sided::TransferErrorKind;
use bareverbs_shell::soft::{LiveCounts, Mode, Record, SoftConfig};
use bareverbs_shell::{Error, Wait};

use crate::own_process;
use crate::processes::in_forked_child;
use crate::scene::{ALL, End, memory, pair, pattern, published, succeed, transfers_config, view};
use crate::world::World;

#[test]
fn a_forked_child_makes_no_call_and_its_parents_operations_go_on() {
    own_process::run("one_sided::forked::a_forked_child_makes_no_call_and_its_parents_operations_go_on", &[], || {
        let world = World::of_config(SoftConfig::default().record(Record::Bounded(10_000)), "soft");
        let soft = world.soft.clone().expect("a software fabric");
        let (a, mut b) = pair(&world, &transfers_config().waking(Waking::Events));
        let (here, there, other) = (memory(&pattern(64, 1)), memory(&[0; 64]), memory(&[0; 8]));
        let weak = here.downgrade().expect("owned bytes have a weak form");
        let (local, lease) = (view(&a, &here, ALL), published(&b, &there, ALL));
        let domain = HostDomain::new(a.domain().expect("not closed")).expect("the device can be asked");
        let fresh = End::new(&world.open(), transfers_config()).expect("a queue pair");
        let (mut a, mut fresh) = (Some(a), Some(fresh));
        let write = a.as_mut().expect("here").write(&local, lease.remote()).expect("posted");
        drop((local, here));
        let before = soft.live();
        let forked = Error::Forked { device: Arc::from("soft0") };
        soft.clear_record();
        let untouched = || soft.record().is_empty() && soft.live() == before && weak.upgrade().is_ok();

        let dropped = || {
            drop(a.take());
            untouched()
        };
        assert!(in_forked_child(dropped), "the drop called something, or let memory go");
        let closed = || a.take().map(|end| end.close().map(drop)) == Some(Err(forked.clone())) && untouched();
        assert!(in_forked_child(closed), "the close said that it was done");
        let abandoned = || {
            let end = a.as_mut().expect("here");
            end.abandon();
            end.pending().eq([write]) && untouched()
        };
        assert!(in_forked_child(abandoned), "what the parent's queue pair has was said to be gone");
        let registered = || {
            let refused = domain.register(&other).err() == Some(RegisterError::Shell(forked.clone()));
            let parts = domain.register_parts(&other).err() == Some(RegisterError::Shell(forked.clone()));
            // Nothing is recorded: it is the process that was refused.
            refused && parts && HostDomain::new(domain.protection_domain()).is_err() && untouched()
        };
        assert!(in_forked_child(registered), "memory was registered, or the device asked");
        let connected = || {
            let end = fresh.as_mut().expect("here");
            let (itself, path_mtu) = (end.destination(), end.path_mtu());
            end.connect(&itself, path_mtu, 1) == Err(forked.clone()) && untouched()
        };
        assert!(in_forked_child(connected), "the parent's queue pair was moved");
        let slept = || {
            let refused = b.wait(&Wait::at_most(Duration::from_secs(60)), |_| ()).map_err(|error| error.kind);
            let polled_only = soft.record().iter().all(|call| call.symbol == "ibv_poll_cq");
            refused == Err(TransferErrorKind::Sleep(Box::new(forked.clone()))) && polled_only
        };
        assert!(in_forked_child(slept), "a child slept on its parent's channel");

        succeed(a.as_mut().expect("here"), write);
        assert!(weak.upgrade().is_err());
        drop((a, b, fresh, lease, there, domain));
        assert_eq!((soft.live(), soft.misuse()), (LiveCounts::default(), Vec::new()));
    });
}

/// A guard of the caller's own, which knows of no process.
struct Told {
    view: View,
    gone: Arc<AtomicBool>,
}

impl ViewGuard for Told {
    fn device(&self) -> &DeviceName {
        self.view.device()
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        self.gone.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_forked_child_lets_no_view_go_that_its_parents_operations_use() {
    own_process::run("one_sided::forked::a_forked_child_lets_no_view_go_that_its_parents_operations_use", &[], || {
        let world = World::soft(Mode::Prompt);
        // No receives: nothing is outstanding but operations, or nothing at all.
        let (mut a, b) = pair(&world, &transfers_config().depths(64, 0));
        let (here, there) = (memory(&pattern(64, 1)), memory(&[0; 64]));
        let (known, lease) = (view(&a, &here, ALL), published(&b, &there, ALL));
        let gone = Arc::new(AtomicBool::new(false));
        let guard = Told { view: known.clone(), gone: Arc::clone(&gone) };
        // SAFETY: 1, 2: the guard holds the view whose range it is. 3: it names that one's device, no domain and no access.
        let local = unsafe { View::new(*known.range(), Arc::new(guard)) };
        let write = a.write(&local, lease.remote()).expect("posted");
        drop(local);
        let mut a = Some(a);
        let kept = || !gone.load(Ordering::Relaxed);
        let dropped = || {
            drop(a.take());
            kept()
        };
        assert!(in_forked_child(dropped), "the drop let go what the parent's device uses");
        let closed = || a.take().is_some_and(|end| end.close().is_err()) && kept();
        assert!(in_forked_child(closed), "the close let go what the parent's device uses");
        let abandoned = || {
            a.as_mut().expect("here").abandon();
            drop(a.take());
            kept()
        };
        assert!(in_forked_child(abandoned), "the end that was given up let go what the parent's device uses");
        assert!(kept());
        succeed(a.as_mut().expect("here"), write);
        assert!(!kept(), "given back where it was posted");
    });
}
