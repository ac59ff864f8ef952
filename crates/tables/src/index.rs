//! The bounded hash index: hash → line number.
//!
//! A bucket is one cache line of ten entries. An entry lives in its primary bucket or, when that is full, in
//! its alternate one. Keys are not stored: a tag of 15 bits finds candidates, the caller verifies them
//! against the line, and a tag alone leads from either bucket to the other, so that entries can be moved
//! without their keys.
//!
//! The number of buckets may be any, because rounding a table of gigabytes up to a power of two can double
//! it. The primary bucket is the hash's upper half scaled to the number of buckets (one multiplication and a
//! shift instead of a mask, about two cycles more); the alternate is the reflection `mirror(tag) - bucket`
//! modulo the number of buckets, its own inverse.

use core::fmt;

use crate::arena::{Arena, ArenaArray, ArenaError, Plain};
use crate::prefetch_read;

/// Entries in a bucket.
const SLOTS: usize = 10;
/// The bit of a stored tag that says: this entry lives in its alternate bucket.
const AWAY: u16 = 1;
/// Buckets that one insertion looks into at most.
const EXAMINED_MAX: usize = 64;

/// No room was found within the bounded search; nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexFull;

impl fmt::Display for IndexFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the index has no room for this entry; raise the configured number of sessions")
    }
}

impl std::error::Error for IndexFull {}

/// What a walk over the whole index finds; for `show` commands, not for the packet path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexStats {
    /// Entries in their primary bucket.
    pub at_home: usize,
    /// Entries in their alternate bucket.
    pub away: usize,
    /// Buckets without a free slot.
    pub full_buckets: usize,
    /// Buckets that a lookup of an absent key has to go beyond.
    pub overflowing_buckets: usize,
}

/// One cache line: ten entries and the number of entries that belong here but live elsewhere.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Bucket {
    /// Zero is an empty slot.
    tags: [u16; SLOTS],
    /// Entries whose primary bucket this is and that live in their alternate one.
    overflow: u16,
    _spare: u16,
    lines: [u32; SLOTS],
}

const _: () = assert!(size_of::<Bucket>() == 64 && align_of::<Bucket>() == 64);
const _: () = assert!(core::mem::offset_of!(Bucket, tags) == 0 && core::mem::offset_of!(Bucket, lines) == 24);

// SAFETY: a zeroed bucket is an empty one: integers only.
unsafe impl Plain for Bucket {}

/// A bounded multimap from 64-bit hashes to `u32` line numbers.
///
/// The hash must come from a keyed function (see [`crate::KeyedHasher`]): the index takes the bucket from its
/// upper and the tag from its lower half. A lookup reads one or two cache lines; an absent key costs one as
/// long as its primary bucket has no entry elsewhere.
#[derive(Debug)]
pub struct Index {
    buckets: ArenaArray<Bucket>,
    len: usize,
    capacity: usize,
}

impl Index {
    /// Bytes an index for `entries` takes from its arena.
    pub const fn bytes_for(entries: usize) -> usize {
        Arena::bytes_for::<Bucket>(buckets_for(entries))
    }

    /// Carves an index that holds `entries` at a load of at most 0.8.
    pub fn new(arena: &mut Arena, entries: usize) -> Result<Index, ArenaError> {
        let buckets = arena.array::<Bucket>(buckets_for(entries))?;
        Ok(Index { buckets, len: 0, capacity: entries })
    }

    /// The index for reading only, as one value that loops can keep in registers.
    #[inline(always)]
    pub fn view(&self) -> IndexView<'_> {
        IndexView { buckets: &self.buckets }
    }

    /// Fetches the primary bucket.
    #[inline(always)]
    pub fn prefetch(&self, hash: u64) {
        self.view().prefetch(hash);
    }

    /// Where the primary bucket, which is here already, has no room for another entry, fetches what will be looked at for
    /// some.
    #[inline(always)]
    pub fn prefetch_room(&self, hash: u64) {
        let home = self.primary(hash);
        if self.bucket(home).matches(0) == 0 {
            self.prefetch_elsewhere(home, hash);
        }
    }

    #[cold]
    #[inline(never)]
    fn prefetch_elsewhere(&self, home: usize, hash: u64) {
        prefetch_read(self.bucket(self.other(home, tag_of(hash))));
        self.view().prefetch_others(home, |tag| tag & AWAY != 0);
    }

    /// Fetches the primary bucket of each hash.
    #[inline]
    pub fn prefetch_many(&self, hashes: &[u64]) {
        for hash in hashes {
            self.prefetch(*hash);
        }
    }

    /// The line most likely to be the hash's, by its tag alone: to prefetch it, not to trust it.
    #[inline(always)]
    pub fn candidate(&self, hash: u64) -> Option<u32> {
        self.view().candidate(hash)
    }

    /// The first line with the hash's tag that `verify` accepts. `verify` is called at most 20 times, on
    /// average little more than once for a present key and almost never for an absent one.
    #[inline]
    pub fn find(&self, hash: u64, mut verify: impl FnMut(u32) -> bool) -> Option<u32> {
        let tag = tag_of(hash);
        let home = self.primary(hash);
        let bucket = self.bucket(home);
        let mut matches = bucket.matches(tag);
        while matches != 0 {
            let line = bucket.line(matches.trailing_zeros());
            if verify(line) {
                return Some(line);
            }
            matches &= matches - 1;
        }
        if bucket.overflow == 0 {
            return None;
        }
        let bucket = self.bucket(self.other(home, tag));
        let mut matches = bucket.matches(tag | AWAY);
        while matches != 0 {
            let line = bucket.line(matches.trailing_zeros());
            if verify(line) {
                return Some(line);
            }
            matches &= matches - 1;
        }
        None
    }

    /// Adds an entry. The caller sees to it that the key is not there yet; an equal pair would be stored
    /// twice. Looks into at most 64 buckets, its own two included.
    #[inline(always)]
    pub fn insert(&mut self, hash: u64, line: u32) -> Result<(), IndexFull> {
        let tag = tag_of(hash);
        let home = self.primary(hash);
        let room = self.bucket(home).matches(0);
        if room != 0 {
            self.bucket_mut(home).put(room.trailing_zeros(), tag, line);
            self.len += 1;
            return Ok(());
        }
        self.insert_crowded(home, tag, line)
    }

    /// Removes the entry with this hash and line; `false` when there is none.
    #[inline]
    pub fn remove(&mut self, hash: u64, line: u32) -> bool {
        let tag = tag_of(hash);
        let home = self.primary(hash);
        let bucket = self.bucket_mut(home);
        if bucket.clear(tag, line) {
            self.len -= 1;
            return true;
        }
        if bucket.overflow == 0 {
            return false;
        }
        let away = self.other(home, tag);
        if !self.bucket_mut(away).clear(tag | AWAY, line) {
            return false;
        }
        // Saturation cannot happen: this entry was counted. It only keeps the arithmetic total.
        let bucket = self.bucket_mut(home);
        bucket.overflow = bucket.overflow.saturating_sub(1);
        self.len -= 1;
        true
    }

    /// Moves the entry to its primary bucket if it is away and there is room by now; says whether it did.
    /// Worth a call when the entry's owner handles it anyway (at a deadline, say): the next lookups then
    /// touch one bucket.
    #[inline]
    pub fn settle(&mut self, hash: u64, line: u32) -> bool {
        let tag = tag_of(hash);
        let home = self.primary(hash);
        let bucket = self.bucket(home);
        let room = bucket.matches(0);
        if bucket.overflow == 0 || room == 0 {
            return false;
        }
        let away = self.other(home, tag);
        let Some(slot) = self.bucket(away).slot_of(tag | AWAY, line) else { return false };
        self.move_entry(away, slot, home, room.trailing_zeros());
        true
    }

    /// Entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Entries it was made for. More may fit (ten for each bucket at the utmost), but are not promised.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Slots in all buckets.
    pub fn slots(&self) -> usize {
        self.buckets.len() * SLOTS
    }

    /// Share of the slots in use, 0 to 1.
    pub fn load(&self) -> f64 {
        self.len as f64 / self.slots() as f64
    }

    /// Bytes taken from the arena.
    pub fn bytes(&self) -> usize {
        Arena::bytes_for::<Bucket>(self.buckets.len())
    }

    /// Walks all buckets and counts.
    pub fn stats(&self) -> IndexStats {
        let mut stats = IndexStats::default();
        for bucket in self.buckets.iter() {
            for tag in bucket.tags {
                stats.at_home += usize::from(tag != 0 && tag & AWAY == 0);
                stats.away += usize::from(tag & AWAY != 0);
            }
            stats.full_buckets += usize::from(bucket.matches(0) == 0);
            stats.overflowing_buckets += usize::from(bucket.overflow != 0);
        }
        stats
    }

    #[inline(always)]
    fn primary(&self, hash: u64) -> usize {
        self.view().primary(hash)
    }

    #[inline(always)]
    fn other(&self, bucket: usize, tag: u16) -> usize {
        self.view().other(bucket, tag)
    }

    #[inline(always)]
    fn bucket(&self, index: usize) -> &Bucket {
        self.view().bucket(index)
    }

    #[inline(always)]
    fn bucket_mut(&mut self, index: usize) -> &mut Bucket {
        debug_assert!(index < self.buckets.len());
        // SAFETY: as in `bucket`.
        unsafe { self.buckets.get_unchecked_mut(index) }
    }

    /// Inserts where the primary bucket is full.
    #[cold]
    #[inline(never)]
    fn insert_crowded(&mut self, home: usize, tag: u16, line: u32) -> Result<(), IndexFull> {
        if let Some(slot) = self.send_guest_home(home) {
            self.bucket_mut(home).put(slot, tag, line);
            self.len += 1;
            return Ok(());
        }
        let away = self.other(home, tag);
        let may_go_away = self.bucket(home).overflow < u16::MAX;
        let room = self.bucket(away).matches(0);
        let (bucket, slot) = if room != 0 && may_go_away {
            (away, room.trailing_zeros())
        } else {
            self.make_room(home, may_go_away.then_some(away)).ok_or(IndexFull)?
        };
        if bucket == home {
            self.bucket_mut(home).put(slot, tag, line);
        } else {
            self.bucket_mut(bucket).put(slot, tag | AWAY, line);
            self.bucket_mut(home).overflow += 1;
        }
        self.len += 1;
        Ok(())
    }

    /// Frees a slot of a full bucket by moving an entry that is away there to its primary bucket, if one of
    /// these has room again. Without this, entries that once had to go away stay so, and under churn at high
    /// load most buckets end up with entries elsewhere.
    fn send_guest_home(&mut self, bucket: usize) -> Option<u32> {
        self.view().prefetch_others(bucket, |tag| tag & AWAY != 0);
        for slot in 0..SLOTS {
            // Invariant: slot < SLOTS.
            let tag = self.bucket(bucket).tags[slot];
            if tag & AWAY != 0 {
                let to = self.other(bucket, tag);
                let room = self.bucket(to).matches(0);
                if room != 0 {
                    self.move_entry(bucket, slot, to, room.trailing_zeros());
                    return Some(slot as u32);
                }
            }
        }
        None
    }

    /// Frees a slot in one of two full buckets by moving entries to their other buckets along the shortest
    /// chain there is (breadth first, each bucket once, so that no slot is moved twice).
    fn make_room(&mut self, home: usize, away: Option<usize>) -> Option<(usize, u32)> {
        let mut steps = Steps::default();
        steps.push(home, 0, 0);
        if let Some(away) = away.filter(|away| *away != home) {
            steps.push(away, 0, 0);
        }
        let roots = steps.len;
        let mut head = 0;
        while head < steps.len {
            let from = steps.bucket(head);
            self.view().prefetch_others(from, |_| true);
            for slot in 0..SLOTS {
                // Invariant: slot < SLOTS.
                let tag = self.bucket(from).tags[slot];
                let to = self.other(from, tag);
                if tag & AWAY == 0 && self.bucket(from).overflow == u16::MAX || steps.contains(to) {
                    continue;
                }
                let room = self.bucket(to).matches(0);
                if room != 0 {
                    return Some(self.shift_chain(&steps, roots, head, slot, to, room.trailing_zeros()));
                }
                if !steps.push(to, head, slot) {
                    return None;
                }
            }
            head += 1;
        }
        None
    }

    /// Moves the entry at (`step`, `slot`) to the free slot, then the one before it in the chain to the slot
    /// so freed, and so on; returns the slot freed in a root bucket.
    fn shift_chain(
        &mut self,
        steps: &Steps,
        roots: usize,
        mut step: usize,
        mut slot: usize,
        to: usize,
        free: u32,
    ) -> (usize, u32) {
        let (mut to, mut free) = (to, free);
        loop {
            let from = steps.bucket(step);
            self.move_entry(from, slot, to, free);
            (to, free) = (from, slot as u32);
            if step < roots {
                return (to, free);
            }
            (step, slot) = steps.parent(step);
        }
    }

    fn move_entry(&mut self, from: usize, slot: usize, to: usize, free: u32) {
        let bucket = self.bucket_mut(from);
        // Invariant: slot < SLOTS, for it comes from the search loop.
        let (tag, line) = (bucket.tags[slot], bucket.lines[slot]);
        bucket.tags[slot] = 0;
        self.bucket_mut(to).put(free, tag ^ AWAY, line);
        // The counter is in the entry's primary bucket, whichever of the two that is. Neither sum leaves its
        // range: the search skips entries whose counter is full, and an entry that is away was counted.
        if tag & AWAY == 0 {
            let bucket = self.bucket_mut(from);
            bucket.overflow = bucket.overflow.saturating_add(1);
        } else {
            let bucket = self.bucket_mut(to);
            bucket.overflow = bucket.overflow.saturating_sub(1);
        }
    }
}

/// What a primary bucket tells of a hash, by tags alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Likely {
    /// This line has the hash's tag.
    Line(u32),
    /// None has, but entries that belong here live elsewhere.
    Away,
    /// It is not in the index.
    Absent,
}

/// An [`Index`] for reading only: where its buckets are, and how many.
#[derive(Clone, Copy, Debug)]
pub struct IndexView<'a> {
    buckets: &'a [Bucket],
}

impl<'a> IndexView<'a> {
    /// Fetches the primary bucket.
    #[inline(always)]
    pub fn prefetch(&self, hash: u64) {
        prefetch_read(self.buckets.as_ptr().wrapping_add(self.primary(hash)));
    }

    /// As [`Index::candidate`].
    #[inline(always)]
    pub fn candidate(&self, hash: u64) -> Option<u32> {
        match self.likely(hash) {
            Likely::Line(line) => Some(line),
            Likely::Away => self.likely_away(hash),
            Likely::Absent => None,
        }
    }

    /// The line most likely to be the hash's, as far as its primary bucket tells. When the entry may live in its
    /// other bucket, that one is fetched: do something else before [`IndexView::likely_away`].
    #[inline(always)]
    pub fn likely(&self, hash: u64) -> Likely {
        let tag = tag_of(hash);
        let home = self.primary(hash);
        let bucket = self.bucket(home);
        let matches = bucket.matches(tag);
        if matches != 0 {
            return Likely::Line(bucket.line(matches.trailing_zeros()));
        }
        if bucket.overflow == 0 {
            return Likely::Absent;
        }
        prefetch_read(self.bucket(self.other(home, tag)));
        Likely::Away
    }

    /// The line most likely to be the hash's in its other bucket.
    #[inline]
    pub fn likely_away(&self, hash: u64) -> Option<u32> {
        let tag = tag_of(hash);
        let bucket = self.bucket(self.other(self.primary(hash), tag));
        let matches = bucket.matches(tag | AWAY);
        (matches != 0).then(|| bucket.line(matches.trailing_zeros()))
    }

    /// The primary bucket: the upper half of the hash scaled to the number of buckets.
    #[inline(always)]
    fn primary(&self, hash: u64) -> usize {
        (((hash >> 32) * self.buckets.len() as u64) >> 32) as usize
    }

    /// The other bucket of an entry that lives in `bucket`; its own inverse. The `AWAY` bit of the tag does
    /// not matter.
    #[inline(always)]
    fn other(&self, bucket: usize, tag: u16) -> usize {
        let count = self.buckets.len();
        // Spreads the fifteen bits of the tag over 32; the multiplier is the golden ratio's.
        let spread = u32::from(tag >> 1).wrapping_mul(0x9e37_79b1);
        let mirror = ((u64::from(spread) * count as u64) >> 32) as usize;
        if mirror >= bucket { mirror - bucket } else { mirror + count - bucket }
    }

    /// Fetches the other buckets of these entries of a bucket, all at a time, before one after the other is looked at.
    #[inline]
    fn prefetch_others(&self, bucket: usize, of: impl Fn(u16) -> bool) {
        for tag in self.bucket(bucket).tags.into_iter().filter(|tag| of(*tag)) {
            prefetch_read(self.bucket(self.other(bucket, tag)));
        }
    }

    #[inline(always)]
    fn bucket(&self, index: usize) -> &'a Bucket {
        debug_assert!(index < self.buckets.len());
        // From `primary`, x · n / 2³² < n for x < 2³²; from `other`, mirror and bucket are below n, hence so is their
        // difference modulo n.
        // SAFETY: every index comes from one of these, below the number of buckets.
        unsafe { self.buckets.get_unchecked(index) }
    }
}

impl Bucket {
    /// A bit for each slot whose tag is this one.
    #[inline(always)]
    fn matches(&self, tag: u16) -> u32 {
        #[cfg(target_arch = "x86_64")]
        {
            self.matches_sse2(tag)
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            self.matches_portable(tag)
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn matches_sse2(&self, tag: u16) -> u32 {
        use core::arch::x86_64::{
            _mm_cmpeq_epi16, _mm_load_si128, _mm_movemask_epi8, _mm_packs_epi16, _mm_set1_epi16,
        };
        // The first load holds tags 0 to 7, the second tags 8 and 9 and then other fields, whose bits the mask removes.
        // SAFETY: SSE2 is part of x86-64. Both loads are 16-byte aligned and within the bucket's 64 bytes.
        let bits = unsafe {
            let wanted = _mm_set1_epi16(tag as i16);
            let words: *const core::arch::x86_64::__m128i = core::ptr::from_ref(self).cast();
            let low = _mm_cmpeq_epi16(_mm_load_si128(words), wanted);
            let high = _mm_cmpeq_epi16(_mm_load_si128(words.add(1)), wanted);
            _mm_movemask_epi8(_mm_packs_epi16(low, high))
        };
        bits as u32 & ((1 << SLOTS) - 1)
    }

    #[cfg_attr(target_arch = "x86_64", allow(dead_code))]
    #[inline(always)]
    fn matches_portable(&self, tag: u16) -> u32 {
        let mut bits = 0;
        for (slot, stored) in self.tags.iter().enumerate() {
            bits |= u32::from(*stored == tag) << slot;
        }
        bits
    }

    #[inline(always)]
    fn line(&self, slot: u32) -> u32 {
        debug_assert!((slot as usize) < SLOTS);
        // SAFETY: slots come from a non-zero mask of SLOTS bits.
        unsafe { *self.lines.get_unchecked(slot as usize) }
    }

    #[inline(always)]
    fn put(&mut self, slot: u32, tag: u16, line: u32) {
        // Invariant: slots come from a non-zero mask of SLOTS bits or from the search loop.
        self.tags[slot as usize] = tag;
        self.lines[slot as usize] = line;
    }

    /// The slot with this tag and line.
    #[inline(always)]
    fn slot_of(&self, tag: u16, line: u32) -> Option<usize> {
        let mut matches = self.matches(tag);
        while matches != 0 {
            let slot = matches.trailing_zeros();
            if self.line(slot) == line {
                return Some(slot as usize);
            }
            matches &= matches - 1;
        }
        None
    }

    /// Empties the slot with this tag and line.
    #[inline(always)]
    fn clear(&mut self, tag: u16, line: u32) -> bool {
        let slot = self.slot_of(tag, line);
        if let Some(slot) = slot {
            // Invariant: `slot_of` gives slots below SLOTS.
            self.tags[slot] = 0;
        }
        slot.is_some()
    }
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bucket({:x?} +{})", self.tags, self.overflow)
    }
}

/// The buckets a search has come to, with the way to each.
struct Steps {
    buckets: [u32; EXAMINED_MAX],
    parents: [(u8, u8); EXAMINED_MAX],
    len: usize,
}

impl Default for Steps {
    fn default() -> Steps {
        Steps { buckets: [0; EXAMINED_MAX], parents: [(0, 0); EXAMINED_MAX], len: 0 }
    }
}

impl Steps {
    /// Adds a bucket; `false` when the bound of the search is reached.
    fn push(&mut self, bucket: usize, parent: usize, slot: usize) -> bool {
        if self.len == EXAMINED_MAX {
            return false;
        }
        // Invariant: len < EXAMINED_MAX, just checked.
        self.buckets[self.len] = bucket as u32;
        self.parents[self.len] = (parent as u8, slot as u8);
        self.len += 1;
        true
    }

    fn contains(&self, bucket: usize) -> bool {
        // Invariant: len ≤ EXAMINED_MAX.
        self.buckets[..self.len].contains(&(bucket as u32))
    }

    fn bucket(&self, step: usize) -> usize {
        // Invariant: steps are below len.
        self.buckets[step] as usize
    }

    fn parent(&self, step: usize) -> (usize, usize) {
        // Invariant: steps are below len.
        let (parent, slot) = self.parents[step];
        (usize::from(parent), usize::from(slot))
    }
}

/// Buckets for a load of at most 0.8, and two more, for small tables scatter more. Six entries in a hundred are away then,
/// and eleven at 0.9: each costs whoever makes, finds or removes it another line. Bucket numbers fit 32 bits.
const fn buckets_for(entries: usize) -> usize {
    let buckets = entries.div_ceil(8) + 2;
    if buckets > u32::MAX as usize { u32::MAX as usize } else { buckets }
}

/// Fifteen bits from the hash's lower half, never zero; the lowest bit is left for `AWAY`.
#[inline(always)]
fn tag_of(hash: u64) -> u16 {
    let tag = hash as u16 & !AWAY;
    if tag == 0 { 2 } else { tag }
}

#[cfg(test)]
mod tests;
