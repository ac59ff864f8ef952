//! Frames in, and the small parser that stands in for the pipeline's.

use carrack_base::{Proto, VrfId};
use carrack_nat::row::Endpoint;
use carrack_nat::{Direction, Flow, Kind};
use carrack_wire::icmpv4::{Class, Icmpv4View, class_of};
use carrack_wire::ipv4::Ipv4View;
use carrack_wire::{MacAddr, PacketBuilder};

/// Where the IPv4 header starts.
pub const L3: usize = 14;
const PAYLOAD: &[u8] = b"odd payload length.";

pub fn packet(src: u32, dst: u32) -> PacketBuilder<'static> {
    PacketBuilder::new()
        .ethernet(MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2]))
        .ipv4(src, dst)
        .payload(PAYLOAD)
}

pub fn udp(src: Endpoint, dst: Endpoint) -> Vec<u8> {
    packet(src.ip, dst.ip).udp(src.port, dst.port).build()
}

pub fn udp_without_checksum(src: Endpoint, dst: Endpoint) -> Vec<u8> {
    packet(src.ip, dst.ip).udp_without_checksum(src.port, dst.port).build()
}

pub fn tcp(src: Endpoint, dst: Endpoint, flags: u8) -> Vec<u8> {
    packet(src.ip, dst.ip).tcp(src.port, dst.port, flags).build()
}

/// An echo request; the source's port is the identifier.
pub fn echo(src: Endpoint, dst: u32) -> Vec<u8> {
    packet(src.ip, dst).echo_request(src.port, 1).build()
}

/// An echo reply; the destination's port is the identifier.
pub fn echo_reply(src: u32, dst: Endpoint) -> Vec<u8> {
    packet(src, dst.ip).echo_reply(dst.port, 1).build()
}

/// A packet of any IP protocol.
pub fn raw(protocol: u8, src: u32, dst: u32) -> Vec<u8> {
    packet(src, dst).protocol(protocol).build()
}

/// An ICMP error of `kind`/`code` about (the first `quoted` octets of) a frame's packet.
pub fn icmp_error(kind: u8, code: u8, src: u32, dst: u32, about: &[u8], quoted: usize) -> Vec<u8> {
    let inner = &about[L3..];
    let inner = &inner[..quoted.min(inner.len())];
    packet(src, dst).icmp(kind, code, [0; 4]).payload(inner).build()
}

/// Source and destination with ports (or identifiers) of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outer {
    pub source: Endpoint,
    pub destination: Endpoint,
}

pub fn outer(frame: &[u8]) -> Outer {
    let ip = Ipv4View::parse(&frame[L3..]).unwrap();
    let (mut sport, mut dport) = (0, 0);
    let l4 = ip.payload();
    let word = |at: usize| u16::from_be_bytes([l4[at], l4[at + 1]]);
    match Proto::from_ip(ip.protocol()) {
        Proto::Tcp | Proto::Udp => (sport, dport) = (word(0), word(2)),
        Proto::Icmp if class_of(l4[0]) != Class::Error => (sport, dport) = (word(4), word(4)),
        Proto::Icmp | Proto::Other => {}
    }
    Outer {
        source: Endpoint { ip: ip.src(), port: sport },
        destination: Endpoint { ip: ip.dst(), port: dport },
    }
}

/// What the pipeline's parse stage would say of a whole packet.
pub fn parse(frame: &[u8], vrf: VrfId, direction: Direction) -> Flow {
    let ip = Ipv4View::parse(&frame[L3..]).unwrap();
    let mut flow = Flow {
        src: ip.src(),
        dst: ip.dst(),
        vrf,
        l3: L3 as u16,
        l4: (L3 + ip.header_len()) as u16,
        proto: Proto::from_ip(ip.protocol()),
        ip_proto: ip.protocol(),
        ..Flow::default()
    };
    let l4 = ip.payload();
    fill_ports(&mut flow, l4, direction);
    match flow.proto {
        Proto::Tcp => flow.bits = l4[13],
        Proto::Icmp => {
            flow.bits = l4[0];
            if class_of(l4[0]) == Class::Error {
                (flow.sport, flow.dport, flow.kind) = (0, 0, Kind::IcmpError);
            }
        }
        Proto::Udp | Proto::Other => {}
    }
    flow
}

fn fill_ports(flow: &mut Flow, l4: &[u8], direction: Direction) {
    let word = |at: usize| l4.get(at..at + 2).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]));
    (flow.sport, flow.dport) = match (flow.proto, direction) {
        (Proto::Tcp | Proto::Udp, _) => (word(0), word(2)),
        (Proto::Icmp, Direction::Out) => (word(4), 0),
        (Proto::Icmp, Direction::In) => (0, word(4)),
        (Proto::Other, Direction::Out) => (0, u16::from(flow.ip_proto)),
        (Proto::Other, Direction::In) => (u16::from(flow.ip_proto), 0),
    };
}

/// The packet inside an ICMP error, turned round: whose session it is tells the worker.
pub fn parse_quoted(flow: &Flow, frame: &[u8]) -> Option<Flow> {
    let ip = Ipv4View::parse(&frame[L3..]).ok()?;
    let inner = Icmpv4View::parse(ip.payload()).ok()?.embedded().ok()?;
    let mut quoted = Flow {
        src: inner.dst(),
        dst: inner.src(),
        vrf: flow.vrf,
        proto: Proto::from_ip(inner.protocol()),
        ip_proto: inner.protocol(),
        ..Flow::default()
    };
    let l4 = inner.payload();
    let word = |at: usize| l4.get(at..at + 2).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]));
    (quoted.sport, quoted.dport) = match quoted.proto {
        Proto::Tcp | Proto::Udp => (word(2), word(0)),
        // The identifier is the inside endpoint's whichever way it goes.
        Proto::Icmp => (word(4), word(4)),
        Proto::Other => (0, 0),
    };
    Some(quoted)
}
