use core::net::Ipv4Addr;

use super::*;
use crate::ground::{Field, ends};

/// Messages of a call, made by an encoder for these types that is not this one's, and read by tshark (`tests/h323.rs`):
/// of host 10.0.0.5, and `PROCEEDING` of 198.51.100.7.
const SETUP: &str = include_str!("../../tests/h323/setup.hex");
const PROCEEDING: &str = include_str!("../../tests/h323/proceeding.hex");
const CONNECT: &str = include_str!("../../tests/h323/connect.hex");
const FACILITY: &str = include_str!("../../tests/h323/facility.hex");
const PROGRESS: &str = include_str!("../../tests/h323/progress.hex");
const TUNNELLED: &str = include_str!("../../tests/h323/tunnelled.hex");
const OPEN: &str = include_str!("../../tests/h323/open.hex");
const ACK: &str = include_str!("../../tests/h323/ack.hex");
const T120: &str = include_str!("../../tests/h323/t120.hex");

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pair = |pair: &[u8]| u8::from_str_radix(core::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(pair).collect()
}

/// A call from 10.0.0.5:1234, which is 192.0.2.1:1234 outside, to this port of 198.51.100.7.
fn call(port: u16) -> Ends {
    Ends { remote: SocketAddrV4::new(Ipv4Addr::new(198, 51, 100, 7), port), ..ends("10.0.0.5") }
}

fn read_by(side: Side, message: &[u8], ends: &Ends, field: &mut Field) -> (Reading, Vec<u8>) {
    let mut edits = Edits::default();
    let reading = H323.read(Said {
        memory: &mut crate::Memory::default(),
        side,
        bytes: message,
        ends,
        ground: field,
        edits: &mut edits,
    });
    let mut out = vec![0; message.len() + 512];
    let len = edits.apply(message, &mut out).unwrap();
    (reading, out[..len].to_vec())
}

/// The endpoints that differ, before and after.
fn changed(old: &[u8], new: &[u8]) -> Vec<(String, String)> {
    let endpoint = |bytes: &[u8]| {
        let port = u16::from_be_bytes([bytes[4], bytes[5]]);
        format!("{}.{}.{}.{}:{port}", bytes[0], bytes[1], bytes[2], bytes[3])
    };
    assert_eq!(old.len(), new.len());
    let (mut found, mut at) = (vec![], 0);
    while at < old.len() {
        if old[at] == new[at] {
            at += 1;
            continue;
        }
        found.push((endpoint(&old[at..]), endpoint(&new[at..])));
        at += 6;
    }
    found
}

fn translated(hex: &str, port: u16, field: &mut Field) -> Vec<(String, String)> {
    let message = bytes(hex);
    let (reading, out) = read_by(Side::Inside, &message, &call(port), field);
    assert_eq!(reading, Reading::Done(message.len()));
    changed(&message, &out)
}

fn own(pairs: &[(u16, u16)]) -> Vec<(String, String)> {
    pairs.iter().map(|(old, new)| (format!("10.0.0.5:{old}"), format!("192.0.2.1:{new}"))).collect()
}

#[test]
fn a_setup_names_outside_endpoints_for_control_signalling_and_proposed_media() {
    let mut field = Field::default();
    let found = translated(SETUP, PORT, &mut field);
    let media = [(5_001, 20_001), (5_000, 20_000), (5_001, 20_001), (5_003, 20_003), (5_003, 20_003)];
    assert_eq!(found, own(&[&[(6_000, 20_000), (1_234, 1_234)], &media[..]].concat()));
    assert_eq!(field.opened, [6_000, 5_001, 5_000, 5_001, 5_003, 5_003]);
    assert_eq!(field.awaited, ["192.0.2.1:20000".parse().unwrap()], "its connection is read, too");
    assert_eq!(field.notes, [Note::Rewritten], "whom it calls is no stranger");
}

#[test]
fn the_other_messages_of_a_call_are_read_too() {
    for (hex, expected) in [
        (CONNECT, own(&[(6_000, 20_000)])),
        (FACILITY, own(&[(6_000, 20_000)])),
        (PROGRESS, own(&[(6_000, 20_000), (5_001, 20_001)])),
        (
            TUNNELLED,
            own(&[
                (5_001, 20_001),
                (5_000, 20_000),
                (5_001, 20_001),
                (5_000, 20_000),
                (5_001, 20_001),
                (1_503, 20_503),
            ]),
        ),
    ] {
        assert_eq!(translated(hex, PORT, &mut Field::default()), expected);
    }
}

#[test]
fn channels_are_opened_in_a_connection_of_their_own() {
    for (hex, expected) in [
        (OPEN, own(&[(5_001, 20_001)])),
        (ACK, own(&[(5_000, 20_000), (5_001, 20_001), (5_000, 20_000), (5_001, 20_001)])),
        (T120, own(&[(1_503, 20_503)])),
    ] {
        assert_eq!(translated(hex, 7_000, &mut Field::default()), expected);
    }
}

#[test]
fn where_the_far_end_waits_for_control_is_read_and_stays() {
    let (mut field, message) = (Field::default(), bytes(PROCEEDING));
    let (_, out) = read_by(Side::Outside, &message, &call(PORT), &mut field);
    assert_eq!(out, message);
    assert_eq!(field.awaited, ["198.51.100.7:7000".parse().unwrap()]);
    assert!(field.opened.is_empty());
}

#[test]
fn what_comes_back_names_inside_endpoints_again() {
    let (mut field, message) = (Field::default(), bytes(SETUP));
    let (_, outside) = read_by(Side::Inside, &message, &call(PORT), &mut field);
    let (_, back) = read_by(Side::Outside, &outside, &call(PORT), &mut field);
    // The ports of control and media share one number outside in this field.
    let places: Vec<String> = changed(&outside, &back).into_iter().map(|(_, new)| new).collect();
    assert!(places.len() == 7 && places.iter().all(|place| place.starts_with("10.0.0.5:")), "{places:?}");
}

#[test]
fn other_hosts_and_services_are_left() {
    let mut field = Field::default();
    let message = bytes(OPEN);
    let stranger = Ends { inside: "10.0.0.6".parse().unwrap(), ..call(7_000) };
    assert_eq!(read_by(Side::Inside, &message, &stranger, &mut field).1, message);
    let mut service = message.clone();
    let at = service.windows(2).position(|port| port == 5_001_u16.to_be_bytes()).unwrap();
    service[at..at + 2].copy_from_slice(&53_u16.to_be_bytes());
    assert_eq!(read_by(Side::Inside, &service, &call(7_000), &mut field).1, service);
    assert_eq!((field.notes.as_slice(), field.opened.len()), (&[Note::Foreign, Note::Foreign][..], 0));
}

const ALL: [(&str, u16); 9] = [
    (SETUP, PORT),
    (PROCEEDING, PORT),
    (CONNECT, PORT),
    (FACILITY, PORT),
    (PROGRESS, PORT),
    (TUNNELLED, PORT),
    (OPEN, 7_000),
    (ACK, 7_000),
    (T120, 7_000),
];

/// The same call of an IPv6 host.
fn call6(inside: &str, port: u16) -> Ends {
    Ends { inside: inside.parse().unwrap(), ..call(port) }
}

/// A message as an IPv6 host reads it, by the prefix of the field: 10.0.0.5 is 2001:db8:64::a00:5.
fn in_six(message: &[u8], port: u16) -> Vec<u8> {
    read_by(Side::Outside, message, &call6("2001:db8::99", port), &mut Field::default()).1
}

/// ITU-T X.691 §10.2, §10.9: lengths follow, one octet or two; and back again it is the message it was, octet by octet.
#[test]
fn between_ip_versions_every_address_has_the_readers_version_and_all_lengths_follow() {
    for (hex, port) in ALL {
        let message = bytes(hex);
        let six = in_six(&message, port);
        assert_eq!(usize::from(u16::from_be_bytes([six[2], six[3]])), six.len(), "the TPKT's length");
        let addresses = |bytes: &[u8]| -> Vec<bool> {
            let at = if port == PORT { user_information(&bytes[TPKT..]).unwrap() } else { 0 };
            let kind = if port == PORT { &USER_INFORMATION } else { &CONTROL_MESSAGE };
            let found = per::addresses(kind, &bytes[TPKT + at..]).unwrap();
            found.iter().map(|found| found.form.is_six()).collect()
        };
        let (before, after) = (addresses(&message), addresses(&six));
        assert!(!before.is_empty() && before.iter().all(|six| !six));
        assert_eq!(after, vec![true; before.len()]);
        assert!(six.len() >= message.len() + 12 * before.len());
        let stranger = call6("2001:db8::99", port);
        let back = read_by(Side::Inside, &six, &stranger, &mut Field::default()).1;
        assert_eq!(back, message);
    }
}

/// What an IPv6 host says reaches an IPv4 one as if an IPv4 host behind the NAT had said it.
#[test]
fn a_call_of_an_ipv6_host_reads_as_one_of_an_ipv4_host() {
    for (hex, port) in ALL {
        let (message, mut field, mut field6) = (bytes(hex), Field::default(), Field::default());
        let (_, expected) = read_by(Side::Inside, &message, &call(port), &mut field);
        let own = call6("2001:db8:64::a00:5", port);
        let (reading, out) = read_by(Side::Inside, &in_six(&message, port), &own, &mut field6);
        assert!(matches!(reading, Reading::Done(_)));
        assert_eq!(out, expected);
        assert_eq!((field6.opened, field6.awaited), (field.opened, field.awaited));
    }
}

#[test]
fn the_far_ends_answer_names_its_address_as_an_ipv6_host_sees_it() {
    let (mut field, message) = (Field::default(), bytes(PROCEEDING));
    let (_, out) = read_by(Side::Outside, &message, &call6("2001:db8::5", PORT), &mut field);
    let seen = "2001:db8:64::c633:6407".parse::<core::net::Ipv6Addr>().unwrap().octets();
    let endpoint = [&seen[..], &7_000_u16.to_be_bytes()].concat();
    assert!(out.windows(18).any(|octets| octets == endpoint));
    assert_eq!(field.awaited, ["198.51.100.7:7000".parse().unwrap()], "and its connection is read");
}

/// No guess: a message that ends early, or of which one length is wrong, is left as it is.
#[test]
fn what_does_not_decode_to_its_end_stays_as_it_is() {
    let four = (bytes(SETUP), call(PORT));
    let six = (in_six(&four.0, PORT), call6("2001:db8:64::a00:5", PORT));
    for (message, ends) in [four, six] {
        for len in TPKT + 1..message.len() {
            let mut short = message[..len].to_vec();
            short[2..4].copy_from_slice(&(len as u16).to_be_bytes());
            let (reading, out) = read_by(Side::Inside, &short, &ends, &mut Field::default());
            assert_eq!((reading, &out), (Reading::Done(len), &short), "{len}");
        }
    }
}

#[test]
fn long_messages_pass_and_what_is_no_tpkt_ends_the_reading() {
    let mut memory = crate::Memory::default();
    let mut read = |message: &[u8]| {
        let mut edits = Edits::default();
        H323.read(Said {
            memory: &mut memory,
            side: Side::Inside,
            bytes: message,
            ends: &call(PORT),
            ground: &mut Field::default(),
            edits: &mut edits,
        })
    };
    assert_eq!(read(&[3, 0, 0]), Reading::More);
    assert_eq!(read(&[3, 0, 0, 9, 8, 2]), Reading::More);
    assert_eq!(read(&[3, 0, 0, 4, 3, 0]), Reading::Done(4), "an empty one keeps alive");
    assert_eq!(read(&[&[3, 0, 0x20, 0][..], &[0; 1_000]].concat()), Reading::Done(1_004));
    assert_eq!(read(&[3; 7_000]), Reading::Done(7_000));
    assert_eq!(read(&[3; 600]), Reading::Done(188), "the rest of 8192");
    assert_eq!(read(b"GET / HTTP/1.1"), Reading::Unreadable);
}

proptest::proptest! {
    /// Octets damaged at random, between IP versions and within one: no panic, and a message that is changed keeps a TPKT's
    /// length that is its own.
    #[test]
    fn damaged_messages_are_left_or_changed_as_a_whole(
        which in 0..ALL.len(),
        damage in proptest::collection::vec((0..1_000_usize, proptest::prelude::any::<u8>()), 0..4),
        crosses in proptest::prelude::any::<bool>(),
        outside in proptest::prelude::any::<bool>(),
    ) {
        let (hex, port) = ALL[which];
        let own = if crosses { call6("2001:db8:64::a00:5", port) } else { call(port) };
        let side = if outside { Side::Outside } else { Side::Inside };
        let mut message = if crosses && !outside { in_six(&bytes(hex), port) } else { bytes(hex) };
        let len = message.len();
        for (at, octet) in damage {
            // The TPKT's header stays, as what follows a wrong length is another message.
            message[TPKT + at % (len - TPKT)] = octet;
        }
        let (reading, out) = read_by(side, &message, &own, &mut Field::default());
        proptest::prop_assert_eq!(reading, Reading::Done(len));
        proptest::prop_assert_eq!(usize::from(u16::from_be_bytes([out[2], out[3]])), out.len());
        if !crosses {
            proptest::prop_assert_eq!(out.len(), len);
        }
    }
}
