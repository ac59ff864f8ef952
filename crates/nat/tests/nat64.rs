//! Stateful NAT64 (RFC 6146) in the engine: bindings and sessions, the same as NAT44's but for the inside. What becomes
//! of the headers is another crate's; here a packet is its flow.

mod common;

use std::net::Ipv6Addr;

use carrack_base::{Family, Proto, Reason, VrfId, WorkerId};
use carrack_nat::nat64::{Nat64, Nat64Prefix, NatPrefix};
use carrack_nat::policy::{Assignment, Filtering, Instance, Logged, StaticRule};
use carrack_nat::row::{Endpoint, Filter, HostEndpoint, NatEvent, SessionKey};
use carrack_nat::{Direction, Flow, Inside, Kind, PortAsk, PortFilters, PortWish, Verdict, Way};
use common::*;

fn six(text: &str) -> u128 {
    text.parse::<Ipv6Addr>().unwrap().into()
}

fn prefix(via: u16, text: &str) -> Nat64Prefix {
    Nat64Prefix { via, prefix: NatPrefix::new(text.parse().unwrap()).unwrap() }
}

/// 2001:db8::/32 behind 192.0.2.1, by 2001:db8:64::/96 and by the well-known prefix.
fn nat64() -> Instance {
    instance_with(|i| {
        i.nat64 = Some(Nat64 {
            prefixes: vec![prefix(1, "2001:db8:64::/96"), prefix(2, "64:ff9b::/96")],
            subscribers: vec!["2001:db8::/32".parse().unwrap()],
            subscriber_len: 128,
            rules: Default::default(),
        });
    })
}

fn nat64_with(change: impl FnOnce(&mut Instance)) -> Instance {
    let mut it = nat64();
    change(&mut it);
    it
}

/// A packet from an IPv6 host, as the parser sees it.
fn flow6(proto: Proto, src: (&str, u16), dst: (&str, u16), bits: u8) -> Flow {
    Flow {
        family: Family::V6,
        src6: six(src.0),
        dst6: six(dst.0),
        sport: src.1,
        dport: dst.1,
        proto,
        bits,
        ip_proto: [6, 17, 58][proto.index()],
        vrf: VrfId(0),
        ..Flow::default()
    }
}

/// What becomes of it, on the worker that owns it: its way and whether a session was made.
fn out(w: &mut World, mut flow: Flow) -> Result<(Way, bool, bool), Reason> {
    assert!(w.nats[0].admit(&mut flow)?, "to a NAT64 prefix");
    let directory = w.nats[0].directory();
    let found = directory.embedded(flow.vrf, flow.src6, flow.dst6).unwrap();
    let at = directory.owner_of_embedded(flow.vrf, flow.src6, &found).index();
    let nat = &mut w.nats[at];
    let hash = nat.hash(&flow, Direction::Out);
    let line = nat.prefetch_line(hash);
    nat.expect_session(flow, hash);
    nat.prepare();
    let verdict = nat.process(&flow, Direction::Out, hash, line, &mut [], w.now, |_, _| true);
    nat.settle();
    match verdict {
        Verdict::Crosses { line, created, vrf, hairpin } => {
            assert_eq!(vrf, VrfId(1));
            Ok((nat.way(line).unwrap(), created, hairpin))
        }
        Verdict::Drop(reason) => Err(reason),
        other => panic!("{other:?}"),
    }
}

fn udp6(w: &mut World, src: (&str, u16), dst: (&str, u16)) -> Result<Endpoint, Reason> {
    out(w, flow6(Proto::Udp, src, dst, 0)).map(|(way, ..)| way.outside)
}

/// A packet from IPv4: the way to the host behind it.
fn back(w: &mut World, frame: &[u8]) -> Result<Way, Reason> {
    let flow = parse(frame, VrfId(1), Direction::In);
    let at = w.owner(&flow, Direction::In, frame);
    let (nat, mut bytes) = (&mut w.nats[at], frame.to_vec());
    let hash = nat.hash(&flow, Direction::In);
    let line = nat.prefetch_line(hash);
    let verdict = nat.process(&flow, Direction::In, hash, line, &mut bytes, w.now, |_, _| true);
    assert_eq!(bytes, frame, "headers are another's business");
    match verdict {
        Verdict::Crosses { line, vrf, .. } => {
            assert_eq!(vrf, VrfId(0));
            let way = if flow.kind == Kind::IcmpError { nat.way_of_error() } else { nat.way(line).unwrap() };
            Ok(way)
        }
        Verdict::Drop(reason) => Err(reason),
        other => panic!("{other:?}"),
    }
}

fn ends_empty(w: &mut World) {
    w.wait(7_441 + 130);
    check::empty(w);
}

/// RFC 6146 §3.5.1: one binding for all destinations, found again from outside by anybody, on any number of workers.
#[test]
fn binding_serves_all_destinations_and_comes_back_to_its_host() {
    for workers in [1, 3] {
        let mut w = World::new(vec![nat64()], workers, SMALL);
        let (host, port) = ("2001:db8::1", 1_000);
        let outside = udp6(&mut w, (host, port), ("2001:db8:64::198.51.100.7", 53)).unwrap();
        assert_eq!(outside.ip, addr("192.0.2.1"));
        assert_eq!(udp6(&mut w, (host, port), ("2001:db8:64::198.51.100.8", 99)), Ok(outside));
        let other = udp6(&mut w, ("2001:db8::2", port), ("2001:db8:64::198.51.100.7", 53)).unwrap();
        assert_ne!(other, outside, "another host, another endpoint");
        for remote in ["198.51.100.7:53", "198.51.100.99:7"] {
            let way = back(&mut w, &frames::udp(e(remote), outside)).unwrap();
            assert_eq!((way.inside6, way.inside_port), (six(host), port));
            assert_eq!(way.remote6(), six("2001:db8:64::") | u128::from(e(remote).ip));
            assert_eq!((way.remote, way.outside), (e(remote), outside));
        }
        let rows = w.sessions();
        let inside: HostEndpoint = HostEndpoint { ip: host.parse().unwrap(), port };
        assert_eq!(rows.iter().filter(|row| row.inside == inside).count(), 3);
        assert!(rows.iter().all(|row| row.remote6.is_some()));
        check::invariants(&mut w);
        ends_empty(&mut w);
    }
}

/// RFC 6146 §3.5.1.1: no endpoint twice; an IPv4 subscriber of the same instance shares its pool, never its endpoints.
#[test]
fn both_versions_share_one_pool() {
    let mut w = world(nat64_with(|i| i.pools = vec![pool(0, &["192.0.2.1"], 5_000, 5_063)]));
    let mut seen = std::collections::HashSet::new();
    for n in 0..32 {
        assert!(seen.insert(udp6(&mut w, ("2001:db8::1", 1 + n), ("2001:db8:64::1.1.1.1", 53)).unwrap()));
        assert!(seen.insert(w.udp_out(&format!("10.0.0.1:{}", 1 + n), "1.1.1.1:53").unwrap()));
    }
    let refused = udp6(&mut w, ("2001:db8::1", 99), ("2001:db8:64::1.1.1.1", 53));
    assert_eq!(refused, Err(Reason::NatPortsExhausted));
    check::invariants(&mut w);
    ends_empty(&mut w);
}

/// A subscriber is as many bits of an address as configured: its hosts share its blocks, and its limits.
#[test]
fn hosts_of_a_site_are_one_subscriber() {
    for workers in [1, 3] {
        let it = nat64_with(|i| {
            i.assignment = Assignment::Blocks { size: 64, per_subscriber_max: 1, idle_release_s: 0 };
            i.nat64.as_mut().unwrap().subscriber_len = 56;
            i.limits.sessions_max = 3;
        });
        let mut w = World::new(vec![it], workers, SMALL);
        let to = ("2001:db8:64::198.51.100.7", 53);
        let one = udp6(&mut w, ("2001:db8:0:100::1", 1), to).unwrap();
        let two = udp6(&mut w, ("2001:db8:0:1ff:2::2", 1), to).unwrap();
        let other = udp6(&mut w, ("2001:db8:0:200::1", 1), to).unwrap();
        let block = |endpoint: Endpoint| (endpoint.ip, (endpoint.port - 1_024) / 64);
        assert_eq!(block(one), block(two));
        assert_ne!(block(one), block(other));
        let rows = w.subscribers();
        let of = |text: &str| rows.iter().find(|row| row.inside == text.parse().unwrap()).unwrap();
        assert_eq!((of("2001:db8:0:100::/56").sessions, of("2001:db8:0:200::/56").sessions), (2, 1));
        // Whoever asks for a host is told of its subscriber.
        let found = |inside: &str| {
            let filter = Filter { inside: Some(inside.parse().unwrap()), ..Filter::default() };
            rows.iter().filter(|row| filter.subscriber(row)).count()
        };
        assert_eq!((found("2001:db8:0:1ff:2::2"), found("2001:db8:0:100::/56"), found("::/0")), (1, 1, 2));
        assert_eq!((found("2001:db8:0:300::1"), found("0.0.0.0/0")), (0, 0));
        udp6(&mut w, ("2001:db8:0:142::1", 1), to).unwrap();
        let fourth = udp6(&mut w, ("2001:db8:0:143::1", 1), to);
        assert_eq!(fourth, Err(Reason::NatSessionLimit));
        ends_empty(&mut w);
    }
}

/// RFC 6146 §3.1 (once), RFC 6146 §5.2 (mapping), RFC 6146 §3.5.4, RFC 6052 §3.4: a host that uses two prefixes has one
/// binding, and gets answers from the one it asked by.
#[test]
fn answers_come_from_the_prefix_that_was_asked() {
    let mut w = world(nat64());
    let (a, b) = ("2001:db8:64::8.8.8.8", "64:ff9b::8.8.4.4");
    let inside = HostEndpoint { ip: host("2001:db8::1"), port: 9 };
    let outside = udp6(&mut w, ("2001:db8::1", 9), (a, 53)).unwrap();
    assert_eq!(udp6(&mut w, ("2001:db8::1", 9), (b, 53)), Ok(outside));
    assert_eq!(w.mappings().iter().map(|row| (row.inside, row.sessions)).collect::<Vec<_>>(), [(inside, 2)]);
    let sessions = w.sessions();
    let found = |remote: &str| {
        let filter = Filter { remote: Some(remote.parse().unwrap()), ..Filter::default() };
        sessions.iter().filter(|row| filter.session(row)).count()
    };
    assert_eq!((found("8.8.8.8"), found(a), found("64:ff9b::/96"), found("64:ff9b::8.8.8.9")), (1, 1, 1, 0));
    for (remote, asked) in [("8.8.8.8:53", a), ("8.8.4.4:53", b)] {
        let way = back(&mut w, &frames::udp(e(remote), outside)).unwrap();
        assert_eq!((way.remote6(), way.inside6), (six(asked), six("2001:db8::1")));
    }
    let key = |remote| SessionKey {
        instance: w.policy.instances[0].id,
        proto: Proto::Udp,
        inside,
        remote: e(remote),
    };
    let keys = [key("8.8.8.8:53"), key("8.8.8.8:53"), key("8.8.4.4:53")];
    let now = w.now;
    assert_eq!(w.nats[0].delete(&keys, now), 2);
    w.wait(130);
    check::empty(&mut w);
}

/// RFC 6146 §3.2. The same remote by both: answers could not tell which is meant, so the second is refused while the first lives.
#[test]
fn no_remote_is_talked_to_by_two_prefixes_from_one_port() {
    let mut w = world(nat64());
    let (a, b) = ("2001:db8:64::8.8.8.8", "64:ff9b::8.8.8.8");
    let outside = udp6(&mut w, ("2001:db8::1", 9), (a, 53)).unwrap();
    assert_eq!(udp6(&mut w, ("2001:db8::1", 9), (b, 53)), Err(Reason::Nat64OtherPrefix));
    // From another port, and to another.
    assert!(udp6(&mut w, ("2001:db8::1", 10), (b, 53)).is_ok());
    assert_eq!(udp6(&mut w, ("2001:db8::1", 9), (b, 54)), Ok(outside));
    assert_eq!(back(&mut w, &frames::udp(e("8.8.8.8:53"), outside)).unwrap().remote6(), six(a));
    w.wait(400);
    assert!(udp6(&mut w, ("2001:db8::1", 9), (b, 53)).is_ok());
    w.wait(400);
    check::empty(&mut w);
}

/// Who begins from outside is seen by the prefix that the host used last, or by the first when that is gone.
#[test]
fn who_comes_from_outside_is_seen_by_the_prefix_used_last() {
    let open = |i: &mut Instance| i.filtering = [Filtering::EndpointIndependent; 3];
    let mut w = world(nat64_with(open));
    let outside = udp6(&mut w, ("2001:db8::1", 9), ("2001:db8:64::8.8.8.8", 53)).unwrap();
    let from = |w: &mut World, remote| back(w, &frames::udp(e(remote), outside)).unwrap().remote6();
    assert_eq!(from(&mut w, "9.9.9.9:1"), six("2001:db8:64::9.9.9.9"));
    assert_eq!(udp6(&mut w, ("2001:db8::1", 9), ("64:ff9b::8.8.8.8", 54)), Ok(outside));
    assert_eq!(from(&mut w, "9.9.9.9:2"), six("64:ff9b::9.9.9.9"));
    let prefix =
        |w: &mut World| w.mappings().iter().map(|row| row.via.unwrap().to_string()).collect::<Vec<_>>();
    assert_eq!(prefix(&mut w), ["64:ff9b::/96"]);
    let fewer = nat64_with(|i| {
        open(i);
        i.nat64.as_mut().unwrap().prefixes.truncate(1);
    });
    assert_eq!(w.configure(vec![fewer]), 2);
    assert_eq!(prefix(&mut w), ["2001:db8:64::/96"]);
    assert_eq!(from(&mut w, "9.9.9.9:3"), six("2001:db8:64::9.9.9.9"));
    w.wait(400);
    check::empty(&mut w);
}

/// What a host asked for and nobody uses at a reload lives or ends with the prefix that the host used last, also where that is
/// the well-known one, which stands for fewer addresses than others.
#[test]
fn an_asked_for_binding_ends_with_the_prefix_its_host_used_last() {
    for (kept, left) in [(0, 0), (1, 1)] {
        let mut w = world(nat64());
        let what = PortWish::Map {
            suggested: Endpoint::default(),
            strict: false,
            lifetime_s: 3_600,
            filters: PortFilters::default(),
            ports: 1,
            parity: false,
        };
        let inside = HostEndpoint { ip: host("2001:db8::1"), port: 9 };
        let ask = PortAsk { vrf: VrfId(0), proto: Proto::Udp, inside, what };
        let now = w.now;
        let got = w.nats[0].control(&ask, now).unwrap().unwrap().outside;
        assert_eq!(udp6(&mut w, ("2001:db8::1", 9), ("64:ff9b::8.8.8.8", 53)), Ok(got));
        w.wait(400);
        assert_eq!((w.session_count(), w.mappings().len()), (0, 1));
        let one = nat64_with(|i| {
            let nat64 = i.nat64.as_mut().unwrap();
            nat64.prefixes = vec![nat64.prefixes[kept]];
        });
        assert_eq!(w.configure(vec![one]), 0);
        assert_eq!(w.mappings().len(), left, "prefix {kept} kept");
    }
}

/// RFC 8158 §4.6.2, RFC 8158 §4.6.4.
#[test]
fn log_names_the_remote_as_the_host_and_as_the_internet_knows_it() {
    for (logged, named) in [(Logged::Destinations, true), (Logged::Mappings, false)] {
        let mut w = world(nat64_with(|i| i.logged = logged));
        udp6(&mut w, ("2001:db8::1", 9), ("64:ff9b::8.8.8.8", 53)).unwrap();
        ends_empty(&mut w);
        w.take_events();
        let told = w.events.iter().filter_map(|event| match event {
            NatEvent::Translation { inside, protocol: 17, remote, remote6, .. } => {
                Some((inside, remote, remote6))
            }
            _ => None,
        });
        let told: Vec<_> = told.collect();
        assert_eq!(told.len(), 2, "a beginning and an end");
        for (inside, remote, remote6) in told {
            assert_eq!(inside.to_string(), "[2001:db8::1]:9");
            assert_eq!(*remote, named.then(|| e("8.8.8.8:53")));
            assert_eq!(*remote6, named.then(|| "64:ff9b::8.8.8.8".parse().unwrap()));
        }
    }
}

/// RFC 6146 §3.5, RFC 6052 §3.1: what may not be translated, each with its reason; what is not for a prefix is left
/// alone.
#[test]
fn packets_that_may_not_be_translated_are_named() {
    let mut w = world(nat64());
    let ask = |w: &mut World, src: &str, dst: &str| udp6(w, (src, 1), (dst, 53));
    let cases = [
        ("2001:db8:64::10.0.0.1", "2001:db8:64::8.8.8.8", Reason::Nat64SourceInvalid),
        ("64:ff9b::1", "2001:db8:64::8.8.8.8", Reason::Nat64SourceInvalid),
        ("2001:db8::1", "2001:db8:64::127.0.0.1", Reason::Nat64DestinationInvalid),
        ("2001:db8::1", "2001:db8:64::", Reason::Nat64DestinationInvalid),
        ("2001:db8::1", "2001:db8:64::224.0.0.1", Reason::Nat64DestinationInvalid),
        ("2001:db8::1", "64:ff9b::10.0.0.1", Reason::Nat64DestinationInvalid),
        ("2001:db8::1", "64:ff9b::192.168.1.1", Reason::Nat64DestinationInvalid),
        ("3fff::1", "2001:db8:64::8.8.8.8", Reason::NatSubscriberDenied),
    ];
    for (src, dst, reason) in cases {
        assert_eq!(ask(&mut w, src, dst), Err(reason), "{src} to {dst}");
    }
    // Behind a prefix of the operator's own, private addresses are his business.
    assert!(ask(&mut w, "2001:db8::1", "2001:db8:64::10.9.9.9").is_ok());
    let mut plain = flow6(Proto::Udp, ("2001:db8::1", 1), ("2001:db8::2", 53), 0);
    assert_eq!(w.nats[0].admit(&mut plain), Ok(false));
    assert_eq!(plain.via, 0);
}

/// RFC 6146 §3.4, RFC 4787 REQ-12a: an error comes from routers on the way too, which no instance serves.
#[test]
fn errors_are_admitted_whoever_sent_them() {
    let w = world(nat64());
    let from = |src, kind| Flow { kind, ..flow6(Proto::Icmp, (src, 0), ("2001:db8:64::8.8.8.8", 0), 2) };
    assert_eq!(w.nats[0].admit(&mut from("3fff::1", Kind::IcmpError)), Ok(true));
    let forged = w.nats[0].admit(&mut from("2001:db8:64::1", Kind::IcmpError));
    assert_eq!(forged, Err(Reason::Nat64SourceInvalid));
}

/// RFC 6052 §3.1: the well-known prefix stands for no private address, whichever side begins; another prefix does.
#[test]
fn well_known_prefix_never_stands_for_private_senders() {
    let prefixes = |kept: fn(&Nat64Prefix) -> bool| {
        nat64_with(|i| {
            i.filtering = [Filtering::EndpointIndependent; 3];
            i.nat64.as_mut().unwrap().prefixes.retain(kept);
        })
    };
    let stranger = e("10.1.1.1:5");
    // Where there is another, it is seen by that one, also when the host used the well-known one.
    let mut w = world(prefixes(|_| true));
    let known = udp6(&mut w, ("2001:db8::1", 9), ("64:ff9b::8.8.8.8", 53)).unwrap();
    assert_eq!(back(&mut w, &frames::udp(stranger, known)).unwrap().remote6(), six("2001:db8:64::10.1.1.1"));
    assert_eq!(back(&mut w, &frames::udp(e("9.9.9.9:5"), known)).unwrap().remote6(), six("64:ff9b::9.9.9.9"));
    let mut w = world(prefixes(|entry| entry.prefix.is_well_known()));
    let known = udp6(&mut w, ("2001:db8::1", 9), ("64:ff9b::8.8.8.8", 53)).unwrap();
    assert_eq!(back(&mut w, &frames::udp(stranger, known)), Err(Reason::Nat64NonGlobal));
    assert!(back(&mut w, &frames::udp(e("9.9.9.9:5"), known)).is_ok());
    let error = |about: Vec<u8>| frames::icmp_error(3, 1, addr("9.9.9.9"), known.ip, &about, 99);
    let about = back(&mut w, &error(frames::udp(known, stranger)));
    assert_eq!(about, Err(Reason::NatIcmpNoSession));
    assert_eq!(w.session_count(), 2);
    ends_empty(&mut w);
}

/// RFC 6146 §3.4: without its gateway ESP is as foreign to a NAT64 as any other protocol.
#[test]
fn esp_to_a_nat64_is_foreign() {
    for (it, reason) in [(nat64(), Reason::Nat64ProtocolUnsupported), (instance(), Reason::NatNoMapping)] {
        let mut w = world(it);
        let esp = frames::raw(50, addr("198.51.100.7"), addr("192.0.2.1"));
        assert_eq!(back(&mut w, &esp), Err(reason));
    }
}

/// RFC 6146 §3.5.2.2: TCP opens by SYN, is found from outside, and ends by the timers of its state.
#[test]
fn tcp_follows_its_states() {
    let mut w = world(nat64());
    let (host, to) = (("2001:db8::1", 1_000), ("2001:db8:64::198.51.100.7", 443));
    let segment = |bits| flow6(Proto::Tcp, host, to, bits);
    assert_eq!(out(&mut w, segment(ACK)).err(), Some(Reason::NatTcpNoSession));
    let (way, created, _) = out(&mut w, segment(SYN)).unwrap();
    assert!(created);
    back(&mut w, &frames::tcp(e("198.51.100.7:443"), way.outside, SYN | ACK)).unwrap();
    out(&mut w, segment(ACK)).unwrap();
    w.wait(7_300);
    assert_eq!(w.session_count(), 1, "an established connection lives for two hours and four minutes");
    out(&mut w, segment(FIN | ACK)).unwrap();
    back(&mut w, &frames::tcp(e("198.51.100.7:443"), way.outside, FIN | ACK)).unwrap();
    w.wait(245);
    check::empty(&mut w);
}

/// RFC 6146 §3.5.2.2: a SYN from IPv4 without a binding waits, and meets the host's own SYN.
#[test]
fn stored_syn_meets_the_hosts_own() {
    let it = nat64_with(|i| i.filtering = [Filtering::AddressAndPortDependent; 3]);
    let mut w = world(it);
    let host = ("2001:db8::1", 1_000);
    let (way, ..) = out(&mut w, flow6(Proto::Tcp, host, ("2001:db8:64::198.51.100.1", 1), SYN)).unwrap();
    let peer = frames::tcp(e("198.51.100.7:443"), way.outside, SYN);
    let flow = parse(&peer, VrfId(1), Direction::In);
    let hash = w.nats[0].hash(&flow, Direction::In);
    let now = w.now;
    let held = w.nats[0].process(&flow, Direction::In, hash, LOOK_UP, &mut peer.clone(), now, |_, _| true);
    assert_eq!(held, Verdict::Held);
    out(&mut w, flow6(Proto::Tcp, host, ("2001:db8:64::198.51.100.7", 443), SYN)).unwrap();
    assert_eq!(w.nats[0].take_absorbed(), 1);
    w.wait(7);
    assert_eq!(w.overdue().len(), 0);
}

/// Echo goes by its identifier, whichever version asks (RFC 6146 §3.5.3).
#[test]
fn echo_goes_by_its_identifier() {
    let mut w = world(nat64());
    let ping = flow6(Proto::Icmp, ("2001:db8::1", 77), ("2001:db8:64::198.51.100.7", 0), 128);
    let (way, ..) = out(&mut w, ping).unwrap();
    let way = back(&mut w, &frames::echo_reply(addr("198.51.100.7"), way.outside)).unwrap();
    assert_eq!((way.inside6, way.inside_port), (six("2001:db8::1"), 77));
    let reply = flow6(Proto::Icmp, ("2001:db8::1", 78), ("2001:db8:64::198.51.100.7", 0), 129);
    assert_eq!(out(&mut w, reply).err(), Some(Reason::NatNoMapping));
}

/// RFC 6146 §3.6: an error from IPv4 finds the host by the packet it carries, also when only the binding is left.
#[test]
fn icmp_errors_find_their_host() {
    let mut w = world(nat64());
    let outside = udp6(&mut w, ("2001:db8::1", 9), ("2001:db8:64::198.51.100.7", 53)).unwrap();
    for remote in ["198.51.100.7:53", "198.51.100.50:99"] {
        let about = frames::udp(outside, e(remote));
        let error = frames::icmp_error(3, 1, addr("203.0.113.254"), outside.ip, &about, 99);
        let way = back(&mut w, &error).unwrap();
        assert_eq!((way.inside6, way.inside_port), (six("2001:db8::1"), 9));
        assert_eq!(way.remote6(), six("2001:db8:64::") | u128::from(e(remote).ip));
    }
    assert_eq!(w.session_count(), 1, "errors make nothing");
}

/// RFC 6146 §3.8: a host reaches another by its outside endpoint.
#[test]
fn hosts_reach_each_other_by_their_outside_endpoints() {
    let mut w = world(nat64());
    let bob = udp6(&mut w, ("2001:db8::b", 2), ("2001:db8:64::8.8.8.8", 53)).unwrap();
    let call = flow6(Proto::Udp, ("2001:db8::a", 1), ("2001:db8:64::192.0.2.1", bob.port), 0);
    let (way, created, hairpin) = out(&mut w, call).unwrap();
    assert!(created && hairpin);
    let got = back(&mut w, &frames::udp(way.outside, bob)).unwrap();
    assert_eq!(got.inside6, six("2001:db8::b"));
    assert_eq!(got.remote6(), six("2001:db8:64::192.0.2.1"));
}

/// RFC 6146 §3.1: static bindings let IPv4 in to an IPv6 server, with and without sessions of its own.
#[test]
fn static_binding_lets_ipv4_in() {
    for workers in [1, 3] {
        let rule = StaticRule::Forward {
            proto: Proto::Tcp,
            outside: addr("192.0.2.1"),
            outside_port: 80,
            count: 2,
            inside: Inside::V6(six("2001:db8::80")),
            inside_port: 8_080,
        };
        let with = nat64_with(|i| i.statics = vec![rule]);
        let mut w = World::new(vec![with.clone()], workers, SMALL);
        let way = back(&mut w, &frames::tcp(e("198.51.100.7:999"), e("192.0.2.1:81"), SYN)).unwrap();
        assert_eq!((way.inside6, way.inside_port), (six("2001:db8::80"), 8_081));
        let answer =
            flow6(Proto::Tcp, ("2001:db8::80", 8_081), ("2001:db8:64::198.51.100.7", 999), SYN | ACK);
        assert!(!out(&mut w, answer).unwrap().1, "the same session");
        check::invariants(&mut w);
        assert_eq!(w.configure(vec![nat64()]), 1);
        assert!(w.mappings().is_empty());
        assert_eq!(w.configure(vec![with]), 0);
        assert_eq!(w.mappings().len(), 2);
    }
}

/// A session is deleted by name.
#[test]
fn deletion_by_name_takes_one() {
    let mut w = world(nat64());
    udp6(&mut w, ("2001:db8::1", 9), ("64:ff9b::8.8.8.8", 53)).unwrap();
    let inside = HostEndpoint { ip: host("2001:db8::1"), port: 9 };
    let key =
        SessionKey { instance: w.policy.instances[0].id, proto: Proto::Udp, inside, remote: e("8.8.8.8:53") };
    let now = w.now;
    assert_eq!(w.nats[0].delete(&[key, key], now), 1);
    w.wait(130);
    check::empty(&mut w);
}

/// A reload ends what it no longer covers and nothing else.
#[test]
fn reload_ends_what_it_does_not_cover() {
    let mut w = world(nat64());
    udp6(&mut w, ("2001:db8::1", 9), ("64:ff9b::8.8.8.8", 54)).unwrap();
    let kept = udp6(&mut w, ("2001:db8::1", 9), ("2001:db8:64::8.8.8.8", 53)).unwrap();
    let fewer = nat64_with(|i| i.nat64.as_mut().unwrap().prefixes.truncate(1));
    assert_eq!(w.configure(vec![fewer]), 1);
    assert_eq!(udp6(&mut w, ("2001:db8::1", 9), ("2001:db8:64::8.8.8.8", 53)), Ok(kept));
    let others =
        nat64_with(|i| i.nat64.as_mut().unwrap().subscribers = vec!["2001:db8:1::/48".parse().unwrap()]);
    assert_eq!(w.configure(vec![others]), 1);
    w.wait(130);
    check::empty(&mut w);
    assert_eq!(w.configure(vec![instance()]), 0);
}

/// RFC 7422 by sites: the ports of a site are a function of its prefix, and back.
#[test]
fn deterministic_ports_are_a_function_of_the_site() {
    let mut w = world(nat64_with(|i| {
        i.subscribers.clear();
        let nat64 = i.nat64.as_mut().unwrap();
        (nat64.subscribers, nat64.subscriber_len) = (vec!["2001:db8:0:1000::/60".parse().unwrap()], 64);
        i.assignment = Assignment::Deterministic { ports_per_subscriber: 1_000, overflow: None };
    }));
    let function = carrack_nat::Deterministic::of(&w.policy.instances[0]).unwrap();
    for site in 0..16 {
        let at = format!("2001:db8:0:100{site:x}::77");
        let outside = udp6(&mut w, (&at, 5), ("2001:db8:64::8.8.8.8", 53)).unwrap();
        let owner = function.inverse(outside.ip, outside.port);
        assert_eq!(owner, Some(Inside::V6(six(&format!("2001:db8:0:100{site:x}::")))));
    }
    check::invariants(&mut w);
    ends_empty(&mut w);
}

/// The table of hosts is bounded: full is a verdict, and room comes back.
#[test]
fn full_host_table_refuses_and_recovers() {
    let capacity = carrack_nat::policy::Capacity { hosts: 64, ..SMALL };
    let mut w = World::new(vec![nat64()], 1, capacity);
    for n in 0..64 {
        udp6(&mut w, (&format!("2001:db8::{n:x}"), 1), ("2001:db8:64::8.8.8.8", 53)).unwrap();
    }
    let refused = udp6(&mut w, ("2001:db8::ffff", 1), ("2001:db8:64::8.8.8.8", 53));
    assert_eq!(refused, Err(Reason::NatHostTableFull));
    w.wait(430);
    check::empty(&mut w);
    assert!(udp6(&mut w, ("2001:db8::ffff", 1), ("2001:db8:64::8.8.8.8", 53)).is_ok());
    assert_eq!(w.nats[0].worker(), WorkerId(0));
}

/// As NAT44 does: a forward rule leads to a server that is nobody's subscriber; it answers, and calls nobody itself.
#[test]
fn server_behind_a_forward_rule_answers_though_it_is_no_subscriber() {
    for workers in [1, 3] {
        let server = "2001:dead::80";
        let rule = StaticRule::Forward {
            proto: Proto::Tcp,
            outside: addr("192.0.2.1"),
            outside_port: 80,
            count: 1,
            inside: Inside::V6(six(server)),
            inside_port: 8_080,
        };
        let mut w = World::new(vec![nat64_with(|i| i.statics = vec![rule])], workers, SMALL);
        back(&mut w, &frames::tcp(e("198.51.100.7:999"), e("192.0.2.1:80"), SYN)).unwrap();
        let to = |port| ("2001:db8:64::198.51.100.7", port);
        let answer = flow6(Proto::Tcp, (server, 8_080), to(999), SYN | ACK);
        assert!(!out(&mut w, answer).unwrap().1, "the same session");
        let own = flow6(Proto::Tcp, (server, 8_081), to(80), SYN);
        assert_eq!(out(&mut w, own).unwrap_err(), Reason::NatSubscriberDenied);
        check::invariants(&mut w);
    }
}
