//! Keys of NAT instances.

use super::Effect::{InPlace, ReDerived};
use super::Fallback::{Absent, Required, Value};
use super::Kind::{
    Count, Endpoint, Flag, HostEndpoint, Int, List, Name, PerGateway, PerProto, Ports, Prefix, Prefix6,
    Range, Seconds, SecondsByPort, Word,
};
use super::{Effect, KeyInfo, Kind, SectionInfo, list, row, table};

/// Longest idle time that the timers can tell apart.
const SECONDS_MAX: u64 = 30_000;
const LIMIT_MAX: u64 = 1 << 30;

const INSTANCE: Effect = ReDerived("the sessions of the instance");
// The engine builds the tables anew and adopts what the new ones could have given.
const PORTS: Effect =
    ReDerived("the port tables of the instance; sessions on ports that they could not have given end");
const STATIC: Effect = ReDerived("sessions of the changed static mapping");

const TIMEOUT: Kind = Seconds(1, SECONDS_MAX);
const LIMIT: Kind = Count(0, LIMIT_MAX, "");

pub(super) const SECTIONS: &[SectionInfo] = &[
    list(
        "nat",
        INSTANCE,
        "A NAT instance: which subscribers are translated to which pools, and how. Tables that follow it \
         (`[nat.ports]`, `[[nat.pool]]`, …) belong to it until the next `[[nat]]`.",
    ),
    table(
        "nat.ports",
        PORTS,
        "How outside ports are given to subscribers. In `blocks` a subscriber holds whole blocks, so that one log line \
         covers hundreds of sessions; `arbitrary` takes any free port; `deterministic` computes address and ports from \
         the inside address (RFC 7422), so that nothing need be logged.",
    ),
    list(
        "nat.pool",
        PORTS,
        "Outside addresses with one range of ports. Several pools are used in the order they are written \
         (RFC 6888 REQ-3).",
    ),
    table(
        "nat.limits",
        InPlace,
        "What one subscriber may use; 0 is unlimited (RFC 6888 REQ-4, RFC 6888 REQ-5).",
    ),
    table(
        "nat.timeouts",
        InPlace,
        "How long a session stays without packets. Values below what the RFCs demand are taken, with a warning.",
    ),
    list(
        "nat.one_to_one",
        STATIC,
        "Inside addresses that have outside addresses of their own, one to one and in order, for all protocols.",
    ),
    table(
        "nat.nat64",
        INSTANCE,
        "IPv6 subscribers of the instance, who reach the IPv4 Internet by NAT64 (RFC 6146), also as the PLAT of 464XLAT. \
         Pools, ports, limits and timeouts are those of the instance; IPv4 subscribers are served only when `subscribers` \
         of `[[nat]]` names some.",
    ),
    list(
        "nat.forward",
        STATIC,
        "Outside ports that lead to an inside host. With an IPv6 host of `[nat.nat64]` inside this is NAT46: IPv4 clients \
         reach an IPv6 server by a port of a pool's address; whole addresses are mapped by `[[siit]]`.",
    ),
];

const GATEWAY: Kind = Word(&["ftp", "tftp", "sip", "rtsp", "h323", "pptp", "ipsec"]);
const MAPPING: Kind = Word(&["endpoint-independent", "address-and-port-dependent"]);
const FILTERING: Kind = Word(&["endpoint-independent", "address-dependent", "address-and-port-dependent"]);

pub(super) const KEYS: &[KeyInfo] = &[
    row(("nat", "name"), Name, Required, INSTANCE, "\"cgn1\"", "Name of the instance, kept over reloads."),
    row(
        ("nat", "inside_vrf"),
        Name,
        Value("\"default\""),
        INSTANCE,
        "\"subscribers\"",
        "Routing instance of the subscribers.",
    ),
    row(
        ("nat", "outside_vrf"),
        Name,
        Value("\"default\""),
        INSTANCE,
        "\"internet\"",
        "Routing instance of the pools.",
    ),
    row(
        ("nat", "subscribers"),
        List(&Prefix, 4_096),
        Value("[\"0.0.0.0/0\"]"),
        ReDerived("mappings and sessions of subscribers that are no longer served"),
        "[\"100.64.0.0/10\"]",
        "Inside IPv4 addresses that are served; others are refused. With `[nat.nat64]` the default is none.",
    ),
    row(
        ("nat", "exempt"),
        List(&Prefix, 4_096),
        Value("[]"),
        ReDerived("sessions to destinations whose exemption changed"),
        "[\"10.0.0.0/8\"]",
        "Destinations that pass untranslated (RFC 6888 REQ-6).",
    ),
    row(
        ("nat", "pooling"),
        Word(&["paired", "arbitrary"]),
        Value("\"paired\""),
        PORTS,
        "\"arbitrary\"",
        "`paired` gives a subscriber one outside address for all its sessions (RFC 4787 REQ-2, RFC 6888 REQ-2).",
    ),
    row(
        ("nat", "mapping"),
        PerProto(&MAPPING),
        Value("\"endpoint-independent\""),
        InPlace,
        "{ tcp = \"endpoint-independent\", udp = \"endpoint-independent\", icmp = \"address-and-port-dependent\" }",
        "Whether all destinations see the same outside endpoint (RFC 4787 REQ-1, RFC 5382 REQ-1). A change holds for \
         new mappings.",
    ),
    row(
        ("nat", "filtering"),
        PerProto(&FILTERING),
        Value("\"endpoint-independent\""),
        InPlace,
        "\"address-dependent\"",
        "Who may send to a mapping from outside (RFC 4787 REQ-8, RFC 5382 REQ-3, RFC 6888 REQ-7).",
    ),
    row(
        ("nat", "parity"),
        Flag,
        Value("false"),
        InPlace,
        "true",
        "Give an even UDP port to an even one and an odd to an odd one (RFC 4787 REQ-4).",
    ),
    row(
        ("nat", "contiguity"),
        Flag,
        Value("false"),
        InPlace,
        "true",
        "Give an odd UDP port the outside port after its even neighbour's, for RTP and RTCP.",
    ),
    row(
        ("nat", "hairpinning"),
        Flag,
        Value("true"),
        InPlace,
        "false",
        "Subscribers may reach each other at their outside endpoints (RFC 4787 REQ-9, RFC 5382 REQ-8).",
    ),
    row(
        ("nat", "inbound_refresh"),
        PerProto(&Flag),
        Value("{ tcp = true, udp = true, icmp = true }"),
        InPlace,
        "{ tcp = true, udp = false, icmp = true }",
        "Whether a packet from outside keeps a session alive (RFC 4787 REQ-6).",
    ),
    row(
        ("nat", "gateways"),
        List(&GATEWAY, 16),
        Value("[\"ftp\"]"),
        InPlace,
        "[]",
        "Application gateways that are switched on: protocols whose messages name addresses are read and rewritten. A change \
         holds for new control connections (RFC 4787 REQ-10, RFC 5382 REQ-6).",
    ),
    row(
        ("nat", "unreadable"),
        PerGateway(&Word(&["pass", "reset"])),
        Value("\"pass\""),
        InPlace,
        "{ ftp = \"reset\", rtsp = \"reset\" }",
        "What becomes of a control connection over TCP that its gateway can make no sense of: it goes on as it is, or is reset. \
         Encrypted ones always go on.",
    ),
    row(
        ("nat", "tcp_loose"),
        Flag,
        Value("false"),
        InPlace,
        "true",
        "A TCP segment without SYN may open a session: after a restart, or on asymmetric paths.",
    ),
    row(
        ("nat", "port_hold"),
        Seconds(0, SECONDS_MAX),
        Value("120"),
        PORTS,
        "\"2m\"",
        "How long a released port or block is not given to another subscriber (RFC 6888 REQ-8).",
    ),
    row(
        ("nat", "port_hold_ports_max"),
        Count(0, 65_536, ""),
        Value("0"),
        InPlace,
        "16_384",
        "Most ports of one outside address and protocol that are held at once, 0 for no limit (RFC 6888 REQ-8); divided \
         evenly among the workers. What is released beyond it may be given again at once.",
    ),
    row(
        ("nat", "exhausted_icmp"),
        Word(&["host-unreachable", "admin-prohibited", "silent"]),
        Value("\"host-unreachable\""),
        InPlace,
        "\"admin-prohibited\"",
        "What a sender is told when no mapping can be made: ICMP 3/1 (RFC 6888 REQ-11), 3/13 (RFC 5508 REQ-8), nothing.",
    ),
    row(
        ("nat", "pool_threshold_percent"),
        Int(0, 100, "percent"),
        Value("80"),
        InPlace,
        "90",
        "Use of a pool at which an event is raised; 0 for none (RFC 6888 REQ-13).",
    ),
    row(
        ("nat", "pool_ports_threshold"),
        LIMIT,
        Value("0"),
        InPlace,
        "2_000_000",
        "Ports of the pools in use, all protocols together, at which an event is raised; 0 for none. Each worker compares its \
         own with an even share, and tells again when they were an eighth fewer in between (RFC 8158 §4.6.8.2).",
    ),
    row(
        ("nat", "log"),
        Word(&["blocks", "mappings", "sessions", "destinations"]),
        Value("\"blocks\""),
        InPlace,
        "\"mappings\"",
        "What is told to the log: port `blocks` and address bindings; single `mappings` too, which `arbitrary` ports need to \
         be traced back; every one of their `sessions` instead; or `destinations`, the same with whom they talked to, which \
         RFC 6888 REQ-12 warns of. Holds for what begins from then on.",
    ),
    row(
        ("nat.nat64", "prefixes"),
        List(&Prefix6, 64),
        Value("[\"64:ff9b::/96\"]"),
        INSTANCE,
        "[\"2001:db8:64::/96\"]",
        "Prefixes that stand for the IPv4 Internet, of 32, 40, 48, 56, 64 or 96 bits (RFC 6052 §2.2). DNS64 makes addresses \
         of one of them. Without any it is the well-known prefix `64:ff9b::/96` (RFC 6146 §3.5.4), behind which only global IPv4 \
         addresses are reached (RFC 6052 §3.1). Behind any of them the router's own IPv4 addresses answer pings.",
    ),
    row(
        ("nat.nat64", "subscribers"),
        List(&Prefix6, 4_096),
        Value("[\"::/0\"]"),
        ReDerived("mappings and sessions of subscribers that are no longer served"),
        "[\"2001:db8::/32\"]",
        "IPv6 sources that are served; others are refused.",
    ),
    row(
        ("nat.nat64", "subscriber_prefix_length"),
        Int(32, 128, "bits"),
        Value("128"),
        ReDerived("the mappings and sessions of all IPv6 subscribers of the instance"),
        "56",
        "Bits of a source address that make a subscriber: ports, blocks and limits are counted by it. 128 is one a host, 64 \
         one a link, 56 or 48 one a site.",
    ),
    row(
        ("nat.ports", "mode"),
        Word(&["blocks", "arbitrary", "deterministic"]),
        Value("\"blocks\""),
        PORTS,
        "\"deterministic\"",
        "How ports are given out.",
    ),
    row(
        ("nat.ports", "block_size"),
        Int(8, 32_768, "ports"),
        Value("512"),
        PORTS,
        "1_024",
        "Ports in a block, a power of two. Only with `mode = \"blocks\"` or `overflow_ports`.",
    ),
    row(
        ("nat.ports", "blocks_per_subscriber"),
        Int(1, 16, "blocks"),
        Value("4"),
        PORTS,
        "8",
        "Most blocks that a subscriber holds at once. Only with `mode = \"blocks\"` or `overflow_ports`.",
    ),
    row(
        ("nat.ports", "block_idle_release"),
        Seconds(0, SECONDS_MAX),
        Value("60"),
        PORTS,
        "\"5m\"",
        "How long an empty block stays with its subscriber; 0 keeps it until the subscriber has no session left. Only \
         with `mode = \"blocks\"` or `overflow_ports`.",
    ),
    row(
        ("nat.ports", "ports_per_subscriber"),
        Int(1, 64_512, "ports"),
        Absent("the most that fit the pool"),
        PORTS,
        "2_016",
        "Ports of each subscriber. Only with `mode = \"deterministic\"`.",
    ),
    row(
        ("nat.ports", "overflow_ports"),
        Int(8, 65_528, "ports"),
        Absent("none: the subscriber's own ports are all he gets"),
        PORTS,
        "8_064",
        "The last so many ports of each outside address are no subscriber's own, but for those who have used up theirs \
         (RFC 7422 §2): given out by the block, as `block_size`, `blocks_per_subscriber` and `block_idle_release` say, \
         and logged. A multiple of `block_size`. Only with `mode = \"deterministic\"`.",
    ),
    row(
        ("nat.pool", "name"),
        Name,
        Required,
        PORTS,
        "\"public1\"",
        "Name of the pool, unique in the file and kept over reloads.",
    ),
    row(
        ("nat.pool", "addresses"),
        List(&Range, 4_096),
        Required,
        PORTS,
        "[\"192.0.2.0/28\", \"198.51.100.7-198.51.100.9\"]",
        "Outside addresses, at most 65,535 in all pools of an instance. The network beyond must route them to this router; on connected \
         subnets it answers ARP for them.",
    ),
    row(
        ("nat.pool", "ports"),
        Ports,
        Value("\"1024-65535\""),
        PORTS,
        "\"2048-65535\"",
        "Outside ports used for dynamic mappings. The system ports below 1024 are left out by default (RFC 7422 §2).",
    ),
    row(
        ("nat.limits", "sessions_max"),
        LIMIT,
        Value("0"),
        InPlace,
        "4_000",
        "Sessions of a subscriber (RFC 6888 REQ-5).",
    ),
    row(
        ("nat.limits", "ports_max"),
        LIMIT,
        Value("0"),
        InPlace,
        "2_000",
        "Outside ports of a subscriber, all protocols together (RFC 6888 REQ-4).",
    ),
    row(
        ("nat.limits", "ports_tcp_max"),
        LIMIT,
        Value("0"),
        InPlace,
        "1_500",
        "Outside TCP ports of a subscriber.",
    ),
    row(
        ("nat.limits", "ports_udp_max"),
        LIMIT,
        Value("0"),
        InPlace,
        "1_500",
        "Outside UDP ports of a subscriber.",
    ),
    row(
        ("nat.limits", "ports_icmp_max"),
        LIMIT,
        Value("0"),
        InPlace,
        "64",
        "ICMP identifiers of a subscriber.",
    ),
    row(
        ("nat.limits", "creations_per_s"),
        Count(0, LIMIT_MAX, "mappings a second"),
        Value("0"),
        InPlace,
        "200",
        "Mappings that a subscriber may create a second (RFC 6888 REQ-4).",
    ),
    row(
        ("nat.limits", "creations_burst"),
        Count(1, LIMIT_MAX, "mappings"),
        Absent("as `creations_per_s`"),
        InPlace,
        "400",
        "Mappings that it may create in one go. Only with `creations_per_s`.",
    ),
    row(
        ("nat.limits", "sessions_per_mapping_max"),
        LIMIT,
        Value("0"),
        InPlace,
        "500",
        "Sessions of one mapping (RFC 6888 REQ-5).",
    ),
    row(
        ("nat.limits", "mappings_threshold"),
        LIMIT,
        Value("0"),
        InPlace,
        "1_500",
        "Mappings of a subscriber, all protocols together, at which an event is raised; 0 for none. It is raised again when \
         they were an eighth fewer in between (RFC 8158 §4.6.8.3).",
    ),
    row(
        ("nat.limits", "paired_mappings_threshold"),
        LIMIT,
        Value("0"),
        InPlace,
        "2_000",
        "The same with an event of its own for `pooling = \"paired\"`, where all of them share one outside address: global \
         address mapping high threshold (RFC 8158 §4.6.8.4).",
    ),
    row(("nat.timeouts", "udp"), TIMEOUT, Value("300"), InPlace, "\"5m\"", "UDP (RFC 4787 REQ-5)."),
    row(
        ("nat.timeouts", "udp_port"),
        SecondsByPort(1, SECONDS_MAX),
        Value("{}"),
        InPlace,
        "{ 53 = \"10s\", 123 = \"10s\" }",
        "UDP to particular remote ports below 1024 (RFC 4787 REQ-5).",
    ),
    row(
        ("nat.timeouts", "tcp_established"),
        TIMEOUT,
        Value("7_440"),
        InPlace,
        "\"2h4m\"",
        "TCP with data able to flow (RFC 5382 REQ-5).",
    ),
    row(
        ("nat.timeouts", "tcp_opening"),
        TIMEOUT,
        Value("240"),
        InPlace,
        "\"4m\"",
        "TCP that has not finished its handshake (RFC 7857 §2.1).",
    ),
    row(
        ("nat.timeouts", "tcp_closing"),
        TIMEOUT,
        Value("240"),
        InPlace,
        "\"4m\"",
        "TCP after a FIN (RFC 7857 §2.1).",
    ),
    row(
        ("nat.timeouts", "tcp_reset"),
        TIMEOUT,
        Value("240"),
        InPlace,
        "\"4m\"",
        "TCP after a RST (RFC 7857 §2.2).",
    ),
    row(
        ("nat.timeouts", "tcp_unsolicited_syn"),
        TIMEOUT,
        Value("6"),
        InPlace,
        "6",
        "How long an unsolicited SYN from outside is held before it is refused (RFC 5382 REQ-4).",
    ),
    row(("nat.timeouts", "icmp"), TIMEOUT, Value("60"), InPlace, "\"1m\"", "ICMP queries (RFC 5508 REQ-2)."),
    row(
        ("nat.timeouts", "other"),
        TIMEOUT,
        Value("300"),
        InPlace,
        "\"5m\"",
        "Other protocols, under one-to-one mappings.",
    ),
    row(
        ("nat.one_to_one", "inside"),
        Range,
        Required,
        STATIC,
        "\"100.64.0.10-100.64.0.13\"",
        "Inside addresses, among `subscribers`.",
    ),
    row(
        ("nat.one_to_one", "outside"),
        Range,
        Required,
        STATIC,
        "\"203.0.113.10-203.0.113.13\"",
        "As many outside addresses, in no pool.",
    ),
    row(
        ("nat.forward", "proto"),
        Word(&["tcp", "udp", "icmp"]),
        Value("\"tcp\""),
        STATIC,
        "\"udp\"",
        "The protocol; for ICMP, ports are query identifiers.",
    ),
    row(
        ("nat.forward", "outside"),
        Endpoint,
        Required,
        STATIC,
        "\"192.0.2.1:8080\"",
        "Outside address and first port. The address is in one of the instance's pools, and its ports are taken out of the \
         pool; a host that has no outside address yet gets this one, if pooling is paired. The router's own address works \
         too, with a warning.",
    ),
    row(
        ("nat.forward", "inside"),
        HostEndpoint,
        Required,
        STATIC,
        "\"100.64.0.10:80\"",
        "Inside address, among `subscribers`, and first port. An IPv6 host, like `\"[2001:db8::10]:80\"`, is among those of \
         `[nat.nat64]` and sees who calls it behind the first of its prefixes.",
    ),
    row(
        ("nat.forward", "count"),
        Int(1, 65_535, "ports"),
        Value("1"),
        STATIC,
        "10",
        "Number of consecutive ports.",
    ),
];
