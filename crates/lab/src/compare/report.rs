//! The table for people.

use super::{Figures, Report};
use crate::report::{number, say};

/// Prints both columns.
pub(crate) fn print(report: &Report) {
    let both = [&report.carrack, &report.linux_nft];
    let row = |what: &str, value: &dyn Fn(&Figures) -> String| {
        say(&format!("{what:<38} {:>20} {:>20}", value(both[0]), value(both[1])));
    };
    row("", &|figures| figures.router.clone());
    row("TCP, one connection up, Gbit/s", &|figures| format!("{:.2}", figures.tcp_up_gbps));
    row("TCP, one connection down, Gbit/s", &|figures| format!("{:.2}", figures.tcp_down_gbps));
    row("64-byte UDP that arrived, packets/s", &|figures| number(figures.small_packets_pps as u64));
    row("  of those sent, lost", &|figures| format!("{:.1} %", figures.small_packets_lost * 100.0));
    row("new connections a second", &|figures| number(figures.connections_per_second as u64));
    row("  made of those asked", &|figures| {
        format!("{} of {}", number(figures.connections_made), number(figures.connections_asked))
    });
    row("bytes a session", &|figures| match figures.bytes_per_session {
        0.0 => "-".to_owned(),
        bytes => format!("{bytes:.0}"),
    });
    for figures in both {
        say(&format!("  {}: {}", figures.router, figures.bytes_per_session_of));
    }
    say(
        "\nAll over veth with the senders' offloads off towards the router. The kernel's NAT works on the sender's own packet \
         buffers; carrack gets a copy of every packet through the kernel and gives a copy back (zero-copy is refused on \
         veth), and the senders share the CPUs. `carrack lab memif` and `carrack bench` show the NAT without that.",
    );
}
