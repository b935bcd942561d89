//! Those who watch: what happens to sessions, messages and best routes, handed on to another process.
//!
//! Where nothing watches, each place that has something to tell costs the question whether somebody does. A watcher has a
//! queue of its own with a bound; what it does not fetch in time is lost and counted, and it is told so. So nobody who
//! watches, however slow, delays a session or makes this process larger.
//!
//! What a watcher begins with (sessions that are up, the table) comes through the same stream, behind what happened before
//! and in front of what happens after: whoever applies both in order has what is here.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    net::IpAddr,
    rc::{Rc, Weak},
    time::{Duration, SystemTime},
};

use holdfast_api::bgp::v1::{
    self as api, DumpedPath, DumpedPrefix, WatchEvent, WatchRequest, Watched, watch_event::What,
    watched_down::Reason,
};
use holdfast_bgp_pipeline::{DumpView, DumpedPath as TablePath, NeighborView, PathView, PeerIndex, Pipeline};
use holdfast_bgp_session::{DownReason, State};
use holdfast_bgp_wire::{MessageType, Open};
use holdfast_types::{Family, Prefix};
use holdfast_xrl::{ReplySink, XrlError};
use tokio::{sync::Notify, time::sleep};

use crate::{
    config::octets,
    connection::Connection,
    location::Location,
    speaker::{Key, Slot, Speaker},
    tasks::Bgp,
};

/// Octets that wait for one watcher.
const MOST_OCTETS: usize = 8 << 20;
/// What an event costs besides its octets.
const EVENT_OCTETS: usize = 96;
/// Watchers at a time.
const MOST_WATCHERS: usize = 16;
/// Octets in one item of the stream, more or less.
const ITEM_OCTETS: usize = 256 << 10;
/// Pause while a takeover is not complete.
const REPLAY: Duration = Duration::from_millis(50);
/// Prefixes in one item.
const ROWS: usize = 256;

/// Who watches.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    list: Vec<Weak<Watcher>>,
    /// Where the change logs were before what happens now, if somebody wants to know of best routes.
    changing: Option<[u64; 2]>,
}

/// What one of them wants, and what waits for it.
#[derive(Debug)]
struct Watcher {
    wants: WatchRequest,
    events: RefCell<VecDeque<WatchEvent>>,
    octets: Cell<usize>,
    lost: Cell<u64>,
    wake: Notify,
}

impl Watcher {
    fn push(&self, at: u64, what: &What) {
        let octets = EVENT_OCTETS + size(what);
        if self.octets.get() + octets > MOST_OCTETS {
            self.lost.set(self.lost.get() + 1);
        } else {
            self.octets.set(self.octets.get() + octets);
            let event = WatchEvent { at_microseconds: at, what: Some(what.clone()) };
            self.events.borrow_mut().push_back(event);
        }
        self.wake.notify_one();
    }

    /// What is to be sent next of what waits.
    fn take(&self) -> Option<Watched> {
        let mut events = self.events.borrow_mut();
        let (mut taken, mut octets) = (Vec::new(), 0);
        while octets < ITEM_OCTETS
            && let Some(event) = events.pop_front()
        {
            octets += EVENT_OCTETS + event.what.as_ref().map_or(0, size);
            taken.push(event);
        }
        self.octets.set(self.octets.get().saturating_sub(octets));
        // What was lost is missing behind all that waits.
        let lost = if events.is_empty() { self.lost.take() } else { 0 };
        (!taken.is_empty() || lost > 0).then_some(Watched { events: taken, lost, ..Watched::default() })
    }
}

fn size(what: &What) -> usize {
    match what {
        What::Up(up) => up.sent_open.len() + up.received_open.len() + 128,
        What::Down(down) => down.notification.len(),
        What::Received(message) | What::Sent(message) => message.octets.len(),
        What::State(_) => 32,
        What::Best(best) => best.paths.iter().map(|path| path.attributes.len() + 64).sum(),
    }
}

fn unix_microseconds() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_micros() as u64)
}

impl Watchers {
    /// Whether anybody watches.
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether somebody wants what is sent.
    pub(crate) fn want_sent(&self) -> bool {
        !self.is_empty() && self.any(|wants| wants.sent_updates)
    }

    fn any(&self, wanted: impl Fn(&WatchRequest) -> bool) -> bool {
        self.list.iter().filter_map(Weak::upgrade).any(|watcher| wanted(&watcher.wants))
    }

    fn add(&mut self, wants: WatchRequest) -> Option<Rc<Watcher>> {
        self.list.retain(|watcher| watcher.strong_count() > 0);
        if self.list.len() >= MOST_WATCHERS {
            return None;
        }
        let watcher = Rc::new(Watcher {
            wants,
            events: RefCell::default(),
            octets: Cell::default(),
            lost: Cell::default(),
            wake: Notify::new(),
        });
        self.list.push(Rc::downgrade(&watcher));
        Some(watcher)
    }

    #[cold]
    fn tell(&mut self, wanted: impl Fn(&WatchRequest) -> bool, what: &What) {
        let at = unix_microseconds();
        self.list.retain(|watcher| {
            let Some(watcher) = watcher.upgrade() else { return false };
            if wanted(&watcher.wants) {
                watcher.push(at, what);
            }
            true
        });
    }

    /// A message has come on a connection; or `again`, having come to the process before.
    #[cold]
    pub(crate) fn received(&mut self, (index, _): Key, kind: MessageType, wire: &[u8], again: bool) {
        let octets = wire.to_vec();
        let what = What::Received(api::WatchedMessage { number: index.0.into(), octets });
        let is_update = kind == MessageType::Update;
        self.tell(|wants| wants.received_all && !again || is_update && wants.received_updates, &what);
    }

    /// UPDATEs go to a peer.
    #[cold]
    pub(crate) fn sent(&mut self, index: PeerIndex, messages: &[u8]) {
        let octets = messages.to_vec();
        let what = What::Sent(api::WatchedMessage { number: index.0.into(), octets });
        self.tell(|wants| wants.sent_updates, &what);
    }

    /// The pipeline is about to change.
    pub(crate) fn changing(&mut self, pipeline: &Pipeline) {
        if !self.is_empty() {
            let wanted = self.any(|wants| wants.loc_rib);
            self.changing = wanted.then(|| pipeline.changes_end());
        }
    }

    /// It has changed.
    pub(crate) fn changed(&mut self, pipeline: &mut Pipeline) {
        let Some(ends) = self.changing.take() else { return };
        for (prefix, _) in pipeline.changes_since(ends) {
            let paths = pipeline.best(prefix).into_iter().map(dumped).collect();
            self.tell(|wants| wants.loc_rib, &What::Best(DumpedPrefix { paths, ..network(prefix) }));
        }
    }
}

fn network(prefix: Prefix) -> DumpedPrefix {
    DumpedPrefix { address: octets(prefix.address()), length: prefix.length().into(), paths: Vec::new() }
}

fn dumped(path: TablePath) -> DumpedPath {
    DumpedPath {
        number: path.peer.map(|peer| peer.0.into()),
        attributes: path.bytes,
        next_hop: path.next_hop.map(octets).unwrap_or_default(),
        path_id: path.identifier,
    }
}

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

impl Speaker {
    /// The session is up.
    pub(crate) fn watch_up(&mut self, index: PeerIndex) {
        if !self.watchers.is_empty()
            && let Some(up) = self.watched_peer(index)
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
            DownReason::Stopped(_) => (Reason::Stopped, Vec::new()),
        };
        let down = api::WatchedDown { number: index.0.into(), reason: reason.into(), notification };
        self.watchers.tell(|_| true, &What::Down(down));
    }

    /// Its state may be another.
    #[cold]
    pub(crate) fn watch_state(&mut self, index: PeerIndex) {
        let Some(slot) = self.slots.get_mut(&index) else { return };
        let now = slot.session.state();
        let old = slot.watched.replace(now).unwrap_or(State::Idle);
        if old == now {
            return;
        }
        let connection = slot.session.connection().and_then(|(id, _)| self.connections.get(&(index, id)));
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
            asn: slot.session.negotiated().map_or(slot.neighbor.source.asn, |agreed| agreed.asn.0),
            local_asn: self.settings.asn.0,
            old: number(old),
            new: number(now),
        };
        self.watchers.tell(|wants| wants.received_all, &What::State(state));
    }

    /// A session that is up; `None` if it is not.
    fn watched_peer(&self, index: PeerIndex) -> Option<api::WatchedPeer> {
        let slot = self.slots.get(&index)?;
        let negotiated = slot.session.negotiated()?;
        let (_, connection) = self.session_connection(index)?;
        Some(api::WatchedPeer {
            number: index.0.into(),
            name: slot.neighbor.name.clone(),
            address: octets(connection.remote.ip()),
            local_address: octets(connection.local.ip()),
            port: connection.remote.port().into(),
            local_port: connection.local.port().into(),
            asn: negotiated.asn.0,
            local_asn: self.settings.asn.0,
            router_id: negotiated.router_id.bits(),
            four_octet_as: negotiated.four_octet_as,
            sent_open: self.sent_open(slot, connection),
            received_open: received_open(slot, connection),
            add_path: negotiated.identifiers_received.len() == negotiated.families.len(),
            add_path_afis: negotiated.identifiers_received.iter().map(|family| family.afi.0.into()).collect(),
        })
    }

    /// Of a session that this process has taken over, an OPEN that says the same.
    fn sent_open(&self, slot: &Slot, connection: &Connection) -> Vec<u8> {
        if !connection.sent_open.is_empty() {
            return connection.sent_open.clone();
        }
        let open = Open {
            asn: self.settings.asn,
            hold_time: slot.neighbor.source.hold_time as u16,
            router_id: self.settings.router_id,
            capabilities: slot.session.offered(),
        };
        open.encode()
    }

    /// Begins to watch: what is up already comes first.
    fn watch(&mut self, wants: WatchRequest) -> Option<Rc<Watcher>> {
        let watcher = self.watchers.add(wants)?;
        let at = unix_microseconds();
        let indexes: Vec<_> = self.slots.keys().copied().collect();
        for index in indexes {
            if let Some(slot) = self.slots.get_mut(&index) {
                slot.watched = Some(slot.session.state());
            }
            if let Some(up) = self.watched_peer(index) {
                watcher.push(at, &What::Up(up));
            }
        }
        Some(watcher)
    }
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

/// What is walked for a watcher.
#[derive(Copy, Clone, Debug)]
enum Told {
    /// All paths, as received.
    Received,
    /// What a peer is told.
    Sent(PeerIndex),
    /// The best paths.
    Best,
}

/// Where a walk over the table is.
struct Walk {
    parts: VecDeque<(Told, Family)>,
    after: Option<Prefix>,
}

impl Walk {
    fn new(wants: &WatchRequest, speaker: &Speaker) -> Self {
        let sent = speaker.slots.keys().filter(|_| wants.dump_sent).map(|index| Told::Sent(*index));
        let received = wants.dump_received.then_some(Told::Received);
        let all = received.into_iter().chain(sent).chain(wants.dump_best.then_some(Told::Best));
        let parts = all.flat_map(|told| Family::ALL.map(|family| (told, family)));
        Self { parts: parts.collect(), after: None }
    }

    /// The next part; `None` when all has been told.
    fn next(&mut self, pipeline: &mut Pipeline) -> Option<Watched> {
        let &(told, family) = self.parts.front()?;
        let mut watched = Watched::default();
        let (next, prefixes) = match told {
            Told::Received | Told::Best => {
                watched.best = matches!(told, Told::Best);
                let view = if watched.best { DumpView::Best } else { DumpView::Received };
                let page = pipeline.dump(family, view, self.after, ROWS);
                (page.next, page.prefixes)
            }
            Told::Sent(index) => {
                watched.sent_to = Some(index.0.into());
                let view = NeighborView::Advertised;
                // That a session has ended is told besides; then there is nothing more of it.
                let session = pipeline.shown_session(index, view);
                let page = session
                    .and_then(|session| pipeline.neighbor_routes(session, view, family, self.after, ROWS));
                let (next, routes) = page.map_or((None, Vec::new()), |page| (page.next, page.routes));
                let path = |(prefix, view): (Prefix, PathView)| {
                    let next_hop = view.next_hop.map(|gateway| gateway.address);
                    let PathView { peer, bytes, identifier, .. } = view;
                    (prefix, vec![TablePath { peer, bytes, next_hop, identifier }])
                };
                (next, routes.into_iter().map(path).collect())
            }
        };
        let row = |(prefix, paths): (Prefix, Vec<TablePath>)| DumpedPrefix {
            paths: paths.into_iter().map(dumped).collect(),
            ..network(prefix)
        };
        watched.dumped = prefixes.into_iter().map(row).collect();
        self.after = next;
        if next.is_none() {
            self.parts.pop_front();
            watched.ended_afi = family.afi.0.into();
        }
        Some(watched)
    }
}

/// Serves a watcher until it goes.
pub(crate) async fn serve(
    bgp: &Rc<Bgp>,
    wants: WatchRequest,
    mut replies: ReplySink<Watched>,
) -> Result<(), XrlError> {
    let mut walk = Walk::new(&wants, &bgp.speaker.borrow());
    let watcher = bgp.speaker.borrow_mut().watch(wants);
    let watcher = watcher.ok_or_else(|| XrlError::unavailable("too many watch already"))?;
    loop {
        // What has happened goes before what is there now, which has it in it.
        while let Some(watched) = watcher.take() {
            replies.send(watched).await?;
        }
        // What the process before has received comes into the tables without a word.
        if bgp.speaker.borrow().slots.values().any(Slot::is_replaying) {
            sleep(REPLAY).await;
            continue;
        }
        let page = walk.next(&mut bgp.speaker.borrow_mut().pipeline);
        match page {
            Some(page) => {
                replies.send(page).await?;
                tokio::task::yield_now().await;
            }
            None => watcher.wake.notified().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(octets: usize) -> What {
        What::Received(api::WatchedMessage { number: 1, octets: vec![0; octets] })
    }

    #[test]
    fn what_does_not_fit_is_lost_and_said_behind_what_waits() {
        let mut watchers = Watchers::default();
        let wants = WatchRequest { received_all: true, ..WatchRequest::default() };
        let watcher = watchers.add(wants).expect("room");
        let most = MOST_OCTETS / (4096 + EVENT_OCTETS);
        for _ in 0..most + 10 {
            watchers.tell(|wants| wants.received_all, &message(4096));
        }
        let (mut events, mut lost) = (0, Vec::new());
        while let Some(watched) = watcher.take() {
            events += watched.events.len();
            lost.push(watched.lost);
        }
        assert_eq!((events, lost.pop()), (most, Some(10)));
        assert!(lost.iter().all(|lost| *lost == 0), "those came before");
        assert_eq!(watcher.octets.get(), 0);
        watchers.tell(|wants| wants.received_all, &message(1));
        assert_eq!(watcher.take().map(|watched| (watched.events.len(), watched.lost)), Some((1, 0)));
    }

    #[test]
    fn each_is_told_what_it_wants_until_it_goes() {
        let mut watchers = Watchers::default();
        assert!(watchers.is_empty() && !watchers.want_sent());
        let sent =
            watchers.add(WatchRequest { sent_updates: true, ..WatchRequest::default() }).expect("room");
        let all = watchers.add(WatchRequest { received_all: true, ..WatchRequest::default() }).expect("room");
        let key = (PeerIndex(3), holdfast_bgp_session::ConnId(0));
        watchers.received(key, MessageType::KeepAlive, &[1], false);
        watchers.received(key, MessageType::Update, &[1], true);
        watchers.sent(PeerIndex(3), &[2]);
        assert_eq!(
            (sent.take().map(|it| it.events.len()), all.take().map(|it| it.events.len())),
            (Some(1), Some(1))
        );
        drop(sent);
        drop(all);
        watchers.sent(PeerIndex(3), &[2]);
        assert!(watchers.is_empty(), "who is gone costs nothing any more");
        let kept: Vec<_> = (0..MOST_WATCHERS).map(|_| watchers.add(WatchRequest::default())).collect();
        assert!(kept.iter().all(Option::is_some) && watchers.add(WatchRequest::default()).is_none());
    }
}
