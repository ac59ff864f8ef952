//! Packets for the router itself: policed, then up to the control plane; and ICMP errors that the router sends.

use carrack_base::{Family, IcmpReply, Now, Proto, Reason};
use carrack_frame::{Frame, FramePool};
use carrack_nat::policy::ExhaustedIcmp;
use carrack_nat::{Direction, Flow, Kind, NO_LINE, Verdict};
use carrack_wire::icmpv4::{ErrorMessage, kind, may_cause_error, write_error};
use carrack_wire::ipv4::Ipv4View;

use crate::burst::{Meta, Resume};
use crate::forward::Refused;
use crate::mailbox::TraceOutcome;
use crate::plan::{Hop, Line};
use crate::snapshot::Side;
use crate::stats::Stage;
use crate::worker::Worker;

/// TTL of the router's own packets.
pub(crate) const OWN_TTL: u8 = 64;
/// Longest ICMP error (RFC 1812 §4.3.2.3).
const ERROR_BYTES_MAX: usize = 576;
/// UDP port of the server of port control (RFC 6887 §19.1).
const PORT_CONTROL: u16 = 5_351;

impl Worker {
    /// A packet to one of the router's addresses.
    #[cold]
    pub(crate) fn local(&mut self, frame: Frame, meta: &Meta, now: Now) -> Result<(), Refused> {
        if meta.own {
            // An error about a packet that the router's own address sent: nobody to tell.
            self.accounts.consumed += 1;
            self.dead.push(frame);
            return Ok(());
        }
        if self.is_own(meta) {
            return Err((frame, Reason::Ipv4SourceInvalid));
        }
        if self.is_port_control(meta) {
            let may = self.buckets.take_port_control(meta.flow.src.into(), now);
            return if may {
                self.punt(frame, meta, now)
            } else {
                Err((frame, Reason::PuntPolicedPortControl))
            };
        }
        let (bucket, policed) = match meta.flow.proto {
            // RFC 1122 §3.3.2: the host puts fragments together. What is behind the first does not say of which kind it is.
            Proto::Icmp if meta.flow.bits == kind::ECHO_REQUEST || meta.flow.kind == Kind::LaterFragment => {
                (&mut self.buckets.icmp, Reason::PuntPolicedIcmp)
            }
            Proto::Icmp => (&mut self.buckets.other, Reason::PuntPolicedOther),
            Proto::Tcp | Proto::Udp | Proto::Other => return Err((frame, Reason::LocalNoService)),
        };
        if !bucket.take(now) {
            return Err((frame, policed));
        }
        self.punt(frame, meta, now)
    }

    /// Is the source an address of the router? RFC 1812 §5.3.7: nobody else has our address; an answer would go round for
    /// ever.
    pub(crate) fn is_own(&self, meta: &Meta) -> bool {
        self.plan.route(meta.flow.vrf, meta.flow.src) == Some(Hop::Local)
    }

    /// Is it a request of port control that is taken there? RFC 6887 §8.2: from inside alone.
    pub(crate) fn is_port_control(&self, meta: &Meta) -> bool {
        let to_server = meta.flow.proto == Proto::Udp && meta.flow.dport == PORT_CONTROL;
        to_server
            && meta.flow.kind == Kind::Whole
            && self.plan.snapshot.nat.port_control
            && self.plan.line(meta.ingress).is_some_and(|line| line.side == Side::Inside)
    }

    /// Copies a packet up and frees it.
    pub(crate) fn punt(&mut self, frame: Frame, meta: &Meta, now: Now) -> Result<(), Refused> {
        if !self.mail.punts.push(meta.ingress, frame.bytes()) {
            return Err((frame, Reason::PuntQueueFull));
        }
        if meta.traced != 0 {
            self.taps.step(Stage::Forward, meta.ingress, TraceOutcome::Punted, meta, frame.bytes(), now);
        }
        self.accounts.punted += 1;
        self.dead.push(frame);
        Ok(())
    }

    /// Answers a drop with the ICMP error its reason asks for, where RFC 1812 §4.3.2 or RFC 4443 §2.4 allows one.
    pub(crate) fn answer(
        &mut self,
        frame: &Frame,
        meta: &Meta,
        reason: Reason,
        now: Now,
        pool: &mut dyn FramePool,
    ) {
        if reason.info().icmp == IcmpReply::Silent {
            return;
        }
        // RFC 1812 §4.3.2.7, RFC 4443 §2.4 (e.4): nothing about link-layer broadcasts, but what options ask for.
        let to_group = reason != Reason::Ipv6OptionRefused
            && meta.flow.l3 >= 14
            && frame.bytes().first().is_some_and(|first| first & 1 != 0);
        if !to_group {
            let packet = frame.bytes().get(usize::from(meta.flow.l3)..).unwrap_or(&[]);
            self.answer_packet(packet, meta, reason, now, pool);
        }
    }

    /// The same for a packet whose frame is gone: `packet` starts with its IP header and may be cut short.
    pub(crate) fn answer_packet(
        &mut self,
        packet: &[u8],
        meta: &Meta,
        reason: Reason,
        now: Now,
        pool: &mut dyn FramePool,
    ) {
        // RFC 5508 REQ-9, RFC 5382 REQ-4a: policy may want silence.
        let is_allowed = |line: &Line| line.icmp_errors.allows(reason.info().icmp);
        if meta.own || !self.plan.line(meta.ingress).is_none_or(is_allowed) {
            return;
        }
        if meta.family == Family::V6 {
            self.answer6(packet, meta, reason, now, pool);
            return;
        }
        if let Some(message) = self.message_for(meta, reason) {
            self.send_error(packet, meta, message, now, pool);
        }
    }

    fn message_for(&self, meta: &Meta, reason: Reason) -> Option<ErrorMessage> {
        Some(match reason.info().icmp {
            IcmpReply::Silent | IcmpReply::BeyondScope | IcmpReply::ParameterProblem => return None,
            IcmpReply::TimeExceeded => ErrorMessage::TtlExceeded,
            IcmpReply::NetUnreachable => ErrorMessage::Unreachable { code: 0 },
            IcmpReply::HostUnreachable => ErrorMessage::Unreachable { code: 1 },
            IcmpReply::PortUnreachable => ErrorMessage::Unreachable { code: 3 },
            // RFC 6146 §3.4.
            IcmpReply::ProtocolUnreachable => ErrorMessage::Unreachable { code: 2 },
            IcmpReply::FragmentationNeeded => ErrorMessage::FragmentationNeeded { mtu: meta.mtu },
            IcmpReply::SourceRouteFailed => ErrorMessage::Unreachable { code: 5 },
            IcmpReply::AdminProhibited => ErrorMessage::Unreachable { code: 13 },
            // RFC 6888 REQ-11b, RFC 5508 REQ-8: as the instance says; unasked-for packets from outside get nothing.
            IcmpReply::NatExhausted => match self.nat.exhausted_icmp(meta.flow.vrf, meta.flow.src) {
                ExhaustedIcmp::Silent => return None,
                ExhaustedIcmp::HostUnreachable => ErrorMessage::Unreachable { code: 1 },
                ExhaustedIcmp::AdminProhibited => ErrorMessage::Unreachable { code: 13 },
            },
        })
    }

    /// Sends an ICMP error about `packet` (from its IPv4 header on). When the NAT has already rewritten the packet,
    /// the error goes back through the NAT, so that its receiver sees its own addresses in it.
    fn send_error(
        &mut self,
        packet: &[u8],
        about: &Meta,
        message: ErrorMessage,
        now: Now,
        pool: &mut dyn FramePool,
    ) {
        let Ok(original) = Ipv4View::parse_quoted(packet) else { return };
        // A packet from IPv6 may have come in where IPv4 has no address at all.
        let source = self.plan.line(about.ingress).map_or(0, |line| line.address);
        let source = if source == 0 { self.plan.address_in(about.vrf) } else { source };
        // RFC 5508 REQ-10f: errors are rate-limited.
        if source == 0 || !may_cause_error(&original) || !self.buckets.icmp_errors.take(now) {
            return;
        }
        let to = original.src();
        let identification = self.rng.next_u16();
        let mut error = [0; ERROR_BYTES_MAX];
        let Some(len) = write_error(&mut error, source, OWN_TTL, identification, message, &original) else {
            return;
        };
        let Some(mut frame) = pool.alloc() else { return };
        self.accounts.originated += 1;
        let mut meta = Meta {
            flow: Flow {
                src: source,
                dst: to,
                proto: Proto::Icmp,
                ip_proto: 1,
                kind: Kind::IcmpError,
                l3: 0,
                l4: 20,
                vrf: about.vrf,
                ..Flow::default()
            },
            ingress: about.ingress,
            own: true,
            line: about.line,
            vrf: if about.translated.is_some() { about.vrf } else { about.flow.vrf },
            destination: to,
            ..Meta::default()
        };
        let written = error.get(..len).is_some_and(|error| frame.set_bytes(error));
        let way = match about.translated {
            _ if !written => Err(Reason::FramePoolEmpty),
            Some(direction) => self.translate_own_error(&mut frame, &mut meta, opposite(direction), now),
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

    /// Takes an error of our own through the NAT, once or (about a hairpinned packet) twice; the second time perhaps
    /// at another worker.
    pub(crate) fn translate_own_error(
        &mut self,
        frame: &mut Frame,
        meta: &mut Meta,
        first: Direction,
        now: Now,
    ) -> Result<Way, Reason> {
        let mut direction = first;
        loop {
            meta.direction = Some(direction);
            // A session that was not looked up here, of a packet that was held, may be another worker's.
            if self.workers > 1 && (direction != first || meta.line == NO_LINE) {
                let owner = self.owner_of(meta, Some(frame));
                if owner != self.id.0 {
                    return Ok(Way::Worker(owner));
                }
            }
            let hash = self.nat.hash(&meta.flow, direction);
            let packet = frame.bytes_mut();
            match self.nat.process(&meta.flow, direction, hash, NO_LINE, packet, now, |_, _| false) {
                Verdict::Translated { vrf, hairpin, .. } => {
                    meta.enter(packet, vrf);
                    if !hairpin || direction == Direction::In {
                        return Ok(Way::Here);
                    }
                    direction = Direction::In;
                }
                Verdict::Crosses { vrf, hairpin, .. } => {
                    let way = self.nat.way_of_error();
                    self.cross(frame, meta, &way, direction, vrf)?;
                    if !hairpin || direction == Direction::In {
                        return Ok(Way::Here);
                    }
                    meta.enter(frame.bytes(), vrf);
                    direction = Direction::In;
                }
                Verdict::Untouched => return Ok(Way::Here),
                Verdict::Drop(reason) => return Err(reason),
                Verdict::Held => return Err(Reason::NatIcmpNoSession),
            }
        }
    }
}

/// Where an error of our own goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// To be routed by this worker.
    Here,
    /// Through the NAT of that worker.
    Worker(u8),
}

/// The way back through the NAT.
pub(crate) const fn opposite(direction: Direction) -> Direction {
    match direction {
        Direction::Out => Direction::In,
        Direction::In => Direction::Out,
    }
}
