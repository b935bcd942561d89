//! A store: Redis from Debian, in a host of its own or in that of the caller.

pub mod sentinel;

use std::{
    fs,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use anyhow::{Context, Result};
use rustix::process::Pid;

use crate::{
    netns::{Namespace, output},
    wait,
};

/// The variable that names another program: Redis of another version, or Valkey.
pub const PROGRAM: &str = "HOLDFAST_REDIS";

/// The port on which it listens in a host of its own.
pub const PORT: u16 = 6379;

/// Sets the time of day of the program that it is loaded into.
const PRELOADED: &str = include_str!("redis/clock.c");
/// The file that says how wrong the clock goes.
const CLOCK: &str = "clock";

/// How long it may take to answer after its start.
const LIMIT: Duration = Duration::from_secs(20);

/// redis-server without files, on a socket in a directory of its own. Killed when dropped.
#[derive(Debug)]
pub struct Redis {
    child: Child,
    directory: PathBuf,
    host: Option<String>,
    options: Vec<String>,
    has_clock: bool,
}

static NEXT: AtomicU32 = AtomicU32::new(0);

impl Redis {
    /// Starts it, and waits until it takes connections. In a host it listens on [`PORT`] as well. `options` are such as
    /// `--maxmemory 10mb`, in words.
    pub fn start(host: Option<&Namespace>, options: &[&str]) -> Result<Self> {
        Self::start_as(host, options, false)
    }

    /// [`Self::start`] with a clock that can be set wrong.
    ///
    /// # Errors
    /// It does not run.
    pub fn start_with_clock(options: &[&str]) -> Result<Self> {
        Self::start_as(None, options, true)
    }

    fn start_as(host: Option<&Namespace>, options: &[&str], has_clock: bool) -> Result<Self> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("holdfast-redis-{}-{number}", std::process::id()));
        fs::create_dir_all(&directory)?;
        let host = host.map(|host| host.name().to_owned());
        let options: Vec<_> = options.iter().map(|option| (*option).to_owned()).collect();
        fs::write(directory.join(CLOCK), "+0")?;
        let child = spawn(host.as_deref(), &directory, &options, has_clock)?;
        let server = Self { child, directory, host, options, has_clock };
        server.ready()?;
        Ok(server)
    }

    fn ready(&self) -> Result<()> {
        wait::until("redis-server", LIMIT, || match UnixStream::connect(self.socket()) {
            Ok(_) => Ok(()),
            Err(error) => Err(format!("{error}; {}", self.log())),
        })
    }

    /// Where it listens.
    pub fn socket(&self) -> PathBuf {
        self.directory.join("socket")
    }

    /// A command of redis-cli, without logging in; what is said.
    ///
    /// # Errors
    /// redis-cli cannot be run.
    pub fn cli(&self, words: &[&str]) -> Result<String> {
        output(Command::new("redis-cli").arg("-s").arg(self.socket()).args(words))
    }

    /// kill -9, and another one that begins empty.
    pub fn restart(&mut self) -> Result<()> {
        self.kill()?;
        fs::remove_file(self.socket())?;
        self.child = spawn(self.host.as_deref(), &self.directory, &self.options, self.has_clock)?;
        self.ready()
    }

    /// Forgets what `SAVE` has written: the next one begins empty.
    ///
    /// # Errors
    /// There is nothing.
    pub fn forget_saved(&self) -> Result<()> {
        Ok(fs::remove_file(self.directory.join("dump.rdb"))?)
    }

    /// Its clock goes so many seconds wrong from now on: `+3600`, say. It was started with
    /// [`Self::start_with_clock`].
    ///
    /// # Errors
    /// It cannot be said to it.
    pub fn set_clock(&self, seconds: &str) -> Result<()> {
        Ok(fs::write(self.directory.join(CLOCK), seconds)?)
    }

    /// kill -9.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Its process: to stop it for a while, say.
    pub fn pid(&self) -> Result<Pid> {
        // `ip netns exec` replaces itself with the program.
        Pid::from_raw(self.child.id() as i32).context("pid of redis-server")
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }
}

fn spawn(host: Option<&str>, directory: &Path, options: &[String], has_clock: bool) -> Result<Child> {
    let program = std::env::var_os(PROGRAM).unwrap_or_else(|| "redis-server".into());
    let mut command = match host {
        Some(host) => {
            let mut command = Command::new("ip");
            command.args(["netns", "exec", host]).arg(&program);
            command.args(["--port", &PORT.to_string(), "--bind", "*", "--protected-mode", "no"]);
            command
        }
        None => {
            let mut command = Command::new(&program);
            command.args(["--port", "0"]);
            command
        }
    };
    if has_clock {
        let library = directory.join("clock.so");
        if !library.exists() {
            let source = directory.join("clock.c");
            fs::write(&source, PRELOADED)?;
            let mut compiler = Command::new("cc");
            output(compiler.args(["-O1", "-shared", "-fPIC", "-o"]).arg(&library).arg(&source))?;
        }
        command.env("LD_PRELOAD", library).env("HOLDFAST_CLOCK", directory.join(CLOCK));
    }
    let log = fs::File::create(directory.join("log"))?;
    command
        .arg("--unixsocket")
        .arg(directory.join("socket"))
        .arg("--dir")
        .arg(directory)
        .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
        .args(options)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    command.spawn().context("starting redis-server (apt package redis-server)")
}

impl Drop for Redis {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("log of redis-server:\n{}", self.log());
        }
        let _ = self.kill();
        let _ = fs::remove_dir_all(&self.directory);
    }
}
