//! What an instance needs to serve IPv6 hosts (RFC 6146): its prefixes, and whom of them it serves.

use carrack_base::Prefix6;
use carrack_xlat::exchange::SIX_GROWTH;

use crate::flow::Inside;
pub use carrack_xlat::{NatPrefix, Rules};

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
    /// How headers are translated (RFC 7915). A change of it ends nothing.
    pub rules: Rules,
}

/// One NAT64 prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nat64Prefix {
    /// From 1; unique over all instances, and the same over reloads for the same prefix of the same instance.
    pub via: u16,
    /// The prefix.
    pub prefix: NatPrefix,
}

/// A prefix by its number, as packets from IPv4 need it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Behind {
    pub(crate) prefix: NatPrefix,
    pub(crate) rules: Rules,
}

/// The same for the express lane. The alignment makes the way to one by its number a shift.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
pub(crate) struct LaneBehind {
    pub(crate) prefix: NatPrefix,
    /// Longest IPv4 packet that becomes an IPv6 packet which no link need cut (RFC 7915 §4.1).
    pub(crate) uncut_max: u16,
}

impl Behind {
    /// `None` where the express lane, which copies the type of service, does not do what the rules say.
    pub(crate) fn of_lane(&self) -> Option<LaneBehind> {
        let uncut_max = self.rules.lowest_ipv6_mtu.saturating_sub(SIX_GROWTH as u16);
        let prefix = self.prefix;
        (!self.rules.zero_traffic_class).then_some(LaneBehind { prefix, uncut_max })
    }
}

impl Nat64 {
    /// Whom it serves, and by what: all that decides which sessions there may be.
    pub(crate) fn reach(&self) -> (&[Nat64Prefix], &[Prefix6], u8) {
        (&self.prefixes, &self.subscribers, self.subscriber_len)
    }

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
