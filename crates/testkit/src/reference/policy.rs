//! What a policy says, read in the most obvious way.

use carrack_base::{Prefix4, Proto};
use carrack_nat::Inside;
use carrack_nat::policy::{Assignment, Instance, StaticRule};
use carrack_nat::row::Endpoint;
use carrack_wire::tcp::flag;

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

pub(super) fn is_exempt(policy: &Instance, remote: u32) -> bool {
    within(&policy.exempt, remote)
}

pub(super) fn is_denied(policy: &Instance, inside: u32) -> bool {
    !within(&policy.subscribers, inside)
}

/// The outside address of an inside address that has its own.
pub(super) fn one_to_one(policy: &Instance, ip: u32) -> Option<u32> {
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

/// Every forwarded endpoint: (protocol, outside, inside).
pub(super) fn forwards(policy: &Instance) -> Vec<(Proto, Endpoint, Endpoint)> {
    let mut all = vec![];
    for rule in &policy.statics {
        let StaticRule::Forward {
            proto,
            outside,
            outside_port,
            count,
            inside: Inside::V4(inside),
            inside_port,
        } = *rule
        else {
            continue;
        };
        for step in 0..count {
            let at = Endpoint { ip: outside, port: outside_port + step };
            all.push((proto, at, Endpoint { ip: inside, port: inside_port + step }));
        }
    }
    all
}

/// Where an outside endpoint is forwarded to.
pub(super) fn forward_at(policy: &Instance, proto: Proto, outside: Endpoint) -> Option<Endpoint> {
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
pub(super) fn share(policy: &Instance, host: u32) -> Option<(u32, u16, u16)> {
    let Assignment::Deterministic { ports_per_subscriber, .. } = policy.assignment else { return None };
    let hosts = policy.subscribers.iter().flat_map(|prefix| prefix.address()..=prefix.last());
    let pool = policy.pools.first()?;
    let shares = policy.pools.iter().flat_map(|p| &p.ranges).flat_map(|r| r.first..=r.last).flat_map(|ip| {
        let fits = (pool.port_last - pool.port_first + 1) / ports_per_subscriber;
        (0..fits).map(move |n| (ip, pool.port_first + n * ports_per_subscriber))
    });
    let mut pairs = hosts.zip(shares);
    pairs.find(|(ip, _)| *ip == host).map(|(_, (ip, first))| (ip, first, first + ports_per_subscriber - 1))
}

/// The block that a port is in, by address and number.
pub(super) fn block(policy: &Instance, outside: Endpoint) -> Option<(u32, u16)> {
    let Assignment::Blocks { size, .. } = policy.assignment else { return None };
    let pool = policy.pools.iter().find(|p| p.ranges.iter().any(|range| range.contains(outside.ip)))?;
    Some((outside.ip, outside.port.checked_sub(pool.port_first)? / size))
}
