//! What the numbers in events mean under the configuration in force.

use carrack_base::Reason;
use carrack_config::Config;
use carrack_nat::policy::{Assignment, Limits};
use carrack_nat::row::Mark;
use carrack_pipeline::snapshot::Snapshot;

use crate::record::{Kind, Quota};

/// Names, limits and sizes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Context {
    /// Instances by index.
    pub instances: Vec<InstanceContext>,
    /// Pools: number and name.
    pub pools: Vec<(u16, String)>,
    /// Routing instances by index.
    pub vrfs: Vec<String>,
    /// Room for sessions, mappings, subscribers.
    pub room: [u32; 3],
}

/// One NAT instance.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InstanceContext {
    /// Name.
    pub name: String,
    /// Routing instance of the subscribers.
    pub inside_vrf: u16,
    /// First pool.
    pub pool: u16,
    /// Limits of a subscriber.
    pub limits: Limits,
    /// Most ports of a subscriber by its blocks; 0 without blocks.
    pub block_ports: u32,
    /// Threshold of pool use, percent.
    pub threshold_percent: u8,
    /// Threshold of ports in use.
    pub ports_threshold: u32,
}

impl Context {
    /// From what the workers forward by and the file it came from.
    #[must_use]
    pub fn of(config: &Config, snapshot: &Snapshot) -> Self {
        let policy = &snapshot.nat.instances;
        let instance = |i: &carrack_nat::policy::Instance| InstanceContext {
            name: i.name.clone(),
            inside_vrf: i.inside_vrf.index() as u16,
            pool: i.pools.first().map_or(0, |pool| pool.id.index() as u16),
            limits: i.limits,
            block_ports: match i.assignment {
                Assignment::Blocks { size, per_subscriber_max, .. } => {
                    u32::from(size) * u32::from(per_subscriber_max)
                }
                _ => 0,
            },
            threshold_percent: i.pool_threshold_percent,
            ports_threshold: i.pool_ports_threshold,
        };
        let pools = policy.iter().flat_map(|i| &i.pools);
        Self {
            instances: policy.iter().map(instance).collect(),
            pools: pools.map(|pool| (pool.id.index() as u16, pool.name.clone())).collect(),
            vrfs: snapshot.vrfs.clone(),
            room: [config.memory.sessions, config.memory.mappings, config.memory.subscribers],
        }
    }

    /// Name of an instance; empty when it is unknown.
    #[must_use]
    pub fn instance(&self, index: u16) -> &str {
        self.instances.get(usize::from(index)).map_or("", |instance| &instance.name)
    }

    /// Name of a pool; empty when it is unknown.
    #[must_use]
    pub fn pool(&self, id: u16) -> &str {
        self.pools.iter().find(|(known, _)| *known == id).map_or("", |(_, name)| name)
    }

    /// Routing instance of an instance's subscribers.
    #[must_use]
    pub fn inside_vrf(&self, index: u16) -> u16 {
        self.instances.get(usize::from(index)).map_or(0, |instance| instance.inside_vrf)
    }

    /// Do port blocks tell whose a port is?
    pub(crate) fn has_blocks(&self, index: u16) -> bool {
        self.instances.get(usize::from(index)).is_some_and(|instance| instance.block_ports > 0)
    }

    pub(crate) fn pool_of(&self, index: u16) -> u16 {
        self.instances.get(usize::from(index)).map_or(0, |instance| instance.pool)
    }

    /// The threshold crossed, percent: the lower one is 5 points below.
    pub(crate) fn threshold(&self, index: u16, above: bool) -> u32 {
        let high = self.instances.get(usize::from(index)).map_or(0, |i| u32::from(i.threshold_percent));
        if above { high } else { high.saturating_sub(5) }
    }

    /// Ports in use at which an event is raised.
    pub(crate) fn ports_threshold(&self, index: u16) -> u32 {
        self.instances.get(usize::from(index)).map_or(0, |instance| instance.ports_threshold)
    }

    /// Mappings of a subscriber at which an event is raised.
    pub(crate) fn mappings_threshold(&self, index: u16, mark: Mark) -> u32 {
        self.instances.get(usize::from(index)).map_or(0, |instance| match mark {
            Mark::PerUser => instance.limits.mappings_threshold,
            Mark::Paired => instance.limits.paired_mappings_threshold,
        })
    }

    /// What RFC 8158 calls a refusal for that reason, and the limit that was reached (§4.4).
    pub(crate) fn refusal(&self, index: u16, reason: Reason) -> (Kind, Quota, u32) {
        let instance = self.instances.get(usize::from(index));
        let limits = instance.map(|instance| instance.limits).unwrap_or_default();
        let [sessions, mappings, subscribers] = self.room;
        match reason {
            Reason::NatPoolExhausted => (Kind::AddressesExhausted, Quota::Other, 0),
            Reason::NatPortsExhausted => (Kind::PortsExhausted, Quota::Other, 0),
            Reason::NatBlockLimit => {
                (Kind::QuotaExceeded, Quota::PerUser, instance.map_or(0, |instance| instance.block_ports))
            }
            Reason::NatPortLimit => (Kind::QuotaExceeded, Quota::PerUser, limits.ports_max),
            Reason::NatSessionLimit => (Kind::QuotaExceeded, Quota::PerUser, limits.sessions_max),
            Reason::NatMappingSessionLimit => {
                (Kind::QuotaExceeded, Quota::PerUser, limits.sessions_per_mapping_max)
            }
            Reason::NatRateLimit => (Kind::QuotaExceeded, Quota::PerUser, limits.creations_per_s),
            Reason::NatSessionTableFull | Reason::NatIndexFull => {
                (Kind::QuotaExceeded, Quota::Sessions, sessions)
            }
            Reason::NatMappingTableFull => (Kind::QuotaExceeded, Quota::Mappings, mappings),
            Reason::NatSubscriberTableFull => (Kind::QuotaExceeded, Quota::Subscribers, subscribers),
            _ => (Kind::QuotaExceeded, Quota::Other, 0),
        }
    }
}
