use std::collections::BTreeSet;
use std::path::PathBuf;

use carrack_wire::checksum::{pseudo_v4, pseudo_v6};
use carrack_wire::ipv4::Ipv4View;

use super::*;
use crate::traffic::Role;

fn args(subscribers: u32, ports: u16, vlan: Option<u16>) -> TrafficArgs {
    TrafficArgs {
        role: Role::Generate,
        socket: PathBuf::new(),
        id: 0,
        ring_log2: 10,
        subscribers,
        first: Ipv4Addr::new(100, 64, 0, 0).into(),
        ports,
        first_port: 20_000,
        frame_bytes: 128,
        vlan,
        window: 64,
    }
}

fn frame(args: &TrafficArgs, session: u32) -> Vec<u8> {
    let writer = Writer::new(args, [2; 6]);
    let mut frame = vec![0; writer.length()];
    writer.write(&mut frame, &Population::of(args), session, 77);
    frame
}

#[test]
fn each_session_comes_once_before_any_comes_again() {
    for (subscribers, ports) in [(1, 1), (3, 1), (1000, 3), (4096, 16)] {
        let population = Population::of(&args(subscribers, ports, None));
        let round = population.sessions();
        let picked: BTreeSet<u32> = (round..2 * round).map(|count| population.pick(count)).collect();
        assert_eq!(picked.len() as u64, round, "{subscribers} × {ports}");
    }
}

/// A population of either version, with and without tag; and where its IP header begins.
fn kinds() -> Vec<(TrafficArgs, usize)> {
    let firsts: [IpAddr; 2] =
        [Ipv4Addr::new(100, 64, 0, 0).into(), "2001:db8:1::".parse::<Ipv6Addr>().unwrap().into()];
    let tags = [(None, 14), (Some(100), 18)];
    let with = |(vlan, at)| firsts.map(|first| (TrafficArgs { first, ..args(256, 16, vlan) }, at));
    tags.into_iter().flat_map(with).collect()
}

#[test]
fn frames_have_the_size_and_right_checksums() {
    for (args, at) in kinds() {
        let frame = frame(&args, 4_000);
        assert_eq!(frame.len(), 124, "128 with the frame check sequence");
        let packet = &frame[at..];
        if args.first.is_ipv4() {
            let packet = Ipv4View::parse(packet).unwrap();
            let udp = packet.payload();
            let pseudo = pseudo_v4(packet.src(), packet.dst(), 17, udp.len() as u16);
            assert!(packet.checksum_ok() && pseudo.with_bytes(udp).fold() == 0xffff);
            assert_eq!((packet.src(), half(udp, 0)), (0x6440_00fa, 20_000), "subscriber 250, first port");
            assert_eq!((packet.dst(), half(udp, 2), packet.ttl()), (SERVER.into(), SERVER_PORT, 64));
        } else {
            let packet = Ipv6View::parse(packet).unwrap();
            let udp = packet.payload();
            assert_eq!(
                pseudo_v6(packet.src(), packet.dst(), 17, udp.len() as u32).with_bytes(udp).fold(),
                0xffff
            );
            let addresses = [packet.src(), packet.dst()].map(|ip| Ipv6Addr::from(ip).to_string());
            assert_eq!(addresses, ["2001:db8:1::fa", "2001:db8:64::c612:1"]);
            assert_eq!((half(udp, 0), half(udp, 2), packet.hop_limit()), (20_000, SERVER_PORT, 64));
        }
    }
}

#[test]
fn what_comes_back_from_the_reflector_is_right_only_for_its_own_session() {
    for (args, at) in kinds() {
        let population = Population::of(&args);
        let mut back = frame(&args, 300);
        assert_eq!(population.look(&back), Seen::Other, "it goes out");
        swap(&mut back);
        assert_eq!(population.look(&back), Seen::Right);
        assert_eq!(back[6..12], ROUTER_MAC);
        let header = if args.first.is_ipv4() { 20 } else { 40 };
        let changed = [
            (at + header + 3, 1, Seen::Reused, "another port of the subscriber"),
            (at + header + 2, 0x80, Seen::Wrong, "a port that is none of the subscriber's"),
            (at + header - 1, 1, Seen::Wrong, "another subscriber"),
        ];
        for (place, bit, seen, what) in changed {
            back[place] ^= bit;
            assert_eq!(population.look(&back), seen, "{what}");
            back[place] ^= bit;
        }
        assert_eq!(population.look(&back), Seen::Right);
    }
}

#[test]
fn a_neighbour_solicitation_is_answered_in_its_place() {
    let asker: u128 = "2001:db8:ffff::1".parse::<Ipv6Addr>().unwrap().into();
    let target = asker + 1;
    let group = 0xff02_u128 << 112 | 1 << 32 | 0xff00_0002;
    for tag in [&[][..], &[0x81, 0, 0, 100]] {
        let framed = |packet: Vec<u8>| [&[0x33; 6][..], &[4; 6], tag, &[0x86, 0xdd], &packet].concat();
        let ask =
            |source, from| framed(NdpMessage::NeighbourSolicitation { target, source }.packet(from, group));
        let mut frame = ask(Some(MacAddr([4; 6])), asker);
        let length = frame.len();
        assert!(answer_neighbour(&mut frame, [9; 6]));
        assert_eq!((&frame[..6], &frame[6..12], frame.len()), (&[4; 6][..], &[9; 6][..], length));
        let packet = Ipv6View::parse(&frame[14 + tag.len()..]).unwrap();
        let answer = NdpMessage::parse(packet.src(), packet.dst(), packet.hop_limit(), packet.payload());
        let expected = NdpMessage::NeighbourAdvertisement {
            target,
            router: true,
            solicited: true,
            replaces: true,
            target_mac: Some(MacAddr([9; 6])),
        };
        assert_eq!((packet.src(), packet.dst(), answer), (target, asker, Ok(expected)));
        assert!(!answer_neighbour(&mut frame, [9; 6]), "an answer is not answered");
        assert!(!answer_neighbour(&mut ask(None, 0), [9; 6]), "nobody else has that address");
    }
}

#[test]
fn a_question_for_an_address_is_answered_in_its_place() {
    let mut frame = [&[0xff; 6][..], &[4; 6], &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]].concat();
    frame.extend([&[4; 6][..], &[192, 0, 2, 1], &[0; 6], &[192, 0, 2, 2]].concat());
    assert!(answer_neighbour(&mut frame, [9; 6]));
    assert_eq!(frame[..12], [4, 4, 4, 4, 4, 4, 9, 9, 9, 9, 9, 9]);
    assert_eq!(frame[20..22], [0, 2]);
    assert_eq!(frame[22..], [&[9; 6][..], &[192, 0, 2, 2], &[4; 6], &[192, 0, 2, 1]].concat());
    assert!(!answer_neighbour(&mut frame, [9; 6]), "an answer is not answered");
    let mut announcement = [&[0xff; 6][..], &[4; 6], &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]].concat();
    announcement.extend([&[4; 6][..], &[192, 0, 2, 1], &[0; 6], &[192, 0, 2, 1]].concat());
    assert!(!answer_neighbour(&mut announcement, [9; 6]), "nobody else has that address");
}
