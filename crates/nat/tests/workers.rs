//! Two and three workers: nothing shared, nothing given out twice, every packet finds its owner.

mod common;

use carrack_base::{Proto, WorkerId};
use carrack_nat::policy::{Assignment, Instance};
use common::*;

fn kinds() -> Vec<Instance> {
    let base = instance_with(|i| i.pools = vec![pool(0, &["192.0.2.0/30"], 1_024, 2_350)]);
    let with = |assignment| Instance { assignment, ..base.clone() };
    vec![
        with(Assignment::Arbitrary),
        with(Assignment::Blocks { size: 64, per_subscriber_max: 4, idle_release_s: 0 }),
        // The port range holds no whole number of blocks.
        with(Assignment::Blocks { size: 512, per_subscriber_max: 4, idle_release_s: 0 }),
        Instance {
            subscribers: vec![net("10.0.0.0/25")],
            ..with(Assignment::Deterministic { ports_per_subscriber: 30, overflow: None })
        },
    ]
}

/// No two workers give out the same endpoint, and the directory names the worker that made it.
#[test]
fn no_two_workers_give_out_the_same_endpoint() {
    for it in kinds() {
        for workers in [1, 2, 3, 5] {
            let mut w = World::new(vec![it.clone()], workers, SMALL);
            let mut made = 0;
            for host in 0..100 {
                for port in 1..=30 {
                    let inside = format!("10.0.0.{host}:{port}");
                    for sent in [
                        w.udp_out(&inside, "198.51.100.1:1"),
                        w.tcp_out(&inside, "198.51.100.1:1", SYN),
                        w.ping_out(&inside, "198.51.100.1"),
                    ] {
                        made += usize::from(sent.is_ok());
                    }
                }
            }
            assert!(made > 500, "{made} made by {workers} workers under {:?}", it.assignment);
            check::invariants(&mut w);
            for at in 0..w.nats.len() {
                let mut rows = vec![];
                let all = carrack_nat::row::Filter::default();
                w.nats[at].walk_mappings(&mut carrack_nat::Cursor(0), usize::MAX, &all, |row| {
                    rows.push(row);
                    true
                });
                for row in rows {
                    let directory = w.nats[0].directory();
                    let (ip, port) = (row.outside.ip, row.outside.port);
                    let owner = directory.owner_of_outside(it.outside_vrf, ip, row.proto as u8, port);
                    assert_eq!(owner, Some(WorkerId(at as u8)), "{row:?}");
                    assert_eq!(
                        directory.owner_of_inside(it.inside_vrf, row.inside.v4().unwrap().ip),
                        WorkerId(at as u8)
                    );
                }
            }
            w.wait(301 + 125);
            check::empty(&mut w);
        }
    }
}

/// A forwarded port of a pool address counts once, whoever gives it out.
#[test]
fn a_forwarded_port_is_in_use_once() {
    for mut it in kinds() {
        it.statics = vec![forward(Proto::Udp, "192.0.2.1:1100", "10.0.0.1:80")];
        for workers in [1, 3] {
            let mut w = World::new(vec![it.clone()], workers, SMALL);
            let mut used = 0;
            for nat in &mut w.nats {
                nat.walk_pools(&mut carrack_nat::Cursor(0), usize::MAX, |row| {
                    used += row.ports_used.iter().sum::<u32>();
                    true
                });
            }
            assert_eq!(used, 1, "{workers} workers, {:?}", it.assignment);
        }
    }
}

/// Every port of every pool address has an owner that exists.
#[test]
fn every_port_has_an_owner_that_exists() {
    for mut it in kinds() {
        it.pools[0].port_last = 65_535;
        for workers in [1, 2, 3, 7, 64] {
            let w = World::new(vec![it.clone()], workers, SMALL);
            for port in 0..=65_535u16 {
                let owner = w.nats[0].directory().owner_of_outside(
                    it.outside_vrf,
                    addr("192.0.2.1"),
                    Proto::Udp as u8,
                    port,
                );
                assert!(owner.unwrap().0 < workers, "port {port} of {workers} workers: {owner:?}");
            }
        }
    }
}

/// Subscribers spread over the workers.
#[test]
fn subscribers_spread_over_the_workers() {
    let w = World::new(vec![instance()], 3, SMALL);
    let mut counts = [0; 3];
    for ip in 0..3_000 {
        counts
            [w.nats[0].directory().owner_of_inside(carrack_base::VrfId(0), addr("10.0.0.0") + ip).index()] +=
            1;
    }
    assert!(counts.iter().all(|count| (850..1_150).contains(count)), "{counts:?}");
}
