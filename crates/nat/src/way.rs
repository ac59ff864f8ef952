//! How a packet of a session goes from one IP version to the other (RFC 6146 §3.6, RFC 6052): what a translator of
//! headers has to be told.

use carrack_base::{Family, Proto, Reason};
use carrack_wire::checksum::{Delta, Sum};
use carrack_wire::{icmpv4, icmpv6};

use crate::directory::Embedded;
use crate::engine::Nat;
use crate::flow::{Flow, Kind};
use crate::instances::GONE;
use crate::line::{Mapping, Session};
use crate::nat64::Nat64Prefix;
use crate::nat64::{NatPrefix, Rules};
use crate::row::Endpoint;

/// The ends of a session on both sides. A packet going out has (`inside6`, [`Way::remote6`]) before and (`outside`, `remote`)
/// after; one coming in the other way round, source and destination exchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Way {
    /// The IPv6 host, host byte order.
    pub inside6: u128,
    /// The prefix behind which the host sees IPv4.
    pub prefix: Option<NatPrefix>,
    /// The host's port or ICMP identifier.
    pub inside_port: u16,
    /// What the host has outside.
    pub outside: Endpoint,
    /// The IPv4 remote.
    pub remote: Endpoint,
    /// Change of a TCP or UDP checksum going out; [`Delta::negated`] coming in.
    pub l4_delta: Delta,
    /// How headers are translated.
    pub rules: Rules,
}

impl Way {
    /// The IPv6 address that stands for the IPv4 one of a session, host byte order (RFC 6146 §3.5.4).
    #[must_use]
    pub fn embed(&self, ip: u32) -> u128 {
        self.prefix.map_or(0, |prefix| prefix.embed(ip))
    }

    /// The same for any address; `None` where the prefix may not stand for it (RFC 6052 §3.1).
    #[must_use]
    pub fn embed_checked(&self, ip: u32) -> Option<u128> {
        self.prefix?.embed_checked(ip).ok()
    }

    /// The IPv6 address that stands for the remote, host byte order.
    #[must_use]
    pub fn remote6(&self) -> u128 {
        self.embed(self.remote.ip)
    }
}

impl Nat {
    /// Finds out whether an IPv6 packet from inside goes to a NAT64 prefix; fills the flow's IPv4 destination and prefix
    /// number if so. False: it is no business of the NAT.
    ///
    /// # Errors
    /// What may not be translated: a source within a prefix (RFC 6146 §3.5), a destination that stands for no IPv4 host
    /// (RFC 6052 §3.1), a source that no instance serves (of all but errors), an ICMPv6 message that has no counterpart.
    pub fn admit(&self, flow: &mut Flow) -> Result<bool, Reason> {
        if flow.family != Family::V6 || !self.directory.has_nat64() {
            return Ok(false);
        }
        let number = carrack_wire::ipv4::protocol::ICMP;
        let Some(found) = self.directory.embedded(flow.vrf, flow.src6, flow.dst6) else { return Ok(false) };
        if self.directory.is_embedded(flow.vrf, flow.src6) {
            return Err(Reason::Nat64SourceInvalid);
        }
        check_embedded(&found)?;
        // Who sent an error does not matter, only what it quotes (RFC 6146 §3.4, RFC 4787 REQ-12a): it comes from routers on
        // the way, too, which are no subscribers.
        if !found.served && flow.kind != Kind::IcmpError {
            return Err(Reason::NatSubscriberDenied);
        }
        (flow.dst, flow.via) = (found.address, found.via);
        if flow.proto == Proto::Icmp && flow.ip_proto != number {
            flow.bits = match flow.bits {
                // RFC 6146 §3.5.3: one kind of query, whichever version it comes in.
                icmpv6::kind::ECHO_REQUEST => icmpv4::kind::ECHO_REQUEST,
                icmpv6::kind::ECHO_REPLY => icmpv4::kind::ECHO_REPLY,
                other if flow.kind != Kind::Whole => other,
                // RFC 7915 §5.2: "silently drop" all other informational messages.
                _ => return Err(Reason::IcmpTypeUnsupported),
            };
            flow.ip_proto = number;
        }
        Ok(true)
    }

    /// The same for an error of the router's own about a packet to `host`. False: the destination is in no prefix.
    #[must_use]
    pub fn admit_own(&self, flow: &mut Flow, host: u128) -> bool {
        let found = self.directory.embedded(flow.vrf, host, flow.dst6);
        if let Some(found) = found {
            (flow.dst, flow.via) = (found.address, found.via);
        }
        found.is_some()
    }

    /// The way of a session by its line.
    #[must_use]
    pub fn way(&self, line: u32) -> Option<Way> {
        self.tables.sessions.get(line).map(|session| self.way_of(session))
    }

    /// The way of the packet that the last ICMP error was about.
    #[must_use]
    pub const fn way_of_error(&self) -> Way {
        self.error_way
    }

    pub(crate) fn way_of(&self, session: &Session) -> Way {
        let behind = self.directory.behind(session.via());
        Way {
            inside6: session.inside6(),
            prefix: behind.map(|behind| behind.prefix),
            rules: behind.map(|behind| behind.rules).unwrap_or_default(),
            inside_port: session.inside_port,
            outside: session.outside(),
            remote: session.remote(),
            l4_delta: Delta::from_bits(session.l4_delta),
        }
    }

    /// The slot of the instance that has the prefix of that number.
    pub(crate) fn slot_of_prefix(&self, via: u16) -> u16 {
        self.directory.instance_of_prefix(via).map_or(GONE, |instance| self.slots.of(instance))
    }

    /// The prefix by which the IPv6 host of a mapping sees who begins a session from outside: of those that may stand for the
    /// remote address, if it is known, the one that it used last, or the first (RFC 6146 §3.5.4). Where none may,
    /// [`Nat::check_remote`] tells.
    pub(crate) fn prefix_back(&self, mapping: &Mapping, remote_ip: Option<u32>) -> u16 {
        let nat64 = self.policy.instances.get(self.slots.at(mapping.slot)).and_then(|i| i.nat64.as_ref());
        let prefixes = nat64.map_or(&[][..], |nat64| &nat64.prefixes);
        let last = self.tables.host(mapping.inside_ip).map_or(0, |host| host.via);
        let may = |entry: &&Nat64Prefix| remote_ip.is_none_or(|ip| entry.prefix.embed_checked(ip).is_ok());
        let used = prefixes.iter().filter(may).find(|entry| entry.via == last);
        let found = used.or_else(|| prefixes.iter().find(may)).or_else(|| prefixes.first());
        found.map_or(0, |entry| entry.via)
    }

    /// The prefix that an IPv6 host of a mapping used last, as long as its instance has it; else the first.
    pub(crate) fn prefix_of_mapping(&self, mapping: &Mapping) -> Option<NatPrefix> {
        let via = mapping.is_six().then(|| self.prefix_back(mapping, None))?;
        self.directory.prefix_of(via).copied()
    }

    /// Completes the line of a session whose mapping is an IPv6 host's; `via` is the number of the prefix by which it sees
    /// its remote.
    pub(crate) fn set_six(&self, line: &mut Session, mapping: &Mapping, via: u16) -> Result<(), Reason> {
        let host = *self.tables.host(mapping.inside_ip).ok_or(Reason::NatNoMapping)?;
        let prefix = *self.directory.prefix_of(via).ok_or(Reason::NatNoMapping)?;
        line.flags |= crate::line::SIX;
        line.set_inside6(host.address);
        line.l3_delta = via;
        line.l4_delta = transport_delta(line, prefix).to_bits();
        Ok(())
    }

    /// RFC 6052 §3.1, coming in: the well-known prefix stands for no remote that is not global. A packet from inside to
    /// one was not admitted.
    pub(crate) fn check_remote(&self, line: &Session) -> Result<(), Reason> {
        let prefix = self.directory.prefix_of(line.via());
        let stands = prefix.is_none_or(|prefix| prefix.embed_checked(line.remote_ip).is_ok());
        if stands { Ok(()) } else { Err(Reason::Nat64NonGlobal) }
    }
}

/// The change of a checksum that covers addresses and ports, going out.
fn transport_delta(line: &Session, prefix: NatPrefix) -> Delta {
    let old = Sum::default().with_u128(line.inside6()).with_u128(prefix.embed(line.remote_ip));
    let new = Sum::default().with_u32(line.outside_ip).with_u32(line.remote_ip);
    Delta::of_sums(old.with_u16(line.inside_port), new.with_u16(line.outside_port))
}

/// RFC 6052 §3.1: the well-known prefix never stands for addresses that are not global; and no prefix for those that
/// no packet in transit has.
fn check_embedded(found: &Embedded) -> Result<(), Reason> {
    let first = found.address >> 24;
    if first == 0 || first == 127 || first >= 224 {
        return Err(Reason::Nat64DestinationInvalid);
    }
    let well_known = found.prefix.is_well_known() && !carrack_xlat::global::is_global(found.address);
    if well_known { Err(Reason::Nat64DestinationInvalid) } else { Ok(()) }
}
