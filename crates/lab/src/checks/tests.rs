use serde_json::json;

use super::*;

#[test]
fn hops_are_read_from_traceroutes_lines_and_silence_is_a_star() {
    let output = "traceroute to 203.0.113.10 (203.0.113.10), 6 hops max, 60 byte packets\n \
                  1  100.64.0.1  0.200 ms\n 2  *\n 3  203.0.113.10  0.300 ms\n";
    assert_eq!(path::hops(output), ["100.64.0.1", "*", "203.0.113.10"]);
}

#[test]
fn rows_are_found_in_an_array_in_an_object_and_in_lines() {
    for text in
        [r#"[{"a":1},{"a":2}]"#, r#"{"generation":3,"rows":[{"a":1},{"a":2}]}"#, "{\"a\":1}\n{\"a\":2}\n"]
    {
        assert_eq!(manage::parse_rows(text).unwrap().len(), 2, "{text}");
    }
    assert_eq!(manage::parse_rows("").unwrap().len(), 0);
    assert!(manage::parse_rows("sorry").is_none());
}

#[test]
fn a_nested_balance_is_found() {
    let answer = json!({"packets": {"rx": 7, "balance": -1}});
    assert_eq!(manage::find_number(&answer, "balance"), Some(-1.0));
    assert_eq!(manage::find_number(&answer, "held"), None);
}

#[test]
fn the_web_servers_log_tells_who_asked_for_a_path() {
    let log = "203.0.113.10 - - [21/Nov/2026 20:00:00] \"GET /?inbound HTTP/1.1\" 200 -\n\
               198.51.100.3 - - [21/Nov/2026 20:00:00] \"GET /?hairpin HTTP/1.1\" 200 -\n";
    assert_eq!(web_clients(log, "/?hairpin"), ["198.51.100.3"]);
}

#[test]
fn an_inside_address_at_the_server_is_reported() {
    assert!(expect_pool_address("198.51.100.3", "x").is_ok());
    let error = expect_pool_address("100.64.0.11", "the web server").unwrap_err();
    assert!(error.to_string().contains("100.64.0.11"), "{error}");
}
