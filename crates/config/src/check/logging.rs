//! Exporters against NAT instances.

use carrack_nat::policy::Logged;

use crate::model::{Config, NatConfig, PortsConfig};
use crate::read::Notes;
use crate::suggest;

pub(super) fn check(notes: &Notes, config: &Config) {
    traceable(notes, config);
    for core in config.logging.cores.iter().filter(|core| config.workers.cores.contains(core)) {
        let message = format!(
            "core {core} is a worker's, which shares it with nobody; take it out here or from workers.cores"
        );
        notes.error(core.span, message);
    }
    for exporter in &config.logging.exporters {
        for instance in &exporter.instances {
            let known = || config.nat.iter().map(|nat| nat.name.value.as_str());
            if !known().any(|name| name == instance.value) {
                let hint = suggest::hint(&instance.value, known());
                let message = format!("exporter `{}`: no NAT instance `{instance}`; {hint}", exporter.name);
                notes.error(instance.span, message);
            }
        }
    }
}

/// Ports that are given out one by one tell nobody's name unless they are logged one by one.
fn traceable(notes: &Notes, config: &Config) {
    let anybody = config.logging.store.is_some() || !config.logging.exporters.is_empty();
    let one_by_one = |nat: &&NatConfig| {
        matches!(nat.ports, PortsConfig::Arbitrary) && !nat.pools.is_empty() && nat.log == Logged::Blocks
    };
    for nat in config.nat.iter().filter(|nat| anybody && one_by_one(nat)) {
        let message = format!(
            "nothing that `{}` logs tells who had a port, because it has no port blocks; set log = \"mappings\", or use blocks",
            nat.name
        );
        notes.warning(nat.name.span, message);
    }
}
