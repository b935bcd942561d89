//! What the RPKI says, as the process `rpki` tells it: here a test plays that.

use std::{cell::RefCell, os::fd::OwnedFd, rc::Rc, time::Duration};

use holdfast_api::{
    bgp::v1::{self as api, BgpClient},
    rpki::v1::{self as rpki, RpkiClient},
};
use holdfast_process::Resolver;
use holdfast_xrl::{
    Channel, Client, Finder, Handler, IncomingCall, Link, Node, PeerIdentity, Service, ServiceInfo, XrlError,
};
use tokio::{
    io::AsyncWriteExt,
    net::TcpStream,
    runtime::Builder,
    sync::mpsc,
    task::LocalSet,
    time::{Instant, sleep},
};

use super::process::{Kept, Scene, announcement, configuration, run, run_until_death, session, until};
use crate::{epoch::Epochs, validation::Validation};

/// Where pieces go to whoever watches.
type Watchers = Rc<RefCell<Vec<mpsc::UnboundedSender<rpki::Piece>>>>;

/// A process `rpki` that says what the test says, to all who ask before.
struct Rpki(Watchers);

impl Service for Rpki {
    fn info(&self) -> &'static ServiceInfo {
        RpkiClient::SERVICE
    }

    fn dispatch(&self, call: IncomingCall<'_>) -> Handler {
        let watchers = Rc::clone(&self.0);
        match call.method() {
            RpkiClient::WATCH => call.streaming(|_, wanted: rpki::WatchRequest, _, mut replies| async move {
                assert!(wanted.vrps && wanted.aspas && !wanted.router_keys);
                let (sender, mut pieces) = mpsc::unbounded_channel();
                watchers.borrow_mut().push(sender);
                while let Some(piece) = pieces.recv().await {
                    replies.send(piece).await?;
                }
                Err::<(), _>(XrlError::unavailable("gone"))
            }),
            _ => call.unknown(),
        }
    }
}

/// One that runs; gone with its node.
struct Running {
    watchers: Watchers,
    _node: Node,
}

impl Running {
    async fn new(finder: &Finder) -> Self {
        let (node, watchers) = (Node::new("rpki"), Watchers::default());
        node.serve(Rpki(Rc::clone(&watchers)));
        // The one before may have to be missed first.
        until("registered", async || {
            let (near, far) = Link::pair();
            finder.attach_link(far, PeerIdentity::new("rpki").class("rpki"));
            node.join_link(near).await.is_ok()
        })
        .await;
        Self { watchers, _node: node }
    }

    /// Says this to the one who watches, as soon as it does.
    async fn says(&self, piece: rpki::Piece) {
        until("somebody watches", async || !self.watchers.borrow().is_empty()).await;
        for watcher in &*self.watchers.borrow() {
            watcher.send(piece.clone()).expect("it listens");
        }
    }
}

/// Networks of the form `NET.0.0.0/8`, each with who may originate it.
fn records(vrps: &[(u8, u32)]) -> Option<rpki::Records> {
    let columns = rpki::Vrps {
        addresses: vrps.iter().flat_map(|(net, _)| [*net, 0, 0, 0]).collect(),
        lengths: vec![8; vrps.len()],
        max_lengths: vec![8; vrps.len()],
        asns: vrps.iter().map(|(_, asn)| *asn).collect(),
    };
    Some(rpki::Records { ipv4: Some(columns), ..rpki::Records::default() })
}

fn full(epoch: u64, vrps: &[(u8, u32)]) -> rpki::Piece {
    rpki::Piece {
        epoch,
        full: true,
        announced: records(vrps),
        last: true,
        expire_seconds: 3600,
        ..rpki::Piece::default()
    }
}

fn validating() -> api::Configuration {
    api::Configuration { validates: true, ..configuration("a", 65_001, &[]) }
}

/// Prefixes of which validation says this.
async fn of(scene: &Scene, validity: &str) -> Vec<String> {
    let operator = scene.caller("operator");
    let bgp: BgpClient = operator.client("bgp").await.expect("it runs");
    let wanted = api::ShowRoutesRequest { validity: validity.into(), ..api::ShowRoutesRequest::default() };
    let mut stream = bgp.show_routes(wanted);
    let mut prefixes = Vec::new();
    while let Some(page) = stream.next().await.expect("alive") {
        prefixes.extend(page.prefixes.into_iter().map(|prefix| prefix.prefix));
    }
    prefixes
}

async fn says(stream: &mut TcpStream, net: u8) {
    stream.write_all(&announcement(65_001, net)).await.expect("room in the socket");
}

#[test]
fn an_epoch_takes_effect_as_a_whole_and_outlives_who_said_it() {
    run(async {
        let mut scene = Scene::new(Default::default());
        let door = scene.door(Node::new("transport")).await;
        scene.configure("bgp", validating()).await.expect("taken");
        let mut peer = session(&door, "a", 65_001).await;
        says(&mut peer, 11).await;
        until("two routes of which nothing is known", async || of(&scene, "not-found").await.len() == 2)
            .await;

        let running = Running::new(&scene.finder).await;
        let first = rpki::Piece { last: false, ..full(1, &[(10, 65_001)]) };
        running.says(first).await;
        let second = full(1, &[(11, 65_002)]);
        assert_eq!(of(&scene, "not-found").await.len(), 2, "half of an epoch is none");
        running.says(second).await;
        until("both are judged", async || {
            (of(&scene, "valid").await, of(&scene, "invalid").await)
                == (vec!["10.0.0.0/8".into()], vec!["11.0.0.0/8".into()])
        })
        .await;
        // Why, for the operator.
        let operator = scene.caller("operator");
        let bgp: BgpClient = operator.client("bgp").await.expect("it runs");
        let shown =
            bgp.show_route(api::ShowRouteRequest { destination: "11.0.0.0/8".into() }).await.expect("shown");
        assert_eq!((shown.validates, shown.vrps), (true, vec!["11.0.0.0/8 AS65002".to_owned()]));
        assert_eq!(shown.prefixes[0].paths[0].validity, "invalid");

        // A difference.
        let delta = rpki::Piece {
            epoch: 2,
            announced: records(&[(11, 65_001)]),
            withdrawn: records(&[(11, 65_002)]),
            last: true,
            expire_seconds: 3600,
            ..rpki::Piece::default()
        };
        running.says(delta).await;
        until("both are valid", async || of(&scene, "valid").await.len() == 2).await;
        drop(running);

        // Another one begins anew, and is wrong; the next one is not.
        let wrong = Running::new(&scene.finder).await;
        let mut piece = full(1, &[(10, 65_001)]);
        piece.announced.as_mut().expect("there").ipv4.as_mut().expect("there").max_lengths = vec![7];
        wrong.says(piece).await;
        until("it is not listened to any more", async || wrong.watchers.borrow().len() > 1).await;
        assert_eq!(of(&scene, "valid").await.len(), 2, "what was said before holds on");
        wrong.watchers.borrow_mut().drain(..1);
        wrong.says(full(1, &[(10, 65_001)])).await;
        until("one is valid", async || of(&scene, "valid").await == ["10.0.0.0/8"]).await;

        // A reload may end it.
        scene.configure("bgp", configuration("a", 65_001, &[])).await.expect("taken");
        until("nothing is said of them", async || of(&scene, "not-found").await.is_empty()).await;
        assert_eq!(scene.routes("bgp").await.len(), 2);
        let shown =
            bgp.show_route(api::ShowRouteRequest { destination: "10.0.0.0/8".into() }).await.expect("shown");
        assert!(!shown.validates && shown.vrps.is_empty());
    });
}

#[test]
fn what_the_rpki_said_outlives_the_process_until_it_expires() {
    let (kept, ()) = run_until_death(async {
        let mut scene = Scene::new(Default::default());
        let door = scene.door(Node::new("transport")).await;
        scene.configure("bgp", validating()).await.expect("taken");
        let mut peer = session(&door, "a", 65_001).await;
        says(&mut peer, 11).await;
        let running = Running::new(&scene.finder).await;
        running.says(full(1, &[(10, 65_002), (11, 65_002)])).await;
        // A difference is kept, too; the beginning of one is not.
        let delta = |epoch, last, vrps: &[(u8, u32)], gone: &[(u8, u32)]| rpki::Piece {
            epoch,
            announced: records(vrps),
            withdrawn: records(gone),
            last,
            expire_seconds: 3600,
            ..rpki::Piece::default()
        };
        running.says(delta(2, true, &[(10, 65_001)], &[(10, 65_002)])).await;
        running.says(delta(3, false, &[], &[(11, 65_002)])).await;
        until("one of them is valid", async || of(&scene, "valid").await == ["10.0.0.0/8"]).await;
        std::mem::forget((running, peer));
        (scene, ())
    });
    let copy = |kept: &Kept| -> Kept {
        let copy = |(key, fd): (&String, &OwnedFd)| (key.clone(), fd.try_clone().expect("a copy"));
        kept.iter().map(copy).filter(|(key, _)| key == "rpki").collect()
    };
    let again = copy(&kept);
    run(async {
        let mut scene = Scene::new(again);
        let door = scene.door(Node::new("transport")).await;
        scene.configure("bgp", validating()).await.expect("taken");
        // Nobody has said anything to this one.
        let mut peer = session(&door, "a", 65_001).await;
        says(&mut peer, 11).await;
        until("both routes", async || scene.routes("bgp").await.len() == 2).await;
        assert_eq!(of(&scene, "valid").await, ["10.0.0.0/8"]);
        assert_eq!(of(&scene, "invalid").await, ["11.0.0.0/8"]);
        // What is said anew takes its place.
        let running = Running::new(&scene.finder).await;
        running.says(full(1, &[(11, 65_001)])).await;
        until("the other is valid", async || of(&scene, "valid").await == ["11.0.0.0/8"]).await;
        // Nothing is left when nobody validates.
        scene.configure("bgp", configuration("a", 65_001, &[])).await.expect("taken");
        until("it is given back", async || !scene.kept.borrow().contains_key("rpki")).await;
    });

    // One that was said when the machine was started, for a second.
    let mut epochs = Epochs::create().expect("memory");
    let short = rpki::Piece { expire_seconds: 1, ..full(1, &[(10, 65_001)]) };
    epochs.push(&short, 0).expect("room");
    let expired = [("rpki".to_owned(), epochs.descriptor().expect("a copy"))];
    run(async {
        let scene = Scene::new(expired.into());
        scene.configure("bgp", validating()).await.expect("taken");
        let bgp = scene.server.bgp().expect("it runs");
        assert_eq!(bgp.surroundings.validation.epoch(), None);
        until("it is given back", async || !scene.kept.borrow().contains_key("rpki")).await;
    });
}

/// Somebody who validates by what an `rpki` says, and a clock that goes on when nobody has anything to do.
fn follows(story: impl AsyncFnOnce(Finder, Rc<Validation>)) {
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime");
    LocalSet::new().block_on(&runtime, async {
        let (finder, validation) = (Finder::new(), Rc::new(Validation::default()));
        let (near, far) = Link::pair();
        finder.attach_link(far, PeerIdentity::new("bgp"));
        validation.authorizations(&Resolver::over(Channel::over(near)));
        story(finder, validation).await;
    });
}

#[test]
fn what_is_said_holds_for_its_time_whether_or_not_who_said_it_is_there() {
    follows(async |finder, validation| {
        let running = Running::new(&finder).await;
        let heard = async |epoch| until("an epoch", async || validation.epoch() == Some(epoch)).await;
        let holds_for = |seconds, piece| rpki::Piece { expire_seconds: seconds, ..piece };
        running.says(holds_for(100, full(1, &[(10, 65_001)]))).await;
        heard(1).await;
        sleep(Duration::from_secs(99)).await;
        running.says(holds_for(100, rpki::Piece { full: false, ..full(2, &[]) })).await;
        heard(2).await;
        sleep(Duration::from_secs(100)).await;
        assert_eq!(validation.counts(), (1, 0), "it was said again");
        sleep(Duration::from_secs(10)).await;
        assert_eq!((validation.counts(), validation.epoch()), ((0, 0), None), "nothing is heard");

        // What comes over that stream would be a difference to what is gone.
        until("it is asked for everything", async || running.watchers.borrow().len() == 2).await;
        running.watchers.borrow_mut().remove(0);
        running.says(holds_for(100, full(3, &[(10, 65_001), (11, 65_001)]))).await;
        heard(3).await;
        sleep(Duration::from_secs(60)).await;
        drop(running);
        sleep(Duration::from_secs(40)).await;
        assert_eq!(validation.counts(), (2, 0), "it holds on");
        sleep(Duration::from_secs(10)).await;
        assert_eq!(
            (validation.counts(), validation.epoch()),
            ((0, 0), None),
            "since it was said, not since then"
        );
    });
}

#[test]
fn who_is_refused_again_and_again_is_asked_less_often() {
    follows(async |finder, _| {
        let running = Running::new(&finder).await;
        let mut wrong = full(1, &[(10, 65_001)]);
        wrong.announced.as_mut().expect("there").ipv4.as_mut().expect("there").max_lengths = vec![7];
        let begin = Instant::now();
        for _ in 0..5 {
            running.says(wrong.clone()).await;
            running.watchers.borrow_mut().clear();
        }
        assert!(begin.elapsed() >= Duration::from_secs(6), "{:?}", begin.elapsed());
    });
}
