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
    let of = |all: &[u16]| Processors::of(all.iter().copied()).to_string();
    assert_eq!([of(&[0, 1, 2, 3, 8]), of(&[1, 3, 4]), of(&[])], ["0-3,8", "1,3-4", ""]);
}

#[test]
fn this_process_may_use_processors_of_this_machine_and_asking_moves_nobody() {
    let before = sched_getaffinity(Pid::from_raw(0)).unwrap();
    let Some(usable) = UsableCpus::here() else { return };
    let left = usable.cpuset.as_ref().unwrap_or(&usable.machine);
    let here = (0..CpuSet::count()).filter(|cpu| before.is_set(*cpu) == Ok(true));
    assert!(here.map(|cpu| cpu as u16).all(|cpu| left.has(cpu) && usable.machine.has(cpu)), "{usable:?}");
    assert_eq!(sched_getaffinity(Pid::from_raw(0)).unwrap(), before);
}

#[test]
fn every_processor_that_is_not_there_is_named_at_its_place() {
    let text = format!(
        "[workers]\ncount = 2\ncores = [1, 1000]\ncontrol_cores = [0, 9]\n[logging]\ncores = [8, 2]\n{NETWORK}"
    );
    let (config, _) = Config::from_str("t.toml", &text).unwrap_or_else(|errors| panic!("{}", errors[0]));
    let usable = |machine, cpuset: Option<_>| UsableCpus {
        machine: Processors::parse(machine).unwrap(),
        cpuset: cpuset.map(|list| Processors::parse(list).unwrap()),
    };
    let missing = usable("0-1,8", None).missing(&config, Severity::Error);
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
    assert_eq!(usable("0-1023", None).missing(&config, Severity::Error), []);
    let confined = usable("0-1023", Some("0-2,8-9")).missing(&config, Severity::Warning);
    let told: Vec<_> = confined.iter().map(|one| one.message.as_str()).collect();
    assert_eq!(
        told,
        [
            "workers.cores has CPU 1000, and the cpuset of this process leaves it CPUs 0-2,8-9 of 0-1023: a daemon does not \
          start here with it; is the file for another machine?"
        ]
    );
}
