use proptest::prelude::*;

use super::*;

/// The obvious table: all prefixes, all looked at.
#[derive(Default)]
struct Naive(BTreeMap<(u128, u8), u32>);

impl Naive {
    fn lookup(&self, ip: u128) -> Option<u32> {
        (0..=128).rev().find_map(|len| self.0.get(&(mask(ip, len), len)).copied())
    }
}

fn ip(text: &str) -> u128 {
    text.parse::<Ipv6Addr>().unwrap().into()
}

#[test]
fn the_longest_prefix_wins_and_removal_restores_the_next() {
    let mut b = Lpm6Builder::new();
    let nested = ["::/0", "2000::/3", "2001::/16", "2001:d00::/24", "2001:db8::/32", "2001:db8:1::/48"];
    let longer = ["2001:db8:1:2::/64", "2001:db8:1:2::8000/113", "2001:db8:1:2::ffff/128"];
    let nested: Vec<(u128, u8)> = nested
        .into_iter()
        .chain(longer)
        .map(|text| text.split_once('/').map(|(a, l)| (ip(a), l.parse().unwrap())).unwrap())
        .collect();
    for (value, (address, len)) in nested.iter().enumerate() {
        assert_eq!(b.insert(*address, *len, value as u32), Ok(None));
    }
    for value in (0..nested.len()).rev() {
        assert_eq!(b.snapshot().lookup(ip("2001:db8:1:2::ffff")), Some(value as u32));
        let (address, len) = nested[value];
        assert_eq!(b.remove(address, len), Some(value as u32));
        assert_eq!(b.remove(address, len), None);
    }
    assert_eq!(b.snapshot().lookup(ip("2001:db8:1:2::ffff")), None);
    assert!(b.snapshot().tries.iter().all(|trie| trie.nodes.is_empty()));
}

#[test]
fn prefix_ends_are_exact() {
    for len in 1..=128u8 {
        let mut b = Lpm6Builder::new();
        let base = mask(ip("aaaa:5555:aaaa:5555:aaaa:5555:aaaa:5555"), len);
        let last = base | !mask(u128::MAX, len);
        b.insert(base, len, 9).unwrap();
        let table = b.snapshot();
        assert_eq!((table.lookup(base), table.lookup(last)), (Some(9), Some(9)), "/{len}");
        let (before, behind) = (base.wrapping_sub(1), last.wrapping_add(1));
        assert_eq!((table.lookup(before), table.lookup(behind)), (None, None), "/{len}");
        table.prefetch(base);
    }
}

#[test]
fn bad_prefixes_are_refused_with_the_right_one() {
    let mut b = Lpm6Builder::new();
    let error = b.insert(ip("2001:db8::1"), 64, 1).unwrap_err();
    assert_eq!(error.to_string(), "prefix 2001:db8::1/64 has host bits set; write 2001:db8::/64");
    assert_eq!(b.insert(0, 129, 1), Err(LpmError::Length { len: 129, bits: 128 }));
    assert_eq!(b.insert(0, 0, VALUE_MAX + 1), Err(LpmError::Value(VALUE_MAX + 1)));
    assert!(b.is_empty());
    assert_eq!(b.remove(5, 200), None);
    b.insert(0, 0, VALUE_MAX).unwrap();
    b.insert(u128::MAX, 128, VALUE_MAX).unwrap();
    let table = b.snapshot();
    assert_eq!((table.lookup(0), table.lookup(u128::MAX)), (Some(VALUE_MAX), Some(VALUE_MAX)));
}

#[test]
fn a_change_makes_only_its_own_trie_anew() {
    let mut b = Lpm6Builder::new();
    for top in [0x2001_u128, 0x2a00, 0x2a01] {
        b.insert(top << 112 | 1 << 95, 48, top as u32).unwrap();
    }
    let old = b.snapshot();
    b.insert(0x2a00_u128 << 112 | 2 << 95, 48, 7).unwrap();
    let new = b.snapshot();
    let shared = old.tries.iter().zip(&new.tries).filter(|(a, b)| Arc::ptr_eq(a, b)).count();
    assert_eq!(shared, 2);
    let at = 0x2a00_u128 << 112 | 2 << 95;
    assert_eq!((old.lookup(at), new.lookup(at)), (None, Some(7)));
}

/// Shares of the lengths in a full table, in thousandths, about as public collectors see them.
const INTERNET: [(u8, u32); 8] =
    [(29, 25), (32, 110), (36, 40), (40, 85), (44, 110), (46, 40), (47, 40), (48, 550)];

fn random(state: &mut u64) -> u128 {
    let mut next = || {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    };
    u128::from(next()) << 64 | u128::from(next())
}

fn internet_prefix(state: &mut u64) -> (u128, u8) {
    let mut pick = (random(state) % 1000) as u32;
    let mut len = 48;
    for (l, share) in INTERNET {
        if pick < share {
            len = l;
            break;
        }
        pick -= share;
    }
    // Routed space: 40 of the /16 within 2000::/3, and 20,000 allocations of 32 bits in them.
    let allocation = random(state) % 20_000;
    let top = 0x2001 + (allocation % 40) * 0x2b;
    let address = top << 112 | (allocation / 40 * 0x65) << 96 | random(state) >> 32;
    (mask(address, len), len)
}

#[test]
fn a_full_internet_table_fits_and_answers_as_the_naive_one() {
    let mut state = 1;
    let (mut b, mut naive) = (Lpm6Builder::new(), Naive::default());
    while b.len() < 250_000 {
        let (address, len) = internet_prefix(&mut state);
        b.insert(address, len, (random(&mut state) % 4000) as u32).unwrap();
    }
    naive.0.extend(b.iter().map(|(address, len, value)| ((address, len), value)));
    let table = b.snapshot();
    println!("{} prefixes, table {} KiB", b.len(), table.bytes() >> 10);
    assert!(table.bytes() < 32 << 20, "{} bytes", table.bytes());
    for _ in 0..50_000 {
        let (address, len) = internet_prefix(&mut state);
        let ip = address | random(&mut state) & !mask(u128::MAX, len);
        let (found, bits) = table.lookup_around(ip);
        assert_eq!(found, naive.lookup(ip));
        let beside = ip ^ random(&mut state).unbounded_shr(bits.into());
        assert_eq!(table.lookup(beside), found, "{beside:x} beside {ip:x}/{bits}");
    }
}

#[test]
fn memory_is_bounded_however_prefixes_lie() {
    let mut state = 7;
    let mut b = Lpm6Builder::new();
    for _ in 0..20_000 {
        let address = random(&mut state);
        b.insert(address, 128, 1).unwrap();
    }
    let bytes = b.snapshot().bytes() - size_of::<Root>();
    assert!(bytes < 20_000 * 19 * (size_of::<Node>() + 3 * size_of::<u32>()), "{bytes}");
}

#[derive(Clone, Debug)]
enum Op {
    Insert(u128, u8, u32),
    Remove(usize),
}

/// Addresses that share many leading bits, so that prefixes nest.
fn address() -> impl Strategy<Value = u128> {
    (0u128..2, 0u128..3, 0u128..3, any::<u8>(), 0u32..128)
        .prop_map(|(a, b, c, d, at)| a << 127 | b << 110 | c << 80 | u128::from(d).rotate_right(at))
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        5 => (address(), 0u8..=128, 0u32..1000).prop_map(|(a, l, v)| Op::Insert(a, l, v)),
        3 => any::<usize>().prop_map(Op::Remove),
    ];
    proptest::collection::vec(op, 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn answers_as_the_naive_table_after_any_changes(
        ops in ops(),
        asked in proptest::collection::vec(address(), 40),
    ) {
        let (mut b, mut naive) = (Lpm6Builder::new(), Naive::default());
        let mut published: Option<(Lpm6, Vec<Option<u32>>)> = None;
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
            }
            // The prefixes' own ends are where mistakes are.
            let edges = naive.0.keys().flat_map(|(a, len)| [*a, *a | !mask(u128::MAX, *len)]);
            let asked: Vec<u128> = asked.iter().copied().chain(edges).collect();
            let table = b.snapshot();
            for ip in &asked {
                prop_assert_eq!(table.lookup(*ip), naive.lookup(*ip));
                let (found, bits) = table.lookup_around(*ip);
                prop_assert_eq!(found, table.lookup(*ip));
                let apart = u128::MAX.unbounded_shr(bits.into());
                for other in asked.iter().map(|other| ip ^ (ip ^ other) & apart).chain([*ip ^ apart]) {
                    prop_assert_eq!(naive.lookup(other), found, "{:x} beside {:x}/{}", other, ip, bits);
                }
            }
            if let Some((table, answers)) = &published {
                let now: Vec<_> = asked.iter().take(answers.len()).map(|ip| table.lookup(*ip)).collect();
                prop_assert_eq!(&now[..40], &answers[..40], "a published table changed");
            } else {
                published = Some((table, asked.iter().map(|ip| naive.lookup(*ip)).collect()));
            }
        }
        let all: Vec<_> = b.iter().collect();
        for (address, len, _) in all {
            b.remove(address, len);
        }
        prop_assert!(b.snapshot().root.iter().all(|entry| *entry == 0));
    }
}
