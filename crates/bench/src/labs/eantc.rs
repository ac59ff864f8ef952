//! `carrack bench eantc`: the 2019 test of an appliance on 84 virtual processors.

use super::{Kpi, LabArgs, LabReport, fitting, note_on_preemption, zero_loss};
use crate::clock::Tsc;
use crate::crew::Crew;
use crate::forward::BenchError;
use crate::generator::Translation;
use crate::latency::Latency;
use crate::layout::Layout;
use crate::memory;
use crate::offered::{Load, RING_PACKETS};
use crate::rfc2544::{Search, Seen, step_up};
use crate::rig::RigSpec;
use crate::world::{InstanceSpec, Mode};
use carrack_base::text::grouped;

/// Processors of the published machine.
const CORES: u32 = 84;
/// 20,000 clients, 1,245 servers, four source ports.
const SESSIONS: u32 = 99_600_000;
const CLIENTS: u32 = 20_000;
const PORTS: u32 = 4;
/// What was published of one size of frames.
struct Published {
    name: &'static str,
    /// Frame bytes and their weights.
    sizes: &'static [(u32, u32)],
    gbps: f64,
    shortest_us: f64,
    longest_us: f64,
    mean_us: f64,
}

const fn frames(
    name: &'static str,
    sizes: &'static [(u32, u32)],
    gbps: f64,
    [shortest_us, longest_us, mean_us]: [f64; 3],
) -> Published {
    Published { name, sizes, gbps, shortest_us, longest_us, mean_us }
}

const FRAMES: [Published; 4] = [
    frames("84 B", &[(84, 1)], 72.0, [8.0, 743.0, 83.0]),
    frames("260 B", &[(260, 1)], 198.75, [10.0, 555.0, 110.0]),
    frames(
        "IMIX",
        &[(82, 1), (118, 11), (391, 3), (588, 2), (1_318, 3), (1_536, 7)],
        212.3,
        [10.0, 444.0, 33.0],
    ),
    frames("1520 B", &[(1_520, 1)], 231.25, [10.0, 442.0, 28.0]),
];
const FRAME_MAX: u32 = 1_536;

fn spec(sessions: u32) -> RigSpec {
    // As many clients as published while there is a server for each of their ports.
    let clients = CLIENTS.min((sessions / PORTS).max(1));
    let servers = (sessions / PORTS / clients).max(1);
    let layout = Layout::new(clients, PORTS, servers, 80);
    let instance = InstanceSpec {
        translation: Translation::Nat44,
        mode: Mode::Static,
        subscribers: clients,
        ports: PORTS,
        block: 256,
        udp_s: 300,
        hold_s: 0,
        logged: Default::default(),
    };
    RigSpec { instance, layout, sessions: layout.sessions(), frame_bytes: FRAME_MAX, tagged: false }
}

/// One run.
struct Run {
    crew: Crew,
    tsc: Tsc,
    trial_s: f64,
    /// Seconds that a rate of new sessions is held.
    held_s: f64,
    ok: bool,
    kpis: Vec<Kpi>,
}

/// Runs it.
pub fn eantc(args: &LabArgs) -> Result<LabReport, BenchError> {
    let (spec, less) = fitting(SESSIONS, args, 100_000, spec)?;
    let sessions = spec.layout.sessions();
    eprintln!(
        "taking {:.1} GB of memory for {} sessions …",
        memory::needed_by(&spec, args.workers) as f64 / 1e9,
        grouped(sessions.into())
    );
    let mut run = Run {
        crew: Crew::new(&spec, args.workers)?,
        tsc: Tsc::measure(),
        trial_s: args.trial_s(2.0),
        held_s: args.trial_s(10.0),
        ok: true,
        kpis: Vec::new(),
    };
    run.set_up(sessions);
    run.concurrent(sessions);
    for published in &FRAMES {
        run.throughput(published, sessions);
    }
    let mut differences: Vec<String> = less.into_iter().collect();
    differences.push(format!(
        "set-up rates held for {} s or until every session there can be is new; throughput trials of {} s",
        run.held_s, run.trial_s
    ));
    let layout = spec.layout;
    differences.push(format!(
        "{} clients in one pool instead of 5 of 4,000, {} servers in one instead of up to 2,000 in 5 of 400: which pool an address is of makes \
         no difference to a one-to-one translation",
        grouped(layout.subscribers.into()),
        grouped(layout.remotes.into())
    ));
    differences.push("in process: no NIC, packets of any size cost the same to receive and to send".into());
    differences
        .push("latency is from when a packet is due to its transmit queue, without wire and NIC".into());
    differences.push(note_on_preemption());
    Ok(LabReport {
        scenario: "eantc",
        translation: "nat44",
        published: "static NAT, UDP, 84 vCPUs of 2 x Xeon Gold 6252, 280 GB, 10 x 25 GbE (2019)",
        sessions_published: SESSIONS,
        sessions,
        differences,
        workers: args.workers.into(),
        packets_verified: run.crew.verified()?,
        ok: run.ok && run.crew.is_balanced(),
        kpis: run.kpis,
    })
}

impl Run {
    /// Fresh sessions at a stepped rate, the table flushed between steps; the highest rate with zero loss counts.
    fn set_up(&mut self, sessions: u32) {
        let workers = self.crew.workers();
        let Self { crew, tsc, held_s, ok, .. } = self;
        crew.all(|rig| rig.set_frame_bytes(84));
        let mut walks = crew.walks();
        let most = crew.fill(*tsc, sessions.min(1 << 20), false).per_s();
        let generator = crew.generator(false, &mut walks);
        *ok &= crew.expire_all();
        let search = Search { rate_max: most * 1.5, resolution: 0.0, trials_max: 16, repeats_max: 1 };
        let found = step_up(most * 0.2, most * 0.1, &search, |pps| {
            // Some workers have a few subscribers fewer than others.
            let seconds = held_s.min(f64::from(sessions) * 0.95 / pps);
            let load = Load::lasting(pps, seconds, false, RING_PACKETS);
            let outcome = crew.offer(*tsc, load, &mut walks);
            *ok &= outcome.is_accounted() && crew.expire_all();
            eprintln!("  {:.2} M set-ups/s: {} lost", pps / 1e6, outcome.lost());
            Seen { offered: outcome.offered, lost: outcome.lost(), disturbed: outcome.preemptions > 0 }
        });
        let kpi =
            Kpi::found("session set-up, no loss", "M/s", 7.0, (CORES, workers), (&found, found.rate / 1e6));
        self.kpis.push(kpi.with_closed_loop(most / 1e6).with_generator(generator));
    }

    /// All sessions, and what each takes.
    fn concurrent(&mut self, sessions: u32) {
        let phase = self.crew.fill_all(self.tsc, true);
        // Filled without any loss: each is there, and no packet was dropped.
        self.ok &= phase.sessions == u64::from(sessions) && self.crew.dropped() == 0;
        let bytes = self.crew.memory_bytes() as f64 / f64::from(sessions);
        let (cores, mut walks) = ((CORES, self.crew.workers()), self.crew.walks());
        let fill = Kpi::rate("fill rate, both directions seen", "M/s", 3.5, cores, phase.m_per_s);
        self.kpis.push(fill.with_generator(self.crew.generator(true, &mut walks)));
        self.kpis.push(Kpi::cost("memory of a session", "bytes", 1_750.0, bytes));
    }

    /// Zero-loss rate both ways, and the latency at that rate.
    fn throughput(&mut self, published: &Published, sessions: u32) {
        let Published { name, sizes, gbps, shortest_us, longest_us, mean_us } = *published;
        let cores = (CORES, self.crew.workers());
        let Self { crew, tsc, trial_s, ok, kpis, .. } = self;
        eprintln!("{name}:");
        crew.all(|rig| {
            rig.set_mix(if sizes.len() > 1 { sizes } else { &[] });
            if let [(bytes, _)] = sizes {
                rig.set_frame_bytes(*bytes);
            }
        });
        let weight: u32 = sizes.iter().map(|(_, weight)| weight).sum();
        let bits =
            sizes.iter().map(|(bytes, weight)| bytes * weight).sum::<u32>() as f64 * 8.0 / f64::from(weight);
        let mut picks = crew.random(sessions);
        let most = crew.closed_loop(*tsc, trial_s.min(1.0), true, &mut picks).per_s();
        let generator = crew.generator(true, &mut picks);
        let found = zero_loss(crew, *tsc, (most * 1.1, *trial_s, true), &mut picks, ok);
        // Packets from inside and their answers.
        let gbit = |pps: f64| pps * 2.0 * bits / 1e9;
        let kpi = Kpi::found(
            format!("throughput {name}, both ways"),
            "Gbit/s",
            gbps,
            cores,
            (&found, gbit(found.rate)),
        );
        kpis.push(kpi.with_closed_loop(gbit(most)).with_generator(generator));
        let pps = if found.rate > 0.0 { found.rate } else { most / 2.0 };
        let load = Load::lasting(pps, *trial_s, true, u64::MAX);
        let outcome = crew.offer(*tsc, load, &mut picks);
        let seen = Latency::of(&outcome, *tsc);
        *ok &= outcome.is_accounted();
        for (which, published_us, us) in [
            ("mean", mean_us, seen.mean_us),
            ("shortest", shortest_us, seen.min_us),
            ("longest", longest_us, seen.max_us),
        ] {
            let name = format!("latency at throughput {name}, {which}");
            kpis.push(Kpi::cost(name, "us", published_us, us).detail());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_full_scale_it_is_the_published_scenario() {
        let spec = spec(SESSIONS);
        let layout = spec.layout;
        assert_eq!((layout.subscribers, layout.ports, layout.remotes), (20_000, 4, 1_245));
        assert_eq!(layout.sessions(), 99_600_000);
    }

    #[test]
    fn a_quick_run_has_every_figure_and_accounts_for_every_packet() {
        for workers in [1, 2] {
            let args = LabArgs { quick: true, seconds: Some(0.02), sessions: None, workers, json: false };
            let report = eantc(&args).unwrap();
            assert!(report.ok, "{report:#?}");
            crate::labs::tests::assert_named(&report);
            // Four ports of each of as many clients as published, not the 100,000 that a quick run asks for.
            assert_eq!(report.sessions, 80_000);
            assert!(report.differences[0].starts_with("80,000 sessions instead"), "{report:#?}");
            assert_eq!(report.kpis.len(), 3 + 4 * FRAMES.len());
        }
    }
}
