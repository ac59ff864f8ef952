use proptest::prelude::*;

use super::*;

/// The obvious table: all prefixes, all looked at.
#[derive(Default)]
struct Naive(BTreeMap<(u32, u8), u32>);

impl Naive {
    fn lookup(&self, ip: u32) -> Option<u32> {
        (0..=32).rev().find_map(|len| self.0.get(&(mask(ip, len), len)).copied())
    }
}

fn ip(text: &str) -> u32 {
    text.parse::<core::net::Ipv4Addr>().unwrap().into()
}

#[test]
fn the_longest_prefix_wins_and_removal_restores_the_next() {
    let mut b = Lpm4Builder::new();
    let nested = [("0.0.0.0", 0), ("10.0.0.0", 8), ("10.1.0.0", 16), ("10.1.2.0", 23), ("10.1.2.0", 24)];
    let nested: Vec<_> = nested.into_iter().chain([("10.1.2.128", 25), ("10.1.2.200", 32)]).collect();
    for (value, (address, len)) in nested.iter().enumerate() {
        assert_eq!(b.insert(ip(address), *len, value as u32), Ok(None));
    }
    for value in (0..nested.len()).rev() {
        assert_eq!(b.table().lookup(ip("10.1.2.200")), Some(value as u32));
        let (address, len) = nested[value];
        assert_eq!(b.remove(ip(address), len), Some(value as u32));
        assert_eq!(b.remove(ip(address), len), None);
    }
    assert_eq!(b.table().lookup(ip("10.1.2.200")), None);
}

#[test]
fn prefix_ends_are_exact() {
    for len in 1..=32u8 {
        let mut b = Lpm4Builder::new();
        let base = mask(ip("170.85.170.85"), len);
        let last = base | !mask(u32::MAX, len);
        b.insert(base, len, 9).unwrap();
        let table = b.snapshot();
        assert_eq!((table.lookup(base), table.lookup(last)), (Some(9), Some(9)), "/{len}");
        assert_eq!(
            (table.lookup(base.wrapping_sub(1)), table.lookup(last.wrapping_add(1))),
            (None, None),
            "/{len}"
        );
        table.prefetch(base);
    }
}

#[test]
fn a_snapshot_does_not_change_with_its_builder() {
    let mut b = Lpm4Builder::new();
    b.insert(ip("10.0.0.0"), 8, 1).unwrap();
    b.insert(ip("10.1.2.0"), 24, 2).unwrap();
    let old = b.snapshot();
    b.insert(ip("10.1.2.0"), 24, 3).unwrap();
    b.insert(ip("10.1.3.128"), 25, 4).unwrap();
    b.remove(ip("10.0.0.0"), 8);
    let new = b.snapshot();
    let at = |t: &Lpm4| ["10.1.2.3", "10.1.3.200", "10.9.9.9"].map(|a| t.lookup(ip(a)));
    assert_eq!(at(&old), [Some(2), Some(1), Some(1)]);
    assert_eq!(at(&new), [Some(3), Some(4), None]);
}

#[test]
fn chunks_are_given_back_when_their_prefixes_go() {
    let mut b = Lpm4Builder::new();
    b.insert(0, 1, 1).unwrap();
    let all = |b: &Lpm4Builder| b.table.pages.len() * PAGE - b.free_chunks.len();
    for round in 0..3 {
        for i in 0..200u32 {
            b.insert(i << 20 | 77, 32, i).unwrap();
            b.insert(i << 20 | 0x100, 24, i).unwrap();
        }
        assert_eq!(all(&b), 400, "round {round}");
        for i in 0..200u32 {
            assert!(b.remove(i << 20 | 77, 32).is_some() && b.remove(i << 20 | 0x100, 24).is_some());
        }
        assert_eq!(all(&b), 0, "round {round}");
    }
    assert_eq!(b.table.pages.len(), 400usize.div_ceil(PAGE));
    assert_eq!(b.table().lookup(77), Some(1));
}

#[test]
fn neighbours_with_one_value_share_an_entry_and_part_again() {
    let mut b = Lpm4Builder::new();
    let used = |b: &Lpm4Builder| b.table.pages.len() * PAGE - b.free_chunks.len();
    for i in 0..256 {
        b.insert(ip("10.1.0.0") | i << 8, 24, 5).unwrap();
    }
    assert_eq!(used(&b), 0);
    // Neither a shorter prefix nor the removal of one of them is mistaken.
    b.insert(ip("10.0.0.0"), 8, 6).unwrap();
    b.remove(ip("10.1.7.0"), 24);
    assert_eq!(used(&b), 1);
    let at =
        |b: &Lpm4Builder| ["10.1.6.255", "10.1.7.0", "10.1.8.0", "10.2.0.0"].map(|a| b.table().lookup(ip(a)));
    assert_eq!(at(&b), [Some(5), Some(6), Some(5), Some(6)]);
    b.insert(ip("10.1.7.0"), 24, 5).unwrap();
    b.remove(ip("10.0.0.0"), 8);
    assert_eq!(at(&b), [Some(5), Some(5), Some(5), None]);
    assert_eq!(used(&b), 0);
}

#[test]
fn bad_prefixes_are_refused_with_the_right_one() {
    let mut b = Lpm4Builder::new();
    let error = b.insert(ip("10.1.2.3"), 24, 1).unwrap_err();
    assert_eq!(error.to_string(), "prefix 10.1.2.3/24 has host bits set; write 10.1.2.0/24");
    assert_eq!(b.insert(0, 33, 1), Err(LpmError::Length { len: 33, bits: 32 }));
    assert_eq!(b.insert(0, 0, VALUE_MAX + 1), Err(LpmError::Value(VALUE_MAX + 1)));
    assert!(b.is_empty());
    assert_eq!(b.remove(5, 200), None);
    b.insert(0, 0, VALUE_MAX).unwrap();
    b.insert(0, 32, VALUE_MAX).unwrap();
    assert_eq!((b.table().lookup(0), b.table().lookup(1)), (Some(VALUE_MAX), Some(VALUE_MAX)));
}

/// Shares of the lengths in a full table, in thousandths, about as public collectors see them.
const INTERNET: [(u8, u32); 13] = [
    (8, 1),
    (12, 1),
    (14, 1),
    (16, 14),
    (17, 9),
    (18, 14),
    (19, 26),
    (20, 46),
    (21, 55),
    (22, 115),
    (23, 100),
    (24, 610),
    (29, 8),
];

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

fn internet_prefix(state: &mut u64) -> (u32, u8) {
    let mut pick = (random(state) % 1000) as u32;
    let mut len = 24;
    for (l, share) in INTERNET {
        if pick < share {
            len = l;
            break;
        }
        pick -= share;
    }
    // Routed space is dense in some parts: 16,000 of the 65,536 upper halves.
    let upper = (random(state) % 16_000) as u32 * 3 + 0x0100;
    (mask(upper << 16 | random(state) as u32 & 0xffff, len), len)
}

#[test]
fn a_full_internet_table_fits_and_answers_as_the_naive_one() {
    let mut state = 1;
    let (mut b, mut naive) = (Lpm4Builder::new(), Naive::default());
    while b.len() < 1_000_000 {
        let (address, len) = internet_prefix(&mut state);
        b.insert(address, len, (random(&mut state) % 4000) as u32).unwrap();
    }
    naive.0.extend(b.iter().map(|(address, len, value)| ((address, len), value)));
    println!("{} prefixes, table {} MiB", b.len(), b.table().bytes() >> 20);
    assert!(b.table().bytes() < 256 << 20);
    let check = |b: &Lpm4Builder, naive: &Naive, state: &mut u64| {
        for _ in 0..100_000 {
            let (address, len) = internet_prefix(state);
            let ip = address | random(state) as u32 & !mask(u32::MAX, len);
            assert_eq!(b.table().lookup(ip), naive.lookup(ip));
        }
    };
    check(&b, &naive, &mut state);
    // Half of it goes again.
    let snapshot = b.snapshot();
    let gone: Vec<_> = b.iter().filter(|_| random(&mut state).is_multiple_of(2)).collect();
    for (address, len, value) in gone {
        assert_eq!(b.remove(address, len), Some(value));
        naive.0.remove(&(address, len));
    }
    check(&b, &naive, &mut state);
    drop(snapshot);
}

#[derive(Clone, Debug)]
enum Op {
    Insert(u32, u8, u32),
    Remove(usize),
    Snapshot,
}

/// Addresses that share many leading bits, so that prefixes nest.
fn address() -> impl Strategy<Value = u32> {
    (0u32..2, 0u32..3, 0u32..3, any::<u8>())
        .prop_map(|(a, b, c, d)| a << 31 | b << 16 | c << 8 | u32::from(d))
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        5 => (address(), 0u8..=32, 0u32..1000).prop_map(|(a, l, v)| Op::Insert(a, l, v)),
        3 => any::<usize>().prop_map(Op::Remove),
        1 => Just(Op::Snapshot),
    ];
    proptest::collection::vec(op, 0..100)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn answers_as_the_naive_table_after_any_changes(
        ops in ops(),
        asked in proptest::collection::vec(address(), 40),
    ) {
        let (mut b, mut naive) = (Lpm4Builder::new(), Naive::default());
        let mut published: Option<(Lpm4, Vec<Option<u32>>)> = None;
        for op in ops {
            match op {
                Op::Insert(address, len, value) => {
                    let address = mask(address, len);
                    prop_assert_eq!(b.insert(address, len, value), Ok(naive.0.insert((address, len), value)));
                }
                Op::Remove(n) if !naive.0.is_empty() => {
                    let (address, len) = *naive.0.keys().nth(n % naive.0.len()).unwrap();
                    prop_assert_eq!(b.remove(address, len), naive.0.remove(&(address, len)));
                }
                Op::Remove(_) => {}
                Op::Snapshot => {
                    published = Some((b.snapshot(), asked.iter().map(|ip| naive.lookup(*ip)).collect()));
                }
            }
            for ip in &asked {
                prop_assert_eq!(b.table().lookup(*ip), naive.lookup(*ip));
            }
            if let Some((table, answers)) = &published {
                let now: Vec<_> = asked.iter().map(|ip| table.lookup(*ip)).collect();
                prop_assert_eq!(&now, answers, "a published table changed");
            }
        }
        // Without prefixes nothing is left over.
        let all: Vec<_> = b.iter().collect();
        for (address, len, _) in all {
            b.remove(address, len);
        }
        prop_assert_eq!(b.free_chunks.len(), b.table.pages.len() * PAGE);
        prop_assert!(b.table.root.iter().all(|entry| *entry == 0));
    }
}
