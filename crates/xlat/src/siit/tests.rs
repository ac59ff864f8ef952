use super::*;
use crate::eam::tests::FIGURE_7;
use carrack_wire::PacketBuilder;
use std::net::{Ipv4Addr, Ipv6Addr};

const ROOM: usize = 100;
const DICE: Dice = Dice { identification: 7, random: 0 };

fn v6(text: &str) -> u128 {
    text.parse::<Ipv6Addr>().unwrap().to_bits()
}

fn v4(text: &str) -> u32 {
    text.parse::<Ipv4Addr>().unwrap().to_bits()
}

/// RFC 7757, appendix B.1: the table of figure 1, whose last hosts are within the prefix, and one source of errors.
fn figure_1(prefix: &str) -> Siit {
    Siit {
        prefixes: vec![NatPrefix::new(format!("{prefix}/96").parse().unwrap()).unwrap()],
        eam: crate::eam::tests::figure_1(prefix),
        icmp_sources: vec![Range4 { first: v4("198.51.100.1"), last: v4("198.51.100.1") }],
        ..Siit::default()
    }
}

/// The examples put the well-known prefix before addresses for documentation, which RFC 6052 §3.1 forbids; the local-use
/// prefix stands in for it.
fn translator() -> Siit {
    figure_1("64:ff9b:1::")
}

/// A network whose links take this much, and the router's own addresses in it.
struct Links {
    mtu4: u16,
    mtu6: u16,
    own4: Option<u32>,
    own6: Option<u128>,
}

const WIDE: Links = Links { mtu4: u16::MAX, mtu6: u16::MAX, own4: None, own6: None };

impl Around for Links {
    fn mtu4(&self, _: u32) -> u16 {
        self.mtu4
    }

    fn mtu6(&self, _: u128) -> u16 {
        self.mtu6
    }

    fn own4(&self, _: u32) -> Option<u32> {
        self.own4
    }

    fn own6(&self, _: u128) -> Option<u128> {
        self.own6
    }
}

fn to_four(siit: &Siit, packet: &[u8]) -> Result<Vec<u8>, Denied> {
    to_four_among(siit, packet, &())
}

fn to_four_among(siit: &Siit, packet: &[u8], around: &impl Around) -> Result<Vec<u8>, Denied> {
    let mut buffer = [&[0; ROOM][..], packet].concat();
    let found = Ipv6View::parse(packet).unwrap().extensions().unwrap();
    let (moved, dst) = siit.to_v4(&mut buffer, ROOM, &found, DICE, around)?;
    let packet = buffer[moved.start..moved.end].to_vec();
    assert_eq!(Ipv4View::parse(&packet).unwrap().dst(), dst);
    Ok(packet)
}

fn to_six(siit: &Siit, packet: &[u8]) -> Result<Vec<u8>, Denied> {
    to_six_among(siit, packet, &())
}

fn to_six_among(siit: &Siit, packet: &[u8], around: &impl Around) -> Result<Vec<u8>, Denied> {
    let mut buffer = [&[0; ROOM][..], packet].concat();
    let (moved, dst) = siit.to_v6(&mut buffer, ROOM, around)?;
    let packet = buffer[moved.start..moved.end].to_vec();
    assert_eq!(Ipv6View::parse(&packet).unwrap().dst(), dst);
    Ok(packet)
}

fn six(src: &str, dst: &str) -> PacketBuilder<'static> {
    PacketBuilder::new().ipv6(v6(src), v6(dst))
}

fn four(src: &str, dst: &str) -> PacketBuilder<'static> {
    PacketBuilder::new().ipv4(v4(src), v4(dst))
}

#[test]
fn explicit_mapping_goes_before_the_prefix() {
    // RFC 7757 §3.3
    let siit = translator();
    let packet = six("2001:db8:cccc::8", "64:ff9b:1::203.0.113.9").udp(1, 2).payload(b"x").build();
    let expected = four("192.0.2.24", "203.0.113.9").identification(7).udp(1, 2).payload(b"x").build();
    assert_eq!(to_four(&siit, &packet), Ok(expected));
    let packet = four("203.0.113.9", "192.0.2.24").udp(2, 1).payload(b"x").build();
    let expected = six("64:ff9b:1::203.0.113.9", "2001:db8:cccc::8").udp(2, 1).payload(b"x").build();
    assert_eq!(to_six(&siit, &packet), Ok(expected));
}

#[test]
fn examples_of_rfc_7757_are_translated_both_ways() {
    // RFC 7757 §3.3, §3.3.1, §3.3.2 and appendix B, figure 7
    for prefix in ["64:ff9b::", "64:ff9b:1::"] {
        let siit = Siit { hosts: Hosts::new(vec!["192.0.2.248".parse().unwrap()]), ..figure_1(prefix) };
        let behind = |address: &str| format!("{prefix}{address}");
        let peer = behind("9.9.9.9");
        let both = |host4: &str, host6: &str| {
            let out = to_four(&siit, &six(host6, &peer).udp(1, 2).build());
            let back = to_six(&siit, &four("9.9.9.9", host4).udp(2, 1).build());
            assert_eq!(siit.ends_to_v4(v6(host6), v6(&peer)).is_some(), out.is_ok(), "{host6}");
            (out, back)
        };
        for (host4, host6) in FIGURE_7.into_iter().chain([("192.0.2.225", behind("1").as_str())]) {
            let out = four(host4, "9.9.9.9").identification(7).udp(1, 2).build();
            let back = six(&peer, host6).udp(2, 1).build();
            assert_eq!(both(host4, host6), (Ok(out), Ok(back)), "{host4}");
        }
        // The last line has no mapping; RFC 6052 §3.1 has a say in it.
        let by_prefix = behind("c000:2f8");
        let (out, back) = both("192.0.2.248", &by_prefix);
        if siit.prefixes[0].is_well_known() {
            assert_eq!((out, back), (Err(Denied::NonGlobal), Err(Denied::NonGlobal)));
        } else {
            assert_eq!(out, Ok(four("192.0.2.248", "9.9.9.9").identification(7).udp(1, 2).build()));
            assert_eq!(back, Ok(six(&peer, &by_prefix).udp(2, 1).build()));
        }
        // RFC 6052 §5.1: who is within the prefix beside the mapping is nobody.
        let nobody = to_four(&siit, &six(&behind("8.8.8.8"), &peer).udp(1, 2).build());
        assert_eq!(nobody, Err(Denied::IllegalSource));
    }
}

#[test]
fn hairpinned_packet_comes_from_the_prefix() {
    // RFC 7757 §4.2.1 rule 1, figures 8 and 11
    let siit = translator();
    for (src, dst, between, result) in [
        ("2001:db8:aaaa::", "192.0.2.2", ("192.0.2.1", "192.0.2.2"), ("192.0.2.1", "2001:db8:bbbb::b")),
        ("2001:db8:bbbb::b", "192.0.2.1", ("192.0.2.2", "192.0.2.1"), ("192.0.2.2", "2001:db8:aaaa::")),
    ] {
        let packet = to_four(&siit, &six(src, &format!("64:ff9b:1::{dst}")).udp(1, 2).build()).unwrap();
        assert_eq!(packet, four(between.0, between.1).identification(7).udp(1, 2).build());
        let packet = to_six(&siit, &packet).unwrap();
        assert_eq!(packet, six(&format!("64:ff9b:1::{}", result.0), result.1).udp(1, 2).build());
    }
    let without = Siit { no_hairpinning: true, ..translator() };
    let packet = to_six(&without, &four("192.0.2.1", "192.0.2.2").udp(1, 2).build()).unwrap();
    assert_eq!(packet, six("2001:db8:aaaa::", "2001:db8:bbbb::b").udp(1, 2).build());
}

#[test]
fn hairpinned_error_is_about_the_packet_its_receiver_sent() {
    // RFC 7757 §4.2.1 rules 2 and 3, figures 9 and 10
    let siit = translator();
    for (src, between, result) in [
        ("2001:db8::1234", "198.51.100.1", "64:ff9b:1::198.51.100.1"),
        ("2001:db8:bbbb::b", "192.0.2.2", "64:ff9b:1::192.0.2.2"),
    ] {
        let about = six("64:ff9b:1::192.0.2.1", "2001:db8:bbbb::b").udp(1, 2).build();
        let error = six(src, "64:ff9b:1::192.0.2.1").icmp(1, 4, [0; 4]).payload(&about).build();
        let packet = to_four(&siit, &error).unwrap();
        let about = four("192.0.2.1", "192.0.2.2").udp(1, 2).build();
        let expected = four(between, "192.0.2.1").identification(7).icmp(3, 3, [0; 4]).payload(&about);
        assert_eq!(packet, expected.build());
        let packet = to_six(&siit, &packet).unwrap();
        let about = six("2001:db8:aaaa::", "64:ff9b:1::192.0.2.2").udp(1, 2).build();
        assert_eq!(packet, six(result, "2001:db8:aaaa::").icmp(1, 4, [0; 4]).payload(&about).build());
    }
}

#[test]
fn sources_for_routers_are_picked_all_over_the_pool_and_revealed_when_asked() {
    // RFC 6791 §3.2, §4 and §5
    let mut siit = translator();
    siit.icmp_sources.push(Range4 { first: v4("198.51.100.8"), last: v4("198.51.100.9") });
    let picked: Vec<u32> = (0..4).filter_map(|random| siit.pick(random)).collect();
    assert_eq!(picked, ["198.51.100.1", "198.51.100.8", "198.51.100.9", "198.51.100.1"].map(v4));
    let about = six("64:ff9b:1::203.0.113.9", "2001:db8:aaaa::").udp(1, 2).build();
    let error = six("2001:db8::77", "64:ff9b:1::203.0.113.9").icmp(3, 0, [0; 4]).payload(&about).build();
    for reveals_source in [false, true] {
        let siit = Siit { reveals_source, ..siit.clone() };
        let packet = to_four(&siit, &error).unwrap();
        let view = Ipv4View::parse(&packet).unwrap();
        let icmp = Icmpv4View::parse(view.payload()).unwrap();
        assert_eq!((view.src(), icmp.kind()), (v4("198.51.100.1"), 11));
        assert_eq!(icmp.extension().unwrap().is_some(), reveals_source);
    }
    let none = Siit { icmp_sources: vec![], ..siit };
    assert_eq!(to_four(&none, &error), Err(Denied::UnmappedSource));
}

#[test]
fn each_reason_to_deny_is_named() {
    let siit = translator();
    let deny6 = |src: &str, dst: &str| to_four(&siit, &six(src, dst).udp(1, 2).build()).err();
    assert_eq!(deny6("::1", "64:ff9b:1::8.8.8.8"), Some(Denied::IllegalSource));
    assert_eq!(deny6("2001:db8::1", "64:ff9b:1::8.8.8.8"), Some(Denied::UnmappedSource));
    assert_eq!(deny6("2001:db8:aaaa::", "2001:db8::1"), Some(Denied::UnmappedDestination));
    let deny4 = |src: &str, dst: &str| to_six(&siit, &four(src, dst).udp(1, 2).build()).err();
    assert_eq!(deny4("127.0.0.1", "192.0.2.1"), Some(Denied::IllegalSource));
    assert_eq!(deny4("255.255.255.255", "192.0.2.1"), Some(Denied::IllegalSource));
    let wkp =
        Siit { prefixes: vec![NatPrefix::new("64:ff9b::/96".parse().unwrap()).unwrap()], ..siit.clone() };
    let packet = six("2001:db8:aaaa::", "64:ff9b::10.0.0.1").udp(1, 2).build();
    assert_eq!(to_four(&wkp, &packet), Err(Denied::NonGlobal), "RFC 6052 §3.1");
    let packet = four("10.0.0.1", "192.0.2.1").udp(1, 2).build();
    assert_eq!(to_six(&wkp, &packet), Err(Denied::NonGlobal));
    let only_eam = Siit { prefixes: vec![], ..siit.clone() };
    let packet = four("192.0.2.1", "192.0.2.2").udp(1, 2).build();
    assert_eq!(to_six(&only_eam, &packet), Ok(six("2001:db8:aaaa::", "2001:db8:bbbb::b").udp(1, 2).build()));
    let packet = four("192.0.2.1", "9.9.9.9").udp(1, 2).build();
    assert_eq!(to_six(&only_eam, &packet), Err(Denied::UnmappedDestination));
    let packet = four("9.9.9.9", "192.0.2.1").icmp(13, 0, [0; 4]).build();
    assert_eq!(to_six(&siit, &packet), Err(Denied::Refused(Refused::IcmpWithoutCounterpart)));
    let about = six("2001:db8::1", "2001:db8::2").udp(1, 2).build();
    let error = six("2001:db8::77", "64:ff9b:1::203.0.113.9").icmp(3, 0, [0; 4]).payload(&about).build();
    assert_eq!(to_four(&siit, &error), Err(Denied::Refused(Refused::BadQuotation)));
}

#[test]
fn nobody_speaks_for_an_ipv4_host_by_embedding_its_address() {
    // RFC 6052 §5.1
    let hosts = ["198.51.100.16/28", "203.0.113.0/28"].map(|block| block.parse().unwrap());
    let siit = Siit { hosts: Hosts::new(hosts.into()), ..translator() };
    let sent = |src: &str, dst: &str| to_four(&siit, &six(src, dst).udp(1, 2).build()).err();
    let client = "64:ff9b:1::9.9.9.9";
    for (src, expected) in [
        ("2001:db8:aaaa::", None),
        ("64:ff9b:1::198.51.100.16", None),
        ("64:ff9b:1::203.0.113.15", None),
        ("64:ff9b:1::198.51.100.15", Some(Denied::IllegalSource)),
        ("64:ff9b:1::198.51.100.32", Some(Denied::IllegalSource)),
        ("64:ff9b:1::203.0.113.16", Some(Denied::IllegalSource)),
        ("64:ff9b:1::8.8.8.8", Some(Denied::IllegalSource)),
        // It has an address of its own, by an explicit mapping.
        ("64:ff9b:1::192.0.2.1", Some(Denied::IllegalSource)),
    ] {
        assert_eq!(sent(src, client), expected, "{src}");
        assert_eq!(siit.ends_to_v4(v6(src), v6(client)).is_none(), expected.is_some(), "{src}");
        let about = six(client, src).udp(1, 2).build();
        let error = six(src, client).icmp(1, 4, [0; 4]).payload(&about).build();
        assert_eq!(to_four(&siit, &error).err(), expected, "an error of {src}");
    }
    // From a translator elsewhere to a host behind this one (RFC 6877 §6.3).
    assert_eq!(sent(client, "2001:db8:aaaa::"), None);
    assert_eq!(siit.ends_to_v4(v6(client), v6("2001:db8:aaaa::")), Some((v4("9.9.9.9"), v4("192.0.2.1"))));
}

#[test]
fn error_from_an_illegal_source_is_translated_all_the_same() {
    // RFC 7915 §4.1 "Source Address"
    let siit = translator();
    let about = four("192.0.2.1", "203.0.113.9").udp(1, 2).build();
    let error = four("127.0.0.1", "192.0.2.1").icmp(11, 0, [0; 4]).payload(&about).build();
    let about = six("2001:db8:aaaa::", "64:ff9b:1::203.0.113.9").udp(1, 2).build();
    let expected = six("64:ff9b:1::127.0.0.1", "2001:db8:aaaa::").icmp(3, 0, [0; 4]).payload(&about).build();
    assert_eq!(to_six(&siit, &error), Ok(expected));
}

#[test]
fn pool_does_not_speak_for_a_source_that_must_be_dropped() {
    // RFC 6052 §3.1: in an error as well.
    let prefixes = vec![NatPrefix::new("64:ff9b::/96".parse().unwrap()).unwrap()];
    let siit = Siit { prefixes, ..translator() };
    let about = six("64:ff9b::8.8.8.8", "2001:db8:aaaa::").udp(1, 2).build();
    let error = |src: &str| six(src, "64:ff9b::8.8.8.8").icmp(3, 0, [0; 4]).payload(&about).build();
    assert_eq!(to_four(&siit, &error("64:ff9b::10.0.0.1")), Err(Denied::NonGlobal));
    assert_eq!(
        Ipv4View::parse(&to_four(&siit, &error("2001:db8::77")).unwrap()).unwrap().src(),
        siit.icmp_sources[0].first
    );
}

#[test]
fn router_speaks_from_its_own_address_where_nothing_stands_for_it() {
    // RFC 7915 §4.4, §5.4, RFC 6791 §4: the interface address of the translator.
    let wkp = || vec![NatPrefix::new("64:ff9b::/96".parse().unwrap()).unwrap()];
    let links = Links { own4: Some(v4("198.51.100.200")), own6: Some(v6("2001:db8::200")), ..WIDE };
    let without = Siit { icmp_sources: vec![], ..translator() };
    let about = six("64:ff9b:1::203.0.113.9", "2001:db8:aaaa::").udp(1, 2).build();
    let error = six("2001:db8::77", "64:ff9b:1::203.0.113.9").icmp(3, 0, [0; 4]).payload(&about).build();
    let source = |siit: &Siit| {
        let packet = to_four_among(siit, &error, &links).unwrap();
        Ipv4View::parse(&packet).unwrap().src_addr().to_string()
    };
    assert_eq!(source(&without), "198.51.100.200");
    assert_eq!(source(&translator()), "198.51.100.1", "a pool goes before");
    let private = Siit { prefixes: wkp(), ..translator() };
    let about = four("192.0.2.1", "8.8.8.8").udp(1, 2).build();
    let error = four("10.0.0.1", "192.0.2.1").icmp(11, 0, [0; 4]).payload(&about).build();
    assert_eq!(to_six(&private, &error), Err(Denied::NonGlobal));
    let packet = to_six_among(&private, &error, &links).unwrap();
    assert_eq!(Ipv6View::parse(&packet).unwrap().src(), v6("2001:db8::200"));
}

#[test]
fn mtu_told_is_the_least_of_what_was_said_and_of_both_next_hops() {
    // RFC 7915 §4.2, §5.2
    let siit = translator();
    let about = four("192.0.2.1", "203.0.113.9").udp(1, 2).build();
    let error = four("203.0.113.77", "192.0.2.1").icmp(3, 4, [0, 0, 0x05, 0xdc]).payload(&about).build();
    for (mtu4, mtu6, told) in [(9_000, 9_000, 1_520), (9_000, 1_400, 1_400), (1_450, 9_000, 1_470)] {
        let packet = to_six_among(&siit, &error, &Links { mtu4, mtu6, ..WIDE }).unwrap();
        assert_eq!(Icmpv6View::parse(Ipv6View::parse(&packet).unwrap().payload()).unwrap().mtu(), told);
    }
    let about = six("64:ff9b:1::203.0.113.9", "2001:db8:aaaa::").udp(1, 2).build();
    let error = six("2001:db8::77", "64:ff9b:1::203.0.113.9").icmp(2, 0, [0, 0, 0x05, 0xdc]).payload(&about);
    let error = error.build();
    for (mtu4, mtu6, told) in [(9_000, 9_000, 1_480), (1_300, 9_000, 1_300), (9_000, 1_450, 1_430)] {
        let packet = to_four_among(&siit, &error, &Links { mtu4, mtu6, ..WIDE }).unwrap();
        assert_eq!(
            Icmpv4View::parse(Ipv4View::parse(&packet).unwrap().payload()).unwrap().next_hop_mtu(),
            told
        );
    }
}
