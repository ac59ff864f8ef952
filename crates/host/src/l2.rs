//! Whole frames with the tags of an interface.

use carrack_pipeline::snapshot::Vlan;
use carrack_wire::MacAddr;
use carrack_wire::ethernet::ethertype;

/// Shortest Ethernet frame without frame check sequence.
const FRAME_BYTES_MIN: usize = 60;

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
