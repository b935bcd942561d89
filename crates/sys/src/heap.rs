//! What the allocator holds: glibc keeps memory that was freed, if there is any in use behind it.

/// What was allocated from the kernel for this process's heaps, in octets.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Heap {
    /// In use.
    pub used: usize,
    /// Freed; [`give_back`] has given some of it back, or not.
    pub free: usize,
}

/// As the allocator counts, of all its arenas. It looks at each free piece larger than those of the smallest sizes.
#[cfg(target_env = "gnu")]
pub fn heap() -> Heap {
    // SAFETY: it takes nothing and returns numbers by value.
    let info = unsafe { libc::mallinfo2() };
    Heap { used: info.uordblks, free: info.fordblks }
}

/// Has the kernel take every whole page back in which nothing is in use. The addresses stay the allocator's.
#[cfg(target_env = "gnu")]
pub fn give_back() {
    // SAFETY: it takes a number, and what is in use stays as it is.
    unsafe { libc::malloc_trim(0) };
}

/// Octets of pages that the kernel has given this process since it began: those that were given back and are in use again count
/// again, and so does what is no heap.
pub fn touched() -> usize {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel writes a `rusage` there, of which all octets were zero before: it is one either way.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    usize::try_from(usage.ru_minflt).unwrap_or(0).saturating_mul(rustix::param::page_size())
}

/// Has all threads that begin later use the heap of the first one: what one has allocated and another frees is a gap in one
/// heap, and not in each. They wait for each other when they allocate.
#[cfg(target_env = "gnu")]
pub fn share() {
    // SAFETY: it takes numbers, and what is in use stays as it is.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}

/// Nothing to do.
#[cfg(not(target_env = "gnu"))]
pub fn share() {}

/// Other allocators give back by themselves.
#[cfg(not(target_env = "gnu"))]
pub fn heap() -> Heap {
    Heap { used: 0, free: 0 }
}

/// Nothing to do.
#[cfg(not(target_env = "gnu"))]
pub fn give_back() {}

#[cfg(test)]
mod tests {
    use super::*;

    const INSIDE: &str = "HOLDFAST_HEAP_TEST";

    #[test]
    fn what_was_freed_before_something_in_use_is_given_back() {
        if std::env::var_os(INSIDE).is_some() {
            return frees_and_gives_back();
        }
        // In a process of its own: tests beside it in this one allocate and free as well.
        let test = "heap::tests::what_was_freed_before_something_in_use_is_given_back";
        let own = std::env::current_exe().expect("a path");
        let ran = std::process::Command::new(own).args(["--exact", test]).env(INSIDE, "1").output();
        let ran = ran.expect("it ran");
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stdout));
        assert!(String::from_utf8_lossy(&ran.stdout).contains("1 passed"), "the name is right");
    }

    fn frees_and_gives_back() {
        let resident = || {
            let text = std::fs::read_to_string("/proc/self/statm").expect("statm");
            let pages: usize = text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number");
            pages * 4096
        };
        let before = heap();
        let pieces: Vec<Vec<u8>> = (0..4096).map(|_| vec![1; 16 << 10]).collect();
        let last = Box::new([2_u8; 64]);
        assert!(heap().used >= before.used + (64 << 20));
        drop(pieces);
        let freed = heap();
        assert!(freed.free >= before.free + (63 << 20), "{freed:?}, before {before:?}");
        let most = resident();
        give_back();
        assert!(resident() + (60 << 20) <= most, "{} of {most} octets are left", resident());
        assert_eq!(last[63], 2);
    }
}
