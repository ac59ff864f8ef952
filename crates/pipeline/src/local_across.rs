//! Echo to the router itself through a translator, of either kind.

use carrack_base::{Family, Now, Proto, Reason};
use carrack_frame::{Frame, FramePool};
use carrack_wire::ipv4::{Ipv4Mut, Ipv4View};
use carrack_wire::ipv6::{HEADER_LEN, Ipv6Header, Ipv6Mut, Ipv6View};
use carrack_wire::{Icmpv4View, Icmpv6View, icmpv4, icmpv6};
use carrack_xlat::Moved;

use crate::burst::Meta;
use crate::cross::{Link, became};
use crate::forward::Refused;
use crate::local::OWN_TTL;
use crate::plan::{Hop, Plan};
use crate::worker::Worker;

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
        match self.answer_echo(&mut frame, meta, now) {
            Ok(()) => self.forward_again(plan, frame, meta, now, pool),
            Err(reason) => Err((frame, reason)),
        }
    }

    /// A packet from IPv6 to what stands behind a NAT64 prefix for nothing that a session leads to: for the router itself, or
    /// for what no route leads to. The router answers as the translator would have it answer, and takes no outside port for
    /// that.
    #[cold]
    pub(crate) fn local_by_prefix(
        &mut self,
        frame: &mut Frame,
        meta: &mut Meta,
        now: Now,
    ) -> Result<(), Reason> {
        let outside = self.nat.outside_vrf_six(meta.flow.via);
        if outside.and_then(|vrf| self.plan.route(vrf, meta.flow.dst)) != Some(Hop::Local) {
            return Err(Reason::NoRoute);
        }
        if self.is_own6(meta) {
            return Err(Reason::Ipv6SourceInvalid);
        }
        self.answer_echo(frame, meta, now)?;
        (meta.flow.via, meta.direction) = (0, None);
        without_extensions(frame, meta)
    }

    /// Makes an echo request its answer, a packet of the router's own from then on. There is no other service.
    fn answer_echo(&mut self, frame: &mut Frame, meta: &mut Meta, now: Now) -> Result<(), Reason> {
        if meta.flow.proto != Proto::Icmp {
            return Err(Reason::LocalNoService);
        }
        // No translator takes one (RFC 7915 §1.2).
        if meta.is_fragment {
            return Err(Reason::XlatIcmpFragment);
        }
        if !self.buckets.icmp.take(now) {
            return Err(Reason::PuntPolicedIcmp);
        }
        let packet = frame.bytes_mut().get_mut(usize::from(meta.flow.l3)..).unwrap_or(&mut []);
        match meta.family {
            Family::V4 => turn_echo4(packet)?,
            Family::V6 => turn_echo6(packet)?,
        }
        let flow = &mut meta.flow;
        (flow.src, flow.dst, flow.src6, flow.dst6) = (flow.dst, flow.src, flow.dst6, flow.src6);
        meta.destination = flow.dst;
        (meta.own, meta.raw_from_outside, meta.translations) = (true, false, 0);
        Ok(())
    }
}

/// Takes away what is between the header of an IPv6 packet and its message: it was meant for who has it.
fn without_extensions(frame: &mut Frame, meta: &mut Meta) -> Result<(), Reason> {
    let (l3, link) = (usize::from(meta.flow.l3), Link::of(frame, meta));
    let packet =
        Ipv6View::parse(frame.bytes().get(l3..).unwrap_or(&[])).map_err(|_| Reason::Ipv6Truncated)?;
    let found = packet.extensions().map_err(|_| Reason::Ipv6ExtensionInvalid)?;
    let (more, end) = (usize::from(found.offset) - HEADER_LEN, l3 + packet.packet().len());
    if more == 0 {
        return Ok(());
    }
    let start = l3 + more;
    let head = Ipv6Header {
        traffic_class: packet.traffic_class(),
        flow_label: packet.flow_label(),
        payload_len: (end - start - HEADER_LEN) as u16,
        next_header: found.protocol,
        hop_limit: packet.hop_limit(),
        src: packet.src(),
        dst: packet.dst(),
    };
    // Invariant: the message is behind the first of its headers.
    frame.bytes_mut()[start..start + HEADER_LEN].copy_from_slice(&head.to_bytes());
    became(frame, meta, Family::V6, Moved { start, end, cut_to: None }, &link)
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
