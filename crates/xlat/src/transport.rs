//! What translation changes in a transport header.

use crate::{Ports, Refused};
use carrack_wire::checksum::Sum;
use carrack_wire::ipv4::protocol;

/// Protocols with a pseudo-header that only the checksum field tells apart from UDP.
const DCCP: u8 = 33;
const UDP_LITE: u8 = 136;

/// Octets from the start of a transport header to its ports' end.
const PORTS_LEN: usize = 4;

/// Where the checksum that covers the IP addresses is; `None` for protocols without, or not known here, which are
/// translated all the same (RFC 7915 §4.5, §5.5).
#[inline(always)]
pub(crate) const fn checksum_at(number: u8) -> Option<usize> {
    match number {
        protocol::TCP => Some(16),
        protocol::UDP | DCCP | UDP_LITE => Some(6),
        _ => None,
    }
}

/// Brings ports and checksum of a transport header up to the new addresses. `change` is what they change in a
/// checksum: old ones taken away, new ones added. An absent UDP checksum stays absent. Protocols without a checksum
/// known here stay as they are.
///
/// # Errors
/// [`Refused::TransportCut`] when the checksum field is not there; nothing is changed then.
#[inline(always)]
pub(crate) fn patch(transport: &mut [u8], number: u8, ports: Ports, change: Sum) -> Result<(), Refused> {
    let Some(at) = checksum_at(number) else { return Ok(()) };
    let Some(head) = transport.get_mut(..at + 2) else { return Err(Refused::TransportCut) };
    patch_quoted(head, number, ports, change);
    Ok(())
}

/// As [`patch`] for a packet quoted in an ICMP error, of which only the leading octets may be there: what is
/// there is brought up to the new addresses.
#[inline(always)]
pub(crate) fn patch_quoted(transport: &mut [u8], number: u8, ports: Ports, change: Sum) {
    let Some(at) = checksum_at(number) else { return };
    let change = set_ports(transport, ports, change);
    let Some(field) = transport.get_mut(at..at + 2).and_then(|field| field.as_mut_array::<2>()) else {
        return;
    };
    let old = u16::from_be_bytes(*field);
    // RFC 768, RFC 3828 §3.1: a computed zero is sent as all ones.
    let new = match number {
        protocol::UDP | UDP_LITE => change.update_udp(old),
        _ => change.update(old),
    };
    *field = new.to_be_bytes();
}

/// Sets the ports and adds what that changes.
#[inline(always)]
fn set_ports(transport: &mut [u8], ports: Ports, change: Sum) -> Sum {
    let Some(head) = transport.first_chunk_mut::<PORTS_LEN>() else { return change };
    let old = u32::from_be_bytes(*head);
    let src = ports.src.map_or(old & 0xffff_0000, |port| u32::from(port) << 16);
    let dst = ports.dst.map_or(old & 0xffff, u32::from);
    *head = (src | dst).to_be_bytes();
    change.without_u32(old).with_u32(src | dst)
}
