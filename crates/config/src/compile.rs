//! From desired state to what the workers and the host forward by.

mod nat;
mod network;
mod port_control;
mod siit;
mod slots;

use std::sync::Arc;

use carrack_base::{
    INSTANCES_MAX, INTERFACES_MAX, IfIndex, InstanceId, PORTS_MAX, PoolId, PortId, VRFS_MAX, VrfId,
};
use carrack_host::HostConfig;
use carrack_io::DeviceSpec;
use carrack_nat::policy::{Capacity, NatPolicy};
use carrack_pipeline::snapshot::{Snapshot, WorkerSizes};
use carrack_wire::MacAddr;

use crate::model::{Config, DEFAULT_VRF};
use crate::source::{ConfigError, Severity, Span};
pub(crate) use network::{ENCAPSULATION_BYTES, gateway_interface};
use slots::Slots;

/// Most pools over all instances.
pub(crate) const POOLS_MAX: usize = 4_096;
/// Most NAT64 prefixes.
const PREFIXES_MAX: usize = 1_024;

/// What a driver says about a port once it is open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortFacts {
    /// Name of the interface that declares the port.
    pub name: String,
    /// Its MAC address.
    pub mac: MacAddr,
    /// Largest IPv4 packet it takes, bytes.
    pub mtu: u16,
}

impl PortFacts {
    /// Stand-ins for ports that are not open, for checking a config: no MAC address, and whatever MTU is asked for.
    #[must_use]
    pub fn assumed(config: &Config) -> Vec<Self> {
        let facts = |name: &str, mtu| Self { name: name.to_owned(), mac: MacAddr::ZERO, mtu };
        config
            .devices()
            .map(|(port, _)| facts(&port.name, port.mtu.as_ref().map_or(1_500, |mtu| mtu.value)))
            .collect()
    }
}

/// A port to open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortDevice {
    /// Its index in [`Snapshot::ports`].
    pub id: PortId,
    /// Name of the interface that declares it.
    pub name: String,
    /// Its device.
    pub device: DeviceSpec,
}

/// A config compiled.
///
/// Ids of ports, interfaces, routing instances, NAT instances and pools stay with their names from one compilation to
/// the next. What is removed leaves a hole: `None` for an interface; a routing instance without interfaces and routes;
/// a NAT instance without subscribers, pools and static mappings, which serves nobody. A hole is given to another
/// name only when the ids run out, and never in the compilation that makes it.
#[derive(Debug, Clone)]
pub struct Compiled {
    /// What the workers forward by.
    pub snapshot: Snapshot,
    /// What the host works by: interfaces that are up, and the outside addresses to answer ARP for.
    pub host: HostConfig,
    /// What the server of port control works by.
    pub port_control: carrack_pcp::Config,
    /// The ports, by [`PortId`].
    pub devices: Vec<PortDevice>,
    /// Table sizes of one worker: the daemon's divided by the number of workers, rounded up.
    pub sizes: WorkerSizes,
    ids: Ids,
}

#[derive(Debug, Clone, Default)]
struct Ids {
    ports: Slots,
    interfaces: Slots,
    vrfs: Slots,
    instances: Slots,
    pools: Slots,
    /// NAT64 prefixes.
    prefixes: Slots,
}

/// Compiles a config. `ports` says what the drivers know of each port; `previous` is what is in force, if anything.
///
/// # Errors
/// What only the ports can tell: an MTU that a port does not take, a port that is missing. And ids that have run out.
pub fn compile(
    config: &Config,
    ports: &[PortFacts],
    previous: Option<&Compiled>,
) -> Result<Compiled, Vec<ConfigError>> {
    let mut build = Build::new(config, ports, previous);
    let ports = build.ports();
    let interfaces = build.interfaces();
    let (mut routes, mut routes6) = (build.routes(), build.routes6());
    let instances = build.instances();
    if !build.errors.is_empty() {
        return Err(build.errors);
    }
    let vrfs = build.ids.vrfs.names().to_vec();
    let host = build.host(&interfaces, &instances);
    let port_control = build.port_control(&interfaces, &instances);
    let siit = build.translators(&mut routes, &mut routes6);
    let snapshot = Snapshot {
        generation: previous.map_or(1, |previous| previous.snapshot.generation + 1),
        ports,
        interfaces,
        vrfs,
        routes,
        routes6,
        policers: config.policers,
        fragment_timeout_ms: config.fragment_timeout_ms,
        siit,
        nat: Arc::new(NatPolicy { instances, port_control: !port_control.served.is_empty() }),
    };
    Ok(Compiled {
        snapshot,
        host,
        port_control,
        devices: build.devices(),
        sizes: sizes(config),
        ids: build.ids,
    })
}

fn sizes(config: &Config) -> WorkerSizes {
    let memory = &config.memory;
    let share = |total: u32| total.div_ceil(u32::from(config.workers.count).max(1));
    WorkerSizes {
        nat: Capacity {
            sessions: share(memory.sessions),
            mappings: share(memory.mappings),
            subscribers: share(memory.subscribers),
            hosts: share(memory.hosts.unwrap_or(memory.subscribers)),
            fragments: share(memory.fragments),
            held_fragments: share(memory.held_fragments),
            held_syns: share(memory.held_syns),
            controls: share(memory.gateway_connections),
        },
        neighbours: memory.neighbours,
        held_for_neighbour: memory.held_for_neighbour,
    }
}

/// A compilation under way.
struct Build<'a> {
    config: &'a Config,
    facts: &'a [PortFacts],
    ids: Ids,
    errors: Vec<ConfigError>,
}

impl<'a> Build<'a> {
    fn new(config: &'a Config, facts: &'a [PortFacts], previous: Option<&Compiled>) -> Self {
        let old = previous.map(|previous| previous.ids.clone()).unwrap_or_default();
        let mut errors = Vec::new();
        let mut assign = |old: &Slots, what: &str, most: usize, names: Vec<&str>| {
            old.next(&names, most).unwrap_or_else(|| {
                let message =
                    format!("too many new {what} in one change (at most {most} ids); restart instead");
                errors.push(ConfigError::whole(config.file(), message));
                Slots::default()
            })
        };
        let vrfs = std::iter::once(DEFAULT_VRF).chain(config.vrfs.iter().map(|vrf| vrf.value.as_str()));
        let interfaces = config.interfaces.iter().map(|interface| interface.name.value.as_str());
        let ports = config.devices().map(|(interface, _)| interface.name.value.as_str());
        let pools = config.nat.iter().flat_map(|nat| &nat.pools).map(|pool| pool.name.value.as_str());
        let instances = config.nat.iter().map(|nat| nat.name.value.as_str());
        let prefixes: Vec<String> = config.nat.iter().flat_map(nat::prefix_names).collect();
        let prefixes = prefixes.iter().map(String::as_str);
        let ids = Ids {
            ports: assign(&old.ports, "ports", PORTS_MAX, ports.collect()),
            interfaces: assign(&old.interfaces, "interfaces", INTERFACES_MAX, interfaces.collect()),
            vrfs: assign(&old.vrfs, "routing instances", VRFS_MAX, vrfs.collect()),
            instances: assign(&old.instances, "NAT instances", INSTANCES_MAX, instances.collect()),
            pools: assign(&old.pools, "pools", POOLS_MAX, pools.collect()),
            prefixes: assign(&old.prefixes, "NAT64 prefixes", PREFIXES_MAX, prefixes.collect()),
        };
        Self { config, facts, ids, errors }
    }

    fn error(&mut self, span: Span, message: String) {
        self.errors.push(self.config.source.at(Severity::Error, span, message));
    }

    fn port(&self, name: &str) -> PortId {
        PortId(self.ids.ports.id(name))
    }

    fn interface(&self, name: &str) -> IfIndex {
        IfIndex(self.ids.interfaces.id(name))
    }

    fn vrf(&self, name: &str) -> VrfId {
        VrfId(self.ids.vrfs.id(name))
    }

    fn instance(&self, name: &str) -> InstanceId {
        InstanceId(self.ids.instances.id(name))
    }

    fn pool(&self, name: &str) -> PoolId {
        PoolId(self.ids.pools.id(name))
    }
}
