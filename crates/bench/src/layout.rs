//! Which sessions a scenario has: endpoints computed from a number, nothing stored.

use crate::generator::{SUBSCRIBER_FIRST, Session};

/// First source port of every subscriber.
const PORT_FIRST: u16 = 20_000;
/// 198.51.100.0 and what follows stands for the Internet.
const REMOTE_FIRST: u32 = 0xc633_6401;

/// Sessions of a scenario: every subscriber talks from each of its ports to each of the remotes.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    /// Subscribers, from 10.0.0.0 on.
    pub subscribers: u32,
    /// Source ports of each.
    pub ports: u32,
    /// Remote addresses of each source port.
    pub remotes: u32,
    /// Destination port.
    pub remote_port: u16,
    by_subscriber: Divisor,
    by_port: Divisor,
}

impl Layout {
    /// At most 2^32 - 1 sessions in all; ports and remotes at least 1.
    pub const fn new(subscribers: u32, ports: u32, remotes: u32, remote_port: u16) -> Self {
        let (ports, remotes) = (if ports == 0 { 1 } else { ports }, if remotes == 0 { 1 } else { remotes });
        Self {
            subscribers,
            ports,
            remotes,
            remote_port,
            by_subscriber: Divisor::new(ports * remotes),
            by_port: Divisor::new(remotes),
        }
    }

    /// The layout with so many sessions or a few more.
    pub const fn for_sessions(sessions: u32, ports: u32, remotes: u32) -> Self {
        let each = if ports * remotes == 0 { 1 } else { ports * remotes };
        Self::new(sessions.div_ceil(each), ports, remotes, 443)
    }

    /// All sessions there are.
    pub const fn sessions(&self) -> u32 {
        self.subscribers * self.ports * self.remotes
    }

    /// Mappings behind them.
    pub const fn mappings(&self) -> u32 {
        self.subscribers * self.ports
    }

    /// The endpoints of a session.
    #[inline(always)]
    pub fn session(&self, number: u32) -> Session {
        let (subscriber, within) = self.by_subscriber.divide(number);
        let (port, remote) = self.by_port.divide(within);
        Session {
            inside: SUBSCRIBER_FIRST + subscriber,
            port: PORT_FIRST + port as u16,
            remote: REMOTE_FIRST + remote,
            remote_port: self.remote_port,
        }
    }
}

/// Division by a number known at start, as a multiplication (Lemire, Kaser, Kurz 2019).
#[derive(Debug, Clone, Copy)]
struct Divisor {
    by: u32,
    /// ⌈2^64 ÷ by⌉, or 0 for a divisor of one.
    inverse: u64,
}

impl Divisor {
    const fn new(by: u32) -> Self {
        let by = if by == 0 { 1 } else { by };
        let inverse = if by == 1 { 0 } else { u64::MAX / by as u64 + 1 };
        Self { by, inverse }
    }

    /// Quotient and remainder.
    #[inline(always)]
    const fn divide(self, n: u32) -> (u32, u32) {
        if self.inverse == 0 {
            return (n, 0);
        }
        let quotient = ((self.inverse as u128 * n as u128) >> 64) as u32;
        (quotient, n - quotient * self.by)
    }
}

/// Walks numbers 0 to n - 1, each once a round, for ever.
#[derive(Debug, Clone, Copy)]
pub struct Walk {
    next: u32,
    step: u32,
    count: u32,
}

impl Walk {
    /// In the order of numbers.
    pub const fn in_order(count: u32) -> Self {
        Self { next: 0, step: 1, count: if count == 0 { 1 } else { count } }
    }

    /// Far apart: consecutive numbers are of different subscribers, and each is still visited once a round.
    pub fn scattered(count: u32) -> Self {
        let count = count.max(1);
        // The golden section spreads best, having no near fractions; of the steps near it, the first that shares this.
        let golden = ((f64::from(count) * 0.618_033_988_75) as u32).max(1);
        let is_even =
            |most| move |step: &u32| largest_quotient(*step, count).is_some_and(|quotient| quotient <= most);
        let step = (golden..=golden.saturating_add(1_000)).find(is_even(QUOTIENT_MAX));
        let step = step.or_else(|| (golden..).find(is_even(u32::MAX))).unwrap_or(1);
        Self { next: 0, step: step % count.max(2), count }
    }

    /// The next number.
    #[inline(always)]
    pub const fn pick(&mut self) -> u32 {
        let number = self.next;
        let next = number as u64 + self.step as u64;
        self.next = if next >= self.count as u64 { (next - self.count as u64) as u32 } else { next as u32 };
        number
    }
}

/// Of the continued fraction of a step; with larger ones some neighbours are visited soon after each other and then not
/// for long.
const QUOTIENT_MAX: u32 = 8;

/// The largest quotient of the continued fraction of `step` ÷ `count`; `None` when they have a common divisor, and a walk
/// would not reach all numbers. What is left at the end is not counted: small counts have large ones.
const fn largest_quotient(step: u32, count: u32) -> Option<u32> {
    let (mut a, mut b, mut largest) = (count, step % count, 0);
    while b > 1 {
        let quotient = a / b;
        largest = if quotient > largest { quotient } else { largest };
        (a, b) = (b, a % b);
    }
    if b == 1 || count == 1 { Some(largest) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn division_by_multiplication_is_exact() {
        for by in [1, 2, 3, 4, 7, 64, 1_245, 4_980, 65_537, u32::MAX] {
            let divisor = Divisor::new(by);
            for n in [0, 1, by - 1, by, by.wrapping_add(1), 99_600_000, u32::MAX - 1, u32::MAX] {
                assert_eq!(divisor.divide(n), (n / by, n % by), "{n} / {by}");
            }
        }
    }

    #[test]
    fn every_number_is_another_session() {
        let layout = Layout::new(7, 4, 1_245, 80);
        let all: HashSet<_> = (0..layout.sessions())
            .map(|n| layout.session(n))
            .map(|s| (s.inside, s.port, s.remote, s.remote_port))
            .collect();
        assert_eq!(all.len(), 7 * 4 * 1_245);
    }

    #[test]
    fn a_scattered_walk_visits_each_number_once_a_round() {
        for count in [1, 2, 3, 64, 1_000, 99_991] {
            let mut walk = Walk::scattered(count);
            let round: HashSet<_> = (0..count).map(|_| walk.pick()).collect();
            assert_eq!((round.len() as u32, walk.pick()), (count, 0), "{count}");
        }
    }

    #[test]
    fn in_a_scattered_walk_sixteen_neighbours_are_visited_at_even_intervals() {
        for count in [125_000 * 16, 250_000 * 16, 131_072 * 16, 99_991] {
            let mut walk = Walk::scattered(count);
            let (mut last, mut longest) = (0, 0);
            for at in 0..count {
                if walk.pick() < 16 {
                    longest = longest.max(at - last);
                    last = at;
                }
            }
            assert!(longest < count / 16 * 4, "{count}: {longest} steps without one of sixteen");
        }
    }
}
