//! Checked header views and builders, incremental checksums (RFC 1624). No I/O, no clock, no unsafe.
#![forbid(unsafe_code)]
