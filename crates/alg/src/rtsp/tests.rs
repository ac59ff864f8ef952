use super::*;
use crate::ground::{Field, ends};

/// What a message becomes, and what of `memory` and `field`.
fn pass(memory: &mut crate::Memory, field: &mut Field, ends: &Ends, side: Side, message: &str) -> String {
    let mut edits = Edits::default();
    let bytes = message.as_bytes();
    let reading = Rtsp.read(Said { memory, side, bytes, ends, ground: field, edits: &mut edits });
    assert_eq!(reading, Reading::Done(bytes.len()), "{message}");
    let mut out = [0; 2_048];
    let len = edits.apply(bytes, &mut out).unwrap();
    String::from_utf8(out[..len].to_vec()).unwrap()
}

fn inside(message: &str) -> (String, Field) {
    let mut field = Field::default();
    let text = pass(&mut crate::Memory::default(), &mut field, &ends("10.0.0.5"), Side::Inside, message);
    (text, field)
}

const SETUP: &str = "SETUP rtsp://198.51.100.7/stream RTSP/1.0\r\nCSeq: 3\r\n\
     Transport: RTP/AVP;unicast;client_port=5000-5001\r\n\r\n";

/// RFC 2326 §12.39: the client's ports get outside ones, and come back in the answer.
#[test]
fn the_clients_ports_are_translated_both_ways() {
    let (text, mut field) = inside(SETUP);
    assert_eq!(text, SETUP.replace("5000-5001", "20000-20001"));
    assert_eq!(field.opened, [5_000, 5_001]);
    let answer = "RTSP/1.0 200 OK\r\nCSeq: 3\r\nSession: 1\r\n\
         transport:  RTP/AVP/UDP;unicast;client_port=20000-20001;server_port=6970-6971;destination=192.0.2.1\r\n\r\n";
    let memory = &mut crate::Memory::default();
    let text = pass(memory, &mut field, &ends("10.0.0.5"), Side::Outside, answer);
    assert_eq!(text, answer.replace("20000-20001", "5000-5001").replace("192.0.2.1", "10.0.0.5"));
}

#[test]
fn of_several_transports_each_over_udp_is_translated() {
    let offers = "SETUP rtsp://s/a RTSP/1.0\r\nTransport: RTP/AVP/TCP;unicast;interleaved=0-1, \
         RTP/AVP;multicast;client_port=7000-7001,RTP/AVP;unicast;client_port=5002\r\n\r\n";
    let (text, field) = inside(offers);
    assert_eq!(text, offers.replace("client_port=5002", "client_port=20002"));
    assert_eq!(field.opened, [5_002]);
}

#[test]
fn a_server_inside_has_its_ports_and_its_address_translated_in_the_answer() {
    let ends = Ends { client: Side::Outside, ..ends("10.0.0.5") };
    let (mut memory, mut field) = (crate::Memory::default(), Field::default());
    let request = SETUP.replace("5000-5001", "9000-9001");
    assert_eq!(pass(&mut memory, &mut field, &ends, Side::Outside, &request), request);
    let answer = "RTSP/1.0 200 OK\r\nTransport: RTP/AVP;unicast;client_port=9000-9001;\
         server_port=6970-6971;source=10.0.0.5\r\n\r\n";
    let text = pass(&mut memory, &mut field, &ends, Side::Inside, answer);
    assert_eq!(text, answer.replace("6970-6971", "20970-20971").replace("10.0.0.5", "192.0.2.1"));
}

/// RFC 2326 §16: media are not sent where nobody asked for them.
#[test]
fn who_names_another_host_or_a_service_gets_nothing_opened() {
    for transport in [
        "RTP/AVP;unicast;destination=10.0.0.6;client_port=5000-5001",
        "RTP/AVP;unicast;destination=victim.example;client_port=5000-5001",
        "RTP/AVP;unicast;client_port=53-54",
    ] {
        let message = format!("SETUP rtsp://s/a RTSP/1.0\r\nTransport: {transport}\r\n\r\n");
        let (text, field) = inside(&message);
        assert_eq!((text, field.opened.len()), (message, 0));
        assert!(field.notes.contains(&Note::Foreign));
    }
}

#[test]
fn numbers_out_of_range_are_left_as_they_are() {
    for ports in ["70000-70001", "5000-4999", "0-1", "5000-", "-", "", "99999999999999999999", "5000-5001x"] {
        let message = format!("SETUP rtsp://s/a RTSP/1.0\r\nTransport: RTP/AVP;client_port={ports}\r\n\r\n");
        let (text, field) = inside(&message);
        assert_eq!((text, field.opened.len()), (message, 0));
        assert!(field.notes.contains(&Note::Malformed), "{ports}");
    }
}

/// RFC 2326 §10.12: neither media within the connection nor bodies are read, in whatever pieces they come.
#[test]
fn bodies_and_media_within_the_connection_are_walked_past() {
    let (mut memory, mut field) = (crate::Memory::default(), Field::default());
    let mut media = vec![b'$', 0, 0x01, 0x00];
    media.extend(SETUP.bytes().cycle().take(256));
    let body = format!("ANNOUNCE rtsp://s/a RTSP/1.0\r\nContent-Length: {}\r\n\r\n{SETUP}", SETUP.len());
    let stream = [&media, body.as_bytes(), &media].concat();
    for piece in [1, 3, 7, 100, stream.len()] {
        let (mut start, mut end) = (0, 0);
        while start < stream.len() {
            end = (end + piece).min(stream.len());
            let mut edits = Edits::default();
            let ends = ends("10.0.0.5");
            let (memory, bytes, ground) = (&mut memory, &stream[start..end], &mut field);
            let said = Said { memory, side: Side::Inside, bytes, ends: &ends, ground, edits: &mut edits };
            match Rtsp.read(said) {
                Reading::Done(count) => start += count,
                Reading::More => assert!(end < stream.len()),
                Reading::Transparent | Reading::Unreadable => panic!("lost its place at {start}"),
            }
            end = end.max(start);
        }
        assert_eq!(field.opened, [0; 0]);
    }
}

#[test]
fn what_is_not_rtsp_is_not_read() {
    let read = |bytes: &[u8]| {
        let mut edits = Edits::default();
        let (memory, ground) = (&mut crate::Memory::default(), &mut Field::default());
        let ends = &ends("10.0.0.5");
        Rtsp.read(Said { memory, side: Side::Inside, bytes, ends, ground, edits: &mut edits })
    };
    assert_eq!(read(b"\x16\x03\x01"), Reading::Transparent);
    assert_eq!(read(b"GET /stream HTTP/1.0\r\n\r\n"), Reading::Unreadable);
    assert_eq!(read(b"SETUP rtsp://s/a RTSP/1.0\r\nContent-Length: x\r\n\r\n"), Reading::Unreadable);
    assert_eq!(read(&[b'A'; 40]), Reading::Unreadable);
    assert_eq!(read(&b"SETUP ".repeat(1_000)), Reading::Unreadable);
    assert_eq!(read(b"SETU"), Reading::More);
    assert_eq!(read(b"$\0"), Reading::More);
}

/// RFC 2326 §10.7: what has come by then stays, the rest is expected no longer.
#[test]
fn a_teardown_by_the_client_ends_what_is_expected() {
    let (mut memory, mut field) = (crate::Memory::default(), Field::default());
    let ends = ends("10.0.0.5");
    pass(&mut memory, &mut field, &ends, Side::Inside, SETUP);
    let message = "TEARDOWN rtsp://198.51.100.7/stream RTSP/1.0\r\nCSeq: 5\r\nSession: 1\r\n\r\n";
    assert_eq!(pass(&mut memory, &mut field, &ends, Side::Outside, message), message);
    assert_eq!(field.closed, [0; 0], "a server has nothing to tear down");
    assert_eq!(pass(&mut memory, &mut field, &ends, Side::Inside, message), message);
    assert_eq!((field.closed.len(), field.closed[0]), (1, field.dialogs[0]));
    assert_ne!(field.closed[0], 0);
}

/// RFC 6052 §2.2: the host is 2001:db8::5, IPv4 stands behind 2001:db8:64::/96.
#[test]
fn between_ip_versions_addresses_of_media_are_the_readers() {
    let (mut memory, mut field, ends) = (crate::Memory::default(), Field::default(), ends("2001:db8::5"));
    let mut pass = |side, text: &str| pass(&mut memory, &mut field, &ends, side, text);
    let setup = SETUP.replace("unicast;", "unicast;destination=2001:db8::5;");
    let url = "rtsp://[2001:db8:64::c633:6407]/stream";
    let setup = setup.replace("rtsp://198.51.100.7/stream", url);
    let sent = setup.replace("2001:db8::5", "192.0.2.1").replace("5000-5001", "20000-20001");
    assert_eq!(pass(Side::Inside, &setup), sent, "the URL is signed, and stays");
    let answer = "RTSP/1.0 200 OK\r\nTransport: RTP/AVP;unicast;destination=192.0.2.1;source=198.51.100.7;\
         client_port=20000-20001;server_port=6970-6971\r\n\r\n";
    let heard = answer.replace("192.0.2.1", "2001:db8::5").replace("198.51.100.7", "2001:db8:64::c633:6407");
    assert_eq!(pass(Side::Outside, answer), heard.replace("20000-20001", "5000-5001"));
    let elsewhere = "RTSP/1.0 302 Found\r\nLocation: rtsp://198.51.100.9:8554/stream\r\n\r\n";
    let heard = elsewhere.replace("198.51.100.9", "[2001:db8:64::c633:6409]");
    assert_eq!(pass(Side::Outside, elsewhere), heard);
    assert_eq!(field.opened, [5_000, 5_001]);
}

fn described(addresses: [&str; 2], filler: usize) -> String {
    let [own, none] = addresses;
    let name = "x".repeat(filler);
    let body = format!("v=0\r\no=- 1 1 IN {own}\r\ns={name}\r\nc=IN {none}\r\nm=audio 6000 RTP/AVP 0\r\n");
    let head = "RTSP/1.0 200 OK\r\nContent-Type: application/sdp;charset=utf-8\r\nContent-Length:";
    format!("{head} {}\r\nCSeq: 2\r\n\r\n{body}", body.len())
}

/// RFC 2326 §C.1.7: a client reads of no other version than its own. Ports there are a suggestion (RFC 2326 §C.1.2).
#[test]
fn between_ip_versions_a_description_is_one_of_the_readers() {
    let ends = ends("2001:db8::5");
    let (mut memory, mut field) = (crate::Memory::default(), Field::default());
    let four = ["IP4 198.51.100.7", "IP4 0.0.0.0"];
    let six = ["IP6 2001:db8:64::c633:6407", "IP6 ::"];
    let mut pass = |side, text: &str| pass(&mut memory, &mut field, &ends, side, text);
    assert_eq!(pass(Side::Outside, &described(four, 1)), described(six, 1));
    assert_eq!(pass(Side::Inside, &described(six, 1)), described(four, 1));
    // Of another kind, or too long to be held: as it is.
    let other = described(four, 1).replace("sdp", "xml");
    assert_eq!(pass(Side::Outside, &other), other);
    let long = described(four, HELD_MAX);
    let mut edits = Edits::default();
    let (memory, bytes, ground) = (&mut crate::Memory::default(), long.as_bytes(), &mut field);
    let said = Said { memory, side: Side::Outside, bytes, ends: &ends, ground, edits: &mut edits };
    assert_eq!((Rtsp.read(said), edits.is_empty()), (Reading::Done(long.len()), true));
    assert_eq!(field.opened, [0; 0]);
}

/// Only whole descriptions can be changed: the header waits for them. Within one IP version nothing waits.
#[test]
fn between_ip_versions_a_description_in_pieces_is_waited_for() {
    let text = described(["IP4 198.51.100.7", "IP4 0.0.0.0"], 1);
    let piece = &text.as_bytes()[..text.len() - 1];
    for (inside, expected) in [("2001:db8::5", Reading::More), ("10.0.0.5", Reading::Done(piece.len()))] {
        let (memory, ground, ends) = (&mut crate::Memory::default(), &mut Field::default(), &ends(inside));
        let edits = &mut Edits::default();
        assert_eq!(
            Rtsp.read(Said { memory, side: Side::Outside, bytes: piece, ends, ground, edits }),
            expected
        );
    }
}
