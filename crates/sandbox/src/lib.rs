//! What each process may do, and how the kernel holds it to that.
//!
//! A process takes its own rights away in its first moments, before it has read an octet from outside: [`Sandbox::take_rights`]
//! while it is one thread, [`Sandbox::close`] once its event loop is there. What it keeps are its [`Rights`]; how far the
//! operator wants this is in its [`Settings`], which the keeper hands on by environment. Each means is
//! used where the kernel has it: [`status()`] tells from the outside what is in force for a process.
//!
//! | means | is for |
//! |---|---|
//! | user, capabilities, `no_new_privs` | what the kernel asks rights for |
//! | Landlock | files, TCP ports, signals to others |
//! | seccomp | system calls: an allow-list each |
//! | [`RealTime`] | what is added, to a process that may not be late |
//! | [`Cgroup`], by the keeper | memory and processor time |

mod cgroup;
mod files;
mod real_time;
mod rights;
mod settings;
mod status;
mod syscalls;

pub use cgroup::{Cgroup, CgroupError, Limits};
pub use holdfast_sys::CapabilitySet;
pub use real_time::RealTime;
pub use rights::{Files, Network, Rights};
pub use settings::{ENVIRONMENT, Settings};
pub use status::{Status, status};

use std::{fs, io};

/// Why a process cannot take its rights away. It must not live on.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// User, capabilities, `no_new_privs`, limits.
    #[error("{0}: {1}")]
    Rights(&'static str, #[source] io::Error),
    /// Landlock is there and does not take the rules.
    #[error("Landlock: {0}")]
    Landlock(#[from] landlock::RulesetError),
    /// So does seccomp.
    #[error("seccomp: {0}")]
    Seccomp(#[from] seccompiler::Error),
}

/// The rights of the calling process, on their way down.
#[derive(Debug)]
pub struct Sandbox {
    rights: Rights,
    settings: Settings,
}

impl Sandbox {
    /// Down to these, as the keeper wants it.
    pub fn new(rights: Rights) -> Self {
        Self { rights, settings: Settings::from_environment() }
    }

    /// The user that the process is to become.
    pub fn user(&self) -> Option<u32> {
        self.settings.user
    }

    /// Becomes the process's own user, without any capability that it is not to keep, for good. Before a second
    /// thread exists. What it has got of real time, if it is to have any: its capabilities are there for that until now.
    ///
    /// # Errors
    /// When the kernel refuses what it offers: the process must not live on.
    pub fn take_rights(&self) -> Result<Option<RealTime>, SandboxError> {
        use holdfast_sys::process::{keep_capabilities, limit_data, set_no_new_privs};
        let error = |what| move |error| SandboxError::Rights(what, error);
        // It is remembered from now on. Linux before 6.4 looks it up in /proc/self/auxv, which another user may not open.
        rustix::param::page_size();
        set_no_new_privs().map_err(error("setting no_new_privs"))?;
        if let Some(octets) = self.settings.memory {
            limit_data(octets).map_err(error("limiting the memory"))?;
        }
        let real_time = self.rights.real_time.then(RealTime::ask);
        let user = self.settings.user.filter(|user| can_become(*user));
        keep_capabilities(self.rights.capabilities, user).map_err(error("dropping capabilities"))?;
        Ok(real_time)
    }

    /// Closes files, network and system calls, for the calling thread and all that it will start. Nothing
    /// beyond that can be opened afterwards.
    ///
    /// # Errors
    /// When the kernel refuses what it offers: the process must not live on.
    pub fn close(&self) -> Result<Closed, SandboxError> {
        if !self.settings.enforce {
            return Ok(Closed::default());
        }
        let landlock = files::close(&self.rights, &self.settings.directories)?;
        syscalls::close(&self.rights)?;
        Ok(Closed { landlock })
    }
}

/// What has closed a process.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Closed {
    /// The version of Landlock's interface; 0: the kernel has none, or it is off.
    pub landlock: u32,
}

/// Whether the calling process has the right to become this user, and the user exists in its user namespace.
fn can_become(user: u32) -> bool {
    let needed = CapabilitySet::SETUID | CapabilitySet::SETGID;
    let may = holdfast_sys::process::effective_capabilities().is_ok_and(|held| held.contains(needed));
    let mapped = |map| fs::read_to_string(map).is_ok_and(|map| is_mapped(&map, user));
    may && mapped("/proc/self/uid_map") && mapped("/proc/self/gid_map")
}

/// Whether a map of user_namespaces(7) has this number inside.
fn is_mapped(map: &str, id: u32) -> bool {
    map.lines().any(|line| {
        let mut numbers = line.split_whitespace().filter_map(|number| number.parse::<u64>().ok());
        let (first, count) = (numbers.next(), numbers.nth(1));
        first.zip(count).is_some_and(|(first, count)| (first..first + count).contains(&id.into()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_looked_up_in_the_namespaces_map() {
        assert!(is_mapped("         0          0 4294967295\n", 60_700));
        assert!(is_mapped("0 1000 1\n1 100000 65536\n", 60_700));
        assert!(!is_mapped("0 1000 1\n", 60_700) && is_mapped("0 1000 1\n", 0));
        assert!(!is_mapped("", 0) && !is_mapped("60700\n", 60_700));
    }
}
