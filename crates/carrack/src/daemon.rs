//! `carrack run`: configuration, threads, management, signals.

mod backend;
mod packet_line;
mod rows;
mod summary;
mod translation;

use std::path::Path;
use std::sync::Arc;

use carrack_api::Failure;
use carrack_api::server::{Server, ServerOptions, TcpOptions};
use carrack_base::thread::Thread;
use carrack_config::{Config, PortFacts};
use carrack_natlog::Service;
use carrack_natlog::context::Context;
use carrack_pipeline::snapshot::Snapshot;
use carrack_runtime::{EndReason, Handle, RunOptions, Runtime, StartError};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tracing::{error, info, warn};
use tracing_subscriber::filter::LevelFilter;

use crate::cli::{LogLevel, RunArgs};
use crate::fail::{Fail, Outcome};
use backend::Daemon;

pub fn run(args: &RunArgs, socket: Option<&Path>) -> Outcome {
    log_to_stderr(args.log);
    // Signals are taken before anything is touched: an early SIGTERM still ends in good order.
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP])
        .map_err(|e| Failure::internal(format!("cannot take signals: {e}")))?;
    let (config, warnings, snapshot) = read(&args.config)?;
    let options = server_options(&config, socket);
    let system = config.system.name.clone();
    let devices = config.devices().map(|(port, spec)| (port.name.value.clone(), spec.to_string())).collect();
    let run = RunOptions { verbose_dpdk: args.log >= LogLevel::Debug, ..RunOptions::default() };
    let log =
        Service::start(&config, Context::of(&config, &snapshot), unix_ms()).map_err(Failure::internal)?;
    let sink = Box::new(log.clone());
    let runtime =
        Runtime::start_config(&args.config, config, warnings, run, Some(sink)).map_err(start_failure)?;
    let handle = runtime.handle();
    let daemon = Arc::new(Daemon::new(handle.clone(), log, system, devices));
    let server = Server::start(daemon.clone(), &options)?;
    info!("managed at {}", options.socket.display());
    if let Some(address) = server.tcp_address() {
        info!("managed at https://{address}, with the token");
    }
    let end = serve_signals(signals, &daemon, &runtime, handle);
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
        StartError::Failed(why) => Fail::Operation(Failure::internal(why)),
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

/// Obeys signals on a thread of its own until the daemon ends, for whatever reason.
fn serve_signals(mut signals: Signals, daemon: &Arc<Daemon>, runtime: &Runtime, handle: Handle) -> EndReason {
    let closer = signals.handle();
    let daemon = daemon.clone();
    let obey = std::thread::Builder::new().name(Thread::Signals.name()).spawn(move || {
        for signal in &mut signals {
            if signal == SIGHUP {
                reload(&daemon);
            } else {
                handle.shutdown();
            }
        }
    });
    let end = match obey {
        Ok(thread) => {
            let end = runtime.wait();
            closer.close();
            let _ = thread.join();
            end
        }
        Err(error) => EndReason::Failed(format!("cannot start a thread for signals: {error}")),
    };
    closer.close();
    end
}

fn reload(daemon: &Daemon) {
    use carrack_api::Backend;
    match daemon.reload() {
        Ok(report) => {
            for message in &report.messages {
                warn!("{}", message.trim_end());
            }
            for c in &report.changes {
                info!("{}: {} -> {} ({})", c.path, c.from, c.to, c.effect);
            }
            if report.applied {
                info!("reloaded: {} changes, generation {}", report.changes.len(), report.generation);
            } else {
                error!("reload refused: nothing changed, generation {} goes on", report.generation);
            }
        }
        Err(failure) => error!("reload failed: {failure}"),
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
