//! Small packets from parts: what tests send and what the daemon says itself.

mod build6;
#[cfg(test)]
mod tests;

use crate::ethernet::{MacAddr, ethertype};
use crate::icmpv4::{self, Icmpv4Mut};
use crate::icmpv6::{self, Icmpv6Mut};
use crate::ipv4::{self, FLAG_DF, FLAG_MF, Ipv4Mut, OFFSET_MASK, protocol};
use crate::tcp::TcpMut;
use crate::udp::UdpMut;
use crate::vlan;
use std::net::Ipv4Addr;

/// Octets of the shortest Ethernet frame, without the frame check sequence.
const FRAME_LEN_MIN: usize = 60;

/// Puts a packet together, outermost layer first. Lengths and checksums are filled in.
///
/// ```
/// use carrack_wire::{MacAddr, PacketBuilder};
/// let frame = PacketBuilder::new()
///     .ethernet(MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2]))
///     .vlan(10)
///     .ipv4([100, 64, 0, 1], [192, 0, 2, 1])
///     .udp(40_000, 53)
///     .payload(b"question")
///     .build();
/// assert_eq!(frame.len(), 14 + 4 + 20 + 8 + 8);
/// ```
#[derive(Clone, Debug)]
pub struct PacketBuilder<'a> {
    link: Option<(MacAddr, MacAddr)>,
    vlans: [u16; vlan::TAGS_MAX],
    vlan_count: usize,
    ethertype: u16,
    ip: Option<Ip<'a>>,
    ip6: Option<build6::Ip6<'a>>,
    transport: Transport<'a>,
    payload: &'a [u8],
    is_padded: bool,
}

#[derive(Clone, Copy, Debug)]
struct Ip<'a> {
    src: u32,
    dst: u32,
    tos: u8,
    identification: u16,
    flags_and_offset: u16,
    ttl: u8,
    protocol: Option<u8>,
    options: &'a [u8],
}

/// Whose pseudo-header a transport checksum covers.
#[derive(Clone, Copy, Debug)]
enum Ends {
    None,
    V4(u32, u32),
    V6(u128, u128),
}

#[derive(Clone, Copy, Debug)]
enum Transport<'a> {
    None,
    Udp { src: u16, dst: u16, has_checksum: bool },
    Tcp { src: u16, dst: u16, seq: u32, ack: u32, flags: u8, window: u16, options: &'a [u8] },
    Icmp { kind: u8, code: u8, rest: [u8; 4] },
}

impl Default for PacketBuilder<'_> {
    fn default() -> Self {
        PacketBuilder::new()
    }
}

impl<'a> PacketBuilder<'a> {
    /// An empty packet.
    pub fn new() -> PacketBuilder<'a> {
        PacketBuilder {
            link: None,
            vlans: [0; vlan::TAGS_MAX],
            vlan_count: 0,
            ethertype: ethertype::IPV4,
            ip: None,
            ip6: None,
            transport: Transport::None,
            payload: &[],
            is_padded: false,
        }
    }

    /// An Ethernet header from `src` to `dst`. Without it the packet starts with its IP header.
    #[must_use]
    pub fn ethernet(mut self, src: MacAddr, dst: MacAddr) -> Self {
        self.link = Some((src, dst));
        self
    }

    /// A VLAN tag; called twice, the first is the outer one. A third is ignored.
    #[must_use]
    pub fn vlan(mut self, vid: u16) -> Self {
        if let Some(slot) = self.vlans.get_mut(self.vlan_count) {
            *slot = vid;
            self.vlan_count += 1;
        }
        self
    }

    /// The type of a payload that is not IP, ARP for instance.
    #[must_use]
    pub fn ethertype(mut self, ethertype: u16) -> Self {
        self.ethertype = ethertype;
        self
    }

    /// Pads an Ethernet frame with zeros to its shortest length, 60 octets without check sequence.
    #[must_use]
    pub fn padded(mut self) -> Self {
        self.is_padded = true;
        self
    }

    /// An IPv4 header: TTL 64, no flags, identification 0. Addresses as `Ipv4Addr`, `[u8; 4]` or `u32`.
    #[must_use]
    pub fn ipv4(mut self, src: impl Into<Ipv4Addr>, dst: impl Into<Ipv4Addr>) -> Self {
        self.ip6 = None;
        self.ethertype = ethertype::IPV4;
        self.ip = Some(Ip {
            src: src.into().to_bits(),
            dst: dst.into().to_bits(),
            tos: 0,
            identification: 0,
            flags_and_offset: 0,
            ttl: 64,
            protocol: None,
            options: &[],
        });
        self
    }

    /// Time to live, or hop limit.
    #[must_use]
    pub fn ttl(self, ttl: u8) -> Self {
        self.with_ip(|ip| ip.ttl = ttl).with_ip6(|ip| ip.hop_limit = ttl)
    }

    /// DSCP and ECN: type of service, or traffic class.
    #[must_use]
    pub fn tos(self, tos: u8) -> Self {
        self.with_ip(|ip| ip.tos = tos).with_ip6(|ip| ip.traffic_class = tos)
    }

    /// Identification.
    #[must_use]
    pub fn identification(self, identification: u16) -> Self {
        self.with_ip(|ip| ip.identification = identification)
    }

    /// Flag "don't fragment".
    #[must_use]
    pub fn dont_fragment(self) -> Self {
        self.with_ip(|ip| ip.flags_and_offset |= FLAG_DF)
    }

    /// Makes this a fragment that starts `offset` octets (a multiple of 8) into the datagram. Give its octets
    /// as payload under [`PacketBuilder::protocol`]: checksums of pieces are not computed.
    #[must_use]
    pub fn fragment(self, offset: u16, more: bool) -> Self {
        let more = if more { FLAG_MF } else { 0 };
        self.with_ip(|ip| {
            ip.flags_and_offset = (ip.flags_and_offset & FLAG_DF) | more | ((offset / 8) & OFFSET_MASK)
        })
    }

    /// Protocol number of a payload given as it is.
    #[must_use]
    pub fn protocol(self, protocol: u8) -> Self {
        self.with_ip(|ip| ip.protocol = Some(protocol)).with_ip6(|ip| ip.protocol = Some(protocol))
    }

    /// IPv4 options, whole words, at most 40 octets; cut to that.
    #[must_use]
    pub fn ip_options(self, options: &'a [u8]) -> Self {
        self.with_ip(|ip| ip.options = whole_words(options))
    }

    /// A UDP header.
    #[must_use]
    pub fn udp(mut self, src: u16, dst: u16) -> Self {
        self.transport = Transport::Udp { src, dst, has_checksum: true };
        self
    }

    /// A UDP header with checksum 0: none.
    #[must_use]
    pub fn udp_without_checksum(mut self, src: u16, dst: u16) -> Self {
        self.transport = Transport::Udp { src, dst, has_checksum: false };
        self
    }

    /// A TCP header: window 65,535, sequence and acknowledgement 0.
    #[must_use]
    pub fn tcp(mut self, src: u16, dst: u16, flags: u8) -> Self {
        self.transport = Transport::Tcp { src, dst, seq: 0, ack: 0, flags, window: u16::MAX, options: &[] };
        self
    }

    /// Sequence and acknowledgement number of the TCP header given before.
    #[must_use]
    pub fn tcp_numbers(mut self, new_seq: u32, new_ack: u32) -> Self {
        if let Transport::Tcp { seq, ack, .. } = &mut self.transport {
            (*seq, *ack) = (new_seq, new_ack);
        }
        self
    }

    /// Options of the TCP header given before: whole words, at most 40 octets; cut to that.
    #[must_use]
    pub fn tcp_options(mut self, new: &'a [u8]) -> Self {
        if let Transport::Tcp { options, .. } = &mut self.transport {
            *options = whole_words(new);
        }
        self
    }

    /// An ICMP header, ICMPv6 behind an IPv6 header, with its "rest of header" word.
    #[must_use]
    pub fn icmp(mut self, kind: u8, code: u8, rest: [u8; 4]) -> Self {
        self.transport = Transport::Icmp { kind, code, rest };
        self
    }

    /// An ICMP echo request, of the kind that fits the IP header given before.
    #[must_use]
    pub fn echo_request(self, identifier: u16, sequence: u16) -> Self {
        self.echo([icmpv4::kind::ECHO_REQUEST, icmpv6::kind::ECHO_REQUEST], identifier, sequence)
    }

    /// An ICMP echo reply, of the kind that fits the IP header given before.
    #[must_use]
    pub fn echo_reply(self, identifier: u16, sequence: u16) -> Self {
        self.echo([icmpv4::kind::ECHO_REPLY, icmpv6::kind::ECHO_REPLY], identifier, sequence)
    }

    /// The innermost octets.
    #[must_use]
    pub fn payload(mut self, payload: &'a [u8]) -> Self {
        self.payload = payload;
        self
    }

    /// Octets the packet will have.
    pub fn len(&self) -> usize {
        let length = self.link_len() + self.ip_header_len() + self.transport_len() + self.payload.len();
        if self.is_padded && self.link.is_some() { length.max(FRAME_LEN_MIN) } else { length }
    }

    /// Whether nothing was put together.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The packet.
    ///
    /// # Panics
    /// When it is longer than an IP packet can be; for tests and start-up, not for the packet path.
    pub fn build(&self) -> Vec<u8> {
        let mut out = vec![0u8; self.len()];
        // Invariant: the buffer has exactly the length asked for.
        self.write(&mut out).expect("an IP packet has at most 65,535 octets");
        out
    }

    /// Writes the packet to the start of `out` and returns its length; `None` when it does not fit there or
    /// into an IP packet.
    pub fn write(&self, out: &mut [u8]) -> Option<usize> {
        let out = out.get_mut(..self.len())?;
        let mut rest = &mut *out;
        if let Some((src, dst)) = self.link {
            let tags = self.vlans.get(..self.vlan_count)?;
            let at = vlan::write_l2(rest, dst, src, tags, self.ethertype)?;
            rest = rest.get_mut(at..)?;
        }
        let length = self.ip_header_len() + self.transport_len() + self.payload.len();
        let (packet, padding) = rest.split_at_mut_checked(length)?;
        padding.fill(0);
        match (&self.ip, &self.ip6) {
            (Some(ip), _) => self.write_ip(ip, packet)?,
            (None, Some(ip)) => self.write_ip6(ip, packet)?,
            (None, None) => self.write_transport(Ends::None, packet)?,
        }
        Some(out.len())
    }

    fn echo(self, [kind_v4, kind_v6]: [u8; 2], identifier: u16, sequence: u16) -> Self {
        let kind = if self.ip6.is_some() { kind_v6 } else { kind_v4 };
        let ([a, b], [c, d]) = (identifier.to_be_bytes(), sequence.to_be_bytes());
        self.icmp(kind, 0, [a, b, c, d])
    }

    fn with_ip(mut self, change: impl FnOnce(&mut Ip<'a>)) -> Self {
        if let Some(ip) = &mut self.ip {
            change(ip);
        }
        self
    }

    fn link_len(&self) -> usize {
        if self.link.is_some() { 14 + vlan::TAG_LEN * self.vlan_count } else { 0 }
    }

    fn ip_header_len(&self) -> usize {
        let v4 = self.ip.as_ref().map_or(0, |ip| ipv4::HEADER_LEN + ip.options.len());
        v4 + self.ip6.as_ref().map_or(0, build6::Ip6::header_len)
    }

    fn transport_len(&self) -> usize {
        match self.transport {
            Transport::None => 0,
            Transport::Udp { .. } | Transport::Icmp { .. } => 8,
            Transport::Tcp { options, .. } => 20 + options.len(),
        }
    }

    fn protocol_number(&self) -> u8 {
        match self.transport {
            Transport::None => 0xff,
            Transport::Udp { .. } => protocol::UDP,
            Transport::Tcp { .. } => protocol::TCP,
            Transport::Icmp { .. } if self.ip6.is_some() => protocol::ICMPV6,
            Transport::Icmp { .. } => protocol::ICMP,
        }
    }

    fn write_ip(&self, ip: &Ip<'_>, packet: &mut [u8]) -> Option<()> {
        let total = u16::try_from(packet.len()).ok()?;
        let header_len = ipv4::HEADER_LEN + ip.options.len();
        let header = ipv4::Ipv4Header {
            tos: ip.tos,
            payload_len: total.checked_sub(ipv4::HEADER_LEN as u16)?,
            identification: ip.identification,
            flags_and_offset: ip.flags_and_offset,
            ttl: ip.ttl,
            protocol: ip.protocol.unwrap_or_else(|| self.protocol_number()),
            src: ip.src,
            dst: ip.dst,
        };
        *packet.first_chunk_mut()? = header.to_bytes();
        *packet.first_mut()? = 0x40 | (header_len / 4) as u8;
        packet.get_mut(ipv4::HEADER_LEN..header_len)?.copy_from_slice(ip.options);
        self.write_transport(Ends::V4(ip.src, ip.dst), packet.get_mut(header_len..)?)?;
        Ipv4Mut::parse(packet).ok()?.fill_checksum();
        Some(())
    }

    fn write_transport(&self, ends: Ends, out: &mut [u8]) -> Option<()> {
        let (head, body) = out.split_at_mut_checked(self.transport_len())?;
        body.copy_from_slice(self.payload);
        match self.transport {
            Transport::None => {}
            Transport::Udp { src, dst, has_checksum } => {
                let length = u16::try_from(out.len()).ok()?;
                put_words(out, &[src, dst, length, 0]);
                if has_checksum {
                    let mut udp = UdpMut::parse(out).ok()?;
                    match ends {
                        Ends::None => udp.fill_checksum(0, 0),
                        Ends::V4(src, dst) => udp.fill_checksum(src, dst),
                        Ends::V6(src, dst) => udp.fill_checksum_v6(src, dst),
                    }
                }
            }
            Transport::Tcp { src, dst, seq, ack, flags, window, options } => {
                let offset_and_flags = ((head.len() / 4) as u16) << 12 | u16::from(flags);
                let [seq, ack] = [seq, ack].map(|number| [(number >> 16) as u16, number as u16]);
                put_words(out, &[src, dst, seq[0], seq[1], ack[0], ack[1], offset_and_flags, window, 0, 0]);
                out.get_mut(20..20 + options.len())?.copy_from_slice(options);
                let mut tcp = TcpMut::parse(out).ok()?;
                match ends {
                    Ends::None => tcp.fill_checksum(0, 0),
                    Ends::V4(src, dst) => tcp.fill_checksum(src, dst),
                    Ends::V6(src, dst) => tcp.fill_checksum_v6(src, dst),
                }
            }
            Transport::Icmp { kind, code, rest } => {
                *head.first_chunk_mut()? = [kind, code, 0, 0];
                head.get_mut(4..8)?.copy_from_slice(&rest);
                match ends {
                    Ends::V6(src, dst) => Icmpv6Mut::parse(out).ok()?.fill_checksum(src, dst),
                    _ => Icmpv4Mut::parse(out).ok()?.fill_checksum(),
                }
            }
        }
        Some(())
    }
}

/// As many whole words of `options` as a header takes: 40 octets at most.
fn whole_words(options: &[u8]) -> &[u8] {
    let length = options.len().min(40) & !3;
    options.get(..length).unwrap_or(&[])
}

fn put_words(out: &mut [u8], words: &[u16]) {
    for (to, word) in out.chunks_exact_mut(2).zip(words) {
        to.copy_from_slice(&word.to_be_bytes());
    }
}
