//! `carrack check`.

use carrack_api::Failure;

use crate::cli::CheckArgs;
use crate::fail::{Fail, Outcome};

pub fn run(args: &CheckArgs, json: bool) -> Outcome {
    let _ = (args, json);
    Err(Fail::Operation(Failure::internal("not built yet")))
}
