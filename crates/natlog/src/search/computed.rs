//! Answers that need no events, only the configuration of the time; and what that configuration says of the log.

use std::path::Path;

use carrack_config::{Config, PortFacts};
use carrack_nat::policy::{Assignment, Instance, Logged, StaticRule};
use carrack_nat::{Deterministic, Inside};

use super::{Holding, Question, unreadable};
use crate::store::files;
use crate::time;

/// What the configuration in force at a time says of an outside address and port.
#[derive(Debug, Default)]
pub(super) struct Computed {
    /// Who had it, when that can be computed.
    pub holding: Option<Holding>,
    /// Why nothing in the log may say who had it.
    pub doubt: Option<String>,
}

/// Pools whose ports are computed need no events (RFC 7422 §3), nor do static mappings.
pub(super) fn computed(dir: &Path, question: &Question) -> Result<Computed, String> {
    let configs = files::configs(dir).map_err(|error| unreadable(dir, &error))?;
    let in_force = configs.iter().rposition(|(from_ms, _)| *from_ms <= question.at_ms);
    let Some((index, (from_ms, path))) = in_force.and_then(|at| Some((at, configs.get(at)?))) else {
        return Ok(Computed::default());
    };
    let to_ms = configs.get(index + 1).map(|(next, _)| *next);
    let text = std::fs::read_to_string(path).map_err(|error| unreadable(path, &error))?;
    let compiled = Config::from_str(&path.display().to_string(), &text)
        .and_then(|(config, _)| carrack_config::compile(&config, &PortFacts::assumed(&config), None))
        .map_err(|_| {
            format!("{} is no configuration of this version; ask the version that wrote it", path.display())
        })?;
    let instances = &compiled.snapshot.nat.instances;
    let holding = instances.iter().find_map(|instance| holder(instance, question)).map(|holding| Holding {
        from_ms: *from_ms,
        to_ms,
        ..holding
    });
    let doubt = doubt(instances, question, *from_ms).filter(|_| holding.is_none());
    Ok(Computed { holding, doubt })
}

/// The holder under this instance; its times are the caller's.
fn holder(instance: &Instance, question: &Question) -> Option<Holding> {
    let of = |what, inside: Inside, first, last, protocol| Holding {
        subscriber: inside.into(),
        instance: instance.name.clone(),
        what,
        outside: question.outside,
        first,
        last,
        protocol,
        from_ms: 0,
        to_ms: None,
    };
    let ip = u32::from(question.outside);
    let fixed = instance.statics.iter().find_map(|rule| match *rule {
        StaticRule::OneToOne { inside, outside } if (outside.first..=outside.last).contains(&ip) => {
            Some(of("static", Inside::V4(inside.first + (ip - outside.first)), 0, u16::MAX, 0))
        }
        StaticRule::Forward { proto, outside, outside_port, count, inside, .. } => {
            let last = outside_port.saturating_add(count.saturating_sub(1));
            let number = crate::record::ip_number(proto);
            let asked = question.protocol.is_none_or(|asked| asked == number);
            (asked && outside == ip && (outside_port..=last).contains(&question.port))
                .then(|| of("static", inside, outside_port, last, number))
        }
        StaticRule::OneToOne { .. } => None,
    });
    fixed.or_else(|| {
        let function = Deterministic::of(instance)?;
        let inside = function.inverse(ip, question.port)?;
        let share = function.share(inside)?;
        Some(of("deterministic", inside, share.first, share.last, 0))
    })
}

/// Was the address one whose use the log is told of?
fn doubt(instances: &[Instance], question: &Question, from_ms: u64) -> Option<String> {
    let ip = u32::from(question.outside);
    let of = |instance: &&Instance| {
        let mut ranges = instance.pools.iter().flat_map(|pool| &pool.ranges);
        ranges.any(|range| (range.first..=range.last).contains(&ip))
    };
    let since = time::format_ms(from_ms);
    match instances.iter().find(of) {
        None => {
            Some(format!("{} is in no pool of the configuration in force since {since}", question.outside))
        }
        Some(instance)
            if instance.assignment == Assignment::Arbitrary && instance.logged == Logged::Blocks =>
        {
            Some(format!(
                "`{}`, whose pool it is of, logs nothing that tells who had a port (log = \"blocks\", without blocks, since {since})",
                instance.name
            ))
        }
        Some(_) => None,
    }
}
