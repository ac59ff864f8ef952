//! Own IPv6 addresses: none is used before the link was asked whether somebody has it (RFC 4862 §5.4).

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use carrack_base::{IfIndex, Now};
use carrack_wire::MacAddr;

/// Time to wait for an objection: `RetransTimer` after `DupAddrDetectTransmits` of one (RFC 4862 §5.1).
const OBJECTION_NS: u64 = 1_000_000_000;

/// May an own address be used?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// The link has been asked; not yet.
    Tentative,
    /// Yes.
    Preferred,
    /// Somebody else has it: the station with this MAC address.
    Duplicate(MacAddr),
}

impl Use {
    /// The word for CLI and API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tentative => "tentative",
            Self::Preferred => "preferred",
            Self::Duplicate(_) => "duplicate",
        }
    }
}

/// An own IPv6 address and whether it may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnRow {
    /// Interface it is of.
    pub interface: IfIndex,
    /// The address.
    pub ip: Ipv6Addr,
    /// May it be used?
    pub state: Use,
}

/// Interface and own address.
type Key = (IfIndex, u128);

/// All own addresses.
#[derive(Debug, Default)]
pub(crate) struct Own6 {
    /// With the time at which a tentative one may be used.
    all: BTreeMap<Key, (Use, Now)>,
    /// Grows whenever one of them comes, goes, or changes its state.
    version: u64,
}

impl Own6 {
    /// Keeps these addresses and takes new ones in; those for which `is_fresh` says so begin anew, as do duplicates.
    /// Returns the ones that the link is to be asked about.
    pub(crate) fn configure(
        &mut self,
        now: Now,
        own: impl Iterator<Item = Key>,
        is_fresh: impl Fn(IfIndex) -> bool,
    ) -> Vec<Key> {
        self.version += 1;
        let mut old = std::mem::take(&mut self.all);
        let mut asked = Vec::new();
        for key in own {
            let kept =
                old.remove(&key).filter(|(state, _)| !matches!(state, Use::Duplicate(_)) && !is_fresh(key.0));
            if kept.is_none() {
                asked.push(key);
            }
            let begun = (Use::Tentative, now.plus_ns(OBJECTION_NS));
            self.all.insert(key, kept.unwrap_or(begun));
        }
        asked
    }

    /// May this address be used? `None` when it is not ours.
    pub(crate) fn state(&self, interface: IfIndex, address: u128) -> Option<Use> {
        self.all.get(&(interface, address)).map(|(state, _)| *state)
    }

    pub(crate) fn is_preferred(&self, interface: IfIndex, address: u128) -> bool {
        self.state(interface, address) == Some(Use::Preferred)
    }

    /// Somebody else has it.
    pub(crate) fn set_duplicate(&mut self, interface: IfIndex, address: u128, mac: MacAddr) {
        if let Some((state, _)) = self.all.get_mut(&(interface, address)) {
            *state = Use::Duplicate(mac);
            self.version += 1;
        }
    }

    /// All of them.
    pub(crate) fn rows(&self) -> impl Iterator<Item = OwnRow> {
        self.all.iter().map(|((interface, address), (state, _))| OwnRow {
            interface: *interface,
            ip: Ipv6Addr::from(*address),
            state: *state,
        })
    }

    pub(crate) const fn version(&self) -> u64 {
        self.version
    }

    /// The addresses that nobody objected to in time.
    pub(crate) fn step(&mut self, now: Now) -> Vec<Key> {
        let mut ready = Vec::new();
        for (key, (state, due)) in &mut self.all {
            if *state == Use::Tentative && *due <= now {
                *state = Use::Preferred;
                ready.push(*key);
            }
        }
        self.version += u64::from(!ready.is_empty());
        ready
    }

    /// When the next step is due.
    pub(crate) fn next_due(&self) -> Option<Now> {
        self.all.values().filter(|(state, _)| *state == Use::Tentative).map(|(_, due)| *due).min()
    }
}
