//! Random scenarios against the reference NAT.
//!
//! `CARRACK_SEED=n` plays one seed (`CARRACK_WORKERS=n` with so many workers), `CARRACK_SIMULATIONS=n` so many fresh ones (the soak). Seeds that once failed stay
//! in `seeds.txt` and are played always.

use carrack_testkit::simulation::{Summary, play, play_with};

/// Fresh seeds of an ordinary run.
const SEEDS: u64 = 60;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

/// The scenario that the environment names, told step by step.
#[test]
fn one_scenario_is_told() {
    let workers = number("CARRACK_WORKERS").map(|n| u8::try_from(n).expect("at most 255 workers"));
    let (seed, tells) = number("CARRACK_SEED").map_or((0, false), |seed| (seed, true));
    println!("{:?}", play_with(seed, workers, tells));
}

#[test]
fn workers_and_reference_agree() {
    let mut total = Summary::default();
    for seed in 0..number("CARRACK_SIMULATIONS").unwrap_or(SEEDS) {
        total.add(&play(seed, false));
    }
    // A simulation in which nothing happens proves nothing.
    assert!(total.translated > 5_000 && total.answered > 1_000, "{total:?}");
    assert!(total.shortages > 100 && total.refused > 100, "{total:?}");
    assert!(total.overflowed > 5, "{total:?}");
    assert!(total.hairpinned > 50 && total.errors > 100 && total.pieces > 100, "{total:?}");
    assert!(total.from_six > 1_000 && total.to_six > 500, "{total:?}");
    assert!(total.stateless > 2_000 && total.stateless_errors > 300, "{total:?}");
    assert!(total.reloads > 50 && total.survivors > 1_000 && total.deleted > 100, "{total:?}");
}

#[test]
fn seeds_that_once_failed_pass() {
    for line in include_str!("seeds.txt").lines().filter(|line| !line.starts_with('#')) {
        let seed = line.split_whitespace().next().unwrap().parse().expect("a seed a line");
        let _ = play(seed, false);
    }
}

#[test]
fn seed_decides_everything() {
    assert_eq!(play(7, false), play(7, false));
}

/// So many workers that each one's home blocks are few, and most packets come in by a worker that is not theirs.
#[test]
fn sixteen_workers_and_reference_agree() {
    let mut total = Summary::default();
    for seed in 0..number("CARRACK_SIMULATIONS").map_or(12, |n| n / 5) {
        total.add(&play_with(seed, Some(16), false));
    }
    assert!(total.translated > 500 && total.answered > 100, "{total:?}");
}
