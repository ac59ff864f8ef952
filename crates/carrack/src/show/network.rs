//! Interfaces, neighbours, routes.

use std::io::{self, Write};
use std::net::Ipv6Addr;

use carrack_api::types::{AddressState, Interface, Neighbour, Route};

use super::ShowRows;
use crate::human::{bytes, duration, number};
use crate::table::{Streaming, Table, left, right};

pub fn interfaces(out: &mut dyn Write, all: Vec<Interface>) -> io::Result<()> {
    // Rarely anything but zero, so that their columns are there only when needed.
    type Get = fn(&Interface) -> u64;
    let faults: [(&'static str, Get); 3] =
        [("RX ERRORS", |i| i.rx_errors), ("RX NO BUFFER", |i| i.rx_nombuf), ("TX ERRORS", |i| i.tx_errors)];
    let faults: Vec<_> = faults.into_iter().filter(|(_, get)| all.iter().any(|i| get(i) > 0)).collect();
    let mut columns = vec![
        left("NAME"),
        left("STATE"),
        right("RESUMED"),
        left("SIDE"),
        left("VRF"),
        left("VLAN"),
        right("MTU"),
        left("MAC"),
        right("RX PACKETS"),
        right("RX BYTES"),
        right("RX MISSED"),
        right("TX PACKETS"),
        right("TX BYTES"),
    ];
    columns.extend(faults.iter().map(|(name, _)| right(name)));
    columns.extend([left("DEVICE"), left("ADDRESSES")]);
    let mut table = Table::new(&columns);
    for i in all {
        let state = match (i.up, i.link) {
            (false, _) => "off",
            (true, false) => "no link",
            (true, true) => "up",
        };
        let addresses: Vec<_> = i.addresses.iter().map(|own| address(own, &i.address_states)).collect();
        let counts: Vec<_> = faults.iter().map(|(_, get)| number(get(&i))).collect();
        let mut cells = vec![
            i.name,
            state.into(),
            number(i.link_resumed),
            i.side,
            i.vrf,
            dash(i.vlan),
            i.mtu.to_string(),
            i.mac,
            number(i.rx_packets),
            bytes(i.rx_bytes),
            number(i.rx_missed),
            number(i.tx_packets),
            bytes(i.tx_bytes),
        ];
        cells.extend(counts);
        cells.extend([dash(i.device), dash(addresses.join(" "))]);
        table.row(cells);
    }
    table.print(out, "no interfaces")
}

/// An own address with its prefix length, and why it is not used when it is not.
fn address(own: &str, states: &[AddressState]) -> String {
    let ip = own.split_once('/').and_then(|(ip, _)| ip.parse::<Ipv6Addr>().ok());
    let unused = states.iter().find(|state| Some(state.address) == ip && state.state != "preferred");
    match unused {
        Some(AddressState { state, held_by: Some(mac), .. }) => format!("{own} ({state} of {mac})"),
        Some(AddressState { state, .. }) => format!("{own} ({state})"),
        None => own.to_owned(),
    }
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
        let via = r.gateway.map(|gateway| gateway.to_string()).or(r.translator);
        let via = via.unwrap_or_else(|| "-".into());
        self.0.row(out, &[r.vrf, r.prefix, r.kind, via, r.interface.unwrap_or_else(|| "-".into())])
    }

    fn finish(mut self, out: &mut dyn Write) -> io::Result<()> {
        self.0.finish(out, "no routes")
    }
}

fn dash(text: String) -> String {
    if text.is_empty() { "-".into() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_have_a_column_only_where_there_are_some() -> io::Result<()> {
        let shown = |all: &[Interface]| {
            let mut out = Vec::new();
            interfaces(&mut out, all.to_vec())?;
            Ok::<_, io::Error>(String::from_utf8_lossy(&out).into_owned())
        };
        let well = Interface { name: "a".into(), ..Interface::default() };
        let text = shown(std::slice::from_ref(&well))?;
        assert!(!text.contains("ERRORS") && !text.contains("BUFFER"), "{text}");
        let text = shown(&[well, Interface { rx_errors: 7, ..Interface::default() }])?;
        assert!(text.contains("RX ERRORS") && !text.contains("TX ERRORS"), "{text}");
        Ok(())
    }
}
