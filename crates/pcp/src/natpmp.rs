//! NAT-PMP messages (RFC 6886).

use std::net::Ipv4Addr;

use crate::message::Code;

/// Longest request.
const REQUEST_BYTES: usize = 12;
const ANSWER: u8 = 128;

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Request {
    /// The outside address (RFC 6886 §3.2).
    Address,
    /// A mapping (RFC 6886 §3.3).
    Map(MapRequest),
}

/// A mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MapRequest {
    /// 1 is UDP, 2 is TCP.
    pub(crate) op: u8,
    pub(crate) inside_port: u16,
    pub(crate) outside_port: u16,
    pub(crate) lifetime_s: u32,
}

/// Result codes (RFC 6886 §3.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Outcome {
    Success = 0,
    UnsupportedVersion = 1,
    NotAuthorized = 2,
    NetworkFailure = 3,
    OutOfResources = 4,
    UnsupportedOpcode = 5,
}

impl From<Code> for Outcome {
    fn from(code: Code) -> Self {
        match code {
            Code::Success => Self::Success,
            Code::UnsuppVersion => Self::UnsupportedVersion,
            Code::UnsuppOpcode => Self::UnsupportedOpcode,
            Code::NetworkFailure => Self::NetworkFailure,
            Code::NoResources | Code::UserExQuota | Code::CannotProvideExternal => Self::OutOfResources,
            _ => Self::NotAuthorized,
        }
    }
}

/// Reads a request of version 0. `Err` is an opcode that there is not; `None` is nothing to answer.
pub(crate) fn read(bytes: &[u8]) -> Option<Result<Request, u8>> {
    let op = bytes.get(1).copied().filter(|op| *op < ANSWER)?;
    if op == 0 {
        return Some(Ok(Request::Address));
    }
    if op > 2 {
        return Some(Err(op));
    }
    let &[_, _, _, _, a, b, c, d, e, f, g, h] = bytes.first_chunk::<REQUEST_BYTES>()?;
    Some(Ok(Request::Map(MapRequest {
        op,
        inside_port: u16::from_be_bytes([a, b]),
        outside_port: u16::from_be_bytes([c, d]),
        lifetime_s: u32::from_be_bytes([e, f, g, h]),
    })))
}

fn head(op: u8, outcome: Outcome, epoch_s: u32) -> Vec<u8> {
    let mut out = vec![0, ANSWER | op];
    out.extend_from_slice(&(outcome as u16).to_be_bytes());
    out.extend_from_slice(&epoch_s.to_be_bytes());
    out
}

/// The outside address; `Err` why there is none.
pub(crate) fn address(outside: Result<Ipv4Addr, Outcome>, epoch_s: u32) -> Vec<u8> {
    let mut out = head(0, outside.err().unwrap_or(Outcome::Success), epoch_s);
    out.extend_from_slice(&outside.unwrap_or(Ipv4Addr::UNSPECIFIED).octets());
    out
}

/// What became of a mapping.
pub(crate) fn mapped(
    request: &MapRequest,
    outcome: Outcome,
    outside_port: u16,
    lifetime_s: u32,
    epoch_s: u32,
) -> Vec<u8> {
    let mut out = head(request.op, outcome, epoch_s);
    out.extend_from_slice(&request.inside_port.to_be_bytes());
    out.extend_from_slice(&outside_port.to_be_bytes());
    out.extend_from_slice(&lifetime_s.to_be_bytes());
    out
}

/// An opcode that there is not, or a version (RFC 6886 §3.5: its first eight octets tell enough).
pub(crate) fn refused(op: u8, outcome: Outcome, epoch_s: u32) -> Vec<u8> {
    head(op, outcome, epoch_s)
}
