//! One session of TLS, as the library has it: ended here where the library would not say a word, or would go on.
//!
//! - What fails with the first packet of an attempt fails before the library knows the connection, and is not answered. So
//!   it is held back until it does: then the other end gets its alert (RFC 9001 section 4.8).
//! - A dialer that gives an attempt up is not asked: the library sends its first flight again and again. The session
//!   ends it.

use std::{
    any::Any,
    sync::Arc,
    task::{Poll, Waker},
};

use bytes::Bytes;
use s2n_quic::provider::tls::rustls as library;
use s2n_quic_core::{
    application::ServerName,
    crypto::{
        CryptoSuite,
        tls::{ApplicationParameters, Context, Endpoint, NamedGroup, Session as Tls, TlsSession},
    },
    transport::Error,
};

use super::state::State;

/// Of the library; the same type for either side.
pub(super) type Library = <library::Server as Endpoint>::Session;

/// A session, and what becomes of it here.
#[derive(Debug)]
pub(super) struct Session {
    session: Library,
    /// `None`: nobody was let in.
    state: Option<Arc<State>>,
    /// It was asked once.
    is_known: bool,
    refused: Option<Error>,
}

impl Session {
    pub(super) fn new(session: Library, state: Option<Arc<State>>) -> Self {
        Self { session, state, is_known: false, refused: None }
    }
}

impl Tls for Session {
    fn poll<C: Context<Self>>(&mut self, context: &mut C) -> Poll<Result<(), Error>> {
        if let Some(error) = self.refused {
            return Poll::Ready(Err(error));
        }
        let is_given_up = self.state.as_ref().is_some_and(|state| state.is_given_up(context.waker()));
        if is_given_up && self.is_known {
            // To the other end this is what it is: whoever has dialed does not want it any more.
            return Poll::Ready(Err(Error::APPLICATION_ERROR));
        }
        let polled = self.session.poll(&mut Through(context));
        let was_known = std::mem::replace(&mut self.is_known, true);
        match polled {
            Poll::Ready(Err(error)) if !was_known => {
                self.refused = Some(error);
                context.waker().wake_by_ref();
                Poll::Pending
            }
            polled => {
                if is_given_up {
                    context.waker().wake_by_ref();
                }
                polled
            }
        }
    }
}

impl CryptoSuite for Session {
    type HandshakeKey = <Library as CryptoSuite>::HandshakeKey;
    type HandshakeHeaderKey = <Library as CryptoSuite>::HandshakeHeaderKey;
    type InitialKey = <Library as CryptoSuite>::InitialKey;
    type InitialHeaderKey = <Library as CryptoSuite>::InitialHeaderKey;
    type OneRttKey = <Library as CryptoSuite>::OneRttKey;
    type OneRttHeaderKey = <Library as CryptoSuite>::OneRttHeaderKey;
    type ZeroRttKey = <Library as CryptoSuite>::ZeroRttKey;
    type ZeroRttHeaderKey = <Library as CryptoSuite>::ZeroRttHeaderKey;
    type RetryKey = <Library as CryptoSuite>::RetryKey;
}

/// The connection, as the library's own session wants it.
struct Through<'a, C>(&'a mut C);

impl<C: Context<Session>> Context<Library> for Through<'_, C> {
    fn on_client_application_params(
        &mut self,
        client: ApplicationParameters<'_>,
        server: &mut Vec<u8>,
    ) -> Result<(), Error> {
        self.0.on_client_application_params(client, server)
    }

    fn on_handshake_keys(
        &mut self,
        key: <Library as CryptoSuite>::HandshakeKey,
        header_key: <Library as CryptoSuite>::HandshakeHeaderKey,
    ) -> Result<(), Error> {
        self.0.on_handshake_keys(key, header_key)
    }

    fn on_zero_rtt_keys(
        &mut self,
        key: <Library as CryptoSuite>::ZeroRttKey,
        header_key: <Library as CryptoSuite>::ZeroRttHeaderKey,
        parameters: ApplicationParameters<'_>,
    ) -> Result<(), Error> {
        self.0.on_zero_rtt_keys(key, header_key, parameters)
    }

    fn on_one_rtt_keys(
        &mut self,
        key: <Library as CryptoSuite>::OneRttKey,
        header_key: <Library as CryptoSuite>::OneRttHeaderKey,
        parameters: ApplicationParameters<'_>,
    ) -> Result<(), Error> {
        self.0.on_one_rtt_keys(key, header_key, parameters)
    }

    fn on_server_name(&mut self, name: ServerName) -> Result<(), Error> {
        self.0.on_server_name(name)
    }

    fn on_application_protocol(&mut self, protocol: Bytes) -> Result<(), Error> {
        self.0.on_application_protocol(protocol)
    }

    fn on_key_exchange_group(&mut self, group: NamedGroup) -> Result<(), Error> {
        self.0.on_key_exchange_group(group)
    }

    fn on_handshake_complete(&mut self) -> Result<(), Error> {
        self.0.on_handshake_complete()
    }

    fn on_tls_context(&mut self, context: Box<dyn Any + Send>) {
        self.0.on_tls_context(context);
    }

    fn on_tls_exporter_ready(&mut self, session: &impl TlsSession) -> Result<(), Error> {
        self.0.on_tls_exporter_ready(session)
    }

    fn on_tls_handshake_failed(
        &mut self,
        session: &impl TlsSession,
        error: Box<dyn std::error::Error + Send + Sync + 'static>,
    ) -> Result<(), Error> {
        self.0.on_tls_handshake_failed(session, error)
    }

    fn receive_initial(&mut self, most: Option<usize>) -> Option<Bytes> {
        self.0.receive_initial(most)
    }

    fn receive_handshake(&mut self, most: Option<usize>) -> Option<Bytes> {
        self.0.receive_handshake(most)
    }

    fn receive_application(&mut self, most: Option<usize>) -> Option<Bytes> {
        self.0.receive_application(most)
    }

    fn can_send_initial(&self) -> bool {
        self.0.can_send_initial()
    }

    fn send_initial(&mut self, octets: Bytes) {
        self.0.send_initial(octets);
    }

    fn can_send_handshake(&self) -> bool {
        self.0.can_send_handshake()
    }

    fn send_handshake(&mut self, octets: Bytes) {
        self.0.send_handshake(octets);
    }

    fn can_send_application(&self) -> bool {
        self.0.can_send_application()
    }

    fn send_application(&mut self, octets: Bytes) {
        self.0.send_application(octets);
    }

    fn waker(&self) -> &Waker {
        self.0.waker()
    }
}
