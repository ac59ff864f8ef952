//! `[[siit]]`.

use carrack_base::{Prefix4, Prefix6, Range4};
use carrack_pipeline::snapshot::EamHosts;
use carrack_pipeline::translators::TRANSLATORS_MAX;
use carrack_xlat::eam::Entry;
use carrack_xlat::{Rules, ZeroUdp};

use super::network::name;
use crate::model::SiitConfig;
use crate::read::{Notes, Section};
use crate::source::At;

pub(super) fn translators(notes: &Notes, sections: Vec<Section<'_>>) -> Vec<SiitConfig> {
    if let Some(extra) = sections.get(TRANSLATORS_MAX) {
        notes.error(extra.span, format!("too many stateless translators; at most {TRANSLATORS_MAX}"));
    }
    sections.into_iter().map(|section| translator(notes, section)).collect()
}

fn translator(notes: &Notes, mut section: Section<'_>) -> SiitConfig {
    let name = name(notes, &mut section, "stateless translator");
    SiitConfig {
        vrf: At::new(section.value("vrf"), section.span_of("vrf")),
        prefixes: section.value::<Vec<At<Prefix6>>>("prefixes"),
        ipv4: section.value::<Vec<At<Prefix4>>>("ipv4"),
        eam: section.value::<Vec<At<Entry>>>("eam"),
        eam_hosts: section.value::<EamHosts>("eam_hosts"),
        icmp_sources: section.value::<Vec<At<Range4>>>("icmp_sources"),
        reveals_source: section.value("reveal_icmp_source"),
        hairpinning: section.value("hairpinning"),
        rules: rules(&section),
        name,
    }
}

/// How headers are translated, of either kind of translator.
pub(super) fn rules(section: &Section<'_>) -> Rules {
    Rules {
        tos: section.get::<u8>("tos").map(|tos| tos.value),
        zero_traffic_class: section.value("zero_traffic_class"),
        lowest_ipv6_mtu: section.value("lowest_ipv6_mtu"),
        zero_udp: section.value::<ZeroUdp>("zero_checksum_udp"),
    }
}
