//! The verbs: what comes in, what goes out, when to call again.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use carrack_base::{IfIndex, Now, Range4};
use carrack_pipeline::policer::Bucket;
use carrack_pipeline::snapshot::Policer;
use carrack_wire::arp::{ArpPacket, Operation};
use carrack_wire::ethernet::ethertype;
use carrack_wire::{Ipv4View, L2, MacAddr, parse_l2};

use crate::advertise::{Advertiser, drawn};
use crate::announce::Announcer;
use crate::asking::Anycast;
use crate::config::{HostConfig, HostInterface};
use crate::echo::{self, NoReply};
use crate::l2;
use crate::listener::Listener;
use crate::neighbours::{Due, Heard, Key, NeighbourRow, Neighbours, Refused, Resolve};
use crate::own6::{Own6, OwnRow};
use crate::reassembly::Reassembly;

/// Frames waiting to be sent; more are dropped and counted.
const TRANSMIT_MAX: usize = 4_096;
/// Timers carried out in one call of [`Host::handle_timeout`]; the rest are due at once again.
const TIMERS_PER_CALL: usize = 256;
/// Least time between two defences of one interface's addresses: `DEFEND_INTERVAL` of RFC 5227 §2.4.
const DEFEND_NS: u64 = 10_000_000_000;

/// What the rest of the router must know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostEvent {
    /// A neighbour is known, or has another MAC address than before.
    NeighbourSet {
        /// Interface it is on.
        interface: IfIndex,
        /// Its address.
        ip: IpAddr,
        /// Its MAC address.
        mac: MacAddr,
    },
    /// A neighbour is gone, or nobody answered for an address that was asked for.
    NeighbourGone {
        /// Interface it was looked for on.
        interface: IfIndex,
        /// Its address.
        ip: IpAddr,
    },
    /// Another station had an IPv6 address before this router (RFC 4862 §5.4.5), which does not use it until the next
    /// [`Host::configure`].
    AddressDuplicate {
        /// Interface it was heard on.
        interface: IfIndex,
        /// The address.
        ip: Ipv6Addr,
        /// Who has it.
        mac: MacAddr,
    },
    /// Another station uses an address that this router answers for (RFC 5227 §2.4). At most one each 10 s and interface.
    AddressConflict {
        /// Interface it was heard on.
        interface: IfIndex,
        /// The address.
        ip: IpAddr,
        /// Who claims it.
        mac: MacAddr,
    },
}

/// What the host did, in events since start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HostCounters {
    /// ARP requests and replies received well-formed.
    pub arp_received: u64,
    /// Malformed ARP packets ignored.
    pub arp_malformed: u64,
    /// ARP requests answered, own addresses and proxied ones.
    pub arp_answered: u64,
    /// Of those, for pool and static addresses.
    pub arp_answered_proxy: u64,
    /// ARP requests sent.
    pub arp_asked: u64,
    /// Announcements (gratuitous ARP) sent.
    pub arp_announced: u64,
    /// Packets that claimed an address of ours.
    pub arp_conflicts: u64,
    /// Messages of neighbour discovery received well-formed.
    pub nd_received: u64,
    /// Malformed ones ignored.
    pub nd_malformed: u64,
    /// Neighbour solicitations answered.
    pub nd_answered: u64,
    /// Neighbour solicitations sent, those that check own addresses among them.
    pub nd_asked: u64,
    /// Neighbour advertisements sent to all.
    pub nd_announced: u64,
    /// Messages that claimed an IPv6 address of ours.
    pub nd_conflicts: u64,
    /// Router advertisements sent.
    pub router_advertised: u64,
    /// Multicast listener queries received well-formed.
    pub listener_asked: u64,
    /// Multicast listener reports sent.
    pub listener_reported: u64,
    /// Neighbours not entered because the table was full.
    pub neighbours_full: u64,
    /// Addresses not asked for because too many were being asked for.
    pub neighbours_pending_full: u64,
    /// Neighbours that did not answer.
    pub neighbours_failed: u64,
    /// Echo requests answered.
    pub echo_answered: u64,
    /// Pieces of ICMP to the router received.
    pub fragments_received: u64,
    /// Of those, pieces of an impossible length.
    pub fragments_malformed: u64,
    /// Datagrams put together.
    pub reassembled: u64,
    /// Datagrams whose pieces overlapped or contradicted each other.
    pub reassembly_overlap: u64,
    /// Datagrams longer than the host puts together.
    pub reassembly_too_long: u64,
    /// Incomplete datagrams given up for newer ones.
    pub reassembly_full: u64,
    /// Datagrams whose rest did not come in time.
    pub reassembly_timeout: u64,
    /// ICMP to the router that was malformed.
    pub icmp_malformed: u64,
    /// Well-formed packets for the router that it has no use for.
    pub unhandled: u64,
    /// Packets from interfaces that do not exist (any more).
    pub interface_unknown: u64,
    /// Frames not sent because too many waited.
    pub transmit_full: u64,
}

/// The router as a station on its links.
///
/// Call a verb, then drain [`Host::poll_event`] and [`Host::poll_transmit`], then see [`Host::poll_timeout`].
/// Time must not run backwards.
#[derive(Debug)]
pub struct Host {
    pub(crate) interfaces: BTreeMap<IfIndex, HostInterface>,
    pub(crate) neighbours: Neighbours,
    announcer: Announcer,
    pub(crate) own6: Own6,
    pub(crate) advertiser: Advertiser,
    pub(crate) anycast: Anycast,
    pub(crate) listener: Listener,
    pub(crate) reassembly: Reassembly,
    /// ICMP errors of the host: what is allowed, and what of it is left.
    pub(crate) errors: (Policer, Bucket),
    /// Numbers drawn so far.
    drawn: u32,
    defended: BTreeMap<IfIndex, Now>,
    transmit: VecDeque<(IfIndex, Vec<u8>)>,
    pub(crate) events: VecDeque<HostEvent>,
    pub(crate) counters: HostCounters,
}

impl Host {
    /// A host that begins at `now` by announcing its addresses.
    #[must_use]
    pub fn new(config: HostConfig, now: Now) -> Self {
        let mut host = Self {
            interfaces: BTreeMap::new(),
            neighbours: Neighbours::new(config.arp, config.neighbours_max as usize),
            announcer: Announcer::default(),
            own6: Own6::default(),
            advertiser: Advertiser::default(),
            anycast: Anycast::default(),
            listener: Listener::default(),
            reassembly: Reassembly::default(),
            errors: (config.icmp_errors, Bucket::new(config.icmp_errors, now)),
            drawn: 0,
            defended: BTreeMap::new(),
            transmit: VecDeque::new(),
            events: VecDeque::new(),
            counters: HostCounters::default(),
        };
        host.configure(config, now);
        host
    }

    /// Works by `config` from now on. Neighbours that can still be there stay; addresses that are new are announced.
    pub fn configure(&mut self, config: HostConfig, now: Now) {
        let old = std::mem::take(&mut self.interfaces);
        self.interfaces = config.interfaces.into_iter().map(|i| (i.id, i)).collect();
        self.neighbours.configure(config.arp, config.neighbours_max as usize);
        if config.icmp_errors != self.errors.0 {
            self.errors = (config.icmp_errors, Bucket::new(config.icmp_errors, now));
        }
        let interfaces = &self.interfaces;
        self.announcer.retain(|id| interfaces.contains_key(&id));
        self.defended.retain(|id, _| interfaces.contains_key(id));
        let gone = self.neighbours.retain(|(id, ip)| still_there(old.get(&id), interfaces.get(&id), ip));
        for (interface, ip) in gone {
            self.events.push_back(HostEvent::NeighbourGone { interface, ip });
        }
        self.configure6(now, &old);
        for interface in self.interfaces.values() {
            for range in new_ranges(old.get(&interface.id), interface) {
                self.announcer.add(now, interface.id, range);
            }
        }
    }

    /// Takes a packet that a worker passed up: a whole frame with its Ethernet header and tags, as received by `interface`.
    pub fn handle_packet(&mut self, now: Now, interface: IfIndex, frame: &[u8]) {
        let Some(on) = self.interfaces.get(&interface) else {
            self.counters.interface_unknown += 1;
            return;
        };
        let Ok(l2) = parse_l2(frame) else {
            self.counters.unhandled += 1;
            return;
        };
        if l2.src == on.mac {
            // An echo of our own frame, as a looped link sends them: it says nothing about anybody.
            self.counters.unhandled += 1;
            return;
        }
        let payload = frame.get(usize::from(l2.payload_offset)..).unwrap_or_default();
        match l2.ethertype {
            ethertype::ARP => self.handle_arp(now, interface, payload),
            ethertype::IPV4 => self.handle_ipv4(now, interface, &l2, payload),
            ethertype::IPV6 => self.handle_ipv6(now, interface, &l2, payload),
            _ => self.counters.unhandled += 1,
        }
    }

    /// A worker needs the MAC address of `ip` on `interface`. Answered by an event, at once or after the last try.
    pub fn handle_resolve(&mut self, now: Now, interface: IfIndex, ip: IpAddr) {
        let gone = HostEvent::NeighbourGone { interface, ip };
        let askable = self.interfaces.get(&interface).is_some_and(|on| on.may_ask_for(ip));
        if !askable {
            self.events.push_back(gone);
            return;
        }
        match self.neighbours.resolve(now, (interface, ip)) {
            Ok(Resolve::Known(mac)) => self.events.push_back(HostEvent::NeighbourSet { interface, ip, mac }),
            Ok(Resolve::Pending) => {}
            Ok(Resolve::Ask) => self.ask((interface, ip), None),
            Err(refused) => {
                self.count_refused(refused);
                self.events.push_back(gone);
            }
        }
    }

    /// Does what is due at `now`. May be called at any time.
    pub fn handle_timeout(&mut self, now: Now) {
        for _ in 0..TIMERS_PER_CALL {
            let Some(due) = self.neighbours.pop_due(now) else { break };
            match due {
                Due::AskAll(key) => self.ask(key, None),
                Due::AskOne(key, mac) => self.ask(key, Some(mac)),
                Due::Gone((interface, ip)) => {
                    self.counters.neighbours_failed += 1;
                    self.events.push_back(HostEvent::NeighbourGone { interface, ip });
                }
                Due::Forgotten => {}
            }
        }
        for (interface, ip) in self.announcer.step(now) {
            self.announce(interface, ip);
        }
        self.end_reassembly(now);
        self.handle_timeout6(now);
    }

    /// When [`Host::handle_timeout`] wants to be called next; `None` when nothing is under way.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Now> {
        let ipv4 = [self.neighbours.next_due(), self.announcer.next_due(), self.reassembly.next_due()];
        let ipv6 = [self.own6.next_due(), self.advertiser.next_due(), self.listener.next_due()];
        ipv4.into_iter().chain(ipv6).chain([self.anycast.next_due()]).flatten().min()
    }

    /// The next frame to send, whole with Ethernet header and tags, and the interface it leaves by.
    pub fn poll_transmit(&mut self) -> Option<(IfIndex, Vec<u8>)> {
        self.transmit.pop_front()
    }

    /// The next thing that the rest of the router must know.
    pub fn poll_event(&mut self) -> Option<HostEvent> {
        self.events.pop_front()
    }

    /// All neighbours, by interface and address.
    pub fn neighbours(&self, now: Now) -> impl Iterator<Item = NeighbourRow> {
        self.neighbours.rows(now)
    }

    /// All own IPv6 addresses, by interface, and whether they may be used.
    pub fn own6(&self) -> impl Iterator<Item = OwnRow> {
        self.own6.rows()
    }

    /// Grows whenever [`Host::own6`] has something else to tell.
    #[must_use]
    pub const fn own6_version(&self) -> u64 {
        self.own6.version()
    }

    /// What was done since start.
    #[must_use]
    pub fn counters(&self) -> &HostCounters {
        &self.counters
    }

    /// RFC 826 "Packet Reception", with the claims of RFC 5227 §2.4 looked at first.
    fn handle_arp(&mut self, now: Now, interface: IfIndex, payload: &[u8]) {
        let Some(arp) = ArpPacket::parse(payload).ok().filter(|arp| arp.sender_mac.is_station()) else {
            self.counters.arp_malformed += 1;
            return;
        };
        let Some(on) = self.interfaces.get(&interface) else { return };
        self.counters.arp_received += 1;
        if arp.sender_mac == on.mac {
            self.counters.unhandled += 1;
            return;
        }
        if on.answers(arp.sender_ip) {
            self.conflict(now, interface, &arp);
            return;
        }
        let for_us = on.answers(arp.target_ip);
        let asked = arp.operation == Operation::Request && for_us;
        let sender = (interface, Ipv4Addr::from(arp.sender_ip).into());
        if on.can_be_neighbour(arp.sender_ip) || self.neighbours.is_wanted(sender) {
            self.heard(now, sender, arp.sender_mac, Heard { may_create: asked, is_answer: true });
        }
        if asked {
            self.answer(interface, &arp);
        }
    }

    pub(crate) fn heard(&mut self, now: Now, (interface, ip): Key, mac: MacAddr, how: Heard) {
        match self.neighbours.heard(now, (interface, ip), mac, how) {
            Ok(true) => self.events.push_back(HostEvent::NeighbourSet { interface, ip, mac }),
            Ok(false) => {}
            Err(refused) => self.count_refused(refused),
        }
    }

    /// Answers a question or a probe; a probe's sender address 0 is echoed as the target (RFC 5227 §2.1.1).
    fn answer(&mut self, interface: IfIndex, request: &ArpPacket) {
        let Some(on) = self.interfaces.get(&interface) else { return };
        let reply = request.reply(on.mac);
        self.counters.arp_answered += 1;
        self.counters.arp_answered_proxy += u64::from(!on.owns(request.target_ip));
        let frame = l2::frame(request.sender_mac, on.mac, on.vlan, ethertype::ARP, &reply.to_bytes());
        self.send(interface, frame);
    }

    /// Somebody claims an address of ours: say so once in a while, and defend it (RFC 5227 §2.4 (b)).
    fn conflict(&mut self, now: Now, interface: IfIndex, arp: &ArpPacket) {
        self.counters.arp_conflicts += 1;
        if !self.may_defend(now, interface) {
            return;
        }
        let (ip, mac) = (Ipv4Addr::from(arp.sender_ip).into(), arp.sender_mac);
        self.events.push_back(HostEvent::AddressConflict { interface, ip, mac });
        self.announce(interface, arp.sender_ip);
    }

    /// Once in a while.
    pub(crate) fn may_defend(&mut self, now: Now, interface: IfIndex) -> bool {
        let last = self.defended.get(&interface);
        let may = last.is_none_or(|last| now.ns.saturating_sub(last.ns) >= DEFEND_NS);
        if may {
            self.defended.insert(interface, now);
        }
        may
    }

    /// Sends an announcement: a request for our own address (RFC 5227 §1.1).
    fn announce(&mut self, interface: IfIndex, ip: u32) {
        let Some(on) = self.interfaces.get(&interface).filter(|on| on.answers(ip)) else { return };
        let arp = ArpPacket::gratuitous(on.mac, ip);
        let frame = l2::frame(MacAddr::BROADCAST, on.mac, on.vlan, ethertype::ARP, &arp.to_bytes());
        self.counters.arp_announced += 1;
        self.send(interface, frame);
    }

    /// Asks everybody, or the neighbour itself (RFC 1122 §2.3.2.1 (2)), who has the address.
    fn ask(&mut self, (interface, ip): Key, only: Option<MacAddr>) {
        match ip {
            IpAddr::V4(ip) => self.ask_arp(interface, ip.into(), only),
            IpAddr::V6(ip) => self.ask_nd(interface, ip.into(), only),
        }
    }

    fn ask_arp(&mut self, interface: IfIndex, ip: u32, only: Option<MacAddr>) {
        let Some(on) = self.interfaces.get(&interface) else { return };
        let Some(sender_ip) = on.source_for(ip) else { return };
        let target_mac = only.unwrap_or(MacAddr::ZERO);
        let arp = ArpPacket { target_mac, ..ArpPacket::request(on.mac, sender_ip, ip) };
        let to = only.unwrap_or(MacAddr::BROADCAST);
        let frame = l2::frame(to, on.mac, on.vlan, ethertype::ARP, &arp.to_bytes());
        self.counters.arp_asked += 1;
        self.send(interface, frame);
    }

    fn handle_ipv4(&mut self, now: Now, interface: IfIndex, l2: &L2, payload: &[u8]) {
        let Ok(packet) = Ipv4View::parse(payload) else {
            self.counters.icmp_malformed += 1;
            return;
        };
        let Some(on) = self.interfaces.get(&interface) else { return };
        if !self.is_own(on, packet.dst()) || !self.may_be_answered(on, packet.src()) || !l2.src.is_station() {
            self.counters.unhandled += 1;
            return;
        }
        if !packet.is_fragment() {
            let is_longer = packet.packet().len() > usize::from(on.mtu);
            let identification = is_longer.then(|| self.draw(now) as u16);
            self.answer_echo(interface, l2.src, &packet, identification);
        } else if let Some(whole) = self.take_piece4(now, interface, l2, &packet)
            && let Ok(packet) = Ipv4View::parse(&whole.packet)
        {
            // As who asked in pieces had to: the answer may be cut on its way. His number serves it as well.
            self.answer_echo(interface, l2.src, &packet, Some(whole.identification as u16));
        }
    }

    fn answer_echo(&mut self, interface: IfIndex, to: MacAddr, request: &Ipv4View<'_>, number: Option<u16>) {
        match echo::reply(request, number) {
            Ok(reply) => {
                self.counters.echo_answered += 1;
                self.send4(interface, to, &reply);
            }
            Err(NoReply::Malformed) => self.counters.icmp_malformed += 1,
            Err(NoReply::NotEcho) => self.counters.unhandled += 1,
        }
    }

    /// Is `ip` an address of the router in the routing instance of `on`?
    pub(crate) fn is_own(&self, on: &HostInterface, ip: u32) -> bool {
        self.interfaces.values().any(|other| other.vrf == on.vrf && other.owns(ip))
    }

    /// Is `ip` one station's address, and not ours (RFC 1812 §5.3.7)?
    fn may_be_answered(&self, on: &HostInterface, ip: u32) -> bool {
        let special = ip >> 24 == 0 || ip >> 24 == 127 || ip >= 0xe000_0000;
        let broadcast = on.addresses.iter().any(|(_, subnet)| subnet.broadcast() == Some(ip));
        !special && !broadcast && !self.is_own(on, ip)
    }

    /// A number that others do not know beforehand.
    pub(crate) fn draw(&mut self, now: Now) -> u32 {
        self.drawn = self.drawn.wrapping_add(1);
        drawn(self.drawn, now)
    }

    fn count_refused(&mut self, refused: Refused) {
        match refused {
            Refused::Full => self.counters.neighbours_full += 1,
            Refused::TooManyPending => self.counters.neighbours_pending_full += 1,
            Refused::Failed => {}
        }
    }

    pub(crate) fn send(&mut self, interface: IfIndex, frame: Vec<u8>) {
        if self.transmit.len() < TRANSMIT_MAX {
            self.transmit.push_back((interface, frame));
        } else {
            self.counters.transmit_full += 1;
        }
    }
}

/// Does a neighbour outlive the change from `old` to `new`?
fn still_there(old: Option<&HostInterface>, new: Option<&HostInterface>, ip: IpAddr) -> bool {
    let (Some(old), Some(new)) = (old, new) else { return false };
    let same_link = old.mac == new.mac && old.vlan == new.vlan && old.vrf == new.vrf;
    same_link
        && match ip {
            IpAddr::V4(ip) => {
                let ip = ip.into();
                !new.answers(ip) && (old.addresses == new.addresses || new.can_be_neighbour(ip))
            }
            IpAddr::V6(ip) => {
                let ip = ip.into();
                !new.owns6(ip) && (old.ipv6 == new.ipv6 || new.can_be_neighbour6(ip))
            }
        }
}

/// What is to be announced after the change from `old` to `new`: own addresses, and proxied ones on a connected subnet,
/// as nobody else on the link takes notice.
fn new_ranges(old: Option<&HostInterface>, new: &HostInterface) -> Vec<Range4> {
    let old = old.filter(|old| old.mac == new.mac && old.vlan == new.vlan);
    let own = new.addresses.iter().map(|(ip, _)| *ip);
    let own = own.filter(|ip| old.is_none_or(|old| !old.owns(*ip))).map(|ip| Range4 { first: ip, last: ip });
    let proxied = new.proxy.iter().filter(|range| old.is_none_or(|old| !old.proxy.contains(range)));
    let connected = |range: &&Range4| {
        new.addresses.iter().any(|(_, subnet)| subnet.contains(range.first) && subnet.contains(range.last))
    };
    own.chain(proxied.filter(connected).copied()).collect()
}
