//! Where packets go, and who is told when they go nowhere.

mod common;

use carrack_base::{IfIndex, Reason};
use carrack_pipeline::snapshot::{NextHop, Policer, Snapshot};
use common::*;

fn without_default(s: &mut Snapshot) {
    s.routes.retain(|r| !r.prefix.is_default());
}

fn with_route(s: &mut Snapshot, to: &str, next_hop: NextHop) {
    s.routes.push(route(0, to, next_hop));
}

/// RFC 1812 §5.2.7.1: no route is 3/0, by the address of the interface the packet came from.
#[test]
fn no_route_tells_the_sender_net_unreachable() {
    let mut world = world_with(without_default);
    let frame = udp(TAGGED, "172.16.0.5:1000", "8.8.8.8:53");
    let sent = world.send_dropped(TAGGED, &frame, Reason::NoRoute);
    assert_eq!(sent.len(), 1);
    assert_eq!((sent[0].port, sent[0].icmp()), (TAGGED, (3, 0)));
    assert_eq!(sent[0].addresses(), ("172.16.0.1".into(), "172.16.0.5".into()));
    assert_eq!(sent[0].quoted(), &frame[14..]);
}

/// The error about a packet that no route leads on speaks the subscriber's addresses.
#[test]
fn no_route_behind_the_nat_shows_the_subscriber_its_own_packet() {
    let mut world = world_with(without_default);
    let sent = world.send_dropped(IN, &udp(IN, "10.0.0.5:1000", "8.8.8.8:53"), Reason::NoRoute);
    assert_eq!(sent.len(), 1);
    assert_eq!((sent[0].port, sent[0].icmp()), (IN, (3, 0)));
    assert_eq!(sent[0].addresses(), ("10.0.0.1".into(), "10.0.0.5".into()));
    assert_eq!(sent[0].quoted_flow(), "10.0.0.5:1000>8.8.8.8:53");
}

#[test]
fn blackhole_is_silent_and_prohibit_is_not() {
    let mut world = world_with(|s| {
        with_route(s, "198.18.0.0/16", NextHop::Blackhole);
        with_route(s, "198.19.0.0/16", NextHop::Prohibit);
    });
    world.dropped(IN, &udp(IN, "10.0.0.5:1000", "198.18.0.1:53"), Reason::RouteBlackhole);
    let frame = udp(IN, "10.0.0.5:1000", "198.19.0.1:53");
    let sent = world.send_dropped(IN, &frame, Reason::RouteProhibit);
    assert_eq!((sent.len(), sent[0].icmp()), (1, (3, 13)));
    assert_eq!(sent[0].quoted_flow(), "10.0.0.5:1000>198.19.0.1:53");
}

/// A packet that is dropped for its route takes neither a session nor a port.
#[test]
fn what_no_route_leads_on_makes_no_session() {
    let mut world = world_with(|s| {
        without_default(s);
        with_route(s, "198.18.0.0/16", NextHop::Blackhole);
        with_route(s, "198.19.0.0/16", NextHop::Prohibit);
    });
    world.send_dropped(IN, &udp(IN, "10.0.0.5:1000", "8.8.8.8:53"), Reason::NoRoute);
    world.send_dropped(IN, &udp(IN, "10.0.0.5:1000", "198.18.0.1:53"), Reason::RouteBlackhole);
    world.send_dropped(IN, &udp(IN, "10.0.0.5:1000", "198.19.0.1:53"), Reason::RouteProhibit);
    assert_eq!(world.sessions(), 0);
    assert!(world.workers.iter().all(|worker| worker.nat().subscriber_count() == 0));
}

/// RFC 3704 §2.2, and no error reaches the owner of a forged address.
#[test]
fn urpf_refuses_sources_that_live_elsewhere_in_silence() {
    let mut world = world_with(|s| on(s, IF_IN, |i| i.urpf = true));
    world.pass(IN, &udp(IN, "10.0.0.5:1000", "198.51.100.7:53"));
    world.dropped(IN, &udp(IN, "10.1.0.5:1000", "198.51.100.7:53"), Reason::UrpfFailed);
    world.dropped(IN, &udp(IN, "198.51.100.7:1000", "203.0.113.1:53"), Reason::UrpfFailed);
    let dying = packet(IN, "10.1.0.5", "198.51.100.7").ttl(1).udp(1, 2).build();
    world.dropped(IN, &dying, Reason::UrpfFailed);
    assert_eq!(world.sessions(), 1);
}

/// Nobody outside reaches a subscriber past the NAT.
#[test]
fn untranslated_from_outside_to_a_subscriber_is_refused() {
    let mut world = world();
    let frame = udp(OUT, "198.51.100.7:53", "10.0.0.5:1000");
    let sent = world.send_dropped(OUT, &frame, Reason::NotForwarding);
    assert_eq!((sent.len(), sent[0].port, sent[0].icmp()), (1, OUT, (3, 13)));
}

/// RFC 6888 REQ-6: exempt destinations pass untranslated, both ways.
#[test]
fn exempt_destinations_pass_untranslated_both_ways() {
    let mut world = world();
    let out = world.pass(IN, &udp(IN, "10.0.0.5:1000", "203.0.113.9:53"));
    assert_eq!((out.src(), out.port), ("10.0.0.5:1000".into(), OUT));
    let back = world.pass(OUT, &udp(OUT, "203.0.113.9:53", "10.0.0.5:1000"));
    assert_eq!((back.dst(), back.port), ("10.0.0.5:1000".into(), IN));
    assert_eq!(world.sessions(), 0);
}

#[test]
fn public_inside_addresses_that_no_instance_serves_are_denied_outward() {
    let mut world = world();
    let frame = udp(IN, "100.99.0.5:1000", "198.51.100.7:53");
    world.new_drops();
    let sent = world.send(IN, &frame);
    // The way back to that address leads outside: the error goes where the route says.
    assert_eq!(world.new_drops(), [(Reason::NatSubscriberDenied, 1)]);
    assert!(sent.iter().all(|s| s.icmp() == (3, 13)));
    assert_eq!(world.sessions(), 0);
}

#[test]
fn plain_interfaces_are_routed_without_a_nat() {
    let mut world = world();
    let sent = world.pass(TAGGED, &udp(TAGGED, "172.16.0.5:1000", "198.51.100.7:53"));
    assert_eq!((sent.src(), sent.port), ("172.16.0.5:1000".into(), OUT));
    let back = world.pass(OUT, &udp(OUT, "198.51.100.7:53", "172.16.0.5:1000"));
    assert_eq!((back.dst(), back.port), ("172.16.0.5:1000".into(), TAGGED));
}

/// RFC 1812 §4.3.2.8, RFC 5508 REQ-10f.
#[test]
fn icmp_errors_are_rate_limited() {
    let mut world = world_with(|s| {
        without_default(s);
        s.policers.icmp_errors = Policer { rate_pps: 100, burst: 10 };
    });
    let frame = udp(TAGGED, "172.16.0.5:1000", "8.8.8.8:53");
    let sent = world.burst(TAGGED, &vec![frame; 64]);
    assert_eq!(sent.len(), 10);
    assert_eq!(world.new_drops(), [(Reason::NoRoute, 64)]);
}

/// RFC 1812 §4.3.2.7: no error about errors, about what was sent to many, about later fragments, to nobody.
#[test]
fn no_error_about_errors_and_fragments() {
    let mut world = world_with(without_default);
    let inner = udp(TAGGED, "8.8.8.8:53", "172.16.0.5:1000");
    world.dropped(TAGGED, &icmp_error(TAGGED, "172.16.0.5", "8.8.8.8", 3, 3, &inner[14..]), Reason::NoRoute);
    let pieces = fragments(TAGGED, "172.16.0.5:1000", "8.8.8.8:53", 1, 2_000, 1_480);
    world.dropped(TAGGED, &pieces[1], Reason::NoRoute);
    assert_eq!(world.send_dropped(TAGGED, &pieces[0], Reason::NoRoute).len(), 1);
    let query = world.send_dropped(TAGGED, &ping(TAGGED, "172.16.0.5:1", "8.8.8.8"), Reason::NoRoute);
    assert_eq!(query.len(), 1, "about a query there is");
}

#[test]
fn a_route_through_a_gateway_goes_to_the_gateways_mac() {
    let mut world = world_with(|s| {
        with_route(s, "10.9.0.0/16", NextHop::Gateway(IfIndex(IF_VLAN), ip("10.1.0.5")));
    });
    let sent = world.pass(IN, &udp(IN, "10.0.0.5:1000", "10.9.1.1:53"));
    assert_eq!((sent.tags.as_slice(), sent.to), (&[100][..], mac_of(ip("10.1.0.5")).0));
}

/// RFC 1812 §4.2.2.11, §5.3.5.2: directed broadcasts are not forwarded, nor is anybody told.
#[test]
fn a_subnets_own_and_broadcast_address_are_nobody_to_forward_to() {
    let mut world = world();
    for to in ["10.0.0.0:53", "10.0.255.255:53", "198.51.100.255:53"] {
        world.dropped(TAGGED, &udp(TAGGED, "172.16.0.5:1000", to), Reason::Ipv4DestinationInvalid);
    }
}
