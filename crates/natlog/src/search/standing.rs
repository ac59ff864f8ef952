//! What the events up to a time make of a port: whose it is, or whose it was last.

use core::net::IpAddr;

use super::{Found, is_restart};
use crate::record::Kind;

/// Whose a port is after some events, by their place in the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// The events do not tell: earlier ones must.
    Unknown,
    /// Nobody's since that event.
    Free(usize),
    /// It is held, by that event.
    Held(usize),
}

/// An inside endpoint's sessions on the port. Without destinations they cannot be told apart, but counted.
struct Sessions {
    inside: (IpAddr, u16),
    protocol: u8,
    /// Begun minus ended, from here to the end of the list.
    open: i64,
    /// The last end.
    at: usize,
}

impl Standing {
    /// From events in order of time. Reads backwards, to the first that decides.
    pub(super) fn of(found: &[Found]) -> Self {
        let mut last: Option<Sessions> = None;
        for (at, Found { record, .. }) in found.iter().enumerate().rev() {
            let blocks_tell = record.detail != 0;
            match record.kind {
                _ if is_restart(record) => return last.map_or(Self::Free(at), |last| Self::Free(last.at)),
                Kind::BlockAllocated => return Self::Held(at),
                Kind::BlockReleased => return Self::Free(at),
                Kind::MappingCreated if !blocks_tell => return Self::Held(at),
                Kind::MappingDeleted if !blocks_tell => return Self::Free(at),
                Kind::SessionCreated | Kind::SessionDeleted if !blocks_tell => {
                    let inside = (record.inside, record.inside_port);
                    let sessions =
                        last.get_or_insert(Sessions { inside, protocol: record.protocol, open: 0, at });
                    if sessions.protocol != record.protocol {
                        continue;
                    }
                    // An endpoint has a port alone: where another's sessions come into sight, this one's are all counted.
                    if sessions.inside != inside {
                        return Self::Free(sessions.at);
                    }
                    sessions.open += if record.kind == Kind::SessionCreated { 1 } else { -1 };
                    if sessions.open > 0 {
                        return Self::Held(at);
                    }
                }
                _ => {}
            }
        }
        Self::Unknown
    }

    /// When what `holder` holds ends, by events after it in order of time: their place. For sessions the earliest time
    /// it can have been; until then it held the port for certain.
    pub(super) fn end(holder: &Found, after: &[Found]) -> Option<usize> {
        let mut open = 1i64;
        after.iter().position(|Found { record, .. }| match (holder.record.kind, record.kind) {
            _ if is_restart(record) => true,
            (Kind::BlockAllocated, Kind::BlockAllocated | Kind::BlockReleased) => true,
            (Kind::MappingCreated, Kind::MappingCreated | Kind::MappingDeleted) => {
                record.protocol == holder.record.protocol
            }
            (Kind::SessionCreated, Kind::SessionCreated | Kind::SessionDeleted) => {
                if record.protocol != holder.record.protocol {
                    return false;
                }
                open += if record.kind == Kind::SessionCreated { 1 } else { -1 };
                open == 0 || record.inside != holder.record.inside
            }
            _ => false,
        })
    }
}
