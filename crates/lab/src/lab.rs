//! A lab from up to down.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::command::{self, Finished, Terms, run, run_on, tail};
use crate::links;
use crate::needs;
use crate::plan::{self, Ns};
use crate::process::{self, Identity};
use crate::router::{self, Router};
use crate::servers;
use crate::state::{self, State};

/// How long a server or the router may take to become ready.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// How long a program gets to end by itself when the lab goes down. The daemon restores its interfaces in that time.
const GRACE: Duration = Duration::from_secs(3);

/// What to bring up.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of the lab: 1 to 24 of `a-z`, `0-9`, `-`. Labs of different names coexist.
    pub name: String,
    /// What routes.
    pub router: Router,
}

/// A running demonstration network. Dropping it takes it down, unless [`Lab::keep`] was called.
pub struct Lab {
    state: State,
    router: Router,
    dir: PathBuf,
    children: Vec<(Identity, Child)>,
    down: bool,
}

impl Lab {
    /// Creates namespaces and links, starts the servers and the router, and waits until all answer.
    ///
    /// Clears what a killed lab of the same name left. Fails, leaving nothing, when the machine lacks something, the
    /// name is in use, or anything does not become ready in 60 s; the error then holds the end of its log.
    pub fn up(options: Options) -> Result<Lab> {
        let name = &options.name;
        if !plan::valid_name(name) {
            bail!("`{name}` cannot name a lab: use 1 to 24 of a-z, 0-9 and -");
        }
        if let Some(missing) = needs::missing() {
            bail!(missing);
        }
        match State::load(name) {
            Some(state) if state.in_use() => bail!(
                "lab `{name}` is already up: take it down with `carrack lab down --name {name}`, or choose another --name"
            ),
            _ => clear(name)?,
        }
        let owner = Identity::of(std::process::id() as i32, "carrack lab")
            .context("cannot read /proc/self/stat: is /proc mounted?")?;
        let state = State {
            name: name.clone(),
            owner,
            kept: false,
            router: options.router.label(),
            processes: Vec::new(),
        };
        State::claim(&state)?;
        let mut lab = Lab {
            dir: state::directory(name),
            state,
            router: options.router,
            children: Vec::new(),
            down: false,
        };
        // On any error `lab` is dropped, which takes down what exists by then.
        lab.build()?;
        Ok(lab)
    }

    /// Takes a lab down by name: one that is kept, or what a killed one left. Says whether there was anything.
    pub fn down_by_name(name: &str) -> Result<bool> {
        let existed = State::load(name).is_some()
            || !links::existing(name).is_empty()
            || state::directory(name).exists();
        clear(name)?;
        Ok(existed)
    }

    /// Names of all labs, with the router's kind and whether they are in use.
    pub fn list() -> Vec<(String, String, bool)> {
        State::names()
            .into_iter()
            .filter_map(|name| State::load(&name))
            .map(|state| {
                let in_use = state.in_use();
                (state.name, state.router, in_use)
            })
            .collect()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.state.name
    }

    /// Its router.
    pub fn router(&self) -> &Router {
        &self.router
    }

    /// Where config, logs and served files are.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Runs a program in a namespace to its end, for at most `limit`.
    pub fn exec(&self, ns: Ns, argv: &[&str], limit: Duration) -> Result<Finished> {
        run(&in_namespace(self.name(), ns, argv), limit, None)
    }

    /// The same with standard input.
    pub fn exec_with_input(&self, ns: Ns, argv: &[&str], input: &[u8], limit: Duration) -> Result<Finished> {
        run(&in_namespace(self.name(), ns, argv), limit, Some(input))
    }

    /// Runs a program that sends `input` and then listens without end: it is ended, successfully, once its output has
    /// `wanted` bytes or, when `wanted` is 0, a whole line.
    pub fn exec_until_answered(
        &self,
        ns: Ns,
        argv: &[&str],
        input: &[u8],
        wanted: usize,
        limit: Duration,
    ) -> Result<Finished> {
        let enough = |output: &[u8], wanted: usize| {
            if wanted == 0 { output.contains(&b'\n') } else { output.len() >= wanted }
        };
        let terms = Terms { limit, stdin: Some(input), enough: Some(enough), wanted };
        run_on(&in_namespace(self.name(), ns, argv), &terms)
    }

    /// Starts a program in a namespace that stays up until the lab goes down or [`Lab::stop`] is called; its output
    /// goes to `NAME.log` in [`Lab::dir`].
    pub fn start(&mut self, ns: Ns, what: &str, argv: &[&str]) -> Result<()> {
        let argv = in_namespace(self.name(), ns, argv);
        let (child, identity) = process::start(&argv, &self.log_file(what), what)?;
        self.state.processes.push(identity.clone());
        self.children.push((identity, child));
        self.state.save()
    }

    /// Ends a program started under this name and waits for it. Does nothing when it has ended.
    pub fn stop(&mut self, what: &str) {
        self.finish(what, Duration::from_secs(10), true);
    }

    /// Kills a program started under this name without giving it a chance to tidy up.
    pub fn kill(&mut self, what: &str) {
        self.finish(what, Duration::ZERO, false);
    }

    /// Waits for a program started under this name to end by itself; `false` when it did not within `limit`.
    pub fn wait(&mut self, what: &str, limit: Duration) -> bool {
        let started = Instant::now();
        while started.elapsed() < limit && !command::interrupted() {
            if !self.running(what) {
                return true;
            }
            thread::sleep(Duration::from_millis(5));
        }
        false
    }

    /// Whether a program started under this name runs.
    pub fn running(&self, what: &str) -> bool {
        self.children.iter().any(|(identity, _)| identity.what == what && identity.alive())
    }

    /// What a server or the router has printed so far.
    pub fn log(&self, what: &str) -> String {
        fs::read_to_string(self.log_file(what)).unwrap_or_default()
    }

    /// Runs this lab's daemon as a client: `carrack ARGS… --socket SOCKET`. An error for other routers.
    pub fn carrack(&self, args: &[&str], limit: Duration) -> Result<Finished> {
        let Router::Carrack { binary, .. } = &self.router else {
            bail!("the router is {}, not carrack", self.router.label());
        };
        let mut argv = vec![binary.display().to_string()];
        argv.extend(args.iter().map(|word| (*word).to_owned()));
        argv.push("--socket".to_owned());
        argv.push(router::socket(&self.dir).display().to_string());
        run(&argv, limit, None)
    }

    /// Starts the router again after [`Lab::stop`] or [`Lab::kill`] of `router`, and waits until it forwards.
    pub fn start_router(&mut self) -> Result<()> {
        match self.router.clone() {
            Router::LinuxNft => router::start_nft(&Ns::Carrack.full_name(self.name()))?,
            Router::Carrack { binary, config, .. } => {
                router::write_config(&self.dir, &config)?;
                let (binary, config) =
                    (binary.display().to_string(), router::config_file(&self.dir).display().to_string());
                self.start(Ns::Carrack, "router", &[&binary, "run", "-c", &config])?;
            }
        }
        self.await_router()
    }

    /// Replaces the daemon's config file, for `carrack reload` or the next [`Lab::start_router`].
    pub fn set_config(&mut self, text: &str) -> Result<()> {
        if let Router::Carrack { config, .. } = &mut self.router {
            *config = text.to_owned();
        }
        router::write_config(&self.dir, text)
    }

    /// Leaves the lab up when this value goes.
    pub fn keep(mut self) -> Result<()> {
        self.state.kept = true;
        self.state.save()?;
        self.down = true;
        Ok(())
    }

    /// Takes everything down and checks that nothing is left: no namespace, no process, no file.
    pub fn down(mut self) -> Result<()> {
        self.take_down()?;
        let left = self.left_over();
        if left.is_empty() { Ok(()) } else { bail!("left behind: {}", left.join(", ")) }
    }

    fn build(&mut self) -> Result<()> {
        fs::create_dir_all(&self.dir).with_context(|| format!("cannot create {}", self.dir.display()))?;
        links::create(self.name())?;
        servers::write_files(&self.dir)?;
        let servers = servers::all(&self.dir);
        for server in &servers {
            let argv: Vec<&str> = server.argv.iter().map(String::as_str).collect();
            self.start(server.ns, server.what, &argv)?;
        }
        for server in &servers {
            self.await_server(server)?;
        }
        self.start_router()
    }

    fn await_server(&self, server: &servers::Server) -> Result<()> {
        let (kind, port) = server.listens;
        let option = if kind == "tcp" { "-Hltn" } else { "-Hlun" };
        self.await_ready(server.what, || {
            let sockets = self.exec(server.ns, &["ss", option], READY_LIMIT)?.stdout;
            let wanted = format!(":{port}");
            Ok(sockets.split_whitespace().any(|word| word.ends_with(&wanted)))
        })
    }

    fn await_router(&self) -> Result<()> {
        self.await_ready("router", || {
            if matches!(self.router, Router::Carrack { .. }) && !router::socket(&self.dir).exists() {
                return Ok(false);
            }
            let ping = ["ping", "-n", "-c", "1", "-W", "1", plan::SERVER];
            Ok(self.exec(Ns::Sub1, &ping, READY_LIMIT)?.ok())
        })
    }

    /// Asks `ready` again and again until it says yes, the program has ended, or the time is over.
    fn await_ready(&self, what: &str, ready: impl Fn() -> Result<bool>) -> Result<()> {
        let started = Instant::now();
        let recorded = self.children.iter().any(|(identity, _)| identity.what == what);
        loop {
            if ready()? {
                return Ok(());
            }
            let why = if recorded && !self.running(what) {
                "ended instead of getting ready"
            } else if started.elapsed() > READY_LIMIT {
                "did not get ready in 60 s"
            } else if command::interrupted() {
                bail!("interrupted");
            } else {
                thread::sleep(Duration::from_millis(20));
                continue;
            };
            let log = self.log(what);
            bail!("{what} {why}; the end of its output:\n{}", tail(&log, 25).join("\n"));
        }
    }

    fn finish(&mut self, what: &str, grace: Duration, ask: bool) {
        for (identity, child) in &mut self.children {
            if identity.what == what {
                if !ask {
                    process::kill_stranger(identity.pid);
                }
                process::end(identity, Some(child), grace);
                let _ = child.wait();
            }
        }
        self.children.retain(|(identity, _)| identity.what != what);
        self.state.processes.retain(|identity| identity.what != what);
        // Only the record of a process that is gone would be stale, and its start time tells.
        let _ = self.state.save();
    }

    fn take_down(&mut self) -> Result<()> {
        if self.down {
            return Ok(());
        }
        self.down = true;
        command::forget_interrupts();
        // The router first, while its interfaces still exist to be restored.
        for (identity, child) in self.children.iter_mut().rev() {
            process::end(identity, Some(child), GRACE);
            let _ = child.wait();
        }
        clear(self.name())
    }

    fn left_over(&self) -> Vec<String> {
        let mut left = links::existing(self.name());
        left.extend(
            self.state
                .processes
                .iter()
                .filter(|identity| identity.alive())
                .map(|identity| format!("{} (process {})", identity.what, identity.pid)),
        );
        if self.dir.exists() {
            left.push(self.dir.display().to_string());
        }
        left
    }

    fn log_file(&self, what: &str) -> PathBuf {
        self.dir.join(format!("{what}.log"))
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if let Err(error) = self.take_down() {
            eprintln!("carrack lab: {error:#}");
        }
    }
}

/// The words that run `argv` in a namespace.
pub(crate) fn in_namespace(lab: &str, ns: Ns, argv: &[&str]) -> Vec<String> {
    let mut words = ["ip", "netns", "exec"].map(str::to_owned).to_vec();
    words.push(ns.full_name(lab));
    words.extend(argv.iter().map(|word| (*word).to_owned()));
    words
}

/// Ends and removes all that the state file and the namespaces themselves tell of.
fn clear(name: &str) -> Result<()> {
    if let Some(state) = State::load(name) {
        for process in state.processes.iter().rev() {
            process::end(process, None, GRACE);
        }
    }
    for namespace in links::existing(name) {
        // Also what a person started there by hand: it would keep the namespace alive without a name.
        for pid in links::pids(&namespace) {
            process::kill_stranger(pid);
        }
    }
    links::remove(name)?;
    let dir = state::directory(name);
    if dir.exists() {
        fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))?;
    }
    State::remove(name);
    Ok(())
}
