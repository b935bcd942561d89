//! `from`: what must hold for a term to match.

use std::{fmt::Display, ops::RangeInclusive};

use holdfast_policy::{
    AsnRange, CommunityPattern, Condition, Origin, PathPattern, PathSecurity, PathValidity, PrefixRange,
    Protocol, Regex, Validity,
};
use holdfast_types::Prefix;

use super::{Known, values};
use crate::input::{At, Names, Problem, Section, Value};

/// All conditions of a table.
pub(super) fn all(from: &Section<'_>, known: &Known<'_>) -> Vec<Condition> {
    let names = |key, names: &_, make: fn(Vec<String>) -> Condition| {
        moded(from, key, |at, key| references(at, key, names), make)
    };
    let lists = [
        names("prefix-set", &known.prefix_sets, Condition::PrefixSet),
        moded(from, "prefix", list::<PrefixRange>, Condition::Prefix),
        names("community-set", &known.community_sets, Condition::CommunitySet),
        moded(from, "community", list::<CommunityPattern>, Condition::Community),
        moded(from, "community-regex", list::<Regex>, Condition::CommunityRegex),
        names("as-path-set", &known.as_path_sets, Condition::AsPathSet),
        moded(from, "as-path", list::<PathPattern>, Condition::AsPath),
        moded(from, "as-path-regex", list::<Regex>, Condition::AsPathRegex),
        moded(from, "neighbor-as", list::<AsnRange>, Condition::NeighborAs),
        moded(from, "origin-as", list::<AsnRange>, Condition::OriginAs),
        moded(from, "peer-as", list::<AsnRange>, Condition::PeerAs),
        moded(from, "origin", list::<Origin>, Condition::Origin),
        moded(from, "next-hop", list::<Prefix>, next_hop),
        moded(from, "protocol", list::<Protocol>, Condition::Protocol),
        moded(from, "tag", list::<u32>, Condition::Tag),
        moded(from, "interface", list::<String>, Condition::Interface),
        moded(from, "validity", list::<Validity>, Condition::Validity),
        moded(from, "aspa", list::<PathValidity>, Condition::Aspa),
        moded(from, "bgpsec", list::<PathSecurity>, Condition::Bgpsec),
        names("policy", &known.policies, Condition::Policy),
    ];
    let ranges = [
        range(from, "prefix-length", 0..=128).map(Condition::PrefixLength),
        range(from, "as-path-length", 0..=u32::MAX).map(Condition::AsPathLength),
        range(from, "local-preference", 0..=u32::MAX).map(Condition::LocalPreference),
        range(from, "med", 0..=u32::MAX).map(Condition::Med),
        range(from, "metric", 0..=u32::MAX).map(Condition::Metric),
    ];
    lists.into_iter().flatten().chain(ranges.into_iter().flatten()).collect()
}

fn next_hop(hops: Vec<Prefix>) -> Condition {
    Condition::NextHop(hops.into_iter().map(PrefixRange::or_longer).collect())
}

/// A list of which one entry has to hold, or a table that says how many: `any`, `all`, `none`.
fn moded<T>(
    from: &Section<'_>,
    key: &'static str,
    read: impl Fn(&Section<'_>, &'static str) -> Option<Vec<T>>,
    make: impl Fn(Vec<T>) -> Condition,
) -> Vec<Condition> {
    if !from.is_table(key) {
        return read(from, key).map(make).into_iter().collect();
    }
    let Some(table) = from.section(key, key) else { return Vec::new() };
    let [any, all, none] = ["any", "all", "none"].map(|mode| read(&table, mode));
    if table.is_empty() {
        let problem = Problem::new(format!("`{key}` says nothing here"));
        from.add(key, problem.expected("a list, or a table with `any`, `all` or `none`"));
    }
    let any = any.map(&make);
    let all = all.unwrap_or_default().into_iter().map(|entry| make(vec![entry]));
    let none = none.map(|entries| Condition::Not(vec![make(entries)]));
    any.into_iter().chain(all).chain(none).collect()
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
fn range<T>(from: &Section<'_>, key: &'static str, whole: RangeInclusive<T>) -> Option<RangeInclusive<T>>
where
    T: Value + Copy + PartialOrd + Display,
{
    let (least, greatest) = (*whole.start(), *whole.end());
    if !from.is_table(key) {
        return from.has(key).then(|| from.number(key, whole, least)).map(|value| value..=value);
    }
    let bounds = from.section(key, key)?;
    let (min, max) = (bounds.or("min", least), bounds.or("max", greatest));
    if min > max {
        from.add(key, Problem::new(format!("no number is from {min} to {max}")));
    }
    Some(min..=max)
}
