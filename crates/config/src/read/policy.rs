//! `[[policy]]`, and the sets that policies name.

mod condition;

use std::net::IpAddr;

use holdfast_policy::{
    ACCEPT_ALL, Action, AsPathSet, Community, CommunityPattern, CommunitySet, Condition, Last, MedAction,
    NextHopEdit, Outcome, PathPattern, Policy, PolicySource, PrefixRange, PrefixRanges, PrefixSet, Prepend,
    PrependAs, REJECT_ALL, Regex, Replacement, Term,
};
use holdfast_types::Asn;

use super::{is_link_local, unicast, usable};
use crate::input::{At, Names, Problem, Section, Value};

const OUTCOMES: [(&str, Outcome); 3] =
    [("accept", Outcome::Accept), ("reject", Outcome::Reject), ("next", Outcome::Next)];

/// Of what comes last: something has to be decided.
const LAST_OUTCOMES: [(&str, Outcome); 2] = [("accept", Outcome::Accept), ("reject", Outcome::Reject)];

/// The names that conditions may use.
struct Known<'a> {
    prefix_sets: Names<'a>,
    community_sets: Names<'a>,
    as_path_sets: Names<'a>,
    policies: Names<'a>,
}

/// Reads the policies; also returns their names and those of prefix sets, for peers to refer to.
pub(super) fn read<'a>(root: &Section<'a>) -> (PolicySource, Names<'a>, Names<'a>) {
    let report = root.report;
    let mut known = Known {
        prefix_sets: Names::new(report, "prefix-set"),
        community_sets: Names::new(report, "community-set"),
        as_path_sets: Names::new(report, "as-path-set"),
        policies: Names::new(report, "policy").built_in([ACCEPT_ALL, REJECT_ALL]),
    };
    let prefix_sets = sets(root, "prefix-set", "[[prefix-set]]", &mut known.prefix_sets, |section| {
        let mut prefixes = PrefixRanges::default();
        if section.each::<PrefixRange>("prefixes", |range| prefixes.push(range)).is_none() {
            misses_entries::<PrefixRange>(section, "prefixes");
        }
        prefixes.shrink();
        prefixes
    });
    let community_sets =
        sets(root, "community-set", "[[community-set]]", &mut known.community_sets, |section| {
            let communities = entries::<CommunityPattern>(section, "communities", &["regexes"]);
            (communities, section.list::<Regex>("regexes").map(values).unwrap_or_default())
        });
    let as_path_sets = sets(root, "as-path-set", "[[as-path-set]]", &mut known.as_path_sets, |section| {
        let paths = entries::<PathPattern>(section, "paths", &["regexes"]);
        (paths, section.list::<Regex>("regexes").map(values).unwrap_or_default())
    });
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
            .map(|(name, (communities, regexes))| CommunitySet { name, communities, regexes })
            .collect(),
        as_path_sets: as_path_sets
            .into_iter()
            .map(|(name, (paths, regexes))| AsPathSet { name, paths, regexes })
            .collect(),
    };
    // Every name is checked by now, with its place; what is left is how policies ask each other.
    if !report.has_problems() {
        check(root, &source, names.iter().flatten());
    }
    (source, known.policies, known.prefix_sets)
}

fn check<'n>(root: &Section<'_>, source: &PolicySource, mut names: impl Iterator<Item = &'n At<String>>) {
    let Err(errors) = source.check() else { return };
    let declared: Vec<_> = names.by_ref().collect();
    for error in errors {
        let place = declared.iter().find(|name| name.value == error.policy).map(|name| name.span.clone());
        root.report.add(&place.unwrap_or_default(), Problem::from_error(&error));
    }
}

/// What each section holds besides its name.
fn sets<T>(
    root: &Section<'_>,
    key: &'static str,
    title: &'static str,
    names: &mut Names<'_>,
    read: impl Fn(&Section<'_>) -> T,
) -> Vec<(String, T)> {
    let mut sets = Vec::new();
    for section in root.sections(key, title) {
        let name = section.required::<String>("name");
        let contents = read(&section);
        name.iter().for_each(|name| names.declare(name));
        sets.extend(name.map(|name| (name.value, contents)));
    }
    sets
}

/// The entries of a set; they may be left out only where one of the other keys is there.
fn entries<T: Value>(section: &Section<'_>, key: &'static str, others: &[&'static str]) -> Vec<T> {
    let list = section.list::<T>(key).map(values);
    // Every key is asked for, so that each is known.
    let others = others.iter().filter(|other| section.has(other)).count();
    if list.is_none() && others == 0 {
        misses_entries::<T>(section, key);
    }
    list.unwrap_or_default()
}

fn misses_entries<T: Value>(section: &Section<'_>, key: &str) {
    let problem = Problem::new(format!("{} needs `{key}`", section.name));
    section.report.add(&section.span, problem.expected(format!("a list of {}", T::EXPECTED)));
}

fn values<T>(list: Vec<At<T>>) -> Vec<T> {
    list.into_iter().map(|at| at.value).collect()
}

fn policy(section: &Section<'_>, name: Option<&At<String>>, known: &Known<'_>) -> Option<Policy> {
    let mut names = Names::new(section.report, "term");
    let first = section.section("first", "`first`").map(|first| actions(&first, known));
    let sections = section.sections("term", "[[policy.term]]");
    let terms =
        (1..).zip(&sections).map(|(number, section)| term(section, number, known, &mut names)).collect();
    let last = section.has("last").then(|| {
        let (then, outcome) = then(section, "last", &LAST_OUTCOMES, known);
        Last { then, outcome }
    });
    Some(Policy { name: name?.value.clone(), first: first.unwrap_or_default(), terms, last })
}

fn term(section: &Section<'_>, number: usize, known: &Known<'_>, names: &mut Names<'_>) -> Term {
    let name = section.optional::<String>("name");
    let name = name.unwrap_or_else(|| At { value: number.to_string(), span: section.span.clone() });
    names.declare(&name);
    let mut from =
        section.section("from", "`from`").map(|from| condition::all(&from, known)).unwrap_or_default();
    let unless = section.section("unless", "`unless`").map(|unless| condition::all(&unless, known));
    from.extend(unless.map(Condition::Not));
    if !section.has("then") {
        let problem = Problem::new(format!("{} needs `then`", section.name));
        let expected = "`then` = \"accept\", \"reject\", \"next\" or a table of changes";
        section.report.add(&section.span, problem.expected(expected));
    }
    let (then, outcome) = then(section, "then", &OUTCOMES, known);
    Term { name: name.value, from, then, outcome }
}

/// `"accept"`, or a table of changes with an `action`.
fn then(
    section: &Section<'_>,
    key: &'static str,
    outcomes: &[(&str, Outcome)],
    known: &Known<'_>,
) -> (Vec<Action>, Outcome) {
    if !section.is_table(key) {
        return (Vec::new(), section.word(key, outcomes, Outcome::Next));
    }
    let is_last = key == "last";
    let Some(then) = section.section(key, if is_last { "`last`" } else { "`then`" }) else {
        return (Vec::new(), Outcome::Next);
    };
    if is_last && !then.has("action") {
        let problem = Problem::new("`last` needs `action`");
        section.add(key, problem.expected("`action` = \"accept\" or \"reject\""));
    }
    (actions(&then, known), then.word("action", outcomes, Outcome::Next))
}

fn actions(then: &Section<'_>, known: &Known<'_>) -> Vec<Action> {
    let actions = [
        then.optional("local-preference").map(|at| Action::LocalPreference(at.value)),
        then.optional("weight").map(|at| Action::Weight(at.value)),
        med(then).map(Action::Med),
        then.optional("origin").map(|at| Action::Origin(at.value)),
        prepend(then).map(Action::Prepend),
        then.list::<Community>("set-communities").map(|list| Action::SetCommunities(values(list))),
        then.list::<CommunityPattern>("remove-communities")
            .map(|list| Action::RemoveCommunities(values(list))),
        replacement(then).map(Action::ReplaceCommunities),
        then.list::<Community>("add-communities").map(|list| Action::AddCommunities(values(list))),
        next_hop(then).map(Action::NextHop),
        then.optional("tag").map(|at| Action::Tag(at.value)),
    ];
    let applied = then.list::<String>("apply").unwrap_or_default();
    applied.iter().for_each(|name| known.policies.refer(name));
    actions.into_iter().flatten().chain(values(applied).into_iter().map(Action::Apply)).collect()
}

/// A number, a word, or a table with how much more or less.
fn med(then: &Section<'_>) -> Option<MedAction> {
    if then.is_text("med", "remove") {
        return Some(MedAction::Remove);
    }
    if then.is_text("med", "metric") {
        return Some(MedAction::Metric);
    }
    if !then.is_table("med") {
        return then.optional("med").map(|at| MedAction::Set(at.value));
    }
    let table = then.section("med", "a change of the MED")?;
    match (table.optional("add"), table.optional("subtract")) {
        (Some(add), None) => Some(MedAction::Add(add.value)),
        (None, Some(subtract)) => Some(MedAction::Subtract(subtract.value)),
        _ => {
            then.add("med", Problem::new("this changes nothing").expected("`add` or `subtract`"));
            None
        }
    }
}

fn replacement(then: &Section<'_>) -> Option<Replacement> {
    let table = then.section("replace-communities", "`replace-communities`")?;
    let these = table.list::<CommunityPattern>("these");
    let by = table.list::<Community>("by");
    if these.is_none() || by.is_none() {
        let problem = Problem::new("`replace-communities` needs both lists");
        then.add("replace-communities", problem.expected("{ these = [\"65001:*\"], by = [\"65001:1\"] }"));
    }
    Some(Replacement { these: values(these?), by: values(by?) })
}

/// How often our own number, or a table with another one, or how often the nearest of the path.
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
    if table.has("last-as") {
        return Some(Prepend { asn: PrependAs::Last, count: table.number("last-as", 1..=MOST, 1) });
    }
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
    if is_link_local(address.value) {
        let problem =
            Problem::new(format!("link-local next hop {} could be on any interface", address.value));
        then.report.add(&address.span, problem.expected("an address of wider scope, or \"self\""));
    }
    Some(NextHopEdit::Address(address.value))
}
