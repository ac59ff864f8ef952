//! From "where to" to "on the wire": route, fragment, neighbour, link header, transmit queue. Per packet, and the same
//! for packets in transit and the router's own.

use carrack_base::{Family, IfIndex, Now, Reason};
use carrack_frame::{Frame, FramePool};
use carrack_nat::Direction;
use carrack_wire::ethernet::{MacAddr, ethertype};
use carrack_wire::fragment::{Fragment, Fragments};
use carrack_wire::fragment6::{Fragment6, Fragments6};
use carrack_wire::ipv4::{FLAG_DF, Ipv4View};
use carrack_wire::ipv6::{HEADER_LEN, Ipv6View, is_link_local};

use crate::burst::Meta;
use crate::fragments::rewrite_identification;
use crate::mailbox::{CapturePoint, Event, TraceOutcome};
use crate::neighbours::{Address, Answer};
use crate::plan::{Hop, Line, Plan};
use crate::snapshot::Side;
use crate::stats::Stage;
use crate::worker::Worker;

/// Shortest Ethernet frame, without check sequence.
pub(crate) const FRAME_BYTES_MIN: usize = 60;
/// Event slots kept free of questions for neighbours: a scan of a subnet must not starve the rest.
const EVENT_SLOTS_KEPT: usize = 32;

/// Where an IPv6 packet goes.
enum Way6 {
    /// To this neighbour by this interface.
    Neighbour(IfIndex, u128),
    /// To the router itself.
    Local,
    /// To this stateless translator.
    Translate(u16),
}

/// Why a packet was not sent, and the packet.
pub(crate) type Refused = (Frame, Reason);

impl Worker {
    /// Routes one packet and sends it, keeps it for its neighbour, or takes it in when it is for the router.
    /// `frame` starts wherever `meta.flow.l3` says its IP header is preceded by a link header.
    pub(crate) fn forward(
        &mut self,
        frame: Frame,
        meta: &mut Meta,
        now: Now,
        pool: &mut dyn FramePool,
    ) -> Result<(), Refused> {
        let plan = self.plan.clone();
        self.forward_by(&plan, frame, meta, now, pool)
    }

    /// The same for a packet that has changed its IP version on the way.
    #[inline(never)]
    pub(crate) fn forward_again(
        &mut self,
        plan: &Plan,
        frame: Frame,
        meta: &mut Meta,
        now: Now,
        pool: &mut dyn FramePool,
    ) -> Result<(), Refused> {
        self.forward_by(plan, frame, meta, now, pool)
    }

    /// The same by a plan that the caller holds for the whole burst.
    #[inline(always)]
    pub(crate) fn forward_by(
        &mut self,
        plan: &Plan,
        mut frame: Frame,
        meta: &mut Meta,
        now: Now,
        pool: &mut dyn FramePool,
    ) -> Result<(), Refused> {
        if meta.family == Family::V6 {
            return self.forward6(plan, frame, meta, now, pool);
        }
        let Some(hop) = plan.route(meta.vrf, meta.destination) else {
            return Err((frame, Reason::NoRoute));
        };
        let (interface, gateway) = match hop {
            Hop::Neighbour { interface, gateway } => (interface, gateway),
            Hop::Local if meta.translations != 0 => return self.local_across(plan, frame, meta, now, pool),
            Hop::Local => return self.local(frame, meta, now),
            Hop::Drop(reason) => return Err((frame, reason)),
            Hop::Translate(number) => return self.translate_stateless(plan, frame, meta, number, now, pool),
        };
        let Some(line) = plan.line(interface) else { return Err((frame, Reason::SnapshotStale)) };
        if !line.up {
            return Err((frame, Reason::InterfaceDown));
        }
        if meta.raw_from_outside && line.side == Side::Inside && !self.may_enter(meta) {
            return Err((frame, Reason::NotForwarding));
        }
        let l3 = usize::from(meta.flow.l3);
        let Some(head) = frame.bytes_mut().get_mut(l3..).and_then(|bytes| bytes.first_chunk_mut::<20>())
        else {
            return Err((frame, Reason::Ipv4Truncated));
        };
        let total = u16::from_be_bytes([head[2], head[3]]);
        let too_big = total > line.mtu;
        let dont_fragment = u16::from_be_bytes([head[6], head[7]]) & FLAG_DF != 0;
        if too_big && dont_fragment {
            meta.mtu = line.mtu;
            return Err((frame, Reason::FragmentationNeeded));
        }
        if !meta.own {
            // RFC 1812 §5.3.1. Checked before the NAT, unless the packet was then for an address of the router.
            if head[8] <= 1 {
                return Err((frame, Reason::Ipv4TtlExpired));
            }
            // RFC 1624 eqn. 3 for one less in the high byte of its word; the sum never becomes 0xffff.
            head[8] -= 1;
            let sum = u32::from(u16::from_be_bytes([head[10], head[11]])) + 0x0100;
            let checksum = (sum + u32::from(sum >= 0xffff)) as u16;
            head[10..12].copy_from_slice(&checksum.to_be_bytes());
        }
        let next = if gateway == 0 { meta.destination } else { gateway }.into();
        // What follows the packet in its frame is padding; more than an Ethernet frame needs would pass the MTU unseen.
        frame.truncate((l3 + usize::from(total)).max(FRAME_BYTES_MIN));
        if too_big {
            return self.fragment_and_send(frame, meta, interface, line, next, now, pool);
        }
        self.deliver(frame, meta, interface, line, next, now)
    }

    /// The same for IPv6, which no router fragments (RFC 8200 §5).
    #[inline(never)]
    fn forward6(
        &mut self,
        plan: &Plan,
        mut frame: Frame,
        meta: &mut Meta,
        now: Now,
        pool: &mut dyn FramePool,
    ) -> Result<(), Refused> {
        let (interface, next) = match self.way6(plan, meta) {
            Ok(Way6::Neighbour(interface, next)) => (interface, next),
            Ok(Way6::Local) if meta.translations != 0 => {
                return self.local_across(plan, frame, meta, now, pool);
            }
            Ok(Way6::Local) => return self.local6(frame, meta, now),
            Ok(Way6::Translate(number)) => {
                return self.translate_stateless(plan, frame, meta, number, now, pool);
            }
            Err(reason) => return Err((frame, reason)),
        };
        let Some(line) = plan.line(interface) else { return Err((frame, Reason::SnapshotStale)) };
        if !line.up {
            return Err((frame, Reason::InterfaceDown));
        }
        if !line.has_ipv6() {
            return Err((frame, Reason::Ipv6Disabled));
        }
        let l3 = usize::from(meta.flow.l3);
        let Some(head) =
            frame.bytes_mut().get_mut(l3..).and_then(|bytes| bytes.first_chunk_mut::<HEADER_LEN>())
        else {
            return Err((frame, Reason::Ipv6Truncated));
        };
        let total = HEADER_LEN + usize::from(u16::from_be_bytes([head[4], head[5]]));
        if total > usize::from(line.mtu) && meta.cut_to == 0 {
            meta.mtu = line.mtu;
            return Err((frame, Reason::FragmentationNeeded));
        }
        if !meta.own {
            // Checked before, unless the packet was then for an address of the router.
            if head[7] <= 1 {
                return Err((frame, Reason::Ipv6HopLimitExpired));
            }
            head[7] -= 1;
        }
        // What follows the packet in its frame is padding; more than an Ethernet frame needs would pass the MTU unseen.
        frame.truncate((l3 + total).max(FRAME_BYTES_MIN));
        if meta.cut_to != 0 {
            return self.cut_and_send(frame, meta, interface, line, next.into(), now, pool);
        }
        self.deliver(frame, meta, interface, line, next.into(), now)
    }

    /// RFC 7915 §4.1: a translator fragments in the name of the IPv4 sender who allowed it.
    #[cold]
    #[allow(clippy::too_many_arguments, reason = "one call site")]
    fn cut_and_send(
        &mut self,
        frame: Frame,
        meta: &Meta,
        interface: IfIndex,
        line: &Line,
        next: Address,
        now: Now,
        pool: &mut dyn FramePool,
    ) -> Result<(), Refused> {
        let packet = frame.bytes().get(usize::from(meta.flow.l3)..).unwrap_or(&[]);
        let mtu = usize::from(meta.cut_to.min(line.mtu));
        let plan = Ipv6View::parse(packet).ok().and_then(|view| Fragments6::plan(view, mtu, 0).ok());
        let Some(plan) = plan else { return Err((frame, Reason::Ipv6FragmentInvalid)) };
        let pieces = plan.clone().map(|piece| (piece.total_len(), piece));
        let write = |piece: &Fragment6, out: &mut [u8]| plan.write(piece, out);
        self.send_pieces(pieces, write, meta, interface, line, next, now, pool);
        self.consume(frame, meta, interface, now);
        Ok(())
    }

    /// Sends the pieces of a packet, each in a buffer of its own and one more packet made here.
    #[allow(clippy::too_many_arguments, reason = "two call sites")]
    fn send_pieces<P>(
        &mut self,
        pieces: impl Iterator<Item = (usize, P)>,
        write: impl Fn(&P, &mut [u8]) -> Option<usize>,
        meta: &Meta,
        interface: IfIndex,
        line: &Line,
        next: Address,
        now: Now,
        pool: &mut dyn FramePool,
    ) {
        let own = Meta { flow: carrack_nat::Flow { l3: 0, ..meta.flow }, traced: 0, ..*meta };
        for (len, at) in pieces {
            let mut piece = pool.alloc();
            let written = piece.as_mut().and_then(|piece| piece.append(len)).and_then(|out| write(&at, out));
            // The whole packet is one received; each fragment is one more made here. The original ends as consumed.
            self.accounts.originated += 1;
            let Some(piece) = piece else {
                self.accounts.drop_n(Reason::FramePoolEmpty, 1);
                continue;
            };
            let sent = match written {
                Some(_) => self.deliver(piece, &own, interface, line, next, now),
                None => Err((piece, Reason::FramePoolEmpty)),
            };
            if let Err((piece, reason)) = sent {
                self.discard(piece, &own, reason, now);
            }
        }
    }

    /// A packet that has gone on in pieces ends here.
    fn consume(&mut self, frame: Frame, meta: &Meta, interface: IfIndex, now: Now) {
        if meta.traced != 0 {
            self.taps.step(Stage::Forward, interface, TraceOutcome::Consumed, meta, frame.bytes(), now);
        }
        self.accounts.consumed += 1;
        self.dead.push(frame);
    }

    /// Where an IPv6 packet goes.
    fn way6(&self, plan: &Plan, meta: &Meta) -> Result<Way6, Reason> {
        let destination = meta.flow.dst6;
        // Only what the router itself says goes to a link-local address, on the link that it is about.
        if meta.own && is_link_local(destination) {
            return Ok(Way6::Neighbour(meta.ingress, destination));
        }
        match plan.route6(meta.vrf, destination).ok_or(Reason::NoRoute)? {
            Hop::Neighbour { interface, gateway: 0 } => Ok(Way6::Neighbour(interface, destination)),
            Hop::Neighbour { interface, gateway } => Ok(Way6::Neighbour(interface, gateway)),
            Hop::Local => Ok(Way6::Local),
            Hop::Drop(reason) => Err(reason),
            Hop::Translate(number) => Ok(Way6::Translate(number)),
        }
    }

    /// Finds the neighbour and sends, or keeps the packet and asks.
    #[inline(always)]
    fn deliver(
        &mut self,
        frame: Frame,
        meta: &Meta,
        interface: IfIndex,
        line: &Line,
        next: Address,
        now: Now,
    ) -> Result<(), Refused> {
        match self.neighbours.lookup(interface, next, now) {
            Answer::Known(mac) => self.send(frame, meta, interface, line, mac, now),
            Answer::Unknown { ask } => self.ask_and_hold(frame, meta, interface, next, ask, now),
        }
    }

    #[cold]
    fn ask_and_hold(
        &mut self,
        frame: Frame,
        meta: &Meta,
        interface: IfIndex,
        next: Address,
        ask: bool,
        now: Now,
    ) -> Result<(), Refused> {
        if ask && self.mail.events.slots() > EVENT_SLOTS_KEPT {
            // A full ring asks again in a second.
            let _ = self.mail.events.push(Event::Resolve { interface, ip: next.into() });
        }
        if meta.traced != 0 {
            self.taps.step(Stage::Forward, interface, TraceOutcome::Held, meta, frame.bytes(), now);
        }
        self.neighbours
            .hold(frame, *meta, interface, next, now)
            .map_err(|frame| (frame, Reason::NeighbourQueueFull))
    }

    /// Puts the link header on and the packet into the port's transmit queue.
    #[inline(always)]
    pub(crate) fn send(
        &mut self,
        mut frame: Frame,
        meta: &Meta,
        interface: IfIndex,
        line: &Line,
        mac: MacAddr,
        now: Now,
    ) -> Result<(), Refused> {
        let (l3, header_len) = (usize::from(meta.flow.l3), usize::from(line.header.len));
        if l3 > header_len {
            frame.trim_front(l3 - header_len);
        } else if l3 < header_len && frame.prepend(header_len - l3).is_none() {
            return Err((frame, Reason::FrameHeadroom));
        }
        write_link_header(frame.bytes_mut(), line, mac);
        if meta.family == Family::V6 {
            write_ethertype(frame.bytes_mut(), header_len, ethertype::IPV6);
        }
        let Some(queue) = self.tx.get_mut(line.port.index()) else {
            return Err((frame, Reason::TxPortMissing));
        };
        if queue.len() == queue.capacity() {
            return Err((frame, Reason::TxQueueFull));
        }
        if meta.traced != 0 {
            let outcome = TraceOutcome::Sent(interface);
            self.taps.step(Stage::Forward, interface, outcome, meta, frame.bytes(), now);
        }
        if self.taps.capturing {
            self.taps.capture(CapturePoint::Tx, interface, Some(meta), frame.bytes(), now);
        }
        self.accounts.forwarded += 1;
        self.accounts.forwarded_bytes += frame.len() as u64;
        queue.push(frame);
        Ok(())
    }

    /// RFC 791 §2.3, RFC 4787 REQ-13: fragments in order, each in a buffer of its own.
    #[cold]
    #[allow(clippy::too_many_arguments, reason = "one call site")]
    fn fragment_and_send(
        &mut self,
        frame: Frame,
        meta: &Meta,
        interface: IfIndex,
        line: &Line,
        next: Address,
        now: Now,
        pool: &mut dyn FramePool,
    ) -> Result<(), Refused> {
        let mut frame = frame;
        // RFC 6864 §5.3.1: pieces of different subscribers' datagrams must not meet under one identification.
        if meta.translated == Some(Direction::Out) && !meta.is_fragment {
            let fragment_id = self.rng.next_u16();
            rewrite_identification(&Meta { fragment_id, ..*meta }, frame.bytes_mut());
        }
        let packet = frame.bytes().get(usize::from(meta.flow.l3)..).unwrap_or(&[]);
        let Some(plan) =
            Ipv4View::parse(packet).ok().and_then(|view| Fragments::plan(view, usize::from(line.mtu)).ok())
        else {
            return Err((frame, Reason::Ipv4FragmentInvalid));
        };
        let pieces = plan.clone().map(|piece| (piece.total_len(), piece));
        let write = |piece: &Fragment, out: &mut [u8]| plan.write(piece, out);
        self.send_pieces(pieces, write, meta, interface, line, next, now, pool);
        self.consume(frame, meta, interface, now);
        Ok(())
    }

    /// Untranslated from outside to a subscriber: only where no NAT guards it, or for exempt remotes (RFC 6888 REQ-6).
    #[cold]
    fn may_enter(&self, meta: &Meta) -> bool {
        meta.translated.is_some() || self.nat.may_pass_untranslated(meta.vrf, meta.destination, meta.flow.src)
    }

    /// A packet whose neighbour is now known.
    pub(crate) fn send_held(
        &mut self,
        frame: Frame,
        meta: &Meta,
        interface: IfIndex,
        mac: MacAddr,
        now: Now,
    ) {
        let sent = match self.plan.line(interface).copied() {
            Some(line) => self.send(frame, meta, interface, &line, mac, now),
            None => Err((frame, Reason::SnapshotStale)),
        };
        if let Err((frame, reason)) = sent {
            self.discard(frame, meta, reason, now);
        }
    }
}

/// Another type than the interface's link header has: the last two of its bytes.
fn write_ethertype(frame: &mut [u8], header_len: usize, ethertype: u16) {
    if let Some(place) = frame.get_mut(header_len - 2..header_len) {
        place.copy_from_slice(&ethertype.to_be_bytes());
    }
}

/// The interface's link header with its destination. Untagged ones are written whole; a length known beforehand is
/// several times faster than one that is not.
#[inline(always)]
fn write_link_header(frame: &mut [u8], line: &Line, mac: MacAddr) {
    const UNTAGGED: usize = 14;
    let length = usize::from(line.header.len);
    if length == UNTAGGED {
        if let (Some(to), Some(from)) =
            (frame.first_chunk_mut::<UNTAGGED>(), line.header.bytes.first_chunk::<UNTAGGED>())
        {
            *to = *from;
        }
    } else if let (Some(to), Some(from)) = (frame.get_mut(..length), line.header.bytes.get(..length)) {
        to.copy_from_slice(from);
    }
    if let Some(destination) = frame.first_chunk_mut::<6>() {
        *destination = mac.0;
    }
}
