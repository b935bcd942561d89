//! Ethernet interfaces whose wire is a descriptor (TAP, `Documentation/networking/tuntap.rst` of Linux).

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
};

use rustix::fs::{Mode, OFlags, open};

use crate::option::check;

/// Makes an interface of this name, in the network namespace of the calling thread. It is down, and goes with the descriptor.
/// What the kernel sends by it is read there, one frame at a time, and what is written there has come in. Nothing waits.
///
/// # Errors
/// `EINVAL` for a name that is too long or has an octet of zero in it; those of opening `/dev/net/tun` and of `TUNSETIFF`:
/// `EPERM` without CAP_NET_ADMIN, `EBUSY` if there is one.
pub fn open_tap(name: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    if name.len() >= libc::IFNAMSIZ || name.contains('\0') {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let descriptor = open("/dev/net/tun", flags, Mode::empty())?;
    let mut ifr_name = [0; libc::IFNAMSIZ];
    for (to, from) in ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    let ifr_ifru =
        libc::__c_anonymous_ifr_ifru { ifru_flags: (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short };
    let mut request = libc::ifreq { ifr_name, ifr_ifru };
    // SAFETY: TUNSETIFF reads and writes one `ifreq`, which outlives the call; its name ends with a zero.
    check(unsafe { libc::ioctl(descriptor.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) })?;
    Ok(descriptor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_no_interface_can_have_is_refused() {
        for name in ["0123456789abcdef", "a\0b"] {
            assert_eq!(open_tap(name).expect_err(name).raw_os_error(), Some(libc::EINVAL));
        }
    }
}
