//! Lists RDMA devices: ports, states, link layers, GIDs with index, type and scope.
//!
//! `cargo run --example list_devices` shows what the system has, and says plainly what is missing when it has nothing.

use bareverbs_examples::{FabricChoice, say};
use bareverbs_shell::objects::device::{DeviceEntry, PortEntry};
use bareverbs_shell::objects::gid::GidInfo;
use clap::Parser;

/// Lists RDMA devices with their ports and GIDs.
#[derive(Parser)]
struct Options {
    /// Which fabric to ask.
    #[arg(long, value_enum, default_value = "system")]
    fabric: FabricChoice,
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let fabric = options.fabric.make()?;
    say!("fabric {}: {} ({})", fabric.kind(), fabric.symbols().library, fabric.reason());
    let devices = fabric.devices()?;
    if devices.is_empty() {
        say!("no RDMA device: the library and the kernel are there, but no driver has registered one.");
        say!("On Linux: load the card's module, or `rdma link add rxe0 type rxe netdev eth0` for soft-RoCE.");
        say!("On a Mac: Thunderbolt 5 is needed, with RDMA enabled from the recovery system.");
    }
    for device in &devices {
        print_device(device);
    }
    Ok(())
}

fn print_device(device: &DeviceEntry) {
    let guid = device.guid.map_or_else(String::new, |guid| format!("  guid {guid:016x}"));
    say!("{}  {:?}  {:?}{guid}", device.name, device.node_type, device.transport);
    match &device.ports {
        Ok(ports) => ports.iter().for_each(print_port),
        Err(error) => say!("  cannot be asked: {error}"),
    }
}

fn print_port(port: &PortEntry) {
    let info = &port.info;
    let mtu = info.active_mtu().bytes().map_or_else(|| "unknown".into(), |bytes| bytes.to_string());
    say!("  port {}  {:?}  {:?}  MTU {mtu}  LID {}", info.number, info.state(), info.link_layer(), info.lid());
    if port.gids.is_empty() {
        say!("    no GID");
    }
    for gid in &port.gids {
        say!("    {}", in_words(gid));
    }
}

fn in_words(gid: &GidInfo) -> String {
    let kind = gid.gid_type.map_or_else(|| "type unknown".into(), |kind| format!("{kind:?}"));
    let ipv4 = gid.gid.ipv4().map_or_else(String::new, |[a, b, c, d]| format!("  IPv4 {a}.{b}.{c}.{d}"));
    format!("GID {}: {}  {kind}  {:?}{ipv4}", gid.index, gid.gid, gid.scope())
}
