//! RTSP (RFC 2326): the ports that a client inside names for RTP and RTCP over UDP.
//!
//! What is interleaved with the control connection (RFC 2326 §10.12) and the bodies of messages pass as they are.

use core::ops::Range;

use carrack_base::Proto;

use crate::text::{Text, header_end, lines, number};
use crate::{Edits, Ends, From, Gateway, Ground, Note, Reading, Side, Want};

/// Until the server sends; then the media keep their mappings alive.
const LIFETIME_S: u16 = 120;
/// Transports offered in one request, at most.
const OFFERS_MAX: usize = 8;

/// RTSP's gateway.
#[derive(Debug, Clone, Copy)]
pub struct Rtsp;

/// What is remembered of a control connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Memory {
    /// Octets of bodies and interleaved data still to come, by side.
    rest: [u32; 2],
}

impl Gateway for Rtsp {
    fn read(
        &self,
        memory: &mut crate::Memory,
        side: Side,
        bytes: &[u8],
        ends: &Ends,
        ground: &mut dyn Ground,
        edits: &mut Edits,
    ) -> Reading {
        let memory = &mut memory.rtsp;
        let Some(rest) = memory.rest.get_mut(side as usize) else { return Reading::Transparent };
        if *rest > 0 {
            let count = bytes.len().min(*rest as usize);
            *rest -= count as u32;
            return Reading::Done(count);
        }
        let blank = bytes.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
        if blank > 0 {
            return Reading::Done(blank);
        }
        // RFC 2326 §10.12: a dollar sign, the channel, the length.
        if bytes.first() == Some(&b'$') {
            let Some([_, _, high, low]) = bytes.first_chunk() else { return Reading::More };
            *rest = u32::from(u16::from_be_bytes([*high, *low]));
            return Reading::Done(4);
        }
        let Some(end) = header_end(bytes) else { return Reading::More };
        let head = bytes.get(..end).unwrap_or(&[]);
        let is_one = lines(head)
            .next()
            .and_then(|line| head.get(line))
            .is_some_and(|first| first.starts_with(b"RTSP/1.0 ") || first.ends_with(b" RTSP/1.0"));
        if !is_one {
            ground.note(Note::Transparent);
            return Reading::Transparent;
        }
        for line in lines(head).skip(1) {
            let text = head.get(line.clone()).unwrap_or(&[]);
            if let Some(value) = value_of(text, b"Content-Length:") {
                *rest = number(text.get(value..).unwrap_or(&[]).trim_ascii_start(), u32::MAX)
                    .map_or(0, |(n, _)| n);
            }
            if value_of(text, b"Transport:").is_some() {
                let mut work = Work { side, ends, ground: &mut *ground, edits: &mut *edits };
                work.transport(head, line);
            }
        }
        if !edits.is_empty() {
            ground.note(Note::Rewritten);
        }
        Reading::Done(end)
    }
}

/// Where the value of a header begins, when the line is that header.
fn value_of(line: &[u8], name: &[u8]) -> Option<usize> {
    line.get(..name.len()).filter(|start| start.eq_ignore_ascii_case(name)).map(|_| name.len())
}

struct Work<'a> {
    side: Side,
    ends: &'a Ends,
    ground: &'a mut dyn Ground,
    edits: &'a mut Edits,
}

impl Work<'_> {
    /// RFC 2326 §12.39: `client_port=6000-6001` and `destination=` of every transport offered, or of the one chosen.
    fn transport(&mut self, head: &[u8], line: Range<usize>) {
        let mut at = line.start;
        for _ in 0..OFFERS_MAX {
            let Some(found) = find(head, at..line.end, b"client_port=") else { return };
            at = found + b"client_port=".len();
            let Some((first, digits)) = head.get(at..line.end).and_then(|rest| number(rest, 65_535)) else {
                return self.ground.note(Note::Malformed);
            };
            let end = at + digits;
            let second = head.get(end..line.end).and_then(|rest| number(rest.strip_prefix(b"-")?, 65_535));
            let end = second.map_or(end, |(_, digits)| end + 1 + digits);
            let new = match self.side {
                Side::Inside => self.open(first as u16, second.map(|(second, _)| second as u16)),
                Side::Outside => self.inside(first as u16, second.is_some()),
            };
            if let Some(new) = new {
                self.edits.replace(at..end, new.bytes());
            }
            at = end;
        }
    }

    /// What the inside's ports are outside. RTCP's has to be behind RTP's: there is one number for both.
    fn open(&mut self, first: u16, second: Option<u16>) -> Option<Text<12>> {
        let is_pair = second.is_none_or(|second| Some(second) == first.checked_add(1));
        if first < 1_024 || !is_pair {
            self.ground.note(Note::Foreign);
            return None;
        }
        let outside = *self.ends.outside.ip();
        let mut open = |inside_port| {
            let want = Want {
                proto: Proto::Udp,
                inside_port,
                from: From::Remote,
                lifetime_s: LIFETIME_S,
                uses: 0,
                pair: true,
            };
            self.ground.open(&want).filter(|opened| *opened.ip() == outside).map(|opened| opened.port())
        };
        let rtp = open(first)?;
        let Some(second) = second else { return Text::of(format_args!("{rtp}")) };
        let rtcp = open(second)?;
        if Some(rtcp) != rtp.checked_add(1) {
            self.ground.note(Note::NoRoom);
            return None;
        }
        Text::of(format_args!("{rtp}-{rtcp}"))
    }

    /// What the outside repeats is the inside's own again.
    fn inside(&mut self, first: u16, pair: bool) -> Option<Text<12>> {
        let port = self.ground.inside_port(Proto::Udp, first)?;
        match port.checked_add(1).filter(|_| pair) {
            Some(next) => Text::of(format_args!("{port}-{next}")),
            None => Text::of(format_args!("{port}")),
        }
    }
}

/// Where `what` is in a part of `text`, by its place in the whole.
fn find(text: &[u8], place: Range<usize>, what: &[u8]) -> Option<usize> {
    let start = place.start;
    text.get(place)?.windows(what.len()).position(|window| window == what).map(|at| start + at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ground::{Field, ends};

    struct Test {
        memory: crate::Memory,
        field: Field,
    }

    impl Test {
        fn read(&mut self, side: Side, text: &str) -> (Reading, String) {
            let mut edits = Edits::default();
            let (bytes, ends) = (text.as_bytes(), ends("10.0.0.5"));
            let reading = Rtsp.read(&mut self.memory, side, bytes, &ends, &mut self.field, &mut edits);
            let mut out = [0; 2_000];
            let len = edits.apply(bytes, &mut out).unwrap();
            (reading, String::from_utf8(out[..len].to_vec()).unwrap())
        }
    }

    fn test() -> Test {
        Test { memory: crate::Memory::default(), field: Field::default() }
    }

    #[test]
    fn ports_for_media_are_outside_ones_for_the_server_and_inside_ones_for_the_client() {
        let mut t = test();
        let setup = "SETUP rtsp://s/t RTSP/1.0\r\nCSeq: 2\r\nTransport: RTP/AVP/UDP;unicast;client_port=6000-6001,RTP/AVP;client_port=6002\r\n\r\n";
        let (reading, out) = t.read(Side::Inside, setup);
        assert_eq!(reading, Reading::Done(setup.len()));
        assert!(out.contains("client_port=20000-20001,RTP/AVP;client_port=20002\r\n"), "{out}");
        assert_eq!(t.field.opened, [6_000, 6_001, 6_002]);
        let answer =
            "RTSP/1.0 200 OK\r\nTransport: RTP/AVP;client_port=20000-20001;server_port=7000-7001\r\n\r\n";
        let (_, out) = t.read(Side::Outside, answer);
        assert!(out.contains("client_port=6000-6001;server_port=7000-7001"), "{out}");
    }

    #[test]
    fn bodies_and_interleaved_data_pass_unread() {
        let mut t = test();
        let head = "RTSP/1.0 200 OK\r\nContent-Length: 14\r\n\r\n";
        assert_eq!(t.read(Side::Outside, &format!("{head}client_port=1\r\n")).0, Reading::Done(head.len()));
        assert_eq!(t.read(Side::Outside, "client_port=").0, Reading::Done(12));
        assert_eq!(t.read(Side::Outside, "1\n$").0, Reading::Done(2));
        assert_eq!(t.read(Side::Outside, "$\0\0").0, Reading::More);
        assert_eq!(t.read(Side::Outside, "$\0\0\x05abcdeRTSP").0, Reading::Done(4));
        assert_eq!(t.read(Side::Outside, "abcdeRTSP").0, Reading::Done(5));
        assert_eq!(t.read(Side::Outside, "RTSP").0, Reading::More);
        assert_eq!(t.read(Side::Inside, "GET / HTTP/1.1\r\n\r\n").0, Reading::Transparent);
    }

    #[test]
    fn ports_that_no_client_may_ask_for_are_left() {
        let mut t = test();
        for ports in ["80-81", "6000-6005", "65535-1024", "x", "99999"] {
            let setup = format!("SETUP a RTSP/1.0\r\nTransport: RTP/AVP;client_port={ports}\r\n\r\n");
            assert_eq!(t.read(Side::Inside, &setup).1, setup);
        }
        assert!(t.field.opened.is_empty());
    }
}
