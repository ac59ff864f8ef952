//! One worker under test with its generator and a reflector at the far end, for the measurements that need more than
//! `forward`'s loop: chosen sessions, simulated time, parts of a burst timed apart.

use std::collections::BTreeMap;
use std::sync::Arc;

use carrack_base::counters::Accounts;
use carrack_base::{BURST_PACKETS_MAX, Now};
use carrack_frame::{Frame, FramePool, MemPool};
use carrack_nat::row::Filter;
use carrack_nat::{Cursor, WorkerGroup};
use carrack_pipeline::Worker;
use carrack_pipeline::mailbox::{Command, Dump, Table};
use carrack_pipeline::snapshot::WorkerSizes;
use carrack_tables::cycles;

use crate::forward::{BenchError, SEED, Way, drops_of, verify};
use crate::generator::{SUBSCRIBER_FIRST, Session, Translation, Writer};
use crate::layout::Layout;
use crate::memory;
use crate::world::{self, FarEnds, GATEWAY_MAC, INSIDE, INSIDE_VLAN, InstanceSpec, OUTSIDE, OUTSIDE_MAC};

/// Rows of deleted sessions on their way to whoever asked.
const ROWS: usize = 8_192;
/// One burst in so many has a packet verified bit by bit.
const VERIFY_EVERY: u64 = 64;

/// What to build.
#[derive(Debug, Clone)]
pub struct RigSpec {
    /// The instance.
    pub instance: InstanceSpec,
    /// Sessions the scenario uses.
    pub layout: Layout,
    /// Table sizes: sessions.
    pub sessions: u32,
    /// Frame bytes on the wire, check sequence and tag included.
    pub frame_bytes: u32,
    /// Frames have a VLAN tag.
    pub tagged: bool,
}

impl RigSpec {
    /// Is it possible, and does it fit? What is impossible is said first, whatever memory there is.
    ///
    /// # Errors
    /// What is wrong with it, and what to do instead.
    pub fn check(&self, workers: u8) -> Result<(), BenchError> {
        self.instance.check()?;
        memory::check(self, workers)
    }

    /// A small one for tests: NAT44 with port blocks, sixteen ports a subscriber.
    #[cfg(test)]
    pub fn small(sessions: u32, remotes: u32, hold_s: u32) -> Self {
        let layout = Layout::for_sessions(sessions, 16, remotes);
        let instance = InstanceSpec {
            translation: Translation::Nat44,
            mode: crate::world::Mode::Pba,
            subscribers: layout.subscribers,
            ports: layout.ports,
            block: 64,
            udp_s: 300,
            hold_s,
            logged: Default::default(),
        };
        Self { instance, layout, sessions, frame_bytes: 84, tagged: false }
    }

    /// Table sizes of the worker.
    pub fn sizes(&self) -> WorkerSizes {
        let mut sizes = world::sizes(self.sessions);
        sizes.nat.mappings = self.layout.mappings().min(self.sessions).max(64);
        sizes.nat.subscribers = self.layout.subscribers.max(64);
        if self.instance.translation == Translation::Nat64 {
            sizes.nat.hosts = sizes.nat.subscribers;
        }
        sizes
    }
}

/// One worker, its generator and its reflector.
pub struct Rig {
    /// Under test.
    pub worker: Worker,
    /// The control plane's ends of its rings.
    pub far: Option<FarEnds>,
    /// Simulated time.
    pub now: Now,
    /// Which sessions there are.
    pub layout: Layout,
    /// The subscribers' inside addresses by their number; where there is none, they follow each other.
    share: Vec<u32>,
    /// Sessions that its tables have room for.
    room: u32,
    pool: MemPool,
    frames: Frames,
    writer: Writer,
    mix: Mix,
    reflected: Vec<Frame>,
    bursts: u64,
    verified: u64,
    wrong: Option<String>,
}

/// What all frames of a rig have in common.
#[derive(Debug, Clone, Copy)]
struct Frames {
    translation: Translation,
    /// Bytes of tags: none or four.
    tag_bytes: usize,
}

impl Frames {
    /// A writer for so many bytes on the wire: neither check sequence nor tag is its business.
    fn writer(self, frame_bytes: u32) -> Writer {
        let least = self.translation.frame_bytes_min() - FCS;
        let bytes = frame_bytes.saturating_sub(FCS + self.tag_bytes as u32).max(least);
        Writer::of(self.translation, bytes as usize)
    }

    /// Bytes in memory of what the writer writes.
    fn bytes(self, writer: &Writer) -> usize {
        writer.bytes() + self.tag_bytes
    }

    /// A packet from inside into a frame of [`Self::bytes`].
    #[inline(always)]
    fn write(self, writer: &mut Writer, session: &Session, frame: &mut [u8]) {
        if self.tag_bytes == 0 {
            return writer.write_out(session, frame);
        }
        if let Some(untagged) = frame.get_mut(self.tag_bytes..) {
            writer.write_out(session, untagged);
            // The stations go to the front, the tag takes their place.
            frame.copy_within(4..16, 0);
            frame[12..14].copy_from_slice(&[0x81, 0x00]);
            frame[14..16].copy_from_slice(&INSIDE_VLAN.to_be_bytes());
        }
    }

    /// The frame as if it had no tag; its stations are not to be looked at.
    fn untagged(self, frame: &[u8]) -> &[u8] {
        frame.get(self.tag_bytes..).unwrap_or(&[])
    }
}

/// Frame check sequence, which is not in memory.
const FCS: u32 = 4;

/// TSC cycles of the parts of a burst.
#[derive(Debug, Clone, Copy, Default)]
pub struct BurstCycles {
    /// Receive to transmit.
    pub process: u64,
    /// Expiry and the rest of what happens between bursts.
    pub background: u64,
    /// The counter when the packets were in the transmit queue.
    pub done_at: u64,
}

/// Frames of several sizes in turn.
#[derive(Default)]
struct Mix {
    writers: Vec<Writer>,
    /// Which writer is next, and so on, round and round.
    order: Vec<usize>,
    at: usize,
}

impl Mix {
    fn new(frames: Frames, sizes: &[(u32, u32)]) -> Self {
        let total: u32 = sizes.iter().map(|(_, weight)| weight).sum();
        // Each size falls due by its weight; the one that is most behind is next.
        let mut credit = vec![0i64; sizes.len()];
        let mut order = Vec::with_capacity(total as usize);
        for _ in 0..total {
            credit.iter_mut().zip(sizes).for_each(|(credit, (_, weight))| *credit += i64::from(*weight));
            let most = (0..sizes.len()).max_by_key(|at| credit.get(*at).copied()).unwrap_or(0);
            if let Some(credit) = credit.get_mut(most) {
                *credit -= i64::from(total);
            }
            order.push(most);
        }
        let writers = sizes.iter().map(|(bytes, _)| frames.writer(*bytes)).collect();
        Self { writers, order, at: 0 }
    }

    fn next(&mut self) -> Option<&mut Writer> {
        self.at = if self.at + 1 >= self.order.len() { 0 } else { self.at + 1 };
        self.writers.get_mut(*self.order.get(self.at)?)
    }
}

impl Rig {
    /// Builds the worker and touches its memory.
    pub fn new(spec: &RigSpec) -> Result<Self, BenchError> {
        spec.check(1)?;
        Self::of_worker(spec, 0, WorkerGroup::new(1, SEED), Vec::new())
    }

    /// Builds a worker of several, to which packets of these subscribers come.
    pub fn of_worker(
        spec: &RigSpec,
        id: u8,
        group: Arc<WorkerGroup>,
        share: Vec<u32>,
    ) -> Result<Self, BenchError> {
        let now = Now::from_s(1);
        let plan = world::plan_with(spec.instance.instance(), spec.tagged);
        let (worker, far) = world::worker_with(id, group, plan, spec.sizes(), now)
            .map_err(|error| BenchError(format!("no memory for {} sessions: {error}", spec.sessions)))?;
        let tag_bytes = if spec.tagged { 4 } else { 0 };
        let frames = Frames { translation: spec.instance.translation, tag_bytes };
        let writer = frames.writer(spec.frame_bytes);
        let bytes = frames.bytes(&writer);
        Ok(Self {
            worker,
            far: Some(far),
            now,
            layout: spec.layout,
            share,
            room: spec.sessions,
            pool: MemPool::new(1_024, (bytes + 64).next_multiple_of(64) as u16, 128),
            frames,
            writer,
            mix: Mix::default(),
            reflected: Vec::with_capacity(BURST_PACKETS_MAX),
            bursts: 0,
            verified: 0,
            wrong: None,
        })
    }

    /// Another frame size from now on; at most the size the rig was made with.
    pub fn set_frame_bytes(&mut self, frame_bytes: u32) {
        self.writer = self.frames.writer(frame_bytes);
        self.mix = Mix::default();
    }

    /// Frames of several sizes from now on, each as often as its weight says, evenly mixed.
    pub fn set_mix(&mut self, sizes: &[(u32, u32)]) {
        self.mix = Mix::new(self.frames, sizes);
    }

    /// Writes a packet from inside of each of these sessions into the receive buffer; returns how many.
    #[inline]
    pub fn receive(&mut self, numbers: &[u32]) -> usize {
        if !self.mix.order.is_empty() {
            return self.receive_mix(numbers);
        }
        let bytes = self.frames.bytes(&self.writer) as u16;
        let rx = self.worker.rx_buffer();
        self.pool.alloc_burst(rx, numbers.len(), bytes);
        for (frame, number) in rx.iter_mut().zip(numbers) {
            self.frames.write(
                &mut self.writer,
                &session_of(&self.layout, &self.share, *number),
                frame.bytes_mut(),
            );
        }
        rx.len()
    }

    fn receive_mix(&mut self, numbers: &[u32]) -> usize {
        let Self { mix, pool, worker, layout, share, frames, .. } = self;
        for number in numbers {
            let Some(mut frame) = pool.alloc() else { break };
            let Some(writer) = mix.next() else { break };
            if let Some(room) = frame.append(frames.bytes(writer)) {
                frames.write(writer, &session_of(layout, share, *number), room);
            }
            worker.rx_buffer().push(frame);
        }
        worker.rx_buffer().len()
    }

    /// A turn without the worker: what is received goes back unprocessed, with `both` after the far end has turned it
    /// round. Returns how many packets that stands for, answers included.
    #[inline]
    pub fn generate(&mut self, numbers: &[u32], both: bool) -> usize {
        let offered = self.receive(numbers);
        let rx = self.worker.rx_buffer();
        if both {
            let tag_bytes = self.frames.tag_bytes;
            rx.iter_mut().for_each(|frame| swap_ends(tag_bytes, frame.bytes_mut()));
        }
        self.pool.free_all(rx);
        if both { 2 * offered } else { offered }
    }

    /// Bytes of the tables that packets are written from: whose number is which address, where subscribers do not follow
    /// each other.
    pub fn generator_table_bytes(&self) -> u64 {
        size_of_val(self.share.as_slice()) as u64
    }

    /// Receive buffer to transmit queue, then what is done between bursts.
    #[inline]
    pub fn process(&mut self) -> BurstCycles {
        let start = cycles();
        self.worker.process(self.now, INSIDE, &mut self.pool);
        let middle = cycles();
        self.worker.background(self.now, &mut self.pool);
        self.bursts += 1;
        BurstCycles {
            process: middle.wrapping_sub(start),
            background: cycles().wrapping_sub(middle),
            done_at: middle,
        }
    }

    /// Throws away what came up, unless somebody else listens.
    #[inline]
    pub fn drain(&mut self) {
        if let Some(far) = &mut self.far {
            far.drain();
        }
    }

    /// Lets time pass without packets.
    pub fn idle(&mut self) {
        self.worker.background(self.now, &mut self.pool);
        self.worker.done(&mut self.pool);
    }

    /// Ends a burst: what left is verified now and then and its frames are given back. Returns how many left.
    #[inline]
    pub fn collect(&mut self, numbers: &[u32]) -> usize {
        let Self { worker, pool, .. } = self;
        let Some(queue) = worker.tx(OUTSIDE) else { return 0 };
        let left = queue.len();
        if self.bursts.is_multiple_of(VERIFY_EVERY) && left == numbers.len() {
            let place = (self.bursts / VERIFY_EVERY) as usize % left.max(1);
            if let (Some(frame), Some(number)) = (queue.get(place), numbers.get(place)) {
                let session = session_of(&self.layout, &self.share, *number);
                let frame = self.frames.untagged(frame.bytes());
                let is_right = verify(self.frames.translation, frame, Way::Out, &session, source_of(frame));
                note(is_right, &mut self.verified, &mut self.wrong);
            }
        }
        pool.free_all(queue);
        worker.done(pool);
        left
    }

    /// What left goes to the far end, which swaps addresses and ports and sends it back; the answers go through the
    /// worker and end at the subscribers. Returns (answers offered, answers that arrived).
    #[inline]
    pub fn reflect(&mut self, numbers: &[u32]) -> (usize, usize) {
        let Some(queue) = self.worker.tx(OUTSIDE) else { return (0, 0) };
        self.reflected.append(queue);
        let tag_bytes = self.frames.tag_bytes;
        self.reflected.iter_mut().for_each(|frame| swap_ends(tag_bytes, frame.bytes_mut()));
        let offered = self.reflected.len();
        self.worker.rx_buffer().append(&mut self.reflected);
        self.worker.process(self.now, OUTSIDE, &mut self.pool);
        self.worker.background(self.now, &mut self.pool);
        (offered, self.collect_answers(numbers, offered))
    }

    #[inline]
    fn collect_answers(&mut self, numbers: &[u32], offered: usize) -> usize {
        let Self { worker, pool, .. } = self;
        let Some(queue) = worker.tx(INSIDE) else { return 0 };
        let left = queue.len();
        if self.bursts.is_multiple_of(VERIFY_EVERY) && left == numbers.len() && left == offered {
            let place = (self.bursts / VERIFY_EVERY) as usize % left.max(1);
            if let (Some(frame), Some(number)) = (queue.get(place), numbers.get(place)) {
                let session = session_of(&self.layout, &self.share, *number);
                // The answer must be what the far end sent, to the subscriber's own endpoint.
                let frame = self.frames.untagged(frame.bytes());
                let is_right = verify(self.frames.translation, frame, Way::In, &session, (0, 0));
                note(is_right, &mut self.verified, &mut self.wrong);
            }
        }
        pool.free_all(queue);
        worker.done(pool);
        left
    }

    /// Every burst a worker takes from empty receive buffers: frames of these sessions, out, and (with `both`) back.
    /// Returns (offered, arrived).
    #[inline]
    pub fn turn(&mut self, numbers: &[u32], both: bool) -> (u64, u64) {
        let offered = self.receive(numbers);
        self.process();
        if both {
            let (answers, arrived) = self.reflect(numbers);
            ((offered + answers) as u64, (answers + arrived) as u64)
        } else {
            (offered as u64, self.collect(numbers) as u64)
        }
    }

    /// Packets verified so far; an error when one was wrong.
    pub fn verified(&self) -> Result<u64, BenchError> {
        self.wrong.clone().map_or(Ok(self.verified), |wrong| Err(BenchError(wrong)))
    }

    /// Is every packet accounted for now?
    pub fn is_balanced(&mut self) -> bool {
        self.worker.accounts().balance() == 0
    }

    /// The accounts.
    pub fn accounts(&mut self) -> &Accounts {
        self.worker.accounts()
    }

    /// Drops so far by reason.
    pub fn drops(&mut self) -> BTreeMap<&'static str, u64> {
        drops_of(self.worker.accounts())
    }

    /// Sessions that its tables have room for.
    pub const fn room(&self) -> u32 {
        self.room
    }

    /// Sessions now.
    pub fn sessions(&self) -> u64 {
        self.worker.nat().session_count() as u64
    }

    /// Deletes every session, as management is asked to. True when none is left.
    pub fn delete_all(&mut self) -> bool {
        let (rows_out, mut rows) = rtrb::RingBuffer::new(ROWS);
        let (table, filter) = (Table::Sessions, Filter::default());
        let all = Command::Dump(Dump { table, filter, delete: true, rows_max: 0, rows: rows_out });
        let asked = self.far.as_mut().is_some_and(|far| far.commands.push(all).is_ok());
        // Each turn looks at some lines at least, and ends when it has seen all.
        while asked && !rows.is_abandoned() {
            self.idle();
            self.drain();
            while rows.pop().is_ok() {}
        }
        self.sessions() == 0
    }

    /// Lets every session expire and every hold time pass, in simulated time. True when it took less than an hour of
    /// it.
    pub fn expire_all(&mut self) -> bool {
        for _ in 0..3_600 * 8 {
            self.now = self.now.plus_ns(125_000_000);
            // A call ends a bounded number of sessions; between bursts there are many calls.
            let mut before = usize::MAX;
            while self.worker.nat().session_count() < before {
                before = self.worker.nat().session_count();
                self.idle();
                self.drain();
            }
            if self.is_empty() {
                self.end_hold();
                return true;
            }
        }
        false
    }

    /// Lets the hold time of all ports and blocks pass.
    fn end_hold(&mut self) {
        let hold_s = self.worker.nat().policy().instances.iter().map(|i| i.port_hold_s).max().unwrap_or(0);
        for _ in 0..3 {
            self.now = self.now.plus_ns((u64::from(hold_s) + 1) * 1_000_000_000);
            self.idle();
            while self.worker.nat().is_behind() {
                self.idle();
            }
        }
    }

    /// Is nothing in use in any table?
    pub fn is_empty(&self) -> bool {
        let nat = self.worker.nat();
        nat.session_count() == 0 && nat.mapping_count() == 0 && nat.subscriber_count() == 0
    }

    /// What is in use in each table, by name.
    pub fn used(&self) -> BTreeMap<&'static str, u64> {
        let nat = self.worker.nat();
        let mut used: BTreeMap<_, _> = nat.memory().iter().map(|row| (row.table, row.used)).collect();
        let mut blocks = 0;
        nat.walk_pools(&mut Cursor::default(), usize::MAX, |row| {
            blocks += u64::from(row.blocks_used);
            true
        });
        used.insert("port-blocks", blocks);
        used
    }
}

/// The endpoints of a session, of the subscribers that there are.
#[inline(always)]
fn session_of(layout: &Layout, share: &[u32], number: u32) -> Session {
    let session = layout.session(number);
    match share.get((session.inside - SUBSCRIBER_FIRST) as usize) {
        Some(inside) => Session { inside: *inside, ..session },
        None => session,
    }
}

fn note(result: Result<(), String>, verified: &mut u64, wrong: &mut Option<String>) {
    match result {
        Ok(()) => *verified += 1,
        Err(error) => *wrong = Some(error),
    }
}

/// The source endpoint of an Ethernet frame without options in its IPv4 header.
#[inline]
pub fn source_of(frame: &[u8]) -> (u32, u16) {
    let word = |at: usize| frame.get(at..at + 2).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]));
    (u32::from(word(26)) << 16 | u32::from(word(28)), word(34))
}

/// What a reflector does: MAC addresses, IPv4 addresses and ports change places; no checksum changes by it.
#[inline(always)]
fn swap_ends(tag_bytes: usize, frame: &mut [u8]) {
    if let Some(stations) = frame.first_chunk_mut::<12>() {
        stations[..6].copy_from_slice(&OUTSIDE_MAC.0);
        stations[6..].copy_from_slice(&GATEWAY_MAC.0);
    }
    let Some(head) = frame.get_mut(tag_bytes..).and_then(|frame| frame.first_chunk_mut::<38>()) else {
        return;
    };
    // TTL 64 again, as a far end would send it; its checksum changes by as much.
    let sum = u32::from(!u16::from_be_bytes([head[24], head[25]]));
    let sum = sum + 64 * 256 + (0xffff - u32::from(head[22]) * 256);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    head[24..26].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    head[22] = 64;
    let (source, rest) = head[26..].split_at_mut(4);
    source.swap_with_slice(&mut rest[..4]);
    let (source, destination) = rest[4..8].split_at_mut(2);
    source.swap_with_slice(destination);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::Mode;

    fn spec(translation: Translation, mode: Mode) -> RigSpec {
        let layout = Layout::for_sessions(1_024, 16, 2);
        RigSpec {
            instance: InstanceSpec {
                translation,
                mode,
                subscribers: layout.subscribers,
                ports: layout.ports,
                block: 64,
                udp_s: 2,
                hold_s: 4,
                logged: Default::default(),
            },
            layout,
            sessions: 1_024,
            frame_bytes: 64,
            tagged: false,
        }
    }

    #[test]
    fn more_subscribers_or_addresses_than_there_can_be_are_refused_in_words() {
        let refusal = |translation, subscribers| {
            let mut spec = spec(translation, Mode::Pba);
            spec.instance.subscribers = subscribers;
            spec.instance.block = 512;
            Rig::new(&spec).err().map(|error| error.0)
        };
        let error = refusal(Translation::Nat44, 20_000_000).unwrap();
        assert!(error.contains("20,000,000 subscribers") && error.contains("10.0.0.0/8"), "{error}");
        // Blocks of 512 ports, 126 of an address, half as many again.
        let error = refusal(Translation::Nat64, 6_000_000).unwrap();
        assert!(error.contains("71,430 addresses"), "{error}");
        assert_eq!(refusal(Translation::Nat44, 1_000), None);
    }

    #[test]
    fn a_mix_has_every_size_as_often_as_its_weight() {
        let frames = Frames { translation: Translation::Nat44, tag_bytes: 0 };
        let mut mix = Mix::new(frames, &[(82, 1), (118, 11), (391, 3), (588, 2), (1_318, 3), (1_536, 7)]);
        let mut counts = std::collections::BTreeMap::new();
        for _ in 0..27 * 3 {
            *counts.entry(mix.next().unwrap().bytes() + 4).or_insert(0) += 1;
        }
        let expected = [(82, 3), (118, 33), (391, 9), (588, 6), (1_318, 9), (1_536, 21)];
        assert_eq!(counts.into_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn in_every_mode_packets_go_out_and_their_answers_come_back_and_nothing_stays() {
        let modes = [Mode::Pba, Mode::Arbitrary, Mode::Deterministic, Mode::Static];
        let worlds = modes.map(|mode| (Translation::Nat44, mode)).into_iter();
        // One-to-one addresses are of IPv4 only.
        let worlds = worlds.chain(modes[..3].iter().map(|mode| (Translation::Nat64, *mode)));
        let worlds =
            worlds.flat_map(|(translation, mode)| [false, true].map(|tagged| (translation, mode, tagged)));
        for (translation, mode, tagged) in worlds {
            let mut rig = Rig::new(&RigSpec { tagged, ..spec(translation, mode) }).unwrap();
            let mode = (translation, mode, tagged);
            let numbers: Vec<u32> = (0..1_024).collect();
            for burst in numbers.chunks(BURST_PACKETS_MAX).chain(numbers.chunks(BURST_PACKETS_MAX)) {
                assert_eq!(rig.turn(burst, true), (128, 128), "{mode:?}: {:?}", rig.drops());
            }
            // One burst in 64 is verified.
            for _ in 0..2 * VERIFY_EVERY {
                rig.turn(&numbers[..64], true);
            }
            assert!(rig.verified().unwrap() >= 2, "{mode:?}");
            assert_eq!(rig.sessions(), 1_024, "{mode:?}");
            assert!(rig.is_balanced() && rig.expire_all(), "{mode:?}");
            assert!(rig.used().values().all(|used| *used == 0), "{mode:?}: {:?}", rig.used());
        }
    }
}
