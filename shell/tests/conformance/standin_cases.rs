//! The loader, and cases A1, A4 and A6, on a stand-in library: what a real file answers, through `dlopen`.

use std::ffi::OsStr;
use std::sync::Arc;

use bareverbs_core::link::Immediate;
use bareverbs_core::verbs::{AccessFlags, LinkLayer, PortAttr, PortState};
use bareverbs_shell::endpoint::{Endpoint, Frames};
use bareverbs_shell::errno::{self, Errno};
use bareverbs_shell::memory::pages::{PAGE_BYTES, Pages};
use bareverbs_shell::objects::port::PortInfo;
use bareverbs_shell::objects::{DeviceContext, MemoryRegion, ProtectionDomain};
use bareverbs_shell::symbols::system::LoadError;
use bareverbs_shell::symbols::verbs::REQUIRED;
use bareverbs_shell::{CallError, Error, Fabric, FabricKind};

use crate::own_process;
use crate::standin::Standin;
use crate::world::config;

const PICKED: &str = "standin::what_the_library_says_decides_which_fabric_is_best";

pub fn cases() -> Vec<(&'static str, fn())> {
    vec![
        ("standin::each_missing_required_symbol_is_named_with_the_library", each_missing_symbol),
        ("standin::loading_again_gives_the_same_answer_and_leaks_no_handle", loading_again),
        ("standin::absent_optional_symbols_are_unsupported_by_name", absent_optional_symbols),
        (PICKED, which_is_best),
        ("standin::a1_a_port_query_overruns_nothing_and_reads_nothing_stale", a1_port_query),
        ("standin::a1_the_query_with_a_length_is_used_only_where_all_three_signs_are_there", a1_extended_query),
        ("standin::a4_a_null_domain_on_a_port_that_is_down", a4_null_domain),
        ("standin::a6_the_gid_found_is_the_gid_used", a6_gid_tables),
    ]
}

fn each_missing_symbol() {
    assert_eq!(REQUIRED.len(), 16);
    for symbol in REQUIRED {
        let standin = Standin::new(&[&format!("WITHOUT_{symbol}")]);
        let error = standin.load().expect_err("it lacks one");
        assert_eq!(error, LoadError::MissingSymbol { library: standin.path().into(), symbol });
        assert!(error.to_string().contains(symbol) && error.to_string().contains(standin.path()), "{error}");
    }
}

fn loading_again() {
    let good = Standin::new(&[]);
    let first = good.load().expect("all 16 are there");
    assert!(Arc::ptr_eq(&first, &good.load().expect("still")), "one table");

    let lacking = Standin::new(&["WITHOUT_ibv_query_gid"]);
    let errors: Vec<_> = (0..5).map(|_| lacking.load().expect_err("it lacks one")).collect();
    assert!(errors.iter().all(|error| *error == errors[0]));
    assert!(lacking.count_handles() <= 1, "each failed load left a handle");
}

fn absent_optional_symbols() {
    let standin = Standin::new(&[]);
    let symbols = standin.load().expect("a library");
    let unsupported = |symbol| Error::Unsupported { symbol, library: Arc::from(standin.path()) };
    let context = DeviceContext::open(&symbols, Some("standin0")).expect("the device");
    assert_eq!(context.attributes().err(), Some(unsupported("ibv_query_device")));
    assert_eq!(context.port_count(), 1, "taken for granted");
    let fabric = Fabric::with_symbols(Arc::clone(&symbols), FabricKind::System);
    assert_eq!(fabric.prepare_for_fork().err(), Some(unsupported("ibv_fork_init")));
    let domain = ProtectionDomain::new(&context, 1).expect("a domain");
    let pages = Arc::new(Pages::new(PAGE_BYTES).expect("a page"));
    let (start, access) = (pages.start().addr().get(), AccessFlags::LOCAL_WRITE | AccessFlags::RELAXED_ORDERING);
    #[allow(unsafe_code)]
    // SAFETY: 1: the keeper holds the page. 2: only its address is known.
    let region = unsafe { MemoryRegion::register(&domain, start, PAGE_BYTES, access, Some(pages)) };
    assert_eq!(region.map(drop).err(), Some(unsupported("ibv_reg_mr_iova2")));
    assert_eq!(standin.count("reg_mr"), 0);
    let listed = fabric.devices().expect("a list").remove(0);
    assert_eq!(listed.guid, None);
    let ports = listed.ports.expect("it can be asked");
    assert!(ports[0].gids.iter().all(|gid| gid.gid_type.is_none()));
}

fn which_is_best() {
    const ACTIVE: &str = "device standin0 has an active port";
    if own_process::is_child_of(PICKED) {
        let reason = std::env::var("EXPECTED").expect("set by the parent");
        let best = Fabric::best().expect("a fabric");
        assert_eq!(best.kind(), if reason == ACTIVE { FabricKind::System } else { FabricKind::Soft });
        assert!(best.reason().contains(&reason), "{}: {reason}", best.reason());
        return;
    }
    for (macros, reason) in [
        (None, ACTIVE),
        (Some("PORT_STATE=1"), "no port of standin0 is active"),
        (Some("DEVICES=0"), "has no device"),
        (Some("LIST_ERRNO=38"), "this kernel has no RDMA"),
        (Some("LIST_ERRNO=12"), "errno 12 (ENOMEM)"),
        (Some("WITHOUT_ibv_create_qp"), "has no ibv_create_qp"),
    ] {
        let standin = Standin::new(macros.as_slice());
        let library = ("BAREVERBS_LIBRARY", OsStr::new(standin.path()));
        own_process::start(PICKED, &[library, ("EXPECTED", OsStr::new(reason))]);
    }
}

fn port_of(standin: &Standin) -> PortInfo {
    let symbols = standin.load().expect("a library");
    let context = DeviceContext::open(&symbols, None).expect("the device");
    context.port(1).expect("it has one")
}

fn assert_common(info: &PortInfo) {
    assert_eq!((info.state(), info.lid(), info.attr.gid_tbl_len), (PortState::ACTIVE, 0x1234, 4));
    assert_eq!(info.link_layer(), LinkLayer::ETHERNET);
}

fn a1_port_query() {
    // The caller's own storage, followed by a canary.
    #[repr(C)]
    struct Storage {
        attr: PortAttr,
        canary: u64,
    }
    assert_eq!((size_of::<PortAttr>(), std::mem::offset_of!(PortAttr, port_cap_flags2)), (56, 48));
    for bytes in [56, 52, 48] {
        let standin = Standin::new(&[&format!("PORT_BYTES={bytes}")]);
        let symbols = standin.load().expect("a library");
        let context = DeviceContext::open(&symbols, None).expect("the device");
        let mut storage = Storage { attr: PortAttr::default(), canary: 0x5A5A_5A5A_5A5A_5A5A };
        #[allow(unsafe_code)]
        // SAFETY: the context is live; the struct is the longest that any library fills.
        let returned = unsafe { (symbols.query_port)(context.as_ptr(), 1, &raw mut storage.attr) };
        assert_eq!((returned, storage.canary), (0, 0x5A5A_5A5A_5A5A_5A5A));

        // Through the shell, after a query that left its bytes on the stack: what is not filled reads 0.
        let dirty = Standin::new(&["PORT_BYTES=56"]);
        assert_eq!(port_of(&dirty).attr.port_cap_flags2, 0xABAB);
        let info = port_of(&standin);
        assert_common(&info);
        assert_eq!(info.attr.port_cap_flags2, if bytes >= 52 { 0xABAB } else { 0 }, "{bytes} bytes");
        assert_eq!(info.attr.active_speed_ex, if bytes >= 56 { 0xABAB_ABAB } else { 0 }, "{bytes} bytes");
        assert_eq!(standin.count("query_port_slot"), 0, "abi_compat is not set");
        let Err(Error::Call(error)) = context.port(2) else { panic!("there is no port 2") };
        assert_eq!((error.call, error.errno), ("ibv_query_port", Some(Errno(libc::EINVAL))));
    }
}

fn a1_extended_query() {
    let all_ones = "ABI_COMPAT=UINT64_MAX";
    for (macros, used) in [
        (&[all_ones][..], true),
        (&[all_ones, "RECORDED_SIZE=647"][..], false),
        (&[all_ones, "RECORDED_SIZE=696"][..], true),
        (&[all_ones, "QUERY_PORT_SLOT=0"][..], false),
        (&["ABI_COMPAT=1"][..], false),
        (&["ABI_COMPAT=(UINT64_MAX-1)"][..], false),
    ] {
        let standin = Standin::new(macros);
        let info = port_of(&standin);
        assert_common(&info);
        assert_eq!(standin.count("query_port_slot") > 0, used, "{macros:?}");
        assert_eq!(standin.count("query_port") > 0, !used, "{macros:?}");
        assert_eq!(info.attr.active_speed_ex, if used { 0xABAB_ABAB } else { 0 }, "{macros:?}");
    }
}

fn a4_null_domain() {
    for (number, wanted) in [(0, None), (19, Some(Errno(19)))] {
        let standin = Standin::new(&["PORT_STATE=1", &format!("ALLOC_PD_ERRNO={number}")]);
        let context = DeviceContext::open(&standin.load().expect("a library"), Some("standin0")).expect("the device");
        let opened_and_closed = (standin.count("open_device"), standin.count("close_device"));
        errno::set(libc::ENOENT);
        let made = Endpoint::<_, 4, 4>::new(&context, Immediate, config(), Frames::Owned);
        let error = made.expect_err("no domain");
        drop(context);
        let Error::Call(CallError { call, device, errno, port, .. }) = &error else { panic!("{error}") };
        assert_eq!((*call, &**device, *errno), ("ibv_alloc_pd", "standin0", wanted));
        assert_eq!(*port, Some((1, PortState::DOWN)));
        let said = if wanted.is_some() { "errno 19 (ENODEV)" } else { "errno was not set" };
        assert!(error.to_string().contains(said) && error.to_string().contains("DOWN"), "{error}");
        assert_eq!((standin.count("reg_mr"), standin.count("create_qp")), (0, 0));
        assert_eq!(opened_and_closed, (1, 0));
        assert_eq!(standin.count("close_device"), 1);
    }
}

fn a6_gid_tables() {
    for (gids, wanted) in [
        ("l(0) m(2, 169, 254, 0, 9)", Some(([169, 254, 0, 9], 2))),
        ("l(0)", None),
        ("f(0) m(1, 10, 0, 0, 1)", Some(([10, 0, 0, 1], 1))),
    ] {
        let standin = Standin::new(&[&format!("GIDS={gids}")]);
        let context = DeviceContext::open(&standin.load().expect("a library"), None).expect("the device");
        let made = Endpoint::<_, 4, 4>::new(&context, Immediate, config(), Frames::Owned);
        match wanted {
            Some((address, index)) => {
                let mut end = made.expect("an endpoint");
                assert_eq!(end.destination().gid.ipv4(), Some(address));
                // It gets as far as its receives, which the stand-in does not take.
                end.agree_credits(end.recv_depth()).expect("nothing was sent");
                let error = end.connect(&end.destination(), end.path_mtu()).expect_err("no data path");
                assert!(error.to_string().contains("ibv_post_recv"), "{error}");
                assert_eq!(standin.count("sgid_index"), index);
            }
            None => {
                let error = made.expect_err("no mapped GID");
                assert!(matches!(&error, Error::Gid(_)) && error.to_string().contains("no IPv4-mapped GID"), "{error}");
                assert_eq!(standin.count("modify_qp"), 0);
            }
        }
    }
}
