//! Builds the C shim against the system's libdpdk and links the few DPDK libraries it calls.

use std::process::Command;

/// Oldest release the shim compiles with.
const DPDK_VERSION_MIN: &str = "22.11";

/// What the shim calls itself. Drivers are shared objects that the environment abstraction layer loads at start.
const LIBRARIES: [&str; 5] = ["rte_ethdev", "rte_mbuf", "rte_mempool", "rte_ring", "rte_eal"];

/// The same of a library that not every release has: logging left the environment abstraction layer in 23.11.
const LIBRARY_SINCE_23_11: &str = "rte_log";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=shim");
    println!("cargo::rerun-if-changed=tests/card");
    println!("cargo::rerun-if-env-changed=PKG_CONFIG_PATH");
    let atleast = format!("--atleast-version={DPDK_VERSION_MIN}");
    if pkg_config(&[&atleast]).is_none() {
        let found = pkg_config(&["--modversion"]).unwrap_or_else(|| "none".to_owned());
        panic!(
            "DPDK {DPDK_VERSION_MIN} or newer is needed, found {}. Install libdpdk-dev and pkg-config, \
             or set PKG_CONFIG_PATH to the directory of libdpdk.pc.",
            found.trim()
        );
    }
    c_library(&["shim/shim.c", "shim/steer.c"]).compile("carrack_dpdk_shim");
    // Linked by the test that names it, and by nothing else.
    c_library(&["tests/card/card.c"]).cargo_metadata(false).compile("carrack_test_card");
    if let Some(directory) = pkg_config(&["--variable=libdir"]) {
        println!("cargo::rustc-link-search=native={}", directory.trim());
    }
    let all = pkg_config(&["--libs"]).unwrap_or_default();
    let has_log = all.split_whitespace().any(|flag| flag.strip_prefix("-l") == Some(LIBRARY_SINCE_23_11));
    for library in LIBRARIES.into_iter().chain(has_log.then_some(LIBRARY_SINCE_23_11)) {
        println!("cargo::rustc-link-lib=dylib={library}");
    }
}

/// C code that includes DPDK's headers.
fn c_library(files: &[&str]) -> cc::Build {
    let mut library = cc::Build::new();
    library.files(files).warnings(true).extra_warnings(true).std("gnu11").opt_level(3);
    for flag in pkg_config(&["--cflags"]).unwrap_or_default().split_whitespace() {
        // System headers, so that DPDK's own warnings stay out of ours.
        match flag.strip_prefix("-I") {
            Some(directory) => library.flag("-isystem").flag(directory),
            None => library.flag(flag),
        };
    }
    library
}

fn pkg_config(arguments: &[&str]) -> Option<String> {
    let output = Command::new("pkg-config").args(arguments).arg("libdpdk").output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}
