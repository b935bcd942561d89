//! Stock routers as peers: BIRD, FRR, GoBGP and OpenBGPD from Debian, in the foreground, in a host of their own.

mod gobgp;
mod openbgpd;
pub(crate) mod process;

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::{
    netns::{Namespace, output},
    wait,
};

pub use gobgp::GoBgp;
pub use openbgpd::OpenBgpd;
pub use process::Line;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// Where the programs of stock routers are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Programs {
    /// This machine's packages.
    Machine,
    /// The directory that `scripts/current-peers` has made.
    Tree(PathBuf),
}

impl Programs {
    /// This machine's packages and, where `HOLDFAST_PEERS` names what `scripts/current-peers` has made, those.
    pub fn all() -> impl Iterator<Item = Self> {
        let directory = std::env::var_os("HOLDFAST_PEERS").filter(|directory| !directory.is_empty());
        std::iter::once(Self::Machine).chain(directory.map(|directory| Self::Tree(directory.into())))
    }

    /// A program: what to execute here, and its name in the tree.
    pub fn path(&self, here: &str, there: &str) -> PathBuf {
        match self {
            Self::Machine => PathBuf::from(here),
            Self::Tree(directory) => directory.join("bin").join(there),
        }
    }

    /// Name and version of a Debian package.
    ///
    /// # Errors
    /// It is not installed there.
    pub fn version(&self, package: &str) -> Result<String> {
        match self {
            Self::Machine => {
                let asked = ["-W", "-f", "${Version}", package];
                Ok(format!("{package} {}", output(Command::new("dpkg-query").args(asked))?))
            }
            Self::Tree(directory) => {
                let file = directory.join("versions");
                let versions = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
                let line = versions.lines().find(|line| line.split(' ').next() == Some(package));
                Ok(line.with_context(|| format!("{package} in {}", file.display()))?.to_owned())
            }
        }
    }
}

fn directory(kind: &str) -> Result<PathBuf> {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("holdfast-{kind}-{}-{number}", std::process::id()));
    fs::create_dir_all(&path)?;
    Ok(path)
}

/// BIRD.
#[derive(Debug)]
pub struct Bird {
    programs: Programs,
    child: Child,
    directory: PathBuf,
}

impl Bird {
    /// Starts `bird -f` with this configuration and waits for its control socket.
    pub fn start(host: &Namespace, configuration: &str) -> Result<Self> {
        Self::start_with(host, configuration, &[])
    }

    /// [`Self::start`] with files (name, text) that the configuration includes.
    pub fn start_with(host: &Namespace, configuration: &str, files: &[(&str, &str)]) -> Result<Self> {
        Self::start_of(Programs::Machine, host, configuration, files)
    }

    /// [`Self::start_with`], of these programs.
    pub fn start_of(
        programs: Programs,
        host: &Namespace,
        configuration: &str,
        files: &[(&str, &str)],
    ) -> Result<Self> {
        let directory = directory("bird")?;
        for (name, text) in files {
            fs::write(directory.join(name), text)?;
        }
        let log = directory.join("log");
        fs::write(directory.join("bird.conf"), format!("log {log:?} all;\n{configuration}"))?;
        let child = Self::spawn(&programs, host, &directory)?;
        let bird = Self { programs, child, directory };
        bird.wait_running()?;
        Ok(bird)
    }

    fn spawn(programs: &Programs, host: &Namespace, directory: &Path) -> Result<Child> {
        let mut command = host.command(programs.path("bird", "bird"));
        command.args(["-f", "-c"]).arg(directory.join("bird.conf")).arg("-s").arg(directory.join("ctl"));
        quiet(&mut command).spawn().context("starting bird (apt package bird2)")
    }

    fn wait_running(&self) -> Result<()> {
        let answers = || self.birdc("show status").map_err(|error| error.to_string());
        wait::until("bird", Duration::from_secs(10), answers).map(drop)
    }

    /// Starts it again after [`Self::kill`], with the same configuration.
    pub fn start_again(&mut self, host: &Namespace) -> Result<()> {
        self.child = Self::spawn(&self.programs, host, &self.directory)?;
        self.wait_running()
    }

    /// Writes an included file anew and has the configuration read again.
    pub fn reconfigure(&self, name: &str, text: &str) -> Result<()> {
        fs::write(self.directory.join(name), text)?;
        let said = self.birdc("configure")?;
        ensure!(said.contains("Reconfigur"), "{said}");
        Ok(())
    }

    /// One command of birdc.
    pub fn birdc(&self, command: &str) -> Result<String> {
        let birdc = self.programs.path("birdc", "birdc");
        output(Command::new(birdc).arg("-s").arg(self.directory.join("ctl")).args(command.split(' ')))
    }

    /// Has its session `holdfast` ask for all routes again (RFC 2918).
    pub fn ask_for_refresh(&self) -> Result<()> {
        let command = match self.programs {
            Programs::Machine => "reload in holdfast",
            Programs::Tree(_) => "reload bgp in holdfast",
        };
        self.birdc(command).map(drop)
    }

    /// Stops it as a debugger would: its connections stay, and it says nothing more on them.
    pub fn pause(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// Lets it go on after [`Self::pause`].
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    /// kill -9.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        // `ip netns exec` replaces itself with the program.
        let pid = Pid::from_raw(self.child.id() as i32).context("pid of bird")?;
        Ok(kill_process(pid, signal)?)
    }

    /// Number of routes that the selection (arguments of `show route … count`) finds.
    pub fn count(&self, selection: &str) -> Result<u64> {
        let text = self.birdc(&format!("show route {selection} count"))?;
        let mut total = 0;
        for line in text.lines().filter(|line| line.contains(" of ")) {
            total += line.split(' ').next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
        }
        Ok(total)
    }

    /// Its log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    /// How many sessions its protocol `holdfast` has had, of which the last is there; with `debug { events }`. When that came
    /// up, BIRD computes from two clocks, and says something else once one of them is set right.
    pub fn sessions(&self) -> Result<usize> {
        let text = self.birdc("show protocols holdfast")?;
        ensure!(text.contains("Established"), "{text}");
        Ok(self.log().lines().filter(|line| line.contains("BGP session established")).count())
    }
}

impl Drop for Bird {
    fn drop(&mut self) {
        end(&mut self.child, &self.directory);
    }
}

/// FRR's bgpd: alone, or with the zebra that knows interfaces, routes and router advertisements.
#[derive(Debug)]
pub struct Frr {
    programs: Programs,
    child: Child,
    zebra: Option<Child>,
    others: Vec<Child>,
    directory: PathBuf,
}

impl Frr {
    /// Starts bgpd with this configuration and waits for its vty.
    pub fn start(host: &Namespace, configuration: &str) -> Result<Self> {
        Self::start_of(Programs::Machine, host, configuration)
    }

    /// [`Self::start`], of these programs.
    pub fn start_of(programs: Programs, host: &Namespace, configuration: &str) -> Result<Self> {
        Self::start_in(programs, host, directory("frr")?, configuration, None)
    }

    /// The same with a zebra beside it.
    pub fn start_with_zebra(programs: Programs, host: &Namespace, configuration: &str) -> Result<Self> {
        let directory = directory("frr")?;
        fs::write(directory.join("zebra.conf"), "")?;
        // It becomes the user `frr`, and makes its sockets there.
        fs::set_permissions(&directory, Permissions::from_mode(0o777))?;
        let mut command = host.command(programs.path("/usr/lib/frr/zebra", "zebra"));
        command.arg("-f").arg(directory.join("zebra.conf")).arg("-i").arg(directory.join("zebra.pid"));
        command.arg("-z").arg(zserv(&directory)).arg("--vty_socket").arg(&directory).args(["-P", "0"]);
        let mut zebra = quiet(&mut command).spawn().context("starting zebra (apt package frr)")?;
        let socket = zserv(&directory);
        let answers = || if socket.exists() { Ok(()) } else { Err("no socket".to_owned()) };
        if let Err(error) = wait::until("zebra", Duration::from_secs(15), answers) {
            end(&mut zebra, &directory);
            return Err(error);
        }
        Self::start_in(programs, host, directory, configuration, Some(zebra))
    }

    fn start_in(
        programs: Programs,
        host: &Namespace,
        directory: PathBuf,
        configuration: &str,
        zebra: Option<Child>,
    ) -> Result<Self> {
        let log = directory.join("log");
        let configuration = format!("frr defaults traditional\nlog file {}\n{configuration}", log.display());
        fs::write(directory.join("bgpd.conf"), configuration)?;
        let child = Self::spawn(&programs, host, &directory, zebra.is_some())?;
        let frr = Self { programs, child, zebra, others: Vec::new(), directory };
        frr.wait_running()?;
        Ok(frr)
    }

    /// Starts others of its daemons (name, configuration) beside those that run, with a zebra.
    pub fn add(&mut self, host: &Namespace, daemons: &[(&str, &str)]) -> Result<()> {
        // Since FRR 10 they are configured by mgmtd, and read no files.
        let with_files = self.programs == Programs::Machine;
        if !with_files {
            self.add_daemon(host, "mgmtd", None)?;
        }
        let mut all = String::new();
        for (daemon, configuration) in daemons {
            self.add_daemon(host, daemon, Some(*configuration).filter(|_| with_files))?;
            all += configuration;
        }
        if !with_files {
            let file = self.directory.join("all.conf");
            fs::write(&file, all)?;
            let mut vtysh = Command::new(self.programs.path("vtysh", "vtysh"));
            output(vtysh.arg("--vty_socket").arg(&self.directory).arg("-f").arg(file))?;
        }
        Ok(())
    }

    fn add_daemon(&mut self, host: &Namespace, daemon: &str, configuration: Option<&str>) -> Result<()> {
        let mut command = host.command(self.programs.path(&format!("/usr/lib/frr/{daemon}"), daemon));
        command.arg("--vty_socket").arg(&self.directory).args(["-P", "0"]);
        command.arg("-i").arg(self.directory.join(format!("{daemon}.pid")));
        if daemon != "mgmtd" {
            command.arg("-z").arg(zserv(&self.directory));
        }
        if daemon == "bfdd" && self.programs == Programs::Machine {
            // Otherwise all of a machine would share it; FRR 10 has none.
            command.arg("--bfdctl").arg(self.directory.join("bfdd.sock"));
        }
        if let Some(configuration) = configuration {
            let file = self.directory.join(format!("{daemon}.conf"));
            fs::write(&file, configuration)?;
            command.arg("-f").arg(file);
        }
        self.others.push(quiet(&mut command).spawn().with_context(|| format!("starting {daemon}"))?);
        let vty = self.directory.join(format!("{daemon}.vty"));
        let answers = || if vty.exists() { Ok(()) } else { Err("no socket".to_owned()) };
        wait::until(daemon, Duration::from_secs(15), answers)
    }

    fn spawn(programs: &Programs, host: &Namespace, directory: &Path, zebra: bool) -> Result<Child> {
        let mut command = host.command(programs.path("/usr/lib/frr/bgpd", "bgpd"));
        command.arg("-f").arg(directory.join("bgpd.conf")).arg("-i").arg(directory.join("pid"));
        command.arg("--vty_socket").arg(directory).args(["-S", "-P", "0"]);
        match zebra {
            true => command.arg("-z").arg(zserv(directory)),
            false => command.args(["-Z", "-n"]),
        };
        quiet(&mut command).spawn().context("starting bgpd (apt package frr)")
    }

    fn wait_running(&self) -> Result<()> {
        let answers = || self.vtysh("show version").map_err(|error| error.to_string());
        wait::until("frr", Duration::from_secs(15), answers).map(drop)
    }

    /// Ends it without a word, as `kill -9` does.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Stops it as a debugger would: its connections stay, and it says nothing more on them.
    pub fn pause(&self) -> Result<()> {
        Ok(kill_process(Pid::from_raw(self.child.id() as i32).context("pid of bgpd")?, Signal::STOP)?)
    }

    /// Lets it go on after [`Self::pause`].
    pub fn resume(&self) -> Result<()> {
        Ok(kill_process(Pid::from_raw(self.child.id() as i32).context("pid of bgpd")?, Signal::CONT)?)
    }

    /// Starts it again after [`Self::kill`], with the same configuration.
    pub fn start_again(&mut self, host: &Namespace) -> Result<()> {
        self.child = Self::spawn(&self.programs, host, &self.directory, self.zebra.is_some())?;
        self.wait_running()
    }

    /// One command of vtysh.
    pub fn vtysh(&self, command: &str) -> Result<String> {
        self.vtysh_all(&[command])
    }

    /// Commands of vtysh in one go: what one enters, the next is in.
    pub fn vtysh_all(&self, commands: &[&str]) -> Result<String> {
        let mut vtysh = Command::new(self.programs.path("vtysh", "vtysh"));
        vtysh.arg("--vty_socket").arg(&self.directory).args(["-d", "bgpd"]);
        output(vtysh.args(commands.iter().flat_map(|command| ["-c", command])))
    }

    /// Commands of another of its daemons in one go: what one enters, the next is in.
    pub fn configure(&self, daemon: &str, commands: &[&str]) -> Result<String> {
        let mut vtysh = Command::new(self.programs.path("vtysh", "vtysh"));
        vtysh.arg("--vty_socket").arg(&self.directory).args(["-d", daemon]);
        output(vtysh.args(commands.iter().flat_map(|command| ["-c", command])))
    }

    /// What another of its daemons answers.
    pub fn ask(&self, daemon: &str, command: &str) -> Result<String> {
        let mut vtysh = Command::new(self.programs.path("vtysh", "vtysh"));
        output(vtysh.arg("--vty_socket").arg(&self.directory).args(["-d", daemon, "-c", command]))
    }

    /// Its log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }
}

impl Drop for Frr {
    fn drop(&mut self) {
        for other in self.others.iter_mut().chain(&mut self.zebra) {
            end(other, &self.directory);
        }
        end(&mut self.child, &self.directory);
    }
}

/// Where zebra listens for bgpd.
fn zserv(directory: &Path) -> PathBuf {
    directory.join("zserv.api")
}

fn quiet(command: &mut Command) -> &mut Command {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null())
}

fn end(child: &mut Child, directory: &Path) {
    let _ = child.kill();
    let _ = child.wait();
    let _ = fs::remove_dir_all(directory);
}
