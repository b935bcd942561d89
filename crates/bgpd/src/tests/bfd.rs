//! BFD, as the process `bfd` tells it: here a test plays that.

use holdfast_api::bfd::v1::{self as said, BfdClient, FollowRequest, SessionState};
use holdfast_config::schema::{BfdHops, PeerBfd, Remote};
use holdfast_process::Resolver;
use holdfast_xrl::{
    Channel, Client, Finder, Handler, IncomingCall, Link, Node, PeerIdentity, Service, ServiceInfo, XrlError,
};
use std::{cell::RefCell, collections::BTreeSet, rc::Rc};
use tokio::sync::mpsc;

use super::*;
use crate::{
    bfd::{Channels, Wanted},
    tests::process::{Scene as Whole, configuration as told, greeting, run, run_until_death, until},
};

const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn state(state: said::State, diagnostic: u32) -> SessionState {
    let remote_state = if state == said::State::Up { said::State::Up } else { said::State::Down };
    SessionState {
        state: state.into(),
        remote_state: remote_state.into(),
        diagnostic,
        ..SessionState::default()
    }
}

fn up() -> SessionState {
    state(said::State::Up, 0)
}

/// Control detection time expired.
fn failed() -> SessionState {
    state(said::State::Down, 1)
}

fn with_bfd(neighbor: &mut Neighbor, bfd: PeerBfd) {
    neighbor.source.bfd = Some(bfd);
}

impl Scene {
    /// With BFD to its peer.
    fn with_bfd(bfd: PeerBfd) -> Self {
        let mut scene = Self::new();
        scene.change(|neighbor| with_bfd(neighbor, bfd));
        scene
    }

    fn change(&mut self, change: impl FnOnce(&mut Neighbor)) {
        let mut neighbor = self.slot().neighbor.clone();
        change(&mut neighbor);
        self.speaker.change_peer(self.peer, neighbor, self.now);
    }

    fn wanted(&self) -> Option<Wanted> {
        self.slot().bfd.as_ref().map(|following| following.wanted.clone())
    }

    fn effects(&mut self) -> Vec<Effect> {
        std::iter::from_fn(|| self.speaker.sessions.poll_effect()).collect()
    }

    fn hears_bfd(&mut self, state: SessionState) {
        self.speaker.bfd_says(self.peer, state, false, self.now);
    }
}

#[tokio::test]
async fn a_peer_is_followed_while_it_is_enabled() {
    let mut scene = Scene::with_bfd(PeerBfd::default());
    let follow = Effect::Follow(scene.peer);
    assert_eq!(scene.effects(), std::slice::from_ref(&follow));
    let wanted = scene.wanted().expect("it is followed");
    let single =
        Wanted { remote: PEER, local: None, interface: "".into(), hops: BfdHops::Single, profile: None };
    assert_eq!(wanted, single, "another AS without multihop");
    scene.change(|neighbor| neighbor.source.rules.description = Some("other".into()));
    assert_eq!(scene.effects(), [], "what is the same is not touched");
    let fast = PeerBfd { profile: Some("fast".into()), ..PeerBfd::default() };
    scene.hears_bfd(up());
    scene.change(|neighbor| with_bfd(neighbor, fast));
    assert_eq!(scene.effects(), std::slice::from_ref(&follow));
    assert!(scene.slot().bfd.as_ref().is_some_and(|following| following.said.is_some()), "the same session");
    for is_down in [true, false] {
        scene.change(|neighbor| neighbor.disabled = is_down);
        assert_eq!((scene.wanted().is_none(), scene.effects().is_empty()), (is_down, is_down));
    }
    scene.speaker.stop_peer(scene.peer, "for a while", scene.now);
    assert_eq!((scene.wanted(), scene.effects()), (None, vec![]));
    scene.speaker.start_peer(scene.peer, scene.now);
    assert_eq!(scene.effects(), [follow]);
    scene.change(|neighbor| neighbor.source.bfd = None);
    assert_eq!((scene.wanted(), scene.effects()), (None, vec![]));
}

#[tokio::test]
async fn how_many_hops_away_a_peer_is_follows_from_what_is_configured() {
    type Change = fn(&mut Neighbor);
    let internal: Change = |neighbor| neighbor.asn = PeerAsn::Internal;
    let cases: [(Change, BfdHops, bool); 7] = [
        (|_| {}, BfdHops::Single, false),
        (|neighbor| neighbor.source.rules.multihop = Some(3), BfdHops::Multiple, true),
        (|neighbor| neighbor.source.rules.multihop = Some(1), BfdHops::Single, false),
        (internal, BfdHops::Automatic, true),
        (
            |neighbor| {
                neighbor.asn = PeerAsn::Any;
                neighbor.source.rules.ttl_security = true;
            },
            BfdHops::Single,
            false,
        ),
        (|neighbor| neighbor.asn = PeerAsn::Any, BfdHops::Automatic, true),
        (
            |neighbor| {
                let bfd = PeerBfd { hops: BfdHops::Multiple, ..PeerBfd::default() };
                with_bfd(neighbor, bfd);
            },
            BfdHops::Multiple,
            true,
        ),
    ];
    for (change, hops, needs_local) in cases {
        let mut scene = Scene::with_bfd(PeerBfd::default());
        scene.change(change);
        assert_eq!(scene.wanted().map(|wanted| wanted.hops), (!needs_local).then_some(hops));
        // Over several hops our address is that of the session.
        let line = scene.connect(scene.peer).await;
        let local = needs_local.then_some(ADDRESS);
        assert_eq!(scene.wanted().map(|wanted| (wanted.hops, wanted.local)), Some((hops, local)));
        drop(line.far);
        scene.reads(line.key).await;
        assert_eq!(scene.wanted().map(|wanted| wanted.local), Some(local), "it is kept");
        let configured = "10.0.0.7".parse().ok();
        scene.change(|neighbor| neighbor.source.local_address = configured);
        assert_eq!(scene.wanted().map(|wanted| wanted.local), Some(configured));
    }
}

#[tokio::test]
async fn who_is_on_a_link_is_followed_at_the_address_it_has() {
    let mut scene = Scene::new();
    let mut neighbor = scene.range.at(Location::Neighbor("eth1".into()));
    neighbor.source.remote = Remote::Interface("eth1".into());
    with_bfd(&mut neighbor, PeerBfd::default());
    let index = scene.speaker.add_peer(neighbor, false, 3, scene.now);
    let wanted = |scene: &Scene| scene.speaker.sessions.wanted_bfd(index, &scene.speaker.settings);
    assert_eq!(wanted(&scene), None, "nobody is there");
    let line = scene.connect(index).await;
    let connection = scene.speaker.sessions.connection_mut(line.key).expect("it is open");
    connection.remote = "[fe80::2%3]:179".parse().expect("an address");
    let found = wanted(&scene).expect("it is there");
    let at = ("fe80::2".parse().ok(), "eth1", BfdHops::Single);
    assert_eq!((Some(found.remote), &*found.interface, found.hops), at);
}

#[tokio::test]
async fn a_session_ends_in_the_turn_in_which_bfd_fails() {
    let mut scene = Scene::with_bfd(PeerBfd::default());
    let mut line = scene.connect(scene.peer).await;
    scene.establish(&mut line).await;
    for harmless in [
        state(said::State::Down, 0),
        up(),
        SessionState { remote_state: said::State::AdminDown.into(), ..failed() },
        state(said::State::AdminDown, 7),
        failed(),
        up(),
    ] {
        scene.hears_bfd(harmless);
        assert_eq!(scene.state(scene.peer), Some(State::Established), "{harmless:?}");
    }
    scene.hears_bfd(failed());
    assert_eq!(scene.state(scene.peer), Some(State::Idle));
    assert_eq!(crate::last_error::last_error(scene.slot().session.history()), "BFD is down");
    assert_eq!(scene.slot().bfd_failures, 1);
    assert_eq!(scene.hears(&mut line).await, [MessageType::Notification]);
}

#[tokio::test]
async fn another_session_of_bfd_begins_without_what_was_said_of_the_one_before() {
    let mut scene = Scene::with_bfd(PeerBfd::default());
    let mut line = scene.connect(scene.peer).await;
    scene.establish(&mut line).await;
    scene.hears_bfd(up());
    scene.change(|neighbor| neighbor.source.local_address = "10.0.0.7".parse().ok());
    scene.hears_bfd(failed());
    assert_eq!(scene.state(scene.peer), Some(State::Established));
    // Nor does what was said of one that a new `bfd` does not know.
    scene.hears_bfd(up());
    scene.speaker.bfd_says(scene.peer, state(said::State::Down, 0), true, scene.now);
    assert_eq!(scene.state(scene.peer), Some(State::Established));
    scene.hears_bfd(up());
    scene.speaker.bfd_says(scene.peer, failed(), false, scene.now);
    assert_eq!(scene.state(scene.peer), Some(State::Idle));
}

/// Where states go to whoever follows.
type Followers = Rc<RefCell<Vec<(FollowRequest, mpsc::UnboundedSender<SessionState>)>>>;

/// A process `bfd` that says what the test says.
struct Bfd(Followers);

impl Service for Bfd {
    fn info(&self) -> &'static ServiceInfo {
        BfdClient::SERVICE
    }

    fn dispatch(&self, call: IncomingCall<'_>) -> Handler {
        let followers = Rc::clone(&self.0);
        match call.method() {
            BfdClient::FOLLOW => call.streaming(|_, wanted: FollowRequest, _, mut replies| async move {
                let (sender, mut states) = mpsc::unbounded_channel();
                followers.borrow_mut().push((wanted, sender));
                while let Some(state) = states.recv().await {
                    replies.send(state).await?;
                }
                Err::<(), _>(XrlError::unavailable("gone"))
            }),
            _ => call.unknown(),
        }
    }
}

/// One that runs; gone with its node.
struct Running {
    followers: Followers,
    _node: Node,
}

impl Running {
    async fn new(finder: &Finder) -> Self {
        let (node, followers) = (Node::new("bfd"), Followers::default());
        node.serve(Bfd(Rc::clone(&followers)));
        until("registered", async || {
            let (near, far) = Link::pair();
            finder.attach_link(far, PeerIdentity::new("bfd").class("bfd"));
            node.join_link(near).await.is_ok()
        })
        .await;
        Self { followers, _node: node }
    }

    /// Who follows now.
    fn followed(&self) -> Vec<FollowRequest> {
        self.followers.borrow_mut().retain(|(_, sender)| !sender.is_closed());
        self.followers.borrow().iter().map(|(wanted, _)| wanted.clone()).collect()
    }

    async fn says(&self, state: SessionState) {
        until("somebody follows", async || !self.followed().is_empty()).await;
        let followers = self.followers.borrow();
        followers.iter().for_each(|(_, sender)| sender.send(state).expect("it listens"));
    }
}

/// The peer on loopback, with this BFD.
fn configured(bfd: Option<PeerBfd>) -> api::Configuration {
    let mut message = told("a", 65_001, &[]);
    let peer = &mut message.peers[0];
    let mut source = crate::config::before::peer(peer).expect("a peer");
    (source.bfd, source.nonstop, source.rules.ttl_security) = (bfd, true, true);
    peer.settings = serde_json::to_vec(&source).expect("JSON");
    message
}

async fn is_up(scene: &Whole) -> bool {
    scene.neighbor().await.peer.expect("a peer").state == "Established"
}

async fn bfd(scene: &Whole) -> String {
    scene.neighbor().await.bfd.map(|bfd| bfd.state).unwrap_or_default()
}

#[test]
fn so_many_are_followed_that_one_channel_is_not_enough() {
    run(async {
        let finder = Finder::new();
        let running = Running::new(&finder).await;
        let (near, far) = Link::pair();
        finder.attach_link(far, PeerIdentity::new("bgp"));
        let resolver = Resolver::over(Channel::over(near));
        let (channels, mut held) = (Channels::default(), Vec::new());
        for _ in 0..1025 {
            held.push(channels.channel(&resolver).await.expect("it runs"));
        }
        let different = |held: &[Rc<Channel>]| held.iter().map(Rc::as_ptr).collect::<BTreeSet<_>>().len();
        assert_eq!((different(&held), different(&held[..512])), (3, 1));
        held.remove(0);
        held.push(channels.channel(&resolver).await.expect("it runs"));
        assert!(Rc::ptr_eq(&held[0], held.last().expect("there")), "there is room again");
        drop(running);
        until("they are closed", async || held.iter().all(|channel| channel.is_closed())).await;
        let _running = Running::new(&finder).await;
        let fresh = channels.channel(&resolver).await.expect("it runs");
        assert!(!fresh.is_closed());
    });
}

#[test]
fn what_bfd_has_said_holds_until_another_one_says_more() {
    run(async {
        let mut scene = Whole::new(Default::default());
        let door = scene.door(Node::new("transport")).await;
        scene.configure("bgp", configured(Some(PeerBfd::default()))).await.expect("taken");
        let running = Running::new(&scene.finder).await;
        running.says(up()).await;
        let wanted = FollowRequest {
            remote: vec![127, 0, 0, 1],
            hops: said::Hops::Single.into(),
            ..FollowRequest::default()
        };
        assert_eq!(running.followed(), std::slice::from_ref(&wanted));
        let mut peer = door.tcp("a").await;
        peer.write_all(&greeting(65_001)).await.expect("room in the socket");
        until("a session", async || is_up(&scene).await && bfd(&scene).await == "up").await;
        // Only the profile changes: the session of BFD has a follower all the time.
        let fast = PeerBfd { profile: Some("fast".into()), ..PeerBfd::default() };
        scene.configure("bgp", configured(Some(fast.clone()))).await.expect("taken");
        until("both follow", async || running.followed().len() == 2).await;
        running.says(up()).await;
        let fast_wanted = FollowRequest { profile: "fast".into(), ..wanted };
        until("one follows", async || running.followed() == [fast_wanted.clone()]).await;

        drop(running);
        let running = Running::new(&scene.finder).await;
        running.says(state(said::State::Down, 0)).await;
        until("it is told", async || bfd(&scene).await == "down").await;
        assert!(is_up(&scene).await, "a session that has not been up does not fail");
        running.says(up()).await;
        until("it is up", async || bfd(&scene).await == "up").await;
        drop(running);
        let running = Running::new(&scene.finder).await;
        until("it is followed again", async || !running.followed().is_empty()).await;
        assert!(is_up(&scene).await && bfd(&scene).await == "up", "the last word holds");
        running.says(failed()).await;
        until("the session ends", async || !is_up(&scene).await).await;

        scene.configure("bgp", configured(None)).await.expect("taken");
        until("nobody follows", async || running.followed().is_empty()).await;
        assert_eq!(scene.neighbor().await.bfd, None);
    });
}

#[test]
fn a_session_that_goes_on_in_the_next_process_ends_if_bfd_has_failed_meanwhile() {
    let (kept, peer) = run_until_death(async {
        let mut scene = Whole::new(Default::default());
        let door = scene.door(Node::new("transport")).await;
        scene.configure("bgp", configured(Some(PeerBfd::default()))).await.expect("taken");
        let running = Running::new(&scene.finder).await;
        let mut peer = door.tcp("a").await;
        peer.write_all(&greeting(65_001)).await.expect("room in the socket");
        until("a session", async || is_up(&scene).await).await;
        running.says(up()).await;
        until("BFD is up", async || bfd(&scene).await == "up").await;
        until("it is kept", async || scene.keys().len() == 2).await;
        std::mem::forget(running);
        (scene, peer)
    });
    run(async {
        let mut scene = Whole::new(kept);
        let _door = scene.door(Node::new("transport")).await;
        scene.configure("bgp", configured(Some(PeerBfd::default()))).await.expect("taken");
        until("the session goes on", async || is_up(&scene).await).await;
        let running = Running::new(&scene.finder).await;
        until("it is followed", async || !running.followed().is_empty()).await;
        assert!(is_up(&scene).await);
        running.says(failed()).await;
        until("the session ends", async || !is_up(&scene).await).await;
        drop(peer);
    });
}
