//! Listing and opening devices: no device spoils the list, nothing in an error is stale, every list is freed once.

use bareverbs_core::verbs::{GidType, LinkLayer, Mtu, NodeType, PortState, TransportType};
use bareverbs_shell::objects::gid::Scope;
use bareverbs_shell::soft::{Answer, GidSlot, Record, SoftConfig, SoftDevice, SoftFabric, SoftPort};
use bareverbs_shell::{Error, Fabric, FabricKind, errno};

use crate::ledger::{Ledger, calls_of};

fn fabric(config: SoftConfig) -> (SoftFabric, Fabric) {
    let soft = SoftFabric::new(config.record(Record::Bounded(10_000))).expect("a free slot");
    let fabric = Fabric::with_symbols(soft.symbols(), FabricKind::Soft);
    (soft, fabric)
}

fn assert_every_list_freed(soft: &SoftFabric) {
    let record = soft.record();
    let had = record.iter().filter(|call| call.symbol == "ibv_get_device_list" && call.returned == 0).count();
    assert_eq!(calls_of(&record, "ibv_free_device_list"), had);
    assert_eq!(soft.misuse(), Vec::<String>::new());
    Ledger::replay(&record).assert_all_gone();
}

#[test]
fn a_device_that_cannot_be_opened_or_asked_is_listed_with_its_error() {
    for (symbol, call) in [("ibv_open_device", "ibv_open_device"), ("ibv_query_port", "ibv_query_port")] {
        let devices = ["dev0", "dev1", "dev2"].map(SoftDevice::new).to_vec();
        let (soft, fabric) = fabric(SoftConfig::default().devices(devices));
        soft.fail(symbol, 2, Answer::null(libc::EACCES));
        let listed = fabric.devices().expect("the list as a whole is good");
        assert_eq!(listed.iter().map(|device| device.name.as_str()).collect::<Vec<_>>(), ["dev0", "dev1", "dev2"]);
        assert!(listed[0].ports.is_ok() && listed[2].ports.is_ok());
        let Err(Error::Call(error)) = &listed[1].ports else { panic!("{:?}", listed[1].ports) };
        assert_eq!((error.call, &*error.device, error.errno), (call, "dev1", Some(errno::Errno(libc::EACCES))));
        assert_every_list_freed(&soft);
    }
}

#[test]
fn a_null_list_with_enosys_is_no_kernel_rdma_and_any_other_is_a_failed_call() {
    for (answer, wanted) in [
        (Answer::null(libc::ENOSYS), None),
        (Answer::null(libc::ENOMEM), Some(Some(libc::ENOMEM))),
        // Null and nothing said: what an earlier call left, be it ENOSYS, is not shown.
        (Answer::null(0), Some(None)),
        (Answer::returned(-1), Some(None)),
    ] {
        let (soft, fabric) = fabric(SoftConfig::default());
        for open in [false, true] {
            soft.fail("ibv_get_device_list", 1, answer);
            errno::set(libc::ENOSYS);
            let error = if open { fabric.open(None).map(drop) } else { fabric.devices().map(drop) };
            match (wanted, error.expect_err("null")) {
                (None, Error::NoKernelRdma { library }) => assert_eq!(&*library, "software fabric"),
                (Some(number), Error::Call(error)) => {
                    assert_eq!((error.call, error.errno.map(|errno| errno.0)), ("ibv_get_device_list", number));
                }
                (_, other) => panic!("{answer:?}: {other}"),
            }
        }
        assert_every_list_freed(&soft);
    }
}

#[test]
fn an_empty_list_is_no_error_and_opening_from_it_says_that_there_is_none() {
    let (soft, fabric) = fabric(SoftConfig::default().devices(Vec::new()));
    assert_eq!(fabric.devices().expect("empty, not an error").len(), 0);
    for wanted in [None, Some("mlx5_0")] {
        let error = fabric.open(wanted).expect_err("there is none");
        assert!(matches!(&error, Error::NoDevice { available, .. } if available.is_empty()), "{error}");
        assert!(error.to_string().contains("there is none at all"), "{error}");
    }
    assert_every_list_freed(&soft);
}

#[test]
fn a_device_that_is_not_there_is_an_error_with_the_names_there_are() {
    let (soft, fabric) = fabric(SoftConfig::default().devices(vec![SoftDevice::new("a"), SoftDevice::new("b")]));
    let error = fabric.open(Some("c")).expect_err("no such device");
    let Error::NoDevice { wanted, available, library } = &error else { panic!("{error}") };
    assert_eq!((wanted.as_deref(), available.join(" ").as_str(), &**library), (Some("c"), "a b", "software fabric"));
    assert!(error.to_string().contains("there are: a, b"), "{error}");
    assert_every_list_freed(&soft);
}

#[test]
fn without_a_name_the_first_device_with_an_active_port_is_opened_else_the_first() {
    let device = |name, state| SoftDevice::new(name).port_state(state);
    let down_then_up = vec![device("down", PortState::DOWN), device("up", PortState::ACTIVE), SoftDevice::new("too")];
    let (soft, some_up) = fabric(SoftConfig::default().devices(down_then_up));
    assert_eq!(&**some_up.open(None).expect("a device").name(), "up");
    assert_every_list_freed(&soft);
    let all_down = vec![device("first", PortState::DOWN), device("second", PortState::INIT)];
    let (soft, none_up) = fabric(SoftConfig::default().devices(all_down));
    assert_eq!(&**none_up.open(None).expect("a device").name(), "first");
    assert_every_list_freed(&soft);
}

#[test]
fn a_device_tells_name_guid_transport_and_all_of_its_ports_and_gids() {
    let second = SoftPort {
        state: PortState(77),
        link_layer: LinkLayer(9),
        active_mtu: Mtu::B2048,
        lid: 5,
        gids: vec![GidSlot::Empty, GidSlot::Fails(5), GidSlot::ipv4([10, 1, 2, 3]), GidSlot::link_local(4)],
        ..SoftPort::default()
    };
    let device = SoftDevice::new("dev0").guid(0x0102_0304_0506_0708).ports(vec![SoftPort::default(), second]);
    let (soft, fabric) = fabric(SoftConfig::default().devices(vec![device]));
    let listed = fabric.devices().expect("a list").remove(0);
    assert_eq!((listed.name.as_str(), listed.guid), ("dev0", Some(0x0102_0304_0506_0708)));
    assert_eq!((listed.node_type, listed.transport), (NodeType::CA, TransportType::IB));
    let ports = listed.ports.expect("it can be asked");
    assert_eq!(ports.iter().map(|port| port.info.number).collect::<Vec<_>>(), [1, 2]);
    assert_eq!((ports[0].info.state(), ports[0].info.link_layer()), (PortState::ACTIVE, LinkLayer::ETHERNET));
    let info = &ports[1].info;
    assert_eq!(
        (info.state(), info.link_layer(), info.active_mtu(), info.lid()),
        (PortState(77), LinkLayer(9), Mtu::B2048, 5)
    );
    assert!(format!("{:?}", info.state()).contains("77"), "an unknown state shows its number: {:?}", info.state());
    let gids: Vec<_> =
        ports[1].gids.iter().map(|gid| (gid.index, gid.gid.to_string(), gid.gid_type, gid.scope())).collect();
    let v2 = Some(GidType::ROCE_V2);
    let wanted =
        [(2, "::ffff:10.1.2.3".to_owned(), v2, Scope::Global), (3, "fe80::4".to_owned(), v2, Scope::LinkLocal)];
    assert_eq!(gids, wanted);
    assert_eq!(ports[1].gids[0].gid.ipv4(), Some([10, 1, 2, 3]));
    assert_every_list_freed(&soft);
}

#[test]
fn every_known_port_state_is_told_by_name() {
    for (state, name) in [(0, "NOP"), (1, "DOWN"), (2, "INIT"), (3, "ARMED"), (4, "ACTIVE"), (5, "ACTIVE_DEFER")] {
        let device = SoftDevice::new("dev0").port_state(PortState(state));
        let (_, fabric) = fabric(SoftConfig::default().devices(vec![device]));
        let listed = fabric.devices().expect("a list").remove(0);
        let info = listed.ports.expect("it can be asked")[0].info;
        assert_eq!(format!("{:?}", info.state()), format!("IBV_PORT_{name} ({state})"));
    }
}

#[test]
fn without_their_optional_symbols_guid_and_gid_types_are_unknown_and_the_rest_is_told() {
    let config = SoftConfig::default().without("ibv_get_device_guid").without("_ibv_query_gid_ex");
    let (_, fabric) = fabric(config.without("ibv_query_device"));
    let listed = fabric.devices().expect("a list").remove(0);
    assert_eq!(listed.guid, None);
    let ports = listed.ports.expect("one port is taken for granted");
    assert!(ports.len() == 1 && ports[0].gids.iter().all(|gid| gid.gid_type.is_none()) && !ports[0].gids.is_empty());
}

#[test]
fn a_thunderbolt_like_device_is_told_as_such() {
    let (_, fabric) = fabric(SoftConfig::thunderbolt());
    let listed = fabric.devices().expect("a list").remove(0);
    assert_eq!(listed.transport, TransportType::THUNDERBOLT);
    let info = listed.ports.expect("it can be asked")[0].info;
    assert_eq!((info.link_layer(), info.lid()), (LinkLayer::THUNDERBOLT, 1));
}

#[test]
fn a_long_gid_table_is_read_to_its_last_usable_index_unless_a_run_of_empty_slots_ends_it() {
    for (empty, found) in [(31, 2), (32, 1)] {
        let mut gids = vec![GidSlot::ipv4([10, 0, 0, 1])];
        gids.extend(vec![GidSlot::Empty; empty]);
        gids.push(GidSlot::ipv4([10, 0, 0, 2]));
        let (_, fabric) = fabric(SoftConfig::default().devices(vec![SoftDevice::new("dev0").gids(gids)]));
        let context = fabric.open(None).expect("a device");
        assert_eq!(context.gids(1).expect("a table").len(), found, "{empty} empty slots");
    }
    let many: Vec<_> = (0..300_u16).map(|at| GidSlot::ipv4([10, 0, (at >> 8) as u8, at as u8])).collect();
    let (_, fabric) = fabric(SoftConfig::default().devices(vec![SoftDevice::new("dev0").gids(many)]));
    let gids = fabric.open(None).expect("a device").gids(1).expect("a table");
    assert_eq!((gids.len(), gids.last().map(|gid| gid.index)), (256, Some(255)), "an index has 8 bits");
}
