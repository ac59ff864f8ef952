//! Session descriptions (RFC 4566): addresses and ports of media.

use core::net::IpAddr;
use core::ops::Range;

use carrack_base::Proto;

use crate::address::{address, counterpart};
use crate::text::{Text, lines, number};
use crate::{Edits, Ends, From, Ground, Note, Side, Want};

/// Longer than a telephone rings (RFC 3261 §16.6: timer C). Then media keep their mappings alive themselves.
const LIFETIME_S: u16 = 240;

/// Where a description was found.
pub(crate) struct Place<'a> {
    pub(crate) side: Side,
    pub(crate) ends: &'a Ends,
    pub(crate) ground: &'a mut dyn Ground,
    /// What it is a part of, see [`Want::dialog`]. None where ports are no more than a suggestion (RFC 2326 §C.1.2):
    /// nothing is opened then.
    pub(crate) dialog: Option<u32>,
    /// Where it begins in its message.
    pub(crate) offset: usize,
}

/// Reads a description. One of the outside names nothing that is to be opened, but addresses of another IP version.
pub(crate) fn read(body: &[u8], place: &mut Place<'_>, edits: &mut Edits) {
    if !body.starts_with(b"v=0") {
        return;
    }
    let mut sdp = Description { body, place, edits };
    let is_media = |line: &Range<usize>| body.get(line.clone()).is_some_and(|text| text.starts_with(b"m="));
    let first = lines(body).find(is_media).map_or(body.len(), |line| line.start);
    let session = sdp.connection(0..first);
    sdp.addresses(0..first);
    let mut start = first;
    while start < body.len() {
        let next = lines(body).find(|line| line.start > start && is_media(line));
        let end = next.map_or(body.len(), |line| line.start);
        let own = sdp.connection(start..end).or(session);
        sdp.media(start..end, own.is_some_and(|ip| ip == sdp.place.ends.inside));
        start = end;
    }
}

struct Description<'a, 'b> {
    body: &'a [u8],
    place: &'a mut Place<'b>,
    edits: &'a mut Edits,
}

impl Description<'_, '_> {
    /// The address of a part's c= line.
    fn connection(&self, part: Range<usize>) -> Option<IpAddr> {
        lines_of(self.body, part).find_map(|line| {
            let text = self.body.get(line)?.strip_prefix(b"c=")?;
            network(text).map(|(ip, _)| ip)
        })
    }

    /// Addresses in o= and c= lines.
    fn addresses(&mut self, part: Range<usize>) {
        lines_of(self.body, part).for_each(|line| self.address(line));
    }

    /// The address of an o= or c= line.
    fn address(&mut self, line: Range<usize>) {
        let text = self.body.get(line.clone()).unwrap_or(&[]);
        let at = match text {
            [b'c', b'=', ..] => Some(2),
            [b'o', b'=', ..] => text.windows(6).rposition(|window| window == b" IN IP").map(|at| at + 1),
            _ => None,
        };
        if let Some(at) = at {
            self.network(line.start + at..line.end);
        }
    }

    /// `IN IP4 10.0.0.5` and the like becomes what the other side calls it.
    fn network(&mut self, place: Range<usize>) {
        let Some((ip, len)) = self.body.get(place.clone()).and_then(network) else { return };
        let Place { side, ends, .. } = *self.place;
        let text = match counterpart(side, ends, self.place.ground, ip) {
            Some(IpAddr::V4(ip)) => Text::<48>::of(format_args!("IP4 {ip}")),
            Some(IpAddr::V6(ip)) => Text::of(format_args!("IP6 {ip}")),
            None => None,
        };
        if let Some(text) = text {
            self.replace(place.start + 3..place.start + len, text.bytes());
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
        let is_offered = is_udp && self.opens();
        // RFC 3264 §5.1: port 0 offers nothing.
        if let Some((port, digits)) = found.filter(|(port, _)| is_offered && *port != 0) {
            if is_own && port >= 1_024 {
                rtcp =
                    self.open_media(line.start + port_at..line.start + port_at + digits, port as u16, is_rtp);
            } else {
                self.place.ground.note(Note::Foreign);
            }
        }
        for line in lines_of(self.body, part).skip(1) {
            self.address(line.clone());
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

    /// Are ports that it names the host's own, which it wants to be reached at?
    fn opens(&self) -> bool {
        self.place.side == Side::Inside && self.place.dialog.is_some()
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
            dialog: self.place.dialog?,
        };
        let opened = self.place.ground.open(&want)?;
        (opened.ip() == self.place.ends.outside.ip()).then(|| opened.port())
    }

    /// RFC 3605: a=rtcp:port, where RTCP is not behind RTP.
    fn rtcp_attribute(&mut self, line: Range<usize>, is_own: bool, known: Option<(u16, u16)>) {
        let text = self.body.get(line.clone()).unwrap_or(&[]);
        let Some((port, digits)) = text.strip_prefix(b"a=rtcp:").and_then(|rest| number(rest, 65_535)) else {
            return;
        };
        let (port, end) = (port as u16, line.start + 7 + digits);
        if is_own && port >= 1_024 && self.opens() {
            let opened = match known {
                Some((inside, outside)) if inside == port => Some(outside),
                _ => self.open(port, false),
            };
            let text = opened.and_then(|port| Text::<8>::of(format_args!("{port}")));
            if let Some(text) = text {
                self.replace(line.start + 7..end, text.bytes());
            }
        }
        if self.body.get(end) == Some(&b' ') {
            self.network(end + 1..line.end);
        }
    }

    fn replace(&mut self, place: Range<usize>, text: &[u8]) {
        let offset = self.place.offset;
        self.edits.replace(offset + place.start..offset + place.end, text);
    }
}

/// Address and length of `IN IP4 10.0.0.5` or `IN IP6 2001:db8::5`; a TTL behind it does not count.
fn network(text: &[u8]) -> Option<(IpAddr, usize)> {
    let (start, rest) = text.split_at_checked(7)?;
    let written = rest.split(|byte| *byte == b'/').next()?;
    let ip = address(written)?;
    let is_right = start == if ip.is_ipv4() { b"IN IP4 " } else { b"IN IP6 " };
    is_right.then_some((ip, 7 + written.len()))
}

fn has(text: &[u8], what: &[u8]) -> bool {
    text.windows(what.len()).any(|window| window == what)
}

/// The lines of a part, by their places in the whole.
fn lines_of(body: &[u8], part: Range<usize>) -> impl Iterator<Item = Range<usize>> + '_ {
    let start = part.start;
    lines(body.get(part).unwrap_or(&[])).map(move |line| start + line.start..start + line.end)
}
