//! The IPv6 layer of a packet put together from parts.

use super::{Ends, PacketBuilder};
use crate::ethernet::ethertype;
use crate::ipv6::{FRAGMENT_HEADER_LEN, FragmentHeader, HEADER_LEN, Ipv6Header, next_header};
use std::net::Ipv6Addr;

/// Extension headers a packet takes; more are ignored. It is more than a walk follows, for tests of that.
const EXTENSIONS_MAX: usize = 16;

#[derive(Clone, Copy, Debug)]
pub(super) struct Ip6<'a> {
    src: u128,
    dst: u128,
    pub(super) traffic_class: u8,
    flow_label: u32,
    pub(super) hop_limit: u8,
    pub(super) protocol: Option<u8>,
    /// What the checksum covers as destination, when not `dst`.
    final_dst: Option<u128>,
    extensions: [Option<Extension<'a>>; EXTENSIONS_MAX],
}

#[derive(Clone, Copy, Debug)]
enum Extension<'a> {
    Fragment { offset: u16, more: bool, identification: u32 },
    Other { number: u8, body: &'a [u8] },
}

impl Ip6<'_> {
    /// Octets of the header and its extension headers.
    pub(super) fn header_len(&self) -> usize {
        HEADER_LEN + self.extensions.iter().flatten().map(Extension::len).sum::<usize>()
    }
}

impl Extension<'_> {
    fn number(&self) -> u8 {
        match self {
            Extension::Fragment { .. } => next_header::FRAGMENT,
            Extension::Other { number, .. } => *number,
        }
    }

    fn len(&self) -> usize {
        match self {
            Extension::Fragment { .. } => FRAGMENT_HEADER_LEN,
            Extension::Other { body, .. } => (2 + body.len()).next_multiple_of(8),
        }
    }

    fn write(&self, next: u8, out: &mut [u8]) -> Option<()> {
        match *self {
            Extension::Fragment { offset, more, identification } => {
                let header = FragmentHeader { at: 0, next_header: next, offset, more, identification };
                out.copy_from_slice(&header.to_bytes());
            }
            Extension::Other { body, .. } => {
                *out.first_mut()? = next;
                *out.get_mut(1)? = u8::try_from(out.len() / 8 - 1).ok()?;
                out.get_mut(2..2 + body.len())?.copy_from_slice(body);
                out.get_mut(2 + body.len()..)?.fill(0);
            }
        }
        Some(())
    }
}

/// IPv6 layers. [`PacketBuilder::ttl`], [`PacketBuilder::tos`] and [`PacketBuilder::protocol`] set hop limit,
/// traffic class and next header.
impl<'a> PacketBuilder<'a> {
    /// An IPv6 header: hop limit 64, traffic class and flow label 0. Addresses as `Ipv6Addr`, `[u16; 8]` or
    /// `u128`.
    ///
    /// ```
    /// use carrack_wire::PacketBuilder;
    /// let packet = PacketBuilder::new().ipv6(1, 2).hop_by_hop(&[]).echo_request(7, 1).build();
    /// assert_eq!(packet.len(), 40 + 8 + 8);
    /// ```
    #[must_use]
    pub fn ipv6(mut self, src: impl Into<Ipv6Addr>, dst: impl Into<Ipv6Addr>) -> Self {
        self.ip = None;
        self.ethertype = ethertype::IPV6;
        self.ip6 = Some(Ip6 {
            src: src.into().to_bits(),
            dst: dst.into().to_bits(),
            traffic_class: 0,
            flow_label: 0,
            hop_limit: 64,
            protocol: None,
            final_dst: None,
            extensions: [None; EXTENSIONS_MAX],
        });
        self
    }

    /// Flow label; the low 20 bits count.
    #[must_use]
    pub fn flow_label(self, label: u32) -> Self {
        self.with_ip6(|ip| ip.flow_label = label)
    }

    /// A fragment header, `offset` octets (a multiple of 8) into the datagram. Give a piece's octets as payload
    /// under [`PacketBuilder::protocol`]: checksums of pieces are not computed.
    #[must_use]
    pub fn fragment6(self, offset: u16, more: bool, identification: u32) -> Self {
        self.with_extension(Extension::Fragment { offset, more, identification })
    }

    /// An extension header of the form all but the fragment header have: `body` is what stands behind its
    /// length octet, filled up to 8 octets with zeros, which in options are padding.
    #[must_use]
    pub fn extension(self, number: u8, body: &'a [u8]) -> Self {
        self.with_extension(Extension::Other { number, body })
    }

    /// Hop-by-hop options.
    #[must_use]
    pub fn hop_by_hop(self, options: &'a [u8]) -> Self {
        self.extension(next_header::HOP_BY_HOP, options)
    }

    /// Destination options.
    #[must_use]
    pub fn destination_options(self, options: &'a [u8]) -> Self {
        self.extension(next_header::DESTINATION, options)
    }

    /// A routing header: `body` starts with type and segments left. The checksum covers `final_dst` instead of
    /// the destination of the IPv6 header.
    #[must_use]
    pub fn routing(self, body: &'a [u8], final_dst: impl Into<Ipv6Addr>) -> Self {
        let final_dst = final_dst.into().to_bits();
        self.extension(next_header::ROUTING, body).with_ip6(|ip| ip.final_dst = Some(final_dst))
    }

    fn with_extension(self, extension: Extension<'a>) -> Self {
        self.with_ip6(|ip| {
            if let Some(slot) = ip.extensions.iter_mut().find(|slot| slot.is_none()) {
                *slot = Some(extension);
            }
        })
    }

    pub(super) fn with_ip6(mut self, change: impl FnOnce(&mut Ip6<'a>)) -> Self {
        if let Some(ip) = &mut self.ip6 {
            change(ip);
        }
        self
    }

    pub(super) fn write_ip6(&self, ip: &Ip6<'_>, packet: &mut [u8]) -> Option<()> {
        let payload_len = u16::try_from(packet.len().checked_sub(HEADER_LEN)?).ok()?;
        let protocol = ip.protocol.unwrap_or_else(|| self.protocol_number());
        let mut numbers = ip.extensions.iter().flatten().map(Extension::number).chain([protocol]);
        let header = Ipv6Header {
            traffic_class: ip.traffic_class,
            flow_label: ip.flow_label,
            payload_len,
            next_header: numbers.next()?,
            hop_limit: ip.hop_limit,
            src: ip.src,
            dst: ip.dst,
        };
        let (head, mut rest) = packet.split_first_chunk_mut()?;
        *head = header.to_bytes();
        for (extension, next) in ip.extensions.iter().flatten().zip(numbers) {
            let (out, behind) = rest.split_at_mut_checked(extension.len())?;
            extension.write(next, out)?;
            rest = behind;
        }
        self.write_transport(Ends::V6(ip.src, ip.final_dst.unwrap_or(ip.dst)), rest)
    }
}
