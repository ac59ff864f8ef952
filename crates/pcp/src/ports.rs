//! From the engine's answers and the protocol's options to each other.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use carrack_base::Reason;
use carrack_nat::nat64::NatPrefix;
use carrack_nat::row::Endpoint;
use carrack_nat::{PortFilter, PortFilters, PortRefusal};

use crate::message::{Code, FilterOption};

/// RFC 6887 §7.4: what a refusal of the engine is called.
pub(crate) fn code_of(refusal: PortRefusal) -> Code {
    match refusal {
        PortRefusal::NotServed | PortRefusal::NotHis => Code::NotAuthorized,
        PortRefusal::NotThatOne => Code::CannotProvideExternal,
        PortRefusal::NoSuchPeer => Code::MalformedRequest,
        PortRefusal::Short(
            Reason::NatPortLimit
            | Reason::NatRateLimit
            | Reason::NatBlockLimit
            | Reason::NatSessionLimit
            | Reason::NatMappingSessionLimit,
        ) => Code::UserExQuota,
        PortRefusal::Short(Reason::NatPoolChanging) => Code::NetworkFailure,
        PortRefusal::Short(_) => Code::NoResources,
    }
}

/// The outside endpoint that a client suggests; an address that is no IPv4 one suggests none.
pub(crate) fn suggestion(outside: IpAddr, port: u16) -> Endpoint {
    let ip = match outside {
        IpAddr::V4(ip) => ip.into(),
        IpAddr::V6(_) => 0,
    };
    Endpoint { ip, port }
}

/// RFC 6887 §13.3: filters are added to those there are, unless one of no length clears them.
pub(crate) fn filters(
    before: PortFilters,
    options: &[FilterOption],
    prefixes: &[NatPrefix],
) -> Result<PortFilters, Code> {
    let mut filters = before;
    for option in options {
        if option.len == 0 {
            filters = PortFilters::default();
            continue;
        }
        let (ip, len) = match option.peer {
            IpAddr::V4(ip) => (ip.into(), option.len - 96),
            // A peer as an IPv6 host sees it.
            IpAddr::V6(ip) => {
                let of = |prefix: &&NatPrefix| prefix.prefix().len() == 96 && prefix.contains(ip.into());
                prefixes.iter().find(of).ok_or(Code::MalformedOption)?;
                (u128::from(ip) as u32, option.len.checked_sub(96).ok_or(Code::MalformedOption)?)
            }
        };
        if !filters.add(PortFilter { ip, len, port: option.port }) {
            return Err(Code::ExcessiveRemotePeers);
        }
    }
    Ok(filters)
}

/// The options that would ask a host for these filters: peers as the host sees them.
pub(crate) fn filter_options(
    filters: &PortFilters,
    host: IpAddr,
    prefixes: &[NatPrefix],
) -> Vec<FilterOption> {
    let prefix = prefixes.iter().find(|prefix| prefix.prefix().len() == 96);
    let peer = |ip: u32| match (host, prefix) {
        (IpAddr::V6(_), Some(prefix)) => Ipv6Addr::from(prefix.embed(ip)).into(),
        _ => IpAddr::from(Ipv4Addr::from(ip)),
    };
    let option = |f: &PortFilter| FilterOption { len: f.len + 96, port: f.port, peer: peer(f.ip) };
    filters.as_slice().iter().map(option).collect()
}
