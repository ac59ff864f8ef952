//! What outlives a restart, as text: a line for the epoch, one for each grant.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};

use carrack_base::{Proto, VrfId};
use carrack_nat::row::Endpoint;
use carrack_nat::{PortFilter, PortFilters};

use crate::table::{Key, Nonce, Origin};

const TITLE: &str = "carrack-port-control 1";

/// A state to be written, or read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Saved {
    /// Seconds since 1970 at which the epoch began.
    pub epoch_unix_s: u64,
    /// Is this all there was? Only what was written at the end of a run is.
    pub complete: bool,
    pub(crate) grants: Vec<SavedGrant>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SavedGrant {
    /// Name of the routing instance; its number in `key` is without meaning.
    pub(crate) vrf: String,
    pub(crate) key: Key,
    pub(crate) outside: Endpoint,
    pub(crate) ports: u16,
    pub(crate) ends_unix_s: u64,
    pub(crate) origin: Origin,
    pub(crate) filters: PortFilters,
}

/// Where a state cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateError {
    /// Line, from 1.
    pub line: usize,
}

impl std::fmt::Display for StateError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {} is not a line of a port control state", self.line)
    }
}

impl std::error::Error for StateError {}

impl Saved {
    /// How many grants.
    #[must_use]
    pub fn len(&self) -> usize {
        self.grants.len()
    }

    /// No grant at all?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.grants.is_empty()
    }

    /// As text.
    #[must_use]
    pub fn to_text(&self) -> String {
        let how = if self.complete { "complete" } else { "running" };
        let mut out = format!("{TITLE}\nepoch {} {how}\n", self.epoch_unix_s);
        for grant in &self.grants {
            grant.write(&mut out);
        }
        out
    }

    /// Of a text.
    ///
    /// # Errors
    /// The first line that is wrong. A text that was cut off is one.
    pub fn of_text(text: &str) -> Result<Self, StateError> {
        let wrong = |line: usize| StateError { line };
        let mut lines = text.lines().enumerate().map(|(at, line)| (at + 1, line));
        if lines.next().map(|(_, line)| line) != Some(TITLE) || !text.ends_with('\n') {
            return Err(wrong(1));
        }
        let (_, epoch) = lines.next().ok_or(wrong(2))?;
        let (epoch_unix_s, complete) = match epoch.split(' ').collect::<Vec<_>>()[..] {
            ["epoch", s, "complete"] => (s.parse().ok(), true),
            ["epoch", s, "running"] => (s.parse().ok(), false),
            _ => (None, false),
        };
        let epoch_unix_s = epoch_unix_s.ok_or(wrong(2))?;
        let grants = lines.map(|(at, line)| SavedGrant::read(line).ok_or(wrong(at)));
        Ok(Self { epoch_unix_s, complete, grants: grants.collect::<Result<_, _>>()? })
    }
}

impl SavedGrant {
    fn write(&self, out: &mut String) {
        let Key { inside, proto, port, peer, .. } = self.key;
        let peer = peer.map_or("-".into(), |(ip, port)| format!("{ip}|{port}"));
        let nonce = match self.origin {
            Origin::NatPmp => "-".into(),
            Origin::Pcp(nonce) => nonce.iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}")),
        };
        let filters = self.filters.as_slice().iter();
        let filters: Vec<String> =
            filters.map(|f| format!("{}/{}|{}", Ipv4Addr::from(f.ip), f.len, f.port)).collect();
        let filters = if filters.is_empty() { "-".into() } else { filters.join(",") };
        let _ = writeln!(
            out,
            "{} {inside} {proto} {port} {peer} {} {} {} {} {nonce} {filters}",
            self.vrf,
            Ipv4Addr::from(self.outside.ip),
            self.outside.port,
            self.ports,
            self.ends_unix_s
        );
    }

    fn read(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        let [vrf, inside, proto, port, peer, ip, outside_port, ports, ends, nonce, filters] = words[..]
        else {
            return None;
        };
        let proto: u8 = proto.parse().ok().filter(|proto| *proto <= Proto::Udp as u8)?;
        let inside: IpAddr = inside.parse().ok()?;
        let peer = match peer {
            "-" => None,
            pair => {
                let (ip, port) = pair.split_once('|')?;
                Some((ip.parse().ok()?, port.parse().ok()?))
            }
        };
        let ip: Ipv4Addr = ip.parse().ok()?;
        let key =
            Key { vrf: VrfId(0), inside, proto, port: port.parse().ok().filter(|port| *port > 0)?, peer };
        Some(Self {
            vrf: vrf.to_owned(),
            key,
            outside: Endpoint { ip: ip.into(), port: outside_port.parse().ok()? },
            ports: ports.parse().ok().filter(|ports| *ports > 0)?,
            ends_unix_s: ends.parse().ok()?,
            origin: if nonce == "-" { Origin::NatPmp } else { Origin::Pcp(hex(nonce)?) },
            filters: read_filters(filters)?,
        })
    }
}

fn hex(text: &str) -> Option<Nonce> {
    let mut nonce = Nonce::default();
    if text.len() != 2 * nonce.len() || !text.is_ascii() {
        return None;
    }
    for (at, byte) in nonce.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(nonce)
}

fn read_filters(text: &str) -> Option<PortFilters> {
    let mut filters = PortFilters::default();
    for part in text.split(',').filter(|part| *part != "-") {
        let (prefix, port) = part.split_once('|')?;
        let (ip, len) = prefix.split_once('/')?;
        let ip: Ipv4Addr = ip.parse().ok()?;
        let len = len.parse().ok().filter(|len| *len <= 32)?;
        filters.add(PortFilter { ip: ip.into(), len, port: port.parse().ok()? }).then_some(())?;
    }
    Some(filters)
}
