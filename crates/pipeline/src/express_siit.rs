//! The express lane for packets that a stateless translator takes (RFC 7915): no session to find, so they are known in
//! the first turn and translated in the third, by the same translator as in the general stages.

use carrack_frame::Frame;
use carrack_wire::ethernet::ethertype;
use carrack_wire::ipv4::{self, FLAG_DF, protocol};
use carrack_wire::ipv6::{self, Extensions};
use carrack_xlat::siit::{Dice, Siit};

use crate::express::{Driver, Pass};
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
        let vrf = self.common.vrf;
        if let Some(number) = self.plan.translator_of(vrf, seen.dst)
            && may_be_answered(seen.src)
            && !self.tables.directory().is_embedded(vrf, seen.dst)
        {
            (pass.six, pass.ports, pass.stateless) = (true, number.into(), seen.total);
        }
    }

    /// Third turn: the port whose queue the packet now belongs in, or `None` and nothing has changed.
    #[inline(never)]
    pub(crate) fn pass_stateless<const TAG: usize>(&mut self, pass: &Pass, frame: &mut Frame) -> Option<u16> {
        let plan = self.plan;
        let siit = &plan.snapshot.siit.get(pass.ports as usize)?.translator;
        let (l3, total) = (UNTAGGED + TAG, usize::from(pass.stateless));
        if pass.six {
            self.stateless_to_four(siit, l3, total, frame)
        } else {
            self.stateless_to_six(siit, l3, total, pass.addresses as u32, frame)
        }
    }

    #[inline(always)]
    fn stateless_to_four(&mut self, siit: &Siit, l3: usize, total: usize, frame: &mut Frame) -> Option<u16> {
        let packet = frame.bytes_mut().get_mut(..l3 + total)?;
        let head = packet.get(l3..)?.first_chunk::<{ ipv6::HEADER_LEN }>()?;
        let (next, destination) = (head[6], u128::from_be_bytes(*head.last_chunk()?));
        let destination = siit.v4_of(destination).ok()?;
        let exit = *self.exits.find(self.plan, self.neighbours, self.common.vrf, destination)?;
        if total > usize::from(exit.mtu) + GROWTH {
            return None;
        }
        let found = Extensions::none(next);
        let identification = self.identification.wrapping_add(1);
        let dice = Dice { identification, random: 0 };
        let (moved, _) = siit.to_v4(packet, l3, &found, dice, |_| exit.mtu).ok()?;
        *self.identification = identification;
        let head = packet.get_mut(moved.start..)?.first_chunk_mut::<{ ipv4::HEADER_LEN }>()?;
        // RFC 1624 eqn. 3 for one less in the high byte of its word; the sum never becomes 0xffff.
        head[8] -= 1;
        let sum = u32::from(u16::from_be_bytes([head[10], head[11]])) + 0x0100;
        head[10..12].copy_from_slice(&((sum + u32::from(sum >= 0xffff)) as u16).to_be_bytes());
        frame.truncate(moved.end);
        // Invariant: 34 bytes at least are before the packet, and a link header has 22 at most.
        frame.trim_front(moved.start - usize::from(exit.header.len));
        put_link(&exit, frame, None);
        Some(exit.port)
    }

    #[inline(always)]
    fn stateless_to_six(
        &mut self,
        siit: &Siit,
        l3: usize,
        total: usize,
        destination: u32,
        frame: &mut Frame,
    ) -> Option<u16> {
        let head = frame.bytes().get(l3..)?.first_chunk::<{ ipv4::HEADER_LEN + 8 }>()?;
        let dont_fragment = u16::from_be_bytes([head[6], head[7]]) & FLAG_DF != 0;
        let is_unsummed = head[9] == protocol::UDP && [head[26], head[27]] == [0, 0];
        if is_unsummed || !(dont_fragment || total + GROWTH <= usize::from(siit.rules.lowest_ipv6_mtu)) {
            return None;
        }
        let destination = siit.v6_of(destination).ok()?;
        let exit = *self.exits.find6(self.plan, self.neighbours, self.common.vrf, destination)?;
        if total + GROWTH > usize::from(exit.mtu) {
            return None;
        }
        let start = usize::from(exit.header.len);
        // Invariant: two tags fewer than before, eight bytes, are less than the growth.
        let room = GROWTH + start - l3;
        frame.prepend(room)?;
        let packet = frame.bytes_mut().get_mut(..start + GROWTH + total);
        let moved = packet.and_then(|packet| siit.to_v6(packet, start + GROWTH, |_| exit.mtu).ok());
        let Some((moved, _)) = moved else {
            frame.trim_front(room);
            return None;
        };
        frame.truncate(moved.end);
        if let Some(hop_limit) = frame.bytes_mut().get_mut(moved.start + 7) {
            *hop_limit -= 1;
        }
        put_link(&exit, frame, Some(ethertype::IPV6));
        Some(exit.port)
    }
}
