//! NAT64: prefixes that can hold IPv4 addresses, and no two answers to who translates a packet.

use std::net::IpAddr;

use carrack_base::{Prefix, Prefix6};
use carrack_nat::nat64::NatPrefix;

use crate::model::{Config, Nat64Config, NatConfig};
use crate::read::Notes;
use crate::source::At;

pub(super) fn check(notes: &Notes, config: &Config) {
    let usable = |mut nat64: Nat64Config| {
        // What cannot be a prefix is reported once: what else it clashes with is of no interest.
        nat64.prefixes.retain(|prefix| usable(notes, prefix));
        nat64
    };
    let all: Vec<(&NatConfig, Nat64Config)> =
        config.nat.iter().filter_map(|nat| Some((nat, usable(nat.nat64.clone()?)))).collect();
    for (at, (nat, nat64)) in all.iter().enumerate() {
        disjoint(notes, "prefixes", &nat64.prefixes);
        disjoint(notes, "subscribers", &nat64.subscribers);
        subscribers(notes, nat64);
        own(notes, config, (nat, nat64));
        forwards(notes, (nat, nat64));
        routes(notes, config, (nat, nat64));
        for (other, theirs) in all.get(..at).unwrap_or(&[]) {
            if other.inside_vrf == nat.inside_vrf {
                against(notes, (nat, nat64), (other, theirs));
            }
        }
    }
}

/// RFC 6052 §2.1 and §2.2: six lengths, octet `u` is zero, the well-known prefix is whole.
fn usable(notes: &Notes, prefix: &At<Prefix6>) -> bool {
    let prepared = NatPrefix::new(prefix.value);
    if let Err(why) = &prepared {
        notes.error(prefix.span, format!("{prefix} cannot stand for the IPv4 Internet: {why}"));
    }
    prepared.is_ok()
}

fn disjoint(notes: &Notes, what: &str, prefixes: &[At<Prefix6>]) {
    for (at, prefix) in prefixes.iter().enumerate() {
        let before = prefixes.get(..at).unwrap_or(&[]);
        if let Some(other) = before.iter().find(|other| other.overlaps(prefix.value)) {
            let message = format!("{prefix} overlaps {other} of the same `{what}`; remove one of the two");
            notes.error(prefix.span, message);
        }
    }
}

/// A list of subscribers is made of whole subscribers, none of which is within a prefix that stands for IPv4.
fn subscribers(notes: &Notes, nat64: &Nat64Config) {
    for prefix in &nat64.subscribers {
        // 0 stands for a length that could not be read, and has its own error.
        if nat64.subscriber_len > 0 && prefix.len() > nat64.subscriber_len {
            let message = format!(
                "{prefix} is less than one subscriber of {} bits; write a shorter prefix, or raise `subscriber_prefix_length`",
                nat64.subscriber_len
            );
            notes.error(prefix.span, message);
        }
        let within = |other: &&At<Prefix6>| other.len() <= prefix.len() && other.contains(prefix.address());
        if let Some(other) = nat64.prefixes.iter().find(within) {
            let message = format!(
                "subscribers {prefix} are within the NAT64 prefix {other}; packets from there are dropped (RFC 6146 §3.5); choose another prefix"
            );
            notes.error(prefix.span, message);
        }
    }
}

/// A prefix that stands for IPv4 has no host of this side in it: not the router, not a subnet of its.
fn own(notes: &Notes, config: &Config, (nat, nat64): (&NatConfig, &Nat64Config)) {
    let beside = config.interfaces.iter().filter(|interface| interface.vrf == nat.inside_vrf);
    for (interface, own) in beside.flat_map(|on| on.addresses6.iter().map(move |own| (on, own))) {
        let subnet = own.subnet;
        let is_in = |prefix: &&At<Prefix6>| {
            prefix.contains(own.address)
                || (prefix.len() <= subnet.len() && prefix.contains(subnet.address()))
        };
        for prefix in nat64.prefixes.iter().filter(is_in) {
            let message = format!(
                "NAT64 prefix {prefix} holds {own}, which is interface `{}` of vrf `{}` (line {}); packets from there are \
                 dropped (RFC 6146 §3.5); choose another prefix",
                interface.name,
                nat.inside_vrf,
                config.source.line(own.span)
            );
            notes.error(prefix.span, message);
        }
    }
}

/// Nor does a forward lead into one.
fn forwards(notes: &Notes, (nat, nat64): (&NatConfig, &Nat64Config)) {
    for rule in &nat.forwards {
        let IpAddr::V6(inside) = rule.inside.address else { continue };
        if let Some(prefix) = nat64.prefixes.iter().find(|prefix| prefix.contains(inside.into())) {
            let message = format!(
                "{inside} is within the NAT64 prefix {prefix}, where no host of the inside can be; name the host's own address"
            );
            notes.error(rule.inside.span, message);
        }
    }
}

/// Nor a route: what comes from an inside interface to such a prefix is translated before it is routed (RFC 6052 §3.2).
fn routes(notes: &Notes, config: &Config, (nat, nat64): (&NatConfig, &Nat64Config)) {
    for route in config.routes.iter().filter(|route| route.vrf == nat.inside_vrf) {
        let Prefix::V6(to) = route.prefix.value else { continue };
        let holds = |prefix: &&At<Prefix6>| prefix.len() <= to.len() && prefix.contains(to.address());
        if let Some(prefix) = nat64.prefixes.iter().find(holds) {
            let message = format!(
                "{to} is within the NAT64 prefix {prefix} of `{}` (line {}), whose packets are translated whatever the routes \
                 say; remove the route, or choose another prefix",
                nat.name,
                config.source.line(prefix.span)
            );
            notes.error(route.prefix.span, message);
        }
    }
}

/// Two instances may have the same prefix, for different subscribers; else their prefixes are apart.
fn against(
    notes: &Notes,
    (nat, mine): (&NatConfig, &Nat64Config),
    (other, theirs): (&NatConfig, &Nat64Config),
) {
    for prefix in &mine.prefixes {
        let Some(shared) = theirs.prefixes.iter().find(|shared| shared.overlaps(prefix.value)) else {
            continue;
        };
        if shared.value != prefix.value {
            let message = format!(
                "{prefix} overlaps {shared} of `{}` in vrf `{}`; give both the same prefix and different `subscribers`, or prefixes that are apart",
                other.name, nat.inside_vrf
            );
            notes.error(prefix.span, message);
            continue;
        }
        let common = |one: &&At<Prefix6>| theirs.subscribers.iter().any(|two| two.overlaps(one.value));
        if let Some(both) = mine.subscribers.iter().find(common) {
            let message = format!(
                "subscribers {both} of `{}` are served by `{}` too, behind the same prefix {prefix}; list disjoint `subscribers` in the two",
                nat.name, other.name
            );
            notes.error(both.span, message);
        }
    }
}
