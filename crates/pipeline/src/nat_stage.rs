//! The NAT stage: a whole burst is hashed, its index buckets fetched, its session lines fetched, then translated, so
//! that the memory of one packet comes while others are worked on.

use carrack_base::{Now, Proto, Reason, VrfId};
use carrack_frame::Frame;
use carrack_nat::{Direction, Flow, Kind, NO_LINE, Verdict};
use carrack_wire::ipv4::protocol::ESP;
use carrack_wire::ipv6::Ipv6View;

use crate::burst::{Burst, Fate, Handover, Meta, Resume};
use crate::forward::Refused;
use crate::fragments::rewrite_identification;
use crate::mailbox::TraceOutcome;
use crate::parse::{set_icmp_identifier, set_other_ports, set_spi};
use crate::plan::{Hop, Plan};
use crate::snapshot::Side;
use crate::stats::Stage;
use crate::worker::Worker;

/// Would an untranslated packet leave by an outside interface, seen from its own routing instance first? Where nothing
/// leads it would not: it goes on untouched to its drop, and takes no session for that.
/// `six`: an IPv6 packet to a NAT64 prefix cannot go on as it is, so it goes wherever the address leads.
pub(crate) fn leaves(plan: &Plan, (here, six): (VrfId, bool), outside: VrfId, destination: u32) -> bool {
    let from_outside = plan.route(outside, destination);
    if six {
        return !matches!(from_outside, None | Some(Hop::Local));
    }
    if here == outside {
        // Where there is no way outside at all, what has no route would have gone there: a host that nobody serves is
        // told so rather than that there is no route.
        let nowhere = !matches!(from_outside, Some(Hop::Neighbour { .. } | Hop::Local | Hop::Translate(_)));
        return plan.leaves_by(from_outside) || (nowhere && !plan.has_outside(here));
    }
    match plan.route(here, destination) {
        Some(Hop::Local | Hop::Translate(_)) => false,
        Some(Hop::Neighbour { interface, .. }) => {
            // Untouched it would leave by that interface, whatever the outside routing instance says.
            let is_outside = plan.line(interface).is_none_or(|line| line.side == Side::Outside);
            is_outside
                && !matches!(from_outside, Some(Hop::Local))
                && (plan.leaves_by(from_outside) || !matches!(from_outside, Some(Hop::Neighbour { .. })))
        }
        // Only the outside routing instance knows why it drops: the packet is translated to be told.
        Some(Hop::Drop(_)) | None => {
            plan.leaves_by(from_outside) || matches!(from_outside, Some(Hop::Drop(_)))
        }
    }
}

impl Worker {
    /// Sends packets whose subscriber another worker owns to that worker.
    pub(crate) fn steer(&mut self, burst: &mut Burst, now: Now) {
        if self.workers == 1 {
            return;
        }
        for at in 0..burst.len {
            let Some(meta) = burst.meta.get(at).filter(|meta| meta.fate == Fate::Going && !meta.is_home)
            else {
                continue;
            };
            let owner = self.owner_of(meta, burst.frames.get(at).and_then(Option::as_ref));
            if owner != self.id.0 {
                self.hand_over(burst, at, owner, Resume::Nat, now);
            }
        }
    }

    /// The worker that owns a packet's subscriber; this one when no NAT is concerned.
    pub(crate) fn owner_of(&self, meta: &Meta, frame: Option<&Frame>) -> u8 {
        let (flow, directory) = (&meta.flow, self.nat.directory());
        let owner = match meta.direction {
            None => None,
            Some(_) if flow.kind == Kind::IcmpError => self.owner_of_error(meta, frame),
            Some(Direction::Out) if flow.is_six() => {
                Some(directory.owner_of_six(flow.vrf, flow.via, flow.src6))
            }
            Some(Direction::Out) => directory.owner_of_source(flow.vrf, flow.src),
            Some(Direction::In) if flow.ip_proto == ESP && self.plan.learns_esp => {
                directory.owner_of_esp(flow, false)
            }
            Some(Direction::In) => {
                directory.owner_of_outside(flow.vrf, flow.dst, flow.proto as u8, flow.dport)
            }
        };
        owner.map_or(self.id.0, |owner| owner.0)
    }

    /// An ICMP error belongs to the owner of the packet it carries, whoever sent it.
    #[cold]
    fn owner_of_error(&self, meta: &Meta, frame: Option<&Frame>) -> Option<carrack_base::WorkerId> {
        let packet = frame?.bytes().get(usize::from(meta.flow.l4) + 8..)?;
        if meta.flow.is_six() {
            // Several instances may have the prefix: whose it is tells the quoted host, not the router that sent the error.
            let inner = Ipv6View::parse_quoted(packet).ok()?;
            let (directory, vrf, host) = (self.nat.directory(), meta.flow.vrf, inner.dst());
            let found = directory.embedded(vrf, host, inner.src())?;
            return Some(directory.owner_of_embedded(vrf, host, &found));
        }
        let inner = carrack_wire::ipv4::Ipv4View::parse_quoted(packet).ok()?;
        let proto = Proto::from_ip(inner.protocol());
        let word =
            |at: usize| inner.payload().get(at..at + 2).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]));
        let directory = self.nat.directory();
        match meta.direction? {
            Direction::Out => Some(directory.owner_of_inside(meta.flow.vrf, inner.dst())),
            Direction::In if inner.protocol() == ESP && self.plan.learns_esp => {
                let (sport, dport) = (word(2), word(0));
                let (src, dst, vrf) = (inner.dst(), inner.src(), meta.flow.vrf);
                directory.owner_of_esp(&Flow { src, dst, sport, dport, vrf, proto, ..Flow::default() }, true)
            }
            Direction::In => {
                let port = if proto == Proto::Icmp { word(4) } else { word(0) };
                directory.owner_of_outside(meta.flow.vrf, inner.src(), proto as u8, port)
            }
        }
    }

    /// Hands a packet of the burst to another worker; a full ring is a counted drop.
    pub(crate) fn hand_over(&mut self, burst: &mut Burst, at: usize, owner: u8, resume: Resume, now: Now) {
        let (Some(place), Some(meta)) = (burst.frames.get_mut(at), burst.meta.get_mut(at)) else { return };
        let Some(frame) = place.take() else { return };
        if meta.traced != 0 {
            self.taps.step(
                Stage::Steer,
                meta.ingress,
                TraceOutcome::HandedOver(owner),
                meta,
                frame.bytes(),
                now,
            );
        }
        match self.hand_to(frame, meta, owner, resume) {
            Ok(()) => meta.fate = Fate::Gone,
            Err((frame, reason)) => {
                *place = Some(frame);
                meta.fate = Fate::Dropped(reason);
            }
        }
    }

    /// Puts a packet into another worker's ring.
    pub(crate) fn hand_to(
        &mut self,
        frame: Frame,
        meta: &Meta,
        owner: u8,
        resume: Resume,
    ) -> Result<(), Refused> {
        // The trace goes on only where it began.
        let meta = Meta { traced: 0, line: NO_LINE, ..*meta };
        let ring = self.mail.hand_out.get_mut(usize::from(owner)).and_then(Option::as_mut);
        let Some(ring) = ring else { return Err((frame, Reason::HandoverQueueFull)) };
        match ring.push(Handover { frame, meta, resume }) {
            Ok(()) => {
                self.accounts.handed_out += 1;
                Ok(())
            }
            Err(rtrb::PushError::Full(refused)) => Err((refused.frame, Reason::HandoverQueueFull)),
        }
    }

    /// Looks up and translates.
    pub(crate) fn translate(&mut self, burst: &mut Burst, now: Now) {
        for (_, meta) in burst.going() {
            if let Some(direction) = meta.direction {
                meta.hash = self.nat.hash(&meta.flow, direction);
                self.nat.prefetch_bucket(meta.hash);
            }
        }
        for (_, meta) in burst.going() {
            if meta.direction.is_some() {
                meta.line = self.nat.prefetch_line(meta.hash);
            }
        }
        // Who has no session from inside will need a mapping and a subscriber.
        let needs = |meta: &Meta| meta.line == NO_LINE && meta.direction == Some(Direction::Out);
        for (_, meta) in burst.going().filter(|(_, meta)| needs(meta)) {
            self.nat.expect_session(meta.flow, meta.hash);
        }
        self.nat.prepare();
        for at in 0..burst.len {
            let (Some(Some(frame)), Some(meta)) = (burst.frames.get_mut(at), burst.meta.get_mut(at)) else {
                continue;
            };
            if meta.fate != Fate::Going || meta.direction.is_none() {
                continue;
            }
            if let Some(reason) = burst.refused.get_mut(at).and_then(Option::take) {
                meta.fate = Fate::Dropped(reason);
                continue;
            }
            match self.translate_one(frame, meta, now) {
                Next::Stay => {}
                Next::Gather => self.gather_control(burst, at, now),
                Next::GatherAll(vrf) => self.gather_unsummed(burst, at, vrf, now),
                Next::OtherWorker => {
                    let frame = burst.frames.get(at).and_then(Option::as_ref);
                    let owner = burst.meta.get(at).map_or(self.id.0, |meta| self.owner_of(meta, frame));
                    self.hand_over(burst, at, owner, Resume::Nat, now);
                }
            }
        }
        self.nat.settle();
        self.let_whole_on(burst, now);
    }

    #[inline]
    fn translate_one(&mut self, frame: &mut Frame, meta: &mut Meta, now: Now) -> Next {
        let Some(direction) = meta.direction else { return Next::Stay };
        if meta.is_six_or_refused && !self.nat.leads_to_six(&meta.flow, frame.bytes()) {
            meta.fate = Fate::Dropped(Reason::Ipv4SourceRoute);
            return Next::Stay;
        }
        let plan = &self.plan;
        let (here, six) = (meta.flow.vrf, meta.flow.is_six());
        let verdict = self.nat.process(
            &meta.flow,
            direction,
            meta.hash,
            meta.line,
            frame.bytes_mut(),
            now,
            |outside, destination| leaves(plan, (here, six), outside, destination),
        );
        match verdict {
            Verdict::Translated { line, created, vrf, hairpin } => {
                meta.translated = Some(direction);
                meta.line = line;
                meta.vrf = vrf;
                meta.raw_from_outside = false;
                if direction == Direction::In {
                    meta.destination = destination_of(frame.bytes(), meta);
                }
                let is_control = self.nat.is_control(line) && meta.flow.kind != Kind::IcmpError;
                if is_control && meta.is_fragment && meta.flow.proto == Proto::Udp && !hairpin {
                    rewrite_identification(meta, frame.bytes_mut());
                    return Next::Gather;
                }
                if is_control && let Err(reason) = self.mediate(frame, meta, direction, line, now) {
                    meta.fate = Fate::Dropped(reason);
                    return Next::Stay;
                }
                if meta.is_fragment {
                    rewrite_identification(meta, frame.bytes_mut());
                }
                if meta.traced != 0 {
                    self.trace_translation(frame, meta, line, created, hairpin, now);
                }
                if hairpin {
                    return self.hairpin(frame, meta, vrf, now);
                }
            }
            Verdict::Untouched => {
                if six && let Err(reason) = self.local_by_prefix(frame, meta, now) {
                    meta.fate = Fate::Dropped(reason);
                } else if meta.traced != 0 {
                    self.taps.step(Stage::Nat, meta.ingress, TraceOutcome::Exempt, meta, frame.bytes(), now);
                }
            }
            Verdict::Crosses { line, created, vrf, hairpin } => {
                return self.take_across(frame, meta, direction, (line, created, vrf, hairpin), now);
            }
            Verdict::Drop(reason) => meta.fate = Fate::Dropped(reason),
            Verdict::Held => {
                if meta.traced != 0 {
                    self.taps.step(Stage::Nat, meta.ingress, TraceOutcome::Held, meta, frame.bytes(), now);
                }
                meta.fate = Fate::HeldByNat;
            }
        }
        Next::Stay
    }

    /// A packet of a session between IPv6 and IPv4.
    fn take_across(
        &mut self,
        frame: &mut Frame,
        meta: &mut Meta,
        direction: Direction,
        (line, created, vrf, hairpin): (u32, bool, VrfId, bool),
        now: Now,
    ) -> Next {
        let is_error = meta.flow.kind == Kind::IcmpError;
        let way = if is_error { Some(self.nat.way_of_error()) } else { self.nat.way(line) };
        meta.line = line;
        if way.is_some_and(|way| Self::waits_for_all(meta, direction, &way)) {
            return Next::GatherAll(vrf);
        }
        let has_number = meta.is_fragment || meta.fragment_at != 0;
        let mut crossed = match way {
            Some(way) => self.cross(frame, meta, &way, direction, vrf),
            None => Err(Reason::SnapshotStale),
        };
        if crossed.is_ok() && !is_error && self.nat.is_control(line) {
            crossed = self.mediate(frame, meta, direction, line, now);
        }
        if let Err(reason) = crossed {
            meta.fate = Fate::Dropped(reason);
            return Next::Stay;
        }
        if has_number && direction == Direction::Out {
            rewrite_identification(meta, frame.bytes_mut());
        }
        if meta.traced != 0 {
            self.trace_translation(frame, meta, line, created, hairpin, now);
        }
        if hairpin { self.hairpin(frame, meta, vrf, now) } else { Next::Stay }
    }

    /// RFC 4787 REQ-9, REQ-9a, RFC 5382 REQ-8, REQ-8a and RFC 6146 §3.8: the packet, now with its outside source, comes in again as if
    /// from outside.
    #[cold]
    fn hairpin(&mut self, frame: &mut Frame, meta: &mut Meta, vrf: VrfId, now: Now) -> Next {
        meta.direction = Some(Direction::In);
        meta.enter(frame.bytes(), vrf);
        let l4 = usize::from(meta.flow.l4);
        let word = |at: usize| frame.bytes().get(at..at + 2).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]));
        // A later fragment has no ports: its source port is now its session's.
        let session_port = || self.nat.outside_port_of(meta.line).unwrap_or(0);
        let port = |at: usize| if l4 > 0 { word(l4 + at) } else { session_port() };
        match meta.flow.proto {
            _ if meta.flow.kind == Kind::IcmpError => {}
            Proto::Icmp => set_icmp_identifier(meta, port(4)),
            Proto::Other if meta.flow.ip_proto == ESP && self.plan.learns_esp => set_spi(frame.bytes(), meta),
            Proto::Other => set_other_ports(meta, frame.bytes().get(l4..).unwrap_or(&[])),
            Proto::Tcp | Proto::Udp => meta.flow.sport = port(0),
        }
        meta.hash = self.nat.hash(&meta.flow, Direction::In);
        meta.line = NO_LINE;
        if self.workers > 1 && self.owner_of(meta, Some(frame)) != self.id.0 {
            return Next::OtherWorker;
        }
        self.translate_one(frame, meta, now)
    }

    #[cold]
    pub(crate) fn trace_translation(
        &mut self,
        frame: &Frame,
        meta: &Meta,
        line: u32,
        created: bool,
        hairpin: bool,
        now: Now,
    ) {
        let outcome =
            if created { TraceOutcome::SessionCreated(line) } else { TraceOutcome::SessionHit(line) };
        self.taps.step(Stage::Nat, meta.ingress, outcome, meta, frame.bytes(), now);
        if hairpin {
            self.taps.step(Stage::Nat, meta.ingress, TraceOutcome::Hairpin, meta, frame.bytes(), now);
        }
    }
}

/// Where a packet goes on after the NAT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Stay,
    OtherWorker,
    /// To the other fragments of its datagram, which a gateway reads.
    Gather,
    /// To the other fragments of its datagram, which has no checksum; all go on in this routing instance.
    GatherAll(VrfId),
}

#[inline]
fn destination_of(frame: &[u8], meta: &Meta) -> u32 {
    let at = usize::from(meta.flow.l3) + 16;
    frame.get(at..at + 4).map_or(meta.destination, |b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]))
}
