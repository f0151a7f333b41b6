//! Binding where something around it is not as it should be: another library's provider, a forked child, a device that fails.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::sync::Arc;

use bareverbs_core::verbs::mlx5dv::{Mkey, MkeyInitAttr};

use bareverbs_shell::segments::{BindError, Binder};
use bareverbs_shell::soft::SoftFabric;
use bareverbs_shell::symbols::{Mlx5Symbols, Mlx5Table, mlx5_system};
use bareverbs_shell::{Error, Fabric, FabricKind};

use super::binding_scene::{BASE, Bench, M, config, mlx5, range};
use crate::own_process;
use crate::processes::in_forked_child;

/// The fabric's provider, as if it were of another library.
fn of_another_library(soft: &SoftFabric) -> Arc<Mlx5Symbols> {
    let table = Mlx5Table { library: "another".into(), ..soft.mlx5_symbols().table().clone() };
    #[allow(unsafe_code)]
    // SAFETY: the fabric's own entry points.
    Arc::new(unsafe { Mlx5Symbols::new(table, None, None) })
}

#[test]
fn a_provider_of_another_library_is_never_given_a_device() {
    let bench = Bench::new(mlx5("foreign"), M);
    bench.soft.clear_record();
    let mut others = vec![of_another_library(&bench.soft)];
    // The system's own would read the software's device as if it were its.
    others.extend(mlx5_system::load());
    for other in others {
        let library = Arc::clone(&other.library);
        let refused = Binder::new(&bench.domain, other, config()).map(|_| ()).expect_err("refused");
        let verbs = Arc::clone(&bench.soft.symbols().library);
        assert_eq!(refused, BindError::OtherLibrary { mlx5: library, verbs });
        assert!(refused.is_unsupported());
    }
    assert!(bench.soft.record().is_empty());
    bench.assert_all_goes();
}

thread_local! {
    static PROVIDER: RefCell<Option<Arc<Mlx5Symbols>>> = const { RefCell::new(None) };
}

#[allow(unsafe_code)]
unsafe extern "C" fn key_of_no_entries(attr: *mut MkeyInitAttr) -> *mut Mkey {
    let real = PROVIDER.with_borrow(Clone::clone).expect("set on this thread");
    // SAFETY: passed on.
    let key = unsafe { (real.create_mkey)(attr) };
    // SAFETY: the caller's attributes, which the call writes to.
    unsafe { (*attr).max_entries = 0 };
    key
}

#[test]
fn a_key_with_less_room_than_was_asked_for_is_destroyed_and_told_with_both_numbers() {
    let bench = Bench::new(mlx5("small_keys"), 16 * M);
    let real = bench.soft.mlx5_symbols();
    PROVIDER.set(Some(Arc::clone(&real)));
    let table = Mlx5Table { create_mkey: key_of_no_entries, ..real.table().clone() };
    #[allow(unsafe_code)]
    // SAFETY: the fabric's own entry points, of which one says that it made less than it did.
    let small = Arc::new(unsafe { Mlx5Symbols::new(table, real.release(), None) });
    let region = Arc::new(bench.register(range(BASE, M)).expect("a region"));
    let binder = Binder::new(&bench.domain, small, config()).expect("mlx5");
    let refused = binder.bind(crate::scene::ALL, vec![region], range(BASE, M)).map(|_| ());
    let device = "small_keys".into();
    let granted = Error::Granted { device, what: "an indirect key's entries", asked: 1, granted: 0 };
    assert_eq!(refused, Err(BindError::Shell(granted)));
    assert_eq!((bench.live().keys, bench.live().mrs), (0, 0));
    drop(binder);
    bench.assert_all_goes();
}

#[test]
fn a_fabric_has_the_provider_that_goes_with_its_library_or_none() {
    let soft = SoftFabric::new(mlx5("given")).expect("a free slot");
    let bare = Fabric::with_symbols(soft.symbols(), FabricKind::Soft);
    assert!(bare.mlx5().is_none());
    let given = Fabric::of_soft(&soft).mlx5().expect("its own");
    assert!(Arc::ptr_eq(&given, &soft.mlx5_symbols()));
    assert!(bare.with_mlx5(of_another_library(&soft)).mlx5().is_none());
    assert!(Fabric::soft().expect("a free slot").mlx5().is_some());
    // The system's is what can be loaded beside it.
    if let Ok(system) = Fabric::system()
        && *system.symbols().library == *"libibverbs.so.1"
    {
        assert_eq!(system.mlx5().is_some(), mlx5_system::load().is_ok());
    }
}

#[test]
fn a_device_that_fails_for_good_ends_in_an_error_and_everything_can_go() {
    let bench = Bench::new(mlx5("fatal"), 16 * M);
    let window = bench.bind_one(range(BASE, M)).expect("bound");
    let region = Arc::new(bench.register(range(BASE + M, M)).expect("a region"));
    bench.soft.device_fatal("fatal");
    for _ in 0..3 {
        let error = bench.binder.bind(crate::scene::ALL, vec![Arc::clone(&region)], region.range());
        let error = error.map(|_| ()).expect_err("it has failed");
        assert!(error.to_string().contains("errno 5 (EIO)"), "{error}");
    }
    drop((window, region));
    bench.assert_all_goes();
}

#[test]
fn a_forked_child_binds_nothing_and_its_drops_make_no_call() {
    own_process::run(
        "segments::binding_surroundings::a_forked_child_binds_nothing_and_its_drops_make_no_call",
        &[],
        || {
            let bench = Bench::new(mlx5("forked"), 16 * M);
            let window = bench.bind_one(range(BASE, M)).expect("bound");
            let region = Arc::new(bench.register(range(BASE + M, M)).expect("a region"));
            bench.soft.clear_record();
            let before = bench.live();
            let forked = || Some(BindError::Shell(Error::Forked { device: "forked".into() }));
            let refused = || {
                let bound = bench.binder.bind(crate::scene::ALL, vec![Arc::clone(&region)], region.range());
                let limits = bench.binder.limits();
                bound.err() == forked() && limits.err() == forked() && bench.soft.record().is_empty()
            };
            assert!(in_forked_child(refused), "the child was served");
            let Bench { soft, domain, binder, world, gpu } = bench;
            let mut owned = Some((window, region, binder, domain));
            let dropped = || {
                drop(owned.take());
                soft.record().is_empty() && soft.live() == before
            };
            assert!(in_forked_child(dropped), "a drop called something");
            drop(owned);
            world.assert_clean();
            drop(gpu);
        },
    );
}

#[test]
fn where_the_providers_locks_are_off_another_thread_binds_nothing() {
    let name = "segments::binding_surroundings::where_the_providers_locks_are_off_another_thread_binds_nothing";
    own_process::run(name, &[("MLX5_SINGLE_THREADED", OsStr::new("1"))], || {
        let bench = Bench::new(mlx5("one_thread"), 16 * M);
        let region = Arc::new(bench.register(range(BASE, M)).expect("a region"));
        drop(bench.binder.bind(crate::scene::ALL, vec![Arc::clone(&region)], region.range()).expect("bound"));
        let elsewhere = std::thread::scope(|scope| {
            let bind = || bench.binder.bind(crate::scene::ALL, vec![Arc::clone(&region)], region.range()).map(|_| ());
            scope.spawn(bind).join().expect("no panic")
        });
        assert_eq!(elsewhere, Err(BindError::Shell(Error::SecondThread { device: "one_thread".into() })));
        drop(region);
        bench.assert_all_goes();
    });
}
