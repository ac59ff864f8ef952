//! What a direction of a connection needs only while bytes are held or changes are on their way: kept apart, for few
//! connections need it at once.

use super::number::before;
use crate::edits::{EDIT_TEXT_MAX, EDITS_MAX, Edits};

/// Bytes of a message that is still coming in, at most. A longer one is not read, nor anything behind it.
pub const HELD_MAX: usize = 4_096;
/// Text on its way to the receiver, at most.
pub(super) const TEXT_MAX: usize = 6_144;
/// Changes on their way to the receiver, at most.
const RECORDS_MAX: usize = 64;

/// A place where the receiver gets other bytes than the sender sent.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Record {
    /// Number of the first byte, as the sender counts.
    pub(super) at: u32,
    /// Bytes as the sender counts.
    pub(super) len: u32,
    /// How many of them were held: the sender may know them received.
    pub(super) custody: u32,
    text_at: u16,
    /// Bytes as the receiver counts; never 0.
    pub(super) text_len: u16,
}

impl Record {
    /// How much further the receiver's count is behind it.
    pub(super) const fn growth(&self) -> u32 {
        (self.text_len as u32).wrapping_sub(self.len)
    }
}

/// One direction's records and held bytes.
#[derive(Debug)]
pub(super) struct Half {
    records: [Record; RECORDS_MAX],
    count: usize,
    text: [u8; TEXT_MAX],
    text_len: usize,
    /// How much of the first record's text the receiver has acknowledged: a long one goes out in several segments.
    first_acked: u16,
    held: [u8; HELD_MAX],
}

impl Half {
    const NEW: Self = Self {
        records: [Record { at: 0, len: 0, custody: 0, text_at: 0, text_len: 0 }; RECORDS_MAX],
        count: 0,
        text: [0; TEXT_MAX],
        text_len: 0,
        first_acked: 0,
        held: [0; HELD_MAX],
    };

    pub(super) fn records(&self) -> &[Record] {
        self.records.get(..self.count).unwrap_or(&[])
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn text(&self, record: &Record) -> &[u8] {
        let at = usize::from(record.text_at);
        self.text.get(at..at + usize::from(record.text_len)).unwrap_or(&[])
    }

    /// The text that the receiver does not have yet.
    pub(super) fn unacknowledged(&self, record: &Record) -> &[u8] {
        let is_first = self.records().first().is_some_and(|first| first.at == record.at);
        let acked = if is_first { usize::from(self.first_acked) } else { 0 };
        self.text(record).get(acked..).unwrap_or(&[])
    }

    /// Is there room for all that one message with so many held bytes may need?
    pub(super) fn has_room(&self, held: usize) -> bool {
        self.count + EDITS_MAX < RECORDS_MAX && self.text_len + held + EDIT_TEXT_MAX + EDITS_MAX < TEXT_MAX
    }

    /// The held bytes and the new ones behind them.
    pub(super) fn show<'a>(&self, held: usize, fresh: &[u8], view: &'a mut [u8]) -> Option<&'a [u8]> {
        let view = view.get_mut(..held + fresh.len())?;
        let (old, new) = view.split_at_mut_checked(held)?;
        old.copy_from_slice(self.held.get(..held)?);
        new.copy_from_slice(fresh);
        Some(view)
    }

    /// Holds these bytes instead of the ones before; as many as there is room for.
    pub(super) fn hold(&mut self, bytes: &[u8]) {
        if let Some(place) = self.held.get_mut(..bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }

    /// Notes what becomes of a message that begins at `at` and whose first `held` bytes were held. They are one record,
    /// with all changes that touch them; every change behind them is one.
    pub(super) fn record(&mut self, at: u32, held: usize, message: &[u8], edits: &Edits) {
        let custody = held.min(message.len());
        let mut end = custody;
        let text_from = self.text_len;
        let mut from = 0;
        for (range, text) in edits.iter() {
            if range.start >= end {
                break;
            }
            self.put(message.get(from..range.start).unwrap_or(&[]));
            self.put(text);
            from = range.end;
            end = end.max(range.end);
        }
        if custody > 0 {
            self.put(message.get(from..end).unwrap_or(&[]));
            self.push(at, end, custody, text_from);
        }
        for (range, text) in edits.iter().filter(|(range, _)| range.start >= end) {
            let text_from = self.text_len;
            self.put(text);
            self.push(at.wrapping_add(range.start as u32), range.len(), 0, text_from);
        }
    }

    fn put(&mut self, bytes: &[u8]) {
        // Invariant: `has_room` was asked.
        if let Some(place) = self.text.get_mut(self.text_len..self.text_len + bytes.len()) {
            place.copy_from_slice(bytes);
            self.text_len += bytes.len();
        }
    }

    fn push(&mut self, at: u32, len: usize, custody: usize, text_from: usize) {
        let (len, custody, text_len) = (len as u32, custody as u32, (self.text_len - text_from) as u16);
        let last = self.records.get_mut(self.count.wrapping_sub(1));
        // Two that were held all through are one, so that whatever comes behind takes both along.
        if let Some(last) = last
            .filter(|last| last.custody == last.len && last.at.wrapping_add(last.len) == at && custody > 0)
        {
            (last.len, last.custody, last.text_len) =
                (last.len + len, last.custody + custody, last.text_len + text_len);
            return;
        }
        if let Some(record) = self.records.get_mut(self.count) {
            *record = Record { at, len, custody, text_at: text_from as u16, text_len };
            self.count += 1;
        }
    }

    /// Forgets what the receiver has; `shift` is what it was before the first record, the result what it is now.
    pub(super) fn acknowledge(&mut self, ack: u32, mut shift: u32) -> u32 {
        let mut gone = 0;
        for record in self.records() {
            if before(ack, record.at.wrapping_add(shift).wrapping_add(record.text_len.into())) {
                break;
            }
            shift = shift.wrapping_add(record.growth());
            gone += 1;
        }
        if gone > 0 {
            let text_from = self
                .records
                .get(gone)
                .filter(|_| gone < self.count)
                .map_or(self.text_len, |record| usize::from(record.text_at));
            self.records.copy_within(gone..self.count, 0);
            self.count -= gone;
            self.text.copy_within(text_from..self.text_len, 0);
            self.text_len -= text_from;
            for record in self.records.iter_mut().take(self.count) {
                record.text_at -= text_from as u16;
            }
            self.first_acked = 0;
        }
        if let Some(first) = self.records().first().map(|first| first.at.wrapping_add(shift))
            && before(first.wrapping_add(self.first_acked.into()), ack)
        {
            // Invariant: less than the text's length, or the record would be gone.
            self.first_acked = ack.wrapping_sub(first) as u16;
        }
        shift
    }

    fn clear(&mut self) {
        (self.count, self.text_len, self.first_acked) = (0, 0, 0);
    }
}

/// All halves of a worker.
#[derive(Debug)]
pub struct Halves {
    lines: Box<[Half]>,
    free: Vec<u16>,
}

impl Halves {
    /// So many of them, at most 65,534; nothing is reserved later.
    #[must_use]
    pub fn new(count: u16) -> Self {
        let count = count.min(u16::MAX - 1);
        Self { lines: (0..count).map(|_| Half::NEW).collect(), free: (0..count).rev().collect() }
    }

    /// Bytes that so many take.
    #[must_use]
    pub const fn bytes_for(count: u16) -> usize {
        (count as usize) * (size_of::<Half>() + 2)
    }

    /// How many are in use.
    #[must_use]
    pub const fn used(&self) -> usize {
        self.lines.len() - self.free.len()
    }

    /// How many there are.
    #[must_use]
    pub const fn total(&self) -> usize {
        self.lines.len()
    }

    pub(super) fn take(&mut self) -> Option<u16> {
        let at = self.free.pop()?;
        self.lines.get_mut(usize::from(at))?.clear();
        Some(at)
    }

    pub(super) fn give_back(&mut self, at: u16) {
        if usize::from(at) < self.lines.len() {
            self.free.push(at);
        }
    }

    pub(super) fn get(&self, at: u16) -> Option<&Half> {
        self.lines.get(usize::from(at))
    }

    pub(super) fn get_mut(&mut self, at: u16) -> Option<&mut Half> {
        self.lines.get_mut(usize::from(at))
    }
}
