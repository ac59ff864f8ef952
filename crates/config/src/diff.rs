//! What a reload would change, and what each change does to a running daemon.

use std::collections::BTreeSet;
use std::fmt;

use crate::keys::{self, Effect};
use crate::model::{Config, Facts, NatConfig, SEPARATOR};

/// One difference between two configs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// What: `nat.cgn1.timeouts.udp`, or `nat.cgn1` for a whole element.
    pub path: String,
    /// Value before; `None` when it was not there.
    pub from: Option<String>,
    /// Value after; `None` when it is no longer there.
    pub to: Option<String>,
    /// What the change does.
    pub effect: Effect,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, from, to, effect } = self;
        match (from.as_deref(), to.as_deref()) {
            (None, Some(PRESENT)) => write!(f, "{path}: added")?,
            (Some(PRESENT), None) => write!(f, "{path}: removed")?,
            (from, to) => write!(f, "{path}: {} -> {}", from.unwrap_or("not set"), to.unwrap_or("not set"))?,
        }
        write!(f, " ({effect})")
    }
}

/// The value of an element that is there.
const PRESENT: &str = "present";

/// All differences, by path. Comments, order of tables, and how a value is written make none; the order of an
/// instance's pools does.
#[must_use]
pub fn diff(old: &Config, new: &Config) -> Vec<Change> {
    let (before, after) = (&old.facts, &new.facts);
    let mut changes = Vec::new();
    let present = || Some(PRESENT.to_owned());
    let mut gone_or_new = elements(before, after, |path, effect| {
        changes.push(Change { path, from: present(), to: None, effect });
    });
    gone_or_new.extend(elements(after, before, |path, effect| {
        changes.push(Change { path, from: None, to: present(), effect });
    }));
    let counted = |path: &str| ancestors(path).any(|ancestor| gone_or_new.contains(ancestor));
    let paths: BTreeSet<&String> = before.values.keys().chain(after.values.keys()).collect();
    for path in paths.into_iter().filter(|path| !counted(path)) {
        let (from, to) = (before.values.get(path), after.values.get(path));
        let value = |side: Option<&(&'static keys::KeyInfo, String)>| side.map(|(_, text)| text.clone());
        let (from_text, to_text) = (value(from), value(to));
        if let Some((key, _)) = from.or(to)
            && from_text != to_text
        {
            changes.push(Change { path: path.clone(), from: from_text, to: to_text, effect: key.effect });
        }
    }
    changes.extend(new.nat.iter().filter_map(|nat| pool_order(old, nat)));
    for change in &mut changes {
        change.path = change.path.replace(SEPARATOR, ".");
    }
    changes.sort_by(|a, b| a.path.cmp(&b.path));
    changes
}

/// The elements of `these` that `those` lacks; the outermost are given to `note`.
fn elements(these: &Facts, those: &Facts, mut note: impl FnMut(String, Effect)) -> BTreeSet<String> {
    let only: BTreeSet<String> =
        these.items.keys().filter(|path| !those.items.contains_key(*path)).cloned().collect();
    for path in only.iter().filter(|path| !ancestors(path).any(|ancestor| only.contains(ancestor))) {
        note(path.clone(), element_effect(these, path));
    }
    only
}

fn element_effect(facts: &Facts, path: &str) -> Effect {
    let section = facts.items.get(path).and_then(|section| keys::section(section));
    let inner = format!("{path}{SEPARATOR}");
    let restart = facts
        .values
        .range(inner.clone()..)
        .take_while(|(value, _)| value.starts_with(&inner))
        .any(|(_, (key, _))| key.effect == Effect::NeedsRestart);
    match section {
        Some(section) if !restart => section.effect,
        _ => Effect::NeedsRestart,
    }
}

/// `a.b` and `a` for `a.b.c`.
fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices(SEPARATOR).map(|(at, _)| &path[..at])
}

/// Pools are used in the order they are written.
fn pool_order(old: &Config, nat: &NatConfig) -> Option<Change> {
    let before = old.nat.iter().find(|before| before.name == nat.name)?;
    let names = |nat: &NatConfig, other: &NatConfig| -> Vec<String> {
        let in_both = nat.pools.iter().filter(|pool| other.pools.iter().any(|other| other.name == pool.name));
        in_both.map(|pool| pool.name.value.clone()).collect()
    };
    let (from, to) = (names(before, nat), names(nat, before));
    (from != to).then(|| Change {
        path: format!("nat.{}.pool", nat.name),
        from: Some(from.join(", ")),
        to: Some(to.join(", ")),
        effect: keys::section("nat.pool").map_or(Effect::InPlace, |section| section.effect),
    })
}

#[cfg(test)]
mod tests;
