//! Plays the golden cases and checks that every drop reason has one, or a named test elsewhere.

use std::collections::BTreeSet;
use std::path::Path;

use carrack_base::REASONS;
use carrack_testkit::golden;

/// Each case by itself; all failures are told at once. `GOLDEN=name` plays one.
#[test]
fn every_golden_case_plays() {
    let below = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let only = std::env::var("GOLDEN").ok();
    let (mut seen, mut failures) = (BTreeSet::new(), vec![]);
    for case in golden::cases(&below).unwrap() {
        let name = case.file_name().unwrap().to_string_lossy().into_owned();
        if only.as_ref().is_some_and(|only| *only != name) {
            continue;
        }
        match std::panic::catch_unwind(|| golden::play(&case)) {
            Ok(Ok(reasons)) => seen.extend(reasons),
            Ok(Err(error)) => failures.push(error),
            Err(_) => failures.push(format!("{name}: panicked, see above")),
        }
    }
    assert!(failures.is_empty(), "{} cases differ:\n{}", failures.len(), failures.join("\n"));
    if only.is_some() {
        return;
    }
    let readme = std::fs::read_to_string(below.join("README.md")).unwrap();
    let elsewhere: BTreeSet<&str> = readme
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`').map(|(name, _)| name))
        .collect();
    for row in REASONS {
        let here = seen.contains(&row.reason);
        let there = elsewhere.contains(row.name);
        assert!(here || there, "no golden case drops for `{}`, and README.md names no test of it", row.name);
        assert!(!(here && there), "`{}` has a golden case; README.md need not name another test", row.name);
    }
}
