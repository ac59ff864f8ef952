//! Fragments that wait for all others of their datagram: UDP over IPv4 without a checksum, of which none can
//! become IPv6 before every byte is there to be summed: RFC 6146 §3.4 (unsummed). They take the places, and
//! the time, of those that wait for their first one, and go on in as many fragments as came.

use carrack_base::{Now, Reason, VrfId};
use carrack_frame::Frame;
use carrack_nat::{Direction, Way};
use carrack_wire::checksum;
use carrack_wire::ipv4::{Ipv4View, protocol};
use carrack_xlat::ZeroUdp;

use super::{Datagram, Fragments, NONE, Slot, key_of};
use crate::burst::{Burst, Fate, Meta};
use crate::mailbox::TraceOutcome;
use crate::mediate::put16;
use crate::stats::Stage;
use crate::worker::Worker;

/// Keeps what waits for all others apart from what waits for its first one, where one worker has both. No
/// other key has it.
const TOGETHER: u64 = 1 << 4;
const UDP_HEADER_LEN: usize = 8;

/// What became of a fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gathered {
    /// It waits; the table has the frame.
    Waits,
    /// It was the last one: all wait under this number, in order.
    Whole(u32),
    /// It is dropped, and what is left of its datagram with it.
    Ends(Option<u32>, Reason),
    /// It is there already: dropped alone.
    Doubled,
}

/// Where a fragment is in its datagram.
#[derive(Debug, Clone, Copy)]
struct Part<'a> {
    start: u32,
    more: bool,
    data: &'a [u8],
}

impl<'a> Part<'a> {
    fn of(meta: &Meta, frame: &'a Frame) -> Option<Self> {
        let packet = Ipv4View::parse(frame.bytes().get(usize::from(meta.flow.l3)..)?).ok()?;
        Some(Self { start: packet.fragment_offset(), more: packet.more_fragments(), data: packet.payload() })
    }

    const fn end(&self) -> u32 {
        self.start + self.data.len() as u32
    }
}

impl Slot {
    fn part(&self) -> Option<Part<'_>> {
        self.held.as_ref().and_then(|(frame, meta)| Part::of(meta, frame))
    }
}

impl Datagram {
    /// Is the fragment none of this datagram, as far as its last one tells? `reach` is where those that are
    /// there end.
    fn contradicts(&self, part: &Part<'_>, reach: u32) -> bool {
        let is_beyond = self.total != 0 && (part.end() > self.total || !part.more);
        is_beyond || (!part.more && reach > part.end())
    }
}

impl Fragments {
    /// Takes an IPv4 fragment that has to wait for all others.
    fn gather(&mut self, frame: &mut Option<Frame>, meta: &Meta, timeout_ms: u32, now: Now) -> Gathered {
        let key = frame.as_ref().and_then(|frame| key_of(&self.hasher, meta, frame.bytes()));
        let id = key.and_then(|[ends, rest]| self.find_or_add([ends, rest | TOGETHER], timeout_ms, now));
        let Some(id) = id else { return Gathered::Ends(None, Reason::FragmentTableFull) };
        let gathered = self.join(id, frame, meta);
        if let (Gathered::Ends(_, reason), Some(line)) = (gathered, self.lines.get_mut(id)) {
            line.ended = Some(reason);
        }
        gathered
    }

    /// RFC 5722 §4, RFC 8200 §4.5, as for IPv6: what overlaps ends its datagram, but the very same fragment
    /// again is the network's doing.
    fn join(&mut self, id: u32, frame: &mut Option<Frame>, meta: &Meta) -> Gathered {
        let ends = |reason| Gathered::Ends(Some(id), reason);
        let Some(line) = self.lines.get(id).copied() else { return ends(Reason::FragmentTableFull) };
        let Some(part) = frame.as_ref().and_then(|frame| Part::of(meta, frame)) else {
            return ends(Reason::Ipv4FragmentInvalid);
        };
        if let Some(reason) = line.ended {
            return ends(reason);
        }
        let before = match self.place_of(&line, &part) {
            Ok(before) => before,
            Err(Gathered::Doubled) => return Gathered::Doubled,
            Err(_) => return ends(Reason::FragmentOverlap),
        };
        let (len, end, more) = (part.data.len() as u32, part.end(), part.more);
        if !self.chain(id, frame, meta, before) {
            return ends(Reason::FragmentQueueFull);
        }
        let Some(line) = self.lines.get_mut(id) else { return Gathered::Waits };
        line.seen += len;
        if !more {
            line.total = end;
        }
        // Every byte that is there is there once, and none is beyond the last.
        if line.seen == line.total { Gathered::Whole(id) } else { Gathered::Waits }
    }

    /// Behind which one a fragment belongs.
    fn place_of(&self, line: &Datagram, part: &Part<'_>) -> Result<u32, Gathered> {
        let overlap = Err(Gathered::Ends(None, Reason::FragmentOverlap));
        let part_at = |at: u32| self.slots.get(at as usize).and_then(Slot::part);
        let last = part_at(line.last_waiting);
        let (mut before, mut at) = (NONE, line.first_waiting);
        if last.is_some_and(|last| last.end() <= part.start) {
            (before, at) = (line.last_waiting, NONE);
        }
        while let Some(there) = part_at(at).filter(|there| there.start < part.end()) {
            if (there.start, there.more, there.data) == (part.start, part.more, part.data) {
                return Err(Gathered::Doubled);
            }
            if there.end() > part.start {
                return overlap;
            }
            before = at;
            at = self.slots.get(at as usize).map_or(NONE, |slot| slot.next);
        }
        if line.contradicts(part, last.map_or(0, |last| last.end())) { overlap } else { Ok(before) }
    }

    /// Gives a datagram that is whole its checksum, over IPv4's pseudo-header: it becomes IPv6 as any other
    /// from here on.
    fn fill_checksum(&mut self, id: u32) -> Result<(), Reason> {
        let line = self.lines.get(id).copied().ok_or(Reason::UdpMalformed)?;
        let first = self.slots.get(line.first_waiting as usize).ok_or(Reason::UdpMalformed)?;
        let (frame, meta) = first.held.as_ref().ok_or(Reason::UdpMalformed)?;
        let (src, dst) = (meta.flow.src, meta.flow.dst);
        let transport = usize::from(meta.flow.l4);
        let head = frame.bytes().get(transport..).and_then(|l4| l4.first_chunk::<UDP_HEADER_LEN>());
        let len = head.map_or(0, |head| u16::from_be_bytes([head[4], head[5]]));
        // What is behind the length is no part of the datagram (RFC 768), nor is one shorter than it says
        // whole.
        if usize::from(len) < UDP_HEADER_LEN || u32::from(len) > line.total {
            return Err(Reason::UdpMalformed);
        }
        let mut sum = checksum::pseudo_v4(src, dst, protocol::UDP, len);
        let mut at = line.first_waiting;
        while let Some(slot) = self.slots.get(at as usize) {
            let Some(part) = slot.part() else { break };
            let summed = u32::from(len).saturating_sub(part.start) as usize;
            sum = sum.with_bytes(part.data.get(..summed).unwrap_or(part.data));
            at = slot.next;
        }
        if let Some((frame, _)) =
            self.slots.get_mut(line.first_waiting as usize).and_then(|s| s.held.as_mut())
        {
            put16(frame.bytes_mut(), transport + 6, sum.udp_checksum());
        }
        Ok(())
    }

    /// The next fragment of a datagram that is whole or has ended; one that is whole is forgotten with its
    /// last fragment.
    fn next_gathered(&mut self, id: u32) -> Option<(Frame, Meta)> {
        let next = self.unchain(id)?;
        if self.lines.get(id).is_some_and(|line| line.waiting == 0 && line.ended.is_none()) {
            self.forget(id);
        }
        Some(next)
    }

    /// Lets a fragment of a whole datagram, taken just now, go on with the next burst that has room; the
    /// frame back when there is no place.
    fn put_whole(&mut self, frame: Frame, meta: Meta) -> Result<(), Frame> {
        let Some(slot) = self.free_slots.pop() else { return Err(frame) };
        let Some(place) = self.slots.get_mut(slot as usize) else { return Err(frame) };
        *place = Slot { held: Some((frame, meta)), next: NONE };
        self.whole.push_back(slot);
        self.held += 1;
        Ok(())
    }

    fn next_whole(&mut self) -> Option<(Frame, Meta)> {
        let at = self.whole.pop_front()?;
        self.free_slots.push(at);
        self.held -= 1;
        self.slots.get_mut(at as usize)?.held.take()
    }
}

impl Worker {
    /// Does a fragment towards IPv6 have to wait for all others of its datagram? Where none shall get a
    /// checksum none waits.
    pub(crate) fn waits_for_all(meta: &Meta, direction: Direction, way: &Way) -> bool {
        direction == Direction::In && meta.is_unsummed && way.rules.zero_udp == ZeroUdp::Compute
    }

    /// A fragment that has to wait for all others, whose session the NAT has found: with the last one all
    /// become IPv6.
    #[cold]
    pub(crate) fn gather_unsummed(&mut self, burst: &mut Burst, at: usize, vrf: VrfId, now: Now) {
        let (Some(place), Some(about)) = (burst.frames.get_mut(at), burst.meta.get_mut(at)) else { return };
        let (meta, timeout_ms) = (*about, self.plan.snapshot.fragment_timeout_ms);
        if meta.traced != 0
            && let Some(frame) = place
        {
            self.taps.step(Stage::Nat, meta.ingress, TraceOutcome::Held, &meta, frame.bytes(), now);
        }
        match self.fragments.gather(place, &meta, timeout_ms, now) {
            Gathered::Waits => about.fate = Fate::Gone,
            Gathered::Whole(id) => {
                about.fate = Fate::Gone;
                self.cross_whole(id, meta.line, vrf, now);
            }
            Gathered::Doubled => about.fate = Fate::Dropped(Reason::FragmentOverlap),
            Gathered::Ends(id, reason) => {
                about.fate = Fate::Dropped(reason);
                while let Some((frame, meta)) = id.and_then(|id| self.fragments.next_gathered(id)) {
                    self.discard(frame, &meta, reason, now);
                }
            }
        }
    }

    /// All of them by the session of the last: those before may have waited longer than theirs has lived.
    fn cross_whole(&mut self, id: u32, line: u32, vrf: VrfId, now: Now) {
        let way = self.nat.way(line).ok_or(Reason::SnapshotStale);
        let summed = self.fragments.fill_checksum(id);
        while let Some((mut frame, mut meta)) = self.fragments.next_gathered(id) {
            (meta.line, meta.is_unsummed) = (line, false);
            let crossed =
                summed.and(way).and_then(|way| self.cross(&mut frame, &mut meta, &way, Direction::In, vrf));
            match crossed {
                Err(reason) => meta.fate = Fate::Dropped(reason),
                Ok(()) if meta.traced != 0 => self.trace_translation(&frame, &meta, line, false, false, now),
                Ok(()) => {}
            }
            if let Err(frame) = self.fragments.put_whole(frame, meta) {
                self.discard(frame, &meta, Reason::FragmentQueueFull, now);
            }
        }
    }

    /// Fragments whose datagrams became whole go on at the end of the burst, as far as it has room.
    pub(crate) fn let_whole_on(&mut self, burst: &mut Burst, now: Now) {
        while burst.room() > 0 {
            let Some((frame, meta)) = self.fragments.next_whole() else { return };
            // Invariant: there is room.
            if let Err(frame) = burst.push(frame, meta) {
                self.discard(frame, &meta, Reason::FragmentQueueFull, now);
            }
        }
    }
}
