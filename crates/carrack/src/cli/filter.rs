//! Filters as options; each value is checked before the daemon is asked.

use std::net::{IpAddr, Ipv4Addr};

use carrack_api::{DeterministicQuery, NetworkQuery, PacketQuery, Param, PortMappingQuery, RowFilter};
use carrack_base::{Prefix, Prefix4, Proto, REASONS, Reason};
use carrack_nat::row::TcpState;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};

/// Which sessions or mappings.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Filters")]
pub struct FilterArgs {
    /// NAT instance.
    #[arg(long, value_name = "NAME")]
    instance: Option<String>,
    /// Protocol.
    #[arg(long, short, value_name = "PROTO", value_parser = protocols())]
    protocol: Option<Proto>,
    /// Inside address or prefix.
    #[arg(long, value_name = "PREFIX", value_parser = Prefix::parse)]
    inside: Option<Prefix>,
    /// Inside port or ICMP identifier.
    #[arg(long, value_name = "PORT")]
    inside_port: Option<u16>,
    /// Outside address or prefix.
    #[arg(long, value_name = "PREFIX", value_parser = Prefix4::parse)]
    outside: Option<Prefix4>,
    /// Outside port or ICMP identifier.
    #[arg(long, value_name = "PORT")]
    outside_port: Option<u16>,
    /// Remote address or prefix, or the IPv6 one that stands for it behind a NAT64 prefix.
    #[arg(long, value_name = "PREFIX", value_parser = Prefix::parse)]
    remote: Option<Prefix>,
    /// Remote port.
    #[arg(long, value_name = "PORT")]
    remote_port: Option<u16>,
    /// TCP state.
    #[arg(long, value_name = "STATE", value_parser = tcp_states())]
    tcp_state: Option<TcpState>,
}

/// Which sessions or mappings, and how many.
#[derive(Debug, Clone, Default, Args)]
pub struct ListArgs {
    #[command(flatten)]
    filter: FilterArgs,
    /// At most so many.
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
}

impl ListArgs {
    /// As the API takes it.
    pub fn filter(self) -> RowFilter {
        RowFilter { limit: self.limit, ..self.filter.filter() }
    }
}

impl FilterArgs {
    /// As the API takes it.
    pub fn filter(self) -> RowFilter {
        RowFilter {
            instance: self.instance,
            protocol: self.protocol,
            inside: self.inside,
            inside_port: self.inside_port,
            outside: self.outside,
            outside_port: self.outside_port,
            remote: self.remote,
            remote_port: self.remote_port,
            tcp_state: self.tcp_state,
            limit: None,
        }
    }
}

/// Which subscribers or pool addresses.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Filters")]
pub struct SubscriberArgs {
    /// NAT instance.
    #[arg(long, value_name = "NAME")]
    instance: Option<String>,
    /// Inside address or prefix.
    #[arg(long, value_name = "PREFIX", value_parser = Prefix::parse)]
    inside: Option<Prefix>,
    /// Outside address or prefix.
    #[arg(long, value_name = "PREFIX", value_parser = Prefix4::parse)]
    outside: Option<Prefix4>,
    /// At most so many.
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
}

impl SubscriberArgs {
    /// As the API takes it.
    pub fn filter(self) -> RowFilter {
        RowFilter {
            instance: self.instance,
            inside: self.inside,
            outside: self.outside,
            limit: self.limit,
            ..RowFilter::default()
        }
    }
}

/// Which mappings that hosts asked for.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Filters")]
pub struct PortMappingArgs {
    /// Inside address or prefix.
    #[arg(long, value_name = "PREFIX", value_parser = Prefix::parse)]
    inside: Option<Prefix>,
    /// Protocol.
    #[arg(long, short, value_name = "PROTO", value_parser = protocols())]
    protocol: Option<Proto>,
    /// At most so many.
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
}

impl PortMappingArgs {
    /// As the API takes it.
    pub fn query(self) -> PortMappingQuery {
        PortMappingQuery { inside: self.inside, protocol: self.protocol, limit: self.limit }
    }
}

/// Which interfaces, neighbours or routes.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Filters")]
pub struct NetworkArgs {
    /// Interface.
    #[arg(long, short, value_name = "NAME")]
    interface: Option<String>,
    /// Routing instance.
    #[arg(long, value_name = "NAME")]
    vrf: Option<String>,
    /// What holds this address, or meets this prefix.
    #[arg(long, short, value_name = "PREFIX", value_parser = Prefix::parse)]
    address: Option<Prefix>,
    /// At most so many.
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
}

impl NetworkArgs {
    /// As the API takes it.
    pub fn query(self) -> NetworkQuery {
        NetworkQuery { interface: self.interface, vrf: self.vrf, address: self.address, limit: self.limit }
    }
}

/// Which packets to trace or capture.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Filters (addresses and ports match either direction)")]
pub struct PacketArgs {
    /// Interface the packet came in by.
    #[arg(long, short, value_name = "NAME")]
    interface: Option<String>,
    /// Either address, or a prefix it is in.
    #[arg(long, short, value_name = "PREFIX", value_parser = Prefix::parse)]
    address: Option<Prefix>,
    /// Protocol.
    #[arg(long, value_name = "PROTO", value_parser = protocols())]
    protocol: Option<Proto>,
    /// Either port.
    #[arg(long, short, value_name = "PORT")]
    port: Option<u16>,
}

impl PacketArgs {
    /// As the API takes it.
    pub fn query(self, count: Option<u64>) -> PacketQuery {
        PacketQuery {
            interface: self.interface,
            address: self.address,
            protocol: self.protocol,
            port: self.port,
            count,
            ..PacketQuery::default()
        }
    }
}

/// Which direction of deterministic NAT's arithmetic.
#[derive(Debug, Clone, Args)]
#[command(group(clap::ArgGroup::new("from").required(true).args(["inside", "outside"])))]
pub struct DeterministicArgs {
    /// NAT instance; all deterministic ones unless given.
    #[arg(long, value_name = "NAME")]
    instance: Option<String>,
    /// Inside address whose outside address and ports are asked for.
    #[arg(long, value_name = "ADDRESS", value_parser = IpAddr::parse)]
    inside: Option<IpAddr>,
    /// Outside address whose subscriber is asked for.
    #[arg(long, value_name = "ADDRESS", requires = "outside_port", value_parser = Ipv4Addr::parse)]
    outside: Option<Ipv4Addr>,
    /// Outside port whose subscriber is asked for.
    #[arg(long, value_name = "PORT", requires = "outside")]
    outside_port: Option<u16>,
}

impl DeterministicArgs {
    /// As the API takes it.
    pub fn query(self) -> DeterministicQuery {
        DeterministicQuery {
            instance: self.instance,
            inside: self.inside,
            outside: self.outside,
            outside_port: self.outside_port,
        }
    }
}

fn protocols() -> impl TypedValueParser<Value = Proto> {
    PossibleValuesParser::new(["tcp", "udp", "icmp", "other"]).try_map(|name| Proto::parse(&name))
}

fn tcp_states() -> impl TypedValueParser<Value = TcpState> {
    PossibleValuesParser::new((1..=7).map(|n| TcpState::from_u8(n).name()))
        .try_map(|name| TcpState::parse(&name))
}

/// Drop reasons by name.
pub(super) fn reasons() -> impl TypedValueParser<Value = Reason> {
    PossibleValuesParser::new(REASONS.iter().map(|row| row.name)).try_map(|name| Reason::parse(&name))
}

/// An IP protocol by name or number.
pub(super) fn ip_protocol(text: &str) -> Result<u8, String> {
    match text {
        "tcp" => Ok(6),
        "udp" => Ok(17),
        "icmp" => Ok(1),
        _ => text
            .parse()
            .map_err(|_| format!("`{text}` is no protocol; write tcp, udp, icmp or a number to 255")),
    }
}
