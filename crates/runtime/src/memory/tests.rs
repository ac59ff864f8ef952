use std::path::Path;

use carrack_config::HugePages;

use super::machine::{available_in, socket_in};
use super::{Available, Budget, MIB, Part};

fn budget(huge_pages: HugePages) -> Budget {
    Budget {
        workers: 2,
        tables: 1_000 * MIB,
        ports: 100 * MIB,
        others: [Part { name: "gateways", key: "memory.gateway_connections", bytes: 0 }; 8],
        rest: 16 * MIB,
        packets: 512 * MIB,
        through_dpdk: true,
        huge_pages,
    }
}

fn having(mib: u64) -> Available {
    Available { bytes: mib * MIB, by: "a test".into() }
}

#[test]
fn budget_that_exceeds_available_memory_is_refused_in_numbers_with_the_key_to_lower() {
    let budget = budget(HugePages::Auto);
    assert_eq!(budget.total(), (2 * 1_116 + 512) * MIB);
    assert_eq!(budget.fits(&having(2_744), 0), Ok(()));
    let why = budget.fits(&having(2_743), 0).unwrap_err();
    for part in ["needs 2744.0 MiB", "2743.0 MiB are available (a test)", "lower memory.sessions"] {
        assert!(why.contains(part), "{part}: {why}");
    }
    let why = Budget { packets: 9_000 * MIB, ..budget }.fits(&having(10), 0).unwrap_err();
    assert!(why.contains("memory.dpdk_mb"), "{why}");
    let why = Budget { ports: 9_000 * MIB, ..budget }.fits(&having(10), 0).unwrap_err();
    assert!(why.contains("nat.pool.addresses"), "{why}");
    let mut with = budget;
    with.others[3].bytes = 9_000 * MIB;
    assert_eq!(with.total(), budget.total() + 18_000 * MIB);
    assert!(with.lines()[0].contains("gateways 9000.0, rings and small tables 16.0"), "{:?}", with.lines());
    let why = with.fits(&having(10), 0).unwrap_err();
    assert!(why.contains("lower memory.gateway_connections (gateways take 18000.0 MiB)"), "{why}");
}

#[test]
fn free_huge_pages_take_off_ordinary_memory_what_fits_them_whole() {
    // Packets and one worker's tables fit 1,600 MiB, the other worker's do not.
    assert_eq!(budget(HugePages::Auto).ordinary(1_600), (1_000 + 232) * MIB);
    assert_eq!(budget(HugePages::Off).ordinary(1_600), 2_744 * MIB);
    assert_eq!(budget(HugePages::TwoM).ordinary(0), 232 * MIB);
}

fn put(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

#[test]
fn available_memory_is_the_least_of_the_kernels_and_every_control_groups() {
    let root = tempfile::tempdir().unwrap();
    let (proc, groups) = (root.path().join("proc"), root.path().join("groups"));
    let ask = || available_in(&proc, &groups);
    assert_eq!(ask().bytes, u64::MAX);
    put(&proc, "meminfo", "MemTotal: 900 kB\nMemAvailable:   100 kB\n");
    put(&proc, "self/cgroup", "0::/edge/carrack\n");
    put(&groups, "edge/carrack/memory.max", "max\n");
    assert_eq!((ask().bytes, ask().by.as_str()), (102_400, "MemAvailable of /proc/meminfo"));
    put(&groups, "edge/memory.max", "60000\n");
    put(&groups, "edge/memory.current", "50000\n");
    put(&groups, "edge/memory.stat", "anon 1\ninactive_file 20000\n");
    assert_eq!(ask().bytes, 30_000);
    assert!(ask().by.contains("/edge,"), "{}", ask().by);
}

#[test]
fn socket_of_a_processor_is_its_numa_node_and_0_without_one() {
    let root = tempfile::tempdir().unwrap();
    for path in ["cpu3/node1/x", "cpu3/nodes/x", "cpu4/topology/x"] {
        put(root.path(), path, "");
    }
    let sockets = [3, 4, 5].map(|core| socket_in(root.path(), core));
    assert_eq!(sockets, [1, 0, 0]);
}
