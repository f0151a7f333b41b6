//! Which fabric is picked, and why: each in a process of its own, for its environment.

use std::ffi::OsStr;

use bareverbs_shell::{Error, Fabric, FabricKind};

use crate::own_process;

pub struct Case {
    pub name: &'static str,
    pub needs_device: bool,
    pub run: fn(),
}

const NO_LIBRARY: &str = "picking::without_a_library_the_software_fabric_is_picked_and_the_reason_names_it";
const NO_RDMA: &str = "picking::a_library_that_is_none_is_named_with_the_symbol_it_lacks";
const SYSTEM: &str = "picking::system::with_an_active_port_the_system_is_picked_and_the_reason_names_the_device";

pub fn cases() -> Vec<Case> {
    vec![
        Case { name: NO_LIBRARY, needs_device: false, run: without_a_library },
        Case { name: NO_RDMA, needs_device: false, run: no_verbs_library },
        Case { name: SYSTEM, needs_device: true, run: with_an_active_port },
    ]
}

fn without_a_library() {
    let variables = [("BAREVERBS_LIBRARY", OsStr::new("/no/such/libibverbs.so.1"))];
    own_process::run(NO_LIBRARY, &variables, || {
        let best = Fabric::best().expect("the software fabric is always there");
        assert_eq!(best.kind(), FabricKind::Soft);
        assert!(best.reason().contains("/no/such/libibverbs.so.1"), "{}", best.reason());
        assert_eq!(best.devices().expect("a list").len(), 1);
        let error = Fabric::system().expect_err("there is none");
        assert!(matches!(error, Error::Load(_)) && error.to_string().contains("BAREVERBS_LIBRARY"), "{error}");
        // Once more: the same answer.
        assert_eq!(Fabric::system().expect_err("there is none"), error);
    });
}

fn no_verbs_library() {
    own_process::run(NO_RDMA, &[("BAREVERBS_LIBRARY", OsStr::new("libc.so.6"))], || {
        let error = Fabric::system().expect_err("the C library has no verbs");
        assert!(error.to_string().contains("libc.so.6 has no ibv_get_device_list"), "{error}");
        assert!(Fabric::best().expect("software").reason().contains("ibv_get_device_list"));
    });
}

fn with_an_active_port() {
    let best = Fabric::best().expect("a fabric");
    assert_eq!(best.kind(), FabricKind::System);
    let device = crate::world::World::system().expect("it was there at the start").device().to_owned();
    assert!(best.reason().contains("has an active port"), "{}", best.reason());
    assert!(best.devices().expect("a list").iter().any(|listed| listed.name == device));
    let error = best.open(Some("no_such_device")).expect_err("no such device");
    assert!(error.to_string().contains(&device), "{error}");
}
