//! A ground for tests of gateways: inside port p has 192.0.2.1 and port 20000 + p mod 1000, while there is room.

use core::net::{Ipv4Addr, SocketAddrV4};

use carrack_base::Proto;

use crate::{Ends, Ground, Note, Side, Want};

pub(crate) struct Field {
    pub(crate) opened: Vec<u16>,
    pub(crate) notes: Vec<Note>,
    pub(crate) room: bool,
}

impl Default for Field {
    fn default() -> Self {
        Self { opened: vec![], notes: vec![], room: true }
    }
}

impl Ground for Field {
    fn open(&mut self, want: &Want) -> Option<SocketAddrV4> {
        if !self.room {
            self.note(Note::NoRoom);
            return None;
        }
        self.opened.push(want.inside_port);
        Some(SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 20_000 + want.inside_port % 1_000))
    }

    fn inside_port(&mut self, _: Proto, outside_port: u16) -> Option<u16> {
        self.opened.iter().copied().find(|port| 20_000 + port % 1_000 == outside_port)
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
