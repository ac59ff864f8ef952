//! FTP (RFC 959, RFC 2428), and between IPv6 and IPv4 by RFC 6384.
//!
//! What the inside says of its own address is rewritten: PORT and EPRT of a client, the answers to PASV and EPSV of a
//! server. What the outside says needs no change, but between IP versions: an IPv6 client's EPSV becomes PASV and the
//! answer 229, its EPRT becomes PORT (RFC 6384 §6, RFC 6384 §7.2). From an accepted AUTH on nothing is read (RFC 4217 §4).

#[cfg(test)]
mod tests;

use core::net::{IpAddr, Ipv4Addr, SocketAddrV4};

use carrack_base::Proto;

use crate::text::{Text, ascii, number};
use crate::{Edits, Ends, From, Gateway, Ground, Note, Reading, Said, Side, Want};

/// Longest line that is read. The longest rewritten one has 70 bytes.
const LINE_MAX: usize = 512;
/// How long the data connection is waited for.
const LIFETIME_S: u16 = 60;

/// FTP's gateway.
#[derive(Debug, Clone, Copy)]
pub struct Ftp;

/// What the answer to the last command will be read for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Awaited {
    #[default]
    Nothing,
    /// The answer to AUTH: if it is yes, the rest is encrypted.
    Auth,
    /// An inside server's answer to PASV.
    Pasv,
    /// An inside server's answer to EPSV.
    Epsv,
    /// Of a PASV that was an EPSV.
    Converted,
    /// Of a NOOP that was a command which the gateway answers itself (RFC 6384 §12).
    Own(Own),
}

/// Answers of the gateway itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Own {
    OtherNetwork,
    NoSuchParameter,
    Enabled,
    Disabled,
}

impl Own {
    const fn text(self) -> &'static [u8] {
        match self {
            // RFC 6384 §6.
            Self::OtherNetwork => b"522 Network protocol not supported",
            Self::NoSuchParameter => b"504 Command not implemented for that parameter",
            // RFC 6384 §11.
            Self::Enabled => b"216 EPSVEPRT",
            Self::Disabled => b"216 NONE",
        }
    }
}

/// What is remembered of a control connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Memory {
    awaited: Awaited,
    /// In the middle of a line that is not read, by side.
    within: [bool; 2],
    /// ALGS DISABLE64 was given (RFC 6384 §11).
    disabled64: bool,
}

/// Commands that are read; the last only between IP versions.
const COMMANDS: [&[u8]; 6] = [b"PORT", b"EPRT", b"PASV", b"EPSV", b"AUTH", b"ALGS"];

impl Gateway for Ftp {
    fn read(&self, said: Said<'_>) -> Reading {
        let Said { memory, side, bytes, ends, ground, edits } = said;
        let memory = &mut memory.ftp;
        let end = bytes.iter().position(|byte| *byte == b'\n');
        if let Some(within) = memory.within.get_mut(side as usize)
            && *within
        {
            *within = end.is_none();
            return Reading::Done(end.map_or(bytes.len(), |end| end + 1));
        }
        let is_command = side == ends.client;
        let Some(end) = end else {
            let may_matter = if is_command { may_be_command(bytes) } else { memory.may_be_answer(bytes) };
            if may_matter && bytes.len() < LINE_MAX {
                return Reading::More;
            }
            if let Some(within) = memory.within.get_mut(side as usize) {
                *within = true;
            }
            return Reading::Done(bytes.len());
        };
        let line = bytes.get(..end).unwrap_or(&[]);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let mut talk = Talk { memory, side, ends, ground, edits };
        // A TLS handshake from the start.
        if line.first() == Some(&0x16) {
            talk.ground.note(Note::Transparent);
            return Reading::Transparent;
        }
        let transparent = if line.len() > LINE_MAX {
            false
        } else if is_command {
            talk.command(line);
            false
        } else {
            talk.answer(line)
        };
        if transparent {
            ground.note(Note::Transparent);
            return Reading::Transparent;
        }
        Reading::Done(end + 1)
    }
}

impl Memory {
    /// Could a line that begins so be the awaited answer?
    fn may_be_answer(&self, bytes: &[u8]) -> bool {
        self.awaited != Awaited::Nothing && bytes.iter().take(3).all(u8::is_ascii_digit)
    }
}

/// Could a line that begins so be a command that is read?
fn may_be_command(bytes: &[u8]) -> bool {
    COMMANDS.iter().any(|command| {
        let len = bytes.len().min(command.len());
        bytes.get(..len).is_some_and(|start| start.eq_ignore_ascii_case(command.get(..len).unwrap_or(&[])))
    })
}

/// One line's surroundings.
struct Talk<'a> {
    memory: &'a mut Memory,
    side: Side,
    ends: &'a Ends,
    ground: &'a mut dyn Ground,
    edits: &'a mut Edits,
}

impl Talk<'_> {
    fn command(&mut self, line: &[u8]) {
        let (verb, argument) = match line.split_at_checked(4) {
            Some((verb, [])) => (verb, &[][..]),
            Some((verb, [b' ', argument @ ..])) => (verb, argument),
            _ => return self.memory.awaited = Awaited::Nothing,
        };
        let argument_at = line.len() - argument.len();
        let known = COMMANDS.iter().find(|command| verb.eq_ignore_ascii_case(command)).copied();
        let from_inside = self.side == Side::Inside;
        let converts = from_inside && self.ends.crosses() && !self.memory.disabled64;
        self.memory.awaited = match known {
            Some(b"AUTH") => Awaited::Auth,
            Some(b"PASV") if !from_inside => Awaited::Pasv,
            Some(b"EPSV") if converts => self.convert_epsv(argument, line),
            Some(b"EPSV") if !from_inside && !argument.eq_ignore_ascii_case(b"ALL") => Awaited::Epsv,
            Some(b"ALGS") if from_inside && self.ends.crosses() => self.answer_algs(argument, line),
            _ => Awaited::Nothing,
        };
        match known {
            Some(b"PORT") if from_inside && !self.ends.crosses() => {
                self.port(six(argument).filter(|(_, len)| *len == argument.len()), argument_at..line.len());
            }
            Some(b"EPRT") if from_inside && (converts || !self.ends.crosses()) => {
                self.eprt(argument, argument_at, line.len());
            }
            _ => {}
        }
    }

    /// True when the rest of the connection is encrypted.
    fn answer(&mut self, line: &[u8]) -> bool {
        let is_last = line.iter().take(3).all(u8::is_ascii_digit) && matches!(line.get(3), None | Some(b' '));
        let Some((code, 3)) = number(line.get(..3).unwrap_or(&[]), 999).filter(|_| is_last) else {
            return false;
        };
        // RFC 959 §4.2: another answer follows.
        if code < 200 {
            return false;
        }
        match core::mem::take(&mut self.memory.awaited) {
            Awaited::Auth => return matches!(code, 234 | 334),
            Awaited::Pasv if code == 227 && self.side == Side::Inside => self.pasv(line),
            Awaited::Epsv if code == 229 && self.side == Side::Inside => self.epsv(line),
            Awaited::Converted if code == 227 => self.convert_pasv(line),
            Awaited::Own(own) => self.say(0..line.len(), own.text()),
            _ => {}
        }
        false
    }

    /// PORT h1,h2,h3,h4,p1,p2.
    fn port(&mut self, found: Option<((Ipv4Addr, u16), usize)>, place: core::ops::Range<usize>) {
        let Some(((ip, port), _)) = found else { return self.ground.note(Note::Malformed) };
        let Some(outside) = self.open(ip.into(), port) else { return };
        if let Some(text) = comma_separated(outside) {
            self.say(place, text.bytes());
        }
    }

    /// RFC 2428 §2: EPRT |1|address|port|, with any delimiter. Between IP versions it becomes PORT (RFC 6384 §7.2).
    fn eprt(&mut self, argument: &[u8], argument_at: usize, end: usize) {
        let Some((ip, port)) = extended(argument) else { return self.ground.note(Note::Malformed) };
        let Some(outside) = self.open(ip, port) else { return };
        if self.ends.crosses() {
            let text = comma_separated(outside)
                .and_then(|text| Text::<40>::of(format_args!("PORT {}", ascii(text.bytes())?)));
            if let Some(text) = text {
                self.say(0..end, text.bytes());
            }
            return;
        }
        let delimiter = char::from(argument.first().copied().unwrap_or(b'|'));
        let (ip, port) = (outside.ip(), outside.port());
        let text = Text::<40>::of(format_args!("{delimiter}1{delimiter}{ip}{delimiter}{port}{delimiter}"));
        if let Some(text) = text {
            self.say(argument_at..end, text.bytes());
        }
    }

    /// 227 Entering Passive Mode (h1,h2,h3,h4,p1,p2), with or without brackets (RFC 1123 §4.1.2.6).
    fn pasv(&mut self, line: &[u8]) {
        let Some((at, (ip, port), len)) = six_in(line) else { return self.ground.note(Note::Malformed) };
        let Some(outside) = self.open(ip.into(), port) else { return };
        if let Some(text) = comma_separated(outside) {
            self.say(at..at + len, text.bytes());
        }
    }

    /// 229 Entering Extended Passive Mode (|||port|): the address is that of the control connection (RFC 2428 §3).
    fn epsv(&mut self, line: &[u8]) {
        let found = line.iter().position(|byte| *byte == b'(').and_then(|at| {
            let [delimiter, second, third, rest @ ..] = line.get(at + 1..)? else { return None };
            let (port, digits) = number(rest, 65_535)?;
            let is_well = second == delimiter && third == delimiter && rest.get(digits) == Some(delimiter);
            is_well.then_some((at + 4, port as u16, digits))
        });
        let Some((at, port, digits)) = found else { return self.ground.note(Note::Malformed) };
        let Some(outside) = self.open(self.ends.inside, port) else { return };
        // The answer names no address: another one would be looked for in vain.
        if outside.ip() != self.ends.outside.ip() {
            return self.ground.note(Note::NoRoom);
        }
        if let Some(text) = Text::<8>::of(format_args!("{}", outside.port())) {
            self.say(at..at + digits, text.bytes());
        }
    }

    /// RFC 6384 §6: EPSV becomes PASV; what asks for another network, or to hear of EPSV alone, is refused.
    fn convert_epsv(&mut self, argument: &[u8], line: &[u8]) -> Awaited {
        let own = match argument {
            b"" | b"2" => {
                self.say(0..line.len(), b"PASV");
                return Awaited::Converted;
            }
            all if all.eq_ignore_ascii_case(b"ALL") => Own::NoSuchParameter,
            _ => Own::OtherNetwork,
        };
        self.say(0..line.len(), b"NOOP");
        Awaited::Own(own)
    }

    /// RFC 6384 §6: the port of 227 in a 229. Its address is ignored.
    fn convert_pasv(&mut self, line: &[u8]) {
        let Some((_, (_, port), _)) = six_in(line) else { return self.ground.note(Note::Malformed) };
        if let Some(text) = Text::<64>::of(format_args!("229 Entering Extended Passive Mode (|||{port}|)")) {
            self.say(0..line.len(), text.bytes());
        }
    }

    /// RFC 6384 §11.
    fn answer_algs(&mut self, argument: &[u8], line: &[u8]) -> Awaited {
        let own = if argument.eq_ignore_ascii_case(b"ENABLE64") {
            self.memory.disabled64 = false;
            Own::Enabled
        } else if argument.eq_ignore_ascii_case(b"DISABLE64") {
            self.memory.disabled64 = true;
            Own::Disabled
        } else if argument.eq_ignore_ascii_case(b"STATUS64") {
            if self.memory.disabled64 { Own::Disabled } else { Own::Enabled }
        } else {
            Own::NoSuchParameter
        };
        self.say(0..line.len(), b"NOOP");
        Awaited::Own(own)
    }

    /// An outside endpoint for the data connection, when it is one that its sender may ask for.
    fn open(&mut self, ip: IpAddr, port: u16) -> Option<SocketAddrV4> {
        // RFC 2577 §3: neither other hosts nor services.
        if ip != self.ends.inside || port < 1_024 {
            self.ground.note(Note::Foreign);
            return None;
        }
        let want = Want {
            proto: Proto::Tcp,
            inside_port: port,
            from: From::Remote,
            lifetime_s: LIFETIME_S,
            uses: 1,
            pair: false,
            dialog: 0,
        };
        self.ground.open(&want)
    }

    fn say(&mut self, place: core::ops::Range<usize>, text: &[u8]) {
        if self.edits.replace(place, text) {
            self.ground.note(Note::Rewritten);
        }
    }
}

fn comma_separated(endpoint: SocketAddrV4) -> Option<Text<24>> {
    let ([a, b, c, d], [p, q]) = (endpoint.ip().octets(), endpoint.port().to_be_bytes());
    Text::of(format_args!("{a},{b},{c},{d},{p},{q}"))
}

/// Six numbers with commas at the start of `bytes`, and their length.
fn six(bytes: &[u8]) -> Option<((Ipv4Addr, u16), usize)> {
    let (mut numbers, mut at) = ([0; 6], 0);
    for (n, place) in numbers.iter_mut().enumerate() {
        if n > 0 {
            bytes.get(at).filter(|byte| **byte == b',')?;
            at += 1;
        }
        let (value, digits) = number(bytes.get(at..)?, 255)?;
        *place = value as u8;
        at += digits;
    }
    let [a, b, c, d, p, q] = numbers;
    Some(((Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([p, q])), at))
}

/// The first six numbers with commas behind the code of an answer: where, which, and their length.
fn six_in(line: &[u8]) -> Option<(usize, (Ipv4Addr, u16), usize)> {
    (4..line.len()).filter(|at| !line.get(at - 1).is_some_and(u8::is_ascii_digit)).find_map(|at| {
        let (found, len) = six(line.get(at..)?)?;
        (!line.get(at + len).is_some_and(u8::is_ascii_digit)).then_some((at, found, len))
    })
}

/// Address and port of EPRT.
fn extended(argument: &[u8]) -> Option<(IpAddr, u16)> {
    let delimiter =
        *argument.first().filter(|byte| byte.is_ascii_graphic() && !byte.is_ascii_alphanumeric())?;
    let mut parts = argument.get(1..)?.split(|byte| *byte == delimiter);
    let mut part = || ascii(parts.next()?);
    let (version, ip, port, last) = (part()?, part()?, part()?, part()?);
    let ip: IpAddr = ip.parse().ok()?;
    let is_well = (version == "1" && ip.is_ipv4()) || (version == "2" && ip.is_ipv6());
    let (port, digits) = number(port.as_bytes(), 65_535).filter(|(_, digits)| *digits == port.len())?;
    (is_well && digits > 0 && last.is_empty() && parts.next().is_none()).then_some((ip, port as u16))
}
