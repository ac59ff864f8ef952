//! RFC 7422: outside address and ports as a function of the inside address.

mod common;

use carrack_base::Reason;
use carrack_nat::policy::{Assignment, BlockRules, Instance, Overflow};
use carrack_nat::row::NatEvent;
use carrack_nat::{Deterministic, Inside};
use common::*;

fn deterministic(ports: u16) -> Instance {
    instance_with(|i| {
        i.subscribers = vec![net("10.0.0.0/24"), net("10.9.0.0/26")];
        i.pools = vec![pool(0, &["192.0.2.0/29", "203.0.113.9"], 1_024, 65_535)];
        i.assignment = Assignment::Deterministic { ports_per_subscriber: ports, overflow: None };
    })
}

/// RFC 7422 §2: the inverse is exact over the whole range, no two shares overlap, reserved ports are in none.
#[test]
fn inverse_is_exact_over_the_whole_range() {
    let it = deterministic(1_000);
    let function = Deterministic::of(&it).unwrap();
    let mut owners = std::collections::HashMap::new();
    for prefix in &it.subscribers {
        for inside in prefix.address()..=prefix.last() {
            let share = function.share(Inside::V4(inside)).unwrap();
            assert!(share.first >= 1_024 && share.last - share.first == 999);
            for port in share.first..=share.last {
                assert_eq!(function.inverse(share.outside, port), Some(Inside::V4(inside)));
                assert_eq!(owners.insert((share.outside, port), inside), None);
            }
        }
    }
    for range in &it.pools[0].ranges {
        for outside in range.first..=range.last {
            for port in 0..=65_535u16 {
                assert_eq!(function.inverse(outside, port).is_some(), owners.contains_key(&(outside, port)));
            }
        }
    }
    assert_eq!(function.inverse(addr("192.0.2.8"), 2_000), None);
    assert_eq!(function.share(Inside::V4(addr("10.0.1.0"))), None);
}

/// RFC 7422: the engine keeps to the function, without any log line a subscriber.
#[test]
fn every_port_is_the_subscribers_own() {
    for workers in [1, 3] {
        let it = deterministic(1_000);
        let function = Deterministic::of(&it).unwrap();
        let mut w = World::new(vec![it], workers, SMALL);
        for host in (0..256).step_by(17) {
            for port in 1..20 {
                let inside = format!("10.0.0.{host}:{port}");
                let outside = w.udp_out(&inside, "198.51.100.1:1").unwrap();
                assert_eq!(function.inverse(outside.ip, outside.port), Some(Inside::V4(e(&inside).ip)));
                assert_eq!(w.udp_in("198.51.100.1:1", outside), Ok(e(&inside)));
            }
        }
        check::invariants(&mut w);
        w.wait(301);
        check::empty(&mut w);
        assert!(w.events.iter().all(|e| matches!(e, NatEvent::Refused { .. })), "{:?}", w.events);
    }
}

/// `nat-ports-exhausted`: a share is all there is; RFC 6888 REQ-8b: its ports may be used again at once.
#[test]
fn share_is_all_there_is() {
    let mut w = world(deterministic(100));
    for round in 0..2 {
        for n in 0..100 {
            w.udp_out(&format!("10.0.0.1:{}", 1 + n + round * 100), "198.51.100.1:1").unwrap();
        }
        assert_eq!(w.udp_out("10.0.0.1:9999", "198.51.100.1:1"), Err(Reason::NatPortsExhausted));
        assert!(w.udp_out(&format!("10.0.0.2:{}", 1 + round), "198.51.100.1:1").is_ok());
        check::invariants(&mut w);
        w.wait(302);
        check::empty(&mut w);
    }
}

/// However many workers give out ports of an address, it has them once.
#[test]
fn ports_of_an_address_are_counted_once_for_all_workers() {
    for workers in [1, 3] {
        let mut w = World::new(vec![deterministic(100)], workers, SMALL);
        assert_eq!(w.pools().iter().map(|row| u64::from(row.ports_total)).sum::<u64>(), 9 * 64_512);
        w.udp_out("10.0.0.1:1", "198.51.100.1:1").unwrap();
        check::invariants(&mut w);
    }
}

fn overflowing() -> Instance {
    instance_with(|i| {
        i.subscribers = vec![net("10.0.0.0/25")];
        i.pools = vec![pool(0, &["192.0.2.0/30"], 1_024, 65_535)];
        let blocks = BlockRules { size: 64, per_subscriber_max: 2, idle_release_s: 60 };
        let overflow = Some(Overflow { ports: 8_192, blocks });
        i.assignment = Assignment::Deterministic { ports_per_subscriber: 100, overflow };
    })
}

/// RFC 7422 §2: the subscriber's own ports as long as there are any, then a block of the dynamic range of the same
/// address, which is logged; when he needs it no more it goes back, and after its hold time to others.
#[test]
fn who_needs_more_gets_a_logged_block_of_the_overflow_range() {
    for workers in [1, 3] {
        let it = overflowing();
        let function = Deterministic::of(&it).unwrap();
        let mut w = World::new(vec![it.clone()], workers, SMALL);
        let (host, mut blocks) = (addr("10.0.0.9"), vec![]);
        let share = function.share(Inside::V4(host)).unwrap();
        for port in 1..=228_u16 {
            let outside = w.udp_out(&format!("10.0.0.9:{port}"), "198.51.100.1:1").unwrap();
            assert_eq!(outside.ip, share.outside);
            assert_eq!(w.udp_in("198.51.100.1:1", outside), Ok(e(&format!("10.0.0.9:{port}"))));
            let own = (share.first..=share.last).contains(&outside.port);
            assert_eq!(own, port <= 100, "{port}: {outside:?}");
            assert_eq!(function.inverse(outside.ip, outside.port), own.then_some(Inside::V4(host)));
            assert!(own || outside.port >= 57_344);
        }
        assert_eq!(w.udp_out("10.0.0.9:229", "198.51.100.1:1"), Err(Reason::NatBlockLimit));
        check::invariants(&mut w);
        w.take_events();
        for event in &w.events {
            if let NatEvent::BlockAllocated { inside, block, .. } = event {
                assert_eq!((*inside, block.ip), (std::net::Ipv4Addr::from(host).into(), share.outside));
                blocks.push((block.first, block.last));
            }
        }
        assert!(blocks.len() == 2 && blocks.iter().all(|(first, last)| last - first == 63), "{blocks:?}");
        // Another one of the same address gets others.
        let other = (0..128)
            .map(|n| addr("10.0.0.0") + n)
            .find(|ip| *ip != host && function.share(Inside::V4(*ip)).unwrap().outside == share.outside);
        let other = std::net::Ipv4Addr::from(other.unwrap());
        for port in 1..=164 {
            let outside = w.udp_out(&format!("{other}:{port}"), "198.51.100.1:1").unwrap();
            assert!(!blocks.iter().any(|(first, last)| (*first..=*last).contains(&outside.port)));
        }
        check::invariants(&mut w);
        w.wait(301 + 62 + 125);
        let released = w.events.iter().filter(|e| matches!(e, NatEvent::BlockReleased { .. })).count();
        assert_eq!(released, 3);
        check::empty(&mut w);
    }
}

/// A reload that leaves the overflow range as it is leaves its sessions; another range ends them, and only them.
#[test]
fn overflow_blocks_survive_a_reload_that_leaves_them_alone() {
    let mut w = world(overflowing());
    let outside: Vec<_> =
        (1..=150).map(|n| w.udp_out(&format!("10.0.0.9:{n}"), "198.51.100.1:1").unwrap()).collect();
    let mut more = overflowing();
    more.pools.push(pool(1, &["203.0.113.0/30"], 1_024, 65_535));
    assert_eq!(w.configure(vec![more]), 0);
    check::invariants(&mut w);
    for (n, outside) in outside.iter().enumerate() {
        assert_eq!(w.udp_in("198.51.100.1:1", *outside), Ok(e(&format!("10.0.0.9:{}", n + 1))));
    }
    let mut none = overflowing();
    none.assignment = Assignment::Deterministic { ports_per_subscriber: 100, overflow: None };
    assert_eq!(w.configure(vec![none.clone()]), 50, "those in a block");
    check::invariants(&mut w);
    for (n, outside) in outside.iter().enumerate().take(100) {
        assert_eq!(w.udp_in("198.51.100.1:1", *outside), Ok(e(&format!("10.0.0.9:{}", n + 1))));
    }
    w.wait(301 + 125);
    check::empty(&mut w);
}

/// RFC 7422 §2: an overflow range that comes, goes or is cut otherwise ends the sessions of those whose share moves or
/// whose block goes, and no others.
#[test]
fn overflow_that_comes_or_is_cut_otherwise_leaves_shares_alone() {
    for workers in [1, 3] {
        let blocks = |size| {
            let blocks = BlockRules { size, per_subscriber_max: 2, idle_release_s: 60 };
            instance_with(|i| {
                *i = overflowing();
                let overflow = Some(Overflow { ports: 8_192, blocks });
                i.assignment = Assignment::Deterministic { ports_per_subscriber: 1_000, overflow };
            })
        };
        let mut none = overflowing();
        none.assignment = Assignment::Deterministic { ports_per_subscriber: 1_000, overflow: None };
        let share =
            |it: &Instance, ip: &str| Deterministic::of(it).unwrap().share(Inside::V4(addr(ip))).unwrap();
        let (same, moves) = ("10.0.0.9", "10.0.0.70");
        assert_eq!(share(&none, same), share(&blocks(64), same));
        assert_ne!(share(&none, moves), share(&blocks(64), moves));
        let mut w = World::new(vec![none.clone()], workers, SMALL);
        let mut kept: Vec<_> =
            (1..=900).map(|n| w.udp_out(&format!("{same}:{n}"), "198.51.100.1:1").unwrap()).collect();
        for n in 1..=5 {
            w.udp_out(&format!("{moves}:{n}"), "198.51.100.1:1").unwrap();
        }
        assert_eq!(w.configure(vec![blocks(64)]), 5, "those of the share that moves");
        check::invariants(&mut w);
        let alive = |w: &mut World, kept: &[carrack_nat::row::Endpoint]| {
            for (n, outside) in kept.iter().enumerate() {
                assert_eq!(w.udp_in("198.51.100.1:1", *outside), Ok(e(&format!("{same}:{}", n + 1))));
            }
            check::invariants(w);
        };
        alive(&mut w, &kept);
        // A hundred more of his own, then a block.
        kept.extend((901..=1_000).map(|n| w.udp_out(&format!("{same}:{n}"), "198.51.100.1:1").unwrap()));
        for n in 1_001..=1_010 {
            let outside = w.udp_out(&format!("{same}:{n}"), "198.51.100.1:1").unwrap();
            assert!(outside.port >= 57_344, "{outside:?}");
        }
        assert_eq!(w.configure(vec![blocks(128)]), 10, "those of the block");
        alive(&mut w, &kept);
        assert_eq!(w.configure(vec![none]), 0);
        alive(&mut w, &kept);
        w.wait(301 + 62 + 125);
        check::empty(&mut w);
    }
}

/// `nat-pool-exhausted`: a subscriber behind the end of the pool has no share.
#[test]
fn pool_too_small_refuses_the_rest() {
    let mut w = world(instance_with(|i| {
        *i = deterministic(30_000);
    }));
    // Nine addresses hold two shares each.
    assert!(w.udp_out("10.0.0.17:1", "198.51.100.1:1").is_ok());
    assert_eq!(w.udp_out("10.0.0.18:1", "198.51.100.1:1"), Err(Reason::NatPoolExhausted));
}
