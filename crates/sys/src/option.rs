//! Socket options by number.

use std::{
    io,
    os::fd::{AsFd, AsRawFd},
};

/// Binds a socket to an interface by its name: it sends and receives there only, and its routes are looked up in the
/// table of the VRF that the interface is or is in (`SO_BINDTODEVICE`).
///
/// # Errors
/// `ENODEV` when there is no such interface, `EPERM` when it is bound already and the caller lacks CAP_NET_RAW (before
/// Linux 5.7 whenever that lacks), `EINVAL` for a name over 15 octets.
pub fn bind_to_device(socket: impl AsFd, name: &str) -> io::Result<()> {
    if name.len() >= libc::IFNAMSIZ {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let mut value = [0_u8; libc::IFNAMSIZ];
    value[..name.len()].copy_from_slice(name.as_bytes());
    set_option(socket, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, &value)
}

/// The priority of what a socket sends (`SO_PRIORITY`), 0 to 6: queues of the kernel may prefer higher ones. To be set after
/// the class of IPv4, which sets it, too.
///
/// # Errors
/// Those of `setsockopt`.
pub fn set_priority(socket: impl AsFd, priority: u8) -> io::Result<()> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_PRIORITY, &libc::c_int::from(priority))
}

/// What was set by [`set_priority`], or by the class of IPv4.
///
/// # Errors
/// Those of `getsockopt`.
pub fn priority(socket: impl AsFd) -> io::Result<u32> {
    let mut priority = 0_u32;
    get_option(socket, libc::SOL_SOCKET, libc::SO_PRIORITY, &mut priority)?;
    Ok(priority)
}

/// The number of the interface that a socket is bound to (`SO_BINDTOIFINDEX`); 0: to none. It stays when the interface has
/// gone.
///
/// # Errors
/// `ENOPROTOOPT` before Linux 5.1.
pub fn bound_to(socket: impl AsFd) -> io::Result<u32> {
    let mut index = 0_u32;
    get_option(socket, libc::SOL_SOCKET, libc::SO_BINDTOIFINDEX, &mut index)?;
    Ok(index)
}

/// What tells the network namespace of a socket from all others that there have been (`SO_NETNS_COOKIE`).
///
/// # Errors
/// `ENOPROTOOPT` before Linux 5.14.
pub fn netns_cookie(socket: impl AsFd) -> io::Result<u64> {
    let mut cookie = 0_u64;
    get_option(socket, libc::SOL_SOCKET, libc::SO_NETNS_COOKIE, &mut cookie)?;
    Ok(cookie)
}

/// How many packets the kernel has dropped at a socket since it was opened (`SO_MEMINFO`, `SK_MEMINFO_DROPS`), modulo 2³²:
/// what its filter or its minimum TTL does not let through, what there is no room for, and at a listener of TCP also
/// connections that cannot be queued. Not what the accepted ones drop.
///
/// # Errors
/// `ENOPROTOOPT` before Linux 4.12.
pub fn kernel_drops(socket: impl AsFd) -> io::Result<u32> {
    // As many as there are of `SK_MEMINFO_*`; the drops are the last.
    let mut memory = [0_u32; 9];
    get_option(socket, libc::SOL_SOCKET, libc::SO_MEMINFO, &mut memory)?;
    Ok(memory[8])
}

/// Reads an option whose value is a number of the kernel's, or some of them.
pub(crate) fn get_option<T: num::Number>(
    socket: impl AsFd,
    level: i32,
    name: i32,
    value: &mut T,
) -> io::Result<()> {
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` octets to numbers of that size, for which all octets will do.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            std::ptr::from_mut(value).cast(),
            &raw mut length,
        )
    };
    check(result)
}

pub(crate) mod num {
    /// All octets are one.
    pub(crate) trait Number {}
    impl Number for u32 {}
    impl Number for u64 {}
    impl<N: Number, const COUNT: usize> Number for [N; COUNT] {}
}

/// Sets an option whose value is a plain struct or number of the kernel's.
pub(crate) fn set_option<T>(socket: impl AsFd, level: i32, name: i32, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel reads `length` octets from a reference to a `T` of that size.
    let result = unsafe {
        libc::setsockopt(socket.as_fd().as_raw_fd(), level, name, std::ptr::from_ref(value).cast(), length)
    };
    check(result)
}

pub(crate) fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::{Instruction, set_filter};
    use std::{
        net::{TcpListener, TcpStream, UdpSocket},
        time::Duration,
    };

    #[test]
    fn a_socket_is_bound_to_an_interface_that_exists() {
        let socket = UdpSocket::bind(("127.0.0.1", 0)).expect("bind");
        let error = |name: &str| bind_to_device(&socket, name).expect_err(name).raw_os_error();
        assert_eq!(error("surely-none-0"), Some(libc::ENODEV));
        assert_eq!(error("0123456789abcdef"), Some(libc::EINVAL));
        assert_eq!(bound_to(&socket).expect("a number"), 0);
        bind_to_device(&socket, "lo").expect("the loopback is there");
        assert_eq!(bound_to(&socket).expect("a number"), 1);
    }

    #[test]
    fn what_a_filter_drops_is_counted_for_datagrams_and_for_connections_that_are_tried() {
        let (datagrams, listener) = (
            UdpSocket::bind("127.0.0.1:0").expect("bound"),
            TcpListener::bind("127.0.0.1:0").expect("bound"),
        );
        let none = [kernel_drops(&datagrams).expect("a count"), kernel_drops(&listener).expect("a count")];
        assert_eq!(none, [0; 2]);
        set_filter(&datagrams, &[Instruction::Drop]).expect("set");
        set_filter(&listener, &[Instruction::Drop]).expect("set");
        let sender = UdpSocket::bind("127.0.0.1:0").expect("bound");
        for _ in 0..3 {
            sender.send_to(b"x", datagrams.local_addr().expect("an address")).expect("sent");
        }
        let called = listener.local_addr().expect("an address");
        TcpStream::connect_timeout(&called, Duration::from_millis(50)).expect_err("no answer");
        assert_eq!(kernel_drops(&datagrams).expect("a count"), 3);
        assert!(kernel_drops(&listener).expect("a count") >= 1);
    }

    #[test]
    fn sockets_of_one_namespace_have_its_cookie() {
        let cookie = || netns_cookie(UdpSocket::bind(("127.0.0.1", 0)).expect("bind")).expect("a cookie");
        let here = cookie();
        assert_eq!(here, cookie());
        let elsewhere = std::thread::scope(|scope| {
            let inside = scope.spawn(|| {
                crate::process::enter_new_network().expect("this test needs root");
                netns_cookie(UdpSocket::bind("0.0.0.0:0").expect("bind")).expect("a cookie")
            });
            inside.join().expect("no panic")
        });
        assert_ne!(here, elsewhere);
    }
}
