use carrack_config::Config;

use super::*;

#[test]
fn the_daemon_accepts_the_config_without_a_warning() {
    let text = config(1, RING_LOG2, 1_000).replace("@LAB@", "/run/carrack-lab/x");
    let (_, warnings) = Config::from_str("carrack.toml", &text).unwrap_or_else(|errors| {
        panic!("{}", errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
    });
    assert!(warnings.is_empty(), "{} warnings", warnings.len());
}
