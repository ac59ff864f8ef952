//! From tables to the typed config. What a single table can get wrong is found here; what tables can get wrong
//! together is found in [`crate::check`].

mod logging;
mod nat;
mod network;
mod port_control;
mod siit;
mod system;

use crate::model::{Config, Facts};
use crate::read::{Notes, Section};
use crate::source::Source;

/// `[nat.ports] mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Mode {
    #[default]
    Blocks,
    Arbitrary,
    Deterministic,
}

/// Reads the whole file. Faults go to the notes; the result is usable for further checks whatever they are.
pub(crate) fn config(notes: &Notes, root: &Section<'_>, source: Source) -> Config {
    let system = system::system(&root.section("system"));
    let api = system::api(notes, &root.section("api"), &system);
    let workers = system::workers(notes, &root.section("workers"));
    Config {
        memory: system::memory(notes, &root.section("memory"), workers.count),
        workers,
        policers: system::policers(&root.section("policers")),
        arp: system::arp(&root.section("arp")),
        fragment_timeout_ms: root.section("fragments").value("timeout_ms"),
        vrfs: network::vrfs(notes, root.sections("vrf")),
        interfaces: network::interfaces(notes, root.sections("interface")),
        routes: network::routes(notes, root.sections("route")),
        port_control: port_control::server(&root.section("port_control")),
        nat: nat::instances(notes, root.sections("nat")),
        siit: siit::translators(notes, root.sections("siit")),
        logging: logging::logging(notes, &root.section("logging")),
        facts: Facts::default(),
        source,
        system,
        api,
    }
}
