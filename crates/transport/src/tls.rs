//! TLS 1.3 over TCP (draft-wirtgen-bgp-tls): the ClientHello comes first, ALPN `botls`, both sides prove who they are.
//!
//! It comes to the same port as plain TCP: the listener is [`tcp`](crate::tcp)'s. A handshake has [`HANDSHAKE_TIME`].
//!
//! By RFC 8446 the dialer is done before the other side has judged what it showed: that it was refused is what its first
//! read says.

use std::{io, net::SocketAddr, os::fd::OwnedFd, time::Duration};

use holdfast_tls::{ALPN_TLS, PeerTls};
use rustix::net::{Shutdown, shutdown};
use tokio::{io::AsyncReadExt, net::TcpStream, time::timeout};
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

use crate::{
    Connection, Expected, Failure, HANDSHAKE_TIME, Identity, Protocol,
    attempt::canonical,
    failure,
    tcp::{self, Token},
};

mod stream;

/// What a peer whom we refuse may take to read why.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Waits for a socket of TCP that is connecting, and shakes hands.
///
/// # Errors
/// Every [`Failure`]: the way of TCP, who is there, what they speak, and how long it took.
pub async fn connect(socket: OwnedFd, expected: &Expected) -> Result<Connection, Failure> {
    let tls = keys_for(expected)?;
    dial(socket, expected, tls.client(ALPN_TLS).into(), Some(ALPN_TLS)).await
}

/// The same with somebody who does not speak BGP, but a protocol that has no name (ALPN): as RTR, RFC 8210 section 9.2.
///
/// # Errors
/// As of [`connect`].
pub async fn connect_unnamed(socket: OwnedFd, expected: &Expected) -> Result<Connection, Failure> {
    let tls = keys_for(expected)?;
    dial(socket, expected, tls.unnamed_client().into(), None).await
}

async fn dial(
    socket: OwnedFd,
    expected: &Expected,
    connector: TlsConnector,
    alpn: Option<&[u8]>,
) -> Result<Connection, Failure> {
    let tls = keys_for(expected)?;
    let stream = tcp::connected(socket).await?;
    let handshake = async {
        let addresses = prepare(&stream)?;
        match connector.connect(tls.server_name(), stream).into_fallible().await {
            Ok(session) => {
                agreed(session.get_ref().1.alpn_protocol(), alpn)?;
                identified(session.into(), addresses, expected, tls, None)
            }
            Err((error, stream)) => Err(told(stream, &error, Failure::Refused).await),
        }
    };
    timeout(HANDSHAKE_TIME, handshake).await.unwrap_or(Err(Failure::TimedOut))
}

/// Shakes hands with somebody who is to begin with a ClientHello; what comes of it is counted by the token.
///
/// # Errors
/// Every [`Failure`]; how long it takes is for the caller to bound.
pub(crate) async fn accept(
    stream: TcpStream,
    expected: &Expected,
    counted: &Token,
) -> Result<Connection, Failure> {
    let tls = keys_for(expected)?;
    let addresses = prepare(&stream)?;
    let acceptor = TlsAcceptor::from(tls.server(ALPN_TLS));
    match acceptor.accept(stream).into_fallible().await {
        Ok(session) => {
            agreed(session.get_ref().1.alpn_protocol(), Some(ALPN_TLS))?;
            identified(session.into(), addresses, expected, tls, Some(counted.clone()))
        }
        Err((error, stream)) => Err(told(stream, &error, Failure::GivenUp).await),
    }
}

fn keys_for(expected: &Expected) -> Result<&PeerTls, Failure> {
    expected.tls.as_ref().ok_or_else(|| {
        Failure::Unsupported(format!("nothing is configured that {} has to prove over TLS", expected.peer))
    })
}

/// Remote and local address; both are asked for while they are there.
fn prepare(stream: &TcpStream) -> Result<(SocketAddr, SocketAddr), Failure> {
    let addresses = || {
        stream.set_nodelay(true)?;
        Ok((canonical(stream.peer_addr()?), canonical(stream.local_addr()?)))
    };
    addresses().map_err(|error| failure::of_tcp(&error))
}

/// TLS lets a handshake pass in which one side names no protocol at all; draft-wirtgen-bgp-tls does not.
fn agreed(named: Option<&[u8]>, wanted: Option<&[u8]>) -> Result<(), Failure> {
    match named == wanted {
        true => Ok(()),
        false => {
            Err(Failure::Refused("the peer does not say that it speaks BGP over TLS (ALPN botls)".to_owned()))
        }
    }
}

fn identified(
    session: TlsStream<TcpStream>,
    (remote, local): (SocketAddr, SocketAddr),
    expected: &Expected,
    tls: &PeerTls,
    counted: Option<Token>,
) -> Result<Connection, Failure> {
    let common = session.get_ref().1;
    let presented = common.peer_certificates().unwrap_or_default();
    if presented.is_empty() {
        return Err(Failure::Untrusted("the peer has shown nothing that proves who it is".to_owned()));
    }
    let identity = Identity {
        peer: expected.peer.clone(),
        protocol: Protocol::Tls,
        remote,
        local,
        proof: tls.proof(presented),
    };
    Ok(stream::connection(session, identity, counted))
}

/// Lets the peer read why: with octets of it unread the kernel would reset the connection, and the alert were lost.
async fn told(mut stream: TcpStream, error: &io::Error, ended: fn(String) -> Failure) -> Failure {
    let failure = failure::of_handshake(error, ended);
    if failure::tls_error(error).is_some() && shutdown(&stream, Shutdown::Write).is_ok() {
        let mut rest = [0; 4096];
        let drained = async { while matches!(stream.read(&mut rest).await, Ok(1..)) {} };
        // Whoever goes on sending has had its time.
        let _ = timeout(LAST_WORDS, drained).await;
    }
    failure
}
