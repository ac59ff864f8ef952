//! NAT instances.

use carrack_alg::Protocol;
use carrack_base::{InstanceId, Prefix4, Prefix6, VrfId};
use carrack_nat::nat64::{Nat64, Nat64Prefix, NatPrefix};
use carrack_nat::policy::{Assignment, BlockRules, Instance, Limits, Overflow, Pool, StaticRule, Timeouts};

use super::Build;
use crate::model::{Nat64Config, NatConfig, PortsConfig};
use crate::plan;

impl Build<'_> {
    /// All instances by id; holes serve nobody.
    pub(super) fn instances(&mut self) -> Vec<Instance> {
        let names = self.ids.instances.names();
        let mut instances: Vec<Instance> =
            names.iter().enumerate().map(|(id, name)| retired(InstanceId(id as u16), name)).collect();
        for nat in &self.config.nat {
            let built = self.build_instance(nat);
            let index = built.id.index();
            if let Some(slot) = instances.get_mut(index) {
                *slot = built;
            }
        }
        instances
    }

    fn build_instance(&self, nat: &NatConfig) -> Instance {
        let mut subscribers: Vec<Prefix4> = nat.subscribers.iter().map(|prefix| prefix.value).collect();
        subscribers.sort_unstable();
        let mut exempt: Vec<Prefix4> = nat.exempt.iter().map(|prefix| prefix.value).collect();
        exempt.sort_unstable();
        exempt.dedup();
        Instance {
            id: self.instance(&nat.name),
            name: nat.name.value.clone(),
            inside_vrf: self.vrf(&nat.inside_vrf),
            outside_vrf: self.vrf(&nat.outside_vrf),
            subscribers,
            exempt,
            pools: self.build_pools(nat),
            assignment: assignment(nat),
            pooling: nat.pooling,
            mapping: nat.mapping,
            filtering: nat.filtering,
            parity: nat.parity,
            contiguity: nat.contiguity,
            hairpinning: nat.hairpinning,
            inbound_refresh: nat.inbound_refresh,
            tcp_loose: nat.tcp_loose,
            port_hold_s: nat.port_hold_s.value,
            port_hold_ports_max: nat.port_hold_ports_max,
            limits: nat.limits,
            timeouts: nat.timeouts.clone(),
            exhausted_icmp: nat.exhausted_icmp,
            pool_threshold_percent: nat.pool_threshold_percent,
            pool_ports_threshold: nat.pool_ports_threshold,
            logged: nat.log,
            statics: statics(nat),
            nat64: nat.nat64.as_ref().map(|nat64| self.build_nat64(nat, nat64)),
            gateways: gateways(nat),
            unreadable: nat.unreadable,
        }
    }

    fn build_nat64(&self, nat: &NatConfig, nat64: &Nat64Config) -> Nat64 {
        let prefixes = nat64.prefixes.iter().filter_map(|prefix| {
            // From 1: 0 is "no prefix".
            let via = self.ids.prefixes.id(&prefix_name(nat, prefix.value)) + 1;
            // Validation refuses what is no prefix for this.
            Some(Nat64Prefix { via, prefix: NatPrefix::new(prefix.value).ok()? })
        });
        Nat64 {
            prefixes: prefixes.collect(),
            subscribers: nat64.subscribers.iter().map(|prefix| prefix.value).collect(),
            subscriber_len: nat64.subscriber_len,
            rules: nat64.rules,
        }
    }

    /// In block mode a pool ends with its last whole block, so that no port is counted that nobody can get.
    fn build_pools(&self, nat: &NatConfig) -> Vec<Pool> {
        let build = |pool: &crate::model::PoolConfig| {
            let ports = plan::usable_ports(&nat.ports, pool.ports.value);
            Pool {
                id: self.pool(&pool.name),
                name: pool.name.value.clone(),
                ranges: pool.addresses.iter().map(|range| range.value).collect(),
                port_first: ports.first,
                port_last: ports.last,
            }
        };
        nat.pools.iter().map(build).collect()
    }
}

/// In the order of the protocols, each once.
fn gateways(nat: &NatConfig) -> Vec<Protocol> {
    let mut gateways: Vec<_> = nat.gateways.iter().map(|gateway| gateway.value).collect();
    gateways.sort_unstable();
    gateways.dedup();
    gateways
}

/// A NAT64 prefix is known by its instance and itself.
fn prefix_name(nat: &NatConfig, prefix: Prefix6) -> String {
    format!("{} {prefix}", nat.name)
}

/// Names of all NAT64 prefixes of an instance.
pub(super) fn prefix_names(nat: &NatConfig) -> Vec<String> {
    let prefixes = nat.nat64.iter().flat_map(|nat64| &nat64.prefixes);
    prefixes.map(|prefix| prefix_name(nat, prefix.value)).collect()
}

fn assignment(nat: &NatConfig) -> Assignment {
    match &nat.ports {
        PortsConfig::Blocks { size, per_subscriber, idle_release_s } => Assignment::Blocks {
            size: size.value,
            per_subscriber_max: *per_subscriber,
            idle_release_s: *idle_release_s,
        },
        PortsConfig::Arbitrary => Assignment::Arbitrary,
        PortsConfig::Deterministic { ports_per_subscriber, overflow } => {
            let most = || plan::Deterministic::of(nat).map_or(0, |plan| plan.ports_most());
            Assignment::Deterministic {
                ports_per_subscriber: ports_per_subscriber.as_ref().map_or_else(most, |ports| ports.value),
                overflow: overflow.as_ref().map(|overflow| Overflow {
                    ports: overflow.ports.value,
                    blocks: BlockRules {
                        size: overflow.size.value,
                        per_subscriber_max: overflow.per_subscriber,
                        idle_release_s: overflow.idle_release_s,
                    },
                }),
            }
        }
    }
}

fn statics(nat: &NatConfig) -> Vec<StaticRule> {
    let one_to_one = nat
        .one_to_one
        .iter()
        .map(|rule| StaticRule::OneToOne { inside: rule.inside.value, outside: rule.outside.value });
    let forwards = nat.forwards.iter().map(|rule| StaticRule::Forward {
        proto: rule.proto,
        outside: rule.outside.address,
        outside_port: rule.outside.port,
        count: rule.count.value,
        inside: rule.inside.address.into(),
        inside_port: rule.inside.port,
    });
    one_to_one.chain(forwards).collect()
}

/// What stands at the id of an instance that is gone.
fn retired(id: InstanceId, name: &str) -> Instance {
    Instance {
        id,
        name: name.to_owned(),
        inside_vrf: VrfId(0),
        outside_vrf: VrfId(0),
        subscribers: Vec::new(),
        exempt: Vec::new(),
        pools: Vec::new(),
        assignment: Assignment::Arbitrary,
        pooling: Default::default(),
        mapping: Default::default(),
        filtering: Default::default(),
        parity: false,
        contiguity: false,
        hairpinning: false,
        inbound_refresh: [false; 3],
        tcp_loose: false,
        port_hold_s: 0,
        port_hold_ports_max: 0,
        limits: Limits::default(),
        timeouts: Timeouts::default(),
        exhausted_icmp: Default::default(),
        pool_threshold_percent: 0,
        pool_ports_threshold: 0,
        logged: Default::default(),
        statics: Vec::new(),
        nat64: None,
        gateways: vec![],
        unreadable: Default::default(),
    }
}
