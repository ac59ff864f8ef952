//! What tables can get wrong together: names that lead nowhere, addresses that clash.

mod logging;
mod nat;
mod network;
mod routes;
mod siit;

use crate::model::Config;
use crate::read::Notes;

/// Checks a config that was read; faults go to the notes.
pub(crate) fn config(notes: &Notes, config: &Config) {
    // That something is missing is said only of a file that was read in full: what has a fault of its own may be it.
    let complete = !notes.has_errors();
    network::check(notes, config, complete);
    nat::check(notes, config, complete);
    siit::check(notes, config);
    routes::check(notes, config);
    logging::check(notes, config);
}
