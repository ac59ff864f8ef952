//! Stateless translation (RFC 7915): a route leads a packet to a translator, and the packet it becomes is routed anew.
//!
//! A packet from IPv6 whose IPv4 destination an IPv6 host has is so led back to the translator at once: the hairpinning
//! of RFC 7757 §4.2.2. Its hop limit is decremented once, when it is sent.

use carrack_base::{Family, Now, Proto, Reason, VrfId};
use carrack_frame::{Frame, FramePool};
use carrack_nat::Kind;
use carrack_wire::ipv4::{Ipv4Mut, Ipv4View};
use carrack_wire::ipv6::{HEADER_LEN, Ipv6Mut, Ipv6View};
use carrack_wire::{Icmpv4View, Icmpv6View, icmpv4, icmpv6};
use carrack_xlat::ROOM;
use carrack_xlat::siit::{Around, Denied, Dice, Siit};

use crate::burst::Meta;
use crate::cross::{Link, became, reason_of};
use crate::forward::Refused;
use crate::local::OWN_TTL;
use crate::plan::Plan;
use crate::snapshot::Side;
use crate::worker::Worker;

/// There, and back when hairpinned.
const TRANSLATIONS_MAX: u8 = 2;
/// What revealing the source of an error takes before the packet.
const ROOM_TO_REVEAL: usize = 96;

impl Worker {
    /// Translates a packet and routes what it has become.
    #[inline(never)]
    pub(crate) fn translate_stateless(
        &mut self,
        plan: &Plan,
        mut frame: Frame,
        meta: &mut Meta,
        number: u16,
        now: Now,
        pool: &mut dyn FramePool,
    ) -> Result<(), Refused> {
        let Some(instance) = plan.snapshot.siit.get(usize::from(number)) else {
            return Err((frame, Reason::SnapshotStale));
        };
        if meta.translations >= TRANSLATIONS_MAX {
            self.translators.dropped(number, Reason::SiitLoop);
            return Err((frame, Reason::SiitLoop));
        }
        let (family, bytes) = (meta.family, packet_len(&frame, meta));
        let translated = match family {
            Family::V4 => translate_to_v6(plan, &mut frame, meta, &instance.translator),
            Family::V6 => {
                self.identification = self.identification.wrapping_add(1);
                // Only an error's source is chosen at random.
                let is_error = meta.flow.kind == Kind::IcmpError;
                let random = if is_error { self.rng.next_u64() as u32 } else { 0 };
                let dice = Dice { identification: self.identification, random };
                translate_to_v4(plan, &mut frame, meta, &instance.translator, dice)
            }
        };
        if let Err(reason) = translated {
            self.translators.dropped(number, reason);
            return Err((frame, reason));
        }
        if let Some(counts) = self.translators.of(usize::from(number)) {
            let way = if family == Family::V4 { &mut counts.to_v6 } else { &mut counts.to_v4 };
            way.count(bytes);
        }
        meta.translations += 1;
        // What comes from outside and was no packet of a session stays out of what a NAT guards, whatever its version.
        meta.raw_from_outside |= plan.line(meta.ingress).is_some_and(|line| line.side == Side::Outside);
        self.forward_again(plan, frame, meta, now, pool)
    }
}

impl Worker {
    /// A translated packet to one of the router's own addresses. The host would answer whoever sent it in the wrong IP
    /// version, by the link that the packet came from; so an echo is answered here and goes back through the translator,
    /// and there is no other service.
    #[cold]
    pub(crate) fn local_across(
        &mut self,
        plan: &Plan,
        mut frame: Frame,
        meta: &mut Meta,
        now: Now,
        pool: &mut dyn FramePool,
    ) -> Result<(), Refused> {
        let is_six = meta.family == Family::V6;
        if meta.own {
            return if is_six { self.local6(frame, meta, now) } else { self.local(frame, meta, now) };
        }
        let (is_own, invalid) = match meta.family {
            Family::V4 => (self.is_own(meta), Reason::Ipv4SourceInvalid),
            Family::V6 => (self.is_own6(meta), Reason::Ipv6SourceInvalid),
        };
        if is_own {
            return Err((frame, invalid));
        }
        if meta.flow.proto != Proto::Icmp {
            return Err((frame, Reason::LocalNoService));
        }
        if !self.buckets.icmp.take(now) {
            return Err((frame, Reason::PuntPolicedIcmp));
        }
        let packet = frame.bytes_mut().get_mut(usize::from(meta.flow.l3)..).unwrap_or(&mut []);
        let turned = if is_six { turn_echo6(packet) } else { turn_echo4(packet) };
        if let Err(reason) = turned {
            return Err((frame, reason));
        }
        let flow = &mut meta.flow;
        (flow.src, flow.dst, flow.src6, flow.dst6) = (flow.dst, flow.src, flow.dst6, flow.src6);
        meta.destination = flow.dst;
        // A packet of the router's own from here on.
        (meta.own, meta.raw_from_outside, meta.translations) = (true, false, 0);
        self.forward_again(plan, frame, meta, now, pool)
    }
}

/// Makes the echo request in `packet`, which starts with its IPv4 header, its reply (RFC 1812 §4.3.3.6).
fn turn_echo4(packet: &mut [u8]) -> Result<(), Reason> {
    let view = Ipv4View::parse(packet).map_err(|_| Reason::Ipv4Truncated)?;
    let (src, dst) = (view.src(), view.dst());
    if !Icmpv4View::parse(view.payload()).is_ok_and(|icmp| icmp.checksum_ok()) {
        return Err(Reason::IcmpBadChecksum);
    }
    let mut packet = Ipv4Mut::parse(packet).map_err(|_| Reason::Ipv4Truncated)?;
    if !icmpv4::echo_reply_in_place(packet.payload_mut()) {
        return Err(Reason::LocalNoService);
    }
    packet.set_src(dst);
    packet.set_dst(src);
    packet.set_ttl(OWN_TTL);
    packet.fill_checksum();
    Ok(())
}

/// The same of IPv6 (RFC 4443 §4.2).
fn turn_echo6(packet: &mut [u8]) -> Result<(), Reason> {
    let view = Ipv6View::parse(packet).map_err(|_| Reason::Ipv6Truncated)?;
    let (src, dst) = (view.src(), view.dst());
    let at = usize::from(view.extensions().map_err(|_| Reason::Ipv6ExtensionInvalid)?.offset);
    let len = view.packet().len();
    let message = packet.get_mut(at..len).unwrap_or(&mut []);
    if !Icmpv6View::parse(message).is_ok_and(|icmp| icmp.checksum_ok(src, dst)) {
        return Err(Reason::IcmpBadChecksum);
    }
    if !icmpv6::echo_reply_in_place(message) {
        return Err(Reason::LocalNoService);
    }
    let mut packet = Ipv6Mut::parse(packet).map_err(|_| Reason::Ipv6Truncated)?;
    packet.set_src(dst);
    packet.set_dst(src);
    packet.set_hop_limit(OWN_TTL);
    Ok(())
}

/// Bytes of the IP packet, as its header says.
fn packet_len(frame: &Frame, meta: &Meta) -> usize {
    let word = |at: usize| {
        let at = usize::from(meta.flow.l3) + at;
        frame.bytes().get(at..at + 2).map_or(0, |b| usize::from(u16::from_be_bytes([b[0], b[1]])))
    };
    match meta.family {
        Family::V4 => word(2),
        Family::V6 => HEADER_LEN + word(4),
    }
}

fn translate_to_v4(
    plan: &Plan,
    frame: &mut Frame,
    meta: &mut Meta,
    siit: &Siit,
    dice: Dice,
) -> Result<(), Reason> {
    let (l3, link) = (usize::from(meta.flow.l3), Link::of(frame, meta));
    let packet = frame.bytes().get(l3..).and_then(|bytes| Ipv6View::parse(bytes).ok());
    let packet = packet.ok_or(Reason::Ipv6Truncated)?;
    let found = packet.extensions().map_err(|_| Reason::Ipv6ExtensionInvalid)?;
    let len = packet.packet().len();
    frame.truncate(l3 + len);
    let wanted = if siit.reveals_source && meta.flow.kind == Kind::IcmpError { ROOM_TO_REVEAL } else { 0 };
    let room = wanted.saturating_sub(l3).min(frame.headroom());
    frame.prepend(room);
    let vrf = meta.vrf;
    match siit.to_v4(frame.bytes_mut(), l3 + room, &found, dice, &Links { plan, vrf, own: meta.own }) {
        Ok((moved, _)) => {
            became(frame, meta, Family::V4, moved, &link)?;
            meta.enter(frame.bytes(), vrf);
            Ok(())
        }
        Err(denied) => {
            frame.trim_front(room);
            Err(reason_of_denied(denied, meta))
        }
    }
}

fn translate_to_v6(plan: &Plan, frame: &mut Frame, meta: &mut Meta, siit: &Siit) -> Result<(), Reason> {
    let (l3, link) = (usize::from(meta.flow.l3), Link::of(frame, meta));
    let packet = frame.bytes().get(l3..).and_then(|bytes| Ipv4View::parse(bytes).ok());
    let len = packet.ok_or(Reason::Ipv4Truncated)?.packet().len();
    frame.truncate(l3 + len);
    let room = ROOM.saturating_sub(l3);
    frame.prepend(room).ok_or(Reason::FrameHeadroom)?;
    match siit.to_v6(frame.bytes_mut(), l3 + room, &Links { plan, vrf: meta.vrf, own: meta.own }) {
        Ok((moved, destination)) => {
            let packet = frame.bytes().get(moved.start..).unwrap_or(&[]);
            let source = Ipv6View::parse_quoted(packet).map_or(0, |packet| packet.src());
            (meta.flow.src6, meta.flow.dst6) = (source, destination);
            became(frame, meta, Family::V6, moved, &link)
        }
        Err(denied) => {
            // As it was, for whoever tells its sender.
            frame.trim_front(room);
            Err(reason_of_denied(denied, meta))
        }
    }
}

/// The links of a routing instance, and whether the packet is the router's own.
struct Links<'a> {
    plan: &'a Plan,
    vrf: VrfId,
    own: bool,
}

impl Around for Links<'_> {
    fn mtu4(&self, to: u32) -> u16 {
        self.plan.line_behind(self.plan.route(self.vrf, to)).map_or(u16::MAX, |line| line.mtu)
    }

    fn mtu6(&self, to: u128) -> u16 {
        self.plan.line_behind(self.plan.route6(self.vrf, to)).map_or(u16::MAX, |line| line.mtu)
    }

    fn own4(&self, to: u32) -> Option<u32> {
        let line = self.plan.line_behind(self.plan.route(self.vrf, to));
        // Hairpinned, the error leaves by no interface yet.
        let own = line.map_or_else(|| self.plan.address_in(self.vrf), |line| line.address);
        (self.own && own != 0).then_some(own)
    }

    fn own6(&self, to: u128) -> Option<u128> {
        let line = self.plan.line_behind(self.plan.route6(self.vrf, to));
        let own = line.map_or_else(|| self.plan.address6_in(self.vrf), |line| line.address6);
        (self.own && own != 0).then_some(own)
    }
}

fn reason_of_denied(denied: Denied, meta: &mut Meta) -> Reason {
    match denied {
        Denied::IllegalSource => Reason::SiitSourceInvalid,
        Denied::UnmappedSource => Reason::SiitSourceUnmapped,
        Denied::UnmappedDestination => Reason::SiitDestinationUnmapped,
        Denied::NonGlobal => Reason::SiitNonGlobal,
        Denied::Refused(refused) => reason_of(refused, meta),
    }
}
