//! Sessions made many at a time are those that would have been made one by one.

mod common;

use carrack_alg::Protocol;
use carrack_base::{Family, InstanceId, Proto, VrfId};
use carrack_nat::nat64::{Nat64, Nat64Prefix, NatPrefix};
use carrack_nat::policy::{
    Assignment, BlockRules, Capacity, Filtering, Instance, Limits, Logged, Mapping, Overflow, Pooling,
    StaticRule,
};
use carrack_nat::{Direction, Flow, Rng, Verdict};
use common::*;

/// Not the well-known one, which may not stand for the addresses of these tests (RFC 6052 §3.1).
const PREFIXES: [&str; 2] = ["2001:db8:64::/96", "2001:db8:65::/96"];

/// One of these.
fn one<T: Clone>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.below(of.len())].clone()
}

/// Any policy, with so little of everything that all of it runs out.
fn any_policy(rng: &mut Rng) -> Instance {
    let blocks = BlockRules { size: 8, per_subscriber_max: 2, idle_release_s: one(rng, &[0, 5]) };
    let BlockRules { size, per_subscriber_max, idle_release_s } = blocks;
    let overflow = one(rng, &[None, Some(Overflow { ports: 256, blocks })]);
    let mut it = instance();
    it.subscribers = vec![net("10.0.0.0/28")];
    it.pools = vec![pool(0, &["192.0.2.1", "192.0.2.4"], 2_048, 2_560 - 1)];
    it.assignment = one(
        rng,
        &[
            Assignment::Blocks { size, per_subscriber_max, idle_release_s },
            Assignment::Blocks { size, per_subscriber_max, idle_release_s },
            Assignment::Arbitrary,
            Assignment::Deterministic { ports_per_subscriber: 16, overflow },
        ],
    );
    it.pooling = one(rng, &[Pooling::Paired, Pooling::Paired, Pooling::Arbitrary]);
    for proto in 0..3 {
        let dependent = Mapping::AddressAndPortDependent;
        it.mapping[proto] =
            one(rng, &[Mapping::default(), Mapping::default(), Mapping::default(), dependent]);
        it.filtering[proto] = one(rng, &[Filtering::default(), Filtering::AddressDependent]);
        it.inbound_refresh[proto] = one(rng, &[true, false]);
    }
    (it.parity, it.contiguity) = (rng.below(8) == 0, rng.below(8) == 0);
    it.hairpinning = rng.below(3) > 0;
    it.tcp_loose = rng.below(3) == 0;
    it.port_hold_s = one(rng, &[0, 7]);
    it.exempt = one(rng, &[vec![], vec![net("198.51.100.2/32")]]);
    it.logged = one(rng, &[Logged::Blocks, Logged::Mappings, Logged::Sessions, Logged::Destinations]);
    it.gateways = one(rng, &[vec![], vec![Protocol::Ftp]]);
    it.limits = Limits {
        sessions_max: one(rng, &[0, 0, 9]),
        ports_max: one(rng, &[0, 0, 6]),
        // Eight are a block's.
        ports_by_proto_max: [one(rng, &[0, 0, 4, 8]), one(rng, &[0, 0, 8]), 0],
        creations_per_s: one(rng, &[0, 0, 2]),
        creations_burst: 5,
        sessions_per_mapping_max: one(rng, &[0, 0, 3]),
        mappings_threshold: one(rng, &[0, 4]),
        paired_mappings_threshold: one(rng, &[0, 3]),
    };
    it.timeouts.udp_s = one(rng, &[6, 20]);
    it.timeouts.udp_port_s = one(rng, &[vec![], vec![(53, 3)]]);
    (it.timeouts.tcp_opening_s, it.timeouts.tcp_established_s) = (5, 15);
    if rng.below(3) == 0 {
        it.statics.push(one_to_one("10.0.0.3", "192.0.2.9"));
    }
    if rng.below(3) == 0 {
        it.statics.push(forward(Proto::Udp, "192.0.2.1:2050", "10.0.0.5:1002"));
    }
    if rng.below(6) == 0 {
        // Blocks that have no port for a mapping.
        for address in ["192.0.2.1", "192.0.2.4"] {
            let mut rule = forward(Proto::Tcp, &format!("{address}:2064"), "10.0.0.9:2000");
            if let StaticRule::Forward { count, .. } = &mut rule {
                *count = 200;
            }
            it.statics.push(rule);
        }
    }
    if !matches!(it.assignment, Assignment::Deterministic { .. }) {
        let prefix = |text: &&str| NatPrefix::new(text.parse().unwrap()).unwrap();
        let entries = (1..).zip(&PREFIXES).map(|(via, text)| Nat64Prefix { via, prefix: prefix(text) });
        it.nat64 = Some(Nat64 {
            prefixes: entries.take(one(rng, &[1, 2])).collect(),
            subscribers: vec!["2001:db8::/120".parse().unwrap()],
            subscriber_len: one(rng, &[128, 126]),
            rules: Default::default(),
        });
    }
    it
}

/// Tables that are large enough, or that some of the hosts find full.
fn any_capacity(rng: &mut Rng) -> Capacity {
    Capacity {
        sessions: one(rng, &[SMALL.sessions, SMALL.sessions, 48]),
        mappings: one(rng, &[SMALL.mappings, SMALL.mappings, 40]),
        subscribers: one(rng, &[SMALL.subscribers, SMALL.subscribers, 6]),
        hosts: one(rng, &[SMALL.hosts, SMALL.hosts, 4]),
        ..SMALL
    }
}

fn any_flow(rng: &mut Rng, has_six: bool) -> Flow {
    let proto = one(rng, &[Proto::Udp, Proto::Udp, Proto::Tcp]);
    // Some have so many that their blocks fill up.
    let host = if rng.below(2) == 0 { rng.below(18) as u32 } else { 5 };
    let remotes = ["198.51.100.1", "198.51.100.2", "198.51.100.3", "192.0.2.1", "192.0.2.9", "10.9.9.9"];
    let remote = addr(one(rng, &remotes));
    let flow = Flow {
        sport: 1_000 + rng.below(14) as u16,
        dport: one(rng, &[21, 53, 80, 2_050]),
        proto,
        ip_proto: if proto == Proto::Tcp { 6 } else { 17 },
        bits: if proto == Proto::Tcp { one(rng, &[SYN, SYN, SYN, ACK]) } else { 0 },
        l3: 14,
        l4: 34,
        ..Flow::default()
    };
    if has_six && rng.below(3) == 0 {
        let six = |text: &str| u128::from(text.parse::<std::net::Ipv6Addr>().unwrap());
        let prefix = six(one(rng, &["2001:db8:64::", "2001:db8:64::", "2001:db8:65::"]));
        let (src6, dst6) = (six("2001:db8::") + u128::from(host), prefix + u128::from(remote));
        return Flow { family: Family::V6, src6, dst6, ..flow };
    }
    Flow { src: addr("10.0.0.0") + host, dst: remote, ..flow }
}

/// What became of a packet, both ways of handling it alike.
fn outcome(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Translated { hairpin, vrf, .. } | Verdict::Crosses { hairpin, vrf, .. } => {
            format!("on {hairpin} {vrf:?}")
        }
        other => format!("{other:?}"),
    }
}

#[test]
fn sessions_made_many_at_a_time_are_those_made_one_by_one() {
    let (mut many, mut of_six) = (0, 0);
    for seed in 1..1_000 {
        let mut rng = Rng::new(seed);
        let policy = any_policy(&mut rng);
        let has_six = policy.nat64.is_some();
        let capacity = any_capacity(&mut rng);
        let [mut alone, mut together] = [(); 2].map(|()| World::new(vec![policy.clone()], 1, capacity));
        for _ in 0..12 {
            let routed = alone.routed_outside;
            let flows: Vec<Flow> = (0..rng.below(48)).map(|_| any_flow(&mut rng, has_six)).collect();
            let admitted = flows.into_iter().filter_map(|mut flow| {
                let is_admitted = alone.nats[0].admit(&mut flow).is_ok();
                is_admitted.then(|| (flow, alone.nats[0].hash(&flow, Direction::Out)))
            });
            let flows: Vec<(Flow, u64)> = admitted.collect();

            let (nat, now) = (&mut alone.nats[0], alone.now);
            let one_by_one: Vec<String> = flows
                .iter()
                .map(|(flow, hash)| {
                    let verdict =
                        nat.process(flow, Direction::Out, *hash, LOOK_UP, &mut [], now, |vrf, ip| {
                            routed(vrf, ip)
                        });
                    outcome(&verdict)
                })
                .collect();
            nat.settle();

            let nat = &mut together.nats[0];
            flows.iter().for_each(|(flow, hash)| assert!(nat.expect_session(*flow, *hash)));
            let mut opened = vec![];
            nat.open_expected(now, |_, vrf, ip| routed(vrf, ip), |at, result| opened.push((at, result)));
            assert!(opened.iter().map(|(at, _)| *at).eq(0..flows.len()), "each is told once, in order");
            for ((flow, hash), ((_, opened), alone)) in flows.iter().zip(opened.iter().zip(&one_by_one)) {
                let verdict = match opened {
                    Ok(line) => {
                        nat.process(flow, Direction::Out, *hash, *line, &mut [], now, |_, _| unreachable!())
                    }
                    Err(Some(reason)) => Verdict::Drop(*reason),
                    Err(None) => Verdict::Untouched,
                };
                assert_eq!(outcome(&verdict), *alone, "seed {seed}: {flow:?} under {policy:?}");
                many += usize::from(opened.is_ok());
                of_six += usize::from(opened.is_ok() && flow.is_six());
            }
            nat.settle();

            assert_eq!(alone.sessions(), together.sessions(), "seed {seed} under {policy:?}");
            assert_eq!(alone.mappings(), together.mappings(), "seed {seed} under {policy:?}");
            assert_eq!(alone.subscribers(), together.subscribers(), "seed {seed} under {policy:?}");
            assert_eq!(alone.pools(), together.pools(), "seed {seed} under {policy:?}");
            let used =
                |world: &World| world.nats[0].memory().iter().map(|row| (row.table, row.used)).collect();
            let used: [Vec<_>; 2] = [&alone, &together].map(used);
            assert_eq!(used[0], used[1], "seed {seed} under {policy:?}");
            let wait = rng.below(4) as u64;
            alone.wait(wait);
            together.wait(wait);
            assert_eq!(alone.events, together.events, "seed {seed} under {policy:?}");
        }
        check::invariants(&mut together);
        together.wait(60);
        check::empty(&mut together);
    }
    assert!(many > 20_000 && of_six > 2_000, "only {many} sessions were made, {of_six} of IPv6 hosts");
}

#[test]
fn a_full_burst_takes_no_more() {
    let mut w = world(instance());
    let flow =
        Flow { src: addr("10.0.0.1"), dst: addr("198.51.100.1"), proto: Proto::Udp, ..Flow::default() };
    let hash = w.nats[0].hash(&flow, Direction::Out);
    let taken = (0..1_000).take_while(|_| w.nats[0].expect_session(flow, hash)).count();
    assert_eq!(taken, carrack_base::BURST_PACKETS_MAX);
    let mut lines = vec![];
    w.nats[0].open_expected(w.now, |_, _, _| true, |_, opened| lines.push(opened));
    assert_eq!(lines.len(), taken);
    assert!(lines.iter().all(|line| *line == lines[0] && line.is_ok()), "one session for all of them");
    assert!(w.nats[0].expect_session(Flow { vrf: VrfId(0), ..flow }, hash), "there is room again");
}

#[test]
fn who_is_known_by_another_instances_rule_belongs_to_the_one_whose_ports_it_takes() {
    let other = Instance {
        id: InstanceId(1),
        name: "other".into(),
        subscribers: vec![net("10.9.0.0/28")],
        pools: vec![pool(1, &["192.0.2.65", "192.0.2.66"], 1_024, 65_535)],
        statics: vec![forward(Proto::Udp, "192.0.2.65:80", "10.0.0.5:80")],
        ..instance()
    };
    let opened = |together: bool| {
        let mut w = World::new(vec![instance(), other.clone()], 1, SMALL);
        assert_eq!(w.udp_in("198.51.100.9:5", e("192.0.2.65:80")), Ok(e("10.0.0.5:80")));
        assert_eq!(w.subscribers()[0].instance, InstanceId(1));
        let flow = Flow {
            src: addr("10.0.0.5"),
            sport: 1_000,
            dst: addr("198.51.100.7"),
            dport: 53,
            proto: Proto::Udp,
            ip_proto: 17,
            ..Flow::default()
        };
        let (nat, now) = (&mut w.nats[0], w.now);
        let hash = nat.hash(&flow, Direction::Out);
        if together {
            assert!(nat.expect_session(flow, hash));
            nat.open_expected(now, |_, _, _| true, |_, opened| assert!(opened.is_ok()));
        }
        nat.process(&flow, Direction::Out, hash, LOOK_UP, &mut [], now, |_, _| true);
        nat.settle();
        w.wait(1);
        (w.subscribers(), w.sessions(), w.events)
    };
    let (subscribers, sessions, events) = opened(true);
    assert_eq!((subscribers[0].instance, sessions.len()), (InstanceId(0), 2));
    assert_eq!((subscribers, sessions, events), opened(false));
}
