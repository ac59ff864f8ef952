//! Several workers: every packet reaches the owner of its subscriber, whoever receives it.

mod common;

use std::sync::Arc;

use carrack_base::{IfIndex, Reason, VrfId};
use carrack_nat::policy::{Assignment, StaticRule};
use carrack_pipeline::snapshot::{NextHop, Route, Snapshot};
use carrack_wire::tcp::flag;
use common::check::{reassemble, whole_is_right};
use common::net6::*;
use common::*;

const REMOTE: &str = "198.51.100.7:80";

/// Conservation over all workers: what one handed out another took in, or it waits in a ring (none does here).
fn total(world: &mut World) {
    world.balanced();
    let mut all = carrack_base::counters::Accounts::default();
    for worker in &mut world.workers {
        all.add(worker.accounts());
    }
    assert_eq!(all.balance(), 0);
    assert_eq!(all.handed_in, all.handed_out);
}

fn hosts() -> Vec<String> {
    (1..40).map(|n| format!("10.0.7.{n}")).collect()
}

fn network(count: u8) -> World {
    let mut world = workers(count);
    for host in hosts() {
        world.know(IF_IN, &host);
    }
    world
}

/// The worker that has the only session.
fn owner(world: &World) -> usize {
    world.workers.iter().position(|w| w.nat().session_count() > 0).unwrap()
}

#[test]
fn both_directions_of_a_flow_reach_its_owner_whoever_receives_them() {
    for count in [2, 3] {
        let mut world = network(count);
        let mut used = vec![false; usize::from(count)];
        for (n, host) in hosts().iter().enumerate() {
            let at = n % usize::from(count);
            let src = format!("{host}:1000");
            let out = world.burst_at(at, IN, &[udp(IN, &src, REMOTE)]);
            assert_eq!(out.len(), 1, "{:?}", world.new_drops());
            for at in 0..usize::from(count) {
                let back = world.burst_at(at, OUT, &[udp(OUT, REMOTE, &out[0].src())]);
                assert_eq!((back.len(), back[0].dst()), (1, src.clone()));
            }
        }
        for (at, worker) in world.workers.iter().enumerate() {
            used[at] = worker.nat().session_count() > 0;
        }
        assert!(used.iter().all(|u| *u), "subscribers are spread");
        assert_eq!(world.sessions(), hosts().len(), "each session exists once");
        total(&mut world);
    }
}

/// The same of IPv6 hosts, one by one and many at once: whatever session there is, its owner has it, and nobody has another.
#[test]
fn ipv6_packets_reach_the_owner_of_their_host_whoever_receives_them() {
    for count in [2, 3] {
        let mut world = World::new(count, SIZES, HANDOVER_SLOTS, |s| {
            add_ipv6(s);
            serve_six(s);
            let prefix = "2001:db8:1::/48".parse().unwrap();
            let next_hop = NextHop::Gateway(IfIndex(IF_IN), ip6("2001:db8:1::5"));
            s.routes6.push(Route { vrf: VrfId(0), prefix, next_hop });
        });
        STATIONS6.iter().for_each(|(interface, host)| world.know6(*interface, host));
        let hosts: Vec<_> = (1..40).map(|n| format!("2001:db8:1:{n:x}::7")).collect();
        let frame = |host: &String| packet6(IN, host, "2001:db8:64::c633:6407").udp(1_000, 80).build();
        let frames: Vec<_> = hosts.iter().map(frame).collect();
        let places = 0..usize::from(count);
        let mut outside = vec![];
        for (n, frame) in frames.iter().enumerate() {
            let out = world.burst_at(n % places.len(), IN, std::slice::from_ref(frame));
            assert_eq!(out.len(), 1, "{:?}", world.new_drops());
            outside.push(out[0].src());
        }
        outside.sort();
        assert!(world.workers.iter().all(|w| w.nat().session_count() > 0), "subscribers are spread");
        for at in places.clone() {
            let mut again: Vec<_> = world.burst_at(at, IN, &frames).iter().map(Sent::src).collect();
            again.sort();
            assert_eq!(again, outside, "worker {at}");
            for endpoint in &outside {
                let back = world.burst_at(at, OUT, &[udp(OUT, REMOTE, endpoint)]);
                assert_eq!(back.len(), 1, "{:?}", world.new_drops());
            }
        }
        assert_eq!(world.sessions(), hosts.len(), "each session exists once");
        total(&mut world);
    }
}

/// A network card that is told key, table and which address to hash delivers both directions to the owner: nothing is
/// handed over.
#[test]
fn what_a_card_steers_by_address_is_its_receiver_s_own() {
    for count in [2, 3, 16] {
        let mut world = World::new(count, SIZES, HANDOVER_SLOTS, |s| {
            let mut policy = (*s.nat).clone();
            policy.instances[0].pools[0].ranges = vec!["198.18.0.0/24".parse().unwrap()];
            s.nat = Arc::new(policy);
        });
        hosts().iter().for_each(|host| world.know(IF_IN, host));
        for (host, port) in hosts().iter().flat_map(|host| [(host, 1_000), (host, 2_000)]) {
            let src = format!("{host}:{port}");
            let at = world.steering.worker_of(ip(host)).index();
            let out = world.burst_at(at, IN, &[udp(IN, &src, REMOTE)]);
            assert_eq!(out.len(), 1, "{:?}", world.new_drops());
            let (outside, _) = out[0].addresses();
            let at = world.steering.worker_of(ip(&outside.to_string())).index();
            let back = world.burst_at(at, OUT, &[udp(OUT, REMOTE, &out[0].src())]);
            assert_eq!((back.len(), back[0].dst()), (1, src));
        }
        assert_eq!(world.sessions(), hosts().len() * 2);
        assert!(world.workers.iter_mut().all(|worker| worker.accounts().handed_out == 0), "{count}");
        total(&mut world);
    }
}

#[test]
fn pings_and_tcp_find_their_owner_too() {
    let mut world = network(3);
    for host in hosts().iter().take(12) {
        let out = world.pass(IN, &tcp(IN, &format!("{host}:1000"), REMOTE, flag::SYN));
        let back = world.pass(OUT, &tcp(OUT, REMOTE, &out.src(), flag::SYN | flag::ACK));
        assert_eq!(back.dst(), format!("{host}:1000"));
        let out = world.pass(IN, &ping(IN, &format!("{host}:7"), "198.51.100.7"));
        let (pool, id) = out.src().split_once(':').map(|(a, b)| (a.to_owned(), b.parse().unwrap())).unwrap();
        let reply = packet(OUT, "198.51.100.7", &pool).echo_reply(id, 1).build();
        assert_eq!(world.pass(OUT, &reply).dst(), format!("{host}:7"));
    }
    total(&mut world);
}

/// RFC 4787 REQ-9, and RFC 5508 REQ-7 for the errors, between all pairs of workers.
#[test]
fn hairpins_between_workers_pass_with_their_answers_and_errors() {
    let mut world = network(3);
    let hosts = hosts();
    for (n, pair) in hosts.chunks_exact(2).enumerate() {
        let (callee, caller) = (format!("{}:1000", pair[0]), format!("{}:2000", pair[1]));
        let called = world.pass(IN, &udp(IN, &callee, REMOTE)).src();
        let sent = world.burst_at(n % 3, IN, &[udp(IN, &caller, &called)]);
        assert_eq!((sent.len(), sent[0].dst()), (1, callee.clone()), "{:?}", world.new_drops());
        let back = world.burst_at((n + 1) % 3, IN, &[udp(IN, &callee, &sent[0].src())]);
        assert_eq!((back[0].src(), back[0].dst()), (called.clone(), caller.clone()));
        let error = icmp_error(IN, &pair[0], &sent[0].addresses().0, 3, 3, sent[0].packet());
        let told = world.burst_at((n + 2) % 3, IN, &[error]);
        assert_eq!(told.len(), 1, "{:?}", world.new_drops());
        assert_eq!(told[0].quoted_flow(), format!("{caller}>{called}"));
        assert_eq!(told[0].ip().dst_addr().to_string(), pair[1]);
    }
    total(&mut world);
}

/// The router's own error about a hairpinned packet, when caller and callee have different owners.
#[test]
fn own_errors_about_hairpins_between_workers_reach_the_caller() {
    let mut world = network(3);
    world.reconfigure(|s| on(s, IF_VLAN, |i| i.mtu = 600));
    let opening = packet(TAGGED, "10.1.0.5", "198.51.100.7").vlan(100).udp(1_000, 80).build();
    let called = world.pass(TAGGED, &opening).src();
    let (to, port) = called.split_once(':').unwrap();
    for host in hosts() {
        let call = packet(IN, &host, to).dont_fragment().udp(2_000, port.parse().unwrap()).payload(&[1; 900]);
        let sent = world.send_dropped(IN, &call.build(), Reason::FragmentationNeeded);
        assert_eq!((sent.len(), sent[0].icmp(), sent[0].mtu()), (1, (3, 4), 600));
        assert_eq!(sent[0].quoted_flow(), format!("{host}:2000>{called}"));
    }
    total(&mut world);
}

/// RFC 5508 REQ-4, REQ-5: the owner of the packet inside.
#[test]
fn icmp_errors_find_the_owner_of_the_packet_they_carry() {
    let mut world = network(3);
    for (n, host) in hosts().iter().enumerate() {
        let src = format!("{host}:1000");
        let out = world.pass(IN, &udp(IN, &src, REMOTE));
        let error = icmp_error(OUT, "203.0.114.1", POOL, 11, 0, out.packet());
        let told = world.burst_at(n % 3, OUT, &[error]);
        assert_eq!(told.len(), 1, "{:?}", world.new_drops());
        assert_eq!(told[0].quoted_flow(), format!("{src}>{REMOTE}"));
        // And from inside, sent by a router whose own address another worker owns.
        let back = world.pass(OUT, &udp(OUT, REMOTE, &out.src()));
        let error = icmp_error(IN, "10.0.0.7", "198.51.100.7", 11, 0, back.packet());
        let told = world.burst_at(n % 3, IN, &[error]);
        assert_eq!(told.len(), 1, "{:?}", world.new_drops());
        assert_eq!(told[0].quoted_flow(), format!("{REMOTE}>{}", out.src()));
    }
    total(&mut world);
}

/// RFC 4787 REQ-14: fragments received by different workers in any order.
#[test]
fn fragments_received_by_different_workers_come_together() {
    let mut world = network(3);
    for (n, host) in hosts().iter().enumerate() {
        let src = format!("{host}:1000");
        let out = world.pass(IN, &udp(IN, &src, REMOTE)).src();
        for (port, from, to) in [(IN, src.as_str(), REMOTE), (OUT, REMOTE, out.as_str())] {
            let mut pieces = fragments(port, from, to, n as u16, 5_000, 800);
            pieces.rotate_left(1 + n % 6);
            let mut sent = vec![];
            for (k, piece) in pieces.iter().enumerate() {
                sent.extend(world.burst_at((n + k) % 3, port, std::slice::from_ref(piece)));
            }
            assert_eq!(sent.len(), 7, "{:?}", world.new_drops());
            let (_, whole) = reassemble(&sent);
            whole_is_right(sent.iter().find(|s| s.ip().fragment_offset() == 0).unwrap(), &whole);
        }
    }
    total(&mut world);
}

#[test]
fn fragments_pass_hairpins_between_workers() {
    let mut world = network(3);
    let called = world.pass(IN, &udp(IN, "10.0.0.5:1000", REMOTE)).src();
    for (n, host) in hosts().iter().enumerate() {
        let mut pieces = fragments(IN, &format!("{host}:2000"), &called, n as u16, 3_000, 800);
        pieces.rotate_left(n % 4);
        let sent = world.burst_at(n % 3, IN, &pieces);
        assert_eq!(sent.len(), 4, "{:?}", world.new_drops());
        let (_, whole) = reassemble(&sent);
        let first = sent.iter().find(|s| s.ip().fragment_offset() == 0).unwrap();
        whole_is_right(first, &whole);
        assert_eq!(first.dst(), "10.0.0.5:1000");
    }
    total(&mut world);
}

/// A full ring is a counted drop, never a lost packet.
#[test]
fn a_full_ring_is_a_counted_drop() {
    let mut world = World::new(2, SIZES, 16, |_| {});
    world.pass(IN, &udp(IN, "10.0.0.5:1000", REMOTE));
    let other = 1 - owner(&world);
    let frames = vec![udp(IN, "10.0.0.5:1000", REMOTE); 64];
    let sent = world.burst_at(other, IN, &frames);
    assert_eq!(sent.len(), 16);
    assert_eq!(world.new_drops(), [(Reason::HandoverQueueFull, 48)]);
    assert_eq!(world.burst_at(other, IN, &frames[..16]).len(), 16, "and it recovers");
    total(&mut world);
}

#[test]
fn unsolicited_syns_wait_at_the_owner_of_the_port_and_are_answered() {
    let mut world = network(3);
    for n in 0..12 {
        let syn = tcp(OUT, REMOTE, &format!("192.0.2.1:{}", 5_000 + n * 500), flag::SYN);
        assert!(world.burst_at(n % 3, OUT, &[syn]).is_empty());
    }
    assert_eq!(world.held(), 12);
    let sent = world.wait_ms(7_000);
    assert_eq!(sent.len(), 12);
    assert!(sent.iter().all(|s| s.icmp() == (3, 3)));
    total(&mut world);
}

/// A static rule may lead to a host that is no subscriber: its answers find the owner too.
#[test]
fn a_forwarded_host_that_is_no_subscriber_answers_by_any_worker() {
    let rule = StaticRule::Forward {
        proto: carrack_base::Proto::Udp,
        outside: ip("203.0.113.200"),
        outside_port: 53,
        count: 1,
        inside: carrack_nat::Inside::V4(ip("10.0.0.5")),
        inside_port: 5_353,
    };
    let change = |snapshot: &mut Snapshot| {
        nat(snapshot, |i| (i.subscribers, i.statics) = (vec![prefix("10.0.7.0/24")], vec![rule]));
    };
    let mut world = World::new(3, SIZES, HANDOVER_SLOTS, change);
    for at in 0..3 {
        let back = world.burst_at(at, OUT, &[udp(OUT, REMOTE, "203.0.113.200:53")]);
        assert_eq!((back.len(), back[0].dst()), (1, "10.0.0.5:5353".into()));
        let out = world.burst_at(at, IN, &[udp(IN, "10.0.0.5:5353", REMOTE)]);
        assert_eq!((out.len(), out[0].src()), (1, "203.0.113.200:53".into()));
    }
    assert_eq!(world.sessions(), 1);
    total(&mut world);
}

#[test]
fn what_no_nat_concerns_stays_with_its_receiver() {
    let mut world = network(3);
    for at in 0..3 {
        let sent = world.burst_at(at, TAGGED, &[udp(TAGGED, "172.16.0.5:1000", REMOTE)]);
        assert_eq!(sent.len(), 1);
        world.burst_at(at, IN, &[ping(IN, "10.0.0.5:7", "203.0.113.1")]);
    }
    assert_eq!(world.sessions(), 0);
    total(&mut world);
}

/// Every worker counts its own, whatever mix comes in by whatever worker.
#[test]
fn a_mix_of_everything_over_three_workers_is_conserved() {
    let mut world = network(3);
    let hosts = hosts();
    let mut outside: Vec<String> = vec![];
    for round in 0..60usize {
        let host = &hosts[round % hosts.len()];
        let mut burst = vec![
            udp(IN, &format!("{host}:{}", 1_000 + round), REMOTE),
            tcp(IN, &format!("{host}:{}", 1_000 + round), REMOTE, flag::SYN),
            packet(IN, host, "198.51.100.7").ttl(1).udp(1, 2).build(),
            udp(IN, &format!("{host}:5"), "198.51.100.201:9"),
            vec![round as u8; round],
        ];
        burst.extend(
            fragments(IN, &format!("{host}:9"), REMOTE, round as u16, 4_000, 800).into_iter().skip(round % 3),
        );
        let sent = world.burst_at(round % 3, IN, &burst);
        outside.extend(
            sent.iter()
                .filter(|s| s.port == OUT && s.ip().protocol() == 17 && !s.ip().is_fragment())
                .map(Sent::src),
        );
        if let Some(to) = outside.get(round / 2) {
            world.burst_at((round + 1) % 3, OUT, &[udp(OUT, REMOTE, to), tcp(OUT, REMOTE, to, flag::SYN)]);
            world.burst_at((round + 2) % 3, IN, &[udp(IN, &format!("{host}:77"), to)]);
        }
        if round % 10 == 9 {
            world.wait_ms(1_000);
        }
        total(&mut world);
    }
    world.wait_ms(10_000);
    total(&mut world);
}

/// Design §3: all blocks of the pool serve one worker's subscribers when they need them, every answer finds them by
/// whichever worker it comes in, and nothing is left when they are gone.
#[test]
fn blocks_lent_to_one_worker_are_found_by_all() {
    for count in [2, 16] {
        let mut world = World::new(count, SIZES, HANDOVER_SLOTS, |s| {
            let mut policy = (*s.nat).clone();
            let nat = &mut policy.instances[0];
            nat.assignment = Assignment::Blocks { size: 8, per_subscriber_max: 16, idle_release_s: 0 };
            nat.pools.truncate(1);
            nat.pools[0].ranges.truncate(1);
            nat.pools[0].ranges[0].last = nat.pools[0].ranges[0].first;
            (nat.pools[0].port_first, nat.pools[0].port_last) = (1_024, 1_024 + 32 * 8 - 1);
            nat.port_hold_s = 0;
            s.nat = Arc::new(policy);
        });
        let directory = world.workers[0].nat().directory();
        let owned = |host: &&String| directory.owner_of_inside(VrfId(0), ip(host)).0 == count - 1;
        let all: Vec<String> = (1..=250).map(|n| format!("10.0.7.{n}")).collect();
        let hosts: Vec<String> = all.iter().filter(owned).take(2).cloned().collect();
        let other = all.iter().find(|host| !owned(host)).unwrap().clone();
        hosts.iter().for_each(|host| world.know(IF_IN, host));
        let mut outside = vec![];
        for host in &hosts {
            for port in 1..=128 {
                let src = format!("{host}:{port}");
                let out = world.burst_at(port % usize::from(count), IN, &[udp(IN, &src, REMOTE)]);
                assert_eq!(out.len(), 1, "{src}: {:?}", world.new_drops());
                outside.push((src, out[0].src()));
            }
        }
        for (n, (src, outside)) in outside.iter().enumerate() {
            let back = world.burst_at(n % usize::from(count), OUT, &[udp(OUT, REMOTE, outside)]);
            assert_eq!((back.len(), back[0].dst()), (1, src.clone()), "{outside}");
        }
        total(&mut world);
        assert_eq!(world.new_drops(), [], "not one packet is lost for it");
        world.send(IN, &udp(IN, &format!("{other}:1"), REMOTE));
        assert_eq!(world.new_drops(), [(Reason::NatPoolExhausted, 1)]);
        world.now = world.now.plus_ns(400 * 1_000_000_000);
        for _ in 0..20 {
            world.wait_ms(200);
        }
        for worker in &world.workers {
            assert!(worker.nat().memory().iter().all(|row| row.used == 0), "{:?}", worker.nat().memory());
        }
        assert_eq!(world.send(IN, &udp(IN, &format!("{other}:1"), REMOTE)).len(), 1);
        total(&mut world);
    }
}
