//! ESP of several hosts behind one address, by numbers that are learned (RFC 4303).

mod common;

use carrack_alg::{Note, Protocol};
use carrack_base::Reason;
use carrack_wire::ipv4::protocol::ESP;
use common::*;

const SERVER: &str = "198.51.100.7";
const A: &str = "10.0.0.5";
const B: &str = "10.0.0.6";

fn with_ipsec(workers: u8) -> World {
    World::new(workers, SIZES, HANDOVER_SLOTS, |s| nat(s, |i| i.gateways = vec![Protocol::Ipsec]))
}

fn esp(port: u16, src: &str, dst: &str, spi: u32) -> Vec<u8> {
    let body = [&spi.to_be_bytes()[..], &[0, 0, 0, 1], &[0xaa; 24]].concat();
    packet(port, src, dst).protocol(ESP).payload(&body).build()
}

/// A host begins a tunnel and is answered: its outside address.
fn tunnel(world: &mut World, host: &str, out: u32, back: u32) -> String {
    let sent = world.pass(IN, &esp(IN, host, SERVER, out));
    let outside = sent.addresses().0;
    assert_eq!(sent.l4()[..4], out.to_be_bytes(), "the number is not touched");
    assert_eq!(world.pass(OUT, &esp(OUT, SERVER, &outside, back)).addresses().1, host);
    outside
}

#[test]
fn two_hosts_have_tunnels_to_one_server() {
    for workers in [1, 3] {
        let mut world = with_ipsec(workers);
        let outside = tunnel(&mut world, A, 0x1000_0001, 0xaaaa_0001);
        assert_eq!(tunnel(&mut world, B, 0x1000_0002, 0xbbbb_0001), outside);
        for _ in 0..3 {
            world.pass(IN, &esp(IN, A, SERVER, 0x1000_0001));
            assert_eq!(world.pass(OUT, &esp(OUT, SERVER, &outside, 0xaaaa_0001)).addresses().1, A);
            assert_eq!(world.pass(OUT, &esp(OUT, SERVER, &outside, 0xbbbb_0001)).addresses().1, B);
        }
        // New keys: the next unknown number is that of the one who has begun.
        tunnel(&mut world, A, 0x1000_0003, 0xaaaa_0002);
        world.dropped(OUT, &esp(OUT, SERVER, &outside, 0xcccc_0001), Reason::NatNoMapping);
        let counts = world.workers.iter().map(|w| w.nat().gateway_counts()[Protocol::Ipsec as usize]);
        assert_eq!(counts.map(|count| count[Note::Opened as usize]).sum::<u64>(), 3);
    }
}

/// A host that waits is not told apart from another that would: the second one's packets are dropped meanwhile.
#[test]
fn one_host_at_a_time_waits_for_a_far_end() {
    for workers in [1, 3] {
        let mut world = with_ipsec(workers);
        let outside = world.pass(IN, &esp(IN, A, SERVER, 0x101)).addresses().0;
        world.dropped(IN, &esp(IN, B, SERVER, 0x102), Reason::NatEspWaiting);
        world.pass(IN, &esp(IN, A, SERVER, 0x103));
        // Another far end is another matter, and a stranger's packet is nobody's.
        world.pass(IN, &esp(IN, B, "203.0.114.9", 0x102));
        world.dropped(OUT, &esp(OUT, "203.0.114.8", &outside, 0x107), Reason::NatNoMapping);
        for back in [0x107, 0x108] {
            assert_eq!(world.pass(OUT, &esp(OUT, SERVER, &outside, back)).addresses().1, A);
        }
        world.dropped(OUT, &esp(OUT, SERVER, &outside, 0x109), Reason::NatNoMapping);
        assert_eq!(tunnel(&mut world, B, 0x102, 0x10a), outside, "nobody waits any more");
    }
}

#[test]
fn an_answer_that_comes_late_finds_its_host_waiting_again_by_its_next_packet() {
    let mut world = with_ipsec(1);
    let outside = world.pass(IN, &esp(IN, A, SERVER, 0x101)).addresses().0;
    world.wait_ms(12_000);
    assert_eq!((world.sessions(), world.workers[0].nat().mapping_count()), (0, 0));
    world.dropped(OUT, &esp(OUT, SERVER, &outside, 0x107), Reason::NatNoMapping);
    tunnel(&mut world, A, 0x101, 0x107);
}

/// RFC 4303 §2.1: numbers up to 255 are reserved.
#[test]
fn reserved_numbers_begin_nothing() {
    let mut world = with_ipsec(1);
    world.dropped(IN, &esp(IN, A, SERVER, 255), Reason::NatProtocolUnsupported);
    let outside = world.pass(IN, &esp(IN, A, SERVER, 256)).addresses().0;
    world.dropped(OUT, &esp(OUT, SERVER, &outside, 255), Reason::NatNoMapping);
    world.dropped(
        OUT,
        &packet(OUT, SERVER, &outside).protocol(ESP).payload(&[1, 2]).build(),
        Reason::NatNoMapping,
    );
}

#[test]
fn nothing_is_left_of_a_tunnel_that_is_idle() {
    let mut world = with_ipsec(1);
    let outside = tunnel(&mut world, A, 0x101, 0x107);
    assert_eq!((world.sessions(), world.workers[0].nat().mapping_count()), (2, 1));
    world.wait_ms(310_000);
    world.wait_ms(10_000);
    assert_eq!((world.sessions(), world.workers[0].nat().mapping_count()), (0, 0));
    world.dropped(OUT, &esp(OUT, SERVER, &outside, 0x107), Reason::NatNoMapping);
    tunnel(&mut world, B, 0x102, 0x107);
}

#[test]
fn a_full_waiting_room_refuses() {
    let mut world = with_ipsec(1);
    for far in 0..=255 {
        world.pass(IN, &esp(IN, A, &format!("203.0.114.{far}"), 0x101));
    }
    world.dropped(IN, &esp(IN, A, SERVER, 0x101), Reason::NatEspWaiting);
}

/// RFC 5508 REQ-4: path MTU discovery of a tunnel.
#[test]
fn errors_about_packets_of_a_tunnel_come_home() {
    for workers in [1, 3] {
        let mut world = with_ipsec(workers);
        for (host, spi) in [(A, 0x0001_0002), (B, 0x0001_0003)] {
            let outside = tunnel(&mut world, host, spi, spi + 0x100);
            let sent = world.pass(IN, &esp(IN, host, SERVER, spi));
            let home = world.pass(OUT, &icmp_error(OUT, "203.0.114.1", &outside, 3, 4, sent.packet()));
            assert_eq!(home.addresses().1, host);
            assert_eq!(home.quoted()[12..16], ip(host).to_be_bytes());
        }
    }
}

#[test]
fn fragments_of_a_tunnel_go_where_their_first_one_goes() {
    let mut world = with_ipsec(3);
    let outside = tunnel(&mut world, A, 0x101, 0x107);
    let l4 = [&0x107u32.to_be_bytes()[..], &[7; 900]].concat();
    for piece in cut(OUT, SERVER, &outside, ESP, 9, &l4, 400) {
        assert_eq!(world.pass(OUT, &piece).addresses().1, A);
    }
}

#[test]
fn hosts_with_an_address_of_their_own_and_instances_without_it_need_no_learning() {
    let mut world = World::new(1, SIZES, HANDOVER_SLOTS, |s| {
        nat(s, |i| {
            i.gateways = vec![Protocol::Ipsec];
            i.statics.push(one_to_one(B, "192.0.2.9"));
        });
    });
    assert_eq!(world.pass(OUT, &esp(OUT, SERVER, "192.0.2.9", 0x105)).addresses().1, B);
    assert_eq!(world.pass(IN, &esp(IN, B, SERVER, 0x106)).addresses().0, "192.0.2.9");
    let mut world = world_with(|s| nat(s, |i| i.gateways = vec![]));
    world.dropped(IN, &esp(IN, A, SERVER, 0x101), Reason::NatProtocolUnsupported);
}

#[test]
fn a_reload_that_ends_the_subscriber_ends_its_tunnels() {
    let mut world = with_ipsec(1);
    let outside = tunnel(&mut world, A, 0x101, 0x107);
    world.reconfigure(|s| nat(s, |i| i.exempt.push(prefix("203.0.115.0/24"))));
    assert_eq!(world.pass(OUT, &esp(OUT, SERVER, &outside, 0x107)).addresses().1, A);
    world.reconfigure(|s| nat(s, |i| i.subscribers = vec![prefix("10.0.0.64/26")]));
    assert_eq!(world.sessions(), 0);
}
