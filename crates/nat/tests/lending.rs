//! Port blocks move between workers: no subscriber sees another worker's shortage.

mod common;

use carrack_base::{Proto, Reason, VrfId, WorkerId};
use carrack_nat::policy::{Assignment, Instance, Pooling};
use carrack_nat::row::Endpoint;
use common::*;

const REMOTE: &str = "198.51.100.1:1";
/// 4 addresses of 16 blocks.
const BLOCKS: usize = 64;

fn instance() -> Instance {
    instance_with(|i| {
        i.assignment = Assignment::Blocks { size: 64, per_subscriber_max: 16, idle_release_s: 0 };
        i.pools = vec![pool(0, &["192.0.2.0/30"], 1_024, 1_024 + 16 * 64 - 1)];
    })
}

/// Inside addresses that worker `at` owns.
fn hosts_of(w: &World, at: u8, count: usize) -> Vec<String> {
    (addr("10.0.0.1")..)
        .filter(|ip| w.nats[0].directory().owner_of_inside(VrfId(0), *ip) == WorkerId(at))
        .take(count)
        .map(|ip| std::net::Ipv4Addr::from(ip).to_string())
        .collect()
}

fn blocks_used(w: &World) -> u32 {
    w.pools().iter().map(|row| row.blocks_used).sum()
}

/// Takes every block for subscribers of one worker, with answers checked; how many blocks that were.
fn take_all(w: &mut World, at: u8) -> usize {
    let hosts = hosts_of(w, at, BLOCKS + 8);
    let mut made = 0;
    for host in &hosts {
        let inside = format!("{host}:1000");
        match w.udp_out(&inside, REMOTE) {
            Ok(outside) => {
                made += 1;
                assert_eq!(owner_of(w, outside), Some(WorkerId(at)), "the return packet finds its owner");
                assert_eq!(w.udp_in(REMOTE, outside), Ok(e(&inside)));
            }
            Err(reason) => {
                assert_eq!(reason, Reason::NatPoolExhausted);
                assert_eq!(made, BLOCKS, "refused while blocks are free");
            }
        }
    }
    made
}

fn owner_of(w: &World, outside: Endpoint) -> Option<WorkerId> {
    w.nats[0].directory().owner_of_outside(VrfId(1), outside.ip, Proto::Udp as u8, outside.port)
}

/// Design §3: one subscriber never sees another worker's shortage while blocks are free anywhere. Not one packet is
/// lost for it, and what was lent comes home.
#[test]
fn one_workers_subscribers_can_use_all_blocks_of_the_pool() {
    for workers in [1, 2, 3, 16] {
        let mut w = World::new(vec![instance()], workers, SMALL);
        for at in [0, workers - 1, workers / 2] {
            assert_eq!(take_all(&mut w, at), BLOCKS);
            check::invariants(&mut w);
            // Everybody else is refused, and refused in order.
            let other = hosts_of(&w, (at + 1) % workers, BLOCKS + 9).pop().unwrap();
            assert_eq!(w.udp_out(&format!("{other}:1"), REMOTE), Err(Reason::NatPoolExhausted));
            w.wait(301 + 125);
            check::empty(&mut w);
            for port in (1_024..2_048).step_by(64) {
                let owner = owner_of(&w, Endpoint { ip: addr("192.0.2.1"), port }).unwrap();
                let home = (port - 1_024) / 64 / 16u16.div_ceil(u16::from(workers));
                assert_eq!(u16::from(owner.0), home, "what was lent is at home again");
            }
        }
    }
}

/// RFC 6888 REQ-2: a paired subscriber needs a block of its own address; the other workers' blocks there serve.
#[test]
fn paired_subscriber_grows_into_other_workers_blocks() {
    let mut w = World::new(vec![instance()], 16, SMALL);
    let host = hosts_of(&w, 5, 1).pop().unwrap();
    let mut outside = vec![];
    for port in 1..=16 * 64 {
        outside.push(w.udp_out(&format!("{host}:{port}"), REMOTE).unwrap());
    }
    assert!(outside.iter().all(|o| o.ip == outside[0].ip));
    assert_eq!(w.udp_out(&format!("{host}:5000"), REMOTE), Err(Reason::NatBlockLimit));
    for (port, outside) in (1..).zip(&outside) {
        assert_eq!(w.udp_in(REMOTE, *outside), Ok(e(&format!("{host}:{port}"))));
    }
    check::invariants(&mut w);
    w.wait(301 + 125);
    check::empty(&mut w);
}

/// A block in its hold time is nobody's, on whichever worker it was used (RFC 6888 REQ-8).
#[test]
fn lent_block_is_held_before_it_goes_home() {
    let mut it = instance();
    it.pools = vec![pool(0, &["192.0.2.1"], 1_024, 1_024 + 2 * 64 - 1)];
    let mut w = World::new(vec![it], 2, SMALL);
    let (a, b) = (hosts_of(&w, 0, 2), hosts_of(&w, 1, 1));
    assert!(a.iter().all(|host| w.udp_out(&format!("{host}:1"), REMOTE).is_ok()));
    w.wait(302);
    assert_eq!((w.session_count(), blocks_used(&w)), (0, 2));
    for _ in 0..117 {
        assert_eq!(w.udp_out(&format!("{}:1", b[0]), REMOTE), Err(Reason::NatPoolExhausted));
        w.wait(1);
    }
    w.wait(5);
    assert!(w.udp_out(&format!("{}:1", b[0]), REMOTE).is_ok());
}

/// A reload of the pool leaves lent blocks where they are, and takes back those of addresses that go.
#[test]
fn lent_blocks_survive_a_reload_of_the_pool() {
    for pooling in [Pooling::Paired, Pooling::Arbitrary] {
        let it = Instance { pooling, ..instance() };
        let mut w = World::new(vec![it.clone()], 3, SMALL);
        assert_eq!(take_all(&mut w, 2), BLOCKS);
        let mut more = it.clone();
        more.pools[0].ranges.push(range("203.0.113.0/30"));
        assert_eq!(w.configure(vec![more.clone()]), 0);
        check::invariants(&mut w);
        assert_eq!(blocks_used(&w) as usize, BLOCKS);
        // The new addresses' blocks are everybody's too.
        let hosts = hosts_of(&w, 0, BLOCKS + 1);
        let made = hosts.iter().filter(|host| w.udp_out(&format!("{host}:7"), REMOTE).is_ok()).count();
        assert_eq!(made, BLOCKS);
        check::invariants(&mut w);
        // Half of the first range goes, and comes back with nothing used.
        let mut less = more.clone();
        less.pools[0].ranges[0] = range("192.0.2.0/31");
        assert_eq!(w.configure(vec![less]), BLOCKS as u64 / 2);
        check::invariants(&mut w);
        assert_eq!(w.configure(vec![more]), 0);
        assert_eq!(blocks_used(&w) as usize, BLOCKS + BLOCKS / 2);
        let made =
            hosts_of(&w, 1, BLOCKS).iter().filter(|h| w.udp_out(&format!("{h}:9"), REMOTE).is_ok()).count();
        assert_eq!(made, BLOCKS / 2);
        check::invariants(&mut w);
        w.wait(301 + 125);
        check::empty(&mut w);
    }
}

/// While a reload that cuts the ports anew has not reached every worker, nobody gives out a port of it: somebody may
/// still use it as it was (RFC 4787 REQ-3).
#[test]
fn nothing_is_given_out_until_all_workers_cut_the_ports_alike() {
    let kinds = [
        Assignment::Blocks { size: 128, per_subscriber_max: 4, idle_release_s: 0 },
        Assignment::Arbitrary,
        Assignment::Deterministic { ports_per_subscriber: 16, overflow: None },
    ];
    for assignment in kinds {
        let mut w = World::new(vec![instance()], 2, SMALL);
        let (a, b) = (hosts_of(&w, 0, 2), hosts_of(&w, 1, 2));
        for host in [&a[0], &b[0]] {
            w.udp_out(&format!("{host}:1"), REMOTE).unwrap();
        }
        let subscribers = vec![net("10.0.0.0/26")];
        let policy = vec![Instance { assignment, subscribers, ..instance() }];
        let policy =
            std::sync::Arc::new(carrack_nat::policy::NatPolicy { instances: policy, ..Default::default() });
        w.policy = policy.clone();
        let now = w.now;
        w.nats[0].configure(policy.clone(), now).unwrap();
        assert_eq!(w.udp_out(&format!("{}:2", a[1]), REMOTE), Err(Reason::NatPoolChanging), "{assignment:?}");
        assert!(w.udp_out(&format!("{}:1", b[0]), REMOTE).is_ok(), "sessions go on");
        w.nats[1].configure(policy, now).unwrap();
        for host in [&a[1], &b[1]] {
            w.udp_out(&format!("{host}:2"), REMOTE).unwrap();
        }
        check::invariants(&mut w);
        w.wait(301 + 125);
        check::empty(&mut w);
    }
}

/// A forward rule's port is nobody else's, whoever has the block it lies in.
#[test]
fn forwarded_ports_stay_free_in_lent_blocks() {
    let mut it = instance();
    it.statics = vec![forward(Proto::Udp, "192.0.2.1:1100", "10.9.9.9:7")];
    for workers in [2, 16] {
        let mut w = World::new(vec![it.clone()], workers, SMALL);
        for at in 0..workers.min(3) {
            for host in hosts_of(&w, at, 4) {
                for port in 1..=64 {
                    let got = w.udp_out(&format!("{host}:{port}"), REMOTE);
                    assert_ne!(got, Ok(e("192.0.2.1:1100")));
                }
            }
        }
        check::invariants(&mut w);
        let counted: u32 = w.pools().iter().map(|row| row.ports_used[Proto::Udp.index()]).sum();
        let dynamic = w.mappings().iter().filter(|m| !m.is_static).count() as u32;
        assert_eq!(counted, dynamic + 1, "one worker counts the forwarded port");
        assert_eq!(w.udp_in(REMOTE, e("192.0.2.1:1100")), Ok(e("10.9.9.9:7")));
    }
}
