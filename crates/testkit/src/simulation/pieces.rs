//! RFC 4787 REQ-14: datagrams in pieces, in any order, each piece perhaps by another worker.

use carrack_base::{Proto, Reason};
use carrack_nat::row::Endpoint;
use carrack_wire::PacketBuilder;

use super::world::{self, INSIDE, OUTSIDE, endpoint_of};
use super::{Simulation, is_ours};
use crate::network::{Sent, mac_of};
use crate::reference::{Shown, is_shortage};

impl Simulation {
    pub(super) fn out_in_pieces(&mut self) -> Result<(), String> {
        let side = self.side();
        let (inside, remote) = (self.inside(Proto::Udp), self.remote(Proto::Udp));
        let (sent, drops) = self.send_pieces(INSIDE[side], inside, remote);
        self.tell(&format!("side {side} pieces {inside} > {remote} {drops:?}"));
        let shown = match first_of(&sent, &drops)? {
            Some(first) => match endpoint_of(&first.frame).0 {
                source if source.ip == inside.ip => Shown::Untouched,
                source => Shown::Translated(source),
            },
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
        let (sent, drops) = self.send_pieces(OUTSIDE, remote, outside);
        self.tell(&format!("side {side} pieces {remote} > {outside} {drops:?}"));
        let Some(first) = first_of(&sent, &drops)? else {
            return Err(format!("pieces to {outside}: {drops:?}"));
        };
        let to = endpoint_of(&first.frame).1;
        if to != inside {
            return Err(format!("pieces to {outside} reached {to}, not {inside}"));
        }
        self.summary.pieces += 1;
        self.references[side].came_in(Proto::Udp, remote, outside, 0, Shown::Translated(to))
    }

    fn send_pieces(&mut self, port: u16, src: Endpoint, dst: Endpoint) -> (Vec<Sent>, Vec<Reason>) {
        let whole =
            PacketBuilder::new().ipv4(src.ip, dst.ip).udp(src.port, dst.port).payload(&[0x5a; 600]).build();
        let id = self.random.bits() as u16;
        let piece = |from: usize, to: usize, more: bool| {
            PacketBuilder::new()
                .ethernet(mac_of(src.ip), world::port_mac(port))
                .ipv4(src.ip, dst.ip)
                .protocol(17)
                .identification(id)
                .fragment(from as u16, more)
                .payload(&whole[20 + from..20 + to])
                .build()
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
    let first = sent.iter().find(|s| s.frame[14 + 6..14 + 8] == [0x20, 0]);
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
