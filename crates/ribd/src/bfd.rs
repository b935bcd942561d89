//! What BFD says: which neighbours have failed, so that routes lead around them; and whether the next hops of static routes
//! work, each of which is followed.
//!
//! While the process `bfd` is not there, what it said last counts. Its next life is asked again.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    net::IpAddr,
    rc::Rc,
    time::Duration,
};

use holdfast_api::bfd::v1::{self as api, BfdClient, FollowRequest, SessionState, State, WatchRequest};
use holdfast_process::{Boot, spawn_task};
use holdfast_rib::Neighbor;
use holdfast_types::octets;
use holdfast_xrl::{Resolver, XrlError};
use tokio::{task::JoinHandle, time::sleep};
use tracing::{Instrument, Span, info, warn};

use crate::{router::Router, statics, wire};

/// Class of the process, which has the sessions of all tables.
const BFD: &str = "bfd";
/// Pause between two attempts to talk to it.
const RETRY: Duration = Duration::from_millis(100);

/// Most next hops that are followed: a stream each, of which a channel has room for no more.
pub(crate) const MAX_FOLLOWED: usize = 1000;

/// A neighbour, as a session to it is asked for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Session {
    pub(crate) remote: IpAddr,
    /// Empty: as the table says.
    pub(crate) interface: Box<str>,
    /// A value of `bfd.v1/Hops`.
    pub(crate) hops: i32,
}

/// A session that is followed. Routes that name different profiles for one neighbour follow it each on their own.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Followed {
    pub(crate) session: Session,
    pub(crate) profile: Box<str>,
}

/// A task that ends with this.
struct Running(JoinHandle<()>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The way to the process.
#[derive(Clone)]
struct Way {
    router: Rc<Router>,
    resolver: Resolver,
    /// Empty: the default table.
    vrf: String,
    span: Span,
}

impl Way {
    fn start(&self, task: impl Future<Output = ()> + 'static) -> Running {
        Running(spawn_task(task.instrument(self.span.clone())))
    }

    async fn client(&self) -> Result<BfdClient, XrlError> {
        self.resolver.wait_for(BFD).await
    }
}

/// Has as many streams as the configuration asks for, for ever.
pub(crate) async fn run(router: &Rc<Router>, boot: &Boot) -> Infallible {
    let vrf = boot.vrf.as_deref().unwrap_or_default().to_owned();
    let way = Way { router: Rc::clone(router), resolver: boot.resolver.clone(), vrf, span: boot.span() };
    let (mut watching, mut following) = (None, BTreeMap::new());
    loop {
        if router.bfd.get() {
            watching.get_or_insert_with(|| way.start(watch(way.clone())));
        } else if watching.take().is_some() {
            retain_failed(router, &BTreeSet::new());
        }
        let wanted = router.statics.borrow().followed();
        let gone = following.extract_if(.., |followed, _| !wanted.contains(followed));
        let mut gone: BTreeMap<Session, Running> =
            gone.map(|(followed, task): (Followed, _)| (followed.session, task)).collect();
        for followed in wanted {
            let before = gone.remove(&followed.session);
            let start = |followed: &Followed| way.start(follow(way.clone(), followed.clone(), before));
            following.entry(followed).or_insert_with_key(start);
        }
        drop(gone);
        router.configured.notified().await;
    }
}

/// Says what one life after the other ended by, each reason once.
async fn again(error: XrlError, said: &mut String) {
    let text = error.to_string();
    if *said != text {
        warn!(event = "bfd-lost", "bfd: {text}");
        *said = text;
    }
    sleep(RETRY).await;
}

fn said<T>(next: Option<T>) -> Result<T, XrlError> {
    next.ok_or_else(|| XrlError::unavailable("the stream has ended"))
}

/// Follows a session. `before` is the same with another profile: the session must not end in between.
async fn follow(way: Way, followed: Followed, mut before: Option<Running>) {
    let (mut said, mut session) = (String::new(), Before::default());
    loop {
        let Err(error) = states(&way, &followed, &mut session, &mut before).await;
        again(error, &mut said).await;
    }
}

async fn states(
    way: &Way,
    followed: &Followed,
    known: &mut Before,
    before: &mut Option<Running>,
) -> Result<Infallible, XrlError> {
    let Followed { session, profile } = followed;
    let mut stream = way.client().await?.follow(FollowRequest {
        vrf: way.vrf.clone(),
        remote: octets(session.remote),
        local: Vec::new(),
        interface: session.interface.to_string(),
        hops: session.hops,
        profile: profile.to_string(),
    });
    loop {
        let state = said(stream.next().await?)?;
        *before = None;
        if let Some(failed) = known.take(&state) {
            statics::session_says(&way.router, session, failed);
        }
    }
}

/// What a session was before, as far as this life knows.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
enum Before {
    #[default]
    Unknown,
    Up,
    /// Not up.
    Other,
}

impl Before {
    /// Takes the next state. Whether the neighbour has failed; `None`: that is as it was.
    ///
    /// A session fails that was up, and that no operator of either end has taken down (RFC 5882 section 3.2): AdminDown has the
    /// diagnostic 7. One without a diagnostic has never been up in this life of the process that has it, which says nothing of
    /// the neighbour. Of the first state alone only Down tells: Init may come after AdminDown.
    fn take(&mut self, session: &SessionState) -> Option<bool> {
        let state = |number| State::try_from(number).unwrap_or(State::Down);
        let (state, remote_state) = (state(session.state), state(session.remote_state));
        let next = if state == State::Up { Self::Up } else { Self::Other };
        let before = std::mem::replace(self, next);
        match (state, remote_state, session.diagnostic) {
            (State::Up | State::AdminDown, _, _) | (_, State::AdminDown, _) | (_, _, 7) => Some(false),
            (State::Down | State::Init, _, 0) => None,
            (State::Down, _, _) => (before != Self::Other).then_some(true),
            (State::Init, _, _) => (before == Self::Up).then_some(true),
        }
    }
}

/// Watches the neighbours of the table.
async fn watch(way: Way) {
    let mut said = String::new();
    loop {
        let Err(error) = neighbors(&way).await;
        again(error, &mut said).await;
    }
}

async fn neighbors(way: &Way) -> Result<Infallible, XrlError> {
    let mut stream = way.client().await?.watch(WatchRequest { vrf: way.vrf.clone() });
    let mut failed = BTreeSet::new();
    loop {
        let change = said(stream.next().await?)?;
        if let Some((neighbor, has_failed)) = neighbor(&change) {
            match has_failed {
                true => failed.insert(neighbor),
                false => failed.remove(&neighbor),
            };
            way.router.change(|rib| rib.neighbors_failed([(neighbor, has_failed)]));
        }
        if change.synced {
            retain_failed(&way.router, &failed);
            info!(event = "bfd-synced", failed = failed.len(), "neighbours that have failed are known");
        }
    }
}

fn neighbor(said: &api::Neighbor) -> Option<(Neighbor, bool)> {
    let address = wire::address(&said.remote).ok()?;
    Some((Neighbor { address, interface: said.interface }, said.failed && !said.gone))
}

/// Only these have failed.
fn retain_failed(router: &Router, failed: &BTreeSet<Neighbor>) {
    router.change(|rib| {
        let others = rib.failed_neighbors().filter(|neighbor| !failed.contains(neighbor));
        let others: Vec<_> = others.map(|neighbor| (neighbor, false)).collect();
        rib.neighbors_failed(others);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    use State::{AdminDown, Down, Init, Up};

    fn says(before: Before, state: State, remote_state: State, diagnostic: u32) -> Option<bool> {
        let (state, remote_state) = (state.into(), remote_state.into());
        let mut now = before;
        now.take(&SessionState { state, remote_state, diagnostic, ..SessionState::default() })
    }

    #[test]
    fn a_session_fails_that_was_up_and_that_nobody_has_taken_down() {
        for before in [Before::Unknown, Before::Up, Before::Other] {
            assert_eq!(says(before, Up, Up, 1), Some(false), "an earlier failure is over");
            assert_eq!(says(before, Down, Down, 0), None, "never up in this life of the process");
            assert_eq!(says(before, Init, Down, 0), None);
            assert_eq!(says(before, Down, AdminDown, 3), Some(false), "the neighbour's operator");
            assert_eq!(says(before, AdminDown, Up, 7), Some(false), "ours");
            assert_eq!(says(before, Down, Down, 7), Some(false), "it was ours until now");
        }
        assert_eq!(says(Before::Up, Down, Up, 1), Some(true), "nothing arrives");
        assert_eq!(says(Before::Up, Down, Down, 3), Some(true), "the neighbour says so");
        assert_eq!(says(Before::Up, Init, Down, 1), Some(true), "down in between");
    }

    #[test]
    fn what_follows_a_failure_does_not_end_it_and_what_follows_an_operator_is_none() {
        assert_eq!(says(Before::Other, Init, Down, 1), None);
        assert_eq!(says(Before::Other, Init, Down, 3), None, "after AdminDown of the neighbour");
        assert_eq!(says(Before::Other, Down, Down, 1), None, "as it was");
    }

    #[test]
    fn a_failure_is_found_that_is_older_than_this_process() {
        assert_eq!(says(Before::Unknown, Down, Down, 1), Some(true));
        assert_eq!(says(Before::Unknown, Init, Down, 3), None);
    }
}
