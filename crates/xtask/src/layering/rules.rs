//! The rules themselves, over what was read.

use super::Package;
use crate::source::{SourceFile, code_only, has_word};

/// The crates, lowest first: an edge may only point to an earlier one. `io` is below `config`, which checks
/// device descriptions with it.
const ORDER: [&str; 24] = [
    "wire",
    "base",
    "xlat",
    "frame",
    "vector",
    "tables",
    "alg",
    "nat",
    "pipeline",
    "host",
    "pcp",
    "io",
    "config",
    "io-dpdk",
    "runtime",
    "natlog",
    "api",
    "lab",
    "testkit",
    "fuzz-targets",
    "bench",
    "system-tests",
    "carrack",
    "xtask",
];
/// Crates that know neither async runtime, config files, API types nor DPDK.
const PURE: [&str; 11] =
    ["wire", "base", "xlat", "frame", "vector", "tables", "alg", "nat", "pipeline", "host", "pcp"];
/// What those may not depend on, in any kind of dependency.
const NOT_FOR_PURE: [&str; 8] =
    ["tokio", "axum", "toml", "clap", "hyper", "carrack-config", "carrack-api", "carrack-io-dpdk"];
/// Crates that may hold `unsafe`.
const UNSAFE_ALLOWED: [&str; 4] = ["frame", "vector", "tables", "io-dpdk"];
/// Crates that may read the clock.
const CLOCK_ALLOWED: [&str; 8] = ["runtime", "natlog", "api", "lab", "bench", "carrack", "xtask", "io-dpdk"];
/// How clocks are read.
const CLOCKS: [&str; 2] = ["Instant::now", "SystemTime::now"];
/// Lines of a file, at most.
const LINES_MAX: usize = 1_000;

/// The name of a crate without the project's.
fn short(name: &str) -> &str {
    name.strip_prefix("carrack-").unwrap_or(name)
}

fn rank(name: &str) -> Option<usize> {
    ORDER.iter().position(|known| *known == short(name))
}

/// Edges that point upwards, and crates the order does not know. A test may use the test kit from below.
pub fn dependencies(packages: &[Package]) -> Vec<String> {
    let mut problems = Vec::new();
    for package in packages {
        let Some(own) = rank(&package.name) else {
            problems.push(format!(
                "{}: unknown crate; give it a place in ORDER of the layering rules",
                package.name
            ));
            continue;
        };
        for dependency in &package.dependencies {
            let is_dev = dependency.kind.as_deref() == Some("dev");
            let is_ours = packages.iter().any(|other| other.name == dependency.name);
            let is_kit_in_test = is_dev && dependency.name == "carrack-testkit";
            if is_ours && !is_kit_in_test && rank(&dependency.name).is_some_and(|other| other >= own) {
                problems.push(format!("{} depends upwards on {}", package.name, dependency.name));
            }
            if PURE.contains(&short(&package.name)) && NOT_FOR_PURE.contains(&dependency.name.as_str()) {
                problems.push(format!("{} must not know {}", package.name, dependency.name));
            }
        }
    }
    problems
}

/// Crate roots that do not forbid `unsafe`.
pub fn roots(files: &[&SourceFile]) -> Vec<String> {
    files
        .iter()
        .filter(|file| !file.crate_dir().is_some_and(|name| UNSAFE_ALLOWED.contains(&name)))
        .filter(|file| !code_only(&file.text).contains("#![forbid(unsafe_code)]"))
        .map(|file| format!("{}: a crate root needs #![forbid(unsafe_code)]", file.path))
        .collect()
}

/// What a single Rust file breaks.
pub fn file(file: &SourceFile) -> Vec<String> {
    let mut problems = Vec::new();
    let lines = file.text.lines().count();
    if lines > LINES_MAX {
        problems.push(format!("{}: {lines} lines; split it, {LINES_MAX} are the limit", file.path));
    }
    let is_in = |names: &[&str]| file.crate_dir().is_some_and(|name| names.contains(&name));
    for (index, line) in code_only(&file.text).lines().enumerate() {
        let number = index + 1;
        if has_word(line, "unsafe") && !is_in(&UNSAFE_ALLOWED) {
            problems.push(format!("{}:{number}: unsafe belongs in {}", file.path, UNSAFE_ALLOWED.join(", ")));
        }
        let may_read_clock = is_in(&CLOCK_ALLOWED) || file.is_bench() || is_plain_test(file, number);
        for clock in CLOCKS {
            if !may_read_clock && has_word(line, clock) {
                problems.push(format!("{}:{number}: {clock}: time is a parameter below runtime", file.path));
            }
        }
    }
    problems
}

/// Tests may measure; the test kit's simulations may not.
fn is_plain_test(file: &SourceFile, line: usize) -> bool {
    let is_kit_source = file.path.starts_with("crates/testkit/src/");
    if is_kit_source {
        file.test_from_line().is_some_and(|from| line >= from)
    } else {
        file.is_test_line(line)
    }
}
