//! Addresses and names of the demonstration network: one place, so that config, servers and checks agree.

use std::fmt;

/// One namespace of a lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ns {
    /// First subscriber; also runs the web server behind the port forward.
    Sub1,
    /// Second subscriber.
    Sub2,
    /// The switch between subscribers and the router.
    Lan,
    /// The router under test.
    Carrack,
    /// The next hop: routes the pool towards `carrack`.
    Isp,
    /// The servers.
    Inet,
}

impl Ns {
    /// All namespaces, in the order in which they are created.
    pub const ALL: [Ns; 6] = [Ns::Sub1, Ns::Sub2, Ns::Lan, Ns::Carrack, Ns::Isp, Ns::Inet];

    /// The short name used on the command line.
    pub fn role(self) -> &'static str {
        match self {
            Ns::Sub1 => "sub1",
            Ns::Sub2 => "sub2",
            Ns::Lan => "lan",
            Ns::Carrack => "carrack",
            Ns::Isp => "isp",
            Ns::Inet => "inet",
        }
    }

    /// The namespace with this short name.
    pub fn from_role(role: &str) -> Option<Ns> {
        Ns::ALL.into_iter().find(|ns| ns.role() == role)
    }

    /// The kernel's name of this namespace in lab `lab`.
    pub fn full_name(self, lab: &str) -> String {
        format!("{}{}", prefix(lab), self.role())
    }
}

impl fmt::Display for Ns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.role())
    }
}

/// What the names of all namespaces of lab `lab` begin with. The dot ends the lab's name, which cannot contain one,
/// so no lab's prefix is the prefix of another's.
pub fn prefix(lab: &str) -> String {
    format!("carrack-{lab}.")
}

/// The inside network and the router's address in it.
pub const INSIDE_NET: &str = "100.64.0.0/24";
/// The router's inside address: the subscribers' gateway.
pub const INSIDE_GATEWAY: &str = "100.64.0.1";
/// First subscriber.
pub const SUB1: &str = "100.64.0.11";
/// Second subscriber.
pub const SUB2: &str = "100.64.0.12";

/// The next hop's address on the link to the router (a /30).
pub const ISP: &str = "192.0.2.1";
/// The router's outside address on that link.
pub const OUTSIDE: &str = "192.0.2.2";

/// The NAT pool, routed by the next hop towards the router.
pub const POOL: &str = "198.51.100.0/28";
/// What every pool address begins with (the pool is a part of this /24, which is otherwise unused).
pub const POOL_PREFIX: &str = "198.51.100.";
/// First address used as a source by the comparison router.
pub const POOL_FIRST: &str = "198.51.100.1";
/// Last address used as a source by the comparison router.
pub const POOL_LAST: &str = "198.51.100.14";
/// Pool address of the inbound port forward.
pub const FORWARD_ADDRESS: &str = "198.51.100.1";
/// Outside port of the inbound port forward, and the port of the web server in `sub1` behind it.
pub const FORWARD_PORT: u16 = 8080;

/// The server behind links of 1500 bytes.
pub const SERVER: &str = "203.0.113.10";
/// The DNS server (same machine).
pub const DNS: &str = "203.0.113.53";
/// The server's name in that DNS.
pub const SERVER_NAME: &str = "www.example.net";
/// The next hop's address towards [`SERVER`].
pub const ISP_WAN: &str = "203.0.113.1";
/// The same server behind a link of [`NARROW_MTU`] bytes.
pub const NARROW: &str = "203.0.113.130";
/// The next hop's address towards [`NARROW`].
pub const ISP_NARROW: &str = "203.0.113.129";
/// MTU of the narrow link, bytes. The server behind it does not let its callers know: it offers TCP segments for
/// 1500 bytes, so that only path-MTU discovery finds the limit.
pub const NARROW_MTU: u16 = 1300;

/// Web server.
pub const HTTP_PORT: u16 = 80;
/// UDP echo.
pub const ECHO_PORT: u16 = 7;
/// Answers with the address and port that the question came from, over UDP and TCP.
pub const WHOAMI_PORT: u16 = 7007;
/// FTP.
pub const FTP_PORT: u16 = 21;
/// iperf3.
pub const IPERF_PORT: u16 = 5201;

/// Answers with the SHA-256 of what was sent to it over TCP.
pub const DIGEST_PORT: u16 = 7009;

/// Bytes of the file that is downloaded.
pub const BIG_FILE_BYTES: u64 = 8 * 1024 * 1024;
/// Its name on the web server.
pub const BIG_FILE: &str = "big.bin";
/// A smaller one, uploaded over the narrow link.
pub const SMALL_FILE: &str = "small.bin";
/// Bytes of the smaller one.
pub const SMALL_FILE_BYTES: u64 = 512 * 1024;
/// The page behind the port forward.
pub const HOME_PAGE: &str = "A page served from behind the NAT by sub1.\n";

/// Whether `name` can name a lab: 1 to 24 of `a-z`, `0-9` and `-`.
pub fn valid_name(name: &str) -> bool {
    (1..=24).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

#[cfg(test)]
mod tests;
