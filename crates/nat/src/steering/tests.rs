use std::collections::{BTreeMap, HashSet};

use super::*;

/// The hash as cards compute it: any input, any key.
fn toeplitz(key: &[u8], input: &[u8]) -> u32 {
    let bit = |bytes: &[u8], at: usize| u32::from(bytes[at / 8] >> (7 - at % 8) & 1);
    let window =
        |from: usize| (from..from + 32).fold(0, |word, at| word << 1 | bit(key, at % (key.len() * 8)));
    (0..input.len() * 8).filter(|at| bit(input, *at) == 1).fold(0, |sum, at| sum ^ window(at))
}

/// The values published for checking implementations of receive-side scaling (IPv4 without ports).
#[test]
fn the_card_s_hash_of_these_tests_is_the_published_one() {
    let key = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0,
        0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42,
        0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
    ];
    for (source, destination, hash) in [
        ([66, 9, 149, 187], [161, 142, 100, 80], 0x323e_8fc2),
        ([199, 92, 111, 2], [65, 69, 140, 83], 0xd718_262a),
        ([24, 19, 198, 95], [12, 22, 207, 184], 0xd2d0_a5de),
    ] {
        assert_eq!(toeplitz(&key, &[source, destination].concat()), hash);
    }
}

/// Wherever the address stands in what the card hashes, and however long its key is.
#[test]
fn a_card_with_this_key_and_table_chooses_the_same_worker() {
    for (workers, seed) in [(1, 0), (2, 1), (3, 99), (16, 5), (64, 126)] {
        let steering = Steering::new(workers, seed);
        let table = steering.table();
        for bytes in [40, 52] {
            let key: Vec<u8> = steering.key().into_iter().cycle().take(bytes).collect();
            for address in (0..200).map(|n: u32| n.wrapping_mul(0x9e37_79b1)) {
                let own = address.to_be_bytes();
                let alone = own.to_vec();
                let before = [own, [0; 4]].concat();
                let behind = [[0; 4], own].concat();
                for input in [alone, before, behind] {
                    let entry = table[toeplitz(&key, &input) as usize % SLOTS];
                    assert_eq!(WorkerId(entry as u8), steering.worker_of(address));
                }
            }
        }
    }
}

#[test]
fn networks_of_any_size_are_spread_evenly_with_any_key() {
    let patterns: HashSet<u32> = (0..127).map(|seed| Steering::new(2, seed).pattern).collect();
    assert_eq!(patterns.len(), 127);
    for seed in 0..127 {
        let steering = Steering::new(128, seed);
        for shift in 0..=18 {
            let members = (0..128).map(|n| 0x0a00_0000 | n << shift);
            let slots: HashSet<WorkerId> = members.map(|address| steering.worker_of(address)).collect();
            assert_eq!(slots.len(), SLOTS, "key {seed}, every {}th address", 1 << shift);
        }
    }
}

#[test]
fn workers_get_like_shares_of_ordinary_networks() {
    for workers in [2_u8, 3, 5, 8, 16, 40] {
        let steering = Steering::new(workers, 77);
        let mut counts = BTreeMap::new();
        for address in 0x6440_0000..0x6440_4000 {
            *counts.entry(steering.worker_of(address)).or_insert(0_usize) += 1;
        }
        assert_eq!(counts.len(), usize::from(workers));
        // What 128 entries leave over is one entry at most.
        let (least, most) = (counts.values().min().unwrap(), counts.values().max().unwrap());
        assert!(most - least <= 0x4000 / SLOTS, "{workers}: {least} to {most}");
    }
}
