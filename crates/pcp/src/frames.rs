//! Datagrams of whole frames, and frames around datagrams.

use std::net::IpAddr;

use carrack_base::IfIndex;
use carrack_host::link_frame;
use carrack_pipeline::snapshot::Interface;
use carrack_wire::checksum;
use carrack_wire::ethernet::ethertype;
use carrack_wire::ipv4::{FLAG_DF, Ipv4Header, Ipv4View, protocol};
use carrack_wire::ipv6::{Ipv6Header, Ipv6View};
use carrack_wire::udp::UdpView;
use carrack_wire::{MacAddr, parse_l2};

/// UDP port of the server (RFC 6887 §19.1, RFC 6886 §3.1).
pub(crate) const SERVER_PORT: u16 = 5_351;
const UDP_BYTES: usize = 8;

/// Where a datagram came from and went to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ends {
    pub(crate) mac: MacAddr,
    pub(crate) from: IpAddr,
    pub(crate) from_port: u16,
    pub(crate) to: IpAddr,
}

/// Whom to answer, and on which interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Return {
    pub(crate) interface: IfIndex,
    pub(crate) ends: Ends,
}

/// The UDP datagram to the server in a frame; `None` when it is something else, in part, or damaged.
pub(crate) fn read(frame: &[u8]) -> Option<(Ends, &[u8])> {
    let l2 = parse_l2(frame).ok()?;
    let packet = frame.get(usize::from(l2.payload_offset)..)?;
    let (from, to, udp) = match l2.ethertype {
        ethertype::IPV4 => {
            let ip = Ipv4View::parse(packet).ok().filter(|ip| !ip.is_fragment())?;
            (ip.protocol() == protocol::UDP).then_some(())?;
            let udp = UdpView::parse(ip.payload()).ok()?;
            udp.checksum_ok(ip.src(), ip.dst()).then_some(())?;
            (IpAddr::V4(ip.src_addr()), IpAddr::V4(ip.dst_addr()), udp)
        }
        ethertype::IPV6 => {
            let ip = Ipv6View::parse(packet).ok()?;
            (ip.next_header() == protocol::UDP).then_some(())?;
            let udp = UdpView::parse(ip.payload()).ok()?;
            udp.checksum_ok_v6(ip.src(), ip.dst()).then_some(())?;
            (IpAddr::V6(ip.src_addr()), IpAddr::V6(ip.dst_addr()), udp)
        }
        _ => return None,
    };
    let ends = Ends { mac: l2.src, from, from_port: udp.src_port(), to };
    (udp.dst_port() == SERVER_PORT && l2.src.is_station()).then_some((ends, udp.payload()))
}

/// A whole frame with a datagram of the server. `None` when the addresses are of two versions.
pub(crate) fn write(
    on: &Interface,
    to_mac: MacAddr,
    (from, to): (IpAddr, IpAddr),
    to_port: u16,
    hops: u8,
    payload: &[u8],
) -> Option<Vec<u8>> {
    let length = (UDP_BYTES + payload.len()) as u16;
    let mut udp = Vec::with_capacity(UDP_BYTES + payload.len());
    udp.extend_from_slice(&SERVER_PORT.to_be_bytes());
    udp.extend_from_slice(&to_port.to_be_bytes());
    udp.extend_from_slice(&length.to_be_bytes());
    udp.extend_from_slice(&[0, 0]);
    udp.extend_from_slice(payload);
    let (kind, pseudo, header) = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let (src, dst) = (from.into(), to.into());
            let header = Ipv4Header {
                tos: 0,
                payload_len: length,
                identification: 0,
                flags_and_offset: FLAG_DF,
                ttl: hops,
                protocol: protocol::UDP,
                src,
                dst,
            };
            let pseudo = checksum::pseudo_v4(src, dst, protocol::UDP, length);
            (ethertype::IPV4, pseudo, header.to_bytes().to_vec())
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let (src, dst) = (from.into(), to.into());
            let header = Ipv6Header {
                traffic_class: 0,
                flow_label: 0,
                payload_len: length,
                next_header: protocol::UDP,
                hop_limit: hops,
                src,
                dst,
            };
            let pseudo = checksum::pseudo_v6(src, dst, protocol::UDP, length.into());
            (ethertype::IPV6, pseudo, header.to_bytes().to_vec())
        }
        _ => return None,
    };
    let sum = pseudo.with_bytes(&udp).udp_checksum().to_be_bytes();
    if let Some(place) = udp.get_mut(6..8) {
        place.copy_from_slice(&sum);
    }
    let packet = [header, udp].concat();
    Some(link_frame(to_mac, on.mac, on.vlan, kind, &packet))
}
