//! Requests as octets, an engine that is a few lines.

mod update;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use carrack_base::{InstanceId, PortId, Prefix4, Reason};
use carrack_nat::row::Endpoint;
use carrack_pipeline::snapshot::{Interface, Side, Vlan};

use super::*;
use crate::config::{Allowed, Served};
use crate::table::Nonce;

const HOST: &str = "10.0.0.7";
const OTHER: &str = "10.0.0.8";
const ROUTER: &str = "10.0.0.1";
const TCP: u8 = 6;

fn interface(id: u16, side: Side, own: &str, subnet: &str) -> Interface {
    Interface {
        id: IfIndex(id),
        name: format!("if{id}"),
        port: PortId(0),
        vlan: Vlan::None,
        mac: MacAddr([2, 0, 0, 0, 0, id as u8]),
        vrf: VrfId(0),
        side,
        up: true,
        mtu: 1_500,
        addresses: vec![(own.parse::<Ipv4Addr>().unwrap().into(), subnet.parse().unwrap())],
        ipv6: None,
        urpf: false,
        icmp_errors: Default::default(),
    }
}

fn config() -> Config {
    let served = Served {
        id: InstanceId(0),
        vrf: VrfId(0),
        subscribers: vec!["10.0.0.0/8".parse::<Prefix4>().unwrap()],
        subscribers6: vec![],
        subscriber_len: 128,
        prefixes: vec![],
        nat_pmp: true,
        third_party_from: vec!["10.0.0.9".parse::<Prefix>().unwrap()],
        allowed: Allowed { mappings_max: 3, ports: vec![(1_000, 65_535)], ..Allowed::default() },
        rules: vec![("10.0.9.0/24".parse::<Prefix>().unwrap(), Allowed { any: false, ..Allowed::default() })],
    };
    Config {
        interfaces: vec![interface(0, Side::Inside, ROUTER, "10.0.0.0/8")],
        vrfs: vec!["default".into()],
        served: vec![served],
        mappings_max: 5,
    }
}

/// A server and an engine that gives port after port.
struct World {
    server: Server,
    now: Now,
    ports: BTreeMap<(IpAddr, u8, u16), Endpoint>,
    next_port: u16,
    refusal: Option<PortRefusal>,
    /// The pool's only address.
    pool: u32,
    silent: bool,
}

impl World {
    fn new() -> Self {
        Self::with(config(), None)
    }

    fn with(config: Config, saved: Option<Saved>) -> Self {
        let now = Now::from_s(1_000);
        Self {
            server: Server::new(config, now, 1_700_000_000, saved),
            now,
            ports: BTreeMap::new(),
            next_port: 40_000,
            refusal: None,
            pool: 0xc000_0201,
            silent: false,
        }
    }

    fn engine(&mut self, ask: &PortAsk) -> Result<PortGrant, PortRefusal> {
        if let Some(refusal) = self.refusal {
            return Err(refusal);
        }
        let key = (ask.inside.ip, ask.proto as u8, ask.inside.port);
        let grant =
            |outside, ports, lifetime_s| PortGrant { instance: InstanceId(0), outside, ports, lifetime_s };
        match ask.what {
            PortWish::Map { suggested, strict, lifetime_s, ports, .. } => {
                let wished = if suggested.port == 0 { None } else { Some(suggested) };
                let here = |w: &Endpoint| w.ip == 0 || w.ip == self.pool;
                let free = wished
                    .filter(here)
                    .map(|w| Endpoint { ip: self.pool, ..w })
                    .filter(|w| !self.ports.values().any(|used| used.port == w.port));
                let known = self.ports.get(&key).copied();
                if strict && known.or(free) != wished {
                    return Err(PortRefusal::NotThatOne);
                }
                self.next_port += ports;
                let fresh = Endpoint { ip: self.pool, port: self.next_port - ports };
                let outside = known.or(free).unwrap_or(fresh);
                self.ports.insert(key, outside);
                Ok(grant(outside, ports, lifetime_s))
            }
            PortWish::Peer { suggested, lifetime_s, .. } => {
                let outside = Endpoint { ip: self.pool, port: 55 };
                if suggested.port != 0 && suggested != outside {
                    return Err(PortRefusal::NotThatOne);
                }
                Ok(grant(outside, 1, lifetime_s))
            }
            PortWish::EndMap { .. } | PortWish::EndPeer { .. } => {
                self.ports.remove(&key);
                Ok(grant(Endpoint::default(), 1, 0))
            }
            PortWish::Address => Ok(grant(Endpoint { ip: 0xc000_0201, port: 0 }, 1, 0)),
        }
    }

    /// Lets everything that is due happen; answers to clients, without announcements.
    fn run(&mut self) -> Vec<Vec<u8>> {
        let mut answers = Vec::new();
        loop {
            self.server.handle_timeout(self.now);
            let mut busy = false;
            while let Some((request, ask)) = self.server.poll_ask() {
                busy = true;
                if !self.silent {
                    let answer = self.engine(&ask);
                    self.server.handle_answer(self.now, request, answer);
                }
            }
            while let Some((_, frame)) = self.server.poll_transmit() {
                busy = true;
                if frame[0] & 1 == 0 {
                    answers.push(payload(&frame));
                }
            }
            if !busy {
                return answers;
            }
        }
    }

    fn wait(&mut self, seconds: u64) -> Vec<Vec<u8>> {
        self.now = self.now.plus_ns(seconds * 1_000_000_000);
        self.run()
    }

    fn send_from(&mut self, client: &str, to: &str, octets: &[u8]) -> Vec<Vec<u8>> {
        let from = interface(9, Side::Inside, client, "10.0.0.0/8");
        let ends = (client.parse().unwrap(), to.parse().unwrap());
        let mut frame = frames::write(&from, MacAddr([2, 0, 0, 0, 0, 0]), ends, 5_351, 64, octets).unwrap();
        // What `write` sends from its own port comes from a client's here; the checksum covers it.
        frame.truncate(14 + 28 + octets.len());
        assert!(self.server.handle_packet(self.now, IfIndex(0), &frame));
        self.run()
    }

    #[track_caller]
    fn ask(&mut self, request: &Ask) -> Answer {
        let mut answers = self.send_from(&request.client, ROUTER, &request.octets());
        assert_eq!(answers.len(), 1, "one answer");
        Answer(answers.remove(0))
    }

    #[track_caller]
    fn pmp(&mut self, octets: &[u8]) -> Vec<u8> {
        let mut answers = self.send_from(HOST, ROUTER, octets);
        assert_eq!(answers.len(), 1, "one answer");
        answers.remove(0)
    }
}

fn payload(frame: &[u8]) -> Vec<u8> {
    let length = usize::from(u16::from_be_bytes([frame[38], frame[39]]));
    frame[42..34 + length].to_vec()
}

/// A request, written by hand and not by the code under test.
#[derive(Clone)]
struct Ask {
    client: String,
    claimed: String,
    version: u8,
    opcode: u8,
    lifetime_s: u32,
    nonce: Nonce,
    protocol: u8,
    inside_port: u16,
    suggested: (u16, &'static str),
    peer: Option<(&'static str, u16)>,
    options: Vec<u8>,
}

fn map(port: u16) -> Ask {
    Ask {
        client: HOST.into(),
        claimed: HOST.into(),
        version: 2,
        opcode: 1,
        lifetime_s: 600,
        nonce: [7; 12],
        protocol: TCP,
        inside_port: port,
        suggested: (0, "0.0.0.0"),
        peer: None,
        options: vec![],
    }
}

fn peer(port: u16, remote: (&'static str, u16)) -> Ask {
    Ask { opcode: 2, peer: Some(remote), ..map(port) }
}

fn mapped(ip: &str) -> [u8; 16] {
    ip.parse::<Ipv4Addr>().unwrap().to_ipv6_mapped().octets()
}

fn option(code: u8, data: &[u8]) -> Vec<u8> {
    let mut out = vec![code, 0, 0, data.len() as u8];
    out.extend_from_slice(data);
    out.resize(out.len().next_multiple_of(4), 0);
    out
}

fn filter(len: u8, port: u16, ip: &str) -> Vec<u8> {
    option(3, &[&[0, len][..], &port.to_be_bytes(), &mapped(ip)].concat())
}

impl Ask {
    fn octets(&self) -> Vec<u8> {
        let mut out = vec![self.version, self.opcode, 0, 0];
        out.extend_from_slice(&self.lifetime_s.to_be_bytes());
        out.extend_from_slice(&mapped(&self.claimed));
        if self.opcode == 1 || self.opcode == 2 {
            out.extend_from_slice(&self.nonce);
            out.extend_from_slice(&[self.protocol, 0, 0, 0]);
            out.extend_from_slice(&self.inside_port.to_be_bytes());
            out.extend_from_slice(&self.suggested.0.to_be_bytes());
            out.extend_from_slice(&mapped(self.suggested.1));
        }
        if let Some((ip, port)) = self.peer {
            out.extend_from_slice(&port.to_be_bytes());
            out.extend_from_slice(&[0, 0]);
            out.extend_from_slice(&mapped(ip));
        }
        out.extend_from_slice(&self.options);
        out
    }

    fn with(self, options: &[Vec<u8>]) -> Self {
        Self { options: options.concat(), ..self }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Answer(Vec<u8>);

impl Answer {
    fn be32(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.0[at..at + 4].try_into().unwrap())
    }

    fn code(&self) -> u8 {
        assert_eq!((self.0[0], self.0[1] & 0x80), (2, 0x80), "a version 2 answer");
        self.0[3]
    }

    fn lifetime_s(&self) -> u32 {
        self.be32(4)
    }

    fn epoch_s(&self) -> u32 {
        self.be32(8)
    }

    fn outside_port(&self) -> u16 {
        u16::from_be_bytes([self.0[42], self.0[43]])
    }
}

/// RFC 6887 §5, §7.2, §11.1: what a granted MAP looks like, octet by octet.
#[test]
fn a_map_is_answered_with_its_outside_endpoint() {
    let mut w = World::new();
    w.wait(5);
    let got = w.ask(&map(8_080));
    assert_eq!(got.0.len(), 60);
    assert_eq!(&got.0[..4], [2, 0x81, 0, 0]);
    assert_eq!((got.lifetime_s(), got.epoch_s()), (600, 5));
    assert_eq!(&got.0[12..24], [0; 12]);
    assert_eq!(&got.0[24..36], [7; 12]);
    assert_eq!(&got.0[36..42], [TCP, 0, 0, 0, 0x1f, 0x90]);
    assert_eq!(got.outside_port(), 40_000);
    assert_eq!(&got.0[44..60], mapped("192.0.2.1"));
    // RFC 6887 §8.2: asked again, answered again; prolonged.
    w.wait(100);
    assert_eq!(w.ask(&map(8_080)).outside_port(), 40_000);
    assert_eq!(w.server.mappings(w.now).count(), 1);
    assert_eq!(w.server.mappings(w.now).next().unwrap().expires_s, 600);
}

/// RFC 6887 §7.3, §7.4, §9: each result code that there is, by the request that earns it, with its lifetime.
#[test]
fn every_result_code_has_its_request() {
    let mut seen = std::collections::BTreeSet::new();
    let mut expect = |w: &mut World, ask: &Ask, code: u8, lifetime_s: u32| {
        let got = w.ask(ask);
        assert_eq!((got.code(), got.lifetime_s()), (code, lifetime_s), "{:?}", got.0);
        if code != 0 {
            let octets = ask.octets();
            assert_eq!(got.0.get(24..octets.len()), octets.get(24..), "an error is the request again");
        }
        seen.insert(code);
    };
    let w = &mut World::new();
    expect(w, &map(8_080), 0, 600);
    expect(w, &Ask { version: 3, ..map(8_080) }, 1, 1_800);
    // Another nonce, for as long as the mapping lasts; a port and a subscriber that policy excludes; a stranger.
    expect(w, &Ask { nonce: [8; 12], ..map(8_080) }, 2, 600);
    expect(w, &map(80), 2, 1_800);
    let away = |ip: &str| Ask { client: ip.into(), claimed: ip.into(), ..map(8_080) };
    expect(w, &away("10.0.9.1"), 2, 1_800);
    expect(w, &away("172.16.0.1"), 2, 1_800);
    expect(w, &Ask { protocol: 0, ..map(8_080) }, 3, 1_800);
    let own = option(1, &mapped(HOST));
    let trusted = Ask { client: "10.0.0.9".into(), claimed: "10.0.0.9".into(), ..map(8_080) };
    expect(w, &trusted.clone().with(&[option(1, &mapped("10.0.0.9"))]), 3, 1_800);
    expect(w, &Ask { opcode: 9, ..map(0) }, 4, 1_800);
    expect(w, &map(8_080).with(&[option(1, &mapped(OTHER))]), 5, 1_800);
    expect(w, &map(8_080).with(&[option(77, &[])]), 5, 1_800);
    expect(w, &map(8_080).with(&[vec![3, 0, 0, 99]]), 6, 1_800);
    expect(w, &map(8_080).with(&[option(2, &[])]), 6, 1_800);
    expect(w, &map(8_080).with(&[filter(95, 0, "203.0.113.0")]), 6, 1_800);
    expect(w, &peer(8_080, ("203.0.113.1", 443)).with(&[filter(128, 0, "203.0.113.1")]), 6, 1_800);
    expect(w, &map(8_080).with(&[own.clone(), own]), 6, 1_800);
    expect(w, &Ask { protocol: 132, ..map(8_080) }, 9, 1_800);
    expect(w, &map(0), 9, 1_800);
    let insists = Ask { suggested: (40_000, "192.0.2.1"), ..map(9_090) }.with(&[option(2, &[])]);
    expect(w, &insists, 11, 30);
    expect(w, &Ask { claimed: OTHER.into(), ..map(8_080) }, 12, 1_800);
    let many: Vec<_> = (1..10).map(|n| filter(128, n, "203.0.113.1")).collect();
    expect(w, &map(8_080).with(&many), 13, 1_800);
    expect(w, &map(8_081), 0, 600);
    expect(w, &map(8_082), 0, 600);
    expect(w, &map(8_083), 10, 30);
    w.refusal = Some(PortRefusal::Short(Reason::NatPoolExhausted));
    let other = |port| Ask { client: OTHER.into(), claimed: OTHER.into(), ..map(port) };
    expect(w, &other(5_000), 8, 30);
    w.refusal = None;
    w.silent = true;
    assert!(w.send_from(OTHER, ROUTER, &other(5_000).octets()).is_empty());
    let late = Answer(w.wait(4).remove(0));
    assert_eq!((late.code(), late.lifetime_s()), (7, 30));
    seen.insert(7);
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), (0..=13).collect::<Vec<_>>());
}

/// RFC 6887 §7, §8.2: what is not answered at all.
#[test]
fn what_is_no_request_is_met_with_silence() {
    let mut w = World::new();
    let good = map(8_080).octets();
    let mut answer = good.clone();
    answer[1] |= 0x80;
    for octets in [&[][..], &[2], &answer, &good[..20], &[0, 128]] {
        assert!(w.send_from(HOST, ROUTER, octets).is_empty(), "{octets:?}");
    }
    // To an address that is not the router's own inside one.
    assert!(w.send_from(HOST, "192.0.2.1", &good).is_empty());
    assert_eq!(w.server.counters().ignored, 6);
    // Too long and crooked ones are answered, cut and padded.
    let long = w.send_from(HOST, ROUTER, &[good.clone(), vec![0; 1_200]].concat()).remove(0);
    assert_eq!((long[3], long.len()), (3, 1_100));
    let crooked = w.send_from(HOST, ROUTER, &good[..59]).remove(0);
    assert_eq!((crooked[3], crooked.len()), (3, 60));
}

/// RFC 6887 §14.1.
#[test]
fn an_announce_tells_the_epoch_and_changes_nothing() {
    let mut w = World::new();
    w.wait(77);
    let got = w.ask(&Ask { opcode: 0, ..map(0) });
    assert_eq!((got.0.len(), got.code(), got.epoch_s()), (24, 0, 77));
    assert_eq!(w.server.mappings(w.now).count(), 0);
}

/// RFC 6887 §15: lifetimes are kept within bounds, and end.
#[test]
fn lifetimes_are_bounded_and_end() {
    let mut w = World::new();
    assert_eq!(w.ask(&Ask { lifetime_s: 1, ..map(8_080) }).lifetime_s(), 120);
    assert_eq!(w.ask(&Ask { lifetime_s: u32::MAX, ..map(8_081) }).lifetime_s(), 86_400);
    w.wait(119);
    assert_eq!(w.server.mappings(w.now).count(), 2);
    w.wait(1);
    assert_eq!(w.server.mappings(w.now).count(), 1);
    // RFC 6887 §15.1: deleted, by its own nonce; what is not there is deleted too.
    let end = Ask { lifetime_s: 0, ..map(8_081) };
    assert_eq!(w.ask(&Ask { nonce: [8; 12], ..end.clone() }).code(), 2);
    for _ in 0..2 {
        let got = w.ask(&end);
        assert_eq!((got.code(), got.lifetime_s(), got.outside_port()), (0, 0, 0));
    }
    assert_eq!(w.server.mappings(w.now).count(), 0);
}

/// RFC 6887 §13.1.
#[test]
fn a_trusted_host_asks_for_another() {
    let mut w = World::new();
    let trusted = Ask { client: "10.0.0.9".into(), claimed: "10.0.0.9".into(), ..map(8_080) };
    let got = w.ask(&trusted.with(&[option(1, &mapped(HOST))]));
    assert_eq!(got.code(), 0);
    assert_eq!(got.0[60..], option(1, &mapped(HOST)), "the option comes back");
    assert_eq!(w.server.mappings(w.now).next().unwrap().key.inside, HOST.parse::<IpAddr>().unwrap());
}

/// RFC 6887 §13.3: filters add up, and one of no length clears them.
#[test]
fn filters_add_up_until_they_are_cleared() {
    let mut w = World::new();
    let count = |w: &World| w.server.mappings(w.now).next().unwrap().filters.as_slice().len();
    assert_eq!(w.ask(&map(8_080).with(&[filter(120, 0, "203.0.113.0")])).code(), 0);
    assert_eq!(w.ask(&map(8_080).with(&[filter(128, 53, "198.51.100.1")])).code(), 0);
    assert_eq!(count(&w), 2);
    assert_eq!(w.ask(&map(8_080)).code(), 0);
    assert_eq!(count(&w), 2, "without the option they stay");
    let anew = [filter(0, 0, "0.0.0.0"), filter(128, 80, "198.51.100.2")];
    assert_eq!(w.ask(&map(8_080).with(&anew)).code(), 0);
    assert_eq!(count(&w), 1);
}

/// RFC 7753 §4, §4.2, §4.4.
#[test]
fn a_port_set_counts_each_port_and_is_refreshed_as_one() {
    let mut w = World::new();
    let set =
        |size: u16, first: u16| option(130, &[&size.to_be_bytes()[..], &first.to_be_bytes(), &[0]].concat());
    let got = w.ask(&map(50_000).with(&[set(100, 50_000)]));
    assert_eq!(got.code(), 0);
    assert_eq!(got.0[60..], set(3, 50_000), "as many as the quota leaves");
    assert_eq!(w.ask(&map(60_000)).code(), 10);
    // RFC 7753 §4.4.1: overlapping is refreshing.
    let again = w.ask(&map(50_001).with(&[set(100, 50_001)]));
    assert_eq!((again.0[40..42].to_vec(), again.code()), (50_000u16.to_be_bytes().to_vec(), 0));
    assert_eq!(w.ask(&Ask { lifetime_s: 0, ..map(50_000) }.with(&[set(3, 50_000)])).code(), 0);
    // One port is no set, and none is no request.
    assert_eq!(w.ask(&map(50_000).with(&[set(1, 50_000)])).0.len(), 60);
    assert_eq!(w.ask(&map(50_005).with(&[set(0, 50_005)])).code(), 6);
    assert_eq!(w.ask(&map(50_005).with(&[set(2, 50_005), set(2, 50_005)])).code(), 6);
    assert_eq!(w.ask(&map(50_005).with(&[set(2, 50_005), option(2, &[])])).code(), 6);
}

/// RFC 6887 §12.
#[test]
fn a_peer_is_for_its_peer() {
    let mut w = World::new();
    let got = w.ask(&peer(5_000, ("203.0.113.1", 443)));
    assert_eq!((got.0.len(), got.code(), got.outside_port()), (80, 0, 55));
    assert_eq!(&got.0[60..80], &peer(5_000, ("203.0.113.1", 443)).octets()[60..80]);
    assert_eq!(w.ask(&Ask { nonce: [9; 12], ..peer(5_000, ("203.0.113.1", 443)) }).code(), 2);
    assert_eq!(w.ask(&peer(5_000, ("203.0.113.1", 0))).code(), 3);
    assert_eq!(w.ask(&Ask { lifetime_s: 0, ..peer(5_000, ("203.0.113.1", 443)) }).code(), 0);
    assert_eq!(w.server.mappings(w.now).count(), 0);
}

/// RFC 6886 §3.1, §3.2, §3.3, §3.4, §3.5.
#[test]
fn nat_pmp_gets_the_same_mappings() {
    let mut w = World::new();
    w.wait(9);
    assert_eq!(w.pmp(&[0, 0]), [0, 128, 0, 0, 0, 0, 0, 9, 192, 0, 2, 1]);
    let map = |op: u8, inside: u16, outside: u16, lifetime: u32| {
        let ports = [inside.to_be_bytes(), outside.to_be_bytes()].concat();
        [&[0, op, 0, 0][..], &ports, &lifetime.to_be_bytes()].concat()
    };
    let got = w.pmp(&map(2, 8_080, 8_080, 7_200));
    assert_eq!(got, [&[0, 130, 0, 0, 0, 0, 0, 9][..], &map(0, 8_080, 8_080, 7_200)[4..]].concat());
    assert_eq!(w.pmp(&map(1, 8_080, 8_080, 60))[8..12], map(0, 8_080, 40_001, 0)[4..8], "UDP apart");
    assert_eq!(w.pmp(&map(2, 80, 80, 60))[..4], [0, 130, 0, 2], "policy");
    assert_eq!(w.pmp(&[0, 3, 0, 0])[..4], [0, 131, 0, 5]);
    assert_eq!(w.pmp(&map(2, 8_080, 0, 0))[8..], map(0, 8_080, 0, 0)[4..]);
    assert_eq!(w.pmp(&map(1, 0, 0, 0))[..4], [0, 129, 0, 0], "all of UDP");
    assert_eq!(w.server.mappings(w.now).count(), 0);
    // What was asked for with a nonce cannot be changed without one.
    assert_eq!(w.ask(&self::map(8_080)).code(), 0);
    assert_eq!(w.pmp(&map(2, 8_080, 0, 0))[..4], [0, 130, 0, 2]);
    assert_eq!(w.pmp(&map(2, 0, 0, 0))[..4], [0, 130, 0, 2]);
}

#[test]
fn a_flood_of_one_request_asks_the_engine_once() {
    let mut w = World::new();
    w.silent = true;
    for _ in 0..1_000 {
        assert!(w.send_from(HOST, ROUTER, &map(8_080).octets()).is_empty());
    }
    assert_eq!(w.server.counters().discarded, 999);
    assert_eq!(w.wait(4).len(), 1);
}

/// RFC 6887 §8.5, §14.1.3: the epoch goes on with the mappings, and begins anew when any is lost.
#[test]
fn a_restart_keeps_epoch_and_mappings_or_says_so() {
    let mut w = World::new();
    w.wait(500);
    let before = w.ask(&map(8_080));
    w.ask(&peer(5_000, ("203.0.113.1", 443)));
    let saved = w.server.save(true);
    assert_eq!(Saved::of_text(&saved.to_text()), Ok(saved.clone()));
    // Ten seconds later, as the calendar says.
    let after = |saved: Saved, unix_s: u64| {
        let mut w = World::new();
        w.server = Server::new(config(), w.now, unix_s, Some(saved));
        w
    };
    let mut again = after(saved.clone(), 1_700_000_510);
    again.run();
    assert_eq!(again.server.epoch_s(again.now), 510);
    assert_eq!(again.server.counters().restored, 2);
    let got = again.ask(&map(8_080));
    assert_eq!((got.outside_port(), got.epoch_s()), (before.outside_port(), 510));
    // The engine has given the port away meanwhile.
    let mut lossy = after(saved.clone(), 1_700_000_510);
    lossy.refusal = Some(PortRefusal::NotThatOne);
    lossy.run();
    assert_eq!(lossy.server.mappings(lossy.now).count(), 0);
    assert_eq!((lossy.server.epoch_s(lossy.now), lossy.server.counters().lost), (0, 2));
    // A run that did not end in good order may have granted more than was written.
    let crashed = after(Saved { complete: false, ..saved.clone() }, 1_700_000_510);
    assert_eq!(crashed.server.epoch_s(crashed.now), 0);
    assert_eq!(crashed.server.mappings(crashed.now).count(), 2);
    // What has ended meanwhile is no loss.
    let mut late = after(saved, 1_700_090_000);
    late.run();
    assert_eq!((late.server.mappings(late.now).count(), late.server.counters().lost), (0, 0));
}

/// RFC 6887 §14.1.3: ten announcements, first a quarter of a second apart, each then after twice the time.
#[test]
fn a_start_is_announced_ten_times_at_growing_distances() {
    let mut server = Server::new(config(), Now::from_s(1), 0, None);
    let mut times = Vec::new();
    let mut now = Now::from_s(1);
    while now.s() < 400 {
        server.handle_timeout(now);
        while let Some((_, frame)) = server.poll_transmit() {
            assert_eq!(frame[..6], [0x01, 0, 0x5e, 0, 0, 1]);
            assert_eq!(frame[30..34], [224, 0, 0, 1]);
            assert_eq!(frame[34..38], [0x14, 0xe7, 0x14, 0xe6], "from 5351 to 5350");
            times.push(now.ms() - 1_000);
        }
        now = now.plus_ns(50_000_000);
    }
    assert_eq!(times, [0, 250, 750, 1_750, 3_750, 7_750, 15_750, 31_750, 63_750, 127_750]);
}

/// RFC 6887 §14.1.3: a client believes what comes from the address that it asks.
#[test]
fn a_start_is_announced_from_every_address_that_may_be_asked() {
    let mut config = config();
    let on = &mut config.interfaces[0];
    on.addresses.push(("10.1.0.1".parse::<Ipv4Addr>().unwrap().into(), "10.1.0.0/16".parse().unwrap()));
    let (link_local, global) = (0xfe80 << 112 | 1, 0x2001_0db8 << 96 | 1);
    let addresses = vec![(global, "2001:db8::/64".parse().unwrap())];
    on.ipv6 = Some(carrack_pipeline::snapshot::Ipv6Interface { link_local, addresses });
    let mut server = Server::new(config, Now::from_s(1), 0, None);
    server.handle_timeout(Now::from_s(1));
    let frames: Vec<Vec<u8>> =
        std::iter::from_fn(|| server.poll_transmit()).map(|(_, frame)| frame).collect();
    let sources: Vec<&[u8]> =
        frames.iter().map(|f| if f[12] == 8 { &f[26..30] } else { &f[22..38] }).collect();
    let (six_link, six) = (link_local.to_be_bytes(), global.to_be_bytes());
    assert_eq!(sources, [&[10, 0, 0, 1][..], &[10, 1, 0, 1], &six_link, &six]);
    assert!(
        frames[2..]
            .iter()
            .all(|f| f[..6] == [0x33, 0x33, 0, 0, 0, 1] && f[54..58] == [0x14, 0xe7, 0x14, 0xe6])
    );
}

#[test]
fn a_reload_ends_what_is_no_longer_allowed_for_anybody() {
    let mut w = World::new();
    w.wait(50);
    w.ask(&map(8_080));
    let narrow = Served { subscribers: vec!["10.1.0.0/16".parse().unwrap()], ..config().served.remove(0) };
    w.server.configure(Config { served: vec![narrow], ..config() }, w.now);
    w.run();
    assert_eq!((w.server.mappings(w.now).count(), w.ports.len()), (0, 0));
    assert_eq!(w.server.epoch_s(w.now), 0, "clients are told");
}

#[test]
fn clearing_ends_a_hosts_mappings() {
    let mut w = World::new();
    w.ask(&map(8_080));
    assert_eq!(w.server.clear(w.now, Some("10.0.0.8".parse::<Prefix>().unwrap())), 0);
    assert_eq!(w.server.clear(w.now, Some("10.0.0.0/24".parse::<Prefix>().unwrap())), 1);
    w.run();
    assert!(w.ports.is_empty());
}

proptest::proptest! {
    /// Whatever comes, no panic, and no more than one answer, no longer than a message may be.
    #[test]
    fn any_octets_get_one_bounded_answer_at_most(
        head in 0..4u8,
        opcode in 0..4u8,
        octets in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200),
    ) {
        let mut w = World::new();
        let mut request = map(8_080).octets();
        request.truncate(24);
        (request[0], request[1]) = (head, opcode);
        for octets in [&[request, octets.clone()].concat(), &octets] {
            let answers = w.send_from(HOST, ROUTER, octets);
            proptest::prop_assert!(answers.len() <= 1);
            proptest::prop_assert!(answers.iter().all(|answer| answer.len() <= crate::MESSAGE_BYTES_MAX));
        }
    }

    /// A state file is read as it was written; any other text is refused or read, never a panic.
    #[test]
    fn any_text_is_a_state_or_none(text in "\\PC{0,200}") {
        let _ = Saved::of_text(&text);
        let _ = Saved::of_text(&format!("carrack-port-control 1\nepoch 5 complete\n{text}\n"));
    }
}
