//! Which GID is chosen, on synthetic tables.

use std::sync::Arc;

use bareverbs_core::verbs::{Gid, GidType, LinkLayer, PortAttr, PortState};
use bareverbs_shell::objects::gid::{GidError, GidInfo, GidPolicy, Scope, choose};
use bareverbs_shell::objects::port::PortInfo;

const V1: Option<GidType> = Some(GidType::ROCE_V1);
const V2: Option<GidType> = Some(GidType::ROCE_V2);
const IB: Option<GidType> = Some(GidType::IB);

fn port(link_layer: LinkLayer) -> PortInfo {
    PortInfo { number: 1, attr: PortAttr { state: PortState::ACTIVE, link_layer, ..PortAttr::default() } }
}

fn gid(text: &str) -> Gid {
    Gid::new(text.parse::<std::net::Ipv6Addr>().expect("an address").octets())
}

fn table(entries: &[(u8, &str, Option<GidType>)]) -> Vec<GidInfo> {
    entries.iter().map(|(index, text, gid_type)| GidInfo::new(*index, gid(text), *gid_type)).collect()
}

/// The index chosen; `None` for going without a GID.
fn chosen(
    link_layer: LinkLayer,
    policy: GidPolicy,
    entries: &[(u8, &str, Option<GidType>)],
) -> Result<Option<u8>, GidError> {
    let found = choose(&Arc::from("dev0"), &port(link_layer), policy, &table(entries))?;
    if let Some(found) = found {
        let listed = table(entries).into_iter().find(|listed| listed.index == found.index);
        assert_eq!(listed, Some(found), "the GID goes with its own index");
    }
    Ok(found.map(|found| found.index))
}

#[test]
fn message_endpoints_take_the_first_mapped_gid_wherever_it_stands() {
    let mapped = |entries: &[_]| chosen(LinkLayer::ETHERNET, GidPolicy::Ipv4Mapped, entries);
    assert_eq!(mapped(&[(0, "fe80::1", V2), (2, "::ffff:169.254.0.9", V2)]), Ok(Some(2)));
    assert_eq!(mapped(&[(1, "::ffff:10.0.0.1", V2), (3, "::ffff:10.0.0.2", V2)]), Ok(Some(1)));
    assert_eq!(mapped(&[(0, "fe80::1", V2), (7, "::ffff:127.0.0.1", None)]), Ok(Some(7)));
    let error = mapped(&[(0, "fe80::1", V2), (4, "2001:db8::1", V2)]).expect_err("none is mapped");
    assert_eq!(error.found, table(&[(0, "fe80::1", V2), (4, "2001:db8::1", V2)]));
    let text = error.to_string();
    for word in
        ["dev0", "port 1", "no IPv4-mapped GID", "0 fe80::1", "4 2001:db8::1", "give the port's network interface"]
    {
        assert!(text.contains(word), "{word}: {text}");
    }
    assert!(mapped(&[]).expect_err("an empty table").to_string().contains("it has none"));
    // The same on a Thunderbolt port, with its own remedy.
    let error = chosen(LinkLayer::THUNDERBOLT, GidPolicy::Ipv4Mapped, &[(0, "fe80::1", None)]).expect_err("none");
    assert!(error.to_string().contains("not the bridge over it"), "{error}");
}

#[test]
fn binding_queue_pairs_take_the_first_global_v2_gid_and_loopback_only_where_nothing_else_is() {
    let global = |entries: &[_]| chosen(LinkLayer::ETHERNET, GidPolicy::RoceV2Global, entries);
    assert_eq!(global(&[(0, "fe80::1", V2), (1, "2001:db8::1", V1), (2, "2001:db8::1", V2)]), Ok(Some(2)));
    assert_eq!(global(&[(0, "::ffff:169.254.0.9", V2), (1, "::ffff:10.0.0.1", V2)]), Ok(Some(1)), "169.254/16 is no");
    assert_eq!(global(&[(0, "::ffff:127.0.0.1", V2), (1, "2001:db8::1", V2)]), Ok(Some(1)), "127/8 is no");
    assert_eq!(global(&[(0, "fe80::1", V2), (1, "::ffff:127.0.0.1", V2), (2, "::1", V2)]), Ok(Some(1)), "loopback");
    assert_eq!(global(&[(0, "fe80::1", V2), (2, "::1", V2)]), Ok(Some(2)), "loopback");
    assert!(global(&[(0, "fe80::1", V2), (1, "::ffff:169.254.0.9", V2)]).is_err(), "link-local is not global");
    assert!(global(&[(0, "2001:db8::1", V1)]).is_err(), "version 1");
    // Where types cannot be asked, every GID of an Ethernet port counts as version 2.
    assert_eq!(global(&[(0, "fe80::1", None), (3, "2001:db8::1", None)]), Ok(Some(3)));
    let text = global(&[(0, "fe80::1", V2)]).expect_err("none").to_string();
    assert!(text.contains("no global RoCE v2 GID") && text.contains("routable address"), "{text}");
}

#[test]
fn infiniband_goes_without_a_gid_unless_one_is_asked_for() {
    let entries = [(0, "fe80::2:c903:0:1491", IB), (1, "2001:db8::1", IB)];
    let on_infiniband = |policy, entries: &[_]| chosen(LinkLayer::INFINIBAND, policy, entries);
    assert_eq!(on_infiniband(GidPolicy::Ipv4Mapped, &entries), Ok(None));
    assert_eq!(on_infiniband(GidPolicy::RoceV2Global, &entries), Ok(None));
    assert_eq!(on_infiniband(GidPolicy::RoceV2Global, &[]), Ok(None));
    assert_eq!(on_infiniband(GidPolicy::Ipv4Mapped, &[]), Ok(None));
    assert_eq!(on_infiniband(GidPolicy::LinkLocal, &entries), Ok(Some(0)));
    assert_eq!(on_infiniband(GidPolicy::Index(1), &entries), Ok(Some(1)));
    assert!(on_infiniband(GidPolicy::Index(2), &entries).is_err());
    // Old libraries answer 0 for InfiniBand.
    assert_eq!(chosen(LinkLayer::UNSPECIFIED, GidPolicy::Ipv4Mapped, &entries), Ok(None));
    assert_eq!(on_infiniband(GidPolicy::Ipv4Mapped, &[(5, "::ffff:10.0.0.1", IB)]), Ok(Some(5)), "first of all mapped");
}

#[test]
fn a_link_local_one_and_one_by_index_are_what_they_say() {
    let entries = [(0, "2001:db8::1", V2), (1, "::ffff:169.254.3.4", V2), (2, "fe80::7", V2)];
    assert_eq!(chosen(LinkLayer::ETHERNET, GidPolicy::LinkLocal, &entries), Ok(Some(1)));
    assert_eq!(chosen(LinkLayer::ETHERNET, GidPolicy::LinkLocal, &entries[2..]), Ok(Some(2)));
    assert!(chosen(LinkLayer::ETHERNET, GidPolicy::LinkLocal, &entries[..1]).is_err());
    for index in 0..=3 {
        let found = chosen(LinkLayer::ETHERNET, GidPolicy::Index(index), &entries);
        assert_eq!(found.is_ok(), index < 3, "{index}");
        if let Err(error) = found {
            assert!(error.to_string().contains("no GID at index 3"), "{error}");
        }
    }
}

#[test]
fn scopes_end_exactly_where_the_address_blocks_do() {
    for (text, scope) in [
        ("::ffff:169.253.255.255", Scope::Global),
        ("::ffff:169.254.0.0", Scope::LinkLocal),
        ("::ffff:169.254.255.255", Scope::LinkLocal),
        ("::ffff:169.255.0.0", Scope::Global),
        ("::ffff:126.255.255.255", Scope::Global),
        ("::ffff:127.0.0.0", Scope::Loopback),
        ("::ffff:127.255.255.255", Scope::Loopback),
        ("::ffff:128.0.0.0", Scope::Global),
        ("::1", Scope::Loopback),
        ("::2", Scope::Global),
        ("fe7f::1", Scope::Global),
        ("fe80::1", Scope::LinkLocal),
        ("febf::1", Scope::LinkLocal),
        ("fec0::1", Scope::Global),
    ] {
        assert_eq!(GidInfo::new(0, gid(text), None).scope(), scope, "{text}");
    }
}

#[test]
fn a_port_that_is_down_is_named_in_the_error() {
    let mut down = port(LinkLayer::ETHERNET);
    down.attr.state = PortState::DOWN;
    let error = choose(&Arc::from("dev0"), &down, GidPolicy::Ipv4Mapped, &[]).expect_err("no GID");
    assert!(error.to_string().contains("IBV_PORT_DOWN (1): bring the link up first"), "{error}");
}
