//! Everything at once: packets of all kinds by several workers, reloads that are made ready, put in force and taken
//! back while they come, walks that delete, captures that are dropped, tables too small for it all. At every step each
//! packet is accounted for and each port in use is somebody's; at the end nothing is in use anywhere.

use std::collections::BTreeMap;

use carrack_base::{IfIndex, InstanceId, PortId, Prefix, Proto, Reason};
use carrack_config::{Compiled, Config, PortFacts, compile};
use carrack_nat::Cursor;
use carrack_nat::policy::Capacity;
use carrack_nat::row::{Endpoint, Filter, NatEvent, SessionKey};
use carrack_pipeline::mailbox::PacketFilter;
use carrack_pipeline::snapshot::WorkerSizes;
use carrack_testkit::network::{Network, mac_of};
use carrack_testkit::random::Random;
use carrack_wire::{MacAddr, PacketBuilder};

const RED: u16 = 0;
const BLUE: u16 = 1;
const WAN: u16 = 2;
const HOSTS: usize = 40;
const STEPS: usize = 1_500;

fn port_mac(port: u16) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, 0x10 + port as u8])
}

/// Two customers with equal addresses, one of them with IPv6 as well; `n` draws what a reload may change.
fn config(n: usize) -> String {
    let red_ports =
        ["block_size = 16\nblocks_per_subscriber = 3", "block_size = 32", "mode = \"arbitrary\""][n % 3];
    let red_pools = ["192.0.2.16/30", "192.0.2.18-192.0.2.23", "192.0.2.18-192.0.2.29"][n / 3 % 3];
    let red_range = ["2048-2559", "2304-2815"][n / 2 % 2];
    let blue_ports = [
        "mode = \"deterministic\"\nports_per_subscriber = 8\noverflow_ports = 256\nblock_size = 16",
        "mode = \"deterministic\"\nports_per_subscriber = 8",
        "block_size = 8\nblocks_per_subscriber = 2\nblock_idle_release = 0",
    ][n / 5 % 3];
    let filter = ["address-dependent", "endpoint-independent", "address-and-port-dependent"][n / 4 % 3];
    let exempt = ["", "exempt = [\"198.51.100.12/32\"]\n"][n / 7 % 2];
    let forward =
        ["", "[[nat.forward]]\noutside = \"192.0.2.18:2310\"\ninside = \"10.0.0.12:80\"\nproto = \"udp\"\n"]
            [n / 6 % 2];
    let blue_hosts = ["10.0.0.0/25", "10.0.0.0/27"][n / 8 % 2];
    let red = format!(
        "[[nat]]\nname = \"red\"\ninside_vrf = \"red\"\nsubscribers = [\"10.0.0.0/24\"]\nport_hold = 120\n{exempt}\
         [nat.ports]\n{red_ports}\n[nat.filtering]\nudp = \"{filter}\"\ntcp = \"{filter}\"\nicmp = \"{filter}\"\n[nat.timeouts]\nudp = 120\ntcp_established = 300\n\
         [nat.nat64]\nprefixes = [\"2001:db8:64::/96\"]\nsubscribers = [\"2001:db8:1::/48\"]\n\
         [[nat.pool]]\nname = \"red\"\naddresses = [\"{red_pools}\"]\nports = \"{red_range}\"\n{forward}"
    );
    let blue = format!(
        "[[nat]]\nname = \"blue\"\ninside_vrf = \"blue\"\nsubscribers = [\"{blue_hosts}\"]\nport_hold = 120\n\
         [nat.ports]\n{blue_ports}\n[nat.timeouts]\nudp = 120\ntcp_established = 300\n\
         [[nat.pool]]\nname = \"blue\"\naddresses = [\"192.0.2.32/30\"]\nports = \"1024-1535\"\n"
    );
    let both = match n / 11 % 5 {
        0 => format!("{red}{blue}"),
        1 | 2 => format!("{blue}{red}"),
        3 => format!("{red}{blue}"),
        _ => blue,
    };
    format!(
        "[[vrf]]\nname = \"red\"\n[[vrf]]\nname = \"blue\"\n\
         [[interface]]\nname = \"lan-red\"\ndevice = \"mem:red\"\nside = \"inside\"\nvrf = \"red\"\n\
         address = [\"10.0.0.1/24\", \"2001:db8:1::1/64\"]\n\
         [[interface]]\nname = \"lan-blue\"\ndevice = \"mem:blue\"\nside = \"inside\"\nvrf = \"blue\"\naddress = [\"10.0.0.1/24\"]\n\
         [[interface]]\nname = \"wan\"\ndevice = \"mem:wan\"\nside = \"outside\"\naddress = [\"192.0.2.1/24\"]\n\
         [[route]]\nprefix = \"0.0.0.0/0\"\nvia = \"192.0.2.254\"\n{both}"
    )
}

fn load(n: usize, previous: Option<&Compiled>) -> Compiled {
    let (config, _) = Config::from_str("storm.toml", &config(n)).unwrap_or_else(|e| panic!("{n}: {e:?}"));
    let mut facts = PortFacts::assumed(&config);
    for (at, port) in facts.iter_mut().enumerate() {
        port.mac = port_mac(at as u16);
    }
    compile(&config, &facts, previous).unwrap_or_else(|e| panic!("{n}: {e:?}"))
}

struct Storm {
    random: Random,
    network: Network,
    compiled: Compiled,
    /// The configuration of a reload that is under way.
    next: Option<Compiled>,
    captures: Vec<rtrb::Consumer<carrack_pipeline::mailbox::CaptureSlot>>,
    committed: u64,
    abandoned: u64,
    deleted: u64,
    /// Blocks that the events say are given out.
    blocks: BTreeMap<(u32, u16), i64>,
}

impl Storm {
    fn new(seed: u64, workers: u8) -> Self {
        let mut random = Random::new(seed);
        let compiled = load(random.below(200), None);
        let nat = Capacity {
            sessions: [48, 256][random.below(2)],
            mappings: [32, 256][random.below(2)],
            subscribers: [16, 64][random.below(2)],
            hosts: 4,
            fragments: 32,
            held_fragments: 16,
            held_syns: 4,
            controls: 8,
        };
        let sizes = WorkerSizes { nat, neighbours: [64, 512][random.below(2)], held_for_neighbour: 64 };
        let seeds = [0; 4].map(|_| random.bits());
        let network = Network::new(compiled.snapshot.clone(), sizes, workers, seeds);
        Self {
            random,
            network,
            compiled,
            next: None,
            captures: vec![],
            committed: 0,
            abandoned: 0,
            deleted: 0,
            blocks: BTreeMap::new(),
        }
    }

    fn host(&mut self) -> Endpoint {
        let ip = 0x0a00_000a + self.random.below(HOSTS) as u32;
        Endpoint { ip, port: 1_000 + self.random.below(12) as u16 }
    }

    fn remote(&mut self) -> Endpoint {
        let ip = 0xc633_640a + self.random.below(4) as u32;
        Endpoint { ip, port: 50 + self.random.below(4) as u16 }
    }

    /// An endpoint that somebody has, or that nobody may have.
    fn outside(&mut self) -> (Proto, Endpoint) {
        let at = self.random.below(self.network.workers.len());
        let (skip, mut found) = (self.random.below(64), None);
        let mut seen = 0;
        self.network.workers[at].nat().walk_mappings(&mut Cursor(0), 256, &Filter::default(), |row| {
            found = Some((row.proto, row.outside));
            seen += 1;
            seen <= skip
        });
        let random = Endpoint {
            ip: 0xc000_0210 + self.random.below(24) as u32,
            port: 1_020 + self.random.below(1_800) as u16,
        };
        match found {
            Some(found) if !self.random.one_in(4) => found,
            _ => ([Proto::Tcp, Proto::Udp, Proto::Icmp][self.random.below(3)], random),
        }
    }

    fn packet(&mut self, port: u16) -> Vec<u8> {
        if port == WAN {
            let (src, (proto, dst)) = (self.remote(), self.outside());
            return self.packet_of(port, proto, src, dst);
        }
        let (src, mut dst) = (self.host(), self.remote());
        if self.random.one_in(12) {
            dst = self.outside().1;
        }
        let proto = [Proto::Tcp, Proto::Udp, Proto::Udp, Proto::Icmp][self.random.below(4)];
        if port == RED && self.random.one_in(4) {
            return self.packet6(src, dst);
        }
        self.packet_of(port, proto, src, dst)
    }

    fn packet_of(&mut self, port: u16, proto: Proto, src: Endpoint, dst: Endpoint) -> Vec<u8> {
        let flags = [2, 2, 16, 18, 17, 4][self.random.below(6)];
        let build = PacketBuilder::new().ethernet(mac_of(src.ip), port_mac(port)).ipv4(src.ip, dst.ip);
        match proto {
            Proto::Udp if self.random.one_in(10) => {
                // A piece: the first, or one that waits for it.
                let (offset, more) = [(0, true), (16, true), (16, false)][self.random.below(3)];
                let id = self.random.below(8) as u16;
                let (s, d) = (src.port.to_be_bytes(), dst.port.to_be_bytes());
                let bytes = [s[0], s[1], d[0], d[1], 0, 40, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
                build.protocol(17).identification(id).fragment(offset, more).payload(&bytes).build()
            }
            Proto::Udp => build.udp(src.port, dst.port).payload(b"storm").build(),
            Proto::Tcp => build.tcp(src.port, dst.port, flags).build(),
            Proto::Icmp if port == WAN => build.echo_reply(dst.port, 1).build(),
            _ => build.echo_request(src.port, 1).build(),
        }
    }

    fn packet6(&mut self, src: Endpoint, dst: Endpoint) -> Vec<u8> {
        let from = 0x2001_0db8_0001_0000_0000_0000_0000_0000_u128 + u128::from(src.ip & 0x1f) + 16;
        let to = 0x2001_0db8_0064_u128 << 80 | u128::from(dst.ip);
        let build = PacketBuilder::new().ethernet(mac_of(src.ip), port_mac(RED)).ipv6(from, to);
        match self.random.below(2) {
            0 => build.udp(src.port, dst.port).payload(b"six").build(),
            _ => build.tcp(src.port, dst.port, 2).build(),
        }
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..72 => {
                let port = [RED, RED, BLUE, WAN][self.random.below(4)];
                let count = 1 + self.random.below(40);
                let mut frames: Vec<_> = (0..count).map(|_| self.packet(port)).collect();
                if self.random.one_in(8)
                    && let Some(frame) = frames.first_mut()
                {
                    let (at, cut) = (self.random.below(frame.len()), self.random.below(frame.len()));
                    frame[at] ^= 1 << self.random.below(8);
                    frame.truncate(cut.max(1));
                }
                let worker = self.random.below(self.network.workers.len());
                self.network.send(worker, PortId(port), &frames);
            }
            72..78 => self.clear(),
            78..86 => self.reload(),
            86..90 => self.watch(),
            90 => {
                // Once known an address stays known: it is those who have not spoken yet that may be silent.
                let ip = self.host().ip;
                if !self.network.silent.remove(&ip) {
                    self.network.silent.insert(ip);
                }
            }
            91..98 => drop(self.network.wait_ms(1 + self.random.below(3_000) as u64, 250)),
            _ => drop(self.network.wait_ms(20_000 + self.random.below(150_000) as u64, 1_000)),
        }
    }

    fn clear(&mut self) {
        if self.random.one_in(2) {
            let inside = self.host();
            let remote = self.remote();
            let instance = InstanceId(self.random.below(2) as u16);
            let key = SessionKey { instance, proto: Proto::Udp, inside: inside.into(), remote };
            self.deleted += self.network.delete(&[key]);
            return;
        }
        let address = Prefix::V4(carrack_base::Prefix4::of(self.host().ip, 29));
        let filter = Filter { inside: Some(address), ..Filter::default() };
        self.deleted += self.network.clear(filter).len() as u64;
    }

    /// The next thing about a reload: it begins, goes on, is put in force or taken back.
    fn reload(&mut self) {
        match self.next.take() {
            None => {
                let next = load(self.random.below(200), Some(&self.compiled));
                self.network.begin_reload(next.snapshot.clone());
                self.next = Some(next);
            }
            Some(next) if self.random.one_in(3) => {
                self.network.abandon_reload();
                self.abandoned += 1;
                drop(next);
            }
            Some(next) => {
                self.network.commit_reload();
                self.committed += 1;
                self.compiled = next;
            }
        }
    }

    fn watch(&mut self) {
        if self.captures.len() > 2 {
            self.captures.clear();
            return;
        }
        let dropped = [None, Some(None), Some(Some(Reason::NatPoolChanging))][self.random.below(3)];
        let filter = PacketFilter {
            dropped,
            interface: self.random.one_in(3).then_some(IfIndex(WAN)),
            ..PacketFilter::default()
        };
        let worker = self.random.below(self.network.workers.len());
        self.captures.push(self.network.capture(worker, filter, 1 + self.random.below(50) as u64));
    }

    /// Every packet is accounted for (the network itself sees to that after each burst), every port in use is one
    /// mapping's or a forward rule's, and blocks are given out once.
    fn check(&mut self, seed: u64) {
        self.network.assert_balanced();
        let (mut dynamic, mut used, mut claimed) = (0, 0, 0);
        for worker in &self.network.workers {
            let nat = worker.nat();
            nat.walk_mappings(&mut Cursor(0), usize::MAX, &Filter::default(), |row| {
                dynamic += u32::from(!row.is_static);
                true
            });
            nat.walk_pools(&mut Cursor(0), usize::MAX, |row| {
                used += row.ports_used.iter().sum::<u32>();
                claimed += row.blocks_used;
                assert!(row.blocks_used <= 64, "seed {seed}: {row:?}");
                true
            });
            for row in nat.memory() {
                assert!(row.used <= row.total, "seed {seed}: {row:?}");
            }
        }
        assert!(
            (dynamic..=dynamic + 1).contains(&used),
            "seed {seed}: {used} ports used by {dynamic} mappings"
        );
        for event in self.network.nat_events.drain(..) {
            match event {
                NatEvent::BlockAllocated { block, .. } => {
                    let count = self.blocks.entry((block.ip, block.first)).or_default();
                    *count += 1;
                    assert!(*count <= 1, "seed {seed}: given out twice: {block:?}");
                }
                NatEvent::BlockReleased { block, .. } => {
                    let count = self.blocks.entry((block.ip, block.first)).or_default();
                    *count -= 1;
                    assert!(*count >= 0, "seed {seed}: given back twice: {block:?}");
                }
                _ => {}
            }
        }
        let logged: i64 = self.blocks.values().sum();
        assert!(
            i64::from(claimed) >= logged,
            "seed {seed}: {claimed} blocks claimed, {logged} logged as given out"
        );
    }

    fn finish(&mut self, seed: u64) {
        if self.next.take().is_some() {
            self.network.commit_reload();
        }
        // A configuration without forward rules, whose mappings would stay; and back to one with all instances.
        for n in [44, 0] {
            self.network.reconfigure(load(n, Some(&self.compiled)).snapshot);
            self.check(seed);
        }
        self.captures.clear();
        self.network.wait_ms(1_200_000, 1_000);
        self.check(seed);
        let held = self.network.totals().held;
        assert_eq!((held, self.network.frames_out()), (0, 0), "seed {seed}: packets or frames");
        for (at, worker) in self.network.workers.iter().enumerate() {
            let nat = worker.nat();
            for row in nat.memory() {
                assert_eq!(row.used, 0, "seed {seed}, worker {at}: {row:?}");
            }
            assert_eq!(nat.held_syns(), 0, "seed {seed}, worker {at}");
            nat.walk_pools(&mut Cursor(0), usize::MAX, |row| {
                assert_eq!(
                    (row.ports_used, row.blocks_used, row.subscribers),
                    ([0; 3], 0, 0),
                    "seed {seed}: {row:?}"
                );
                true
            });
        }
        assert!(self.blocks.values().all(|count| *count == 0), "seed {seed}: not logged as given back");
    }
}

#[test]
fn nothing_is_in_use_after_the_storm() {
    let seeds = std::env::var("CARRACK_SIMULATIONS").map_or(9, |n| n.parse::<u64>().expect("a number") / 20);
    (0..200).for_each(|n| drop(load(n, None)));
    let (mut committed, mut abandoned, mut deleted) = (0, 0, 0);
    let mut drops = BTreeMap::<&str, u64>::new();
    for seed in 0..seeds.max(3) {
        let mut storm = Storm::new(seed, [1, 2, 3][seed as usize % 3]);
        for _ in 0..STEPS {
            storm.step();
            storm.check(seed);
        }
        storm.finish(seed);
        committed += storm.committed;
        abandoned += storm.abandoned;
        deleted += storm.deleted;
        let totals = storm.network.totals();
        for row in carrack_base::REASONS {
            *drops.entry(row.name).or_default() += totals.drops[row.reason as usize];
        }
    }
    // A storm in which nothing happens proves nothing.
    assert!(committed > 60 && abandoned > 20 && deleted > 200, "{committed} {abandoned} {deleted}");
    for reason in [
        Reason::NatPoolChanging,
        Reason::NatSessionTableFull,
        Reason::NatMappingTableFull,
        Reason::NatSubscriberTableFull,
        Reason::NatHostTableFull,
        Reason::NatSynTableFull,
        Reason::FragmentTimeout,
        Reason::NeighbourUnresolved,
        Reason::NatTcpUnsolicitedSyn,
    ] {
        let name = carrack_base::REASONS[reason as usize].name;
        assert!(drops.get(name).is_some_and(|count| *count > 0), "no {name} in {drops:?}");
    }
}
