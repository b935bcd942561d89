//! The naive interpreter: the route is changed for real by every action.

use proptest::prelude::*;

use super::*;

/// `Some` when it was decided; the refusal with the place that decided.
type Decision = Option<Result<(), String>>;

fn naive(source: &PolicySource, name: &str, route: &mut Sample) -> Result<(), String> {
    naive_decides(source, name, route).unwrap_or_else(|| Err("default".into()))
}

fn naive_decides(source: &PolicySource, name: &str, route: &mut Sample) -> Decision {
    match name {
        "accept-all" => return Some(Ok(())),
        "reject-all" => return Some(Err("reject-all".into())),
        _ => {}
    }
    let policy = source.policies.iter().find(|policy| policy.name == name).expect("is there");
    if let Some(decided) = naive_actions(source, &policy.first, route) {
        return Some(decided);
    }
    for term in &policy.terms {
        if !term.from.iter().all(|condition| naive_holds(source, condition, route)) {
            continue;
        }
        let decided = naive_actions(source, &term.then, route);
        if let Some(decided) = decided.or_else(|| outcome(term.outcome, &term.name)) {
            return Some(decided);
        }
    }
    let last = policy.last.as_ref()?;
    naive_actions(source, &last.then, route).or_else(|| outcome(last.outcome, "last"))
}

fn outcome(outcome: Outcome, place: &str) -> Decision {
    match outcome {
        Outcome::Accept => Some(Ok(())),
        Outcome::Reject => Some(Err(place.into())),
        Outcome::Next => None,
    }
}

fn naive_actions(source: &PolicySource, actions: &[Action], route: &mut Sample) -> Decision {
    actions.iter().find_map(|action| match action {
        Action::Apply(name) => naive_decides(source, name, route)
            .map(|decided| decided.map_err(|place| format!("{name}: {place}"))),
        action => {
            change(action, route);
            None
        }
    })
}

/// Whether a community as printed is meant by a pattern as printed.
fn fits(pattern: &str, community: &str) -> bool {
    let (pattern, community): (Vec<_>, Vec<_>) =
        (pattern.split(':').collect(), community.split(':').collect());
    pattern.len() == community.len()
        && pattern.iter().zip(&community).all(|(pattern, part)| *pattern == "*" || pattern == part)
}

fn communities(route: &Sample) -> Vec<String> {
    let standard = route.communities.iter().map(|&value| Community::Standard(value));
    let large = route.large.iter().map(|&(a, b, c)| Community::Large(a, b, c));
    let extended = route.extended.iter().map(|&octets| Community::Extended(octets));
    standard.chain(large).chain(extended).map(|community| community.to_string()).collect()
}

fn naive_holds(source: &PolicySource, condition: &Condition, route: &Sample) -> bool {
    match condition {
        Condition::PrefixSet(names) => source
            .prefix_sets
            .iter()
            .filter(|set| names.contains(&set.name))
            .any(|set| set.prefixes.iter().any(|range| range.contains(route.prefix))),
        Condition::Prefix(ranges) => ranges.iter().any(|range| range.contains(route.prefix)),
        Condition::PrefixLength(range) => range.contains(&route.prefix.length()),
        Condition::Community(patterns) => patterns
            .iter()
            .any(|pattern| communities(route).iter().any(|community| fits(&pattern.to_string(), community))),
        Condition::CommunityRegex(regexes) => regexes.iter().any(|regex| {
            // Those generated are `^TEXT$`.
            let text = regex.to_string();
            communities(route).iter().any(|community| text == format!("^{community}$"))
        }),
        Condition::AsPathRegex(regexes) => regexes.iter().any(|regex| {
            // Those generated are `_AS_`.
            route.path.iter().any(|asn| regex.to_string() == format!("_{asn}_"))
        }),
        Condition::OriginAs(ranges) => {
            route.path.last().is_some_and(|&asn| ranges.iter().any(|range| range.contains(Asn(asn))))
        }
        Condition::AsPathLength(range) => range.contains(&(route.path.len() as u32)),
        Condition::Med(range) => route.med.is_some_and(|med| range.contains(&med)),
        Condition::LocalPreference(range) => route.local_pref.is_some_and(|value| range.contains(&value)),
        Condition::Tag(tags) => route.tag.is_some_and(|tag| tags.contains(&tag)),
        Condition::Metric(range) => route.metric.is_some_and(|value| range.contains(&value)),
        Condition::Validity(states) => states.contains(&Validity::NotFound),
        Condition::Aspa(states) => states.contains(&PathValidity::Unknown),
        Condition::Bgpsec(states) => states.contains(&PathSecurity::Unsigned),
        // Asks without changing; the policies asked here make no changes.
        Condition::Policy(names) => names.iter().any(|name| naive(source, name, &mut route.clone()).is_ok()),
        Condition::Not(conditions) => {
            !conditions.iter().all(|condition| naive_holds(source, condition, route))
        }
        other => panic!("not generated: {other:?}"),
    }
}

fn change(action: &Action, route: &mut Sample) {
    let med = route.med.unwrap_or(0);
    match action {
        Action::LocalPreference(value) => route.local_pref = Some(*value),
        Action::Weight(value) => route.weight = Some(*value),
        Action::Med(MedAction::Set(value)) => route.med = Some(*value),
        Action::Med(MedAction::Add(more)) => route.med = Some(med.saturating_add(*more)),
        Action::Med(MedAction::Subtract(less)) => route.med = Some(med.saturating_sub(*less)),
        Action::Med(MedAction::Metric) => route.med = route.metric,
        Action::Med(MedAction::Remove) => route.med = None,
        Action::Tag(value) => route.tag = Some(*value),
        Action::AddCommunities(list) => list.iter().for_each(|community| add(community, route)),
        Action::SetCommunities(list) => {
            route.communities.clear();
            route.large.clear();
            route.extended.clear();
            list.iter().for_each(|community| add(community, route));
        }
        Action::RemoveCommunities(patterns) => {
            remove(&patterns.iter().map(ToString::to_string).collect::<Vec<_>>(), route);
        }
        Action::ReplaceCommunities(Replacement { these, by }) => {
            let before = communities(route).len();
            remove(&these.iter().map(ToString::to_string).collect::<Vec<_>>(), route);
            if communities(route).len() < before {
                by.iter().for_each(|community| add(community, route));
            }
        }
        other => panic!("not generated: {other:?}"),
    }
}

fn remove(patterns: &[String], route: &mut Sample) {
    let stays = |community: Community| !patterns.iter().any(|pattern| fits(pattern, &community.to_string()));
    route.communities.retain(|&value| stays(Community::Standard(value)));
    route.large.retain(|&(a, b, c)| stays(Community::Large(a, b, c)));
    route.extended.retain(|&octets| stays(Community::Extended(octets)));
}

fn add(community: &Community, route: &mut Sample) {
    match *community {
        Community::Standard(value) if !route.communities.contains(&value) => route.communities.push(value),
        Community::Large(a, b, c) if !route.large.contains(&(a, b, c)) => route.large.push((a, b, c)),
        Community::Extended(octets) if !route.extended.contains(&octets) => route.extended.push(octets),
        Community::Standard(_) | Community::Large(..) | Community::Extended(_) => {}
    }
}

/// The route with the edits made.
fn edited(route: &Sample, edits: &Edits) -> Sample {
    Sample {
        local_pref: edits.local_pref.or(route.local_pref),
        weight: edits.weight,
        med: edits.med.map_or(route.med, |med| med.value(route.metric)),
        tag: edits.tag.or(route.tag),
        communities: edits.communities.apply(route.communities.iter().copied()).collect(),
        large: edits.large_communities.apply(route.large.iter().copied()).collect(),
        extended: edits.ext_communities.apply(route.extended.iter().copied()).collect(),
        ..route.clone()
    }
}

fn condition() -> impl Strategy<Value = Condition> {
    simple_condition()
        .prop_recursive(2, 8, 2, |inner| prop::collection::vec(inner, 0..3).prop_map(Condition::Not))
}

fn simple_condition() -> impl Strategy<Value = Condition> {
    let small = || (0u32..4, 0u32..4).prop_map(|(a, b)| a.min(b)..=a.max(b));
    let communities =
        prop::sample::subsequence(vec!["1:1", "1:2", "2:*", "*:3", "1:1:*", "rt:1:1", "soo:1:*"], 0..3);
    let printed = prop::sample::subsequence(vec!["^1:1$", "^1:1:1$", "^rt:1:1$"], 0..3);
    let ranges = prop::sample::subsequence(vec!["10.0.0.0/8", "10.0.0.0/8 le 17", "10.1.0.0/16 ge 17"], 0..3);
    let aspa = prop::sample::subsequence(vec![PathValidity::Valid, PathValidity::Unknown], 0..3);
    let bgpsec = prop::sample::subsequence(vec![PathSecurity::Valid, PathSecurity::Unsigned], 0..3);
    let validity = prop::sample::subsequence(vec![Validity::Valid, Validity::NotFound], 0..3);
    let names = |names: Vec<&'static str>| {
        prop::sample::subsequence(names, 0..2)
            .prop_map(|names| names.into_iter().map(str::to_owned).collect())
    };
    prop_oneof![
        names(vec!["ten", "six"]).prop_map(Condition::PrefixSet),
        ranges.prop_map(|texts| Condition::Prefix(all(&texts))),
        (8u8..20, 8u8..40).prop_map(|(a, b)| Condition::PrefixLength(a.min(b)..=a.max(b))),
        communities.prop_map(|texts| Condition::Community(all(&texts))),
        printed.prop_map(|texts| Condition::CommunityRegex(all(&texts))),
        (0u32..4).prop_map(|asn| Condition::OriginAs(vec![Asn(asn).into()])),
        (0u32..4).prop_map(|asn| Condition::AsPathRegex(all(&[&format!("_{asn}_")]))),
        small().prop_map(Condition::AsPathLength),
        small().prop_map(Condition::Med),
        small().prop_map(Condition::LocalPreference),
        small().prop_map(Condition::Metric),
        validity.prop_map(Condition::Validity),
        aspa.prop_map(Condition::Aspa),
        bgpsec.prop_map(Condition::Bgpsec),
        prop::collection::vec(0u32..4, 0..3).prop_map(Condition::Tag),
        names(vec!["asked", "accept-all", "reject-all"]).prop_map(Condition::Policy),
    ]
}

fn action() -> BoxedStrategy<Action> {
    let communities = || {
        prop::sample::subsequence(vec!["1:1", "1:2", "2:3", "1:1:1", "rt:1:1", "soo:1:2"], 0..4)
            .prop_map(|texts| all(&texts))
    };
    let removed = || {
        prop::sample::subsequence(vec!["1:1", "1:*", "2:3", "1:1:*", "rt:1:*", "soo:1:2"], 0..3)
            .prop_map(|texts| all(&texts))
    };
    prop_oneof![
        (0u32..4).prop_map(Action::LocalPreference),
        (0u32..4).prop_map(Action::Weight),
        (0u32..4).prop_map(|value| Action::Med(MedAction::Set(value))),
        (0u32..4).prop_map(|value| Action::Med(MedAction::Add(value))),
        (0u32..4).prop_map(|value| Action::Med(MedAction::Subtract(value))),
        Just(Action::Med(MedAction::Remove)),
        Just(Action::Med(MedAction::Metric)),
        (0u32..4).prop_map(Action::Tag),
        communities().prop_map(Action::AddCommunities),
        communities().prop_map(Action::SetCommunities),
        removed().prop_map(Action::RemoveCommunities),
        (removed(), communities())
            .prop_map(|(these, by)| Action::ReplaceCommunities(Replacement { these, by })),
    ]
    .boxed()
}

fn applying() -> BoxedStrategy<Action> {
    let applied = prop::sample::select(vec!["applied", "applied", "accept-all", "reject-all"]);
    prop_oneof![4 => action(), 1 => applied.prop_map(|name| Action::Apply(name.into()))].boxed()
}

fn any_outcome() -> impl Strategy<Value = Outcome> {
    prop::sample::select(vec![Outcome::Accept, Outcome::Reject, Outcome::Next, Outcome::Next])
}

fn terms(
    conditions: impl Strategy<Value = Condition> + 'static,
    actions: impl Strategy<Value = Action> + 'static,
) -> impl Strategy<Value = Vec<Term>> {
    let parts =
        (prop::collection::vec(conditions, 0..3), prop::collection::vec(actions, 0..4), any_outcome());
    prop::collection::vec(parts, 0..6).prop_map(|parts| {
        let numbered = parts.into_iter().enumerate();
        numbered.map(|(i, (from, then, outcome))| term(&format!("t{i}"), from, then, outcome)).collect()
    })
}

fn any_policy(
    name: &'static str,
    conditions: impl Strategy<Value = Condition> + 'static,
    actions: BoxedStrategy<Action>,
) -> impl Strategy<Value = Policy> {
    let last = (prop::collection::vec(actions.clone(), 0..3), any_outcome())
        .prop_map(|(then, outcome)| Last { then, outcome });
    (prop::collection::vec(actions.clone(), 0..3), terms(conditions, actions), prop::option::of(last))
        .prop_map(move |(first, terms, last)| Policy { name: name.into(), first, terms, last })
}

fn route() -> impl Strategy<Value = Sample> {
    let prefix = prop::sample::select(vec!["10.0.0.0/8", "10.1.0.0/16", "10.1.128.0/17", "2001:db8::/32"]);
    let optional = || prop::option::of(0u32..4);
    let communities = prop::sample::subsequence(vec![0x1_0001, 0x1_0002, 0x2_0003, 0x3_0003], 0..4);
    let large = prop::sample::subsequence(vec![(1, 1, 1), (1, 1, 2), (3, 3, 3)], 0..3);
    let extended = prop::sample::subsequence(vec![0x0002_0001_0000_0001, 0x0003_0001_0000_0002], 0..3);
    let path = prop::collection::vec(0u32..4, 0..4);
    let lists = (path, communities, large, extended);
    (prefix, lists, optional(), optional(), optional(), (0u32..4).prop_map(Some)).prop_map(
        |(prefix, (path, communities, large, extended), med, local_pref, tag, metric)| Sample {
            prefix: prefix.parse().expect("a prefix"),
            path,
            communities,
            med,
            local_pref,
            tag,
            large,
            extended,
            metric,
            ..sample()
        },
    )
}

/// Without changes: what is asked sees none of its own.
fn asked() -> impl Strategy<Value = Policy> {
    let asks = |condition: &Condition| format!("{condition:?}").contains("Policy(");
    let conditions = condition().prop_filter("asks nobody", move |condition| !asks(condition));
    any_policy("asked", conditions, action()).prop_map(|policy| Policy {
        first: vec![],
        terms: policy.terms.into_iter().map(|term| Term { then: vec![], ..term }).collect(),
        last: policy.last.map(|last| Last { then: vec![], ..last }),
        ..policy
    })
}

proptest! {
    #![proptest_config(holdfast_testing::cases(4096))]

    #[test]
    fn a_program_does_what_a_naive_interpreter_does(
        outer in any_policy("p", condition(), applying()),
        applied in any_policy("applied", condition(), action()),
        asked in asked(),
        routes in prop::collection::vec(route(), 1..4),
    ) {
        let source = PolicySource { policies: vec![outer, applied, asked], ..source(vec![]) };
        let library = Library::compile(&source, 0).expect("compiles");
        let program = library.get("p").expect("is there");
        let mut edits = Edits::default();
        for route in routes {
            let mut expected = route.clone();
            let verdict = naive(&source, "p", &mut expected);
            let trace = program.trace(&route, &source);
            match program.evaluate(&route, &mut edits) {
                Verdict::Accept => {
                    prop_assert!(trace.accepted);
                    prop_assert_eq!(verdict, Ok(()));
                    let mut found = edited(&route, &edits);
                    for route in [&mut found, &mut expected] {
                        route.communities.sort_unstable();
                        route.large.sort_unstable();
                        route.extended.sort_unstable();
                    }
                    prop_assert_eq!(format!("{found:?}"), format!("{expected:?}"));
                }
                Verdict::Reject(term) => {
                    prop_assert_eq!((trace.accepted, trace.decided_by.as_str()), (false, program.term_name(term)));
                    prop_assert_eq!(verdict, Err(program.term_name(term).to_owned()));
                }
            }
        }
    }

    #[test]
    fn a_source_survives_its_json(outer in any_policy("p", condition(), applying())) {
        let text = serde_json::to_string(&outer).expect("serialises");
        prop_assert_eq!(serde_json::from_str::<Policy>(&text).expect("is a policy"), outer);
    }
}
