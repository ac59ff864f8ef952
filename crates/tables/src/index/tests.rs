use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::PagePreference;

fn index(entries: usize) -> Index {
    let mut arena = Arena::new("t", Index::bytes_for(entries), PagePreference::Small).unwrap();
    Index::new(&mut arena, entries).unwrap()
}

/// A sequence of hashes; splitmix64.
fn random(i: u64) -> u64 {
    let x = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

fn assert_counters_agree(index: &Index) {
    let stats = index.stats();
    assert_eq!(stats.at_home + stats.away, index.len());
    let overflow: usize = index.buckets.iter().map(|b| usize::from(b.overflow)).sum();
    assert_eq!(overflow, stats.away, "each entry away is counted once, at home");
}

#[test]
fn load_of_095_is_reached_without_a_refusal_and_all_is_found() {
    for entries in [90_000, 1_000_003] {
        let mut index = index(entries);
        let mut line = 0;
        let mut marks = vec![0.5, 0.8, 0.9, 0.92, 0.95];
        marks.reverse();
        while let Some(mark) = marks.last() {
            index
                .insert(random(u64::from(line)), line)
                .unwrap_or_else(|_| panic!("full at {}", index.load()));
            line += 1;
            if index.load() >= *mark {
                let share = index.stats().at_home as f64 / index.len() as f64;
                println!("{entries} entries, load {mark}: {:.1} % in the first bucket", share * 100.0);
                marks.pop();
            }
        }
        for i in 0..line {
            assert_eq!(index.find(random(u64::from(i)), |l| l == i), Some(i));
        }
        assert_counters_agree(&index);
    }
}

#[test]
fn churn_at_full_load_is_never_refused_and_keeps_most_entries_at_home() {
    let capacity = 90_000u64;
    for (percent, at_home_min) in [(60, 97), (80, 91), (100, 82)] {
        let live = capacity * percent / 100;
        let mut index = index(capacity as usize);
        for i in 0..live {
            index.insert(random(i), i as u32).unwrap();
        }
        let fresh = index.stats();
        // Ten lifetimes: the oldest goes, a new one comes.
        for i in live..live * 11 {
            assert!(index.remove(random(i - live), (i - live) as u32));
            index.insert(random(i), i as u32).unwrap();
        }
        assert_counters_agree(&index);
        let aged = index.stats();
        println!("load {:.2}: fresh {fresh:?}\n aged {aged:?}", index.load());
        assert!(aged.at_home * 100 >= index.len() * at_home_min, "load {:.2}: {aged:?}", index.load());
    }
}

#[test]
fn an_entry_settles_at_home_once_there_is_room() {
    let mut index = index(9000);
    let live: Vec<u64> = (0..9000).collect();
    for i in &live {
        index.insert(random(*i), *i as u32).unwrap();
    }
    let (gone, kept) = live.split_at(4500);
    for i in gone {
        assert!(index.remove(random(*i), *i as u32));
    }
    assert!(index.stats().away > 0);
    let away = index.stats().away;
    let moved = kept.iter().filter(|i| index.settle(random(**i), **i as u32)).count();
    assert_eq!(index.stats().away, away - moved);
    assert!(moved * 10 > away * 9, "{moved} of {away}");
    assert!(!index.settle(random(0), 0), "an absent entry is not settled");
    for i in kept {
        assert_eq!(index.find(random(*i), |l| l == *i as u32), Some(*i as u32));
    }
    assert_counters_agree(&index);
}

#[test]
fn every_promised_entry_fits_in_small_tables_too() {
    for entries in (1..200).chain([500, 1000, 5000]) {
        for seed in 0..20u64 {
            let mut index = index(entries);
            for i in 0..entries as u64 {
                let result = index.insert(random(seed << 40 | i), i as u32);
                assert!(result.is_ok(), "{entries} entries: refused at {i}");
            }
            assert_eq!(index.len(), entries);
        }
    }
}

#[test]
fn full_is_a_result_changes_nothing_and_passes() {
    let mut index = index(200);
    let mut lines = Vec::new();
    let mut i = 0u64;
    let refused = loop {
        if index.insert(random(i), i as u32) == Err(IndexFull) {
            break i;
        }
        lines.push(i);
        i += 1;
    };
    assert_counters_agree(&index);
    assert_eq!(index.find(random(refused), |l| l == refused as u32), None);
    for i in &lines {
        assert_eq!(index.find(random(*i), |l| l == *i as u32), Some(*i as u32));
        assert!(index.remove(random(*i), *i as u32));
    }
    assert!(index.is_empty());
    assert_counters_agree(&index);
    index.insert(random(refused), 1).unwrap();
}

#[test]
fn equal_hashes_are_bounded_not_fatal() {
    let mut index = index(1000);
    let hash = random(5);
    let fitted = (0..100).take_while(|line| index.insert(hash, *line).is_ok()).count();
    assert_eq!(fitted, 2 * SLOTS, "both buckets of the hash fill up");
    let mut asked = 0;
    let none = index.find(hash, |_| {
        asked += 1;
        false
    });
    assert_eq!((none, asked), (None, 20));
    for line in 0..20 {
        assert_eq!(index.find(hash, |l| l == line), Some(line));
    }
    for line in 0..20 {
        assert!(index.remove(hash, line) && !index.remove(hash, line));
    }
    assert_counters_agree(&index);
}

#[test]
fn alternate_bucket_of_the_alternate_is_the_first_for_any_number_of_buckets() {
    for entries in [1, 8, 9, 10, 100, 999, 12_345, 100_000] {
        let index = index(entries);
        for i in 0..2000 {
            let (hash, tag) = (random(i), tag_of(random(i)));
            let home = index.primary(hash);
            let away = index.other(home, tag);
            assert!(home < index.buckets.len() && away < index.buckets.len());
            assert_eq!(index.other(away, tag | AWAY), home);
        }
    }
}

#[test]
fn absent_keys_cost_one_bucket_while_their_bucket_has_not_overflowed() {
    let mut index = index(90_000);
    for i in 0..81_000 {
        index.insert(random(i), i as u32).unwrap();
    }
    let stats = index.stats();
    let share = stats.overflowing_buckets as f64 / index.buckets.len() as f64;
    println!("load {:.2}: {:.1} % of buckets overflow", index.load(), share * 100.0);
    assert!(share < 0.35);
    // And the tags alone answer almost always: ten tags of 15 bits a bucket.
    let mut asked = 0;
    for i in 1_000_000..1_100_000 {
        index.find(random(i), |_| {
            asked += 1;
            false
        });
    }
    assert!(asked < 100, "{asked} needless line reads in 100,000 lookups");
}

#[test]
fn the_candidate_is_nearly_always_the_line() {
    let mut index = index(90_000);
    for i in 0..90_000 {
        index.insert(random(i), i as u32).unwrap();
    }
    let right = (0..90_000u64).filter(|i| index.candidate(random(*i)) == Some(*i as u32)).count();
    assert!(right > 89_900, "{right}");
    assert_eq!(self::index(10).candidate(random(1)), None);
}

#[test]
fn extreme_hashes_are_ordinary() {
    let mut index = index(10);
    for (line, hash) in [0, u64::MAX, 1, 2, 3, 0xffff, 1 << 63, !0xffff].into_iter().enumerate() {
        index.prefetch(hash);
        index.insert(hash, line as u32).unwrap();
        assert_eq!(index.find(hash, |l| l == line as u32), Some(line as u32));
    }
    index.prefetch_many(&[0, u64::MAX]);
    assert_counters_agree(&index);
}

#[test]
fn bytes_are_those_announced() {
    let mut arena = Arena::new("t", Index::bytes_for(12_345), PagePreference::Small).unwrap();
    let index = Index::new(&mut arena, 12_345).unwrap();
    assert_eq!((index.bytes(), index.capacity()), (Index::bytes_for(12_345), 12_345));
    assert_eq!(arena.used_bytes(), index.bytes());
    // Eight bytes an entry.
    assert!(Index::bytes_for(10_000_000) < 80_100_000);
}

#[derive(Clone, Debug)]
enum Op {
    Insert(u64),
    Remove(usize),
    RemoveAbsent(u64),
    Find(u64),
}

/// Hashes that collide often: few buckets' and few tags' worth of bits.
fn hashes() -> impl Strategy<Value = u64> {
    prop_oneof![any::<u64>(), (0u64..4, 0u64..3).prop_map(|(bucket, tag)| bucket << 61 | tag << 1)]
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        6 => hashes().prop_map(Op::Insert),
        3 => any::<usize>().prop_map(Op::Remove),
        1 => hashes().prop_map(Op::RemoveAbsent),
        2 => hashes().prop_map(Op::Find),
    ];
    proptest::collection::vec(op, 0..400)
}

proptest! {
    #[test]
    fn behaves_as_a_set_of_pairs(entries in 1usize..120, ops in ops()) {
        let mut index = index(entries);
        let mut model: BTreeSet<(u64, u32)> = BTreeSet::new();
        for (line, op) in ops.into_iter().enumerate() {
            let line = line as u32;
            match op {
                Op::Insert(hash) => {
                    if index.insert(hash, line).is_ok() {
                        model.insert((hash, line));
                    } else {
                        prop_assert!(!model.is_empty());
                    }
                }
                Op::Remove(n) if !model.is_empty() => {
                    let (hash, line) = *model.iter().nth(n % model.len()).unwrap();
                    model.remove(&(hash, line));
                    prop_assert!(index.remove(hash, line));
                }
                Op::Remove(_) => {}
                Op::RemoveAbsent(hash) => prop_assert!(!index.remove(hash, line)),
                Op::Find(hash) => {
                    for (_, line) in model.range((hash, 0)..=(hash, u32::MAX)) {
                        prop_assert_eq!(index.find(hash, |l| l == *line), Some(*line));
                    }
                    prop_assert_eq!(index.find(hash, |l| l == line), None);
                }
            }
            prop_assert_eq!(index.len(), model.len());
        }
        for (hash, line) in &model {
            prop_assert_eq!(index.find(*hash, |l| l == *line), Some(*line));
        }
        assert_counters_agree(&index);
    }

    #[test]
    fn vector_compare_equals_the_portable_one(
        tags in proptest::array::uniform10(prop_oneof![Just(0u16), 0u16..4, any::<u16>()]),
        lines in proptest::array::uniform10(prop_oneof![Just(0u32), 0u32..4, any::<u32>()]),
        overflow in 0u16..4,
        tag in prop_oneof![Just(0u16), 0u16..4, any::<u16>()],
    ) {
        let bucket = Bucket { tags, overflow, _spare: overflow, lines };
        prop_assert_eq!(bucket.matches(tag), bucket.matches_portable(tag));
        prop_assert_eq!(bucket.matches(tags[9]), bucket.matches_portable(tags[9]));
    }
}
