//! Requests of port control through server and NAT engine: the fuzzer writes what hosts send.

use std::sync::Arc;

use carrack_base::{IfIndex, InstanceId, Now, PortId, Prefix, Prefix4, VrfId, WorkerId};
use carrack_nat::policy::NatPolicy;
use carrack_nat::{Nat, WorkerGroup};
use carrack_pcp::{Allowed, Config, MESSAGE_BYTES_MAX, Saved, Served, Server};
use carrack_pipeline::snapshot::{Interface, Side, Vlan};
use carrack_tables::PagePreference;
use carrack_wire::{MacAddr, PacketBuilder};

use crate::icmp::{CAPACITY, instance};
use crate::network::ip;

const ROUTER: u32 = ip([10, 0, 0, 1]);
const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

fn config() -> Config {
    let interface = Interface {
        id: IfIndex(0),
        name: "inside".into(),
        port: PortId(0),
        vlan: Vlan::None,
        mac: MAC,
        vrf: VrfId(0),
        side: Side::Inside,
        up: true,
        mtu: 1_500,
        addresses: vec![(ROUTER, Prefix4::of(ROUTER, 8))],
        ipv6: None,
        urpf: false,
        icmp_errors: Default::default(),
    };
    let served = Served {
        id: InstanceId(0),
        vrf: VrfId(0),
        subscribers: vec![Prefix4::of(ROUTER, 8)],
        subscribers6: vec![],
        subscriber_len: 128,
        prefixes: vec![],
        nat_pmp: true,
        third_party_from: vec![Prefix4::of(ip([10, 0, 0, 4]), 30).into()],
        allowed: Allowed::default(),
        rules: vec![(Prefix::from(Prefix4::of(ip([10, 9, 0, 0]), 16)), Allowed::default())],
    };
    Config {
        interfaces: vec![interface],
        vrfs: vec!["default".into()],
        served: vec![served],
        mappings_max: 32,
    }
}

/// Pieces of the input, each a length, a host, a wait, and a datagram's payload.
pub fn requests(mut input: &[u8]) {
    let mut now = Now::from_s(1_000);
    let policy = Arc::new(NatPolicy { instances: vec![instance()], port_control: true });
    let group = WorkerGroup::new(1, [1, 2, 3, 4]);
    let Ok(mut nat) = Nat::new(WorkerId(0), group, CAPACITY, PagePreference::Small, policy, now) else {
        return;
    };
    let mut server = Server::new(config(), now, 1_700_000_000, None);
    while let Some((&[length, host, wait], rest)) = input.split_first_chunk() {
        let (payload, rest) = rest.split_at(usize::from(length).min(rest.len()));
        input = rest;
        now = now.plus_ns(u64::from(wait) * 1_000_000_000);
        nat.expire(now);
        let frame = PacketBuilder::new().ethernet(MacAddr([2, 0, 0, 0, 0, 9]), MAC);
        let frame = frame.ipv4(ip([10, 0, 0, host & 7]), ROUTER).udp(5_351, 5_351).payload(payload);
        server.handle_packet(now, IfIndex(0), &frame.build());
        server.handle_timeout(now);
        while let Some((request, ask)) = server.poll_ask() {
            if let Some(answer) = nat.control(&ask, now) {
                server.handle_answer(now, request, answer);
            }
        }
        while let Some((_, frame)) = server.poll_transmit() {
            assert!(frame.len() <= 42 + MESSAGE_BYTES_MAX, "an answer of {} octets", frame.len());
        }
        assert!(nat.mapping_count() <= CAPACITY.mappings as usize);
    }
    let saved = server.save(true);
    assert_eq!(Saved::of_text(&saved.to_text()), Ok(saved), "what is written can be read");
    let _ = std::str::from_utf8(input).map(Saved::of_text);
    assert!(server.mappings(now).count() <= 32 + 1);
}
