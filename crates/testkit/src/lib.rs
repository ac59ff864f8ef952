//! Packet builders, the reference NAT, golden cases, the simulated network.
#![forbid(unsafe_code)]
