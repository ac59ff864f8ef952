//! Whose address is it? Built once per configuration from the policy; every worker's is the same, which is why any
//! worker can tell the owner of any packet.

use std::sync::Arc;

use carrack_base::{InstanceId, Proto, VrfId, WorkerId};
use carrack_tables::KeyedHasher;

use crate::deterministic::Deterministic;
use crate::flow::{Flow, Inside, subscriber_hash};
use crate::nat64::{Behind, LaneBehind, Nat64, NatPrefix};
use crate::ownership::{BlockMap, WorkerGroup};
use crate::policy::{Assignment, Instance, Mapping, NatPolicy, StaticRule};
use crate::rules::Rules;
use crate::slices::Slices;
use crate::spis::Spis;
use crate::steering::Steering;

/// Tells the hash for steering from those for tables.
const STEERING: u64 = 0x7374_6565 << 32;

/// What an outside address is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outside {
    /// A pool address: who has its ports is in the directory under this number.
    Pool {
        /// Instance.
        instance: InstanceId,
        /// Which of the directory's pools.
        pool: u32,
    },
    /// Ports by RFC 7422.
    Deterministic {
        /// Instance.
        instance: InstanceId,
    },
    /// One to one: inside address = outside address + `inside_minus_outside`, wrapping.
    OneToOne {
        /// Instance.
        instance: InstanceId,
        /// Wrapping difference.
        inside_minus_outside: u32,
    },
    /// Forward rules only.
    Forward {
        /// Instance.
        instance: InstanceId,
    },
}

impl Outside {
    /// The instance it belongs to.
    #[must_use]
    pub const fn instance(self) -> InstanceId {
        match self {
            Self::Pool { instance, .. }
            | Self::Deterministic { instance }
            | Self::OneToOne { instance, .. }
            | Self::Forward { instance } => instance,
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Entry<T> {
    vrf: u16,
    first: u32,
    last: u32,
    what: T,
}

/// A forward rule's ports, for steering: who is behind (address, protocol, port).
#[derive(Debug, Clone, Copy)]
struct ForwardPorts {
    vrf: u16,
    outside: u32,
    proto: u8,
    first: u16,
    last: u16,
    /// The subscriber, not the host.
    inside: Inside,
    inside_vrf: u16,
}

/// Who has the ports of a pool.
#[derive(Debug)]
enum PoolPorts {
    /// Each worker a fixed part of the range.
    Slices(Slices),
    /// Blocks, which move between workers.
    Blocks(Arc<BlockMap>),
}

/// Addresses to instances, both sides.
#[derive(Debug)]
pub struct Directory {
    inside: Vec<Entry<InstanceId>>,
    outside: Vec<Entry<Outside>>,
    forwards: Vec<ForwardPorts>,
    /// By instance.
    rules: Vec<Rules>,
    /// Inside addresses that static rules lead to, subscribers or not, as (routing instance, first, last); sorted, none
    /// within another.
    led_to: Vec<Entry<()>>,
    /// IPv6 hosts that forward rules lead to, by instance; sorted.
    led_to_six: Vec<(InstanceId, u128)>,
    pools: Vec<PoolPorts>,
    deterministic: Vec<Option<Deterministic>>,
    /// Blocks of deterministic instances, by instance.
    overflow: Vec<Option<Arc<BlockMap>>>,
    inside_vrf: Vec<VrfId>,
    /// By instance and protocol (TCP, UDP): see [`Directory::opens_common`].
    opens_common: Vec<[bool; 2]>,
    /// NAT64 prefixes of all instances, the longest first.
    prefixes: Vec<PrefixEntry>,
    /// The same by number.
    by_via: Vec<Option<Behind>>,
    /// The same of those that the express lane translates to IPv6 behind.
    lane_by_via: Vec<Option<LaneBehind>>,
    /// By instance.
    nat64: Vec<Option<Nat64>>,
    hasher: KeyedHasher,
    steering: Steering,
    workers: u8,
    pub(crate) spis: Arc<Spis>,
}

#[derive(Debug, Clone, Copy)]
struct PrefixEntry {
    vrf: VrfId,
    via: u16,
    prefix: NatPrefix,
    instance: InstanceId,
    /// The express lane may take packets to it: no other instance has it, and their type of service is a copy.
    lane: bool,
}

/// Where an IPv6 packet to a NAT64 prefix goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Embedded {
    /// Number of the prefix.
    pub via: u16,
    /// The prefix.
    pub prefix: NatPrefix,
    /// The IPv4 address.
    pub address: u32,
    /// Instance that has the prefix.
    pub instance: InstanceId,
    /// Does it serve the source, or lead to it by a forward rule?
    pub served: bool,
}

fn find<T: Copy>(entries: &[Entry<T>], vrf: VrfId, ip: u32) -> Option<T> {
    let at = entries.partition_point(|e| (e.vrf, e.first) <= (vrf.0, ip)).checked_sub(1)?;
    let entry = entries.get(at)?;
    (entry.vrf == vrf.0 && ip <= entry.last).then_some(entry.what)
}

impl Directory {
    /// Builds it.
    #[must_use]
    pub fn new(policy: &NatPolicy, group: &WorkerGroup) -> Self {
        let mut this = Self {
            inside: Vec::new(),
            outside: Vec::new(),
            forwards: Vec::new(),
            rules: policy.instances.iter().map(Rules::of).collect(),
            led_to: Vec::new(),
            led_to_six: Vec::new(),
            pools: Vec::new(),
            deterministic: policy.instances.iter().map(Deterministic::of).collect(),
            overflow: policy.instances.iter().map(|instance| overflow_of(instance, group)).collect(),
            inside_vrf: policy.instances.iter().map(|i| i.inside_vrf).collect(),
            opens_common: policy.instances.iter().map(opens_common).collect(),
            prefixes: Vec::new(),
            by_via: Vec::new(),
            lane_by_via: Vec::new(),
            nat64: policy.instances.iter().map(|i| i.nat64.clone()).collect(),
            hasher: KeyedHasher::new(group.seed()),
            steering: group.steering().clone(),
            workers: group.workers(),
            spis: Arc::clone(&group.spis),
        };
        for instance in &policy.instances {
            this.add_instance(instance, group);
        }
        this.add_forward_only(policy);
        this.inside.sort_by_key(|e| (e.vrf, e.first));
        this.outside.sort_by_key(|e| (e.vrf, e.first));
        this.forwards.sort_by_key(|f| (f.vrf, f.outside, f.proto, f.first));
        this.led_to = led_to(policy);
        this.led_to_six = led_to_six(policy);
        this.prefixes = prefixes_of(policy);
        this.by_via = this.behind_by_number();
        this.lane_by_via =
            this.by_via.iter().map(|behind| behind.as_ref().and_then(Behind::of_lane)).collect();
        this
    }

    fn behind_by_number(&self) -> Vec<Option<Behind>> {
        let numbers = self.prefixes.iter().map(|entry| usize::from(entry.via) + 1).max().unwrap_or(0);
        let mut all = vec![None; numbers];
        for entry in &self.prefixes {
            if let Some(place) = all.get_mut(usize::from(entry.via)) {
                let rules = self.nat64_of(entry.instance).map(|nat64| nat64.rules).unwrap_or_default();
                *place = Some(Behind { prefix: entry.prefix, rules });
            }
        }
        all
    }

    fn add_instance(&mut self, instance: &Instance, group: &WorkerGroup) {
        for prefix in &instance.subscribers {
            let (first, last) = (prefix.address(), prefix.last());
            self.inside.push(Entry { vrf: instance.inside_vrf.0, first, last, what: instance.id });
        }
        for pool in &instance.pools {
            let what = if matches!(instance.assignment, Assignment::Deterministic { .. }) {
                Outside::Deterministic { instance: instance.id }
            } else {
                self.pools.push(match instance.assignment {
                    Assignment::Blocks { .. } => PoolPorts::Blocks(group.block_map(instance)),
                    _ => PoolPorts::Slices(Slices::of(pool, instance.assignment, self.workers)),
                });
                Outside::Pool { instance: instance.id, pool: self.pools.len() as u32 - 1 }
            };
            for range in &pool.ranges {
                let entry = Entry { vrf: instance.outside_vrf.0, first: range.first, last: range.last, what };
                self.outside.push(entry);
            }
        }
        for rule in &instance.statics {
            match *rule {
                StaticRule::OneToOne { inside, outside } => self.outside.push(Entry {
                    vrf: instance.outside_vrf.0,
                    first: outside.first,
                    last: outside.last,
                    what: Outside::OneToOne {
                        instance: instance.id,
                        inside_minus_outside: inside.first.wrapping_sub(outside.first),
                    },
                }),
                StaticRule::Forward { proto, outside, outside_port, count, inside, .. } => {
                    self.forwards.push(ForwardPorts {
                        vrf: instance.outside_vrf.0,
                        outside,
                        proto: proto as u8,
                        first: outside_port,
                        last: outside_port.saturating_add(count.saturating_sub(1)),
                        inside: this_subscriber(instance, inside),
                        inside_vrf: instance.inside_vrf.0,
                    });
                }
            }
        }
    }

    /// Forward rules on addresses that are in no pool.
    fn add_forward_only(&mut self, policy: &NatPolicy) {
        self.outside.sort_by_key(|e| (e.vrf, e.first));
        let mut extra: Vec<Entry<Outside>> = Vec::new();
        for instance in &policy.instances {
            for rule in &instance.statics {
                let StaticRule::Forward { outside, .. } = *rule else { continue };
                let vrf = instance.outside_vrf;
                let known = find(&self.outside, vrf, outside).is_some()
                    || extra.iter().any(|e| e.vrf == vrf.0 && e.first == outside);
                if !known {
                    let what = Outside::Forward { instance: instance.id };
                    extra.push(Entry { vrf: vrf.0, first: outside, last: outside, what });
                }
            }
        }
        self.outside.extend(extra);
    }

    /// The static rules of an instance.
    pub(crate) fn rules_of(&self, instance: InstanceId) -> Option<&Rules> {
        self.rules.get(instance.index())
    }

    /// The outside address of an inside address that has one of its own by a static rule.
    #[inline]
    pub(crate) fn one_to_one(&self, instance: InstanceId, inside_ip: u32) -> Option<u32> {
        self.rules_of(instance)?.one_to_one(inside_ip)
    }

    /// The instance that serves an inside address.
    #[inline]
    #[must_use]
    pub fn instance_of_inside(&self, vrf: VrfId, ip: u32) -> Option<InstanceId> {
        find(&self.inside, vrf, ip)
    }

    /// The instance that a packet from inside is for, by its source or, from IPv6, by the prefix of its destination.
    #[inline]
    #[must_use]
    pub(crate) fn instance_for(&self, flow: &Flow) -> Option<InstanceId> {
        if flow.is_six() {
            self.instance_of_prefix(flow.via)
        } else {
            self.instance_of_inside(flow.vrf, flow.src)
        }
    }

    /// Do the instance's sessions of TCP or UDP from inside all come about in the same way: one mapping for all
    /// destinations, with any port?
    #[inline]
    #[must_use]
    pub(crate) fn opens_common(&self, instance: usize, proto: Proto) -> bool {
        self.opens_common.get(instance).and_then(|by| by.get(proto.index())).is_some_and(|common| *common)
    }

    /// Is there any NAT64 prefix?
    #[inline]
    #[must_use]
    pub const fn has_nat64(&self) -> bool {
        !self.prefixes.is_empty()
    }

    /// The NAT64 prefix an IPv6 destination is in, of the instance that serves the source when several have it.
    #[must_use]
    pub fn embedded(&self, vrf: VrfId, source: u128, destination: u128) -> Option<Embedded> {
        let mut denied = None;
        let mut longest = 0;
        for entry in self.prefixes.iter().filter(|entry| entry.vrf == vrf) {
            if !entry.prefix.contains(destination) {
                continue;
            }
            let address = entry.prefix.extract_unchecked(destination);
            let len = entry.prefix.prefix().len();
            if len < longest {
                break;
            }
            longest = len;
            let (via, prefix, instance) = (entry.via, entry.prefix, entry.instance);
            let served = self.serves_six(instance, source)
                || self.led_to_six.binary_search(&(instance, source)).is_ok();
            let found = Embedded { via, prefix, address, instance, served };
            if served {
                return Some(found);
            }
            denied = denied.or(Some(found));
        }
        denied
    }

    /// Is an IPv6 host that was admitted no subscriber? Then a forward rule leads to it, and it answers only.
    #[must_use]
    pub(crate) fn is_only_led_to(&self, instance: InstanceId, source: u128) -> bool {
        !self.led_to_six.is_empty() && !self.serves_six(instance, source)
    }

    fn serves_six(&self, instance: InstanceId, source: u128) -> bool {
        self.nat64_of(instance).is_some_and(|nat64| nat64.serves(source))
    }

    /// The number of the prefix and the IPv4 address of a destination, where the express lane may take a packet to it.
    #[inline(always)]
    #[must_use]
    pub fn embedded_in_own(&self, vrf: VrfId, destination: u128) -> Option<(u16, u32)> {
        let entry =
            self.prefixes.iter().find(|entry| entry.vrf == vrf && entry.prefix.contains(destination))?;
        // Checksum changes are known for the address itself, not for others with a suffix that stand for the same.
        let is_plain = entry.lane && entry.prefix.is_canonical(destination);
        is_plain.then(|| (entry.via, entry.prefix.extract_unchecked(destination)))
    }

    /// Is the address within any NAT64 prefix of this routing instance?
    #[must_use]
    pub fn is_embedded(&self, vrf: VrfId, address: u128) -> bool {
        self.prefixes.iter().any(|entry| entry.vrf == vrf && entry.prefix.prefix().contains(address))
    }

    /// The prefix of that number.
    #[inline]
    #[must_use]
    pub fn prefix_of(&self, via: u16) -> Option<&NatPrefix> {
        self.behind(via).map(|behind| &behind.prefix)
    }

    /// The same with how headers are translated.
    pub(crate) fn behind(&self, via: u16) -> Option<&Behind> {
        self.by_via.get(usize::from(via))?.as_ref()
    }

    /// The same for the express lane; `None` too where it does not translate to IPv6 as it is configured.
    #[inline(always)]
    pub(crate) fn lane_behind(&self, via: u16) -> Option<&LaneBehind> {
        self.lane_by_via.get(usize::from(via))?.as_ref()
    }

    /// The instance that has the prefix of that number.
    #[must_use]
    pub fn instance_of_prefix(&self, via: u16) -> Option<InstanceId> {
        self.prefixes.iter().find(|entry| entry.via == via).map(|entry| entry.instance)
    }

    fn nat64_of(&self, instance: InstanceId) -> Option<&Nat64> {
        self.nat64.get(instance.index())?.as_ref()
    }

    /// The subscriber an inside host belongs to: itself, or the prefix it is in.
    #[inline(always)]
    #[must_use]
    pub fn subscriber_of(&self, instance: InstanceId, host: Inside) -> Inside {
        match host {
            Inside::V4(_) => host,
            Inside::V6(ip) => self.nat64_of(instance).map_or(host, |nat64| nat64.subscriber_of(ip)),
        }
    }

    /// Does any instance have its subscribers in this routing instance?
    #[must_use]
    pub fn has_inside(&self, vrf: VrfId) -> bool {
        self.inside_vrf.contains(&vrf) && self.inside.iter().any(|e| e.vrf == vrf.0)
    }

    /// Is there any outside address?
    #[inline(always)]
    #[must_use]
    pub const fn has_outside(&self) -> bool {
        !self.outside.is_empty()
    }

    /// What an outside address is for; `None` when it is none of ours.
    #[inline]
    #[must_use]
    pub fn outside(&self, vrf: VrfId, ip: u32) -> Option<Outside> {
        find(&self.outside, vrf, ip)
    }

    /// The worker that owns an inside address; `None` when no instance has anything to do with it: it is no
    /// subscriber, and no static rule leads to it, which alone may give it sessions.
    #[inline]
    #[must_use]
    pub fn owner_of_source(&self, vrf: VrfId, ip: u32) -> Option<WorkerId> {
        let concerned = find(&self.inside, vrf, ip).is_some() || find(&self.led_to, vrf, ip).is_some();
        concerned.then(|| self.owner_of_inside(vrf, ip))
    }

    /// The worker that owns the subscriber of an IPv6 packet to a NAT64 prefix.
    #[must_use]
    pub fn owner_of_embedded(&self, vrf: VrfId, source: u128, embedded: &Embedded) -> WorkerId {
        self.owner_of(vrf, self.subscriber_of(embedded.instance, Inside::V6(source)))
    }

    /// The same by the number of the prefix.
    #[must_use]
    pub fn owner_of_six(&self, vrf: VrfId, via: u16, source: u128) -> WorkerId {
        let host = Inside::V6(source);
        let instance = self.instance_of_prefix(via);
        self.owner_of(vrf, instance.map_or(host, |instance| self.subscriber_of(instance, host)))
    }

    /// The worker that owns an IPv4 subscriber.
    #[inline]
    #[must_use]
    pub fn owner_of_inside(&self, vrf: VrfId, ip: u32) -> WorkerId {
        self.owner_of(vrf, Inside::V4(ip))
    }

    /// The worker that owns a subscriber: of an IPv4 address the one that a network card can tell, too, whatever the
    /// routing instance.
    #[inline]
    #[must_use]
    pub fn owner_of(&self, vrf: VrfId, subscriber: Inside) -> WorkerId {
        if self.workers == 1 {
            return WorkerId(0);
        }
        if let Inside::V4(address) = subscriber {
            return self.steering.worker_of(address);
        }
        // Not the hash that the subscriber's index entry is found by: a worker's subscribers would all share its high
        // bits, and crowd into as small a part of their index.
        let hash = self.hasher.hash2(subscriber_hash(&self.hasher, subscriber, vrf), STEERING);
        // High bits of a product: the hash's share of the workers.
        WorkerId(((u128::from(hash) * u128::from(self.workers)) >> 64) as u8)
    }

    /// The worker that owns an outside endpoint; `None` when the address is none of ours.
    #[must_use]
    pub fn owner_of_outside(&self, vrf: VrfId, ip: u32, proto: u8, port: u16) -> Option<WorkerId> {
        let what = self.outside(vrf, ip)?;
        if let Some(forward) = self.forward_of(vrf, ip, proto, port) {
            return Some(self.owner_of(VrfId(forward.inside_vrf), forward.inside));
        }
        let instance = what.instance();
        let inside_vrf = self.inside_vrf.get(instance.index()).copied().unwrap_or_default();
        Some(match what {
            Outside::Pool { pool, .. } => match self.pools.get(pool as usize) {
                Some(PoolPorts::Slices(slices)) => slices.owner(port),
                // Ports of no block, such as those of forward rules below the range, are found at worker 0.
                Some(PoolPorts::Blocks(blocks)) => blocks.owner(ip, port).unwrap_or(WorkerId(0)),
                None => WorkerId(0),
            },
            Outside::OneToOne { inside_minus_outside, .. } => {
                self.owner_of_inside(inside_vrf, ip.wrapping_add(inside_minus_outside))
            }
            Outside::Deterministic { .. } => {
                let function = self.deterministic.get(instance.index()).and_then(Option::as_ref);
                let inside = function.and_then(|function| function.inverse(ip, port));
                let of_block = || self.overflow.get(instance.index())?.as_ref()?.owner(ip, port);
                match inside {
                    Some(inside) => self.owner_of(inside_vrf, inside),
                    None => of_block().unwrap_or(WorkerId(0)),
                }
            }
            Outside::Forward { .. } => WorkerId(0),
        })
    }

    fn forward_of(&self, vrf: VrfId, ip: u32, proto: u8, port: u16) -> Option<&ForwardPorts> {
        let at = self
            .forwards
            .partition_point(|f| (f.vrf, f.outside, f.proto, f.first) <= (vrf.0, ip, proto, port))
            .checked_sub(1)?;
        let forward = self.forwards.get(at)?;
        let same = (forward.vrf, forward.outside, forward.proto) == (vrf.0, ip, proto);
        (same && port <= forward.last).then_some(forward)
    }
}

/// The blocks of a deterministic instance that has any.
fn overflow_of(instance: &Instance, group: &WorkerGroup) -> Option<Arc<BlockMap>> {
    let deterministic = matches!(instance.assignment, Assignment::Deterministic { .. });
    (deterministic && instance.assignment.blocks().is_some()).then(|| group.block_map(instance))
}

/// The subscriber that an inside host of an instance belongs to.
fn this_subscriber(instance: &Instance, host: Inside) -> Inside {
    match (host, &instance.nat64) {
        (Inside::V6(ip), Some(nat64)) => nat64.subscriber_of(ip),
        _ => host,
    }
}

fn prefixes_of(policy: &NatPolicy) -> Vec<PrefixEntry> {
    let mut all: Vec<PrefixEntry> = Vec::new();
    for instance in &policy.instances {
        let entries = instance.nat64.iter().flat_map(|nat64| &nat64.prefixes);
        all.extend(entries.map(|entry| PrefixEntry {
            vrf: instance.inside_vrf,
            via: entry.via,
            prefix: entry.prefix,
            instance: instance.id,
            lane: instance.nat64.as_ref().is_some_and(|nat64| nat64.rules.tos.is_none()),
        }));
    }
    all.sort_by_key(|entry| core::cmp::Reverse(entry.prefix.prefix().len()));
    for at in 0..all.len() {
        let same = |other: &&PrefixEntry| {
            all.get(at).is_some_and(|own| own.vrf == other.vrf && own.prefix == other.prefix)
        };
        let shared = all.iter().filter(same).count() > 1;
        if let Some(entry) = all.get_mut(at) {
            entry.lane &= !shared;
        }
    }
    all
}

/// Inside addresses of static rules, joined where they overlap.
fn led_to(policy: &NatPolicy) -> Vec<Entry<()>> {
    let mut all: Vec<Entry<()>> = Vec::new();
    for instance in &policy.instances {
        let vrf = instance.inside_vrf.0;
        all.extend(instance.statics.iter().filter_map(|rule| match *rule {
            StaticRule::OneToOne { inside, .. } => {
                Some(Entry { vrf, first: inside.first, last: inside.last, what: () })
            }
            StaticRule::Forward { inside: Inside::V4(ip), .. } => {
                Some(Entry { vrf, first: ip, last: ip, what: () })
            }
            StaticRule::Forward { inside: Inside::V6(_), .. } => None,
        }));
    }
    all.sort_by_key(|e| (e.vrf, e.first));
    all.dedup_by(|next, before| {
        let joins = next.vrf == before.vrf && next.first <= before.last;
        before.last = if joins { before.last.max(next.last) } else { before.last };
        joins
    });
    all
}

/// IPv6 hosts of forward rules.
fn led_to_six(policy: &NatPolicy) -> Vec<(InstanceId, u128)> {
    let hosts = policy.instances.iter().flat_map(|instance| {
        instance.statics.iter().filter_map(|rule| match *rule {
            StaticRule::Forward { inside: Inside::V6(ip), .. } => Some((instance.id, ip)),
            _ => None,
        })
    });
    let mut all: Vec<_> = hosts.collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// See [`Directory::opens_common`].
fn opens_common(instance: &Instance) -> [bool; 2] {
    [Proto::Tcp, Proto::Udp].map(|proto| {
        let mapping = instance.mapping.get(proto.index()).copied().unwrap_or_default();
        let chooses = proto == Proto::Udp && (instance.parity || instance.contiguity);
        mapping == Mapping::EndpointIndependent && !chooses
    })
}

/// Does the destination pass untranslated (RFC 6888 REQ-6)?
#[must_use]
pub(crate) fn is_exempt(instance: &Instance, remote: u32) -> bool {
    instance.exempt.iter().any(|prefix| prefix.contains(remote))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::Subscriber;
    use crate::policy::Capacity;
    use crate::tables::Tables;
    use carrack_tables::PagePreference;

    #[test]
    fn a_worker_of_several_can_fill_its_subscriber_table() {
        let hasher = KeyedHasher::new([1, 2, 3, 4]);
        let directory = Directory::new(&NatPolicy::default(), &WorkerGroup::new(2, [1, 2, 3, 4]));
        let capacity = Capacity { sessions: 64, mappings: 64, subscribers: 4_096, ..Capacity::default() };
        let mut tables = Tables::new(capacity, hasher, PagePreference::Small).unwrap();
        let mine = (0x0a00_0000..).filter(|ip| directory.owner_of_inside(VrfId(0), *ip) == WorkerId(0));
        for ip in mine.take(4_096) {
            assert!(tables.add_subscriber(Subscriber { inside_ip: ip, ..Subscriber::default() }).is_ok());
        }
    }
}
