//! When router advertisements are due (RFC 4861 §6.2.4, §6.2.6).

use std::collections::BTreeMap;

use carrack_base::{IfIndex, Now};
use carrack_wire::ethernet::MacAddr;

use crate::asking::{Asking, Soliciting};

/// After the check of the link-local address that they come from.
const FIRST_NS: u64 = 1_500_000_000;
/// `MAX_INITIAL_RTR_ADVERTISEMENTS`, and at most so long between them (`MAX_INITIAL_RTR_ADVERT_INTERVAL`).
const INITIAL: u32 = 3;
const INITIAL_NS: u64 = 16_000_000_000;
/// `MIN_DELAY_BETWEEN_RAS`.
const BETWEEN_NS: u64 = 3_000_000_000;

/// A number that nobody knows beforehand who does not know the time to the nanosecond.
pub(crate) const fn drawn(count: u32, now: Now) -> u32 {
    count.wrapping_add(now.ns as u32).wrapping_mul(0x9e37_79b1)
}

#[derive(Debug, Clone, Copy)]
struct Plan {
    interval_ns: u64,
    due: Now,
    last: Option<Now>,
    sent: u32,
}

/// The plans of all interfaces that advertise.
#[derive(Debug, Default)]
pub(crate) struct Advertiser {
    plans: BTreeMap<IfIndex, Plan>,
    soliciting: Soliciting,
}

impl Advertiser {
    /// Advertises on these interfaces, each with its longest interval in seconds; a new or changed one begins anew.
    pub(crate) fn configure(
        &mut self,
        now: Now,
        all: impl Iterator<Item = (IfIndex, u16)>,
        is_changed: impl Fn(IfIndex) -> bool,
    ) {
        let old = std::mem::take(&mut self.plans);
        for (id, interval_s) in all {
            let interval_ns = u64::from(interval_s.max(4)) * 1_000_000_000;
            let begun = Plan { interval_ns, due: now.plus_ns(FIRST_NS), last: None, sent: 0 };
            let kept = old.get(&id).filter(|_| !is_changed(id)).copied();
            self.plans.insert(id, kept.unwrap_or(begun));
        }
        self.soliciting.retain(|interface, ()| self.plans.contains_key(&interface));
    }

    /// Somebody without an address asks: all are told, as soon as may be.
    pub(crate) fn hurry(&mut self, now: Now, interface: IfIndex) {
        let soon = self.soliciting.soon(now);
        if let Some(plan) = self.plans.get_mut(&interface) {
            let earliest = plan.last.map_or(soon, |last| last.plus_ns(BETWEEN_NS).max(soon));
            plan.due = plan.due.min(earliest);
        }
    }

    /// Somebody asks who can be answered alone, soon; with too many of them all are told at once.
    pub(crate) fn asked_by(&mut self, now: Now, interface: IfIndex, address: u128, mac: MacAddr) {
        let advertises = self.plans.contains_key(&interface);
        if advertises && !self.soliciting.asked_by(now, interface, (), address, mac) {
            self.hurry(now, interface);
        }
    }

    /// Hosts that are to be answered now.
    pub(crate) fn answers(&mut self, now: Now) -> Vec<Asking<()>> {
        self.soliciting.answers(now)
    }

    /// Interfaces on which all are to be told now.
    pub(crate) fn step(&mut self, now: Now) -> Vec<IfIndex> {
        let mut due = Vec::new();
        for (id, plan) in self.plans.iter_mut().filter(|(_, plan)| plan.due <= now) {
            due.push(*id);
            plan.sent = plan.sent.saturating_add(1);
            plan.last = Some(now);
            plan.due = now.plus_ns(plan.rest_ns(*id));
        }
        due
    }

    /// When the next step is due.
    pub(crate) fn next_due(&self) -> Option<Now> {
        self.plans.values().map(|plan| plan.due).chain(self.soliciting.next_due()).min()
    }
}

impl Plan {
    /// The interval less up to a third, so that routers of a link do not fall into step.
    fn rest_ns(&self, id: IfIndex) -> u64 {
        let spread = self.sent.wrapping_add(u32::from(id.0) << 8).wrapping_mul(0x9e37_79b1) >> 24;
        let rest = self.interval_ns - self.interval_ns / 3 * u64::from(spread) / 256;
        if self.sent < INITIAL { rest.min(INITIAL_NS) } else { rest }
    }
}
