//! The common packet of a known session in one pass: found, counted, rewritten and its TTL decremented, without the
//! detour over [`crate::Verdict`]. Everything else is [`Nat::process`]'s business, which does the same to these packets.

use carrack_base::{Proto, VrfId};
use carrack_tables::{IndexView, KeyedHasher, Likely};
use carrack_wire::tcp::flag;

use crate::directory::Directory;
use crate::engine::Nat;
use crate::flow::Direction;
use crate::line::{CONTROL, HAIRPIN, NONE, REFRESH_IN, SIX, Session};
use crate::row::TcpState;

/// Bytes of a packet that a crossing may touch: IPv4 header without options, TCP up to its checksum.
pub const CROSSING_BYTES: usize = 38;

/// A TTL that goes down by one, in the word it shares with the protocol, read with its low byte first: -1 in ones'
/// complement. Sums of ones' complement do not care for byte order as long as it is one (RFC 1071 §2 B).
const TTL_DELTA: u16 = 0xfffe;

/// The tables as crossings need them, borrowed once for a run of packets so that loops keep them in registers.
pub struct Crossings<'a> {
    hasher: KeyedHasher,
    index: IndexView<'a>,
    sessions: &'a mut [Session],
    directory: &'a Directory,
}

/// The state a session must be in for this packet to change nothing of it: `None` when there is none, as for TCP
/// control bits that open or close. `bits` is 0 for UDP.
#[inline(always)]
#[must_use]
pub const fn common_state(proto: Proto, bits: u8) -> Option<u16> {
    let tcp = match proto {
        Proto::Udp => TcpState::None,
        Proto::Tcp if bits & (flag::SYN | flag::FIN | flag::RST) == 0 => TcpState::Established,
        _ => return None,
    };
    Some(Session::state_of(proto as u8, tcp as u8))
}

/// The same of a packet from inside, which may also be the first SYN of a connection: the session that it opened, or the
/// packet sent again, changes by it as little.
#[inline(always)]
#[must_use]
pub const fn common_state_from_inside(proto: Proto, bits: u8) -> Option<u16> {
    const FIRST: u8 = flag::SYN | flag::ACK | flag::FIN | flag::RST;
    if proto as u8 == Proto::Tcp as u8 && bits & FIRST == flag::SYN {
        return Some(FIRST_SYN);
    }
    common_state(proto, bits)
}

/// The state of a connection of which the first SYN from inside is all that was seen.
const FIRST_SYN: u16 = Session::state_of(Proto::Tcp as u8, TcpState::InsideInit as u8);

/// The protocol, its number and the control bits of a packet from inside that opens a session in this state; `None`
/// when none does.
#[inline]
#[must_use]
pub const fn opened_by(state: u16) -> Option<(Proto, u8, u8)> {
    const UDP: u16 = Session::state_of(Proto::Udp as u8, TcpState::None as u8);
    match state {
        UDP => Some((Proto::Udp, 17, 0)),
        FIRST_SYN => Some((Proto::Tcp, 6, flag::SYN)),
        _ => None,
    }
}

/// A session found for a packet that changes nothing of it but counters. Nothing is done before
/// [`Crossing::cross`].
#[derive(Debug)]
pub struct Crossing<'a> {
    session: &'a mut Session,
}

impl Nat {
    /// The tables for a run of common packets.
    #[inline(always)]
    pub fn crossings(&mut self) -> Crossings<'_> {
        let tables = &mut self.tables;
        Crossings {
            hasher: tables.hasher.clone(),
            index: tables.session_index.view(),
            sessions: tables.sessions.lines_mut(),
            directory: &self.directory,
        }
    }
}

impl<'a> Crossings<'a> {
    /// Who owns which address.
    #[inline(always)]
    #[must_use]
    pub const fn directory(&self) -> &'a Directory {
        self.directory
    }

    /// The tables' hash.
    #[inline(always)]
    pub(crate) const fn hasher(&self) -> &KeyedHasher {
        &self.hasher
    }

    /// The session in a line.
    #[inline(always)]
    pub(crate) fn session(&mut self, line: u32) -> Option<&mut Session> {
        self.sessions.get_mut(line as usize)
    }

    /// The hash of the words of [`crate::packed_key`].
    #[inline(always)]
    #[must_use]
    pub fn hash(&self, key: [u64; 2]) -> u64 {
        self.hasher.hash2(key[0], key[1])
    }

    /// First fetch: the index bucket.
    #[inline(always)]
    pub fn fetch_bucket(&self, hash: u64) {
        self.index.prefetch(hash);
    }

    /// Second fetch: the likely session line. When it may live in its other bucket, that one is on its way, and
    /// [`Crossings::fetch_line_away`] goes on.
    #[inline(always)]
    #[must_use]
    pub fn fetch_line(&self, hash: u64) -> Likely {
        let likely = self.index.likely(hash);
        if let Likely::Line(line) = likely {
            self.fetched(line);
        }
        likely
    }

    /// The second fetch for an entry that is not in its primary bucket.
    #[inline]
    #[must_use]
    pub fn fetch_line_away(&self, hash: u64) -> u32 {
        self.index.likely_away(hash).map_or(NONE, |line| self.fetched(line))
    }

    #[inline(always)]
    fn fetched(&self, line: u32) -> u32 {
        if let Some(session) = self.sessions.get(line as usize) {
            carrack_tables::prefetch(session);
        }
        line
    }

    /// The session of a whole TCP or UDP packet without IP options, when the packet neither changes its TCP state nor
    /// turns back to the inside. `line` is what [`Crossings::fetch_line`] gave; addresses and ports are the packet's
    /// with the source in the upper half, in host byte order; `state` is what [`common_state`] gave. `None` says: use
    /// [`Nat::process`].
    #[inline(always)]
    pub fn find(
        &mut self,
        line: u32,
        (addresses, ports): (u64, u32),
        vrf: VrfId,
        state: u16,
        direction: Direction,
    ) -> Option<Crossing<'_>> {
        let session = self.sessions.get_mut(line as usize)?;
        if session.addresses(direction) != addresses
            || session.ports(direction) != ports
            || session.state() != state
            || session.vrf(direction) != vrf.0
            || session.flags & (HAIRPIN | SIX | CONTROL) != 0
        {
            return None;
        }
        Some(Crossing { session })
    }
}

impl Crossing<'_> {
    /// Routing instance the packet continues in.
    #[inline(always)]
    #[must_use]
    pub fn vrf(&self, direction: Direction) -> VrfId {
        VrfId(match direction {
            Direction::Out => self.session.outside_vrf,
            Direction::In => self.session.inside_vrf,
        })
    }

    /// The subscriber's address: where a packet coming in goes on to.
    #[inline(always)]
    #[must_use]
    pub fn inside_ip(&self) -> u32 {
        self.session.inside_ip
    }

    /// Counts and rewrites the packet, which begins with its IPv4 header: address, port, TTL and checksums.
    ///
    /// The IPv4 header checksum is updated once for all changes (RFC 1624 §3); the sum is never 0 here, so that the
    /// checksum never becomes 0xffff.
    #[inline(always)]
    pub fn cross(self, direction: Direction, packet: &mut [u8; CROSSING_BYTES], now_s: u32) {
        let session = self.session;
        let (l3_delta, l4_delta) = (session.l3_delta, session.l4_delta);
        let head = packet;
        let (l3_delta, l4_delta) = match direction {
            Direction::Out => {
                session.seen_s = now_s;
                session.packets_out = session.packets_out.wrapping_add(1);
                [head[12], head[13], head[14], head[15]] = session.outside_ip.to_be_bytes();
                [head[20], head[21]] = session.outside_port.to_be_bytes();
                (l3_delta, l4_delta)
            }
            Direction::In => {
                if session.flags & REFRESH_IN != 0 {
                    session.seen_s = now_s;
                }
                session.packets_in = session.packets_in.wrapping_add(1);
                [head[16], head[17], head[18], head[19]] = session.inside_ip.to_be_bytes();
                [head[22], head[23]] = session.inside_port.to_be_bytes();
                (!l3_delta, !l4_delta)
            }
        };
        head[8] = head[8].wrapping_sub(1);
        let old = u16::from_le_bytes([head[10], head[11]]);
        let sum = plus(plus(!old, l3_delta.swap_bytes()), TTL_DELTA);
        [head[10], head[11]] = (!sum).to_le_bytes();
        let l4_delta = l4_delta.swap_bytes();
        if session.proto == Proto::Udp as u8 {
            let old = u16::from_le_bytes([head[26], head[27]]);
            let new = !plus(!old, l4_delta);
            // RFC 768: none was made and none is made; a computed 0 is sent as 0xffff.
            let new = if new == 0 { 0xffff } else { new };
            if old != 0 {
                [head[26], head[27]] = new.to_le_bytes();
            }
        } else {
            let old = u16::from_le_bytes([head[36], head[37]]);
            [head[36], head[37]] = (!plus(!old, l4_delta)).to_le_bytes();
        }
    }
}

/// The ones' complement sum of two words, which is also what [`carrack_wire::checksum::Delta`] computes.
#[inline(always)]
pub(crate) const fn plus(a: u16, b: u16) -> u16 {
    let (sum, carry) = a.overflowing_add(b);
    sum + carry as u16
}

#[cfg(test)]
mod tests;
