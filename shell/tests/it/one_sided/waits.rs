//! Waits of a caller whose operation stays outstanding: what keeps coming does not hold them up, and they name it.

use std::cell::Cell;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bareverbs_core::one_sided::OperationId;
use bareverbs_shell::Wait;
use bareverbs_shell::memory::{Lease, View};
use bareverbs_shell::one_sided::{Event, TransferErrorKind, connect_pair};
use bareverbs_shell::soft::Mode;
use bareverbs_shell::wait::Clock;

use crate::scene::{ALL, End, finish, memory, pattern, published, transfers_config, view};
use crate::world::World;

/// Looked at, it is a second later.
struct Steps(Cell<u64>);

impl Clock for Steps {
    fn now(&self) -> Duration {
        let at = self.0.get();
        self.0.set(at + 1);
        Duration::from_secs(at)
    }
}

/// Two ends, of which the first waits for the other to post a receive, which it does not.
struct Scene {
    a: End,
    b: End,
    waits: OperationId,
    /// Of the other end, and what it may write into.
    theirs: (View, Lease),
    /// Kept until the ends are gone.
    _lease: Lease,
}

fn scene(world: &World) -> Scene {
    let end = |receives| End::new(&world.open(), transfers_config().depths(64, receives)).expect("a queue pair");
    let (mut a, mut b) = (end(16), end(1));
    connect_pair(&mut a, &mut b).expect("both are in INIT");
    let (here, there) = (memory(&pattern(8, 1)), memory(&[0; 8]));
    let (local, lease) = (view(&a, &here, ALL), published(&b, &there, ALL));
    let first = a.write_with_imm(&local, lease.remote(), 1).expect("posted");
    assert_eq!(finish(&mut a), [(first, Ok(()))]);
    let waits = a.write_with_imm(&local, lease.remote(), 2).expect("posted");
    let (source, target) = (memory(&pattern(8, 2)), memory(&[0; 8]));
    let theirs = (view(&b, &source, ALL), published(&a, &target, ALL));
    Scene { a, b, waits, theirs, _lease: lease }
}

#[test]
fn a_wait_for_all_keeps_its_deadline_while_events_keep_coming() {
    let world = World::soft(Mode::Prompt);
    let Scene { mut a, mut b, waits, theirs: (from, lease), _lease } = scene(&world);
    let mut write = || b.write_with_imm(&from, lease.remote(), 3).is_ok();
    assert!(write());
    let clock = Steps(Cell::new(0));
    let (mut came, mut goes_on) = (0, true);
    let wait = Wait::at_most(Duration::from_secs(3)).clock(&clock);
    let told = a.wait_for_all(&wait, |event| {
        assert!(matches!(event, Event::Arrived(_)), "{event:?}");
        came += 1;
        // One more is there before this one is taken.
        goes_on = write();
    });
    let told = told.expect_err("it waits for a receive").kind;
    let TransferErrorKind::Timeout { waited, pending, .. } = told else { panic!("{told:?}") };
    assert_eq!((waited, pending), (Duration::from_secs(3), vec![waits]));
    assert!(came == 3 && goes_on, "{came} came: it stopped because no more came, and not at its deadline");
}

#[test]
fn a_wait_that_is_cancelled_names_what_is_outstanding() {
    let world = World::soft(Mode::Prompt);
    let Scene { mut a, b, waits, theirs, _lease } = scene(&world);
    let cancel = AtomicBool::new(true);
    let wait = Wait::at_most(Duration::from_secs(60)).cancelled_by(&cancel);
    let cancelled = TransferErrorKind::Cancelled { pending: vec![waits] };
    let told = a.wait(&wait, |event| panic!("{event:?}")).expect_err("cancelled");
    assert_eq!(told.kind, cancelled);
    let told = a.wait_for_all(&wait, |event| panic!("{event:?}")).expect_err("cancelled");
    assert!(told.to_string().contains(&format!("{:#x}", waits.raw())), "{told}");
    assert_eq!(told.kind, cancelled);
    assert!(a.pending().eq([waits]), "it stays so");
    drop((theirs, b));
}
