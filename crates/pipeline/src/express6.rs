//! The express lane for packets between IPv6 and IPv4: the same three turns, with headers exchanged in the third.

use carrack_base::{Family, Proto};
use carrack_frame::Frame;
use carrack_nat::{Direction, Flow, NO_LINE, common_state, common_state_from_inside, needs_no_cut};
use carrack_vector::Pass;
use carrack_wire::ipv6::{HEADER_LEN, is_link_local, is_multicast};
use carrack_xlat::exchange::{SIX_BYTES, SIX_GROWTH};

use crate::exits::Exit;
use crate::express::Driver;
use crate::parse::{SeenSix, recognise_six};
use crate::worker::Worker;

/// Ethernet without tags.
const UNTAGGED: usize = 14;

/// The packet from IPv6 as one that may open a session here: `flow` is what those of either version have.
pub(crate) fn opening_six(pass: &Pass, flow: Flow, frame: &[u8]) -> Option<Flow> {
    let head = frame.get(usize::from(flow.l3)..)?.first_chunk::<HEADER_LEN>()?;
    let address = |at: usize| head.get(at..).and_then(|b| b.first_chunk()).copied().map(u128::from_be_bytes);
    let (src6, dst6) = (address(8)?, address(24)?);
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
        for (at, (frame, pass)) in frames.iter().zip(passes).enumerate() {
            pass.forget();
            match recognise_six::<TAG>(&self.common, link, frame.bytes()) {
                Some(seen) => self.note_six(&seen, pass),
                None => return at.max(1),
            }
        }
        frames.len()
    }

    /// A common packet of IPv6: one to a NAT64 prefix?
    #[inline(always)]
    fn note_six(&self, seen: &SeenSix, pass: &mut Pass) {
        let vrf = self.common.vrf;
        let Some((via, destination)) = self.tables.embedded(vrf, seen.dst) else {
            return if self.common.stateless {
                self.note_stateless_six(seen, pass)
            };
        };
        let Some(state) = common_state_from_inside(seen.proto, seen.bits) else { return };
        if self.owner.is_some_and(|own| self.tables.directory().owner_of_six(vrf, via, seen.src) != own) {
            return;
        }
        let hash = self.tables.hash_six((seen.src, via), destination, seen.ports, vrf, seen.proto);
        self.tables.fetch_bucket(hash);
        (pass.addresses, pass.hash) = (u64::from(via) << 32 | u64::from(destination), hash);
        (pass.ports, pass.state, pass.total, pass.six) = (seen.ports, state, seen.total, true);
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
        if !needs_no_cut(pass.total, fragment) || (is_udp && [head[26], head[27]] == [0, 0]) {
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
    let is_nowhere = address <= 1 || address >> 32 == 0xffff;
    !is_nowhere && !is_multicast(address) && !is_link_local(address)
}
