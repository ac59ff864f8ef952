//! What a policy says, read in the most obvious way.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use carrack_base::{Prefix4, Prefix6, Proto};
use carrack_nat::Inside;
use carrack_nat::nat64::Nat64Prefix;
use carrack_nat::policy::{Assignment, Instance, Overflow, Pool, StaticRule};
use carrack_nat::row::{Endpoint, HostEndpoint};
use carrack_wire::tcp::flag;

use super::Local;

pub(super) fn opens_out(policy: &Instance, proto: Proto, bits: u8) -> bool {
    let is_syn = bits & (flag::SYN | flag::ACK | flag::RST) == flag::SYN;
    match proto {
        Proto::Tcp => is_syn || (policy.tcp_loose && bits & flag::RST == 0),
        Proto::Udp | Proto::Icmp | Proto::Other => true,
    }
}

/// For ICMP, bits of 0 stand for a query, anything else for an answer.
pub(super) fn opens_in(proto: Proto, bits: u8) -> bool {
    match proto {
        Proto::Tcp => bits & (flag::SYN | flag::ACK | flag::RST) == flag::SYN,
        Proto::Icmp => bits == 0,
        Proto::Udp | Proto::Other => true,
    }
}

fn within(prefixes: &[Prefix4], ip: u32) -> bool {
    prefixes.iter().any(|prefix| prefix.contains(ip))
}

/// RFC 6888 REQ-6. There is no untranslated way from IPv6 to IPv4.
pub(super) fn is_exempt(policy: &Instance, inside: IpAddr, remote: u32) -> bool {
    inside.is_ipv4() && within(&policy.exempt, remote)
}

pub(super) fn is_denied(policy: &Instance, inside: IpAddr) -> bool {
    match inside {
        IpAddr::V4(ip) => !within(&policy.subscribers, ip.into()),
        IpAddr::V6(ip) => {
            let served = |nat64: &carrack_nat::nat64::Nat64| {
                nat64.subscribers.iter().any(|prefix| prefix.contains(ip.into()))
            };
            !policy.nat64.as_ref().is_some_and(served)
        }
    }
}

/// The subscriber that a host belongs to.
pub(super) fn subscriber_of(policy: &Instance, host: IpAddr) -> IpAddr {
    match (host, &policy.nat64) {
        (IpAddr::V6(ip), Some(nat64)) => {
            Ipv6Addr::from(Prefix6::of(ip.into(), nat64.subscriber_len).address()).into()
        }
        _ => host,
    }
}

fn prefixes(policy: &Instance) -> &[Nat64Prefix] {
    policy.nat64.as_ref().map_or(&[], |nat64| &nat64.prefixes)
}

/// An IPv4 endpoint as an inside host sees it that uses this prefix (RFC 6052 §2.2); 0 stands for an IPv4 host.
#[must_use]
pub fn seen_as(policy: &Instance, via: u16, remote: Endpoint) -> HostEndpoint {
    match prefixes(policy).iter().find(|entry| entry.via == via) {
        Some(entry) => {
            HostEndpoint { ip: Ipv6Addr::from(entry.prefix.embed(remote.ip)).into(), port: remote.port }
        }
        None => remote.into(),
    }
}

/// The other way round: the prefix and the IPv4 endpoint.
#[must_use]
pub fn stands_for(policy: &Instance, seen: HostEndpoint) -> Option<(u16, Endpoint)> {
    let ip = match seen.ip {
        IpAddr::V4(ip) => return Some((0, Endpoint { ip: ip.into(), port: seen.port })),
        IpAddr::V6(ip) => u128::from(ip),
    };
    let entry = prefixes(policy).iter().find(|entry| entry.prefix.contains(ip))?;
    let remote = Endpoint { ip: entry.prefix.extract_unchecked(ip), port: seen.port };
    (entry.prefix.embed(remote.ip) == ip).then_some((entry.via, remote))
}

/// The outside address of an inside address that has its own.
pub(super) fn one_to_one(policy: &Instance, inside: IpAddr) -> Option<u32> {
    let IpAddr::V4(ip) = inside else { return None };
    let ip = u32::from(ip);
    policy.statics.iter().find_map(|rule| match rule {
        StaticRule::OneToOne { inside, outside } if inside.contains(ip) => {
            Some(outside.first + (ip - inside.first))
        }
        _ => None,
    })
}

/// The inside address behind such an outside address.
pub(super) fn one_to_one_back(policy: &Instance, ip: u32) -> Option<u32> {
    policy.statics.iter().find_map(|rule| match rule {
        StaticRule::OneToOne { inside, outside } if outside.contains(ip) => {
            Some(inside.first + (ip - outside.first))
        }
        _ => None,
    })
}

/// Every forwarded endpoint: (protocol, outside, inside). An IPv6 host sees its peers by the first prefix.
pub(super) fn forwards(policy: &Instance) -> Vec<(Proto, Endpoint, Local)> {
    let mut all = vec![];
    for rule in &policy.statics {
        let StaticRule::Forward { proto, outside, outside_port, count, inside, inside_port } = *rule else {
            continue;
        };
        let via = match inside {
            Inside::V4(_) => Some(0),
            Inside::V6(_) => prefixes(policy).first().map(|entry| entry.via),
        };
        let Some(via) = via else { continue };
        for step in 0..count {
            let at = Endpoint { ip: outside, port: outside_port + step };
            all.push((proto, at, Local { ip: inside.into(), port: inside_port + step, via }));
        }
    }
    all
}

/// Where an outside endpoint is forwarded to.
pub(super) fn forward_at(policy: &Instance, proto: Proto, outside: Endpoint) -> Option<Local> {
    let mut all = forwards(policy).into_iter();
    all.find(|(p, at, _)| *p == proto && *at == outside).map(|(_, _, inside)| inside)
}

pub(super) fn in_pool(policy: &Instance, outside: Endpoint) -> bool {
    policy.pools.iter().any(|pool| {
        pool.ranges.iter().any(|range| range.contains(outside.ip))
            && (pool.port_first..=pool.port_last).contains(&outside.port)
    })
}

/// RFC 7422: the address and the ports of a subscriber, counted out one by one.
pub(super) fn share(policy: &Instance, subscriber: IpAddr) -> Option<(u32, u16, u16)> {
    let Assignment::Deterministic { ports_per_subscriber, .. } = policy.assignment else { return None };
    let pool = policy.pools.first()?;
    let shares = policy.pools.iter().flat_map(|p| &p.ranges).flat_map(|r| r.first..=r.last).flat_map(|ip| {
        let own =
            pool.port_last - pool.port_first + 1 - overflow(policy).map_or(0, |overflow| overflow.ports);
        let fits = own / ports_per_subscriber;
        (0..fits).map(move |n| (ip, pool.port_first + n * ports_per_subscriber))
    });
    let mut pairs = subscribers(policy).into_iter().zip(shares);
    pairs
        .find(|(ip, _)| *ip == subscriber)
        .map(|(_, (ip, first))| (ip, first, first + ports_per_subscriber - 1))
}

/// All subscribers in order: IPv4, then IPv6.
fn subscribers(policy: &Instance) -> Vec<IpAddr> {
    let mut all = vec![];
    for prefix in &policy.subscribers {
        all.extend((prefix.address()..=prefix.last()).map(|ip| IpAddr::from(Ipv4Addr::from(ip))));
    }
    if let Some(nat64) = &policy.nat64 {
        for prefix in &nat64.subscribers {
            let step = 1u128 << (128 - nat64.subscriber_len);
            let count = 1u128 << nat64.subscriber_len.saturating_sub(prefix.len());
            all.extend((0..count).map(|n| IpAddr::from(Ipv6Addr::from(prefix.address() + n * step))));
        }
    }
    all
}

/// RFC 7422 §2, step 4: what deterministic subscribers get blocks of once their own ports are used up.
fn overflow(policy: &Instance) -> Option<Overflow> {
    match policy.assignment {
        Assignment::Deterministic { overflow, .. } => overflow,
        Assignment::Blocks { .. } | Assignment::Arbitrary => None,
    }
}

fn pool_of(policy: &Instance, ip: u32) -> Option<&Pool> {
    policy.pools.iter().find(|pool| pool.ranges.iter().any(|range| range.contains(ip)))
}

/// Is it one of the last ports of its address, which are nobody's own?
pub(super) fn in_overflow(policy: &Instance, outside: Endpoint) -> bool {
    overflow(policy).zip(pool_of(policy, outside.ip)).is_some_and(|(overflow, pool)| {
        (pool.port_first..=pool.port_last).contains(&outside.port)
            && outside.port > pool.port_last - overflow.ports
    })
}

/// The block that a port is in, by address and number.
pub(super) fn block(policy: &Instance, outside: Endpoint) -> Option<(u32, u16)> {
    let pool = pool_of(policy, outside.ip)?;
    let (first, size) = match policy.assignment {
        Assignment::Blocks { size, .. } => (pool.port_first, size),
        _ => {
            let overflow = overflow(policy)?;
            (pool.port_last - overflow.ports + 1, overflow.blocks.size)
        }
    };
    Some((outside.ip, outside.port.checked_sub(first)? / size))
}

/// The ports of the blocks that a subscriber may have, or 0.
pub(super) fn ports_of_blocks(policy: &Instance) -> usize {
    let blocks = policy.assignment.blocks();
    blocks.map_or(0, |blocks| usize::from(blocks.size) * usize::from(blocks.per_subscriber_max))
}
