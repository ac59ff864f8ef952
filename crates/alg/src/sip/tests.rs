use carrack_base::Proto;

use super::*;
use crate::Protocol;
use crate::ground::Field;

/// The host's port 5060 is 192.0.2.1:40000 outside.
fn ends(proto: Proto) -> Ends {
    Ends {
        inside_port: 5_060,
        outside: "192.0.2.1:40000".parse().unwrap(),
        remote: "198.51.100.7:5060".parse().unwrap(),
        proto,
        ..crate::ground::ends("10.0.0.5")
    }
}

fn read(side: Side, text: &str, field: &mut Field, proto: Proto) -> (Reading, String) {
    let mut edits = Edits::default();
    let mut memory = crate::Memory::default();
    let reading = Sip.read(Said {
        memory: &mut memory,
        side,
        bytes: text.as_bytes(),
        ends: &ends(proto),
        ground: field,
        edits: &mut edits,
    });
    let mut out = vec![0; 8_000];
    let len = edits.apply(text.as_bytes(), &mut out).unwrap();
    (reading, String::from_utf8(out[..len].to_vec()).unwrap())
}

fn message(head: &[&str], body: &[&str]) -> String {
    let body: String = body.iter().map(|line| format!("{line}\r\n")).collect();
    let head: String = head.iter().map(|line| format!("{line}\r\n")).collect();
    format!("{head}Content-Length: {}\r\n\r\n{body}", body.len())
}

const OFFER: [&str; 8] = [
    "v=0",
    "o=alice 1 1 IN IP4 10.0.0.5",
    "s=-",
    "c=IN IP4 10.0.0.5",
    "t=0 0",
    "m=audio 6000 RTP/AVP 0 8",
    "a=rtcp:6001",
    "a=sendrecv",
];

#[test]
fn an_invitation_names_outside_endpoints_and_its_new_length() {
    let mut field = Field::default();
    let invite = message(
        &[
            "INVITE sip:bob@198.51.100.7 SIP/2.0",
            "Via: SIP/2.0/UDP 10.0.0.5:5060;branch=z9hG4bK1",
            "From: \"a\" <sip:alice@10.0.0.5>;tag=1",
            "To: <sip:bob@198.51.100.7>",
            "Call-ID: 1@10.0.0.5",
            "Contact: <sip:alice@10.0.0.5:5060>",
            "Content-Type: application/sdp",
        ],
        &OFFER,
    );
    let (reading, out) = read(Side::Inside, &invite, &mut field, Proto::Udp);
    assert_eq!(reading, Reading::Done(invite.len()));
    let expected = message(
        &[
            "INVITE sip:bob@198.51.100.7 SIP/2.0",
            "Via: SIP/2.0/UDP 192.0.2.1:40000;branch=z9hG4bK1",
            "From: \"a\" <sip:alice@192.0.2.1:40000>;tag=1",
            "To: <sip:bob@198.51.100.7>",
            "Call-ID: 1@10.0.0.5",
            "Contact: <sip:alice@192.0.2.1:40000>",
            "Content-Type: application/sdp",
        ],
        &[
            "v=0",
            "o=alice 1 1 IN IP4 192.0.2.1",
            "s=-",
            "c=IN IP4 192.0.2.1",
            "t=0 0",
            "m=audio 20000 RTP/AVP 0 8",
            "a=rtcp:20001",
            "a=sendrecv",
        ],
    );
    assert_eq!(out, expected);
    assert_eq!(field.opened, [6_000, 6_001]);
    assert_eq!(field.notes, [Note::Rewritten]);
}

#[test]
fn what_comes_back_names_inside_endpoints_again() {
    let mut field = Field::default();
    let answer = message(
        &[
            "SIP/2.0 200 OK",
            "v: SIP/2.0/UDP 192.0.2.1:40000;branch=z9hG4bK1;received=192.0.2.1;rport=40000",
            "f: <sip:alice@192.0.2.1:40000>;tag=1",
            "t: <sip:bob@198.51.100.7>;tag=2",
            "m: <sip:bob@198.51.100.7:5060>",
        ],
        &["v=0", "o=bob 1 1 IN IP4 198.51.100.7", "c=IN IP4 198.51.100.7", "m=audio 7000 RTP/AVP 0"],
    );
    let (_, out) = read(Side::Outside, &answer, &mut field, Proto::Udp);
    assert!(
        out.contains("v: SIP/2.0/UDP 10.0.0.5:5060;branch=z9hG4bK1;received=10.0.0.5;rport=40000"),
        "{out}"
    );
    assert!(out.contains("f: <sip:alice@10.0.0.5:5060>;tag=1") && out.contains("m=audio 7000"), "{out}");
    let call = "INVITE sip:alice@192.0.2.1:40000 SIP/2.0\r\nVia: SIP/2.0/UDP 198.51.100.7\r\n\r\n";
    let (_, out) = read(Side::Outside, call, &mut field, Proto::Udp);
    assert!(out.starts_with("INVITE sip:alice@10.0.0.5:5060 SIP/2.0\r\n"), "{out}");
    assert!(field.opened.is_empty());
}

#[test]
fn addresses_of_others_and_parts_of_longer_ones_stay() {
    let mut field = Field::default();
    let text = message(
        &[
            "INVITE sip:bob@110.0.0.5 SIP/2.0",
            "Via: SIP/2.0/UDP 10.0.0.55:5060;x=10.0.0.5.example",
            "Subject: 10.0.0.5",
        ],
        &[
            "v=0",
            "o=alice 1 1 IN IP4 10.0.0.6",
            "c=IN IP4 10.0.0.6",
            "m=audio 6000 RTP/AVP 0",
            "m=video 80 RTP/AVP 31",
        ],
    );
    assert_eq!(read(Side::Inside, &text, &mut field, Proto::Udp).1, text);
    assert_eq!(field.notes, [Note::Foreign; 2]);
    assert!(field.opened.is_empty());
}

#[test]
fn media_have_their_own_addresses_and_port_0_offers_nothing() {
    let mut field = Field::default();
    let text = message(
        &["INVITE sip:b@c SIP/2.0"],
        &[
            "v=0",
            "c=IN IP4 10.9.9.9",
            "m=audio 6000 RTP/AVP 0",
            "c=IN IP4 10.0.0.5",
            "m=video 0 RTP/AVP 31",
            "c=IN IP4 10.0.0.5",
            "m=image 6010 udptl t38",
            "c=IN IP4 10.0.0.5",
            "a=rtcp:6013 IN IP4 10.0.0.5",
        ],
    );
    let out = read(Side::Inside, &text, &mut field, Proto::Udp).1;
    assert!(
        out.contains("m=audio 20000 ") && out.contains("m=video 0 ") && out.contains("m=image 20010 "),
        "{out}"
    );
    assert!(
        out.contains("c=IN IP4 10.9.9.9\r\n") && out.contains("a=rtcp:20013 IN IP4 192.0.2.1\r\n"),
        "{out}"
    );
    assert_eq!(field.opened, [6_000, 6_001, 6_010, 6_013]);
}

#[test]
fn over_tcp_a_message_is_waited_for_and_its_successor_is_another() {
    let mut field = Field::default();
    let one = message(&["INVITE sip:b@c SIP/2.0", "Via: SIP/2.0/TCP 10.0.0.5"], &OFFER);
    for cut in 1..one.len() {
        assert_eq!(read(Side::Inside, &one[..cut], &mut field, Proto::Tcp).0, Reading::More, "{cut}");
    }
    let two = format!("{one}{one}");
    assert_eq!(read(Side::Inside, &two, &mut field, Proto::Tcp).0, Reading::Done(one.len()));
    assert_eq!(read(Side::Inside, "\r\n\r\nINVITE", &mut field, Proto::Tcp).0, Reading::Done(4));
    assert_eq!(read(Side::Inside, "GET / HTTP/1.1\r\n\r\n", &mut field, Proto::Tcp).0, Reading::Unreadable);
}

/// RFC 3261 §10.2.
#[test]
fn who_registers_is_reached_until_the_registration_expires() {
    let mut field = Field::default();
    let text = "REGISTER sip:c SIP/2.0\r\nContact: <sip:a@10.0.0.5:5070>;expires=60\r\n\r\n";
    let out = read(Side::Inside, text, &mut field, Proto::Udp).1;
    assert!(out.contains("<sip:a@192.0.2.1:20070>"), "{out}");
    assert_eq!(field.opened, [5_060, 5_070]);
}

/// RFC 3261 §15.1.1: what is expected of a call ends with it, and with no other.
#[test]
fn an_answered_bye_ends_what_the_call_expects() {
    let mut field = Field::default();
    let invite = |id: &str| message(&["INVITE sip:b@c SIP/2.0", &format!("Call-ID: {id}")], &OFFER);
    read(Side::Inside, &invite("one"), &mut field, Proto::Udp);
    read(Side::Inside, &invite("two"), &mut field, Proto::Udp);
    let (one, two) = (field.dialogs[0], field.dialogs[2]);
    assert!(one != two && one != 0 && two != 0 && field.dialogs == [one, one, two, two]);
    let mut answer = |code: &str, sequence: &str, id: &str| {
        let text = format!("SIP/2.0 {code} x\r\ni: {id}\r\nCSeq: {sequence}\r\n\r\n");
        field.closed.clear();
        read(Side::Outside, &text, &mut field, Proto::Udp);
        field.closed.clone()
    };
    assert_eq!(answer("200", "2 BYE", "one"), [one]);
    assert_eq!(answer("481", "2 BYE", "two"), [two]);
    assert_eq!(answer("487", "1 INVITE", "two"), [two]);
    for (code, sequence) in [
        ("100", "2 BYE"),
        ("200", "1 INVITE"),
        ("183", "1 INVITE"),
        ("407", "1 INVITE"),
        ("200", "3 OPTIONS"),
    ] {
        assert!(answer(code, sequence, "one").is_empty(), "{code} {sequence}");
    }
    let request = "BYE sip:b@c SIP/2.0\r\nCall-ID: one\r\nCSeq: 2 BYE\r\n\r\n";
    read(Side::Inside, request, &mut field, Proto::Udp);
    assert!(field.closed.is_empty(), "a BYE alone ends nothing");
}

/// The host is 2001:db8::5, IPv4 stands behind 2001:db8:64::/96.
fn across(side: Side, text: &str, field: &mut Field) -> String {
    let mut edits = Edits::default();
    let ends = Ends { inside: "2001:db8::5".parse().unwrap(), ..ends(Proto::Udp) };
    Sip.read(Said {
        memory: &mut crate::Memory::default(),
        side,
        bytes: text.as_bytes(),
        ends: &ends,
        ground: field,
        edits: &mut edits,
    });
    let mut out = vec![0; 8_000];
    let len = edits.apply(text.as_bytes(), &mut out).unwrap();
    String::from_utf8(out[..len].to_vec()).unwrap()
}

/// RFC 6052 §2.2: an IPv6 host and an IPv4 one each read addresses of their own version.
#[test]
fn between_ip_versions_every_address_is_one_of_the_readers() {
    let mut field = Field::default();
    let head = |target: &str, own: &str| {
        [
            format!("INVITE sip:bob@{target} SIP/2.0"),
            format!("Via: SIP/2.0/UDP {own};branch=z9hG4bK1"),
            format!("From: <sip:alice@{own}>;tag=1"),
            format!("To: <sip:bob@{target}>"),
            format!("Contact: <sip:alice@{own}>"),
        ]
    };
    let body = |ip: &str, port: u16| {
        [
            "v=0".into(),
            format!("o=a 1 1 IN {ip}"),
            format!("c=IN {ip}"),
            format!("m=audio {port} RTP/AVP 0"),
            format!("a=rtcp:{} IN {ip}", port + 1),
        ]
    };
    let whole = |head: &[String; 5], body: &[String; 5]| {
        let (head, body): (Vec<_>, Vec<_>) =
            (head.iter().map(String::as_str).collect(), body.iter().map(String::as_str).collect());
        message(&head, &body)
    };
    let six =
        whole(&head("[2001:db8:64::c633:6407]:5060", "[2001:db8::5]:5060"), &body("IP6 2001:db8::5", 6_000));
    let four = whole(&head("198.51.100.7:5060", "192.0.2.1:40000"), &body("IP4 192.0.2.1", 20_000));
    assert_eq!(across(Side::Inside, &six, &mut field), four);
    assert_eq!(field.opened, [6_000, 6_001]);

    let answer = message(
        &[
            "SIP/2.0 200 OK",
            "Via: SIP/2.0/UDP 192.0.2.1:40000;branch=z9hG4bK1;received=192.0.2.1;rport=40000",
            "Contact: <sip:bob@198.51.100.7:5060>",
            "Record-Route: <sip:203.0.113.9;lr>",
        ],
        &["v=0", "o=b 1 1 IN IP4 203.0.113.9", "c=IN IP4 203.0.113.9", "m=audio 7000 RTP/AVP 0"],
    );
    let expected = message(
        &[
            "SIP/2.0 200 OK",
            "Via: SIP/2.0/UDP [2001:db8::5]:5060;branch=z9hG4bK1;received=2001:db8::5;rport=40000",
            "Contact: <sip:bob@[2001:db8:64::c633:6407]:5060>",
            "Record-Route: <sip:[2001:db8:64::cb00:7109];lr>",
        ],
        &[
            "v=0",
            "o=b 1 1 IN IP6 2001:db8:64::cb00:7109",
            "c=IN IP6 2001:db8:64::cb00:7109",
            "m=audio 7000 RTP/AVP 0",
        ],
    );
    assert_eq!(across(Side::Outside, &answer, &mut field), expected);
    assert_eq!(field.opened.len(), 2, "what the outside offers opens nothing");
}

#[test]
fn addresses_that_stand_for_nothing_on_the_other_side_stay() {
    let mut field = Field::default();
    let text =
        "INVITE sip:b@[2001:db8:1::9] SIP/2.0\r\nVia: SIP/2.0/UDP [::1;x=[];[12\r\nTo: <sip:b@1.2.3>\r\n\r\n";
    assert_eq!(across(Side::Inside, text, &mut field), text);
    assert_eq!(across(Side::Outside, text, &mut field), text);
}

#[test]
fn nonsense_neither_breaks_it_nor_is_changed() {
    let mut field = Field::default();
    for text in [
        "",
        "x",
        "\0\0\0\0",
        "SIP/2.0 \r\n\r\n",
        "INVITE a SIP/2.0\r\nContent-Length: 99999999999\r\n\r\nv=0\r\nm=\r\nc=IN IP4 \r\n",
        "INVITE a SIP/2.0\r\n\r\nv=0\r\nm=audio\r\nm=audio 99999 RTP/AVP 0\r\na=rtcp:\r\no= IN IP4 ",
    ] {
        assert_eq!(read(Side::Inside, text, &mut field, Proto::Udp).1, text);
    }
}

/// What would be changed in part has a length that is wrong, so it is left as it is.
#[test]
fn a_message_with_more_changes_than_fit_is_changed_nowhere() {
    let vias = |count| (0..count).map(|_| "Via: SIP/2.0/UDP 10.0.0.5:5060").collect::<Vec<_>>();
    let read = |count| {
        let text = message(&[&["INVITE sip:bob@c SIP/2.0", "Call-ID: 1"][..], &vias(count)].concat(), &OFFER);
        let (mut edits, mut field) = (Edits::default(), Field::default());
        Protocol::Sip.read(Said {
            memory: &mut crate::Memory::default(),
            side: Side::Inside,
            bytes: text.as_bytes(),
            ends: &ends(Proto::Udp),
            ground: &mut field,
            edits: &mut edits,
        });
        (edits.iter().count(), field.notes)
    };
    let (changes, notes) = read(20);
    assert_eq!((changes, notes), (25, vec![Note::Rewritten]), "those, the length, and four of the session");
    assert_eq!(read(40), (0, vec![Note::Overfull]));
}

/// RFC 8446 §5.1: a client that encrypts is not kept waiting for the rest of a message.
#[test]
fn what_is_encrypted_over_tcp_goes_on_at_once() {
    let mut field = Field::default();
    assert_eq!(read(Side::Inside, "\u{16}\u{3}\u{1}\0", &mut field, Proto::Tcp).0, Reading::Transparent);
    assert_eq!(read(Side::Inside, "SSH-2.0-x\r\n", &mut field, Proto::Tcp).0, Reading::Unreadable);
    assert_eq!(read(Side::Inside, "INVI", &mut field, Proto::Tcp).0, Reading::More);
}

/// RFC 2577 §3: a contact at a port of services, or at none, opens nothing.
#[test]
fn a_contact_at_a_low_port_stays_as_it_is() {
    for port in [0, 80, 1_023] {
        let mut field = Field::default();
        let text = format!("INVITE sip:b@c SIP/2.0\r\nContact: <sip:a@10.0.0.5:{port}>\r\n\r\n");
        assert_eq!(read(Side::Inside, &text, &mut field, Proto::Udp).1, text);
        assert_eq!((field.opened.len(), field.notes), (0, vec![Note::Foreign]));
    }
}
