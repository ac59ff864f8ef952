use super::*;

const NETWORK: &str = "[[interface]]\nname = \"a\"\ndevice = \"mem:a\"\naddress = [\"10.0.0.1/24\"]\n";

#[test]
fn the_kernels_list_is_read_and_shown_alike() {
    for list in ["0", "0-3", "0-3,8", "1,3,5-7"] {
        assert_eq!(Processors::parse(&format!("{list}\n")).unwrap().to_string(), list);
    }
    let some = Processors::parse("0-3,8").unwrap();
    assert_eq!([0, 3, 4, 7, 8, 9].map(|n| some.has(n)), [true, true, false, false, true, false]);
    assert_eq!([Processors::parse(""), Processors::parse("none")], [None, None]);
    assert_eq!(Processors::read(Path::new("/nonexistent")), None);
}

#[test]
fn this_machine_has_a_processor() {
    assert!(Processors::online().is_none_or(|online| !online.to_string().is_empty()));
}

#[test]
fn every_processor_that_is_not_there_is_named_at_its_place() {
    let text = format!(
        "[workers]\ncount = 2\ncores = [1, 1000]\ncontrol_cores = [0, 9]\n[logging]\ncores = [8, 2]\n{NETWORK}"
    );
    let (config, _) = Config::from_str("t.toml", &text).unwrap_or_else(|errors| panic!("{}", errors[0]));
    let missing = Processors::parse("0-1,8").unwrap().missing(&config, Severity::Error);
    let told: Vec<_> = missing.iter().map(|one| (one.line, one.column, one.message.as_str())).collect();
    let message = |what: &str| {
        format!("{what}, and this machine has CPUs 0-1,8; choose among those, or leave the key out")
    };
    assert_eq!(
        told,
        [
            (3, 13, message("workers.cores has CPU 1000").as_str()),
            (4, 21, &message("workers.control_cores has CPU 9")),
            (6, 13, &message("logging.cores has CPU 2")),
        ]
    );
    assert_eq!(Processors::parse("0-1023").unwrap().missing(&config, Severity::Error), []);
}
