//! A ground for tests of gateways: inside port p has 192.0.2.1 and port 20000 + p mod 1000, while there is room.

use core::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4};

use carrack_base::Proto;

use crate::{Ends, Ground, Note, Side, Want};

/// Behind it stand IPv4 addresses.
const PREFIX: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x64, 0, 0, 0, 0, 0);

pub(crate) struct Field {
    pub(crate) opened: Vec<u16>,
    /// Dialogs of what was opened, and those that were closed.
    pub(crate) dialogs: Vec<u32>,
    pub(crate) closed: Vec<u32>,
    pub(crate) awaited: Vec<SocketAddrV4>,
    pub(crate) notes: Vec<Note>,
    pub(crate) calls: Vec<(u16, u16)>,
    pub(crate) room: bool,
}

impl Default for Field {
    fn default() -> Self {
        Self {
            opened: vec![],
            dialogs: vec![],
            closed: vec![],
            awaited: vec![],
            notes: vec![],
            calls: vec![],
            room: true,
        }
    }
}

impl Ground for Field {
    fn open(&mut self, want: &Want) -> Option<SocketAddrV4> {
        if !self.room {
            self.note(Note::NoRoom);
            return None;
        }
        self.opened.push(want.inside_port);
        self.dialogs.push(want.dialog);
        Some(SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 20_000 + want.inside_port % 1_000))
    }

    fn keep_call(&mut self, want: &Want, remote: u16) {
        self.calls.push((want.inside_port, remote));
    }

    fn inside_port(&mut self, _: Proto, outside_port: u16) -> Option<u16> {
        self.opened.iter().copied().find(|port| 20_000 + port % 1_000 == outside_port)
    }

    fn await_control(&mut self, server: SocketAddrV4) {
        self.awaited.push(server);
    }

    fn close(&mut self, dialog: u32) {
        self.closed.push(dialog);
    }

    fn four(&self, ip: Ipv6Addr) -> Option<Ipv4Addr> {
        (ip.to_bits() >> 32 == PREFIX.to_bits() >> 32).then(|| Ipv4Addr::from_bits(ip.to_bits() as u32))
    }

    fn six(&self, ip: Ipv4Addr) -> Option<Ipv6Addr> {
        Some(Ipv6Addr::from_bits(PREFIX.to_bits() | u128::from(ip.to_bits())))
    }

    fn note(&mut self, note: Note) {
        self.notes.push(note);
    }
}

/// A connection that this host opened to 198.51.100.7.
pub(crate) fn ends(inside: &str) -> Ends {
    Ends {
        inside: inside.parse().unwrap(),
        inside_port: 1_234,
        outside: "192.0.2.1:1234".parse().unwrap(),
        remote: "198.51.100.7:21".parse().unwrap(),
        client: Side::Inside,
        proto: Proto::Tcp,
    }
}
