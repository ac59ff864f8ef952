//! Routes that are missing: packets that a translator makes or waits for, and that no route leads on.
//!
//! Warnings alone: such a file is whole, and does nothing where the route is missing. Routes come from the file and
//! nowhere else, so that what is missing stays missing.

use std::collections::BTreeSet;

use carrack_base::{Prefix, Prefix4, Prefix6};
use carrack_pipeline::snapshot::{EamHosts, Side};
use carrack_wire::ipv6::is_link_local;
use carrack_xlat::NatPrefix;

use crate::compile::gateway_interface;
use crate::model::{Config, InterfaceConfig, Nat64Config, NatConfig, RouteConfig, RouteTarget, SiitConfig};
use crate::read::Notes;
use crate::source::{At, Span};

/// Mappings and blocks without a route that are named for each translator, at most.
const UNROUTED_TOLD: usize = 5;

pub(super) fn check(notes: &Notes, config: &Config) {
    let sides: Vec<Routed<'_>> = config.routes.iter().map(|route| (route, side(config, route))).collect();
    outside(notes, config, &sides);
    for (nat, nat64) in config.nat.iter().filter_map(|nat| Some((nat, nat.nat64.as_ref()?))) {
        subscribers(notes, config, &sides, (nat, nat64));
    }
    for siit in &config.siit {
        hosts(notes, config, siit);
    }
}

/// A route and the side on which it leaves the router.
type Routed<'a> = (&'a RouteConfig, Option<Side>);

/// Destinations of one IP version that routes lead to; those of IPv4 as the first 32 bits.
#[derive(Default)]
struct Reached(BTreeSet<(u128, u8)>);

impl Reached {
    /// Everything connected or routed in a routing instance, whatever becomes of it: who discards says so.
    fn of(config: &Config, vrf: &str, is_wanted: fn(Prefix) -> bool) -> Self {
        let mut reached = Self::default();
        for interface in config.interfaces.iter().filter(|interface| interface.vrf.value == vrf) {
            reached.connected(interface, is_wanted);
        }
        let here = config.routes.iter().filter(|route| route.vrf.value == vrf);
        here.filter(|route| is_wanted(route.prefix.value)).for_each(|route| reached.add(route.prefix.value));
        reached
    }

    fn connected(&mut self, interface: &InterfaceConfig, is_wanted: fn(Prefix) -> bool) {
        let subnets = interface.own().map(|(_, subnet)| subnet);
        // A link-local subnet belongs to no routing table.
        let routed = |subnet: &Prefix| match *subnet {
            Prefix::V4(_) => true,
            Prefix::V6(subnet) => !is_link_local(subnet.address()),
        };
        subnets.filter(|subnet| is_wanted(*subnet)).filter(routed).for_each(|subnet| self.add(subnet));
    }

    fn add(&mut self, prefix: Prefix) {
        let prefix = bits(prefix);
        self.0.insert((prefix.address(), prefix.len()));
    }

    /// Does a route of at least so many bits lead to some of these addresses?
    fn some_of(&self, prefix: Prefix, bits_min: u8) -> bool {
        let prefix = bits(prefix);
        let mut within = self.0.range((prefix.address(), 0)..=(prefix.last(), u8::MAX));
        let covers = |len| self.0.contains(&(Prefix6::of(prefix.address(), len).address(), len));
        within.any(|(_, len)| *len >= bits_min) || (bits_min..prefix.len()).any(covers)
    }
}

/// Sets of both versions are kept alike.
fn bits(prefix: Prefix) -> Prefix6 {
    match prefix {
        Prefix::V4(prefix) => Prefix6::of(u128::from(prefix.address()) << 96, prefix.len()),
        Prefix::V6(prefix) => prefix,
    }
}

fn is_v4(prefix: Prefix) -> bool {
    matches!(prefix, Prefix::V4(_))
}

fn is_v6(prefix: Prefix) -> bool {
    matches!(prefix, Prefix::V6(_))
}

/// The side on which a route leaves the router; `None` when it discards, or leads to no interface there is.
fn side(config: &Config, route: &RouteConfig) -> Option<Side> {
    let interface = match &route.target {
        RouteTarget::Blackhole | RouteTarget::Prohibit => None,
        RouteTarget::Interface(interface) | RouteTarget::Gateway { interface: Some(interface), .. } => {
            config.interface(interface)
        }
        RouteTarget::Gateway { via, interface: None } => {
            gateway_interface(&config.interfaces, &route.vrf, via.value)
        }
    };
    interface.map(|interface| interface.side)
}

/// What was translated to IPv4 goes somewhere. Said once of each routing instance.
fn outside(notes: &Notes, config: &Config, routes: &[Routed<'_>]) {
    let routed = |vrf: &str, leaves: &dyn Fn(Side) -> bool| {
        let mut here = routes.iter().filter(|(route, _)| route.vrf.value == vrf);
        here.any(|(route, side)| match route.prefix.value {
            Prefix::V4(prefix) => prefix.is_default() || side.is_some_and(leaves),
            Prefix::V6(_) => false,
        })
    };
    // The customer's side of 464XLAT is a route to IPv4 itself.
    let is_behind_clat = |vrf: &str| {
        let clat = |siit: &SiitConfig| siit.eam_hosts == EamHosts::Ipv4 && !siit.ipv4.is_empty();
        config.siit.iter().any(|siit| siit.vrf.value == vrf && clat(siit))
    };
    let mut told = BTreeSet::new();
    let mut tell = |vrf: &'_ str, name: &str, span: Span| {
        if is_behind_clat(vrf) || !told.insert(vrf.to_owned()) {
            return;
        }
        let message = format!(
            "no route leads to IPv4 outside in vrf `{vrf}`, so that what `{name}` translates is dropped; add a [[route]] there \
             with `prefix = \"0.0.0.0/0\"` and the next router as `via`"
        );
        notes.warning(span, message);
    };
    for nat in &config.nat {
        if !routed(&nat.outside_vrf, &|side| side == Side::Outside) {
            tell(&nat.outside_vrf, &nat.name, nat.name.span);
        }
    }
    // A stateless translator's interfaces need no side.
    for siit in config.siit.iter().filter(|siit| siit.eam_hosts == EamHosts::Ipv6) {
        if !routed(&siit.vrf, &|side| side != Side::Inside) {
            tell(&siit.vrf, &siit.name, siit.name.span);
        }
    }
}

/// IPv6 comes in at an inside interface, and answers find the way back to whoever sent it.
fn subscribers(
    notes: &Notes,
    config: &Config,
    routes: &[Routed<'_>],
    (nat, nat64): (&NatConfig, &Nat64Config),
) {
    let vrf = &nat.inside_vrf;
    let inside = || config.interfaces.iter().filter(|on| on.side == Side::Inside && on.vrf == *vrf);
    if let Some(first) = inside().next()
        && inside().all(|interface| interface.addresses6.is_empty())
    {
        let message = format!(
            "`{}` has no IPv6 address, nor has another inside interface of vrf `{vrf}`, so that nothing reaches the NAT64 of \
             `{}`; add one to its `address`",
            first.name, nat.name
        );
        notes.warning(first.name.span, message);
        return;
    }
    let mut reached = Reached::default();
    inside().for_each(|interface| reached.connected(interface, is_v6));
    let here = routes.iter().filter(|(route, _)| route.vrf == *vrf && is_v6(route.prefix.value));
    here.filter(|(_, side)| *side == Some(Side::Inside))
        .for_each(|(route, _)| reached.add(route.prefix.value));
    let unrouted = nat64.subscribers.iter().filter(|prefix| !reached.some_of(prefix.value.into(), 0));
    for prefix in unrouted.take(UNROUTED_TOLD) {
        let message = format!(
            "no IPv6 route leads to the subscribers {prefix} of `{}` by an inside interface of vrf `{vrf}`, so that they get no \
             answers; add a [[route]] with `prefix = \"{prefix}\"` and their router as `via`",
            nat.name
        );
        notes.warning(prefix.span, message);
    }
}

/// What a stateless translator makes finds its host, and does not come back into it.
fn hosts(notes: &Notes, config: &Config, siit: &SiitConfig) {
    let vrf = siit.vrf.value.as_str();
    let (reached4, reached6) = (Reached::of(config, vrf, is_v4), Reached::of(config, vrf, is_v6));
    let of = |entry: carrack_xlat::eam::Entry| match siit.eam_hosts {
        EamHosts::Ipv6 => (&reached6, Prefix::from(entry.v6)),
        EamHosts::Ipv4 => (&reached4, Prefix::from(entry.v4)),
    };
    let unrouted = siit.eam.iter().filter_map(|entry| {
        let (reached, hosts) = of(entry.value);
        let around = prefix_around(siit, hosts);
        let bits_min = around.map_or(0, |prefix| prefix.len() + 1);
        (!reached.some_of(hosts, bits_min)).then_some((entry, hosts, around))
    });
    for (entry, hosts, around) in unrouted.take(UNROUTED_TOLD) {
        let message = match around {
            Some(prefix) => goes_round(entry.v4, hosts, prefix, vrf),
            None => format!(
                "no route leads to the hosts {hosts} of this mapping in vrf `{vrf}`, so that what is translated to them is dropped; \
                 add a [[route]] with `prefix = \"{hosts}\"` and their router as `via`"
            ),
        };
        notes.warning(entry.span, message);
    }
    let Some((first, prefix)) =
        siit.prefixes.first().and_then(|first| Some((first, NatPrefix::new(first.value).ok()?)))
    else {
        return;
    };
    if siit.eam_hosts == EamHosts::Ipv4 {
        if !reached6.some_of(first.value.into(), 0) {
            let message = format!(
                "no route leads to {first} in vrf `{vrf}`, behind which the next translator is; add a [[route]] with `prefix = \
                 \"{first}\"`, or `\"::/0\"`, and the next router as `via`"
            );
            notes.warning(first.span, message);
        }
        return;
    }
    let unrouted = siit.ipv4.iter().filter_map(|block| {
        let hosts = prefix.embed_prefix(block.value);
        (!reached6.some_of(hosts.into(), first.len() + 1)).then_some((block, hosts))
    });
    for (block, hosts) in unrouted.take(UNROUTED_TOLD) {
        notes.warning(block.span, goes_round(block.value, hosts.into(), first, vrf));
    }
}

/// The prefix that leads these hosts' packets into the translator.
fn prefix_around(siit: &SiitConfig, hosts: Prefix) -> Option<&At<Prefix6>> {
    let Prefix::V6(hosts) = hosts else { return None };
    let around = |prefix: &&At<Prefix6>| prefix.len() < hosts.len() && prefix.contains(hosts.address());
    siit.prefixes.iter().find(around)
}

fn goes_round(of: Prefix4, hosts: Prefix, prefix: &At<Prefix6>, vrf: &str) -> String {
    format!(
        "the IPv6 hosts of {of} are at {hosts}, and no route in vrf `{vrf}` is more specific than the translator's own to \
         {prefix}, so that packets to them are dropped (siit-loop); add a [[route]] with `prefix = \"{hosts}\"` and their router \
         as `via`"
    )
}
