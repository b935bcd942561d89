//! The whole pipeline against a naive model: maps of all routes, everything computed from scratch.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr},
    time::Instant,
};

use holdfast_bgp_pipeline::{
    AggregateConfig, CheckStage, FamilySet, JournalEntry, LOCAL_WEIGHT, Limits, NextHopMode,
    OriginateAttributes, PathRules, PeerConfig, PeerIndex, Pipeline, Reachability, RibChanges, RibRun,
    SendPaths, SessionFacts, SpeakerConfig,
};
use holdfast_bgp_wire::{Origin, edit::AttributesBuilder};
use holdfast_policy::{
    Action, Condition, Library, MedAction, NextHopEdit, Outcome, Policy, PolicySource, Program, Term,
};
use holdfast_types::{Asn, Family, Prefix};
use proptest::prelude::*;

use crate::tests::pipeline::journal::Entries;
use crate::tests::pipeline::speaker::{
    Held, OUR_AS, Sink, announcement_of, checked, ebgp, facts, ibgp, prefix, settle, speaker, withdrawal_of,
};

const PEERS: usize = 5;
/// The last of the peers is internal, as is the one before.
const FIRST_INTERNAL: usize = 3;
/// One of those that are sent several paths.
const LAST: usize = PEERS - 1;
const PREFIXES: usize = 12;
pub(crate) const POLICIES: usize = 5;
/// The last is for export only.
pub(crate) const EXPORT_POLICIES: usize = POLICIES + 1;

/// What a peer sends: enough kinds to tie at every step.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Offer {
    hops: u8,
    med: u8,
    local_pref: u8,
    next_hop: u8,
    community: u8,
}

#[derive(Clone, Debug)]
enum Op {
    /// Under an identifier, where the session has agreed on these.
    Announce(usize, Vec<usize>, u32, Offer),
    Withdraw(usize, usize, u32),
    Down(usize),
    Up(usize),
    NextHop(u8, Option<u8>),
    Import(usize, usize),
    Export(usize, usize),
    /// So many of the best paths for those that are sent several; 0: all.
    SendPaths(u8),
    Refresh(usize),
    Originate(usize),
    WithdrawOrigin(usize),
    /// Other aggregates: see [`aggregates`].
    Aggregates(usize),
    /// A peer is told of a default route of our own, or not any more.
    DefaultRoute(usize, bool),
    /// The RIB is told of backups beside the paths of a peer, or not any more.
    Protect(usize, bool),
    Work(usize),
    Pull(usize),
    PullRib(usize),
    ResyncRib,
    /// Another process goes on, which knows what was received, and the journal: as it is, or rewritten. Also the path
    /// identifiers of the sessions, or not.
    Restart(bool, bool),
}

fn offer() -> impl Strategy<Value = Offer> {
    (0..3u8, 0..3u8, 0..2u8, 0..3u8, 0..4u8).prop_map(|(hops, med, local_pref, next_hop, community)| Offer {
        hops,
        med,
        local_pref,
        next_hop,
        community,
    })
}

fn op() -> impl Strategy<Value = Op> {
    let peer = || 0..PEERS;
    prop_oneof![
        12 => (peer(), prop::collection::vec(0..PREFIXES, 1..6), 0..3u32, offer())
            .prop_map(|(peer, routes, identifier, offer)| Op::Announce(peer, routes, identifier, offer)),
        4 => (peer(), 0..PREFIXES, 0..3u32)
            .prop_map(|(peer, route, identifier)| Op::Withdraw(peer, route, identifier)),
        1 => (0..4u8).prop_map(Op::SendPaths),
        1 => peer().prop_map(Op::Down),
        2 => peer().prop_map(Op::Up),
        2 => (0..3u8, prop::option::of(0..3u8)).prop_map(|(hop, metric)| Op::NextHop(hop, metric)),
        1 => (peer(), 0..POLICIES).prop_map(|(peer, policy)| Op::Import(peer, policy)),
        2 => (peer(), 0..EXPORT_POLICIES).prop_map(|(peer, policy)| Op::Export(peer, policy)),
        3 => peer().prop_map(Op::Refresh),
        1 => (0..PREFIXES).prop_map(Op::Originate),
        1 => (0..PREFIXES).prop_map(Op::WithdrawOrigin),
        1 => (0..AGGREGATES).prop_map(Op::Aggregates),
        1 => (peer(), any::<bool>()).prop_map(|(peer, on)| Op::DefaultRoute(peer, on)),
        6 => (1..6usize).prop_map(Op::Work),
        8 => peer().prop_map(Op::Pull),
        1 => any::<[bool; 2]>().prop_map(|[rewritten, knows]| Op::Restart(rewritten, knows)),
        3 => (1..4usize).prop_map(Op::PullRib),
        4 => (peer(), any::<bool>()).prop_map(|(peer, on)| Op::Protect(peer, on)),
        1 => Just(Op::ResyncRib),
    ]
}

/// The last two of each family are the default, and one around all others.
fn route(n: usize) -> Prefix {
    match n {
        4 => prefix("0.0.0.0/0"),
        5 => prefix("10.0.0.0/13"),
        10 => prefix("::/0"),
        11 => prefix("2001:db8::/32"),
        n if n < PREFIXES / 2 => prefix(&format!("10.{n}.0.0/16")),
        n => prefix(&format!("2001:db8:{n}::/48")),
    }
}

const AGGREGATES: usize = 4;

/// Each with whether it is `summary-only`, and by which policy of [`programs`] routes contribute.
fn aggregates(n: usize) -> Vec<(Prefix, bool, Option<usize>)> {
    let list: &[(&str, bool, Option<usize>)] = match n {
        0 => &[],
        1 => &[("10.0.0.0/13", false, None), ("2001:db8::/32", true, None)],
        2 => &[("10.0.0.0/8", true, None), ("10.0.0.0/14", false, None), ("2001:db8::/32", false, Some(3))],
        _ => &[("10.0.0.0/8", false, None), ("10.0.0.0/14", true, Some(3)), ("2001:db8::/44", true, None)],
    };
    list.iter().map(|(text, summary_only, by)| (prefix(text), *summary_only, *by)).collect()
}

fn hop(n: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, n))
}

/// IPv6 routes of the tests all have this one.
fn hop_v6() -> IpAddr {
    "2001:db8:ffff::1".parse().expect("an address")
}

/// The session of a peer: each is on a link of its own, where we have other addresses. What IPv4 routes need is of
/// equal length for all, IPv6 routes for the last two need a link-local address besides.
fn link(n: usize) -> SessionFacts {
    SessionFacts {
        next_hop_v4: Some(Ipv4Addr::new(10, 9, n as u8, 1)),
        next_hop_v6: Some(format!("2001:db8:9:{n}::1").parse().expect("an address")),
        number: n as u32 + 1,
        identifiers_received: identifiers_of(n)[0],
        identifiers_sent: identifiers_of(n)[1],
        enhanced_refresh: n % 2 == 1,
        link_local: (n >= FIRST_INTERNAL).then(|| format!("fe80::{n}").parse().expect("an address")),
        ..facts(n as u8)
    }
}

/// Where a peer's prefixes have path identifiers, and where ours for it have them.
fn identifiers_of(n: usize) -> [FamilySet; 2] {
    let all: FamilySet = Family::ALL.into_iter().collect();
    match n {
        0 => [[Family::IPV4_UNICAST].into_iter().collect(), FamilySet::NONE],
        1 => [all, all],
        LAST => [FamilySet::NONE, all],
        _ => [FamilySet::NONE; 2],
    }
}

/// Whether a peer is sent several paths.
fn takes_several(n: usize) -> bool {
    identifiers_of(n)[1] != FamilySet::NONE
}

/// Whom policy 5 names as next hop.
fn third_party() -> Ipv4Addr {
    Ipv4Addr::new(203, 0, 113, 9)
}

/// A weight above that of our own routes.
const HEAVY: u32 = LOCAL_WEIGHT + 1;

/// Policy 0 takes all, 1 nothing, 2 is none at all; 3 looks at attributes, 4 at the prefix too, 5 sets next hops.
pub(crate) fn programs() -> [Option<Program>; EXPORT_POLICIES] {
    let term = |name: &str, from, then, outcome| Term { name: name.into(), from, then, outcome };
    let tagged = Condition::Community(vec!["65000:1".parse().expect("a pattern")]);
    let refused = Condition::Community(vec!["65000:2".parse().expect("a pattern")]);
    let low = Condition::Prefix(vec!["10.0.0.0/15 le 32".parse().expect("a range")]);
    let ourselves = Action::NextHop(NextHopEdit::SelfAddress);
    let other = Action::NextHop(NextHopEdit::Address(third_party().into()));
    let next_hops = vec![
        term("t7", vec![tagged.clone()], vec![ourselves], Outcome::Accept),
        term("t8", vec![refused.clone()], vec![other], Outcome::Accept),
        term("t9", vec![], vec![], Outcome::Accept),
    ];
    let by_attributes = vec![
        term("t1", vec![tagged.clone()], vec![Action::LocalPreference(300)], Outcome::Accept),
        term("t2", vec![refused.clone()], vec![], Outcome::Reject),
        term("t3", vec![], vec![], Outcome::Accept),
    ];
    let by_prefix = vec![
        term("t4", vec![low.clone(), tagged], vec![], Outcome::Reject),
        term("t5", vec![low], vec![Action::Med(MedAction::Set(77))], Outcome::Accept),
        term("t6", vec![refused], vec![Action::Weight(HEAVY)], Outcome::Accept),
        term("t6b", vec![], vec![], Outcome::Accept),
    ];
    let policy = |name: &str, terms| Policy { name: name.into(), first: vec![], terms, last: None };
    let policies = vec![
        policy("next-hops", next_hops),
        policy("attributes", by_attributes),
        policy("prefix", by_prefix),
    ];
    let library = Library::compile(&PolicySource { policies, ..PolicySource::default() }, 1).expect("sound");
    let get = |name| library.get(name).cloned();
    [get("accept-all"), get("reject-all"), None, get("attributes"), get("prefix"), get("next-hops")]
}

/// A route in the model.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Route {
    /// The sender; `None` for our own.
    peer: Option<usize>,
    path: Vec<u32>,
    med: Option<u32>,
    local_pref: u32,
    next_hop: Option<IpAddr>,
    community: u8,
    weight: u32,
    is_aggregate: bool,
}

impl Route {
    fn received(peer: usize, to: Prefix, offer: &Offer) -> Self {
        let internal = peer >= FIRST_INTERNAL;
        let mut path: Vec<u32> = (0..u32::from(offer.hops)).map(|n| 64001 + n).collect();
        if !internal {
            path.insert(0, 65101 + peer as u32 % 2);
        }
        Self {
            peer: Some(peer),
            path,
            med: (offer.med > 0).then_some(offer.med.into()),
            local_pref: if internal { 100 + u32::from(offer.local_pref) } else { 100 },
            next_hop: Some(if matches!(to, Prefix::V4(_)) { hop(offer.next_hop) } else { hop_v6() }),
            community: offer.community,
            weight: 0,
            is_aggregate: false,
        }
    }

    fn own() -> Self {
        Self {
            peer: None,
            path: vec![],
            med: None,
            local_pref: 100,
            next_hop: None,
            community: 0,
            weight: LOCAL_WEIGHT,
            is_aggregate: false,
        }
    }

    fn bytes(&self, internal: bool) -> Vec<u8> {
        let next_hop = self.next_hop.and_then(|hop| match hop {
            IpAddr::V4(hop) => Some(hop),
            IpAddr::V6(_) => None,
        });
        AttributesBuilder {
            as_path: self.path.iter().map(|asn| Asn(*asn)).collect(),
            next_hop,
            med: self.med,
            local_pref: internal.then_some(self.local_pref),
            communities: if self.community > 0 { vec![community(self.community)] } else { vec![] },
            aggregator: self.is_aggregate.then_some((OUR_AS, Ipv4Addr::new(10, 0, 0, 1))),
            ..AttributesBuilder::new(Origin::Igp)
        }
        .build()
    }

    fn neighbor(&self) -> u32 {
        self.path.first().copied().unwrap_or(OUR_AS.0)
    }

    fn is_internal(&self) -> bool {
        self.peer.is_none_or(|peer| peer >= FIRST_INTERNAL)
    }
}

/// 65000:1 and 65000:2, which policies look at, and NO_EXPORT.
fn community(n: u8) -> u32 {
    if n == 3 { holdfast_bgp_wire::attributes::community::NO_EXPORT } else { 65000 << 16 | u32::from(n) }
}

/// What a policy has set that an export would have changed.
#[derive(Default)]
struct Made {
    med: bool,
    /// Ourselves, or another.
    next_hop: Option<Option<Ipv4Addr>>,
}

/// What the policies of [`programs`] do.
fn apply(policy: usize, external: bool, to: Prefix, route: Route, made: &mut Made) -> Option<Route> {
    let low = prefix("10.0.0.0/15").contains(to);
    match (policy, route.community) {
        (5, 1) => {
            made.next_hop = Some(None);
            Some(route)
        }
        (5, 2) => {
            made.next_hop = Some(Some(third_party()));
            Some(route)
        }
        (5, _) => Some(route),
        (0, _) => Some(route),
        (1, _) => None,
        (2, _) => (!external).then_some(route),
        (3, 1) => Some(Route { local_pref: 300, ..route }),
        (3, 2) => None,
        (3, _) => Some(route),
        (_, 1) if low => None,
        _ if low => {
            made.med = true;
            Some(Route { med: Some(77), ..route })
        }
        (_, 2) => Some(Route { weight: HEAVY, ..route }),
        _ => Some(route),
    }
}

/// Our address on the link to a peer.
fn own_next_hop(receiver: usize, to: Prefix) -> Option<IpAddr> {
    let facts = link(receiver);
    match to {
        Prefix::V4(_) => facts.next_hop_v4.map(IpAddr::V4),
        Prefix::V6(_) => facts.next_hop_v6.map(IpAddr::V6),
    }
}

/// Whether a route counts for an aggregate, where that is up to this policy.
fn contributes(by: Option<usize>, to: Prefix, route: Route) -> bool {
    by.is_none_or(|by| apply(by, false, to, route, &mut Made::default()).is_some())
}

#[derive(Debug, Default)]
struct Model {
    up: [bool; PEERS],
    import: [usize; PEERS],
    export: [usize; PEERS],
    /// By peer, prefix and place, with their identifiers.
    received: BTreeMap<(usize, Prefix, usize), (Option<u32>, Route)>,
    /// 0: all.
    send_paths: u8,
    /// External peers with a view of their own.
    views: [bool; FIRST_INTERNAL],
    own: BTreeMap<Prefix, Route>,
    /// Which of [`aggregates`].
    aggregates: usize,
    default_routes: [bool; PEERS],
    protected: [bool; PEERS],
    metrics: BTreeMap<IpAddr, Option<u32>>,
}

impl Model {
    fn metric(&self, route: &Route) -> Option<u32> {
        route.next_hop.map_or(Some(0), |hop| self.metrics[&hop])
    }

    /// Where the path with this identifier is, or the first free place.
    fn place(&self, peer: usize, to: Prefix, identifier: Option<u32>) -> usize {
        let at = |place: &usize| self.received.get(&(peer, to, *place));
        let known = (0..4).find(|place| at(place).is_some_and(|(known, _)| *known == identifier));
        known.or_else(|| (0..4).find(|place| at(place).is_none())).expect("three identifiers")
    }

    /// The paths that take part in the decision, the best first.
    fn order(&self, to: Prefix) -> Vec<Route> {
        let (mut left, mut order) = (self.candidates(to), Vec::new());
        while let Some(best) = self.equal(left.clone()).into_iter().next() {
            let at = left.iter().position(|route| *route == best).expect("one of them");
            order.push(left.remove(at));
        }
        order
    }

    fn candidates(&self, to: Prefix) -> Vec<Route> {
        let accepted = |(&(peer, at, _), (_, route)): (&(usize, Prefix, usize), &(Option<u32>, Route))| {
            let external = peer < FIRST_INTERNAL;
            if at != to {
                None
            } else {
                apply(self.import[peer], external, to, route.clone(), &mut Made::default())
            }
        };
        let mut left: Vec<Route> = self.received.iter().filter_map(accepted).collect();
        left.extend(self.own.get(&to).cloned());
        left.extend(self.aggregate(to));
        left.retain(|route| self.metric(route).is_some());
        left
    }

    /// All prefixes that there may be.
    fn prefixes(&self) -> Vec<Prefix> {
        let aggregates = aggregates(self.aggregates).into_iter().map(|(to, ..)| to);
        let mut all: Vec<Prefix> = (0..PREFIXES).map(route).chain(aggregates).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    fn aggregate(&self, to: Prefix) -> Option<Route> {
        let (_, _, by) = aggregates(self.aggregates).into_iter().find(|(aggregate, ..)| *aggregate == to)?;
        let best = |inside: &Prefix| self.order(*inside).into_iter().next();
        let inside = |inside: &Prefix| *inside != to && to.contains(*inside);
        let is_there = |inside: Prefix| best(&inside).is_some_and(|best| contributes(by, inside, best));
        let is_there = self.prefixes().into_iter().filter(inside).any(is_there);
        is_there.then(|| Route { is_aggregate: true, ..Route::own() })
    }

    /// Whether an aggregate stands for a route.
    fn is_summarised(&self, to: Prefix, route: &Route) -> bool {
        aggregates(self.aggregates).into_iter().any(|(aggregate, summary_only, by)| {
            summary_only && aggregate != to && aggregate.contains(to) && contributes(by, to, route.clone())
        })
    }

    /// What it is told of instead of any default route in the table.
    fn default_route(receiver: usize, to: Prefix) -> Held {
        let internal = receiver >= FIRST_INTERNAL;
        let path = if internal { vec![] } else { vec![OUR_AS.0] };
        let next_hop = own_next_hop(receiver, to);
        let route = Route { path, next_hop, ..Route::own() };
        Held { attributes: route.bytes(internal), next_hop: next_hop.expect("one") }
    }

    /// The routes equal up to the metric, the best first.
    fn equal(&self, mut left: Vec<Route>) -> Vec<Route> {
        keep(&mut left, |route| u32::MAX - route.weight);
        keep(&mut left, |route| (route.peer.is_some(), route.is_aggregate));
        keep(&mut left, |route| u32::MAX - route.local_pref);
        keep(&mut left, |route| route.path.len());
        let all = left.clone();
        left.retain(|m| !all.iter().any(|n| n.neighbor() == m.neighbor() && n.med < m.med));
        keep(&mut left, Route::is_internal);
        keep(&mut left, |route| self.metric(route));
        // Router ids ascend with the peers, and so does the map; places do behind that.
        left
    }

    /// The next hops that share the traffic to a prefix, and the one that the decision would choose without them, if the peer of
    /// the best path is protected.
    fn ways(&self, to: Prefix, max_paths: usize) -> Option<(Vec<IpAddr>, Option<IpAddr>)> {
        let equal = self.equal(self.candidates(to));
        let best = equal.first().cloned();
        let mut hops: Vec<IpAddr> =
            equal.into_iter().take(max_paths).filter_map(|route| route.next_hop).collect();
        hops.sort_unstable();
        hops.dedup();
        let best = best.filter(|best| best.is_aggregate || !hops.is_empty())?;
        let mut others = self.candidates(to);
        others.retain(|route| route.next_hop.is_none_or(|hop| !hops.contains(&hop)));
        let backup = self.equal(others).first().and_then(|route| route.next_hop);
        let is_protected = best.peer.is_some_and(|peer| self.protected[peer]);
        Some((hops, backup.filter(|_| is_protected)))
    }

    fn expected(&self, receiver: usize, to: Prefix) -> Vec<Held> {
        if self.default_routes[receiver] && to.length() == 0 {
            return vec![Self::default_route(receiver, to)];
        }
        let most = match (receiver, self.send_paths) {
            (receiver, _) if !takes_several(receiver) => 1,
            (_, most @ 1..) => most.into(),
            _ => usize::MAX,
        };
        let order = self.order(to);
        // Who has a view is told of nothing where the best, which alone counts, is kept back.
        let stands_for_all = |best: &Route| self.has_view(receiver) && self.is_summarised(to, best);
        if order.first().is_some_and(stands_for_all) {
            return vec![];
        }
        let order = order.into_iter();
        let is_told = |route: Route| self.exported(receiver, to, route);
        let mut held: Vec<Held> = match self.has_view(receiver) {
            false => order.take(most).filter_map(is_told).collect(),
            true => {
                let of_use = |route: &Route| !route.path.contains(&config(receiver).asn.0);
                order.filter(of_use).filter_map(is_told).take(most).collect()
            }
        };
        held.sort();
        held
    }

    fn has_view(&self, peer: usize) -> bool {
        self.views.get(peer) == Some(&true)
    }

    fn exported(&self, receiver: usize, to: Prefix, best: Route) -> Option<Held> {
        let internal = receiver >= FIRST_INTERNAL;
        let looped = internal && best.peer.is_some_and(|peer| peer >= FIRST_INTERNAL);
        let kept_in = !internal && best.community == 3;
        let is_summarised = !self.has_view(receiver) && self.is_summarised(to, &best);
        if best.peer == Some(receiver) || looped || kept_in || is_summarised {
            return None;
        }
        let mut made = Made::default();
        let own = best.peer.is_none();
        let mut route = apply(self.export[receiver], !internal, to, best, &mut made)?;
        if !internal {
            route.path.insert(0, OUR_AS.0);
            route.med = route.med.filter(|_| made.med || own);
        }
        let ours = own_next_hop(receiver, to);
        route.next_hop = match (made.next_hop, to) {
            (Some(None), _) => ours,
            // There is no such next hop for the family.
            (Some(Some(_)), Prefix::V6(_)) => return None,
            (Some(Some(other)), Prefix::V4(_)) => Some(other.into()),
            (None, _) if internal => route.next_hop.or(ours),
            (None, _) => ours,
        };
        Some(Held { attributes: route.bytes(internal), next_hop: route.next_hop.expect("one") })
    }
}

fn keep<K: Ord>(routes: &mut Vec<Route>, key: impl Fn(&Route) -> K) {
    if let Some(least) = routes.iter().map(&key).min() {
        routes.retain(|route| key(route) == least);
    }
}

/// The RIB's side: what it has been told.
#[derive(Debug, Default)]
struct Rib {
    handles: BTreeMap<u32, (Vec<IpAddr>, Option<IpAddr>)>,
    routes: BTreeMap<Prefix, u32>,
    /// Told before a restart and not again yet.
    stale: BTreeMap<Prefix, u32>,
}

impl Rib {
    fn take(&mut self, changes: &RibChanges) {
        if changes.restart {
            self.stale = std::mem::take(&mut self.routes);
        }
        for handle in &changes.undefine {
            assert!(!self.routes.values().any(|used| used == handle), "{handle} is in use");
            assert!(self.handles.remove(handle).is_some(), "{handle} was never defined");
        }
        for defined in &changes.define {
            let mut gateways: Vec<_> = defined.gateways.iter().map(|gateway| gateway.address).collect();
            gateways.sort_unstable();
            let backup = defined.backup.map(|gateway| gateway.address);
            self.handles.insert(defined.handle, (gateways, backup));
        }
        let octets = if changes.family == Family::IPV4_UNICAST { 4 } else { 16 };
        let of_run = |run: &RibRun| std::iter::repeat_n(run.next_hops, run.routes as usize);
        let next_hops: Vec<_> = changes.runs.iter().flat_map(of_run).collect();
        assert_eq!(next_hops.len(), changes.len());
        for (row, address) in changes.addresses.chunks(octets).enumerate() {
            let address = match <[u8; 4]>::try_from(address) {
                Ok(octets) => IpAddr::from(octets),
                Err(_) => IpAddr::from(<[u8; 16]>::try_from(address).expect("16 octets")),
            };
            let to = Prefix::new(address, changes.lengths[row]).expect("a prefix");
            match next_hops[row] {
                0 => {
                    let known = self.routes.remove(&to).or(self.stale.remove(&to));
                    assert!(known.is_some(), "{to} was not there");
                }
                handle => {
                    assert!(self.handles.contains_key(&handle), "{handle} is not defined");
                    self.stale.remove(&to);
                    self.routes.insert(to, handle);
                }
            }
        }
        if changes.complete {
            self.stale.clear();
        }
    }
}

struct World {
    pipeline: Pipeline,
    sinks: Vec<(PeerIndex, Sink)>,
    model: Model,
    rib: Rib,
    programs: [Option<Program>; EXPORT_POLICIES],
    max_paths: usize,
    /// A reader may lose its place.
    tight: bool,
    /// Peers for which something new began while they were being told something else: what they have is
    /// not known any more, so withdrawals need not be exact.
    tangled: [bool; PEERS],
    journal: Entries,
    limits: Limits,
    staged: bool,
    /// Sets that may be left in the end: that of a default route stays.
    kept_sets: usize,
    /// Exports of peers may change at any time.
    aggregating: bool,
    /// Peers that have asked for everything, and may not have been answered.
    asking: [bool; PEERS],
}

/// The identifier if the peer has agreed on such for the family.
fn identifier_of(peer: usize, to: Prefix, identifier: u32) -> Option<u32> {
    let family = if matches!(to, Prefix::V4(_)) { Family::IPV4_UNICAST } else { Family::IPV6_UNICAST };
    identifiers_of(peer)[0].of(family).then_some(identifier)
}

fn config(n: usize) -> PeerConfig {
    let n = n as u8;
    if usize::from(n) >= FIRST_INTERNAL {
        ibgp(n)
    } else {
        PeerConfig { asn: Asn(65101 + u32::from(n) % 2), ..ebgp(n) }
    }
}

fn sink(n: usize) -> Sink {
    Sink { internal: n >= FIRST_INTERNAL, identifiers: identifiers_of(n)[1], ..Sink::default() }
}

fn started(limits: Limits, max_paths: usize, staged: bool, journal: &Entries) -> Pipeline {
    let config = SpeakerConfig { limits, max_paths: max_paths as u8, ..speaker(NextHopMode::Resolved) };
    let mut pipeline = checked(config);
    if staged {
        pipeline.add_stage(Box::new(CheckStage::default()), Instant::now());
    }
    pipeline.keep_journal(Box::new(journal.clone()));
    pipeline
}

impl World {
    fn new(tight: bool, max_paths: usize, staged: bool, views: [bool; FIRST_INTERNAL]) -> Self {
        let limits = if tight {
            Limits { log: 8, window: 3, shared_bytes: 100, withdrawn: 1000, unacknowledged: 1000 }
        } else {
            Limits { window: 3, shared_bytes: 300, ..Limits::default() }
        };
        let journal = Entries::default();
        let mut pipeline = started(limits, max_paths, staged, &journal);
        let mut model = Model { views, ..Model::default() };
        for n in 0..3 {
            model.metrics.insert(hop(n), None);
        }
        model.metrics.insert(hop_v6(), Some(1));
        let mut sinks = Vec::new();
        for n in 0..PEERS {
            let peer = pipeline.add_peer(config(n));
            (model.import[n], model.export[n]) = if n < FIRST_INTERNAL { (0, 0) } else { (2, 2) };
            sinks.push((peer, sink(n)));
        }
        pipeline.rib_resync();
        let mut world = Self {
            pipeline,
            sinks,
            model,
            rib: Rib::default(),
            programs: programs(),
            max_paths,
            tight,
            tangled: [false; PEERS],
            journal,
            limits,
            staged,
            kept_sets: 0,
            aggregating: false,
            asking: [false; PEERS],
        };
        (0..PEERS).for_each(|peer| world.configure(peer));
        world
    }

    fn restart(&mut self, rewritten: bool, knows_identifiers: bool) {
        let up: Vec<usize> = (0..PEERS).filter(|peer| self.model.up[*peer]).collect();
        let first_identifiers = self.sinks.iter().map(|(peer, _)| self.pipeline.first_identifier(*peer));
        let first_identifiers: Vec<u32> = first_identifiers.collect();
        let mut places: BTreeMap<JournalEntry, Vec<PeerIndex>> = BTreeMap::new();
        for peer in &up {
            let index = self.sinks[*peer].0;
            places.entry(self.pipeline.journal_place(index)).or_default().push(index);
        }
        self.pipeline = started(self.limits, self.max_paths, self.staged, &self.journal);
        self.pipeline.rib_resync();
        self.rib.handles.clear();
        self.aggregate();
        self.aggregating = false;
        for peer in 0..PEERS {
            assert_eq!(self.pipeline.add_peer(config(peer)), self.sinks[peer].0);
            self.pipeline.set_protected(self.sinks[peer].0, self.model.protected[peer]);
            self.configure(peer);
        }
        for peer in up {
            let first_identifier = if knows_identifiers { first_identifiers[peer] } else { 0 };
            let facts = SessionFacts { first_identifier, ..link(peer) };
            self.pipeline.peer_resumed(self.sinks[peer].0, facts).expect("room");
            (self.tangled[peer], self.sinks[peer].1.idle_withdrawals) = (false, 0);
        }
        for ((peer, to, _), (identifier, sent)) in std::mem::take(&mut self.model.received) {
            let body = announcement_of(identifier, &sent.bytes(peer >= FIRST_INTERNAL), &[to]);
            self.pipeline.update(self.sinks[peer].0, &body).expect("taken");
            let place = self.model.place(peer, to, identifier);
            self.model.received.insert((peer, to, place), (identifier, sent));
        }
        for to in self.model.own.keys() {
            self.pipeline.originate(*to, &OriginateAttributes::default());
        }
        self.answer_events();
        while self.pipeline.work(100) || self.pipeline.is_waiting() {}
        for (place, peers) in places {
            let told = if rewritten { self.journal.rewritten(place) } else { self.journal.told(place) };
            self.pipeline.resume(&peers, told, place);
        }
        // What has been asked for and not been answered is asked for again: who keeps the sessions knows.
        for peer in (0..PEERS).filter(|peer| self.asking[*peer]) {
            Family::ALL
                .into_iter()
                .for_each(|family| self.pipeline.announce_again(self.sinks[peer].0, family));
        }
    }

    fn run(&mut self, op: &Op) {
        match op {
            Op::Announce(peer, routes, identifier, offer) => self.announce(*peer, routes, *identifier, offer),
            Op::Withdraw(peer, to, identifier) if self.model.up[*peer] => {
                let (to, identifier) = (route(*to), identifier_of(*peer, route(*to), *identifier));
                self.pipeline.update(self.sinks[*peer].0, &withdrawal_of(identifier, to)).expect("taken");
                let place = self.model.place(*peer, to, identifier);
                self.model.received.remove(&(*peer, to, place));
            }
            Op::SendPaths(most) => {
                self.model.send_paths = *most;
                for peer in (0..PEERS).filter(|peer| takes_several(*peer)) {
                    self.tangled[peer] |= self.pipeline.pending(self.sinks[peer].0);
                    self.configure(peer);
                }
            }
            Op::Withdraw(..) => {}
            Op::Down(peer) => self.down(*peer),
            Op::Up(peer) => self.up(*peer),
            Op::NextHop(n, metric) => {
                self.model.metrics.insert(hop(*n), metric.map(u32::from));
                self.answer(hop(*n));
            }
            Op::Import(peer, policy) => {
                self.model.import[*peer] = *policy;
                self.configure(*peer);
            }
            Op::Export(peer, policy) => {
                self.tangled[*peer] |= self.pipeline.pending(self.sinks[*peer].0);
                self.model.export[*peer] = *policy;
                self.configure(*peer);
            }
            Op::Refresh(peer) => self.refresh(*peer),
            Op::Originate(to) => {
                self.pipeline.originate(route(*to), &OriginateAttributes::default());
                self.model.own.insert(route(*to), Route::own());
            }
            Op::WithdrawOrigin(to) => {
                self.pipeline.withdraw_origin(route(*to));
                self.model.own.remove(&route(*to));
            }
            Op::Aggregates(n) => {
                // Their exports change when what is there has been counted.
                (self.tangled, self.aggregating) = ([true; PEERS], true);
                self.model.aggregates = *n;
                self.aggregate();
            }
            Op::DefaultRoute(peer, on) => {
                self.tangled[*peer] |= self.pipeline.pending(self.sinks[*peer].0);
                self.model.default_routes[*peer] = *on;
                self.kept_sets = 1;
                self.configure(*peer);
            }
            Op::Protect(peer, on) => {
                self.model.protected[*peer] = *on;
                self.pipeline.set_protected(self.sinks[*peer].0, *on);
            }
            Op::Work(budget) => {
                self.pipeline.work(*budget);
            }
            Op::Restart(rewritten, knows_identifiers) => self.restart(*rewritten, *knows_identifiers),
            Op::Pull(peer) => {
                let (index, sink) = &mut self.sinks[*peer];
                if let Some(messages) = self.pipeline.pull(*index) {
                    sink.take(&messages);
                }
                self.asking[*peer] &= self.pipeline.is_announcing_again(*index);
            }
            Op::PullRib(max) => {
                if let Some(changes) = self.pipeline.pull_rib(*max) {
                    self.rib.take(&changes);
                }
            }
            Op::ResyncRib => {
                self.pipeline.rib_resync();
                self.rib.handles.clear();
            }
        }
        self.answer_events();
    }

    /// A peer asks for everything. One that is not told where the answer ends has nothing of what it had.
    fn refresh(&mut self, peer: usize) {
        let (index, sink) = &mut self.sinks[peer];
        self.tangled[peer] |= self.pipeline.pending(*index);
        self.asking[peer] = self.model.up[peer];
        for family in Family::ALL {
            if !link(peer).enhanced_refresh {
                sink.ask(family);
            }
            self.pipeline.route_refresh(*index, family);
        }
    }

    fn aggregate(&mut self) {
        let config = |(prefix, summary_only, by): (Prefix, bool, Option<usize>)| AggregateConfig {
            prefix,
            summary_only,
            contributors: by.and_then(|by| self.programs[by].clone()),
            policy: None,
        };
        let wanted: Vec<_> = aggregates(self.model.aggregates).into_iter().map(config).collect();
        self.pipeline.set_aggregates(&wanted);
    }

    fn announce(&mut self, peer: usize, routes: &[usize], identifier: u32, offer: &Offer) {
        if !self.model.up[peer] {
            return;
        }
        // One family for each UPDATE.
        let v4 = routes[0] < PREFIXES / 2;
        let to: Vec<Prefix> =
            routes.iter().filter(|n| (**n < PREFIXES / 2) == v4).map(|n| route(*n)).collect();
        let sent = Route::received(peer, to[0], offer);
        let identifier = identifier_of(peer, to[0], identifier);
        let body = announcement_of(identifier, &sent.bytes(peer >= FIRST_INTERNAL), &to);
        self.pipeline.update(self.sinks[peer].0, &body).expect("taken");
        for to in to {
            let place = self.model.place(peer, to, identifier);
            self.model.received.insert((peer, to, place), (identifier, sent.clone()));
        }
    }

    fn down(&mut self, peer: usize) {
        self.pipeline.peer_down(self.sinks[peer].0);
        self.model.up[peer] = false;
        self.model.received.retain(|(from, ..), _| *from != peer);
        self.asking[peer] = false;
    }

    fn up(&mut self, peer: usize) {
        self.down(peer);
        self.pipeline.peer_up(self.sinks[peer].0, link(peer)).expect("room");
        self.model.up[peer] = true;
        self.tangled[peer] = self.aggregating;
        self.sinks[peer].1 = sink(peer);
    }

    fn configure(&mut self, peer: usize) {
        let import = self.programs[self.model.import[peer]].clone();
        let export = self.programs[self.model.export[peer]].clone();
        let send_paths = match self.model.send_paths {
            most @ 1.. => SendPaths::Best(most),
            0 => SendPaths::All,
        };
        let default_originate = self.model.default_routes[peer];
        let own_view = self.model.has_view(peer);
        let paths = PathRules { default_originate, own_view, ..PathRules::default() };
        let config = PeerConfig { import, export, send_paths, paths, ..config(peer) };
        self.pipeline.configure_peer(self.sinks[peer].0, config);
    }

    fn answer(&mut self, address: IpAddr) {
        let reachability = match self.model.metrics[&address] {
            Some(metric) => Reachability::Reachable { metric },
            None => Reachability::Unreachable,
        };
        self.pipeline.next_hop(address, reachability);
    }

    fn answer_events(&mut self) {
        while let Some(event) = self.pipeline.poll_event() {
            if let holdfast_bgp_pipeline::Event::RegisterNextHop(address) = event {
                self.answer(address);
            }
        }
    }

    /// Lets everything come to rest and compares all that can be seen with the model.
    fn check(&mut self) {
        loop {
            settle(&mut self.pipeline, &mut self.sinks);
            self.answer_events();
            while let Some(changes) = self.pipeline.pull_rib(2) {
                self.rib.take(&changes);
            }
            if !self.pipeline.work(100) && !self.pipeline.is_waiting() && !self.pipeline.rib_pending() {
                break;
            }
        }
        for n in (0..PEERS).filter(|n| self.model.up[*n]) {
            let expected = self.model.prefixes().into_iter().map(|to| (to, self.model.expected(n, to)));
            let expected: BTreeMap<Prefix, Vec<Held>> =
                expected.filter(|(_, paths)| !paths.is_empty()).collect();
            let (peer, sink) = &self.sinks[n];
            assert_eq!(sink.held(), expected, "peer {n}");
            assert!(sink.is_answered(), "peer {n}: {sink:?}");
            assert!(!self.pipeline.is_announcing_again(*peer), "peer {n}");
            let exact = !self.tight && !self.tangled[n];
            assert!(!exact || sink.idle_withdrawals == 0, "peer {n}: withdrawals of what it did not have");
            assert!(Family::ALL.iter().all(|family| sink.end_of_rib.contains(family)), "peer {n}");
            let announced: u64 =
                Family::ALL.iter().map(|family| self.pipeline.counts(*peer, *family).announced).sum();
            let paths: usize = expected.values().map(Vec::len).sum();
            assert_eq!(announced, paths as u64, "peer {n}");
        }
        self.check_rib();
        (self.aggregating, self.asking) = (false, [false; PEERS]);
    }

    fn check_rib(&self) {
        let ways = |to| self.model.ways(to, self.max_paths).map(|ways| (to, ways));
        let expected: BTreeMap<_, _> = self.model.prefixes().into_iter().filter_map(ways).collect();
        let told = self.rib.routes.iter().map(|(to, handle)| (*to, self.rib.handles[handle].clone()));
        assert_eq!(told.collect::<BTreeMap<_, _>>(), expected);
        assert!(self.rib.stale.is_empty());
    }
}

/// How far apart the comparisons are.
const CHECK_EVERY: usize = 40;

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 3000, ..holdfast_testing::cases(400) })]

    #[test]
    fn at_rest_every_peer_and_the_rib_hold_what_a_naive_speaker_would_have_told_them(
        tight in any::<bool>(),
        max_paths in 1..4usize,
        staged in any::<bool>(),
        views in any::<[bool; FIRST_INTERNAL]>(),
        ops in prop::collection::vec(op(), 1..200),
    ) {
        let mut world = World::new(tight, max_paths, staged, views);
        (0..PEERS - 1).for_each(|peer| world.up(peer));
        for part in ops.chunks(CHECK_EVERY) {
            part.iter().for_each(|op| world.run(op));
            world.check();
        }
        // Everything is given back in the end.
        (0..PEERS).for_each(|peer| world.down(peer));
        (0..PREFIXES).for_each(|to| world.run(&Op::WithdrawOrigin(to)));
        world.check();
        while world.pipeline.work(1000) {}
        prop_assert!(world.pipeline.attribute_sets() <= world.kept_sets);
    }
    /// The check of a running router begins and ends at any time, and finds nothing where nothing is wrong.
    #[test]
    fn a_check_that_begins_in_the_middle_finds_no_fault_in_a_sound_router(
        tight in any::<bool>(),
        max_paths in 1..4usize,
        views in any::<[bool; FIRST_INTERNAL]>(),
        ops in prop::collection::vec((op(), 0..20u8), 1..200),
    ) {
        let mut world = World::new(tight, max_paths, false, views);
        (0..PEERS - 1).for_each(|peer| world.up(peer));
        let mut found = 0;
        for (op, toggle) in &ops {
            // Another process begins with nothing.
            found += if matches!(op, Op::Restart(..)) { world.pipeline.violations() } else { 0 };
            match toggle {
                0 => world.pipeline.check_consistency(false),
                1..4 => world.pipeline.check_consistency(true),
                _ => {}
            }
            world.run(op);
        }
        world.pipeline.check_consistency(true);
        world.check();
        let first = world.pipeline.poll_violation().map(|violation| violation.to_string());
        prop_assert_eq!((found + world.pipeline.violations(), first), (0, None));
        prop_assert!(world.pipeline.is_consistency_checked());
    }
}
