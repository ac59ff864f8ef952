//! Ethernet headers with the tags of an interface, and ARP packets as seen and as written (RFC 826).

use carrack_pipeline::snapshot::Vlan;
use carrack_wire::MacAddr;
use carrack_wire::ethernet::ethertype;

/// ARP operation: who has this address?
pub const REQUEST: u16 = 1;
/// ARP operation: I have it.
pub const REPLY: u16 = 2;

/// Octets of an Ethernet and IPv4 ARP packet.
const ARP_LEN: usize = 28;
/// Shortest Ethernet frame without frame check sequence.
const FRAME_BYTES_MIN: usize = 60;

/// An ARP packet for Ethernet and IPv4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arp {
    /// [`REQUEST`] or [`REPLY`].
    pub operation: u16,
    /// `ar$sha`.
    pub sender_mac: MacAddr,
    /// `ar$spa`, host byte order; 0 in an address probe (RFC 5227 §1.1).
    pub sender_ip: u32,
    /// `ar$tha`.
    pub target_mac: MacAddr,
    /// `ar$tpa`, host byte order.
    pub target_ip: u32,
}

impl Arp {
    /// Reads the packet at the start of `bytes`; `None` unless it is a whole request or reply for Ethernet and IPv4
    /// from a sender that can be one station.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let octets: &[u8; ARP_LEN] = bytes.first_chunk()?;
        let (head, rest) = octets.split_first_chunk::<8>()?;
        let (sender_mac, rest) = rest.split_first_chunk::<6>()?;
        let (sender_ip, rest) = rest.split_first_chunk::<4>()?;
        let (target_mac, rest) = rest.split_first_chunk::<6>()?;
        let (target_ip, _) = rest.split_first_chunk::<4>()?;
        let [0, 1, 8, 0, 6, 4, 0, operation] = *head else { return None };
        let arp = Self {
            operation: u16::from(operation),
            sender_mac: MacAddr(*sender_mac),
            sender_ip: u32::from_be_bytes(*sender_ip),
            target_mac: MacAddr(*target_mac),
            target_ip: u32::from_be_bytes(*target_ip),
        };
        let known = matches!(arp.operation, REQUEST | REPLY);
        (known && arp.sender_mac.is_station()).then_some(arp)
    }

    /// The packet's octets.
    pub fn to_bytes(self) -> [u8; ARP_LEN] {
        let mut out = [0; ARP_LEN];
        let [high, low] = self.operation.to_be_bytes();
        out[..8].copy_from_slice(&[0, 1, 8, 0, 6, 4, high, low]);
        out[8..14].copy_from_slice(&self.sender_mac.0);
        out[14..18].copy_from_slice(&self.sender_ip.to_be_bytes());
        out[18..24].copy_from_slice(&self.target_mac.0);
        out[24..].copy_from_slice(&self.target_ip.to_be_bytes());
        out
    }
}

/// A whole frame: header, the tags of `vlan`, `payload`, padded to the shortest frame Ethernet allows.
pub fn frame(dst: MacAddr, src: MacAddr, vlan: Vlan, ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity((22 + payload.len()).max(FRAME_BYTES_MIN));
    out.extend_from_slice(&dst.0);
    out.extend_from_slice(&src.0);
    match vlan {
        Vlan::None => {}
        Vlan::Single(id) => push_tag(&mut out, ethertype::VLAN, id),
        Vlan::Double { outer, inner, dot1ad } => {
            push_tag(&mut out, if dot1ad { ethertype::QINQ } else { ethertype::VLAN }, outer);
            push_tag(&mut out, ethertype::VLAN, inner);
        }
    }
    out.extend_from_slice(&ethertype.to_be_bytes());
    out.extend_from_slice(payload);
    if out.len() < FRAME_BYTES_MIN {
        out.resize(FRAME_BYTES_MIN, 0);
    }
    out
}

fn push_tag(out: &mut Vec<u8>, tpid: u16, id: u16) {
    out.extend_from_slice(&tpid.to_be_bytes());
    out.extend_from_slice(&(id & 0x0fff).to_be_bytes());
}
