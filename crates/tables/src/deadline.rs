//! Expiry: two bytes a line, and a sweep that skims them.
//!
//! A line's deadline is the earliest second at which it might have to go. Traffic does not touch it; the
//! sweep asks the line's owner, who knows when it was last used, and who sets the next deadline or frees the
//! line. So a busy session costs one look per timeout, and nothing per packet.

use crate::arena::{Arena, ArenaArray, ArenaError};

/// Deadlines looked at together: two cache lines.
const GROUP: usize = 64;

/// One deadline in seconds for each line of a slab.
///
/// Deadlines are kept modulo 65,536 s and compared as signed differences: one has to be set less than 32,768
/// s (nine hours) ahead and swept less than 32,768 s after it came. A timeout of up to 30,000 s and a sweep
/// every few seconds are well within that. Longer timeouts are made of several: the owner sets the next
/// deadline when asked.
#[derive(Debug)]
pub struct Deadlines {
    /// Zero is none.
    seconds: ArenaArray<u16>,
    cursor: usize,
    /// No line from here on ever had a deadline.
    high_water: usize,
}

impl Deadlines {
    /// Bytes the deadlines of `capacity` lines take from their arena.
    pub const fn bytes_for(capacity: usize) -> usize {
        Arena::bytes_for::<u16>(capacity.next_multiple_of(GROUP))
    }

    /// Carves deadlines for `capacity` lines, all none.
    pub fn new(arena: &mut Arena, capacity: usize) -> Result<Deadlines, ArenaError> {
        Ok(Deadlines { seconds: arena.array(capacity.next_multiple_of(GROUP))?, cursor: 0, high_water: 0 })
    }

    /// Sets a line's deadline. A deadline that falls on the one unrepresentable second is kept a second
    /// later, never earlier. An id out of range is ignored.
    #[inline]
    pub fn set(&mut self, id: u32, deadline_s: u32) {
        if let Some(slot) = self.seconds.get_mut(id as usize) {
            *slot = (deadline_s as u16).max(1);
            self.high_water = self.high_water.max(id as usize + 1);
        }
    }

    /// Takes a line's deadline away.
    #[inline]
    pub fn clear(&mut self, id: u32) {
        if let Some(slot) = self.seconds.get_mut(id as usize) {
            *slot = 0;
        }
    }

    /// Skims up to `budget_lines` lines (rounded up to 64) from where the last sweep ended, wrapping round,
    /// and calls `out` for each whose deadline has come. The deadlines stay: the owner sets or clears them
    /// afterwards, or is asked again next time round. No line is visited twice in one call. Returns the lines
    /// skimmed.
    #[inline]
    pub fn sweep(&mut self, now_s: u32, budget_lines: usize, out: &mut impl FnMut(u32)) -> usize {
        self.skim(now_s, budget_lines, &mut |id| {
            out(id);
            true
        })
    }

    /// As [`Deadlines::sweep`], but writes the ids to `due` and stops when that is full, so that the work of
    /// one call is bounded however many deadlines come at once. Returns the number of ids written, and of lines
    /// skimmed.
    #[inline]
    pub fn collect_due(&mut self, now_s: u32, budget_lines: usize, due: &mut [u32]) -> (usize, usize) {
        let mut count = 0;
        if due.is_empty() {
            return (0, 0);
        }
        let skimmed = self.skim(now_s, budget_lines, &mut |id| {
            // Invariant: the skim stops as soon as count reaches the length.
            due[count] = id;
            count += 1;
            count < due.len()
        });
        (count, skimmed)
    }

    /// Lines a full sweep has to look at: up to the highest that ever had a deadline.
    pub fn lines_to_sweep(&self) -> usize {
        self.high_water.next_multiple_of(GROUP)
    }

    /// Bytes taken from the arena.
    pub fn bytes(&self) -> usize {
        Arena::bytes_for::<u16>(self.seconds.len())
    }

    /// Looks at groups until the budget is used or `visit` returns false; the cursor then is just behind the
    /// last line visited.
    #[inline]
    fn skim(&mut self, now_s: u32, budget_lines: usize, visit: &mut impl FnMut(u32) -> bool) -> usize {
        let total = self.lines_to_sweep();
        let budget = budget_lines.min(total);
        let now = now_s as u16;
        let mut skimmed = 0;
        while skimmed < budget {
            if self.cursor >= total {
                self.cursor = 0;
            }
            let start = self.cursor & !(GROUP - 1);
            let skip = self.cursor - start;
            // A round that began inside a group ends in that group, in front of where it began.
            let end = (skip + total - skimmed).min(GROUP);
            let Some(group) = self.seconds.get(start..).and_then(<[u16]>::first_chunk::<GROUP>) else {
                break;
            };
            if any_due(group, now) {
                let mut due = due_bits(group, now) & (u64::MAX << skip) & (u64::MAX >> (GROUP - end));
                while due != 0 {
                    let bit = due.trailing_zeros() as usize;
                    if !visit((start + bit) as u32) {
                        self.cursor = start + bit + 1;
                        return skimmed + bit + 1 - skip;
                    }
                    due &= due - 1;
                }
            }
            skimmed += end - skip;
            self.cursor = start + end;
        }
        skimmed
    }
}

/// Whether a deadline has come: none is never due.
#[inline(always)]
fn is_due(deadline: u16, now: u16) -> bool {
    (deadline != 0) & (now.wrapping_sub(deadline) as i16 >= 0)
}

/// Whether any of the group is due. Written so that the compiler makes it a few vector instructions.
#[inline(always)]
fn any_due(group: &[u16; GROUP], now: u16) -> bool {
    let mut any = 0u16;
    for deadline in group {
        any |= u16::from(is_due(*deadline, now));
    }
    any != 0
}

/// A bit for each deadline that is due.
#[inline(never)]
fn due_bits(group: &[u16; GROUP], now: u16) -> u64 {
    let mut bits = 0;
    for (i, deadline) in group.iter().enumerate() {
        bits |= u64::from(is_due(*deadline, now)) << i;
    }
    bits
}

/// Spreads a full sweep evenly over a period: tells how many lines to sweep for the time that has passed.
#[derive(Clone, Debug)]
pub struct SweepPacer {
    period_ns: u64,
    lines_per_call_max: usize,
    /// Line-nanoseconds not yet turned into lines; less than a period's worth.
    carry: u128,
}

impl SweepPacer {
    /// One full sweep per `period_ns` (normally one second), never more than `lines_per_call_max` at once.
    pub fn new(period_ns: u64, lines_per_call_max: usize) -> SweepPacer {
        SweepPacer { period_ns: period_ns.max(1), lines_per_call_max, carry: 0 }
    }

    /// Lines to sweep now that `elapsed_ns` have passed since the last call, of `lines_total` (see
    /// [`Deadlines::lines_to_sweep`]). What exceeds the maximum for a call is owed, up to one full sweep.
    #[inline]
    pub fn lines_due(&mut self, lines_total: usize, elapsed_ns: u64) -> usize {
        let full_sweep = lines_total as u128 * u128::from(self.period_ns);
        let owed = self.carry + lines_total as u128 * u128::from(elapsed_ns);
        let owed = owed.min(full_sweep);
        // A 64-bit division where it suffices, which is always but for huge tables after long pauses.
        let period = u128::from(self.period_ns);
        let lines = match u64::try_from(owed) {
            Ok(owed) => (owed / self.period_ns) as usize,
            Err(_) => (owed / period) as usize,
        };
        let lines = lines.min(self.lines_per_call_max);
        self.carry = owed - lines as u128 * period;
        lines
    }

    /// Owes lines again that were due but not swept.
    #[inline]
    pub fn give_back(&mut self, lines: usize) {
        self.carry += lines as u128 * u128::from(self.period_ns);
    }
}

#[cfg(test)]
mod tests;
