//! Memory asked for while something else is done: many items go through the same few steps, and each step of an item comes
//! a few items after the one before it, so that what one step asked for is there when the next reads it, and the work on
//! others goes on meanwhile.

/// Items between two steps of one.
const APART: usize = 4;

/// Turns that it takes to bring so many items through so many steps.
pub(crate) const fn turns(items: usize, steps: usize) -> usize {
    if items == 0 { 0 } else { items + (steps - 1) * APART }
}

/// The item whose step, counted from 0, comes in this turn.
#[inline(always)]
pub(crate) fn due<T>(items: &mut [T], turn: usize, step: usize) -> Option<&mut T> {
    items.get_mut(turn.checked_sub(step * APART)?)
}

/// Items before the one of [`due`] whose next step is still to come in this turn or later.
#[inline(always)]
pub(crate) const fn behind(turn: usize, step: usize) -> usize {
    let at = turn.saturating_sub(step * APART);
    if at < APART { at } else { APART }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_has_every_step_once_in_order_and_a_few_items_apart() {
        for count in [0, 1, 3, 4, 5, 64] {
            let mut items: Vec<Vec<usize>> = vec![vec![]; count];
            for turn in 0..turns(count, 3) {
                for step in 0..3 {
                    let before = turn.saturating_sub(step * APART).min(count);
                    let waiting = items[..before].iter().filter(|item| item.len() == step + 1).count();
                    if let Some(item) = due(&mut items, turn, step) {
                        assert_eq!(item.len(), step);
                        item.push(turn);
                        assert!(step == 2 || behind(turn, step) == waiting);
                    }
                }
            }
            for (at, item) in items.iter().enumerate() {
                assert_eq!(*item, [at, at + APART, at + 2 * APART]);
            }
        }
    }
}
