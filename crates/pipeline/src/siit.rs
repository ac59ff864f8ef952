//! Stateless translation (RFC 7915): a route leads a packet to a translator, and the packet it becomes is routed anew.
//!
//! A packet from IPv6 whose IPv4 destination an IPv6 host has is so led back to the translator at once: the hairpinning
//! of RFC 7757 §4.2.2. Its hop limit is decremented once, when it is sent.

use carrack_base::{Family, Now, Reason, VrfId};
use carrack_frame::{Frame, FramePool};
use carrack_nat::Kind;
use carrack_wire::ipv4::Ipv4View;
use carrack_wire::ipv6::{HEADER_LEN, Ipv6View};
use carrack_xlat::ROOM;
use carrack_xlat::siit::{Around, Denied, Dice, Siit};

use crate::burst::Meta;
use crate::cross::{Link, became, reason_of};
use crate::forward::Refused;
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
