//! What of a columnar file a question must look at, told by a few kilobytes of it: which ports of which outside address are
//! in it, and where in it a subscriber is.
//!
//! ```text
//! PAR1 | row groups | ports: blocks | subscribers: blocks | first key and place of each block | trailer | footer | PAR1
//! ```
//!
//! Other readers of Parquet go by the footer and never see it. It is found from the end of the file without reading the
//! footer, which takes longer than everything here. Every piece has a checksum: what is damaged tells nothing, and the file
//! is read as one that has no index.

use std::fs::File;
use std::net::IpAddr;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use super::columns::{GROUP_ROWS, Wanted};
use crate::record::{Kind, Record};

/// Bytes of a block, about: what a look reads.
const BLOCK_BYTES: usize = 4_096;
/// Runs of ports of an address; where there are more, neighbours are told as one.
const RUNS_MAX: usize = 1_024;
/// Files of fewer row groups tell no ports and no subscribers: what is in them is read as quickly, and would be told at length.
const GROUPS_MIN: u32 = 4;
/// Rows of a slice, by which the places of subscribers are told: exact ones would take more than reading these.
const SLICE_ROWS: usize = 512;
const GROUP_SLICES: usize = GROUP_ROWS / SLICE_ROWS;
/// Another number than what was told of places by whole row groups has: that is not understood, and those files are read as
/// if they had no index.
const MAGIC: u64 = u64::from_le_bytes(*b"carrack2");
/// Counts, flags, checksum and magic.
const TRAILER_WORDS: usize = 8;
const TRAILER_BYTES: u64 = 4 * TRAILER_WORDS as u64;
/// A fence: first key of a block and where it is.
const FENCE_BYTES: usize = 8;
const CHECKSUM_BYTES: usize = 4;
/// Bytes of the trailer's counts and flags, which have the same checksum as the fences.
const COUNTS_BYTES: usize = 20;
/// Events that every question needs are in the file.
const OWN: u32 = 1;
/// All ports and subscribers are told; else only whether such events are in it.
const WHOLE: u32 = 2;
/// Of the footer: its length and the last `PAR1`.
const END_BYTES: u64 = 8;

/// Where in a file rows may be that somebody wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Places {
    /// Anywhere.
    Anywhere,
    /// Nowhere.
    Nowhere,
    /// In these slices, and, if so said, wherever the daemon's own events are.
    Slices(Vec<Slice>, bool),
}

/// Some neighbouring rows, in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Slice {
    /// Number of the row group.
    pub group: usize,
    /// Rows of it; the last one may have fewer.
    pub rows: Range<usize>,
}

/// Makes the index of a file from its rows, in the order of the file.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    ports: Section,
    /// The last address, and its runs of ports so far.
    address: Option<(u32, Vec<(u16, u16)>)>,
    /// Subscriber and number of the slice.
    subscribers: Vec<(u32, u32)>,
    groups: u32,
    /// Has it events that every question needs?
    has_own: bool,
}

impl Builder {
    /// The rows of the next row group.
    pub(crate) fn group(&mut self, rows: &[Record]) {
        for (row, record) in rows.iter().enumerate() {
            if record.outside == 0 {
                self.has_own |= concerns_all(record.kind);
                continue;
            }
            if self.address.as_ref().is_none_or(|(outside, _)| *outside != record.outside) {
                self.finish_address();
                self.address = Some((record.outside, Vec::new()));
            }
            if let Some((_, runs)) = &mut self.address {
                add(runs, record.first, record.last.max(record.first));
            }
            let slice = self.groups as usize * GROUP_SLICES + row / SLICE_ROWS;
            let place = (key(record.inside), slice as u32);
            // Most are given back by who got them.
            if self.subscribers.last() != Some(&place) {
                self.subscribers.push(place);
            }
        }
        self.groups += 1;
    }

    /// Its bytes, which stand before the footer.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.finish_address();
        let is_whole = self.groups >= GROUPS_MIN || self.subscribers.is_empty();
        if !is_whole {
            self.ports = Section::default();
            self.subscribers.clear();
        }
        let mut subscribers = Section::default();
        self.subscribers.sort_unstable();
        self.subscribers.dedup();
        let mut payload = Vec::new();
        for of_one in self.subscribers.chunk_by(|(a, _), (b, _)| a == b) {
            let Some((key, _)) = of_one.first() else { continue };
            payload.clear();
            let mut last = 0;
            for (_, slice) in of_one {
                varint(&mut payload, slice - std::mem::replace(&mut last, *slice));
            }
            subscribers.push(*key, &payload);
        }
        let (mut bytes, ports) = self.ports.finish();
        let ports_bytes = bytes.len();
        let (more, named) = subscribers.finish();
        bytes.extend(&more);
        let tail = bytes.len();
        for (key, at) in ports.iter().chain(&named) {
            bytes.extend(key.to_le_bytes());
            bytes.extend(at.to_le_bytes());
        }
        let words = [ports_bytes, more.len(), ports.len(), named.len()].map(|count| count as u32);
        let flags = u32::from(self.has_own) * OWN + u32::from(is_whole) * WHOLE;
        words.iter().chain([&flags]).for_each(|word| bytes.extend(word.to_le_bytes()));
        let checksum = crc32fast::hash(bytes.get(tail..).unwrap_or_default());
        bytes.extend(checksum.to_le_bytes());
        bytes.extend(MAGIC.to_le_bytes());
        bytes
    }

    fn finish_address(&mut self) {
        let Some((outside, runs)) = self.address.take() else { return };
        let mut payload = Vec::new();
        let mut at = 0;
        for (first, last) in runs {
            varint(&mut payload, u32::from(first) - at);
            varint(&mut payload, u32::from(last - first));
            at = u32::from(last);
        }
        self.ports.push(outside, &payload);
    }
}

/// Does every question need such an event?
const fn concerns_all(kind: Kind) -> bool {
    matches!(kind, Kind::Started | Kind::Stopped | Kind::ClockSet | Kind::EventsLost)
}

/// Adds a range to runs in order; its first port is not below that of the last.
fn add(runs: &mut Vec<(u16, u16)>, first: u16, last: u16) {
    match runs.last_mut() {
        Some(run) if first <= run.1.saturating_add(1) => run.1 = run.1.max(last),
        _ => runs.push((first, last)),
    }
    let mut gap = 1;
    while runs.len() > RUNS_MAX {
        gap *= 2;
        runs.dedup_by(|next, run| {
            let is_near = next.0 - run.1 <= gap;
            if is_near {
                run.1 = run.1.max(next.1);
            }
            is_near
        });
    }
}

/// A subscriber's key; those of IPv6 addresses may be the same as others'.
fn key(inside: IpAddr) -> u32 {
    match inside {
        IpAddr::V4(ip) => ip.into(),
        IpAddr::V6(ip) => crc32fast::hash(&ip.octets()),
    }
}

/// Keys and what belongs to them, in blocks.
#[derive(Debug, Default)]
struct Section {
    bytes: Vec<u8>,
    fences: Vec<(u32, u32)>,
    last: u32,
}

impl Section {
    /// Keys come in order.
    fn push(&mut self, key: u32, payload: &[u8]) {
        let begin = self.fences.last().map_or(0, |(_, at)| *at as usize);
        if self.fences.is_empty() || self.bytes.len() - begin >= BLOCK_BYTES {
            self.end_block();
            self.fences.push((key, self.bytes.len() as u32));
            self.last = key;
        }
        varint(&mut self.bytes, key - self.last);
        varint(&mut self.bytes, payload.len() as u32);
        self.bytes.extend(payload);
        self.last = key;
    }

    fn end_block(&mut self) {
        if let Some((_, begin)) = self.fences.last() {
            let checksum = crc32fast::hash(self.bytes.get(*begin as usize..).unwrap_or_default());
            self.bytes.extend(checksum.to_le_bytes());
        }
    }

    fn finish(mut self) -> (Vec<u8>, Vec<(u32, u32)>) {
        self.end_block();
        (self.bytes, self.fences)
    }
}

/// The index of a file.
pub(crate) struct Index<'a> {
    file: &'a File,
    flags: u32,
    ports: Fences,
    subscribers: Fences,
}

/// Where the blocks of a section are.
struct Fences {
    all: Vec<(u32, u32)>,
    /// Where the section is in the file.
    place: Range<u64>,
}

impl<'a> Index<'a> {
    /// `None` for a file without, or with a damaged one.
    pub(crate) fn open(file: &'a File) -> Option<Self> {
        let end = file.metadata().ok()?.len().checked_sub(END_BYTES)?;
        let [footer, _] = words(&read(file, end, END_BYTES as usize)?)[..] else { return None };
        let trailer = end.checked_sub(u64::from(footer))?.checked_sub(TRAILER_BYTES)?;
        let found = words(&read(file, trailer, TRAILER_BYTES as usize)?);
        let [ports_bytes, subscribers_bytes, ports, subscribers, flags, checksum, low, high] = found[..]
        else {
            return None;
        };
        if u64::from(high) << 32 | u64::from(low) != MAGIC {
            return None;
        }
        let (ports, subscribers) = (ports as usize, subscribers as usize);
        let bytes = FENCE_BYTES.checked_mul(ports.checked_add(subscribers)?)?;
        let tail = trailer.checked_sub(bytes as u64)?;
        let checked = read(file, tail, bytes + COUNTS_BYTES)?;
        if crc32fast::hash(&checked) != checksum {
            return None;
        }
        let all: Vec<(u32, u32)> =
            words(checked.get(..bytes)?).chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
        let (ports, subscribers) = all.split_at_checked(ports)?;
        let second = tail.checked_sub(subscribers_bytes.into())?;
        let first = second.checked_sub(ports_bytes.into())?;
        Some(Self {
            file,
            flags,
            ports: Fences { all: ports.to_vec(), place: first..second },
            subscribers: Fences { all: subscribers.to_vec(), place: second..tail },
        })
    }

    /// Where rows may be that are wanted; `None` when what would tell is damaged.
    pub(crate) fn places(&self, wanted: &Wanted) -> Option<Places> {
        let own = self.flags & OWN != 0;
        if self.flags & WHOLE == 0 {
            return Some(Places::Anywhere);
        }
        match (wanted.outside, wanted.inside) {
            (Some(outside), _) => {
                let runs = self.ports.payload(self.file, outside)?;
                let found = match (&runs, wanted.port) {
                    (Some(runs), Some(port)) => has_port(runs, port)?,
                    (runs, _) => runs.is_some(),
                };
                Some(if found || own { Places::Anywhere } else { Places::Nowhere })
            }
            (None, Some(inside)) => {
                let payload = self.subscribers.payload(self.file, key(inside))?.unwrap_or_default();
                let slices = slices(&payload)?;
                Some(if slices.is_empty() && !own { Places::Nowhere } else { Places::Slices(slices, own) })
            }
            (None, None) => Some(Places::Anywhere),
        }
    }
}

/// `None` when that cannot be what was written.
fn has_port(mut runs: &[u8], port: u16) -> Option<bool> {
    let mut at = 0u32;
    while !runs.is_empty() {
        let first = at.checked_add(next_varint(&mut runs)?)?;
        at = first.checked_add(next_varint(&mut runs)?)?;
        if u32::from(port) <= at {
            return Some(u32::from(port) >= first);
        }
    }
    Some(false)
}

/// Slices that are told, neighbours as one; `None` when that cannot be what was written.
fn slices(mut told: &[u8]) -> Option<Vec<Slice>> {
    let mut slices: Vec<Slice> = Vec::new();
    let mut number = 0u32;
    while !told.is_empty() {
        number = number.checked_add(next_varint(&mut told)?)?;
        let (group, begin) = (number as usize / GROUP_SLICES, number as usize % GROUP_SLICES * SLICE_ROWS);
        match slices.last_mut().filter(|last| last.group == group && last.rows.end == begin) {
            Some(last) => last.rows.end += SLICE_ROWS,
            None => slices.push(Slice { group, rows: begin..begin + SLICE_ROWS }),
        }
    }
    Some(slices)
}

impl Fences {
    /// What belongs to a key: `None` when the block is damaged, `Some(None)` when there is no such key.
    #[allow(clippy::option_option)]
    fn payload(&self, file: &File, key: u32) -> Option<Option<Vec<u8>>> {
        let after = self.all.partition_point(|(first, _)| *first <= key);
        let Some((mut at, begin)) = after.checked_sub(1).and_then(|block| self.all.get(block).copied())
        else {
            return Some(None);
        };
        let begin = self.place.start + u64::from(begin);
        let end = self.all.get(after).map_or(self.place.end, |(_, next)| self.place.start + u64::from(*next));
        let bytes = read(file, begin, usize::try_from(end.checked_sub(begin)?).ok()?)?;
        let (mut entries, checksum) = bytes.split_last_chunk::<CHECKSUM_BYTES>()?;
        if crc32fast::hash(entries) != u32::from_le_bytes(*checksum) {
            return None;
        }
        while let Some((delta, length)) = next_varint(&mut entries).zip(next_varint(&mut entries)) {
            at = at.checked_add(delta)?;
            let (payload, rest) = entries.split_at_checked(length as usize)?;
            if at >= key {
                return Some((at == key).then(|| payload.to_vec()));
            }
            entries = rest;
        }
        Some(None)
    }
}

/// Bytes of a file, never more than it has.
fn read(file: &File, at: u64, count: usize) -> Option<Vec<u8>> {
    if at.checked_add(count as u64)? > file.metadata().ok()?.len() {
        return None;
    }
    let mut bytes = vec![0; count];
    file.read_exact_at(&mut bytes, at).ok()?;
    Some(bytes)
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect()
}

fn varint(out: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn next_varint(bytes: &mut &[u8]) -> Option<u32> {
    let mut value = 0u32;
    for shift in (0..32).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u32::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::columns::write;

    const SUBSCRIBER: u32 = 0x6440_0000;

    /// Five row groups of addresses with every other port; one port is missing.
    fn records() -> Vec<Record> {
        let of = |n: u32| Record {
            inside: std::net::Ipv4Addr::from(SUBSCRIBER + n / 1_000).into(),
            outside: 0xcb00_7100 + n / 1_000,
            first: (n % 1_000 * 2) as u16,
            last: (n % 1_000 * 2) as u16,
            ..Record::new(u64::from(n), Kind::MappingCreated)
        };
        (0..5 * GROUP_ROWS as u32).filter(|n| *n != 300_007).map(of).collect()
    }

    fn at(outside: u32, port: u16) -> Wanted {
        Wanted { outside: Some(outside), port: Some(port), ..Wanted::of_time(0, u64::MAX >> 1) }
    }

    fn of(subscriber: u32) -> Wanted {
        let inside = Some(std::net::Ipv4Addr::from(subscriber).into());
        Wanted { inside, ..Wanted::of_time(0, u64::MAX >> 1) }
    }

    #[test]
    fn index_names_every_port_and_subscriber_of_the_file_and_no_others() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.parquet");
        let records = records();
        write(&path, &records, &[]).unwrap();
        let file = File::open(&path).unwrap();
        let index = Index::open(&file).unwrap();
        // Some of all places, and the first and last row of each slice.
        let is_looked_at = |n: usize| n.is_multiple_of(97) || matches!((n + 1) % SLICE_ROWS, 0..=2);
        for (n, record) in records.iter().enumerate().filter(|(n, _)| is_looked_at(*n)) {
            assert_eq!(index.places(&at(record.outside, record.first)), Some(Places::Anywhere), "{n}");
            assert_eq!(index.places(&at(record.outside, record.first + 1)), Some(Places::Nowhere), "{n}");
            let IpAddr::V4(inside) = record.inside else { panic!("{record:?}") };
            let Some(Places::Slices(slices, false)) = index.places(&of(inside.into())) else { panic!("{n}") };
            let (group, row) = (n / GROUP_ROWS, n % GROUP_ROWS);
            assert!(slices.iter().any(|s| s.group == group && s.rows.contains(&row)), "{n} {slices:?}");
            let rows: usize = slices.iter().map(|slice| slice.rows.len()).sum();
            assert!(rows <= 1_000 + 2 * SLICE_ROWS, "{n} {slices:?}");
        }
        assert_eq!(index.places(&at(0xcb00_7100 + 300, 14)), Some(Places::Nowhere));
        assert_eq!(index.places(&at(0xcb00_70ff, 2)), Some(Places::Nowhere));
        for unknown in [0, SUBSCRIBER - 1, SUBSCRIBER + 656, u32::MAX] {
            assert_eq!(index.places(&of(unknown)), Some(Places::Nowhere), "{unknown}");
        }
    }

    #[test]
    fn events_that_concern_all_are_in_every_answer() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.parquet");
        for (kind, concerns) in
            [(Kind::Started, true), (Kind::EventsLost, true), (Kind::QuotaExceeded, false)]
        {
            let mut records = records();
            records.push(Record::new(7, kind));
            write(&path, &records, &[]).unwrap();
            let file = File::open(&path).unwrap();
            let index = Index::open(&file).unwrap();
            let (port, host) = match concerns {
                true => (Places::Anywhere, Places::Slices(vec![], true)),
                false => (Places::Nowhere, Places::Nowhere),
            };
            assert_eq!(index.places(&at(1, 1)), Some(port), "{kind:?}");
            assert_eq!(index.places(&of(1)), Some(host), "{kind:?}");
        }
    }

    /// What is damaged may say that it does not know, never that there is nothing.
    #[test]
    fn damaged_index_never_hides_anything() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.parquet");
        write(&path, &records(), &[]).unwrap();
        let whole = std::fs::read(&path).unwrap();
        let end = whole.len() - 8;
        let footer = u32::from_le_bytes(whole[end..end + 4].try_into().unwrap()) as usize;
        let places = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            let file = File::open(&path).unwrap();
            let index = Index::open(&file)?;
            let asked = [at(0xcb00_7100, 2), at(0xcb00_7100 + 500, 4), of(SUBSCRIBER), of(SUBSCRIBER + 600)];
            Some(asked.map(|wanted| index.places(&wanted)))
        };
        let found = places(&whole).unwrap();
        assert!(!found.contains(&None) && !found.contains(&Some(Places::Nowhere)));
        for at in (end - footer - 6_000..whole.len()).step_by(41).chain(end - footer - 32..end - footer) {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x24;
            for (place, found) in places(&damaged).iter().flatten().zip(&found) {
                assert!(place.is_none() || place == found, "byte {at}: {place:?}");
            }
            assert_eq!(places(&whole[..at]), None, "cut at {at}");
        }
    }

    #[test]
    fn file_from_before_there_were_indexes_is_read_all_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.parquet");
        write(&path, &records(), &[]).unwrap();
        let file = File::open(&path).unwrap();
        let begin = Index::open(&file).unwrap().ports.place.start as usize;
        let whole = std::fs::read(&path).unwrap();
        let end = whole.len() - 8;
        let footer = end - u32::from_le_bytes(whole[end..end + 4].try_into().unwrap()) as usize;
        std::fs::write(&path, [&whole[..begin], &whole[footer..]].concat()).unwrap();
        assert!(Index::open(&File::open(&path).unwrap()).is_none());
        for (wanted, rows) in [(at(0xcb00_7100 + 300, 16), 1), (of(SUBSCRIBER + 300), 999), (of(1), 0)] {
            let mut found = 0;
            crate::store::columns::read(&path, wanted, |_, _| found += 1).unwrap();
            assert_eq!(found, rows, "{wanted:?}");
        }
    }

    #[test]
    fn what_cannot_have_been_written_tells_nothing() {
        let far = [0xff, 0xff, 0xff, 0xff, 0x0f];
        for damaged in [&[&far[..], &far].concat()[..], &[1, 1, 1], &[0x80]] {
            assert_eq!(has_port(damaged, 40_000), None, "{damaged:?}");
        }
        assert_eq!(slices(&[&far[..], &far].concat()), None);
        assert_eq!(slices(&[1, 0x80]), None);
        assert_eq!((has_port(&[5, 1], 6), has_port(&[5, 1], 7)), (Some(true), Some(false)));
    }

    #[test]
    fn ports_too_scattered_to_be_told_one_by_one_are_all_in_it() {
        let mut runs = Vec::new();
        for port in (0..65_535).step_by(3) {
            add(&mut runs, port, port);
        }
        assert!(runs.len() <= RUNS_MAX, "{}", runs.len());
        for port in (0..65_535).step_by(3) {
            assert!(runs.iter().any(|(first, last)| (*first..=*last).contains(&port)), "{port}");
        }
    }
}
