//! What the host is told about the router it speaks for.

use carrack_base::{IfIndex, Prefix4, Range4, VrfId};
use carrack_pipeline::snapshot::Vlan;
use carrack_wire::MacAddr;

/// Everything the host works by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostConfig {
    /// Interfaces that are administratively up, in any order, each id once.
    pub interfaces: Vec<HostInterface>,
    /// ARP times.
    pub arp: ArpTimers,
    /// Most neighbours known at once, all interfaces together.
    pub neighbours_max: u32,
}

impl Default for HostConfig {
    fn default() -> Self {
        Self { interfaces: Vec::new(), arp: ArpTimers::default(), neighbours_max: 16_384 }
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
    /// Own addresses (host byte order) with their subnets.
    pub addresses: Vec<(u32, Prefix4)>,
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

    /// The own address to ask with for `target`: the one on its subnet, else the first.
    pub(crate) fn source_for(&self, target: u32) -> Option<u32> {
        let on_subnet = self.addresses.iter().find(|(_, subnet)| subnet.contains(target));
        on_subnet.or(self.addresses.first()).map(|(own, _)| *own)
    }
}

/// ARP times.
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
