//! An attempt as admission sees it: noq has opened its first packet, and made nothing of it yet.

use std::net::{IpAddr, SocketAddr};

use holdfast_admission::{AddressProof, Attempt, Hello, Load};
use holdfast_tls_wire::{Frame, Frames, Peek, Reassembly, peek_initial};
use noq::Incoming;

use super::crypto::FirstFlight;
use crate::attempt::canonical;

/// The first packet of somebody who wants a connection.
pub(super) struct Initial<'a> {
    incoming: &'a Incoming,
    flight: &'a FirstFlight,
    endpoint: &'a noq::Endpoint,
    handshakes: usize,
    /// Whether its token has served before.
    is_replay: bool,
    payload: Option<Vec<u8>>,
    pieces: Reassembly,
}

impl<'a> Initial<'a> {
    pub(super) fn new(
        incoming: &'a Incoming,
        flight: &'a FirstFlight,
        endpoint: &'a noq::Endpoint,
        handshakes: usize,
        is_replay: bool,
    ) -> Self {
        let pieces = Reassembly::default();
        Self { incoming, flight, endpoint, handshakes, is_replay, payload: None, pieces }
    }

    /// Whether nothing can come of it. Its first packet cannot be opened, so it is no Initial (RFC 9001 section 5.2). Or that says
    /// that there is no connection, as the last one of a handshake may that failed at the other end: let in, it would be a
    /// connection of noq's that never ends, and keeps the socket, since no timer runs for it.
    pub(super) fn is_void(&mut self) -> bool {
        let payload = self.payload();
        payload.is_empty() || Frames::new(payload).any(|frame| matches!(frame, Ok(Frame::Close(_))))
    }

    fn payload(&mut self) -> &[u8] {
        self.payload.get_or_insert_with(|| self.flight.look(self.incoming))
    }
}

impl Attempt for Initial<'_> {
    fn remote(&self) -> SocketAddr {
        canonical(self.incoming.remote_address())
    }

    fn local(&self) -> Option<IpAddr> {
        self.incoming.local_ip().map(|address| address.to_canonical())
    }

    fn proof(&self) -> AddressProof {
        // We hand out tokens in Retry only.
        let is_proven = self.incoming.remote_address_validated() && !self.is_replay;
        if is_proven { AddressProof::Token } else { AddressProof::None }
    }

    fn can_retry(&self) -> bool {
        self.incoming.may_retry()
    }

    fn hello(&mut self) -> Hello<'_> {
        let payload = self.payload.get_or_insert_with(|| self.flight.look(self.incoming));
        match peek_initial(payload, &mut self.pieces) {
            Ok(Peek::Known(hello)) => Hello::Known { alpn: hello.alpn(), server_name: hello.server_name() },
            // noq keeps the second datagram, and shows it to nobody: post-quantum clients send two.
            Ok(Peek::Incomplete) => Hello::Incomplete,
            // What is wrong with it, the handshake will say.
            Ok(Peek::Other) | Err(_) => Hello::Unsupported,
        }
    }

    fn load(&self) -> Load {
        let handshakes = self.handshakes;
        Load { handshakes, connections: self.endpoint.open_connections().saturating_sub(handshakes) }
    }
}
