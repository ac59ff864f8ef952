//! Which worker an IPv4 address leads to, such that a network card can tell it as well.
//!
//! Cards spread packets over receive queues by a Toeplitz hash: each bit of the input that is set adds (exclusive or) 32
//! bits of the key, those from its own place on, and the lowest bits of the sum choose an entry of a table of queues. Told to
//! hash the source address of what comes from inside and the destination of what comes from outside, with the key and the
//! table given here, a card delivers both directions of a subscriber to the worker that owns it, if the subscriber's
//! outside address is one that leads to the same worker: see [`crate::ownership`]. Without such a card the receiving worker
//! reckons the same and hands the packet over.
//!
//! * The key repeats after 32 bits. So an address has the same hash wherever a card puts it in its input.
//! * Its bits are a maximum-length sequence of degree seven. So any seven neighbouring bits of an address below its first
//!   octet lead to all [`SLOTS`] entries: 128 consecutive addresses, or networks of one size, are spread to the last one
//!   evenly.
//!
//! It is not secret as the hashes of tables are: whoever may choose many inside addresses may choose whose they are.

use carrack_base::WorkerId;

/// Entries of the table of queues; cards have as many or a multiple.
pub const SLOTS: usize = 128;

/// The hash of addresses and the table of workers.
#[derive(Debug, Clone)]
pub struct Steering {
    pattern: u32,
    /// What each octet of an address adds, the first octet first.
    octets: [[u8; 256]; 4],
    /// The worker of each sum.
    workers: [u8; SLOTS],
}

impl Steering {
    /// For so many workers, at least 1. The seed chooses one of 127 keys.
    #[must_use]
    pub fn new(workers: u8, seed: u64) -> Self {
        let pattern = sequence((seed % 127) as u8 + 1);
        let mut octets = [[0; 256]; 4];
        for (first_bit, octet) in (0..).step_by(8).zip(&mut octets) {
            for (value, sum) in (0_u32..).zip(octet.iter_mut()) {
                *sum = slot_of(pattern, value << 24 >> first_bit);
            }
        }
        Self { pattern, octets, workers: std::array::from_fn(|slot| slot as u8 % workers.max(1)) }
    }

    /// Who owns the subscriber with this address, or has this pool address at home.
    #[inline]
    #[must_use]
    pub fn worker_of(&self, address: u32) -> WorkerId {
        let [a, b, c, d] = address.to_be_bytes();
        let [first, second, third, fourth] = &self.octets;
        let at = |octet: &[u8; 256], value: u8| octet[usize::from(value)];
        let slot = at(first, a) ^ at(second, b) ^ at(third, c) ^ at(fourth, d);
        // Invariant: the remainder is below SLOTS.
        WorkerId(self.workers[usize::from(slot) % SLOTS])
    }

    /// The card's key: these four bytes over and over.
    #[must_use]
    pub const fn key(&self) -> [u8; 4] {
        self.pattern.to_be_bytes()
    }

    /// The card's table: the worker for each value of a hash's lowest bits.
    #[must_use]
    pub fn table(&self) -> [u16; SLOTS] {
        self.workers.map(u16::from)
    }
}

/// The lowest seven bits of the Toeplitz hash of an address under a key that repeats `pattern`.
fn slot_of(pattern: u32, address: u32) -> u8 {
    let bits = (0..32).filter(|bit| address << bit >> 31 != 0);
    bits.fold(0, |sum, bit| sum ^ pattern.rotate_left(bit)) as u8 & (SLOTS - 1) as u8
}

/// 32 bits of the sequence with the recurrence of the primitive polynomial x^7 + x^6 + 1, the first one uppermost. `state`
/// are the first seven, not all zero.
fn sequence(state: u8) -> u32 {
    let mut bits = u32::from(state & 127) << 25;
    for place in 7..32 {
        // Invariant: bit n is worth 2^(31 - n), and places begin at 7.
        let bit = (bits >> (32 - place) ^ bits >> (38 - place)) & 1;
        bits |= bit << (31 - place);
    }
    bits
}

#[cfg(test)]
mod tests;
