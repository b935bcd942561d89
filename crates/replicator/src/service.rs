//! `replicator.v1`.

use std::{
    os::fd::OwnedFd,
    rc::Rc,
    time::{Duration, Instant},
};

use holdfast_api::{
    keeper::v1::DropOfRequest,
    ready::v1::{Empty as ReadyEmpty, ReadyServer, WaitReply},
    replicator::v1::{
        Configuration, Empty, ReplicatorServer, SessionStatus, Status, TakeOverReply, TakeOverRequest,
        take_over_request::What,
    },
    shared::v1::{self as shared, NextReply, NextRequest, OfferReply, OfferRequest, SharedServer},
    stored::v1 as stored,
};
use holdfast_gate::SlotState;
use holdfast_sys::clock;
use holdfast_xrl::{CallContext, XrlError};

use crate::{
    engine::Engine,
    lease::Lease,
    replicator::Replicator,
    sharing::MOST_SEALED,
    table::octets,
    tasks::{OWNER, Tasks},
    writer::Phase,
};

/// Serves `replicator.v1`.
pub(crate) struct ReplicatorService {
    pub(crate) given: Replicator,
    pub(crate) tasks: Rc<Tasks>,
}

impl ReplicatorServer for ReplicatorService {
    async fn configure(&self, _: &CallContext, request: Configuration) -> Result<Empty, XrlError> {
        let (password, files) = self.given.given()?;
        if self.tasks.engine.borrow_mut().configure(request, &password, files) {
            // It reads another one.
            self.tasks.follower.take();
        }
        self.tasks.configured().await;
        Ok(Empty {})
    }

    async fn keep(&self, _: &CallContext, _: Empty, fds: Vec<OwnedFd>) -> Result<Empty, XrlError> {
        self.given.keep(fds)?;
        Ok(Empty {})
    }

    async fn files(&self, _: &CallContext, _: Empty, fds: Vec<OwnedFd>) -> Result<Empty, XrlError> {
        self.given.take(fds)?;
        Ok(Empty {})
    }

    async fn take_over(&self, _: &CallContext, request: TakeOverRequest) -> Result<TakeOverReply, XrlError> {
        let done = match &request.what {
            Some(What::ConfirmDead(_)) => self.tasks.engine.borrow_mut().confirm_dead(),
            Some(What::Reset(_)) => self.tasks.engine.borrow_mut().reset(),
            None => return Err(XrlError::invalid_argument("it is not said what is to be done")),
        };
        done.map_err(|error| XrlError::failed_precondition(error.to_string()))?;
        if matches!(request.what, Some(What::Reset(_))) {
            // What `bgp` has of sessions is another router's by now. The next one has nothing, and waits.
            self.tasks.keeper.drop_of(DropOfRequest { owner: OWNER.into(), end: true }).await?;
            self.tasks.forget_lease().await?;
        }
        self.tasks.wake();
        Ok(TakeOverReply { epoch: self.tasks.engine.borrow().lease.as_ref().map_or(0, Lease::epoch) })
    }

    async fn show(&self, _: &CallContext, _: Empty) -> Result<Status, XrlError> {
        let (preheated, stand_ins) = self.tasks.preheated();
        let stand_ins = u32::try_from(stand_ins).unwrap_or(u32::MAX);
        let status = status(&mut self.tasks.engine.borrow_mut());
        let told = self.tasks.told.borrow();
        Ok(Status {
            preheated: preheated.into(),
            stand_ins,
            has_addresses: told.are_ours(),
            missing_addresses: told.missing.clone(),
            ..status
        })
    }
}

/// Serves `ready.v1`.
pub(crate) struct ReadyService(pub(crate) Rc<Tasks>);

/// Whoever waits is answered after so long.
const WAIT: Duration = Duration::from_secs(1);

impl ReadyServer for ReadyService {
    async fn wait(&self, _: &CallContext, _: ReadyEmpty) -> Result<WaitReply, XrlError> {
        Ok(WaitReply { ready: self.0.is_ready(WAIT).await })
    }
}

/// Serves `shared.v1`.
pub(crate) struct SharedService(pub(crate) Rc<Tasks>);

impl SharedServer for SharedService {
    async fn offer(&self, _: &CallContext, request: OfferRequest) -> Result<OfferReply, XrlError> {
        let Some(shared::Configuration { number, mut sealed, serial }) = request.configuration else {
            return Err(XrlError::invalid_argument("there is no configuration"));
        };
        let is_too_long = sealed.len() > MOST_SEALED;
        if is_too_long {
            sealed.clear();
        }
        let configuration = stored::Configuration { number, sealed, serial };
        // Before this one takes its place.
        let known = self.0.engine.borrow().sharing.serial().max(serial);
        let mut notes = Vec::new();
        if request.running {
            self.0.engine.borrow_mut().sharing.set_running(configuration);
            self.0.wake();
        } else {
            notes = self.0.offer(configuration).await?;
        }
        if is_too_long {
            notes.push(format!("no standby takes it: it has more than {} KiB", MOST_SEALED >> 10));
        }
        Ok(OfferReply { notes, serial: known })
    }

    async fn next(&self, _: &CallContext, request: NextRequest) -> Result<NextReply, XrlError> {
        self.0.engine.borrow_mut().sharing.refuse(request.refused);
        self.0.wake();
        let next = self.0.next_shared(WAIT).await;
        let configuration = next.map(|stored::Configuration { number, sealed, serial }| {
            shared::Configuration { number, sealed, serial }
        });
        Ok(NextReply { configuration })
    }
}

fn status(engine: &mut Engine) -> Status {
    let silent = engine.silent(Instant::now());
    let held = engine.marks().map_or(0, |marks| marks.held());
    let writer = &engine.writer;
    Status {
        protection: engine.protection.word().into(),
        store: match engine.configuration.kind() {
            holdfast_api::replicator::v1::Kind::Unspecified => "",
            holdfast_api::replicator::v1::Kind::Redis => "redis",
            holdfast_api::replicator::v1::Kind::File => "file",
            holdfast_api::replicator::v1::Kind::Memory => "memory",
        }
        .into(),
        server: engine.server.clone().unwrap_or_default(),
        phase: word(writer.phase()).into(),
        trouble: engine.trouble.as_ref().map(ToString::to_string).unwrap_or_default(),
        silent_milliseconds: (!silent.is_zero())
            .then(|| u64::try_from(silent.as_millis()).unwrap_or(u64::MAX)),
        lease: engine.lease.is_some(),
        epoch: writer.epoch(),
        incarnation: writer.incarnation(),
        generation: writer.generation(),
        batches: engine.batches,
        octets: engine.octets,
        waiting: writer.waiting() as u64,
        octets_in_store: writer.octets_in_store(),
        losses: writer.losses(),
        gaps: engine.gaps,
        held,
        missing: engine.missing.clone(),
        sessions: sessions(engine),
        role: engine.role().into(),
        restored: engine.sessions_restored.0,
        not_restored: engine.sessions_restored.1,
        configuration: engine.sharing.runs(),
        holder_configuration: engine.configurations().0,
        standby_configuration: engine.configurations().1.map(|standby| standby.runs),
        service_addresses: u32::try_from(engine.configuration.service_addresses.len()).unwrap_or(u32::MAX),
        ..Status::default()
    }
}

fn sessions(engine: &mut Engine) -> Vec<SessionStatus> {
    let now = u64::try_from(clock::since_boot().as_millis()).unwrap_or(u64::MAX);
    let tables = std::mem::take(&mut engine.tables);
    let marks = engine.marks();
    let all = tables.iter().flat_map(|table| {
        let sessions = marks.map(|marks| table.sessions(&marks)).unwrap_or_default();
        sessions.into_iter().map(|session| SessionStatus {
            vrf: table.vrf.clone(),
            session: session.id.0,
            remote_address: session.remote.map(octets).unwrap_or_default(),
            gate: match session.state {
                None | Some(SlotState::Free) => "",
                Some(SlotState::Open) => "open",
                Some(SlotState::Gated) => "gated",
                Some(SlotState::Closed) => "closed",
            }
            .into(),
            unprotected: session.lacks.map(|lacks| lacks.text().to_owned()).unwrap_or_default(),
            received: session.received,
            sent: session.sent,
            wanted_received: session.wanted.0,
            wanted_sent: session.wanted.1,
            waits_milliseconds: session.waits_since.map(|since| now.saturating_sub(since)),
        })
    });
    let all = all.collect();
    engine.tables = tables;
    all
}

fn word(phase: Phase) -> &'static str {
    match phase {
        Phase::Down => "down",
        Phase::Asking => "asking",
        Phase::Claiming => "claiming",
        Phase::Copying => "copying",
        Phase::Whole => "whole",
        Phase::Fenced => "fenced",
    }
}
