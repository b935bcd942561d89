//! Holdfast under test: started as an operator would, asked as an operator would.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::{
    docker::{Container, Image},
    netns::{Namespace, output},
    wait,
};

/// A running router: `holdfast run` in a host.
#[derive(Debug)]
pub struct Router {
    binary: PathBuf,
    keeper: Child,
    directory: PathBuf,
    host: String,
    container: Option<Container>,
}

/// Files by name.
pub type Files = BTreeMap<String, String>;

fn write(directory: &Path, files: &Files) -> Result<()> {
    files.iter().try_for_each(|(name, contents)| Ok(fs::write(directory.join(name), contents)?))
}

/// Where the file of the lease is that several routers share; removed when dropped.
#[derive(Debug)]
pub struct LeaseDirectory(PathBuf);

impl LeaseDirectory {
    /// A directory with a name that no other one of this process has.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn new(name: &str) -> Result<Self> {
        let directory = std::env::temp_dir().join(format!("holdfast-lab-{}-{name}", std::process::id()));
        fs::create_dir_all(&directory)?;
        Ok(Self(directory))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for LeaseDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A directory with the configuration in it, and other files.
fn new_directory(configuration: &str, files: &Files) -> Result<PathBuf> {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let directory = std::env::temp_dir().join(format!("holdfast-lab-{}-{number}", std::process::id()));
    fs::create_dir_all(&directory)?;
    fs::write(directory.join("router.toml"), configuration)?;
    write(&directory, files)?;
    Ok(directory)
}

/// The `holdfast` binary: `HOLDFAST_BIN`, or the release build of this workspace.
pub fn binary() -> Result<PathBuf> {
    let path = match std::env::var_os("HOLDFAST_BIN") {
        Some(path) => PathBuf::from(path),
        None => target().join("release/holdfast"),
    };
    ensure!(path.exists(), "{} is not there: cargo build --release -p holdfast-holdfast", path.display());
    Ok(path)
}

fn target() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(path) => PathBuf::from(path),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"),
    }
}

/// Executes `holdfast run`, by a command that has nothing but the program so far. What it logs is behind what was logged there.
fn spawn(mut command: Command, directory: &Path, more: &[&str]) -> Result<Child> {
    let log = File::options().create(true).append(true).open(directory.join("log"))?;
    command.arg("run").arg("-c").arg(directory.join("router.toml"));
    command.arg("--runtime-dir").arg(directory).args(more);
    Ok(command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?)
}

impl Router {
    /// Writes the configuration, starts the router in `host`, waits until every process runs.
    pub fn start(host: &Namespace, configuration: &str) -> Result<Self> {
        Self::start_with(host, configuration, &[])
    }

    /// [`Self::start`] with variables added to its environment.
    pub fn start_with(host: &Namespace, configuration: &str, environment: &[(&str, &str)]) -> Result<Self> {
        Self::start_program(&binary()?, host, configuration, environment)
    }

    /// [`Self::start`] with files that the configuration names, in its directory.
    pub fn start_with_files(host: &Namespace, configuration: &str, files: &Files) -> Result<Self> {
        Self::start_as(&binary()?, host, configuration, &[], None, files)
    }

    /// [`Self::start`] as a user without any rights.
    pub fn start_without_rights(host: &Namespace, configuration: &str, user: u32) -> Result<Self> {
        Self::start_as(&binary()?, host, configuration, &[], Some(user), &Files::new())
    }

    /// [`Self::start_with`] for a router that is another program.
    pub fn start_program(
        binary: &Path,
        host: &Namespace,
        configuration: &str,
        environment: &[(&str, &str)],
    ) -> Result<Self> {
        Self::start_as(binary, host, configuration, environment, None, &Files::new())
    }

    fn start_as(
        binary: &Path,
        host: &Namespace,
        configuration: &str,
        environment: &[(&str, &str)],
        user: Option<u32>,
        files: &Files,
    ) -> Result<Self> {
        let router = Self::launch_as(binary, host, configuration, environment, user, files, &[])?;
        router.wait_running()?;
        Ok(router)
    }

    /// Starts `holdfast run` with more words, and waits for nothing.
    ///
    /// # Errors
    /// It cannot be executed.
    pub fn launch(
        binary: &Path,
        host: &Namespace,
        configuration: &str,
        files: &Files,
        more: &[&str],
    ) -> Result<Self> {
        Self::launch_as(binary, host, configuration, &[], None, files, more)
    }

    fn launch_as(
        binary: &Path,
        host: &Namespace,
        configuration: &str,
        environment: &[(&str, &str)],
        user: Option<u32>,
        files: &Files,
        more: &[&str],
    ) -> Result<Self> {
        let directory = new_directory(configuration, files)?;
        let file = directory.join("router.toml");
        let binary = binary.to_owned();
        let program = binary.to_str().context("path of the binary")?;
        let mut command = host.command(if user.is_some() { "setpriv" } else { program });
        if let Some(user) = user {
            std::os::unix::fs::chown(&directory, Some(user), Some(user))?;
            std::os::unix::fs::chown(&file, Some(user), Some(user))?;
            let [user, group] = ["reuid", "regid"].map(|id| format!("--{id}={user}"));
            command.args([&user, &group, "--clear-groups", "--bounding-set=-all", program]);
        }
        command.envs(environment.iter().copied());
        let keeper = spawn(command, &directory, more)?;
        Ok(Self { binary, keeper, directory, host: host.name().to_owned(), container: None })
    }

    /// Starts `holdfast run` with more words, in a container that has this directory, too. The router begins when its network
    /// has been made ready.
    ///
    /// # Errors
    /// There is no such container, or its network is not made ready.
    pub fn launch_contained(
        image: &Image,
        configuration: &str,
        files: &Files,
        shared: &Path,
        more: &[&str],
        make_ready: impl FnOnce(&Namespace) -> Result<()>,
    ) -> Result<(Self, Namespace)> {
        let directory = new_directory(configuration, files)?;
        let begin = directory.join("begin");
        let (command, container) = image.command(&begin, &[&directory, shared]);
        let keeper = spawn(command, &directory, more)?;
        let host = container.name().to_owned();
        let mut router = Self { binary: binary()?, keeper, directory, host, container: None };
        let host = container.host("contained")?;
        router.container = Some(container);
        make_ready(&host)?;
        fs::write(begin, "")?;
        Ok((router, host))
    }

    /// Waits until the router waits for sessions.
    ///
    /// # Errors
    /// It does not come so far.
    pub fn until_standby(&self) -> Result<()> {
        self.until_role("standby", Duration::from_secs(30))?;
        wait::until("all processes of the standby", Duration::from_secs(30), || {
            let shown = self.show(&["processes"]).map_err(|error| error.to_string())?;
            // A preheated one has sessions to begin with.
            let state = &shown["bgp"]["state"];
            if *state == "waiting" || *state == "running" { Ok(()) } else { Err(shown.to_string()) }
        })
        .with_context(|| self.log_tail())
    }

    /// Stops the keeper, and then processes, and keeps them so until [`Self::resume`].
    ///
    /// # Errors
    /// One of them is gone.
    pub fn pause(&self, pids: &[Pid]) -> Result<()> {
        kill_process(self.keeper_pid()?, Signal::STOP)?;
        let stop = |pid: &Pid| kill_process(*pid, Signal::STOP);
        pids.iter().try_for_each(stop).context("a process is gone")
    }

    /// Has a stopped process go on, behind the keeper. One that was killed for its silence is followed by
    /// another one already.
    ///
    /// # Errors
    /// The keeper is gone.
    pub fn resume(&self, pid: Pid) -> Result<()> {
        kill_process(self.keeper_pid()?, Signal::CONT)?;
        let _ = kill_process(pid, Signal::CONT);
        Ok(())
    }

    /// Waits until the router is this to its sessions.
    ///
    /// # Errors
    /// It does not come about.
    pub fn until_role(&self, role: &str, limit: Duration) -> Result<()> {
        wait::until(role, limit, || {
            let shown = self.cli(&["call", "replicator/replicator.v1/Show"]).map_err(|e| e.to_string())?;
            if shown.contains(&format!("role:txt={role}")) { Ok(()) } else { Err(shown) }
        })
        .with_context(|| self.log_tail())
    }

    /// Process ids of all its processes, the keeper among them.
    ///
    /// # Errors
    /// It does not say which these are.
    pub fn pids(&self) -> Result<Vec<Pid>> {
        let shown = self.show(&["processes"])?;
        let all = shown.as_object().context("processes")?.values();
        Ok(all.filter_map(|process| Pid::from_raw(process["pid"].as_i64()? as i32)).collect())
    }

    /// kill -9 of all its processes, the keeper first.
    ///
    /// # Errors
    /// It does not say which these are.
    pub fn die(&mut self) -> Result<()> {
        let all = self.pids()?;
        self.kill_all(&all)?;
        self.wait_gone()
    }

    /// Starts the router again that has died, in the same place, with the same configuration.
    ///
    /// # Errors
    /// It does not come up.
    pub fn begin_again(&mut self, host: &Namespace) -> Result<()> {
        let command = host.command(self.binary.to_str().context("path of the binary")?);
        self.keeper = spawn(command, &self.directory, &[])?;
        self.wait_running()
    }

    /// Another configuration, and other files beside it, by `holdfast reload`; what that says.
    pub fn reload_with_files(&self, configuration: &str, files: &Files) -> Result<String> {
        write(&self.directory, files)?;
        fs::write(self.configuration(), configuration)?;
        self.cli(&["reload"])
    }

    /// Waits until every process says it runs.
    pub fn wait_running(&self) -> Result<()> {
        wait::until("processes running", Duration::from_secs(30), || {
            let shown = self.show(&["processes"]).map_err(|e| e.to_string())?;
            let processes = shown.as_object().ok_or("no processes")?;
            let all = !processes.is_empty() && processes.values().all(|p| p["state"] == "running");
            if all { Ok(()) } else { Err(shown.to_string()) }
        })
        .with_context(|| self.log_tail())
    }

    /// `holdfast show ARGS --json`.
    pub fn show(&self, args: &[&str]) -> Result<Value> {
        let mut all = vec!["show"];
        all.extend(args);
        all.push("--json");
        let text = self.cli(&all)?;
        serde_json::from_str(&text).with_context(|| format!("no JSON: {}", &text[..text.len().min(300)]))
    }

    /// What it says of a peer, by name.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn neighbor(&self, name: &str) -> Result<Value> {
        let shown = self.show(&["bgp", "neighbors", name])?;
        let peer = shown.as_object().and_then(|all| all.values().next()).context("a peer")?;
        Ok(peer.clone())
    }

    /// Waits until what it says of a peer is as wanted.
    pub fn until_neighbor(
        &self,
        name: &str,
        limit: Duration,
        wanted: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        wait::until(name, limit, || {
            let shown = self.neighbor(name).map_err(|error| error.to_string())?;
            if wanted(&shown) { Ok(shown) } else { Err(shown.to_string()) }
        })
        .with_context(|| self.log_tail())
    }

    /// Waits until the session with a peer is up.
    pub fn until_established(&self, name: &str, limit: Duration) -> Result<Value> {
        self.until_neighbor(name, limit, |shown| shown["bgpState"] == "Established")
    }

    /// `holdfast ARGS` against this router.
    pub fn cli(&self, args: &[&str]) -> Result<String> {
        output(Command::new(&self.binary).args(args).env("HOLDFAST_RUNTIME_DIR", &self.directory))
    }

    /// Begins `holdfast configure` with these lines, and this one as the last. What comes of it, the child says.
    ///
    /// # Errors
    /// It cannot be executed.
    pub fn begin_commit(&self, lines: &str, commit: &str) -> Result<Child> {
        let script = self.directory.join("commit");
        fs::write(&script, format!("{lines}\n{commit}\n"))?;
        let mut command = Command::new(&self.binary);
        command.arg("configure").arg("-f").arg(script).env("HOLDFAST_RUNTIME_DIR", &self.directory);
        Ok(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?)
    }

    /// Process id of one of its processes; the keeper's is that of `holdfast run`.
    pub fn pid(&self, name: &str) -> Result<Pid> {
        let shown = self.show(&["processes"])?;
        let found = shown.get(name).with_context(|| format!("no process {name}"))?;
        let pid = found["pid"].as_i64().and_then(|pid| Pid::from_raw(pid as i32));
        pid.with_context(|| format!("{name} does not run: {found}"))
    }

    /// kill -9 of one process.
    pub fn kill(&self, name: &str) -> Result<()> {
        Ok(kill_process(self.pid(name)?, Signal::KILL)?)
    }

    /// Resident memory of one process in bytes (proportional set size).
    pub fn memory(&self, name: &str) -> Result<u64> {
        self.rollup(name, "Pss:")
    }

    /// The same with all that others have of it too, its program included: what a list of processes says.
    pub fn resident(&self, name: &str) -> Result<u64> {
        self.rollup(name, "Rss:")
    }

    /// That part of it which is the process's own alone: not the replication log, not the binary.
    pub fn heap(&self, name: &str) -> Result<u64> {
        self.rollup(name, "Pss_Anon:")
    }

    /// That part of it which is the process's own or shared by processes: the replication log, not the binary.
    pub fn kept(&self, name: &str) -> Result<u64> {
        Ok(self.heap(name)? + self.rollup(name, "Pss_Shmem:")?)
    }

    fn rollup(&self, name: &str, key: &'static str) -> Result<u64> {
        let path = format!("/proc/{}/smaps_rollup", self.pid(name)?.as_raw_nonzero());
        let text = fs::read_to_string(&path).with_context(|| path.clone())?;
        let line = text.lines().find_map(|line| line.strip_prefix(key)).context(key)?;
        Ok(line.trim().trim_end_matches(" kB").trim().parse::<u64>()? * 1024)
    }

    /// Processor time of one process so far, all its threads.
    pub fn cpu(&self, name: &str) -> Result<Duration> {
        let path = format!("/proc/{}/stat", self.pid(name)?.as_raw_nonzero());
        let text = fs::read_to_string(&path).with_context(|| path.clone())?;
        // Fields 14 and 15 of proc(5), counted behind the name, which may have spaces in it.
        let (_, fields) = text.rsplit_once(')').context("the name's end")?;
        let ticks: u64 =
            fields.split_whitespace().skip(11).take(2).filter_map(|n| n.parse::<u64>().ok()).sum();
        Ok(Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second()))
    }

    /// SIGTERM to the keeper, as systemd would; waits for the orderly end.
    pub fn stop(mut self) -> Result<()> {
        kill_process(self.keeper_pid()?, Signal::TERM)?;
        let status = wait::until("orderly stop", Duration::from_secs(60), || {
            self.keeper.try_wait().map_err(|e| e.to_string())?.ok_or_else(|| "still running".to_owned())
        })?;
        ensure!(status.success(), "holdfast run ended with {status}; {}", self.log_tail());
        Ok(())
    }

    /// kill -9 of the keeper, which takes the others with it, and then of these; of a container its first process.
    ///
    /// # Errors
    /// The keeper was gone before.
    pub fn kill_all(&mut self, others: &[Pid]) -> Result<()> {
        match &self.container {
            // Its processes have other numbers there.
            Some(container) => container.kill()?,
            None => {
                kill_process(self.keeper_pid()?, Signal::KILL)?;
                for pid in others {
                    // Most are gone by now.
                    let _ = kill_process(*pid, Signal::KILL);
                }
            }
        }
        Ok(())
    }

    /// Until what was killed is gone.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub fn wait_gone(&mut self) -> Result<()> {
        self.keeper.wait()?;
        Ok(())
    }

    fn keeper_pid(&self) -> Result<Pid> {
        // `ip netns exec` replaces itself with the program, so the child is the keeper.
        Pid::from_raw(self.keeper.id() as i32).context("pid of the keeper")
    }

    /// Everything it has logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    /// Its configuration file.
    pub fn configuration(&self) -> PathBuf {
        self.directory.join("router.toml")
    }

    /// The directory with its socket.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The last lines of its log, for error messages.
    pub fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<_> = log.lines().rev().take(30).collect();
        let tail: Vec<_> = lines.into_iter().rev().collect();
        format!("log of {}:\n{}", self.host, tail.join("\n"))
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.log_tail());
        }
        // All children of the keeper die with it; it is gone already after an orderly stop.
        if let (Ok(None), Ok(pid)) = (self.keeper.try_wait(), self.keeper_pid()) {
            let _ = kill_process(pid, Signal::KILL);
        }
        let _ = self.keeper.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}
