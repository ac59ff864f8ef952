//! What the server is told about the router and its subscribers.

use std::net::IpAddr;

use carrack_base::{IfIndex, InstanceId, Prefix, Prefix4, Prefix6, VrfId};
use carrack_nat::nat64::NatPrefix;
use carrack_pipeline::snapshot::{Interface, Side};

/// Everything the server works by.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Config {
    /// Interfaces that are up and inside: there alone requests are taken (RFC 6887 §8.2).
    pub interfaces: Vec<Interface>,
    /// Names of routing instances by [`VrfId`], for what is kept over a restart.
    pub vrfs: Vec<String>,
    /// Instances whose subscribers may ask.
    pub served: Vec<Served>,
    /// Most mappings of all subscribers together.
    pub mappings_max: u32,
}

/// One NAT instance whose subscribers may ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served {
    /// Instance.
    pub id: InstanceId,
    /// Where its subscribers are.
    pub vrf: VrfId,
    /// IPv4 subscribers.
    pub subscribers: Vec<Prefix4>,
    /// IPv6 subscribers.
    pub subscribers6: Vec<Prefix6>,
    /// Bits of an IPv6 address that make a subscriber.
    pub subscriber_len: u8,
    /// NAT64 prefixes.
    pub prefixes: Vec<NatPrefix>,
    /// NAT-PMP beside PCP.
    pub nat_pmp: bool,
    /// Whose THIRD_PARTY option is taken.
    pub third_party_from: Vec<Prefix>,
    /// For whoever has no rule of his own.
    pub allowed: Allowed,
    /// Rules for some, the longest prefix wins. Sorted by length, longest first.
    pub rules: Vec<(Prefix, Allowed)>,
}

/// What a subscriber may ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowed {
    /// Anything at all.
    pub any: bool,
    /// Inside ports, as first and last.
    pub ports: Vec<(u16, u16)>,
    /// Shortest lifetime, seconds; shorter wishes are raised to it.
    pub lifetime_min_s: u32,
    /// Longest lifetime, seconds.
    pub lifetime_max_s: u32,
    /// Most mappings; each port of a set counts.
    pub mappings_max: u32,
}

impl Default for Allowed {
    fn default() -> Self {
        Self {
            any: true,
            ports: vec![(1, u16::MAX)],
            lifetime_min_s: 120,
            lifetime_max_s: 86_400,
            mappings_max: 64,
        }
    }
}

impl Allowed {
    /// May that inside port be asked for?
    pub(crate) fn port(&self, port: u16) -> bool {
        self.any && self.ports.iter().any(|(first, last)| (*first..=*last).contains(&port))
    }
}

impl Served {
    /// Is it a subscriber's?
    pub(crate) fn serves(&self, ip: IpAddr) -> bool {
        match ip {
            IpAddr::V4(ip) => self.subscribers.iter().any(|prefix| prefix.contains(ip.into())),
            IpAddr::V6(ip) => self.subscribers6.iter().any(|prefix| prefix.contains(ip.into())),
        }
    }

    /// What the subscriber of that address may ask for.
    pub(crate) fn allowed(&self, ip: IpAddr) -> &Allowed {
        self.rules.iter().find(|(prefix, _)| prefix.contains(ip)).map_or(&self.allowed, |(_, rule)| rule)
    }

    /// First and last address of the subscriber.
    pub(crate) fn subscriber(&self, ip: IpAddr) -> (IpAddr, IpAddr) {
        match ip {
            IpAddr::V4(_) => (ip, ip),
            IpAddr::V6(v6) => {
                let prefix = Prefix6::of(v6.into(), self.subscriber_len);
                let rest = u128::MAX.checked_shr(self.subscriber_len.into()).unwrap_or(0);
                let first = prefix.address();
                (std::net::Ipv6Addr::from(first).into(), std::net::Ipv6Addr::from(first | rest).into())
            }
        }
    }
}

impl Config {
    /// The interface, if requests are taken there.
    pub(crate) fn inside(&self, id: IfIndex) -> Option<&Interface> {
        self.interfaces.iter().find(|interface| interface.id == id && interface.side == Side::Inside)
    }

    /// Is it an address that requests may be sent to from there: an inside one of the router?
    pub(crate) fn is_own(&self, on: &Interface, ip: IpAddr) -> bool {
        let here = self.interfaces.iter().filter(|interface| interface.vrf == on.vrf);
        match ip {
            IpAddr::V4(ip) => {
                here.flat_map(|interface| &interface.addresses).any(|(own, _)| *own == u32::from(ip))
            }
            IpAddr::V6(ip) => {
                let ip = u128::from(ip);
                if carrack_wire::ipv6::is_link_local(ip) {
                    return on.ipv6.as_ref().is_some_and(|v6| v6.link_local == ip);
                }
                here.filter_map(|interface| interface.ipv6.as_ref()).any(|v6| v6.own().any(|own| own == ip))
            }
        }
    }

    /// The instance that serves a host.
    pub(crate) fn served(&self, vrf: VrfId, ip: IpAddr) -> Option<&Served> {
        self.served.iter().find(|served| served.vrf == vrf && served.serves(ip))
    }

    /// Number of a routing instance by name.
    pub(crate) fn vrf(&self, name: &str) -> Option<VrfId> {
        self.vrfs.iter().position(|known| known == name).map(|at| VrfId(at as u16))
    }
}
