//! Interfaces, neighbours and routes by filter. The backend answers with all there are; what is asked for is picked here.

use core::net::IpAddr;

use carrack_base::{Prefix, Prefix4, Prefix6};

use crate::backend::{Backend, Rows, Step};
use crate::failure::Failure;
use crate::filter::NetworkQuery;
use crate::params::nearest;
use crate::types::{Interface, Neighbour, Route};

/// Interfaces that the filter asks for.
pub(super) fn interfaces(backend: &dyn Backend, query: &NetworkQuery) -> Result<Vec<Interface>, Failure> {
    let all = known(backend, query)?;
    let near = |i: &Interface| {
        query.address.is_none_or(|wanted| {
            i.addresses.iter().any(|own| subnet(own).is_some_and(|p| p.overlaps(wanted)))
        })
    };
    let picked =
        all.into_iter().filter(|i| is(&query.interface, &i.name) && is(&query.vrf, &i.vrf) && near(i));
    Ok(picked.take(most(query)).collect())
}

/// Neighbours that the filter asks for.
pub(super) fn neighbours(backend: &dyn Backend, query: &NetworkQuery) -> Result<Vec<Neighbour>, Failure> {
    let interfaces = known(backend, query)?;
    let in_vrf = |n: &Neighbour| {
        query.vrf.is_none() || interfaces.iter().any(|i| i.name == n.interface && is(&query.vrf, &i.vrf))
    };
    let fits = |n: &Neighbour| {
        is(&query.interface, &n.interface)
            && query.address.is_none_or(|wanted| wanted.contains(n.address))
            && in_vrf(n)
    };
    Ok(backend.neighbours()?.into_iter().filter(fits).take(most(query)).collect())
}

/// Routes that the filter asks for, as they come.
pub(super) fn routes(backend: &dyn Backend, query: NetworkQuery) -> Result<Rows<Route>, Failure> {
    known(backend, &query)?;
    let mut left = most(&query);
    let rows = backend.routes()?.filter(move |step| match step {
        Ok(Step::Row(route)) => fits_route(&query, route),
        _ => true,
    });
    Ok(Box::new(rows.take_while(move |step| {
        let counts = matches!(step, Ok(Step::Row(_)));
        let goes_on = !counts || left > 0;
        left -= usize::from(counts && left > 0);
        goes_on
    })))
}

fn fits_route(query: &NetworkQuery, route: &Route) -> bool {
    is(&query.vrf, &route.vrf)
        && query.interface.as_deref().is_none_or(|wanted| route.interface.as_deref() == Some(wanted))
        && query.address.is_none_or(|wanted| route.prefix.parse::<Prefix>().is_ok_and(|p| p.overlaps(wanted)))
}

/// All interfaces, when the names that the filter gives are known.
fn known(backend: &dyn Backend, query: &NetworkQuery) -> Result<Vec<Interface>, Failure> {
    let all = backend.interfaces()?;
    let check = |what: &str, wanted: &Option<String>, name: fn(&Interface) -> &str| match wanted {
        Some(wanted) if !all.iter().any(|i| name(i) == wanted) => {
            let failure = Failure::not_found(format!("no {what} `{wanted}`"));
            Err(match nearest(wanted, all.iter().map(name)) {
                Some(near) => failure.hint(format!("did you mean `{near}`?")),
                None => failure.hint("`carrack show interfaces` lists them"),
            })
        }
        _ => Ok(()),
    };
    check("interface", &query.interface, |i| &i.name)?;
    check("interface in a routing instance", &query.vrf, |i| &i.vrf)?;
    Ok(all)
}

fn is(wanted: &Option<String>, name: &str) -> bool {
    wanted.as_deref().is_none_or(|wanted| wanted == name)
}

fn most(query: &NetworkQuery) -> usize {
    query.limit.filter(|n| *n > 0).map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX))
}

/// The subnet of an own address, written as address and prefix length.
fn subnet(own: &str) -> Option<Prefix> {
    let (address, len) = own.split_once('/')?;
    let len: u8 = len.parse().ok()?;
    match address.parse().ok()? {
        IpAddr::V4(address) if len <= 32 => Some(Prefix::V4(Prefix4::of(address.into(), len))),
        IpAddr::V6(address) if len <= 128 => Some(Prefix::V6(Prefix6::of(address.into(), len))),
        _ => None,
    }
}
