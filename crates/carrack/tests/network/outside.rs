//! The laboratories with judges from outside, small: `dpdk-testpmd` over shared memory, the kernel's NAT.

use std::process::Command;

use serde_json::Value;

/// Runs `carrack lab …` and returns its JSON; `None` where it cannot run.
fn report(words: &[&str]) -> Option<Value> {
    if !carrack_lab::can_run() {
        return None;
    }
    let output = Command::new(env!("CARGO_BIN_EXE_carrack")).arg("lab").args(words).arg("--json").output();
    let output = output.expect("carrack starts");
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "carrack lab {}: {stdout}\n{stderr}", words.join(" "));
    Some(serde_json::from_str(&stdout).expect("a report"))
}

#[test]
fn testpmd_misses_exactly_the_packets_that_carrack_counts() {
    let Some(report) = report(&["memif", "--flows", "1,1000", "--seconds", "1"]) else { return };
    let runs = report["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 2, "{report:#}");
    for run in runs {
        assert_eq!(run["loss_explained"], true, "{run:#}");
        assert_eq!(run["conservation_ok"], true, "{run:#}");
        assert_eq!(run["carrack_sessions"], run["flows"], "{run:#}");
        // Three programs that poll share what CPUs there are: beside other work few packets pass in a second.
        assert!(run["testpmd"]["rx_packets"].as_u64() > Some(100), "{run:#}");
    }
}

#[test]
fn sessions_deleted_under_traffic_cost_only_packets_that_are_counted() {
    let words =
        ["bison", "--sessions", "16384", "--seconds", "4", "--snapshot-every", "1", "--deletions", "5000"];
    let Some(report) = report(&words) else { return };
    for stage in ["fill", "steady"] {
        let stage = &report[stage];
        assert_eq!(stage["equal"], true, "{report:#}");
        assert_eq!(stage["conservation_ok"], true, "{report:#}");
        assert_eq!(stage["wrong"], 0, "{report:#}");
    }
    assert_eq!(report["fill"]["sessions"], 16_384, "{report:#}");
    assert!(report["churned"]["deleted"].as_u64() > Some(100), "{report:#}");
}

#[test]
fn both_routers_of_the_comparison_give_figures() {
    let Some(report) = report(&["compare", "--seconds", "1", "--flows", "2000"]) else { return };
    for router in ["carrack", "linux_nft"] {
        let figures = &report[router];
        for key in ["tcp_up_gbps", "tcp_down_gbps", "small_packets_pps", "connections_per_second"] {
            assert!(figures[key].as_f64() > Some(0.0), "{key} {report:#}");
        }
        // Senders as fast as they can overrun what one CPU takes.
        assert!(figures["connections_made"].as_u64() > Some(100), "{report:#}");
    }
}
