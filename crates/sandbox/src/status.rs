//! What is in force for a process, as the kernel tells.

use std::fs;

use holdfast_sys::CapabilitySet;

use crate::{Limits, cgroup};

/// What holds a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Its effective user.
    pub user: u32,
    /// Names of its effective capabilities, as in capabilities(7).
    pub capabilities: Vec<String>,
    /// Whether its system calls are filtered, by whomever.
    pub seccomp: bool,
    /// What it may use: by its cgroup, and where that says nothing of memory, by `RLIMIT_DATA`.
    pub limits: Limits,
}

/// That of a process; `None` when there is none of this number.
pub fn status(pid: u32) -> Option<Status> {
    let read = |file| fs::read_to_string(format!("/proc/{pid}/{file}"));
    let mut status = parse(&read("status").ok()?);
    let limits = cgroup::limits_of(pid);
    let memory = limits.memory.or_else(|| data_limit(&read("limits").ok()?));
    status.limits = Limits { memory, ..limits };
    Some(status)
}

/// Reads `/proc/PID/status`.
fn parse(text: &str) -> Status {
    let value = |key| text.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default().trim();
    Status {
        user: value("Uid:").split_whitespace().nth(1).and_then(|user| user.parse().ok()).unwrap_or(0),
        capabilities: names(u64::from_str_radix(value("CapEff:"), 16).unwrap_or(0)),
        seccomp: value("Seccomp:") == "2",
        limits: Limits::default(),
    }
}

fn names(bits: u64) -> Vec<String> {
    let set = CapabilitySet::from_bits_truncate(bits);
    set.iter_names().map(|(name, _)| format!("CAP_{name}")).collect()
}

/// `RLIMIT_DATA` in `/proc/PID/limits`.
fn data_limit(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("Max data size"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_tells_is_read() {
        let text = "Name:\tfea\nUid:\t60700\t60701\t60700\t60700\nCapEff:\t0000000000003400\nNoNewPrivs:\t1\nSeccomp:\t2\n";
        let capabilities = ["CAP_NET_BIND_SERVICE", "CAP_NET_ADMIN", "CAP_NET_RAW"].map(str::to_owned).into();
        assert_eq!(
            parse(text),
            Status { user: 60_701, capabilities, seccomp: true, limits: Limits::default() }
        );
        assert_eq!(parse(""), Status::default());
    }

    #[test]
    fn a_limit_of_data_is_one_when_there_is_one() {
        let line = |value: &str| {
            format!("Limit  Soft Limit\nMax data size             {value}            {value}  bytes\n")
        };
        assert_eq!(data_limit(&line("1048576")), Some(1 << 20));
        assert_eq!(data_limit(&line("unlimited")), None);
    }

    #[test]
    fn the_calling_process_has_one() {
        let own = status(std::process::id()).expect("it lives");
        assert_eq!(own.user, rustix::process::geteuid().as_raw());
        assert_eq!(status(4_194_305), None);
    }
}
