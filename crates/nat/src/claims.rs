//! Which port blocks of an address a worker has: a bit each, so that a reload looks at them sixty-four at a time.

/// Blocks by number.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    words: Vec<u64>,
    count: u32,
}

impl Claims {
    /// None of so many blocks.
    pub(crate) fn of(blocks: usize) -> Self {
        Self { words: vec![0; blocks.div_ceil(64)], count: 0 }
    }

    /// How many there are.
    pub(crate) const fn count(&self) -> u32 {
        self.count
    }

    /// Fetches a block's bit.
    pub(crate) fn prefetch(&self, block: u16) {
        self.words.get(usize::from(block / 64)).inspect(|word| carrack_tables::prefetch(*word));
    }

    /// One more. False when it was there.
    pub(crate) fn insert(&mut self, block: u16) -> bool {
        self.insert_64(block, 1) == 1
    }

    /// One fewer. False when it was not there.
    pub(crate) fn remove(&mut self, block: u16) -> bool {
        let bit = 1 << (block % 64);
        let Some(word) = self.words.get_mut(usize::from(block / 64)) else { return false };
        let was = *word & bit != 0;
        *word &= !bit;
        self.count -= u32::from(was);
        was
    }

    /// The 64 blocks from this one on, a bit each.
    pub(crate) fn get_64(&self, first: u16) -> u64 {
        let (at, shift) = (usize::from(first / 64), u32::from(first % 64));
        let word = |at: usize| self.words.get(at).copied().unwrap_or(0);
        word(at) >> shift | word(at + 1).checked_shl(64 - shift).unwrap_or(0)
    }

    /// Adds those of the 64 blocks from this one on whose bits are set: how many are new.
    pub(crate) fn insert_64(&mut self, first: u16, bits: u64) -> u32 {
        let (at, shift) = (usize::from(first / 64), u32::from(first % 64));
        let mut added = 0;
        for (at, bits) in [(at, bits << shift), (at + 1, bits.checked_shr(64 - shift).unwrap_or(0))] {
            if let Some(word) = self.words.get_mut(at) {
                added += (bits & !*word).count_ones();
                *word |= bits;
            }
        }
        self.count += added;
        added
    }

    /// Those that are here and not there.
    pub(crate) fn without<'a>(&'a self, there: &'a Self) -> impl Iterator<Item = u16> + 'a {
        (0_u16..).zip(&self.words).flat_map(|(at, word)| {
            let mut left = word & !there.words.get(usize::from(at)).copied().unwrap_or(0);
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros() as u16)?;
                left &= left - 1;
                Some(at * 64 + bit)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixty_four_at_a_time_are_the_same_as_one_by_one() {
        for first in [0, 1, 63, 64, 100, 190] {
            let bits = 0xA5A5_0000_FFFF_0001_u64;
            let (mut at_once, mut singly) = (Claims::of(300), Claims::of(300));
            let added = at_once.insert_64(first, bits);
            let blocks = (0..64).filter(|bit| bits >> bit & 1 != 0).map(|bit| first + bit);
            assert_eq!(added, blocks.clone().map(|block| u32::from(singly.insert(block))).sum());
            assert_eq!((at_once.get_64(first), at_once.count()), (bits, singly.count()));
            assert!(at_once.without(&Claims::of(300)).eq(blocks.clone()));
            assert_eq!(at_once.without(&singly).count(), 0);
            assert!(!at_once.insert(first) && at_once.remove(first) && !at_once.remove(first));
            assert!(singly.without(&at_once).eq([first]));
        }
    }
}
