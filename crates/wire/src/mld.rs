//! What a station says of the multicast groups it listens to (RFC 3810, and RFC 2710 to routers that speak no other): a
//! switch that watches these messages would otherwise keep the groups' packets from it.
//!
//! Messages are copied out, as they are read on the control path only.

#[cfg(test)]
mod tests;

use std::fmt;

use crate::checksum::pseudo_v6;
use crate::icmpv6::kind;
use crate::ipv6::next_header::{HOP_BY_HOP, ICMPV6};
use crate::ipv6::{HEADER_LEN, Ipv6Header, Ipv6View, is_link_local, is_multicast};

/// ff02::16, who listens to reports (RFC 3810 §5.2.14).
pub const REPORTS_TO: u128 = 0xff02 << 112 | 0x16;
/// Records of one report: as many as an IPv6 packet that every link takes has room for.
pub const RECORDS_MAX: usize = 60;

/// No router forwards these messages (RFC 3810 §5).
const HOP_LIMIT: u8 = 1;
/// A hop-by-hop header with the router alert of RFC 2711, value 0, filled up: what every such message has.
const ROUTER_ALERT: [u8; 8] = [ICMPV6, 0, 5, 2, 0, 0, 1, 0];
/// Octets of a query of version 1 and the least of version 2 (RFC 3810 §8.1).
const QUERY_LEN: [usize; 2] = [24, 28];

/// Version of the protocol that a router speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MldVersion {
    /// RFC 2710.
    V1,
    /// RFC 3810.
    V2,
}

/// A router asks who listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// To this group (host byte order), or 0 for all.
    pub group: u128,
    /// Milliseconds within which it wants to know.
    pub response_ms: u32,
    /// In which version it wants to know.
    pub version: MldVersion,
}

/// Why a query is ignored (RFC 3810 §6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MldError {
    /// Shorter than a query of any version.
    Truncated,
    /// Another message than a query.
    Kind,
    /// The checksum is wrong.
    Checksum,
    /// It may come from another link: not from a link-local address, a hop limit above 1, or without router alert.
    Forwarded,
    /// It asks for what is no group.
    Group,
}

impl fmt::Display for MldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MldError::Truncated => "multicast listener query is truncated",
            MldError::Kind => "ICMPv6 message is no multicast listener query",
            MldError::Checksum => "multicast listener query has a wrong checksum",
            MldError::Forwarded => "multicast listener query may come from another link",
            MldError::Group => "multicast listener query names no multicast group",
        })
    }
}

impl std::error::Error for MldError {}

impl Query {
    /// Reads a whole IPv6 packet.
    ///
    /// # Errors
    /// [`MldError`]; the packet is to be ignored.
    pub fn parse(packet: &Ipv6View<'_>) -> Result<Query, MldError> {
        let found = packet.extensions().map_err(|_| MldError::Truncated)?;
        let message = packet.packet().get(usize::from(found.offset)..).unwrap_or(&[]);
        if found.protocol != ICMPV6 || message.first() != Some(&kind::LISTENER_QUERY) {
            return Err(MldError::Kind);
        }
        let (Some(head), true) =
            (message.first_chunk::<24>(), QUERY_LEN[0] == message.len() || message.len() >= QUERY_LEN[1])
        else {
            return Err(MldError::Truncated);
        };
        let pseudo = pseudo_v6(packet.src(), packet.dst(), ICMPV6, message.len() as u32);
        if pseudo.with_bytes(message).fold() != 0xffff {
            return Err(MldError::Checksum);
        }
        let is_local = is_link_local(packet.src()) && packet.hop_limit() <= HOP_LIMIT;
        if !is_local || !found.has_router_alert {
            return Err(MldError::Forwarded);
        }
        let group = head.last_chunk().map_or(0, |group| u128::from_be_bytes(*group));
        if group != 0 && !is_multicast(group) {
            return Err(MldError::Group);
        }
        let code = u16::from_be_bytes([head[4], head[5]]);
        let version = if message.len() == QUERY_LEN[0] { MldVersion::V1 } else { MldVersion::V2 };
        Ok(Query { group, response_ms: response_ms(code, version), version })
    }
}

/// RFC 3810 §5.1.3: from 32,768 on a number of 12 bits and an exponent.
const fn response_ms(code: u16, version: MldVersion) -> u32 {
    match version {
        MldVersion::V2 if code & 0x8000 != 0 => (code as u32 & 0x0fff | 0x1000) << ((code >> 12 & 7) + 3),
        MldVersion::V1 | MldVersion::V2 => code as u32,
    }
}

/// What is said of a group, any source being welcome (RFC 3810 §5.2.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Said {
    /// That it is listened to, on request.
    Listening = 2,
    /// That it is listened to no more.
    Left = 3,
    /// That it is listened to from now on.
    Joined = 4,
}

/// The whole IPv6 packet that reports these groups (host byte order), at most [`RECORDS_MAX`] of them; `src` is a
/// link-local address, or 0 before there is one (RFC 3590 §4).
#[must_use]
pub fn report(src: u128, records: &[(Said, u128)]) -> Vec<u8> {
    let records = records.get(..RECORDS_MAX).unwrap_or(records);
    let mut message = vec![kind::LISTENER_REPORT_V2, 0, 0, 0, 0, 0];
    message.extend_from_slice(&(records.len() as u16).to_be_bytes());
    for (said, group) in records {
        message.extend_from_slice(&[*said as u8, 0, 0, 0]);
        message.extend_from_slice(&group.to_be_bytes());
    }
    packet(src, REPORTS_TO, message)
}

/// The same of one group for a router of version 1 (RFC 2710 §3), which is sent to the group itself.
#[must_use]
pub fn report_v1(src: u128, group: u128) -> Vec<u8> {
    let mut message = vec![kind::LISTENER_REPORT, 0, 0, 0, 0, 0, 0, 0];
    message.extend_from_slice(&group.to_be_bytes());
    packet(src, group, message)
}

fn packet(src: u128, dst: u128, mut message: Vec<u8>) -> Vec<u8> {
    let sum = pseudo_v6(src, dst, ICMPV6, message.len() as u32).with_bytes(&message).checksum();
    // Invariant: every message has 8 octets at least.
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let header = Ipv6Header {
        traffic_class: 0,
        flow_label: 0,
        payload_len: (ROUTER_ALERT.len() + message.len()) as u16,
        next_header: HOP_BY_HOP,
        hop_limit: HOP_LIMIT,
        src,
        dst,
    };
    let mut out = Vec::with_capacity(HEADER_LEN + ROUTER_ALERT.len() + message.len());
    out.extend_from_slice(&header.to_bytes());
    out.extend_from_slice(&ROUTER_ALERT);
    out.extend_from_slice(&message);
    out
}
