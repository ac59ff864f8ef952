//! The policies that a scenario draws: everything that a reload may change is drawn anew by each.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use carrack_base::{InstanceId, PoolId, Prefix4, Prefix6, Proto, Range4, VrfId};
use carrack_nat::Inside;
use carrack_nat::nat64::{Nat64, Nat64Prefix, NatPrefix};
use carrack_nat::policy::{
    Assignment, BlockRules, Filtering, Instance, Limits, Mapping, Overflow, Pool, Pooling, StaticRule,
    Timeouts,
};

use crate::random::Random;

/// 10.0.0.10, the first of ten; both instances have the same.
pub(super) const HOSTS: u32 = 0x0a00_000a;
/// Hosts of each IP version.
pub(super) const HOST_COUNT: usize = 10;
/// Number of the host whose inside endpoints are forwarded to.
const SERVER: u32 = 7;
/// The first of two that have outside addresses of their own.
pub(super) const ONE_TO_ONE: u32 = HOSTS + 8;
/// 198.51.100.10, the first of four.
pub(super) const REMOTES: u32 = 0xc633_640a;
/// 2001:db8:a::, the first of five links with two IPv6 hosts each.
pub(super) const LINKS6: u128 = 0x2001_0db8_000a << 80;
/// A prefix of each length that there is (RFC 6052 §2.2).
pub(super) static PREFIXES: LazyLock<[NatPrefix; 6]> = LazyLock::new(|| {
    [
        "2001:db8:64::/96",
        "2001:db8:6401::/64",
        "2001:db8:6402::/56",
        "2001:db8:6403::/48",
        "2001:db9:6400::/40",
        "2001:dba::/32",
    ]
    .map(|text| NatPrefix::new(text.parse().expect("a prefix")).expect("one that holds IPv4 addresses"))
});
/// Offset of the outside addresses that rules have for themselves.
const RULES: u32 = 100;

/// 203.0.113.0 for the first instance, 203.0.113.128 for the second.
pub(super) const fn pool_of(side: usize) -> u32 {
    0xcb00_7100 + 128 * side as u32
}

/// The address of a host by its number.
pub(super) fn host(number: usize, six: bool) -> IpAddr {
    if six {
        let [link, station] = [number / 2, 0x10 + number % 2].map(|n| n as u128);
        Ipv6Addr::from(LINKS6 | link << 64 | station).into()
    } else {
        Ipv4Addr::from(HOSTS + number as u32).into()
    }
}

/// Pool addresses; the first two are always there.
fn ranges(side: usize, which: usize) -> Vec<Range4> {
    let range = |from, to| Range4 { first: pool_of(side) + from, last: pool_of(side) + to };
    match which {
        0 => vec![range(0, 3)],
        1 => vec![range(0, 1), range(6, 7)],
        _ => vec![range(0, 3), range(8, 11)],
    }
}

/// `six` has the rules lead to the IPv6 hosts of the same numbers.
fn statics(side: usize, which: usize, six: bool) -> Vec<StaticRule> {
    let forward = |proto, outside, outside_port, inside: u32, inside_port| StaticRule::Forward {
        proto,
        outside: pool_of(side) + outside,
        outside_port,
        count: 2,
        inside: Inside::from(host(inside as usize, six)),
        inside_port,
    };
    let own = StaticRule::OneToOne {
        inside: Range4 { first: ONE_TO_ONE, last: ONE_TO_ONE + 1 },
        outside: Range4 { first: pool_of(side) + RULES + 10, last: pool_of(side) + RULES + 11 },
    };
    match which {
        0 => vec![],
        1 => vec![own, forward(Proto::Tcp, RULES, 8_080, SERVER, 1_005)],
        2 => vec![
            own,
            forward(Proto::Tcp, RULES, 8_080, SERVER, 1_007),
            forward(Proto::Udp, 0, 2_010, SERVER, 1_005),
        ],
        _ => vec![
            forward(Proto::Udp, 0, 2_010, SERVER, 1_009),
            forward(Proto::Udp, 1, 2_200, SERVER - 1, 1_002),
        ],
    }
}

/// An instance whose behaviour is drawn. `two` instances have an inside routing instance each.
pub(super) fn draw(random: &mut Random, side: usize, two: bool, static_rules: bool) -> Instance {
    let mut policy = Instance {
        id: InstanceId(side as u16),
        name: format!("side{side}"),
        inside_vrf: VrfId(if two { 1 + side as u16 } else { 0 }),
        outside_vrf: VrfId(0),
        subscribers: vec![],
        exempt: vec![],
        pools: vec![Pool {
            id: PoolId(side as u16),
            name: format!("pool{side}"),
            ranges: ranges(side, 0),
            port_first: 2_000,
            port_last: 2_255,
        }],
        assignment: Assignment::Arbitrary,
        pooling: Pooling::Paired,
        mapping: [Mapping::EndpointIndependent; 3],
        filtering: [Filtering::EndpointIndependent; 3],
        parity: false,
        contiguity: false,
        hairpinning: true,
        inbound_refresh: [true; 3],
        tcp_loose: false,
        port_hold_s: 120,
        port_hold_ports_max: 0,
        limits: Limits::default(),
        timeouts: Timeouts::default(),
        exhausted_icmp: Default::default(),
        pool_threshold_percent: 80,
        pool_ports_threshold: 8,
        logged: Default::default(),
        statics: vec![],
        nat64: None,
        gateways: vec![],
        unreadable: Default::default(),
    };
    policy.nat64 = (!random.one_in(4)).then(|| draw_nat64(random, side));
    policy.assignment = draw_assignment(random);
    policy.pooling = [Pooling::Paired, Pooling::Paired, Pooling::Arbitrary][random.below(3)];
    change(random, side, &mut policy, static_rules);
    policy
}

/// One to three prefixes in any order; subscribers that are hosts or links.
fn draw_nat64(random: &mut Random, side: usize) -> Nat64 {
    let (first, count) = (random.below(PREFIXES.len()), 1 + random.below(3));
    let prefix = |step: usize| {
        let at = (first + step) % PREFIXES.len();
        Nat64Prefix { via: (1 + 8 * side + at) as u16, prefix: PREFIXES[at] }
    };
    let links = if random.one_in(4) { 4 } else { 5 };
    let (subscriber_len, subscribers) = if random.one_in(2) {
        (64, vec![Prefix6::of(LINKS6, if links == 4 { 62 } else { 61 })])
    } else {
        (128, (0..links).map(|link| Prefix6::of(LINKS6 | link << 64 | 0x10, 127)).collect())
    };
    Nat64 {
        prefixes: (0..count).map(prefix).collect(),
        subscribers,
        subscriber_len,
        rules: Default::default(),
    }
}

fn draw_assignment(random: &mut Random) -> Assignment {
    match random.below(4) {
        0 => Assignment::Arbitrary,
        1 => Assignment::Blocks { size: 16, per_subscriber_max: 4, idle_release_s: 100 },
        2 => Assignment::Blocks { size: 8, per_subscriber_max: 3, idle_release_s: 0 },
        _ if random.one_in(3) => Assignment::Deterministic { ports_per_subscriber: 32, overflow: None },
        // So few that some need more, and not enough for all of them.
        _ => {
            let blocks = BlockRules { size: 8, per_subscriber_max: 2, idle_release_s: 60 };
            let overflow = Some(Overflow { ports: 64, blocks });
            Assignment::Deterministic { ports_per_subscriber: [2, 2, 4][random.below(3)], overflow }
        }
    }
}

/// What a reload changes: mostly filters, limits, timeouts and pools, at times everything.
pub(super) fn change(random: &mut Random, side: usize, policy: &mut Instance, static_rules: bool) {
    let filters =
        [Filtering::EndpointIndependent, Filtering::AddressDependent, Filtering::AddressAndPortDependent];
    policy.filtering = [0; 3].map(|_| filters[random.below(3)]);
    let mappings =
        [Mapping::EndpointIndependent, Mapping::EndpointIndependent, Mapping::AddressAndPortDependent];
    policy.mapping = [0; 3].map(|_| mappings[random.below(3)]);
    policy.inbound_refresh = [0; 3].map(|_| !random.one_in(4));
    policy.tcp_loose = random.one_in(6);
    policy.hairpinning = !random.one_in(6);
    (policy.parity, policy.contiguity) = (random.one_in(3), random.one_in(3));
    policy.limits = Limits {
        ports_max: [0, 0, 12][random.below(3)],
        sessions_max: [0, 0, 20][random.below(3)],
        ports_by_proto_max: [0; 3].map(|_| [0, 0, 0, 6][random.below(4)]),
        creations_per_s: [0, 0, 1][random.below(3)],
        creations_burst: 3,
        sessions_per_mapping_max: [0, 0, 5][random.below(3)],
        mappings_threshold: 0,
        paired_mappings_threshold: 0,
    };
    policy.timeouts = Timeouts {
        udp_s: [120, 300][random.below(2)],
        udp_port_s: if random.one_in(2) { vec![(51, 30)] } else { vec![] },
        tcp_established_s: [400, 600][random.below(2)],
        tcp_opening_s: [60, 240][random.below(2)],
        tcp_closing_s: [30, 240][random.below(2)],
        tcp_reset_s: [20, 240][random.below(2)],
        ..Timeouts::default()
    };
    policy.exempt = if random.one_in(3) { vec![Prefix4::of(REMOTES + 3, 32)] } else { vec![] };
    let narrow = random.one_in(6);
    policy.subscribers = if narrow {
        vec![Prefix4::of(HOSTS, 29), Prefix4::of(HOSTS + 8, 31)]
    } else {
        vec![Prefix4::of(HOSTS, 27)]
    };
    if random.one_in(5) {
        policy.nat64 = (!random.one_in(3)).then(|| draw_nat64(random, side));
    }
    let six = policy.nat64.is_some() && random.one_in(2);
    policy.statics = statics(side, if static_rules { random.below(4) } else { 0 }, six);
    policy.pools[0].ranges = ranges(side, random.below(3));
    if random.one_in(6) {
        policy.assignment = draw_assignment(random);
    }
    if random.one_in(6) {
        policy.pooling = [Pooling::Paired, Pooling::Arbitrary][random.below(2)];
    }
    if random.one_in(6) {
        policy.pools[0].port_last = [2_255, 2_511][random.below(2)];
    }
    if random.one_in(6) {
        policy.port_hold_s = [30, 120][random.below(2)];
    }
}
