//! What workers and ports report, and how it is written on a [`Board`](crate::board::Board).

#[cfg(test)]
mod tests;

use carrack_base::counters::Accounts;
use carrack_base::reason::REASON_COUNT;
use carrack_io::{LinkInfo, MacAddress, PortStats};

/// How a worker's loop spent its time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LoopStats {
    /// Turns of the loop.
    pub loops: u64,
    /// Turns that found no work.
    pub loops_idle: u64,
    /// Nanoseconds in turns with work.
    pub busy_ns: u64,
    /// Nanoseconds in turns without work, sleep included.
    pub idle_ns: u64,
    /// Times the worker slept.
    pub sleeps: u64,
}

impl LoopStats {
    /// Share of time without work, 0 to 1.
    #[must_use]
    pub fn idle_share(&self) -> f64 {
        let total = self.busy_ns + self.idle_ns;
        if total == 0 { 1.0 } else { self.idle_ns as f64 / total as f64 }
    }

    pub(crate) fn write(&self, out: &mut Vec<u64>) {
        let Self { loops, loops_idle, busy_ns, idle_ns, sleeps } = self;
        out.extend_from_slice(&[*loops, *loops_idle, *busy_ns, *idle_ns, *sleeps]);
    }

    pub(crate) fn read(words: &mut Words<'_>) -> Self {
        let [loops, loops_idle, busy_ns, idle_ns, sleeps] = words.take();
        Self { loops, loops_idle, busy_ns, idle_ns, sleeps }
    }
}

/// A port as the worker that polls it last saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortReport {
    /// Address, size limit, state.
    pub link: LinkInfo,
    /// Counters.
    pub stats: PortStats,
}

impl PortReport {
    pub(crate) const WORDS: usize = 12;

    pub(crate) fn write(&self, out: &mut Vec<u64>) {
        let LinkInfo { mac, mtu, up, speed_mbps } = self.link;
        let [a, b, c, d, e, f] = mac.0;
        out.push(u64::from_be_bytes([0, 0, a, b, c, d, e, f]));
        out.extend_from_slice(&[mtu.into(), up.into(), speed_mbps.map_or(0, |mbps| u64::from(mbps) + 1)]);
        let PortStats {
            rx_packets,
            rx_bytes,
            tx_packets,
            tx_bytes,
            rx_missed,
            rx_errors,
            rx_nombuf,
            tx_errors,
        } = self.stats;
        out.extend_from_slice(&[
            rx_packets, rx_bytes, tx_packets, tx_bytes, rx_missed, rx_errors, rx_nombuf, tx_errors,
        ]);
    }

    pub(crate) fn read(words: &mut Words<'_>) -> Self {
        let [mac, mtu, up, speed] = words.take();
        let [_, _, a, b, c, d, e, f] = mac.to_be_bytes();
        let [rx_packets, rx_bytes, tx_packets, tx_bytes, rx_missed, rx_errors, rx_nombuf, tx_errors] =
            words.take();
        Self {
            link: LinkInfo {
                mac: MacAddress([a, b, c, d, e, f]),
                mtu: mtu as u16,
                up: up != 0,
                speed_mbps: speed.checked_sub(1).map(|mbps| mbps as u32),
            },
            stats: PortStats {
                rx_packets,
                rx_bytes,
                tx_packets,
                tx_bytes,
                rx_missed,
                rx_errors,
                rx_nombuf,
                tx_errors,
            },
        }
    }
}

/// Words of [`Accounts`] on a board.
pub(crate) const ACCOUNTS_WORDS: usize = 10 + REASON_COUNT;
/// Words of [`LoopStats`] on a board.
pub(crate) const LOOP_WORDS: usize = 5;

pub(crate) fn write_accounts(accounts: &Accounts, out: &mut Vec<u64>) {
    let Accounts {
        rx,
        handed_in,
        originated,
        forwarded,
        punted,
        consumed,
        handed_out,
        held,
        drops,
        rx_bytes,
        forwarded_bytes,
    } = accounts;
    out.extend_from_slice(&[
        *rx,
        *handed_in,
        *originated,
        *forwarded,
        *punted,
        *consumed,
        *handed_out,
        *held,
        *rx_bytes,
    ]);
    out.push(*forwarded_bytes);
    out.extend_from_slice(drops);
}

pub(crate) fn read_accounts(words: &mut Words<'_>) -> Accounts {
    let [rx, handed_in, originated, forwarded, punted, consumed, handed_out, held, rx_bytes, forwarded_bytes] =
        words.take();
    Accounts {
        rx,
        handed_in,
        originated,
        forwarded,
        punted,
        consumed,
        handed_out,
        held,
        rx_bytes,
        forwarded_bytes,
        drops: words.take(),
    }
}

/// Reads a board's words in order; words that are missing are zero.
pub(crate) struct Words<'a>(pub(crate) &'a [u64]);

impl Words<'_> {
    pub(crate) fn take<const N: usize>(&mut self) -> [u64; N] {
        let mut out = [0; N];
        let (mine, rest) = self.0.split_at(N.min(self.0.len()));
        for (to, from) in out.iter_mut().zip(mine) {
            *to = *from;
        }
        self.0 = rest;
        out
    }
}
