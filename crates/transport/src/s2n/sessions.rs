//! Sessions of TLS: each has the configuration of the one peer that is expected at its address, so that nobody else gets
//! through the handshake.

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use holdfast_tls::rustls::{
    self, ClientConfig, RootCertStore, ServerConfig,
    crypto::aws_lc_rs,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
    version::TLS13,
};
use s2n_codec::EncoderValue;
use s2n_quic::provider::{
    limits::{self, Limits},
    tls::{ConnectionInfo, Provider, rustls as library},
};
use s2n_quic_core::{application::ServerName, connection::limits::ValidationError, crypto::tls};

use super::{
    door::{Door, lock},
    events::Making,
    session::Session,
    state::State,
};
use crate::{attempt::canonical, life::keep_alive};

/// Octets that may be on their way to us, or wait here for being read: what a peer can make us hold.
const WINDOW: u64 = 1 << 20;
/// Octets that wait here for being acknowledged, if the peer does not read.
const SEND_BUFFER: u32 = 1 << 20;

/// Below this a lost packet would end a connection.
const LEAST_IDLE: Duration = Duration::from_secs(1);
/// Longest idle time that is told; longer ones are as good as for ever.
const MOST_IDLE: Duration = Duration::from_secs(24 * 60 * 60);

/// Makes sessions for either side.
pub(super) struct Sessions {
    making: Arc<Making>,
    door: Option<Arc<Door>>,
    /// Should the library ever make a session that nobody was let in for: these let nobody through.
    nobody: (Arc<ClientConfig>, Arc<ServerConfig>),
}

impl Sessions {
    pub(super) fn new(making: Arc<Making>, door: Option<Arc<Door>>) -> Result<Self, rustls::Error> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])?
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        let server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(Nobody));
        Ok(Self { making, door, nobody: (Arc::new(client), Arc::new(server)) })
    }
}

impl Provider for Sessions {
    type Server = Self;
    type Client = Self;
    type Error = Infallible;

    fn start_server(self) -> Result<Self, Infallible> {
        Ok(self)
    }

    fn start_client(self) -> Result<Self, Infallible> {
        Ok(self)
    }
}

impl tls::Endpoint for Sessions {
    type Session = Session;

    fn new_server_session<P: EncoderValue>(&mut self, parameters: &P, info: ConnectionInfo) -> Self::Session {
        let remote = info.remote_address;
        let expected = self.door.as_ref().and_then(|door| door.admitted(remote));
        let state = expected.map(|expected| State::new(canonical(remote), expected));
        let config = state.as_ref().and_then(|state| state.server());
        lock(&self.making).clone_from(&state);
        let config = config.unwrap_or_else(|| Arc::clone(&self.nobody.1));
        Session::new(library::Server::from(config).new_server_session(parameters, info), state)
    }

    fn new_client_session<P: EncoderValue>(&mut self, parameters: &P, name: ServerName) -> Self::Session {
        let state = lock(&self.making).take();
        let config = state.as_ref().and_then(|state| state.client());
        let config = config.unwrap_or_else(|| Arc::clone(&self.nobody.0));
        Session::new(library::Client::from(config).new_client_session(parameters, name), state)
    }

    fn max_tag_length(&self) -> usize {
        library::Client::from(Arc::clone(&self.nobody.0)).max_tag_length()
    }
}

/// Has nothing to show.
#[derive(Debug)]
struct Nobody;

impl ResolvesServerCert for Nobody {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        None
    }
}

/// What a peer may make us keep: one bidirectional stream, which who dials opens.
pub(super) struct Windows {
    limits: Limits,
    making: Arc<Making>,
    door: Option<Arc<Door>>,
}

impl Windows {
    pub(super) fn new(
        making: Arc<Making>,
        door: Option<Arc<Door>>,
        handshake: Duration,
    ) -> Result<Self, ValidationError> {
        let (theirs, ours) = if door.is_some() { (1, 0) } else { (0, 1) };
        let limits = Limits::new()
            .with_data_window(WINDOW)?
            .with_bidirectional_local_data_window(WINDOW)?
            .with_bidirectional_remote_data_window(WINDOW)?
            .with_unidirectional_data_window(0)?
            .with_max_send_buffer_size(SEND_BUFFER)?
            .with_max_open_local_bidirectional_streams(ours)?
            .with_max_open_remote_bidirectional_streams(theirs)?
            .with_max_open_local_unidirectional_streams(0)?
            .with_max_open_remote_unidirectional_streams(0)?
            .with_max_handshake_duration(handshake)?;
        Ok(Self { limits, making, door })
    }
}

impl limits::Limiter for Windows {
    fn on_connection(&mut self, info: &limits::ConnectionInfo<'_>) -> Limits {
        let idle = match &self.door {
            Some(door) => door.admitted(SocketAddr::from(&info.remote_address)).map(|expected| expected.idle),
            None => lock(&self.making).as_ref().map(|state| state.expected.idle),
        };
        let patient = |idle: Duration| {
            let idle = idle.clamp(LEAST_IDLE, MOST_IDLE);
            self.limits.with_max_idle_timeout(idle)?.with_max_keep_alive_period(keep_alive(idle))
        };
        idle.and_then(|idle| patient(idle).ok()).unwrap_or(self.limits)
    }
}
