//! The page of counters as it stands is the table of reasons as it stands.

use carrack_base::REASONS;
use carrack_base::counters::Accounts;
use carrack_xtask::counters::{Side, TERMS, check, page};
use carrack_xtask::workspace_root;

#[test]
fn the_committed_page_is_fresh_and_its_metrics_are_served() {
    let problems = check(&workspace_root()).unwrap();
    assert!(problems.is_empty(), "{} problem(s):\n  {}", problems.len(), problems.join("\n  "));
}

#[test]
fn every_reason_has_its_row() {
    let page = page();
    for row in REASONS {
        let start = format!("| `{}` | {} | {} |", row.name, row.severity.name(), row.unit);
        let line =
            page.lines().find(|line| line.starts_with(&start)).unwrap_or_else(|| panic!("{}", row.name));
        assert!(line.contains(row.icmp.name()) && line.contains(row.description), "{line}");
        assert!(line.ends_with(&format!("`carrack_dropped_packets_total{{reason=\"{}\"}}` |", row.name)));
    }
}

/// The page tells the equation that the accounts compute.
#[test]
fn the_terms_are_those_of_the_accounts() {
    for (name, side, ..) in TERMS {
        let mut accounts = Accounts::default();
        match name {
            "rx" => accounts.rx = 1,
            "handed_in" => accounts.handed_in = 1,
            "originated" => accounts.originated = 1,
            "forwarded" => accounts.forwarded = 1,
            "punted" => accounts.punted = 1,
            "consumed" => accounts.consumed = 1,
            "handed_out" => accounts.handed_out = 1,
            "held" => accounts.held = 1,
            "dropped" => accounts.drop_n(REASONS[0].reason, 1),
            other => panic!("{other} is no term of the accounts"),
        }
        assert_eq!(accounts.balance(), if side == Side::Left { 1 } else { -1 }, "{name}");
    }
}

#[test]
fn a_page_that_is_not_there_is_stale() {
    let empty = std::env::temp_dir().join(format!("carrack-counters-{}", std::process::id()));
    std::fs::create_dir_all(empty.join("crates/api/src/server")).unwrap();
    std::fs::write(empty.join("crates/api/src/server/metrics.rs"), "").unwrap();
    let problems = check(&empty).unwrap();
    std::fs::remove_dir_all(&empty).unwrap();
    assert!(problems[0].contains("is stale"), "{problems:?}");
    // The terms, the balance, and two of what devices lost.
    assert_eq!(problems.len(), 1 + TERMS.len() + 3, "{problems:?}");
}
