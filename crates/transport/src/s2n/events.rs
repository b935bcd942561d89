//! What the library tells of its connections.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, Weak},
};

use s2n_quic::{
    connection::Error,
    provider::event::{ConnectionInfo, ConnectionMeta, Subscriber, events},
};

use super::{
    door::{Door, lock},
    state::State,
    task::Task,
};
use crate::{Stray, stray::Strays};

/// The connection that the library is making just now: it asks for limits, a session of TLS and a context one after the
/// other, and none of them knows of the others.
pub(super) type Making = Mutex<Option<Arc<State>>>;

/// Takes note of what happens.
pub(super) struct Events {
    pub(super) making: Arc<Making>,
    /// Where connections are accepted.
    pub(super) door: Option<Arc<Door>>,
    pub(super) strays: Option<Arc<Strays>>,
    /// This runs in it, so it does not hold it.
    pub(super) task: Weak<Task>,
}

/// What is kept with each connection of the library.
pub(super) struct Context {
    /// `None`: the library has made a connection without asking who may come.
    state: Option<Arc<State>>,
    door: Option<Arc<Door>>,
    _task: Option<Arc<Task>>,
}

impl Context {
    pub(super) fn state(&self) -> Option<Arc<State>> {
        self.state.clone()
    }

    fn end(&self, error: Option<Error>) {
        let Some(state) = &self.state else { return };
        if state.end(error)
            && let Some(door) = &self.door
        {
            door.failed(state.remote, &state.failure(error));
        }
        state.release();
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        self.end(None);
        if let (Some(door), Some(state)) = (&self.door, &self.state) {
            door.gone(state.is_taken());
        }
    }
}

impl Subscriber for Events {
    type ConnectionContext = Context;

    fn create_connection_context(&mut self, _: &ConnectionMeta, info: &ConnectionInfo<'_>) -> Context {
        let state = match &self.door {
            Some(door) => {
                let state = lock(&self.making).take();
                if let Some(state) = &state {
                    state.hold(door.begin());
                }
                state
            }
            None => {
                let state = info.application.and_then(|dialed| dialed.downcast_ref::<Arc<State>>()).cloned();
                lock(&self.making).clone_from(&state);
                state
            }
        };
        Context { state, door: self.door.clone(), _task: self.task.upgrade() }
    }

    fn on_endpoint_connection_attempt_failed(
        &mut self,
        _: &events::EndpointMeta,
        _: &events::EndpointConnectionAttemptFailed,
    ) {
        if let Some(door) = &self.door {
            door.never();
        }
    }

    fn on_endpoint_packet_sent(&mut self, _: &events::EndpointMeta, event: &events::EndpointPacketSent) {
        if let (events::PacketHeader::StatelessReset { .. }, Some(strays)) =
            (&event.packet_header, &self.strays)
        {
            strays.count(Stray::Reset);
        }
    }

    fn on_handshake_status_updated(
        &mut self,
        context: &mut Context,
        _: &ConnectionMeta,
        event: &events::HandshakeStatusUpdated,
    ) {
        if let (events::HandshakeStatus::Confirmed { .. }, Some(state)) = (&event.status, &context.state) {
            state.confirm();
        }
    }

    fn on_tls_exporter_ready(
        &mut self,
        context: &mut Context,
        _: &ConnectionMeta,
        event: &events::TlsExporterReady<'_>,
    ) {
        if let (Some(state), Ok(chain)) = (&context.state, event.session.peer_cert_chain_der()) {
            state.presents(chain);
        }
    }

    fn on_connection_closed(
        &mut self,
        context: &mut Context,
        _: &ConnectionMeta,
        event: &events::ConnectionClosed,
    ) {
        context.end(Some(event.error));
    }

    fn on_ack_range_received(
        &mut self,
        context: &mut Context,
        _: &ConnectionMeta,
        _: &events::AckRangeReceived<'_>,
    ) {
        if let Some(state) = &context.state {
            state.is_heard();
        }
    }

    fn on_packet_lost(&mut self, context: &mut Context, _: &ConnectionMeta, event: &events::PacketLost<'_>) {
        // That of a probe says how long packets may be, and nothing of the path's health.
        if !event.is_mtu_probe
            && let Some(state) = &context.state
        {
            state.lost_packet();
        }
    }

    fn on_recovery_metrics(
        &mut self,
        context: &mut Context,
        _: &ConnectionMeta,
        event: &events::RecoveryMetrics<'_>,
    ) {
        if let Some(state) = &context.state {
            state.round_trip(event.smoothed_rtt);
        }
    }

    fn on_active_path_updated(
        &mut self,
        context: &mut Context,
        _: &ConnectionMeta,
        event: &events::ActivePathUpdated<'_>,
    ) {
        let moved =
            SocketAddr::from(&event.previous.remote_addr) != SocketAddr::from(&event.active.remote_addr);
        if moved && let Some(state) = &context.state {
            state.migrated();
        }
    }

    fn on_key_update(&mut self, context: &mut Context, _: &ConnectionMeta, event: &events::KeyUpdate) {
        if let (events::KeyType::OneRtt { generation, .. }, Some(state)) = (&event.key_type, &context.state) {
            state.keys_updated(*generation);
        }
    }
}
