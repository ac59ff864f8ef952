use super::*;

fn spec(line: &str) -> DeviceSpec {
    line.parse().unwrap_or_else(|error| panic!("{error}"))
}

fn error(line: &str) -> String {
    line.parse::<DeviceSpec>().expect_err("this line is wrong").to_string()
}

#[test]
fn every_example_parses_and_displays_as_a_line_that_parses_to_the_same() {
    for (kind, example) in KINDS {
        let parsed = spec(example);
        assert_eq!(parsed.kind(), kind);
        assert_eq!(spec(&parsed.to_string()), parsed);
    }
}

#[test]
fn a_short_pci_address_gets_its_domain() {
    assert_eq!(spec("pci:3B:00.1"), DeviceSpec::Pci { address: "0000:3b:00.1".to_owned() });
}

#[test]
fn memif_options_have_defaults_and_take_any_order() {
    let expected = DeviceSpec::Memif {
        socket: PathBuf::from("/run/m.sock"),
        id: 7,
        role: MemifRole::Client,
        zero_copy: true,
    };
    assert_eq!(spec("memif:/run/m.sock,zero-copy=yes,id=7"), expected);
    let DeviceSpec::Memif { id: 0, role: MemifRole::Client, zero_copy: false, .. } =
        spec("memif:/run/m.sock")
    else {
        panic!("the defaults are id 0, client, copying")
    };
}

#[test]
fn a_capture_may_have_one_side_only() {
    let expected = DeviceSpec::Pcap { rx: Some(PathBuf::from("a.pcap")), tx: None };
    assert_eq!(spec("pcap:rx=a.pcap"), expected);
}

#[test]
fn a_misspelt_kind_is_answered_with_the_nearest() {
    for (wrong, right) in [
        ("af_paket:eth0", "af_packet"),
        ("afxdp:eth0", "af_xdp"),
        ("af-xdp:eth0", "af_xdp"),
        ("TAP:t0", "tap"),
    ] {
        let message = error(wrong);
        assert!(message.contains(&format!("did you mean \"{right}\"?")), "{message}");
        assert!(message.contains(wrong), "the message quotes the line: {message}");
    }
}

#[test]
fn a_line_without_kind_is_answered_with_examples_or_the_likely_line() {
    assert!(error("eth0").contains("af_packet:eth0"));
    assert!(error("0000:03:00.0").contains("write pci:0000:03:00.0"));
}

#[test]
fn wrong_details_say_what_to_write() {
    for (line, says) in [
        ("pci:03.00.0", "domain:bus:device.function"),
        ("pci:0000:03:00.", "domain:bus:device.function"),
        ("af_packet:", "`ip link`"),
        ("af_packet:eth 0", "no interface name"),
        ("af_packet:averyveryverylongname", "at most 15"),
        ("af_packet:eth0,queues=2", "takes no options"),
        ("memif:", "path of the control socket"),
        ("memif:/s,role=master", "role=client or role=server"),
        ("memif:/s,id=x", "whole number"),
        ("memif:/s,zerocopy=yes", "did you mean \"zero-copy\"?"),
        ("memif:/s,role=server,zero-copy=yes", "at the client"),
        ("memif:/s,id", "write id=VALUE"),
        ("pcap:", "rx=in.pcap"),
        ("pcap:rx=a,rx=b", "given twice"),
        ("pcap:rx=a,tx=a", "overwrite"),
        ("dpdk-pcap:rx=a[1]", "rename the file"),
        ("vdev:null", "vdev:net_null0"),
        ("mem:", "mem:lan"),
    ] {
        let message = error(line);
        assert!(message.contains(says), "{line} → {message}");
    }
}

#[test]
fn only_in_process_devices_do_without_dpdk() {
    let without: Vec<&str> =
        KINDS.iter().filter(|(_, example)| !spec(example).needs_dpdk()).map(|(kind, _)| *kind).collect();
    assert_eq!(without, ["pcap", "mem"]);
    assert_eq!(spec("af_xdp:eth0").kernel_interface(), Some("eth0"));
    assert_eq!(spec("tap:eth0").kernel_interface(), None, "a TAP is created by the port, not taken over");
}
