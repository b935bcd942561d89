//! Descriptors that a process was born with.

use std::{
    io,
    os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd},
    sync::atomic::{AtomicU64, Ordering},
};

/// Numbers that have been taken: each has one owner.
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// Takes ownership of a descriptor inherited at a fixed number (3 to 63) and keeps it from children.
///
/// # Errors
/// `EBADF` when the number is not open or out of range, `EBUSY` when it has been taken before. The caller
/// must ask before it opens anything else: a number that was not inherited may be given to a new file.
pub fn take_inherited(number: RawFd) -> io::Result<OwnedFd> {
    if !(3..64).contains(&number) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: the borrow ends with this call, and fcntl on a number that is not open is a plain EBADF.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    rustix::io::fcntl_setfd(borrowed, rustix::io::FdFlags::CLOEXEC)?;
    if TAKEN.fetch_or(1 << number, Ordering::Relaxed) & 1 << number != 0 {
        return Err(rustix::io::Errno::BUSY.into());
    }
    // SAFETY: the descriptor is open (fcntl said so), and `TAKEN` lets each number out only once.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_number_is_taken_once_and_hidden_from_children() {
        let (end, _other) = rustix::pipe::pipe().expect("pipe");
        let inherited = rustix::io::fcntl_dupfd_cloexec(&end, 40).expect("dup");
        let number = inherited.as_raw_fd();
        std::mem::forget(inherited);
        let taken = take_inherited(number).expect("open");
        assert_eq!(taken.as_raw_fd(), number);
        assert!(rustix::io::fcntl_getfd(&taken).expect("open").contains(rustix::io::FdFlags::CLOEXEC));
        assert_eq!(take_inherited(number).expect_err("twice").raw_os_error(), Some(libc::EBUSY));
    }

    #[test]
    fn what_is_not_open_or_not_ours_is_refused() {
        assert_eq!(take_inherited(63).expect_err("closed").raw_os_error(), Some(libc::EBADF));
        assert!(take_inherited(1).is_err() && take_inherited(64).is_err() && take_inherited(-1).is_err());
    }
}
