//! Control connections that a gateway reads: their table, and the way of a packet between engine and gateway
//! ([ADR 10](../../../docs/adr/0010-gateways.md)).

use core::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4};

use carrack_alg::stream::{Halves, Passed, Refused, Scratch, Talk};
use carrack_alg::{Edits, Ends, Ground, Memory, Note, Protocol, Said, Side, Want};
use carrack_base::{Now, Proto, Reason, VrfId};
use carrack_tables::{Arena, ArenaError, Backing, Index, KeyedHasher, PagePreference, Slab};
use carrack_wire::tcp::{self, TcpView, flag};

use crate::engine::Nat;
use crate::expectations::Expectations;
use crate::flow::Direction;
use crate::line::{CONTROL, INBOUND, Session};
use crate::policy::Unreadable;
use crate::row::{Endpoint, MemoryRow, TcpState};

/// What gateways have seen since start, by [`Protocol`] and [`Note`].
pub type GatewayCounts = [[u64; Note::ALL.len()]; Protocol::ALL.len()];

const UDP_HEADER: usize = 8;
/// Lines looked at for one to give up when the table is full.
const SEARCH_LINES: usize = 32;

/// What becomes of a packet of a control connection.
#[derive(Debug, PartialEq, Eq)]
pub enum Mediated<'a> {
    /// It goes on as it is.
    Same,
    /// These bytes from the transport header on go on instead; the checksum is still to be made.
    Changed(&'a [u8]),
}

/// One control connection.
#[derive(Debug, Clone, Copy, Default)]
struct Control {
    session: u32,
    protocol: u8,
    talk: Talk,
    memory: Memory,
}

/// All control connections of a worker.
#[derive(Debug)]
pub(crate) struct Controls {
    lines: Slab<Control>,
    index: Index,
    hasher: KeyedHasher,
    halves: Halves,
    scratch: Scratch,
    edits: Edits,
    counts: GatewayCounts,
    /// Where the search for one to give up goes on.
    hand: u32,
    backing: Backing,
}

impl Controls {
    /// Few connections hold bytes or wait for the acknowledgement of a change at one time.
    fn halves_for(count: usize) -> u16 {
        (count / 16).clamp(16, 4_096) as u16
    }

    const fn arena_bytes(count: usize) -> usize {
        Slab::<Control>::bytes_for(count) + Index::bytes_for(count)
    }

    /// Bytes that so many take.
    fn bytes_for(count: usize) -> usize {
        Self::arena_bytes(count) + Halves::bytes_for(Self::halves_for(count))
    }

    pub(crate) fn new(count: usize, hasher: KeyedHasher, pages: PagePreference) -> Result<Self, ArenaError> {
        let mut arena = Arena::new("nat-controls", Self::arena_bytes(count), pages)?;
        Ok(Self {
            backing: arena.backing(),
            lines: Slab::new(&mut arena, count)?,
            index: Index::new(&mut arena, count)?,
            hasher,
            halves: Halves::new(Self::halves_for(count)),
            scratch: Scratch::default(),
            edits: Edits::default(),
            counts: GatewayCounts::default(),
            hand: 0,
        })
    }

    pub(crate) fn memory(&self) -> MemoryRow {
        let halves = Halves::bytes_for(self.halves.total() as u16);
        let bytes = self.lines.bytes() + self.index.bytes() + halves;
        MemoryRow::new("gateway-connections", (self.lines.capacity(), self.lines.len(), bytes), self.backing)
    }

    fn hash(&self, session: u32) -> u64 {
        self.hasher.hash2(u64::from(session), 8)
    }

    fn find(&self, session: u32) -> Option<u32> {
        self.index.find(self.hash(session), |id| {
            self.lines.is_live(id) && self.lines.get(id).is_some_and(|line| line.session == session)
        })
    }

    /// The session is gone, or its connection.
    pub(crate) fn forget(&mut self, session: u32) {
        if let Some(id) = self.find(session) {
            self.remove(id);
        }
    }

    fn remove(&mut self, id: u32) {
        let Some(line) = self.lines.get_mut(id) else { return };
        line.talk.forget(&mut self.halves);
        let session = line.session;
        self.index.remove(self.hash(session), id);
        self.lines.free(id);
    }

    fn add(&mut self, session: u32, protocol: Protocol) -> Option<u32> {
        let line = Control { session, protocol: protocol as u8, ..Control::default() };
        let id = self.lines.alloc(line)?;
        if self.index.insert(self.hash(session), id).is_err() {
            self.lines.free(id);
            return None;
        }
        Some(id)
    }

    fn note(&mut self, protocol: Protocol, note: Note) {
        if let Some(count) = self.counts.get_mut(protocol as usize).and_then(|c| c.get_mut(note as usize)) {
            *count += 1;
        }
    }
}

/// What the engine does for a gateway that reads a packet.
struct Opening<'a> {
    nat: &'a mut Nat,
    session: &'a Session,
    counts: &'a mut [u64; Note::ALL.len()],
    now: Now,
}

impl Opening<'_> {
    /// Are connections that make no sense as this protocol reset?
    fn resets(&self, protocol: Protocol) -> bool {
        let instance = self.nat.policy.instances.get(self.nat.slots.at(self.session.slot));
        let set = instance.and_then(|instance| instance.unreadable.get(protocol as usize));
        set == Some(&Unreadable::Reset)
    }
}

impl Ground for Opening<'_> {
    fn open(&mut self, want: &Want) -> Option<SocketAddrV4> {
        let opened = self.nat.expect(self.session, want, self.now);
        if let Err(reason) = opened {
            let inside = self.session.inside().into();
            let at = self.nat.slots.at(self.session.slot);
            self.nat.note_refusal(at, inside, reason);
        }
        self.note(if opened.is_ok() { Note::Opened } else { Note::NoRoom });
        opened.ok().map(|endpoint| socket(endpoint.ip, endpoint.port))
    }

    fn keep_call(&mut self, want: &Want, remote: u16) {
        if let Err(reason) = self.nat.keep_call(self.session, want, remote, self.now) {
            let inside = self.session.inside().into();
            self.nat.note_refusal(self.nat.slots.at(self.session.slot), inside, reason);
            self.note(Note::NoRoom);
        }
    }

    fn inside_port(&mut self, proto: Proto, outside_port: u16) -> Option<u16> {
        let Session { outside_ip: ip, outside_vrf, .. } = *self.session;
        let endpoint = Endpoint { ip, port: outside_port };
        let id = self.nat.tables.find_mapping(endpoint, VrfId(outside_vrf), proto, Direction::In)?;
        let mapping = self.nat.tables.mappings.get(id)?;
        let is_own = mapping.inside_vrf == self.session.inside_vrf
            && self.nat.tables.inside_of(mapping) == self.session.inside();
        is_own.then_some(mapping.inside_port)
    }

    fn await_control(&mut self, server: SocketAddrV4) {
        let server = Endpoint { ip: server.ip().to_bits(), port: server.port() };
        self.nat.await_control(server, self.now.s());
    }

    fn close(&mut self, dialog: u32) {
        self.nat.end_dialog(self.session.subscriber, dialog, self.now.s());
    }

    fn four(&self, ip: Ipv6Addr) -> Option<Ipv4Addr> {
        let prefix = self.nat.directory.prefix_of(self.session.via())?;
        prefix.extract(ip.to_bits()).ok().map(Ipv4Addr::from_bits)
    }

    fn six(&self, ip: Ipv4Addr) -> Option<Ipv6Addr> {
        let prefix = self.nat.directory.prefix_of(self.session.via())?;
        prefix.embed_checked(ip.to_bits()).ok().map(Ipv6Addr::from_bits)
    }

    fn note(&mut self, note: Note) {
        if let Some(count) = self.counts.get_mut(note as usize) {
            *count += 1;
        }
    }
}

/// The segment's header as that of a reset in its place, in `out`: its length. The receiver's own reset answers what the
/// sender says next.
fn reset(transport: &[u8], passed: Passed, out: &mut [u8]) -> Option<usize> {
    let (head, _) = out.split_first_chunk_mut::<{ tcp::HEADER_LEN }>()?;
    if passed == Passed::Same {
        *head = *transport.first_chunk()?;
    }
    head[12] = (tcp::HEADER_LEN as u8 / 4) << 4;
    head[13] = head[13] & flag::ACK | flag::RST;
    // No window, nothing urgent.
    (head[14], head[15], head[18], head[19]) = (0, 0, 0, 0);
    Some(tcp::HEADER_LEN)
}

fn socket(ip: u32, port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::from(ip), port)
}

impl Nat {
    /// Does a gateway read the packets of the session in this line?
    #[inline(always)]
    #[must_use]
    pub fn is_control(&self, line: u32) -> bool {
        self.tables.sessions.get(line).is_some_and(|session| session.flags & CONTROL != 0)
    }

    /// Does a packet from one of these addresses and ports to the other, translated already, belong to the session in this
    /// line?
    #[must_use]
    pub fn is_translated_by(
        &self,
        line: u32,
        direction: Direction,
        (src, dst): (u32, u32),
        (sport, dport): (u16, u16),
    ) -> bool {
        let Some(session) = self.tables.sessions.get(line) else { return false };
        let remote = (session.remote_ip, session.remote_port);
        let (from, to) = match direction {
            Direction::Out => ((session.outside_ip, session.outside_port), remote),
            Direction::In => (remote, (session.inside_ip, session.inside_port)),
        };
        self.tables.sessions.is_live(line)
            && session.flags & CONTROL != 0
            && (from, to) == ((src, sport), (dst, dport))
    }

    /// Shows a translated packet of a control connection to its gateway: `transport` is all of it from the transport
    /// header on, with a right checksum.
    ///
    /// # Errors
    /// Why it is dropped: its sender will send it again.
    pub fn mediate(
        &mut self,
        line: u32,
        direction: Direction,
        transport: &[u8],
        now: Now,
    ) -> Result<Mediated<'_>, Reason> {
        let Some(session) = self.tables.sessions.get(line).copied() else { return Ok(Mediated::Same) };
        let Some(mut controls) = self.controls.take() else { return Ok(Mediated::Same) };
        let passed = self.mediate_by(&mut controls, line, &session, direction, transport, now);
        let controls = self.controls.insert(controls);
        match passed? {
            Passed::Same => Ok(Mediated::Same),
            Passed::Changed(len) => Ok(Mediated::Changed(controls.scratch.out.get(..len).unwrap_or(&[]))),
        }
    }

    fn mediate_by(
        &mut self,
        controls: &mut Controls,
        line: u32,
        session: &Session,
        direction: Direction,
        transport: &[u8],
        now: Now,
    ) -> Result<Passed, Reason> {
        if session.proto() != Proto::Tcp {
            return Ok(self.mediate_datagram(controls, session, direction, transport, now));
        }
        let tcp = TcpView::parse(transport).map_err(|_| Reason::TcpMalformed)?;
        let opens = tcp.is_opening() && matches!(session.tcp(), TcpState::InsideInit | TcpState::OutsideInit);
        let Some(id) = self.control_of(controls, line, session, opens) else { return Ok(Passed::Same) };
        let Controls { lines, halves, scratch, counts, .. } = controls;
        let Some(control) = lines.get_mut(id) else { return Ok(Passed::Same) };
        let at = usize::from(control.protocol);
        let (Some(protocol), Some(counts)) = (Protocol::ALL.get(at), counts.get_mut(at)) else {
            return Ok(Passed::Same);
        };
        let (side, ends) = (side_of(direction), ends_of(session));
        let mut ground = Opening { nat: self, session, counts, now };
        let Control { talk, memory, .. } = control;
        let was_unreadable = talk.is_unreadable();
        let mut passed = talk.pass(side, transport, halves, scratch, |bytes, edits| {
            protocol.read(Said { memory, side, bytes, ends: &ends, ground: &mut ground, edits })
        });
        if talk.is_unreadable() && !was_unreadable {
            ground.note(Note::Unreadable);
            if let Ok(segment) = passed
                && ground.resets(*protocol)
                && let Some(len) = reset(transport, segment, &mut scratch.out)
            {
                ground.note(Note::Reset);
                self.tcp_transition(line, flag::RST, direction, now.s());
                passed = Ok(Passed::Changed(len));
            }
        }
        // Nothing is to be remembered of a connection that is over for both, or not read any more.
        let is_closed = matches!(session.tcp(), TcpState::BothFin | TcpState::Reset);
        if talk.is_over() || (is_closed && talk.is_plain()) {
            controls.remove(id);
        }
        passed.map_err(|refused| match refused {
            Refused::OutOfOrder => Reason::GatewayOutOfOrder,
            Refused::Busy => Reason::GatewayBusy,
            Refused::Malformed => Reason::TcpMalformed,
        })
    }

    /// A datagram is a whole message, and nothing is remembered of it.
    fn mediate_datagram(
        &mut self,
        controls: &mut Controls,
        session: &Session,
        direction: Direction,
        transport: &[u8],
        now: Now,
    ) -> Passed {
        let Some(protocol) = self.protocol_of(session).filter(|_| session.proto() == Proto::Udp) else {
            return Passed::Same;
        };
        let Controls { scratch, edits, counts, .. } = controls;
        let (Some((header, message)), Some(counts)) =
            (transport.split_at_checked(UDP_HEADER), counts.get_mut(protocol as usize))
        else {
            return Passed::Same;
        };
        edits.clear();
        let mut ground = Opening { nat: self, session, counts, now };
        let (side, ends, memory) = (side_of(direction), ends_of(session), &mut Memory::default());
        let ground: &mut dyn Ground = &mut ground;
        protocol.read(Said { memory, side, bytes: message, ends: &ends, ground, edits: &mut *edits });
        if edits.is_empty() {
            return Passed::Same;
        }
        let Some((head, body)) = scratch.out.split_at_mut_checked(UDP_HEADER) else { return Passed::Same };
        head.copy_from_slice(header);
        edits.apply(message, body).map_or(Passed::Same, |len| Passed::Changed(UDP_HEADER + len))
    }

    /// The line of a control connection, a new one when it opens.
    fn control_of(&self, controls: &mut Controls, id: u32, session: &Session, opens: bool) -> Option<u32> {
        let known = controls.find(id);
        if !opens {
            return known;
        }
        if let Some(line) = known.and_then(|known| controls.lines.get_mut(known)) {
            // The SYN again, or a new connection by the same ports.
            line.talk.forget(&mut controls.halves);
            line.memory = Memory::default();
            return known;
        }
        let protocol = self.protocol_of(session)?;
        if controls.lines.len() >= controls.lines.capacity() {
            self.give_one_up(controls);
        }
        let added = controls.add(id, protocol);
        controls.note(protocol, if added.is_some() { Note::Connection } else { Note::TableFull });
        added
    }

    /// Makes room in a full table: by a connection that both ends have closed, if one is found soon.
    fn give_one_up(&self, controls: &mut Controls) {
        for _ in 0..SEARCH_LINES {
            let id = controls.hand;
            controls.hand = if (id as usize) + 1 < controls.lines.capacity() { id + 1 } else { 0 };
            let session = controls.lines.get(id).and_then(|line| self.tables.sessions.get(line.session));
            if session.is_some_and(|session| matches!(session.tcp(), TcpState::BothFin | TcpState::Reset)) {
                controls.remove(id);
                return;
            }
        }
    }

    fn protocol_of(&self, session: &Session) -> Option<Protocol> {
        let instance = self.policy.instances.get(self.slots.at(session.slot))?;
        let inbound = session.flags & INBOUND != 0;
        let port = if inbound { session.inside_port } else { session.remote_port };
        // A control connection to another port is one that H.323 has spoken of.
        let announced = Protocol::H323;
        let is_announced = session.proto() == Proto::Tcp && instance.gateways.contains(&announced);
        instance.gateway_of(session.proto(), port).or_else(|| is_announced.then_some(announced))
    }

    /// Counts what no gateway's reader sees.
    pub(crate) fn note_gateway(&mut self, protocol: Protocol, note: Note) {
        if let Some(controls) = self.controls.as_mut() {
            controls.note(protocol, note);
        }
    }

    /// What gateways have seen since start.
    #[must_use]
    pub fn gateway_counts(&self) -> GatewayCounts {
        self.controls.as_ref().map_or_else(GatewayCounts::default, |controls| controls.counts)
    }
}

/// Room for control connections and what they expect.
#[derive(Debug)]
pub(crate) struct GatewayTables {
    pub(crate) controls: Box<Controls>,
    pub(crate) expectations: Box<Expectations>,
}

impl GatewayTables {
    /// Bytes that so many of each take.
    pub(crate) fn bytes_for(count: u32) -> usize {
        let count = count.max(1) as usize;
        Expectations::bytes_for(count) + Controls::bytes_for(count)
    }

    /// So many of each.
    pub(crate) fn new(count: u32, hasher: KeyedHasher, pages: PagePreference) -> Result<Self, ArenaError> {
        let count = count.max(1) as usize;
        Ok(Self {
            expectations: Box::new(Expectations::new(count, hasher.clone(), pages)?),
            controls: Box::new(Controls::new(count, hasher, pages)?),
        })
    }
}

const fn side_of(direction: Direction) -> Side {
    match direction {
        Direction::Out => Side::Inside,
        Direction::In => Side::Outside,
    }
}

fn ends_of(session: &Session) -> Ends {
    Ends {
        inside: session.inside().into(),
        inside_port: session.inside_port,
        outside: socket(session.outside_ip, session.outside_port),
        remote: socket(session.remote_ip, session.remote_port),
        proto: session.proto(),
        client: if session.flags & INBOUND != 0 { Side::Outside } else { Side::Inside },
    }
}
