//! Tables that only some policies need: which, and what they take. What is built and what a budget counts follow from the same
//! answer.

use crate::mediate::GatewayTables;
use crate::pins::Pins;
use crate::policy::{Capacity, Filtering, NatPolicy};
use crate::syn::SynTable;
use crate::tables::{Hosts, Permissions};

/// Which of them a policy needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Needs {
    pub(crate) permissions: bool,
    pub(crate) hosts: bool,
    pub(crate) port_control: bool,
    pub(crate) gateways: bool,
}

impl Needs {
    pub(crate) fn of(policy: &NatPolicy) -> Self {
        let all = &policy.instances;
        Self {
            permissions: all.iter().any(|i| i.filtering.contains(&Filtering::AddressDependent)),
            hosts: all.iter().any(|i| i.nat64.is_some()),
            port_control: policy.port_control,
            gateways: all.iter().any(|i| !i.gateways.is_empty()),
        }
    }

    /// Those that the policy before had no need of.
    pub(crate) const fn beyond(self, before: Self) -> Self {
        Self {
            permissions: self.permissions && !before.permissions,
            hosts: self.hosts && !before.hosts,
            port_control: self.port_control && !before.port_control,
            gateways: self.gateways && !before.gateways,
        }
    }
}

/// Bytes that the tables of one worker take besides those of [`Nat::bytes_for`](crate::Nat::bytes_for) and its ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extras {
    /// Who was sent to, for filtering by address.
    pub permissions: usize,
    /// IPv6 hosts of NAT64.
    pub hosts: usize,
    /// What hosts ask for by PCP and NAT-PMP.
    pub port_control: usize,
    /// Connections that gateways read and expect.
    pub gateways: usize,
    /// SYNs from outside that wait.
    pub held_syns: usize,
}

impl Extras {
    /// Of tables of this capacity under this policy.
    #[must_use]
    pub fn of(capacity: Capacity, policy: &NatPolicy) -> Self {
        let needs = Needs::of(policy);
        let taken = |needed: bool, bytes: usize| if needed { bytes } else { 0 };
        Self {
            permissions: taken(needs.permissions, Permissions::bytes_for(capacity)),
            hosts: taken(needs.hosts, Hosts::bytes_for(capacity)),
            port_control: taken(needs.port_control, Pins::bytes_for(capacity.mappings)),
            gateways: taken(needs.gateways, GatewayTables::bytes_for(capacity.controls)),
            held_syns: SynTable::bytes_for(capacity.held_syns),
        }
    }
}
