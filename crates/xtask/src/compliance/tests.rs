use super::*;

const LIST: &str = r#"
rfc = 4787
title = "UDP"
published = "2007"

[[requirement]]
id = "REQ-1"
level = "MUST"
text = "a | b"
state = "met"
why = "because"

[[requirement]]
id = "REQ-1a"
level = "MAY"
text = "more"
state = "declined"
why = "no need"
"#;

fn cite(id: &str, is_test: bool) -> Citation {
    let path = if is_test { "crates/nat/tests/map.rs" } else { "crates/nat/src/map.rs" };
    Citation {
        rfc: 4787,
        id: id.into(),
        path: path.into(),
        line: 3,
        is_test,
        function: Some("one_mapping".into()),
    }
}

fn gaps_of(citations: &[Citation]) -> Vec<String> {
    report(&[requirement::parse(LIST).unwrap()], citations).gaps
}

#[test]
fn claim_needs_both_code_and_test() {
    assert_eq!(gaps_of(&[]), ["RFC 4787 REQ-1 is claimed to be met, but no code and no test cites it"]);
    assert_eq!(
        gaps_of(&[cite("REQ-1", false)]),
        ["RFC 4787 REQ-1 is claimed to be met, but no test cites it"]
    );
    assert_eq!(
        gaps_of(&[cite("REQ-1", true)]),
        ["RFC 4787 REQ-1 is claimed to be met, but no code cites it"]
    );
    assert_eq!(gaps_of(&[cite("REQ-1", false), cite("REQ-1", true)]), [""; 0]);
}

#[test]
fn claim_shown_by_another_table_needs_no_citation() {
    let list = LIST.replace("why = \"because\"", "why = \"because\"\nsee = [5382]");
    let report = report(&[requirement::parse(&list).unwrap()], &[]);
    assert_eq!(report.gaps, [""; 0]);
    assert!(report.text.contains("| because | — | [RFC 5382](#rfc-5382) |"), "{}", report.text);
}

#[test]
fn letter_does_not_stand_for_its_requirement() {
    assert_eq!(gaps_of(&[cite("REQ-1a", false), cite("REQ-1", true)]).len(), 1);
}

#[test]
fn citation_of_nothing_is_a_gap_but_reading_a_section_is_not() {
    let shown = [cite("REQ-1", false), cite("REQ-1", true)];
    let with = |id| gaps_of(&[&shown[..], &[cite(id, false)]].concat());
    let line =
        "crates/nat/src/map.rs:3 cites RFC 4787 REQ-99, which docs/requirements/rfc4787.toml does not list";
    assert_eq!(with("REQ-99"), [line]);
    assert_eq!(with("§4.1"), [""; 0]);
}

#[test]
fn row_names_code_test_and_reason() {
    let text =
        report(&[requirement::parse(LIST).unwrap()], &[cite("REQ-1", false), cite("REQ-1", true)]).text;
    let row = "| REQ-1 | MUST | a \\| b | met | because | [nat/map.rs](../crates/nat/src/map.rs) | \
               [`one_mapping`](../crates/nat/tests/map.rs) |";
    assert!(text.contains(row), "{text}");
    assert!(text.contains("| REQ-1a | MAY | more | deliberately not | no need | — | — |"), "{text}");
}

#[test]
fn malformed_lists_are_refused() {
    assert!(requirement::parse(&LIST.replace("REQ-1a", "REQ-1")).is_err());
    assert!(requirement::parse(&LIST.replace("\"met\"", "\"perhaps\"")).is_err());
    assert!(requirement::parse(&LIST.replace("\"MAY\"", "\"WOULD\"")).is_err());
    assert!(requirement::parse(&LIST.replace("\"no need\"", "\"\"")).is_err());
    assert!(requirement::parse(&LIST.replace("published", "date")).is_err());
}

#[test]
fn lists_of_this_project_are_complete() {
    let documents = requirement::load(&crate::workspace_root()).unwrap();
    for (rfc, last, count) in [(4787, 14, 26), (5382, 10, 16), (5508, 11, 30), (6888, 15, 31), (7857, 0, 14)]
    {
        let document = documents.iter().find(|document| document.rfc == rfc).unwrap();
        assert_eq!(document.requirements.len(), count, "RFC {rfc}");
        for number in 1..=last {
            let id = format!("REQ-{number}");
            // Some requirements are only a heading for their letters.
            let is_there = |r: &Requirement| {
                r.id == id
                    || r.id
                        .strip_prefix(&id)
                        .is_some_and(|rest| rest.len() == 1 && !rest.bytes().all(|b| b.is_ascii_digit()))
            };
            assert!(document.requirements.iter().any(is_there), "RFC {rfc} {id}");
        }
    }
}
