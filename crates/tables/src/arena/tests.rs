use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::Until;

#[test]
fn arrays_are_zero_aligned_disjoint_and_outlive_the_arena() {
    let mut arena = Arena::new("t", 64 << 10, PagePreference::Small).unwrap();
    let mut a = arena.array::<u8>(100).unwrap();
    let b = arena.array::<[u32; 3]>(7).unwrap();
    let c = arena.array_default::<(u8, u64)>(5).unwrap();
    drop(arena);
    a.fill(0xff);
    assert_eq!(a.len(), 100);
    assert!(b.iter().all(|v| *v == [0; 3]), "writing one array must not show in the next");
    assert!(c.iter().all(|v| *v == (0, 0)));
    for start in [a.as_ptr() as usize, b.as_ptr() as usize, c.as_ptr() as usize] {
        assert_eq!(start % 64, 0);
    }
}

#[test]
fn types_with_larger_alignment_than_a_line_get_it() {
    #[derive(Clone, Copy, Default)]
    #[repr(align(256))]
    struct Wide(u8);
    let bytes = Arena::bytes_for::<u8>(1) + Arena::bytes_for::<Wide>(3);
    let mut arena = Arena::new("t", bytes, PagePreference::Small).unwrap();
    arena.array::<u8>(1).unwrap();
    let wide = arena.array_default::<Wide>(3).unwrap();
    assert_eq!(wide.as_ptr() as usize % 256, 0);
    assert_eq!(wide[2].0, 0);
}

#[test]
fn adding_up_bytes_for_gives_a_large_enough_arena() {
    let bytes = Arena::bytes_for::<u8>(4033) + Arena::bytes_for::<u32>(1) + Arena::bytes_for::<u64>(4096);
    let mut arena = Arena::new("t", bytes, PagePreference::Small).unwrap();
    arena.array::<u8>(4033).unwrap();
    arena.array::<u32>(1).unwrap();
    arena.array::<u64>(4096).unwrap();
    assert_eq!(arena.used_bytes(), bytes);
}

#[test]
fn a_too_large_array_is_refused_with_its_size_and_takes_nothing() {
    let mut arena = Arena::new("worker 3", 4096, PagePreference::Small).unwrap();
    let text = arena.array::<u64>(1000).unwrap_err().to_string();
    assert!(text.contains("worker 3") && text.contains("8000") && text.contains("4096"), "{text}");
    assert!(arena.array::<u64>(usize::MAX / 4).is_err());
    arena.array::<u64>(512).unwrap();
}

#[test]
fn an_impossible_arena_is_an_error_with_advice() {
    let text = Arena::new("big", usize::MAX - 5, PagePreference::Huge).unwrap_err().to_string();
    assert!(text.contains("arena `big`") && text.contains("lower the configured table sizes"), "{text}");
    let text = Arena::new("big", 1 << 46, PagePreference::Small).unwrap_err().to_string();
    assert!(text.contains("cannot get 70368744177664 bytes"), "{text}");
}

#[test]
fn every_preference_gives_usable_memory() {
    for preference in [PagePreference::Huge, PagePreference::Transparent, PagePreference::Small] {
        let mut arena = Arena::new("t", 5 << 20, preference).unwrap();
        assert!(arena.bytes() >= 5 << 20);
        let mut words = arena.array::<u64>((5 << 20) / 8).unwrap();
        words.fill(7);
        assert_eq!(words.iter().sum::<u64>(), 7 * words.len() as u64);
        println!("{preference:?} -> {}", arena.page_kind());
    }
}

/// A byte for each page of 4 KiB, odd when it is in memory.
fn present(mapping: &Mapping) -> Vec<u8> {
    let mut present = vec![0u8; mapping.bytes / KIB_4];
    // SAFETY: the mapping is alive and `present` has a byte for each of its pages.
    let result = unsafe { libc::mincore(mapping.base.as_ptr().cast(), mapping.bytes, present.as_mut_ptr()) };
    assert_eq!(result, 0);
    present
}

#[test]
fn all_pages_are_present_after_creation() {
    let arena = Arena::new("t", 8 << 20, PagePreference::Small).unwrap();
    let present = present(&arena.mapping);
    assert!(present.iter().all(|page| page & 1 == 1));
}

#[test]
fn an_arena_that_is_not_wanted_any_more_is_given_up_and_the_next_one_is_made() {
    let over = Arc::new(AtomicBool::new(true));
    let until = Until::set(Arc::clone(&over));
    for preference in [PagePreference::Huge, PagePreference::Small, PagePreference::Only2M] {
        let given_up = Arena::new("t", 1 << 20, preference).unwrap_err();
        assert!(matches!(&given_up, ArenaError::GivenUp { arena } if arena == "t"), "{given_up}");
    }
    // Of other threads it is none of the business.
    std::thread::spawn(|| Arena::new("other", 1 << 20, PagePreference::Small)).join().unwrap().unwrap();
    over.store(false, Ordering::Relaxed);
    Arena::new("t", 1 << 20, PagePreference::Small).unwrap();
    over.store(true, Ordering::Relaxed);
    drop(until);
    Arena::new("t", 1 << 20, PagePreference::Small).unwrap();
}

#[test]
fn what_is_given_up_half_way_takes_no_more_memory() {
    let mapping = reserve(3 * PIECE, KIB_4, 0, false).unwrap();
    let looks = std::cell::Cell::new(0);
    let is_over = || looks.replace(looks.get() + 1) == 1;
    assert_eq!(touch(&mapping, is_over).unwrap_err().kind(), std::io::ErrorKind::Interrupted);
    let present = present(&mapping);
    assert!(present.iter().take(PIECE / KIB_4).all(|page| page & 1 == 1));
    assert!(present.iter().skip(PIECE / KIB_4).all(|page| page & 1 == 0));
    // What would have been touched is, when nobody ends it.
    touch(&mapping, || false).unwrap();
    assert!(self::present(&mapping).iter().all(|page| page & 1 == 1));
}

#[test]
fn an_array_can_be_sent_to_another_thread() {
    let mut arena = Arena::new("t", 4096, PagePreference::Small).unwrap();
    let mut array = arena.array::<u32>(10).unwrap();
    let array = std::thread::spawn(move || {
        array[9] = 5;
        array
    })
    .join()
    .unwrap();
    assert_eq!(array[9], 5);
}

#[test]
fn smaps_text_is_read_for_the_right_area() {
    let text = "7f0000000000-7f0000400000 rw-p 00000000 00:00 0\n\
                Size:               4096 kB\nAnonHugePages:      2048 kB\n\
                7f0000400000-7f0000800000 rw-p 00000000 00:00 0 [anon:x]\n\
                Size:               4096 kB\nAnonHugePages:         0 kB\n";
    assert!(huge_share_at_least_half(text, 0x7f00_0000_0000));
    assert!(huge_share_at_least_half(text, 0x7f00_003f_ffff));
    assert!(!huge_share_at_least_half(text, 0x7f00_0040_0000));
    assert!(!huge_share_at_least_half(text, 0x1000));
    assert!(!huge_share_at_least_half("rubbish-text\nSize:", 0));
}

/// Pages of 2 MiB or 1 GiB added to the machine's for a test, where it lets us and nobody else has any free; taken away
/// again afterwards.
struct Reserved {
    path: String,
    added: usize,
}

impl Reserved {
    fn number(path: &str) -> Option<usize> {
        std::fs::read_to_string(path).ok()?.trim().parse().ok()
    }

    fn free(page_bytes: usize, wanted: usize) -> Option<Self> {
        let path = format!("/sys/kernel/mm/hugepages/hugepages-{}kB/nr_hugepages", page_bytes >> 10);
        let before = Self::number(&path)?;
        if free_huge_pages(page_bytes)? != 0 {
            return None;
        }
        std::fs::write(&path, (before + wanted).to_string()).ok()?;
        let added = Self::number(&path)?.saturating_sub(before);
        let this = Self { path, added };
        (free_huge_pages(page_bytes)? == wanted).then_some(this)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let now = Self::number(&self.path).unwrap_or(0);
        let _ = std::fs::write(&self.path, now.saturating_sub(self.added).to_string());
    }
}

/// A machine with so many reserved pages of one size, of ordinary memory.
struct Machine {
    page_bytes: usize,
    free: std::cell::Cell<usize>,
}

impl Machine {
    fn arena(&self, name: &str, bytes: usize, kind: PageKind) -> Result<Arena, ArenaError> {
        let counted = self.free.get();
        let free = |page_bytes| (page_bytes == self.page_bytes).then(|| self.free.get());
        let map = |bytes: usize| match self.free.get().checked_sub(bytes.div_ceil(self.page_bytes)) {
            Some(left) => {
                self.free.set(left);
                reserve(bytes, self.page_bytes, 0, false)
            }
            None => {
                // As the kernel does: it gives what there is, then fails.
                self.free.set(0);
                Err(std::io::Error::from_raw_os_error(libc::ENOMEM))
            }
        };
        let arena = Arena::map_only(name, bytes, (self.page_bytes, kind), free, map);
        if arena.is_err() {
            self.free.set(counted);
        }
        arena
    }
}

/// Both page sizes: exactly enough pages serve, one page short is refused in numbers, those from before the attempt.
#[test]
fn huge_pages_short_by_one_are_refused_in_numbers() {
    for (page_bytes, kind, size, pages) in
        [(MIB_2, PageKind::Huge2M, "2 MiB", 4), (GIB_1, PageKind::Huge1G, "1 GiB", 2)]
    {
        let machine = Machine { page_bytes, free: pages.into() };
        let bytes = page_bytes * pages - 4_096;
        let short = machine.arena("short", bytes + 8_192, kind).unwrap_err().to_string();
        let needs =
            format!("arena `short`: needs {} free huge pages of {size} and there are {pages};", pages + 1);
        assert!(short.starts_with(&needs), "{short}");
        let reserve_more = format!("hugepages-{}kB/nr_hugepages", page_bytes >> 10);
        assert!(short.contains(&reserve_more), "{short}");
        let mut arena = machine.arena("exact", bytes, kind).unwrap();
        assert_eq!((arena.page_kind(), arena.bytes()), (kind, page_bytes * pages));
        arena.array::<u64>(1_000).unwrap()[999] = 1;
        let none = machine.arena("none", 1, kind).unwrap_err().to_string();
        assert!(none.contains("needs 1 free huge pages") && none.contains("there are 0;"), "{none}");
    }
}

/// The same of the kernel's own pages, and a preference that may fall back says what it fell back to. Needs root, free memory and
/// nobody else with free pages; says so where it has not.
#[test]
fn reserved_huge_pages_short_by_one_are_refused_in_numbers() {
    for (page, only, kind, pages) in [
        (MIB_2, PagePreference::Only2M, PageKind::Huge2M, 4),
        (GIB_1, PagePreference::Only1G, PageKind::Huge1G, 1),
    ] {
        let bytes = page * pages - 4_096;
        let Some(reserved) = Reserved::free(page, pages) else {
            println!(
                "skipped: this machine does not let the test reserve {pages} pages of {} MiB",
                page >> 20
            );
            continue;
        };
        let mut arena = Arena::new("exact", bytes, only).unwrap();
        assert_eq!((arena.page_kind(), arena.bytes()), (kind, page * pages));
        arena.array::<u64>(1_000).unwrap()[999] = 1;
        assert_eq!(free_huge_pages(page), Some(0));
        drop(arena);
        let short = Arena::new("short", bytes + 8_192, only).unwrap_err().to_string();
        let needs = format!("needs {} free huge pages", pages + 1);
        assert!(short.contains(&needs) && short.contains(&format!("there are {pages};")), "{short}");
        assert_eq!(free_huge_pages(page), Some(pages), "a refusal keeps nothing");
        drop(reserved);
        if page == MIB_2 {
            let fallen_back = Arena::new("auto", bytes + 8_192, PagePreference::Huge).unwrap();
            assert_ne!(fallen_back.page_kind(), PageKind::Huge1G);
        }
    }
}
