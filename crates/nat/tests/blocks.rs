//! Port blocks: growth, idle release, hold time, pairing (RFC 6888 REQ-8, REQ-14).

mod common;

use carrack_base::Reason;
use carrack_nat::policy::{Assignment, Instance, Pooling};
use carrack_nat::row::{BlockRow, NatEvent};
use common::*;

fn blocks(size: u16, per_subscriber_max: u8, idle_release_s: u32) -> Instance {
    instance_with(|i| {
        i.assignment = Assignment::Blocks { size, per_subscriber_max, idle_release_s };
        i.pools = vec![pool(0, &["192.0.2.0/30"], 1_024, 2_047)];
    })
}

fn from_one(w: &mut World, n: u32) -> Result<carrack_nat::row::Endpoint, Reason> {
    w.udp_out(&format!("10.0.0.1:{}", n + 1), "198.51.100.1:1")
}

fn held(w: &World) -> Vec<BlockRow> {
    w.subscribers().iter().flat_map(|s| s.blocks[..usize::from(s.block_count)].to_vec()).collect()
}

/// A subscriber starts with one block and grows block by block; every port lies in its blocks.
#[test]
fn subscriber_grows_block_by_block() {
    let mut w = world(blocks(64, 4, 0));
    for n in 0..256 {
        from_one(&mut w, n).unwrap();
        assert_eq!(held(&w).len(), n as usize / 64 + 1);
    }
    assert_eq!(from_one(&mut w, 256), Err(Reason::NatBlockLimit));
    check::invariants(&mut w);
    w.take_events();
    let allocated = w.events.iter().filter(|e| matches!(e, NatEvent::BlockAllocated { .. })).count();
    assert_eq!(allocated, 4, "RFC 6888 REQ-14: a line a block, not a line a mapping");
    w.wait(301);
    check_hold(&mut w, 4);
}

/// Released blocks wait for the hold time, then everything is free.
#[track_caller]
fn check_hold(w: &mut World, count: u32) {
    assert_eq!(w.subscribers(), []);
    assert_eq!(w.pools().iter().map(|p| p.blocks_used).sum::<u32>(), count, "in their hold time");
    w.wait(122);
    check::empty(w);
    let released = w.events.iter().filter(|e| matches!(e, NatEvent::BlockReleased { .. })).count();
    assert_eq!(released, count as usize);
}

/// RFC 6888 REQ-8: a released block goes to nobody within its hold time.
#[test]
fn block_waits_for_its_hold_time() {
    let mut w = world(instance_with(|i| {
        *i = blocks(512, 1, 0);
        i.pools = vec![pool(0, &["192.0.2.1"], 1_024, 1_535)];
    }));
    w.udp_out("10.0.0.1:1", "198.51.100.1:1").unwrap();
    w.wait(302);
    for _ in 0..117 {
        assert_eq!(w.udp_out("10.0.0.2:1", "198.51.100.1:1"), Err(Reason::NatPoolExhausted));
        w.wait(1);
    }
    w.wait(5);
    assert!(w.udp_out("10.0.0.2:1", "198.51.100.1:1").is_ok());
}

/// RFC 6888 REQ-8: the number of held ports is configurable, by a reload too; what is released beyond it is free at once.
#[test]
fn no_more_ports_are_held_than_configured() {
    let single = instance_with(|i| i.pools = vec![pool(0, &["192.0.2.1"], 3_000, 3_007)]);
    let whole = instance_with(|i| {
        *i = blocks(16, 1, 0);
        i.pools = vec![pool(0, &["192.0.2.1"], 1_024, 1_024 + 8 * 16 - 1)];
    });
    for (before, ports_max) in [(single, 3), (whole, 3 * 16 + 5)] {
        let mut w = world(before.clone());
        let ask = |w: &mut World, hosts: core::ops::Range<u32>| {
            hosts.filter(|host| w.udp_out(&format!("10.0.0.{host}:1"), "198.51.100.1:1").is_ok()).count()
        };
        assert_eq!(ask(&mut w, 0..10), 8);
        w.configure(vec![Instance { port_hold_ports_max: ports_max, ..before.clone() }]);
        w.wait(302);
        assert_eq!(w.session_count(), 0);
        assert_eq!(ask(&mut w, 10..20), 5, "three of eight are held");
        check::invariants(&mut w);
        w.wait(125 + 120);
        assert_eq!(ask(&mut w, 20..30), 3, "and given back in their time");
        w.wait(302 + 245);
        check::empty(&mut w);
    }
}

/// One block of 64 ports for each of so many hosts, all in their hold time, which ends before anything is swept again.
fn due_at_once(pooling: Pooling, pool_of: &str, ports: u16, hosts: u32) -> World {
    let mut w = world(instance_with(|i| {
        *i = blocks(64, 2, 0);
        i.pooling = pooling;
        i.pools = vec![pool(0, &[pool_of], 1_024, 1_023 + ports)];
    }));
    for n in 0..hosts {
        w.udp_out(&format!("10.0.{}.{}:1", n / 256, n % 256), "198.51.100.1:1").unwrap();
    }
    w.wait(302);
    w.now = w.now.plus_ns(200_000_000_000);
    w
}

fn blocks_used(w: &World) -> u32 {
    w.pools().iter().map(|p| p.blocks_used).sum()
}

/// A second's blocks come due together. What one packet, or a call between two bursts, ends of them is bounded
/// (ADR 4).
#[test]
fn hold_times_end_a_few_at_a_time() {
    let mut w = due_at_once(Pooling::Paired, "192.0.2.0/30", 64 * 250, 900);
    assert_eq!(blocks_used(&w), 900);
    for n in 1..=10 {
        w.udp_out(&format!("10.1.0.{n}:1"), "198.51.100.1:1").unwrap();
        assert_eq!(blocks_used(&w), 900 - 2 * n + n, "two end for each that begins");
    }
    let mut calls = 0;
    while blocks_used(&w) > 10 {
        let (used, now) = (blocks_used(&w), w.now);
        w.nats[0].expire(now);
        assert_eq!(used - blocks_used(&w), (used - 10).min(8));
        assert!(w.nats[0].is_behind(), "and says so");
        calls += 1;
    }
    let now = w.now;
    w.nats[0].expire(now);
    assert_eq!((calls, w.nats[0].is_behind()), (880 / 8, false));
    check::invariants(&mut w);
    w.wait(302 + 122);
    check::empty(&mut w);
}

/// Blocks that are due are not missed, though their turn has not come: also not by one who can have those of its
/// own address alone.
#[test]
fn no_block_is_refused_while_one_is_due() {
    for pooling in [Pooling::Paired, Pooling::Arbitrary] {
        let mut w = due_at_once(pooling, "192.0.2.0/31", 64 * 50, 100);
        for n in 0..50 {
            for port in 0..65 {
                let got = w.udp_out(&format!("10.1.0.{n}:{}", port + 1), "198.51.100.1:1");
                assert!(got.is_ok(), "{pooling:?}, host {n}, port {port}: {got:?}");
            }
        }
        assert_eq!(w.udp_out("10.1.1.0:1", "198.51.100.1:1"), Err(Reason::NatPoolExhausted));
        check::invariants(&mut w);
    }
}

/// RFC 6888 REQ-8b: a subscriber's own ports, within its block, may be used again at once.
#[test]
fn ports_within_a_block_are_free_at_once() {
    let mut w = world(blocks(16, 1, 3_600));
    for n in 0..16 {
        from_one(&mut w, n).unwrap();
    }
    w.wait(302);
    for n in 100..116 {
        from_one(&mut w, n).unwrap();
    }
}

/// An empty block stays with its subscriber for the idle time, then goes; the subscriber goes with its last.
#[test]
fn idle_block_is_released_after_its_time() {
    let mut w = world(blocks(16, 4, 600));
    for n in 0..40 {
        from_one(&mut w, n).unwrap();
    }
    let before = held(&w);
    assert_eq!(before.len(), 3);
    w.wait(301);
    assert_eq!(w.session_count(), 0);
    w.wait(590);
    assert_eq!(held(&w), before, "kept while idle");
    // Traffic in one of them keeps that one.
    let kept = from_one(&mut w, 99).unwrap();
    w.wait(30);
    let now = held(&w);
    assert_eq!(now.len(), 1);
    assert!((now[0].first..=now[0].last).contains(&kept.port) && now[0].ip == kept.ip);
    w.wait(300 + 600 + 10);
    assert_eq!(w.pools().iter().map(|p| p.blocks_used).sum::<u32>(), 1, "the last one in its hold time");
    w.wait(122);
    check::empty(&mut w);
}

/// A block in use is never released, however long.
#[test]
fn block_in_use_is_kept() {
    let mut w = world(blocks(16, 4, 30));
    for n in 0..20 {
        from_one(&mut w, n).unwrap();
    }
    for _ in 0..10 {
        w.wait(200);
        from_one(&mut w, 3).unwrap();
        check::invariants(&mut w);
    }
    assert_eq!(held(&w).len(), 1);
}

/// RFC 6888 REQ-2: all blocks of a paired subscriber are of one address, whose shortage refuses; arbitrary pooling
/// goes on elsewhere.
#[test]
fn blocks_are_paired_as_addresses_are() {
    let paired = blocks(512, 8, 0);
    let mut w = world(paired.clone());
    let one: Vec<_> = (0..1_024).map(|n| from_one(&mut w, n).unwrap().ip).collect();
    assert!(one.iter().all(|ip| *ip == one[0]));
    assert_eq!(from_one(&mut w, 1_024), Err(Reason::NatPortsExhausted));
    let mut w = world(Instance { pooling: Pooling::Arbitrary, ..paired });
    assert!((0..4_096).all(|n| n >= 4_000 || from_one(&mut w, n).is_ok()));
    check::invariants(&mut w);
}

/// `nat-pool-exhausted`: no block left anywhere; everything comes back.
#[test]
fn exhausted_blocks_recover() {
    let mut w = world(blocks(512, 8, 0));
    for round in 0..2 {
        let made = (0..20).filter(|n| w.udp_out(&format!("10.0.{round}.{n}:1"), "198.51.100.1:1").is_ok());
        assert_eq!(made.count(), 8);
        let refused = w.udp_out("10.0.9.9:1", "198.51.100.1:1");
        assert_eq!(refused, Err(Reason::NatPoolExhausted));
        w.wait(425);
        check::empty(&mut w);
    }
}

/// Parity and contiguity hold within blocks too, the neighbour's block included.
#[test]
fn neighbours_follow_in_their_block() {
    let mut w = world(Instance { contiguity: true, parity: true, ..blocks(16, 16, 0) });
    let mut send = |port: u16| w.udp_out(&format!("10.0.0.1:{port}"), "198.51.100.1:1").unwrap();
    for n in 0..40 {
        let (rtp, rtcp) = (send(5_000 + 2 * n), send(5_001 + 2 * n));
        assert_eq!((rtcp.ip, rtcp.port), (rtp.ip, rtp.port + 1));
        assert_eq!(rtp.port % 2, 0);
    }
    check::invariants(&mut w);
    // A neighbour in a block that is not the newest any more is followed there.
    let mut w = world(Instance { contiguity: true, ..blocks(16, 16, 0) });
    let mut send = |port: u16| w.udp_out(&format!("10.0.0.1:{port}"), "198.51.100.1:1").unwrap();
    let early = send(4_000);
    // Ports of another protocol fill the block without taking its UDP ports.
    for port in 1..=17 {
        w.tcp_out(&format!("10.0.0.1:{port}"), "198.51.100.1:1", SYN).unwrap();
    }
    assert_eq!(held(&w).len(), 2);
    let late = w.udp_out("10.0.0.1:4001", "198.51.100.1:1").unwrap();
    assert_eq!((late.ip, late.port), (early.ip, early.port + 1));
}

/// RFC 4787 REQ-4: an older block's port of the right parity is better than the newest block's of the wrong one.
#[test]
fn parity_is_looked_for_in_all_blocks() {
    let mut w = world(Instance { parity: true, ..blocks(16, 2, 0) });
    for n in 0..16 {
        assert_eq!(
            w.udp_out(&format!("10.0.0.1:{}", 2 * n), "198.51.100.1:1").unwrap().port % 2,
            u16::from(n >= 8)
        );
    }
    for n in 0..8 {
        assert_eq!(w.udp_out(&format!("10.0.0.1:{}", 1_001 + 2 * n), "198.51.100.1:1").unwrap().port % 2, 1);
    }
    assert_eq!(held(&w).len(), 2);
    w.wait(1);
    assert_eq!(w.udp_out("10.0.0.1:3000", "198.51.100.1:1").unwrap().port % 2, 0);
}

/// A block whose ports are all forwarded gives none and is given back.
#[test]
fn block_of_forwards_is_given_back() {
    let mut w = world(instance_with(|i| {
        *i = blocks(8, 1, 60);
        i.pools = vec![pool(0, &["192.0.2.1"], 1_024, 1_031)];
        i.statics = vec![carrack_nat::policy::StaticRule::Forward {
            proto: carrack_base::Proto::Udp,
            outside: addr("192.0.2.1"),
            outside_port: 1_024,
            count: 8,
            inside: carrack_nat::Inside::V4(addr("10.0.9.9")),
            inside_port: 1,
        }];
    }));
    assert_eq!(w.udp_out("10.0.0.1:1", "198.51.100.1:1"), Err(Reason::NatPortsExhausted));
    w.wait(62 + 122);
    check::empty(&mut w);
    assert!(w.tcp_out("10.0.0.1:1", "198.51.100.1:1", SYN).is_ok());
}
