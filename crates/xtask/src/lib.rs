//! What the project checks about itself: citations of requirements, the page of counters, and the order of
//! its crates.
#![forbid(unsafe_code)]

pub mod citation;
pub mod compliance;
pub mod counters;
pub mod instructions;
pub mod layering;
pub mod requirement;
pub mod source;

use std::path::{Path, PathBuf};

/// The directory of the workspace's manifest.
pub fn workspace_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap_or(Path::new(".")).to_path_buf()
}
