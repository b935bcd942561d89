//! The TLS of noq's sessions, looked at from outside: the first flight before there is a session, and how often the keys
//! of one have changed.

use std::{
    any::Any,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
};

use bytes::BytesMut;
use holdfast_tls::rustls;
use noq::{
    ConnectError, ConnectionId, Incoming, PathId, Side,
    crypto::{
        ClientConfig, CryptoError, ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey,
        ServerConfig, Session, UnsupportedVersion,
        rustls::{NoInitialCipherSuite, QuicClientConfig, QuicServerConfig},
    },
};
use noq_proto::{TransportError, transport_parameters::TransportParameters};
use rustls::{
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};

/// How often the keys of a connection have changed (RFC 9001 section 6), by whichever end.
#[derive(Clone, Default)]
pub(super) struct KeyUpdates(Arc<AtomicU32>);

impl KeyUpdates {
    /// The first request for further keys is made in advance, each later one when those have come into use.
    pub(super) fn count(&self) -> u32 {
        self.0.load(Ordering::Relaxed).saturating_sub(1)
    }

    fn requested(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// TLS of a connection that we dial.
pub(super) struct Dialing {
    config: QuicClientConfig,
    updates: KeyUpdates,
}

impl Dialing {
    pub(super) fn new(
        config: Arc<rustls::ClientConfig>,
        updates: KeyUpdates,
    ) -> Result<Self, NoInitialCipherSuite> {
        Ok(Self { config: QuicClientConfig::try_from(config)?, updates })
    }
}

impl ClientConfig for Dialing {
    fn start_session(
        &self,
        version: u32,
        server_name: &str,
        params: &TransportParameters,
    ) -> Result<Box<dyn Session>, ConnectError> {
        let session = self.config.start_session(version, server_name, params)?;
        Ok(Box::new(Counted { session, updates: self.updates.clone() }))
    }
}

/// TLS of a connection that has been let in.
pub(super) struct LetIn {
    config: QuicServerConfig,
    updates: KeyUpdates,
}

impl LetIn {
    pub(super) fn new(
        config: Arc<rustls::ServerConfig>,
        updates: KeyUpdates,
    ) -> Result<Self, NoInitialCipherSuite> {
        Ok(Self { config: QuicServerConfig::try_from(config)?, updates })
    }
}

impl ServerConfig for LetIn {
    fn initial_keys(&self, version: u32, dst_cid: ConnectionId) -> Result<Keys, UnsupportedVersion> {
        self.config.initial_keys(version, dst_cid)
    }

    fn retry_tag(&self, version: u32, orig_dst_cid: ConnectionId, packet: &[u8]) -> [u8; 16] {
        self.config.retry_tag(version, orig_dst_cid, packet)
    }

    fn start_session(&self, version: u32, params: &TransportParameters) -> Box<dyn Session> {
        let session = self.config.start_session(version, params);
        Box::new(Counted { session, updates: self.updates.clone() })
    }
}

/// TLS of an endpoint while nobody has been let in: it opens Initials (RFC 9001 section 5.2), and has no identity.
#[derive(Clone)]
pub(super) struct Front {
    config: QuicServerConfig,
    flight: FirstFlight,
}

impl Front {
    pub(super) fn new(flight: FirstFlight) -> Result<Self, rustls::Error> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(Nobody));
        let config =
            QuicServerConfig::try_from(config).map_err(|error| rustls::Error::General(error.to_string()))?;
        Ok(Self { config, flight })
    }
}

impl ServerConfig for Front {
    fn initial_keys(&self, version: u32, dst_cid: ConnectionId) -> Result<Keys, UnsupportedVersion> {
        let Keys { header, packet: KeyPair { local, remote } } =
            self.config.initial_keys(version, dst_cid)?;
        let remote = Box::new(Opened { key: remote, flight: self.flight.clone() });
        Ok(Keys { header, packet: KeyPair { local, remote } })
    }

    fn retry_tag(&self, version: u32, orig_dst_cid: ConnectionId, packet: &[u8]) -> [u8; 16] {
        self.config.retry_tag(version, orig_dst_cid, packet)
    }

    /// Never asked for: whoever is let in has a configuration of its own. It would fail for want of a certificate.
    fn start_session(&self, version: u32, params: &TransportParameters) -> Box<dyn Session> {
        self.config.start_session(version, params)
    }
}

#[derive(Debug)]
struct Nobody;

impl ResolvesServerCert for Nobody {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        None
    }
}

/// Where the payload of an Initial goes while somebody looks at it: noq gives out no more of it than the ALPN, and that
/// only if all is there.
#[derive(Clone, Default)]
pub(super) struct FirstFlight(Arc<Mutex<Option<Vec<u8>>>>);

impl FirstFlight {
    /// The frames in the first packet of an attempt; none if it cannot be opened.
    pub(super) fn look(&self, incoming: &Incoming) -> Vec<u8> {
        self.set(Some(Vec::new()));
        // What it returns says less than what goes through the key.
        drop(incoming.decrypt());
        self.set(None).unwrap_or_default()
    }

    fn set(&self, to: Option<Vec<u8>>) -> Option<Vec<u8>> {
        std::mem::replace(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner), to)
    }

    fn pass(&self, payload: &[u8]) {
        if let Some(copy) = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            copy.clear();
            copy.extend_from_slice(payload);
        }
    }
}

/// The key of an Initial, under which somebody may look at the payload.
struct Opened {
    key: Box<dyn PacketKey>,
    flight: FirstFlight,
}

impl PacketKey for Opened {
    fn encrypt(&self, path_id: PathId, packet: u64, buf: &mut [u8], header_len: usize) {
        self.key.encrypt(path_id, packet, buf, header_len);
    }

    fn decrypt(
        &self,
        path_id: PathId,
        packet: u64,
        header: &[u8],
        payload: &mut BytesMut,
    ) -> Result<(), CryptoError> {
        self.key.decrypt(path_id, packet, header, payload)?;
        self.flight.pass(payload);
        Ok(())
    }

    fn tag_len(&self) -> usize {
        self.key.tag_len()
    }

    fn confidentiality_limit(&self) -> u64 {
        self.key.confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.key.integrity_limit()
    }
}

/// A session whose changes of keys are counted, and that tells the peer no more than the number of an error.
struct Counted {
    session: Box<dyn Session>,
    updates: KeyUpdates,
}

/// noq sends the words of an error to the peer (RFC 9000 section 19.19), and those of TLS say what is expected of it and what
/// time it is here. So the number goes out alone, as an alert does over TCP; the words stay beside it, for our own log.
fn without_words(mut error: TransportError) -> TransportError {
    let words = std::mem::take(&mut error.reason);
    if error.crypto.is_none() && !words.is_empty() {
        error.crypto = Some(Arc::new(rustls::Error::General(words)));
    }
    error
}

impl Session for Counted {
    fn initial_keys(&self, dst_cid: ConnectionId, side: Side) -> Keys {
        self.session.initial_keys(dst_cid, side)
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        self.session.handshake_data()
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        self.session.peer_identity()
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        self.session.early_crypto()
    }

    fn early_data_accepted(&self) -> Option<bool> {
        self.session.early_data_accepted()
    }

    fn is_handshaking(&self) -> bool {
        self.session.is_handshaking()
    }

    fn read_handshake(&mut self, buf: &[u8]) -> Result<bool, TransportError> {
        self.session.read_handshake(buf).map_err(without_words)
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        self.session.transport_parameters().map_err(without_words)
    }

    fn write_handshake(&mut self, buf: &mut Vec<u8>) -> Option<Keys> {
        self.session.write_handshake(buf)
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        self.updates.requested();
        self.session.next_1rtt_keys()
    }

    fn is_valid_retry(&self, orig_dst_cid: ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        self.session.is_valid_retry(orig_dst_cid, header, payload)
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        self.session.export_keying_material(output, label, context)
    }
}
