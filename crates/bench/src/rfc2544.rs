//! Zero-loss rate by binary search (RFC 2544 §26.1), with loss verified by repetition (ETSI GS NFV-TST 009 §12.3.3)
//! when something outside the router disturbed the trial.

use serde::Serialize;

/// How to search.
#[derive(Debug, Clone, Copy)]
pub struct Search {
    /// The first rate tried, expected to be above what can be; of rates stepped upwards the highest.
    pub rate_max: f64,
    /// The search ends when the rate is known to this share of the lowest power of two times `rate_max` that loses.
    pub resolution: f64,
    /// Most rates tried.
    pub trials_max: u32,
    /// A disturbed trial with loss is repeated so many times at most.
    pub repeats_max: u32,
}

impl Search {
    /// From this rate, to 1 %, 12 rates at most, two repetitions.
    pub const fn from(rate_max: f64) -> Self {
        Self { rate_max, resolution: 0.01, trials_max: 12, repeats_max: 2 }
    }
}

/// What a trial found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// Packets offered.
    pub offered: u64,
    /// Of those, packets that did not arrive.
    pub lost: u64,
    /// Something outside the router may have caused the loss.
    pub disturbed: bool,
}

/// One trial.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Trial {
    /// Rate.
    pub rate: f64,
    /// Packets offered.
    pub offered: u64,
    /// Of those, packets that did not arrive.
    pub lost: u64,
    /// Trials at that rate before this one, lost to disturbance.
    pub repeated: u32,
}

/// What a search found.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Found {
    /// The highest rate tried without loss; 0 when every trial lost packets.
    pub rate: f64,
    /// The lowest rate tried with loss; `null` when there is none: then the highest without loss is at least `rate`.
    pub rate_with_loss: Option<f64>,
    /// All trials in order.
    pub trials: Vec<Trial>,
}

impl Found {
    /// Lost no rate that was tried, so that the true one is not known?
    pub fn is_at_least(&self) -> bool {
        self.rate > 0.0 && self.rate_with_loss.is_none()
    }
}

/// How often the first rate is doubled while nothing is lost.
const DOUBLINGS_MAX: i32 = 4;

/// Searches the highest rate without loss: downwards from the first rate tried, after it was doubled until it lost.
pub fn search(search: &Search, mut trial: impl FnMut(f64) -> Seen) -> Found {
    let mut found = Found::default();
    let most = search.rate_max * 2f64.powi(DOUBLINGS_MAX);
    let (mut low, mut high, mut ceiling) = (0.0, None, search.rate_max);
    let mut rate = search.rate_max;
    for _ in 0..search.trials_max {
        let tried = try_rate(rate, search.repeats_max, &mut trial);
        found.trials.push(tried);
        if tried.lost == 0 && tried.offered > 0 {
            found.rate = rate;
            low = rate;
        } else {
            found.rate_with_loss = Some(rate);
            high = Some(rate);
        }
        rate = match high {
            Some(high) if high - low <= search.resolution * ceiling => break,
            Some(high) => f64::midpoint(low, high),
            None if rate >= most => break,
            None => {
                ceiling = rate * 2.0;
                ceiling
            }
        };
    }
    found
}

/// The highest of rates stepped upwards by `step` from `from`, until one loses; `trial` flushes what it must itself.
pub fn step_up(from: f64, step: f64, search: &Search, mut trial: impl FnMut(f64) -> Seen) -> Found {
    let mut found = Found::default();
    let mut rate = from;
    for _ in 0..search.trials_max {
        let tried = try_rate(rate, search.repeats_max, &mut trial);
        found.trials.push(tried);
        if tried.lost > 0 || tried.offered == 0 {
            found.rate_with_loss = Some(rate);
            break;
        }
        found.rate = rate;
        rate += step;
        if rate > search.rate_max {
            break;
        }
    }
    found
}

fn try_rate(rate: f64, repeats_max: u32, trial: &mut impl FnMut(f64) -> Seen) -> Trial {
    let mut repeated = 0;
    loop {
        let Seen { offered, lost, disturbed } = trial(rate);
        if lost == 0 || !disturbed || repeated == repeats_max {
            return Trial { rate, offered, lost, repeated };
        }
        repeated += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn router(limit: f64) -> impl FnMut(f64) -> Seen {
        move |rate| Seen { offered: 1_000, lost: u64::from(rate > limit) * 7, disturbed: false }
    }

    #[test]
    fn the_highest_rate_without_loss_is_found_to_the_resolution() {
        for limit in [0.4, 3.3, 9.99] {
            let found = search(&Search::from(10.0), router(limit));
            assert!(found.rate <= limit && limit - found.rate <= 0.1, "{limit}: {found:?}");
            assert!(found.rate_with_loss.unwrap() > limit);
        }
    }

    #[test]
    fn a_router_that_takes_more_than_was_expected_is_searched_further_up() {
        for limit in [10.0, 11.0, 19.99, 79.0, 159.0] {
            let found = search(&Search::from(10.0), router(limit));
            let ceiling = 10.0 * 2f64.powi((limit / 10.0).log2().floor() as i32 + 1);
            assert!(found.rate <= limit && limit - found.rate <= ceiling * 0.01, "{limit}: {found:?}");
            assert!(found.rate_with_loss.unwrap() > limit && !found.is_at_least(), "{limit}: {found:?}");
        }
    }

    #[test]
    fn a_router_that_loses_at_no_rate_tried_has_at_least_the_highest() {
        let found = search(&Search::from(10.0), router(f64::MAX));
        let rates: Vec<f64> = found.trials.iter().map(|trial| trial.rate).collect();
        assert_eq!(rates, [10.0, 20.0, 40.0, 80.0, 160.0]);
        assert!(found.is_at_least() && found.rate == 160.0, "{found:?}");
        assert!(!search(&Search::from(10.0), router(0.0)).is_at_least());
    }

    #[test]
    fn a_router_that_always_loses_has_rate_zero_after_the_most_trials() {
        let found = search(&Search { resolution: 0.0, ..Search::from(10.0) }, router(0.0));
        assert_eq!((found.rate, found.trials.len()), (0.0, 12));
    }

    #[test]
    fn loss_in_a_disturbed_trial_is_verified_by_repetition_and_other_loss_is_not() {
        let mut trials = 0;
        let found = search(&Search { trials_max: 1, ..Search::from(10.0) }, |_| {
            trials += 1;
            Seen { offered: 1_000, lost: u64::from(trials < 3), disturbed: true }
        });
        assert_eq!((found.rate, found.trials[0].repeated, trials), (10.0, 2, 3));
        let mut trials = 0;
        search(&Search { trials_max: 1, ..Search::from(10.0) }, |_| {
            trials += 1;
            Seen { offered: 1_000, lost: 1, disturbed: false }
        });
        assert_eq!(trials, 1);
    }

    #[test]
    fn a_trial_that_offered_nothing_proves_nothing() {
        let nothing = Seen { offered: 0, lost: 0, disturbed: false };
        assert_eq!(search(&Search::from(10.0), |_| nothing).rate, 0.0);
    }

    #[test]
    fn stepping_ends_at_the_first_rate_with_loss() {
        let found = step_up(1.0, 1.0, &Search::from(100.0), router(4.5));
        assert_eq!((found.rate, found.rate_with_loss, found.trials.len()), (4.0, Some(5.0), 5));
    }
}
