//! The burst: up to 64 packets and what the stages know of each, in arrays beside them.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use carrack_base::{BURST_PACKETS_MAX, Family, IfIndex, Reason, VrfId};
use carrack_frame::Frame;
use carrack_nat::{Direction, Flow, NO_LINE};

/// Where a packet stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Fate {
    /// On its way through the stages.
    #[default]
    Going,
    /// ARP, to go up.
    Arp,
    /// IPv6 to the router over this link alone (its link-local address or a group it is in), to go up.
    Link6,
    /// Ended: dropped.
    Dropped(Reason),
    /// Ended: the NAT keeps what it needs of it and accounts for it.
    HeldByNat,
    /// Ended elsewhere: sent, punted, held or handed over; the frame is gone from the burst.
    Gone,
}

/// What the stages know of one packet.
#[derive(Debug, Clone, Copy)]
pub struct Meta {
    /// The packet as parse (and then the NAT) saw it.
    pub(crate) flow: Flow,
    /// Interface it came in by.
    pub(crate) ingress: IfIndex,
    /// Way through the NAT; `None` for interfaces that are neither inside nor outside.
    pub(crate) direction: Option<Direction>,
    /// Came in by an outside interface and was not translated: may not reach subscribers behind a NAT.
    pub(crate) raw_from_outside: bool,
    /// The NAT rewrote it; `vrf` is then where it goes on.
    pub(crate) translated: Option<Direction>,
    /// Made by the router itself: no TTL decrement, no errors about it.
    pub(crate) own: bool,
    /// Routing instance it is routed in.
    pub(crate) vrf: VrfId,
    /// IP version of the packet as it now is; of IPv6, `flow.dst6` is always the destination.
    pub(crate) family: Family,
    /// IPv4 destination after translation, host byte order.
    pub(crate) destination: u32,
    /// Fragment: key into the fragment stage is still to be asked.
    pub(crate) is_fragment: bool,
    /// Handed over to this worker as the owner: stays.
    pub(crate) is_home: bool,
    /// Offset of the IPv6 fragment header in the frame, bytes; 0 without one. An atomic fragment has one and is no
    /// fragment otherwise (RFC 6946 §2).
    pub(crate) fragment_at: u16,
    /// Identification that fragments of this datagram leave with.
    pub(crate) fragment_id: u16,
    /// A fragment of UDP without a checksum, of which no stateful translator can make IPv6 before it has them
    /// all (RFC 6146 §3.4).
    pub(crate) is_unsummed: bool,
    /// From outside with a source route at its end: refused unless its host has IPv6, which leaves it out.
    pub(crate) is_six_or_refused: bool,
    /// Session hash.
    pub(crate) hash: u64,
    /// Likely session line.
    pub(crate) line: u32,
    /// MTU of the link the packet did not fit, or which of its octets is at fault.
    pub(crate) mtu: u16,
    /// Most octets of the fragments that an IPv6 packet made of an IPv4 one goes on in; 0 when it goes whole
    /// (RFC 7915 §4).
    pub(crate) cut_to: u16,
    /// How often a stateless translator has changed the packet's IP version.
    pub(crate) translations: u8,
    /// Number of the trace, 0 for none.
    pub(crate) traced: u32,
    pub(crate) fate: Fate,
}

impl Default for Meta {
    fn default() -> Self {
        Self {
            flow: Flow::default(),
            ingress: IfIndex(0),
            direction: None,
            raw_from_outside: false,
            translated: None,
            own: false,
            vrf: VrfId(0),
            family: Family::V4,
            destination: 0,
            is_fragment: false,
            fragment_at: 0,
            is_home: false,
            fragment_id: 0,
            is_unsummed: false,
            is_six_or_refused: false,
            hash: 0,
            line: NO_LINE,
            mtu: 0,
            cut_to: 0,
            translations: 0,
            traced: 0,
            fate: Fate::Going,
        }
    }
}

impl Meta {
    /// Source and destination as the packet came in, of either version.
    pub(crate) fn flow_ips(&self) -> [IpAddr; 2] {
        match self.flow.family {
            Family::V4 => [self.flow.src, self.flow.dst].map(|ip| Ipv4Addr::from(ip).into()),
            Family::V6 => [self.flow.src6, self.flow.dst6].map(|ip| Ipv6Addr::from(ip).into()),
        }
    }

    /// The packet continues in another routing instance with the addresses it now has.
    #[inline]
    pub(crate) fn enter(&mut self, frame: &[u8], vrf: VrfId) {
        self.vrf = vrf;
        self.flow.vrf = vrf;
        let l3 = usize::from(self.flow.l3);
        if let Some(head) = frame.get(l3..).and_then(|bytes| bytes.first_chunk::<20>()) {
            self.flow.src = u32::from_be_bytes([head[12], head[13], head[14], head[15]]);
            self.flow.dst = u32::from_be_bytes([head[16], head[17], head[18], head[19]]);
            self.destination = self.flow.dst;
        }
    }
}

/// A packet handed to the worker that owns it, and where it resumes.
#[derive(Debug)]
pub struct Handover {
    pub(crate) frame: Frame,
    pub(crate) meta: Meta,
    pub(crate) resume: Resume,
}

/// The stage a handed-over packet resumes at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resume {
    /// Learn its ports with the other fragments of its datagram.
    Fragments,
    /// Translate it.
    Nat,
}

/// Packets and metadata, index by index.
pub(crate) struct Burst {
    pub(crate) frames: [Option<Frame>; BURST_PACKETS_MAX],
    pub(crate) meta: [Meta; BURST_PACKETS_MAX],
    /// Why a packet got no session when it was asked for beforehand.
    pub(crate) refused: [Option<Reason>; BURST_PACKETS_MAX],
    pub(crate) len: usize,
}

impl Burst {
    pub(crate) fn new() -> Self {
        Self {
            frames: [const { None }; BURST_PACKETS_MAX],
            meta: [Meta::default(); BURST_PACKETS_MAX],
            refused: [None; BURST_PACKETS_MAX],
            len: 0,
        }
    }

    /// Adds a packet; gives the frame back when the burst is full.
    pub(crate) fn push(&mut self, frame: Frame, meta: Meta) -> Result<(), Frame> {
        match (self.frames.get_mut(self.len), self.meta.get_mut(self.len)) {
            (Some(place), Some(about)) => {
                *place = Some(frame);
                *about = meta;
                self.refused[self.len] = None;
                self.len += 1;
                Ok(())
            }
            _ => Err(frame),
        }
    }

    /// Adds a received packet, of which nothing is known: parse writes its metadata. The caller leaves room.
    #[inline(always)]
    pub(crate) fn push_received(&mut self, frame: Frame) -> Result<(), Frame> {
        match self.frames.get_mut(self.len) {
            Some(place) => {
                *place = Some(frame);
                // Invariant: as many places as frames.
                self.refused[self.len] = None;
                self.len += 1;
                Ok(())
            }
            None => Err(frame),
        }
    }

    /// The packet at this place has been refused a session already.
    pub(crate) fn refuse(&mut self, at: usize, reason: Option<Reason>) {
        if let Some(place) = self.refused.get_mut(at) {
            *place = reason;
        }
    }

    pub(crate) fn room(&self) -> usize {
        BURST_PACKETS_MAX - self.len
    }

    /// Packets still going, with their frames.
    #[inline]
    pub(crate) fn going(&mut self) -> impl Iterator<Item = (&mut Frame, &mut Meta)> {
        self.frames.iter_mut().zip(&mut self.meta).take(self.len).filter_map(|(frame, meta)| {
            match (frame, meta.fate) {
                (Some(frame), Fate::Going) => Some((frame, meta)),
                _ => None,
            }
        })
    }
}
