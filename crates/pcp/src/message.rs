//! PCP messages: requests read in the order that RFC 6887 §8.2 asks for, answers written.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::table::Nonce;

/// Longest message (RFC 6887 §7).
pub const MESSAGE_BYTES_MAX: usize = 1_100;
/// Header of requests and answers.
pub(crate) const HEADER_BYTES: usize = 24;
/// What a MAP has behind the header.
const MAP_BYTES: usize = 36;
/// What a PEER has behind the header.
const PEER_BYTES: usize = 56;
/// The version spoken.
pub(crate) const VERSION: u8 = 2;
/// Set in the second octet of an answer.
const ANSWER: u8 = 0x80;

const ANNOUNCE: u8 = 0;
const MAP: u8 = 1;
const PEER: u8 = 2;

const THIRD_PARTY: u8 = 1;
const PREFER_FAILURE: u8 = 2;
const FILTER: u8 = 3;
const PORT_SET: u8 = 130;

/// Result codes (RFC 6887 §7.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Code {
    /// Done.
    Success = 0,
    /// The version is not 2.
    UnsuppVersion = 1,
    /// Policy, or somebody else's mapping.
    NotAuthorized = 2,
    /// Not understood.
    MalformedRequest = 3,
    /// No such operation.
    UnsuppOpcode = 4,
    /// A mandatory option that is not known, or not for this client.
    UnsuppOption = 5,
    /// An option that is wrong in itself.
    MalformedOption = 6,
    /// The NAT cannot work just now.
    NetworkFailure = 7,
    /// Something ran out.
    NoResources = 8,
    /// Not TCP, not UDP.
    UnsuppProtocol = 9,
    /// The subscriber has what it may have.
    UserExQuota = 10,
    /// Not the outside endpoint that the client insists on.
    CannotProvideExternal = 11,
    /// There is a NAT between client and server.
    AddressMismatch = 12,
    /// More filters than a mapping can have.
    ExcessiveRemotePeers = 13,
}

impl Code {
    /// All codes, by number.
    pub const ALL: [Self; 14] = [
        Self::Success,
        Self::UnsuppVersion,
        Self::NotAuthorized,
        Self::MalformedRequest,
        Self::UnsuppOpcode,
        Self::UnsuppOption,
        Self::MalformedOption,
        Self::NetworkFailure,
        Self::NoResources,
        Self::UnsuppProtocol,
        Self::UserExQuota,
        Self::CannotProvideExternal,
        Self::AddressMismatch,
        Self::ExcessiveRemotePeers,
    ];

    /// The word for people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::UnsuppVersion => "unsupp-version",
            Self::NotAuthorized => "not-authorized",
            Self::MalformedRequest => "malformed-request",
            Self::UnsuppOpcode => "unsupp-opcode",
            Self::UnsuppOption => "unsupp-option",
            Self::MalformedOption => "malformed-option",
            Self::NetworkFailure => "network-failure",
            Self::NoResources => "no-resources",
            Self::UnsuppProtocol => "unsupp-protocol",
            Self::UserExQuota => "user-ex-quota",
            Self::CannotProvideExternal => "cannot-provide-external",
            Self::AddressMismatch => "address-mismatch",
            Self::ExcessiveRemotePeers => "excessive-remote-peers",
        }
    }

    /// For how long the client should expect the same, seconds (RFC 6887 §7.4: long and short lifetime errors).
    pub(crate) const fn lifetime_s(self) -> u32 {
        match self {
            Self::Success => 0,
            Self::NetworkFailure | Self::NoResources | Self::UserExQuota | Self::CannotProvideExternal => 30,
            _ => 1_800,
        }
    }
}

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Body {
    Announce,
    Map(MapBody),
    Peer(MapBody, IpAddr, u16),
}

/// What MAP and PEER share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MapBody {
    pub(crate) nonce: Nonce,
    pub(crate) protocol: u8,
    pub(crate) inside_port: u16,
    pub(crate) outside_port: u16,
    pub(crate) outside: IpAddr,
}

/// One FILTER (RFC 6887 §13.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FilterOption {
    pub(crate) len: u8,
    pub(crate) port: u16,
    pub(crate) peer: IpAddr,
}

/// PORT_SET (RFC 7753 §4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PortSet {
    pub(crate) size: u16,
    pub(crate) first: u16,
    pub(crate) parity: bool,
}

/// All options of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) third_party: Option<IpAddr>,
    pub(crate) prefer_failure: bool,
    pub(crate) filters: Vec<FilterOption>,
    pub(crate) port_set: Option<PortSet>,
}

/// A request that can be understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) lifetime_s: u32,
    pub(crate) body: Body,
    pub(crate) options: Options,
}

/// Reads a request of version 2 from `client`. `Err(None)` is silence.
pub(crate) fn read(bytes: &[u8], client: IpAddr) -> Result<Request, Option<Code>> {
    let (Some(version), Some(kind)) = (bytes.first(), bytes.get(1)) else { return Err(None) };
    if kind & ANSWER != 0 {
        return Err(None);
    }
    // RFC 6887 §9: the answer says which version is spoken.
    if *version != VERSION {
        return Err(Some(Code::UnsuppVersion));
    }
    if bytes.len() < HEADER_BYTES {
        return Err(None);
    }
    let body_bytes = match *kind {
        ANNOUNCE => 0,
        MAP => MAP_BYTES,
        PEER => PEER_BYTES,
        _ => 0,
    };
    if bytes.len() > MESSAGE_BYTES_MAX
        || !bytes.len().is_multiple_of(4)
        || bytes.len() < HEADER_BYTES + body_bytes
    {
        return Err(Some(Code::MalformedRequest));
    }
    if address(bytes, 8) != Some(client) {
        return Err(Some(Code::AddressMismatch));
    }
    if *kind > PEER {
        return Err(Some(Code::UnsuppOpcode));
    }
    let lifetime_s = be32(bytes, 4);
    let options = read_options(bytes.get(HEADER_BYTES + body_bytes..).unwrap_or(&[]), *kind, lifetime_s)?;
    let shared = MapBody {
        nonce: bytes.get(24..36).and_then(|nonce| nonce.try_into().ok()).unwrap_or_default(),
        protocol: bytes.get(36).copied().unwrap_or(0),
        inside_port: be16(bytes, 40),
        outside_port: be16(bytes, 42),
        outside: address(bytes, 44).unwrap_or(Ipv4Addr::UNSPECIFIED.into()),
    };
    let body = match *kind {
        MAP => Body::Map(shared),
        PEER => {
            let peer = address(bytes, 64).unwrap_or(Ipv4Addr::UNSPECIFIED.into());
            Body::Peer(shared, peer, be16(bytes, 60))
        }
        _ => Body::Announce,
    };
    if !matches!(body, Body::Announce) && shared.protocol == 0 && shared.inside_port != 0 {
        return Err(Some(Code::MalformedRequest));
    }
    Ok(Request { lifetime_s, body, options })
}

/// RFC 6887 §7.3: the structure first, then each option; in the order they have.
fn read_options(mut bytes: &[u8], kind: u8, lifetime_s: u32) -> Result<Options, Option<Code>> {
    let malformed = Err(Some(Code::MalformedOption));
    let mut list: Vec<(u8, &[u8])> = Vec::new();
    while !bytes.is_empty() {
        let length = usize::from(be16(bytes, 2));
        let (Some(code), Some(data)) = (bytes.first(), bytes.get(4..4 + length)) else { return malformed };
        list.push((*code, data));
        bytes = bytes.get(4 + length.next_multiple_of(4)..).unwrap_or(&[]);
    }
    let mut options = Options::default();
    for (code, data) in list {
        match code {
            THIRD_PARTY if kind != ANNOUNCE => {
                let internal = address(data, 0).filter(|_| data.len() == 16);
                let (Some(internal), None) = (internal, options.third_party) else { return malformed };
                options.third_party = Some(internal);
            }
            PREFER_FAILURE if kind == MAP && lifetime_s > 0 => {
                if !data.is_empty() || options.prefer_failure {
                    return malformed;
                }
                options.prefer_failure = true;
            }
            FILTER if kind == MAP && lifetime_s > 0 => {
                let (20, Some(peer)) = (data.len(), address(data, 4)) else { return malformed };
                let filter =
                    FilterOption { len: data.get(1).copied().unwrap_or(0), port: be16(data, 2), peer };
                let least = if peer.is_ipv4() { 96 } else { 0 };
                if filter.len > 128 || (filter.len != 0 && filter.len < least) {
                    return malformed;
                }
                options.filters.push(filter);
            }
            PORT_SET if kind == MAP => {
                let (5, None) = (data.len(), options.port_set) else { return malformed };
                let parity = data.get(4).is_some_and(|flags| flags & 1 != 0);
                let set = PortSet { size: be16(data, 0), first: be16(data, 2), parity };
                if set.size == 0 && lifetime_s > 0 {
                    return malformed;
                }
                options.port_set = Some(set);
            }
            // RFC 6887 §11.3: a known option where it makes no sense.
            THIRD_PARTY | PREFER_FAILURE | FILTER => return malformed,
            unknown if unknown < 128 => return Err(Some(Code::UnsuppOption)),
            _ => {}
        }
    }
    // RFC 7753 §4.2.
    if options.port_set.is_some() && options.prefer_failure {
        return malformed;
    }
    Ok(options)
}

/// RFC 6887 §8.2: an error is the request again, cut and padded, with the header made an answer's.
pub(crate) fn error(request: &[u8], code: Code, lifetime_s: u32, epoch_s: u32) -> Vec<u8> {
    let mut out: Vec<u8> = request.iter().copied().take(MESSAGE_BYTES_MAX).collect();
    out.resize(out.len().next_multiple_of(4).max(HEADER_BYTES), 0);
    head(&mut out, code, lifetime_s, epoch_s);
    if !is_parsed(code) {
        // §7.2: the last 96 bits of the client's address as it wrote them, where it wrote any.
        return out;
    }
    if let Some(reserved) = out.get_mut(12..HEADER_BYTES) {
        reserved.fill(0);
    }
    out
}

/// Was the request understood, and refused nevertheless?
const fn is_parsed(code: Code) -> bool {
    !matches!(
        code,
        Code::UnsuppVersion
            | Code::MalformedRequest
            | Code::UnsuppOpcode
            | Code::MalformedOption
            | Code::AddressMismatch
    )
}

/// RFC 6887 §7.2.
fn head(out: &mut [u8], code: Code, lifetime_s: u32, epoch_s: u32) {
    let (lifetime, epoch) = (lifetime_s.to_be_bytes(), epoch_s.to_be_bytes());
    if let Some(head) = out.first_chunk_mut::<12>() {
        head[0] = VERSION;
        head[1] |= ANSWER;
        head[2] = 0;
        head[3] = code as u8;
        head[4..8].copy_from_slice(&lifetime);
        head[8..12].copy_from_slice(&epoch);
    }
}

/// The answer to an ANNOUNCE, asked for or not (RFC 6887 §14.1).
pub(crate) fn announcement(epoch_s: u32) -> Vec<u8> {
    let mut out = vec![0; HEADER_BYTES];
    head(&mut out, Code::Success, 0, epoch_s);
    out
}

/// What a MAP or PEER got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Assigned {
    pub(crate) lifetime_s: u32,
    /// First inside port: of a set, that of the set.
    pub(crate) inside_port: u16,
    pub(crate) outside: IpAddr,
    pub(crate) outside_port: u16,
    /// Ports of the set; 1 is no set.
    pub(crate) ports: u16,
}

/// The answer to a MAP or PEER that was granted: header, what it asked for, the options that were processed.
pub(crate) fn success(request: &Request, assigned: &Assigned, epoch_s: u32) -> Vec<u8> {
    let (kind, body) = match &request.body {
        Body::Announce => return announcement(epoch_s),
        Body::Map(body) => (MAP, body),
        Body::Peer(body, ..) => (PEER, body),
    };
    let mut out = vec![0; HEADER_BYTES];
    if let Some(place) = out.get_mut(1) {
        *place = kind;
    }
    head(&mut out, Code::Success, assigned.lifetime_s, epoch_s);
    out.extend_from_slice(&body.nonce);
    out.extend_from_slice(&[body.protocol, 0, 0, 0]);
    out.extend_from_slice(&assigned.inside_port.to_be_bytes());
    out.extend_from_slice(&assigned.outside_port.to_be_bytes());
    out.extend_from_slice(&octets(assigned.outside));
    if let Body::Peer(_, peer, port) = &request.body {
        out.extend_from_slice(&port.to_be_bytes());
        out.extend_from_slice(&[0, 0]);
        out.extend_from_slice(&octets(*peer));
    }
    write_options(&mut out, &request.options, assigned);
    out
}

/// What a client is told unasked of a mapping that it has, or no longer has (RFC 6887 §14.2).
pub(crate) fn told(request: &Request, assigned: &Assigned, code: Code, epoch_s: u32) -> Vec<u8> {
    let mut out = success(request, assigned, epoch_s);
    head(&mut out, code, assigned.lifetime_s, epoch_s);
    out
}

fn write_options(out: &mut Vec<u8>, options: &Options, assigned: &Assigned) {
    let mut option = |code: u8, data: &[u8]| {
        out.extend_from_slice(&[code, 0]);
        out.extend_from_slice(&(data.len() as u16).to_be_bytes());
        out.extend_from_slice(data);
        out.resize(out.len().next_multiple_of(4), 0);
    };
    if let Some(internal) = options.third_party {
        option(THIRD_PARTY, &octets(internal));
    }
    if options.prefer_failure {
        option(PREFER_FAILURE, &[]);
    }
    for filter in &options.filters {
        let mut data = vec![0, filter.len];
        data.extend_from_slice(&filter.port.to_be_bytes());
        data.extend_from_slice(&octets(filter.peer));
        option(FILTER, &data);
    }
    // RFC 7753 §4.2: never where there is only one port.
    if let Some(set) = options.port_set.filter(|_| assigned.ports > 1) {
        let mut data = assigned.ports.to_be_bytes().to_vec();
        data.extend_from_slice(&assigned.inside_port.to_be_bytes());
        data.push(u8::from(set.parity));
        option(PORT_SET, &data);
    }
}

/// RFC 6887 §5: an IPv4 address is an IPv4-mapped one.
fn octets(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

fn address(bytes: &[u8], at: usize) -> Option<IpAddr> {
    let octets: [u8; 16] = bytes.get(at..at + 16)?.try_into().ok()?;
    Some(Ipv6Addr::from(octets).to_canonical())
}

fn be16(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |two| u16::from_be_bytes([two[0], two[1]]))
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from(be16(bytes, at)) << 16 | u32::from(be16(bytes, at + 2))
}
