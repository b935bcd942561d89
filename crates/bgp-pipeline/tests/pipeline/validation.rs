//! What the RPKI says of routes: policies ask it, and when it changes, what has changed moves and nothing else does.

use std::{cell::RefCell, rc::Rc};

use holdfast_bgp_pipeline::{
    Direction, Event, NextHopMode, OriginateAttributes, PathRules, PathState, PeerConfig, PeerIndex,
    Pipeline, SessionFacts, States,
};
use holdfast_bgp_wire::{Attributes, Origin, edit::AttributesBuilder};
use holdfast_origin_validation::{Authorizations, Delta};
use holdfast_policy::{Condition, Outcome, PathValidity, Program, Term, Validity};
use holdfast_types::{Asn, Aspa, BgpRole, Family, HashKey, Prefix, Vrp};

use crate::tests::pipeline::{
    policies::program,
    speaker::{
        OUR_AS, Sink, address, announcement, announcement_of, checked, ebgp, facts, ibgp, prefix, settle,
        speaker,
    },
};

type Shared = Rc<RefCell<Authorizations>>;

fn vrp(text: &str, max_length: u8, asn: u32) -> Vrp {
    Vrp::new(prefix(text), max_length, Asn(asn)).expect("fits")
}

/// A pipeline that validates by these, and what it goes by.
fn validating(vrps: &[Vrp]) -> (Pipeline, Shared) {
    let mut pipeline = checked(speaker(NextHopMode::AlwaysReachable));
    let shared = Rc::new(RefCell::new(Authorizations::new(HashKey::new([1, 0]))));
    shared.borrow_mut().apply(&Delta { announced: vrps.to_vec(), ..Delta::default() });
    pipeline.set_authorizations(Some(shared.clone()));
    (pipeline, shared)
}

fn change(pipeline: &mut Pipeline, shared: &Shared, delta: Delta) {
    let affected = shared.borrow_mut().apply(&delta);
    pipeline.authorizations_changed(&affected);
}

fn announced(vrps: &[Vrp]) -> Delta {
    Delta { announced: vrps.to_vec(), ..Delta::default() }
}

fn withdrawn(vrps: &[Vrp]) -> Delta {
    Delta { withdrawn: vrps.to_vec(), ..Delta::default() }
}

fn attributes(path: &[u32], from: u8) -> Vec<u8> {
    with_states(path, from, &[])
}

fn with_states(path: &[u32], from: u8, states: &[u64]) -> Vec<u8> {
    let as_path = path.iter().map(|asn| Asn(*asn)).collect();
    let builder = AttributesBuilder {
        as_path,
        next_hop: Some(address(from)),
        local_pref: Some(100),
        ..AttributesBuilder::new(Origin::Igp)
    };
    let mut bytes = builder.build();
    if !states.is_empty() {
        bytes.extend([0xc0, 16, 8 * states.len() as u8]);
        states.iter().for_each(|state| bytes.extend(state.to_be_bytes()));
    }
    bytes
}

/// Refuses routes of which one of these holds.
fn refusing(conditions: Vec<Condition>) -> Program {
    let refuse = |(number, condition): (usize, Condition)| Term {
        name: format!("refuse-{number}"),
        from: vec![condition],
        then: vec![],
        outcome: Outcome::Reject,
    };
    let mut terms: Vec<_> = conditions.into_iter().enumerate().map(refuse).collect();
    terms.push(Term { name: "rest".into(), from: vec![], then: vec![], outcome: Outcome::Accept });
    program(terms)
}

fn no_invalid() -> Program {
    refusing(vec![Condition::Validity(vec![Validity::Invalid])])
}

fn up(pipeline: &mut Pipeline, n: u8, config: PeerConfig) -> PeerIndex {
    let peer = pipeline.add_peer(config);
    pipeline.peer_up(peer, facts(n)).expect("room");
    peer
}

fn states(pipeline: &mut Pipeline, prefix: Prefix) -> States {
    pipeline.explain(prefix)[0].states.expect("validated")
}

fn validities(pipeline: &mut Pipeline, prefixes: &[Prefix]) -> Vec<Validity> {
    prefixes.iter().map(|prefix| states(pipeline, *prefix).validity).collect()
}

const VALID: &str = "192.0.2.0/24";
const INVALID: &str = "198.51.100.0/24";
const NOT_FOUND: &str = "203.0.113.0/24";
const VALID_6: &str = "2001:db8:1::/48";

/// AS 7 may originate one of the three, somebody else another, and nobody has said anything of the third.
fn three() -> Vec<Vrp> {
    vec![vrp(VALID, 24, 7), vrp(INVALID, 24, 8), vrp("2001:db8::/32", 48, 7)]
}

#[test]
fn prefixes_of_one_update_are_judged_apart_and_come_out_together() {
    let (mut pipeline, _) = validating(&three());
    let from = up(&mut pipeline, 1, PeerConfig { import: Some(no_invalid()), ..ebgp(1) });
    let to = up(&mut pipeline, 2, ebgp(2));
    let mut sinks = [(to, Sink::default())];
    settle(&mut pipeline, &mut sinks);
    let before = sinks[0].1.messages;
    let routes = [VALID, INVALID, NOT_FOUND].map(prefix);
    pipeline.update(from, &announcement(&attributes(&[65101, 7], 1), &routes)).expect("taken");
    pipeline.update(from, &announcement(&attributes(&[65101, 7], 1), &[prefix(VALID_6)])).expect("taken");
    assert_eq!(
        validities(&mut pipeline, &[VALID, INVALID, NOT_FOUND, VALID_6].map(prefix)),
        [Validity::Valid, Validity::Invalid, Validity::NotFound, Validity::Valid]
    );
    let refused = PathState::Rejected { policy: "p".into(), term: "refuse-0".into() };
    assert_eq!(pipeline.explain(prefix(INVALID))[0].state, refused);
    settle(&mut pipeline, &mut sinks);
    let told: Vec<_> = sinks[0].1.routes.keys().copied().collect();
    assert_eq!(told, [VALID, NOT_FOUND, VALID_6].map(prefix));
    assert!(sinks[0].1.messages - before <= 3, "one for each state at most");
    // The same again is nothing new, and the counts are those of one peer's routes.
    pipeline.update(from, &announcement(&attributes(&[65101, 7], 1), &routes)).expect("taken");
    assert!(!pipeline.pending(to));
}

#[test]
fn there_is_a_set_for_each_state_that_routes_have_and_none_beside() {
    let (mut pipeline, _) = validating(&three());
    let from = up(&mut pipeline, 1, ebgp(1));
    let before = pipeline.attribute_sets();
    let mut sets_after = |routes: &[&str]| {
        let routes: Vec<_> = routes.iter().map(|route| prefix(route)).collect();
        pipeline.update(from, &announcement(&attributes(&[65101, 7], 1), &routes)).expect("taken");
        pipeline.attribute_sets() - before
    };
    assert_eq!(sets_after(&[VALID]), 1);
    assert_eq!(sets_after(&[VALID, INVALID]), 2);
    assert_eq!(sets_after(&[INVALID, VALID]), 2);
    assert_eq!(sets_after(&[NOT_FOUND, INVALID, VALID]), 3);
    assert_eq!(
        validities(&mut pipeline, &[VALID, INVALID, NOT_FOUND].map(prefix)),
        [Validity::Valid, Validity::Invalid, Validity::NotFound]
    );
}

#[test]
fn a_change_moves_what_it_concerns_and_nobody_is_told_of_anything_else() {
    let (mut pipeline, shared) = validating(&three());
    let from = up(&mut pipeline, 1, PeerConfig { import: Some(no_invalid()), ..ebgp(1) });
    let to = up(&mut pipeline, 2, ebgp(2));
    let routes = [VALID, INVALID, NOT_FOUND].map(prefix);
    pipeline.update(from, &announcement(&attributes(&[65101, 7], 1), &routes)).expect("taken");
    let mut sinks = [(to, Sink::default())];
    settle(&mut pipeline, &mut sinks);
    let quiet = sinks[0].1.messages;

    // Of what nobody is told: valid becomes not found, and back.
    change(&mut pipeline, &shared, withdrawn(&three()[..1]));
    assert!(!pipeline.is_settled());
    settle(&mut pipeline, &mut sinks);
    assert_eq!(states(&mut pipeline, prefix(VALID)).validity, Validity::NotFound);
    change(&mut pipeline, &shared, announced(&three()[..1]));
    settle(&mut pipeline, &mut sinks);
    assert_eq!(states(&mut pipeline, prefix(VALID)).validity, Validity::Valid);
    assert_eq!(sinks[0].1.messages, quiet, "nothing that can be seen has changed");

    // What was refused passes now, and what passed is withdrawn; the third stays as it is.
    change(&mut pipeline, &shared, announced(&[vrp(INVALID, 24, 7), vrp("203.0.112.0/22", 24, 9)]));
    settle(&mut pipeline, &mut sinks);
    let told: Vec<_> = sinks[0].1.routes.keys().copied().collect();
    assert_eq!(told, [VALID, INVALID].map(prefix));
    assert_eq!((sinks[0].1.messages, sinks[0].1.idle_withdrawals), (quiet + 2, 0));
    let counts = pipeline.counts(from, Family::IPV4_UNICAST).routes;
    assert_eq!((counts.received, counts.accepted, counts.best), (3, 2, 2));
    // And nothing is left of what was: each state in use has its set, and no other.
    for _ in 0..3 {
        change(&mut pipeline, &shared, withdrawn(&three()));
        settle(&mut pipeline, &mut sinks);
        change(&mut pipeline, &shared, announced(&three()));
        settle(&mut pipeline, &mut sinks);
        while pipeline.work(100) {}
        assert_eq!(pipeline.attribute_sets(), 2);
    }
}

#[test]
fn a_route_that_turns_invalid_gives_way_to_another_one() {
    let (mut pipeline, shared) = validating(&[vrp(VALID, 24, 7), vrp("10.0.0.0/8", 8, 1)]);
    let first = up(&mut pipeline, 1, PeerConfig { import: Some(no_invalid()), ..ebgp(1) });
    let second = up(&mut pipeline, 2, PeerConfig { import: Some(no_invalid()), ..ebgp(2) });
    pipeline.update(first, &announcement(&attributes(&[65101, 7], 1), &[prefix(VALID)])).expect("taken");
    pipeline.update(second, &announcement(&attributes(&[65102, 6, 8], 2), &[prefix(VALID)])).expect("taken");
    let best = |pipeline: &mut Pipeline| {
        let paths = pipeline.explain(prefix(VALID));
        paths.into_iter().find(|path| path.is_best).and_then(|path| path.peer)
    };
    assert_eq!(best(&mut pipeline), Some(first));
    let delta =
        Delta { announced: vec![vrp(VALID, 24, 8)], withdrawn: vec![vrp(VALID, 24, 7)], ..Delta::default() };
    change(&mut pipeline, &shared, delta);
    settle(&mut pipeline, &mut []);
    assert_eq!(best(&mut pipeline), Some(second));
}

#[test]
fn a_large_change_is_a_walk_and_ends_where_small_ones_do() {
    let (mut pipeline, shared) = validating(&[]);
    let from = up(&mut pipeline, 1, PeerConfig { import: Some(no_invalid()), ..ebgp(1) });
    let routes: Vec<Prefix> =
        (0..6000u32).map(|n| prefix(&format!("10.{}.{}.0/24", n >> 8, n & 255))).collect();
    for routes in routes.chunks(500) {
        pipeline.update(from, &announcement(&attributes(&[65101, 7], 1), routes)).expect("taken");
    }
    // More prefixes than are looked at one by one; every third is somebody else's.
    let grants: Vec<_> = routes
        .iter()
        .enumerate()
        .map(|(n, route)| Vrp::new(*route, 24, Asn(7 + (n % 3 / 2) as u32)).expect("fits"))
        .collect();
    change(&mut pipeline, &shared, announced(&grants));
    settle(&mut pipeline, &mut []);
    let invalid = |pipeline: &mut Pipeline| {
        routes.iter().filter(|route| states(pipeline, **route).validity == Validity::Invalid).count()
    };
    assert_eq!(invalid(&mut pipeline), 2000);
    // One that covers all, with little to do at a time.
    change(&mut pipeline, &shared, announced(&[vrp("10.0.0.0/8", 24, 7)]));
    while pipeline.work(7) || pipeline.is_waiting() {}
    assert_eq!(invalid(&mut pipeline), 0);
    assert!(pipeline.is_settled() && !pipeline.is_revalidating());
    // Without any, nothing is known of them; without anybody to ask, they have no state.
    change(&mut pipeline, &shared, withdrawn(&[vrp("10.0.0.0/8", 24, 7)]));
    pipeline.set_authorizations(None);
    settle(&mut pipeline, &mut []);
    assert_eq!(pipeline.explain(routes[0])[0].states, None);
    assert_eq!(pipeline.explain(routes[2])[0].state, PathState::Best);
}

#[test]
fn a_slice_is_as_long_as_its_budget_however_many_prefixes_it_is_about() {
    const OUTER: u8 = 60;
    const INNER: usize = 250;
    const BUDGET: usize = 256;
    let outer = |n: u8, asn| vrp(&format!("10.{n}.0.0/16"), 24, asn);
    let (mut pipeline, shared) = validating(&(0..OUTER).map(|n| outer(n, 8)).collect::<Vec<_>>());
    let from = up(&mut pipeline, 1, ebgp(1));
    for n in 0..OUTER {
        let routes: Vec<_> = (0..INNER).map(|low| prefix(&format!("10.{n}.{low}.0/24"))).collect();
        pipeline.update(from, &announcement(&attributes(&[65101, 7], 1), &routes)).expect("taken");
    }
    settle(&mut pipeline, &mut []);
    // They are invalid already, and another AS that may originate them makes no difference.
    let delta = announced(&(0..OUTER).map(|n| outer(n, 9)).collect::<Vec<_>>());
    change(&mut pipeline, &shared, delta);
    let mut slices = 0;
    while pipeline.is_revalidating() {
        pipeline.work(BUDGET);
        slices += 1;
    }
    let least = (usize::from(OUTER) * INNER).div_ceil(BUDGET);
    assert!((least..=2 * least).contains(&slices), "{slices} slices, {least} would do");
}

#[test]
fn what_changes_all_the_time_is_looked_at_in_its_turn_and_keeps_nothing_else_waiting() {
    let (mut pipeline, shared) = validating(&[vrp("10.0.0.0/8", 24, 7), vrp("203.0.113.0/24", 24, 7)]);
    let from = up(&mut pipeline, 1, ebgp(1));
    let inside: Vec<_> = (0..250).map(|n| prefix(&format!("10.0.{n}.0/24"))).collect();
    pipeline.update(from, &announcement(&attributes(&[65101, 7], 1), &inside)).expect("taken");
    pipeline.update(from, &announcement(&attributes(&[65101, 7], 1), &[prefix(NOT_FOUND)])).expect("taken");
    settle(&mut pipeline, &mut []);
    let flips = [vrp("10.0.0.0/8", 24, 8)];
    for _ in 0..1000 {
        change(&mut pipeline, &shared, announced(&flips));
        change(&mut pipeline, &shared, withdrawn(&flips));
    }
    change(&mut pipeline, &shared, withdrawn(&[vrp("203.0.113.0/24", 24, 7)]));
    for _ in 0..4 {
        change(&mut pipeline, &shared, announced(&flips));
        change(&mut pipeline, &shared, withdrawn(&flips));
        pipeline.work(200);
    }
    assert_eq!(states(&mut pipeline, prefix(NOT_FOUND)).validity, Validity::NotFound);
}

#[test]
fn a_path_without_an_as_is_ours_only_where_it_comes_from_inside() {
    let (mut pipeline, _) = validating(&[vrp(VALID, 24, 65000)]);
    let outside =
        PeerConfig { paths: PathRules { enforce_first_as: false, ..PathRules::default() }, ..ebgp(1) };
    for (n, config, validity) in [(1, outside, Validity::Invalid), (2, ibgp_client(2), Validity::Valid)] {
        let from = up(&mut pipeline, n, config);
        pipeline.update(from, &announcement(&attributes(&[], n), &[prefix(VALID)])).expect("taken");
        assert_eq!(states(&mut pipeline, prefix(VALID)).validity, validity, "from {n}");
        pipeline.peer_down(from);
        settle(&mut pipeline, &mut []);
    }
}

#[test]
fn most_of_the_vrps_are_not_all_of_them() {
    let (mut pipeline, shared) = validating(&three());
    settle(&mut pipeline, &mut []);
    // Two go, one stays: nobody's word counts that did not before. The walk is for when the last one goes.
    change(&mut pipeline, &shared, withdrawn(&three()[..2]));
    assert!(pipeline.is_revalidating() && !pipeline.work(2), "two prefixes and no walk");
    assert!(!pipeline.is_revalidating());
    change(&mut pipeline, &shared, withdrawn(&three()[2..]));
    assert!(pipeline.work(2), "a walk goes on to the other family");
    settle(&mut pipeline, &mut []);
}

#[test]
fn who_is_slow_is_waited_for_as_long_with_a_change_as_without() {
    let waits = |changes: bool, walks: bool| {
        let (mut pipeline, shared) = validating(&three());
        let from = up(&mut pipeline, 1, ebgp(1));
        up(&mut pipeline, 2, ebgp(2));
        let routes = [VALID, INVALID, NOT_FOUND].map(prefix);
        pipeline.update(from, &announcement(&attributes(&[65101, 7], 1), &routes)).expect("taken");
        // The second peer reads nothing.
        if walks {
            pipeline.revalidate();
        }
        if changes {
            change(&mut pipeline, &shared, withdrawn(&three()[..1]));
        }
        let mut waits = 0;
        loop {
            pipeline.work(1);
            if !pipeline.is_waiting() {
                return waits;
            }
            waits += 1;
        }
    };
    let patience = waits(false, true);
    assert!(patience > 1);
    assert_eq!([waits(true, false), waits(true, true)], [patience; 2]);
}

#[test]
fn a_path_that_is_swept_on_the_way_leaves_its_place_before_another_takes_it() {
    let (mut pipeline, shared) = validating(&three());
    let other = up(&mut pipeline, 1, ebgp(1));
    let before = ["10.0.0.0/24", "10.0.1.0/24"].map(prefix);
    pipeline.update(other, &announcement(&attributes(&[65101, 7], 1), &before)).expect("taken");
    let identifiers_received = Family::ALL.into_iter().collect();
    let from = pipeline.add_peer(ebgp(2));
    pipeline.peer_up(from, SessionFacts { identifiers_received, ..facts(2) }).expect("room");
    let announce = |pipeline: &mut Pipeline, identifier| {
        let body = announcement_of(Some(identifier), &attributes(&[65102, 7], 2), &[prefix(VALID)]);
        pipeline.update(from, &body).expect("taken");
    };
    announce(&mut pipeline, 1);
    settle(&mut pipeline, &mut []);
    // It does not come again, and the change comes by before the walk does.
    pipeline.begin_refresh(from, Family::IPV4_UNICAST);
    pipeline.end_refresh(from, Family::IPV4_UNICAST);
    change(&mut pipeline, &shared, withdrawn(&three()[..1]));
    pipeline.work(before.len());
    assert!(pipeline.explain(prefix(VALID)).is_empty() && !pipeline.is_settled());
    // It is back, and has its place for itself.
    announce(&mut pipeline, 1);
    settle(&mut pipeline, &mut []);
    announce(&mut pipeline, 2);
    assert_eq!(pipeline.explain(prefix(VALID)).len(), 2);
}

#[test]
fn what_comes_while_a_walk_is_under_way_is_not_lost() {
    let (mut pipeline, shared) = validating(&three());
    let from = up(&mut pipeline, 1, ebgp(1));
    let routes = [VALID, INVALID, NOT_FOUND].map(prefix);
    pipeline.update(from, &announcement(&attributes(&[65101, 7], 1), &routes)).expect("taken");
    settle(&mut pipeline, &mut []);
    pipeline.revalidate();
    // It has come by the first, which changes behind its back.
    pipeline.work(1);
    change(&mut pipeline, &shared, withdrawn(&three()[..1]));
    settle(&mut pipeline, &mut []);
    assert_eq!(
        validities(&mut pipeline, &routes),
        [Validity::NotFound, Validity::Invalid, Validity::NotFound]
    );
}

#[test]
fn paths_are_verified_by_what_we_are_to_the_neighbour() {
    let (mut pipeline, shared) = validating(&three());
    let role = |role| PathRules { role: Some(role), ..PathRules::default() };
    let no_leaks = refusing(vec![Condition::Aspa(vec![PathValidity::Invalid])]);
    // A provider of ours, and a customer.
    let provider = PeerConfig { import: Some(no_leaks.clone()), paths: role(BgpRole::Customer), ..ebgp(1) };
    let provider = up(&mut pipeline, 1, provider);
    let customer = PeerConfig { import: Some(no_leaks), paths: role(BgpRole::Provider), ..ebgp(2) };
    let customer = up(&mut pipeline, 2, customer);
    let nobody = up(&mut pipeline, 3, ebgp(3));
    for (peer, n) in [(provider, 1), (customer, 2), (nobody, 3)] {
        let path = [65100 + u32::from(n), 6, 7];
        pipeline.update(peer, &announcement(&attributes(&path, n), &[prefix(NOT_FOUND)])).expect("taken");
    }
    let of = |pipeline: &mut Pipeline| {
        let paths = pipeline.explain(prefix(NOT_FOUND));
        let of = |peer| {
            paths
                .iter()
                .find(|path| path.peer == Some(peer))
                .and_then(|path| path.states)
                .map(|states| states.path)
        };
        [of(provider), of(customer), of(nobody)]
    };
    assert_eq!(of(&mut pipeline), [Some(PathValidity::Unknown); 3]);
    let aspa =
        |customer, providers: &[u32]| Aspa::new(Asn(customer), providers.iter().copied().map(Asn).collect());
    // 7 goes up to 6, which has no other provider than 9: from our customer it is a leak, from our provider it is none.
    change(&mut pipeline, &shared, Delta { aspas: vec![aspa(7, &[6]), aspa(6, &[9])], ..Delta::default() });
    settle(&mut pipeline, &mut []);
    assert_eq!(
        of(&mut pipeline),
        [PathValidity::Valid, PathValidity::Invalid, PathValidity::Unknown].map(Some)
    );
    let view = pipeline.explain(prefix(NOT_FOUND));
    let leak = view.iter().find(|path| path.peer == Some(customer)).expect("kept");
    assert_eq!(leak.state, PathState::Rejected { policy: "p".into(), term: "refuse-0".into() });
    let gone = Delta { without_aspa: vec![Asn(6)], ..Delta::default() };
    change(&mut pipeline, &shared, gone);
    settle(&mut pipeline, &mut []);
    assert_eq!(
        of(&mut pipeline),
        [PathValidity::Valid, PathValidity::Unknown, PathValidity::Unknown].map(Some)
    );
}

#[test]
fn our_own_routes_come_from_us() {
    let (mut pipeline, shared) = validating(&[vrp(VALID, 24, OUR_AS.0), vrp(INVALID, 24, 7)]);
    for route in [VALID, INVALID] {
        pipeline.originate(prefix(route), &OriginateAttributes::default());
    }
    assert_eq!(
        validities(&mut pipeline, &[VALID, INVALID].map(prefix)),
        [Validity::Valid, Validity::Invalid]
    );
    // An export policy may keep them here (RFC 8893).
    let to = up(&mut pipeline, 1, PeerConfig { export: Some(no_invalid()), ..ebgp(1) });
    let mut sinks = [(to, Sink::default())];
    settle(&mut pipeline, &mut sinks);
    assert_eq!(sinks[0].1.routes.keys().copied().collect::<Vec<_>>(), [prefix(VALID)]);
    let before = sinks[0].1.messages;
    change(&mut pipeline, &shared, withdrawn(&[vrp(INVALID, 24, 7)]));
    settle(&mut pipeline, &mut sinks);
    assert_eq!((sinks[0].1.routes.len(), sinks[0].1.messages), (2, before + 1));
}

/// A client of ours as a route reflector.
fn ibgp_client(n: u8) -> PeerConfig {
    PeerConfig { paths: PathRules { route_reflector_client: true, ..PathRules::default() }, ..ibgp(n) }
}

const STATE: u64 = 0x4300_0000_0000_0000;

fn told_states(sink: &Sink, route: &str) -> Vec<u64> {
    let held = &sink.routes[&prefix(route)];
    Attributes(&held.attributes).ext_communities().map(u64::from_be_bytes).collect()
}

#[test]
fn the_state_goes_to_internal_peers_that_are_to_have_it_and_never_out() {
    let (mut pipeline, shared) = validating(&three());
    let from = up(&mut pipeline, 1, ebgp(1));
    let announce = PathRules { announce_validity: true, ..PathRules::default() };
    let informed = up(&mut pipeline, 2, PeerConfig { paths: announce.clone(), ..ibgp(2) });
    let other = up(&mut pipeline, 3, ibgp(3));
    let outside = up(&mut pipeline, 4, PeerConfig { paths: announce, ..ebgp(4) });
    let internal = || Sink { internal: true, ..Sink::default() };
    let mut sinks = [(informed, internal()), (other, internal()), (outside, Sink::default())];
    // What it claims itself is nobody's concern (RFC 8097 section 2), what else it says is.
    let claims = with_states(&[65101, 7], 1, &[STATE, 0x0002_0001_0000_0007]);
    let routes = [VALID, INVALID, NOT_FOUND].map(prefix);
    pipeline.update(from, &announcement(&claims, &routes)).expect("taken");
    settle(&mut pipeline, &mut sinks);
    for (route, state) in [(VALID, 0), (INVALID, 2), (NOT_FOUND, 1)] {
        assert_eq!(told_states(&sinks[0].1, route), [0x0002_0001_0000_0007, STATE | state], "{route}");
        assert_eq!(told_states(&sinks[1].1, route), [0x0002_0001_0000_0007], "{route}");
        assert_eq!(told_states(&sinks[2].1, route), [0x0002_0001_0000_0007], "{route}");
    }
    let before: Vec<_> = sinks.iter().map(|(_, sink)| sink.messages).collect();
    change(&mut pipeline, &shared, withdrawn(&three()[..1]));
    settle(&mut pipeline, &mut sinks);
    assert_eq!(told_states(&sinks[0].1, VALID)[1], STATE | 1);
    let after: Vec<_> = sinks.iter().map(|(_, sink)| sink.messages).collect();
    assert_eq!(after, [before[0] + 1, before[1], before[2]], "it is told to whom it is to be told");
}

#[test]
fn the_state_of_an_internal_peer_counts_where_nothing_is_known_here() {
    let mut pipeline = checked(speaker(NextHopMode::AlwaysReachable));
    let accept = PathRules { accept_validity: true, ..PathRules::default() };
    let trusted =
        up(&mut pipeline, 1, PeerConfig { paths: accept.clone(), import: Some(no_invalid()), ..ibgp(1) });
    let outside = up(&mut pipeline, 2, PeerConfig { paths: accept, ..ebgp(2) });
    let said = [(VALID, vec![STATE]), (INVALID, vec![STATE, STATE | 2]), (NOT_FOUND, vec![STATE | 7])];
    for (route, states) in &said {
        let bytes = with_states(&[65102, 7], 1, states);
        pipeline.update(trusted, &announcement(&bytes, &[prefix(route)])).expect("taken");
    }
    let all = [VALID, INVALID, NOT_FOUND].map(prefix);
    let expected = [Validity::Valid, Validity::Invalid, Validity::NotFound];
    assert_eq!(validities(&mut pipeline, &all), expected);
    // It goes on inside, and not out.
    let (internal, external) = (up(&mut pipeline, 3, ibgp_client(3)), up(&mut pipeline, 4, ebgp(4)));
    let mut sinks = [(internal, Sink { internal: true, ..Sink::default() }), (external, Sink::default())];
    settle(&mut pipeline, &mut sinks);
    assert_eq!(told_states(&sinks[0].1, VALID), [STATE]);
    assert_eq!(told_states(&sinks[1].1, VALID), Vec::<u64>::new());
    pipeline
        .update(outside, &announcement(&with_states(&[65102, 7], 2, &[STATE | 2]), &[prefix("10.0.0.0/8")]))
        .expect("taken");
    assert_eq!(pipeline.explain(prefix("10.0.0.0/8"))[0].states, None);
    // What is known here comes before what is said (RFC 8097 section 2).
    let shared = Rc::new(RefCell::new(Authorizations::new(HashKey::new([1, 0]))));
    pipeline.set_authorizations(Some(shared.clone()));
    settle(&mut pipeline, &mut []);
    assert_eq!(validities(&mut pipeline, &all), expected);
    change(&mut pipeline, &shared, announced(&[vrp(VALID, 24, 9)]));
    settle(&mut pipeline, &mut []);
    assert_eq!(validities(&mut pipeline, &all), [Validity::Invalid, Validity::NotFound, Validity::NotFound]);
}

#[test]
fn a_peer_may_be_left_out_and_taken_in_again() {
    let (mut pipeline, _) = validating(&three());
    let config = PeerConfig { import: Some(no_invalid()), ..ebgp(1) };
    let from = up(&mut pipeline, 1, config.clone());
    pipeline.update(from, &announcement(&attributes(&[65101, 7], 1), &[prefix(INVALID)])).expect("taken");
    let unvalidated = PathRules { origin_validation: false, ..PathRules::default() };
    pipeline.configure_peer(from, PeerConfig { paths: unvalidated, ..config.clone() });
    settle(&mut pipeline, &mut []);
    let path = &pipeline.explain(prefix(INVALID))[0];
    assert_eq!((path.states, &path.state), (None, &PathState::Best));
    while pipeline
        .poll_event()
        .is_some_and(|event| !matches!(event, Event::PolicyApplied { direction: Direction::Import, .. }))
    {
    }
    pipeline.configure_peer(from, config);
    settle(&mut pipeline, &mut []);
    assert_eq!(states(&mut pipeline, prefix(INVALID)).validity, Validity::Invalid);
    assert!(!pipeline.explain(prefix(INVALID))[0].is_best);
}
