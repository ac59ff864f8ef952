//! What a stateless translator makes of a packet, said once more from the RFCs: addresses octet by octet, messages table by
//! table.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use carrack_base::{Prefix4, Prefix6, Range4};
use carrack_wire::ipv4::Ipv4View;
use carrack_wire::ipv6::Ipv6View;

/// One translator.
#[derive(Debug, Clone)]
pub struct Stateless {
    /// What stands before IPv4 addresses.
    pub prefix: Prefix6,
    /// Explicit address mappings.
    pub mappings: Vec<(Prefix4, Prefix6)>,
    /// Whom routers without an IPv4 address speak as (RFC 6791 §3.2).
    pub routers: Range4,
}

impl Stateless {
    /// The IPv6 address of an IPv4 one: RFC 7757 §3.3.1, the mapping with the longest prefix, else the translation prefix.
    #[must_use]
    pub fn six(&self, ip: u32) -> u128 {
        let of = self.mappings.iter().filter(|(four, _)| four.contains(ip));
        let Some((four, six)) = of.max_by_key(|(four, _)| four.len()) else { return self.by_prefix(ip) };
        // RFC 7757 §3.2: what is behind the one prefix goes behind the other.
        let mut bits = six.address();
        for at in four.len()..32 {
            let bit = u128::from(ip >> (31 - at) & 1);
            bits |= bit << (127 - (six.len() + at - four.len()));
        }
        bits
    }

    /// RFC 6052 §2.2: the octets in their order behind the prefix, around octet 8.
    #[must_use]
    pub fn by_prefix(&self, ip: u32) -> u128 {
        let mut octets = self.prefix.address().to_be_bytes();
        let free = (usize::from(self.prefix.len()) / 8..16).filter(|at| *at != 8);
        for (at, octet) in free.zip(ip.to_be_bytes()) {
            octets[at] = octet;
        }
        u128::from_be_bytes(octets)
    }

    /// The IPv4 address among these that an IPv6 one stands for.
    #[must_use]
    pub fn four(&self, ip: u128, known: &[u32]) -> Option<u32> {
        known.iter().copied().find(|four| self.six(*four) == ip || self.by_prefix(*four) == ip)
    }
}

/// A packet of either version, as far as it is the same in both: reassembled, without its checksum, ICMP with the numbers of
/// ICMPv4.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Carried {
    /// Source.
    pub src: IpAddr,
    /// Destination.
    pub dst: IpAddr,
    /// TTL or hop limit.
    pub hops: u8,
    /// Type of service or traffic class.
    pub class: u8,
    /// Protocol.
    pub protocol: u8,
    /// Transport header and what is behind it.
    pub l4: Vec<u8>,
}

impl Carried {
    /// The packet with these ends and so many hops less.
    #[must_use]
    pub fn between(self, src: IpAddr, dst: IpAddr, hops: u8) -> Self {
        Self { src, dst, hops: self.hops - hops, ..self }
    }
}

/// One packet or fragment: offset, whether more follow, the rest.
type Piece = (usize, bool, Carried);

/// What packets carry that are all pieces of one, in any order. A quoted packet may be cut off.
///
/// # Errors
/// Why they are not.
pub fn carried(packets: &[&[u8]]) -> Result<Carried, String> {
    let pieces: Option<Vec<Piece>> = packets.iter().map(|packet| piece(packet)).collect();
    let mut pieces = pieces.ok_or("no packet")?;
    pieces.sort_by_key(|(offset, ..)| *offset);
    let last = pieces.len().wrapping_sub(1);
    let mut whole: Option<Carried> = None;
    for (at, (offset, more, next)) in pieces.into_iter().enumerate() {
        let so_far = whole.as_ref().map_or(0, |whole| whole.l4.len());
        if offset != so_far || more != (at != last) {
            return Err(format!("a piece of {so_far} at {offset}, more {more}"));
        }
        match &mut whole {
            None => whole = Some(next),
            Some(whole) => {
                let l4 = [whole.l4.as_slice(), &next.l4].concat();
                let joined = Carried { l4, ..next };
                if (joined.src, joined.dst, joined.class) != (whole.src, whole.dst, whole.class) {
                    return Err("pieces of two packets".into());
                }
                *whole = joined;
            }
        }
    }
    let mut whole = whole.ok_or("nothing")?;
    normalize(&mut whole);
    Ok(whole)
}

fn piece(packet: &[u8]) -> Option<Piece> {
    if packet.first()? >> 4 == 4 {
        let ip = Ipv4View::parse_quoted(packet).ok()?;
        let word = u16::from_be_bytes([packet[6], packet[7]]);
        let (src, dst) = (IpAddr::V4(ip.src_addr()), IpAddr::V4(ip.dst_addr()));
        let (class, protocol, l4) = (packet[1], ip.protocol(), ip.payload().to_vec());
        let carried = Carried { src, dst, hops: ip.ttl(), class, protocol, l4 };
        return Some((8 * usize::from(word & 0x1fff), word & 0x2000 != 0, carried));
    }
    let ip = Ipv6View::parse_quoted(packet).ok()?;
    let chain = ip.extensions().ok()?;
    let (src, dst) = (IpAddr::V6(ip.src_addr()), IpAddr::V6(ip.dst_addr()));
    let class = packet[0] << 4 | packet[1] >> 4;
    let l4 = ip.packet().get(usize::from(chain.offset)..)?.to_vec();
    let carried = Carried { src, dst, hops: ip.hop_limit(), class, protocol: chain.protocol, l4 };
    let (offset, more) = chain.fragment.map_or((0, false), |f| (usize::from(f.offset), f.more));
    Some((offset, more, carried))
}

/// RFC 7915 §4.2, §5.2: the numbers of ICMPv4 for echoes. Checksums are right by others' judgement.
fn normalize(packet: &mut Carried) {
    let checksum = match packet.protocol {
        6 => 16,
        17 => 6,
        1 => 2,
        58 => {
            packet.protocol = 1;
            if let Some(kind) = packet.l4.first_mut() {
                *kind = match *kind {
                    128 => 8,
                    129 => 0,
                    other => other,
                };
            }
            2
        }
        _ => return,
    };
    if let Some(field) = packet.l4.get_mut(checksum..checksum + 2) {
        field.fill(0);
    }
}

/// An error's type, code and the last four octets of its header.
pub type ErrorKind = (u8, u8, u32);

/// Errors of IPv4 and of IPv6 that are one another (RFC 7915 §4.2, §5.2), with the last four octets of their headers, for links
/// of 1,500 octets. What several become one is there once a direction.
pub const ERRORS_TO_SIX: [(ErrorKind, ErrorKind); 7] = [
    ((3, 0, 0), (1, 0, 0)),
    ((3, 1, 0), (1, 0, 0)),
    ((3, 3, 0), (1, 4, 0)),
    ((3, 2, 0), (4, 1, 6)),
    ((3, 13, 0), (1, 1, 0)),
    ((11, 0, 0), (3, 0, 0)),
    ((3, 4, 1_400), (2, 0, 1_420)),
];

/// The same the other way.
pub const ERRORS_TO_FOUR: [(ErrorKind, ErrorKind); 6] = [
    ((1, 0, 0), (3, 1, 0)),
    ((1, 1, 0), (3, 10, 0)),
    ((1, 3, 0), (3, 1, 0)),
    ((1, 4, 0), (3, 3, 0)),
    ((2, 0, 1_400), (3, 4, 1_380)),
    ((3, 0, 0), (11, 0, 0)),
];

/// An address of either version.
#[must_use]
pub fn v4(ip: u32) -> IpAddr {
    Ipv4Addr::from(ip).into()
}

/// An address of either version.
#[must_use]
pub fn v6(ip: u128) -> IpAddr {
    Ipv6Addr::from(ip).into()
}
