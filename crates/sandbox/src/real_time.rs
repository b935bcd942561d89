//! Processes that may not be late: before all others on a processor, and never waiting for memory that was taken away.

use std::io;

use holdfast_sys::{
    CapabilitySet,
    process::{effective_capabilities, lock_memory, raise_locked_memory, run_in_real_time},
};
use rustix::io::Errno;

/// Above what else usually runs in real time, and below threads of the kernel that handle interrupts on some kernels.
const PRIORITY: u8 = 50;

/// What a process has got of real time. Where it was refused, it goes on without; the texts say why, and what helps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RealTime {
    /// SCHED_FIFO.
    pub scheduling: Result<(), String>,
    /// Its memory stays in memory (`mlockall`).
    pub memory: Result<(), String>,
}

impl RealTime {
    /// Asks for both, with the rights of the calling process, before a second thread exists.
    pub(crate) fn ask() -> Self {
        let may = effective_capabilities().is_ok_and(|held| held.contains(CapabilitySet::SYS_NICE));
        Self {
            scheduling: run_in_real_time(PRIORITY).map_err(|error| no_scheduling(&error, may)),
            memory: lock(),
        }
    }

    /// What was refused, in words of the operator; nothing if all is there.
    pub fn refusals(&self) -> Vec<String> {
        let refused =
            |what: &str, outcome: &Result<(), String>| Some(format!("{what}: {}", outcome.as_ref().err()?));
        let all = [refused("no real time", &self.scheduling), refused("memory is not locked", &self.memory)];
        all.into_iter().flatten().collect()
    }
}

/// Locks all memory, if it can be done without a limit: at one, a later allocation would fail.
fn lock() -> Result<(), String> {
    raise_locked_memory().map_err(|error| {
        format!("raising RLIMIT_MEMLOCK: {error}; start the router with that limit at infinity, or with CAP_SYS_RESOURCE")
    })?;
    lock_memory().map_err(|error| format!("mlockall: {error}"))
}

/// Why there is no real time; `may`: the process has CAP_SYS_NICE.
fn no_scheduling(error: &io::Error, may: bool) -> String {
    let is_denied = Errno::from_io_error(error) == Some(Errno::PERM);
    let hint = match (is_denied, may) {
        (true, false) => "; start the router with CAP_SYS_NICE, or with RLIMIT_RTPRIO at 50",
        (true, true) => {
            "; its control group is given no real time (cpu.rt_runtime_us is 0, CONFIG_RT_GROUP_SCHED): give it some, \
             there and in the groups above"
        }
        (false, _) => "",
    };
    format!("SCHED_FIFO: {error}{hint}")
}

#[cfg(test)]
mod tests {
    use holdfast_sys::process::keep_capabilities;

    use super::*;
    use crate::{Network, Rights, Sandbox, Settings};

    /// Runs the story on a thread of its own: scheduling and rights belong to threads.
    fn on_a_thread<T: Send + 'static>(story: impl FnOnce() -> T + Send + 'static) -> T {
        std::thread::spawn(story).join().expect("the story holds")
    }

    #[test]
    fn a_refusal_says_what_helps() {
        let refused = io::Error::from_raw_os_error(Errno::PERM.raw_os_error());
        assert!(no_scheduling(&refused, false).contains("CAP_SYS_NICE"));
        assert!(no_scheduling(&refused, true).contains("cpu.rt_runtime_us"));
        let other = io::Error::from_raw_os_error(Errno::INVAL.raw_os_error());
        assert!(!no_scheduling(&other, true).contains(';'));
        let both = RealTime { scheduling: Err("a".into()), memory: Err("b".into()) };
        assert_eq!(both.refusals(), ["no real time: a", "memory is not locked: b"]);
        assert!(RealTime { scheduling: Ok(()), memory: Ok(()) }.refusals().is_empty());
    }

    /// Whether the calling thread has SCHED_FIFO.
    fn is_fifo() -> bool {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").expect("readable");
        let (_, fields) = stat.rsplit_once(") ").expect("a name");
        // Field 41 of proc(5), where these begin with the third.
        fields.split(' ').nth(38) == Some(libc::SCHED_FIFO.to_string().as_str())
    }

    /// Runs the story in a process of its own.
    fn apart(test: &str, story: impl FnOnce()) {
        const INSIDE: &str = "HOLDFAST_REAL_TIME_TEST";
        if std::env::var_os(INSIDE).is_some() {
            return story();
        }
        let test = format!("real_time::tests::{test}");
        let own = std::env::current_exe().expect("a path");
        let status = std::process::Command::new(own).args(["--exact", &test]).env(INSIDE, "1").status();
        assert!(status.expect("it ran").success(), "in a process of its own");
    }

    #[test]
    fn a_thread_runs_in_real_time_and_hands_it_on_or_knows_why_not() {
        let outcome = on_a_thread(|| {
            let outcome = run_in_real_time(PRIORITY).map_err(|error| no_scheduling(&error, true));
            assert_eq!(outcome.is_ok(), is_fifo());
            assert_eq!(outcome.is_ok(), on_a_thread(is_fifo), "threads have what started them");
            outcome
        });
        if let Err(why) = outcome {
            assert!(why.contains("rt_runtime_us"), "{why}");
        }
        let without = on_a_thread(|| {
            keep_capabilities(CapabilitySet::empty(), None).expect("capset");
            run_in_real_time(PRIORITY).map_err(|error| error.kind())
        });
        assert_eq!(without, Err(io::ErrorKind::PermissionDenied));
    }

    #[test]
    fn a_process_keeps_it_when_it_has_no_rights_any_more() {
        apart("a_process_keeps_it_when_it_has_no_rights_any_more", || {
            let outcome = on_a_thread(|| {
                let settings = Settings { user: Some(60_700), ..Settings::default() };
                let rights = Rights::worker(Network::None).in_real_time();
                let outcome = Sandbox { rights, settings }.take_rights().expect("taken");
                assert!(effective_capabilities().expect("capget").is_empty());
                let outcome = outcome.expect("it has asked");
                assert_eq!(outcome.scheduling.is_ok(), is_fifo());
                outcome
            });
            assert_eq!(outcome.refusals().is_empty(), outcome.scheduling.is_ok() && outcome.memory.is_ok());
        });
        let none = on_a_thread(|| {
            let sandbox = Sandbox { rights: Rights::worker(Network::None), settings: Settings::default() };
            sandbox.take_rights().expect("taken")
        });
        assert_eq!(none, None);
    }

    #[test]
    fn memory_is_locked_for_good_or_not_at_all() {
        apart("memory_is_locked_for_good_or_not_at_all", || {
            let outcome = lock();
            let status = std::fs::read_to_string("/proc/self/status").expect("readable");
            let locked = status.lines().find_map(|line| line.strip_prefix("VmLck:")).expect("a line");
            assert_eq!(outcome.is_ok(), locked.trim() != "0 kB");
            match outcome {
                Ok(()) => {
                    keep_capabilities(CapabilitySet::empty(), None).expect("capset");
                    assert_eq!(vec![1_u8; 64 << 20].len(), 64 << 20, "later allocations are under no limit");
                }
                Err(why) => assert!(why.contains("RLIMIT_MEMLOCK"), "{why}"),
            }
        });
    }
}
