//! The laboratories' own generator and reflector: a process of its own behind one shared-memory port.
//!
//! `dpdk-testpmd` varies one address only and polls without pause; this one makes any number of subscribers with several
//! source ports each, checks what comes back, never loses a packet itself, and leaves the CPU to others when it has
//! nothing to do. It is told what to do on standard input (`rate PPS`, `fill`, `stop`, `quit`) and writes its counts to
//! standard output ten times a second, one JSON object a line.

pub(crate) mod client;
pub(crate) mod packets;

use std::fs;
use std::io::{BufRead, Write};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use carrack_frame::{Frame, FramePool};
use carrack_io::{DeviceSpec, PacketIo};
use carrack_io_dpdk::{Dpdk, DpdkPool, EalOptions, PortOptions};
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use packets::{Population, Seen, Writer};

/// Memory it takes, MiB of huge pages.
pub(crate) const MEMORY_MIB: u64 = 96;

/// What `carrack lab traffic` is started with.
#[derive(Clone, Debug, Args)]
pub struct TrafficArgs {
    /// Generates, or sends everything back.
    #[arg(value_enum)]
    pub(crate) role: Role,
    /// The memif's socket, which it creates.
    #[arg(long)]
    pub(crate) socket: PathBuf,
    /// The memif's number.
    #[arg(long, default_value_t = 0)]
    pub(crate) id: u32,
    /// Slots of the memif's rings, as a power of two.
    #[arg(long, default_value_t = 11)]
    pub(crate) ring_log2: u8,
    /// Subscribers.
    #[arg(long, default_value_t = 1)]
    pub(crate) subscribers: u32,
    /// The first subscriber's address, of either version; IPv6 ones reach the server through a NAT64.
    #[arg(long, default_value = "100.64.0.0")]
    pub(crate) first: IpAddr,
    /// Source ports of each subscriber.
    #[arg(long, default_value_t = 1)]
    pub(crate) ports: u16,
    /// First source port.
    #[arg(long, default_value_t = 20_000)]
    pub(crate) first_port: u16,
    /// Whole frame with its checksum, bytes.
    #[arg(long, default_value_t = 64)]
    pub(crate) frame_bytes: u16,
    /// VLAN tag of the frames.
    #[arg(long)]
    pub(crate) vlan: Option<u16>,
    /// Most packets on their way; fewer than the rings hold, so that none is lost for want of room.
    #[arg(long, default_value_t = 1_024)]
    pub(crate) window: u64,
}

/// What the process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Role {
    Generate,
    Reflect,
}

/// Its counts since start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counts {
    /// Whether the other end is there.
    pub up: bool,
    /// Packets of the population that the port took.
    pub sent: u64,
    /// Packets of the population that came back as they should.
    pub received: u64,
    /// Packets that came back to the wrong subscriber or changed.
    pub wrong: u64,
    /// Packets that came back to another port of the right subscriber.
    pub reused: u64,
    /// Announcements, ICMP errors and the like. ARP questions are answered: one packet in, one out, so not counted.
    pub other: u64,
    /// Packets reflected.
    pub reflected: u64,
    /// Whether it sends nothing, because it was told so or because all of a fill is sent.
    pub idle: bool,
}

const BURST: usize = 32;
const STATUS_EVERY: Duration = Duration::from_millis(100);
/// Rounds without work until the CPU is left to others for a moment.
const IDLE_ROUNDS: u32 = 64;
const NAP: Duration = Duration::from_micros(50);
/// When nothing has come back for this long, what is on its way counts as lost, for the window only. Longer than a busy
/// machine keeps the reflector waiting for a CPU.
const LOST_AFTER: Duration = Duration::from_millis(300);

/// Runs until it is told to quit or standard input ends.
pub(crate) fn run(args: &TrafficArgs) -> Result<()> {
    let options = EalOptions {
        huge_pages: true,
        memory_mib: Some(MEMORY_MIB as u32),
        frames: 16_383,
        ..EalOptions::default()
    };
    let dpdk = Dpdk::init(options)?;
    // A program that was killed leaves its socket.
    let _ = fs::remove_file(&args.socket);
    let device = format!(
        "vdev:net_memif0,role=server,id={},socket={},socket-abstract=no,rsize={}",
        args.id,
        args.socket.display(),
        args.ring_log2
    );
    let device: DeviceSpec = device.parse().map_err(|error| anyhow!("{error}"))?;
    let port = dpdk.open(&device, PortOptions::default())?.pop().ok_or_else(|| anyhow!("no queue"))?;
    let orders = Orders::listen();
    let mut process = Process {
        population: Population::of(args),
        writer: Writer::new(args, port.link().mac.0),
        mac: port.link().mac.0,
        window: args.window,
        role: args.role,
        port,
        pool: dpdk.pool(),
        counts: Counts::default(),
        pace: Pace::new(Instant::now()),
        rx: Vec::with_capacity(BURST),
        tx: Vec::with_capacity(2 * BURST),
        made: 0,
        lost: 0,
        progress: Instant::now(),
    };
    process.work(&orders);
    Ok(())
}

/// What standard input said last.
struct Orders {
    /// Packets a second; [`FILL`] is as fast as the window allows, each session once.
    rate: AtomicU64,
    /// Changes with every order.
    number: AtomicU64,
    quit: AtomicBool,
}

const FILL: u64 = u64::MAX;

impl Orders {
    fn listen() -> Arc<Orders> {
        let orders = Arc::new(Orders {
            rate: AtomicU64::new(0),
            number: AtomicU64::new(0),
            quit: AtomicBool::new(false),
        });
        let heard = Arc::clone(&orders);
        thread::spawn(move || {
            for line in std::io::stdin().lock().lines() {
                let Ok(line) = line else { break };
                let words: Vec<&str> = line.split_whitespace().collect();
                let rate = match words[..] {
                    ["rate", pps] => pps.parse().unwrap_or(0),
                    ["fill"] => FILL,
                    ["stop"] => 0,
                    _ => break,
                };
                heard.rate.store(rate, Ordering::Relaxed);
                heard.number.fetch_add(1, Ordering::Release);
            }
            heard.quit.store(true, Ordering::Release);
        });
        orders
    }
}

/// How many packets are due.
struct Pace {
    since: Instant,
    rate: u64,
    made: u64,
}

impl Pace {
    fn new(now: Instant) -> Pace {
        Pace { since: now, rate: 0, made: 0 }
    }

    fn set(&mut self, rate: u64, now: Instant) {
        *self = Pace { since: now, rate, made: 0 };
    }

    fn due(&mut self, now: Instant) -> u64 {
        let due = (now - self.since).as_secs_f64() * self.rate as f64;
        let late = due as u64;
        // A pause of this process is not made up for by a flood.
        let behind_max = self.rate / 100 + 64;
        if late > self.made + behind_max {
            self.made = late - behind_max;
        }
        late - self.made.min(late)
    }
}

struct Process {
    population: Population,
    writer: Writer,
    mac: [u8; 6],
    window: u64,
    role: Role,
    port: Box<dyn PacketIo>,
    pool: DpdkPool,
    counts: Counts,
    pace: Pace,
    rx: Vec<Frame>,
    tx: Vec<Frame>,
    /// Packets made, which chooses the next session.
    made: u64,
    /// Packets that will not come back, for the window.
    lost: u64,
    progress: Instant,
}

impl Process {
    fn work(&mut self, orders: &Orders) {
        let (mut order, mut fill_left) = (0, 0);
        let mut status_due = Instant::now();
        let mut idle_rounds = 0;
        while !orders.quit.load(Ordering::Acquire) {
            let now = Instant::now();
            let number = orders.number.load(Ordering::Acquire);
            if number != order {
                order = number;
                let rate = orders.rate.load(Ordering::Relaxed);
                self.pace.set(if rate == FILL { 0 } else { rate }, now);
                fill_left = if rate == FILL { self.population.sessions() } else { 0 };
                self.made = if rate == FILL { 0 } else { self.made };
            }
            let moved = self.receive(now) + self.send(now, &mut fill_left);
            if now >= status_due {
                status_due = now + STATUS_EVERY;
                self.counts.idle = self.pace.rate == 0 && fill_left == 0 && self.tx.is_empty();
                self.tell();
            }
            idle_rounds = if moved == 0 { idle_rounds + 1 } else { 0 };
            if idle_rounds > IDLE_ROUNDS {
                thread::sleep(NAP);
            }
        }
    }

    fn receive(&mut self, now: Instant) -> usize {
        // What waits to be sent goes first: nothing is taken that could not be passed on.
        if self.tx.len() > BURST {
            return 0;
        }
        let received = self.port.rx_burst(&mut self.rx, BURST);
        if received == 0 {
            return 0;
        }
        self.progress = now;
        for mut frame in self.rx.drain(..) {
            if packets::answer_neighbour(frame.bytes_mut(), self.mac) {
                self.tx.push(frame);
            } else if self.role == Role::Reflect {
                packets::swap(frame.bytes_mut());
                self.counts.reflected += 1;
                self.tx.push(frame);
            } else {
                match self.population.look(frame.bytes()) {
                    Seen::Right => self.counts.received += 1,
                    Seen::Wrong => self.counts.wrong += 1,
                    Seen::Reused => self.counts.reused += 1,
                    Seen::Other => self.counts.other += 1,
                }
                self.pool.free(frame);
            }
        }
        received
    }

    fn send(&mut self, now: Instant, fill_left: &mut u64) -> usize {
        let mut wanted = if *fill_left > 0 { *fill_left } else { self.pace.due(now) };
        wanted = wanted.min(BURST as u64).min(self.room(now));
        let mut made = 0;
        while made < wanted && self.tx.len() < BURST {
            let Some(mut frame) = self.pool.alloc() else { break };
            let session = self.population.pick(self.made);
            self.made += 1;
            if let Some(bytes) = frame.append(self.writer.length()) {
                self.writer.write(bytes, &self.population, session, self.made as u32);
            }
            self.tx.push(frame);
            made += 1;
        }
        self.pace.made += made;
        if *fill_left > 0 {
            *fill_left -= made;
        }
        if self.role == Role::Generate {
            self.counts.sent += made;
        }
        self.port.tx_burst(&mut self.tx) + made as usize
    }

    /// How many more may be on their way.
    fn room(&mut self, now: Instant) -> u64 {
        if self.role == Role::Reflect {
            return 0;
        }
        let back = self.counts.received + self.counts.wrong + self.counts.reused;
        if now - self.progress > LOST_AFTER {
            self.lost = self.counts.sent - back;
            self.progress = now;
        }
        self.window.saturating_sub((self.counts.sent - back).saturating_sub(self.lost))
    }

    fn tell(&mut self) {
        self.counts.up = self.port.link().up;
        if let Ok(text) = serde_json::to_string(&self.counts) {
            let mut out = std::io::stdout().lock();
            let _ = writeln!(out, "{text}").and_then(|()| out.flush());
        }
    }
}
