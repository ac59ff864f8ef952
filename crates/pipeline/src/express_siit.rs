//! The express lane for packets that a stateless translator takes (RFC 7915): no session to find, so they are known in
//! the first turn and translated in the third, between addresses that the translator of the general stages names. Those
//! of a flow that take the general stages keep their place among them (RFC 7915 §4 (order), §5 (order)).

use carrack_frame::Frame;
use carrack_vector::Pass;
use carrack_wire::ipv4::{FLAG_DF, protocol};
use carrack_xlat::Siit;
use carrack_xlat::exchange::{Ends, SIX_BYTES, SIX_GROWTH};

use crate::express::Driver;
use crate::express6::{addresses_of, may_be_answered, put_link};
use crate::parse::in_transit;

/// Ethernet without tags.
const UNTAGGED: usize = 14;

impl Driver<'_> {
    /// First turn: does a route lead this common IPv4 packet to a translator, before any NAT has a say?
    #[inline(always)]
    pub(crate) fn is_for_stateless<const OUT: bool>(
        &self,
        addresses: u64,
        total: u16,
        pass: &mut Pass,
    ) -> bool {
        let (src, dst) = ((addresses >> 32) as u32, addresses as u32);
        let vrf = self.common.vrf;
        let Some(number) = self.plan.translator_behind(vrf, dst) else { return false };
        let directory = self.tables.directory();
        let is_of_nat = !OUT && directory.has_outside() && directory.outside(vrf, dst).is_some();
        if is_of_nat || !in_transit(src) || !in_transit(dst) {
            return false;
        }
        (pass.addresses, pass.ports) = (addresses, number.into());
        (pass.total, pass.stateless) = (0, total);
        true
    }

    /// The same for a common IPv6 packet that goes to no NAT64 prefix.
    #[inline(always)]
    pub(crate) fn note_stateless_six(&self, (src, dst): (u128, u128), total: u16, pass: &mut Pass) {
        if let Some(number) = self.plan.translator_of(self.common.vrf, dst)
            && may_be_answered(src)
            && !(self.common.crosses && self.is_of_prefix(src, dst))
        {
            (pass.six, pass.ports, pass.stateless) = (true, number.into(), total);
        }
    }

    /// Is either address within a NAT64 prefix? The general stages know what becomes of that.
    fn is_of_prefix(&self, src: u128, dst: u128) -> bool {
        let directory = self.tables.directory();
        [src, dst].into_iter().any(|address| directory.is_embedded(self.common.vrf, address))
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
        let packet = frame.bytes_mut().get_mut(l3..)?.first_chunk_mut::<SIX_BYTES>()?;
        let (src6, dst6) = addresses_of(packet)?;
        let (src, dst) = siit.ends_to_v4(src6, dst6)?;
        let exit = self.exits.find(self.plan, self.neighbours, self.common.vrf, dst)?;
        if total > usize::from(exit.mtu) + SIX_GROWTH {
            return None;
        }
        *self.identification = self.identification.wrapping_add(1);
        let ends = Ends::<u32>::instead_of((src6, dst6), (src, dst));
        ends.put(packet, siit.rules.tos, *self.identification);
        frame.truncate(l3 + total);
        // Invariant: 34 bytes at least are before the packet, and a link header has 22 at most.
        frame.trim_front(l3 + SIX_GROWTH - usize::from(exit.header.len));
        put_link(exit, frame);
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
        let head = frame.bytes().get(l3..)?.first_chunk::<{ SIX_BYTES - SIX_GROWTH }>()?;
        let dont_fragment = u16::from_be_bytes([head[6], head[7]]) & FLAG_DF != 0;
        let is_unsummed = head[9] == protocol::UDP && [head[26], head[27]] == [0, 0];
        if is_unsummed || !(dont_fragment || total + SIX_GROWTH <= usize::from(siit.rules.lowest_ipv6_mtu)) {
            return None;
        }
        let four = ((addresses >> 32) as u32, addresses as u32);
        let six = siit.ends_to_v6(four.0, four.1)?;
        let exit = self.exits.find6(self.plan, self.neighbours, self.common.vrf, six.1)?;
        if total + SIX_GROWTH > usize::from(exit.mtu) {
            return None;
        }
        let at = usize::from(exit.header.len);
        // Invariant: two tags fewer than before, eight bytes, are less than the growth.
        frame.prepend(SIX_GROWTH + at - l3)?;
        let packet = frame.bytes_mut().get_mut(at..)?.first_chunk_mut()?;
        let class = if siit.rules.zero_traffic_class { Some(0) } else { None };
        Ends::<u128>::instead_of(four, six).put(packet, class);
        frame.truncate(at + SIX_GROWTH + total);
        put_link(exit, frame);
        Some(exit.port)
    }
}
