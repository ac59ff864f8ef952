//! Link headers in and out: tags, MAC addresses, ARP.

mod common;

use carrack_base::Reason;
use carrack_pipeline::snapshot::Policer;
use carrack_wire::arp::ArpPacket;
use carrack_wire::{MacAddr, PacketBuilder};
use common::*;

fn tagged(vids: &[u16], src: &str, dst: &str) -> Vec<u8> {
    let ((a, sport), (b, dport)) = (e(src), e(dst));
    let mut packet = packet(TAGGED, a, b).udp(sport, dport);
    for vid in vids {
        packet = packet.vlan(*vid);
    }
    packet.build()
}

/// The answer to a translated packet.
fn answer(sent: &Sent) -> Vec<u8> {
    udp(OUT, &sent.dst(), &sent.src())
}

#[test]
fn untagged_subscribers_packet_has_the_routers_macs_and_one_hop_less() {
    let mut world = world();
    let sent = world.pass(IN, &udp(IN, "10.0.0.5:1000", "203.0.114.9:53"));
    assert_eq!((sent.port, sent.to), (OUT, mac_of(ip(GATEWAY)).0));
    assert_eq!(sent.ip().ttl(), 63);
    let back = world.pass(OUT, &answer(&sent));
    assert_eq!((back.port, back.to), (IN, mac_of(ip("10.0.0.5")).0));
    assert_eq!((back.dst(), back.ip().ttl()), ("10.0.0.5:1000".into(), 63));
}

/// IEEE 802.1Q: the header shrinks by a tag outward and grows by it inward.
#[test]
fn vlan_subscriber_loses_the_tag_going_out_and_gets_it_coming_in() {
    let mut world = world();
    let frame = tagged(&[100], "10.1.0.5:1000", "198.51.100.7:53");
    let sent = world.pass(TAGGED, &frame);
    assert_eq!((sent.port, sent.tags.as_slice(), sent.frame.len()), (OUT, &[][..], frame.len() - 4));
    let back = world.pass(OUT, &answer(&sent));
    assert_eq!((back.port, back.tags.as_slice(), back.dst()), (TAGGED, &[100][..], "10.1.0.5:1000".into()));
}

#[test]
fn qinq_subscriber_loses_both_tags_and_gets_both_with_their_types() {
    let mut world = world();
    let sent = world.pass(TAGGED, &tagged(&[200, 7], "10.2.0.5:1000", "198.51.100.7:53"));
    assert_eq!((sent.port, sent.tags.as_slice()), (OUT, &[][..]));
    let back = world.pass(OUT, &answer(&sent));
    assert_eq!((back.tags.as_slice(), back.dst()), (&[200, 7][..], "10.2.0.5:1000".into()));
    assert_eq!(back.frame[12..14], [0x88, 0xa8], "IEEE 802.1ad outer tag");
    assert_eq!(back.frame[16..18], [0x81, 0x00]);
}

#[test]
fn packets_between_two_vlans_change_their_tags() {
    let mut world = world();
    let sent = world.pass(TAGGED, &tagged(&[100], "10.1.0.5:1000", "10.2.0.5:53"));
    assert_eq!((sent.tags.as_slice(), sent.src()), (&[200, 7][..], "10.1.0.5:1000".into()));
}

/// IEEE 802.1Q §6.9: VLAN 0 is a priority, not a VLAN.
#[test]
fn priority_tagged_frame_belongs_to_the_untagged_interface() {
    let mut world = world();
    let frame = packet(IN, "10.0.0.5", "198.51.100.7").vlan(0).udp(1_000, 53).build();
    let sent = world.pass(IN, &frame);
    assert_eq!((sent.port, sent.dst()), (OUT, "198.51.100.7:53".into()));
}

#[test]
fn priority_bits_do_not_hide_the_vlan() {
    let mut world = world();
    let mut frame = tagged(&[100], "10.1.0.5:1000", "198.51.100.7:53");
    frame[14] |= 0xe0;
    world.pass(TAGGED, &frame);
}

#[test]
fn no_headroom_for_a_tag_is_a_counted_drop() {
    let mut world = world();
    world.pool = carrack_frame::MemPool::new(64, 2_048, 4);
    // 4 octets are enough for one tag more, not for two.
    world.pass(IN, &udp(IN, "10.0.0.5:1000", "10.1.0.5:53"));
    world.dropped(IN, &udp(IN, "10.0.0.5:1000", "10.2.0.5:53"), Reason::FrameHeadroom);
}

#[test]
fn interface_that_is_down_neither_takes_nor_sends() {
    let mut world = world_with(|s| on(s, IF_VLAN, |i| i.up = false));
    world.dropped(TAGGED, &tagged(&[100], "10.1.0.5:1000", "198.51.100.7:53"), Reason::InterfaceDown);
    world.dropped(IN, &udp(IN, "10.0.0.5:1000", "10.1.0.5:53"), Reason::InterfaceDown);
}

fn arp(port: u16) -> Vec<u8> {
    let request = ArpPacket::request(mac_of(ip("10.0.0.5")), ip("10.0.0.5"), ip("10.0.0.1"));
    PacketBuilder::new()
        .ethernet(mac_of(ip("10.0.0.5")), MacAddr::BROADCAST)
        .ethertype(0x0806)
        .payload(&request.to_bytes())
        .build()
        .into_iter()
        .chain([port as u8; 18])
        .collect()
}

#[test]
fn arp_goes_up_whole_with_its_interface() {
    let mut world = world();
    assert!(world.send(IN, &arp(IN)).is_empty());
    assert_eq!(world.punts, [(carrack_base::IfIndex(IF_IN), arp(IN))]);
    assert_eq!(world.new_drops(), []);
}

#[test]
fn a_flood_of_arp_gets_the_policers_burst_and_no_more() {
    let mut world = world_with(|s| s.policers.arp = Policer { rate_pps: 10, burst: 5 });
    world.burst(IN, &vec![arp(IN); 64]);
    assert_eq!(world.punts.len(), 5);
    assert_eq!(world.new_drops(), [(Reason::PuntPolicedArp, 59)]);
    world.wait_ms(1_000);
    world.burst(IN, &vec![arp(IN); 64]);
    assert_eq!(world.punts.len(), 10, "a second later the bucket is full again");
}

#[test]
fn a_full_ring_to_the_control_plane_is_a_counted_drop() {
    let mut world = world_with(|s| s.policers.arp = Policer { rate_pps: 0, burst: 10_000 });
    // Five bursts before anybody reads: the ring has 256 slots.
    for _ in 0..5 {
        for _ in 0..64 {
            let frame = world.pool.alloc_copy(&arp(IN)).unwrap();
            world.workers[0].rx_buffer().push(frame);
        }
        world.workers[0].process(world.now, carrack_base::PortId(IN), &mut world.pool);
        world.balanced();
    }
    assert_eq!(world.new_drops(), [(Reason::PuntQueueFull, 64)]);
    world.turn();
    assert_eq!(world.punts.len(), 256);
}
