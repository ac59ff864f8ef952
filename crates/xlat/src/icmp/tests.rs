use super::*;

fn v6(kind: u8, code: u8, rest: u32) -> Option<Head> {
    Some(Head { kind, code, rest })
}

fn from_v4(kind: u8, code: u8, rest: u32) -> Option<Head> {
    error_head_to_v6(Head { kind, code, rest }, 1500, Mtus::UNKNOWN)
}

fn from_v6(kind: u8, code: u8, rest: u32) -> Option<Head> {
    error_head_to_v4(Head { kind, code, rest }, false, Mtus::UNKNOWN)
}

#[test]
fn every_row_of_the_table_to_icmpv6_holds() {
    // RFC 7915 §4.2
    let rows: [(u8, u8, Option<Head>); 28] = [
        (3, 0, v6(1, 0, 0)),
        (3, 1, v6(1, 0, 0)),
        (3, 2, v6(4, 1, 6)),
        (3, 3, v6(1, 4, 0)),
        (3, 5, v6(1, 0, 0)),
        (3, 6, v6(1, 0, 0)),
        (3, 7, v6(1, 0, 0)),
        (3, 8, v6(1, 0, 0)),
        (3, 9, v6(1, 1, 0)),
        (3, 10, v6(1, 1, 0)),
        (3, 11, v6(1, 0, 0)),
        (3, 12, v6(1, 0, 0)),
        (3, 13, v6(1, 1, 0)),
        (3, 14, None),
        (3, 15, v6(1, 1, 0)),
        (3, 16, None),
        (3, 255, None),
        (4, 0, None),
        (5, 0, None),
        (5, 1, None),
        (6, 0, None),
        (11, 0, v6(3, 0, 0)),
        (11, 1, v6(3, 1, 0)),
        (12, 0, v6(4, 0, 0)),
        (12, 1, None),
        (12, 2, v6(4, 0, 0)),
        (12, 3, None),
        (40, 0, None),
    ];
    for (kind, code, expected) in rows {
        assert_eq!(from_v4(kind, code, 0), expected, "type {kind} code {code}");
    }
    assert_eq!(from_v4(3, 4, 1400), v6(2, 0, 1420));
    for kind in (0..=255).filter(|kind| ![3, 11, 12].contains(kind)) {
        assert_eq!(from_v4(kind, 0, 0), None, "type {kind}");
    }
}

#[test]
fn every_row_of_the_table_to_icmpv4_holds() {
    // RFC 7915 §5.2
    let rows: [(u8, u8, Option<Head>); 17] = [
        (1, 0, v6(3, 1, 0)),
        (1, 1, v6(3, 10, 0)),
        (1, 2, v6(3, 1, 0)),
        (1, 3, v6(3, 1, 0)),
        (1, 4, v6(3, 3, 0)),
        (1, 5, None),
        (1, 6, None),
        (1, 255, None),
        (3, 0, v6(11, 0, 0)),
        (3, 1, v6(11, 1, 0)),
        (4, 0, v6(12, 0, 0)),
        (4, 1, v6(3, 2, 0)),
        (4, 2, None),
        (4, 3, None),
        (5, 0, None),
        (100, 0, None),
        (127, 0, None),
    ];
    for (kind, code, expected) in rows {
        assert_eq!(from_v6(kind, code, 0), expected, "type {kind} code {code}");
    }
    assert_eq!(from_v6(2, 0, 1400), v6(3, 4, 1380));
    for kind in (0..=255).filter(|kind| ![1, 2, 3, 4].contains(kind)) {
        assert_eq!(from_v6(kind, 0, 0), None, "type {kind}");
    }
}

#[test]
fn every_pointer_is_that_of_figure_3() {
    // RFC 7915 §4.2, figure 3
    for pointer in 0..=255u32 {
        let expected = match pointer {
            0 => Some(0),
            1 => Some(1),
            2 | 3 => Some(4),
            8 => Some(7),
            9 => Some(6),
            12..=15 => Some(8),
            16..=19 => Some(24),
            _ => None,
        };
        for code in [0, 2] {
            let found = from_v4(12, code, pointer << 24 | 0x12_3456);
            assert_eq!(found, expected.and_then(|rest| v6(4, 0, rest)), "pointer {pointer}");
        }
    }
}

#[test]
fn every_pointer_is_that_of_figure_6() {
    // RFC 7915 §5.2, figure 6
    for pointer in (0..=300).chain([u32::MAX, 1 << 24]) {
        let expected = match pointer {
            0 => Some(0),
            1 => Some(1),
            4 | 5 => Some(2),
            6 => Some(9),
            7 => Some(8),
            8..=23 => Some(12),
            24..=39 => Some(16),
            _ => None,
        };
        let found = from_v6(4, 0, pointer);
        assert_eq!(found, expected.and_then(|octet: u32| v6(12, 0, octet << 24)), "pointer {pointer}");
    }
}

#[test]
fn mtu_to_ipv6_is_never_below_1280_and_never_above_what_the_next_hops_take() {
    // RFC 7915 §4.2
    let unknown = Mtus::UNKNOWN;
    for (mtu, total_length, mtus, expected) in [
        (1400, 1500, unknown, 1420),
        (576, 1500, unknown, 1280),
        (1260, 1500, unknown, 1280),
        (1261, 1500, unknown, 1281),
        (9000, 9100, Mtus { v4: 1500, v6: u16::MAX }, 1520),
        (9000, 9100, Mtus { v4: 1500, v6: 1500 }, 1500),
        (9000, 9100, Mtus { v4: 68, v6: 1500 }, 1280),
        (65_535, 65_535, unknown, 65_535),
        // Zero: the greatest plateau of RFC 1191 §7 below the total length, but not below 1280.
        (0, 65_535, unknown, 32_000),
        (0, 32_000, unknown, 17_914),
        (0, 1500, unknown, 1492),
        (0, 1492, unknown, 1280),
        (0, 0, unknown, 1280),
        (0, 9000, Mtus { v4: 1500, v6: 1500 }, 1500),
    ] {
        assert_eq!(mtu_to_v6(mtu, total_length, mtus), expected, "{mtu} of {total_length} by {mtus:?}");
    }
}

#[test]
fn mtu_to_ipv4_leaves_room_for_the_longer_header_and_the_fragment_header() {
    // RFC 7915 §5.2
    let unknown = Mtus::UNKNOWN;
    for (mtu, has_fragment_header, mtus, expected) in [
        (1500, false, unknown, 1480),
        (1500, true, unknown, 1472),
        (1500, false, Mtus { v4: 1400, v6: 1500 }, 1400),
        (1500, false, Mtus { v4: 1500, v6: 1300 }, 1280),
        (1280, false, unknown, 1260),
        // RFC 8201 §4: less is not to be believed.
        (68, false, unknown, 1260),
        (0, true, unknown, 1252),
        (u32::MAX, false, unknown, 65_515),
    ] {
        assert_eq!(
            mtu_to_v4(mtu, has_fragment_header, mtus),
            expected,
            "{mtu} {has_fragment_header} {mtus:?}"
        );
    }
}
