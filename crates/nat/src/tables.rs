//! The tables of one worker and the operations that keep lines, index entries and counts together.

use carrack_base::{Proto, Reason, VrfId};
use carrack_tables::{
    Arena, ArenaError, Backing, Deadlines, Index, KeyedHasher, Likely, PagePreference, Slab,
};

use crate::flow::{Direction, Flow, Inside, host_hash, mapping_key, session_hash, subscriber_hash};
use crate::line::{Host, Mapping, NONE, PERMITTED, Permission, Session, Subscriber};
use crate::pins::Pins;
use crate::policy::Capacity;
use crate::row::{Endpoint, MemoryRow};

/// Sessions, mappings and subscribers with their indexes.
#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) hasher: KeyedHasher,
    pub(crate) sessions: Slab<Session>,
    pub(crate) session_index: Index,
    pub(crate) deadlines: Deadlines,
    pub(crate) mappings: Slab<Mapping>,
    pub(crate) mapping_index: Index,
    pub(crate) subscribers: Slab<Subscriber>,
    pub(crate) subscriber_index: Index,
    /// Only once some instance filters by address.
    pub(crate) permissions: Option<Permissions>,
    /// Only once some instance translates from IPv6.
    pub(crate) hosts: Option<Hosts>,
    /// Only once hosts may ask for ports.
    pub(crate) pins: Option<Pins>,
    /// Index entries of the latest lines that packets from outside are found by, see [`Tables::settle`].
    pending: Vec<Pending>,
    /// So many of them are entered.
    entered: usize,
    /// The buckets of so many of them were asked for.
    asked: usize,
    /// Entries that found no room after all.
    pub(crate) unentered: u64,
    /// Sessions removed since start. Those that began are these and those that live, so that making one counts nothing.
    pub(crate) sessions_removed: u64,
    capacity: Capacity,
    backing: Backing,
    arena_bytes: usize,
}

/// New lines between two calls of [`Tables::settle`]: a burst's, mostly.
const PENDING_MAX: usize = 128;
/// Of these, so many are not entered yet.
const ENTERED_BEHIND: usize = 12;

/// An index entry on its way: its bucket has been asked for.
#[derive(Debug, Clone, Copy)]
struct Pending {
    hash: u64,
    id: u32,
    of_mapping: bool,
}

/// What a line is found by, each way.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Hashes {
    pub(crate) outbound: u64,
    pub(crate) inbound: u64,
}

/// A session that may be about to end.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ending {
    pub(crate) id: u32,
    pub(crate) mapping: u32,
    pub(crate) subscriber: u32,
    pub(crate) session: Hashes,
    /// Of its mapping, when that would end with it.
    pub(crate) last: Option<Hashes>,
}

/// IPv6 addresses that have mappings.
#[derive(Debug)]
pub(crate) struct Hosts {
    pub(crate) lines: Slab<Host>,
    pub(crate) index: Index,
    backing: Backing,
}

/// Which mapping has sent to which address.
#[derive(Debug)]
pub(crate) struct Permissions {
    pub(crate) lines: Slab<Permission>,
    pub(crate) index: Index,
    backing: Backing,
}

impl Hosts {
    pub(crate) fn bytes_for(capacity: Capacity) -> usize {
        let lines = capacity.hosts.max(1) as usize;
        Slab::<Host>::bytes_for(lines) + Index::bytes_for(lines)
    }

    pub(crate) fn new(capacity: Capacity, pages: PagePreference) -> Result<Self, ArenaError> {
        let lines = capacity.hosts.max(1) as usize;
        let mut arena = Arena::new("nat-hosts", Self::bytes_for(capacity), pages)?;
        let backing = arena.backing();
        Ok(Self { lines: Slab::new(&mut arena, lines)?, index: Index::new(&mut arena, lines)?, backing })
    }
}

impl Permissions {
    pub(crate) fn bytes_for(capacity: Capacity) -> usize {
        let lines = capacity.sessions as usize;
        Slab::<Permission>::bytes_for(lines) + Index::bytes_for(lines)
    }

    pub(crate) fn new(capacity: Capacity, pages: PagePreference) -> Result<Self, ArenaError> {
        let lines = capacity.sessions as usize;
        let mut arena = Arena::new("nat-permissions", Self::bytes_for(capacity), pages)?;
        let backing = arena.backing();
        Ok(Self { lines: Slab::new(&mut arena, lines)?, index: Index::new(&mut arena, lines)?, backing })
    }
}

impl Tables {
    /// Bytes that tables of this capacity take.
    pub(crate) fn bytes_for(capacity: Capacity) -> usize {
        let (sessions, mappings) = (capacity.sessions as usize, capacity.mappings as usize);
        let subscribers = capacity.subscribers as usize;
        Slab::<Session>::bytes_for(sessions)
            + Index::bytes_for(sessions * 2)
            + Deadlines::bytes_for(sessions)
            + Slab::<Mapping>::bytes_for(mappings)
            + Index::bytes_for(mappings * 2)
            + Slab::<Subscriber>::bytes_for(subscribers)
            + Index::bytes_for(subscribers)
    }

    pub(crate) fn new(
        capacity: Capacity,
        hasher: KeyedHasher,
        pages: PagePreference,
    ) -> Result<Self, ArenaError> {
        let arena_bytes = Self::bytes_for(capacity);
        let mut arena = Arena::new("nat-tables", arena_bytes, pages)?;
        let (sessions, mappings) = (capacity.sessions as usize, capacity.mappings as usize);
        Ok(Self {
            hasher,
            sessions: Slab::new(&mut arena, sessions)?,
            session_index: Index::new(&mut arena, sessions * 2)?,
            deadlines: Deadlines::new(&mut arena, sessions)?,
            mappings: Slab::new(&mut arena, mappings)?,
            mapping_index: Index::new(&mut arena, mappings * 2)?,
            subscribers: Slab::new(&mut arena, capacity.subscribers as usize)?,
            subscriber_index: Index::new(&mut arena, capacity.subscribers as usize)?,
            permissions: None,
            hosts: None,
            pins: None,
            pending: Vec::with_capacity(PENDING_MAX),
            entered: 0,
            asked: 0,
            unentered: 0,
            sessions_removed: 0,
            capacity,
            backing: arena.backing(),
            arena_bytes,
        })
    }

    /// Sizes, as configured.
    pub(crate) const fn capacity(&self) -> Capacity {
        self.capacity
    }

    /// Takes what a change brings, unless it is there already; then what it brought stays with it.
    pub(crate) fn take_extra(
        &mut self,
        permissions: &mut Option<Permissions>,
        hosts: &mut Option<Hosts>,
        pins: &mut Option<Pins>,
    ) {
        if self.permissions.is_none()
            && let Some(fresh) = permissions.take()
        {
            self.arena_bytes += Permissions::bytes_for(self.capacity);
            self.permissions = Some(fresh);
        }
        if self.hosts.is_none()
            && let Some(fresh) = hosts.take()
        {
            self.arena_bytes += Hosts::bytes_for(self.capacity);
            self.hosts = Some(fresh);
        }
        if self.pins.is_none()
            && let Some(fresh) = pins.take()
        {
            self.arena_bytes += fresh.bytes();
            self.pins = Some(fresh);
        }
    }

    /// The line of an IPv6 address as the instance of that slot knows it.
    pub(crate) fn find_host(&self, address: u128, slot: u16, vrf: VrfId) -> Option<u32> {
        self.host_at(host_hash(&self.hasher, address, slot, vrf), address, slot, vrf)
    }

    /// The same; `hash` is what it is found by.
    #[inline]
    fn host_at(&self, hash: u64, address: u128, slot: u16, vrf: VrfId) -> Option<u32> {
        let hosts = self.hosts.as_ref()?;
        hosts.index.find(hash, |id| {
            hosts.lines.get(id).is_some_and(|h| h.address == address && h.slot == slot && h.vrf == vrf.0)
        })
    }

    /// Adds one, without mappings yet.
    pub(crate) fn add_host(&mut self, line: Host) -> Result<u32, Reason> {
        self.add_host_at(line, self.host_hash(&line))
    }

    fn host_hash(&self, line: &Host) -> u64 {
        host_hash(&self.hasher, line.address, line.slot, VrfId(line.vrf))
    }

    /// The host of this mapping, of an IPv6 one, has begun a session by that prefix.
    pub(crate) fn note_prefix(&mut self, mapping: &Mapping, via: u16) {
        let host = self.hosts.as_mut().filter(|_| mapping.is_six());
        if let Some(host) = host.and_then(|hosts| hosts.lines.get_mut(mapping.inside_ip)) {
            host.via = via;
        }
    }

    /// The same; `hash` is what it is found by.
    pub(crate) fn add_host_at(&mut self, line: Host, hash: u64) -> Result<u32, Reason> {
        let hosts = self.hosts.as_mut().ok_or(Reason::NatNoInstance)?;
        let id = hosts.lines.alloc(line).ok_or(Reason::NatHostTableFull)?;
        if hosts.index.insert(hash, id).is_err() {
            hosts.lines.free(id);
            return Err(Reason::NatIndexFull);
        }
        Ok(id)
    }

    pub(crate) fn host(&self, id: u32) -> Option<&Host> {
        self.hosts.as_ref()?.lines.get(id)
    }

    /// Removes a host that no mapping names.
    pub(crate) fn remove_host_if_unused(&mut self, id: u32) {
        let Some(hosts) = self.hosts.as_mut() else { return };
        let Some(line) = hosts.lines.get(id).filter(|line| line.mappings == 0).copied() else { return };
        if hosts.lines.is_live(id) {
            hosts.index.remove(host_hash(&self.hasher, line.address, line.slot, VrfId(line.vrf)), id);
            hosts.lines.free(id);
        }
    }

    /// A mapping's host gets one more, or has one less.
    fn count_host(&mut self, line: &Mapping, more: bool) {
        let host = self.hosts.as_mut().filter(|_| line.is_six());
        if let Some(host) = host.and_then(|hosts| hosts.lines.get_mut(line.inside_ip)) {
            host.mappings = if more { host.mappings + 1 } else { host.mappings.saturating_sub(1) };
        }
        if !more && line.is_six() {
            self.remove_host_if_unused(line.inside_ip);
        }
    }

    /// The inside address of a mapping.
    pub(crate) fn inside_of(&self, mapping: &Mapping) -> Inside {
        if !mapping.is_six() {
            return Inside::V4(mapping.inside_ip);
        }
        Inside::V6(self.host(mapping.inside_ip).map_or(0, |host| host.address))
    }

    #[inline(always)]
    pub(crate) fn hash(&self, key: [u64; 2]) -> u64 {
        self.hasher.hash2(key[0], key[1])
    }

    /// The hash of a packet's session.
    #[inline(always)]
    pub(crate) fn session_hash(&self, flow: &Flow, direction: Direction) -> u64 {
        session_hash(&self.hasher, flow, direction)
    }

    /// The session of a packet.
    #[inline]
    pub(crate) fn find_session(&self, hash: u64, flow: &Flow, direction: Direction) -> Option<u32> {
        self.session_index
            .find(hash, |id| self.sessions.get(id).is_some_and(|line| line.is_of(flow, direction)))
    }

    /// Is there a session already that packets from outside find by what they would find this one by (RFC 6146 §3.2)?
    pub(crate) fn has_twin_outside(&mut self, line: &Session) -> bool {
        self.settle();
        let way = Direction::In;
        let found = self.session_index.find(line.hash(&self.hasher, way), |id| {
            self.sessions.get(id).is_some_and(|other| {
                (other.addresses(way), other.ports(way)) == (line.addresses(way), line.ports(way))
                    && (other.outside_vrf, other.proto) == (line.outside_vrf, line.proto)
            })
        });
        found.is_some()
    }

    /// The mapping whose inside (`Out`) or outside (`In`) endpoint is `local`.
    pub(crate) fn find_mapping(
        &self,
        local: Endpoint,
        vrf: VrfId,
        proto: Proto,
        direction: Direction,
    ) -> Option<u32> {
        self.find_mapping_of(local, vrf, proto, direction, false)
    }

    /// The same, where `six` says that the inside address is the number of an IPv6 host.
    pub(crate) fn find_mapping_of(
        &self,
        local: Endpoint,
        vrf: VrfId,
        proto: Proto,
        direction: Direction,
        six: bool,
    ) -> Option<u32> {
        let key = mapping_key(local, vrf, proto, direction, six);
        self.mapping_index.find(self.hash(key), |id| {
            self.mappings.get(id).is_some_and(|line| line.is_at(local, vrf, proto, direction, six))
        })
    }

    /// The mapping of a packet from inside, whose inside endpoint is `inside`; `hash` is what it is found by.
    #[inline(always)]
    pub(crate) fn find_mapping_at(&self, hash: u64, inside: Endpoint, flow: &Flow) -> Option<u32> {
        let (vrf, proto, six) = (flow.vrf, flow.proto, flow.is_six());
        self.mapping_index.find(hash, |id| {
            self.mappings.get(id).is_some_and(|line| line.is_at(inside, vrf, proto, Direction::Out, six))
        })
    }

    /// Is there a line left for a session (and for a mapping, when it needs one)?
    pub(crate) fn has_room(&self, needs_mapping: bool) -> Result<(), Reason> {
        if self.sessions.len() >= self.sessions.capacity() {
            return Err(Reason::NatSessionTableFull);
        }
        if needs_mapping && self.mappings.len() >= self.mappings.capacity() {
            return Err(Reason::NatMappingTableFull);
        }
        Ok(())
    }

    #[inline(always)]
    pub(crate) fn find_subscriber(&self, who: Inside, vrf: VrfId) -> Option<u32> {
        self.find_subscriber_at(subscriber_hash(&self.hasher, who, vrf), who, vrf)
    }

    /// The same; `hash` is what it is found by.
    #[inline(always)]
    pub(crate) fn find_subscriber_at(&self, hash: u64, who: Inside, vrf: VrfId) -> Option<u32> {
        self.subscriber_index.find(hash, |id| {
            self.subscribers.get(id).is_some_and(|line| line.who() == who && line.inside_vrf == vrf.0)
        })
    }

    pub(crate) fn add_subscriber(&mut self, line: Subscriber) -> Result<u32, Reason> {
        self.add_subscriber_at(line, subscriber_hash(&self.hasher, line.who(), VrfId(line.inside_vrf)))
    }

    /// The same; `hash` is what it is found by.
    pub(crate) fn add_subscriber_at(&mut self, line: Subscriber, hash: u64) -> Result<u32, Reason> {
        let id = self.subscribers.alloc(line).ok_or(Reason::NatSubscriberTableFull)?;
        if self.subscriber_index.insert(hash, id).is_err() {
            self.subscribers.free(id);
            return Err(Reason::NatIndexFull);
        }
        Ok(id)
    }

    pub(crate) fn remove_subscriber(&mut self, id: u32) {
        let Some(line) = self.subscribers.get(id) else { return };
        let hash = subscriber_hash(&self.hasher, line.who(), VrfId(line.inside_vrf));
        self.subscriber_index.remove(hash, id);
        self.subscribers.free(id);
    }

    /// Adds a mapping under its outside endpoint, and under its inside one when it is endpoint-independent.
    pub(crate) fn add_mapping(&mut self, line: Mapping) -> Result<u32, Reason> {
        self.add_mapping_at(line, self.hash(line.key(Direction::Out)))
    }

    /// The same; `outbound` is what its inside endpoint is found by.
    #[inline(always)]
    pub(crate) fn add_mapping_at(&mut self, line: Mapping, outbound: u64) -> Result<u32, Reason> {
        let id = self.mappings.alloc(line).ok_or(Reason::NatMappingTableFull)?;
        let inbound = self.hash(line.key(Direction::In));
        if line.flags & crate::line::INDEPENDENT != 0 && self.mapping_index.insert(outbound, id).is_err() {
            self.mappings.free(id);
            return Err(Reason::NatIndexFull);
        }
        self.defer(Pending { hash: inbound, id, of_mapping: true });
        self.count_host(&line, true);
        if let Some(subscriber) = self.subscribers.get_mut(line.subscriber)
            && let Some(count) = subscriber.mappings.get_mut(usize::from(line.proto))
        {
            *count += 1;
        }
        Ok(id)
    }

    /// Removes a mapping; `ends` is what its ends are found by.
    pub(crate) fn remove_mapping(&mut self, id: u32, ends: Hashes) -> Option<Mapping> {
        self.settle();
        let line = *self.mappings.get(id)?;
        self.mapping_index.remove(ends.inbound, id);
        if line.flags & crate::line::INDEPENDENT != 0 {
            self.mapping_index.remove(ends.outbound, id);
        }
        self.mappings.free(id);
        self.count_host(&line, false);
        if let Some(subscriber) = self.subscribers.get_mut(line.subscriber)
            && let Some(count) = subscriber.mappings.get_mut(usize::from(line.proto))
        {
            *count = count.saturating_sub(1);
        }
        Some(line)
    }

    /// Adds a session, both directions, armed for `deadline_s`; counts it at its mapping and subscriber.
    pub(crate) fn add_session(&mut self, line: Session, deadline_s: u32) -> Result<u32, Reason> {
        self.add_session_at(line, line.hash(&self.hasher, Direction::Out), deadline_s)
    }

    /// The same; `outbound` is what it is found by going out.
    #[inline(always)]
    pub(crate) fn add_session_at(
        &mut self,
        line: Session,
        outbound: u64,
        deadline_s: u32,
    ) -> Result<u32, Reason> {
        let id = self.sessions.alloc(line).ok_or(Reason::NatSessionTableFull)?;
        let inbound = line.hash(&self.hasher, Direction::In);
        if self.session_index.insert(outbound, id).is_err() {
            self.sessions.free(id);
            return Err(Reason::NatIndexFull);
        }
        self.defer(Pending { hash: inbound, id, of_mapping: false });
        // A full permission table only narrows who else may send: the session itself stands.
        if self.permissions.is_some()
            && self.permit(line.mapping, line.remote_ip).is_some()
            && let Some(place) = self.sessions.get_mut(id)
        {
            place.flags |= PERMITTED;
        }
        self.deadlines.set(id, deadline_s);
        if let Some(mapping) = self.mappings.get_mut(line.mapping) {
            mapping.sessions += 1;
        }
        if let Some(subscriber) = self.subscribers.get_mut(line.subscriber) {
            subscriber.sessions += 1;
        }
        Ok(id)
    }

    /// What a mapping's ends are found by.
    pub(crate) fn hashes_of_mapping(&self, line: &Mapping) -> Hashes {
        let [outbound, inbound] = [Direction::Out, Direction::In].map(|way| self.hash(line.key(way)));
        Hashes { outbound, inbound }
    }

    /// What a session is found by.
    pub(crate) fn hashes_of_session(&self, line: &Session) -> Hashes {
        let [outbound, inbound] = [Direction::Out, Direction::In].map(|way| line.hash(&self.hasher, way));
        Hashes { outbound, inbound }
    }

    /// Removes a session; `ends` is what it is found by. Its mapping and subscriber stay, with their counts taken down.
    pub(crate) fn remove_session(&mut self, id: u32, ends: Hashes) -> Option<Session> {
        self.settle();
        if !self.sessions.is_live(id) {
            return None;
        }
        let line = *self.sessions.get(id)?;
        self.session_index.remove(ends.outbound, id);
        self.session_index.remove(ends.inbound, id);
        self.deadlines.clear(id);
        self.sessions.free(id);
        self.sessions_removed += 1;
        if line.flags & PERMITTED != 0 {
            self.revoke(line.mapping, line.remote_ip);
        }
        if let Some(mapping) = self.mappings.get_mut(line.mapping) {
            mapping.sessions = mapping.sessions.saturating_sub(1);
        }
        if let Some(subscriber) = self.subscribers.get_mut(line.subscriber) {
            subscriber.sessions = subscriber.sessions.saturating_sub(1);
        }
        Some(line)
    }

    /// Leaves an index entry for later, and enters one of before, whose bucket is here.
    #[inline(always)]
    fn defer(&mut self, pending: Pending) {
        if self.pending.len() >= self.pending.capacity() {
            self.settle();
        }
        self.pending.push(pending);
        if self.pending.len() > self.entered + ENTERED_BEHIND {
            if self.asked <= self.entered {
                self.prefetch_pending();
            }
            self.enter_next();
        }
    }

    /// Asks for the buckets of entries that were left since the last call.
    #[inline(always)]
    pub(crate) fn prefetch_pending(&mut self) {
        for pending in self.pending.get(self.asked..).unwrap_or_default() {
            self.index_of(*pending).prefetch(pending.hash);
        }
        self.asked = self.pending.len();
        let soon = self.entered + ENTERED_BEHIND / 2;
        for pending in self.pending.iter().skip(soon).take(2) {
            self.index_of(*pending).prefetch_room(pending.hash);
        }
    }

    #[inline(always)]
    fn index_of(&self, pending: Pending) -> &Index {
        if pending.of_mapping { &self.mapping_index } else { &self.session_index }
    }

    #[inline(always)]
    fn enter_next(&mut self) {
        let Some(Pending { hash, id, of_mapping }) = self.pending.get(self.entered).copied() else { return };
        self.entered += 1;
        let index = if of_mapping { &mut self.mapping_index } else { &mut self.session_index };
        self.unentered += u64::from(index.insert(hash, id).is_err());
    }

    /// Enters what packets from outside are found by, for all lines made lately. Their buckets are not in the cache when a
    /// line is made, for the outside port is chosen only then; so they are asked for, and entered some lines later, or when
    /// the burst is done, or before anything is looked for from outside or removed.
    ///
    /// An index is never fuller than eight tenths (its lines run out first), where the search for room does not fail in
    /// the life of the universe; should it, the entry is missing: packets from outside find no session, and make none.
    #[inline(always)]
    pub(crate) fn settle(&mut self) {
        if !self.pending.is_empty() {
            self.settle_pending();
        }
    }

    #[inline(never)]
    fn settle_pending(&mut self) {
        self.prefetch_pending();
        while self.entered < self.pending.len() {
            self.enter_next();
        }
        self.pending.clear();
        (self.entered, self.asked) = (0, 0);
    }

    /// Asks for the buckets that a packet's subscriber and mapping, or IPv6 source, are found by.
    #[inline(always)]
    pub(crate) fn prefetch_indexes(&self, flow: &Flow, who: u64, endpoint: u64) {
        self.subscriber_index.prefetch(who);
        if !flow.is_six() {
            self.mapping_index.prefetch(endpoint);
        } else if let Some(hosts) = &self.hosts {
            hosts.index.prefetch(endpoint);
        }
    }

    /// Asks for where the session of a packet from inside will be entered when its first bucket is full, and for what its
    /// mapping and its subscriber lead to. The likely subscriber, or [`NONE`].
    #[inline]
    pub(crate) fn prefetch_arrival(&self, flow: &Flow, hash: u64, who: u64, endpoint: u64) -> u32 {
        self.session_index.prefetch_room(hash);
        if flow.is_six() {
            self.prefetch_host(flow, endpoint);
        } else {
            self.prefetch_mapping(endpoint);
        }
        match self.subscriber_index.view().likely(who) {
            Likely::Line(id) => self.prefetch_subscriber(id, flow),
            Likely::Away => NONE,
            Likely::Absent => {
                self.subscriber_index.prefetch_room(who);
                NONE
            }
        }
    }

    /// Asks for the line of a packet's IPv6 host and for the bucket of its mapping; [`Tables::prefetch_mapping_of_six`] comes
    /// next. `endpoint` is what the host is found by.
    fn prefetch_host(&self, flow: &Flow, endpoint: u64) {
        let Some(hosts) = &self.hosts else { return };
        match hosts.index.view().likely(endpoint) {
            Likely::Line(host) => self.prefetch_of_host(hosts, host, flow),
            Likely::Away => {}
            Likely::Absent => hosts.index.prefetch_room(endpoint),
        }
    }

    /// The same as [`Tables::prefetch_mapping`] for a packet of an IPv6 host, whose line and bucket are here, unless its hash
    /// did not lead to it at once: then these are asked for.
    pub(crate) fn prefetch_mapping_of_six(&self, flow: &Flow, endpoint: u64) {
        let Some(hosts) = &self.hosts else { return };
        match hosts.index.view().likely(endpoint) {
            Likely::Line(host) => self.prefetch_mapping(self.endpoint_by(host, flow).1),
            Likely::Away => {
                let host = hosts.index.view().likely_away(endpoint);
                host.inspect(|host| self.prefetch_of_host(hosts, *host, flow));
            }
            Likely::Absent => {}
        }
    }

    #[inline(always)]
    fn prefetch_of_host(&self, hosts: &Hosts, host: u32, flow: &Flow) {
        hosts.lines.prefetch(host);
        self.mapping_index.prefetch(self.endpoint_by(host, flow).1);
    }

    /// Asks for a mapping's line, or for where it will be entered when its first bucket, which is here, is full.
    #[inline(always)]
    fn prefetch_mapping(&self, hash: u64) {
        match self.mapping_index.view().likely(hash) {
            Likely::Line(id) => self.mappings.prefetch(id),
            Likely::Away => {}
            Likely::Absent => self.mapping_index.prefetch_room(hash),
        }
    }

    /// The likely subscriber, where its hash did not lead to it at once.
    #[inline]
    pub(crate) fn prefetch_away(&self, flow: &Flow, who: u64) -> u32 {
        self.subscriber_index.candidate(who).map_or(NONE, |id| self.prefetch_subscriber(id, flow))
    }

    #[inline(always)]
    fn prefetch_subscriber(&self, id: u32, flow: &Flow) -> u32 {
        if let Some(line) = self.subscribers.get(id) {
            // Two cache lines: counts and first blocks; and the rest, an IPv6 address above all.
            carrack_tables::prefetch(line);
            if flow.is_six() {
                carrack_tables::prefetch(&line.inside6);
            }
        }
        id
    }

    /// The inside endpoint of a packet as mappings know it, and what its mapping is found by. `endpoint` is what the
    /// endpoint, or an IPv6 source, is found by; `slot` is its instance's.
    #[inline(always)]
    pub(crate) fn endpoint_of(&self, flow: &Flow, endpoint: u64, slot: u16) -> Option<(Endpoint, u64)> {
        if !flow.is_six() {
            return Some((flow.local(Direction::Out), endpoint));
        }
        let host = self.host_at(endpoint, flow.src6, slot, flow.vrf)?;
        Some(self.endpoint_by(host, flow))
    }

    /// The same of an IPv6 packet, by the number of its host.
    #[inline(always)]
    pub(crate) fn endpoint_by(&self, host: u32, flow: &Flow) -> (Endpoint, u64) {
        let inside = Endpoint { ip: host, port: flow.sport };
        (inside, self.hash(mapping_key(inside, flow.vrf, flow.proto, Direction::Out, true)))
    }

    /// Asks for what the end of a session touches, once its line is here.
    #[inline(always)]
    pub(crate) fn look_at_ending(&self, end: &mut Ending) {
        let Some(line) = self.sessions.get(end.id) else { return };
        end.session = self.hashes_of_session(line);
        (end.mapping, end.subscriber) = (line.mapping, line.subscriber);
        self.session_index.prefetch(end.session.outbound);
        self.session_index.prefetch(end.session.inbound);
        self.mappings.prefetch(line.mapping);
        self.subscribers.prefetch(line.subscriber);
    }

    /// Asks for what the ends of its subscriber and its mapping touch, once these lines are here; the mapping, when it ends
    /// with the session.
    #[inline(always)]
    pub(crate) fn look_at_last(&self, end: &mut Ending) -> Option<&Mapping> {
        if let Some(line) = self.subscribers.get(end.subscriber).filter(|line| line.sessions == 1) {
            if line.is_six {
                carrack_tables::prefetch(&line.inside6);
            } else {
                self.prefetch_subscriber_bucket(line);
            }
        }
        let mapping = self.mappings.get(end.mapping).filter(|mapping| mapping.sessions == 1)?;
        let hashes = self.hashes_of_mapping(mapping);
        self.mapping_index.prefetch(hashes.outbound);
        self.mapping_index.prefetch(hashes.inbound);
        if let Some(hosts) = self.hosts.as_ref().filter(|_| mapping.is_six()) {
            hosts.lines.prefetch(mapping.inside_ip);
        }
        end.last = Some(hashes);
        Some(mapping)
    }

    /// Asks for what the ends of an IPv6 subscriber and host touch, once their lines are here.
    #[inline(always)]
    pub(crate) fn look_at_last_of_six(&self, end: &Ending, mapping: &Mapping) {
        let Some(hosts) = self.hosts.as_ref().filter(|_| mapping.is_six()) else { return };
        if let Some(line) = self.subscribers.get(end.subscriber).filter(|line| line.sessions == 1) {
            self.prefetch_subscriber_bucket(line);
        }
        if let Some(line) = hosts.lines.get(mapping.inside_ip).filter(|line| line.mappings == 1) {
            hosts.index.prefetch(self.host_hash(line));
        }
    }

    #[inline(always)]
    fn prefetch_subscriber_bucket(&self, line: &Subscriber) {
        self.subscriber_index.prefetch(subscriber_hash(&self.hasher, line.who(), VrfId(line.inside_vrf)));
    }

    fn permission_key(mapping: u32, remote_ip: u32) -> [u64; 2] {
        [u64::from(mapping) << 32 | u64::from(remote_ip), 6]
    }

    /// Has the mapping sent to this address (RFC 4787 §5, address-dependent filtering)?
    pub(crate) fn is_permitted(&self, mapping: u32, remote_ip: u32) -> bool {
        self.find_permission(mapping, remote_ip).is_some()
    }

    fn find_permission(&self, mapping: u32, remote_ip: u32) -> Option<u32> {
        let permissions = self.permissions.as_ref()?;
        permissions.index.find(self.hash(Self::permission_key(mapping, remote_ip)), |id| {
            permissions.lines.get(id).is_some_and(|p| p.mapping == mapping && p.remote_ip == remote_ip)
        })
    }

    /// Permits the remote address of a session that was made before permissions were kept.
    pub(crate) fn permit_session(&mut self, id: u32) {
        let Some(line) = self.sessions.get(id).filter(|line| line.flags & PERMITTED == 0) else { return };
        if self.permit(line.mapping, line.remote_ip).is_some()
            && let Some(line) = self.sessions.get_mut(id)
        {
            line.flags |= PERMITTED;
        }
    }

    fn permit(&mut self, mapping: u32, remote_ip: u32) -> Option<u32> {
        if let Some(id) = self.find_permission(mapping, remote_ip) {
            self.permissions.as_mut()?.lines.get_mut(id)?.sessions += 1;
            return Some(id);
        }
        let hash = self.hash(Self::permission_key(mapping, remote_ip));
        let permissions = self.permissions.as_mut()?;
        let id = permissions.lines.alloc(Permission { mapping, remote_ip, sessions: 1 })?;
        if permissions.index.insert(hash, id).is_err() {
            permissions.lines.free(id);
            return None;
        }
        Some(id)
    }

    fn revoke(&mut self, mapping: u32, remote_ip: u32) {
        let Some(id) = self.find_permission(mapping, remote_ip) else { return };
        let Some(line) = self.permissions.as_mut().and_then(|p| p.lines.get_mut(id)) else { return };
        line.sessions = line.sessions.saturating_sub(1);
        if line.sessions > 0 {
            return;
        }
        let key = Self::permission_key(line.mapping, line.remote_ip);
        let hash = self.hash(key);
        if let Some(permissions) = self.permissions.as_mut() {
            permissions.index.remove(hash, id);
            permissions.lines.free(id);
        }
    }

    /// All bytes taken.
    pub(crate) const fn bytes(&self) -> usize {
        self.arena_bytes
    }

    pub(crate) fn memory(&self, rows: &mut Vec<MemoryRow>) {
        let backing = self.backing;
        let mut row = |table, total: usize, used: usize, bytes: usize| {
            rows.push(MemoryRow::new(table, (total, used, bytes), backing));
        };
        row("sessions", self.sessions.capacity(), self.sessions.len(), self.sessions.bytes());
        let index = &self.session_index;
        row("session-index", index.capacity(), index.len(), index.bytes());
        let timers = Deadlines::bytes_for(self.sessions.capacity());
        row("session-timers", self.sessions.capacity(), self.sessions.len(), timers);
        row("mappings", self.mappings.capacity(), self.mappings.len(), self.mappings.bytes());
        let index = &self.mapping_index;
        row("mapping-index", index.capacity(), index.len(), index.bytes());
        row("subscribers", self.subscribers.capacity(), self.subscribers.len(), self.subscribers.bytes());
        let index = &self.subscriber_index;
        row("subscriber-index", index.capacity(), index.len(), index.bytes());
        if let Some(Hosts { lines, index, backing }) = &self.hosts {
            let figures = (lines.capacity(), lines.len(), lines.bytes() + index.bytes());
            rows.push(MemoryRow::new("hosts", figures, *backing));
        }
        rows.extend(self.pins.iter().map(Pins::memory));
        if let Some(Permissions { lines, index, backing }) = &self.permissions {
            let figures = (lines.capacity(), lines.len(), lines.bytes() + index.bytes());
            rows.push(MemoryRow::new("permissions", figures, *backing));
        }
    }
}
