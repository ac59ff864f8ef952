//! The host's IPv6: neighbour discovery (RFC 4861), duplicate addresses (RFC 4862 §5.4), multicast listening (RFC 3810),
//! echo (RFC 4443 §4.2).

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;

use carrack_base::{IfIndex, Now};
use carrack_pipeline::snapshot::Ipv6Interface;
use carrack_wire::ethernet::ethertype;
use carrack_wire::icmpv6::{Class, Icmpv6View};
use carrack_wire::ipv6::{Ipv6View, is_answerable, is_link_local, is_multicast, next_header};
use carrack_wire::mld::{self, MldError, MldVersion, Query};
use carrack_wire::ndp::{
    ALL_NODES, ALL_ROUTERS, NdpError, NdpMessage, RouterAdvertisement, multicast_mac, solicited_node,
};
use carrack_wire::{L2, MacAddr};

use crate::config::HostInterface;
use crate::echo::{self, NoReply};
use crate::host::{Host, HostEvent};
use crate::l2;
use crate::neighbours::Heard;
use crate::own6::Use;
use crate::pieces::Back;
use crate::reassembly::Whole;

impl Host {
    /// Takes over what is configured of IPv6; `old` are the interfaces as they were.
    pub(crate) fn configure6(&mut self, now: Now, old: &BTreeMap<IfIndex, HostInterface>) {
        let interfaces = &self.interfaces;
        let is_fresh = |id: IfIndex| match (old.get(&id), interfaces.get(&id)) {
            (Some(old), Some(new)) => old.mac != new.mac || old.vlan != new.vlan,
            _ => true,
        };
        let own = interfaces.values().filter_map(|on| Some((on.id, on.ipv6.as_ref()?)));
        let own = own.flat_map(|(id, v6)| v6.own().map(move |address| (id, address)));
        let asked = self.own6.configure(now, own, is_fresh);
        let advertising =
            interfaces.values().filter_map(|on| Some((on.id, on.advertising.as_ref()?.interval_s)));
        let is_changed = |id: IfIndex| {
            let of =
                |all: &BTreeMap<IfIndex, HostInterface>| all.get(&id).and_then(|on| on.advertising.clone());
            is_fresh(id) || of(old) != of(interfaces)
        };
        self.advertiser.configure(now, advertising, is_changed);
        self.anycast.retain(|id, target| interfaces.get(&id).is_some_and(|on| on.shares6(target)));
        let groups = interfaces.values().filter_map(|on| Some((on.id, groups_of(on.ipv6.as_ref()?))));
        self.listener.configure(now, groups, is_fresh);
        // RFC 4862 §5.4.2: listened to before anybody is asked, or an objection may not come through.
        self.report_groups(now);
        for (interface, address) in asked {
            self.probe_own(interface, address);
        }
        for was in old.values().filter(|was| was.advertising.is_some()) {
            self.resign(was);
        }
    }

    pub(crate) fn handle_timeout6(&mut self, now: Now) {
        for (interface, address) in self.own6.step(now) {
            self.announce6(interface, address);
        }
        for asking in self.anycast.answers(now) {
            self.counters.nd_answered += 1;
            self.tell(asking.interface, asking.target, (asking.address, asking.mac), true);
        }
        self.report_groups(now);
        for asking in self.advertiser.answers(now) {
            self.advertise(asking.interface, asking.address, asking.mac);
        }
        for interface in self.advertiser.step(now) {
            self.advertise(interface, ALL_NODES, multicast_mac(ALL_NODES));
        }
    }

    fn report_groups(&mut self, now: Now) {
        for report in self.listener.step(now) {
            let Some(on) = self.interfaces.get(&report.interface) else { continue };
            let Some(v6) = &on.ipv6 else { continue };
            // RFC 3590 §4: before there is an address, from none.
            let is_usable = self.own6.is_preferred(on.id, v6.link_local);
            let src = if is_usable { v6.link_local } else { 0 };
            let packets: Vec<(u128, Vec<u8>)> = match report.version {
                MldVersion::V1 => {
                    report.records.iter().map(|(_, group)| (*group, mld::report_v1(src, *group))).collect()
                }
                MldVersion::V2 => {
                    let parts = report.records.chunks(mld::RECORDS_MAX);
                    parts.map(|records| (mld::REPORTS_TO, mld::report(src, records))).collect()
                }
            };
            let (id, mac, vlan) = (on.id, on.mac, on.vlan);
            for (group, packet) in packets {
                self.counters.listener_reported += 1;
                self.send(id, l2::frame(multicast_mac(group), mac, vlan, ethertype::IPV6, &packet));
            }
        }
    }

    /// RFC 3810 §6.2: a router asks who listens. False: it is no query.
    fn handle_query(&mut self, now: Now, interface: IfIndex, payload: &[u8]) -> bool {
        let read = Ipv6View::parse(payload).map_or(Err(MldError::Kind), |packet| Query::parse(&packet));
        match read {
            Ok(query) => {
                self.counters.listener_asked += 1;
                self.listener.asked(now, interface, query);
                true
            }
            Err(MldError::Kind) => false,
            Err(_) => {
                self.counters.icmp_malformed += 1;
                true
            }
        }
    }

    pub(crate) fn handle_ipv6(&mut self, now: Now, interface: IfIndex, l2: &L2, payload: &[u8]) {
        // First: what a later piece begins with may look like anything.
        let piece =
            Ipv6View::parse(payload).ok().and_then(|packet| Some((packet, packet.extensions().ok()?)));
        if let Some((packet, found)) = piece.filter(|(_, found)| found.is_fragment())
            && let Some(header) = found.fragment
        {
            if let Some(whole) = self.take_piece6(now, interface, l2, &packet, &header) {
                self.handle_whole6(interface, l2, &whole);
            }
            return;
        }
        if self.handle_query(now, interface, payload) {
            return;
        }
        let Some((packet, message)) = icmp_of(payload) else {
            self.counters.icmp_malformed += 1;
            return;
        };
        match message.class() {
            // RFC 6980 §5: not in fragments, and nobody sends it behind other headers.
            Class::NeighbourDiscovery if packet.next_header() != next_header::ICMPV6 => {
                self.counters.nd_malformed += 1;
            }
            Class::NeighbourDiscovery => self.handle_nd(now, interface, l2, &packet),
            Class::Request => {
                let back = Back { limit: usize::MAX, identification: self.draw(now) };
                self.handle_echo6(interface, l2, &packet, back);
            }
            _ => self.counters.unhandled += 1,
        }
    }

    /// A packet that came in pieces: only echo may (RFC 6980 §5).
    fn handle_whole6(&mut self, interface: IfIndex, l2: &L2, whole: &Whole) {
        match icmp_of(&whole.packet) {
            Some((packet, message)) if message.class() == Class::Request => {
                self.handle_echo6(interface, l2, &packet, Back::of(whole));
            }
            Some((_, message)) if message.class() == Class::NeighbourDiscovery => {
                self.counters.nd_malformed += 1;
            }
            Some(_) => self.counters.unhandled += 1,
            None => self.counters.icmp_malformed += 1,
        }
    }

    fn handle_nd(&mut self, now: Now, interface: IfIndex, l2: &L2, packet: &Ipv6View<'_>) {
        let Some(on) = self.interfaces.get(&interface).filter(|on| on.ipv6.is_some()) else {
            self.counters.unhandled += 1;
            return;
        };
        let (src, dst) = (packet.src(), packet.dst());
        let read = NdpMessage::parse(src, dst, packet.hop_limit(), packet.payload());
        let message = match read {
            Ok(message) => message,
            Err(NdpError::Kind) => {
                self.counters.unhandled += 1;
                return;
            }
            Err(_) => {
                self.counters.nd_malformed += 1;
                return;
            }
        };
        self.counters.nd_received += 1;
        let owned = |target| on.owns6(target);
        match message {
            NdpMessage::NeighbourSolicitation { target, source } if owned(target) => {
                self.solicited(now, interface, l2, src, target, source);
            }
            NdpMessage::NeighbourSolicitation { target, source } if on.shares6(target) => {
                self.solicited_anycast(now, interface, l2, src, target, source);
            }
            NdpMessage::NeighbourAdvertisement { target, .. } if owned(target) => {
                self.claimed(now, interface, target, l2.src, false);
            }
            NdpMessage::NeighbourAdvertisement { target, solicited, replaces, target_mac, .. } => {
                let mac = target_mac.unwrap_or(l2.src);
                self.advertised(now, interface, target, mac, solicited, replaces);
            }
            NdpMessage::RouterSolicitation { source } if on.advertising.is_some() => {
                self.router_solicited(now, interface, l2, src, source);
            }
            // A router believes no other about the link (RFC 4861 §6.2.7 asks for no more than a word in the log).
            NdpMessage::RouterAdvertisement(_)
            | NdpMessage::RouterSolicitation { .. }
            | NdpMessage::NeighbourSolicitation { .. } => self.counters.unhandled += 1,
        }
    }

    /// RFC 4861 §7.2.3: somebody asks for an address of ours.
    fn solicited(
        &mut self,
        now: Now,
        interface: IfIndex,
        l2: &L2,
        src: u128,
        target: u128,
        source: Option<MacAddr>,
    ) {
        // RFC 4862 §5.4.3: a probe for an address that we are only checking ourselves is an objection.
        if src == 0 {
            self.claimed(now, interface, target, l2.src, true);
            return;
        }
        if !self.own6.is_preferred(interface, target) {
            return;
        }
        let mac = source.unwrap_or(l2.src);
        self.met(now, interface, src, mac);
        self.counters.nd_answered += 1;
        self.tell(interface, target, (src, mac), true);
    }

    /// RFC 4861 §7.2.7: somebody asks for an address that all routers of the link have.
    fn solicited_anycast(
        &mut self,
        now: Now,
        interface: IfIndex,
        l2: &L2,
        src: u128,
        target: u128,
        source: Option<MacAddr>,
    ) {
        // A host that would take it for its own does not wait long for an objection (RFC 4862 §5.4).
        if src == 0 {
            self.announce6(interface, target);
            return;
        }
        let mac = source.unwrap_or(l2.src);
        self.met(now, interface, src, mac);
        if !self.anycast.asked_by(now, interface, target, src, mac) {
            self.counters.transmit_full += 1;
        }
    }

    /// Enters who spoke to us first.
    fn met(&mut self, now: Now, interface: IfIndex, src: u128, mac: MacAddr) {
        let is_neighbour = self.interfaces.get(&interface).is_some_and(|on| on.can_be_neighbour6(src));
        if is_neighbour && mac.is_station() {
            let how = Heard { may_create: true, is_answer: false };
            self.heard(now, (interface, Ipv6Addr::from(src).into()), mac, how);
        }
    }

    /// Somebody else has an address of ours, or (`asks`) is about to take it.
    fn claimed(&mut self, now: Now, interface: IfIndex, target: u128, mac: MacAddr, asks: bool) {
        self.counters.nd_conflicts += 1;
        let ip = Ipv6Addr::from(target);
        match self.own6.state(interface, target) {
            Some(Use::Tentative) => {
                self.own6.set_duplicate(interface, target, mac);
                self.events.push_back(HostEvent::AddressDuplicate { interface, ip, mac });
            }
            Some(Use::Preferred) => {
                let may_defend = self.may_defend(now, interface);
                if may_defend {
                    let ip = ip.into();
                    self.events.push_back(HostEvent::AddressConflict { interface, ip, mac });
                }
                // RFC 4862 §5.4.3: who asks first is always answered. An owner is contradicted once in a while only: one that
                // does the same would have the two contradict each other for ever.
                if asks || may_defend {
                    self.announce6(interface, target);
                }
            }
            Some(Use::Duplicate(_)) | None => {}
        }
    }

    /// RFC 4861 §7.2.5: a neighbour tells its MAC address. Nobody is entered who was not asked for.
    fn advertised(
        &mut self,
        now: Now,
        interface: IfIndex,
        target: u128,
        mac: MacAddr,
        solicited: bool,
        replaces: bool,
    ) {
        let key = (interface, Ipv6Addr::from(target).into());
        let differs = self.neighbours.mac(key).is_some_and(|known| known != mac);
        if mac.is_station() && self.neighbours.is_wanted(key) && (replaces || !differs) {
            self.heard(now, key, mac, Heard { may_create: false, is_answer: solicited });
        }
    }

    /// RFC 4861 §6.2.6: a host asks for routers. It is answered alone, or with all when it has no address yet.
    fn router_solicited(
        &mut self,
        now: Now,
        interface: IfIndex,
        l2: &L2,
        src: u128,
        source: Option<MacAddr>,
    ) {
        if src == 0 {
            self.advertiser.hurry(now, interface);
            return;
        }
        let mac = source.unwrap_or(l2.src);
        if source.is_some() {
            self.met(now, interface, src, mac);
        }
        if mac.is_station() {
            self.advertiser.asked_by(now, interface, src, mac);
        }
    }

    /// Asks everybody, or the neighbour itself (RFC 4861 §7.2.2, §7.3.3), who has the address.
    pub(crate) fn ask_nd(&mut self, interface: IfIndex, target: u128, only: Option<MacAddr>) {
        let Some(src) = self.source6_for(interface, target) else { return };
        let Some(on) = self.interfaces.get(&interface) else { return };
        let message = NdpMessage::NeighbourSolicitation { target, source: Some(on.mac) };
        let group = solicited_node(target);
        let (dst, to) = only.map_or((group, multicast_mac(group)), |mac| (target, mac));
        self.counters.nd_asked += 1;
        self.send_nd(interface, &message, src, (dst, to));
    }

    /// The own address to speak with to `target`: one of its subnet, else the link-local one; none before one may be used.
    fn source6_for(&self, interface: IfIndex, target: u128) -> Option<u128> {
        let v6: &Ipv6Interface = self.interfaces.get(&interface)?.ipv6.as_ref()?;
        let on_subnet =
            v6.addresses.iter().filter(|(_, subnet)| subnet.contains(target)).map(|(own, _)| *own);
        let on_subnet = on_subnet.filter(|_| !is_link_local(target));
        let mut all = on_subnet.chain([v6.link_local]);
        all.find(|own| self.own6.is_preferred(interface, *own))
    }

    /// RFC 4862 §5.4.2: asks the link whether somebody has an address that we want.
    fn probe_own(&mut self, interface: IfIndex, target: u128) {
        let message = NdpMessage::NeighbourSolicitation { target, source: None };
        let group = solicited_node(target);
        self.counters.nd_asked += 1;
        self.send_nd(interface, &message, 0, (group, multicast_mac(group)));
    }

    /// RFC 4861 §7.2.6: tells all that the address is ours.
    fn announce6(&mut self, interface: IfIndex, target: u128) {
        self.counters.nd_announced += 1;
        self.tell(interface, target, (ALL_NODES, multicast_mac(ALL_NODES)), false);
    }

    fn tell(&mut self, interface: IfIndex, target: u128, to: (u128, MacAddr), solicited: bool) {
        let Some(on) = self.interfaces.get(&interface) else { return };
        let target_mac = Some(on.mac);
        // RFC 4861 §7.2.7: of several routers the first to answer is believed. None speaks from an address of all.
        let is_shared = on.shares6(target);
        let src = if is_shared { self.source6_for(interface, to.0) } else { Some(target) };
        let Some(src) = src else { return };
        let message = NdpMessage::NeighbourAdvertisement {
            target,
            router: true,
            solicited,
            replaces: !is_shared,
            target_mac,
        };
        self.send_nd(interface, &message, src, to);
    }

    fn advertise(&mut self, interface: IfIndex, dst: u128, to: MacAddr) {
        let Some(on) = self.interfaces.get(&interface) else { return };
        let (Some(v6), Some(advertising)) = (&on.ipv6, &on.advertising) else { return };
        let src = v6.link_local;
        if !self.own6.is_preferred(interface, src) {
            return;
        }
        let message = RouterAdvertisement { source: Some(on.mac), ..advertising.message.clone() };
        self.counters.router_advertised += 1;
        self.send_nd(interface, &NdpMessage::RouterAdvertisement(message), src, (dst, to));
    }

    /// RFC 4861 §6.2.5: an interface that no longer advertises says so once.
    fn resign(&mut self, was: &HostInterface) {
        let Some(on) = self.interfaces.get(&was.id).filter(|on| on.advertising.is_none()) else { return };
        let Some(v6) = &on.ipv6 else { return };
        let (src, source) = (v6.link_local, Some(on.mac));
        let message = RouterAdvertisement { source, lifetime_s: 0, ..RouterAdvertisement::default() };
        self.counters.router_advertised += 1;
        let to = (ALL_NODES, multicast_mac(ALL_NODES));
        self.send_nd(was.id, &NdpMessage::RouterAdvertisement(message), src, to);
    }

    fn send_nd(&mut self, interface: IfIndex, message: &NdpMessage, src: u128, (dst, to): (u128, MacAddr)) {
        let Some(on) = self.interfaces.get(&interface) else { return };
        let frame = l2::frame(to, on.mac, on.vlan, ethertype::IPV6, &message.packet(src, dst));
        self.send(interface, frame);
    }

    fn handle_echo6(&mut self, interface: IfIndex, l2: &L2, packet: &Ipv6View<'_>, back: Back) {
        let Some(on) = self.interfaces.get(&interface) else { return };
        let own = self.own_for(on, packet.dst());
        if !self.may_answer6(on, l2, packet.src(), own) {
            self.counters.unhandled += 1;
            return;
        }
        match echo::reply6(packet, message_of(packet), own) {
            Ok(reply) => {
                self.counters.echo_answered += 1;
                self.send6(interface, l2.src, &reply, back.limit, back.identification);
            }
            Err(NoReply::Malformed) => self.counters.icmp_malformed += 1,
            Err(NoReply::NotEcho) => self.counters.unhandled += 1,
        }
    }

    /// The address that what is sent to `dst` is answered from. RFC 4443 §2.2 (b), §4.2: to a question for several, from one
    /// address.
    pub(crate) fn own_for(&self, on: &HostInterface, dst: u128) -> u128 {
        match &on.ipv6 {
            Some(v6) if is_multicast(dst) => v6.link_local,
            _ => self.own_beside(on, dst).unwrap_or(dst),
        }
    }

    /// An own address in the subnet whose routers all have `anycast`.
    fn own_beside(&self, on: &HostInterface, anycast: u128) -> Option<u128> {
        let here = self.interfaces.values().filter(|other| other.vrf == on.vrf);
        let own = here.flat_map(|other| {
            let own = other.ipv6.iter().flat_map(|v6| &v6.addresses);
            own.map(|(own, subnet)| (other.id, *own, subnet.router_anycast()))
        });
        let mut beside =
            own.filter(|(id, own, of)| *of == Some(anycast) && self.own6.is_preferred(*id, *own));
        beside.next().map(|(_, own, _)| own)
    }

    /// Is `src` one other station's address, and `own` one of ours?
    pub(crate) fn may_answer6(&self, on: &HostInterface, l2: &L2, src: u128, own: u128) -> bool {
        let is_fair = is_answerable(src) && !self.is_own6(on, src) && l2.src.is_station();
        is_fair && self.is_own6(on, own)
    }

    /// Is `ip` an address of the router that may be used: this link's own, or one of the routing instance?
    pub(crate) fn is_own6(&self, on: &HostInterface, ip: u128) -> bool {
        let is_used = |other: &HostInterface| other.owns6(ip) && self.own6.is_preferred(other.id, ip);
        if is_link_local(ip) {
            return is_used(on);
        }
        self.interfaces.values().any(|other| other.vrf == on.vrf && is_used(other))
    }
}

/// RFC 4291 §2.8, but for the group that everybody is in without saying so (RFC 3810 §6).
fn groups_of(v6: &Ipv6Interface) -> BTreeSet<u128> {
    v6.solicited_nodes().chain([ALL_ROUTERS]).collect()
}

/// The ICMPv6 message of a whole packet, behind its extension headers (RFC 8200 §4), among them the fragment header of a
/// datagram that is whole all the same (RFC 6946 §4).
fn icmp_of(payload: &[u8]) -> Option<(Ipv6View<'_>, Icmpv6View<'_>)> {
    let packet = Ipv6View::parse(payload).ok()?;
    let found = packet.extensions().ok()?;
    let message = Icmpv6View::parse(message_of(&packet)).ok()?;
    (found.protocol == next_header::ICMPV6 && !found.is_fragment()).then_some((packet, message))
}

/// What stands behind a packet's headers.
fn message_of<'a>(packet: &Ipv6View<'a>) -> &'a [u8] {
    let at = packet.extensions().map_or(0, |found| usize::from(found.offset));
    packet.packet().get(at..).unwrap_or(&[])
}
