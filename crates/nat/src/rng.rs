//! A small random generator. Its seed is a parameter, so a simulation repeats itself.

/// xorshift64*: good enough to make ports hard to guess when its seed is secret (RFC 6056 §3.3, RFC 6888 REQ-15).
///
/// Where the search for a port begins comes from numbers of its own (splitmix64), any of which can be told before its turn:
/// that place in memory is asked for ahead.
#[derive(Debug, Clone)]
pub struct Rng {
    state: u64,
    ports: u64,
}

/// What splitmix64 counts in: the golden ratio.
const STRIDE: u64 = 0x9e37_79b9_7f4a_7c15;

impl Rng {
    /// From a seed; 0 is replaced.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: if seed == 0 { STRIDE } else { seed }, ports: mix(seed) }
    }

    /// 64 random bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Where the search for a port begins, of 65,536 as many as the range has.
    #[inline(always)]
    pub const fn next_port(&mut self) -> u16 {
        let port = self.port_ahead(0);
        self.ports = self.ports.wrapping_add(STRIDE);
        port
    }

    /// What [`Rng::next_port`] will give after so many others.
    #[inline(always)]
    #[must_use]
    pub const fn port_ahead(&self, others: usize) -> u16 {
        (mix(self.ports.wrapping_add(STRIDE.wrapping_mul(others as u64))) >> 48) as u16
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

/// The last step of splitmix64.
const fn mix(mut x: u64) -> u64 {
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_those_that_were_told_ahead_and_come_from_anywhere() {
        let mut rng = Rng::new(7);
        let ahead: Vec<u16> = (0..4_096).map(|others| rng.port_ahead(others)).collect();
        // Other numbers do not move them.
        let drawn: Vec<u16> = (0..4_096).map(|_| (rng.next_u64(), rng.next_port()).1).collect();
        assert_eq!(drawn, ahead);
        let mut counts = [0; 16];
        drawn.iter().for_each(|port| counts[usize::from(port >> 12)] += 1);
        assert!(
            counts.iter().all(|count| (190..=322).contains(count)),
            "256 of each, more or less: {counts:?}"
        );
        assert_ne!(Rng::new(8).port_ahead(0), ahead[0]);
    }
}
