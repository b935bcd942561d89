//! `[[policy]]`, and the sets that policies name.

use std::{net::IpAddr, ops::RangeInclusive};

use holdfast_policy::{
    ACCEPT_ALL, Action, AsPathSet, AsnRange, Community, CommunityPattern, CommunitySet, Condition, Library,
    MedEdit, NextHopEdit, Origin, Outcome, PathPattern, Policy, PolicySource, PrefixRange, PrefixSet,
    Prepend, PrependAs, Protocol, REJECT_ALL, Term,
};
use holdfast_types::{Asn, Prefix};

use super::{unicast, usable};
use crate::input::{At, Names, Problem, Section, Value};

const OUTCOMES: [(&str, Outcome); 3] =
    [("accept", Outcome::Accept), ("reject", Outcome::Reject), ("next", Outcome::Next)];

/// The names that conditions may use.
struct Known<'a> {
    prefix_sets: Names<'a>,
    community_sets: Names<'a>,
    as_path_sets: Names<'a>,
    policies: Names<'a>,
}

/// Reads the policies; also returns their names, for peers to refer to.
pub(super) fn read<'a>(root: &Section<'a>) -> (PolicySource, Names<'a>) {
    let report = root.report;
    let mut known = Known {
        prefix_sets: Names::new(report, "prefix-set"),
        community_sets: Names::new(report, "community-set"),
        as_path_sets: Names::new(report, "as-path-set"),
        policies: Names::new(report, "policy").built_in([ACCEPT_ALL, REJECT_ALL]),
    };
    let prefix_sets = sets(root, "prefix-set", "[[prefix-set]]", "prefixes", &mut known.prefix_sets);
    let community_sets =
        sets(root, "community-set", "[[community-set]]", "communities", &mut known.community_sets);
    let as_path_sets = sets(root, "as-path-set", "[[as-path-set]]", "paths", &mut known.as_path_sets);
    let sections = root.sections("policy", "[[policy]]");
    // A policy may ask one that stands further down: all names first.
    let names: Vec<_> = sections.iter().map(|section| section.required::<String>("name")).collect();
    names.iter().flatten().for_each(|name| known.policies.declare(name));
    let policies =
        sections.iter().zip(&names).filter_map(|(section, name)| policy(section, name.as_ref(), &known));
    let source = PolicySource {
        policies: policies.collect(),
        prefix_sets: prefix_sets.into_iter().map(|(name, prefixes)| PrefixSet { name, prefixes }).collect(),
        community_sets: community_sets
            .into_iter()
            .map(|(name, communities)| CommunitySet { name, communities })
            .collect(),
        as_path_sets: as_path_sets.into_iter().map(|(name, paths)| AsPathSet { name, paths }).collect(),
    };
    // Every name is checked by now, with its place; what is left is how policies ask each other.
    if !report.has_problems() {
        compile(root, &source, names.iter().flatten());
    }
    (source, known.policies)
}

fn compile<'n>(root: &Section<'_>, source: &PolicySource, mut names: impl Iterator<Item = &'n At<String>>) {
    let Err(errors) = Library::compile(source, 0) else { return };
    let declared: Vec<_> = names.by_ref().collect();
    for error in errors {
        let place = declared.iter().find(|name| name.value == error.policy).map(|name| name.span.clone());
        root.report.add(&place.unwrap_or_default(), Problem::from_error(&error));
    }
}

fn sets<T: Value>(
    root: &Section<'_>,
    key: &'static str,
    title: &'static str,
    entries: &'static str,
    names: &mut Names<'_>,
) -> Vec<(String, Vec<T>)> {
    let mut sets = Vec::new();
    for section in root.sections(key, title) {
        let name = section.required::<String>("name");
        let list = section.list::<T>(entries);
        if list.is_none() {
            let problem = Problem::new(format!("{title} needs `{entries}`"));
            section.report.add(&section.span, problem.expected(format!("a list of {}", T::EXPECTED)));
        }
        name.iter().for_each(|name| names.declare(name));
        if let (Some(name), Some(list)) = (name, list) {
            sets.push((name.value, values(list)));
        }
    }
    sets
}

fn values<T>(list: Vec<At<T>>) -> Vec<T> {
    list.into_iter().map(|at| at.value).collect()
}

fn policy(section: &Section<'_>, name: Option<&At<String>>, known: &Known<'_>) -> Option<Policy> {
    let mut names = Names::new(section.report, "term");
    let sections = section.sections("term", "[[policy.term]]");
    let terms =
        (1..).zip(&sections).map(|(number, section)| term(section, number, known, &mut names)).collect();
    Some(Policy { name: name?.value.clone(), terms })
}

fn term(section: &Section<'_>, number: usize, known: &Known<'_>, names: &mut Names<'_>) -> Term {
    let name = section.optional::<String>("name");
    let name = name.unwrap_or_else(|| At { value: number.to_string(), span: section.span.clone() });
    names.declare(&name);
    let from = section.section("from", "`from`").map(|from| conditions(&from, known));
    let (then, outcome) = then(section);
    Term { name: name.value, from: from.unwrap_or_default(), then, outcome }
}

fn conditions(from: &Section<'_>, known: &Known<'_>) -> Vec<Condition> {
    let conditions = [
        references(from, "prefix-set", &known.prefix_sets).map(Condition::PrefixSet),
        list::<PrefixRange>(from, "prefix").map(Condition::Prefix),
        references(from, "community-set", &known.community_sets).map(Condition::CommunitySet),
        list::<CommunityPattern>(from, "community").map(Condition::Community),
        references(from, "as-path-set", &known.as_path_sets).map(Condition::AsPathSet),
        list::<PathPattern>(from, "as-path").map(Condition::AsPath),
        range(from, "as-path-length").map(Condition::AsPathLength),
        list::<AsnRange>(from, "neighbor-as").map(Condition::NeighborAs),
        list::<AsnRange>(from, "origin-as").map(Condition::OriginAs),
        list::<AsnRange>(from, "peer-as").map(Condition::PeerAs),
        list::<Origin>(from, "origin").map(Condition::Origin),
        range(from, "local-preference").map(Condition::LocalPreference),
        range(from, "med").map(Condition::Med),
        list::<Prefix>(from, "next-hop")
            .map(|hops| Condition::NextHop(hops.into_iter().map(PrefixRange::or_longer).collect())),
        list::<Protocol>(from, "protocol").map(Condition::Protocol),
        list::<u32>(from, "tag").map(Condition::Tag),
        references(from, "policy", &known.policies).map(Condition::Policy),
    ];
    conditions.into_iter().flatten().collect()
}

fn list<T: Value>(from: &Section<'_>, key: &'static str) -> Option<Vec<T>> {
    from.list(key).map(|entries| values(not_empty(from, key, entries)))
}

fn references(from: &Section<'_>, key: &'static str, names: &Names<'_>) -> Option<Vec<String>> {
    let entries = not_empty(from, key, from.list::<String>(key)?);
    entries.iter().for_each(|entry| names.refer(entry));
    Some(values(entries))
}

fn not_empty<T>(from: &Section<'_>, key: &'static str, entries: Vec<At<T>>) -> Vec<At<T>> {
    if entries.is_empty() && from.is_list(key) {
        from.add(key, Problem::new("an empty list never matches").hint(format!("remove `{key}`")));
    }
    entries
}

/// A number, or a table with the least and the greatest, both included.
fn range(from: &Section<'_>, key: &'static str) -> Option<RangeInclusive<u32>> {
    if !from.is_table(key) {
        return from.optional::<u32>(key).map(|at| at.value..=at.value);
    }
    let bounds = from.section(key, "a range")?;
    let (min, max) = (bounds.or("min", 0), bounds.or("max", u32::MAX));
    if min > max {
        from.add(key, Problem::new(format!("no number is from {min} to {max}")));
    }
    Some(min..=max)
}

/// `"accept"`, or a table of changes with an `action`.
fn then(term: &Section<'_>) -> (Vec<Action>, Outcome) {
    if !term.has("then") {
        let problem = Problem::new(format!("{} needs `then`", term.name));
        let expected = "`then` = \"accept\", \"reject\", \"next\" or a table of changes";
        term.report.add(&term.span, problem.expected(expected));
    }
    if !term.is_table("then") {
        return (Vec::new(), term.word("then", &OUTCOMES, Outcome::Next));
    }
    match term.section("then", "`then`") {
        Some(then) => (actions(&then), then.word("action", &OUTCOMES, Outcome::Next)),
        None => (Vec::new(), Outcome::Next),
    }
}

fn actions(then: &Section<'_>) -> Vec<Action> {
    let actions = [
        then.optional("local-preference").map(|at| Action::LocalPreference(at.value)),
        med(then).map(Action::Med),
        then.optional("origin").map(|at| Action::Origin(at.value)),
        prepend(then).map(Action::Prepend),
        then.list::<Community>("set-communities").map(|list| Action::SetCommunities(values(list))),
        then.list::<CommunityPattern>("remove-communities")
            .map(|list| Action::RemoveCommunities(values(list))),
        then.list::<Community>("add-communities").map(|list| Action::AddCommunities(values(list))),
        next_hop(then).map(Action::NextHop),
        then.optional("tag").map(|at| Action::Tag(at.value)),
    ];
    actions.into_iter().flatten().collect()
}

fn med(then: &Section<'_>) -> Option<MedEdit> {
    match then.is_text("med", "remove") {
        true => Some(MedEdit::Remove),
        false => then.optional("med").map(|at| MedEdit::Set(at.value)),
    }
}

/// How often our own number, or a table with another one.
fn prepend(then: &Section<'_>) -> Option<Prepend> {
    /// More makes a path longer than any in use, and peers drop it.
    const MOST: u8 = 32;
    if !then.has("prepend") {
        return None;
    }
    if !then.is_table("prepend") {
        return Some(Prepend { asn: PrependAs::Own, count: then.number("prepend", 1..=MOST, 1) });
    }
    let table = then.section("prepend", "`prepend`")?;
    let (asn, count) = (table.required::<Asn>("asn"), table.number("count", 1..=MOST, 1));
    let asn = asn?;
    usable(&table, &asn);
    Some(Prepend { asn: PrependAs::Asn(asn.value), count })
}

fn next_hop(then: &Section<'_>) -> Option<NextHopEdit> {
    if then.is_text("next-hop", "self") {
        return Some(NextHopEdit::SelfAddress);
    }
    let address = then.optional::<IpAddr>("next-hop")?;
    unicast(then, &address);
    Some(NextHopEdit::Address(address.value))
}
