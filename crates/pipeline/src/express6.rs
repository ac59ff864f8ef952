//! The express lane for packets between IPv6 and IPv4: the same three turns, with headers exchanged in the third.

use carrack_base::{Family, Proto};
use carrack_frame::Frame;
use carrack_nat::{Direction, Flow, NO_LINE, common_state, common_state_from_inside};
use carrack_vector::Pass;
use carrack_wire::ipv6::{HEADER_LEN, is_link_local, is_multicast};
use carrack_xlat::exchange::{SIX_BYTES, SIX_GROWTH};

use crate::exits::Exit;
use crate::express::{Driver, QUAD, pattern_six};
use crate::parse::recognise_six;
use crate::worker::Worker;

/// Ethernet without tags.
const UNTAGGED: usize = 14;

/// The packet from IPv6 as one that may open a session here: `flow` is what those of either version have.
pub(crate) fn opening_six(pass: &Pass, flow: Flow, frame: &[u8]) -> Option<Flow> {
    let (src6, dst6) = addresses_of(frame.get(usize::from(flow.l3)..)?)?;
    // No session vouches for the source yet.
    may_be_answered(src6).then_some(Flow {
        src: 0,
        family: Family::V6,
        src6,
        dst6,
        via: (pass.addresses >> 32) as u16,
        l4: flow.l3 + HEADER_LEN as u16,
        ..flow
    })
}

impl Worker {
    /// Will the NAT take this packet from IPv6 for what the lane takes it for? The general stages say why not.
    pub(crate) fn admits_six(&self, flow: &Flow) -> bool {
        let mut admitted = *flow;
        self.nat.admit(&mut admitted) == Ok(true) && admitted == *flow
    }
}

impl Driver<'_> {
    /// First turn for packets that are no common ones of IPv4, up to one that is no common one of IPv6 either: how many.
    /// Of the first one that is certain.
    #[inline(never)]
    pub(crate) fn recognise_six<const TAG: usize>(&self, frames: &[Frame], passes: &mut [Pass]) -> usize {
        let Some(link) = &self.common.link6 else { return 1 };
        let mut known = 0;
        loop {
            let (frames, passes) =
                (frames.get(known..).unwrap_or(&[]), passes.get_mut(known..).unwrap_or(&mut []));
            let quads = self.recognise_six_quads::<TAG>(link, frames, passes);
            let (frames, passes) =
                (frames.get(quads..).unwrap_or(&[]), passes.get_mut(quads..).unwrap_or(&mut []));
            // As with IPv4: the group in which there is something else is looked at one by one.
            let alone = if self.quads.is_some() { frames.len().min(QUAD) } else { frames.len() };
            let found = self.recognise_six_alone::<TAG>(link, frames.get(..alone).unwrap_or(&[]), passes);
            known += quads + found;
            if found < alone || found == frames.len() {
                return known.max(1);
            }
        }
    }

    /// By vectors, as far as groups of four are common packets of IPv6: how many.
    #[inline(always)]
    fn recognise_six_quads<const TAG: usize>(
        &self,
        link: &[u64; 3],
        frames: &[Frame],
        passes: &mut [Pass],
    ) -> usize {
        let Some(quads) = self.quads else { return 0 };
        let known = quads.recognise_six::<TAG>(&pattern_six::<TAG>(&self.common, *link), frames, passes);
        for (frame, pass) in frames.iter().zip(passes).take(known) {
            // Invariant: the vectors have seen that the headers are there.
            let Some(ends) = frame.bytes().get(UNTAGGED + TAG..).and_then(addresses_of) else { break };
            self.place_six(ends, Some(pass.state), pass);
        }
        known
    }

    /// One by one, up to a packet that is no common one of IPv6: how many.
    #[inline(always)]
    fn recognise_six_alone<const TAG: usize>(
        &self,
        link: &[u64; 3],
        frames: &[Frame],
        passes: &mut [Pass],
    ) -> usize {
        for (at, (frame, pass)) in frames.iter().zip(passes).enumerate() {
            pass.forget();
            let Some(seen) = recognise_six::<TAG>(&self.common, link, frame.bytes()) else { return at };
            (pass.ports, pass.total, pass.six) = (seen.ports, seen.total, true);
            let state = common_state_from_inside(seen.proto, seen.bits);
            self.place_six((seen.src, seen.dst), state, pass);
        }
        frames.len()
    }

    /// Is a common packet of IPv6 to a NAT64 prefix, or to a stateless translator's? `state` is what its session must be in.
    #[inline(always)]
    fn place_six(&self, (src, dst): (u128, u128), state: Option<u16>, pass: &mut Pass) {
        let vrf = self.common.vrf;
        let Some((via, destination)) = self.tables.embedded(vrf, dst) else {
            let total = pass.total;
            pass.forget();
            return if self.common.stateless {
                self.note_stateless_six((src, dst), total, pass)
            };
        };
        let is_ours = self.owner.is_none_or(|own| self.tables.directory().owner_of_six(vrf, via, src) == own);
        let Some(state) = state.filter(|_| is_ours) else { return pass.forget() };
        // Invariant: of a state the lower half is the protocol.
        let proto = Proto::from_index(state as u8);
        let hash = self.tables.hash_six((src, via), destination, pass.ports, vrf, proto);
        self.tables.fetch_bucket(hash);
        (pass.addresses, pass.hash) = (u64::from(via) << 32 | u64::from(destination), hash);
        pass.state = state;
    }

    /// Third turn for a packet from IPv6: the port whose queue it now belongs in, or `None` and nothing has changed.
    #[inline(always)]
    pub(crate) fn pass_from_six<const TAG: usize>(&mut self, pass: &Pass, frame: &mut Frame) -> Option<u16> {
        let l3 = UNTAGGED + TAG;
        let head = frame.bytes().get(l3..)?.first_chunk::<SIX_BYTES>()?;
        let source = u128::from_be_bytes(*head.get(8..)?.first_chunk()?);
        let (via, destination) = ((pass.addresses >> 32) as u16, pass.addresses as u32);
        let vrf = self.common.vrf;
        let crossing =
            self.tables.find_from_six(pass.line, (source, via), destination, pass.ports, vrf, pass.state)?;
        let vrf = crossing.vrf(Direction::Out);
        let exit = self.exits.find(self.plan, self.neighbours, vrf, destination)?;
        if usize::from(pass.total) > usize::from(exit.mtu) + SIX_GROWTH {
            return None;
        }
        *self.identification = self.identification.wrapping_add(1);
        let identification = *self.identification;
        // A short packet has padding within these bytes: it is cut off only then.
        crossing.to_v4(frame.bytes_mut().get_mut(l3..)?.first_chunk_mut()?, identification, self.now_s);
        frame.truncate(l3 + usize::from(pass.total));
        // Invariant: what is cut off, two tags and 20 bytes at most, was there.
        frame.trim_front(l3 + SIX_GROWTH - usize::from(exit.header.len));
        put_link(exit, frame);
        Some(exit.port)
    }

    /// The same for a packet from IPv4 to an IPv6 host.
    #[inline(always)]
    pub(crate) fn pass_to_six<const TAG: usize>(&mut self, pass: &Pass, frame: &mut Frame) -> Option<u16> {
        if pass.line == NO_LINE || pass.total == 0 {
            return None;
        }
        let l3 = UNTAGGED + TAG;
        let ends = (pass.addresses, pass.ports);
        let crossing = self.tables.find_to_six(pass.line, ends, self.common.vrf, pass.state)?;
        let head = frame.bytes().get(l3..)?.first_chunk::<{ SIX_BYTES - SIX_GROWTH }>()?;
        let is_udp = Some(pass.state) == common_state(Proto::Udp, 0);
        let fragment = u16::from_be_bytes([head[6], head[7]]);
        if !crossing.needs_no_cut(pass.total, fragment) || (is_udp && [head[26], head[27]] == [0, 0]) {
            return None;
        }
        let (vrf, host) = (crossing.vrf(Direction::In), crossing.inside6());
        let exit = self.exits.find6(self.plan, self.neighbours, vrf, host)?;
        if usize::from(pass.total) + SIX_GROWTH > usize::from(exit.mtu) {
            return None;
        }
        let at = usize::from(exit.header.len);
        // Invariant: two tags fewer than before, eight bytes, are less than the growth.
        frame.prepend(SIX_GROWTH + at - l3)?;
        crossing.to_v6(frame.bytes_mut().get_mut(at..)?.first_chunk_mut()?, self.now_s);
        frame.truncate(at + SIX_GROWTH + usize::from(pass.total));
        put_link(exit, frame);
        Some(exit.port)
    }
}

/// Source and destination of an IPv6 packet.
#[inline(always)]
pub(crate) fn addresses_of(packet: &[u8]) -> Option<(u128, u128)> {
    let head = packet.first_chunk::<HEADER_LEN>()?;
    let address = |at: usize| head.get(at..).and_then(|b| b.first_chunk()).copied().map(u128::from_be_bytes);
    Some((address(8)?, address(24)?))
}

/// Writes the link header before the packet.
#[inline(always)]
pub(crate) fn put_link(exit: &Exit, frame: &mut Frame) {
    let length = usize::from(exit.header.len);
    let bytes = frame.bytes_mut();
    if length == UNTAGGED
        && let (Some(to), Some(from)) =
            (bytes.first_chunk_mut::<UNTAGGED>(), exit.header.bytes.first_chunk::<UNTAGGED>())
    {
        *to = *from;
    } else if let (Some(to), Some(from)) = (bytes.get_mut(..length), exit.header.bytes.get(..length)) {
        to.copy_from_slice(from);
    }
}

/// Is it the address of a host beyond this link? Packets from others are for the general stages to refuse.
pub(crate) const fn may_be_answered(address: u128) -> bool {
    let (high, low) = ((address >> 64) as u64, address as u64);
    let is_nowhere = high == 0 && (low <= 1 || low >> 32 == 0xffff);
    !is_nowhere && !is_multicast(address) && !is_link_local(address)
}
