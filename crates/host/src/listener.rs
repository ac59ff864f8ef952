//! Multicast groups that the router listens to on its links, and when it says so (RFC 3810 §6): at once and once more
//! when that changes, and when a router asks.

use std::collections::{BTreeMap, BTreeSet};

use carrack_base::{IfIndex, Now};
use carrack_wire::mld::{MldVersion, Query, Said};

/// Times a change is reported: the robustness variable (RFC 3810 §9.1).
const ROUNDS: u8 = 2;
/// Between two reports of a change: the unsolicited report interval of one second (RFC 3810 §9.11), and a little, so
/// that the second comes from an address that was still being checked at the first.
const ROUND_NS: u64 = 1_100_000_000;

/// What is to be said on a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) interface: IfIndex,
    pub(crate) version: MldVersion,
    pub(crate) records: Vec<(Said, u128)>,
}

#[derive(Debug, Default)]
struct Link {
    groups: BTreeSet<u128>,
    /// Changes still to be reported, with how many times more.
    changed: BTreeMap<u128, (Said, u8)>,
    /// When they are.
    change_due: Option<Now>,
    /// What was asked for, and when it is answered.
    asked: Option<(Query, Now)>,
}

/// All links.
#[derive(Debug, Default)]
pub(crate) struct Listener {
    links: BTreeMap<IfIndex, Link>,
}

impl Listener {
    /// Listens to these groups from now on; on a link for which `is_fresh` says so, to all anew.
    pub(crate) fn configure(
        &mut self,
        now: Now,
        all: impl Iterator<Item = (IfIndex, BTreeSet<u128>)>,
        is_fresh: impl Fn(IfIndex) -> bool,
    ) {
        let mut old = std::mem::take(&mut self.links);
        for (id, groups) in all {
            let mut link = old.remove(&id).filter(|_| !is_fresh(id)).unwrap_or_default();
            let joined = groups.difference(&link.groups).map(|group| (*group, Said::Joined));
            let left = link.groups.difference(&groups).map(|group| (*group, Said::Left));
            let news: Vec<_> = joined.chain(left).collect();
            if !news.is_empty() {
                link.change_due = Some(now);
            }
            link.changed.extend(news.into_iter().map(|(group, said)| (group, (said, ROUNDS))));
            link.groups = groups;
            self.links.insert(id, link);
        }
    }

    /// A router asks. It is answered within the time it gives, at a moment that differs from station to station
    /// (RFC 3810 §6.2).
    pub(crate) fn asked(&mut self, now: Now, interface: IfIndex, query: Query) {
        let Some(link) = self.links.get_mut(&interface) else { return };
        if query.group != 0 && !link.groups.contains(&query.group) {
            return;
        }
        let part =
            u64::from(u32::from(interface.0).wrapping_add(query.response_ms).wrapping_mul(0x9e37_79b1) >> 24);
        let due = now.plus_ns(u64::from(query.response_ms) * 1_000_000 * part / 256);
        link.asked = Some(match link.asked {
            Some((before, then)) => {
                // Two questions, one answer: about all groups unless both ask for the same.
                let group = if before.group == query.group { query.group } else { 0 };
                (Query { group, ..query }, then.min(due))
            }
            None => (query, due),
        });
    }

    /// What is due.
    pub(crate) fn step(&mut self, now: Now) -> Vec<Report> {
        let mut reports = Vec::new();
        for (id, link) in &mut self.links {
            if link.change_due.is_some_and(|due| due <= now) {
                let records = link.changed.iter().map(|(group, (said, _))| (*said, *group)).collect();
                reports.push(Report { interface: *id, version: MldVersion::V2, records });
                link.changed.retain(|_, (_, rounds)| {
                    *rounds -= 1;
                    *rounds > 0
                });
                link.change_due = (!link.changed.is_empty()).then(|| now.plus_ns(ROUND_NS));
            }
            if let Some((query, _)) = link.asked.take_if(|(_, due)| *due <= now) {
                let wanted = link.groups.iter().filter(|group| query.group == 0 || query.group == **group);
                let records = wanted.map(|group| (Said::Listening, *group)).collect();
                reports.push(Report { interface: *id, version: query.version, records });
            }
        }
        reports
    }

    /// When the next step is due.
    pub(crate) fn next_due(&self) -> Option<Now> {
        let of = |link: &Link| [link.change_due, link.asked.map(|(_, due)| due)];
        self.links.values().flat_map(of).flatten().min()
    }
}
