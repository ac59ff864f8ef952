use super::*;

fn arguments_of(options: &EalOptions) -> String {
    arguments(options, "0,1").join(" ")
}

#[test]
fn without_huge_pages_memory_covers_the_pool_and_nothing_is_shared() {
    let options = EalOptions::default();
    let line = arguments_of(&options);
    assert!(line.contains("--no-huge --no-shconf -m"), "{line}");
    assert!(line.contains("--lcores=0@(0,1)"), "{line}");
    let pool_mib = (u64::from(options.frames) * u64::from(options.frame_bytes)) >> 20;
    assert!(u64::from(memory_mib(&options)) > pool_mib + 64);
}

#[test]
fn the_pci_bus_is_searched_only_for_named_devices() {
    assert!(arguments_of(&EalOptions::default()).contains("--no-pci"));
    let with_pci = EalOptions { pci: vec!["0000:03:00.0".to_owned()], ..EalOptions::default() };
    let line = arguments_of(&with_pci);
    assert!(line.contains("--allow=0000:03:00.0") && !line.contains("--no-pci"), "{line}");
}

#[test]
fn sizes_out_of_range_are_refused_before_anything_starts() {
    for options in [
        EalOptions { frames: 1, ..EalOptions::default() },
        EalOptions { frame_bytes: 64, ..EalOptions::default() },
    ] {
        let error = Dpdk::init(options).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains("out of range; use"), "{error}");
    }
}
