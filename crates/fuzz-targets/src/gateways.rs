//! Application gateways: any conversation, in any pieces, through every gateway.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV4};

use carrack_alg::stream::{Halves, Passed, Scratch, Talk};
use carrack_alg::{Edits, Ends, Ground, Memory, Note, Protocol, Reading, Said, Side, Want};
use carrack_base::Proto;
use carrack_wire::TcpView;

/// Gives endpoints as long as there are any.
struct Field {
    left: u8,
}

impl Ground for Field {
    fn open(&mut self, want: &Want) -> Option<SocketAddrV4> {
        assert!(want.inside_port != 0 && want.lifetime_s != 0, "{want:?}");
        self.left = self.left.checked_sub(1)?;
        Some(SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), want.inside_port ^ 0x4001))
    }

    fn keep_call(&mut self, want: &Want, remote: u16) {
        assert!(want.inside_port != 0 && remote != 0, "{want:?}");
    }

    fn inside_port(&mut self, _: Proto, outside_port: u16) -> Option<u16> {
        (!outside_port.is_multiple_of(3)).then_some(outside_port ^ 0x4001)
    }

    fn await_control(&mut self, _: SocketAddrV4) {}

    fn close(&mut self, dialog: u32) {
        assert!(dialog != 0, "0 is no dialog");
    }

    fn four(&self, ip: Ipv6Addr) -> Option<Ipv4Addr> {
        (ip.to_bits() >> 96 == 0x2001_0db8).then(|| Ipv4Addr::from_bits(ip.to_bits() as u32))
    }

    fn six(&self, ip: Ipv4Addr) -> Option<Ipv6Addr> {
        Some(Ipv6Addr::from_bits(0x2001_0db8 << 96 | u128::from(ip.to_bits())))
    }

    fn note(&mut self, _: Note) {}
}

/// The first octet says which gateway (its lower half) and which ends; then come pieces: an octet with the side, one with the length, the
/// piece itself.
pub(crate) fn talk(input: &[u8]) {
    let Some((first, rest)) = input.split_first() else { return };
    let protocol = Protocol::ALL[usize::from(*first & 15) % Protocol::ALL.len()];
    let crosses = first & 0x80 != 0;
    let (udp, port) = (first & 0x20 != 0, server(protocol));
    let over_udp =
        protocol.is_served_at(Proto::Udp, port) && (udp || !protocol.is_served_at(Proto::Tcp, port));
    let proto = if over_udp { Proto::Udp } else { Proto::Tcp };
    let ends = Ends {
        inside: if crosses { "2001:db8::5".parse().unwrap() } else { IpAddr::V4(Ipv4Addr::new(10, 0, 0, 5)) },
        inside_port: 5_060,
        outside: SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 40_000),
        // H.323 has two kinds of connection, by the port.
        remote: SocketAddrV4::new(
            Ipv4Addr::new(198, 51, 100, 7),
            port + u16::from(protocol == Protocol::H323 && first & 0x10 != 0),
        ),
        client: if first & 0x40 != 0 { Side::Outside } else { Side::Inside },
        proto,
    };
    let mut conversation = Conversation {
        ends,
        protocol,
        memory: Memory::default(),
        field: Field { left: 20 },
        talk: Talk::default(),
        halves: Halves::new(2),
        scratch: Scratch::default(),
        next: [1_000, 2_000],
    };
    let mut rest = rest;
    while let Some(([side, len], more)) = rest.split_first_chunk() {
        let (piece, more) = more.split_at(more.len().min(usize::from(*len)));
        let side = if side & 1 == 0 { Side::Inside } else { Side::Outside };
        match proto {
            Proto::Tcp => conversation.segment(side, piece),
            _ => {
                conversation.read(side, piece);
            }
        }
        rest = more;
    }
    conversation.talk.forget(&mut conversation.halves);
    assert_eq!(conversation.halves.used(), 0, "what was held is given back");
}

fn server(protocol: Protocol) -> u16 {
    let ports = [21, 69, 5_060, 554, 1_723, 500, 1_720];
    let is_its =
        |port: &u16| protocol.is_served_at(Proto::Tcp, *port) || protocol.is_served_at(Proto::Udp, *port);
    ports.into_iter().find(is_its).expect("every gateway has a port")
}

struct Conversation {
    ends: Ends,
    protocol: Protocol,
    memory: Memory,
    field: Field,
    talk: Talk,
    halves: Halves,
    scratch: Scratch,
    next: [u32; 2],
}

impl Conversation {
    /// A message alone.
    fn read(&mut self, side: Side, message: &[u8]) {
        let mut edits = Edits::default();
        let Self { protocol, memory, ends, field, .. } = self;
        let said = Said { memory, side, bytes: message, ends, ground: field, edits: &mut edits };
        check(protocol.read(said), message, &edits);
        let mut out = vec![0; message.len() + carrack_alg::EDIT_TEXT_MAX];
        assert!(edits.apply(message, &mut out).is_some(), "changes fit");
    }

    /// A piece of a stream; what it becomes is a segment.
    fn segment(&mut self, side: Side, piece: &[u8]) {
        let Self { protocol, memory, ends, field, talk, halves, scratch, next, .. } = self;
        let (mine, other) = (next[side as usize], next[side.other() as usize]);
        let mut bytes = vec![0; 20];
        bytes[4..8].copy_from_slice(&mine.to_be_bytes());
        bytes[8..12].copy_from_slice(&other.to_be_bytes());
        (bytes[12], bytes[13]) = (5 << 4, 0x10);
        bytes.extend(piece);
        let passed = talk.pass(side, &bytes, halves, scratch, |message, edits| {
            let said = Said { memory, side, bytes: message, ends, ground: field, edits: &mut *edits };
            let reading = protocol.read(said);
            check(reading, message, edits);
            reading
        });
        if passed.is_ok() {
            next[side as usize] = mine.wrapping_add(piece.len() as u32);
        }
        if let Ok(Passed::Changed(len)) = passed {
            TcpView::parse(&scratch.out[..len]).expect("a segment");
        }
    }
}

fn check(reading: Reading, message: &[u8], edits: &Edits) {
    if let Reading::Done(count) = reading {
        assert!(count > 0 && count <= message.len().max(1), "{count} of {}", message.len());
        assert!(edits.iter().all(|(place, _)| place.end <= count), "changes are within what was read");
    }
}
