//! NAT instances: against routing instances and interfaces, against each other, and within themselves.

mod nat64;
pub(super) mod outside;
mod ports;

use std::net::IpAddr;

use carrack_base::Prefix4;
use carrack_pipeline::snapshot::Side;

use super::network::vrf_exists;
use crate::model::{Config, NatConfig, PortsConfig};
use crate::read::Notes;
use crate::source::At;

pub(super) fn check(notes: &Notes, config: &Config, complete: bool) {
    for nat in &config.nat {
        let inside_known = vrf_exists(notes, config, &nat.inside_vrf);
        let outside_known = vrf_exists(notes, config, &nat.outside_vrf);
        if complete {
            if inside_known {
                side(notes, config, nat, (Side::Inside, "inside"), &nat.inside_vrf);
            }
            if outside_known {
                side(notes, config, nat, (Side::Outside, "outside"), &nat.outside_vrf);
            }
            something_to_do(notes, nat);
            inside_of_statics(notes, nat);
        }
        one_outside_each(notes, nat);
        ports::check(notes, nat);
        hold(notes, nat);
    }
    subscribers(notes, config);
    nat64::check(notes, config);
    outside::check(notes, config);
    ports::forwards(notes, config, complete);
}

/// Packets enter a NAT at an inside interface of its inside VRF and leave it at an outside one of its outside VRF.
fn side(notes: &Notes, config: &Config, nat: &NatConfig, (side, word): (Side, &str), vrf: &At<String>) {
    if !config.interfaces.iter().any(|interface| interface.side == side && interface.vrf == *vrf) {
        let message = format!(
            "NAT instance `{}` has no {word} interface in vrf `{vrf}`; set `side = \"{word}\"` on one there",
            nat.name
        );
        notes.error(nat.name.span, message);
    }
}

fn something_to_do(notes: &Notes, nat: &NatConfig) {
    if nat.pools.is_empty() && nat.one_to_one.is_empty() {
        let message = format!(
            "NAT instance `{}` has nothing to translate to; add a [[nat.pool]] or a [[nat.one_to_one]]",
            nat.name
        );
        notes.error(nat.name.span, message);
    }
}

/// Static mappings lead to addresses that the instance serves; others would be refused at the door.
fn inside_of_statics(notes: &Notes, nat: &NatConfig) {
    let served = |address: IpAddr| match address {
        IpAddr::V4(ip) => nat.subscribers.iter().any(|prefix| prefix.contains(ip.into())),
        IpAddr::V6(ip) => {
            let mut subscribers = nat.nat64.iter().flat_map(|nat64| &nat64.subscribers);
            subscribers.any(|prefix| prefix.contains(ip.into()))
        }
    };
    let refuse = |span, what: String| {
        let message = format!("{what} is not among the `subscribers` of `{}`; add it there", nat.name);
        notes.error(span, message);
    };
    for rule in &nat.one_to_one {
        // Prefixes may cover the range piece by piece, so the pieces are walked through.
        if let Some(outside) = first_uncovered(&nat.subscribers, rule.inside.first, rule.inside.last) {
            refuse(rule.inside.span, super::network::ip(outside).to_string());
        }
    }
    for rule in nat.forwards.iter().filter(|rule| !served(rule.inside.address)) {
        refuse(rule.inside.span, rule.inside.address.to_string());
    }
}

/// An inside address has one outside address of its own.
fn one_outside_each(notes: &Notes, nat: &NatConfig) {
    for (i, rule) in nat.one_to_one.iter().enumerate() {
        if let Some(other) =
            nat.one_to_one.iter().take(i).find(|other| other.inside.overlaps(rule.inside.value))
        {
            let message = format!(
                "{} overlaps {}, which has outside addresses {}; an inside address has one of its own",
                rule.inside, other.inside, other.outside
            );
            notes.error(rule.inside.span, message);
        }
    }
}

/// The first address of a range that is in none of the prefixes.
fn first_uncovered(prefixes: &[At<Prefix4>], first: u32, last: u32) -> Option<u32> {
    let mut at = first;
    loop {
        let Some(end) =
            prefixes.iter().filter(|prefix| prefix.contains(at)).map(|prefix| prefix.last()).max()
        else {
            return Some(at);
        };
        if end >= last {
            return None;
        }
        at = end + 1;
    }
}

/// Subscribers of one routing instance belong to one NAT instance.
fn subscribers(notes: &Notes, config: &Config) {
    let mut all: Vec<(&NatConfig, &At<Prefix4>)> =
        config.nat.iter().flat_map(|nat| nat.subscribers.iter().map(move |prefix| (nat, prefix))).collect();
    all.sort_by_key(|(nat, prefix)| (nat.inside_vrf.value.as_str(), prefix.value));
    let mut open: Option<(&NatConfig, &At<Prefix4>)> = None;
    for (nat, prefix) in all {
        if let Some((other, wide)) = open
            && other.inside_vrf == nat.inside_vrf
            && wide.range().overlaps(prefix.range())
        {
            let message = if std::ptr::eq(nat, other) {
                format!("{prefix} is covered by {wide} of the same list; remove one of the two")
            } else {
                format!(
                    "subscribers {prefix} of `{}` overlap {wide} of `{}` in vrf `{}`; list disjoint `subscribers`, or put the instances into different inside vrfs",
                    nat.name, other.name, nat.inside_vrf
                )
            };
            notes.error(prefix.span, message);
            continue;
        }
        open = Some((nat, prefix));
    }
}

/// Ports that tell a subscriber apart rest before another one gets them; deterministic ones never change hands.
fn hold(notes: &Notes, nat: &NatConfig) {
    let deterministic = matches!(nat.ports, PortsConfig::Deterministic { overflow: None, .. });
    if !deterministic && nat.port_hold_s.value < 120 {
        let message = format!(
            "`port_hold` of {} s is below the 120 s of RFC 6888 REQ-8; a subscriber may get packets meant for the last owner of a port",
            nat.port_hold_s
        );
        notes.warning(nat.port_hold_s.span, message);
    }
}
