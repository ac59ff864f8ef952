//! Inside endpoints of either IP version.

use std::fmt;
use std::net::IpAddr;

use carrack_nat::row::{Endpoint, HostEndpoint};

/// An inside endpoint, with the NAT64 prefix by which an IPv6 host sees its peer: answers come from the one it asked. Its
/// mapping is one, by whatever prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Local {
    /// Address.
    pub ip: IpAddr,
    /// Port or ICMP identifier.
    pub port: u16,
    /// Number of the NAT64 prefix by which it sees its peers; 0 for an IPv4 host.
    pub via: u16,
}

impl Local {
    /// As management shows it, which says nothing of the prefix.
    #[must_use]
    pub const fn endpoint(self) -> HostEndpoint {
        HostEndpoint { ip: self.ip, port: self.port }
    }

    /// The address of an IPv4 host.
    #[must_use]
    pub fn v4(self) -> Option<u32> {
        self.endpoint().v4().map(|endpoint| endpoint.ip)
    }

    /// Is it an IPv6 host's?
    #[must_use]
    pub const fn is_six(self) -> bool {
        self.ip.is_ipv6()
    }
}

impl From<Endpoint> for Local {
    fn from(endpoint: Endpoint) -> Self {
        let HostEndpoint { ip, port } = endpoint.into();
        Self { ip, port, via: 0 }
    }
}

impl fmt::Display for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.via {
            0 => self.endpoint().fmt(f),
            via => f.pad(&format!("{} by prefix {via}", self.endpoint())),
        }
    }
}
