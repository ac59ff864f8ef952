//! The protocols a NAT keeps apart.

/// What a mapping is made for. TCP, UDP and ICMP queries have ports (or ids); everything else passes by address only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(u8)]
pub enum Proto {
    /// Transmission Control Protocol, 6.
    Tcp = 0,
    /// User Datagram Protocol, 17.
    #[default]
    Udp = 1,
    /// ICMP queries, by their identifier (RFC 5508 §3.1).
    Icmp = 2,
    /// Any other protocol, translated by address alone under a one-to-one mapping.
    Other = 3,
}

impl Proto {
    /// All protocols that have ports or identifiers, in index order.
    pub const WITH_PORTS: [Self; 3] = [Self::Tcp, Self::Udp, Self::Icmp];

    /// Index into per-protocol arrays of length 3 (`Other` is 3).
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// From an IPv4 protocol number.
    #[inline]
    #[must_use]
    pub const fn from_ip(number: u8) -> Self {
        match number {
            6 => Self::Tcp,
            17 => Self::Udp,
            1 => Self::Icmp,
            _ => Self::Other,
        }
    }

    /// From the index of [`Proto::index`]; anything past the end is `Other`.
    #[inline]
    #[must_use]
    pub const fn from_index(index: u8) -> Self {
        match index {
            0 => Self::Tcp,
            1 => Self::Udp,
            2 => Self::Icmp,
            _ => Self::Other,
        }
    }

    /// The word that config, CLI and API use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Icmp => "icmp",
            Self::Other => "other",
        }
    }

    /// The protocol of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Tcp, Self::Udp, Self::Icmp, Self::Other].into_iter().find(|p| p.name() == name)
    }
}

impl core::fmt::Display for Proto {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(self.name())
    }
}
