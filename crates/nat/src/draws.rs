//! Where the next new port blocks will be looked for, drawn ahead: all that a new block touches lies anywhere in memory, so
//! it is asked for some blocks before it is needed, one step after the other.

use std::collections::VecDeque;
use std::ops::Range;

/// A place to look for a free block: an address that has, or may have, some, and where on it to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Draw {
    /// Number of the address in the block map.
    pub(crate) number: u16,
    /// Which of its blocks to begin with, of 65,536 as many as it has: how many that are lies with the address.
    hint: u16,
}

impl Draw {
    pub(crate) const fn new(number: u16, hint: u16) -> Self {
        Self { number, hint }
    }

    /// The block of that range to begin with.
    pub(crate) const fn start(self, blocks: &Range<u16>) -> u16 {
        let count = blocks.end.saturating_sub(blocks.start);
        blocks.start + ((self.hint as u32 * count as u32) >> 16) as u16
    }
}

/// Draws waiting: one goes, one comes.
const AHEAD: usize = 12;
/// So many draws before its turn, the lines that the address's own lead to are fetched.
const SECOND_STEP: usize = 8;
/// So many before, the block's.
const THIRD_STEP: usize = 4;

/// The next draws of a worker, in their order.
#[derive(Debug)]
pub(crate) struct Draws {
    /// At most [`AHEAD`]: its memory is there from the beginning.
    waiting: VecDeque<Draw>,
}

/// What comes next in each step of fetching.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Steps {
    pub(crate) address: Option<Draw>,
    pub(crate) lists: Option<Draw>,
    pub(crate) block: Option<Draw>,
}

impl Draws {
    pub(crate) fn new() -> Self {
        Self { waiting: VecDeque::with_capacity(AHEAD + 1) }
    }

    /// The next one; `draw` makes another for it, or none when there is nothing to draw.
    pub(crate) fn next(&mut self, draw: impl FnMut() -> Option<Draw>) -> Option<Draw> {
        let missing = (AHEAD + 1).saturating_sub(self.waiting.len());
        self.waiting.extend(std::iter::from_fn(draw).take(missing));
        self.waiting.pop_front()
    }

    /// Those that have just moved up to a step.
    pub(crate) fn steps(&self) -> Steps {
        let at = |place: usize| self.waiting.get(place).copied();
        Steps { address: at(AHEAD - 1), lists: at(SECOND_STEP - 1), block: at(THIRD_STEP - 1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_come_in_their_order_and_reach_each_step_once() {
        let mut draws = Draws::new();
        let mut made = 0;
        let mut steps = Vec::new();
        for number in 0..40 {
            let draw = || {
                made += 1;
                Some(Draw::new(made - 1, 7))
            };
            assert_eq!(draws.next(draw), Some(Draw::new(number, 7)));
            steps.push(draws.steps());
        }
        assert_eq!(made, 40 + AHEAD as u16);
        let column = |of: fn(&Steps) -> Option<Draw>| -> Vec<u16> {
            steps.iter().map(|step| of(step).unwrap().number).collect()
        };
        let from = |first: usize| (first as u16..first as u16 + 40).collect::<Vec<u16>>();
        assert_eq!(column(|step| step.address), from(AHEAD));
        assert_eq!(column(|step| step.lists), from(SECOND_STEP));
        assert_eq!(column(|step| step.block), from(THIRD_STEP));
    }

    #[test]
    fn a_hint_is_a_place_in_the_range_whatever_its_size() {
        for (range, hint, start) in
            [(0..252, 0, 0), (0..252, u16::MAX, 251), (100..300, 32_768, 200), (7..8, u16::MAX, 7)]
        {
            assert_eq!(Draw::new(0, hint).start(&range), start);
        }
    }

    #[test]
    fn nothing_to_draw_is_nothing() {
        let mut draws = Draws::new();
        assert_eq!(draws.next(|| None), None);
        assert_eq!(draws.steps(), Steps::default());
        // What was drawn before is still good.
        let mut left = 3;
        let few = || {
            left -= 1;
            (left >= 0).then(|| Draw::new(left as u16, 0))
        };
        assert_eq!(draws.next(few), Some(Draw::new(2, 0)));
        let rest: Vec<_> = std::iter::from_fn(|| draws.next(|| None)).collect();
        assert_eq!(rest, [Draw::new(1, 0), Draw::new(0, 0)]);
    }
}
