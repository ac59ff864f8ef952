//! `carrack bench bison`: the lab that churns sessions of a NAT64 through its management.
//!
//! Scenario, scale and method are the published ones; what differs is said in the report.

use super::{Kpi, LabArgs, LabReport, fitting, note_on_preemption, zero_loss};
use crate::churn::churn_rig;
use crate::clock::Tsc;
use crate::crew::Crew;
use crate::forward::BenchError;
use crate::generator::Translation;
use crate::layout::Layout;
use crate::offered::{Load, RING_PACKETS};
use crate::rig::RigSpec;
use crate::world::{InstanceSpec, Mode};
use carrack_base::text::grouped;

/// What is translated here.
const TRANSLATION: Translation = Translation::Nat64;
/// Workers of the published machine.
const CORES: u32 = 14;
const SUBSCRIBERS: u32 = 131_072;
/// Source ports 20000 to 20015.
const PORTS: u32 = 16;
const SESSIONS: u32 = SUBSCRIBERS * PORTS;
const DESTINATION_PORT: u16 = 12_345;
const FRAME_BYTES: u32 = 128;
const BLOCK: u16 = 256;
/// Deletions a second that the management client tries.
const DELETIONS: f64 = 70_000.0;
/// What is offered under churn, of the steady rate: snapshots and deletions need time too, and published workers had some.
const OFFERED_UNDER_CHURN: f64 = 0.6;

fn spec(sessions: u32) -> RigSpec {
    let layout = Layout::new(sessions / PORTS, PORTS, 1, DESTINATION_PORT);
    let instance = InstanceSpec {
        translation: TRANSLATION,
        mode: Mode::Pba,
        subscribers: layout.subscribers,
        ports: layout.ports,
        block: BLOCK,
        udp_s: 300,
        hold_s: 0,
        logged: Default::default(),
    };
    RigSpec { instance, layout, sessions: layout.sessions(), frame_bytes: FRAME_BYTES, tagged: true }
}

/// Runs it.
pub fn bison(args: &LabArgs) -> Result<LabReport, BenchError> {
    let (spec, less) = fitting(SESSIONS, args, 32_768, spec)?;
    let sessions = spec.layout.sessions();
    let (mut crew, tsc) = (Crew::new(&spec, args.workers)?, Tsc::measure());
    let cores = (CORES, crew.workers());
    eprintln!("stage 1: {} sessions", grouped(sessions.into()));
    let phase = crew.fill_all(tsc, true);
    let mut ok = phase.sessions == u64::from(sessions);
    let lost_in_stage_1 = crew.dropped();
    eprintln!("stage 2: steady traffic both ways");
    let (trial_s, churn_s) = (args.trial_s(2.0), args.trial_s(2.0) * if args.quick { 20.0 } else { 10.0 });
    let mut picks = crew.random(sessions);
    let most = crew.closed_loop(tsc, trial_s.min(1.0), true, &mut picks).per_s();
    let generator = crew.generator(true, &mut picks);
    let found = zero_loss(&mut crew, tsc, (most * 1.1, trial_s, true), &mut picks, &mut ok);
    let steady = if found.rate > 0.0 { found.rate.min(most) * OFFERED_UNDER_CHURN } else { most * 0.5 };
    // The management client wants a processor too: one worker is churned.
    let pps = steady / f64::from(crew.workers());
    eprintln!("stage 2: {:.2} Mpps from inside for {churn_s} s while sessions are deleted", pps / 1e6);
    let load = Load::lasting(pps, churn_s, true, RING_PACKETS);
    let rig = crew.first().ok_or_else(|| BenchError("there is no worker".into()))?;
    let own = rig.layout.sessions();
    let seen = churn_rig(rig, tsc, load, DELETIONS, own)?;
    ok &= seen.is_accounted && seen.deleted > 0;
    let both = |pps: f64| pps * 2.0 / 1e6;
    let churned = (CORES, 1);
    let loss_ppm = seen.lost as f64 / seen.offered.max(1) as f64 * 1e6;
    let kpis = vec![
        Kpi::found("steady traffic, no loss, both ways", "Mpps", 24.0, cores, (&found, both(found.rate)))
            .with_closed_loop(both(most))
            .with_generator(generator),
        Kpi::rate("traffic under churn, both ways", "Mpps", 24.0, churned, seen.mpps)
            .with_generator(generator),
        Kpi::rate("sessions deleted", "k/s", 28.5, churned, seen.deleted_per_s / 1e3),
        Kpi::rate("sessions that came back", "k/s", 28.5, churned, seen.recreated_per_s / 1e3),
        Kpi::cost("loss under churn", "ppm", 5_487.0 / 14_250.0, loss_ppm),
    ];
    let mut differences: Vec<String> = less.into_iter().collect();
    differences.push(
        "prefix 2001:db8:64::/96: bits 64 to 71 of the published one are not zero, which RFC 6052 §2.2 asks"
            .into(),
    );
    differences.push(
        "deletions depend on one management client, not on workers: their per-core figure flatters".into(),
    );
    if crew.workers() > 1 {
        differences.push("one worker is churned, with its share of the sessions".into());
    }
    differences.push(format!(
        "{churn_s} s under churn instead of minutes, {:.1} Mpps offered; stage 1 lost {lost_in_stage_1} packets",
        both(pps)
    ));
    differences.push(format!(
        "loss as generator and far end see it: {} of {} packets; counted: {} ring full, {} by the router {:?}",
        grouped(seen.lost),
        grouped(seen.offered),
        grouped(seen.missed),
        grouped(seen.drops.values().sum()),
        seen.drops
    ));
    differences.push(note_on_preemption());
    Ok(LabReport {
        scenario: "bison",
        translation: TRANSLATION.name(),
        published: "NAT64, sessions churned by management, 14 workers on a Ryzen 9950X3D, 2 x 40 GbE",
        sessions_published: SESSIONS,
        sessions,
        differences,
        kpis,
        workers: args.workers.into(),
        packets_verified: crew.verified()?,
        ok: ok && crew.is_balanced(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_full_scale_it_is_the_published_scenario() {
        let layout = spec(SESSIONS).layout;
        assert_eq!((layout.subscribers, layout.sessions()), (131_072, 2_097_152));
        let session = layout.session(SESSIONS - 1);
        assert_eq!((session.port, session.remote_port), (20_015, 12_345));
    }

    #[test]
    fn a_quick_run_deletes_sessions_and_accounts_for_every_packet() {
        for workers in [1, 2] {
            let args = LabArgs { quick: true, seconds: Some(0.05), sessions: None, workers, json: false };
            let report = bison(&args).unwrap();
            assert!(report.ok, "{report:#?}");
            crate::labs::tests::assert_named(&report);
        }
    }
}
