//! Limits, exhaustion and full recovery (RFC 6888 REQ-4, REQ-5, REQ-8, REQ-11; RFC 7857 §4).

mod common;

use carrack_base::{Proto, Reason};
use carrack_nat::policy::{Assignment, Capacity, Instance, Mapping, Pooling};
use carrack_nat::row::{Mark, NatEvent};
use common::*;

/// Fills until refused, twice, with full recovery between; each refused packet is dropped (RFC 6888 REQ-11a).
fn storm(w: &mut World, reason: Reason, mut next: impl FnMut(&mut World, u32) -> Result<(), Reason>) {
    let mut counts = vec![];
    for _ in 0..2 {
        let (mut made, mut refused) = (0, 0);
        for n in 0..3_000 {
            match next(w, n) {
                Ok(()) => made += 1,
                Err(got) => {
                    assert_eq!(got, reason);
                    refused += 1;
                }
            }
        }
        assert!(made > 0 && refused > 0, "{made} made, {refused} refused");
        counts.push(w.session_count());
        check::invariants(w);
        w.wait(2);
        let told = w.events.iter().any(|e| matches!(e, NatEvent::Refused { reason: r, .. } if *r == reason));
        assert!(told, "RFC 6888 REQ-11c: management is told");
        w.wait(1_000);
        w.events.clear();
        check::empty(w);
    }
    assert_eq!(counts[0], counts[1], "full recovery");
}

fn from_many(w: &mut World, n: u32) -> Result<(), Reason> {
    w.udp_out(&format!("10.0.{}.{}:1000", n >> 8, n & 255), "198.51.100.1:1").map(|_| ())
}

fn from_one(w: &mut World, n: u32) -> Result<(), Reason> {
    w.udp_out(&format!("10.0.0.1:{}", n + 1), "198.51.100.1:1").map(|_| ())
}

fn to_many(w: &mut World, n: u32) -> Result<(), Reason> {
    w.udp_out("10.0.0.1:1000", &format!("198.51.100.1:{}", n + 1)).map(|_| ())
}

fn limited(change: impl FnOnce(&mut carrack_nat::policy::Limits)) -> Instance {
    instance_with(|i| change(&mut i.limits))
}

fn capacity(change: impl FnOnce(&mut Capacity)) -> Capacity {
    let mut capacity = SMALL;
    change(&mut capacity);
    capacity
}

/// `nat-pool-exhausted`.
#[test]
fn exhausted_pool_recovers() {
    let mut w = world(instance_with(|i| i.pools = vec![pool(0, &["192.0.2.0/30"], 2_000, 2_099)]));
    storm(&mut w, Reason::NatPoolExhausted, from_many);
}

/// `nat-ports-exhausted`, RFC 7857 §4: paired means paired; a full address refuses though others have room.
#[test]
fn full_paired_address_refuses() {
    let mut w = world(instance_with(|i| i.pools = vec![pool(0, &["192.0.2.0/30"], 2_000, 2_099)]));
    storm(&mut w, Reason::NatPortsExhausted, from_one);
}

/// `nat-session-table-full`.
#[test]
fn full_session_table_recovers() {
    let mut w = World::new(vec![instance()], 1, capacity(|c| c.sessions = 512));
    storm(&mut w, Reason::NatSessionTableFull, to_many);
}

/// `nat-session-table-full` leaves no mapping, port or subscriber behind.
#[test]
fn full_session_table_leaks_nothing() {
    let mut w = World::new(vec![instance()], 1, capacity(|c| c.sessions = 512));
    storm(&mut w, Reason::NatSessionTableFull, from_many);
}

/// `nat-mapping-table-full`.
#[test]
fn full_mapping_table_recovers() {
    let mut w = World::new(vec![instance()], 1, capacity(|c| c.mappings = 256));
    storm(&mut w, Reason::NatMappingTableFull, from_one);
}

/// `nat-subscriber-table-full`.
#[test]
fn full_subscriber_table_recovers() {
    let mut w = World::new(vec![instance()], 1, capacity(|c| c.subscribers = 128));
    storm(&mut w, Reason::NatSubscriberTableFull, from_many);
}

/// `nat-port-limit`, RFC 6888 REQ-4, REQ-4a, REQ-4b: ports of a subscriber, all together and by protocol.
#[test]
fn ports_of_a_subscriber_are_limited() {
    let mut w = world(limited(|l| l.ports_max = 10));
    storm(&mut w, Reason::NatPortLimit, from_one);
    let mut w = world(limited(|l| l.ports_by_proto_max = [2, 3, 0]));
    storm(&mut w, Reason::NatPortLimit, from_one);
    for n in 1..4 {
        assert!(w.udp_out(&format!("10.0.0.1:{n}"), "198.51.100.1:1").is_ok());
    }
    assert_eq!(w.udp_out("10.0.0.1:9", "198.51.100.1:1"), Err(Reason::NatPortLimit));
    assert!(w.tcp_out("10.0.0.1:1", "198.51.100.1:1", SYN).is_ok());
    assert!(w.tcp_out("10.0.0.1:2", "198.51.100.1:1", SYN).is_ok());
    assert_eq!(w.tcp_out("10.0.0.1:3", "198.51.100.1:1", SYN), Err(Reason::NatPortLimit));
    assert!((1..20).all(|n| w.ping_out(&format!("10.0.0.1:{n}"), "198.51.100.1").is_ok()));
    assert!(w.udp_out("10.0.0.2:1", "198.51.100.1:1").is_ok(), "others are not hurt");
}

/// `nat-session-limit`, RFC 6888 REQ-5, REQ-5a: sessions of a subscriber.
#[test]
fn sessions_of_a_subscriber_are_limited() {
    let mut w = world(limited(|l| l.sessions_max = 20));
    storm(&mut w, Reason::NatSessionLimit, to_many);
    storm(&mut w, Reason::NatSessionLimit, from_one);
    assert!((0..20).all(|n| to_many(&mut w, n).is_ok()));
    assert!(w.udp_out("10.0.0.2:1", "198.51.100.1:1").is_ok());
    // From outside too.
    let outside = w.mappings()[0].outside;
    assert_eq!(w.udp_in("203.0.113.1:1", outside), Err(Reason::NatSessionLimit));
}

/// `nat-mapping-session-limit`, RFC 6888 REQ-5, REQ-5a: sessions of one mapping.
#[test]
fn sessions_of_a_mapping_are_limited() {
    let mut w = world(limited(|l| l.sessions_per_mapping_max = 5));
    storm(&mut w, Reason::NatMappingSessionLimit, to_many);
    assert!((0..5).all(|n| to_many(&mut w, n).is_ok()));
    let outside = w.mappings()[0].outside;
    assert_eq!(w.udp_in("203.0.113.1:1", outside), Err(Reason::NatMappingSessionLimit));
    assert!(w.udp_out("10.0.0.1:2", "198.51.100.1:1").is_ok());
}

/// `nat-rate-limit`, RFC 6888 REQ-4c, REQ-5b: mappings a second, with a burst; sessions of a mapping are free.
#[test]
fn creation_rate_is_limited() {
    let mut w = world(limited(|l| (l.creations_per_s, l.creations_burst) = (5, 10)));
    storm(&mut w, Reason::NatRateLimit, from_one);
    let made = |w: &mut World, from| (from..from + 50).filter(|n| from_one(w, *n).is_ok()).count();
    assert_eq!(made(&mut w, 0), 10);
    w.wait(1);
    assert_eq!(made(&mut w, 100), 5);
    assert!((0..100).all(|n| w.udp_out("10.0.0.1:1", &format!("198.51.100.2:{}", n + 1)).is_ok()));
    w.wait(100);
    assert_eq!(made(&mut w, 200), 10);
    assert!(from_many(&mut w, 9).is_ok(), "others are not hurt");
}

/// `nat-block-limit`: as many blocks as allowed, all full.
#[test]
fn blocks_of_a_subscriber_are_limited() {
    let assignment = Assignment::Blocks { size: 16, per_subscriber_max: 3, idle_release_s: 0 };
    let mut w = world(instance_with(|i| i.assignment = assignment));
    storm(&mut w, Reason::NatBlockLimit, from_one);
    assert_eq!((0..100).filter(|n| from_one(&mut w, *n).is_ok()).count(), 48);
}

/// `nat-protocol-unsupported`: no ports, no one-to-one mapping.
#[test]
fn protocols_without_ports_need_one_to_one() {
    let mut w = world(instance());
    let gre = frames::raw(47, addr("10.0.0.1"), addr("198.51.100.1"));
    assert_eq!(w.send_out(&gre), Err(Reason::NatProtocolUnsupported));
    let gre = frames::raw(47, addr("198.51.100.1"), addr("192.0.2.1"));
    assert_eq!(w.send_in(&gre), Err(Reason::NatNoMapping));
    check::empty(&mut w);
}

/// RFC 6888 REQ-8: a released UDP port goes to nobody else for the hold time.
#[test]
fn second_host_never_gets_a_port_within_its_hold_time() {
    let mut w = world(instance_with(|i| i.pools = vec![pool(0, &["192.0.2.1"], 3_000, 3_003)]));
    for n in 1..=4 {
        w.udp_out(&format!("10.0.0.1:{n}"), "198.51.100.1:1").unwrap();
    }
    w.wait(302);
    check::empty(&mut w);
    for _ in 0..118 {
        assert_eq!(w.udp_out("10.0.0.2:1", "198.51.100.1:1"), Err(Reason::NatPoolExhausted));
        w.wait(1);
    }
    w.wait(122);
    assert!(w.udp_out("10.0.0.2:1", "198.51.100.1:1").is_ok());
}

/// RFC 6888 REQ-11, REQ-11d, RFC 4787 REQ-11: a full table refuses newcomers and keeps every session it has.
#[test]
fn nothing_is_evicted() {
    let mut w = World::new(vec![instance()], 1, capacity(|c| c.sessions = 100));
    let kept: Vec<_> = (1..=100)
        .map(|n| {
            let inside = format!("10.0.0.1:{n}");
            let outside = w.udp_out(&inside, "198.51.100.1:1").unwrap();
            (inside, outside)
        })
        .collect();
    for n in 0..1_000 {
        assert_eq!(from_many(&mut w, n + 256), Err(Reason::NatSessionTableFull));
    }
    for (inside, outside) in kept {
        assert_eq!(w.udp_in("198.51.100.1:1", outside), Ok(e(&inside)));
        assert_eq!(w.udp_out(&inside, "198.51.100.1:1"), Ok(outside));
    }
}

/// RFC 6888 REQ-13: pool use crossing the threshold is an event, once each way.
#[test]
fn threshold_is_an_event_each_way() {
    let mut w = world(instance_with(|i| {
        i.pools = vec![pool(0, &["192.0.2.1"], 2_000, 2_099)];
        i.pool_threshold_percent = 80;
    }));
    for n in 0..79 {
        from_one(&mut w, n).unwrap();
    }
    w.wait(2);
    let crossings = |w: &World| -> Vec<bool> {
        w.events
            .iter()
            .filter_map(|e| if let NatEvent::PoolThreshold { above, .. } = e { Some(*above) } else { None })
            .collect()
    };
    assert_eq!(crossings(&w), []);
    for n in 79..90 {
        from_one(&mut w, n).unwrap();
    }
    w.wait(5);
    assert_eq!(crossings(&w), [true]);
    w.wait(400);
    assert_eq!(crossings(&w), [true, false]);
}

/// RFC 8158 §4.6.8.2: ports in use, all protocols together, once until they were an eighth fewer.
#[test]
fn ports_in_use_that_reach_their_threshold_are_an_event() {
    let mut w = world(instance_with(|i| {
        i.pools = vec![pool(0, &["192.0.2.1"], 2_000, 2_999)];
        i.pool_ports_threshold = 80;
    }));
    let told = |w: &World| -> Vec<u32> {
        let of =
            |e: &NatEvent| if let NatEvent::PortsThreshold { ports, .. } = e { Some(*ports) } else { None };
        w.events.iter().filter_map(of).collect()
    };
    for n in 0..79 {
        from_one(&mut w, n).unwrap();
    }
    w.wait(2);
    assert_eq!(told(&w), []);
    for n in 79..85 {
        from_one(&mut w, n).unwrap();
    }
    w.wait(5);
    assert_eq!(told(&w), [85]);
    // All ended: the next 80 are news again.
    w.wait(400);
    for n in 0..80 {
        from_one(&mut w, n).unwrap();
    }
    w.wait(2);
    assert_eq!(told(&w), [85, 80]);
}

/// RFC 8158 §4.6.8.4: an event of its own where all mappings of a subscriber share one outside address, and only there.
#[test]
fn mappings_of_one_outside_address_have_a_threshold_beside_the_subscribers() {
    for (pooling, expected) in [
        (Pooling::Paired, vec![(Mark::Paired, 20), (Mark::PerUser, 40)]),
        (Pooling::Arbitrary, vec![(Mark::PerUser, 40)]),
    ] {
        let mut w = world(instance_with(|i| {
            i.pooling = pooling;
            (i.limits.mappings_threshold, i.limits.paired_mappings_threshold) = (40, 20);
        }));
        for n in 0..60 {
            from_one(&mut w, n).unwrap();
        }
        w.take_events();
        let of = |e: &NatEvent| match e {
            NatEvent::SubscriberThreshold { mark, mappings, .. } => Some((*mark, *mappings)),
            _ => None,
        };
        assert_eq!(w.events.iter().filter_map(of).collect::<Vec<_>>(), expected);
    }
}

/// RFC 8158 §4.6.8.3: once for each time that a subscriber reaches its threshold, not for every mapping there.
#[test]
fn subscriber_that_reaches_its_threshold_is_told_once_until_it_had_an_eighth_fewer() {
    let mut w = world(limited(|l| l.mappings_threshold = 40));
    let told = |w: &World| -> Vec<u32> {
        let of = |e: &NatEvent| match e {
            NatEvent::SubscriberThreshold { mappings, inside, .. } => {
                assert_eq!(inside.to_string(), "10.0.0.1");
                Some(*mappings)
            }
            _ => None,
        };
        w.events.iter().filter_map(of).collect()
    };
    for n in 0..39 {
        from_one(&mut w, n).unwrap();
        from_many(&mut w, n + 256).unwrap();
    }
    assert_eq!(told(&w), []);
    // Some stay, others end, more begin: of 36 on it was never an eighth fewer, of 34 on it was.
    for (alive, begun, expected) in [(0, 41, 1), (36, 45, 1), (34, 41, 2)] {
        for _ in 0..4 {
            w.wait(90);
            for n in 0..alive {
                from_one(&mut w, n).unwrap();
            }
        }
        for n in 0..begun {
            from_one(&mut w, n).unwrap();
        }
        w.wait(1);
        assert_eq!(told(&w), vec![40; expected], "{alive} stayed");
    }
}

/// Dependent mappings of one endpoint count as ports each.
#[test]
fn dependent_mappings_count_as_ports() {
    let mut w = world(instance_with(|i| {
        i.mapping[Proto::Udp.index()] = Mapping::AddressAndPortDependent;
        i.limits.ports_max = 7;
    }));
    storm(&mut w, Reason::NatPortLimit, to_many);
}

/// However many sessions are due at once, a call between two bursts ends a bounded number of them, which takes less than
/// 50 us on the slowest host met (ADR 4); each call its full share, until none is left.
#[test]
fn a_call_ends_at_most_eighty_sessions_however_many_are_due() {
    const ENDS_MAX: usize = 80;
    let sessions = 10_000;
    let mut w = World::new(
        vec![instance()],
        1,
        capacity(|c| (c.sessions, c.mappings, c.subscribers) = (sessions, sessions, sessions)),
    );
    (0..sessions).for_each(|n| from_many(&mut w, n).unwrap());
    // All of them at once, after a pause in which nothing was swept.
    w.now = w.now.plus_ns(400_000_000_000);
    let mut calls = 0;
    while w.session_count() > 0 && calls < sessions {
        let due = w.session_count();
        w.now = w.now.plus_ns(10_000);
        let now = w.now;
        w.nats[0].expire(now);
        assert!(w.nats[0].is_behind() || due < ENDS_MAX, "{due} were due");
        assert_eq!(due - w.session_count(), due.min(ENDS_MAX), "in one call, of {due} that were due");
        calls += 1;
    }
    assert_eq!((calls, w.session_count()), (125, 0));
    w.wait(125);
    assert!(!w.nats[0].is_behind());
    check::empty(&mut w);
}

/// A storm of refusals makes no storm of events; what is lost for lack of room is counted, and refusals are told
/// when there is room again (RFC 6888 REQ-11c).
#[test]
fn events_are_bounded() {
    let mut w = World::new(
        vec![instance()],
        1,
        capacity(|c| (c.sessions, c.mappings, c.subscribers) = (5_000, 8_192, 8_192)),
    );
    let refused = (0..6_000).filter(|n| from_many(&mut w, *n).is_err()).count();
    assert_eq!(refused, 1_000);
    let tick = |w: &mut World| {
        w.now = w.now.plus_ns(1_000_000_000);
        let now = w.now;
        w.nats[0].expire(now);
    };
    tick(&mut w);
    assert_eq!(w.nats[0].events_lost(), 5_000 - 4_096 + 1);
    w.take_events();
    assert_eq!(w.events.len(), 4_096);
    tick(&mut w);
    w.events.clear();
    w.take_events();
    assert!(matches!(w.events[..], [NatEvent::Refused { count: 1_000, .. }]), "{:?}", w.events);
}
