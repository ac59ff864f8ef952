//! The chain of extension headers (RFC 8200 §4), walked within bounds.

use super::{FRAGMENT_HEADER_LEN, HEADER_LEN, Ipv6View, next_header};
use std::fmt;

/// Extension headers walked at most. Real packets have one to three; each kind but destination options
/// should come once (RFC 8200 §4.1), so more than this is an attack.
pub const HEADERS_MAX: usize = 8;
/// Octets of extension headers walked at most, the fragment header included.
pub const CHAIN_LEN_MAX: usize = 512;

/// Why a chain of extension headers cannot be followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainError {
    /// The packet ends inside a header. A first fragment must hold the whole chain too (RFC 7112 §5).
    Truncated,
    /// More than [`HEADERS_MAX`] headers or [`CHAIN_LEN_MAX`] octets of them.
    TooLong,
    /// Hop-by-hop options that do not stand directly behind the IPv6 header (RFC 8200 §4.1). A parameter
    /// problem of code 1 at `pointer` may be sent.
    MisplacedHopByHop {
        /// Where the octet that names the header is, counted from the IPv6 header.
        pointer: u16,
    },
    /// A fragment header behind another one.
    SecondFragmentHeader,
    /// A jumbo payload option in a packet whose payload length is not 0, or in a fragment (RFC 2675 §3).
    MisplacedJumbo,
}

impl fmt::Display for ChainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ChainError::Truncated => "packet ends inside an IPv6 extension header",
            ChainError::TooLong => "more IPv6 extension headers than are walked",
            ChainError::MisplacedHopByHop { .. } => "hop-by-hop options are not the first extension header",
            ChainError::SecondFragmentHeader => "more than one IPv6 fragment header",
            ChainError::MisplacedJumbo => "jumbo payload option in a packet of ordinary length",
        })
    }
}

impl std::error::Error for ChainError {}

/// What a node does that does not recognise an option, from the two highest bits of its type (RFC 8200 §4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// 00: skip it and go on.
    Skip,
    /// 01: drop the packet.
    Drop,
    /// 10: drop the packet and send a parameter problem of code 2, even for a multicast destination.
    DropAndReport,
    /// 11: as 10, but not for a multicast destination.
    DropAndReportUnicast,
}

impl Action {
    /// The action of an option type.
    #[inline(always)]
    pub const fn of(option_type: u8) -> Action {
        match option_type >> 6 {
            0 => Action::Skip,
            1 => Action::Drop,
            2 => Action::DropAndReport,
            _ => Action::DropAndReportUnicast,
        }
    }
}

/// The first option whose type is not recognised and whose action is not "skip".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownOption {
    /// What its type asks for.
    pub action: Action,
    /// Where its type octet is, counted from the IPv6 header: the pointer of a parameter problem.
    pub pointer: u16,
}

/// The fragment header of a packet (RFC 8200 §4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentHeader {
    /// Where the header starts, counted from the IPv6 header.
    pub at: u16,
    /// Number of the header behind it: the first of the fragmentable part.
    pub next_header: u8,
    /// Where this fragment's octets start in the fragmentable part, in octets; a multiple of 8.
    pub offset: u16,
    /// Whether more fragments follow.
    pub more: bool,
    /// Identification of the whole datagram.
    pub identification: u32,
}

impl FragmentHeader {
    /// Whether the "fragment" is a whole datagram (RFC 6946 §2).
    #[inline(always)]
    pub const fn is_atomic(&self) -> bool {
        self.offset == 0 && !self.more
    }

    /// Whether this piece has no transport header.
    #[inline(always)]
    pub const fn is_later(&self) -> bool {
        self.offset != 0
    }

    /// The 8 octets; where the header goes (`at`) is the caller's.
    #[inline(always)]
    pub fn to_bytes(&self) -> [u8; FRAGMENT_HEADER_LEN] {
        let [o0, o1] = (self.offset & !7 | u16::from(self.more)).to_be_bytes();
        let [i0, i1, i2, i3] = self.identification.to_be_bytes();
        [self.next_header, 0, o0, o1, i0, i1, i2, i3]
    }
}

/// The first routing header of a packet that is not yet at its end, else the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Routing {
    /// Where the header starts, counted from the IPv6 header.
    pub at: u16,
    /// Routing type; 0 is forbidden (RFC 5095).
    pub kind: u8,
    /// Nodes still to be visited.
    pub segments_left: u8,
}

impl Routing {
    /// Where the octet of its type is, for the pointer of a parameter problem (RFC 8200 §4.4).
    pub const fn kind_at(&self) -> u16 {
        self.at + 2
    }

    /// Where the "segments left" octet is, for the pointer of a parameter problem (RFC 7915 §5.1).
    pub const fn segments_left_at(&self) -> u16 {
        self.at + 3
    }
}

/// What stands behind the extension headers, and what they say.
///
/// The walk ends at the first header that is none of hop-by-hop options, routing, fragment and destination
/// options (so also at AH and ESP), and behind the fragment header of a later fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extensions {
    /// Protocol number of what stands at `offset`: a transport protocol, AH, ESP, "nothing", or in a later
    /// fragment whatever its fragment header names.
    pub protocol: u8,
    /// Where that starts, counted from the IPv6 header; at most `packet().len()`.
    pub offset: u16,
    /// Where the octet that names `protocol` is: the pointer of a parameter problem of code 1.
    pub protocol_at: u16,
    /// The fragment header.
    pub fragment: Option<FragmentHeader>,
    /// The routing header.
    pub routing: Option<Routing>,
    /// For routers and the destination: an option of the hop-by-hop header that is not recognised.
    pub hop_by_hop: Option<UnknownOption>,
    /// Whether there is a hop-by-hop header at all.
    pub has_hop_by_hop: bool,
    /// For the destination only: an option for it that is not recognised.
    pub destination: Option<UnknownOption>,
    /// Whether an option for routers says "look at this packet" (RFC 2711).
    pub has_router_alert: bool,
}

impl Extensions {
    /// Of a packet without extension headers: for a caller that knows, from the next header of the common packet, and
    /// need not walk.
    #[inline(always)]
    pub const fn none(protocol: u8) -> Extensions {
        Extensions {
            protocol,
            offset: HEADER_LEN as u16,
            protocol_at: 6,
            fragment: None,
            routing: None,
            hop_by_hop: None,
            has_hop_by_hop: false,
            destination: None,
            has_router_alert: false,
        }
    }

    /// Whether this is a piece of a datagram; an atomic fragment is not.
    #[inline(always)]
    pub fn is_fragment(&self) -> bool {
        self.fragment.is_some_and(|fragment| !fragment.is_atomic())
    }

    /// Whether this is a piece without the transport header.
    #[inline(always)]
    pub fn is_later_fragment(&self) -> bool {
        self.fragment.is_some_and(|fragment| fragment.is_later())
    }

    /// Whether any extension header was walked over.
    #[inline(always)]
    pub fn is_any(&self) -> bool {
        self.offset as usize != HEADER_LEN
    }

    /// Whether an extension header, AH among them but not ESP, follows the fragment header. Such a packet
    /// cannot be translated (RFC 7915 §5.1.1).
    #[inline]
    pub fn has_header_behind_fragment(&self) -> bool {
        self.fragment.is_some_and(|fragment| {
            fragment.next_header != next_header::ESP && next_header::is_extension(fragment.next_header)
        })
    }

    /// The walk behind [`Ipv6View::extensions`].
    #[inline(always)]
    pub(super) fn walk(packet: &Ipv6View<'_>) -> Result<Extensions, ChainError> {
        let found = Extensions::none(packet.next_header());
        if is_walked(found.protocol) { found.walk_on(packet.packet()) } else { Ok(found) }
    }

    #[cold]
    #[inline(never)]
    fn walk_on(mut self, packet: &[u8]) -> Result<Extensions, ChainError> {
        for _ in 0..HEADERS_MAX {
            if !is_walked(self.protocol) {
                return Ok(self);
            }
            let at = usize::from(self.offset);
            let rest = packet.get(at..).unwrap_or(&[]);
            let Some(head) = rest.first_chunk::<FRAGMENT_HEADER_LEN>() else {
                return Err(ChainError::Truncated);
            };
            let length = match self.protocol {
                next_header::FRAGMENT => FRAGMENT_HEADER_LEN,
                _ => 8 + usize::from(head[1]) * 8,
            };
            if at + length > HEADER_LEN + CHAIN_LEN_MAX {
                return Err(ChainError::TooLong);
            }
            let header = rest.get(..length).ok_or(ChainError::Truncated)?;
            self.take(head, header)?;
            (self.protocol, self.protocol_at) = (head[0], self.offset);
            self.offset += length as u16;
            if self.is_later_fragment() {
                return Ok(self);
            }
        }
        if is_walked(self.protocol) { Err(ChainError::TooLong) } else { Ok(self) }
    }

    /// Notes what the header at `self.offset`, of kind `self.protocol`, says.
    fn take(&mut self, head: &[u8; FRAGMENT_HEADER_LEN], header: &[u8]) -> Result<(), ChainError> {
        let at = self.offset;
        match self.protocol {
            next_header::HOP_BY_HOP if usize::from(at) != HEADER_LEN => {
                return Err(ChainError::MisplacedHopByHop { pointer: self.protocol_at });
            }
            next_header::HOP_BY_HOP => {
                self.has_hop_by_hop = true;
                let found = options(header, at)?;
                if found.has_jumbo {
                    // A real jumbogram, of payload length 0, does not get as far as this walk.
                    return Err(ChainError::MisplacedJumbo);
                }
                self.hop_by_hop = found.unknown;
                self.has_router_alert = found.has_router_alert;
            }
            next_header::DESTINATION => {
                let found = options(header, at)?;
                self.destination = self.destination.or(found.unknown);
            }
            next_header::ROUTING => {
                let routing = Routing { at, kind: head[2], segments_left: head[3] };
                let is_news = self.routing.is_none_or(|first| first.segments_left == 0);
                if is_news && (self.routing.is_none() || routing.segments_left != 0) {
                    self.routing = Some(routing);
                }
            }
            _ => {
                if self.fragment.is_some() {
                    return Err(ChainError::SecondFragmentHeader);
                }
                let word = u16::from_be_bytes([head[2], head[3]]);
                self.fragment = Some(FragmentHeader {
                    at,
                    next_header: head[0],
                    offset: word & !7,
                    more: word & 1 != 0,
                    identification: u32::from_be_bytes([head[4], head[5], head[6], head[7]]),
                });
            }
        }
        Ok(())
    }
}

/// Whether `bytes`, a packet whose payload length is 0 and whose first extension header is hop-by-hop options,
/// announces its length by a jumbo payload option.
#[cold]
pub(super) fn is_jumbogram(bytes: &[u8]) -> bool {
    let rest = bytes.get(HEADER_LEN..).unwrap_or(&[]);
    let Some(length) = rest.get(1).map(|length| 8 + usize::from(*length) * 8) else { return false };
    let header = rest.get(..length.min(rest.len())).unwrap_or(&[]);
    options(header, 0).is_ok_and(|found| found.has_jumbo)
}

/// Whether the walk goes past a header of this number.
#[inline(always)]
const fn is_walked(number: u8) -> bool {
    matches!(
        number,
        next_header::HOP_BY_HOP | next_header::ROUTING | next_header::FRAGMENT | next_header::DESTINATION
    )
}

/// Option types known here.
mod option {
    pub const PAD1: u8 = 0;
    pub const PADN: u8 = 1;
    pub const ROUTER_ALERT: u8 = 5;
    pub const JUMBO: u8 = 0xc2;
}

#[derive(Clone, Copy, Debug, Default)]
struct Found {
    unknown: Option<UnknownOption>,
    has_router_alert: bool,
    has_jumbo: bool,
}

/// Reads the options of `header`, which starts `at` octets behind the IPv6 header.
fn options(header: &[u8], at: u16) -> Result<Found, ChainError> {
    let mut found = Found::default();
    let mut position = 2;
    while let Some(option_type) = header.get(position).copied() {
        if option_type == option::PAD1 {
            position += 1;
            continue;
        }
        let length = usize::from(*header.get(position + 1).ok_or(ChainError::Truncated)?);
        if position + 2 + length > header.len() {
            return Err(ChainError::Truncated);
        }
        match option_type {
            option::PADN => {}
            option::ROUTER_ALERT => found.has_router_alert = true,
            option::JUMBO => found.has_jumbo = true,
            _ => {
                let action = Action::of(option_type);
                if found.unknown.is_none() && action != Action::Skip {
                    found.unknown = Some(UnknownOption { action, pointer: at + position as u16 });
                }
            }
        }
        position += 2 + length;
    }
    Ok(found)
}
