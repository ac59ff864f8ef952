use super::*;

fn cite(path: &str, text: &str) -> Vec<Citation> {
    find(&SourceFile { path: path.into(), text: text.into() })
}

#[test]
fn both_forms_are_read_and_punctuation_is_left_out() {
    let ids = |line| in_line(line).into_iter().map(|(rfc, id)| format!("{rfc} {id}")).collect::<Vec<_>>();
    assert_eq!(ids("// RFC 4787 REQ-8, and RFC 7857 §2.1."), ["4787 REQ-8", "7857 §2.1"]);
    assert_eq!(ids("(RFC 4787 REQ-13a): x"), ["4787 REQ-13a"]);
    assert_eq!(ids("RFC 7857 §7"), ["7857 §7"]);
    assert_eq!(ids("RFC 5508 REQ-10"), ["5508 REQ-10"]);
    assert_eq!(
        ids("(RFC 5508 REQ-4, REQ-5a and REQ-6, RFC 4787 REQ-12)"),
        ["5508 REQ-4", "5508 REQ-5a", "5508 REQ-6", "4787 REQ-12"]
    );
    assert_eq!(ids("RFC 7857 §2, §2.1. §3"), ["7857 §2", "7857 §2.1"]);
    assert_eq!(
        ids("RFC 7915 §4 (order), §5 (order): x"),
        ["7915 §4", "7915 §4 (order)", "7915 §5", "7915 §5 (order)"]
    );
    assert_eq!(ids("RFC 4443 §2.4 (e.4), and"), ["4443 §2.4"]);
}

#[test]
fn near_misses_are_no_citations() {
    for line in [
        "RFC4787 REQ-8",
        "RFC 4787 REQ8",
        "RFC 4787 REQ-",
        "RFC 4787 REQ-8ab",
        "RFC 4787 REQ-8A",
        "RFC 7857 §",
        "RFC 7857",
        "RFC x REQ-1",
    ] {
        assert_eq!(in_line(line), [], "{line}");
    }
}

#[test]
fn citation_names_the_function_it_is_about() {
    let text = "\
/// RFC 4787 REQ-1
#[test]
fn above() {
    // RFC 4787 REQ-2
    x();
}

/// Doc of a struct, RFC 4787 REQ-3
struct S;

pub(crate) async fn later<T>() {} // RFC 4787 REQ-4
";
    let found: Vec<_> = cite("crates/nat/tests/a.rs", text)
        .into_iter()
        .map(|c| (c.id, c.function.unwrap(), c.line))
        .collect();
    let expected =
        [("REQ-1", "above", 1), ("REQ-2", "above", 4), ("REQ-3", "above", 8), ("REQ-4", "later", 11)];
    assert_eq!(found, expected.map(|(id, name, line)| (id.to_string(), name.to_string(), line)));
}

#[test]
fn code_and_test_are_told_apart_within_a_file() {
    let text =
        "// RFC 4787 REQ-1\nfn a() {}\n#[cfg(test)]\nmod tests {\n// RFC 4787 REQ-1\nfn shows_a() {}\n}\n";
    let found: Vec<_> =
        cite("crates/nat/src/a.rs", text).into_iter().map(|c| (c.is_test, c.function.unwrap())).collect();
    assert_eq!(found, [(false, "a".to_string()), (true, "shows_a".to_string())]);
}

#[test]
fn golden_cases_cite_without_a_function() {
    let found = cite("tests/golden/hairpin/case.toml", "# RFC 4787 REQ-9");
    assert_eq!((found[0].is_test, found[0].function.as_deref()), (true, None));
}
