//! The whole pipeline, as its driver sees it.

mod arriving;
mod classes;
pub(crate) mod origin;
mod peers;
mod sessions;
mod signing;
mod telling;

use std::{cell::RefCell, collections::VecDeque, rc::Rc, time::Instant};

use holdfast_types::{Ipv4Prefix, Ipv6Prefix};

use crate::{
    Event, Observer, PeerConfig, PeerIndex, SessionFacts, SpeakerConfig, Stage,
    adj_rib_out::SetIndex,
    aggregate::Aggregation,
    background::Background,
    checking::Checking,
    core::Core,
    orf::Orf,
    path::{SetId, SourceId},
    peer_in::{Drops, Reader},
    places::PathIdTable,
    rewriter::{BadAnswer, Rewriter, Slot},
    rib_out::RibOut,
    rib_policy::RibPolicy,
    stage::Stages,
    table::Table,
    update_group::{Streams, member::Member},
};

/// A configured peer.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) config: PeerConfig,
    pub(crate) session: Option<Session>,
    /// What an earlier session has left while the peer is expected back (RFC 4724).
    pub(crate) stale: Vec<SourceId>,
    pub(crate) drops: Drops,
    /// As [`Pipeline::set_protected`] says.
    pub(crate) is_protected: bool,
}

/// Its session, while that is up.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) source: SourceId,
    /// If it may send several paths of a prefix.
    pub(crate) places: Option<Box<PathIdTable>>,
    pub(crate) facts: SessionFacts,
    pub(crate) end_of_rib: [bool; 2],
    pub(crate) announced: [bool; 2],
    /// What the driver last said of the socket.
    pub(crate) unacknowledged: usize,
    /// How often in a row it held up background work without making progress.
    pub(crate) patience: u32,
    /// Families asked for again while the session was not yet told anything by this process.
    refresh: [bool; 2],
    /// It has been said that a route fits no message to it.
    pub(crate) is_too_long_told: bool,
    /// By family, what the peer wants to be told, where it may say so.
    pub(crate) orf: [Option<Box<Orf>>; 2],
}

impl Session {
    /// All its sources.
    pub(crate) fn sources(&self) -> &[SourceId] {
        self.places.as_ref().map_or(std::slice::from_ref(&self.source), |places| places.sources())
    }
}

/// There are as many sessions, dead ones not yet swept included, as can be told apart: 65,532, less what sessions use for
/// several paths of one prefix, which is never all but 8,192.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("too many sessions at once: routes of earlier ones are still being swept")]
pub struct TooManySessions;

/// From UPDATEs in to UPDATEs out. See the crate's page for the stages.
///
/// Owned by one thread; every call is short: work that grows with the table is done by [`Self::work`].
#[derive(Debug)]
pub struct Pipeline {
    pub(crate) core: Core,
    pub(crate) v4: Table<Ipv4Prefix>,
    pub(crate) v6: Table<Ipv6Prefix>,
    pub(crate) peers: Vec<Option<Peer>>,
    pub(crate) members: Vec<Option<Member>>,
    pub(crate) streams: Streams,
    pub(crate) rib: Option<RibOut<Ipv4Prefix, Ipv6Prefix>>,
    pub(crate) rib_policy: Option<RibPolicy>,
    pub(crate) stages: Stages,
    pub(crate) events: VecDeque<Event>,
    pub(crate) background: Background,
    pub(crate) marks: SetIndex,
    pub(crate) aggregation: Aggregation,
    pub(crate) checking: Checking,
    /// That of the default route, from the first peer on that gets one.
    default_set: Option<SetId>,
    reader: Reader,
    prefixes_v4: Vec<Ipv4Prefix>,
    prefixes_v6: Vec<Ipv6Prefix>,
}

impl Pipeline {
    /// A speaker without peers.
    pub fn new(speaker: SpeakerConfig) -> Self {
        Self {
            v4: Table::new(0, speaker.hash_key),
            v6: Table::new(1, speaker.hash_key),
            core: Core::new(speaker),
            peers: Vec::new(),
            members: Vec::new(),
            streams: Streams::new(),
            rib: None,
            rib_policy: None,
            stages: Stages::default(),
            events: VecDeque::new(),
            background: Background::default(),
            marks: SetIndex::default(),
            aggregation: Aggregation::default(),
            checking: Checking::default(),
            default_set: None,
            reader: Reader::default(),
            prefixes_v4: Vec::new(),
            prefixes_v6: Vec::new(),
        }
    }

    /// Plugs a stage in between ImportPolicy and Decision, after those already there. Only before the first
    /// session: a stage must have seen every route from the start.
    pub fn add_stage(&mut self, stage: Box<dyn Stage>, now: Instant) {
        self.stages.add(stage, now);
    }

    /// Plugs in a stage that rewrites, after those that are in its slot already. Only before the first session.
    pub fn add_rewriter(&mut self, slot: Slot, stage: Box<dyn Rewriter>) {
        self.core.rewriters.add(slot, stage);
    }

    /// Tells the stages what time it is; to be called before whatever happens then.
    pub fn set_now(&mut self, now: Instant) {
        self.stages.set_now(now);
        self.core.signatures.set_now(now);
        self.core.signing.now = Some(now);
    }

    /// Has an observer see every change between stages: for tests, which give it a [`crate::CheckStage`]. Only
    /// before the first session.
    pub fn observe(&mut self, observer: Rc<RefCell<dyn Observer>>) {
        self.core.seams.add(observer);
        self.streams.seams = self.core.seams.clone();
    }

    /// What the plugged-in stages say of themselves.
    pub fn describe_stages(&self) -> Vec<String> {
        let rewriting =
            self.core.rewriters.iter().map(|(slot, stage)| format!("{slot}: {}", stage.describe()));
        self.stages.iter().map(Stage::describe).chain(rewriting).collect()
    }

    /// What the driver has to do or may report.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front().or_else(|| self.core.next_hops.poll_event()).or_else(|| self.poll_fault())
    }

    fn poll_fault(&mut self) -> Option<Event> {
        let BadAnswer { stage, slot } = self.core.rewriters.poll_fault()?;
        Some(Event::BadAnswer { stage, slot })
    }

    pub(crate) fn session(&self, index: PeerIndex) -> Option<&Session> {
        self.peers.get(index.index())?.as_ref()?.session.as_ref()
    }

    pub(crate) fn session_mut(&mut self, index: PeerIndex) -> Option<&mut Session> {
        self.peers.get_mut(index.index())?.as_mut()?.session.as_mut()
    }
}
