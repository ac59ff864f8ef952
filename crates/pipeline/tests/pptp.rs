//! PPTP from wire to wire: calls of several hosts to one server, each by the number its end of the call gave it (RFC 2637).

mod common;

use carrack_alg::Protocol;
use carrack_base::Reason;
use carrack_wire::TcpView;
use carrack_wire::ipv4::protocol::GRE;
use carrack_wire::tcp::flag;
use common::*;

const ACK: u8 = flag::ACK;
const SYN: u8 = flag::SYN;
const SERVER: &str = "198.51.100.7";
const CONTROL: &str = "198.51.100.7:1723";

fn with_pptp() -> World {
    workers_with_pptp(1)
}

fn workers_with_pptp(count: u8) -> World {
    World::new(count, SIZES, HANDOVER_SLOTS, |s| nat(s, |i| i.gateways = vec![Protocol::Pptp]))
}

fn segment(port: u16, src: &str, dst: &str, bits: u8, (seq, ack): (u32, u32), bytes: &[u8]) -> Vec<u8> {
    let ((a, sport), (b, dport)) = (e(src), e(dst));
    packet(port, a, b).tcp(sport, dport, bits).tcp_numbers(seq, ack).payload(bytes).build()
}

fn message(kind: u16, first: u16, second: u16) -> Vec<u8> {
    let head = [&[0, 20, 0, 1, 0x1a, 0x2b, 0x3c, 0x4d][..], &kind.to_be_bytes(), &[0; 2]].concat();
    [&head[..], &first.to_be_bytes(), &second.to_be_bytes(), &[1, 0, 0, 0]].concat()
}

/// Both numbers in a message that left.
fn numbers(sent: &Sent) -> (u16, u16) {
    let tcp = TcpView::parse(sent.l4()).unwrap();
    let word = |at: usize| u16::from_be_bytes([tcp.payload()[at], tcp.payload()[at + 1]]);
    (word(12), word(14))
}

/// A packet of a call.
fn gre(port: u16, src: &str, dst: &str, call: u16) -> Vec<u8> {
    let [high, low] = call.to_be_bytes();
    let body = [0x30, 0x01, 0x88, 0x0b, 0, 4, high, low, 0, 0, 0, 1, 0xff, 0x03, 0xc0, 0x21];
    packet(port, src, dst).protocol(GRE).payload(&body).build()
}

/// Addresses and call of one that left.
fn call_of(sent: &Sent) -> (String, String, u16) {
    let (src, dst) = sent.addresses();
    (src, dst, u16::from_be_bytes([sent.l4()[6], sent.l4()[7]]))
}

/// An inside host calls the server: its pool address, and the number that the server knows it by.
fn call(world: &mut World, host: &str, own: u16, remote: u16) -> (String, u16) {
    let client = format!("{host}:4000");
    let outside = world.pass(IN, &segment(IN, &client, CONTROL, SYN, (100, 0), b"")).src();
    world.pass(OUT, &segment(OUT, CONTROL, &outside, SYN | ACK, (500, 101), b""));
    world.pass(IN, &segment(IN, &client, CONTROL, ACK, (101, 501), b""));
    let request = segment(IN, &client, CONTROL, ACK, (101, 501), &message(7, own, 9));
    let (given, serial) = numbers(&world.pass(IN, &request));
    assert_eq!(serial, 9, "nothing else is touched");
    let reply = segment(OUT, CONTROL, &outside, ACK, (501, 121), &message(8, remote, given));
    assert_eq!(numbers(&world.pass(OUT, &reply)), (remote, own));
    (outside.split(':').next().unwrap().to_owned(), given)
}

/// RFC 2637 §3.2.2, §4.1.
#[test]
fn two_hosts_with_one_call_number_share_a_server() {
    for workers in [1, 3] {
        let mut world = workers_with_pptp(workers);
        let calls = [("10.0.0.5", 700), ("10.0.0.6", 701)].map(|(host, remote)| {
            let (outside, given) = call(&mut world, host, 1, remote);
            (host, remote, outside, given)
        });
        assert_ne!(calls[0].3, calls[1].3);
        for (host, remote, outside, given) in &calls {
            let out = world.pass(IN, &gre(IN, host, SERVER, *remote));
            assert_eq!(call_of(&out), (outside.clone(), SERVER.into(), *remote));
            let back = world.pass(OUT, &gre(OUT, SERVER, outside, *given));
            assert_eq!(call_of(&back), (SERVER.into(), (*host).into(), 1));
        }
    }
}

#[test]
fn nobody_else_and_no_other_call_gets_through() {
    let mut world = with_pptp();
    world.dropped(IN, &gre(IN, "10.0.0.5", SERVER, 700), Reason::NatProtocolUnsupported);
    let (outside, given) = call(&mut world, "10.0.0.5", 47, 700);
    world.dropped(OUT, &gre(OUT, "203.0.114.9", &outside, given), Reason::NatFiltered);
    world.dropped(OUT, &gre(OUT, SERVER, &outside, given ^ 1), Reason::NatNoMapping);
    world.dropped(IN, &gre(IN, "10.0.0.5", SERVER, 701), Reason::NatProtocolUnsupported);
    world.dropped(IN, &gre(IN, "10.0.0.6", SERVER, 700), Reason::NatProtocolUnsupported);
    let plain = packet(IN, "10.0.0.5", SERVER).protocol(GRE).payload(&[0, 0, 8, 0]).build();
    world.dropped(IN, &plain, Reason::NatProtocolUnsupported);
}

#[test]
fn a_call_stays_while_its_control_connection_does_and_ends_with_it() {
    let mut world = with_pptp();
    let (outside, given) = call(&mut world, "10.0.0.5", 1, 700);
    for turn in 0..10 {
        world.wait_ms(120_000);
        let echo = [&[0, 16, 0, 1, 0x1a, 0x2b, 0x3c, 0x4d, 0, 5, 0, 0][..], &[0; 4]].concat();
        let at = 121 + turn * 16;
        world.pass(IN, &segment(IN, "10.0.0.5:4000", CONTROL, ACK, (at, 521), &echo));
    }
    let back = world.pass(OUT, &gre(OUT, SERVER, &outside, given));
    assert_eq!(call_of(&back), (SERVER.into(), "10.0.0.5".into(), 1));
    world.pass(IN, &gre(IN, "10.0.0.5", SERVER, 700));
    world.wait_ms(310_000);
    world.wait_ms(310_000);
    world.dropped(OUT, &gre(OUT, SERVER, &outside, given), Reason::NatNoMapping);
    world.dropped(IN, &gre(IN, "10.0.0.5", SERVER, 700), Reason::NatProtocolUnsupported);
}

/// RFC 5508 REQ-4: an error about a packet of a call finds its way, with the number as the host knows it.
#[test]
fn errors_about_packets_of_a_call_come_home() {
    let mut world = with_pptp();
    let (outside, given) = call(&mut world, "10.0.0.5", 1, 700);
    let sent = world.pass(IN, &gre(IN, "10.0.0.5", SERVER, 700));
    let home = world.pass(OUT, &icmp_error(OUT, "203.0.114.1", &outside, 3, 4, sent.packet()));
    assert_eq!(home.addresses().1, "10.0.0.5");
    assert_eq!(home.quoted()[12..16], ip("10.0.0.5").to_be_bytes());
    assert_eq!(home.quoted()[26..28], 700_u16.to_be_bytes());
    let back = world.pass(OUT, &gre(OUT, SERVER, &outside, given));
    let away = world.pass(IN, &icmp_error(IN, "10.0.0.5", SERVER, 3, 4, back.packet()));
    assert_eq!(away.addresses().0, outside);
    assert_eq!(away.quoted()[26..28], given.to_be_bytes());
}

/// Without a shared address nothing has to be known of calls.
#[test]
fn a_host_with_an_address_of_its_own_calls_without_help() {
    let mut world = world_with(|s| nat(s, |i| i.statics.push(one_to_one("10.0.0.6", "192.0.2.9"))));
    let out = world.pass(IN, &gre(IN, "10.0.0.6", SERVER, 700));
    assert_eq!(call_of(&out), ("192.0.2.9".into(), SERVER.into(), 700));
    let back = world.pass(OUT, &gre(OUT, SERVER, "192.0.2.9", 5));
    assert_eq!(call_of(&back), (SERVER.into(), "10.0.0.6".into(), 5));
    let plain = packet(OUT, SERVER, "192.0.2.9").protocol(GRE).payload(&[0, 0, 8, 0, 1, 2, 3, 4]).build();
    assert_eq!(world.pass(OUT, &plain).l4(), [0, 0, 8, 0, 1, 2, 3, 4]);
}

#[test]
fn a_reload_keeps_calls_that_it_covers_and_ends_others() {
    let mut world = with_pptp();
    let (outside, given) = call(&mut world, "10.0.0.5", 1, 700);
    world.pass(OUT, &gre(OUT, SERVER, &outside, given));
    world.reconfigure(|s| nat(s, |i| i.exempt.push(prefix("203.0.114.0/24"))));
    assert_eq!(call_of(&world.pass(IN, &gre(IN, "10.0.0.5", SERVER, 700))).2, 700);
    assert_eq!(call_of(&world.pass(OUT, &gre(OUT, SERVER, &outside, given))).2, 1);
    world.reconfigure(|s| nat(s, |i| i.subscribers = vec![prefix("10.0.0.64/26")]));
    assert_eq!(world.sessions(), 0);
}
