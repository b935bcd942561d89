//! What is known of an attempt over TCP, and over TLS on it.

use std::net::{IpAddr, SocketAddr};

use holdfast_admission::{AddressProof, Attempt, Hello, Load};
use holdfast_tls_wire::{Peek, Reassembly, peek_records};
use rustix::net::{RecvFlags, recv};
use tokio::net::TcpStream;

/// Octets of a first flight that are looked at: a ClientHello with a key of ML-KEM has less than 2 KiB.
const MOST_HELLO: usize = 4096;

/// A connection that the kernel has completed and that nobody has seen yet.
pub(crate) struct TcpAttempt<'a> {
    remote: SocketAddr,
    local: SocketAddr,
    load: Load,
    /// Where TLS is to follow.
    socket: Option<&'a TcpStream>,
    octets: Vec<u8>,
    pieces: Reassembly,
}

impl<'a> TcpAttempt<'a> {
    /// With TLS to follow on this socket, if any.
    pub(crate) fn new(
        remote: SocketAddr,
        local: SocketAddr,
        load: Load,
        socket: Option<&'a TcpStream>,
    ) -> Self {
        Self { remote, local, load, socket, octets: Vec::new(), pieces: Reassembly::default() }
    }
}

impl Attempt for TcpAttempt<'_> {
    fn remote(&self) -> SocketAddr {
        self.remote
    }

    fn local(&self) -> Option<IpAddr> {
        Some(self.local.ip())
    }

    fn proof(&self) -> AddressProof {
        AddressProof::Handshake
    }

    fn can_retry(&self) -> bool {
        false
    }

    fn hello(&mut self) -> Hello<'_> {
        let Some(socket) = self.socket else { return Hello::Unsupported };
        self.octets.resize(MOST_HELLO, 0);
        // They stay in the kernel, for the handshake.
        let Ok((_, length)) = recv(socket, &mut self.octets[..], RecvFlags::PEEK | RecvFlags::DONTWAIT)
        else {
            return Hello::Incomplete;
        };
        match peek_records(&self.octets[..length], &mut self.pieces) {
            Ok(Peek::Known(hello)) => Hello::Known { alpn: hello.alpn(), server_name: hello.server_name() },
            Ok(Peek::Incomplete) => Hello::Incomplete,
            // The handshake itself fails with it, and says why.
            Ok(Peek::Other) | Err(_) => Hello::Unsupported,
        }
    }

    fn load(&self) -> Load {
        self.load
    }
}

/// An IPv4 address that an IPv6 socket has seen, as itself.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        ip @ IpAddr::V4(_) => SocketAddr::new(ip, address.port()),
        // Keeps the interface of a link-local address.
        IpAddr::V6(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_what_it_is_at_either_kind_of_socket() {
        let same = |text: &str| canonical(text.parse().expect("an address")).to_string();
        assert_eq!(same("[::ffff:192.0.2.1]:179"), "192.0.2.1:179");
        assert_eq!(same("192.0.2.1:179"), "192.0.2.1:179");
        assert_eq!(same("[fe80::1%3]:179"), "[fe80::1%3]:179");
    }

    #[test]
    fn what_cannot_be_looked_at_is_said_as_that() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime");
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bind");
            let at = listener.local_addr().expect("an address");
            // Nothing at all; a record with the first octet of a ClientHello; a BGP message.
            for (octets, incomplete) in [(&[][..], true), (&[22, 3, 1, 2, 4, 1], true), (&[0xff; 19], false)]
            {
                let client = TcpStream::connect(at).await.expect("connect");
                let (socket, remote) = listener.accept().await.expect("accept");
                if !octets.is_empty() {
                    client.try_write(octets).expect("write");
                    socket.readable().await.expect("they are there");
                }
                let mut attempt = TcpAttempt::new(remote, at, Load::default(), Some(&socket));
                let said = if incomplete { Hello::Incomplete } else { Hello::Unsupported };
                assert_eq!(attempt.hello(), said);
                assert_eq!(attempt.hello(), said, "they are still there");
                assert_eq!(TcpAttempt::new(remote, at, Load::default(), None).hello(), Hello::Unsupported);
            }
        });
    }
}
