//! What is known of an attempt over TCP, and over TLS on it.

use std::{
    io,
    net::{IpAddr, SocketAddr},
};

use holdfast_admission::{AddressProof, Attempt, Hello, Load};
use holdfast_tls_wire::{Reassembly, peek_records};
use rustix::net::{RecvFlags, recv};
use tokio::{io::Interest, net::TcpStream};

use crate::{Gate, Protocol};

/// Octets of a first flight that are looked at: a ClientHello with a key of ML-KEM has less than 2 KiB.
const MOST_HELLO: usize = 4096;
/// ContentType handshake (RFC 8446 section 5.1). BGP begins with 255.
const HANDSHAKE: u8 = 22;

/// What somebody says first, as far as it is here. It stays in the kernel, for whoever reads it.
#[derive(Default)]
pub(crate) struct FirstFlight {
    octets: Vec<u8>,
    pieces: Reassembly,
}

impl FirstFlight {
    /// Waits until it can be judged, or until no more of it comes. Given up at any time, what is here can be looked at.
    pub(crate) async fn arrives(&mut self, stream: &TcpStream) {
        while let Ok(ready) = stream.ready(Interest::READABLE).await {
            let looked = stream.try_io(Interest::READABLE, || {
                self.look(stream)?;
                // For more octets, the kernel says again that there are some.
                if self.is_enough() { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
            });
            match looked {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && !ready.is_read_closed() => {}
                Ok(()) | Err(_) => return,
            }
        }
    }

    /// Takes a look at what is here now.
    fn look(&mut self, stream: &TcpStream) -> io::Result<()> {
        let mut octets = [0; MOST_HELLO];
        let (_, length) = recv(stream, &mut octets[..], RecvFlags::PEEK | RecvFlags::DONTWAIT)?;
        self.octets.clear();
        self.octets.extend_from_slice(&octets[..length]);
        Ok(())
    }

    /// Whether more of it would say nothing new, or is not looked at.
    fn is_enough(&mut self) -> bool {
        self.octets.len() == MOST_HELLO || self.hello() != Hello::Incomplete
    }

    /// Whether TLS comes. Silence is not TLS.
    pub(crate) fn is_of_tls(&self) -> bool {
        self.octets.first() == Some(&HANDSHAKE)
    }

    fn hello(&mut self) -> Hello<'_> {
        peek_records(&self.octets, &mut self.pieces).into()
    }
}

/// Which look it is.
pub(crate) enum Look<'a> {
    /// The first: nothing is known but addresses. The gate knows whether TLS may come.
    Address(&'a dyn Gate),
    /// The second.
    Flight(&'a mut FirstFlight),
}

/// A connection that the kernel has completed.
pub(crate) struct TcpAttempt<'a> {
    pub(crate) remote: SocketAddr,
    pub(crate) local: SocketAddr,
    pub(crate) load: Load,
    pub(crate) look: Look<'a>,
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

    fn awaits_hello(&self) -> bool {
        match &self.look {
            Look::Address(gate) => gate.expect(Protocol::Tls, self.remote).is_some(),
            Look::Flight(_) => false,
        }
    }

    fn hello(&mut self) -> Hello<'_> {
        match &mut self.look {
            Look::Address(_) => Hello::Unsupported,
            Look::Flight(flight) => flight.hello(),
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
    use std::time::Duration;

    use tokio::io::AsyncWriteExt;

    use super::*;

    #[test]
    fn an_address_is_what_it_is_at_either_kind_of_socket() {
        let same = |text: &str| canonical(text.parse().expect("an address")).to_string();
        assert_eq!(same("[::ffff:192.0.2.1]:179"), "192.0.2.1:179");
        assert_eq!(same("192.0.2.1:179"), "192.0.2.1:179");
        assert_eq!(same("[fe80::1%3]:179"), "[fe80::1%3]:179");
    }

    /// What is said of somebody who sends these pieces, one after the other as soon as the one before was looked at.
    async fn flight(pieces: &[&[u8]], ends: bool) -> FirstFlight {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let mut client =
            TcpStream::connect(listener.local_addr().expect("an address")).await.expect("connect");
        let (socket, _) = listener.accept().await.expect("accept");
        let mut flight = FirstFlight::default();
        let sending = async {
            for piece in pieces {
                client.write_all(piece).await.expect("write");
                // The other half has its turn.
                tokio::task::yield_now().await;
            }
            if ends {
                client.shutdown().await.expect("FIN");
            }
        };
        let ((), ()) = tokio::join!(sending, flight.arrives(&socket));
        let octets = pieces.concat();
        let mut kept = vec![0; octets.len().min(flight.octets.len())];
        recv(&socket, &mut kept[..], RecvFlags::PEEK).expect("it is still there");
        assert!(octets.starts_with(&kept));
        flight
    }

    fn run(story: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let ended = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), story).await });
        ended.expect("the story hangs");
    }

    /// A ClientHello of so many octets in its record, with ALPN botls.
    fn client_hello(length: usize) -> Vec<u8> {
        let alpn = [0, 16, 0, 8, 0, 6, 5, b'b', b'o', b't', b'l', b's'];
        let padding = length - 9 - 2 - 32 - 1 - 4 - 2 - 2 - alpn.len() - 4;
        let mut hello = vec![3, 3];
        hello.extend([7; 32]);
        hello.extend([0, 0, 2, 0x13, 1, 1, 0]);
        hello.extend(u16::try_from(alpn.len() + 4 + padding).expect("short").to_be_bytes());
        hello.extend(alpn);
        // RFC 7685.
        hello.extend([0, 21]);
        hello.extend(u16::try_from(padding).expect("short").to_be_bytes());
        hello.resize(hello.len() + padding, 0);
        let mut record = vec![22, 3, 1];
        record.extend(u16::try_from(hello.len() + 4).expect("short").to_be_bytes());
        record.extend([1, 0]);
        record.extend(u16::try_from(hello.len()).expect("short").to_be_bytes());
        record.extend(hello);
        assert_eq!(record.len(), length);
        record
    }

    #[test]
    fn a_first_flight_is_waited_for_however_it_is_cut() {
        run(async {
            // 1,800 octets are what a client with ML-KEM sends: two segments.
            for length in [100, 1800, MOST_HELLO] {
                let hello = client_hello(length);
                for size in [1, 3, 1460, hello.len()] {
                    let pieces: Vec<_> = hello.chunks(size).collect();
                    let mut flight = flight(&pieces, false).await;
                    let known = Hello::Known { alpn: b"\x05botls", server_name: None };
                    assert_eq!(flight.hello(), known, "{length} octets by {size}");
                    assert!(flight.is_of_tls());
                }
            }
        });
    }

    #[test]
    fn what_is_no_first_flight_is_not_waited_for() {
        run(async {
            let marker = [0xff; 19];
            let cut = &client_hello(100)[..60];
            let long = client_hello(MOST_HELLO + 100);
            // BGP, by its first octet; the end behind nothing and behind a part; more than is looked at.
            for (octets, ends, says, is_of_tls) in [
                (&marker[..1], false, Hello::Unsupported, false),
                (&marker, false, Hello::Unsupported, false),
                (&[], true, Hello::Incomplete, false),
                (cut, true, Hello::Incomplete, true),
                (&long, false, Hello::Incomplete, true),
            ] {
                let mut flight = flight(&[octets], ends).await;
                assert_eq!(flight.is_of_tls(), is_of_tls, "{}", octets.len());
                assert_eq!(flight.hello(), says, "{}", octets.len());
            }
        });
    }
}
