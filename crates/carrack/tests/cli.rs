//! The command line against a fake daemon on a real socket: what people see, and exit codes.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use carrack_api::fake::Fake;
use carrack_api::server::{Server, ServerOptions};
use tempfile::TempDir;

struct Daemon {
    fake: Arc<Fake>,
    socket: PathBuf,
    _server: Server,
    directory: TempDir,
}

fn daemon(fake: Fake) -> Daemon {
    let directory = TempDir::new().unwrap();
    let socket = directory.path().join("api.sock");
    let fake = Arc::new(fake);
    let options = ServerOptions { socket: socket.clone(), tcp: None };
    let server = Server::start(fake.clone(), &options).unwrap();
    Daemon { fake, socket, _server: server, directory }
}

fn carrack() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_carrack"));
    command.env_remove("CARRACK_SOCKET").env("NO_COLOR", "1");
    command
}

fn at(socket: &Path, args: &str) -> Output {
    carrack().args(args.split_whitespace()).arg("--socket").arg(socket).output().unwrap()
}

impl Daemon {
    /// Standard output of a command that succeeds.
    fn ok(&self, args: &str) -> String {
        let output = at(&self.socket, args);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "carrack {args}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Exit code and standard error of a command that fails.
    fn fails(&self, args: &str) -> (i32, String) {
        let output = at(&self.socket, args);
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    }
}

/// Compares with the committed text; `UPDATE_GOLDEN=1` writes it instead.
fn golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == text, "{name} differs; UPDATE_GOLDEN=1 cargo test -p carrack accepts this:\n{text}");
}

#[test]
fn every_show_command_prints_its_golden_table() {
    let daemon = daemon(Fake::default());
    for what in [
        "interfaces",
        "neighbours",
        "routes",
        "nat pools",
        "nat subscribers",
        "nat mappings",
        "nat sessions",
        "nat instances",
        "nat memory",
        "siit",
        "nat deterministic --outside 198.51.100.1 --outside-port 1500",
        "counters",
        "workers",
        "threads",
        "graph",
        "events",
        "config",
        "version",
        "health",
    ] {
        let words: Vec<&str> = what.split(' ').take_while(|word| !word.starts_with("--")).collect();
        golden(&format!("show-{}.txt", words.join("-")), &daemon.ok(&format!("show {what}")));
    }
}

#[test]
fn every_show_command_prints_one_json_value() {
    let daemon = daemon(Fake::default());
    for what in [
        "interfaces",
        "neighbours",
        "routes",
        "nat pools",
        "nat subscribers",
        "nat mappings",
        "nat sessions",
        "nat instances",
        "nat memory",
        "siit",
        "nat deterministic --inside 100.64.0.5",
        "counters",
        "workers",
        "threads",
        "graph",
        "events",
        "config",
        "version",
        "health",
    ] {
        let text = daemon.ok(&format!("show {what} --json"));
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert!(value.is_array() || value.is_object(), "{what}: {text}");
    }
}

/// A daemon of its own on in-process ports; killed when the test ends early.
struct Running(std::process::Child, TempDir);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    /// Starts `carrack run` on this text, its run directory and two ports put before it.
    fn start(text: &str) -> Self {
        let directory = TempDir::new().unwrap();
        let file = directory.path().join("carrack.toml");
        let ports = "[[interface]]\nname = \"a\"\ndevice = \"mem:a\"\nside = \"inside\"\naddress = [\"10.0.0.1/24\"]\n\
                     [[interface]]\nname = \"b\"\ndevice = \"mem:b\"\nside = \"outside\"\naddress = [\"192.0.2.1/24\"]\n";
        let system = format!("[system]\nrun_dir = \"{}\"\n", directory.path().join("run").display());
        std::fs::write(&file, format!("{system}{text}\n{ports}")).unwrap();
        let mut command = carrack();
        command.arg("run").arg("-c").arg(&file).stderr(Stdio::piped());
        Self(command.spawn().unwrap(), directory)
    }

    fn socket(&self) -> PathBuf {
        self.1.path().join("run/api.sock")
    }

    fn signal(&self, signal: &str) {
        assert!(Command::new("kill").args([signal, &self.0.id().to_string()]).status().unwrap().success());
    }

    /// Its exit code; it must end within ten seconds.
    fn code(&mut self) -> Option<i32> {
        let began = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status.code();
            }
            assert!(began.elapsed() < Duration::from_secs(10), "it does not end");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Lines of its log until one has this text.
    fn log_until(&mut self, text: &str) -> Vec<String> {
        let mut lines = BufReader::new(self.0.stderr.as_mut().unwrap()).lines();
        let mut all = Vec::new();
        while !all.last().is_some_and(|line: &String| line.contains(text)) {
            all.push(lines.next().unwrap_or_else(|| panic!("`{text}` never came: {all:#?}")).unwrap());
        }
        all
    }
}

#[test]
fn every_thread_has_a_name_of_its_own_a_role_and_its_cpus() {
    let exporter = |name: &str| {
        format!(
            "[[logging.exporter]]\nname = \"{name}\"\nprotocol = \"syslog\"\ncollector = \"127.0.0.1:9\"\n"
        )
    };
    let text = format!(
        "[workers]\ncount = 11\n[memory]\nhuge_pages = \"off\"\nframes = 8_192\nsessions = 16_384\nmappings = 16_384\n\
         subscribers = 1_024\n[logging]\ncores = [0]\n{}{}",
        exporter("collector-of-the-north-1"),
        exporter("collector-of-the-north-2")
    );
    let mut daemon = Running::start(&text);
    daemon.log_until("managed at");
    let json = |args: &str| -> Vec<serde_json::Value> {
        let output = at(&daemon.socket(), args);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let threads = json("show threads --json");
    let of = |role: &str| {
        let own = threads.iter().filter(|thread| thread["role"] == role);
        own.map(|thread| (thread["name"].as_str().unwrap(), thread["cpus"].as_str().unwrap()))
            .collect::<Vec<_>>()
    };
    let mut names: Vec<&str> = threads.iter().map(|thread| thread["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), threads.len(), "two threads have one name: {threads:#?}");
    assert_eq!(of("exporter"), [("log0-collector-", "0"), ("log1-collector-", "0")]);
    let workers = of("nat-worker");
    assert_eq!((workers.len(), workers[10].0), (11, "nat-worker-10"));
    for (role, count) in [("main", 1), ("control", 1), ("signals", 1), ("log", 1), ("other", 0), ("dpdk", 0)]
    {
        assert_eq!(of(role).len(), count, "{role}: {threads:#?}");
    }
    assert!(!of("api").is_empty());
    let all = json("show workers --json");
    assert_eq!(all.len(), 11);
    for (worker, (name, cpus)) in all.iter().zip(&workers) {
        let thread = &worker["thread"];
        assert_eq!(
            (&thread["name"], &thread["role"], &thread["cpus"]),
            (&(*name).into(), &"nat-worker".into(), &(*cpus).into())
        );
    }
    daemon.signal("-TERM");
    assert_eq!(daemon.code(), Some(0));
}

#[test]
fn a_daemon_that_is_told_to_end_while_it_makes_its_tables_ends_at_once_and_tidies_up() {
    let text = "[workers]\ncount = 2\n[memory]\nhuge_pages = \"off\"\nframes = 8_192\nsessions = 8_000_000\n\
                mappings = 4_000_000\nsubscribers = 100_000\n";
    let mut daemon = Running::start(text);
    daemon.log_until("Memory budget in all");
    daemon.signal("-TERM");
    let told = Instant::now();
    let code = daemon.code();
    let took = told.elapsed();
    let mut said = String::new();
    daemon.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(code, Some(0), "{said}");
    assert!(took < Duration::from_secs(1), "{took:?}: {said}");
    assert!(said.contains("told to end while starting") && !said.contains("managed at"), "{said}");
    assert!(!daemon.socket().exists(), "the socket is left");
    let held = std::fs::read_to_string(daemon.1.path().join("run/carrack.lock")).unwrap();
    assert_eq!(held, "", "the run directory is still held");
}

#[test]
fn a_reload_asked_for_while_it_starts_is_done_once_it_has_started() {
    let text = "[memory]\nhuge_pages = \"off\"\nframes = 8_192\nsessions = 2_000_000\nmappings = 1_000_000\n\
                subscribers = 100_000\n";
    let mut daemon = Running::start(text);
    daemon.log_until("Memory budget in all");
    daemon.signal("-HUP");
    daemon.log_until("reloaded: 0 changes");
    daemon.signal("-TERM");
    assert_eq!(daemon.code(), Some(0));
}

#[test]
fn zeros_are_hidden_from_the_counters_unless_asked_for() {
    let daemon = daemon(Fake::default());
    assert!(!daemon.ok("show counters").contains("nat-index-full"));
    let all = daemon.ok("show counters --all");
    for row in carrack_base::REASONS {
        assert!(all.contains(row.name), "{}", row.name);
    }
}

#[test]
fn an_empty_list_has_a_header_and_says_what_is_missing() {
    let daemon = daemon(Fake { sessions: 0, ..Fake::default() });
    let text = daemon.ok("show nat sessions");
    assert!(text.starts_with("INSTANCE"), "{text}");
    assert!(text.ends_with("(no sessions match)\n"), "{text}");
}

#[test]
fn filters_reach_the_daemon() {
    let daemon = daemon(Fake { sessions: 5_000, ..Fake::default() });
    let lines = |args: &str| daemon.ok(args).lines().count() - 1;
    assert_eq!(lines("show nat sessions --inside 100.64.0.6"), 1_000);
    assert_eq!(lines("show nat sessions --inside 100.64.0.0/24 --limit 7"), 7);
}

#[test]
fn mappings_have_a_column_of_nat64_prefixes_only_where_one_has_some() {
    let daemon = daemon(Fake::default());
    let shown = daemon.ok("show nat mappings");
    assert!(shown.contains("NAT64 PREFIX") && shown.contains("64:ff9b::/96"), "{shown}");
    let four = daemon.ok("show nat mappings --inside 100.64.0.0/24");
    assert!(four.contains("100.64.0.5:40001") && !four.contains("NAT64"), "{four}");
    let all: Vec<serde_json::Value> = serde_json::from_str(&daemon.ok("show nat mappings --json")).unwrap();
    let prefixes: Vec<_> = all.iter().filter_map(|m| m.get("nat64_prefix")).collect();
    assert_eq!(prefixes, ["64:ff9b::/96"]);
}

#[test]
fn a_remote_may_be_asked_for_as_ipv6_hosts_see_it() {
    let daemon = daemon(Fake::default());
    daemon.ok("show nat sessions --remote 64:ff9b::8.8.8.8");
    daemon.ok("clear nat sessions --remote 64:ff9b::/96");
    assert_eq!(*daemon.fake.deletions.lock().unwrap(), ["?remote=64:ff9b::/96"]);
}

#[test]
fn interfaces_neighbours_and_routes_have_filters() {
    let daemon = daemon(Fake::default());
    let first = |args: &str| {
        let column =
            |line: &str| line.split_whitespace().nth(usize::from(args.contains("routes"))).map(str::to_owned);
        daemon.ok(args).lines().skip(1).filter_map(column).collect::<Vec<_>>()
    };
    assert_eq!(first("show routes --address 192.0.2.1"), ["0.0.0.0/0", "192.0.2.0/30"]);
    assert_eq!(first("show routes --address 203.0.113.0/24"), ["0.0.0.0/0"]);
    assert_eq!(first("show routes --address 64:ff9b::8.8.8.8"), ["64:ff9b::/96"]);
    assert_eq!(first("show routes --limit 1"), ["0.0.0.0/0"]);
    assert_eq!(first("show routes --interface inside"), ["routes)"]);
    assert_eq!(first("show interfaces --interface outside"), ["outside"]);
    assert_eq!(first("show interfaces --address 192.0.2.7"), ["outside"]);
    assert_eq!(first("show neighbours --address 192.0.2.0/24"), ["outside"]);
    assert_eq!(first("show neighbours --address 192.0.2.2"), ["(no"]);
    assert_eq!(first("show neighbours --vrf default"), ["outside"]);
    let (code, error) = daemon.fails("show routes --interface insde");
    assert_eq!((code, error.contains("did you mean `inside`?")), (1, true), "{error}");
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let daemon = daemon(Fake { sessions: u64::from(u32::MAX), ..Fake::default() });
    for json in [false, true] {
        let mut command = carrack();
        command.args(["show", "nat", "sessions", "--socket"]).arg(&daemon.socket);
        if json {
            command.arg("--json");
        }
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.by_ref().take(3).all(|line| line.is_ok()));
        drop(lines);
        let status = child.wait().unwrap();
        let mut error = String::new();
        child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
        assert_eq!((status.code(), error.as_str()), (Some(0), ""));
    }
}

#[test]
fn clearing_wants_a_filter_or_all() {
    let daemon = daemon(Fake::default());
    let (code, error) = daemon.fails("clear nat sessions");
    assert_eq!(code, 2);
    assert!(error.contains("--all"), "{error}");
    assert_eq!(daemon.ok("clear nat sessions --all"), "1,234 sessions ended\n");
    assert_eq!(daemon.ok("clear nat sessions --inside 100.64.0.5"), "no sessions match\n");
    assert_eq!(daemon.ok("clear nat sessions --instance cgn1 --json"), "{\"deleted\":1234}\n");
    let seen = daemon.fake.deletions.lock().unwrap().clone();
    assert_eq!(seen, ["", "?inside=100.64.0.5/32", "?instance=cgn1"]);
}

#[test]
fn a_reload_says_what_it_did_and_a_refused_one_fails() {
    let daemon = daemon(Fake::default());
    golden("reload-applied.txt", &daemon.ok("reload"));
    {
        let mut report = daemon.fake.reload.lock().unwrap();
        report.applied = false;
        report.generation = 1;
        report.changes.clear();
        report.messages = vec!["carrack.toml:3:1: error: unknown key `adress`".into()];
    }
    let output = at(&daemon.socket, "reload");
    assert_eq!(output.status.code(), Some(2));
    golden("reload-invalid.txt", &String::from_utf8(output.stdout).unwrap());
    daemon.fake.reload.lock().unwrap().changes = vec![carrack_api::types::ReloadChange {
        path: "workers.count".into(),
        from: "1".into(),
        to: "2".into(),
        effect: "needs-restart".into(),
        detail: String::new(),
    }];
    assert_eq!(at(&daemon.socket, "reload").status.code(), Some(1));
}

#[test]
fn a_slow_reload_says_that_it_goes_on_and_a_long_one_is_cut() {
    let daemon = daemon(Fake::default());
    {
        let mut report = daemon.fake.reload.lock().unwrap();
        let change = report.changes.first().unwrap().clone();
        report.changes = vec![change; 12_345];
    }
    let fake = daemon.fake.clone();
    let (locked, is_locked) = std::sync::mpsc::channel();
    let slow = std::thread::spawn(move || {
        let guard = fake.reload.lock().unwrap();
        locked.send(()).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(3_500));
        drop(guard);
    });
    is_locked.recv().unwrap();
    let output = at(&daemon.socket, "reload");
    slow.join().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    // After two seconds, and after the next ten again.
    let word = said.strip_prefix("the daemon reads its configuration and applies it … ");
    assert!(word.is_some_and(|word| word.ends_with(" s\n") && word.lines().count() == 1), "{said}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("… and 11,345 more; --json has them all"), "{}", text.lines().count());
    assert!(text.lines().count() < 1_010);
    assert_eq!(String::from_utf8(at(&daemon.socket, "show version").stderr).unwrap(), "");
}

#[test]
fn a_trace_reads_packet_by_packet() {
    let daemon = daemon(Fake::default());
    golden("trace.txt", &daemon.ok("trace -n 2"));
    golden("trace-bytes.txt", &daemon.ok("trace -n 2 --bytes"));
    let said = |args: &str| String::from_utf8(at(&daemon.socket, args).stderr).unwrap();
    assert!(said("trace -n 3").contains("ended after 2 of 3 packets"), "{}", said("trace -n 3"));
    assert_eq!(said("trace -n 2"), "");
    let lines = daemon.ok("trace --json");
    assert_eq!(lines.lines().filter(|line| line.starts_with('{')).count(), 5);
}

#[test]
fn a_capture_is_whole_when_it_is_interrupted() {
    let daemon = daemon(Fake { endless: true, ..Fake::default() });
    let file = daemon.directory.path().join("capture.pcapng");
    let mut command = carrack();
    command.args(["capture", "-w"]).arg(&file).arg("--socket").arg(&daemon.socket);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    // The fake sends four packets and then nothing more.
    let full = || std::fs::metadata(&file).is_ok_and(|meta| meta.len() > 600);
    for _ in 0..500 {
        if full() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(full(), "packets are written while the capture runs");
    let killed = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.starts_with("4 packets in "), "{said}");
}

#[test]
fn a_refused_capture_leaves_the_old_file_alone() {
    let daemon = daemon(Fake::default());
    let file = daemon.directory.path().join("old.pcapng");
    std::fs::write(&file, "old").unwrap();
    let (code, error) = daemon.fails(&format!("capture -w {} --reason nat-filterd", file.display()));
    assert_eq!(code, 2);
    assert!(error.contains("nat-filtered"), "{error}");
    drop(daemon._server);
    let output = at(&daemon.socket, &format!("capture -w {}", file.display()));
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "old");
}

#[test]
fn only_the_drops_asked_for_are_captured() {
    let daemon = daemon(Fake::default());
    let file = daemon.directory.path().join("drops.pcapng");
    for (args, packets) in [("", 4), ("--drops-only", 2), ("--reason nat-filtered", 1), ("-n 3", 3)] {
        let text = daemon.ok(&format!("capture -w {} {args} --json", file.display()));
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["packets"], packets, "{args}");
    }
    // The fake lost 7 before its last packet.
    let output = at(&daemon.socket, &format!("capture -w {}", file.display()));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("7 more were lost"), "{said}");
}

#[test]
fn a_missing_daemon_is_exit_code_3_with_advice() {
    let directory = TempDir::new().unwrap();
    let socket = directory.path().join("api.sock");
    let output = at(&socket, "show counters");
    assert_eq!(output.status.code(), Some(3));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("does not exist") && error.contains("carrack run"), "{error}");
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let output = carrack().args(["show", "counters"]).env("CARRACK_SOCKET", &socket).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stderr).contains("nobody answers"));
}

#[test]
fn a_wrong_command_line_is_exit_code_2_and_suggests_the_nearest() {
    let daemon = daemon(Fake::default());
    for (args, near) in [
        ("shwo counters", "show"),
        ("show countres", "counters"),
        ("show nat sesions", "sessions"),
        ("show nat sessions --insde 10.0.0.1", "--inside"),
        ("show nat sessions --protocol tpc", "tcp"),
        ("show nat sessions --inside 10.0.0.1/24", "10.0.0.0/24"),
        ("show nat sessions --inside-port 70000", "65535"),
        ("show nat deterministic", "--inside"),
        ("run", "--config"),
    ] {
        let (code, error) = daemon.fails(args);
        assert_eq!(code, 2, "{args}: {error}");
        assert!(error.contains(near), "{args}: {error}");
    }
}

#[test]
fn a_failure_of_the_daemon_is_exit_code_1_with_its_hint() {
    let daemon = daemon(Fake { sessions: 10, sessions_fail_after: Some(5), ..Fake::default() });
    let (code, error) = daemon.fails("show nat sessions --instance cgn2");
    assert_eq!((code, error.as_str()), (1, "error: no NAT instance `cgn2`\n  hint: did you mean `cgn1`?\n"));
    let (code, error) = daemon.fails("show nat sessions");
    assert_eq!((code, error.contains("worker 1 is gone")), (1, true), "{error}");
    let (code, _) = daemon.fails("show nat sessions --json");
    assert_eq!(code, 1, "a broken JSON list is a failure");
}

#[test]
fn check_prints_every_error_with_its_line_and_exits_with_2() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("bad.toml");
    std::fs::write(&file, "[workers]\ncount = 0\n\n[sytem]\nname = \"x\"\n").unwrap();
    let output = carrack().arg("check").arg(&file).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("bad.toml:2:") && error.contains("bad.toml:4:"), "{error}");
    assert!(error.contains("2 errors"), "{error}");
    let output = carrack().arg("check").arg(&file).arg("--json").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["diagnostics"].as_array().unwrap().len(), 2);
    // A daemon refuses the same file in the same way.
    let output = carrack().args(["run", "-c"]).arg(&file).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("bad.toml:2:"));
}

#[test]
fn check_warns_of_a_cpu_that_is_not_there_and_run_refuses_it() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("carrack.toml");
    let run_dir = directory.path().join("run");
    let text = format!(
        "[system]\nrun_dir = \"{}\"\n[workers]\ncores = [1_023]\n[[interface]]\nname = \"a\"\ndevice = \"mem:a\"\n",
        run_dir.display()
    );
    std::fs::write(&file, text).unwrap();
    let output = carrack().arg("check").arg(&file).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    let place =
        format!("{}:4:10: warning: workers.cores has CPU 1023, and this machine has CPUs 0", file.display());
    assert!(said.starts_with(&place), "{said}");
    let output = carrack().arg("check").arg(&file).arg("--json").output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["valid"], &report["diagnostics"][0]["line"]), (&true.into(), &4.into()), "{report}");
    let output = carrack().arg("run").arg("-c").arg(&file).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains(&place.replace("warning", "error")), "{said}");
    assert!(!run_dir.exists());
}

#[test]
fn check_warns_of_memory_that_is_not_there_and_run_refuses_it() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("carrack.toml");
    let run_dir = directory.path().join("run");
    // As much as can be written: hundreds of gigabytes of tables.
    let text = format!(
        "[system]\nrun_dir = \"{}\"\n\n[memory]\nhuge_pages = \"off\"\nsessions = 1_073_741_824\nmappings = 1_073_741_824\nsubscribers = 1_073_741_824\n[[interface]]\n\
         name = \"a\"\ndevice = \"mem:a\"\n",
        run_dir.display()
    );
    std::fs::write(&file, text).unwrap();
    let output = carrack().arg("check").arg(&file).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    let needs = "this configuration needs ";
    assert!(said.starts_with(&format!("{}:4:1: warning: {needs}", file.display())), "{said}");
    assert!(said.contains("a daemon does not start here with it") && said.contains("lower memory.sessions"));
    let output = carrack().arg("check").arg(&file).arg("--json").output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let told = &report["diagnostics"][0];
    assert_eq!(
        (&report["valid"], &told["severity"], &told["line"]),
        (&true.into(), &"warning".into(), &4.into())
    );
    let output = carrack().arg("run").arg("-c").arg(&file).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains(needs), "{said}");
}

#[test]
fn run_says_once_what_to_do_without_huge_pages() {
    let free = std::fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
    if free.is_ok_and(|free| free.trim() != "0") {
        return;
    }
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("carrack.toml");
    let text = format!(
        "[system]\nrun_dir = \"{}\"\n[memory]\nhuge_pages = \"2M\"\n[[interface]]\nname = \"a\"\ndevice = \"mem:a\"\n",
        directory.path().join("run").display()
    );
    std::fs::write(&file, text).unwrap();
    let output = carrack().arg("run").arg("-c").arg(&file).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("free huge pages of 2 MiB"), "{said}");
    assert_eq!(said.matches("smaller").count(), 1, "{said}");
    assert!(said.trim_end().ends_with("or allow other pages with huge_pages = \"auto\""), "{said}");
}

#[test]
fn check_sums_up_a_valid_file() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/minimal.toml");
    let output = carrack().arg("check").arg(&example).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    golden("check-minimal.txt", &String::from_utf8(output.stdout).unwrap());
}

/// RFC 7422 §2: who has ports, and how many, is computed of both versions alike.
#[test]
fn check_counts_the_ports_and_subscribers_of_a_deterministic_instance() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("carrack.toml");
    let checked = |subscribers: &str| {
        let text = format!(
            "[[interface]]\nname = \"a\"\ndevice = \"mem:a\"\nside = \"inside\"\naddress = [\"2001:db8::1/64\"]\n[[interface]]\n\
             name = \"b\"\ndevice = \"mem:b\"\nside = \"outside\"\naddress = [\"192.0.2.1/24\"]\n[[nat]]\nname = \"cgn\"\n\
             {subscribers}\n[nat.ports]\nmode = \"deterministic\"\n[[nat.pool]]\nname = \"p\"\n\
             addresses = [\"198.51.100.0-198.51.100.2\"]\nports = \"1024-65535\"\n"
        );
        std::fs::write(&file, text).unwrap();
        let output = carrack().arg("check").arg(&file).arg("--json").output().unwrap();
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        report["summary"]["nat"][0].clone()
    };
    let six = "[nat.nat64]\nsubscribers = [\"2001:db8::/48\"]\nsubscriber_prefix_length = 56";
    for subscribers in ["subscribers = [\"100.64.0.0/24\"]", six] {
        let nat = checked(subscribers);
        // 256 on three addresses are 86 on one.
        let told = (nat["ports"].as_str(), nat["subscribers_max"].as_u64());
        assert_eq!(told, (Some("750 each, as many as fit, deterministic"), Some(256)), "{nat}");
    }
}

/// A line says what translates between the versions.
#[test]
fn check_names_nat64_and_stateless_translators() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let checked = |file: &str, more: &[&str]| {
        let output = carrack().arg("check").arg(examples.join(file)).args(more).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{file}");
        String::from_utf8(output.stdout).unwrap()
    };
    let nat64 = checked("nat64.toml", &[]);
    assert!(nat64.contains("\n\nNAT64 cgn: prefix 64:ff9b::/96\n\nRoom for"), "{nat64}");
    let siit = checked("siit.toml", &[]);
    let line = "\nSIIT dc (vrf default): prefix 2001:db8:64::/96; 2 explicit mappings; 198.51.100.64/26\n";
    assert!(siit.contains(line), "{siit}");
    let report: serde_json::Value = serde_json::from_str(&checked("siit.toml", &["--json"])).unwrap();
    let siit = &report["summary"]["siit"][0];
    assert_eq!((&siit["mappings"], &siit["ipv4"][0]), (&2.into(), &"198.51.100.64/26".into()));
}

#[test]
fn the_reference_of_the_command_line_is_fresh() {
    let output = carrack().arg("reference").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == text, "docs/cli.md is stale; run: carrack reference > docs/cli.md");
}

#[test]
fn completions_exist_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = carrack().args(["completions", shell]).output().unwrap();
        assert!(output.status.success() && output.stdout.len() > 1_000, "{shell}");
    }
}
