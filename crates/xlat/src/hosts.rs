//! IPv4 addresses that IPv6 hosts have by a prefix (RFC 7915 §6).

use carrack_base::{Prefix4, Range4};

/// Blocks of such addresses. Immutable; a search is a binary one.
#[derive(Clone, Debug, Default)]
pub struct Hosts {
    blocks: Box<[Prefix4]>,
    /// The same addresses, sorted and apart from each other.
    ranges: Box<[Range4]>,
}

impl Hosts {
    /// The hosts of these blocks, which may lie within each other.
    #[must_use]
    pub fn new(blocks: Vec<Prefix4>) -> Hosts {
        let mut apart = blocks.clone();
        // The widest of those that begin together goes first.
        apart.sort_unstable();
        // Prefixes lie within each other or apart.
        apart.dedup_by(|next, before| before.contains(next.last()));
        Hosts { blocks: blocks.into(), ranges: apart.iter().map(|block| block.range()).collect() }
    }

    /// The blocks, in the order given.
    #[must_use]
    pub fn blocks(&self) -> &[Prefix4] {
        &self.blocks
    }

    /// Is it in one of the blocks (host order)?
    #[inline(always)]
    #[must_use]
    pub fn contains(&self, address: u32) -> bool {
        let next = self.ranges.partition_point(|range| range.first <= address);
        let range = next.checked_sub(1).and_then(|at| self.ranges.get(at));
        range.is_some_and(|range| range.contains(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_within_each_other_hold_every_address_of_theirs_and_no_other() {
        let nested = ["198.51.100.16/30", "198.51.100.16/28", "198.51.100.24/30", "203.0.113.0/31"];
        let blocks: Vec<Prefix4> = nested.map(|text| text.parse().unwrap()).into();
        let hosts = Hosts::new(blocks.clone());
        assert_eq!(hosts.blocks(), blocks, "each leads to the translator on its own");
        for address in (0xc633_6400..=0xc633_64ff).chain(0xcb00_7100..=0xcb00_71ff) {
            assert_eq!(hosts.contains(address), blocks.iter().any(|block| block.contains(address)));
        }
        assert!(!Hosts::default().contains(0) && Hosts::new(vec![Prefix4::DEFAULT]).contains(u32::MAX));
    }
}
