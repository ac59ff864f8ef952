//! Texts that people write: configuration and filters.

use carrack_api::{DeleteQuery, EventQuery, PacketQuery, Params, RowFilter};
use carrack_config::{Config, PortFacts, compile};

/// Configuration: an error has a sentence; what is accepted compiles or says why, and compiles the same again.
pub fn config(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let (config, _) = match Config::from_str("fuzz.toml", text) {
        Ok(config) => config,
        Err(errors) => {
            assert!(!errors.is_empty(), "refused without a reason");
            for error in errors {
                assert!(!error.to_string().trim().is_empty(), "an error without words");
            }
            return;
        }
    };
    let facts = PortFacts::assumed(&config);
    let Ok(first) = compile(&config, &facts, None) else { return };
    let second = compile(&config, &facts, Some(&first)).expect("what compiled once compiles again");
    assert_eq!(first.snapshot.interfaces, second.snapshot.interfaces, "ids stay with their names");
    assert_eq!(first.snapshot.nat, second.snapshot.nat);
}

/// Filters of the API: what parses prints as text that parses to the same.
pub fn filters(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    round_trip::<RowFilter>(text);
    round_trip::<DeleteQuery>(text);
    round_trip::<PacketQuery>(text);
    round_trip::<EventQuery>(text);
}

fn round_trip<P: Params>(text: &str) {
    let Ok(params) = P::from_query(text) else { return };
    let printed = params.query();
    let again = P::from_query(printed.trim_start_matches('?'));
    let Ok(again) = again else { panic!("`{printed}`, printed, does not parse") };
    assert_eq!(params.pairs(), again.pairs());
}
