//! References between routing instances, interfaces and routes, and what clashes among them.

use std::collections::BTreeMap;

use carrack_io::DeviceSpec;
use carrack_pipeline::snapshot::Vlan;

use crate::compile::{ENCAPSULATION_BYTES, gateway_interface};
use crate::model::{Attach, Config, DEFAULT_VRF, InterfaceConfig, RouteConfig, RouteTarget};
use crate::read::Notes;
use crate::source::At;
use crate::suggest;

pub(super) fn check(notes: &Notes, config: &Config, complete: bool) {
    devices(notes, config);
    for interface in &config.interfaces {
        vrf_exists(notes, config, &interface.vrf);
        parent(notes, config, interface);
        mtu(notes, config, interface);
    }
    vlans(notes, config);
    addresses(notes, config);
    for route in &config.routes {
        vrf_exists(notes, config, &route.vrf);
        target(notes, config, route, complete);
    }
    shadowed_routes(notes, config);
}

/// Is the routing instance declared? Reports it if not.
pub(super) fn vrf_exists(notes: &Notes, config: &Config, vrf: &At<String>) -> bool {
    let known = || std::iter::once(DEFAULT_VRF).chain(config.vrfs.iter().map(|vrf| vrf.value.as_str()));
    // A name that could not be read may be the one.
    if vrf.is_empty() || known().any(|name| name == vrf.value || name.is_empty()) {
        return true;
    }
    let near =
        suggest::nearest(vrf, known()).map_or_else(String::new, |near| format!("did you mean `{near}`? Or "));
    let message =
        format!("no routing instance `{vrf}`; {near}declare it with [[vrf]] and `name = \"{vrf}\"`");
    notes.error(vrf.span, message);
    false
}

/// One device is one port, and a run is all DPDK or all in process.
fn devices(notes: &Notes, config: &Config) {
    let mut seen: BTreeMap<String, &str> = BTreeMap::new();
    let mut first: Option<(&DeviceSpec, &InterfaceConfig)> = None;
    for interface in &config.interfaces {
        let Attach::Device(device) = &interface.attach else { continue };
        if matches!(&device.value, DeviceSpec::Mem { name } if name.is_empty()) {
            continue;
        }
        if let Some(other) = seen.insert(device.to_string(), &interface.name) {
            let message =
                format!("`{device}` is the device of `{other}` too; give each port a device of its own");
            notes.error(device.span, message);
        }
        let (other, by) = *first.get_or_insert((&device.value, interface));
        if other.needs_dpdk() != device.needs_dpdk() {
            let message = format!(
                "a `{}` device beside the `{}` of `{}`; all ports need DPDK (pci, af_packet, af_xdp, tap, memif, dpdk-pcap, vdev) or none does (pcap, mem)",
                device.kind(),
                other.kind(),
                by.name
            );
            notes.error(device.span, message);
        }
    }
}

fn interface_names(config: &Config) -> impl Iterator<Item = &str> + Clone {
    config.interfaces.iter().map(|interface| interface.name.value.as_str()).filter(|name| !name.is_empty())
}

/// Reports an interface that does not exist.
fn find<'a>(notes: &Notes, config: &'a Config, name: &At<String>) -> Option<&'a InterfaceConfig> {
    let found = config.interface(name);
    let unreadable = config.interfaces.iter().any(|interface| interface.name.is_empty());
    if found.is_none() && !unreadable && !name.is_empty() {
        let hint = suggest::hint(name, interface_names(config));
        notes.error(name.span, format!("no interface `{name}`; {hint}"));
    }
    found
}

fn parent(notes: &Notes, config: &Config, interface: &InterfaceConfig) {
    let Attach::Parent { parent, .. } = &interface.attach else { return };
    let Some(port) = find(notes, config, parent) else { return };
    if let Attach::Parent { parent: port, .. } = &port.attach {
        let message = format!(
            "`{parent}` is itself a VLAN; name the port `{port}` as parent, with `outer` and `inner` for two tags"
        );
        notes.error(parent.span, message);
    }
}

fn mtu(notes: &Notes, config: &Config, interface: &InterfaceConfig) {
    let Some(mtu) = &interface.mtu else { return };
    let frame_bytes = config.memory.frame_bytes;
    if frame_bytes > 0 && mtu.value > frame_bytes - ENCAPSULATION_BYTES.min(frame_bytes) {
        let message = format!(
            "an MTU of {mtu} does not fit packet buffers of {frame_bytes} bytes; set `frame_bytes` in [memory] to at least {}",
            u32::from(mtu.value) + u32::from(ENCAPSULATION_BYTES)
        );
        notes.error(mtu.span, message);
    }
    let Attach::Parent { parent, .. } = &interface.attach else { return };
    let port_mtu = config.interface(parent).and_then(|port| port.mtu.as_ref());
    if let Some(port_mtu) = port_mtu.filter(|port_mtu| port_mtu.value < mtu.value) {
        let message =
            format!("an MTU of {mtu} on `{parent}`, whose own is {port_mtu}; lower this one or raise that");
        notes.error(mtu.span, message);
    }
}

/// A frame belongs to one interface: a port's tags are all different. The outer EtherType tells nothing apart that a
/// peer would not mix up, so it does not make two tags different.
fn vlans(notes: &Notes, config: &Config) {
    let mut seen: BTreeMap<(&str, u16, u16), &str> = BTreeMap::new();
    for interface in &config.interfaces {
        let Attach::Parent { parent, vlan } = &interface.attach else { continue };
        let (tags, text) = match vlan.value {
            Vlan::None => continue,
            Vlan::Single(id) => ((id, 0), format!("VLAN {id}")),
            Vlan::Double { outer, inner, .. } => ((outer, inner), format!("VLAN {outer}.{inner}")),
        };
        if let Some(other) = seen.insert((parent, tags.0, tags.1), &interface.name) {
            let message = format!(
                "{text} of `{parent}` is `{other}` already; choose another tag or remove one of the two"
            );
            notes.error(vlan.span, message);
        }
    }
}

/// Subnets of one routing instance are disjoint, except that one interface may have several addresses in one subnet.
fn addresses(notes: &Notes, config: &Config) {
    let mut all: Vec<_> = config
        .interfaces
        .iter()
        .flat_map(|interface| interface.addresses.iter().map(move |own| (interface, own)))
        .collect();
    all.sort_by_key(|(interface, own)| {
        (interface.vrf.value.as_str(), own.subnet.address(), own.subnet.len())
    });
    let mut open: Option<(&InterfaceConfig, &At<crate::value::InterfaceAddress>)> = None;
    for (interface, own) in all {
        if let Some((other, wide)) = open
            && other.vrf == interface.vrf
            && wide.subnet.range().overlaps(own.subnet.range())
        {
            let (same_if, same_net) = (std::ptr::eq(other, interface), wide.subnet == own.subnet);
            if !(same_if && same_net) || wide.address == own.address {
                // The later one in the file is the one to look at.
                let (at, of, on) = if own.span.start > wide.span.start {
                    (own, wide, other)
                } else {
                    (wide, own, interface)
                };
                let message = format!(
                    "{at} overlaps {of} of `{}` in vrf `{}`; choose another subnet, or put one of them into another vrf",
                    on.name, on.vrf
                );
                notes.error(at.span, message);
                continue;
            }
        }
        if open
            .is_none_or(|(other, wide)| other.vrf != interface.vrf || own.subnet.last() >= wide.subnet.last())
        {
            open = Some((interface, own));
        }
    }
}

fn target(notes: &Notes, config: &Config, route: &RouteConfig, complete: bool) {
    match &route.target {
        RouteTarget::Blackhole | RouteTarget::Prohibit => {}
        RouteTarget::Interface(interface) => {
            find(notes, config, interface);
        }
        RouteTarget::Gateway { via, interface: Some(name) } => {
            let Some(interface) = find(notes, config, name) else { return };
            let on_link = interface.addresses.iter().any(|own| own.subnet.contains(via.value));
            if complete && !on_link && !interface.addresses.is_empty() {
                let message = format!(
                    "gateway {} is on no subnet of `{name}`; {}",
                    ip(via.value),
                    subnets([interface])
                );
                notes.error(via.span, message);
            }
            own_gateway(notes, config, route, via);
        }
        RouteTarget::Gateway { via, interface: None } => {
            if complete && gateway_interface(&config.interfaces, &route.vrf, via.value).is_none() {
                let here = config.interfaces.iter().filter(|interface| interface.vrf == route.vrf);
                let message = format!(
                    "gateway {} is on no connected subnet of vrf `{}`; {}",
                    ip(via.value),
                    route.vrf,
                    subnets(here)
                );
                notes.error(via.span, message);
            }
            own_gateway(notes, config, route, via);
        }
    }
}

fn own_gateway(notes: &Notes, config: &Config, route: &RouteConfig, via: &At<u32>) {
    let here = config.interfaces.iter().filter(|interface| interface.vrf == route.vrf);
    for interface in here {
        if interface.addresses.iter().any(|own| own.address == via.value) {
            let message = format!(
                "gateway {} is this router itself, on `{}`; name the next router",
                ip(via.value),
                interface.name
            );
            notes.error(via.span, message);
        }
    }
}

fn subnets<'a>(interfaces: impl IntoIterator<Item = &'a InterfaceConfig>) -> String {
    let all: Vec<String> = interfaces
        .into_iter()
        .flat_map(|interface| interface.addresses.iter())
        .map(|own| own.subnet.to_string())
        .take(8)
        .collect();
    if all.is_empty() {
        return "no interface there has an address; give one its `address`".to_owned();
    }
    format!("connected are {}", all.join(", "))
}

/// A static route to exactly a connected subnet would contradict it.
fn shadowed_routes(notes: &Notes, config: &Config) {
    let mut connected = BTreeMap::new();
    for interface in &config.interfaces {
        for own in &interface.addresses {
            connected.insert((interface.vrf.value.as_str(), own.subnet), interface);
            let host = carrack_base::Prefix4::of(own.address, 32);
            connected.insert((interface.vrf.value.as_str(), host), interface);
        }
    }
    for route in &config.routes {
        let Some(interface) = connected.get(&(route.vrf.value.as_str(), route.prefix.value)) else {
            continue;
        };
        let message = format!(
            "{} is connected on `{}`; remove the route, or make it longer or shorter than the subnet",
            route.prefix, interface.name
        );
        notes.error(route.prefix.span, message);
    }
}

pub(super) fn ip(address: u32) -> std::net::Ipv4Addr {
    address.into()
}
