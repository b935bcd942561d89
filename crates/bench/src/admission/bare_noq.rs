//! The same service on noq alone: the same verdicts, the same proof of both sides, the same windows.

use std::{net::UdpSocket, rc::Rc, sync::Arc};

use anyhow::{Context, Result};
use holdfast_tls::ALPN_QUIC;
use holdfast_transport::Expected;
use noq::{
    Connecting, Endpoint, EndpointConfig, IdleTimeout, Incoming, ServerConfig, TokioRuntime, TransportConfig,
    crypto::rustls::QuicServerConfig,
};
use tokio::task::spawn_local;

use super::{
    cases::{Mode, PEER},
    server::{OTHER_ALPN, ROOM, Tally},
};

/// As the transport API has it.
const WINDOW: u32 = 2 << 20;

/// Serves from now on, in a task.
pub(super) fn serve(socket: UdpSocket, mode: Mode, expected: &Expected, tally: Rc<Tally>) -> Result<()> {
    socket.set_nonblocking(true)?;
    let tls = expected.tls.as_ref().context("the server has a key")?.server(ALPN_QUIC);
    let mut server = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls)?));
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(1_u32.into())
        .max_concurrent_uni_streams(0_u32.into())
        .stream_receive_window(WINDOW.into())
        .receive_window(WINDOW.into())
        .send_window(WINDOW.into())
        .max_idle_timeout(Some(IdleTimeout::try_from(expected.idle)?));
    server.transport_config(Arc::new(transport));
    let endpoint = Endpoint::new(EndpointConfig::default(), Some(server), socket, Arc::new(TokioRuntime))?;
    spawn_local(async move {
        while let Some(incoming) = endpoint.accept().await {
            tally.attempt();
            if let Some(connecting) = judge(mode, incoming) {
                spawn_local(echo(connecting, tally.clone()));
            }
        }
    });
    Ok(())
}

fn judge(mode: Mode, incoming: Incoming) -> Option<Connecting> {
    if incoming.remote_address().ip() != PEER {
        incoming.ignore();
        return None;
    }
    match mode {
        Mode::Refuse => incoming.refuse(),
        Mode::Retry | Mode::RetryRefuse if !incoming.remote_address_validated() => {
            if let Err(error) = incoming.retry() {
                error.into_incoming().refuse();
            }
        }
        Mode::Retry | Mode::RetryRefuse => incoming.refuse(),
        Mode::Alpn => {
            let offered = incoming.decrypt().and_then(|initial| initial.alpns());
            if offered.is_some_and(|mut names| names.any(|name| name.is_ok_and(|name| *name == *OTHER_ALPN)))
            {
                return incoming.accept().ok();
            }
            incoming.refuse();
        }
        Mode::Ignore | Mode::Open | Mode::Echo | Mode::Garbage | Mode::Spam | Mode::Transfer => {
            return incoming.accept().ok();
        }
    }
    None
}

async fn echo(connecting: Connecting, tally: Rc<Tally>) {
    // As much as it came to.
    let _ = echo_all(connecting).await;
    tally.completion();
}

async fn echo_all(connecting: Connecting) -> Result<()> {
    let connection = connecting.await?;
    let (mut to, mut from) = connection.accept_bi().await?;
    let mut room = vec![0; ROOM];
    while let Some(length) = from.read(&mut room).await? {
        to.write_all(&room[..length]).await?;
    }
    Ok(())
}
