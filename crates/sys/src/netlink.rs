//! Options of netlink sockets (netlink(7)).

use std::{io, os::fd::AsFd};

use crate::option::set_option;

/// Refusals repeat only the header of the request (`NETLINK_CAP_ACK`) and say why in words (`NETLINK_EXT_ACK`);
/// dumps are filtered by what the request asks for (`NETLINK_GET_STRICT_CHK`).
///
/// # Errors
/// Those of `setsockopt`: a kernel before 4.20, another sort of socket.
pub fn set_strict(socket: impl AsFd) -> io::Result<()> {
    [libc::NETLINK_CAP_ACK, libc::NETLINK_EXT_ACK, libc::NETLINK_GET_STRICT_CHK]
        .into_iter()
        .try_for_each(|option| set_option(&socket, libc::SOL_NETLINK, option, &1_i32))
}

/// Subscribes to a multicast group by its number.
///
/// # Errors
/// Those of `setsockopt`.
pub fn join_group(socket: impl AsFd, group: u32) -> io::Result<()> {
    set_option(socket, libc::SOL_NETLINK, libc::NETLINK_ADD_MEMBERSHIP, &group)
}
