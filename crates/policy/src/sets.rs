//! Named sets, compiled once for every combination of names that some condition has.

use std::{collections::HashMap, sync::Arc};

use crate::{
    AsPathSet, CommunitySet, MAX_ENTRIES, PolicySource, PrefixSet, Problem, SetKind,
    community::CommunityMatcher, compile::Matchers, path::PathMatcher, prefix_set::PrefixMatcher,
};

/// The sets of a source.
pub(crate) struct Sets<'a> {
    prefixes: Named<'a, PrefixSet, PrefixMatcher>,
    communities: Named<'a, CommunitySet, CommunityMatcher>,
    paths: Named<'a, AsPathSet, PathMatcher>,
    /// Entries of what was compiled.
    entries: usize,
    /// What was compiled before.
    before: Option<&'a Matchers>,
    /// Prefix sets are not compiled.
    counts_only: bool,
}

struct Named<'a, S, M> {
    kind: SetKind,
    sets: HashMap<&'a str, &'a S>,
    compiled: HashMap<&'a [String], Arc<M>>,
}

impl<'a> Sets<'a> {
    pub(crate) fn new(source: &'a PolicySource) -> Self {
        let prefixes = source.prefix_sets.iter().map(|set| (set.name.as_str(), set));
        let communities = source.community_sets.iter().map(|set| (set.name.as_str(), set));
        let paths = source.as_path_sets.iter().map(|set| (set.name.as_str(), set));
        Self {
            prefixes: Named::new(SetKind::Prefix, prefixes),
            communities: Named::new(SetKind::Community, communities),
            paths: Named::new(SetKind::AsPath, paths),
            entries: 0,
            before: None,
            counts_only: false,
        }
    }

    /// Takes over what was compiled before, where it is the same.
    pub(crate) fn after(self, before: &'a Matchers) -> Self {
        Self { before: Some(before), ..self }
    }

    /// Looks for prefix sets and counts their entries: what comes of it holds no prefix.
    pub(crate) fn counted(self) -> Self {
        Self { counts_only: true, ..self }
    }

    /// What was compiled of prefix sets.
    pub(crate) fn into_prefixes(self) -> Matchers {
        self.prefixes.compiled.into_iter().map(|(names, matcher)| (names.into(), matcher)).collect()
    }

    pub(crate) fn prefixes(&mut self, names: &'a [String]) -> Result<Arc<PrefixMatcher>, Problem> {
        let (before, counts_only) = (self.before.and_then(|before| before.get(names)), self.counts_only);
        let make = |sets: &[&PrefixSet]| {
            if counts_only {
                return Arc::default();
            }
            let made: PrefixMatcher = sets.iter().flat_map(|set| &set.prefixes).collect();
            before.filter(|before| ***before == made).map_or_else(|| Arc::new(made), Arc::clone)
        };
        self.prefixes.compile(names, &mut self.entries, |set| set.prefixes.len(), make)
    }

    pub(crate) fn communities(&mut self, names: &'a [String]) -> Result<Arc<CommunityMatcher>, Problem> {
        let make = |sets: &[&CommunitySet]| {
            let patterns = sets.iter().flat_map(|set| &set.communities).copied();
            Arc::new(CommunityMatcher::new(patterns, sets.iter().flat_map(|set| &set.regexes).cloned()))
        };
        let count = |set: &CommunitySet| set.communities.len() + set.regexes.len();
        self.communities.compile(names, &mut self.entries, count, make)
    }

    pub(crate) fn paths(&mut self, names: &'a [String]) -> Result<Arc<PathMatcher>, Problem> {
        let make = |sets: &[&AsPathSet]| {
            let patterns = sets.iter().flat_map(|set| &set.paths).cloned();
            Arc::new(PathMatcher::new(patterns, sets.iter().flat_map(|set| &set.regexes).cloned()))
        };
        let count = |set: &AsPathSet| set.paths.len() + set.regexes.len();
        self.paths.compile(names, &mut self.entries, count, make)
    }
}

impl<'a, S, M> Named<'a, S, M> {
    fn new(kind: SetKind, sets: impl Iterator<Item = (&'a str, &'a S)>) -> Self {
        Self { kind, sets: sets.collect(), compiled: HashMap::new() }
    }

    /// The union of the named sets, compiled by `make`; `entries` counts what all of them hold.
    fn compile(
        &mut self,
        names: &'a [String],
        entries: &mut usize,
        count: impl Fn(&S) -> usize,
        make: impl FnOnce(&[&S]) -> Arc<M>,
    ) -> Result<Arc<M>, Problem> {
        if let Some(compiled) = self.compiled.get(names) {
            return Ok(Arc::clone(compiled));
        }
        let unknown = |name: &String| Problem::UnknownSet(self.kind, name.clone());
        let find = |name: &String| self.sets.get(name.as_str()).copied().ok_or_else(|| unknown(name));
        let sets: Vec<&S> = names.iter().map(find).collect::<Result<_, _>>()?;
        *entries = sets.iter().fold(*entries, |sum, set| sum.saturating_add(count(set)));
        if *entries > MAX_ENTRIES {
            return Err(Problem::TooManyEntries);
        }
        let compiled = make(&sets);
        self.compiled.insert(names, Arc::clone(&compiled));
        Ok(compiled)
    }
}
