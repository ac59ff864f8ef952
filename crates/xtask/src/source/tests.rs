use super::*;

fn file(path: &str, text: &str) -> SourceFile {
    SourceFile { path: path.into(), text: text.into() }
}

#[test]
fn comments_and_literals_are_not_code() {
    for hidden in [
        "// unsafe",
        "/* a /* nested */ unsafe */",
        "\"unsafe\"",
        "\"\\\" unsafe\"",
        "b\"unsafe\"",
        "r\"unsafe\\\"",
        "r#\"a \" unsafe\"#",
        "br##\"\"# unsafe\"##",
        "\"two\nlines unsafe\"",
    ] {
        let source = format!("let a = {hidden}\n; fn b() {{}}");
        let code = code_only(&source);
        assert!(!has_word(&code, "unsafe"), "{source:?} -> {code:?}");
        assert!(code.contains("fn b"), "{source:?} -> {code:?}");
        assert_eq!(code.lines().count(), source.lines().count());
    }
}

#[test]
fn code_behind_a_literal_is_still_seen() {
    for seen in [
        "'\"' unsafe",
        "'\\'' unsafe",
        "'\\\\' unsafe",
        "'a unsafe",
        "r#type unsafe",
        "'ä' unsafe",
        "\"\\\\\" unsafe",
        "'\\u{1F600}' unsafe",
    ] {
        assert!(has_word(&code_only(seen), "unsafe"), "{seen:?} -> {:?}", code_only(seen));
    }
}

#[test]
fn only_whole_words_count() {
    assert!(has_word("unsafe {", "unsafe") && has_word("x=Instant::now()", "Instant::now"));
    assert!(!has_word("#![forbid(unsafe_code)]", "unsafe") && !has_word("not_unsafe", "unsafe"));
}

#[test]
fn tests_are_told_by_path_and_by_module() {
    assert!(file("crates/nat/tests/a.rs", "").is_test());
    assert!(file("crates/nat/src/a/tests.rs", "").is_test());
    assert!(file("tests/golden/a/case.toml", "").is_test());
    assert!(file("crates/testkit/src/lib.rs", "").is_test());
    assert!(
        file("crates/lab/src/checks/udp.rs", "").is_test() && !file("crates/lab/src/net.rs", "").is_test()
    );
    assert!(!file("crates/nat/src/contests.rs", "").is_test());
    let inline = file("crates/nat/src/a.rs", "fn a() {}\n#[cfg(test)]\n#[allow(x)]\nmod tests {\n}\n");
    assert!(!inline.is_test_line(1) && inline.is_test_line(2) && inline.is_test_line(4));
    assert_eq!(file("a.rs", "#[cfg(test)]\nmod tests;\nfn a() {}").test_from_line(), None);
    assert_eq!(file("a.rs", "#[cfg(test)]\nuse a;\nmod b {").test_from_line(), None);
}
