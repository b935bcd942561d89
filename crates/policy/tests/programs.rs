//! What programs decide, by example and against a naive interpreter of their source.

use std::net::IpAddr;

use holdfast_policy::{
    Action, AsPathSet, Community, CommunitySet, Condition, Edits, Library, MAX_DEPTH, MAX_STEPS, MedEdit,
    NextHopEdit, Origin, Outcome, PathElement, Policy, PolicySource, PrefixSet, Prepend, PrependAs, Problem,
    Program, Protocol, Route, SetKind, Term, Verdict,
};
use holdfast_types::{Asn, Prefix};
use proptest::prelude::*;

#[derive(Clone, Debug)]
struct Sample {
    prefix: Prefix,
    path: Vec<u32>,
    origin: Origin,
    med: Option<u32>,
    local_pref: Option<u32>,
    next_hop: Option<IpAddr>,
    communities: Vec<u32>,
    large: Vec<(u32, u32, u32)>,
    peer: Option<u32>,
    protocol: Protocol,
    tag: Option<u32>,
}

impl Route for Sample {
    fn prefix(&self) -> Prefix {
        self.prefix
    }
    fn as_path(&self) -> impl Iterator<Item = PathElement> {
        self.path.iter().map(|&asn| PathElement::Sequence(Asn(asn)))
    }
    fn as_path_length(&self) -> u32 {
        self.path.len() as u32
    }
    fn origin(&self) -> Origin {
        self.origin
    }
    fn med(&self) -> Option<u32> {
        self.med
    }
    fn local_pref(&self) -> Option<u32> {
        self.local_pref
    }
    fn next_hop(&self) -> Option<IpAddr> {
        self.next_hop
    }
    fn communities(&self) -> impl Iterator<Item = u32> {
        self.communities.iter().copied()
    }
    fn large_communities(&self) -> impl Iterator<Item = (u32, u32, u32)> {
        self.large.iter().copied()
    }
    fn ext_communities(&self) -> impl Iterator<Item = u64> {
        std::iter::once(0x0002_0001_0000_0007)
    }
    fn peer_asn(&self) -> Option<Asn> {
        self.peer.map(Asn)
    }
    fn protocol(&self) -> Protocol {
        self.protocol
    }
    fn tag(&self) -> Option<u32> {
        self.tag
    }
}

fn sample() -> Sample {
    Sample {
        prefix: "10.1.0.0/16".parse().expect("a prefix"),
        path: vec![1, 2, 3],
        origin: Origin::Igp,
        med: Some(5),
        local_pref: None,
        next_hop: "10.9.0.1".parse().ok(),
        communities: vec![1 << 16 | 100],
        large: vec![(1, 2, 3)],
        peer: Some(1),
        protocol: Protocol::Bgp,
        tag: None,
    }
}

fn all<T: std::str::FromStr<Err: std::fmt::Debug>>(texts: &[&str]) -> Vec<T> {
    texts.iter().map(|text| text.parse().expect("well formed")).collect()
}

fn term(name: &str, from: Vec<Condition>, then: Vec<Action>, outcome: Outcome) -> Term {
    Term { name: name.into(), from, then, outcome }
}

fn source(terms: Vec<Term>) -> PolicySource {
    PolicySource {
        prefix_sets: vec![
            PrefixSet { name: "ten".into(), prefixes: all(&["10.0.0.0/8 le 24"]) },
            PrefixSet { name: "six".into(), prefixes: all(&["2001:db8::/32"]) },
        ],
        community_sets: vec![CommunitySet { name: "hundred".into(), communities: all(&["*:100"]) }],
        as_path_sets: vec![AsPathSet { name: "from-one".into(), paths: all(&["1 *"]) }],
        policies: vec![Policy { name: "p".into(), terms }],
    }
}

fn program(terms: Vec<Term>) -> Program {
    let library = Library::compile(&source(terms), 7).expect("compiles");
    library.get("p").expect("is there").clone()
}

fn holds(condition: Condition) -> bool {
    let program = program(vec![term("t", vec![condition], vec![], Outcome::Accept)]);
    program.evaluate(&sample(), &mut Edits::default()) == Verdict::Accept
}

/// The edits of a policy that accepts the sample.
fn edits(actions: Vec<Action>) -> Edits {
    let mut edits = Edits { tag: Some(1), ..Edits::default() };
    let program = program(vec![term("t", vec![], actions, Outcome::Accept)]);
    assert_eq!(program.evaluate(&sample(), &mut edits), Verdict::Accept);
    edits
}

#[test]
fn each_condition_looks_at_its_part_of_the_route() {
    let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    let table = [
        (Condition::PrefixSet(names(&["six", "ten"])), Condition::PrefixSet(names(&["six"]))),
        (
            Condition::Prefix(all(&["10.1.0.0/16"])),
            Condition::Prefix(all(&["10.0.0.0/8", "10.1.0.0/16 ge 17"])),
        ),
        (Condition::CommunitySet(names(&["hundred"])), Condition::CommunitySet(vec![])),
        (Condition::Community(all(&["9:9", "1:2:*"])), Condition::Community(all(&["1:101"]))),
        (Condition::Community(all(&["rt:1:7"])), Condition::Community(all(&["soo:1:7"]))),
        (Condition::AsPathSet(names(&["from-one"])), Condition::AsPathSet(vec![])),
        (Condition::AsPath(all(&["1 . 3"])), Condition::AsPath(all(&["1 ."]))),
        (Condition::AsPathLength(3..=3), Condition::AsPathLength(4..=9)),
        (Condition::NeighborAs(all(&["1-2"])), Condition::NeighborAs(all(&["3"]))),
        (Condition::OriginAs(all(&["3"])), Condition::OriginAs(all(&["1"]))),
        (Condition::PeerAs(all(&["1"])), Condition::PeerAs(all(&["2"]))),
        (Condition::Origin(vec![Origin::Egp, Origin::Igp]), Condition::Origin(vec![Origin::Incomplete])),
        (Condition::Med(5..=5), Condition::LocalPreference(0..=u32::MAX)),
        (Condition::NextHop(all(&["10.9.0.0/24"])), Condition::NextHop(all(&["10.8.0.0/16"]))),
        (Condition::Protocol(vec![Protocol::Bgp]), Condition::Protocol(vec![Protocol::Other(1)])),
        (Condition::Policy(names(&["reject-all", "accept-all"])), Condition::Policy(names(&["reject-all"]))),
    ];
    for (yes, no) in table {
        assert!(holds(yes.clone()), "{yes:?}");
        assert!(!holds(no.clone()), "{no:?}");
    }
    assert!(!holds(Condition::Tag(vec![0])), "no tag is not tag 0");
}

#[test]
fn actions_become_edits() {
    assert!(edits(vec![]).is_empty());
    assert_eq!(edits(vec![Action::LocalPreference(7)]).local_pref, Some(7));
    assert_eq!(edits(vec![Action::Med(MedEdit::Remove)]).med, Some(MedEdit::Remove));
    assert_eq!(edits(vec![Action::Origin(Origin::Egp)]).origin, Some(Origin::Egp));
    assert_eq!(edits(vec![Action::Tag(9)]).tag, Some(9));
    assert_eq!(
        edits(vec![Action::NextHop(NextHopEdit::SelfAddress)]).next_hop,
        Some(NextHopEdit::SelfAddress)
    );
    let prepend = Prepend { asn: PrependAs::Own, count: 2 };
    assert_eq!(edits(vec![Action::Prepend(prepend)]).prepend, Some(prepend));
    let changed =
        edits(vec![Action::RemoveCommunities(all(&["1:*"])), Action::AddCommunities(all(&["2:2", "5:6:7"]))]);
    assert_eq!(
        (changed.communities.remove, changed.communities.add),
        (vec![1 << 16 | 100], vec![2 << 16 | 2])
    );
    assert_eq!(changed.large_communities.add, [(5, 6, 7)]);
    let replaced = edits(vec![Action::SetCommunities(vec![Community::Standard(3)])]);
    assert_eq!(replaced.communities.apply([8, 9].into_iter()).collect::<Vec<_>>(), [3]);
    assert!(replaced.large_communities.replace);
}

#[test]
fn later_terms_see_what_earlier_ones_changed() {
    let program = program(vec![
        term(
            "change",
            vec![],
            vec![
                Action::LocalPreference(50),
                Action::Med(MedEdit::Remove),
                Action::Tag(4),
                Action::NextHop(NextHopEdit::Address("192.0.2.1".parse().expect("an address"))),
                Action::RemoveCommunities(all(&["1:100"])),
                Action::AddCommunities(all(&["2:2"])),
            ],
            Outcome::Next,
        ),
        term("gone", vec![Condition::Community(all(&["1:100"]))], vec![], Outcome::Reject),
        term("med", vec![Condition::Med(0..=u32::MAX)], vec![], Outcome::Reject),
        term(
            "seen",
            vec![
                Condition::LocalPreference(50..=50),
                Condition::Tag(vec![4]),
                Condition::NextHop(all(&["192.0.2.0/24"])),
                Condition::Community(all(&["2:2"])),
            ],
            vec![],
            Outcome::Accept,
        ),
    ]);
    assert_eq!(program.evaluate(&sample(), &mut Edits::default()), Verdict::Accept);
}

#[test]
fn a_refused_route_names_the_term_and_leaves_no_edits() {
    let terms = vec![
        term("mark", vec![], vec![Action::Tag(1)], Outcome::Next),
        term("refuse", vec![Condition::OriginAs(all(&["3"]))], vec![], Outcome::Reject),
    ];
    let program = program(terms);
    let mut edits = Edits::default();
    let mut refused_by = |route: &Sample| match program.evaluate(route, &mut edits) {
        Verdict::Accept => None,
        Verdict::Reject(term) => Some((program.term_name(term), edits.is_empty())),
    };
    assert_eq!(refused_by(&sample()), Some(("refuse", true)));
    assert_eq!(refused_by(&Sample { path: vec![], ..sample() }), Some(("default", true)));
}

#[test]
fn built_in_programs_need_no_source() {
    let mut edits = Edits::default();
    assert_eq!(Program::accept_all().evaluate(&sample(), &mut edits), Verdict::Accept);
    let Verdict::Reject(term) = Program::reject_all().evaluate(&sample(), &mut edits) else {
        panic!("reject-all accepts");
    };
    assert_eq!(Program::reject_all().term_name(term), "reject-all");
    let library = Library::compile(&PolicySource::default(), 0).expect("compiles");
    assert_eq!(library.get("accept-all"), Some(&Program::accept_all()));
}

#[test]
fn programs_are_equal_when_they_decide_by_the_same_rules() {
    let terms =
        |set: &str| vec![term("t", vec![Condition::PrefixSet(vec![set.into()])], vec![], Outcome::Accept)];
    let first = program(terms("ten"));
    assert_eq!((first.id().index, first.id().generation), (2, 7));
    let again = Library::compile(&source(terms("ten")), 8).expect("compiles");
    assert_eq!(again.get("p"), Some(&first));
    assert_ne!(program(terms("six")), first);
    let mut changed = source(terms("ten"));
    changed.prefix_sets[0].prefixes = all(&["10.0.0.0/8"]);
    assert_ne!(Library::compile(&changed, 8).expect("compiles").get("p"), Some(&first));
}

#[test]
fn programs_say_whether_verdicts_belong_to_attribute_sets() {
    let reads = |condition| program(vec![term("t", vec![condition], vec![], Outcome::Accept)]).reads_prefix();
    assert!(!reads(Condition::AsPath(all(&["*"]))) && !reads(Condition::Med(0..=1)));
    assert!(
        reads(Condition::Prefix(vec![]))
            && reads(Condition::PeerAs(vec![]))
            && reads(Condition::Tag(vec![1]))
    );
    let mut nested = source(vec![term("t", vec![Condition::Prefix(vec![])], vec![], Outcome::Accept)]);
    let asks = vec![term("asks", vec![Condition::Policy(vec!["p".into()])], vec![], Outcome::Accept)];
    nested.policies.insert(0, Policy { name: "outer".into(), terms: asks });
    assert!(Library::compile(&nested, 0).expect("compiles").get("outer").expect("is there").reads_prefix());
}

/// The problems of a source, each with its place.
fn problems(source: &PolicySource) -> Vec<(String, Problem)> {
    let errors = Library::compile(source, 0).expect_err("is wrong");
    errors.into_iter().map(|e| (format!("{} {}", e.policy, e.term.unwrap_or_default()), e.problem)).collect()
}

#[test]
fn errors_say_which_policy_and_term() {
    let names = |name: &str| vec![name.to_owned()];
    let found = problems(&source(vec![
        term(
            "a",
            vec![Condition::PrefixSet(names("x")), Condition::AsPathSet(names("y"))],
            vec![],
            Outcome::Next,
        ),
        term("b", vec![Condition::Policy(names("z"))], vec![], Outcome::Next),
        term("b", vec![], vec![], Outcome::Next),
    ]));
    let expected = [
        ("p b".into(), Problem::DuplicateTerm),
        ("p a".into(), Problem::UnknownSet(SetKind::Prefix, "x".into())),
        ("p a".into(), Problem::UnknownSet(SetKind::AsPath, "y".into())),
        ("p b".into(), Problem::UnknownPolicy("z".into())),
    ];
    assert_eq!(found, expected);
    let mut twice = source(vec![]);
    twice.prefix_sets.push(twice.prefix_sets[0].clone());
    twice.policies.push(Policy { name: "accept-all".into(), terms: vec![] });
    let expected = [
        ("ten ".into(), Problem::DuplicateSet(SetKind::Prefix)),
        ("accept-all ".into(), Problem::DuplicatePolicy),
    ];
    assert_eq!(problems(&twice), expected);
    let error = Library::compile(&twice, 0).expect_err("is wrong").remove(0);
    assert_eq!(error.to_string(), "ten: the name is that of another prefix-set");
}

/// Policies `p0` to `pN`, each of which asks the next one `times` times.
fn chain(length: usize, times: usize) -> PolicySource {
    let policy = |i: usize| {
        let asked = if i + 1 == length { vec![] } else { vec![format!("p{}", i + 1); times] };
        let from = vec![Condition::Policy(asked)];
        Policy { name: format!("p{i}"), terms: vec![term("t", from, vec![], Outcome::Accept)] }
    };
    PolicySource { policies: (0..length).map(policy).collect(), ..PolicySource::default() }
}

#[test]
fn nesting_is_bounded_in_depth_and_in_steps() {
    assert!(Library::compile(&chain(MAX_DEPTH, 1), 0).is_ok());
    assert!(problems(&chain(MAX_DEPTH + 1, 1)).contains(&("p0 ".into(), Problem::TooDeep)));
    assert!(problems(&chain(100_000, 1)).iter().all(|(_, problem)| *problem == Problem::TooDeep));
    let steep = problems(&chain(6, 10));
    assert!(matches!(&steep[..], [(_, Problem::TooLong(steps)), ..] if *steps > MAX_STEPS), "{steep:?}");
}

#[test]
fn a_policy_that_asks_itself_is_refused() {
    let mut ring = chain(2, 1);
    ring.policies[1].terms[0].from = vec![Condition::Policy(vec!["p0".into()])];
    let [p0, p1] = ["p0", "p1"].map(str::to_owned);
    assert_eq!(problems(&ring), [("p1 t".into(), Problem::Recursion(vec![p0.clone(), p1, p0]))]);
}

// The naive interpreter: the route is changed for real after every term.

fn naive(source: &PolicySource, name: &str, route: &mut Sample) -> Result<(), String> {
    match name {
        "accept-all" => return Ok(()),
        "reject-all" => return Err("reject-all".into()),
        _ => {}
    }
    let policy = source.policies.iter().find(|policy| policy.name == name).expect("is there");
    for term in &policy.terms {
        if !term.from.iter().all(|condition| naive_holds(source, condition, route)) {
            continue;
        }
        match term.outcome {
            Outcome::Reject => return Err(term.name.clone()),
            Outcome::Accept | Outcome::Next => term.then.iter().for_each(|action| change(action, route)),
        }
        if term.outcome == Outcome::Accept {
            return Ok(());
        }
    }
    Err("default".into())
}

fn naive_holds(source: &PolicySource, condition: &Condition, route: &Sample) -> bool {
    match condition {
        Condition::PrefixSet(names) => source
            .prefix_sets
            .iter()
            .filter(|set| names.contains(&set.name))
            .any(|set| set.prefixes.iter().any(|range| range.contains(route.prefix))),
        Condition::Prefix(ranges) => ranges.iter().any(|range| range.contains(route.prefix)),
        Condition::Community(patterns) => patterns.iter().any(|pattern| {
            let high = pattern.to_string().split(':').next().expect("a part").to_owned();
            let low = pattern.to_string().split(':').nth(1).expect("a part").to_owned();
            let fits = |part: &str, value: u32| part == "*" || part == value.to_string();
            route.communities.iter().any(|&c| fits(&high, c >> 16) && fits(&low, c & 0xffff))
        }),
        Condition::OriginAs(ranges) => {
            route.path.last().is_some_and(|&asn| ranges.iter().any(|range| range.contains(Asn(asn))))
        }
        Condition::AsPathLength(range) => range.contains(&(route.path.len() as u32)),
        Condition::Med(range) => route.med.is_some_and(|med| range.contains(&med)),
        Condition::LocalPreference(range) => route.local_pref.is_some_and(|value| range.contains(&value)),
        Condition::Tag(tags) => route.tag.is_some_and(|tag| tags.contains(&tag)),
        // Asks without changing; the policies asked here make no changes.
        Condition::Policy(names) => names.iter().any(|name| naive(source, name, &mut route.clone()).is_ok()),
        other => panic!("not generated: {other:?}"),
    }
}

fn change(action: &Action, route: &mut Sample) {
    match action {
        Action::LocalPreference(value) => route.local_pref = Some(*value),
        Action::Med(MedEdit::Set(value)) => route.med = Some(*value),
        Action::Med(MedEdit::Remove) => route.med = None,
        Action::Tag(value) => route.tag = Some(*value),
        Action::AddCommunities(list) => list.iter().for_each(|community| add(community, route)),
        Action::SetCommunities(list) => {
            route.communities.clear();
            route.large.clear();
            list.iter().for_each(|community| add(community, route));
        }
        Action::RemoveCommunities(patterns) => {
            let one = |value: &u32| vec![Community::Standard(*value)];
            route.communities.retain(|value| {
                !patterns
                    .iter()
                    .any(|pattern| one(value).iter().any(|c| pattern.to_string() == c.to_string()))
            });
        }
        other => panic!("not generated: {other:?}"),
    }
}

fn add(community: &Community, route: &mut Sample) {
    match *community {
        Community::Standard(value) if !route.communities.contains(&value) => route.communities.push(value),
        Community::Large(a, b, c) if !route.large.contains(&(a, b, c)) => route.large.push((a, b, c)),
        Community::Standard(_) | Community::Large(..) => {}
    }
}

/// The route with the edits made.
fn edited(route: &Sample, edits: &Edits) -> Sample {
    let med = match edits.med {
        Some(MedEdit::Set(value)) => Some(value),
        Some(MedEdit::Remove) => None,
        None => route.med,
    };
    Sample {
        local_pref: edits.local_pref.or(route.local_pref),
        med,
        tag: edits.tag.or(route.tag),
        communities: edits.communities.apply(route.communities.iter().copied()).collect(),
        large: edits.large_communities.apply(route.large.iter().copied()).collect(),
        ..route.clone()
    }
}

fn condition() -> impl Strategy<Value = Condition> {
    let small = || (0u32..4, 0u32..4).prop_map(|(a, b)| a.min(b)..=a.max(b));
    let communities = prop::sample::subsequence(vec!["1:1", "1:2", "2:*", "*:3"], 0..3);
    let ranges = prop::sample::subsequence(vec!["10.0.0.0/8", "10.0.0.0/8 le 17", "10.1.0.0/16 ge 17"], 0..3);
    let names = |names: Vec<&'static str>| {
        prop::sample::subsequence(names, 0..2)
            .prop_map(|names| names.into_iter().map(str::to_owned).collect())
    };
    prop_oneof![
        names(vec!["ten", "six"]).prop_map(Condition::PrefixSet),
        ranges.prop_map(|texts| Condition::Prefix(all(&texts))),
        communities.prop_map(|texts| Condition::Community(all(&texts))),
        (0u32..4).prop_map(|asn| Condition::OriginAs(vec![Asn(asn).into()])),
        small().prop_map(Condition::AsPathLength),
        small().prop_map(Condition::Med),
        small().prop_map(Condition::LocalPreference),
        prop::collection::vec(0u32..4, 0..3).prop_map(Condition::Tag),
        names(vec!["inner", "accept-all", "reject-all"]).prop_map(Condition::Policy),
    ]
}

fn action() -> impl Strategy<Value = Action> {
    let communities =
        || prop::sample::subsequence(vec!["1:1", "1:2", "2:3", "1:1:1"], 0..4).prop_map(|texts| all(&texts));
    let removed = prop::sample::subsequence(vec!["1:1", "1:2", "2:3"], 0..3);
    prop_oneof![
        (0u32..4).prop_map(Action::LocalPreference),
        (0u32..4).prop_map(|value| Action::Med(MedEdit::Set(value))),
        Just(Action::Med(MedEdit::Remove)),
        (0u32..4).prop_map(Action::Tag),
        communities().prop_map(Action::AddCommunities),
        communities().prop_map(Action::SetCommunities),
        removed.prop_map(|texts| Action::RemoveCommunities(all(&texts))),
    ]
}

fn terms(
    conditions: impl Strategy<Value = Condition> + 'static,
    actions: impl Strategy<Value = Action> + 'static,
) -> impl Strategy<Value = Vec<Term>> {
    let outcome = prop::sample::select(vec![Outcome::Accept, Outcome::Reject, Outcome::Next, Outcome::Next]);
    let parts = (prop::collection::vec(conditions, 0..3), prop::collection::vec(actions, 0..4), outcome);
    prop::collection::vec(parts, 0..6).prop_map(|parts| {
        let numbered = parts.into_iter().enumerate();
        numbered.map(|(i, (from, then, outcome))| term(&format!("t{i}"), from, then, outcome)).collect()
    })
}

fn route() -> impl Strategy<Value = Sample> {
    let prefix = prop::sample::select(vec!["10.0.0.0/8", "10.1.0.0/16", "10.1.128.0/17", "2001:db8::/32"]);
    let optional = || prop::option::of(0u32..4);
    let communities = prop::sample::subsequence(vec![0x1_0001, 0x1_0002, 0x2_0003, 0x3_0003], 0..4);
    let path = prop::collection::vec(0u32..4, 0..4);
    (prefix, path, communities, optional(), optional(), optional()).prop_map(
        |(prefix, path, communities, med, local_pref, tag)| Sample {
            prefix: prefix.parse().expect("a prefix"),
            path,
            communities,
            med,
            local_pref,
            tag,
            large: vec![],
            ..sample()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn a_program_does_what_a_naive_interpreter_does(
        outer in terms(condition(), action()),
        inner in terms(condition().prop_filter("asks nobody", |c| !matches!(c, Condition::Policy(_))), action()),
        routes in prop::collection::vec(route(), 1..4),
    ) {
        let mut source = source(outer);
        let inner = inner.into_iter().map(|term| Term { then: vec![], ..term }).collect();
        source.policies.push(Policy { name: "inner".into(), terms: inner });
        let library = Library::compile(&source, 0).expect("compiles");
        let program = library.get("p").expect("is there");
        let mut edits = Edits::default();
        for route in routes {
            let mut expected = route.clone();
            let verdict = naive(&source, "p", &mut expected);
            match program.evaluate(&route, &mut edits) {
                Verdict::Accept => {
                    prop_assert_eq!(verdict, Ok(()));
                    let mut found = edited(&route, &edits);
                    found.communities.sort_unstable();
                    expected.communities.sort_unstable();
                    found.large.sort_unstable();
                    expected.large.sort_unstable();
                    prop_assert_eq!(format!("{found:?}"), format!("{expected:?}"));
                }
                Verdict::Reject(term) => prop_assert_eq!(verdict, Err(program.term_name(term).to_owned())),
            }
        }
    }
}
