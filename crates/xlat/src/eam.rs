//! Explicit address mappings (RFC 7757).

#[cfg(test)]
pub(crate) mod tests;

use carrack_base::{Prefix4, Prefix6};
use std::fmt;

/// Entries of a table, at most.
pub const ENTRIES_MAX: usize = 65_536;

/// One explicit address mapping: addresses of `v4` and of `v6` with the same bits behind the prefixes are each
/// other's translation (RFC 7757 §3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// IPv4 side.
    pub v4: Prefix4,
    /// IPv6 side: at least as many bits behind the prefix as on the IPv4 side.
    pub v6: Prefix6,
}

impl Entry {
    /// How many more bits stand behind the IPv6 prefix than behind the IPv4 prefix.
    const fn surplus(&self) -> Option<u8> {
        (128 - self.v6.len()).checked_sub(32 - self.v4.len())
    }
}

/// Why a table is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadTable {
    /// More than [`ENTRIES_MAX`] entries.
    TooMany(usize),
    /// The IPv4 prefix of this entry has more bits behind it than the IPv6 prefix (RFC 7757 §3.2).
    SuffixTooShort(Entry),
    /// Two entries have the same IPv4 prefix (RFC 7757 §5).
    SameV4(Entry, Entry),
    /// Two entries have the same IPv6 prefix (RFC 7757 §5).
    SameV6(Entry, Entry),
}

impl fmt::Display for BadTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadTable::TooMany(count) => {
                write!(f, "{count} explicit address mappings are more than the {ENTRIES_MAX} a table takes")
            }
            BadTable::SuffixTooShort(entry) => write!(
                f,
                "{} has more addresses than {}; lengthen the IPv4 prefix by {} or shorten the IPv6 prefix \
                 (RFC 7757 §3.2)",
                entry.v4,
                entry.v6,
                entry.v6.len() - 96 - entry.v4.len()
            ),
            BadTable::SameV4(first, second) => {
                write!(f, "{} is mapped twice: to {} and to {} (RFC 7757 §5)", first.v4, first.v6, second.v6)
            }
            BadTable::SameV6(first, second) => {
                write!(f, "{} is mapped twice: to {} and to {} (RFC 7757 §5)", first.v6, first.v4, second.v4)
            }
        }
    }
}

impl std::error::Error for BadTable {}

/// An entry ready to be applied.
#[derive(Clone, Copy, Debug)]
struct Line {
    v6: u128,
    v4: u32,
    /// See [`Entry::surplus`].
    surplus: u8,
}

/// The explicit address mapping table. Immutable; a search is a binary one over ranges that do not overlap.
///
/// Prefixes may overlap: the longest decides, for each direction on its own, as RFC 7757 §3.3 says, so the two
/// directions may disagree ([`EamTable::overlaps`] tells which entries to warn of). Identical prefixes are
/// refused (RFC 7757 §5).
#[derive(Clone, Debug, Default)]
pub struct EamTable {
    entries: Box<[Entry]>,
    by_v4: Ranges<u32>,
    by_v6: Ranges<u128>,
}

impl EamTable {
    /// A table of `entries`.
    ///
    /// # Errors
    /// [`BadTable`].
    pub fn new(entries: &[Entry]) -> Result<EamTable, BadTable> {
        if entries.len() > ENTRIES_MAX {
            return Err(BadTable::TooMany(entries.len()));
        }
        let line = |entry: &Entry| {
            let surplus = entry.surplus().ok_or(BadTable::SuffixTooShort(*entry))?;
            Ok(Line { v6: entry.v6.address(), v4: entry.v4.address(), surplus })
        };
        let lines = entries.iter().map(line).collect::<Result<Vec<_>, _>>()?;
        if let Some((first, second)) = same(entries, |entry| (entry.v4.address(), entry.v4.len())) {
            return Err(BadTable::SameV4(first, second));
        }
        if let Some((first, second)) = same(entries, |entry| (entry.v6.address(), entry.v6.len())) {
            return Err(BadTable::SameV6(first, second));
        }
        let v4 = |entry: &Entry| (entry.v4.address(), entry.v4.last(), entry.v4.len());
        let v6 = |entry: &Entry| (entry.v6.address(), entry.v6.last(), entry.v6.len());
        Ok(EamTable {
            entries: entries.into(),
            by_v4: Ranges::new(entries.iter().map(v4).collect(), &lines, |last| last.checked_add(1)),
            by_v6: Ranges::new(entries.iter().map(v6).collect(), &lines, |last| last.checked_add(1)),
        })
    }

    /// The entries, in the order given.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The IPv6 address for an IPv4 address (both in host order) by the longest matching IPv4 prefix; `None` when
    /// there is none (RFC 7757 §3.3.1).
    #[inline(always)]
    pub fn to_v6(&self, address: u32) -> Option<u128> {
        let line = self.by_v4.find(address)?;
        Some(line.v6 | u128::from(address ^ line.v4).unbounded_shl(line.surplus.into()))
    }

    /// The IPv4 address for an IPv6 address (both in host order) by the longest matching IPv6 prefix; bits that
    /// do not fit are discarded; `None` when no prefix matches (RFC 7757 §3.3.2).
    #[inline(always)]
    pub fn to_v4(&self, address: u128) -> Option<u32> {
        let line = self.by_v6.find(address)?;
        Some(line.v4 | (address ^ line.v6).unbounded_shr(line.surplus.into()) as u32)
    }

    /// Whether an IPv4 address is in the table.
    #[inline]
    pub fn has_v4(&self, address: u32) -> bool {
        self.by_v4.find(address).is_some()
    }

    /// The pairs of entries whose prefixes overlap on one side, shorter prefix first, at most `count` of them: the
    /// two directions may not mirror each other there (RFC 7757 §5).
    pub fn overlaps(&self, count: usize) -> Vec<(Entry, Entry)> {
        let mut found: Vec<(Entry, Entry)> = Vec::new();
        for nests in [self.by_v4.nests.iter(), self.by_v6.nests.iter()] {
            for (outer, inner) in nests {
                let pair = (self.entries.get(*outer as usize), self.entries.get(*inner as usize));
                if let (Some(outer), Some(inner)) = pair
                    && !found.contains(&(*outer, *inner))
                    && found.len() < count
                {
                    found.push((*outer, *inner));
                }
            }
        }
        found
    }
}

/// Two entries with the same key.
fn same<K: Ord>(entries: &[Entry], key: impl Fn(&Entry) -> K) -> Option<(Entry, Entry)> {
    let mut sorted: Vec<&Entry> = entries.iter().collect();
    sorted.sort_by_key(|entry| key(entry));
    let pair = sorted.windows(2).find(|pair| matches!(pair, [a, b] if key(a) == key(b)))?;
    match pair {
        [first, second] => Some((**first, **second)),
        _ => None,
    }
}

/// Prefixes made into ranges that do not overlap, each with the longest prefix that covers it.
#[derive(Clone, Debug, Default)]
struct Ranges<A> {
    /// The first and the last address of any prefix; all others need no search.
    first: A,
    last: A,
    /// First address of each range, ascending; a range ends where the next starts.
    starts: Box<[A]>,
    /// The entry that covers the range.
    lines: Box<[Option<Line>]>,
    /// Each prefix inside another, with the next longer one that holds it: (outer, inner).
    nests: Box<[(u32, u32)]>,
}

/// So many ranges are sooner counted than searched.
const FEW: usize = 4;
/// The owner of a range that no prefix covers.
const NOBODY: u32 = u32::MAX;

impl<A: Copy + Default + Ord> Ranges<A> {
    /// Of prefixes given as first address, last address, length; `after` is the address behind one.
    fn new(prefixes: Vec<(A, A, u8)>, lines: &[Line], after: impl Fn(A) -> Option<A>) -> Ranges<A> {
        let mut order: Vec<(u32, A, A, u8)> =
            (0..).zip(prefixes).map(|(index, (first, last, len))| (index, first, last, len)).collect();
        let (firsts, lasts) =
            (order.iter().map(|(_, first, ..)| *first), order.iter().map(|(_, _, last, _)| *last));
        let (first, last) = (firsts.min().unwrap_or_default(), lasts.max().unwrap_or_default());
        // An outer prefix comes before those inside it.
        order.sort_by_key(|(_, first, _, len)| (*first, *len));
        let (mut starts, mut owners, mut nests) = (Vec::new(), Vec::new(), Vec::new());
        let mut push = |start: A, owner: u32| {
            if starts.last() == Some(&start) {
                owners.pop();
                starts.pop();
            }
            if owners.last() != Some(&owner) {
                starts.push(start);
                owners.push(owner);
            }
        };
        let mut open: Vec<(u32, A)> = Vec::new();
        for (index, first, last, _) in order {
            while let Some((_, end)) = open.last().copied().filter(|(_, end)| *end < first) {
                open.pop();
                // Invariant: `end` is below another address, so there is one behind it.
                after(end).into_iter().for_each(|next| push(next, open.last().map_or(NOBODY, |(i, _)| *i)));
            }
            if let Some((outer, _)) = open.last() {
                nests.push((*outer, index));
            }
            push(first, index);
            open.push((index, last));
        }
        while let Some((_, end)) = open.pop() {
            after(end).into_iter().for_each(|next| push(next, open.last().map_or(NOBODY, |(i, _)| *i)));
        }
        // Behind the last prefix nobody looks.
        if owners.pop_if(|owner| *owner == NOBODY).is_some() {
            starts.pop();
        }
        let lines = owners.iter().map(|owner| lines.get(*owner as usize).copied()).collect();
        Ranges { first, last, starts: starts.into(), lines, nests: nests.into() }
    }

    /// The entry whose prefix is the longest around `address`.
    #[inline(always)]
    fn find(&self, address: A) -> Option<&Line> {
        // Most addresses are in no mapping, or there are a few mappings: neither is worth a search.
        if address < self.first || address > self.last {
            return None;
        }
        let behind = if self.starts.len() <= FEW {
            self.starts.iter().map(|start| usize::from(*start <= address)).sum()
        } else {
            self.starts.partition_point(|start| *start <= address)
        };
        self.lines.get(behind.checked_sub(1)?)?.as_ref()
    }
}
