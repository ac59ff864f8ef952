//! Which worker has which ESP tunnel, kept where all workers of a daemon see it: a packet from outside bears a number that
//! the host inside has chosen, so neither address nor port tells whose it is.
//!
//! One word a tunnel: a hash of what it is known by, and the worker in the last octet. 56 bits of a keyed hash are taken for the
//! tunnel itself; the owner looks at its own tables before it believes anything.

use std::sync::atomic::{AtomicU64, Ordering};

use carrack_base::WorkerId;
use carrack_tables::KeyedHasher;

use crate::line::Session;

/// Buckets, a power of two.
const BUCKETS: usize = 8_192;
/// Entries of a bucket.
const PLACES: usize = 8;
const WORKER: u64 = 0xff;

/// The two ends that a number is between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) remote: u32,
    pub(crate) outside: u32,
    pub(crate) vrf: u16,
}

impl Pair {
    pub(crate) const fn of(session: &Session) -> Self {
        Self { remote: session.remote_ip, outside: session.outside_ip, vrf: session.outside_vrf }
    }
}

/// What a worker is known to have of a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Has {
    /// The tunnel in, by its number.
    In(u32),
    /// The tunnel out, by its number.
    Out(u32),
    /// A host that waits for an answer.
    Waiting,
}

/// All tunnels of a daemon.
#[derive(Debug)]
pub(crate) struct Spis {
    words: Box<[AtomicU64]>,
    hasher: KeyedHasher,
}

impl Spis {
    pub(crate) fn new(seed: [u64; 4]) -> Self {
        Self {
            words: (0..BUCKETS * PLACES).map(|_| AtomicU64::new(0)).collect(),
            hasher: KeyedHasher::new(seed),
        }
    }

    fn key(&self, pair: Pair, has: Has) -> u64 {
        let addresses = u64::from(pair.remote) << 32 | u64::from(pair.outside);
        let (spi, kind) = match has {
            Has::In(spi) => (spi, 0),
            Has::Out(spi) => (spi, 1 << 16),
            Has::Waiting => (0, 2 << 16),
        };
        // Never 0, which is an empty place.
        self.hasher.hash2(addresses, u64::from(spi) << 32 | kind | u64::from(pair.vrf)) | 1 << 63
    }

    fn bucket(&self, key: u64) -> &[AtomicU64] {
        let first = (key >> 20) as usize % BUCKETS * PLACES;
        self.words.get(first..first + PLACES).unwrap_or(&[])
    }

    fn is(word: u64, key: u64) -> bool {
        (word ^ key) & !WORKER == 0
    }

    /// Makes it the worker's. False when it is somebody's already, or there is no room.
    pub(crate) fn claim(&self, pair: Pair, has: Has, worker: WorkerId) -> bool {
        let key = self.key(pair, has);
        let mine = key & !WORKER | u64::from(worker.0);
        let bucket = self.bucket(key);
        if bucket.iter().any(|place| Self::is(place.load(Ordering::SeqCst), key)) {
            return false;
        }
        let empty =
            |place: &&AtomicU64| place.compare_exchange(0, mine, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        let Some(taken) = bucket.iter().find(empty) else { return false };
        // Two workers at the same time: neither has it, and the next packet tries again.
        let count = bucket.iter().filter(|place| Self::is(place.load(Ordering::SeqCst), key)).count();
        if count > 1 {
            taken.store(0, Ordering::SeqCst);
        }
        count == 1
    }

    /// It is nobody's any more, if it was the worker's.
    pub(crate) fn release(&self, pair: Pair, has: Has, worker: WorkerId) {
        let key = self.key(pair, has);
        let mine = key & !WORKER | u64::from(worker.0);
        for place in self.bucket(key) {
            // What is another's by now stays so.
            let _ = place.compare_exchange(mine, 0, Ordering::SeqCst, Ordering::SeqCst);
        }
    }

    /// Whose it is.
    pub(crate) fn owner(&self, pair: Pair, has: Has) -> Option<WorkerId> {
        let key = self.key(pair, has);
        let words = self.bucket(key).iter().map(|place| place.load(Ordering::Acquire));
        words.filter(|word| Self::is(*word, key)).map(|word| WorkerId(word as u8)).next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAIR: Pair = Pair { remote: 0xc633_6407, outside: 0xc000_0201, vrf: 0 };

    #[test]
    fn a_tunnel_is_one_workers_until_it_is_given_back() {
        let spis = Spis::new([1, 2, 3, 4]);
        let has = Has::In(7);
        assert_eq!(spis.owner(PAIR, has), None);
        assert!(spis.claim(PAIR, has, WorkerId(3)) && !spis.claim(PAIR, has, WorkerId(1)));
        assert_eq!(spis.owner(PAIR, has), Some(WorkerId(3)));
        for other in [Has::In(8), Has::Out(7), Has::Waiting] {
            assert_eq!(spis.owner(PAIR, other), None, "{other:?}");
        }
        assert_eq!(spis.owner(Pair { vrf: 1, ..PAIR }, has), None);
        spis.release(PAIR, has, WorkerId(1));
        assert_eq!(spis.owner(PAIR, has), Some(WorkerId(3)), "nobody gives back another's");
        spis.release(PAIR, has, WorkerId(3));
        assert!(spis.owner(PAIR, has).is_none() && spis.claim(PAIR, has, WorkerId(0)));
    }

    #[test]
    fn a_full_table_refuses() {
        let spis = Spis::new([1, 2, 3, 4]);
        let claimed = (0..200_000).filter(|n| spis.claim(PAIR, Has::In(*n), WorkerId(0))).count();
        assert!(claimed <= BUCKETS * PLACES && claimed > BUCKETS * PLACES / 2, "{claimed}");
    }
}
