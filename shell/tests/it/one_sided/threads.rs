//! Ends that go from thread to thread, and those that may not be used on another.

use std::ffi::OsStr;

use bareverbs_shell::memory::{HostDomain, Lease, View};
use bareverbs_shell::one_sided::{TransferErrorKind, Transfers};
use bareverbs_shell::soft::Mode;

use crate::own_process;
use crate::scene::{ALL, content, memory, pair, published, succeed, transfers_config, view};
use crate::world::{World, patiently};

#[test]
fn ends_views_and_leases_go_to_other_threads() {
    fn is_sent<T: Send>() {}
    fn is_shared<T: Send + Sync>() {}
    is_sent::<Transfers<8>>();
    is_shared::<View>();
    is_shared::<Lease>();
    is_shared::<HostDomain>();
    let world = World::soft(Mode::Prompt);
    let (mut a, b) = pair(&world, &transfers_config());
    let (here, there) = (memory(&[7; 8]), memory(&[0; 8]));
    let weak = here.downgrade().expect("owned bytes have a weak form");
    let (local, lease) = (view(&a, &here, ALL), published(&b, &there, ALL));
    let write = a.write(&local, lease.remote()).expect("posted");
    drop((here, local));
    // Posted here, ended there: the view in use goes along, and is given back where the end is told.
    std::thread::spawn(move || succeed(&mut a, write)).join().expect("it ends");
    assert!(weak.upgrade().is_err());
    assert_eq!(content(&there), [7; 8]);
}

#[test]
fn a_second_thread_may_neither_post_nor_poll_where_the_providers_locks_are_off() {
    own_process::run(
        "one_sided::threads::a_second_thread_may_neither_post_nor_poll_where_the_providers_locks_are_off",
        &[("MLX5_SINGLE_THREADED", OsStr::new("1"))],
        || {
            crate::drop_log::keep();
            let world = World::soft(Mode::Prompt);
            let (mut a, b) = pair(&world, &transfers_config());
            let (here, there) = (memory(&[7; 8]), memory(&[0; 8]));
            let (local, lease) = (view(&a, &here, ALL), published(&b, &there, ALL));
            let write = a.write(&local, lease.remote()).expect("the thread that opened the device");
            let (mut a, refused) = std::thread::scope(|scope| {
                let elsewhere = || {
                    let remote = lease.remote();
                    let refused = [
                        a.write(&local, remote).map(drop),
                        a.write_with_imm(&local, remote, 1).map(drop),
                        a.read(&local, remote).map(drop),
                        a.fetch_add(&local, remote, 1).map(drop),
                        a.compare_swap(&local, remote, 1, 2).map(drop),
                        a.poll(|event| panic!("{event:?}")).map(drop),
                        a.wait(&patiently(), |event| panic!("{event:?}")).map(drop),
                        a.wait_for_all(&patiently(), |event| panic!("{event:?}")).map(drop),
                    ];
                    (a, refused.map(|outcome| outcome.map_err(|error| error.kind)))
                };
                scope.spawn(elsewhere).join().expect("no panic")
            });
            assert_eq!(refused, [const { Err(TransferErrorKind::SecondThread) }; 8]);
            // Nothing happened: the first thread goes on.
            succeed(&mut a, write);
            assert_eq!(content(&there), [7; 8]);
            std::thread::spawn(move || drop((a, b, local, lease))).join().expect("no panic");
            drop((here, there));
            world.assert_clean();
        },
    );
}
