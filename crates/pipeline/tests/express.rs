//! The express lane does to a packet what the general stages do, and keeps the packets' order.

mod common;

use carrack_base::{IfIndex, Now, PortId, Reason, VrfId};
use carrack_frame::FramePool;
use carrack_nat::Rng;
use carrack_nat::nat64::{Nat64, Nat64Prefix, NatPrefix};
use carrack_nat::row::Filter;
use carrack_pipeline::mailbox::{Capture, CaptureSlot, Command, Dump, PacketFilter, Row, Table};
use carrack_pipeline::snapshot::{EamHosts, NextHop, Route, SiitInstance, Snapshot};
use carrack_pipeline::translators::TranslatorRow;
use carrack_wire::checksum;
use carrack_wire::tcp::flag;
use carrack_xlat::eam::{EamTable, Entry};
use carrack_xlat::{Rules, Siit, ZeroUdp};
use common::net6::*;
use common::*;

const HOSTS: [&str; 3] = ["10.0.0.5", "10.0.0.6", "10.0.0.7"];
const REMOTES: [&str; 4] = ["198.51.100.7:80", "192.88.99.1:443", "192.88.99.2:53", "203.0.113.9:80"];

/// Links that some packets are too long for by one octet, before or behind a translation.
fn narrow(snapshot: &mut Snapshot) {
    for (interface, mtu) in [(IF_IN, 1_287), (IF_OUT, 1_327)] {
        on(snapshot, interface, |i| i.mtu = mtu);
    }
}

/// A capture of an interface that does not exist: it sees nothing and keeps every packet out of the express lane.
fn watch(world: &mut World) -> rtrb::Consumer<CaptureSlot> {
    let (slots, reader) = rtrb::RingBuffer::new(16);
    let filter = PacketFilter { interface: Some(IfIndex(99)), ..PacketFilter::default() };
    let capture = Capture { filter, rx: true, tx: true, drops: true, packets_max: 1, slots, lost: 0 };
    assert!(world.ends[0].commands.push(Command::Capture(capture)).is_ok());
    world.turn();
    reader
}

/// One burst into worker 0; everything that left, by port, byte for byte.
fn run(world: &mut World, port: u16, frames: &[Vec<u8>]) -> Vec<(u16, Vec<u8>)> {
    let World { workers, pool, now, .. } = world;
    let worker = &mut workers[0];
    for frame in frames {
        worker.rx_buffer().push(pool.alloc_copy(frame).unwrap());
    }
    worker.process(*now, PortId(port), pool);
    worker.background(*now, pool);
    assert_eq!(worker.accounts().balance(), 0);
    let mut sent = vec![];
    for port in 0..3 {
        let mut queue: Vec<_> = worker.tx(PortId(port)).unwrap().drain(..).collect();
        sent.extend(queue.iter().map(|frame| (port, frame.bytes().to_vec())));
        pool.free_all(&mut queue);
    }
    worker.done(pool);
    sent
}

/// Where the IP packet of a frame begins.
fn l3_of(frame: &[u8]) -> usize {
    let tags = frame[12..].chunks(4).take_while(|tag| [[0x81, 0], [0x88, 0xa8]].contains(&[tag[0], tag[1]]));
    14 + 4 * tags.count()
}

/// Does it look like an ICMP error?
fn is_error(frame: &[u8]) -> bool {
    let l3 = l3_of(frame);
    if frame[l3] >> 4 == 6 {
        return frame[l3 + 6] == 58 && frame.get(l3 + 40).is_some_and(|kind| matches!(kind, 1..=4));
    }
    // A later fragment has no ICMP header, and behind a damaged protocol number a port may look like one.
    let is_later = u16::from_be_bytes([frame[l3 + 6], frame[l3 + 7]]) & 0x1fff != 0;
    !is_later && frame[l3 + 9] == 1 && matches!([frame[l3 + 20], frame[l3 + 21]], [3 | 11, 0..16])
}

/// What the router itself says comes last: it says it at the end of a burst, or of a part of one.
fn ours_last(sent: &[(u16, Vec<u8>)]) -> Vec<(u16, Vec<u8>)> {
    let (ours, others): (Vec<_>, Vec<_>) = sent.iter().cloned().partition(|(_, frame)| is_error(frame));
    others.into_iter().chain(ours).collect()
}

/// Numbers the identifications that are drawn at random, those of the router's own errors and those of translated packets
/// that it cuts: both are drawn from the same numbers, and whose turn comes first depends on where a burst is parted
/// (ADR 3). The pieces of a packet still share theirs, what is said about them included, and no others have it.
fn number_drawn(sent: &mut [(u16, Vec<u8>)]) {
    let own = ["10.0.0.1", "10.1.0.1", "10.2.0.1", "198.51.100.1"].map(ip);
    let is_piece = |packet: &[u8]| u16::from_be_bytes([packet[6], packet[7]]) & 0x3fff != 0;
    let mut drawn = vec![];
    for (_, frame) in sent {
        let (is_error, l3) = (is_error(frame), l3_of(frame));
        let packet = &mut frame[l3..];
        let src = u32::from_be_bytes([packet[12], packet[13], packet[14], packet[15]]);
        let is_ours = is_error && own.contains(&src);
        if packet[0] >> 4 != 4 || !(is_ours || is_piece(packet) && src == ip(POOL)) {
            continue;
        }
        number(packet, &mut drawn);
        if is_ours && is_piece(&packet[28..]) {
            let end = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
            assert!(checksum::verify(&packet[20..end]));
            packet[22..24].fill(0);
            number(&mut packet[28..], &mut drawn);
        }
    }
}

/// Puts the place among those `drawn` where the IPv4 header has its identification, and no checksum.
fn number(packet: &mut [u8], drawn: &mut Vec<[u8; 2]>) {
    assert!(checksum::verify(&packet[..4 * usize::from(packet[0] & 15)]));
    let identification = [packet[4], packet[5]];
    let place = drawn.iter().position(|known| *known == identification).unwrap_or(drawn.len());
    if place == drawn.len() {
        drawn.push(identification);
    }
    packet[4..6].copy_from_slice(&(place as u16).to_be_bytes());
    packet[10..12].fill(0);
}

fn forge(frame: &mut [u8]) {
    frame[24..26].fill(0);
    let sum = checksum::checksum(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
}

/// A packet of one of a few flows, mostly in order, sometimes damaged in any of its first bytes.
fn any_packet(rng: &mut Rng, port: u16, tags: &[u16], endpoints: &[(u32, u16)]) -> Vec<u8> {
    let tcp_flags =
        [flag::ACK, flag::ACK, flag::ACK | flag::PSH, flag::SYN, flag::FIN | flag::ACK, flag::RST];
    let bits = tcp_flags[rng.below(tcp_flags.len())];
    let host = match tags {
        [] => HOSTS[rng.below(HOSTS.len())],
        [_] => "10.1.0.5",
        _ => "10.2.0.5",
    };
    let remote = REMOTES[rng.below(REMOTES.len())];
    let inside = format!("{host}:{}", 1_000 + rng.below(3));
    let (src, dst) = match port {
        IN | TAGGED => (inside, remote.to_owned()),
        _ if endpoints.is_empty() => (remote.to_owned(), format!("{POOL}:2000")),
        _ => {
            let (ip, port) = endpoints[rng.below(endpoints.len())];
            (remote.to_owned(), format!("{}:{port}", std::net::Ipv4Addr::from(ip)))
        }
    };
    let ((from, sport), (to, dport)) = (e(&src), e(&dst));
    // Long ones fit a narrow link, pass it by an octet, or fit none; some must not be cut.
    let long = vec![3; [1_240, 1_300, 1_460][rng.below(3)]];
    let mut base = packet(port, from, to);
    if rng.below(4) == 0 {
        base = base.payload(&long);
    }
    if rng.below(2) == 0 {
        base = base.dont_fragment();
    }
    let mut frame = match rng.below(8) {
        0..4 => base.udp(sport, dport).build(),
        4..7 => base.tcp(sport, dport, bits).build(),
        _ => base.echo_request(7, 1).build(),
    };
    frame.resize(frame.len().max(60), 0);
    if rng.below(3) == 0 {
        let at = rng.below(54);
        frame[at] ^= 1 << rng.below(8);
        if rng.below(2) == 0 {
            forge(&mut frame);
        }
    }
    match rng.below(16) {
        0 => frame.truncate(rng.below(60)),
        1 => frame.extend(vec![7; rng.below(1_700)]),
        2 => {
            frame[22] = rng.below(3) as u8;
            forge(&mut frame);
        }
        3 => {
            frame[40..42].fill(0);
        }
        _ => {}
    }
    tag(rng, frame, tags)
}

/// With these tags and any priorities, now and then damaged.
fn tag(rng: &mut Rng, mut frame: Vec<u8>, tags: &[u16]) -> Vec<u8> {
    if frame.len() < 14 {
        return frame;
    }
    for (at, vid) in tags.iter().enumerate() {
        let kind = if tags.len() == 2 && at == 0 { 0x88a8_u16 } else { 0x8100 };
        let control = vid | (rng.below(16) as u16) << 12;
        let [k0, k1, c0, c1] = [kind.to_be_bytes(), control.to_be_bytes()].concat()[..] else {
            unreachable!()
        };
        frame.splice(12 + 4 * at..12 + 4 * at, [k0, k1, c0, c1]);
    }
    if !tags.is_empty() && rng.below(16) == 0 {
        frame[12 + rng.below(4 * tags.len())] ^= 1 << rng.below(8);
    }
    frame
}

/// The tags of a burst's packets: mostly the same.
fn any_tags(rng: &mut Rng) -> &'static [u16] {
    [&[100][..], &[200, 7]][rng.below(2)]
}

/// RFC 4787 REQ-1, REQ-9, RFC 5382 REQ-1: whichever way a packet takes through the program.
#[test]
fn express_lane_and_general_stages_send_the_same_bytes_in_the_same_order() {
    (1..=6).for_each(|seed| both_ways_are_one(seed, || world_with(narrow), any_packet));
}

/// RFC 6146 §3.6: the same between IPv6 and IPv4, beside IPv4 subscribers of the same instance.
#[test]
fn express_lane_and_general_stages_translate_between_versions_alike() {
    let world64 = |rules: Rules| {
        world6_with(|s| {
            narrow(s);
            nat(s, |i| {
                let prefix = |via, text: &str| Nat64Prefix {
                    via,
                    prefix: NatPrefix::new(text.parse().unwrap()).unwrap(),
                };
                i.nat64 = Some(Nat64 {
                    prefixes: vec![prefix(1, "2001:db8:64::/96"), prefix(2, "2001:db8:6500::/40")],
                    subscribers: vec!["2001:db8::/32".parse().unwrap()],
                    subscriber_len: 128,
                    rules,
                });
            });
        })
    };
    let rules = Rules::default();
    let others = [
        rules,
        Rules { lowest_ipv6_mtu: 1_299, zero_udp: ZeroUdp::Drop, ..rules },
        Rules { tos: Some(9), ..rules },
        Rules { lowest_ipv6_mtu: 9_000, zero_traffic_class: true, ..rules },
    ];
    // Not 7: there an error of the router's own and a packet meet at the last place of a neighbour's queue, and which of them
    // gets it depends on where the burst is parted (ADR 3).
    [1, 2, 3, 4, 5, 6, 8, 11].into_iter().for_each(|seed: u64| {
        let rules = others[seed as usize % others.len()];
        both_ways_are_one(seed, || world64(rules), any_packet_of_both)
    });
}

/// RFC 7915 §4, §5: the same of a stateless translator, beside a NAT and alone.
#[test]
fn express_lane_and_general_stages_translate_without_a_session_alike() {
    let stateless = |has_nat: bool| {
        let mut world = world6_with(|s| {
            let entry = |(v4, v6): &(&str, &str)| Entry { v4: v4.parse().unwrap(), v6: v6.parse().unwrap() };
            let entries: Vec<_> = MAPPINGS.iter().map(entry).collect();
            let translator = Siit {
                prefixes: vec![NatPrefix::new("2001:db8:64::/96".parse().unwrap()).unwrap()],
                eam: EamTable::new(&entries).unwrap(),
                rules: Rules {
                    lowest_ipv6_mtu: 1_299,
                    tos: (!has_nat).then_some(9),
                    zero_traffic_class: has_nat,
                    ..Rules::default()
                },
                ..Siit::default()
            };
            // Ways that part within a mapping.
            let gateway = |of, to| NextHop::Gateway(IfIndex(of), ip6(to));
            for (prefix, next_hop) in [
                ("2001:db8:9::/48", gateway(IF_IN, "2001:db8:1::5")),
                ("2001:db8:9::8/125", gateway(IF_VLAN, "2001:db8:3::5")),
            ] {
                s.routes6.push(Route { vrf: VrfId(0), prefix: prefix.parse().unwrap(), next_hop });
            }
            let instance =
                SiitInstance { name: "siit".into(), vrf: VrfId(0), eam_hosts: EamHosts::Ipv6, translator };
            let (v4, v6) = instance.routes(0);
            s.siit.push(instance);
            s.routes.extend(v4);
            s.routes6.extend(v6);
            narrow(s);
            if !has_nat {
                s.nat = std::sync::Arc::default();
            }
        });
        // No route parts these two.
        world.know6(IF_IN, "2001:db8:1::16");
        world.know6(IF_IN, "2001:db8:1::18");
        world
    };
    for has_nat in [true, false] {
        (1..=6).for_each(|seed| both_ways_are_one(seed, || stateless(has_nat), any_stateless_packet));
    }
}

/// The hosts of the stateless translator. The last are none that packets come from (RFC 7915 §5.1).
const MAPPINGS: [(&str, &str); 4] = [
    ("198.18.5.0/27", "2001:db8:1::/123"),
    ("198.18.6.0/28", "2001:db8:9::/124"),
    ("198.18.7.0/30", "2001:db8:9:7::/64"),
    ("198.18.8.0/28", "::ffff:198.18.8.0/124"),
];

/// As [`any_packet_of_both`], to and from a stateless translator's hosts too.
fn any_stateless_packet(rng: &mut Rng, port: u16, tags: &[u16], endpoints: &[(u32, u16)]) -> Vec<u8> {
    if port != OUT && rng.below(2) == 0 || rng.below(4) == 0 {
        return any_packet_of_both(rng, port, tags, endpoints);
    }
    let from =
        if port == OUT { e(REMOTES[rng.below(REMOTES.len())]).0 } else { HOSTS[rng.below(HOSTS.len())] };
    let from = match rng.below(32) {
        0 => ["224.0.0.5", "127.0.0.1"][rng.below(2)],
        // One that has a mapping, which a hairpinned packet's source does not go by (RFC 7757 §4.2.1).
        1 => "198.18.6.2",
        _ => from,
    };
    // No flipped bit makes any of them the router's own address, which answers with an identification out of turn.
    let to = ["198.18.5.22", "198.18.5.24", "198.18.5.10", "198.18.6.1", "198.18.6.9", "198.18.7.2"];
    // Bursts to one host are common.
    let to = to[rng.below(to.len()).min(rng.below(to.len()))];
    let long = vec![3; [0, 40, 1_230, 1_240, 1_300, 1_460][rng.below(6)]];
    let mut base = packet(port, from, to).payload(&long).tos(rng.next_u16() as u8);
    if rng.below(2) == 0 {
        base = base.dont_fragment();
    }
    let mut frame = match rng.below(8) {
        0..4 => base.udp(80, 1_000).build(),
        4..6 => base.tcp(80, 1_000, flag::ACK).build(),
        6 => base.udp_without_checksum(80, 1_000).build(),
        _ => base.echo_request(7, 1).build(),
    };
    frame.resize(frame.len().max(60), 0);
    if rng.below(4) == 0 {
        let at = rng.below(54);
        frame[at] ^= 1 << rng.below(8);
        if rng.below(2) == 0 {
            forge(&mut frame);
        }
    }
    if rng.below(16) == 0 {
        frame[22] = rng.below(3) as u8;
        forge(&mut frame);
    }
    tag(rng, frame, tags)
}

/// As [`any_packet`]; from inside half of them of IPv6.
fn any_packet_of_both(rng: &mut Rng, port: u16, tags: &[u16], endpoints: &[(u32, u16)]) -> Vec<u8> {
    if port == OUT || rng.below(2) == 0 {
        return any_packet(rng, port, tags, endpoints);
    }
    let host = match tags {
        [] => ["2001:db8:1::5", "2001:db8:1::6"][rng.below(2)],
        _ => "2001:db8:3::5",
    };
    let host =
        if rng.below(16) == 0 { ["2001:db8:9:7:8000::", "::ffff:198.18.8.2"][rng.below(2)] } else { host };
    let (remote, dport) = e(REMOTES[rng.below(REMOTES.len())]);
    let remote = if rng.below(32) == 0 { "127.0.0.9" } else { remote };
    let [a, b, c, d] = ip(remote).to_be_bytes();
    let to = match rng.below(3) {
        0 => format!("2001:db8:65{a:02x}:{b:02x}{c:02x}:{d:02x}::"),
        _ => format!("2001:db8:64::{remote}"),
    };
    let from = 1_000 + rng.below(3) as u16;
    let long = vec![3; [0, 40, 1_220, 1_300][rng.below(4)]];
    let bits = [flag::ACK, flag::ACK | flag::PSH, flag::SYN, flag::FIN | flag::ACK, flag::RST][rng.below(5)];
    let base = packet6(port, host, &to).payload(&long).tos(rng.next_u16() as u8);
    let mut frame = match rng.below(8) {
        0..4 => base.udp(from, dport).build(),
        4..7 => base.tcp(from, dport, bits).build(),
        _ => base.echo_request(from, 1).build(),
    };
    if rng.below(4) == 0 {
        let at = rng.below(frame.len().min(80));
        frame[at] ^= 1 << rng.below(8);
    }
    match rng.below(16) {
        0 => frame.truncate(rng.below(90)),
        1 => frame.extend(vec![7; rng.below(100)]),
        2 if frame.len() > 22 => frame[21] = rng.below(3) as u8,
        3 if frame.len() > 62 => frame[60..62].fill(0),
        _ => {}
    }
    tag(rng, frame, tags)
}

/// What stateless translators have counted.
fn figures(world: &mut World) -> Vec<TranslatorRow> {
    let (rows, mut reader) = rtrb::RingBuffer::new(64);
    let (table, filter) = (Table::Translators, Filter::default());
    let dump = Dump { table, filter, delete: false, rows_max: 0, rows };
    assert!(world.ends[0].commands.push(Command::Dump(dump)).is_ok());
    let mut all = vec![];
    for _ in 0..100 {
        run(world, IN, &[]);
        while let Ok(Row::Translator(row)) = reader.pop() {
            all.push(row);
        }
    }
    assert!(reader.is_abandoned());
    all
}

type AnyPacket = fn(&mut Rng, u16, &[u16], &[(u32, u16)]) -> Vec<u8>;

fn both_ways_are_one(seed: u64, world: impl Fn() -> World, any_packet: AnyPacket) {
    {
        let mut rng = Rng::new(seed);
        let (mut fast, mut general) = (world(), world());
        if seed.is_multiple_of(2) {
            fast.workers[0].forgo_vectors();
        }
        let mut reader = watch(&mut general);
        let (mut endpoints, mut sent) = (vec![], 0);
        for step in 0..300 {
            let port = [IN, TAGGED, OUT][step % 3];
            let count = 1 + rng.below(64);
            let tags = any_tags(&mut rng);
            let mut one = || {
                let other = rng.below(8) == 0;
                let tags = if other { any_tags(&mut rng) } else { tags };
                any_packet(&mut rng, port, if port == TAGGED { tags } else { &[] }, &endpoints)
            };
            let frames: Vec<_> = (0..count).map(|_| one()).collect();
            let (got, wanted) = (run(&mut fast, port, &frames), run(&mut general, port, &frames));
            let (mut got_sent, mut wanted_sent) = (ours_last(&got), ours_last(&wanted));
            number_drawn(&mut got_sent);
            number_drawn(&mut wanted_sent);
            if let Some(at) = got_sent.iter().zip(&wanted_sent).position(|(a, b)| a != b) {
                panic!("seed {seed}, step {step}, packet {at}: {:?} for {:?}", got_sent[at], wanted_sent[at]);
            }
            assert_eq!(got_sent.len(), wanted_sent.len(), "seed {seed}, step {step}");
            for (to, frame) in &got {
                if *to == OUT && frame.len() >= 36 && (frame[23] == 6 || frame[23] == 17) {
                    let head = frame.first_chunk::<36>().unwrap();
                    let endpoint = (
                        u32::from_be_bytes([head[26], head[27], head[28], head[29]]),
                        u16::from_be_bytes([head[34], head[35]]),
                    );
                    if endpoint.0 == ip(POOL) && !endpoints.contains(&endpoint) {
                        endpoints.push(endpoint);
                    }
                }
            }
            sent += got.len();
            if step % 10 == 0 {
                fast.now = fast.now.plus_ns(1_000_000_000);
                general.now = fast.now;
            }
        }
        for world in [&mut fast, &mut general] {
            // Damaged packets that are still held end here, where no judge looks at what is said of them.
            for _ in 0..200 {
                world.now = world.now.plus_ns(100_000_000);
                run(world, IN, &[]);
            }
        }
        assert!(reader.pop().is_err());
        assert_eq!(fast.workers[0].accounts(), general.workers[0].accounts());
        assert_eq!(fast.sessions(), general.sessions());
        assert_eq!(figures(&mut fast), figures(&mut general));
        assert!(sent > 3_000, "{sent} packets are too few to say anything");
        while [&mut fast, &mut general].into_iter().any(|w| w.ends[0].punts.pop().is_some()) {}
    }
}

#[test]
fn packets_of_known_and_new_sessions_leave_in_the_order_they_came() {
    let mut world = world();
    let frame = |n: u16| udp(IN, &format!("10.0.0.5:{}", 1_000 + n), "192.88.99.1:443");
    let known: Vec<_> = (0..32).filter(|n| n % 3 == 0).map(frame).collect();
    let before = world.burst(IN, &known);
    assert_eq!(before.len(), known.len());
    let all: Vec<_> = (0..32).map(frame).collect();
    let sent = world.burst(IN, &all);
    // Ports are given out in order of asking, so the payload cannot tell; the flows' known ports do.
    let ports = |sent: &[Sent]| sent.iter().map(Sent::src).collect::<Vec<_>>();
    let again = ports(&world.burst(IN, &all));
    assert_eq!(ports(&sent), again);
    let every_third: Vec<_> = again.iter().step_by(3).cloned().collect();
    assert_eq!(ports(&before), every_third);
}

#[test]
fn session_of_an_express_packet_is_refreshed() {
    let mut world = world();
    let frame = udp(IN, "10.0.0.5:1000", "192.88.99.1:443");
    world.pass(IN, &frame);
    for _ in 0..6 {
        world.wait_ms(100_000);
        world.pass(IN, &frame);
    }
    assert_eq!(world.sessions(), 1);
}

#[test]
fn a_full_transmit_queue_is_a_counted_drop() {
    let mut world = world();
    let frame = udp(IN, "10.0.0.5:1000", "192.88.99.1:443");
    world.pass(IN, &frame);
    let World { workers, pool, now, .. } = &mut world;
    let worker = &mut workers[0];
    for _ in 0..9 {
        for _ in 0..64 {
            worker.rx_buffer().push(pool.alloc_copy(&frame).unwrap());
        }
        worker.process(*now, PortId(IN), pool);
        worker.done(pool);
    }
    let full = carrack_pipeline::TX_QUEUE_PACKETS;
    assert_eq!(worker.accounts().drops[Reason::TxQueueFull as usize], 9 * 64 - full as u64);
    assert_eq!(worker.accounts().balance(), 0);
    worker.background(Now::from_s(1_001), pool);
    let mut queue: Vec<_> = worker.tx(PortId(OUT)).unwrap().drain(..).collect();
    assert_eq!(queue.len(), full);
    pool.free_all(&mut queue);
    world.new_drops();
}
