//! Packets in pieces: those that the host puts together, those that it cuts, and what it says of those that stay incomplete.

use carrack_base::{IcmpReply, IfIndex, Now};
use carrack_wire::ethernet::ethertype;
use carrack_wire::fragment::Fragments;
use carrack_wire::fragment6::Fragments6;
use carrack_wire::ipv4::{Ipv4View, protocol};
use carrack_wire::ipv6::{FragmentHeader, Ipv6View, next_header};
use carrack_wire::{L2, MacAddr, icmpv4, icmpv6};

use crate::echo::TTL;
use crate::host::Host;
use crate::l2;
use crate::reassembly::{self, Overdue, Piece, Whole};

impl Host {
    /// A piece of an IPv4 packet to the router; the whole one when it is complete.
    pub(crate) fn take_piece4(
        &mut self,
        now: Now,
        interface: IfIndex,
        l2: &L2,
        packet: &Ipv4View<'_>,
    ) -> Option<Whole> {
        let vrf = self.interfaces.get(&interface)?.vrf;
        if packet.protocol() != protocol::ICMP {
            self.counters.unhandled += 1;
            return None;
        }
        let piece = Piece::of4(vrf, (interface, l2.src), packet);
        self.reassembly.take(now, &piece, &mut self.counters)
    }

    /// The same of IPv6.
    pub(crate) fn take_piece6(
        &mut self,
        now: Now,
        interface: IfIndex,
        l2: &L2,
        packet: &Ipv6View<'_>,
        header: &FragmentHeader,
    ) -> Option<Whole> {
        let on = self.interfaces.get(&interface)?;
        let may = self.may_answer6(on, l2, packet.src(), self.own_for(on, packet.dst()));
        if !may || header.next_header != next_header::ICMPV6 {
            self.counters.unhandled += 1;
            return None;
        }
        let piece = Piece::of6(on.vrf, (interface, l2.src), packet, header);
        self.reassembly.take(now, &piece, &mut self.counters)
    }

    /// Sends an IPv4 packet, in pieces when the link does not take it whole.
    pub(crate) fn send4(&mut self, interface: IfIndex, to: MacAddr, packet: &[u8]) {
        let Some(on) = self.interfaces.get(&interface) else { return };
        let (mac, vlan, mtu) = (on.mac, on.vlan, usize::from(on.mtu));
        let Ok(view) = Ipv4View::parse(packet) else { return };
        // The caller sees to it that what is too long may be cut.
        let Ok(plan) = Fragments::plan(view, mtu) else { return };
        for piece in plan.clone() {
            let mut bytes = vec![0; piece.total_len()];
            if plan.write(&piece, &mut bytes).is_some() {
                self.send(interface, l2::frame(to, mac, vlan, ethertype::IPV4, &bytes));
            }
        }
    }

    /// The same of IPv6, in pieces of at most `limit` bytes with this identification.
    pub(crate) fn send6(
        &mut self,
        interface: IfIndex,
        to: MacAddr,
        packet: &[u8],
        limit: usize,
        identification: u32,
    ) {
        let Some(on) = self.interfaces.get(&interface) else { return };
        let (mac, vlan, mtu) = (on.mac, on.vlan, usize::from(on.mtu).min(limit));
        let Ok(view) = Ipv6View::parse(packet) else { return };
        let Ok(plan) = Fragments6::plan(view, mtu, identification) else { return };
        for piece in plan.clone() {
            let mut bytes = vec![0; piece.total_len()];
            if plan.write(&piece, &mut bytes).is_some() {
                self.send(interface, l2::frame(to, mac, vlan, ethertype::IPV6, &bytes));
            }
        }
    }

    /// Datagrams whose rest has not come: their senders are told (RFC 1122 §3.3.2, RFC 8200 §4.5).
    pub(crate) fn end_reassembly(&mut self, now: Now) {
        for overdue in self.reassembly.overdue(now) {
            self.counters.reassembly_timeout += 1;
            let Some(error) = self.time_exceeded(now, &overdue) else { continue };
            let ((interface, to), is_six) =
                (overdue.from, error.first().is_some_and(|first| first >> 4 == 6));
            let Some(on) = self.interfaces.get(&interface) else { continue };
            let kind = if is_six { ethertype::IPV6 } else { ethertype::IPV4 };
            let frame = l2::frame(to, on.mac, on.vlan, kind, &error);
            self.send(interface, frame);
        }
    }

    /// The error about a first fragment whose rest has not come, if one may be sent.
    fn time_exceeded(&mut self, now: Now, overdue: &Overdue) -> Option<Vec<u8>> {
        let on = self.interfaces.get(&overdue.from.0)?;
        if !on.icmp_errors.allows(IcmpReply::TimeExceeded) {
            return None;
        }
        let mut error = vec![0; icmpv6::ERROR_LEN_MAX];
        let len = if let Ok(first) = Ipv4View::parse_quoted(&overdue.first) {
            let is_fair = self.is_own(on, first.dst()) && icmpv4::may_cause_error(&first);
            let message = icmpv4::ErrorMessage::ReassemblyTimeExceeded;
            let may = is_fair && self.may_send_error(now);
            let number = self.draw(now) as u16;
            may.then(|| icmpv4::write_error(&mut error, first.dst(), TTL, number, message, &first))
        } else {
            let first = Ipv6View::parse_quoted(&overdue.first).ok()?;
            let message = icmpv6::ErrorMessage::ReassemblyTimeExceeded;
            let own = self.own_for(on, first.dst());
            let is_fair = self.is_own6(on, own) && icmpv6::may_cause_error(&first, message);
            let may = is_fair && self.may_send_error(now);
            may.then(|| icmpv6::write_error(&mut error, own, TTL, message, &first))
        };
        error.truncate(len.flatten()?);
        Some(error)
    }

    /// RFC 1812 §4.3.2.8, RFC 4443 §2.4 (f).
    fn may_send_error(&mut self, now: Now) -> bool {
        self.errors.1.take(now)
    }
}

/// How an answer goes back to who asked in pieces, or in one: at most so long, under which number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Back {
    pub(crate) limit: usize,
    pub(crate) identification: u32,
}

impl Back {
    /// Of what came in pieces. Its number serves the answer as well: who asked uses none twice at a time.
    pub(crate) fn of(whole: &Whole) -> Self {
        Self { limit: reassembly::limit6(whole), identification: whole.identification }
    }
}
