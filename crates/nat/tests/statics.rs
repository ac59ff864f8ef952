//! Static mappings: one to one, and port forwards.

mod common;

use carrack_base::{Proto, Reason};
use carrack_nat::Inside;
use carrack_nat::policy::StaticRule;
use common::*;

/// One to one: address for address in order, ports kept, all protocols, opened from either side; GRE too.
#[test]
fn one_to_one_keeps_ports_and_carries_everything() {
    for workers in [1, 3] {
        let it = instance_with(|i| i.statics = vec![one_to_one("10.0.1.0/28", "203.0.113.16/28")]);
        let mut w = World::new(vec![it], workers, SMALL);
        assert_eq!(w.udp_out("10.0.1.3:1000", "198.51.100.1:53"), Ok(e("203.0.113.19:1000")));
        assert_eq!(w.udp_in("198.51.100.9:5", e("203.0.113.19:1000")), Ok(e("10.0.1.3:1000")));
        assert_eq!(w.tcp_in("198.51.100.9:5", e("203.0.113.20:22"), SYN), Ok(e("10.0.1.4:22")));
        assert_eq!(w.tcp_out("10.0.1.4:22", "198.51.100.9:5", SYN | ACK), Ok(e("203.0.113.20:22")));
        assert_eq!(w.ping_out("10.0.1.5:77", "198.51.100.1"), Ok(e("203.0.113.21:77")));
        let ping = frames::echo(e("198.51.100.1:78"), addr("203.0.113.22"));
        assert_eq!(outer(&w.incoming(&ping).frame()).destination.ip, addr("10.0.1.6"));
        for protocol in [47, 50, 132, 33, 136] {
            let out = frames::raw(protocol, addr("10.0.1.7"), addr("198.51.100.1"));
            assert_eq!(w.send_out(&out), Ok(e("203.0.113.23")), "protocol {protocol}");
            let back = frames::raw(protocol, addr("198.51.100.1"), addr("203.0.113.23"));
            assert_eq!(w.send_in(&back), Ok(e("10.0.1.7")));
        }
        let gre = frames::raw(47, addr("198.51.100.2"), addr("203.0.113.24"));
        assert_eq!(w.send_in(&gre), Ok(e("10.0.1.8")));
        check::invariants(&mut w);
        assert_eq!(w.tcp_in("198.51.100.9:5", e("203.0.113.20:22"), RST), Ok(e("10.0.1.4:22")));
        w.wait(301);
        check::empty(&mut w);
    }
}

/// A segment that may not open makes no state on a one-to-one address either.
#[test]
fn one_to_one_opens_by_syn_only() {
    let mut w = world(instance_with(|i| i.statics = vec![one_to_one("10.0.1.0/28", "203.0.113.16/28")]));
    assert_eq!(w.tcp_in("198.51.100.9:5", e("203.0.113.20:22"), ACK), Err(Reason::NatTcpNoSession));
    let answer = frames::echo_reply(addr("198.51.100.1"), e("203.0.113.20:9"));
    assert_eq!(w.send_in(&answer), Err(Reason::NatNoMapping));
    check::empty(&mut w);
}

/// A full table refuses a one-to-one newcomer under its own name.
#[test]
fn one_to_one_meets_full_tables() {
    let it = instance_with(|i| i.statics = vec![one_to_one("10.0.1.0/28", "203.0.113.16/28")]);
    let mut w = World::new(vec![it], 1, carrack_nat::policy::Capacity { mappings: 2, ..SMALL });
    assert!(w.udp_in("198.51.100.9:5", e("203.0.113.16:1")).is_ok());
    assert!(w.udp_in("198.51.100.9:5", e("203.0.113.17:1")).is_ok());
    assert_eq!(w.udp_in("198.51.100.9:5", e("203.0.113.18:1")), Err(Reason::NatMappingTableFull));
    w.wait(301);
    check::empty(&mut w);
}

/// A forward serves its inside endpoint both ways, whatever the filter, and its port is nobody else's.
#[test]
fn forward_serves_both_ways() {
    for workers in [1, 3] {
        let it = instance_with(|i| {
            i.filtering = [carrack_nat::policy::Filtering::AddressAndPortDependent; 3];
            i.pools = vec![pool(0, &["192.0.2.1"], 1_024, 1_123)];
            i.statics = vec![
                forward(Proto::Tcp, "192.0.2.1:80", "10.0.0.9:8080"),
                forward(Proto::Udp, "192.0.2.1:1050", "10.0.0.9:53"),
                forward(Proto::Udp, "203.0.113.200:500", "10.0.0.8:500"),
            ];
        });
        let mut w = World::new(vec![it], workers, SMALL);
        assert_eq!(w.tcp_in("198.51.100.1:5", e("192.0.2.1:80"), SYN), Ok(e("10.0.0.9:8080")));
        assert_eq!(w.tcp_out("10.0.0.9:8080", "198.51.100.1:5", SYN | ACK), Ok(e("192.0.2.1:80")));
        assert_eq!(w.udp_in("198.51.100.1:5", e("192.0.2.1:1050")), Ok(e("10.0.0.9:53")));
        assert_eq!(w.udp_out("10.0.0.9:53", "198.51.100.7:7"), Ok(e("192.0.2.1:1050")));
        assert_eq!(w.udp_in("198.51.100.1:5", e("203.0.113.200:500")), Ok(e("10.0.0.8:500")));
        assert_eq!(w.udp_in("198.51.100.1:5", e("203.0.113.200:501")), Err(Reason::NatNoMapping));
        let mut seen = std::collections::HashSet::new();
        for n in 0..300 {
            if let Ok(outside) =
                w.udp_out(&format!("10.0.1.{}:7", n % 250), &format!("198.51.100.1:{}", n + 1))
            {
                assert_ne!(outside.port, 1_050);
                seen.insert(outside.port);
            }
        }
        check::invariants(&mut w);
        w.wait(7_441);
        check::empty(&mut w);
        assert_eq!(w.mappings().len(), 3);
        // Three kept ports at most are in use by nobody's session.
        assert!(w.pools().iter().flat_map(|p| p.ports_used).sum::<u32>() <= 1);
    }
}

/// A range of ports forwards one by one, in order.
#[test]
fn forwarded_range_keeps_its_order() {
    let mut w = world(instance_with(|i| {
        i.statics = vec![StaticRule::Forward {
            proto: Proto::Udp,
            outside: addr("192.0.2.1"),
            outside_port: 20_000,
            count: 100,
            inside: Inside::V4(addr("10.0.0.9")),
            inside_port: 6_000,
        }];
    }));
    for step in [0, 1, 57, 99] {
        let outside = carrack_nat::row::Endpoint { ip: addr("192.0.2.1"), port: 20_000 + step };
        let got = w.udp_in("198.51.100.1:5", outside).unwrap();
        assert_eq!((got.ip, got.port), (addr("10.0.0.9"), 6_000 + step));
    }
    assert_eq!(w.udp_in("198.51.100.1:5", e("192.0.2.1:20100")), Err(Reason::NatNoMapping));
}

/// Two forwards to one inside endpoint: a peer that talks through one cannot mix it up with the other.
#[test]
fn two_forwards_to_one_endpoint_never_mix() {
    let mut w = world(instance_with(|i| {
        i.statics = vec![
            forward(Proto::Udp, "192.0.2.1:1000", "10.0.0.9:53"),
            forward(Proto::Udp, "192.0.2.1:2000", "10.0.0.9:53"),
        ];
    }));
    assert!(w.udp_in("198.51.100.1:5", e("192.0.2.1:1000")).is_ok());
    assert_eq!(w.udp_in("198.51.100.1:5", e("192.0.2.1:2000")), Err(Reason::NatFiltered));
    assert_eq!(w.udp_out("10.0.0.9:53", "198.51.100.1:5"), Ok(e("192.0.2.1:1000")));
    assert!(w.udp_in("198.51.100.1:6", e("192.0.2.1:2000")).is_ok());
    assert_eq!(w.udp_out("10.0.0.9:53", "198.51.100.1:6"), Ok(e("192.0.2.1:2000")));
}
