//! Counters, the conservation equation, workers and the stage graph.

use carrack_base::REASONS;
use carrack_base::counters::Accounts;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Drops of one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReasonCount {
    /// Its name.
    pub name: String,
    /// `info`, `warning` or `error`.
    pub severity: String,
    /// One sentence.
    pub description: String,
    /// Which ICMP error answers it.
    pub icmp: String,
    /// Packets since start, all workers.
    pub count: u64,
}

/// A count that is no drop: cache misses of the control plane, copies lost by a capture, …
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EngineCounter {
    /// Its name.
    pub name: String,
    /// One sentence.
    pub description: String,
    /// The count since start.
    pub count: u64,
}

/// Where the packets of one worker went.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct WorkerAccounts {
    /// Worker.
    pub worker: u8,
    /// Packets taken from ports.
    pub rx: u64,
    /// Packets taken over from other workers.
    pub handed_in: u64,
    /// Packets the router itself made.
    pub originated: u64,
    /// Packets given to ports.
    pub forwarded: u64,
    /// Packets that went up to the control plane.
    pub punted: u64,
    /// Packets that did their work here.
    pub consumed: u64,
    /// Packets handed to other workers.
    pub handed_out: u64,
    /// Packets waiting.
    pub held: u64,
    /// Packets dropped, all reasons.
    pub dropped: u64,
    /// Left minus right of the conservation equation: 0 when every packet is accounted for.
    pub balance: i64,
}

/// Every packet's whereabouts:
/// `rx + handed_in + originated = forwarded + punted + consumed + handed_out + held + dropped`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Counters {
    /// Packets taken from ports.
    pub rx: u64,
    /// Packets taken over from other workers.
    pub handed_in: u64,
    /// Packets the router itself made.
    pub originated: u64,
    /// Packets given to ports.
    pub forwarded: u64,
    /// Packets that went up to the control plane.
    pub punted: u64,
    /// Packets that did their work here and ended.
    pub consumed: u64,
    /// Packets handed to other workers.
    pub handed_out: u64,
    /// Packets waiting for a first fragment or a neighbour.
    pub held: u64,
    /// Packets dropped, all reasons.
    pub dropped: u64,
    /// Left minus right: 0 when every packet is accounted for.
    pub balance: i64,
    /// Packets that network devices missed before the router saw them; not part of the equation.
    pub nic_missed: u64,
    /// Packets that found no free packet buffer, so that the router never saw them; not part of the equation either.
    #[serde(default)]
    pub nic_nombuf: u64,
    /// Bytes taken from ports, layer 2 without FCS.
    pub rx_bytes: u64,
    /// Bytes given to ports.
    pub forwarded_bytes: u64,
    /// The same equation for each worker.
    pub workers: Vec<WorkerAccounts>,
    /// Drops by reason, in the order of the table.
    pub reasons: Vec<ReasonCount>,
    /// Counts that are no drops.
    pub engine: Vec<EngineCounter>,
}

impl Counters {
    /// From the accounts of all workers, worker 0 first; what devices lost is not among these and still zero.
    #[must_use]
    pub fn from_accounts(workers: &[Accounts]) -> Self {
        let mut sum = Accounts::default();
        for accounts in workers {
            sum.add(accounts);
        }
        Self {
            rx: sum.rx,
            handed_in: sum.handed_in,
            originated: sum.originated,
            forwarded: sum.forwarded,
            punted: sum.punted,
            consumed: sum.consumed,
            handed_out: sum.handed_out,
            held: sum.held,
            dropped: sum.dropped(),
            balance: clamp(sum.balance()),
            nic_missed: 0,
            nic_nombuf: 0,
            rx_bytes: sum.rx_bytes,
            forwarded_bytes: sum.forwarded_bytes,
            workers: (0..=u8::MAX).zip(workers).map(|(n, a)| WorkerAccounts::new(n, a)).collect(),
            reasons: REASONS
                .iter()
                .zip(&sum.drops)
                .map(|(info, count)| ReasonCount {
                    name: info.name.into(),
                    severity: info.severity.name().into(),
                    description: info.description.into(),
                    icmp: info.icmp.name().into(),
                    count: *count,
                })
                .collect(),
            engine: Vec::new(),
        }
    }
}

impl WorkerAccounts {
    /// Of one worker.
    #[must_use]
    pub fn new(worker: u8, accounts: &Accounts) -> Self {
        Self {
            worker,
            rx: accounts.rx,
            handed_in: accounts.handed_in,
            originated: accounts.originated,
            forwarded: accounts.forwarded,
            punted: accounts.punted,
            consumed: accounts.consumed,
            handed_out: accounts.handed_out,
            held: accounts.held,
            dropped: accounts.dropped(),
            balance: clamp(accounts.balance()),
        }
    }
}

fn clamp(balance: i128) -> i64 {
    i64::try_from(balance).unwrap_or(if balance < 0 { i64::MIN } else { i64::MAX })
}

/// What one stage costs on one worker.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
pub struct StageClocks {
    /// Name of the stage.
    pub stage: String,
    /// Packets it saw while it was measured: one burst in 16 is.
    pub packets: u64,
    /// Clocks (time stamp counter ticks) spent on them.
    pub clocks: u64,
    /// Clocks for each packet.
    pub clocks_per_packet: f64,
}

/// One thread of the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Thread {
    /// The kernel's number of it.
    pub id: u32,
    /// Its name, as `ps -L` and `top -H` show it; no other has the same.
    pub name: String,
    /// What it does: `main` waits for the end, `nat-worker` forwards packets, `control` owns host and configuration,
    /// `state` writes the file of port control, `signals`, `api` answers management, `log` takes events from the workers,
    /// `store` and `exporter` hand them on, `dpdk` is DPDK's own, `other` somebody else's.
    pub role: String,
    /// CPUs it may run on, as the kernel writes them: `0-3,8`.
    pub cpus: String,
    /// CPU it ran on last.
    pub last_cpu: Option<u16>,
}

/// One worker thread.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
pub struct Worker {
    /// Worker.
    pub worker: u8,
    /// `running`, `ended` or `failed`.
    pub state: String,
    /// Its thread, with its role and CPUs; none once it has ended.
    #[serde(default)]
    pub thread: Option<Thread>,
    /// Configuration generation it forwards by.
    pub generation: u64,
    /// Bursts that held at least one packet.
    pub bursts: u64,
    /// Packets.
    pub packets: u64,
    /// Mean packets in a burst.
    pub packets_per_burst: f64,
    /// Mean clocks for a packet, all stages.
    pub clocks_per_packet: f64,
    /// Share of time without a packet to work on, 0 to 1, since start.
    pub idle_share: f64,
    /// NAT sessions it owns now.
    pub sessions: u64,
    /// NAT subscribers it owns now.
    pub subscribers: u64,
    /// Stages in order.
    pub stages: Vec<StageClocks>,
}

/// A name and a number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NamedCount {
    /// What is counted.
    pub name: String,
    /// How many.
    pub count: u64,
}

/// One stage of the packet's way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GraphNode {
    /// Name of the stage.
    pub stage: String,
    /// One sentence.
    pub description: String,
    /// Packets that nothing before it ended. Packets of other workers join before `nat`, the router's own before
    /// `forward`.
    pub packets: u64,
    /// Packets that ended in it other than by a drop: `forwarded`, `punted`, `consumed`, …; zeros are left out.
    pub ended: Vec<NamedCount>,
    /// Packets it dropped, by reason; zeros are left out.
    pub drops: Vec<NamedCount>,
}

/// The stages in order, all workers together.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Graph {
    /// The packet's way.
    pub stages: Vec<GraphNode>,
}
