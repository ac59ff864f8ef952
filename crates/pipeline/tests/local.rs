//! Packets for the router itself, and the router's own.

mod common;

use carrack_base::{IfIndex, Reason};
use carrack_pipeline::snapshot::{Policer, Side};
use carrack_wire::tcp::flag;
use common::net6::{packet6, world6_with};
use common::*;

#[test]
fn echo_to_any_own_address_goes_up_from_any_interface() {
    let mut world = world();
    for to in ["10.0.0.1", "198.51.100.1", "10.1.0.1", "172.16.0.1"] {
        let frame = ping(IN, "10.0.0.5:77", to);
        assert!(world.send(IN, &frame).is_empty());
        assert_eq!(world.punts.pop(), Some((IfIndex(IF_IN), frame)));
    }
    let frame = ping(OUT, "198.51.100.7:77", "198.51.100.1");
    world.send(OUT, &frame);
    assert_eq!(world.punts.pop(), Some((IfIndex(IF_OUT), frame)));
    assert_eq!((world.sessions(), world.new_drops()), (0, vec![]));
}

#[test]
fn a_packet_as_long_as_links_take_goes_up_and_comes_down_whole() {
    let mut world = world6_with(|s| on(s, IF_IN, |i| i.mtu = 9_600));
    let data = vec![7; 9_600 - 28];
    for frame in [
        packet(IN, "10.0.0.5", "10.0.0.1").echo_request(7, 1).payload(&data).build(),
        packet6(IN, "2001:db8:1::5", "2001:db8:1::1").echo_request(7, 1).payload(&data[20..]).build(),
    ] {
        assert_eq!(frame.len(), 9_614);
        world.send(IN, &frame);
        assert_eq!(world.punts.pop(), Some((IfIndex(IF_IN), frame.clone())));
        assert!(world.ends[0].host_tx.push(IfIndex(IF_IN), &frame));
        world.workers[0].background(world.now, &mut world.pool);
        let sent: Vec<_> = world.workers[0].tx(carrack_base::PortId(IN)).unwrap().drain(..).collect();
        assert!(sent.len() == 1 && sent[0].bytes() == frame);
        sent.into_iter().for_each(|f| carrack_frame::FramePool::free(&mut world.pool, f));
        world.balanced();
    }
}

/// RFC 1812 §5.3.1: the last hop is the router itself; TTL 1 reaches it.
#[test]
fn ttl_1_reaches_the_router_itself() {
    let mut world = world();
    world.send(IN, &packet(IN, "10.0.0.5", "10.0.0.1").ttl(1).echo_request(1, 1).build());
    assert_eq!(world.punts.len(), 1);
}

#[test]
fn a_flood_of_pings_to_the_router_gets_the_policers_burst() {
    let mut world = world_with(|s| s.policers.icmp = Policer { rate_pps: 10, burst: 4 });
    world.burst(IN, &vec![ping(IN, "10.0.0.5:77", "10.0.0.1"); 64]);
    assert_eq!(world.punts.len(), 4);
    assert_eq!(world.new_drops(), [(Reason::PuntPolicedIcmp, 60)]);
}

#[test]
fn other_icmp_to_the_router_has_a_policer_of_its_own() {
    let mut world = world_with(|s| {
        s.policers.icmp = Policer { rate_pps: 0, burst: 0 };
        s.policers.other = Policer { rate_pps: 0, burst: 1 };
    });
    let reply = packet(IN, "10.0.0.5", "10.0.0.1").echo_reply(1, 1).build();
    world.burst(IN, &[reply.clone(), reply]);
    assert_eq!(world.punts.len(), 1);
    assert_eq!(world.new_drops(), [(Reason::PuntPolicedOther, 1)]);
}

/// RFC 1122 §3.3.2: pieces of ICMP go up, in any order, under the policer of echo requests; those of others stay out.
#[test]
fn pieces_of_icmp_to_the_router_go_up_under_the_policer_of_pings() {
    let piece = |port, src, dst, proto, offset| {
        let head = if proto == 1 { vec![8, 0, 0, 0, 0, 7, 0, 1] } else { vec![0, 7, 0, 53, 0, 32, 0, 0] };
        let data = [head, vec![0; 24]].concat();
        let piece = packet(port, src, dst).identification(9).fragment(offset, offset == 0);
        piece.protocol(proto).payload(&data).build()
    };
    for (is_gathered, port, src, to) in [
        (true, IN, "10.0.0.5", "10.0.0.1"),
        (true, OUT, "198.51.100.7", "198.51.100.1"),
        (false, OUT, "198.51.100.7", "198.51.100.1"),
    ] {
        for order in [[0, 32], [32, 0]] {
            let mut world = world_with(|s| {
                s.policers.icmp = Policer { rate_pps: 0, burst: 2 };
                if !is_gathered {
                    // On neither side of a NAT, so that nobody tells later pieces of their first one.
                    on(s, IF_OUT, |i| i.side = Side::Plain);
                }
            });
            let pieces = order.map(|offset| piece(port, src, to, 1, offset));
            for frame in &pieces {
                assert!(world.send(port, frame).is_empty());
            }
            let mut up: Vec<_> = std::iter::from_fn(|| world.punts.pop()).map(|(_, frame)| frame).collect();
            up.sort_by_key(|frame| pieces.iter().position(|piece| piece == frame));
            assert_eq!(up, pieces);
            assert_eq!((world.new_drops(), world.held()), (vec![], 0));
            world.send_dropped(port, &piece(port, src, to, 1, 0), Reason::PuntPolicedIcmp);
        }
    }
    let mut world = world();
    assert!(world.send(IN, &piece(IN, "10.0.0.5", "10.0.0.1", 17, 32)).is_empty());
    assert_eq!(world.punts.len(), 0);
}

/// RFC 1122 §3.2.2.1: 3/3 by the router for ports where nobody listens.
#[test]
fn udp_and_tcp_to_the_router_are_answered_port_unreachable() {
    let mut world = world();
    for frame in
        [udp(IN, "10.0.0.5:1000", "10.0.0.1:161"), tcp(IN, "10.0.0.5:1000", "10.0.0.1:22", flag::SYN)]
    {
        let sent = world.send_dropped(IN, &frame, Reason::LocalNoService);
        assert_eq!((sent.len(), sent[0].icmp()), (1, (3, 3)));
        assert_eq!(sent[0].addresses(), ("10.0.0.1".into(), "10.0.0.5".into()));
        assert_eq!(sent[0].quoted(), &frame[14..]);
    }
    assert_eq!(world.sessions(), 0);
}

/// RFC 1812 §4.3.2.3: as much of the packet as fits into 576 octets.
#[test]
fn an_error_about_a_long_packet_is_cut_to_576_octets() {
    let mut world = world();
    let frame = packet(IN, "10.0.0.5", "10.0.0.1").udp(1, 2).payload(&[7; 1_400]).build();
    let sent = world.send_dropped(IN, &frame, Reason::LocalNoService);
    assert_eq!(sent[0].packet().len(), 576);
}

#[test]
fn the_control_planes_packets_leave_as_they_are() {
    let mut world = world();
    let frame = ping(TAGGED, "10.1.0.1:7", "10.1.0.5");
    for _ in 0..40 {
        assert!(world.ends[0].host_tx.push(IfIndex(IF_VLAN), &frame));
    }
    world.workers[0].background(world.now, &mut world.pool);
    world.balanced();
    let queue = world.workers[0].tx(carrack_base::PortId(TAGGED)).unwrap();
    assert_eq!(queue.len(), 32, "no more than a bounded number a turn");
    assert!(queue.iter().all(|f| f.bytes() == frame));
    let mut frames: Vec<_> = std::mem::take(queue);
    *queue = Vec::with_capacity(512);
    carrack_frame::FramePool::free_all(&mut world.pool, &mut frames);
    world.workers[0].background(world.now, &mut world.pool);
    assert_eq!(world.workers[0].tx(carrack_base::PortId(TAGGED)).unwrap().len(), 8);
    world.workers[0].tx_failed(carrack_base::PortId(TAGGED), world.now);
    world.balanced();
    assert_eq!(world.new_drops(), [(Reason::TxQueueFull, 8)]);
}

#[test]
fn the_control_planes_packet_for_a_lost_interface_is_a_counted_drop() {
    let mut world = world();
    assert!(world.ends[0].host_tx.push(IfIndex(99), &[0; 60]));
    world.turn();
    assert_eq!(world.new_drops(), [(Reason::TxPortMissing, 1)]);
}

#[test]
fn what_the_port_did_not_take_is_dropped_and_not_forwarded() {
    let mut world = world();
    for _ in 0..20 {
        let frame = world.pool.alloc_copy(&udp(IN, "10.0.0.5:1000", "198.51.100.7:53")).unwrap();
        world.workers[0].rx_buffer().push(frame);
    }
    world.workers[0].process(world.now, carrack_base::PortId(IN), &mut world.pool);
    let taken: Vec<_> = world.workers[0].tx(carrack_base::PortId(OUT)).unwrap().drain(..5).collect();
    world.workers[0].tx_failed(carrack_base::PortId(OUT), world.now);
    world.balanced();
    let accounts = world.workers[0].accounts();
    assert_eq!((accounts.forwarded, accounts.forwarded_bytes), (5, 5 * 67));
    assert_eq!(world.new_drops(), [(Reason::TxQueueFull, 15)]);
    taken.into_iter().for_each(|f| carrack_frame::FramePool::free(&mut world.pool, f));
    world.workers[0].done(&mut world.pool);
}

/// A port that takes nothing fills its queue, and the worker goes on.
#[test]
fn a_stuck_port_loses_packets_under_its_own_reason() {
    let mut world = world();
    for _ in 0..10 {
        for _ in 0..64 {
            let frame = world.pool.alloc_copy(&udp(IN, "10.0.0.5:1000", "198.51.100.7:53")).unwrap();
            world.workers[0].rx_buffer().push(frame);
        }
        world.workers[0].process(world.now, carrack_base::PortId(IN), &mut world.pool);
        world.balanced();
        world.workers[0].done(&mut world.pool);
    }
    assert_eq!(world.new_drops(), [(Reason::TxQueueFull, 640 - 512)]);
    world.workers[0].tx_failed(carrack_base::PortId(OUT), world.now);
}

#[test]
fn no_buffer_for_an_answer_or_a_fragment_is_no_fault() {
    let mut world = world_with(|s| on(s, IF_OUT, |i| i.mtu = 576));
    world.pool = carrack_frame::MemPool::new(1, 2_048, 128);
    let long = packet(IN, "10.0.0.5", "198.51.100.7").udp(1_000, 53).payload(&[7; 1_400]).build();
    assert!(world.send(IN, &long).is_empty());
    assert_eq!(world.new_drops(), [(Reason::FramePoolEmpty, 3)]);
    assert!(world.send(IN, &udp(IN, "10.0.0.5:1000", "10.0.0.1:161")).is_empty(), "no answer");
    assert_eq!(world.new_drops(), [(Reason::LocalNoService, 1)]);
}

/// RFC 6887 §8.2, §19.1: requests go up from inside only; a host that floods takes nothing from another.
#[test]
fn requests_of_port_control_go_up_from_inside_each_host_at_its_own_rate() {
    let mut world = world_with(|s| {
        std::sync::Arc::make_mut(&mut s.nat).port_control = true;
        s.policers.port_control_host = Policer { rate_pps: 0, burst: 3 };
        s.policers.port_control = Policer { rate_pps: 0, burst: 10 };
    });
    let flood = udp(IN, "10.0.0.5:1000", "10.0.0.1:5351");
    world.burst(IN, &vec![flood; 64]);
    assert_eq!(world.punts.len(), 3);
    assert_eq!(world.new_drops(), [(Reason::PuntPolicedPortControl, 61)]);
    let others: Vec<_> =
        (6..26).map(|host| udp(IN, &format!("10.0.0.{host}:1000"), "10.0.0.1:5351")).collect();
    world.burst(IN, &others);
    assert_eq!(world.punts.len(), 10, "the rest of what all may ask together");
    assert_eq!(world.new_drops(), [(Reason::PuntPolicedPortControl, 13)]);
    let from_outside = udp(OUT, "198.51.100.7:77", "198.51.100.1:5351");
    world.send_dropped(OUT, &from_outside, Reason::LocalNoService);
}

#[test]
fn without_port_control_nobody_listens_there() {
    let mut world = world();
    world.send_dropped(IN, &udp(IN, "10.0.0.5:1000", "10.0.0.1:5351"), Reason::LocalNoService);
}
