//! Interfaces, neighbours, routes.

use std::io::{self, Write};

use carrack_api::types::{Interface, Neighbour, Route};

use super::ShowRows;
use crate::human::{duration, number};
use crate::table::{Streaming, Table, left, right};

pub fn interfaces(out: &mut dyn Write, all: Vec<Interface>) -> io::Result<()> {
    let mut table = Table::new(&[
        left("NAME"),
        left("STATE"),
        right("RESUMED"),
        left("SIDE"),
        left("VRF"),
        left("VLAN"),
        right("MTU"),
        left("MAC"),
        right("RX PACKETS"),
        right("RX MISSED"),
        right("TX PACKETS"),
        left("DEVICE"),
        left("ADDRESSES"),
    ]);
    for i in all {
        let state = match (i.up, i.link) {
            (false, _) => "off",
            (true, false) => "no link",
            (true, true) => "up",
        };
        table.row(vec![
            i.name,
            state.into(),
            number(i.link_resumed),
            i.side,
            i.vrf,
            dash(i.vlan),
            i.mtu.to_string(),
            i.mac,
            number(i.rx_packets),
            number(i.rx_missed),
            number(i.tx_packets),
            dash(i.device),
            dash(i.addresses.join(" ")),
        ]);
    }
    table.print(out, "no interfaces")
}

pub fn neighbours(out: &mut dyn Write, all: Vec<Neighbour>) -> io::Result<()> {
    let columns = [left("INTERFACE"), left("ADDRESS"), left("MAC"), left("STATE"), right("AGE")];
    let mut table = Table::new(&columns);
    for n in all {
        table.row(vec![n.interface, n.address.to_string(), dash(n.mac), n.state, duration(n.age_s)]);
    }
    table.print(out, "no neighbours")
}

pub struct Routes(Streaming);

impl Routes {
    pub fn new() -> Self {
        Self(Streaming::new(&[
            left("VRF").wide(12),
            left("PREFIX").wide(18),
            left("KIND").wide(9),
            left("VIA").wide(15),
            left("INTERFACE"),
        ]))
    }
}

impl ShowRows for Routes {
    type Row = Route;

    fn row(&mut self, out: &mut dyn Write, r: Route) -> io::Result<()> {
        let via = r.gateway.map_or_else(|| "-".into(), |gateway| gateway.to_string());
        self.0.row(out, &[r.vrf, r.prefix, r.kind, via, r.interface.unwrap_or_else(|| "-".into())])
    }

    fn finish(mut self, out: &mut dyn Write) -> io::Result<()> {
        self.0.finish(out, "no routes")
    }
}

fn dash(text: String) -> String {
    if text.is_empty() { "-".into() } else { text }
}
