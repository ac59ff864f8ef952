use std::path::PathBuf;

use carrack_config::Config;

use super::*;

fn published() -> Options {
    Options {
        binary: PathBuf::new(),
        sessions: 2_097_152,
        seconds: 1,
        rate: None,
        deletions: 70_000,
        snapshot_every: 3,
        frame_bytes: 128,
        tagged: true,
        translation: Translation::Nat64,
    }
}

#[test]
fn the_report_says_what_differs_from_the_published_test_and_why() {
    let text = |options: &Options| differences(options).join("\n");
    let full = text(&published());
    assert!(full.contains("2001:db8:64::/96 instead of fd12:3456:789a:11:2233:4455::/96"), "{full}");
    assert!(full.contains("RFC 6052 §2.2") && full.contains("instead of dpdk-testpmd"), "{full}");
    assert!(!full.contains("sessions instead of"), "{full}");
    let small = Options { sessions: 65_536, tagged: false, frame_bytes: 256, ..published() };
    let small = text(&small);
    assert!(small.contains("65,536 sessions instead of 2,097,152"), "{small}");
    assert!(small.contains("without a VLAN tag") && small.contains("256 bytes instead of 128"), "{small}");
    let ipv4 = text(&Options { translation: Translation::Nat44, ..published() });
    assert!(ipv4.contains("NAT44 instead of NAT64") && !ipv4.contains("prefix"), "{ipv4}");
}

#[test]
fn the_daemon_accepts_the_config_without_a_warning() {
    let translations = [Translation::Nat64, Translation::Nat44];
    for (tagged, translation) in
        [false, true].into_iter().flat_map(|tagged| translations.map(|of| (tagged, of)))
    {
        let options = Options { tagged, translation, ..published() };
        let text = config(&options, 0).replace("@LAB@", "/run/carrack-lab/x");
        let (_, warnings) = Config::from_str("carrack.toml", &text).unwrap_or_else(|errors| {
            panic!("{}\n{text}", errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
        });
        assert!(warnings.is_empty(), "{} warnings", warnings.len());
    }
}
