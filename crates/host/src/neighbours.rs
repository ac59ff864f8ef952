//! The neighbour table: who is behind which address, how sure that is, and when to ask again.

use std::collections::{BTreeMap, BTreeSet};

use core::net::IpAddr;

use carrack_base::{IfIndex, Now};
use carrack_wire::MacAddr;

use crate::config::ArpTimers;

/// How sure the router is of a neighbour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NeighbourState {
    /// Asked for, not answered yet.
    Incomplete,
    /// Heard of not long ago.
    Reachable,
    /// Told its own MAC address without being asked (RFC 4861 §7.3.2); used, and asked soon.
    Stale,
    /// Asked again whether it is still there; still used meanwhile.
    Probing,
    /// Did not answer.
    Failed,
}

impl NeighbourState {
    /// The word for CLI and API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Incomplete => "incomplete",
            Self::Reachable => "reachable",
            Self::Stale => "stale",
            Self::Probing => "probing",
            Self::Failed => "failed",
        }
    }
}

/// One neighbour, for management.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NeighbourRow {
    /// Interface it is on.
    pub interface: IfIndex,
    /// Its address.
    pub ip: IpAddr,
    /// Its MAC address, when known.
    pub mac: Option<MacAddr>,
    /// How sure.
    pub state: NeighbourState,
    /// Seconds since it was last heard of; for incomplete and failed ones, since it was first asked for.
    pub age_s: u32,
}

/// Interface and address.
pub(crate) type Key = (IfIndex, IpAddr);

/// What a due timer asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    /// Ask everybody.
    AskAll(Key),
    /// Ask the neighbour itself.
    AskOne(Key, MacAddr),
    /// It did not answer.
    Gone(Key),
    /// A remembered failure is over: nothing to tell.
    Forgotten,
}

/// Why a neighbour was not entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The table is full.
    Full,
    /// Too many addresses are being asked for.
    TooManyPending,
    /// It failed just now.
    Failed,
}

/// How a neighbour was heard of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Heard {
    /// A new entry may be made.
    pub(crate) may_create: bool,
    /// It answered us, or spoke in a protocol that makes no difference.
    pub(crate) is_answer: bool,
}

/// Time until a neighbour that nobody asked is asked: `DELAY_FIRST_PROBE_TIME` (RFC 4861 §10).
const FIRST_PROBE_NS: u64 = 5_000_000_000;

/// Addresses being asked for at once: somebody who scans a subnet fills no more than these.
pub(crate) const PENDING_MAX: usize = 1_024;

#[derive(Debug, Clone, Copy)]
struct Neighbour {
    mac: MacAddr,
    state: NeighbourState,
    /// Questions asked since `since` without answer.
    tries: u8,
    /// Last heard of, or first asked for.
    since: Now,
    due: Now,
}

/// The table. Every entry has exactly one timer in `timers`.
#[derive(Debug)]
pub(crate) struct Neighbours {
    rows: BTreeMap<Key, Neighbour>,
    timers: BTreeSet<(Now, Key)>,
    pending: usize,
    failed: usize,
    rows_max: usize,
    timing: ArpTimers,
}

impl Neighbours {
    pub(crate) fn new(timing: ArpTimers, rows_max: usize) -> Self {
        Self { rows: BTreeMap::new(), timers: BTreeSet::new(), pending: 0, failed: 0, rows_max, timing }
    }

    /// Changes times and size; entries keep the timers they have, and those over a smaller size run out by themselves.
    pub(crate) fn configure(&mut self, timing: ArpTimers, rows_max: usize) {
        self.timing = timing;
        self.rows_max = rows_max;
    }

    /// The address's MAC, or starts asking for it.
    pub(crate) fn resolve(&mut self, now: Now, key: Key) -> Result<Resolve, Refused> {
        if let Some(row) = self.rows.get(&key) {
            return match row.state {
                NeighbourState::Incomplete => Ok(Resolve::Pending),
                NeighbourState::Failed => Err(Refused::Failed),
                NeighbourState::Reachable | NeighbourState::Stale | NeighbourState::Probing => {
                    Ok(Resolve::Known(row.mac))
                }
            };
        }
        if self.pending >= PENDING_MAX {
            return Err(Refused::TooManyPending);
        }
        self.make_room()?;
        let due = now.plus_ns(self.retry_ns());
        let state = NeighbourState::Incomplete;
        self.put(key, Neighbour { mac: MacAddr::ZERO, state, tries: 1, since: now, due });
        Ok(Resolve::Ask)
    }

    /// `key` was heard of with `mac`. Returns whether workers need to know.
    pub(crate) fn heard(&mut self, now: Now, key: Key, mac: MacAddr, how: Heard) -> Result<bool, Refused> {
        let known = self.rows.get(&key).copied();
        let news = match known {
            None if !how.may_create => return Ok(false),
            None => {
                self.make_room()?;
                true
            }
            Some(row) => match row.state {
                NeighbourState::Incomplete | NeighbourState::Failed => true,
                NeighbourState::Reachable | NeighbourState::Stale | NeighbourState::Probing => row.mac != mac,
            },
        };
        // Nothing new, and nothing that says that it hears us.
        if !news && !how.is_answer {
            return Ok(false);
        }
        let (state, due) = if how.is_answer {
            (NeighbourState::Reachable, now.plus_ns(self.reachable_ns(key)))
        } else {
            (NeighbourState::Stale, now.plus_ns(FIRST_PROBE_NS))
        };
        self.put(key, Neighbour { mac, state, tries: 0, since: now, due });
        Ok(news)
    }

    /// The MAC address of a neighbour that is known.
    pub(crate) fn mac(&self, key: Key) -> Option<MacAddr> {
        let known = [NeighbourState::Reachable, NeighbourState::Stale, NeighbourState::Probing];
        self.rows.get(&key).filter(|row| known.contains(&row.state)).map(|row| row.mac)
    }

    /// Was `key` asked for, or is it known?
    pub(crate) fn is_wanted(&self, key: Key) -> bool {
        self.rows.get(&key).is_some_and(|row| row.state != NeighbourState::Failed)
    }

    /// The next timer that is due, carried out.
    pub(crate) fn pop_due(&mut self, now: Now) -> Option<Due> {
        let (_, key) = *self.timers.first().filter(|(due, _)| *due <= now)?;
        let row = *self.rows.get(&key)?;
        let asked_enough = row.tries >= self.timing.tries.max(1);
        let due = now.plus_ns(self.retry_ns());
        Some(match row.state {
            NeighbourState::Failed => {
                self.remove(key);
                Due::Forgotten
            }
            NeighbourState::Reachable | NeighbourState::Stale => {
                self.put(key, Neighbour { state: NeighbourState::Probing, tries: 1, due, ..row });
                Due::AskOne(key, row.mac)
            }
            NeighbourState::Incomplete | NeighbourState::Probing if asked_enough => {
                let due = now.plus_ns(u64::from(self.timing.failed_s.max(1)) * 1_000_000_000);
                self.put(key, Neighbour { state: NeighbourState::Failed, since: now, due, ..row });
                Due::Gone(key)
            }
            NeighbourState::Incomplete => {
                self.put(key, Neighbour { tries: row.tries + 1, due, ..row });
                Due::AskAll(key)
            }
            NeighbourState::Probing => {
                self.put(key, Neighbour { tries: row.tries + 1, due, ..row });
                Due::AskOne(key, row.mac)
            }
        })
    }

    /// When the first timer is due.
    pub(crate) fn next_due(&self) -> Option<Now> {
        self.timers.first().map(|(due, _)| *due)
    }

    /// Removes every entry that `keep` refuses and returns their keys.
    pub(crate) fn retain(&mut self, keep: impl Fn(Key) -> bool) -> Vec<Key> {
        let doomed: Vec<Key> = self.rows.keys().copied().filter(|key| !keep(*key)).collect();
        for key in &doomed {
            self.remove(*key);
        }
        doomed
    }

    /// All rows, by interface and address.
    pub(crate) fn rows(&self, now: Now) -> impl Iterator<Item = NeighbourRow> {
        self.rows.iter().map(move |(&(interface, ip), row)| NeighbourRow {
            interface,
            ip,
            mac: row.mac.is_station().then_some(row.mac),
            state: row.state,
            age_s: (now.ns.saturating_sub(row.since.ns) / 1_000_000_000) as u32,
        })
    }

    fn put(&mut self, key: Key, row: Neighbour) {
        self.remove(key);
        self.count(row.state, 1);
        self.timers.insert((row.due, key));
        self.rows.insert(key, row);
    }

    fn remove(&mut self, key: Key) {
        if let Some(row) = self.rows.remove(&key) {
            self.count(row.state, -1);
            self.timers.remove(&(row.due, key));
        }
    }

    fn count(&mut self, state: NeighbourState, delta: isize) {
        match state {
            NeighbourState::Incomplete => self.pending = self.pending.saturating_add_signed(delta),
            NeighbourState::Failed => self.failed = self.failed.saturating_add_signed(delta),
            NeighbourState::Reachable | NeighbourState::Stale | NeighbourState::Probing => {}
        }
    }

    /// Room for one more entry: remembered failures give way, neighbours never do.
    fn make_room(&mut self) -> Result<(), Refused> {
        if self.rows.len() < self.rows_max {
            return Ok(());
        }
        if self.failed == 0 {
            return Err(Refused::Full);
        }
        let failure = self.rows.iter().find(|(_, row)| row.state == NeighbourState::Failed);
        let key = failure.map(|(key, _)| *key).ok_or(Refused::Full)?;
        self.remove(key);
        Ok(())
    }

    fn retry_ns(&self) -> u64 {
        u64::from(self.timing.retry_ms.max(100)) * 1_000_000
    }

    /// The configured time less up to an eighth that depends on the address, so that neighbours learnt together are not
    /// asked together for ever.
    fn reachable_ns(&self, (interface, ip): Key) -> u64 {
        let whole = u64::from(self.timing.reachable_s.max(1)) * 1_000_000_000;
        let low = match ip {
            IpAddr::V4(ip) => u32::from(ip),
            IpAddr::V6(ip) => u128::from(ip) as u32,
        };
        let spread = (low ^ (u32::from(interface.0) << 16)).wrapping_mul(0x9e37_79b1) >> 24;
        whole - whole / 8 * u64::from(spread) / 256
    }
}

/// What resolving an address came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resolve {
    /// It has this MAC address.
    Known(MacAddr),
    /// It is being asked for.
    Pending,
    /// It was unknown; the caller asks now.
    Ask,
}
