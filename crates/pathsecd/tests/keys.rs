//! Routers' keys, as a process `rpki` tells them that a test plays, and what those who watch are told.

use std::{cell::RefCell, rc::Rc, time::Duration};

use holdfast_api::{
    pathsec::v1::{Configuration, Empty, KeyName, KeysChanged, PathSecClient},
    rpki::v1::{Piece, Records, RouterKey as Told, RpkiClient, WatchRequest},
};
use holdfast_path_validation::{Change, P256Signer, RouterKey, Validator};
use holdfast_process::{Resolver, spawn_task};
use holdfast_types::{Asn, Ski};
use holdfast_xrl::{
    Channel, Client, Finder, Handler, IncomingCall, Link, Node, PeerIdentity, ReplyStream, Service,
    ServiceInfo, XrlError,
};
use tokio::{
    runtime::Builder,
    sync::mpsc,
    task::{JoinHandle, LocalSet},
    time::{Instant, sleep, timeout},
};

use super::common::{Scene, run, signers, status};
use crate::{private_keys, rpki::follow};

/// After so long somebody waits who shall not.
const PATIENCE: Duration = Duration::from_secs(300);

/// Where pieces go to whoever watches.
type Watchers = Rc<RefCell<Vec<mpsc::UnboundedSender<Piece>>>>;

/// A process `rpki` that says what the test says, to all who ask before.
struct Rpki(Watchers);

impl Service for Rpki {
    fn info(&self) -> &'static ServiceInfo {
        RpkiClient::SERVICE
    }

    fn dispatch(&self, call: IncomingCall<'_>) -> Handler {
        let watchers = Rc::clone(&self.0);
        match call.method() {
            RpkiClient::WATCH => call.streaming(|_, wanted: WatchRequest, _, mut replies| async move {
                assert_eq!(wanted, WatchRequest { vrps: false, aspas: false, router_keys: true });
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
pub(super) struct Running {
    watchers: Watchers,
    _node: Node,
}

async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !condition().await {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("never: {what}"));
}

impl Running {
    pub(super) async fn new(finder: &Finder) -> Self {
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
    pub(super) async fn says(&self, piece: Piece) {
        until("somebody watches", async || !self.watchers.borrow().is_empty()).await;
        for watcher in &*self.watchers.borrow() {
            // One that was refused has gone.
            let _ = watcher.send(piece.clone());
        }
    }
}

/// A process that follows an `rpki`, and a clock that goes on when nobody has anything to do.
pub(super) fn follows(story: impl AsyncFnOnce(Finder, Scene)) {
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime");
    LocalSet::new().block_on(&runtime, async {
        let (finder, scene) = (Finder::new(), Scene::new(1, Validator::default()));
        let (near, far) = Link::pair();
        finder.attach_link(far, PeerIdentity::new("pathsec"));
        let following = follow(Rc::clone(&scene.pathsec), Resolver::over(Channel::over(near)));
        let following = [spawn_task(following), spawn_task(private_keys::follow(Rc::clone(&scene.pathsec)))];
        story(finder, scene).await;
        following.iter().for_each(JoinHandle::abort);
    });
}

/// The key of an AS; two of one AS with the same `ski` are of one name.
fn key(asn: u32, ski: u8, spki: u8) -> RouterKey {
    RouterKey { asn: Asn(asn), ski: Ski([ski; 20]), spki: vec![spki] }
}

fn records(keys: &[RouterKey]) -> Option<Records> {
    let told = |key: &RouterKey| Told { asn: key.asn.0, ski: key.ski.0.to_vec(), spki: key.spki.clone() };
    Some(Records { router_keys: keys.iter().map(told).collect(), ..Records::default() })
}

pub(super) fn full(epoch: u64, keys: &[RouterKey]) -> Piece {
    let announced = records(keys);
    Piece { epoch, full: true, announced, last: true, expire_seconds: 3600, ..Piece::default() }
}

pub(super) fn delta(epoch: u64, announced: &[RouterKey], withdrawn: &[RouterKey]) -> Piece {
    let (announced, withdrawn) = (records(announced), records(withdrawn));
    Piece { epoch, announced, withdrawn, last: true, expire_seconds: 3600, ..Piece::default() }
}

fn names(keys: &[RouterKey]) -> Vec<KeyName> {
    keys.iter().map(|key| KeyName { asn: key.asn.0, ski: key.ski.0.to_vec() }).collect()
}

fn changed(epoch: u64, added: &[RouterKey], removed: &[RouterKey]) -> KeysChanged {
    let (added, removed) = (names(added), names(removed));
    KeysChanged { epoch, added, removed, known: true, ..KeysChanged::default() }
}

/// Keys that have expired are gone.
fn lapsed(epoch: u64, keys: &[RouterKey]) -> KeysChanged {
    KeysChanged { lapsed: true, ..changed(epoch, &[], keys) }
}

fn all(epoch: u64, known: bool) -> KeysChanged {
    KeysChanged { epoch, all: true, known, ..KeysChanged::default() }
}

/// Without what stands for all keys.
async fn next(stream: &mut ReplyStream<KeysChanged>) -> KeysChanged {
    let changed = stream.next().await.expect("alive").expect("not the end");
    assert_eq!(changed.sum.len(), 16);
    KeysChanged { sum: Vec::new(), ..changed }
}

fn watch(scene: &Scene) -> (PathSecClient, ReplyStream<KeysChanged>) {
    let bgp = scene.caller("bgp");
    let stream = bgp.watch(Empty {});
    (bgp, stream)
}

#[test]
fn an_epoch_takes_effect_as_a_whole_and_a_full_one_as_its_difference() {
    follows(async |finder, scene| {
        let (bgp, mut watch) = watch(&scene);
        assert_eq!(next(&mut watch).await, all(0, false));
        let [a, b, c, d] = [1, 2, 3, 4].map(|asn| key(asn, 9, 9));
        let running = Running::new(&finder).await;
        running.says(Piece { last: false, ..full(1, std::slice::from_ref(&a)) }).await;
        sleep(Duration::from_secs(1)).await;
        assert_eq!(status(&bgp).await.router_keys, 0, "half of an epoch is none");
        running.says(full(1, &[b.clone(), c.clone()])).await;
        assert_eq!(next(&mut watch).await, changed(1, &[a.clone(), b.clone(), c.clone()], &[]));
        running.says(delta(2, std::slice::from_ref(&d), std::slice::from_ref(&b))).await;
        assert_eq!(next(&mut watch).await, changed(2, std::slice::from_ref(&d), std::slice::from_ref(&b)));
        // It holds on, and there are only VRPs that are new.
        running.says(delta(3, &[], &[])).await;
        drop(running);

        // The next `rpki` says everything; what is the same stays, and nobody hears of it.
        let again = Running::new(&finder).await;
        again.says(full(1, &[d.clone(), c.clone(), a.clone()])).await;
        again.says(delta(2, &[], std::slice::from_ref(&c))).await;
        assert_eq!(next(&mut watch).await, changed(3, &[], std::slice::from_ref(&c)));
        drop(again);
        let last = Running::new(&finder).await;
        last.says(full(1, &[a.clone(), b.clone()])).await;
        assert_eq!(next(&mut watch).await, changed(4, &[b], &[d]));
        assert_eq!(status(&bgp).await.router_keys, 2);
        let (_late, mut late) = self::watch(&scene);
        assert_eq!(next(&mut late).await, all(4, true));
    });
}

#[test]
fn keys_of_a_false_name_are_refused_and_counted_and_can_be_withdrawn() {
    follows(async |finder, scene| {
        let (bgp, mut watch) = watch(&scene);
        next(&mut watch).await;
        let keys: Vec<_> = signers([1, 1, 2]).iter().map(P256Signer::router_key).collect();
        // The second one claims the name of the first one.
        let false_name = RouterKey { ski: keys[0].ski, ..keys[1].clone() };
        let running = Running::new(&finder).await;
        running.says(full(1, &[keys[0].clone(), false_name.clone()])).await;
        assert_eq!(next(&mut watch).await, changed(1, &keys[..1], &[]));
        let known = status(&bgp).await;
        assert_eq!((known.router_keys, known.refused_keys), (1, 1));
        running.says(delta(2, &keys[2..], std::slice::from_ref(&false_name))).await;
        assert_eq!(next(&mut watch).await, changed(2, &keys[2..], &[]));
        running.says(delta(3, std::slice::from_ref(&false_name), &keys[2..])).await;
        assert_eq!(next(&mut watch).await, changed(3, &[], &keys[2..]));
        let known = status(&bgp).await;
        assert_eq!((known.router_keys, known.refused_keys), (1, 2));
        // Of other forms a name has eight.
        let many: Vec<_> = (0..12).map(|octet| key(3, 1, octet)).collect();
        running.says(delta(4, &many, &[])).await;
        next(&mut watch).await;
        let known = status(&bgp).await;
        assert_eq!((known.router_keys, known.refused_keys), (9, 6));
    });
}

#[test]
fn an_empty_table_is_known_once_it_was_said() {
    follows(async |finder, scene| {
        let (bgp, mut watch) = watch(&scene);
        assert_eq!(next(&mut watch).await, all(0, false));
        let running = Running::new(&finder).await;
        running.says(full(1, &[])).await;
        assert_eq!(next(&mut watch).await, changed(0, &[], &[]));
        assert!(status(&bgp).await.known);
    });
}

#[test]
fn keys_hold_for_their_time_whether_or_not_who_said_them_is_there() {
    follows(async |finder, scene| {
        let (_bgp, mut watch) = watch(&scene);
        next(&mut watch).await;
        let holds_for = |seconds, piece| Piece { expire_seconds: seconds, ..piece };
        let keys = [key(1, 1, 1), key(2, 2, 2)];
        let running = Running::new(&finder).await;
        running.says(holds_for(100, full(1, &keys))).await;
        assert_eq!(next(&mut watch).await, changed(1, &keys, &[]));
        sleep(Duration::from_secs(99)).await;
        running.says(holds_for(100, delta(2, &[], &[]))).await;
        let begin = Instant::now();
        assert_eq!(next(&mut watch).await, lapsed(2, &keys[..1]), "nothing more was heard");
        assert!((106..108).contains(&begin.elapsed().as_secs()), "{:?}", begin.elapsed());
        assert_eq!(next(&mut watch).await, lapsed(3, &keys[1..]), "in slices");
        assert!((107..109).contains(&begin.elapsed().as_secs()), "{:?}", begin.elapsed());

        // What comes over that stream would be a difference to what is gone.
        until("it is asked for everything", async || running.watchers.borrow().len() == 2).await;
        running.watchers.borrow_mut().remove(0);
        running.says(holds_for(100, full(3, &keys))).await;
        assert_eq!(next(&mut watch).await, changed(4, &keys, &[]));
        sleep(Duration::from_secs(60)).await;
        drop(running);
        let begin = Instant::now();
        let gone = lapsed(5, &keys[..1]);
        assert_eq!(next(&mut watch).await, gone, "since it was said, not since then");
        assert!((45..48).contains(&begin.elapsed().as_secs()), "{:?}", begin.elapsed());
    });
}

#[test]
fn so_many_keys_of_a_name_are_taken_as_the_configuration_says() {
    follows(async |finder, scene| {
        let (bgp, mut watch) = watch(&scene);
        next(&mut watch).await;
        let keys: Vec<_> = (0..12).map(|spki| key(1, 1, spki)).collect();
        let running = Running::new(&finder).await;
        running.says(full(1, &keys)).await;
        next(&mut watch).await;
        let counts = async || {
            let status = status(&bgp).await;
            (status.router_keys, status.refused_keys)
        };
        assert_eq!(counts().await, (8, 4), "by default");
        for (keys_per_ski, taken) in [(2, 2), (10, 10), (0, 8)] {
            let refused = counts().await.1;
            scene.pathsec.keys.configure(&Configuration { keys_per_ski, ..Configuration::default() });
            until("it is asked for everything", async || running.watchers.borrow().len() == 2).await;
            // The stream before has nobody behind it.
            running.watchers.borrow_mut().remove(0);
            running.says(full(1, &keys)).await;
            let change = next(&mut watch).await;
            assert_eq!(change.removed.is_empty(), taken == 10, "{change:?}");
            assert_eq!(counts().await, (taken, refused + 12 - taken));
        }
        // The same once more asks nobody.
        scene.pathsec.keys.configure(&Configuration::default());
        sleep(Duration::from_secs(10)).await;
        assert_eq!(running.watchers.borrow().len(), 1);
    });
}

#[test]
fn what_has_expired_at_rpki_leaves_in_slices_and_stays_if_it_comes_back() {
    follows(async |finder, scene| {
        let (bgp, mut watch) = watch(&scene);
        next(&mut watch).await;
        let keys: Vec<_> = (0..180).map(|asn| key(asn, 1, 1)).collect();
        let running = Running::new(&finder).await;
        running.says(full(1, &keys)).await;
        next(&mut watch).await;
        let expired = |piece| Piece { expired: true, expire_seconds: u32::MAX, ..piece };
        running.says(expired(delta(2, &[], &keys))).await;
        for slice in keys.chunks(3).take(20) {
            let change = next(&mut watch).await;
            assert_eq!((change.removed, change.lapsed), (names(slice), true));
        }
        running.says(delta(3, &keys, &[])).await;
        let change = next(&mut watch).await;
        assert_eq!((change.added, change.lapsed), (names(&keys[..60]), false));
        sleep(Duration::from_secs(100)).await;
        assert_eq!(status(&bgp).await.router_keys, 180);

        // The same of a watcher who has lost its place.
        running.says(expired(full(4, &keys[..60]))).await;
        assert_eq!(next(&mut watch).await.removed.len(), 2);
        running.says(full(5, &keys[..30])).await;
        assert_eq!(next(&mut watch).await.removed.len(), 3, "nobody says which of the 148 have expired");
        while status(&bgp).await.router_keys > 30 {
            next(&mut watch).await;
        }
        sleep(Duration::from_secs(100)).await;
        assert_eq!(status(&bgp).await.router_keys, 30);

        // What a cache withdraws leaves at once.
        running.says(full(6, &keys[..10])).await;
        let change = next(&mut watch).await;
        assert_eq!((change.removed.len(), change.lapsed), (20, false));
    });
}

#[test]
fn what_makes_no_sense_is_refused_and_asked_for_again() {
    follows(async |finder, scene| {
        let (bgp, mut watch) = watch(&scene);
        next(&mut watch).await;
        let running = Running::new(&finder).await;
        running.says(full(1, &[key(1, 1, 1)])).await;
        next(&mut watch).await;
        let mut wrong = delta(2, &[key(2, 2, 2), key(3, 3, 3)], &[]);
        wrong.announced.as_mut().expect("there").router_keys[1].ski.pop();
        let begin = Instant::now();
        for _ in 0..5 {
            running.says(wrong.clone()).await;
            running.watchers.borrow_mut().clear();
        }
        running.says(full(3, &[key(1, 1, 1), key(4, 4, 4)])).await;
        assert!(begin.elapsed() >= Duration::from_secs(6), "less and less often: {:?}", begin.elapsed());
        assert_eq!(next(&mut watch).await, changed(2, &[key(4, 4, 4)], &[]), "nothing of what was refused");
        assert_eq!(status(&bgp).await.router_keys, 2);
    });
}

#[test]
fn names_are_told_for_which_keys_have_come_or_gone() {
    run(async {
        let scene = Scene::new(1, Validator::default());
        let (_bgp, mut watch) = watch(&scene);
        next(&mut watch).await;
        scene.announce([key(1, 1, 1)]).await;
        assert_eq!(next(&mut watch).await, changed(1, &[key(1, 1, 1)], &[]));
        scene.announce([key(1, 1, 1)]).await;
        // Another key of the same name beside it, then in its place.
        scene.announce([key(1, 1, 2)]).await;
        assert_eq!(next(&mut watch).await, changed(2, &[key(1, 1, 2)], &[]), "none for the duplicate");
        scene.change([Change::Withdraw(key(1, 1, 1)), Change::Announce(key(1, 1, 3))]).await;
        let name = [key(1, 1, 1)];
        assert_eq!(next(&mut watch).await, changed(3, &name, &name));
        scene.change([Change::Withdraw(key(1, 1, 3)), Change::Announce(key(1, 1, 3))]).await;
        assert_eq!(next(&mut watch).await, changed(4, &[], &[]), "gone and come in one change");
        scene.change([Change::Withdraw(key(5, 5, 5))]).await;
        scene.change([Change::Withdraw(key(1, 1, 2))]).await;
        assert_eq!(next(&mut watch).await, changed(5, &[], &name), "none for what was not there");
    });
}

#[test]
fn a_watcher_that_is_too_slow_is_told_that_all_may_have_changed() {
    run(async {
        let scene = Scene::new(1, Validator::default());
        let (bgp, mut slow) = watch(&scene);
        next(&mut slow).await;
        // 2,000 names each, of which those fit into the log that are the last 32.
        for change in 0..60 {
            scene.announce((0..2000).map(|asn| key(asn, change, 1))).await;
            // Whoever reads hears of each.
            status(&bgp).await;
        }
        let mut epochs = Vec::new();
        let all = loop {
            match next(&mut slow).await {
                KeysChanged { all: false, epoch, .. } => epochs.push(epoch),
                all => break all,
            }
        };
        assert_eq!((all.epoch, all.added.len(), all.known), (60, 0, true));
        assert!(epochs.len() < 60 - 32 && epochs.iter().copied().eq(1..=epochs.len() as u64), "{epochs:?}");
        scene.announce([key(1, 99, 1)]).await;
        assert_eq!(next(&mut slow).await, changed(61, &[key(1, 99, 1)], &[]), "then each change again");

        // One of so many names is told like that to everybody.
        scene.announce((0..70_000).map(|asn| key(asn, 100, 1))).await;
        assert_eq!(next(&mut slow).await, self::all(62, true));
    });
}
