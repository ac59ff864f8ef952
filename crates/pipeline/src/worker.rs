//! One worker: all state of its subscribers, and the list of stages that a burst goes through.

use std::net::IpAddr;
use std::sync::Arc;

use carrack_base::counters::Accounts;
use carrack_base::{BURST_PACKETS_MAX, Family, IfIndex, Now, PortId, Reason, WorkerId};
use carrack_frame::{Frame, FramePool};
use carrack_nat::{Direction, Nat, Rng, WorkerGroup};
use carrack_tables::{ArenaError, KeyedHasher, PagePreference, cycles};
use carrack_vector::Quads;

use crate::background::Deletion;
use crate::burst::{Burst, Fate, Handover, Meta, Resume};
use crate::dump::Dumps;
use crate::express::{Entry, Lane};
use crate::forward::Refused;
use crate::fragments::{Fragments, Outcome};
use crate::mailbox::{CapturePoint, Command, Event, NatNews, PacketReceiver, PacketSender, TraceOutcome};
use crate::neighbours::Neighbours;
use crate::parse::{Parsed, SourceRoute, parse, parse_common, source_route};
use crate::parse6::check_path6;
use crate::pieces::Pieces;
use crate::plan::{Hop, Plan};
use crate::policer::Buckets;
use crate::reload::{Next, Taken};
use crate::snapshot::{Side, WorkerSizes};
use crate::stats::{SAMPLE_EVERY, Stage, WorkerStats};
use crate::taps::Taps;
use crate::translators::Translators;

/// Packets one port's transmit queue holds between two calls of [`Worker::tx`]: a burst and what it may release.
pub const TX_QUEUE_PACKETS: usize = 512;

/// A worker's ends of its rings.
pub struct WorkerMail {
    /// Commands down.
    pub commands: rtrb::Consumer<Command>,
    /// Events up.
    pub events: rtrb::Producer<Event>,
    /// NAT events to the logging thread.
    pub nat_events: rtrb::Producer<NatNews>,
    /// Packets up.
    pub punts: PacketSender,
    /// Packets down, to be sent as they are.
    pub host_tx: PacketReceiver,
    /// From each other worker.
    pub hand_in: Vec<rtrb::Consumer<Handover>>,
    /// To each worker by number; `None` for itself.
    pub hand_out: Vec<Option<rtrb::Producer<Handover>>>,
}

/// One worker.
pub struct Worker {
    pub(crate) id: WorkerId,
    pub(crate) workers: u8,
    pub(crate) plan: Arc<Plan>,
    /// What it will forward by next.
    pub(crate) next: Option<Next>,
    pub(crate) taken: Option<Taken>,
    pub(crate) nat: Nat,
    pub(crate) neighbours: Neighbours,
    pub(crate) fragments: Fragments,
    pub(crate) pieces: Pieces,
    pub(crate) buckets: Buckets,
    pub(crate) taps: Taps,
    pub(crate) mail: WorkerMail,
    pub(crate) accounts: Accounts,
    pub(crate) stats: WorkerStats,
    pub(crate) rng: Rng,
    /// Of the last packet that became IPv4: all differ for as long as 16 bits can (RFC 6864 §4.3).
    pub(crate) identification: u16,
    pub(crate) tx: Vec<Vec<Frame>>,
    pub(crate) dead: Vec<Frame>,
    pub(crate) dumps: Dumps,
    pub(crate) deletion: Option<Deletion>,
    /// What stateless translators have done.
    pub(crate) translators: Translators,
    /// To look at four packets at a time, where the processor can.
    pub(crate) quads: Option<Quads>,
    /// Neighbours given up by the control plane whose waiting packets are still to be ended.
    pub(crate) neighbour_gone: Vec<(IfIndex, IpAddr)>,
    rx: Vec<Frame>,
    burst: Option<Box<Burst>>,
    lane: Option<Box<Lane>>,
}

impl Worker {
    /// Builds a worker with all the memory it will ever use for packets.
    ///
    /// `group` is the same for all workers of a daemon.
    ///
    /// # Errors
    /// When the tables' memory cannot be had.
    #[allow(clippy::too_many_arguments, reason = "called once, from one place")]
    pub fn new(
        id: WorkerId,
        group: Arc<WorkerGroup>,
        plan: Arc<Plan>,
        sizes: WorkerSizes,
        pages: PagePreference,
        mail: WorkerMail,
        now: Now,
    ) -> Result<Self, ArenaError> {
        let (hasher, workers) = (KeyedHasher::new(group.seed()), group.workers());
        let WorkerSizes { nat, neighbours, held_for_neighbour } = sizes;
        let mut rng = Rng::new(hasher.hash2(0xf7a6, u64::from(id.0)));
        let small = pages.for_small_tables();
        let fragment_rng = Rng::new(rng.next_u64());
        Ok(Self {
            id,
            workers,
            nat: Nat::new(id, group, nat, pages, plan.snapshot.nat.clone(), now)?,
            neighbours: Neighbours::new(neighbours, held_for_neighbour, hasher.clone(), small)?,
            fragments: Fragments::new(nat.fragments, nat.held_fragments, hasher, small, fragment_rng)?,
            pieces: Pieces::new(),
            buckets: Buckets::new(&plan.snapshot.policers, rng.next_u64(), now),
            taps: Taps::new(),
            mail,
            accounts: Accounts::default(),
            stats: WorkerStats::default(),
            identification: rng.next_u16(),
            rng,
            tx: (0..plan.port_count()).map(|_| Vec::with_capacity(TX_QUEUE_PACKETS)).collect(),
            // All that can end between two calls of `done`: what ports refuse, a burst from everybody, and
            // the datagrams whose fragments wait for one another.
            dead: Vec::with_capacity(
                TX_QUEUE_PACKETS * (plan.port_count() + 1)
                    + 2 * BURST_PACKETS_MAX * (usize::from(workers) + 2)
                    + nat.held_fragments as usize,
            ),
            dumps: Dumps::new(),
            deletion: None,
            translators: Translators::new(&plan.snapshot.siit),
            quads: Quads::detect(),
            neighbour_gone: Vec::with_capacity(1_024),
            rx: Vec::with_capacity(BURST_PACKETS_MAX),
            burst: Some(Box::new(Burst::new())),
            lane: Some(Box::new(Lane::new())),
            plan,
            next: None,
            taken: None,
        })
    }

    /// As on a processor without vector instructions; what becomes of packets is the same.
    pub fn forgo_vectors(&mut self) {
        self.quads = None;
    }

    /// Where to put received frames, at most [`BURST_PACKETS_MAX`], before [`Worker::process`].
    pub fn rx_buffer(&mut self) -> &mut Vec<Frame> {
        &mut self.rx
    }

    /// Takes what is in the receive buffer through all stages. What leaves is in [`Worker::tx`].
    pub fn process(&mut self, now: Now, port: PortId, pool: &mut dyn FramePool) {
        if self.rx.is_empty() {
            return;
        }
        // Invariant: burst and lane are only away during `process` and `take_handovers`, which do not nest.
        let (Some(mut burst), Some(mut lane)) = (self.burst.take(), self.lane.take()) else { return };
        let mut rx = std::mem::take(&mut self.rx);
        self.accounts.rx += rx.len() as u64;
        self.accounts.rx_bytes += rx.iter().map(|frame| frame.len() as u64).sum::<u64>();
        let sampled = self.stats.bursts.is_multiple_of(SAMPLE_EVERY);
        self.stats.count_burst(rx.len());
        let watched = self.taps.capturing || self.taps.tracing;
        // The first packet speaks for its burst; those of other tags take the general stages.
        let common = rx.first().and_then(|frame| self.plan.common_like(port, frame.bytes()));
        match common {
            Some(common) if common.direction.is_some() && !watched && rx.len() <= BURST_PACKETS_MAX => {
                self.express(&mut lane, &mut rx, &mut burst, &Entry { common, port, sampled, now }, pool);
            }
            _ => rx.drain(..).for_each(|frame| self.leave(frame, &mut burst)),
        }
        if burst.len > 0 {
            self.run(&mut burst, port, sampled, now, pool);
        }
        (self.burst, self.lane, self.rx) = (Some(burst), Some(lane), rx);
    }

    /// THE list of stages. Each takes the whole burst; a packet that ended is skipped by the later ones. Common packets
    /// of known sessions do not come here: `express` has them done with before.
    pub(crate) fn run(
        &mut self,
        burst: &mut Burst,
        port: PortId,
        sampled: bool,
        now: Now,
        pool: &mut dyn FramePool,
    ) {
        let mut clock = StageClock::start(sampled, burst.len);
        self.parse(burst, port, now);
        clock.lap(&mut self.stats, Stage::Parse);
        self.gather_fragments(burst, now);
        clock.lap(&mut self.stats, Stage::Fragments);
        self.steer(burst, now);
        clock.lap(&mut self.stats, Stage::Steer);
        self.translate(burst, now);
        clock.lap(&mut self.stats, Stage::Nat);
        self.forward_burst(burst, now, pool);
        clock.lap(&mut self.stats, Stage::Forward);
        self.finish(burst, now, pool);
        clock.lap(&mut self.stats, Stage::Finish);
    }

    fn parse(&mut self, burst: &mut Burst, port: PortId, now: Now) {
        for frame in burst.frames.iter().take(burst.len).flatten() {
            frame.prefetch_header();
        }
        let plan = self.plan.clone();
        let watched = self.taps.capturing || self.taps.tracing;
        let common = if watched { None } else { plan.common(port) };
        let mut link = false;
        for (frame, meta) in burst.frames.iter_mut().zip(&mut burst.meta).take(burst.len) {
            let Some(frame) = frame else { continue };
            if let Some(common) = &common
                && parse_common(common, frame.bytes(), meta)
            {
                continue;
            }
            *meta = Meta::default();
            let parsed = parse(&plan, port, frame.bytes(), meta);
            let parsed =
                if is_from_prefix(&self.nat, meta) { Err(Reason::Nat64SourceInvalid) } else { parsed };
            let parsed = parsed.and_then(|parsed| match parsed {
                Parsed::Ipv4 => check_path(&plan, frame.bytes(), meta)
                    .and_then(|()| check_options(&self.nat, &plan, frame.bytes(), meta))
                    .map(|()| parsed),
                Parsed::Ipv6 => check_path6(&plan, frame.bytes(), meta)
                    .and_then(|()| admit(&self.nat, &plan, meta))
                    .map(|()| parsed),
                Parsed::Arp | Parsed::Link6 => Ok(parsed),
            });
            if watched {
                self.watch_received(frame, meta, parsed.err(), now);
            }
            match parsed {
                Ok(Parsed::Ipv4 | Parsed::Ipv6) => {}
                Ok(Parsed::Arp) => (meta.fate, link) = (Fate::Arp, true),
                Ok(Parsed::Link6) => (meta.fate, link) = (Fate::Link6, true),
                Err(reason) => meta.fate = Fate::Dropped(reason),
            }
        }
        for at in if link { 0..burst.len } else { 0..0 } {
            self.take_link(burst, at, now);
        }
    }

    #[cold]
    fn watch_received(&mut self, frame: &Frame, meta: &mut Meta, dropped: Option<Reason>, now: Now) {
        if self.taps.capturing {
            self.taps.capture(CapturePoint::Rx, meta.ingress, Some(meta), frame.bytes(), now);
        }
        if self.taps.tracing {
            self.taps.pick(meta, frame.bytes());
            if meta.traced != 0 && dropped.is_none() {
                self.taps.step(Stage::Parse, meta.ingress, TraceOutcome::Next, meta, frame.bytes(), now);
            }
        }
    }

    /// Takes in what this link alone is concerned with, if the packet is such a one.
    #[cold]
    fn take_link(&mut self, burst: &mut Burst, at: usize, now: Now) {
        let (Some(place), Some(meta)) = (burst.frames.get_mut(at), burst.meta.get_mut(at)) else { return };
        if !matches!(meta.fate, Fate::Arp | Fate::Link6) {
            return;
        }
        let Some(frame) = place.take() else { return };
        let taken = match meta.fate {
            Fate::Arp => self.punt_arp(frame, meta, now),
            _ => self.local6(frame, meta, now),
        };
        match taken {
            Ok(()) => meta.fate = Fate::Gone,
            Err((frame, reason)) => {
                *place = Some(frame);
                meta.fate = Fate::Dropped(reason);
            }
        }
    }

    fn punt_arp(&mut self, frame: Frame, meta: &Meta, now: Now) -> Result<(), Refused> {
        let payload = frame.bytes().get(usize::from(meta.flow.l3)..).unwrap_or(&[]);
        if carrack_wire::arp::ArpPacket::parse(payload).is_err() {
            Err((frame, Reason::ArpMalformed))
        } else if !self.buckets.arp.take(now) {
            Err((frame, Reason::PuntPolicedArp))
        } else {
            self.punt(frame, meta, now)
        }
    }

    /// The fragment stage; free for bursts without fragments.
    fn gather_fragments(&mut self, burst: &mut Burst, now: Now) {
        for at in 0..burst.len {
            // RFC 7915 §4.1: a stateless translator takes fragments as they come, wherever the others of a datagram are.
            let wanted = burst.meta.get(at).is_some_and(|meta| {
                let is_one = meta.is_fragment && !meta.is_home && meta.fate == Fate::Going;
                is_one && meta.direction.is_some() && !self.plan.is_stateless(self.nat.directory(), meta)
            });
            if wanted {
                self.gather_fragment(burst, at, now);
            }
        }
    }

    #[cold]
    fn gather_fragment(&mut self, burst: &mut Burst, at: usize, now: Now) {
        let (Some(place), Some(meta)) = (burst.frames.get_mut(at), burst.meta.get_mut(at)) else { return };
        let Some(frame) = place.as_ref() else { return };
        if self.workers > 1 {
            let home = self.fragments.home(meta, frame.bytes(), self.workers);
            if home != self.id.0 {
                self.hand_over(burst, at, home, Resume::Fragments, now);
                return;
            }
        }
        let is_first = meta.flow.kind != carrack_nat::Kind::LaterFragment;
        let timeout_ms = self.plan.snapshot.fragment_timeout_ms;
        let mut head = [0; 64];
        let head_len = frame.len().min(head.len());
        if meta.traced != 0 {
            // Kept for the trace: a fragment that waits takes its frame with it.
            head[..head_len].copy_from_slice(&frame.bytes()[..head_len]);
        }
        match self.fragments.handle(place, meta, timeout_ms, now) {
            Outcome::Ready => {}
            Outcome::Waits => {
                meta.fate = Fate::Gone;
                if meta.traced != 0 {
                    let (outcome, head) = (TraceOutcome::Held, &head[..head_len]);
                    self.taps.step(Stage::Fragments, meta.ingress, outcome, meta, head, now);
                }
            }
            Outcome::TableFull => meta.fate = Fate::Dropped(Reason::FragmentTableFull),
            Outcome::QueueFull => meta.fate = Fate::Dropped(Reason::FragmentQueueFull),
            Outcome::Overlap => meta.fate = Fate::Dropped(Reason::FragmentOverlap),
        }
        let (Some(frame), Fate::Going) = (place.as_ref(), meta.fate) else { return };
        if is_first {
            self.release_fragments(burst, at);
        } else {
            self.fragments.forget_complete(meta, frame.bytes());
        }
    }

    /// Fragments that waited for this first one follow it at the end of the burst; those that find no room there, in
    /// the next one.
    fn release_fragments(&mut self, burst: &mut Burst, at: usize) {
        let Some(frame) = burst.frames.get_mut(at).and_then(Option::take) else { return };
        let meta = burst.meta.get(at).copied().unwrap_or_default();
        while burst.room() > 0 {
            let Some((next, about)) = self.fragments.next_released(&meta, frame.bytes()) else { break };
            // Invariant: there is room.
            if let Err(next) = burst.push(next, about) {
                self.discard(next, &about, Reason::FragmentQueueFull, Now::default());
            }
        }
        self.fragments.finish_first(&meta, frame.bytes());
        if let Some(place) = burst.frames.get_mut(at) {
            *place = Some(frame);
        }
    }

    /// Fragments that found no room behind their first fragment, or in the burst that made their datagram
    /// whole.
    pub(crate) fn take_ready_fragments(&mut self, now: Now, pool: &mut dyn FramePool) {
        let Some(mut burst) = self.burst.take() else { return };
        while burst.room() > 0 {
            let Some((frame, meta)) = self.fragments.next_ready() else { break };
            if let Err(frame) = burst.push(frame, meta) {
                self.discard(frame, &meta, Reason::FragmentQueueFull, now);
            }
        }
        self.resume(&mut burst, now, pool);
        self.burst = Some(burst);
    }

    /// The stages after the fragments', for packets that come in elsewhere than by a port.
    fn resume(&mut self, burst: &mut Burst, now: Now, pool: &mut dyn FramePool) {
        if burst.len == 0 && !self.fragments.has_ready() {
            return;
        }
        self.steer(burst, now);
        self.translate(burst, now);
        self.forward_burst(burst, now, pool);
        self.finish(burst, now, pool);
    }

    fn forward_burst(&mut self, burst: &mut Burst, now: Now, pool: &mut dyn FramePool) {
        let plan = self.plan.clone();
        for (_, meta) in burst.going() {
            // Of IPv6 packets an entry that nobody needs.
            plan.prefetch_route(meta.vrf, meta.destination);
        }
        for at in 0..burst.len {
            let (Some(place), Some(meta)) = (burst.frames.get_mut(at), burst.meta.get_mut(at)) else {
                continue;
            };
            if meta.fate != Fate::Going {
                continue;
            }
            let Some(frame) = place.take() else { continue };
            match self.forward_by(&plan, frame, meta, now, pool) {
                Ok(()) => meta.fate = Fate::Gone,
                Err((frame, reason)) => {
                    *place = Some(frame);
                    meta.fate = Fate::Dropped(reason);
                }
            }
        }
    }

    /// Ends the burst: counts and answers drops. Afterwards the burst is empty.
    fn finish(&mut self, burst: &mut Burst, now: Now, pool: &mut dyn FramePool) {
        for at in 0..burst.len {
            let (Some(place), Some(meta)) = (burst.frames.get_mut(at), burst.meta.get(at)) else { continue };
            let Some(frame) = place.take() else { continue };
            match meta.fate {
                Fate::Dropped(reason) => {
                    self.answer(&frame, meta, reason, now, pool);
                    self.discard(frame, meta, reason, now);
                }
                // The engine counts it as held until it absorbs or answers it.
                Fate::HeldByNat => self.dead.push(frame),
                // Invariant: every other packet has left the burst.
                Fate::Going | Fate::Gone | Fate::Arp | Fate::Link6 => {
                    self.discard(frame, meta, Reason::SnapshotStale, now)
                }
            }
        }
        burst.len = 0;
    }

    /// Counts a drop and gives the frame back.
    pub(crate) fn discard(&mut self, frame: Frame, meta: &Meta, reason: Reason, now: Now) {
        if self.taps.capturing {
            self.taps.capture(CapturePoint::Drop(reason), meta.ingress, Some(meta), frame.bytes(), now);
        }
        if meta.traced != 0 {
            self.taps.step(
                Stage::Finish,
                meta.ingress,
                TraceOutcome::Dropped(reason),
                meta,
                frame.bytes(),
                now,
            );
        }
        self.accounts.drop_n(reason, 1);
        self.dead.push(frame);
    }

    /// What shall leave by a port.
    pub fn tx(&mut self, port: PortId) -> Option<&mut Vec<Frame>> {
        self.tx.get_mut(port.index())
    }

    /// What the port did not take is dropped and counted.
    pub fn tx_failed(&mut self, port: PortId, now: Now) {
        let Some(queue) = self.tx.get_mut(port.index()) else { return };
        for frame in queue.drain(..) {
            if self.taps.capturing {
                let link = carrack_wire::vlan::parse_l2(frame.bytes()).ok();
                let interface = link.and_then(|link| self.plan.interface_of(port, link.tags()));
                let interface = interface.unwrap_or_default();
                let point = CapturePoint::Drop(Reason::TxQueueFull);
                self.taps.capture(point, interface, None, frame.bytes(), now);
            }
            self.accounts.forwarded -= 1;
            self.accounts.forwarded_bytes -= frame.len() as u64;
            self.accounts.drop_n(Reason::TxQueueFull, 1);
            self.dead.push(frame);
        }
    }

    /// Gives ended packets' frames back to the pool.
    pub fn done(&mut self, pool: &mut dyn FramePool) {
        if !self.dead.is_empty() {
            pool.free_all(&mut self.dead);
        }
    }

    /// Where every packet went, as of now: [`Accounts::balance`] is 0 between calls.
    pub fn accounts(&mut self) -> &Accounts {
        self.count_absorbed();
        self.accounts.held =
            self.fragments.held() + self.pieces.held() + self.neighbours.held() + self.nat.held_syns();
        &self.accounts
    }

    /// Held SYNs that a SYN from inside made pointless (RFC 5382 REQ-4).
    pub(crate) fn count_absorbed(&mut self) {
        let absorbed = self.nat.take_absorbed();
        self.accounts.drop_n(Reason::NatTcpSynSuperseded, absorbed);
    }

    /// The worker's figures.
    pub fn stats(&mut self) -> &WorkerStats {
        self.stats.events_lost = self.nat.events_lost();
        self.stats.captures_lost = self.taps.lost;
        self.stats.sessions = self.nat.session_count() as u64;
        self.stats.sessions_deleted = self.nat.sessions_deleted();
        self.stats.mappings = self.nat.mapping_count() as u64;
        self.stats.subscribers = self.nat.subscriber_count() as u64;
        self.stats.gateways = self.nat.gateway_counts();
        &self.stats
    }

    /// The engine, for tests and benches.
    #[must_use]
    pub const fn nat(&self) -> &Nat {
        &self.nat
    }

    /// Resumes packets that other workers handed over.
    pub(crate) fn take_handovers(&mut self, now: Now, pool: &mut dyn FramePool) {
        for from in 0..self.mail.hand_in.len() {
            let Some(mut burst) = self.burst.take() else { return };
            while burst.room() > 0 {
                let Some(Ok(handover)) = self.mail.hand_in.get_mut(from).map(rtrb::Consumer::pop) else {
                    break;
                };
                let Handover { frame, mut meta, resume } = handover;
                self.accounts.handed_in += 1;
                // Whatever a reload says meanwhile: what was handed to its owner is not handed on.
                meta.is_home = resume == Resume::Nat;
                if let Err(frame) = burst.push(frame, meta) {
                    self.discard(frame, &meta, Reason::HandoverQueueFull, now);
                }
            }
            self.gather_fragments(&mut burst, now);
            self.resume(&mut burst, now, pool);
            self.burst = Some(burst);
        }
    }
}

/// What can be said of a packet before its session is looked for: TTL, reverse path.
#[inline]
pub(crate) fn check_path(plan: &Plan, frame: &[u8], meta: &Meta) -> Result<(), Reason> {
    // First: nobody gets an error because somebody else forged his address.
    if plan.line(meta.ingress).is_some_and(|line| line.urpf) && !reverse_path_holds(plan, meta) {
        return Err(Reason::UrpfFailed);
    }
    let l3 = usize::from(meta.flow.l3);
    let ttl = frame.get(l3 + 8).copied().unwrap_or(0);
    // RFC 1812 §5.3.1: not for packets to the router itself. Before the NAT, so that a probe makes no session and its
    // error carries the packet as it was sent.
    if ttl <= 1 && plan.route(meta.vrf, meta.flow.dst) != Some(Hop::Local) {
        return Err(Reason::Ipv4TtlExpired);
    }
    Ok(())
}

/// A source route is refused wherever it leads (RFC 7126 §4.3), but for one that is at its end where a
/// translator to IPv6 leaves it out (RFC 7915 §4.1). A stateless one looks for itself; whether a NAT's host
/// has IPv6 is known when its mapping is found.
#[inline]
fn check_options(nat: &Nat, plan: &Plan, frame: &[u8], meta: &mut Meta) -> Result<(), Reason> {
    let l3 = usize::from(meta.flow.l3);
    if frame.get(l3) == Some(&0x45) {
        return Ok(());
    }
    match source_route(frame, l3) {
        None => Ok(()),
        Some(_) if plan.is_stateless(nat.directory(), meta) => Ok(()),
        Some(SourceRoute::Expired)
            if meta.direction == Some(Direction::In) && nat.may_lead_to_six(&meta.flow) =>
        {
            meta.is_six_or_refused = true;
            Ok(())
        }
        Some(_) => Err(Reason::Ipv4SourceRoute),
    }
}

/// RFC 3704 §2.2: the source would be reached by the interface the packet came from.
#[cold]
fn reverse_path_holds(plan: &Plan, meta: &Meta) -> bool {
    matches!(
        plan.route(meta.vrf, meta.flow.src),
        Some(Hop::Neighbour { interface, .. }) if interface == meta.ingress
    )
}

/// Measures the stages of a sampled burst.
pub(crate) struct StageClock {
    last: u64,
    packets: usize,
}

impl StageClock {
    pub(crate) fn start(sampled: bool, packets: usize) -> Option<Self> {
        sampled.then(|| Self { last: cycles(), packets })
    }
}

pub(crate) trait Lap {
    fn lap(&mut self, stats: &mut WorkerStats, stage: Stage);
}

impl Lap for Option<StageClock> {
    #[inline]
    fn lap(&mut self, stats: &mut WorkerStats, stage: Stage) {
        if let Some(clock) = self {
            let now = cycles();
            stats.count_stage(stage, clock.packets, now.wrapping_sub(clock.last));
            clock.last = now;
        }
    }
}

/// RFC 6146 §3.5, §5.4: does an IPv6 packet come from within a NAT64 prefix? Whatever interface it came by and whatever it is
/// to, it is dropped, and first of all: nobody is answered there.
#[inline]
fn is_from_prefix(nat: &Nat, meta: &Meta) -> bool {
    meta.family == Family::V6 && nat.directory().is_embedded(meta.flow.vrf, meta.flow.src6)
}

/// An IPv6 packet from inside to a NAT64 prefix is one for the NAT. From anywhere else it is for nobody: no route leads what
/// stands for an IPv4 host out as IPv6.
fn admit(nat: &Nat, plan: &Plan, meta: &mut Meta) -> Result<(), Reason> {
    let flow = &mut meta.flow;
    if plan.line(meta.ingress).is_some_and(|line| line.side == Side::Inside) {
        if nat.admit(flow)? {
            meta.direction = Some(Direction::Out);
        }
        return Ok(());
    }
    let leaves = || matches!(plan.route6(meta.vrf, flow.dst6), Some(Hop::Neighbour { .. }));
    let is_lost = nat.directory().is_embedded(flow.vrf, flow.dst6) && leaves();
    if is_lost { Err(Reason::NotForwarding) } else { Ok(()) }
}
