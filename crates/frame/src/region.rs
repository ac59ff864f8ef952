//! The memory behind a pool's handles: one contiguous allocation and the stack of buffers nobody holds.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

const LINE_BYTES: usize = 64;
const HUGE_PAGE_BYTES: usize = 2 << 20;
const NONE: u32 = u32::MAX;

/// A handle's allocations minus its frees; only that handle writes it, so relaxed stores suffice.
#[repr(align(64))]
#[derive(Default)]
pub(crate) struct Balance(AtomicI64);

impl Balance {
    #[inline(always)]
    pub(crate) fn add(&self, delta: i64) {
        self.0.store(self.0.load(Ordering::Relaxed) + delta, Ordering::Relaxed);
    }
}

/// Buffers of equal size in one allocation, with a lock-free stack of those in no handle's cache.
pub(crate) struct Region {
    base: NonNull<u8>,
    layout: Layout,
    stride: usize,
    count: u32,
    /// Index of the top buffer in the low half, a tag against ABA in the high half.
    top: AtomicU64,
    next: Box<[AtomicU32]>,
    balances: Mutex<Vec<Arc<Balance>>>,
}

// SAFETY: the memory is reached only through buffers popped from the stack, and each buffer has one holder at a time.
unsafe impl Send for Region {}
// SAFETY: as above; the stack itself is atomic.
unsafe impl Sync for Region {}

impl Region {
    /// Allocates `count` buffers of at least `buffer_bytes` each.
    pub(crate) fn new(count: usize, buffer_bytes: usize) -> Region {
        assert!(count > 0 && count < NONE as usize, "a frame pool holds 1 to 2^32-2 frames, not {count}");
        let stride = stride_bytes(buffer_bytes);
        let size = stride.checked_mul(count).expect("the frame pool's size in bytes fits the address space");
        let align = if size >= HUGE_PAGE_BYTES { HUGE_PAGE_BYTES } else { LINE_BYTES };
        let layout =
            Layout::from_size_align(size, align).expect("the frame pool's size fits the address space");
        // SAFETY: the layout's size is not zero, count and stride being at least 1.
        let memory = unsafe { alloc_zeroed(layout) };
        let Some(base) = NonNull::new(memory) else { handle_alloc_error(layout) };
        advise_huge_pages(base, size);
        let region = Region {
            base,
            layout,
            stride,
            count: count as u32,
            top: AtomicU64::new(u64::from(NONE)),
            next: (0..count).map(|_| AtomicU32::new(NONE)).collect(),
            balances: Mutex::new(Vec::new()),
        };
        for index in (0..count as u32).rev() {
            region.push_index(index);
        }
        region
    }

    pub(crate) fn count(&self) -> usize {
        self.count as usize
    }

    /// True when `buffer` is the start of memory of this region.
    #[inline(always)]
    pub(crate) fn owns(&self, buffer: NonNull<u8>) -> bool {
        (buffer.as_ptr() as usize).wrapping_sub(self.base.as_ptr() as usize) < self.layout.size()
    }

    /// Takes a buffer off the shared stack.
    pub(crate) fn pop(&self) -> Option<NonNull<u8>> {
        let mut top = self.top.load(Ordering::Acquire);
        loop {
            let index = top as u32;
            // A stale index reads a stale link, and the tag then makes the exchange fail.
            let next = self.next.get(index as usize)?.load(Ordering::Relaxed);
            let wanted = tagged(top, next);
            match self.top.compare_exchange_weak(top, wanted, Ordering::Acquire, Ordering::Acquire) {
                // SAFETY: index < count, so the offset lies within the allocation.
                Ok(_) => return Some(unsafe { self.base.add(index as usize * self.stride) }),
                Err(seen) => top = seen,
            }
        }
    }

    /// Puts a buffer of this region back on the shared stack.
    pub(crate) fn push(&self, buffer: NonNull<u8>) {
        debug_assert!(self.owns(buffer));
        let offset = buffer.as_ptr() as usize - self.base.as_ptr() as usize;
        self.push_index((offset / self.stride) as u32);
    }

    /// Opens a balance for a new handle.
    pub(crate) fn balance(&self) -> Arc<Balance> {
        let balance = Arc::new(Balance::default());
        self.balances.lock().unwrap_or_else(PoisonError::into_inner).push(balance.clone());
        balance
    }

    /// Frames allocated and not yet freed, over all handles.
    pub(crate) fn outstanding(&self) -> usize {
        let balances = self.balances.lock().unwrap_or_else(PoisonError::into_inner);
        let sum: i64 = balances.iter().map(|balance| balance.0.load(Ordering::Relaxed)).sum();
        usize::try_from(sum).unwrap_or(0)
    }

    fn push_index(&self, index: u32) {
        let Some(link) = self.next.get(index as usize) else { return };
        let mut top = self.top.load(Ordering::Relaxed);
        loop {
            link.store(top as u32, Ordering::Relaxed);
            match self.top.compare_exchange_weak(top, tagged(top, index), Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(seen) => top = seen,
            }
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // A frame still out points into this memory: leaking it is the only safe answer.
        if self.outstanding() == 0 {
            // SAFETY: allocated in `new` with this layout, and no frame refers to it any more.
            unsafe { dealloc(self.base.as_ptr(), self.layout) }
        }
    }
}

/// The next top word: the index, and a tag one higher than the present one.
fn tagged(top: u64, index: u32) -> u64 {
    ((top >> 32).wrapping_add(1) << 32) | u64::from(index)
}

/// Whole cache lines, an odd number of them, so that headers of consecutive frames spread over all cache sets.
fn stride_bytes(buffer_bytes: usize) -> usize {
    (buffer_bytes.div_ceil(LINE_BYTES) | 1) * LINE_BYTES
}

fn advise_huge_pages(base: NonNull<u8>, size: usize) {
    if size >= HUGE_PAGE_BYTES {
        // Refused on kernels without transparent huge pages, where small pages serve as well, only slower.
        // SAFETY: base..base+size is one live allocation aligned to a page; advice does not change its contents.
        let _ = unsafe { libc::madvise(base.as_ptr().cast(), size, libc::MADV_HUGEPAGE) };
    }
}
