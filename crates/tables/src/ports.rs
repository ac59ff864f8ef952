//! The ports of one (pool address, protocol): which are used, and which were freed too recently to be given
//! again.

use core::ops::RangeInclusive;

use crate::arena::{Arena, ArenaArray, ArenaError};
use crate::prefetch_read;

const PORTS: usize = 65_536;
const WORDS: usize = PORTS / 64;
/// Words of a summary: a bit for each word of the bitmap.
const SUMMARY: usize = WORDS / 64;
const EVEN: u64 = 0x5555_5555_5555_5555;

/// Whether a port number has to be even or odd (RFC 4787 REQ-4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parity {
    /// Even port numbers only.
    Even,
    /// Odd port numbers only.
    Odd,
}

impl Parity {
    /// The parity of a port.
    pub const fn of(port: u16) -> Parity {
        if port.is_multiple_of(2) { Parity::Even } else { Parity::Odd }
    }

    const fn bits(self) -> u64 {
        match self {
            Parity::Even => EVEN,
            Parity::Odd => !EVEN,
        }
    }
}

/// All 65,536 ports of one pool address and protocol.
///
/// A port is free, used, or held: freed less than the hold time ago (RFC 6888 REQ-8). Held ports belong to
/// one of two generations that take turns every hold time, so a port is held for one to two hold times and no
/// port needs a clock of its own. A turn looks at all ports; maps of different phases have theirs in different seconds.
///
/// Allocation takes the first free port from a random place on, wrapping round in the range (RFC 6056, simple
/// port randomisation); the randomness is the caller's. Two summaries, for even and odd ports, skip
/// sixty-four full words a step, so a search in a nearly full range stays short.
#[derive(Debug)]
#[repr(align(64))]
pub struct PortMap {
    /// From [`BUSY`]: used or held, which is all that an allocation looks at. From [`FULL`]: a bit for each of these
    /// words without a free even (0) or odd (1) port. From [`HELD`]: two generations of held ports. One array, so that
    /// the map itself is one cache line.
    words: ArenaArray<u64>,
    held_count: [u32; 2],
    used_count: u32,
    hold_s: u32,
    /// Seconds by which the generations' turns come earlier than a multiple of the hold time.
    phase_s: u16,
    epoch: u32,
    /// Which generation takes the ports freed now.
    now: u8,
}

/// Where the used or held ports begin.
const BUSY: usize = 0;
/// Where each summary begins.
const FULL: [usize; 2] = [WORDS, WORDS + SUMMARY];
/// Where each generation of held ports begins.
const HELD: [usize; 2] = [WORDS + 2 * SUMMARY, 2 * WORDS + 2 * SUMMARY];
const ALL: usize = 3 * WORDS + 2 * SUMMARY;

const fn words_for(hold_s: u32) -> usize {
    if hold_s > 0 { ALL } else { HELD[0] }
}

/// Up to so many words (a block's, mostly) are looked through without asking a summary first.
const SHORT_WORDS: usize = 16;

const _: () = assert!(size_of::<PortMap>() == 64);

impl PortMap {
    /// Bytes a port map takes from its arena: a third when freed ports are not held.
    pub const fn bytes_for(hold_s: u32) -> usize {
        Arena::bytes_for::<u64>(words_for(hold_s))
    }

    /// Carves a port map with all ports free. With `hold_s` of 0 a freed port may be given again at once. `phase_s` is any
    /// number: maps in which it differs by less than the hold time never take their turns in the same second.
    pub fn new(arena: &mut Arena, hold_s: u32, phase_s: u16) -> Result<PortMap, ArenaError> {
        Ok(PortMap {
            words: arena.array(words_for(hold_s))?,
            held_count: [0; 2],
            used_count: 0,
            hold_s,
            phase_s,
            epoch: 0,
            now: 0,
        })
    }

    /// Holds freed ports for another time from now on. What is held already stays so for one to two hold times more; with
    /// 0 it is free at once. A map made with a hold time of 0 has no room for held ports, and stays as it is.
    pub fn set_hold_s(&mut self, hold_s: u32, now_s: u32) {
        if hold_s == self.hold_s || self.words.len() < ALL {
            return;
        }
        if hold_s == 0 {
            (0..2).for_each(|generation| self.release(generation));
        }
        self.hold_s = hold_s;
        self.epoch = self.epoch_at(now_s).unwrap_or(0);
    }

    /// The number of the generation of ports that are freed now; none without a hold time.
    #[inline(always)]
    fn epoch_at(&self, now_s: u32) -> Option<u32> {
        now_s.saturating_add(u32::from(self.phase_s)).checked_div(self.hold_s)
    }

    /// Fetches what [`PortMap::alloc_in`] of this range will look at first.
    #[inline(always)]
    pub fn prefetch_alloc(&self, range: &RangeInclusive<u16>, start_hint: u16) {
        if let Some((start, ..)) = starting_point(range, start_hint) {
            self.prefetch_word(BUSY + start / 64);
        }
    }

    /// Fetches what [`PortMap::free`] of this port will look at.
    #[inline(always)]
    pub fn prefetch_release(&self, port: u16) {
        let word = usize::from(port) / 64;
        self.prefetch_word(BUSY + word);
        if self.hold_s > 0 {
            HELD.iter().for_each(|start| self.prefetch_word(start + word));
        }
    }

    #[inline(always)]
    fn prefetch_word(&self, word: usize) {
        prefetch_read(self.words.as_ptr().wrapping_add(word));
    }

    #[inline(always)]
    fn busy(&self, word: usize) -> u64 {
        // Invariant: callers' words are below WORDS.
        self.words[BUSY + word]
    }

    #[inline(always)]
    fn held_bits(&self, generation: usize, word: usize) -> u64 {
        // Invariant: a generation is 0 or 1, and callers' words are below WORDS. Nothing held is not looked at.
        if self.held_count[generation] == 0 { 0 } else { self.words[HELD[generation] + word] }
    }

    #[inline(always)]
    fn full(&self, parity: usize, group: usize) -> u64 {
        // Invariant: a parity is 0 or 1, and callers' groups are below SUMMARY.
        self.words[FULL[parity] + group]
    }

    /// Takes a free port of the range, the first from a place that `start_hint` (uniformly random) chooses;
    /// `None` when no port of that parity is free.
    #[inline]
    pub fn alloc_in(
        &mut self,
        range: RangeInclusive<u16>,
        start_hint: u16,
        parity: Option<Parity>,
        now_s: u32,
    ) -> Option<u16> {
        self.rotate(now_s);
        let (start, lo, hi) = starting_point(&range, start_hint)?;
        let port = if hi / 64 - lo / 64 < SHORT_WORDS {
            self.first_free_near(start, lo, hi, parity)
        } else {
            // Mostly where the search begins, and that word was fetched; the summaries were not.
            let here = hi.min(start | 63);
            self.first_free_near(start, start, here, parity)
                .or_else(|| self.first_free(start, hi, parity))
                .or_else(|| self.first_free(lo, start, parity))
        }?;
        self.mark_used(port);
        Some(port)
    }

    /// Takes this port; `false` when it is used or held.
    pub fn alloc_exact(&mut self, port: u16, now_s: u32) -> bool {
        self.rotate(now_s);
        let free = !self.is_busy(port);
        if free {
            self.mark_used(port);
        }
        free
    }

    /// Takes two free ports that follow each other, both in the range, and returns the lower; with
    /// `even_first` the lower one is even, as RTP and RTCP want it (RFC 4787 REQ-4 and section 4.2.3).
    pub fn alloc_pair_contiguous(
        &mut self,
        range: RangeInclusive<u16>,
        even_first: bool,
        start_hint: u16,
        now_s: u32,
    ) -> Option<u16> {
        self.rotate(now_s);
        let last_first = range.end().checked_sub(1)?;
        let (start, lo, hi) = starting_point(&(*range.start()..=last_first), start_hint)?;
        let port =
            self.first_pair(start, hi, even_first).or_else(|| self.first_pair(lo, start, even_first))?;
        self.mark_used(port);
        // Invariant: the lower port is at most hi, which is below 65,535.
        self.mark_used(port + 1);
        Some(port)
    }

    /// Frees a used port, with `hold` only after the hold time; `false`, and nothing changed, when it was not
    /// used.
    ///
    /// RFC 6888 REQ-8 exempts some ports (tracked TCP, static ranges), for which the caller passes `false`.
    pub fn free(&mut self, port: u16, now_s: u32, hold: bool) -> bool {
        self.rotate(now_s);
        if !self.is_used(port) {
            return false;
        }
        self.used_count -= 1;
        let (word, mask) = place(port);
        if hold && self.hold_s > 0 {
            // Invariant: `now` is 0 or 1, and a word of a port is below WORDS.
            let now = usize::from(self.now);
            self.words[HELD[now] + word] |= mask;
            self.held_count[now] += 1;
        } else {
            self.set_busy(word, self.busy(word) & !mask);
        }
        true
    }

    /// Whether the port is used; a held one is not.
    pub fn is_used(&self, port: u16) -> bool {
        self.is_busy(port) && !self.is_held(port)
    }

    fn is_busy(&self, port: u16) -> bool {
        let (word, mask) = place(port);
        self.busy(word) & mask != 0
    }

    /// Whether the port was held back when the map was last changed.
    pub fn is_held(&self, port: u16) -> bool {
        let (word, mask) = place(port);
        (self.held_bits(0, word) | self.held_bits(1, word)) & mask != 0
    }

    /// Used ports of the range.
    pub fn used_in(&self, range: RangeInclusive<u16>) -> u32 {
        let (lo, hi) = (usize::from(*range.start()), usize::from(*range.end()));
        if lo > hi {
            return 0;
        }
        let mut count = 0;
        for word in lo / 64..=hi / 64 {
            let used = self.busy(word) & !self.held_bits(0, word) & !self.held_bits(1, word);
            count += (used & range_bits(word, lo, hi)).count_ones();
        }
        count
    }

    /// Used ports in all.
    pub fn used(&self) -> u32 {
        self.used_count
    }

    /// Ports held back when the map was last changed.
    pub fn held(&self) -> u32 {
        self.held_count[0] + self.held_count[1]
    }

    /// Ports held back now.
    pub fn held_at(&mut self, now_s: u32) -> u32 {
        self.rotate(now_s);
        self.held()
    }

    /// Lets go what was held long enough. Costs something once per hold time only.
    #[inline]
    fn rotate(&mut self, now_s: u32) {
        let Some(epoch) = self.epoch_at(now_s) else { return };
        if epoch > self.epoch {
            let turns = epoch - self.epoch;
            self.epoch = epoch;
            self.turn(turns);
        }
    }

    #[cold]
    fn turn(&mut self, turns: u32) {
        self.release(usize::from(self.now ^ 1));
        if turns >= 2 {
            self.release(usize::from(self.now));
        }
        self.now ^= 1;
    }

    /// Frees all ports of a held generation.
    fn release(&mut self, generation: usize) {
        // Invariant: a generation is 0 or 1.
        if core::mem::take(&mut self.held_count[generation]) == 0 {
            return;
        }
        for word in 0..WORDS {
            // Invariant: a generation is 0 or 1.
            let held = core::mem::take(&mut self.words[HELD[generation] + word]);
            if held != 0 {
                self.set_busy(word, self.busy(word) & !held);
            }
        }
    }

    #[inline(always)]
    fn mark_used(&mut self, port: u16) {
        let (word, mask) = place(port);
        self.set_busy(word, self.busy(word) | mask);
        self.used_count += 1;
    }

    /// Changes a word, and its summaries where it became full or is no longer, which is seldom.
    #[inline(always)]
    fn set_busy(&mut self, word: usize, busy: u64) {
        // Invariant: a word of a port is below WORDS, hence word / 64 < SUMMARY.
        let before = core::mem::replace(&mut self.words[BUSY + word], busy);
        let full = |busy: u64| [EVEN, !EVEN].map(|bits| !busy & bits == 0);
        if full(before) != full(busy) {
            self.summarise(word, full(before), full(busy));
        }
    }

    #[cold]
    fn summarise(&mut self, word: usize, before: [bool; 2], now: [bool; 2]) {
        for (start, changed) in FULL.into_iter().zip([before[0] != now[0], before[1] != now[1]]) {
            // Invariant: as in `set_busy`.
            self.words[start + word / 64] ^= u64::from(changed) << (word % 64);
        }
    }

    /// The first free port from `start` on, wrapping round between `lo` and `hi`, which are not far apart.
    #[inline(always)]
    fn first_free_near(&self, start: usize, lo: usize, hi: usize, parity: Option<Parity>) -> Option<u16> {
        let wanted = parity.map_or(u64::MAX, Parity::bits);
        let (first, last) = (lo / 64, hi / 64);
        let mut word = start / 64;
        let mut free = !self.busy(word) & wanted & range_bits(word, start, hi);
        // All words, and what of the first lies before the start.
        for _ in first..=last {
            if free != 0 {
                break;
            }
            word = if word == last { first } else { word + 1 };
            free = !self.busy(word) & wanted & range_bits(word, lo, hi);
        }
        (free != 0).then(|| (word * 64 + free.trailing_zeros() as usize) as u16)
    }

    /// The first free port from `lo` to `hi`.
    fn first_free(&self, lo: usize, hi: usize, parity: Option<Parity>) -> Option<u16> {
        let wanted = parity.map_or(u64::MAX, Parity::bits);
        let full = |i: usize| match parity {
            Some(Parity::Even) => self.full(0, i),
            Some(Parity::Odd) => self.full(1, i),
            None => self.full(0, i) & self.full(1, i),
        };
        first_in_words(lo, hi, full, |word| !self.busy(word) & wanted & range_bits(word, lo, hi))
    }

    /// The first port from `lo` to `hi` that is free and followed by a free one.
    fn first_pair(&self, lo: usize, hi: usize, even_first: bool) -> Option<u16> {
        let wanted = if even_first { EVEN } else { u64::MAX };
        // A word without a free even port can still hold the odd half of a pair when the parity does not
        // matter.
        let full = |i: usize| {
            if even_first { self.full(0, i) | self.full(1, i) } else { self.full(0, i) & self.full(1, i) }
        };
        first_in_words(lo, hi, full, |word| {
            let free = !self.busy(word);
            let next = if word + 1 < WORDS { !self.busy(word + 1) } else { 0 };
            free & (free >> 1 | next << 63) & wanted & range_bits(word, lo, hi)
        })
    }
}

/// The first set bit of the words from `lo`'s to `hi`'s, those skipped that `full` has a bit for.
#[inline(always)]
fn first_in_words(
    lo: usize,
    hi: usize,
    full: impl Fn(usize) -> u64,
    candidates: impl Fn(usize) -> u64,
) -> Option<u16> {
    if lo > hi {
        return None;
    }
    let (first, last) = (lo / 64, hi / 64);
    for group in first / 64..=last / 64 {
        let mut open = !full(group) & range_bits(group, first, last);
        while open != 0 {
            let word = group * 64 + open.trailing_zeros() as usize;
            let found = candidates(word);
            if found != 0 {
                return Some((word * 64 + found.trailing_zeros() as usize) as u16);
            }
            open &= open - 1;
        }
    }
    None
}

/// Where a search starts, and the range's ends; `None` for an empty range.
fn starting_point(range: &RangeInclusive<u16>, hint: u16) -> Option<(usize, usize, usize)> {
    let (lo, hi) = (usize::from(*range.start()), usize::from(*range.end()));
    if lo > hi {
        return None;
    }
    Some((lo + ((usize::from(hint) * (hi - lo + 1)) >> 16), lo, hi))
}

/// The bits of a word that stand for `lo` to `hi`, given that the word holds some of them.
#[inline(always)]
fn range_bits(word: usize, lo: usize, hi: usize) -> u64 {
    let from = if word == lo / 64 { u64::MAX << (lo % 64) } else { u64::MAX };
    let to = if word == hi / 64 { u64::MAX >> (63 - hi % 64) } else { u64::MAX };
    from & to
}

#[inline(always)]
fn place(port: u16) -> (usize, u64) {
    (usize::from(port / 64), 1 << (port % 64))
}

#[cfg(test)]
mod tests;
