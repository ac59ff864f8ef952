//! SIP (RFC 3261) over UDP and TCP, with the session descriptions it carries.
//!
//! The inside's own address becomes the outside one in the headers that others answer to, and the other way round in what
//! comes back. Ports that a session description names for media get outside ports, RTP and RTCP side by side, before the
//! first packet goes either way. Nothing is remembered between messages: a repeated one gets the same endpoints while
//! their mappings live. What is expected of a call ends with it, known by its Call-ID.
//!
//! Between IPv6 and IPv4 every address in these places is written in the other version, others' by the NAT64 prefix.

mod dialog;
#[cfg(test)]
mod tests;

use core::net::IpAddr;
use core::ops::Range;

use crate::address::{self, Found, written};
use crate::sdp;
use crate::text::{Text, header_end, lines, may_be_message, number};
use crate::{Edits, Ends, From, Gateway, Ground, Note, Reading, Said, Side, Want, is_tls};

/// The port where none is written (RFC 3261 §19.1.2).
const DEFAULT_PORT: u16 = 5_060;
/// A port of the host other than the one it speaks from, named where it wants to be reached.
const CONTACT_LIFETIME_S: u16 = 3_600;

/// SIP's gateway.
#[derive(Debug, Clone, Copy)]
pub struct Sip;

impl Gateway for Sip {
    fn read(&self, said: Said<'_>) -> Reading {
        let Said { side, bytes, ends, ground, edits, .. } = said;
        let stream = ends.proto == carrack_base::Proto::Tcp;
        let all = Reading::Done(bytes.len().max(1));
        // RFC 5626 §3.5.1: keep-alives between messages.
        let blank = bytes.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
        if blank > 0 {
            return if stream { Reading::Done(blank) } else { all };
        }
        let Some(head_end) = header_end(bytes) else {
            return match stream {
                true if may_be_message(bytes) => Reading::More,
                true if is_tls(bytes) => {
                    ground.note(Note::Transparent);
                    Reading::Transparent
                }
                true => Reading::Unreadable,
                false => all,
            };
        };
        let head = bytes.get(..head_end).unwrap_or(&[]);
        let message = Message::of(head);
        let Some(message) = message else {
            if stream {
                return Reading::Unreadable;
            }
            ground.note(Note::Malformed);
            return all;
        };
        // RFC 3261 §18.3: over UDP a missing length is the datagram's.
        let length = message.length.clone().and_then(|place| number(head.get(place)?, 1 << 20));
        let end = match length {
            Some((length, _)) => head_end + length as usize,
            None if stream => head_end,
            None => bytes.len(),
        };
        if end > bytes.len() {
            return if stream { Reading::More } else { all };
        }
        let mut work = Work { side, ends, ground };
        let mut body_edits = Edits::default();
        if side == Side::Inside || ends.crosses() {
            let body = bytes.get(head_end..end).unwrap_or(&[]);
            let dialog = Some(dialog::of(head));
            let mut place = sdp::Place { side, ends, ground: work.ground, dialog, offset: head_end };
            sdp::read(body, &mut place, &mut body_edits);
        }
        if side == Side::Inside {
            work.keep_registration(head);
        }
        let (old, new) = (end - head_end, body_edits.length_of(end - head_end));
        work.head(head, &message, new, new != old, edits);
        edits.append(&body_edits);
        if !edits.is_empty() && !edits.is_overfull() {
            ground.note(Note::Rewritten);
        }
        if let Some(dialog) = dialog::ended_by(head) {
            ground.close(dialog);
        }
        Reading::Done(end)
    }
}

/// Where the parts of a message are.
struct Message {
    /// Digits of Content-Length.
    length: Option<Range<usize>>,
}

impl Message {
    /// `None` for what begins like no SIP message.
    fn of(head: &[u8]) -> Option<Self> {
        let first = lines(head).next()?;
        let text = head.get(first)?;
        let is_one = text.starts_with(b"SIP/2.0 ") || text.ends_with(b" SIP/2.0");
        let length = lines(head).skip(1).find_map(|line| {
            let (name, value) = header(head, line)?;
            let is_length = name.eq_ignore_ascii_case(b"Content-Length") || name.eq_ignore_ascii_case(b"l");
            let digits = head.get(value.clone())?.iter().take_while(|byte| byte.is_ascii_digit()).count();
            is_length.then_some(value.start..value.start + digits)
        });
        is_one.then_some(Self { length })
    }
}

/// Name and place of the value of a header line.
fn header(head: &[u8], line: Range<usize>) -> Option<(&[u8], Range<usize>)> {
    let text = head.get(line.clone())?;
    let colon = text.iter().position(|byte| *byte == b':')?;
    let name = text.get(..colon)?.trim_ascii_end();
    let blank = text.get(colon + 1..)?.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    Some((name, line.start + colon + 1 + blank..line.end))
}

/// Headers whose addresses are translated, with their short forms (RFC 3261 §7.3.3). The first two say where the sender
/// wants to be reached.
const TRANSLATED: [&[u8]; 10] =
    [b"Contact", b"m", b"Via", b"v", b"From", b"f", b"To", b"t", b"Route", b"Record-Route"];
const REACHED: usize = 4;

/// One message's surroundings.
struct Work<'a> {
    side: Side,
    ends: &'a Ends,
    ground: &'a mut dyn Ground,
}

impl Work<'_> {
    /// Addresses in the start line and the headers, and the body's length.
    fn head(&mut self, head: &[u8], message: &Message, body: usize, grows: bool, edits: &mut Edits) {
        let mut translated = None;
        for (at, line) in lines(head).enumerate() {
            let text = head.get(line.clone()).unwrap_or(&[]);
            // RFC 3261 §7.3.1: a line that begins with a blank goes on with the one before.
            let is_continued = matches!(text.first(), Some(b' ' | b'\t'));
            if at == 0 {
                translated = (!text.starts_with(b"SIP/2.0")).then_some(false);
            } else if !is_continued {
                let name = header(head, line.clone()).map_or(&[][..], |(name, _)| name);
                let known = TRANSLATED.iter().position(|known| known.eq_ignore_ascii_case(name));
                translated = known.map(|known| known < REACHED);
            }
            if let Some(is_reached) = translated {
                self.addresses(head, line.clone(), is_reached, edits);
            }
            if let Some(length) =
                message.length.clone().filter(|length| grows && line.contains(&length.start))
                && let Some(text) = Text::<8>::of(format_args!("{body}"))
            {
                edits.replace(length, text.bytes());
            }
        }
    }

    /// Every address in a line that is another on the other side.
    fn addresses(&mut self, head: &[u8], line: Range<usize>, is_reached: bool, edits: &mut Edits) {
        let mut at = line.start;
        while let Some(found) = address::next(head, at..line.end) {
            let end = found.place.end;
            let port = head.get(end..line.end).and_then(|rest| number(rest.strip_prefix(b":")?, 65_535));
            let end = port.map_or(end, |(_, digits)| end + 1 + digits);
            let port = port.map(|(port, _)| port as u16);
            if let Some(text) = self.counterpart(&found, port, is_reached) {
                edits.replace(found.place.start..end, text.bytes());
            }
            at = end;
        }
    }

    /// What stands for an address with this port on the other side. A parameter's value has no port.
    fn counterpart(&mut self, found: &Found, port: Option<u16>, is_reached: bool) -> Option<Text<56>> {
        let Ends { inside, inside_port, outside, proto, .. } = *self.ends;
        let (number, is_value) = (port.unwrap_or(DEFAULT_PORT), found.is_value);
        let outside_ip = IpAddr::V4(*outside.ip());
        if found.ip != if self.side == Side::Inside { inside } else { outside_ip } {
            let ip = address::across(self.side, self.ends, self.ground, found.ip)?;
            return written(ip, port, found.is_received);
        }
        let (ip, new) = match self.side {
            Side::Inside if number == inside_port || (port.is_none() && is_value) => {
                (outside_ip, outside.port())
            }
            // RFC 2577 §3 says it of FTP: no services.
            Side::Inside if is_reached && number < 1_024 => {
                self.ground.note(Note::Foreign);
                return None;
            }
            Side::Inside if is_reached => {
                let want = Want {
                    proto,
                    inside_port: number,
                    from: From::Remote,
                    lifetime_s: CONTACT_LIFETIME_S,
                    uses: 0,
                    pair: false,
                    dialog: 0,
                };
                let opened = self.ground.open(&want).filter(|opened| opened.ip() == outside.ip())?;
                (outside_ip, opened.port())
            }
            Side::Inside => (outside_ip, number),
            Side::Outside if number == outside.port() => (inside, inside_port),
            Side::Outside if port.is_none() => (inside, inside_port),
            Side::Outside => (inside, self.ground.inside_port(proto, number)?),
        };
        let has_port = port.is_some() || (!is_value && new != DEFAULT_PORT);
        written(ip, has_port.then_some(new), found.is_received)
    }

    /// RFC 3261 §10.2: who registers wants to be reached until the registration expires, silent or not.
    fn keep_registration(&mut self, head: &[u8]) {
        if !head.starts_with(b"REGISTER ") {
            return;
        }
        let expires = lines(head).skip(1).find_map(|line| {
            let (name, value) = header(head, line)?;
            name.eq_ignore_ascii_case(b"Expires").then(|| number(head.get(value)?, u32::from(u16::MAX)))?
        });
        let parameter = find(head, 0..head.len(), b";expires=")
            .and_then(|at| number(head.get(at + 9..)?, u32::from(u16::MAX)));
        let seconds = parameter.or(expires).map_or(3_600, |(seconds, _)| seconds as u16);
        let Ends { proto, inside_port, .. } = *self.ends;
        if proto == carrack_base::Proto::Udp && seconds > 0 {
            let (from, lifetime_s) = (From::Remote, seconds);
            self.ground.open(&Want { proto, inside_port, from, lifetime_s, uses: 0, pair: false, dialog: 0 });
        }
    }
}

/// Where `what` is in a part of `text`.
fn find(text: &[u8], place: Range<usize>, what: &[u8]) -> Option<usize> {
    let start = place.start;
    text.get(place)?.windows(what.len()).position(|window| window == what).map(|at| start + at)
}
