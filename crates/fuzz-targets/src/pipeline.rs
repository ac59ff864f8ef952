//! Arbitrary frames, answers, errors, commands and time into configured workers. Conservation holds at every step,
//! every frame that leaves is a right packet, no inside address leaves, every frame comes home.

use std::net::Ipv4Addr;

use carrack_base::{IfIndex, InstanceId, Now, PortId, Proto};
use carrack_frame::{FramePool, MemPool};
use carrack_nat::row::{Endpoint, SessionKey};
use carrack_pipeline::Worker;
use carrack_pipeline::mailbox::{Capture, Command, PacketFilter, Trace};
use carrack_wire::icmpv4::Icmpv4Mut;
use carrack_wire::ipv4::Ipv4View;
use carrack_wire::vlan::parse_l2;
use carrack_wire::{MacAddr, PacketBuilder, TcpMut, UdpMut, checksum};

use crate::network::{EXEMPT, Ends, OUT, POOL, PORTS, PREFIX6, inside6, ip, plan, port_mac, workers};

/// Steps of one input at most.
const STEPS_MAX: usize = 200;

/// The target. The first octet chooses the number of workers and whether somebody watches; then come steps: an octet
/// that says what to do, and what it needs.
pub fn worker(input: &[u8]) {
    let Some((mode, mut rest)) = input.split_first() else { return };
    let mut world = World::new(1 + mode % 3, mode & 0x80 != 0);
    for _ in 0..STEPS_MAX {
        let Some((step, tail)) = rest.split_first() else { break };
        rest = tail;
        rest = world.step(*step, rest);
        if world.queued >= 64 {
            world.flush();
        }
    }
    world.flush();
    world.end();
}

struct World {
    workers: Vec<Worker>,
    ends: Vec<Ends>,
    pool: MemPool,
    now: Now,
    /// Port that the burst being gathered comes in by, and its worker.
    port: u16,
    at: usize,
    queued: usize,
    generation: u64,
    /// The frame that left last: (port, octets).
    last: (u16, Vec<u8>),
    watchers: Vec<Box<dyn std::any::Any>>,
}

/// Takes `n` octets, or what there is.
fn take(rest: &[u8], n: usize) -> (&[u8], &[u8]) {
    rest.split_at(n.min(rest.len()))
}

impl World {
    fn new(count: u8, watched: bool) -> Self {
        let now = Now::from_s(100);
        let (workers, ends) = workers(count, now);
        let pool = MemPool::new(512, 2_048, 64);
        let last = (0, Vec::new());
        let mut world = Self {
            workers,
            ends,
            pool,
            now,
            port: 0,
            at: 0,
            queued: 0,
            generation: 1,
            last,
            watchers: Vec::new(),
        };
        let stations = [
            (0, [10, 0, 0, 5]),
            (0, [10, 0, 0, 9]),
            (OUT, [198, 51, 0, 254]),
            (2, [10, 1, 0, 5]),
            (3, [10, 2, 0, 5]),
        ];
        for (interface, station) in stations {
            let mac = MacAddr([2, 9, station[0], station[1], station[2], station[3]]);
            world.command(|| Command::SetNeighbour {
                interface: IfIndex(interface),
                ip: Ipv4Addr::from(station).into(),
                mac,
            });
        }
        if watched {
            world.watch();
        }
        world.turn();
        world
    }

    fn watch(&mut self) {
        for ends in &mut self.ends {
            let (slots, reader) = rtrb::RingBuffer::new(4);
            let filter = PacketFilter::default();
            let capture =
                Capture { filter, rx: true, tx: true, drops: true, packets_max: 20, slots, lost: 0 };
            let _ = ends.commands.push(Command::Capture(capture));
            self.watchers.push(Box::new(reader));
            let (steps, reader) = rtrb::RingBuffer::new(4);
            let _ = ends.commands.push(Command::Trace(Trace { filter, packets_max: 10, steps }));
            self.watchers.push(Box::new(reader));
        }
    }

    fn command(&mut self, mut command: impl FnMut() -> Command) {
        for ends in &mut self.ends {
            let _ = ends.commands.push(command());
        }
    }

    /// One step; what is left of the input.
    fn step<'a>(&mut self, step: u8, rest: &'a [u8]) -> &'a [u8] {
        let port = u16::from(step >> 4) % PORTS;
        match step & 15 {
            // A frame as it is.
            0 => {
                let (len, rest) = take(rest, 2);
                let len = len.iter().fold(0, |len, octet| len << 8 | usize::from(*octet)) % 2_048;
                let (frame, rest) = take(rest, len);
                self.queue(port, frame);
                rest
            }
            // A frame with addresses of the link, header and checksums put right.
            1..=3 => {
                let (len, rest) = take(rest, 1);
                let (packet, rest) = take(rest, usize::from(len.first().copied().unwrap_or(0)));
                let frame = repaired(port, packet, step & 15);
                self.queue(port, &frame);
                rest
            }
            4 => {
                let (how, rest) = take(rest, 8);
                let frame = built(port, how);
                self.queue(port, &frame);
                rest
            }
            5 => self.answer(rest),
            6 => self.complain(rest),
            7 => {
                self.flush();
                let (much, rest) = take(rest, 1);
                self.now = self.now.plus_ns(u64::from(much.first().copied().unwrap_or(1)) * 50_000_000);
                self.turn();
                rest
            }
            8 => {
                self.flush();
                self.at = usize::from(step >> 4) % self.workers.len();
                rest
            }
            9 => self.neighbour(rest),
            10 => self.manage(step, rest),
            11 => {
                // A packet in fragments, in an order that the input says.
                let (how, rest) = take(rest, 9);
                self.fragments(port, how);
                rest
            }
            _ => {
                self.flush();
                rest
            }
        }
    }

    fn queue(&mut self, port: u16, frame: &[u8]) {
        if port != self.port {
            self.flush();
            self.port = port;
        }
        if let Some(frame) = self.pool.alloc_copy(frame) {
            self.workers[self.at].rx_buffer().push(frame);
            self.queued += 1;
        }
        if self.queued >= 64 {
            self.flush();
        }
    }

    fn flush(&mut self) {
        let port = PortId(self.port);
        self.workers[self.at].process(self.now, port, &mut self.pool);
        self.queued = 0;
        self.balanced();
        self.collect();
        self.turn();
    }

    fn turn(&mut self) {
        for _ in 0..3 {
            for at in 0..self.workers.len() {
                self.workers[at].background(self.now, &mut self.pool);
                self.balanced();
            }
            self.collect();
        }
    }

    fn balanced(&mut self) {
        for worker in &mut self.workers {
            let accounts = worker.accounts();
            assert_eq!(accounts.balance(), 0, "{accounts:?}");
        }
    }

    fn collect(&mut self) {
        for (worker, ends) in self.workers.iter_mut().zip(&mut self.ends) {
            for port in 0..PORTS {
                let queue = worker.tx(PortId(port)).expect("a queue for each port");
                for frame in queue.iter() {
                    judge(port, frame.bytes());
                    self.last = (port, frame.bytes().to_vec());
                }
                self.pool.free_all(queue);
            }
            worker.done(&mut self.pool);
            while ends.punts.pop().is_some() {}
            while ends.events.pop().is_ok() {}
            while ends.nat_events.pop().is_ok() {}
        }
    }

    /// What left last comes back with its ends exchanged, and a few octets changed.
    fn answer<'a>(&mut self, rest: &'a [u8]) -> &'a [u8] {
        self.flush();
        let (change, rest) = take(rest, 3);
        let (port, mut frame) = self.last.clone();
        let Ok(l2) = parse_l2(&frame) else { return rest };
        let l3 = usize::from(l2.payload_offset);
        if frame.len() < l3 + 24 || l2.ethertype != 0x0800 {
            return rest;
        }
        for n in 0..4 {
            frame.swap(l3 + 12 + n, l3 + 16 + n);
        }
        if matches!(frame[l3 + 9], 6 | 17) && frame[l3] == 0x45 {
            frame.swap(l3 + 20, l3 + 22);
            frame.swap(l3 + 21, l3 + 23);
        } else if frame[l3 + 20] == 8 {
            frame[l3 + 20] = 0;
        }
        if let [at, octet, ..] = change
            && *octet != 0
        {
            let at = l3 + usize::from(*at) % (frame.len() - l3);
            frame[at] ^= octet;
        }
        frame[0..6].copy_from_slice(&port_mac(port).0);
        frame[6..12].copy_from_slice(&[2, 9, 9, 9, 9, 9]);
        frame[l3 + 8] = 64;
        repair(&mut frame, l3);
        self.queue(port, &frame);
        rest
    }

    /// An ICMP error about what left last.
    fn complain<'a>(&mut self, rest: &'a [u8]) -> &'a [u8] {
        self.flush();
        let (how, rest) = take(rest, 4);
        let (port, frame) = self.last.clone();
        let Ok(l2) = parse_l2(&frame) else { return rest };
        let Some(about) = frame.get(usize::from(l2.payload_offset)..) else { return rest };
        let Ok(packet) = Ipv4View::parse(about) else { return rest };
        let [kind, code, quoted, word] = [0, 1, 2, 3].map(|n| how.get(n).copied().unwrap_or(n as u8));
        let kind = [3, 11, 12, 4][usize::from(kind) % 4];
        let quoted = about.len().min(20 + usize::from(quoted));
        let mut builder = PacketBuilder::new().ethernet(MacAddr([2, 9, 9, 9, 9, 9]), port_mac(port));
        for tag in l2.tags() {
            builder = builder.vlan(*tag);
        }
        let from = if word & 1 == 0 { packet.dst() } else { ip([10, 0, 0, word]) };
        let error = builder
            .ipv4(from, packet.src())
            .icmp(kind, code, [0, word, 2, 0])
            .payload(&about[..quoted])
            .build();
        self.queue(port, &error);
        rest
    }

    fn neighbour<'a>(&mut self, rest: &'a [u8]) -> &'a [u8] {
        let (how, rest) = take(rest, 3);
        let [kind, a, b] = [0, 1, 2].map(|n| how.get(n).copied().unwrap_or(0));
        let (interface, address) = match kind >> 1 & 3 {
            0 => (0, ip([10, 0, a, b])),
            1 => (OUT, ip([198, 51, a, b])),
            2 => (2, ip([10, 1, a, b])),
            _ => (u16::from(a), ip([10, 2, a, b])),
        };
        let (interface, address) = (IfIndex(interface), Ipv4Addr::from(address).into());
        if kind & 1 == 0 {
            self.command(|| Command::SetNeighbour {
                interface,
                ip: address,
                mac: MacAddr([2, 8, 0, 0, a, b]),
            });
        } else {
            self.command(|| Command::DropNeighbour { interface, ip: address });
        }
        rest
    }

    fn manage<'a>(&mut self, step: u8, rest: &'a [u8]) -> &'a [u8] {
        match step >> 4 & 3 {
            0 => {
                self.generation += 1;
                let plan = plan(self.generation);
                for (worker, ends) in self.workers.iter().zip(&mut self.ends) {
                    let Ok(change) = worker.nat().prepare_change(plan.snapshot.nat.clone()) else { continue };
                    let _ = ends.commands.push(Command::Prepare { plan: plan.clone(), change });
                }
                let generation = self.generation;
                self.turn();
                // Now and then it is taken back.
                if generation % 4 == 3 {
                    self.command(|| Command::Abandon { generation });
                } else {
                    self.command(|| Command::Commit { generation });
                }
                rest
            }
            1 => {
                let (what, rest) = take(rest, 3);
                let [port, remote, _] = [0, 1, 2].map(|n| what.get(n).copied().unwrap_or(0));
                let key = SessionKey {
                    instance: InstanceId(0),
                    proto: Proto::from_index(port & 3),
                    inside: Endpoint { ip: ip([10, 0, 0, 5]), port: 1_000 + u16::from(port) }.into(),
                    remote: Endpoint { ip: ip([198, 51, 0, 7]), port: u16::from(remote) },
                };
                self.command(|| Command::Delete { request: 1, keys: vec![key] });
                rest
            }
            2 => {
                self.watch();
                self.turn();
                rest
            }
            _ => {
                let (len, rest) = take(rest, 2);
                let (frame, rest) = take(rest, usize::from(len.get(1).copied().unwrap_or(0)));
                let interface = IfIndex(u16::from(len.first().copied().unwrap_or(0)) % 5);
                for ends in &mut self.ends {
                    let _ = ends.host_tx.push(interface, &host_frame(interface, frame));
                }
                rest
            }
        }
    }

    fn fragments(&mut self, port: u16, how: &[u8]) {
        let frame = built(port, how.get(1..).unwrap_or(&[]));
        let Ok(l2) = parse_l2(&frame) else { return };
        let l3 = usize::from(l2.payload_offset);
        let Ok(packet) = Ipv4View::parse(&frame[l3..]) else { return };
        let Some(piece) = how.first().map(|octet| 8 * (1 + usize::from(octet & 15))) else { return };
        let order = usize::from(how.first().copied().unwrap_or(0) >> 4);
        let pieces: Vec<_> = packet.payload().chunks(piece).enumerate().collect();
        let count = pieces.len();
        for n in 0..count.min(40) {
            let (at, octets) = pieces[(n + order) % count];
            let mut builder = PacketBuilder::new().ethernet(l2.src, l2.dst);
            for tag in l2.tags() {
                builder = builder.vlan(*tag);
            }
            let fragment = builder
                .ipv4(packet.src(), packet.dst())
                .protocol(packet.protocol())
                .identification(how.get(2).copied().unwrap_or(0).into())
                .fragment((at * piece) as u16, at + 1 < count)
                .payload(octets)
                .build();
            self.queue(port, &fragment);
        }
    }

    /// Everything that waits ends in its time, and every frame is home.
    fn end(&mut self) {
        for _ in 0..30 {
            self.now = self.now.plus_ns(500_000_000);
            self.turn();
        }
        for worker in &mut self.workers {
            assert_eq!(worker.accounts().held, 0, "packets are still held");
        }
        assert_eq!(self.pool.outstanding(), 0, "frames are missing");
        assert_eq!(self.pool.foreign(), 0);
    }
}

/// The control plane's frames are right; only their payload is the fuzzer's.
fn host_frame(interface: IfIndex, payload: &[u8]) -> Vec<u8> {
    let port = [0, OUT, 2, 2].get(interface.index()).copied().unwrap_or(0);
    let own = [ip([10, 0, 0, 1]), ip([198, 51, 0, 1]), ip([10, 1, 0, 1]), ip([10, 2, 0, 1])];
    let own = own.get(interface.index()).copied().unwrap_or(1);
    let to = MacAddr([2, 9, 9, 9, 9, 9]);
    PacketBuilder::new().ethernet(port_mac(port), to).ipv4(own, own + 4).udp(7, 7).payload(payload).build()
}

/// A frame with the port's addresses around an IPv4 packet of the fuzzer's; `how` says how much is put right.
fn repaired(port: u16, packet: &[u8], how: u8) -> Vec<u8> {
    let tags: &[u16] = match (port, how) {
        (2, 3) => &[200, 7],
        (2, _) => &[100],
        _ => &[],
    };
    let mut builder = PacketBuilder::new().ethernet(MacAddr([2, 9, 9, 9, 9, 9]), port_mac(port));
    for tag in tags {
        builder = builder.vlan(*tag);
    }
    let mut frame = builder.payload(packet).build();
    let l3 = 14 + 4 * tags.len();
    if how != 1
        && let Some(head) = frame.get_mut(l3..).and_then(|rest| rest.first_chunk_mut::<20>())
    {
        // Sources and destinations of the network: noise would only ever be spoofed or routed by default.
        let (inside, outside) =
            ([10, port.min(2) as u8 / 2, 0, 5 + (head[15] & 7)], [198, 51, 0, head[19] & 15]);
        let (src, dst) =
            if port == OUT { (outside, [192, 0, 2, 1 + (head[19] & 8)]) } else { (inside, outside) };
        head[12..16].copy_from_slice(&src);
        if head[19] & 0x40 == 0 {
            head[16..20].copy_from_slice(&dst);
        }
    }
    repair(&mut frame, l3);
    frame
}

/// Lengths and checksums put right, where there is anything to put right.
fn repair(frame: &mut [u8], l3: usize) {
    let Some(packet) = frame.get_mut(l3..) else { return };
    let len = packet.len();
    if len < 20 {
        return;
    }
    if packet[0] & 15 < 5 || usize::from(packet[0] & 15) * 4 > len || packet[0] >> 4 != 4 {
        packet[0] = 0x45;
    }
    let total = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
    if total < 20 || total > len {
        packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
    }
    let total = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
    let header_len = (usize::from(packet[0] & 15) * 4).min(total);
    let (src, dst, protocol) = (word32(packet, 12), word32(packet, 16), packet[9]);
    if let Some(l4) = packet.get_mut(header_len..total) {
        match protocol {
            1 => drop(Icmpv4Mut::parse(l4).map(|mut icmp| icmp.fill_checksum())),
            6 => drop(TcpMut::parse(l4).map(|mut tcp| tcp.fill_checksum(src, dst))),
            17 => drop(UdpMut::parse(l4).map(|mut udp| udp.fill_checksum(src, dst))),
            _ => {}
        }
    }
    packet[10..12].fill(0);
    let sum = checksum::checksum(&packet[..header_len]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
}

fn word32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]))
}

/// A good packet that a few octets describe.
fn built(port: u16, how: &[u8]) -> Vec<u8> {
    let [kind, a, b, sport, dport, flags, ttl, len] =
        [0, 1, 2, 3, 4, 5, 6, 7].map(|n| how.get(n).copied().unwrap_or(n as u8));
    let outside = match b >> 6 {
        0 => ip([198, 51, 0, b & 63]),
        1 => POOL + u32::from(b & 15),
        2 => EXEMPT + u32::from(b & 63),
        _ => ip([198, 18 + (b & 1), 0, b & 63]),
    };
    let (sport, dport) = (1_000 + u16::from(sport), 1_000 + u16::from(dport) * 8);
    let mut payload = vec![0x5a; usize::from(len) * 6];
    let is_esp = kind & 7 == 6 && flags & 0x40 != 0;
    if let Some(spi) = payload.first_chunk_mut::<4>().filter(|_| is_esp) {
        *spi = [0, 1, (sport & 3) as u8, (dport >> 3 & 3) as u8];
    }
    let mut builder = PacketBuilder::new().ethernet(MacAddr([2, 9, 9, 9, 9, 9]), port_mac(port));
    let subnet = match port {
        2 if kind & 0x80 != 0 => {
            builder = builder.vlan(200).vlan(7);
            2
        }
        2 => {
            builder = builder.vlan(100);
            1
        }
        _ => 0,
    };
    let inside = ip([10, subnet, 0, a & 31]);
    let builder = match port {
        OUT if a & 0x80 != 0 => builder.ipv4(ip([198, 51, 0, a & 63]), inside),
        OUT => builder.ipv4(ip([198, 51, 0, a & 63]), POOL + u32::from(b & 15)),
        // An IPv6 host to the same destination by the NAT64 prefix; sometimes to another, or from nowhere.
        _ if ttl & 0x20 != 0 => {
            let host = inside6(subnet.into()) + u128::from(a & 31);
            builder.ipv6(host, if len & 64 == 0 { PREFIX6 | u128::from(outside) } else { inside6(0) + 2 })
        }
        _ => builder.ipv4(inside, outside),
    };
    let builder = builder.ttl(if ttl < 3 { ttl } else { 64 }).identification(ttl.into());
    let builder = if ttl & 0x40 != 0 { builder.dont_fragment() } else { builder };
    match kind & 7 {
        0 | 1 => builder.udp(sport, dport),
        2 | 3 => builder.tcp(sport, dport, flags & 0x3f),
        4 => builder.echo_request(sport, 1),
        5 => builder.echo_reply(dport, 1),
        6 => builder.protocol(if is_esp { 50 } else { 47 }),
        _ => builder.udp_without_checksum(sport, dport),
    }
    .payload(&payload)
    .build()
}

/// A frame that leaves is a right packet, fits, and shows no inside address to the outside.
fn judge(port: u16, frame: &[u8]) {
    let l2 = parse_l2(frame).expect("a link header");
    if l2.ethertype != 0x0800 {
        return;
    }
    assert_eq!(l2.src, port_mac(port));
    let l3 = usize::from(l2.payload_offset);
    let packet = Ipv4View::parse(&frame[l3..]).expect("an IPv4 packet");
    assert!(packet.checksum_ok(), "IPv4 header checksum");
    assert!(packet.ttl() > 0, "TTL 0");
    let mtu = match (port, l2.tags().len()) {
        (OUT, _) => 600,
        (_, 2) => 300,
        _ => 1_500,
    };
    assert!(usize::from(packet.total_length()) <= mtu, "longer than the MTU");
    assert!(frame.len() <= l3 + mtu, "more octets than the MTU");
    if port == OUT && packet.dst() & !0xff != EXEMPT {
        let own = packet.src() & 0xffff == 1;
        assert!(packet.src() >> 24 != 10 || own, "an inside address leaves: {:?}", packet.src_addr());
    }
}
