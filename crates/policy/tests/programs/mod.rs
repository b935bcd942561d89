//! What programs decide, by example and against a naive interpreter of their source.

mod naive;

use std::net::IpAddr;

use holdfast_policy::{
    Action, AsPathSet, Community, CommunitySet, Condition, Edits, Last, Library, MAX_DEPTH, MAX_ENTRIES,
    MAX_NEGATIONS, MAX_STEPS, MedAction, MedEdit, NextHopEdit, Origin, Outcome, PathElement, PathSecurity,
    PathValidity, Policy, PolicySource, PrefixRanges, PrefixSet, Prepend, PrependAs, Problem, Program,
    Protocol, ReceiveError, Replacement, Route, SetKind, Term, Validity, Verdict,
};
use holdfast_types::{Asn, Prefix};

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
    extended: Vec<u64>,
    peer: Option<u32>,
    protocol: Protocol,
    tag: Option<u32>,
    interface: Option<&'static str>,
    metric: Option<u32>,
    weight: Option<u32>,
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
        self.extended.iter().copied()
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
    fn interface(&self) -> Option<&str> {
        self.interface
    }
    fn metric(&self) -> Option<u32> {
        self.metric
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
        extended: vec![0x0002_0001_0000_0007],
        peer: Some(1),
        protocol: Protocol::Bgp,
        tag: None,
        interface: Some("eth0"),
        metric: Some(20),
        weight: None,
    }
}

fn policy(name: &str, terms: Vec<Term>) -> Policy {
    Policy { name: name.into(), first: vec![], terms, last: None }
}

fn all<T: std::str::FromStr<Err: std::fmt::Debug>>(texts: &[&str]) -> Vec<T> {
    texts.iter().map(|text| text.parse().expect("well formed")).collect()
}

fn ranges(texts: &[&str]) -> PrefixRanges {
    all(texts).into_iter().collect()
}

fn term(name: &str, from: Vec<Condition>, then: Vec<Action>, outcome: Outcome) -> Term {
    Term { name: name.into(), from, then, outcome }
}

fn source(terms: Vec<Term>) -> PolicySource {
    PolicySource {
        prefix_sets: vec![
            PrefixSet { name: "ten".into(), prefixes: ranges(&["10.0.0.0/8 le 24"]) },
            PrefixSet { name: "six".into(), prefixes: ranges(&["2001:db8::/32"]) },
        ],
        community_sets: vec![CommunitySet {
            name: "hundred".into(),
            communities: all(&["*:100"]),
            regexes: all(&["^1:2:[0-9]$"]),
        }],
        as_path_sets: vec![AsPathSet {
            name: "from-one".into(),
            paths: all(&["1 *"]),
            regexes: all(&["_7$"]),
        }],
        policies: vec![policy("p", terms)],
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
        (Condition::AsPathRegex(all(&["^1_.*_3$"])), Condition::AsPathRegex(all(&["^2_", "_1$"]))),
        (Condition::CommunityRegex(all(&["^1:1..$"])), Condition::CommunityRegex(all(&["^1:1.$"]))),
        (Condition::PrefixLength(8..=16), Condition::PrefixLength(17..=32)),
        (Condition::Interface(names(&["eth1", "eth0"])), Condition::Interface(names(&["eth"]))),
        (Condition::Metric(20..=20), Condition::Metric(0..=19)),
        (
            Condition::Validity(vec![Validity::NotFound]),
            Condition::Validity(vec![Validity::Valid, Validity::Invalid]),
        ),
        (
            Condition::Aspa(vec![PathValidity::Unknown]),
            Condition::Aspa(vec![PathValidity::Valid, PathValidity::Invalid]),
        ),
        (
            Condition::Bgpsec(vec![PathSecurity::Unsigned]),
            Condition::Bgpsec(vec![PathSecurity::Valid, PathSecurity::NotValid, PathSecurity::Unverified]),
        ),
        (
            Condition::Not(vec![Condition::Med(5..=5), Condition::Med(6..=6)]),
            Condition::Not(vec![Condition::Med(5..=5), Condition::AsPathLength(3..=3)]),
        ),
        (Condition::AsPathLength(3..=3), Condition::AsPathLength(4..=9)),
        (Condition::NeighborAs(all(&["1-2"])), Condition::NeighborAs(all(&["3"]))),
        (Condition::OriginAs(all(&["3"])), Condition::OriginAs(all(&["1"]))),
        (Condition::PeerAs(all(&["1"])), Condition::PeerAs(all(&["2"]))),
        (Condition::Origin(vec![Origin::Egp, Origin::Igp]), Condition::Origin(vec![Origin::Incomplete])),
        (Condition::Med(5..=5), Condition::LocalPreference(0..=u32::MAX)),
        (Condition::NextHop(all(&["10.9.0.0/24"])), Condition::NextHop(all(&["10.8.0.0/16"]))),
        (Condition::Protocol(vec![Protocol::Bgp]), Condition::Protocol(all(&["toy", "bg"]))),
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
    assert_eq!(edits(vec![Action::Weight(7)]).weight, Some(7));
    let med = |actions: &[MedAction]| edits(actions.iter().copied().map(Action::Med).collect()).med;
    assert_eq!(med(&[MedAction::Remove]), Some(MedEdit::Remove));
    assert_eq!(med(&[MedAction::Add(3), MedAction::Subtract(1)]), Some(MedEdit::Set(7)));
    assert_eq!(med(&[MedAction::Subtract(9)]), Some(MedEdit::Set(0)));
    assert_eq!(med(&[MedAction::Remove, MedAction::Add(u32::MAX)]), Some(MedEdit::Set(u32::MAX)));
    assert_eq!(med(&[MedAction::Metric, MedAction::Add(1)]), Some(MedEdit::Set(21)));
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
    assert!(replaced.large_communities.replace && replaced.ext_communities.replace);
    let these = |these: &[&str]| {
        Action::ReplaceCommunities(Replacement { these: all(these), by: all(&["rt:9:9", "1:2:4"]) })
    };
    let changed = edits(vec![these(&["rt:1:*", "1:2:*"])]);
    assert_eq!(changed.ext_communities.add, [0x0002_0009_0000_0009]);
    assert_eq!(changed.ext_communities.remove, [0x0002_0001_0000_0007]);
    assert_eq!(
        (changed.large_communities.remove, changed.large_communities.add),
        (vec![(1, 2, 3)], vec![(1, 2, 4)])
    );
    assert!(edits(vec![these(&["9:9"])]).is_empty(), "nothing goes, so nothing comes");
}

#[test]
fn a_metric_that_nobody_knows_yet_is_put_in_by_who_announces() {
    let route = Sample { metric: None, ..sample() };
    let program = program(vec![term(
        "t",
        vec![],
        vec![Action::Med(MedAction::Metric), Action::Med(MedAction::Subtract(5))],
        Outcome::Accept,
    )]);
    let mut edits = Edits::default();
    assert_eq!(program.evaluate(&route, &mut edits), Verdict::Accept);
    let med = edits.med.expect("an edit");
    assert_eq!((med.value(Some(12)), med.value(Some(3)), med.value(None)), (Some(7), Some(0), None));
}

#[test]
fn first_comes_before_all_terms_and_last_after_them() {
    let mut source = source(vec![
        term("seen", vec![Condition::Tag(vec![5])], vec![Action::Weight(1)], Outcome::Next),
        term("short", vec![Condition::AsPathLength(0..=1)], vec![], Outcome::Accept),
    ]);
    source.policies[0].first = vec![Action::Tag(5)];
    let decide = |source: &PolicySource, route: &Sample| {
        let library = Library::compile(source, 0).expect("compiles");
        let (program, mut edits) = (library.get("p").expect("is there"), Edits::default());
        match program.evaluate(route, &mut edits) {
            Verdict::Accept => Ok((edits.tag, edits.weight, edits.local_pref)),
            Verdict::Reject(term) => Err(program.term_name(term).to_owned()),
        }
    };
    assert_eq!(decide(&source, &sample()), Err("default".into()));
    let short = Sample { path: vec![1], ..sample() };
    assert_eq!(decide(&source, &short), Ok((Some(5), Some(1), None)));
    source.policies[0].last = Some(Last { then: vec![Action::LocalPreference(9)], outcome: Outcome::Accept });
    assert_eq!(decide(&source, &sample()), Ok((Some(5), Some(1), Some(9))));
    assert_eq!(decide(&source, &short), Ok((Some(5), Some(1), None)));
    source.policies[0].last = Some(Last { then: vec![], outcome: Outcome::Reject });
    assert_eq!(decide(&source, &sample()), Err("last".into()));
}

#[test]
fn an_applied_policy_decides_or_leaves_its_changes() {
    let apply = || vec![Action::Tag(1), Action::Apply("inner".into()), Action::Weight(2)];
    let mut source = source(vec![
        term("calls", vec![], apply(), Outcome::Next),
        term("after", vec![Condition::LocalPreference(7..=7)], vec![], Outcome::Accept),
    ]);
    source.policies.push(policy(
        "inner",
        vec![
            term(
                "bad",
                vec![Condition::OriginAs(all(&["666"])), Condition::Tag(vec![1])],
                vec![],
                Outcome::Reject,
            ),
            term("good", vec![Condition::OriginAs(all(&["777"]))], vec![Action::Tag(3)], Outcome::Accept),
            term("mark", vec![], vec![Action::LocalPreference(7)], Outcome::Next),
        ],
    ));
    let library = Library::compile(&source, 0).expect("compiles");
    let program = library.get("p").expect("is there");
    let mut edits = Edits::default();
    let mut decide =
        |origin: u32| match program.evaluate(&Sample { path: vec![origin], ..sample() }, &mut edits) {
            Verdict::Accept => Ok((edits.tag, edits.local_pref, edits.weight)),
            Verdict::Reject(term) => Err(program.term_name(term).to_owned()),
        };
    assert_eq!(decide(666), Err("inner: bad".into()));
    assert_eq!(decide(777), Ok((Some(3), None, None)));
    assert_eq!(decide(5), Ok((Some(1), Some(7), Some(2))));
}

#[test]
fn later_terms_see_what_earlier_ones_changed() {
    let program = program(vec![
        term(
            "change",
            vec![],
            vec![
                Action::LocalPreference(50),
                Action::Med(MedAction::Remove),
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
    changed.prefix_sets[0].prefixes = ranges(&["10.0.0.0/8"]);
    assert_ne!(Library::compile(&changed, 8).expect("compiles").get("p"), Some(&first));
    // What is the same stays one program after an earlier library, what is not is another.
    let before = Library::compile(&source(terms("ten")), 7).expect("compiles");
    let id = |library: &Library| library.get("p").expect("a policy").id();
    let same = Library::compile_after(&source(terms("ten")), 8, &before).expect("compiles");
    assert_eq!(id(&same), id(&before));
    let other = Library::compile_after(&changed, 9, &same).expect("compiles");
    assert_eq!((id(&other).generation, other.get("p") == same.get("p")), (9, false));
    assert_eq!(other.get("p"), Library::compile(&changed, 0).expect("compiles").get("p"));
}

#[test]
fn a_check_finds_what_compiling_finds() {
    let named = |set: &str| {
        source(vec![term("t", vec![Condition::PrefixSet(vec![set.into()])], vec![], Outcome::Accept)])
    };
    assert_eq!(named("ten").check(), Ok(()));
    let mut large = named("ten");
    let range = "10.0.0.0/8".parse().expect("a prefix");
    large.prefix_sets[0].prefixes = std::iter::repeat_n(range, MAX_ENTRIES + 1).collect();
    for source in [named("nine"), large] {
        let wrong = source.check().expect_err("wrong");
        assert_eq!(Some(wrong), Library::compile(&source, 0).err());
    }
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
    nested.policies.insert(0, policy("outer", asks));
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
    twice.policies.push(policy("accept-all", vec![]));
    let expected = [
        ("ten ".into(), Problem::DuplicateSet(SetKind::Prefix)),
        ("accept-all ".into(), Problem::DuplicatePolicy),
    ];
    assert_eq!(problems(&twice), expected);
    let error = Library::compile(&twice, 0).expect_err("is wrong").remove(0);
    assert_eq!(error.to_string(), "ten: the name is that of another prefix-set");
}

#[test]
fn a_trace_says_what_each_term_did() {
    let mut source = source(vec![
        term(
            "others",
            vec![Condition::Med(5..=5), Condition::OriginAs(all(&["7", "8"]))],
            vec![],
            Outcome::Reject,
        ),
        term("checks", vec![], vec![Action::Tag(4), Action::Apply("inner".into())], Outcome::Next),
    ]);
    source.policies[0].first = vec![Action::Weight(3)];
    let actions = vec![
        Action::RemoveCommunities(all(&["1:*", "rt:1:*"])),
        Action::AddCommunities(all(&["no-export"])),
        Action::Med(MedAction::Add(1)),
    ];
    source.policies.push(policy("inner", vec![term("take", vec![], actions, Outcome::Accept)]));
    let library = Library::compile(&source, 0).expect("compiles");
    let trace = library.get("p").expect("is there").trace(&sample(), &source);
    assert_eq!((trace.accepted, trace.decided_by.as_str()), (true, "inner: take"));
    let lines: Vec<String> = trace
        .places
        .iter()
        .map(|place| {
            let failed =
                place.failed.as_ref().map(|failed| format!("{} but {}", failed.condition, failed.found));
            format!("{} {}/{} {:?} {failed:?}", place.depth, place.policy, place.term, place.changes)
        })
        .collect();
    assert_eq!(
        lines,
        [
            r#"0 p/first ["weight 3"] None"#,
            r#"0 p/others [] Some("origin-as = [\"7\", \"8\"] but 1 2 3")"#,
            r#"0 p/checks ["tag 4"] None"#,
            r#"1 inner/take ["med 6", "communities -1:100 -rt:1:7 +no-export"] None"#,
        ]
    );
    let expected = [
        "weight 3",
        "med 6",
        "origin igp",
        "as-path 1 2 3",
        "communities no-export 1:2:3",
        "next-hop 10.9.0.1",
        "tag 4",
    ];
    assert_eq!(trace.result, expected);
    let trace = Program::reject_all().trace(&sample(), &source);
    assert_eq!((trace.accepted, trace.decided_by.as_str(), trace.places.len()), (false, "reject-all", 1));
}

/// Policies `p0` to `pN`, each of which asks the next one `times` times.
fn chain(length: usize, times: usize) -> PolicySource {
    let link = |i: usize| {
        let asked = if i + 1 == length { vec![] } else { vec![format!("p{}", i + 1); times] };
        policy(&format!("p{i}"), vec![term("t", vec![Condition::Policy(asked)], vec![], Outcome::Accept)])
    };
    PolicySource { policies: (0..length).map(link).collect(), ..PolicySource::default() }
}

#[test]
fn nesting_is_bounded_in_depth_and_in_steps() {
    assert!(Library::compile(&chain(MAX_DEPTH, 1), 0).is_ok());
    assert!(problems(&chain(MAX_DEPTH + 1, 1)).contains(&("p0 ".into(), Problem::TooDeep)));
    assert!(problems(&chain(100_000, 1)).iter().all(|(_, problem)| *problem == Problem::TooDeep));
    let steep = problems(&chain(6, 10));
    assert!(matches!(&steep[..], [(_, Problem::TooLong(steps)), ..] if *steps > MAX_STEPS), "{steep:?}");
}

/// The same where each policy applies the next one.
fn applied(length: usize, times: usize) -> PolicySource {
    let mut source = chain(length, 0);
    for (i, policy) in source.policies.iter_mut().enumerate().take(length - 1) {
        policy.terms[0].then = vec![Action::Apply(format!("p{}", i + 1)); times];
    }
    source
}

#[test]
fn applying_is_bounded_as_asking_is() {
    assert!(Library::compile(&applied(MAX_DEPTH, 1), 0).is_ok());
    assert!(problems(&applied(MAX_DEPTH + 1, 1)).contains(&("p0 ".into(), Problem::TooDeep)));
    let too_much = |problem: &Problem| matches!(problem, Problem::TooLong(_) | Problem::TooManyTerms);
    assert!(problems(&applied(6, 10)).iter().any(|(_, problem)| too_much(problem)));
    assert!(problems(&applied(3, 300)).contains(&("p0 t".into(), Problem::TooManyTerms)));
    let mut ring = applied(2, 1);
    ring.policies[1].terms[0].then = vec![Action::Apply("p0".into())];
    assert!(matches!(&problems(&ring)[..], [(_, Problem::Recursion(_))]));
}

#[test]
fn negations_and_entries_are_bounded() {
    let negated = |times: usize| {
        let condition = (0..times).fold(Condition::Med(1..=1), |inner, _| Condition::Not(vec![inner]));
        source(vec![term("t", vec![condition], vec![], Outcome::Accept)])
    };
    assert!(Library::compile(&negated(MAX_NEGATIONS), 0).is_ok());
    assert_eq!(problems(&negated(MAX_NEGATIONS + 1)), [("p t".into(), Problem::TooManyNegations)]);
    let mut large = source(vec![term(
        "t",
        vec![
            Condition::PrefixSet(vec!["ten".into()]),
            Condition::PrefixSet(vec!["ten".into(), "six".into()]),
        ],
        vec![],
        Outcome::Accept,
    )]);
    large.prefix_sets[0].prefixes =
        std::iter::repeat_n("10.0.0.0/8".parse().expect("a prefix"), MAX_ENTRIES / 2).collect();
    assert_eq!(problems(&large), [("p t".into(), Problem::TooManyEntries)]);
}

#[test]
fn what_is_compared_one_by_one_counts_as_steps() {
    let steps =
        |condition: Condition| program(vec![term("t", vec![condition], vec![], Outcome::Accept)]).steps();
    let whole: Vec<String> = (0..10_000).map(|i| format!("1:{i}")).collect();
    let whole: Vec<&str> = whole.iter().map(String::as_str).collect();
    assert_eq!(steps(Condition::Community(all(&whole))), 2);
    let regexes: Vec<String> = (0..100).map(|i| format!("_{i}_")).collect();
    let regexes: Vec<&str> = regexes.iter().map(String::as_str).collect();
    assert_eq!(steps(Condition::AsPathRegex(all(&regexes))), 102);
    assert_eq!(steps(Condition::Not(vec![Condition::Tag(vec![1, 2, 3])])), 6);
}

#[test]
fn what_was_sent_is_compiled_by_who_receives_it() {
    let mut sent = source(vec![term("t", vec![], vec![Action::Apply("q".into())], Outcome::Next)]);
    let text = |source: &PolicySource| serde_json::to_string(source).expect("serialises");
    assert!(matches!(Library::receive(&text(&sent), 0), Err(ReceiveError::Wrong(_))));
    assert!(matches!(Library::receive("{", 0), Err(ReceiveError::Syntax(_))));
    sent.policies.push(policy("q", vec![]));
    assert!(Library::receive(&text(&sent), 0).is_ok_and(|library| library.get("p").is_some()));
    let before = r#"{"prefix-sets":[],"community-sets":[{"name":"c","communities":["1:1"]}],"as-path-sets":[],
        "policies":[{"name":"p","terms":[{"name":"1","from":[{"protocol":["bgp"]}],
        "then":[{"med":"remove"},{"med":{"set":3}}],"outcome":"accept"}]}]}"#;
    assert!(Library::receive(before, 0).is_ok(), "an older manager's policies are read");
}

#[test]
fn a_policy_that_asks_itself_is_refused() {
    let mut ring = chain(2, 1);
    ring.policies[1].terms[0].from = vec![Condition::Policy(vec!["p0".into()])];
    let [p0, p1] = ["p0", "p1"].map(str::to_owned);
    assert_eq!(problems(&ring), [("p1 t".into(), Problem::Recursion(vec![p0.clone(), p1, p0]))]);
}
