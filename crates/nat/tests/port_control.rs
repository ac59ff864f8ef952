//! Mappings that hosts ask for (RFC 6887 §11, §12, §13.2, §13.3, §15; RFC 6888 REQ-9).

mod common;

use std::collections::HashMap;
use std::sync::Arc;

use carrack_base::{Proto, Reason, VrfId};
use carrack_nat::policy::{Assignment, Filtering, Limits, NatPolicy};
use carrack_nat::row::{Endpoint, HostEndpoint, NatEvent};
use carrack_nat::{PortAsk, PortFilter, PortFilters, PortGrant, PortRefusal, PortWish};
use common::*;
use proptest::prelude::*;

fn inside(text: &str) -> HostEndpoint {
    e(text).into()
}

fn map(lifetime_s: u32) -> PortWish {
    let (suggested, filters) = (Endpoint::default(), PortFilters::default());
    PortWish::Map { suggested, strict: false, lifetime_s, filters, ports: 1, parity: false }
}

fn suggesting(place: Endpoint, strict: bool) -> PortWish {
    let filters = PortFilters::default();
    PortWish::Map { suggested: place, strict, lifetime_s: 600, filters, ports: 1, parity: false }
}

fn ask(w: &mut World, proto: Proto, host: &str, what: PortWish) -> Result<PortGrant, PortRefusal> {
    let ask = PortAsk { vrf: VrfId(0), proto, inside: inside(host), what };
    let now = w.now;
    let mut answers: Vec<_> = w.nats.iter_mut().filter_map(|nat| nat.control(&ask, now)).collect();
    assert_eq!(answers.len(), 1, "exactly one worker answers");
    check::invariants(w);
    answers.remove(0)
}

fn blocks(per_subscriber_max: u8) -> Assignment {
    Assignment::Blocks { size: 64, per_subscriber_max, idle_release_s: 0 }
}

/// RFC 6887 §15: alive for its lifetime without a packet, and gone after it.
#[test]
fn an_asked_for_mapping_neither_idles_out_nor_outlives_its_lifetime() {
    for assignment in [Assignment::Arbitrary, blocks(2)] {
        let mut w = world(instance_with(|i| i.assignment = assignment));
        let got = ask(&mut w, Proto::Tcp, "10.0.0.1:80", map(600)).unwrap();
        w.wait(595);
        assert_eq!(w.tcp_in("198.51.100.9:4000", got.outside, SYN), Ok(e("10.0.0.1:80")));
        assert_eq!(w.tcp_out("10.0.0.1:80", "198.51.100.9:4000", SYN | ACK), Ok(got.outside));
        assert_eq!(w.tcp_in("198.51.100.9:4000", got.outside, RST), Ok(e("10.0.0.1:80")));
        w.wait(10);
        assert!(!w.mappings()[0].is_asked_for, "its time is over, a session still has it");
        w.wait(400);
        check::empty(&mut w);
        let told = |kind: fn(&NatEvent) -> bool| w.events.iter().filter(|event| kind(event)).count();
        assert_eq!(told(|event| matches!(event, NatEvent::MappingBound { .. })), 1);
        assert_eq!(told(|event| matches!(event, NatEvent::MappingReleased { .. })), 1);
    }
}

#[test]
fn asking_again_prolongs_and_keeps_the_endpoint_whatever_is_suggested() {
    let mut w = world(instance());
    let first = ask(&mut w, Proto::Udp, "10.0.0.1:5000", map(300)).unwrap();
    w.wait(250);
    let other = Endpoint { port: first.outside.port ^ 1, ..first.outside };
    let again = ask(&mut w, Proto::Udp, "10.0.0.1:5000", suggesting(other, false)).unwrap();
    assert_eq!(again.outside, first.outside);
    let strict = ask(&mut w, Proto::Udp, "10.0.0.1:5000", suggesting(other, true));
    assert_eq!(strict, Err(PortRefusal::NotThatOne), "RFC 6887 §13.2");
    w.wait(500);
    assert_eq!(w.udp_in("198.51.100.9:53", first.outside), Ok(e("10.0.0.1:5000")));
}

/// RFC 6887 §11.3: a suggestion that can be honoured is, in every mode of assignment.
#[test]
fn a_free_place_that_is_suggested_is_given() {
    for assignment in [Assignment::Arbitrary, blocks(2)] {
        let mut w = world(instance_with(|i| i.assignment = assignment));
        let place = e("192.0.2.1:40000");
        let got = ask(&mut w, Proto::Tcp, "10.0.0.1:80", suggesting(place, true)).unwrap();
        assert_eq!(got.outside, place);
        // Somebody else's: another one without, none with insistence.
        let other = ask(&mut w, Proto::Tcp, "10.0.0.2:80", suggesting(place, true));
        assert_eq!(other, Err(PortRefusal::NotThatOne));
        let other = ask(&mut w, Proto::Tcp, "10.0.0.2:80", suggesting(place, false)).unwrap();
        assert_ne!(other.outside, place);
        assert_eq!(w.subscribers().len(), 2, "a refusal leaves nobody behind");
    }
}

/// Also when its block's hold time is over and nobody has given it back yet, for others were before it.
#[test]
fn a_suggested_place_is_free_as_soon_as_its_hold_time_is_over() {
    let mut w = world(instance_with(|i| i.assignment = blocks(2)));
    let places: Vec<_> =
        (0..100).map(|n| w.udp_out(&format!("10.0.0.{n}:1"), "198.51.100.1:53").unwrap()).collect();
    w.wait(302);
    let (place, other) = (places[99], "10.0.0.200:80");
    assert_eq!(ask(&mut w, Proto::Udp, other, suggesting(place, true)), Err(PortRefusal::NotThatOne));
    w.now = w.now.plus_ns(200_000_000_000);
    assert_eq!(ask(&mut w, Proto::Udp, other, suggesting(place, true)).unwrap().outside, place);
}

/// RFC 6887 §11.3: external UDP ports 5350 and 5351 are port control's own.
#[test]
fn the_ports_of_port_control_itself_are_given_to_nobody() {
    let mut w = world(instance_with(|i| i.pools = vec![pool(0, &["192.0.2.1"], 5_350, 5_352)]));
    let strict = ask(&mut w, Proto::Udp, "10.0.0.1:7", suggesting(e("192.0.2.1:5351"), true));
    assert_eq!(strict, Err(PortRefusal::NotThatOne));
    let got = ask(&mut w, Proto::Udp, "10.0.0.1:7", map(600)).unwrap();
    assert_eq!(got.outside.port, 5_352);
    let tcp = ask(&mut w, Proto::Tcp, "10.0.0.1:7", suggesting(e("192.0.2.1:5351"), true)).unwrap();
    assert_eq!(tcp.outside.port, 5_351);
    let full = ask(&mut w, Proto::Udp, "10.0.0.1:8", map(600));
    assert!(matches!(full, Err(PortRefusal::Short(_))), "{full:?}");
}

/// RFC 6888 REQ-9: within the subscriber's limits, like any other mapping.
#[test]
fn an_asked_for_mapping_counts_against_the_port_limit() {
    let limits = Limits { ports_max: 2, ..Limits::default() };
    let mut w = world(instance_with(|i| i.limits = limits));
    ask(&mut w, Proto::Udp, "10.0.0.1:1", map(600)).unwrap();
    w.udp_out("10.0.0.1:2", "198.51.100.1:53").unwrap();
    let third = ask(&mut w, Proto::Tcp, "10.0.0.1:3", map(600));
    assert_eq!(third, Err(PortRefusal::Short(Reason::NatPortLimit)));
    assert_eq!(w.udp_out("10.0.0.1:4", "198.51.100.1:53"), Err(Reason::NatPortLimit));
    ask(&mut w, Proto::Udp, "10.0.0.1:1", map(600)).expect("what it has may be prolonged");
}

/// RFC 6887 §11.3 item 4, §15.1: the outbound mapping is taken over, and stays when the explicit one ends.
#[test]
fn a_mapping_made_by_traffic_becomes_explicit_and_survives_its_end() {
    let mut w = world(instance());
    let outside = w.udp_out("10.0.0.1:5000", "198.51.100.1:53").unwrap();
    let end = PortWish::EndMap { ports: 1 };
    assert_eq!(ask(&mut w, Proto::Udp, "10.0.0.1:5000", end), Err(PortRefusal::NotHis), "not by MAP");
    assert_eq!(ask(&mut w, Proto::Udp, "10.0.0.1:5000", map(600)).unwrap().outside, outside);
    ask(&mut w, Proto::Udp, "10.0.0.1:5000", end).unwrap();
    assert_eq!(w.udp_out("10.0.0.1:5000", "198.51.100.1:53"), Ok(outside));
    let none = ask(&mut w, Proto::Udp, "10.0.0.1:6000", end);
    assert!(none.is_ok(), "RFC 6887 §15.1: what is not there has ended");
}

/// RFC 6887 §11.3: what config made is told, and is not the host's to end.
#[test]
fn a_forward_rule_is_told_as_it_is() {
    let rule = forward(Proto::Tcp, "192.0.2.1:8080", "10.0.0.1:80");
    let fixed = one_to_one("10.0.0.2", "192.0.2.9");
    let mut w = world(instance_with(|i| i.statics = vec![rule, fixed]));
    let got = ask(&mut w, Proto::Tcp, "10.0.0.1:80", map(600)).unwrap();
    assert_eq!((got.outside, got.lifetime_s), (e("192.0.2.1:8080"), u32::MAX));
    let end = ask(&mut w, Proto::Tcp, "10.0.0.1:80", PortWish::EndMap { ports: 1 });
    assert_eq!(end, Err(PortRefusal::NotHis));
    let got = ask(&mut w, Proto::Udp, "10.0.0.2:99", map(600)).unwrap();
    assert_eq!((got.outside, got.lifetime_s), (e("192.0.2.9:99"), u32::MAX));
}

/// RFC 6887 §13.3, and §11: a MAP is open to all, a FILTER names who may come.
#[test]
fn filters_say_who_may_come_in_whatever_the_instance_filters() {
    for filtering in [Filtering::EndpointIndependent, Filtering::AddressDependent] {
        let mut w = world(instance_with(|i| i.filtering = [filtering; 3]));
        let open = ask(&mut w, Proto::Udp, "10.0.0.1:1", map(600)).unwrap().outside;
        assert_eq!(w.udp_in("203.0.113.5:9", open), Ok(e("10.0.0.1:1")));
        let mut filters = PortFilters::default();
        assert!(filters.add(PortFilter { ip: addr("198.51.100.0"), len: 24, port: 0 }));
        assert!(filters.add(PortFilter { ip: addr("203.0.113.7"), len: 32, port: 53 }));
        let suggested = Endpoint::default();
        let what =
            PortWish::Map { suggested, strict: false, lifetime_s: 600, filters, ports: 1, parity: false };
        let narrow = ask(&mut w, Proto::Udp, "10.0.0.1:2", what).unwrap().outside;
        assert_eq!(w.udp_in("198.51.100.77:1234", narrow), Ok(e("10.0.0.1:2")));
        assert_eq!(w.udp_in("203.0.113.7:53", narrow), Ok(e("10.0.0.1:2")));
        assert_eq!(w.udp_in("203.0.113.7:54", narrow), Err(Reason::NatFiltered));
        assert_eq!(w.udp_in("203.0.113.8:53", narrow), Err(Reason::NatFiltered));
    }
}

/// RFC 6887 §12.3: mapping and session stay, the peer may come in, nobody else by it.
#[test]
fn a_peer_keeps_its_session_alive_beyond_the_idle_time() {
    let mut w = world(instance_with(|i| i.filtering = [Filtering::AddressAndPortDependent; 3]));
    let remote: HostEndpoint = e("198.51.100.1:443").into();
    let what = PortWish::Peer { suggested: Endpoint::default(), remote, lifetime_s: 9_000 };
    let outside = w.connect("10.0.0.1:5000", "198.51.100.1:443");
    assert_eq!(ask(&mut w, Proto::Tcp, "10.0.0.1:5000", what).unwrap().outside, outside);
    w.wait(8_000);
    assert_eq!(w.tcp_in("198.51.100.1:443", outside, ACK), Ok(e("10.0.0.1:5000")), "past 7,440 s");
    assert!(w.tcp_in("198.51.100.2:443", outside, ACK).is_err());
    w.wait(1_100);
    assert_eq!(w.session_count(), 1, "the answer keeps it for its own idle time");
    w.wait(7_500);
    check::empty(&mut w);
}

/// RFC 6887 §12.3: a lost mapping is made again, at its old place or not at all.
#[test]
fn a_peer_makes_a_lost_mapping_again() {
    let mut w = world(instance());
    let remote: HostEndpoint = e("198.51.100.1:443").into();
    let suggested = e("192.0.2.1:33333");
    let what = PortWish::Peer { suggested, remote, lifetime_s: 600 };
    assert_eq!(ask(&mut w, Proto::Udp, "10.0.0.1:5000", what).unwrap().outside, suggested);
    assert_eq!(w.udp_in("198.51.100.1:443", suggested), Ok(e("10.0.0.1:5000")));
    let other = ask(&mut w, Proto::Udp, "10.0.0.2:5000", what);
    assert_eq!(other, Err(PortRefusal::NotThatOne));
    let nobody = PortWish::Peer { suggested, remote: e("127.0.0.1:443").into(), lifetime_s: 600 };
    assert_eq!(ask(&mut w, Proto::Udp, "10.0.0.1:5001", nobody), Err(PortRefusal::NoSuchPeer));
}

/// RFC 7753 §4: ports in a row on both sides, as many as can be had.
#[test]
fn a_set_is_ports_in_a_row_and_ends_as_one() {
    let mut w = world(instance_with(|i| i.assignment = blocks(1)));
    let (suggested, filters) = (Endpoint::default(), PortFilters::default());
    let set =
        |ports| PortWish::Map { suggested, strict: false, lifetime_s: 600, filters, ports, parity: true };
    let got = ask(&mut w, Proto::Udp, "10.0.0.1:50000", set(16)).unwrap();
    assert!(got.ports >= 1 && got.ports <= 16, "{got:?}");
    assert!(got.outside.port.is_multiple_of(2), "parity: {got:?}");
    for step in 0..got.ports {
        let outside = Endpoint { port: got.outside.port + step, ..got.outside };
        assert_eq!(w.udp_in("198.51.100.1:53", outside).unwrap().port, 50_000 + step);
    }
    assert_eq!(ask(&mut w, Proto::Udp, "10.0.0.1:50000", set(got.ports)).unwrap(), got);
    ask(&mut w, Proto::Udp, "10.0.0.1:50000", PortWish::EndMap { ports: got.ports }).unwrap();
    assert!(w.mappings().iter().all(|mapping| !mapping.is_asked_for));
}

/// RFC 6886 §3.2: the address that the host has, or will have.
#[test]
fn the_outside_address_can_be_asked_for_alone() {
    let mut w = world(instance_with(|i| i.assignment = blocks(1)));
    let got = ask(&mut w, Proto::Udp, "10.0.0.1:24", PortWish::Address).unwrap();
    assert_eq!(got.outside.ip, addr("192.0.2.1"));
    assert_eq!(w.mappings(), []);
    let stranger = ask(&mut w, Proto::Udp, "172.16.0.1:24", PortWish::Address);
    assert_eq!(stranger, Err(PortRefusal::NotServed));
}

/// A reload keeps what its pools still cover and ends the rest.
#[test]
fn a_reload_keeps_what_it_covers() {
    let two = || instance_with(|i| i.pools = vec![pool(0, &["192.0.2.1", "192.0.2.2"], 1_024, 65_535)]);
    let mut w = world(two());
    let kept = ask(&mut w, Proto::Tcp, "10.0.0.1:80", suggesting(e("192.0.2.1:4000"), true)).unwrap();
    ask(&mut w, Proto::Tcp, "10.0.0.2:80", suggesting(e("192.0.2.2:4000"), true)).unwrap();
    w.configure(vec![instance()]);
    check::invariants(&mut w);
    let left: Vec<_> = w.mappings().iter().map(|mapping| mapping.outside).collect();
    assert_eq!(left, [kept.outside]);
    assert_eq!(w.tcp_in("198.51.100.9:4000", kept.outside, SYN), Ok(e("10.0.0.1:80")));
    w.configure(vec![]);
    assert_eq!(w.mappings(), []);
}

/// What is made while a reload is under way might have to end at once: the host asks again. What there is can be prolonged
/// and ended meanwhile, and goes in its turn when the new policy has no place for it.
#[test]
fn during_a_reload_nothing_new_is_made_and_what_is_there_goes_in_its_turn() {
    let two = || instance_with(|i| i.pools = vec![pool(0, &["192.0.2.1", "192.0.2.2"], 1_024, 65_535)]);
    let mut w = world(two());
    let mut asked = Vec::new();
    for host in 0..300_u32 {
        let (inside, place) =
            (format!("10.0.1.{}:80", host % 250), format!("192.0.2.{}:{}", host % 2 + 1, 4_000 + host));
        let proto = if host < 250 { Proto::Tcp } else { Proto::Udp };
        let got = ask(&mut w, proto, &inside, suggesting(e(&place), true)).unwrap();
        asked.push((proto, inside, got.outside));
    }
    let policy = Arc::new(NatPolicy { instances: vec![instance()], port_control: true });
    let change = w.nats[0].prepare_change(policy.clone()).unwrap();
    w.nats[0].begin(change);
    let now = w.now;
    w.nats[0].advance(now);
    let new = ask(&mut w, Proto::Tcp, "10.0.2.1:80", map(600));
    assert_eq!(new, Err(PortRefusal::Short(Reason::NatPoolChanging)));
    let (proto, inside, outside) = asked[298].clone();
    assert_eq!(ask(&mut w, proto, &inside, map(900)).unwrap().outside, outside);
    let (mut turns, mut last) = (0, w.mappings().len());
    while !w.nats[0].advance(now) {
        let left = w.mappings().len();
        assert!(last - left <= 64, "{last} {left}");
        (turns, last) = (turns + 1, left);
    }
    assert!(turns >= 2, "{turns}");
    w.policy = policy;
    assert!(w.nats[0].commit(now).is_some());
    check::invariants(&mut w);
    let first = |outside: &Endpoint| outside.ip == addr("192.0.2.1");
    assert_eq!(w.mappings().len(), asked.iter().filter(|(_, _, outside)| first(outside)).count());
    for (proto, inside, outside) in asked.iter().filter(|(_, _, outside)| first(outside)) {
        assert_eq!(ask(&mut w, *proto, inside, map(600)).unwrap().outside, *outside);
    }
    ask(&mut w, Proto::Tcp, "10.0.2.1:80", map(600)).unwrap();
}

#[derive(Debug, Clone)]
enum Step {
    Ask { host: u8, port: u8, tcp: bool, lifetime_s: u32, suggested: u16 },
    End { host: u8, port: u8, tcp: bool },
    Send { host: u8, port: u8 },
    Wait(u64),
    Reload(bool),
}

fn step() -> impl Strategy<Value = Step> {
    let host = || 1..6u8;
    let port = || 1..6u8;
    prop_oneof![
        (host(), port(), any::<bool>(), 1..400u32, prop_oneof![Just(0), 40_000..40_010u16]).prop_map(
            |(host, port, tcp, lifetime_s, suggested)| Step::Ask { host, port, tcp, lifetime_s, suggested }
        ),
        (host(), port(), any::<bool>()).prop_map(|(host, port, tcp)| Step::End { host, port, tcp }),
        (host(), port()).prop_map(|(host, port)| Step::Send { host, port }),
        (1..60u64).prop_map(Step::Wait),
        any::<bool>().prop_map(Step::Reload),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever else happens, a mapping is at its place until its lifetime is over, and nothing of it is left after.
    #[test]
    fn a_lifetime_is_kept_to_the_second(
        steps in prop::collection::vec(step(), 1..60),
        in_blocks in any::<bool>(),
        workers in 1..4u8,
    ) {
        let assignment = if in_blocks { blocks(2) } else { Assignment::Arbitrary };
        let make = |hold: u32| instance_with(|i| {
            i.assignment = assignment;
            i.timeouts.udp_s = 30 + hold;
        });
        let mut w = World::new(vec![make(0)], workers, SMALL);
        let mut granted: HashMap<(bool, String), (Endpoint, u64)> = HashMap::new();
        for step in steps {
            let name = |host: u8, port: u8| format!("10.0.0.{host}:{port}");
            let proto = |tcp| if tcp { Proto::Tcp } else { Proto::Udp };
            match step {
                Step::Ask { host, port, tcp, lifetime_s, suggested } => {
                    let suggested = Endpoint { ip: addr("192.0.2.1"), port: suggested };
                    let filters = PortFilters::default();
                    let what =
                        PortWish::Map { suggested, strict: false, lifetime_s, filters, ports: 1, parity: false };
                    if let Ok(got) = ask(&mut w, proto(tcp), &name(host, port), what) {
                        let ends = u64::from(w.now.s()) + u64::from(lifetime_s);
                        granted.insert((tcp, name(host, port)), (got.outside, ends));
                    }
                }
                Step::End { host, port, tcp } => {
                    if granted.remove(&(tcp, name(host, port))).is_some() {
                        ask(&mut w, proto(tcp), &name(host, port), PortWish::EndMap { ports: 1 }).unwrap();
                    }
                }
                Step::Send { host, port } => {
                    let _ = w.udp_out(&name(host, port), "198.51.100.1:53");
                }
                Step::Wait(seconds) => w.wait(seconds),
                Step::Reload(flag) => {
                    w.configure(vec![make(u32::from(flag))]);
                }
            }
            check::invariants(&mut w);
            let now = u64::from(w.now.s());
            granted.retain(|_, (_, ends)| *ends > now);
            let asked: HashMap<_, _> = w
                .mappings()
                .into_iter()
                .filter(|mapping| mapping.is_asked_for)
                .map(|mapping| ((mapping.proto == Proto::Tcp, mapping.inside.to_string()), mapping.outside))
                .collect();
            for (key, (outside, _)) in &granted {
                prop_assert_eq!(asked.get(key), Some(outside), "{:?} before its end", key);
            }
        }
        w.wait(1_000);
        check::empty(&mut w);
    }
}
