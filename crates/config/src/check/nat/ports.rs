//! Ports: blocks that fit their range, deterministic ranges that fit the pool, forwardings that lead somewhere.

use std::collections::BTreeMap;

use carrack_nat::policy::ADDRESSES_MAX;

use crate::check::network::ip;
use crate::model::{Config, ForwardConfig, NatConfig, OverflowConfig, PoolConfig, PortsConfig};
use crate::plan;
use crate::read::Notes;
use crate::source::At;
use crate::value::PortRange;

pub(super) fn check(notes: &Notes, nat: &NatConfig) {
    match &nat.ports {
        PortsConfig::Blocks { size, .. } if size.value.is_power_of_two() => {
            nat.pools.iter().for_each(|pool| blocks(notes, pool, size));
        }
        PortsConfig::Blocks { .. } | PortsConfig::Arbitrary => {}
        PortsConfig::Deterministic { ports_per_subscriber, overflow: dynamic } => {
            if dynamic.as_ref().is_some_and(|dynamic| !overflow(notes, nat, dynamic)) {
                return;
            }
            deterministic(notes, nat, ports_per_subscriber.as_ref());
        }
    }
}

fn blocks(notes: &Notes, pool: &PoolConfig, size: &At<u16>) {
    let (range, size) = (pool.ports.value, u32::from(size.value));
    let wasted = range.count() % size;
    if range.count() < size {
        let message =
            format!("ports {range} hold no whole block of {size}; widen them or lower `block_size`");
        notes.error(pool.ports.span, message);
    } else if wasted > 0 {
        let usable = PortRange { first: range.first, last: range.last - wasted as u16 };
        let message = format!(
            "{wasted} of the {} ports of each address of pool `{}` are wasted: blocks of {size} do not divide {range}; \
             write `ports = \"{usable}\"` to say so, or choose another `block_size`",
            range.count(),
            pool.name
        );
        notes.warning(pool.ports.span, message);
    }
}

/// RFC 7422 §2, step 4: what is left for dynamic assignment is whole blocks, and leaves ports to the subscribers. False when not.
fn overflow(notes: &Notes, nat: &NatConfig, dynamic: &OverflowConfig) -> bool {
    let (ports, size) = (dynamic.ports.value, dynamic.size.value);
    if size.is_power_of_two() && ports % size != 0 {
        let (down, up) = (ports / size * size, u32::from(ports).next_multiple_of(u32::from(size)));
        let near = if down == 0 { up.to_string() } else { format!("{down} or {up}") };
        let message =
            format!("{ports} ports are no whole blocks of {size}; write {near}, or another `block_size`");
        notes.error(dynamic.ports.span, message);
        return false;
    }
    if let Some(pool) = nat.pools.iter().find(|pool| pool.ports.value.count() <= u32::from(ports)) {
        let message = format!(
            "{ports} of the {} ports of pool `{}` leave no port to be a subscriber's own; lower it, or use mode = \"blocks\"",
            pool.ports.value.count(),
            pool.name
        );
        notes.error(dynamic.ports.span, message);
        return false;
    }
    true
}

/// RFC 7422 §2: every subscriber has a range, so the pool must have room for all of them.
fn deterministic(notes: &Notes, nat: &NatConfig, wanted: Option<&At<u16>>) {
    let Some(first) = nat.pools.first() else { return };
    let mut six = nat.nat64.iter().flat_map(|nat64| &nat64.subscribers);
    if nat.subscribers.iter().any(|prefix| prefix.is_default()) || six.any(|prefix| prefix.is_default()) {
        let message = format!(
            "deterministic `{}` serves everybody; list its `subscribers`, so that each has ports of its own",
            nat.name
        );
        notes.error(nat.name.span, message);
        return;
    }
    for pool in nat.pools.iter().filter(|pool| pool.ports != first.ports) {
        let message = format!(
            "pool `{}` has ports {}, `{}` has {}; all pools of a deterministic instance have the same ports",
            pool.name, pool.ports, first.name, first.ports
        );
        notes.error(pool.ports.span, message);
    }
    if first.ports.first < 1_024 {
        let message = "system ports are given to subscribers; RFC 7422 §2 says to leave out those below 1024";
        notes.warning(first.ports.span, message);
    }
    let Some(plan) = plan::Deterministic::of(nat) else { return };
    if plan.addresses == 0 || plan.subscribers == 0 {
        return;
    }
    match wanted {
        Some(ports) => room_for(notes, plan, ports, first),
        None if plan.ports_most() == 0 => {
            notes.error(first.name.span, less_than_a_port(nat, plan));
        }
        None => {}
    }
}

/// More than so many subscribers of an instance are never meant: it has at most [`ADDRESSES_MAX`] addresses of 65,535 ports.
const SUBSCRIBERS_MEANT: u64 = ADDRESSES_MAX as u64 * 65_535;

fn less_than_a_port(nat: &NatConfig, plan: plan::Deterministic) -> String {
    let six = nat.nat64.as_ref().filter(|_| plan.subscribers > SUBSCRIBERS_MEANT);
    if let Some(nat64) = six {
        return format!(
            "deterministic `{}` has a range of ports for every IPv6 prefix of {} bits among its `subscribers`, which are more than \
             any pool has ports; set `subscriber_prefix_length` in [nat.nat64] to what one subscriber has, like 56, or list \
             fewer `subscribers`",
            nat.name, nat64.subscriber_len
        );
    }
    let needed = plan.addresses_needed(1).unwrap_or(plan.subscribers);
    format!(
        "{} subscribers on {} outside addresses is less than a port each; list at least {needed} addresses, or fewer `subscribers`",
        plan.subscribers, plan.addresses
    )
}

fn room_for(notes: &Notes, plan: plan::Deterministic, ports: &At<u16>, pool: &PoolConfig) {
    let Some(needed) = plan.addresses_needed(ports.value) else {
        let message =
            format!("{ports} ports for each subscriber, but an address has only {}; lower it", plan.ports);
        notes.error(ports.span, message);
        return;
    };
    if needed > plan.addresses {
        let message = format!(
            "the pool is too small: {} subscribers with {ports} ports each need {needed} outside addresses, and `{}` has {}; add addresses, or lower it to {}",
            plan.subscribers,
            pool.name,
            plan.addresses,
            plan.ports_most()
        );
        notes.error(ports.span, message);
    }
}

/// Forwardings of all instances: the outside address is ours to forward, and no port is forwarded twice.
pub(super) fn forwards(notes: &Notes, config: &Config, complete: bool) {
    /// Routing instance, address, protocol.
    type Place<'a> = (&'a str, u32, usize);
    // By the first port; none overlaps another.
    let mut seen: BTreeMap<Place<'_>, BTreeMap<u16, (PortRange, &ForwardConfig)>> = BTreeMap::new();
    for nat in &config.nat {
        for rule in &nat.forwards {
            address(notes, config, nat, rule, complete);
            let ports = outside_ports(rule);
            let key = (nat.outside_vrf.value.as_str(), rule.outside.address, rule.proto.index());
            let others = seen.entry(key).or_default();
            let before = others.range(..=ports.last).next_back();
            if let Some((_, (_, other))) = before.filter(|(_, (other, _))| other.overlaps(ports)) {
                // The very same endpoint in one instance is reported where the table is read.
                if other.outside != rule.outside {
                    let message = format!(
                        "{} ports {ports} of {} overlap those of the forwarding of {}; forward each port once",
                        rule.proto,
                        ip(rule.outside.address),
                        other.outside
                    );
                    notes.error(rule.outside.span, message);
                }
                continue;
            }
            others.insert(ports.first, (ports, rule));
        }
    }
}

fn outside_ports(rule: &ForwardConfig) -> PortRange {
    PortRange { first: rule.outside.port, last: rule.outside.port.saturating_add(rule.count.value - 1) }
}

/// The outside address is in a pool of the instance, or the router's own in the outside VRF.
fn address(notes: &Notes, config: &Config, nat: &NatConfig, rule: &ForwardConfig, complete: bool) {
    let outside = rule.outside.address;
    let refuse = |message: String| notes.error(rule.outside.span, message);
    let pool_of = |nat: &'_ NatConfig| {
        nat.pools.iter().position(|pool| pool.addresses.iter().any(|range| range.contains(outside)))
    };
    if let Some(pool) = pool_of(nat).and_then(|index| nat.pools.get(index)) {
        deterministic_ports(notes, nat, pool, rule);
        return;
    }
    let same_vrf = |other: &&NatConfig| other.outside_vrf == nat.outside_vrf;
    if let Some(other) = config.nat.iter().filter(same_vrf).find(|other| pool_of(other).is_some()) {
        refuse(format!("{} is in a pool of `{}`; put the forwarding there", ip(outside), other.name));
        return;
    }
    let static_of = |other: &&NatConfig| other.one_to_one.iter().any(|rule| rule.outside.contains(outside));
    if let Some(other) = config.nat.iter().filter(same_vrf).find(static_of) {
        refuse(format!(
            "{} has a one-to-one mapping in `{}`, which forwards all its ports already; remove one of the two",
            ip(outside),
            other.name
        ));
        return;
    }
    let own = config
        .interfaces
        .iter()
        .filter(|interface| interface.vrf == nat.outside_vrf)
        .any(|interface| interface.addresses.iter().any(|own| own.address == outside));
    if own {
        let message = format!(
            "{} is the router's own address; while ports of it are forwarded the router answers nothing else there from outside, not even ping; a pool address avoids that",
            ip(outside)
        );
        notes.warning(rule.outside.span, message);
    } else if complete {
        refuse(format!(
            "{} is nobody's: neither in a pool of `{}` nor an own address in vrf `{}`; forward ports of one of those",
            ip(outside),
            nat.name,
            nat.outside_vrf
        ));
    }
}

/// A deterministic port is its subscriber's; forwarding it to another would make the inverse of RFC 7422 lie.
fn deterministic_ports(notes: &Notes, nat: &NatConfig, pool: &PoolConfig, rule: &ForwardConfig) {
    if !matches!(nat.ports, PortsConfig::Deterministic { .. }) || !pool.ports.overlaps(outside_ports(rule)) {
        return;
    }
    let message = format!(
        "port {} belongs to a subscriber by the deterministic rule; forward ports outside {}, or shorten the pool's `ports`",
        rule.outside.port, pool.ports
    );
    notes.error(rule.outside.span, message);
}
