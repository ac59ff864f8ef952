//! Filtering and refresh (RFC 4787 §4.3 and §5, RFC 5382 §4.3, RFC 6888 REQ-7, RFC 7857 §6 and §7).

mod common;

use carrack_base::{Proto, Reason};
use carrack_nat::policy::{Filtering, Instance};
use common::*;

fn filtering(udp: Filtering, tcp: Filtering) -> Instance {
    instance_with(|i| {
        i.filtering[Proto::Udp.index()] = udp;
        i.filtering[Proto::Tcp.index()] = tcp;
    })
}

/// RFC 4787 REQ-8, RFC 6888 REQ-7: endpoint-independent filtering admits everybody; an address without mapping
/// nobody.
#[test]
fn independent_filter_admits_everybody() {
    let mut w = world(instance());
    let outside = w.udp_out("10.0.0.1:1000", "198.51.100.1:53").unwrap();
    assert_eq!(w.udp_in("203.0.113.77:9", outside), Ok(e("10.0.0.1:1000")));
    let other = carrack_nat::row::Endpoint { port: outside.port ^ 1, ..outside };
    assert_eq!(w.udp_in("198.51.100.1:53", other), Err(Reason::NatNoMapping));
    // The new session works both ways at once.
    assert_eq!(w.udp_out("10.0.0.1:1000", "203.0.113.77:9"), Ok(outside));
    assert_eq!(w.session_count(), 2);
}

/// RFC 4787 REQ-8, REQ-8a: the address-dependent option admits any port of an address sent to, and no other.
#[test]
fn address_dependent_filter_admits_addresses_sent_to() {
    let mut w = world(filtering(Filtering::AddressDependent, Filtering::EndpointIndependent));
    let outside = w.udp_out("10.0.0.1:1000", "198.51.100.1:53").unwrap();
    assert_eq!(w.udp_in("198.51.100.1:99", outside), Ok(e("10.0.0.1:1000")));
    assert_eq!(w.udp_in("198.51.100.2:53", outside), Err(Reason::NatFiltered));
    assert_eq!(w.udp_out("10.0.0.1:1000", "198.51.100.2:7"), Ok(outside));
    assert_eq!(w.udp_in("198.51.100.2:53", outside), Ok(e("10.0.0.1:1000")));
    // Another mapping of the same subscriber has permissions of its own.
    let second = w.udp_out("10.0.0.1:1001", "198.51.100.3:53").unwrap();
    assert_eq!(w.udp_in("198.51.100.1:53", second), Err(Reason::NatFiltered));
    w.wait(301);
    check::empty(&mut w);
}

/// RFC 4787 REQ-8, REQ-8a: the address-and-port-dependent option admits only endpoints sent to.
#[test]
fn port_dependent_filter_admits_endpoints_sent_to() {
    let mut w = world(filtering(Filtering::AddressAndPortDependent, Filtering::EndpointIndependent));
    let outside = w.udp_out("10.0.0.1:1000", "198.51.100.1:53").unwrap();
    assert_eq!(w.udp_in("198.51.100.1:99", outside), Err(Reason::NatFiltered));
    assert_eq!(w.udp_in("198.51.100.1:53", outside), Ok(e("10.0.0.1:1000")));
}

/// RFC 5382 REQ-3, REQ-3a, REQ-3b: TCP's filter is set apart from UDP's; RFC 7857 §6: a filter opened by
/// one protocol is closed to the other.
#[test]
fn filters_of_protocols_are_apart() {
    let mut w = world(filtering(Filtering::EndpointIndependent, Filtering::AddressAndPortDependent));
    let udp = w.udp_out("10.0.0.1:1000", "198.51.100.1:53").unwrap();
    let tcp = w.connect("10.0.0.1:1000", "198.51.100.1:80");
    assert!(w.udp_in("203.0.113.9:9", udp).is_ok());
    assert_eq!(w.incoming(&frames::tcp(e("203.0.113.9:9"), tcp, SYN)), Outcome::Held);
    // The UDP mapping's port is closed to TCP.
    assert_eq!(w.tcp_in("198.51.100.1:53", udp, ACK), Err(Reason::NatTcpNoSession));
}

/// RFC 4787 REQ-5, REQ-5c: a mapping lives 119 s idle and by default 300 s, then is gone.
#[test]
fn udp_mapping_lives_five_minutes() {
    let mut w = world(instance());
    let outside = w.udp_out("10.0.0.1:1000", "198.51.100.1:53").unwrap();
    w.wait(119);
    assert!(w.udp_in("198.51.100.1:53", outside).is_ok());
    w.wait(299);
    assert!(w.udp_in("198.51.100.1:53", outside).is_ok());
    w.wait(302);
    assert_eq!(w.udp_in("198.51.100.1:53", outside), Err(Reason::NatNoMapping));
    check::empty(&mut w);
}

/// RFC 4787 REQ-5a: shorter only for the well-known destination ports that config names.
#[test]
fn named_destination_port_may_have_a_shorter_timer() {
    let mut w = world(instance_with(|i| i.timeouts.udp_port_s = vec![(53, 10)]));
    let dns = w.udp_out("10.0.0.1:1000", "198.51.100.1:53").unwrap();
    let other = w.udp_out("10.0.0.1:1001", "198.51.100.1:54").unwrap();
    w.wait(12);
    assert_eq!(w.udp_in("198.51.100.1:53", dns), Err(Reason::NatNoMapping));
    assert!(w.udp_in("198.51.100.1:54", other).is_ok());
}

/// RFC 4787 REQ-6, REQ-6a: outbound packets refresh; inbound ones as configured.
#[test]
fn inbound_refresh_is_a_choice() {
    for (refresh, alive) in [(true, true), (false, false)] {
        let mut w = world(instance_with(|i| i.inbound_refresh = [refresh; 3]));
        let outside = w.udp_out("10.0.0.1:1000", "198.51.100.1:53").unwrap();
        for _ in 0..3 {
            w.wait(200);
            let _ = w.udp_in("198.51.100.1:53", outside);
        }
        assert_eq!(w.session_count() > 0, alive, "inbound refresh {refresh}");
    }
    let mut w = world(instance_with(|i| i.inbound_refresh = [false; 3]));
    let outside = w.udp_out("10.0.0.1:1000", "198.51.100.1:53").unwrap();
    for _ in 0..3 {
        w.wait(200);
        assert_eq!(w.udp_out("10.0.0.1:1000", "198.51.100.1:53"), Ok(outside));
    }
}

/// RFC 7857 §7: what the filter refuses keeps nothing alive.
#[test]
fn filtered_packets_refresh_nothing() {
    let mut w = world(filtering(Filtering::AddressAndPortDependent, Filtering::EndpointIndependent));
    let outside = w.udp_out("10.0.0.1:1000", "198.51.100.1:53").unwrap();
    for _ in 0..4 {
        w.wait(100);
        let refused = w.udp_in("203.0.113.1:1", outside);
        assert!(matches!(refused, Err(Reason::NatFiltered | Reason::NatNoMapping)));
    }
    check::empty(&mut w);
}

/// A filter made stricter or looser by reload judges new senders and lets old sessions be.
#[test]
fn changed_filter_judges_new_senders_only() {
    let mut w = world(instance());
    let outside = w.udp_out("10.0.0.1:1000", "198.51.100.1:53").unwrap();
    let strict = filtering(Filtering::AddressDependent, Filtering::EndpointIndependent);
    assert_eq!(w.configure(vec![strict]), 0);
    assert!(w.udp_in("198.51.100.1:53", outside).is_ok());
    // It was sent to before the reload, which permits its address.
    assert!(w.udp_in("198.51.100.1:54", outside).is_ok());
    assert_eq!(w.udp_in("203.0.113.1:1", outside), Err(Reason::NatFiltered));
    assert_eq!(w.configure(vec![instance()]), 0);
    assert!(w.udp_in("203.0.113.1:1", outside).is_ok());
    w.wait(301);
    check::empty(&mut w);
}
