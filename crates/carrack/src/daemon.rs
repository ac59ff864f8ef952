//! `carrack run`.

use std::path::Path;

use carrack_api::Failure;

use crate::cli::RunArgs;
use crate::fail::{Fail, Outcome};

pub fn run(args: &RunArgs, socket: Option<&Path>) -> Outcome {
    let _ = (args, socket);
    Err(Fail::Operation(Failure::internal("not built yet")))
}
