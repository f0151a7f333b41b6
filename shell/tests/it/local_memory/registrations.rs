//! Registrations: kinds apart, failures forgotten, threads at once.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Barrier};

use bareverbs_core::range::AddressRange;
use bareverbs_core::view::{DeviceName, KeyedRange};
use bareverbs_shell::memory::{
    Backend, BackendKind, InstallError, LocalMemory, RecordError, Registered, View, ViewGuard,
};

use super::{device, fake_failure, fake_view, host_memory};

enum Keys {}

impl BackendKind for Keys {
    const NAME: &'static str = "keys";
}

/// Of the same name, and another kind all the same.
enum OtherKeys {}

impl BackendKind for OtherKeys {
    const NAME: &'static str = "keys";
}

#[test]
fn kinds_of_registration_know_nothing_of_each_other_even_under_one_name() {
    let memory = host_memory(&[0; 64]);
    let kinds = [Backend::VERBS, Backend::of::<Keys>(), Backend::of::<OtherKeys>()];
    for (backend, key) in kinds.into_iter().zip(1..) {
        assert!(matches!(memory.registrations(backend).registered("d"), Registered::Nothing));
        memory.registrations(backend).install(fake_view(memory.bytes(), "d", key).0).expect("the first of its kind");
    }
    for (backend, key) in kinds.into_iter().zip(1..) {
        let keys: Vec<_> = memory.registrations(backend).iter().map(|view| view.lkey()).collect();
        assert_eq!(keys, [key], "{backend:?}");
    }
    let failure = fake_failure(memory.bytes(), "e", libc::EAGAIN, "x");
    memory.registrations(Backend::VERBS).record_failure(failure).expect("nothing is in force");
    assert!(matches!(memory.registrations(Backend::of::<Keys>()).registered("e"), Registered::Nothing));
}

#[test]
fn a_failure_stands_until_it_is_forgotten_and_the_first_of_two_stands() {
    let memory = host_memory(&[0; 64]);
    let registrations = memory.registrations(Backend::VERBS);
    assert_eq!(registrations.forget_failure("d"), None);
    let failure = |reason| fake_failure(memory.bytes(), "d", libc::EAGAIN, reason);
    let first = registrations.record_failure(failure("the first")).expect("nothing is in force");
    let second = registrations.record_failure(failure("the second")).expect("nothing is in force");
    assert_eq!((second.reason(), &second), ("the first", &first));
    assert_eq!(registrations.forget_failure("d"), Some(first));
    assert!(matches!(registrations.registered("d"), Registered::Nothing));
    assert_eq!(registrations.install(fake_view(memory.bytes(), "d", 3).0).expect("forgotten").lkey(), 3);
}

#[test]
fn a_view_of_other_bytes_is_refused_and_given_back() {
    let memory = host_memory(&[0; 64]);
    let bytes = memory.bytes();
    for (base, len_bytes) in [(bytes.base(), 63), (bytes.base() + 1, 64), (bytes.base() + 1, 63)] {
        let got = AddressRange::new(base, len_bytes).expect("a range");
        let (view, gone) = fake_view(got, "d", 1);
        let error = memory.registrations(Backend::VERBS).install(view).expect_err("other bytes");
        assert_eq!(error, InstallError::OtherBytes { got, expected: bytes });
        assert_eq!(gone.load(Ordering::Relaxed), 1);
    }
    assert!(matches!(memory.registrations(Backend::VERBS).registered("d"), Registered::Nothing));
}

/// What asks the memory's registrations when it goes.
struct Asks(LocalMemory, DeviceName);

impl ViewGuard for Asks {
    fn device(&self) -> &DeviceName {
        &self.1
    }
}

impl Drop for Asks {
    fn drop(&mut self) {
        let registrations = self.0.registrations(Backend::VERBS);
        let failure = fake_failure(self.0.bytes(), "d", libc::EAGAIN, "x");
        assert!(
            registrations.record_failure(failure).is_err_and(|error| error.view().map(|view| view.lkey()) == Some(1))
        );
        assert_eq!(registrations.forget_failure("d"), None);
    }
}

#[test]
fn a_view_that_loses_is_given_back_with_no_lock_held() {
    let (done, is_done) = std::sync::mpsc::channel();
    // Of its own, so that one that hangs fails.
    std::thread::spawn(move || {
        let memory = host_memory(&[0; 64]);
        let registrations = memory.registrations(Backend::VERBS);
        registrations.install(fake_view(memory.bytes(), "d", 1).0).expect("the first");
        let bytes = memory.bytes();
        let range = KeyedRange::new(bytes.base(), bytes.base(), bytes.len_bytes(), 2, 2).expect("bytes");
        // SAFETY: 1, 2: no device knows the key. 3: the name is the guard's own.
        let loses = unsafe { View::new(range, Arc::new(Asks(memory.clone(), device("d")))) };
        let _ = done.send(registrations.install(loses).map(|stands| stands.lkey()));
    });
    assert_eq!(is_done.recv_timeout(crate::world::PATIENCE), Ok(Ok(1)));
}

#[test]
fn a_failure_of_other_bytes_is_refused_and_not_recorded() {
    let memory = host_memory(&[0; 64]);
    let (registrations, bytes) = (memory.registrations(Backend::VERBS), memory.bytes());
    for (base, len_bytes) in [(bytes.base(), 63), (bytes.base() + 1, 64), (bytes.base() + 1, 63)] {
        let got = AddressRange::new(base, len_bytes).expect("a range");
        let error = registrations.record_failure(fake_failure(got, "d", libc::EAGAIN, "x")).expect_err("other bytes");
        let RecordError::OtherBytes { got: told, expected } = error else { panic!("{error}") };
        assert_eq!((told, expected), (got, bytes));
        assert!(matches!(registrations.registered("d"), Registered::Nothing));
    }
}

#[test]
fn of_threads_that_install_and_fail_at_once_all_are_told_the_same_and_losers_are_given_back_once() {
    for round in 0..100 {
        let memory = host_memory(&[0; 64]);
        let together = Barrier::new(4);
        let outcomes: Vec<_> = std::thread::scope(|threads| {
            let spawned: Vec<_> = (1..=4)
                .map(|key| {
                    let (memory, together) = (&memory, &together);
                    threads.spawn(move || {
                        let registrations = memory.registrations(Backend::VERBS);
                        let (view, gone) = fake_view(memory.bytes(), "d", key);
                        let failure = fake_failure(memory.bytes(), "d", libc::ENOMEM, "x");
                        together.wait();
                        // Every second one fails.
                        let told = if key % 2 == 0 {
                            registrations.install(view).map(|view| view.lkey()).ok()
                        } else {
                            drop(view);
                            registrations
                                .record_failure(failure)
                                .err()
                                .and_then(RecordError::view)
                                .map(|view| view.lkey())
                        };
                        (told, key, gone)
                    })
                })
                .collect();
            spawned.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        let stands = memory.registrations(Backend::VERBS).registered("d").view().map(|view| view.lkey());
        for (told, key, gone) in &outcomes {
            assert_eq!(*told, stands, "round {round}");
            let given_back = u32::from(stands != Some(*key));
            assert_eq!(gone.load(Ordering::Relaxed), given_back, "round {round}, key {key}, in force {stands:?}");
        }
        drop(memory);
        assert!(outcomes.iter().all(|(_, _, gone)| gone.load(Ordering::Relaxed) == 1), "each once");
    }
}
