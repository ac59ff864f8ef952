//! A reload in steps: the old policy is in force until every line is prepared, then the new one at once.

mod common;

use std::sync::Arc;

use carrack_base::{Proto, Reason};
use carrack_nat::Inside;
use carrack_nat::policy::{Assignment, Instance, NatPolicy, Pooling, StaticRule};
use carrack_nat::row::Endpoint;
use common::*;

const SERVER: &str = "198.51.100.1:53";
const BLOCKS: Assignment = Assignment::Blocks { size: 64, per_subscriber_max: 4, idle_release_s: 600 };

fn two_pools(assignment: Assignment) -> Instance {
    instance_with(|i| {
        i.assignment = assignment;
        i.pools = vec![pool(0, &["192.0.2.0/27"], 1_024, 4_095), pool(1, &["203.0.113.0/27"], 1_024, 4_095)];
    })
}

/// The same with the second pool alone.
fn second_only(of: &Instance) -> Instance {
    Instance { pools: of.pools[1..].to_vec(), ..of.clone() }
}

fn policy(instance: Instance) -> Arc<NatPolicy> {
    Arc::new(NatPolicy { instances: vec![instance], ..NatPolicy::default() })
}

fn begin(w: &mut World, policy: &Arc<NatPolicy>) {
    w.policy = policy.clone();
    for nat in &mut w.nats {
        let change = nat.prepare_change(policy.clone()).unwrap();
        assert!(nat.begin(change).is_none());
    }
}

fn finish(w: &mut World) -> u64 {
    let (now, mut ended) = (w.now, 0);
    for nat in &mut w.nats {
        while !nat.advance(now) {}
        ended += nat.ended_by_change();
        assert!(nat.commit(now).is_some());
        while nat.is_laying() {
            nat.expire(now);
        }
    }
    w.take_events();
    ended
}

fn fill(w: &mut World, hosts: u32) -> Vec<(String, Endpoint)> {
    let inside = |host: u32| format!("10.0.{}.{}:1000", host >> 8, host & 255);
    (0..hosts).map(|host| (inside(host), w.udp_out(&inside(host), SERVER).unwrap())).collect()
}

fn is_first_pool(outside: Endpoint) -> bool {
    outside.ip >> 8 == addr("192.0.2.0") >> 8
}

/// However many ports are forwarded, packets wait for a few of them at most. Those that have no mapping yet are nobody
/// else's already, and the hosts they are for get no other.
#[test]
fn a_reload_puts_a_few_forwarded_ports_in_force_at_once() {
    let ports: u16 = 1_000;
    let plain = instance_with(|i| i.pools = vec![pool(0, &["192.0.2.1"], 2_000, 3_023)]);
    let rule = StaticRule::Forward {
        proto: Proto::Udp,
        outside: addr("192.0.2.1"),
        outside_port: 2_000,
        count: ports,
        inside: Inside::V4(addr("10.0.9.9")),
        inside_port: 7_000,
    };
    let mut w = world(plain.clone());
    let laid = |w: &mut World| w.mappings().iter().filter(|mapping| mapping.is_static).count();
    begin(&mut w, &policy(Instance { statics: vec![rule], ..plain.clone() }));
    let now = w.now;
    while !w.nats[0].advance(now) {}
    assert!(w.nats[0].commit(now).is_some());
    assert_eq!(laid(&mut w), 0, "none at the change-over itself");
    for host in 0..24 {
        let outside = w.udp_out(&format!("10.0.0.{host}:1"), SERVER).unwrap();
        assert!(outside.port >= 2_000 + ports, "{outside:?} is forwarded");
    }
    assert_eq!(w.udp_out("10.0.0.99:1", SERVER), Err(Reason::NatPoolExhausted));
    assert_eq!(w.udp_out("10.0.9.9:7999", SERVER), Err(Reason::NatPoolChanging));
    let mut turns = 0;
    while w.nats[0].is_laying() {
        let before = laid(&mut w);
        w.nats[0].expire(now);
        assert!(laid(&mut w) - before <= 64);
        turns += 1;
    }
    assert_eq!((laid(&mut w), turns), (usize::from(ports), 16));
    assert_eq!(w.udp_in("198.51.100.2:2", e("192.0.2.1:2999")), Ok(e("10.0.9.9:7999")));
    assert_eq!(w.udp_out("10.0.9.9:7999", SERVER), Ok(e("192.0.2.1:2999")));
    check::invariants(&mut w);
    // What is no rule's any more is everybody's again.
    assert_eq!(w.configure(vec![plain]), 2);
    w.wait(301 + 62 + 125);
    check::empty(&mut w);
}

/// However many sessions a reload ends, packets wait for a few of them at most; the others go on until their turn, and
/// by the time the reload is done not one that the new policy forbids is left.
#[test]
fn a_reload_ends_a_few_sessions_at_once() {
    for assignment in [Assignment::Arbitrary, BLOCKS] {
        let before = two_pools(assignment);
        let mut w = World::new(vec![before.clone()], 1, SMALL);
        let flows = fill(&mut w, 900);
        let (gone, kept): (Vec<_>, Vec<_>) = flows.into_iter().partition(|(_, at)| is_first_pool(*at));
        assert!(gone.len() > 300 && kept.len() > 300);
        begin(&mut w, &policy(second_only(&before)));
        let mut turns = 0;
        loop {
            let (count, now) = (w.session_count(), w.now);
            let ready = w.nats[0].advance(now);
            assert!(count - w.session_count() <= 64, "{} ended in one turn", count - w.session_count());
            if ready {
                break;
            }
            turns += 1;
            // The last one's turn has not come for long, and he has not noticed anything.
            if turns == 2 {
                let (inside, outside) = gone.last().unwrap();
                assert_eq!(w.udp_in(SERVER, *outside), Ok(e(inside)));
                assert_eq!(w.udp_out(inside, SERVER), Ok(*outside));
            }
            for (inside, outside) in kept.iter().take(3) {
                assert_eq!(w.udp_in(SERVER, *outside), Ok(e(inside)));
            }
        }
        assert!(turns > 5, "{turns} turns");
        assert_eq!(w.sessions().iter().filter(|s| is_first_pool(s.outside)).count(), 0);
        assert_eq!(finish(&mut w), gone.len() as u64);
        check::invariants(&mut w);
        for (inside, outside) in &kept {
            assert_eq!(w.udp_out(inside, SERVER), Ok(*outside));
        }
        assert_eq!(w.incoming(&frames::udp(e(SERVER), gone[0].1)), Outcome::Untouched);
        assert!(!is_first_pool(w.udp_out(&gone[0].0, SERVER).unwrap()));
        w.wait(301 + 610 + 125);
        check::empty(&mut w);
    }
}

/// While a reload is prepared, what it leaves alone goes on opening sessions; what it would end is refused by name, and
/// takes nothing meanwhile.
#[test]
fn nothing_begins_that_the_reload_would_end() {
    let before = instance_with(|i| {
        i.assignment = BLOCKS;
        i.subscribers = vec![net("10.0.0.0/24"), net("10.0.1.0/24")];
    });
    let after = Instance {
        subscribers: vec![net("10.0.0.0/24")],
        exempt: vec![net("198.51.100.128/25")],
        ..before.clone()
    };
    let mut w = world(before);
    let leaves = w.udp_out("10.0.1.1:1", SERVER).unwrap();
    begin(&mut w, &policy(after));
    let now = w.now;
    while !w.nats[0].advance(now) {}
    w.take_events();
    w.events.clear();
    // Ready, not in force: the old policy, but for what is leaving.
    assert!(w.udp_out("10.0.0.1:1", SERVER).is_ok());
    assert_eq!(w.udp_out("10.0.0.1:1", "198.51.100.200:53"), Err(Reason::NatPoolChanging));
    w.take_events();
    let told = w.events.len();
    for host in 1..100 {
        assert_eq!(w.udp_out(&format!("10.0.1.{host}:1"), SERVER), Err(Reason::NatPoolChanging));
    }
    assert_eq!(w.udp_in(SERVER, leaves), Err(Reason::NatNoMapping));
    w.take_events();
    assert_eq!(w.events.len(), told, "a refused packet takes no block: {:?}", w.events);
    assert_eq!(w.subscribers().len(), 1);
    finish(&mut w);
    check::invariants(&mut w);
    assert_eq!(w.udp_out("10.0.1.1:1", SERVER), Err(Reason::NatSubscriberDenied));
    assert_eq!(w.out(&frames::udp(e("10.0.0.1:1"), e("198.51.100.200:53"))), Outcome::Untouched);
    w.wait(301 + 610 + 125);
    check::empty(&mut w);
}

/// A reload that is taken back leaves the old policy in force, and every port that is free can be had.
#[test]
fn a_reload_that_is_given_up_leaves_the_old_policy_whole() {
    for assignment in [Assignment::Arbitrary, BLOCKS] {
        let before = two_pools(assignment);
        let old = policy(before.clone());
        let mut w = World::new(vec![before.clone()], 2, SMALL);
        w.policy = old.clone();
        let flows = fill(&mut w, 200);
        begin(&mut w, &policy(second_only(&before)));
        let now = w.now;
        w.nats[0].advance(now);
        for nat in &mut w.nats {
            assert!(nat.abandon().is_some());
            assert!(nat.commit(now).is_none(), "there is nothing to put in force");
        }
        w.policy = old;
        check::invariants(&mut w);
        let ended = flows.iter().filter(|(_, outside)| w.udp_in(SERVER, *outside).is_err()).count();
        assert!(ended <= 64, "{ended}");
        let again = fill(&mut w, 300);
        assert!(again.iter().any(|(_, outside)| is_first_pool(*outside)));
        check::invariants(&mut w);
        w.wait(301 + 610 + 125);
        check::empty(&mut w);
    }
}

/// A worker that never gets ready for another cut of the pool holds up nobody once the reload is withdrawn: neither
/// the policy in force nor the next reload.
#[test]
fn a_withdrawn_reload_holds_up_no_pool() {
    let before = two_pools(BLOCKS);
    let recut = |size| {
        let blocks = Assignment::Blocks { size, per_subscriber_max: 4, idle_release_s: 600 };
        policy(Instance { assignment: blocks, ..before.clone() })
    };
    let mut w = World::new(vec![before.clone()], 2, SMALL);
    // Worker 1 has it and stands still for ever.
    let stuck = w.nats[1].prepare_change(recut(32)).unwrap();
    let withdrawal = stuck.withdrawal();
    let now = w.now;
    let next = recut(16);
    for nat in &mut w.nats {
        nat.configure(next.clone(), now).unwrap();
    }
    w.policy = next;
    assert_eq!(w.udp_out("10.0.0.1:1", SERVER), Err(Reason::NatPoolChanging));
    withdrawal.withdraw();
    fill(&mut w, 50);
    drop(stuck);
    check::invariants(&mut w);
    w.wait(301 + 610 + 125);
    check::empty(&mut w);
}

/// Blocks that lie in both port ranges stay with their subscribers when the range changes.
#[test]
fn another_port_range_leaves_the_blocks_that_are_in_both() {
    let with = |first, last| {
        instance_with(|i| {
            i.assignment = BLOCKS;
            i.pools = vec![pool(0, &["192.0.2.0/29"], first, last)];
        })
    };
    for workers in [1, 2] {
        let mut w = World::new(vec![with(1_024, 4_095)], workers, SMALL);
        let mut flows = fill(&mut w, 150);
        for (first, last) in [(2_048, 4_095), (1_536, 3_583), (1_024, 65_535), (1_040, 8_207)] {
            // The last one cuts between: nothing stays.
            let fits = |at: &Endpoint| (first..=last).contains(&at.port) && first % 64 == 0;
            let (kept, gone): (Vec<_>, Vec<_>) = flows.into_iter().partition(|(_, outside)| fits(outside));
            assert_eq!(w.configure(vec![with(first, last)]), gone.len() as u64, "{first} to {last}");
            check::invariants(&mut w);
            for (inside, outside) in &kept {
                assert_eq!(w.udp_in(SERVER, *outside), Ok(e(inside)));
                assert_eq!(w.udp_out(inside, SERVER), Ok(*outside));
            }
            flows = fill(&mut w, 150);
            for (inside, outside) in &flows {
                assert_eq!(w.udp_in(SERVER, *outside), Ok(e(inside)));
            }
            check::invariants(&mut w);
        }
        w.wait(301 + 610 + 125);
        check::empty(&mut w);
    }
}

/// Pools come, go and come back in another order, over and over: subscribers keep their addresses by whatever number.
#[test]
fn addresses_keep_their_subscribers_over_many_reloads() {
    let ranges = ["192.0.2.0/29", "203.0.113.0/30", "198.18.0.0/29", "198.18.5.0/31"];
    let with = |which: &[u16], assignment, hold| {
        instance_with(|i| {
            (i.assignment, i.pooling, i.port_hold_s) = (assignment, Pooling::Paired, hold);
            i.pools = which.iter().map(|n| pool(*n, &[ranges[usize::from(*n)]], 1_024, 8_191)).collect();
        })
    };
    let orders: [&[u16]; 7] = [&[0, 1], &[1, 2, 0], &[3, 2], &[2], &[2, 0, 1, 3], &[3, 1], &[1, 0, 2]];
    for (assignment, workers) in [(Assignment::Arbitrary, 1), (BLOCKS, 1), (BLOCKS, 3)] {
        let mut w = World::new(vec![with(&[0, 1], assignment, 120)], workers, SMALL);
        for (round, which) in orders.iter().enumerate() {
            let flows = fill(&mut w, 120);
            let here = |at: &Endpoint| which.iter().any(|n| net(ranges[usize::from(*n)]).contains(at.ip));
            let (kept, gone): (Vec<_>, Vec<_>) = flows.into_iter().partition(|(_, outside)| here(outside));
            let hold = [120, 0, 30][round % 3];
            let leaving = w.sessions().iter().filter(|s| !here(&s.outside)).count();
            assert!(leaving >= gone.len());
            assert_eq!(w.configure(vec![with(which, assignment, hold)]), leaving as u64);
            check::invariants(&mut w);
            for (inside, outside) in &kept {
                assert_eq!(w.udp_in(SERVER, *outside), Ok(e(inside)));
                assert_eq!(w.udp_out(inside, SERVER), Ok(*outside));
                // Another session of his is from the same address: paired is paired.
                assert_eq!(w.udp_out(inside, "198.51.100.9:9").map(|at| at.ip), Ok(outside.ip));
            }
        }
        w.wait(301 + 610 + 125);
        check::empty(&mut w);
        let used = |w: &World| {
            w.pools().iter().map(|p| p.ports_used.iter().sum::<u32>() + p.blocks_used).sum::<u32>()
        };
        assert_eq!(used(&w), 0);
    }
}
