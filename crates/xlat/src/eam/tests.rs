use super::*;
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};

fn entry(v4: &str, v6: &str) -> Entry {
    Entry { v4: v4.parse().unwrap(), v6: v6.parse().unwrap() }
}

fn v6(text: &str) -> u128 {
    text.parse::<Ipv6Addr>().unwrap().to_bits()
}

fn v4(text: &str) -> u32 {
    text.parse::<Ipv4Addr>().unwrap().to_bits()
}

/// RFC 7757 figure 1, its last hosts within this prefix, which is the well-known one there.
pub(crate) fn figure_1(prefix: &str) -> EamTable {
    EamTable::new(&[
        entry("192.0.2.1", "2001:db8:aaaa::"),
        entry("192.0.2.2/32", "2001:db8:bbbb::b/128"),
        entry("192.0.2.16/28", "2001:db8:cccc::/124"),
        entry("192.0.2.128/26", "2001:db8:dddd::/64"),
        entry("192.0.2.192/29", "2001:db8:eeee:8::/62"),
        entry("192.0.2.224/31", &format!("{prefix}/127")),
    ])
    .unwrap()
}

/// RFC 7757 figure 7, but for the hosts within the prefix: IPv4 and IPv6 address.
pub(crate) const FIGURE_7: [(&str, &str); 10] = [
    ("192.0.2.1", "2001:db8:aaaa::"),
    ("192.0.2.2", "2001:db8:bbbb::b"),
    ("192.0.2.16", "2001:db8:cccc::"),
    ("192.0.2.24", "2001:db8:cccc::8"),
    ("192.0.2.31", "2001:db8:cccc::f"),
    ("192.0.2.128", "2001:db8:dddd::"),
    ("192.0.2.152", "2001:db8:dddd:0:6000::"),
    ("192.0.2.183", "2001:db8:dddd:0:dc00::"),
    ("192.0.2.191", "2001:db8:dddd:0:fc00::"),
    ("192.0.2.195", "2001:db8:eeee:9:8000::"),
];

#[test]
fn examples_of_rfc_7757_hold_both_ways() {
    // RFC 7757 §3.3, §3.3.1, §3.3.2 and appendix B, figure 7
    let table = figure_1("64:ff9b::");
    for (four, six) in FIGURE_7.into_iter().chain([("192.0.2.225", "64:ff9b::1")]) {
        assert_eq!(table.to_v6(v4(four)), Some(v6(six)), "{four}");
        assert_eq!(table.to_v4(v6(six)), Some(v4(four)), "{six}");
    }
    assert_eq!((table.to_v6(v4("192.0.2.248")), table.to_v4(v6("64:ff9b::c000:2f8"))), (None, None));
    assert!(table.has_v4(v4("192.0.2.31")) && !table.has_v4(v4("192.0.2.32")));
    assert_eq!(table.overlaps(10), []);
}

#[test]
fn bits_that_do_not_fit_are_discarded() {
    // RFC 7757 §3.3.2 step 5
    let table = figure_1("64:ff9b::");
    assert_eq!(table.to_v4(v6("2001:db8:dddd:0:63ff:ffff:ffff:ffff")), Some(v4("192.0.2.152")));
}

#[test]
fn longest_prefix_decides_each_way_and_the_overlap_is_told() {
    // RFC 7757 §5, figure 2
    let (all, one) = (entry("0.0.0.0/0", "2001:db8:ff00::/40"), entry("198.51.100.64", "2001:db8::abcd"));
    let table = EamTable::new(&[one, all]).unwrap();
    assert_eq!(table.to_v6(v4("198.51.100.63")), Some(v6("2001:db8:ffc6:3364:3f00::")));
    assert_eq!(table.to_v6(v4("198.51.100.64")), Some(v6("2001:db8::abcd")));
    assert_eq!(table.to_v6(v4("198.51.100.65")), Some(v6("2001:db8:ffc6:3364:4100::")));
    assert_eq!(table.to_v6(u32::MAX), Some(v6("2001:db8:ffff:ffff:ff00::")));
    assert_eq!(table.to_v4(v6("2001:db8:ffc6:3364:4000::")), Some(v4("198.51.100.64")));
    assert_eq!(table.overlaps(10), [(all, one)]);
    assert_eq!(table.overlaps(0), []);
}

#[test]
fn tables_that_cannot_be_used_are_refused_by_name() {
    // RFC 7757 §3.2; RFC 7757 §5, figure 3
    let (a, b) = (entry("198.51.100.8", "2001:db8::1"), entry("198.51.100.9", "2001:db8::1"));
    assert_eq!(EamTable::new(&[a, b]).err(), Some(BadTable::SameV6(a, b)));
    let c = entry("198.51.100.8", "2001:db8::2");
    assert_eq!(EamTable::new(&[a, c]).err(), Some(BadTable::SameV4(a, c)));
    let short = entry("192.0.2.0/24", "2001:db8::/121");
    assert_eq!(EamTable::new(&[a, short]).err(), Some(BadTable::SuffixTooShort(short)));
    assert!(
        BadTable::SuffixTooShort(short).to_string().contains("by 1 "),
        "{}",
        BadTable::SuffixTooShort(short)
    );
    assert!(EamTable::new(&[entry("192.0.2.0/24", "2001:db8::/120")]).is_ok());
    let many = vec![a; ENTRIES_MAX + 1];
    assert_eq!(EamTable::new(&many).err(), Some(BadTable::TooMany(65_537)));
    assert_eq!(EamTable::new(&[]).unwrap().to_v6(1), None);
}

proptest! {
    #[test]
    fn search_finds_what_looking_at_every_entry_finds(
        raw in proptest::collection::vec((any::<u32>(), 0u8..=32, any::<u128>(), 0u8..=128), 0..12),
        probes in proptest::collection::vec((any::<u32>(), any::<u128>()), 20),
    ) {
        // Few distinct leading bits, so that prefixes nest.
        let entries: Vec<Entry> = raw
            .iter()
            .map(|(a, l, b, m)| Entry { v4: Prefix4::of(a & 0x8080_00ff, *l), v6: Prefix6::of(b & (0x8080 << 112 | 0xff), *m) })
            .filter(|entry| entry.surplus().is_some())
            .collect();
        let Ok(table) = EamTable::new(&entries) else { return Ok(()) };
        let edges = entries.iter().flat_map(|e| {
            [(e.v4.address(), e.v6.address()), (e.v4.last(), e.v6.last()), (e.v4.last().wrapping_add(1), e.v6.last().wrapping_add(1))]
        });
        for (four, six) in probes.into_iter().chain(edges) {
            let best = entries.iter().filter(|e| e.v4.contains(four)).max_by_key(|e| e.v4.len());
            let expected = best.map(|e| {
                let suffix = u128::from(four) & !(u128::MAX << (32 - u32::from(e.v4.len())));
                e.v6.address() | suffix.unbounded_shl(u32::from(96 + e.v4.len() - e.v6.len()))
            });
            prop_assert_eq!(table.to_v6(four), expected);
            let best = entries.iter().filter(|e| e.v6.contains(six)).max_by_key(|e| e.v6.len());
            prop_assert_eq!(table.to_v4(six).is_some(), best.is_some());
            if let (Some(entry), Some(found)) = (best, table.to_v4(six)) {
                prop_assert!(entry.v4.contains(found));
            }
        }
        for (outer, inner) in table.overlaps(100) {
            prop_assert!(outer.v4.range().overlaps(inner.v4.range()) || outer.v6.overlaps(inner.v6));
        }
    }
}
