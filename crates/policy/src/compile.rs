//! From source to programs.

use std::{collections::HashMap, fmt, sync::Arc};

use crate::{
    ACCEPT_ALL, CommunityPattern, Condition, PathPattern, Policy, PolicySource, PrefixRange, Program,
    ProgramId, REJECT_ALL, Term, TermRef,
    community::CommunityMatcher,
    path::PathMatcher,
    prefix_set::PrefixMatcher,
    program::{Code, CompiledTerm, Test},
};

/// How many policies may ask each other in a chain.
pub const MAX_DEPTH: usize = 8;

/// The most conditions that one evaluation may look at, nested policies included.
pub const MAX_STEPS: usize = 65_536;

/// The programs of a router, by policy name.
#[derive(Clone, Debug)]
pub struct Library(HashMap<String, Program>);

/// What is wrong with a source, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{problem}", Place { policy, term: term.as_deref() })]
pub struct CompileError {
    /// The policy, or the set that is named twice.
    pub policy: String,
    /// The term, where it is about one.
    pub term: Option<String>,
    /// What is wrong there.
    pub problem: Problem,
}

/// What is wrong with a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// A set is named that does not exist.
    #[error("there is no {0} `{1}`")]
    UnknownSet(SetKind, String),
    /// A policy is named that does not exist.
    #[error("there is no policy `{0}`")]
    UnknownPolicy(String),
    /// Two sets of one kind have this name.
    #[error("the name is that of another {0}")]
    DuplicateSet(SetKind),
    /// Two policies have this name.
    #[error("the name is that of another policy")]
    DuplicatePolicy,
    /// Two terms of the policy have this name.
    #[error("the name is that of another term")]
    DuplicateTerm,
    /// The policy has more terms than can be numbered.
    #[error("a policy has at most {max} terms", max = TermRef::MAX_TERMS)]
    TooManyTerms,
    /// The policy asks itself, by way of those named.
    #[error("the policy asks itself: {}", .0.join(" asks "))]
    Recursion(Vec<String>),
    /// Policies ask each other in too long a chain.
    #[error("policies may ask each other over at most {MAX_DEPTH} levels")]
    TooDeep,
    /// One evaluation could take too many steps.
    #[error("one route could take {0} steps, more than the {MAX_STEPS} allowed")]
    TooLong(usize),
}

/// A kind of named set.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum SetKind {
    /// Of prefixes.
    Prefix,
    /// Of communities.
    Community,
    /// Of AS path patterns.
    AsPath,
}

impl fmt::Display for SetKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Prefix => "prefix-set",
            Self::Community => "community-set",
            Self::AsPath => "as-path-set",
        })
    }
}

struct Place<'a> {
    policy: &'a str,
    term: Option<&'a str>,
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.term {
            Some(term) => write!(f, "{}, term {term}: ", self.policy),
            None => write!(f, "{}: ", self.policy),
        }
    }
}

impl Library {
    /// Compiles all policies of a source. `generation` becomes part of every [`ProgramId`]; count it up
    /// with each configuration.
    ///
    /// # Errors
    /// Everything that is wrong with the source.
    pub fn compile(source: &PolicySource, generation: u32) -> Result<Self, Vec<CompileError>> {
        let mut compiler = Compiler::new(source);
        let codes: Vec<_> = source.policies.iter().map(|policy| compiler.policy(policy)).collect();
        if !compiler.errors.is_empty() {
            return Err(compiler.errors);
        }
        let compiled = (2..)
            .zip(codes.into_iter().flatten())
            .map(|(index, compiled)| Program::new(ProgramId { index, generation }, compiled.code));
        let all = [Program::accept_all(), Program::reject_all()].into_iter().chain(compiled);
        Ok(Self(all.map(|program| (program.name().to_owned(), program)).collect()))
    }

    /// Takes over the programs of an earlier library that decide as those of the same name here. So what has not
    /// changed stays one program, with its id and the verdicts cached under that.
    #[must_use]
    pub fn keeping(mut self, before: &Self) -> Self {
        for (name, program) in &mut self.0 {
            if let Some(same) = before.get(name).filter(|same| *same == program) {
                *program = same.clone();
            }
        }
        self
    }

    /// The program of a policy, built-in ones included.
    pub fn get(&self, name: &str) -> Option<&Program> {
        self.0.get(name)
    }
}

/// A compiled policy and what it costs.
#[derive(Clone)]
struct Compiled {
    code: Arc<Code>,
    /// Conditions that one evaluation looks at, at most.
    steps: usize,
    /// Policies in the longest chain of questions that starts here.
    depth: usize,
}

struct Compiler<'a> {
    policies: HashMap<&'a str, &'a Policy>,
    sets: Sets<'a>,
    /// Finished policies; `None` where there was an error.
    done: HashMap<&'a str, Option<Compiled>>,
    /// Policies being compiled, outermost first.
    open: Vec<&'a str>,
    errors: Vec<CompileError>,
}

impl<'a> Compiler<'a> {
    fn new(source: &'a PolicySource) -> Self {
        let mut compiler = Self {
            policies: source.policies.iter().map(|policy| (policy.name.as_str(), policy)).collect(),
            sets: Sets::new(source),
            done: built_in(),
            open: Vec::new(),
            errors: Vec::new(),
        };
        compiler.refuse_repeated_names(source);
        compiler
    }

    fn refuse_repeated_names(&mut self, source: &PolicySource) {
        let sets = [
            (SetKind::Prefix, repeated(source.prefix_sets.iter().map(|set| &set.name))),
            (SetKind::Community, repeated(source.community_sets.iter().map(|set| &set.name))),
            (SetKind::AsPath, repeated(source.as_path_sets.iter().map(|set| &set.name))),
        ];
        for (kind, names) in sets {
            names.iter().for_each(|name| self.error(name, None, Problem::DuplicateSet(kind)));
        }
        let names = source.policies.iter().map(|policy| &policy.name);
        for name in repeated(names.chain([&ACCEPT_ALL.to_owned(), &REJECT_ALL.to_owned()])) {
            self.error(&name, None, Problem::DuplicatePolicy);
        }
    }

    fn error(&mut self, policy: &str, term: Option<&str>, problem: Problem) {
        let (policy, term) = (policy.to_owned(), term.map(str::to_owned));
        self.errors.push(CompileError { policy, term, problem });
    }

    /// Compiles a policy, and before it those it asks.
    fn policy(&mut self, policy: &'a Policy) -> Option<Compiled> {
        if let Some(done) = self.done.get(policy.name.as_str()) {
            return done.clone();
        }
        self.open.push(&policy.name);
        let compiled = self.terms(policy);
        self.open.pop();
        self.done.insert(&policy.name, compiled.clone());
        compiled
    }

    fn terms(&mut self, policy: &'a Policy) -> Option<Compiled> {
        for name in repeated(policy.terms.iter().map(|term| &term.name)) {
            self.error(&policy.name, Some(&name), Problem::DuplicateTerm);
        }
        let mut cost = Cost { steps: 0, depth: 1 };
        let terms: Vec<_> = policy.terms.iter().map(|term| self.term(policy, term, &mut cost)).collect();
        let terms: Box<[CompiledTerm]> = terms.into_iter().collect::<Option<_>>()?;
        if let Some(problem) = cost.problem(terms.len()) {
            self.error(&policy.name, None, problem);
            return None;
        }
        let reads_prefix = terms.iter().flat_map(|term| &term.tests).any(Test::reads_prefix);
        let code = Code { name: policy.name.clone(), terms, reads_prefix };
        Some(Compiled { code: Arc::new(code), steps: cost.steps, depth: cost.depth })
    }

    fn term(&mut self, policy: &'a Policy, term: &'a Term, cost: &mut Cost) -> Option<CompiledTerm> {
        let mut tests = Vec::with_capacity(term.from.len());
        for condition in &term.from {
            match self.test(condition, cost) {
                Ok(test) => tests.push(test),
                Err(problem) => self.error(&policy.name, Some(&term.name), problem),
            }
        }
        cost.steps = cost.steps.saturating_add(1 + tests.len());
        let complete = tests.len() == term.from.len();
        complete.then(|| CompiledTerm {
            tests: tests.into(),
            actions: term.then.clone().into(),
            outcome: term.outcome,
            name: term.name.clone(),
        })
    }

    fn test(&mut self, condition: &'a Condition, cost: &mut Cost) -> Result<Test, Problem> {
        Ok(match condition {
            Condition::PrefixSet(names) => Test::Prefix(self.sets.prefixes(names)?),
            Condition::Prefix(ranges) => Test::Prefix(Arc::new(ranges.iter().copied().collect())),
            Condition::CommunitySet(names) => Test::Community(self.sets.communities(names)?),
            Condition::Community(patterns) => Test::Community(Arc::new(patterns.iter().copied().collect())),
            Condition::AsPathSet(names) => Test::AsPath(self.sets.paths(names)?),
            Condition::AsPath(paths) => Test::AsPath(Arc::new(PathMatcher::new(paths.iter().cloned()))),
            Condition::AsPathLength(range) => Test::AsPathLength(range.clone()),
            Condition::NeighborAs(ranges) => {
                Test::AsPath(Arc::new(PathMatcher::from_neighbours(ranges.iter().copied())))
            }
            Condition::OriginAs(ranges) => {
                Test::AsPath(Arc::new(PathMatcher::from_origins(ranges.iter().copied())))
            }
            Condition::PeerAs(ranges) => Test::PeerAs(ranges.iter().copied().collect()),
            Condition::Origin(origins) => Test::Origin(origins.clone().into()),
            Condition::LocalPreference(range) => Test::LocalPref(range.clone()),
            Condition::Med(range) => Test::Med(range.clone()),
            Condition::NextHop(prefixes) => {
                Test::NextHop(prefixes.iter().map(|range| PrefixRange::or_longer(range.prefix())).collect())
            }
            Condition::Protocol(protocols) => Test::Protocol(protocols.clone().into()),
            Condition::Tag(tags) => Test::Tag(tags.clone().into()),
            Condition::Policy(names) => Test::Accepted(self.asked(names, cost)?),
        })
    }

    fn asked(&mut self, names: &'a [String], cost: &mut Cost) -> Result<Box<[Arc<Code>]>, Problem> {
        let mut codes = Vec::with_capacity(names.len());
        for name in names {
            if let Some(from) = self.open.iter().position(|open| open == name) {
                let chain = self.open[from..].iter().copied().chain([name.as_str()]);
                return Err(Problem::Recursion(chain.map(str::to_owned).collect()));
            }
            // Each level is a level of our own stack here, so it ends before it is known how deep it goes.
            if self.open.len() > MAX_DEPTH {
                return Err(Problem::TooDeep);
            }
            if let Some(compiled) = self.named(name)? {
                cost.steps = cost.steps.saturating_add(compiled.steps);
                cost.depth = cost.depth.max(1 + compiled.depth);
                codes.push(compiled.code);
            }
        }
        Ok(codes.into())
    }

    /// `None` for a policy whose errors are reported already.
    fn named(&mut self, name: &'a str) -> Result<Option<Compiled>, Problem> {
        match (self.done.get(name), self.policies.get(name)) {
            (Some(done), _) => Ok(done.clone()),
            (None, Some(policy)) => Ok(self.policy(policy)),
            (None, None) => Err(Problem::UnknownPolicy(name.to_owned())),
        }
    }
}

fn built_in() -> HashMap<&'static str, Option<Compiled>> {
    let compiled = |program: Program| Some(Compiled { code: program.into_code(), steps: 1, depth: 1 });
    HashMap::from([
        (ACCEPT_ALL, compiled(Program::accept_all())),
        (REJECT_ALL, compiled(Program::reject_all())),
    ])
}

/// Names that come again, each once.
fn repeated<'n>(names: impl Iterator<Item = &'n String>) -> Vec<String> {
    let mut count: HashMap<&String, usize> = HashMap::new();
    let mut again = Vec::new();
    for name in names {
        let seen = count.entry(name).or_default();
        *seen += 1;
        if *seen == 2 {
            again.push(name.clone());
        }
    }
    again
}

/// What the policy being compiled costs so far.
struct Cost {
    steps: usize,
    depth: usize,
}

impl Cost {
    fn problem(&self, terms: usize) -> Option<Problem> {
        match () {
            () if terms > TermRef::MAX_TERMS => Some(Problem::TooManyTerms),
            () if self.depth > MAX_DEPTH => Some(Problem::TooDeep),
            () if self.steps > MAX_STEPS => Some(Problem::TooLong(self.steps)),
            () => None,
        }
    }
}

/// The named sets, compiled once for every combination of names that some condition has.
struct Sets<'a> {
    prefixes: Named<'a, PrefixRange, PrefixMatcher>,
    communities: Named<'a, CommunityPattern, CommunityMatcher>,
    paths: Named<'a, PathPattern, PathMatcher>,
}

struct Named<'a, T, M> {
    kind: SetKind,
    entries: HashMap<&'a str, &'a [T]>,
    compiled: HashMap<&'a [String], Arc<M>>,
}

impl<'a> Sets<'a> {
    fn new(source: &'a PolicySource) -> Self {
        Self {
            prefixes: Named::new(
                SetKind::Prefix,
                source.prefix_sets.iter().map(|set| (&set.name, &set.prefixes)),
            ),
            communities: Named::new(
                SetKind::Community,
                source.community_sets.iter().map(|set| (&set.name, &set.communities)),
            ),
            paths: Named::new(SetKind::AsPath, source.as_path_sets.iter().map(|set| (&set.name, &set.paths))),
        }
    }

    fn prefixes(&mut self, names: &'a [String]) -> Result<Arc<PrefixMatcher>, Problem> {
        self.prefixes.compile(names, |entries| entries.copied().collect())
    }

    fn communities(&mut self, names: &'a [String]) -> Result<Arc<CommunityMatcher>, Problem> {
        self.communities.compile(names, |entries| entries.copied().collect())
    }

    fn paths(&mut self, names: &'a [String]) -> Result<Arc<PathMatcher>, Problem> {
        self.paths.compile(names, |entries| PathMatcher::new(entries.cloned()))
    }
}

impl<'a, T, M> Named<'a, T, M> {
    fn new(kind: SetKind, sets: impl Iterator<Item = (&'a String, &'a Vec<T>)>) -> Self {
        let entries = sets.map(|(name, entries)| (name.as_str(), entries.as_slice())).collect();
        Self { kind, entries, compiled: HashMap::new() }
    }

    /// The union of the named sets, compiled by `make`.
    fn compile(
        &mut self,
        names: &'a [String],
        make: impl FnOnce(&mut dyn Iterator<Item = &'a T>) -> M,
    ) -> Result<Arc<M>, Problem> {
        if let Some(compiled) = self.compiled.get(names) {
            return Ok(compiled.clone());
        }
        let entries = names.iter().map(|name| {
            let found = self.entries.get(name.as_str()).copied();
            found.ok_or_else(|| Problem::UnknownSet(self.kind, name.clone()))
        });
        let entries: Vec<&[T]> = entries.collect::<Result<_, _>>()?;
        let compiled = Arc::new(make(&mut entries.into_iter().flatten()));
        self.compiled.insert(names, compiled.clone());
        Ok(compiled)
    }
}
