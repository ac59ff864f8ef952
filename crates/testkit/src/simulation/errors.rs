//! ICMP errors about living sessions, both ways: they reach whom they concern and change nothing.

use carrack_base::Proto;
use carrack_wire::PacketBuilder;
use carrack_wire::icmpv4::Icmpv4View;
use carrack_wire::ipv4::Ipv4View;
use carrack_wire::tcp::flag;

use super::behaviour::REMOTES;
use super::world::{self, INSIDE, OUTSIDE, endpoint_of};
use super::{Simulation, is_ours, packet};
use crate::network::mac_of;

impl Simulation {
    /// RFC 5508 REQ-4: a router outside complains about a packet that went out.
    pub(super) fn error_from_outside(&mut self) -> Result<(), String> {
        let Some((side, (proto, inside, outside, remote))) = self.living(|_| true) else { return Ok(()) };
        let about = packet(proto, outside, remote, flag::ACK, INSIDE[side]);
        let quoted = self.quoted(about.len() - 14);
        let router = REMOTES + 99;
        let frame = PacketBuilder::new()
            .ethernet(mac_of(router), world::port_mac(OUTSIDE))
            .ipv4(router, outside.ip)
            .icmp(3, [1, 2, 3, 13][self.random.below(4)], [0; 4])
            .payload(&about[14..14 + quoted])
            .build();
        let (passed, drops) = self.send(OUTSIDE, &frame)?;
        self.tell(&format!("side {side} error about {proto} {outside} > {remote}: {drops:?}"));
        let to = passed.as_ref().map(|sent| endpoint_of(&sent.frame).1.ip);
        let about = passed.as_ref().and_then(|sent| about_whom(&sent.frame, proto));
        if to != Some(inside.ip) || about.is_none_or(|(src, _)| src != (inside.ip, inside.port)) {
            return Err(format!("an error about {proto} {inside}: {passed:?}, {drops:?}"));
        }
        self.summary.errors += 1;
        Ok(())
    }

    /// RFC 5508 REQ-5: a subscriber complains about a packet that came in.
    pub(super) fn error_from_inside(&mut self) -> Result<(), String> {
        let Some((side, (proto, inside, outside, remote))) = self.living(|l| !is_ours(l.3.ip)) else {
            return Ok(());
        };
        // For ICMP what came in was an answer.
        let about = packet(proto, remote, inside, flag::ACK, OUTSIDE);
        let quoted = self.quoted(about.len() - 14);
        let frame = PacketBuilder::new()
            .ethernet(mac_of(inside.ip), world::port_mac(INSIDE[side]))
            .ipv4(inside.ip, remote.ip)
            .icmp(3, 3, [0; 4])
            .payload(&about[14..14 + quoted])
            .build();
        let (passed, drops) = self.send(INSIDE[side], &frame)?;
        self.tell(&format!("side {side} error about {proto} {remote} > {inside}: {drops:?}"));
        let ends = passed.as_ref().map(|sent| endpoint_of(&sent.frame)).map(|(src, dst)| (src.ip, dst.ip));
        let about = passed.as_ref().and_then(|sent| about_whom(&sent.frame, proto));
        if ends != Some((outside.ip, remote.ip))
            || about.is_none_or(|(_, dst)| dst != (outside.ip, outside.port))
        {
            return Err(format!("an error by {proto} {inside} to {remote}: {passed:?}, {drops:?}"));
        }
        self.summary.errors += 1;
        Ok(())
    }

    /// How much of a packet an error quotes: the least, a little, all.
    fn quoted(&mut self, len: usize) -> usize {
        [28, 40, len][self.random.below(3)].min(len)
    }
}

/// Source and destination of the packet that an error quotes; an ICMP query's identifier is both ends' port.
fn about_whom(frame: &[u8], proto: Proto) -> Option<((u32, u16), (u32, u16))> {
    let outer = Ipv4View::parse(&frame[14..]).ok()?;
    let inner = Icmpv4View::parse(outer.payload()).ok()?.embedded().ok()?;
    let word = |at: usize| inner.payload().get(at..at + 2).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]));
    let (sport, dport) = match proto {
        Proto::Tcp | Proto::Udp => (word(0), word(2)),
        Proto::Icmp => (word(4), word(4)),
        Proto::Other => (0, 0),
    };
    Some(((inner.src(), sport), (inner.dst(), dport)))
}
