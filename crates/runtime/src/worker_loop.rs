//! A worker's thread: receive, process, send, once around and again.

use std::sync::Arc;
use std::time::Duration;

use carrack_base::counters::Accounts;
use carrack_base::{BURST_PACKETS_MAX, Now, PortId};
use carrack_frame::{Frame, FramePool};
use carrack_io::PacketIo;
use rtrb::{Consumer, Producer};

use crate::clock::Clock;
use crate::shared::{Shared, WorkerState};
use crate::stats::{LoopStats, PortReport, write_accounts};

/// What the loop asks of the data plane: the verbs of the pipeline's worker.
pub(crate) trait DataPlane {
    /// Where received frames go: empty, with room for a burst.
    fn rx_buffer(&mut self) -> &mut Vec<Frame>;
    /// Runs the received frames through all stages.
    fn process(&mut self, now: Now, port: PortId, pool: &mut dyn FramePool);
    /// Does what is due besides packets.
    fn background(&mut self, now: Now, pool: &mut dyn FramePool);
    /// Frames to be sent on a port.
    fn tx(&mut self, port: PortId) -> Option<&mut Vec<Frame>>;
    /// Drops and counts what the port did not take.
    fn tx_failed(&mut self, port: PortId, now: Now);
    /// Frees what was dropped.
    fn done(&mut self, pool: &mut dyn FramePool);
    /// Is something under way that goes on a little each turn?
    fn goes_on(&self) -> bool;
    /// Where the packets went.
    fn accounts(&mut self) -> &Accounts;
    /// Appends the stages' numbers; always as many.
    fn write_stats(&mut self, out: &mut Vec<u64>);
}

/// What a worker does when there is nothing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Idle {
    /// Look again at once: lowest delay, a whole core.
    Poll,
    /// Sleep, longer and longer up to half a millisecond.
    #[default]
    Sleep,
}

/// Turns without work after which a worker begins to sleep.
const LOOPS_BEFORE_SLEEP: u32 = 200;
/// Turns without packets, but with other work that goes on, after which a worker rests for a moment.
const LOOPS_BEFORE_REST: u64 = 64;
const SLEEP_FIRST: Duration = Duration::from_micros(50);
const SLEEP_MAX: Duration = Duration::from_micros(500);
/// Most time between two publications of a busy worker.
const PUBLISH_NS: u64 = 1_000_000;
/// Time between two looks at a port's counters, which may cost a system call: a busy worker looks seldom.
const PORT_BUSY_NS: u64 = 1_000_000_000;
const PORT_IDLE_NS: u64 = 100_000_000;

/// How a worker reaches one port.
pub(crate) enum PortAccess {
    /// It has a queue pair of its own; `others` have none and pass their frames here to be sent.
    Queue { io: Box<dyn PacketIo>, others: Vec<Consumer<Frame>>, passed: Vec<Frame>, reports: bool },
    /// Another worker polls the port and sends what is passed to it.
    Relay(Producer<Frame>),
}

impl PortAccess {
    pub(crate) fn queue(io: Box<dyn PacketIo>, others: Vec<Consumer<Frame>>, reports: bool) -> Self {
        Self::Queue { io, others, passed: Vec::with_capacity(BURST_PACKETS_MAX), reports }
    }
}

/// Everything one worker's thread owns.
pub(crate) struct WorkerLoop<W> {
    pub worker: W,
    pub index: usize,
    pub pool: Box<dyn FramePool>,
    pub ports: Vec<PortAccess>,
    pub clock: Clock,
    pub idle: Idle,
    /// Most packets taken from a port at once.
    pub burst: usize,
    pub shared: Arc<Shared>,
}

struct Turn {
    stats: LoopStats,
    scratch: Vec<u64>,
    published: Now,
    ports_published: Now,
    idle_loops: u32,
    sleep: Duration,
    /// What the accounts summed up to when they were last looked at.
    progress: u64,
}

impl<W: DataPlane> WorkerLoop<W> {
    /// Runs until the daemon stops.
    pub(crate) fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        let _ended = Ended { shared: &shared, index: self.index };
        let mut turn = Turn {
            stats: LoopStats::default(),
            scratch: Vec::with_capacity(self.shared.board_words()),
            published: Now::default(),
            ports_published: Now::default(),
            idle_loops: 0,
            sleep: SLEEP_FIRST,
            progress: 0,
        };
        let mut now = self.clock.now();
        self.publish_ports(&mut turn);
        while !self.shared.stopping() {
            // Commands first: a capture that was asked for sees every packet that comes after the asking.
            self.worker.background(now, &mut *self.pool);
            let received = self.receive(now);
            self.send_all(now);
            self.worker.done(&mut *self.pool);
            let accounts = self.worker.accounts();
            let progress = accounts.rx + accounts.handed_in + accounts.originated;
            let busy = received > 0 || progress != turn.progress;
            turn.progress = progress;
            self.settle(&mut turn, now, busy);
            let after = self.clock.now();
            let spent = after.ns.saturating_sub(now.ns);
            turn.stats.loops += 1;
            if busy {
                turn.stats.busy_ns += spent;
            } else {
                turn.stats.loops_idle += 1;
                turn.stats.idle_ns += spent;
            }
            now = after;
        }
        self.send_all(now);
        self.worker.done(&mut *self.pool);
        self.publish(&mut turn);
        self.publish_ports(&mut turn);
    }

    fn receive(&mut self, now: Now) -> usize {
        let mut total = 0;
        for index in 0..self.ports.len() {
            let Some(PortAccess::Queue { io, .. }) = self.ports.get_mut(index) else { continue };
            let buffer = self.worker.rx_buffer();
            let received = io.rx_burst(buffer, self.burst);
            if received > 0 {
                total += received;
                self.worker.process(now, PortId(index as u16), &mut *self.pool);
                self.send_all(now);
            }
        }
        total
    }

    /// Sends what waits for every port; what a port does not take at the second try is dropped and counted.
    fn send_all(&mut self, now: Now) {
        for (index, access) in self.ports.iter_mut().enumerate() {
            let port = PortId(index as u16);
            if let PortAccess::Queue { io, others, passed, .. } = access {
                pass_on(io, others, passed);
            }
            let Some(frames) = self.worker.tx(port).filter(|frames| !frames.is_empty()) else { continue };
            match access {
                PortAccess::Queue { io, .. } => {
                    io.tx_burst(frames);
                    if !frames.is_empty() {
                        io.tx_burst(frames);
                    }
                }
                PortAccess::Relay(ring) => {
                    let room = frames.len().min(ring.slots());
                    for frame in frames.drain(..room) {
                        // Invariant: this is the ring's only producer, so the slots counted above are free.
                        let _ = ring.push(frame);
                    }
                }
            }
            if !frames.is_empty() {
                self.worker.tx_failed(port, now);
            }
        }
    }

    /// Publishes when it is time, and rests when there was nothing to do.
    fn settle(&mut self, turn: &mut Turn, now: Now, busy: bool) {
        let became_idle = !busy && turn.idle_loops == 0;
        let due = now.ns.saturating_sub(turn.published.ns) >= PUBLISH_NS;
        if became_idle || due {
            turn.published = now;
            self.publish(turn);
        }
        let port_ns = if busy { PORT_BUSY_NS } else { PORT_IDLE_NS };
        if now.ns.saturating_sub(turn.ports_published.ns) >= port_ns {
            turn.ports_published = now;
            self.publish_ports(turn);
        }
        if busy {
            turn.idle_loops = 0;
            turn.sleep = SLEEP_FIRST;
            return;
        }
        turn.idle_loops = turn.idle_loops.saturating_add(1);
        if self.idle == Idle::Poll || turn.idle_loops < LOOPS_BEFORE_SLEEP {
            std::hint::spin_loop();
        } else if self.shared.streams_open() || self.worker.goes_on() {
            // Table walks and deletions go on a little each turn: a sleep after each would make them crawl. No yield instead: with a
            // worker in a tight loop of those, kernel threads were seen to wait minutes for its processor (Linux 6.18; its commit
            // 79104becf42b tells of the like).
            if turn.stats.loops_idle.is_multiple_of(LOOPS_BEFORE_REST) {
                turn.stats.sleeps += 1;
                std::thread::sleep(SLEEP_FIRST);
            } else {
                std::hint::spin_loop();
            }
        } else {
            turn.stats.sleeps += 1;
            std::thread::sleep(turn.sleep);
            turn.sleep = (turn.sleep * 2).min(SLEEP_MAX);
        }
    }

    /// Publishes accounts and stats. Called between bursts only, where every packet is accounted for.
    fn publish(&mut self, turn: &mut Turn) {
        turn.scratch.clear();
        write_accounts(self.worker.accounts(), &mut turn.scratch);
        turn.stats.write(&mut turn.scratch);
        self.worker.write_stats(&mut turn.scratch);
        if let Some(board) = self.shared.worker_board(self.index) {
            board.publish(&turn.scratch);
        }
    }

    fn publish_ports(&self, turn: &mut Turn) {
        for (index, access) in self.ports.iter().enumerate() {
            let PortAccess::Queue { io, reports: true, .. } = access else { continue };
            turn.scratch.clear();
            PortReport { link: io.link(), stats: io.stats() }.write(&mut turn.scratch);
            if let Some(board) = self.shared.port_board(index) {
                board.publish(&turn.scratch);
            }
        }
    }
}

/// Sends what other workers passed here. What the port does not take waits for the next turn; the ring behind it then
/// fills, and its worker counts the drop.
pub(crate) fn pass_on(io: &mut Box<dyn PacketIo>, others: &mut [Consumer<Frame>], passed: &mut Vec<Frame>) {
    for ring in others.iter_mut() {
        while passed.len() < BURST_PACKETS_MAX {
            let Ok(frame) = ring.pop() else { break };
            passed.push(frame);
        }
        if !passed.is_empty() {
            io.tx_burst(passed);
        }
    }
}

/// Says that a worker's thread has ended, also when it ends by a panic.
struct Ended<'a> {
    shared: &'a Shared,
    index: usize,
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        let state = if std::thread::panicking() { WorkerState::Panicked } else { WorkerState::Ended };
        self.shared.set_worker_state(self.index, state);
    }
}
