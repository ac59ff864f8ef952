//! Interfaces, neighbours and routes.

use core::net::{IpAddr, Ipv6Addr};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A logical interface.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Interface {
    /// As in config.
    pub name: String,
    /// The device behind it, as in config.
    pub device: String,
    /// VLAN tags: empty, `100`, or `100.200` for QinQ.
    pub vlan: String,
    /// `inside`, `outside` or `plain`.
    pub side: String,
    /// Routing instance.
    pub vrf: String,
    /// Administratively up?
    pub up: bool,
    /// Does the device see a link?
    pub link: bool,
    /// How often the link came back after it was lost, such as by a shared-memory peer that was started again.
    pub link_resumed: u64,
    /// MAC address.
    pub mac: String,
    /// Largest IP packet, bytes.
    pub mtu: u16,
    /// Own addresses with prefix length, IPv4 before IPv6; the IPv6 link-local one is last.
    pub addresses: Vec<String>,
    /// Whether IPv6 addresses may be used; none while the interface is down.
    #[serde(default)]
    pub address_states: Vec<AddressState>,
    /// Packets received (whole device; only on its untagged interface).
    pub rx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Packets that the device itself missed.
    pub rx_missed: u64,
    /// Packets that the device received damaged or too large.
    #[serde(default)]
    pub rx_errors: u64,
    /// Packets not received because no packet buffer was free. A device that leaves them in its queue may miss them
    /// later, and counts them again then.
    #[serde(default)]
    pub rx_nombuf: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets that the device took and failed to send.
    #[serde(default)]
    pub tx_errors: u64,
}

/// What became of an IPv6 address when the link was asked whether somebody has it (RFC 4862 §5.4).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AddressState {
    /// The address.
    #[schema(value_type = String)]
    pub address: Ipv6Addr,
    /// `tentative` while the link is asked, `preferred` once it may be used, `duplicate` when somebody else has it: it is
    /// not used then.
    pub state: String,
    /// MAC address of who has a duplicate one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_by: Option<String>,
}

/// A neighbour on an interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Neighbour {
    /// Interface.
    pub interface: String,
    /// Its address.
    #[schema(value_type = String)]
    pub address: IpAddr,
    /// Its MAC address; empty while it is not known.
    pub mac: String,
    /// `reachable`, `stale`, `resolving`, `failed` or `static`.
    pub state: String,
    /// Seconds since it was last confirmed.
    pub age_s: u64,
}

/// A route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Route {
    /// Routing instance.
    pub vrf: String,
    /// Destination prefix.
    pub prefix: String,
    /// `connected`, `local`, `static`, `translate`, `blackhole` or `prohibit`.
    pub kind: String,
    /// The gateway, when there is one.
    #[schema(value_type = Option<String>)]
    pub gateway: Option<IpAddr>,
    /// The interface, when there is one.
    pub interface: Option<String>,
    /// Of `translate`: the NAT instance or stateless translator. A NAT64 prefix leads to its instance from the inside
    /// before any route is looked up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub translator: Option<String>,
}
