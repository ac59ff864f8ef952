use super::*;

fn package(name: &str, dependencies: &[(&str, Option<&str>)]) -> Package {
    let dependencies = dependencies
        .iter()
        .map(|(name, kind)| Dependency { name: (*name).into(), kind: kind.map(Into::into) })
        .collect();
    Package { name: name.into(), dependencies, targets: Vec::new() }
}

fn file(path: &str, text: &str) -> SourceFile {
    SourceFile { path: path.into(), text: text.into() }
}

#[test]
fn edges_may_only_point_downwards() {
    let judge = |from: &str, to: &str, kind| {
        let packages = [package(from, &[(to, kind)]), package(to, &[])];
        rules::dependencies(&packages).len()
    };
    assert_eq!(judge("carrack-nat", "carrack-wire", None), 0);
    assert_eq!(judge("carrack-wire", "carrack-nat", None), 1);
    assert_eq!(judge("carrack-wire", "carrack-nat", Some("build")), 1);
    assert_eq!(judge("carrack-wire", "carrack-nat", Some("dev")), 1);
    assert_eq!(judge("carrack-nat", "carrack-testkit", Some("dev")), 0);
    assert_eq!(judge("carrack-nat", "carrack-testkit", None), 1);
    assert_eq!(judge("carrack-xtask", "carrack", None), 0);
}

#[test]
fn pure_crates_know_no_management_plane() {
    for name in ["tokio", "axum", "toml", "clap", "hyper", "carrack-config", "carrack-api", "carrack-io-dpdk"]
    {
        assert!(!rules::dependencies(&[package("carrack-host", &[(name, None)])]).is_empty(), "{name}");
    }
    assert_eq!(rules::dependencies(&[package("carrack-config", &[("toml", None)])]), [""; 0]);
}

#[test]
fn new_crate_needs_a_place() {
    assert_eq!(rules::dependencies(&[package("carrack-unheard-of", &[])]).len(), 1);
}

#[test]
fn unsafe_stays_in_its_crates_and_roots_forbid_it() {
    assert_eq!(rules::file(&file("crates/nat/src/a.rs", "fn a() { unsafe { b() } }")).len(), 1);
    assert_eq!(rules::file(&file("crates/nat/tests/a.rs", "unsafe fn a() {}")).len(), 1);
    assert_eq!(rules::file(&file("crates/tables/src/a.rs", "unsafe fn a() {}")), [""; 0]);
    assert_eq!(rules::file(&file("crates/nat/src/a.rs", "// unsafe\nlet a = \"unsafe\";")), [""; 0]);
    assert_eq!(rules::roots(&[&file("crates/nat/src/lib.rs", "//! #![forbid(unsafe_code)]\n")]).len(), 1);
    assert_eq!(rules::roots(&[&file("crates/nat/src/lib.rs", "#![forbid(unsafe_code)]\n")]), [""; 0]);
    assert_eq!(rules::roots(&[&file("crates/io-dpdk/src/lib.rs", "")]), [""; 0]);
}

#[test]
fn clock_is_read_only_at_the_top() {
    let text = "fn a() { let t = std::time::Instant::now(); }";
    for (path, count) in [
        ("crates/nat/src/a.rs", 1),
        ("crates/testkit/src/sim.rs", 1),
        ("crates/nat/src/a/tests.rs", 0),
        ("crates/nat/benches/a.rs", 0),
        ("crates/runtime/src/a.rs", 0),
        ("crates/carrack/src/a.rs", 0),
    ] {
        assert_eq!(rules::file(&file(path, text)).len(), count, "{path}");
    }
    let inline = format!("fn a() {{}}\n#[cfg(test)]\nmod tests {{\n{text}\n}}\n");
    assert_eq!(rules::file(&file("crates/nat/src/a.rs", &inline)), [""; 0]);
}

#[test]
fn long_files_are_reported() {
    assert_eq!(rules::file(&file("crates/nat/src/a.rs", &"\n".repeat(1_000))), [""; 0]);
    assert_eq!(rules::file(&file("crates/nat/src/a.rs", &"\n".repeat(1_001))).len(), 1);
}
