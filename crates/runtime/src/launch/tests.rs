//! The threads with a stand-in data plane, so that each rule of the loop can be seen alone.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use carrack_base::WorkerId;
use carrack_base::counters::Accounts;
use carrack_base::{IfIndex, InstanceId, PortId, Prefix4, Proto, Reason, VrfId};
use carrack_frame::MemPool;
use carrack_host::HostInterface;
use carrack_io::{MemPeer, MemPort};
use carrack_nat::policy::{Capacity, NatPolicy};
use carrack_nat::row::{Endpoint, Filter, NatEvent, SessionKey, SessionRow, TcpState};
use carrack_nat::{Change, WorkerGroup};
use carrack_pipeline::mailbox::{Command, Dump, Event, Row};
use carrack_pipeline::snapshot::{IcmpErrors, Policers, Port, Snapshot, Vlan};
use carrack_tables::PagePreference;
use carrack_wire::MacAddr;
use carrack_wire::arp::{ArpPacket, Operation};

use super::*;
use crate::handle::WorkerReport;
use crate::request::{InForce, Request, RequestError};
use crate::shared::WorkerState;
use crate::stream::Next;

const SESSIONS: u64 = 5_000;
const OWN: u32 = 0x0a00_0001;
const PEER: u32 = 0x0a00_0002;
const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 0]);
const PEER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x99]);

/// Passes ARP up, sends everything else out of the other port, walks a table of numbers.
struct StandIn {
    index: usize,
    ends: WorkerEnds,
    rx: Vec<Frame>,
    tx: Vec<Vec<Frame>>,
    dead: Vec<Frame>,
    accounts: Accounts,
    dump: Option<(Dump, u64)>,
    walked: u64,
    generation: u64,
    next: Option<(Arc<Plan>, Box<Change>)>,
    slow: Option<u64>,
    abandoned: u64,
}

impl StandIn {
    fn new(index: usize, ends: WorkerEnds) -> Self {
        let tx = (0..2).map(|_| Vec::with_capacity(BURST_PACKETS_MAX)).collect();
        let rx = Vec::with_capacity(BURST_PACKETS_MAX);
        Self {
            index,
            ends,
            rx,
            tx,
            dead: Vec::new(),
            accounts: Accounts::default(),
            dump: None,
            walked: 0,
            generation: 1,
            next: None,
            slow: None,
            abandoned: 0,
        }
    }

    fn changed_over(&mut self, generation: u64) {
        self.generation = generation;
        self.ends.events.push(Event::Reconfigured { generation, sessions_ended: 3 }).ok().unwrap();
    }

    fn command(&mut self, command: Command) {
        if let Some(generation) = self.slow.take() {
            self.changed_over(generation);
        }
        match command {
            Command::Dump(dump) => self.dump = Some((dump, 0)),
            Command::Delete { request, keys } => {
                let count = if self.index == 0 { keys.len() as u64 } else { 0 };
                self.ends.events.push(Event::Deleted { request, count }).unwrap();
            }
            Command::Prepare { plan, change } => {
                let generation = plan.snapshot.generation;
                assert_ne!(generation, 666, "told to die");
                // One that stands still before it is ready, for ever.
                if generation != 13 || self.index != 1 {
                    self.ends.events.push(Event::Prepared { generation }).ok().unwrap();
                }
                self.next = Some((plan, change));
            }
            Command::Commit { generation } => {
                let (plan, change) = self.next.take().unwrap();
                assert_eq!(plan.snapshot.generation, generation);
                // One that stands still after it was told to change over, until the next command.
                if generation == 14 && self.index == 1 {
                    self.slow = Some(generation);
                    return;
                }
                self.changed_over(generation);
                self.ends.events.push(Event::Retired { plan, change: Some(change) }).ok().unwrap();
            }
            Command::Abandon { generation } => {
                let (plan, change) = self.next.take().unwrap();
                assert_eq!(plan.snapshot.generation, generation);
                self.abandoned += 1;
                self.ends.events.push(Event::Retired { plan, change: Some(change) }).ok().unwrap();
            }
            _ => {}
        }
    }

    /// A few rows a turn; a full ring pauses the walk.
    fn walk(&mut self) {
        let Some((dump, next)) = &mut self.dump else { return };
        for _ in 0..64 {
            if dump.rows.is_abandoned() || *next >= SESSIONS {
                self.dump = None;
                return;
            }
            if dump.rows.push(Row::Session(session(*next as u16))).is_err() {
                return;
            }
            *next += 1;
            self.walked += 1;
        }
    }
}

impl DataPlane for StandIn {
    fn rx_buffer(&mut self) -> &mut Vec<Frame> {
        &mut self.rx
    }

    fn process(&mut self, _now: Now, port: PortId, pool: &mut dyn FramePool) {
        for frame in self.rx.drain(..) {
            self.accounts.rx += 1;
            if frame.bytes().get(12..14) == Some(&[8, 6]) {
                assert!(self.ends.punts.push(IfIndex(port.0), frame.bytes()));
                self.accounts.punted += 1;
                pool.free(frame);
                continue;
            }
            self.accounts.forwarded += 1;
            self.tx[1 - port.index()].push(frame);
        }
    }

    fn background(&mut self, _now: Now, pool: &mut dyn FramePool) {
        while let Ok(command) = self.ends.commands.pop() {
            self.command(command);
        }
        while let Some((interface, packet)) = self.ends.host_tx.pop() {
            let mut frame = pool.alloc().unwrap();
            assert!(frame.set_bytes(packet));
            self.accounts.originated += 1;
            self.accounts.forwarded += 1;
            self.tx[interface.index()].push(frame);
        }
        self.walk();
    }

    fn tx(&mut self, port: PortId) -> Option<&mut Vec<Frame>> {
        self.tx.get_mut(port.index())
    }

    fn tx_failed(&mut self, port: PortId, _: Now) {
        let frames = &mut self.tx[port.index()];
        self.accounts.forwarded -= frames.len() as u64;
        self.accounts.drop_n(Reason::TxQueueFull, frames.len() as u64);
        self.dead.append(frames);
    }

    fn done(&mut self, pool: &mut dyn FramePool) {
        pool.free_all(&mut self.dead);
    }

    fn goes_on(&self) -> bool {
        false
    }

    fn accounts(&mut self) -> &Accounts {
        &self.accounts
    }

    fn write_stats(&mut self, out: &mut Vec<u64>) {
        // In the places of bursts, packets and so on.
        out.extend_from_slice(&[self.walked, self.generation, self.abandoned]);
    }
}

fn session(port: u16) -> SessionRow {
    let endpoint = |ip| Endpoint { ip, port };
    SessionRow {
        instance: InstanceId(0),
        proto: Proto::Udp,
        ip_proto: 17,
        tcp: TcpState::None,
        inbound: false,
        inside: endpoint(1).into(),
        outside: endpoint(2),
        remote: endpoint(3),
        remote6: None,
        idle_s: 0,
        expires_s: 0,
        packets_out: 0,
        packets_in: 0,
    }
}

fn plan(generation: u64) -> Arc<Plan> {
    let port = |n: u16| Port { id: PortId(n), name: format!("p{n}"), mac: MAC };
    Arc::new(Plan::new(Arc::new(Snapshot {
        generation,
        ports: vec![port(0), port(1)],
        interfaces: Vec::new(),
        vrfs: vec!["default".into()],
        routes: Vec::new(),
        routes6: vec![],
        policers: Policers::default(),
        fragment_timeout_ms: 2_000,
        siit: vec![],
        nat: Arc::new(NatPolicy::default()),
    })))
}

fn in_force(generation: u64) -> Box<InForce> {
    Box::new(InForce { plan: plan(generation), host: host(), port_control: Default::default() })
}

fn changes(workers: u8) -> Vec<Box<Change>> {
    let group = WorkerGroup::new(workers, [1, 2, 3, 4]);
    let (sizes, pages) = (Capacity::default(), PagePreference::Small);
    let none = NatPolicy::default();
    let change = |at| Change::prepare(WorkerId(at), &group, sizes, pages, &none, Arc::new(none.clone()));
    (0..workers).map(|at| change(at).unwrap()).collect()
}

fn apply(handle: &Handle, generation: u64) -> Result<crate::request::Applied, RequestError> {
    let wait = Duration::from_secs(60);
    handle.ask_within(wait, |reply| Request::Apply { new: in_force(generation), changes: changes(2), reply })
}

fn host() -> HostConfig {
    let lan = HostInterface {
        id: IfIndex(0),
        name: "lan".into(),
        vrf: VrfId(0),
        mac: MAC,
        vlan: Vlan::None,
        mtu: 1_500,
        icmp_errors: IcmpErrors::All,
        addresses: vec![(OWN, Prefix4::of(OWN, 24))],
        ipv6: None,
        advertising: None,
        proxy: Vec::new(),
    };
    HostConfig { interfaces: vec![lan], neighbours_max: 100, ..HostConfig::default() }
}

struct Rig {
    threads: Threads,
    peers: Vec<MemPeer>,
    pool: MemPool,
}

/// Two ports with one queue each, and `workers` workers.
fn rig(workers: usize, depth: usize) -> Rig {
    let pool = MemPool::new(4_096, 2_048, 128);
    let mut peers = Vec::new();
    let ports = (0..2).map(|n| {
        let (port, peer) = MemPort::with_peer(&format!("p{n}"), n, depth);
        peers.push(peer);
        PortSetup { queues: vec![Box::new(port)], watcher: None }
    });
    let setup = Setup {
        plan: plan(1),
        host: host(),
        port_control: Default::default(),
        ports: ports.collect(),
        workers: (0..workers).map(|_| WorkerSetup { core: None, pool: Box::new(pool.handle(256)) }).collect(),
        control_cores: Vec::new(),
        idle: Idle::Sleep,
        burst: 64,
        input: None,
        exit_when_idle: false,
        thread_hook: None,
        sink: None,
    };
    let threads = launch(setup, 3, |index, ends, _| Ok(StandIn::new(index, ends))).unwrap();
    Rig { threads, peers, pool }
}

impl Rig {
    /// The next packets that leave by `port`; waits until one does and passes `wanted`.
    fn await_packet(&mut self, port: usize, wanted: impl Fn(&[u8]) -> bool) -> Vec<u8> {
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline {
            let packets = self.peers[port].collect_bytes(&mut self.pool);
            if let Some(packet) = packets.into_iter().find(|packet| wanted(packet)) {
                return packet;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("no such packet left by port {port}");
    }
}

fn eventually(what: &str, mut test: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !test() {
        assert!(Instant::now() < deadline, "{what} never happened");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn who_has_the_router() -> Vec<u8> {
    let mut frame = [&[0xff; 6][..], &PEER_MAC.0, &[8, 6]].concat();
    frame.extend_from_slice(&ArpPacket::request(PEER_MAC, PEER, OWN).to_bytes());
    frame
}

#[test]
fn arp_goes_up_to_the_host_and_its_answer_comes_down() {
    let mut rig = rig(1, 256);
    assert!(rig.peers[0].inject_bytes(&mut rig.pool, &who_has_the_router()));
    let answer = rig.await_packet(0, |packet| {
        ArpPacket::parse(&packet[14..]).is_ok_and(|arp| arp.operation == Operation::Reply)
    });
    assert_eq!(answer[..6], PEER_MAC.0);
    let neighbours = rig.threads.handle.neighbours().unwrap();
    assert_eq!(
        (neighbours[0].ip, neighbours[0].mac),
        (std::net::Ipv4Addr::from(PEER).into(), Some(PEER_MAC))
    );
    eventually("the host's count", || rig.threads.handle.counters().control.host.arp_answered == 1);
}

#[test]
fn every_packet_is_accounted_for_and_frames_come_home() {
    let mut rig = rig(1, 4_096);
    for n in 0..1_000u32 {
        let packet = [&[2; 12][..], &[8, 0], &n.to_be_bytes(), &[0; 46]].concat();
        assert!(rig.peers[0].inject_bytes(&mut rig.pool, &packet));
    }
    let handle = rig.threads.handle.clone();
    eventually("forwarding", || {
        let counters = handle.counters();
        assert_eq!(counters.balance, 0);
        counters.total.rx == 1_000
    });
    assert_eq!(rig.peers[1].drain(&mut rig.pool), 1_000);
    eventually("the port's report", || handle.counters().ports[0].report.stats.rx_packets == 1_000);
    assert!(handle.workers()[0].loops.busy_ns > 0);
    rig.threads.stop();
    rig.peers[0].drain(&mut rig.pool);
    rig.peers[1].drain(&mut rig.pool);
    assert_eq!(rig.pool.outstanding(), 0);
}

#[test]
fn full_port_drops_under_its_own_reason() {
    let mut rig = rig(1, 64);
    let handle = rig.threads.handle.clone();
    for _ in 0..20 {
        for _ in 0..rig.peers[0].room() {
            rig.peers[0].inject_bytes(&mut rig.pool, &[2; 60]);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    eventually("the drop", || {
        let counters = handle.counters();
        assert_eq!(counters.balance, 0);
        counters.total.drops[Reason::TxQueueFull as usize] > 0
    });
}

#[test]
fn worker_without_a_queue_sends_through_the_one_that_has_it() {
    let mut rig = rig(2, 256);
    // Only worker 0 polls; rows and deletions come from both, packets of worker 1 leave by the relay.
    let reports = rig.threads.handle.workers();
    assert_eq!(reports.len(), 2);
    assert!(rig.peers[0].inject_bytes(&mut rig.pool, &[2; 60]));
    rig.await_packet(1, |packet| packet == [2; 60]);
    let (mut relay, consumer) = RingBuffer::new(8);
    let (port, mut peer) = MemPort::with_peer("p", 0, 8);
    let mut passed = Vec::with_capacity(BURST_PACKETS_MAX);
    relay.push(rig.pool.alloc_copy(&[7; 60]).unwrap()).unwrap();
    let mut io: Box<dyn PacketIo> = Box::new(port);
    crate::worker_loop::pass_on(&mut io, &mut [consumer], &mut passed);
    assert_eq!(peer.collect_bytes(&mut rig.pool), [vec![7; 60]]);
}

#[test]
fn slow_reader_pauses_the_walk_and_gets_every_row_in_the_end() {
    let rig = rig(2, 256);
    let handle = rig.threads.handle.clone();
    let mut rows = handle.sessions(Filter::default(), 0).unwrap();
    let Next::Item(..) = rows.next_timeout(Duration::from_secs(10)) else { panic!("no first row") };
    std::thread::sleep(Duration::from_millis(100));
    let walked = |handle: &Handle| handle.workers().iter().map(|w| w.stats.bursts).collect::<Vec<_>>();
    for walked in walked(&handle) {
        assert!(walked < 600, "the walk went on to {walked} without a reader");
    }
    let mut seen = vec![0u32; SESSIONS as usize];
    seen[0] = 1;
    for (_, row) in rows {
        seen[usize::from(row.inside.port)] += 1;
    }
    assert!(seen.iter().all(|n| *n == 2), "each worker sends each of its rows once");
}

#[test]
fn dropped_or_limited_list_ends_the_walk_and_frees_its_place() {
    let rig = rig(1, 256);
    let handle = rig.threads.handle.clone();
    assert_eq!(handle.sessions(Filter::default(), 10).unwrap().count(), 10);
    for _ in 0..40 {
        drop(handle.sessions(Filter::default(), 0).unwrap());
    }
    let open: Vec<_> = (0..16).map(|_| handle.mappings(Filter::default(), 0).unwrap()).collect();
    let Err(RequestError::Busy(why)) = handle.mappings(Filter::default(), 0) else { panic!("not refused") };
    assert!(why.contains("16"), "{why}");
    drop(open);
    assert!(handle.mappings(Filter::default(), 0).is_ok());
}

#[test]
fn deletions_and_reloads_are_answered_once_all_workers_have() {
    let rig = rig(2, 256);
    let handle = &rig.threads.handle;
    let endpoint = Endpoint { ip: 1, port: 1 };
    let key =
        SessionKey { instance: InstanceId(0), proto: Proto::Udp, inside: endpoint.into(), remote: endpoint };
    assert_eq!(handle.delete_sessions(vec![key; 2_500]), Ok(2_500));
    assert_eq!(handle.delete_sessions(Vec::new()), Ok(0));
    assert_eq!(handle.clear_sessions(Filter::default()), Ok(2 * SESSIONS));
    let applied = apply(handle, 2).unwrap();
    assert_eq!(applied.sessions_ended, 6);
    assert_eq!(handle.snapshot().generation, 2);
}

#[test]
fn reload_that_one_worker_never_makes_ready_for_changes_nothing() {
    let rig = rig(2, 256);
    let handle = &rig.threads.handle;
    let Err(RequestError::Refused(why)) = apply(handle, 13) else { panic!("not refused") };
    assert!(why.contains("worker 1 did not make ready") && why.contains("reload again"), "{why}");
    assert_eq!(handle.snapshot().generation, 1);
    let as_before = |worker: &WorkerReport| worker.stats.packets == 1 && worker.stats.events_lost == 1;
    eventually("taking it back", || handle.workers().iter().all(as_before));
    // And the next one is as if nothing had been.
    assert_eq!(apply(handle, 15).unwrap().sessions_ended, 6);
}

#[test]
fn worker_that_changes_over_late_is_told_of_and_holds_nobody_up() {
    let rig = rig(2, 256);
    let handle = &rig.threads.handle;
    let Err(RequestError::Timeout(why)) = apply(handle, 14) else { panic!("not late") };
    assert!(why.contains("worker 1 has not changed over") && why.contains("nat-pool-changing"), "{why}");
    assert_eq!(handle.snapshot().generation, 14, "the others work by it");
    // Whatever wakes it up.
    assert_eq!(apply(handle, 15).unwrap().sessions_ended, 6);
    eventually("changing over", || handle.workers().iter().all(|worker| worker.stats.packets == 15));
}

#[test]
fn dead_worker_ends_the_daemon_and_says_so() {
    let rig = rig(2, 256);
    let handle = &rig.threads.handle;
    let _ = apply(handle, 666);
    let Some(EndReason::Failed(why)) = handle.wait(Duration::from_secs(10)) else { panic!("did not end") };
    assert!(why.contains("worker"), "{why}");
    assert_eq!(handle.neighbours(), Err(RequestError::Stopped));
    assert!(handle.workers().iter().any(|worker| worker.state == WorkerState::Panicked));
}

#[test]
fn worker_that_cannot_start_stops_the_start() {
    let pool = MemPool::new(128, 2_048, 128);
    let (port, _peer) = MemPort::with_peer("p", 0, 8);
    let setup = |core| Setup {
        plan: plan(1),
        host: host(),
        port_control: Default::default(),
        ports: vec![],
        workers: vec![WorkerSetup { core, pool: Box::new(pool.handle(128)) }],
        control_cores: Vec::new(),
        idle: Idle::Sleep,
        burst: 64,
        input: None,
        exit_when_idle: false,
        thread_hook: None,
        sink: None,
    };
    let refused = launch(setup(None), 2, |_, _, _| Err::<StandIn, _>("no memory".to_owned())).err().unwrap();
    assert_eq!(refused.to_string(), "worker 0: no memory");
    let unpinned = launch(setup(Some(1_000)), 2, |n, ends, _| Ok(StandIn::new(n, ends))).err().unwrap();
    assert!(unpinned.to_string().contains("processor 1000"), "{unpinned}");
    let mut two = setup(None);
    two.ports = vec![PortSetup { queues: vec![Box::new(port)], watcher: None }];
    two.workers.clear();
    assert!(launch(two, 2, |n, ends, _| Ok(StandIn::new(n, ends))).is_err());
}

fn start_with_control_on(cores: &[usize]) -> Result<Threads, StartError> {
    let pool = MemPool::new(128, 2_048, 128);
    let setup = Setup {
        plan: plan(1),
        host: host(),
        port_control: Default::default(),
        ports: vec![],
        workers: vec![WorkerSetup { core: None, pool: Box::new(pool.handle(128)) }],
        control_cores: cores.to_vec(),
        idle: Idle::Sleep,
        burst: 64,
        input: None,
        exit_when_idle: false,
        thread_hook: None,
        sink: None,
    };
    launch(setup, 3, |n, ends, _| Ok(StandIn::new(n, ends)))
}

fn own_cores() -> usize {
    let set = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).unwrap();
    (0..nix::sched::CpuSet::count()).filter(|n| set.is_set(*n).unwrap()).count()
}

#[test]
fn all_but_the_workers_runs_on_the_control_planes_cores() {
    // On a thread of its own, whose placement is nobody else's.
    let test = std::thread::spawn(|| {
        let refused = start_with_control_on(&[0, 1_000]).err().unwrap().to_string();
        assert!(refused.contains("processor 1000") && refused.contains("workers.control_cores"), "{refused}");
        let mut threads = start_with_control_on(&[0]).unwrap();
        let inherited = std::thread::spawn(own_cores);
        assert_eq!((own_cores(), inherited.join().unwrap()), (1, 1));
        threads.stop();
    });
    test.join().unwrap();
}

#[test]
fn run_over_files_ends_by_itself_once_nothing_moves() {
    let pool = MemPool::new(128, 2_048, 128);
    let setup = Setup {
        plan: plan(1),
        host: HostConfig::default(),
        port_control: Default::default(),
        ports: vec![],
        workers: vec![WorkerSetup { core: Some(0), pool: Box::new(pool.handle(128)) }],
        control_cores: Vec::new(),
        idle: Idle::Sleep,
        burst: 64,
        input: Some(Box::new(|since_start| since_start > Duration::from_millis(200))),
        exit_when_idle: true,
        thread_hook: None,
        sink: None,
    };
    let began = Instant::now();
    let threads = launch(setup, 3, |n, ends, _| Ok(StandIn::new(n, ends))).unwrap();
    assert_eq!(threads.handle.wait(Duration::from_secs(10)), Some(EndReason::Idle));
    assert!(began.elapsed() > Duration::from_millis(400));
}

#[test]
fn event_of_a_worker_reaches_every_reader() {
    let rig = rig(1, 8);
    let shared = &rig.threads.handle.shared;
    let event =
        NatEvent::AddressBound { instance: InstanceId(0), inside: Ipv4Addr::LOCALHOST.into(), outside: 1 };
    let worker = carrack_base::WorkerId(0);
    shared.events.push(&mut [crate::LoggedEvent { sequence: 0, at_ns: 5, unix_ns: 5, worker, event }]);
    for _ in 0..2 {
        let batch = rig.threads.handle.events(0, 10, Duration::from_secs(1));
        assert_eq!((batch.lost, batch.events[0].event), (0, crate::Happened::Nat(event)));
    }
}
