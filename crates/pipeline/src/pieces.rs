//! Datagrams of control connections that come in IP fragments (RFC 791 §3.2): they are brought together for their gateway once
//! each has been translated, and go on in as many fragments as came.
//!
//! All is bounded: datagrams, their fragments, their bytes, time. What goes beyond goes on unread.

use carrack_alg::EDIT_TEXT_MAX;
use carrack_base::{Now, Reason};
use carrack_frame::Frame;
use carrack_nat::{Direction, Mediated};
use carrack_wire::checksum;
use carrack_wire::ipv4::{FLAG_MF, Ipv4Mut, Ipv4View, OFFSET_MASK, protocol};

use crate::burst::{Burst, Fate, Meta};
use crate::mediate::put16;
use crate::worker::Worker;

/// Datagrams that are brought together at one time.
const DATAGRAMS_MAX: usize = 16;
/// Fragments of one.
const FRAGMENTS_MAX: usize = 6;
/// Bytes of one, without IP headers.
const BYTES_MAX: usize = 8_192;
const UDP_HEADER: usize = 8;

/// A translated fragment.
struct Piece {
    frame: Frame,
    meta: Meta,
    offset: usize,
    len: usize,
    more: bool,
}

/// Fragments of one datagram.
type Set = [Option<Piece>; FRAGMENTS_MAX];

struct Datagram {
    line: u32,
    direction: Direction,
    identification: u16,
    due_ms: u64,
    /// It is not brought together: what comes of it goes on.
    apart: bool,
    set: Set,
}

/// What has become of a fragment.
enum Gathered {
    /// It waits for others.
    Waits,
    /// All are there, in order.
    Whole(Set),
    /// They are not to be brought together.
    Apart(Set),
}

/// Datagrams that are not whole yet.
pub(crate) struct Pieces {
    all: Vec<Datagram>,
    bytes: Box<[u8]>,
}

impl Pieces {
    pub(crate) fn new() -> Self {
        let bytes = vec![0; BYTES_MAX + EDIT_TEXT_MAX].into_boxed_slice();
        Self { all: Vec::with_capacity(DATAGRAMS_MAX), bytes }
    }

    /// Frames that wait.
    pub(crate) fn held(&self) -> u64 {
        self.all.iter().map(|datagram| datagram.set.iter().flatten().count() as u64).sum()
    }

    fn add(&mut self, piece: Piece, direction: Direction, timeout_ms: u32, now: Now) -> Gathered {
        let (line, identification) = (piece.meta.line, identification_of(&piece));
        let is_its = |known: &Datagram| {
            (known.line, known.direction, known.identification) == (line, direction, identification)
        };
        let found = self.all.iter().position(is_its);
        let at = match found {
            Some(at) => at,
            None if self.all.len() < DATAGRAMS_MAX => {
                let due_ms = now.ms().saturating_add(timeout_ms.into());
                let set = [const { None }; FRAGMENTS_MAX];
                self.all.push(Datagram { line, direction, identification, due_ms, apart: false, set });
                self.all.len() - 1
            }
            None => return Gathered::Apart(alone(piece)),
        };
        let Some(datagram) = self.all.get_mut(at) else { return Gathered::Apart(alone(piece)) };
        let is_long = piece.offset + piece.len > BYTES_MAX;
        let place = datagram.set.iter_mut().find(|place| place.is_none());
        let Some(place) = place.filter(|_| !datagram.apart) else { return Gathered::Apart(alone(piece)) };
        *place = Some(piece);
        let is_full = datagram.set.iter().all(Option::is_some);
        datagram.set.sort_by_key(|piece| piece.as_ref().map_or(usize::MAX, |piece| piece.offset));
        match length_of(&datagram.set) {
            Some(_) if !is_long => Gathered::Whole(self.all.swap_remove(at).set),
            _ if is_long || is_full => {
                datagram.apart = true;
                Gathered::Apart(std::mem::replace(&mut datagram.set, [const { None }; FRAGMENTS_MAX]))
            }
            _ => Gathered::Waits,
        }
    }

    /// The next fragment whose datagram did not become whole in time.
    pub(crate) fn next_overdue(&mut self, now: Now) -> Option<(Frame, Meta)> {
        let at = self.all.iter().position(|datagram| datagram.due_ms <= now.ms())?;
        let piece = self.all.get_mut(at)?.set.iter_mut().find_map(Option::take);
        if piece.is_none() {
            self.all.swap_remove(at);
            return self.next_overdue(now);
        }
        piece.map(|piece| (piece.frame, piece.meta))
    }
}

fn alone(piece: Piece) -> Set {
    let mut set = [const { None }; FRAGMENTS_MAX];
    set[0] = Some(piece);
    set
}

/// Bytes of a datagram whose fragments lie one behind the other, from the first to the last.
fn length_of(set: &Set) -> Option<usize> {
    let mut end = 0;
    for piece in set.iter().flatten() {
        if piece.offset != end {
            return None;
        }
        end += piece.len;
        if !piece.more {
            return Some(end);
        }
    }
    None
}

fn identification_of(piece: &Piece) -> u16 {
    let head =
        piece.frame.bytes().get(usize::from(piece.meta.flow.l3)..).and_then(|ip| ip.first_chunk::<6>());
    head.map_or(0, |head| u16::from_be_bytes([head[4], head[5]]))
}

/// `None` for what is no packet.
fn piece_of(frame: Frame, meta: Meta) -> Result<Piece, Frame> {
    let extent = frame.bytes().get(usize::from(meta.flow.l3)..).and_then(|bytes| {
        let ip = Ipv4View::parse(bytes).ok()?;
        let word = u16::from_be_bytes(*bytes.get(6..8)?.first_chunk()?);
        Some((usize::from(word & OFFSET_MASK) * 8, ip.payload().len(), word & FLAG_MF != 0))
    });
    match extent {
        Some((offset, len, more)) => Ok(Piece { frame, meta, offset, len, more }),
        None => Err(frame),
    }
}

impl Worker {
    /// A translated fragment of a control connection: it waits for the others, or all go on.
    #[cold]
    pub(crate) fn gather_control(&mut self, burst: &mut Burst, at: usize, now: Now) {
        let (Some(place), Some(about)) = (burst.frames.get_mut(at), burst.meta.get_mut(at)) else { return };
        let (Some(direction), meta) = (about.direction, *about) else { return };
        let Some(frame) = place.take() else { return };
        let piece = match piece_of(frame, meta) {
            Ok(piece) => piece,
            Err(frame) => return *place = Some(frame),
        };
        about.fate = Fate::Gone;
        let timeout_ms = self.plan.snapshot.fragment_timeout_ms;
        let (set, fate) = match self.pieces.add(piece, direction, timeout_ms, now) {
            Gathered::Waits => return,
            Gathered::Apart(set) => (set, Fate::Going),
            Gathered::Whole(mut set) => match self.mediate_whole(&mut set, direction, now) {
                Ok(()) => (set, Fate::Going),
                Err(reason) => (set, Fate::Dropped(reason)),
            },
        };
        for piece in set.into_iter().flatten() {
            let meta = Meta { fate, ..piece.meta };
            if let Err(frame) = burst.push(piece.frame, meta) {
                self.discard(frame, &meta, Reason::FragmentQueueFull, now);
            }
        }
    }

    /// Shows a datagram to its gateway, and puts what comes of it into its fragments.
    fn mediate_whole(&mut self, set: &mut Set, direction: Direction, now: Now) -> Result<(), Reason> {
        let mut bytes = std::mem::take(&mut self.pieces.bytes);
        let done = self.mediate_whole_by(set, &mut bytes, direction, now);
        self.pieces.bytes = bytes;
        done
    }

    fn mediate_whole_by(
        &mut self,
        set: &mut Set,
        bytes: &mut [u8],
        direction: Direction,
        now: Now,
    ) -> Result<(), Reason> {
        let Some((total, src, dst)) = assemble(set, bytes) else { return Ok(()) };
        let Some(datagram) = bytes.get(..total) else { return Ok(()) };
        let Some([s0, s1, d0, d1, l0, l1, c0, c1]) = datagram.first_chunk::<UDP_HEADER>() else {
            return Ok(());
        };
        let ports = (u16::from_be_bytes([*s0, *s1]), u16::from_be_bytes([*d0, *d1]));
        let had_checksum = [*c0, *c1] != [0, 0];
        let pseudo = checksum::pseudo_v4(src, dst, protocol::UDP, 0);
        if usize::from(u16::from_be_bytes([*l0, *l1])) != total {
            return Ok(());
        }
        if had_checksum && pseudo.with_u16(total as u16).with_bytes(datagram).fold() != 0xffff {
            return Err(Reason::GatewayBadChecksum);
        }
        let line = set[0].as_ref().map_or(carrack_nat::NO_LINE, |piece| piece.meta.line);
        // The first ones have waited: their session may be gone, and another in its line.
        if !self.nat.is_translated_by(line, direction, (src, dst), ports) {
            return Ok(());
        }
        let len = match self.nat.mediate(line, direction, datagram, now)? {
            Mediated::Same => return Ok(()),
            Mediated::Changed(new) => {
                let room = bytes.get_mut(..new.len()).ok_or(Reason::FrameHeadroom)?;
                room.copy_from_slice(new);
                new.len()
            }
        };
        let Some(datagram) = bytes.get_mut(..len) else { return Ok(()) };
        put16(datagram, 4, len as u16);
        put16(datagram, 6, 0);
        if had_checksum {
            let sum = pseudo.with_u16(len as u16).with_bytes(datagram).udp_checksum();
            put16(datagram, 6, sum);
        }
        distribute(set, datagram)
    }
}

/// Puts the fragments' bytes together: how many, from whom to whom.
fn assemble(set: &Set, bytes: &mut [u8]) -> Option<(usize, u32, u32)> {
    let total = length_of(set)?;
    let mut ends = None;
    for piece in set.iter().flatten() {
        let ip = Ipv4View::parse(piece.frame.bytes().get(usize::from(piece.meta.flow.l3)..)?).ok()?;
        bytes.get_mut(piece.offset..piece.offset + piece.len)?.copy_from_slice(ip.payload());
        ends.get_or_insert((ip.src(), ip.dst()));
    }
    let (src, dst) = ends?;
    Some((total, src, dst))
}

/// Cuts a datagram into as many fragments as there are, of about the same length. One that a link is too narrow for is cut
/// again there.
fn distribute(set: &mut Set, datagram: &[u8]) -> Result<(), Reason> {
    let count = set.iter().flatten().count().max(1);
    let each = (datagram.len() / count) & !7;
    for (at, piece) in set.iter_mut().flatten().enumerate() {
        let (offset, more) = (at * each, at + 1 < count);
        let end = if more { offset + each } else { datagram.len() };
        let part =
            datagram.get(offset..end).filter(|part| !part.is_empty()).ok_or(Reason::Ipv4FragmentInvalid)?;
        refill(piece, part, offset, more)?;
    }
    Ok(())
}

/// Other bytes at another place in a fragment.
fn refill(piece: &mut Piece, part: &[u8], offset: usize, more: bool) -> Result<(), Reason> {
    let start = usize::from(piece.meta.flow.l3);
    let first = piece.frame.bytes().get(start).copied().unwrap_or(0x45);
    let header_len = usize::from(first & 15) * 4;
    piece.frame.truncate(start + header_len);
    piece.frame.append(part.len()).ok_or(Reason::FrameHeadroom)?.copy_from_slice(part);
    let Some(packet) = piece.frame.bytes_mut().get_mut(start..) else { return Ok(()) };
    put16(packet, 2, (header_len + part.len()) as u16);
    let flags =
        packet.get(6..8).map_or(0, |word| u16::from_be_bytes([word[0], word[1]])) & !(FLAG_MF | OFFSET_MASK);
    put16(packet, 6, flags | if more { FLAG_MF } else { 0 } | (offset / 8) as u16);
    if let Ok(mut packet) = Ipv4Mut::parse(packet) {
        packet.fill_checksum();
    }
    (piece.offset, piece.len, piece.more) = (offset, part.len(), more);
    Ok(())
}
