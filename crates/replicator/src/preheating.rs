//! A standby that has the routes before it takes over: `bgp` goes on with sessions that stand in for those of the other router.
//!
//! ```text
//!  store ── what peers have said ──> Follower ──> StandIns ══pairs══> bgp ──> rib ──> the kernel's table
//!                                                 (what bgp says ends here)
//! ```
//! `bgp` knows nothing of it: the keeper gives it a log and descriptors as after its own death, and [`StandIns`] carries the
//! connections, as the door does. Before the sessions come here `bgp` is ended. Its routes stay until the next one has them.

use std::{
    collections::BTreeSet,
    os::fd::OwnedFd,
    rc::Rc,
    time::{Duration, Instant},
};

use holdfast_api::{
    bgp::v1::{HeldConfiguration, HeldSession},
    carrier::v1::{CarrierServer, MeterReply, MeterRequest},
    keeper::v1::{DropOfRequest, GetRequest},
    replicator::v1::ReplicatorClient,
    stored::v1 as stored,
    transport::v1::{Connection, Protocol},
};
use holdfast_process::{kept, spawn_task};
use holdfast_restore::{Followed, Objects, Session};
use holdfast_xrl::{CallContext, Client, XrlError};
use prost::Message;
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

use crate::{
    engine::Follows,
    follower::{Follower, Order},
    remaking::{hold_time, within},
    stand_ins::StandIns,
    tasks::{OWNER, RETRY, Tasks},
};

/// The name at the keeper of a note that what `bgp` has are stand-ins.
pub(crate) const STAND_INS: &str = "stand-ins";
/// How long packets may take to come before sessions do: sessions wait for that.
const FORWARD: Duration = Duration::from_millis(500);

impl Tasks {
    /// What a standby does in a turn; whether there is more.
    pub(crate) fn preheat(self: &Rc<Self>, now: Instant) -> bool {
        let (follows, has_stand_ins) = {
            let engine = self.engine.borrow();
            (engine.follows(), engine.has_stand_ins)
        };
        let followed = self.follower.borrow().as_ref().map(Follower::follows);
        if follows != followed {
            self.follower.take();
        }
        if follows != Some(Follows::Routes) && (followed == Some(Follows::Routes) || has_stand_ins) {
            self.stop_standing_in();
        }
        let Some(follows) = follows else { return false };
        if self.is_making_way.get() {
            return false;
        }
        let more = self.stand_ins.borrow_mut().turn();
        let orders = {
            let stand_ins = self.stand_ins.borrow();
            let mut follower = self.follower.borrow_mut();
            let follower = follower.get_or_insert_with(|| Follower::new(follows, now));
            let open = || self.engine.borrow_mut().open_way();
            follower.turn(now, open, |session| stand_ins.can_take(session))
        };
        for order in orders {
            match order {
                Order::Make(objects) => self.stand_in(objects),
                Order::Put(session, octets) => self.stand_ins.borrow_mut().put(session, octets),
                Order::End(session) => self.stand_ins.borrow_mut().end(session),
                Order::Configure(octets) => {
                    let theirs = stored::Configuration::decode(&*octets).ok();
                    self.engine.borrow_mut().sharing.hear(theirs);
                }
            }
        }
        more
    }

    /// How far it is, for people, and how many sessions stand in; nothing where it does not follow a store.
    pub(crate) fn preheated(&self) -> (&'static str, usize) {
        let follower = self.follower.borrow();
        let follower = follower.as_ref().filter(|follower| follower.follows() == Follows::Routes);
        let word = follower.map_or("", Follower::word);
        (word, self.stand_ins.borrow().len())
    }

    fn stand_in(self: &Rc<Self>, objects: Objects) {
        self.do_stand_in.set(false);
        let this = Rc::clone(self);
        let task = spawn_task(async move {
            let made = this.try_stand_in(&objects).await;
            let mut follower = this.follower.borrow_mut();
            let Some(follower) = follower.as_mut() else { return };
            match made {
                Ok(sessions) => {
                    this.do_stand_in.set(!sessions.is_empty());
                    follower.made(&objects, &sessions, Instant::now());
                }
                Err(error) => {
                    warn!(event = "store-not-followed", "{}", error.message());
                    follower.failed(Instant::now());
                }
            }
            this.wake();
        });
        self.standing_in.replace(Some(task.abort_handle()));
    }

    /// Puts stand-ins for the sessions into the place of those of a dead `bgp`: which.
    async fn try_stand_in(&self, objects: &Objects) -> Result<BTreeSet<Followed>, XrlError> {
        let damaged = |damaged: holdfast_restore::Damaged| XrlError::internal(damaged.to_string());
        let tables = objects.received_tables().map_err(damaged)?;
        self.make_way().await?;
        let configured = self.engine.borrow().configuration.tables.clone();
        let tables = tables.into_iter().filter(|table| configured.iter().any(|one| one.vrf == table.vrf));
        let (mut sessions, mut logs) = (BTreeSet::new(), Vec::new());
        for mut table in tables {
            let mut sockets = {
                let mut stand_ins = self.stand_ins.borrow_mut();
                let number = table.number;
                let all = std::mem::take(&mut table.sessions).into_iter();
                let all: Vec<_> = all.filter_map(|one| stand_in(&mut stand_ins, number, one)).collect();
                let (kept, sockets): (Vec<_>, Vec<_>) = all.into_iter().unzip();
                table.sessions = kept;
                sockets.into_iter()
            };
            if table.sessions.is_empty() {
                continue;
            }
            sessions.extend(table.sessions.iter().map(|session| (table.number, session.id)));
            let (log, descriptor, restored) = self.log(&table)?;
            if !self.engine.borrow().has_stand_ins {
                let note = self.engine.borrow().marks_descriptor();
                let note = note.map_err(|error| XrlError::internal(error.to_string()))?;
                kept::put(&self.keeper, STAND_INS.into(), note, None).await?;
                self.engine.borrow_mut().has_stand_ins = true;
            }
            for (one, socket) in restored.iter().zip(&mut sockets) {
                let hold = hold_time(log.record(one.id));
                self.put(&format!("session-{}", one.id.0), &table.vrf, &socket, Some(hold)).await?;
            }
            logs.push((table.vrf, descriptor));
        }
        for (vrf, log) in &logs {
            self.put("log", vrf, log, None).await?;
        }
        Ok(sessions)
    }

    /// Ends a `bgp` that has stand-ins, and forgets them.
    async fn make_way(&self) -> Result<(), XrlError> {
        let end = self.engine.borrow().has_stand_ins;
        within("keeper", self.keeper.drop_of(DropOfRequest { owner: OWNER.into(), end })).await?;
        // Not before: the end of its connections would end the sessions, and take their routes away.
        self.stand_ins.borrow_mut().clear();
        Ok(())
    }

    /// The store is not followed any more: sessions come here, or another configuration wants none.
    fn stop_standing_in(self: &Rc<Self>) {
        self.follower.take();
        self.do_stand_in.set(false);
        if let Some(task) = self.standing_in.take() {
            task.abort();
        }
        if !self.engine.borrow().has_stand_ins {
            // `bgp` has been given none.
            self.stand_ins.borrow_mut().clear();
            return;
        }
        if self.is_making_way.replace(true) {
            return;
        }
        let takes_over = self.engine.borrow().lease.is_some();
        let this = Rc::clone(self);
        spawn_task(async move {
            if takes_over && timeout(FORWARD, this.forward()).await.is_err() {
                debug!("the gate does not close in time: packets come with the sessions");
            }
            while let Err(error) = this.make_way_for_good().await {
                debug!("the keeper: {}", error.message());
                sleep(RETRY).await;
            }
            this.engine.borrow_mut().has_stand_ins = false;
            this.is_making_way.set(false);
            this.way_made.notify_waiters();
            this.wake();
        });
    }

    /// The same, and nobody takes for stand-ins what `bgp` has next.
    async fn make_way_for_good(&self) -> Result<(), XrlError> {
        self.make_way().await?;
        within("keeper", self.keeper.drop(GetRequest { key: STAND_INS.into() })).await.map(drop)
    }

    /// Until `bgp` has no stand-ins any more.
    pub(crate) async fn stand_ins_are_gone(&self) -> Result<(), XrlError> {
        while self.engine.borrow().has_stand_ins {
            self.way_made.notified().await;
        }
        Ok(())
    }
}

/// The session with the record of one whose connection is carried here, and the end of that for `bgp`. `None`: it cannot be made
/// again, here or when it is taken over.
fn stand_in(all: &mut StandIns, table: u32, session: Session) -> Option<(Session, OwnedFd)> {
    let (socket, held) = (session.socket.as_ref()?, HeldSession::decode(&*session.record).ok()?);
    let (first, octets) = &session.incoming;
    let (number, theirs) =
        all.add((table, session.id), first + octets.len() as u64, session.outgoing.0).ok()?;
    let connection = Connection {
        protocol: Protocol::Tcp.into(),
        remote_address: socket.remote_address.clone(),
        remote_port: socket.remote_port,
        local_address: socket.local_address.clone(),
        local_port: socket.local_port,
        number,
        carrier: ReplicatorClient::SERVICE.class.into(),
        ..Connection::default()
    };
    // BFD is up at the other router, and does not come up here: that is no failure.
    let configuration = held.configuration.map(|noted| HeldConfiguration { bfd_up: false, ..noted });
    let record = HeldSession { connection: Some(connection), configuration, ..held }.encode_to_vec();
    Some((Session { record, ..session }, theirs))
}

/// Serves `carrier.v1`.
pub(crate) struct CarrierService(pub(crate) Rc<Tasks>);

impl CarrierServer for CarrierService {
    async fn meter(&self, _: &CallContext, request: MeterRequest) -> Result<MeterReply, XrlError> {
        let counted = self.0.stand_ins.borrow().meter(request.number);
        let (received, sent) = counted.ok_or_else(|| XrlError::not_found("it is not carried here"))?;
        Ok(MeterReply { received, sent })
    }
}

#[cfg(test)]
mod tests {
    use holdfast_api::stored::v1::Socket;
    use holdfast_nsr::SessionId;

    use super::*;

    fn session(socket: Option<Socket>) -> Session {
        let configuration = Some(HeldConfiguration { bfd_up: true, ..HeldConfiguration::default() });
        let record = HeldSession { number: 3, configuration, ..HeldSession::default() }.encode_to_vec();
        Session {
            id: SessionId(7),
            record,
            snapshot: Vec::new(),
            incoming: (1000, vec![1; 20]),
            outgoing: (50, Vec::new()),
            passed: 0,
            numbers: [0; 5],
            socket,
        }
    }

    #[test]
    fn what_stands_in_says_who_carries_it_and_goes_on_where_the_peer_is() {
        let mut all = StandIns::default();
        let socket = Socket { remote_address: vec![10, 0, 0, 2], remote_port: 179, ..Socket::default() };
        let (session, _theirs) = stand_in(&mut all, 4, session(Some(socket))).expect("it can be made");
        let held = HeldSession::decode(&*session.record).expect("a record");
        let connection = held.connection.expect("said");
        assert_eq!(
            (connection.carrier.as_str(), connection.remote_address.as_slice()),
            ("replicator", &[10, 0, 0, 2][..])
        );
        assert_eq!(all.meter(connection.number), Some((1020, 50)));
        assert_eq!((held.number, held.configuration.map(|noted| noted.bfd_up)), (3, Some(false)));
    }

    #[test]
    fn a_session_that_nobody_can_take_over_has_nobody_to_stand_in() {
        let mut all = StandIns::default();
        assert!(stand_in(&mut all, 0, session(None)).is_none());
        assert!(
            stand_in(&mut all, 0, Session { record: vec![255], ..session(Some(Socket::default())) })
                .is_none()
        );
        assert_eq!(all.len(), 0);
    }
}
