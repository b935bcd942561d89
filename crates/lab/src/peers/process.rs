//! A stock router's process, its log and its directory.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

use crate::{drill::time::now, netns::output, wait};

static NEXT: AtomicU32 = AtomicU32::new(0);
/// Lines of a log that are kept: the first ones.
const LINES: usize = 1 << 17;

/// A directory of a router's own, removed with it.
#[derive(Debug)]
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new(kind: &str) -> Result<Self> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("holdfast-stock-{kind}-{}-{number}", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn write(&self, name: &str, mode: u32, text: &str) -> Result<PathBuf> {
        let path = self.path(name);
        fs::write(&path, text)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
        Ok(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A line of a log, and when it came, in microseconds since 1970.
pub type Line = (u64, String);

/// What a program writes. Not all say when, or not exactly enough: so the time is when a line came.
#[derive(Clone, Debug, Default)]
struct Log(Arc<Mutex<Vec<Line>>>);

impl Log {
    fn read(&self, from: impl std::io::Read + Send + 'static) -> Result<()> {
        let log = self.clone();
        std::thread::Builder::new().name("log".into()).spawn(move || {
            for line in BufReader::new(from).lines().map_while(Result::ok) {
                let mut lines = log.0.lock().unwrap_or_else(PoisonError::into_inner);
                if lines.len() < LINES {
                    lines.push((now(), line));
                }
            }
        })?;
        Ok(())
    }

    fn lines(&self) -> Vec<Line> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A process in the foreground, ended in order when dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    log: Log,
}

impl Process {
    pub(crate) fn start(mut command: Command) -> Result<Self> {
        Self::start_behind(&mut command, Log::default())
    }

    fn start_behind(command: &mut Command, log: Log) -> Result<Self> {
        let (reader, writer) = std::io::pipe()?;
        let command = command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
        let child = command.spawn().with_context(|| format!("starting {:?}", command.get_program()))?;
        log.read(reader)?;
        Ok(Self { child, log })
    }

    /// Starts it again after [`Self::kill`]; its log goes on.
    pub(crate) fn start_again(&mut self, mut command: Command) -> Result<()> {
        *self = Self::start_behind(&mut command, self.log.clone())?;
        Ok(())
    }

    /// Waits until a command of its control program succeeds.
    pub(crate) fn until_answers(&self, mut ask: impl FnMut() -> Result<String>) -> Result<()> {
        let answered = wait::until("its control program", Duration::from_secs(20), || {
            ask().map_err(|error| error.to_string())
        });
        answered.map(drop).with_context(|| self.text())
    }

    /// All that it has written.
    pub(crate) fn lines(&self) -> Vec<Line> {
        self.log.lines()
    }

    /// The same as text.
    pub(crate) fn text(&self) -> String {
        self.lines().into_iter().map(|(_, line)| line + "\n").collect()
    }

    /// kill -9.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        // `ip netns exec` replaces itself with the program.
        if let Some(pid) = Pid::from_raw(self.child.id() as i32) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let ended = wait::until("the end", Duration::from_secs(5), || {
            self.child.try_wait().ok().flatten().ok_or_else(String::new)
        });
        if ended.is_err() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// A command in a host, to its end.
pub(super) fn inside(host: &str, program: &Path, args: &[&str]) -> Result<String> {
    output(Command::new("ip").args(["netns", "exec", host]).arg(program).args(args))
}
