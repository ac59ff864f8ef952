use std::collections::BTreeSet;
use std::path::PathBuf;

use super::*;
use crate::traffic::Role;

fn args(subscribers: u32, ports: u16, vlan: Option<u16>) -> TrafficArgs {
    TrafficArgs {
        role: Role::Generate,
        socket: PathBuf::new(),
        id: 0,
        ring_log2: 10,
        subscribers,
        first: Ipv4Addr::new(100, 64, 0, 0),
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

#[test]
fn frames_have_the_size_and_right_checksums() {
    for vlan in [None, Some(100)] {
        let args = args(256, 16, vlan);
        let frame = frame(&args, 4_000);
        assert_eq!(frame.len(), 124, "128 with the frame check sequence");
        let packet = &frame[if vlan.is_some() { 18 } else { 14 }..];
        assert_eq!(fold(sum(&packet[..20])), 0);
        let pseudo = sum(&packet[12..20]) + 17 + u32::from(half(packet, 24));
        assert_eq!(fold(pseudo + sum(&packet[20..])), 0);
        assert_eq!((word(packet, 12), half(packet, 20)), (0x6440_00fa, 20_000), "subscriber 250, first port");
    }
}

#[test]
fn what_comes_back_from_the_reflector_is_right_only_for_its_own_session() {
    for vlan in [None, Some(100)] {
        let args = args(256, 16, vlan);
        let population = Population::of(&args);
        let mut back = frame(&args, 300);
        assert_eq!(population.look(&back), Seen::Other, "it goes out");
        swap(&mut back);
        assert_eq!(population.look(&back), Seen::Right);
        assert_eq!(back[6..12], ROUTER_MAC);
        let at = if vlan.is_some() { 18 } else { 14 };
        back[at + 23] ^= 1;
        assert_eq!(population.look(&back), Seen::Wrong, "another port");
    }
}

#[test]
fn a_question_for_an_address_is_answered_in_its_place() {
    let mut frame = [&[0xff; 6][..], &[4; 6], &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]].concat();
    frame.extend([&[4; 6][..], &[192, 0, 2, 1], &[0; 6], &[192, 0, 2, 2]].concat());
    assert!(answer_arp(&mut frame, [9; 6]));
    assert_eq!(frame[..12], [4, 4, 4, 4, 4, 4, 9, 9, 9, 9, 9, 9]);
    assert_eq!(frame[20..22], [0, 2]);
    assert_eq!(frame[22..], [&[9; 6][..], &[192, 0, 2, 2], &[4; 6], &[192, 0, 2, 1]].concat());
    assert!(!answer_arp(&mut frame, [9; 6]), "an answer is not answered");
    let mut announcement = [&[0xff; 6][..], &[4; 6], &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]].concat();
    announcement.extend([&[4; 6][..], &[192, 0, 2, 1], &[0; 6], &[192, 0, 2, 1]].concat());
    assert!(!answer_arp(&mut announcement, [9; 6]), "nobody else has that address");
}
