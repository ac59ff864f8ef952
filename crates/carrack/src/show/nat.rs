//! Pools, subscribers, mappings, sessions, memory.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};

use carrack_api::types::{Deterministic, Mapping, Memory, PoolAddress, PortMapping, Session, Subscriber};
use carrack_base::Prefix;

use super::ShowRows;
use crate::human::{bytes, duration, number, percent};
use crate::table::{Streaming, Table, left, right};

/// Width of `255.255.255.255:65535`.
const ENDPOINT: usize = 21;

fn endpoint(ip: impl Into<IpAddr>, port: u16) -> String {
    SocketAddr::new(ip.into(), port).to_string()
}

/// A subscriber: an address, or a prefix with its length.
fn subscriber(inside: IpAddr, len: u8) -> String {
    let prefix = Prefix::of(inside, len);
    if prefix.is_host() { inside.to_string() } else { prefix.to_string() }
}

pub struct Sessions(Streaming);

impl Sessions {
    pub fn new() -> Self {
        Self(Streaming::new(&[
            left("INSTANCE").wide(10),
            left("PROTO").wide(5),
            left("INSIDE").wide(ENDPOINT),
            left("OUTSIDE").wide(ENDPOINT),
            left("REMOTE").wide(ENDPOINT),
            left("DIR").wide(3),
            left("TCP STATE").wide(12),
            right("IDLE").wide(6),
            right("EXPIRES").wide(7),
            right("PACKETS OUT").wide(11),
            right("PACKETS IN").wide(11),
            left("REMOTE AS IPV6").optional(),
        ]))
    }
}

impl ShowRows for Sessions {
    type Row = Session;

    fn row(&mut self, out: &mut dyn Write, s: Session) -> io::Result<()> {
        let protocol = if s.protocol == "other" { s.ip_protocol.to_string() } else { s.protocol };
        let cells = [
            s.instance,
            protocol,
            endpoint(s.inside, s.inside_port),
            endpoint(s.outside, s.outside_port),
            endpoint(s.remote, s.remote_port),
            s.direction,
            s.tcp_state,
            duration(s.idle_s.into()),
            duration(s.expires_s.into()),
            number(s.packets_out.into()),
            number(s.packets_in.into()),
            s.remote6.map_or_else(String::new, |ip| ip.to_string()),
        ];
        self.0.row(out, &cells)
    }

    fn finish(mut self, out: &mut dyn Write) -> io::Result<()> {
        self.0.finish(out, "no sessions match")
    }
}

pub struct Mappings(Streaming);

impl Mappings {
    pub fn new() -> Self {
        Self(Streaming::new(&[
            left("INSTANCE").wide(10),
            left("PROTO").wide(5),
            left("INSIDE").wide(ENDPOINT),
            left("OUTSIDE").wide(ENDPOINT),
            left("KIND").wide(7),
            right("SESSIONS").wide(9),
            left("NAT64 PREFIX").optional(),
        ]))
    }
}

impl ShowRows for Mappings {
    type Row = Mapping;

    fn row(&mut self, out: &mut dyn Write, m: Mapping) -> io::Result<()> {
        let cells = [
            m.instance,
            m.protocol,
            endpoint(m.inside, m.inside_port),
            endpoint(m.outside, m.outside_port),
            m.kind,
            number(m.sessions.into()),
            m.nat64_prefix.unwrap_or_default(),
        ];
        self.0.row(out, &cells)
    }

    fn finish(mut self, out: &mut dyn Write) -> io::Result<()> {
        self.0.finish(out, "no mappings match")
    }
}

pub struct Subscribers(Streaming);

impl Subscribers {
    pub fn new() -> Self {
        Self(Streaming::new(&[
            left("INSTANCE").wide(10),
            left("INSIDE").wide(15),
            left("OUTSIDE").wide(15),
            right("SESSIONS").wide(9),
            right("TCP PORTS").wide(9),
            right("UDP PORTS").wide(9),
            right("ICMP IDS").wide(8),
            right("OTHER MAPPINGS").wide(14),
            left("PORT BLOCKS"),
        ]))
    }
}

impl ShowRows for Subscribers {
    type Row = Subscriber;

    fn row(&mut self, out: &mut dyn Write, s: Subscriber) -> io::Result<()> {
        let blocks: Vec<String> =
            s.blocks.iter().map(|b| format!("{}:{}-{}", b.address, b.first, b.last)).collect();
        let cells = [
            s.instance,
            subscriber(s.inside, s.inside_prefix_length),
            s.outside.map_or_else(|| "-".into(), |ip| ip.to_string()),
            number(s.sessions.into()),
            number(s.mappings_tcp.into()),
            number(s.mappings_udp.into()),
            number(s.mappings_icmp.into()),
            number(s.mappings_other.into()),
            if blocks.is_empty() { "-".into() } else { blocks.join(" ") },
        ];
        self.0.row(out, &cells)
    }

    fn finish(mut self, out: &mut dyn Write) -> io::Result<()> {
        self.0.finish(out, "no subscribers match")
    }
}

pub fn pools(out: &mut dyn Write, all: Vec<PoolAddress>) -> io::Result<()> {
    let mut table = Table::new(&[
        left("INSTANCE"),
        left("POOL"),
        left("ADDRESS"),
        right("SUBSCRIBERS"),
        right("PORTS"),
        right("TCP USED"),
        right("UDP USED"),
        right("ICMP USED"),
        right("BLOCKS"),
        right("BLOCKS USED"),
        right("USE"),
    ]);
    for p in all {
        // An address is as full as its scarcest resource: blocks where they are given out, else its fullest protocol.
        let busiest = p.ports_used_tcp.max(p.ports_used_udp).max(p.ports_used_icmp);
        let (used, total) =
            if p.blocks_total > 0 { (p.blocks_used, p.blocks_total) } else { (busiest, p.ports_total) };
        table.row(vec![
            p.instance,
            p.pool,
            p.address.to_string(),
            number(p.subscribers.into()),
            number(p.ports_total.into()),
            number(p.ports_used_tcp.into()),
            number(p.ports_used_udp.into()),
            number(p.ports_used_icmp.into()),
            number(p.blocks_total.into()),
            number(p.blocks_used.into()),
            percent(used.into(), total.into()),
        ]);
    }
    table.print(out, "no pool addresses match")
}

pub fn port_mappings(out: &mut dyn Write, all: Vec<PortMapping>) -> io::Result<()> {
    let mut table = Table::new(&[
        left("INSTANCE"),
        left("PROTO"),
        left("KIND"),
        left("INSIDE"),
        left("OUTSIDE"),
        right("PORTS"),
        left("FOR"),
        left("ASKED BY"),
        right("EXPIRES"),
    ]);
    for m in all {
        let peer = m.remote.zip(m.remote_port).map(|(ip, port)| endpoint(ip, port));
        let everybody = || if m.filters.is_empty() { "all".into() } else { m.filters.join(" ") };
        table.row(vec![
            m.instance,
            m.protocol,
            m.kind,
            endpoint(m.inside, m.inside_port),
            endpoint(m.outside, m.outside_port),
            number(m.ports.into()),
            peer.unwrap_or_else(everybody),
            m.asked_by,
            duration(m.expires_s.into()),
        ]);
    }
    table.print(out, "no mappings match")
}

/// The table whose entries are ports, whatever its name.
const PORTS_TABLE: &str = "pool-addresses";

pub fn memory(out: &mut dyn Write, all: Vec<Memory>) -> io::Result<()> {
    let mut table = Table::new(&[
        right("SOCKET"),
        left("TABLE"),
        right("TOTAL"),
        right("USED"),
        right("FREE"),
        right("LOAD %"),
        right("BYTES"),
        left("PAGES"),
    ]);
    let mut of_sockets: BTreeMap<u32, u64> = BTreeMap::new();
    for m in &all {
        *of_sockets.entry(m.socket).or_default() += m.bytes;
    }
    let counts_ports = all.iter().any(|m| m.table == PORTS_TABLE);
    for m in all {
        let counts = [m.total, m.used, m.free].map(number);
        let [total, used, free] = counts;
        let (load, size) = (format!("{:.1}", m.load_percent), number(m.bytes));
        table.row(vec![m.socket.to_string(), m.table, total, used, free, load, size, m.pages]);
    }
    table.print(out, "no tables")?;
    if of_sockets.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    if counts_ports {
        writeln!(out, "{PORTS_TABLE} counts ports: of every address those of TCP, of UDP and of ICMP")?;
    }
    if of_sockets.len() > 1 {
        for (socket, sum) in &of_sockets {
            writeln!(out, "reserved on socket {socket}: {} ({} bytes)", bytes(*sum), number(*sum))?;
        }
    }
    let sum = of_sockets.values().sum();
    writeln!(out, "reserved: {} ({} bytes)", bytes(sum), number(sum))
}

pub fn deterministic(out: &mut dyn Write, all: Vec<Deterministic>) -> io::Result<()> {
    let columns =
        [left("INSTANCE"), left("INSIDE"), left("OUTSIDE"), right("FIRST PORT"), right("LAST PORT")];
    let mut table = Table::new(&columns);
    for d in all {
        let ports = (d.port_first.to_string(), d.port_last.to_string());
        table.row(vec![d.instance, d.inside.to_string(), d.outside.to_string(), ports.0, ports.1]);
    }
    table.print(out, "no deterministic instance serves that")
}
