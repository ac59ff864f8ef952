//! ESP of several hosts behind one address, by numbers that are learned (RFC 4303).

mod common;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

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

/// What passes of ESP, in a few lines: who waits for whom, and which numbers are whose. All hosts have one outside address.
#[derive(Default)]
struct Tunnels {
    now_s: u64,
    /// By far end: the host that waits, until when, and what it has begun with.
    waiting: BTreeMap<usize, (usize, u64, VecDeque<u32>)>,
    /// Host, far end and number of what went out; far end, number and host of what came in.
    out: BTreeSet<(usize, usize, u32)>,
    back: BTreeMap<(usize, u32), usize>,
}

impl Tunnels {
    fn wait(&mut self, seconds: u64) {
        self.now_s += seconds;
        let over = |(_, (_, until, _)): &(&usize, &mut (usize, u64, VecDeque<u32>))| *until <= self.now_s;
        let ended: Vec<usize> = self.waiting.iter_mut().filter(over).map(|(far, _)| *far).collect();
        for far in ended {
            let (host, _, numbers) = self.waiting.remove(&far).unwrap();
            numbers.iter().for_each(|number| assert!(self.out.remove(&(host, far, *number))));
        }
        if seconds >= IDLE_S {
            (self.out, self.back) = Default::default();
        }
    }

    fn goes_out(&mut self, host: usize, far: usize, number: u32) -> bool {
        if self.out.contains(&(host, far, number)) {
            return true;
        }
        let until = self.now_s + 10;
        let (who, _, numbers) = self.waiting.entry(far).or_insert((host, until, VecDeque::new()));
        let may = *who == host && numbers.len() < 4;
        if may {
            numbers.push_back(number);
            self.out.insert((host, far, number));
        }
        may
    }

    fn comes_in(&mut self, far: usize, number: u32) -> Option<usize> {
        if let Some(host) = self.back.get(&(far, number)) {
            return Some(*host);
        }
        let (host, _, numbers) = self.waiting.get_mut(&far)?;
        let host = *host;
        numbers.pop_front();
        if numbers.is_empty() {
            self.waiting.remove(&far);
        }
        self.back.insert((far, number), host);
        Some(host)
    }
}

/// Longer than any tunnel is idle without ending.
const IDLE_S: u64 = 400;

/// Hosts that begin, renew and answer in any order, with losses and pauses, at one to three workers: every packet goes where
/// the few lines above say, no number ever leads to two hosts, and nothing is left at the end. A seed decides all.
#[test]
fn any_order_of_tunnels_leads_every_packet_to_its_host() {
    let (mut passed, mut refused, mut learned) = (0, 0, 0);
    for seed in 1..=48_u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut below = |count: u64| {
            for shifted in [|s: u64| s << 13, |s| s >> 7, |s| s << 17] {
                state ^= shifted(state);
            }
            (state >> 33) % count
        };
        let mut world = with_ipsec(1 + (seed % 3) as u8);
        (5..9).for_each(|host| world.know(IN, &format!("10.0.0.{host}")));
        (7..10).for_each(|far| world.know(OUT, &format!("198.51.100.{far}")));
        let (mut model, mut outside) = (Tunnels::default(), None);
        for step in 0..60 {
            let (host, far) = (below(4) as usize, below(3) as usize);
            let (inside, server) = (format!("10.0.0.{}", 5 + host), format!("198.51.100.{}", 7 + far));
            let what = format!("seed {seed}, step {step}: host {host}, far end {far}");
            match below(20) {
                0..9 => {
                    let number = 0x1000 + below(6) as u32 * 0x1_0001;
                    let frame = esp(IN, &inside, &server, number);
                    if model.goes_out(host, far, number) {
                        let from = world.pass(IN, &frame).addresses().0;
                        assert_eq!(*outside.get_or_insert(from.clone()), from, "{what}");
                        passed += 1;
                    } else {
                        world.dropped(IN, &frame, Reason::NatEspWaiting);
                        refused += 1;
                    }
                }
                9..17 => {
                    let Some(outside) = &outside else { continue };
                    let number = 0x2000 + below(8) as u32 * 0x1_0001;
                    let is_known = model.back.contains_key(&(far, number));
                    let frame = esp(OUT, &server, outside, number);
                    match model.comes_in(far, number) {
                        Some(host) => {
                            let to = world.pass(OUT, &frame).addresses().1;
                            assert_eq!(to, format!("10.0.0.{}", 5 + host), "{what}");
                            learned += u32::from(!is_known);
                        }
                        None => world.dropped(OUT, &frame, Reason::NatNoMapping),
                    }
                }
                // A wait of ten seconds is over, or not, whichever step it began at.
                17..19 => {
                    world.wait_ms(4_000);
                    model.wait(4);
                }
                _ => {
                    world.wait_ms(IDLE_S * 1_000);
                    model.wait(IDLE_S);
                    assert_eq!(world.sessions(), 0, "{what}");
                }
            }
            assert_eq!(world.sessions(), model.out.len() + model.back.len(), "{what}");
        }
        world.wait_ms(IDLE_S * 1_000);
        let mappings: usize = world.workers.iter().map(|w| w.nat().mapping_count()).sum();
        assert_eq!((world.sessions(), mappings), (0, 0), "seed {seed}");
    }
    assert!(passed > 500 && refused > 200 && learned > 200, "{passed} {refused} {learned}");
}
