//! Ethernet frames of one's own making (packet(7)).

use std::{
    io,
    os::fd::{AsFd, AsRawFd},
};

/// Sends a frame, which begins with its Ethernet header, out of an interface, over a raw socket of AF_PACKET.
///
/// # Errors
/// As `sendto`: `ENXIO` where there is no such interface, `ENETDOWN` where it is down.
pub fn send(socket: impl AsFd, interface: u32, frame: &[u8]) -> io::Result<()> {
    let to = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        // The frame says all of this itself.
        sll_protocol: 0,
        sll_ifindex: i32::try_from(interface).map_err(io::Error::other)?,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    // SAFETY: frame and address are read as far as they are long, and live as long as the call.
    let sent = unsafe {
        libc::sendto(
            socket.as_fd().as_raw_fd(),
            frame.as_ptr().cast(),
            frame.len(),
            libc::MSG_DONTWAIT,
            (&raw const to).cast(),
            size_of_val(&to) as u32,
        )
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
