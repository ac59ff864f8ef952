use std::path::PathBuf;

use carrack_config::Config;

use super::*;

#[test]
fn the_daemon_accepts_the_config_without_a_warning() {
    let translations = [Translation::Nat64, Translation::Nat44];
    for (tagged, translation) in
        [false, true].into_iter().flat_map(|tagged| translations.map(|of| (tagged, of)))
    {
        let options = Options {
            binary: PathBuf::new(),
            sessions: 2_097_152,
            seconds: 1,
            rate: None,
            deletions: 70_000,
            snapshot_every: 3,
            frame_bytes: 128,
            tagged,
            translation,
        };
        let text = config(&options, 0).replace("@LAB@", "/run/carrack-lab/x");
        let (_, warnings) = Config::from_str("carrack.toml", &text).unwrap_or_else(|errors| {
            panic!("{}\n{text}", errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
        });
        assert!(warnings.is_empty(), "{} warnings", warnings.len());
    }
}
