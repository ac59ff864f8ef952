use std::collections::HashSet;
use std::sync::Barrier;

use carrack_base::{InstanceId, PoolId, Range4, VrfId};

use super::*;
use crate::policy::{Limits, Timeouts};

pub(crate) fn instance(addresses: u32, port_last: u16, size: u16) -> Instance {
    Instance {
        id: InstanceId(0),
        name: "test".into(),
        inside_vrf: VrfId(0),
        outside_vrf: VrfId(0),
        subscribers: vec![],
        exempt: vec![],
        pools: vec![Pool {
            id: PoolId(0),
            name: "pool".into(),
            ranges: vec![Range4 { first: 1_000, last: 1_000 + addresses - 1 }],
            port_first: 1_024,
            port_last,
        }],
        assignment: Assignment::Blocks { size, per_subscriber_max: 4, idle_release_s: 0 },
        pooling: Default::default(),
        mapping: Default::default(),
        filtering: Default::default(),
        parity: false,
        contiguity: false,
        hairpinning: true,
        inbound_refresh: [true; 3],
        tcp_loose: false,
        port_hold_s: 0,
        port_hold_ports_max: 0,
        limits: Limits::default(),
        timeouts: Timeouts::default(),
        exhausted_icmp: Default::default(),
        pool_threshold_percent: 0,
        pool_ports_threshold: 0,
        logged: Default::default(),
        statics: vec![],
        nat64: None,
        gateways: vec![],
        unreadable: Default::default(),
    }
}

fn claim_all(map: &BlockMap, worker: WorkerId, rng: &mut Rng) -> Vec<(u16, u16)> {
    let mut draws = Draws::new();
    std::iter::from_fn(|| map.claim_any(worker, rng, &mut draws)).collect()
}

#[test]
fn one_worker_can_claim_every_block_and_home_ones_go_first() {
    for workers in [1, 2, 3, 16, 64] {
        let group = WorkerGroup::new(workers, [1; 4]);
        let map = group.block_map(&instance(70, 65_535, 512));
        let (me, mut rng) = (WorkerId(workers - 1), Rng::new(1));
        let home: u32 = (0..70).map(|number| map.home_count(number, me)).sum();
        let all = claim_all(&map, me, &mut rng);
        assert_eq!(all.len() as u64, map.total());
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
        let early = all.iter().take(home as usize / 2);
        let at_home = early.filter(|(n, b)| map.is_home(*n, 1_024 + b * 512, me)).count();
        assert!(at_home * 10 >= home as usize / 2 * 9, "{at_home} of {}", home / 2);
        for (number, block) in &all {
            assert_eq!(map.owner(1_000 + u32::from(*number), 1_024 + block * 512), Some(me));
        }
        for (number, block) in all {
            map.release(number, block);
            let owner = map.owner(1_000 + u32::from(number), 1_024 + block * 512).unwrap();
            assert!(map.is_home(number, 1_024 + block * 512, owner), "what comes back is at home");
        }
        assert_eq!(claim_all(&map, WorkerId(0), &mut rng).len() as u64, map.total());
    }
}

/// Too few addresses for each worker to have some: each has some blocks of every address, which end within a word.
#[test]
fn of_an_address_home_blocks_go_first() {
    let group = WorkerGroup::new(3, [1; 4]);
    let map = group.block_map(&instance(1, 65_535, 512));
    for worker in (0..3).map(WorkerId) {
        let mut rng = Rng::new(7);
        assert!(map.home_count(0, worker) > 0);
        for _ in 0..map.home_count(0, worker) {
            let block = map.claim_on(0, worker, &mut rng).unwrap();
            assert!(map.is_home(0, 1_024 + block * 512, worker), "{worker:?} {block}");
        }
    }
}

/// Blocks that fill no word, and ports at the end that fill no block.
#[test]
fn ranges_of_any_size_are_whole() {
    for (last, size, blocks) in [(1_031, 8, 1), (1_024 + 8 * 65 - 1, 8, 65), (2_350, 512, 2), (1_030, 8, 0)] {
        for workers in [1, 3, 64] {
            let group = WorkerGroup::new(workers, [1; 4]);
            let map = group.block_map(&instance(2, last, size));
            assert_eq!(map.total(), 2 * blocks);
            let all = claim_all(&map, WorkerId(0), &mut Rng::new(1));
            assert_eq!(all.len() as u64, 2 * blocks, "{last} {size} {workers}");
            assert_eq!(map.claim_on(0, WorkerId(0), &mut Rng::new(1)), None);
        }
    }
}

/// Threads claim and release as fast as they can: no block ever has two owners, and none is lost or overlooked.
#[test]
fn racing_workers_never_share_a_block_and_lose_none() {
    const WORKERS: u8 = 4;
    let group = WorkerGroup::new(WORKERS, [1; 4]);
    let map = group.block_map(&instance(3, 1_024 + 8 * 40 - 1, 8));
    let held: Vec<AtomicU8> = (0..3 * 40).map(|_| AtomicU8::new(0)).collect();
    let barrier = Barrier::new(usize::from(WORKERS));
    std::thread::scope(|scope| {
        for worker in 0..WORKERS {
            let (map, held, barrier) = (&map, &held, &barrier);
            scope.spawn(move || {
                let (me, mut rng) = (WorkerId(worker), Rng::new(u64::from(worker) + 1));
                let (mut mine, mut draws) = (Vec::new(), Draws::new());
                barrier.wait();
                for _ in 0..30_000 {
                    if rng.below(100) < 55 {
                        let Some((number, block)) = map.claim_any(me, &mut rng, &mut draws) else { continue };
                        let place = &held[usize::from(number) * 40 + usize::from(block)];
                        assert_eq!(place.swap(1, Ordering::SeqCst), 0, "claimed twice");
                        assert_eq!(map.owner(1_000 + u32::from(number), 1_024 + block * 8), Some(me));
                        mine.push((number, block));
                    } else if let Some((number, block)) =
                        (!mine.is_empty()).then(|| mine.swap_remove(rng.below(mine.len())))
                    {
                        held[usize::from(number) * 40 + usize::from(block)].store(0, Ordering::SeqCst);
                        map.release(number, block);
                    }
                }
                for (number, block) in mine {
                    held[usize::from(number) * 40 + usize::from(block)].store(0, Ordering::SeqCst);
                    map.release(number, block);
                }
            });
        }
    });
    assert_eq!(claim_all(&map, WorkerId(2), &mut Rng::new(9)).len() as u64, map.total());
}

#[test]
fn all_workers_of_a_group_find_the_same_map() {
    let group = WorkerGroup::new(2, [1; 4]);
    let (one, two) = (group.block_map(&instance(3, 65_535, 512)), group.block_map(&instance(3, 65_535, 512)));
    assert!(Arc::ptr_eq(&one, &two));
    // More addresses: another map, but the addresses of both are the same ones, blocks and all.
    let more = group.block_map(&instance(4, 65_535, 512));
    let block = one.claim_on(2, WorkerId(1), &mut Rng::new(1)).unwrap();
    assert!(more.has_same(2, &one, 2) && !more.claim_one(2, block, WorkerId(0)));
    assert_eq!((more.before(false).len(), more.before(true).len()), (1, 0));
    // Cut otherwise: nothing may be given out until nobody works by the old ones.
    let other = group.block_map(&instance(3, 65_535, 256));
    assert_eq!(other.before(true).len(), 2);
    drop((one, two, more));
    assert!(other.before(true).iter().all(|map| map.strong_count() == 0));
}

#[test]
fn as_many_addresses_as_an_instance_may_have_all_have_numbers() {
    let group = WorkerGroup::new(2, [1; 4]);
    let map = group.block_map(&instance(65_535, 2_047, 1_024));
    assert_eq!(map.number_of(1_000), Some(0));
    assert_eq!(map.number_of(1_000 + 65_534), Some(65_534));
    let at_home = |worker| (0..65_535).map(|number| map.home_count(number, WorkerId(worker))).sum::<u32>();
    assert_eq!((u64::from(at_home(0) + at_home(1)), map.total()), (65_535, 65_535));
}
