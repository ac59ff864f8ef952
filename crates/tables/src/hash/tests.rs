use super::*;

/// Chi-square per degree of freedom of the counts; near 1 for a random function, deviation √(2/n).
fn chi_square(counts: &[u32]) -> f64 {
    let total: u64 = counts.iter().map(|c| u64::from(*c)).sum();
    let expected = total as f64 / counts.len() as f64;
    let sum: f64 = counts.iter().map(|c| (f64::from(*c) - expected).powi(2) / expected).sum();
    sum / (counts.len() - 1) as f64
}

/// Checks the two parts of the hash that the index uses, and their combination.
fn assert_random_looking(name: &str, hashes: impl Iterator<Item = u64> + Clone) {
    // 1021 is prime: the index scales the upper half to any number of buckets.
    let mut buckets = vec![0u32; 1021];
    let mut tags = vec![0u32; 1024];
    let mut both = vec![0u32; 1024];
    for hash in hashes.clone() {
        buckets[(((hash >> 32) * 1021) >> 32) as usize] += 1;
        tags[(hash as u16 >> 1) as usize % 1024] += 1;
        both[((hash >> 59) << 5 | hash >> 1 & 31) as usize] += 1;
    }
    for (part, counts) in [("buckets", &buckets), ("tags", &tags), ("bucket and tag", &both)] {
        let chi = chi_square(counts);
        // Five standard deviations.
        assert!((chi - 1.0).abs() < 5.0 * (2.0 / 1020.0f64).sqrt(), "{name}, {part}: {chi}");
    }
}

fn hasher(n: u64) -> KeyedHasher {
    KeyedHasher::new([n, 2, 3, 4])
}

#[test]
fn sequential_addresses_and_ports_spread_like_random_ones() {
    for seed in 0..8 {
        let h = hasher(seed);
        let n = 0..400_000u64;
        assert_random_looking("addresses", n.clone().map(|i| h.hash2(0x0a00_0000 + i, 17)));
        assert_random_looking("ports", n.clone().map(|i| h.hash2(0x0a00_0001, i << 16 | 17)));
        assert_random_looking("address and port", n.clone().map(|i| h.hash2(0x6440_0000 + i / 64, i % 64)));
        assert_random_looking("high bits", n.clone().map(|i| h.hash2(i << 44, 0)));
        assert_random_looking("both", n.clone().map(|i| h.hash2(i, i)));
        assert_random_looking("second word", n.map(|i| h.hash2(0, i.rotate_right(16))));
    }
}

#[test]
fn low_entropy_keys_spread_like_random_ones() {
    let h = hasher(99);
    // All words of two or three set bits, over both halves of the key.
    let bit = |i: u32| if i < 64 { (1u64 << i, 0) } else { (0, 1u64 << (i - 64)) };
    let mut hashes = Vec::new();
    for i in 0..128 {
        for j in 0..i {
            for k in 0..j {
                let (a, b) = [bit(i), bit(j), bit(k)].iter().fold((0, 0), |(a, b), w| (a ^ w.0, b ^ w.1));
                hashes.push(h.hash2(a, b));
            }
        }
    }
    assert_random_looking("three bits", hashes.into_iter());
}

#[test]
fn every_key_bit_flips_every_hash_bit_half_the_time() {
    let h = hasher(7);
    let samples = 4096u32;
    for flip in 0..128 {
        let mut flipped = [0u32; 64];
        for i in 0..u64::from(samples) {
            let (a, b) = (0x6440_0000 + i, i << 32 | 443);
            let (c, d) = if flip < 64 { (a ^ 1 << flip, b) } else { (a, b ^ 1 << (flip - 64)) };
            let difference = h.hash2(a, b) ^ h.hash2(c, d);
            for (bit, count) in flipped.iter_mut().enumerate() {
                *count += (difference >> bit & 1) as u32;
            }
        }
        for (bit, count) in flipped.iter().enumerate() {
            let share = f64::from(*count) / f64::from(samples);
            // Six and a half standard deviations, for there are 8192 cells.
            assert!((share - 0.5).abs() < 0.051, "key bit {flip}, hash bit {bit}: {share}");
        }
    }
}

#[test]
fn another_seed_puts_the_same_keys_in_unrelated_buckets() {
    // Keys that share one of 64 buckets under one seed spread evenly under the next, even if the seeds differ
    // in one bit.
    for bit in [0, 1, 63] {
        for word in 0..4 {
            let first = KeyedHasher::new([0; 4]);
            let mut seed = [0; 4];
            seed[word] = 1 << bit;
            let second = KeyedHasher::new(seed);
            let mut counts = vec![0u32; 64];
            for i in 0..400_000u64 {
                if first.hash2(i, 6) >> 58 == 5 {
                    counts[(second.hash2(i, 6) >> 58) as usize] += 1;
                }
            }
            let chi = chi_square(&counts);
            assert!((chi - 1.0).abs() < 5.0 * (2.0 / 63.0f64).sqrt(), "seed word {word} bit {bit}: {chi}");
        }
    }
}

#[test]
fn the_key_is_not_printed() {
    assert_eq!(format!("{:?}", hasher(1)), "KeyedHasher");
}
