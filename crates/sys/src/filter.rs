//! Classic BPF on sockets: what a socket does not get to see.

use std::{io, os::fd::AsFd};

use crate::option::set_option;

/// Instructions that a program may have (`BPF_MAXINSNS`).
pub const MOST_INSTRUCTIONS: usize = 4096;

/// One instruction of a program of classic BPF. Jumps lead forward, past so many of the instructions behind them.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Instruction {
    /// Loads the 32-bit word at so many octets behind the beginning of the IP header.
    LoadWord(u16),
    /// Loads the octet there.
    LoadOctet(u16),
    /// Whether what was loaded is the value.
    Equal {
        /// What it may be.
        value: u32,
        /// How far to jump then.
        yes: u8,
        /// And else.
        no: u8,
    },
    /// Whether what was loaded is the value or more.
    AtLeast {
        /// The least of those.
        value: u32,
        /// How far to jump then.
        yes: u8,
        /// And else.
        no: u8,
    },
    /// Loads the octet at so many behind the header of UDP, in a program that [steers](set_steering); at a netlink socket
    /// the octet at so many behind the beginning of the message.
    Payload(u16),
    /// At a netlink socket: loads the 16-bit number there, most significant octet first.
    MessageHalf(u16),
    /// At a netlink socket: loads the 32-bit number there, most significant octet first.
    MessageWord(u16),
    /// Loads the value itself.
    Value(u32),
    /// Sets the index register.
    Index(u32),
    /// At a netlink socket: of the attributes that begin at so many octets as are loaded, loads where the one begins whose
    /// type the index register has; 0 when there is none.
    FindAttribute,
    /// Sets the index register to what is loaded.
    ToIndex,
    /// At a netlink socket: loads the 32-bit number at so many octets behind the index register.
    WordAtIndex(u16),
    /// Leaves these bits of what is loaded.
    And(u32),
    /// Jumps.
    Jump(u32),
    /// Ends: the packet is taken.
    Take,
    /// Ends: there was no packet.
    Drop,
    /// Of a program that [steers](set_steering): ends, the packet is for this socket.
    Select(u32),
}

impl Instruction {
    fn as_told(self) -> libc::sock_filter {
        let ip = |offset: u16| (libc::SKF_NET_OFF + i32::from(offset)) as u32;
        let (code, jt, jf, k) = match self {
            Self::LoadWord(offset) => (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, ip(offset)),
            Self::LoadOctet(offset) => (libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, 0, ip(offset)),
            Self::Payload(offset) => (libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, 0, u32::from(offset)),
            Self::MessageHalf(offset) => {
                (libc::BPF_LD | libc::BPF_H | libc::BPF_ABS, 0, 0, u32::from(offset))
            }
            Self::MessageWord(offset) => {
                (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, u32::from(offset))
            }
            Self::Value(value) => (libc::BPF_LD | libc::BPF_IMM, 0, 0, value),
            Self::Index(value) => (libc::BPF_LDX | libc::BPF_IMM, 0, 0, value),
            Self::FindAttribute => {
                let find = (libc::SKF_AD_OFF + libc::SKF_AD_NLATTR) as u32;
                (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, find)
            }
            Self::ToIndex => (libc::BPF_MISC | libc::BPF_TAX, 0, 0, 0),
            Self::WordAtIndex(offset) => {
                (libc::BPF_LD | libc::BPF_W | libc::BPF_IND, 0, 0, u32::from(offset))
            }
            Self::And(bits) => (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0, 0, bits),
            Self::Equal { value, yes, no } => (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, yes, no, value),
            Self::AtLeast { value, yes, no } => (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, yes, no, value),
            Self::Jump(far) => (libc::BPF_JMP | libc::BPF_JA, 0, 0, far),
            Self::Take => (libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX),
            Self::Drop => (libc::BPF_RET | libc::BPF_K, 0, 0, 0),
            Self::Select(socket) => (libc::BPF_RET | libc::BPF_K, 0, 0, socket),
        };
        libc::sock_filter { code: code as u16, jt, jf, k }
    }
}

/// Has a socket see only the packets that the program takes, in place of the program before; at a listening socket of TCP
/// that is before anything is answered. Sockets that are accepted there have it for ever. Needs no rights.
///
/// # Errors
/// `EINVAL` for a program that does not end, has no instructions or too many, `ENOMEM` when it is longer than the sysctl
/// net.core.optmem_max allows.
pub fn set_filter(socket: impl AsFd, program: &[Instruction]) -> io::Result<()> {
    attach(socket, libc::SO_ATTACH_FILTER, program)
}

/// Has a socket keep the program that it has: from now on whoever has the socket, also with all rights, can neither replace
/// it nor take it away (`SO_LOCK_FILTER`).
///
/// # Errors
/// Those of `setsockopt`.
pub fn lock_filter(socket: impl AsFd) -> io::Result<()> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_LOCK_FILTER, &(1 as libc::c_int))
}

/// Has the kernel ask the program which of the UDP sockets that share one port gets a datagram, in place of the
/// program before. They are numbered from 0 in the order in which they were bound; when one is closed the last one
/// takes its number. A number that no socket has leaves the choice to the kernel. Needs no rights.
///
/// # Errors
/// `EINVAL` where the socket shares its port with none (`SO_REUSEPORT`), and as [`set_filter`].
pub fn set_steering(socket: impl AsFd, program: &[Instruction]) -> io::Result<()> {
    attach(socket, libc::SO_ATTACH_REUSEPORT_CBPF, program)
}

fn attach(socket: impl AsFd, option: libc::c_int, program: &[Instruction]) -> io::Result<()> {
    let length = u16::try_from(program.len()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    let mut filters: Vec<libc::sock_filter> =
        program.iter().map(|instruction| instruction.as_told()).collect();
    let program = libc::sock_fprog { len: length, filter: filters.as_mut_ptr() };
    // The kernel copies what is at the pointer, `length` instructions, before it returns.
    set_option(socket, libc::SOL_SOCKET, option, &program)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn a_socket_sees_what_its_program_takes() {
        use Instruction as I;
        let socket = UdpSocket::bind("127.0.0.1:0").expect("bound");
        let to = socket.local_addr().expect("an address");
        let send = |from: &str, octet: u8| {
            let socket = UdpSocket::bind(from).expect("bound");
            socket.send_to(&[octet], to).expect("sent");
        };
        let near = [
            I::LoadOctet(8),
            I::AtLeast { value: 64, yes: 0, no: 3 },
            I::LoadWord(12),
            I::Equal { value: 0x7f00_0002, yes: 0, no: 1 },
            I::Jump(1),
            I::Drop,
            I::Take,
        ];
        set_filter(&socket, &near).expect("taken");
        send("127.0.0.3:0", 3);
        send("127.0.0.2:0", 2);
        let mut octet = [0];
        socket.recv(&mut octet).expect("one came");
        assert_eq!(octet, [2]);
        let endless = set_filter(&socket, &near[..3]).expect_err("it has no end");
        assert_eq!(endless.raw_os_error(), Some(libc::EINVAL));
    }

    #[test]
    fn a_locked_program_stays_for_good() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("bound");
        set_filter(&socket, &[Instruction::Drop]).expect("taken");
        set_filter(&socket, &[Instruction::Take]).expect("another one");
        lock_filter(&socket).expect("locked");
        let number = |result: io::Result<()>| result.expect_err("it is locked").raw_os_error();
        let set = |option, value: libc::c_int| set_option(&socket, libc::SOL_SOCKET, option, &value);
        assert_eq!(number(set_filter(&socket, &[Instruction::Drop])), Some(libc::EPERM));
        assert_eq!(number(set(libc::SO_DETACH_FILTER, 0)), Some(libc::EPERM));
        assert_eq!(number(set(libc::SO_LOCK_FILTER, 0)), Some(libc::EPERM));
    }
}
