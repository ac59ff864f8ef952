//! GRE headers as far as translation needs them (RFC 2784, RFC 2890, RFC 2637).

#[cfg(test)]
mod tests;

use crate::be16;

const FLAG_CHECKSUM: u16 = 0x8000;
const FLAG_ROUTING: u16 = 0x4000;
const FLAG_KEY: u16 = 0x2000;
const FLAG_SEQUENCE: u16 = 0x1000;
const FLAG_ACK: u16 = 0x0080;
const VERSION_MASK: u16 = 0x0007;
const PROTOCOL_PPP: u16 = 0x880b;

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
