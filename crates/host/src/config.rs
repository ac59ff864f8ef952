//! What the host is told about the router it speaks for.

use std::net::IpAddr;

use carrack_base::{IfIndex, Prefix4, Range4, VrfId};
use carrack_pipeline::snapshot::{IcmpErrors, Ipv6Interface, Policer, Policers, Vlan};
use carrack_wire::MacAddr;
use carrack_wire::ipv6::{is_link_local, is_multicast};
use carrack_wire::ndp::RouterAdvertisement;

/// Everything the host works by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostConfig {
    /// Interfaces that are administratively up, in any order, each id once.
    pub interfaces: Vec<HostInterface>,
    /// Times of ARP and neighbour discovery.
    pub arp: ArpTimers,
    /// Most neighbours known at once, all interfaces together.
    pub neighbours_max: u32,
    /// ICMP errors that the host sends.
    pub icmp_errors: Policer,
}

impl Default for HostConfig {
    fn default() -> Self {
        Self {
            interfaces: Vec::new(),
            arp: ArpTimers::default(),
            neighbours_max: 16_384,
            icmp_errors: Policers::default().icmp_errors,
        }
    }
}

/// One interface as the host sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostInterface {
    /// Index, as in the snapshot.
    pub id: IfIndex,
    /// As in config.
    pub name: String,
    /// Routing instance: echo requests are answered for every own address of the same one.
    pub vrf: VrfId,
    /// Own MAC address.
    pub mac: MacAddr,
    /// Tags that frames of this interface carry.
    pub vlan: Vlan,
    /// Largest IP packet, bytes.
    pub mtu: u16,
    /// Which senders behind it are told why their packets came to nothing.
    pub icmp_errors: IcmpErrors,
    /// Own addresses (host byte order) with their subnets.
    pub addresses: Vec<(u32, Prefix4)>,
    /// IPv6; `None` speaks none.
    pub ipv6: Option<Ipv6Interface>,
    /// What hosts of the link are told of the router; `None` tells nothing, asked or not.
    pub advertising: Option<RouterAdvertising>,
    /// Addresses that are not the router's but that it answers ARP for: pools and static mappings whose outside routing
    /// instance is this interface's.
    pub proxy: Vec<Range4>,
}

impl HostInterface {
    /// Is `ip` one of this interface's own addresses?
    pub(crate) fn owns(&self, ip: u32) -> bool {
        self.addresses.iter().any(|(own, _)| *own == ip)
    }

    /// Does this interface answer ARP for `ip`?
    pub(crate) fn answers(&self, ip: u32) -> bool {
        self.owns(ip) || self.proxy.iter().any(|range| range.contains(ip))
    }

    /// Can a station with address `ip` be on this link: in a connected subnet and not its network or broadcast address?
    pub(crate) fn can_be_neighbour(&self, ip: u32) -> bool {
        self.addresses.iter().any(|(_, subnet)| {
            let edge = subnet.len() < 31 && (ip == subnet.address() || ip == subnet.last());
            subnet.contains(ip) && !edge
        }) && !self.answers(ip)
    }

    /// Is `ip` one of this interface's own IPv6 addresses?
    pub(crate) fn owns6(&self, ip: u128) -> bool {
        self.ipv6.as_ref().is_some_and(|v6| v6.own().any(|own| own == ip))
    }

    /// Can a station with IPv6 address `ip` be on this link: link-local or in a connected subnet?
    pub(crate) fn can_be_neighbour6(&self, ip: u128) -> bool {
        let Some(v6) = &self.ipv6 else { return false };
        let on_link = is_link_local(ip) || v6.addresses.iter().any(|(_, subnet)| subnet.contains(ip));
        on_link && !self.owns6(ip) && !self.shares6(ip)
    }

    /// Is `ip` an address that all routers of this link have?
    pub(crate) fn shares6(&self, ip: u128) -> bool {
        self.ipv6.as_ref().is_some_and(|v6| v6.anycast().any(|anycast| anycast == ip))
    }

    /// May the link be asked who has `ip`?
    pub(crate) fn may_ask_for(&self, ip: IpAddr) -> bool {
        match ip {
            IpAddr::V4(ip) => {
                !ip.is_unspecified() && self.source_for(ip.into()).is_some() && !self.owns(ip.into())
            }
            IpAddr::V6(ip) => {
                let ip = u128::from(ip);
                self.ipv6.is_some() && ip > 1 && !is_multicast(ip) && !self.owns6(ip) && !self.shares6(ip)
            }
        }
    }

    /// The own address to ask with for `target`: the one on its subnet, else the first.
    pub(crate) fn source_for(&self, target: u32) -> Option<u32> {
        let on_subnet = self.addresses.iter().find(|(_, subnet)| subnet.contains(target));
        on_subnet.or(self.addresses.first()).map(|(own, _)| *own)
    }
}

/// Router advertisements on an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouterAdvertising {
    /// Most seconds between two to all (`MaxRtrAdvInterval`, RFC 4861 §6.2.1), 4 to 1,800.
    pub interval_s: u16,
    /// What they say; the MAC address is filled in.
    pub message: RouterAdvertisement,
}

/// Times of ARP and neighbour discovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArpTimers {
    /// Seconds after which a neighbour is asked again, by unicast, whether it is still there.
    pub reachable_s: u32,
    /// Milliseconds between two questions for the same address (RFC 1122 §2.3.2.1: at most one a second).
    pub retry_ms: u32,
    /// Questions without answer until the neighbour counts as gone.
    pub tries: u8,
    /// Seconds for which an address that did not answer is not asked for again.
    pub failed_s: u32,
}

impl Default for ArpTimers {
    fn default() -> Self {
        Self { reachable_s: 300, retry_ms: 1_000, tries: 3, failed_s: 3 }
    }
}
