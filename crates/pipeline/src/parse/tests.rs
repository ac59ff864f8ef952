use std::sync::Arc;

use carrack_base::{IfIndex, PortId, Prefix4, VrfId};
use carrack_nat::Rng;
use carrack_nat::policy::NatPolicy;
use carrack_wire::tcp::flag;
use carrack_wire::{MacAddr, PacketBuilder, checksum};

use super::{Parsed, parse, parse_common};
use crate::burst::Meta;
use crate::plan::Plan;
use crate::snapshot::{Interface, Policers, Port, Side, Snapshot, Vlan};

const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const PEER: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

fn plan(side: Side) -> Plan {
    let address = u32::from_be_bytes([10, 0, 0, 1]);
    let interface = Interface {
        id: IfIndex(0),
        name: "in".into(),
        port: PortId(0),
        vlan: Vlan::None,
        mac: MAC,
        vrf: VrfId(1),
        side,
        up: true,
        mtu: 1_500,
        addresses: vec![(address, Prefix4::of(address, 16))],
        ipv6: None,
        urpf: false,
        icmp_errors: Default::default(),
    };
    Plan::new(Arc::new(Snapshot {
        generation: 1,
        ports: vec![Port { id: PortId(0), name: "in".into(), mac: MAC }],
        interfaces: vec![Some(interface)],
        vrfs: vec!["default".into(), "blue".into()],
        routes: vec![],
        routes6: vec![],
        policers: Policers::default(),
        fragment_timeout_ms: 2_000,
        siit: vec![],
        nat: Arc::new(NatPolicy::default()),
    }))
}

fn seeds() -> Vec<Vec<u8>> {
    let packet = || PacketBuilder::new().ethernet(PEER, MAC).ipv4([10, 0, 0, 5], [198, 51, 100, 7]);
    vec![
        packet().udp(1_000, 53).payload(b"a question").build(),
        padded(packet().udp(1_000, 53).build()),
        packet().tcp(1_000, 80, flag::SYN).build(),
        packet().tcp(1_000, 80, flag::ACK).tcp_options(&[1; 12]).payload(b"data").build(),
        packet().echo_request(1, 1).build(),
        packet().protocol(47).payload(&[0; 8]).build(),
        packet().fragment(0, true).udp(1, 2).payload(&[0; 16]).build(),
        packet().ip_options(&[1; 4]).udp(1, 2).build(),
        packet().vlan(5).udp(1, 2).build(),
    ]
}

/// As an Ethernet card hands over a short packet.
fn padded(mut frame: Vec<u8>) -> Vec<u8> {
    frame.resize(60, 0);
    frame
}

fn fix_checksum(frame: &mut [u8]) {
    if let Some(header) = frame.get_mut(14..34) {
        header[10..12].fill(0);
        let sum = checksum::checksum(header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
    }
}

/// One of the seeds with a few octets changed, mostly with a right header checksum.
fn mutated(rng: &mut Rng, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut frame = seeds[rng.next_u16() as usize % seeds.len()].clone();
    for _ in 0..rng.next_u16() % 3 {
        let at = rng.next_u16() as usize % frame.len();
        // Small numbers and single bits find more edges than noise does.
        let noise = rng.next_u16();
        frame[at] = if noise & 1 == 0 { frame[at] ^ (1 << (noise >> 13)) } else { (noise >> 8) as u8 };
    }
    match rng.next_u16() % 8 {
        0 => {}
        1 => {
            let len = rng.next_u16() as usize % (frame.len() + 1);
            frame.truncate(len);
            fix_checksum(&mut frame);
        }
        _ => fix_checksum(&mut frame),
    }
    frame
}

#[test]
fn the_fast_parser_accepts_nothing_that_the_careful_one_refuses_and_sees_nothing_differently() {
    let (seeds, mut rng) = (seeds(), Rng::new(11));
    for side in [Side::Inside, Side::Outside, Side::Plain] {
        let plan = plan(side);
        let common = plan.common(PortId(0)).unwrap();
        let mut accepted = 0;
        for _ in 0..60_000 {
            let frame = mutated(&mut rng, &seeds);
            let mut fast = Meta { traced: 9, mtu: 9, ..Meta::default() };
            if !parse_common(&common, &frame, &mut fast) {
                continue;
            }
            accepted += 1;
            let mut careful = Meta::default();
            let parsed = parse(&plan, PortId(0), &frame, &mut careful);
            assert_eq!(parsed, Ok(Parsed::Ipv4), "{frame:02x?}");
            assert_eq!(format!("{fast:?}"), format!("{careful:?}"), "{frame:02x?}");
            assert!(crate::worker::check_path(&plan, &frame, &careful).is_ok(), "{frame:02x?}");
        }
        assert!(accepted > 10_000, "only {accepted} were common");
    }
}

#[test]
fn the_fast_parser_takes_all_that_is_common() {
    let plan = plan(Side::Inside);
    let common = plan.common(PortId(0)).unwrap();
    let taken: Vec<bool> =
        seeds().iter().map(|frame| parse_common(&common, frame, &mut Meta::default())).collect();
    assert_eq!(taken, [true, true, true, true, false, false, false, false, false]);
}
