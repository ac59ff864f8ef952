//! H.323: call signalling (H.225.0) and control (H.245), which name the addresses of each other and of media.
//!
//! Messages come in TPKTs (RFC 1006 §6). The host's own address becomes its outside one, and the other way round in what it
//! is sent. An address of the same version is written over; between IPv6 and IPv4 every address has another length there,
//! and with it all that encloses it, up to the TPKT (`patch`). Media of channels that are proposed with
//! the call (fast connect) or in tunnelled H.245 are found in the signalling connection, others in the connection whose
//! address it names. What does not decode to its end is left as it is.

mod patch;
mod per;
mod schema;
#[cfg(test)]
mod tests;

use core::net::{IpAddr, SocketAddrV4};

use carrack_base::Proto;

use crate::{Edits, Ends, From, Gateway, Ground, Note, Reading, Said, Side, Want, address};
use patch::Patches;
use per::Addresses;
use schema::{CONTROL_MESSAGE, Role, USER_INFORMATION};

/// Call signalling.
pub(crate) const PORT: u16 = 1_720;
/// Before each message: version 3, 0, the length of all.
const TPKT: usize = 4;
/// Longest message that is read.
const MESSAGE_MAX: usize = 4_096;
/// How long a connection for H.245, or a call back, is waited for.
const CONNECTION_LIFETIME_S: u16 = 120;
/// How long media are: longer than a telephone rings.
const MEDIA_LIFETIME_S: u16 = 240;

/// H.323's gateway.
#[derive(Debug, Clone, Copy)]
pub struct H323;

/// What is remembered of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Memory {
    /// Octets still to come of messages that are too long to be read, by side.
    rest: [u32; 2],
}

impl Gateway for H323 {
    fn read(&self, said: Said<'_>) -> Reading {
        let Said { memory, side, bytes, ends, ground, edits } = said;
        let Some(rest) = memory.h323.rest.get_mut(side as usize) else { return Reading::Transparent };
        if *rest > 0 {
            let count = bytes.len().min(*rest as usize);
            *rest -= count as u32;
            return Reading::Done(count);
        }
        if !matches!(bytes.first(), None | Some(3)) {
            return Reading::Unreadable;
        }
        let Some([_, _, high, low]) = bytes.first_chunk() else { return Reading::More };
        let len = usize::from(u16::from_be_bytes([*high, *low])).max(TPKT);
        if len > MESSAGE_MAX {
            let count = bytes.len().min(len);
            *rest = (len - count) as u32;
            ground.note(Note::Malformed);
            return Reading::Done(count);
        }
        let Some(message) = bytes.get(TPKT..len) else { return Reading::More };
        let server = if ends.client == Side::Inside { ends.remote.port() } else { ends.inside_port };
        let read = if server == PORT {
            user_information(message)
                .and_then(|at| Some((at, per::addresses(&USER_INFORMATION, message.get(at..)?)?)))
        } else {
            per::addresses(&CONTROL_MESSAGE, message).map(|found| (0, found))
        };
        match read {
            Some((at, addresses)) => {
                let is_whole =
                    Work { side, ends, ground: &mut *ground }.translate(bytes, at, &addresses, edits);
                if !is_whole {
                    edits.clear();
                    ground.note(Note::Overfull);
                }
            }
            // Empty ones keep the connection alive; those without user information are about nothing else.
            None if message.is_empty() || (server == PORT && user_information(message).is_none()) => {}
            None => ground.note(Note::Malformed),
        }
        if !edits.is_empty() {
            ground.note(Note::Rewritten);
        }
        Reading::Done(len)
    }
}

/// Where the user information of a message begins (Q.931 §4.5.30): the element is 0x7e, its length of two octets counts
/// the protocol discriminator 5 of X.208.
fn user_information(message: &[u8]) -> Option<usize> {
    const USER_USER: u8 = 0x7e;
    // Q.931 §4: protocol discriminator 8, call reference, message type.
    let reference = match message {
        [8, len, ..] => usize::from(len & 0x0f),
        _ => return None,
    };
    let mut at = 2 + reference + 1;
    loop {
        let rest = message.get(at..)?;
        match rest {
            [USER_USER, high, low, 5, ..] => {
                let len = usize::from(u16::from_be_bytes([*high, *low]));
                return (rest.len() >= 3 + len).then_some(at + 4);
            }
            // Q.931 §4.5.1: single octets have the highest bit.
            [first, ..] if *first >= 0x80 => at += 1,
            [_, len, ..] => at += 2 + usize::from(*len),
            _ => return None,
        }
    }
}

/// One message's surroundings.
struct Work<'a> {
    side: Side,
    ends: &'a Ends,
    ground: &'a mut dyn Ground,
}

impl Work<'_> {
    /// Writes what the other side is to read of a message whose encoding begins at `at` behind the TPKT's header. False when
    /// there are more lengths to be changed than are kept.
    fn translate(&mut self, bytes: &[u8], at: usize, addresses: &Addresses, edits: &mut Edits) -> bool {
        let mut patches = Patches::new(TPKT + at);
        for found in addresses.iter() {
            let Some(place) = found.read(bytes, TPKT + at) else { continue };
            let Some(new) = self.counterpart(found.role, place) else { continue };
            patches.endpoint(bytes, found, new);
        }
        patches.write(bytes, at > 0, addresses, edits)
    }

    /// What an endpoint is on the other side.
    fn counterpart(&mut self, role: Role, (ip, port): (IpAddr, u16)) -> Option<(IpAddr, u16)> {
        let own = match self.side {
            Side::Inside => self.outside_of(role, ip, port).map(|own| (IpAddr::V4(*own.ip()), own.port())),
            Side::Outside => self.inside_of(role, ip, port),
        };
        own.or_else(|| Some((address::across(self.side, self.ends, self.ground, ip)?, port)))
    }

    /// What the host's own endpoint is outside. Who it calls is named as well, and stays.
    fn outside_of(&mut self, role: Role, ip: IpAddr, port: u16) -> Option<SocketAddrV4> {
        let Ends { inside, inside_port, outside, .. } = *self.ends;
        if ip != inside {
            if role != Role::Signalling {
                self.ground.note(Note::Foreign);
            }
            return None;
        }
        if role == Role::Signalling && port == inside_port {
            return Some(outside);
        }
        // RFC 2577 §3 says it of FTP: no services. Port 0 names none.
        if port < 1_024 {
            self.ground.note(Note::Foreign);
            return None;
        }
        let is_media = role == Role::Media;
        let want = Want {
            proto: if is_media { Proto::Udp } else { Proto::Tcp },
            inside_port: port,
            from: if is_media { From::Anybody } else { From::Remote },
            lifetime_s: if is_media { MEDIA_LIFETIME_S } else { CONNECTION_LIFETIME_S },
            uses: u16::from(role == Role::Control),
            pair: is_media,
            dialog: 0,
        };
        let opened = self.ground.open(&want).filter(|opened| opened.ip() == outside.ip())?;
        if role == Role::Control {
            self.ground.await_control(opened);
        }
        Some(opened)
    }

    /// The host's endpoint for one of its outside address; and where the far end waits for a connection, that will be read.
    fn inside_of(&mut self, role: Role, ip: IpAddr, port: u16) -> Option<(IpAddr, u16)> {
        let Ends { inside, inside_port, outside, remote, .. } = *self.ends;
        let IpAddr::V4(ip) = ip else { return None };
        if role == Role::Control && ip == *remote.ip() {
            self.ground.await_control(SocketAddrV4::new(ip, port));
        }
        if ip != *outside.ip() {
            return None;
        }
        let proto = if role == Role::Media { Proto::Udp } else { Proto::Tcp };
        let port = if role == Role::Signalling && port == outside.port() {
            inside_port
        } else {
            self.ground.inside_port(proto, port)?
        };
        Some((inside, port))
    }
}
