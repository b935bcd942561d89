//! Pairs of connected stream sockets (`socketpair`, AF_UNIX): what was put in at the other end, and who still has it.
//!
//! The kernel does not count what has gone through a pair. Whoever carries octets to it and from it counts; these are the
//! octets under way inside.

use std::{io, os::fd::AsFd};

use rustix::event::{PollFd, PollFlags, Timespec};

use crate::tcp;

/// Octets that were put in at the other end, and that nobody has taken out at this one.
///
/// # Errors
/// `EINVAL` for a listening socket.
pub fn unread(socket: impl AsFd) -> io::Result<u32> {
    tcp::unread(socket)
}

/// Memory of what was put in at this end and was not taken out at the other: 0 when that is nothing, otherwise at least its
/// octets.
///
/// # Errors
/// `EINVAL` for a listening socket.
pub fn occupied(socket: impl AsFd) -> io::Result<u32> {
    tcp::unacknowledged(socket)
}

/// Whether no process has the other end any more.
///
/// # Errors
/// Those of `poll`.
pub fn is_abandoned(socket: impl AsFd) -> io::Result<bool> {
    // That it hangs up is told whatever is asked for.
    let mut polled = [PollFd::new(&socket, PollFlags::empty())];
    rustix::event::poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    Ok(polled[0].revents().contains(PollFlags::HUP))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{Read, Write},
        net::Shutdown,
        os::unix::net::UnixStream,
    };

    #[test]
    fn what_nobody_has_taken_out_counts_to_the_octet() {
        let (mut ours, mut theirs) = UnixStream::pair().expect("sockets");
        assert_eq!(unread(&ours).expect("FIONREAD"), 0);
        theirs.write_all(&[7; 1000]).expect("write");
        theirs.write_all(&[7; 19]).expect("write");
        assert_eq!(unread(&ours).expect("FIONREAD"), 1019);
        ours.read_exact(&mut [0; 400]).expect("read");
        assert_eq!(unread(&ours).expect("within what was written at once"), 619);
        drop(theirs);
        assert_eq!(unread(&ours).expect("whoever put it in has gone"), 619);
        ours.read_exact(&mut [0; 619]).expect("read");
        assert_eq!((ours.read(&mut [0; 1]).expect("end"), unread(&ours).expect("FIONREAD")), (0, 0));
    }

    #[test]
    fn what_was_put_in_is_under_way_until_it_is_taken_out() {
        let (mut ours, mut theirs) = UnixStream::pair().expect("sockets");
        assert_eq!(occupied(&ours).expect("SIOCOUTQ"), 0);
        ours.write_all(&[7; 5000]).expect("write");
        assert!(occupied(&ours).expect("SIOCOUTQ") >= 5000);
        theirs.read_exact(&mut [0; 4999]).expect("read");
        assert!(occupied(&ours).expect("one is left") > 0);
        theirs.read_exact(&mut [0; 1]).expect("read");
        assert_eq!(occupied(&ours).expect("SIOCOUTQ"), 0);
    }

    #[test]
    fn an_end_that_only_writes_no_more_is_not_gone() {
        let (ours, theirs) = UnixStream::pair().expect("sockets");
        assert!(!is_abandoned(&ours).expect("poll"));
        theirs.shutdown(Shutdown::Write).expect("shutdown");
        assert!(!is_abandoned(&ours).expect("poll"));
        let copy = theirs.try_clone().expect("a copy");
        drop(theirs);
        assert!(!is_abandoned(&ours).expect("somebody has it"));
        drop(copy);
        assert!(is_abandoned(&ours).expect("poll"));
    }
}
