//! References between routing instances, interfaces and routes, and what clashes among them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use carrack_base::{Family, Prefix, Prefix4, Prefix6};
use carrack_io::DeviceSpec;
use carrack_pipeline::snapshot::Vlan;
use carrack_wire::ipv6::{MTU_MIN, is_link_local};

use crate::compile::{ENCAPSULATION_BYTES, gateway_interface};
use crate::model::{Attach, Config, DEFAULT_VRF, InterfaceConfig, RouteConfig, RouteTarget};
use crate::read::Notes;
use crate::source::{At, Span};
use crate::suggest;

pub(super) fn check(notes: &Notes, config: &Config, complete: bool) {
    devices(notes, config);
    for interface in &config.interfaces {
        vrf_exists(notes, config, &interface.vrf);
        parent(notes, config, interface);
        mtu(notes, config, interface);
        ipv6(notes, config, interface);
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

/// An own address to compare with others; IPv4 and IPv6 never meet.
struct Own<'a> {
    interface: &'a InterfaceConfig,
    address: u128,
    first: u128,
    last: u128,
    text: String,
    span: Span,
}

/// Subnets of one routing instance are disjoint, except that one interface may have several addresses in one subnet.
fn addresses(notes: &Notes, config: &Config) {
    let (mut four, mut six) = (Vec::new(), Vec::new());
    for interface in &config.interfaces {
        four.extend(interface.addresses.iter().map(|own| Own {
            interface,
            address: own.address.into(),
            first: own.subnet.address().into(),
            last: own.subnet.last().into(),
            text: own.to_string(),
            span: own.span,
        }));
        // Every link has the same link-local subnet.
        let own = interface.addresses6.iter().filter(|own| !is_link_local(own.address));
        six.extend(own.map(|own| Own {
            interface,
            address: own.address,
            first: own.subnet.address(),
            last: own.subnet.last(),
            text: own.to_string(),
            span: own.span,
        }));
        let mut link_local = interface.addresses6.iter().filter(|own| is_link_local(own.address));
        if let Some(second) = link_local.nth(1) {
            notes.error(second.span, format!("{second} is a second link-local address; keep one"));
        }
    }
    disjoint(notes, four);
    disjoint(notes, six);
}

fn disjoint(notes: &Notes, mut all: Vec<Own<'_>>) {
    all.sort_by_key(|own| (own.interface.vrf.value.clone(), own.first, std::cmp::Reverse(own.last)));
    let mut open: Option<&Own<'_>> = None;
    for own in &all {
        if let Some(wide) = open
            && wide.interface.vrf == own.interface.vrf
            && wide.last >= own.first
        {
            let same_if = std::ptr::eq(wide.interface, own.interface);
            let same_net = (wide.first, wide.last) == (own.first, own.last);
            if !(same_if && same_net) || wide.address == own.address {
                // The later one in the file is the one to look at.
                let (at, of) = if own.span.start > wide.span.start { (own, wide) } else { (wide, own) };
                let message = format!(
                    "{} overlaps {} of `{}` in vrf `{}`; choose another subnet, or put one of them into another vrf",
                    at.text, of.text, of.interface.name, of.interface.vrf
                );
                notes.error(at.span, message);
                continue;
            }
        }
        if open.is_none_or(|wide| wide.interface.vrf != own.interface.vrf || own.last >= wide.last) {
            open = Some(own);
        }
    }
}

/// IPv6 wants every link to take 1280 octets (RFC 8200 §5).
fn ipv6(notes: &Notes, config: &Config, interface: &InterfaceConfig) {
    let port = match &interface.attach {
        Attach::Device(_) => None,
        Attach::Parent { parent, .. } => config.interface(parent).and_then(|port| port.mtu.as_ref()),
    };
    let mtu = interface.mtu.as_ref().or(port).filter(|mtu| usize::from(mtu.value) < MTU_MIN);
    if let (Some(mtu), Some(own)) = (mtu, interface.addresses6.first()) {
        notes.error(
            mtu.span,
            format!("an MTU of {mtu} with IPv6 address {own}; IPv6 needs at least {MTU_MIN}"),
        );
    }
    if interface.advertising.is_some() && interface.addresses6.is_empty() {
        let message =
            format!("`{}` advertises a router but has no IPv6 address; give it one", interface.name);
        notes.error(interface.name.span, message);
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
            let same = |subnet: &Prefix| subnet.family() == route.prefix.family();
            let mut subnets_here = interface.own().map(|(_, subnet)| subnet).filter(same).peekable();
            let has_any = subnets_here.peek().is_some();
            let on_link =
                is_link_local_ip(via.value) || subnets_here.any(|subnet| subnet.contains(via.value));
            if complete && !on_link && has_any {
                let message =
                    format!("gateway {} is on no subnet of `{name}`; {}", via.value, subnets([interface]));
                notes.error(via.span, message);
            }
            own_gateway(notes, config, route, via);
        }
        RouteTarget::Gateway { via, interface: None } if is_link_local_ip(via.value) => {
            let message = format!("gateway {} is link-local; say on which `interface`", via.value);
            notes.error(via.span, message);
        }
        RouteTarget::Gateway { via, interface: None } => {
            if complete && gateway_interface(&config.interfaces, &route.vrf, via.value).is_none() {
                let here = config.interfaces.iter().filter(|interface| interface.vrf == route.vrf);
                let message = format!(
                    "gateway {} is on no connected subnet of vrf `{}`; {}",
                    via.value,
                    route.vrf,
                    subnets(here)
                );
                notes.error(via.span, message);
            }
            own_gateway(notes, config, route, via);
        }
    }
}

fn is_link_local_ip(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if is_link_local(ip.into()))
}

/// A gateway is of the prefix's version, and another router.
fn own_gateway(notes: &Notes, config: &Config, route: &RouteConfig, via: &At<IpAddr>) {
    if via.value.is_ipv6() != (route.prefix.family() == Family::V6) {
        let message = format!(
            "gateway {} for {}: a gateway of the other IP version; give one of the same",
            via.value, route.prefix
        );
        notes.error(via.span, message);
        return;
    }
    let here = config.interfaces.iter().filter(|interface| interface.vrf == route.vrf);
    for interface in here {
        if interface.local().any(|own| own == via.value) {
            let message = format!(
                "gateway {} is this router itself, on `{}`; name the next router",
                via.value, interface.name
            );
            notes.error(via.span, message);
        }
    }
}

fn subnets<'a>(interfaces: impl IntoIterator<Item = &'a InterfaceConfig>) -> String {
    let all: Vec<String> = interfaces
        .into_iter()
        .flat_map(|interface| interface.own())
        .map(|(_, subnet)| subnet.to_string())
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
        let subnets = interface.own().map(|(_, subnet)| subnet);
        let hosts = interface.local().map(|own| match own {
            IpAddr::V4(own) => Prefix::V4(Prefix4::of(own.into(), 32)),
            IpAddr::V6(own) => Prefix::V6(Prefix6::of(own.into(), 128)),
        });
        connected
            .extend(subnets.chain(hosts).map(|prefix| ((interface.vrf.value.as_str(), prefix), interface)));
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
