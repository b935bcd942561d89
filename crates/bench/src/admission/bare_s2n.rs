//! The same service on s2n-quic alone: the verdicts that it has, the same proof of both sides, the same windows.

use std::{
    cell::RefCell,
    net::{SocketAddr, UdpSocket},
    rc::Rc,
};

use anyhow::{Context, Result};
use holdfast_tls::ALPN_QUIC;
use holdfast_transport::Expected;
use s2n_quic::{
    Connection, Server,
    provider::{
        endpoint_limits::{ConnectionAttempt, Limiter, Outcome},
        io::tokio::Builder,
        limits::Limits,
        tls::rustls,
    },
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    task::spawn_local,
};

use super::{
    cases::{Mode, PEER},
    server::{ROOM, Tally},
};

/// As the transport API has it.
const WINDOW: u32 = 1 << 20;

thread_local! {
    /// The library wants a limiter that could go to another thread. It stays here.
    static TALLY: RefCell<Option<Rc<Tally>>> = const { RefCell::new(None) };
}

/// Serves from now on, in a task.
pub(super) fn serve(socket: UdpSocket, mode: Mode, expected: &Expected, tally: Rc<Tally>) -> Result<()> {
    socket.set_nonblocking(true)?;
    TALLY.set(Some(tally.clone()));
    let tls = expected.tls.as_ref().context("the server has a key")?.server(ALPN_QUIC);
    let limits = Limits::new()
        .with_data_window(WINDOW.into())?
        .with_bidirectional_remote_data_window(WINDOW.into())?
        .with_max_send_buffer_size(WINDOW)?
        .with_max_open_remote_bidirectional_streams(1)?
        .with_max_open_remote_unidirectional_streams(0)?
        .with_max_idle_timeout(expected.idle)?;
    let mut server = Server::builder()
        .with_io(Builder::default().with_rx_socket(socket)?.build()?)?
        .with_tls(rustls::Server::from(tls))?
        .with_limits(limits)?
        .with_endpoint_limits(Judge(mode))?
        .start()?;
    spawn_local(async move {
        while let Some(connection) = server.accept().await {
            spawn_local(echo(connection, tally.clone()));
        }
    });
    Ok(())
}

struct Judge(Mode);

impl Limiter for Judge {
    fn on_connection_attempt(&mut self, attempt: &ConnectionAttempt<'_>) -> Outcome {
        TALLY.with_borrow(|tally| tally.iter().for_each(|tally| tally.attempt()));
        if SocketAddr::from(&attempt.remote_address).ip() != PEER {
            return Outcome::drop();
        }
        match self.0 {
            Mode::Refuse => Outcome::close(),
            Mode::Retry | Mode::RetryRefuse => Outcome::retry(),
            Mode::Ignore
            | Mode::Alpn
            | Mode::Open
            | Mode::Echo
            | Mode::Garbage
            | Mode::Spam
            | Mode::Transfer => Outcome::allow(),
        }
    }
}

async fn echo(connection: Connection, tally: Rc<Tally>) {
    // As much as it came to.
    let _ = echo_all(connection).await;
    tally.completion();
}

async fn echo_all(mut connection: Connection) -> Result<()> {
    let mut stream = connection.accept_bidirectional_stream().await?.context("it has ended")?;
    let mut room = vec![0; ROOM];
    while let length @ 1.. = stream.read(&mut room).await? {
        stream.write_all(&room[..length]).await?;
    }
    Ok(())
}
