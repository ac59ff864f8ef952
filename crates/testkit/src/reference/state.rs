//! How surely a session lives, and the states that it may be in.

use carrack_base::Proto;
use carrack_nat::policy::Timeouts;
use carrack_wire::tcp::flag;

use super::Flow;

/// Seconds before its time from which on a session may be gone: clocks are read once a burst.
const EARLY_S: u32 = 2;
/// Seconds after its time in which a session may still be there: a sweep takes a second or two.
const LATE_S: u32 = 4;
/// Seconds after a reload within which sessions that now have less time are looked at.
const REARMED_S: u32 = 40;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Life {
    No,
    Maybe,
    Yes,
}

/// What the NAT has seen of a TCP connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Tcp {
    syn_out: bool,
    syn_in: bool,
    fin_out: bool,
    fin_in: bool,
    reset: bool,
}

impl Tcp {
    fn first(bits: u8, outward: bool) -> Self {
        let syn = bits & flag::SYN != 0;
        Self { syn_out: outward || !syn, syn_in: !outward || !syn, ..Self::default() }
    }

    /// RFC 7857 §2: the state after a segment.
    fn take(&mut self, bits: u8, outward: bool) {
        let (syn, fin, rst) = (bits & flag::SYN != 0, bits & flag::FIN != 0, bits & flag::RST != 0);
        if rst {
            // RFC 6146 §3.5.2.2: only what is established, and not closed by both, is reset.
            self.reset |= self.syn_out && self.syn_in && !(self.fin_out && self.fin_in);
        } else if syn && bits & flag::ACK == 0 && (self.reset || (self.fin_out && self.fin_in)) {
            *self = Self::first(bits, outward);
        } else if self.reset {
            if !fin {
                *self = Self { syn_out: true, syn_in: true, ..Self::default() };
            }
        } else {
            let established = self.syn_out && self.syn_in;
            self.syn_out |= syn && outward;
            self.syn_in |= syn && !outward;
            self.fin_out |= established && fin && outward;
            self.fin_in |= established && fin && !outward;
        }
    }
}

/// One history that a session may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Possible {
    tcp: Tcp,
    seen_s: u32,
}

impl Possible {
    pub(super) fn first(proto: Proto, bits: u8, outward: bool, now_s: u32) -> Self {
        let tcp = if proto == Proto::Tcp { Tcp::first(bits, outward) } else { Tcp::default() };
        Self { tcp, seen_s: now_s }
    }

    fn end_s(&self, timeouts: &Timeouts, flow: &Flow) -> u32 {
        let idle_s = match flow.0 {
            Proto::Udp => {
                let known = timeouts.udp_port_s.iter().find(|(port, _)| *port == flow.2.port);
                known.map_or(timeouts.udp_s, |(_, s)| *s)
            }
            Proto::Icmp => timeouts.icmp_s,
            Proto::Other => timeouts.other_s,
            Proto::Tcp if self.tcp.reset => timeouts.tcp_reset_s,
            Proto::Tcp if self.tcp.fin_out && self.tcp.fin_in => timeouts.tcp_closing_s,
            Proto::Tcp if self.tcp.syn_out && self.tcp.syn_in => timeouts.tcp_established_s,
            Proto::Tcp => timeouts.tcp_opening_s,
        };
        self.seen_s + idle_s
    }

    fn advance(&mut self, proto: Proto, bits: u8, outward: bool, refreshes: bool, now_s: u32) {
        let before = self.tcp;
        if proto == Proto::Tcp {
            self.tcp.take(bits, outward);
        }
        // RFC 7857 §2.2: a RST that changes nothing refreshes nothing; a change of state always does.
        let repeated = (before.reset && self.tcp.reset) || (proto == Proto::Tcp && bits & flag::RST != 0);
        if (refreshes && !repeated) || before != self.tcp {
            self.seen_s = now_s;
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Session {
    pub(super) mapping: u32,
    possible: Vec<Possible>,
    /// It may have ended before a reload gave it a longer time.
    pub(super) in_doubt: bool,
}

impl Session {
    pub(super) fn new(mapping: u32, first: Possible) -> Self {
        Self { mapping, possible: vec![first], in_doubt: false }
    }

    pub(super) fn life(&self, timeouts: &Timeouts, flow: &Flow, now_s: u32, reloaded_s: u32) -> Life {
        let of = |possible: &Possible| {
            let end = possible.end_s(timeouts, flow);
            if now_s + EARLY_S < end {
                Life::Yes
            } else if now_s <= (end + LATE_S).max(reloaded_s + REARMED_S) {
                Life::Maybe
            } else {
                Life::No
            }
        };
        let all = || self.possible.iter().map(of);
        match (all().min(), all().max()) {
            (Some(Life::Yes), _) if !self.in_doubt => Life::Yes,
            (_, Some(Life::No)) | (None, _) => Life::No,
            _ => Life::Maybe,
        }
    }

    /// When it ends at the earliest.
    pub(super) fn ends_s(&self, timeouts: &Timeouts, flow: &Flow) -> u32 {
        self.possible.iter().map(|possible| possible.end_s(timeouts, flow)).min().unwrap_or(0)
    }

    pub(super) fn advance(&mut self, proto: Proto, bits: u8, outward: bool, refreshes: bool, now_s: u32) {
        self.in_doubt = false;
        for possible in &mut self.possible {
            possible.advance(proto, bits, outward, refreshes, now_s);
        }
        self.merge();
    }

    pub(super) fn may_also_be(&mut self, other: Possible) {
        self.possible.push(other);
        self.merge();
    }

    fn merge(&mut self) {
        let mut all: Vec<Possible> = vec![];
        for possible in self.possible.drain(..) {
            if !all.contains(&possible) {
                all.push(possible);
            }
        }
        self.possible = all;
    }
}
