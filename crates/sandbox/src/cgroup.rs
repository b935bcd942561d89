//! Limits of memory and processor time: a cgroup (v2) for each process of the router.
//!
//! A cgroup with processes in it cannot have others below it that are limited. So the keeper moves into one of its own
//! first; this works where nobody else is in the one that it was started in: a service of systemd with `Delegate=yes`,
//! a container.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

/// What the keeper's own cgroup is called.
const KEEPER: &str = "keeper";
/// The period that a share of processor time is measured over, in microseconds.
const PERIOD: u64 = 100_000;

/// What a process may use.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Octets of memory, what the kernel keeps for it included.
    pub memory: Option<u64>,
    /// Processor time, in percent of one processor.
    pub cpu: Option<u32>,
}

/// The cgroup that the router's processes have theirs in.
#[derive(Debug, PartialEq, Eq)]
pub struct Cgroup(PathBuf);

/// Why there are no cgroups for the processes.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// Version 1 has the controllers, or nobody.
    #[error("no cgroup v2 with the controllers cpu and memory")]
    Missing,
    /// It is not the router's.
    #[error("other processes are in the router's cgroup {}", .0.display())]
    Shared(PathBuf),
    /// It may not change it, most likely.
    #[error("the cgroup {}: {}", .0.display(), .1)]
    Refused(PathBuf, #[source] io::Error),
}

impl Cgroup {
    /// Moves the calling process, the keeper, into a cgroup of its own, beside which there is room for others. One that has
    /// taken over is there already.
    ///
    /// # Errors
    /// When the cgroup that it was started in is not the router's.
    pub fn claim() -> Result<Self, CgroupError> {
        let own = of(std::process::id()).ok_or(CgroupError::Missing)?;
        Self::claim_from(&own, std::process::id())
    }

    fn claim_from(own: &Path, pid: u32) -> Result<Self, CgroupError> {
        let refused = |error| CgroupError::Refused(own.to_owned(), error);
        if own.ends_with(KEEPER) {
            return own.parent().map(|parent| Self(parent.to_owned())).ok_or(CgroupError::Missing);
        }
        let controllers = fs::read_to_string(own.join("cgroup.controllers")).map_err(refused)?;
        let has = |wanted| controllers.split_whitespace().any(|controller| controller == wanted);
        if !has("cpu") || !has("memory") {
            return Err(CgroupError::Missing);
        }
        let members = fs::read_to_string(own.join("cgroup.procs")).map_err(refused)?;
        if members.lines().any(|member| member != pid.to_string()) {
            return Err(CgroupError::Shared(own.to_owned()));
        }
        let claimed = Self(own.to_owned());
        claimed.admit(KEEPER, pid, Limits::default()).map_err(refused)?;
        let enabled = fs::write(own.join("cgroup.subtree_control"), "+cpu +memory");
        if let Err(error) = enabled {
            let _ = fs::write(own.join("cgroup.procs"), pid.to_string());
            let _ = fs::remove_dir(own.join(KEEPER));
            return Err(refused(error));
        }
        Ok(claimed)
    }

    /// Puts a process under the limits of its name, which are set anew; none of memory: three quarters of the machine's,
    /// so that it is this process that dies of too much.
    ///
    /// # Errors
    /// Of writing to the cgroup's files.
    pub fn limit(&self, name: &str, pid: u32, limits: Limits) -> io::Result<()> {
        let memory = limits.memory.or_else(|| machine_memory().map(|octets| octets / 4 * 3));
        self.admit(name, pid, Limits { memory, ..limits })
    }

    /// How long the process of this name could not run for its limit of processor time, in all its lives.
    pub fn throttled(&self, name: &str) -> Duration {
        let text = fs::read_to_string(self.0.join(name).join("cpu.stat")).unwrap_or_default();
        let microseconds = text.lines().find_map(|line| line.strip_prefix("throttled_usec ")?.parse().ok());
        Duration::from_micros(microseconds.unwrap_or(0))
    }

    fn admit(&self, name: &str, pid: u32, limits: Limits) -> io::Result<()> {
        let directory = self.0.join(name);
        match fs::create_dir(&directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        if name != KEEPER {
            let memory = limits.memory.map_or("max".to_owned(), |octets| octets.to_string());
            fs::write(directory.join("memory.max"), memory)?;
            let quota = |percent| u64::from(percent) * PERIOD / 100;
            let cpu = limits.cpu.map_or("max".to_owned(), |percent| quota(percent).to_string());
            fs::write(directory.join("cpu.max"), format!("{cpu} {PERIOD}"))?;
        }
        fs::write(directory.join("cgroup.procs"), pid.to_string())
    }
}

/// The cgroup of a process, as a directory.
fn of(pid: u32) -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let membership = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    directory(&mounts, &membership)
}

/// Where the cgroup of proc(5)'s `/proc/PID/cgroup` is, by `/proc/PID/mountinfo`.
fn directory(mounts: &str, membership: &str) -> Option<PathBuf> {
    let own = membership.lines().find_map(|line| line.strip_prefix("0::"))?;
    mounts.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let (root, place) = (fields.next()?, fields.next()?);
        let below = Path::new(own).strip_prefix(root).ok()?;
        kind.starts_with("cgroup2 ").then(|| Path::new(place).join(below))
    })
}

/// What the cgroup of a process allows it.
pub(crate) fn limits_of(pid: u32) -> Limits {
    let Some(directory) = of(pid) else { return Limits::default() };
    let read = |file| fs::read_to_string(directory.join(file)).unwrap_or_default();
    Limits { memory: read("memory.max").trim().parse().ok(), cpu: percent(&read("cpu.max")) }
}

/// Quota and period of `cpu.max`, as a share.
fn percent(text: &str) -> Option<u32> {
    let (quota, period) = text.trim().split_once(' ')?;
    let (quota, period) = (quota.parse::<u64>().ok()?, period.parse::<u64>().ok()?);
    u32::try_from((quota * 100).checked_div(period)?).ok()
}

fn machine_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(total.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory with what the kernel has in that of a cgroup.
    fn cgroup(name: &str, controllers: &str, members: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("holdfast-cgroup-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).expect("made");
        fs::write(path.join("cgroup.controllers"), controllers).expect("written");
        fs::write(path.join("cgroup.procs"), members).expect("written");
        path
    }

    fn read(path: &Path) -> String {
        fs::read_to_string(path).unwrap_or_default()
    }

    #[test]
    fn the_keeper_makes_room_and_each_name_has_its_limits() {
        let own = cgroup("own", "cpuset cpu io memory pids\n", "71\n");
        let claimed = Cgroup::claim_from(&own, 71).expect("it is ours");
        assert_eq!(read(&own.join("keeper/cgroup.procs")), "71");
        assert_eq!(read(&own.join("cgroup.subtree_control")), "+cpu +memory");
        assert_eq!(Cgroup::claim_from(&own.join("keeper"), 71).expect("after a takeover"), claimed);

        claimed.limit("bgp", 72, Limits { memory: Some(1 << 30), cpu: Some(150) }).expect("made");
        let file = |name| read(&own.join("bgp").join(name));
        assert_eq!(
            (file("memory.max"), file("cpu.max"), file("cgroup.procs")),
            ("1073741824".into(), "150000 100000".into(), "72".into())
        );
        assert_eq!(claimed.throttled("bgp"), Duration::ZERO, "the kernel does not say");
        fs::write(own.join("bgp/cpu.stat"), "usage_usec 9\nnr_throttled 2\nthrottled_usec 1500\n")
            .expect("written");
        assert_eq!(claimed.throttled("bgp"), Duration::from_micros(1500));
        claimed.limit("bgp", 73, Limits::default()).expect("the next life");
        let machine = machine_memory().expect("it has some");
        assert_eq!(
            (file("memory.max"), file("cpu.max")),
            ((machine / 4 * 3).to_string(), "max 100000".into())
        );
        fs::remove_dir_all(own).expect("removed");
    }

    #[test]
    fn what_is_not_the_routers_is_left_alone() {
        let shared = cgroup("shared", "cpu memory", "1\n71\n");
        assert!(matches!(Cgroup::claim_from(&shared, 71), Err(CgroupError::Shared(_))));
        let bare = cgroup("bare", "hugetlb", "71\n");
        assert!(matches!(Cgroup::claim_from(&bare, 71), Err(CgroupError::Missing)));
        for left in [shared, bare] {
            assert!(!left.join("keeper").exists());
            fs::remove_dir_all(left).expect("removed");
        }
    }

    #[test]
    fn a_cgroup_is_found_below_its_mount() {
        let mounts =
            "22 1 0:21 / /proc rw - proc proc rw\n30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        let found = |membership| directory(mounts, membership);
        assert_eq!(
            found("1:cpu:/\n0::/system.slice/holdfast.service\n"),
            Some(PathBuf::from("/sys/fs/cgroup/system.slice/holdfast.service"))
        );
        assert_eq!(found("4:memory:/x\n"), None);
        let below = "30 1 0:26 /docker/1 /sys/fs/cgroup rw - cgroup2 cgroup rw\n";
        assert_eq!(directory(below, "0::/docker/1/x\n"), Some(PathBuf::from("/sys/fs/cgroup/x")));
        assert_eq!(directory("", "0::/\n"), None);
    }

    #[test]
    fn a_share_of_processor_time_is_read_as_it_is_written() {
        assert_eq!(percent("150000 100000\n"), Some(150));
        assert_eq!(percent("max 100000\n"), None);
        assert_eq!(percent("1 0"), None);
    }
}
