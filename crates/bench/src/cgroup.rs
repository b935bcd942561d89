//! A control group of version 2 around a daemon: what all of its processes cost together.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};

/// How long killed processes may take to be gone.
const LAST_BREATH: Duration = Duration::from_secs(10);

/// A group of processes; they end with it.
#[derive(Debug)]
pub(crate) struct Cgroup {
    path: PathBuf,
}

impl Cgroup {
    /// An empty group.
    pub(crate) fn new(name: &str) -> Result<Self> {
        let path = mount()?.join(format!("holdfast-bench-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).with_context(|| format!("making the control group {}", path.display()))?;
        let group = Self { path };
        group.cpu()?;
        Ok(group)
    }

    /// The file that takes process ids.
    pub(crate) fn door(&self) -> PathBuf {
        self.path.join("cgroup.procs")
    }

    /// CPU time of all that ever ran in it.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        let path = self.path.join("cpu.stat");
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let usage = text.lines().find_map(|line| line.strip_prefix("usage_usec "));
        Ok(Duration::from_micros(usage.context("cpu.stat without usage_usec")?.parse()?))
    }

    fn processes(&self) -> Result<Vec<String>> {
        Ok(fs::read_to_string(self.door())?.lines().map(str::to_owned).collect())
    }

    /// Memory of all its processes in octets, pages that several share counted once.
    pub(crate) fn memory(&self) -> Result<u64> {
        let of = |pid: &String| fs::read_to_string(Path::new("/proc").join(pid).join("smaps_rollup"));
        // A helper process may end between the list and the look.
        Ok(self.processes()?.iter().filter_map(|pid| of(pid).ok()).map(|text| kilobytes(&text, "Pss:")).sum())
    }

    /// The same of each process, by the name that it gives itself.
    pub(crate) fn memory_of_each(&self) -> Result<Vec<(String, u64)>> {
        let of = |pid: &String| {
            let folder = Path::new("/proc").join(pid);
            let rollup = fs::read_to_string(folder.join("smaps_rollup"))?;
            let name = fs::read_to_string(folder.join("comm"))?;
            std::io::Result::Ok((name.trim().to_owned(), kilobytes(&rollup, "Pss:")))
        };
        Ok(self.processes()?.iter().filter_map(|pid| of(pid).ok()).collect())
    }

    /// The process that gives itself this name.
    pub(crate) fn process(&self, name: &str) -> Result<Process> {
        let is_it = |pid: &String| {
            let comm = fs::read_to_string(Path::new("/proc").join(pid).join("comm"));
            comm.is_ok_and(|comm| comm.trim() == name)
        };
        let pid = self.processes()?.into_iter().find(is_it).with_context(|| format!("no process {name}"))?;
        Ok(Process { folder: Path::new("/proc").join(pid) })
    }

    /// Moves a process in, with all its threads.
    pub(crate) fn take(&self, pid: u32) -> Result<()> {
        fs::write(self.door(), pid.to_string()).with_context(|| format!("moving process {pid}"))
    }

    /// What each of its processes has had of memory at most, octets, added up; without the files that it has mapped, of
    /// which the program is shared by all.
    pub(crate) fn peak_memory(&self) -> Result<u64> {
        let of = |pid: &String| fs::read_to_string(Path::new("/proc").join(pid).join("status"));
        let peak = |status: &str| kilobytes(status, "VmHWM:").saturating_sub(kilobytes(status, "RssFile:"));
        Ok(self.processes()?.iter().filter_map(|pid| of(pid).ok()).map(|status| peak(&status)).sum())
    }

    /// Kills all and waits for their end.
    fn end(&self) -> Result<()> {
        fs::write(self.path.join("cgroup.kill"), "1")?;
        let start = Instant::now();
        // It cannot be removed while one of them is on its way out, whatever the list says.
        while let Err(error) = fs::remove_dir(&self.path) {
            ensure!(start.elapsed() < LAST_BREATH, "processes that were killed live on: {error}");
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

/// One process.
#[derive(Debug)]
pub(crate) struct Process {
    folder: PathBuf,
}

/// Field 41 of a thread's `stat` (proc(5)), counted from behind the name: SCHED_FIFO is 1.
const POLICY: usize = 41 - 3;

impl Process {
    /// CPU time of its threads, without that of the first if that is not wanted.
    pub(crate) fn cpu(&self, with_first: bool) -> Result<Duration> {
        let nanoseconds = |task: &PathBuf| -> Result<u64> {
            // Nanoseconds on a processor come first.
            let text = fs::read_to_string(task.join("schedstat"))?;
            Ok(text.split(' ').next().context("schedstat")?.parse()?)
        };
        let first = self.folder.file_name();
        let wanted = self.tasks()?.into_iter().filter(|task| with_first || task.file_name() != first);
        Ok(Duration::from_nanos(wanted.map(|task| nanoseconds(&task)).sum::<Result<u64>>()?))
    }

    /// Whether a thread of it is under SCHED_FIFO.
    pub(crate) fn is_in_real_time(&self) -> Result<bool> {
        let is_fifo = |task: &PathBuf| {
            let text = fs::read_to_string(task.join("stat")).unwrap_or_default();
            let fields = text.rsplit_once(')').map(|(_, fields)| fields.split_whitespace());
            fields.and_then(|mut fields| fields.nth(POLICY)) == Some("1")
        };
        Ok(self.tasks()?.iter().any(is_fifo))
    }

    fn tasks(&self) -> Result<Vec<PathBuf>> {
        let tasks = fs::read_dir(self.folder.join("task"))?;
        tasks.map(|task| Ok(task?.path())).collect()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("control group {}: {error:#}", self.path.display());
        }
    }
}

/// Ends what an earlier run, which was killed itself, has left.
pub(crate) fn sweep() -> Result<()> {
    for entry in fs::read_dir(mount()?)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid = name.strip_prefix("holdfast-bench-").and_then(|rest| rest.split('-').next());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            drop(Cgroup { path: entry.path() });
        }
    }
    Ok(())
}

fn mount() -> Result<PathBuf> {
    let mounts = fs::read_to_string("/proc/mounts")?;
    let mut fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let found = fields.find(|fields| fields.get(2) == Some(&"cgroup2"));
    Ok(found.context("no control groups of version 2 are mounted")?[1].into())
}

/// The value of a key among those that `/proc` has in kB, in octets.
fn kilobytes(text: &str, key: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    line.and_then(|rest| rest.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()).unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    #[test]
    fn memory_is_read_by_its_key() {
        let text = "x\nRss:  20 kB\nPss:       1432 kB\nPss_Anon: 3 kB\n";
        assert_eq!((super::kilobytes(text, "Pss:"), super::kilobytes(text, "Swap:")), (1_466_368, 0));
    }
}
