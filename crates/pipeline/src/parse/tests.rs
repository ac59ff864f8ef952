use std::sync::Arc;

use carrack_base::{Family, IfIndex, PortId, Prefix4, Proto, VrfId};
use carrack_frame::{Frame, FramePool, MemPool};
use carrack_nat::policy::NatPolicy;
use carrack_nat::{Direction, Rng, common_state, common_state_from_inside, packed_key};
use carrack_vector::{Pass, Quads};
use carrack_wire::tcp::flag;
use carrack_wire::{MacAddr, PacketBuilder, checksum};

use super::{Parsed, common_link, in_transit, parse, parse_common, recognise, recognise_six};
use crate::burst::Meta;
use crate::express::{pattern, pattern_six};
use crate::plan::{Common, Plan};
use crate::snapshot::{Interface, Policers, Port, Side, Snapshot, Vlan};

const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const PEER: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

fn plan(side: Side) -> Plan {
    plan_of(side, Vlan::None)
}

fn plan_of(side: Side, vlan: Vlan) -> Plan {
    let address = u32::from_be_bytes([10, 0, 0, 1]);
    let interface = Interface {
        id: IfIndex(0),
        name: "in".into(),
        port: PortId(0),
        vlan,
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
    frame.resize(frame.len().max(60), 0);
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

/// What is known of a packet that is looked at alone.
fn alone<const OUT: bool, const TAG: usize>(common: &Common, frame: &[u8]) -> Option<Pass> {
    let seen = recognise::<TAG>(common, frame)?;
    let state = if OUT { common_state_from_inside } else { common_state }(seen.proto, seen.bits)?;
    let direction = if OUT { Direction::Out } else { Direction::In };
    let [addresses, hash] = packed_key(seen.addresses, seen.ports, common.vrf, seen.proto, direction);
    let pass = Pass { addresses, hash, ports: seen.ports, state, total: seen.total, ..Pass::UNKNOWN };
    (OUT || in_transit(addresses as u32)).then_some(pass)
}

/// Now and then with a field at an edge of what is common, or with much to add up.
fn at_an_edge(rng: &mut Rng, frame: &mut [u8]) {
    match rng.below(48) {
        0 => frame[22] = rng.below(3) as u8,
        1 => frame[30] = [0, 1, 126, 127, 128, 223, 224, 255][rng.below(8)],
        2 => (frame[38], frame[39]) = (0, 7 + rng.below(3) as u8),
        3..16 => {
            frame[15] = 0xff;
            frame[18..20].fill(0xff);
            frame[26..30].fill(0xff);
            frame[30] = 223;
            frame[31..34].fill(0xff);
        }
        _ => return,
    }
    fix_checksum(frame);
}

/// How groups of four packets are seen at once, and what is known of one that is looked at alone.
struct Eyes<A, B> {
    at_once: A,
    alone: B,
    /// Brings one to an edge of what is common.
    at_an_edge: fn(&mut Rng, &mut [u8]),
}

/// A plan with one interface on this side, and the tags of its packets.
fn tagged<const TAG: usize>(side: Side) -> (Plan, &'static [u8]) {
    let (vlan, tags): (_, &[u8]) = match TAG {
        0 => (Vlan::None, &[]),
        4 => (Vlan::Single(5), &[0x81, 0, 0x20, 5]),
        _ => (Vlan::Double { outer: 6, inner: 5, dot1ad: true }, &[0x88, 0xa8, 0, 6, 0x81, 0, 0x60, 5]),
    };
    (plan_of(side, vlan), tags)
}

fn common_like(plan: &Plan, tags: &[u8], frame: &[u8]) -> Common {
    let mut frame = frame.to_vec();
    frame.splice(12..12, tags.iter().copied());
    let common = plan.common_like(PortId(0), &frame).unwrap();
    assert_eq!(usize::from(common.tag_bytes), tags.len());
    common
}

/// Groups of four of which three packets are common: how many were known whole, and how many were not.
fn by_fours<const OUT: bool, const TAG: usize>(seeds: &[Vec<u8>], rng: &mut Rng) -> [u32; 2] {
    let (plan, tags) = tagged::<TAG>(if OUT { Side::Inside } else { Side::Outside });
    let (common, quads) = (common_like(&plan, tags, &seeds[0]), Quads::detect().unwrap());
    let eyes = Eyes {
        at_once: |frames: &[Frame], passes: &mut [Pass]| {
            quads.recognise::<TAG>(&pattern::<OUT, TAG>(&common), frames, passes)
        },
        alone: |frame: &[u8]| alone::<OUT, TAG>(&common, frame),
        at_an_edge,
    };
    in_groups(&eyes, tags, seeds, rng)
}

/// The same of IPv6.
fn sixes_by_fours<const TAG: usize>(seeds: &[Vec<u8>], rng: &mut Rng) -> [u32; 2] {
    let (plan, tags) = tagged::<TAG>(Side::Inside);
    let (common, quads) = (common_like(&plan, tags, &seeds[0]), Quads::detect().unwrap());
    let link = common_link(MAC, &plan.line(IfIndex(0)).unwrap().header, Family::V6);
    let eyes = Eyes {
        at_once: |frames: &[Frame], passes: &mut [Pass]| {
            quads.recognise_six::<TAG>(&pattern_six::<TAG>(&common, link), frames, passes)
        },
        alone: |frame: &[u8]| {
            let seen = recognise_six::<TAG>(&common, &link, frame)?;
            let state = common_state_from_inside(seen.proto, seen.bits)?;
            Some(Pass { ports: seen.ports, state, total: seen.total, six: true, ..Pass::UNKNOWN })
        },
        at_an_edge: six_at_an_edge,
    };
    in_groups(&eyes, tags, seeds, rng)
}

/// Now and then with a field at an edge of what is common.
fn six_at_an_edge(rng: &mut Rng, frame: &mut [u8]) {
    let payload = frame.len() as u16 - 54;
    match rng.below(48) {
        0 => frame[21] = rng.below(3) as u8,
        1 => frame[18..20].copy_from_slice(&(payload + rng.below(3) as u16 - 1).to_be_bytes()),
        2 => (frame[58], frame[59]) = (0, 7 + rng.below(3) as u8),
        3 => frame[58..60].copy_from_slice(&(payload + rng.below(3) as u16 - 1).to_be_bytes()),
        4 => frame[60..62].fill(0),
        5 => frame[66] = (4 + rng.below(3) as u8) << 4,
        6 => frame[67] = rng.next_u16() as u8,
        _ => {}
    }
}

fn in_groups(
    eyes: &Eyes<impl Fn(&[Frame], &mut [Pass]) -> usize, impl Fn(&[u8]) -> Option<Pass>>,
    tags: &[u8],
    seeds: &[Vec<u8>],
    rng: &mut Rng,
) -> [u32; 2] {
    let mut pool = MemPool::new(8, 256, 128);
    let mut counts = [0; 2];
    for _ in 0..40_000 {
        let odd = rng.below(4);
        let mut frames = vec![];
        for at in 0..4 {
            let mut frame =
                if at == odd { mutated(rng, seeds) } else { padded(seeds[rng.below(seeds.len())].clone()) };
            if frame.len() >= seeds[0].len().min(72) {
                (eyes.at_an_edge)(rng, &mut frame);
            }
            if frame.len() >= 12 {
                frame.splice(12..12, tags.iter().copied());
            }
            if at == odd && rng.below(8) == 0 && frame.len() > 24 {
                frame[rng.below(24)] ^= 1 << rng.below(8);
            }
            frames.push(pool.alloc_copy(&frame).unwrap());
        }
        let wanted: Option<Vec<_>> = frames.iter().map(|frame| (eyes.alone)(frame.bytes())).collect();
        let mut passes = [Pass { stateless: 9, six: true, line: 3, ..Pass::UNKNOWN }; 4];
        let known = (eyes.at_once)(&frames, &mut passes);
        let bytes = || frames.iter().map(|frame| format!("{:02x?}", frame.bytes())).collect::<Vec<_>>();
        match wanted {
            Some(wanted) => {
                assert!(known == 4 && wanted == passes, "{passes:x?}, not {wanted:x?}: {:?}", bytes())
            }
            None => assert_eq!(known, 0, "{:?}", bytes()),
        }
        counts[usize::from(known == 0)] += 1;
        pool.free_all(&mut frames);
    }
    counts
}

#[test]
fn four_packets_at_once_are_seen_as_each_alone() {
    if Quads::detect().is_none() {
        println!("not tried: this processor has no AVX2, so packets are looked at one by one");
        return;
    }
    // Of the seeds, those that are common; UDP with no payload only when it is padded.
    let seeds = seeds();
    let packet = || PacketBuilder::new().ethernet(PEER, MAC).ipv4([10, 0, 0, 5], [198, 51, 100, 7]);
    let ack = packet().tcp(1_000, 80, flag::ACK | flag::PSH).payload(b"more").build();
    let common = [seeds[0].clone(), seeds[1].clone(), seeds[3].clone(), ack];
    let mut with_syn = common.to_vec();
    with_syn.push(seeds[2].clone());
    let mut rng = Rng::new(23);
    let counts = [
        by_fours::<true, 0>(&with_syn, &mut rng),
        by_fours::<true, 4>(&with_syn, &mut rng),
        by_fours::<true, 8>(&with_syn, &mut rng),
        by_fours::<false, 0>(&common, &mut rng),
        by_fours::<false, 4>(&common, &mut rng),
        by_fours::<false, 8>(&common, &mut rng),
    ];
    assert!(counts.iter().flatten().all(|count| *count > 5_000), "{counts:?}");
    let packet = || PacketBuilder::new().ethernet(PEER, MAC).ipv6(7, 0x2001_0db8 << 96 | 9);
    let six = [
        packet().udp(1_000, 53).payload(b"a long question").build(),
        packet().tcp(1_000, 80, flag::SYN).build(),
        packet().tcp(1_000, 80, flag::ACK).tcp_options(&[1; 12]).payload(b"data").build(),
        packet().tcp(1_000, 80, flag::ACK | flag::PSH).payload(b"more").build(),
    ];
    let counts = [
        sixes_by_fours::<0>(&six, &mut rng),
        sixes_by_fours::<4>(&six, &mut rng),
        sixes_by_fours::<8>(&six, &mut rng),
    ];
    assert!(counts.iter().flatten().all(|count| *count > 5_000), "{counts:?}");
    // The protocol is looked up by the state.
    assert_eq!(common_state(Proto::Udp, 0).map(|state| Proto::from_index(state as u8)), Some(Proto::Udp));
}
