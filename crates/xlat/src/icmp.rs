//! ICMP messages of the two versions: queries, and the tables for errors (RFC 7915 §4.2 and §5.2).

#[cfg(test)]
mod tests;

use crate::to_v6::icmp_pseudo;
use crate::{Ports, Refused, V6Way};
use carrack_wire::checksum::Sum;
use carrack_wire::{Delta, icmpv4, icmpv6, ipv6};

/// Octets of IPv4 packet up to which a router may have to fragment at once (RFC 1191 §7.1), largest first, as far
/// as they are not below the smallest MTU of IPv6.
const PLATEAUS: [u16; 7] = [65535, 32000, 17914, 8166, 4352, 2002, 1492];
/// What a fragment header takes.
const FRAGMENT_HEADER_LEN: u32 = ipv6::FRAGMENT_HEADER_LEN as u32;
/// What an IPv6 header takes more than an IPv4 header.
const GROWTH: u32 = 20;
const MTU_V6_MIN: u32 = ipv6::MTU_MIN as u32;

/// Type, code and the four octets behind the checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Message type.
    pub kind: u8,
    /// Code.
    pub code: u8,
    /// The word that differs by type, without a length attribute (RFC 4884).
    pub rest: u32,
}

/// What the next hops on both sides of the translator take, in octets of their own IP version's packets;
/// `u16::MAX` when it is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mtus {
    /// IPv4 side.
    pub v4: u16,
    /// IPv6 side.
    pub v6: u16,
}

impl Mtus {
    /// Nothing is known.
    pub const UNKNOWN: Mtus = Mtus { v4: u16::MAX, v6: u16::MAX };
}

/// The ICMPv6 error for an ICMPv4 error about a packet whose total length was `total_length`; `None` when it has
/// no counterpart and is dropped in silence (RFC 7915 §4.2).
pub fn error_head_to_v6(head: Head, total_length: u16, mtus: Mtus) -> Option<Head> {
    use icmpv6::{kind, parameter, unreachable};
    let unreachable = |code| Some(Head { kind: kind::DESTINATION_UNREACHABLE, code, rest: 0 });
    let problem = |code, rest| Some(Head { kind: kind::PARAMETER_PROBLEM, code, rest });
    match (head.kind, head.code) {
        (icmpv4::kind::DESTINATION_UNREACHABLE, code) => match code {
            0 | 1 | 5..=8 | 11 | 12 => unreachable(unreachable::NO_ROUTE),
            // The pointer is the IPv6 "next header" field.
            2 => problem(parameter::UNRECOGNISED_NEXT_HEADER, 6),
            3 => unreachable(unreachable::PORT),
            4 => {
                let rest = mtu_to_v6(head.rest as u16, total_length, mtus);
                Some(Head { kind: kind::PACKET_TOO_BIG, code: 0, rest })
            }
            9 | 10 | 13 | 15 => unreachable(unreachable::ADMIN_PROHIBITED),
            _ => None,
        },
        (icmpv4::kind::TIME_EXCEEDED, code) => Some(Head { kind: kind::TIME_EXCEEDED, code, rest: 0 }),
        (icmpv4::kind::PARAMETER_PROBLEM, 0 | 2) => {
            problem(parameter::ERRONEOUS_FIELD, pointer_to_v6((head.rest >> 24) as u8)?)
        }
        _ => None,
    }
}

/// The ICMPv4 error for an ICMPv6 error about a packet with or without a fragment header; `None` when it has no
/// counterpart and is dropped in silence (RFC 7915 §5.2).
pub fn error_head_to_v4(head: Head, has_fragment_header: bool, mtus: Mtus) -> Option<Head> {
    use icmpv4::{kind, unreachable};
    let unreachable = |code, rest| Some(Head { kind: kind::DESTINATION_UNREACHABLE, code, rest });
    match (head.kind, head.code) {
        (icmpv6::kind::DESTINATION_UNREACHABLE, 0 | 2 | 3) => unreachable(unreachable::HOST, 0),
        // Code 10: communication with the destination host is administratively prohibited.
        (icmpv6::kind::DESTINATION_UNREACHABLE, 1) => unreachable(10, 0),
        (icmpv6::kind::DESTINATION_UNREACHABLE, 4) => unreachable(unreachable::PORT, 0),
        (icmpv6::kind::PACKET_TOO_BIG, _) => {
            let mtu = mtu_to_v4(head.rest, has_fragment_header, mtus);
            unreachable(unreachable::FRAGMENTATION_NEEDED, mtu.into())
        }
        (icmpv6::kind::TIME_EXCEEDED, code) => Some(Head { kind: kind::TIME_EXCEEDED, code, rest: 0 }),
        (icmpv6::kind::PARAMETER_PROBLEM, 0) => {
            let pointer = pointer_to_v4(head.rest)?;
            Some(Head { kind: kind::PARAMETER_PROBLEM, code: 0, rest: u32::from(pointer) << 24 })
        }
        (icmpv6::kind::PARAMETER_PROBLEM, 1) => unreachable(unreachable::PROTOCOL, 0),
        _ => None,
    }
}

/// The MTU of a "packet too big" for that of a "fragmentation needed" about a packet of `total_length` octets
/// (RFC 7915 §4.2). A router that does not tell (0) is assumed to have the next lower plateau of RFC 1191 §7.
pub fn mtu_to_v6(mtu: u16, total_length: u16, mtus: Mtus) -> u32 {
    let told = match mtu {
        0 => {
            PLATEAUS.iter().find(|plateau| **plateau < total_length).map_or(0, |plateau| u32::from(*plateau))
        }
        _ => u32::from(mtu) + GROWTH,
    };
    told.min(mtus.v6.into()).min(u32::from(mtus.v4) + GROWTH).max(MTU_V6_MIN)
}

/// The MTU of a "fragmentation needed" for that of a "packet too big" (RFC 7915 §5.2), less the fragment header
/// when the packet in error has one. No IPv6 link has an MTU below 1280, so less than that counts as 1280
/// (RFC 8201 §4).
pub fn mtu_to_v4(mtu: u32, has_fragment_header: bool, mtus: Mtus) -> u16 {
    let growth = if has_fragment_header { GROWTH + FRAGMENT_HEADER_LEN } else { GROWTH };
    let least = mtu.min(mtus.v6.into()).max(MTU_V6_MIN) - growth;
    least.min(mtus.v4.into()) as u16
}

/// RFC 7915 figure 3.
fn pointer_to_v6(pointer: u8) -> Option<u32> {
    match pointer {
        0 | 1 => Some(pointer.into()),
        2 | 3 => Some(4),
        8 => Some(7),
        9 => Some(6),
        12..=15 => Some(8),
        16..=19 => Some(24),
        _ => None,
    }
}

/// RFC 7915 figure 6.
fn pointer_to_v4(pointer: u32) -> Option<u8> {
    match pointer {
        0 | 1 => Some(pointer as u8),
        4 | 5 => Some(2),
        6 => Some(9),
        7 => Some(8),
        8..=23 => Some(12),
        24..=39 => Some(16),
        _ => None,
    }
}

/// Turns the ICMPv6 message that fills `message` into ICMPv4, when it is an echo. `old` is the sum of its IPv6
/// addresses, which its checksum covers and the new one does not.
pub(crate) fn query_to_v4(
    message: &mut [u8],
    is_fragment: bool,
    ports: Ports,
    old: Sum,
) -> Result<(), Refused> {
    if is_fragment {
        return Err(Refused::FragmentedIcmpV6);
    }
    let length = message.len();
    echo_to_v4(message, length, ports, old)
}

/// As [`query_to_v4`] for a message of `length` octets of which at least the header is there.
pub(crate) fn echo_to_v4(message: &mut [u8], length: usize, ports: Ports, old: Sum) -> Result<(), Refused> {
    let pseudo = old.with_u32(length as u32).with_u16(u16::from(ipv6::next_header::ICMPV6));
    let kind = match message.first() {
        Some(&icmpv6::kind::ECHO_REQUEST) => icmpv4::kind::ECHO_REQUEST,
        Some(&icmpv6::kind::ECHO_REPLY) => icmpv4::kind::ECHO_REPLY,
        Some(0..128) => return Err(Refused::OtherFunction),
        Some(_) => return Err(Refused::IcmpWithoutCounterpart),
        None => return Err(Refused::TransportCut),
    };
    change_echo(message, kind, ports, pseudo, Sum::ZERO)
}

/// Turns the ICMPv4 message that fills `message` into ICMPv6, when it is an echo.
pub(crate) fn query_to_v6(message: &mut [u8], is_fragment: bool, way: &V6Way) -> Result<(), Refused> {
    if is_fragment {
        return Err(Refused::FragmentedIcmpV4);
    }
    let length = message.len();
    echo_to_v6(message, length, way)
}

/// As [`query_to_v6`] for a message of `length` octets of which at least the header is there.
pub(crate) fn echo_to_v6(message: &mut [u8], length: usize, way: &V6Way) -> Result<(), Refused> {
    let kind = match message.first() {
        Some(&icmpv4::kind::ECHO_REQUEST) => icmpv6::kind::ECHO_REQUEST,
        Some(&icmpv4::kind::ECHO_REPLY) => icmpv6::kind::ECHO_REPLY,
        Some(kind) if icmpv4::class_of(*kind) == icmpv4::Class::Error => return Err(Refused::OtherFunction),
        Some(_) => return Err(Refused::IcmpWithoutCounterpart),
        None => return Err(Refused::TransportCut),
    };
    change_echo(message, kind, way.ports, Sum::ZERO, icmp_pseudo(way, length))
}

/// Sets type and identifier; `old` and `new` are what else the checksum covers before and after.
fn change_echo(message: &mut [u8], kind: u8, ports: Ports, old: Sum, new: Sum) -> Result<(), Refused> {
    let Some(head) = message.first_chunk_mut::<{ icmpv4::HEADER_LEN }>() else {
        return Err(Refused::TransportCut);
    };
    let [old_kind, code, _, _, i0, i1, ..] = *head;
    let old_identifier = u16::from_be_bytes([i0, i1]);
    let identifier = ports.identifier().unwrap_or(old_identifier);
    let old = old.with_u16(u16::from_be_bytes([old_kind, code])).with_u16(old_identifier);
    let new = new.with_u16(u16::from_be_bytes([kind, code])).with_u16(identifier);
    let [i0, i1] = identifier.to_be_bytes();
    [head[0], head[4], head[5]] = [kind, i0, i1];
    Delta::of_sums(old, new).apply_icmp(head);
    Ok(())
}
