//! Demonstration networks in network namespaces.
#![forbid(unsafe_code)]
