//! Application gateways: protocols whose messages name addresses and ports, so that a NAT has to read along.
//!
//! A [`Gateway`] sees one message of a control connection after the other, in order and whole, says what to write instead
//! ([`Edits`]) and who will connect to whom ([`Ground::open`]). It knows neither packets nor tables nor time: `stream` makes
//! messages of TCP segments and keeps their numbers right, and the NAT engine provides the ground. Each protocol is one
//! file, [`ftp`] first.
#![forbid(unsafe_code)]

mod address;
mod edits;
pub mod ftp;
#[cfg(test)]
mod ground;
pub mod h323;
pub mod ipsec;
pub mod pptp;
pub mod rtsp;
mod sdp;
pub mod sip;
pub mod stream;
mod text;
pub mod tftp;

pub use edits::{EDIT_TEXT_MAX, EDITS_MAX, Edits};

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV4};

use carrack_base::Proto;

/// Which protocols have a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Protocol {
    /// RFC 959, RFC 2428; RFC 6384 between IPv6 and IPv4.
    Ftp = 0,
    /// RFC 1350.
    Tftp = 1,
    /// RFC 3261.
    Sip = 2,
    /// RFC 2326.
    Rtsp = 3,
    /// ITU-T H.323: H.225.0 and H.245.
    H323 = 4,
    /// RFC 2637.
    Pptp = 5,
    /// RFC 4303, RFC 7296.
    Ipsec = 6,
}

impl Protocol {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Ftp, Self::Tftp, Self::Sip, Self::Rtsp, Self::H323, Self::Pptp, Self::Ipsec];

    /// The word for config, CLI and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ftp => "ftp",
            Self::Tftp => "tftp",
            Self::Sip => "sip",
            Self::Rtsp => "rtsp",
            Self::Pptp => "pptp",
            Self::Ipsec => "ipsec",
            Self::H323 => "h323",
        }
    }

    /// The protocol of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|protocol| protocol.name() == name)
    }

    /// Do its control connections go to this port of a server?
    #[inline]
    #[must_use]
    pub const fn is_served_at(self, proto: Proto, port: u16) -> bool {
        match self {
            Self::Ftp => matches!((proto, port), (Proto::Tcp, 21)),
            Self::Tftp => matches!((proto, port), (Proto::Udp, 69)),
            Self::Sip => matches!((proto, port), (Proto::Tcp | Proto::Udp, 5_060)),
            Self::Rtsp => matches!((proto, port), (Proto::Tcp, 554)),
            Self::Pptp => matches!((proto, port), (Proto::Tcp, 1_723)),
            Self::Ipsec => matches!((proto, port), (Proto::Udp, 500)),
            Self::H323 => matches!((proto, port), (Proto::Tcp, h323::PORT)),
        }
    }

    /// Shows a message to the protocol's gateway. It is changed as a whole or not at all.
    pub fn read(self, said: Said<'_>) -> Reading {
        let Said { memory, side, bytes, ends, ground, edits } = said;
        let said = Said { memory, side, bytes, ends, ground: &mut *ground, edits: &mut *edits };
        let reading = self.gateway().read(said);
        if edits.is_overfull() {
            edits.clear();
            ground.note(Note::Overfull);
        }
        reading
    }

    /// What reads its messages.
    #[must_use]
    pub fn gateway(self) -> &'static dyn Gateway {
        match self {
            Self::Ftp => &ftp::Ftp,
            Self::Tftp => &tftp::Tftp,
            Self::Sip => &sip::Sip,
            Self::Rtsp => &rtsp::Rtsp,
            Self::Pptp => &pptp::Pptp,
            Self::Ipsec => &ipsec::Ipsec,
            Self::H323 => &h323::H323,
        }
    }
}

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The subscriber.
    Inside = 0,
    /// The far end.
    Outside = 1,
}

impl Side {
    /// The one who listens.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Inside => Self::Outside,
            Self::Outside => Self::Inside,
        }
    }
}

/// The ends of a control connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    /// The subscriber's host.
    pub inside: IpAddr,
    /// Its port.
    pub inside_port: u16,
    /// What it has outside.
    pub outside: SocketAddrV4,
    /// The far end.
    pub remote: SocketAddrV4,
    /// Who opened the connection.
    pub client: Side,
    /// TCP or UDP.
    pub proto: Proto,
}

impl Ends {
    /// Does the connection go from IPv6 to IPv4?
    #[must_use]
    pub const fn crosses(&self) -> bool {
        matches!(self.inside, IpAddr::V6(_))
    }
}

/// From where a connection or datagrams are expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// The far end of the control connection, any port.
    Remote,
    /// Anybody.
    Anybody,
}

/// An expected connection to the subscriber's host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Want {
    /// Transport protocol; [`Proto::Other`] is a call's packets (enhanced GRE), which have a number for a port.
    pub proto: Proto,
    /// Port of the subscriber's host it will arrive at.
    pub inside_port: u16,
    /// Who may come.
    pub from: From,
    /// Seconds until it is not expected any more.
    pub lifetime_s: u16,
    /// Connections it is good for; 0 for any number.
    pub uses: u16,
    /// The outside port is to be even for an even one, and the next one's is to be behind it (RTP and RTCP,
    /// RFC 4787 §4.2.3), if possible.
    pub pair: bool,
    /// What it is a part of, for [`Ground::close`]; 0 for nothing.
    pub dialog: u32,
}

/// What a gateway has seen, for counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Note {
    /// A control connection began.
    Connection = 0,
    /// A message was rewritten.
    Rewritten = 1,
    /// An expected connection was allowed for.
    Opened = 2,
    /// A message named an address that is not the sender's, or a port below 1024: left as it is (RFC 2577 §3).
    Foreign = 3,
    /// A message of the kind that is rewritten made no sense: left as it is.
    Malformed = 4,
    /// No mapping could be had: limits or resources. Left as it is.
    NoRoom = 5,
    /// The connection is encrypted from now on, and not read any more.
    Transparent = 6,
    /// The table of control connections was full: this one is not read.
    TableFull = 7,
    /// The connection is none of this protocol, or a message is too long: not read any more.
    Unreadable = 8,
    /// An unreadable connection was reset.
    Reset = 9,
    /// More is to be changed in a message than fits: left as it is.
    Overfull = 10,
}

impl Note {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Connection,
        Self::Rewritten,
        Self::Opened,
        Self::Foreign,
        Self::Malformed,
        Self::NoRoom,
        Self::Transparent,
        Self::TableFull,
        Self::Unreadable,
        Self::Reset,
        Self::Overfull,
    ];

    /// The word for CLI and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connection => "connections",
            Self::Rewritten => "rewritten",
            Self::Opened => "opened",
            Self::Foreign => "foreign",
            Self::Malformed => "malformed",
            Self::NoRoom => "no-room",
            Self::Transparent => "transparent",
            Self::TableFull => "table-full",
            Self::Unreadable => "unreadable",
            Self::Reset => "reset",
            Self::Overfull => "overfull",
        }
    }
}

impl Note {
    /// One sentence for people.
    #[must_use]
    pub const fn description(self) -> &'static str {
        match self {
            Self::Connection => "Control connections that the gateway began to read.",
            Self::Rewritten => "Messages that the gateway rewrote.",
            Self::Opened => "Expected connections that the gateway allowed for.",
            Self::Foreign => {
                "Messages left as they were: they name an address that is not the sender's, or a port below 1024."
            }
            Self::Malformed => {
                "Messages left as they were: of the kind that is rewritten, but without sense."
            }
            Self::NoRoom => {
                "Messages left as they were: no outside endpoint could be had for what they name."
            }
            Self::Transparent => {
                "Control connections not read any further: encrypted, or nothing to be changed."
            }
            Self::TableFull => "Control connections not read: the table of them was full.",
            Self::Unreadable => {
                "Control connections not read any further: not of this protocol, or with too long a message."
            }
            Self::Reset => {
                "Unreadable control connections that were reset, as `unreadable` of the instance says."
            }
            Self::Overfull => {
                "Messages left as they were: more was to be changed in them than there is room for."
            }
        }
    }
}

/// What the NAT does for a gateway.
pub trait Ground {
    /// Gives the inside port an outside endpoint, and lets in who is expected. `None` when there is no room for it.
    fn open(&mut self, want: &Want) -> Option<SocketAddrV4>;
    /// Keeps a call between the subscriber's host and the far end going, which has this number there: `want` for what
    /// comes in, and likewise for what goes out.
    fn keep_call(&mut self, want: &Want, remote: u16);
    /// The port of the subscriber's host that this port of its outside address leads to.
    fn inside_port(&mut self, proto: Proto, outside_port: u16) -> Option<u16>;
    /// A connection to this outside endpoint, the far end's or what [`Ground::open`] gave, is another control connection of
    /// H.323, if it comes soon.
    fn await_control(&mut self, server: SocketAddrV4);
    /// Nothing more is expected of this dialog of the subscriber's; what is in use goes on.
    fn close(&mut self, dialog: u32);
    /// The IPv4 address for which an address stands that the host sees (RFC 6052 §2.2); only between IP versions.
    fn four(&self, ip: Ipv6Addr) -> Option<Ipv4Addr>;
    /// The address by which the host sees an IPv4 one; only between IP versions.
    fn six(&self, ip: Ipv4Addr) -> Option<Ipv6Addr>;
    /// Counts.
    fn note(&mut self, note: Note);
}

/// What a gateway remembers of a control connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Memory {
    /// FTP's part.
    pub ftp: ftp::Memory,
    /// RTSP's part.
    pub rtsp: rtsp::Memory,
    /// PPTP's part.
    pub pptp: pptp::Memory,
    /// H.323's part.
    pub h323: h323::Memory,
}

/// How far a gateway has read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// So many bytes are done with; at least 1.
    Done(usize),
    /// The message goes on: show all of it when there is more.
    More,
    /// Nothing is to be read of this connection any more, either way, and that is as it should be: it is encrypted.
    Transparent,
    /// It makes no sense as this protocol, and nothing behind it can be read either.
    Unreadable,
}

/// What is said at the start of `bytes`, by whom, and what a gateway works with.
pub struct Said<'a> {
    /// What it remembers of the connection.
    pub memory: &'a mut Memory,
    /// Who speaks.
    pub side: Side,
    /// One message, or more of them, or the start of one.
    pub bytes: &'a [u8],
    /// The ends of the connection.
    pub ends: &'a Ends,
    /// What the NAT does for it.
    pub ground: &'a mut dyn Ground,
    /// What is to be written instead, empty yet.
    pub edits: &'a mut Edits,
}

/// One protocol's reader. It holds no state of its own.
pub trait Gateway: Sync {
    /// Reads one message, and says what to write instead.
    fn read(&self, said: Said<'_>) -> Reading;
}

/// Does a stream begin as one of TLS does (RFC 8446 §5.1)?
pub(crate) const fn is_tls(bytes: &[u8]) -> bool {
    matches!(bytes, [0x16] | [0x16, 3, ..])
}
