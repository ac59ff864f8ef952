//! A small random generator. Its seed is a parameter, so a simulation repeats itself.

/// xorshift64*: good enough to make ports hard to guess when its seed is secret (RFC 6056 §3.3, RFC 6888 REQ-15).
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// From a seed; 0 is replaced.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(if seed == 0 { 0x9e37_79b9_7f4a_7c15 } else { seed })
    }

    /// 64 random bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// 16 random bits.
    #[inline]
    pub fn next_u16(&mut self) -> u16 {
        (self.next_u64() >> 48) as u16
    }

    /// A number below `n`; 0 when `n` is 0.
    #[inline]
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next_u64()) * n as u128) >> 64) as usize
    }
}
