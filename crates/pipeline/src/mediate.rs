//! Packets of control connections on their way through an application gateway: after the NAT has translated their headers,
//! what they say is, and they may become longer or shorter.

use carrack_base::{Family, Now, Proto, Reason};
use carrack_frame::Frame;
use carrack_nat::{Direction, Kind, Mediated};
use carrack_wire::checksum::{self, Sum};
use carrack_wire::ipv4::{self, Ipv4View};
use carrack_wire::ipv6::{self, Ipv6View};

use crate::burst::Meta;
use crate::worker::Worker;

/// Where a packet's parts are, and the sum of its pseudo-header without the length.
struct Layout {
    start: usize,
    transport: usize,
    end: usize,
    pseudo: Sum,
    /// Offset of the checksum in the transport header.
    checksum_at: usize,
}

impl Worker {
    /// Shows a packet of a control connection to its gateway and puts what comes of it in its place.
    #[cold]
    pub(crate) fn mediate(
        &mut self,
        frame: &mut Frame,
        meta: &Meta,
        direction: Direction,
        line: u32,
        now: Now,
    ) -> Result<(), Reason> {
        if meta.is_fragment || meta.flow.kind == Kind::LaterFragment {
            // A datagram that hairpins or crosses goes on unread (others are whole here, see `pieces`); of a stream nothing
            // may be missed.
            return if meta.flow.proto == Proto::Tcp { Err(Reason::GatewayFragment) } else { Ok(()) };
        }
        let Some(layout) = layout(frame.bytes(), meta) else { return Ok(()) };
        let transport = frame.bytes().get(layout.transport..layout.end).unwrap_or(&[]);
        if !is_right(&layout, transport) {
            return Err(Reason::GatewayBadChecksum);
        }
        match self.nat.mediate(line, direction, transport, now)? {
            Mediated::Same => Ok(()),
            Mediated::Changed(bytes) => replace(frame, &layout, meta, bytes),
        }
    }
}

/// `None` for what is too short to be one.
fn layout(frame: &[u8], meta: &Meta) -> Option<Layout> {
    let start = usize::from(meta.flow.l3);
    let (end, pseudo, number) = match meta.flow.family {
        Family::V4 => {
            let packet = Ipv4View::parse(frame.get(start..)?).ok()?;
            let number = packet.protocol();
            (packet.packet().len(), checksum::pseudo_v4(packet.src(), packet.dst(), number, 0), number)
        }
        Family::V6 => {
            let packet = Ipv6View::parse(frame.get(start..)?).ok()?;
            let number = meta.flow.ip_proto;
            let pseudo = checksum::pseudo_v6(packet.src(), packet.dst(), number, 0);
            (packet.packet().len(), pseudo, number)
        }
    };
    let checksum_at = if number == ipv4::protocol::TCP { 16 } else { 6 };
    let (transport, end) = (usize::from(meta.flow.l4), start + end);
    frame.get(transport + checksum_at..transport + checksum_at + 2)?;
    (transport > start && transport < end).then_some(Layout { start, transport, end, pseudo, checksum_at })
}

fn is_right(layout: &Layout, transport: &[u8]) -> bool {
    let is_udp = layout.checksum_at == 6;
    // RFC 768: none was made.
    if is_udp && transport.get(6..8) == Some(&[0, 0]) {
        return true;
    }
    layout.pseudo.with_u16(transport.len() as u16).with_bytes(transport).fold() == 0xffff
}

/// Puts `bytes` in the place of the transport header and all behind it.
fn replace(frame: &mut Frame, layout: &Layout, meta: &Meta, bytes: &[u8]) -> Result<(), Reason> {
    frame.truncate(layout.end);
    let len = layout.transport + bytes.len();
    if len > frame.len() {
        frame.append(len - frame.len()).ok_or(Reason::FrameHeadroom)?;
    }
    frame.truncate(len);
    let is_udp = layout.checksum_at == 6;
    let packet = frame.bytes_mut();
    let had_none = is_udp && packet.get(layout.transport + 6..layout.transport + 8) == Some(&[0, 0]);
    let Some(transport) = packet.get_mut(layout.transport..) else { return Ok(()) };
    transport.copy_from_slice(bytes);
    let length = bytes.len() as u16;
    if is_udp {
        put16(transport, 4, length);
    }
    put16(transport, layout.checksum_at, 0);
    let sum = layout.pseudo.with_u16(length).with_bytes(transport);
    let checksum = if is_udp { sum.udp_checksum() } else { sum.checksum() };
    put16(transport, layout.checksum_at, if had_none { 0 } else { checksum });
    let Some(packet) = packet.get_mut(layout.start..) else { return Ok(()) };
    let total = packet.len() as u16;
    match meta.flow.family {
        Family::V4 => {
            put16(packet, 2, total);
            if let Ok(mut packet) = ipv4::Ipv4Mut::parse(packet) {
                packet.fill_checksum();
            }
        }
        Family::V6 => put16(packet, 4, total.saturating_sub(ipv6::HEADER_LEN as u16)),
    }
    Ok(())
}

pub(crate) fn put16(bytes: &mut [u8], at: usize, value: u16) {
    if let Some(place) = bytes.get_mut(at..at + 2) {
        place.copy_from_slice(&value.to_be_bytes());
    }
}
