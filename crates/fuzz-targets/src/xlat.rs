//! Header translation: any packet is translated to one that is whole and right, or refused and left as it was.

use carrack_wire::fragment6::Fragments6;
use carrack_wire::icmpv4::Icmpv4Mut;
use carrack_wire::icmpv6::Icmpv6Mut;
use carrack_wire::ipv6::Extensions;
use carrack_wire::{Icmpv4View, Icmpv6View, Ipv4View, Ipv6View, TcpView, UdpView};
use carrack_xlat::{
    Moved, Mtus, Ports, ROOM, Refused, Rules, V4ErrorWay, V4Way, V6ErrorWay, V6Way, error_to_v4, error_to_v6,
    to_v4, to_v6,
};

const SIX: [u128; 2] = [0x0064_ff9b << 96 | 0xc633_6407, 0x2001_0db8 << 96 | 1];
const FOUR: [u32; 2] = [0xc633_6407, 0xc000_0221];
/// Room for an error that reveals its source.
const ROOM_MAX: usize = ROOM + 40;

/// The target: an octet of choices, then a packet from its IP header on. The choices repair what a random packet
/// would fail by, and set ports.
pub fn translate(input: &[u8]) {
    let Some((how, packet)) = input.split_first() else { return };
    let ports = if how & 1 != 0 { Ports { src: Some(5000), dst: None } } else { Ports::KEEP };
    let mtu = if how & 2 != 0 { 1400 } else { u16::MAX };
    let mut buffer = vec![0; ROOM_MAX];
    buffer.extend_from_slice(packet);
    match packet.first().map(|first| first >> 4) {
        Some(6) => six(&mut buffer, how & 4 != 0, ports, mtu),
        Some(4) => four(&mut buffer, how & 4 != 0, ports, mtu),
        _ => {}
    }
}

fn six(buffer: &mut Vec<u8>, is_repaired: bool, ports: Ports, mtu: u16) {
    if is_repaired {
        let length = (buffer.len() - ROOM_MAX).saturating_sub(40) as u16;
        if let Some(field) = buffer.get_mut(ROOM_MAX + 4..ROOM_MAX + 6) {
            field.copy_from_slice(&length.to_be_bytes());
        }
    }
    let Ok(view) = Ipv6View::parse(&buffer[ROOM_MAX..]) else { return };
    let Ok(found) = view.extensions() else { return };
    let (length, src, dst) = (view.packet().len(), view.src(), view.dst());
    buffer.truncate(ROOM_MAX + length);
    let transport = ROOM_MAX + usize::from(found.offset);
    let is_whole_icmp = found.protocol == 58 && !found.is_fragment();
    if is_repaired
        && is_whole_icmp
        && let Ok(mut icmp) = Icmpv6Mut::parse(&mut buffer[transport..])
    {
        icmp.fill_checksum(src, dst);
    }
    let before = buffer.clone();
    let way = V4Way { src: FOUR[0], dst: FOUR[1], ports, identification: 7, mtu };
    let rules = Rules::default();
    let mut is_error = false;
    let mut moved = to_v4(&mut buffer[ROOM_MAX..], &found, &way, &rules).map(|moved| Moved {
        start: moved.start + ROOM_MAX,
        end: moved.end + ROOM_MAX,
        ..moved
    });
    if moved == Err(Refused::OtherFunction) {
        is_error = true;
        let reveal = if ports == Ports::KEEP { None } else { Some(src) };
        let way = V4ErrorWay { outer: way, inner: way, mtus: Mtus::UNKNOWN, reveal };
        moved = error_to_v4(buffer, ROOM_MAX, &found, &way, &rules);
    }
    let Some(moved) = judge(moved, buffer, &before) else { return };
    let view = Ipv4View::parse(&buffer[moved.start..moved.end]).expect("an IPv4 packet");
    assert!(view.checksum_ok() && view.packet().len() == moved.end - moved.start);
    assert_eq!((view.src(), view.dst(), moved.cut_to), (FOUR[0], FOUR[1], None));
    assert_eq!(view.is_fragment(), found.is_fragment());
    if is_error {
        assert!(view.packet().len() <= 576);
        let icmp = Icmpv4View::parse(view.payload()).expect("an ICMP message");
        assert!(icmp.checksum_ok() && icmp.embedded().expect("a quotation").checksum_ok());
    } else if !view.is_fragment() {
        // Without a routing header at its end the pseudo-header is that of the IPv6 header.
        let old = &before[transport..];
        assert_eq!(is_right_v6(old, &found, src, dst), is_right_v4(&view));
    }
}

fn four(buffer: &mut Vec<u8>, is_repaired: bool, ports: Ports, mtu: u16) {
    if is_repaired {
        let length = (buffer.len() - ROOM_MAX) as u16;
        if let Some(field) = buffer.get_mut(ROOM_MAX + 2..ROOM_MAX + 4) {
            field.copy_from_slice(&length.to_be_bytes());
        }
    }
    let Ok(view) = Ipv4View::parse(&buffer[ROOM_MAX..]) else { return };
    let (length, transport) = (view.packet().len(), ROOM_MAX + view.header_len());
    let (is_fragment, is_icmp) = (view.is_fragment(), view.protocol() == 1);
    buffer.truncate(ROOM_MAX + length);
    if is_repaired
        && is_icmp
        && let Ok(mut icmp) = Icmpv4Mut::parse(&mut buffer[transport..])
    {
        icmp.fill_checksum();
    }
    let before = buffer.clone();
    let way = V6Way { src: SIX[0], dst: SIX[1], ports, mtu };
    let rules = Rules::default();
    let mut moved = to_v6(buffer, ROOM_MAX, &way, &rules);
    let mut is_error = false;
    if moved == Err(Refused::OtherFunction) {
        is_error = true;
        let way = V6ErrorWay { outer: way, inner: way, mtus: Mtus::UNKNOWN };
        moved = error_to_v6(buffer, ROOM_MAX, &way, &rules);
    }
    let Some(moved) = judge(moved, buffer, &before) else { return };
    let view = Ipv6View::parse(&buffer[moved.start..moved.end]).expect("an IPv6 packet");
    let found = view.extensions().expect("a chain");
    assert_eq!((view.src(), view.dst()), (SIX[0], SIX[1]));
    assert_eq!(view.packet().len(), moved.end - moved.start);
    if let Some(mtu_to) = moved.cut_to {
        assert!(found.fragment.is_some());
        if let Ok(plan) = Fragments6::plan(view, mtu_to.into(), 0) {
            assert!(plan.into_iter().all(|fragment| fragment.total_len() <= mtu_to.into()));
        }
    }
    if is_error {
        assert!(view.packet().len() <= 1280 && view.next_header() == 58);
        let icmp = Icmpv6View::parse(view.payload()).expect("an ICMPv6 message");
        assert!(icmp.checksum_ok(SIX[0], SIX[1]));
        icmp.embedded().expect("a quotation");
    } else if !is_fragment && before[transport..].iter().any(|octet| *octet != 0) {
        // Of zeros alone the sum is +0, which ought to be -0: no update tells the two apart (RFC 1624 §3).
        let old = Ipv4View::parse(&before[ROOM_MAX..]).expect("as above");
        let new = &buffer[moved.start + usize::from(found.offset)..];
        assert_eq!(is_right_v4(&old), is_right_v6(new, &found, SIX[0], SIX[1]));
    }
}

/// Where the packet went; a refused one must be as it was.
fn judge(moved: Result<Moved, Refused>, buffer: &[u8], before: &[u8]) -> Option<Moved> {
    match moved {
        Ok(moved) => {
            assert!(moved.start < moved.end && moved.end == buffer.len());
            Some(moved)
        }
        Err(refused) => {
            assert_eq!(buffer, before, "{refused}");
            assert_ne!(refused, Refused::NoRoom, "{} octets", buffer.len());
            None
        }
    }
}

/// Whether the transport checksum is right, computed from scratch; `None` where there is none.
fn is_right_v4(packet: &Ipv4View<'_>) -> Option<bool> {
    let (src, dst) = (packet.src(), packet.dst());
    match packet.protocol() {
        1 => Icmpv4View::parse(packet.payload()).ok().map(|icmp| icmp.checksum_ok()),
        6 => TcpView::parse(packet.payload()).ok().map(|tcp| tcp.checksum_ok(src, dst)),
        17 => UdpView::parse(packet.payload()).ok().map(|udp| udp.checksum_ok(src, dst)),
        _ => None,
    }
}

/// As [`is_right_v4`]; an absent UDP checksum counts as right, as it stays absent in IPv4.
fn is_right_v6(transport: &[u8], found: &Extensions, src: u128, dst: u128) -> Option<bool> {
    match found.protocol {
        6 => TcpView::parse(transport).ok().map(|tcp| tcp.checksum_ok_v6(src, dst)),
        17 => UdpView::parse(transport).ok().map(|udp| udp.checksum() == 0 || udp.checksum_ok_v6(src, dst)),
        58 => Icmpv6View::parse(transport).ok().map(|icmp| icmp.checksum_ok(src, dst)),
        _ => None,
    }
}
