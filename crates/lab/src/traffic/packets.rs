//! The packets of the laboratories' own generator: written fast, checked when they come back.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use carrack_wire::Ipv6View;
use carrack_wire::ethernet::MacAddr;
use carrack_wire::ndp::NdpMessage;

use super::TrafficArgs;

/// The server all packets go to, and its port.
pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
pub(crate) const SERVER_PORT: u16 = 12_345;
/// IPv6 subscribers reach the server by this prefix of 96 bits.
pub(crate) const PREFIX6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x64, 0, 0, 0, 0, 0);
/// The generator's packets leave to this station: the inside interface's address is set to it.
pub(crate) const ROUTER_MAC: [u8; 6] = [0x00, 0x01, 0x02, 0x03, 0x04, 0x01];

const ETHERNET: usize = 14;
const TAG: usize = 4;
const UDP: usize = 8;
/// The session's number and the packet's, in the payload.
const NUMBERS: usize = 8;
/// Frame check sequence, which software does not see.
const FCS: u16 = 4;

/// Where an IP header of either version has what is written and read here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    ethertype: u16,
    /// Bytes of the header, which has neither options nor extensions.
    header: usize,
    protocol_at: usize,
    length_at: usize,
    source_at: usize,
    destination_at: usize,
    /// Bytes of an address; all of a lab's differ in the last four only.
    address: usize,
    checksum_at: Option<usize>,
}

const V4: Version = Version {
    ethertype: 0x0800,
    header: 20,
    protocol_at: 9,
    length_at: 2,
    source_at: 12,
    destination_at: 16,
    address: 4,
    checksum_at: Some(10),
};
const V6: Version = Version {
    ethertype: 0x86dd,
    header: 40,
    protocol_at: 6,
    length_at: 4,
    source_at: 8,
    destination_at: 24,
    address: 16,
    checksum_at: None,
};

/// Subscribers and their source ports; every pair of them is one session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Population {
    version: Version,
    /// The first subscriber's address, as the last bytes of this; and what the server is to subscribers.
    first: u128,
    server: u128,
    subscribers: u32,
    first_port: u16,
    ports: u16,
    /// Bits of the power of two that holds all sessions.
    bits: u32,
}

/// What came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// A packet of the session it names, to that session's subscriber and port.
    Right,
    /// To another port of its subscriber: so it is when the session was deleted while the packet was on its way, and its
    /// outside port, in the subscriber's own block, was given to another session already.
    Reused,
    /// A packet of the server's that is anything else.
    Wrong,
    /// Not a packet of the server's.
    Other,
}

impl Population {
    pub fn of(args: &TrafficArgs) -> Population {
        let sessions = u64::from(args.subscribers) * u64::from(args.ports);
        let (version, first, server) = match args.first {
            IpAddr::V4(first) => (V4, u32::from(first).into(), u32::from(SERVER).into()),
            IpAddr::V6(first) => (V6, first.into(), u128::from(PREFIX6) | u128::from(u32::from(SERVER))),
        };
        Population {
            version,
            first,
            server,
            subscribers: args.subscribers,
            first_port: args.first_port,
            ports: args.ports,
            bits: sessions.next_power_of_two().trailing_zeros(),
        }
    }

    pub fn sessions(&self) -> u64 {
        u64::from(self.subscribers) * u64::from(self.ports)
    }

    /// The session of the `count`-th packet: every one once before any comes again, in no order that memory likes.
    pub fn pick(&self, count: u64) -> u32 {
        let all = (1u64 << self.bits) - 1;
        let mut number = count % self.sessions();
        loop {
            // Odd factors and a shifted sum are one-to-one on numbers of these bits; too large ones walk on in the cycle,
            // which is one-to-one on the sessions.
            number = number.wrapping_mul(0x9e37_79b1) & all;
            number ^= number >> (self.bits / 2 + 1);
            number = number.wrapping_mul(0x85eb_ca6b) & all;
            if number < self.sessions() {
                return number as u32;
            }
        }
    }

    /// The last four bytes of a session's subscriber address, and its port.
    fn endpoint(&self, session: u32) -> (u32, u16) {
        let ports = u32::from(self.ports);
        ((self.first as u32) + session / ports, self.first_port + (session % ports) as u16)
    }

    /// Judges a received frame.
    pub fn look(&self, frame: &[u8]) -> Seen {
        let Version { header, source_at, destination_at, address, .. } = self.version;
        let Some(at) = payload_offset(frame).filter(|at| half(frame, at - 2) == self.version.ethertype)
        else {
            return Seen::Other;
        };
        let Some(packet) = frame.get(at..).filter(|packet| packet.len() >= header + UDP + NUMBERS) else {
            return Seen::Other;
        };
        let is =
            |at: usize, expected: u128| packet[at..at + address] == expected.to_be_bytes()[16 - address..];
        if packet[self.version.protocol_at] != 17
            || !is(source_at, self.server)
            || half(packet, header) != SERVER_PORT
        {
            return Seen::Other;
        }
        let session = word(packet, header + UDP);
        let (last, port) = self.endpoint(session);
        let is_subscriber = u64::from(session) < self.sessions()
            && is(destination_at, self.first & !u128::from(u32::MAX) | u128::from(last));
        let came_to = half(packet, header + 2);
        match came_to.checked_sub(self.first_port) {
            _ if is_subscriber && came_to == port => Seen::Right,
            Some(at) if is_subscriber && at < self.ports => Seen::Reused,
            _ => Seen::Wrong,
        }
    }
}

/// Writes frames from a template.
pub(crate) struct Writer {
    template: Vec<u8>,
    /// Where the IP header begins.
    at: usize,
    version: Version,
    /// Sums of the template's constant parts, not folded.
    ip_sum: u32,
    udp_sum: u32,
}

impl Writer {
    pub fn new(args: &TrafficArgs, mac: [u8; 6]) -> Writer {
        let Population { version, first, server, .. } = Population::of(args);
        let Version { header, address, .. } = version;
        let at = ETHERNET + if args.vlan.is_some() { TAG } else { 0 };
        let length = usize::from(args.frame_bytes.saturating_sub(FCS)).max(at + header + UDP + NUMBERS);
        let mut frame = vec![0; length];
        frame[..6].copy_from_slice(&ROUTER_MAC);
        frame[6..12].copy_from_slice(&mac);
        if let Some(vlan) = args.vlan {
            frame[12..14].copy_from_slice(&[0x81, 0]);
            frame[14..16].copy_from_slice(&vlan.to_be_bytes());
        }
        frame[at - 2..at].copy_from_slice(&version.ethertype.to_be_bytes());
        let (total, udp) = ((length - at) as u16, (length - at - header) as u16);
        let packet = &mut frame[at..];
        // The first byte of IPv4 has the header's length, that of IPv6 none; the second last of either the TTL.
        match version.checksum_at {
            Some(_) => (packet[0], packet[8]) = (0x45, 64),
            None => (packet[0], packet[7]) = (0x60, 64),
        }
        let length = if version.checksum_at.is_some() { total } else { udp };
        packet[version.length_at..version.length_at + 2].copy_from_slice(&length.to_be_bytes());
        packet[version.protocol_at] = 17;
        for (place, value) in [(version.source_at, first), (version.destination_at, server)] {
            packet[place..place + address].copy_from_slice(&value.to_be_bytes()[16 - address..]);
        }
        // What differs is added for each packet.
        packet[version.source_at + address - 4..version.source_at + address].fill(0);
        packet[header + 2..header + 4].copy_from_slice(&SERVER_PORT.to_be_bytes());
        packet[header + 4..header + 6].copy_from_slice(&udp.to_be_bytes());
        for (number, byte) in packet[header + UDP + NUMBERS..].iter_mut().enumerate() {
            *byte = number as u8;
        }
        let ip_sum = sum(&packet[..header]);
        // The pseudo header: both addresses (the end of the source is added later), protocol, length.
        let addresses = &packet[version.source_at..version.destination_at + address];
        let udp_sum = sum(addresses) + 17 + u32::from(udp) + sum(&packet[header..]);
        Writer { template: frame, at, version, ip_sum, udp_sum }
    }

    /// Bytes of a frame.
    pub fn length(&self) -> usize {
        self.template.len()
    }

    /// Writes the frame of a session into `frame`, which has exactly its length.
    pub fn write(&self, frame: &mut [u8], population: &Population, session: u32, count: u32) {
        frame.copy_from_slice(&self.template);
        let (last, port) = population.endpoint(session);
        let Version { header, source_at, address, checksum_at, .. } = self.version;
        let packet = &mut frame[self.at..];
        let source_end = source_at + address;
        packet[source_end - 4..source_end].copy_from_slice(&last.to_be_bytes());
        packet[header..header + 2].copy_from_slice(&port.to_be_bytes());
        packet[header + 8..header + 12].copy_from_slice(&session.to_be_bytes());
        packet[header + 12..header + 16].copy_from_slice(&count.to_be_bytes());
        let source = halves(last);
        if let Some(at) = checksum_at {
            packet[at..at + 2].copy_from_slice(&fold(self.ip_sum + source).to_be_bytes());
        }
        let udp = fold(self.udp_sum + source + u32::from(port) + halves(session) + halves(count));
        let udp = if udp == 0 { 0xffff } else { udp };
        packet[header + 6..header + 8].copy_from_slice(&udp.to_be_bytes());
    }
}

/// Answers a question for whoever has an address, of either version, in its place; says whether it was one.
pub(crate) fn answer_neighbour(frame: &mut [u8], mac: [u8; 6]) -> bool {
    answer_arp(frame, mac) || answer_solicitation(frame, mac)
}

/// Turns an ARP request into the answer that `mac` has the address; says whether it was one. Announcements are none.
fn answer_arp(frame: &mut [u8], mac: [u8; 6]) -> bool {
    let Some(at) = payload_offset(frame).filter(|at| half(frame, at - 2) == 0x0806) else { return false };
    if frame.len() < at + 28 || half(frame, at + 6) != 1 || frame[at + 14..at + 18] == frame[at + 24..at + 28]
    {
        return false;
    }
    frame.copy_within(6..12, 0);
    frame[6..12].copy_from_slice(&mac);
    let mut arp = [0; 28];
    arp.copy_from_slice(&frame[at..at + 28]);
    let (sender, target) = (arp[8..18].to_vec(), arp[24..28].to_vec());
    arp[7] = 2;
    arp[8..14].copy_from_slice(&mac);
    arp[14..18].copy_from_slice(&target);
    arp[18..28].copy_from_slice(&sender);
    frame[at..at + 28].copy_from_slice(&arp);
    true
}

/// The same of neighbour discovery. Whether an address is a duplicate is not answered.
fn answer_solicitation(frame: &mut [u8], mac: [u8; 6]) -> bool {
    let Some(at) = payload_offset(frame).filter(|at| half(frame, at - 2) == V6.ethertype) else {
        return false;
    };
    let Ok(packet) = Ipv6View::parse(frame.get(at..).unwrap_or(&[])) else { return false };
    let asked = NdpMessage::parse(packet.src(), packet.dst(), packet.hop_limit(), packet.payload());
    let Ok(NdpMessage::NeighbourSolicitation { target, source: Some(_) }) = asked else { return false };
    let target_mac = Some(MacAddr(mac));
    let answer = NdpMessage::NeighbourAdvertisement {
        target,
        router: true,
        solicited: true,
        replaces: true,
        target_mac,
    };
    // As long as the question with its one option.
    let answer = answer.packet(target, packet.src());
    let Some(place) = frame.get_mut(at..at + answer.len()) else { return false };
    place.copy_from_slice(&answer);
    frame.copy_within(6..12, 0);
    frame[6..12].copy_from_slice(&mac);
    true
}

/// Exchanges stations, addresses and UDP ports.
pub(crate) fn swap(frame: &mut [u8]) {
    if frame.len() < ETHERNET {
        return;
    }
    exchange(frame, 0, 6, 6);
    let Some(at) = payload_offset(frame) else { return };
    let version = [V4, V6].into_iter().find(|version| half(frame, at - 2) == version.ethertype);
    if let Some(Version { header, source_at, destination_at, address, .. }) =
        version.filter(|version| frame.len() >= at + version.header + 4)
    {
        exchange(frame, at + source_at, at + destination_at, address);
        exchange(frame, at + header, at + header + 2, 2);
    }
}

fn exchange(bytes: &mut [u8], one: usize, other: usize, length: usize) {
    let (front, back) = bytes.split_at_mut(other);
    front[one..one + length].swap_with_slice(&mut back[..length]);
}

/// Behind the Ethernet header and at most one tag.
fn payload_offset(frame: &[u8]) -> Option<usize> {
    let at =
        if frame.len() >= ETHERNET + TAG && half(frame, 12) == 0x8100 { ETHERNET + TAG } else { ETHERNET };
    (frame.len() > at).then_some(at)
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from(half(bytes, at)) << 16 | u32::from(half(bytes, at + 2))
}

fn halves(word: u32) -> u32 {
    (word >> 16) + (word & 0xffff)
}

fn sum(bytes: &[u8]) -> u32 {
    bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0))).sum()
}

/// The checksum of a sum (RFC 1071).
fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests;
