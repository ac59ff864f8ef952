//! Prometheus text: every name is declared once, every drop reason is a label from the table of reasons.

use core::fmt::{Display, Write as _};

use crate::backend::Backend;
use crate::failure::Failure;
use crate::filter::RowFilter;

/// All metrics.
pub(super) fn text(backend: &dyn Backend) -> Result<String, Failure> {
    let mut page = Page(String::with_capacity(16_384));
    counters(&mut page, backend)?;
    interfaces(&mut page, backend)?;
    workers(&mut page, backend)?;
    nat(&mut page, backend)?;
    let health = backend.health();
    page.family("carrack_up", "gauge", "1 when the daemon is well, 0 when it is degraded.");
    page.sample("carrack_up", &[], u8::from(health.problems.is_empty()));
    page.family("carrack_uptime_seconds", "gauge", "Seconds since start.");
    page.sample("carrack_uptime_seconds", &[], health.uptime_s);
    page.family(
        "carrack_config_generation",
        "gauge",
        "Configuration generation: 1 at start, one more a reload.",
    );
    page.sample("carrack_config_generation", &[], health.generation);
    Ok(page.0)
}

struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        for (i, (label, text)) in labels.iter().enumerate() {
            let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.0, "{}{label}=\"{text}\"", if i == 0 { '{' } else { ',' });
        }
        let _ = writeln!(self.0, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }
}

fn counters(page: &mut Page, backend: &dyn Backend) -> Result<(), Failure> {
    let c = backend.counters()?;
    let equation = [
        ("carrack_rx_packets_total", "Packets taken from ports.", c.rx),
        ("carrack_rx_bytes_total", "Bytes taken from ports, layer 2 without FCS.", c.rx_bytes),
        ("carrack_originated_packets_total", "Packets the router itself made.", c.originated),
        ("carrack_forwarded_packets_total", "Packets given to ports.", c.forwarded),
        ("carrack_forwarded_bytes_total", "Bytes given to ports, layer 2 without FCS.", c.forwarded_bytes),
        ("carrack_punted_packets_total", "Packets that went up to the control plane.", c.punted),
        ("carrack_consumed_packets_total", "Packets that did their work here and ended.", c.consumed),
        ("carrack_handed_in_packets_total", "Packets taken over from other workers.", c.handed_in),
        ("carrack_handed_out_packets_total", "Packets handed to other workers.", c.handed_out),
        ("carrack_nic_missed_packets_total", "Packets that network devices missed.", c.nic_missed),
        ("carrack_nic_nombuf_packets_total", "Packets that found no free packet buffer.", c.nic_nombuf),
    ];
    for (name, help, value) in equation {
        page.family(name, "counter", help);
        page.sample(name, &[], value);
    }
    page.family("carrack_held_packets", "gauge", "Packets waiting for a first fragment or a neighbour.");
    page.sample("carrack_held_packets", &[], c.held);
    page.family("carrack_balance_packets", "gauge", "Packets unaccounted for; anything but 0 is a fault.");
    page.sample("carrack_balance_packets", &[], c.balance);
    page.family("carrack_dropped_packets_total", "counter", "Packets dropped, by reason.");
    for r in &c.reasons {
        let labels = [("reason", r.name.as_str()), ("severity", r.severity.as_str())];
        page.sample("carrack_dropped_packets_total", &labels, r.count);
    }
    page.family("carrack_engine_total", "counter", "Counts that are no drops, by name.");
    for e in &c.engine {
        page.sample("carrack_engine_total", &[("name", &e.name)], e.count);
    }
    Ok(())
}

fn interfaces(page: &mut Page, backend: &dyn Backend) -> Result<(), Failure> {
    let all = backend.interfaces()?;
    page.family("carrack_interface_link", "gauge", "1 when the device sees a link.");
    for i in &all {
        page.sample("carrack_interface_link", &[("interface", &i.name)], u8::from(i.link));
    }
    type Get = fn(&crate::types::Interface) -> u64;
    let families: [(&str, &str, Get); 9] = [
        ("carrack_interface_link_resumed_total", "Times the device's link came back.", |i| i.link_resumed),
        ("carrack_interface_rx_packets_total", "Packets received by the interface.", |i| i.rx_packets),
        ("carrack_interface_rx_bytes_total", "Bytes received by the interface.", |i| i.rx_bytes),
        ("carrack_interface_rx_missed_packets_total", "Packets the device missed.", |i| i.rx_missed),
        ("carrack_interface_rx_errors_total", "Packets received damaged or too large.", |i| i.rx_errors),
        (
            "carrack_interface_rx_nombuf_packets_total",
            "Packets not received because no packet buffer was free.",
            |i| i.rx_nombuf,
        ),
        ("carrack_interface_tx_packets_total", "Packets sent by the interface.", |i| i.tx_packets),
        ("carrack_interface_tx_bytes_total", "Bytes sent by the interface.", |i| i.tx_bytes),
        ("carrack_interface_tx_errors_total", "Packets the device failed to send.", |i| i.tx_errors),
    ];
    for (name, help, get) in families {
        page.family(name, "counter", help);
        for i in &all {
            page.sample(name, &[("interface", &i.name)], get(i));
        }
    }
    Ok(())
}

fn workers(page: &mut Page, backend: &dyn Backend) -> Result<(), Failure> {
    let all = backend.workers()?;
    page.family("carrack_worker_packets_total", "counter", "Packets a worker handled.");
    for w in &all {
        page.sample("carrack_worker_packets_total", &[("worker", &w.worker.to_string())], w.packets);
    }
    page.family("carrack_worker_idle_ratio", "gauge", "Share of time without packets, 0 to 1.");
    for w in &all {
        page.sample("carrack_worker_idle_ratio", &[("worker", &w.worker.to_string())], w.idle_share);
    }
    page.family("carrack_worker_stage_clocks_total", "counter", "Clocks a worker spent in a stage.");
    for w in &all {
        for s in &w.stages {
            let worker = w.worker.to_string();
            let labels = [("worker", worker.as_str()), ("stage", s.stage.as_str())];
            page.sample("carrack_worker_stage_clocks_total", &labels, s.clocks);
        }
    }
    Ok(())
}

fn nat(page: &mut Page, backend: &dyn Backend) -> Result<(), Failure> {
    let tables = backend.memory()?;
    type Get = fn(&crate::types::Memory) -> u64;
    let families: [(&str, &str, Get); 3] = [
        ("carrack_nat_table_used", "Entries in use.", |m| m.used),
        ("carrack_nat_table_total", "Entries the table can hold.", |m| m.total),
        ("carrack_nat_table_bytes", "Bytes reserved.", |m| m.bytes),
    ];
    for (name, help, get) in families {
        page.family(name, "gauge", help);
        for m in &tables {
            page.sample(name, &[("socket", &m.socket.to_string()), ("table", &m.table)], get(m));
        }
    }
    // By pool, not by address: a pool of thousands of addresses would drown the page.
    let mut pools = std::collections::BTreeMap::<(String, String), [u64; 6]>::new();
    for p in backend.pools(&RowFilter::default())? {
        let sums = pools.entry((p.instance, p.pool)).or_default();
        let row = [
            p.ports_total,
            p.ports_used_tcp,
            p.ports_used_udp,
            p.ports_used_icmp,
            p.blocks_total,
            p.blocks_used,
        ];
        for (sum, value) in sums.iter_mut().zip(row) {
            *sum += u64::from(value);
        }
    }
    page.family("carrack_nat_pool_ports", "gauge", "Ports of the pool, per protocol.");
    for ((instance, pool), [total, ..]) in &pools {
        page.sample("carrack_nat_pool_ports", &[("instance", instance), ("pool", pool)], total);
    }
    page.family("carrack_nat_pool_ports_used", "gauge", "Ports in use.");
    for ((instance, pool), [_, tcp, udp, icmp, ..]) in &pools {
        for (protocol, used) in [("tcp", tcp), ("udp", udp), ("icmp", icmp)] {
            let labels = [("instance", instance.as_str()), ("pool", pool.as_str()), ("protocol", protocol)];
            page.sample("carrack_nat_pool_ports_used", &labels, used);
        }
    }
    page.family("carrack_nat_pool_blocks", "gauge", "Port blocks of the pool.");
    for ((instance, pool), [.., blocks, _]) in &pools {
        page.sample("carrack_nat_pool_blocks", &[("instance", instance), ("pool", pool)], blocks);
    }
    page.family(
        "carrack_nat_pool_blocks_used",
        "gauge",
        "Blocks that belong to a subscriber or are in their hold time.",
    );
    for ((instance, pool), [.., used]) in &pools {
        page.sample("carrack_nat_pool_blocks_used", &[("instance", instance), ("pool", pool)], used);
    }
    Ok(())
}
