//! Ports, interfaces, routes, and the host's view of them.

use std::net::IpAddr;

use carrack_base::{Prefix, Prefix4, Prefix6, Range4};
use carrack_host::{HostConfig, HostInterface, RouterAdvertising};
use carrack_nat::policy::{Instance, StaticRule};
use carrack_pipeline::snapshot::{Interface, Ipv6Interface, NextHop, Port, Route, Route6, Side, Vlan};
use carrack_wire::MacAddr;
use carrack_wire::ipv6::is_link_local;
use carrack_wire::ndp::{self, PrefixInformation, RouterAdvertisement};

use super::{Build, PortDevice, PortFacts};
use crate::model::{AdvertisingConfig, Attach, InterfaceConfig, RouteConfig, RouteTarget};

/// Largest MTU of an interface, bytes.
const MTU_MAX: u16 = 9_600;
/// Ethernet header and two tags, bytes.
pub(crate) const ENCAPSULATION_BYTES: u16 = 14 + 8;

impl Build<'_> {
    pub(super) fn ports(&mut self) -> Vec<Port> {
        let names = self.ids.ports.names().to_vec();
        let port = |(id, name): (usize, String)| Port {
            id: carrack_base::PortId(id as u16),
            mac: self
                .facts
                .iter()
                .find(|facts| facts.name == name)
                .map_or_else(Default::default, |facts| facts.mac),
            name,
        };
        names.into_iter().enumerate().map(port).collect()
    }

    pub(super) fn devices(&self) -> Vec<PortDevice> {
        let mut devices: Vec<PortDevice> = self
            .config
            .devices()
            .map(|(port, device)| PortDevice {
                id: self.port(&port.name),
                name: port.name.value.clone(),
                device: device.clone(),
            })
            .collect();
        devices.sort_by_key(|device| device.id);
        devices
    }

    pub(super) fn interfaces(&mut self) -> Vec<Option<Interface>> {
        let mut interfaces = vec![None; self.ids.interfaces.names().len()];
        let config = self.config;
        for interface in &config.interfaces {
            let Some(built) = self.build_interface(interface) else { continue };
            let index = built.id.index();
            if let Some(slot) = interfaces.get_mut(index) {
                *slot = Some(built);
            }
        }
        interfaces
    }

    fn build_interface(&mut self, interface: &InterfaceConfig) -> Option<Interface> {
        let (port, vlan) = match &interface.attach {
            Attach::Device(_) => (interface, Vlan::None),
            Attach::Parent { parent, vlan } => (self.config.interface(parent)?, vlan.value),
        };
        let Some(facts) = self.facts.iter().find(|facts| facts.name == port.name.value) else {
            let message =
                format!("port `{}` is not open; ports cannot be added while running, so restart", port.name);
            self.error(port.name.span, message);
            return None;
        };
        let facts = facts.clone();
        let mtu = self.mtu(interface, port, &facts);
        Some(Interface {
            id: self.interface(&interface.name),
            name: interface.name.value.clone(),
            port: self.port(&port.name),
            vlan,
            mac: facts.mac,
            vrf: self.vrf(&interface.vrf),
            side: interface.side,
            up: interface.up && port.up,
            mtu,
            addresses: interface.addresses.iter().map(|own| (own.address, own.subnet)).collect(),
            ipv6: ipv6(interface, facts.mac),
            urpf: interface.urpf,
            icmp_errors: interface.icmp_errors,
        })
    }

    /// The interface's own, else its port's. One that is not written is lowered to what a packet buffer holds.
    fn mtu(&mut self, interface: &InterfaceConfig, port: &InterfaceConfig, facts: &PortFacts) -> u16 {
        let fits = self.config.memory.frame_bytes.saturating_sub(ENCAPSULATION_BYTES).min(MTU_MAX);
        if let Some(mtu) = &interface.mtu {
            if mtu.value > facts.mtu {
                let message = format!(
                    "an MTU of {mtu} on port `{}`, which takes {}; lower it, or raise the device's MTU first",
                    port.name, facts.mtu
                );
                self.error(mtu.span, message);
            }
            return mtu.value;
        }
        port.mtu.as_ref().map_or(facts.mtu, |mtu| mtu.value).min(fits)
    }

    /// Connected and local routes of all interfaces, then static ones.
    pub(super) fn routes(&mut self) -> Vec<Route> {
        let mut routes = Vec::new();
        for interface in &self.config.interfaces {
            let (id, vrf) = (self.interface(&interface.name), self.vrf(&interface.vrf));
            for own in &interface.addresses {
                routes.push(Route {
                    vrf,
                    prefix: Prefix4::of(own.address, 32),
                    next_hop: NextHop::Local(id),
                });
                if own.subnet.len() < 32 {
                    routes.push(Route { vrf, prefix: own.subnet, next_hop: NextHop::Connected(id) });
                }
            }
        }
        for route in &self.config.routes {
            let Prefix::V4(prefix) = route.prefix.value else { continue };
            let of = |via| if let IpAddr::V4(via) = via { Some(via.into()) } else { None };
            let Some(next_hop) = self.next_hop(route, of) else { continue };
            routes.push(Route { vrf: self.vrf(&route.vrf), prefix, next_hop });
        }
        routes
    }

    /// The same of IPv6, with the address of all routers of each subnet. A link-local address belongs to no routing table.
    pub(super) fn routes6(&mut self) -> Vec<Route6> {
        let mut routes = Vec::new();
        for interface in &self.config.interfaces {
            let (id, vrf) = (self.interface(&interface.name), self.vrf(&interface.vrf));
            let first = routes.len();
            for own in interface.addresses6.iter().filter(|own| !is_link_local(own.address)) {
                let local =
                    |address| Route { vrf, prefix: Prefix6::of(address, 128), next_hop: NextHop::Local(id) };
                routes.push(local(own.address));
                if own.subnet.len() < 128 {
                    routes.push(Route { vrf, prefix: own.subnet, next_hop: NextHop::Connected(id) });
                }
                // Once for all addresses of a subnet.
                let anycast = own.subnet.router_anycast().map(local);
                routes.extend(anycast.filter(|route| !routes[first..].contains(route)));
            }
        }
        for route in &self.config.routes {
            let Prefix::V6(prefix) = route.prefix.value else { continue };
            let of = |via| if let IpAddr::V6(via) = via { Some(via.into()) } else { None };
            let Some(next_hop) = self.next_hop(route, of) else { continue };
            routes.push(Route { vrf: self.vrf(&route.vrf), prefix, next_hop });
        }
        routes
    }

    fn next_hop<A>(&self, route: &RouteConfig, of: impl Fn(IpAddr) -> Option<A>) -> Option<NextHop<A>> {
        Some(match &route.target {
            RouteTarget::Gateway { via, interface: Some(interface) } => {
                NextHop::Gateway(self.interface(interface), of(via.value)?)
            }
            RouteTarget::Gateway { via, interface: None } => {
                let on_link = gateway_interface(&self.config.interfaces, &route.vrf, via.value)?;
                NextHop::Gateway(self.interface(&on_link.name), of(via.value)?)
            }
            RouteTarget::Interface(interface) => NextHop::Connected(self.interface(interface)),
            RouteTarget::Blackhole => NextHop::Blackhole,
            RouteTarget::Prohibit => NextHop::Prohibit,
        })
    }

    pub(super) fn host(&self, interfaces: &[Option<Interface>], instances: &[Instance]) -> HostConfig {
        let interfaces = interfaces.iter().flatten().filter(|interface| interface.up);
        HostConfig {
            interfaces: interfaces
                .map(|interface| {
                    let written = self.config.interface(&interface.name);
                    let advertising = written.and_then(|written| written.advertising.as_ref());
                    HostInterface {
                        advertising: advertising.map(|advertising| told(interface, advertising)),
                        ..host_interface(interface, instances)
                    }
                })
                .collect(),
            arp: self.config.arp,
            neighbours_max: self.config.memory.neighbours,
            icmp_errors: self.config.policers.icmp_errors,
        }
    }
}

/// IPv6 on an interface that has an address of it: the link-local one as written, else made of the MAC address.
fn ipv6(interface: &InterfaceConfig, mac: MacAddr) -> Option<Ipv6Interface> {
    let own = || interface.addresses6.iter();
    own().next()?;
    let written = own().find(|own| is_link_local(own.address)).map(|own| own.address);
    let addresses = own().filter(|own| !is_link_local(own.address)).map(|own| (own.address, own.subnet));
    Some(Ipv6Interface {
        link_local: written.unwrap_or_else(|| ndp::link_local(mac)),
        addresses: addresses.collect(),
    })
}

/// What the hosts of the link are told: the MTU, and all subnets in which they may make themselves addresses
/// (RFC 4862 §5.5.3: of 64 bits).
fn told(interface: &Interface, written: &AdvertisingConfig) -> RouterAdvertising {
    let AdvertisingConfig { interval_s, lifetime_s, valid_s, preferred_s, managed, other } = *written;
    let subnets = interface.ipv6.iter().flat_map(|v6| v6.addresses.iter().map(|(_, subnet)| *subnet));
    let mut prefixes: Vec<PrefixInformation> = subnets
        .filter(|subnet| subnet.len() == 64)
        .map(|subnet| PrefixInformation {
            address: subnet.address(),
            len: subnet.len(),
            on_link: true,
            autonomous: true,
            valid_s,
            preferred_s,
        })
        .collect();
    prefixes.dedup();
    let message = RouterAdvertisement {
        hop_limit: 64,
        managed,
        other,
        lifetime_s,
        mtu: Some(interface.mtu.into()),
        prefixes,
        ..RouterAdvertisement::default()
    };
    RouterAdvertising { interval_s, message }
}

/// The interface of a routing instance whose subnet holds the gateway; the longest prefix when there are several.
pub(crate) fn gateway_interface<'a>(
    interfaces: &'a [InterfaceConfig],
    vrf: &str,
    gateway: IpAddr,
) -> Option<&'a InterfaceConfig> {
    interfaces
        .iter()
        .filter(|interface| interface.vrf.value == vrf)
        .flat_map(|interface| interface.own().map(move |(_, subnet)| (subnet, interface)))
        .filter(|(subnet, _)| subnet.contains(gateway))
        .max_by_key(|(subnet, _)| match subnet {
            Prefix::V4(subnet) => subnet.len(),
            Prefix::V6(subnet) => subnet.len(),
        })
        .map(|(_, interface)| interface)
}

fn host_interface(interface: &Interface, instances: &[Instance]) -> HostInterface {
    let outside = interface.side == Side::Outside;
    let here = instances.iter().filter(|instance| outside && instance.outside_vrf == interface.vrf);
    let mut proxy: Vec<Range4> = here.flat_map(outside_addresses).collect();
    // An own address that is forwarded is answered for as the router's own.
    proxy.retain(|range| {
        !interface.addresses.iter().any(|(own, _)| range.first == *own && range.last == *own)
    });
    proxy.sort_unstable();
    proxy.dedup();
    HostInterface {
        id: interface.id,
        name: interface.name.clone(),
        vrf: interface.vrf,
        mac: interface.mac,
        vlan: interface.vlan,
        mtu: interface.mtu,
        icmp_errors: interface.icmp_errors,
        addresses: interface.addresses.clone(),
        ipv6: interface.ipv6.clone(),
        advertising: None,
        proxy,
    }
}

/// Everything that an instance translates to; forwarded addresses that are in a pool only once.
fn outside_addresses(instance: &Instance) -> impl Iterator<Item = Range4> + '_ {
    let pools = || instance.pools.iter().flat_map(|pool| pool.ranges.iter().copied());
    let statics = instance.statics.iter().filter_map(move |rule| match *rule {
        StaticRule::OneToOne { outside, .. } => Some(outside),
        StaticRule::Forward { outside, .. } => {
            let pooled = pools().any(|range| range.contains(outside));
            (!pooled).then_some(Range4 { first: outside, last: outside })
        }
    });
    pools().chain(statics)
}
