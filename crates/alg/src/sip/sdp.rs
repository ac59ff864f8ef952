//! Session descriptions (RFC 4566): addresses and ports of media.

use core::net::{IpAddr, Ipv4Addr};
use core::ops::Range;

use carrack_base::Proto;

use super::address;
use crate::text::{Text, lines, number};
use crate::{Edits, Ends, From, Ground, Note, Want};

/// Longer than a telephone rings (RFC 3261 §16.6: timer C). Then media keep their mappings alive themselves.
const LIFETIME_S: u16 = 240;

/// Reads a description of the inside, which begins at `offset` of its message.
pub(super) fn read(body: &[u8], offset: usize, ends: &Ends, ground: &mut dyn Ground, edits: &mut Edits) {
    if !body.starts_with(b"v=0") {
        return;
    }
    let mut sdp = Description { body, offset, ends, ground, edits };
    let is_media = |line: &Range<usize>| body.get(line.clone()).is_some_and(|text| text.starts_with(b"m="));
    let first = lines(body).find(is_media).map_or(body.len(), |line| line.start);
    let session = sdp.connection(0..first);
    sdp.addresses(0..first);
    let mut start = first;
    while start < body.len() {
        let next = lines(body).find(|line| line.start > start && is_media(line));
        let end = next.map_or(body.len(), |line| line.start);
        let own = sdp.connection(start..end).or(session);
        sdp.media(start..end, own.is_some_and(|ip| IpAddr::V4(ip) == ends.inside));
        start = end;
    }
}

struct Description<'a> {
    body: &'a [u8],
    offset: usize,
    ends: &'a Ends,
    ground: &'a mut dyn Ground,
    edits: &'a mut Edits,
}

impl Description<'_> {
    /// The address of a part's c= line.
    fn connection(&self, part: Range<usize>) -> Option<Ipv4Addr> {
        lines_of(self.body, part).find_map(|line| {
            let text = self.body.get(line)?.strip_prefix(b"c=IN IP4 ")?;
            address(text.split(|byte| *byte == b'/').next()?)
        })
    }

    /// The inside's own address in o= and c= lines.
    fn addresses(&mut self, part: Range<usize>) {
        lines_of(self.body, part).for_each(|line| self.own_address(line));
    }

    /// The inside's own address behind the last blank of an o= or c= line.
    fn own_address(&mut self, line: Range<usize>) {
        let text = self.body.get(line.clone()).unwrap_or(&[]);
        let is_origin = text.starts_with(b"o=") && has(text, b" IN IP4 ");
        if !is_origin && !text.starts_with(b"c=IN IP4 ") {
            return;
        }
        let Some(blank) = text.iter().rposition(|byte| *byte == b' ') else { return };
        let written = text.get(blank + 1..).unwrap_or(&[]);
        if address(written).is_some_and(|ip| IpAddr::V4(ip) == self.ends.inside)
            && let Some(new) = Text::<16>::of(format_args!("{}", self.ends.outside.ip()))
        {
            self.replace(line.start + blank + 1..line.end, new.bytes());
        }
    }

    /// One m= line and what belongs to it.
    fn media(&mut self, part: Range<usize>, is_own: bool) {
        let Some(line) = lines_of(self.body, part.clone()).next() else { return };
        let text = self.body.get(line.clone()).unwrap_or(&[]);
        let port_at = text.iter().position(|byte| *byte == b' ').map_or(text.len(), |blank| blank + 1);
        let found = text.get(port_at..).and_then(|rest| number(rest, 65_535));
        let is_rtp = has(text, b" RTP/");
        let is_udp = is_rtp || has(text, b" udptl ") || has(text, b" UDP/");
        let mut rtcp = None;
        // RFC 3264 §5.1: port 0 offers nothing.
        if let Some((port, digits)) = found.filter(|(port, _)| is_udp && *port != 0) {
            if is_own && port >= 1_024 {
                rtcp =
                    self.open_media(line.start + port_at..line.start + port_at + digits, port as u16, is_rtp);
            } else {
                self.ground.note(Note::Foreign);
            }
        }
        for line in lines_of(self.body, part).skip(1) {
            self.own_address(line.clone());
            self.rtcp_attribute(line, is_own, rtcp);
        }
    }

    /// Outside ports for RTP and, behind it, RTCP (RFC 3550 §11); that of RTCP is returned with its inside port.
    fn open_media(&mut self, place: Range<usize>, port: u16, is_rtp: bool) -> Option<(u16, u16)> {
        let outside = self.open(port, is_rtp)?;
        if let Some(text) = Text::<8>::of(format_args!("{outside}")) {
            self.replace(place, text.bytes());
        }
        let rtcp = port.checked_add(1).filter(|_| is_rtp)?;
        Some((rtcp, self.open(rtcp, true)?))
    }

    fn open(&mut self, inside_port: u16, pair: bool) -> Option<u16> {
        // Media come from anywhere: who signals is often another than who sends.
        let want = Want {
            proto: Proto::Udp,
            inside_port,
            from: From::Anybody,
            lifetime_s: LIFETIME_S,
            uses: 0,
            pair,
        };
        let opened = self.ground.open(&want)?;
        (opened.ip() == self.ends.outside.ip()).then(|| opened.port())
    }

    /// RFC 3605: a=rtcp:port, where RTCP is not behind RTP.
    fn rtcp_attribute(&mut self, line: Range<usize>, is_own: bool, known: Option<(u16, u16)>) {
        let text = self.body.get(line.clone()).unwrap_or(&[]);
        let Some((port, digits)) = text.strip_prefix(b"a=rtcp:").and_then(|rest| number(rest, 65_535)) else {
            return;
        };
        let port = port as u16;
        if !is_own || port < 1_024 {
            return;
        }
        let opened = match known {
            Some((inside, outside)) if inside == port => Some(outside),
            _ => self.open(port, false),
        };
        let text = opened.and_then(|port| Text::<8>::of(format_args!("{port}")));
        if let Some(text) = text {
            self.replace(line.start + 7..line.start + 7 + digits, text.bytes());
        }
        let rest = self.body.get(line.start + 7 + digits..line.end).unwrap_or(&[]);
        if rest
            .strip_prefix(b" IN IP4 ")
            .and_then(address)
            .is_some_and(|ip| IpAddr::V4(ip) == self.ends.inside)
            && let Some(new) = Text::<16>::of(format_args!("{}", self.ends.outside.ip()))
        {
            self.replace(line.start + 7 + digits + 8..line.end, new.bytes());
        }
    }

    fn replace(&mut self, place: Range<usize>, text: &[u8]) {
        self.edits.replace(self.offset + place.start..self.offset + place.end, text);
    }
}

fn has(text: &[u8], what: &[u8]) -> bool {
    text.windows(what.len()).any(|window| window == what)
}

/// The lines of a part, by their places in the whole.
fn lines_of(body: &[u8], part: Range<usize>) -> impl Iterator<Item = Range<usize>> + '_ {
    let start = part.start;
    lines(body.get(part).unwrap_or(&[])).map(move |line| start + line.start..start + line.end)
}
