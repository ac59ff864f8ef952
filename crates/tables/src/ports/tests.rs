use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::PagePreference;

fn ports(hold_s: u32) -> PortMap {
    in_phase(hold_s, 0)
}

fn in_phase(hold_s: u32, phase_s: u16) -> PortMap {
    let mut arena = Arena::new("t", PortMap::bytes_for(hold_s), PagePreference::Small).unwrap();
    PortMap::new(&mut arena, hold_s, phase_s).unwrap()
}

fn assert_summaries_agree(map: &PortMap) {
    for word in 0..WORDS {
        for (parity, bits) in [EVEN, !EVEN].into_iter().enumerate() {
            let full = map.full(parity, word / 64) >> (word % 64) & 1 == 1;
            assert_eq!(full, !map.busy(word) & bits == 0, "word {word}");
        }
    }
    assert_eq!(map.used(), map.used_in(0..=u16::MAX));
}

#[test]
fn every_port_of_a_range_is_given_exactly_once() {
    for range in [0..=u16::MAX, 1024..=u16::MAX, 1000..=1511, 63..=64, 5..=5, u16::MAX..=u16::MAX] {
        let mut map = ports(120);
        let mut seen = vec![false; PORTS];
        let mut hint = 12_345u16;
        for _ in range.clone() {
            hint = hint.wrapping_mul(25_173).wrapping_add(13_849);
            let port = map.alloc_in(range.clone(), hint, None, 0).unwrap();
            assert!(range.contains(&port));
            assert!(!core::mem::replace(&mut seen[usize::from(port)], true), "port {port} given twice");
        }
        assert_eq!(map.alloc_in(range.clone(), hint, None, 0), None);
        assert_eq!(map.used_in(range.clone()), range.len() as u32);
        assert_eq!(map.used(), range.len() as u32);
        assert_summaries_agree(&map);
    }
}

#[test]
#[allow(clippy::reversed_empty_ranges)]
fn an_empty_range_has_no_ports() {
    let mut map = ports(0);
    assert_eq!(map.alloc_in(9..=8, 0, None, 0), None);
    assert_eq!(map.alloc_pair_contiguous(9..=8, false, 0, 0), None);
    assert_eq!(map.alloc_pair_contiguous(9..=9, false, 0, 0), None);
    assert_eq!(map.alloc_pair_contiguous(0..=0, true, 0, 0), None);
    assert_eq!(map.used_in(9..=8), 0);
}

/// RFC 6888 REQ-8.
#[test]
fn a_freed_port_is_never_given_within_its_hold_time_and_always_after_two() {
    for (hold_s, phase_s) in [(1, 0), (7, 0), (7, 3), (120, 0), (120, u16::MAX)] {
        for freed_at in 0..hold_s * 3 {
            let mut map = in_phase(hold_s, phase_s);
            assert!(map.alloc_exact(5000, freed_at));
            assert!(map.free(5000, freed_at, true));
            assert!(!map.is_used(5000) && map.is_held(5000));
            for now in freed_at..freed_at + hold_s {
                assert!(!map.alloc_exact(5000, now), "freed at {freed_at}, given at {now}, hold {hold_s}");
                assert_eq!(map.alloc_in(5000..=5000, 0, None, now), None);
                assert_eq!(map.alloc_pair_contiguous(5000..=5001, true, 0, now), None);
            }
            assert!(map.alloc_exact(5000, freed_at + 2 * hold_s));
            assert_eq!(map.held(), 0);
            assert_summaries_agree(&map);
        }
    }
}

#[test]
fn generations_are_let_go_in_turn_even_after_a_long_pause() {
    let mut map = ports(10);
    for (port, freed_at) in [(1, 5), (2, 15), (3, 25)] {
        assert!(map.alloc_exact(port, freed_at) && map.free(port, freed_at, true));
    }
    assert_eq!((map.is_held(1), map.is_held(2), map.is_held(3)), (false, true, true));
    assert!(map.alloc_exact(9, 10_000));
    assert_eq!(map.held(), 0);
    // A clock that steps back a little neither lets go nor holds for ever.
    assert!(map.free(9, 9_990, true));
    assert!(!map.alloc_exact(9, 9_999));
    assert!(map.alloc_exact(9, 10_020));
}

/// A turn looks at all ports of a map, so as few maps as possible take theirs before one burst.
#[test]
fn maps_of_different_phases_let_go_in_different_seconds() {
    let mut maps: Vec<_> = (0..60).map(|phase| in_phase(60, 1_000 + phase)).collect();
    for map in &mut maps {
        assert!(map.alloc_exact(7, 1_000) && map.free(7, 1_000, true));
    }
    let mut held_at = |now| maps.iter_mut().map(|map| map.held_at(now)).sum::<u32>();
    assert_eq!(held_at(1_060), 60);
    (1..=60).for_each(|more| assert_eq!(held_at(1_060 + more), 60 - more));
}

#[test]
fn without_hold_a_port_is_free_at_once() {
    let mut map = ports(120);
    assert!(map.alloc_exact(80, 1) && map.free(80, 1, false) && map.alloc_exact(80, 1));
    let mut map = ports(0);
    assert!(map.alloc_exact(80, 1) && map.free(80, 1, true) && map.alloc_exact(80, 1));
}

#[test]
fn freeing_a_free_or_held_port_is_refused() {
    let mut map = ports(120);
    assert!(!map.free(7, 0, false));
    assert!(map.alloc_exact(7, 0) && map.free(7, 0, true));
    assert!(!map.free(7, 0, false), "a second free must not cut the hold time short");
    assert!(map.is_held(7));
    assert_summaries_agree(&map);
}

/// RFC 4787 REQ-4.
#[test]
fn parity_is_kept_to_the_last_port() {
    for (parity, wrong) in [(Parity::Even, Parity::Odd), (Parity::Odd, Parity::Even)] {
        let mut map = ports(120);
        for i in 0..32_768u32 {
            let port = map.alloc_in(0..=u16::MAX, (i * 40_503) as u16, Some(parity), 0).unwrap();
            assert_eq!(Parity::of(port), parity);
        }
        assert_eq!(map.alloc_in(0..=u16::MAX, 1, Some(parity), 0), None);
        assert!(map.alloc_in(0..=u16::MAX, 1, Some(wrong), 0).is_some());
    }
}

/// RFC 4787 REQ-4.
#[test]
fn a_pair_is_contiguous_and_starts_even_when_asked() {
    let mut map = ports(0);
    for i in 0..32_768u32 {
        let port = map.alloc_pair_contiguous(0..=u16::MAX, true, (i * 40_503) as u16, 0).unwrap();
        assert_eq!(Parity::of(port), Parity::Even);
        assert!(map.is_used(port) && map.is_used(port + 1));
    }
    assert_eq!(map.alloc_pair_contiguous(0..=u16::MAX, true, 5, 0), None);
    // The only pair left lies across two words of the bitmap.
    assert!(map.free(127, 0, false) && map.free(128, 0, false));
    assert_eq!(map.alloc_pair_contiguous(0..=u16::MAX, true, 5, 0), None);
    assert_eq!(map.alloc_pair_contiguous(0..=127, false, 5, 0), None);
    assert_eq!(map.alloc_pair_contiguous(128..=u16::MAX, false, 5, 0), None);
    assert_eq!(map.alloc_pair_contiguous(0..=u16::MAX, false, 5, 0), Some(127));
    assert_summaries_agree(&map);
}

/// RFC 6888 REQ-15, RFC 6056.
#[test]
fn uniform_hints_give_uniform_ports_from_an_empty_range() {
    let mut counts = vec![0u32; 512];
    let mut map = ports(0);
    for hint in 0..=u16::MAX {
        let port = map.alloc_in(2048..=2559, hint, None, 0).unwrap();
        counts[usize::from(port - 2048)] += 1;
        map.free(port, 0, false);
    }
    assert!(counts.iter().all(|n| *n == 128), "{counts:?}");
}

#[derive(Clone, Debug)]
enum Op {
    In(u16, u16, u16, Option<bool>),
    Exact(u16),
    Pair(u16, u16, u16, bool),
    Free(u16, bool),
    FillRange(u16, u16),
    Wait(u32),
}

fn port() -> impl Strategy<Value = u16> {
    // Few ports around the borders of words and of the space, so that operations meet.
    prop_oneof![(0u16..200), (4000u16..4200), (65_400u16..=u16::MAX)]
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        4 => (port(), port(), any::<u16>(), any::<Option<bool>>()).prop_map(|(a, b, h, p)| Op::In(a, b, h, p)),
        2 => port().prop_map(Op::Exact),
        2 => (port(), port(), any::<u16>(), any::<bool>()).prop_map(|(a, b, h, e)| Op::Pair(a, b, h, e)),
        4 => (port(), any::<bool>()).prop_map(|(p, h)| Op::Free(p, h)),
        1 => (port(), 0u16..100).prop_map(|(a, n)| Op::FillRange(a, a.saturating_add(n))),
        1 => (0u32..15).prop_map(Op::Wait),
    ];
    proptest::collection::vec(op, 0..120)
}

/// What is known of a port: used, or held since.
#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Used,
    Held(u32),
}

const HOLD_S: u32 = 10;

/// Whether a port must, may or must not be given.
fn may_be_given(model: &BTreeMap<u16, State>, port: u16, now: u32) -> (bool, bool) {
    match model.get(&port) {
        None => (true, true),
        Some(State::Used) => (false, false),
        Some(State::Held(at)) => (now - at >= HOLD_S, now - at >= 2 * HOLD_S),
    }
}

proptest! {
    #[test]
    fn never_gives_a_used_or_held_port_and_never_refuses_while_one_is_free(ops in ops()) {
        let mut map = ports(HOLD_S);
        let mut now = 0;
        let mut model: BTreeMap<u16, State> = BTreeMap::new();
        for op in ops {
            match op {
                Op::In(a, b, hint, parity) => {
                    let (lo, hi) = (a.min(b), a.max(b));
                    let parity = parity.map(|even| if even { Parity::Even } else { Parity::Odd });
                    let fits = |p: u16| parity.is_none_or(|wanted| Parity::of(p) == wanted);
                    match map.alloc_in(lo..=hi, hint, parity, now) {
                        Some(p) => {
                            prop_assert!(p >= lo && p <= hi && fits(p));
                            prop_assert!(may_be_given(&model, p, now).0, "port {} at {}", p, now);
                            model.insert(p, State::Used);
                        }
                        None => prop_assert!(!(lo..=hi).any(|p| fits(p) && may_be_given(&model, p, now).1)),
                    }
                }
                Op::Exact(p) => {
                    let (may, must) = may_be_given(&model, p, now);
                    let given = map.alloc_exact(p, now);
                    prop_assert!(given && may || !given && !must);
                    if given {
                        model.insert(p, State::Used);
                    }
                }
                Op::Pair(a, b, hint, even) => {
                    let (lo, hi) = (a.min(b), a.max(b));
                    match map.alloc_pair_contiguous(lo..=hi, even, hint, now) {
                        Some(p) => {
                            prop_assert!(p >= lo && p < hi && !(even && p % 2 == 1));
                            for p in [p, p + 1] {
                                prop_assert!(may_be_given(&model, p, now).0);
                                model.insert(p, State::Used);
                            }
                        }
                        None => {
                            let fits = |p: u16| !(even && p % 2 == 1);
                            let free = |p: u16| may_be_given(&model, p, now).1;
                            let missed = (lo..hi).find(|p| fits(*p) && free(*p) && free(*p + 1));
                            prop_assert_eq!(missed, None);
                        }                    }
                }
                Op::Free(p, hold) => {
                    let used = model.get(&p) == Some(&State::Used);
                    prop_assert_eq!(map.free(p, now, hold), used);
                    if used && hold {
                        model.insert(p, State::Held(now));
                    } else if used {
                        model.remove(&p);
                    }
                }
                Op::FillRange(a, b) => {
                    for p in a..=b {
                        if map.alloc_exact(p, now) {
                            prop_assert!(may_be_given(&model, p, now).0);
                            model.insert(p, State::Used);
                        }
                    }
                }
                Op::Wait(s) => now += s,
            }
            let used = model.values().filter(|s| **s == State::Used).count() as u32;
            prop_assert_eq!(map.used(), used);
            let in_part = model.range(100..=4100).filter(|(_, s)| **s == State::Used).count() as u32;
            prop_assert_eq!(map.used_in(100..=4100), in_part);
        }
        assert_summaries_agree(&map);
    }
}
