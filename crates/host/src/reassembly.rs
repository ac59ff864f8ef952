//! Datagrams to the router that come in pieces (RFC 1122 §3.3.2, RFC 8200 §4.5): a bounded number of them, each of bounded
//! size, for a bounded time.
//!
//! At most [`DATAGRAMS_MAX`] of [`PAYLOAD_MAX`] bytes with what is quoted of each: less than half a megabyte.

#[cfg(test)]
mod tests;

use std::net::IpAddr;

use carrack_base::{IfIndex, Now, VrfId};
use carrack_wire::ipv4::{Ipv4Header, Ipv4View};
use carrack_wire::ipv6::{FragmentHeader, Ipv6Header, Ipv6View, MTU_MIN};
use carrack_wire::{MacAddr, icmp, icmpv6, ipv6};

use crate::host::HostCounters;

/// Datagrams at once; the oldest makes room for another one.
pub(crate) const DATAGRAMS_MAX: usize = 64;
/// Bytes behind the IP header: an echo request with 4,096 of data. RFC 8200 §5 asks for 1,500 with the header.
pub(crate) const PAYLOAD_MAX: usize = 4_096 + icmp::HEADER_LEN;
/// Bytes kept of a first fragment, to be quoted: all that an error has room for.
const QUOTE_MAX: usize = icmpv6::ERROR_LEN_MAX - ipv6::HEADER_LEN - icmp::HEADER_LEN;
/// Time to wait for the rest, from the first piece that came (RFC 1122 §3.3.2, RFC 8200 §4.5).
const TIMEOUT_NS: u64 = 60_000_000_000;

/// What pieces of one datagram have in common (RFC 791 §3.2, RFC 8200 §4.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Key {
    vrf: VrfId,
    src: IpAddr,
    dst: IpAddr,
    /// Of IPv4; of IPv6 it tells nothing apart.
    protocol: u8,
    identification: u32,
}

/// One piece.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece<'a> {
    key: Key,
    from: (IfIndex, MacAddr),
    /// From its IP header on.
    packet: &'a [u8],
    offset: usize,
    more: bool,
    data: &'a [u8],
}

impl<'a> Piece<'a> {
    /// Of IPv4; `from` are interface and sender of its frame.
    pub(crate) fn of4(vrf: VrfId, from: (IfIndex, MacAddr), packet: &Ipv4View<'a>) -> Self {
        let (src, dst) = (packet.src_addr().into(), packet.dst_addr().into());
        let (protocol, identification) = (packet.protocol(), packet.identification().into());
        Self {
            key: Key { vrf, src, dst, protocol, identification },
            from,
            packet: packet.packet(),
            offset: packet.fragment_offset() as usize,
            more: packet.more_fragments(),
            data: packet.payload(),
        }
    }

    /// Of IPv6: what is behind its fragment header `header`.
    pub(crate) fn of6(
        vrf: VrfId,
        from: (IfIndex, MacAddr),
        packet: &Ipv6View<'a>,
        header: &FragmentHeader,
    ) -> Self {
        let (src, dst) = (packet.src_addr().into(), packet.dst_addr().into());
        let behind = usize::from(header.at) + ipv6::FRAGMENT_HEADER_LEN;
        Self {
            key: Key { vrf, src, dst, protocol: 0, identification: header.identification },
            from,
            packet: packet.packet(),
            offset: header.offset.into(),
            more: header.more,
            data: packet.packet().get(behind..).unwrap_or(&[]),
        }
    }
}

/// A datagram put together.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Whole {
    /// Header without options or extension headers, and all that was in pieces.
    pub(crate) packet: Vec<u8>,
    /// Bytes of the longest piece: what the way here takes, at least.
    pub(crate) longest: usize,
    /// What its pieces had in common.
    pub(crate) identification: u32,
}

/// A datagram whose rest did not come in time.
#[derive(Debug)]
pub(crate) struct Overdue {
    /// Interface and sender of the first fragment's frame.
    pub(crate) from: (IfIndex, MacAddr),
    /// The first fragment, perhaps cut short; empty when it is among what did not come.
    pub(crate) first: Vec<u8>,
}

/// Why a datagram comes to nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Overlap,
    TooLong,
}

#[derive(Debug)]
struct Datagram {
    key: Key,
    due: Now,
    from: (IfIndex, MacAddr),
    first: Vec<u8>,
    payload: Vec<u8>,
    /// Where each piece begins and ends.
    pieces: Vec<(usize, usize)>,
    longest: usize,
    /// Where the last piece ends.
    total: Option<usize>,
    /// RFC 5722 §4: takes what is still to come, which is thrown away with the rest.
    is_dead: bool,
}

impl Datagram {
    fn new(now: Now, piece: &Piece<'_>) -> Self {
        Self {
            key: piece.key,
            due: now.plus_ns(TIMEOUT_NS),
            from: piece.from,
            first: Vec::new(),
            payload: Vec::new(),
            pieces: Vec::new(),
            longest: 0,
            total: None,
            is_dead: false,
        }
    }

    fn take(&mut self, piece: &Piece<'_>) -> Result<(), Fault> {
        let (start, end) = (piece.offset, piece.offset + piece.data.len());
        if end > PAYLOAD_MAX {
            return Err(Fault::TooLong);
        }
        // RFC 8200 §4.5: the very same piece twice is the network's doing and no overlap.
        if self.pieces.contains(&(start, end)) && self.payload.get(start..end) == Some(piece.data) {
            return Ok(());
        }
        let overlaps = |(from, to): &(usize, usize)| start < *to && *from < end;
        let is_beyond = self.total.is_some_and(|total| end > total || !piece.more);
        let is_short = !piece.more && self.payload.len() > end;
        if is_beyond || is_short || self.pieces.iter().any(overlaps) {
            return Err(Fault::Overlap);
        }
        if !piece.more {
            self.total = Some(end);
        }
        if start == 0 {
            let quoted = piece.packet.len().min(QUOTE_MAX);
            self.first = piece.packet.get(..quoted).unwrap_or(&[]).to_vec();
            self.from = piece.from;
        }
        self.payload.resize(self.payload.len().max(end), 0);
        if let Some(place) = self.payload.get_mut(start..end) {
            place.copy_from_slice(piece.data);
        }
        self.pieces.push((start, end));
        self.longest = self.longest.max(piece.packet.len());
        Ok(())
    }

    /// Every byte came: none came twice.
    fn is_whole(&self) -> bool {
        self.total == Some(self.pieces.iter().map(|(start, end)| end - start).sum())
    }

    /// RFC 5722 §4, RFC 8200 §4.5: nothing of it is kept, and nobody is told.
    fn end(&mut self) {
        self.is_dead = true;
        (self.first, self.payload, self.pieces) = (Vec::new(), Vec::new(), Vec::new());
    }

    fn into_whole(self) -> Option<Whole> {
        let payload_len = self.payload.len() as u16;
        let mut packet = match self.key.src {
            IpAddr::V4(_) => {
                let first = Ipv4View::parse_quoted(&self.first).ok()?;
                let header = Ipv4Header {
                    tos: first.tos(),
                    payload_len,
                    identification: first.identification(),
                    flags_and_offset: 0,
                    ttl: first.ttl(),
                    protocol: first.protocol(),
                    src: first.src(),
                    dst: first.dst(),
                };
                header.to_bytes().to_vec()
            }
            IpAddr::V6(_) => {
                let first = Ipv6View::parse_quoted(&self.first).ok()?;
                let header = Ipv6Header {
                    traffic_class: first.traffic_class(),
                    flow_label: first.flow_label(),
                    payload_len,
                    // RFC 8200 §4.5: what the first fragment says is behind counts.
                    next_header: first.extensions().ok()?.fragment?.next_header,
                    hop_limit: first.hop_limit(),
                    src: first.src(),
                    dst: first.dst(),
                };
                header.to_bytes().to_vec()
            }
        };
        packet.extend_from_slice(&self.payload);
        Some(Whole { packet, longest: self.longest, identification: self.key.identification })
    }
}

/// All datagrams of which something has come.
#[derive(Debug, Default)]
pub(crate) struct Reassembly {
    /// In the order of their first pieces.
    datagrams: Vec<Datagram>,
}

impl Reassembly {
    /// Takes a piece; gives the datagram that it completes.
    pub(crate) fn take(&mut self, now: Now, piece: &Piece<'_>, counters: &mut HostCounters) -> Option<Whole> {
        counters.fragments_received += 1;
        let len = piece.data.len();
        // RFC 8200 §4.5: all but the last are multiples of eight. The workers let none through that is not, nor one that ends
        // beyond the longest datagram.
        let is_cut_badly = len == 0 || (piece.more && !len.is_multiple_of(8));
        if is_cut_badly || piece.offset + len > usize::from(u16::MAX) {
            counters.fragments_malformed += 1;
            return None;
        }
        let known = self.datagrams.iter().position(|datagram| datagram.key == piece.key);
        let at = known.unwrap_or_else(|| self.begin(now, piece, counters));
        let datagram = self.datagrams.get_mut(at).filter(|datagram| !datagram.is_dead)?;
        if let Err(fault) = datagram.take(piece) {
            datagram.end();
            match fault {
                Fault::Overlap => counters.reassembly_overlap += 1,
                Fault::TooLong => counters.reassembly_too_long += 1,
            }
            return None;
        }
        if !datagram.is_whole() {
            return None;
        }
        counters.reassembled += 1;
        self.datagrams.remove(at).into_whole()
    }

    /// Begins a datagram and says where. When there are too many one makes room, best one that comes to nothing anyway.
    fn begin(&mut self, now: Now, piece: &Piece<'_>, counters: &mut HostCounters) -> usize {
        if self.datagrams.len() >= DATAGRAMS_MAX {
            let dead = self.datagrams.iter().position(|datagram| datagram.is_dead);
            counters.reassembly_full += u64::from(dead.is_none());
            self.datagrams.remove(dead.unwrap_or(0));
        }
        self.datagrams.push(Datagram::new(now, piece));
        self.datagrams.len() - 1
    }

    /// Datagrams whose time is over, those that came to nothing before left out.
    pub(crate) fn overdue(&mut self, now: Now) -> Vec<Overdue> {
        let over = self.datagrams.extract_if(.., |datagram| datagram.due <= now);
        let over = over.filter(|datagram| !datagram.is_dead);
        over.map(|Datagram { from, first, .. }| Overdue { from, first }).collect()
    }

    /// When the next one's time is over.
    pub(crate) fn next_due(&self) -> Option<Now> {
        self.datagrams.iter().map(|datagram| datagram.due).min()
    }
}

/// The longest packets of IPv6 that are sent back by the way a datagram came: as long as its longest piece, which no router
/// has cut, and never shorter than every link takes.
pub(crate) fn limit6(whole: &Whole) -> usize {
    whole.longest.max(MTU_MIN)
}
