use std::net::{Ipv4Addr, Ipv6Addr};

use carrack_base::{Prefix4, Prefix6};
use carrack_pipeline::snapshot::{IcmpErrors, Ipv6Interface, Policer, Vlan};
use carrack_wire::ipv4::FLAG_DF;
use carrack_wire::{Icmpv6View, PacketBuilder, checksum};
use proptest::prelude::*;

use super::*;
use crate::config::{HostConfig, HostInterface};
use crate::host::Host;

const IF: IfIndex = IfIndex(3);
const OWN_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const PEER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);
const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 9);
const OWN6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1);
const PEER6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 9);

/// A host at second 10 whose addresses are in use, and nothing left to say.
fn host(change: impl FnOnce(&mut HostConfig)) -> Host {
    let subnet = Prefix6::of(OWN6.to_bits(), 64);
    let ipv6 = Ipv6Interface { link_local: 0xfe80 << 112 | 1, addresses: vec![(OWN6.to_bits(), subnet)] };
    let on = HostInterface {
        id: IF,
        name: "lan".into(),
        vrf: VrfId(0),
        mac: OWN_MAC,
        vlan: Vlan::None,
        mtu: 1_500,
        icmp_errors: IcmpErrors::All,
        addresses: vec![(OWN.to_bits(), Prefix4::of(OWN.to_bits(), 24))],
        ipv6: Some(ipv6),
        advertising: None,
        proxy: Vec::new(),
    };
    let mut config = HostConfig { interfaces: vec![on], ..HostConfig::default() };
    change(&mut config);
    let mut host = Host::new(config, Now::from_s(0));
    for s in 1..10 {
        host.handle_timeout(Now::from_s(s));
    }
    sent(&mut host);
    host
}

fn sent(host: &mut Host) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| host.poll_transmit()).map(|(_, frame)| frame).collect()
}

/// An echo request with so much data, without IP header.
fn request(is_six: bool, data: usize) -> Vec<u8> {
    let mut message = vec![if is_six { 128 } else { 8 }, 0, 0, 0, 0, 7, 0, 1];
    message.extend((0..data).map(|at| (at % 251) as u8));
    let sum = if is_six {
        checksum::pseudo_v6(PEER6.to_bits(), OWN6.to_bits(), 58, message.len() as u32)
    } else {
        checksum::Sum::ZERO
    };
    let sum = sum.with_bytes(&message).checksum();
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    message
}

/// One piece of a datagram of this number.
fn piece(is_six: bool, number: u16, offset: usize, more: bool, data: &[u8]) -> Vec<u8> {
    let frame = PacketBuilder::new().ethernet(PEER_MAC, OWN_MAC);
    let offset = offset as u16;
    let frame = if is_six {
        frame.ipv6(PEER6, OWN6).fragment6(offset, more, number.into()).protocol(58)
    } else {
        frame.ipv4(PEER, OWN).identification(number).fragment(offset, more).protocol(1)
    };
    frame.payload(data).build()
}

/// A message in pieces of so many bytes.
fn pieces(is_six: bool, number: u16, message: &[u8], of: usize) -> Vec<Vec<u8>> {
    let last = (message.len() - 1) / of;
    let all = message.chunks(of).enumerate();
    all.map(|(at, data)| piece(is_six, number, at * of, at != last, data)).collect()
}

fn hear(host: &mut Host, at_s: u64, frames: &[Vec<u8>]) {
    for frame in frames {
        host.handle_packet(Now::from_s(at_s), IF, frame);
    }
}

/// The message that the frames carry, of which each must fit the link: without the type, code and checksum, and the number
/// of what was cut.
fn answer(is_six: bool, frames: &[Vec<u8>], mtu: usize) -> (Option<u32>, Vec<u8>) {
    let (mut message, mut number) = (Vec::new(), None);
    for frame in frames {
        assert_eq!((&frame[..6], &frame[6..12]), (&PEER_MAC.0[..], &OWN_MAC.0[..]));
        if is_six {
            let packet = Ipv6View::parse(&frame[14..]).unwrap();
            assert!(packet.packet().len() <= mtu && frame.len() == 14 + packet.packet().len());
            assert_eq!((packet.src_addr(), packet.dst_addr(), packet.hop_limit()), (OWN6, PEER6, 64));
            let found = packet.extensions().unwrap();
            assert_eq!(usize::from(found.fragment.map_or(0, |header| header.offset)), message.len());
            number = found.fragment.map(|header| header.identification);
            message.extend_from_slice(&packet.packet()[usize::from(found.offset)..]);
            continue;
        }
        let packet = Ipv4View::parse(&frame[14..]).unwrap();
        assert!(packet.checksum_ok() && packet.packet().len() <= mtu);
        assert_eq!((packet.src_addr(), packet.dst_addr(), packet.ttl()), (OWN, PEER, 64));
        assert_eq!(packet.fragment_offset() as usize, message.len());
        number = (packet.flags_and_offset() & FLAG_DF == 0).then(|| packet.identification().into());
        message.extend_from_slice(packet.payload());
    }
    if is_six {
        let view = Icmpv6View::parse(&message).unwrap();
        assert!(view.kind() == 129 && view.checksum_ok(OWN6.to_bits(), PEER6.to_bits()));
    } else {
        assert!(message[0] == 0 && checksum::verify(&message));
    }
    (number, message.split_off(4))
}

/// RFC 1122 §3.3.2, RFC 8200 §4.5: whatever the order, and when the network doubles pieces. Answers are cut for the link, and of
/// IPv6 for the way as far as it is known (RFC 8200 §5).
#[test]
fn requests_in_pieces_are_answered_in_pieces() {
    for (is_six, data, of, mtu, way) in [
        (false, 2_000, 1_480, 1_500, 1_500),
        (true, 2_000, 1_448, 1_500, 1_500),
        (false, 4_096, 1_376, 1_400, 1_400),
        (true, 4_096, 1_232, 1_500, 1_280),
        (true, 1_400, 8, 1_500, 1_280),
        (false, 100, 64, 1_500, 1_500),
    ] {
        let message = request(is_six, data);
        let orders: [fn(&mut Vec<Vec<u8>>); 4] =
            [|_| {}, |all| all.reverse(), |all| all.rotate_left(1), |all| all.insert(1, all[0].clone())];
        for order in orders {
            let mut host = host(|config| config.interfaces[0].mtu = mtu);
            let mut frames = pieces(is_six, 77, &message, of);
            order(&mut frames);
            let (last, rest) = frames.split_last().unwrap();
            hear(&mut host, 10, rest);
            assert!(sent(&mut host).is_empty());
            hear(&mut host, 10, std::slice::from_ref(last));
            let (number, told) = answer(is_six, &sent(&mut host), way);
            assert!(told == message[4..], "{is_six} {data}");
            let is_cut = data > 100;
            assert_eq!(number, (is_cut || !is_six).then_some(77));
            let counters = host.counters();
            assert_eq!((counters.reassembled, counters.echo_answered), (1, 1));
            assert_eq!((counters.fragments_received, host.poll_timeout()), (frames.len() as u64, None));
        }
    }
}

/// What came whole by a link that takes more than it says is answered in pieces all the same.
#[test]
fn answers_longer_than_the_link_takes_are_cut() {
    for is_six in [false, true] {
        let mut host = host(|config| config.interfaces[0].mtu = 1_300);
        let frame = PacketBuilder::new().ethernet(PEER_MAC, OWN_MAC);
        let frame = if is_six { frame.ipv6(PEER6, OWN6) } else { frame.ipv4(PEER, OWN) };
        let message = request(is_six, 1_400);
        let whole = frame.protocol(if is_six { 58 } else { 1 }).payload(&message).build();
        hear(&mut host, 10, &[whole]);
        let frames = sent(&mut host);
        assert_eq!(frames.len(), 2);
        assert_eq!(answer(is_six, &frames, 1_300).1, message[4..]);
    }
}

/// RFC 792, RFC 4443 §4.2: "the data received in the echo message must be returned", as far as the link takes it in one.
#[test]
fn a_long_request_in_one_is_answered_in_one() {
    for (is_six, headers) in [(false, 28), (true, 48)] {
        let mut host = host(|config| config.interfaces[0].mtu = 9_000);
        let frame = PacketBuilder::new().ethernet(PEER_MAC, OWN_MAC);
        let frame = if is_six { frame.ipv6(PEER6, OWN6) } else { frame.ipv4(PEER, OWN) };
        let message = request(is_six, 9_000 - headers);
        let whole = frame.protocol(if is_six { 58 } else { 1 }).payload(&message).build();
        assert_eq!(whole.len(), 9_014);
        hear(&mut host, 10, &[whole]);
        let frames = sent(&mut host);
        assert_eq!((frames.len(), frames[0].len()), (1, 9_014));
        assert!(answer(is_six, &frames, 9_000) == (None, message[4..].to_vec()));
    }
}

/// RFC 5722 §4, RFC 8200 §4.5: all of it is thrown away, what is still to come too, and nobody is told.
#[test]
fn pieces_that_overlap_or_contradict_each_other_end_their_datagram_silently() {
    for is_six in [false, true] {
        let message = request(is_six, 1_000);
        let good = pieces(is_six, 7, &message, 504);
        let spoilers = [
            ("overlaps", piece(is_six, 7, 248, true, &[1; 264])),
            ("other bytes", piece(is_six, 7, 0, true, &[1; 504])),
            ("ends again", piece(is_six, 7, 1_008, false, &[1; 40])),
            ("beyond the end", piece(is_six, 7, 1_008, true, &[1; 40])),
            ("ends before", piece(is_six, 7, 496, false, &[1; 4])),
        ];
        for (name, spoiler) in spoilers {
            let mut host = host(|_| {});
            // The last piece, what contradicts it or the next one, and then all there is.
            let early = if name == "other bytes" || name == "overlaps" { &good[0] } else { &good[1] };
            hear(&mut host, 10, &[early.clone(), spoiler]);
            hear(&mut host, 11, &good);
            host.handle_timeout(Now::from_s(100));
            assert!(sent(&mut host).is_empty(), "{name}");
            let counters = host.counters();
            assert_eq!((counters.reassembly_overlap, counters.reassembly_timeout), (1, 0), "{name}");
            assert_eq!(host.poll_timeout(), None);
        }
    }
}

/// RFC 1122 §3.3.2, RFC 8200 §4.5: code 1 about the first fragment, if that came, and as other errors no faster than allowed.
#[test]
fn a_sender_is_told_of_a_rest_that_does_not_come_in_time() {
    for (is_six, seconds) in [(false, 60), (true, 60)] {
        let mut host = host(|config| config.icmp_errors = Policer { rate_pps: 0, burst: 1 });
        let due = 10 + seconds;
        let all = pieces(is_six, 7, &request(is_six, 2_000), 1_400);
        hear(&mut host, 10, &all[..1]);
        // Of this one the first is missing.
        hear(&mut host, 10, &pieces(is_six, 8, &request(is_six, 2_000), 1_400)[1..]);
        assert_eq!(host.poll_timeout(), Some(Now::from_s(due)));
        host.handle_timeout(Now { ns: Now::from_s(due).ns - 1 });
        assert!(sent(&mut host).is_empty());
        host.handle_timeout(Now::from_s(due));
        let frames = sent(&mut host);
        let ([frame], first) = (&frames[..], &all[0][14..]) else { panic!("{} errors", frames.len()) };
        assert_eq!(frame[..6], PEER_MAC.0);
        if is_six {
            let packet = Ipv6View::parse(&frame[14..]).unwrap();
            let error = Icmpv6View::parse(packet.payload()).unwrap();
            assert!(error.checksum_ok(OWN6.to_bits(), PEER6.to_bits()));
            assert_eq!((packet.dst_addr(), error.kind(), error.code()), (PEER6, 3, 1));
            assert_eq!(error.payload(), &first[..1_280 - 48]);
        } else {
            let packet = Ipv4View::parse(&frame[14..]).unwrap();
            assert!(checksum::verify(packet.payload()));
            assert_eq!((packet.dst_addr(), &packet.payload()[..2]), (PEER, &[11, 1][..]));
            assert_eq!(packet.payload()[8..], first[..576 - 28]);
        }
        assert_eq!((host.counters().reassembly_timeout, host.poll_timeout()), (2, None));
        hear(&mut host, due, &all[..1]);
        host.handle_timeout(Now::from_s(due + seconds));
        assert!(sent(&mut host).is_empty(), "the policer has none left");
        hear(&mut host, due + seconds, &all);
        assert!(!sent(&mut host).is_empty(), "and the next try is answered");
    }
}

#[test]
fn an_interface_that_may_tell_nobody_does_not() {
    let mut host = host(|config| config.interfaces[0].icmp_errors = IcmpErrors::PathMtu);
    hear(&mut host, 10, &pieces(true, 7, &request(true, 2_000), 1_400)[..1]);
    host.handle_timeout(Now::from_s(100));
    assert!(sent(&mut host).is_empty());
    assert_eq!(host.counters().reassembly_timeout, 1);
}

/// The oldest makes room, and before it what comes to nothing anyway.
#[test]
fn a_flood_of_first_pieces_keeps_to_its_bound() {
    for is_six in [false, true] {
        let mut host = host(|_| {});
        let message = request(is_six, 2_000);
        let of = |number: u16| pieces(is_six, number, &message, 1_400);
        for number in 0..=DATAGRAMS_MAX as u16 {
            hear(&mut host, 10, &of(number)[..1]);
        }
        assert_eq!(host.counters().reassembly_full, 1);
        hear(&mut host, 10, &of(1)[1..]);
        assert!(!sent(&mut host).is_empty(), "the second is still there");
        hear(&mut host, 10, &of(0)[1..]);
        assert!(sent(&mut host).is_empty(), "the first is not");
        // One of them is ended by an overlap; it goes before the others.
        hear(&mut host, 10, &[piece(is_six, 2, 0, true, &[1; 16]), of(100)[0].clone()]);
        assert_eq!((host.counters().reassembly_full, host.counters().reassembly_overlap), (1, 1));
        hear(&mut host, 10, &of(3)[1..]);
        assert!(!sent(&mut host).is_empty());
    }
}

#[test]
fn what_cannot_be_put_together_is_counted_and_kept_no_longer() {
    let full = 4_104;
    for is_six in [false, true] {
        let mut host = host(|_| {});
        // Cut short on its way up, too long, an odd length, nothing at all.
        let whole = piece(is_six, 1, 0, true, &[0; 1_400]);
        hear(&mut host, 10, &[whole[..1_000].to_vec()]);
        assert_eq!((host.counters().icmp_malformed, host.poll_timeout()), (1, None));
        hear(&mut host, 10, &[piece(is_six, 1, 0, true, &[0; 1_401]), piece(is_six, 1, 8, false, &[])]);
        assert_eq!((host.counters().fragments_malformed, host.poll_timeout()), (2, None));
        hear(&mut host, 10, &[piece(is_six, 2, full - 8, false, &[0; 9])]);
        hear(
            &mut host,
            10,
            &[piece(is_six, 3, 65_528, false, &[0; 7]), piece(is_six, 3, 65_528, false, &[0; 8])],
        );
        let counters = host.counters();
        assert_eq!((counters.reassembly_too_long, counters.fragments_malformed), (2, 3));
        // A wrong checksum, and messages that are no echo request: of discovery for one (RFC 6980 §5).
        let mut message = request(is_six, 2_000);
        message[9] ^= 1;
        hear(&mut host, 10, &pieces(is_six, 5, &message, 1_400));
        assert_eq!((host.counters().icmp_malformed, host.counters().reassembled), (2, 1));
        message[0] = if is_six { 135 } else { 13 };
        let before = *host.counters();
        hear(&mut host, 10, &pieces(is_six, 6, &message, 1_400));
        let told = (before.nd_malformed, before.unhandled, before.icmp_malformed);
        let now = host.counters();
        assert_ne!((now.nd_malformed, now.unhandled, now.icmp_malformed), told);
        // Not ICMP, not from a station, not to us.
        let before = host.counters().fragments_received;
        let mut strange = [(); 3].map(|()| piece(is_six, 9, 0, true, &[0; 16]));
        let (protocol, source, destination) = if is_six { (54, 22, 53) } else { (23, 26, 33) };
        strange[0][protocol] = 17;
        strange[1][source..source + 4].copy_from_slice(&[0xff, 0, 0, 1]);
        strange[2][destination] = 99;
        hear(&mut host, 10, &strange);
        assert_eq!(host.counters().fragments_received, before, "IPv{}", if is_six { 6 } else { 4 });
        assert!(sent(&mut host).is_empty());
    }
}

proptest! {
    /// Whatever pieces come: never more than the bound, and an answer only to what was whole.
    #[test]
    fn any_pieces_keep_to_the_bound(
        all in prop::collection::vec((any::<bool>(), 0..90u16, 0..600usize, 0..200usize, any::<bool>()), 1..400),
    ) {
        let mut host = host(|_| {});
        for (at, (is_six, number, offset, len, more)) in all.into_iter().enumerate() {
            let now = Now::from_ms(10_000 + at as u64 * 300);
            host.handle_packet(now, IF, &piece(is_six, number, offset * 8, more, &[0; 1_600][..len * 8]));
            host.handle_timeout(now);
            prop_assert!(host.reassembly.datagrams.len() <= DATAGRAMS_MAX);
            let room = |datagram: &Datagram| datagram.payload.capacity() + datagram.first.capacity();
            let bytes: usize = host.reassembly.datagrams.iter().map(room).sum();
            prop_assert!(bytes <= DATAGRAMS_MAX * 2 * (PAYLOAD_MAX + QUOTE_MAX));
        }
        // An echo request of nothing but zeroes there is none.
        prop_assert_eq!(host.counters().echo_answered, 0);
    }
}
