//! What a worker does between bursts: commands, packets from elsewhere, time.

use std::net::IpAddr;

use carrack_base::{IfIndex, Now, Reason};
use carrack_frame::FramePool;
use carrack_nat::row::SessionKey;
use carrack_nat::{Direction, KEPT_BYTES, Kind, OverdueSyn};
use carrack_wire::ethernet::MacAddr;
use carrack_wire::ipv4::Ipv4View;

use crate::burst::Meta;
use crate::dump::Walked;
use crate::mailbox::{CapturePoint, Command, Event};
use crate::worker::Worker;

/// Sessions deleted between two bursts by name: some ten microseconds.
const KEYS_A_TURN: usize = 16;
/// Commands taken between two bursts.
const COMMANDS_A_TURN: usize = 32;
/// Packets of the control plane taken between two bursts.
const HOST_PACKETS_A_TURN: usize = 32;
/// Overdue packets of each kind ended between two bursts.
const OVERDUE_A_TURN: usize = 32;

/// A command to delete sessions that is being carried out.
#[derive(Debug)]
pub(crate) struct Deletion {
    request: u64,
    keys: Vec<SessionKey>,
    looked_for: usize,
    count: u64,
}

impl Worker {
    /// Everything but the ports. Call it once a loop; all of it is bounded.
    pub fn background(&mut self, now: Now, pool: &mut dyn FramePool) {
        if self.go_on_deleting(now) {
            for _ in 0..COMMANDS_A_TURN {
                if !self.next_command(now) {
                    break;
                }
            }
        }
        self.take_host_packets(now, pool);
        self.take_handovers(now, pool);
        if self.fragments.has_ready() {
            self.take_ready_fragments(now, pool);
        }
        self.nat.expire(now);
        self.prepare_some(now);
        self.tell_taken();
        self.end_overdue(now, pool);
        let packets = self.accounts.rx + self.accounts.handed_in;
        let Self { nat, translators, fragments, neighbours, dumps, .. } = self;
        dumps.turn(&mut Walked { nat, translators, fragments, neighbours }, packets, now);
        self.send_events(now);
        if self.taps.capturing || self.taps.tracing {
            self.taps.tidy();
        }
    }

    /// Are there sessions still to be deleted by name?
    #[must_use]
    pub const fn is_deleting(&self) -> bool {
        self.deletion.is_some()
    }

    /// Deletes some of the sessions that a command named, and answers it after the last. False while there are more, and then
    /// no other command is taken: each finds what those before it left.
    fn go_on_deleting(&mut self, now: Now) -> bool {
        let Some(deletion) = &mut self.deletion else { return true };
        let keys = deletion.keys.get(deletion.looked_for..).unwrap_or(&[]);
        let keys = keys.get(..KEYS_A_TURN).unwrap_or(keys);
        deletion.count += self.nat.delete(keys, now) as u64;
        deletion.looked_for += keys.len();
        let Deletion { request, count, .. } = *deletion;
        if deletion.looked_for < deletion.keys.len() || self.mail.events.slots() == 0 {
            return false;
        }
        self.deletion = None;
        // Invariant: there is room.
        let _ = self.mail.events.push(Event::Deleted { request, count });
        true
    }

    /// Handles the next command; false when there is none, or no room to answer it, or this one was enough for a turn.
    fn next_command(&mut self, now: Now) -> bool {
        if self.mail.events.slots() < 4 {
            return false;
        }
        if matches!(self.mail.commands.peek(), Ok(Command::Dump(_))) && !self.dumps.has_room() {
            return false;
        }
        let gone_is_full = self.neighbour_gone.len() == self.neighbour_gone.capacity();
        if matches!(self.mail.commands.peek(), Ok(Command::DropNeighbour { .. })) && gone_is_full {
            return false;
        }
        let Ok(command) = self.mail.commands.pop() else { return false };
        match command {
            Command::Prepare { plan, change } => self.prepare(plan, change, now),
            Command::Commit { generation } => self.commit(generation, now),
            Command::Abandon { generation } => self.abandon(generation),
            Command::SetNeighbour { interface, ip, mac } => self.set_neighbour(interface, ip, mac, now),
            Command::DropNeighbour { interface, ip } => self.neighbour_gone.push((interface, ip)),
            Command::Dump(dump) => self.dumps.start(dump),
            Command::Delete { request, keys } => {
                self.deletion = Some(Deletion { request, keys, looked_for: 0, count: 0 });
                self.go_on_deleting(now);
                // The next one has its turn later: what a turn deletes is bounded.
                return false;
            }
            Command::Control { request, ask } => {
                if let Some(answer) = self.nat.control(&ask, now) {
                    let _ = self.mail.events.push(Event::Controlled { request, answer });
                }
            }
            Command::Capture(capture) => self.taps.add_capture(capture),
            Command::Trace(trace) => self.taps.set_trace(trace),
        }
        true
    }

    fn set_neighbour(&mut self, interface: IfIndex, ip: IpAddr, mac: MacAddr, now: Now) {
        // It is back before its loss was dealt with.
        self.neighbour_gone.retain(|gone| *gone != (interface, ip));
        self.neighbours.set(interface, ip.into(), mac);
        while let Some(waiting) = self.neighbours.release(interface, ip.into()) {
            self.send_held(waiting.frame, &waiting.meta, interface, mac, now);
        }
    }

    /// Frames that the control plane made: they leave as they are.
    fn take_host_packets(&mut self, now: Now, pool: &mut dyn FramePool) {
        for _ in 0..HOST_PACKETS_A_TURN {
            let Some((interface, packet)) = self.mail.host_tx.pop() else { return };
            self.accounts.originated += 1;
            let Some(mut frame) = pool.alloc() else {
                self.accounts.drop_n(Reason::FramePoolEmpty, 1);
                continue;
            };
            let meta = Meta { ingress: interface, own: true, ..Meta::default() };
            let port = self.plan.line(interface).map(|line| line.port.index());
            if !frame.set_bytes(packet) {
                self.discard(frame, &meta, Reason::FramePoolEmpty, now);
                continue;
            }
            let Some(queue) = port.and_then(|port| self.tx.get_mut(port)) else {
                self.discard(frame, &meta, Reason::TxPortMissing, now);
                continue;
            };
            if queue.len() == queue.capacity() {
                self.discard(frame, &meta, Reason::TxQueueFull, now);
                continue;
            }
            self.accounts.forwarded += 1;
            self.accounts.forwarded_bytes += frame.len() as u64;
            if self.taps.capturing {
                self.taps.capture(CapturePoint::Tx, interface, None, frame.bytes(), now);
            }
            queue.push(frame);
        }
    }

    /// Ends what has waited too long: SYNs, fragments, packets without a neighbour.
    fn end_overdue(&mut self, now: Now, pool: &mut dyn FramePool) {
        self.count_absorbed();
        while let Some(syn) = self.nat.next_absorbed() {
            if self.taps.capturing
                && let Some(ingress) = self.outside_interface(syn.vrf)
            {
                self.capture_syn(&syn, ingress, Reason::NatTcpSynSuperseded, now);
            }
        }
        for _ in 0..OVERDUE_A_TURN {
            let Some(syn) = self.nat.next_overdue_syn(now) else { break };
            self.answer_syn(&syn, now, pool);
        }
        for _ in 0..OVERDUE_A_TURN {
            let next = self.fragments.next_overdue(now).or_else(|| self.pieces.next_overdue(now));
            let Some((frame, meta)) = next else { break };
            self.discard(frame, &meta, Reason::FragmentTimeout, now);
        }
        for _ in 0..OVERDUE_A_TURN {
            let next = match self.neighbour_gone.last().copied() {
                Some((interface, ip)) => {
                    let next = self.neighbours.release(interface, ip.into());
                    if next.is_none() {
                        self.neighbours.remove(interface, ip.into());
                        self.neighbour_gone.pop();
                        continue;
                    }
                    next
                }
                None => self.neighbours.next_overdue(now),
            };
            let Some(waiting) = next else { break };
            let reason = Reason::NeighbourUnresolved;
            self.answer(&waiting.frame, &waiting.meta, reason, now, pool);
            self.discard(waiting.frame, &waiting.meta, reason, now);
        }
    }

    /// RFC 5382 REQ-4: nobody inside claimed the SYN in its time; now its sender may be told.
    fn answer_syn(&mut self, syn: &OverdueSyn, now: Now, pool: &mut dyn FramePool) {
        let reason = Reason::NatTcpUnsolicitedSyn;
        self.accounts.drop_n(reason, 1);
        let Ok(packet) = Ipv4View::parse_quoted(syn.packet()) else { return };
        let Some(ingress) = self.outside_interface(syn.vrf) else { return };
        if self.taps.capturing {
            self.capture_syn(syn, ingress, reason, now);
        }
        // RFC 6146 §3.8, RFC 5382 REQ-8: a host of ours has sent it by its outside endpoint. It hears of the packet that it
        // knows, back through the NAT.
        let hairpinned = self.nat.directory().outside(syn.vrf, packet.src()).is_some();
        let meta = Meta {
            translated: hairpinned.then_some(Direction::Out),
            flow: carrack_nat::Flow {
                src: packet.src(),
                dst: packet.dst(),
                vrf: syn.vrf,
                kind: Kind::Whole,
                ..carrack_nat::Flow::default()
            },
            ingress,
            vrf: syn.vrf,
            ..Meta::default()
        };
        self.answer_packet(syn.packet(), &meta, reason, now, pool);
    }

    /// Of a held SYN only the start of its packet is kept: it is captured behind a link header of zeros.
    #[cold]
    fn capture_syn(&mut self, syn: &OverdueSyn, ingress: IfIndex, reason: Reason, now: Now) {
        const LINK_BYTES: usize = 14;
        let mut frame = [0; LINK_BYTES + KEPT_BYTES];
        frame[12..LINK_BYTES].copy_from_slice(&[0x08, 0x00]);
        let len = syn.packet().len().min(KEPT_BYTES);
        frame[LINK_BYTES..][..len].copy_from_slice(&syn.packet()[..len]);
        let point = CapturePoint::Drop(reason);
        self.taps.capture(point, ingress, None, &frame[..LINK_BYTES + len], now);
    }

    fn outside_interface(&self, vrf: carrack_base::VrfId) -> Option<IfIndex> {
        self.plan
            .snapshot
            .interfaces
            .iter()
            .flatten()
            .find(|i| i.vrf == vrf && i.side == crate::snapshot::Side::Outside && !i.addresses.is_empty())
            .map(|i| i.id)
    }

    fn send_events(&mut self, now: Now) {
        if self.nat.is_quiet() {
            return;
        }
        // What finds no room waits in the engine, whose own bound counts the loss.
        let (sent, _) = self.mail.nat_events.push_partial_slice(self.nat.events(now));
        let sent = sent.len();
        self.nat.take_events(sent);
    }
}
