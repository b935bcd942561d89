//! Classic BPF on sockets: what a socket does not get to see.

use std::{io, os::fd::AsFd};

use crate::option::set_option;

/// Instructions that a program may have (`BPF_MAXINSNS`).
pub const MOST_INSTRUCTIONS: usize = 4096;

/// One instruction of a program of classic BPF.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Instruction {
    code: u16,
    /// How many to leave out when a test fails.
    skip: u8,
    value: u32,
}

impl Instruction {
    /// Loads the 32-bit word at so many octets behind the beginning of the IP header.
    pub const fn load_ip(offset: u16) -> Self {
        Self::new(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, (libc::SKF_NET_OFF + offset as i32) as u32)
    }

    /// Keeps these bits of what was loaded.
    pub const fn and(bits: u32) -> Self {
        Self::new(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0, bits)
    }

    /// Goes on if that is this, and otherwise behind so many instructions.
    pub const fn equal_or_skip(value: u32, skip: u8) -> Self {
        Self::new(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, skip, value)
    }

    /// Ends: the packet is taken.
    pub const TAKE: Self = Self::new(libc::BPF_RET | libc::BPF_K, 0, u32::MAX);
    /// Ends: there was no packet.
    pub const DROP: Self = Self::new(libc::BPF_RET | libc::BPF_K, 0, 0);

    const fn new(code: u32, skip: u8, value: u32) -> Self {
        Self { code: code as u16, skip, value }
    }

    fn as_told(self) -> libc::sock_filter {
        libc::sock_filter { code: self.code, jt: 0, jf: self.skip, k: self.value }
    }
}

/// Has a socket see only the packets that the program takes, in place of the program before; at a listening socket of TCP
/// that is before anything is answered. Sockets that are accepted there have it for ever.
///
/// # Errors
/// `EINVAL` for a program that does not end, has no instructions or too many, `ENOMEM` when it is longer than the sysctl
/// net.core.optmem_max allows.
pub fn set_filter(socket: impl AsFd, program: &[Instruction]) -> io::Result<()> {
    let length = u16::try_from(program.len()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    let mut filters: Vec<libc::sock_filter> =
        program.iter().map(|instruction| instruction.as_told()).collect();
    let program = libc::sock_fprog { len: length, filter: filters.as_mut_ptr() };
    // The kernel copies what is at the pointer, `length` instructions, before it returns.
    set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn a_socket_sees_what_its_program_takes() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("bound");
        let to = socket.local_addr().expect("an address");
        let send = |from: &str, octet: u8| {
            let socket = UdpSocket::bind(from).expect("bound");
            socket.send_to(&[octet], to).expect("sent");
        };
        let from_two = [
            Instruction::load_ip(12),
            Instruction::equal_or_skip(0x7f00_0002, 1),
            Instruction::TAKE,
            Instruction::DROP,
        ];
        set_filter(&socket, &from_two).expect("taken");
        send("127.0.0.3:0", 3);
        send("127.0.0.2:0", 2);
        let mut octet = [0];
        socket.recv(&mut octet).expect("one came");
        assert_eq!(octet, [2]);
        let endless = set_filter(&socket, &from_two[..2]).expect_err("it has no end");
        assert_eq!(endless.raw_os_error(), Some(libc::EINVAL));
    }
}
