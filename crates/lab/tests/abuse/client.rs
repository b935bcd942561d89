//! A neighbour that proves who it is, and then does what it should not: noq, with its TLS looked after here.

use std::{
    any::Any,
    net::{SocketAddr, UdpSocket},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use holdfast_lab::keys::Shown;
use holdfast_tls::{
    ALPN_QUIC, PeerTls,
    rustls::{
        self, ClientConfig, DigitallySignedStruct, SignatureScheme,
        client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        crypto::aws_lc_rs,
        pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime},
    },
};
use noq::{
    ConnectError, Connection, ConnectionError, ConnectionId, Endpoint, EndpointConfig, ServerConfig, Side,
    TokioRuntime,
    crypto::{
        self, ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey, Session,
        rustls::{QuicClientConfig, QuicServerConfig},
    },
};
use noq_proto::{TransportError, transport_parameters::TransportParameters};

/// The router's name in its certificate.
pub(crate) const ROUTER: &str = "r0.example";

/// An endpoint at this address, which connects only.
pub(crate) fn endpoint(at: SocketAddr) -> Result<Endpoint> {
    let runtime = Arc::new(TokioRuntime);
    Ok(Endpoint::new(EndpointConfig::default(), None, UdpSocket::bind(at)?, runtime)?)
}

/// Connects, and waits until the router has judged it.
pub(crate) async fn connect(endpoint: &Endpoint, tls: &PeerTls, to: SocketAddr) -> Result<Connection> {
    let config = QuicClientConfig::try_from(tls.client(ALPN_QUIC))?;
    let connecting = endpoint.connect_with(noq::ClientConfig::new(Arc::new(config)), to, ROUTER)?;
    let connection = connecting.await?;
    connection.handshake_confirmed().await?;
    Ok(connection)
}

/// Until what was said last is on its way.
pub(crate) async fn depart(endpoint: &Endpoint) {
    let _ = tokio::time::timeout(Duration::from_millis(300), endpoint.wait_idle()).await;
}

/// Which kind of stream somebody has too many of.
#[derive(Copy, Clone, Debug)]
pub(crate) enum Streams {
    Bidirectional,
    Unidirectional,
}

/// Connects, and opens more streams than it was told that it may; the error that the router ends the connection with.
pub(crate) async fn open_too_many(
    endpoint: &Endpoint,
    tls: &PeerTls,
    to: SocketAddr,
    streams: Streams,
) -> Result<u64> {
    let config = Greedy(QuicClientConfig::try_from(tls.client(ALPN_QUIC))?);
    let connecting = endpoint.connect_with(noq::ClientConfig::new(Arc::new(config)), to, ROUTER)?;
    let connection = connecting.await?;
    connection.handshake_confirmed().await?;
    let mut open = Vec::new();
    let (mut first, read) = connection.open_bi().await?;
    first.write_all(b"one").await?;
    open.push(first);
    let mut more = match streams {
        Streams::Bidirectional => connection.open_bi().await?.0,
        Streams::Unidirectional => connection.open_uni().await?,
    };
    more.write_all(b"more").await?;
    open.push(more);
    let closed = connection.closed().await;
    drop((open, read));
    match closed {
        ConnectionError::ConnectionClosed(close) => Ok(close.error_code.into()),
        other => bail!("it was not closed for it: {other}"),
    }
}

/// Takes a ticket of a server of its own, which has the router's name, and sends the router octets before its handshake.
/// The connection, in which none of them has arrived.
pub(crate) async fn send_early(
    endpoint: &Endpoint,
    tls: &PeerTls,
    own: &Shown,
    to: SocketAddr,
    octets: &[u8],
) -> Result<Connection> {
    let config = early(tls)?;
    let at = endpoint.local_addr()?.ip();
    let generous = generous(SocketAddr::new(at, 0), own)?;
    let serving = async {
        let connection = generous.accept().await.context("a client")?.await?;
        // What comes behind the tickets.
        connection.open_uni().await?.write_all(b"ticket").await?;
        anyhow::Ok(connection)
    };
    let asking = async {
        let connection = endpoint.connect_with(config.clone(), generous.local_addr()?, ROUTER)?.await?;
        connection.accept_uni().await?.read_exact(&mut [0; 6]).await?;
        anyhow::Ok(connection)
    };
    let (served, asked) = tokio::try_join!(serving, asking)?;
    drop((served, asked));

    let Ok((connection, taken)) = endpoint.connect_with(config, to, ROUTER)?.into_0rtt() else {
        bail!("there is no ticket: nothing can be said early");
    };
    let (mut send, _) = connection.open_bi().await?;
    send.write_all(octets).await?;
    ensure!(!taken.await, "the router takes 0-RTT");
    connection.handshake_confirmed().await?;
    Ok(connection)
}

/// Whether the router has given out anything that a later handshake of this client could begin with.
pub(crate) async fn is_given_a_ticket(endpoint: &Endpoint, tls: &PeerTls, to: SocketAddr) -> Result<bool> {
    let config = early(tls)?;
    let connection = endpoint.connect_with(config.clone(), to, ROUTER)?.await?;
    // Tickets are part of what confirms it.
    connection.handshake_confirmed().await?;
    connection.close(0_u32.into(), b"");
    let given = endpoint.connect_with(config, to, ROUTER)?.into_0rtt().is_ok();
    depart(endpoint).await;
    Ok(given)
}

/// A client that takes any server and begins early wherever it can.
fn early(tls: &PeerTls) -> Result<noq::ClientConfig> {
    let ours = tls.client(ALPN_QUIC);
    let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Gullible))
        .with_client_cert_resolver(Arc::clone(&ours.client_auth_cert_resolver));
    config.alpn_protocols = vec![ALPN_QUIC.to_vec()];
    config.enable_early_data = true;
    Ok(noq::ClientConfig::new(Arc::new(QuicClientConfig::try_from(config)?)))
}

/// A server that gives out tickets for 0-RTT to everybody.
fn generous(at: SocketAddr, shown: &Shown) -> Result<Endpoint> {
    let (certificate, key) = shown.der();
    let key = PrivateKeyDer::try_from(key.to_vec()).map_err(anyhow::Error::msg)?;
    let mut tls = rustls::ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.to_vec().into()], key)?;
    tls.alpn_protocols = vec![ALPN_QUIC.to_vec()];
    tls.max_early_data_size = u32::MAX;
    let config = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls)?));
    let runtime = Arc::new(TokioRuntime);
    Ok(Endpoint::new(EndpointConfig::default(), Some(config), UdpSocket::bind(at)?, runtime)?)
}

/// Takes any certificate: what this client believes is not what is tested.
#[derive(Debug)]
struct Gullible;

impl ServerCertVerifier for Gullible {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        aws_lc_rs::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// Thinks that it may open 63 streams of each kind, whatever it was told.
struct Greedy(QuicClientConfig);

impl crypto::ClientConfig for Greedy {
    fn start_session(
        &self,
        version: u32,
        server_name: &str,
        params: &TransportParameters,
    ) -> Result<Box<dyn Session>, ConnectError> {
        Ok(Box::new(GreedySession(self.0.start_session(version, server_name, params)?)))
    }
}

struct GreedySession(Box<dyn Session>);

impl GreedySession {
    fn more(told: &TransportParameters) -> TransportParameters {
        /// initial_max_streams_bidi and initial_max_streams_uni (RFC 9000 section 18.2), and 63 for both.
        const STREAMS: [u64; 2] = [0x08, 0x09];
        const MANY: [u8; 6] = [0x08, 1, 63, 0x09, 1, 63];
        let mut octets = Vec::new();
        told.write(&mut octets);
        let (mut left, mut wanted) = (octets.as_slice(), MANY.to_vec());
        while let Some((id, rest)) = number(left) {
            let Some((length, rest)) = number(rest) else { break };
            let Some(end) = rest.get(length as usize..) else { break };
            if !STREAMS.contains(&id) {
                wanted.extend(&left[..left.len() - end.len()]);
            }
            left = end;
        }
        let more = TransportParameters::read(Side::Client, &mut wanted.as_slice());
        more.expect("noq reads what it has written")
    }
}

/// A number at the beginning (RFC 9000 section 16), and what follows.
fn number(octets: &[u8]) -> Option<(u64, &[u8])> {
    let length = 1 << (octets.first()? >> 6);
    let (number, rest) = octets.split_at_checked(length)?;
    let number = number.iter().fold(0, |all, octet| all << 8 | u64::from(*octet));
    Some((number & (u64::MAX >> (64 - 8 * length + 2)), rest))
}

impl Session for GreedySession {
    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        Ok(self.0.transport_parameters()?.as_ref().map(Self::more))
    }

    fn initial_keys(&self, dst_cid: ConnectionId, side: Side) -> Keys {
        self.0.initial_keys(dst_cid, side)
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        self.0.handshake_data()
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        self.0.peer_identity()
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        self.0.early_crypto()
    }

    fn early_data_accepted(&self) -> Option<bool> {
        self.0.early_data_accepted()
    }

    fn is_handshaking(&self) -> bool {
        self.0.is_handshaking()
    }

    fn read_handshake(&mut self, buf: &[u8]) -> Result<bool, TransportError> {
        self.0.read_handshake(buf)
    }

    fn write_handshake(&mut self, buf: &mut Vec<u8>) -> Option<Keys> {
        self.0.write_handshake(buf)
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        self.0.next_1rtt_keys()
    }

    fn is_valid_retry(&self, orig_dst_cid: ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        self.0.is_valid_retry(orig_dst_cid, header, payload)
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        self.0.export_keying_material(output, label, context)
    }
}
