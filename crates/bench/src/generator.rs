//! Packets computed from a number: no tables on the way out, one small table on the way in.

use carrack_wire::checksum;
use carrack_wire::ethernet::MacAddr;

use crate::generator6::Template6;
use crate::world::{GATEWAY_MAC, INSIDE_MAC, OUTSIDE_MAC, SUBSCRIBER_MAC};

/// Source ports of a subscriber.
pub const PORTS: u32 = 16;
/// Remote endpoints of each source port.
pub const REMOTES: u32 = 4;
/// Sessions of a subscriber.
pub const SESSIONS_PER_SUBSCRIBER: u32 = PORTS * REMOTES;
/// First subscriber address, 10.0.0.0.
pub const SUBSCRIBER_FIRST: u32 = 0x0a00_0000;
const PORT_FIRST: u16 = 20_000;
const REMOTE_PORT: u16 = 443;

/// A session by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Session {
    /// Subscriber address.
    pub inside: u32,
    /// Subscriber port.
    pub port: u16,
    /// Remote address.
    pub remote: u32,
    /// Remote port.
    pub remote_port: u16,
}

/// The endpoints of session `number` among those of a worker, whose subscribers are `subscribers`.
#[inline(always)]
pub fn session(subscribers: &[u32], number: u32) -> Session {
    let subscriber = (number / SESSIONS_PER_SUBSCRIBER) as usize;
    let within = number % SESSIONS_PER_SUBSCRIBER;
    Session {
        inside: subscribers.get(subscriber).copied().unwrap_or(SUBSCRIBER_FIRST),
        port: PORT_FIRST + (within / REMOTES) as u16,
        // 198.51.100.0/24 is set aside for documentation (RFC 5737).
        remote: 0xc633_6401 + number % REMOTES,
        remote_port: REMOTE_PORT,
    }
}

/// Which packets come next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Any session, uniformly.
    Random,
    /// In the order they were made.
    Sequential,
}

/// Chooses sessions.
pub struct Chooser {
    order: Order,
    state: u64,
    next: u32,
    sessions: u32,
}

impl Chooser {
    /// Over sessions 0 to `sessions` - 1.
    pub fn new(order: Order, sessions: u32, seed: u64) -> Self {
        Self { order, state: seed, next: 0, sessions }
    }

    /// The next session's number.
    #[inline(always)]
    pub fn pick(&mut self) -> u32 {
        match self.order {
            Order::Random => {
                // A linear congruential generator (Knuth's constants): its upper half is random enough to defeat every
                // cache and prefetcher, at the cost of one multiplication.
                self.state = self
                    .state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                (((self.state >> 32) * u64::from(self.sessions)) >> 32) as u32
            }
            Order::Sequential => {
                let number = self.next;
                self.next = if number + 1 == self.sessions { 0 } else { number + 1 };
                number
            }
        }
    }
}

/// What is translated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Translation {
    /// IPv4 subscribers
    #[default]
    Nat44,
    /// IPv6 subscribers
    Nat64,
    /// IPv6 hosts with IPv4 addresses of their own, without sessions
    Siit,
}

impl Translation {
    /// The word for reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nat44 => "nat44",
            Self::Nat64 => "nat64",
            Self::Siit => "siit",
        }
    }

    /// The word for people.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Nat44 => "NAT44",
            Self::Nat64 => "NAT64",
            Self::Siit => "SIIT",
        }
    }

    /// Are subscribers of IPv6?
    pub const fn is_six(self) -> bool {
        !matches!(self, Self::Nat44)
    }

    /// Bytes of the smallest frame that holds headers of either version, 8 bytes of payload and the check sequence.
    pub const fn frame_bytes_min(self) -> u32 {
        match self {
            Self::Nat44 => 64,
            Self::Nat64 | Self::Siit => 80,
        }
    }
}

/// Writes UDP packets; every packet has its own addresses, ports, identification and payload, and right checksums.
pub struct Writer {
    out: Template,
    out6: Option<Template6>,
    into: Template,
    serial: u32,
}

/// What all packets of one direction have in common. Words are eight bytes of the frame, network order.
struct Template {
    /// The whole packet with everything zero that differs.
    bytes: Vec<u8>,
    /// Bytes 0 to 15: link header, version, TOS.
    link: [u64; 2],
    /// Bytes 16 to 23: total length, and behind the identification TTL and protocol.
    lengths: u64,
    udp_length: u64,
    /// Sums over what never changes: IPv4 header, UDP with pseudo-header.
    header_sum: u64,
    udp_sum: u64,
}

impl Template {
    fn new(length: usize, to: MacAddr, from: MacAddr) -> Self {
        let mut packet = vec![0; length];
        packet[0..6].copy_from_slice(&to.0);
        packet[6..12].copy_from_slice(&from.0);
        packet[12..14].copy_from_slice(&[0x08, 0x00]);
        packet[14] = 0x45;
        packet[16..18].copy_from_slice(&((length - 14) as u16).to_be_bytes());
        packet[22] = 64;
        packet[23] = 17;
        packet[38..40].copy_from_slice(&((length - 34) as u16).to_be_bytes());
        let udp_length = (length - 34) as u64;
        let word = |at: usize| packet[at..at + 8].iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
        Self {
            link: [word(0), word(8)],
            lengths: word(16),
            udp_length,
            header_sum: u64::from(!checksum::checksum(&packet[14..34])),
            udp_sum: u64::from(!checksum::checksum(&packet[34..])) + 17 + udp_length,
            bytes: packet,
        }
    }
}

/// The checksum of what was added up, in words of any length (RFC 1071 §2): halves added to each other the other way
/// round have their sum, carry included, in the upper half.
#[inline(always)]
pub(crate) fn fold(sum: u64) -> u64 {
    let sum = (sum.wrapping_add(sum.rotate_right(32)) >> 32) as u32;
    u64::from(!(sum.wrapping_add(sum.rotate_right(16)) >> 16) as u16)
}

impl Writer {
    /// For packets of so many bytes in memory (frame without check sequence), at least 60, from IPv6 at least 70.
    pub fn of(translation: Translation, bytes: usize) -> Self {
        let out = Template::new(bytes, INSIDE_MAC, SUBSCRIBER_MAC);
        let into = Template::new(bytes, OUTSIDE_MAC, GATEWAY_MAC);
        let out6 = translation.is_six().then(|| Template6::new(bytes, INSIDE_MAC, SUBSCRIBER_MAC));
        Self { out, out6, into, serial: 0 }
    }

    /// Bytes of each packet in memory.
    pub fn bytes(&self) -> usize {
        self.out.bytes.len()
    }

    /// A packet from a subscriber.
    #[inline(always)]
    pub fn write_out(&mut self, session: &Session, frame: &mut [u8]) {
        if self.out6.is_some() {
            self.write_out6(session, frame);
        } else {
            self.write_out4(session, frame);
        }
    }

    /// The same where the translation is known beforehand.
    #[inline(always)]
    pub fn write_out6(&mut self, session: &Session, frame: &mut [u8]) {
        self.serial = self.serial.wrapping_add(1);
        if let Some(six) = &self.out6 {
            six.write(self.serial, session, frame);
        }
    }

    /// The same where the translation is known beforehand.
    #[inline(always)]
    pub fn write_out4(&mut self, session: &Session, frame: &mut [u8]) {
        self.serial = self.serial.wrapping_add(1);
        let (from, to) = ((session.inside, session.port), (session.remote, session.remote_port));
        write(&self.out, self.serial, from, to, frame);
    }

    /// A packet to an outside endpoint.
    #[inline(always)]
    pub fn write_in(&mut self, session: &Session, outside: (u32, u16), frame: &mut [u8]) {
        self.serial = self.serial.wrapping_add(1);
        write(&self.into, self.serial, (session.remote, session.remote_port), outside, frame);
    }
}

/// Bytes of a frame put together in registers: what a 64-byte frame has in memory.
const SHORT: usize = 60;

/// Every byte of the packet is written: a short one from registers, the rest of a longer one from the template.
#[inline(always)]
fn write(template: &Template, serial: u32, from: (u32, u16), to: (u32, u16), frame: &mut [u8]) {
    let Some((short, rest)) = frame.split_first_chunk_mut::<SHORT>() else { return };
    if !rest.is_empty()
        && let Some(from_rest) = template.bytes.get(SHORT..)
        && rest.len() == from_rest.len()
    {
        rest.copy_from_slice(from_rest);
    }
    let mut put = |at: usize, word: u64| {
        // Invariant: callers' offsets are constants, at most 52.
        short[at..at + 8].copy_from_slice(&word.to_be_bytes());
    };
    let (identification, serial) = (u64::from(serial & 0xffff), u64::from(serial));
    let (source, destination) = (u64::from(from.0), u64::from(to.0));
    let ports = u64::from(from.1) << 16 | u64::from(to.1);
    let addresses = source + destination;
    let header = fold(template.header_sum + addresses + identification);
    let udp = fold(template.udp_sum + addresses + ports + serial);
    // RFC 768: a computed 0 is sent as 0xffff.
    let udp = if udp == 0 { 0xffff } else { udp };
    put(0, template.link[0]);
    put(8, template.link[1]);
    put(16, template.lengths | identification << 32);
    put(24, header << 48 | source << 16 | destination >> 16);
    put(32, destination << 48 | ports << 16 | template.udp_length);
    put(40, udp << 48 | serial << 16);
    put(48, 0);
    put(52, 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use carrack_wire::ipv4::Ipv4View;

    #[test]
    fn written_packets_have_right_checksums_and_differ() {
        let mut writer = Writer::of(Translation::Nat44, 60);
        let mut before = Vec::new();
        for number in 0..1_000 {
            let session = session(&[SUBSCRIBER_FIRST, SUBSCRIBER_FIRST + 77], number % 128);
            let mut frame = vec![0; 60];
            if number % 2 == 0 {
                writer.write_out(&session, &mut frame);
            } else {
                writer.write_in(&session, (0xcb00_7101, 4_000 + number as u16), &mut frame);
            }
            let packet = Ipv4View::parse(&frame[14..]).unwrap();
            assert!(packet.checksum_ok());
            let pseudo = checksum::pseudo_v4(packet.src(), packet.dst(), 17, packet.payload().len() as u16);
            assert_eq!(pseudo.with_bytes(packet.payload()).checksum(), 0);
            assert_ne!(before, frame);
            before = frame;
        }
    }
}
