use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::PagePreference;

fn deadlines(capacity: usize) -> Deadlines {
    let mut arena = Arena::new("t", Deadlines::bytes_for(capacity), PagePreference::Small).unwrap();
    Deadlines::new(&mut arena, capacity).unwrap()
}

fn swept(deadlines: &mut Deadlines, now_s: u32) -> Vec<u32> {
    let mut ids = Vec::new();
    deadlines.sweep(now_s, usize::MAX, &mut |id| ids.push(id));
    ids.sort_unstable();
    ids
}

#[test]
fn no_deadline_fires_early_and_each_fires_by_the_next_second() {
    // All seconds of more than one round of the 16-bit clock, so also the unrepresentable ones.
    for start in [0u32, 65_000, 65_535, 65_536, 131_071, u32::MAX - 40_000] {
        for timeout in [1u32, 2, 4, 60, 240, 300, 7440, 30_000] {
            let mut d = deadlines(64);
            let due = start.wrapping_add(timeout);
            d.set(7, due);
            assert_eq!(swept(&mut d, start), [], "{start}+{timeout}");
            assert_eq!(swept(&mut d, due.wrapping_sub(1)), [], "{start}+{timeout}");
            // One second's grace: second 0 modulo 65,536 is kept as 1.
            let on_time = swept(&mut d, due);
            assert!(on_time == [7] || due as u16 == 0, "{start}+{timeout}");
            assert_eq!(swept(&mut d, due.wrapping_add(1)), [7], "{start}+{timeout}");
            assert_eq!(swept(&mut d, due.wrapping_add(32_000)), [7], "a late sweep still sees it");
            d.clear(7);
            assert_eq!(swept(&mut d, due.wrapping_add(1)), []);
        }
    }
}

#[test]
fn a_budget_is_kept_and_successive_sweeps_cover_every_line_once_a_round() {
    let mut d = deadlines(9_600);
    for id in 0..9_600 {
        d.set(id, 5);
    }
    let mut seen = vec![0u32; 9_600];
    let mut skimmed = 0;
    while skimmed < d.lines_to_sweep() {
        // Fifteen sweeps to the round.
        let n = d.sweep(10, 640, &mut |id| seen[id as usize] += 1);
        assert!(n > 0 && n <= 640);
        skimmed += n;
    }
    assert!(seen.iter().all(|times| *times == 1));
}

#[test]
fn no_line_is_visited_twice_in_one_call_wherever_the_last_one_stopped() {
    for first in 1..130 {
        let mut d = deadlines(128);
        for id in 0..128 {
            d.set(id, 5);
        }
        assert_eq!(d.collect_due(10, usize::MAX, &mut vec![0; first]).0, first.min(128));
        let mut seen = [0; 128];
        assert_eq!(d.sweep(10, usize::MAX, &mut |id| seen[id as usize] += 1), 128);
        assert_eq!(seen, [1; 128], "after {first}");
    }
}

#[test]
fn a_sweep_skims_only_up_to_the_highest_line_ever_used() {
    let mut d = deadlines(1_000_000);
    assert_eq!(d.sweep(9, usize::MAX, &mut |_| {}), 0);
    d.set(100, 5);
    assert_eq!(d.sweep(9, usize::MAX, &mut |_| {}), 128);
}

#[test]
fn a_full_buffer_stops_the_sweep_and_the_next_goes_on_behind_it() {
    let mut d = deadlines(1000);
    for id in (0..1000).step_by(3) {
        d.set(id, 5);
    }
    let mut all = Vec::new();
    let mut due = [0; 7];
    while all.len() < 334 {
        let (n, _) = d.collect_due(10, usize::MAX, &mut due);
        assert!(n > 0);
        all.extend_from_slice(&due[..n]);
    }
    all.truncate(334);
    assert_eq!(all, (0..1000).step_by(3).collect::<Vec<u32>>());
    assert_eq!(d.collect_due(10, 100, &mut []), (0, 0));
}

#[test]
fn ids_out_of_range_are_ignored() {
    let mut d = deadlines(64);
    d.set(64, 5);
    d.set(u32::MAX, 5);
    d.clear(u32::MAX);
    assert_eq!(swept(&mut d, 100), []);
}

#[test]
fn the_pacer_sweeps_everything_once_a_second_whatever_the_call_pattern() {
    for step_ns in [1, 700, 12_345, 1_000_000, 333_333_333] {
        let lines = 1_000_003;
        let mut pacer = SweepPacer::new(1_000_000_000, usize::MAX);
        let calls = (2_000_000_000u64 / step_ns).min(3_000_000);
        let total: usize = (0..calls).map(|_| pacer.lines_due(lines, step_ns)).sum();
        let expected = calls as f64 * step_ns as f64 * 1e-9 * lines as f64;
        assert!((total as f64 - expected).abs() <= 1.0, "{step_ns} ns: {total} for {expected}");
    }
}

#[test]
fn the_pacer_never_exceeds_its_maximum_and_owes_at_most_one_sweep() {
    let mut pacer = SweepPacer::new(1_000_000_000, 500);
    assert_eq!(pacer.lines_due(10_000, u64::MAX), 500);
    let owed: usize = (0..1000).map(|_| pacer.lines_due(10_000, 0)).sum();
    assert_eq!(owed, 9_500);
    let mut huge = SweepPacer::new(u64::MAX, usize::MAX);
    assert_eq!(huge.lines_due(usize::MAX, u64::MAX), usize::MAX);
    assert_eq!(SweepPacer::new(0, 10).lines_due(0, 5), 0);
}

proptest! {
    #[test]
    fn sweeps_report_exactly_what_a_list_of_deadlines_would(
        start in any::<u32>(),
        ops in proptest::collection::vec((0u32..300, 1u32..30_000, 0u32..4000, any::<bool>()), 0..200),
    ) {
        let mut d = deadlines(300);
        let mut model: BTreeMap<u32, u64> = BTreeMap::new();
        let mut now = u64::from(start);
        for (id, timeout, pass, clear) in ops {
            if clear {
                d.clear(id);
                model.remove(&id);
            } else {
                let due = now + u64::from(timeout);
                d.set(id, due as u32);
                model.insert(id, if due as u16 == 0 { due + 1 } else { due });
            }
            now += u64::from(pass);
            let expected: Vec<u32> = model.iter().filter(|(_, due)| **due <= now).map(|(id, _)| *id).collect();
            prop_assert_eq!(&swept(&mut d, now as u32), &expected);
            for id in expected {
                d.clear(id);
                model.remove(&id);
            }
        }
    }
}
