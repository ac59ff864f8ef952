//! Trace and capture: what an operator asked to see. Costs one test a burst when nobody looks.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use carrack_base::{IfIndex, Now, Prefix, Proto};

use carrack_wire::ethernet::ethertype;
use carrack_wire::ipv4::Ipv4View;
use carrack_wire::ipv6::Ipv6View;

use crate::burst::Meta;
use crate::mailbox::{
    CAPTURE_BYTES, Capture, CapturePoint, CaptureSlot, PacketFilter, TRACE_BYTES, Trace, TraceOutcome,
    TraceStep,
};
use crate::parse6::proto6;
use crate::stats::{STAGES, Stage};

/// Most captures at once.
const CAPTURES_MAX: usize = 4;

#[derive(Default)]
pub(crate) struct Taps {
    captures: Vec<Capture>,
    trace: Option<Trace>,
    traced: u32,
    /// Copies that found their ring full, since start.
    pub(crate) lost: u64,
    /// Somebody captures.
    pub(crate) capturing: bool,
    /// Somebody traces.
    pub(crate) tracing: bool,
}

impl Taps {
    pub(crate) fn new() -> Self {
        Self { captures: Vec::with_capacity(CAPTURES_MAX), ..Self::default() }
    }

    /// Starts a capture; beyond the maximum the oldest ends.
    pub(crate) fn add_capture(&mut self, capture: Capture) {
        if self.captures.len() >= CAPTURES_MAX {
            self.captures.remove(0);
        }
        self.captures.push(capture);
        self.capturing = true;
    }

    /// Starts a trace; a running one ends.
    pub(crate) fn set_trace(&mut self, trace: Trace) {
        self.trace = Some(trace);
        self.traced = 0;
        self.tracing = true;
    }

    /// Ends what nobody reads any more.
    pub(crate) fn tidy(&mut self) {
        self.captures.retain(|c| !c.slots.is_abandoned() && c.packets_max > 0);
        self.capturing = !self.captures.is_empty();
        if self.trace.as_ref().is_some_and(|t| t.steps.is_abandoned()) {
            self.trace = None;
        }
        self.tracing = self.trace.is_some();
    }

    /// Copies a packet to every capture that wants it.
    #[cold]
    pub(crate) fn capture(
        &mut self,
        point: CapturePoint,
        interface: IfIndex,
        meta: Option<&Meta>,
        frame: &[u8],
        now: Now,
    ) {
        for capture in &mut self.captures {
            let wanted = match point {
                CapturePoint::Rx => capture.rx,
                CapturePoint::Tx => capture.tx,
                CapturePoint::Drop(_) => capture.drops,
            };
            let reason_fits = match (capture.filter.dropped, point) {
                (None, _) | (Some(None), CapturePoint::Drop(_)) => true,
                (Some(Some(reason)), CapturePoint::Drop(dropped)) => reason == dropped,
                (Some(_), _) => false,
            };
            let fits = wanted && reason_fits && capture.packets_max > 0;
            if !fits || !matches(&capture.filter, interface, meta, frame) {
                continue;
            }
            let captured = frame.len().min(CAPTURE_BYTES);
            let mut bytes = [0; CAPTURE_BYTES];
            bytes[..captured].copy_from_slice(&frame[..captured]);
            let slot = CaptureSlot {
                at_ns: now.ns,
                interface,
                point,
                len: frame.len() as u16,
                captured: captured as u16,
                lost: capture.lost,
                bytes,
            };
            // A full ring loses the copy; the next one that fits says how many were lost before it.
            if capture.slots.push(slot).is_ok() {
                (capture.packets_max, capture.lost) = (capture.packets_max - 1, 0);
            } else {
                capture.lost = capture.lost.saturating_add(1);
                self.lost += 1;
            }
        }
        if self.captures.iter().any(|c| c.packets_max == 0) {
            self.tidy();
        }
    }

    /// Marks a packet for tracing when it is wanted.
    #[cold]
    pub(crate) fn pick(&mut self, meta: &mut Meta, frame: &[u8]) {
        let Some(trace) = &self.trace else { return };
        if self.traced < trace.packets_max && matches(&trace.filter, meta.ingress, Some(meta), frame) {
            self.traced += 1;
            meta.traced = self.traced;
        }
    }

    /// Records what a stage did to a marked packet.
    #[cold]
    pub(crate) fn step(
        &mut self,
        stage: Stage,
        interface: IfIndex,
        outcome: TraceOutcome,
        meta: &Meta,
        frame: &[u8],
        now: Now,
    ) {
        let Some(trace) = &mut self.trace else { return };
        let mut bytes = [0; TRACE_BYTES];
        let len = frame.len().min(TRACE_BYTES);
        bytes[..len].copy_from_slice(&frame[..len]);
        let step = TraceStep {
            packet: meta.traced,
            at_ns: now.ns,
            stage: STAGES.get(stage as usize).map_or("", |(_, name, _)| name),
            interface,
            outcome,
            len: frame.len() as u16,
            bytes,
        };
        let _ = trace.steps.push(step);
        let ends = !matches!(
            outcome,
            TraceOutcome::Next
                | TraceOutcome::SessionHit(_)
                | TraceOutcome::SessionCreated(_)
                | TraceOutcome::Exempt
                | TraceOutcome::Hairpin
        );
        if ends && meta.traced >= trace.packets_max {
            self.trace = None;
            self.tracing = false;
        }
    }
}

/// Does a packet fit the filter, as it came in or as it is now?
fn matches(filter: &PacketFilter, interface: IfIndex, meta: Option<&Meta>, frame: &[u8]) -> bool {
    if filter.interface.is_some_and(|i| i != interface && meta.is_none_or(|m| m.ingress != i)) {
        return false;
    }
    let fits = |address: &[IpAddr], proto: Proto, ports: [u16; 2]| {
        let in_prefix = |p: Prefix| address.iter().any(|a| p.contains(*a));
        filter.address.is_none_or(in_prefix)
            && filter.proto.is_none_or(|p| p == proto)
            && filter.port.is_none_or(|p| ports.contains(&p))
    };
    let as_received = meta.is_some_and(|m| fits(&m.flow_ips(), m.flow.proto, [m.flow.sport, m.flow.dport]));
    as_received || peek(frame).map_or_else(|| fits(&[], Proto::Other, [0; 2]), |(a, p, o)| fits(&a, p, o))
}

/// Addresses, protocol and ports of a frame, without any checks that matter elsewhere.
fn peek(frame: &[u8]) -> Option<([IpAddr; 2], Proto, [u16; 2])> {
    let l2 = carrack_wire::vlan::parse_l2(frame).ok()?;
    let packet = frame.get(usize::from(l2.payload_offset)..)?;
    let (addresses, proto, payload) = match l2.ethertype {
        ethertype::IPV6 => peek6(packet)?,
        _ => {
            let packet = Ipv4View::parse_quoted(packet).ok()?;
            let addresses = [packet.src(), packet.dst()].map(|ip| Ipv4Addr::from(ip).into());
            (addresses, Proto::from_ip(packet.protocol()), packet.payload())
        }
    };
    let word = |at: usize| payload.get(at..at + 2).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]));
    let ports = match proto {
        Proto::Tcp | Proto::Udp => [word(0), word(2)],
        Proto::Icmp => [word(4), word(4)],
        Proto::Other => [0, 0],
    };
    Some((addresses, proto, ports))
}

/// The same of an IPv6 packet, with what is behind its extension headers.
fn peek6(packet: &[u8]) -> Option<([IpAddr; 2], Proto, &[u8])> {
    let packet = Ipv6View::parse_quoted(packet).ok()?;
    let addresses = [packet.src(), packet.dst()].map(|ip| Ipv6Addr::from(ip).into());
    let Ok(found) = packet.extensions() else { return Some((addresses, Proto::Other, &[])) };
    let payload = packet.packet().get(usize::from(found.offset)..).unwrap_or(&[]);
    let payload = if found.is_later_fragment() { &[] } else { payload };
    Some((addresses, proto6(found.protocol), payload))
}
