//! What the lane knows of a packet, and what it looks for.

use std::mem::{offset_of, size_of};

use carrack_base::Reason;

/// No session line: what `nat` calls so.
const NO_LINE: u32 = u32::MAX;

/// What the express lane knows of one packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, align(32))]
pub struct Pass {
    /// Source and destination, the source in the upper half; of a packet from IPv6 the number of its prefix and the IPv4
    /// destination.
    pub addresses: u64,
    /// The hash its session is found by. [`Quads::recognise`](crate::Quads::recognise) leaves the second word of the key
    /// here.
    pub hash: u64,
    /// Source and destination port, the source in the upper half.
    pub ports: u32,
    /// The session's line.
    pub line: u32,
    /// The state its session must be in.
    pub state: u16,
    /// Bytes of the IP packet, 0 when it is not a common one; in the end, the port it leaves by.
    pub total: u16,
    /// Bytes of the IP packet when a stateless translator takes it, whose number is in `ports`; else 0.
    pub stateless: u16,
    /// It is one of IPv6.
    pub six: bool,
    /// Why it got no session.
    pub refused: Option<Reason>,
}

// The vectors write rows of this shape.
const _: () = {
    assert!(size_of::<Pass>() == 32 && size_of::<Option<Reason>>() == 1);
    assert!(offset_of!(Pass, addresses) == 0 && offset_of!(Pass, hash) == 8);
    assert!(offset_of!(Pass, ports) == 16 && offset_of!(Pass, line) == 20);
    assert!(offset_of!(Pass, state) == 24 && offset_of!(Pass, total) == 26);
};

impl Pass {
    /// Nothing is known of the packet yet.
    pub const UNKNOWN: Self = Self {
        addresses: 0,
        hash: 0,
        ports: 0,
        line: NO_LINE,
        state: 0,
        total: 0,
        stateless: 0,
        six: false,
        refused: None,
    };

    /// Nothing is known of the next packet yet.
    #[inline(always)]
    pub fn forget(&mut self) {
        (self.total, self.line, self.refused) = (0, NO_LINE, None);
        (self.six, self.stateless) = (false, 0);
    }

    /// Is there a session for it, or a translator that needs none?
    #[inline]
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.line != NO_LINE || self.stateless != 0
    }
}

impl Default for Pass {
    fn default() -> Self {
        Self::UNKNOWN
    }
}

/// What common IPv4 frames to an interface are, and what is to be noted of them.
#[derive(Debug, Clone, Copy)]
pub struct Pattern {
    /// The first 24 bytes as little-endian words.
    pub link: [u64; 3],
    /// Which of their bits matter.
    pub masks: [u64; 3],
    /// The last four bytes of the own link address, as a little-endian number: who has these as source is looked at more
    /// closely.
    pub mac_tail: u32,
    /// The second word of the session's key but for ports and protocol.
    pub key: u64,
    /// The states sessions must be in.
    pub states: States,
    /// Destinations are checked: no session vouches for them.
    pub checks_destination: bool,
}

/// The state a session must be in, by what the packet is.
#[derive(Debug, Clone, Copy)]
pub struct States {
    /// UDP.
    pub udp: u16,
    /// TCP with neither SYN, FIN nor RST.
    pub tcp: u16,
    /// TCP with SYN alone; `None` where that is not common.
    pub first_syn: Option<u16>,
}
