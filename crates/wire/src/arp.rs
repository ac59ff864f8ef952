//! ARP for IPv4 over Ethernet (RFC 826).

#[cfg(test)]
mod tests;

use crate::ethernet::{MacAddr, ethertype};
use crate::{be16, be32};
use std::fmt;

/// Octets of an ARP packet for Ethernet and IPv4.
pub const PACKET_LEN: usize = 28;

const HARDWARE_ETHERNET: u16 = 1;

/// What the sender wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Who has the target address?
    Request,
    /// The sender has the sender address.
    Reply,
}

/// Why bytes are not ARP for IPv4 over Ethernet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArpError {
    /// Fewer than 28 octets.
    Truncated,
    /// Other hardware, other protocol, or address lengths that fit neither.
    NotEthernetIpv4,
    /// Neither request nor reply.
    BadOperation,
}

impl fmt::Display for ArpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ArpError::Truncated => "ARP packet is shorter than 28 octets",
            ArpError::NotEthernetIpv4 => "ARP packet is not about IPv4 over Ethernet",
            ArpError::BadOperation => "ARP operation is neither request nor reply",
        })
    }
}

impl std::error::Error for ArpError {}

/// An ARP packet. It is copied out, as it is read on the control path only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArpPacket {
    /// Request or reply.
    pub operation: Operation,
    /// Hardware address of the sender.
    pub sender_mac: MacAddr,
    /// IPv4 address of the sender, host order; 0 in a probe (RFC 5227).
    pub sender_ip: u32,
    /// Hardware address of the target; meaningless in a request.
    pub target_mac: MacAddr,
    /// IPv4 address of the target, host order.
    pub target_ip: u32,
}

impl ArpPacket {
    /// Reads the packet at the start of `bytes`; padding behind it is ignored.
    ///
    /// # Errors
    /// [`ArpError`].
    pub fn parse(bytes: &[u8]) -> Result<ArpPacket, ArpError> {
        let packet = bytes.first_chunk::<PACKET_LEN>().ok_or(ArpError::Truncated)?;
        let is_ours = be16(packet, 0) == HARDWARE_ETHERNET
            && be16(packet, 2) == ethertype::IPV4
            && packet[4] == 6
            && packet[5] == 4;
        if !is_ours {
            return Err(ArpError::NotEthernetIpv4);
        }
        let operation = match be16(packet, 6) {
            1 => Operation::Request,
            2 => Operation::Reply,
            _ => return Err(ArpError::BadOperation),
        };
        let mac = |at: usize| {
            // Invariant: called with 8 and 18, and the packet has 28 octets.
            let mut octets = [0u8; 6];
            octets.copy_from_slice(&packet[at..at + 6]);
            MacAddr(octets)
        };
        Ok(ArpPacket {
            operation,
            sender_mac: mac(8),
            sender_ip: be32(packet, 14),
            target_mac: mac(18),
            target_ip: be32(packet, 24),
        })
    }

    /// The 28 octets.
    pub fn to_bytes(&self) -> [u8; PACKET_LEN] {
        let mut out = [0u8; PACKET_LEN];
        // Invariant: constant ranges within 28 octets.
        out[..6].copy_from_slice(&[0, 1, 8, 0, 6, 4]);
        out[7] = if self.operation == Operation::Request { 1 } else { 2 };
        out[8..14].copy_from_slice(&self.sender_mac.0);
        out[14..18].copy_from_slice(&self.sender_ip.to_be_bytes());
        out[18..24].copy_from_slice(&self.target_mac.0);
        out[24..28].copy_from_slice(&self.target_ip.to_be_bytes());
        out
    }

    /// Asks who has `target_ip`.
    pub fn request(sender_mac: MacAddr, sender_ip: u32, target_ip: u32) -> ArpPacket {
        ArpPacket {
            operation: Operation::Request,
            sender_mac,
            sender_ip,
            target_mac: MacAddr::ZERO,
            target_ip,
        }
    }

    /// Tells everybody that `mac` has `ip`: a request for one's own address (RFC 5227 §3).
    pub fn gratuitous(mac: MacAddr, ip: u32) -> ArpPacket {
        ArpPacket::request(mac, ip, ip)
    }

    /// Answers this request: `mac` has the target address.
    #[must_use]
    pub fn reply(&self, mac: MacAddr) -> ArpPacket {
        ArpPacket {
            operation: Operation::Reply,
            sender_mac: mac,
            sender_ip: self.target_ip,
            target_mac: self.sender_mac,
            target_ip: self.sender_ip,
        }
    }

    /// Whether the sender only announces its own address.
    pub fn is_gratuitous(&self) -> bool {
        self.sender_ip == self.target_ip
    }
}
