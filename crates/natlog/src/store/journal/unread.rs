//! A journal as a question reads it: checked whole, but only the records are decoded that may be wanted. Of millions, a
//! question wants a handful.

use std::fs::File;
use std::io::{self, Read};
use std::net::IpAddr;
use std::ops::Range;
use std::path::Path;

use super::{INSIDE6, NAMES, RECORDS, REMOTE4, REMOTE6, Reader, next_frame, read_names};
use crate::record::Record;
use crate::store::columns::Wanted;

/// Octets of a record before its addresses.
const FIXED_BYTES: usize = 36;
/// Octets after a remote address: the IPv4 one and the port.
const REMOTE_REST_BYTES: usize = 6;

/// A journal up to its first damage.
#[derive(Debug, Default)]
pub(crate) struct Unread {
    bytes: Vec<u8>,
    frames: Vec<Frame>,
    /// For each list of names in the journal, where its names are in `instances`.
    lists: Vec<Vec<u16>>,
    instances: Vec<String>,
}

/// A frame of records.
#[derive(Debug)]
struct Frame {
    /// Its records in the file.
    records: Range<usize>,
    /// Which list its instances are from; none before the first.
    list: Option<usize>,
    /// Times of its records, milliseconds since 1970.
    from_ms: u64,
    to_ms: u64,
}

impl Unread {
    /// Reads and checks a journal.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let mut bytes = Vec::new();
        File::open(path)?.read_to_end(&mut bytes)?;
        Ok(Self::of(bytes))
    }

    pub(crate) fn of(bytes: Vec<u8>) -> Self {
        let mut it = Self::default();
        let mut rest: &[u8] = &bytes;
        while let Some((frame, after)) = next_frame(rest) {
            let end = bytes.len() - after.len();
            rest = after;
            match frame.split_first() {
                Some((&NAMES, names)) => it.lists.push(read_names(names, &mut it.instances)),
                Some((&RECORDS, records)) => {
                    let times = || glances(records).map(|(glance, _)| glance.unix_ms);
                    if let (Some(from_ms), Some(to_ms)) = (times().min(), times().max()) {
                        let list = it.lists.len().checked_sub(1);
                        let records = end - records.len()..end;
                        it.frames.push(Frame { records, list, from_ms, to_ms });
                    }
                }
                _ => {}
            }
        }
        it.bytes = bytes;
        it
    }

    /// Times of the first and the last event, milliseconds since 1970; `None` without any.
    pub(crate) fn times(&self) -> Option<(u64, u64)> {
        let from_ms = self.frames.iter().map(|frame| frame.from_ms).min()?;
        let to_ms = self.frames.iter().map(|frame| frame.to_ms).max()?;
        Some((from_ms, to_ms))
    }

    /// Gives each record that is wanted to `each`, with its instance's name, in the order they came.
    pub(crate) fn read(&self, wanted: Wanted, mut each: impl FnMut(&Record, &str)) {
        let inside = wanted.inside.map(Inside::of);
        for frame in &self.frames {
            if frame.from_ms > wanted.to_ms || frame.to_ms < wanted.from_ms {
                continue;
            }
            let indices = frame.list.and_then(|list| self.lists.get(list)).map_or(&[][..], Vec::as_slice);
            for (glance, bytes) in glances(self.bytes.get(frame.records.clone()).unwrap_or_default()) {
                if !glance.is_among(&wanted, inside.as_ref()) {
                    continue;
                }
                let Some(record) = Reader(bytes).record(indices).filter(|record| wanted.admits(record))
                else {
                    continue;
                };
                let name = self.instances.get(usize::from(record.instance));
                each(&record, name.map_or("", String::as_str));
            }
        }
    }
}

/// A subscriber as a record has it.
struct Inside {
    octets: [u8; 16],
    length: usize,
}

impl Inside {
    fn of(ip: IpAddr) -> Self {
        let mut octets = [0; 16];
        let length = match ip {
            IpAddr::V4(ip) => {
                octets[..4].copy_from_slice(&ip.octets());
                4
            }
            IpAddr::V6(ip) => {
                octets = ip.octets();
                16
            }
        };
        Self { octets, length }
    }

    fn octets(&self) -> &[u8] {
        self.octets.get(..self.length).unwrap_or_default()
    }
}

/// What of a record decides whether it is worth decoding.
struct Glance<'a> {
    unix_ms: u64,
    outside: u32,
    first: u16,
    last: u16,
    inside: &'a [u8],
}

impl Glance<'_> {
    /// As [`Wanted::admits`] of the record.
    #[inline]
    fn is_among(&self, wanted: &Wanted, inside: Option<&Inside>) -> bool {
        let in_place = || {
            wanted.outside.is_none_or(|outside| self.outside == outside)
                && wanted.port.is_none_or(|port| (self.first..=self.last).contains(&port))
                && inside.is_none_or(|inside| self.inside == inside.octets())
        };
        (wanted.from_ms..=wanted.to_ms).contains(&self.unix_ms) && (self.outside == 0 || in_place())
    }
}

/// The records of a frame, each with its octets.
fn glances(mut bytes: &[u8]) -> impl Iterator<Item = (Glance<'_>, &[u8])> {
    std::iter::from_fn(move || {
        let (fixed, _) = bytes.split_first_chunk::<FIXED_BYTES>()?;
        let family = fixed[12];
        let inside_bytes = if family & INSIDE6 != 0 { 16 } else { 4 };
        let remote_bytes = match family & (REMOTE4 | REMOTE6) {
            0 => 0,
            REMOTE4 => 4 + REMOTE_REST_BYTES,
            _ => 16 + REMOTE_REST_BYTES,
        };
        let (record, rest) = bytes.split_at_checked(FIXED_BYTES + inside_bytes + remote_bytes)?;
        bytes = rest;
        let [a, b, c, d, e, f, g, h, ..] = *fixed;
        let glance = Glance {
            unix_ms: u64::from_le_bytes([a, b, c, d, e, f, g, h]),
            outside: u32::from_le_bytes([fixed[20], fixed[21], fixed[22], fixed[23]]),
            first: u16::from_le_bytes([fixed[24], fixed[25]]),
            last: u16::from_le_bytes([fixed[26], fixed[27]]),
            inside: record.get(FIXED_BYTES..FIXED_BYTES + inside_bytes)?,
        };
        Some((glance, record))
    })
}
