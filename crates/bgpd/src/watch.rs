//! Those who watch: what happens to sessions, messages and best routes, handed on to another process.
//!
//! Where nothing watches, each place that has something to tell costs the question whether somebody does. A watcher has a
//! queue of its own with a bound; what it does not fetch in time is lost and counted, and it is told so. So nobody who
//! watches, however slow, delays a session or makes this process larger.
//!
//! What a watcher begins with (sessions that are up, the table) comes through the same stream, behind what happened before
//! and in front of what happens after: whoever applies both in order has what is here.

pub(crate) mod serve;

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::{Rc, Weak},
    time::SystemTime,
};

use holdfast_api::bgp::v1::{
    self as api, DumpedPath, DumpedPrefix, WatchEvent, WatchRequest, Watched, watch_event::What,
};
use holdfast_bgp_pipeline::{DumpedPath as TablePath, PeerIndex, Pipeline};
use holdfast_bgp_wire::MessageType;
use holdfast_types::{Prefix, octets};
use tokio::sync::Notify;

/// Octets that wait for one watcher.
const MOST_OCTETS: usize = 8 << 20;
/// What an event costs besides its octets.
const EVENT_OCTETS: usize = 96;
/// Watchers at a time.
const MOST_WATCHERS: usize = 16;
/// Octets in one item of the stream, more or less.
const ITEM_OCTETS: usize = 256 << 10;

/// Who watches.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    list: Vec<Weak<Watcher>>,
    /// Where the change logs were before what happens now, if somebody wants to know of best routes.
    changing: Option<[u64; 2]>,
}

/// What one of them wants, and what waits for it.
#[derive(Debug)]
pub(crate) struct Watcher {
    wants: WatchRequest,
    events: RefCell<VecDeque<WatchEvent>>,
    octets: Cell<usize>,
    lost: Cell<u64>,
    pub(crate) wake: Notify,
}

impl Watcher {
    pub(crate) fn push(&self, at: u64, what: &What) {
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
    pub(crate) fn take(&self) -> Option<Watched> {
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

pub(crate) fn unix_microseconds() -> u64 {
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

    pub(crate) fn add(&mut self, wants: WatchRequest) -> Option<Rc<Watcher>> {
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
    pub(crate) fn tell(&mut self, wanted: impl Fn(&WatchRequest) -> bool, what: &What) {
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
    pub(crate) fn received(&mut self, index: PeerIndex, kind: MessageType, wire: &[u8], again: bool) {
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
        watchers.received(PeerIndex(3), MessageType::KeepAlive, &[1], false);
        watchers.received(PeerIndex(3), MessageType::Update, &[1], true);
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
