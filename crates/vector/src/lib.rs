//! Headers of several packets at once, by vector instructions where the processor has them.
//!
//! The express lane's first turn asks the same forty questions of every packet. [`Quads`] asks them of four packets at a
//! time; where the processor has no such instructions, or one of the four is not common, the lane asks one by one. What is
//! seen is the same: a test of `pipeline` holds the two together over damaged and undamaged frames.

mod pass;
#[cfg(target_arch = "x86_64")]
mod quads;
#[cfg(not(target_arch = "x86_64"))]
mod without;

pub use pass::{Pass, Pattern, States};
#[cfg(target_arch = "x86_64")]
pub use quads::Quads;
#[cfg(not(target_arch = "x86_64"))]
pub use without::Quads;

/// Bytes that every common IPv4 packet has: Ethernet, IPv4 and TCP up to its checksum. A UDP packet of no more than ten
/// bytes that nobody padded to Ethernet's minimum takes the longer way.
pub const COMMON_BYTES: usize = 52;
/// The same of a common IPv6 packet.
pub const COMMON_BYTES_SIX: usize = 72;
