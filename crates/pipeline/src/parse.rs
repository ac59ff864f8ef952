//! First stage: what is this packet? Every field a later stage reads is checked here, once.

#[cfg(test)]
mod tests;

use carrack_base::{Family, PortId, Proto, Reason};
use carrack_nat::{Direction, Flow, Kind};
use carrack_vector::{COMMON_BYTES, COMMON_BYTES_SIX};
use carrack_wire::ethernet::{MacAddr, ethertype};
use carrack_wire::icmpv4::{Class, class_of};
use carrack_wire::ipv4::protocol::ESP;
use carrack_wire::ipv4::{FLAG_MF, Ipv4View, OFFSET_MASK};
use carrack_wire::tcp::flag;
use carrack_wire::{checksum, gre, vlan};
use carrack_xlat::exchange::SIX_BYTES;

use crate::burst::Meta;
use crate::parse6;
use crate::plan::{Common, Line, LinkHeader, Plan, direction_of};
use crate::snapshot::Side;

/// What parse found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// An IPv4 packet to go on with.
    Ipv4,
    /// An IPv6 packet to go on with.
    Ipv6,
    /// An IPv6 packet for the router on this link alone: goes up.
    Link6,
    /// ARP: goes up.
    Arp,
}

/// The common packet: what its headers say, each field checked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    /// Source and destination address, the source in the upper half; any, see [`in_transit`].
    pub(crate) addresses: u64,
    /// Source and destination port, the source in the upper half.
    pub(crate) ports: u32,
    /// Bytes of the IPv4 packet.
    pub(crate) total: u16,
    /// TCP or UDP.
    pub(crate) proto: Proto,
    /// TCP control bits; 0 for UDP.
    pub(crate) bits: u8,
}

/// What of a common frame's first 24 bytes is always the same, as little-endian words: destination, the group bit of
/// the source, tags without their priorities, type, IP version and header length.
pub(crate) const fn link_masks(tag_bytes: usize, family: Family) -> [u64; 3] {
    const TAG: [u8; 4] = [0xff, 0xff, 0x0f, 0xff];
    let rest: [u8; 4] = match family {
        Family::V4 => [0xff, 0xff, 0xff, 0],
        Family::V6 => [0xff, 0xff, 0xf0, 0],
    };
    let (first, second, third) = match tag_bytes {
        0 => (rest, [0; 4], [0; 4]),
        4 => (TAG, rest, [0; 4]),
        _ => (TAG, TAG, rest),
    };
    const fn join(a: [u8; 4], b: [u8; 4]) -> u64 {
        u64::from_le_bytes([a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]])
    }
    [join([0xff; 4], [0xff, 0xff, 1, 0]), join([0; 4], first), join(second, third)]
}
/// In the word that begins with the IP header: the fragment's offset, and whether more follow.
const FRAGMENT_MASK: u64 = ((FLAG_MF | OFFSET_MASK).swap_bytes() as u64) << 48;

/// What [`link_masks`] leave of the common frames to an interface: `header` is what it puts before its own packets.
pub(crate) fn common_link(mac: MacAddr, header: &LinkHeader, family: Family) -> [u64; 3] {
    let (kind, first) = match family {
        Family::V4 => (ethertype::IPV4, 0x45),
        Family::V6 => (ethertype::IPV6, 0x60),
    };
    let mut bytes = [0; 24];
    let length = usize::from(header.len);
    // Invariant: a link header has 14 to 22 bytes.
    bytes[..length].copy_from_slice(&header.bytes[..length]);
    bytes[..6].copy_from_slice(&mac.0);
    bytes[length - 2..length].copy_from_slice(&kind.to_be_bytes());
    bytes[length] = first;
    let masks = link_masks(length - 14, family);
    let word = |at: usize| bytes[at * 8..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
    [word(0) & masks[0], word(1) & masks[1], word(2) & masks[2]]
}

/// The common packet, recognised whole: to this interface by its tags, which take `TAG` bytes, no IP options, no fragment, TCP or UDP, TTL to spare,
/// everything as it should be. `None` for any other packet, of which [`parse`] then says what is wrong, if anything is.
///
/// It must accept nothing that [`parse`] refuses and see nothing differently: a property test holds the two together.
/// Words are read as little-endian numbers and compared several fields at a time.
#[inline(always)]
pub(crate) fn recognise<const TAG: usize>(port: &Common, frame: &[u8]) -> Option<Seen> {
    let (head, masks) = (frame.first_chunk::<COMMON_BYTES>()?, link_masks(TAG, Family::V4));
    let link = [long_at(head, 0), long_at(head, 8), if TAG > 0 { long_at(head, 16) } else { 0 }];
    // From here on as if there were no tags.
    let (head, length) = (frame.get(TAG..)?.first_chunk::<COMMON_BYTES>()?, frame.len() - TAG);
    let (first, second) = (long_at(head, 14), long_at(head, 22));
    let mut differs =
        (link[0] ^ port.link[0]) & masks[0] | (link[1] ^ port.link[1]) & masks[1] | first & FRAGMENT_MASK;
    if TAG > 0 {
        differs |= (link[2] ^ port.link[2]) & masks[2];
    }
    if differs != 0 || link[1] as u32 == port.mac_tail {
        return None;
    }
    let total = ((first >> 16) as u16).swap_bytes();
    let (ttl, protocol) = (second as u8, (second >> 8) as u8);
    if usize::from(total) + 14 > length || ttl <= 1 {
        return None;
    }
    // RFC 1071 §2: the sum depends neither on byte order nor on the width of what is added, if carries come back in; of
    // a header that is not all zeroes it is 0xffff, that is 0.
    let (sum, carry) = first.overflowing_add(second);
    let (sum, carry) = sum.overflowing_add(u64::from(word_at(head, 30)) + u64::from(carry));
    if !sum.wrapping_add(u64::from(carry)).is_multiple_of(0xffff) {
        return None;
    }
    let addresses = long_at(head, 26).swap_bytes();
    let ports = word_at(head, 34).swap_bytes();
    match protocol {
        17 => {
            let len = half_at(head, 38).swap_bytes();
            if len < 8 || u32::from(len) + 20 > u32::from(total) {
                return None;
            }
            Some(Seen { addresses, ports, total, proto: Proto::Udp, bits: 0 })
        }
        6 => {
            let (len, bits) = (u16::from(head[46] >> 4) * 4, head[47]);
            if len < 20 || u32::from(len) + 20 > u32::from(total) || check_tcp_flags(bits).is_err() {
                return None;
            }
            Some(Seen { addresses, ports, total, proto: Proto::Tcp, bits })
        }
        _ => None,
    }
}

/// The common packet of IPv6: what its headers say, each field checked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SeenSix {
    pub(crate) src: u128,
    pub(crate) dst: u128,
    pub(crate) ports: u32,
    /// Bytes of the IPv6 packet.
    pub(crate) total: u16,
    pub(crate) proto: Proto,
    pub(crate) bits: u8,
}

/// The same for IPv6 without extension headers; UDP with its checksum. `link` is what the frame begins with.
#[inline(always)]
pub(crate) fn recognise_six<const TAG: usize>(
    port: &Common,
    link: &[u64; 3],
    frame: &[u8],
) -> Option<SeenSix> {
    const _: () = assert!(COMMON_BYTES_SIX == 14 + SIX_BYTES);
    let (head, masks) = (frame.first_chunk::<COMMON_BYTES>()?, link_masks(TAG, Family::V6));
    let seen = [long_at(head, 0), long_at(head, 8), if TAG > 0 { long_at(head, 16) } else { 0 }];
    let mut differs = (seen[0] ^ link[0]) & masks[0] | (seen[1] ^ link[1]) & masks[1];
    if TAG > 0 {
        differs |= (seen[2] ^ link[2]) & masks[2];
    }
    if differs != 0 || seen[1] as u32 == port.mac_tail {
        return None;
    }
    // From here on as if there were no tags.
    let (packet, length) = (frame.get(TAG..)?.first_chunk::<COMMON_BYTES_SIX>()?, frame.len() - TAG);
    let half = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
    let (payload, number, hop_limit) = (half(18), packet[20], packet[21]);
    if usize::from(payload) + 54 > length || hop_limit <= 1 || payload > u16::MAX - 40 {
        return None;
    }
    let address =
        |at: usize| packet.get(at..).and_then(|b| b.first_chunk()).copied().map(u128::from_be_bytes);
    let ports = u32::from(half(54)) << 16 | u32::from(half(56));
    let (src, dst, total) = (address(22)?, address(38)?, payload + 40);
    match number {
        17 => {
            let len = half(58);
            let good = len >= 8 && len <= payload && half(60) != 0;
            good.then_some(SeenSix { src, dst, ports, total, proto: Proto::Udp, bits: 0 })
        }
        6 => {
            let (len, bits) = (u16::from(packet[66] >> 4) * 4, packet[67]);
            let good = len >= 20 && len <= payload && check_tcp_flags(bits).is_ok();
            good.then_some(SeenSix { src, dst, ports, total, proto: Proto::Tcp, bits })
        }
        _ => None,
    }
}

/// `N` bytes of the head; one load, where indexing byte by byte would become several.
#[inline(always)]
fn bytes_at<const N: usize>(head: &[u8; COMMON_BYTES], at: usize) -> [u8; N] {
    // Invariant: callers' offsets are constants, with N bytes behind them.
    head.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}

#[inline(always)]
fn half_at(head: &[u8; COMMON_BYTES], at: usize) -> u16 {
    u16::from_le_bytes(bytes_at(head, at))
}

#[inline(always)]
fn word_at(head: &[u8; COMMON_BYTES], at: usize) -> u32 {
    u32::from_le_bytes(bytes_at(head, at))
}

#[inline(always)]
fn long_at(head: &[u8; COMMON_BYTES], at: usize) -> u64 {
    u64::from_le_bytes(bytes_at(head, at))
}

/// Is it an address that packets in transit may have, as source as well as destination (see `check_addresses`)?
#[inline(always)]
pub(crate) const fn in_transit(address: u32) -> bool {
    let net = address >> 24;
    net.wrapping_sub(1) < 223 && net != 127
}

/// [`recognise`] for the general stages; false when it is another packet.
#[inline]
pub(crate) fn parse_common(port: &Common, frame: &[u8], meta: &mut Meta) -> bool {
    let Some(seen) = recognise::<0>(port, frame) else { return false };
    let (src, dst) = ((seen.addresses >> 32) as u32, seen.addresses as u32);
    if !in_transit(src) || !in_transit(dst) {
        return false;
    }
    *meta = Meta {
        flow: Flow {
            src,
            dst,
            sport: (seen.ports >> 16) as u16,
            dport: seen.ports as u16,
            vrf: port.vrf,
            l3: 14,
            l4: 34,
            proto: seen.proto,
            ip_proto: if seen.proto == Proto::Tcp { 6 } else { 17 },
            bits: seen.bits,
            kind: Kind::Whole,
            ..Flow::default()
        },
        ingress: port.interface,
        direction: port.direction,
        raw_from_outside: port.raw_from_outside,
        vrf: port.vrf,
        destination: dst,
        ..Meta::default()
    };
    true
}

/// Fills `meta` from the frame.
#[inline]
pub(crate) fn parse(plan: &Plan, port: PortId, frame: &[u8], meta: &mut Meta) -> Result<Parsed, Reason> {
    let head = frame.first_chunk::<14>().ok_or(Reason::L2Truncated)?;
    let mut kind = u16::from_be_bytes([head[12], head[13]]);
    let mut l3 = 14;
    let mut tags = [0; 2];
    let mut tag_count = 0;
    while vlan::is_tag(kind) && tag_count < 2 {
        let tag = frame.get(l3..l3 + 4).ok_or(Reason::L2Truncated)?;
        tags[tag_count] = u16::from_be_bytes([tag[0], tag[1]]) & 0x0fff;
        kind = u16::from_be_bytes([tag[2], tag[3]]);
        tag_count += 1;
        l3 += 4;
    }
    // VLAN 0 is a priority tag: the frame belongs to the untagged interface (IEEE 802.1Q §6.9).
    let tags = if tag_count == 1 && tags[0] == 0 { &[] } else { tags.get(..tag_count).unwrap_or(&[]) };
    let interface = plan.interface_of(port, tags).ok_or(Reason::L2UnknownVlan)?;
    let line = plan.line(interface).ok_or(Reason::L2UnknownVlan)?;
    meta.ingress = interface;
    if !line.up {
        return Err(Reason::InterfaceDown);
    }
    check_macs(line, head)?;
    meta.flow.l3 = l3 as u16;
    match kind {
        ethertype::IPV4 => {}
        ethertype::ARP => return Ok(Parsed::Arp),
        ethertype::IPV6 => {
            (meta.vrf, meta.flow.vrf) = (line.vrf, line.vrf);
            return parse6::ipv6(plan, line, frame, l3, meta);
        }
        _ => return Err(Reason::L2UnknownEthertype),
    }
    meta.vrf = line.vrf;
    meta.flow.vrf = line.vrf;
    meta.direction = direction_of(line.side);
    meta.raw_from_outside = line.side == Side::Outside;
    ipv4(frame, l3, meta)?;
    if meta.flow.ip_proto == ESP && plan.learns_esp && meta.direction.is_some() {
        set_spi(frame, meta);
    }
    // RFC 1812 §5.3.4: what was sent to all stations of the link is not forwarded.
    if head[0] & 1 != 0 {
        return Err(Reason::L2NotForUs);
    }
    Ok(Parsed::Ipv4)
}

/// For us or for all; from a station that is not us.
#[inline]
fn check_macs(line: &Line, head: &[u8; 14]) -> Result<(), Reason> {
    let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, ..] = *head;
    let (to, from) = (MacAddr([d0, d1, d2, d3, d4, d5]), MacAddr([s0, s1, s2, s3, s4, s5]));
    if to != line.mac && !to.is_group() {
        return Err(Reason::L2NotForUs);
    }
    if from.is_group() || from == line.mac {
        return Err(Reason::L2SourceInvalid);
    }
    Ok(())
}

#[inline]
fn ipv4(frame: &[u8], l3: usize, meta: &mut Meta) -> Result<(), Reason> {
    let packet = frame.get(l3..).ok_or(Reason::Ipv4Truncated)?;
    let head = packet.first_chunk::<20>().ok_or(Reason::Ipv4Truncated)?;
    if head[0] >> 4 != 4 {
        return Err(Reason::Ipv4BadVersion);
    }
    let header_len = usize::from(head[0] & 0x0f) * 4;
    if header_len < 20 || header_len > packet.len() {
        return Err(Reason::Ipv4BadHeaderLength);
    }
    let total = usize::from(u16::from_be_bytes([head[2], head[3]]));
    if total < header_len || total > packet.len() {
        return Err(Reason::Ipv4BadTotalLength);
    }
    let header = packet.get(..header_len).ok_or(Reason::Ipv4Truncated)?;
    if !checksum::verify(header) {
        return Err(Reason::Ipv4BadChecksum);
    }
    let flow = &mut meta.flow;
    flow.src = u32::from_be_bytes([head[12], head[13], head[14], head[15]]);
    flow.dst = u32::from_be_bytes([head[16], head[17], head[18], head[19]]);
    meta.destination = flow.dst;
    check_addresses(flow)?;
    flow.ip_proto = head[9];
    flow.proto = Proto::from_ip(head[9]);
    flow.l4 = (l3 + header_len) as u16;
    let fragment = u16::from_be_bytes([head[6], head[7]]);
    meta.is_fragment = fragment & (FLAG_MF | OFFSET_MASK) != 0;
    let l4 = packet.get(header_len..total).ok_or(Reason::Ipv4BadTotalLength)?;
    if meta.is_fragment {
        check_fragment(fragment, l4, flow.proto)?;
        if fragment & OFFSET_MASK != 0 {
            flow.kind = Kind::LaterFragment;
            flow.l4 = 0;
            return Ok(());
        }
    }
    transport(l4, meta)
}

/// RFC 1812 §5.3.7 and §4.2.2.11: addresses that no packet in transit has.
#[inline]
fn check_addresses(flow: &Flow) -> Result<(), Reason> {
    let (src, dst) = (flow.src >> 24, flow.dst >> 24);
    if src == 0 || src == 127 || src >= 224 {
        return Err(Reason::Ipv4SourceInvalid);
    }
    if dst == 0 || dst == 127 || dst >= 240 {
        return Err(Reason::Ipv4DestinationInvalid);
    }
    if dst >= 224 {
        return Err(Reason::Ipv4Multicast);
    }
    Ok(())
}

/// Fragments that cannot be part of an honest datagram (RFC 791, RFC 1858 §3, RFC 3128).
fn check_fragment(fragment: u16, payload: &[u8], proto: Proto) -> Result<(), Reason> {
    let offset = usize::from(fragment & OFFSET_MASK) * 8;
    let more = fragment & FLAG_MF != 0;
    let bad_length = payload.is_empty() || (more && !payload.len().is_multiple_of(8));
    let beyond = offset + payload.len() > 65_535 - 20;
    let is_bad = bad_length || beyond || overlaps_flags(proto, offset);
    if is_bad { Err(Reason::Ipv4FragmentInvalid) } else { Ok(()) }
}

/// RFC 1858 §4.2, RFC 3128: a TCP fragment at offset 8 could rewrite the flags, of either IP version.
pub(crate) fn overlaps_flags(proto: Proto, offset: usize) -> bool {
    proto == Proto::Tcp && offset == 8
}

/// Ports and control bits; `l4` ends where the packet does.
#[inline]
pub(crate) fn transport(l4: &[u8], meta: &mut Meta) -> Result<(), Reason> {
    let is_fragment = meta.is_fragment;
    let flow = &mut meta.flow;
    let invalid = match flow.family {
        Family::V4 => Reason::Ipv4FragmentInvalid,
        Family::V6 => Reason::Ipv6FragmentInvalid,
    };
    let short = |reason| if is_fragment { invalid } else { reason };
    match flow.proto {
        Proto::Udp => {
            let head = l4.first_chunk::<8>().ok_or(short(Reason::UdpMalformed))?;
            let len = usize::from(u16::from_be_bytes([head[4], head[5]]));
            if len < 8 || (len > l4.len() && !is_fragment) {
                return Err(Reason::UdpMalformed);
            }
            flow.sport = u16::from_be_bytes([head[0], head[1]]);
            flow.dport = u16::from_be_bytes([head[2], head[3]]);
        }
        Proto::Tcp => {
            // RFC 1858 §3: a first fragment too short for its header hides its flags.
            let head = l4.first_chunk::<20>().ok_or(short(Reason::TcpMalformed))?;
            let header_len = usize::from(head[12] >> 4) * 4;
            if header_len < 20 || (header_len > l4.len() && !is_fragment) {
                return Err(Reason::TcpMalformed);
            }
            check_tcp_flags(head[13])?;
            flow.bits = head[13];
            flow.sport = u16::from_be_bytes([head[0], head[1]]);
            flow.dport = u16::from_be_bytes([head[2], head[3]]);
        }
        Proto::Icmp => {
            let head = l4.first_chunk::<8>().ok_or(short(Reason::IcmpMalformed))?;
            flow.bits = head[0];
            icmp(u16::from_be_bytes([head[4], head[5]]), meta)?;
        }
        Proto::Other => set_other_ports(meta, l4),
    }
    Ok(())
}

/// Control bits that no stack sends.
#[inline]
fn check_tcp_flags(bits: u8) -> Result<(), Reason> {
    let all = flag::SYN | flag::FIN | flag::RST | flag::ACK | flag::PSH | flag::URG;
    let syn_with = bits & flag::SYN != 0 && bits & (flag::FIN | flag::RST) != 0;
    if bits & all == 0 || syn_with { Err(Reason::TcpFlagsInvalid) } else { Ok(()) }
}

fn icmp(identifier: u16, meta: &mut Meta) -> Result<(), Reason> {
    match class_of(meta.flow.bits) {
        Class::Request | Class::Reply => set_icmp_identifier(meta, identifier),
        // Where no NAT is concerned all types pass, in pieces too.
        Class::Error | Class::Other if meta.direction.is_none() => {}
        Class::Error if meta.is_fragment => return Err(Reason::Ipv4FragmentInvalid),
        Class::Error => meta.flow.kind = Kind::IcmpError,
        // RFC 5508 REQ-11: anything else does not pass. RFC 5508 REQ-10a, REQ-10b: all of these do.
        Class::Other => return Err(Reason::IcmpTypeUnsupported),
    }
    Ok(())
}

/// The identifier is the inside endpoint's port, whichever side the packet comes from.
pub(crate) fn set_icmp_identifier(meta: &mut Meta, identifier: u16) {
    let inside_is_source = meta.direction != Some(Direction::In);
    (meta.flow.sport, meta.flow.dport) = if inside_is_source { (identifier, 0) } else { (0, identifier) };
}

/// The protocol number is the remote endpoint's port, which keeps protocols apart; of a call's packets it is its number, for
/// the end they go to.
pub(crate) fn set_other_ports(meta: &mut Meta, l4: &[u8]) {
    if meta.flow.family == Family::V4
        && let Some(call) = gre::call_of(meta.flow.ip_proto, l4)
    {
        (meta.flow.sport, meta.flow.dport) = (gre::CALL_PORT, call);
        return;
    }
    let number = u16::from(meta.flow.ip_proto);
    let inside_is_source = meta.direction != Some(Direction::In);
    (meta.flow.sport, meta.flow.dport) = if inside_is_source { (0, number) } else { (number, 0) };
}

/// The number of a tunnel, for the end it goes to, takes the place of both ports.
#[cold]
pub(crate) fn set_spi(frame: &[u8], meta: &mut Meta) {
    if meta.flow.kind != Kind::Whole {
        return;
    }
    let spi = frame.get(usize::from(meta.flow.l4)..).and_then(|l4| l4.first_chunk::<4>());
    // What is too short to have one gets 0, which is none.
    let [a, b, c, d] = spi.copied().unwrap_or_default();
    (meta.flow.sport, meta.flow.dport) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
}

/// A route that the packet asks for by itself (RFC 791 §3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SourceRoute {
    /// It has stations to pass.
    Unexpired,
    /// It has passed them all.
    Expired,
}

/// The route that the packet asks for; the one with stations to pass where it has several.
pub(crate) fn source_route(frame: &[u8], l3: usize) -> Option<SourceRoute> {
    let packet = frame.get(l3..).and_then(|bytes| Ipv4View::parse(bytes).ok())?;
    if packet.options().any(|option| option.is_unexpired_source_route()) {
        return Some(SourceRoute::Unexpired);
    }
    packet.options().any(|option| option.is_source_route()).then_some(SourceRoute::Expired)
}
