//! Any text at all is taken or refused, and a mistake is reported at its line.
#![forbid(unsafe_code)]

use carrack_config::{Config, PortFacts, compile, keys};
use proptest::prelude::*;

const BASE: &str = include_str!("base.toml");

/// Reads, and does with the result everything that can be done.
fn exercise(text: &str) {
    match Config::from_str("t.toml", text) {
        Ok((config, warnings)) => {
            warnings.iter().for_each(|warning| assert!(!warning.to_string().is_empty()));
            if let Err(errors) = compile(&config, &PortFacts::assumed(&config), None) {
                panic!("valid but does not compile: {}\n{text}", errors[0]);
            }
            assert!(carrack_config::diff(&config, &config).is_empty());
        }
        Err(errors) => {
            assert!(!errors.is_empty());
            for error in errors {
                assert!(!error.message.contains("internal"), "{error}\n{text}");
                assert!(error.line <= text.lines().count() + 1);
                assert!(error.to_string().contains("error: "));
            }
        }
    }
}

/// Lines that look like config, in any order: gets deeper than random characters.
fn plausible() -> impl Strategy<Value = String> {
    let headers: Vec<String> = keys::sections()
        .map(
            |section| {
                if section.many { format!("[[{}]]", section.path) } else { format!("[{}]", section.path) }
            },
        )
        .collect();
    let lines: Vec<String> = keys::keys()
        .flat_map(|key| {
            let odd = [
                "0",
                "-1",
                "\"\"",
                "[]",
                "{}",
                "true",
                "99999999999999999999",
                "\"0.0.0.0/0\"",
                "[[[1]]]",
                "1.5",
            ];
            let odd = odd.map(|value| format!("{} = {value}", key.name));
            std::iter::repeat_n(format!("{} = {}", key.name, key.example), 10).chain(odd)
        })
        .collect();
    let line = prop_oneof![1 => prop::sample::select(headers), 3 => prop::sample::select(lines)];
    prop::collection::vec(line, 0..40).prop_map(|lines| lines.join("\n"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_taken_or_refused_without_a_panic(text in "\\PC{0,200}") {
        exercise(&text);
    }

    #[test]
    fn any_lines_of_config_are_taken_or_refused_without_a_panic(text in plausible()) {
        exercise(&text);
    }

    #[test]
    fn a_valid_config_with_a_few_characters_changed_is_taken_or_refused(
        edits in prop::collection::vec((0..BASE.len(), "[ -~\\n]{0,3}"), 1..4),
    ) {
        let mut text = BASE.to_owned();
        for (at, new) in edits {
            let at = at.min(text.len());
            let end = (at + new.len()).min(text.len());
            text.replace_range(at..end, &new);
        }
        exercise(&text);
    }

    /// One key misspelt, wherever it stands, is reported at that line.
    #[test]
    fn a_misspelt_key_is_reported_at_its_line(choice in any::<prop::sample::Index>(), letter in "[xyz]") {
        let lines: Vec<&str> = BASE.lines().collect();
        let keyed: Vec<usize> = (0..lines.len()).filter(|i| lines[*i].contains(" = ")).collect();
        let line = keyed[choice.index(keyed.len())];
        let mut lines: Vec<String> = lines.into_iter().map(str::to_owned).collect();
        lines[line] = format!("{letter}{}", lines[line]);
        let errors = Config::from_str("t.toml", &lines.join("\n")).expect_err("an unknown key");
        prop_assert!(errors.iter().any(|error| error.line == line + 1 && error.message.contains("unknown key")), "{errors:?}");
    }

    /// One value made nonsense, wherever it stands, is reported at that line.
    #[test]
    fn a_wrong_value_is_reported_at_its_line(choice in any::<prop::sample::Index>()) {
        let lines: Vec<&str> = BASE.lines().collect();
        let keyed: Vec<usize> = (0..lines.len()).filter(|i| lines[*i].contains(" = ")).collect();
        let line = keyed[choice.index(keyed.len())];
        let mut lines: Vec<String> = lines.into_iter().map(str::to_owned).collect();
        let (key, _) = lines[line].split_once(" = ").expect("a key");
        lines[line] = format!("{key} = 1979-05-27");
        let errors = Config::from_str("t.toml", &lines.join("\n")).expect_err("a date");
        prop_assert!(errors.iter().any(|error| error.line == line + 1 && error.message.contains("a date where")), "{errors:?}");
    }
}
