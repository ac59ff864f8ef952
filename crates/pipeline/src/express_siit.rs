//! The express lane for packets that a stateless translator takes (RFC 7915): no session to find, so they are known in
//! the first turn and translated in the third, by the same translator as in the general stages.

use carrack_frame::Frame;
use carrack_vector::Pass;
use carrack_wire::ethernet::ethertype;
use carrack_wire::ipv4::{self, FLAG_DF, protocol};
use carrack_wire::ipv6::{self, Extensions, Ipv6View};
use carrack_xlat::{Ports, Siit, V4Way, V6Way, to_v4, to_v6};

use crate::express::Driver;
use crate::express6::{may_be_answered, put_link};
use crate::parse::{SeenSix, in_transit};
use crate::plan::Hop;

/// Ethernet without tags.
const UNTAGGED: usize = 14;
/// By how much an IPv6 header is longer than one of IPv4.
const GROWTH: usize = ipv6::HEADER_LEN - ipv4::HEADER_LEN;

impl Driver<'_> {
    /// First turn: does a route lead this common IPv4 packet to a translator, before any NAT has a say?
    #[inline(never)]
    pub(crate) fn is_for_stateless<const OUT: bool>(
        &self,
        addresses: u64,
        total: u16,
        pass: &mut Pass,
    ) -> bool {
        let (src, dst) = ((addresses >> 32) as u32, addresses as u32);
        let vrf = self.common.vrf;
        let Some(Hop::Translate(number)) = self.plan.route(vrf, dst) else { return false };
        let is_of_nat = !OUT && self.tables.directory().outside(vrf, dst).is_some();
        if is_of_nat || !in_transit(src) || !in_transit(dst) {
            return false;
        }
        (pass.addresses, pass.ports, pass.stateless) = (addresses, number.into(), total);
        true
    }

    /// The same for a common IPv6 packet that goes to no NAT64 prefix.
    #[inline(always)]
    pub(crate) fn note_stateless_six(&self, seen: &SeenSix, pass: &mut Pass) {
        if let Some(number) = self.plan.translator_of(self.common.vrf, seen.dst)
            && may_be_answered(seen.src)
            && !(self.common.crosses && self.tables.directory().is_embedded(self.common.vrf, seen.dst))
        {
            (pass.six, pass.ports, pass.stateless) = (true, number.into(), seen.total);
        }
    }

    /// Third turn: the port whose queue the packet now belongs in, or `None` and nothing has changed.
    #[inline(always)]
    pub(crate) fn pass_stateless<const TAG: usize>(&mut self, pass: &Pass, frame: &mut Frame) -> Option<u16> {
        let (plan, number) = (self.plan, pass.ports as usize);
        let siit = &plan.snapshot.siit.get(number)?.translator;
        let (l3, total) = (UNTAGGED + TAG, usize::from(pass.stateless));
        let port = if pass.six {
            self.stateless_to_four(siit, l3, total, frame)?
        } else {
            self.stateless_to_six(siit, l3, total, pass.addresses, frame)?
        };
        if let Some(counts) = self.translators.of(number) {
            let way = if pass.six { &mut counts.to_v4 } else { &mut counts.to_v6 };
            way.count(total);
        }
        Some(port)
    }

    #[inline(always)]
    fn stateless_to_four(&mut self, siit: &Siit, l3: usize, total: usize, frame: &mut Frame) -> Option<u16> {
        let packet = frame.bytes_mut().get_mut(l3..l3 + total)?;
        let head = Ipv6View::of_header(packet.first_chunk::<{ ipv6::HEADER_LEN }>()?);
        let next = head.next_header();
        let (src, dst) = siit.ends_to_v4(head.src(), head.dst()).ok()?;
        let exit = self.exits.find(self.plan, self.neighbours, self.common.vrf, dst)?;
        if total > usize::from(exit.mtu) + GROWTH {
            return None;
        }
        let identification = self.identification.wrapping_add(1);
        let way = V4Way { src, dst, ports: Ports::KEEP, identification, mtu: exit.mtu };
        // RFC 7915 §5.1: once for the whole way, here before the header is made of it. Invariant: the header is all there,
        // and the first turn leaves hop limits below 2 to the general stages.
        packet[7] -= 1;
        let Ok(moved) = to_v4(packet, &Extensions::none(next), &way, &siit.rules) else {
            packet[7] += 1;
            return None;
        };
        *self.identification = identification;
        frame.truncate(l3 + moved.end);
        // Invariant: 34 bytes at least are before the packet, and a link header has 22 at most.
        frame.trim_front(l3 + moved.start - usize::from(exit.header.len));
        put_link(exit, frame, None);
        Some(exit.port)
    }

    #[inline(always)]
    fn stateless_to_six(
        &mut self,
        siit: &Siit,
        l3: usize,
        total: usize,
        addresses: u64,
        frame: &mut Frame,
    ) -> Option<u16> {
        let head = frame.bytes().get(l3..)?.first_chunk::<{ ipv4::HEADER_LEN + 8 }>()?;
        let dont_fragment = u16::from_be_bytes([head[6], head[7]]) & FLAG_DF != 0;
        let is_unsummed = head[9] == protocol::UDP && [head[26], head[27]] == [0, 0];
        if is_unsummed || !(dont_fragment || total + GROWTH <= usize::from(siit.rules.lowest_ipv6_mtu)) {
            return None;
        }
        let (src, dst) = siit.ends_to_v6((addresses >> 32) as u32, addresses as u32).ok()?;
        let exit = self.exits.find6(self.plan, self.neighbours, self.common.vrf, dst)?;
        if total + GROWTH > usize::from(exit.mtu) {
            return None;
        }
        let start = usize::from(exit.header.len);
        // Invariant: two tags fewer than before, eight bytes, are less than the growth.
        let room = GROWTH + start - l3;
        frame.prepend(room)?;
        let way = V6Way { src, dst, ports: Ports::KEEP, mtu: exit.mtu };
        let packet = frame.bytes_mut().get_mut(start..start + GROWTH + total);
        let moved = packet.and_then(|packet| {
            // RFC 7915 §4.1: once for the whole way, here before the header is made of it. Invariant: as the other way.
            packet[GROWTH + 8] -= 1;
            let moved = to_v6(packet, GROWTH, &way, &siit.rules);
            moved.inspect_err(|_| packet[GROWTH + 8] += 1).ok()
        });
        let Some(moved) = moved else {
            frame.trim_front(room);
            return None;
        };
        frame.truncate(start + moved.end);
        put_link(exit, frame, Some(ethertype::IPV6));
        Some(exit.port)
    }
}
