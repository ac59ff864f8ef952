//! What hosts asked for.

use core::net::{IpAddr, Ipv4Addr};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A mapping that a host asked for by PCP or NAT-PMP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PortMapping {
    /// NAT instance.
    pub instance: String,
    /// `tcp` or `udp`.
    pub protocol: String,
    /// `map`, for everybody, or `peer`, for one remote endpoint.
    pub kind: String,
    /// Inside address.
    #[schema(value_type = String)]
    pub inside: IpAddr,
    /// First inside port.
    pub inside_port: u16,
    /// Outside address.
    #[schema(value_type = String)]
    pub outside: Ipv4Addr,
    /// First outside port.
    pub outside_port: u16,
    /// Ports in a row, inside and outside.
    pub ports: u16,
    /// The remote address of a `peer`, as the host sees it.
    #[schema(value_type = Option<String>)]
    pub remote: Option<IpAddr>,
    /// Its port.
    pub remote_port: Option<u16>,
    /// Who may come in, as `prefix` or `prefix:port`; everybody when empty.
    pub filters: Vec<String>,
    /// `pcp` or `nat-pmp`.
    pub asked_by: String,
    /// Seconds until it ends, unless it is asked for again.
    pub expires_s: u32,
}
