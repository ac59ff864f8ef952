use super::*;

use crate::ground::Field;

struct Test {
    memory: crate::Memory,
    ends: Ends,
    field: Field,
}

fn test(inside: &str, client: Side) -> Test {
    Test {
        memory: crate::Memory::default(),
        ends: Ends { client, ..crate::ground::ends(inside) },
        field: Field::default(),
    }
}

impl Test {
    fn says(&mut self, side: Side, line: &str) -> String {
        let mut edits = Edits::default();
        let reading = Ftp.read(Said {
            memory: &mut self.memory,
            side,
            bytes: line.as_bytes(),
            ends: &self.ends,
            ground: &mut self.field,
            edits: &mut edits,
        });
        assert_eq!(reading, Reading::Done(line.len()), "{line}");
        let mut out = [0; 1_024];
        let len = edits.apply(line.as_bytes(), &mut out).unwrap();
        String::from_utf8(out[..len].to_vec()).unwrap()
    }
    fn inside(&mut self, line: &str) -> String {
        self.says(Side::Inside, line)
    }
    fn outside(&mut self, line: &str) -> String {
        self.says(Side::Outside, line)
    }
}

#[test]
fn a_clients_own_address_becomes_its_outside_one() {
    let mut t = test("10.0.0.5", Side::Inside);
    assert_eq!(t.inside("PORT 10,0,0,5,19,137\r\n"), "PORT 192,0,2,1,78,33\r\n");
    assert_eq!(t.inside("eprt |1|10.0.0.5|5001|\r\n"), "eprt |1|192.0.2.1|20001|\r\n");
    assert_eq!(t.inside("EPRT !1!10.0.0.5!5002!\n"), "EPRT !1!192.0.2.1!20002!\n");
    assert_eq!(t.field.opened, [5_001, 5_001, 5_002]);
}

/// RFC 2577 §3: neither other hosts nor services; what makes no sense is left alone.
#[test]
fn bounces_and_nonsense_are_left_as_they_are() {
    let mut t = test("10.0.0.5", Side::Inside);
    for line in [
        "PORT 10,0,0,6,19,137\r\n",
        "PORT 10,0,0,5,0,22\r\n",
        "EPRT |1|10.0.0.6|5001|\r\n",
        "EPRT |1|10.0.0.5|80|\r\n",
        "EPRT |2|2001:db8::1|5001|\r\n",
    ] {
        assert_eq!(t.inside(line), line);
    }
    assert_eq!(t.field.notes, [Note::Foreign; 5]);
    t.field.notes.clear();
    for line in [
        "PORT 10,0,0,5,19,256\r\n",
        "PORT 10,0,0,5,19\r\n",
        "PORT 10,0,0,5,19,137,1\r\n",
        "PORT\r\n",
        "PORT 99999999999999999999,0,0,5,19,137\r\n",
        "EPRT |1|10.0.0.5|65536|\r\n",
        "EPRT |1|10.0.0.5|5001\r\n",
        "EPRT |2|10.0.0.5|5001|\r\n",
        "EPRT 111\r\n",
        "EPRT |1|10.0.0.5||\r\n",
    ] {
        assert_eq!(t.inside(line), line);
    }
    assert_eq!(t.field.notes, [Note::Malformed; 10]);
    assert!(t.field.opened.is_empty());
}

#[test]
fn without_room_the_line_stays() {
    let mut t = test("10.0.0.5", Side::Inside);
    t.field.room = false;
    assert_eq!(t.inside("PORT 10,0,0,5,19,137\r\n"), "PORT 10,0,0,5,19,137\r\n");
    assert_eq!(t.field.notes, [Note::NoRoom]);
}

#[test]
fn an_inside_servers_answers_are_rewritten_when_they_were_asked_for() {
    let mut t = test("10.0.0.5", Side::Outside);
    let answer = "227 Entering Passive Mode (10,0,0,5,19,137).\r\n";
    assert_eq!(t.inside(answer), answer, "nobody asked");
    t.outside("PASV\r\n");
    assert_eq!(t.inside(answer), "227 Entering Passive Mode (192,0,2,1,78,33).\r\n");
    t.outside("PASV\r\n");
    assert_eq!(t.inside("227 =10,0,0,5,19,137\r\n"), "227 =192,0,2,1,78,33\r\n");
    t.outside("EPSV\r\n");
    let extended = "229 Entering Extended Passive Mode (|||5001|)\r\n";
    assert_eq!(t.inside(extended), "229 Entering Extended Passive Mode (|||20001|)\r\n");
    t.outside("PASV\r\n");
    t.inside("227-more to come\r\n");
    assert_eq!(t.inside("227 (10,0,0,6,19,137)\r\n"), "227 (10,0,0,6,19,137)\r\n", "not its own");
    // A client outside is reached as it says.
    assert_eq!(t.outside("PORT 198,51,100,7,19,137\r\n"), "PORT 198,51,100,7,19,137\r\n");
}

/// RFC 4217 §4: from the accepted AUTH on all is TLS.
#[test]
fn an_accepted_auth_makes_it_transparent_and_a_refused_one_does_not() {
    let mut t = test("10.0.0.5", Side::Inside);
    t.inside("AUTH TLS\r\n");
    t.outside("534 no\r\n");
    assert!(t.inside("PORT 10,0,0,5,19,137\r\n").contains("192"));
    t.inside("AUTH TLS\r\n");
    let mut edits = Edits::default();
    let reading = Ftp.read(Said {
        memory: &mut t.memory,
        side: Side::Outside,
        bytes: b"234 go\r\n",
        ends: &t.ends,
        ground: &mut t.field,
        edits: &mut edits,
    });
    assert_eq!(reading, Reading::Transparent);
    assert_eq!(t.field.notes.last(), Some(&Note::Transparent));
}

/// RFC 6384 §6, RFC 6384 §7.2.
#[test]
fn between_versions_epsv_becomes_pasv_and_eprt_becomes_port() {
    let mut t = test("2001:db8:2::31", Side::Inside);
    assert_eq!(t.inside("EPSV\r\n"), "PASV\r\n");
    assert_eq!(
        t.outside("227 Entering Passive Mode (192,0,2,31,237,19)\r\n"),
        "229 Entering Extended Passive Mode (|||60691|)\r\n"
    );
    assert_eq!(t.inside("EPSV 2\r\n"), "PASV\r\n");
    assert_eq!(t.outside("500 what?\r\n"), "500 what?\r\n");
    assert_eq!(t.inside("EPRT |2|2001:db8:2::31|5282|\r\n"), "PORT 192,0,2,1,79,58\r\n");
    assert_eq!(t.inside("EPRT |2|2001:db8:2::32|5282|\r\n"), "EPRT |2|2001:db8:2::32|5282|\r\n");
    assert_eq!(t.inside("EPRT |1|10.0.0.1|5282|\r\n"), "EPRT |1|10.0.0.1|5282|\r\n");
    // RFC 6384 §10: as it is.
    assert_eq!(t.inside("PASV\r\n"), "PASV\r\n");
    assert_eq!(t.outside("227 (192,0,2,31,237,19)\r\n"), "227 (192,0,2,31,237,19)\r\n");
}

/// RFC 6384 §11, RFC 6384 §12: what the gateway answers itself is a NOOP for the server.
#[test]
fn commands_for_the_gateway_reach_the_server_as_noop_and_their_answer_is_the_gateways() {
    let mut t = test("2001:db8:2::31", Side::Inside);
    for (command, answer) in [
        ("EPSV ALL", "504 Command not implemented for that parameter"),
        ("EPSV 1", "522 Network protocol not supported"),
        ("ALGS STATUS64", "216 EPSVEPRT"),
        ("ALGS DISABLE64", "216 NONE"),
        ("ALGS STATUS64", "216 NONE"),
        ("ALGS", "504 Command not implemented for that parameter"),
    ] {
        assert_eq!(t.inside(&format!("{command}\r\n")), "NOOP\r\n");
        assert_eq!(t.outside("200 NOOP ok\r\n"), format!("{answer}\r\n"));
    }
    assert_eq!(t.inside("EPSV\r\n"), "EPSV\r\n");
    assert_eq!(t.inside("EPRT |2|2001:db8:2::31|5282|\r\n"), "EPRT |2|2001:db8:2::31|5282|\r\n");
    t.inside("ALGS ENABLE64\r\n");
    t.outside("200 ok\r\n");
    assert_eq!(t.inside("EPSV\r\n"), "PASV\r\n");
    // Between IPv4 and IPv4 it is nobody's.
    let mut t = test("10.0.0.5", Side::Inside);
    assert_eq!(t.inside("ALGS STATUS64\r\n"), "ALGS STATUS64\r\n");
}

#[test]
fn only_lines_that_may_matter_are_waited_for_and_no_line_for_ever() {
    let mut t = test("10.0.0.5", Side::Inside);
    let mut read = |side, bytes: &[u8]| {
        let (memory, ends, ground) = (&mut t.memory, &t.ends, &mut t.field);
        Ftp.read(Said { memory, side, bytes, ends, ground, edits: &mut Edits::default() })
    };
    assert_eq!(read(Side::Inside, b"po"), Reading::More);
    assert_eq!(read(Side::Inside, b"PORT 10,0"), Reading::More);
    assert_eq!(read(Side::Inside, b"RET"), Reading::Done(3));
    assert_eq!(read(Side::Inside, b"PORT 10,0"), Reading::Done(9), "in the middle of a line");
    assert_eq!(read(Side::Inside, b"x\nPORT"), Reading::Done(2));
    assert_eq!(read(Side::Inside, &[b'P'; 10_000]), Reading::Done(10_000));
    assert_eq!(read(Side::Inside, b"\n"), Reading::Done(1));
    let long = [&b"PORT "[..], &[b'1'; 10_000]].concat();
    assert_eq!(read(Side::Inside, &long), Reading::Done(10_005));
    assert_eq!(read(Side::Outside, b"227"), Reading::Done(3), "nothing is awaited");
}
