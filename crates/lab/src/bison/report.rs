//! The table for people: the published figures beside ours.

use carrack_base::text::grouped_signed;

use super::{PORTS, Report, Stage};
use crate::report::{mpps, number, say};

/// Prints the report.
pub(crate) fn print(report: &Report) {
    say(&format!(
        "\n{} subscribers × {PORTS} UDP ports = {} sessions, {}-byte frames{}, {} (published: NAT64).",
        number(u64::from(report.subscribers)),
        number(u64::from(report.sessions)),
        report.frame_bytes,
        if report.tagged { " with a VLAN tag" } else { "" },
        report.translation
    ));
    say(&format!("Generator of carrack's lab, reflector dpdk-testpmd 5tswap; {}.", report.cores.describe()));
    for difference in &report.differences {
        say(&format!("* {difference}"));
    }
    say("");
    let row =
        |what: &str, published: &str, ours: String| say(&format!("{what:<38} {published:>24} {ours:>24}"));
    row("", "published", "carrack".to_owned());
    row("workers", "14 (Ryzen 9950X3D)", "1".to_owned());
    row("sessions", "2,097,152", number(report.steady.sessions));
    row("forwarded, both directions, Mpps", "24", mpps(report.steady.forwarded_pps));
    row("  per worker", "1.71", mpps(report.steady.forwarded_pps));
    row("deletions a second", "27,000 - 30,000", number(report.deletions_per_second as u64));
    row("lost while churning", "5,487 of 14.25 G", lost(&report.steady));
    row("lost while filling", "allowed", lost(&report.fill));
    row("generator's loss = router's count", "to the packet", verdict(&report.steady));
    row("wrongly translated", "", number(report.steady.wrong + report.fill.wrong));
    row("came to a port given anew", "", number(report.steady.reused + report.fill.reused));
    row("bytes a session, all tables", "", format!("{:.0}", report.bytes_per_session));
    row("clocks a packet", "", format!("{:.0}", report.clocks_per_packet));
    for (name, stage) in [("fill", &report.fill), ("churn", &report.steady)] {
        say(&format!(
            "\n{name}: {:.1} s, sent {}, back {}; carrack dropped {}{}",
            stage.seconds,
            number(stage.sent),
            number(stage.received),
            number(stage.dropped),
            if stage.reflector_lost > 0 {
                format!(", the reflector could not send back {}", number(stage.reflector_lost))
            } else {
                String::new()
            }
        ));
        for (reason, count) in &stage.drops {
            say(&format!("  {:>12}  {reason}", number(*count)));
        }
    }
    let churned = &report.churned;
    say(&format!(
        "\nmanagement: {} sessions asked to be deleted, {} deleted; snapshots: {}, the last of {} rows in {:.1} s",
        number(churned.asked),
        number(churned.deleted),
        churned.snapshots,
        number(churned.snapshot_rows),
        churned.snapshot_seconds
    ));
}

fn lost(stage: &Stage) -> String {
    format!("{} of {}", grouped_signed(stage.lost), number(stage.sent))
}

fn verdict(stage: &Stage) -> String {
    if stage.equal && stage.conservation_ok { "to the packet".to_owned() } else { "NO".to_owned() }
}
