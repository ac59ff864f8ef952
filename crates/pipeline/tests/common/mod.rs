//! Workers, their rings and a small network around them. Every step checks conservation, every frame that leaves is
//! judged by a second reader, and at the end no frame is missing.
#![allow(dead_code, reason = "each test file uses its own part")]

pub mod check;
pub mod net;
pub mod net6;

use std::net::IpAddr;
use std::sync::Arc;

use carrack_base::{IfIndex, Now, PortId, REASONS, Reason, WorkerId};
use carrack_frame::{FramePool, MemPool};
use carrack_nat::policy::Capacity;
use carrack_nat::{Steering, WorkerGroup};
use carrack_pipeline::mailbox::{
    Capture, CaptureSlot, Command, Event, NatNews, PacketFilter, PacketReceiver, PacketSender, Trace,
    TraceStep, packet_ring,
};
use carrack_pipeline::snapshot::{Snapshot, WorkerSizes};
use carrack_pipeline::{Handover, Plan, Worker, WorkerMail};
use carrack_tables::PagePreference;
use carrack_wire::MacAddr;

#[allow(unused_imports, reason = "each test file uses its own part")]
pub use check::{Sent, e, ip, port_of};
pub use net::*;

/// The control plane's ends of one worker's rings.
pub struct Ends {
    pub commands: rtrb::Producer<Command>,
    pub events: rtrb::Consumer<Event>,
    pub nat_events: rtrb::Consumer<NatNews>,
    pub punts: PacketReceiver,
    pub host_tx: PacketSender,
}

/// Workers and the control plane's side of them.
pub struct World {
    pub workers: Vec<Worker>,
    pub ends: Vec<Ends>,
    pub pool: MemPool,
    pub now: Now,
    pub snapshot: Snapshot,
    pub events: Vec<Event>,
    pub punts: Vec<(IfIndex, Vec<u8>)>,
    /// What a network card is told.
    pub steering: Steering,
    before: Vec<u64>,
}

/// Small tables, so that tests can fill them.
pub const SIZES: WorkerSizes = WorkerSizes {
    nat: Capacity {
        sessions: 2_048,
        mappings: 2_048,
        subscribers: 256,
        hosts: 64,
        fragments: 64,
        held_fragments: 128,
        held_syns: 16,
        controls: 64,
    },
    neighbours: 64,
    held_for_neighbour: 32,
};

/// Slots of the rings between two workers.
pub const HANDOVER_SLOTS: usize = 256;

pub fn world() -> World {
    world_with(|_| {})
}

pub fn world_with(change: impl FnOnce(&mut Snapshot)) -> World {
    World::new(1, SIZES, HANDOVER_SLOTS, change)
}

pub fn workers(count: u8) -> World {
    World::new(count, SIZES, HANDOVER_SLOTS, |_| {})
}

impl World {
    pub fn new(
        count: u8,
        sizes: WorkerSizes,
        handover_slots: usize,
        change: impl FnOnce(&mut Snapshot),
    ) -> Self {
        let mut snapshot = net::snapshot();
        change(&mut snapshot);
        let plan = Arc::new(Plan::new(Arc::new(snapshot.clone())));
        let now = Now::from_s(1_000);
        let n = usize::from(count);
        let mut ins: Vec<Vec<rtrb::Consumer<Handover>>> = (0..n).map(|_| vec![]).collect();
        let mut outs: Vec<Vec<Option<rtrb::Producer<Handover>>>> = (0..n).map(|_| vec![]).collect();
        for (from, outs) in outs.iter_mut().enumerate() {
            for (to, ins) in ins.iter_mut().enumerate() {
                outs.push((from != to).then(|| {
                    let (producer, consumer) = rtrb::RingBuffer::new(handover_slots);
                    ins.push(consumer);
                    producer
                }));
            }
        }
        let group = WorkerGroup::new(count, [7, 1, 8, 2]);
        let (mut workers, mut ends) = (vec![], vec![]);
        for (id, (hand_in, hand_out)) in ins.into_iter().zip(outs).enumerate() {
            let (commands, commands_in) = rtrb::RingBuffer::new(256);
            let (events_out, events) = rtrb::RingBuffer::new(256);
            let (nat_out, nat_events) = rtrb::RingBuffer::new(256);
            let (punts_out, punts) = packet_ring(256);
            let (host_tx, host_tx_in) = packet_ring(256);
            let mail = WorkerMail {
                commands: commands_in,
                events: events_out,
                nat_events: nat_out,
                punts: punts_out,
                host_tx: host_tx_in,
                hand_in,
                hand_out,
            };
            let (id, pages) = (WorkerId(id as u8), PagePreference::Small);
            let worker = Worker::new(id, group.clone(), plan.clone(), sizes, pages, mail, now).unwrap();
            workers.push(worker);
            ends.push(Ends { commands, events, nat_events, punts, host_tx });
        }
        let pool = MemPool::new(4_096, 10_000, 128);
        let before = vec![0; REASONS.len()];
        let steering = group.steering().clone();
        let (events, punts) = (vec![], vec![]);
        let mut world = Self { workers, ends, pool, now, snapshot, events, punts, steering, before };
        for (interface, text) in net::STATIONS {
            world.know(*interface, text);
        }
        world
    }

    /// Tells all workers where a station is.
    pub fn know(&mut self, interface: u16, address: &str) {
        let ip = ip(address);
        let command =
            || Command::SetNeighbour { interface: IfIndex(interface), ip: v4(address), mac: mac_of(ip) };
        self.command(command);
        self.turn();
    }

    /// Sends a command to every worker, which takes it with the next turn.
    pub fn command(&mut self, mut command: impl FnMut() -> Command) {
        for ends in &mut self.ends {
            assert!(ends.commands.push(command()).is_ok(), "command ring full");
        }
    }

    /// One burst into worker 0, and all that follows from it without time going by.
    pub fn burst(&mut self, port: u16, frames: &[Vec<u8>]) -> Vec<Sent> {
        self.burst_at(0, port, frames)
    }

    /// One burst into that worker.
    pub fn burst_at(&mut self, worker: usize, port: u16, frames: &[Vec<u8>]) -> Vec<Sent> {
        for frame in frames {
            let frame = self.pool.alloc_copy(frame).expect("the pool has frames");
            self.workers[worker].rx_buffer().push(frame);
        }
        self.workers[worker].process(self.now, PortId(port), &mut self.pool);
        self.balanced();
        let mut sent = self.collect(worker);
        sent.extend(self.turn());
        sent
    }

    /// One frame into worker 0.
    pub fn send(&mut self, port: u16, frame: &[u8]) -> Vec<Sent> {
        self.burst(port, &[frame.to_vec()])
    }

    /// One frame in, exactly one out.
    #[track_caller]
    pub fn pass(&mut self, port: u16, frame: &[u8]) -> Sent {
        let sent = self.send(port, frame);
        if sent.len() != 1 {
            panic!("{} frames left; drops: {:?}", sent.len(), self.new_drops());
        }
        sent.into_iter().next().unwrap()
    }

    /// One frame in, none out, dropped for this reason alone.
    #[track_caller]
    pub fn dropped(&mut self, port: u16, frame: &[u8], reason: Reason) {
        let sent = self.send_dropped(port, frame, reason);
        assert!(sent.is_empty(), "answered: {sent:?}");
    }

    /// One frame in, dropped for this reason alone: what was sent about it.
    #[track_caller]
    pub fn send_dropped(&mut self, port: u16, frame: &[u8], reason: Reason) -> Vec<Sent> {
        self.new_drops();
        let sent = self.send(port, frame);
        assert_eq!(self.new_drops(), [(reason, 1)]);
        sent
    }

    /// What a capture sees from now on; `change` may restrict it.
    pub fn capture(&mut self, change: impl Fn(&mut Capture)) -> rtrb::Consumer<CaptureSlot> {
        let (slots, reader) = rtrb::RingBuffer::new(64);
        let filter = PacketFilter::default();
        let mut capture =
            Capture { filter, rx: true, tx: true, drops: true, packets_max: 1_000, slots, lost: 0 };
        change(&mut capture);
        assert!(self.ends[0].commands.push(Command::Capture(capture)).is_ok());
        self.turn();
        reader
    }

    /// What the stages do to the next packets.
    pub fn trace(&mut self, packets_max: u32, filter: PacketFilter) -> rtrb::Consumer<TraceStep> {
        let (steps, reader) = rtrb::RingBuffer::new(256);
        assert!(self.ends[0].commands.push(Command::Trace(Trace { filter, packets_max, steps })).is_ok());
        self.turn();
        reader
    }

    /// Background of one worker, once.
    pub fn once(&mut self, at: usize) -> Vec<Sent> {
        self.workers[at].background(self.now, &mut self.pool);
        self.balanced();
        self.collect(at)
    }

    /// Background of all workers until nothing more comes out.
    pub fn turn(&mut self) -> Vec<Sent> {
        let mut all = vec![];
        // Enough for handovers from fragments' home to owner to the hairpin's owner, and for ready fragments.
        for _ in 0..8 {
            for at in 0..self.workers.len() {
                self.workers[at].background(self.now, &mut self.pool);
                self.balanced();
                all.extend(self.collect(at));
            }
        }
        all
    }

    /// Lets time go by in steps of a tenth of a second.
    pub fn wait_ms(&mut self, ms: u64) -> Vec<Sent> {
        let mut all = vec![];
        for _ in 0..ms.div_ceil(100) {
            self.now = self.now.plus_ns(100_000_000);
            all.extend(self.turn());
        }
        all
    }

    fn collect(&mut self, at: usize) -> Vec<Sent> {
        let mut sent = vec![];
        for port in 0..self.snapshot.ports.len() {
            let queue = self.workers[at].tx(PortId(port as u16)).unwrap();
            let mut frames = Vec::new();
            frames.append(queue);
            for frame in &frames {
                sent.push(check::judge(&self.snapshot, port as u16, frame.bytes()));
            }
            self.pool.free_all(&mut frames);
        }
        self.workers[at].done(&mut self.pool);
        let ends = &mut self.ends[at];
        while let Some((interface, packet)) = ends.punts.pop() {
            self.punts.push((interface, packet.to_vec()));
        }
        while let Ok(event) = ends.events.pop() {
            self.events.push(event);
        }
        sent
    }

    /// The law, at every instant that a test looks, per worker and in total.
    #[track_caller]
    pub fn balanced(&mut self) {
        for (at, worker) in self.workers.iter_mut().enumerate() {
            let accounts = worker.accounts();
            assert_eq!(accounts.balance(), 0, "worker {at}: {accounts:?}");
        }
    }

    pub fn drops(&mut self, reason: Reason) -> u64 {
        self.workers.iter_mut().map(|w| w.accounts().drops[reason as usize]).sum()
    }

    /// Drops since the last time this was asked.
    pub fn new_drops(&mut self) -> Vec<(Reason, u64)> {
        let mut new = vec![];
        for row in REASONS {
            let count = self.drops(row.reason);
            let before = std::mem::replace(&mut self.before[row.reason as usize], count);
            if count > before {
                new.push((row.reason, count - before));
            }
        }
        new
    }

    pub fn held(&mut self) -> u64 {
        self.workers.iter_mut().map(|w| w.accounts().held).sum()
    }

    pub fn sessions(&self) -> usize {
        self.workers.iter().map(|w| w.nat().session_count()).sum()
    }

    /// Which addresses the workers asked for since the last time this was asked.
    pub fn asked(&mut self) -> Vec<(u16, IpAddr)> {
        let (asked, rest) = std::mem::take(&mut self.events)
            .into_iter()
            .partition::<Vec<_>, _>(|event| matches!(event, Event::Resolve { .. }));
        self.events = rest;
        asked
            .iter()
            .map(|event| match event {
                Event::Resolve { interface, ip } => (interface.0, *ip),
                _ => unreachable!(),
            })
            .collect()
    }

    /// Takes a changed snapshot into force.
    pub fn reconfigure(&mut self, change: impl FnOnce(&mut Snapshot)) -> Vec<Sent> {
        self.snapshot.generation += 1;
        change(&mut self.snapshot);
        let plan = Arc::new(Plan::new(Arc::new(self.snapshot.clone())));
        for (worker, ends) in self.workers.iter().zip(&mut self.ends) {
            let change = worker.nat().prepare_change(plan.snapshot.nat.clone()).unwrap();
            assert!(ends.commands.push(Command::Prepare { plan: plan.clone(), change }).is_ok());
        }
        let mut sent = self.turn();
        let generation = self.snapshot.generation;
        let ready = |e: &&Event| matches!(e, Event::Prepared { generation: of } if *of == generation);
        assert_eq!(self.events.iter().filter(ready).count(), self.workers.len());
        self.command(|| Command::Commit { generation });
        sent.extend(self.turn());
        sent
    }
}

impl Drop for World {
    /// Nothing is forgotten: after all timeouts nothing is held and every frame is home.
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        self.wait_ms(15_000);
        assert_eq!(self.held(), 0, "packets are still held");
        self.balanced();
        assert_eq!(self.pool.outstanding(), 0, "frames are missing");
        assert_eq!(self.pool.foreign(), 0);
    }
}

/// An IPv4 address of either version.
pub fn v4(text: &str) -> IpAddr {
    IpAddr::V4(text.parse().unwrap())
}

/// The MAC address of a station of the test network.
pub fn mac_of(ip: u32) -> MacAddr {
    let [a, b, c, d] = ip.to_be_bytes();
    MacAddr([2, 0xee, a, b, c, d])
}
