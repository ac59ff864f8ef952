//! Zero-loss rate by binary search (RFC 2544 §26.1), with loss verified by repetition (ETSI GS NFV-TST 009 §12.3.3)
//! when something outside the router disturbed the trial.

use serde::Serialize;

/// How to search.
#[derive(Debug, Clone, Copy)]
pub struct Search {
    /// The highest rate worth a trial, also the first.
    pub rate_max: f64,
    /// The search ends when the rate is known to this share of `rate_max`.
    pub resolution: f64,
    /// Most rates tried.
    pub trials_max: u32,
    /// A disturbed trial with loss is repeated so many times at most.
    pub repeats_max: u32,
}

impl Search {
    /// Up to this rate, to 1 %, 12 rates at most, two repetitions.
    pub const fn up_to(rate_max: f64) -> Self {
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
    /// The lowest rate tried with loss, when there is one.
    pub rate_with_loss: Option<f64>,
    /// All trials in order.
    pub trials: Vec<Trial>,
}

/// Searches the highest rate without loss.
pub fn search(search: &Search, mut trial: impl FnMut(f64) -> Seen) -> Found {
    let mut found = Found::default();
    let (mut low, mut high) = (0.0, search.rate_max);
    let mut rate = search.rate_max;
    for _ in 0..search.trials_max {
        let tried = try_rate(rate, search.repeats_max, &mut trial);
        found.trials.push(tried);
        if tried.lost == 0 && tried.offered > 0 {
            found.rate = rate;
            low = rate;
        } else {
            found.rate_with_loss = Some(rate);
            high = rate;
        }
        if high - low <= search.resolution * search.rate_max || low >= search.rate_max {
            break;
        }
        rate = f64::midpoint(low, high);
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
            let found = search(&Search::up_to(10.0), router(limit));
            assert!(found.rate <= limit && limit - found.rate <= 0.1, "{limit}: {found:?}");
            assert!(found.rate_with_loss.unwrap() > limit);
        }
    }

    #[test]
    fn a_router_that_takes_everything_needs_one_trial() {
        let found = search(&Search::up_to(10.0), router(11.0));
        assert_eq!((found.rate, found.trials.len(), found.rate_with_loss), (10.0, 1, None));
    }

    #[test]
    fn a_router_that_always_loses_has_rate_zero_after_the_most_trials() {
        let found = search(&Search { resolution: 0.0, ..Search::up_to(10.0) }, router(0.0));
        assert_eq!((found.rate, found.trials.len()), (0.0, 12));
    }

    #[test]
    fn loss_in_a_disturbed_trial_is_verified_by_repetition_and_other_loss_is_not() {
        let mut trials = 0;
        let found = search(&Search::up_to(10.0), |_| {
            trials += 1;
            Seen { offered: 1_000, lost: u64::from(trials < 3), disturbed: true }
        });
        assert_eq!((found.rate, found.trials[0].repeated, trials), (10.0, 2, 3));
        let mut trials = 0;
        search(&Search { trials_max: 1, ..Search::up_to(10.0) }, |_| {
            trials += 1;
            Seen { offered: 1_000, lost: 1, disturbed: false }
        });
        assert_eq!(trials, 1);
    }

    #[test]
    fn a_trial_that_offered_nothing_proves_nothing() {
        let nothing = Seen { offered: 0, lost: 0, disturbed: false };
        assert_eq!(search(&Search::up_to(10.0), |_| nothing).rate, 0.0);
    }

    #[test]
    fn stepping_ends_at_the_first_rate_with_loss() {
        let found = step_up(1.0, 1.0, &Search::up_to(100.0), router(4.5));
        assert_eq!((found.rate, found.rate_with_loss, found.trials.len()), (4.0, Some(5.0), 5));
    }
}
