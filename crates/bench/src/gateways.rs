//! `carrack bench gateways`: new control connections a second, each with a message that is rewritten.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use carrack_alg::{Note, Protocol};
use carrack_base::text::grouped;
use carrack_base::{Now, PortId};
use carrack_frame::{Frame, FramePool, MemPool};
use carrack_nat::WorkerGroup;
use carrack_nat::policy::Logged;
use carrack_pipeline::Worker;
use carrack_wire::ipv4::Ipv4View;
use carrack_wire::tcp::{TcpView, flag};
use carrack_wire::{MacAddr, PacketBuilder};
use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::clock::{Moment, Tsc};
use crate::forward::{BenchError, SEED, drops_of, pin};
use crate::generator::{SUBSCRIBER_FIRST, Translation};
use crate::options::number;
use crate::report::print_drops;
use crate::setup::Phase;
use crate::world::{
    self, FarEnds, GATEWAY_MAC, INSIDE, INSIDE_MAC, InstanceSpec, Mode, OUTSIDE, OUTSIDE_MAC, SUBSCRIBER_MAC,
};

/// Connections of a subscriber.
const OF_EACH: u32 = 16;
/// Connections whose packets travel in one burst.
const TOGETHER: u32 = 32;
const SERVER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
/// Port of a subscriber's first connection; the others follow.
const PORT_FIRST: u16 = 20_000;

/// Options of `bench gateways`.
#[derive(Debug, Clone, Args)]
pub struct GatewaysArgs {
    /// Whose control connections
    #[arg(long, value_enum, default_value_t = Kind::Ftp)]
    pub protocol: Kind,
    /// How many
    #[arg(long, default_value_t = 100_000, value_parser = number::<u32>(64..=1_000_000), allow_negative_numbers = true)]
    pub connections: u32,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Five packets: handshake, PORT, its answer, and a reset
    Ftp,
    /// Two datagrams: an invitation with a session description, and the answer to the BYE that ends the call
    Sip,
}

impl Kind {
    const fn protocol(self) -> Protocol {
        match self {
            Self::Ftp => Protocol::Ftp,
            Self::Sip => Protocol::Sip,
        }
    }
}

/// What it found.
#[derive(Debug, Clone, Serialize)]
pub struct GatewaysReport {
    /// Always `gateways`.
    pub scenario: &'static str,
    /// `ftp` or `sip`.
    pub protocol: &'static str,
    /// Packets of each connection.
    pub packets_per_connection: u32,
    /// All connections, generator included.
    pub connections: Phase,
    /// Messages that were rewritten.
    pub rewritten: u64,
    /// Connections or media that were allowed for.
    pub opened: u64,
    /// Messages left as they were, for want of room.
    pub no_room: u64,
    /// Packets dropped, by reason.
    pub drops: BTreeMap<&'static str, u64>,
    /// Every packet left, every message was rewritten.
    pub ok: bool,
}

impl GatewaysReport {
    /// For people.
    pub fn print(&self) {
        println!(
            "new control connections of {}, {} packets each, one rewritten\n",
            self.protocol.to_uppercase(),
            self.packets_per_connection
        );
        let phase = &self.connections;
        println!(
            "  {:<26}{:>10} /s  {:>7.0} cycles each, generator included{}",
            "connections",
            grouped(phase.per_s() as u64),
            phase.cycles_per_session,
            phase.disturbance()
        );
        println!("  {:<26}{:>10}", "made", grouped(phase.sessions));
        println!("  {:<26}{:>10}", "messages rewritten", grouped(self.rewritten));
        println!("  {:<26}{:>10}", "expected and let in", grouped(self.opened));
        print_drops(&self.drops);
        println!("  {:<26}{:>10}", "all as it must be", if self.ok { "yes" } else { "NO" });
    }
}

/// One worker, and a packet that left it: outside endpoint and bytes of payload.
struct Bench {
    worker: Worker,
    far: FarEnds,
    pool: MemPool,
    now: Now,
    left: Vec<(Ipv4Addr, u16, u32)>,
    packets: u64,
    arrived: u64,
}

impl Bench {
    fn new(connections: u32) -> Result<Self, BenchError> {
        let subscribers = connections.div_ceil(OF_EACH);
        let spec = InstanceSpec {
            translation: Translation::Nat44,
            mode: Mode::Pba,
            subscribers,
            ports: 3 * OF_EACH,
            block: 64,
            udp_s: 300,
            hold_s: 120,
            logged: Logged::Blocks,
        };
        let mut instance = spec.instance();
        instance.gateways = Protocol::ALL.to_vec();
        // Nothing expires meanwhile: there is room for one more at any time.
        let mut sizes = world::sizes(connections * 2);
        // RTP and RTCP beside it.
        sizes.nat.mappings = connections * 4;
        sizes.nat.subscribers = subscribers.max(64);
        sizes.nat.controls = (connections * 2).max(1_024);
        let plan = world::plan_with(instance, false);
        let now = Now::from_s(1);
        let (worker, far) = world::worker_with(0, WorkerGroup::new(1, SEED), plan, sizes, now)
            .map_err(|error| BenchError(format!("no memory for {connections} connections: {error}")))?;
        let pool = MemPool::new(1_024, 1_024, 128);
        let mut bench = Self { worker, far, pool, now, left: Vec::new(), packets: 0, arrived: 0 };
        // It learns its neighbours between bursts.
        bench.turn(INSIDE);
        Ok(bench)
    }

    /// A packet from there, addresses and transport filled in.
    fn send(&mut self, from: PortId, packet: PacketBuilder<'_>) {
        let (src, dst): (MacAddr, MacAddr) =
            if from == INSIDE { (SUBSCRIBER_MAC, INSIDE_MAC) } else { (GATEWAY_MAC, OUTSIDE_MAC) };
        let packet = packet.ethernet(src, dst);
        let Some(mut frame): Option<Frame> = self.pool.alloc() else { return };
        if frame.append(packet.len()).and_then(|room| packet.write(room)).is_some() {
            self.packets += 1;
            self.worker.rx_buffer().push(frame);
        }
    }

    /// What was sent goes through the router.
    fn turn(&mut self, from: PortId) {
        self.worker.process(self.now, from, &mut self.pool);
        self.worker.background(self.now, &mut self.pool);
        self.now = self.now.plus_ns(10_000);
        self.far.drain();
        let to = if from == INSIDE { OUTSIDE } else { INSIDE };
        let Some(queue) = self.worker.tx(to) else { return };
        self.left.clear();
        self.arrived += queue.len() as u64;
        self.left.extend(queue.iter().filter_map(|frame| source_of(frame.bytes())));
        self.pool.free_all(queue);
        self.worker.done(&mut self.pool);
    }

    /// The connections from `first` on, each step of all together.
    fn ftp(&mut self, first: u32) {
        const ACK: u8 = flag::ACK;
        let clients: Vec<(Ipv4Addr, u16)> = (first..first + TOGETHER).map(client).collect();
        let out = |(ip, port): (Ipv4Addr, u16)| (PacketBuilder::new().ipv4(ip, SERVER), port);
        for client in &clients {
            let (packet, port) = out(*client);
            self.send(INSIDE, packet.tcp(port, 21, flag::SYN).tcp_numbers(100, 0));
        }
        self.turn(INSIDE);
        let outside = std::mem::take(&mut self.left);
        for (ip, port, _) in &outside {
            let packet = PacketBuilder::new().ipv4(SERVER, *ip).tcp(21, *port, flag::SYN | ACK);
            self.send(OUTSIDE, packet.tcp_numbers(500, 101));
        }
        self.turn(OUTSIDE);
        let lines: Vec<String> = clients
            .iter()
            .map(|(ip, port)| {
                let [a, b, c, d] = ip.octets();
                let [p, q] = (port + 20_000).to_be_bytes();
                format!("PORT {a},{b},{c},{d},{p},{q}\r\n")
            })
            .collect();
        for (client, line) in clients.iter().zip(&lines) {
            let (packet, port) = out(*client);
            self.send(INSIDE, packet.tcp(port, 21, ACK).tcp_numbers(101, 501).payload(line.as_bytes()));
        }
        self.turn(INSIDE);
        let told = std::mem::take(&mut self.left);
        for (ip, port, len) in &told {
            let packet = PacketBuilder::new().ipv4(SERVER, *ip).tcp(21, *port, ACK);
            self.send(
                OUTSIDE,
                packet.tcp_numbers(501, 101 + len).payload(b"200 PORT command successful\r\n"),
            );
        }
        self.turn(OUTSIDE);
        for (client, line) in clients.iter().zip(&lines) {
            let (packet, port) = out(*client);
            self.send(INSIDE, packet.tcp(port, 21, flag::RST).tcp_numbers(101 + line.len() as u32, 0));
        }
        self.turn(INSIDE);
    }

    fn sip(&mut self, first: u32) {
        let clients: Vec<(u32, (Ipv4Addr, u16))> =
            (first..first + TOGETHER).map(|n| (n, client(n))).collect();
        for (call, (ip, port)) in &clients {
            let media = port + 2 * (call % OF_EACH) as u16 + 10_000;
            let body = format!(
                "v=0\r\no=- 1 1 IN IP4 {ip}\r\ns=-\r\nc=IN IP4 {ip}\r\nt=0 0\r\nm=audio {} RTP/AVP 0\r\n",
                media & !1
            );
            let text = format!(
                "INVITE sip:b@{SERVER} SIP/2.0\r\nVia: SIP/2.0/UDP {ip}:{port};branch=z9hG4bK{call}\r\n\
                 From: <sip:a@{ip}>;tag=1\r\nTo: <sip:b@{SERVER}>\r\nCall-ID: {call}\r\nCSeq: 1 INVITE\r\n\
                 Contact: <sip:a@{ip}:{port}>\r\nContent-Type: application/sdp\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
            let packet = PacketBuilder::new().ipv4(*ip, SERVER).udp(*port, 5_060);
            self.send(INSIDE, packet.payload(text.as_bytes()));
        }
        self.turn(INSIDE);
        let outside = std::mem::take(&mut self.left);
        for ((call, _), (ip, port, _)) in clients.iter().zip(&outside) {
            let text = format!(
                "SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP {ip}:{port}\r\nCall-ID: {call}\r\nCSeq: 2 BYE\r\n\
                 Content-Length: 0\r\n\r\n"
            );
            let packet = PacketBuilder::new().ipv4(SERVER, *ip).udp(5_060, *port);
            self.send(OUTSIDE, packet.payload(text.as_bytes()));
        }
        self.turn(OUTSIDE);
    }
}

/// Address and port of a connection's client.
fn client(number: u32) -> (Ipv4Addr, u16) {
    let port = PORT_FIRST + (number % OF_EACH) as u16;
    (Ipv4Addr::from(SUBSCRIBER_FIRST + number / OF_EACH), port)
}

/// Source and bytes of payload of a frame that left.
fn source_of(frame: &[u8]) -> Option<(Ipv4Addr, u16, u32)> {
    let packet = Ipv4View::parse(frame.get(14..)?).ok()?;
    let port = packet.payload().first_chunk().map(|port| u16::from_be_bytes(*port))?;
    let len = TcpView::parse(packet.payload()).map_or(0, |tcp| tcp.payload().len());
    Some((Ipv4Addr::from(packet.src()), port, len as u32))
}

/// Runs the measurement.
pub fn gateways(args: &GatewaysArgs) -> Result<GatewaysReport, BenchError> {
    pin(0);
    let connections = args.connections.next_multiple_of(TOGETHER);
    let tsc = Tsc::measure();
    let mut bench = Bench::new(connections)?;
    let start = Moment::now();
    for first in (0..connections).step_by(TOGETHER as usize) {
        match args.protocol {
            Kind::Ftp => bench.ftp(first),
            Kind::Sip => bench.sip(first),
        }
    }
    let phase = Phase::since(&start, u64::from(connections), tsc);
    let counts = bench.worker.nat().gateway_counts();
    let count = |note: Note| {
        let of_protocol = counts.get(args.protocol.protocol() as usize);
        of_protocol.and_then(|counts| counts.get(note as usize)).copied().unwrap_or(0)
    };
    // An invitation and the answer that is rewritten as well; RTP and RTCP.
    let (packets, rewritten, opened) = match args.protocol {
        Kind::Ftp => (5, 1, 1),
        Kind::Sip => (2, 2, 2),
    };
    let all = u64::from(connections);
    let ok = count(Note::Rewritten) == all * rewritten
        && count(Note::Opened) == all * opened
        && bench.packets == all * u64::from(packets)
        && bench.arrived == bench.packets
        && bench.worker.accounts().balance() == 0;
    Ok(GatewaysReport {
        scenario: "gateways",
        protocol: args.protocol.protocol().name(),
        packets_per_connection: packets,
        connections: phase,
        rewritten: count(Note::Rewritten),
        opened: count(Note::Opened),
        no_room: count(Note::NoRoom),
        drops: drops_of(bench.worker.accounts()),
        ok,
    })
}
