//! Nothing is allocated on the packet path after start.

mod common;

use carrack_base::PortId;
use carrack_frame::FramePool;
use carrack_wire::tcp::flag;
use common::*;

const REMOTE: &str = "198.51.100.7:80";

/// Runs a burst and what the loop does around it; how many allocations that took.
fn allocations(world: &mut World, port: u16, frames: &[Vec<u8>]) -> u64 {
    for frame in frames {
        let frame = world.pool.alloc_copy(frame).unwrap();
        world.workers[0].rx_buffer().push(frame);
    }
    let World { workers, pool, now, snapshot, .. } = world;
    let worker = &mut workers[0];
    let ports = snapshot.ports.len() as u16;
    let counted = allocation_counter::measure(|| {
        worker.process(*now, PortId(port), pool);
        for port in 0..ports {
            if let Some(queue) = worker.tx(PortId(port)) {
                pool.free_all(queue);
            }
        }
        worker.background(*now, pool);
        for port in 0..ports {
            if let Some(queue) = worker.tx(PortId(port)) {
                pool.free_all(queue);
            }
        }
        worker.done(pool);
        let _ = worker.accounts();
    });
    world.balanced();
    counted.count_total
}

fn burst(frame: impl Fn(usize) -> Vec<u8>) -> Vec<Vec<u8>> {
    (0..64).map(frame).collect()
}

#[test]
fn hits_misses_fragments_and_answered_drops_allocate_nothing() {
    let mut world = world_with(|s| on(s, IF_OUT, |i| i.mtu = 1_000));
    let check = |world: &mut World, name: &str, port: u16, frames: &[Vec<u8>]| {
        for round in 0..3 {
            let count = allocations(world, port, frames);
            assert_eq!(count, 0, "{name}, round {round}");
        }
    };
    let flow = |n: usize| format!("10.0.0.5:{}", 1_000 + n);
    check(&mut world, "new sessions, then hits", IN, &burst(|n| udp(IN, &flow(n), REMOTE)));
    check(&mut world, "TCP", IN, &burst(|n| tcp(IN, &flow(n), REMOTE, flag::SYN)));
    check(&mut world, "pings", IN, &burst(|n| ping(IN, &flow(n), "198.51.100.7")));
    let many = burst(|n| udp(IN, &format!("10.0.{n}.9:5"), REMOTE));
    check(&mut world, "new subscribers", IN, &many);
    let dying = burst(|n| packet(IN, "10.0.0.5", "198.51.100.7").ttl(1).udp(n as u16, 1).build());
    check(&mut world, "TTL expired, answered", IN, &dying);
    let big = packet(IN, "10.0.0.5", "198.51.100.7").dont_fragment().udp(1, 2).payload(&[0; 1_200]).build();
    check(&mut world, "too big, answered through the NAT", IN, &burst(|_| big.clone()));
    let cut = packet(IN, "10.0.0.5", "198.51.100.7").udp(1, 2).payload(&[0; 1_200]).build();
    check(&mut world, "too big, cut", IN, &burst(|_| cut.clone()));
    let malformed = burst(|n| udp(IN, "10.0.0.5:1", REMOTE)[..n % 50].to_vec());
    check(&mut world, "malformed", IN, &malformed);
    let mut pieces: Vec<_> =
        (0..16).flat_map(|id| fragments(IN, "10.0.0.5:1", REMOTE, id, 3_000, 800)).collect();
    check(&mut world, "fragments in order", IN, &pieces);
    pieces.reverse();
    check(&mut world, "fragments in reverse order", IN, &pieces);
    check(
        &mut world,
        "first fragments missing",
        IN,
        &burst(|n| fragments(IN, "10.0.0.5:1", REMOTE, 500 + n as u16, 2_000, 800).remove(1)),
    );
    check(
        &mut world,
        "nobody mapped",
        OUT,
        &burst(|n| udp(OUT, REMOTE, &format!("192.0.2.1:{}", 1_030 + n * 64))),
    );
    check(
        &mut world,
        "unsolicited SYNs",
        OUT,
        &burst(|n| tcp(OUT, &format!("198.51.100.7:{n}"), "192.0.2.1:9", 2)),
    );
    check(
        &mut world,
        "unknown neighbours",
        IN,
        &burst(|n| udp(IN, "10.0.0.5:1", &format!("198.51.100.{}:9", n + 100))),
    );
    check(&mut world, "to the router", IN, &burst(|n| ping(IN, &flow(n), "10.0.0.1")));
    let called = world.pass(IN, &udp(IN, "10.0.0.6:1", REMOTE)).src();
    check(&mut world, "hairpins", IN, &burst(|n| udp(IN, &flow(n), &called)));
    let quoted = udp(OUT, "10.0.0.5:1000", REMOTE);
    let error = icmp_error(OUT, "203.0.114.1", POOL, 11, 0, &quoted[14..]);
    check(&mut world, "ICMP errors", OUT, &burst(|_| error.clone()));
}

/// Expiry of sessions, fragments, SYNs and waiting packets is part of the loop.
#[test]
fn the_passing_of_time_allocates_nothing() {
    let mut world = world();
    for n in 0..8 {
        let frames = burst(|k| udp(IN, &format!("10.0.{n}.9:{k}"), REMOTE));
        world.burst(IN, &frames);
    }
    world.burst(OUT, &burst(|n| tcp(OUT, &format!("198.51.100.7:{n}"), "192.0.2.1:9", 2)));
    world.burst(IN, &burst(|n| fragments(IN, "10.0.0.5:1", REMOTE, n as u16, 2_000, 800).remove(1)));
    world.burst(IN, &burst(|n| udp(TAGGED, "172.16.0.5:1", &format!("198.51.100.{}:9", n + 100))));
    for _ in 0..4_000 {
        world.now = world.now.plus_ns(100_000_000);
        assert_eq!(allocations(&mut world, IN, &[]), 0);
        while world.ends[0].events.pop().is_ok() {}
        while world.ends[0].nat_events.pop().is_ok() {}
    }
    assert_eq!(world.sessions(), 0);
}
