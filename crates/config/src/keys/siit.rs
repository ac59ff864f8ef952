//! Keys of stateless translators.

use super::Effect::{InPlace, ReDerived};
use super::Fallback::{Required, Value};
use super::Kind::{Flag, List, Mapping, Name, Prefix, Prefix6, Range, Word};
use super::{Effect, KeyInfo, SectionInfo, list, row};

const ROUTES: Effect = ReDerived("the routing table");

pub(super) const SECTIONS: &[SectionInfo] = &[list(
    "siit",
    ROUTES,
    "A stateless translator between IPv6 and IPv4 (SIIT, RFC 7915), for IPv6 hosts that have IPv4 addresses of their own \
     and for NAT46: IPv4 clients call the IPv4 address that `eam` or `ipv4` gives an IPv6 server, and the server sees them \
     behind the first of `prefixes`. `[[nat.forward]]` is NAT46 of single ports of a NAT64's pool. IPv6 packets to a \
     prefix and IPv4 packets to a mapped address or block go through it, unless a more specific route leads elsewhere. It \
     keeps no sessions.",
)];

const SIIT: &str = "siit";

pub(super) const KEYS: &[KeyInfo] = &[
    row((SIIT, "name"), Name, Required, ROUTES, "\"siit-dc\"", "Name of the translator."),
    row(
        (SIIT, "vrf"),
        Name,
        Value("\"default\""),
        ROUTES,
        "\"datacentre\"",
        "The routing instance of both its sides.",
    ),
    row(
        (SIIT, "prefixes"),
        List(&Prefix6, carrack_xlat::siit::PREFIXES_MAX),
        Value("[]"),
        ROUTES,
        "[\"64:ff9b:1::/96\"]",
        "Prefixes of 32, 40, 48, 56, 64 or 96 bits that stand for IPv4 (RFC 6052 §2.2); to IPv6 the first is used.",
    ),
    row(
        (SIIT, "ipv4"),
        List(&Prefix, 4_096),
        Value("[]"),
        ROUTES,
        "[\"198.51.100.0/24\"]",
        "IPv4 addresses that IPv6 hosts have by the first prefix (IPv4-translatable addresses, RFC 6052 §2.2). A route to \
         the hosts must be more specific than the prefix.",
    ),
    row(
        (SIIT, "eam"),
        List(&Mapping, carrack_xlat::eam::ENTRIES_MAX),
        Value("[]"),
        ROUTES,
        "[{ v4 = \"192.0.2.0/28\", v6 = \"2001:db8:46::/124\" }]",
        "Explicit address mappings (RFC 7757): the bits behind the prefixes are the same on both sides. They go before the \
         prefixes; the longest decides. Hosts within a prefix are routed to more specifically than the prefix.",
    ),
    row(
        (SIIT, "eam_hosts"),
        Word(&["ipv6", "ipv4"]),
        Value("\"ipv6\""),
        ROUTES,
        "\"ipv4\"",
        "On which side the hosts of `eam` are. IPv4 packets to the addresses of IPv6 hosts go through the translator (servers, \
         RFC 7755). IPv6 packets to those of IPv4 hosts do, and none to the prefixes, which are routed to the next translator \
         (the customer's side of 464XLAT, RFC 6877).",
    ),
    row(
        (SIIT, "icmp_sources"),
        List(&Range, 64),
        Value("[]"),
        ROUTES,
        "[\"192.0.2.250-192.0.2.253\"]",
        "IPv4 sources of ICMP errors from IPv6 routers that have no IPv4 address (RFC 6791); without any, such errors are \
         dropped, but for those of this router, which come from its own address. What is sent to these addresses is discarded \
         (route-blackhole).",
    ),
    row(
        (SIIT, "reveal_icmp_source"),
        Flag,
        Value("false"),
        InPlace,
        "true",
        "Errors from `icmp_sources` tell the router's IPv6 address in an extension (RFC 6791 §4, RFC 5837).",
    ),
    row(
        (SIIT, "hairpinning"),
        Flag,
        Value("true"),
        InPlace,
        "false",
        "IPv6 hosts with explicit mappings reach each other by their IPv4 addresses behind the prefix (RFC 7757 §4.2.1).",
    ),
];
