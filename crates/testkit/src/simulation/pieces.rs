//! RFC 4787 REQ-14: datagrams in pieces, in any order, each piece perhaps by another worker.

use std::net::IpAddr;

use carrack_base::{Proto, Reason};
use carrack_nat::row::HostEndpoint;
use carrack_wire::ipv6::Ipv6View;

use super::packets::headers;
use super::world::{self, INSIDE, OUTSIDE};
use super::{Simulation, is_ours, sent_out};
use crate::network::Sent;
use crate::reference::{Shown, is_shortage};

impl Simulation {
    pub(super) fn out_in_pieces(&mut self) -> Result<(), String> {
        let side = self.side();
        let (inside, remote) = (self.inside(side, Proto::Udp), self.remote(Proto::Udp));
        let seen = self.seen_by(side, inside, remote);
        let (sent, drops) = self.send_pieces(INSIDE[side], inside.endpoint(), seen);
        self.tell(&format!("side {side} pieces {inside} > {remote} {drops:?}"));
        let shown = match first_of(&sent, &drops)? {
            Some(first) => sent_out(first, inside, remote)?,
            None => Shown::Dropped(why(&drops)?),
        };
        let shown = if shown == Shown::Dropped(Reason::NoRoute) { Shown::Untouched } else { shown };
        self.summary.pieces += u64::from(drops.is_empty());
        let told = self.references[side].went_out(Proto::Udp, inside, remote, 0, shown);
        told.map_err(|error| format!("pieces {inside} to {remote}: {error}; {shown:?}"))
    }

    pub(super) fn in_in_pieces(&mut self) -> Result<(), String> {
        let Some((side, (_, inside, outside, remote))) =
            self.living(|l| l.0 == Proto::Udp && !is_ours(l.3.ip))
        else {
            return Ok(());
        };
        let (sent, drops) = self.send_pieces(OUTSIDE, remote.into(), outside.into());
        self.tell(&format!("side {side} pieces {remote} > {outside} {drops:?}"));
        let Some(first) = first_of(&sent, &drops)? else {
            return Err(format!("pieces to {outside}: {drops:?}"));
        };
        let (to, _) = self.delivery(side, first)?;
        if to != inside {
            return Err(format!("pieces to {outside} reached {to}, not {inside}"));
        }
        self.summary.pieces += 1;
        self.references[side].came_in(Proto::Udp, remote, outside, 0, Shown::Delivered(to))
    }

    fn send_pieces(&mut self, port: u16, src: HostEndpoint, dst: HostEndpoint) -> (Vec<Sent>, Vec<Reason>) {
        let frame = || headers(src.ip, dst.ip, port);
        let whole = frame().udp(src.port, dst.port).payload(&[0x5a; 600]).build();
        let id = self.random.bits() as u16;
        let datagram = &whole[whole.len() - 608..];
        let piece = |from: usize, to: usize, more: bool| {
            let piece = match src.ip {
                IpAddr::V4(_) => frame().identification(id).fragment(from as u16, more),
                IpAddr::V6(_) => frame().fragment6(from as u16, more, id.into()),
            };
            piece.protocol(17).payload(&datagram[from..to]).build()
        };
        let mut pieces = vec![piece(0, 200, true), piece(200, 400, true), piece(400, 608, false)];
        let turn = self.random.below(3);
        pieces.rotate_left(turn);
        if self.random.one_in(2) {
            pieces.swap(0, 1);
        }
        let (mut sent, mut drops) = (vec![], vec![]);
        for frame in &pieces {
            let worker = self.random.below(self.world.network.workers.len());
            let (left, dropped) = self.world.send(worker, port, frame);
            sent.extend(left.into_iter().filter(|s| !world::is_own_error(s)));
            drops.extend(dropped);
        }
        (sent, drops)
    }
}

/// The first fragment, when all pieces left.
fn first_of<'a>(sent: &'a [Sent], drops: &[Reason]) -> Result<Option<&'a Sent>, String> {
    if !drops.is_empty() {
        return Ok(None);
    }
    if sent.len() != 3 {
        return Err(format!("{} of 3 pieces left", sent.len()));
    }
    let is_first = |packet: &[u8]| match Ipv6View::parse(packet).map(|ip| ip.extensions()) {
        Ok(Ok(chain)) => chain.fragment.is_some_and(|fragment| fragment.offset == 0 && fragment.more),
        _ => packet[6..8] == [0x20, 0],
    };
    let first = sent.iter().find(|s| is_first(&s.frame[14..]));
    first.ok_or_else(|| "no first fragment left".into()).map(Some)
}

/// Why pieces were dropped: the first's reason, which the others only follow.
fn why(drops: &[Reason]) -> Result<Reason, String> {
    let known = |r: &Reason| {
        is_shortage(*r)
            || matches!(r, Reason::NatSubscriberDenied | Reason::NatProtocolUnsupported | Reason::NoRoute)
    };
    drops.iter().copied().find(known).ok_or_else(|| format!("pieces dropped for {drops:?}"))
}
