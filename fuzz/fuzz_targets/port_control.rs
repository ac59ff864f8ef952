//! See `carrack_fuzz_targets`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| carrack_fuzz_targets::run("port_control", input));
