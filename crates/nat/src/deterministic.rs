//! RFC 7422: outside address and ports as a function of the inside address, and the inverse.

use carrack_base::{Prefix4, Prefix6, Range4};

use crate::flow::Inside;
use crate::policy::{Assignment, Instance};

/// The function of one instance.
///
/// Subscribers are numbered through the instance's prefixes in order, outside addresses through its pools in order.
/// Subscriber `i` has range `i % k` of address `i / k`, where `k` is how many ranges fit an address's port range
/// (RFC 7422 §2: reserved ports are those outside the pool's port range; those of the overflow range at its end are in
/// no subscriber's).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deterministic {
    subscribers: Vec<Served>,
    addresses: Vec<Range4>,
    port_first: u16,
    ports: u16,
    per_address: u32,
}

/// Subscribers of one prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Served {
    V4(Prefix4),
    /// Each subscriber has the addresses that share this many bits.
    V6(Prefix6, u8),
}

impl Served {
    fn count(self) -> u64 {
        match self {
            Self::V4(prefix) => prefix.range().count(),
            Self::V6(prefix, len) => 1_u64.checked_shl(u32::from(len - prefix.len())).unwrap_or(u64::MAX),
        }
    }

    /// Which of them it is.
    fn number_of(self, inside: Inside) -> Option<u64> {
        match (self, inside) {
            (Self::V4(prefix), Inside::V4(ip)) => {
                prefix.contains(ip).then(|| u64::from(ip - prefix.address()))
            }
            (Self::V6(prefix, len), Inside::V6(ip)) => {
                let number = (ip - prefix.address().min(ip)) >> (128 - u32::from(len));
                // Beyond what any pool has ports for all numbers are the same.
                prefix.contains(ip).then(|| u64::try_from(number).unwrap_or(u64::MAX / 2))
            }
            _ => None,
        }
    }

    /// That one.
    fn nth(self, n: u64) -> Inside {
        match self {
            // Invariant: n is below the prefix's count, which is at most 2^32.
            Self::V4(prefix) => Inside::V4(prefix.address() + n as u32),
            Self::V6(prefix, len) => Inside::V6(prefix.address() + (u128::from(n) << (128 - u32::from(len)))),
        }
    }
}

/// What a subscriber owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// Outside address, host byte order.
    pub outside: u32,
    /// Its number among all pool addresses.
    pub address: u16,
    /// First port.
    pub first: u16,
    /// Last port.
    pub last: u16,
}

impl Deterministic {
    /// The function of an instance; `None` when it is not deterministic or has no pool. All pools of the instance
    /// have the port range of the first (the config crate sees to it).
    #[must_use]
    pub fn of(instance: &Instance) -> Option<Self> {
        let Assignment::Deterministic { ports_per_subscriber: ports, .. } = instance.assignment else {
            return None;
        };
        let pool = instance.pools.first()?;
        let last = instance.assignment.last_of_shares(pool);
        if ports == 0 || last < pool.port_first {
            return None;
        }
        let per_address = (u32::from(last - pool.port_first) + 1) / u32::from(ports);
        (per_address > 0).then(|| Self {
            subscribers: served(instance),
            addresses: instance.pools.iter().flat_map(|pool| pool.ranges.iter().copied()).collect(),
            port_first: pool.port_first,
            ports,
            per_address,
        })
    }

    /// What this subscriber owns; `None` when it is none or the pool is too small for it.
    #[must_use]
    pub fn share(&self, inside: Inside) -> Option<Share> {
        let mut before: u64 = 0;
        for served in &self.subscribers {
            if let Some(number) = served.number_of(inside) {
                return self.nth_share(before.saturating_add(number));
            }
            before = before.saturating_add(served.count());
        }
        None
    }

    fn nth_share(&self, number: u64) -> Option<Share> {
        let per_address = u64::from(self.per_address);
        let address = number / per_address;
        let outside = nth(self.addresses.iter().copied(), address)?;
        // Invariant: the remainder is below `per_address`, and that many ranges fit the port range.
        let first = u32::from(self.port_first) + (number % per_address) as u32 * u32::from(self.ports);
        let first = first as u16;
        Some(Share { outside, address: u16::try_from(address).ok()?, first, last: first + (self.ports - 1) })
    }

    /// Whose this outside address and port is.
    #[must_use]
    pub fn inverse(&self, outside: u32, port: u16) -> Option<Inside> {
        let range = u32::from(port.checked_sub(self.port_first)?) / u32::from(self.ports);
        if range >= self.per_address {
            return None;
        }
        let mut before = 0;
        let address = self.addresses.iter().find_map(|addresses| {
            let found = addresses.contains(outside).then(|| before + u64::from(outside - addresses.first));
            before += addresses.count();
            found
        })?;
        let mut number = address * u64::from(self.per_address) + u64::from(range);
        for served in &self.subscribers {
            if number < served.count() {
                return Some(served.nth(number));
            }
            number -= served.count();
        }
        None
    }
}

/// Subscribers in order: IPv4, then IPv6.
fn served(instance: &Instance) -> Vec<Served> {
    let four = instance.subscribers.iter().map(|prefix| Served::V4(*prefix));
    let six = instance.nat64.iter().flat_map(|nat64| {
        nat64.subscribers.iter().map(|prefix| Served::V6(*prefix, nat64.subscriber_len.max(prefix.len())))
    });
    four.chain(six).collect()
}

/// The `n`th address of ranges laid end to end.
fn nth(ranges: impl Iterator<Item = Range4>, mut n: u64) -> Option<u32> {
    for range in ranges {
        if n < range.count() {
            // Invariant: n is below the range's count, which is at most 2^32.
            return Some(range.first + n as u32);
        }
        n -= range.count();
    }
    None
}
