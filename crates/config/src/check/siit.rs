//! Stateless translators: mappings that can be carried out, and no two answers to who translates a packet.

use std::collections::BTreeMap;

use carrack_base::{Prefix, Prefix4, Prefix6, Range4};
use carrack_pipeline::snapshot::EamHosts;
use carrack_xlat::NatPrefix;
use carrack_xlat::eam::{BadTable, EamTable, Entry};

use super::nat::outside::{Owned, owned};
use super::network::vrf_exists;
use crate::model::{Config, SiitConfig};
use crate::read::Notes;
use crate::source::{At, Span};

/// Warnings about overlapping mappings of one translator, at most.
const OVERLAPS_TOLD: usize = 5;

pub(super) fn check(notes: &Notes, config: &Config) {
    for siit in &config.siit {
        vrf_exists(notes, config, &siit.vrf);
        something_to_do(notes, siit);
        prefixes(notes, siit);
        mappings(notes, siit);
        sources(notes, siit);
    }
    routes_apart(notes, config);
    routes6_apart(notes, config);
    outside_apart(notes, config);
}

fn something_to_do(notes: &Notes, siit: &SiitConfig) {
    if siit.prefixes.is_empty() && siit.eam.is_empty() {
        let message = format!(
            "`{}` translates nothing; give `prefixes = [\"64:ff9b:1::/96\"]`, or explicit mappings in `eam`",
            siit.name
        );
        notes.error(siit.name.span, message);
    }
    if let (Some(block), true) = (siit.ipv4.first(), siit.prefixes.is_empty()) {
        let message = "`ipv4` without `prefixes`: nothing says what IPv6 addresses these are; add a prefix, or map them in `eam`";
        notes.error(block.span, message);
    }
}

/// RFC 6052 §2.1, §2.2 and §3.1.
fn prefixes(notes: &Notes, siit: &SiitConfig) {
    let has_hosts_within = siit.eam_hosts == EamHosts::Ipv6 && !siit.ipv4.is_empty();
    for (at, prefix) in siit.prefixes.iter().enumerate() {
        match NatPrefix::new(prefix.value) {
            Err(why) => notes.error(prefix.span, format!("{prefix} cannot stand for IPv4: {why}")),
            Ok(usable) if at == 0 && usable.is_well_known() && has_hosts_within => {
                // RFC 6052 §3.1 (hosts), RFC 6052 §3.3.
                let message = "hosts should have no addresses within the well-known prefix, which leads to any translator (RFC 6052 §3.1); use a prefix of your own for `ipv4`";
                notes.warning(prefix.span, message);
            }
            Ok(_) => {}
        }
        let before = siit.prefixes.get(..at).unwrap_or(&[]);
        if let Some(other) = before.iter().find(|other| other.overlaps(prefix.value)) {
            notes.error(prefix.span, format!("{prefix} overlaps {other}; remove one of the two"));
        }
    }
}

/// RFC 7757 §3.2 and §5.
fn mappings(notes: &Notes, siit: &SiitConfig) {
    let entries: Vec<Entry> = siit.eam.iter().map(|entry| entry.value).collect();
    let place = |wanted: &Entry| {
        siit.eam.iter().rev().find(|entry| entry.value == *wanted).map_or(siit.name.span, |entry| entry.span)
    };
    let table = match EamTable::new(&entries) {
        Ok(table) => table,
        Err(why) => {
            let span = match &why {
                BadTable::TooMany(_) => siit.name.span,
                BadTable::SuffixTooShort(entry) => place(entry),
                BadTable::SameV4(_, second) | BadTable::SameV6(_, second) => place(second),
            };
            return notes.error(span, why.to_string());
        }
    };
    for (outer, inner) in table.overlaps(OVERLAPS_TOLD) {
        let message = format!(
            "the mapping of {} to {} is within that of {} to {}; the two directions may not mirror each other there (RFC 7757 §5)",
            inner.v4, inner.v6, outer.v4, outer.v6
        );
        notes.warning(place(&inner), message);
    }
    for entry in mapped(siit, EamHosts::Ipv6) {
        for prefix in usable(siit).filter(|prefix| prefix.overlaps(entry.v6)) {
            within_prefix(notes, entry, prefix);
        }
    }
}

/// A mapping goes before the prefix that its hosts are within (RFC 7757 §3.3), as in figure 1 there: what it leaves of the
/// prefix is the prefix's.
fn within_prefix(notes: &Notes, entry: &At<Entry>, prefix: &At<Prefix6>) {
    if entry.v6.len() <= prefix.len() {
        let message = format!(
            "hosts {} are all of the prefix {prefix}, which then stands for no IPv4 address (mappings go before prefixes, RFC 7757 \
             §3.3); map fewer of its addresses, or choose another prefix",
            entry.v6
        );
        return notes.error(entry.span, message);
    }
    let Ok(usable) = NatPrefix::new(prefix.value) else { return };
    let hidden = Range4 {
        first: usable.extract_unchecked(entry.v6.address()),
        last: usable.extract_unchecked(entry.v6.last()),
    };
    // Nobody is called 0.0.0.0/8, and what embeds nothing hides nobody.
    if hidden.last >> 24 != 0 && entry.v6.contains(usable.embed(hidden.first)) {
        let message = format!(
            "hosts {} have the addresses that stand for {hidden} behind the prefix {prefix}; these mapped hosts get all packets to \
             them (RFC 7757 §3.3), so that nobody reaches {hidden}",
            entry.v6
        );
        notes.warning(entry.span, message);
    }
}

/// RFC 6791 §3.1.
fn sources(notes: &Notes, siit: &SiitConfig) {
    let private = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10"];
    let private = private.map(|text| text.parse::<Prefix4>().map(Prefix4::range));
    for range in &siit.icmp_sources {
        if private.iter().flatten().any(|private| private.overlaps(range.value)) {
            let message = format!(
                "ICMP errors from {range} are likely to be dropped by whoever filters private sources (RFC 6791 §3.1); use public addresses"
            );
            notes.warning(range.span, message);
        }
    }
}

/// The prefixes without those that are no prefix for this and have an error of their own.
fn usable(siit: &SiitConfig) -> impl Iterator<Item = &At<Prefix6>> {
    siit.prefixes.iter().filter(|prefix| NatPrefix::new(prefix.value).is_ok())
}

/// The mappings whose hosts are on that side.
fn mapped(siit: &SiitConfig, hosts: EamHosts) -> impl Iterator<Item = &At<Entry>> {
    siit.eam.iter().filter(move |_| siit.eam_hosts == hosts)
}

/// What leads to the translator is routed nowhere else.
fn routes_apart(notes: &Notes, config: &Config) {
    let mut taken: BTreeMap<(&str, Prefix4), String> = BTreeMap::new();
    for interface in &config.interfaces {
        for own in &interface.addresses {
            taken.insert((interface.vrf.value.as_str(), own.subnet), format!("`{}`", interface.name));
            let host = Prefix4::of(own.address, 32);
            taken.insert((interface.vrf.value.as_str(), host), format!("`{}`", interface.name));
        }
    }
    for route in &config.routes {
        if let Prefix::V4(prefix) = route.prefix.value {
            taken.insert((route.vrf.value.as_str(), prefix), "a [[route]]".to_owned());
        }
    }
    for siit in &config.siit {
        let mapped = mapped(siit, EamHosts::Ipv6).map(|entry| (entry.v4, entry.span));
        let blocks = siit.ipv4.iter().map(|block| (block.value, block.span));
        for (prefix, span) in mapped.chain(blocks) {
            let whose = format!("`{}`", siit.name);
            if let Some(other) = taken.insert((siit.vrf.value.as_str(), prefix), whose) {
                notes.error(span, twice(&prefix.to_string(), &other));
            }
        }
    }
}

/// As [`routes_apart`] for prefixes, which those of NAT64 may not overlap either. More specific routes may lead elsewhere.
fn routes6_apart(notes: &Notes, config: &Config) {
    let nat64 = config.nat.iter().filter_map(|nat| Some((nat, nat.nat64.as_ref()?)));
    let mut taken: Vec<(&str, Prefix6, String)> = nat64
        .flat_map(|(nat, nat64)| {
            let of = |prefix: &At<Prefix6>| {
                (nat.inside_vrf.value.as_str(), prefix.value, format!("NAT64 of `{}`", nat.name))
            };
            nat64.prefixes.iter().map(of)
        })
        .collect();
    for siit in &config.siit {
        let mapped = mapped(siit, EamHosts::Ipv4).map(|entry| (entry.v6, entry.span));
        let prefixes = usable(siit).filter(|_| siit.eam_hosts == EamHosts::Ipv6);
        let own: Vec<(Prefix6, Span)> = prefixes.map(|at| (at.value, at.span)).chain(mapped).collect();
        for (prefix, span) in &own {
            let clash =
                taken.iter().find(|(vrf, other, _)| *vrf == siit.vrf.value && other.overlaps(*prefix));
            let routed = config
                .routes
                .iter()
                .any(|route| route.vrf.value == siit.vrf.value && route.prefix.value == Prefix::V6(*prefix));
            let other = clash.map(|(_, _, other)| other.as_str()).or(routed.then_some("a [[route]]"));
            if let Some(other) = other {
                notes.error(*span, twice(&prefix.to_string(), other));
            }
        }
        let whose = || format!("`{}`", siit.name);
        taken.extend(own.iter().map(|(prefix, _)| (siit.vrf.value.as_str(), *prefix, whose())));
    }
}

/// What NAT translates to is looked up before routes are, so that a mapping of the same addresses would be dead.
fn outside_apart(notes: &Notes, config: &Config) {
    let mut owned = owned(config);
    owned.sort_by_key(|owned| (owned.vrf, owned.range));
    for siit in &config.siit {
        // Those of NAT overlap none of each other, so that the last one that begins early enough is the one.
        let clash = |range: Range4| {
            let vrf = siit.vrf.value.as_str();
            let until = owned.partition_point(|owned| (owned.vrf, owned.range.first) <= (vrf, range.last));
            let last = owned.get(until.checked_sub(1)?)?;
            (last.vrf == vrf && last.range.overlaps(range)).then_some(last)
        };
        let refuse = |prefix: Prefix4, span: Span, owned: &Owned<'_>| {
            let message = format!(
                "{prefix} overlaps {} of {} (line {}), which takes all packets to them; an outside address belongs to one of them only",
                owned.range,
                owned.what,
                config.source.line(owned.span)
            );
            notes.error(span, message);
        };
        for entry in mapped(siit, EamHosts::Ipv6) {
            if let Some(owned) = clash(entry.v4.range()) {
                refuse(entry.v4, entry.span, owned);
            }
        }
        // A wide block may have a hole, as it may where a route leads elsewhere.
        let dead = |block: Range4, owned: &Owned<'_>| {
            owned.range.first <= block.first && block.last <= owned.range.last
        };
        for block in siit.ipv4.iter().filter(|_| siit.eam_hosts == EamHosts::Ipv6) {
            if let Some(owned) = clash(block.range()).filter(|owned| dead(block.range(), owned)) {
                refuse(block.value, block.span, owned);
            }
        }
    }
}

fn twice(prefix: &str, other: &str) -> String {
    format!("{prefix} leads to {other} already; remove one of the two, or choose another prefix")
}
