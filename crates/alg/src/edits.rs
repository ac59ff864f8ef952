//! What to write instead of parts of a message.

use core::ops::Range;

/// Changes to one message, at most.
pub const EDITS_MAX: usize = 32;
/// Bytes of the new text of all changes to one message, at most.
pub const EDIT_TEXT_MAX: usize = 1_024;

#[derive(Debug, Clone, Copy, Default)]
struct Edit {
    start: u32,
    end: u32,
    text_end: u16,
}

/// Changes to one message, in the order of their places.
#[derive(Debug)]
pub struct Edits {
    list: [Edit; EDITS_MAX],
    count: usize,
    /// There was no room for one of them.
    overfull: bool,
    text: [u8; EDIT_TEXT_MAX],
}

impl Default for Edits {
    fn default() -> Self {
        Self { list: [Edit::default(); EDITS_MAX], count: 0, overfull: false, text: [0; EDIT_TEXT_MAX] }
    }
}

impl Edits {
    /// Writes `text` instead of the bytes in `range`, which lies behind all earlier ones; neither may be empty. False,
    /// and nothing is changed, when that does not hold or there is no room (see [`Edits::is_overfull`]).
    pub fn replace(&mut self, range: Range<usize>, text: &[u8]) -> bool {
        let (after, used) =
            self.list.get(self.count.wrapping_sub(1)).map_or((0, 0), |last| (last.end, last.text_end));
        let (Ok(start), Ok(end)) = (u32::try_from(range.start), u32::try_from(range.end)) else {
            return false;
        };
        let used = usize::from(used);
        let room = self.text.get_mut(used..used + text.len());
        let (Some(edit), Some(room)) = (self.list.get_mut(self.count), room) else {
            self.overfull = true;
            return false;
        };
        if start < after || start >= end || text.is_empty() {
            return false;
        }
        room.copy_from_slice(text);
        *edit = Edit { start, end, text_end: (used + text.len()) as u16 };
        self.count += 1;
        true
    }

    /// Puts those of a later part of the message behind these.
    pub fn append(&mut self, others: &Self) {
        self.overfull |= others.overfull;
        for (place, text) in others.iter() {
            self.replace(place, text);
        }
    }

    /// Was there no room for a change? A message is changed as a whole or not at all.
    #[must_use]
    pub const fn is_overfull(&self) -> bool {
        self.overfull
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        (self.count, self.overfull) = (0, false);
    }

    /// Nothing to change?
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The changes, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Range<usize>, &[u8])> {
        let list = self.list.get(..self.count).unwrap_or(&[]);
        let starts = core::iter::once(0).chain(list.iter().map(|edit| usize::from(edit.text_end)));
        list.iter().zip(starts).map(|(edit, from)| {
            let text = self.text.get(from..usize::from(edit.text_end)).unwrap_or(&[]);
            (edit.start as usize..edit.end as usize, text)
        })
    }

    /// Length of a text of so many bytes with the changes made.
    pub fn length_of(&self, len: usize) -> usize {
        let growth: isize = self.iter().map(|(place, text)| text.len() as isize - place.len() as isize).sum();
        len.saturating_add_signed(growth)
    }

    /// A datagram with the changes made, written to `out`; `None` when it does not fit.
    pub fn apply(&self, message: &[u8], out: &mut [u8]) -> Option<usize> {
        let (mut from, mut to) = (0, 0);
        let mut put = |bytes: &[u8]| {
            out.get_mut(to..to + bytes.len())?.copy_from_slice(bytes);
            to += bytes.len();
            Some(())
        };
        for (range, text) in self.iter() {
            put(message.get(from..range.start)?)?;
            put(text)?;
            from = range.end;
        }
        put(message.get(from..)?)?;
        Some(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_made_in_order_and_the_rest_stays() {
        let mut edits = Edits::default();
        assert!(edits.replace(2..4, b"XYZ") && edits.replace(4..5, b"-"));
        let mut out = [0; 16];
        let len = edits.apply(b"abcdefg", &mut out).unwrap();
        assert_eq!(&out[..len], b"abXYZ-fg");
        assert_eq!(edits.length_of(7), len);
    }

    #[test]
    fn overlaps_emptiness_and_overflow_are_refused() {
        let mut edits = Edits::default();
        assert!(edits.replace(2..4, b"X"));
        assert!(!edits.replace(3..5, b"Y") && !edits.replace(5..5, b"Y") && !edits.replace(5..6, b""));
        assert!(!edits.is_overfull());
        assert!(!edits.replace(5..6, &[b'a'; EDIT_TEXT_MAX]) && edits.is_overfull());
        assert_eq!(edits.iter().count(), 1);
        assert!(edits.apply(b"abcdef", &mut [0; 4]).is_none());
    }
}
