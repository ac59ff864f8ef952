//! The `carrack` binary.
#![forbid(unsafe_code)]

fn main() {}
