//! Connections from the door: those of peers that it has let in, and those that we ask for.

use std::{
    collections::HashSet,
    io,
    net::IpAddr,
    os::fd::{AsFd, OwnedFd},
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use holdfast_api::transport::v1::{self as transport, TransportClient};
use holdfast_bgp_pipeline::PeerIndex;
use holdfast_bgp_wire::{CeaseSubcode, Notification};
use holdfast_process::{OLD_TRANSPORT, spawn_task};
use holdfast_xrl::{ErrorKind, XrlError};
use tokio::{
    task::AbortHandle,
    time::{sleep, timeout},
};
use tracing::{debug, warn};

use crate::{
    bgp::Bgp,
    connection::{Key, verdict},
    location::Location,
    seed::seed,
    speaker::Speaker,
    stream::{AcceptedConnection, LINGER, Stream},
};

/// Pause before a door is asked again: the first, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How long a door is asked that has gone, or does not know the peer yet.
const PATIENCE: Duration = Duration::from_secs(10);

/// Takes the connections that the door lets in, for ever.
pub(crate) async fn accept(bgp: Rc<Bgp>) {
    let (mut pause, mut said) = (FIRST_PAUSE, String::new());
    loop {
        let start = Instant::now();
        let error = take(&bgp).await;
        // That the process has gone says the manager.
        if error.kind() != ErrorKind::Disconnected && said != error.message() {
            warn!(
                event = "door-lost",
                "no connections are taken: {}; trying again and again",
                error.message()
            );
            error.message().clone_into(&mut said);
        }
        pause = if start.elapsed() > LONGEST_PAUSE { FIRST_PAUSE } else { (2 * pause).min(LONGEST_PAUSE) };
        sleep(pause).await;
    }
}

/// Takes them from one door; what ended it.
async fn take(bgp: &Rc<Bgp>) -> XrlError {
    let door = match bgp.surroundings.wait_for::<TransportClient>("transport").await {
        Ok(door) => door,
        Err(error) => return error,
    };
    let mut stream = door.accept(transport::Empty {});
    loop {
        match stream.next_with_fds().await {
            Ok(Some((said, descriptors))) => match descriptors.into_iter().next() {
                Some(descriptor) => bgp.accepted(said, descriptor),
                None => debug!(peer = said.peer, "a connection came without its descriptor"),
            },
            Ok(None) => return XrlError::unavailable("the door has ended it"),
            Err(error) => return error,
        }
    }
}

impl Bgp {
    /// The door has let somebody in as a peer, or as one of a listen range.
    fn accepted(self: &Rc<Self>, mut said: transport::Connection, descriptor: OwnedFd) {
        let Some(location) = place_of(&said) else {
            return debug!(peer = said.peer, "a connection from nowhere");
        };
        let (name, replaced) = (said.peer.clone(), std::mem::take(&mut said.replaces));
        let handed = match Stream::new(descriptor).and_then(|stream| AcceptedConnection::new(said, stream)) {
            Ok(handed) => handed,
            Err(error) => {
                return debug!(peer = name, address = %location, "a connection is of no use: {error}");
            }
        };
        let Some(index) = self.peer_of(&name, &location) else { return self.refuse(handed) };
        match self.with(|speaker, now| speaker.accepted(index, handed, &replaced, now)) {
            Ok(key) => self.serve(key),
            Err(handed) => self.refuse(*handed),
        }
    }

    /// Ends a connection that is nobody's here, and says so (RFC 4486 section 4). Why is in the log already.
    fn refuse(self: &Rc<Self>, AcceptedConnection { stream, said, .. }: AcceptedConnection) {
        let Ok(place) = Arc::clone(&self.refusals).try_acquire_owned() else { return };
        let cease = Notification::cease(CeaseSubcode::ConnectionRejected).encode();
        let bgp = Rc::clone(self);
        spawn_task(async move {
            let _place = place;
            // It is the first that is written: there is room for all of it, or nobody any more.
            let parting = async {
                let _ = stream.writable().await;
                let _ = stream.try_write(&cease);
                part(&bgp, &stream, said.number, verdict(&cease)).await;
            };
            let _ = timeout(LINGER, parting).await;
        });
    }

    /// Whether a line about this peer or range may be written now.
    fn may_log(&self, name: &str) -> bool {
        self.speaker.borrow_mut().reporter.may_log(name, Instant::now())
    }

    /// The peer at a place that is configured under this name, or comes from the range of this name. What was proven was
    /// proven of that name, so nobody else gets the connection.
    fn peer_of(self: &Rc<Self>, name: &str, location: &Location) -> Option<PeerIndex> {
        let known = self.speaker.borrow().sessions.peer_of(location);
        let Some(index) = known else { return self.from_range(name, location) };
        let speaker = self.speaker.borrow();
        let is_meant = speaker.sessions.slot(index).is_some_and(|slot| slot.neighbor.source.name == name);
        drop(speaker);
        if !is_meant && self.may_log(name) {
            warn!(event = "connection-refused", peer = name, address = %location, "another peer is configured there");
        }
        is_meant.then_some(index)
    }

    /// A new peer of the most specific listen range around the place, if that has this name.
    fn from_range(self: &Rc<Self>, name: &str, location: &Location) -> Option<PeerIndex> {
        let ranges = self.ranges.borrow();
        let range = ranges.iter().find(|range| range.holds(location));
        let Some(range) = range.filter(|range| range.template.name == name) else {
            if self.may_log(name) {
                warn!(event = "connection-refused", peer = name, address = %location, "no peer is configured there");
            }
            return None;
        };
        let template = &range.template;
        let mut speaker = self.speaker.borrow_mut();
        if template.disabled || !speaker.sessions.has_room(&template.name) {
            if speaker.reporter.may_log(&template.name, Instant::now()) {
                let range = &template.name;
                warn!(event = "connection-refused", range, address = %location, "the range is disabled or full");
            }
            return None;
        }
        Some(speaker.add_peer(template.at(location.clone()), true, seed(), Instant::now()))
    }
}

/// Ends a connection over which the last word is said: nobody waits for the other end where the door carries it. `code` is
/// what that is told.
pub(crate) async fn part(bgp: &Bgp, stream: &Stream, number: u64, code: Option<u32>) {
    let told = async {
        let (true, Some(code)) = (stream.is_carried(), code) else { return };
        let Ok(door) = bgp.surroundings.wait_for::<TransportClient>("transport").await else { return };
        let closed = door.close(transport::CloseRequest { number, code }).await;
        // It has ended already, the door is of a release that has no word for it, or one has it that has retired.
        if closed.is_err_and(|error| error.kind() == ErrorKind::NotFound)
            && let Ok(old) = bgp.surroundings.client::<TransportClient>(OLD_TRANSPORT).await
        {
            let _ = old.close(transport::CloseRequest { number, code }).await;
        }
    };
    tokio::join!(stream.goodbye(), told);
}

/// Has the connections of these peers and ranges given the key and the TTLs that their sockets are made with now.
pub(crate) fn refit(bgp: &Rc<Bgp>, peers: &HashSet<String>) {
    let speaker = bgp.speaker.borrow();
    let is_theirs = |(index, _): &Key| {
        speaker.sessions.slot(*index).is_some_and(|slot| peers.contains(&slot.neighbor.source.name))
    };
    for key in speaker.sessions.connections().map(|(key, _)| key).filter(is_theirs) {
        bgp.spawn(refit_one(Rc::clone(bgp), key));
    }
}

/// A connection that cannot be given them is ended: it would go on without what is configured.
async fn refit_one(bgp: Rc<Bgp>, key: Key) {
    let Some(told) = fittings(&bgp.speaker.borrow(), key) else { return };
    let asked = async {
        let (request, descriptors) = told.map_err(|error| XrlError::internal(error.to_string()))?;
        ask_to_refit(&bgp, request, descriptors).await
    };
    let asked = timeout(PATIENCE, asked).await.unwrap_or_else(|_| Err(XrlError::timeout("no answer")));
    bgp.with(|speaker, now| {
        let Some(slot) = speaker.sessions.slot(key.0).filter(|_| speaker.sessions.connection(key).is_some())
        else {
            return;
        };
        let peer = &slot.neighbor.name;
        match asked {
            Ok(()) => debug!(peer, "the connection has another key or TTL"),
            Err(error) => {
                let why = error.message();
                warn!(
                    event = "refit-failed",
                    peer, "no other key or TTL for the connection, which ends: {why}"
                );
                speaker.begin_anew(key.0, now);
            }
        }
    });
}

type Fittings = io::Result<(transport::RefitRequest, Vec<OwnedFd>)>;

/// Which connection it is, for the door; `None` where there is nothing to set: QUIC has neither.
fn fittings(speaker: &Speaker, key: Key) -> Option<Fittings> {
    let (slot, connection) = (speaker.sessions.slot(key.0)?, speaker.sessions.connection(key)?);
    let peer = slot.neighbor.source.name.clone();
    match connection.said.protocol() {
        _ if !connection.stream.is_carried() => {
            let copy = connection.stream.as_fd().try_clone_to_owned();
            Some(copy.map(|copy| (transport::RefitRequest { peer, number: 0 }, vec![copy])))
        }
        transport::Protocol::Tls => {
            Some(Ok((transport::RefitRequest { peer, number: connection.said.number }, Vec::new())))
        }
        _ => None,
    }
}

async fn ask_to_refit(
    bgp: &Bgp,
    request: transport::RefitRequest,
    descriptors: Vec<OwnedFd>,
) -> Result<(), XrlError> {
    let is_carried = request.number != 0;
    let door = bgp.surroundings.wait_for::<TransportClient>("transport").await?;
    match door.refit(request.clone(), descriptors).await {
        // One has it that has retired, or it has ended.
        Err(error) if is_carried && error.kind() == ErrorKind::NotFound => {
            let old = bgp.surroundings.client::<TransportClient>(OLD_TRANSPORT).await?;
            old.refit(request, Vec::new()).await.map(drop)
        }
        result => result.map(drop),
    }
}

/// Where the door says somebody is.
fn place_of(said: &transport::Connection) -> Option<Location> {
    match Location::read(&said.remote_address, &said.interface)? {
        Location::OnLink(address, interface) if address.is_unicast_link_local() => {
            Some(Location::OnLink(address, interface))
        }
        Location::OnLink(address, _) => Some(Location::Address(IpAddr::V6(address).to_canonical())),
        Location::Address(address) => Some(Location::Address(address.to_canonical())),
        Location::Neighbor(_) => None,
    }
}

/// Starts a task that asks for a connection to a peer, by its configured name. Given up when the task is ended.
pub(crate) fn dial(bgp: Rc<Bgp>, key: Key, peer: String) -> AbortHandle {
    spawn_task(async move {
        match connect(&bgp, &peer).await {
            Ok(handed) => {
                if bgp.with(|speaker, now| speaker.connected(key, handed, now)) {
                    bgp.serve(key);
                }
            }
            Err(why) => bgp.with(|speaker, now| speaker.connect_failed(key, &why, now)),
        }
    })
    .abort_handle()
}

/// A connection over whichever of the peer's transports comes about first; why there is none.
async fn connect(bgp: &Bgp, peer: &str) -> Result<AcceptedConnection, String> {
    let _turn = bgp.dials.acquire().await.map_err(|error| error.to_string())?;
    bgp.depths.see_dials(bgp.dialled());
    let (start, mut pause) = (Instant::now(), FIRST_PAUSE);
    let (said, descriptors) = loop {
        // Thousands wait for their turn, and have no room for this meanwhile.
        let error = match Box::pin(ask(bgp, peer)).await {
            Ok(answer) => break answer,
            Err(error) => error,
        };
        // A door that has gone comes again, and is told then whom there is.
        let comes = matches!(error.kind(), ErrorKind::Disconnected | ErrorKind::NotFound);
        if !comes || start.elapsed() > PATIENCE {
            return Err(error.message().to_owned());
        }
        sleep(pause).await;
        pause = (2 * pause).min(LONGEST_PAUSE);
    };
    let descriptor = descriptors.into_iter().next().ok_or("no descriptor came with the answer")?;
    let handed = Stream::new(descriptor).and_then(|stream| AcceptedConnection::new(said, stream));
    handed.map_err(|error| match error.kind() {
        // It was there.
        io::ErrorKind::NotConnected => "the peer ends the TCP connection at once".to_owned(),
        _ => error.to_string(),
    })
}

async fn ask(bgp: &Bgp, peer: &str) -> Result<(transport::Connection, Vec<OwnedFd>), XrlError> {
    let door = bgp.surroundings.wait_for::<TransportClient>("transport").await?;
    door.connect(transport::DialRequest { peer: peer.to_owned() }).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn somebody_is_on_a_link_if_the_address_means_nothing_without_it() {
        let at = |address: &str, interface: &str| {
            let address = address.parse().expect("an address");
            let said = transport::Connection {
                remote_address: holdfast_types::octets(address),
                interface: interface.to_owned(),
                ..transport::Connection::default()
            };
            place_of(&said).map(|location| location.to_string())
        };
        assert_eq!(at("fe80::2", "eth0").as_deref(), Some("fe80::2%eth0"));
        assert_eq!(at("fe80::2", "").as_deref(), Some("fe80::2"));
        assert_eq!(at("2001:db8::2", "eth0").as_deref(), Some("2001:db8::2"));
        assert_eq!(at("::ffff:10.0.0.2", "").as_deref(), Some("10.0.0.2"));
        assert_eq!(at("10.0.0.2", "eth0").as_deref(), Some("10.0.0.2"));
        assert_eq!(place_of(&transport::Connection { interface: "eth0".into(), ..Default::default() }), None);
    }
}
