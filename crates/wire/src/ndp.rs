//! Neighbour discovery for IPv6 over Ethernet (RFC 4861), with RFC 8106's list of name servers.
//!
//! Messages are copied out, as they are read on the control path only. Redirects are not read: a router has no use for
//! them (RFC 4861 §8.1).

mod options;
#[cfg(test)]
mod tests;

use std::fmt;

use crate::checksum::pseudo_v6;
use crate::ethernet::MacAddr;
use crate::icmpv6::kind;
use crate::ipv6::next_header::ICMPV6;
use crate::ipv6::{HEADER_LEN, Ipv6Header, is_link_local, is_multicast};

use options::Options;
pub use options::{NameServers, PrefixInformation};

/// The hop limit of every message: no router has forwarded it (RFC 4861 §3.1).
pub const HOP_LIMIT: u8 = 255;

/// ff02::1, all nodes of the link.
pub const ALL_NODES: u128 = 0xff02 << 112 | 1;
/// ff02::2, all routers of the link.
pub const ALL_ROUTERS: u128 = 0xff02 << 112 | 2;

/// The group that whoever has this address listens to: ff02::1:ff and its last 24 bits (RFC 4291 §2.7.1).
#[must_use]
pub const fn solicited_node(address: u128) -> u128 {
    0xff02 << 112 | 0x01_ff00_0000 | address & 0xff_ffff
}

/// The MAC address of a multicast group: 33:33 and its last 32 bits (RFC 2464 §7).
#[must_use]
pub const fn multicast_mac(group: u128) -> MacAddr {
    let [a, b, c, d] = (group as u32).to_be_bytes();
    MacAddr([0x33, 0x33, a, b, c, d])
}

/// The link-local address that a MAC address makes: fe80::/64 and the modified EUI-64 (RFC 4291 §2.5.6, appendix A).
#[must_use]
pub const fn link_local(mac: MacAddr) -> u128 {
    let [a, b, c, d, e, f] = mac.0;
    0xfe80 << 112 | u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f]) as u128
}

/// Why a message is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NdpError {
    /// Shorter than its type's fixed part.
    Truncated,
    /// The hop limit is not 255: it may come from another link.
    HopLimit,
    /// The checksum is wrong.
    Checksum,
    /// The code is not 0.
    Code,
    /// An option has length zero or goes beyond the message.
    Option,
    /// Addresses that a message of this type may not have, or a source link-layer address from nobody.
    Address,
    /// Another type.
    Kind,
}

impl fmt::Display for NdpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NdpError::Truncated => "neighbour discovery message is truncated",
            NdpError::HopLimit => "neighbour discovery message has a hop limit other than 255",
            NdpError::Checksum => "neighbour discovery message has a wrong checksum",
            NdpError::Code => "neighbour discovery message has a code other than 0",
            NdpError::Option => "neighbour discovery option has length zero or goes beyond the message",
            NdpError::Address => "neighbour discovery message has addresses that its type may not have",
            NdpError::Kind => "ICMPv6 message is not one of neighbour discovery that a router reads",
        })
    }
}

impl std::error::Error for NdpError {}

/// What a router tells the hosts of a link (RFC 4861 §4.2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouterAdvertisement {
    /// The hop limit that hosts shall begin with; 0 for no opinion.
    pub hop_limit: u8,
    /// Addresses come by DHCPv6.
    pub managed: bool,
    /// Other settings come by DHCPv6.
    pub other: bool,
    /// Seconds for which this router is a default router; 0 for not at all.
    pub lifetime_s: u16,
    /// Milliseconds for which a neighbour counts as reachable; 0 for no opinion.
    pub reachable_ms: u32,
    /// Milliseconds between two solicitations; 0 for no opinion.
    pub retrans_ms: u32,
    /// The router's MAC address.
    pub source: Option<MacAddr>,
    /// The link's MTU.
    pub mtu: Option<u32>,
    /// Prefixes of the link.
    pub prefixes: Vec<PrefixInformation>,
    /// Name servers (RFC 8106 §5.1).
    pub name_servers: Option<NameServers>,
}

/// A message of neighbour discovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NdpMessage {
    /// A host asks for routers (RFC 4861 §4.1).
    RouterSolicitation {
        /// MAC address of the sender; none when it has no address yet.
        source: Option<MacAddr>,
    },
    /// A router tells of itself.
    RouterAdvertisement(RouterAdvertisement),
    /// Who has the target address? (RFC 4861 §4.3)
    NeighbourSolicitation {
        /// The address asked for.
        target: u128,
        /// MAC address of the sender; none when it only checks that nobody has the address (RFC 4862 §5.4.2).
        source: Option<MacAddr>,
    },
    /// The sender has the target address (RFC 4861 §4.4).
    NeighbourAdvertisement {
        /// The address.
        target: u128,
        /// The sender is a router.
        router: bool,
        /// It answers a solicitation.
        solicited: bool,
        /// It shall replace a MAC address that is known already.
        replaces: bool,
        /// MAC address of the target.
        target_mac: Option<MacAddr>,
    },
}

impl NdpMessage {
    /// Reads an ICMPv6 message from `src` to `dst` (host byte order), with every check of RFC 4861 §6.1 and §7.1.
    ///
    /// # Errors
    /// [`NdpError`]; the message is to be ignored.
    pub fn parse(src: u128, dst: u128, hop_limit: u8, message: &[u8]) -> Result<NdpMessage, NdpError> {
        let Some(&[kind, code, _, _, a, b, c, d]) = message.first_chunk::<8>() else {
            return Err(NdpError::Truncated);
        };
        let is_read = matches!(kind, kind::ROUTER_SOLICITATION..=kind::NEIGHBOUR_ADVERTISEMENT);
        if !is_read {
            return Err(NdpError::Kind);
        }
        if hop_limit != HOP_LIMIT {
            return Err(NdpError::HopLimit);
        }
        let pseudo = pseudo_v6(src, dst, ICMPV6, message.len() as u32);
        if pseudo.with_bytes(message).fold() != 0xffff {
            return Err(NdpError::Checksum);
        }
        if code != 0 {
            return Err(NdpError::Code);
        }
        let rest = message.get(8..).unwrap_or(&[]);
        match kind {
            kind::ROUTER_SOLICITATION => router_solicitation(src, rest),
            kind::ROUTER_ADVERTISEMENT => router_advertisement(src, [a, b, c, d], rest),
            kind::NEIGHBOUR_SOLICITATION => neighbour_solicitation(src, dst, rest),
            _ => neighbour_advertisement(dst, a, rest),
        }
    }

    /// The whole IPv6 packet with this message, from `src` to `dst` (host byte order).
    #[must_use]
    pub fn packet(&self, src: u128, dst: u128) -> Vec<u8> {
        let mut out = vec![0; HEADER_LEN];
        self.write(&mut out);
        let body = out.get(HEADER_LEN..).unwrap_or(&[]);
        let sum = pseudo_v6(src, dst, ICMPV6, body.len() as u32).with_bytes(body).checksum();
        let header = Ipv6Header {
            traffic_class: 0,
            flow_label: 0,
            payload_len: body.len() as u16,
            next_header: ICMPV6,
            hop_limit: HOP_LIMIT,
            src,
            dst,
        };
        // Invariant: header and fixed part of a message have 48 octets at least.
        out[..HEADER_LEN].copy_from_slice(&header.to_bytes());
        out[HEADER_LEN + 2..HEADER_LEN + 4].copy_from_slice(&sum.to_be_bytes());
        out
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            NdpMessage::RouterSolicitation { source } => {
                out.extend_from_slice(&[kind::ROUTER_SOLICITATION, 0, 0, 0, 0, 0, 0, 0]);
                options::put_mac(out, options::SOURCE_MAC, *source);
            }
            NdpMessage::RouterAdvertisement(advertisement) => advertisement.write(out),
            NdpMessage::NeighbourSolicitation { target, source } => {
                out.extend_from_slice(&[kind::NEIGHBOUR_SOLICITATION, 0, 0, 0, 0, 0, 0, 0]);
                out.extend_from_slice(&target.to_be_bytes());
                options::put_mac(out, options::SOURCE_MAC, *source);
            }
            NdpMessage::NeighbourAdvertisement { target, router, solicited, replaces, target_mac } => {
                let flags = u8::from(*router) << 7 | u8::from(*solicited) << 6 | u8::from(*replaces) << 5;
                out.extend_from_slice(&[kind::NEIGHBOUR_ADVERTISEMENT, 0, 0, 0, flags, 0, 0, 0]);
                out.extend_from_slice(&target.to_be_bytes());
                options::put_mac(out, options::TARGET_MAC, *target_mac);
            }
        }
    }
}

impl RouterAdvertisement {
    fn write(&self, out: &mut Vec<u8>) {
        let flags = u8::from(self.managed) << 7 | u8::from(self.other) << 6;
        out.extend_from_slice(&[kind::ROUTER_ADVERTISEMENT, 0, 0, 0, self.hop_limit, flags]);
        out.extend_from_slice(&self.lifetime_s.to_be_bytes());
        out.extend_from_slice(&self.reachable_ms.to_be_bytes());
        out.extend_from_slice(&self.retrans_ms.to_be_bytes());
        options::put_mac(out, options::SOURCE_MAC, self.source);
        options::put_mtu(out, self.mtu);
        for prefix in &self.prefixes {
            prefix.write(out);
        }
        if let Some(servers) = &self.name_servers {
            servers.write(out);
        }
    }
}

/// RFC 4861 §6.1.1.
fn router_solicitation(src: u128, rest: &[u8]) -> Result<NdpMessage, NdpError> {
    let options = Options::read(rest)?;
    if src == 0 && options.source.is_some() {
        return Err(NdpError::Address);
    }
    Ok(NdpMessage::RouterSolicitation { source: options.source })
}

/// RFC 4861 §6.1.2.
fn router_advertisement(src: u128, head: [u8; 4], rest: &[u8]) -> Result<NdpMessage, NdpError> {
    if !is_link_local(src) {
        return Err(NdpError::Address);
    }
    let (times, rest) = rest.split_first_chunk::<8>().ok_or(NdpError::Truncated)?;
    let [r0, r1, r2, r3, t0, t1, t2, t3] = *times;
    let options = Options::read(rest)?;
    Ok(NdpMessage::RouterAdvertisement(RouterAdvertisement {
        hop_limit: head[0],
        managed: head[1] & 0x80 != 0,
        other: head[1] & 0x40 != 0,
        lifetime_s: u16::from_be_bytes([head[2], head[3]]),
        reachable_ms: u32::from_be_bytes([r0, r1, r2, r3]),
        retrans_ms: u32::from_be_bytes([t0, t1, t2, t3]),
        source: options.source,
        mtu: options.mtu,
        prefixes: options.prefixes,
        name_servers: options.name_servers,
    }))
}

/// RFC 4861 §7.1.1.
fn neighbour_solicitation(src: u128, dst: u128, rest: &[u8]) -> Result<NdpMessage, NdpError> {
    let (target, rest) = target(rest)?;
    let options = Options::read(rest)?;
    // Who has no address asks the target's own group, and has no MAC address to be remembered.
    if src == 0 && (dst != solicited_node(target) || options.source.is_some()) {
        return Err(NdpError::Address);
    }
    Ok(NdpMessage::NeighbourSolicitation { target, source: options.source })
}

/// RFC 4861 §7.1.2.
fn neighbour_advertisement(dst: u128, flags: u8, rest: &[u8]) -> Result<NdpMessage, NdpError> {
    let (target, rest) = target(rest)?;
    let options = Options::read(rest)?;
    let solicited = flags & 0x40 != 0;
    if is_multicast(dst) && solicited {
        return Err(NdpError::Address);
    }
    Ok(NdpMessage::NeighbourAdvertisement {
        target,
        router: flags & 0x80 != 0,
        solicited,
        replaces: flags & 0x20 != 0,
        target_mac: options.target,
    })
}

fn target(rest: &[u8]) -> Result<(u128, &[u8]), NdpError> {
    let (target, rest) = rest.split_first_chunk::<16>().ok_or(NdpError::Truncated)?;
    let target = u128::from_be_bytes(*target);
    if is_multicast(target) { Err(NdpError::Address) } else { Ok((target, rest)) }
}
