//! Port control: for whom, from where, what.

use carrack_nat::policy::Instance;
use carrack_pcp::Served;
use carrack_pipeline::snapshot::{Interface, Side};

use super::Build;

impl Build<'_> {
    /// What the server works by.
    pub(super) fn port_control(
        &self,
        interfaces: &[Option<Interface>],
        instances: &[Instance],
    ) -> carrack_pcp::Config {
        let inside = |interface: &&Interface| interface.up && interface.side == Side::Inside;
        let served = self.config.nat.iter().filter_map(|nat| {
            let written = nat.port_control.as_ref()?;
            let instance = instances.get(self.instance(&nat.name).index())?;
            let nat64 = instance.nat64.as_ref();
            Some(Served {
                id: instance.id,
                vrf: instance.inside_vrf,
                subscribers: instance.subscribers.clone(),
                subscribers6: nat64.map(|nat64| nat64.subscribers.clone()).unwrap_or_default(),
                subscriber_len: nat64.map_or(128, |nat64| nat64.subscriber_len),
                prefixes: nat64.iter().flat_map(|n| n.prefixes.iter().map(|entry| entry.prefix)).collect(),
                nat_pmp: written.nat_pmp,
                third_party_from: written.third_party_from.clone(),
                allowed: written.allowed.clone(),
                rules: written.rules.clone(),
            })
        });
        carrack_pcp::Config {
            served: served.collect(),
            interfaces: interfaces.iter().flatten().filter(inside).cloned().collect(),
            vrfs: self.ids.vrfs.names().to_vec(),
            mappings_max: self.config.port_control.mappings_max,
        }
    }
}
