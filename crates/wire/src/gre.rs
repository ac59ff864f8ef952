//! GRE headers as far as translation needs them (RFC 2784, RFC 2890, RFC 2637).

#[cfg(test)]
mod tests;

use crate::be16;
use crate::ipv4::protocol;

const FLAG_CHECKSUM: u16 = 0x8000;
const FLAG_ROUTING: u16 = 0x4000;
const FLAG_KEY: u16 = 0x2000;
const FLAG_SEQUENCE: u16 = 0x1000;
const FLAG_ACK: u16 = 0x0080;
const VERSION_MASK: u16 = 0x0007;
const PROTOCOL_PPP: u16 = 0x880b;

/// Offset of a call's number in the header, octets.
pub const CALL_AT: usize = 6;
/// What takes the place of the port that a call's packet does not bear.
pub const CALL_PORT: u16 = 47;

/// The number of the call that a packet, or the start of one, is of: the one that the end it goes to has given it (RFC 2637
/// §4.1). `None` for what is no enhanced GRE of PPTP, and for 0, which is no number.
#[inline]
#[must_use]
pub fn call_of(ip_proto: u8, transport: &[u8]) -> Option<u16> {
    if ip_proto != protocol::GRE {
        return None;
    }
    let [flags, version, high, low, _, _, call @ ..] = transport.first_chunk::<8>()?;
    let flags = u16::from_be_bytes([*flags, *version]) & !(FLAG_SEQUENCE | FLAG_ACK);
    let is_one = flags == FLAG_KEY | 1 && u16::from_be_bytes([*high, *low]) == PROTOCOL_PPP;
    Some(u16::from_be_bytes(*call)).filter(|call| is_one && *call != 0)
}

/// A checked GRE packet of version 0, or 1 as PPTP uses it.
#[derive(Clone, Copy, Debug)]
pub struct GreView<'a> {
    head: &'a [u8; 4],
    packet: &'a [u8],
}

impl<'a> GreView<'a> {
    /// Checks the packet that fills `bytes`, an IP payload: version 0 or 1, and all announced fields present.
    /// `None` when it is neither, or has the routing fields that RFC 2784 §2.3 has receivers refuse.
    pub fn parse(bytes: &'a [u8]) -> Option<GreView<'a>> {
        let view = GreView { head: bytes.first_chunk()?, packet: bytes };
        let is_known = match view.version() {
            0 => view.flags() & FLAG_ROUTING == 0,
            1 => view.protocol() == PROTOCOL_PPP && view.flags() & FLAG_KEY != 0,
            _ => false,
        };
        (is_known && view.header_len() <= bytes.len()).then_some(view)
    }

    fn flags(&self) -> u16 {
        be16(self.head, 0)
    }

    /// 0, or 1 for PPTP.
    pub fn version(&self) -> u8 {
        (self.flags() & VERSION_MASK) as u8
    }

    /// EtherType of the payload.
    pub fn protocol(&self) -> u16 {
        be16(self.head, 2)
    }

    /// Header length in octets, optional fields included.
    pub fn header_len(&self) -> usize {
        let flags = self.flags();
        let has = |flag: u16| usize::from(flags & flag != 0) * 4;
        let ack = if self.version() == 1 { has(FLAG_ACK) } else { 0 };
        4 + has(FLAG_CHECKSUM) + has(FLAG_KEY) + has(FLAG_SEQUENCE) + ack
    }

    /// The key (RFC 2890 §2.1), if present.
    pub fn key(&self) -> Option<u32> {
        if self.flags() & FLAG_KEY == 0 {
            return None;
        }
        let at = if self.flags() & FLAG_CHECKSUM != 0 { 8 } else { 4 };
        self.packet.get(at..)?.first_chunk().map(|key| u32::from_be_bytes(*key))
    }

    /// The call identifier of PPTP (RFC 2637 §4.1), if this is version 1.
    pub fn call_id(&self) -> Option<u16> {
        if self.version() == 1 { self.key().map(|key| key as u16) } else { None }
    }

    /// The octets behind the header.
    pub fn payload(&self) -> &'a [u8] {
        self.packet.get(self.header_len()..).unwrap_or(&[])
    }
}
