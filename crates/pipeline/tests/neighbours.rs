//! Packets wait for their neighbour's address, a bounded number for a bounded time.

mod common;

use carrack_base::{IfIndex, Reason};
use carrack_pipeline::mailbox::Command;
use common::*;

const NEW: &str = "198.51.100.99";

fn to_new(n: u16) -> Vec<u8> {
    udp(TAGGED, &format!("172.16.0.5:{}", 1_000 + n), &format!("{NEW}:53"))
}

fn gone(world: &mut World) -> Vec<Sent> {
    world.command(|| Command::DropNeighbour { interface: IfIndex(IF_OUT), ip: v4(NEW) });
    world.turn()
}

#[test]
fn packets_for_an_unknown_neighbour_wait_and_leave_in_order() {
    let mut world = world();
    let frames: Vec<_> = (0..5).map(to_new).collect();
    assert!(world.burst(TAGGED, &frames).is_empty());
    assert_eq!(world.held(), 5);
    assert_eq!(world.asked(), [(IF_OUT, v4(NEW))], "asked once");
    world.command(|| Command::SetNeighbour { interface: IfIndex(IF_OUT), ip: v4(NEW), mac: mac_of(ip(NEW)) });
    let sent = world.turn();
    let ports: Vec<_> = sent.iter().map(Sent::src).collect();
    assert_eq!(ports, (0..5).map(|n| format!("172.16.0.5:{}", 1_000 + n)).collect::<Vec<_>>());
    assert!(sent.iter().all(|s| s.to == mac_of(ip(NEW)).0));
    assert_eq!(world.held(), 0);
}

/// RFC 1812 §3.3.2, §4.3.3.1: the sender is told 3/1.
#[test]
fn packets_for_a_neighbour_that_does_not_answer_end_with_host_unreachable() {
    let mut world = world();
    world.burst(TAGGED, &[to_new(0), to_new(1)]);
    let sent = gone(&mut world);
    assert_eq!(world.new_drops(), [(Reason::NeighbourUnresolved, 2)]);
    assert_eq!(sent.len(), 2);
    assert!(sent.iter().all(|s| s.port == TAGGED && s.icmp() == (3, 1)));
    assert_eq!(sent[0].quoted_flow(), format!("172.16.0.5:1000>{NEW}:53"));
}

#[test]
fn host_unreachable_behind_the_nat_shows_the_subscriber_its_own_packet() {
    let mut world = world();
    world.send(IN, &udp(IN, "10.0.0.5:1000", &format!("{NEW}:53")));
    let sent = gone(&mut world);
    assert_eq!((sent.len(), sent[0].port, sent[0].icmp()), (1, IN, (3, 1)));
    assert_eq!(sent[0].quoted_flow(), format!("10.0.0.5:1000>{NEW}:53"));
}

#[test]
fn a_packet_waits_a_few_seconds_at_most() {
    let mut world = world();
    world.send(TAGGED, &to_new(0));
    assert!(world.wait_ms(3_500).is_empty());
    assert_eq!(world.held(), 1);
    assert_eq!(world.wait_ms(1_000).len(), 1);
    assert_eq!(world.new_drops(), [(Reason::NeighbourUnresolved, 1)]);
}

#[test]
fn the_control_plane_is_asked_again_a_second_later() {
    let mut world = world();
    world.send(TAGGED, &to_new(0));
    world.send(TAGGED, &to_new(1));
    assert_eq!(world.asked().len(), 1);
    world.wait_ms(1_000);
    world.send(TAGGED, &to_new(2));
    assert_eq!(world.asked().len(), 1);
}

#[test]
fn one_neighbour_keeps_eight_packets_waiting_and_no_more() {
    let mut world = world();
    let frames: Vec<_> = (0..20).map(to_new).collect();
    world.burst(TAGGED, &frames);
    assert_eq!(world.held(), 8);
    assert_eq!(world.new_drops(), [(Reason::NeighbourQueueFull, 12)]);
}

#[test]
fn all_neighbours_together_keep_a_bounded_number() {
    let mut world = world();
    for n in 0..10 {
        let frames: Vec<_> = (0..8)
            .map(|p| udp(TAGGED, &format!("172.16.0.5:{p}"), &format!("198.51.100.{}:9", 100 + n)))
            .collect();
        world.burst(TAGGED, &frames);
    }
    assert_eq!(world.held(), u64::from(SIZES.held_for_neighbour));
}

/// A scan of a connected subnet must not keep real neighbours out.
#[test]
fn a_scan_of_a_subnet_leaves_room_for_those_who_answer() {
    let mut world = world();
    for n in 0..1_000u32 {
        let to = std::net::Ipv4Addr::from(ip("10.0.8.0") + n);
        world.send(TAGGED, &udp(TAGGED, "172.16.0.5:1", &format!("{to}:9")));
    }
    world.know(IF_OUT, NEW);
    let sent = world.pass(TAGGED, &to_new(0));
    assert_eq!(sent.to, mac_of(ip(NEW)).0);
    // And after a while what nobody answered is forgotten: the next unknown one may wait again.
    world.wait_ms(6_000);
    world.asked();
    world.send(TAGGED, &udp(TAGGED, "172.16.0.5:1", "10.0.9.9:9"));
    assert_eq!((world.held(), world.asked().len()), (1, 1));
}

#[test]
fn a_neighbour_that_comes_back_before_its_loss_was_dealt_with_stays() {
    let mut world = world();
    world.send(TAGGED, &to_new(0));
    let (interface, address) = (IfIndex(IF_OUT), v4(NEW));
    world.command(|| Command::DropNeighbour { interface, ip: address });
    world.command(|| Command::SetNeighbour { interface, ip: address, mac: mac_of(ip(NEW)) });
    assert_eq!(world.turn().len(), 1);
    world.pass(TAGGED, &to_new(1));
}

#[test]
fn a_lost_neighbour_is_asked_for_anew() {
    let mut world = world();
    world.know(IF_OUT, NEW);
    world.pass(TAGGED, &to_new(0));
    gone(&mut world);
    assert!(world.send(TAGGED, &to_new(1)).is_empty());
    assert_eq!(world.asked(), [(IF_OUT, v4(NEW))]);
}

#[test]
fn a_changed_mac_address_is_used_at_once() {
    let mut world = world();
    world.know(IF_OUT, NEW);
    world.pass(TAGGED, &to_new(0));
    let mac = carrack_wire::MacAddr([2, 9, 9, 9, 9, 9]);
    world.command(|| Command::SetNeighbour { interface: IfIndex(IF_OUT), ip: v4(NEW), mac });
    world.turn();
    assert_eq!(world.pass(TAGGED, &to_new(0)).to, mac.0);
}

#[test]
fn a_thousand_lost_neighbours_at_once_are_dealt_with_in_bounded_turns() {
    let mut world = world();
    world.send(TAGGED, &to_new(0));
    for n in 0..2_000u32 {
        let command =
            Command::DropNeighbour { interface: IfIndex(IF_IN), ip: std::net::Ipv4Addr::from(n).into() };
        while world.ends[0].commands.is_full() {
            world.turn();
        }
        assert!(world.ends[0].commands.push(command).is_ok());
    }
    gone(&mut world);
    world.wait_ms(10_000);
    assert_eq!(world.new_drops(), [(Reason::NeighbourUnresolved, 1)]);
}

#[test]
fn a_lost_question_is_asked_again_though_the_ring_was_full() {
    let mut world = world();
    // Nobody reads events meanwhile.
    for n in 0..400u32 {
        let to = std::net::Ipv4Addr::from(ip("10.0.8.0") + n);
        let frame = world.pool.alloc_copy(&udp(TAGGED, "172.16.0.5:1", &format!("{to}:9"))).unwrap();
        world.workers[0].rx_buffer().push(frame);
        world.workers[0].process(world.now, carrack_base::PortId(TAGGED), &mut world.pool);
        world.balanced();
    }
    world.workers[0].done(&mut world.pool);
    world.turn();
    assert!(world.asked().len() < 256, "room is left for others");
    world.wait_ms(6_000);
    world.send(TAGGED, &udp(TAGGED, "172.16.0.5:1", "10.0.9.143:9"));
    assert_eq!(world.asked(), [(IF_IN, v4("10.0.9.143"))]);
}
