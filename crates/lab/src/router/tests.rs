use carrack_config::Config;

use super::*;

#[test]
fn the_daemon_accepts_the_labs_config_without_a_warning() {
    for io in [Io::AfPacket, Io::AfXdp] {
        let text = config(io).replace("@LAB@", "/run/carrack-lab/demo");
        let (_, warnings) = Config::from_str("carrack.toml", &text).unwrap_or_else(|errors| {
            panic!("{}", errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
        });
        assert!(warnings.is_empty(), "{} warnings", warnings.len());
    }
}
