//! Reload: unaffected sessions go on untouched, the others end, and every resource is accounted for.

mod common;

use carrack_base::{InstanceId, PoolId, Proto, Reason, VrfId};
use carrack_nat::Inside;
use carrack_nat::policy::{Assignment, Filtering, Instance, Pooling, StaticRule};
use common::*;

const SERVER: &str = "198.51.100.1:53";

fn two_pools() -> Instance {
    instance_with(|i| {
        i.pools = vec![pool(0, &["192.0.2.0/30"], 1_024, 2_047), pool(1, &["203.0.113.0/30"], 1_024, 2_047)];
    })
}

/// Opens a session from each of many hosts; (inside, outside).
fn fill(w: &mut World, hosts: u32) -> Vec<(String, carrack_nat::row::Endpoint)> {
    (0..hosts)
        .map(|host| {
            let inside = format!("10.0.{}.{}:1000", host >> 8, host & 255);
            let outside = w.udp_out(&inside, SERVER).unwrap();
            (inside, outside)
        })
        .collect()
}

#[track_caller]
fn alive(w: &mut World, flows: &[(String, carrack_nat::row::Endpoint)]) {
    for (inside, outside) in flows {
        assert_eq!(w.udp_in(SERVER, *outside), Ok(e(inside)));
        assert_eq!(w.udp_out(inside, SERVER), Ok(*outside));
    }
}

/// A pool that goes away ends its sessions and only those; the other pool keeps its blocks, ports and hold times.
#[test]
fn removed_pool_ends_its_sessions_and_only_those() {
    let blocks = Assignment::Blocks { size: 64, per_subscriber_max: 2, idle_release_s: 600 };
    for assignment in [Assignment::Arbitrary, blocks] {
        for workers in [1, 2] {
            let before = Instance { assignment, ..two_pools() };
            let mut w = World::new(vec![before.clone()], workers, SMALL);
            let flows = fill(&mut w, 40);
            let (kept, gone): (Vec<_>, Vec<_>) =
                flows.into_iter().partition(|(_, outside)| outside.ip >> 8 == addr("203.0.113.0") >> 8);
            assert!(!kept.is_empty() && !gone.is_empty());
            let after = Instance { pools: before.pools[1..].to_vec(), ..before.clone() };
            assert_eq!(w.configure(vec![after]), gone.len() as u64);
            check::invariants(&mut w);
            alive(&mut w, &kept);
            for (inside, outside) in &gone {
                // Their addresses are none of ours any more; the subscribers start anew in the other pool.
                assert_eq!(w.incoming(&frames::udp(e(SERVER), *outside)), Outcome::Untouched);
                assert!(w.udp_out(inside, SERVER).unwrap().ip >> 8 == addr("203.0.113.0") >> 8);
            }
            check::invariants(&mut w);
            // And back again, with a third.
            let mut wider = before.clone();
            wider.pools.push(pool(2, &["198.18.0.0/24"], 1_024, 2_047));
            assert_eq!(w.configure(vec![wider]), 0);
            check::invariants(&mut w);
            alive(&mut w, &kept);
            w.wait(301 + 610 + 125);
            check::empty(&mut w);
        }
    }
}

/// Timeouts, limits and the like change in place.
#[test]
fn other_settings_touch_no_session() {
    let mut w = world(two_pools());
    let flows = fill(&mut w, 60);
    let mut changed = two_pools();
    changed.limits.sessions_max = 1;
    changed.hairpinning = false;
    changed.port_hold_s = 7;
    changed.pooling = Pooling::Arbitrary;
    assert_eq!(w.configure(vec![changed]), 0);
    check::invariants(&mut w);
    alive(&mut w, &flows);
    assert_eq!(w.udp_out("10.0.0.1:7", SERVER), Err(Reason::NatSessionLimit));
    w.wait(301);
    check::empty(&mut w);
}

/// RFC 6888 REQ-8: also ports that were taken before the pool had a hold time.
#[test]
fn ports_are_held_as_soon_as_a_change_says_so() {
    let with = |hold| {
        instance_with(|i| {
            (i.assignment, i.port_hold_s) = (Assignment::Arbitrary, hold);
            i.pools = vec![pool(1, &["192.0.2.1/32"], 2_000, 2_003)];
        })
    };
    let all = |w: &mut World| (0..4).filter(|n| w.udp_out(&format!("10.0.0.1:{n}"), SERVER).is_ok()).count();
    let mut w = world(with(0));
    assert_eq!(all(&mut w), 4);
    w.wait(301);
    assert_eq!(all(&mut w), 4, "nothing is held yet");
    assert_eq!(w.configure(vec![with(10_000)]), 0);
    w.wait(301);
    assert_eq!(all(&mut w), 0);
}

/// Packets do not wait for a walk over all sessions: a few learn of the change at once, the others between bursts.
#[test]
fn a_change_in_place_looks_at_few_sessions_at_once() {
    let mut w = world(two_pools());
    let flows = fill(&mut w, 900);
    let strict = instance_with(|i| {
        i.pools = two_pools().pools;
        i.filtering = [Filtering::AddressDependent; 3];
    });
    w.configure(vec![strict]);
    // Whose permission is known already may send from other ports too.
    let permitted = |w: &mut World| {
        let mut from_another_port = |outside| w.udp_in("198.51.100.1:54", outside).is_ok();
        flows.iter().map(|(_, outside)| *outside).filter(|outside| from_another_port(*outside)).count()
    };
    let at_once = permitted(&mut w);
    assert!((1..600).contains(&at_once), "{at_once} of 900 were looked at in the reload itself");
    alive(&mut w, &flows);
    w.wait(1);
    assert_eq!(permitted(&mut w), 900);
    check::invariants(&mut w);
}

/// RFC 4787 REQ-5b: a shorter timeout takes hold of sessions that are there, within half a minute; a longer one
/// saves them.
#[test]
fn changed_timeouts_apply_to_old_sessions() {
    let mut w = world(two_pools());
    fill(&mut w, 60);
    let mut changed = two_pools();
    changed.timeouts.udp_s = 120;
    assert_eq!(w.configure(vec![changed]), 0);
    w.wait(118);
    assert_eq!(w.session_count(), 60);
    w.wait(35);
    check::empty(&mut w);

    let flows = fill(&mut w, 60);
    w.configure(vec![two_pools()]);
    w.wait(290);
    alive(&mut w, &flows);
}

/// Another way to give out ports starts anew, everything being given back.
#[test]
fn other_assignment_starts_anew() {
    let blocks = |size| Assignment::Blocks { size, per_subscriber_max: 2, idle_release_s: 600 };
    let mut w = world(two_pools());
    for assignment in [
        blocks(64),
        blocks(32),
        Assignment::Deterministic { ports_per_subscriber: 16, overflow: None },
        Assignment::Arbitrary,
    ] {
        fill(&mut w, 60);
        let changed = Instance { assignment, subscribers: vec![net("10.0.0.0/24")], ..two_pools() };
        assert_eq!(w.configure(vec![changed]), 60, "{assignment:?}");
        check::invariants(&mut w);
        assert_eq!(w.session_count(), 0);
        assert_eq!(w.subscribers(), []);
    }
    check::empty(&mut w);
}

/// A subscriber that moves to another instance takes nothing of the old one along.
#[test]
fn moved_subscribers_start_anew() {
    let blocks = Assignment::Blocks { size: 64, per_subscriber_max: 2, idle_release_s: 600 };
    let first = instance_with(|i| {
        i.assignment = blocks;
        i.subscribers = vec![net("10.0.0.0/25"), net("10.0.0.128/25")];
    });
    let second = instance_with(|i| {
        i.assignment = blocks;
        (i.id, i.name) = (InstanceId(1), "second".into());
        i.subscribers = vec![net("10.1.0.0/16")];
        i.pools = vec![pool(1, &["203.0.113.1"], 1_024, 65_535)];
    });
    let mut w = World::new(vec![first.clone(), second.clone()], 1, SMALL);
    let stays = w.udp_out("10.0.0.1:1", SERVER).unwrap();
    w.udp_out("10.0.0.200:1", SERVER).unwrap();
    let first = Instance { subscribers: vec![net("10.0.0.0/25")], ..first };
    let second = Instance { subscribers: vec![net("10.0.0.128/25"), net("10.1.0.0/16")], ..second };
    assert_eq!(w.configure(vec![first, second]), 1);
    check::invariants(&mut w);
    assert_eq!(w.udp_out("10.0.0.200:1", SERVER).unwrap().ip, addr("203.0.113.1"));
    assert_eq!(w.udp_out("10.0.0.1:1", SERVER), Ok(stays));
    check::invariants(&mut w);
    w.wait(301 + 610 + 125);
    check::empty(&mut w);
}

/// Instances are known by name: removing one touches none of the others, whatever their numbers become.
#[test]
fn removed_instance_ends_its_sessions_and_only_those() {
    let numbered = |n: u16, name: &str| {
        instance_with(|i| {
            (i.id, i.name) = (InstanceId(n), name.into());
            let third = name.bytes().next().unwrap();
            i.inside_vrf = VrfId(u16::from(third));
            i.pools = vec![pool(u16::from(third), &[&format!("192.0.{third}.1")], 1_024, 65_535)];
            i.pools[0].id = PoolId(n);
            i.assignment = Assignment::Blocks { size: 64, per_subscriber_max: 2, idle_release_s: 60 };
            i.statics = vec![forward(Proto::Tcp, &format!("192.0.{third}.1:80"), "10.0.0.9:80")];
        })
    };
    let frame = frames::udp(e("10.0.0.1:1"), e(SERVER));
    let mut w = World::new(vec![numbered(0, "a"), numbered(1, "b"), numbered(2, "c")], 1, SMALL);
    let mut outsides = vec![];
    for name in [b'a', b'b', b'c'] {
        outsides.push(outer(&w.send(name.into(), carrack_nat::Direction::Out, &frame).frame()).source);
    }
    assert_eq!(w.configure(vec![numbered(0, "c"), numbered(1, "a")]), 1);
    check::invariants(&mut w);
    for (at, name) in [(0, b'a'), (2, b'c')] {
        let got = w.send(name.into(), carrack_nat::Direction::Out, &frame).frame();
        assert_eq!(outer(&got).source, outsides[at]);
        let back = frames::udp(e(SERVER), outsides[at]);
        let Outcome::Translated { vrf, .. } = w.incoming(&back) else { panic!("dropped") };
        assert_eq!(vrf, VrfId(name.into()));
    }
    assert_eq!(w.incoming(&frames::udp(e(SERVER), outsides[1])), Outcome::Untouched);
    assert_eq!(w.mappings().iter().filter(|m| m.is_static).count(), 2);
    w.wait(301 + 62 + 125);
    check::empty(&mut w);
    assert_eq!(w.configure(vec![]), 0);
    assert_eq!(w.mappings(), []);
}

/// Forwards come and go: theirs end, everybody else's go on, and the ports are given out again.
#[test]
fn forwards_come_and_go() {
    for workers in [1, 3] {
        let plain = instance_with(|i| i.pools = vec![pool(0, &["192.0.2.1"], 1_024, 1_055)]);
        let mut w = World::new(vec![plain.clone()], workers, SMALL);
        let flows = fill(&mut w, 10);
        let (victim, taken) = flows[3].clone();
        // The new rule takes the port of a living mapping: that one ends.
        let rule = StaticRule::Forward {
            proto: Proto::Udp,
            outside: taken.ip,
            outside_port: taken.port,
            count: 1,
            inside: Inside::V4(addr("10.0.0.200")),
            inside_port: 53,
        };
        let with = Instance { statics: vec![rule], ..plain.clone() };
        assert_eq!(w.configure(vec![with.clone()]), 1);
        check::invariants(&mut w);
        assert_eq!(w.udp_in("203.0.113.9:9", taken), Ok(e("10.0.0.200:53")));
        assert_ne!(w.udp_out(&victim, SERVER).unwrap(), taken);
        let others: Vec<_> = flows.iter().filter(|(inside, _)| *inside != victim).cloned().collect();
        alive(&mut w, &others);
        // Over the hold time, and with every port asked for, the rule's is given to nobody.
        w.wait(250);
        for n in 0..200 {
            if let Ok(outside) = w.udp_out(&format!("10.0.5.{n}:1"), SERVER) {
                assert_ne!(outside, taken);
            }
        }
        check::invariants(&mut w);
        // A rule that stays keeps its sessions, a rule that goes ends them.
        assert_eq!(w.udp_in("203.0.113.9:9", taken), Ok(e("10.0.0.200:53")));
        assert_eq!(w.configure(vec![Instance { hairpinning: false, ..with }]), 0);
        assert_eq!(w.udp_in("203.0.113.9:9", taken), Ok(e("10.0.0.200:53")));
        assert_eq!(w.configure(vec![plain.clone()]), 1);
        check::invariants(&mut w);
        assert_eq!(w.udp_in("203.0.113.9:9", taken), Err(Reason::NatNoMapping));
        w.wait(600);
        check::empty(&mut w);
        assert_eq!(w.pools().iter().flat_map(|p| p.ports_used).sum::<u32>(), 0);
    }
}

/// A destination that becomes exempt is translated no more.
#[test]
fn new_exemption_ends_its_sessions() {
    let mut w = world(instance());
    w.udp_out("10.0.0.1:1", "198.51.100.1:1").unwrap();
    let kept = w.udp_out("10.0.0.1:1", "203.0.113.1:1").unwrap();
    assert_eq!(w.configure(vec![instance_with(|i| i.exempt = vec![net("198.51.100.0/24")])]), 1);
    assert_eq!(w.udp_out("10.0.0.1:1", "203.0.113.1:1"), Ok(kept));
    assert_eq!(w.out(&frames::udp(e("10.0.0.1:1"), e("198.51.100.1:1"))), Outcome::Untouched);
}

/// A forward rule that finds the mapping table full has its mapping as soon as there is room.
#[test]
fn a_forward_rule_waits_for_room_in_a_full_table() {
    let capacity = carrack_nat::policy::Capacity { mappings: 64, ..SMALL };
    let mut w = World::new(vec![instance()], 1, capacity);
    for port in 1..=64 {
        w.udp_out(&format!("10.0.0.1:{port}"), "198.51.100.1:1").unwrap();
    }
    let ruled = instance_with(|i| i.statics = vec![forward(Proto::Udp, "192.0.2.9:53", "10.0.0.2:53")]);
    assert_eq!(w.configure(vec![ruled]), 0);
    assert_eq!(w.udp_in("198.51.100.2:2", e("192.0.2.9:53")), Err(Reason::NatNoMapping));
    w.wait(310);
    assert_eq!(w.udp_in("198.51.100.2:2", e("192.0.2.9:53")), Ok(e("10.0.0.2:53")));
}

/// What an exempt address opened by a mapping goes on when a reload changes something else.
#[test]
fn sessions_that_an_exempt_address_opened_survive_a_reload() {
    let exempting = instance_with(|i| i.exempt = vec![net("198.51.100.0/24")]);
    let mut w = world(exempting.clone());
    let outside = w.udp_out("10.0.0.1:1", "203.0.113.1:1").unwrap();
    assert_eq!(w.udp_in("198.51.100.1:1", outside), Ok(e("10.0.0.1:1")));
    let other = Instance { statics: vec![one_to_one("10.0.1.0/28", "203.0.113.16/28")], ..exempting };
    assert_eq!(w.configure(vec![other]), 0);
    assert_eq!(w.udp_out("10.0.0.1:1", "198.51.100.1:1"), Ok(outside));
}

/// One-to-one rules come and go: a host under one leaves its dynamic endpoint, and the other way round.
#[test]
fn one_to_one_comes_and_goes() {
    let ruled = instance_with(|i| i.statics = vec![one_to_one("10.0.1.0/28", "203.0.113.16/28")]);
    let mut w = world(instance());
    w.udp_out("10.0.1.1:1000", SERVER).unwrap();
    let other = w.udp_out("10.0.0.1:1", SERVER).unwrap();
    assert_eq!(w.configure(vec![ruled]), 1);
    assert_eq!(w.udp_out("10.0.1.1:1000", SERVER), Ok(e("203.0.113.17:1000")));
    assert_eq!(w.configure(vec![instance()]), 1);
    check::invariants(&mut w);
    assert_eq!(w.udp_out("10.0.1.1:1000", SERVER).unwrap().ip, addr("192.0.2.1"));
    assert_eq!(w.udp_out("10.0.0.1:1", SERVER), Ok(other));
    w.wait(301);
    check::empty(&mut w);
}

/// RFC 6888 REQ-8: a reload forgets no hold time.
#[test]
fn hold_time_survives_a_reload() {
    let narrow = instance_with(|i| i.pools = vec![pool(0, &["192.0.2.1"], 3_000, 3_000)]);
    let mut w = world(narrow.clone());
    w.udp_out("10.0.0.1:1", SERVER).unwrap();
    w.wait(302);
    let mut two = narrow.clone();
    two.pools.push(pool(1, &["192.0.2.2"], 3_000, 3_000));
    w.configure(vec![two]);
    for host in 2..10 {
        if let Ok(outside) = w.udp_out(&format!("10.0.0.{host}:1"), SERVER) {
            assert_eq!(outside.ip, addr("192.0.2.2"));
        }
    }
}

/// Blocks of 64 ports of one address.
fn blocks_of_64(port_first: u16, port_last: u16) -> Instance {
    instance_with(|i| {
        i.assignment = Assignment::Blocks { size: 64, per_subscriber_max: 1, idle_release_s: 0 };
        i.pools = vec![pool(0, &["192.0.2.1"], port_first, port_last)];
        i.timeouts.udp_s = 10;
    })
}

fn blocks_used(w: &World) -> u32 {
    w.pools().iter().map(|pool| pool.blocks_used).sum()
}

/// RFC 6888 REQ-8: the hold time of a block goes on over a reload, and ends.
#[test]
fn a_block_held_at_a_reload_is_free_when_its_hold_time_is_over() {
    let mut w = world(blocks_of_64(1_024, 1_087));
    w.udp_out("10.0.0.1:1", SERVER).unwrap();
    w.wait(12);
    let mut two = blocks_of_64(1_024, 1_087);
    two.pools.push(pool(1, &["192.0.2.2"], 1_024, 1_087));
    w.configure(vec![two]);
    assert_eq!(blocks_used(&w), 1, "in its hold time");
    w.wait(122);
    check::empty(&mut w);
}

/// RFC 6888 REQ-8: ports that a reload takes from the pool no longer count among those that may be held.
#[test]
fn a_held_block_that_a_reload_does_away_with_leaves_room_for_another() {
    let bounded = |first, last| Instance { port_hold_ports_max: 64, ..blocks_of_64(first, last) };
    let mut w = world(bounded(1_024, 2_047));
    w.udp_out("10.0.0.1:1", SERVER).unwrap();
    let first = w.subscribers()[0].blocks[0].first;
    w.wait(12);
    w.configure(vec![if first == 1_024 { bounded(1_088, 2_047) } else { bounded(1_024, first - 1) }]);
    assert_eq!(blocks_used(&w), 0, "the block is no longer there");
    w.udp_out("10.0.0.2:1", SERVER).unwrap();
    w.wait(12);
    assert_eq!(blocks_used(&w), 1, "in its hold time");
}
