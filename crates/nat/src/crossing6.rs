//! The common packet of a known session between IPv6 and IPv4 in one pass: found, counted, and its headers exchanged in
//! front of a payload that stays where it is. As in [`crate::crossing`], everything else is [`Nat::process`]'s business,
//! which does the same to these packets with the help of `xlat`.
//!
//! [`Nat::process`]: crate::Nat::process

use carrack_base::{Proto, VrfId};
use carrack_wire::checksum::Delta;
use carrack_xlat::exchange::{Ends, SIX_BYTES};

use crate::crossing::Crossings;
use crate::flow::{Direction, hash_from_six};
use crate::line::{CONTROL, HAIRPIN, REFRESH_IN, SIX, Session};

const DONT_FRAGMENT: u16 = 0x4000;

/// A session found for a packet that changes nothing of it but counters. Nothing is done before `to_v4` or `to_v6`.
#[derive(Debug)]
pub struct SixCrossing<'a> {
    session: &'a mut Session,
    /// What stands for the remote.
    remote6: u128,
    /// Longest IPv4 packet that becomes an IPv6 packet which no link need cut.
    uncut_max: u16,
}

impl Crossings<'_> {
    /// Number of the NAT64 prefix and IPv4 address of an IPv6 destination; `None` when it is of none, or of one that
    /// several instances have, or whose instance sets the type of service.
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
        Some(SixCrossing { session, remote6: 0, uncut_max: 0 })
    }

    /// The session of a packet from IPv4 to an IPv6 host; `None` too where the instance sets the traffic class.
    #[inline(always)]
    pub fn find_to_six(
        &mut self,
        line: u32,
        (addresses, ports): (u64, u32),
        vrf: VrfId,
        state: u16,
    ) -> Option<SixCrossing<'_>> {
        let directory = self.directory();
        let session = self.session(line)?;
        if session.addresses(Direction::In) != addresses
            || session.ports(Direction::In) != ports
            || session.state() != state
            || session.outside_vrf != vrf.0
            || session.flags & (HAIRPIN | SIX | CONTROL) != SIX
        {
            return None;
        }
        let behind = directory.lane_behind(session.via())?;
        let remote6 = behind.prefix.embed(session.remote_ip);
        Some(SixCrossing { session, remote6, uncut_max: behind.uncut_max })
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

    /// May the IPv4 packet become IPv6 as it is: short enough for any link, or not to be cut (RFC 7915 §4.1)? `fragment` is
    /// its word of flags and offset.
    #[inline(always)]
    #[must_use]
    pub const fn needs_no_cut(&self, total: u16, fragment: u16) -> bool {
        total <= self.uncut_max || fragment & DONT_FRAGMENT != 0
    }

    /// Makes an IPv4 packet of the IPv6 packet at the start of `packet`, as [`Ends::<u32>::put`] says.
    #[inline(always)]
    pub fn to_v4(self, packet: &mut [u8; SIX_BYTES], identification: u16, now_s: u32) {
        let session = self.session;
        session.seen_s = now_s;
        session.packets_out = session.packets_out.wrapping_add(1);
        let change = Delta::from_bits(session.l4_delta);
        Ends { src: session.outside_ip, dst: session.remote_ip, change }.put(packet, None, identification);
        [packet[40], packet[41]] = session.outside_port.to_be_bytes();
    }

    /// Makes an IPv6 packet of the IPv4 packet in `packet`, as [`Ends::<u128>::put`] says.
    #[inline(always)]
    pub fn to_v6(self, packet: &mut [u8; SIX_BYTES], now_s: u32) {
        let session = self.session;
        if session.flags & REFRESH_IN != 0 {
            session.seen_s = now_s;
        }
        session.packets_in = session.packets_in.wrapping_add(1);
        let change = Delta::from_bits(session.l4_delta).negated();
        Ends { src: self.remote6, dst: session.inside6(), change }.put(packet, None);
        [packet[42], packet[43]] = session.inside_port.to_be_bytes();
    }
}
