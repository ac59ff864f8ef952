//! The order of the crates, and what only some of them may do.

mod rules;
#[cfg(test)]
mod tests;

use crate::source::{self, SourceFile};
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::path::Path;
use std::process::Command;

/// One package of the workspace, as `cargo metadata` tells.
#[derive(Clone, Debug, Deserialize)]
pub struct Package {
    /// Its name, `carrack-nat` for instance.
    pub name: String,
    /// What it depends on, of all kinds.
    pub dependencies: Vec<Dependency>,
    /// What it builds.
    pub targets: Vec<Target>,
}

/// One dependency of a package.
#[derive(Clone, Debug, Deserialize)]
pub struct Dependency {
    /// Name of the package depended on.
    pub name: String,
    /// `None` for a normal dependency, else `dev` or `build`.
    pub kind: Option<String>,
}

/// One thing a package builds.
#[derive(Clone, Debug, Deserialize)]
pub struct Target {
    /// `lib`, `bin`, `test`, `bench`, …
    pub kind: Vec<String>,
    /// Its root file.
    pub src_path: String,
}

/// What breaks the rules below `root`, one sentence each; empty when all is well.
///
/// # Errors
/// When cargo or a file cannot be read.
pub fn check(root: &Path) -> Result<Vec<String>> {
    let packages = packages(root)?;
    let mut files = source::text_files(root, &["crates", "testkit", "tests", "benches", "examples", "fuzz"])?;
    files.retain(|file| file.path.ends_with(".rs"));
    let mut problems = rules::dependencies(&packages);
    problems.extend(rules::roots(&root_files(root, &packages, &files)));
    problems.extend(files.iter().flat_map(rules::file));
    Ok(problems)
}

fn packages(root: &Path) -> Result<Vec<Package>> {
    #[derive(Deserialize)]
    struct Metadata {
        packages: Vec<Package>,
    }
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root)
        .output()
        .context("running cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let metadata: Metadata = serde_json::from_slice(&output.stdout).context("reading cargo metadata")?;
    Ok(metadata.packages)
}

/// The root files of libraries and binaries.
fn root_files<'a>(root: &Path, packages: &[Package], files: &'a [SourceFile]) -> Vec<&'a SourceFile> {
    let is_shipped =
        |target: &&Target| target.kind.iter().any(|kind| matches!(kind.as_str(), "lib" | "rlib" | "bin"));
    let paths: Vec<_> = packages
        .iter()
        .flat_map(|package| &package.targets)
        .filter(is_shipped)
        .filter_map(|target| Path::new(&target.src_path).strip_prefix(root).ok())
        .map(|path| path.to_string_lossy().replace('\\', "/"))
        .collect();
    files.iter().filter(|file| paths.contains(&file.path)).collect()
}
