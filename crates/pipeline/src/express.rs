//! The express lane: the common packet of a known session goes from the wire to the wire in one pass.
//!
//! A burst is recognised and hashed, then its session lines are fetched, then each packet is translated and sent at
//! once. A packet that is anything but common (no session yet, a TCP state that changes, a fragment, an option, a
//! neighbour not known, ...) is left as it came for the general stages, which would treat the common ones just the
//! same, only slower. Packets leave in the order in which they came: what waits for the general stages goes through
//! them before the next one passes.

use carrack_base::{BURST_PACKETS_MAX, Family, Now, PortId, Proto, WorkerId};
use carrack_frame::{Frame, FramePool};
use carrack_nat::{
    Crossings, Direction, Flow, Kind, Likely, NO_LINE, common_state, common_state_from_inside, opened_by,
    packed_key,
};
use carrack_vector::{Pass, Pattern, Quads, States};
use carrack_wire::tcp::flag;

use crate::burst::Burst;
use crate::exits::{Exit, Exits};
use crate::express6::opening_six;
use crate::forward::FRAME_BYTES_MIN;
use crate::nat_stage::leaves;
use crate::neighbours::Neighbours;
use crate::parse::{Seen, in_transit, link_masks, recognise};
use crate::plan::{Common, Plan};
use crate::stats::Stage;
use crate::translators::Translators;
use crate::worker::{Lap, StageClock, Worker};

/// Ethernet without tags.
const UNTAGGED: usize = 14;
/// The packet as one that may open a session here: UDP, or the first SYN of TCP.
fn opening(pass: &Pass, common: &Common, frame: &Frame) -> Option<Flow> {
    if pass.line != NO_LINE || pass.total == 0 {
        return None;
    }
    let (proto, ip_proto, bits) = opened_by(pass.state)?;
    let (src, dst) = ((pass.addresses >> 32) as u32, pass.addresses as u32);
    let l3 = 14 + u16::from(common.tag_bytes);
    let flow = Flow {
        src,
        dst,
        sport: (pass.ports >> 16) as u16,
        dport: pass.ports as u16,
        vrf: common.vrf,
        l3,
        l4: l3 + 20,
        proto,
        ip_proto,
        bits,
        kind: Kind::Whole,
        ..Flow::default()
    };
    if pass.six {
        return opening_six(pass, flow, frame.bytes());
    }
    // No session vouches for the addresses yet.
    (in_transit(src) && in_transit(dst)).then_some(flow)
}

/// One burst in the lane.
pub(crate) struct Lane {
    passes: [Pass; BURST_PACKETS_MAX],
    exits: Exits,
    /// The first two turns are over for this burst.
    known: bool,
}

impl Lane {
    pub(crate) fn new() -> Self {
        Self { passes: [Pass::default(); BURST_PACKETS_MAX], exits: Exits::new(), known: false }
    }

    /// How many packets from this one on are surely for the general stages.
    fn waiting_from(&self, at: usize) -> usize {
        self.passes.iter().skip(at).take_while(|pass| !pass.is_known()).count()
    }
}

/// What a burst's packets have in common.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) common: Common,
    pub(crate) port: PortId,
    pub(crate) sampled: bool,
    pub(crate) now: Now,
}

impl Worker {
    /// Takes the received frames, at most a burst, through the lane; what it leaves in `burst` is still to be run.
    pub(crate) fn express(
        &mut self,
        lane: &mut Lane,
        rx: &mut Vec<Frame>,
        burst: &mut Burst,
        entry: &Entry,
        pool: &mut dyn FramePool,
    ) {
        for frame in rx.iter() {
            frame.prefetch_header();
        }
        lane.exits.forget();
        lane.known = false;
        let mut at = 0;
        while !rx.is_empty() {
            // A body for each direction and number of tags, so that these are known throughout.
            let out = entry.common.direction == Some(Direction::Out);
            at += match (out, entry.common.tag_bytes) {
                (true, 0) => self.ride::<true, 0>(lane, at, rx, entry),
                (true, 4) => self.ride::<true, 4>(lane, at, rx, entry),
                (true, _) => self.ride::<true, 8>(lane, at, rx, entry),
                (false, 0) => self.ride::<false, 0>(lane, at, rx, entry),
                (false, 4) => self.ride::<false, 4>(lane, at, rx, entry),
                (false, _) => self.ride::<false, 8>(lane, at, rx, entry),
            };
            // What waits for the general stages goes through them before anything else passes.
            let left = rx.len().min(1 + lane.waiting_from(at + 1));
            for (frame, pass) in rx.drain(..left).zip(lane.passes.iter().skip(at)) {
                let place = burst.len;
                self.leave(frame, burst);
                burst.refuse(place, pass.refused);
            }
            at += left;
            if !rx.is_empty() {
                self.run(burst, entry.port, false, entry.now, pool);
            }
        }
    }

    /// Takes the packets in `rx`, of which the first is number `first` of the burst, until one is for the general
    /// stages; all before that one leave together. Returns how many.
    fn ride<const OUT: bool, const TAG: usize>(
        &mut self,
        lane: &mut Lane,
        first: usize,
        rx: &mut Vec<Frame>,
        entry: &Entry,
    ) -> usize {
        let end = first + rx.len();
        let room = self.tx.iter().map(|queue| queue.capacity() - queue.len()).min().unwrap_or(0);
        let mut clock = StageClock::start(entry.sampled, rx.len());
        let Lane { passes, exits, known } = lane;
        let passes = passes.get_mut(first..end).unwrap_or(&mut []);
        if !*known {
            let driver = self.driver(exits, entry);
            driver.recognise_all::<OUT, TAG>(rx, passes);
            clock.lap(&mut self.stats, Stage::Parse);
            self.driver(exits, entry).fetch_all(passes);
            clock.lap(&mut self.stats, Stage::Nat);
            *known = true;
        }
        let (mut count, mut bytes) = (0, 0);
        loop {
            let (frames, passes) =
                (rx.get_mut(count..).unwrap_or(&mut []), passes.get_mut(count..).unwrap_or(&mut []));
            let run = self.driver(exits, entry).pass_all::<OUT, TAG>(frames, passes, room - count);
            count += run.count;
            bytes += run.bytes;
            let (frames, passes) =
                (frames.get(run.count..).unwrap_or(&[]), passes.get_mut(run.count..).unwrap_or(&mut []));
            if !OUT || count >= room || !self.open_all(frames, passes, entry) {
                break;
            }
        }
        if OUT {
            self.nat.settle();
        }
        clock.lap(&mut self.stats, Stage::Forward);
        self.accounts.forwarded += count as u64;
        self.accounts.forwarded_bytes += bytes;
        // Invariant: the exits named the queues, and there is room in each for all of them.
        match exits.only_port().and_then(|port| self.tx.get_mut(usize::from(port))) {
            Some(queue) if count == rx.len() => queue.append(rx),
            Some(queue) => queue.extend(rx.drain(..count)),
            None => {
                for (frame, pass) in rx.drain(..count).zip(passes.iter()) {
                    if let Some(queue) = self.tx.get_mut(usize::from(pass.total)) {
                        queue.push(frame);
                    }
                }
            }
        }
        count
    }

    #[inline(always)]
    fn driver<'a>(&'a mut self, exits: &'a mut Exits, entry: &Entry) -> Driver<'a> {
        Driver {
            identification: &mut self.identification,
            translators: &mut self.translators,
            tables: self.nat.crossings(),
            plan: &self.plan,
            neighbours: &self.neighbours,
            exits,
            common: entry.common,
            // One worker alone asks nobody.
            owner: (self.workers > 1).then_some(self.id),
            quads: self.quads,
            now_s: entry.now.s(),
        }
    }

    /// Makes the sessions of packets from inside that have none, up to the first packet that is for the general stages.
    /// False when that is the very first. Why one was refused is kept with it, for the general stages to end it by.
    #[inline(never)]
    fn open_all(&mut self, frames: &[Frame], passes: &mut [Pass], entry: &Entry) -> bool {
        if passes.first().is_none_or(Pass::is_known) {
            return false;
        }
        // Which of the packets each session is for.
        let mut places = [0_u8; BURST_PACKETS_MAX];
        let mut count = 0;
        for (at, (pass, frame)) in passes.iter().zip(frames).enumerate() {
            if pass.is_known() {
                continue;
            }
            let opening = opening(pass, &entry.common, frame);
            let opening = opening.filter(|flow| !pass.six || self.admits_six(flow));
            let Some(place) = places.get_mut(count) else { break };
            if !opening.is_some_and(|flow| self.nat.expect_session(flow, pass.hash)) {
                break;
            }
            *place = at as u8;
            count += 1;
        }
        if count == 0 {
            return false;
        }
        let plan = &self.plan;
        self.nat.open_expected(
            entry.now,
            |flow, outside, destination| leaves(plan, (flow.vrf, flow.is_six()), outside, destination),
            |at, opened| {
                let place = places.get(at).map_or(usize::MAX, |place| usize::from(*place));
                let Some(pass) = passes.get_mut(place) else { return };
                match opened {
                    Ok(line) => pass.line = line,
                    Err(refused) => (pass.refused, pass.total) = (refused, 0),
                }
            },
        );
        passes.first().is_some_and(Pass::is_known)
    }

    /// Leaves a packet to the general stages.
    #[inline(never)]
    pub(crate) fn leave(&mut self, frame: Frame, burst: &mut Burst) {
        // Invariant: the burst has room for all that is received at once.
        if let Err(frame) = burst.push_received(frame) {
            self.accounts.drop_n(carrack_base::Reason::FramePoolEmpty, 1);
            self.dead.push(frame);
        }
    }
}

/// The packets that leave together: how many, and their bytes.
struct Run {
    count: usize,
    bytes: u64,
}

impl Run {
    #[inline(always)]
    fn add(&mut self, more: &Run) {
        self.count += more.count;
        self.bytes += more.bytes;
    }
}

/// All that the three turns need, at hand.
pub(crate) struct Driver<'a> {
    pub(crate) tables: Crossings<'a>,
    pub(crate) plan: &'a Plan,
    pub(crate) neighbours: &'a Neighbours,
    pub(crate) exits: &'a mut Exits,
    pub(crate) common: Common,
    /// Of the last packet that became IPv4.
    pub(crate) identification: &'a mut u16,
    pub(crate) translators: &'a mut Translators,
    /// This worker, when there are others.
    pub(crate) owner: Option<WorkerId>,
    /// To look at four packets at a time.
    pub(crate) quads: Option<Quads>,
    pub(crate) now_s: u32,
}

/// Packets that the vectors leave together.
pub(crate) const QUAD: usize = 4;

impl Driver<'_> {
    /// First turn: headers checked, sessions hashed, index buckets on their way. Packets of one version that come one
    /// behind the other are taken together.
    #[inline(always)]
    fn recognise_all<const OUT: bool, const TAG: usize>(&self, frames: &[Frame], passes: &mut [Pass]) {
        let (mut frames, mut passes) = (frames, passes);
        loop {
            let known = self.recognise_quads::<OUT, TAG>(frames, passes);
            (frames, passes) =
                (frames.get(known..).unwrap_or(&[]), passes.get_mut(known..).unwrap_or(&mut []));
            // The group in which there is something else is looked at one by one, and then the vectors go on.
            let alone = if self.quads.is_some() { frames.len().min(QUAD) } else { frames.len() };
            let known = self.recognise_four::<OUT, TAG>(frames.get(..alone).unwrap_or(&[]), passes);
            (frames, passes) =
                (frames.get(known..).unwrap_or(&[]), passes.get_mut(known..).unwrap_or(&mut []));
            if frames.is_empty() {
                return;
            }
            if known < alone {
                let known = self.recognise_six::<TAG>(frames, passes);
                (frames, passes) =
                    (frames.get(known..).unwrap_or(&[]), passes.get_mut(known..).unwrap_or(&mut []));
            }
        }
    }

    /// The first turn by vectors, as far as groups of four are common packets of IPv4: how many.
    #[inline(always)]
    fn recognise_quads<const OUT: bool, const TAG: usize>(
        &self,
        frames: &[Frame],
        passes: &mut [Pass],
    ) -> usize {
        let Some(quads) = self.quads else { return 0 };
        let known = quads.recognise::<TAG>(&pattern::<OUT, TAG>(&self.common), frames, passes);
        let passes = passes.get_mut(..known).unwrap_or(&mut []);
        if self.common.stateless_from_four {
            self.part::<OUT>(passes);
        } else {
            passes.iter_mut().for_each(|pass| self.seek::<OUT>(pass));
        }
        known
    }

    /// What the vectors have recognised is for stateless translators or for sessions.
    #[inline(never)]
    fn part<const OUT: bool>(&self, passes: &mut [Pass]) {
        for pass in passes {
            if !self.is_for_stateless::<OUT>(pass.addresses, pass.total, pass) {
                self.seek::<OUT>(pass);
            }
        }
    }

    /// Hashes a packet that the vectors have recognised.
    #[inline(always)]
    fn seek<const OUT: bool>(&self, pass: &mut Pass) {
        // Invariant: of a state the lower half is the protocol.
        if self.owner.is_some() {
            let proto = Proto::from_index(pass.state as u8);
            let direction = if OUT { Direction::Out } else { Direction::In };
            if !self.is_ours(pass.addresses, pass.ports, proto, direction) {
                pass.forget();
                return;
            }
        }
        pass.hash = self.tables.hash([pass.addresses, pass.hash]);
        self.tables.fetch_bucket(pass.hash);
    }

    /// The first turn up to a packet that may be one of IPv6: how many.
    #[inline(always)]
    fn recognise_four<const OUT: bool, const TAG: usize>(
        &self,
        frames: &[Frame],
        passes: &mut [Pass],
    ) -> usize {
        let direction = if OUT { Direction::Out } else { Direction::In };
        for (at, (frame, pass)) in frames.iter().zip(passes).enumerate() {
            pass.forget();
            let Some(seen) = recognise::<TAG>(&self.common, frame.bytes()) else {
                if OUT && self.common.link6.is_some() {
                    return at;
                }
                continue;
            };
            let Seen { addresses, ports, total, proto, bits } = seen;
            if self.common.stateless_from_four && self.is_for_stateless::<OUT>(addresses, total, pass) {
                continue;
            }
            let state = if OUT { common_state_from_inside(proto, bits) } else { common_state(proto, bits) };
            let Some(state) = state else { continue };
            // A session vouches for all addresses but the pool's, which config chooses.
            if !OUT && !in_transit(addresses as u32) {
                continue;
            }
            if self.owner.is_some() && !self.is_ours(addresses, ports, proto, direction) {
                continue;
            }
            let hash = self.tables.hash(packed_key(addresses, ports, self.common.vrf, proto, direction));
            self.tables.fetch_bucket(hash);
            (pass.addresses, pass.hash) = (addresses, hash);
            (pass.ports, pass.state, pass.total) = (ports, state, total);
        }
        frames.len()
    }

    /// Second turn: the likely session lines on their way. An entry that lives in its other bucket takes one fetch more;
    /// these wait until the others are done, so that nobody stands still for them.
    #[inline(always)]
    fn fetch_all(&self, passes: &mut [Pass]) {
        let mut away = 0_u64;
        for (at, pass) in passes.iter_mut().enumerate() {
            if pass.total != 0 {
                match self.tables.fetch_line(pass.hash) {
                    Likely::Line(line) => pass.line = line,
                    Likely::Away => away |= 1 << at,
                    Likely::Absent => (),
                }
            }
        }
        while away != 0 {
            if let Some(pass) = passes.get_mut(away.trailing_zeros() as usize) {
                pass.line = self.tables.fetch_line_away(pass.hash);
            }
            away &= away - 1;
        }
    }

    /// Third turn: packets are translated one after the other, at most `room` of them, until one is for the general
    /// stages. As in the first turn, those that are alike and come together are taken together.
    #[inline(always)]
    fn pass_all<const OUT: bool, const TAG: usize>(
        &mut self,
        frames: &mut [Frame],
        passes: &mut [Pass],
        room: usize,
    ) -> Run {
        let mut all = Run { count: 0, bytes: 0 };
        let end = room.min(frames.len());
        loop {
            let run = self.pass_four::<OUT, TAG>(
                frames.get_mut(all.count..end).unwrap_or(&mut []),
                passes.get_mut(all.count..end).unwrap_or(&mut []),
            );
            all.add(&run);
            let may_cross = |pass: &Pass| pass.six || pass.stateless != 0 || (!OUT && self.common.crosses);
            if all.count == end || !passes.get(all.count).is_some_and(may_cross) {
                return all;
            }
            let run = self.pass_between::<OUT, TAG>(
                frames.get_mut(all.count..end).unwrap_or(&mut []),
                passes.get_mut(all.count..end).unwrap_or(&mut []),
            );
            if run.count == 0 {
                return all;
            }
            all.add(&run);
        }
    }

    /// The third turn up to a packet that no IPv4 session is for.
    #[inline(always)]
    fn pass_four<const OUT: bool, const TAG: usize>(
        &mut self,
        frames: &mut [Frame],
        passes: &mut [Pass],
    ) -> Run {
        run_of(frames, passes, |pass, frame| self.pass::<OUT, TAG>(pass, frame))
    }

    /// The third turn up to a packet that does not go between IPv6 and IPv4.
    #[inline(never)]
    fn pass_between<const OUT: bool, const TAG: usize>(
        &mut self,
        frames: &mut [Frame],
        passes: &mut [Pass],
    ) -> Run {
        run_of(frames, passes, |pass, frame| {
            if pass.stateless != 0 {
                self.pass_stateless::<TAG>(pass, frame)
            } else if OUT {
                if pass.six { self.pass_from_six::<TAG>(pass, frame) } else { None }
            } else if self.common.crosses {
                self.pass_to_six::<TAG>(pass, frame)
            } else {
                None
            }
        })
    }

    /// One packet: the port whose queue it now belongs in, or `None` and nothing has changed.
    #[inline(always)]
    fn pass<const OUT: bool, const TAG: usize>(&mut self, pass: &Pass, frame: &mut Frame) -> Option<u16> {
        let direction = if OUT { Direction::Out } else { Direction::In };
        let ends = (pass.addresses, pass.ports);
        let crossing = self.tables.find(pass.line, ends, self.common.vrf, pass.state, direction)?;
        let destination = if OUT { pass.addresses as u32 } else { crossing.inside_ip() };
        let vrf = crossing.vrf(direction);
        let exit = self.exits.find(self.plan, self.neighbours, vrf, destination)?;
        if pass.total > exit.mtu {
            return None;
        }
        frame.truncate((usize::from(pass.total) + UNTAGGED + TAG).max(FRAME_BYTES_MIN));
        let l3 = UNTAGGED + TAG;
        if usize::from(exit.header.len) != l3 {
            let l3 = relink(exit, l3, frame)?;
            crossing.cross(direction, frame.bytes_mut().get_mut(l3..)?.first_chunk_mut()?, self.now_s);
            return Some(exit.port);
        }
        let head = frame.bytes_mut();
        // Lengths known beforehand copy in a few instructions.
        match TAG {
            0 => put_link::<UNTAGGED>(exit, head)?,
            4 => put_link::<{ UNTAGGED + 4 }>(exit, head)?,
            _ => put_link::<{ UNTAGGED + 8 }>(exit, head)?,
        }
        crossing.cross(direction, head.get_mut(l3..)?.first_chunk_mut()?, self.now_s);
        Some(exit.port)
    }

    /// Does the packet stay with this worker?
    #[inline(never)]
    fn is_ours(&self, addresses: u64, ports: u32, proto: Proto, direction: Direction) -> bool {
        let directory = self.tables.directory();
        let vrf = self.common.vrf;
        let owner = match direction {
            Direction::Out => directory.owner_of_source(vrf, (addresses >> 32) as u32),
            Direction::In => directory.owner_of_outside(vrf, addresses as u32, proto as u8, ports as u16),
        };
        owner.is_none_or(|owner| Some(owner) == self.owner)
    }
}

/// The common packets of IPv6 to an inside interface that begin with `link`, as [`crate::parse::recognise_six`] knows them.
#[inline(always)]
pub(crate) fn pattern_six<const TAG: usize>(common: &Common, link: [u64; 3]) -> Pattern {
    // No session is known by addresses of IPv4 alone.
    let masks = link_masks(TAG, Family::V6);
    Pattern { link, masks, checks_destination: false, ..pattern::<true, TAG>(common) }
}

/// The common packets of IPv4 to an interface, as [`recognise`] knows them.
#[inline(always)]
pub(crate) fn pattern<const OUT: bool, const TAG: usize>(common: &Common) -> Pattern {
    let direction = if OUT { Direction::Out } else { Direction::In };
    // Invariant of both: there are states for packets that change nothing.
    let state = |proto, bits| common_state(proto, bits).unwrap_or_default();
    Pattern {
        link: common.link,
        masks: link_masks(TAG, Family::V4),
        mac_tail: common.mac_tail,
        key: packed_key(0, 0, common.vrf, Proto::Tcp, direction)[1],
        states: States {
            udp: state(Proto::Udp, 0),
            tcp: state(Proto::Tcp, flag::ACK),
            first_syn: if OUT { common_state_from_inside(Proto::Tcp, flag::SYN) } else { None },
        },
        checks_destination: !OUT,
    }
}

/// The packets up to the first for which `pass_one` names no port.
#[inline(always)]
fn run_of(
    frames: &mut [Frame],
    passes: &mut [Pass],
    mut pass_one: impl FnMut(&Pass, &mut Frame) -> Option<u16>,
) -> Run {
    let mut run = Run { count: 0, bytes: 0 };
    for (frame, pass) in frames.iter_mut().zip(passes) {
        let Some(exit) = pass_one(pass, frame) else { break };
        pass.total = exit;
        run.bytes += frame.len() as u64;
        run.count += 1;
    }
    run
}

/// Writes a link header of `N` bytes.
#[inline(always)]
fn put_link<const N: usize>(exit: &Exit, frame: &mut [u8]) -> Option<()> {
    *frame.first_chunk_mut::<N>()? = *exit.header.bytes.first_chunk::<N>()?;
    Some(())
}

/// Puts a link header of another length before the IPv4 packet at `l3`, and tells where that begins now. `None`, and
/// nothing has changed, when there is no room.
#[inline(never)]
fn relink(exit: &Exit, l3: usize, frame: &mut Frame) -> Option<usize> {
    let length = usize::from(exit.header.len);
    if l3 > length {
        frame.trim_front(l3 - length);
    } else {
        frame.prepend(length - l3)?;
    }
    frame.bytes_mut().get_mut(..length)?.copy_from_slice(exit.header.bytes.get(..length)?);
    Some(length)
}
