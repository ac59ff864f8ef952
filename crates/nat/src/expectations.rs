//! Connections that a gateway expects: mappings made before anybody uses them, with a time of their own, and who may come
//! although no session lets him.

use carrack_alg::{From, Want};
use carrack_base::{Now, Reason};
use carrack_tables::{Arena, ArenaError, Backing, Index, KeyedHasher, PagePreference, Slab, SweepPacer};

use crate::engine::Nat;
use crate::flow::{Direction, Flow, Kind};
use crate::line::{EXPECTED, Mapping, Session};
use crate::policy::Mapping as MappingBehaviour;
use crate::row::{Endpoint, MemoryRow};

/// Lines looked at in one call at most.
const SWEEP_LINES_MAX: usize = 1_024;

/// One expectation: any number of them may be on one mapping.
#[derive(Debug, Clone, Copy, Default)]
struct Expectation {
    mapping: u32,
    /// Who may come; 0 is anybody.
    remote_ip: u32,
    expires_s: u32,
    subscriber: u32,
    /// What it is a part of, and ends with; 0 is nothing.
    dialog: u32,
    /// Connections it is still good for; 0 is any number.
    uses: u16,
}

/// Control connections that are waited for, at most: the oldest is forgotten.
const AWAITED_MAX: usize = 64;
/// How long one is waited for.
const AWAITED_S: u32 = 120;

/// Where a control connection that another one has spoken of goes to.
#[derive(Debug, Clone, Copy, Default)]
struct Awaited {
    server: Endpoint,
    until_s: u32,
}

/// Entries of the index for each line: by mapping and by dialog.
const KEYS: usize = 2;

/// All expectations of a worker.
#[derive(Debug)]
pub(crate) struct Expectations {
    lines: Slab<Expectation>,
    index: Index,
    hasher: KeyedHasher,
    pacer: SweepPacer,
    cursor: u32,
    awaited: [Awaited; AWAITED_MAX],
    /// Where the next one is noted.
    awaited_at: usize,
    /// Until when there is any: nothing is looked for later.
    awaited_until_s: u32,
    backing: Backing,
}

impl Expectations {
    /// Bytes that so many take.
    pub(crate) const fn bytes_for(count: usize) -> usize {
        Slab::<Expectation>::bytes_for(count) + Index::bytes_for(KEYS * count)
    }

    pub(crate) fn new(count: usize, hasher: KeyedHasher, pages: PagePreference) -> Result<Self, ArenaError> {
        let mut arena = Arena::new("nat-expectations", Self::bytes_for(count), pages)?;
        Ok(Self {
            backing: arena.backing(),
            lines: Slab::new(&mut arena, count)?,
            index: Index::new(&mut arena, KEYS * count)?,
            hasher,
            pacer: SweepPacer::new(1_000_000_000, SWEEP_LINES_MAX),
            cursor: 0,
            awaited: [Awaited::default(); AWAITED_MAX],
            awaited_at: 0,
            awaited_until_s: 0,
        })
    }

    pub(crate) fn memory(&self) -> MemoryRow {
        let figures = (self.lines.capacity(), self.lines.len(), self.lines.bytes() + self.index.bytes());
        MemoryRow::new("gateway-expectations", figures, self.backing)
    }

    fn hash(&self, mapping: u32) -> u64 {
        self.hasher.hash2(u64::from(mapping), 7)
    }

    fn find(&self, mapping: u32, matches: impl Fn(&Expectation) -> bool) -> Option<u32> {
        self.index.find(self.hash(mapping), |id| {
            self.lines.is_live(id)
                && self.lines.get(id).is_some_and(|line| line.mapping == mapping && matches(line))
        })
    }

    fn dialog_hash(&self, subscriber: u32, dialog: u32) -> u64 {
        self.hasher.hash2(u64::from(subscriber) << 32 | u64::from(dialog), 9)
    }

    fn find_dialog(&self, subscriber: u32, dialog: u32) -> Option<u32> {
        self.index.find(self.dialog_hash(subscriber, dialog), |id| {
            let is_its = |line: &Expectation| line.dialog == dialog && line.subscriber == subscriber;
            self.lines.is_live(id) && self.lines.get(id).is_some_and(is_its)
        })
    }

    /// Adds one, or renews the one for the same remote.
    fn add(&mut self, mut line: Expectation) -> bool {
        if let Some(id) = self.find(line.mapping, |known| known.remote_ip == line.remote_ip) {
            self.remove(id);
        }
        let hash = self.hash(line.mapping);
        let by_dialog = self.dialog_hash(line.subscriber, line.dialog);
        let Some(id) = self.lines.alloc(line) else { return false };
        if self.index.insert(hash, id).is_err() {
            self.lines.free(id);
            return false;
        }
        if line.dialog != 0 && self.index.insert(by_dialog, id).is_err() {
            // More than one index entry can hold: it ends by its time.
            line.dialog = 0;
            if let Some(known) = self.lines.get_mut(id) {
                *known = line;
            }
        }
        true
    }

    fn remove(&mut self, id: u32) {
        if let Some(line) = self.lines.get(id).copied() {
            self.index.remove(self.hash(line.mapping), id);
            if line.dialog != 0 {
                self.index.remove(self.dialog_hash(line.subscriber, line.dialog), id);
            }
            self.lines.free(id);
        }
    }

    /// The mapping is gone, and so is whatever was expected of it.
    pub(crate) fn forget(&mut self, mapping: u32) {
        while let Some(id) = self.find(mapping, |_| true) {
            self.remove(id);
        }
    }
}

impl Nat {
    /// Gives a port of the host inside `session` an outside endpoint and lets in who is wanted. It is a mapping like any
    /// other: of the subscriber's ports, within its limits.
    pub(crate) fn expect(&mut self, session: &Session, want: &Want, now: Now) -> Result<Endpoint, Reason> {
        // What is made now might not stay: the client asks again.
        if self.is_changing() {
            return Err(Reason::NatPoolChanging);
        }
        let policy = self.policy.clone();
        let instance = policy.instances.get(self.slots.at(session.slot)).ok_or(Reason::NatNoInstance)?;
        let six = session.is_six();
        let flow = Flow {
            src: if six { 0 } else { session.inside_ip },
            src6: if six { session.inside6() } else { 0 },
            via: session.via(),
            sport: want.inside_port,
            dst: session.remote_ip,
            vrf: instance.inside_vrf,
            proto: want.proto,
            kind: Kind::Whole,
            ..Flow::default()
        };
        let inside = self.inside_endpoint(&flow);
        let shared = inside.and_then(|inside| {
            self.tables.find_mapping_of(inside, flow.vrf, flow.proto, Direction::Out, six)
        });
        let is_own = want.proto == session.proto() && want.inside_port == session.inside_port;
        let mapping = match shared {
            _ if is_own => session.mapping,
            Some(mapping) => mapping,
            None => {
                self.tables.has_room(true)?;
                self.tables.settle();
                let subscriber = self.subscriber_for(instance, flow.inside())?;
                // Whatever the behaviour: packets from inside are to use it as well.
                let behaviour = MappingBehaviour::EndpointIndependent;
                self.new_mapping_of(instance, subscriber, inside, &flow, behaviour, want.pair, now)?
            }
        };
        let line = Expectation {
            mapping,
            remote_ip: if want.from == From::Remote { session.remote_ip } else { 0 },
            expires_s: now.s().saturating_add(want.lifetime_s.into()),
            subscriber: session.subscriber,
            dialog: want.dialog,
            uses: want.uses,
        };
        let is_static = self.tables.mappings.get(mapping).is_some_and(Mapping::is_static);
        if !is_static {
            if !self.expectations.as_mut().is_some_and(|expectations| expectations.add(line)) {
                self.drop_mapping_if_unused(mapping, now.s());
                return Err(Reason::NatMappingTableFull);
            }
            if let Some(mapping) = self.tables.mappings.get_mut(mapping) {
                mapping.flags |= EXPECTED;
            }
        }
        self.tables.mappings.get(mapping).map(Mapping::outside).ok_or(Reason::NatNoMapping)
    }

    /// A connection to this outside endpoint is a control connection.
    pub(crate) fn await_control(&mut self, server: Endpoint, now_s: u32) {
        let Some(expectations) = self.expectations.as_mut() else { return };
        let until_s = now_s.saturating_add(AWAITED_S);
        if let Some(place) = expectations.awaited.get_mut(expectations.awaited_at) {
            *place = Awaited { server, until_s };
        }
        expectations.awaited_at = (expectations.awaited_at + 1) % AWAITED_MAX;
        expectations.awaited_until_s = until_s;
    }

    /// Is a connection to this outside endpoint one that a control connection has spoken of?
    pub(crate) fn is_awaited(&self, server: Endpoint, now_s: u32) -> bool {
        let Some(expectations) = self.expectations.as_ref().filter(|e| e.awaited_until_s > now_s) else {
            return false;
        };
        expectations.awaited.iter().any(|awaited| awaited.server == server && awaited.until_s > now_s)
    }

    /// Is this sender expected?
    pub(crate) fn is_expected(&self, mapping: u32, flow: &Flow) -> bool {
        self.expectation_for(mapping, flow).is_some()
    }

    fn expectation_for(&self, mapping: u32, flow: &Flow) -> Option<u32> {
        let expectations = self.expectations.as_ref()?;
        self.tables.mappings.get(mapping).filter(|line| line.flags & EXPECTED != 0)?;
        expectations.find(mapping, |line| line.remote_ip == 0 || line.remote_ip == flow.src)
    }

    /// A session has come of it: one that is good for no more ends (RFC 6384 §7.2).
    pub(crate) fn take_expected(&mut self, mapping: u32, flow: &Flow, now_s: u32) {
        let Some(id) = self.expectation_for(mapping, flow) else { return };
        let Some(line) = self.expectations.as_mut().and_then(|e| e.lines.get_mut(id)) else { return };
        match line.uses {
            0 => {}
            1 => self.end_expectation(id, now_s),
            _ => line.uses -= 1,
        }
    }

    fn end_expectation(&mut self, id: u32, now_s: u32) {
        let Some(expectations) = self.expectations.as_mut() else { return };
        let Some(mapping) = expectations.lines.get(id).map(|line| line.mapping) else { return };
        expectations.remove(id);
        if expectations.find(mapping, |_| true).is_some() {
            return;
        }
        if let Some(line) = self.tables.mappings.get_mut(mapping) {
            line.flags &= !EXPECTED;
        }
        self.drop_mapping_if_unused(mapping, now_s);
    }

    /// Ends what a dialog of the subscriber's still expects; what has come of it goes on.
    pub(crate) fn end_dialog(&mut self, subscriber: u32, dialog: u32, now_s: u32) {
        while let Some(id) =
            self.expectations.as_ref().and_then(|known| known.find_dialog(subscriber, dialog))
        {
            self.end_expectation(id, now_s);
        }
    }

    /// Ends those whose time is over, a bounded share of the table a call.
    pub(crate) fn sweep_expectations(&mut self, elapsed_ns: u64, now_s: u32) {
        let Some(expectations) = self.expectations.as_mut().filter(|e| !e.lines.is_empty()) else { return };
        let capacity = expectations.lines.capacity();
        for _ in 0..expectations.pacer.lines_due(capacity, elapsed_ns) {
            let Some(expectations) = self.expectations.as_mut() else { return };
            let id = expectations.cursor;
            expectations.cursor = if (id as usize) + 1 < capacity { id + 1 } else { 0 };
            let is_due = expectations.lines.is_live(id)
                && expectations.lines.get(id).is_some_and(|line| line.expires_s <= now_s);
            if is_due {
                self.end_expectation(id, now_s);
            }
        }
    }

    /// Ends all: the ports they have may not be theirs any longer.
    pub(crate) fn end_expectations(&mut self, now_s: u32) {
        let mut cursor = 0;
        while let Some(id) =
            self.expectations.as_ref().and_then(|e| Some(e.lines.iter_from(cursor).next()?.0))
        {
            cursor = id + 1;
            self.end_expectation(id, now_s);
        }
    }
}
