//! Connections whose octets come about here: TLS and QUIC. The protocol has one end of a socket pair.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    hash::{BuildHasher, RandomState},
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream as StdStream,
    },
    rc::Rc,
    time::SystemTime,
};

use holdfast_api::transport::v1 as api;
use holdfast_process::spawn_task;
use holdfast_sys::pair;
use holdfast_transport::{ByteCounters, Closed, Connection, Control, Parting, hung_up};
use tokio::net::UnixStream;
use tracing::{Instrument, debug, warn};

use crate::{
    door::ConnectionBroker,
    peers::{describe, octets},
};

/// Application errors of QUIC that stand for a NOTIFICATION of BGP: its code, and its subcode in the lower octet.
const NOTIFICATIONS: std::ops::RangeInclusive<u64> = 0x100..=0xffff;
/// The one of them for whoever is not wanted: Cease/Connection Rejected (RFC 4486).
pub(crate) const REJECTED: u32 = 0x605;

/// Those that there are, by number. A number is of one connection, also of those of an earlier process.
pub(crate) struct Carrying {
    next: Cell<u64>,
    living: RefCell<BTreeMap<u64, Rc<Carried>>>,
}

/// One of them.
pub(crate) struct Carried {
    /// As the protocol was told, but for a peer that has another name by now.
    connection: RefCell<api::Connection>,
    number: u64,
    pub(crate) meter: Rc<ByteCounters>,
    pub(crate) control: Rc<dyn Control>,
    /// How the protocol ends it.
    pub(crate) parting: Rc<Parting>,
    since: SystemTime,
    /// A copy of our end of the pair.
    inner: OwnedFd,
}

impl Default for Carrying {
    fn default() -> Self {
        // Room for more than anybody can make.
        let first = RandomState::new().hash_one(()) >> 1;
        Self { next: Cell::new(first.max(1)), living: RefCell::default() }
    }
}

impl Carrying {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.living.borrow().len()
    }

    /// The one of that number.
    pub(crate) fn get(&self, number: u64) -> Option<Rc<Carried>> {
        self.living.borrow().get(&number).cloned()
    }

    /// Others with the peer of this one, where it is.
    pub(crate) fn beside(&self, connection: &api::Connection) -> Vec<Rc<Carried>> {
        let is_beside = |other: &&Rc<Carried>| {
            let other = other.connection.borrow();
            let is_same_place =
                other.remote_address == connection.remote_address && other.interface == connection.interface;
            other.number != connection.number && other.peer == connection.peer && is_same_place
        };
        self.living.borrow().values().filter(is_beside).cloned().collect()
    }

    /// Peers have other names from now on: `renamed` says which one of this name has.
    pub(crate) fn rename(&self, renamed: impl Fn(&str) -> Option<String>) {
        for carried in self.living.borrow().values() {
            let mut connection = carried.connection.borrow_mut();
            if let Some(name) = renamed(&connection.peer) {
                connection.peer = name;
            }
        }
    }

    /// All.
    pub(crate) fn all(&self) -> Vec<Rc<Carried>> {
        self.living.borrow().values().cloned().collect()
    }
}

impl Carried {
    /// Names it.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Whether it is a connection with the peer of this name.
    pub(crate) fn is_with(&self, peer: &str) -> bool {
        self.connection.borrow().peer == peer
    }

    /// What went through the pair.
    ///
    /// # Errors
    /// Those of the kernel, for which there is no reason.
    pub(crate) fn meter(&self) -> io::Result<api::MeterReply> {
        passed(&self.meter, &self.inner)
    }

    /// Waits until the protocol has let go of its end, or at once if our descriptor cannot be copied.
    pub(crate) async fn released(&self) {
        let copy = self.inner.try_clone().and_then(|copy| UnixStream::from_std(StdStream::from(copy)));
        if let Ok(inner) = copy {
            hung_up(&inner).await;
        }
    }

    /// For the operator.
    pub(crate) fn show(&self) -> api::CarriedConnection {
        let (stats, now) = (self.control.stats(), self.control.remote());
        let since = self.since.duration_since(SystemTime::UNIX_EPOCH);
        api::CarriedConnection {
            connection: Some(self.connection.borrow().clone()),
            number: self.number,
            received: self.meter.received.get(),
            sent: self.meter.sent.get(),
            lost_packets: stats.lost_packets,
            smoothed_rtt_us: stats.smoothed_rtt_us,
            migrations: stats.migrations,
            key_updates: stats.key_updates,
            since_unix_seconds: since.map_or(0, |since| since.as_secs()),
            address_now: octets(now.ip()),
            port_now: now.port().into(),
        }
    }
}

/// Carries a connection until one side ends it: what the protocol is told, and its end of the pair. It goes on whatever
/// becomes of the door's configuration.
///
/// # Errors
/// There are no descriptors left. The connection is ended.
pub(crate) fn carry(
    door: &Rc<ConnectionBroker>,
    connection: Connection,
    interface: Option<&str>,
) -> io::Result<(api::Connection, OwnedFd)> {
    let (ours, theirs) = StdStream::pair()?;
    ours.set_nonblocking(true)?;
    theirs.set_nonblocking(true)?;
    let inner = ours.as_fd().try_clone_to_owned()?;
    let ours = UnixStream::from_std(ours)?;
    let number = door.carried.next.get();
    door.carried.next.set(number + 1);
    let identity = &connection.identity;
    let described = api::Connection {
        number,
        proof: identity.proof.clone(),
        ..describe(&identity.peer, identity.protocol, (identity.remote, identity.local), interface)
    };
    let (meter, control) = (Rc::new(ByteCounters::default()), Rc::clone(&connection.control));
    let parting = Rc::<Parting>::default();
    let carried = Carried {
        connection: RefCell::new(described.clone()),
        number,
        meter: Rc::clone(&meter),
        control,
        parting: Rc::clone(&parting),
        since: SystemTime::now(),
        inner,
    };
    door.carried.living.borrow_mut().insert(number, Rc::new(carried));
    door.shared.carried.send_modify(|carried| *carried += 1);
    let (peer, protocol) = (identity.peer.clone(), identity.protocol.name());
    let (carrying, span) = (Rc::clone(door), door.span());
    let task = async move {
        let closed = holdfast_transport::carry(connection, ours, meter, parting).await;
        carrying.carried.living.borrow_mut().remove(&number);
        carrying.shared.carried.send_modify(|carried| *carried -= 1);
        match why(&closed) {
            Some(why) if carrying.may_log(&peer) => {
                warn!(event = "connection-ended", peer, protocol, "the connection has ended: {why}");
            }
            _ => debug!(peer, protocol, "the connection has ended: {closed:?}"),
        }
    };
    spawn_task(task.instrument(span));
    Ok((described, theirs.into()))
}

/// Why a connection has ended, if that says more than that its session has.
fn why(closed: &Closed) -> Option<String> {
    match closed {
        Closed::Here | Closed::Peer(0, _) => None,
        // Of this the protocol has a NOTIFICATION, and a line of its own.
        Closed::Peer(code, _) if NOTIFICATIONS.contains(code) => None,
        Closed::Peer(code, text) => Some(format!("the peer has closed it: {text} ({code})")),
        Closed::TimedOut => Some("the peer was not heard for too long".to_owned()),
        Closed::Reset => Some("the peer does not know it any more".to_owned()),
        Closed::Failed(text) => Some(text.clone()),
    }
}

/// What the protocol has put in counts whether or not it was taken out at our end: a peer that does not read lets it stand
/// there.
fn passed(meter: &ByteCounters, inner: impl AsFd) -> io::Result<api::MeterReply> {
    let waiting = pair::unread(inner)?;
    Ok(api::MeterReply { received: meter.received.get(), sent: meter.sent.get() + u64::from(waiting) })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn what_the_protocol_has_put_in_counts_before_it_is_taken_out() {
        let (mut inner, mut theirs) = StdStream::pair().expect("sockets");
        let meter = ByteCounters::default();
        meter.received.set(7);
        theirs.write_all(&[1; 1019]).expect("room");
        let expected = Ok(api::MeterReply { received: 7, sent: 1019 });
        assert_eq!(passed(&meter, &inner).map_err(|error| error.kind()), expected);
        inner.read_exact(&mut [0; 400]).expect("octets");
        meter.sent.set(400);
        assert_eq!(passed(&meter, &inner).map_err(|error| error.kind()), expected);
    }
}
