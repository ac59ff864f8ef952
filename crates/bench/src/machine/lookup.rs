//! What finding a packet's session costs when nothing else is done: its bucket, then the line that the bucket leads to.

use std::hint::black_box;

use carrack_nat::Rng;
use carrack_tables::{Arena, ArenaArray, PagePreference, prefetch};
use serde::Serialize;

use super::{Line, page_name, quartile};
use crate::clock::Tsc;
use crate::forward::BenchError;
use crate::memory;
use crate::progress::Progress;

/// Numbers of sessions that are tried, as many as fit.
const SESSIONS: [usize; 5] = [1_000, 100_000, 1_000_000, 10_000_000, 100_000_000];
/// The most of them for a quick look.
const SESSIONS_MAX_QUICK: usize = 1_000_000;
/// Packets of a burst.
const BURST: usize = 64;
/// Bursts of a slice.
const BURSTS: usize = 32;
/// Entries of a bucket, and of these how many are taken in a table that is full.
const ENTRIES: usize = 8;
const TAKEN_OF_TEN: usize = 8;

/// Packets a second that could find their sessions.
#[derive(Debug, Clone, Serialize)]
pub struct Lookup {
    /// Sessions, visited at random.
    pub sessions: u64,
    /// Bytes of their lines and of both directions' buckets.
    pub bytes: u64,
    /// Pages behind them.
    pub pages: String,
    /// Millions of packets a second.
    pub m_per_s: f64,
    /// Cycles of each.
    pub cycles: f64,
}

/// Tables of so many sessions, as far as a look at them goes.
struct Tables {
    buckets: ArenaArray<Line>,
    lines: ArenaArray<Line>,
    pages: String,
}

/// Buckets of both directions.
const fn buckets_of(sessions: usize) -> usize {
    (2 * sessions * 10).div_ceil(ENTRIES * TAKEN_OF_TEN)
}

const fn bytes_of(sessions: usize) -> usize {
    Arena::bytes_for::<Line>(sessions) + Arena::bytes_for::<Line>(buckets_of(sessions))
}

/// By number of sessions, those that fit into half of the memory to be had.
pub(super) fn lookups(quick: bool, tsc: Tsc) -> Result<Vec<Lookup>, BenchError> {
    let bytes_max = memory::available() as usize / 2;
    let tried = SESSIONS.into_iter().filter(|sessions| !quick || *sessions <= SESSIONS_MAX_QUICK);
    let fitting: Vec<usize> = tried.filter(|sessions| bytes_of(*sessions) <= bytes_max).collect();
    let mut progress = Progress::new("looking for sessions", fitting.len() as u64);
    let measured = fitting.into_iter().zip(0..).map(|(sessions, done)| {
        progress.at(done);
        let mut tables = Tables::new(sessions)?;
        let s = tsc.s(tables.slice(&mut Rng::new(sessions as u64))) / (BURST * BURSTS) as f64;
        Ok(Lookup {
            sessions: sessions as u64,
            bytes: bytes_of(sessions) as u64,
            pages: tables.pages,
            m_per_s: 1e-6 / s,
            cycles: s * tsc.hz,
        })
    });
    measured.collect()
}

impl Tables {
    fn new(sessions: usize) -> Result<Self, BenchError> {
        let bytes = bytes_of(sessions);
        let no_memory = |error| BenchError(format!("the probe needs {bytes} bytes: {error}"));
        let mut arena = Arena::new("probe", bytes, PagePreference::Huge).map_err(no_memory)?;
        let buckets = arena.array(buckets_of(sessions)).map_err(no_memory)?;
        let lines = arena.array(sessions).map_err(no_memory)?;
        Ok(Self { buckets, lines, pages: page_name(arena.page_kind()) })
    }

    /// Cycles of a slice: the turns of a burst are those of the router (`pipeline::express`).
    fn slice(&mut self, rng: &mut Rng) -> u64 {
        let (buckets, lines) = (&*self.buckets, &mut *self.lines);
        let mut burst = [(0, 0); BURST];
        quartile(|| {
            for _ in 0..BURSTS {
                for (bucket, line) in &mut burst {
                    (*bucket, *line) = (rng.below(buckets.len()), rng.below(lines.len()));
                    buckets.get(*bucket).inspect(|bucket| prefetch(*bucket));
                }
                for (bucket, line) in &mut burst {
                    // All of them are zero, which only who has read one knows.
                    *line += buckets.get(*bucket).map_or(0, |bucket| bucket[0] as usize);
                    lines.get(*line).inspect(|line| prefetch(*line));
                }
                for (_, line) in &burst {
                    if let Some(line) = lines.get_mut(*line) {
                        line[1] = line[1].wrapping_add(1);
                    }
                }
            }
            black_box(&burst);
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_packet_of_a_slice_finds_a_session() {
        let tsc = Tsc::measure();
        let mut tables = Tables::new(1_000).unwrap();
        assert!(tables.slice(&mut Rng::new(1)) > 0);
        let found: u64 = tables.lines.iter().map(|line| line[1]).sum();
        assert_eq!(found as usize, super::super::SLICES * BURSTS * BURST);
        assert!(tables.lines.iter().all(|line| line[1] > 0), "some sessions are never visited");

        let found = lookups(true, tsc).unwrap();
        assert_eq!(found.iter().map(|row| row.sessions).collect::<Vec<_>>(), [1_000, 100_000, 1_000_000]);
        assert_eq!(found[2].bytes, 64 * (1_000_000 + 312_500));
        assert!(found.iter().all(|row| row.m_per_s > 0.01 && row.m_per_s < 1e4), "{found:?}");
    }
}
