use super::*;
use crate::model::Config;
use crate::read::{Notes, Section};
use crate::source::Source;
use toml::de::{DeTable, DeValue};

/// Reads an otherwise empty file with one element of every list and returns the keys that the parser asked for.
fn asked() -> std::collections::BTreeSet<(&'static str, &'static str)> {
    let text = "[[vrf]]\n[[interface]]\n[[route]]\n[[nat]]\n[nat.nat64]\n[[nat.port_control.subscriber]]\n[[nat.pool]]\n[[nat.one_to_one]]\n[[nat.forward]]\n\
         [[siit]]\n[[logging.exporter]]\n";
    let root = DeTable::parse(text).unwrap();
    let notes = Notes::default();
    let _: Config =
        crate::parse::config(&notes, &Section::root(&notes, root.get_ref()), Source::new("t", text));
    for fault in notes.faults.borrow().iter() {
        assert!(!fault.message.contains("internal"), "{}", fault.message);
    }
    notes.asked.into_inner()
}

#[test]
fn the_parser_asks_for_exactly_the_keys_of_the_table() {
    let declared: std::collections::BTreeSet<_> = keys().map(|key| (key.section, key.name)).collect();
    assert_eq!(declared.len(), keys().count(), "a key is declared twice");
    assert_eq!(asked(), declared);
}

#[test]
fn every_key_belongs_to_a_declared_table_and_explains_itself() {
    for key in keys() {
        assert!(section(key.section).is_some(), "{}", key.section);
        assert!(key.meaning.ends_with('.') && !key.meaning.contains('|'), "{}.{}", key.section, key.name);
        assert!(
            key.name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'),
            "{}",
            key.name
        );
    }
    for section in sections() {
        assert!(section.meaning.ends_with('.'), "{}", section.path);
        assert!(keys().any(|key| key.section == section.path), "{} has no keys", section.path);
    }
}

/// The reference shows examples and defaults: the parser must take them. Only what an example refers to may be missing.
#[test]
fn every_example_and_default_is_a_value_that_the_parser_takes() {
    for key in keys() {
        for text in
            [Some(key.example), if let Fallback::Value(text) = key.default { Some(text) } else { None }]
        {
            let Some(text) = text else { continue };
            assert!(DeValue::parse(text).is_ok(), "{}.{}: {text}", key.section, key.name);
            let file = format!("{}\n{} = {text}\n", document_above(key.section), key.name);
            let Err(errors) = Config::from_str("t.toml", &file) else { continue };
            let line = file.lines().count();
            let own: Vec<String> = errors
                .iter()
                .filter(|error| error.line == line && error.message.starts_with(&format!("`{}`: ", key.name)))
                .map(ToString::to_string)
                .collect();
            assert!(own.is_empty(), "{}.{}: {}", key.section, key.name, own.join("\n"));
        }
    }
}

#[test]
fn a_value_that_cannot_be_used_is_reported_once() {
    for key in keys() {
        // A date is no value of any key.
        let file = format!("{}\n{} = 1979-05-27\n", document_above(key.section), key.name);
        let errors = Config::from_str("t.toml", &file).expect_err(key.name);
        let line = file.lines().count();
        let own = |error: &&crate::ConfigError| {
            error.line == line && error.message.starts_with(&format!("`{}`: ", key.name))
        };
        let own: Vec<String> = errors.iter().filter(own).map(ToString::to_string).collect();
        assert_eq!(own.len(), 1, "{}.{}: {}", key.section, key.name, own.join("\n"));
    }
}

fn document_above(path: &str) -> String {
    if path.starts_with("nat.") { format!("[[nat]]\n{}", header(path)) } else { header(path) }
}

/// What config gives without a word is what the engine's own defaults are.
#[test]
fn defaults_are_those_of_the_engine() {
    let text = "[[interface]]\nname = \"a\"\ndevice = \"mem:a\"\nside = \"inside\"\n\n[[interface]]\nname = \"b\"\n\
                device = \"mem:b\"\nside = \"outside\"\n\n[[route]]\nprefix = \"0.0.0.0/0\"\ninterface = \"b\"\n\n[[nat]]\nname = \"n\"\n\n[[nat.pool]]\nname = \"p\"\n\
                addresses = [\"192.0.2.1\"]\n";
    let (config, warnings) =
        Config::from_str("t.toml", text).unwrap_or_else(|errors| panic!("{}", errors[0]));
    assert_eq!(warnings, []);
    assert_eq!(config.policers, carrack_pipeline::snapshot::Policers::default());
    assert_eq!(config.arp, carrack_host::ArpTimers::default());
    let compiled = crate::compile(&config, &crate::PortFacts::assumed(&config), None).unwrap();
    assert_eq!(compiled.sizes, carrack_pipeline::snapshot::WorkerSizes::default());
    let instance = &compiled.snapshot.nat.instances[0];
    assert_eq!(instance.timeouts, carrack_nat::policy::Timeouts::default());
    assert_eq!(instance.limits, carrack_nat::policy::Limits::default());
    assert_eq!(instance.subscribers, [carrack_base::Prefix4::DEFAULT]);
    assert_eq!(instance.mapping, [carrack_nat::policy::Mapping::EndpointIndependent; 3]);
    assert_eq!(instance.filtering, [carrack_nat::policy::Filtering::EndpointIndependent; 3]);
    assert_eq!(instance.pooling, carrack_nat::policy::Pooling::Paired);
    assert_eq!(instance.exhausted_icmp, carrack_nat::policy::ExhaustedIcmp::HostUnreachable);
    assert_eq!(
        (instance.port_hold_s, instance.hairpinning, instance.inbound_refresh),
        (120, true, [true; 3])
    );
    assert_eq!((instance.pools[0].port_first, instance.pools[0].port_last), (1_024, 65_535));
}
