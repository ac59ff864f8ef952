//! The one clock of the daemon: everything below gets the time as a parameter.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use carrack_base::Now;

/// Reads monotonic time since the daemon started, beginning at one second, and translates it to the calendar.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: Instant,
    start_unix_ns: u64,
}

/// What the clock says at its start: zero means "never" in tables.
const START_NS: u64 = 1_000_000_000;

impl Clock {
    /// A clock that starts now.
    #[must_use]
    pub fn start() -> Self {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Self { start: Instant::now(), start_unix_ns: nanos(unix) }
    }

    /// The time.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Now {
        Now { ns: START_NS + nanos(self.start.elapsed()) }
    }

    /// Time since the start.
    #[must_use]
    pub fn uptime(&self) -> Duration {
        self.start.elapsed()
    }

    /// What the calendar is ahead of monotonic time now, nanoseconds. It changes when somebody sets the machine's clock.
    #[must_use]
    pub fn calendar_offset_ns(&self) -> u64 {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        nanos(unix).saturating_sub(self.now().ns)
    }

    /// Nanoseconds since 1970 of a point in monotonic time, as the calendar stood at the start.
    #[must_use]
    pub fn unix_ns(&self, monotonic_ns: u64) -> u64 {
        self.start_unix_ns + monotonic_ns.saturating_sub(START_NS)
    }
}

/// 584 years fit.
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
