//! RTSP (RFC 2326): ports for media over UDP, named in Transport headers. Media within the connection need nothing.
//!
//! Between IPv6 and IPv4 addresses become those of the other version: in Transport headers, in the Location of another
//! server, and in session descriptions. URLs otherwise stay: requests are signed with theirs (RFC 2617 §3.2.2), and go to
//! the server that is spoken to already.
//!
//! A client inside names its own ports (`client_port`), the server repeats them in its answer; a server inside names
//! its own in the answer (`server_port`). Each pair gets outside ports side by side, RTP and RTCP (RFC 3550 §11).

#[cfg(test)]
mod tests;

use core::ops::Range;

use carrack_base::Proto;

use crate::address::{self, address, counterpart, written};
use crate::sdp;
use crate::stream::HELD_MAX;
use crate::text::{Text, header_end, lines, may_be_message, number};
use crate::{Edits, Ends, From, Gateway, Ground, Note, Reading, Said, Side, Want, is_tls};

/// Longest header of a message.
const HEAD_MAX: usize = 4_096;
/// How long media are waited for: a session without any ends before (RFC 2326 §12.37: 60 s by default).
const LIFETIME_S: u16 = 120;

/// RTSP's gateway.
#[derive(Debug, Clone, Copy)]
pub struct Rtsp;

/// What is remembered of a control connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Memory {
    /// Bytes of a body, or of media within the connection, that are still to come; by side.
    rest: [u32; 2],
}

impl Gateway for Rtsp {
    fn read(&self, said: Said<'_>) -> Reading {
        let Said { memory, side, bytes, ends, ground, edits } = said;
        let Some(rest) = memory.rtsp.rest.get_mut(side as usize) else { return Reading::Transparent };
        if *rest > 0 {
            let now = bytes.len().min(*rest as usize);
            *rest -= now as u32;
            return Reading::Done(now);
        }
        let length = match bytes {
            // RFC 2326 §10.12: media within the connection.
            [b'$', _, high, low, ..] => 4 + usize::from(u16::from_be_bytes([*high, *low])),
            [b'$', ..] => return Reading::More,
            // Between messages.
            [b'\r' | b'\n', ..] => 1,
            _ => match header_end(bytes) {
                Some(end) if end <= HEAD_MAX => {
                    let head = bytes.get(..end).unwrap_or(&[]);
                    let Some(body) = body_len(head) else { return Reading::Unreadable };
                    // Held as a whole where it changes, if it is not too long for that.
                    let is_read =
                        ends.crosses() && body > 0 && end + body <= HELD_MAX && is_description(head);
                    let text = bytes.get(end..end + if is_read { body } else { 0 });
                    let Some(text) = text else { return Reading::More };
                    Talk { head, side, ends, ground, edits }.message(text);
                    end + body
                }
                None if bytes.len() < HEAD_MAX && may_be_message(bytes) => return Reading::More,
                _ if is_tls(bytes) => {
                    ground.note(Note::Transparent);
                    return Reading::Transparent;
                }
                _ => return Reading::Unreadable,
            },
        };
        let now = length.min(bytes.len());
        *rest = (length - now) as u32;
        Reading::Done(now)
    }
}

/// Length of the body behind a message's header; `None` for what is no message of RTSP 1.0.
fn body_len(head: &[u8]) -> Option<usize> {
    let first = head.get(lines(head).next()?)?;
    if !first.starts_with(b"RTSP/1.0 ") && !first.ends_with(b" RTSP/1.0") {
        return None;
    }
    let length = lines(head).skip(1).find_map(|line| value(head, line, b"Content-Length"));
    // RFC 2326 §12.14: without it, 0.
    let Some(place) = length else { return Some(0) };
    number(head.get(place)?, 1 << 24).map(|(length, _)| length as usize)
}

/// Is the body a session description (RFC 4566)?
fn is_description(head: &[u8]) -> bool {
    let kind = lines(head).skip(1).find_map(|line| value(head, line, b"Content-Type"));
    kind.and_then(|place| head.get(place)).is_some_and(|kind| {
        let kind = kind.split(|byte| *byte == b';').next().unwrap_or(&[]);
        kind.trim_ascii().eq_ignore_ascii_case(b"application/sdp")
    })
}

/// Where the value of a header line is, if it is that header's.
fn value(head: &[u8], line: Range<usize>, name: &[u8]) -> Option<Range<usize>> {
    let text = head.get(line.clone())?;
    let (start, rest) = text.split_at_checked(name.len())?;
    let blank = rest.strip_prefix(b":")?.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
    start.eq_ignore_ascii_case(name).then_some(line.start + name.len() + 1 + blank..line.end)
}

/// One message's surroundings.
struct Talk<'a> {
    head: &'a [u8],
    side: Side,
    ends: &'a Ends,
    ground: &'a mut dyn Ground,
    edits: &'a mut Edits,
}

/// Whose ports a parameter names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    Client,
    Server,
}

impl Talk<'_> {
    /// The header, and the session description behind it, empty where there is none to be changed.
    fn message(&mut self, body: &[u8]) {
        if self.side == self.ends.client && self.head.starts_with(b"TEARDOWN ") {
            self.ground.close(dialog(self.ends));
        }
        let mut described = Edits::default();
        let (side, ends, offset) = (self.side, self.ends, self.head.len());
        let mut place = sdp::Place { side, ends, ground: self.ground, dialog: None, offset };
        sdp::read(body, &mut place, &mut described);
        let mut length = (!described.is_empty()).then(|| described.length_of(body.len()));
        for line in lines(self.head).skip(1) {
            self.header(line, &mut length);
        }
        self.edits.append(&described);
        if !self.edits.is_empty() && !self.edits.is_overfull() {
            self.ground.note(Note::Rewritten);
        }
    }

    /// One line of the header; the first Content-Length takes the body's new one, if there is one.
    fn header(&mut self, line: Range<usize>, length: &mut Option<usize>) {
        if let Some(place) = value(self.head, line.clone(), b"Transport") {
            // RFC 2326 §12.39: several transports may be offered, with a comma between them.
            for part in parts(self.head, place, b',') {
                if self.is_over_udp(part.clone()) {
                    self.transport(part);
                }
            }
        } else if let Some(place) = value(self.head, line.clone(), b"Content-Length") {
            let digits = self.head.get(place.clone()).and_then(|text| number(text, 1 << 24));
            if let (Some((_, digits)), Some(new)) = (digits, length.take())
                && let Some(text) = Text::<8>::of(format_args!("{new}"))
            {
                self.edits.replace(place.start..place.start + digits, text.bytes());
            }
        } else if let Some(place) = value(self.head, line, b"Location") {
            self.other_server(place);
        }
    }

    /// RFC 2326 §12.25: the address of a server that is to be asked instead.
    fn other_server(&mut self, place: Range<usize>) {
        let Some(found) = address::next(self.head, place) else { return };
        let ip = address::across(self.side, self.ends, self.ground, found.ip);
        if let Some(text) = ip.and_then(|ip| written(ip, None, false)) {
            self.edits.replace(found.place, text.bytes());
        }
    }

    /// Unicast RTP over UDP, which is what no lower transport means.
    fn is_over_udp(&self, part: Range<usize>) -> bool {
        let mut words = parts(self.head, part, b';').filter_map(|word| self.head.get(word));
        let over_udp = words.next().is_some_and(|spec| {
            let spec = spec.trim_ascii();
            let is = |end: Option<&[u8; 4]>, name| end.is_some_and(|end| end.eq_ignore_ascii_case(name));
            is(spec.first_chunk(), b"RTP/") && !is(spec.last_chunk(), b"/TCP")
        });
        over_udp && !words.any(|word| word.trim_ascii() == b"multicast")
    }

    fn transport(&mut self, part: Range<usize>) {
        // RFC 2326 §16: media are for who asks for them. Nothing is opened for a transport that names another host.
        if self.names_another_host(part.clone()) {
            return self.ground.note(Note::Foreign);
        }
        for word in parts(self.head, part, b';') {
            let text = self.head.get(word.clone()).unwrap_or(&[]);
            let Some(equals) = text.iter().position(|byte| *byte == b'=') else { continue };
            let (name, place) =
                (text.get(..equals).unwrap_or(&[]).trim_ascii(), word.start + equals + 1..word.end);
            match name {
                b"client_port" => self.ports(Whose::Client, place),
                b"server_port" => self.ports(Whose::Server, place),
                b"destination" | b"source" => self.address(place),
                _ => {}
            }
        }
    }

    /// A request for media to, or an answer with media from, another host than the one that says so.
    fn names_another_host(&self, part: Range<usize>) -> bool {
        let own = match self.side {
            Side::Inside => self.ends.inside,
            Side::Outside => return false,
        };
        let name: &[u8] = if self.ends.client == Side::Inside { b"destination=" } else { b"source=" };
        parts(self.head, part, b';').any(|word| {
            let named = self.head.get(word).and_then(|text| text.trim_ascii().strip_prefix(name));
            named.is_some_and(|text| address(text) != Some(own))
        })
    }

    /// An address, as the other side knows it.
    fn address(&mut self, place: Range<usize>) {
        let ip = self.head.get(place.clone()).and_then(address);
        let ip = ip.and_then(|ip| counterpart(self.side, self.ends, self.ground, ip));
        // Without brackets, as programs write it.
        if let Some(text) = ip.and_then(|ip| Text::<48>::of(format_args!("{ip}"))) {
            self.edits.replace(place, text.bytes());
        }
    }

    /// A port, or two with a dash between them.
    fn ports(&mut self, whose: Whose, place: Range<usize>) {
        let is_own = (whose == Whose::Client) == (self.ends.client == Side::Inside);
        if !is_own {
            return;
        }
        let Some((first, last)) = self.head.get(place.clone()).and_then(pair) else {
            return self.ground.note(Note::Malformed);
        };
        let Some((new_first, new_last)) = self.counterparts(first, last) else { return };
        let text = match new_last {
            Some(new_last) => Text::<12>::of(format_args!("{new_first}-{new_last}")),
            None => Text::of(format_args!("{new_first}")),
        };
        if let Some(text) = text {
            self.edits.replace(place, text.bytes());
        }
    }

    /// What stands for the subscriber's ports on the other side.
    fn counterparts(&mut self, first: u16, last: Option<u16>) -> Option<(u16, Option<u16>)> {
        if self.side == Side::Outside {
            let inside = self.ground.inside_port(Proto::Udp, first)?;
            return match last {
                Some(last) => Some((inside, Some(self.ground.inside_port(Proto::Udp, last)?))),
                None => Some((inside, None)),
            };
        }
        // RFC 2577 §3 says it of FTP: no services.
        if first < 1_024 {
            self.ground.note(Note::Foreign);
            return None;
        }
        let is_pair = last.is_some_and(|last| first.checked_add(1) == Some(last));
        let new_first = self.open(first, is_pair)?;
        let Some(last) = last else { return Some((new_first, None)) };
        let new_last = self.open(last, is_pair)?;
        // RTCP's number is written, but servers that are told two ports also reckon it by themselves.
        if is_pair && new_first.checked_add(1) != Some(new_last) {
            self.ground.note(Note::NoRoom);
            return None;
        }
        Some((new_first, Some(new_last)))
    }

    fn open(&mut self, inside_port: u16, pair: bool) -> Option<u16> {
        let want = Want {
            proto: Proto::Udp,
            inside_port,
            from: From::Remote,
            lifetime_s: LIFETIME_S,
            uses: 0,
            pair,
            dialog: dialog(self.ends),
        };
        let opened = self.ground.open(&want)?;
        // Who sends media sends them to the address of the connection.
        (opened.ip() == self.ends.outside.ip()).then(|| opened.port())
    }
}

/// What is expected by one connection: TEARDOWN ends it (RFC 2326 §10.7), whatever sessions there are; media that flow
/// stay.
fn dialog(ends: &Ends) -> u32 {
    // Never 0, which is none.
    u32::from(ends.inside_port) << 16 | u32::from(ends.remote.port()) | 1 << 31
}

/// `a` or `a-b`, nothing else; 0 is no port.
fn pair(text: &[u8]) -> Option<(u16, Option<u16>)> {
    let (first, digits) = number(text, 65_535).filter(|(port, _)| *port != 0)?;
    match text.get(digits..)? {
        [] => Some((first as u16, None)),
        [b'-', rest @ ..] => {
            let (last, digits) = number(rest, 65_535).filter(|(port, _)| *port > first)?;
            (digits == rest.len()).then_some((first as u16, Some(last as u16)))
        }
        _ => None,
    }
}

/// The parts of a text between separators.
fn parts(text: &[u8], place: Range<usize>, separator: u8) -> impl Iterator<Item = Range<usize>> + '_ {
    let mut at = Some(place.start);
    core::iter::from_fn(move || {
        let start = at?;
        let rest = text.get(start..place.end)?;
        let len = rest.iter().position(|byte| *byte == separator);
        at = len.map(|len| start + len + 1);
        Some(start..len.map_or(place.end, |len| start + len))
    })
}
