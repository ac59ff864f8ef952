//! Stateless translation of whole packets (SIIT): which addresses become which (RFC 7915 §6), hairpinning
//! (RFC 7757 §4.2.1) and sources for routers that have no IPv4 address (RFC 6791).

#[cfg(test)]
mod tests;

use crate::global::{is_illegal_source_v4, is_illegal_source_v6};
use crate::prefix::NotEmbedded;
use crate::{
    EamTable, Hosts, Moved, Mtus, NatPrefix, Ports, Refused, Rules, V4ErrorWay, V4Way, V6ErrorWay, V6Way,
    error_to_v4, error_to_v6, to_v4, to_v6,
};
use carrack_base::Range4;
use carrack_wire::ipv4::protocol;
use carrack_wire::ipv6::Extensions;
use carrack_wire::{Icmpv4View, Icmpv6View, Ipv4View, Ipv6View, icmpv4, icmpv6};
use std::fmt;

/// Translation prefixes of one translator, at most.
pub const PREFIXES_MAX: usize = 8;

/// One stateless translator, as configured. Immutable.
#[derive(Clone, Debug, Default)]
pub struct Siit {
    /// Prefixes that embed IPv4 addresses, at most [`PREFIXES_MAX`]; to IPv6 the first is used.
    pub prefixes: Vec<NatPrefix>,
    /// Explicit address mappings, which go before the prefixes (RFC 7757 §3.3).
    pub eam: EamTable,
    /// IPv4 addresses that IPv6 hosts have by a prefix; those of explicit mappings come by themselves.
    pub hosts: Hosts,
    /// Sources of ICMP errors from IPv6 addresses that stand for no IPv4 address (RFC 6791 §3.2); with none, such errors
    /// are dropped, but for the router's own.
    pub icmp_sources: Vec<Range4>,
    /// Whether such an error tells its IPv6 source in an extension (RFC 6791 §4).
    pub reveals_source: bool,
    /// Turns off the rules of RFC 7757 §4.2.1.
    pub no_hairpinning: bool,
    /// What is configured about translation.
    pub rules: Rules,
}

/// Why a packet is not translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// No host sends from its source, or none that is served here: dropped in silence (RFC 7915 §4.1, §5.1; RFC 6052 §5.1).
    IllegalSource,
    /// Its source stands for no address of the other version.
    UnmappedSource,
    /// Its destination stands for no address of the other version.
    UnmappedDestination,
    /// The well-known prefix with a non-global IPv4 address (RFC 6052 §3.1).
    NonGlobal,
    /// The translation itself is refused.
    Refused(Refused),
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Denied::IllegalSource => f.write_str("no host sends from this source"),
            Denied::UnmappedSource => f.write_str("source stands for no address of the other IP version"),
            Denied::UnmappedDestination => {
                f.write_str("destination stands for no address of the other IP version")
            }
            Denied::NonGlobal => f.write_str("well-known prefix with a non-global IPv4 address"),
            Denied::Refused(refused) => refused.fmt(f),
        }
    }
}

impl std::error::Error for Denied {}

impl From<Refused> for Denied {
    fn from(refused: Refused) -> Denied {
        Denied::Refused(refused)
    }
}

/// What translation to IPv4 needs for each packet anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dice {
    /// Identification of a packet without fragment header.
    pub identification: u16,
    /// Chooses the source of an ICMP error (RFC 6791 §5).
    pub random: u32,
}

/// What a translator is told of the network around it; by default nothing.
pub trait Around {
    /// Octets of packet that the next hop towards an IPv4 address takes; `u16::MAX` when that is not known.
    fn mtu4(&self, _to: u32) -> u16 {
        u16::MAX
    }

    /// The same towards an IPv6 address.
    fn mtu6(&self, _to: u128) -> u16 {
        u16::MAX
    }

    /// Of an ICMP error that the router itself has made: its own address on the way to an IPv4 address, to speak from
    /// where nothing stands for the IPv6 address that it spoke from.
    fn own4(&self, _to: u32) -> Option<u32> {
        None
    }

    /// The same on the way to an IPv6 address.
    fn own6(&self, _to: u128) -> Option<u128> {
        None
    }
}

/// Nothing is known.
impl Around for () {}

impl Siit {
    /// The IPv4 address that an IPv6 address stands for (both in host order).
    ///
    /// # Errors
    /// [`NotEmbedded`].
    #[inline(always)]
    pub fn v4_of(&self, address: u128) -> Result<u32, NotEmbedded> {
        self.mapped_v4_of(address).map(|(found, _)| found)
    }

    /// The same, and whether an explicit mapping says so.
    #[inline(always)]
    fn mapped_v4_of(&self, address: u128) -> Result<(u32, bool), NotEmbedded> {
        if let Some(found) = self.eam.to_v4(address) {
            return Ok((found, true));
        }
        let prefix = self.prefixes.iter().find(|prefix| prefix.contains(address));
        let found = prefix.map_or(Err(NotEmbedded::Outside), |prefix| prefix.extract(address))?;
        Ok((found, false))
    }

    /// The IPv6 address that stands for an IPv4 address (both in host order).
    ///
    /// # Errors
    /// [`NotEmbedded`]; `Outside` without a prefix.
    #[inline(always)]
    pub fn v6_of(&self, address: u32) -> Result<u128, NotEmbedded> {
        self.eam.to_v6(address).map_or_else(|| self.v6_by_prefix(address), Ok)
    }

    /// As [`Siit::v6_of`] without the explicit mappings, as hairpinned packets need it.
    #[inline(always)]
    fn v6_by_prefix(&self, address: u32) -> Result<u128, NotEmbedded> {
        self.prefixes.first().map_or(Err(NotEmbedded::Outside), |prefix| prefix.embed_checked(address))
    }

    /// As [`Siit::v6_of`] for the address of a packet that hairpinning may concern (RFC 7757 §4.2.1).
    #[inline(always)]
    fn v6_of_peer(&self, address: u32) -> Result<u128, NotEmbedded> {
        // A translator of explicit mappings alone has nothing else to go by.
        if self.no_hairpinning || self.prefixes.is_empty() {
            self.v6_of(address)
        } else {
            self.v6_by_prefix(address)
        }
    }

    /// Both ends of a packet to IPv4 that is no ICMP error: source and destination there. `None` where [`Siit::to_v4`] says
    /// why not. The caller has seen that hosts may send from its source ([`is_illegal_source_v6`]).
    #[inline(always)]
    pub fn ends_to_v4(&self, src: u128, dst: u128) -> Option<(u32, u32)> {
        let (to, from) = (self.mapped_v4_of(dst).ok()?, self.mapped_v4_of(src).ok()?);
        let may = self.serves(from, to) && !is_illegal_source_v4(to.0) && !is_illegal_source_v4(from.0);
        may.then_some((from.0, to.0))
    }

    /// Is one end of a packet to IPv4 served here? Each with whether an explicit mapping says what it stands for.
    ///
    /// What only embeds an address as its source is somebody else's: a host that writes such packets could speak for all of
    /// IPv4 (RFC 6052 §5.1). They are legitimate where IPv4 hosts are behind this translator, from another one to them.
    #[inline(always)]
    fn serves(&self, (from, is_from_mapped): (u32, bool), (to, is_to_mapped): (u32, bool)) -> bool {
        is_from_mapped || is_to_mapped || self.is_host(from) || self.is_host(to)
    }

    /// Has an IPv6 host this IPv4 address, by a prefix and nothing else?
    #[inline]
    fn is_host(&self, address: u32) -> bool {
        self.hosts.contains(address) && self.eam.to_v6(address).is_none()
    }

    /// The destination of a packet to IPv4, if its source is one that a host may have, and whether an explicit mapping names it.
    #[inline(always)]
    fn destination_v4(&self, src: u128, dst: u128) -> Result<(u32, bool), Denied> {
        if is_illegal_source_v6(src) {
            return Err(Denied::IllegalSource);
        }
        let to = self.mapped_v4_of(dst).map_err(denied_destination)?;
        // Nor may it be one that no packet in transit has (RFC 1812 §5.3.7).
        if is_illegal_source_v4(to.0) { Err(Denied::UnmappedDestination) } else { Ok(to) }
    }

    /// Both ends of a packet to IPv6 that is no ICMP error: source and destination there. `None` where [`Siit::to_v6`] says
    /// why not. The caller has seen that hosts may send from its source ([`is_illegal_source_v4`]).
    #[inline(always)]
    pub fn ends_to_v6(&self, src: u32, dst: u32) -> Option<(u128, u128)> {
        let dst = self.v6_of(dst).ok()?;
        Some((self.v6_of_peer(src).ok()?, dst))
    }

    #[inline(always)]
    fn source_v6(&self, src: u32) -> Result<u128, Denied> {
        if is_illegal_source_v4(src) {
            return Err(Denied::IllegalSource);
        }
        self.v6_of_peer(src).map_err(denied_source)
    }

    /// Translates the IPv6 packet in `buffer` from `l3` to its end, whose extension headers are `found`, and gives
    /// its new place and IPv4 destination. `around` is asked about the way there. The rest is as with [`to_v4()`] and [`error_to_v4`].
    ///
    /// # Errors
    /// [`Denied`]; the packet is as it was then.
    #[inline]
    pub fn to_v4(
        &self,
        buffer: &mut [u8],
        l3: usize,
        found: &Extensions,
        dice: Dice,
        around: &impl Around,
    ) -> Result<(Moved, u32), Denied> {
        let packet = buffer.get(l3..).ok_or(Refused::NoRoom)?;
        let view = Ipv6View::parse_quoted(packet).map_err(|_| Refused::TransportCut)?;
        let to = self.destination_v4(view.src(), view.dst())?;
        let from = self.mapped_v4_of(view.src());
        if from.is_ok_and(|from| !self.serves(from, to)) {
            return Err(Denied::IllegalSource);
        }
        let (src, dst) = (from.map(|(src, _)| src), to.0);
        let (identification, mtu) = (dice.identification, around.mtu4(dst));
        let mut way = V4Way { src: 0, dst, ports: Ports::KEEP, identification, mtu };
        if found.protocol == protocol::ICMPV6
            && let Some(icmp) = icmp_error_v6(&view, found)
        {
            let (src, reveal) = self.error_source(src, view.src(), dice, || around.own4(dst))?;
            way.src = src;
            let (inner, inner_dst) = self.inner_v4(&icmp)?;
            // RFC 7915 §5.2: of both next hops, that of the packet in error and that of its sender.
            let mtus = Mtus { v4: mtu, v6: around.mtu6(inner_dst) };
            let way = V4ErrorWay { outer: way, inner, mtus, reveal };
            return Ok((error_to_v4(buffer, l3, found, &way, &self.rules)?, dst));
        }
        way.src = source_v4(src)?;
        let packet = buffer.get_mut(l3..).ok_or(Refused::NoRoom)?;
        let moved = to_v4(packet, found, &way, &self.rules)?;
        Ok((Moved { start: moved.start + l3, end: moved.end + l3, ..moved }, dst))
    }

    /// Translates the IPv4 packet in `buffer` from `l3` to its end and gives its new place and IPv6 destination. `around`
    /// is asked about the way there. The rest is as with [`to_v6()`] and [`error_to_v6`].
    ///
    /// # Errors
    /// [`Denied`]; the packet is as it was then.
    #[inline]
    pub fn to_v6(&self, buffer: &mut [u8], l3: usize, around: &impl Around) -> Result<(Moved, u128), Denied> {
        let packet = buffer.get(l3..).ok_or(Refused::NoRoom)?;
        let view = Ipv4View::parse_quoted(packet).map_err(|_| Refused::TransportCut)?;
        let dst = self.v6_of(view.dst()).map_err(denied_destination)?;
        let outer = V6Way { src: 0, dst, ports: Ports::KEEP, mtu: around.mtu6(dst) };
        if view.protocol() == protocol::ICMP
            && let Some(icmp) = icmp_error_v4(&view)
        {
            let (inner, inner_dst) = self.inner_v6(&icmp)?;
            // RFC 7757 §4.2.1 rule 3: the host itself answers. An illegal source is translated for the sake of
            // those who look for the trouble (RFC 7915 §4.1).
            let src =
                if view.src() == inner_dst { self.v6_of_peer(view.src()) } else { self.v6_of(view.src()) };
            // A private address of the router may not stand behind the well-known prefix (RFC 6052 §3.1).
            let src = src.or_else(|why| around.own6(dst).ok_or(denied_source(why)))?;
            // RFC 7915 §4.2: of both next hops, that of the packet in error and that of its sender.
            let mtus = Mtus { v4: around.mtu4(inner_dst), v6: outer.mtu };
            let way = V6ErrorWay { outer: V6Way { src, ..outer }, inner, mtus };
            return Ok((error_to_v6(buffer, l3, &way, &self.rules)?, dst));
        }
        let src = self.source_v6(view.src())?;
        Ok((to_v6(buffer, l3, &V6Way { src, ..outer }, &self.rules)?, dst))
    }

    /// The source of an ICMP error, and what to reveal of the real one.
    fn error_source(
        &self,
        src: Result<u32, NotEmbedded>,
        real: u128,
        dice: Dice,
        own: impl Fn() -> Option<u32>,
    ) -> Result<(u32, Option<u128>), Denied> {
        match src {
            Ok(src) => Ok((src, None)),
            // RFC 6052 §3.1: no pool speaks for what must be dropped.
            Err(NotEmbedded::NonGlobal) => Err(Denied::NonGlobal),
            Err(NotEmbedded::Outside) => {
                let src = self.pick(dice.random).or_else(own).ok_or(Denied::UnmappedSource)?;
                Ok((src, self.reveals_source.then_some(real)))
            }
        }
    }

    /// One of the sources for ICMP errors.
    fn pick(&self, random: u32) -> Option<u32> {
        let count: u64 = self.icmp_sources.iter().map(|range| range.count()).sum();
        let mut nth = u64::from(random).checked_rem(count)?;
        for range in &self.icmp_sources {
            if nth < range.count() {
                return Some(range.first + nth as u32);
            }
            nth -= range.count();
        }
        None
    }

    /// What the packet quoted in an ICMPv6 error was in IPv4, and its IPv6 destination.
    fn inner_v4(&self, icmp: &Icmpv6View<'_>) -> Result<(V4Way, u128), Refused> {
        let inner = icmp.embedded().map_err(|_| Refused::BadQuotation)?;
        let src = self.v4_of(inner.src()).map_err(|_| Refused::BadQuotation)?;
        let dst = self.v4_of(inner.dst()).map_err(|_| Refused::BadQuotation)?;
        let way = V4Way { src, dst, ports: Ports::KEEP, identification: 0, mtu: u16::MAX };
        Ok((way, inner.dst()))
    }

    /// What the packet quoted in an ICMPv4 error was in IPv6, and its IPv4 destination.
    fn inner_v6(&self, icmp: &Icmpv4View<'_>) -> Result<(V6Way, u32), Refused> {
        let inner = icmp.embedded().map_err(|_| Refused::BadQuotation)?;
        let src = self.v6_of(inner.src()).map_err(|_| Refused::BadQuotation)?;
        // RFC 7757 §4.2.1 rule 2.
        let dst = self.v6_of_peer(inner.dst()).map_err(|_| Refused::BadQuotation)?;
        Ok((V6Way { src, dst, ports: Ports::KEEP, mtu: u16::MAX }, inner.dst()))
    }
}

fn icmp_error_v6<'a>(view: &Ipv6View<'a>, found: &Extensions) -> Option<Icmpv6View<'a>> {
    let message = view.packet().get(usize::from(found.offset)..)?;
    let icmp = Icmpv6View::parse(message).ok()?;
    (icmp.class() == icmpv6::Class::Error && !found.is_fragment()).then_some(icmp)
}

fn icmp_error_v4<'a>(view: &Ipv4View<'a>) -> Option<Icmpv4View<'a>> {
    let icmp = Icmpv4View::parse(view.payload()).ok()?;
    (icmp.class() == icmpv4::Class::Error && !view.is_fragment()).then_some(icmp)
}

/// An embedded source may be what no IPv4 host has.
#[inline(always)]
fn source_v4(found: Result<u32, NotEmbedded>) -> Result<u32, Denied> {
    let src = found.map_err(denied_source)?;
    if is_illegal_source_v4(src) { Err(Denied::IllegalSource) } else { Ok(src) }
}

fn denied_source(why: NotEmbedded) -> Denied {
    if why == NotEmbedded::NonGlobal { Denied::NonGlobal } else { Denied::UnmappedSource }
}

fn denied_destination(why: NotEmbedded) -> Denied {
    if why == NotEmbedded::NonGlobal { Denied::NonGlobal } else { Denied::UnmappedDestination }
}
