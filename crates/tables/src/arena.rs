//! One mapping for all of a worker's tables, from the largest pages the machine has.

use core::fmt;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;
use std::sync::Arc;

use crate::{node, until};

const KIB_4: usize = 4 << 10;
const MIB_2: usize = 2 << 20;
const GIB_1: usize = 1 << 30;
/// Memory touched at once; between two such pieces is looked whether it is still wanted.
const PIECE: usize = 32 << 20;
/// Every array starts on a cache line.
const LINE: usize = 64;

/// The largest pages an arena may ask for; it falls back to smaller ones by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PagePreference {
    /// 1 GiB pages when the arena is large enough, else 2 MiB, else transparent, else 4 KiB.
    Huge,
    /// Transparent huge pages, else 4 KiB: leaves reserved huge pages to others.
    Transparent,
    /// 4 KiB pages: tests and small machines.
    Small,
    /// Reserved pages of 2 MiB or nothing.
    Only2M,
    /// Reserved pages of 1 GiB or nothing.
    Only1G,
}

impl PagePreference {
    /// What the small tables beside the large ones ask for: a page of a GiB would be wasted on them, and they are
    /// looked at seldom, so they take what there is.
    #[must_use]
    pub const fn for_small_tables(self) -> Self {
        match self {
            Self::Only1G | Self::Only2M => Self::Huge,
            other => other,
        }
    }
}

/// The pages an arena got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageKind {
    /// Reserved huge pages of 1 GiB.
    Huge1G,
    /// Reserved huge pages of 2 MiB.
    Huge2M,
    /// Ordinary memory of which the kernel made at least half huge pages of 2 MiB.
    Transparent,
    /// Pages of 4 KiB.
    Small,
}

/// What an arena's memory is: pages of which kind, on which NUMA node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backing {
    /// The pages.
    pub pages: PageKind,
    /// Where they are, by the kernel's own word; `None` when it does not tell.
    pub node: Option<u32>,
}

impl fmt::Display for PageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PageKind::Huge1G => "1 GiB pages",
            PageKind::Huge2M => "2 MiB pages",
            PageKind::Transparent => "transparent huge pages",
            PageKind::Small => "4 KiB pages",
        })
    }
}

/// Why an arena or an array in it could not be had.
#[derive(Debug)]
pub enum ArenaError {
    /// The machine gave no memory of this size, of any page kind.
    NoMemory {
        /// The arena's name.
        arena: String,
        /// Bytes asked for.
        bytes: usize,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// Reserved pages were asked for, and there are not enough.
    HugePages {
        /// The arena's name.
        arena: String,
        /// Bytes asked for.
        bytes: usize,
        /// Bytes of a page.
        page_bytes: usize,
        /// Pages of that size that are free, as far as the kernel tells.
        free: Option<usize>,
    },
    /// It was not wanted any more before it was ready: see [`Until`](crate::Until).
    GivenUp {
        /// The arena's name.
        arena: String,
    },
    /// The arena is too small for the array.
    Exhausted {
        /// The arena's name.
        arena: String,
        /// Bytes the array needs.
        wanted_bytes: usize,
        /// Bytes still free.
        left_bytes: usize,
    },
}

impl fmt::Display for ArenaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ArenaError::NoMemory { arena, bytes, source } => write!(
                f,
                "arena `{arena}`: cannot get {bytes} bytes of memory ({source}); lower the configured table sizes or \
                 give the machine more memory"
            ),
            ArenaError::HugePages { arena, bytes, page_bytes, free } => {
                let needed = bytes.div_ceil(*page_bytes);
                let size = if *page_bytes == GIB_1 { "1 GiB" } else { "2 MiB" };
                let kib = page_bytes >> 10;
                write!(f, "arena `{arena}`: needs {needed} free huge pages of {size}")?;
                if let Some(free) = free {
                    write!(f, " and there are {free}")?;
                }
                write!(
                    f,
                    "; reserve more in /sys/kernel/mm/hugepages/hugepages-{kib}kB/nr_hugepages, make the configured \
                     tables smaller, or allow other pages with huge_pages = \"auto\""
                )
            }
            ArenaError::GivenUp { arena } => write!(f, "arena `{arena}`: given up, as was asked for"),
            ArenaError::Exhausted { arena, wanted_bytes, left_bytes } => write!(
                f,
                "arena `{arena}`: a table needs {wanted_bytes} bytes but {left_bytes} are left; create the arena with \
                 the sum of its tables' bytes_for()"
            ),
        }
    }
}

impl std::error::Error for ArenaError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ArenaError::NoMemory { source, .. } => Some(source),
            ArenaError::HugePages { .. } | ArenaError::GivenUp { .. } | ArenaError::Exhausted { .. } => None,
        }
    }
}

/// A type whose all-zero bytes are a valid value, so that fresh pages need no initialisation.
///
/// # Safety
/// All-zero bytes must be a valid value of the type.
pub unsafe trait Plain: Copy {}

macro_rules! plain { ($($t:ty),*) => { $(
    // SAFETY: zero is a value of every integer type.
    unsafe impl Plain for $t {}
)* } }
plain!(u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize);

// SAFETY: an array of values that may be zero may be zero.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// Memory taken once at start and carved into arrays; nothing is given back before the last array is dropped.
///
/// All pages are touched on creation, by the calling thread, so that no page fault is left for the packet path: call it on
/// the worker's own thread once that is pinned, or under a [`Near`](crate::Near) of its node, and the memory is asked for
/// from that node. [`Arena::node`] says where it is.
pub struct Arena {
    name: String,
    mapping: Arc<Mapping>,
    kind: PageKind,
    used: usize,
}

impl Arena {
    /// Maps and touches `bytes` (rounded up to whole pages). `name` appears in errors.
    pub fn new(name: &str, bytes: usize, preference: PagePreference) -> Result<Arena, ArenaError> {
        let arena = Self::map(name, bytes, preference);
        // Whatever it then said: what was given up half-way was not refused.
        arena.map_err(
            |error| if until::is_over() { ArenaError::GivenUp { arena: name.to_owned() } } else { error },
        )
    }

    fn map(name: &str, bytes: usize, preference: PagePreference) -> Result<Arena, ArenaError> {
        let wanted = bytes.max(1);
        let only = match preference {
            PagePreference::Only1G => Some((GIB_1, libc::MAP_HUGE_1GB, PageKind::Huge1G)),
            PagePreference::Only2M => Some((MIB_2, libc::MAP_HUGE_2MB, PageKind::Huge2M)),
            _ => None,
        };
        if let Some((page_bytes, flag, kind)) = only {
            let map = |bytes| map(bytes, page_bytes, libc::MAP_HUGETLB | flag, false);
            return Self::map_only(name, wanted, (page_bytes, kind), free_huge_pages, map);
        }
        let (mapping, kind) = map_best(wanted, preference).map_err(|source| ArenaError::NoMemory {
            arena: name.to_owned(),
            bytes,
            source,
        })?;
        Ok(Arena { name: name.to_owned(), mapping: Arc::new(mapping), kind, used: 0 })
    }

    /// Of reserved pages of one size or nothing; `free` says how many there are of a size.
    fn map_only(
        name: &str,
        bytes: usize,
        (page_bytes, kind): (usize, PageKind),
        free: impl FnOnce(usize) -> Option<usize>,
        map: impl FnOnce(usize) -> std::io::Result<Mapping>,
    ) -> Result<Arena, ArenaError> {
        // Free pages are counted before the attempt, which may take some of them for a moment.
        let free = free(page_bytes);
        let mapping = map(bytes).map_err(|_| ArenaError::HugePages {
            arena: name.to_owned(),
            bytes,
            page_bytes,
            free,
        })?;
        Ok(Arena { name: name.to_owned(), mapping: Arc::new(mapping), kind, used: 0 })
    }

    /// The pages this arena got.
    pub fn page_kind(&self) -> PageKind {
        self.kind
    }

    /// The NUMA node its memory is on, one other than was asked for if any of it is there; `None` when the kernel does not
    /// tell.
    pub fn node(&self) -> Option<u32> {
        self.mapping.node
    }

    /// Pages and node together.
    pub fn backing(&self) -> Backing {
        Backing { pages: self.kind, node: self.node() }
    }

    /// Bytes mapped, whole pages.
    pub fn bytes(&self) -> usize {
        self.mapping.bytes
    }

    /// Bytes carved so far.
    pub fn used_bytes(&self) -> usize {
        self.used
    }

    /// Bytes an array of `n` `T`s takes from an arena.
    pub const fn bytes_for<T>(n: usize) -> usize {
        // An alignment above a cache line may cost up to that alignment once more.
        let padding = if align_of::<T>() > LINE { align_of::<T>() } else { 0 };
        (size_of::<T>().saturating_mul(n).saturating_add(LINE - 1) & !(LINE - 1)).saturating_add(padding)
    }

    /// Carves an array of `n` zeroes, starting on a cache line.
    pub fn array<T: Plain>(&mut self, n: usize) -> Result<ArenaArray<T>, ArenaError> {
        let start = self.carve::<T>(n)?;
        // The pages are fresh from the kernel, hence zero, and zero is a valid `T`.
        Ok(ArenaArray { start, len: n, _mapping: Arc::clone(&self.mapping) })
    }

    /// Carves an array of `n` `T::default()`s, starting on a cache line: for types that are not [`Plain`].
    pub fn array_default<T: Copy + Default>(&mut self, n: usize) -> Result<ArenaArray<T>, ArenaError> {
        let start = self.carve::<T>(n)?;
        let value = T::default();
        for i in 0..n {
            // SAFETY: `carve` returned room for `n` values, aligned and ours alone.
            unsafe { start.add(i).write(value) };
        }
        Ok(ArenaArray { start, len: n, _mapping: Arc::clone(&self.mapping) })
    }

    /// Takes room for `n` `T`s that no other array has.
    fn carve<T>(&mut self, n: usize) -> Result<NonNull<T>, ArenaError> {
        let align = align_of::<T>().max(LINE);
        let base = self.mapping.base.as_ptr() as usize;
        let offset = (base + self.used).next_multiple_of(align) - base;
        let size = size_of::<T>().checked_mul(n).and_then(|bytes| bytes.checked_add(LINE - 1));
        let end = size.and_then(|bytes| offset.checked_add(bytes & !(LINE - 1)));
        match end {
            Some(end) if end <= self.mapping.bytes => {
                self.used = end;
                // SAFETY: offset ≤ end ≤ the mapping's length.
                Ok(unsafe { self.mapping.base.add(offset) }.cast())
            }
            _ => Err(ArenaError::Exhausted {
                arena: self.name.clone(),
                wanted_bytes: Self::bytes_for::<T>(n),
                left_bytes: self.mapping.bytes.saturating_sub(self.used),
            }),
        }
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena")
            .field("name", &self.name)
            .field("bytes", &self.bytes())
            .field("used", &self.used)
            .field("kind", &self.kind)
            .finish()
    }
}

/// An array in an [`Arena`]; keeps the arena's memory alive.
pub struct ArenaArray<T> {
    start: NonNull<T>,
    len: usize,
    _mapping: Arc<Mapping>,
}

// SAFETY: the array owns its elements alone, as a `Box<[T]>` would; the mapping behind it is only unmapped
// when the last owner goes.
unsafe impl<T: Send> Send for ArenaArray<T> {}
// SAFETY: a shared array only gives out shared references to elements.
unsafe impl<T: Sync> Sync for ArenaArray<T> {}

impl<T> Deref for ArenaArray<T> {
    type Target = [T];
    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: `len` valid values were written or zeroed at creation and belong to this array alone.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for ArenaArray<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and `&mut self` makes the access exclusive.
        unsafe { core::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T> fmt::Debug for ArenaArray<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ArenaArray({} × {} bytes)", self.len, size_of::<T>())
    }
}

/// An anonymous mapping; `base..base + bytes` is usable, `raw` is what is unmapped.
struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    raw: NonNull<u8>,
    raw_bytes: usize,
    /// Where it is.
    node: Option<u32>,
}

// SAFETY: the mapping is only an address range; who may touch which part is decided by the arrays carved from
// it.
unsafe impl Send for Mapping {}
// SAFETY: as above; no method of it reads or writes the memory.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `raw` and `raw_bytes` are what mmap returned, and no array is left, for each holds an Arc
        // of this.
        unsafe { libc::munmap(self.raw.as_ptr().cast(), self.raw_bytes) };
    }
}

/// Tries page kinds from the largest allowed one down.
fn map_best(bytes: usize, preference: PagePreference) -> std::io::Result<(Mapping, PageKind)> {
    if preference == PagePreference::Huge {
        // 1 GiB pages only where rounding up wastes no more than an eighth.
        if bytes.checked_next_multiple_of(GIB_1).is_some_and(|whole| whole - bytes <= bytes / 8)
            && let Ok(mapping) = map(bytes, GIB_1, libc::MAP_HUGETLB | libc::MAP_HUGE_1GB, false)
        {
            return Ok((mapping, PageKind::Huge1G));
        }
        if let Ok(mapping) = map(bytes, MIB_2, libc::MAP_HUGETLB | libc::MAP_HUGE_2MB, false) {
            return Ok((mapping, PageKind::Huge2M));
        }
    }
    if preference != PagePreference::Small && bytes >= MIB_2 / 2 {
        let mapping = map(bytes, MIB_2, 0, true)?;
        let kind = if mostly_huge(&mapping) { PageKind::Transparent } else { PageKind::Small };
        return Ok((mapping, kind));
    }
    map(bytes, KIB_4, 0, false).map(|mapping| (mapping, PageKind::Small))
}

/// Maps and touches `bytes` rounded up to `page`.
fn map(bytes: usize, page: usize, flags: i32, transparent: bool) -> std::io::Result<Mapping> {
    let mut mapping = reserve(bytes, page, flags, transparent)?;
    let wanted = node::wanted();
    if let Some(node) = wanted {
        node::prefer(mapping.base, mapping.bytes, node);
    }
    touch(&mapping, until::is_over)?;
    mapping.node = node::found(mapping.base, mapping.bytes, wanted);
    Ok(mapping)
}

/// Maps `bytes` rounded up to `page`, not yet touched.
fn reserve(bytes: usize, page: usize, flags: i32, transparent: bool) -> std::io::Result<Mapping> {
    let too_large = || std::io::Error::from_raw_os_error(libc::ENOMEM);
    let bytes = bytes.checked_next_multiple_of(page).ok_or_else(too_large)?;
    // Only transparent pages need the extra room: reserved ones come aligned.
    let slack = if transparent { page } else { 0 };
    let raw_bytes = bytes.checked_add(slack).ok_or_else(too_large)?;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags;
    // SAFETY: a new anonymous mapping at an address of the kernel's choice touches no existing memory.
    let raw = unsafe {
        libc::mmap(core::ptr::null_mut(), raw_bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
    };
    if raw == libc::MAP_FAILED {
        return Err(std::io::Error::last_os_error());
    }
    let raw = NonNull::new(raw.cast::<u8>()).ok_or_else(too_large)?;
    let shift = (raw.as_ptr() as usize).next_multiple_of(page) - raw.as_ptr() as usize;
    // SAFETY: shift < page, and for transparent pages `page` bytes more than `bytes` were mapped; else shift
    // is 0.
    let base = unsafe { raw.add(if transparent { shift } else { 0 }) };
    let mapping = Mapping { base, bytes, raw, raw_bytes, node: None };
    if transparent {
        // SAFETY: advice about our own mapping; failure only means small pages.
        unsafe { libc::madvise(base.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
    }
    Ok(mapping)
}

/// Free reserved pages of that size; `None` where the kernel does not tell.
fn free_huge_pages(page_bytes: usize) -> Option<usize> {
    let path = format!("/sys/kernel/mm/hugepages/hugepages-{}kB/free_hugepages", page_bytes >> 10);
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Makes every page present, so that no first touch is left for later, or fewer when that is not wanted any more.
fn touch(mapping: &Mapping, is_over: impl Fn() -> bool) -> std::io::Result<()> {
    for start in (0..mapping.bytes).step_by(PIECE) {
        if is_over() {
            return Err(std::io::ErrorKind::Interrupted.into());
        }
        touch_piece(mapping, start, PIECE.min(mapping.bytes - start))?;
    }
    Ok(())
}

fn touch_piece(mapping: &Mapping, start: usize, bytes: usize) -> std::io::Result<()> {
    // SAFETY: start < the mapping's length.
    let base = unsafe { mapping.base.add(start) };
    // SAFETY: populating our own fresh mapping; it stays zero. A piece that begins inside a page of a GiB populates it whole.
    let done = unsafe { libc::madvise(base.as_ptr().cast(), bytes, libc::MADV_POPULATE_WRITE) };
    if done == 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    if error.raw_os_error() != Some(libc::EINVAL) {
        return Err(error);
    }
    // Kernels before 5.14 do not know the advice.
    for offset in (0..bytes).step_by(KIB_4) {
        // SAFETY: inside the mapping, which nobody else has yet; volatile, so that the write happens.
        unsafe { base.add(offset).as_ptr().write_volatile(0) };
    }
    Ok(())
}

/// Whether the kernel backed at least half of the mapping's area with huge pages, by its own account.
fn mostly_huge(mapping: &Mapping) -> bool {
    let Ok(smaps) = std::fs::read_to_string("/proc/self/smaps") else { return false };
    huge_share_at_least_half(&smaps, mapping.base.as_ptr() as usize)
}

/// Reads the area that holds `address` out of the text of `smaps`.
fn huge_share_at_least_half(smaps: &str, address: usize) -> bool {
    let (mut inside, mut size_kib) = (false, 0usize);
    for line in smaps.lines() {
        let mut words = line.split_ascii_whitespace();
        let Some(first) = words.next() else { continue };
        if let Some((from, to)) = first.split_once('-')
            && let (Ok(from), Ok(to)) = (usize::from_str_radix(from, 16), usize::from_str_radix(to, 16))
        {
            inside = (from..to).contains(&address);
            continue;
        }
        let value = words.next().and_then(|w| w.parse::<usize>().ok()).unwrap_or(0);
        match first {
            "Size:" if inside => size_kib = value,
            "AnonHugePages:" if inside => return size_kib > 0 && value * 2 >= size_kib,
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests;
