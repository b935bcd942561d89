//! First flights of clients that never go on: real ClientHellos in Initials that cost next to nothing to make.

use std::{
    io::ErrorKind,
    net::{SocketAddr, UdpSocket},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use holdfast_lab::attacks::initial::{INITIAL, Initial, length};
use holdfast_tls::{
    ALPN_QUIC, PeerTls,
    rustls::quic::{ClientConnection, Version},
};

/// Connection id of all these clients (RFC 9000 section 17.2).
const SOURCE: [u8; 8] = *b"anybody!";
/// So long it is listened for answers when none may come any more, and so long at all: some are sent again for seconds.
const QUIET: Duration = Duration::from_millis(300);
const LONGEST: Duration = Duration::from_secs(1);

/// What they begin with.
#[derive(Clone)]
pub(crate) struct Flight(Vec<u8>);

/// What a server has answered with a Retry (RFC 9000 section 17.2.5).
#[derive(Clone)]
pub(crate) struct Retry {
    /// Where the next Initial goes to.
    pub(crate) destination: Vec<u8>,
    /// What it has to have with it.
    pub(crate) token: Vec<u8>,
}

impl Flight {
    /// The ClientHello of somebody who speaks BGP over QUIC.
    pub(crate) fn new(tls: &PeerTls) -> Result<Self> {
        // The one transport parameter that there has to be: initial_source_connection_id.
        let parameters = [&[0x0f, SOURCE.len() as u8], &SOURCE[..]].concat();
        let config = Arc::clone(&tls.client(ALPN_QUIC));
        let mut client = ClientConnection::new(config, Version::V1, tls.server_name(), parameters)?;
        let mut hello = Vec::new();
        client.write_hs(&mut hello);
        // CRYPTO at offset 0.
        Ok(Self([&[0x06, 0], &length(hello.len())[..], &hello].concat()))
    }

    /// As the first packet of the attempt with this connection id; of different ones each is another attempt.
    pub(crate) fn attempt(&self, id: &[u8], token: &[u8]) -> Result<Vec<u8>> {
        Initial { key: id, destination: id, source: &SOURCE, token, frames: &self.0 }.seal()
    }

    /// The number of an attempt as its connection id.
    pub(crate) fn numbered(&self, number: u32) -> Result<Vec<u8>> {
        self.attempt(&[&[0x5a; 4], &number.to_be_bytes()[..]].concat(), &[])
    }
}

impl Retry {
    /// If the datagram is one, and whole.
    pub(crate) fn read(datagram: &[u8]) -> Option<Self> {
        let is_retry = datagram.first().is_some_and(|first| first & 0xf0 == 0xf0);
        // Behind first octet and version: our connection id, the server's, the token, and 16 octets of a tag.
        let rest = datagram.get(5..).filter(|_| is_retry)?;
        let (_, rest) = rest.split_first().and_then(|(ours, rest)| rest.split_at_checked((*ours).into()))?;
        let (destination, rest) =
            rest.split_first().and_then(|(own, rest)| rest.split_at_checked((*own).into()))?;
        let token = rest.get(..rest.len().checked_sub(16)?)?;
        Some(Self { destination: destination.to_vec(), token: token.to_vec() })
    }
}

/// A socket that counts.
pub(crate) struct Nobody {
    socket: UdpSocket,
    pub(crate) sent: usize,
    pub(crate) heard: usize,
}

impl Nobody {
    /// At this address, towards the router.
    pub(crate) fn new(from: SocketAddr, to: SocketAddr) -> Result<Self> {
        let socket = UdpSocket::bind(from)?;
        socket.connect(to)?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, sent: 0, heard: 0 })
    }

    pub(crate) fn say(&mut self, datagram: &[u8]) -> Result<()> {
        self.sent += self.socket.send(datagram)?;
        Ok(())
    }

    /// What has come, if anything.
    pub(crate) fn hear(&mut self) -> Result<Option<Vec<u8>>> {
        let mut datagram = vec![0; 2048];
        match self.socket.recv(&mut datagram) {
            Ok(length) => {
                self.heard += length;
                datagram.truncate(length);
                Ok(Some(datagram))
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error).context("the router's host says that nobody listens"),
        }
    }

    /// Waits for an answer.
    pub(crate) fn answer(&mut self) -> Result<Vec<u8>> {
        let mut answer = self.hear()?;
        let begin = Instant::now();
        while answer.is_none() {
            ensure!(begin.elapsed() < crate::abuse::LIMIT, "no answer");
            std::thread::sleep(Duration::from_millis(1));
            answer = self.hear()?;
        }
        answer.context("an answer")
    }

    /// Hears all that still comes, and that it has never been more than three times what was said (RFC 9000 section 8.1).
    pub(crate) fn ensure_not_amplified(&mut self) -> Result<()> {
        let begin = Instant::now();
        let mut last = begin;
        while last.elapsed() < QUIET && begin.elapsed() < LONGEST {
            match self.hear()? {
                Some(_) => last = Instant::now(),
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
        ensure!(self.heard <= 3 * self.sent, "{} octets for {}", self.heard, self.sent);
        Ok(())
    }

    /// Hears that nothing comes, and nothing has.
    pub(crate) fn ensure_unanswered(&mut self) -> Result<()> {
        self.ensure_not_amplified()?;
        ensure!(self.heard == 0, "{} octets for {}", self.heard, self.sent);
        Ok(())
    }
}

/// Sends as many first flights, numbered from `first` on, as fast as somebody else has time to take them.
pub(crate) fn flood(nobody: &mut Nobody, flight: &Flight, first: u32, count: u32) -> Result<()> {
    /// At a time, and how long until the next.
    const VOLLEY: u32 = 20;
    const PAUSE: Duration = Duration::from_millis(4);
    for number in first..first + count {
        let datagram = flight.numbered(number)?;
        debug_assert_eq!(datagram.len(), INITIAL);
        nobody.say(&datagram)?;
        while nobody.hear()?.is_some() {}
        if number % VOLLEY == 0 {
            std::thread::sleep(PAUSE);
        }
    }
    Ok(())
}
