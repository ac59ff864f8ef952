//! Judges of what the engine did: checksums by two readers, and invariants over all rows.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use carrack_base::Proto;
use carrack_nat::policy::Assignment;
use carrack_nat::{Direction, Flow, Kind};
use carrack_wire::icmpv4::Icmpv4View;
use carrack_wire::ipv4::Ipv4View;
use carrack_wire::{TcpView, UdpView};
use etherparse::{Ipv4HeaderSlice, TcpHeaderSlice, UdpHeaderSlice};

use super::{L3, World};

/// Every checksum of a translated frame is right, the embedded packet's of an ICMP error too.
pub fn checksums(frame: &[u8], flow: &Flow) {
    let ip = Ipv4View::parse(&frame[L3..]).unwrap();
    assert!(ip.checksum_ok(), "IPv4 header checksum");
    judge_header(&frame[L3..]);
    if flow.kind == Kind::LaterFragment || ip.is_fragment() {
        return;
    }
    transport(&ip);
    if flow.kind != Kind::IcmpError {
        return;
    }
    let inner = Icmpv4View::parse(ip.payload()).unwrap().embedded().unwrap();
    assert!(inner.checksum_ok(), "embedded IPv4 header checksum");
    judge_header(inner.packet());
    // Only a whole quoted packet can be judged further.
    if inner.payload().len() == usize::from(inner.payload_length()) {
        transport(&inner);
    }
}

fn judge_header(packet: &[u8]) {
    let header = Ipv4HeaderSlice::from_slice(packet).unwrap().to_header();
    assert_eq!(header.header_checksum, header.calc_header_checksum(), "etherparse: IPv4 header checksum");
}

fn transport(ip: &Ipv4View<'_>) {
    let l4 = ip.payload();
    let (src, dst) = (ip.src().to_be_bytes(), ip.dst().to_be_bytes());
    match Proto::from_ip(ip.protocol()) {
        Proto::Udp => {
            let view = UdpView::parse(l4).unwrap();
            assert!(view.checksum_ok(ip.src(), ip.dst()), "UDP checksum");
            let header = UdpHeaderSlice::from_slice(l4).unwrap().to_header();
            let right = header.calc_checksum_ipv4_raw(src, dst, &l4[8..]).unwrap();
            assert!(header.checksum == 0 || header.checksum == right, "etherparse: UDP checksum");
        }
        Proto::Tcp => {
            assert!(TcpView::parse(l4).unwrap().checksum_ok(ip.src(), ip.dst()), "TCP checksum");
            let slice = TcpHeaderSlice::from_slice(l4).unwrap();
            let header = slice.to_header();
            let right = header.calc_checksum_ipv4_raw(src, dst, &l4[slice.slice().len()..]).unwrap();
            assert_eq!(header.checksum, right, "etherparse: TCP checksum");
        }
        Proto::Icmp => assert!(Icmpv4View::parse(l4).unwrap().checksum_ok(), "ICMP checksum"),
        Proto::Other => {}
    }
}

/// Nothing but addresses, ports and checksums changed.
pub fn only_translated(before: &[u8], after: &[u8], flow: &Flow, direction: Direction) {
    assert_eq!(before.len(), after.len());
    if flow.kind == Kind::IcmpError {
        return;
    }
    let (address, port) = if direction == Direction::Out { (12, 0) } else { (16, 2) };
    let l4 = usize::from(flow.l4);
    let mut may: HashSet<usize> = (L3 + 10..L3 + 12).chain(L3 + address..L3 + address + 4).collect();
    if flow.kind == Kind::Whole {
        match flow.proto {
            Proto::Tcp => may.extend((l4 + port..l4 + port + 2).chain(l4 + 16..l4 + 18)),
            Proto::Udp => may.extend((l4 + port..l4 + port + 2).chain(l4 + 6..l4 + 8)),
            Proto::Icmp => may.extend((l4 + 4..l4 + 6).chain(l4 + 2..l4 + 4)),
            Proto::Other => may.extend(l4 + 6..l4 + 8),
        }
    }
    for (at, (a, b)) in before.iter().zip(after).enumerate() {
        assert!(a == b || may.contains(&at), "octet {at} changed from {a:02x} to {b:02x}");
    }
}

/// What must hold at every instant, whatever happened.
#[track_caller]
pub fn invariants(world: &mut World) {
    let (sessions, mappings, subscribers) = (world.sessions(), world.mappings(), world.subscribers());
    let vrf_of = |id: carrack_base::InstanceId| world.policy.instances[id.index()].outside_vrf;
    // RFC 4787 REQ-3: no outside endpoint is in two mappings.
    let mut outside = HashMap::new();
    for row in &mappings {
        let key = (vrf_of(row.instance), row.proto, row.outside);
        if let Some(other) = outside.insert(key, *row) {
            panic!("two mappings at one outside endpoint: {row:?} and {other:?}");
        }
    }
    // What is used is never more than what there is, and no address has more ports than there are.
    for row in world.nats.iter().flat_map(|nat| nat.memory()) {
        assert!(row.used <= row.total, "{} of {} used of {}", row.used, row.total, row.table);
    }
    let mut ports_of: HashMap<_, u64> = HashMap::new();
    for row in world.pools() {
        *ports_of.entry((row.instance, row.ip)).or_default() += u64::from(row.ports_total);
    }
    for ((instance, ip), ports) in ports_of {
        let pools = &world.policy.instances[instance.index()].pools;
        let pool = pools.iter().find(|pool| pool.ranges.iter().any(|range| range.contains(ip)));
        let most = pool.map_or(0, |pool| u64::from(pool.port_last - pool.port_first) + 1);
        assert!(ports <= most, "{ports} ports of {most} at {ip:#x}");
    }
    // Each session is on a mapping of its endpoints, and is counted there.
    let mut on_mapping = HashMap::new();
    let mut by_subscriber: HashMap<_, u32> = HashMap::new();
    let mut keys = HashSet::new();
    for row in &sessions {
        let vrf = world.policy.instances[row.instance.index()].inside_vrf;
        let mapping = outside.get(&(vrf_of(row.instance), row.proto, row.outside));
        let mapping = mapping.unwrap_or_else(|| panic!("a session without mapping: {row:?}"));
        assert_eq!(mapping.inside, row.inside);
        *on_mapping.entry((vrf_of(row.instance), row.proto, row.outside)).or_insert(0) += 1;
        *by_subscriber
            .entry((row.instance, subscriber_of(world, row.instance, row.inside.ip)))
            .or_default() += 1;
        assert!(
            keys.insert((vrf, row.proto, row.inside, row.remote, row.remote6)),
            "two sessions of one flow: {row:?}"
        );
    }
    for (key, row) in &outside {
        assert_eq!(row.sessions, on_mapping.get(key).copied().unwrap_or(0), "{row:?}");
    }
    for row in &subscribers {
        let count = by_subscriber.remove(&(row.instance, row.inside.first())).unwrap_or(0);
        assert_eq!(row.sessions, count, "{row:?}");
        let is_mine = |m: &&carrack_nat::row::MappingRow| {
            (m.instance, subscriber_of(world, m.instance, m.inside.ip)) == (row.instance, row.inside.first())
        };
        let policy = &world.policy.instances[row.instance.index()];
        let counted = |m: &&carrack_nat::row::MappingRow| !m.is_static || !is_forward(policy, m);
        let mine = mappings.iter().filter(is_mine).filter(counted);
        assert_eq!(row.mappings.iter().sum::<u32>() as usize, mine.count(), "{row:?}");
    }
    assert!(by_subscriber.is_empty(), "sessions without subscriber: {by_subscriber:?}");
    ports_in_use(world, &mappings);
}

/// The subscriber that a host belongs to.
fn subscriber_of(world: &World, instance: carrack_base::InstanceId, ip: IpAddr) -> IpAddr {
    world.nats[0].directory().subscriber_of(instance, ip.into()).into()
}

fn is_forward(policy: &carrack_nat::policy::Instance, row: &carrack_nat::row::MappingRow) -> bool {
    policy.statics.iter().any(|rule| match *rule {
        carrack_nat::policy::StaticRule::Forward { proto, outside, outside_port, count, .. } => {
            proto == row.proto
                && outside == row.outside.ip
                && row.outside.port.checked_sub(outside_port).is_some_and(|n| n < count)
        }
        carrack_nat::policy::StaticRule::OneToOne { .. } => false,
    })
}

/// Ports used are mappings with a pool address; a block's owner is the one whose mappings are in it.
fn ports_in_use(world: &World, mappings: &[carrack_nat::row::MappingRow]) {
    for policy in &world.policy.instances {
        let dynamic = mappings.iter().filter(|m| m.instance == policy.id && !m.is_static).count() as u32;
        let rows = world.pools();
        let rows: Vec<_> = rows.iter().filter(|r| r.instance == policy.id).collect();
        let used: u32 = rows.iter().flat_map(|r| r.ports_used).sum();
        let has_forwards =
            policy.statics.iter().any(|s| matches!(s, carrack_nat::policy::StaticRule::Forward { .. }));
        if has_forwards {
            assert!(used >= dynamic, "{used} ports used for {dynamic} mappings");
        } else {
            assert_eq!(used, dynamic, "ports used and mappings with one");
        }
        if let Assignment::Blocks { .. } = policy.assignment {
            blocks(world, policy, mappings, &rows);
        }
    }
}

fn blocks(
    world: &World,
    policy: &carrack_nat::policy::Instance,
    mappings: &[carrack_nat::row::MappingRow],
    pools: &[&carrack_nat::row::PoolRow],
) {
    let mut owner = HashMap::new();
    let subscribers = world.subscribers();
    for row in subscribers.iter().filter(|s| s.instance == policy.id) {
        for block in &row.blocks[..usize::from(row.block_count)] {
            let before = owner.insert((block.ip, block.first), row.inside);
            assert_eq!(before, None, "a block with two owners");
        }
    }
    let used: u32 = pools.iter().map(|r| r.blocks_used).sum();
    assert!(used as usize >= owner.len());
    for mapping in mappings.iter().filter(|m| m.instance == policy.id && !m.is_static) {
        let inside = subscriber_of(world, policy.id, mapping.inside.ip);
        let of = subscribers.iter().find(|s| s.instance == policy.id && s.inside.first() == inside);
        let of = of.unwrap_or_else(|| panic!("a mapping without subscriber: {mapping:?}"));
        let inside = of.blocks[..usize::from(of.block_count)]
            .iter()
            .any(|b| b.ip == mapping.outside.ip && (b.first..=b.last).contains(&mapping.outside.port));
        assert!(inside, "{mapping:?} outside its subscriber's blocks");
    }
}

/// After any storm and its timeouts nothing is used.
#[track_caller]
pub fn empty(world: &mut World) {
    invariants(world);
    assert_eq!(world.session_count(), 0, "sessions");
    let dynamic: Vec<_> = world.mappings().into_iter().filter(|m| !m.is_static).collect();
    assert!(dynamic.is_empty(), "mappings {dynamic:?}");
    assert_eq!(world.subscribers(), [], "subscribers");
    for nat in &world.nats {
        assert_eq!(nat.held_syns(), 0, "SYNs");
        for row in nat.memory() {
            let kept = ["mappings", "mapping-index", "pool-addresses"].contains(&row.table);
            assert!(row.used == 0 || kept, "{} of {} used", row.used, row.table);
        }
    }
    for row in world.pools() {
        assert_eq!(row.blocks_used, 0, "blocks {row:?}");
        assert_eq!(row.subscribers, 0, "pairings {row:?}");
    }
}
