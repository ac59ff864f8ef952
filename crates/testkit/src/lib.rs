//! The reference NAT, golden cases, the simulated network: what whole-system tests are made of.
//!
//! `network` runs whole workers in simulated time and checks the conservation law after every step. `text` reads and
//! writes packets as one line of text. `golden` plays directories of cases; `reference` is a small obvious NAT, and
//! `simulation` plays random scenarios against both. Everything here panics when something is wrong: it is for tests.
#![forbid(unsafe_code)]

pub mod golden;
pub mod judge;
pub mod network;
pub mod random;
pub mod reference;
pub mod simulation;
pub mod text;
