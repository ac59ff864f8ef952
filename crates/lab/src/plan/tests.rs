use super::*;

#[test]
fn no_labs_namespaces_can_be_taken_for_anothers() {
    assert!(!valid_name("a.b") && !valid_name("") && !valid_name("Demo") && !valid_name("../x"));
    assert!(valid_name("demo") && valid_name("demo-2"));
    assert!(!Ns::Sub1.full_name("demo-2").starts_with(&prefix("demo")));
}

#[test]
fn every_role_is_found_by_its_name() {
    for ns in Ns::ALL {
        assert_eq!(Ns::from_role(ns.role()), Some(ns));
    }
    assert_eq!(Ns::from_role("sub3"), None);
}
