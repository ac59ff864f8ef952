//! The keyed hash of the index.

/// A hash of two words under a secret key: two folded 64 × 64 → 128-bit multiplications (the construction of
/// wyhash).
///
/// The key comes from the caller's source of randomness at start. An attacker who can choose addresses and
/// ports but does not know the key cannot fill a bucket at will. It is a hash for tables: not a MAC.
#[derive(Clone)]
pub struct KeyedHasher {
    key: [u64; 4],
}

impl KeyedHasher {
    /// Derives the keys; any seed will do, also a poor one in tests.
    pub fn new(seed: [u64; 4]) -> KeyedHasher {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut key = [0; 4];
        for (k, s) in key.iter_mut().zip(seed) {
            state = mix(state ^ s);
            *k = state;
        }
        // The last key is a plain multiplier: odd, and with bits at both ends.
        key[3] |= 1 << 63 | 1;
        KeyedHasher { key }
    }

    /// Hashes two words, for instance (address and port, instance and protocol).
    #[inline(always)]
    pub fn hash2(&self, a: u64, b: u64) -> u64 {
        let [k0, k1, k2, k3] = self.key;
        folded_multiply(folded_multiply(a ^ k0, b ^ k1) ^ k2, k3)
    }
}

impl core::fmt::Debug for KeyedHasher {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        // The key is a secret and stays out of logs.
        f.write_str("KeyedHasher")
    }
}

/// High half xor low half of the product.
#[inline(always)]
fn folded_multiply(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product >> 64) as u64 ^ product as u64
}

/// The finaliser of splitmix64.
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

#[cfg(test)]
mod tests;
