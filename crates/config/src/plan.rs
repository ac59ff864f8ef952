//! How many ports and addresses there are for how many subscribers.

use crate::model::{NatConfig, PortsConfig};
use crate::value::PortRange;

/// The ports of a pool that can be given out: in block mode, whole blocks.
pub(crate) fn usable_ports(ports: &PortsConfig, range: PortRange) -> PortRange {
    let PortsConfig::Blocks { size, .. } = ports else { return range };
    let size = u32::from(size.value).max(1);
    let usable = range.count() / size * size;
    if usable == 0 {
        return range;
    }
    PortRange { first: range.first, last: range.first + (usable - 1) as u16 }
}

/// The numbers of a deterministic instance (RFC 7422 §2): I, O and the ports that are not reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deterministic {
    /// Inside addresses, and IPv6 prefixes of one subscriber each.
    pub subscribers: u64,
    /// Outside addresses.
    pub addresses: u64,
    /// Ports of each outside address that subscribers have as their own.
    pub ports: u32,
}

impl Deterministic {
    /// `None` without a pool.
    #[must_use]
    pub fn of(nat: &NatConfig) -> Option<Self> {
        Some(Self {
            subscribers: subscribers(nat),
            addresses: nat.pools.iter().flat_map(|pool| &pool.addresses).map(|range| range.count()).sum(),
            ports: nat.pools.first()?.ports.count().saturating_sub(overflow_ports(&nat.ports)),
        })
    }

    /// The most ports that every subscriber can have; 0 when the pool is too small for one each.
    #[must_use]
    pub fn ports_most(self) -> u16 {
        let sharing = self.subscribers.div_ceil(self.addresses.max(1)).max(1);
        u16::try_from(u64::from(self.ports) / sharing).unwrap_or(u16::MAX)
    }

    /// Outside addresses that so many ports for each subscriber take; `None` when not even one fits an address.
    pub(crate) fn addresses_needed(self, ports_per_subscriber: u16) -> Option<u64> {
        let sharing = u64::from(self.ports) / u64::from(ports_per_subscriber.max(1));
        (sharing > 0).then(|| self.subscribers.div_ceil(sharing))
    }
}

/// Ports of each address that are nobody's own.
fn overflow_ports(ports: &PortsConfig) -> u32 {
    match ports {
        PortsConfig::Deterministic { overflow: Some(overflow), .. } => u32::from(overflow.ports.value),
        _ => 0,
    }
}

/// Subscribers of an instance, of both versions.
fn subscribers(nat: &NatConfig) -> u64 {
    let four: u64 = nat.subscribers.iter().map(|prefix| prefix.range().count()).sum();
    let six = nat.nat64.iter().flat_map(|nat64| {
        nat64.subscribers.iter().map(|prefix| {
            let bits = nat64.subscriber_len.saturating_sub(prefix.len());
            1_u64.checked_shl(u32::from(bits)).unwrap_or(u64::MAX)
        })
    });
    six.fold(four, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example in RFC 7422 §2: 14 inside addresses and a dynamic share of two on one outside address, and 16
    /// without.
    #[test]
    fn sixteen_subscribers_share_an_address_as_in_the_rfcs_example() {
        let plan = Deterministic { subscribers: 16, addresses: 1, ports: 65_536 - 1_024 };
        assert_eq!(plan.ports_most(), 4_032);
        assert_eq!(plan.addresses_needed(4_032), Some(1));
        assert_eq!(plan.addresses_needed(4_033), Some(2));
        let plan = Deterministic { subscribers: 14, addresses: 1, ports: 65_536 - 1_024 - 2 * 4_032 };
        assert_eq!(plan.ports_most(), 4_032);
    }

    #[test]
    fn the_most_ports_always_fit_and_one_more_never_does() {
        for (subscribers, addresses) in [(1, 1), (7, 2), (256, 16), (4_194_304, 65_536), (1_000, 999)] {
            let plan = Deterministic { subscribers, addresses, ports: 64_512 };
            let most = plan.ports_most();
            assert!(plan.addresses_needed(most).unwrap() <= addresses);
            if u32::from(most) < plan.ports {
                assert!(plan.addresses_needed(most + 1).is_none_or(|needed| needed > addresses));
            }
        }
    }
}
