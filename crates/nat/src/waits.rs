//! Blocks that wait for a time: those in their hold time, those that may soon be idle.
//!
//! A reload hands its queues on as they are, without a look at any of a million blocks. So an entry may name a block
//! that did not come along: a block knows by its mark in which queue it waits, and only that queue's entry counts.

use std::collections::VecDeque;

use crate::line::BlockRef;

/// The mark of a block that waits in no queue.
pub(crate) const NOWHERE: u8 = 0;

/// A block and the second from which on it is due.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waiting {
    pub(crate) due_s: u32,
    pub(crate) at: BlockRef,
}

#[derive(Debug)]
struct Queue {
    mark: u8,
    entries: VecDeque<Waiting>,
}

/// Blocks waiting, by the order in which they came.
#[derive(Debug)]
pub(crate) struct Waits {
    /// Those before the last are from before a reload.
    queues: Vec<Queue>,
}

impl Waits {
    /// Nobody waits. There is room for so many blocks.
    pub(crate) fn new(blocks: usize) -> Self {
        Self { queues: vec![Queue { mark: 1, entries: VecDeque::with_capacity(blocks) }] }
    }

    /// Another block waits: its mark from now on.
    pub(crate) fn push(&mut self, waiting: Waiting) -> u8 {
        // Invariant: there is a last queue at all times.
        let Some(queue) = self.queues.last_mut() else { return NOWHERE };
        queue.entries.push_back(waiting);
        queue.mark
    }

    /// Takes the next that is due, and the mark its block has if it still waits.
    pub(crate) fn take_due(&mut self, now_s: u32) -> Option<(Waiting, u8)> {
        self.queues.iter_mut().find_map(|queue| {
            queue.entries.front().filter(|waiting| waiting.due_s <= now_s)?;
            Some((queue.entries.pop_front()?, queue.mark))
        })
    }

    /// Goes on with what waited before. Empty queues stay behind, to be freed where no packet waits.
    pub(crate) fn follow(&mut self, old: &mut Self) {
        let mine = std::mem::take(&mut self.queues);
        let last = old.queues.last().map_or(NOWHERE, |queue| queue.mark);
        let (waiting, empty) =
            std::mem::take(&mut old.queues).into_iter().partition(|q| !q.entries.is_empty());
        (self.queues, old.queues) = (waiting, empty);
        // Invariant: nobody reloads a pool 255 times within a hold time. If he did, a block would wait until the next.
        let mark = last % u8::MAX + 1;
        self.queues.extend(mine.into_iter().map(|queue| Queue { mark, ..queue }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(block: u16) -> BlockRef {
        BlockRef { address: 0, block }
    }

    #[test]
    fn those_from_before_a_reload_keep_their_marks_and_their_turn() {
        let mut first = Waits::new(4);
        let old = first.push(Waiting { due_s: 5, at: block(1) });
        let mut second = Waits::new(4);
        second.follow(&mut first);
        let new = second.push(Waiting { due_s: 3, at: block(2) });
        assert_ne!(old, new);
        assert!(second.take_due(2).is_none());
        let due: Vec<_> = std::iter::from_fn(|| second.take_due(5)).map(|(w, mark)| (w.at, mark)).collect();
        assert_eq!(due, [(block(1), old), (block(2), new)]);
    }

    #[test]
    fn marks_of_queues_that_wait_together_differ() {
        let mut waits = Waits::new(1);
        let mut marks = Vec::new();
        for number in 0..250 {
            marks.push(waits.push(Waiting { due_s: 1, at: block(number) }));
            let mut next = Waits::new(1);
            next.follow(&mut waits);
            waits = next;
        }
        marks.sort_unstable();
        marks.dedup();
        assert_eq!((marks.len(), marks.contains(&NOWHERE)), (250, false));
    }
}
