//! The table for people.

use super::Report;
use crate::report::{mpps, number, say};

/// Prints the report.
pub(crate) fn print(report: &Report) {
    say(&format!(
        "Every packet passes the NAT twice: {} → carrack → {} → carrack → back.",
        report.generator, report.reflector
    ));
    say(&format!("{}-byte frames, UDP; {}.\n", report.frame_bytes, report.cores.describe()));
    say("             as dpdk-testpmd sees it             as carrack counts");
    say(
        "    flows   tx Mpps   rx Mpps          lost   forwarded Mpps   clocks/packet   idle   sessions   loss explained",
    );
    for run in &report.runs {
        say(&format!(
            "{:>9} {:>9} {:>9} {:>13} {:>16} {:>15.0} {:>5.0}% {:>10}   {}",
            number(u64::from(run.flows)),
            mpps(run.testpmd_tx_pps),
            mpps(run.testpmd_rx_pps),
            run.generator_lost,
            mpps(run.carrack_forwarded_pps),
            run.carrack_clocks_per_packet,
            run.carrack_idle_share * 100.0,
            number(run.carrack_sessions),
            if run.loss_explained { "to the packet" } else { "NO" }
        ));
        for (reason, count) in &run.carrack_drops {
            say(&format!("          of which dropped by carrack, {reason}: {}", number(*count)));
        }
        if run.carrack_own != 0 {
            say(&format!("          carrack's own packets, such as ARP: {}", run.carrack_own));
        }
        if run.reflector_lost > 0 {
            say(&format!(
                "          of which not sent back by the reflector: {}",
                number(run.reflector_lost)
            ));
        }
    }
    if report.cores.shared() {
        say(
            "\nGenerator and reflector share a CPU here: the rate is what is left for them there, and what waits for the \
             other's turn beyond the rings is lost. With three CPUs each program has its own.",
        );
    }
}
