//! The packets of the laboratories' own generator: written fast, checked when they come back.

use std::net::Ipv4Addr;

use super::TrafficArgs;

/// The server all packets go to, and its port.
pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
pub(crate) const SERVER_PORT: u16 = 12_345;
/// The generator's packets leave to this station: the inside interface's address is set to it.
pub(crate) const ROUTER_MAC: [u8; 6] = [0x00, 0x01, 0x02, 0x03, 0x04, 0x01];

const ETHERNET: usize = 14;
const TAG: usize = 4;
const IP: usize = 20;
const UDP: usize = 8;
/// The session's number and the packet's, in the payload.
const NUMBERS: usize = 8;
/// Frame check sequence, which software does not see.
const FCS: u16 = 4;

/// Subscribers and their source ports; every pair of them is one session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Population {
    first: u32,
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
    /// A packet of the server's that is anything else.
    Wrong,
    /// Not a packet of the server's.
    Other,
}

impl Population {
    pub fn of(args: &TrafficArgs) -> Population {
        let sessions = u64::from(args.subscribers) * u64::from(args.ports);
        Population {
            first: args.first.into(),
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

    fn endpoint(&self, session: u32) -> (u32, u16) {
        let ports = u32::from(self.ports);
        (self.first + session / ports, self.first_port + (session % ports) as u16)
    }

    /// Judges a received frame.
    pub fn look(&self, frame: &[u8]) -> Seen {
        let Some(at) = ip_offset(frame) else { return Seen::Other };
        let Some(packet) = frame.get(at..).filter(|packet| packet.len() >= IP + UDP + NUMBERS) else {
            return Seen::Other;
        };
        if packet[9] != 17 || word(packet, 12) != u32::from(SERVER) || half(packet, 20) != SERVER_PORT {
            return Seen::Other;
        }
        let session = word(packet, IP + UDP);
        let right = u64::from(session) < self.sessions()
            && self.endpoint(session) == (word(packet, 16), half(packet, 22));
        if right { Seen::Right } else { Seen::Wrong }
    }
}

/// Writes frames from a template.
pub(crate) struct Writer {
    template: Vec<u8>,
    /// Where the IP header begins.
    at: usize,
    /// Sums of the template's constant parts, not folded.
    ip_sum: u32,
    udp_sum: u32,
}

impl Writer {
    pub fn new(args: &TrafficArgs, mac: [u8; 6]) -> Writer {
        let at = ETHERNET + if args.vlan.is_some() { TAG } else { 0 };
        let length = usize::from(args.frame_bytes.saturating_sub(FCS)).max(at + IP + UDP + NUMBERS);
        let mut frame = vec![0; length];
        frame[..6].copy_from_slice(&ROUTER_MAC);
        frame[6..12].copy_from_slice(&mac);
        if let Some(vlan) = args.vlan {
            frame[12..14].copy_from_slice(&[0x81, 0]);
            frame[14..16].copy_from_slice(&vlan.to_be_bytes());
        }
        frame[at - 2..at].copy_from_slice(&[8, 0]);
        let total = (length - at) as u16;
        let packet = &mut frame[at..];
        packet[0] = 0x45;
        packet[2..4].copy_from_slice(&total.to_be_bytes());
        packet[8] = 64;
        packet[9] = 17;
        packet[16..20].copy_from_slice(&SERVER.octets());
        packet[22..24].copy_from_slice(&SERVER_PORT.to_be_bytes());
        packet[24..26].copy_from_slice(&(total - IP as u16).to_be_bytes());
        for (number, byte) in packet[IP + UDP + NUMBERS..].iter_mut().enumerate() {
            *byte = number as u8;
        }
        let ip_sum = sum(&packet[..IP]);
        // The pseudo header: both addresses (the source is added later), protocol, length.
        let udp_sum = sum(&packet[16..20]) + 17 + u32::from(total - IP as u16) + sum(&packet[IP..]);
        Writer { template: frame, at, ip_sum, udp_sum }
    }

    /// Bytes of a frame.
    pub fn length(&self) -> usize {
        self.template.len()
    }

    /// Writes the frame of a session into `frame`, which has exactly its length.
    pub fn write(&self, frame: &mut [u8], population: &Population, session: u32, count: u32) {
        frame.copy_from_slice(&self.template);
        let (address, port) = population.endpoint(session);
        let packet = &mut frame[self.at..];
        packet[12..16].copy_from_slice(&address.to_be_bytes());
        packet[20..22].copy_from_slice(&port.to_be_bytes());
        packet[28..32].copy_from_slice(&session.to_be_bytes());
        packet[32..36].copy_from_slice(&count.to_be_bytes());
        let source = halves(address);
        packet[10..12].copy_from_slice(&fold(self.ip_sum + source).to_be_bytes());
        let udp = fold(self.udp_sum + source + u32::from(port) + halves(session) + halves(count));
        let udp = if udp == 0 { 0xffff } else { udp };
        packet[26..28].copy_from_slice(&udp.to_be_bytes());
    }
}

/// Turns an ARP request into the answer that `mac` has the address; says whether it was one. Announcements are none.
pub(crate) fn answer_arp(frame: &mut [u8], mac: [u8; 6]) -> bool {
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

/// Exchanges stations, addresses and UDP ports.
pub(crate) fn swap(frame: &mut [u8]) {
    if frame.len() < ETHERNET {
        return;
    }
    exchange(frame, 0, 6, 6);
    if let Some(at) = ip_offset(frame).filter(|at| frame.len() >= at + IP + 4) {
        exchange(frame, at + 12, at + 16, 4);
        exchange(frame, at + IP, at + IP + 2, 2);
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

fn ip_offset(frame: &[u8]) -> Option<usize> {
    payload_offset(frame).filter(|at| half(frame, at - 2) == 0x0800)
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
