use super::*;

#[test]
fn what_the_peer_injects_is_received_in_order_and_counted() {
    let mut pool = MemPool::new(8, 64, 16);
    let (mut port, mut peer) = MemPort::with_peer("lan", 3, 8);
    for packet in [&b"one"[..], b"three"] {
        assert!(peer.inject_bytes(&mut pool, packet));
    }
    let mut burst = Vec::with_capacity(8);
    assert_eq!(port.rx_burst(&mut burst, 8), 2);
    assert_eq!((burst[0].bytes(), burst[1].bytes()), (&b"one"[..], &b"three"[..]));
    assert!(burst.iter().all(|frame| frame.port() == 3));
    assert_eq!(port.stats(), PortStats { rx_packets: 2, rx_bytes: 8, ..PortStats::default() });
    pool.free_all(&mut burst);
    assert_eq!(pool.outstanding(), 0);
}

#[test]
fn a_burst_never_grows_the_callers_vector() {
    let mut pool = MemPool::new(8, 64, 0);
    let (mut port, mut peer) = MemPort::with_peer("lan", 0, 8);
    for _ in 0..8 {
        assert!(peer.inject_bytes(&mut pool, b"x"));
    }
    let mut burst = Vec::with_capacity(5);
    let capacity = burst.capacity();
    assert_eq!(port.rx_burst(&mut burst, 64), capacity);
    assert_eq!(port.rx_burst(&mut burst, 64), 0);
    assert_eq!(burst.capacity(), capacity);
    pool.free_all(&mut burst);
    port.drain(&mut pool);
    assert_eq!(pool.outstanding(), 0);
}

#[test]
fn what_a_full_ring_does_not_take_stays_with_the_caller_in_order() {
    let mut pool = MemPool::new(4, 64, 0);
    let (mut port, mut peer) = MemPort::with_peer("lan", 0, 2);
    let mut burst: Vec<Frame> = (b'a'..=b'd').filter_map(|letter| pool.alloc_copy(&[letter])).collect();
    assert_eq!(port.tx_burst(&mut burst), 2);
    assert_eq!((burst.len(), burst[0].bytes(), burst[1].bytes()), (2, &b"c"[..], &b"d"[..]));
    assert_eq!(peer.collect_bytes(&mut pool), [b"a".to_vec(), b"b".to_vec()]);
    assert_eq!(port.tx_burst(&mut burst), 2);
    assert_eq!(peer.collect_bytes(&mut pool), [b"c".to_vec(), b"d".to_vec()]);
    assert_eq!(port.stats().tx_packets, 4);
    assert_eq!(pool.outstanding(), 0);
}

#[test]
fn a_cable_carries_both_ways_and_shows_when_it_is_cut() {
    let mut pool = MemPool::new(2, 64, 0);
    let (mut left, mut right) = MemPort::cable(("left", 1), ("right", 2), 4);
    for (from, to, port) in [(true, "right", 2), (false, "left", 1)] {
        let (sender, receiver) = if from { (&mut left, &mut right) } else { (&mut right, &mut left) };
        let mut burst = Vec::with_capacity(4);
        burst.extend(pool.alloc_copy(to.as_bytes()));
        assert_eq!(sender.tx_burst(&mut burst), 1);
        assert_eq!(receiver.rx_burst(&mut burst, 4), 1);
        assert_eq!((burst[0].bytes(), burst[0].port()), (to.as_bytes(), port));
        pool.free_all(&mut burst);
    }
    assert!(left.link().up);
    drop(right);
    assert!(!left.link().up);
}
