//! The workspace as it stands obeys its own rules.

#[test]
fn crates_keep_their_order_and_unsafe_stays_where_it_belongs() {
    let problems = carrack_xtask::layering::check(&carrack_xtask::workspace_root()).unwrap();
    assert!(problems.is_empty(), "{} problem(s):\n  {}", problems.len(), problems.join("\n  "));
}
