//! Raw IP packets of protocols that have no sockets for them: sent and received on their behalf, as far as they were granted
//! (section 7 of the XORP paper).
//!
//! ```text
//!  protocol ── Send ────> check: number, interface, source, destination ──> one socket for each grant ──> kernel
//!           <─ Receive ── at most a message at a time <── ears: a socket for each interface <──────────── kernel
//! ```
//!
//! Nothing is queued here. Who sends has the reply as back-pressure, and one batch of a grant is sent at a time. Who reads too
//! slowly leaves packets in the kernel, which drops what there is no room for; the reader is told how many.

mod ears;

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    os::fd::OwnedFd,
    rc::Rc,
    time::{Duration, Instant},
};

use holdfast_api::socket::v1::{RawRequest, ReceiveRequest, ReceivedPackets, SendReply, SendRequest};
use holdfast_sys::packet::{self, Way};
use holdfast_xrl::{PeerIdentity, ReplySink, XrlError};
use tokio::{
    sync::{Mutex, watch},
    time::sleep,
};
use tracing::warn;

pub use ears::ROOM;

use crate::{
    SocketError,
    place::Place,
    raw::{Link, RawGrant, within_bounds},
    relay::ears::Ears,
    socket,
};

/// Streams of received packets that a class may have.
pub const MOST_READERS: usize = 4;
/// Pause before a socket is opened again that could not be.
const RETRY: Duration = Duration::from_secs(1);
/// The log tells of refused packets once in this time.
const TELL: Duration = Duration::from_secs(10);

/// What has become of packets, since the start.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Sent.
    pub sent: Cell<u64>,
    /// Handed to protocols.
    pub received: Cell<u64>,
    /// Not sent, since a packet of their batch was not allowed.
    pub refused: Cell<u64>,
    /// Allowed, and not taken by the kernel.
    pub failed: Cell<u64>,
    /// Dropped by the kernel, since a protocol did not read them in time.
    pub dropped: Cell<u64>,
}

fn add(count: &Cell<u64>, more: impl TryInto<u64>) {
    count.set(count.get().saturating_add(more.try_into().unwrap_or(u64::MAX)));
}

/// Finds an interface by its name.
type Find = dyn Fn(&str) -> Option<Link>;

/// The interfaces, and when they may have changed.
#[derive(Clone)]
struct Links {
    changes: watch::Receiver<u64>,
    find: Rc<Find>,
}

/// A grant, and what is there for it.
struct Granted {
    grant: RawGrant,
    /// Held while a batch is sent. First come, first served.
    turn: Mutex<()>,
    /// Opened for the first packet.
    sender: RefCell<Option<Rc<OwnedFd>>>,
}

/// Sends and receives for protocols.
#[derive(Default)]
pub(crate) struct Relay {
    place: Place,
    granted: RefCell<Vec<Rc<Granted>>>,
    changed: watch::Sender<()>,
    links: RefCell<Option<Links>>,
    /// Streams of each class that has some.
    readers: Rc<RefCell<BTreeMap<String, usize>>>,
    counts: Rc<Counts>,
    told: Cell<Option<Instant>>,
}

impl Relay {
    /// There. Without interfaces nothing is relayed.
    pub(crate) fn new(place: Place) -> Self {
        Self { place, ..Self::default() }
    }

    /// Knows interfaces from now on.
    pub(crate) fn follow(
        &self,
        changes: watch::Receiver<u64>,
        find: impl Fn(&str) -> Option<Link> + 'static,
    ) {
        self.links.replace(Some(Links { changes, find: Rc::new(find) }));
    }

    pub(crate) fn counts(&self) -> Rc<Counts> {
        Rc::clone(&self.counts)
    }

    /// Replaces the grants. Streams of what is not granted any more end.
    pub(crate) fn configure(&self, grants: Vec<RawGrant>) {
        let mut granted = self.granted.borrow_mut();
        let stays = |grant: &RawGrant| granted.iter().find(|granted| granted.grant == *grant).cloned();
        let new = |grant| Rc::new(Granted { grant, turn: Mutex::default(), sender: RefCell::default() });
        *granted = grants.into_iter().map(|grant| stays(&grant).unwrap_or_else(|| new(grant))).collect();
        drop(granted);
        self.changed.send_replace(());
    }

    /// What the caller was granted of these packets.
    fn granted(&self, caller: &PeerIdentity, afi: u32, protocol: u32) -> Result<Rc<Granted>, XrlError> {
        let granted = self.granted.borrow();
        let found = granted.iter().find(|granted| granted.grant.is_for(caller, afi, protocol));
        found.cloned().ok_or_else(|| {
            XrlError::denied(format!("you may not use IP protocol {protocol} of address family {afi}"))
        })
    }

    /// The interfaces, as soon as they are known.
    async fn links(&self) -> Result<Links, XrlError> {
        let links = self.links.borrow().clone();
        let mut links = links.ok_or_else(|| XrlError::unavailable("packets are relayed where fea runs"))?;
        // 0 is before the kernel was asked.
        let known = links.changes.wait_for(|version| *version > 0).await.map(drop);
        known.map_err(|_| ended())?;
        Ok(links)
    }

    /// Sends packets, all of them or none but for what the kernel does not take.
    pub(crate) async fn send(
        &self,
        caller: &PeerIdentity,
        request: &SendRequest,
    ) -> Result<SendReply, XrlError> {
        let sent = self.try_send(caller, request).await;
        if let Err(error) = &sent {
            add(&self.counts.refused, request.packets.len());
            self.tell(caller, error);
        }
        sent
    }

    async fn try_send(&self, caller: &PeerIdentity, request: &SendRequest) -> Result<SendReply, XrlError> {
        within_bounds(&request.packets)?;
        let links = self.links().await?;
        let waiting = self.granted(caller, request.afi, request.protocol)?;
        let _turn = waiting.turn.lock().await;
        // Who sends batch after batch keeps nobody else waiting.
        tokio::task::yield_now().await;
        // It may have been taken away meanwhile.
        let granted = self.granted(caller, request.afi, request.protocol)?;
        let ways = request.packets.iter().enumerate().map(|(number, packet)| {
            let way = granted.grant.way(packet, |name| (links.find)(name));
            way.map_err(|refusal| {
                let error = XrlError::from(refusal);
                XrlError::new(error.kind(), format!("packet {number}: {}", error.message()))
            })
        });
        let ways: Vec<Way> = ways.collect::<Result<_, _>>()?;
        let sender = self.sender(&granted).await.map_err(|error| XrlError::unavailable(error.to_string()))?;
        let payloads = request.packets.iter().map(|packet| packet.payload.as_slice());
        Ok(self.send_all(&sender, payloads.zip(ways)))
    }

    fn send_all<'p>(&self, sender: &OwnedFd, packets: impl Iterator<Item = (&'p [u8], Way)>) -> SendReply {
        let mut reply = SendReply::default();
        for (number, (payload, way)) in packets.enumerate() {
            match packet::send(sender, payload, way) {
                Ok(()) => reply.sent += 1,
                Err(error) => {
                    add(&self.counts.failed, 1_u64);
                    if reply.failure.is_empty() {
                        reply.failure = format!("packet {number}: {error}");
                    }
                }
            }
        }
        add(&self.counts.sent, reply.sent);
        reply
    }

    /// The socket for what is sent under a grant.
    async fn sender(&self, granted: &Granted) -> Result<Rc<OwnedFd>, SocketError> {
        let known = granted.sender.borrow().clone();
        if let Some(known) = known.filter(|known| self.place.still_has(known)) {
            return Ok(known);
        }
        let sender = Rc::new(socket::raw_sender(&self.place, &granted.grant.packets).await?);
        granted.sender.replace(Some(Rc::clone(&sender)));
        Ok(sender)
    }

    /// Hands over what comes, for as long as it is granted.
    pub(crate) async fn receive(
        &self,
        caller: &PeerIdentity,
        request: &ReceiveRequest,
        mut replies: ReplySink<ReceivedPackets>,
    ) -> Result<(), XrlError> {
        let Links { mut changes, find } = self.links().await?;
        let mut changed = self.changed.subscribe();
        let granted = self.granted(caller, request.afi, request.protocol)?;
        let _reader = self.reader(&granted.grant.class)?;
        let mut ears = Ears::new(granted.grant.packets.clone());
        let mut said = String::new();
        loop {
            changed.mark_unchanged();
            changes.mark_unchanged();
            let granted = self.granted(caller, request.afi, request.protocol)?;
            let missing = ears.follow(&self.place, &granted.grant, |name| find(name)).await.err();
            let missing = missing.map(|error| error.to_string()).unwrap_or_default();
            if said != missing && !missing.is_empty() {
                warn!(event = "packets-not-heard", class = granted.grant.class, "{missing}");
            }
            said = missing;
            tokio::select! {
                more = changed.changed() => more.map_err(|_| ended())?,
                more = changes.changed() => more.map_err(|_| ended())?,
                () = sleep(RETRY), if !said.is_empty() => {}
                error = self.hand_over(&mut ears, &mut replies) => return Err(error),
            }
        }
    }

    /// Until the reader has gone. Interrupted, it loses nothing.
    async fn hand_over(&self, ears: &mut Ears, replies: &mut ReplySink<ReceivedPackets>) -> XrlError {
        loop {
            ears.readable().await;
            if let Err(error) = replies.ready().await {
                return error;
            }
            let taken = ears.take();
            add(&self.counts.received, taken.packets.len());
            add(&self.counts.dropped, taken.dropped);
            let is_news = !taken.packets.is_empty() || taken.dropped > 0;
            if is_news && let Err(error) = replies.send(taken).await {
                return error;
            }
            // Who sends to us without a pause keeps nobody else waiting.
            tokio::task::yield_now().await;
        }
    }

    /// One more stream of a class, until what comes back is dropped.
    fn reader(&self, class: &str) -> Result<Reader, XrlError> {
        let mut readers = self.readers.borrow_mut();
        let count = readers.entry(class.to_owned()).or_default();
        if *count >= MOST_READERS {
            let text = format!("{class} has {MOST_READERS} streams of packets already");
            return Err(XrlError::failed_precondition(text));
        }
        *count += 1;
        Ok(Reader { readers: Rc::clone(&self.readers), class: class.to_owned() })
    }

    /// A socket of the caller's own, if it was granted that.
    pub(crate) async fn raw(&self, caller: &PeerIdentity, request: &RawRequest) -> Result<OwnedFd, XrlError> {
        let RawRequest { interface, afi, protocol } = request;
        let granted = self.granted(caller, *afi, *protocol)?;
        let RawGrant { packets, interfaces, descriptors, .. } = &granted.grant;
        if !descriptors {
            return Err(XrlError::denied(
                "you may use Send and Receive: sockets are for the router's processes",
            ));
        }
        if !interfaces.contains(interface) {
            let text = format!("you may not use IP protocol {protocol} on interface {interface:?}");
            return Err(XrlError::denied(text));
        }
        let socket = socket::raw(&self.place, interface, packets, socket::RECEIVE_BUFFER).await;
        socket.map_err(|error| XrlError::unavailable(error.to_string()))
    }

    /// Has the log tell of a refusal, now and then: whoever is refused may ask as often as it likes.
    fn tell(&self, caller: &PeerIdentity, error: &XrlError) {
        let now = Instant::now();
        if self.told.get().is_none_or(|told| now.duration_since(told) >= TELL) {
            self.told.set(Some(now));
            let class = caller.classes.last().map_or("", String::as_str);
            warn!(event = "packets-refused", class, "packets were not sent: {}", error.message());
        }
    }
}

/// A stream of a class.
struct Reader {
    readers: Rc<RefCell<BTreeMap<String, usize>>>,
    class: String,
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut readers = self.readers.borrow_mut();
        if let Some(count) = readers.get_mut(&self.class) {
            *count -= 1;
            if *count == 0 {
                readers.remove(&self.class);
            }
        }
    }
}

fn ended() -> XrlError {
    XrlError::unavailable("nobody tells of interfaces and grants any more")
}
