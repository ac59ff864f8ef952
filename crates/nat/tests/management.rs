//! Walks, filters and deletions (RFC 6888 REQ-10).

mod common;

use carrack_base::{InstanceId, Proto};
use carrack_nat::Cursor;
use carrack_nat::row::{Filter, NatEvent, SessionKey, SessionRow, TcpState};
use common::*;

fn filled() -> World {
    let mut w = world(instance());
    for host in 1..=10 {
        for port in 1..=10 {
            w.udp_out(&format!("10.0.0.{host}:{port}"), "198.51.100.1:53").unwrap();
        }
        w.tcp_out(&format!("10.0.0.{host}:1"), "198.51.100.2:80", SYN).unwrap();
    }
    w
}

/// A walk in small steps sees every session once, and stops where the callback says.
#[test]
fn walk_in_steps_sees_all_once() {
    let mut w = filled();
    let (mut seen, mut cursor, mut steps) = (vec![], Cursor(0), 0);
    let now = w.now;
    loop {
        let mut took = 0;
        let end = w.nats[0].walk_sessions(&mut cursor, 7, &Filter::default(), false, now, |row| {
            took += 1;
            // A full ring takes nothing: the row comes again.
            if took == 5 {
                return false;
            }
            seen.push((row.proto, row.inside));
            true
        });
        steps += 1;
        if end {
            break;
        }
    }
    assert!(steps > 20);
    assert_eq!(seen.len(), 110);
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 110);
}

/// Filters choose by each field.
#[test]
fn filters_choose() {
    let mut w = filled();
    let now = w.now;
    let mut count = |filter: Filter| {
        let mut n = 0;
        w.nats[0].walk_sessions(&mut Cursor(0), usize::MAX, &filter, false, now, |_| {
            n += 1;
            true
        });
        n
    };
    let all = Filter::default();
    assert_eq!(count(Filter { proto: Some(Proto::Tcp), ..all }), 10);
    assert_eq!(count(Filter { inside: Some(net("10.0.0.3").into()), ..all }), 11);
    assert_eq!(count(Filter { inside_port: Some(1), ..all }), 20);
    assert_eq!(count(Filter { outside: Some(net("192.0.2.0/24")), ..all }), 110);
    assert_eq!(count(Filter { outside: Some(net("192.0.3.0/24")), ..all }), 0);
    assert_eq!(count(Filter { remote: Some(net("198.51.100.2").into()), remote_port: Some(80), ..all }), 10);
    assert_eq!(count(Filter { tcp: Some(TcpState::InsideInit), ..all }), 10);
    assert_eq!(count(Filter { tcp: Some(TcpState::Established), ..all }), 0);
    assert_eq!(count(Filter { instance: Some(InstanceId(1)), ..all }), 0);
}

/// Deleting by filter ends those sessions and only those; a deleted UDP flow starts anew.
#[test]
fn deletion_by_filter_ends_those_sessions() {
    let mut w = filled();
    let (now, filter) = (w.now, Filter { inside: Some(net("10.0.0.3").into()), ..Filter::default() });
    let mut gone = 0;
    w.nats[0].walk_sessions(&mut Cursor(0), usize::MAX, &filter, true, now, |_| {
        gone += 1;
        true
    });
    assert_eq!((gone, w.session_count()), (11, 99));
    assert_eq!(w.nats[0].sessions_deleted(), 11);
    check::invariants(&mut w);
    assert!(w.subscribers().iter().all(|s| s.inside != net("10.0.0.3").into()));
    w.wait(301);
    check::empty(&mut w);
}

/// Deletion by name takes exactly that session, once.
#[test]
fn deletion_by_name_takes_one() {
    let mut w = filled();
    let (inside, remote) = (e("10.0.0.3:4"), e("198.51.100.1:53"));
    let key = SessionKey { instance: InstanceId(0), proto: Proto::Udp, inside: inside.into(), remote };
    let now = w.now;
    assert_eq!(w.nats[0].delete(&[key], now), 1);
    assert_eq!(w.nats[0].delete(&[key], now), 0);
    let other = [SessionKey { proto: Proto::Tcp, ..key }, SessionKey { instance: InstanceId(9), ..key }];
    assert_eq!(w.nats[0].delete(&other, now), 0);
    assert_eq!(w.session_count(), 109);
    check::invariants(&mut w);
}

/// Many names at once, some of them twice or nobody's: each session ends once, its mapping and subscriber with the last.
#[test]
fn deletion_by_many_names_takes_each_once() {
    let mut w = filled();
    let mut keys = vec![];
    let now = w.now;
    w.nats[0].walk_sessions(&mut Cursor(0), usize::MAX, &Filter::default(), false, now, |row| {
        let SessionRow { instance, proto, inside, remote, .. } = row;
        keys.push(SessionKey { instance, proto, inside, remote });
        true
    });
    assert_eq!(keys.len(), 110);
    let (some, rest) = keys.split_at(70);
    let doubled: Vec<_> = some.iter().flat_map(|key| [*key, *key]).collect();
    assert_eq!(w.nats[0].delete(&doubled, now), 70);
    assert_eq!(w.session_count(), 40);
    check::invariants(&mut w);
    assert_eq!(w.nats[0].delete(some, now), 0);
    assert_eq!(w.nats[0].delete(rest, now), 40);
    check::invariants(&mut w);
    w.wait(301);
    check::empty(&mut w);
}

/// A row tells idle time, time left, packets both ways and who opened.
#[test]
fn row_tells_times_and_packets() {
    let mut w = world(instance());
    let outside = w.udp_out("10.0.0.1:1", "198.51.100.1:53").unwrap();
    w.udp_out("10.0.0.1:1", "198.51.100.1:53").unwrap();
    w.udp_in("198.51.100.1:53", outside).unwrap();
    w.wait(100);
    let row = w.sessions()[0];
    assert_eq!((row.packets_out, row.packets_in, row.idle_s, row.expires_s), (2, 1, 100, 200));
    assert_eq!(
        (row.inside, row.outside, row.remote),
        (e("10.0.0.1:1").into(), outside, e("198.51.100.1:53"))
    );
    assert!(!row.inbound);
    w.udp_in("203.0.113.1:9", outside).unwrap();
    assert!(w.sessions().iter().any(|r| r.inbound && r.remote == e("203.0.113.1:9")));
    let pool = w.pools()[0];
    assert_eq!((pool.ports_total, pool.ports_used, pool.subscribers), (64_512, [0, 1, 0], 1));
}

/// A subscriber's tie to its address is told when it begins and ends (RFC 6888 REQ-12: no destination is).
#[test]
fn binding_is_told_at_begin_and_end() {
    let mut w = world(instance());
    w.udp_out("10.0.0.1:1", "198.51.100.1:53").unwrap();
    w.take_events();
    let bound = NatEvent::AddressBound {
        instance: InstanceId(0),
        inside: host("10.0.0.1"),
        outside: addr("192.0.2.1"),
    };
    assert_eq!(w.events, [bound]);
    w.wait(301);
    assert_eq!(w.events.len(), 2);
    assert!(matches!(w.events[1], NatEvent::AddressReleased { .. }));
}

/// Memory is told table by table, and what a budget announces is what is taken.
#[test]
fn memory_is_told() {
    let w = filled();
    let rows = w.nats[0].memory();
    let used = |table: &str| rows.iter().find(|r| r.table == table).unwrap().used;
    assert_eq!((used("sessions"), used("mappings"), used("subscribers")), (110, 110, 10));
    let asked_for = rows.iter().find(|row| row.table == "port-control").unwrap().bytes as usize;
    assert_eq!(carrack_nat::Nat::bytes_for(SMALL) + asked_for, w.nats[0].table_bytes());
    let capacity = carrack_nat::policy::Capacity::default();
    let per_session = carrack_nat::Nat::bytes_for(capacity) / capacity.sessions as usize;
    assert!(
        per_session <= 138,
        "{per_session} octets for a session, its mapping and its share of a subscriber"
    );
}
