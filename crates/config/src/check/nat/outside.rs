//! Every outside address has one owner: a pool, a one-to-one mapping, an own address of the router, or a remote host.

use std::collections::BTreeMap;

use carrack_base::Range4;
use carrack_nat::policy::ADDRESSES_MAX;

use crate::check::network::ip;
use crate::compile::POOLS_MAX;
use crate::model::{Config, NatConfig, PoolConfig};
use crate::read::Notes;
use crate::source::{At, Span};
use crate::value;

pub(super) fn check(notes: &Notes, config: &Config) {
    pools(notes, config);
    overlaps(notes, config);
    own_addresses(notes, config);
}

fn all_pools(config: &Config) -> impl Iterator<Item = (&NatConfig, &PoolConfig)> {
    config.nat.iter().flat_map(|nat| nat.pools.iter().map(move |pool| (nat, pool)))
}

fn pools(notes: &Notes, config: &Config) {
    let mut seen: BTreeMap<&str, &NatConfig> = BTreeMap::new();
    for (nat, pool) in all_pools(config) {
        if let Some(other) = seen.insert(&pool.name, nat).filter(|other| !std::ptr::eq(*other, nat)) {
            let message = format!(
                "a second pool `{}`, after the one of `{}`; names of pools are unique in the file",
                pool.name, other.name
            );
            notes.error(pool.name.span, message);
        }
        for range in &pool.addresses {
            let unicast = value::is_host_address(range.first) && value::is_host_address(range.last);
            if !unicast {
                notes.error(
                    range.span,
                    format!("{range} holds addresses that no host may have; list unicast addresses"),
                );
            }
        }
    }
    for nat in &config.nat {
        let mut count = 0;
        let beyond = nat.pools.iter().find(|pool| {
            count += pool.addresses.iter().map(|range| range.count()).sum::<u64>();
            count > u64::from(ADDRESSES_MAX)
        });
        if let Some(pool) = beyond {
            let message = format!(
                "`{}` has {count} addresses with this pool; an instance has at most {ADDRESSES_MAX}: spread \
                 its subscribers and addresses over several",
                nat.name
            );
            notes.error(pool.name.span, message);
        }
    }
    if let Some((_, pool)) = all_pools(config).nth(POOLS_MAX) {
        notes.error(pool.name.span, format!("too many pools; at most {POOLS_MAX}"));
    }
}

/// An outside range and what it is for.
pub(in crate::check) struct Owned<'a> {
    /// Its routing instance.
    pub(in crate::check) vrf: &'a str,
    /// The addresses.
    pub(in crate::check) range: Range4,
    /// Where they are written.
    pub(in crate::check) span: Span,
    /// The pool or the mapping.
    pub(in crate::check) what: String,
}

/// Everything that NAT translates to.
pub(in crate::check) fn owned(config: &Config) -> Vec<Owned<'_>> {
    let mut owned = Vec::new();
    for nat in &config.nat {
        let mut push = |range: &At<Range4>, what: String| {
            owned.push(Owned { vrf: &nat.outside_vrf.value, range: range.value, span: range.span, what });
        };
        for pool in &nat.pools {
            pool.addresses.iter().for_each(|range| push(range, format!("pool `{}`", pool.name)));
        }
        for rule in &nat.one_to_one {
            push(&rule.outside, format!("a one-to-one mapping of `{}`", nat.name));
        }
    }
    owned
}

fn overlaps(notes: &Notes, config: &Config) {
    let mut all = owned(config);
    all.sort_by_key(|owned| (owned.vrf, owned.range));
    let mut open: Option<&Owned<'_>> = None;
    for this in &all {
        if let Some(other) = open
            && other.vrf == this.vrf
            && other.range.overlaps(this.range)
        {
            let (at, of) = if this.span.start > other.span.start { (this, other) } else { (other, this) };
            let message = format!(
                "{} of {} overlaps {} of {}; an outside address belongs to one of them only",
                at.range, at.what, of.range, of.what
            );
            notes.error(at.span, message);
        }
        if open.is_none_or(|other| other.vrf != this.vrf || this.range.last >= other.range.last) {
            open = Some(this);
        }
    }
}

/// The router's own addresses cannot be given to subscribers.
fn own_addresses(notes: &Notes, config: &Config) {
    let mut own: Vec<(&str, u32, &str)> = config
        .interfaces
        .iter()
        .flat_map(|interface| {
            let of = move |own: &At<value::InterfaceAddress>| {
                (interface.vrf.value.as_str(), own.address, interface.name.value.as_str())
            };
            interface.addresses.iter().map(of)
        })
        .collect();
    own.sort_unstable();
    for owned in owned(config) {
        let from = own.partition_point(|(vrf, address, _)| (*vrf, *address) < (owned.vrf, owned.range.first));
        let Some((vrf, address, interface)) = own.get(from) else { continue };
        if *vrf == owned.vrf && owned.range.contains(*address) {
            let message = format!(
                "{} of {} holds {}, the router's own address on `{interface}`; leave that one out",
                owned.range,
                owned.what,
                ip(*address)
            );
            notes.error(owned.span, message);
        }
    }
}
