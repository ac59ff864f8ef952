//! `carrack bench paper`: the multicore design of about 2014, on two times eight cores.

use super::{Kpi, LabArgs, LabReport, fitting, note_on_preemption, zero_loss};
use crate::clock::Tsc;
use crate::crew::Crew;
use crate::forward::BenchError;
use crate::generator::Translation;
use crate::latency::Latency;
use crate::layout::Layout;
use crate::offered::Load;
use crate::rig::RigSpec;
use crate::setup::{self, SetupArgs, setup};
use crate::world::{InstanceSpec, Mode};
use carrack_base::text::grouped;

/// Cores of the published machine.
const CORES: u32 = 16;
const SESSIONS: u32 = 7_500_000;

fn spec(sessions: u32) -> RigSpec {
    let layout = Layout::for_sessions(sessions, 16, 1);
    let instance = InstanceSpec {
        translation: Translation::Nat44,
        mode: Mode::Pba,
        subscribers: layout.subscribers,
        ports: layout.ports,
        block: 256,
        udp_s: 300,
        hold_s: 4,
        logged: Default::default(),
    };
    RigSpec { instance, layout, sessions: layout.sessions(), frame_bytes: 64, tagged: false }
}

/// New sessions while as many expire, in tables for so many.
fn set_up(mode: Mode, sessions: u32, seconds: f64, workers: u8) -> SetupArgs {
    SetupArgs {
        translation: Translation::Nat44,
        mode,
        sessions,
        seconds,
        packets: None,
        ports: 16,
        remotes: 1,
        log: Default::default(),
        sequential: false,
        workers,
        json: false,
    }
}

/// Runs it.
pub fn paper(args: &LabArgs) -> Result<LabReport, BenchError> {
    let (spec, less) = fitting(SESSIONS, args, 50_000, spec)?;
    let sessions = spec.layout.sessions();
    let trial_s = args.trial_s(2.0);
    let tsc = Tsc::measure();
    let (mut ok, mut kpis) = (true, Vec::new());
    let verified = forwarding(&spec, (tsc, trial_s, args.workers), &mut kpis, &mut ok)?;
    let world = |room| setup::spec(&set_up(Mode::Pba, room, trial_s, args.workers));
    let room = fitting(SESSIONS, args, 50_000, world)?.0.sessions;
    for (mode, name, published) in [
        (Mode::Arbitrary, "new sessions, arbitrary ports", 0.6),
        (Mode::Pba, "new sessions, port blocks", 5.0),
    ] {
        eprintln!("{name}:");
        let report = setup(&set_up(mode, room, trial_s, args.workers))?;
        ok &= report.ok;
        let cores = (CORES, args.workers.into());
        let kpi = Kpi::rate(name, "M/s", published, cores, report.sustained.m_per_s);
        kpis.push(kpi.with_closed_loop(report.fill.m_per_s).with_generator(report.generator));
    }
    let mut differences: Vec<String> = less.into_iter().collect();
    if room < sessions {
        let (room, all) = (grouped(room.into()), grouped(sessions.into()));
        differences
            .push(format!("new sessions: in tables for {room} instead of {all}, which need more memory"));
    }
    differences.push("new sessions: while as many expire; NEVER IDLE is from empty, nothing expiring".into());
    differences.push("published with NICs of 10 Gbit/s; latency there includes them".into());
    differences.push(note_on_preemption());
    Ok(LabReport {
        scenario: "paper",
        translation: "nat44",
        published: "NAT44, 64-byte frames, 2 x 8 cores at 3 GHz, 16 GB, 10 GbE (about 2014)",
        sessions_published: SESSIONS,
        sessions,
        workers: args.workers.into(),
        differences,
        kpis,
        packets_verified: verified,
        ok,
    })
}

/// Rates by flows, memory, and latency of the first and of later packets.
fn forwarding(
    spec: &RigSpec,
    (tsc, trial_s, workers): (Tsc, f64, u8),
    kpis: &mut Vec<Kpi>,
    ok: &mut bool,
) -> Result<u64, BenchError> {
    let sessions = spec.layout.sessions();
    let mut crew = Crew::new(spec, workers)?;
    let cores = (CORES, u32::from(workers));
    let set_up_pps = crew.fill(tsc, sessions.min(1 << 20), false).per_s();
    *ok &= crew.expire_all();
    let seconds = trial_s.min(f64::from(sessions) / set_up_pps);
    let load = Load::lasting(set_up_pps / 2.0, seconds, false, u64::MAX);
    let first = crew.offer(tsc, load, &mut crew.walks());
    *ok &= first.is_accounted() && crew.expire_all();
    crew.fill_all(tsc, false);
    let bytes = crew.memory_bytes() as f64 / f64::from(sessions);
    let mut later = None;
    for (flows, name, published) in
        [(1, "1 flow", 10.0), (1_000, "1,000 flows", 6.0), (sessions, "all sessions", 12.0)]
    {
        eprintln!("{name}:");
        // Of several workers each has one at least.
        let mut picks = crew.random(flows);
        let most = crew.closed_loop(tsc, trial_s.min(1.0), false, &mut picks).per_s();
        let generator = crew.generator(false, &mut picks);
        let found = zero_loss(&mut crew, tsc, (most * 1.1, trial_s, false), &mut picks, ok);
        let kpi = Kpi::found(format!("64 B, {name}"), "Mpps", published, cores, (&found, found.rate / 1e6));
        kpis.push(kpi.with_closed_loop(most / 1e6).with_generator(generator));
        let load = Load::lasting(most / 2.0, trial_s, false, u64::MAX);
        later = Some(crew.offer(tsc, load, &mut picks));
    }
    kpis.push(Kpi::cost("memory of a session", "bytes", 16e9 / f64::from(SESSIONS), bytes));
    // Fixed parts weigh as much as they do here: less is made of a small run than would be true of a large one.
    kpis.push(Kpi::cost("7.5 M sessions at that, of 16 GB", "GB", 16.0, bytes * f64::from(SESSIONS) / 1e9));
    kpis.push(Kpi::cost("first packet, mean, at half load", "us", 80.0, Latency::of(&first, tsc).mean_us));
    if let Some(later) = later {
        *ok &= later.is_accounted();
        kpis.push(Kpi::cost(
            "later packets, mean, at half load",
            "us",
            40.0,
            Latency::of(&later, tsc).mean_us,
        ));
    }
    crew.verified()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quick_run_has_every_figure_and_accounts_for_every_packet() {
        for workers in [1, 2] {
            let args = LabArgs { quick: true, seconds: Some(0.02), sessions: None, workers, json: false };
            let report = paper(&args).unwrap();
            assert!(report.ok, "{report:#?}");
            crate::labs::tests::assert_named(&report);
            assert_eq!(report.kpis.len(), 9);
        }
    }
}
