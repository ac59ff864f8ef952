//! Stateless translation beside the NATs, in the same workers: explicit mappings and prefix, both ways, hairpinned, in
//! fragments, errors. Whatever it does, no session comes of it.

use std::net::IpAddr;

use carrack_base::{Prefix6, Range4, Reason, VrfId};
use carrack_pipeline::snapshot::{EamHosts, SiitInstance};
use carrack_wire::icmpv4::Icmpv4View;
use carrack_wire::icmpv6::Icmpv6View;
use carrack_wire::ipv4::Ipv4View;
use carrack_wire::ipv6::Ipv6View;
use carrack_wire::{PacketBuilder, UdpView};
use carrack_xlat::eam::{EamTable, Entry};
use carrack_xlat::{Hosts, NatPrefix, Siit};

use super::behaviour::REMOTES;
use super::packets::headers;
use super::world::OUTSIDE;
use super::{FLAGS, Simulation};
use crate::random::Random;
use crate::reference::stateless::{
    Carried, ERRORS_TO_FOUR, ERRORS_TO_SIX, ErrorKind, Stateless, carried, v4, v6,
};

/// 2001:db8:b::, the link of the servers.
pub(super) const SERVERS6: u128 = 0x2001_0db8_000b << 80;
/// 198.18.0.0, where their IPv4 addresses are.
const SERVERS: u32 = 0xc612_0000;
/// IPv4 addresses that servers have: by mappings of a host, of a block, of one within it, of one behind a shorter prefix,
/// and by the prefix alone.
const KNOWN: [u32; 7] = [
    SERVERS + 1,
    SERVERS + 0x104,
    SERVERS + 0x10f,
    SERVERS + 0x109,
    SERVERS + 0x305,
    SERVERS + 0x201,
    SERVERS + 0x2fe,
];
/// The servers whose address is by the prefix alone.
const BY_PREFIX: &str = "198.18.2.0/24";
/// Translation prefixes of every length, no NAT64's.
const PREFIXES: [&str; 6] = [
    "2001:db8:65::/96",
    "2001:db8:6501::/64",
    "2001:db8:6502::/56",
    "2001:db8:6503::/48",
    "2001:dbb:6500::/40",
    "2001:dbc::/32",
];
/// Behind the servers' addresses, and none that stands for an IPv4 address.
const ROUTER6: u128 = SERVERS6 | 0x77;

/// A translator by chance.
pub(super) fn draw(random: &mut Random) -> Stateless {
    let mappings = [
        ("198.18.0.1/32", "2001:db8:b::21/128"),
        ("198.18.1.0/28", "2001:db8:b::1:0/124"),
        ("198.18.1.9/32", "2001:db8:b::99/128"),
        ("198.18.3.0/24", "2001:db8:b:0:3::/80"),
    ];
    let first = SERVERS + 0xff00;
    Stateless {
        prefix: PREFIXES[random.below(PREFIXES.len())].parse().expect("a prefix"),
        mappings: mappings
            .map(|(four, six)| (four.parse().expect("a prefix"), six.parse().expect("a prefix")))
            .into(),
        routers: Range4 { first, last: first + random.below(3) as u32 },
    }
}

/// The instance of this translator, and the servers that have their addresses by the prefix alone.
pub(super) fn instance(known: &Stateless) -> (SiitInstance, Vec<Prefix6>) {
    let entries: Vec<Entry> = known.mappings.iter().map(|&(v4, v6)| Entry { v4, v6 }).collect();
    let translator = Siit {
        prefixes: vec![NatPrefix::new(known.prefix).expect("one that holds IPv4 addresses")],
        eam: EamTable::new(&entries).expect("mappings that do not overlap"),
        hosts: Hosts::new(vec![BY_PREFIX.parse().expect("a prefix")]),
        icmp_sources: vec![known.routers],
        reveals_source: known.routers.first != known.routers.last,
        ..Siit::default()
    };
    let by_prefix = KNOWN.iter().filter(|ip| **ip >> 8 == (SERVERS + 0x200) >> 8);
    let hosts = by_prefix.map(|ip| Prefix6::of(known.by_prefix(*ip), 128)).collect();
    let (name, vrf, eam_hosts) = ("siit".into(), VrfId(0), EamHosts::Ipv6);
    (SiitInstance { name, vrf, eam_hosts, translator }, hosts)
}

impl Simulation {
    /// A packet or a few that stay without a trace.
    pub(super) fn stateless(&mut self) -> Result<(), String> {
        let before = self.world.sessions();
        let done = match self.chance.below(12) {
            0..4 => self.client_sends(),
            4..7 => self.server_sends(),
            7 => self.between_servers(),
            8 => self.error_to_server(),
            9 => self.error_from_server(),
            10 => self.pieces_by_translator(),
            _ => self.refused_by_translator(),
        };
        done.map_err(|error| format!("stateless by {}: {error}", self.world.stateless.prefix))?;
        if self.world.sessions() > before {
            return Err("a session came of stateless translation".into());
        }
        Ok(())
    }

    fn client(&mut self) -> u32 {
        REMOTES + self.chance.below(4) as u32
    }

    fn server(&mut self) -> u32 {
        KNOWN[self.chance.below(KNOWN.len())]
    }

    /// Packets in by workers of chance, and what left: all, or the reasons why nothing did.
    fn translate(&mut self, port: u16, frames: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, Vec<Reason>> {
        let (mut left, mut drops) = (vec![], vec![]);
        for frame in frames {
            let worker = self.chance.below(self.world.network.workers.len());
            let (sent, dropped) = self.world.send(worker, port, frame);
            left.extend(sent.into_iter().map(|sent| sent.frame[14..].to_vec()));
            drops.extend(dropped);
        }
        if drops.is_empty() { Ok(left) } else { Err(drops) }
    }

    /// One packet, and what it became, which must be this.
    fn becomes(&mut self, port: u16, frame: &[u8], src: IpAddr, dst: IpAddr) -> Result<Vec<Vec<u8>>, String> {
        let expected = carried(&[&frame[14..]])?.between(src, dst, 1);
        let left = self.translate(port, &[frame.to_vec()]).map_err(|drops| format!("{drops:?}"))?;
        let parts: Vec<&[u8]> = left.iter().map(Vec::as_slice).collect();
        same(&carried(&parts)?, &expected)?;
        self.summary.stateless += 1;
        Ok(left)
    }

    /// Any packet between two ends, with `data` behind its header.
    fn any<'a>(&mut self, src: IpAddr, dst: IpAddr, port: u16, data: &'a [u8]) -> PacketBuilder<'a> {
        let (hops, class) = (2 + self.chance.below(60) as u8, self.chance.bits() as u8);
        let packet = headers(src, dst, port).ttl(hops).tos(class).payload(data);
        let [sport, dport, sequence] = [0; 3].map(|_| self.chance.bits() as u16);
        match self.chance.below(5) {
            0 => packet.tcp(sport, dport, FLAGS[self.chance.below(FLAGS.len())]),
            1 if src.is_ipv4() => packet.udp_without_checksum(sport, dport),
            1 | 2 => packet.udp(sport, dport),
            3 => packet.echo_request(sport, sequence),
            _ => packet.echo_reply(sport, sequence),
        }
    }

    fn data(&mut self, most: usize) -> Vec<u8> {
        let len = self.chance.below(most);
        (0..len).map(|_| self.chance.bits() as u8).collect()
    }

    /// RFC 7915 §4.1: from IPv4; with DF clear what is too long for every IPv6 path is cut.
    fn client_sends(&mut self) -> Result<(), String> {
        let (client, server, data) = (self.client(), self.server(), self.data(1_420));
        let frame = self.any(v4(client), v4(server), OUTSIDE, &data);
        let keeps = self.chance.one_in(2);
        let frame = if keeps { frame.dont_fragment() } else { frame }.build();
        let known = &self.world.stateless;
        let (src, dst) = (v6(known.by_prefix(client)), v6(known.six(server)));
        let left = self.becomes(OUTSIDE, &frame, src, dst)?;
        let len = frame.len() - 14 + 20;
        let fits = left.len() == 1 && left[0].len() == len && (keeps || len <= 1_280);
        let is_cut = !keeps && len > 1_280 && left.iter().all(|piece| piece.len() <= 1_280);
        if fits || is_cut { Ok(()) } else { Err(format!("{len} octets, DF {keeps}: {} pieces", left.len())) }
    }

    /// RFC 7915 §5.1: from IPv6; DF is set where the packet is longer than what every IPv6 path takes.
    fn server_sends(&mut self) -> Result<(), String> {
        let (client, server, data) = (self.client(), self.server(), self.data(1_420));
        let known = &self.world.stateless;
        let (src, dst, port) = (v6(known.six(server)), v6(known.by_prefix(client)), self.world.servers());
        let frame = self.any(src, dst, port, &data).build();
        let left = self.becomes(port, &frame, v4(server), v4(client))?;
        let [packet] = &left[..] else { return Err(format!("{} packets", left.len())) };
        let (len, keeps) = (packet.len(), packet[6] & 0x40 != 0);
        if keeps == (len > 1_260) { Ok(()) } else { Err(format!("{len} octets with DF {keeps}")) }
    }

    /// RFC 7757 §4.2.2: each server knows the other by the prefix; one hop.
    fn between_servers(&mut self) -> Result<(), String> {
        let (from, to, data) = (self.server(), self.server(), self.data(300));
        let known = &self.world.stateless;
        // By the prefix alone its address is the other's own one, and not the translator's business.
        if from == to || known.six(to) == known.by_prefix(to) {
            return Ok(());
        }
        let (src, dst, port) = (v6(known.six(from)), v6(known.by_prefix(to)), self.world.servers());
        let ends = (v6(known.by_prefix(from)), v6(known.six(to)));
        let frame = self.any(src, dst, port, &data).build();
        self.becomes(port, &frame, ends.0, ends.1).map(|_| ())
    }

    /// RFC 7915 §4.2, §4.3: an IPv4 router about what a server sent.
    fn error_to_server(&mut self) -> Result<(), String> {
        let (client, server, data) = (self.client(), self.server(), self.data(100));
        let known = &self.world.stateless;
        let (src, dst, port) = (v6(known.six(server)), v6(known.by_prefix(client)), self.world.servers());
        let router = (REMOTES + 99, v6(known.by_prefix(REMOTES + 99)));
        let frame = self.any(src, dst, port, &data).build();
        let left = self.becomes(port, &frame, v4(server), v4(client))?;
        let [about] = &left[..] else { return Err("no packet to complain of".into()) };
        let (kind, expected) = ERRORS_TO_SIX[self.chance.below(ERRORS_TO_SIX.len())];
        let error = error(kind, v4(router.0), v4(server), OUTSIDE, about);
        let left = self.translate(OUTSIDE, &[error]).map_err(|drops| format!("{kind:?}: {drops:?}"))?;
        let [packet] = &left[..] else { return Err(format!("{} errors", left.len())) };
        let (ends, found, quoted) = read_error(packet).ok_or("no error")?;
        if ends != (router.1, src) || found != expected {
            return Err(format!("{kind:?} became {found:?}, not {expected:?}, of {ends:?}"));
        }
        self.summary.stateless_errors += 1;
        same_start(&quoted, &carried(&[&frame[14..]])?)
    }

    /// RFC 7915 §5.2, §5.3, RFC 6791 §3.2: a server, or a router that has no IPv4 address, about what a client sent.
    fn error_from_server(&mut self) -> Result<(), String> {
        let (client, server, data) = (self.client(), self.server(), self.data(100));
        let known = self.world.stateless.clone();
        let own = known.six(server);
        let frame = self.any(v4(client), v4(server), OUTSIDE, &data).build();
        let left = self.becomes(OUTSIDE, &frame, v6(known.by_prefix(client)), v6(own))?;
        let [about] = &left[..] else { return Err("no packet to complain of".into()) };
        let (kind, expected) = ERRORS_TO_FOUR[self.chance.below(ERRORS_TO_FOUR.len())];
        let (by_router, port) = (self.chance.one_in(2), self.world.servers());
        let sender = if by_router { ROUTER6 } else { own };
        let error = error(kind, v6(sender), v6(known.by_prefix(client)), port, about);
        let left = self.translate(port, &[error]).map_err(|drops| format!("{kind:?}: {drops:?}"))?;
        let [packet] = &left[..] else { return Err(format!("{} errors", left.len())) };
        let (ends, found, quoted) = read_error(packet).ok_or("no error")?;
        let is_sender = match ends.0 {
            IpAddr::V4(ip) if by_router => known.routers.contains(ip.into()),
            ip => ip == v4(server),
        };
        if !is_sender || ends.1 != v4(client) || found != expected {
            return Err(format!("{kind:?} became {found:?}, not {expected:?}, of {ends:?}"));
        }
        self.summary.stateless_errors += 1;
        same_start(&quoted, &carried(&[&frame[14..]])?)
    }

    /// RFC 7915 §4.1, §5.1: fragments, each for itself, in any order; together they are right.
    fn pieces_by_translator(&mut self) -> Result<(), String> {
        let (client, server) = (self.client(), self.server());
        let known = self.world.stateless.clone();
        let (own, far) = (v6(known.six(server)), v6(known.by_prefix(client)));
        let inward = self.chance.one_in(2);
        let (src, dst, port) = match inward {
            true => (v4(client), v4(server), OUTSIDE),
            false => (own, far, self.world.servers()),
        };
        let whole = headers(src, dst, port).udp(1_000, 53).payload(&[0x5a; 600]).build();
        let (datagram, id) = (&whole[whole.len() - 608..], self.chance.bits() as u16);
        let piece = |from: usize, to: usize, more: bool| {
            let frame = headers(src, dst, port);
            let frame = match src {
                IpAddr::V4(_) => frame.identification(id).fragment(from as u16, more),
                IpAddr::V6(_) => frame.fragment6(from as u16, more, id.into()),
            };
            frame.protocol(17).payload(&datagram[from..to]).build()
        };
        let mut pieces = [piece(0, 200, true), piece(200, 400, true), piece(400, 608, false)];
        let turn = self.chance.below(3);
        pieces.rotate_left(turn);
        let left = self.translate(port, &pieces).map_err(|drops| format!("pieces: {drops:?}"))?;
        let parts: Vec<&[u8]> = left.iter().map(Vec::as_slice).collect();
        let (src, dst) = if inward { (far, own) } else { (v4(server), v4(client)) };
        same(&carried(&parts)?, &carried(&[&whole[14..]])?.between(src, dst, 1))?;
        self.summary.stateless += 1;
        is_right_in_pieces(&parts)
    }

    /// What stands for nothing on the other side, or is nothing there.
    fn refused_by_translator(&mut self) -> Result<(), String> {
        let (client, server) = (self.client(), self.server());
        let known = self.world.stateless.clone();
        let (far, own, servers) = (v6(known.by_prefix(client)), v6(known.six(server)), self.world.servers());
        let nobody = v6(known.by_prefix(0x7f00_0001));
        let timestamp =
            headers(v4(client), v4(server), OUTSIDE).icmp(13, 0, [0; 4]).payload(&[0; 12]).build();
        // RFC 6052 §5.1: a host that speaks for IPv4 hosts, or for a server.
        let forged = match self.chance.one_in(2) {
            true => known.by_prefix(REMOTES + 77),
            false => known.by_prefix(KNOWN[0]),
        };
        let (port, frame, reason) = match self.chance.below(5) {
            4 => (servers, headers(v6(forged), far, servers).udp(1, 2).build(), Reason::SiitSourceInvalid),
            0 => (servers, headers(v6(ROUTER6), far, servers).udp(1, 2).build(), Reason::SiitSourceUnmapped),
            1 => (servers, headers(nobody, far, servers).udp(1, 2).build(), Reason::SiitSourceInvalid),
            2 => (servers, headers(own, nobody, servers).udp(1, 2).build(), Reason::SiitDestinationUnmapped),
            _ => (OUTSIDE, timestamp, Reason::XlatIcmpUntranslatable),
        };
        match self.translate(port, &[frame]) {
            Err(drops) if drops == [reason] => Ok(()),
            other => Err(format!("not {reason}, but {other:?}")),
        }
    }
}

fn same(found: &Carried, expected: &Carried) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("{found:?}\nin place of\n{expected:?}")) }
}

/// A quoted packet is that one as far as it goes: it was sent with as many hops, and one has been used when it was quoted.
fn same_start(quoted: &Carried, sent: &Carried) -> Result<(), String> {
    let is_start = |a: &[u8], b: &[u8]| !a.is_empty() && a[..a.len().min(8)] == b[..a.len().min(8)];
    let ends = |it: &Carried| (it.src, it.dst, it.protocol);
    if ends(quoted) == ends(sent) && is_start(&quoted.l4, &sent.l4) {
        Ok(())
    } else {
        Err(format!("quoted {quoted:?}\nof\n{sent:?}"))
    }
}

/// An error about a packet, with all of it.
fn error(kind: ErrorKind, src: IpAddr, dst: IpAddr, port: u16, about: &[u8]) -> Vec<u8> {
    let (kind, code, rest) = kind;
    headers(src, dst, port).icmp(kind, code, rest.to_be_bytes()).payload(about).build()
}

/// Source and destination of an error, its type, code and what follows, the packet it quotes.
fn read_error(packet: &[u8]) -> Option<((IpAddr, IpAddr), ErrorKind, Carried)> {
    let outer = carried(&[packet]).ok()?;
    let ends = (outer.src, outer.dst);
    let (message, quoted) = if outer.src.is_ipv4() {
        let message = Ipv4View::parse(packet).ok()?.payload();
        (message, Icmpv4View::parse(message).ok()?.embedded().ok()?.packet())
    } else {
        let message = Ipv6View::parse(packet).ok()?.payload();
        (message, Icmpv6View::parse(message).ok()?.embedded().ok()?.packet())
    };
    let [kind, code, _, _, a, b, c, d] = *message.first_chunk()?;
    // RFC 4884 §4: in some an octet is the length of what is quoted, where an extension follows.
    let rest = match (outer.src.is_ipv4(), kind, code) {
        (true, 3, 4) => u32::from_be_bytes([0, 0, c, d]),
        (true, 3 | 11, _) | (false, 1 | 3, _) => 0,
        _ => u32::from_be_bytes([a, b, c, d]),
    };
    Some((ends, (kind, code, rest), carried(&[quoted]).ok()?))
}

/// The UDP checksum of what pieces make together.
fn is_right_in_pieces(parts: &[&[u8]]) -> Result<(), String> {
    let whole = carried(parts)?;
    let first = parts.iter().find_map(|part| {
        let at = if part[0] >> 4 == 4 { 20 } else { 48 };
        part.get(at..).filter(|l4| l4.starts_with(&1_000_u16.to_be_bytes())).or(None)
    });
    let mut l4 = whole.l4.clone();
    let checksum = first.and_then(|first| first.get(6..8)).ok_or("no first piece")?;
    l4[6..8].copy_from_slice(checksum);
    let view = UdpView::parse(&l4).map_err(|error| format!("{error:?}"))?;
    let is_right = match (whole.src, whole.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => view.checksum_ok(src.into(), dst.into()),
        (IpAddr::V6(src), IpAddr::V6(dst)) => view.checksum_ok_v6(src.to_bits(), dst.to_bits()),
        _ => false,
    };
    if is_right { Ok(()) } else { Err("a wrong checksum in pieces".into()) }
}
