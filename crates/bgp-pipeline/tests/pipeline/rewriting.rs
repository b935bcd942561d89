//! Stages that rewrite, in each of the four slots.

use std::{collections::BTreeMap, net::IpAddr};

use holdfast_bgp_pipeline::{
    Answer, Event, Offered, OriginateAttributes, PathState, PeerConfig, PeerIndex, Pipeline, Receiver,
    Replacement, Rewriter, RibChanges, Slot,
};
use holdfast_bgp_wire::{
    Attributes,
    edit::{Edit, Values, rewrite},
};
use holdfast_policy::{Action, CommunityPattern, Condition, Outcome, Program, Term};
use holdfast_types::{Asn, Family, Ipv4Prefix, Prefix};
use proptest::prelude::*;

use crate::tests::pipeline::{
    behaviour::{always, attributes, up},
    policies::program,
    speaker::{
        Held, Sink, address, announcement, checked, ebgp, facts, frozen, prefix, settle, thaw, withdrawal,
    },
};

/// What a mark of a slot begins with, and what asks for a refusal there.
const MARK: u32 = 65000 << 16;
const REFUSE: u32 = 65099 << 16;

fn mark(slot: Slot) -> u32 {
    MARK + slot as u32
}

fn refusal(slot: Slot) -> u32 {
    REFUSE + slot as u32
}

/// The offered attributes with a community.
fn with(offered: &Offered<'_>, community: u32) -> Replacement {
    let communities = Values { add: &[community], ..Values::default() };
    let mut attributes = Vec::new();
    rewrite(offered.attributes.0, &Edit { communities, ..Edit::default() }, &mut attributes);
    Replacement { attributes, ..Replacement::default() }
}

/// Adds the mark of its slot, and before the RIB has the tag say how many marks there are; refuses what asks for it.
#[derive(Debug)]
struct Marks;

impl Rewriter for Marks {
    fn rewrite(&mut self, set: &Offered<'_>) -> Answer {
        let has = |wanted| set.attributes.communities().any(|value| value == wanted);
        if has(refusal(set.slot)) {
            return Answer::Refused;
        }
        let marks = Slot::ALL.into_iter().filter(|slot| has(mark(*slot))).count() as u32;
        let tag = (set.slot == Slot::BeforeRib).then_some(marks + 1);
        Answer::Replaced(Replacement { tag, ..with(set, mark(set.slot)) })
    }

    fn describe(&self) -> String {
        "marks".into()
    }
}

fn marked() -> Pipeline {
    let mut pipeline = checked(always());
    Slot::ALL.into_iter().for_each(|slot| pipeline.add_rewriter(slot, Box::new(Marks)));
    pipeline
}

/// What the RIB has.
#[derive(Debug, Default)]
struct Rib(BTreeMap<Prefix, u32>);

impl Rib {
    fn follow(&mut self, pipeline: &mut Pipeline) {
        while let Some(changes) = pipeline.pull_rib(16) {
            self.take(&changes);
        }
    }

    fn take(&mut self, changes: &RibChanges) {
        let said = changes.runs.iter().flat_map(|run| std::iter::repeat_n(run, run.routes as usize));
        for ((octets, length), run) in changes.addresses.chunks(4).zip(&changes.lengths).zip(said) {
            let bits = u32::from_be_bytes(octets.try_into().expect("IPv4"));
            let prefix = Ipv4Prefix::new(bits.into(), *length).expect("a prefix").into();
            match run.next_hops {
                0 => drop(self.0.remove(&prefix)),
                _ => drop(self.0.insert(prefix, run.tag)),
            }
        }
    }
}

fn communities(held: &Held) -> Vec<u32> {
    Attributes(&held.attributes).communities().collect()
}

fn route() -> Prefix {
    prefix("203.0.113.0/24")
}

fn send(pipeline: &mut Pipeline, from: PeerIndex, communities: &[u32]) {
    pipeline.update(from, &announcement(&attributes(1, communities), &[route()])).expect("taken");
}

#[test]
fn each_slot_is_behind_the_one_before_and_before_its_policy() {
    let mut pipeline = marked();
    pipeline.rib_resync();
    // Policies that see the mark of the slot in front of them add a sign of their own.
    let seen = |slot: Slot, sign: u32| -> Program {
        let text = format!("{}:{}", mark(slot) >> 16, mark(slot) & 0xffff);
        let pattern: CommunityPattern = text.parse().expect("a pattern");
        let then = vec![Action::AddCommunities(vec![format!("1:{sign}").parse().expect("a community")])];
        let from = vec![Condition::Community(vec![pattern])];
        program(vec![Term { name: "seen".into(), from, then, outcome: Outcome::Accept }])
    };
    let config = PeerConfig { import: Some(seen(Slot::BeforeImport, 1)), ..ebgp(1) };
    let from = pipeline.add_peer(config);
    pipeline.peer_up(from, facts(1)).expect("room");
    let to = pipeline.add_peer(PeerConfig { export: Some(seen(Slot::BeforeExport, 2)), ..ebgp(2) });
    pipeline.peer_up(to, facts(2)).expect("room");
    let (mut sinks, mut rib) = ([(to, Sink::default())], Rib::default());
    send(&mut pipeline, from, &[]);
    settle(&mut pipeline, &mut sinks);
    rib.follow(&mut pipeline);
    let imported = [mark(Slot::BeforeImport), 1 << 16 | 1, mark(Slot::AfterImport)];
    let shown = &pipeline.explain(route())[0].bytes;
    assert_eq!(Attributes(shown).communities().collect::<Vec<_>>(), imported);
    let told = communities(&sinks[0].1.routes[&route()]);
    assert_eq!(told, [&imported[..], &[mark(Slot::BeforeExport), 1 << 16 | 2]].concat());
    assert_eq!(rib.0[&route()], 3, "both of import, and its own");
    assert_eq!(
        pipeline.describe_stages(),
        ["before-import: marks", "after-import: marks", "before-export: marks", "before-rib: marks"]
    );
}

#[test]
fn what_a_slot_refuses_is_withdrawn_behind_it_and_comes_back() {
    for slot in Slot::ALL {
        let mut pipeline = marked();
        pipeline.rib_resync();
        let (from, to) = (up(&mut pipeline, 1), up(&mut pipeline, 2));
        let (mut sinks, mut rib) = ([(to, Sink::default())], Rib::default());
        for refused in [false, true, false, true] {
            let asks = [refusal(slot)];
            send(&mut pipeline, from, if refused { &asks } else { &[] });
            settle(&mut pipeline, &mut sinks);
            rib.follow(&mut pipeline);
            let (at_peer, in_rib) = (!sinks[0].1.routes.is_empty(), !rib.0.is_empty());
            let wanted = match slot {
                Slot::BeforeImport | Slot::AfterImport => (!refused, !refused),
                Slot::BeforeExport => (!refused, true),
                Slot::BeforeRib => (true, !refused),
            };
            assert_eq!((at_peer, in_rib), wanted, "{slot}");
            if refused && slot == Slot::AfterImport {
                assert_eq!(pipeline.explain(route())[0].state, PathState::RefusedByStage);
            }
        }
        let idle = sinks[0].1.idle_withdrawals;
        pipeline.update(from, &withdrawal(route())).expect("taken");
        settle(&mut pipeline, &mut sinks);
        rib.follow(&mut pipeline);
        assert!(sinks[0].1.routes.is_empty() && rib.0.is_empty(), "{slot}");
        assert_eq!(idle, 0, "{slot}: nobody is told to withdraw what it does not have");
    }
}

/// Of each set it says something else each time it is asked.
#[derive(Debug, Default)]
struct Fickle(u32);

impl Rewriter for Fickle {
    fn rewrite(&mut self, set: &Offered<'_>) -> Answer {
        self.0 += 1;
        match self.0 % 5 {
            0 => Answer::Refused,
            1 => Answer::Unchanged,
            _ => Answer::Replaced(with(set, self.0)),
        }
    }

    fn describe(&self) -> String {
        "fickle".into()
    }
}

#[test]
fn receivers_are_told_apart_by_their_as_and_a_route_of_our_own_passes_too() {
    /// Adds the receiver's AS.
    #[derive(Debug)]
    struct Names;

    impl Rewriter for Names {
        fn rewrite(&mut self, set: &Offered<'_>) -> Answer {
            let Some(Receiver { asn, .. }) = set.receiver else { return Answer::Refused };
            assert_eq!((set.sender, set.next_hop), (None, None));
            Answer::Replaced(with(set, asn.0))
        }

        fn describe(&self) -> String {
            "names".into()
        }
    }

    let mut pipeline = checked(always());
    pipeline.add_rewriter(Slot::BeforeExport, Box::new(Names));
    let mut sinks = [1, 2].map(|n| (up(&mut pipeline, n), Sink::default()));
    pipeline.originate(route(), &OriginateAttributes::default());
    settle(&mut pipeline, &mut sinks);
    assert_eq!(sinks.map(|(_, sink)| communities(&sink.routes[&route()])), [[65101], [65102]]);
}

#[test]
fn a_next_hop_of_a_stage_is_where_packets_go_and_what_is_passed_on() {
    /// Another gateway, and another AS path.
    #[derive(Debug)]
    struct Detour;

    impl Rewriter for Detour {
        fn rewrite(&mut self, set: &Offered<'_>) -> Answer {
            assert_eq!((set.sender, set.next_hop), (Some(Asn(65101)), Some([192, 0, 2, 1].into())));
            let edit = Edit { prepend: &[(Asn(64999), 2)], ..Edit::default() };
            let mut attributes = Vec::new();
            rewrite(set.attributes.0, &edit, &mut attributes);
            Answer::Replaced(Replacement { attributes, next_hop: Some(address(9).into()), tag: Some(5) })
        }

        fn describe(&self) -> String {
            "detour".into()
        }
    }

    let mut pipeline = checked(always());
    pipeline.add_rewriter(Slot::AfterImport, Box::new(Detour));
    let (from, to) = (up(&mut pipeline, 1), up(&mut pipeline, 2));
    send(&mut pipeline, from, &[]);
    let mut sinks = [(to, Sink::default())];
    settle(&mut pipeline, &mut sinks);
    let view = &pipeline.explain(route())[0];
    assert_eq!(view.next_hop.map(|gateway| gateway.address), Some(IpAddr::from(address(9))));
    assert_eq!((view.tag, sinks[0].1.routes[&route()].path().as_str()), (5, "65000 64999 64999 65101"));
}

#[test]
fn what_is_no_route_does_not_pass_and_the_driver_hears_of_it() {
    #[derive(Debug)]
    struct Broken;

    impl Rewriter for Broken {
        fn rewrite(&mut self, _: &Offered<'_>) -> Answer {
            Answer::Replaced(Replacement { attributes: vec![0x40, 1, 9], ..Replacement::default() })
        }

        fn describe(&self) -> String {
            "broken".into()
        }
    }

    for slot in Slot::ALL {
        let mut pipeline = checked(always());
        pipeline.add_rewriter(slot, Box::new(Broken));
        pipeline.rib_resync();
        let (from, to) = (up(&mut pipeline, 1), up(&mut pipeline, 2));
        send(&mut pipeline, from, &[]);
        let (mut sinks, mut rib) = ([(to, Sink::default())], Rib::default());
        settle(&mut pipeline, &mut sinks);
        rib.follow(&mut pipeline);
        let passes = (sinks[0].1.routes.len(), rib.0.len());
        let wanted = match slot {
            Slot::BeforeImport | Slot::AfterImport => (0, 0),
            Slot::BeforeExport => (0, 1),
            Slot::BeforeRib => (1, 0),
        };
        assert_eq!(passes, wanted, "{slot}");
        let events: Vec<Event> = std::iter::from_fn(|| pipeline.poll_event()).collect();
        assert!(events.contains(&Event::BadAnswer { stage: "Broken", slot }), "{events:?}");
    }
}

#[test]
fn routes_of_another_process_pass_before_import_once() {
    let records = {
        let mut pipeline = marked();
        let from = up(&mut pipeline, 1);
        send(&mut pipeline, from, &[]);
        frozen(&mut pipeline, &[from], 100, |_| {})
    };
    let mut pipeline = marked();
    let peer = pipeline.add_peer(ebgp(1));
    pipeline.peer_resumed(peer, facts(1)).expect("room");
    thaw(&mut pipeline, peer, records.iter().map(|(_, record)| &**record)).expect("readable");
    let shown = pipeline.explain(route())[0].bytes.clone();
    assert_eq!(
        Attributes(&shown).communities().collect::<Vec<_>>(),
        [mark(Slot::BeforeImport), mark(Slot::AfterImport)]
    );
    // What comes now passes the slot.
    send(&mut pipeline, peer, &[7]);
    let shown = pipeline.explain(route())[0].bytes.clone();
    let wanted = [7, mark(Slot::BeforeImport), mark(Slot::AfterImport)];
    assert_eq!(Attributes(&shown).communities().collect::<Vec<_>>(), wanted);
}

const PEERS: u8 = 3;

/// What happens in the property tests.
#[derive(Clone, Debug)]
enum Step {
    /// A peer announces a route; `asks` names the slot that is to refuse it, as far as there is one.
    Announce {
        peer: u8,
        route: u8,
        extra: u8,
        asks: usize,
    },
    Withdraw {
        peer: u8,
        route: u8,
    },
    /// A session begins anew.
    Flap(u8),
    /// Import policy is compiled anew, and looks at prefixes or not.
    Import {
        peer: u8,
        reads_prefix: bool,
    },
    Export {
        peer: u8,
    },
    /// The peers and the RIB read what there is; or some of it.
    Read(usize),
    Work,
    Resync,
}

fn step() -> impl Strategy<Value = Step> {
    let (peer, route) = (1..=PEERS, 0..5u8);
    prop_oneof![
        6 => (peer.clone(), route.clone(), 0..3u8, 0..9usize)
            .prop_map(|(peer, route, extra, asks)| Step::Announce { peer, route, extra, asks }),
        3 => (peer.clone(), route).prop_map(|(peer, route)| Step::Withdraw { peer, route }),
        1 => peer.clone().prop_map(Step::Flap),
        1 => (peer.clone(), any::<bool>())
            .prop_map(|(peer, reads_prefix)| Step::Import { peer, reads_prefix }),
        1 => peer.prop_map(|peer| Step::Export { peer }),
        3 => (0..4usize).prop_map(Step::Read),
        2 => Just(Step::Work),
        1 => Just(Step::Resync),
    ]
}

/// One router with those around it.
struct Scene {
    pipeline: Pipeline,
    sinks: Vec<(PeerIndex, Sink)>,
    rib: Rib,
    /// Without stages, to compare with: a route that a stage of import would refuse is withdrawn, and marks are left out.
    is_plain: bool,
}

fn prefix_of(route: u8) -> Prefix {
    prefix(&format!("10.{route}.0.0/16"))
}

/// A new compilation that accepts everything, and adds a community to some prefixes.
fn policy(reads_prefix: bool) -> Program {
    let from = match reads_prefix {
        true => vec![Condition::Prefix(vec!["10.1.0.0/16".parse().expect("a range")])],
        false => vec![],
    };
    let then = vec![Action::AddCommunities(vec!["1:1".parse().expect("a community")])];
    let some = Term { name: "some".into(), from, then, outcome: Outcome::Accept };
    let all = Term { name: "all".into(), from: vec![], then: vec![], outcome: Outcome::Accept };
    program(vec![some, all])
}

impl Scene {
    fn new(mut pipeline: Pipeline, is_plain: bool) -> Self {
        pipeline.rib_resync();
        let sinks = (1..=PEERS).map(|n| (up(&mut pipeline, n), Sink::default())).collect();
        Self { pipeline, sinks, rib: Rib::default(), is_plain }
    }

    fn apply(&mut self, step: &Step) {
        let index = |peer: u8| PeerIndex(u16::from(peer) - 1);
        match *step {
            Step::Announce { peer, route, extra, asks } => {
                let slot = Slot::ALL.get(asks).copied();
                let is_lost = matches!(slot, Some(Slot::BeforeImport | Slot::AfterImport));
                let asked: Vec<u32> = slot.map(refusal).into_iter().collect();
                let communities = [&[u32::from(extra)], &*asked].concat();
                let body = match self.is_plain && is_lost {
                    true => withdrawal(prefix_of(route)),
                    false => announcement(&attributes(peer, &communities), &[prefix_of(route)]),
                };
                self.pipeline.update(index(peer), &body).expect("taken");
            }
            Step::Withdraw { peer, route } => {
                self.pipeline.update(index(peer), &withdrawal(prefix_of(route))).expect("taken");
            }
            Step::Flap(peer) => {
                self.pipeline.peer_down(index(peer));
                self.pipeline.peer_up(index(peer), facts(peer)).expect("room");
                self.sinks[usize::from(peer) - 1].1 = Sink::default();
            }
            Step::Import { peer, reads_prefix } => {
                let config = PeerConfig { import: Some(policy(reads_prefix)), ..ebgp(peer) };
                self.pipeline.configure_peer(index(peer), config);
            }
            Step::Export { peer } => {
                let config = PeerConfig { export: Some(policy(false)), ..ebgp(peer) };
                self.pipeline.configure_peer(index(peer), config);
            }
            Step::Read(who) => match self.sinks.get_mut(who) {
                Some((peer, sink)) => {
                    if let Some(messages) = self.pipeline.pull(*peer) {
                        sink.take(&messages);
                    }
                }
                None => {
                    if let Some(changes) = self.pipeline.pull_rib(2) {
                        self.rib.take(&changes);
                    }
                }
            },
            Step::Work => _ = self.pipeline.work(2),
            Step::Resync => {
                self.pipeline.rib_resync();
                self.rib = Rib::default();
            }
        }
    }

    fn settle(&mut self) {
        settle(&mut self.pipeline, &mut self.sinks);
        self.rib.follow(&mut self.pipeline);
        settle(&mut self.pipeline, &mut self.sinks);
    }

    /// What each peer has, and the RIB.
    fn outcome(&self) -> (Vec<BTreeMap<Prefix, Vec<u32>>>, Vec<Prefix>) {
        let told = |(_, sink): &(PeerIndex, Sink)| {
            sink.routes.iter().map(|(prefix, held)| (*prefix, communities(held))).collect()
        };
        (self.sinks.iter().map(told).collect(), self.rib.0.keys().copied().collect())
    }
}

/// What a router with marks tells, by what one without them does.
fn expected(plain: &mut Scene) -> (Vec<BTreeMap<Prefix, Vec<u32>>>, Vec<Prefix>) {
    let (mut told, mut rib) = plain.outcome();
    let shown: Vec<Vec<u32>> = (0..5).map(|route| best(plain, prefix_of(route))).collect();
    for routes in &mut told {
        routes.retain(|_, communities| !communities.contains(&refusal(Slot::BeforeExport)));
        for communities in routes.values_mut() {
            communities.extend([Slot::BeforeImport, Slot::AfterImport, Slot::BeforeExport].map(mark));
            communities.sort_unstable();
        }
    }
    rib.retain(|prefix| {
        let route = (0..5).find(|route| prefix_of(*route) == *prefix).expect("one of those");
        !shown[usize::from(route)].contains(&refusal(Slot::BeforeRib))
    });
    (told, rib)
}

/// The communities of the best route.
fn best(scene: &mut Scene, prefix: Prefix) -> Vec<u32> {
    let best = scene.pipeline.best(prefix);
    best.map(|path| Attributes(&path.bytes).communities().collect()).unwrap_or_default()
}

proptest! {
    #![proptest_config(holdfast_testing::cases(96))]

    /// Each slot adds its mark or refuses: what peers and the RIB have follows from what a router without stages would
    /// tell them, whatever happened in between. The contract is checked at every seam.
    #[test]
    fn peers_and_rib_have_what_the_slots_make_of_the_routes(steps in prop::collection::vec(step(), 1..60)) {
        let (mut scene, mut plain) = (Scene::new(marked(), false), Scene::new(checked(always()), true));
        for step in &steps {
            scene.apply(step);
            plain.apply(step);
        }
        scene.settle();
        plain.settle();
        let (mut told, rib) = scene.outcome();
        told.iter_mut().flat_map(BTreeMap::values_mut).for_each(|communities| communities.sort_unstable());
        prop_assert_eq!((told, rib), expected(&mut plain));
    }

    /// A stage that contradicts itself leaves nothing behind either: what was passed on is what is withdrawn.
    #[test]
    fn whatever_stages_answer_withdrawals_are_of_what_was_passed_on(
        steps in prop::collection::vec(step(), 1..60),
        slots in prop::collection::vec(0..4usize, 1..5),
    ) {
        let mut pipeline = checked(always());
        for slot in slots {
            pipeline.add_rewriter(Slot::ALL[slot], Box::new(Fickle::default()));
        }
        let mut scene = Scene::new(pipeline, false);
        steps.iter().for_each(|step| scene.apply(step));
        for peer in 1..=PEERS {
            (0..5).for_each(|route| scene.apply(&Step::Withdraw { peer, route }));
        }
        scene.pipeline.check_consistency(true);
        scene.settle();
        prop_assert_eq!(scene.pipeline.violations(), 0);
        let (told, rib) = scene.outcome();
        prop_assert!(told.iter().all(BTreeMap::is_empty) && rib.is_empty(), "{:?} {:?}", told, rib);
        let announced = |n: u8| scene.pipeline.counts(PeerIndex(n.into()), Family::IPV4_UNICAST).announced;
        prop_assert_eq!((0..PEERS).map(announced).sum::<u64>(), 0);
        // What was made of a set goes after it.
        (0..4).for_each(|_| while scene.pipeline.work(100) {});
        prop_assert_eq!(scene.pipeline.attribute_sets(), 0, "all is given back");
    }
}
