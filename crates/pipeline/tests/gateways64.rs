//! Application gateways between IPv6 and IPv4: TFTP's answers, and RTSP with its media, from hosts of NAT64.

mod common;

use carrack_alg::{Note, Protocol};
use carrack_nat::policy::Filtering;
use carrack_wire::TcpView;
use carrack_wire::tcp::flag;
use common::net6::*;
use common::*;

const ACK: u8 = flag::ACK;
const SYN: u8 = flag::SYN;
const HOST: &str = "2001:db8:1::5";
const SERVER: &str = "203.0.113.80";
const SERVER6: &str = "2001:db8:64::203.0.113.80";

/// Nobody comes in who is not expected.
fn world(protocol: Protocol) -> World {
    world6_with(|s| {
        serve_six(s);
        nat(s, |i| {
            i.gateways = vec![protocol];
            i.filtering = [Filtering::AddressAndPortDependent; 3];
        });
    })
}

fn opened(world: &World, protocol: Protocol) -> u64 {
    world.workers[0].nat().gateway_counts()[protocol as usize][Note::Opened as usize]
}

/// RFC 1350 §4: the transfer is between the client's port and one that the server chooses.
#[test]
fn the_answer_to_a_tftp_request_comes_from_another_port_of_the_server() {
    let mut world = world(Protocol::Tftp);
    let request = packet6(IN, HOST, SERVER6).udp(3_000, 69).payload(b"\0\x01file\0octet\0").build();
    let outside = world.pass(IN, &request).src();
    let (pool, port) = e(&outside);
    let data = |from: &str, sport| packet(OUT, from, pool).udp(sport, port).payload(b"\0\x03\0\x01x").build();
    assert!(world.send(OUT, &data("203.0.113.81", 40_000)).is_empty(), "another server");
    let sent = world.pass(OUT, &data(SERVER, 40_000));
    assert_eq!(sent.addresses6(), ("2001:db8:64::cb00:7150".into(), HOST.into()));
    assert_eq!(sent.ip6().payload()[..4], [40_000_u16.to_be_bytes(), 3_000_u16.to_be_bytes()].concat());
    let ack = packet6(IN, HOST, SERVER6).udp(3_000, 40_000).payload(b"\0\x04\0\x01").build();
    assert_eq!(world.pass(IN, &ack).dst(), format!("{SERVER}:40000"));
    assert!(world.send(OUT, &data(SERVER, 40_001)).is_empty(), "one transfer for one request");
    assert_eq!(opened(&world, Protocol::Tftp), 1);
}

/// RFC 2326 §12.39: RTP and RTCP come by UDP to the ports of an IPv6 client, which reads addresses of its own version alone.
#[test]
fn media_of_an_ipv4_server_reach_an_ipv6_client_of_rtsp() {
    let mut world = world(Protocol::Rtsp);
    let out = |bits, seq, ack, text: &str| {
        let text = text.as_bytes();
        packet6(IN, HOST, SERVER6).tcp(4_000, 554, bits).tcp_numbers(seq, ack).payload(text).build()
    };
    let outside = world.pass(IN, &out(SYN, 100, 0, "")).src();
    let (pool, port) = e(&outside);
    let back = |bits, seq, ack, text: &str| {
        let text = text.as_bytes();
        packet(OUT, SERVER, pool).tcp(554, port, bits).tcp_numbers(seq, ack).payload(text).build()
    };
    let said6 = |sent: &Sent| {
        let tcp = TcpView::parse(sent.ip6().payload()).unwrap();
        (tcp.seq(), String::from_utf8_lossy(tcp.payload()).into_owned())
    };
    world.pass(OUT, &back(SYN | ACK, 500, 101, ""));
    // A description, cut in its middle: the client hears all of it, in its version.
    let body = format!("v=0\r\no=- 1 1 IN IP4 {SERVER}\r\nc=IN IP4 0.0.0.0\r\nm=audio 0 RTP/AVP 0\r\n");
    let kind = "Content-Type: application/sdp";
    let text = format!("RTSP/1.0 200 OK\r\n{kind}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let (first, second) = text.split_at(text.len() - 20);
    assert_eq!(said6(&world.pass(OUT, &back(ACK, 501, 101, first))), (500, String::new()), "a probe");
    let (seq, heard) = said6(&world.pass(OUT, &back(ACK, 501 + first.len() as u32, 101, second)));
    let new = body.replace(&format!("IP4 {SERVER}"), "IP6 2001:db8:64::cb00:7150");
    let new = new.replace("IP4 0.0.0.0", "IP6 ::");
    assert_eq!(seq, 501);
    assert_eq!(heard, text.replace(&body, &new).replace(&body.len().to_string(), &new.len().to_string()));
    // The client's ports become a pair outside, for this server alone.
    let setup = "SETUP rtsp://s/a RTSP/1.0\r\nTransport: RTP/AVP;unicast;client_port=5000-5001\r\n\r\n";
    let heard_to = 501 + heard.len() as u32;
    let sent = world.pass(IN, &out(ACK, 101, heard_to, setup));
    let tcp = TcpView::parse(sent.l4()).unwrap();
    assert_eq!(tcp.ack(), 501 + text.len() as u32);
    let said = String::from_utf8_lossy(tcp.payload()).into_owned();
    let ports = said.split("client_port=").nth(1).unwrap().trim();
    let (rtp, rtcp) = ports.split_once('-').unwrap();
    let (rtp, rtcp): (u16, u16) = (rtp.parse().unwrap(), rtcp.parse().unwrap());
    assert!(rtp % 2 == 0 && rtcp == rtp + 1, "{said}");
    for (outside, inside) in [(rtp, 5_000_u16), (rtcp, 5_001)] {
        let stranger = packet(OUT, "203.0.113.81", pool).udp(6_970, outside).build();
        assert!(world.send(OUT, &stranger).is_empty());
        let sent = world.pass(OUT, &packet(OUT, SERVER, pool).udp(6_970, outside).build());
        assert_eq!(sent.addresses6().1, HOST);
        assert_eq!(sent.ip6().payload()[2..4], inside.to_be_bytes());
    }
    assert_eq!(opened(&world, Protocol::Rtsp), 2);
}

/// What call signalling of an IPv6 host says reaches an IPv4 one in its version (H.225.0, H.245): the far end's connection
/// for H.245 and its media come in, and what it says itself names addresses that the host can reach.
#[test]
fn a_call_of_an_ipv6_host_opens_channels_both_ways() {
    let mut world = world(Protocol::H323);
    let hex = |text: &str| -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        digits.chunks(2).map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
    };
    let out = |(sport, dport), bits, (seq, ack), bytes: &[u8]| {
        packet6(IN, HOST, SERVER6).tcp(sport, dport, bits).tcp_numbers(seq, ack).payload(bytes).build()
    };
    let back = |to: &str, sport, bits, (seq, ack), bytes: &[u8]| {
        let (pool, port) = e(to);
        packet(OUT, SERVER, pool).tcp(sport, port, bits).tcp_numbers(seq, ack).payload(bytes).build()
    };
    // The far end's call is read by the host, every address of it in its version.
    let six = |world: &mut World, message: &[u8], outside: &str, numbers| {
        let sent = world.pass(OUT, &back(outside, 1_720, ACK, numbers, message));
        TcpView::parse(sent.ip6().payload()).unwrap().payload().to_vec()
    };
    let outside = world.pass(IN, &out((1_234, 1_720), SYN, (100, 0), b"")).src();
    world.pass(OUT, &back(&outside, 1_720, SYN | ACK, (500, 101), b""));
    // "203.0.113.80:7000" in place of the address of the message, which is of another network.
    let mut proceeding = hex(include_str!("../../alg/tests/h323/proceeding.hex"));
    let at = proceeding.windows(6).position(|octets| octets == [198, 51, 100, 7, 0x1b, 0x58]).unwrap();
    proceeding[at..at + 4].copy_from_slice(&[203, 0, 113, 80]);
    let heard = six(&mut world, &proceeding, &outside, (501, 101));
    let server6 = SERVER6.parse::<std::net::Ipv6Addr>().unwrap().octets();
    let seen = [&server6[..], &7_000_u16.to_be_bytes()].concat();
    assert!(heard.windows(18).any(|octets| octets == seen), "{heard:02x?}");
    assert!(heard.len() > proceeding.len());
    // The host connects to there, and what it says of its media is read: a channel of its own, made from the one of
    // 10.0.0.5 by the same encoder.
    let at_far = world.pass(IN, &out((4_500, 7_000), SYN, (100, 0), b"")).src();
    world.pass(OUT, &back(&at_far, 7_000, SYN | ACK, (500, 101), b""));
    let open = hex(include_str!("../../alg/tests/h323/open.hex"));
    let sent = world.pass(OUT, &back(&at_far, 7_000, ACK, (501, 101), &open));
    let mut own = TcpView::parse(sent.ip6().payload()).unwrap().payload().to_vec();
    let of_four = [&server6[..12], &[10, 0, 0, 5]].concat();
    let at = own.windows(16).position(|octets| octets == of_four).unwrap();
    own[at..at + 16].copy_from_slice(&HOST.parse::<std::net::Ipv6Addr>().unwrap().octets());
    let heard_to = 501 + own.len() as u32;
    let sent = world.pass(IN, &out((4_500, 7_000), ACK, (101, heard_to), &own));
    let tcp = TcpView::parse(sent.l4()).unwrap();
    assert_eq!(tcp.ack(), 501 + open.len() as u32, "what was longer for the host is not for the far end");
    let said = tcp.payload();
    assert_eq!(said.len(), open.len(), "as long as an IPv4 host's");
    let at = open.windows(6).position(|octets| octets == [10, 0, 0, 5, 0x13, 0x89]).unwrap();
    let [a, b, c, d, p, q] = said[at..at + 6] else { panic!("{said:02x?}") };
    let media = format!("{a}.{b}.{c}.{d}:{}", u16::from_be_bytes([p, q]));
    assert_eq!(e(&media).0, e(&outside).0);
    let report = packet(OUT, SERVER, e(&media).0).udp(9_000, e(&media).1).payload(b"report").build();
    let sent = world.pass(OUT, &report);
    assert_eq!(sent.addresses6().1, HOST);
    assert_eq!(sent.ip6().payload()[2..4], 5_001_u16.to_be_bytes());
}
