//! What an operator asks of a running worker: captures, traces, dumps, deletes, reloads.

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;

use carrack_base::{IfIndex, InstanceId, Proto, Reason};
use carrack_nat::row::{Endpoint, Filter, SessionKey};
use carrack_pipeline::Plan;
use carrack_pipeline::mailbox::{
    Capture, CapturePoint, CaptureSlot, Command, Dump, Event, PacketFilter, Row, Table, TraceOutcome,
    TraceStep,
};
use carrack_pipeline::snapshot::{NextHop, Policer};
use common::*;

const REMOTE: &str = "198.51.100.7:80";

fn points(reader: &mut rtrb::Consumer<CaptureSlot>) -> Vec<(CapturePoint, u16)> {
    std::iter::from_fn(|| reader.pop().ok()).map(|slot| (slot.point, slot.interface.0)).collect()
}

#[test]
fn capture_shows_packets_as_they_came_left_and_were_dropped() {
    let mut world = world();
    let mut reader = world.capture(|_| {});
    let frame = udp(IN, "10.0.0.5:1000", REMOTE);
    let sent = world.pass(IN, &frame);
    let rx = reader.pop().unwrap();
    assert_eq!(
        (rx.point, rx.interface.0, &rx.bytes[..usize::from(rx.captured)]),
        (CapturePoint::Rx, IF_IN, &frame[..])
    );
    assert_eq!((rx.at_ns, rx.len), (world.now.ns, 67));
    let tx = reader.pop().unwrap();
    assert_eq!((tx.point, tx.interface.0, &tx.bytes[..67]), (CapturePoint::Tx, IF_OUT, &sent.frame[..]));
    world.dropped(OUT, &udp(OUT, REMOTE, "192.0.2.1:9"), Reason::NatNoMapping);
    let drop = CapturePoint::Drop(Reason::NatNoMapping);
    assert_eq!(points(&mut reader), [(CapturePoint::Rx, IF_OUT), (drop, IF_OUT)]);
    // Malformed ones too.
    world.dropped(IN, &frame[..20], Reason::Ipv4Truncated);
    assert_eq!(points(&mut reader).len(), 2);
}

#[test]
fn capture_of_one_reason_sees_only_drops_of_that_reason() {
    let mut world = world();
    let only = |dropped| {
        move |c: &mut Capture| {
            c.filter.dropped = Some(dropped);
        }
    };
    let mut one = world.capture(only(Some(Reason::NatNoMapping)));
    let mut any = world.capture(only(None));
    world.pass(IN, &udp(IN, "10.0.0.5:1000", REMOTE));
    world.dropped(OUT, &udp(OUT, REMOTE, "192.0.2.1:9"), Reason::NatNoMapping);
    world.dropped(IN, &[0; 3], Reason::L2Truncated);
    assert_eq!(points(&mut one), [(CapturePoint::Drop(Reason::NatNoMapping), IF_OUT)]);
    assert_eq!(points(&mut any).len(), 2);
}

#[test]
fn capture_filters_by_address_protocol_port_and_interface() {
    let mut world = world();
    let mut by_address = world.capture(|c| c.filter.address = Some(prefix("10.0.0.6").into()));
    let mut by_port = world.capture(|c| (c.filter.port, c.filter.proto) = (Some(80), Some(Proto::Udp)));
    let mut by_interface = world.capture(|c| c.filter.interface = Some(IfIndex(IF_VLAN)));
    world.pass(IN, &udp(IN, "10.0.0.5:1000", REMOTE));
    world.pass(IN, &udp(IN, "10.0.0.6:1000", "198.51.100.7:81"));
    world.pass(IN, &tcp(IN, "10.0.0.5:1000", REMOTE, 2));
    // The subscriber's packet is seen leaving too, though its address has changed.
    assert_eq!(points(&mut by_address), [(CapturePoint::Rx, IF_IN), (CapturePoint::Tx, IF_OUT)]);
    assert_eq!(points(&mut by_port).len(), 2);
    assert_eq!(points(&mut by_interface), []);
}

#[test]
fn capture_ends_after_its_count_and_when_nobody_reads() {
    let mut world = world();
    let mut reader = world.capture(|c| (c.packets_max, c.tx) = (3, false));
    world.burst(IN, &vec![udp(IN, "10.0.0.5:1000", REMOTE); 10]);
    assert_eq!(points(&mut reader).len(), 3);
    assert!(reader.is_abandoned(), "the reader sees the end");
    // A full ring loses copies, never packets.
    let mut slow = world.capture(|_| {});
    assert_eq!(world.burst(IN, &vec![udp(IN, "10.0.0.5:1000", REMOTE); 64]).len(), 64);
    assert_eq!(points(&mut slow).len(), 64);
    drop(slow);
    world.turn();
    world.pass(IN, &udp(IN, "10.0.0.5:1000", REMOTE));
}

#[test]
fn a_capture_says_how_many_copies_its_slow_reader_missed() {
    let mut world = world();
    let mut reader = world.capture(|c| (c.tx, c.packets_max) = (false, 70));
    let frame = udp(IN, "10.0.0.5:1000", REMOTE);
    (0..69).for_each(|_| drop(world.pass(IN, &frame)));
    let slots: Vec<_> = std::iter::from_fn(|| reader.pop().ok()).collect();
    assert_eq!((slots.len(), slots.iter().map(|slot| slot.lost).sum::<u32>()), (64, 0));
    assert_eq!(world.workers[0].stats().captures_lost, 5);
    // What was lost does not count towards the packets asked for.
    (0..8).for_each(|_| drop(world.pass(IN, &frame)));
    let lost: Vec<u32> = std::iter::from_fn(|| reader.pop().ok()).map(|slot| slot.lost).collect();
    assert_eq!(lost, [5, 0, 0, 0, 0, 0]);
}

#[test]
fn packets_that_a_port_refused_and_held_syns_are_captured_as_drops() {
    let mut world = world();
    let mut reader = world.capture(|c| c.filter.dropped = Some(None));
    let frame = world.pool.alloc_copy(&udp(IN, "10.0.0.5:1000", REMOTE)).unwrap();
    world.workers[0].rx_buffer().push(frame);
    world.workers[0].process(world.now, carrack_base::PortId(IN), &mut world.pool);
    world.workers[0].tx_failed(carrack_base::PortId(OUT), world.now);
    world.workers[0].done(&mut world.pool);
    assert_eq!(points(&mut reader), [(CapturePoint::Drop(Reason::TxQueueFull), IF_OUT)]);
    assert_eq!(world.new_drops(), [(Reason::TxQueueFull, 1)]);
    let syn = tcp(OUT, "198.51.100.7:4000", "192.0.2.1:9", 0x02);
    world.send(OUT, &syn);
    world.wait_ms(7_000);
    let slot = reader.pop().unwrap();
    assert_eq!(slot.point, CapturePoint::Drop(Reason::NatTcpUnsolicitedSyn));
    assert_eq!(slot.bytes[14..usize::from(slot.captured)], syn[14..]);
}

fn steps(reader: &mut rtrb::Consumer<TraceStep>) -> Vec<(u32, &'static str, TraceOutcome)> {
    std::iter::from_fn(|| reader.pop().ok()).map(|s| (s.packet, s.stage, s.outcome)).collect()
}

#[test]
fn trace_tells_what_each_stage_did_in_order() {
    let mut world = world();
    let mut reader = world.trace(2, PacketFilter { proto: Some(Proto::Udp), ..Default::default() });
    world.pass(IN, &tcp(IN, "10.0.0.5:1", REMOTE, 2));
    world.pass(IN, &udp(IN, "10.0.0.5:1000", REMOTE));
    let told = steps(&mut reader);
    assert_eq!(told[0], (1, "parse", TraceOutcome::Next));
    assert!(matches!(told[1], (1, "nat", TraceOutcome::SessionCreated(_))));
    assert_eq!(told[2], (1, "forward", TraceOutcome::Sent(IfIndex(IF_OUT))));
    world.pass(IN, &udp(IN, "10.0.0.5:1000", REMOTE));
    let told = steps(&mut reader);
    assert!(matches!(told[1], (2, "nat", TraceOutcome::SessionHit(_))), "{told:?}");
    assert!(reader.is_abandoned(), "two packets were asked for");
}

#[test]
fn trace_ends_a_packet_with_what_became_of_it() {
    let mut world = world_with(|s| s.routes.push(route(0, "198.18.0.0/16", NextHop::Blackhole)));
    let mut reader = world.trace(100, PacketFilter::default());
    let mut last = |world: &mut World, port: u16, frame: &[u8]| {
        world.send(port, frame);
        steps(&mut reader).last().unwrap().2
    };
    let sent = |interface| TraceOutcome::Sent(IfIndex(interface));
    assert_eq!(last(&mut world, IN, &ping(IN, "10.0.0.5:1", "10.0.0.1")), TraceOutcome::Punted);
    let blackhole = udp(IN, "10.0.0.5:1", "198.18.0.1:1");
    assert_eq!(last(&mut world, IN, &blackhole), TraceOutcome::Dropped(Reason::RouteBlackhole));
    assert_eq!(last(&mut world, IN, &[1; 5]), TraceOutcome::Dropped(Reason::L2Truncated));
    assert_eq!(last(&mut world, IN, &udp(IN, "10.0.0.5:1", "203.0.113.1:1")), sent(IF_OUT));
    assert_eq!(last(&mut world, IN, &udp(IN, "10.0.0.5:1", "198.51.100.200:1")), TraceOutcome::Held);
    let syn = tcp(OUT, REMOTE, "192.0.2.1:5000", 2);
    assert_eq!(last(&mut world, OUT, &syn), TraceOutcome::Held);
    let called = world.pass(IN, &udp(IN, "10.0.0.5:1000", REMOTE)).src();
    assert_eq!(last(&mut world, IN, &udp(IN, "10.0.0.6:1", &called)), sent(IF_IN));
    let later = fragments(IN, "10.0.0.5:1", REMOTE, 1, 2_000, 1_000).remove(1);
    assert_eq!(last(&mut world, IN, &later), TraceOutcome::Held);
}

fn dump(world: &mut World, table: Table, slots: usize, change: impl Fn(&mut Dump)) -> rtrb::Consumer<Row> {
    let (rows, reader) = rtrb::RingBuffer::new(slots);
    let mut dump = Dump { table, filter: Filter::default(), delete: false, rows_max: 0, rows };
    change(&mut dump);
    assert!(world.ends[0].commands.push(Command::Dump(dump)).is_ok());
    reader
}

/// Reads to the end, a few rows at a time.
fn read(world: &mut World, mut reader: rtrb::Consumer<Row>) -> Vec<Row> {
    let mut rows = vec![];
    for _ in 0..10_000 {
        let abandoned = reader.is_abandoned();
        let before = rows.len();
        rows.extend(std::iter::from_fn(|| reader.pop().ok()));
        if abandoned && before == rows.len() {
            return rows;
        }
        world.turn();
    }
    panic!("the dump does not end");
}

fn many(world: &mut World, count: u16) {
    for first in (0..count).step_by(64) {
        let ports = first..(first + 64).min(count);
        let host = |p: u16| 5 + p / 64 % 3;
        let burst: Vec<_> =
            ports.map(|p| udp(IN, &format!("10.0.0.{}:{}", host(p), 1_000 + p), REMOTE)).collect();
        assert_eq!(world.burst(IN, &burst).len(), burst.len());
    }
}

#[test]
fn a_slow_reader_gets_every_row_once_and_traffic_goes_on() {
    let mut world = world();
    many(&mut world, 600);
    let reader = dump(&mut world, Table::Sessions, 7, |_| {});
    world.turn();
    world.pass(IN, &udp(IN, "10.0.0.5:1000", REMOTE));
    let rows = read(&mut world, reader);
    let ports: BTreeSet<u16> = rows
        .iter()
        .map(|r| match r {
            Row::Session(s) => s.inside.port,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!((rows.len(), ports.len()), (600, 600));
}

#[test]
fn each_table_dumps_its_rows_even_through_a_ring_of_two() {
    let mut world = world();
    many(&mut world, 192);
    for (table, count) in [(Table::Mappings, 192), (Table::Subscribers, 3), (Table::Pools, 1)] {
        let reader = dump(&mut world, table, 2, |_| {});
        assert_eq!(read(&mut world, reader).len(), count, "{table:?}");
    }
    let expected = world.workers[0].nat().memory().len();
    let reader = dump(&mut world, Table::Memory, 2, |_| {});
    let rows = read(&mut world, reader);
    let tables: BTreeSet<_> =
        rows.iter().filter_map(|row| if let Row::Memory(m) = row { Some(m.table) } else { None }).collect();
    // The engine's, and those of the stages around it.
    assert!(
        ["fragments", "held-fragments", "neighbours"].iter().all(|table| tables.contains(table)),
        "{tables:?}"
    );
    assert_eq!((rows.len(), tables.len()), (expected + 3, expected + 3));
}

#[test]
fn a_dump_stops_at_its_number_of_rows_and_deletes_no_more_than_it_shows() {
    let mut world = world();
    many(&mut world, 192);
    let reader = dump(&mut world, Table::Sessions, 64, |d| (d.rows_max, d.delete) = (10, true));
    assert_eq!(read(&mut world, reader).len(), 10);
    assert_eq!(world.sessions(), 182);
    let of_one = prefix("10.0.0.6");
    let reader =
        dump(&mut world, Table::Sessions, 8, |d| (d.filter.inside, d.delete) = (Some(of_one.into()), true));
    assert_eq!(read(&mut world, reader).len(), 64);
    assert_eq!(world.sessions(), 118);
}

#[test]
fn a_dump_that_nobody_reads_ends_and_twenty_at_once_wait_their_turn() {
    let mut world = world();
    many(&mut world, 192);
    let abandoned: Vec<_> = (0..8).map(|_| dump(&mut world, Table::Sessions, 4, |_| {})).collect();
    drop(abandoned);
    let readers: Vec<_> = (0..20).map(|_| dump(&mut world, Table::Sessions, 4, |_| {})).collect();
    for reader in readers {
        assert_eq!(read(&mut world, reader).len(), 192);
    }
}

#[test]
fn delete_ends_exactly_the_named_sessions_and_says_how_many() {
    let mut world = world();
    many(&mut world, 64);
    let key = |port| SessionKey {
        instance: InstanceId(0),
        proto: Proto::Udp,
        inside: Endpoint { ip: ip("10.0.0.5"), port }.into(),
        remote: Endpoint { ip: ip("198.51.100.7"), port: 80 },
    };
    let keys = vec![key(1_000), key(1_001), key(9)];
    assert!(world.ends[0].commands.push(Command::Delete { request: 42, keys }).is_ok());
    world.turn();
    assert!(world.events.iter().any(|e| matches!(e, Event::Deleted { request: 42, count: 2 })));
    assert_eq!(world.sessions(), 62);
}

/// Sixteen are deleted between two bursts, so that no packet waits for a thousand; later commands wait.
#[test]
fn a_long_deletion_takes_turns_and_commands_behind_it_wait() {
    let mut world = world();
    many(&mut world, 64);
    let key = |port| SessionKey {
        instance: InstanceId(0),
        proto: Proto::Udp,
        inside: Endpoint { ip: ip("10.0.0.5"), port }.into(),
        remote: Endpoint { ip: ip("198.51.100.7"), port: 80 },
    };
    let delete = |world: &mut World, request, keys: Vec<SessionKey>| {
        assert!(world.ends[0].commands.push(Command::Delete { request, keys }).is_ok());
    };
    // Of 40 names 36 are of sessions, two of them named twice.
    let names = (1_000..1_036).chain([1_003, 1_020, 9, 10]);
    delete(&mut world, 1, names.map(key).collect());
    delete(&mut world, 2, vec![key(1_000), key(1_063)]);
    delete(&mut world, 3, vec![]);
    let mut left = vec![];
    for _ in 0..6 {
        world.workers[0].background(world.now, &mut world.pool);
        left.push((world.sessions(), world.workers[0].is_deleting()));
    }
    let ended = (27, false);
    assert_eq!(left, [(48, true), (32, true), ended, ended, ended, ended]);
    let mut answers = vec![];
    while let Ok(event) = world.ends[0].events.pop() {
        if let Event::Deleted { request, count } = event {
            answers.push((request, count));
        }
    }
    assert_eq!(answers, [(1, 36), (2, 1), (3, 0)]);
}

#[test]
fn a_reload_keeps_sessions_and_neighbours_that_it_does_not_touch() {
    let mut world = world();
    let out = world.pass(IN, &udp(IN, "10.0.0.5:1000", REMOTE));
    world.reconfigure(|s| s.routes.push(route(0, "198.18.0.0/16", NextHop::Blackhole)));
    let done =
        world.events.iter().any(|e| matches!(e, Event::Reconfigured { generation: 2, sessions_ended: 0 }));
    assert!(done);
    assert!(
        world.events.iter().any(|e| matches!(e, Event::Retired { change: Some(_), .. })),
        "the old plan is freed elsewhere"
    );
    assert_eq!(world.pass(OUT, &udp(OUT, REMOTE, &out.src())).dst(), "10.0.0.5:1000");
    world.dropped(IN, &udp(IN, "10.0.0.5:1000", "198.18.0.1:1"), Reason::RouteBlackhole);
}

#[test]
fn a_removed_interface_takes_its_waiting_packets_and_neighbours_with_it() {
    let mut world = world();
    world.send(IN, &udp(IN, "10.0.0.5:1000", "10.1.0.77:53"));
    assert_eq!(world.held(), 1);
    let mut vlan = None;
    world.reconfigure(|s| vlan = s.interfaces[usize::from(IF_VLAN)].take());
    assert_eq!(world.held(), 0);
    assert_eq!(world.new_drops(), [(Reason::SnapshotStale, 1)]);
    let frame = packet(TAGGED, "10.1.0.5", "198.51.100.7").vlan(100).udp(1, 2).build();
    world.dropped(TAGGED, &frame, Reason::L2UnknownVlan);
    world.dropped(IN, &udp(IN, "10.0.0.5:1000", "10.1.0.5:53"), Reason::SnapshotStale);
    // When it comes back its neighbours are asked for again.
    world.reconfigure(|s| s.interfaces[usize::from(IF_VLAN)] = vlan);
    world.asked();
    assert!(world.send(IN, &udp(IN, "10.0.0.5:1000", "10.1.0.5:53")).is_empty());
    assert_eq!(world.asked(), [(IF_VLAN, v4("10.1.0.5"))]);
}

#[test]
fn an_interface_that_moves_to_another_vlan_asks_for_its_neighbours_again() {
    let mut world = world();
    world.pass(IN, &udp(IN, "10.0.0.5:1000", "10.1.0.5:53"));
    world.reconfigure(|s| on(s, IF_VLAN, |i| i.vlan = carrack_pipeline::snapshot::Vlan::Single(101)));
    world.asked();
    assert!(world.send(IN, &udp(IN, "10.0.0.5:1000", "10.1.0.5:53")).is_empty());
    assert_eq!(world.asked().len(), 1);
    world.know(IF_IN, "10.0.0.5");
}

#[test]
fn policers_change_with_a_reload() {
    let mut world = world();
    world.reconfigure(|s| s.policers.icmp = Policer { rate_pps: 0, burst: 0 });
    world.dropped(IN, &ping(IN, "10.0.0.5:7", "10.0.0.1"), Reason::PuntPolicedIcmp);
}

#[test]
fn a_reload_while_fragments_and_syns_wait_loses_no_packet_uncounted() {
    let mut world = world();
    let pieces = fragments(IN, "10.0.0.5:1", REMOTE, 1, 3_000, 1_000);
    world.burst(IN, &pieces[1..]);
    world.send(OUT, &tcp(OUT, REMOTE, "192.0.2.1:5000", 2));
    assert_eq!(world.held(), 4);
    world.reconfigure(|s| nat(s, |i| i.pools[0].ranges = vec!["192.0.2.9".parse().unwrap()]));
    assert_eq!(world.held(), 4);
    let sent = world.send(IN, &pieces[0]);
    assert_eq!((sent.len(), sent[0].addresses().0.as_str()), (4, "192.0.2.9"));
}

/// A reload that ends thousands of sessions holds up no packet: the old plan forwards until all is ready, then the new.
#[test]
fn packets_go_on_while_a_reload_is_made_ready() {
    let mut world = world();
    many(&mut world, 600);
    let stays = udp(IN, "10.0.0.7:5000", REMOTE);
    let out = world.pass(IN, &stays);
    world.snapshot.generation = 2;
    nat(&mut world.snapshot, |i| i.exempt = vec!["198.51.0.0/16".parse().unwrap()]);
    let plan = Arc::new(Plan::new(Arc::new(world.snapshot.clone())));
    let change = world.workers[0].nat().prepare_change(plan.snapshot.nat.clone()).unwrap();
    assert!(world.ends[0].commands.push(Command::Prepare { plan, change }).is_ok());
    let sessions = world.sessions();
    world.once(0);
    assert!(world.workers[0].is_preparing());
    assert!((1..=64).contains(&(sessions - world.sessions())), "one turn ends few");
    // One that has not had its turn goes on; one that begins now does not.
    assert_eq!(world.pass(OUT, &udp(OUT, REMOTE, &out.src())).dst(), "10.0.0.7:5000");
    world.turn();
    world.turn();
    assert!(world.events.iter().any(|e| matches!(e, Event::Prepared { generation: 2 })));
    assert_eq!(world.sessions(), 0, "nothing that the reload forbids is left");
    world.dropped(IN, &stays, Reason::NatPoolChanging);
    world.command(|| Command::Commit { generation: 2 });
    world.turn();
    let done = |e: &Event| matches!(e, Event::Reconfigured { generation: 2, sessions_ended } if *sessions_ended == sessions as u64);
    assert!(world.events.iter().any(done));
    // Exempt by the new plan: it passes as it is.
    assert_eq!(world.pass(IN, &stays).src(), "10.0.0.7:5000");
}

/// A reload is done when the last of its forwarded ports leads somewhere.
#[test]
fn a_reload_is_told_when_its_last_forwarded_port_is_in_force() {
    let mut world = world();
    world.snapshot.generation = 2;
    nat(&mut world.snapshot, |i| {
        i.statics = vec![carrack_nat::policy::StaticRule::Forward {
            proto: carrack_base::Proto::Udp,
            outside: i.pools[0].ranges[0].first,
            outside_port: 10_000,
            count: 100,
            inside: carrack_nat::Inside::V4("10.0.0.7".parse::<std::net::Ipv4Addr>().unwrap().into()),
            inside_port: 20_000,
        }];
    });
    let plan = Arc::new(Plan::new(Arc::new(world.snapshot.clone())));
    let change = world.workers[0].nat().prepare_change(plan.snapshot.nat.clone()).unwrap();
    assert!(world.ends[0].commands.push(Command::Prepare { plan, change }).is_ok());
    world.turn();
    world.command(|| Command::Commit { generation: 2 });
    let done = |world: &World| world.events.iter().any(|e| matches!(e, Event::Reconfigured { .. }));
    world.once(0);
    assert!(!done(&world) && world.workers[0].is_preparing(), "64 of 100");
    world.turn();
    assert!(done(&world) && !world.workers[0].is_preparing());
}

/// A reload that is taken back has changed nothing that is in force, and its memory is freed elsewhere.
#[test]
fn a_reload_taken_back_leaves_the_old_plan_in_force() {
    let mut world = world();
    let frame = udp(IN, "10.0.0.5:1000", REMOTE);
    world.snapshot.generation = 2;
    let mut next = world.snapshot.clone();
    next.routes.push(route(0, "198.51.0.0/16", NextHop::Blackhole));
    let plan = Arc::new(Plan::new(Arc::new(next)));
    let change = world.workers[0].nat().prepare_change(plan.snapshot.nat.clone()).unwrap();
    assert!(world.ends[0].commands.push(Command::Prepare { plan, change }).is_ok());
    world.turn();
    world.command(|| Command::Abandon { generation: 2 });
    world.command(|| Command::Commit { generation: 2 });
    world.turn();
    world.pass(IN, &frame);
    assert!(world.events.iter().any(|e| matches!(e, Event::Retired { change: Some(_), .. })));
    assert!(!world.events.iter().any(|e| matches!(e, Event::Reconfigured { .. })));
}

#[test]
fn figures_follow_the_traffic() {
    let mut world = world();
    many(&mut world, 192);
    let stats = *world.workers[0].stats();
    assert_eq!((stats.sessions, stats.mappings, stats.subscribers, stats.packets), (192, 192, 3, 192));
    assert_eq!((stats.bursts, stats.burst_sizes[6]), (3, 3));
    assert!(stats.stages[0].packets > 0 && stats.stages[0].cycles > 0, "the first burst is sampled");
}
