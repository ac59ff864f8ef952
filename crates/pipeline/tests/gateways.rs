//! Application gateways from wire to wire: FTP over NAT44 and NAT64, with TCP's numbers, filters, limits and timers; SIP's
//! dialogs; connections that H.323 speaks of.

mod common;

use carrack_alg::{Note, Protocol};
use carrack_base::{Proto, Reason};
use carrack_nat::policy::{Assignment, Filtering, Pooling, StaticRule, Unreadable};
use carrack_pipeline::snapshot::Snapshot;
use carrack_wire::TcpView;
use carrack_wire::tcp::flag;
use common::check::{reassemble, whole_is_right};
use common::net6::*;
use common::*;

const ACK: u8 = flag::ACK;
const SYN: u8 = flag::SYN;
const CLIENT: &str = "10.0.0.5";
const SERVER: &str = "198.51.100.7";

fn ftp(snapshot: &mut Snapshot) {
    nat(snapshot, |i| {
        i.gateways = vec![Protocol::Ftp];
        i.filtering = [Filtering::AddressAndPortDependent; 3];
    });
}

/// A segment of a connection, and what it carries.
fn segment(port: u16, src: &str, dst: &str, bits: u8, (seq, ack): (u32, u32), text: &str) -> Vec<u8> {
    let ((a, sport), (b, dport)) = (e(src), e(dst));
    packet(port, a, b).tcp(sport, dport, bits).tcp_numbers(seq, ack).payload(text.as_bytes()).build()
}

/// Numbers and text of a segment that left.
fn carried(sent: &Sent) -> (u32, u32, String) {
    let tcp = TcpView::parse(sent.l4()).unwrap();
    (tcp.seq(), tcp.ack(), String::from_utf8_lossy(tcp.payload()).into_owned())
}

/// An FTP control connection from inside, open: the client's outside endpoint. The client's first byte is 101, the
/// server's 501.
fn connect(world: &mut World, client: &str, server: &str) -> String {
    let sent = world.pass(IN, &segment(IN, client, server, SYN, (100, 0), ""));
    world.pass(OUT, &segment(OUT, server, &sent.src(), SYN | ACK, (500, 101), ""));
    world.pass(IN, &segment(IN, client, server, ACK, (101, 501), ""));
    sent.src()
}

fn notes(world: &World, note: Note) -> u64 {
    world.workers.iter().map(|w| w.nat().gateway_counts()[Protocol::Ftp as usize][note as usize]).sum()
}

/// The outside endpoint that a PORT command names.
fn named(text: &str) -> String {
    let numbers: Vec<u32> = text.trim().split([' ', ',']).skip(1).map(|n| n.parse().unwrap()).collect();
    let [a, b, c, d, p, q] = numbers[..] else { panic!("{text}") };
    format!("{a}.{b}.{c}.{d}:{}", p * 256 + q)
}

#[test]
fn an_active_client_is_reached_at_the_endpoint_that_its_server_was_told() {
    let mut world = world_with(ftp);
    let (client, server) = (format!("{CLIENT}:4000"), format!("{SERVER}:21"));
    let outside = connect(&mut world, &client, &server);
    let sent = world.pass(IN, &segment(IN, &client, &server, ACK, (101, 501), "PORT 10,0,0,5,19,137\r\n"));
    let (seq, ack, text) = carried(&sent);
    assert_eq!((seq, ack), (101, 501));
    let data = named(&text);
    assert_eq!(e(&data).0, e(&outside).0, "the subscriber's own address");
    let growth = text.len() as u32 - 22;
    // The server acknowledges what it got; the client what it sent.
    let answer = segment(OUT, &server, &outside, ACK, (501, 123 + growth), "200 ok\r\n");
    let (seq, ack, _) = carried(&world.pass(OUT, &answer));
    assert_eq!((seq, ack), (501, 123));
    let (seq, ack, text) =
        carried(&world.pass(IN, &segment(IN, &client, &server, ACK, (123, 509), "LIST\r\n")));
    assert_eq!((seq, ack, text.as_str()), (123 + growth, 509, "LIST\r\n"));
    // The filter would refuse everybody: the expected server comes in, once, and nobody else.
    world.dropped(OUT, &segment(OUT, "203.0.114.9:20", &data, ACK, (1, 1), ""), Reason::NatTcpNoSession);
    let from_server = segment(OUT, &format!("{SERVER}:20"), &data, SYN, (1, 0), "");
    assert_eq!(world.pass(OUT, &from_server).dst(), "10.0.0.5:5001");
    let again = segment(OUT, &format!("{SERVER}:20"), &data, SYN, (1, 0), "");
    assert_eq!(world.pass(OUT, &again).dst(), "10.0.0.5:5001", "the same connection");
    let second = world.send(OUT, &segment(OUT, &format!("{SERVER}:2000"), &data, SYN, (1, 0), ""));
    assert!(second.is_empty() && world.held() == 1, "a second connection is not expected");
    assert_eq!((notes(&world, Note::Connection), notes(&world, Note::Opened)), (1, 1));
}

/// A stranger's SYN waits as any unsolicited one does (RFC 5382 REQ-4).
#[test]
fn nobody_but_the_server_may_use_what_it_was_told() {
    let mut world = world_with(ftp);
    let (client, server) = (format!("{CLIENT}:4000"), format!("{SERVER}:21"));
    connect(&mut world, &client, &server);
    let sent = world.pass(IN, &segment(IN, &client, &server, ACK, (101, 501), "PORT 10,0,0,5,19,137\r\n"));
    let data = named(&carried(&sent).2);
    assert!(world.send(OUT, &segment(OUT, "203.0.114.9:20", &data, SYN, (1, 0), "")).is_empty());
    assert_eq!((world.held(), world.sessions()), (1, 1));
}

#[test]
fn an_expected_mapping_counts_for_the_subscriber_and_ends_by_itself() {
    let mut world = world_with(|s| {
        ftp(s);
        nat(s, |i| i.limits.ports_max = 2);
    });
    let (client, server) = (format!("{CLIENT}:4000"), format!("{SERVER}:21"));
    connect(&mut world, &client, &server);
    let port = |seq: u32, q: u8| {
        segment(IN, &client, &server, ACK, (seq, 501), &format!("PORT 10,0,0,5,19,{q}\r\n"))
    };
    assert!(carried(&world.pass(IN, &port(101, 137))).2.contains("192,0,2,1"));
    assert_eq!(world.workers[0].nat().mapping_count(), 2);
    let left = carried(&world.pass(IN, &port(123, 138))).2;
    assert_eq!(left, "PORT 10,0,0,5,19,138\r\n", "above the limit the line stays as it is");
    assert_eq!(notes(&world, Note::NoRoom), 1);
    world.wait_ms(58_000);
    assert_eq!(world.workers[0].nat().mapping_count(), 2);
    world.wait_ms(5_000);
    assert_eq!(world.workers[0].nat().mapping_count(), 1, "the control connection's own");
}

#[test]
fn an_address_that_is_not_the_senders_is_left_as_it_is() {
    let mut world = world_with(ftp);
    let (client, server) = (format!("{CLIENT}:4000"), format!("{SERVER}:21"));
    connect(&mut world, &client, &server);
    let bounce = "PORT 10,0,0,6,19,137\r\n";
    let sent = world.pass(IN, &segment(IN, &client, &server, ACK, (101, 501), bounce));
    assert_eq!(carried(&sent).2, bounce);
    assert_eq!((notes(&world, Note::Foreign), world.workers[0].nat().mapping_count()), (1, 1));
}

#[test]
fn what_a_gateway_cannot_read_in_order_and_unhurt_is_sent_again() {
    let mut world = world_with(ftp);
    let (client, server) = (format!("{CLIENT}:4000"), format!("{SERVER}:21"));
    connect(&mut world, &client, &server);
    let later = segment(IN, &client, &server, ACK, (107, 501), "PORT 10,0,0,5,19,137\r\n");
    world.dropped(IN, &later, Reason::GatewayOutOfOrder);
    let mut hurt = segment(IN, &client, &server, ACK, (101, 501), "NOOP\r\n");
    *hurt.last_mut().unwrap() ^= 1;
    world.dropped(IN, &hurt, Reason::GatewayBadChecksum);
    assert_eq!(
        carried(&world.pass(IN, &segment(IN, &client, &server, ACK, (101, 501), "NOOP\r\n"))).2,
        "NOOP\r\n"
    );
    assert!(carried(&world.pass(IN, &later)).2.contains("192,0,2,1"));
    let whole = segment(IN, &client, &server, ACK, (129, 501), "NOOP\r\n");
    for piece in cut(IN, CLIENT, SERVER, 6, 7, &whole[34..], 24) {
        world.dropped(IN, &piece, Reason::GatewayFragment);
    }
}

/// More connections hold bytes at once than there is room for: the segment is sent again, nothing is lost.
#[test]
fn held_bytes_are_bounded() {
    let mut world = world_with(ftp);
    let server = format!("{SERVER}:21");
    let client = |n: u16| format!("{CLIENT}:{}", 4_000 + n);
    for n in 0..17 {
        connect(&mut world, &client(n), &server);
    }
    for n in 0..16 {
        let sent = world.pass(IN, &segment(IN, &client(n), &server, ACK, (101, 501), "PORT 10,0"));
        assert_eq!(carried(&sent), (100, 501, String::new()), "a probe goes on");
    }
    let held = segment(IN, &client(16), &server, ACK, (101, 501), "PORT 10,0");
    world.dropped(IN, &held, Reason::GatewayBusy);
}

#[test]
fn a_full_table_leaves_new_connections_unread_until_closed_ones_make_room() {
    let mut world = world_with(ftp);
    let server = format!("{SERVER}:21");
    let client = |n: u16| format!("{CLIENT}:{}", 4_000 + n);
    for n in 0..64 {
        connect(&mut world, &client(n), &server);
    }
    connect(&mut world, &client(64), &server);
    assert_eq!((notes(&world, Note::Connection), notes(&world, Note::TableFull)), (64, 1));
    let text = "PORT 10,0,0,5,19,137\r\n";
    let sent = world.pass(IN, &segment(IN, &client(64), &server, ACK, (101, 501), text));
    assert_eq!(carried(&sent).2, text);
    world.pass(IN, &segment(IN, &client(3), &server, flag::RST, (101, 0), ""));
    connect(&mut world, &client(65), &server);
    assert_eq!(notes(&world, Note::Connection), 65);
}

/// RFC 4787 REQ-10, REQ-10a, RFC 5382 REQ-6: switched off, nothing is read; off by a reload, connections that are read go on.
#[test]
fn a_gateway_that_is_switched_off_reads_no_new_connection() {
    let mut world = world_with(ftp);
    let (client, server) = (format!("{CLIENT}:4000"), format!("{SERVER}:21"));
    connect(&mut world, &client, &server);
    world.reconfigure(|s| nat(s, |i| i.gateways = vec![]));
    let text = "PORT 10,0,0,5,19,137\r\n";
    let sent = world.pass(IN, &segment(IN, &client, &server, ACK, (101, 501), text));
    assert!(carried(&sent).2.contains("192,0,2,1"));
    connect(&mut world, "10.0.0.5:4001", &server);
    let sent = world.pass(IN, &segment(IN, "10.0.0.5:4001", &server, ACK, (101, 501), text));
    assert_eq!(carried(&sent).2, text);
}

#[test]
fn a_server_inside_names_its_outside_endpoint() {
    let mut world = world_with(|s| {
        ftp(s);
        nat(s, |i| {
            i.statics.push(StaticRule::OneToOne {
                inside: "10.0.0.6".parse().unwrap(),
                outside: "192.0.2.9".parse().unwrap(),
            })
        });
    });
    let (client, outside, inside) = (format!("{SERVER}:4000"), "192.0.2.9:21", "10.0.0.6:21");
    world.pass(OUT, &segment(OUT, &client, outside, SYN, (100, 0), ""));
    world.pass(IN, &segment(IN, inside, &client, SYN | ACK, (500, 101), ""));
    world.pass(OUT, &segment(OUT, &client, outside, ACK, (101, 501), "PASV\r\n"));
    let answer = "227 Entering Passive Mode (10,0,0,6,19,137)\r\n";
    let sent = world.pass(IN, &segment(IN, inside, &client, ACK, (501, 107), answer));
    assert_eq!(carried(&sent).2, "227 Entering Passive Mode (192,0,2,9,19,137)\r\n");
}

/// RFC 6384 §6, RFC 6384 §7.2.
#[test]
fn an_ipv6_client_uses_an_ipv4_server_both_ways() {
    let mut world = world6_with(|s| {
        ftp(s);
        serve_six(s);
    });
    let (a, server, server6) = ("2001:db8:1::5", "203.0.113.80", "2001:db8:64::203.0.113.80");
    let out = |bits, seq, ack, text: &'static str| {
        packet6(IN, a, server6).tcp(4_000, 21, bits).tcp_numbers(seq, ack).payload(text.as_bytes()).build()
    };
    let sent = world.pass(IN, &out(SYN, 100, 0, ""));
    let outside = sent.src();
    let back = |bits, seq, ack, text: &'static str| {
        let (pool, port) = e(&outside);
        packet(OUT, server, pool).tcp(21, port, bits).tcp_numbers(seq, ack).payload(text.as_bytes()).build()
    };
    let carried6 = |sent: &Sent| {
        let tcp = TcpView::parse(sent.ip6().payload()).unwrap();
        (tcp.seq(), tcp.ack(), String::from_utf8_lossy(tcp.payload()).into_owned())
    };
    world.pass(OUT, &back(SYN | ACK, 500, 101, ""));
    let sent = world.pass(IN, &out(ACK, 101, 501, "EPSV\r\n"));
    assert_eq!(carried(&sent).2, "PASV\r\n");
    let sent = world.pass(OUT, &back(ACK, 501, 107, "227 Entering Passive Mode (203,0,113,80,237,19)\r\n"));
    assert_eq!(carried6(&sent), (501, 107, "229 Entering Extended Passive Mode (|||60691|)\r\n".into()));
    let sent = world.pass(IN, &out(ACK, 107, 549, "EPRT |2|2001:db8:1::5|5282|\r\n"));
    assert_eq!(carried(&sent).1, 550, "one byte more came from the server");
    let data = named(&carried(&sent).2);
    let syn = packet(OUT, server, e(&data).0).tcp(20, e(&data).1, SYN).build();
    let sent = world.pass(OUT, &syn);
    assert_eq!(sent.addresses6(), ("2001:db8:64::cb00:7150".into(), a.into()));
    assert_eq!(TcpView::parse(sent.ip6().payload()).unwrap().dst_port(), 5_282);
}

/// A message that is not text, by a segment of this connection.
fn message(port: u16, src: &str, dst: &str, (seq, ack): (u32, u32), bytes: &[u8]) -> Vec<u8> {
    let ((a, sport), (b, dport)) = (e(src), e(dst));
    packet(port, a, b).tcp(sport, dport, ACK).tcp_numbers(seq, ack).payload(bytes).build()
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// The endpoint in the place of one that is in `old`.
fn in_place_of(old: &[u8], wanted: [u8; 6], new: &[u8]) -> String {
    let at = old.windows(6).position(|window| window == wanted).unwrap();
    let [a, b, c, d, p, q] = new[at..at + 6] else { panic!("{new:?}") };
    format!("{a}.{b}.{c}.{d}:{}", u16::from_be_bytes([p, q]))
}

/// Call signalling names where a connection for H.245 is expected; that one is read although its port is no gateway's, from
/// outside and from inside.
#[test]
fn a_connection_that_call_signalling_speaks_of_is_a_control_connection() {
    let mut world = world_with(|s| {
        nat(s, |i| {
            i.gateways = vec![Protocol::H323];
            i.filtering = [Filtering::AddressAndPortDependent; 3];
        });
    });
    let (client, server) = (format!("{CLIENT}:1234"), format!("{SERVER}:1720"));
    let outside = connect(&mut world, &client, &server);
    let setup = hex(include_str!("../../alg/tests/h323/setup.hex"));
    let sent = world.pass(IN, &message(IN, &client, &server, (101, 501), &setup));
    let told = in_place_of(&setup, [10, 0, 0, 5, 0x17, 0x70], TcpView::parse(sent.l4()).unwrap().payload());
    assert_eq!(e(&told).0, e(&outside).0);
    // The far end connects for H.245, and what the host says there is read.
    let far = format!("{SERVER}:5000");
    let sent = world.pass(OUT, &segment(OUT, &far, &told, SYN, (700, 0), ""));
    assert_eq!(sent.dst(), "10.0.0.5:6000");
    world.pass(IN, &segment(IN, "10.0.0.5:6000", &far, SYN | ACK, (800, 701), ""));
    let open = hex(include_str!("../../alg/tests/h323/open.hex"));
    let sent = world.pass(IN, &message(IN, "10.0.0.5:6000", &far, (801, 701), &open));
    let media = in_place_of(&open, [10, 0, 0, 5, 0x13, 0x89], TcpView::parse(sent.l4()).unwrap().payload());
    let (media_ip, media_port) = e(&media);
    let rtcp = packet(OUT, SERVER, media_ip).udp(9_000, media_port).payload(b"report").build();
    assert_eq!(world.pass(OUT, &rtcp).dst(), "10.0.0.5:5001");
    // The far end names where it waits: the host's connection to there is read as well.
    let proceeding = hex(include_str!("../../alg/tests/h323/proceeding.hex"));
    let ack = 101 + setup.len() as u32;
    world.pass(OUT, &message(OUT, &server, &outside, (501, ack), &proceeding));
    let far = format!("{SERVER}:7000");
    connect(&mut world, "10.0.0.5:4500", &far);
    let sent = world.pass(IN, &message(IN, "10.0.0.5:4500", &far, (101, 501), &open));
    assert_eq!(
        in_place_of(&open, [10, 0, 0, 5, 0x13, 0x89], TcpView::parse(sent.l4()).unwrap().payload()),
        media
    );
    // One to anywhere else is not.
    let far = format!("{SERVER}:7001");
    connect(&mut world, "10.0.0.5:4501", &far);
    let sent = world.pass(IN, &message(IN, "10.0.0.5:4501", &far, (101, 501), &open));
    assert_eq!(TcpView::parse(sent.l4()).unwrap().payload(), open);
}

/// RFC 3261 §15.1.1: what a call expects ends with it, at once; the other call's stays.
#[test]
fn the_end_of_a_call_ends_what_it_expects() {
    let mut world = world_with(|s| nat(s, |i| i.gateways = vec![Protocol::Sip]));
    let (client, server) = (format!("{CLIENT}:5060"), format!("{SERVER}:5060"));
    let say = |from: u16, src: &str, dst: &str, text: &str| {
        let ((a, sport), (b, dport)) = (e(src), e(dst));
        packet(from, a, b).udp(sport, dport).payload(text.as_bytes()).build()
    };
    let invite = |id: &str, port: u16| {
        let body = format!("v=0\r\nc=IN IP4 {CLIENT}\r\nm=audio {port} RTP/AVP 0\r\n");
        format!("INVITE sip:b@c SIP/2.0\r\nCall-ID: {id}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    };
    let outside = world.pass(IN, &say(IN, &client, &server, &invite("one", 6_000))).src();
    world.pass(IN, &say(IN, &client, &server, &invite("two", 7_000)));
    let mappings = |world: &World| world.workers[0].nat().mapping_count();
    assert_eq!(mappings(&world), 5, "signalling, and RTP and RTCP of two calls");
    let answer = "SIP/2.0 200 OK\r\nCall-ID: one\r\nCSeq: 2 BYE\r\n\r\n";
    world.pass(OUT, &say(OUT, &server, &outside, answer));
    assert_eq!(mappings(&world), 3);
}

/// A connection to a server of RTSP that is none of its kind: by policy it goes on as it is, or is reset, at both ends.
#[test]
fn what_a_gateway_cannot_read_goes_on_or_is_reset_as_policy_says() {
    let text = "GET / HTTP/1.0\r\n\r\n";
    let (client, server) = (format!("{CLIENT}:4000"), format!("{SERVER}:554"));
    for unreadable in [Unreadable::Pass, Unreadable::Reset] {
        let mut world = world_with(|s| {
            nat(s, |i| {
                i.gateways = vec![Protocol::Rtsp];
                // Another gateway's is not this one's.
                i.unreadable = [Unreadable::Reset; 7];
                i.unreadable[Protocol::Rtsp as usize] = unreadable;
            });
        });
        let outside = connect(&mut world, &client, &server);
        let sent = world.pass(IN, &segment(IN, &client, &server, ACK, (101, 501), text));
        let tcp = TcpView::parse(sent.l4()).unwrap();
        let counts = world.workers[0].nat().gateway_counts()[Protocol::Rtsp as usize];
        let counted = [Note::Unreadable, Note::Reset].map(|note| counts[note as usize]);
        match unreadable {
            Unreadable::Pass => {
                assert_eq!(carried(&sent), (101, 501, text.to_owned()));
                assert_eq!((tcp.flags() & flag::RST, counted), (0, [1, 0]));
            }
            Unreadable::Reset => {
                assert_eq!(carried(&sent), (101, 501, String::new()));
                assert_eq!((tcp.flags(), tcp.window(), counted), (flag::RST | ACK, 0, [1, 1]));
                // The server knows of no such connection any more, and says so to the client.
                let answer = segment(OUT, &server, &outside, flag::RST, (501, 0), "");
                assert_eq!(world.pass(OUT, &answer).dst(), client);
            }
        }
    }
}

/// What is encrypted is not reset, and a message that grows too long is.
#[test]
fn the_reset_is_for_what_makes_no_sense_alone() {
    let (client, server) = (format!("{CLIENT}:4000"), format!("{SERVER}:5060"));
    let run = |texts: &[&str]| {
        let mut world = world_with(|s| {
            nat(s, |i| (i.gateways, i.unreadable) = (vec![Protocol::Sip], [Unreadable::Reset; 7]));
        });
        connect(&mut world, &client, &server);
        let mut seq = 101;
        for text in texts {
            world.pass(IN, &segment(IN, &client, &server, ACK, (seq, 501), text));
            seq += text.len() as u32;
        }
        let counts = world.workers[0].nat().gateway_counts()[Protocol::Sip as usize];
        [Note::Transparent, Note::Unreadable, Note::Reset].map(|note| counts[note as usize])
    };
    assert_eq!(run(&["\u{16}\u{3}\u{1}\0", "hello"]), [1, 0, 0]);
    let long = "a".repeat(1_300);
    assert_eq!(run(&["INVITE sip:b@c SIP/2.0\r\nSubject: ", &long, &long, &long, &long]), [0, 1, 1]);
}

/// A DNS answer names the addresses that somebody asked for, whoever asks: with all gateways on it is left as it is.
#[test]
fn dns_is_left_alone() {
    let mut world = world_with(|s| nat(s, |i| i.gateways = Protocol::ALL.to_vec()));
    let (client, server) = (format!("{CLIENT}:4000"), format!("{SERVER}:53"));
    let (client, server) = (e(&client), e(&server));
    let answer =
        [&[0x12, 0x34, 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0, 1, b'a', 0, 0, 1, 0, 1][..], &[10, 0, 0, 5]]
            .concat();
    let query = packet(IN, client.0, server.0).udp(client.1, server.1).payload(&answer).build();
    let sent = world.pass(IN, &query);
    assert_eq!(sent.l4()[8..], answer);
    let (outside, own) = (sent.src(), [192, 0, 2, 1]);
    let (outside, answer) = (e(&outside), [&answer[..answer.len() - 4], &own].concat());
    let back = packet(OUT, server.0, outside.0).udp(server.1, outside.1).payload(&answer).build();
    assert_eq!(world.pass(OUT, &back).l4()[8..], answer);
}

const OFFER: &str = "v=0\r\nc=IN IP4 10.0.0.5\r\nm=audio 6000 RTP/AVP 0\r\n";

/// An invitation with so many bytes of a header that nobody reads.
fn invitation(filler: usize) -> String {
    let subject = "x".repeat(filler);
    format!(
        "INVITE sip:b@c SIP/2.0\r\nVia: SIP/2.0/UDP 10.0.0.5:5060\r\nSubject: {subject}\r\nCall-ID: one\r\n\
         Content-Length: {}\r\n\r\n{OFFER}",
        OFFER.len()
    )
}

/// A UDP datagram from the host's port 5060 to the server's, in fragments of so many bytes.
fn in_fragments(text: &str, id: u16, piece: usize) -> Vec<Vec<u8>> {
    let whole = packet(IN, CLIENT, SERVER).udp(5_060, 5_060).payload(text.as_bytes()).build();
    cut(IN, CLIENT, SERVER, 17, id, &whole[34..], piece)
}

fn with_sip() -> World {
    world_with(|s| nat(s, |i| i.gateways = vec![Protocol::Sip]))
}

/// RFC 3261 §18.1.1: a large message over UDP. Its gateway reads it whole, in whatever order its fragments come, and it goes on
/// in as many.
#[test]
fn a_message_in_ip_fragments_is_read_as_a_whole() {
    let text = invitation(2_000);
    for order in [[0, 1], [1, 0]] {
        let mut world = with_sip();
        let pieces = in_fragments(&text, 7, 1_480);
        assert_eq!(pieces.len(), 2);
        assert!(world.send(IN, &pieces[order[0]]).is_empty(), "the first one waits");
        assert_eq!(world.held(), 1);
        let sent = world.send(IN, &pieces[order[1]]);
        assert_eq!((sent.len(), world.held()), (2, 0));
        let (_, l4) = reassemble(&sent);
        whole_is_right(&sent[0], &l4);
        let said = String::from_utf8(l4[8..].to_vec()).unwrap();
        assert!(said.contains("c=IN IP4 192.0.2.1\r\n") && !said.contains("10.0.0.5"), "{said}");
        let body = said.split("\r\n\r\n").nth(1).unwrap();
        assert!(said.contains(&format!("Content-Length: {}\r\n", body.len())));
    }
}

/// What has another number of fragments, length or checksum than a gateway reads is not held for ever, and nothing is lost of
/// what nobody hurt.
#[test]
fn fragments_that_make_no_readable_message_go_on_or_end() {
    let mut world = with_sip();
    let all = |world: &mut World, pieces: &[Vec<u8>]| {
        let sent: Vec<Sent> = pieces.iter().flat_map(|piece| world.send(IN, piece)).collect();
        (sent.len(), world.held())
    };
    let pieces = in_fragments(&invitation(9_000), 1, 1_480);
    assert_eq!(all(&mut world, &pieces), (pieces.len(), 0), "too long to be read");
    let pieces = in_fragments(&invitation(300), 2, 40);
    assert_eq!(all(&mut world, &pieces), (pieces.len(), 0), "too many");
    let mut pieces = in_fragments(&invitation(2_000), 3, 1_480);
    *pieces[1].last_mut().unwrap() ^= 1;
    assert!(world.send(IN, &pieces[0]).is_empty());
    assert!(world.send(IN, &pieces[1]).is_empty());
    assert_eq!(world.drops(Reason::GatewayBadChecksum), 2, "both of them");
    let pieces = in_fragments(&invitation(2_000), 4, 1_480);
    assert!(world.send(IN, &pieces[0]).is_empty());
    let before = world.drops(Reason::FragmentTimeout);
    world.wait_ms(3_000);
    assert_eq!((world.held(), world.drops(Reason::FragmentTimeout) - before), (0, 1));
}

/// RFC 3261 §14: an invitation within a call names what it named before by the same endpoints, and new media by new ones.
#[test]
fn a_second_invitation_of_a_call_keeps_its_endpoints() {
    let mut world = with_sip();
    let say = |text: &str| packet(IN, CLIENT, SERVER).udp(5_060, 5_060).payload(text.as_bytes()).build();
    let mut named = |text: &str| {
        let said = String::from_utf8(world.pass(IN, &say(text)).l4()[8..].to_vec()).unwrap();
        let media: Vec<String> =
            said.lines().filter(|line| line.starts_with("m=")).map(str::to_owned).collect();
        (media, world.workers[0].nat().mapping_count())
    };
    let first = named(&invitation(10));
    assert_eq!((first.0.len(), first.1), (1, 3));
    assert_eq!(named(&invitation(11)), first);
    let body = format!("{OFFER}m=video 6002 RTP/AVP 31\r\n");
    let more =
        invitation(11).replace(OFFER, &body).replace(&OFFER.len().to_string(), &body.len().to_string());
    let second = named(&more);
    assert_eq!((&second.0[0], second.0.len(), second.1), (&first.0[0], 2, 5));
}

/// A server whose control port and data ports are forwarded from an address that is no host's own.
fn world_of_forwards(gateway: Protocol, port: u16, data: (Proto, u16, u16)) -> World {
    let forward = |proto, outside_port, count, inside_port| StaticRule::Forward {
        proto,
        outside: ip("192.0.2.9"),
        outside_port,
        count,
        inside: "10.0.0.6".parse::<std::net::IpAddr>().unwrap().into(),
        inside_port,
    };
    world_with(|s| {
        nat(s, |i| {
            i.gateways = vec![gateway];
            i.filtering = [Filtering::AddressAndPortDependent; 3];
            i.statics = vec![forward(Proto::Tcp, port, 1, port), forward(data.0, data.2, 10, data.1)];
        });
    })
}

/// What the server answers on its control connection, as it arrives.
fn says(world: &mut World, port: u16, question: &str, answer: &str) -> String {
    says_at(world, &format!("192.0.2.9:{port}"), question, answer)
}

fn says_at(world: &mut World, outside: &str, question: &str, answer: &str) -> String {
    let (client, port) = (format!("{SERVER}:4000"), e(outside).1);
    let inside = format!("10.0.0.6:{port}");
    world.pass(OUT, &segment(OUT, &client, outside, SYN, (100, 0), ""));
    world.pass(IN, &segment(IN, &inside, &client, SYN | ACK, (500, 101), ""));
    world.pass(OUT, &segment(OUT, &client, outside, ACK, (101, 501), question));
    let ack = 101 + question.len() as u32;
    let sent = world.pass(IN, &segment(IN, &inside, &client, ACK, (501, ack), answer));
    assert_eq!(sent.src(), outside);
    carried(&sent).2
}

/// RFC 4787 REQ-2: a host that has no outside address yet gets its forward's, in blocks and without. So its server's data
/// ports need no forwarding: the answers name the address that the client speaks to, and a port that leads there.
#[test]
fn a_server_behind_a_forward_opens_data_ports_at_its_forwards_address() {
    let blocks = Assignment::Blocks { size: 64, per_subscriber_max: 4, idle_release_s: 60 };
    for assignment in [Assignment::Arbitrary, blocks] {
        for last in 1..=6 {
            let mut world = world_with(|s| {
                nat(s, |i| {
                    i.gateways = vec![Protocol::Ftp];
                    i.filtering = [Filtering::AddressAndPortDependent; 3];
                    i.assignment = assignment;
                    i.pooling = Pooling::Paired;
                    i.pools[0].ranges = vec!["192.0.2.1-192.0.2.6".parse().unwrap()];
                    i.statics = vec![StaticRule::Forward {
                        proto: Proto::Tcp,
                        outside: ip(&format!("192.0.2.{last}")),
                        outside_port: 21,
                        count: 1,
                        inside: "10.0.0.6".parse::<std::net::IpAddr>().unwrap().into(),
                        inside_port: 21,
                    }];
                });
            });
            let outside = format!("192.0.2.{last}:21");
            let said =
                says_at(&mut world, &outside, "PASV\r\n", "227 Entering Passive Mode (10,0,0,6,19,137)\r\n");
            let numbers = said.trim_end_matches(")\r\n").rsplit_once('(').unwrap().1;
            let data = named(&format!("227 {numbers}"));
            assert!(data.starts_with(&format!("192.0.2.{last}:")), "{said}");
            let syn = segment(OUT, &format!("{SERVER}:4001"), &data, SYN, (1, 0), "");
            assert_eq!(world.pass(OUT, &syn).dst(), "10.0.0.6:5001");
            // What the host opens itself is seen there as well.
            let query = packet(IN, "10.0.0.6", SERVER).udp(5_353, 53).payload(b"?").build();
            assert!(world.pass(IN, &query).src().starts_with(&format!("192.0.2.{last}:")));
        }
    }
}

/// Data ports that are forwarded, too, are named as they are outside, and lead to the server; others cannot be had there.
#[test]
fn a_server_behind_a_forward_names_the_data_ports_that_are_forwarded_with_it() {
    let world = || world_of_forwards(Protocol::Ftp, 21, (Proto::Tcp, 5_000, 6_000));
    let epsv = |port: u16| format!("229 Entering Extended Passive Mode (|||{port}|)\r\n");
    let mut server = world();
    assert_eq!(says(&mut server, 21, "EPSV\r\n", &epsv(5_001)), epsv(6_001));
    let syn = segment(OUT, &format!("{SERVER}:4001"), "192.0.2.9:6001", SYN, (1, 0), "");
    assert_eq!(server.pass(OUT, &syn).dst(), "10.0.0.6:5001");
    assert_eq!(says(&mut world(), 21, "EPSV\r\n", &epsv(5_010)), epsv(5_010), "behind the last one");
    let pasv = "227 Entering Passive Mode (10,0,0,6,19,137)\r\n";
    assert_eq!(says(&mut world(), 21, "PASV\r\n", pasv), "227 Entering Passive Mode (192,0,2,9,23,113)\r\n");
    let mut server = world_of_forwards(Protocol::Rtsp, 554, (Proto::Udp, 6_970, 7_970));
    let answer = "RTSP/1.0 200 OK\r\nTransport: RTP/AVP;client_port=9000-9001;server_port=6970-6971\r\n\r\n";
    assert_eq!(
        says(&mut server, 554, "OPTIONS * RTSP/1.0\r\n\r\n", answer),
        answer.replace("6970-6971", "7970-7971")
    );
}
