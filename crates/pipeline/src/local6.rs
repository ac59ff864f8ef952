//! IPv6 packets for the router itself, and ICMPv6 errors that the router sends.

use carrack_base::{Family, IcmpReply, Now, Proto, Reason};
use carrack_frame::{Frame, FramePool};
use carrack_nat::policy::ExhaustedIcmp;
use carrack_nat::{Flow, Kind};
use carrack_wire::icmpv6::{
    Class, ERROR_LEN_MAX, ErrorMessage, class_of, kind, may_cause_error, parameter, unreachable, write_error,
};
use carrack_wire::ipv6::{Action, HEADER_LEN, Ipv6View, is_link_local, is_multicast, next_header};
use carrack_wire::ndp::{NdpError, NdpMessage};

use crate::burst::{Meta, Resume};
use crate::forward::Refused;
use crate::local::{Way, opposite};
use crate::plan::Hop;
use crate::worker::Worker;

/// Hop limit of the router's own packets.
const OWN_HOP_LIMIT: u8 = 64;

impl Worker {
    /// A packet to one of the router's IPv6 addresses, or to a group that it is in.
    #[cold]
    pub(crate) fn local6(&mut self, frame: Frame, meta: &mut Meta, now: Now) -> Result<(), Refused> {
        if meta.own {
            // An error about a packet that the router's own address sent: nobody to tell.
            self.accounts.consumed += 1;
            self.dead.push(frame);
            return Ok(());
        }
        let is_icmp = meta.flow.proto == Proto::Icmp;
        let is_later = meta.flow.kind == Kind::LaterFragment;
        let class = (is_icmp && !is_later).then(|| class_of(meta.flow.bits));
        // Who has our address is found out by neighbour discovery; any other packet from it is a lie.
        if class != Some(Class::NeighbourDiscovery) && self.is_own6(meta) {
            return Err((frame, Reason::Ipv6SourceInvalid));
        }
        if let Some((reason, pointer)) = unknown_header(&frame, meta) {
            meta.mtu = pointer;
            return Err((frame, reason));
        }
        if self.is_port_control(meta) {
            let may = self.buckets.take_port_control(meta.flow.src6 >> 64, now);
            return if may {
                self.punt(frame, meta, now)
            } else {
                Err((frame, Reason::PuntPolicedPortControl))
            };
        }
        let (bucket, policed) = match class {
            Some(Class::NeighbourDiscovery) => {
                if !is_discovery(&frame, meta) {
                    return Err((frame, Reason::NdMalformed));
                }
                (&mut self.buckets.nd, Reason::PuntPolicedNd)
            }
            Some(Class::Request) => (&mut self.buckets.icmp, Reason::PuntPolicedIcmp),
            Some(_) => (&mut self.buckets.other, Reason::PuntPolicedOther),
            // RFC 8200 §4.5: the host puts fragments together. What is behind the first does not say of which kind it is.
            None if is_icmp => (&mut self.buckets.icmp, Reason::PuntPolicedIcmp),
            None => return Err((frame, Reason::LocalNoService)),
        };
        if !bucket.take(now) {
            return Err((frame, policed));
        }
        self.punt(frame, meta, now)
    }

    /// Is the source an address of the router?
    pub(crate) fn is_own6(&self, meta: &Meta) -> bool {
        let src = meta.flow.src6;
        let here = self.plan.line(meta.ingress).is_some_and(|line| line.link_local == src);
        here || self.plan.route6(meta.flow.vrf, src) == Some(Hop::Local)
    }

    /// Answers a drop with the ICMPv6 error its reason asks for, where RFC 4443 §2.4 allows one.
    pub(crate) fn answer6(
        &mut self,
        packet: &[u8],
        about: &Meta,
        reason: Reason,
        now: Now,
        pool: &mut dyn FramePool,
    ) {
        let (Some(message), Ok(original)) =
            (self.message6_for(about, reason), Ipv6View::parse_quoted(packet))
        else {
            return;
        };
        let to = original.src();
        let Some(source) = self.source6(about, to) else { return };
        let message = unrecognised_header(&original, about, reason).unwrap_or(message);
        // RFC 4443 §2.4 (f): errors are rate-limited.
        if !may_cause_error(&original, message) || !self.buckets.icmp_errors.take(now) {
            return;
        }
        let mut error = [0; ERROR_LEN_MAX];
        let Some(len) = write_error(&mut error, source, OWN_HOP_LIMIT, message, &original) else { return };
        let Some(mut frame) = pool.alloc() else { return };
        self.accounts.originated += 1;
        let mut meta = Meta {
            flow: Flow {
                family: Family::V6,
                src6: source,
                dst6: to,
                proto: Proto::Icmp,
                ip_proto: next_header::ICMPV6,
                kind: Kind::IcmpError,
                l3: 0,
                l4: HEADER_LEN as u16,
                vrf: about.vrf,
                ..Flow::default()
            },
            family: Family::V6,
            ingress: about.ingress,
            own: true,
            line: about.line,
            vrf: about.flow.vrf,
            ..Meta::default()
        };
        let written = error.get(..len).is_some_and(|error| frame.set_bytes(error));
        // About a packet that came from IPv4: back through the NAT, so that its sender hears of his own packet.
        let way = match about.translated {
            _ if !written => Err(Reason::FramePoolEmpty),
            Some(direction) if self.nat.admit_own(&mut meta.flow, original.dst()) => {
                self.translate_own_error(&mut frame, &mut meta, opposite(direction), now)
            }
            Some(_) => Err(Reason::NatIcmpNoSession),
            None => Ok(Way::Here),
        };
        let sent = match way {
            Ok(Way::Here) => self.forward(frame, &mut meta, now, pool),
            Ok(Way::Worker(owner)) => self.hand_to(frame, &meta, owner, Resume::Nat),
            Err(reason) => Err((frame, reason)),
        };
        if let Err((frame, reason)) = sent {
            self.discard(frame, &meta, reason, now);
        }
    }

    /// RFC 4443 §2.2: the address that an error about a packet comes from.
    fn source6(&self, about: &Meta, to: u128) -> Option<u128> {
        let line = self.plan.line(about.ingress)?;
        let source = if is_link_local(to) { line.link_local } else { line.address6 };
        (source != 0).then_some(source)
    }
}

/// RFC 8200 §4.2, §4.4: the first extension header of a packet to the router itself that it does not know and may not skip,
/// and which octet of it is at fault.
fn unknown_header(frame: &Frame, meta: &Meta) -> Option<(Reason, u16)> {
    let packet = Ipv6View::parse(frame.bytes().get(usize::from(meta.flow.l3)..)?).ok()?;
    let found = packet.extensions().ok()?;
    let options = [found.hop_by_hop, found.destination].into_iter().flatten().map(|option| {
        let is_told = match option.action {
            Action::DropAndReport => true,
            Action::DropAndReportUnicast => !is_multicast(packet.dst()),
            Action::Skip | Action::Drop => false,
        };
        let reason = if is_told { Reason::Ipv6OptionRefused } else { Reason::Ipv6OptionDiscard };
        (reason, option.pointer)
    });
    let routing = found.routing.filter(|routing| routing.segments_left != 0);
    let routing = routing.map(|routing| (Reason::Ipv6RoutingHeader, routing.kind_at()));
    // They are looked at in their order.
    options.chain(routing).min_by_key(|(_, pointer)| *pointer)
}

/// Is it a message of neighbour discovery that may be listened to (RFC 4861 §6.1, §7.1)? Redirects and advertisements
/// of other routers are, though the router has no use for them.
fn is_discovery(frame: &Frame, meta: &Meta) -> bool {
    let bytes = frame.bytes().get(usize::from(meta.flow.l3)..).unwrap_or(&[]);
    let Ok(packet) = Ipv6View::parse(bytes) else { return false };
    // RFC 6980 §5: never in fragments.
    let at = usize::from(meta.flow.l4.saturating_sub(meta.flow.l3));
    let message = packet.packet().get(at..).filter(|_| meta.fragment_at == 0).unwrap_or(&[]);
    match NdpMessage::parse(packet.src(), packet.dst(), packet.hop_limit(), message) {
        Ok(_) => true,
        Err(error) => error == NdpError::Kind && meta.flow.bits == kind::REDIRECT,
    }
}

impl Worker {
    fn message6_for(&self, meta: &Meta, reason: Reason) -> Option<ErrorMessage> {
        if meta.flow.proto == Proto::Icmp && is_of_translator(reason) {
            return None;
        }
        let code = match (reason.info().icmp, self.nat.exhausted_icmp_six(meta.flow.via)) {
            // RFC 6888 REQ-11b: as the instance says.
            (IcmpReply::NatExhausted, ExhaustedIcmp::HostUnreachable) => unreachable::ADDRESS,
            (IcmpReply::NatExhausted, ExhaustedIcmp::AdminProhibited) => unreachable::ADMIN_PROHIBITED,
            _ => return message_for(meta, reason),
        };
        Some(ErrorMessage::Unreachable { code })
    }
}

/// Does a translator refuse the packet for a reason that RFC 7915 has no answer of its own for? Then the sender of a
/// message of ICMPv6 hears nothing (RFC 7915 §5.4).
const fn is_of_translator(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::XlatExtensionBehindFragment
            | Reason::XlatIcmpFragment
            | Reason::XlatForeignProtocol
            | Reason::SiitSourceUnmapped
            | Reason::SiitDestinationUnmapped
    )
}

/// RFC 8200 §4: a header that the router itself knows nothing of is named, instead of a port that it has not.
fn unrecognised_header(original: &Ipv6View<'_>, about: &Meta, reason: Reason) -> Option<ErrorMessage> {
    if reason != Reason::LocalNoService || about.flow.proto != Proto::Other {
        return None;
    }
    let found = original.extensions().ok().filter(|found| found.protocol != next_header::NONE)?;
    let (code, pointer) = (parameter::UNRECOGNISED_NEXT_HEADER, u32::from(found.protocol_at));
    Some(ErrorMessage::ParameterProblem { code, pointer })
}

fn message_for(meta: &Meta, reason: Reason) -> Option<ErrorMessage> {
    let unreachable = |code| Some(ErrorMessage::Unreachable { code });
    match reason.info().icmp {
        IcmpReply::Silent | IcmpReply::SourceRouteFailed | IcmpReply::NatExhausted => None,
        IcmpReply::TimeExceeded => Some(ErrorMessage::HopLimitExceeded),
        IcmpReply::NetUnreachable => unreachable(unreachable::NO_ROUTE),
        IcmpReply::HostUnreachable => unreachable(unreachable::ADDRESS),
        // The latter by RFC 6146 §3.4.
        IcmpReply::PortUnreachable | IcmpReply::ProtocolUnreachable => unreachable(unreachable::PORT),
        // RFC 4443 §3.2.
        IcmpReply::FragmentationNeeded => Some(ErrorMessage::PacketTooBig { mtu: meta.mtu.into() }),
        IcmpReply::ParameterProblem => {
            let is_option = reason == Reason::Ipv6OptionRefused;
            let code = if is_option { parameter::UNRECOGNISED_OPTION } else { parameter::ERRONEOUS_FIELD };
            let pointer = u32::from(meta.mtu);
            Some(ErrorMessage::ParameterProblem { code, pointer })
        }
        IcmpReply::BeyondScope => unreachable(unreachable::BEYOND_SCOPE),
        IcmpReply::AdminProhibited => unreachable(unreachable::ADMIN_PROHIBITED),
    }
}
