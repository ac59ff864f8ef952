//! `[[nat]]` and its tables.

use carrack_base::{Prefix4, Prefix6, Proto, Range4};
use carrack_nat::policy::{Filtering, Limits, Mapping, Pooling, Timeouts, Unreadable};

use super::Mode;
use super::network::name;
use crate::model::{
    ForwardConfig, Nat64Config, NatConfig, OneToOneConfig, OverflowConfig, PoolConfig, PortsConfig,
};
use crate::read::{Notes, PerGateway, PerProto, Section};
use crate::source::At;
use crate::value::{Endpoint, HostEndpoint, PortRange};

pub(super) fn instances(notes: &Notes, sections: Vec<Section<'_>>) -> Vec<NatConfig> {
    if let Some(extra) = sections.get(carrack_base::INSTANCES_MAX) {
        notes.error(extra.span, format!("too many NAT instances; at most {}", carrack_base::INSTANCES_MAX));
    }
    sections.into_iter().map(|section| instance(notes, section)).collect()
}

fn instance(notes: &Notes, mut section: Section<'_>) -> NatConfig {
    let name = name(notes, &mut section, "NAT instance");
    let timeouts = section.section("timeouts");
    // Once: each look at a table reports the keys that it does not have, and each at a value what is wrong with it.
    let six = section.section("nat64");
    let pooling = section.value("pooling");
    NatConfig {
        inside_vrf: At::new(section.value("inside_vrf"), section.span_of("inside_vrf")),
        outside_vrf: At::new(section.value("outside_vrf"), section.span_of("outside_vrf")),
        subscribers: subscribers(notes, &section, six.is_present()),
        nat64: nat64(notes, &six),
        port_control: super::port_control::instance(notes, &section.section("port_control")),
        exempt: section.value("exempt"),
        pooling,
        mapping: section.value::<PerProto<Mapping>>("mapping").0,
        filtering: section.value::<PerProto<Filtering>>("filtering").0,
        parity: section.value("parity"),
        contiguity: section.value("contiguity"),
        hairpinning: section.value("hairpinning"),
        inbound_refresh: section.value::<PerProto<bool>>("inbound_refresh").0,
        tcp_loose: section.value("tcp_loose"),
        gateways: section.value("gateways"),
        unreadable: section.value::<PerGateway<Unreadable>>("unreadable").0,
        port_hold_s: At::new(section.value("port_hold"), section.span_of("port_hold")),
        port_hold_ports_max: section.value("port_hold_ports_max"),
        exhausted_icmp: section.value("exhausted_icmp"),
        pool_threshold_percent: section.value("pool_threshold_percent"),
        pool_ports_threshold: section.value("pool_ports_threshold"),
        log: section.value("log"),
        ports: ports(notes, &section.section("ports")),
        pools: section.sections("pool").into_iter().map(|pool_section| pool(notes, pool_section)).collect(),
        limits: limits(notes, &section.section("limits"), pooling),
        timeouts: self::timeouts(notes, &timeouts),
        one_to_one: section
            .sections("one_to_one")
            .into_iter()
            .filter_map(|rule| one_to_one(notes, rule))
            .collect(),
        forwards: section.sections("forward").into_iter().filter_map(|rule| forward(notes, rule)).collect(),
        name,
    }
}

fn subscribers(notes: &Notes, section: &Section<'_>, serves_ipv6: bool) -> Vec<At<Prefix4>> {
    let Some(mut subscribers) = section.get::<Vec<At<Prefix4>>>("subscribers") else { return Vec::new() };
    if subscribers.is_empty() {
        notes.error(
            subscribers.span,
            "an empty list; name the inside prefixes, or leave the key out to serve all",
        );
    }
    // Who serves IPv6 names the IPv4 subscribers that it serves too.
    if section.written("subscribers").is_none() && serves_ipv6 {
        return Vec::new();
    }
    // A default's elements have no place of their own.
    if section.written("subscribers").is_none() {
        subscribers.value.iter_mut().for_each(|prefix| prefix.span = section.span);
    }
    subscribers.value
}

fn nat64(notes: &Notes, table: &Section<'_>) -> Option<Nat64Config> {
    if !table.is_present() {
        return None;
    }
    let list = |key: &'static str, why: &str| {
        let mut list = table.get::<Vec<At<Prefix6>>>(key)?;
        if list.is_empty() {
            notes.error(list.span, format!("an empty list; {why}"));
        }
        if table.written(key).is_none() {
            list.value.iter_mut().for_each(|prefix| prefix.span = table.span);
        }
        Some(list.value)
    };
    Some(Nat64Config {
        prefixes: list("prefixes", "name the prefixes that stand for IPv4, like [\"64:ff9b::/96\"]")
            .unwrap_or_default(),
        subscribers: list("subscribers", "name the IPv6 sources, or leave the key out to serve all")
            .unwrap_or_default(),
        subscriber_len: table.value("subscriber_prefix_length"),
        rules: super::siit::rules(table),
    })
}

/// Keys of a mode that is not chosen are faults: they would have no effect.
fn ports(notes: &Notes, section: &Section<'_>) -> PortsConfig {
    let mode = section.value::<Mode>("mode");
    let size = section.need::<u16>("block_size");
    let per_subscriber = section.value::<u8>("blocks_per_subscriber");
    let idle_release_s = section.value::<u32>("block_idle_release");
    let ports_per_subscriber = section.get::<u16>("ports_per_subscriber");
    let blocks = ["block_size", "blocks_per_subscriber", "block_idle_release"];
    let overflow_ports = section.get::<u16>("overflow_ports");
    let (foreign, needed): (&[&str], &str) = match mode {
        Mode::Blocks => (&["ports_per_subscriber", "overflow_ports"], "deterministic"),
        Mode::Deterministic if overflow_ports.is_some() => (&[], ""),
        Mode::Deterministic => (&blocks, "blocks"),
        Mode::Arbitrary => (
            &[
                "block_size",
                "blocks_per_subscriber",
                "block_idle_release",
                "ports_per_subscriber",
                "overflow_ports",
            ],
            "",
        ),
    };
    for key in foreign {
        let Some(span) = section.written(key) else { continue };
        let mode = if needed.is_empty() { "another mode" } else { needed };
        notes.error(
            span,
            format!("`{key}` has an effect only with mode = \"{mode}\"; remove it or change the mode"),
        );
    }
    let uses_blocks = mode == Mode::Blocks || (mode == Mode::Deterministic && overflow_ports.is_some());
    match mode {
        _ if uses_blocks => {
            if section.written("block_size").is_some() && !size.value.is_power_of_two() && size.value > 0 {
                let up = size.value.checked_next_power_of_two().unwrap_or(32_768).min(32_768);
                let message =
                    format!("a block of {size} ports; sizes are powers of two, so write {} or {up}", up / 2);
                notes.error(size.span, message);
            }
            match overflow_ports.filter(|_| mode == Mode::Deterministic) {
                Some(ports) => PortsConfig::Deterministic {
                    ports_per_subscriber,
                    overflow: Some(OverflowConfig { ports, size, per_subscriber, idle_release_s }),
                },
                None => PortsConfig::Blocks { size, per_subscriber, idle_release_s },
            }
        }
        Mode::Blocks => PortsConfig::Blocks { size, per_subscriber, idle_release_s },
        Mode::Arbitrary => PortsConfig::Arbitrary,
        Mode::Deterministic => PortsConfig::Deterministic { ports_per_subscriber, overflow: None },
    }
}

fn pool(notes: &Notes, mut section: Section<'_>) -> PoolConfig {
    let name = name(notes, &mut section, "pool of this instance");
    let addresses = section.get::<Vec<At<Range4>>>("addresses");
    if let Some(empty) = addresses.as_ref().filter(|addresses| addresses.is_empty()) {
        notes.error(empty.span, "a pool without addresses; list some, like [\"192.0.2.0/28\"]");
    }
    let addresses = addresses.map(|addresses| addresses.value).unwrap_or_default();
    let ports = section.need::<PortRange>("ports");
    PoolConfig { name, addresses, ports: At::new(ports.value, section.span_of("ports")) }
}

fn limits(notes: &Notes, section: &Section<'_>, pooling: Pooling) -> Limits {
    let creations_per_s = section.value::<u32>("creations_per_s");
    let burst = section.get::<u32>("creations_burst");
    if let (0, Some(burst)) = (creations_per_s, &burst) {
        notes.error(
            burst.span,
            "`creations_burst` without `creations_per_s`; set the rate too, or remove the burst",
        );
    }
    let ports_max = section.value::<u32>("ports_max");
    let threshold = |key: &'static str| {
        let threshold = section.need::<u32>(key);
        if ports_max > 0 && threshold.value > ports_max {
            notes.warning(
                threshold.span,
                format!("`{key}` is above the {ports_max} of `ports_max`, so that it is never reached"),
            );
        }
        threshold
    };
    let mappings_threshold = threshold("mappings_threshold");
    let paired_mappings_threshold = threshold("paired_mappings_threshold");
    if paired_mappings_threshold.value > 0 && pooling != Pooling::Paired {
        notes.warning(
            paired_mappings_threshold.span,
            "`paired_mappings_threshold` without `pooling = \"paired\"` does nothing; `mappings_threshold` holds for both",
        );
    }
    Limits {
        sessions_max: section.value("sessions_max"),
        ports_max,
        ports_by_proto_max: [
            section.value("ports_tcp_max"),
            section.value("ports_udp_max"),
            section.value("ports_icmp_max"),
        ],
        creations_per_s,
        creations_burst: burst.map_or(creations_per_s, |burst| burst.value),
        sessions_per_mapping_max: section.value("sessions_per_mapping_max"),
        mappings_threshold: mappings_threshold.value,
        paired_mappings_threshold: paired_mappings_threshold.value,
    }
}

fn timeouts(notes: &Notes, section: &Section<'_>) -> Timeouts {
    let read = |key: &'static str, least: u32, why: &str| {
        let time = section.need::<u32>(key);
        if time.value < least && section.written(key).is_some() && time.value > 0 {
            notes.warning(
                time.span,
                format!("`{key}` of {time} s is below the {least} s of {why}; {CONSEQUENCE}"),
            );
        }
        time.value
    };
    Timeouts {
        udp_s: read("udp", 120, "RFC 4787 REQ-5"),
        udp_port_s: section.value("udp_port"),
        tcp_established_s: read("tcp_established", 7_440, "RFC 5382 REQ-5"),
        tcp_opening_s: read("tcp_opening", 240, "RFC 7857 §2.1"),
        tcp_closing_s: read("tcp_closing", 240, "RFC 7857 §2.1"),
        tcp_reset_s: read("tcp_reset", 240, "RFC 7857 §2.2"),
        tcp_unsolicited_syn_s: read("tcp_unsolicited_syn", 6, "RFC 5382 REQ-4"),
        icmp_s: read("icmp", 60, "RFC 5508 REQ-2"),
        other_s: section.value("other"),
    }
}

const CONSEQUENCE: &str = "idle applications may lose their sessions";

fn one_to_one(notes: &Notes, mut section: Section<'_>) -> Option<OneToOneConfig> {
    if let Some(outside) = section.peek::<Range4>("outside")
        && !section.label(&outside.value.to_string())
    {
        notes.error(outside.span, format!("a second one-to-one mapping of {outside}; remove one of the two"));
    }
    let (inside, outside) = (section.get::<Range4>("inside"), section.get::<Range4>("outside"));
    let (inside, outside) = (inside?, outside?);
    if inside.value.count() != outside.value.count() {
        let message = format!(
            "{} inside addresses for {} outside addresses; make the two ranges equally long",
            inside.value.count(),
            outside.value.count()
        );
        notes.error(outside.span, message);
    }
    Some(OneToOneConfig { inside, outside })
}

fn forward(notes: &Notes, mut section: Section<'_>) -> Option<ForwardConfig> {
    if let (Some(proto), Some(outside)) =
        (section.peek::<Proto>("proto"), section.peek::<Endpoint>("outside"))
        && !section.label(&format!("{proto}:{outside}"))
    {
        notes.error(outside.span, format!("a second forwarding of {proto} {outside}; remove one of the two"));
    }
    let proto = section.value::<Proto>("proto");
    let (inside, outside) = (section.get::<HostEndpoint>("inside"), section.get::<Endpoint>("outside"));
    let count = section.need::<u16>("count");
    let (inside, outside) = (inside?, outside?);
    let count = At::new(count.value.max(1), section.span_of("count"));
    for (port, span) in [(inside.port, inside.span), (outside.port, outside.span)] {
        if u32::from(port) + u32::from(count.value) > 65_536 {
            let message =
                format!("{count} ports from {port} on run past port 65535; lower `count` or the port");
            notes.error(span, message);
        }
    }
    Some(ForwardConfig { proto, outside, inside, count })
}
