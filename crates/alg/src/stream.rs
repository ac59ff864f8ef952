//! A control connection over TCP: segments become messages in order, changed messages become segments with right numbers.
//!
//! Each direction is a stream of bytes that is counted twice: as its sender counts, and as its receiver does. `Record`s
//! say where the two differ, with the text that stands there now, until the receiver has acknowledged it: a retransmission
//! gets the same text again. What lies before all records differs by one number, the shift.
//!
//! A message that has not come in whole is *held*: its bytes are not passed on, and stay here until the rest comes. They
//! are ours to deliver, for the sender may wait for their acknowledgement before it sends more (RFC 1122 §4.2.3.4). So a
//! segment of nothing but held bytes is passed on as a keep-alive probe, one number below what the receiver expects: it
//! answers by the number it expects (RFC 9293 §3.10.7.4), which is translated to one that covers the held bytes. Nothing is ever made
//! up or timed here: every packet that goes out is one that came in.
//!
//! A segment beyond what was read is refused, its sender sends it again after the missing one. Bytes that do not fit a
//! packet any more are left out, their sender sends them again likewise.

mod half;
mod number;
#[cfg(test)]
mod tests;

pub use half::{HELD_MAX, Halves};

use carrack_wire::tcp::{TcpView, flag};

use crate::edits::{EDIT_TEXT_MAX, EDITS_MAX, Edits};
use crate::{Reading, Side};
use half::Half;
use number::{before, within};

/// Longest payload of one segment that is read.
const PAYLOAD_MAX: usize = 10_240;
/// A changed segment may always have so many bytes of payload: any path carries them, with the longest TCP header and the
/// smallest IPv6 MTU. A longer one may be as long as it was.
const PAYLOAD_ALWAYS: usize = 1_180;

/// Why a segment does not go on; its sender will send its bytes again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// It begins behind what has been read.
    OutOfOrder,
    /// Too many connections hold bytes or changes just now, or too much of this one is on its way.
    Busy,
    /// No TCP segment, or too long a one.
    Malformed,
}

/// What a segment has become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passed {
    /// It goes on as it is.
    Same,
    /// So many bytes in [`Scratch::out`] go on instead. The checksum is still that of the old one.
    Changed(usize),
}

/// Room for one segment's work, made once.
#[derive(Debug)]
pub struct Scratch {
    view: Box<[u8]>,
    edits: Edits,
    /// What [`Passed::Changed`] speaks of.
    pub out: Box<[u8]>,
}

impl Default for Scratch {
    fn default() -> Self {
        Self {
            view: vec![0; HELD_MAX + PAYLOAD_MAX].into_boxed_slice(),
            edits: Edits::default(),
            out: vec![0; 60 + PAYLOAD_MAX].into_boxed_slice(),
        }
    }
}

/// One direction of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream {
    /// The number of the next byte to be read, as the sender counts.
    next: u32,
    /// What to add for the receiver's count, before all records.
    shift: u32,
    /// How many bytes before `next` are held.
    held: u16,
    /// Its [`Half`]; [`Stream::NO_HALF`] when it has neither records nor held bytes.
    half: u16,
    /// Has `next` been learned?
    known: bool,
    /// Its sender's window scale (RFC 7323 §2.2); [`Stream::NO_SCALE`] when its SYN had none.
    scale: u8,
}

impl Default for Stream {
    fn default() -> Self {
        Self { next: 0, shift: 0, held: 0, half: Self::NO_HALF, known: false, scale: Self::NO_SCALE }
    }
}

/// Both directions of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Talk {
    /// By [`Side`] of the sender.
    streams: [Stream; 2],
    sight: Sight,
}

/// Is it read?
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Sight {
    #[default]
    Read,
    /// Not any more, and it need not be.
    Transparent,
    /// Not any more, for it makes no sense.
    Unreadable,
}

/// The part of a segment that is passed on.
struct Emitted {
    seq: u32,
    len: usize,
    /// All of the segment's bytes are among it.
    whole: bool,
}

impl Talk {
    /// Takes a segment of `side` on its way. `read` is shown each message of it, see [`crate::Gateway::read`].
    ///
    /// # Errors
    /// [`Refused`], and nothing has changed but what `read` did.
    pub fn pass(
        &mut self,
        side: Side,
        segment: &[u8],
        halves: &mut Halves,
        scratch: &mut Scratch,
        read: impl FnMut(&[u8], &mut Edits) -> Reading,
    ) -> Result<Passed, Refused> {
        let tcp = TcpView::parse(segment).map_err(|_| Refused::Malformed)?;
        let header = segment.get(..tcp.header_len()).ok_or(Refused::Malformed)?;
        let payload = segment.get(tcp.header_len()..).unwrap_or(&[]);
        if payload.len() > PAYLOAD_MAX {
            return Err(Refused::Malformed);
        }
        let (flags, syn) = (tcp.flags(), u32::from(tcp.has(flag::SYN)));
        // RFC 9293 §3.4: a SYN is one number before the first byte.
        let seq = tcp.seq().wrapping_add(syn);
        let mine = &mut self.streams[side as usize];
        if syn == 1 {
            mine.scale = scale_of(&tcp);
        }
        if flags & flag::RST == 0 && !mine.known && (syn == 1 || !payload.is_empty()) {
            (mine.known, mine.next) = (true, seq);
        }
        let ack = (flags & flag::ACK != 0)
            .then(|| self.streams[side.other() as usize].acknowledged(tcp.ack(), halves));
        let plain = self.is_plain();
        let mine = &mut self.streams[side as usize];
        let fin = flags & flag::FIN != 0;
        if flags & flag::RST == 0 {
            mine.take(seq, payload, fin, &mut self.sight, halves, scratch, read)?;
        }
        if plain && self.is_plain() {
            return Ok(Passed::Same);
        }
        let mine = &mut self.streams[side as usize];
        let (head, body) = scratch.out.split_at_mut_checked(header.len()).ok_or(Refused::Malformed)?;
        let emitted = mine.emit(seq, payload, halves.get(mine.half), body);
        head.copy_from_slice(header);
        let emitted = emitted.ok_or(Refused::Busy)?;
        put32(head, 4, emitted.seq.wrapping_sub(syn));
        if let Some(ack) = ack {
            put32(head, 8, ack);
            let scale = if syn == 1 { 0 } else { self.scale(side) };
            let other = &self.streams[side.other() as usize];
            other.translate_window(head, tcp.ack(), scale, halves);
            other.translate_sack(head, halves);
        }
        if !emitted.whole
            && let Some(flags) = head.get_mut(13)
        {
            *flags &= !flag::FIN;
        }
        Ok(Passed::Changed(header.len() + emitted.len))
    }

    /// By how many places `side` shifts its window: not at all unless both SYNs spoke of it (RFC 7323 §2.2).
    fn scale(&self, side: Side) -> u8 {
        let agreed = self.streams.iter().all(|stream| stream.scale != Stream::NO_SCALE);
        if agreed { self.streams[side as usize].scale } else { 0 }
    }

    /// Are both directions the same on both sides, with nothing held?
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.streams.iter().all(|stream| stream.shift == 0 && stream.half == Stream::NO_HALF)
    }

    /// Will nothing be read any more, and is nothing to be translated?
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_transparent() && self.is_plain()
    }

    /// Nothing more is read.
    #[must_use]
    pub const fn is_transparent(&self) -> bool {
        !matches!(self.sight, Sight::Read)
    }

    /// Nothing more is read because what came made no sense.
    #[must_use]
    pub const fn is_unreadable(&self) -> bool {
        matches!(self.sight, Sight::Unreadable)
    }

    /// Gives back what it holds: the connection is gone.
    pub fn forget(&mut self, halves: &mut Halves) {
        for stream in &mut self.streams {
            stream.release(halves);
        }
        *self = Self::default();
    }
}

impl Stream {
    pub(crate) const NO_HALF: u16 = u16::MAX;
    const NO_SCALE: u8 = u8::MAX;

    /// Reads what is new in a segment.
    #[allow(clippy::too_many_arguments, reason = "the parts of a segment and the room to work in")]
    fn take(
        &mut self,
        seq: u32,
        payload: &[u8],
        fin: bool,
        sight: &mut Sight,
        halves: &mut Halves,
        scratch: &mut Scratch,
        read: impl FnMut(&[u8], &mut Edits) -> Reading,
    ) -> Result<(), Refused> {
        let end = seq.wrapping_add(payload.len() as u32);
        if !self.known || (payload.is_empty() && !fin) {
            return Ok(());
        }
        if before(self.next, seq) {
            return Err(Refused::OutOfOrder);
        }
        // All of it has been read before.
        let is_new = before(self.next, end) || (fin && self.next == end);
        if !is_new {
            return Ok(());
        }
        if *sight != Sight::Read && self.held == 0 {
            self.next = end.wrapping_add(u32::from(fin));
            return Ok(());
        }
        let fresh = payload.get(self.next.wrapping_sub(seq) as usize..).ok_or(Refused::Malformed)?;
        let at = if self.half == Self::NO_HALF { halves.take().ok_or(Refused::Busy)? } else { self.half };
        let half = halves.get_mut(at).ok_or(Refused::Busy)?;
        self.half = at;
        let taken = self.read_all(fresh, fin, sight, half, scratch, read);
        if self.held == 0 && half.is_empty() {
            self.release(halves);
        }
        taken
    }

    /// Shows `read` what is held and what is new behind it, message by message.
    fn read_all(
        &mut self,
        fresh: &[u8],
        fin: bool,
        sight: &mut Sight,
        half: &mut Half,
        scratch: &mut Scratch,
        mut read: impl FnMut(&[u8], &mut Edits) -> Reading,
    ) -> Result<(), Refused> {
        let Scratch { view, edits, .. } = scratch;
        let held = usize::from(self.held);
        if !half.has_room(held) {
            return Err(Refused::Busy);
        }
        let view = half.show(held, fresh, view).ok_or(Refused::Malformed)?;
        let start = self.next.wrapping_sub(self.held.into());
        let (mut done, mut full) = (0, false);
        while let Some(rest) = view.get(done..).filter(|rest| !rest.is_empty()) {
            if !half.has_room(held.saturating_sub(done)) {
                full = true;
                break;
            }
            edits.clear();
            let reading = if *sight == Sight::Read { read(rest, edits) } else { Reading::Done(rest.len()) };
            let count = match reading {
                Reading::Done(count) => count.clamp(1, rest.len()),
                Reading::More if fin || rest.len() > HELD_MAX => {
                    if !fin {
                        *sight = Sight::Unreadable;
                    }
                    edits.clear();
                    rest.len()
                }
                Reading::More => break,
                Reading::Transparent | Reading::Unreadable => {
                    *sight =
                        if reading == Reading::Transparent { Sight::Transparent } else { Sight::Unreadable };
                    edits.clear();
                    rest.len()
                }
            };
            let message = rest.get(..count).unwrap_or(rest);
            half.record(start.wrapping_add(done as u32), held.saturating_sub(done), message, edits);
            done += count;
        }
        // What there is no room to read is taken back: its sender sends it again. What was held stays so.
        let seen = if full { done.max(held) } else { view.len() };
        let rest = view.get(done..seen).unwrap_or(&[]);
        half.hold(rest);
        self.held = rest.len() as u16;
        self.next = start.wrapping_add(seen as u32).wrapping_add(u32::from(fin && !full));
        Ok(())
    }

    /// Puts the bytes of a segment that are passed on into `out`, by the receiver's count.
    fn emit(&self, seq: u32, payload: &[u8], half: Option<&Half>, out: &mut [u8]) -> Option<Emitted> {
        let end = seq.wrapping_add(payload.len() as u32);
        let fresh_from = self.next.wrapping_sub(self.held.into());
        // Bytes that are held, or were taken back, do not go on.
        let limit = if before(fresh_from, end) { fresh_from } else { end };
        let mut to = Writer { out, len: 0, max: payload.len().max(PAYLOAD_ALWAYS), cut: false };
        let (mut at, mut shift) = (seq, self.shift);
        let mut first = None;
        let mut open = false;
        let plain = |from: u32, until: u32| {
            payload.get(from.wrapping_sub(seq) as usize..until.wrapping_sub(seq) as usize).unwrap_or(&[])
        };
        for record in half.map_or(&[][..], Half::records) {
            let record_end = record.at.wrapping_add(record.len);
            // What was wholly held goes out with whatever comes behind it.
            let is_past = before(record_end, at) || (record_end == at && record.custody < record.len);
            if !is_past {
                if before(record.at, at) {
                    at = record.at;
                }
                let text = half.map_or(&[][..], |half| half.unacknowledged(record));
                let skipped =
                    if at == record.at { u32::from(record.text_len) - text.len() as u32 } else { 0 };
                first.get_or_insert(at.wrapping_add(shift).wrapping_add(skipped));
                if !before(record.at, limit) && record.at != at {
                    break;
                }
                to.put(plain(at, record.at));
                let is_whole = !before(end, record_end) || record.custody == record.len;
                if !is_whole {
                    // The segment ends inside: the rest of it stays out.
                    open = before(record.at, end);
                    at = limit;
                    break;
                }
                to.put(text);
                at = record_end;
            }
            shift = shift.wrapping_add(record.growth());
        }
        let out_seq = first.unwrap_or_else(|| at.wrapping_add(shift));
        if before(at, limit) {
            to.put(plain(at, limit));
        }
        let held_back = limit != end || open;
        if to.len == 0 && !payload.is_empty() {
            // See the head of this file: a probe that makes the receiver say how far it is.
            return Some(Emitted {
                seq: self.receivers_number(limit, half).wrapping_sub(1),
                len: 0,
                whole: false,
            });
        }
        Some(Emitted { seq: out_seq, len: to.len, whole: !held_back && !to.cut })
    }

    /// The receiver's number of a byte.
    fn receivers_number(&self, number: u32, half: Option<&Half>) -> u32 {
        let mut shift = self.shift;
        for record in half.map_or(&[][..], Half::records) {
            if !before(record.at, number) {
                break;
            }
            if before(number, record.at.wrapping_add(record.len)) {
                return record.at.wrapping_add(shift);
            }
            shift = shift.wrapping_add(record.growth());
        }
        let fresh_from = self.next.wrapping_sub(self.held.into());
        let number = if within(number, fresh_from, self.next) { fresh_from } else { number };
        number.wrapping_add(shift)
    }

    /// The sender's number of what the receiver calls `number`. Held bytes count as received when all before them are.
    fn senders_number(&self, number: u32, half: Option<&Half>) -> u32 {
        let mut shift = self.shift;
        for record in half.map_or(&[][..], Half::records) {
            let at = record.at.wrapping_add(shift);
            if before(number, at) {
                return number.wrapping_sub(shift);
            }
            if before(number, at.wrapping_add(record.text_len.into())) {
                return record.at.wrapping_add(record.custody);
            }
            shift = shift.wrapping_add(record.growth());
        }
        let fresh_from = self.next.wrapping_sub(self.held.into());
        if self.held > 0 && number == fresh_from.wrapping_add(shift) {
            return self.next;
        }
        number.wrapping_sub(shift)
    }

    /// Takes note of the receiver's acknowledgement, and gives the one for the sender.
    fn acknowledged(&mut self, ack: u32, halves: &mut Halves) -> u32 {
        let Some(half) = halves.get_mut(self.half) else { return ack.wrapping_sub(self.shift) };
        let last =
            half.records().iter().fold(self.shift, |shift, record| shift.wrapping_add(record.growth()));
        // Nobody acknowledges what was never sent.
        if !before(self.next.wrapping_add(last), ack) {
            self.shift = half.acknowledge(ack, self.shift);
        }
        let is_empty = half.is_empty();
        let number = self.senders_number(ack, Some(half));
        if self.held == 0 && is_empty {
            self.release(halves);
        }
        number
    }

    /// RFC 2018: the ranges that the receiver reports, in the sender's numbers; all are taken out when one has no
    /// counterpart, which is always allowed.
    fn translate_sack(&self, header: &mut [u8], halves: &Halves) {
        const NOP: u8 = 1;
        const SACK: u8 = 5;
        let half = halves.get(self.half);
        let Some(options) = header.get_mut(carrack_wire::tcp::HEADER_LEN..) else { return };
        let mut at = 0;
        while let Some(kind) = options.get(at).copied() {
            let len = match kind {
                0 => return,
                NOP => 1,
                _ => options.get(at + 1).copied().map_or(0, usize::from),
            };
            let Some(option) =
                options.get_mut(at..at + len).filter(|option| kind == NOP || option.len() >= 2)
            else {
                return;
            };
            if kind == SACK {
                for range in option.get_mut(2..).unwrap_or(&mut []).chunks_exact_mut(8) {
                    let [left, right] = [0, 4].map(|at| get32(range, at));
                    let (start, end) = (self.senders_number(left, half), self.senders_number(right, half));
                    put32(range, 0, start);
                    put32(range, 4, end);
                    if !before(start, end)
                        || self.receivers_number(start, half) != left
                        || self.receivers_number(end, half) != right
                    {
                        option.fill(NOP);
                        return;
                    }
                }
            }
            at += len;
        }
    }

    /// The receiver's window ends at the same byte for the sender. While bytes are held it stays as it is: they are not in
    /// the receiver's buffer, and the rest of their message has to come in.
    fn translate_window(&self, header: &mut [u8], receivers_ack: u32, scale: u8, halves: &Halves) {
        let window = header.get(14..16).and_then(|field| field.first_chunk()).copied();
        let Some(window) = window.map(u16::from_be_bytes).filter(|_| self.held == 0) else { return };
        let edge = receivers_ack.wrapping_add(u32::from(window) << scale);
        let edge = self.senders_edge(edge, halves.get(self.half));
        let room = edge.wrapping_sub(get32(header, 8));
        // Held bytes may have been acknowledged beyond a window that is nearly shut.
        let room = if (room as i32) < 0 { 0 } else { room };
        let new = room.div_ceil(1 << scale).min(u32::from(u16::MAX)) as u16;
        if let Some(place) = header.get_mut(14..16) {
            place.copy_from_slice(&new.to_be_bytes());
        }
    }

    /// The sender's number of the end of the receiver's window. A change that it cuts through may be sent whole: the rest
    /// of it comes again.
    fn senders_edge(&self, number: u32, half: Option<&Half>) -> u32 {
        let mut shift = self.shift;
        for record in half.map_or(&[][..], Half::records) {
            let at = record.at.wrapping_add(shift);
            if !before(at, number) {
                break;
            }
            if !before(at.wrapping_add(record.text_len.into()), number) {
                return record.at.wrapping_add(record.len);
            }
            shift = shift.wrapping_add(record.growth());
        }
        number.wrapping_sub(shift)
    }

    fn release(&mut self, halves: &mut Halves) {
        halves.give_back(self.half);
        (self.half, self.held) = (Self::NO_HALF, 0);
    }
}

/// The window scale that a SYN offers; RFC 7323 §2.3: 14 at most.
fn scale_of(tcp: &TcpView<'_>) -> u8 {
    const WINDOW_SCALE: u8 = 3;
    let option = tcp.options().find(|option| option.kind == WINDOW_SCALE);
    option.and_then(|option| option.data.first().copied()).map_or(Stream::NO_SCALE, |scale| scale.min(14))
}

/// Fills a buffer up to the most that may go into one packet.
struct Writer<'a> {
    out: &'a mut [u8],
    len: usize,
    max: usize,
    cut: bool,
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) {
        let room = self.max.min(self.out.len()).saturating_sub(self.len);
        let bytes = bytes.get(..room).inspect(|_| self.cut |= bytes.len() > room).unwrap_or(bytes);
        if let Some(place) = self.out.get_mut(self.len..self.len + bytes.len()) {
            place.copy_from_slice(bytes);
            self.len += bytes.len();
        }
    }
}

fn put32(bytes: &mut [u8], at: usize, value: u32) {
    if let Some(place) = bytes.get_mut(at..at + 4) {
        place.copy_from_slice(&value.to_be_bytes());
    }
}

fn get32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|bytes| bytes.first_chunk()).map_or(0, |bytes| u32::from_be_bytes(*bytes))
}
const _: () = assert!(HELD_MAX + EDITS_MAX + EDIT_TEXT_MAX < half::TEXT_MAX);
