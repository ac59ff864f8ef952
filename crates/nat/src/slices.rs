//! Which worker gives out which ports of a pool.

use carrack_base::WorkerId;

use crate::policy::{Assignment, Pool};

/// Which ports of a pool belong to which worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slices {
    first: u16,
    last: u16,
    /// Ports of a slice.
    slice: u32,
    /// Ports of a block; 1 without blocks.
    unit: u32,
    /// At least 1.
    workers: u8,
}

impl Slices {
    /// How the ports of a pool are cut for so many workers.
    #[must_use]
    pub fn of(pool: &Pool, assignment: Assignment, workers: u8) -> Self {
        let unit = assignment.blocks().map_or(1, |blocks| u32::from(blocks.size).max(1));
        let (first, last) = assignment.cut_range(pool);
        let units = (u32::from(last.saturating_sub(first)) + 1) / unit;
        let workers = workers.max(1);
        let slice = units.div_ceil(u32::from(workers)).max(1) * unit;
        Self { first, last, slice, unit, workers }
    }

    /// Whose port it is; worker 0 gets all ports outside the range (static forwards are found there).
    #[inline]
    #[must_use]
    pub fn owner(&self, port: u16) -> WorkerId {
        if port < self.first || port > self.last {
            return WorkerId(0);
        }
        // Ports at the end that fill no block belong to nobody; the last worker answers for them.
        WorkerId((u32::from(port - self.first) / self.slice).min(u32::from(self.workers) - 1) as u8)
    }

    /// All whole units.
    pub(crate) fn units(&self) -> u32 {
        (u32::from(self.last.saturating_sub(self.first)) + 1) / self.unit
    }

    /// Units of one worker; the last one may have fewer.
    pub(crate) fn units_of_each(&self) -> u32 {
        self.slice / self.unit
    }

    /// One worker's whole units, as (first port, number of units); none when there are fewer units than workers.
    pub(crate) fn share(&self, worker: WorkerId) -> (u16, u32) {
        let (units_all, units_slice) = (self.units(), self.units_of_each());
        let before = units_slice * u32::from(worker.0);
        let units = units_all.saturating_sub(before).min(units_slice);
        if units == 0 {
            (self.first, 0)
        } else {
            ((u32::from(self.first) + before * self.unit) as u16, units)
        }
    }
}
