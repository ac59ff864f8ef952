//! `carrack run`: configuration, threads, management, signals.

mod backend;
mod obedience;
mod packet_line;
mod rows;
mod summary;
mod translation;

use std::path::Path;
use std::sync::Arc;

use carrack_api::Failure;
use carrack_api::server::{Server, ServerOptions, TcpOptions};
use carrack_config::{Config, PortFacts};
use carrack_natlog::Service;
use carrack_natlog::context::Context;
use carrack_pipeline::snapshot::Snapshot;
use carrack_runtime::{EndReason, EventSink, RunOptions, Runtime, StartError};
use tracing::{info, warn};
use tracing_subscriber::filter::LevelFilter;

use crate::cli::{LogLevel, RunArgs};
use crate::fail::{Fail, Outcome};
use backend::Daemon;
use obedience::Obedience;

pub fn run(args: &RunArgs, socket: Option<&Path>) -> Outcome {
    log_to_stderr(args.log);
    // Signals are obeyed before anything is touched: an early SIGTERM ends the start, and in good order.
    let obedience = Obedience::start()?;
    let starting = obedience.starting();
    let ended = |error: StartError| match error {
        StartError::Ended => Ok(()),
        error => Err(start_failure(error)),
    };
    // Millions of routes take their time.
    let read = match starting.slowly((), || read(&args.config)) {
        Ok(((), read)) => read,
        Err(error) => return ended(error),
    };
    let (config, warnings, snapshot) = read?;
    let options = server_options(&config, socket);
    let system = config.system.name.clone();
    let devices = config.devices().map(|(port, spec)| (port.name.value.clone(), spec.to_string())).collect();
    let verbose_dpdk = args.log >= LogLevel::Debug;
    let run = RunOptions { verbose_dpdk, starting, ..RunOptions::default() };
    let mut log =
        Service::start(&config, Context::of(&config, &snapshot), unix_ms()).map_err(Failure::internal)?;
    obedience.logs_to(&log);
    let sink = Box::new(log.clone());
    let runtime = match Runtime::start_config(&args.config, config, warnings, run, Some(sink)) {
        Ok(runtime) => runtime,
        Err(error) => {
            log.end(unix_ms() * 1_000_000);
            return ended(error);
        }
    };
    let handle = runtime.handle();
    let daemon = Arc::new(Daemon::new(handle.clone(), log, system, devices));
    let server = Server::start(daemon.clone(), &options)?;
    info!("managed at {}", options.socket.display());
    if let Some(address) = server.tcp_address() {
        info!("managed at https://{address}, with the token");
    }
    obedience.started(&daemon, handle);
    let end = runtime.wait();
    obedience.stop();
    server.stop();
    info!("stopping");
    runtime.stop();
    match end {
        EndReason::Failed(why) => Err(Fail::Operation(Failure::internal(why))),
        EndReason::Stopped | EndReason::Idle => Ok(()),
    }
}

/// Milliseconds since 1970.
pub(crate) fn unix_ms() -> u64 {
    let unix = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(unix.as_millis()).unwrap_or(u64::MAX)
}

/// A valid config, what is questionable about it, and what it would be with ports as one would expect them.
fn read(path: &Path) -> Result<(Config, Vec<carrack_config::Warning>, Snapshot), Fail> {
    let checked = Config::from_file(path).and_then(|(config, warnings)| {
        let compiled = carrack_config::compile(&config, &PortFacts::assumed(&config), None)?;
        Ok((config, warnings, compiled.snapshot))
    });
    let (config, warnings, snapshot) = checked.map_err(|errors| {
        let _ = crate::check::print_diagnostics(&errors);
        Fail::Said(2)
    })?;
    // Before anything of logging runs, which may have processors of its own.
    carrack_runtime::refuse_missing_cpus(&config).map_err(start_failure)?;
    for warning in &warnings {
        warn!("{}:{}: {}", warning.file, warning.line, warning.message);
    }
    Ok((config, warnings, snapshot))
}

fn start_failure(error: StartError) -> Fail {
    match error {
        StartError::Config(errors) => {
            let _ = crate::check::print_diagnostics(&errors);
            Fail::Said(2)
        }
        StartError::Failed(_) | StartError::Ended => Fail::Operation(Failure::internal(error.to_string())),
    }
}

fn server_options(config: &Config, socket: Option<&Path>) -> ServerOptions {
    let api = &config.api;
    ServerOptions {
        socket: socket.unwrap_or(&api.socket).to_owned(),
        tcp: api.tcp.as_ref().map(|tcp| TcpOptions {
            listen: tcp.listen,
            token_file: tcp.token_file.clone(),
            tls_cert: tcp.tls_cert.clone(),
            tls_key: tcp.tls_key.clone(),
        }),
    }
}

fn log_to_stderr(level: LogLevel) {
    let level = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(level)
        .with_target(level >= LevelFilter::DEBUG)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .init();
}
