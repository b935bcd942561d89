//! What else the machine does, and what it is.

use std::{fs, time::Duration};

use anyhow::{Context, Result};

/// CPU time at one moment.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Clock {
    /// All CPUs, whatever they did but idling.
    busy: Duration,
    /// Taken by the host for others.
    stolen: Duration,
    /// This program, and the commands that it has run.
    own: Duration,
}

impl Clock {
    pub(crate) fn now() -> Result<Self> {
        let text = fs::read_to_string("/proc/stat")?;
        let line = text.lines().next().context("/proc/stat is empty")?;
        let ticks: Vec<u64> = line.split_whitespace().skip(1).filter_map(|n| n.parse().ok()).collect();
        // user, nice, system, idle, iowait, irq, softirq, steal
        let busy = [0, 1, 2, 5, 6].iter().filter_map(|&at| ticks.get(at)).sum::<u64>();
        let of = |ticks: u64| Duration::from_millis(ticks * 1000 / TICKS);
        let own = own() + of(children()?);
        Ok(Self { busy: of(busy), stolen: of(ticks.get(7).copied().unwrap_or(0)), own })
    }

    /// Share of all CPUs between `self` and now that neither this program nor the daemon had: by others on this
    /// machine, and by the host.
    pub(crate) fn others(&self, daemon: Duration, wall: Duration) -> Result<[f64; 2]> {
        let now = Self::now()?;
        let whole = wall.as_secs_f64() * cpus() as f64;
        let others = (now.busy - self.busy).saturating_sub(now.own - self.own).saturating_sub(daemon);
        let share = |part: Duration| (part.as_secs_f64() / whole).min(1.0);
        Ok([share(others), share(now.stolen - self.stolen)])
    }
}

/// USER_HZ, which is the same on every Linux that Rust runs on.
const TICKS: u64 = 100;

fn own() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Ticks of processes that this one has waited for.
fn children() -> Result<u64> {
    let text = fs::read_to_string("/proc/self/stat")?;
    // Behind the name, which is in brackets; user and system time of children are the fields 16 and 17 of all.
    let fields = text.rsplit_once(')').context("/proc/self/stat without a name")?.1.split_whitespace();
    Ok(fields.skip(13).take(2).filter_map(|field| field.parse::<u64>().ok()).sum())
}

/// Lets this program, and what it starts, have as many files open as are allowed to it: a session is one.
pub(crate) fn allow_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // Where it is refused, rows with few sessions can be measured nevertheless.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// How many processes wanted to run, on average over the last minute.
pub(crate) fn load() -> Result<f64> {
    let text = fs::read_to_string("/proc/loadavg")?;
    Ok(text.split(' ').next().context("the load")?.parse()?)
}

/// One line about this machine.
pub(crate) fn description() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("unknown CPU");
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{} x {}, Linux {}", cpus(), model.trim_start_matches(['\t', ':', ' ']), kernel.trim())
}
