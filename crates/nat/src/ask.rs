//! Small questions of the stages around the engine.

use carrack_base::VrfId;

use crate::directory::is_exempt;
use crate::engine::Nat;
use crate::policy::ExhaustedIcmp;

impl Nat {
    /// May an untranslated packet from outside reach this inside address? Yes where no instance guards it, and from
    /// remotes that the instance exempts (RFC 6888 REQ-6).
    #[must_use]
    pub fn may_pass_untranslated(&self, vrf: VrfId, inside: u32, remote: u32) -> bool {
        let guard = self.directory.instance_of_inside(vrf, inside).and_then(|id| self.instance(id));
        guard.is_none_or(|instance| is_exempt(instance, remote))
    }

    /// What this sender is told when a mapping cannot be made; nothing when it is no subscriber.
    #[must_use]
    pub fn exhausted_icmp(&self, vrf: VrfId, inside: u32) -> ExhaustedIcmp {
        let instance = self.directory.instance_of_inside(vrf, inside).and_then(|id| self.instance(id));
        instance.map_or(ExhaustedIcmp::Silent, |instance| instance.exhausted_icmp)
    }

    /// The same for an IPv6 host behind a NAT64 prefix.
    #[must_use]
    pub fn exhausted_icmp_six(&self, via: u16) -> ExhaustedIcmp {
        let instance = self.directory.instance_of_prefix(via).and_then(|id| self.instance(id));
        instance.map_or(ExhaustedIcmp::Silent, |instance| instance.exhausted_icmp)
    }

    /// The routing instance in which what an IPv6 host sends to a NAT64 prefix goes on.
    #[must_use]
    pub fn outside_vrf_six(&self, via: u16) -> Option<VrfId> {
        let instance = self.directory.instance_of_prefix(via).and_then(|id| self.instance(id));
        instance.map(|instance| instance.outside_vrf)
    }

    /// The outside port of the session in a line; `None` when there is none.
    #[must_use]
    pub fn outside_port_of(&self, line: u32) -> Option<u16> {
        self.tables.sessions.is_live(line).then(|| self.tables.sessions.get(line).map(|s| s.outside_port))?
    }
}
