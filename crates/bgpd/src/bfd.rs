//! What BFD says of the paths to peers, from the process `bfd`: a stream for each peer that wants to know.
//!
//! A peer is followed while it is enabled and its address is known, whether its session is up or not. Whatever happens to
//! `bfd`, its last word holds: only who is followed says that a path has failed.

use std::{cell::RefCell, net::IpAddr, rc::Rc, time::Instant};

use holdfast_api::bfd::v1::{BfdClient, FollowRequest, Hops, SessionState, State};
use holdfast_bgp_session::Bfd;
use holdfast_config::schema::BfdHops;
use holdfast_process::Resolver;
use holdfast_types::octets;
use holdfast_xrl::{Channel, Client, XrlError};
use tokio::{sync::Mutex, task::AbortHandle};

/// The process that is asked, of whichever table.
const CLASS: &str = "bfd";
/// What a profile is called where none is named.
pub(crate) const DEFAULT_PROFILE: &str = "default";
/// Peers that are followed over one channel: half of the calls that may be in progress there.
const MOST_ON_A_CHANNEL: usize = 512;

/// The channels to `bfd`, each shared by so many.
#[derive(Default)]
pub(crate) struct Channels {
    all: RefCell<Vec<Rc<Channel>>>,
    /// One at a time: thousands may ask at once.
    opening: Mutex<()>,
}

impl Channels {
    /// One with room, for as long as it is held; waits until there is a `bfd`.
    pub(crate) async fn channel(&self, resolver: &Resolver) -> Result<Rc<Channel>, XrlError> {
        let _turn = self.opening.lock().await;
        self.all.borrow_mut().retain(|channel| !channel.is_closed());
        let has_room = |channel: &&Rc<Channel>| Rc::strong_count(channel) <= MOST_ON_A_CHANNEL;
        if let Some(channel) = self.all.borrow().iter().find(has_room) {
            return Ok(Rc::clone(channel));
        }
        let is_first = self.all.borrow().is_empty();
        let channel = Rc::new(match is_first {
            true => resolver.channel(CLASS, BfdClient::SERVICE, true).await?,
            false => resolver.open(CLASS, BfdClient::SERVICE.name, &[], true).await?,
        });
        self.all.borrow_mut().push(Rc::clone(&channel));
        Ok(channel)
    }
}

/// The BFD session of a peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Wanted {
    pub(crate) remote: IpAddr,
    /// `None`: the kernel chooses.
    pub(crate) local: Option<IpAddr>,
    /// Of a link-local neighbour; otherwise empty.
    pub(crate) interface: Box<str>,
    pub(crate) hops: BfdHops,
    /// `None`: the default one.
    pub(crate) profile: Option<String>,
}

impl Wanted {
    /// Whether it is the same session, whatever its profile.
    pub(crate) fn is_same_session(&self, other: &Self) -> bool {
        let Self { remote, local, interface, hops, profile: _ } = self;
        (remote, local, interface, hops) == (&other.remote, &other.local, &other.interface, &other.hops)
    }

    pub(crate) fn request(&self, vrf: &str) -> FollowRequest {
        let hops = match self.hops {
            BfdHops::Automatic => Hops::Automatic,
            BfdHops::Single => Hops::Single,
            BfdHops::Multiple => Hops::Multiple,
        };
        FollowRequest {
            vrf: vrf.to_owned(),
            remote: octets(self.remote),
            local: self.local.map(octets).unwrap_or_default(),
            interface: self.interface.to_string(),
            hops: hops.into(),
            profile: self.profile.clone().unwrap_or_default(),
        }
    }
}

/// A peer's part in its BFD session.
#[derive(Debug)]
pub(crate) struct Following {
    pub(crate) wanted: Wanted,
    /// What was said last, and when.
    pub(crate) said: Option<(SessionState, Instant)>,
    /// Who follows; nobody where no task runs.
    task: Option<Task>,
    /// Who has followed the same session by another profile, until this one is told of it.
    before: Option<Task>,
}

impl Following {
    /// In the place of another one, of which all but the profile may stay.
    pub(crate) fn new(wanted: Wanted, before: Option<Self>) -> Self {
        match before.filter(|before| before.wanted.is_same_session(&wanted)) {
            Some(Self { said, task, .. }) => Self { wanted, said, task: None, before: task },
            None => Self { wanted, said: None, task: None, before: None },
        }
    }

    /// Who has followed the same session so far, until the next one is told of it.
    pub(crate) fn take_before(&mut self) -> Option<Task> {
        self.before.take()
    }

    /// Follows from now on.
    pub(crate) fn begin(&mut self, task: AbortHandle) {
        self.task = Some(Task(task));
    }
}

/// Ends with whoever has it.
#[derive(Debug)]
pub(crate) struct Task(AbortHandle);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What a session of BGP makes of it.
pub(crate) fn read(state: &SessionState) -> Bfd {
    match (state.state(), state.remote_state()) {
        (State::Up, _) => Bfd::Up,
        (State::AdminDown, _) | (_, State::AdminDown) => Bfd::AdminDown,
        (State::Down | State::Init, _) => Bfd::Down { independent: state.remote_control_plane_independent },
    }
}

/// The diagnostics of RFC 5880 section 4.1 and RFC 6428 section 3.4.3, as far as they concern a peer.
pub(crate) fn diagnostic(number: u32) -> &'static str {
    match number {
        0 => "no diagnostic",
        1 => "control detection time expired",
        2 => "echo function failed",
        3 => "neighbor signaled session down",
        4 => "forwarding plane reset",
        5 => "path down",
        6 => "concatenated path down",
        7 => "administratively down",
        8 => "reverse concatenated path down",
        _ => "unknown diagnostic",
    }
}

/// As operators know the states.
pub(crate) fn state_name(state: State) -> &'static str {
    match state {
        State::AdminDown => "admin-down",
        State::Down => "down",
        State::Init => "init",
        State::Up => "up",
    }
}
