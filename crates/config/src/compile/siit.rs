//! Stateless translators, and the routes that lead to them.

use carrack_pipeline::snapshot::{EamHosts, Route, Route6, SiitInstance};
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
        for (number, instance) in (0..).zip(&all) {
            let (v4, v6) = instance.routes(number);
            routes.extend(v4);
            routes6.extend(v6);
        }
        all
    }
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
