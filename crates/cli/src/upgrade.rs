//! `holdfast upgrade`.

mod plan;

use std::{
    fs::File,
    io::Write,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use clap::Args;
use holdfast_api::manager::v1::{Empty, ManagerClient, Process, UpgradeProgress, UpgradeRequest};
use serde_json::json;

use crate::{
    Failure, Options,
    json::line,
    router::{self, OLD_TRANSPORT, Router, answer, answer_within},
    text::or_dash,
};

/// One process may take a minute, three attempts and the way back.
const STEP: Duration = Duration::from_secs(300);
/// The manager and the keeper take no longer to be back.
const LAST_STEP: Duration = Duration::from_secs(30);
/// Pause before the router is asked again.
const PAUSE: Duration = Duration::from_millis(20);

/// Replaces the running router's binary by another one, process by process, while sessions and routes stay: fea, rib,
/// transport, bgp, then the manager together with the keeper, whose process id stays. Where transport carries
/// sessions (TLS, QUIC), the old process stays beside the new one as `transport-old` until they end; there is one at
/// most. A build that cannot work beside the running one is refused before anything is touched; if a process does not
/// run with it, all go back. A process that runs the build already is left alone, so the command can be given again.
/// The file has to belong to root or to the router's user, and nobody else may have the right to write to it.
#[derive(Clone, Debug, Args)]
pub struct Upgrade {
    /// How to answer.
    #[command(flatten)]
    pub(crate) options: Options,
    /// The new binary; this program itself if left out.
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
    /// Only say what would be done, which sessions would end, and what stands against it.
    #[arg(long)]
    dry_run: bool,
    /// Let no process of an old build stay: sessions that one carries (TLS, QUIC) end, and come up anew.
    #[arg(long)]
    now: bool,
}

impl Upgrade {
    pub(crate) fn run(self, out: &mut dyn Write) -> Result<(), Failure> {
        let path = match self.binary {
            Some(path) => path,
            None => std::env::current_exe()?,
        };
        let opened = std::path::absolute(&path).and_then(|path| Ok((File::open(&path)?, path)));
        let (file, path) = opened.map_err(|error| Failure::Unreadable { file: path, error })?;
        let directory = &self.options.runtime_dir;
        if self.dry_run {
            return router::with(directory, async |router| {
                plan::show(&router, (file, &path), self.now, self.options.json, out).await
            });
        }
        let report = &mut Report { out, json: self.options.json };
        let mut asked = None;
        router::with(directory, async |router| {
            asked = ask(&router, (file, &path), self.now, report).await?;
            Ok(())
        })?;
        match asked {
            Some(build) => last_step(directory, &build, report),
            None => Ok(()),
        }
    }
}

/// Where the lines go.
struct Report<'a> {
    out: &'a mut dyn Write,
    json: bool,
}

impl Report<'_> {
    fn line(&mut self, progress: &UpgradeProgress) -> Result<(), Failure> {
        let UpgradeProgress { build, process, text, milliseconds, .. } = progress;
        if self.json {
            let value =
                json!({ "process": process, "build": build, "text": text, "milliseconds": milliseconds });
            line(self.out, &value)?;
        } else {
            let name = if process.is_empty() { "router" } else { process };
            match milliseconds {
                0 => writeln!(self.out, "{name:8} {text} ({build})")?,
                _ => writeln!(self.out, "{name:8} {text} ({build}, {milliseconds} ms)")?,
            }
        }
        // Somebody watches.
        Ok(self.out.flush()?)
    }
}

/// Has the manager do its part; the build, if the manager itself and the keeper are being replaced now.
async fn ask(
    router: &Router,
    (file, path): (File, &Path),
    now: bool,
    report: &mut Report<'_>,
) -> Result<Option<String>, Failure> {
    let manager: ManagerClient = router.client("manager").await?;
    let request = UpgradeRequest { path: path.as_os_str().as_bytes().to_vec(), dry_run: false, now };
    let mut progress = manager.upgrade(request, vec![file.into()]);
    while let Some(progress) = answer_within(STEP, progress.next()).await? {
        if progress.last {
            return Ok(Some(progress.build));
        }
        report.line(&progress)?;
    }
    Ok(None)
}

/// Waits until the next manager says that everything runs the build.
fn last_step(directory: &Path, build: &str, report: &mut Report<'_>) -> Result<(), Failure> {
    let begin = Instant::now();
    let mut waiting = vec!["manager", "keeper"];
    loop {
        let mut shown = Ok(Vec::new());
        let asked = router::with(directory, async |router| {
            shown = processes(&router).await;
            Ok(())
        });
        match asked.and(shown) {
            Ok(processes) => {
                for process in processes.iter().filter(|process| process.build == build) {
                    if let Some(at) = waiting.iter().position(|name| *name == process.name) {
                        let milliseconds = begin.elapsed().as_millis().try_into().unwrap_or(u64::MAX);
                        let (name, text) = (waiting.remove(at), "replaced".to_owned());
                        let (process, build) = (name.to_owned(), build.to_owned());
                        let progress =
                            UpgradeProgress { build, process, text, milliseconds, ..Default::default() };
                        report.line(&progress)?;
                    }
                }
                if processes.iter().all(|process| process.build == build && process.state == "running") {
                    return Ok(());
                }
                // The manager is new, and the keeper says what it is: it has not been replaced.
                let manager_is_new = !waiting.contains(&"manager");
                if begin.elapsed() > LAST_STEP || manager_is_new && waiting.contains(&"keeper") {
                    return Err(Failure::NotUpgraded(differing(&processes, build)));
                }
            }
            Err(failure) if begin.elapsed() > LAST_STEP => return Err(failure),
            // Between one manager and the next.
            Err(_) => {}
        }
        std::thread::sleep(PAUSE);
    }
}

/// Those that are to run.
async fn processes(router: &Router) -> Result<Vec<Process>, Failure> {
    let manager: ManagerClient = router.client("manager").await?;
    let mut processes = answer(manager.show_processes(Empty {})).await?.processes;
    // These stay as they are.
    processes.retain(|process| process.name != OLD_TRANSPORT && !process.described);
    Ok(processes)
}

fn differing(processes: &[Process], build: &str) -> String {
    let is_different = |process: &&Process| process.build != build || process.state != "running";
    let text =
        |process: &Process| format!("{} is {} with {}", process.name, process.state, or_dash(&process.build));
    processes.iter().filter(is_different).map(text).collect::<Vec<_>>().join(", ")
}
