//! Checked header views and builders, incremental checksums (RFC 1624). No I/O, no clock, no unsafe.
//!
//! Every view is checked once by `parse` and infallible after that: accessors neither fail nor panic. A view
//! borrows the packet, copies nothing and allocates nothing. Multi-byte fields are returned in host order;
//! IPv4 addresses as `u32` in host order (`192.0.2.1` is `0xc000_0201`), IPv6 addresses as `u128` in host order,
//! because that is what tables are keyed by.
//!
//! `parse` is for packets that must be whole. `parse_quoted` is for the leading octets of a packet carried
//! inside an ICMP error, where everything behind the header may be cut off.
#![forbid(unsafe_code)]

pub mod arp;
pub mod build;
pub mod checksum;
pub mod ethernet;
pub mod fragment;
pub mod fragment6;
pub mod gre;
pub mod icmp;
pub mod icmpv4;
pub mod icmpv6;
pub mod ipv4;
pub mod ipv6;
pub mod mld;
pub mod ndp;
pub mod tcp;
pub mod udp;
pub mod vlan;

pub use build::PacketBuilder;
pub use checksum::Delta;
pub use ethernet::MacAddr;

pub use icmpv4::Icmpv4View;
pub use icmpv6::Icmpv6View;
pub use ipv4::{Ipv4Mut, Ipv4View};
pub use ipv6::{Ipv6Mut, Ipv6View};
pub use tcp::{TcpMut, TcpView};
pub use udp::{UdpMut, UdpView};
pub use vlan::{L2, parse_l2};

/// Two octets of a fixed-size header, big-endian. The index is a constant at every call, so it costs nothing.
#[inline(always)]
pub(crate) fn be16<const N: usize>(head: &[u8; N], at: usize) -> u16 {
    // Invariant: `at + 1 < N`; every caller passes a constant inside its own fixed-size header.
    u16::from_be_bytes([head[at], head[at + 1]])
}

/// Four octets of a fixed-size header, big-endian.
#[inline(always)]
pub(crate) fn be32<const N: usize>(head: &[u8; N], at: usize) -> u32 {
    // Invariant: `at + 3 < N`; every caller passes a constant inside its own fixed-size header.
    u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]])
}

/// Sixteen octets of a fixed-size header, big-endian.
#[inline(always)]
pub(crate) fn be128<const N: usize>(head: &[u8; N], at: usize) -> u128 {
    let mut value = [0; 16];
    // Invariant: `at + 15 < N`; every caller passes a constant inside its own fixed-size header.
    value.copy_from_slice(&head[at..at + 16]);
    u128::from_be_bytes(value)
}

/// Stores two octets, big-endian, into a fixed-size header.
#[inline(always)]
pub(crate) fn put16<const N: usize>(head: &mut [u8; N], at: usize, value: u16) {
    // Invariant: `at + 1 < N`; every caller passes a constant inside its own fixed-size header.
    head[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Stores four octets, big-endian, into a fixed-size header.
#[inline(always)]
pub(crate) fn put32<const N: usize>(head: &mut [u8; N], at: usize, value: u32) {
    // Invariant: `at + 3 < N`; every caller passes a constant inside its own fixed-size header.
    head[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

/// Stores sixteen octets, big-endian, into a fixed-size header.
#[inline(always)]
pub(crate) fn put128<const N: usize>(head: &mut [u8; N], at: usize, value: u128) {
    // Invariant: `at + 15 < N`; every caller passes a constant inside its own fixed-size header.
    head[at..at + 16].copy_from_slice(&value.to_be_bytes());
}
