//! Stateless translators, and the routes that lead to them.

use std::collections::BTreeSet;

use carrack_base::{Prefix4, Range4};
use carrack_pipeline::snapshot::{EamHosts, NextHop, Route, Route6, SiitInstance};
use carrack_xlat::eam::{EamTable, Entry};
use carrack_xlat::{Hosts, NatPrefix, Siit};

use super::Build;
use crate::model::SiitConfig;

impl Build<'_> {
    /// The translators; their routes are added to those there are.
    pub(super) fn translators(
        &self,
        routes: &mut Vec<Route>,
        routes6: &mut Vec<Route6>,
    ) -> Vec<SiitInstance> {
        let build = |siit: &SiitConfig| SiitInstance {
            name: siit.name.value.clone(),
            vrf: self.vrf(&siit.vrf),
            eam_hosts: siit.eam_hosts,
            translator: translator(siit),
        };
        let all: Vec<SiitInstance> = self.config.siit.iter().map(build).collect();
        let mut hosts = Vec::new();
        for (number, instance) in (0..).zip(&all) {
            let (v4, v6) = instance.routes(number);
            if instance.eam_hosts == EamHosts::Ipv6 {
                hosts.extend_from_slice(&v4);
            }
            routes.extend(v4);
            routes6.extend(v6);
        }
        let discarded = sources(&all, routes, &hosts);
        routes.extend(discarded);
        all
    }
}

/// Sources of ICMP errors are addresses of the router's that nobody is called by (RFC 6791 §3.2): what is sent to them ends
/// here, as at a free address of a pool, and does not go back by the default route to whoever sent it. An address that the
/// router or one of the mapped `hosts` has by another route stays theirs.
fn sources(all: &[SiitInstance], routes: &[Route], hosts: &[Route]) -> Vec<Route> {
    let mut taken: BTreeSet<(u16, Prefix4)> =
        routes.iter().map(|route| (route.vrf.0, route.prefix)).collect();
    let mut discarded = Vec::new();
    for instance in all {
        let vrf = instance.vrf;
        for prefix in instance.translator.icmp_sources.iter().flat_map(|range| prefixes(*range)) {
            let is_around = |host: &Route| {
                host.vrf == vrf && host.prefix.len() <= prefix.len() && host.prefix.contains(prefix.address())
            };
            if !hosts.iter().any(is_around) && taken.insert((vrf.0, prefix)) {
                discarded.push(Route { vrf, prefix, next_hop: NextHop::Blackhole });
            }
        }
    }
    discarded
}

/// The fewest prefixes that are together a range.
fn prefixes(range: Range4) -> Vec<Prefix4> {
    let mut all = Vec::new();
    let mut next = Some(range.first);
    while let Some(first) = next.filter(|first| *first <= range.last) {
        let begins = |len: u8| Prefix4::of(first, len);
        let fits = |prefix: &Prefix4| prefix.address() == first && prefix.last() <= range.last;
        let widest = (0..=32).map(begins).find(fits).unwrap_or(begins(32));
        all.push(widest);
        next = widest.last().checked_add(1);
    }
    all
}

fn translator(siit: &SiitConfig) -> Siit {
    let entries: Vec<Entry> = siit.eam.iter().map(|entry| entry.value).collect();
    Siit {
        // What is wrong with prefixes and mappings is refused by the checks.
        prefixes: siit.prefixes.iter().filter_map(|prefix| NatPrefix::new(prefix.value).ok()).collect(),
        eam: EamTable::new(&entries).unwrap_or_default(),
        hosts: Hosts::new(siit.ipv4.iter().map(|block| block.value).collect()),
        icmp_sources: siit.icmp_sources.iter().map(|range| range.value).collect(),
        reveals_source: siit.reveals_source,
        // IPv4 hosts reach each other without the translator.
        no_hairpinning: !siit.hairpinning || siit.eam_hosts == EamHosts::Ipv4,
        rules: siit.rules,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_its_fewest_prefixes() {
        for (range, expected) in [
            ("192.0.2.250-192.0.2.253", &["192.0.2.250/31", "192.0.2.252/31"][..]),
            ("192.0.2.1-192.0.2.4", &["192.0.2.1/32", "192.0.2.2/31", "192.0.2.4/32"]),
            ("198.51.100.0/24", &["198.51.100.0/24"]),
            ("255.255.255.254-255.255.255.255", &["255.255.255.254/31"]),
            ("0.0.0.0-255.255.255.255", &["0.0.0.0/0"]),
        ] {
            let found: Vec<String> =
                prefixes(range.parse().unwrap()).iter().map(ToString::to_string).collect();
            assert_eq!(found, expected, "{range}");
        }
    }
}
