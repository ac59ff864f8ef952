//! The express lane: the common packet of a known session goes from the wire to the wire in one pass.
//!
//! A burst is recognised and hashed, then its session lines are fetched, then each packet is translated and sent at
//! once. A packet that is anything but common (no session yet, a TCP state that changes, a fragment, an option, a
//! neighbour not known, ...) is left as it came for the general stages, which would treat the common ones just the
//! same, only slower. Packets leave in the order in which they came: what waits for the general stages goes through
//! them before the next one passes.

use carrack_base::{Now, PortId, VrfId};
use carrack_frame::{Frame, FramePool};
use carrack_nat::{Direction, NO_LINE, packed_key};

use crate::burst::Burst;
use crate::exits::{Exit, Exits, HEADER_BYTES};
use crate::parse::{in_transit, recognise};
use crate::plan::Common;
use crate::stats::Stage;
use crate::worker::{Lap, StageClock, Worker};

/// Bytes of a frame that the lane reads and writes: link header, IPv4, TCP up to its checksum.
const LANE_BYTES: usize = 52;
/// Shortest Ethernet frame, without check sequence.
const FRAME_BYTES_MIN: usize = 60;

/// What the lane knows of one packet.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Pass {
    key: [u64; 2],
    hash: u64,
    line: u32,
    /// Bytes of the IPv4 packet, 0 when it is not a common one; then the port it leaves by.
    total: u16,
    bits: u8,
}

/// One burst in the lane.
pub(crate) struct Lane {
    passes: [Pass; carrack_base::BURST_PACKETS_MAX],
    exits: Exits,
}

impl Lane {
    pub(crate) fn new() -> Self {
        Self { passes: [Pass::default(); carrack_base::BURST_PACKETS_MAX], exits: Exits::new() }
    }

    /// How many packets from this one on are surely for the general stages.
    fn waiting_from(&self, at: usize) -> usize {
        self.passes.iter().skip(at).take_while(|pass| pass.line == NO_LINE).count()
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
        // Two bodies, each with its direction known throughout.
        match entry.common.direction {
            Some(Direction::Out) => self.express_to::<true>(lane, rx, burst, entry, pool),
            _ => self.express_to::<false>(lane, rx, burst, entry, pool),
        }
    }

    #[inline(always)]
    fn express_to<const OUT: bool>(
        &mut self,
        lane: &mut Lane,
        rx: &mut Vec<Frame>,
        burst: &mut Burst,
        entry: &Entry,
        pool: &mut dyn FramePool,
    ) {
        let direction = if OUT { Direction::Out } else { Direction::In };
        let mut clock = StageClock::start(entry.sampled, rx.len());
        self.recognise_all(lane, rx, &entry.common, direction);
        clock.lap(&mut self.stats, Stage::Parse);
        for pass in lane.passes.iter_mut().take(rx.len()) {
            pass.line = if pass.total == 0 { NO_LINE } else { self.nat.prefetch_line(pass.hash) };
        }
        clock.lap(&mut self.stats, Stage::Nat);
        lane.exits.forget();
        let mut at = 0;
        while !rx.is_empty() {
            let passed = self.pass_run(lane, at, rx, direction, entry.now.s());
            at += passed;
            // What waits for the general stages goes through them before anything else passes.
            let left = rx.len().min(1 + lane.waiting_from(at + 1));
            rx.drain(..left).for_each(|frame| self.leave(frame, burst));
            at += left;
            if !rx.is_empty() {
                self.run(burst, entry.port, false, entry.now, pool);
            }
        }
        clock.lap(&mut self.stats, Stage::Forward);
    }

    /// Second turn: packets are translated one after the other where they are, until one is for the general stages;
    /// then all of these leave together. Returns how many.
    #[inline(always)]
    fn pass_run(
        &mut self,
        lane: &mut Lane,
        from: usize,
        rx: &mut Vec<Frame>,
        direction: Direction,
        now_s: u32,
    ) -> usize {
        let room = self.tx.iter().map(|queue| queue.capacity() - queue.len()).min().unwrap_or(0);
        let (mut count, mut bytes, mut differing, mut first) = (0, 0, 0, 0);
        let Lane { passes, exits } = lane;
        let passes = passes.get_mut(from..).unwrap_or(&mut []);
        for (frame, pass) in rx.iter_mut().zip(passes.iter_mut()).take(room) {
            let Some(port) = self.pass(pass, frame, exits, direction, now_s) else { break };
            first = if count == 0 { port } else { first };
            differing |= first ^ port;
            pass.total = port;
            count += 1;
            bytes += frame.len() as u64;
        }
        self.accounts.forwarded += count as u64;
        self.accounts.forwarded_bytes += bytes;
        // Invariant: `pass` found the queues, and there is room in each for all of them.
        match self.tx.get_mut(usize::from(first)) {
            Some(queue) if differing == 0 && count == rx.len() => queue.append(rx),
            Some(queue) if differing == 0 => queue.extend(rx.drain(..count)),
            _ => {
                for (frame, pass) in rx.drain(..count).zip(passes.iter()) {
                    if let Some(queue) = self.tx.get_mut(usize::from(pass.total)) {
                        queue.push(frame);
                    }
                }
            }
        }
        count
    }

    /// First turn: headers checked, sessions hashed, index buckets on their way.
    #[inline(always)]
    fn recognise_all(&mut self, lane: &mut Lane, rx: &[Frame], common: &Common, direction: Direction) {
        for frame in rx {
            frame.prefetch_header();
        }
        let several = self.workers > 1;
        for (frame, pass) in rx.iter().zip(&mut lane.passes) {
            pass.total = 0;
            let Some(seen) = recognise(common, frame.bytes()) else { continue };
            // A session vouches for all addresses but the pool's, which config chooses.
            if direction == Direction::In && !in_transit(seen.addresses as u32) {
                continue;
            }
            let key = packed_key(seen.addresses, seen.ports, common.vrf, seen.proto, direction);
            if several && !self.is_mine(seen.addresses, seen.ports, seen.proto, common.vrf, direction) {
                continue;
            }
            let hash = self.nat.hash_of_key(key);
            self.nat.prefetch_bucket(hash);
            *pass = Pass { key, hash, line: NO_LINE, total: seen.total, bits: seen.bits };
        }
    }

    /// Does the packet stay with this worker?
    #[inline(never)]
    fn is_mine(
        &self,
        addresses: u64,
        ports: u32,
        proto: carrack_base::Proto,
        vrf: VrfId,
        direction: Direction,
    ) -> bool {
        let directory = self.nat.directory();
        let owner = match direction {
            Direction::Out => {
                let src = (addresses >> 32) as u32;
                directory.instance_of_inside(vrf, src).map(|_| directory.owner_of_inside(vrf, src))
            }
            Direction::In => directory.owner_of_outside(vrf, addresses as u32, proto as u8, ports as u16),
        };
        owner.is_none_or(|owner| owner == self.id)
    }

    /// One packet: the port whose queue it now belongs in, or `None` and nothing has changed.
    #[inline(always)]
    fn pass(
        &mut self,
        pass: &Pass,
        frame: &mut Frame,
        exits: &mut Exits,
        direction: Direction,
        now_s: u32,
    ) -> Option<u16> {
        let head = frame.bytes_mut().first_chunk_mut::<LANE_BYTES>()?;
        let crossing = self.nat.crossing(pass.line, pass.key, pass.bits, direction)?;
        let destination = match direction {
            Direction::Out => pass.key[0] as u32,
            Direction::In => crossing.inside_ip(),
        };
        let vrf = crossing.vrf(direction);
        let exit: &Exit = exits.find(&self.plan, &self.neighbours, vrf, destination)?;
        if pass.total > exit.mtu {
            return None;
        }
        let port = exit.port;
        let (link, packet) = head.split_first_chunk_mut::<HEADER_BYTES>()?;
        *link = exit.header;
        crossing.cross(direction, packet.first_chunk_mut()?, now_s);
        frame.truncate((usize::from(pass.total) + HEADER_BYTES).max(FRAME_BYTES_MIN));
        Some(port)
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
