//! Exporters against NAT instances.

use crate::model::Config;
use crate::read::Notes;
use crate::suggest;

pub(super) fn check(notes: &Notes, config: &Config) {
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
