//! ICMP errors through the NAT engine: the fuzzer writes the error, the session it may belong to exists.

use carrack_base::{InstanceId, Now, PoolId, Prefix4, Range4, VrfId, WorkerId};
use carrack_nat::policy::{Assignment, Capacity, Instance, NatPolicy, Pool, Timeouts};
use carrack_nat::{Direction, Flow, Kind, NO_LINE, Nat, Verdict, WorkerGroup};
use carrack_tables::PagePreference;
use carrack_wire::PacketBuilder;
use carrack_wire::icmpv4::{Class, Icmpv4Mut, Icmpv4View, class_of};
use carrack_wire::ipv4::{Ipv4Mut, Ipv4View};

use crate::network::{POOL, ip};

pub(crate) const CAPACITY: Capacity = Capacity {
    sessions: 64,
    mappings: 64,
    subscribers: 8,
    hosts: 64,
    fragments: 8,
    held_fragments: 8,
    held_syns: 4,
    controls: 16,
};
const SUBSCRIBER: u32 = ip([10, 0, 0, 5]);
const REMOTE: u32 = ip([198, 51, 100, 7]);

pub(crate) fn instance() -> Instance {
    Instance {
        id: InstanceId(0),
        name: "nat".into(),
        inside_vrf: VrfId(0),
        outside_vrf: VrfId(1),
        subscribers: vec![Prefix4::of(ip([10, 0, 0, 0]), 8)],
        exempt: vec![],
        pools: vec![Pool {
            id: PoolId(0),
            name: "pool".into(),
            ranges: vec![Range4 { first: POOL, last: POOL }],
            port_first: 1_024,
            port_last: 2_047,
        }],
        assignment: Assignment::Blocks { size: 64, per_subscriber_max: 2, idle_release_s: 0 },
        pooling: Default::default(),
        mapping: Default::default(),
        filtering: Default::default(),
        parity: false,
        contiguity: false,
        hairpinning: true,
        inbound_refresh: [true; 3],
        tcp_loose: false,
        port_hold_s: 120,
        port_hold_ports_max: 0,
        limits: Default::default(),
        timeouts: Timeouts::default(),
        exhausted_icmp: Default::default(),
        pool_threshold_percent: 0,
        pool_ports_threshold: 0,
        logged: Default::default(),
        statics: vec![],
        nat64: None,
        gateways: vec![],
        unreadable: Default::default(),
    }
}

/// An engine with one session of each kind, and their packets as they left.
fn engine() -> (Nat, Vec<Vec<u8>>) {
    let policy = std::sync::Arc::new(NatPolicy { instances: vec![instance()], ..Default::default() });
    let now = Now::from_s(10);
    let group = WorkerGroup::new(1, [3, 1, 4, 1]);
    let mut nat = Nat::new(WorkerId(0), group, CAPACITY, PagePreference::Small, policy, now)
        .expect("memory for small tables");
    let packet = || PacketBuilder::new().ipv4(SUBSCRIBER, REMOTE).payload(b"payload of some length");
    let packets = [
        (17, packet().udp(1_000, 53).build()),
        (6, packet().tcp(1_000, 80, 2).build()),
        (1, packet().echo_request(1_000, 1).build()),
    ];
    let mut left = Vec::new();
    for (number, mut packet) in packets {
        let mut flow = flow_of(&packet, VrfId(0));
        (flow.ip_proto, flow.proto) = (number, carrack_base::Proto::from_ip(number));
        flow.sport = 1_000;
        flow.dport = match number {
            17 => 53,
            6 => 80,
            _ => 0,
        };
        flow.bits = if number == 6 { 2 } else { packet[20] };
        let hash = nat.hash(&flow, Direction::Out);
        let verdict = nat.process(&flow, Direction::Out, hash, NO_LINE, &mut packet, now, |_, _| true);
        assert!(matches!(verdict, Verdict::Translated { created: true, .. }), "{verdict:?}");
        left.push(packet);
    }
    (nat, left)
}

fn flow_of(packet: &[u8], vrf: VrfId) -> Flow {
    let view = Ipv4View::parse(packet).expect("checked by the caller");
    Flow {
        src: view.src(),
        dst: view.dst(),
        vrf,
        l3: 0,
        l4: view.header_len() as u16,
        ip_proto: 1,
        ..Flow::default()
    }
}

/// The target: two octets choose session and way, the rest changes the error about its packet.
pub fn errors(input: &[u8]) {
    let Some(([how, quoted], change)) = input.split_first_chunk::<2>() else { return };
    let (mut nat, left) = engine();
    let outward = how & 4 != 0;
    let mut about = left[usize::from(how & 3) % left.len()].clone();
    if outward {
        about = inward(&mut nat, &about);
    }
    let quoted = about.len().min(usize::from(*quoted));
    // Octets of the fuzzer over the quotation, then behind it.
    let mut body = about[..quoted].to_vec();
    let (over, behind) = if how & 8 != 0 { (change, &[][..]) } else { change.split_at(change.len().min(6)) };
    for pair in over.chunks_exact(2) {
        if let Some(octet) = body.get_mut(usize::from(pair[0])) {
            *octet ^= pair[1];
        }
    }
    if how & 16 != 0
        && let Ok(mut inner) = Ipv4Mut::parse_quoted(&mut body)
    {
        inner.fill_checksum();
    }
    body.extend_from_slice(&behind[..behind.len().min(600)]);
    let kind = [3, 11, 12, 4, 5][usize::from(how >> 5) % 5];
    let (src, dst, vrf) = if outward { (SUBSCRIBER, REMOTE, VrfId(0)) } else { (REMOTE, POOL, VrfId(1)) };
    let rest = [0, over.first().copied().unwrap_or(0) & 0x3f, 0, 0];
    let mut packet = PacketBuilder::new().ipv4(src, dst).icmp(kind, 1, rest).payload(&body).build();
    if let Some(octet) = over.get(1)
        && octet & 0x80 != 0
    {
        packet[22] ^= octet;
    } else if let Ok(mut icmp) = Icmpv4Mut::parse(&mut packet[20..]) {
        icmp.fill_checksum();
    }
    let direction = if outward { Direction::Out } else { Direction::In };
    check(&mut nat, packet, vrf, direction);
}

/// The answer to a packet that left, as the subscriber gets it.
fn inward(nat: &mut Nat, left: &[u8]) -> Vec<u8> {
    let mut answer = left.to_vec();
    for n in 0..4 {
        answer.swap(12 + n, 16 + n);
    }
    let icmp = answer[9] == 1;
    if icmp {
        answer[20] = 0;
        Icmpv4Mut::parse(&mut answer[20..]).expect("a query").fill_checksum();
    } else {
        answer.swap(20, 22);
        answer.swap(21, 23);
    }
    let mut flow = flow_of(&answer, VrfId(1));
    flow.ip_proto = answer[9];
    flow.proto = carrack_base::Proto::from_ip(answer[9]);
    let word = |at: usize| u16::from_be_bytes([answer[at], answer[at + 1]]);
    (flow.sport, flow.dport) = if icmp { (0, word(24)) } else { (word(20), word(22)) };
    flow.bits = if answer[9] == 6 { 0x12 } else { answer[20] };
    let hash = nat.hash(&flow, Direction::In);
    let verdict = nat.process(&flow, Direction::In, hash, NO_LINE, &mut answer, Now::from_s(10), |_, _| true);
    assert!(matches!(verdict, Verdict::Translated { .. }), "{verdict:?}");
    answer
}

fn check(nat: &mut Nat, packet: Vec<u8>, vrf: VrfId, direction: Direction) {
    let view = Ipv4View::parse(&packet).expect("built whole");
    if class_of(view.payload()[0]) != Class::Error {
        return;
    }
    let mut flow = flow_of(&packet, vrf);
    (flow.proto, flow.kind, flow.bits) = (carrack_base::Proto::Icmp, Kind::IcmpError, packet[20]);
    let sessions = nat.session_count();
    let mut after = packet.clone();
    let hash = nat.hash(&flow, direction);
    let verdict = nat.process(&flow, direction, hash, NO_LINE, &mut after, Now::from_s(11), |_, _| true);
    // RFC 5508 REQ-6: errors neither make nor end anything.
    assert_eq!(nat.session_count(), sessions);
    match verdict {
        Verdict::Translated { .. } => {
            let view = Ipv4View::parse(&after).expect("still a packet");
            assert!(view.checksum_ok());
            let icmp = Icmpv4View::parse(view.payload()).expect("still an error");
            assert!(icmp.checksum_ok());
            assert!(icmp.embedded().expect("still about a packet").checksum_ok());
            assert_eq!((after.len(), after[20], after[21]), (packet.len(), packet[20], packet[21]));
            match direction {
                Direction::In => assert_eq!(view.dst(), SUBSCRIBER),
                Direction::Out => assert_eq!(view.src(), POOL),
            }
        }
        Verdict::Drop(_) | Verdict::Untouched | Verdict::Crosses { .. } => {
            assert_eq!(after, packet, "changed though not translated")
        }
        Verdict::Held => panic!("an error is never held"),
    }
}
