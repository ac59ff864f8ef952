//! The desired state as typed values, each with its place in the file where a later check may want to point at it.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use carrack_alg::Protocol;
use carrack_base::{Prefix, Prefix4, Prefix6, Proto, Range4};
use carrack_host::ArpTimers;
use carrack_io::DeviceSpec;
use carrack_nat::policy::{ExhaustedIcmp, Filtering, Limits, Logged, Mapping, Pooling, Timeouts, Unreadable};
use carrack_pcp::Allowed;
use carrack_pipeline::snapshot::{EamHosts, IcmpErrors, Policers, Side, Vlan};
use carrack_wire::ipv6::is_link_local;
use carrack_xlat::Rules;
use carrack_xlat::eam::Entry;

use crate::keys::KeyInfo;
use crate::source::{At, Diagnostic, Severity, Source};
use crate::value::{Endpoint, HostEndpoint, InterfaceAddress, InterfaceAddress6, PortRange};

/// Name of the routing instance that always exists.
pub const DEFAULT_VRF: &str = "default";

/// A validated config.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// `[system]`.
    pub system: System,
    /// `[workers]`.
    pub workers: Workers,
    /// `[memory]`, and where it is written.
    pub memory: At<Memory>,
    /// `[api]`.
    pub api: Api,
    /// `[policers]`.
    pub policers: Policers,
    /// `[arp]`.
    pub arp: ArpTimers,
    /// `[fragments] timeout_ms`.
    pub fragment_timeout_ms: u32,
    /// Declared routing instances, without `default`.
    pub vrfs: Vec<At<String>>,
    /// `[[interface]]`, in file order.
    pub interfaces: Vec<InterfaceConfig>,
    /// `[[route]]`, in file order.
    pub routes: Vec<RouteConfig>,
    /// `[port_control]`.
    pub port_control: PortControl,
    /// `[[nat]]`, in file order.
    pub nat: Vec<NatConfig>,
    /// `[[siit]]`, in file order.
    pub siit: Vec<SiitConfig>,
    /// `[logging]`.
    pub logging: Logging,
    pub(crate) source: Source,
    pub(crate) facts: Facts,
}

/// Between the parts of a path in [`Facts`]; unlike a dot, no name can hold it.
pub(crate) const SEPARATOR: char = '\u{1f}';

/// Every value of a config by its path, for `diff`.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Facts {
    /// Elements of list tables and the table they belong to: `nat.cgn1`.
    pub(crate) items: BTreeMap<String, &'static str>,
    /// Values, defaults included, and their key: `nat.cgn1.timeouts.udp`.
    pub(crate) values: BTreeMap<String, (&'static KeyInfo, String)>,
}

/// The daemon as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct System {
    /// Name of the router.
    pub name: String,
    /// Directory for socket, lock and clean-up state.
    pub run_dir: PathBuf,
}

/// What a worker without packets does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Idle {
    /// Sleeps for moments.
    #[default]
    Sleep,
    /// Polls on.
    Poll,
}

/// The forwarding threads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workers {
    /// How many, 1 to [`carrack_base::WORKERS_MAX`].
    pub count: u8,
    /// The CPU of each; empty for no pinning.
    pub cores: Vec<At<u16>>,
    /// The CPUs of everything else; empty for no pinning.
    pub control_cores: Vec<At<u16>>,
    /// What to do without packets.
    pub idle: Idle,
    /// Most packets taken at once, 1 to [`carrack_base::BURST_PACKETS_MAX`].
    pub burst: u16,
}

/// Pages for tables and buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HugePages {
    /// Reserved huge pages when there are any.
    #[default]
    Auto,
    /// 1 GiB pages or no start.
    OneG,
    /// 2 MiB pages or no start.
    TwoM,
    /// Ordinary pages.
    Off,
}

/// Sizes, for the whole daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Pages.
    pub huge_pages: HugePages,
    /// DPDK's memory, MiB.
    pub dpdk_mb: u32,
    /// Packet buffers.
    pub frames: u32,
    /// Bytes of a packet buffer, without headroom.
    pub frame_bytes: u16,
    /// NAT sessions.
    pub sessions: u32,
    /// NAT mappings.
    pub mappings: u32,
    /// IPv6 hosts with mappings; `None` is as many as subscribers.
    pub hosts: Option<u32>,
    /// Subscribers.
    pub subscribers: u32,
    /// Fragmented packets in flight.
    pub fragments: u32,
    /// Held fragments.
    pub held_fragments: u32,
    /// Held unsolicited SYNs.
    pub held_syns: u32,
    /// Control connections that gateways read.
    pub gateway_connections: u32,
    /// Neighbours.
    pub neighbours: u32,
    /// Packets that wait for ARP, each worker.
    pub held_for_neighbour: u32,
}

/// Where the management API listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Api {
    /// Local socket.
    pub socket: PathBuf,
    /// TCP, with token and TLS.
    pub tcp: Option<ApiTcp>,
}

/// The management API over TCP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiTcp {
    /// Where to listen.
    pub listen: SocketAddr,
    /// File with the bearer token.
    pub token_file: PathBuf,
    /// Certificate chain, PEM.
    pub tls_cert: PathBuf,
    /// Private key, PEM.
    pub tls_key: PathBuf,
}

/// What an interface is on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attach {
    /// It is a port.
    Device(At<DeviceSpec>),
    /// It is a VLAN of a port.
    Parent {
        /// Name of the port's interface.
        parent: At<String>,
        /// Its tags, never [`Vlan::None`].
        vlan: At<Vlan>,
    },
}

/// One interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterfaceConfig {
    /// Its name.
    pub name: At<String>,
    /// Port or VLAN.
    pub attach: Attach,
    /// Side of the NAT.
    pub side: Side,
    /// Own IPv4 addresses.
    pub addresses: Vec<At<InterfaceAddress>>,
    /// Own IPv6 addresses; with one of these the interface takes IPv6.
    pub addresses6: Vec<At<InterfaceAddress6>>,
    /// `[interface.router_advertisement]`, when enabled.
    pub advertising: Option<AdvertisingConfig>,
    /// Largest IP packet; `None` takes the port's or parent's.
    pub mtu: Option<At<u16>>,
    /// Routing instance.
    pub vrf: At<String>,
    /// Administratively up.
    pub up: bool,
    /// Strict reverse-path check.
    pub urpf: bool,
    /// ICMP errors about packets that come in by it.
    pub icmp_errors: IcmpErrors,
}

/// Router advertisements as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdvertisingConfig {
    /// Most seconds between two.
    pub interval_s: u16,
    /// Seconds for which the router is a default router.
    pub lifetime_s: u16,
    /// Seconds for which subnets are valid.
    pub valid_s: u32,
    /// Seconds for which addresses in them are preferred.
    pub preferred_s: u32,
    /// Addresses come by DHCPv6.
    pub managed: bool,
    /// Other settings come by DHCPv6.
    pub other: bool,
}

/// Where a static route leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouteTarget {
    /// Through a gateway; the interface when it was given.
    Gateway {
        /// Its address.
        via: At<IpAddr>,
        /// Name of the outgoing interface.
        interface: Option<At<String>>,
    },
    /// Destinations are neighbours on the interface.
    Interface(At<String>),
    /// Discard silently.
    Blackhole,
    /// Discard with ICMP 3/13.
    Prohibit,
}

/// One static route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteConfig {
    /// Destinations.
    pub prefix: At<Prefix>,
    /// Where to.
    pub target: RouteTarget,
    /// Routing instance.
    pub vrf: At<String>,
}

/// How ports are given out, as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PortsConfig {
    /// Whole blocks.
    Blocks {
        /// Ports in a block.
        size: At<u16>,
        /// Most blocks of a subscriber.
        per_subscriber: u8,
        /// Seconds an empty block stays.
        idle_release_s: u32,
    },
    /// Any free port.
    Arbitrary,
    /// RFC 7422.
    Deterministic {
        /// Ports of each subscriber; `None` takes the most that fit.
        ports_per_subscriber: Option<At<u16>>,
        /// Ports for those who need more.
        overflow: Option<OverflowConfig>,
    },
}

/// The dynamic ports of a deterministic instance, as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverflowConfig {
    /// The last so many ports of each outside address.
    pub ports: At<u16>,
    /// Ports in a block.
    pub size: At<u16>,
    /// Most blocks of a subscriber.
    pub per_subscriber: u8,
    /// Seconds an empty block stays.
    pub idle_release_s: u32,
}

/// A pool as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolConfig {
    /// Its name.
    pub name: At<String>,
    /// Its addresses.
    pub addresses: Vec<At<Range4>>,
    /// Its ports.
    pub ports: At<PortRange>,
}

/// A one-to-one mapping as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OneToOneConfig {
    /// Inside addresses.
    pub inside: At<Range4>,
    /// Outside addresses.
    pub outside: At<Range4>,
}

/// A port forwarding as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForwardConfig {
    /// TCP, UDP or ICMP.
    pub proto: Proto,
    /// Outside address and first port.
    pub outside: At<Endpoint>,
    /// Inside address and first port.
    pub inside: At<HostEndpoint>,
    /// Number of ports.
    pub count: At<u16>,
}

/// IPv6 subscribers of an instance as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nat64Config {
    /// Prefixes that stand for IPv4.
    pub prefixes: Vec<At<Prefix6>>,
    /// IPv6 sources served.
    pub subscribers: Vec<At<Prefix6>>,
    /// Bits of a source that make a subscriber.
    pub subscriber_len: u8,
    /// How headers are translated.
    pub rules: Rules,
}

/// The server of port control.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortControl {
    /// Where mappings outlive a restart.
    pub state_file: Option<PathBuf>,
    /// Most mappings of all subscribers together.
    pub mappings_max: u32,
}

/// What the subscribers of an instance may ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortControlConfig {
    /// NAT-PMP beside PCP.
    pub nat_pmp: bool,
    /// Who may ask for others.
    pub third_party_from: Vec<Prefix>,
    /// For whoever has no rule.
    pub allowed: Allowed,
    /// Rules, the longest prefix first.
    pub rules: Vec<(Prefix, Allowed)>,
}

/// One NAT instance as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NatConfig {
    /// Its name.
    pub name: At<String>,
    /// Routing instance of the subscribers.
    pub inside_vrf: At<String>,
    /// Routing instance of the pools.
    pub outside_vrf: At<String>,
    /// Inside addresses served.
    pub subscribers: Vec<At<Prefix4>>,
    /// IPv6 subscribers, when there are any.
    pub nat64: Option<Nat64Config>,
    /// What its subscribers may ask for, if anything.
    pub port_control: Option<PortControlConfig>,
    /// Destinations left alone.
    pub exempt: Vec<At<Prefix4>>,
    /// Paired or arbitrary.
    pub pooling: Pooling,
    /// Mapping behaviour: TCP, UDP, ICMP.
    pub mapping: [Mapping; 3],
    /// Filtering behaviour: TCP, UDP, ICMP.
    pub filtering: [Filtering; 3],
    /// Keep the parity of UDP ports.
    pub parity: bool,
    /// Keep UDP port pairs together.
    pub contiguity: bool,
    /// Subscribers may reach each other.
    pub hairpinning: bool,
    /// Packets from outside refresh: TCP, UDP, ICMP.
    pub inbound_refresh: [bool; 3],
    /// TCP without SYN may open a session.
    pub tcp_loose: bool,
    /// Application gateways.
    pub gateways: Vec<At<Protocol>>,
    /// What becomes of connections that they cannot read.
    pub unreadable: [Unreadable; Protocol::ALL.len()],
    /// Seconds a released port rests.
    pub port_hold_s: At<u32>,
    /// Most ports of an outside address and protocol held at once; 0 is unlimited.
    pub port_hold_ports_max: u32,
    /// What a sender is told.
    pub exhausted_icmp: ExhaustedIcmp,
    /// Threshold of pool use, percent.
    pub pool_threshold_percent: u8,
    /// Threshold of ports in use.
    pub pool_ports_threshold: u32,
    /// What the log is told beside blocks and bindings.
    pub log: Logged,
    /// Port assignment.
    pub ports: PortsConfig,
    /// Pools.
    pub pools: Vec<PoolConfig>,
    /// Per-subscriber limits.
    pub limits: Limits,
    /// Idle times.
    pub timeouts: Timeouts,
    /// One-to-one mappings.
    pub one_to_one: Vec<OneToOneConfig>,
    /// Port forwardings.
    pub forwards: Vec<ForwardConfig>,
}

/// Where events go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Logging {
    /// Observation domain.
    pub domain: u32,
    /// Private enterprise number in syslog's structured data.
    pub enterprise: u32,
    /// Processors of what is logged; empty leaves it where the control plane is.
    pub cores: Vec<At<u16>>,
    /// Directory for events that wait for a collector.
    pub spool_dir: PathBuf,
    /// Events on local disk.
    pub store: Option<StoreConfig>,
    /// Collectors.
    pub exporters: Vec<ExporterConfig>,
}

/// Events on local disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreConfig {
    /// Directory.
    pub dir: PathBuf,
    /// How long they are kept, seconds.
    pub keep_s: u32,
    /// Most disk space, MB.
    pub max_mb: u32,
}

/// What a collector understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ExportProtocol {
    /// RFC 7011.
    #[default]
    Ipfix,
    /// RFC 3954.
    NetFlow9,
    /// RFC 5424.
    Syslog,
    /// RFC 2866.
    Radius,
    /// Bulk inserts over HTTP.
    ClickHouse,
    /// Messages to the brokers of a topic.
    Kafka,
}

/// How messages get there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ExportTransport {
    /// Datagrams.
    #[default]
    Udp,
    /// A stream.
    Tcp,
    /// A stream with TLS.
    Tls,
}

/// A group of kinds of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventClass {
    /// Port blocks.
    Blocks,
    /// Address bindings.
    Bindings,
    /// Mappings.
    Mappings,
    /// Sessions.
    Sessions,
    /// Quotas, thresholds, exhaustion.
    Limits,
    /// The daemon's own life.
    System,
}

/// How a syslog message is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SyslogFormat {
    /// RFC 5424 §6.3.
    #[default]
    Structured,
    /// One line of fields.
    Compact,
}

/// How messages of Kafka are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MessageCompression {
    /// As they are.
    #[default]
    None,
    /// RFC 1952.
    Gzip,
}

/// How a collector is trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExporterTls {
    /// Certificates, PEM.
    pub ca: PathBuf,
    /// Name in the collector's certificate; its address when `None`.
    pub name: Option<String>,
}

/// One collector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExporterConfig {
    /// Its name.
    pub name: At<String>,
    /// Protocol.
    pub protocol: ExportProtocol,
    /// Transport.
    pub transport: ExportTransport,
    /// Address.
    pub collector: SocketAddr,
    /// Which events.
    pub events: Vec<EventClass>,
    /// Names of instances; empty for all.
    pub instances: Vec<At<String>>,
    /// Largest IPFIX or NetFlow message.
    pub message_bytes: u16,
    /// Seconds between two transmissions of templates.
    pub template_refresh_s: u32,
    /// Events that may wait in memory.
    pub queue: u32,
    /// Disk space for those that wait longer, MB.
    pub spool_mb: u32,
    /// Syslog's format.
    pub format: SyslogFormat,
    /// Syslog's facility.
    pub facility: u8,
    /// With TLS.
    pub tls: Option<ExporterTls>,
    /// Where the secret shared with a RADIUS server is, or a database's or broker's password.
    pub secret_file: Option<PathBuf>,
    /// A database's table, with the name of its database before a dot.
    pub table: String,
    /// Name at a database or broker.
    pub user: String,
    /// Topic of Kafka.
    pub topic: String,
    /// How its messages are packed.
    pub compression: MessageCompression,
}

impl InterfaceConfig {
    /// Own addresses of both versions with their subnets.
    pub fn own(&self) -> impl Iterator<Item = (IpAddr, Prefix)> {
        let own = self.addresses.iter().map(|own| (Ipv4Addr::from(own.address).into(), own.subnet.into()));
        own.chain(self.addresses6.iter().map(|own| (Ipv6Addr::from(own.address).into(), own.subnet.into())))
    }

    /// Addresses at which the router itself is: its own, and those that all routers of a link have.
    pub fn local(&self) -> impl Iterator<Item = IpAddr> {
        let routed = self.addresses6.iter().filter(|own| !is_link_local(own.address));
        let anycast = routed.filter_map(|own| own.subnet.router_anycast());
        self.own().map(|(own, _)| own).chain(anycast.map(|anycast| Ipv6Addr::from(anycast).into()))
    }
}

impl Config {
    /// The name under which the text was read, usually the file's path.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.source.name
    }

    /// The text it was read from.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.source.text
    }

    /// The interfaces that are ports, in file order.
    pub fn devices(&self) -> impl Iterator<Item = (&InterfaceConfig, &DeviceSpec)> {
        self.interfaces.iter().filter_map(|interface| match &interface.attach {
            Attach::Device(device) => Some((interface, &device.value)),
            Attach::Parent { .. } => None,
        })
    }

    /// Every CPU that a thread is to run on, and the key that says so.
    pub fn cpus(&self) -> impl Iterator<Item = (&'static str, &At<u16>)> {
        let Workers { cores, control_cores, .. } = &self.workers;
        let lists = [
            ("workers.cores", cores),
            ("workers.control_cores", control_cores),
            ("logging.cores", &self.logging.cores),
        ];
        lists.into_iter().flat_map(|(key, cpus)| cpus.iter().map(move |cpu| (key, cpu)))
    }

    /// A message about a value that a machine, and not the file itself, makes good or bad.
    #[must_use]
    pub fn about<T>(&self, severity: Severity, at: &At<T>, message: String) -> Diagnostic {
        self.source.at(severity, at.span, message)
    }

    /// The interface of that name.
    #[must_use]
    pub fn interface(&self, name: &str) -> Option<&InterfaceConfig> {
        self.interfaces.iter().find(|interface| interface.name.value == name)
    }
}

/// A stateless translator.
#[derive(Debug, Clone, PartialEq)]
pub struct SiitConfig {
    /// Name.
    pub name: At<String>,
    /// Routing instance of both sides.
    pub vrf: At<String>,
    /// Prefixes that stand for IPv4; to IPv6 the first is used.
    pub prefixes: Vec<At<Prefix6>>,
    /// IPv4 addresses that IPv6 hosts have by the first prefix.
    pub ipv4: Vec<At<Prefix4>>,
    /// Explicit address mappings.
    pub eam: Vec<At<Entry>>,
    /// On which side the hosts of those are.
    pub eam_hosts: EamHosts,
    /// Sources of ICMP errors from routers without an IPv4 address.
    pub icmp_sources: Vec<At<Range4>>,
    /// Whether those errors tell their IPv6 source.
    pub reveals_source: bool,
    /// Whether hosts with explicit mappings reach each other.
    pub hairpinning: bool,
    /// How headers are translated.
    pub rules: Rules,
}
