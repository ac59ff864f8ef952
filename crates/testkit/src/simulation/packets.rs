//! What stations send, and what nobody should.

use carrack_base::{Proto, Reason};
use carrack_nat::row::{Endpoint, HostEndpoint};
use carrack_wire::{MacAddr, PacketBuilder};
use std::net::IpAddr;

use super::behaviour::{HOST_COUNT, LINKS6, REMOTES};
use super::world::{self, INSIDE, OUTSIDE};
use super::{Simulation, behaviour};
use crate::network::mac_of;

/// GRE: a protocol without ports.
pub(super) const GRE: u8 = 47;

/// The MAC address of a station of either version.
fn station(ip: IpAddr) -> MacAddr {
    match ip {
        IpAddr::V4(ip) => mac_of(ip.into()),
        IpAddr::V6(ip) => mac_of(ip.to_bits() as u32),
    }
}

/// A frame by a port, up to the IP header.
pub(super) fn headers(src: IpAddr, dst: IpAddr, port: u16) -> PacketBuilder<'static> {
    let frame = PacketBuilder::new().ethernet(station(src), world::port_mac(port));
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => frame.ipv4(src, dst),
        (IpAddr::V6(src), IpAddr::V6(dst)) => frame.ipv6(src, dst),
        _ => panic!("a packet of two versions"),
    }
}

pub(super) fn packet(proto: Proto, src: HostEndpoint, dst: HostEndpoint, flags: u8, port: u16) -> Vec<u8> {
    let builder = headers(src.ip, dst.ip, port).payload(b"some words to carry");
    match proto {
        Proto::Tcp => builder.tcp(src.port, dst.port, flags),
        Proto::Udp => builder.udp(src.port, dst.port),
        Proto::Icmp if port != OUTSIDE => builder.echo_request(src.port, 1),
        Proto::Icmp if flags == 0 => builder.echo_request(dst.port, 1),
        Proto::Icmp => builder.echo_reply(dst.port, 1),
        Proto::Other => builder.protocol(GRE),
    }
    .build()
}

impl Simulation {
    /// Octets that are no packet: dropped and counted, whatever they are.
    pub(super) fn garbage(&mut self) -> Result<(), String> {
        let port = [INSIDE[0], OUTSIDE][self.random.below(2)];
        let mut frame: Vec<u8> = (0..self.random.below(120)).map(|_| self.random.bits() as u8).collect();
        let six = self.random.one_in(3);
        if frame.len() >= 14 && !self.random.one_in(3) {
            frame[..6].copy_from_slice(&world::port_mac(port).0);
            frame[6..12].copy_from_slice(&[2, 9, 9, 9, 9, 9]);
            frame[12..14].copy_from_slice(if six { &[0x86, 0xdd] } else { &[8, 0] });
        }
        if six && frame.len() >= 54 {
            // From nobody, in whatever version.
            frame[14 + 8..14 + 24].fill(0);
        } else if frame.len() >= 34 && self.random.one_in(2) {
            // A header that is right but for its checksum.
            frame[14] = 0x45;
            let total = (frame.len() - 14) as u16;
            frame[16..18].copy_from_slice(&total.to_be_bytes());
        }
        let (sent, drops) = self.world.send(0, port, &frame);
        if sent.is_empty() && drops.len() == 1 { Ok(()) } else { Err(format!("garbage: {sent:?} {drops:?}")) }
    }

    /// RFC 6146 §3.5, RFC 6052 §3.1: what may not be translated makes nothing, whatever there is.
    pub(super) fn misaddressed(&mut self) -> Result<(), String> {
        let side = self.side();
        let policy = self.references[side].policy().clone();
        let Some(nat64) = &policy.nat64 else { return Ok(()) };
        let Some(via) = self.random.pick(&nat64.prefixes).map(|entry| entry.via) else { return Ok(()) };
        let remote = |ip| super::seen_as(&policy, via, Endpoint { ip, port: 53 });
        let host = HostEndpoint { ip: behaviour::host(self.random.below(HOST_COUNT), true), port: 1_000 };
        let stranger =
            HostEndpoint { ip: std::net::Ipv6Addr::from(LINKS6 | 7 << 64 | 9).into(), port: 1_000 };
        let served = nat64.subscribers.iter().any(|prefix| {
            let IpAddr::V6(ip) = host.ip else { return false };
            prefix.contains(ip.into())
        });
        let (src, dst, reason) = match self.random.below(3) {
            0 => (remote(REMOTES), remote(REMOTES + 1), Reason::Nat64SourceInvalid),
            1 => (host, remote(0x7f00_0001), Reason::Nat64DestinationInvalid),
            _ if nat64.subscriber_len == 128 => (stranger, remote(REMOTES), Reason::NatSubscriberDenied),
            _ if served => (host, remote(0xe000_0001), Reason::Nat64DestinationInvalid),
            _ => (host, remote(REMOTES), Reason::NatSubscriberDenied),
        };
        let frame = packet(Proto::Udp, src, dst, 0, INSIDE[side]);
        let before = self.world.sessions();
        let (passed, drops) = self.send(INSIDE[side], &frame)?;
        self.tell(&format!("side {side} misaddressed {src} > {dst}: {drops:?}"));
        if passed.is_some() || drops != [reason] || self.world.sessions() != before {
            return Err(format!("{src} to {dst} is {reason}, but: {passed:?}, {drops:?}"));
        }
        Ok(())
    }
}
