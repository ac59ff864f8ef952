//! Time is a parameter: only `runtime` reads a clock.

/// A point in monotonic time, nanoseconds since the daemon (or the simulation) started.
///
/// Starts a little above zero so that "0 seconds" can mean "never" in tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Now {
    /// Nanoseconds since start.
    pub ns: u64,
}

impl Now {
    /// From whole seconds.
    #[must_use]
    pub const fn from_s(s: u64) -> Self {
        Self { ns: s * 1_000_000_000 }
    }

    /// From milliseconds.
    #[must_use]
    pub const fn from_ms(ms: u64) -> Self {
        Self { ns: ms * 1_000_000 }
    }

    /// Whole seconds since start, never 0: second 1 is the first, so that 0 can mean "none" in a table.
    #[inline]
    #[must_use]
    pub const fn s(self) -> u32 {
        (self.ns / 1_000_000_000) as u32 + 1
    }

    /// Whole milliseconds since start.
    #[inline]
    #[must_use]
    pub const fn ms(self) -> u64 {
        self.ns / 1_000_000
    }

    /// This point plus `ns` nanoseconds.
    #[must_use]
    pub const fn plus_ns(self, ns: u64) -> Self {
        Self { ns: self.ns + ns }
    }
}
