//! Longest-prefix match over IPv6 addresses: one array for the first 16 bits, below it compressed tries of six bits a
//! level.
//!
//! A node says of its 64 branches which lead to a node below and where runs of equal answers begin (two bitmaps), so
//! that it takes 24 bytes whatever it holds: a prefix costs at most 19 nodes, and ordinary tables far less.

mod build;

use core::fmt;
use core::net::Ipv6Addr;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::lpm::{LpmError, VALUE_MAX};
use crate::prefetch_read;

/// Bits of an address that the root is indexed by.
const ROOT_BITS: u8 = 16;
const ROOT: usize = 1 << ROOT_BITS;
/// Bits of an address that a node is indexed by.
const STRIDE: u8 = 6;

/// A root entry is 0 (nothing), a value plus one, or a trie's number with this bit.
const TRIE: u32 = 1 << 31;

type Root = [u32; ROOT];

/// One level of a trie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Node {
    /// Branches that lead to a node.
    below: u64,
    /// Branches without a node below where another answer begins than the branch before has.
    begins: u64,
    /// The node of the first such branch; the others follow.
    first_node: u32,
    /// The answer of the first run; the others follow.
    first_leaf: u32,
}

/// All prefixes longer than 16 bits that begin with the same 16.
#[derive(Debug, Default, PartialEq, Eq)]
struct Trie {
    nodes: Vec<Node>,
    /// Values plus one; 0 for nothing.
    leaves: Vec<u32>,
}

impl Trie {
    /// The entry of the longest prefix, and how many bits of `ip`, which is without its first 16, were asked for it.
    #[inline]
    fn lookup(&self, mut ip: u128) -> (u32, u8) {
        let (mut at, mut bits) = (0, 0);
        // Invariant: a node's numbers name nodes and leaves of its own trie; the loop ends with the address's bits.
        while let Some(node) = self.nodes.get(at) {
            let branch = (ip >> (128 - STRIDE)) as u32;
            let up_to = u64::MAX >> (63 - branch);
            bits += STRIDE;
            if node.below >> branch & 1 == 0 {
                let run = node.first_leaf + (node.begins & up_to).count_ones();
                return (self.leaves.get(run.wrapping_sub(1) as usize).copied().unwrap_or(0), bits);
            }
            at = (node.first_node + (node.below & up_to).count_ones() - 1) as usize;
            ip <<= STRIDE;
        }
        (0, bits)
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + self.nodes.len() * size_of::<Node>() + self.leaves.len() * size_of::<u32>()
    }
}

/// A published table: IPv6 address → `u32` value (a next-hop id) of the longest matching prefix.
///
/// Cheap to clone (the parts are shared), never changed: [`Lpm6Builder`] makes the next one. A lookup reads the root,
/// then one node for each six bits that prefixes around the address go on for: three for a /32, six for a /48.
#[derive(Clone)]
pub struct Lpm6 {
    root: Arc<Root>,
    tries: Vec<Arc<Trie>>,
    /// The value of ::/0 plus one, kept apart: the most frequent change then touches one word.
    default: u32,
}

impl Lpm6 {
    /// A table without prefixes.
    pub fn empty() -> Lpm6 {
        // Invariant: the vector has ROOT elements.
        let root: Arc<[u32]> = vec![0; ROOT].into();
        let root = Arc::try_from(root).unwrap_or_else(|_| Arc::new([0; ROOT]));
        Lpm6 { root, tries: Vec::new(), default: 0 }
    }

    /// The value of the longest prefix that holds the address (in host byte order).
    #[inline]
    pub fn lookup(&self, ip: u128) -> Option<u32> {
        self.lookup_around(ip).0
    }

    /// The same, and how many of its first bits an address must share with this one to surely have the same answer: as many
    /// as were asked, at most 128.
    #[inline]
    pub fn lookup_around(&self, ip: u128) -> (Option<u32>, u8) {
        let mut entry = self.root[(ip >> (128 - ROOT_BITS)) as u16 as usize];
        let mut bits = 0;
        if entry & TRIE != 0 {
            // Invariant: the root names existing tries.
            let trie = self.tries.get((entry & !TRIE) as usize);
            (entry, bits) = trie.map_or((0, 0), |trie| trie.lookup(ip << ROOT_BITS));
        }
        if entry == 0 {
            entry = self.default;
        }
        (entry.checked_sub(1), (ROOT_BITS + bits).min(128))
    }

    /// Fetches the first entry of the address's way.
    #[inline]
    pub fn prefetch(&self, ip: u128) {
        prefetch_read(self.root.as_ptr().wrapping_add((ip >> (128 - ROOT_BITS)) as usize));
    }

    /// Bytes of the table, shared parts counted in full.
    pub fn bytes(&self) -> usize {
        let tries = self.tries.iter().map(|trie| trie.bytes() + size_of::<Arc<Trie>>());
        size_of::<Root>() + tries.sum::<usize>()
    }
}

impl fmt::Debug for Lpm6 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lpm6({} bytes)", self.bytes())
    }
}

/// The control plane's copy: all prefixes, and the table made of them.
///
/// [`Lpm6Builder::snapshot`] makes anew the tries of those /16 in which something changed, and shares the others with
/// the snapshot before.
pub struct Lpm6Builder {
    prefixes: BTreeMap<(u128, u8), u32>,
    table: Lpm6,
    /// First 16 bits of the addresses whose entries are still to be made.
    changed: BTreeSet<u16>,
    free_tries: Vec<u32>,
}

impl Default for Lpm6Builder {
    fn default() -> Lpm6Builder {
        Lpm6Builder::new()
    }
}

impl Lpm6Builder {
    /// No prefixes.
    pub fn new() -> Lpm6Builder {
        Lpm6Builder {
            prefixes: BTreeMap::new(),
            table: Lpm6::empty(),
            changed: BTreeSet::new(),
            free_tries: Vec::new(),
        }
    }

    /// Adds a prefix or changes its value; returns the value it had. On an error nothing is changed.
    pub fn insert(&mut self, address: u128, len: u8, value: u32) -> Result<Option<u32>, LpmError> {
        if len > 128 {
            return Err(LpmError::Length { len, bits: 128 });
        }
        if value > VALUE_MAX {
            return Err(LpmError::Value(value));
        }
        let masked = mask(address, len);
        if masked != address {
            let [address, masked] = [address, masked].map(|a| Ipv6Addr::from(a).into());
            return Err(LpmError::HostBits { address, masked, len });
        }
        let before = self.prefixes.insert((address, len), value);
        if before != Some(value) {
            self.note_change(address, len);
        }
        Ok(before)
    }

    /// Removes a prefix; returns the value it had. What it covered falls back to the next shorter prefix.
    pub fn remove(&mut self, address: u128, len: u8) -> Option<u32> {
        let before = self.prefixes.remove(&(address, len))?;
        self.note_change(address, len);
        Some(before)
    }

    /// The value of exactly this prefix.
    pub fn get(&self, address: u128, len: u8) -> Option<u32> {
        self.prefixes.get(&(address, len)).copied()
    }

    /// All prefixes (address, length, value), in order.
    pub fn iter(&self) -> impl Iterator<Item = (u128, u8, u32)> {
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
    pub fn snapshot(&mut self) -> Lpm6 {
        self.table.default = self.prefixes.get(&(0, 0)).map_or(0, |value| value + 1);
        for slot in std::mem::take(&mut self.changed) {
            self.remake(slot);
        }
        self.table.clone()
    }

    fn note_change(&mut self, address: u128, len: u8) {
        let first = (address >> (128 - ROOT_BITS)) as u16;
        match len {
            // Kept apart.
            0 => {}
            1..=ROOT_BITS => {
                self.changed.extend(first..=first | u16::MAX.checked_shr(len.into()).unwrap_or(0))
            }
            _ => {
                self.changed.insert(first);
            }
        }
    }

    /// Makes the root entry of a /16, and its trie when longer prefixes are in it.
    fn remake(&mut self, slot: u16) {
        let base = u128::from(slot) << (128 - ROOT_BITS);
        let last = base | (u128::MAX >> ROOT_BITS);
        let within: Vec<(u128, u8, u32)> = self
            .prefixes
            .range((base, 0)..=(last, 128))
            .filter(|((_, len), _)| *len > ROOT_BITS)
            .map(|((address, len), value)| (*address, *len, value + 1))
            .collect();
        let inherited = self.covering(base);
        let before = self.table.root[usize::from(slot)];
        let old_trie = (before & TRIE != 0).then_some(before & !TRIE);
        let entry = if within.is_empty() {
            if let Some(number) = old_trie {
                self.free_tries.push(number);
                self.put_trie(number, Trie::default());
            }
            inherited
        } else {
            let number = old_trie.or_else(|| self.free_tries.pop()).unwrap_or(self.table.tries.len() as u32);
            self.put_trie(number, build::trie(&within, inherited));
            TRIE | number
        };
        if entry != before {
            Arc::make_mut(&mut self.table.root)[usize::from(slot)] = entry;
        }
    }

    fn put_trie(&mut self, number: u32, trie: Trie) {
        match self.table.tries.get_mut(number as usize) {
            Some(place) => *place = Arc::new(trie),
            None => self.table.tries.push(Arc::new(trie)),
        }
    }

    /// The entry of the longest prefix of 1 to 16 bits that holds the address.
    fn covering(&self, address: u128) -> u32 {
        let of_length = |len| self.prefixes.get(&(mask(address, len), len));
        (1..=ROOT_BITS).rev().find_map(of_length).map_or(0, |value| value + 1)
    }
}

impl fmt::Debug for Lpm6Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lpm6Builder({} prefixes, {:?})", self.prefixes.len(), self.table)
    }
}

/// The address with only the first `len` bits (at most 128) left.
fn mask(address: u128, len: u8) -> u128 {
    address & u128::MAX.checked_shl(128 - u32::from(len.min(128))).unwrap_or(0)
}

#[cfg(test)]
mod tests;
