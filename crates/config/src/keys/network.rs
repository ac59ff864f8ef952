//! Keys of routing instances, interfaces and routes.

use super::Effect::{InPlace, NeedsRestart, ReDerived};
use super::Fallback::{Absent, Required, Value};
use super::Kind::{Address, Device, Flag, Int, InterfaceAddress, List, Name, Prefix, Word};
use super::{KeyInfo, Kind, SectionInfo, list, row};

pub(super) const SECTIONS: &[SectionInfo] = &[
    list(
        "vrf",
        InPlace,
        "A routing instance: an address space with its own interfaces and routes, so that inside networks may use the \
         same addresses. `default` always exists and need not be declared.",
    ),
    list(
        "interface",
        ReDerived("connected routes and neighbours of the interface"),
        "A port (with `device`) or a VLAN of one (with `parent`, and either `vlan` or `outer` and `inner`).",
    ),
    list(
        "route",
        ReDerived("the routing table"),
        "A static route. Exactly one of `via`, `interface` alone, `blackhole`, `prohibit` says where it leads.",
    ),
];

const IF: &str = "interface";
const VLAN: Kind = Int(1, 4094, "");

pub(super) const KEYS: &[KeyInfo] = &[
    row(("vrf", "name"), Name, Required, InPlace, "\"business\"", "Name of the routing instance."),
    row((IF, "name"), Name, Required, InPlace, "\"inside0\"", "Name of the interface, kept over reloads."),
    row(
        (IF, "device"),
        Device,
        Absent("the interface is a VLAN of its `parent`"),
        NeedsRestart,
        "\"af_packet:eth1\"",
        "The port: `pci:0000:03:00.0`, `af_packet:IFNAME`, `af_xdp:IFNAME`, `tap:IFNAME`, `memif:SOCKET,id=N,role=client`, \
         `dpdk-pcap:rx=FILE,tx=FILE`, `vdev:ARGS`, `pcap:rx=FILE,tx=FILE` or `mem:NAME`.",
    ),
    row(
        (IF, "parent"),
        Name,
        Absent("the interface is a port"),
        ReDerived("connected routes and neighbours of the interface"),
        "\"trunk0\"",
        "The interface with a `device` whose VLAN this is.",
    ),
    row(
        (IF, "vlan"),
        VLAN,
        Absent("no single tag"),
        ReDerived("neighbours of the interface"),
        "100",
        "VLAN id of the one 802.1Q tag.",
    ),
    row(
        (IF, "outer"),
        VLAN,
        Absent("no QinQ"),
        ReDerived("neighbours of the interface"),
        "200",
        "VLAN id of the outer (service) tag.",
    ),
    row(
        (IF, "inner"),
        VLAN,
        Absent("no QinQ"),
        ReDerived("neighbours of the interface"),
        "17",
        "VLAN id of the inner (customer) tag.",
    ),
    row(
        (IF, "dot1ad"),
        Flag,
        Value("false"),
        ReDerived("neighbours of the interface"),
        "true",
        "The outer tag's EtherType is 0x88a8 (802.1ad) rather than 0x8100.",
    ),
    row(
        (IF, "side"),
        Word(&["plain", "inside", "outside"]),
        Value("\"plain\""),
        ReDerived("sessions of subscribers behind the interface"),
        "\"inside\"",
        "Which side of the NAT it is on: `inside` has subscribers, `outside` has the Internet, `plain` is only routed.",
    ),
    row(
        (IF, "address"),
        List(&InterfaceAddress, 64),
        Value("[]"),
        ReDerived("connected routes and neighbours of the interface"),
        "[\"192.0.2.1/24\"]",
        "The router's own addresses with their subnets.",
    ),
    row(
        (IF, "mtu"),
        Int(68, 9_600, "bytes"),
        Absent("the port's, or the parent's"),
        InPlace,
        "1_500",
        "Largest IPv4 packet. Larger ones are fragmented, or answered with Fragmentation Needed (RFC 4787 REQ-13).",
    ),
    row(
        (IF, "vrf"),
        Name,
        Value("\"default\""),
        ReDerived("routes and neighbours of the interface"),
        "\"business\"",
        "The routing instance it belongs to.",
    ),
    row((IF, "up"), Flag, Value("true"), InPlace, "false", "Administrative state."),
    row(
        (IF, "urpf"),
        Flag,
        Value("false"),
        InPlace,
        "true",
        "Refuse packets whose source is not routed back to this interface (RFC 3704 §2.2).",
    ),
    row(
        ("route", "prefix"),
        Prefix,
        Required,
        ReDerived("the routing table"),
        "\"0.0.0.0/0\"",
        "The destinations.",
    ),
    row(
        ("route", "via"),
        Address,
        Absent("no gateway"),
        ReDerived("the routing table"),
        "\"192.0.2.254\"",
        "The gateway, on a connected subnet of the routing instance (or of `interface`, when that is given).",
    ),
    row(
        ("route", "interface"),
        Name,
        Absent("the one whose subnet holds `via`"),
        ReDerived("the routing table"),
        "\"outside0\"",
        "The outgoing interface. Without `via`, destinations are neighbours on it. It may be of another routing \
         instance: that leaks the route.",
    ),
    row(
        ("route", "blackhole"),
        Flag,
        Value("false"),
        ReDerived("the routing table"),
        "true",
        "Discard silently.",
    ),
    row(
        ("route", "prohibit"),
        Flag,
        Value("false"),
        ReDerived("the routing table"),
        "true",
        "Discard with ICMP 3/13, administratively prohibited.",
    ),
    row(
        ("route", "vrf"),
        Name,
        Value("\"default\""),
        ReDerived("the routing table"),
        "\"business\"",
        "The routing instance it belongs to.",
    ),
];
