use super::*;

#[test]
fn the_features_that_change_packets_are_chosen_and_no_others() {
    for name in [
        "tx-checksum-ip-generic",
        "tx-checksum-sctp",
        "tx-tcp-segmentation",
        "tx-tcp6-segmentation",
        "tx-udp-segmentation",
        "tx-generic-segmentation",
        "tx-gso-list",
        "rx-gro",
        "rx-gro-hw",
        "rx-gro-list",
        "rx-lro",
        "rx-checksum",
        "rx-vlan-hw-parse",
        "tx-vlan-hw-insert",
        "tx-vlan-stag-hw-insert",
        "rx-udp-gro-forwarding",
    ] {
        assert!(is_offload(name), "{name}");
    }
    for name in
        ["tx-scatter-gather", "highdma", "rx-hashing", "rx-vlan-filter", "rx-ntuple-filter", "loopback"]
    {
        assert!(!is_offload(name), "{name}");
    }
}

#[test]
fn a_missing_interface_is_reported_with_what_to_do_and_leaves_no_file() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let options = GuardOptions { state_directory: directory.path().to_owned(), mtu: None };
    let error = OffloadGuard::take("nosuchif0", &options).expect_err("no such interface").to_string();
    assert!(error.contains("nosuchif0") && error.contains("`ip link`"), "{error}");
    assert!(state::files_in(directory.path()).is_empty());
}

#[test]
fn the_loopback_has_an_mtu() {
    assert!(interface_mtu("lo").is_ok_and(|mtu| mtu >= 1280));
}
