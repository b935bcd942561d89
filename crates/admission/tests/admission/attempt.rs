//! Attempts, as listeners would have them.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use holdfast_admission::{AddressProof, Attempt, Hello, Load};

/// What a first flight says, owned.
#[derive(Clone, Debug)]
pub(crate) enum Says {
    /// Protocols as in the extension, and a server.
    Asks(&'static [u8], Option<&'static str>),
    Part,
    Nothing,
}

#[derive(Clone, Debug)]
pub(crate) struct Try {
    pub(crate) from: IpAddr,
    /// Of a link-local address.
    pub(crate) scope: u32,
    pub(crate) proof: AddressProof,
    pub(crate) can_retry: bool,
    pub(crate) says: Says,
    /// It says that later.
    pub(crate) awaits_hello: bool,
    pub(crate) handshakes: usize,
    /// How often it was looked at.
    pub(crate) looks: usize,
}

impl Try {
    /// The first flight of QUIC.
    pub(crate) fn quic(from: &str) -> Self {
        Self {
            from: from.parse().expect("an address"),
            scope: 0,
            proof: AddressProof::None,
            can_retry: true,
            says: Says::Asks(b"\x04qbgp", None),
            awaits_hello: false,
            handshakes: 0,
            looks: 0,
        }
    }

    /// The same, after a Retry.
    pub(crate) fn quic_again(from: &str) -> Self {
        Self { proof: AddressProof::Token, can_retry: false, ..Self::quic(from) }
    }

    pub(crate) fn tcp(from: &str) -> Self {
        Self { proof: AddressProof::Handshake, can_retry: false, says: Says::Nothing, ..Self::quic(from) }
    }

    pub(crate) fn says(self, says: Says) -> Self {
        Self { says, ..self }
    }

    /// TLS over TCP, before its first octet.
    pub(crate) fn tls(from: &str) -> Self {
        Self { says: Says::Part, awaits_hello: true, ..Self::tcp(from) }
    }

    pub(crate) fn among(self, handshakes: usize) -> Self {
        Self { handshakes, ..self }
    }
}

impl Attempt for Try {
    fn remote(&self) -> SocketAddr {
        match self.from {
            IpAddr::V4(_) => SocketAddr::new(self.from, 50_000),
            IpAddr::V6(address) => SocketAddrV6::new(address, 50_000, 0, self.scope).into(),
        }
    }

    fn local(&self) -> Option<IpAddr> {
        None
    }

    fn proof(&self) -> AddressProof {
        self.proof
    }

    fn can_retry(&self) -> bool {
        self.can_retry
    }

    fn awaits_hello(&self) -> bool {
        self.awaits_hello
    }

    fn hello(&mut self) -> Hello<'_> {
        self.looks += 1;
        match self.says {
            Says::Asks(alpn, server_name) => Hello::Known { alpn, server_name },
            Says::Part => Hello::Incomplete,
            Says::Nothing => Hello::Unsupported,
        }
    }

    fn load(&self) -> Load {
        Load { handshakes: self.handshakes, connections: 0 }
    }
}
