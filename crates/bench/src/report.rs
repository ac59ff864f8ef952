//! What a measurement says, for machines and for people.

use std::collections::BTreeMap;

use carrack_base::text::grouped;
use serde::Serialize;

use crate::generator_cost::GeneratorCost;
use crate::memory::Footprint;

/// A line of a result. Where nobody reads it any more the program ends without a word.
pub fn say(line: std::fmt::Arguments<'_>) {
    use std::io::Write;
    if let Err(error) = writeln!(std::io::stdout().lock(), "{line}") {
        let is_left = error.kind() == std::io::ErrorKind::BrokenPipe;
        if !is_left {
            eprintln!("error: the result cannot be written: {error}");
        }
        std::process::exit(i32::from(!is_left));
    }
}

/// One `forward` run.
#[derive(Debug, Clone, Serialize)]
pub struct ForwardReport {
    /// Always `forward`.
    pub scenario: &'static str,
    /// Always `nat44` here.
    pub translation: &'static str,
    /// Sessions in the tables while measuring, all workers.
    pub sessions: u64,
    /// Bytes of a frame on the wire, check sequence included.
    pub frame_bytes: u32,
    /// Workers.
    pub workers: u8,
    /// `random` or `sequential`.
    pub order: &'static str,
    /// `out`, `in` or `both`.
    pub direction: &'static str,
    /// Seconds measured.
    pub seconds: f64,
    /// Packets given to the router.
    pub packets_offered: u64,
    /// Packets that left it.
    pub packets_forwarded: u64,
    /// Packets it dropped.
    pub packets_dropped: u64,
    /// Dropped packets by reason.
    pub drops: BTreeMap<&'static str, u64>,
    /// Million packets forwarded a second, generator included.
    pub mpps: f64,
    /// The same divided by the workers.
    pub mpps_per_worker: f64,
    /// Processor cycles (TSC) a packet, generator included.
    pub cycles_per_packet: f64,
    /// Of those, what the generator takes.
    #[serde(flatten)]
    pub generator: GeneratorCost,
    /// Frame bits a second, without preamble and gap.
    pub gbps_l2: f64,
    /// What the sessions take.
    #[serde(flatten)]
    pub memory: Footprint,
    /// Pages behind the session table.
    pub pages: &'static str,
    /// Translated packets that were verified bit by bit.
    pub packets_verified: u64,
    /// Every packet offered was accounted for.
    pub conservation_ok: bool,
}

impl ForwardReport {
    /// For people.
    pub fn print(&self) {
        let router = self.cycles_per_packet - self.generator.cycles_per_packet;
        println!(
            "{} forwarding, {} sessions in {} order",
            self.translation.to_uppercase(),
            grouped(self.sessions),
            self.order
        );
        println!();
        println!(
            "  {:<26}{:>12.2} Mpps   ({:.2} Gbit/s at {} bytes)",
            "forwarded", self.mpps, self.gbps_l2, self.frame_bytes
        );
        println!("  {:<26}{:>12.2} Mpps   (workers: {})", "per worker", self.mpps_per_worker, self.workers);
        println!("  {:<26}{:>12.1} cycles", "per packet", self.cycles_per_packet);
        println!("  {:<26}{:>12.1} cycles", "  of which the router", router);
        println!("  {:<26}{:>12.1} cycles", "  of which the generator", self.generator.cycles_per_packet);
        println!(
            "  {:<26}{:>12.1} bytes  ({} pages)",
            "memory per session", self.memory.bytes_per_session, self.pages
        );
        println!(
            "  {:<26}{:>12.1} bytes",
            "  with the pool's ports", self.memory.bytes_per_session_with_pool
        );
        println!("  {:<26}{}", "memory of the generator", self.generator.tables());
        println!("  {:<26}{:>12}", "packets offered", grouped(self.packets_offered));
        println!("  {:<26}{:>12}", "packets dropped", grouped(self.packets_dropped));
        println!("  {:<26}{:>12}", "verified bit by bit", grouped(self.packets_verified));
        for (reason, count) in &self.drops {
            println!("    {reason:<24}{:>12}", grouped(*count));
        }
        println!("  {:<26}{:>12}", "every packet accounted", if self.conservation_ok { "yes" } else { "NO" });
    }
}

/// Drops by reason, for people.
pub fn print_drops(drops: &BTreeMap<&'static str, u64>) {
    let sum: u64 = drops.values().sum();
    println!("  {:<26}{}", "packets dropped", grouped(sum));
    for (reason, count) in drops {
        println!("    {reason:<24}{}", grouped(*count));
    }
}
