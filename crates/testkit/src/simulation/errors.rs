//! ICMP errors about living sessions, both ways: they reach whom they concern and change nothing.

use carrack_nat::row::{Endpoint, HostEndpoint};
use carrack_wire::icmpv4::Icmpv4View;
use carrack_wire::icmpv6::Icmpv6View;
use carrack_wire::ipv4::Ipv4View;
use carrack_wire::ipv6::Ipv6View;
use carrack_wire::tcp::flag;

use super::behaviour::REMOTES;
use super::packets::{headers, packet};
use super::world::{INSIDE, OUTSIDE, endpoints_of, packet_ends};
use super::{Simulation, is_ours};

impl Simulation {
    /// RFC 5508 REQ-4: a router outside complains about a packet that went out.
    pub(super) fn error_from_outside(&mut self) -> Result<(), String> {
        let Some((side, (proto, inside, outside, remote))) = self.living(|_| true) else { return Ok(()) };
        let about = packet(proto, outside.into(), remote.into(), flag::ACK, INSIDE[side]);
        let quoted = self.quoted(20, about.len() - 14);
        let router = Endpoint { ip: REMOTES + 99, port: 0 };
        let frame = headers(HostEndpoint::from(router).ip, HostEndpoint::from(outside).ip, OUTSIDE)
            .icmp(3, [1, 2, 3, 13][self.random.below(4)], [0; 4])
            .payload(&about[14..14 + quoted])
            .build();
        let (passed, drops) = self.send(OUTSIDE, &frame)?;
        self.tell(&format!("side {side} error about {proto} {outside} > {remote}: {drops:?}"));
        let ends = passed.as_ref().map(|sent| endpoints_of(&sent.frame)).map(|(src, dst)| (src.ip, dst.ip));
        let about = passed.as_ref().and_then(|sent| about_whom(&sent.frame));
        let seen = self.seen_by(side, inside, remote);
        if ends != Some((self.seen_by(side, inside, router).ip, inside.ip))
            || about.is_none_or(|(src, dst)| src != inside.endpoint() || dst.ip != seen.ip)
        {
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
        let seen = self.seen_by(side, inside, remote);
        let about = packet(proto, seen, inside.endpoint(), flag::ACK, OUTSIDE);
        let (header, kind, code) = if inside.is_six() { (40, 1, 4) } else { (20, 3, 3) };
        let quoted = self.quoted(header, about.len() - 14);
        let frame = headers(inside.ip, seen.ip, INSIDE[side])
            .icmp(kind, code, [0; 4])
            .payload(&about[14..14 + quoted])
            .build();
        let (passed, drops) = self.send(INSIDE[side], &frame)?;
        self.tell(&format!("side {side} error about {proto} {remote} > {inside}: {drops:?}"));
        let ends = passed.as_ref().map(|sent| endpoints_of(&sent.frame)).map(|(src, dst)| (src.ip, dst.ip));
        let about = passed.as_ref().and_then(|sent| about_whom(&sent.frame));
        let [out, far] = [outside, remote].map(HostEndpoint::from);
        if ends != Some((out.ip, far.ip)) || about.is_none_or(|(src, dst)| dst != out || src.ip != far.ip) {
            return Err(format!("an error by {proto} {inside} to {remote}: {passed:?}, {drops:?}"));
        }
        self.summary.errors += 1;
        Ok(())
    }

    /// How much of a packet an error quotes: the least, a little, all.
    fn quoted(&mut self, header: usize, len: usize) -> usize {
        [header + 8, header + 20, len][self.random.below(3)].min(len)
    }
}

/// Source and destination of the packet that an error quotes; an ICMP query's identifier is both ends' port.
fn about_whom(frame: &[u8]) -> Option<(HostEndpoint, HostEndpoint)> {
    let packet = &frame[14..];
    if let Ok(outer) = Ipv4View::parse(packet) {
        return packet_ends(Icmpv4View::parse(outer.payload()).ok()?.embedded().ok()?.packet());
    }
    let outer = Ipv6View::parse(packet).ok()?;
    packet_ends(Icmpv6View::parse(outer.payload()).ok()?.embedded().ok()?.packet())
}
