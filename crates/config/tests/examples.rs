//! Every example in `examples/` is a config that works.
#![forbid(unsafe_code)]

use carrack_config::{Config, PortFacts, compile};

fn examples() -> Vec<std::path::PathBuf> {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    let mut paths: Vec<_> = std::fs::read_dir(dir)
        .expect("examples/ exists")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    paths.sort();
    paths
}

#[test]
fn every_example_is_valid_without_a_warning_and_compiles() {
    let paths = examples();
    assert!(paths.len() >= 9, "{paths:?}");
    for path in paths {
        let (config, warnings) = Config::from_file(&path).unwrap_or_else(|errors| {
            let all: Vec<String> = errors.iter().map(ToString::to_string).collect();
            panic!("{}", all.join("\n"))
        });
        assert!(warnings.is_empty(), "{}", warnings[0]);
        let compiled = compile(&config, &PortFacts::assumed(&config), None)
            .unwrap_or_else(|errors| panic!("{}", errors[0]));
        let translates = !compiled.snapshot.nat.instances.is_empty() || !compiled.snapshot.siit.is_empty();
        assert!(translates, "{}", path.display());
        assert!(compiled.snapshot.interfaces.iter().flatten().count() >= 2, "{}", path.display());
    }
}
