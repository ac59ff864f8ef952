//! Bounded tables for one worker: everything here has a single owner, a size fixed at start, and no lock.
//!
//! * [`Arena`]: one mapping per worker, from the largest pages there are; every other table is carved from
//!   it.
//! * [`Slab`]: lines of one type, named by `u32` ids.
//! * [`Index`]: hash → line number, one cache line a lookup in the common case.
//! * [`KeyedHasher`]: the hash for it, keyed per start.
//! * [`Deadlines`]: two bytes a line and a sweep that skims them.
//! * [`PortMap`]: the ports of one (pool address, protocol).
//! * [`Lpm4`], [`Lpm6`]: longest-prefix match over IPv4 and IPv6, changed by copy and publication.
//!
//! Each table says beforehand what it needs (`bytes_for`), so that a budget can be printed and the arena be
//! sized by adding up. Full is a result, never a panic and never an eviction.
//!
//! ```
//! use carrack_tables::{Arena, Index, PagePreference, Slab};
//!
//! let bytes = Slab::<u64>::bytes_for(1000) + Index::bytes_for(2000);
//! let mut arena = Arena::new("worker 0", bytes, PagePreference::Small)?;
//! let mut lines = Slab::<u64>::new(&mut arena, 1000)?;
//! let mut index = Index::new(&mut arena, 2000)?;
//!
//! let line = lines.alloc(42).expect("the slab is empty");
//! index.insert(0x1234_5678_9abc_def0, line).expect("the index is empty");
//! assert_eq!(index.find(0x1234_5678_9abc_def0, |id| lines.get(id) == Some(&42)), Some(line));
//! # Ok::<(), carrack_tables::ArenaError>(())
//! ```

mod arena;
mod deadline;
mod hash;
mod index;
mod lpm;
mod lpm6;
mod node;
mod ports;
mod slab;
mod until;

pub use arena::{Arena, ArenaArray, ArenaError, Backing, PageKind, PagePreference, Plain};
pub use deadline::{Deadlines, SweepPacer};
pub use hash::KeyedHasher;
pub use index::{Index, IndexFull, IndexStats, IndexView, Likely};
pub use lpm::{Lpm4, Lpm4Builder, LpmError};
pub use lpm6::{Lpm6, Lpm6Builder};
pub use node::Near;
pub use ports::{Parity, PortMap};
pub use slab::Slab;
pub use until::Until;

/// Asks the processor to fetch the cache line at `address`; never faults, whatever the address.
#[inline(always)]
pub(crate) fn prefetch_read<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch is a hint; it reads nothing into the program and cannot fault.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// The processor's cycle counter (TSC), for measuring stages; never for time. 0 where there is none.
#[inline(always)]
#[must_use]
pub fn cycles() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: RDTSC has no preconditions on x86-64 in user space; it only reads a counter.
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    0
}

/// Asks the processor to fetch the cache line of a reference; a hint that never faults.
#[inline(always)]
pub fn prefetch<T: ?Sized>(value: &T) {
    prefetch_read(core::ptr::from_ref(value).cast::<u8>());
}
