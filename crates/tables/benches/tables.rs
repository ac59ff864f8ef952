//! Prints what the tables' operations cost, in nanoseconds and in cycles of the processor's time-stamp
//! counter.
//!
//! `cargo bench -p carrack-tables [-- ENTRIES…]`; without arguments 1,000 and 1,000,000 entries. Keys come in
//! random order, in bursts of 64 with one prefetch stage per table, as the packet path uses them.

use std::hint::black_box;
use std::time::Instant;

use carrack_tables::{
    Arena, Deadlines, Index, KeyedHasher, Lpm4Builder, PagePreference, Parity, PortMap, Slab,
};

const BURST: usize = 64;

/// A session line: one cache line, its key in front.
#[repr(C, align(64))]
#[derive(Clone, Copy, Default)]
struct Line {
    key: u64,
    rest: [u64; 7],
}

fn main() {
    let sizes: Vec<usize> = std::env::args().filter_map(|arg| arg.parse().ok()).collect();
    let sizes = if sizes.is_empty() { vec![1_000, 1_000_000] } else { sizes };
    hash();
    for entries in sizes {
        index_and_slab(entries);
    }
    sweep();
    ports();
    routes();
}

/// Runs `work`, which does `operations` in one go, until a quarter of a second has passed; prints the best
/// round.
fn measure(name: &str, operations: usize, mut work: impl FnMut()) {
    measure_after(name, operations, &mut (), |()| {}, |()| work());
}

/// As [`measure`], with a preparation before each round that does not count.
fn measure_after<S>(
    name: &str,
    operations: usize,
    state: &mut S,
    mut prepare: impl FnMut(&mut S),
    mut work: impl FnMut(&mut S),
) {
    let (mut best_ns, mut best_cycles) = (f64::MAX, f64::MAX);
    let start = Instant::now();
    while start.elapsed().as_millis() < 250 {
        prepare(state);
        let (round, cycles) = (Instant::now(), cycles());
        work(state);
        best_cycles = best_cycles.min((self::cycles() - cycles) as f64 / operations as f64);
        best_ns = best_ns.min(round.elapsed().as_nanos() as f64 / operations as f64);
    }
    println!("{name:<52} {best_ns:8.2} ns {best_cycles:8.1} cycles");
}

#[cfg(target_arch = "x86_64")]
fn cycles() -> u64 {
    // SAFETY: reads the time-stamp counter, which every x86-64 processor has.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn cycles() -> u64 {
    0
}

/// Distinct keys in an order without pattern.
fn key(i: u64) -> u64 {
    let x = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^ (x >> 31)
}

fn hash() {
    let hasher = KeyedHasher::new([1, 2, 3, 4]);
    measure("hash2, throughput", 1 << 16, || {
        let mut sum = 0;
        for i in 0..1 << 16 {
            sum ^= hasher.hash2(black_box(i), 6);
        }
        black_box(sum);
    });
    measure("hash2, latency", 1 << 16, || {
        let mut last = 0;
        for _ in 0..1 << 16 {
            last = hasher.hash2(last, 6);
        }
        black_box(last);
    });
}

fn index_and_slab(entries: usize) {
    let bytes = Index::bytes_for(entries) + Slab::<Line>::bytes_for(entries);
    let mut arena = Arena::new("bench", bytes, PagePreference::Huge).expect("memory for the bench");
    let mut index = Index::new(&mut arena, entries).expect("sized above");
    let mut slab = Slab::<Line>::new(&mut arena, entries).expect("sized above");
    let hasher = KeyedHasher::new([1, 2, 3, 4]);
    println!("\n{entries} entries on {}, {:.1} MB", arena.page_kind(), bytes as f64 / 1e6);

    let mut filled = 0;
    // Filling is measured alone: emptying between rounds is not counted.
    measure_after(
        "insert into index and slab, serial, empty to full",
        entries,
        &mut (&mut index, &mut slab),
        |(index, slab)| {
            for i in 0..core::mem::take(&mut filled) {
                let wanted = key(i);
                let hash = hasher.hash2(wanted, 6);
                let verify = |id| slab.get(id).is_some_and(|line| line.key == wanted);
                let line = index.find(hash, verify).expect("present");
                index.remove(hash, line);
                slab.free(line);
            }
            filled = entries as u64;
        },
        |(index, slab)| {
            for i in 0..entries as u64 {
                let line = slab.alloc(Line { key: key(i), rest: [i; 7] }).expect("room");
                index.insert(hasher.hash2(key(i), 6), line).expect("room");
            }
        },
    );
    let stats = index.stats();
    println!("load {:.3}, {:.1} % at home", index.load(), stats.at_home as f64 * 100.0 / index.len() as f64);

    // Visiting order: random, with an odd stride through the key numbers mixed once more.
    let rounds = (entries / BURST).clamp(64, 20_000);
    let order: Vec<u64> = (0..(rounds * BURST) as u64).map(|i| key(i ^ 0x5555) % entries as u64).collect();
    let absent: Vec<u64> = order.iter().map(|i| i + entries as u64 * 3).collect();
    for (name, numbers) in [("hit", &order), ("miss", &absent)] {
        measure(&format!("find, {name}: burst of 64, hash, prefetch, verify"), numbers.len(), || {
            let mut found = 0usize;
            for burst in numbers.chunks_exact(BURST) {
                let mut hashes = [0; BURST];
                for (hash, i) in hashes.iter_mut().zip(burst) {
                    *hash = hasher.hash2(key(*i), 6);
                }
                index.prefetch_many(&hashes);
                for hash in hashes {
                    if let Some(line) = index.candidate(hash) {
                        slab.prefetch(line);
                    }
                }
                for (hash, i) in hashes.into_iter().zip(burst) {
                    let wanted = key(*i);
                    let verify = |id| slab.get(id).is_some_and(|line| line.key == wanted);
                    found += usize::from(index.find(hash, verify).is_some());
                }
            }
            assert_eq!(found, if name == "hit" { numbers.len() } else { 0 });
        });
        measure(&format!("find, {name}: one by one"), numbers.len(), || {
            for i in numbers.iter() {
                let wanted = key(*i);
                let verify = |id| slab.get(id).is_some_and(|line| line.key == wanted);
                black_box(index.find(hasher.hash2(wanted, 6), verify));
            }
        });
    }
    let mut next = entries as u64;
    let churn = entries.min(100_000);
    measure("replace the oldest, full index and slab, serial", churn, || {
        for _ in 0..churn {
            let old = hasher.hash2(key(next - entries as u64), 6);
            let wanted = key(next - entries as u64);
            let line = index.find(old, |id| slab.get(id).is_some_and(|line| line.key == wanted));
            let line = line.expect("present");
            index.remove(old, line);
            slab.free(line);
            let line = slab.alloc(Line { key: key(next), rest: [0; 7] }).expect("room");
            index.insert(hasher.hash2(key(next), 6), line).expect("room");
            next += 1;
        }
    });
}

fn sweep() {
    println!();
    let lines = 1_000_000;
    let mut arena =
        Arena::new("bench", Deadlines::bytes_for(lines), PagePreference::Huge).expect("memory for the bench");
    let mut deadlines = Deadlines::new(&mut arena, lines).expect("sized above");
    for id in 0..lines as u32 {
        deadlines.set(id, 300 + id % 30_000 / 64);
    }
    let mut due = 0u64;
    measure("sweep, per line, nothing due", lines, || {
        deadlines.sweep(100, lines, &mut |_| due += 1);
    });
    measure("sweep, per line, one group in 469 due", lines, || {
        deadlines.sweep(300, lines, &mut |_| due += 1);
    });
    black_box(due);
}

fn ports() {
    println!();
    let mut arena =
        Arena::new("bench", PortMap::bytes_for(120), PagePreference::Small).expect("memory for the bench");
    let mut map = PortMap::new(&mut arena, 120, 0).expect("sized above");
    let mut hint = 1u64;
    let mut random = move || {
        hint = hint.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (hint >> 48) as u16
    };
    let pair = |map: &mut PortMap, random: &mut dyn FnMut() -> u16, range: core::ops::RangeInclusive<u16>| {
        for _ in 0..10_000 {
            if let Some(port) = map.alloc_in(range.clone(), random(), None, 0) {
                map.free(port, 0, false);
            }
        }
    };
    for full in [0, 50, 95] {
        while map.used() < 65_536 / 100 * full {
            map.alloc_in(0..=u16::MAX, random(), None, 0);
        }
        measure(&format!("port alloc and free, all ports, {full} % full"), 10_000, || {
            pair(&mut map, &mut random, 0..=u16::MAX);
        });
    }
    while map.used() < 65_535 {
        map.alloc_in(0..=u16::MAX, random(), None, 0);
    }
    measure("port alloc and free, all ports, one free", 10_000, || pair(&mut map, &mut random, 0..=u16::MAX));
    measure("port refusal, parity without a free port", 10_000, || {
        map.alloc_in(0..=u16::MAX, 0, None, 0);
        for _ in 0..10_000 {
            black_box(map.alloc_in(0..=u16::MAX, random(), Some(Parity::Even), 0));
        }
    });
    for port in 4096..=4607 {
        map.free(port, 0, false);
    }
    while map.used_in(4096..=4607) < 512 * 95 / 100 {
        map.alloc_in(4096..=4607, random(), None, 0);
    }
    measure("port alloc and free, block of 512, 95 % full", 10_000, || {
        pair(&mut map, &mut random, 4096..=4607);
    });
}

fn routes() {
    println!();
    let mut builder = Lpm4Builder::new();
    let (mut i, start) = (0, Instant::now());
    while builder.len() < 1_000_000 {
        let random = key(i);
        i += 1;
        let len = 16 + (random >> 40) as u8 % 9;
        let upper = ((random >> 48) % 16_000) as u32 * 3 + 0x100;
        let address = (upper << 16 | random as u32 & 0xffff) & (u32::MAX << (32 - len));
        builder.insert(address, len, (random >> 50) as u32).expect("a good prefix");
    }
    let table = builder.snapshot();
    println!("{} routes in {:.1?}, {:.1} MB", builder.len(), start.elapsed(), table.bytes() as f64 / 1e6);
    let asked: Vec<u32> = (0..100_000)
        .map(|i| (((key(i) >> 48) % 16_000) as u32 * 3 + 0x100) << 16 | key(i) as u32 >> 16)
        .collect();
    measure("route lookup, random destinations, bursts of 64", asked.len(), || {
        let mut sum = 0u32;
        for burst in asked.chunks(BURST) {
            for ip in burst {
                table.prefetch(*ip);
            }
            for ip in burst {
                sum = sum.wrapping_add(table.lookup(*ip).unwrap_or(0));
            }
        }
        black_box(sum);
    });
}
