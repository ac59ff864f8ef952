//! The NAT engine, sans-I/O: (packet bytes, now) to verdict.
#![forbid(unsafe_code)]

pub mod policy;
pub mod row;
