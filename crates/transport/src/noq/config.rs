//! What noq is told: the bounds of everything, and whom a connection is with.

use std::{sync::Arc, time::Duration};

use holdfast_tls::{ALPN_QUIC, PeerTls};
use noq::{ClientConfig, EndpointConfig, IdleTimeout, NoneTokenStore, ServerConfig, TransportConfig, VarInt};

use super::{
    crypto::{Dialing, Front, KeyUpdates, LetIn},
    keys::Keys,
};
use crate::{Expected, Failure, life::keep_alive, spent::TOKEN_LIFETIME};

/// QUIC of RFC 9000.
const VERSION: u32 = 1;
/// Octets that the peer may send before we have read them, and that we keep until the peer has acknowledged them: a full
/// table flows at 100 Mbit/s over 150 ms, and a peer that never reads costs no more.
const WINDOW: u32 = 2 << 20;
/// Attempts that wait for a verdict. They are judged as they come, so there are more only when nothing runs here.
const MOST_INCOMING: usize = 1024;
/// Octets that an attempt may send on before it has its verdict, and all of them together.
const INCOMING_BUFFER: u64 = 64 << 10;
const INCOMING_BUFFERS: u64 = 8 << 20;
/// Below this a lost packet would end a connection.
const LEAST_IDLE: Duration = Duration::from_secs(1);
/// Longest idle time that is told; longer ones are as good as for ever.
const MOST_IDLE: Duration = Duration::from_secs(24 * 60 * 60);

/// Of a socket: its connection ids and resets, and that there is one version of QUIC. Whoever comes with another one, and gets
/// past [`Strays`](crate::stray::Strays), is told so.
pub(super) fn endpoint(keys: &Keys) -> EndpointConfig {
    let mut config = EndpointConfig::new(Arc::new(keys.clone()));
    config.supported_versions(vec![VERSION]);
    let ids = keys.clone();
    config.cid_generator(Arc::new(move || ids.ids()));
    config
}

/// Of whoever has not been let in. While nobody listens, nobody who comes is looked at: a socket of noq's that has had a
/// configuration must not lose it as long as attempts wait for their verdict.
pub(super) fn front(front: Front, keys: &Keys, listening: bool) -> ServerConfig {
    let mut config = bounded(ServerConfig::new(Arc::new(front), Arc::new(keys.clone())));
    if !listening {
        config.max_incoming(0);
    }
    config
}

/// Of a connection that is let in.
pub(super) fn let_in(
    expected: &Expected,
    keys: &Keys,
    updates: KeyUpdates,
) -> Result<Arc<ServerConfig>, Failure> {
    let tls = LetIn::new(tls(expected)?.server(ALPN_QUIC), updates).map_err(unsupported)?;
    let mut config = bounded(ServerConfig::new(Arc::new(tls), Arc::new(keys.clone())));
    // The dialer has one stream.
    config.transport_config(Arc::new(transport(expected.idle, 1)));
    config.migration(!expected.ttl_security);
    Ok(Arc::new(config))
}

/// Of a connection that we dial.
pub(super) fn dialing(expected: &Expected, updates: KeyUpdates) -> Result<ClientConfig, Failure> {
    let tls = Dialing::new(tls(expected)?.client(ALPN_QUIC), updates).map_err(unsupported)?;
    let mut config = ClientConfig::new(Arc::new(tls));
    config.transport_config(Arc::new(transport(expected.idle, 0)));
    config.token_store(Arc::new(NoneTokenStore));
    Ok(config)
}

/// What a connection with this peer proves, both ways.
///
/// # Errors
/// Nothing is configured.
pub(super) fn tls(expected: &Expected) -> Result<&PeerTls, Failure> {
    expected.tls.as_ref().ok_or_else(|| {
        Failure::Untrusted(format!(
            "{}: no certificate or key is configured, and QUIC needs one",
            expected.peer
        ))
    })
}

fn bounded(mut config: ServerConfig) -> ServerConfig {
    config
        .retry_token_lifetime(TOKEN_LIFETIME)
        .max_incoming(MOST_INCOMING)
        .incoming_buffer_size(INCOMING_BUFFER)
        .incoming_buffer_size_total(INCOMING_BUFFERS);
    config
}

fn transport(idle: Duration, streams: u32) -> TransportConfig {
    let idle = idle.clamp(LEAST_IDLE, MOST_IDLE);
    let mut config = TransportConfig::default();
    config
        .max_concurrent_bidi_streams(streams.into())
        .max_concurrent_uni_streams(0u32.into())
        .datagram_receive_buffer_size(None)
        .stream_receive_window(WINDOW.into())
        .receive_window(WINDOW.into())
        .send_window(WINDOW.into())
        .max_idle_timeout(Some(milliseconds(idle)))
        .keep_alive_interval(Some(keep_alive(idle)));
    config
}

fn milliseconds(time: Duration) -> IdleTimeout {
    VarInt::from_u32(u32::try_from(time.as_millis()).unwrap_or(u32::MAX)).into()
}

fn unsupported(error: impl std::fmt::Display) -> Failure {
    Failure::Unsupported(error.to_string())
}
