//! The TCP family: how two sides that share a secret come to trust a connection.
//!
//! ```text
//! router -> client   hello: 32 octets, new each time
//! client -> router   hello: 32 octets of its own, name, ticket, proof     (name and ticket: one octet of length first)
//! router -> client   hello: proof                                          then calls as over any other family
//! ```
//! A proof is HMAC-SHA-256 over a word for its direction and everything said before it, with the secret as key: the
//! secret never travels, what was overheard is of no use for another connection, and each side knows that the other
//! has it. The ticket is empty for a connection to the Finder; for one to a component it is what the Finder has given.
//! Nothing that follows is encrypted or protected against being changed on the way.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use hmac_sha256::HMAC;
use rustix::rand::{GetRandomFlags, getrandom};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, ToSocketAddrs};

use crate::frame::{HEADER_LEN, Header, Kind};
use crate::{Channel, Link, XrlError};

/// Shortest secret in octets.
pub const SHORTEST_SECRET: usize = 16;
/// Time for the whole beginning of a connection, on either side.
pub(crate) const GREETING_TIME: Duration = Duration::from_secs(5);
/// Most octets of a hello: both variable parts at their longest.
const LONGEST_HELLO: usize = NONCE + 1 + 255 + 1 + 255 + PROOF;
/// Most octets of an error instead of a hello.
const LONGEST_ERROR: usize = 4200;
const NONCE: usize = 32;
const PROOF: usize = 32;
/// A connection is dead when nothing of it has come for about a minute.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 3;

/// What a client and the router share.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// These octets.
    ///
    /// # Errors
    /// `InvalidArgument` when they are fewer than [`SHORTEST_SECRET`].
    pub fn new(octets: impl Into<Vec<u8>>) -> Result<Self, XrlError> {
        let octets = octets.into();
        match octets.len() {
            0..SHORTEST_SECRET => {
                Err(XrlError::invalid_argument(format!("a key has at least {SHORTEST_SECRET} octets")))
            }
            _ => Ok(Self(octets)),
        }
    }

    fn mac(&self, direction: &str, said: &[u8]) -> HMAC {
        let mut mac = HMAC::new(&self.0);
        mac.update(direction);
        mac.update(said);
        mac
    }

    fn proof(&self, direction: &str, said: &[u8]) -> [u8; PROOF] {
        self.mac(direction, said).finalize()
    }

    fn proves(&self, direction: &str, said: &[u8], proof: &[u8; PROOF]) -> bool {
        // Does not tell by the time taken where the difference is.
        self.mac(direction, said).finalize_verify(proof)
    }
}

impl fmt::Debug for Secret {
    /// Never the secret itself: this may go to a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Somebody who may connect over TCP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpClient {
    /// Its name, at most 255 octets.
    pub name: String,
    /// What it may call is decided by this.
    pub role: String,
    /// What it has to know.
    pub secret: Secret,
}

/// Directions of a proof.
const CLIENT: &str = "xrl client";
const ROUTER: &str = "xrl router";

/// What a client has said of itself, not yet believed.
pub(crate) struct Introduction {
    pub(crate) name: String,
    pub(crate) ticket: Vec<u8>,
    /// Both hellos but the proof.
    said: Vec<u8>,
    proof: [u8; PROOF],
}

impl Introduction {
    /// Whether it comes from somebody with this secret.
    pub(crate) fn is_proven(&self, secret: &Secret) -> bool {
        secret.proves(CLIENT, &self.said, &self.proof)
    }

    /// Reads the client's hello.
    fn parse(challenge: &[u8], hello: &[u8]) -> Option<Self> {
        let (part, proof) = hello.split_last_chunk::<PROOF>()?;
        let (name, rest) = text(part.get(NONCE..)?)?;
        let (ticket, rest) = text(rest)?;
        let name = String::from_utf8(name.to_vec()).ok()?;
        let said = [challenge, part].concat();
        rest.is_empty().then(|| Self { name, ticket: ticket.to_vec(), said, proof: *proof })
    }
}

/// What follows its length, and the rest.
fn text(octets: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = octets.split_first()?;
    rest.split_at_checked(usize::from(*len))
}

/// The router's part: asks who is there.
pub(crate) async fn greet(stream: &mut TcpStream) -> Result<Introduction, XrlError> {
    set_keepalive(stream).map_err(lost)?;
    let challenge = nonce()?;
    send(stream, Kind::Hello, &challenge).await?;
    let hello = receive(stream).await?;
    Introduction::parse(&challenge, &hello).ok_or_else(|| XrlError::invalid_argument("a malformed hello"))
}

/// The router's part: shows that it is the router.
pub(crate) async fn welcome(
    stream: &mut TcpStream,
    introduction: &Introduction,
    secret: &Secret,
) -> Result<(), XrlError> {
    send(stream, Kind::Hello, &secret.proof(ROUTER, &introduction.said)).await
}

/// Says why the connection is of no use to the client.
pub(crate) async fn refuse(stream: &mut TcpStream, error: &XrlError) {
    // Who does not read it will see the end of the stream.
    let _ = send(stream, Kind::Error, &error.encode()).await;
    let _ = stream.shutdown().await;
}

/// The way of a client to a router.
#[derive(Clone, Debug)]
pub struct Dialer {
    address: String,
    name: String,
    secret: Secret,
}

impl Dialer {
    /// To a router that listens at this address (host and port) and knows this name and secret.
    pub fn new(address: &str, name: &str, secret: Secret) -> Self {
        Self { address: address.to_owned(), name: name.to_owned(), secret }
    }

    /// A channel to the Finder, or with a ticket to the component that it is for.
    ///
    /// # Errors
    /// `Unavailable` when nobody is there; `Denied` when the router does not take name and secret, or does not know
    /// the secret itself; `Timeout`.
    pub async fn channel(&self, ticket: &[u8]) -> Result<Channel, XrlError> {
        let late = |_| Err(XrlError::timeout(format!("{} does not answer", self.address)));
        let stream =
            tokio::time::timeout(GREETING_TIME, self.introduce(ticket)).await.unwrap_or_else(late)?;
        let link = stream.into_std().and_then(|stream| Link::tcp(stream.into())).map_err(lost)?;
        Ok(Channel::over(link))
    }

    async fn introduce(&self, ticket: &[u8]) -> Result<TcpStream, XrlError> {
        let mut stream = connect(&self.address).await?;
        let challenge = receive(&mut stream).await?;
        let mut hello = nonce()?.to_vec();
        for part in [self.name.as_bytes(), ticket] {
            let len = u8::try_from(part.len()).map_err(|_| XrlError::invalid_argument("a name too long"))?;
            hello.push(len);
            hello.extend_from_slice(part);
        }
        let said = [challenge.as_slice(), &hello].concat();
        hello.extend_from_slice(&self.secret.proof(CLIENT, &said));
        send(&mut stream, Kind::Hello, &hello).await?;
        let proof = receive(&mut stream).await?;
        match proof.as_slice().try_into() {
            Ok(proof) if self.secret.proves(ROUTER, &said, proof) => Ok(stream),
            _ => {
                Err(XrlError::denied(format!("{} does not know the key: it is not the router", self.address)))
            }
        }
    }
}

async fn connect(address: impl ToSocketAddrs + fmt::Display) -> Result<TcpStream, XrlError> {
    let unreachable = |error| XrlError::unavailable(format!("{address}: {error}"));
    let stream = TcpStream::connect(&address).await.map_err(unreachable)?;
    stream.set_nodelay(true).and_then(|()| set_keepalive(&stream)).map_err(lost)?;
    Ok(stream)
}

fn set_keepalive(stream: &TcpStream) -> io::Result<()> {
    use rustix::net::sockopt;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE_INTERVAL)?;
    Ok(sockopt::set_tcp_keepcnt(stream, KEEPALIVE_PROBES)?)
}

fn nonce() -> Result<[u8; NONCE], XrlError> {
    let mut nonce = [0; NONCE];
    match getrandom(&mut nonce, GetRandomFlags::empty()) {
        Ok(NONCE) => Ok(nonce),
        _ => Err(XrlError::internal("no random numbers")),
    }
}

async fn send(stream: &mut TcpStream, kind: Kind, body: &[u8]) -> Result<(), XrlError> {
    let header = Header { call: 0, method: 0, kind, fds: 0 }.encode(body.len() as u32);
    stream.write_all(&[&header, body].concat()).await.map_err(lost)
}

/// The body of the next frame, which is a hello; not an octet more than that is read.
async fn receive(stream: &mut TcpStream) -> Result<Vec<u8>, XrlError> {
    let mut header = [0; HEADER_LEN];
    stream.read_exact(&mut header).await.map_err(lost)?;
    let (len, header) =
        Header::decode(&header).map_err(|error| XrlError::invalid_argument(error.to_string()))?;
    let longest = match header {
        Header { kind: Kind::Hello, call: 0, method: 0, fds: 0 } => LONGEST_HELLO,
        Header { kind: Kind::Error, call: 0, .. } => LONGEST_ERROR,
        _ => return Err(XrlError::invalid_argument("the first frame is no hello")),
    };
    if len > longest {
        return Err(XrlError::invalid_argument("the hello is too long"));
    }
    let mut body = vec![0; len];
    stream.read_exact(&mut body).await.map_err(lost)?;
    if header.kind == Kind::Error { Err(XrlError::decode(&body)) } else { Ok(body) }
}

fn lost(error: io::Error) -> XrlError {
    XrlError::disconnected(error.to_string())
}

/// Where a listener is, for people.
pub(crate) fn name(address: io::Result<SocketAddr>) -> String {
    address.map_or_else(|error| error.to_string(), |address| address.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(octet: u8) -> Secret {
        Secret::new([octet; SHORTEST_SECRET]).expect("long enough")
    }

    fn hello(secret: &Secret, challenge: &[u8]) -> Vec<u8> {
        let mut hello = [&[5; NONCE][..], b"\x05alice", b"\x02tt"].concat();
        let proof = secret.proof(CLIENT, &[challenge, &hello].concat());
        hello.extend(proof);
        hello
    }

    #[test]
    fn a_proof_is_good_for_one_challenge_one_secret_and_one_direction() {
        let challenge = [1; NONCE];
        let parsed = Introduction::parse(&challenge, &hello(&secret(7), &challenge)).expect("a hello");
        assert_eq!((parsed.name.as_str(), parsed.ticket.as_slice()), ("alice", &b"tt"[..]));
        assert!(parsed.is_proven(&secret(7)));
        assert!(!parsed.is_proven(&secret(8)));
        let other = Introduction::parse(&[2; NONCE], &hello(&secret(7), &challenge)).expect("a hello");
        assert!(!other.is_proven(&secret(7)), "overheard, and said again to another challenge");
        assert!(
            !secret(7).proves(ROUTER, &parsed.said, &parsed.proof),
            "the client's words are not the router's"
        );
    }

    #[test]
    fn no_part_of_a_hello_can_be_changed_or_left_out() {
        let challenge = [1; NONCE];
        let hello = hello(&secret(7), &challenge);
        for at in 0..hello.len() {
            let mut changed = hello.clone();
            changed[at] ^= 1;
            let parsed = Introduction::parse(&challenge, &changed);
            assert!(!parsed.is_some_and(|parsed| parsed.is_proven(&secret(7))), "octet {at}");
            let cut = Introduction::parse(&challenge, &hello[..at]);
            assert!(!cut.is_some_and(|parsed| parsed.is_proven(&secret(7))), "{at} octets");
        }
    }

    #[test]
    fn a_secret_is_long_and_not_shown() {
        assert!(Secret::new([0; SHORTEST_SECRET - 1]).is_err());
        assert_eq!(format!("{:?}", secret(7)), "Secret(…)");
    }
}
