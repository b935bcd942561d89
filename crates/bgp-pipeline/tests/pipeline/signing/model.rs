//! Random UPDATEs, sessions, keys and signatures in random order: at rest every peer has what a router that has just started
//! would tell it, and on the way nobody is told of a path that is gone.

use std::collections::BTreeSet;

use holdfast_bgp_pipeline::JournalEntry;
use holdfast_policy::{Action, Prepend, PrependAs, Program};

use super::*;
use crate::tests::pipeline::journal::Entries;

/// The first three bring routes.
const SOURCES: usize = 3;
const PEERS: usize = 10;
const ROUTES: u8 = 5;
/// Two keys of ours, and which of them there are.
const KEYS: u8 = 4;
/// An AS with several peers, one of which is a source; and what some of them may say in place of it.
const SHARED: u8 = 50;
const OTHER_TARGET: Asn = Asn(64777);
/// The origins of paths, each of which is another.
const ORIGINS: u32 = 100_000;

#[derive(Clone, Debug)]
enum Step {
    Signed(usize, u8),
    Unsigned(usize, u8),
    Withdraw(usize, u8),
    Originate(u8, bool),
    /// Its session ends and begins; with the one AS in its OPEN, or with the other one.
    Session(usize, bool),
    /// Paths to the peer are prepended once more, or not.
    Prepend(usize, bool),
    Refresh(usize),
    Keys(u8),
    Ask(u8),
    /// Of those under way one is answered. Without its key, if that is not there any more, there is no signature.
    Answer(u8),
    Lose,
    Pull(usize),
    /// All are told what can be told; nobody signs.
    Tell,
    Work,
    Time(u8),
    /// Another process goes on.
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let (source, peer, route) = (0..SOURCES, 0..PEERS, 0..ROUTES);
    prop_oneof![
        8 => (source.clone(), route.clone()).prop_map(|(source, route)| Step::Signed(source, route)),
        2 => (source.clone(), route.clone()).prop_map(|(source, route)| Step::Unsigned(source, route)),
        4 => (source, route.clone()).prop_map(|(source, route)| Step::Withdraw(source, route)),
        2 => (route, any::<bool>()).prop_map(|(route, is_there)| Step::Originate(route, is_there)),
        2 => (peer.clone(), any::<bool>()).prop_map(|(peer, is_other)| Step::Session(peer, is_other)),
        1 => (peer.clone(), any::<bool>()).prop_map(|(peer, prepends)| Step::Prepend(peer, prepends)),
        2 => peer.clone().prop_map(Step::Refresh),
        2 => (0..KEYS).prop_map(Step::Keys),
        5 => (1..6_u8).prop_map(Step::Ask),
        8 => any::<u8>().prop_map(Step::Answer),
        1 => Just(Step::Lose),
        16 => peer.prop_map(Step::Pull),
        4 => Just(Step::Tell),
        4 => Just(Step::Work),
        2 => (0..9_u8).prop_map(Step::Time),
        1 => Just(Step::Restart),
    ]
}

fn route(n: u8) -> Prefix {
    match n {
        4 => prefix("2001:db8:7::/48"),
        n => prefix(&format!("10.0.{n}.0/24")),
    }
}

fn keys(which: u8) -> Vec<Signer> {
    match which {
        0 => vec![],
        3 => vec![Signer { suite: 2, ..signer(OUR_AS) }, next_signer()],
        2 => vec![next_signer()],
        _ => vec![signer(OUR_AS)],
    }
}

fn config(peer: usize, prepends: bool) -> PeerConfig {
    let n = peer as u8;
    let usual =
        PeerConfig { asn: asn(if peer == 1 || peer == 3 || peer == 4 { SHARED } else { n }), ..ebgp(n) };
    let prepend = Action::Prepend(Prepend { asn: PrependAs::Own, count: 1 });
    let export = prepends.then(|| changing(vec![prepend])).or(Some(Program::accept_all()));
    let view = PathRules { route_server_client: true, own_view: true, ..PathRules::default() };
    match peer {
        7 => ibgp(n),
        8 | 9 => PeerConfig { export, ..with(usual, view) },
        _ => PeerConfig { export, ..usual },
    }
}

/// The third source and one more have not agreed on BGPsec, one is told of it for IPv4 alone, and two are sent several paths.
fn link(peer: usize, is_other: bool) -> SessionFacts {
    let n = peer as u8;
    let config = config(peer, false);
    let facts = secured(n, &config, None);
    let sent = facts.bgpsec_sent.filter(|_| ![2, 6].contains(&peer));
    let sent = sent.map(|sent| SignedFor {
        target: if is_other && peer != 7 { OTHER_TARGET } else { sent.target },
        families: if peer == 4 { [Family::IPV4_UNICAST].into_iter().collect() } else { sent.families },
    });
    SessionFacts {
        bgpsec_sent: sent,
        bgpsec_received: facts.bgpsec_received.filter(|_| peer != 2),
        identifiers_sent: if [5, 9].contains(&peer) { all_families() } else { FamilySet::NONE },
        enhanced_refresh: peer.is_multiple_of(2),
        next_hop_v4: Some([10, 9, n, 1].into()),
        ..facts
    }
}

/// A route without what is another each time: signatures of ours.
type Essence = (Vec<u8>, std::net::IpAddr, Option<Vec<(Segment, Vec<(u8, Ski, Vec<u8>)>)>>);

fn essence(held: &Held) -> Essence {
    let others = Attributes(&held.attributes).iter().filter(|attribute| attribute.code != code::BGPSEC_PATH);
    let path = attribute(held, code::BGPSEC_PATH).map(|path| {
        if path.is_empty() {
            // It starts in our AS, and came to a peer there.
            return Vec::new();
        }
        let path = Path::parse(&path).expect("sound");
        let hop = |(hop, segment)| {
            let signatures = path.blocks().map(|block| {
                let signature = block.signatures().nth(hop).expect("one for each segment");
                (block.suite, signature.ski, signature.octets[..8].to_vec())
            });
            (segment, signatures.collect())
        };
        path.segments().enumerate().map(hop).collect()
    });
    (others.flat_map(|attribute| attribute.wire.to_vec()).collect(), held.next_hop, path)
}

/// From whom outside a path has come; `None`: it is ours.
fn origin(held: &Held) -> Option<u32> {
    let path = held.path();
    path.split(' ').next_back()?.parse().ok().filter(|origin| *origin >= ORIGINS)
}

struct World {
    router: Router,
    limits: Limits,
    journal: Entries,
    peers: Vec<PeerIndex>,
    /// What each source has announced, and over which origin.
    said: BTreeMap<(usize, u8), (u32, Vec<u8>)>,
    own: BTreeSet<u8>,
    is_other: [bool; PEERS],
    prepends: [bool; PEERS],
    keys: u8,
    under_way: Vec<SigningJob>,
    next: u32,
    at: usize,
    /// When a path has gone, and when a peer had last been told everything.
    gone: BTreeMap<u32, usize>,
    quiet: [usize; PEERS],
    /// Peers that have asked for everything, and may not have been answered.
    asking: [bool; PEERS],
}

impl World {
    fn new(is_tight: bool) -> Self {
        let tight = Limits { log: 8, window: 3, shared_bytes: 100, withdrawn: 1000, unacknowledged: 1000 };
        let limits = if is_tight { tight } else { Limits::default() };
        let mut world = Self {
            router: Router::without_keys(SpeakerConfig { limits, ..always() }, Store::of(12)),
            limits,
            journal: Entries::default(),
            peers: Vec::new(),
            said: BTreeMap::new(),
            own: BTreeSet::new(),
            is_other: [false; PEERS],
            prepends: [false; PEERS],
            keys: 1,
            under_way: Vec::new(),
            next: ORIGINS,
            at: 0,
            gone: BTreeMap::new(),
            quiet: [0; PEERS],
            asking: [false; PEERS],
        };
        world.router.pipeline.keep_journal(Box::new(world.journal.clone()));
        world.peers = (0..PEERS).map(|peer| world.router.pipeline.add_peer(config(peer, false))).collect();
        (0..PEERS).for_each(|peer| world.session(peer));
        world
    }

    fn session(&mut self, peer: usize) {
        self.router.session(self.peers[peer], link(peer, self.is_other[peer]));
        (self.quiet[peer], self.asking[peer]) = (0, false);
    }

    /// What a source has said of a route counts no more.
    fn forget(&mut self, source: usize, route: u8) {
        if let Some((origin, _)) = self.said.remove(&(source, route)) {
            self.gone.insert(origin, self.at);
        }
    }

    fn announce(&mut self, source: usize, to: u8, is_signed: bool) {
        let behind = [Asn(self.next), config(source, false).asn];
        let signed = || signed_path(&behind.map(|asn| plain_segment(asn.0)), OUR_AS, route(to), &[1]);
        let update = match is_signed && source != 2 {
            true => update_by(false, Some(&signed()), None, route(to)),
            false => announcement_by(source as u8, &behind, route(to)),
        };
        self.forget(source, to);
        self.router.take(self.peers[source], &update);
        self.said.insert((source, to), (self.next, update));
        self.next += 1;
    }

    fn pull(&mut self, peer: usize) {
        let index = self.peers[peer];
        let at = self.router.sinks.iter().position(|(other, _)| *other == index).expect("it is up");
        let held = |sink: &Sink| sink.routes.values().chain(sink.paths.values()).filter_map(origin).collect();
        let had: BTreeSet<u32> = held(&self.router.sinks[at].1);
        if let Some(messages) = self.router.pipeline.pull(index) {
            self.router.sinks[at].1.take(&messages);
        }
        let has: BTreeSet<u32> = held(&self.router.sinks[at].1);
        for told in has.difference(&had) {
            let gone = self.gone.get(told).copied().unwrap_or(usize::MAX);
            assert!(gone > self.quiet[peer], "peer {peer} is told of {told}, which has gone long ago");
        }
        if !self.router.pipeline.pending(index) {
            self.quiet[peer] = self.at;
        }
        self.asking[peer] &= self.router.pipeline.is_announcing_again(index);
    }

    fn tell(&mut self) {
        let is_pending = |world: &Self| world.peers.iter().any(|peer| world.router.pipeline.pending(*peer));
        for _ in 0..1000 {
            let works = self.router.pipeline.work(100);
            (0..PEERS).for_each(|peer| self.pull(peer));
            if !works && !is_pending(self) {
                return;
            }
        }
        panic!("never quiet");
    }

    fn answer(&mut self, which: u8) {
        if self.under_way.is_empty() {
            return;
        }
        let job = self.under_way.swap_remove(usize::from(which) % self.under_way.len());
        let is_there =
            keys(self.keys).iter().any(|signer| signer.ski == job.ski && signer.suite == job.suite);
        match is_there {
            true => self.router.sign(&job),
            false => self.router.pipeline.signed(job.number, &[]),
        }
    }

    fn restart(&mut self) {
        let pipeline = &self.router.pipeline;
        let first: Vec<_> = self.peers.iter().map(|peer| pipeline.first_identifier(*peer)).collect();
        let mut places: BTreeMap<JournalEntry, Vec<PeerIndex>> = BTreeMap::new();
        for peer in &self.peers {
            places.entry(pipeline.journal_place(*peer)).or_default().push(*peer);
        }
        let (store, now) = (self.router.store.recovered(), self.router.now);
        let mut next = Router::without_keys(SpeakerConfig { limits: self.limits, ..always() }, store);
        next.pipeline.keep_journal(Box::new(self.journal.clone()));
        next.pipeline.set_now(now);
        (next.now, next.sinks, next.toy.made) =
            (now, std::mem::take(&mut self.router.sinks), 1000 + self.router.toy.made);
        for (peer, first_identifier) in first.into_iter().enumerate() {
            let index = next.pipeline.add_peer(config(peer, self.prepends[peer]));
            let facts = SessionFacts { first_identifier, ..link(peer, self.is_other[peer]) };
            next.pipeline.peer_resumed(index, facts).expect("room");
        }
        self.router = next;
        self.feed();
        self.under_way.clear();
        for (place, peers) in places {
            self.router.pipeline.resume(&peers, self.journal.told(place), place);
        }
        self.quiet = [0; PEERS];
        // What has been asked for and not been answered is asked for again: who keeps the sessions knows.
        for peer in (0..PEERS).filter(|peer| self.asking[*peer]) {
            let pipeline = &mut self.router.pipeline;
            Family::ALL.into_iter().for_each(|family| pipeline.announce_again(self.peers[peer], family));
        }
    }

    /// A peer asks for everything. One that is not told where the answer ends has nothing of what it had.
    fn refresh(&mut self, peer: usize) {
        let index = self.peers[peer];
        let enhanced = link(peer, self.is_other[peer]).enhanced_refresh;
        self.asking[peer] = true;
        for family in Family::ALL {
            let sink = self.router.sinks.iter_mut().find(|(other, _)| *other == index);
            sink.into_iter().filter(|_| !enhanced).for_each(|(_, sink)| sink.ask(family));
            self.router.pipeline.route_refresh(index, family);
        }
    }

    /// The whole table comes anew.
    fn feed(&mut self) {
        for ((source, _), (_, update)) in &self.said {
            self.router.pipeline.update(self.peers[*source], update).expect("taken");
        }
        for to in &self.own {
            self.router.pipeline.originate(route(*to), &OriginateAttributes::default());
        }
        while self.router.pipeline.work(100) || self.router.pipeline.is_waiting() {}
    }

    fn run(&mut self, step: &Step) {
        self.at += 1;
        match *step {
            Step::Signed(source, to) => self.announce(source, to, true),
            Step::Unsigned(source, to) => self.announce(source, to, false),
            Step::Withdraw(source, to) => {
                self.forget(source, to);
                self.router.take(self.peers[source], &withdrawal(route(to)));
            }
            Step::Originate(to, true) => {
                self.own.insert(to);
                self.router.pipeline.originate(route(to), &OriginateAttributes::default());
            }
            Step::Originate(to, false) => {
                self.own.remove(&to);
                self.router.pipeline.withdraw_origin(route(to));
            }
            Step::Session(peer, is_other) => {
                self.is_other[peer] = is_other;
                self.router.pipeline.peer_down(self.peers[peer]);
                // They go when a walk over the table comes by.
                self.said.retain(|(source, _), _| *source != peer);
                self.session(peer);
            }
            Step::Prepend(peer, prepends) => {
                self.prepends[peer] = prepends;
                self.router.pipeline.configure_peer(self.peers[peer], config(peer, prepends));
            }
            Step::Refresh(peer) => self.refresh(peer),
            Step::Keys(which) => {
                self.keys = which;
                self.router.pipeline.set_signers(keys(which));
            }
            Step::Ask(count) => {
                let jobs = (0..count).map_while(|_| self.router.pipeline.poll_to_sign());
                self.under_way.extend(jobs);
            }
            Step::Answer(which) => self.answer(which),
            Step::Lose => self.router.pipeline.signing_lost(),
            Step::Pull(peer) => self.pull(peer),
            Step::Tell => self.tell(),
            Step::Work => {
                self.router.pipeline.work(3);
            }
            Step::Time(seconds) => {
                self.router.now += Duration::from_secs(seconds.into());
                self.router.pipeline.set_now(self.router.now);
            }
            Step::Restart => self.restart(),
        }
    }

    /// What a router that has just started would tell.
    fn fresh(&self) -> Router {
        let mut world = Self::new(false);
        for peer in 0..PEERS {
            (world.is_other[peer], world.prepends[peer]) = (self.is_other[peer], self.prepends[peer]);
            world.router.pipeline.configure_peer(world.peers[peer], config(peer, self.prepends[peer]));
            world.session(peer);
        }
        (world.said, world.own) = (self.said.clone(), self.own.clone());
        world.feed();
        world.router.pipeline.set_signers(keys(self.keys));
        world.router.settle();
        world.router
    }

    /// Everything is answered and told.
    fn check(&mut self) {
        self.router.pipeline.set_signers(keys(self.keys));
        while !self.under_way.is_empty() {
            self.answer(0);
        }
        self.router.settle();
        let fresh = self.fresh();
        for (peer, index) in self.peers.iter().enumerate() {
            let held = |router: &Router| -> BTreeMap<Prefix, BTreeSet<String>> {
                let all = router.sink(*index).held().into_iter();
                all.map(|(to, held)| (to, held.iter().map(|held| format!("{:?}", essence(held))).collect()))
                    .collect()
            };
            let sink = self.router.sink(*index);
            assert_eq!(held(&self.router), held(&fresh), "peer {peer}");
            let target = link(peer, self.is_other[peer]).bgpsec_sent.map(|sent| sent.target);
            let all = sink.held();
            for (to, held) in all.iter().flat_map(|(to, held)| held.iter().map(move |held| (*to, held))) {
                let path = attribute(held, code::BGPSEC_PATH).filter(|path| !path.is_empty());
                assert!(
                    path.is_none_or(|path| is_good(&path, target.expect("it was agreed on"), to)),
                    "peer {peer}"
                );
            }
            assert!(Family::ALL.iter().all(|family| sink.end_of_rib.contains(family)), "peer {peer}");
            assert_eq!(
                self.router.announced(*index),
                all.values().map(Vec::len).sum::<usize>(),
                "peer {peer}"
            );
            assert!(sink.is_answered(), "peer {peer}: {sink:?}");
            assert!(!self.router.pipeline.is_announcing_again(*index), "peer {peer}");
            assert!(!self.router.pipeline.pending(*index), "peer {peer}");
        }
        assert_eq!(self.router.pipeline.signing_counts().waiting, 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 2000, ..holdfast_testing::cases(200) })]

    #[test]
    fn at_rest_every_peer_has_what_a_fresh_router_tells_and_nothing_gone_was_told(
        [is_tight, knows_keys] in any::<[bool; 2]>(),
        steps in prop::collection::vec(step(), 1..150),
    ) {
        let mut world = World::new(is_tight);
        if knows_keys {
            world.router.pipeline.set_signers(keys(world.keys));
        }
        steps.iter().for_each(|step| world.run(step));
        world.check();
    }
}
