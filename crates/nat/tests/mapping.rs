//! Mapping behaviour: who gets which outside endpoint (RFC 4787 §4, RFC 5382 §4, RFC 5508 §3, RFC 7857 §3 to §6).

mod common;
use common::*;

/// RFC 4787 REQ-1, RFC 5382 REQ-1, RFC 5508 REQ-1: one outside endpoint for all destinations.
#[test]
fn mapping_is_the_same_for_all_destinations() {
    let mut w = world(instance());
    let first = w.udp_out("10.0.0.1:1000", "198.51.100.1:53").unwrap();
    assert_eq!(w.udp_out("10.0.0.1:1000", "198.51.100.2:54"), Ok(first));
    let first = w.tcp_out("10.0.0.1:1000", "198.51.100.1:80", SYN).unwrap();
    assert_eq!(w.tcp_out("10.0.0.1:1000", "198.51.100.2:80", SYN), Ok(first));
    let first = w.ping_out("10.0.0.1:7", "198.51.100.1").unwrap();
    assert_eq!(w.ping_out("10.0.0.1:7", "198.51.100.2"), Ok(first));
    assert_eq!(w.mappings().len(), 3);
    check::invariants(&mut w);
}
