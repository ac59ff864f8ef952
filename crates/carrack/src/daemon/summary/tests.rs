use super::*;

fn accounts() -> Accounts {
    let mut a = Accounts {
        rx: 1_000,
        handed_in: 50,
        originated: 5,
        forwarded: 900,
        punted: 20,
        consumed: 10,
        handed_out: 40,
        held: 3,
        ..Accounts::default()
    };
    a.drop_n(Reason::Ipv4BadChecksum, 30);
    a.drop_n(Reason::FragmentOverlap, 2);
    a.drop_n(Reason::HandoverQueueFull, 1);
    a.drop_n(Reason::NatFiltered, 40);
    a.drop_n(Reason::FragmentationNeeded, 9);
    a
}

#[test]
fn every_packet_of_the_graph_ends_in_one_place() {
    let total = accounts();
    assert_eq!(total.balance(), 0, "the example itself balances");
    let graph = graph(&total);
    let ends = graph.stages.iter().flat_map(|s| s.ended.iter().chain(&s.drops)).map(|end| end.count);
    assert_eq!(ends.sum::<u64>(), 1_000 + 50 + 5);
    let stage = |name: &str| graph.stages.iter().find(|s| s.stage == name).unwrap();
    assert_eq!(stage("fragments").packets, 970);
    assert_eq!(stage("nat").packets, 970 - 2 - 41 + 50);
    assert_eq!(stage("finish").packets, 900 + 20 + 10 + 3);
    assert_eq!(stage("nat").drops, [NamedCount { name: "nat-filtered".into(), count: 40 }]);
}

#[test]
fn every_reason_belongs_to_a_stage_that_is_shown() {
    for row in REASONS {
        let mut total = Accounts { rx: 1, ..Accounts::default() };
        total.drop_n(row.reason, 1);
        let drops: u64 = graph(&total).stages.iter().flat_map(|s| &s.drops).map(|d| d.count).sum();
        assert_eq!(drops, 1, "{}", row.name);
    }
}

fn frame(tags: &[u8], ethertype: u16, payload: &[u8]) -> Vec<u8> {
    [&[0; 12], tags, &ethertype.to_be_bytes(), payload].concat()
}

#[test]
fn a_packet_reads_as_one_line_whatever_its_bytes() {
    let ip = |protocol: u8, fragment: u16, l4: &[u8]| {
        let [high, low] = fragment.to_be_bytes();
        let head = [0x45, 0, 0, 40, 0, 1, high, low, 64, protocol, 0, 0, 100, 64, 0, 5, 203, 0, 113, 10];
        [&head, l4].concat()
    };
    let syn = [0x9c, 0x40, 0x01, 0xbb, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x02];
    let tcp = frame(&[], 0x0800, &ip(6, 0, &syn));
    assert_eq!(packet(&tcp), "100.64.0.5:40000 > 203.0.113.10:443 tcp SYN ttl 64");
    let echo = frame(&[0x81, 0, 0, 100], 0x0800, &ip(1, 0, &[8, 0, 0, 0, 0, 7]));
    assert_eq!(packet(&echo), "vlan 100 100.64.0.5 > 203.0.113.10 icmp 8/0 id 7 ttl 64");
    let later = frame(&[], 0x0800, &ip(17, 185, &[]));
    assert_eq!(packet(&later), "100.64.0.5 > 203.0.113.10 protocol 17 fragment at 1480 ttl 64");
    assert_eq!(packet(&frame(&[], 0x0806, &[])), "arp");
    assert_eq!(packet(&frame(&[], 0x86dd, &[])), "ethertype 0x86dd");
    for len in 0..tcp.len() {
        assert!(!packet(&tcp[..len]).is_empty());
    }
}
