//! The rings between threads, both ends of each.

use carrack_pipeline::mailbox::{Command, Event, NatNews, PacketReceiver, PacketSender, packet_ring};
use rtrb::{Consumer, Producer, RingBuffer};

/// Commands waiting for a worker.
const COMMANDS: usize = 1_024;
/// Events waiting for the control plane, per worker.
const EVENTS: usize = 8_192;
/// NAT events waiting for the logging thread, per worker: 20 ms of three million a second.
const NAT_EVENTS: usize = 65_536;
/// Slots of punted packets waiting for the control plane, per worker.
const PUNTS: usize = 1_024;
/// Slots of the host's packets waiting for a worker.
const HOST_TX: usize = 512;

/// A worker's ends of its mailbox.
pub(crate) struct WorkerEnds {
    pub commands: Consumer<Command>,
    pub events: Producer<Event>,
    pub nat_events: Producer<NatNews>,
    pub punts: PacketSender,
    pub host_tx: PacketReceiver,
}

/// The control plane's ends of one worker's mailbox.
pub(crate) struct ControlEnds {
    pub commands: Producer<Command>,
    pub events: Consumer<Event>,
    pub punts: PacketReceiver,
    pub host_tx: PacketSender,
}

/// One worker's mailbox; the last end is the logging thread's.
pub(crate) fn mailbox() -> (WorkerEnds, ControlEnds, Consumer<NatNews>) {
    let (commands_in, commands) = RingBuffer::new(COMMANDS);
    let (events, events_out) = RingBuffer::new(EVENTS);
    let (nat_events, nat_events_out) = RingBuffer::new(NAT_EVENTS);
    let (punts, punts_out) = packet_ring(PUNTS);
    let (host_tx_in, host_tx) = packet_ring(HOST_TX);
    (
        WorkerEnds { commands, events, nat_events, punts, host_tx },
        ControlEnds { commands: commands_in, events: events_out, punts: punts_out, host_tx: host_tx_in },
        nat_events_out,
    )
}

/// One member's ends of a mesh: what the others send to it, and where it sends to each (`None` for itself).
pub(crate) struct MeshEnds<T> {
    pub incoming: Vec<Consumer<T>>,
    pub outgoing: Vec<Option<Producer<T>>>,
}

/// Rings from each of `members` to each other one, `depth` deep.
pub(crate) fn mesh<T>(members: usize, depth: usize) -> Vec<MeshEnds<T>> {
    let mut ends: Vec<MeshEnds<T>> =
        (0..members).map(|_| MeshEnds { incoming: Vec::new(), outgoing: Vec::new() }).collect();
    for from in 0..members {
        for to in 0..members {
            let producer = (from != to).then(|| {
                let (producer, consumer) = RingBuffer::new(depth);
                ends[to].incoming.push(consumer);
                producer
            });
            ends[from].outgoing.push(producer);
        }
    }
    ends
}
