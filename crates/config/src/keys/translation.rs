//! Keys of the translation of headers between IPv6 and IPv4, which both kinds of translators have.

use super::Effect::InPlace;
use super::Fallback::{Absent, Value};
use super::Kind::{Flag, Int, Word};
use super::{KeyInfo, row};

/// Of a stateful translator.
pub(super) const NAT64_KEYS: &[KeyInfo] = &keys_of("nat.nat64");
/// Of a stateless one.
pub(super) const SIIT_KEYS: &[KeyInfo] = &keys_of("siit");

const fn keys_of(section: &'static str) -> [KeyInfo; 4] {
    [
        row(
            (section, "tos"),
            Int(0, 255, ""),
            Absent("copied from the traffic class"),
            InPlace,
            "0",
            "Type of service of all IPv4 packets made (RFC 7915 §5.1).",
        ),
        row(
            (section, "zero_traffic_class"),
            Flag,
            Value("false"),
            InPlace,
            "true",
            "The traffic class is zero instead of the type of service (RFC 7915 §4.1).",
        ),
        row(
            (section, "lowest_ipv6_mtu"),
            Int(1_280, 9_600, "bytes"),
            Value("1_280"),
            InPlace,
            "1_500",
            "What every link of the IPv6 network takes: IPv4 packets that may be fragmented are cut to it (RFC 7915 §4.1).",
        ),
        row(
            (section, "zero_checksum_udp"),
            Word(&["compute", "drop"]),
            Value("\"compute\""),
            InPlace,
            "\"drop\"",
            "UDP over IPv4 without a checksum gets one, or is dropped (RFC 7915 §4.5). Fragments of it wait for one another in a NAT64 (RFC 6146 §3.4); a stateless translator always drops them.",
        ),
    ]
}
