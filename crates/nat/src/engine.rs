//! The engine of one worker: lookup and translation of packets that belong to a session. What makes, ends and shows
//! sessions is in `create`, `expire` and `manage`.

use core::net::IpAddr;
use std::mem;
use std::sync::Arc;

use carrack_base::{InstanceId, Now, Proto, REASONS, Reason, VrfId, WorkerId};
use carrack_tables::{ArenaError, KeyedHasher, PagePreference, SweepPacer};
use carrack_wire::tcp::flag;

use crate::arrivals::Arrival;
use crate::change::Transition;
use crate::directory::Directory;
use crate::esp::{WAITING_MAX, Waiting};
use crate::expectations::Expectations;
use crate::flow::{Direction, Flow, Kind};
use crate::instances::Slots;
use crate::line::{HAIRPIN, NONE, REFRESH_IN, Session};
use crate::mediate::Controls;
use crate::ownership::WorkerGroup;
use crate::policy::{Capacity, Instance, NatPolicy};
use crate::pool::Ports;
use crate::reconfigure::Laying;
use crate::renew::Renewal;
use crate::rewrite::translate;
use crate::rng::Rng;
use crate::row::{NatEvent, NatNews, TcpState, v4};
use crate::syn::{OverdueSyn, SynTable};
use crate::tables::{Ending, Tables};
use crate::tcp::next_state;
use crate::way::Way;

/// Events kept until the control plane takes them; more are counted as lost.
const EVENTS_MAX: usize = 4_096;
/// Room for them, and for as many that are gone: what is behind those moves once for so many events.
const EVENTS_ROOM: usize = 2 * EVENTS_MAX;
/// Lines swept for expiry in one call at most: bounds the time added to a burst.
pub(crate) const SWEEP_LINES_MAX: usize = 16_384;
/// Sessions ended in one call at most: bounds it where many end at once. A quarter more than a burst makes, so that what is owed is
/// caught up; some 35 us on the slowest host met (ADR 4).
const ENDS_MAX: usize = 80;

/// What became of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Rewritten; goes on to be routed.
    Translated {
        /// Its session's line.
        line: u32,
        /// Did this packet make the session?
        created: bool,
        /// Routing instance it continues in.
        vrf: VrfId,
        /// Its destination is an outside endpoint of this NAT: it comes in again.
        hairpin: bool,
    },
    /// Of a session between IPv6 and IPv4: the frame is as it was, a translator of headers takes it on by
    /// [`Nat::way`] of this line.
    Crosses {
        /// Its session's line; [`NONE`] for an ICMP error of which only the mapping is known. An error's way is
        /// [`Nat::way_of_error`].
        line: u32,
        /// Did this packet make the session?
        created: bool,
        /// Routing instance it continues in.
        vrf: VrfId,
        /// Its destination is an outside endpoint of this NAT: it comes in again.
        hairpin: bool,
    },
    /// No business of the NAT; goes on as it is.
    Untouched,
    /// Dropped.
    Drop(Reason),
    /// Kept by the engine for a while (RFC 5382 REQ-4); it comes back by [`Nat::next_overdue_syn`] or is absorbed.
    Held,
}

/// State of one instance beside its policy.
#[derive(Debug)]
pub(crate) struct InstanceState {
    pub(crate) ports: Ports,
    /// Refusals since the last event, by reason.
    pub(crate) refused: Vec<u32>,
    pub(crate) refused_last: IpAddr,
    pub(crate) above_threshold: bool,
    /// Was the event of [`Instance::pool_ports_threshold`] raised?
    pub(crate) above_ports: bool,
}

impl InstanceState {
    pub(crate) fn new(
        instance: &Instance,
        worker: WorkerId,
        group: &WorkerGroup,
        pages: PagePreference,
    ) -> Result<Self, ArenaError> {
        Ok(Self {
            ports: Ports::new(instance, worker, group, pages)?,
            refused: vec![0; REASONS.len()],
            refused_last: v4(0),
            above_threshold: false,
            above_ports: false,
        })
    }
}

/// Events waiting for the logging thread, in the form it gets them in, so that sending is one copy of many.
#[derive(Debug)]
pub(crate) struct Events {
    /// Those from `taken` to `end` wait, in order. What is emptied as a whole begins anew at its start: the same few lines of
    /// memory for each burst.
    all: Box<[NatNews]>,
    taken: usize,
    /// Those before it have their time.
    dated: usize,
    end: usize,
    lost: u64,
}

impl Events {
    fn new() -> Self {
        let nothing = NatEvent::AddressBound { instance: InstanceId(0), inside: v4(0), outside: 0 };
        let nothing = NatNews { at_ns: 0, event: nothing };
        Self { all: vec![nothing; EVENTS_ROOM].into(), taken: 0, dated: 0, end: 0, lost: 0 }
    }

    /// False when there was no room.
    #[inline(always)]
    pub(crate) fn push(&mut self, event: NatEvent) -> bool {
        self.room().map(|place| *place = event).is_some()
    }

    /// Where the next event goes; what asks for it first and then makes the event has nothing to keep meanwhile.
    #[inline(always)]
    pub(crate) fn room(&mut self) -> Option<&mut NatEvent> {
        if self.end >= EVENTS_MAX && !self.has_room() {
            return None;
        }
        let place = self.all.get_mut(self.end)?;
        self.end += 1;
        Some(&mut place.event)
    }

    #[cold]
    fn has_room(&mut self) -> bool {
        if self.end - self.taken >= EVENTS_MAX {
            self.lost += 1;
            return false;
        }
        if self.end == EVENTS_ROOM {
            self.all.copy_within(self.taken..self.end, 0);
            self.dated = self.dated.saturating_sub(self.taken);
            self.end -= mem::take(&mut self.taken);
        }
        true
    }

    const fn is_empty(&self) -> bool {
        self.taken == self.end
    }

    /// Those that wait; new ones are of now.
    fn waiting(&mut self, now: Now) -> &[NatNews] {
        for news in self.all.get_mut(self.dated..self.end).unwrap_or_default() {
            news.at_ns = now.ns;
        }
        self.dated = self.end;
        self.all.get(self.taken..self.end).unwrap_or_default()
    }

    fn take(&mut self, count: usize) {
        self.taken += count;
        if self.taken >= self.end {
            (self.taken, self.dated, self.end) = (0, 0, 0);
        }
    }
}

/// One worker's NAT.
#[derive(Debug)]
pub struct Nat {
    pub(crate) worker: WorkerId,
    pub(crate) group: Arc<WorkerGroup>,
    pub(crate) pages: PagePreference,
    pub(crate) policy: Arc<NatPolicy>,
    pub(crate) directory: Directory,
    pub(crate) tables: Tables,
    pub(crate) states: Vec<InstanceState>,
    pub(crate) syns: SynTable,
    pub(crate) rng: Rng,
    pub(crate) events: Events,
    pub(crate) pacer: SweepPacer,
    pub(crate) swept_at_ns: u64,
    /// Did the last call of [`Nat::expire`] leave something that is due?
    pub(crate) behind: bool,
    pub(crate) second_s: u32,
    /// SYNs absorbed since the pipeline last asked.
    pub(crate) absorbed: u64,
    /// Due lines of one sweep; reused.
    pub(crate) due: Vec<u32>,
    /// What is known of their ends.
    pub(crate) ends: Vec<Ending>,
    /// Packets of this burst that will probably need a session.
    pub(crate) expected: Vec<Arrival>,
    /// Of the last ICMP error between IPv6 and IPv4.
    pub(crate) error_way: Way,
    /// Did a forward rule find the mapping table full?
    pub(crate) forwards_missing: bool,
    /// Forward rules on their way into force.
    pub(crate) laying: Option<Laying>,
    /// What sessions have still to learn of the policy in force.
    pub(crate) renewal: Renewal,
    /// The policy that shall be in force next.
    pub(crate) transition: Option<Transition>,
    /// Which instance a line's slot stands for.
    pub(crate) slots: Slots,
    /// Only once some instance has a gateway, as the next one.
    pub(crate) controls: Option<Box<Controls>>,
    pub(crate) expectations: Option<Box<Expectations>>,
    /// Hosts whose tunnels have not been answered yet.
    pub(crate) waiting: Vec<Waiting>,
}

impl Nat {
    /// Builds the tables and configures them.
    ///
    /// `group` is the same for all workers of a daemon: they must agree on who owns what.
    ///
    /// # Errors
    /// When memory for the tables cannot be had.
    pub fn new(
        worker: WorkerId,
        group: Arc<WorkerGroup>,
        capacity: Capacity,
        pages: PagePreference,
        policy: Arc<NatPolicy>,
        now: Now,
    ) -> Result<Self, ArenaError> {
        let hasher = KeyedHasher::new(group.seed());
        let mut this = Self {
            worker,
            pages,
            policy: Arc::new(NatPolicy::default()),
            directory: Directory::new(&NatPolicy::default(), &group),
            tables: Tables::new(capacity, hasher.clone(), pages)?,
            states: Vec::new(),
            syns: SynTable::new(capacity.held_syns, hasher.clone(), pages)?,
            rng: Rng::new(hasher.hash2(0x5eed, u64::from(worker.0))),
            group,
            events: Events::new(),
            pacer: SweepPacer::new(1_000_000_000, SWEEP_LINES_MAX),
            swept_at_ns: now.ns,
            behind: false,
            second_s: now.s(),
            absorbed: 0,
            due: vec![0; ENDS_MAX],
            ends: Vec::with_capacity(ENDS_MAX),
            expected: Vec::with_capacity(carrack_base::BURST_PACKETS_MAX),
            error_way: Way::default(),
            forwards_missing: false,
            laying: None,
            renewal: Renewal::NOTHING,
            transition: None,
            slots: Slots::default(),
            controls: None,
            expectations: None,
            waiting: Vec::with_capacity(WAITING_MAX),
        };
        this.configure(policy, now)?;
        Ok(this)
    }

    /// Bytes that the tables of a capacity take; what a budget prints before anything is reserved.
    #[must_use]
    pub fn bytes_for(capacity: Capacity) -> usize {
        Tables::bytes_for(capacity)
    }

    /// Who owns which address: for steering between workers.
    #[must_use]
    pub const fn directory(&self) -> &Directory {
        &self.directory
    }

    /// The policy in force.
    #[must_use]
    pub const fn policy(&self) -> &Arc<NatPolicy> {
        &self.policy
    }

    /// The hash a packet's session is found by.
    #[inline]
    #[must_use]
    pub fn hash(&self, flow: &Flow, direction: Direction) -> u64 {
        self.tables.session_hash(flow, direction)
    }

    /// First fetch: the index bucket.
    #[inline(always)]
    pub fn prefetch_bucket(&self, hash: u64) {
        self.tables.session_index.prefetch(hash);
    }

    /// Second fetch: the likely session line, which is returned ([`NONE`] when the bucket has none).
    #[inline(always)]
    #[must_use]
    pub fn prefetch_line(&self, hash: u64) -> u32 {
        let Some(line) = self.tables.session_index.candidate(hash) else { return NONE };
        self.tables.sessions.prefetch(line);
        line
    }

    /// To be called when a burst has been processed: what it made can be found from outside now.
    #[inline]
    pub fn settle(&mut self) {
        self.tables.settle();
        if std::mem::take(&mut self.tables.unentered) > 0 {
            self.note_refusal(0, v4(0), Reason::NatIndexFull);
        }
    }

    /// Handles one packet. `hash` is [`Nat::hash`] of the same flow and direction, `line` what
    /// [`Nat::prefetch_line`] gave (or [`NONE`]). The frame is changed only when the verdict is `Translated`.
    ///
    /// `routed_outside` tells whether an untranslated packet would leave by an outside interface; asked only when no
    /// session exists.
    #[inline]
    #[allow(clippy::too_many_arguments, reason = "the one call of the packet path: all in registers")]
    pub fn process(
        &mut self,
        flow: &Flow,
        direction: Direction,
        hash: u64,
        line: u32,
        frame: &mut [u8],
        now: Now,
        routed_outside: impl FnOnce(VrfId, u32) -> bool,
    ) -> Verdict {
        let common = flow.kind != Kind::IcmpError;
        match self.tables.sessions.get_mut(line) {
            Some(session) if common && session.is_of(flow, direction) => {
                let verdict = hit(session, line, flow, direction, frame, now);
                if is_tcp_event(session, flow) {
                    self.tcp_transition(line, flow.bits, direction, now.s());
                }
                verdict
            }
            _ => self.process_uncommon(flow, direction, hash, frame, now, routed_outside),
        }
    }

    /// The same when the likely line was not the session: look properly, make one, or carry an ICMP error.
    fn process_uncommon(
        &mut self,
        flow: &Flow,
        direction: Direction,
        hash: u64,
        frame: &mut [u8],
        now: Now,
        routed_outside: impl FnOnce(VrfId, u32) -> bool,
    ) -> Verdict {
        if flow.kind == Kind::IcmpError || direction == Direction::In {
            self.tables.settle();
        }
        if flow.kind == Kind::IcmpError {
            return self.icmp_error(flow, direction, frame, routed_outside);
        }
        let found = self.tables.find_session(hash, flow, direction);
        let made = match found {
            Some(id) => Ok(id),
            None => self.miss(flow, direction, frame, now, routed_outside),
        };
        let id = match made {
            Ok(id) => id,
            Err(verdict) => return verdict,
        };
        // Invariant: `id` is a live line, found or made just now.
        let Some(session) = self.tables.sessions.get_mut(id) else {
            return Verdict::Drop(Reason::NatNoMapping);
        };
        let verdict = hit(session, id, flow, direction, frame, now);
        match (found, verdict) {
            (None, Verdict::Translated { line, vrf, hairpin, .. }) => {
                Verdict::Translated { line, created: true, vrf, hairpin }
            }
            (None, Verdict::Crosses { line, vrf, hairpin, .. }) => {
                Verdict::Crosses { line, created: true, vrf, hairpin }
            }
            _ => {
                if is_tcp_event(session, flow) {
                    self.tcp_transition(id, flow.bits, direction, now.s());
                }
                verdict
            }
        }
    }

    /// A TCP segment that may change the session's state.
    #[cold]
    pub(crate) fn tcp_transition(&mut self, id: u32, bits: u8, direction: Direction, now_s: u32) {
        let Self { tables, policy, slots, .. } = self;
        let Some(session) = tables.sessions.get_mut(id) else { return };
        let Some(instance) = policy.instances.get(slots.at(session.slot)) else { return };
        let (old, new) = (session.tcp(), next_state(session.tcp(), bits, direction));
        session.tcp = new as u8;
        // RFC 7857 §2.2: a RST starts its timer once; it does not keep a session alive for ever (RFC 7857 §7.1), in no state.
        let is_idle = old == new && (old == TcpState::Reset || bits & flag::RST != 0);
        let refreshes = direction == Direction::Out || session.flags & REFRESH_IN != 0;
        if (refreshes && !is_idle) || old != new {
            session.seen_s = now_s;
        }
        if old != new {
            let deadline = session.seen_s.saturating_add(idle_timeout_s(instance, session));
            tables.deadlines.set(id, deadline);
        }
    }

    /// Does no event wait?
    #[must_use]
    pub const fn is_quiet(&self) -> bool {
        self.events.is_empty()
    }

    /// Events for the logging thread, in order, until they are [taken](Self::take_events). Those that nobody has looked at
    /// get this time.
    #[must_use]
    pub fn events(&mut self, now: Now) -> &[NatNews] {
        self.events.waiting(now)
    }

    /// The first `count` events have gone their way.
    pub fn take_events(&mut self, count: usize) {
        self.events.take(count);
    }

    /// Events lost because the logging thread was slow, since start.
    #[must_use]
    pub const fn events_lost(&self) -> u64 {
        self.events.lost
    }

    /// SYNs held now.
    #[must_use]
    pub fn held_syns(&self) -> u64 {
        self.syns.len() as u64
    }

    /// Held SYNs absorbed by a matching SYN from inside since the last call (RFC 5382 REQ-4).
    pub fn take_absorbed(&mut self) -> u64 {
        std::mem::take(&mut self.absorbed)
    }

    /// The next of those absorbed, for who watches drops. Some of a great many may be missing.
    pub fn next_absorbed(&mut self) -> Option<OverdueSyn> {
        self.syns.absorbed.pop_front()
    }

    pub(crate) fn instance(&self, id: InstanceId) -> Option<&Instance> {
        self.policy.instances.get(id.index())
    }
}

/// May this packet change the session's TCP state?
#[inline(always)]
fn is_tcp_event(session: &Session, flow: &Flow) -> bool {
    flow.proto == Proto::Tcp
        && flow.kind == Kind::Whole
        && (flow.bits & (flag::SYN | flag::FIN | flag::RST) != 0
            || session.tcp != TcpState::Established as u8)
}

/// Translates a packet of a session, counts it and, unless its TCP state has a say in that, refreshes the session:
/// RFC 4787 REQ-6, REQ-6a. What a filter refuses has no session, so it refreshes nothing (RFC 7857 §7).
#[inline(always)]
fn hit(
    session: &mut Session,
    line: u32,
    flow: &Flow,
    direction: Direction,
    frame: &mut [u8],
    now: Now,
) -> Verdict {
    let refreshes = (direction == Direction::Out) | (session.flags & REFRESH_IN != 0);
    if refreshes && !is_tcp_event(session, flow) {
        session.seen_s = now.s();
    }
    let crosses = session.is_six();
    if !crosses {
        translate(session, flow, direction, frame);
    }
    let vrf = match direction {
        Direction::Out => {
            session.packets_out = session.packets_out.wrapping_add(1);
            session.outside_vrf
        }
        Direction::In => {
            session.packets_in = session.packets_in.wrapping_add(1);
            session.inside_vrf
        }
    };
    let hairpin = direction == Direction::Out && session.flags & HAIRPIN != 0;
    if crosses {
        return Verdict::Crosses { line, created: false, vrf: VrfId(vrf), hairpin };
    }
    Verdict::Translated { line, created: false, vrf: VrfId(vrf), hairpin }
}

/// How long the session may be idle in its present state.
#[inline(always)]
pub(crate) fn idle_timeout_s(instance: &Instance, session: &Session) -> u32 {
    let timeouts = &instance.timeouts;
    match session.proto() {
        Proto::Tcp => match session.tcp() {
            TcpState::InsideInit | TcpState::OutsideInit => timeouts.tcp_opening_s,
            TcpState::BothFin => timeouts.tcp_closing_s,
            TcpState::Reset => timeouts.tcp_reset_s,
            // RFC 5382 REQ-5: established, and half closed, for as long as data may flow.
            TcpState::None | TcpState::Established | TcpState::InsideFin | TcpState::OutsideFin => {
                timeouts.tcp_established_s
            }
        },
        // RFC 4787 REQ-5a: shorter for well-known destination ports that config names.
        Proto::Udp => {
            let known = timeouts.udp_port_s.iter().find(|(port, _)| *port == session.remote_port);
            known.map_or(timeouts.udp_s, |(_, s)| *s)
        }
        Proto::Icmp => timeouts.icmp_s,
        Proto::Other => timeouts.other_s,
    }
}
