//! PPTP (RFC 2637): the numbers of calls, by which the packets of a tunnel (enhanced GRE) are told apart.
//!
//! Each end of a call gives it a number, and a packet bears only that of the end it goes to (RFC 2637 §4.1). Two hosts inside
//! may choose the same one, so the far end is told another instead, which is given out as a port is. From IPv6 to IPv4
//! nothing is read: GRE does not cross.

use carrack_base::Proto;

use crate::{Edits, Ends, From, Gateway, Ground, Note, Reading, Said, Side, Want};

/// How long a call stays without a word on its control connection, which is quiet for 60 s at most (RFC 2637 §2.5).
const LIFETIME_S: u16 = 300;
/// Calls of one control connection that are remembered.
const CALLS_MAX: usize = 8;
/// Octets of the longest message there is, with room (RFC 2637 §2.9: 220).
const MESSAGE_MAX: usize = 512;
const HEADER: usize = 12;
const MAGIC: u32 = 0x1a2b_3c4d;
/// Where the numbers are (RFC 2637 §2.7 and after).
const FIRST: usize = 12;
const SECOND: usize = 14;
const RESULT: usize = 16;
const CONNECTED: u8 = 1;

mod kind {
    pub(super) const ECHO_REQUEST: u16 = 5;
    pub(super) const ECHO_REPLY: u16 = 6;
    pub(super) const OUTGOING_REQUEST: u16 = 7;
    pub(super) const OUTGOING_REPLY: u16 = 8;
    pub(super) const INCOMING_REQUEST: u16 = 9;
    pub(super) const INCOMING_REPLY: u16 = 10;
    pub(super) const INCOMING_CONNECTED: u16 = 11;
    pub(super) const CLEAR_REQUEST: u16 = 12;
    pub(super) const DISCONNECT_NOTIFY: u16 = 13;
    pub(super) const WAN_ERROR_NOTIFY: u16 = 14;
    pub(super) const SET_LINK_INFO: u16 = 15;
}

/// PPTP's gateway.
#[derive(Debug, Clone, Copy)]
pub struct Pptp;

/// What is remembered of a control connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Memory {
    calls: [Call; CALLS_MAX],
    /// Where the next call goes when all places are taken.
    hand: u8,
}

/// One call; 0 is no number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Call {
    /// The inside host's number.
    inside: u16,
    /// What the far end knows it by.
    outside: u16,
    /// The far end's number.
    remote: u16,
}

impl Memory {
    fn find(&mut self, is_it: impl Fn(&Call) -> bool) -> Option<&mut Call> {
        self.calls.iter_mut().find(|call| call.inside != 0 && is_it(call))
    }

    /// The call of that inside number, a new one if there is none.
    fn call(&mut self, inside: u16) -> Option<&mut Call> {
        let known = self.calls.iter().position(|call| call.inside == inside);
        let at = known.or_else(|| self.calls.iter().position(|call| call.inside == 0)).unwrap_or_else(|| {
            self.hand = self.hand.wrapping_add(1);
            usize::from(self.hand) % CALLS_MAX
        });
        let call = self.calls.get_mut(at)?;
        if call.inside != inside {
            *call = Call { inside, ..Call::default() };
        }
        Some(call)
    }
}

impl Gateway for Pptp {
    fn read(&self, said: Said<'_>) -> Reading {
        let Said { memory, side, bytes, ends, ground, edits } = said;
        let Some(head) = bytes.first_chunk::<HEADER>() else { return Reading::More };
        let len = usize::from(u16::from_be_bytes([head[0], head[1]]));
        let is_message = u32::from_be_bytes([head[4], head[5], head[6], head[7]]) == MAGIC
            && (HEADER..=MESSAGE_MAX).contains(&len);
        if ends.crosses() {
            ground.note(Note::Transparent);
            return Reading::Transparent;
        }
        if !is_message {
            return Reading::Unreadable;
        }
        let Some(message) = bytes.get(..len) else { return Reading::More };
        // RFC 2637 §1.4: anything but a control message is nobody's business.
        if head[2..4] == [0, 1] {
            let mut work = Work { memory: &mut memory.pptp, message, ends, ground, edits };
            work.message(side, u16::from_be_bytes([head[8], head[9]]));
        }
        Reading::Done(len)
    }
}

struct Work<'a> {
    memory: &'a mut Memory,
    message: &'a [u8],
    ends: &'a Ends,
    ground: &'a mut dyn Ground,
    edits: &'a mut Edits,
}

impl Work<'_> {
    fn message(&mut self, side: Side, kind: u16) {
        let is_reply = matches!(kind, kind::OUTGOING_REPLY | kind::INCOMING_REPLY);
        match (kind, side) {
            (kind::ECHO_REQUEST | kind::ECHO_REPLY, _) => self.keep_all(),
            (kind::OUTGOING_REQUEST | kind::INCOMING_REQUEST, Side::Inside) => {
                self.give_out(FIRST);
            }
            _ if is_reply && side == Side::Inside => {
                // RFC 2637 §2.8, §2.10: a refusal has no number.
                if self.message.get(RESULT) == Some(&CONNECTED)
                    && let Some(inside) = self.give_out(FIRST)
                    && let Some(remote) = self.number(SECOND)
                {
                    self.join(inside, remote);
                }
            }
            _ if is_reply => {
                let inside = self.take_back(SECOND);
                if self.message.get(RESULT) == Some(&CONNECTED)
                    && let (Some(inside), Some(remote)) = (inside, self.number(FIRST))
                {
                    self.join(inside, remote);
                }
            }
            (kind::INCOMING_CONNECTED | kind::WAN_ERROR_NOTIFY | kind::SET_LINK_INFO, Side::Outside) => {
                self.take_back(FIRST);
            }
            (kind::CLEAR_REQUEST | kind::DISCONNECT_NOTIFY, side) => self.end(side),
            _ => {}
        }
        if !self.edits.is_empty() {
            self.ground.note(Note::Rewritten);
        }
    }

    /// A number in the message.
    fn number(&mut self, at: usize) -> Option<u16> {
        let number = self.message.get(at..at + 2).map(|two| u16::from_be_bytes([two[0], two[1]]));
        if number.is_none() {
            self.ground.note(Note::Malformed);
        }
        number.filter(|number| *number != 0)
    }

    fn put(&mut self, at: usize, old: u16, new: u16) {
        if old != new {
            self.edits.replace(at..at + 2, &new.to_be_bytes());
        }
    }

    /// The inside host names a number of its own: the far end is told the outside one.
    fn give_out(&mut self, at: usize) -> Option<u16> {
        let inside = self.number(at)?;
        let opened = self.ground.open(&want(inside))?;
        if opened.ip() != self.ends.outside.ip() {
            self.ground.note(Note::NoRoom);
            return None;
        }
        let call = self.memory.call(inside)?;
        call.outside = opened.port();
        self.put(at, inside, opened.port());
        Some(inside)
    }

    /// The far end names a number of the inside host, by its outside one.
    fn take_back(&mut self, at: usize) -> Option<u16> {
        let outside = self.number(at)?;
        let known = self.memory.find(|call| call.outside == outside).map(|call| call.inside);
        let inside = known.or_else(|| self.ground.inside_port(Proto::Other, outside))?;
        self.put(at, outside, inside);
        Some(inside)
    }

    /// Both numbers are known: packets may pass.
    fn join(&mut self, inside: u16, remote: u16) {
        if let Some(call) = self.memory.call(inside) {
            call.remote = remote;
        }
        self.ground.keep_call(&want(inside), remote);
    }

    /// The control connection lives, and so do its calls.
    fn keep_all(&mut self) {
        for call in self.memory.calls.iter().filter(|call| call.remote != 0) {
            self.ground.keep_call(&want(call.inside), call.remote);
        }
    }

    /// RFC 2637 §2.12, §2.13: who speaks says its own number. What is there is not kept any longer.
    fn end(&mut self, side: Side) {
        let Some(number) = self.number(FIRST) else { return };
        let is_it = |call: &Call| match side {
            Side::Inside => call.inside == number,
            Side::Outside => call.remote == number,
        };
        let Some(call) = self.memory.find(is_it) else { return };
        let outside = call.outside;
        *call = Call::default();
        if side == Side::Inside && outside != 0 {
            self.put(FIRST, number, outside);
        }
    }
}

const fn want(inside: u16) -> Want {
    Want {
        proto: Proto::Other,
        inside_port: inside,
        from: From::Remote,
        lifetime_s: LIFETIME_S,
        uses: 0,
        pair: false,
        dialog: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ground::{Field, ends};

    #[derive(Default)]
    struct Test {
        memory: crate::Memory,
        field: Field,
    }

    impl Test {
        /// What the message has become.
        fn read(&mut self, side: Side, bytes: &[u8]) -> Vec<u8> {
            let mut edits = Edits::default();
            let ends = ends("10.0.0.5");
            let reading = Pptp.read(Said {
                memory: &mut self.memory,
                side,
                bytes,
                ends: &ends,
                ground: &mut self.field,
                edits: &mut edits,
            });
            assert_eq!(reading, Reading::Done(bytes.len()));
            let mut out = [0; MESSAGE_MAX];
            let len = edits.apply(bytes, &mut out).unwrap();
            out[..len].to_vec()
        }
    }

    fn message(kind: u16, first: u16, second: u16, result: u8) -> Vec<u8> {
        let mut bytes = [&[0, 20, 0, 1][..], &MAGIC.to_be_bytes(), &kind.to_be_bytes(), &[0; 2]].concat();
        bytes.extend([first.to_be_bytes(), second.to_be_bytes()].concat());
        bytes.extend([result, 0, 0, 0]);
        bytes
    }

    /// RFC 2637 §2.7, §2.8: a client inside.
    #[test]
    fn a_caller_inside_is_known_outside_by_a_number_given_out() {
        let mut t = Test::default();
        assert_eq!(t.read(Side::Inside, &message(7, 5, 99, 0)), message(7, 20_005, 99, 0));
        assert_eq!(t.field.opened, [5]);
        assert!(t.field.calls.is_empty(), "not yet");
        assert_eq!(t.read(Side::Outside, &message(8, 700, 20_005, 1)), message(8, 700, 5, 1));
        assert_eq!(t.field.calls, [(5, 700)]);
        t.read(Side::Inside, &message(5, 0, 0, 0));
        assert_eq!(t.field.calls, [(5, 700), (5, 700)], "an echo keeps the call");
        // RFC 2637 §2.14, §2.15, §2.12.
        assert_eq!(t.read(Side::Outside, &message(14, 20_005, 0, 0)), message(14, 5, 0, 0));
        assert_eq!(t.read(Side::Inside, &message(15, 700, 0, 0)), message(15, 700, 0, 0));
        assert_eq!(t.read(Side::Inside, &message(12, 5, 0, 0)), message(12, 20_005, 0, 0));
        t.read(Side::Outside, &message(6, 0, 0, 0));
        assert_eq!(t.field.calls.len(), 2, "an ended call is kept no longer");
    }

    /// RFC 2637 §2.9, §2.10, §2.11, §2.13: the one who answers has a number too.
    #[test]
    fn a_number_in_an_answer_from_inside_is_given_out_too() {
        let mut t = Test::default();
        assert_eq!(t.read(Side::Outside, &message(9, 700, 0, 0)), message(9, 700, 0, 0));
        assert_eq!(t.read(Side::Inside, &message(10, 5, 700, 1)), message(10, 20_005, 700, 1));
        assert_eq!(t.field.calls, [(5, 700)]);
        assert_eq!(t.read(Side::Outside, &message(11, 20_005, 0, 0)), message(11, 5, 0, 0));
        t.read(Side::Outside, &message(13, 700, 0, 0));
        t.read(Side::Outside, &message(6, 0, 0, 0));
        assert_eq!(t.field.calls.len(), 1);
    }

    #[test]
    fn refusals_shortage_and_nonsense_change_nothing() {
        let mut t = Test::default();
        let refused = message(8, 0, 77, 2);
        assert_eq!(t.read(Side::Outside, &refused), refused);
        assert_eq!(t.read(Side::Inside, &refused), refused);
        let none = message(7, 0, 0, 0);
        assert_eq!(t.read(Side::Inside, &none), none);
        t.field.room = false;
        let full = message(7, 5, 0, 0);
        assert_eq!(t.read(Side::Inside, &full), full);
        let short = &[&[0, 12, 0, 1][..], &MAGIC.to_be_bytes(), &[0, 7, 0, 0]].concat();
        assert_eq!(&t.read(Side::Inside, short), short);
        assert_eq!(t.field.notes, [Note::NoRoom, Note::Malformed]);
        assert!(t.field.opened.is_empty() && t.field.calls.is_empty());
    }

    #[test]
    fn what_is_no_pptp_is_not_read_any_further() {
        let read = |bytes: &[u8]| {
            let (mut memory, mut field) = (crate::Memory::default(), Field::default());
            let (memory, ground, ends) = (&mut memory, &mut field, &ends("10.0.0.5"));
            Pptp.read(Said { memory, side: Side::Inside, bytes, ends, ground, edits: &mut Edits::default() })
        };
        assert_eq!(read(b"GET / HTTP/1.1\r\n"), Reading::Unreadable);
        let mut long = message(7, 5, 0, 0);
        assert_eq!(read(&long[..11]), Reading::More);
        assert_eq!(read(&long[..19]), Reading::More);
        long[0] = 3;
        assert_eq!(read(&long), Reading::Unreadable);
    }

    #[test]
    fn calls_beyond_those_remembered_take_the_places_of_old_ones() {
        let mut t = Test::default();
        for number in 1..=40 {
            t.read(Side::Inside, &message(7, number, 0, 0));
            t.read(Side::Outside, &message(8, 700, 20_000 + number, 1));
        }
        let before = t.field.calls.len();
        t.read(Side::Inside, &message(5, 0, 0, 0));
        assert_eq!(t.field.calls.len() - before, CALLS_MAX);
    }
}
