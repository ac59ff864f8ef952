//! The common packet of a known session in one pass: found, counted, rewritten and its TTL decremented, without the
//! detour over [`crate::Verdict`]. Everything else is [`Nat::process`]'s business, which does the same to these packets.

use carrack_base::{Proto, VrfId};
use carrack_wire::tcp::flag;

use crate::engine::Nat;
use crate::flow::Direction;
use crate::line::{HAIRPIN, REFRESH_IN, Session};
use crate::row::TcpState;

/// Bytes of a packet that a crossing may touch: IPv4 header without options, TCP up to its checksum.
pub const CROSSING_BYTES: usize = 38;

/// RFC 1624 eqn. 3, `~m + m'`, for a TTL that goes down by one: it is the high byte of its word.
const TTL_DELTA: u16 = 0xfeff;

/// A session found for a packet that changes nothing of it but counters. Nothing is done before
/// [`Crossing::cross`].
#[derive(Debug)]
pub struct Crossing<'a> {
    session: &'a mut Session,
}

impl Nat {
    /// The session of a whole TCP or UDP packet without IP options, when the packet neither changes its TCP state nor
    /// turns back to the inside. `line` is what [`Nat::prefetch_line`] gave, `key` what [`crate::packed_key`] gave,
    /// `bits` the TCP control bits (0 for UDP). `None` says: use [`Nat::process`].
    #[inline(always)]
    pub fn crossing(
        &mut self,
        line: u32,
        key: [u64; 2],
        bits: u8,
        direction: Direction,
    ) -> Option<Crossing<'_>> {
        let session = self.tables.sessions.get_mut(line)?;
        let [addresses, ports] = session.packed(direction);
        if (addresses ^ key[0]) | (ports ^ key[1]) != 0 {
            return None;
        }
        if direction == Direction::Out && session.flags & HAIRPIN != 0 {
            return None;
        }
        let is_tcp = session.proto == Proto::Tcp as u8;
        if is_tcp
            && (bits & (flag::SYN | flag::FIN | flag::RST) != 0 || session.tcp != TcpState::Established as u8)
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
        let old = u16::from_be_bytes([head[10], head[11]]);
        let sum = plus(plus(!old, l3_delta), TTL_DELTA);
        [head[10], head[11]] = (!sum).to_be_bytes();
        if session.proto == Proto::Udp as u8 {
            let old = u16::from_be_bytes([head[26], head[27]]);
            let new = !plus(!old, l4_delta);
            // RFC 768: none was made and none is made; a computed 0 is sent as 0xffff.
            let new = if new == 0 { 0xffff } else { new };
            if old != 0 {
                [head[26], head[27]] = new.to_be_bytes();
            }
        } else {
            let old = u16::from_be_bytes([head[36], head[37]]);
            [head[36], head[37]] = (!plus(!old, l4_delta)).to_be_bytes();
        }
    }
}

/// The ones' complement sum of two words, which is also what [`carrack_wire::checksum::Delta`] computes.
#[inline(always)]
const fn plus(a: u16, b: u16) -> u16 {
    let (sum, carry) = a.overflowing_add(b);
    sum + carry as u16
}

#[cfg(test)]
mod tests;
