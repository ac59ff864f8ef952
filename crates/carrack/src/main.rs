//! The `carrack` binary.
#![forbid(unsafe_code)]

mod act;
mod bench;
mod check;
mod cli;
mod daemon;
mod estimate;
mod fail;
mod human;
mod reference;
mod show;
mod table;
mod traceback;

use std::io::{self, Write};
use std::process::ExitCode;

use carrack_api::client::Client;
use clap::{CommandFactory, FromArgMatches};

use cli::{Cli, Command};
use fail::{Fail, Outcome};

fn main() -> ExitCode {
    let matches = Cli::command().get_matches();
    let socket_given = matches.value_source("socket") != Some(clap::parser::ValueSource::DefaultValue);
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let client = || Client::new(&cli.socket).map_err(Fail::from);
    let outcome = match cli.command {
        Command::Lab(args) => return carrack_lab::cli::run(args),
        Command::Bench(args) => return bench::run(args),
        Command::Run(args) => daemon::run(&args, socket_given.then_some(cli.socket.as_path())),
        Command::Check(args) => check::run(&args, cli.json),
        Command::Reload => client().and_then(|client| act::reload(&client, cli.json)),
        Command::Show(what) => client().and_then(|client| show::run(&client, what, cli.json)),
        Command::Clear(cli::Clear::Nat(cli::ClearNat::Sessions { filter, all })) => {
            client().and_then(|client| act::clear_sessions(&client, filter.filter(), all, cli.json))
        }
        Command::Clear(cli::Clear::Pcp(cli::ClearPcp::Mappings { inside, all })) => {
            client().and_then(|client| act::clear_port_mappings(&client, inside, all, cli.json))
        }
        Command::Trace(args) => client().and_then(|client| act::trace(&client, args, cli.json)),
        Command::Capture(args) => client().and_then(|client| act::capture(&client, args, cli.json)),
        Command::TraceBack(args) => traceback::run(&args, cli.json),
        Command::Log { command: cli::LogCommand::Estimate(args) } => estimate::run(&args, cli.json),
        Command::Completions { shell } => completions(shell),
        Command::Reference => print(&reference::markdown()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(fail) => fail.report(),
    }
}

fn completions(shell: clap_complete::Shell) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "carrack", &mut script);
    io::stdout().lock().write_all(&script)?;
    Ok(())
}

fn print(text: &str) -> Outcome {
    io::stdout().lock().write_all(text.as_bytes())?;
    Ok(())
}
