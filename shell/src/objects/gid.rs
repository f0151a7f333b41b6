//! GIDs: which there are, and which one to use.
//!
//! The rule this file protects: **the GID is chosen in one place, and its index goes with it**. The index found is the index
//! used, never a constant.
//!
//! # Safety
//!
//! This file guarantees that the library writes into storage of its own struct's size.
#![allow(unsafe_code)]

use std::fmt;
use std::sync::Arc;

use bareverbs_core::verbs::inline_calls::RawErrno;
use bareverbs_core::verbs::{Gid, GidEntry, GidType, LinkLayer, PortState};

use crate::objects::device::DeviceContext;
use crate::objects::port::PortInfo;

/// A GID of a port's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GidInfo {
    /// Its index in the port's table.
    pub index: u8,
    /// The GID; never all zero.
    pub gid: Gid,
    /// What it names, where the library can tell.
    pub gid_type: Option<GidType>,
}

impl GidInfo {
    /// A GID at an index.
    pub const fn new(index: u8, gid: Gid, gid_type: Option<GidType>) -> Self {
        Self { index, gid, gid_type }
    }

    /// How far the address reaches.
    pub const fn scope(&self) -> Scope {
        if self.gid.is_loopback() {
            Scope::Loopback
        } else if self.gid.is_link_local() {
            Scope::LinkLocal
        } else {
            Scope::Global
        }
    }
}

impl fmt::Display for GidInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.index, self.gid)
    }
}

/// How far an address reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// `::1`, 127/8.
    Loopback,
    /// `fe80::/10`, 169.254/16.
    LinkLocal,
    /// Everything else.
    Global,
}

/// Which GID to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GidPolicy {
    /// The first IPv4-mapped one: the default for message endpoints.
    Ipv4Mapped,
    /// The first global one of RoCE v2; a loopback one where nothing else is there. Where types cannot be asked, every GID
    /// of an Ethernet port counts as RoCE v2.
    RoceV2Global,
    /// The first link-local one.
    LinkLocal,
    /// The one at this index.
    Index(u8),
}

/// No GID is as the policy wants it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GidError {
    /// The device.
    pub device: Arc<str>,
    /// The port, counted from 1.
    pub port: u8,
    /// Its link layer.
    pub link_layer: LinkLayer,
    /// Its state: a port that is down may have fewer GIDs.
    pub state: PortState,
    /// What was wanted.
    pub policy: GidPolicy,
    /// What there was.
    pub found: Vec<GidInfo>,
}

impl fmt::Display for GidError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wanted = match self.policy {
            GidPolicy::Ipv4Mapped => "no IPv4-mapped GID".to_owned(),
            GidPolicy::RoceV2Global => "no global RoCE v2 GID".to_owned(),
            GidPolicy::LinkLocal => "no link-local GID".to_owned(),
            GidPolicy::Index(index) => format!("no GID at index {index}"),
        };
        write!(f, "device {} port {} has {wanted}; it has ", self.device, self.port)?;
        if self.found.is_empty() {
            f.write_str("none")?;
        }
        for (position, gid) in self.found.iter().enumerate() {
            write!(f, "{}{gid}", if position == 0 { "" } else { ", " })?;
        }
        if self.state != PortState::ACTIVE {
            write!(f, "; the port is {:?}: bring the link up first", self.state)?;
        }
        match (self.policy, self.link_layer) {
            (GidPolicy::Ipv4Mapped, LinkLayer::THUNDERBOLT) => f.write_str(
                ": give the Thunderbolt port's own network interface, not the bridge over it, a link-local IPv4 address",
            ),
            (GidPolicy::Ipv4Mapped, _) => f.write_str(": give the port's network interface an IPv4 address"),
            (GidPolicy::RoceV2Global, _) => f.write_str(": give the port's network interface a routable address"),
            _ => f.write_str(": choose another policy"),
        }
    }
}

impl std::error::Error for GidError {}

/// Chooses among a port's GIDs. `Ok(None)`: the link goes without one, by LID, as InfiniBand does by default.
///
/// # Errors
/// [`GidError`] says what there was and how to get what is missing.
pub fn choose(
    device: &Arc<str>,
    port: &PortInfo,
    policy: GidPolicy,
    gids: &[GidInfo],
) -> Result<Option<GidInfo>, GidError> {
    let ethernet = port.link_layer() == LinkLayer::ETHERNET;
    let is_v2 = |gid: &&GidInfo| gid.gid_type.map_or(ethernet, |gid_type| gid_type == GidType::ROCE_V2);
    let found = match policy {
        GidPolicy::Ipv4Mapped => gids.iter().find(|gid| gid.gid.ipv4().is_some()),
        GidPolicy::RoceV2Global => {
            let with = |scope| gids.iter().filter(is_v2).find(move |gid| gid.scope() == scope);
            with(Scope::Global).or_else(|| with(Scope::Loopback))
        }
        GidPolicy::LinkLocal => gids.iter().find(|gid| gid.scope() == Scope::LinkLocal),
        GidPolicy::Index(index) => gids.iter().find(|gid| gid.index == index),
    };
    let by_lid =
        port.link_layer() == LinkLayer::INFINIBAND && matches!(policy, GidPolicy::Ipv4Mapped | GidPolicy::RoceV2Global);
    match found {
        Some(gid) if !(by_lid && policy == GidPolicy::RoceV2Global) => Ok(Some(*gid)),
        _ if by_lid => Ok(None),
        _ => Err(GidError {
            device: Arc::clone(device),
            port: port.number,
            link_layer: port.link_layer(),
            state: port.state(),
            policy,
            found: gids.to_vec(),
        }),
    }
}

/// Reads the port's GIDs and chooses among them. One that is asked for by its index is looked at wherever it stands.
pub(crate) fn find(context: &DeviceContext, port: &PortInfo, policy: GidPolicy) -> Result<Option<GidInfo>, GidError> {
    let mut gids = table(context, port);
    if let GidPolicy::Index(index) = policy
        && gids.iter().all(|gid| gid.index != index)
    {
        gids.extend(read(context, port.number, index));
    }
    choose(context.name(), port, policy, &gids)
}

/// A run of empty slots after which the rest of a table is taken for empty: Apple's are about 1024 long.
const EMPTY_RUN: u32 = 32;

/// The GIDs of a port. Slots that are empty or cannot be read are skipped.
pub(super) fn table(context: &DeviceContext, port: &PortInfo) -> Vec<GidInfo> {
    // The address vector's index has 8 bits: what lies beyond cannot be used.
    let len = port.attr.gid_tbl_len.clamp(0, 256) as u32;
    let mut gids = Vec::new();
    let mut empty_run = 0;
    for index in 0..len {
        match read_slot(context, port.number, index as u8) {
            Slot::Holds(gid) => {
                gids.push(gid);
                empty_run = 0;
            }
            Slot::Empty => empty_run += 1,
            // A slot that cannot be read says nothing of those behind it.
            Slot::Fails => {}
        }
        if empty_run == EMPTY_RUN {
            break;
        }
    }
    gids
}

/// One GID, or `None` if the slot is empty or cannot be read.
pub(crate) fn read(context: &DeviceContext, port: u8, index: u8) -> Option<GidInfo> {
    match read_slot(context, port, index) {
        Slot::Holds(gid) => Some(gid),
        Slot::Empty | Slot::Fails => None,
    }
}

/// What a slot of a table answers.
enum Slot {
    Holds(GidInfo),
    Empty,
    Fails,
}

fn read_slot(context: &DeviceContext, port: u8, index: u8) -> Slot {
    let mut gid = Gid::ZERO;
    // SAFETY: the context is live; the storage is a GID.
    let returned = unsafe { (context.symbols().query_gid)(context.as_ptr(), port, index.into(), &raw mut gid) };
    if returned != 0 {
        return Slot::Fails;
    }
    // An empty slot answers success and an all-zero GID.
    if gid.is_zero() {
        return Slot::Empty;
    }
    Slot::Holds(GidInfo { index, gid, gid_type: gid_type(context, port, index, gid) })
}

fn gid_type(context: &DeviceContext, port: u8, index: u8, gid: Gid) -> Option<GidType> {
    let call = context.symbols().query_gid_ex?;
    let mut entry = GidEntry::default();
    // SAFETY: the context is live; the storage is an entry of the size given.
    let returned =
        unsafe { call(context.as_ptr(), port.into(), index.into(), &raw mut entry, 0, size_of::<GidEntry>()) };
    // The table may change between the two calls: a type of another GID is not believed.
    (RawErrno(returned).0 == 0 && entry.gid == gid).then_some(entry.gid_type)
}
