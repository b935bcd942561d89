//! What happens to sessions, for those who watch.

use std::{net::IpAddr, rc::Rc};

use holdfast_api::bgp::v1::{self as api, WatchRequest, watch_event::What, watched_down::Reason};
use holdfast_bgp_pipeline::PeerIndex;
use holdfast_bgp_session::{DownReason, State};
use holdfast_bgp_wire::{CeaseSubcode, Notification, Open};
use holdfast_types::octets;

use super::Reporter;
use crate::{
    config::Settings,
    connection::Connection,
    location::Location,
    sessions::{Sessions, slot::Slot},
    watch::{Watcher, unix_microseconds},
};

/// As RFC 6396 section 4.4.1 numbers them.
fn number(state: State) -> u32 {
    match state {
        State::Idle => 1,
        State::Connect => 2,
        State::Active => 3,
        State::OpenSent => 4,
        State::OpenConfirm => 5,
        State::Established => 6,
    }
}

impl Reporter {
    /// The session is up.
    pub(crate) fn watch_up(&mut self, sessions: &Sessions, settings: &Settings, index: PeerIndex) {
        if !self.watchers.is_empty()
            && let Some(up) = watched_peer(sessions, settings, index)
        {
            self.watchers.tell(|_| true, &What::Up(up));
        }
    }

    /// It is down.
    pub(crate) fn watch_down(&mut self, index: PeerIndex, why: &DownReason) {
        if self.watchers.is_empty() {
            return;
        }
        let (reason, notification) = match why {
            DownReason::Sent(notification) => (Reason::Sent, notification.encode()),
            DownReason::Received(notification) => (Reason::Received, notification.encode()),
            DownReason::Lost(_) | DownReason::Replaced => (Reason::Lost, Vec::new()),
            DownReason::BfdDown => (Reason::Sent, Notification::cease(CeaseSubcode::BfdDown).encode()),
            DownReason::Stopped(_) => (Reason::Stopped, Vec::new()),
        };
        let down = api::WatchedDown { number: index.0.into(), reason: reason.into(), notification };
        self.watchers.tell(|_| true, &What::Down(down));
    }

    /// Its state may be another.
    #[cold]
    pub(crate) fn watch_state(&mut self, sessions: &mut Sessions, settings: &Settings, index: PeerIndex) {
        let Some(slot) = sessions.slot_mut(index) else { return };
        let now = slot.session.state();
        let old = slot.watched.replace(now).unwrap_or(State::Idle);
        if old == now {
            return;
        }
        let Some(slot) = sessions.slot(index) else { return };
        let connection = slot.session.connection().and_then(|(id, _)| sessions.connection((index, id)));
        let remote = connection.map(|connection| connection.remote.ip());
        let address = match (&slot.neighbor.location, remote) {
            (Location::Neighbor(_), Some(remote)) => remote,
            (location, _) => location.address(),
        };
        let local = connection.map(|connection| connection.local.ip());
        let unspecified = || if address.is_ipv4() { IpAddr::from([0; 4]) } else { IpAddr::from([0; 16]) };
        let state = api::WatchedState {
            number: index.0.into(),
            address: octets(address),
            local_address: octets(local.unwrap_or_else(unspecified)),
            asn: slot.session.negotiated().map_or(slot.neighbor.configured_asn().0, |agreed| agreed.asn.0),
            local_asn: settings.asn.0,
            old: number(old),
            new: number(now),
        };
        self.watchers.tell(|wants| wants.received_all, &What::State(state));
    }

    /// Begins to watch: what is up already comes first.
    pub(crate) fn watch(
        &mut self,
        sessions: &mut Sessions,
        settings: &Settings,
        wants: WatchRequest,
    ) -> Option<Rc<Watcher>> {
        let watcher = self.watchers.add(wants)?;
        let at = unix_microseconds();
        for index in sessions.indexes() {
            if let Some(slot) = sessions.slot_mut(index) {
                slot.watched = Some(slot.session.state());
            }
            if let Some(up) = watched_peer(sessions, settings, index) {
                watcher.push(at, &What::Up(up));
            }
        }
        Some(watcher)
    }
}

/// A session that is up; `None` if it is not.
fn watched_peer(sessions: &Sessions, settings: &Settings, index: PeerIndex) -> Option<api::WatchedPeer> {
    let slot = sessions.slot(index)?;
    let negotiated = slot.session.negotiated()?;
    let (_, connection) = sessions.session_connection(index)?;
    Some(api::WatchedPeer {
        number: index.0.into(),
        name: slot.neighbor.name.clone(),
        address: octets(connection.remote.ip()),
        local_address: octets(connection.local.ip()),
        port: connection.remote.port().into(),
        local_port: connection.local.port().into(),
        asn: negotiated.asn.0,
        local_asn: settings.asn.0,
        router_id: negotiated.router_id.bits(),
        four_octet_as: negotiated.four_octet_as,
        sent_open: sent_open(settings, slot, connection),
        received_open: received_open(slot, connection),
        add_path: negotiated.identifiers_received.len() == negotiated.families.len(),
        add_path_afis: negotiated.identifiers_received.iter().map(|family| family.afi.0.into()).collect(),
    })
}

/// Of a session that this process has taken over, an OPEN that says the same.
fn sent_open(settings: &Settings, slot: &Slot, connection: &Connection) -> Vec<u8> {
    if !connection.sent_open.is_empty() {
        return connection.sent_open.clone();
    }
    let open = Open {
        asn: settings.asn,
        hold_time: slot.neighbor.source.hold_time.as_secs() as u16,
        router_id: settings.router_id,
        capabilities: slot.session.offered(),
    };
    open.encode()
}

fn received_open(slot: &Slot, connection: &Connection) -> Vec<u8> {
    if !connection.received_open.is_empty() {
        return connection.received_open.clone();
    }
    let Some(negotiated) = slot.session.negotiated() else { return Vec::new() };
    let open = Open {
        asn: negotiated.asn,
        hold_time: negotiated.hold_time.as_secs() as u16,
        router_id: negotiated.router_id,
        capabilities: negotiated.capabilities.clone(),
    };
    open.encode()
}
