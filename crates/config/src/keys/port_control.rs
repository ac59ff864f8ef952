//! Keys of port control: what hosts may ask of the NAT.

use super::Effect::{InPlace, NeedsRestart};
use super::Fallback::{Absent, Required, Value};
use super::Kind::{AnyPrefix, Count, Flag, Int, List, Path, Ports, Seconds};
use super::{KeyInfo, Kind, SectionInfo, list, row, table};

/// Most rules of an instance.
pub(crate) const RULES_MAX: usize = 4_096;
/// RFC 6887 §15 advises a day at most; a month is what some operators want.
const LIFETIME_S_MAX: u64 = 2_592_000;
const LIFETIME: Kind = Seconds(1, LIFETIME_S_MAX);
const MAPPINGS: Kind = Int(0, 65_535, "mappings");
const PORTS: Kind = List(&Ports, 64);

pub(super) const SECTIONS: &[SectionInfo] = &[
    table(
        "port_control",
        InPlace,
        "The server by which hosts ask for mappings: PCP (RFC 6887) and NAT-PMP (RFC 6886), on UDP port 5351 of the own \
         addresses of inside interfaces. It serves the instances that have `[nat.port_control]`.",
    ),
    table(
        "nat.port_control",
        InPlace,
        "Lets the subscribers of the instance ask for mappings, and says which (docs/port-control.md).",
    ),
    list(
        "nat.port_control.subscriber",
        InPlace,
        "Other rules for some subscribers. Of those that hold an address, the one with the longest prefix counts, alone.",
    ),
];

pub(super) const KEYS: &[KeyInfo] = &[
    row(
        ("port_control", "state_file"),
        Path,
        Absent("mappings end with the daemon"),
        NeedsRestart,
        "\"/var/lib/carrack/port-control\"",
        "File in which mappings outlive a restart.",
    ),
    row(
        ("port_control", "mappings_max"),
        Count(1, 65_536, "mappings"),
        Value("65_536"),
        InPlace,
        "10_000",
        "Most mappings of all subscribers together.",
    ),
    row(("nat.port_control", "nat_pmp"), Flag, Value("true"), InPlace, "false", "Speak NAT-PMP beside PCP."),
    row(
        ("nat.port_control", "third_party_from"),
        List(&AnyPrefix, 256),
        Value("[]"),
        InPlace,
        "[\"100.64.255.0/28\"]",
        "Hosts that may ask for mappings of others (RFC 6887 §13.1). Only ones whose addresses nobody can forge.",
    ),
    row(
        ("nat.port_control", "ports"),
        PORTS,
        Value("[\"1-65535\"]"),
        InPlace,
        "[\"80\", \"443\", \"1024-65535\"]",
        "Inside ports that may be asked for.",
    ),
    row(
        ("nat.port_control", "lifetime_min"),
        LIFETIME,
        Value("120"),
        InPlace,
        "\"10m\"",
        "Shortest lifetime given by PCP (RFC 6887 §15).",
    ),
    row(
        ("nat.port_control", "lifetime_max"),
        LIFETIME,
        Value("86_400"),
        InPlace,
        "\"2h\"",
        "Longest lifetime given.",
    ),
    row(
        ("nat.port_control", "mappings_max"),
        MAPPINGS,
        Value("64"),
        InPlace,
        "16",
        "Most mappings of one subscriber, within `[nat.limits]`; each port of a set counts.",
    ),
    row(
        ("nat.port_control.subscriber", "prefix"),
        AnyPrefix,
        Required,
        InPlace,
        "\"100.64.3.0/24\"",
        "Whose rule it is.",
    ),
    row(
        ("nat.port_control.subscriber", "allow"),
        Flag,
        Value("true"),
        InPlace,
        "false",
        "Whether they may ask for anything.",
    ),
    row(
        ("nat.port_control.subscriber", "ports"),
        PORTS,
        Absent("that of `[nat.port_control]`"),
        InPlace,
        "[\"1024-65535\"]",
        "Inside ports that may be asked for.",
    ),
    row(
        ("nat.port_control.subscriber", "lifetime_min"),
        LIFETIME,
        Absent("that of `[nat.port_control]`"),
        InPlace,
        "\"10m\"",
        "Shortest lifetime given by PCP.",
    ),
    row(
        ("nat.port_control.subscriber", "lifetime_max"),
        LIFETIME,
        Absent("that of `[nat.port_control]`"),
        InPlace,
        "\"2h\"",
        "Longest lifetime given.",
    ),
    row(
        ("nat.port_control.subscriber", "mappings_max"),
        MAPPINGS,
        Absent("that of `[nat.port_control]`"),
        InPlace,
        "4",
        "Most mappings of one subscriber.",
    ),
];
