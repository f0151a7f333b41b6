//! Registrations beside a twin that is a map, by any sequence of calls, handles and weak handles.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bareverbs_shell::memory::{Backend, BackendKind, LocalMemory, OwnedBytes, Registered, WeakLocalMemory};
use proptest::prelude::*;

use super::{fake_failure, fake_view};

enum Keys {}

impl BackendKind for Keys {
    const NAME: &'static str = "keys";
}

const BACKENDS: [Backend; 2] = [Backend::VERBS, Backend::of::<Keys>()];
const DEVICES: [&str; 3] = ["mlx5_0", "mlx5_1", "rxe0"];

/// One call: on which backend and device.
#[derive(Clone, Copy, Debug)]
enum Call {
    Install(usize, usize),
    Fail(usize, usize),
    Forget(usize, usize),
    /// Another handle takes the place of the one in use, and that goes.
    Clone,
    /// All handles go, and the weak one makes a new one.
    Anew,
}

fn call() -> impl Strategy<Value = Call> {
    let place = (0..BACKENDS.len(), 0..DEVICES.len());
    prop_oneof![
        3 => place.clone().prop_map(|(backend, device)| Call::Install(backend, device)),
        2 => place.clone().prop_map(|(backend, device)| Call::Fail(backend, device)),
        2 => place.prop_map(|(backend, device)| Call::Forget(backend, device)),
        1 => Just(Call::Clone),
        1 => Just(Call::Anew),
    ]
}

/// What is known of a device: a key, or the number of a failure.
type Twin = BTreeMap<(usize, usize), Result<u32, u32>>;

fn reason(number: u32) -> String {
    format!("failure {number}")
}

/// What the memory knows, in the twin's words.
fn known(memory: &LocalMemory) -> Twin {
    let mut known = Twin::new();
    for (at, backend) in BACKENDS.into_iter().enumerate() {
        for (device, name) in DEVICES.into_iter().enumerate() {
            let found = match memory.registrations(backend).registered(name) {
                Registered::View(view) => Ok(view.lkey()),
                Registered::Failed(failure) => {
                    Err(failure.reason().trim_start_matches("failure ").parse().expect("a number"))
                }
                Registered::Nothing => continue,
            };
            known.insert((at, device), found);
        }
    }
    known
}

proptest! {
    #[test]
    fn registrations_agree_with_a_map_and_every_loser_is_given_back_once(calls in prop::collection::vec(call(), 0..60)) {
        let owner = OwnedBytes::from(vec![0; 16]);
        let mut memory = LocalMemory::new(owner.clone()).expect("host memory");
        let weak: WeakLocalMemory = memory.downgrade().expect("it has a weak form");
        let (mut twin, mut made) = (Twin::new(), Vec::<Arc<AtomicU32>>::new());
        for (number, call) in (1..).zip(calls) {
            match call {
                Call::Install(backend, device) => {
                    let (view, gone) = fake_view(memory.bytes(), DEVICES[device], number);
                    made.push(gone);
                    let told = memory.registrations(BACKENDS[backend]).install(view).map(|view| view.lkey());
                    prop_assert_eq!(told.ok(), twin.entry((backend, device)).or_insert(Ok(number)).ok());
                }
                Call::Fail(backend, device) => {
                    let failure = fake_failure(memory.bytes(), DEVICES[device], libc::EAGAIN, &reason(number));
                    let told = memory.registrations(BACKENDS[backend]).record_failure(failure);
                    match twin.entry((backend, device)).or_insert(Err(number)) {
                        Ok(key) => {
                            let stands = told.err().and_then(|error| error.view());
                            prop_assert_eq!(stands.map(|view| view.lkey()), Some(*key));
                        }
                        Err(first) => {
                            let text = told.map(|failure| failure.reason().to_owned()).ok();
                            prop_assert_eq!(text, Some(reason(*first)));
                        }
                    }
                }
                Call::Forget(backend, device) => {
                    let told = memory.registrations(BACKENDS[backend]).forget_failure(DEVICES[device]);
                    let failed = twin.get(&(backend, device)).is_some_and(Result::is_err);
                    prop_assert_eq!(told.is_some(), failed);
                    twin.retain(|place, known| *place != (backend, device) || known.is_ok());
                }
                Call::Clone => memory = memory.clone(),
                Call::Anew => {
                    drop(memory);
                    memory = weak.upgrade().expect("its owner lives");
                    twin.retain(|_, known| known.is_err());
                }
            }
            prop_assert_eq!(&known(&memory), &twin);
            // What was made and is not in force was given back, once.
            let in_force = twin.values().filter(|known| known.is_ok()).count();
            let given_back: u32 = made.iter().map(|gone| gone.load(Ordering::Relaxed)).sum();
            prop_assert_eq!(made.len() - in_force, given_back as usize);
            prop_assert!(made.iter().all(|gone| gone.load(Ordering::Relaxed) <= 1));
        }
        for (at, backend) in BACKENDS.into_iter().enumerate() {
            let listed = memory.registrations(backend).iter().count();
            prop_assert_eq!(listed, twin.iter().filter(|((of, _), known)| *of == at && known.is_ok()).count());
        }
    }
}
