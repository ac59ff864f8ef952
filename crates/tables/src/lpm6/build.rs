//! Makes the trie of one /16 from its prefixes.

use super::{Node, ROOT_BITS, STRIDE, Trie};

/// A prefix: address, length, entry.
type Prefix = (u128, u8, u32);

/// Branches of a node.
const BRANCHES: usize = 1 << STRIDE;

/// The trie of `prefixes`, all longer than 16 bits, with the same first 16, sorted by address and then length.
/// `inherited` is the entry where none of them is.
pub(super) fn trie(prefixes: &[Prefix], inherited: u32) -> Trie {
    let mut trie = Trie { nodes: vec![Node::default()], leaves: Vec::new() };
    fill(&mut trie, 0, ROOT_BITS, prefixes, inherited);
    trie.nodes.shrink_to_fit();
    trie.leaves.shrink_to_fit();
    trie
}

/// Writes the node `at`, which `depth` bits lead to, and everything below it. `prefixes` are those longer than that.
fn fill(trie: &mut Trie, at: usize, depth: u8, prefixes: &[Prefix], inherited: u32) {
    let end = depth + STRIDE;
    let mut entries = [inherited; BRANCHES];
    let mut below = 0_u64;
    // A prefix comes before those within it, which then write over it.
    for (address, len, entry) in prefixes {
        let branch = branch_of(*address, depth);
        if *len > end {
            below |= 1 << branch;
        } else {
            let covered = 1 << (end - len);
            // Invariant: a prefix's branch has as many zeroes at its end as bits are left of it, so that all fit.
            for place in entries.iter_mut().skip(branch).take(covered) {
                *place = *entry;
            }
        }
    }
    let node = Node {
        below,
        begins: runs(&entries, below),
        first_node: trie.nodes.len() as u32,
        first_leaf: trie.leaves.len() as u32,
    };
    let starts = (0..BRANCHES).filter(|branch| node.begins >> branch & 1 != 0);
    trie.leaves.extend(starts.map(|branch| entries[branch]));
    trie.nodes.resize(trie.nodes.len() + below.count_ones() as usize, Node::default());
    if let Some(place) = trie.nodes.get_mut(at) {
        *place = node;
    }
    let mut rest = prefixes;
    let branches = (0..BRANCHES).filter(|branch| below >> branch & 1 != 0);
    for (child, branch) in branches.enumerate() {
        rest = &rest[rest.partition_point(|(address, ..)| branch_of(*address, depth) < branch)..];
        let (here, after) =
            rest.split_at(rest.partition_point(|(address, ..)| branch_of(*address, depth) == branch));
        let longer: Vec<Prefix> = here.iter().filter(|(_, len, _)| *len > end).copied().collect();
        fill(trie, node.first_node as usize + child, end, &longer, entries[branch]);
        rest = after;
    }
}

/// The branches without a node below whose entry is another than that of the last such branch before.
fn runs(entries: &[u32; BRANCHES], below: u64) -> u64 {
    let (mut begins, mut last) = (0, None);
    for (branch, entry) in entries.iter().enumerate() {
        if below >> branch & 1 == 0 && last != Some(*entry) {
            begins |= 1 << branch;
            last = Some(*entry);
        }
    }
    begins
}

/// Six bits of the address behind the first `depth`; the last node has four, and zeroes behind them.
fn branch_of(address: u128, depth: u8) -> usize {
    ((address << depth) >> (128 - STRIDE)) as usize
}
