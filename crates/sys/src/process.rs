//! Name, limits and rights of the calling process. To be used before a second thread exists: the kernel
//! keeps capabilities and `no_new_privs` for each thread.

use std::{ffi::CString, io};

use rustix::{
    process::{Resource, Rlimit},
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
/// What is in `keep` and was not held is not gained.
///
/// # Errors
/// Those of `capset`. A bounding set that may not be changed (no CAP_SETPCAP) is left: without permitted
/// capabilities it gives no rights.
pub fn keep_capabilities(keep: CapabilitySet) -> io::Result<()> {
    for capability in CapabilitySet::all().iter().filter(|capability| !keep.intersects(*capability)) {
        drop_from_bounding_set(capability)?;
    }
    let permitted = rustix::thread::capabilities(None)?.permitted & keep;
    // Emptying the inheritable set empties the ambient set too.
    let sets = CapabilitySets { effective: permitted, permitted, inheritable: CapabilitySet::empty() };
    Ok(rustix::thread::set_capabilities(None, sets)?)
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
            keep_capabilities(CapabilitySet::NET_ADMIN).expect("first");
            assert_eq!(effective_capabilities().expect("capget"), held & CapabilitySet::NET_ADMIN);
            keep_capabilities(CapabilitySet::all()).expect("second");
            assert_eq!(effective_capabilities().expect("capget"), held & CapabilitySet::NET_ADMIN);
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
