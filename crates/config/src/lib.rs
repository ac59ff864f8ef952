//! Desired state: one TOML file, validation with line numbers, diff, generated reference.
#![forbid(unsafe_code)]
