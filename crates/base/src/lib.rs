//! Ids, prefixes, port ranges, ticks, limits and THE table of reasons.
#![forbid(unsafe_code)]
