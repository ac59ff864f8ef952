use super::*;

fn v4(text: &str) -> u32 {
    text.parse::<std::net::Ipv4Addr>().unwrap().into()
}

#[test]
fn first_and_last_address_of_every_block_are_not_global_and_their_neighbours_are() {
    // RFC 6052 §3.1
    for (network, len) in NON_GLOBAL {
        let last = network | u32::MAX.checked_shr(len).unwrap_or(0);
        assert!(!is_global(network) && !is_global(last), "{network:x}/{len}");
    }
    for text in ["1.0.0.0", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255"] {
        assert!(is_global(v4(text)), "{text}");
    }
    for text in ["128.0.0.0", "172.15.255.255", "172.32.0.0", "192.0.1.0", "198.20.0.0", "223.255.255.255"] {
        assert!(is_global(v4(text)), "{text}");
    }
}

#[test]
fn packets_from_nobody_are_told_apart() {
    // RFC 7915 §4.1 and §5.1
    for text in ["0.0.0.0", "127.0.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255"] {
        assert!(is_illegal_source_v4(v4(text)), "{text}");
    }
    assert!(!is_illegal_source_v4(v4("10.0.0.1")));
    for text in ["::", "::1", "ff02::1", "::ffff:192.0.2.1"] {
        assert!(is_illegal_source_v6(text.parse::<std::net::Ipv6Addr>().unwrap().to_bits()), "{text}");
    }
    assert!(!is_illegal_source_v6(0x2001_0db8 << 96 | 1));
}
