//! Which paths go where, and how they look there: reflection, confederations, route servers, roles, and what else
//! differs from peer to peer.

use std::net::{IpAddr, Ipv4Addr};

use holdfast_bgp_pipeline::{
    DropReason, LocalAsnMode, NextHopMode, NextHopRule, OriginateAttributes, PathRules, PathState,
    PeerConfig, PeerIndex, PeerKind, Pipeline, PrivateAsnRule, RibChanges, SpeakerConfig,
};
use holdfast_bgp_wire::{
    Attributes, Origin,
    attributes::community,
    edit::{AttributesBuilder, Change, Edit, rewrite},
    update::AsSets,
};
use holdfast_policy::{Action, Prepend, PrependAs};
use holdfast_types::{Asn, BgpRole, Family, Prefix};

use crate::tests::pipeline::{
    policies::changing,
    speaker::{
        Held, OUR_AS, Sink, announcement, checked, ebgp, facts, frozen, ibgp, prefix, router_id, settle,
        speaker, thaw,
    },
};

const P: &str = "203.0.113.0/24";

fn always() -> SpeakerConfig {
    speaker(NextHopMode::AlwaysReachable)
}

/// Peers by number, all with their sessions up.
struct Scene {
    pipeline: Pipeline,
    sinks: Vec<(PeerIndex, Sink)>,
}

impl Scene {
    fn new(speaker: SpeakerConfig, peers: Vec<PeerConfig>) -> Self {
        let in_confederation = speaker.confederation.is_some();
        let mut pipeline = checked(speaker);
        let sinks = peers.into_iter().zip(1..).map(|(config, n)| {
            let internal = config.kind == PeerKind::Ibgp;
            let confederation = in_confederation && config.kind != PeerKind::Ebgp;
            let peer = pipeline.add_peer(config);
            pipeline.peer_up(peer, facts(n)).expect("room");
            (peer, Sink { internal, confederation, ..Sink::default() })
        });
        let sinks = sinks.collect();
        Self { pipeline, sinks }
    }

    /// Peer `n`, counted from 1, announces the one prefix.
    fn announce(&mut self, n: usize, attributes: &[u8]) {
        self.announce_one(n, P, attributes);
    }

    fn announce_one(&mut self, n: usize, route: &str, attributes: &[u8]) {
        let peer = self.sinks[n - 1].0;
        self.pipeline.update(peer, &announcement(attributes, &[prefix(route)])).expect("taken");
        settle(&mut self.pipeline, &mut self.sinks);
    }

    fn held(&self, n: usize) -> Option<&Held> {
        self.sinks[n - 1].1.routes.get(&prefix(P))
    }

    /// The path that peer `n` has been told.
    fn path(&self, n: usize) -> Option<String> {
        self.held(n).map(Held::path)
    }

    fn attributes(&self, n: usize) -> Attributes<'_> {
        Attributes(&self.held(n).expect("a route").attributes)
    }

    /// Who has the route.
    fn told(&self) -> Vec<usize> {
        (1..=self.sinks.len()).filter(|n| self.held(*n).is_some()).collect()
    }

    fn state(&mut self) -> PathState {
        self.pipeline.explain(prefix(P)).remove(0).state
    }

    fn configure(&mut self, n: usize, config: PeerConfig) {
        self.pipeline.configure_peer(self.sinks[n - 1].0, config);
        settle(&mut self.pipeline, &mut self.sinks);
    }
}

fn with(config: PeerConfig, paths: PathRules) -> PeerConfig {
    PeerConfig { paths, ..config }
}

fn builder(path: &[u32]) -> AttributesBuilder {
    AttributesBuilder {
        as_path: path.iter().copied().map(Asn).collect(),
        next_hop: Some(Ipv4Addr::new(192, 0, 2, 9)),
        ..AttributesBuilder::new(Origin::Igp)
    }
}

/// A path as an external peer sends it.
fn external(path: &[u32]) -> Vec<u8> {
    builder(path).build()
}

/// The same as an internal peer does.
fn internal(path: &[u32]) -> Vec<u8> {
    AttributesBuilder { local_pref: Some(200), ..builder(path) }.build()
}

/// Attributes with a change.
fn edited(attributes: &[u8], edit: &Edit<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    rewrite(attributes, edit, &mut out);
    out
}

fn only_to_customer(attributes: &[u8], asn: u32) -> Vec<u8> {
    edited(attributes, &Edit { only_to_customer: Some(Asn(asn)), ..Edit::default() })
}

// Route reflection (RFC 4456).

/// Clients 1 and 2, others 3 and 4, and 5 outside.
fn reflector() -> Scene {
    let client = || PathRules { route_reflector_client: true, ..PathRules::default() };
    let peers = vec![with(ibgp(1), client()), with(ibgp(2), client()), ibgp(3), ibgp(4), ebgp(5)];
    Scene::new(SpeakerConfig { cluster_id: 77, ..always() }, peers)
}

#[test]
fn a_clients_route_goes_to_all_and_anothers_to_clients_and_outside() {
    for (from, to) in [(1, vec![2, 3, 4, 5]), (3, vec![1, 2, 5]), (5, vec![1, 2, 3, 4])] {
        let mut scene = reflector();
        let route = if from == 5 { external(&[65105, 9]) } else { internal(&[9]) };
        scene.announce(from, &route);
        assert_eq!(scene.told(), to);
    }
}

#[test]
fn a_reflected_route_is_what_it_was_but_for_originator_and_cluster() {
    let mut scene = reflector();
    let sent = edited(&internal(&[9]), &Edit { med: Change::Set(5), ..Edit::default() });
    scene.announce(1, &sent);
    let originator = router_id(0x0a00_0101);
    for to in [2, 3] {
        let reflection = Change::Set((originator, 77));
        assert_eq!(
            scene.held(to).expect("told").attributes,
            edited(&sent, &Edit { reflection, ..Edit::default() })
        );
    }
    let outside = scene.attributes(5);
    assert_eq!((outside.originator_id(), outside.cluster_list().len(), outside.med()), (None, 0, None));
    assert_eq!(scene.path(5).as_deref(), Some("65000 9"));
}

#[test]
fn who_reflected_before_is_named_and_so_is_the_first_originator() {
    let mut scene = reflector();
    let reflection = Change::Set((router_id(0x0a00_0909), 78));
    scene.announce(3, &edited(&internal(&[9]), &Edit { reflection, ..Edit::default() }));
    let told = scene.attributes(1);
    assert_eq!(told.originator_id(), Some(router_id(0x0a00_0909)));
    assert_eq!(told.cluster_list().collect::<Vec<_>>(), [77, 78]);
}

#[test]
fn two_who_send_the_same_attributes_are_told_apart_when_reflected() {
    let mut scene = reflector();
    scene.announce_one(1, P, &internal(&[9]));
    scene.announce_one(2, "198.51.100.0/24", &internal(&[9]));
    let routes = &scene.sinks[2].1.routes;
    let originators = routes.values().map(|held| Attributes(&held.attributes).originator_id());
    // In address order.
    assert_eq!(originators.collect::<Vec<_>>(), [Some(router_id(0x0a00_0102)), Some(router_id(0x0a00_0101))]);
}

#[test]
fn a_route_that_was_here_before_is_not_used() {
    for reflection in [(router_id(0x0a00_0001), 78), (router_id(0x0a00_0909), 77)] {
        let mut scene = reflector();
        let reflection = Change::Set(reflection);
        scene.announce(1, &edited(&internal(&[9]), &Edit { reflection, ..Edit::default() }));
        assert_eq!((scene.state(), scene.told()), (PathState::ReflectionLoop, vec![]));
    }
}

#[test]
fn ourselves_as_next_hop_inside_is_for_what_comes_from_outside() {
    let ours = || PathRules {
        next_hop: NextHopRule::Ourselves,
        route_reflector_client: true,
        ..PathRules::default()
    };
    let mut scene = Scene::new(always(), vec![with(ibgp(1), ours()), with(ibgp(2), ours()), ebgp(3)]);
    scene.announce(1, &internal(&[9]));
    assert_eq!(scene.held(2).expect("told").next_hop, IpAddr::from([192, 0, 2, 9]), "RFC 4456 section 10");
    let mut scene = Scene::new(always(), vec![with(ibgp(1), ours()), with(ibgp(2), ours()), ebgp(3)]);
    scene.announce(3, &external(&[65103, 9]));
    assert_eq!(scene.held(2).expect("told").next_hop, IpAddr::from([10, 0, 0, 1]));
}

// AS paths and next hops towards other ASes.

#[test]
fn another_number_of_ours_stands_before_the_real_one_or_in_its_place() {
    // What the peer is told, and what others are of its routes.
    let rows = [
        (LocalAsnMode::Prepend, "64900 65000 65102", "65000 64900 65101"),
        (LocalAsnMode::NoPrepend, "64900 65000 65102", "65000 65101"),
        (LocalAsnMode::Replace, "64900 65102", "65000 65101"),
    ];
    for (local_asn_mode, to_it, of_it) in rows {
        let local_asn = Some(Asn(64900));
        let paths = PathRules { local_asn, local_asn_mode, ..PathRules::default() };
        let mut scene = Scene::new(always(), vec![with(ebgp(1), paths), ebgp(2)]);
        scene.announce(1, &external(&[65101]));
        assert_eq!(scene.path(2).as_deref(), Some(of_it));
        scene.announce(2, &external(&[65102]));
        scene.announce_one(2, "198.51.100.0/24", &external(&[65102]));
        let told = &scene.sinks[0].1.routes[&prefix("198.51.100.0/24")];
        assert_eq!(told.path(), to_it);
        scene.announce(1, &external(&[65101, 64900]));
        assert!(scene.pipeline.explain(prefix(P)).iter().any(|path| path.state == PathState::AsLoop));
    }
}

#[test]
fn our_own_number_is_allowed_as_often_as_is_said_and_a_change_takes_effect_at_once() {
    let allowed = |times| with(ebgp(1), PathRules { allow_own_asn: times, ..PathRules::default() });
    let mut scene = Scene::new(always(), vec![allowed(1), ebgp(2)]);
    scene.announce(1, &external(&[65101, OUR_AS.0, 9]));
    assert_eq!(scene.path(2).as_deref(), Some("65000 65101 65000 9"));
    scene.configure(1, allowed(0));
    assert_eq!((scene.state(), scene.told()), (PathState::AsLoop, vec![]));
    scene.announce(1, &external(&[65101, OUR_AS.0, OUR_AS.0]));
    scene.configure(1, allowed(1));
    assert!(scene.told().is_empty());
    scene.configure(1, allowed(2));
    assert_eq!(scene.told(), [2]);
}

#[test]
fn private_numbers_are_left_out_or_replaced_and_a_change_takes_effect_at_once() {
    let rule = |remove_private_asns| PathRules { remove_private_asns, ..PathRules::default() };
    let to = |rule| PeerConfig { asn: Asn(64600), ..with(ebgp(2), rule) };
    let mut scene =
        Scene::new(always(), vec![PeerConfig { asn: Asn(7), ..ebgp(1) }, to(rule(PrivateAsnRule::Keep))]);
    scene.announce(1, &external(&[7, 64512, 64600, 8]));
    assert_eq!(scene.path(2).as_deref(), Some("65000 7 64512 64600 8"));
    scene.configure(2, to(rule(PrivateAsnRule::Remove)));
    assert_eq!(scene.path(2).as_deref(), Some("65000 7 64600 8"), "its own number stays for the loop check");
    scene.configure(2, to(rule(PrivateAsnRule::Replace)));
    assert_eq!(scene.path(2).as_deref(), Some("65000 7 65000 64600 8"));
}

#[test]
fn our_number_takes_the_place_of_the_receivers() {
    let paths = PathRules { as_override: true, ..PathRules::default() };
    let site = |n| PeerConfig { asn: Asn(64600), ..with(ebgp(n), paths.clone()) };
    let mut scene = Scene::new(always(), vec![site(1), site(2)]);
    scene.announce(1, &external(&[64600, 9]));
    assert_eq!(scene.path(2).as_deref(), Some("65000 65000 9"));
}

#[test]
fn a_next_hop_may_stay_also_towards_another_as() {
    let paths = PathRules { next_hop: NextHopRule::Unchanged, ..PathRules::default() };
    let mut scene = Scene::new(always(), vec![ebgp(1), with(ebgp(2), paths), ebgp(3)]);
    scene.announce(1, &external(&[65101]));
    let next_hops = [2, 3].map(|n| scene.held(n).expect("told").next_hop);
    assert_eq!(next_hops, [IpAddr::from([192, 0, 2, 9]), IpAddr::from([10, 0, 0, 1])]);
    scene.pipeline.originate(prefix(P), &OriginateAttributes::default());
    settle(&mut scene.pipeline, &mut scene.sinks);
    assert_eq!(scene.held(2).expect("told").next_hop, IpAddr::from([10, 0, 0, 1]), "nobody else is");
}

#[test]
fn what_policy_prepends_stands_behind_our_number() {
    let export = changing(vec![Action::Prepend(Prepend { asn: PrependAs::Asn(Asn(9)), count: 2 })]);
    let mut scene = Scene::new(always(), vec![ebgp(1), PeerConfig { export: Some(export), ..ebgp(2) }]);
    scene.announce(1, &external(&[65101]));
    assert_eq!(scene.path(2).as_deref(), Some("65000 9 9 65101"));
}

// Route servers (RFC 7947).

#[test]
fn a_route_server_does_not_show_in_what_its_clients_get() {
    let client = |n| with(ebgp(n), PathRules { route_server_client: true, ..PathRules::default() });
    let mut scene = Scene::new(always(), vec![client(1), client(2)]);
    let sent = edited(&external(&[65101, 9]), &Edit { med: Change::Set(5), ..Edit::default() });
    scene.announce(1, &sent);
    assert_eq!(scene.held(2).expect("told").attributes, sent);
    assert_eq!(scene.held(2).expect("told").next_hop, IpAddr::from([192, 0, 2, 9]));
}

// Confederations (RFC 5065).

/// Another member 1, one of our AS 2, outside 3 and 4: we are 65000 in the confederation 64999.
fn member() -> Scene {
    let other = PeerConfig { kind: PeerKind::ConfedEbgp, asn: Asn(65001), ..ibgp(1) };
    let config = SpeakerConfig { confederation: Some(Asn(64999)), ..always() };
    Scene::new(config, vec![other, ibgp(2), ebgp(3), ebgp(4)])
}

/// (65001 …) in front of the path.
fn from_member(members: &[u32], path: &[u32]) -> Vec<u8> {
    use holdfast_bgp_wire::as_path::SegmentType;
    let front: Vec<(Asn, u8)> = members.iter().map(|asn| (Asn(*asn), 1)).collect();
    let edit = Edit { prepend: &front, prepend_into: SegmentType::ConfedSequence, ..Edit::default() };
    edited(&internal(path), &edit)
}

#[test]
fn a_confederation_is_one_as_to_others_and_members_are_named_inside() {
    let mut scene = member();
    scene.announce(3, &external(&[65103, 9]));
    let paths = [1, 2, 4].map(|n| scene.path(n));
    assert_eq!(
        paths.each_ref().map(Option::as_deref),
        [Some("(65000) 65103 9"), Some("65103 9"), Some("64999 65103 9")]
    );
    assert_eq!(scene.held(1).expect("told").next_hop, IpAddr::from([192, 0, 2, 9]), "unchanged inside");
    assert_eq!(scene.attributes(1).local_pref(), Some(100));

    let mut scene = member();
    let sent = edited(&from_member(&[65001, 65002], &[9]), &Edit { med: Change::Set(5), ..Edit::default() });
    scene.announce(1, &sent);
    let paths = [2, 3].map(|n| scene.path(n));
    assert_eq!(paths.each_ref().map(Option::as_deref), [Some("(65001 65002) 9"), Some("64999 9")]);
    let inside = scene.attributes(2);
    assert_eq!((inside.local_pref(), inside.med()), (Some(200), Some(5)));

    let mut scene = member();
    scene.announce(2, &from_member(&[65001], &[9]));
    assert_eq!(scene.path(1).as_deref(), Some("(65000 65001) 9"));
}

#[test]
fn a_member_s_number_outside_of_the_confederation_is_somebody_else() {
    let mut scene = member();
    scene.announce(3, &external(&[65103, 65000]));
    assert_eq!(scene.told(), [1, 2, 4]);
}

#[test]
fn member_and_confederation_are_both_looked_for_in_paths() {
    for path in [from_member(&[65001, 65000], &[9]), from_member(&[65001], &[64999])] {
        let mut scene = member();
        scene.announce(1, &path);
        assert_eq!(scene.state(), PathState::AsLoop);
    }
}

#[test]
fn communities_say_whether_a_route_stays_in_the_member_or_in_the_confederation() {
    let rows = [(community::NO_EXPORT, vec![1, 2]), (community::NO_EXPORT_SUBCONFED, vec![2])];
    for (community, told) in rows {
        let mut scene = member();
        let route = AttributesBuilder { communities: vec![community], ..builder(&[65103]) }.build();
        scene.announce(3, &route);
        assert_eq!(scene.told(), told);
    }
}

// Roles (RFC 9234).

fn role(n: u8, role: BgpRole) -> PeerConfig {
    with(ebgp(n), PathRules { role: Some(role), ..PathRules::default() })
}

#[test]
fn what_a_provider_or_peer_tells_goes_to_customers_only() {
    use BgpRole::{Customer, Peer, Provider, RsClient, RsServer};
    // To the others, we are all there is.
    let scene = || {
        let roles = [Customer, Provider, Peer, RsClient, Customer];
        Scene::new(always(), roles.into_iter().zip(1..).map(|(ours, n)| role(n, ours)).collect())
    };
    for from in [1, 3, 4] {
        let mut scene = scene();
        let asn = 65100 + from as u32;
        scene.announce(from, &external(&[asn, 9]));
        assert_eq!(scene.told(), [2], "from {from}");
        assert_eq!(scene.attributes(2).only_to_customer(), Some(Asn(asn)), "marked on the way in");
    }
    let mut scene = scene();
    scene.announce(2, &external(&[65102, 9]));
    assert_eq!(scene.told(), [1, 3, 4, 5]);
    let marks = [1, 3, 4].map(|n| scene.attributes(n).only_to_customer());
    assert_eq!(marks, [None, Some(OUR_AS), None], "a peer may tell its customers only");
    let mut server = Scene::new(always(), vec![role(1, RsServer), role(2, RsServer)]);
    server.announce(1, &external(&[65101]));
    assert_eq!(server.attributes(2).only_to_customer(), Some(OUR_AS));
}

#[test]
fn a_leak_is_not_used_and_is_counted() {
    use BgpRole::{Customer, Peer, Provider, RsServer};
    let plain = external(&[65101, 9]);
    let rows = [
        (Provider, only_to_customer(&plain, 65101), true),
        (RsServer, only_to_customer(&plain, 65101), true),
        (Peer, only_to_customer(&plain, 9), true),
        (Peer, only_to_customer(&plain, 65101), false),
        (Customer, only_to_customer(&plain, 9), false),
        (Provider, plain.clone(), false),
    ];
    for (ours, route, leaks) in rows {
        let mut scene = Scene::new(always(), vec![role(1, ours), ebgp(2)]);
        scene.announce(1, &route);
        scene.announce(1, &route);
        let expected = if leaks { PathState::RouteLeak } else { PathState::Best };
        assert_eq!((scene.state(), scene.told().len()), (expected, usize::from(!leaks)), "{ours}");
        let drops = scene.pipeline.drops(scene.sinks[0].0).expect("a peer");
        let counted = drops.counts().iter().find(|(reason, _)| *reason == DropReason::RouteLeak);
        assert_eq!(counted.map(|(_, count)| *count), leaks.then_some(2));
        let first: Option<Prefix> = drops.last().next().and_then(|dropped| dropped.prefix);
        assert_eq!(first, leaks.then(|| prefix(P)));
    }
}

// Communities that everybody knows.

#[test]
fn a_route_that_is_about_to_go_is_the_last_choice() {
    let marked = |path: &[u32]| {
        AttributesBuilder { communities: vec![community::GRACEFUL_SHUTDOWN], ..builder(path) }.build()
    };
    let mut scene = Scene::new(always(), vec![ebgp(1), ebgp(2), ibgp(3)]);
    scene.announce(1, &marked(&[65101]));
    assert_eq!(scene.attributes(3).local_pref(), Some(0));
    scene.announce(2, &external(&[65102, 8, 9]));
    assert_eq!(scene.path(3).as_deref(), Some("65102 8 9"), "the longer one, which stays");
}

#[test]
fn no_policy_keeps_traffic_on_a_route_that_is_about_to_go() {
    let preferred = PeerConfig { import: crate::tests::pipeline::model::programs()[3].clone(), ..ebgp(1) };
    let mut scene = Scene::new(always(), vec![preferred, ebgp(2), ibgp(3)]);
    let communities = vec![community::GRACEFUL_SHUTDOWN, 65000 << 16 | 1];
    scene.announce(1, &AttributesBuilder { communities, ..builder(&[65101]) }.build());
    assert_eq!(scene.attributes(3).local_pref(), Some(0));
}

#[test]
fn a_session_about_to_end_says_so_and_is_used_no_longer() {
    let ending = |graceful_shutdown| with(ebgp(1), PathRules { graceful_shutdown, ..PathRules::default() });
    let mut scene = Scene::new(always(), vec![ending(false), ebgp(2), ibgp(3)]);
    scene.announce(1, &external(&[65101]));
    scene.announce(2, &external(&[65102, 8, 9]));
    assert_eq!(scene.path(3).as_deref(), Some("65101"));
    scene.configure(1, ending(true));
    assert_eq!(scene.path(3).as_deref(), Some("65102 8 9"));
    let told = scene.attributes(1);
    assert_eq!(told.communities().collect::<Vec<_>>(), [community::GRACEFUL_SHUTDOWN]);
    scene.configure(1, ending(false));
    assert_eq!(scene.path(3).as_deref(), Some("65101"));
}

#[test]
fn packets_to_a_blackholed_prefix_are_dropped_and_the_route_stays_inside() {
    let dropping = |blackhole| with(ebgp(1), PathRules { blackhole, ..PathRules::default() });
    let mut scene = Scene::new(speaker(NextHopMode::Resolved), vec![dropping(true), ebgp(2), ibgp(3)]);
    scene.pipeline.rib_resync();
    let route = AttributesBuilder { communities: vec![community::BLACKHOLE], ..builder(&[65101]) }.build();
    scene.announce(1, &route);
    assert_eq!(scene.told(), [3], "no answer about the next hop is waited for");
    let inside = scene.attributes(3);
    assert_eq!(inside.communities().collect::<Vec<_>>(), [community::BLACKHOLE, community::NO_EXPORT]);
    let changes: Vec<RibChanges> = std::iter::from_fn(|| scene.pipeline.pull_rib(10)).collect();
    let defined: Vec<_> = changes.iter().flat_map(|changes| &changes.define).collect();
    assert_eq!((defined.len(), defined[0].gateways.len()), (1, 0), "no next hop");
    scene.configure(1, dropping(false));
    assert_eq!(
        scene.state(),
        PathState::UnreachableNextHop,
        "an ordinary route, whose next hop is not known"
    );
}

/// ORIGIN, AS_PATH "65101 {65077}" and NEXT_HOP.
const WITH_SET: [u8; 26] =
    [0x40, 1, 1, 0, 0x40, 2, 12, 2, 1, 0, 0, 0xfe, 0x4d, 1, 1, 0, 0, 0xfe, 0x35, 0x40, 3, 4, 10, 0, 1, 2];

#[test]
fn as_sets_that_another_process_took_are_refused_however_they_come() {
    let mut before = Scene::new(SpeakerConfig { as_sets: AsSets::Accept, ..always() }, vec![ebgp(1)]);
    before.announce(1, &WITH_SET);
    let from = before.sinks[0].0;
    let records = frozen(&mut before.pipeline, &[from], 100, |_| {});
    assert_eq!(records.len(), 1);
    let mut after = Scene::new(always(), vec![ebgp(1)]);
    let peer = after.sinks[0].0;
    for _ in 0..2 {
        thaw(&mut after.pipeline, peer, [&*records[0].1]).expect("a record");
        assert_eq!(after.pipeline.table_size(Family::IPV4_UNICAST).0, 0);
        after.announce(1, &WITH_SET);
        assert_eq!(after.pipeline.table_size(Family::IPV4_UNICAST).0, 0);
    }
}

#[test]
fn as_sets_that_are_taken_no_more_are_withdrawn_also_where_they_come_again() {
    let mut scene = Scene::new(always(), vec![ebgp(1)]);
    let set = announcement(&WITH_SET, &[prefix(P)]);
    let plain = AttributesBuilder {
        as_path: vec![Asn(65101)],
        next_hop: Some(Ipv4Addr::new(10, 0, 1, 2)),
        ..AttributesBuilder::new(Origin::Igp)
    };
    let other = announcement(&plain.build(), &[prefix("198.51.100.0/24")]);
    let mut kept = |as_sets| {
        scene.pipeline.set_as_sets(as_sets);
        settle(&mut scene.pipeline, &mut []);
        let before = scene.pipeline.table_size(Family::IPV4_UNICAST).0;
        for update in [&set, &other] {
            scene.pipeline.update(scene.sinks[0].0, update).expect("taken");
        }
        settle(&mut scene.pipeline, &mut []);
        (before, scene.pipeline.table_size(Family::IPV4_UNICAST).0)
    };
    assert_eq!(kept(AsSets::Reject), (0, 1));
    assert_eq!(kept(AsSets::Accept), (1, 2));
    assert_eq!(kept(AsSets::Reject), (1, 1), "before it comes again, and then");
    assert_eq!(kept(AsSets::Accept), (1, 2));
}
