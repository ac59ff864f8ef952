use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::PagePreference;

fn slab<T: Copy + Default>(capacity: usize) -> Slab<T> {
    let mut arena = Arena::new("t", Slab::<T>::bytes_for(capacity), PagePreference::Small).unwrap();
    Slab::new(&mut arena, capacity).unwrap()
}

/// A line as other crates write it: no unsafe, no trait of ours.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Line {
    key: u64,
    more: [u32; 8],
}

#[test]
fn exactly_capacity_lines_can_be_live_at_every_size_around_a_level() {
    for capacity in [0, 1, 2, 63, 64, 65, 4095, 4096, 4097, 70_000, 262_143, 262_144, 262_145] {
        let mut slab = slab::<u32>(capacity);
        let ids: Vec<u32> = core::iter::from_fn(|| slab.alloc(9)).collect();
        assert_eq!(ids, (0..capacity as u32).collect::<Vec<_>>(), "capacity {capacity}");
        assert_eq!(slab.len(), capacity);
        assert_eq!(slab.iter_from(0).count(), capacity);
        if let Some(last) = ids.last() {
            assert!(slab.free(*last) && !slab.free(*last));
            assert_eq!(slab.alloc(1), Some(*last));
        }
        assert_eq!(slab.alloc(1), None);
    }
}

#[test]
fn full_slab_recovers_line_by_line() {
    let mut slab = slab::<u32>(300_000);
    while slab.alloc(0).is_some() {}
    for id in [299_999, 0, 131_072, 64, 4096] {
        assert!(slab.free(id));
        assert_eq!(slab.alloc(1), Some(id));
        assert_eq!(slab.alloc(1), None);
    }
    // Two free lines far apart are both found.
    assert!(slab.free(5) && slab.free(250_000));
    let mut found = [slab.alloc(1).unwrap(), slab.alloc(1).unwrap()];
    found.sort_unstable();
    assert_eq!((found, slab.alloc(1)), ([5, 250_000], None));
}

#[test]
fn a_line_type_needs_no_unsafe_and_is_default_before_use() {
    let mut slab = slab::<Line>(10);
    assert_eq!(slab.get(3), Some(&Line::default()));
    let id = slab.alloc(Line { key: 5, more: [1; 8] }).unwrap();
    slab.get_mut(id).unwrap().key = 6;
    assert_eq!(slab.get(id).unwrap().key, 6);
    assert_eq!(core::ptr::from_ref(slab.get(id).unwrap()) as usize % 64, 0);
}

#[test]
fn ids_out_of_range_are_harmless() {
    let mut slab = slab::<u32>(100);
    for id in [100, 101, 127, 128, u32::MAX] {
        assert_eq!(slab.get(id), None);
        assert_eq!(slab.get_mut(id), None);
        assert!(!slab.is_live(id) && !slab.free(id));
        assert_eq!(slab.iter_from(id).next(), None);
        slab.prefetch(id);
    }
}

#[test]
fn overhead_is_an_eighth_of_a_byte_a_line() {
    let capacity = 10_000_000;
    let overhead = Slab::<Line>::bytes_for(capacity) - capacity * 64;
    assert!(overhead as f64 / (capacity as f64) < 0.128, "{overhead}");
}

#[derive(Clone, Debug)]
enum Op {
    Alloc(u32),
    Free(u32),
    Visit(u32),
}

fn ops(capacity: u32) -> impl Strategy<Value = Vec<Op>> {
    let id = 0..capacity + 5;
    let op = prop_oneof![
        6 => any::<u32>().prop_map(Op::Alloc),
        4 => id.clone().prop_map(Op::Free),
        1 => id.prop_map(Op::Visit),
    ];
    proptest::collection::vec(op, 0..600)
}

proptest! {
    #[test]
    fn behaves_as_a_map_from_ids_to_values(capacity in 1usize..200, ops in ops(200)) {
        let mut slab = slab::<u32>(capacity);
        let mut model = BTreeMap::new();
        for op in ops {
            match op {
                Op::Alloc(value) => match slab.alloc(value) {
                    Some(id) => {
                        prop_assert!((id as usize) < capacity);
                        prop_assert_eq!(model.insert(id, value), None, "a live line was given again");
                    }
                    None => prop_assert_eq!(model.len(), capacity),
                },
                Op::Free(id) => prop_assert_eq!(slab.free(id), model.remove(&id).is_some()),
                Op::Visit(from) => {
                    let seen: Vec<_> = slab.iter_from(from).map(|(id, v)| (id, *v)).collect();
                    let expected: Vec<_> = model.range(from..).map(|(id, v)| (*id, *v)).collect();
                    prop_assert_eq!(seen, expected);
                }
            }
            prop_assert_eq!(slab.len(), model.len());
        }
        for (id, value) in &model {
            prop_assert_eq!(slab.get(*id), Some(value));
            prop_assert!(slab.is_live(*id));
        }
    }
}
