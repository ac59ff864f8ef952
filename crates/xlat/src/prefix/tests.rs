use super::*;
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};

fn nat(text: &str) -> Result<NatPrefix, BadPrefix> {
    NatPrefix::new(text.parse().unwrap())
}

fn v6(text: &str) -> u128 {
    text.parse::<Ipv6Addr>().unwrap().to_bits()
}

fn v4(text: &str) -> u32 {
    text.parse::<Ipv4Addr>().unwrap().to_bits()
}

#[test]
fn both_tables_of_rfc_6052_hold_both_ways() {
    // RFC 6052 §2.3, §2.4, table 1; table 2 pairs the well-known prefix with a documentation address, which §3.1 forbids.
    for (prefix, expected) in [
        ("2001:db8::/32", "2001:db8:c000:221::"),
        ("2001:db8:100::/40", "2001:db8:1c0:2:21::"),
        ("2001:db8:122::/48", "2001:db8:122:c000:2:2100::"),
        ("2001:db8:122:300::/56", "2001:db8:122:3c0:0:221::"),
        ("2001:db8:122:344::/64", "2001:db8:122:344:c0:2:2100::"),
        ("2001:db8:122:344::/96", "2001:db8:122:344::192.0.2.33"),
        ("64:ff9b::/96", "64:ff9b::192.0.2.33"),
    ] {
        let prefix = nat(prefix).unwrap();
        assert_eq!(prefix.embed(v4("192.0.2.33")), v6(expected), "{expected}");
        assert_eq!(prefix.extract_unchecked(v6(expected)), v4("192.0.2.33"), "{expected}");
        let checked = if prefix.is_well_known() { Err(NotEmbedded::NonGlobal) } else { Ok(v4("192.0.2.33")) };
        assert_eq!(prefix.extract(v6(expected)), checked);
    }
}

#[test]
fn examples_of_rfc_7915_hold() {
    // RFC 7915 appendix A
    let prefix = nat("2001:db8:100::/40").unwrap();
    assert_eq!(prefix.embed(v4("198.51.100.2")), v6("2001:db8:1c6:3364:2::"));
    assert_eq!(prefix.extract(v6("2001:db8:1c0:2:21::")), Ok(v4("192.0.2.33")));
}

#[test]
fn a_block_of_ipv4_is_one_prefix_of_ipv6() {
    // RFC 6052 §2.2: octet u is among the bits as soon as some of the address are behind it.
    for (prefix, block, expected) in [
        ("2001:db8:122:344::/96", "198.51.100.0/24", "2001:db8:122:344::198.51.100.0/120"),
        ("2001:db8::/32", "198.51.100.0/24", "2001:db8:c633:6400::/56"),
        ("2001:db8::/32", "198.51.100.2/32", "2001:db8:c633:6402::/64"),
        ("2001:db8:100::/40", "198.51.100.0/24", "2001:db8:1c6:3364::/64"),
        ("2001:db8:100::/40", "198.51.100.128/25", "2001:db8:1c6:3364:80::/73"),
        ("2001:db8:122:344::/64", "0.0.0.0/0", "2001:db8:122:344::/64"),
        ("2001:db8:122:344::/64", "198.51.100.0/24", "2001:db8:122:344:c6:3364::/96"),
    ] {
        let block: Prefix4 = block.parse().unwrap();
        let made = nat(prefix).unwrap().embed_prefix(block);
        assert_eq!(made, expected.parse().unwrap(), "{prefix} {block}");
        assert!(made.contains(nat(prefix).unwrap().embed(block.last())));
    }
}

#[test]
fn well_known_prefix_is_for_global_addresses_only() {
    // RFC 6052 §3.1
    let prefix = nat("64:ff9b::/96").unwrap();
    assert_eq!(prefix.extract(v6("64:ff9b::10.0.0.1")), Err(NotEmbedded::NonGlobal));
    assert_eq!(prefix.embed_checked(v4("10.0.0.1")), Err(NotEmbedded::NonGlobal));
    assert_eq!(prefix.extract(v6("64:ff9b::8.8.8.8")), Ok(v4("8.8.8.8")));
    assert_eq!(prefix.embed_checked(v4("8.8.8.8")), Ok(v6("64:ff9b::8.8.8.8")));
    let local = nat("64:ff9b:1::/96").unwrap();
    assert!(LOCAL_USE.contains(local.prefix().address()));
    assert_eq!(local.extract(v6("64:ff9b:1::10.0.0.1")), Ok(v4("10.0.0.1")), "RFC 8215");
    assert!(nat("64:ff9b:1:fffe::/64").unwrap().embed_checked(v4("10.0.0.1")).is_ok());
}

#[test]
fn octet_u_and_suffix_of_what_is_received_are_ignored() {
    // RFC 6052 §2.2
    let prefix = nat("2001:db8:122:300::/56").unwrap();
    assert_eq!(prefix.extract(v6("2001:db8:122:3c0:ff00:221:ffff:ffff")), Ok(v4("192.0.2.33")));
}

#[test]
fn prefixes_that_cannot_be_used_are_refused_by_name() {
    // RFC 6052 §2.1, §2.2
    assert_eq!(nat("2001:db8::/33"), Err(BadPrefix::Length(33)));
    assert_eq!(nat("::/0"), Err(BadPrefix::Length(0)));
    assert_eq!(nat("2001:db8:0:0:100::/96"), Err(BadPrefix::OctetU));
    assert!(nat("2001:db8:0:0:1::/96").is_ok());
    assert_eq!(nat("64:ff9b::/64"), Err(BadPrefix::NotWellKnown));
    assert_eq!(nat("64:ff9b::/32"), Err(BadPrefix::NotWellKnown));
    assert_eq!(nat("fe80::/64"), Err(BadPrefix::NotUnicast));
    assert_eq!(nat("ff0e::/32"), Err(BadPrefix::NotUnicast));
    assert_eq!(nat("::/96"), Err(BadPrefix::NotUnicast));
}

proptest! {
    #[test]
    fn every_address_comes_back_from_every_length(
        bits in any::<u128>(), len in proptest::sample::select(&LENGTHS), address in any::<u32>(), noise in any::<u128>(),
    ) {
        let network = 0x2001_0db8 << 96 | (bits & !U & (u128::MAX >> 32));
        let prefix = NatPrefix::new(Prefix6::of(network, len)).unwrap();
        let embedded = prefix.embed(address);
        prop_assert!(prefix.contains(embedded));
        prop_assert_eq!(prefix.extract(embedded), Ok(address));
        prop_assert_eq!(embedded & U, 0);
        // The reference: octet by octet, past `u`.
        let mut octets = prefix.prefix().address().to_be_bytes();
        let mut at = usize::from(len / 8);
        for octet in address.to_be_bytes() {
            at += usize::from(at == 8);
            octets[at] = octet;
            at += 1;
        }
        prop_assert_eq!(embedded, u128::from_be_bytes(octets));
        prop_assert_eq!(prefix.extract(noise).is_ok(), prefix.prefix().contains(noise));
        // Of all addresses of the prefix, those that stand for an IPv4 address and have nothing beside it.
        let inside = prefix.prefix().address() | (noise & (u128::MAX >> len));
        let is_canonical = prefix.embed(prefix.extract_unchecked(inside)) == inside;
        prop_assert_eq!(prefix.is_canonical(inside), is_canonical);
        prop_assert!(prefix.is_canonical(embedded));
    }
}
