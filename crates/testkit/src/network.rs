//! Whole workers, their rings and the control plane's side of them, in simulated time.

use std::collections::{HashSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use carrack_base::counters::Accounts;
use carrack_base::{IfIndex, Now, PortId, WorkerId};
use carrack_frame::{FramePool, MemPool};
use carrack_nat::WorkerGroup;
use carrack_nat::row::{Filter, NatEvent, SessionKey, SessionRow};
use carrack_pipeline::mailbox::{
    Capture, CaptureSlot, Command, Dump, Event, NatNews, PacketFilter, PacketReceiver, Row, Table,
    packet_ring,
};
use carrack_pipeline::snapshot::{Snapshot, WorkerSizes};
use carrack_pipeline::{Handover, Plan, Worker, WorkerMail};
use carrack_tables::PagePreference;
use carrack_wire::MacAddr;

use crate::judge;

/// Slots of every ring.
const RING_SLOTS: usize = 512;
/// Rounds of the workers' background that one step may take until nothing moves any more.
const ROUNDS_MAX: usize = 12;
/// Rows of a walk that wait to be read.
const DUMP_ROWS: usize = 64;

struct Ends {
    commands: rtrb::Producer<Command>,
    events: rtrb::Consumer<Event>,
    nat_events: rtrb::Consumer<NatNews>,
    punts: PacketReceiver,
}

/// A frame that left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    /// By this port.
    pub port: PortId,
    /// The frame.
    pub frame: Vec<u8>,
}

/// The MAC address of every station there is.
#[must_use]
pub fn mac_of(ip: u32) -> MacAddr {
    let [a, b, c, d] = ip.to_be_bytes();
    MacAddr([2, 0xee, a, b, c, d])
}

/// Workers and what is around them. Neighbours answer ARP at once, unless they are in `silent`.
pub struct Network {
    /// The workers.
    pub workers: Vec<Worker>,
    ends: Vec<Ends>,
    pool: MemPool,
    /// Simulated time.
    pub now: Now,
    /// What the workers forward by.
    pub snapshot: Snapshot,
    /// Addresses that do not answer ARP.
    pub silent: HashSet<u32>,
    /// What the NAT told.
    pub nat_events: VecDeque<NatEvent>,
    /// Sessions that reloads ended.
    pub sessions_ended: u64,
    /// Sessions that [`Network::delete`] ended.
    pub sessions_deleted: u64,
    /// Workers ready for the next snapshot.
    ready: usize,
    next: Option<Snapshot>,
    generation: u64,
}

impl Network {
    /// Builds it, with every frame of the pool at home.
    ///
    /// # Panics
    /// When memory cannot be had.
    #[must_use]
    pub fn new(snapshot: Snapshot, sizes: WorkerSizes, count: u8, seed: [u64; 4]) -> Self {
        let plan = Arc::new(Plan::new(Arc::new(snapshot.clone())));
        let now = Now::from_s(1_000);
        let n = usize::from(count);
        let mut ins: Vec<Vec<rtrb::Consumer<Handover>>> = (0..n).map(|_| vec![]).collect();
        let mut outs: Vec<Vec<Option<rtrb::Producer<Handover>>>> = (0..n).map(|_| vec![]).collect();
        for (from, out) in outs.iter_mut().enumerate() {
            for (to, into) in ins.iter_mut().enumerate() {
                out.push((from != to).then(|| {
                    let (producer, consumer) = rtrb::RingBuffer::new(RING_SLOTS);
                    into.push(consumer);
                    producer
                }));
            }
        }
        let group = WorkerGroup::new(count, seed);
        let (mut workers, mut ends) = (vec![], vec![]);
        for (id, (hand_in, hand_out)) in ins.into_iter().zip(outs).enumerate() {
            let (commands, commands_in) = rtrb::RingBuffer::new(RING_SLOTS);
            let (events_out, events) = rtrb::RingBuffer::new(RING_SLOTS);
            let (nat_out, nat_events) = rtrb::RingBuffer::new(RING_SLOTS);
            let (punts_out, punts) = packet_ring(RING_SLOTS);
            let host_tx = packet_ring(RING_SLOTS).1;
            let mail = WorkerMail {
                commands: commands_in,
                events: events_out,
                nat_events: nat_out,
                punts: punts_out,
                host_tx,
                hand_in,
                hand_out,
            };
            let id = WorkerId(id as u8);
            let pages = PagePreference::Small;
            let worker = Worker::new(id, group.clone(), plan.clone(), sizes, pages, mail, now);
            workers.push(worker.expect("memory for the tables"));
            ends.push(Ends { commands, events, nat_events, punts });
        }
        Self {
            workers,
            ends,
            pool: MemPool::new(4_096, 2_048, 128),
            now,
            snapshot,
            silent: HashSet::new(),
            nat_events: VecDeque::new(),
            sessions_ended: 0,
            sessions_deleted: 0,
            ready: 0,
            next: None,
            generation: 1,
        }
    }

    /// Puts frames into a port of a worker, at most a burst, and lets everything happen that follows without time
    /// going by.
    ///
    /// # Panics
    /// When a packet is unaccounted for, or a frame that leaves is wrong.
    pub fn send(&mut self, worker: usize, port: PortId, frames: &[Vec<u8>]) -> Vec<Sent> {
        for bytes in frames {
            let frame = self.pool.alloc_copy(bytes).expect("the pool has frames");
            self.workers[worker].rx_buffer().push(frame);
        }
        self.workers[worker].process(self.now, port, &mut self.pool);
        self.assert_balanced();
        let mut sent = self.collect(worker);
        sent.extend(self.settle());
        sent
    }

    /// Background of all workers until nothing more happens.
    pub fn settle(&mut self) -> Vec<Sent> {
        let mut all = vec![];
        let mut quiet = 0;
        for _ in 0..ROUNDS_MAX {
            let before = self.totals();
            let mut told = false;
            for at in 0..self.workers.len() {
                self.workers[at].background(self.now, &mut self.pool);
                self.assert_balanced();
                all.extend(self.collect(at));
                told |= self.take_events(at);
            }
            // Two quiet rounds: a handover may come from a worker after its receiver's turn.
            quiet = if !told && self.totals() == before { quiet + 1 } else { 0 };
            if quiet == 2 {
                break;
            }
        }
        all
    }

    /// Lets time go by in steps of at most a quarter of a second, or of `step_ms`.
    pub fn wait_ms(&mut self, ms: u64, step_ms: u64) -> Vec<Sent> {
        let (mut all, mut left) = (vec![], ms);
        while left > 0 {
            let step = left.min(step_ms.max(1));
            self.now = self.now.plus_ns(step * 1_000_000);
            left -= step;
            all.extend(self.settle());
        }
        all
    }

    /// Takes a changed snapshot into force.
    pub fn reconfigure(&mut self, snapshot: Snapshot) -> Vec<Sent> {
        self.begin_reload(snapshot);
        let mut sent = self.commit_reload();
        sent.extend(self.settle());
        sent
    }

    /// Has the workers make ready for a changed snapshot; they do so a little with each background, and go on by the
    /// one they have.
    ///
    /// # Panics
    /// When memory cannot be had.
    pub fn begin_reload(&mut self, mut snapshot: Snapshot) {
        self.generation += 1;
        snapshot.generation = self.generation;
        let plan = Arc::new(Plan::new(Arc::new(snapshot.clone())));
        self.next = Some(snapshot);
        for (worker, ends) in self.workers.iter().zip(&mut self.ends) {
            let change = worker.nat().prepare_change(plan.snapshot.nat.clone());
            let change = change.expect("memory for the tables");
            let command = Command::Prepare { plan: plan.clone(), change };
            assert!(ends.commands.push(command).is_ok(), "command ring full");
        }
        self.ready = 0;
    }

    /// Waits until all are ready for the snapshot they were given, and puts it in force.
    ///
    /// # Panics
    /// When they were given none.
    pub fn commit_reload(&mut self) -> Vec<Sent> {
        let next = self.next.take().expect("a reload has begun");
        let mut sent = self.settle();
        while self.ready < self.workers.len() {
            sent.extend(self.settle());
        }
        for ends in &mut self.ends {
            let command = Command::Commit { generation: next.generation };
            assert!(ends.commands.push(command).is_ok(), "command ring full");
        }
        self.snapshot = next;
        sent.extend(self.settle());
        while self.workers.iter().any(Worker::is_preparing) {
            sent.extend(self.settle());
        }
        sent
    }

    /// Takes the reload back that has begun.
    ///
    /// # Panics
    /// When none has.
    pub fn abandon_reload(&mut self) {
        let next = self.next.take().expect("a reload has begun");
        for ends in &mut self.ends {
            let command = Command::Abandon { generation: next.generation };
            assert!(ends.commands.push(command).is_ok(), "command ring full");
        }
        self.settle();
    }

    /// Captures packets of a worker, of all kinds that match.
    ///
    /// # Panics
    /// When its commands are full.
    pub fn capture(
        &mut self,
        worker: usize,
        filter: PacketFilter,
        packets_max: u64,
    ) -> rtrb::Consumer<CaptureSlot> {
        let (slots, reader) = rtrb::RingBuffer::new(32);
        let capture = Capture { filter, rx: true, tx: true, drops: true, packets_max, slots, lost: 0 };
        let pushed = self.ends[worker].commands.push(Command::Capture(capture));
        assert!(pushed.is_ok(), "command ring full");
        reader
    }

    /// Deletes exactly these sessions; how many there were.
    pub fn delete(&mut self, keys: &[SessionKey]) -> u64 {
        let before = self.sessions_deleted;
        for ends in &mut self.ends {
            let command = Command::Delete { request: 1, keys: keys.to_vec() };
            assert!(ends.commands.push(command).is_ok(), "command ring full");
        }
        self.settle();
        while self.workers.iter().any(Worker::is_deleting) {
            self.settle();
        }
        self.sessions_deleted - before
    }

    /// Deletes the sessions that match; the rows that were.
    pub fn clear(&mut self, filter: Filter) -> Vec<SessionRow> {
        let mut readers = vec![];
        for ends in &mut self.ends {
            let (rows, reader) = rtrb::RingBuffer::new(DUMP_ROWS);
            let dump = Dump { table: Table::Sessions, filter, delete: true, rows_max: 0, rows };
            assert!(ends.commands.push(Command::Dump(dump)).is_ok(), "command ring full");
            readers.push(reader);
        }
        let mut all = vec![];
        while !readers.is_empty() {
            self.settle();
            readers.retain_mut(|reader| {
                // Asked before it is emptied: what comes after would be lost.
                let ended = reader.is_abandoned();
                while let Ok(row) = reader.pop() {
                    if let Row::Session(row) = row {
                        all.push(row);
                    }
                }
                !ended
            });
        }
        all
    }

    fn collect(&mut self, at: usize) -> Vec<Sent> {
        let mut sent = vec![];
        for port in 0..self.snapshot.ports.len() {
            let port = PortId(port as u16);
            let Some(queue) = self.workers[at].tx(port) else { continue };
            // The queue keeps its room: the worker never allocates for it.
            let mut frames = Vec::with_capacity(queue.len());
            frames.append(queue);
            for frame in &frames {
                judge::frame(&self.snapshot, port, frame.bytes());
                sent.push(Sent { port, frame: frame.bytes().to_vec() });
            }
            self.pool.free_all(&mut frames);
        }
        self.workers[at].done(&mut self.pool);
        while self.ends[at].punts.pop().is_some() {}
        sent
    }

    fn take_events(&mut self, at: usize) -> bool {
        let mut any = false;
        while let Ok(news) = self.ends[at].nat_events.pop() {
            any = true;
            if self.nat_events.len() < 100_000 {
                self.nat_events.push_back(news.event);
            }
        }
        while let Ok(event) = self.ends[at].events.pop() {
            any = true;
            match event {
                Event::Resolve { interface, ip: IpAddr::V4(ip) } => {
                    self.answer_arp(at, interface, ip.into());
                }
                // IPv6 stations have the addresses of IPv4 ones in their last bits.
                Event::Resolve { interface, ip: IpAddr::V6(ip) } => {
                    let mac = mac_of(ip.to_bits() as u32);
                    let command = Command::SetNeighbour { interface, ip: ip.into(), mac };
                    assert!(self.ends[at].commands.push(command).is_ok(), "command ring full");
                }
                Event::Reconfigured { sessions_ended, .. } => self.sessions_ended += sessions_ended,
                Event::Prepared { .. } => self.ready += 1,
                Event::Preparing { .. } => {}
                Event::Deleted { count, .. } => self.sessions_deleted += count,
                // No host of this network asks for a mapping.
                Event::Retired { .. } | Event::Controlled { .. } => {}
            }
        }
        any
    }

    fn answer_arp(&mut self, at: usize, interface: IfIndex, ip: u32) {
        if !self.silent.contains(&ip) {
            let command = Command::SetNeighbour { interface, ip: Ipv4Addr::from(ip).into(), mac: mac_of(ip) };
            assert!(self.ends[at].commands.push(command).is_ok(), "command ring full");
        }
    }

    /// The accounts of all workers together.
    pub fn totals(&mut self) -> Accounts {
        let mut all = Accounts::default();
        for worker in &mut self.workers {
            all.add(worker.accounts());
        }
        all
    }

    /// The law, per worker.
    ///
    /// # Panics
    /// When a packet is unaccounted for.
    pub fn assert_balanced(&mut self) {
        for (at, worker) in self.workers.iter_mut().enumerate() {
            let accounts = worker.accounts();
            assert_eq!(accounts.balance(), 0, "worker {at}: {accounts:?}");
        }
    }

    /// Frames that are neither in the pool nor held by a worker.
    #[must_use]
    pub fn frames_out(&self) -> usize {
        self.pool.outstanding()
    }
}
