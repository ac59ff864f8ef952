use super::*;
use proptest::prelude::*;

/// The obvious reference: one 16-bit word at a time.
fn reference_sum(bytes: &[u8]) -> u16 {
    let mut total = 0u64;
    for pair in bytes.chunks(2) {
        total += u64::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
    }
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

/// Values at which ones-complement arithmetic has its two zeros, and their neighbours.
const CORNERS: [u16; 9] = [0, 1, 0x00ff, 0x5555, 0x7fff, 0x8000, 0xff00, 0xfffe, 0xffff];

#[test]
fn rfc_1624_example_yields_plus_zero() {
    assert_eq!(Delta::of_u16(0x5555, 0x3285).apply(0xdd2f), 0x0000);
}

#[test]
fn incremental_update_equals_recomputation_at_every_corner() {
    for rest in CORNERS {
        for old in CORNERS {
            for new in CORNERS {
                // A header has at least one field that is not zero: RFC 1624 §3 relies on it.
                let fixed = Sum::ZERO.with_u16(rest).with_u16(0x4500);
                let before = fixed.with_u16(old).checksum();
                let after = fixed.with_u16(new).checksum();
                assert_eq!(Delta::of_u16(old, new).apply(before), after, "{rest:x} {old:x}->{new:x}");
                let udp_before = fixed.with_u16(old).udp_checksum();
                let udp_after = fixed.with_u16(new).udp_checksum();
                assert_eq!(Delta::of_u16(old, new).apply_udp(udp_before), udp_after);
            }
        }
    }
}

#[test]
fn every_16_bit_value_to_and_from_the_corners_is_exact() {
    for corner in CORNERS {
        for value in 0..=u16::MAX {
            let fixed = Sum::ZERO.with_u16(0x4011);
            let a = fixed.with_u16(corner).checksum();
            let b = fixed.with_u16(value).checksum();
            assert_eq!(Delta::of_u16(corner, value).apply(a), b);
            assert_eq!(Delta::of_u16(value, corner).apply(b), a);
            assert_eq!(Delta::of_u16(corner, value).negated().apply(b), a);
        }
    }
}

#[test]
fn absent_udp_checksum_stays_absent_and_a_present_one_never_becomes_absent() {
    for delta in 0..=u16::MAX {
        assert_eq!(Delta::from_bits(delta).apply_udp(0), 0);
        for present in [1, 0x7fff, 0xfffe, 0xffff, !delta, delta | 1] {
            if present != 0 {
                assert_ne!(Delta::from_bits(delta).apply_udp(present), 0);
            }
        }
    }
}

proptest! {
    #[test]
    fn fast_sum_equals_the_obvious_one(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        prop_assert_eq!(sum(&bytes), reference_sum(&bytes));
    }

    #[test]
    fn sum_of_extreme_bytes_does_not_lose_a_carry(
        bytes in proptest::collection::vec(prop_oneof![Just(0u8), Just(0xffu8)], 0..200)
    ) {
        prop_assert_eq!(sum(&bytes), reference_sum(&bytes));
    }

    #[test]
    fn changed_address_and_port_are_exact_and_reversible(
        old in any::<u32>(), new in any::<u32>(), port in any::<u16>(), new_port in any::<u16>(),
        rest in 1u16..=0xffff,
    ) {
        let fixed = Sum::ZERO.with_u16(rest);
        let before = fixed.with_u32(old).with_u16(port).checksum();
        let after = fixed.with_u32(new).with_u16(new_port).checksum();
        let delta = Delta::of_u32(old, new).plus(Delta::of_u16(port, new_port));
        prop_assert_eq!(delta.apply(before), after);
        prop_assert_eq!(delta.negated().apply(after), before);
        prop_assert_eq!(Delta::from_bits(delta.to_bits()), delta);
    }

    #[test]
    fn field_at_an_odd_offset_is_exact(mut bytes in proptest::collection::vec(any::<u8>(), 9..40), new in any::<u16>()) {
        bytes[0] |= 1;
        let before = checksum(&bytes);
        let old = u16::from_be_bytes([bytes[3], bytes[4]]);
        bytes[3..5].copy_from_slice(&new.to_be_bytes());
        prop_assert_eq!(Delta::of_u16_at_odd_offset(old, new).apply(before), checksum(&bytes));
    }

    #[test]
    fn checksummed_bytes_verify(mut bytes in proptest::collection::vec(any::<u8>(), 4..64), flip in any::<u8>()) {
        bytes[2..4].fill(0);
        let value = checksum(&bytes);
        bytes[2..4].copy_from_slice(&value.to_be_bytes());
        prop_assert!(verify(&bytes) || bytes.iter().all(|b| *b == 0));
        let at = flip as usize % bytes.len();
        bytes[at] ^= 0x10;
        prop_assert!(!verify(&bytes));
    }
}

proptest! {
    #[test]
    fn pseudo_headers_of_both_versions_differ_by_their_addresses(
        old in any::<(u32, u32)>(), new in any::<(u128, u128)>(), payload in proptest::collection::vec(any::<u8>(), 1..99),
    ) {
        let length = payload.len() as u16;
        let four = pseudo_v4(old.0, old.1, 17, length).with_bytes(&payload).checksum();
        let six = pseudo_v6(new.0, new.1, 17, length.into()).with_bytes(&payload).checksum();
        let old = Sum::ZERO.with_u32(old.0).with_u32(old.1);
        let new = Sum::ZERO.with_u128(new.0).with_u128(new.1);
        prop_assert_eq!(Delta::of_sums(old, new).apply(four), six);
        prop_assert_eq!(Delta::of_sums(new, old).apply(six), four);
    }

    #[test]
    fn sum_of_changes_updates_as_their_deltas_do(
        old in any::<(u32, u128)>(), new in any::<(u32, u128)>(), rest in 1u16..,
    ) {
        let field = |(a, b): (u32, u128)| Sum::ZERO.with_u16(rest).with_u32(a).with_u128(b);
        let changes = Sum::ZERO.without_u32(old.0).with_u32(new.0).without_u128(old.1).with_u128(new.1);
        let before = field(old);
        prop_assert_eq!(changes.update(before.checksum()), field(new).checksum());
        prop_assert_eq!(changes.update_udp(before.udp_checksum()), field(new).udp_checksum());
        prop_assert_eq!(changes.update_udp(0), 0);
    }

    #[test]
    fn field_of_128_bits_counts_as_its_octets(old in any::<u128>(), new in any::<u128>()) {
        prop_assert_eq!(Sum::ZERO.with_u128(old).fold(), reference_sum(&old.to_be_bytes()));
        let rest = Sum::ZERO.with_u16(1);
        let delta = Delta::of_u128(old, new);
        prop_assert_eq!(delta.apply(rest.with_u128(old).checksum()), rest.with_u128(new).checksum());
    }
}

/// RFC 792, RFC 1624 §3: an echo reply with identifier, number and data of zeros alone is right after an update, too.
#[test]
fn an_update_to_a_message_of_zeros_is_right() {
    for data in [vec![], vec![0; 6], vec![0xff, 0xff]] {
        let mut message = [&[0, 0, 0, 0, 0x12, 0x34, 0, 0], &data[..]].concat();
        let checksum = Sum::ZERO.with_bytes(&message).checksum();
        message[2..4].copy_from_slice(&checksum.to_be_bytes());
        message[4..6].fill(0);
        Delta::of_u16(0x1234, 0).apply_icmp(&mut message);
        assert_eq!(Sum::ZERO.with_bytes(&message).fold(), 0xffff, "{message:x?}");
    }
    let mut short = [0; 7];
    Delta::of_u16(1, 2).apply_icmp(&mut short);
    assert_eq!(short, [0; 7]);
}
