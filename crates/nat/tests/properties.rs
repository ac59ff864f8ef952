//! Random operations keep every invariant, and time takes everything back.

mod common;

use carrack_base::{InstanceId, Proto, VrfId};
use carrack_nat::policy::{Assignment, Filtering, Instance, Mapping, Pooling};
use carrack_nat::row::{Endpoint, SessionKey};
use common::*;
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Step {
    Out { proto: u8, host: u8, port: u8, remote: u8, flags: u8 },
    In { proto: u8, from: u8, mapping: usize, flags: u8 },
    Answer { session: usize, flags: u8 },
    Stranger { address: u8, port: u16, proto: u8 },
    Error { session: usize, inward: bool },
    Hairpin { host: u8, mapping: usize },
    Delete { session: usize },
    Wait { seconds: u16 },
    Configure { which: u8 },
}

fn step() -> impl Strategy<Value = Step> {
    let flags = prop::sample::select(vec![SYN, SYN | ACK, ACK, FIN | ACK, RST]);
    prop_oneof![
        12 => (0..3u8, 0..12u8, 0..40u8, 0..4u8, flags.clone())
            .prop_map(|(proto, host, port, remote, flags)| Step::Out { proto, host, port, remote, flags }),
        4 => (0..3u8, 0..4u8, any::<usize>(), flags.clone())
            .prop_map(|(proto, from, mapping, flags)| Step::In { proto, from, mapping, flags }),
        4 => (any::<usize>(), flags).prop_map(|(session, flags)| Step::Answer { session, flags }),
        2 => (0..8u8, any::<u16>(), 0..3u8)
            .prop_map(|(address, port, proto)| Step::Stranger { address, port, proto }),
        1 => (any::<usize>(), any::<bool>()).prop_map(|(session, inward)| Step::Error { session, inward }),
        2 => (0..12u8, any::<usize>()).prop_map(|(host, mapping)| Step::Hairpin { host, mapping }),
        1 => any::<usize>().prop_map(|session| Step::Delete { session }),
        2 => prop::sample::select(vec![1u16, 5, 30, 90, 250]).prop_map(|seconds| Step::Wait { seconds }),
        1 => (0..6u8).prop_map(|which| Step::Configure { which }),
    ]
}

/// Policies that a scenario switches between.
fn policy(which: u8) -> Instance {
    instance_with(|i| {
        i.pools = vec![pool(0, &["192.0.2.0/30"], 2_000, 2_127), pool(1, &["203.0.113.4/31"], 2_000, 2_127)];
        i.limits.ports_max = 60;
        i.statics = vec![
            forward(Proto::Udp, "192.0.2.1:2010", "10.0.0.2:7"),
            forward(Proto::Tcp, "192.0.2.2:80", "10.0.0.3:8"),
            one_to_one("10.0.0.4", "198.18.0.1"),
        ];
        let blocks = Assignment::Blocks { size: 16, per_subscriber_max: 4, idle_release_s: 100 };
        match which {
            0 => i.filtering = [Filtering::AddressDependent; 3],
            1 => {
                i.assignment = blocks;
                i.parity = true;
            }
            2 => {
                i.assignment = blocks;
                i.pools.truncate(1);
                i.statics.clear();
            }
            3 => {
                i.mapping = [Mapping::AddressAndPortDependent; 3];
                i.pooling = Pooling::Arbitrary;
            }
            4 => {
                i.assignment = Assignment::Deterministic { ports_per_subscriber: 32, overflow: None };
                i.subscribers = vec![net("10.0.0.0/28")];
            }
            _ => {
                i.pools.remove(0);
                i.contiguity = true;
                i.statics.remove(0);
                i.port_hold_s = 30;
            }
        }
    })
}

fn remote(n: u8) -> Endpoint {
    Endpoint { ip: addr("198.51.100.1") + u32::from(n / 2), port: 50 + u16::from(n % 2) }
}

fn packet_of(proto: Proto, src: Endpoint, dst: Endpoint, flags: u8, is_reply: bool) -> Vec<u8> {
    match proto {
        Proto::Tcp => frames::tcp(src, dst, flags),
        Proto::Udp => frames::udp(src, dst),
        Proto::Icmp if is_reply => frames::echo_reply(src.ip, dst),
        Proto::Icmp => frames::echo(Endpoint { port: src.port | dst.port, ..src }, dst.ip),
        Proto::Other => frames::raw(47, src.ip, dst.ip),
    }
}

fn run(w: &mut World, step: &Step) {
    match *step {
        Step::Out { proto, host, port, remote: to, flags } => {
            let src = Endpoint { ip: addr("10.0.0.1") + u32::from(host), port: u16::from(port) };
            let to = remote(to);
            let dst = if proto == 2 { Endpoint { port: 0, ..to } } else { to };
            w.out(&packet_of(Proto::from_index(proto), src, dst, flags, false));
        }
        Step::In { proto, from, mapping, flags } => {
            let rows = w.mappings();
            if let Some(row) = rows.get(mapping % rows.len().max(1)) {
                let _ = proto;
                w.incoming(&packet_of(row.proto, remote(from), row.outside, flags, false));
            }
        }
        Step::Answer { session, flags } => {
            let rows = w.sessions();
            if let Some(row) = rows.get(session % rows.len().max(1)) {
                let got = w.incoming(&packet_of(row.proto, row.remote, row.outside, flags, true));
                // What a session was made for always passes, to the right host.
                assert_eq!(outer(&got.frame()).destination, row.inside.v4().unwrap());
            }
        }
        Step::Stranger { address, port, proto } => {
            let dst = Endpoint { ip: addr("192.0.2.0") + u32::from(address), port };
            w.incoming(&packet_of(Proto::from_index(proto), remote(0), dst, SYN, false));
        }
        Step::Error { session, inward } => {
            let rows = w.sessions();
            let Some(row) = rows.get(session % rows.len().max(1)) else { return };
            if inward {
                let about = packet_of(row.proto, row.outside, row.remote, ACK, false);
                w.incoming(&frames::icmp_error(3, 1, addr("203.0.113.254"), row.outside.ip, &about, 99))
                    .frame();
            } else {
                let about = packet_of(row.proto, row.remote, row.inside.v4().unwrap(), ACK, true);
                w.out(&frames::icmp_error(3, 1, row.inside.v4().unwrap().ip, row.remote.ip, &about, 99));
            }
        }
        Step::Hairpin { host, mapping } => {
            let rows = w.mappings();
            if let Some(row) = rows.get(mapping % rows.len().max(1)) {
                let src = Endpoint { ip: addr("10.0.0.1") + u32::from(host), port: 999 };
                w.out(&packet_of(
                    row.proto,
                    src,
                    Endpoint { port: row.outside.port, ..row.outside },
                    SYN,
                    false,
                ));
            }
        }
        Step::Delete { session } => {
            let rows = w.sessions();
            if let Some(row) = rows.get(session % rows.len().max(1)) {
                let (inside, remote) = (row.inside, row.remote);
                let key = SessionKey { instance: InstanceId(0), proto: row.proto, inside, remote };
                let at = w.nats[0].directory().owner_of_inside(VrfId(0), inside.v4().unwrap().ip).index();
                let now = w.now;
                assert_eq!(w.nats[at].delete(&[key], now), 1);
            }
        }
        Step::Wait { seconds } => {
            w.wait(u64::from(seconds));
            w.overdue();
        }
        Step::Configure { which } => {
            w.configure(vec![policy(which)]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// RFC 4787 REQ-3 and the sums of all counts hold after every step; in the end nothing is used.
    #[test]
    fn random_operations_keep_the_invariants(
        first in 0..6u8,
        workers in 1..4u8,
        steps in prop::collection::vec(step(), 1..150),
    ) {
        let mut w = World::new(vec![policy(first)], workers, SMALL);
        for step in &steps {
            run(&mut w, step);
            check::invariants(&mut w);
        }
        w.wait(7_441 + 250);
        w.overdue();
        check::empty(&mut w);
    }
}
