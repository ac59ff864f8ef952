//! One pass does what the two steps do.

use carrack_base::{Proto, VrfId};
use proptest::prelude::*;

use super::*;
use crate::flow::{Flow, Kind, packed_key};
use crate::rewrite::{deltas, translate};

fn packet(
    proto: Proto,
    ttl: u8,
    from: (u32, u16),
    to: (u32, u16),
    udp_checksum: u16,
    rest: &[u8],
) -> Vec<u8> {
    let mut bytes = vec![0; 20];
    bytes[0] = 0x45;
    bytes[8] = ttl;
    bytes[9] = if proto == Proto::Tcp { 6 } else { 17 };
    bytes[12..16].copy_from_slice(&from.0.to_be_bytes());
    bytes[16..20].copy_from_slice(&to.0.to_be_bytes());
    bytes.extend(from.1.to_be_bytes());
    bytes.extend(to.1.to_be_bytes());
    bytes.extend(rest);
    let length = bytes.len() as u16;
    bytes[2..4].copy_from_slice(&length.to_be_bytes());
    if proto == Proto::Udp {
        bytes[26..28].copy_from_slice(&udp_checksum.to_be_bytes());
    }
    let checksum = carrack_wire::checksum::checksum(&bytes[..20]);
    bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
    bytes
}

/// What the forwarding stage does, spelled out: one less, and the checksum over the whole header anew.
fn decrement_ttl(bytes: &mut [u8]) {
    bytes[8] -= 1;
    bytes[10..12].copy_from_slice(&[0, 0]);
    let checksum = carrack_wire::checksum::checksum(&bytes[..20]);
    bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
}

proptest! {
    #[test]
    fn a_packed_key_is_the_flow_s_session_key(
        src: u32, dst: u32, sport: u16, dport: u16, vrf: u16, tcp: bool, out: bool,
    ) {
        let proto = if tcp { Proto::Tcp } else { Proto::Udp };
        let direction = if out { Direction::Out } else { Direction::In };
        let flow = Flow { src, dst, sport, dport, vrf: VrfId(vrf), proto, ..Flow::default() };
        let addresses = u64::from(src) << 32 | u64::from(dst);
        let ports = u32::from(sport) << 16 | u32::from(dport);
        prop_assert_eq!(packed_key(addresses, ports, VrfId(vrf), proto, direction), flow.session_key(direction));
    }

    /// RFC 4787 REQ-1 and RFC 1812 §5.3.1 in one pass leave the very bytes that two steps leave.
    #[test]
    fn crossing_is_translation_then_ttl_decrement(
        inside_ip: u32, inside_port: u16, outside_ip: u32, outside_port: u16, remote_ip: u32, remote_port: u16,
        tcp: bool, out: bool, ttl in 2u8.., udp_checksum: u16, no_checksum: bool,
        rest in proptest::collection::vec(any::<u8>(), 16..40),
    ) {
        let proto = if tcp { Proto::Tcp } else { Proto::Udp };
        let direction = if out { Direction::Out } else { Direction::In };
        let mut session = Session {
            inside_ip, inside_port, outside_ip, outside_port, remote_ip, remote_port,
            proto: proto as u8,
            tcp: if tcp { TcpState::Established as u8 } else { TcpState::None as u8 },
            ..Session::default()
        };
        (session.l3_delta, session.l4_delta) = deltas(&session);
        let remote = (remote_ip, remote_port);
        let (from, to) =
            if out { ((inside_ip, inside_port), remote) } else { (remote, (outside_ip, outside_port)) };
        let mut wanted = packet(proto, ttl, from, to, if no_checksum { 0 } else { udp_checksum }, &rest);
        let mut got = wanted.clone();
        let flow = Flow { proto, l3: 0, l4: 20, kind: Kind::Whole, ..Flow::default() };
        translate(&session, &flow, direction, &mut wanted);
        decrement_ttl(&mut wanted);
        let before = session;
        let head = got.first_chunk_mut().unwrap();
        Crossing { session: &mut session }.cross(direction, head, 77);
        prop_assert_eq!(got, wanted);
        let counted = (session.packets_out - before.packets_out, session.packets_in - before.packets_in);
        prop_assert_eq!(counted, if out { (1, 0) } else { (0, 1) });
        prop_assert_eq!(session.seen_s == 77, out);
    }

    #[test]
    fn a_session_is_found_by_its_own_packets_only(
        session in any::<[u8; 32]>(), out: bool, tcp: bool, established: bool, hairpin: bool, damage in 0u8..=5,
    ) {
        let word = |at: usize| u32::from_le_bytes([session[at], session[at + 1], session[at + 2], session[at + 3]]);
        let proto = if tcp { Proto::Tcp } else { Proto::Udp };
        let mut line = [Session {
            inside_ip: word(0), remote_ip: word(4), outside_ip: word(8),
            inside_port: word(12) as u16, remote_port: word(14) as u16, outside_port: word(16) as u16,
            inside_vrf: word(18) as u16, outside_vrf: word(20) as u16, proto: proto as u8,
            flags: if hairpin { HAIRPIN | REFRESH_IN } else { REFRESH_IN },
            tcp: if tcp && established { TcpState::Established as u8 } else { TcpState::None as u8 },
            ip_proto: 99,
            ..Session::default()
        }];
        let direction = if out { Direction::Out } else { Direction::In };
        let (mut addresses, mut ports, mut vrf) =
            (line[0].addresses(direction), line[0].ports(direction), line[0].vrf(direction));
        let state = common_state(proto, 0).unwrap();
        match damage {
            1 => addresses ^= 1 << (session[30] % 64),
            2 => ports ^= 1 << (session[30] % 32),
            3 => vrf ^= 1 << (session[30] % 16),
            _ => {}
        }
        let mut arena = carrack_tables::Arena::new("test", 1 << 16, carrack_tables::PagePreference::Small).unwrap();
        let index = carrack_tables::Index::new(&mut arena, 64).unwrap();
        let hasher = KeyedHasher::new([1; 4]);
        let directory = Directory::new(&crate::policy::NatPolicy::default(), &crate::WorkerGroup::new(1, [1; 4]));
        let mut tables =
            Crossings { hasher, index: index.view(), sessions: &mut line, directory: &directory };
        let found = tables.find(0, (addresses, ports), VrfId(vrf), state, direction).is_some();
        prop_assert_eq!(found, !(1..=3).contains(&damage) && !hairpin && (!tcp || established));
        prop_assert!(tables.find(1, (addresses, ports), VrfId(vrf), state, direction).is_none());
    }
}

#[test]
fn control_bits_that_open_or_close_are_never_common() {
    for bits in 0..=255u8 {
        let opens_or_closes = bits & (flag::SYN | flag::FIN | flag::RST) != 0;
        assert_eq!(common_state(Proto::Tcp, bits).is_none(), opens_or_closes);
    }
    assert!(common_state(Proto::Icmp, 0).is_none());
}

/// RFC 6146 §3.5.2.2: the first SYN from inside begins a connection and, sent again, changes nothing of it; any other
/// segment that opens or closes does.
#[test]
fn only_the_first_syn_from_inside_opens_tcp() {
    for bits in 0..=0x3f_u8 {
        let state = common_state_from_inside(Proto::Tcp, bits);
        let is_first = bits & (flag::SYN | flag::ACK | flag::FIN | flag::RST) == flag::SYN;
        assert_eq!(state.and_then(opened_by).is_some(), is_first, "{bits:02x}");
        if !is_first {
            assert_eq!(state, common_state(Proto::Tcp, bits));
        }
    }
    let udp = common_state_from_inside(Proto::Udp, 0).unwrap();
    assert_eq!((udp, opened_by(udp)), (common_state(Proto::Udp, 0).unwrap(), Some((Proto::Udp, 17, 0))));
}
