//! What tables can get wrong together: names that lead nowhere, addresses that clash.

mod nat;
mod network;

use crate::model::Config;
use crate::read::Notes;

/// Checks a config that was read; faults go to the notes.
pub(crate) fn config(notes: &Notes, config: &Config) {
    network::check(notes, config);
    nat::check(notes, config);
}
