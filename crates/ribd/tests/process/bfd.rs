//! What BFD says, by a process that is played by the test.

use holdfast_api::bfd::v1::{self as bfd, State};
use tokio::sync::watch;

use super::*;

/// Says what it is told to.
#[derive(Default)]
struct Bfd {
    /// Who is followed: the VRF, the neighbour and the profile, as long as the streams last.
    followed: RefCell<Vec<(String, Vec<u8>, String)>>,
    /// All states that the sessions had.
    states: watch::Sender<Vec<bfd::SessionState>>,
    /// All that was said of neighbours.
    neighbors: watch::Sender<Vec<bfd::Neighbor>>,
}

impl Bfd {
    async fn start(finder: &Finder, name: &str, state: bfd::SessionState) -> (Node, Rc<Self>) {
        let node = Node::named("bfd", name);
        let this = Rc::<Self>::default();
        this.states.send_replace(vec![state]);
        node.serve(bfd::BfdDispatcher(Rc::clone(&this)));
        let _ = join(finder, &node).await;
        (node, this)
    }

    fn say(&self, state: State, remote_state: State, diagnostic: u32) {
        self.states.send_modify(|states| states.push(session(state, remote_state, diagnostic)));
    }

    fn say_of(&self, neighbor: bfd::Neighbor) {
        self.neighbors.send_modify(|said| said.push(neighbor));
    }

    fn follows(&self) -> usize {
        self.followed.borrow().len()
    }
}

fn session(state: State, remote_state: State, diagnostic: u32) -> bfd::SessionState {
    let (state, remote_state) = (state.into(), remote_state.into());
    bfd::SessionState { state, remote_state, diagnostic, ..Default::default() }
}

/// Forgets who was followed when the stream ends.
struct Stream<'a>(&'a Bfd, (String, Vec<u8>, String));

impl Drop for Stream<'_> {
    fn drop(&mut self) {
        let mut followed = self.0.followed.borrow_mut();
        let at = followed.iter().position(|other| *other == self.1).expect("it was followed");
        followed.swap_remove(at);
    }
}

impl bfd::BfdServer for Bfd {
    async fn follow(
        &self,
        _: &CallContext,
        request: bfd::FollowRequest,
        mut replies: ReplySink<bfd::SessionState>,
    ) -> Result<(), XrlError> {
        let who = (request.vrf, request.remote, request.profile);
        self.followed.borrow_mut().push(who.clone());
        let _stream = Stream(self, who);
        let mut states = self.states.subscribe();
        let mut said = states.borrow().len() - 1;
        loop {
            let all = states.borrow_and_update().clone();
            for state in all.iter().skip(std::mem::replace(&mut said, all.len())) {
                replies.send(*state).await?;
            }
            states.changed().await.expect("we live");
        }
    }

    async fn watch(
        &self,
        _: &CallContext,
        _: bfd::WatchRequest,
        mut replies: ReplySink<bfd::Neighbor>,
    ) -> Result<(), XrlError> {
        let (mut neighbors, mut said) = (self.neighbors.subscribe(), 0);
        loop {
            let all = neighbors.borrow_and_update().clone();
            let end = all.len();
            for neighbor in all.into_iter().skip(std::mem::replace(&mut said, end)) {
                replies.send(neighbor).await?;
            }
            neighbors.changed().await.expect("we live");
        }
    }
}

async fn configure_bfd(finder: &Finder, profile: Option<&str>) {
    let resolver = caller(finder, "manager");
    let manager: rib::RibClient = resolver.client("rib").await.expect("resolved");
    let with = |profile: &str| rib::StaticBfd { profile: profile.into(), hops: 1 };
    let followed = rib::StaticRoute { bfd: profile.map(with), ..static_route("192.0.2.0/24") };
    let statics = vec![followed, static_route("198.51.100.0/24")];
    manager
        .configure(rib::Configuration { statics, bfd: true, ..Default::default() })
        .await
        .expect("configured");
}

#[test]
fn a_static_route_is_there_until_its_next_hop_has_failed_and_again_when_it_works() {
    use State::{AdminDown, Down, Init, Up};
    run(async {
        let finder = Finder::new();
        start_rib(&finder).await;
        let (_node, engine) = start_engine(&finder, "fea-1").await;
        configure_bfd(&finder, Some("fast")).await;
        until("both are there before anybody has said anything", || engine.count() == 2).await;
        let (node, process) = Bfd::start(&finder, "bfd-1", session(Down, Down, 0)).await;
        until("it is followed", || process.follows() == 1).await;
        assert_eq!(process.followed.borrow()[0], (String::new(), vec![10, 0, 0, 1], "fast".into()));
        process.say(Up, Up, 0);
        process.say(Down, Up, 1);
        until("only the one that does not care is left", || engine.count() == 1).await;
        process.say(Init, Down, 1);
        configure_bfd(&finder, Some("slow")).await;
        until("its profile is another", || {
            process.follows() == 1 && process.followed.borrow()[0].2 == "slow"
        })
        .await;
        assert_eq!(engine.count(), 1, "it has failed all the same");

        node.close();
        let (_node, process) = Bfd::start(&finder, "bfd-2", session(Down, Down, 0)).await;
        until("it is followed again", || process.follows() == 1).await;
        assert_eq!(engine.count(), 1, "what was said last counts");
        process.say(Up, Up, 0);
        until("it works again", || engine.count() == 2).await;
        process.say(Down, Down, 3);
        until("the neighbour says that it is down", || engine.count() == 1).await;
        process.say(Down, AdminDown, 3);
        until("no: its operator has done that", || engine.count() == 2).await;
        process.say(Init, Down, 3);
        process.say(Up, Up, 0);
        process.say(Down, Down, 1);
        until("down once more", || engine.count() == 1).await;
        configure_bfd(&finder, None).await;
        until("nobody asks any more", || engine.count() == 2 && process.follows() == 0).await;
    });
}

fn neighbor(last: u8, failed: bool) -> bfd::Neighbor {
    bfd::Neighbor { remote: vec![10, 0, 0, last], interface: 3, failed, ..Default::default() }
}

fn synced() -> bfd::Neighbor {
    bfd::Neighbor { synced: true, ..Default::default() }
}

#[test]
fn routes_go_another_way_before_a_busy_engine_has_taken_what_it_was_sent() {
    run(async {
        let finder = Finder::new();
        start_rib(&finder).await;
        let (_node, engine) = start_engine(&finder, "fea-1").await;
        configure_bfd(&finder, None).await;
        let (node, process) = Bfd::start(&finder, "bfd-1", session(State::Up, State::Up, 0)).await;
        process.say_of(neighbor(1, false));
        process.say_of(synced());
        let bgp = Origin::start(&finder, "bgp-1").await;
        let hop = |last| NextHop { gateway: vec![10, 0, 0, last], ..Default::default() };
        let set = NextHopSet { handle: 7, kind: 0, members: vec![hop(1)], backups: vec![hop(2)] };
        let batch = |define: Vec<NextHopSet>, third| RouteBatch {
            afi: 1,
            define,
            addresses: vec![20, 0, third, 0],
            lengths: vec![24],
            runs: vec![1],
            next_hops: vec![7],
            ..Default::default()
        };
        let announce = |batch| bgp.rib.routes(rib::OriginRoutes { origin: bgp.number, batch: Some(batch) });
        announce(batch(vec![set], 1)).await.expect("taken");
        until("the routes are there", || engine.count() == 3).await;
        let handle = engine.routes.borrow()[&(vec![20, 0, 1, 0], 24)];
        let leads_to = |last| engine.handles.borrow()[&handle].members[0].gateway == [10, 0, 0, last];
        assert!(leads_to(1));

        let busy = engine.gate.acquire().await.expect("never closed");
        announce(batch(vec![], 2)).await.expect("taken");
        process.say_of(neighbor(1, true));
        until("the other way", || leads_to(2)).await;
        assert_eq!(engine.count(), 3, "the engine is busy still");
        drop(busy);
        until("the routes are there", || engine.count() == 4).await;
        assert!(leads_to(2));

        node.close();
        let (_node, process) = Bfd::start(&finder, "bfd-2", session(State::Up, State::Up, 0)).await;
        process.say_of(neighbor(9, true));
        let asks = |last| bgp.rib.lookup(rib::RegisterRequest { address: vec![20, 0, last, 1] });
        assert_eq!(asks(1).await.expect("found").routes[0].resolved[0].gateway, [10, 0, 0, 2]);
        process.say_of(synced());
        until("what its next life does not say is over", || leads_to(1)).await;
    });
}
