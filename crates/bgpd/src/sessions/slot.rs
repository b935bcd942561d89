//! One peer: what is known of it beside its session.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::{Duration, Instant},
};

use holdfast_api::bgp::v1::HeldConfiguration;
use holdfast_bgp_pipeline::{Direction, Drops};
use holdfast_bgp_session::{Bfd, ConnId, Level, LimitWatch, Peer, State};
use holdfast_bgp_wire::update::AsSets;
use holdfast_types::Family;
use tokio::task::AbortHandle;

use super::cost::Cost;
use crate::{bfd::Following, config::Neighbor, last_error::last_error, ranges::Totals};

/// After so long without an UPDATE a peer that does not offer End-of-RIB has sent its table.
const QUIET: Duration = Duration::from_secs(3);
/// The same for a peer that offers End-of-RIB and yet keeps it back, for one family say.
const QUIET_FOR_ALL: Duration = Duration::from_secs(15);
/// A session that is older has exchanged its tables, whatever its peer says.
const INITIAL: Duration = Duration::from_secs(120);

/// One peer: configured, or born of a listen range.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) neighbor: Neighbor,
    pub(crate) session: Peer,
    /// Born of a listen range: it goes when its session does.
    pub(crate) dynamic: bool,
    /// What the journal of announcements calls the peer; 0 as long as none of its sessions was protected.
    pub(crate) number: u32,
    /// What the rib and the next process call it; 0 while it has no routes here.
    pub(crate) source: u32,
    /// It has a session of the process before, and what that had received is in the tables again.
    pub(crate) takeover: Option<Takeover>,
    pub(crate) end_of_rib: BTreeSet<Family>,
    pub(crate) announced: BTreeSet<Family>,
    /// The last change of each of its policies while this session was up.
    pub(crate) policies: BTreeMap<Direction, PolicyChange>,
    /// The operator keeps it down, beside what is configured: [`Sessions::stopped`](super::Sessions::stopped) has it.
    pub(crate) stopped: bool,
    /// What the log has said of its limits.
    pub(crate) limits: LimitWatch,
    /// What becomes of the AS_SETs in what it has been asked for last.
    pub(crate) as_sets: AsSets,
    /// The highest level of the octets that are kept for it, in this session.
    pub(crate) octets: Level,
    /// Where the share of a core is that others wait for it.
    pub(crate) cost_level: Level,
    /// A session was ended for what it costs to keep its routes or to wait for it, and the operator has not forgiven that.
    pub(crate) offends: bool,
    /// Its session was ended for too many prefixes, and has not come up since.
    pub(crate) limited: bool,
    /// The state that those who watch know of.
    pub(crate) watched: Option<State>,
    /// What connecting failed with last since the session was up, as far as the log has it.
    pub(crate) failed: String,
    /// The log has since then that there was no answer, which takes turns with that where several transports are tried.
    pub(crate) unanswered: bool,
    /// When the session came up, or its last UPDATE came.
    pub(crate) last_update: Option<Instant>,
    pub(super) dialing: HashMap<ConnId, Option<AbortHandle>>,
    pub(super) deadline: Option<Instant>,
    pub(crate) cost: Cost,
    /// Its BFD session, if it has one.
    pub(crate) bfd: Option<Following>,
    /// How often that was up and has failed.
    pub(crate) bfd_failures: u64,
}

impl Slot {
    /// Whether the peer is on the link of this interface.
    pub(crate) fn is_on(&self, interface: &str) -> bool {
        let configured = self.neighbor.source.remote.interface();
        // A member of a range of link-local addresses has the interface in its location.
        configured == Some(interface) || self.neighbor.location.interface() == interface
    }

    pub(crate) fn new(neighbor: Neighbor, session: Peer, dynamic: bool) -> Self {
        Self {
            neighbor,
            session,
            dynamic,
            number: 0,
            source: 0,
            takeover: None,
            end_of_rib: BTreeSet::new(),
            announced: BTreeSet::new(),
            policies: BTreeMap::new(),
            stopped: false,
            limits: LimitWatch::default(),
            as_sets: AsSets::Reject,
            octets: Level::Fine,
            cost_level: Level::Fine,
            offends: false,
            limited: false,
            watched: None,
            failed: String::new(),
            unanswered: false,
            last_update: None,
            dialing: HashMap::new(),
            deadline: None,
            cost: Cost::default(),
            bfd: None,
            bfd_failures: 0,
        }
    }

    /// What the next process may find otherwise.
    pub(crate) fn configuration(&self) -> HeldConfiguration {
        let source = &self.neighbor.source;
        HeldConfiguration {
            session: self.neighbor.session.clone(),
            next_hop_v4: source.next_hop_ipv4.map(|own| own.octets().into()).unwrap_or_default(),
            next_hop_v6: source.next_hop_ipv6.map(|own| own.octets().into()).unwrap_or_default(),
            accepts_as_sets: self.as_sets == AsSets::Accept,
            bfd_up: self.session.bfd() == Bfd::Up,
        }
    }

    /// Whether somebody wants the session to be down: who has it tried has to say so first.
    pub(crate) fn is_kept_down(&self) -> bool {
        self.stopped || self.neighbor.disabled
    }

    /// Whether the peer has sent everything it has, as far as one can tell, or will not come.
    pub(super) fn has_sent_all(&self, now: Instant) -> bool {
        if let Some(takeover) = self.takeover {
            return takeover == Takeover::Done;
        }
        let Some(negotiated) = self.session.negotiated() else { return self.is_kept_down() || self.limited };
        let said = negotiated.families.iter().all(|family| self.end_of_rib.contains(family));
        let quiet = if negotiated.graceful_restart.is_some() { QUIET_FOR_ALL } else { QUIET };
        said || self.last_update.is_some_and(|at| now.saturating_duration_since(at) > quiet)
    }

    /// Whether its session has just come up, and both sides may still tell each other their tables: until its End-of-RIB, and
    /// for [`INITIAL`] at most.
    pub(crate) fn exchanges_tables(&self, now: Instant) -> bool {
        let (Some(since), Some(negotiated)) = (self.session.established_since(), self.session.negotiated())
        else {
            return true;
        };
        let said = negotiated.families.iter().all(|family| self.end_of_rib.contains(family));
        !said && now.saturating_duration_since(since) < INITIAL
    }

    /// Its session may not come up for now: for the operator, for too many prefixes, or for what it has cost.
    pub(super) fn is_held_back(&self) -> bool {
        self.session.state() == State::Idle && (self.stopped || self.limited || self.offends)
    }

    /// Adds what the peer has done to what others of its range have.
    pub(crate) fn add_to(&self, totals: &mut Totals, drops: Option<&Drops>) {
        let history = self.session.history();
        let is_up = self.session.state() == State::Established;
        let ended = history.established.saturating_sub(is_up.into());
        let error = if is_up { String::new() } else { last_error(history) };
        totals.add(&self.neighbor.location, (history.established, ended), drops, error);
    }

    /// What the process before has received is not in the tables again.
    pub(crate) fn is_replaying(&self) -> bool {
        self.takeover == Some(Takeover::Replaying)
    }
}

/// A change of a policy while the session was up.
#[derive(Copy, Clone, Debug)]
pub(crate) struct PolicyChange {
    pub(crate) started: Instant,
    /// When it had reached every route; `None` while it has not.
    pub(crate) ended: Option<Instant>,
}

/// How far a session of the process before has come in this one.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Takeover {
    /// What was received is being replayed.
    Replaying,
    /// The peer goes on where it was.
    Done,
}
