//! The common packet of a known session between IPv6 and IPv4 in one pass: found, counted, and its headers exchanged in
//! front of a payload that stays where it is. As in [`crate::crossing`], everything else is [`Nat::process`]'s business,
//! which does the same to these packets with the help of `xlat`.
//!
//! [`Nat::process`]: crate::Nat::process

use carrack_base::{Proto, VrfId};

use crate::crossing::{Crossings, plus};
use crate::flow::{Direction, hash_from_six};
use crate::line::{CONTROL, HAIRPIN, REFRESH_IN, SIX, Session};

/// Bytes of an IPv6 packet that a crossing reads: its header, and TCP up to its checksum.
pub const SIX_BYTES: usize = 58;
/// By how much an IPv6 header is longer than one of IPv4.
pub const SIX_GROWTH: usize = 20;
/// Longest IPv4 packet that goes without "don't fragment" (RFC 7915 §5.1), and the longest that becomes an IPv6 packet
/// which no link need cut (RFC 7915 §4.1).
const UNCUT_MAX: u16 = 1_260;
const DONT_FRAGMENT: u16 = 0x4000;

/// A session found for a packet that changes nothing of it but counters. Nothing is done before `to_v4` or `to_v6`.
#[derive(Debug)]
pub struct SixCrossing<'a> {
    session: &'a mut Session,
    /// What stands for the remote.
    remote6: u128,
}

impl Crossings<'_> {
    /// Number of the NAT64 prefix and IPv4 address of an IPv6 destination; `None` when it is of none, or of one that
    /// several instances have.
    #[inline(always)]
    #[must_use]
    pub fn embedded(&self, vrf: VrfId, destination: u128) -> Option<(u16, u32)> {
        self.directory().embedded_in_own(vrf, destination)
    }

    /// The hash of a packet's session from IPv6.
    #[inline(always)]
    #[must_use]
    pub fn hash_six(
        &self,
        source: (u128, u16),
        destination: u32,
        ports: u32,
        vrf: VrfId,
        proto: Proto,
    ) -> u64 {
        hash_from_six(self.hasher(), source, destination, ports, vrf, proto)
    }

    /// The session of a whole TCP or UDP packet from IPv6 without extension headers, as [`Crossings::find`] finds that
    /// of one from IPv4. `source` is address and number of the prefix, `destination` the IPv4 address.
    #[inline(always)]
    pub fn find_from_six(
        &mut self,
        line: u32,
        source: (u128, u16),
        destination: u32,
        ports: u32,
        vrf: VrfId,
        state: u16,
    ) -> Option<SixCrossing<'_>> {
        let session = self.session(line)?;
        if session.inside6() != source.0
            || session.l3_delta != source.1
            || session.remote_ip != destination
            || session.ports(Direction::Out) != ports
            || session.state() != state
            || session.inside_vrf != vrf.0
            || session.flags & (HAIRPIN | SIX | CONTROL) != SIX
        {
            return None;
        }
        Some(SixCrossing { session, remote6: 0 })
    }

    /// The session of a packet from IPv4 to an IPv6 host.
    #[inline(always)]
    pub fn find_to_six(
        &mut self,
        line: u32,
        (addresses, ports): (u64, u32),
        vrf: VrfId,
        state: u16,
    ) -> Option<SixCrossing<'_>> {
        let session = self.session(line)?;
        if session.addresses(Direction::In) != addresses
            || session.ports(Direction::In) != ports
            || session.state() != state
            || session.outside_vrf != vrf.0
            || session.flags & (HAIRPIN | SIX | CONTROL) != SIX
        {
            return None;
        }
        let (via, remote) = (session.via(), session.remote_ip);
        let remote6 = self.directory().prefix_of(via)?.embed(remote);
        Some(SixCrossing { session: self.session(line)?, remote6 })
    }
}

impl SixCrossing<'_> {
    /// Routing instance the packet continues in.
    #[inline(always)]
    #[must_use]
    pub fn vrf(&self, direction: Direction) -> VrfId {
        VrfId(match direction {
            Direction::Out => self.session.outside_vrf,
            Direction::In => self.session.inside_vrf,
        })
    }

    /// The IPv6 host.
    #[inline(always)]
    #[must_use]
    pub fn inside6(&self) -> u128 {
        self.session.inside6()
    }

    /// Makes an IPv4 packet of the IPv6 packet at the start of `packet`: it begins [`SIX_GROWTH`] bytes further on. The
    /// TTL is one less (RFC 7915 §5.1, and RFC 1624 for the transport checksum).
    #[inline(always)]
    pub fn to_v4(self, packet: &mut [u8; SIX_BYTES], identification: u16, now_s: u32) {
        let session = self.session;
        session.seen_s = now_s;
        session.packets_out = session.packets_out.wrapping_add(1);
        let tos = packet[0] << 4 | packet[1] >> 4;
        let total = u16::from_be_bytes([packet[4], packet[5]]).wrapping_add(20);
        let flags = if total > UNCUT_MAX { DONT_FRAGMENT } else { 0 };
        let (protocol, ttl) = (packet[6], packet[7].wrapping_sub(1));
        let first = 0x4500_0000 | u32::from(tos) << 16 | u32::from(total);
        let second = u32::from(identification) << 16 | u32::from(flags);
        let third = u32::from(ttl) << 24 | u32::from(protocol) << 16;
        let sum = [first, second, third, session.outside_ip, session.remote_ip];
        let sum: u64 = sum.iter().map(|word| u64::from(*word)).sum();
        let third = third | u32::from(!fold(sum));
        for (at, word) in
            [first, second, third, session.outside_ip, session.remote_ip].into_iter().enumerate()
        {
            let at = SIX_GROWTH + at * 4;
            // Invariant: five words behind the first 20 bytes of 58.
            packet[at..at + 4].copy_from_slice(&word.to_be_bytes());
        }
        [packet[40], packet[41]] = session.outside_port.to_be_bytes();
        patch(session.proto, session.l4_delta, packet);
    }

    /// Makes an IPv6 packet of the IPv4 packet that begins [`SIX_GROWTH`] bytes into `packet`: it begins at its start.
    /// The hop limit is one less (RFC 7915 §4.1).
    #[inline(always)]
    pub fn to_v6(self, packet: &mut [u8; SIX_BYTES], now_s: u32) {
        let session = self.session;
        if session.flags & REFRESH_IN != 0 {
            session.seen_s = now_s;
        }
        session.packets_in = session.packets_in.wrapping_add(1);
        let tos = packet[SIX_GROWTH + 1];
        let total = u16::from_be_bytes([packet[SIX_GROWTH + 2], packet[SIX_GROWTH + 3]]);
        let (ttl, protocol) = (packet[SIX_GROWTH + 8].wrapping_sub(1), packet[SIX_GROWTH + 9]);
        let first = 0x6000_0000 | u32::from(tos) << 20;
        packet[0..4].copy_from_slice(&first.to_be_bytes());
        packet[4..6].copy_from_slice(&total.wrapping_sub(20).to_be_bytes());
        [packet[6], packet[7]] = [protocol, ttl];
        packet[8..24].copy_from_slice(&self.remote6.to_be_bytes());
        packet[24..40].copy_from_slice(&session.inside6().to_be_bytes());
        [packet[42], packet[43]] = session.inside_port.to_be_bytes();
        patch(session.proto, !session.l4_delta, packet);
    }
}

/// May the IPv4 packet become IPv6 as it is: short enough for any link, or not to be cut (RFC 7915 §4.1)? `fragment` is
/// its word of flags and offset.
#[inline(always)]
#[must_use]
pub const fn needs_no_cut(total: u16, fragment: u16) -> bool {
    total <= UNCUT_MAX || fragment & DONT_FRAGMENT != 0
}

/// Updates the checksum of the TCP or UDP header at byte 40.
#[inline(always)]
fn patch(proto: u8, delta: u16, packet: &mut [u8; SIX_BYTES]) {
    if proto == Proto::Udp as u8 {
        let old = u16::from_be_bytes([packet[46], packet[47]]);
        let new = !plus(!old, delta);
        // RFC 8200 §8.1: a computed 0 is sent as 0xffff.
        let new = if new == 0 { 0xffff } else { new };
        [packet[46], packet[47]] = new.to_be_bytes();
    } else {
        let old = u16::from_be_bytes([packet[56], packet[57]]);
        [packet[56], packet[57]] = (!plus(!old, delta)).to_be_bytes();
    }
}

/// A sum of 32-bit words as one of 16-bit words (RFC 1071 §2 C).
#[inline(always)]
const fn fold(sum: u64) -> u16 {
    let (sum, carry) = (sum as u32).overflowing_add((sum >> 32) as u32);
    let sum = sum.wrapping_add(carry as u32);
    // The two halves crosswise: what the lower sum carries goes to the upper one, where it belongs.
    (sum.wrapping_add(sum.rotate_left(16)) >> 16) as u16
}
