//! Packets that go on in the other IP version (RFC 7915, RFC 6146 §3.7): headers are exchanged within the frame, before a payload that
//! stays where it is.

use carrack_base::{Family, Proto, Reason, VrfId};
use carrack_frame::Frame;
use carrack_nat::{Direction, Kind, Way};
use carrack_wire::ethernet::ethertype;
use carrack_wire::ipv4::{self, Ipv4View};
use carrack_wire::ipv6::{self, Ipv6View};
use carrack_xlat::{
    Moved, Mtus, Ports, ROOM, Refused, Rules, V4ErrorWay, V4Way, V6ErrorWay, V6Way, error_to_v4, error_to_v6,
    to_v4, to_v6,
};

use crate::burst::Meta;
use crate::worker::Worker;

/// Ethernet without tags.
const ETHERNET: usize = 14;
/// Sizes of packets are for the stage that knows the next hop; the translator is told of none.
const MTU_UNKNOWN: u16 = u16::MAX;

impl Worker {
    /// Exchanges the headers of a packet between IPv6 and IPv4; `meta` then describes the packet it has become, which
    /// continues in routing instance `vrf`.
    pub(crate) fn cross(
        &mut self,
        frame: &mut Frame,
        meta: &mut Meta,
        way: &Way,
        direction: Direction,
        vrf: VrfId,
    ) -> Result<(), Reason> {
        match direction {
            Direction::Out => self.cross_to_v4(frame, meta, way, vrf)?,
            Direction::In => self.cross_to_v6(frame, meta, way, vrf)?,
        }
        (meta.translated, meta.vrf, meta.flow.vrf) = (Some(direction), vrf, vrf);
        meta.raw_from_outside = false;
        Ok(())
    }

    fn cross_to_v4(
        &mut self,
        frame: &mut Frame,
        meta: &mut Meta,
        way: &Way,
        vrf: VrfId,
    ) -> Result<(), Reason> {
        let (l3, link) = (usize::from(meta.flow.l3), Link::of(frame, meta));
        let packet = frame.bytes().get(l3..).and_then(|bytes| Ipv6View::parse(bytes).ok());
        let packet = packet.ok_or(Reason::Ipv6Truncated)?;
        let found = packet.extensions().map_err(|_| Reason::Ipv6ExtensionInvalid)?;
        let end = l3 + packet.packet().len();
        let v4 = |src, dst, ports| V4Way { src, dst, ports, identification: 0, mtu: MTU_UNKNOWN };
        let (here, rules) = ((way.outside, way.remote), way.rules);
        let is_error = meta.flow.kind == Kind::IcmpError;
        let identification = if is_error {
            self.rng.next_u16()
        } else {
            self.identification = self.identification.wrapping_add(1);
            self.identification
        };
        let moved = if is_error {
            let source = self.error_source4(meta, way, vrf);
            let way = V4ErrorWay {
                outer: V4Way { identification, ..v4(source, here.1.ip, Ports::KEEP) },
                inner: v4(here.1.ip, here.0.ip, Ports { src: None, dst: Some(here.0.port) }),
                mtus: self.next_hops(way, meta.flow.vrf, vrf),
                reveal: None,
            };
            let buffer = frame.bytes_mut().get_mut(..end).unwrap_or(&mut []);
            error_to_v4(buffer, l3, &found, &way, &rules)
        } else {
            let ports = Ports { src: Some(here.0.port), dst: None };
            let way = V4Way { identification, ..v4(here.0.ip, here.1.ip, ports) };
            let packet = frame.bytes_mut().get_mut(l3..end).unwrap_or(&mut []);
            let moved = to_v4(packet, &found, &way, &rules);
            moved.map(|moved| Moved { start: moved.start + l3, end: moved.end + l3, ..moved })
        };
        let moved = moved.map_err(|refused| reason_of(refused, meta))?;
        // An atomic fragment (RFC 6946 §2) has a number of its host's, which hosts behind one address may share; it leaves
        // with one as all whole packets have (RFC 6864 §5.3.1).
        if !meta.is_fragment {
            meta.fragment_id = identification;
        }
        meta.flow.via = 0;
        (meta.flow.src, meta.flow.dst, meta.destination) = (here.0.ip, here.1.ip, here.1.ip);
        became(frame, meta, Family::V4, moved, &link)
    }

    fn cross_to_v6(
        &mut self,
        frame: &mut Frame,
        meta: &mut Meta,
        way: &Way,
        vrf: VrfId,
    ) -> Result<(), Reason> {
        // Where no checksum is made for it (see `fragments`), no fragment goes on, the later ones no more
        // than the first.
        if meta.is_unsummed {
            return Err(Reason::Nat64UdpZeroChecksum);
        }
        let (l3, link) = (usize::from(meta.flow.l3), Link::of(frame, meta));
        let packet = frame.bytes().get(l3..).and_then(|bytes| Ipv4View::parse(bytes).ok());
        let packet = packet.ok_or(Reason::Ipv4Truncated)?;
        let (len, source) = (packet.packet().len(), packet.src());
        frame.truncate(l3 + len);
        let room = ROOM.saturating_sub(l3);
        frame.prepend(room).ok_or(Reason::FrameHeadroom)?;
        let l3 = l3 + room;
        let v6 = |src, dst, ports| V6Way { src, dst, ports, mtu: MTU_UNKNOWN };
        let (here, rules) = ((way.remote6(), way.inside6), self.rules_to_v6(way, vrf));
        let moved = if meta.flow.kind == Kind::IcmpError {
            let Some(source) = self.error_source6(meta, way, vrf, source) else {
                frame.trim_front(room);
                return Err(Reason::Nat64NonGlobal);
            };
            let way = V6ErrorWay {
                outer: v6(source, here.1, Ports::KEEP),
                inner: v6(here.1, here.0, Ports { src: Some(way.inside_port), dst: None }),
                mtus: self.next_hops(way, vrf, meta.flow.vrf),
            };
            error_to_v6(frame.bytes_mut(), l3, &way, &rules)
        } else {
            let way = v6(here.0, here.1, Ports { src: None, dst: Some(way.inside_port) });
            to_v6(frame.bytes_mut(), l3, &way, &rules)
        };
        let moved = match moved {
            Ok(moved) => moved,
            Err(refused) => {
                // As it was, for whoever tells its sender.
                frame.trim_front(room);
                return Err(match reason_of(refused, meta) {
                    Reason::XlatUdpZeroChecksum => Reason::Nat64UdpZeroChecksum,
                    reason => reason,
                });
            }
        };
        (meta.flow.src6, meta.flow.dst6) = here;
        became(frame, meta, Family::V6, moved, &link)
    }

    /// The rules of a packet to an IPv6 host: one that may be cut is cut to what the link takes, too, where that is less
    /// than every link is said to.
    fn rules_to_v6(&self, way: &Way, vrf: VrfId) -> Rules {
        let rules = way.rules;
        if usize::from(rules.lowest_ipv6_mtu) <= ipv6::MTU_MIN {
            return rules;
        }
        let line = self.plan.line_behind(self.plan.route6(vrf, way.inside6));
        let takes = line.map_or(u16::MAX, |line| line.mtu);
        Rules { lowest_ipv6_mtu: rules.lowest_ipv6_mtu.min(takes), ..rules }
    }

    /// RFC 7915 §4.2, §5.2: what the next hops of a session's packets take, one towards its host and one towards the remote.
    fn next_hops(&self, way: &Way, inside: VrfId, outside: VrfId) -> Mtus {
        let Self { plan, .. } = self;
        let v6 = plan.line_behind(plan.route6(inside, way.inside6)).map_or(u16::MAX, |line| line.mtu);
        let v4 = plan.line_behind(plan.route(outside, way.remote.ip)).map_or(u16::MAX, |line| line.mtu);
        Mtus { v4, v6 }
    }

    /// RFC 7915 §5.1: the address of an error from IPv6, whose sender has no IPv4 address: of a host behind a prefix the
    /// one it stands for, of the router its own, else the outside address of the session (RFC 6791 §4 says which).
    fn error_source4(&self, meta: &Meta, way: &Way, vrf: VrfId) -> u32 {
        let own = self.plan.line_behind(self.plan.route(vrf, way.remote.ip)).map_or(0, |line| line.address);
        if meta.own && own != 0 { own } else { way.outside.ip }
    }

    /// The address of an error from IPv4: of the router its own, else the one that stands for the sender. Where none may, as
    /// behind the well-known prefix for a router with a private address (RFC 6052 §3.1), the router's own again: what the
    /// error says is needed, path MTU discovery above all.
    fn error_source6(&self, meta: &Meta, way: &Way, vrf: VrfId, sender: u32) -> Option<u128> {
        let line = self.plan.line_behind(self.plan.route6(vrf, way.inside6));
        let own = line.map(|line| line.address6).filter(|own| *own != 0);
        let stands = way.embed_checked(sender);
        if meta.own { own.or(stands) } else { stands.or(own) }
    }
}

/// Both addresses of a link header; `None` for the router's own packets, which have none yet.
pub(crate) struct Link(Option<[u8; 12]>);

impl Link {
    /// Before a translation, which may write over it.
    pub(crate) fn of(frame: &Frame, meta: &Meta) -> Self {
        let has_link = usize::from(meta.flow.l3) >= ETHERNET;
        Self(frame.bytes().first_chunk().copied().filter(|_| has_link))
    }
}

/// The packet in `frame` is now one of `family` and where the translator has put it. It gets an untagged link header
/// again, for whoever looks at it from here on, and `meta` says where its headers are.
pub(crate) fn became(
    frame: &mut Frame,
    meta: &mut Meta,
    family: Family,
    moved: Moved,
    link: &Link,
) -> Result<(), Reason> {
    let l3 = if link.0.is_some() { ETHERNET } else { 0 };
    frame.truncate(moved.end);
    match moved.start.checked_sub(l3) {
        Some(more) => {
            frame.trim_front(more);
        }
        None => {
            frame.prepend(l3 - moved.start).ok_or(Reason::FrameHeadroom)?;
        }
    }
    let (header_len, ethertype, icmp) = match family {
        Family::V4 => (ipv4::HEADER_LEN, ethertype::IPV4, ipv4::protocol::ICMP),
        Family::V6 => (ipv6::HEADER_LEN, ethertype::IPV6, ipv6::next_header::ICMPV6),
    };
    if let (Some(addresses), Some(head)) = (&link.0, frame.bytes_mut().first_chunk_mut::<ETHERNET>()) {
        head[..12].copy_from_slice(addresses);
        head[12..].copy_from_slice(&ethertype.to_be_bytes());
    }
    let next = frame.bytes().get(l3 + 6);
    let is_piece = family == Family::V6 && next == Some(&ipv6::next_header::FRAGMENT);
    let l4 = l3 + header_len + if is_piece { ipv6::FRAGMENT_HEADER_LEN } else { 0 };
    (meta.family, meta.flow.family) = (family, family);
    meta.flow.l3 = l3 as u16;
    meta.flow.l4 = if meta.flow.kind == Kind::LaterFragment { 0 } else { l4 as u16 };
    meta.fragment_at = if is_piece { (l3 + header_len) as u16 } else { 0 };
    meta.cut_to = moved.cut_to.unwrap_or(0);
    if meta.flow.proto == Proto::Icmp {
        meta.flow.ip_proto = icmp;
    }
    Ok(())
}

/// The drop reason for what the translator refuses, and what its answer needs.
pub(crate) fn reason_of(refused: Refused, meta: &mut Meta) -> Reason {
    match refused {
        Refused::TransportCut => match meta.flow.proto {
            Proto::Tcp => Reason::TcpMalformed,
            Proto::Icmp => Reason::IcmpMalformed,
            // DCCP and UDP-Lite begin as UDP does.
            Proto::Udp | Proto::Other => Reason::UdpMalformed,
        },
        Refused::NoRoom => Reason::FrameHeadroom,
        Refused::SegmentsLeft { pointer } => {
            meta.mtu = pointer;
            Reason::XlatSegmentsLeft
        }
        Refused::HeaderBehindFragment => Reason::XlatExtensionBehindFragment,
        Refused::SourceRoute => Reason::Ipv4SourceRoute,
        Refused::BadOptions => Reason::XlatOptionsInvalid,
        Refused::ForeignProtocolV4 | Refused::ForeignProtocolV6 => Reason::XlatForeignProtocol,
        Refused::FragmentedIcmpV4 | Refused::FragmentedIcmpV6 => Reason::XlatIcmpFragment,
        Refused::IcmpWithoutCounterpart | Refused::OtherFunction => Reason::XlatIcmpUntranslatable,
        Refused::ZeroUdp | Refused::ZeroUdpFragment => Reason::XlatUdpZeroChecksum,
        Refused::TooBigForV4 { mtu } => {
            meta.mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
            Reason::FragmentationNeeded
        }
        Refused::TooBigForV6 { mtu } => {
            meta.mtu = mtu;
            Reason::FragmentationNeeded
        }
        Refused::BadIcmpChecksum => Reason::IcmpBadChecksum,
        // RFC 7915 §4.3, §5.3: not what an error about an error quotes.
        Refused::BadQuotation | Refused::NestedError => Reason::IcmpEmbeddedInvalid,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use carrack_base::IcmpReply;
    use carrack_wire::{icmpv4, icmpv6};
    use carrack_xlat::Answer;

    /// RFC 7915 §4.4, §5.4: what the translator would have its sender told is what the row of its reason says.
    #[test]
    fn refusals_are_answered_as_the_translator_says() {
        let refusals = [
            Refused::TransportCut,
            Refused::NoRoom,
            Refused::SegmentsLeft { pointer: 43 },
            Refused::HeaderBehindFragment,
            Refused::SourceRoute,
            Refused::BadOptions,
            Refused::ForeignProtocolV4,
            Refused::ForeignProtocolV6,
            Refused::FragmentedIcmpV4,
            Refused::IcmpWithoutCounterpart,
            Refused::OtherFunction,
            Refused::ZeroUdp,
            Refused::ZeroUdpFragment,
            Refused::TooBigForV4 { mtu: 1_280 },
            Refused::TooBigForV6 { mtu: 1_280 },
            Refused::BadIcmpChecksum,
            Refused::BadQuotation,
            Refused::NestedError,
        ];
        for refused in refusals {
            let row = reason_of(refused, &mut Meta::default()).info();
            let expected = match refused.answer() {
                Answer::Silence => IcmpReply::Silent,
                Answer::Icmpv4(icmpv4::ErrorMessage::Unreachable { code: 5 }) => IcmpReply::SourceRouteFailed,
                Answer::Icmpv4(icmpv4::ErrorMessage::Unreachable { code: 13 })
                | Answer::Icmpv6(icmpv6::ErrorMessage::Unreachable { code: 1 }) => IcmpReply::AdminProhibited,
                Answer::Icmpv4(icmpv4::ErrorMessage::FragmentationNeeded { .. })
                | Answer::Icmpv6(icmpv6::ErrorMessage::PacketTooBig { .. }) => IcmpReply::FragmentationNeeded,
                Answer::Icmpv6(icmpv6::ErrorMessage::ParameterProblem { .. }) => IcmpReply::ParameterProblem,
                other => panic!("{refused}: {other:?}"),
            };
            assert_eq!(row.icmp, expected, "{refused}");
        }
    }
}
