//! The control thread: owns the host, empties the workers' mailboxes, answers handles.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use carrack_base::{IfIndex, Now};
use carrack_host::{Host, HostEvent};
use carrack_nat::row::SessionKey;
use carrack_pipeline::mailbox::{Capture, Command, Dump, Event, Trace};
use carrack_pipeline::snapshot::Snapshot;
use rtrb::{Consumer, Producer, RingBuffer};

use crate::apply::PendingApply;
use crate::event_log::AddressEvent;
use crate::links::Link;
use crate::mail::ControlEnds;
use crate::port_control::PortControl;
pub(crate) use crate::request::InForce;
use crate::request::{Reply, Request, RequestError};
use crate::shared::{ControlCounters, EndReason, Shared, WorkerState, lock};
use crate::stats::PortReport;

/// Rows that wait in a dump's ring, per worker: a reader that stops reading stops the walk after so many.
const ROWS_RING: usize = 512;
/// Captured packets that wait, per worker.
const CAPTURE_RING: usize = 1_024;
/// Trace steps that wait, per worker.
const TRACE_RING: usize = 1_024;
/// Commands kept for a worker whose ring is full. Above half of it the host is not fed any more.
const BACKLOG_MAX: usize = 65_536;
/// Session keys in one command.
const DELETE_KEYS_MAX: usize = 1_024;
/// Events and punted packets taken from one worker in one turn.
const EVENTS_PER_TURN: usize = 1_024;
const PUNTS_PER_TURN: usize = 256;
/// Longest rest between two turns.
const REST: Duration = Duration::from_millis(1);
/// How long workers may take to answer.
pub(crate) const ANSWER_NS: u64 = 10_000_000_000;
/// Time between two looks at the counters of ports that the control thread watches.
const WATCH_NS: u64 = 250_000_000;
/// How long nothing may move until a run over files counts as over.
const QUIET_NS: u64 = 300_000_000;

/// Looks at a port from outside its worker; `None` when it is gone.
pub type PortWatcher = Box<dyn FnMut() -> Option<PortReport> + Send>;

/// Tells input that paces itself the time, and says whether all of it has been read.
pub type InputProgress = Box<dyn FnMut(Duration) -> bool + Send>;

/// Everything the control thread owns.
pub(crate) struct Control {
    pub host: Host,
    pub port_control: PortControl,
    pub in_force: InForce,
    pub ends: Vec<ControlEnds>,
    pub requests: Receiver<Request>,
    pub shared: Arc<Shared>,
    pub watchers: Vec<(usize, PortWatcher)>,
    pub input: Option<InputProgress>,
    pub exit_when_idle: bool,
    pub state: ControlState,
}

/// What is under way.
#[derive(Default)]
pub(crate) struct ControlState {
    backlog: Vec<VecDeque<Command>>,
    counters: ControlCounters,
    /// Which version of the own IPv6 addresses others can see.
    own6_version: u64,
    next_request: u64,
    deletes: BTreeMap<u64, PendingDelete>,
    pub(crate) apply: Option<PendingApply>,
    /// Workers that a reload waits for no more: the generation, and who.
    pub(crate) late: Vec<(u64, usize)>,
    watched: Now,
    /// By port.
    pub(crate) links: Vec<Link>,
    quiet: Option<(u64, Now)>,
}

struct PendingDelete {
    answers: usize,
    count: u64,
    deadline: Now,
    reply: Reply<u64>,
}

impl Control {
    /// Runs until the daemon stops.
    pub(crate) fn run(mut self) {
        self.state.backlog = self.ends.iter().map(|_| VecDeque::new()).collect();
        while !self.shared.stopping() {
            let now = self.shared.clock.now();
            let busy = self.turn(now);
            let wait = if busy { Duration::ZERO } else { self.rest(now) };
            match self.requests.recv_timeout(wait) {
                Ok(request) => self.handle_request(now, request),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(wait),
            }
        }
        self.port_control.finish();
    }

    /// One turn; says whether there was something to do.
    fn turn(&mut self, now: Now) -> bool {
        self.flush_backlog();
        let mut busy = false;
        for worker in 0..self.ends.len() {
            busy |= self.take_events(now, worker);
            busy |= self.take_punts(now, worker);
        }
        self.host.handle_timeout(now);
        busy |= self.drain_host();
        self.port_control.server.handle_timeout(now);
        busy |= self.drain_port_control();
        self.port_control.keep(now);
        self.watch_ports(now);
        self.watch_workers();
        self.expire(now);
        self.watch_input(now);
        self.state.counters.host = *self.host.counters();
        self.state.counters.port_control = *self.port_control.server.counters();
        *lock(&self.shared.host) = self.state.counters;
        self.publish_own6();
        busy
    }

    /// Lets others see what has become of own IPv6 addresses.
    fn publish_own6(&mut self) {
        let version = self.host.own6_version();
        if std::mem::replace(&mut self.state.own6_version, version) != version {
            *lock(&self.shared.own6) = self.host.own6().collect();
        }
    }

    fn rest(&self, now: Now) -> Duration {
        let next = [self.host.poll_timeout(), self.port_control.server.poll_timeout(now)];
        let next = next.into_iter().flatten().min();
        next.map_or(REST, |due| Duration::from_nanos(due.ns.saturating_sub(now.ns)).min(REST))
    }

    fn take_events(&mut self, now: Now, worker: usize) -> bool {
        for taken in 0..EVENTS_PER_TURN {
            let Some(Ok(event)) = self.ends.get_mut(worker).map(|ends| ends.events.pop()) else {
                return taken > 0;
            };
            match event {
                Event::Resolve { interface, ip } => {
                    self.host.handle_resolve(now, interface, ip);
                    self.drain_host();
                }
                Event::Deleted { request, count } => self.deleted(request, count),
                Event::Preparing { generation } => self.preparing(now, generation),
                Event::Prepared { generation } => self.prepared(now, worker, generation),
                Event::Controlled { request, answer } => {
                    self.port_control.server.handle_answer(now, request, answer);
                    self.drain_port_control();
                }
                Event::Reconfigured { generation, sessions_ended } => {
                    self.reconfigured(worker, generation, sessions_ended);
                }
                // Freed here, away from the packet path.
                Event::Retired { plan, change } => drop((plan, change)),
            }
        }
        true
    }

    fn take_punts(&mut self, now: Now, worker: usize) -> bool {
        for taken in 0..PUNTS_PER_TURN {
            if self.state.backlog.iter().any(|waiting| waiting.len() > BACKLOG_MAX / 2) {
                return false;
            }
            let next = self.ends.get_mut(worker).and_then(|ends| ends.punts.pop());
            let Some((interface, packet)) = next else { return taken > 0 };
            self.state.counters.punts_handled += 1;
            if self.port_control.server.handle_packet(now, interface, packet) {
                self.drain_port_control();
            } else {
                self.host.handle_packet(now, interface, packet);
                self.drain_host();
            }
        }
        true
    }

    /// Carries out what the host wants.
    pub(crate) fn drain_host(&mut self) -> bool {
        let mut busy = false;
        while let Some(event) = self.host.poll_event() {
            busy = true;
            self.host_event(event);
        }
        while let Some((interface, frame)) = self.host.poll_transmit() {
            busy = true;
            self.transmit(interface, &frame);
        }
        busy
    }

    /// Puts questions about mappings to the workers, of whom one has the host, and sends answers to hosts.
    pub(crate) fn drain_port_control(&mut self) -> bool {
        let mut busy = false;
        while let Some((request, ask)) = self.port_control.server.poll_ask() {
            busy = true;
            self.broadcast(|| Command::Control { request, ask });
        }
        while let Some((interface, frame)) = self.port_control.server.poll_transmit() {
            busy = true;
            self.transmit(interface, &frame);
        }
        busy
    }

    fn host_event(&mut self, event: HostEvent) {
        match event {
            HostEvent::NeighbourSet { interface, ip, mac } => {
                self.broadcast(|| Command::SetNeighbour { interface, ip, mac });
            }
            HostEvent::NeighbourGone { interface, ip } => {
                self.broadcast(|| Command::DropNeighbour { interface, ip });
            }
            HostEvent::AddressDuplicate { interface, ip, mac } => {
                let ip = ip.into();
                let name = self.address_event(AddressEvent { interface, ip, mac, is_unused: true });
                tracing::warn!(
                    "{mac} on interface {name} has {ip} already, so it is not used here; give one of the two another \
                     address, then `carrack reload` tries again"
                );
            }
            HostEvent::AddressConflict { interface, ip, mac } => {
                let name = self.address_event(AddressEvent { interface, ip, mac, is_unused: false });
                tracing::warn!(
                    "{mac} on interface {name} uses {ip}, which is ours; give one of the two another address"
                );
            }
        }
    }

    /// Keeps the event for whoever asks; returns the interface's name.
    fn address_event(&self, event: AddressEvent) -> String {
        let at_ns = self.shared.clock.now().ns;
        self.shared.events.push_address(at_ns, self.shared.clock.unix_ns(at_ns), event);
        interface_name(&lock(&self.shared.snapshot), event.interface)
    }

    /// Worker 0 sends for the host: it has a queue of every port.
    fn transmit(&mut self, interface: IfIndex, frame: &[u8]) {
        let sent = self.ends.first_mut().is_some_and(|ends| ends.host_tx.push(interface, frame));
        if !sent {
            self.state.counters.host_tx_full += 1;
        }
    }

    pub(crate) fn broadcast(&mut self, command: impl Fn() -> Command) {
        for worker in 0..self.ends.len() {
            self.command(worker, command());
        }
    }

    /// Sends a command in order, now or when the ring has room. False when far too many wait.
    pub(crate) fn command(&mut self, worker: usize, command: Command) -> bool {
        let (Some(ends), Some(backlog)) = (self.ends.get_mut(worker), self.state.backlog.get_mut(worker))
        else {
            return false;
        };
        if backlog.len() >= BACKLOG_MAX {
            tracing::error!("worker {worker} takes no commands; {BACKLOG_MAX} wait and one more is lost");
            return false;
        }
        backlog.push_back(command);
        push_waiting(backlog, &mut ends.commands);
        true
    }

    fn flush_backlog(&mut self) {
        for (ends, backlog) in self.ends.iter_mut().zip(&mut self.state.backlog) {
            push_waiting(backlog, &mut ends.commands);
        }
    }

    fn handle_request(&mut self, now: Now, request: Request) {
        match request {
            Request::Dump { spec, reply } => {
                let rings = self.open_rings(ROWS_RING, |rows| {
                    let (table, filter) = (spec.table, spec.filter);
                    Command::Dump(Dump { table, filter, delete: spec.delete, rows_max: spec.rows_max, rows })
                });
                let _ = reply.send(rings);
            }
            Request::Capture { spec, reply } => {
                let rings = self.open_rings(CAPTURE_RING, |slots| {
                    let (filter, packets_max) = (spec.filter, spec.packets_max);
                    let (rx, tx, drops) = (spec.rx, spec.tx, spec.drops);
                    Command::Capture(Capture { filter, rx, tx, drops, packets_max, slots, lost: 0 })
                });
                let _ = reply.send(rings);
            }
            Request::Trace { spec, reply } => {
                let rings = self.open_rings(TRACE_RING, |steps| {
                    let (filter, packets_max) = (spec.filter, spec.packets_max);
                    Command::Trace(Trace { filter, packets_max, steps })
                });
                let _ = reply.send(rings);
            }
            Request::Delete { keys, reply } => self.start_delete(now, &keys, reply),
            Request::Neighbours { reply } => {
                let _ = reply.send(Ok(self.host.neighbours(now).collect()));
            }
            Request::PortMappings { reply } => {
                let _ = reply.send(Ok(self.port_control.server.mappings(now).collect()));
            }
            Request::ClearPortMappings { inside, reply } => {
                let count = self.port_control.server.clear(now, inside);
                self.drain_port_control();
                let _ = reply.send(Ok(count as u64));
            }
            Request::Apply { new, changes, reply } => self.start_apply(now, *new, changes, reply),
        }
    }

    /// One ring to each worker, its producer inside a command.
    fn open_rings<T>(
        &mut self,
        depth: usize,
        command: impl Fn(Producer<T>) -> Command,
    ) -> Result<Vec<Consumer<T>>, RequestError> {
        let mut rings = Vec::with_capacity(self.ends.len());
        for worker in 0..self.ends.len() {
            let (producer, consumer) = RingBuffer::new(depth);
            if !self.command(worker, command(producer)) {
                return Err(RequestError::Busy(format!("worker {worker} is overloaded; try again later")));
            }
            rings.push(consumer);
        }
        Ok(rings)
    }

    /// No one but its worker knows where a session lives, so each worker looks for every key.
    fn start_delete(&mut self, now: Now, keys: &[SessionKey], reply: Reply<u64>) {
        let request = self.state.next_request;
        self.state.next_request += 1;
        let mut answers = 0;
        for chunk in keys.chunks(DELETE_KEYS_MAX) {
            for worker in 0..self.ends.len() {
                let sent = self.command(worker, Command::Delete { request, keys: chunk.to_vec() });
                answers += usize::from(sent);
            }
        }
        if answers == 0 {
            let _ = reply.send(Ok(0));
            return;
        }
        let deadline = now.plus_ns(ANSWER_NS);
        self.state.deletes.insert(request, PendingDelete { answers, count: 0, deadline, reply });
    }

    fn deleted(&mut self, request: u64, count: u64) {
        let Some(pending) = self.state.deletes.get_mut(&request) else { return };
        pending.count += count;
        pending.answers = pending.answers.saturating_sub(1);
        if pending.answers > 0 {
            return;
        }
        if let Some(done) = self.state.deletes.remove(&request) {
            let _ = done.reply.send(Ok(done.count));
        }
    }

    /// Gives up on answers that do not come.
    fn expire(&mut self, now: Now) {
        self.expire_apply(now);
        let late: Vec<u64> =
            self.state.deletes.iter().filter(|(_, d)| d.deadline <= now).map(|(id, _)| *id).collect();
        for id in late {
            if let Some(late) = self.state.deletes.remove(&id) {
                let error = format!(
                    "not all workers answered in time; {} sessions are deleted so far: look at `show workers`",
                    late.count
                );
                let _ = late.reply.send(Err(RequestError::Timeout(error)));
            }
        }
    }

    fn watch_ports(&mut self, now: Now) {
        if now.ns.saturating_sub(self.state.watched.ns) < WATCH_NS {
            return;
        }
        self.state.watched = now;
        let mut words = Vec::with_capacity(PortReport::WORDS);
        for (port, watcher) in &mut self.watchers {
            let (Some(report), Some(board)) = (watcher(), self.shared.port_board(*port)) else { continue };
            words.clear();
            report.write(&mut words);
            board.publish(&words);
        }
        self.watch_links();
    }

    fn watch_workers(&self) {
        let dead = (0..self.shared.workers()).find(|w| self.shared.worker_state(*w) == WorkerState::Panicked);
        if let Some(worker) = dead {
            let why =
                format!("worker {worker} died of a defect in the program; its message is in the log above");
            tracing::error!("{why}");
            self.shared.stop(EndReason::Failed(why));
        }
    }

    /// Ends a run over files once all input is read and nothing moves any more.
    fn watch_input(&mut self, now: Now) {
        let Some(input) = &mut self.input else { return };
        let read = input(self.shared.clock.uptime());
        if !self.exit_when_idle {
            return;
        }
        let fingerprint = (0..self.shared.workers())
            .filter_map(|worker| self.shared.worker_board(worker))
            .map(|board| board.read().iter().take(crate::stats::ACCOUNTS_WORDS).fold(0, mix))
            .fold(0, |all, one| mix(all, &one));
        match self.state.quiet {
            Some((same, since)) if read && same == fingerprint => {
                if now.ns.saturating_sub(since.ns) >= QUIET_NS {
                    self.shared.stop(EndReason::Idle);
                }
            }
            _ => self.state.quiet = Some((fingerprint, now)),
        }
    }
}

fn mix(all: u64, word: &u64) -> u64 {
    (all.rotate_left(7) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn push_waiting(backlog: &mut VecDeque<Command>, ring: &mut Producer<Command>) {
    while !ring.is_full() {
        let Some(command) = backlog.pop_front() else { return };
        // Invariant: this is the ring's only producer and it has room.
        let _ = ring.push(command);
    }
}

fn interface_name(snapshot: &Snapshot, interface: IfIndex) -> String {
    let found = snapshot.interfaces.get(interface.index()).and_then(Option::as_ref);
    found.map_or_else(|| interface.to_string(), |interface| interface.name.clone())
}
