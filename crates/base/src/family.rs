//! Which of the two IP versions a thing is of.

/// IP version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(u8)]
pub enum Family {
    /// IPv4.
    #[default]
    V4 = 0,
    /// IPv6.
    V6 = 1,
}
