//! Ids that stay with their names.

use std::collections::BTreeMap;

/// Names by id. A name keeps its id as long as anything remembers it.
#[derive(Debug, Clone, Default)]
pub(super) struct Slots {
    names: Vec<String>,
    /// Was the name in the last config?
    live: Vec<bool>,
    by_name: BTreeMap<String, u16>,
}

impl Slots {
    /// The slots for the names of a new config. `None` when more than `most` ids would be needed.
    pub(super) fn next(&self, wanted: &[&str], most: usize) -> Option<Self> {
        let mut next = Self { live: vec![false; self.names.len()], ..self.clone() };
        let mut new = Vec::new();
        for name in wanted {
            match next.by_name.get(*name) {
                Some(id) => next.live[usize::from(*id)] = true,
                None => new.push(*name),
            }
        }
        // Holes that are as old as the config before the last; only touched when there are no fresh ids.
        let mut holes = 0..self.names.len();
        for name in new {
            if next.by_name.contains_key(name) {
                continue;
            }
            let id = if next.names.len() < most {
                next.names.push(name.to_owned());
                next.live.push(true);
                next.names.len() - 1
            } else {
                let hole = holes.find(|hole| !self.live[*hole] && !next.live[*hole])?;
                next.by_name.remove(&next.names[hole]);
                next.names[hole] = name.to_owned();
                next.live[hole] = true;
                hole
            };
            next.by_name.insert(name.to_owned(), u16::try_from(id).ok()?);
        }
        Some(next)
    }

    /// The id of a name; 0 for one that is not there, which validation excludes.
    pub(super) fn id(&self, name: &str) -> u16 {
        self.by_name.get(name).copied().unwrap_or(0)
    }

    /// All names by id, holes included.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_its_id_and_a_removed_ones_id_is_not_given_away() {
        let first = Slots::default().next(&["a", "b", "c"], 10).unwrap();
        let second = first.next(&["c", "d"], 10).unwrap();
        assert_eq!((second.id("c"), second.id("d")), (2, 3));
        let third = second.next(&["b", "e"], 10).unwrap();
        assert_eq!((third.id("b"), third.id("e")), (1, 4));
    }

    #[test]
    fn a_hole_is_used_only_when_ids_run_out_and_not_by_the_change_that_makes_it() {
        let first = Slots::default().next(&["a", "b"], 2).unwrap();
        assert!(first.next(&["a", "c"], 2).is_none(), "b's id is still in the tables");
        let second = first.next(&["a"], 2).unwrap();
        let third = second.next(&["a", "c"], 2).unwrap();
        assert_eq!((third.id("a"), third.id("c")), (0, 1));
        assert!(!third.by_name.contains_key("b"));
    }
}
