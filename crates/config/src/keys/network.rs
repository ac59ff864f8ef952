//! Keys of routing instances, interfaces and routes.

use super::Effect::{InPlace, NeedsRestart, ReDerived};
use super::Fallback::{Absent, Required, Value};
use super::Kind::{AnyAddress, AnyPrefix, Device, Flag, Int, InterfaceAddress, List, Name, Seconds, Word};
use super::{KeyInfo, Kind, SectionInfo, list, row, table};

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
    table(
        RA,
        InPlace,
        "What hosts of the link are told of this router (RFC 4861 §6.2): that it is there, the MTU, and every own subnet of \
         64 bits, in which they may make themselves addresses. Off unless `enabled`.",
    ),
    list(
        "route",
        ReDerived("the routing table"),
        "A static route. Exactly one of `via`, `interface` alone, `blackhole`, `prohibit` says where it leads.",
    ),
];

const IF: &str = "interface";
const RA: &str = "interface.router_advertisement";
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
        "The port: `pci:0000:03:00.0`, `af_packet:IFNAME`, `af_xdp:IFNAME`, `tap:IFNAME`, `memif:SOCKET,id=N,role=client,zero-copy=no`, \
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
        "[\"192.0.2.1/24\", \"2001:db8::1/64\"]",
        "The router's own addresses with their subnets, IPv4 and IPv6. An interface takes IPv6 when it has an IPv6 address \
         here; its link-local address is then made of its MAC address, unless one of `fe80::/10` is given. The first address \
         of an IPv6 subnet is the router's as well, shared with all routers of the link (RFC 4291 §2.6.1), but for `/127` and \
         `/128`.",
    ),
    row(
        (IF, "mtu"),
        Int(68, 9_600, "bytes"),
        Absent("the port's, or the parent's"),
        InPlace,
        "1_500",
        "Largest IP packet, with IPv6 at least 1280. Larger ones are fragmented (IPv4 alone), or answered with Fragmentation \
         Needed (RFC 4787 REQ-13) or Packet Too Big (RFC 4443 §3.2).",
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
        (IF, "icmp_errors"),
        Word(&["all", "path-mtu", "none"]),
        Value("\"all\""),
        InPlace,
        "\"path-mtu\"",
        "Which ICMP errors the router makes of packets that came in by this interface (RFC 5508 REQ-9, RFC 5382 REQ-4a): \
         `path-mtu` tells that a packet is too big and is silent about everything else; `none` breaks the path MTU \
         discovery of who sends large packets by it.",
    ),
    row((RA, "enabled"), Flag, Value("false"), InPlace, "true", "Advertise this router."),
    row(
        (RA, "interval"),
        Seconds(4, 1_800),
        Value("600"),
        InPlace,
        "\"5m\"",
        "Most time between two advertisements to all.",
    ),
    row(
        (RA, "lifetime"),
        Seconds(0, 9_000),
        Value("1_800"),
        InPlace,
        "\"1h\"",
        "How long hosts may use this router as default router after the last one; 0 for not at all.",
    ),
    row(
        (RA, "valid"),
        Seconds(0, 4_294_967_295),
        Value("2_592_000"),
        InPlace,
        "\"1d\"",
        "How long the subnets, and addresses made in them, are valid.",
    ),
    row(
        (RA, "preferred"),
        Seconds(0, 4_294_967_295),
        Value("604_800"),
        InPlace,
        "\"4h\"",
        "How long addresses made in the subnets are preferred; not above `valid`.",
    ),
    row((RA, "managed"), Flag, Value("false"), InPlace, "true", "Hosts get addresses by DHCPv6."),
    row((RA, "other"), Flag, Value("false"), InPlace, "true", "Hosts get other settings by DHCPv6."),
    row(
        ("route", "prefix"),
        AnyPrefix,
        Required,
        ReDerived("the routing table"),
        "\"0.0.0.0/0\"",
        "The destinations.",
    ),
    row(
        ("route", "via"),
        AnyAddress,
        Absent("no gateway"),
        ReDerived("the routing table"),
        "\"192.0.2.254\"",
        "The gateway, of the prefix's IP version, on a connected subnet of the routing instance (or of `interface`, when that \
         is given). A link-local one needs `interface`.",
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
        "Discard with ICMP 3/13 or ICMPv6 1/1, administratively prohibited.",
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
