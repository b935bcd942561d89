//! Name, limits and rights of the calling process. To be used before a second thread exists: the kernel
//! keeps capabilities and `no_new_privs` for each thread.

use std::{ffi::CString, io};

use crate::option::check;

use rustix::{
    process::{Gid, Resource, Rlimit, Uid},
    thread::{CapabilitySet, CapabilitySets},
};

/// The name shown by `ps` and `top`: cut to 15 octets by the kernel, and at a NUL by us.
///
/// # Errors
/// Those of `prctl(PR_SET_NAME)`.
pub fn set_name(name: &str) -> io::Result<()> {
    let bytes: Vec<u8> = name.bytes().take_while(|byte| *byte != 0).collect();
    let name = CString::new(bytes)?;
    Ok(rustix::thread::set_name(&name)?)
}

/// No program started from here on inherits a descriptor that is open now, but the standard ones: what whoever
/// started this process forgot to close.
///
/// # Errors
/// Those of `close_range`.
pub fn keep_descriptors() -> io::Result<()> {
    // SAFETY: no memory is passed, and with this flag no descriptor is closed: it is marked for `exec`.
    let done = unsafe { libc::close_range(3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC as libc::c_int) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// No program started from here on gains rights by its file (set-user-ID, file capabilities).
///
/// # Errors
/// Those of `prctl(PR_SET_NO_NEW_PRIVS)`.
pub fn set_no_new_privs() -> io::Result<()> {
    Ok(rustix::thread::set_no_new_privs(true)?)
}

/// Orphans among the descendants become children of this process, which has to reap them.
///
/// # Errors
/// Those of `prctl(PR_SET_CHILD_SUBREAPER)`.
pub fn become_subreaper() -> io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
}

/// Gives up every capability that is not in `keep`, for good: none can come back through `exec`.
/// What is in `keep` and was not held is not gained. With a user it becomes that one, alone in the group of the same
/// number, and keeps the capabilities all the same.
///
/// # Errors
/// Those of `capset`, `setgroups`, `setresgid` and `setresuid`. A bounding set that may not be changed (no CAP_SETPCAP) is
/// left: without permitted capabilities it gives no rights.
pub fn keep_capabilities(keep: CapabilitySet, user: Option<u32>) -> io::Result<()> {
    limit_bounding_set(keep)?;
    let permitted = rustix::thread::capabilities(None)?.permitted & keep;
    if let Some(user) = user {
        become_user(user)?;
    }
    // Emptying the inheritable set empties the ambient set too.
    let sets = CapabilitySets { effective: permitted, permitted, inheritable: CapabilitySet::empty() };
    Ok(rustix::thread::set_capabilities(None, sets)?)
}

/// Becomes another user, without groups. What was permitted stays so; nothing is effective.
fn become_user(user: u32) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(user), Gid::from_raw(user));
    rustix::thread::set_keep_capabilities(true)?;
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    Ok(rustix::thread::set_keep_capabilities(false)?)
}

/// Gives up every capability that is not in `keep`, for this program and for those that it executes, which are otherwise
/// born with what they would have been born with.
///
/// # Errors
/// Those of `capset`; for the bounding set see [`keep_capabilities`].
pub fn limit_capabilities(keep: CapabilitySet) -> io::Result<()> {
    limit_bounding_set(keep)?;
    let held = rustix::thread::capabilities(None)?;
    let sets = CapabilitySets {
        effective: held.effective & keep,
        permitted: held.permitted & keep,
        inheritable: held.inheritable & keep,
    };
    Ok(rustix::thread::set_capabilities(None, sets)?)
}

/// Has these capabilities ready in the calling thread, as far as it is permitted to.
///
/// # Errors
/// Those of `capset`.
pub fn raise_capabilities(capabilities: CapabilitySet) -> io::Result<()> {
    let held = rustix::thread::capabilities(None)?;
    let effective = held.effective | (held.permitted & capabilities);
    Ok(rustix::thread::set_capabilities(None, CapabilitySets { effective, ..held })?)
}

/// Puts these capabilities away in the calling thread and those that it starts, until they are
/// [raised](raise_capabilities).
///
/// # Errors
/// Those of `capset`.
pub fn lower_capabilities(capabilities: CapabilitySet) -> io::Result<()> {
    let held = rustix::thread::capabilities(None)?;
    let effective = held.effective - capabilities;
    Ok(rustix::thread::set_capabilities(None, CapabilitySets { effective, ..held })?)
}

fn limit_bounding_set(keep: CapabilitySet) -> io::Result<()> {
    CapabilitySet::all()
        .iter()
        .filter(|capability| !keep.intersects(*capability))
        .try_for_each(drop_from_bounding_set)
}

fn drop_from_bounding_set(capability: CapabilitySet) -> io::Result<()> {
    use rustix::io::Errno;
    match rustix::thread::remove_capability_from_bounding_set(capability) {
        // EINVAL: a capability that this kernel does not know.
        Ok(()) | Err(Errno::PERM | Errno::INVAL) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// What the process may do now.
///
/// # Errors
/// Those of `capget`.
pub fn effective_capabilities() -> io::Result<CapabilitySet> {
    Ok(rustix::thread::capabilities(None)?.effective)
}

/// Private memory that the process may write to is at most so many octets: further allocations fail.
///
/// # Errors
/// `EPERM` for more than an earlier limit.
pub fn limit_data(octets: u64) -> io::Result<()> {
    let limit = Rlimit { current: Some(octets), maximum: Some(octets) };
    Ok(rustix::process::setrlimit(Resource::Data, limit)?)
}

/// The calling thread, and those that it starts, run before all others but those of a higher priority, 1 to 99, until they wait
/// (`SCHED_FIFO`).
///
/// # Errors
/// `EPERM` without CAP_SYS_NICE where `RLIMIT_RTPRIO` is lower, and in a control group that is given no real time
/// (`CONFIG_RT_GROUP_SCHED`, `cpu.rt_runtime_us`).
pub fn run_in_real_time(priority: u8) -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: priority.into() };
    // SAFETY: 0 is the calling thread, and the kernel reads the struct until it returns.
    check(unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) })
}

/// The process, and programs that it starts, may lock as much memory as they have.
///
/// # Errors
/// `EPERM` without CAP_SYS_RESOURCE, where there is a hard limit.
pub fn raise_locked_memory() -> io::Result<()> {
    Ok(rustix::process::setrlimit(Resource::Memlock, Rlimit { current: None, maximum: None })?)
}

/// Whatever memory the process has or will have stays in memory once it was used. Where the limit of locked memory is
/// lower than what the process comes to need, further allocations fail, and its stack does not grow.
///
/// # Errors
/// `EPERM` where nothing may be locked, `ENOMEM` where less may be locked than there is.
pub fn lock_memory() -> io::Result<()> {
    // SAFETY: it changes what is mapped in no way that can be seen.
    check(unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT) })
}

/// Raises the number of descriptors the process may open to its hard limit, and returns that.
/// `None`: unlimited.
///
/// # Errors
/// Those of `setrlimit`.
pub fn raise_open_files() -> io::Result<Option<u64>> {
    let maximum = rustix::process::getrlimit(Resource::Nofile).maximum;
    rustix::process::setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    Ok(maximum)
}

/// Moves the calling thread into a new network namespace with nothing in it but a loopback that is down.
/// Threads and programs it starts afterwards are inside too. For tests and measurements.
///
/// # Errors
/// `EPERM` without CAP_SYS_ADMIN.
pub fn enter_new_network() -> io::Result<()> {
    // SAFETY: only CLONE_FILES and CLONE_FS change what other threads' code may rely on.
    Ok(unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) }?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the story on a thread of its own: rights belong to threads.
    fn on_a_thread(story: impl FnOnce() + Send + 'static) {
        std::thread::spawn(story).join().expect("the story holds");
    }

    #[test]
    fn capabilities_that_are_not_kept_are_gone_for_good() {
        on_a_thread(|| {
            let held = effective_capabilities().expect("capget");
            keep_capabilities(CapabilitySet::NET_ADMIN, None).expect("first");
            assert_eq!(effective_capabilities().expect("capget"), held & CapabilitySet::NET_ADMIN);
            keep_capabilities(CapabilitySet::all(), None).expect("second");
            assert_eq!(effective_capabilities().expect("capget"), held & CapabilitySet::NET_ADMIN);
        });
    }

    #[test]
    fn another_user_has_what_is_kept_and_no_way_back() {
        on_a_thread(|| {
            let held = effective_capabilities().expect("capget");
            if !held.contains(CapabilitySet::SETUID | CapabilitySet::SETGID) {
                eprintln!("not tested: that needs CAP_SETUID and CAP_SETGID");
                return;
            }
            keep_capabilities(CapabilitySet::NET_ADMIN, Some(60_700)).expect("another user");
            assert_eq!(effective_capabilities().expect("capget"), held & CapabilitySet::NET_ADMIN);
            let status = std::fs::read_to_string("/proc/thread-self/status").expect("readable");
            for line in
                ["Uid:\t60700\t60700\t60700\t60700", "Gid:\t60700\t60700\t60700\t60700", "Groups:\t \n"]
            {
                assert!(status.contains(line), "{line} is not in {status}");
            }
            let root = Uid::from_raw(0);
            assert!(rustix::thread::set_thread_res_uid(root, root, root).is_err());
        });
    }

    #[test]
    fn what_is_limited_can_be_handed_on_and_the_rest_cannot() {
        on_a_thread(|| {
            let held = effective_capabilities().expect("capget");
            limit_capabilities(CapabilitySet::NET_ADMIN | CapabilitySet::KILL).expect("capset");
            let kept = held & (CapabilitySet::NET_ADMIN | CapabilitySet::KILL);
            assert_eq!(effective_capabilities().expect("capget"), kept);
        });
    }

    #[test]
    fn what_is_put_away_is_there_again_when_it_is_needed() {
        on_a_thread(|| {
            let held = effective_capabilities().expect("capget");
            lower_capabilities(CapabilitySet::NET_ADMIN).expect("capset");
            assert_eq!(effective_capabilities().expect("capget"), held - CapabilitySet::NET_ADMIN);
            let lowered = effective_capabilities().expect("capget");
            on_a_thread(move || {
                assert_eq!(effective_capabilities().expect("capget"), lowered, "it is handed on so");
                raise_capabilities(CapabilitySet::NET_ADMIN).expect("capset");
                assert_eq!(effective_capabilities().expect("capget"), held);
            });
            keep_capabilities(CapabilitySet::KILL, None).expect("capset");
            raise_capabilities(CapabilitySet::NET_ADMIN).expect("is not gained");
            assert_eq!(effective_capabilities().expect("capget"), held & CapabilitySet::KILL);
        });
    }

    #[test]
    fn a_name_is_cut_where_the_kernel_would() {
        on_a_thread(|| {
            for (given, kept) in [("bgp", "bgp"), ("a\0b", "a"), ("0123456789abcdefgh", "0123456789abcde")] {
                set_name(given).expect("prctl");
                assert_eq!(rustix::thread::name().expect("prctl").to_str(), Ok(kept));
            }
        });
    }

    #[test]
    fn no_new_privs_stays_set() {
        on_a_thread(|| {
            set_no_new_privs().expect("prctl");
            assert!(rustix::thread::no_new_privs().expect("prctl"));
        });
    }

    #[test]
    fn open_files_rise_to_the_hard_limit() {
        let limit = raise_open_files().expect("setrlimit");
        assert_eq!(rustix::process::getrlimit(Resource::Nofile).current, limit);
    }
}
