//! Rows of the data plane as rows of the API.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use carrack_api::types::{
    AddressState, Block, CapturedPacket, Counters, Event, Interface, Mapping, Memory, Neighbour, PoolAddress,
    PortMapping, Route, Session, Subscriber, TraceRecord,
};
use carrack_base::{IfIndex, InstanceId, PoolId, Prefix, Prefix6, VrfId};
use carrack_host::{NeighbourRow, OwnRow, OwnUse};
use carrack_nat::row::{
    BlockRow, Change, MappingRow, Mark, MemoryRow, NatEvent, PoolRow, SessionRow, SubscriberRow,
};
use carrack_pipeline::mailbox::{CapturePoint, CaptureSlot, TraceOutcome, TraceStep};
use carrack_pipeline::snapshot::{NextHop, Snapshot};
use carrack_runtime::{AddressEvent, Happened, InterfaceRow, LoggedEvent, PortRow};

use crate::check::{side_text, vlan_text};

/// Names by id, as they are when a list starts.
pub(super) struct Names {
    interfaces: Vec<String>,
    translators: Vec<String>,
    vrfs: Vec<String>,
    instances: Vec<String>,
    /// Bits that addresses of one IPv6 subscriber have in common, by instance.
    subscriber_lens6: Vec<u8>,
    pools: Vec<(PoolId, String)>,
}

impl Names {
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        let name = |interface: &Option<carrack_pipeline::snapshot::Interface>| {
            interface.as_ref().map(|i| i.name.clone()).unwrap_or_default()
        };
        let instances = &snapshot.nat.instances;
        let pools = instances.iter().flat_map(|i| &i.pools).map(|pool| (pool.id, pool.name.clone()));
        Self {
            interfaces: snapshot.interfaces.iter().map(name).collect(),
            translators: snapshot.siit.iter().map(|siit| siit.name.clone()).collect(),
            vrfs: snapshot.vrfs.clone(),
            instances: instances.iter().map(|i| i.name.clone()).collect(),
            subscriber_lens6: instances.iter().map(carrack_nat::policy::Instance::subscriber_len6).collect(),
            pools: pools.collect(),
        }
    }

    fn get(names: &[String], index: usize) -> String {
        names.get(index).filter(|name| !name.is_empty()).cloned().unwrap_or_else(|| format!("#{index}"))
    }

    fn interface(&self, id: IfIndex) -> String {
        Self::get(&self.interfaces, id.index())
    }

    fn vrf(&self, id: VrfId) -> String {
        Self::get(&self.vrfs, id.index())
    }

    fn instance(&self, id: InstanceId) -> String {
        Self::get(&self.instances, id.index())
    }

    /// A subscriber as its prefix; single hosts, of which some events tell, as they are.
    fn subscriber(&self, instance: InstanceId, inside: IpAddr) -> String {
        let len = self.subscriber_lens6.get(instance.index()).copied().filter(|_| inside.is_ipv6());
        let prefix = len.map(|len| Prefix::of(inside, len));
        let prefix = prefix.filter(|prefix| prefix.first() == inside && !prefix.is_host());
        prefix.map_or_else(|| inside.to_string(), |prefix| prefix.to_string())
    }

    fn pool(&self, id: PoolId) -> String {
        let named = self.pools.iter().find(|(pool, _)| *pool == id);
        named.map_or_else(|| format!("#{id}"), |(_, name)| name.clone())
    }
}

pub(super) fn interface(row: &InterfaceRow, device: String) -> Interface {
    let (i, link, stats) = (&row.interface, row.port.report.link, row.port.report.stats);
    // Devices count whole ports: the numbers stand with the untagged interface only, so that sums are right.
    let whole = i.vlan == carrack_pipeline::snapshot::Vlan::None;
    let count = |n: u64| if whole { n } else { 0 };
    Interface {
        name: i.name.clone(),
        device,
        vlan: vlan_text(i.vlan),
        side: side_text(i.side).into(),
        vrf: row.vrf.clone(),
        up: i.up,
        link: link.up,
        link_resumed: row.port.resumed,
        mac: i.mac.to_string(),
        mtu: i.mtu,
        addresses: addresses(i),
        address_states: row.own6.iter().map(address_state).collect(),
        rx_packets: count(stats.rx_packets),
        rx_bytes: count(stats.rx_bytes),
        rx_missed: count(stats.rx_missed),
        rx_errors: count(stats.rx_errors),
        rx_nombuf: count(stats.rx_nombuf),
        tx_packets: count(stats.tx_packets),
        tx_bytes: count(stats.tx_bytes),
        tx_errors: count(stats.tx_errors),
    }
}

/// Adds what devices lost before a worker could see it. The two stay apart: a device may count a packet that found no
/// buffer as missed later.
pub(super) fn add_lost_by_devices(answer: &mut Counters, ports: &[PortRow]) {
    for port in ports {
        answer.nic_missed += port.report.stats.rx_missed;
        answer.nic_nombuf += port.report.stats.rx_nombuf;
    }
}

pub(super) fn neighbour(names: &Names, row: &NeighbourRow) -> Neighbour {
    Neighbour {
        interface: names.interface(row.interface),
        address: row.ip,
        mac: row.mac.map(|mac| mac.to_string()).unwrap_or_default(),
        state: row.state.name().into(),
        age_s: row.age_s.into(),
    }
}

fn address_state(own: &OwnRow) -> AddressState {
    let held_by = match own.state {
        OwnUse::Duplicate(mac) => Some(mac.to_string()),
        OwnUse::Tentative | OwnUse::Preferred => None,
    };
    AddressState { address: own.ip, state: own.state.name().into(), held_by }
}

/// What is wrong with the interface's own addresses, and what to do.
pub(super) fn duplicates(row: &InterfaceRow) -> impl Iterator<Item = String> {
    row.own6.iter().filter_map(|own| match own.state {
        OwnUse::Duplicate(mac) => Some(format!(
            "interface {} does not use its address {}, which {mac} has already; give one of the two another address, \
             then `carrack reload` tries again",
            row.interface.name, own.ip
        )),
        OwnUse::Tentative | OwnUse::Preferred => None,
    })
}

fn addresses(i: &carrack_pipeline::snapshot::Interface) -> Vec<String> {
    let own = i.addresses.iter().map(|(ip, prefix)| format!("{}/{}", Ipv4Addr::from(*ip), prefix.len()));
    let own6 = i.ipv6.iter().flat_map(|v6| {
        let link_local = (v6.link_local, Prefix6::of(v6.link_local, 64));
        let all = v6.addresses.iter().copied().chain([link_local]);
        all.map(|(ip, prefix)| format!("{}/{}", Ipv6Addr::from(ip), prefix.len()))
    });
    own.chain(own6).collect()
}

/// A route of either version; `A` is its gateway's address.
pub(super) fn route<P: std::fmt::Display, A: Copy + Into<G>, G: Into<IpAddr>>(
    names: &Names,
    row: &carrack_pipeline::snapshot::Route<P, A>,
) -> Route {
    let mut translator = None;
    let (kind, gateway, interface) = match row.next_hop {
        NextHop::Connected(id) => ("connected", None, Some(id)),
        NextHop::Gateway(id, ip) => ("static", Some(ip.into().into()), Some(id)),
        NextHop::Local(id) => ("local", None, Some(id)),
        NextHop::Translate(number) => {
            translator = Some(Names::get(&names.translators, usize::from(number)));
            ("translate", None, None)
        }
        NextHop::Blackhole => ("blackhole", None, None),
        NextHop::Prohibit => ("prohibit", None, None),
    };
    Route {
        vrf: names.vrf(row.vrf),
        prefix: row.prefix.to_string(),
        kind: kind.into(),
        gateway,
        interface: interface.map(|id| names.interface(id)),
        translator,
    }
}

/// What leads from the inside to NAT64s, which no route says: packets to their prefixes are theirs before routes are asked.
pub(super) fn routes_to_nat64(snapshot: &Snapshot) -> Vec<Route> {
    let names = Names::of(snapshot);
    let instances = snapshot.nat.instances.iter();
    let prefixes =
        instances.flat_map(|i| i.nat64.iter().flat_map(|nat64| &nat64.prefixes).map(move |p| (i, p)));
    prefixes
        .map(|(instance, entry)| Route {
            vrf: names.vrf(instance.inside_vrf),
            prefix: entry.prefix.prefix().to_string(),
            kind: "translate".into(),
            gateway: None,
            interface: None,
            translator: Some(instance.name.clone()),
        })
        .collect()
}

pub(super) fn session(names: &Names, worker: u8, row: &SessionRow) -> Session {
    Session {
        instance: names.instance(row.instance),
        protocol: row.proto.name().into(),
        ip_protocol: row.ip_proto,
        tcp_state: row.tcp.name().into(),
        direction: if row.inbound { "in" } else { "out" }.into(),
        inside: row.inside.ip,
        inside_port: row.inside.port,
        outside: row.outside.ip.into(),
        outside_port: row.outside.port,
        remote: row.remote.ip.into(),
        remote6: row.remote6,
        remote_port: row.remote.port,
        idle_s: row.idle_s,
        expires_s: row.expires_s,
        packets_out: row.packets_out,
        packets_in: row.packets_in,
        worker,
    }
}

pub(super) fn mapping(names: &Names, worker: u8, row: &MappingRow) -> Mapping {
    Mapping {
        instance: names.instance(row.instance),
        protocol: row.proto.name().into(),
        inside: row.inside.ip,
        inside_port: row.inside.port,
        outside: row.outside.ip.into(),
        outside_port: row.outside.port,
        sessions: row.sessions,
        nat64_prefix: row.via.map(|prefix| prefix.to_string()),
        kind: match (row.is_static, row.is_asked_for) {
            (true, _) => "static",
            (false, true) => "asked",
            (false, false) => "dynamic",
        }
        .into(),
        worker,
    }
}

pub(super) fn port_mapping(names: &Names, row: &carrack_pcp::MappingRow) -> PortMapping {
    let filter = |filter: &carrack_nat::PortFilter| {
        let prefix = format!("{}/{}", Ipv4Addr::from(filter.ip), filter.len);
        if filter.port == 0 { prefix } else { format!("{prefix}:{}", filter.port) }
    };
    PortMapping {
        instance: names.instance(row.instance),
        protocol: row.key.proto().name().into(),
        kind: if row.key.peer.is_some() { "peer" } else { "map" }.into(),
        inside: row.key.inside,
        inside_port: row.key.port,
        outside: row.outside.ip.into(),
        outside_port: row.outside.port,
        ports: row.ports,
        remote: row.key.peer.map(|(ip, _)| ip),
        remote_port: row.key.peer.map(|(_, port)| port),
        filters: row.filters.as_slice().iter().map(filter).collect(),
        asked_by: match row.origin {
            carrack_pcp::Origin::NatPmp => "nat-pmp",
            carrack_pcp::Origin::Pcp(_) => "pcp",
        }
        .into(),
        expires_s: row.expires_s,
    }
}

pub(super) fn subscriber(names: &Names, worker: u8, row: &SubscriberRow) -> Subscriber {
    let [tcp, udp, icmp, other] = row.mappings;
    let blocks = row.blocks.iter().take(usize::from(row.block_count));
    Subscriber {
        instance: names.instance(row.instance),
        inside: row.inside.first(),
        inside_prefix_length: row.inside.len(),
        outside: row.outside.map(Ipv4Addr::from),
        sessions: row.sessions,
        mappings_tcp: tcp,
        mappings_udp: udp,
        mappings_icmp: icmp,
        mappings_other: other,
        blocks: blocks.map(|b| Block { address: b.ip.into(), first: b.first, last: b.last }).collect(),
        worker,
    }
}

pub(super) fn pool(names: &Names, row: &PoolRow) -> PoolAddress {
    let [tcp, udp, icmp] = row.ports_used;
    PoolAddress {
        instance: names.instance(row.instance),
        pool: names.pool(row.pool),
        address: row.ip.into(),
        subscribers: row.subscribers,
        ports_total: row.ports_total,
        ports_used_tcp: tcp,
        ports_used_udp: udp,
        ports_used_icmp: icmp,
        blocks_total: row.blocks_total,
        blocks_used: row.blocks_used,
    }
}

/// One row a socket and table, in order of sockets and else as they come; the workers of a socket are added up.
pub(super) fn memory<'a>(all: impl Iterator<Item = (u32, &'a MemoryRow)>) -> Vec<Memory> {
    let mut rows: Vec<Memory> = Vec::new();
    for (socket, row) in all {
        let at = rows.iter().position(|m| m.socket == socket && m.table == row.table);
        match at.and_then(|at| rows.get_mut(at)) {
            Some(sum) => {
                sum.total += row.total;
                sum.used += row.used;
                sum.bytes += row.bytes;
                if !sum.pages.split('+').any(|pages| pages == row.pages) {
                    sum.pages = format!("{}+{}", sum.pages, row.pages);
                }
            }
            None => rows.push(Memory {
                socket,
                table: row.table.into(),
                total: row.total,
                used: row.used,
                free: 0,
                load_percent: 0.0,
                bytes: row.bytes,
                pages: row.pages.into(),
            }),
        }
    }
    for row in &mut rows {
        row.free = row.total.saturating_sub(row.used);
        row.load_percent = row.used as f64 * 100.0 / row.total.max(1) as f64;
    }
    rows.sort_by_key(|row| row.socket);
    rows
}

pub(super) fn event(names: &Names, logged: &LoggedEvent<Happened>) -> Event {
    let (kind, instance, severity, text) = match &logged.event {
        Happened::Nat(event) => nat_event(names, event),
        Happened::Address(event) => address_event(names, event),
    };
    Event {
        sequence: logged.sequence,
        unix_us: logged.unix_ns / 1_000,
        kind: kind.into(),
        instance: instance.map(|instance| names.instance(instance)),
        severity: severity.into(),
        text,
    }
}

/// Kind, instance, severity and text.
type Told = (&'static str, Option<InstanceId>, &'static str, String);

fn address_event(names: &Names, event: &AddressEvent) -> Told {
    let AddressEvent { interface, ip, mac, is_unused } = event;
    let interface = names.interface(*interface);
    if *is_unused {
        let text = format!(
            "{mac} on interface {interface} has {ip} already, so it is not used here; give one of the two another \
             address, then `carrack reload` tries again"
        );
        return ("address-duplicate", None, "error", text);
    }
    let text = format!(
        "{mac} on interface {interface} uses {ip}, which is ours; give one of the two another address"
    );
    ("address-conflict", None, "warning", text)
}

fn nat_event(names: &Names, event: &NatEvent) -> Told {
    let ip = |ip: u32| Ipv4Addr::from(ip);
    let who = |instance: &InstanceId, inside: &IpAddr| names.subscriber(*instance, *inside);
    let block = |b: &BlockRow| format!("{}:{}-{}", ip(b.ip), b.first, b.last);
    let (kind, instance, severity, text) = match event {
        NatEvent::BlockAllocated { instance, inside, block: b } => {
            ("block-allocated", instance, "info", format!("{} got {}", who(instance, inside), block(b)))
        }
        NatEvent::BlockReleased { instance, inside, block: b } => {
            ("block-released", instance, "info", format!("{} gave back {}", who(instance, inside), block(b)))
        }
        NatEvent::AddressBound { instance, inside, outside } => {
            ("address-bound", instance, "info", format!("{} is now {}", who(instance, inside), ip(*outside)))
        }
        NatEvent::AddressReleased { instance, inside, outside } => (
            "address-released",
            instance,
            "info",
            format!("{} is no longer {}", who(instance, inside), ip(*outside)),
        ),
        NatEvent::MappingBound { instance, proto, inside, outside } => {
            let text = format!("{inside} is now {outside} for {}, as its host asked", proto.name());
            ("mapping-bound", instance, "info", text)
        }
        NatEvent::MappingReleased { instance, proto, inside, outside } => {
            let text = format!("{inside} is no longer {outside} for {} by its host's wish", proto.name());
            ("mapping-released", instance, "info", text)
        }
        NatEvent::Refused { instance, inside, reason, count } => {
            let text =
                format!("{count} refused for {}, the last for {}", reason.name(), who(instance, inside));
            ("refused", instance, reason.info().severity.name(), text)
        }
        NatEvent::Translation { change, instance, protocol, inside, outside, remote, .. } => {
            let (kind, what) = match change {
                Change::MappingCreated => ("mapping-created", "is now"),
                Change::MappingDeleted => ("mapping-deleted", "is no longer"),
                Change::SessionCreated => ("session-created", "opened a session as"),
                Change::SessionDeleted => ("session-deleted", "ended a session as"),
            };
            let to = remote.map_or_else(String::new, |remote| format!(" to {remote}"));
            (kind, instance, "info", format!("{inside}, protocol {protocol}, {what} {outside}{to}"))
        }
        NatEvent::SubscriberThreshold { mark, instance, inside, mappings } => {
            let whose = if *mark == Mark::Paired { " of one outside address" } else { "" };
            let who = who(instance, inside);
            let text = format!("{who} has reached the threshold of mappings{whose}: {mappings}");
            ("subscriber-threshold", instance, "warning", text)
        }
        NatEvent::PortsThreshold { instance, pool, ports } => {
            let text = format!(
                "pool {} has reached its threshold of ports in use: {ports} of this worker",
                names.pool(*pool)
            );
            ("ports-threshold", instance, "warning", text)
        }
        NatEvent::PoolThreshold { instance, pool, percent, above } => {
            let what = if *above { "rose above" } else { "fell back under" };
            let text = format!("pool {} {what} its threshold: {percent} % in use", names.pool(*pool));
            ("pool-threshold", instance, if *above { "warning" } else { "info" }, text)
        }
    };
    (kind, Some(*instance), severity, text)
}

pub(super) fn captured(names: &Names, unix_ns: u64, slot: &CaptureSlot) -> CapturedPacket {
    let (point, reason) = match slot.point {
        CapturePoint::Rx => ("rx", None),
        CapturePoint::Tx => ("tx", None),
        CapturePoint::Drop(reason) => ("drop", Some(reason)),
    };
    CapturedPacket {
        unix_ns,
        interface: names.interface(slot.interface),
        point,
        reason,
        original_len: slot.len.into(),
        lost: slot.lost.into(),
        bytes: slot.bytes.get(..usize::from(slot.captured)).unwrap_or(&slot.bytes).to_vec(),
    }
}

pub(super) fn traced(names: &Names, worker: u8, unix_ns: u64, step: &TraceStep) -> TraceRecord {
    let (outcome, detail) = match step.outcome {
        TraceOutcome::Next => ("next", String::new()),
        TraceOutcome::SessionHit(line) => ("session-hit", format!("line {line}")),
        TraceOutcome::SessionCreated(line) => ("session-created", format!("line {line}")),
        TraceOutcome::Exempt => ("exempt", String::new()),
        TraceOutcome::Hairpin => ("hairpin", String::new()),
        TraceOutcome::Held => ("held", String::new()),
        TraceOutcome::Sent(id) => ("sent", names.interface(id)),
        TraceOutcome::Punted => ("punted", String::new()),
        TraceOutcome::Consumed => ("consumed", String::new()),
        TraceOutcome::HandedOver(other) => ("handed-over", format!("worker {other}")),
        TraceOutcome::Dropped(reason) => ("dropped", reason.name().into()),
    };
    let bytes = step.bytes.get(..usize::from(step.len)).unwrap_or(&step.bytes);
    let mut hex = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(hex, "{byte:02x}");
    }
    TraceRecord {
        worker,
        packet: step.packet,
        unix_ns,
        stage: step.stage.into(),
        interface: names.interface(step.interface),
        outcome: outcome.into(),
        detail,
        summary: super::packet_line::packet(bytes),
        len: step.len,
        bytes: hex,
    }
}

/// Workers trace each so many packets; together they may show only that many. A packet that is admitted is shown to its
/// end, even when others come between.
pub(super) struct Traced {
    packets_max: u64,
    open: Vec<(u8, u32)>,
    admitted: u64,
}

impl Traced {
    pub(super) fn new(packets_max: u64) -> Self {
        Self { packets_max, open: Vec::new(), admitted: 0 }
    }

    /// Is this step of a packet that is shown?
    pub(super) fn admits(&mut self, worker: u8, step: &TraceStep) -> bool {
        let packet = (worker, step.packet);
        if !self.open.contains(&packet) {
            if self.admitted >= self.packets_max {
                return false;
            }
            self.admitted += 1;
            self.open.push(packet);
        }
        if ends(step.outcome) {
            self.open.retain(|open| *open != packet);
        }
        true
    }

    /// Have all packets been shown to their end?
    pub(super) fn complete(&self) -> bool {
        self.admitted >= self.packets_max && self.open.is_empty()
    }
}

fn ends(outcome: TraceOutcome) -> bool {
    match outcome {
        TraceOutcome::Next
        | TraceOutcome::SessionHit(_)
        | TraceOutcome::SessionCreated(_)
        | TraceOutcome::Exempt
        | TraceOutcome::Hairpin => false,
        TraceOutcome::Held
        | TraceOutcome::Sent(_)
        | TraceOutcome::Punted
        | TraceOutcome::Consumed
        | TraceOutcome::HandedOver(_)
        | TraceOutcome::Dropped(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use carrack_base::PortId;
    use carrack_io::{LinkInfo, MacAddress, PortStats};
    use carrack_pipeline::snapshot::{self, IcmpErrors, Side, Vlan};
    use carrack_runtime::PortReport;
    use carrack_wire::MacAddr;

    use super::*;

    const OWN: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1);

    fn names() -> Names {
        Names {
            interfaces: vec!["lan".into()],
            translators: vec!["dc".into()],
            vrfs: vec!["default".into()],
            instances: vec!["cgn".into(), "wide".into()],
            subscriber_lens6: vec![56, 128],
            pools: vec![],
        }
    }

    #[test]
    fn a_subscriber_of_an_event_is_told_as_the_prefix_that_it_is() {
        let told = |instance, inside: &str| {
            let inside = inside.parse().unwrap();
            let event =
                NatEvent::AddressBound { instance: InstanceId(instance), inside, outside: 0x0102_0304 };
            nat_event(&names(), &event).3
        };
        assert_eq!(told(0, "2001:db8:100::"), "2001:db8:100::/56 is now 1.2.3.4");
        assert_eq!(told(1, "2001:db8:100::"), "2001:db8:100:: is now 1.2.3.4");
        assert_eq!(told(0, "10.0.0.0"), "10.0.0.0 is now 1.2.3.4");
        // A refused mapping may name its host.
        assert_eq!(told(0, "2001:db8:100::5"), "2001:db8:100::5 is now 1.2.3.4");
    }

    #[test]
    fn a_duplicate_address_is_an_event_of_no_instance() {
        let event = |is_unused| {
            let what =
                AddressEvent { interface: IfIndex(0), ip: OWN.into(), mac: MacAddr([2; 6]), is_unused };
            let (worker, event) = (carrack_base::WorkerId(0), Happened::Address(what));
            event_of(&LoggedEvent { sequence: 7, at_ns: 0, unix_ns: 5_000, worker, event })
        };
        let told = event(true);
        assert_eq!((told.kind.as_str(), told.instance, told.sequence), ("address-duplicate", None, 7));
        assert!(told.text.contains("lan") && told.text.contains("2001:db8:1::1"), "{}", told.text);
        assert_eq!(event(false).kind, "address-conflict");
    }

    fn event_of(logged: &LoggedEvent<Happened>) -> Event {
        event(&names(), logged)
    }

    #[test]
    fn a_route_to_a_translator_has_its_name() {
        let next_hop = NextHop::<u128>::Translate(0);
        let prefix = Prefix6::of(u128::from(OWN), 96);
        let row = carrack_pipeline::snapshot::Route { vrf: VrfId(0), prefix, next_hop };
        let told = route::<_, _, Ipv6Addr>(&names(), &row);
        assert_eq!((told.kind.as_str(), told.translator.as_deref()), ("translate", Some("dc")));
    }

    #[test]
    fn whatever_a_device_lost_is_shown_once() {
        let stats =
            PortStats { rx_missed: 1, rx_errors: 2, rx_nombuf: 3, tx_errors: 4, ..PortStats::default() };
        let link = LinkInfo { mac: MacAddress([2; 6]), mtu: 1_500, up: true, speed_mbps: None };
        let report = PortReport { link, stats };
        let port = PortRow { id: PortId(0), name: "inside".into(), report, resumed: 0 };
        let row = |vlan| InterfaceRow {
            interface: snapshot::Interface {
                id: IfIndex(0),
                name: "inside".into(),
                port: PortId(0),
                vlan,
                mac: MacAddr([2; 6]),
                vrf: VrfId(0),
                side: Side::Inside,
                up: true,
                mtu: 1_500,
                addresses: Vec::new(),
                ipv6: None,
                urpf: false,
                icmp_errors: IcmpErrors::All,
            },
            vrf: "default".into(),
            port: port.clone(),
            own6: vec![
                OwnRow { interface: IfIndex(0), ip: OWN, state: OwnUse::Duplicate(MacAddr([2; 6])) },
                OwnRow { interface: IfIndex(0), ip: Ipv6Addr::LOCALHOST, state: OwnUse::Preferred },
            ],
        };
        let told = interface(&row(Vlan::None), String::new()).address_states;
        let mac = "02:02:02:02:02:02";
        assert_eq!(
            told.iter().map(|t| (t.address, t.state.as_str(), t.held_by.as_deref())).collect::<Vec<_>>(),
            [(OWN, "duplicate", Some(mac)), (Ipv6Addr::LOCALHOST, "preferred", None)]
        );
        let problems: Vec<_> = duplicates(&row(Vlan::None)).collect();
        assert!(
            problems.len() == 1 && problems[0].contains(mac) && problems[0].contains("reload"),
            "{problems:?}"
        );
        let lost = |i: Interface| [i.rx_missed, i.rx_errors, i.rx_nombuf, i.tx_errors];
        assert_eq!(lost(interface(&row(Vlan::None), String::new())), [1, 2, 3, 4]);
        assert_eq!(lost(interface(&row(Vlan::Single(100)), String::new())), [0; 4]);
        let mut answer = Counters::default();
        add_lost_by_devices(&mut answer, &[port.clone(), port.clone()]);
        assert_eq!((answer.nic_missed, answer.nic_nombuf), (2, 6));
    }

    #[test]
    fn memory_of_workers_on_one_socket_is_added_up_and_sockets_stay_apart() {
        let row = |table, used, pages| MemoryRow { table, total: 100, used, bytes: 1_000, pages, node: None };
        let given = [
            (1, row("sessions", 10, "2M")),
            (0, row("sessions", 50, "2M")),
            (0, row("mappings", 1, "2M")),
            (0, row("sessions", 40, "4K")),
        ];
        let rows = memory(given.iter().map(|(socket, row)| (*socket, row)));
        let told =
            |m: &Memory| (m.socket, m.table.clone(), m.total, m.used, m.free, m.bytes, m.pages.clone());
        assert_eq!(
            rows.iter().map(told).collect::<Vec<_>>(),
            [
                (0, "sessions".into(), 200, 90, 110, 2_000, "2M+4K".into()),
                (0, "mappings".into(), 100, 1, 99, 1_000, "2M".into()),
                (1, "sessions".into(), 100, 10, 90, 1_000, "2M".into()),
            ]
        );
        assert!((rows[0].load_percent - 45.0).abs() < 1e-9);
    }
}
