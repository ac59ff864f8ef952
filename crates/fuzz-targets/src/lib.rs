//! What the fuzzers run: each target a function of bytes that panics when a claim does not hold.
//!
//! The same functions run under libFuzzer (`make fuzz`, directory `fuzz/`) and, over the committed corpora and crash
//! inputs, in the ordinary tests of this crate.
#![forbid(unsafe_code)]

mod gateways;
mod icmp;
mod network;
mod pipeline;
mod port_control;
mod text;
mod wire;
mod xlat;

/// A target: its name (that of its corpus) and what it runs.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: [Target; 8] = [
    ("wire", wire::parsers),
    ("pipeline", pipeline::worker),
    ("icmp", icmp::errors),
    ("gateways", gateways::talk),
    ("xlat", xlat::translate),
    ("port_control", port_control::requests),
    ("config", text::config),
    ("api", text::filters),
];

/// Runs the target of that name.
///
/// # Panics
/// When there is none, or when the input breaks a claim.
pub fn run(name: &str, input: &[u8]) {
    let Some((_, target)) = TARGETS.iter().find(|(known, _)| *known == name) else {
        panic!("there is no fuzz target `{name}`");
    };
    target(input);
}
