//! Lines of one type in a fixed array, named by `u32` ids.

use crate::arena::{Arena, ArenaArray, ArenaError};
use crate::prefetch_read;

/// So many lines before its turn a line is fetched for [`Slab::alloc`].
const AHEAD: u32 = 8;

/// 64 to the sixth is more than `u32::MAX`.
const LEVELS_MAX: usize = 6;

/// A fixed number of lines of type `T`, each either live or free.
///
/// Ids run from 0 to `capacity - 1`. Allocation reuses the neighbourhood of the line freed last, which is
/// likely still cached, and otherwise the lowest free id, which keeps the live lines together at the start.
/// The only overhead is the occupancy bitmap and its summaries: 0.127 bytes a line.
///
/// All lines hold a `T` at all times (`T::default()` at first, the last value after [`Slab::free`]), which is
/// why [`Slab::get`] needs no look at the bitmap.
#[derive(Debug)]
pub struct Slab<T> {
    lines: ArenaArray<T>,
    live: Occupancy,
}

impl<T: Copy + Default> Slab<T> {
    /// Bytes a slab of `capacity` lines takes from its arena.
    pub const fn bytes_for(capacity: usize) -> usize {
        Arena::bytes_for::<T>(capacity).saturating_add(Occupancy::bytes_for(capacity))
    }

    /// Carves a slab of `capacity` lines (at most `u32::MAX`, so that `u32::MAX` is never an id).
    pub fn new(arena: &mut Arena, capacity: usize) -> Result<Slab<T>, ArenaError> {
        let capacity = capacity.min(u32::MAX as usize);
        Ok(Slab { lines: arena.array_default(capacity)?, live: Occupancy::new(arena, capacity)? })
    }

    /// Makes a line live with this value; `None` when all are.
    #[inline(always)]
    pub fn alloc(&mut self, value: T) -> Option<u32> {
        let id = self.live.take()?;
        // Most of the next lines follow this one.
        self.prefetch(id.saturating_add(AHEAD));
        // Invariant: `take` gives ids below the capacity only.
        self.lines[id as usize] = value;
        Some(id)
    }

    /// Makes a live line free; `false`, and nothing changed, when it was not live.
    #[inline]
    pub fn free(&mut self, id: u32) -> bool {
        self.live.give_back(id)
    }

    /// The line, live or not; `None` when `id` is out of range. Liveness is the caller's business (see
    /// [`Slab::is_live`]).
    #[inline(always)]
    pub fn get(&self, id: u32) -> Option<&T> {
        self.lines.get(id as usize)
    }

    /// As [`Slab::get`], to change it.
    #[inline(always)]
    pub fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        self.lines.get_mut(id as usize)
    }

    /// All lines, live or not, by id: for loops that go through many of them.
    #[inline(always)]
    pub fn lines_mut(&mut self) -> &mut [T] {
        &mut self.lines
    }

    /// Whether the line is live.
    #[inline]
    pub fn is_live(&self, id: u32) -> bool {
        self.live.is_set(id)
    }

    /// Fetches the line's first cache line; does nothing when `id` is out of range (`u32::MAX`, say, for
    /// none).
    #[inline(always)]
    pub fn prefetch(&self, id: u32) {
        // A prefetch of an address that is not mapped does not fault, but walks the page tables each time.
        if let Some(line) = self.lines.get(id as usize) {
            prefetch_read(line);
        }
    }

    /// Live lines with ids from `cursor` on, in order of id. To go on later, start from the last id plus one.
    pub fn iter_from(&self, cursor: u32) -> impl Iterator<Item = (u32, &T)> {
        let mut next = cursor;
        core::iter::from_fn(move || {
            let id = self.live.next_set(next)?;
            next = id + 1;
            self.get(id).map(|line| (id, line))
        })
    }

    /// Live lines.
    pub fn len(&self) -> usize {
        self.live.len
    }

    /// Whether no line is live.
    pub fn is_empty(&self) -> bool {
        self.live.len == 0
    }

    /// Lines in all.
    pub fn capacity(&self) -> usize {
        self.live.capacity
    }

    /// Bytes taken from the arena.
    pub fn bytes(&self) -> usize {
        Self::bytes_for(self.live.capacity)
    }
}

/// A bitmap with a tree of summaries: a bit of level k + 1 says that the word of level k is all ones.
#[derive(Debug)]
struct Occupancy {
    words: ArenaArray<u64>,
    /// Where each level's words start; unused levels repeat the last one.
    starts: [usize; LEVELS_MAX],
    levels: usize,
    /// The word of level 0 to try first.
    hint: usize,
    len: usize,
    capacity: usize,
}

impl Occupancy {
    const fn bytes_for(capacity: usize) -> usize {
        let (_, _, words) = Self::layout(capacity);
        Arena::bytes_for::<u64>(words)
    }

    /// Starts of the levels, number of levels, words in all.
    const fn layout(capacity: usize) -> ([usize; LEVELS_MAX], usize, usize) {
        let mut starts = [0; LEVELS_MAX];
        let (mut levels, mut words) = (0, 0);
        let mut bits = capacity;
        loop {
            starts[levels] = words;
            levels += 1;
            let level_words = if bits == 0 { 1 } else { bits.div_ceil(64) };
            words += level_words;
            if level_words == 1 {
                return (starts, levels, words);
            }
            bits = level_words;
        }
    }

    fn new(arena: &mut Arena, capacity: usize) -> Result<Occupancy, ArenaError> {
        let (starts, levels, total) = Self::layout(capacity);
        let mut words = arena.array::<u64>(total)?;
        // Bits that stand for nothing are ones, so that no search ever stops at them.
        let mut bits = capacity;
        for start in &starts[..levels] {
            let level_words = bits.div_ceil(64).max(1);
            if bits < level_words * 64 {
                words[start + level_words - 1] = u64::MAX << (bits - (level_words - 1) * 64);
            }
            bits = level_words;
        }
        Ok(Occupancy { words, starts, levels, hint: 0, len: 0, capacity })
    }

    #[inline(always)]
    fn take(&mut self) -> Option<u32> {
        // Invariant: `hint` is a word of level 0, and level 0 starts at 0 and has at least one word.
        let mut word = self.hint;
        if self.words[word] == u64::MAX {
            word = self.word_with_room()?;
            self.hint = word;
        }
        let bit = self.words[word].trailing_ones() as usize;
        self.words[word] |= 1 << bit;
        self.len += 1;
        if self.words[word] == u64::MAX {
            self.mark_full(word);
        }
        Some((word * 64 + bit) as u32)
    }

    /// Walks down from the top to the lowest word of level 0 that has a zero.
    #[cold]
    fn word_with_room(&self) -> Option<usize> {
        let mut index = 0;
        for level in (0..self.levels).rev() {
            // Invariant: `index` is a word of this level, for its bit above was zero and bits beyond the
            // level are ones.
            let word = self.words[self.starts[level] + index];
            if word == u64::MAX {
                return None;
            }
            if level > 0 {
                index = index * 64 + word.trailing_ones() as usize;
            }
        }
        Some(index)
    }

    #[cold]
    fn mark_full(&mut self, mut index: usize) {
        for level in 1..self.levels {
            // Invariant: a word of a level has its bit in the level above.
            let word = &mut self.words[self.starts[level] + index / 64];
            *word |= 1 << (index % 64);
            if *word != u64::MAX {
                return;
            }
            index /= 64;
        }
    }

    #[inline]
    fn give_back(&mut self, id: u32) -> bool {
        if !self.is_set(id) {
            return false;
        }
        let mut index = id as usize;
        self.hint = index / 64;
        self.len -= 1;
        for level in 0..self.levels {
            // Invariant: `is_set` found the id in range, and a word of a level has its bit in the level
            // above.
            let word = &mut self.words[self.starts[level] + index / 64];
            let was_full = *word == u64::MAX;
            *word &= !(1 << (index % 64));
            if !was_full {
                break;
            }
            index /= 64;
        }
        true
    }

    #[inline]
    fn is_set(&self, id: u32) -> bool {
        // Invariant: an id below the capacity has its word in level 0.
        (id as usize) < self.capacity && self.words[id as usize / 64] >> (id % 64) & 1 == 1
    }

    /// The first set id from `from` on.
    fn next_set(&self, from: u32) -> Option<u32> {
        let from = from as usize;
        let first = from / 64;
        let words = self.words.get(first..self.capacity.div_ceil(64))?;
        let mut keep = u64::MAX << (from % 64);
        for (i, word) in words.iter().enumerate() {
            let word = word & keep;
            keep = u64::MAX;
            if word != 0 {
                let id = (first + i) * 64 + word.trailing_zeros() as usize;
                return (id < self.capacity).then_some(id as u32);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
