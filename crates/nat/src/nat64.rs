//! What an instance needs to serve IPv6 hosts (RFC 6146): its prefixes, and whom of them it serves.

use carrack_base::Prefix6;

use crate::flow::Inside;
pub use carrack_xlat::NatPrefix;

/// IPv6 subscribers of an instance and the prefixes they reach IPv4 by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nat64 {
    /// The prefixes that stand for the IPv4 Internet.
    pub prefixes: Vec<Nat64Prefix>,
    /// Sources served; others are refused (`nat-subscriber-denied`). Disjoint, never empty (`::/0` when config leaves
    /// it out).
    pub subscribers: Vec<Prefix6>,
    /// Bits of a source address that tell one subscriber from another, 32 to 128: 64 for one a link, 56 or 48 for one a
    /// site.
    pub subscriber_len: u8,
}

/// One NAT64 prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nat64Prefix {
    /// From 1; unique over all instances, and the same over reloads for the same prefix of the same instance.
    pub via: u16,
    /// The prefix.
    pub prefix: NatPrefix,
}

impl Nat64 {
    /// Is this source served?
    pub(crate) fn serves(&self, source: u128) -> bool {
        self.subscribers.iter().any(|prefix| prefix.contains(source))
    }

    /// The subscriber a host belongs to.
    #[must_use]
    pub const fn subscriber_of(&self, host: u128) -> Inside {
        Inside::V6(Prefix6::of(host, self.subscriber_len).address())
    }

    /// The prefix of that number.
    pub(crate) fn prefix_of(&self, via: u16) -> Option<NatPrefix> {
        self.prefixes.iter().find(|entry| entry.via == via).map(|entry| entry.prefix)
    }
}
