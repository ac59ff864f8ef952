//! Longest-prefix match over IPv4 addresses: a trie of 16, 8 and 8 bits.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr};
use core::ops::RangeInclusive;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::prefetch_read;

const ROOT: usize = 1 << 16;
const FAN: usize = 256;
/// Chunks in a page; a page is what is copied when a published table is changed.
const PAGE: usize = 64;

type Root = [u32; ROOT];
type Chunk = [u32; FAN];
type Page = [Chunk; PAGE];

/// An entry is 0 (nothing), a leaf (length of its prefix and value plus one), or a chunk's number with this
/// bit.
const CHILD: u32 = 1 << 31;
const LEN_SHIFT: u32 = 25;
const VALUE_MASK: u32 = (1 << LEN_SHIFT) - 1;

/// The largest value a table can hold.
pub(crate) const VALUE_MAX: u32 = VALUE_MASK - 1;

/// Why a prefix was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LpmError {
    /// The length is above what addresses of that IP version have.
    Length {
        /// The prefix length given.
        len: u8,
        /// Bits of an address: 32 or 128.
        bits: u8,
    },
    /// The value is above 33,554,430.
    Value(u32),
    /// The address has bits set behind the prefix.
    HostBits {
        /// The address given.
        address: IpAddr,
        /// The address that the prefix of this length has.
        masked: IpAddr,
        /// The prefix length given.
        len: u8,
    },
}

impl fmt::Display for LpmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            LpmError::Length { len, bits } => {
                let version = if bits == 32 { 4 } else { 6 };
                write!(f, "prefix length {len}: an IPv{version} prefix has at most {bits} bits")
            }
            LpmError::Value(value) => write!(f, "next-hop id {value}: at most {VALUE_MAX} is possible"),
            LpmError::HostBits { address, masked, len } => {
                write!(f, "prefix {address}/{len} has host bits set; write {masked}/{len}")
            }
        }
    }
}

impl std::error::Error for LpmError {}

/// A published table: IPv4 address → `u32` value (a next-hop id) of the longest matching prefix.
///
/// Cheap to clone (the parts are shared), never changed: [`Lpm4Builder`] makes the next one. A lookup reads
/// one to three table entries; with a full Internet table, mostly two.
#[derive(Clone)]
pub struct Lpm4 {
    root: Arc<Root>,
    pages: Vec<Arc<Page>>,
    /// The leaf of 0.0.0.0/0, kept apart: the most frequent change then touches one word.
    default: u32,
}

impl Lpm4 {
    /// A table without prefixes.
    pub fn empty() -> Lpm4 {
        // Invariant: the vector has ROOT elements.
        let root: Arc<[u32]> = vec![0; ROOT].into();
        let root = Arc::try_from(root).unwrap_or_else(|_| Arc::new([0; ROOT]));
        Lpm4 { root, pages: Vec::new(), default: 0 }
    }

    /// The value of the longest prefix that holds the address (in host byte order).
    #[inline(always)]
    pub fn lookup(&self, ip: u32) -> Option<u32> {
        let mut entry = self.root[(ip >> 16) as u16 as usize];
        if entry & CHILD != 0 {
            entry = self.chunk_entry(entry, (ip >> 8) as u8);
            if entry & CHILD != 0 {
                entry = self.chunk_entry(entry, ip as u8);
            }
        }
        if entry == 0 {
            entry = self.default;
        }
        (entry & VALUE_MASK).checked_sub(1)
    }

    /// Fetches the first entry of the address's way.
    #[inline(always)]
    pub fn prefetch(&self, ip: u32) {
        prefetch_read(self.root.as_ptr().wrapping_add((ip >> 16) as usize));
    }

    /// Bytes of the table, shared parts counted in full.
    pub fn bytes(&self) -> usize {
        size_of::<Root>() + self.pages.len() * (size_of::<Page>() + size_of::<Arc<Page>>())
    }

    #[inline(always)]
    fn chunk_entry(&self, child: u32, index: u8) -> u32 {
        let chunk = (child & !CHILD) as usize;
        match self.pages.get(chunk / PAGE) {
            Some(page) => page[chunk % PAGE][usize::from(index)],
            // Invariant: a child entry always names a chunk of an existing page.
            None => 0,
        }
    }

    fn chunk(&self, chunk: u32) -> &Chunk {
        // Invariant: callers pass numbers of existing chunks.
        &self.pages[chunk as usize / PAGE][chunk as usize % PAGE]
    }

    fn chunk_mut(&mut self, chunk: u32) -> &mut Chunk {
        // Invariant: callers pass numbers of existing chunks.
        &mut Arc::make_mut(&mut self.pages[chunk as usize / PAGE])[chunk as usize % PAGE]
    }
}

impl fmt::Debug for Lpm4 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lpm4({} bytes)", self.bytes())
    }
}

/// The control plane's copy: all prefixes, and the table made of them.
///
/// Changing it after [`Lpm4Builder::snapshot`] copies the parts it changes, once per snapshot; readers keep
/// the old ones.
pub struct Lpm4Builder {
    prefixes: BTreeMap<(u32, u8), u32>,
    table: Lpm4,
    free_chunks: Vec<u32>,
}

impl Default for Lpm4Builder {
    fn default() -> Lpm4Builder {
        Lpm4Builder::new()
    }
}

impl Lpm4Builder {
    /// No prefixes.
    pub fn new() -> Lpm4Builder {
        Lpm4Builder { prefixes: BTreeMap::new(), table: Lpm4::empty(), free_chunks: Vec::new() }
    }

    /// Adds a prefix or changes its value; returns the value it had. On an error nothing is changed.
    pub fn insert(&mut self, address: u32, len: u8, value: u32) -> Result<Option<u32>, LpmError> {
        if len > 32 {
            return Err(LpmError::Length { len, bits: 32 });
        }
        if value > VALUE_MAX {
            return Err(LpmError::Value(value));
        }
        let masked = mask(address, len);
        if masked != address {
            let [address, masked] = [address, masked].map(|a| Ipv4Addr::from(a).into());
            return Err(LpmError::HostBits { address, masked, len });
        }
        let before = self.prefixes.insert((address, len), value);
        self.paint(address, len, leaf(len, value));
        Ok(before)
    }

    /// Removes a prefix; returns the value it had. What it covered falls back to the next shorter prefix.
    pub fn remove(&mut self, address: u32, len: u8) -> Option<u32> {
        let before = self.prefixes.remove(&(address, len))?;
        let fallback = self.covering(address, len);
        self.repaint_removed(address, len, fallback);
        Some(before)
    }

    /// The value of exactly this prefix.
    pub fn get(&self, address: u32, len: u8) -> Option<u32> {
        self.prefixes.get(&(address, len)).copied()
    }

    /// All prefixes (address, length, value), in order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u8, u32)> {
        self.prefixes.iter().map(|((address, len), value)| (*address, *len, *value))
    }

    /// Number of prefixes.
    pub fn len(&self) -> usize {
        self.prefixes.len()
    }

    /// Whether there is no prefix.
    pub fn is_empty(&self) -> bool {
        self.prefixes.is_empty()
    }

    /// The table as it stands, to publish.
    pub fn snapshot(&self) -> Lpm4 {
        self.table.clone()
    }

    /// The table as it stands, to look things up at once.
    pub fn table(&self) -> &Lpm4 {
        &self.table
    }

    /// The leaf of the longest prefix shorter than `len` that holds `address`; the default route is kept
    /// apart.
    fn covering(&self, address: u32, len: u8) -> u32 {
        for shorter in (1..len).rev() {
            if let Some(value) = self.prefixes.get(&(mask(address, shorter), shorter)) {
                return leaf(shorter, *value);
            }
        }
        0
    }

    /// Writes the leaf wherever no longer prefix is.
    fn paint(&mut self, address: u32, len: u8, leaf: u32) {
        self.apply(address, len, &|entry| if len_of(entry) <= len { leaf } else { entry });
    }

    /// Writes `fallback` wherever the removed prefix was the longest.
    fn repaint_removed(&mut self, address: u32, len: u8, fallback: u32) {
        self.apply(address, len, &|entry| if entry != 0 && len_of(entry) == len { fallback } else { entry });
    }

    /// Applies `change` to all leaves of the prefix's range, in chunks made for it if it is a long one.
    fn apply(&mut self, address: u32, len: u8, change: &dyn Fn(u32) -> u32) {
        let slot = (address >> 16) as usize;
        match len {
            0 => self.table.default = change(self.table.default),
            1..=16 => {
                for slot in slot..slot + (1 << (16 - len)) {
                    self.apply_root(slot, change);
                }
            }
            _ => {
                let chunk = self.child_of_root(slot);
                let index = (address >> 8) as u8;
                if len <= 24 {
                    self.apply_chunk(chunk, span(index, 24 - len), change);
                } else {
                    let child = self.child_of_chunk(chunk, index);
                    self.apply_chunk(child, span(address as u8, 32 - len), change);
                    self.fold_chunk_entry(chunk, index);
                }
                self.fold_root_entry(slot);
            }
        }
    }

    fn apply_root(&mut self, slot: usize, change: &dyn Fn(u32) -> u32) {
        let entry = self.table.root[slot];
        if entry & CHILD != 0 {
            self.apply_chunk(entry & !CHILD, 0..=255, change);
            self.fold_root_entry(slot);
            return;
        }
        let changed = change(entry);
        if changed != entry {
            self.root_mut()[slot] = changed;
        }
    }

    fn apply_chunk(&mut self, chunk: u32, range: RangeInclusive<u8>, change: &dyn Fn(u32) -> u32) {
        for index in range {
            let entry = self.table.chunk(chunk)[usize::from(index)];
            if entry & CHILD != 0 {
                self.apply_chunk(entry & !CHILD, 0..=255, change);
                self.fold_chunk_entry(chunk, index);
                continue;
            }
            let changed = change(entry);
            if changed != entry {
                self.table.chunk_mut(chunk)[usize::from(index)] = changed;
            }
        }
    }

    fn root_mut(&mut self) -> &mut Root {
        Arc::make_mut(&mut self.table.root)
    }

    /// The chunk below a root entry, made if there is none yet.
    fn child_of_root(&mut self, slot: usize) -> u32 {
        let entry = self.table.root[slot];
        if entry & CHILD != 0 {
            return entry & !CHILD;
        }
        let chunk = self.new_chunk(entry);
        self.root_mut()[slot] = CHILD | chunk;
        chunk
    }

    fn child_of_chunk(&mut self, parent: u32, index: u8) -> u32 {
        let entry = self.table.chunk(parent)[usize::from(index)];
        if entry & CHILD != 0 {
            return entry & !CHILD;
        }
        let chunk = self.new_chunk(entry);
        self.table.chunk_mut(parent)[usize::from(index)] = CHILD | chunk;
        chunk
    }

    /// A chunk full of this leaf.
    fn new_chunk(&mut self, fill: u32) -> u32 {
        let chunk = self.free_chunks.pop().unwrap_or_else(|| {
            let first = (self.table.pages.len() * PAGE) as u32;
            self.table.pages.push(Arc::new([[0; FAN]; PAGE]));
            self.free_chunks.extend((first + 1..first + PAGE as u32).rev());
            first
        });
        *self.table.chunk_mut(chunk) = [fill; FAN];
        chunk
    }

    /// Replaces a root entry's chunk by a leaf when the chunk holds nothing but that leaf. The leaf may be of
    /// longer prefixes than the entry's own bits (all 256 of a /16 with one value): its length stays in it,
    /// and the next change behind the entry spreads it over a chunk again.
    fn fold_root_entry(&mut self, slot: usize) {
        if let Some((chunk, leaf)) = self.foldable(self.table.root[slot]) {
            self.root_mut()[slot] = leaf;
            self.free_chunks.push(chunk);
        }
    }

    fn fold_chunk_entry(&mut self, parent: u32, index: u8) {
        if let Some((chunk, leaf)) = self.foldable(self.table.chunk(parent)[usize::from(index)]) {
            self.table.chunk_mut(parent)[usize::from(index)] = leaf;
            self.free_chunks.push(chunk);
        }
    }

    fn foldable(&self, entry: u32) -> Option<(u32, u32)> {
        if entry & CHILD == 0 {
            return None;
        }
        let chunk = entry & !CHILD;
        let entries = self.table.chunk(chunk);
        let first = entries[0];
        let uniform = first & CHILD == 0 && entries.iter().all(|e| *e == first);
        uniform.then_some((chunk, first))
    }
}

impl fmt::Debug for Lpm4Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lpm4Builder({} prefixes, {:?})", self.prefixes.len(), self.table)
    }
}

fn leaf(len: u8, value: u32) -> u32 {
    u32::from(len) << LEN_SHIFT | (value + 1)
}

fn len_of(leaf: u32) -> u8 {
    (leaf >> LEN_SHIFT) as u8
}

/// The entries that a prefix with `free_bits` bits left covers in its chunk.
fn span(first: u8, free_bits: u8) -> RangeInclusive<u8> {
    // Invariant: free_bits < 8, and the first index has that many zeroes at its end.
    first..=first | ((1u16 << free_bits) - 1) as u8
}

/// The address with only the first `len` bits (at most 32) left.
fn mask(address: u32, len: u8) -> u32 {
    address & u32::MAX.checked_shl(32 - u32::from(len.min(32))).unwrap_or(0)
}

#[cfg(test)]
mod tests;
