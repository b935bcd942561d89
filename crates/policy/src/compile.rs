//! From source to programs.

use std::{collections::HashMap, fmt, sync::Arc};

use crate::{
    ACCEPT_ALL, Action, Condition, Outcome, Policy, PolicySource, PrefixRange, Program, ProgramId,
    REJECT_ALL, Replacement, Term, TermRef,
    community::CommunityMatcher,
    path::PathMatcher,
    prefix_set::PrefixMatcher,
    program::{Code, CompiledLast, CompiledTerm},
    sets::Sets,
    step::{Change, Step},
    test::Test,
};

/// How many policies may ask or apply each other in a chain.
pub const MAX_DEPTH: usize = 8;

/// How many times a condition may be negated.
pub const MAX_NEGATIONS: usize = 8;

/// The most comparisons and changes that one evaluation may take, nested policies included. To look a prefix, an AS
/// number or a whole community up in a set is one, however large that is.
pub const MAX_STEPS: usize = 65_536;

/// The most entries of sets that programs may hold: each set counts once for every combination of sets that a
/// condition names and that it is in.
pub const MAX_ENTRIES: usize = 1 << 22;

/// The longest text of a source, in octets.
pub const MAX_TEXT: usize = 1 << 28;

/// The programs of a router, by policy name.
///
/// Programs do not travel: what does is the source, and whoever receives one compiles it here. So nothing has to be
/// believed about a program that runs: it cannot loop, and what it takes is known before it runs
/// ([`Program::steps`]).
#[derive(Clone, Debug)]
pub struct Library {
    programs: HashMap<String, Program>,
    /// What conditions on named prefix sets ask, for the next library.
    prefixes: Matchers,
}

/// Unions of prefix sets, by the names of the sets.
pub(crate) type Matchers = HashMap<Box<[String]>, Arc<PrefixMatcher>>;

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
    #[error("a policy has at most {max} terms, with those of policies that it applies", max = TermRef::MAX_TERMS)]
    TooManyTerms,
    /// More entries than [`MAX_ENTRIES`].
    #[error("the sets that conditions name have more than {MAX_ENTRIES} entries together")]
    TooManyEntries,
    /// Negations inside negations.
    #[error("conditions may be negated {MAX_NEGATIONS} times at most")]
    TooManyNegations,
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

/// A text is no source that compiles.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    /// It is longer than [`MAX_TEXT`].
    #[error("{0} octets of policies, more than {MAX_TEXT}")]
    TooLong(usize),
    /// It is no [`PolicySource`].
    #[error("no policies: {0}")]
    Syntax(#[from] serde_json::Error),
    /// It is one, and wrong.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Wrong(Vec<CompileError>),
}

impl Default for Library {
    /// The built-in policies.
    fn default() -> Self {
        let built_in = [Program::accept_all(), Program::reject_all()];
        let programs = built_in.map(|program| (program.name().to_owned(), program)).into();
        Self { programs, prefixes: Matchers::new() }
    }
}

impl Library {
    /// Compiles what another process has sent, as JSON.
    ///
    /// # Errors
    /// Whatever is wrong with it: nothing is taken on trust.
    pub fn receive(text: &str, generation: u32) -> Result<Self, ReceiveError> {
        Self::compile(&PolicySource::receive(text)?, generation).map_err(ReceiveError::Wrong)
    }

    /// Compiles all policies of a source. `generation` becomes part of every [`ProgramId`]; count it up
    /// with each configuration.
    ///
    /// # Errors
    /// Everything that is wrong with the source.
    pub fn compile(source: &PolicySource, generation: u32) -> Result<Self, Vec<CompileError>> {
        Self::compile_with(Sets::new(source), source, generation)
    }

    /// The same after an earlier library. The programs of that which decide as those of the same name here are taken over:
    /// what has not changed stays one program, with its id and the verdicts cached under that, and large sets are there once.
    ///
    /// # Errors
    /// As of [`Self::compile`].
    pub fn compile_after(
        source: &PolicySource,
        generation: u32,
        before: &Self,
    ) -> Result<Self, Vec<CompileError>> {
        let mut library = Self::compile_with(Sets::new(source).after(&before.prefixes), source, generation)?;
        for (name, program) in &mut library.programs {
            if let Some(same) = before.get(name).filter(|same| *same == program) {
                *program = same.clone();
            }
        }
        Ok(library)
    }

    fn compile_with<'a>(
        sets: Sets<'a>,
        source: &'a PolicySource,
        generation: u32,
    ) -> Result<Self, Vec<CompileError>> {
        let mut compiler = Compiler::new(source, sets);
        let codes = compiler.codes(source)?;
        let compiled =
            (2..).zip(codes).map(|(index, code)| Program::new(ProgramId { index, generation }, code));
        let mut library = Self { prefixes: compiler.sets.into_prefixes(), ..Self::default() };
        library.programs.extend(compiled.map(|program| (program.name().to_owned(), program)));
        Ok(library)
    }

    /// The program of a policy, built-in ones included.
    pub fn get(&self, name: &str) -> Option<&Program> {
        self.programs.get(name)
    }
}

impl PolicySource {
    /// Reads what another process has sent, as JSON.
    ///
    /// # Errors
    /// It is too long, or no source. Whether it is right is for [`Library::compile`] to say.
    pub fn receive(text: &str) -> Result<Self, ReceiveError> {
        if text.len() > MAX_TEXT {
            return Err(ReceiveError::TooLong(text.len()));
        }
        Ok(serde_json::from_str(text)?)
    }

    /// Whether it can be compiled. Prefix sets are looked for and counted only.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn check(&self) -> Result<(), Vec<CompileError>> {
        Compiler::new(self, Sets::new(self).counted()).codes(self).map(drop)
    }
}

struct Compiler<'a> {
    policies: HashMap<&'a str, &'a Policy>,
    sets: Sets<'a>,
    /// Finished policies; `None` where there was an error.
    done: HashMap<&'a str, Option<Arc<Code>>>,
    /// Policies being compiled, outermost first.
    open: Vec<&'a str>,
    errors: Vec<CompileError>,
}

impl<'a> Compiler<'a> {
    fn new(source: &'a PolicySource, sets: Sets<'a>) -> Self {
        let mut compiler = Self {
            policies: source.policies.iter().map(|policy| (policy.name.as_str(), policy)).collect(),
            sets,
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

    /// Compiles all policies, in their order.
    fn codes(&mut self, source: &'a PolicySource) -> Result<Vec<Arc<Code>>, Vec<CompileError>> {
        let codes: Vec<_> = source.policies.iter().map(|policy| self.policy(policy)).collect();
        match self.errors.is_empty() {
            true => Ok(codes.into_iter().flatten().collect()),
            false => Err(std::mem::take(&mut self.errors)),
        }
    }

    /// Compiles a policy, and before it those it asks.
    fn policy(&mut self, policy: &'a Policy) -> Option<Arc<Code>> {
        if let Some(done) = self.done.get(policy.name.as_str()) {
            return done.clone();
        }
        self.open.push(&policy.name);
        let compiled = self.code(policy);
        self.open.pop();
        self.done.insert(&policy.name, compiled.clone());
        compiled
    }

    fn code(&mut self, policy: &'a Policy) -> Option<Arc<Code>> {
        for name in repeated(policy.terms.iter().map(|term| &term.name)) {
            self.error(&policy.name, Some(&name), Problem::DuplicateTerm);
        }
        let mut draft = Draft::new(policy);
        let first = self.steps(&mut draft, "first", &policy.first);
        let terms: Vec<_> = policy.terms.iter().map(|term| self.term(&mut draft, term)).collect();
        let last = policy.last.as_ref().map(|last| {
            let steps = self.steps(&mut draft, "last", &last.then)?;
            Some(CompiledLast { steps, outcome: last.outcome })
        });
        if let Some(problem) = draft.problem() {
            self.error(&policy.name, None, problem);
            return None;
        }
        let code = Code {
            name: policy.name.clone(),
            first: first?,
            terms: terms.into_iter().collect::<Option<_>>()?,
            last: match last {
                Some(last) => Some(last?),
                None => None,
            },
            reads_prefix: draft.reads_prefix,
            reads_bgpsec: draft.reads_bgpsec,
            names: draft.names.into(),
            steps: draft.steps,
            depth: draft.depth,
        };
        Some(Arc::new(code))
    }

    fn term(&mut self, draft: &mut Draft<'a>, term: &'a Term) -> Option<CompiledTerm> {
        let tests = self.tests(draft, &term.name, &term.from, 0);
        let mut steps = self.steps(draft, &term.name, &term.then)?;
        draft.steps = draft.steps.saturating_add(1);
        if term.outcome == Outcome::Reject && steps.iter().all(|step| matches!(step, Step::Change(_))) {
            // What is changed in a route that is refused is seen by nobody.
            steps = Box::default();
        }
        Some(CompiledTerm { tests: tests?, steps, outcome: term.outcome })
    }

    /// `None` if there was an error.
    fn tests(
        &mut self,
        draft: &mut Draft<'a>,
        term: &str,
        conditions: &'a [Condition],
        negations: usize,
    ) -> Option<Box<[Test]>> {
        let mut tests = Vec::with_capacity(conditions.len());
        for condition in conditions {
            let test = match condition {
                Condition::Not(_) if negations == MAX_NEGATIONS => Err(Problem::TooManyNegations),
                Condition::Not(negated) => match self.tests(draft, term, negated, negations + 1) {
                    Some(tests) => Ok(Test::Not(tests)),
                    None => continue,
                },
                condition => self.test(draft, condition),
            };
            match test {
                Ok(test) => {
                    if negations == 0 {
                        draft.steps = draft.steps.saturating_add(test.steps());
                    }
                    draft.reads_prefix |= test.reads_prefix();
                    draft.reads_bgpsec |= test.reads_bgpsec();
                    tests.push(test);
                }
                Err(problem) => self.error(draft.policy, Some(term), problem),
            }
        }
        (tests.len() == conditions.len()).then(|| tests.into())
    }

    fn test(&mut self, draft: &mut Draft<'a>, condition: &'a Condition) -> Result<Test, Problem> {
        let paths = |neighbours| Test::AsPath(Arc::new(neighbours));
        Ok(match condition {
            Condition::PrefixSet(names) => Test::Prefix(self.sets.prefixes(names)?),
            Condition::Prefix(ranges) => Test::Prefix(Arc::new(ranges.iter().copied().collect())),
            Condition::PrefixLength(range) => Test::PrefixLength(range.clone()),
            Condition::CommunitySet(names) => Test::Community(self.sets.communities(names)?),
            Condition::Community(patterns) => Test::Community(Arc::new(patterns.iter().copied().collect())),
            Condition::CommunityRegex(regexes) => {
                Test::Community(Arc::new(CommunityMatcher::new([], regexes.iter().cloned())))
            }
            Condition::AsPathSet(names) => Test::AsPath(self.sets.paths(names)?),
            Condition::AsPath(patterns) => paths(PathMatcher::new(patterns.iter().cloned(), [])),
            Condition::AsPathRegex(regexes) => paths(PathMatcher::new([], regexes.iter().cloned())),
            Condition::AsPathLength(range) => Test::AsPathLength(range.clone()),
            Condition::NeighborAs(ranges) => paths(PathMatcher::from_neighbours(ranges.iter().copied())),
            Condition::OriginAs(ranges) => paths(PathMatcher::from_origins(ranges.iter().copied())),
            Condition::PeerAs(ranges) => Test::PeerAs(ranges.iter().copied().collect()),
            Condition::Origin(origins) => Test::Origin(origins.clone().into()),
            Condition::LocalPreference(range) => Test::LocalPref(range.clone()),
            Condition::Med(range) => Test::Med(range.clone()),
            Condition::NextHop(prefixes) => {
                Test::NextHop(prefixes.iter().map(|range| PrefixRange::or_longer(range.prefix())).collect())
            }
            Condition::Protocol(protocols) => Test::Protocol(protocols.clone().into()),
            Condition::Tag(tags) => Test::Tag(tags.clone().into()),
            Condition::Interface(names) => Test::Interface(names.clone().into()),
            Condition::Metric(range) => Test::Metric(range.clone()),
            Condition::Validity(states) => Test::Validity(states.clone().into()),
            Condition::Aspa(states) => Test::Aspa(states.clone().into()),
            Condition::Bgpsec(states) => Test::Bgpsec(states.clone().into()),
            Condition::Policy(names) => Test::Accepted(self.asked(draft, names)?),
            Condition::Not(_) => return Err(Problem::TooManyNegations),
        })
    }

    fn asked(&mut self, draft: &mut Draft<'a>, names: &'a [String]) -> Result<Box<[Arc<Code>]>, Problem> {
        let mut codes = Vec::with_capacity(names.len());
        for name in names {
            codes.extend(self.other(draft, name)?);
        }
        Ok(codes.into())
    }

    /// A policy that this one asks or applies; `None` if its errors are reported already.
    fn other(&mut self, draft: &mut Draft<'a>, name: &'a str) -> Result<Option<Arc<Code>>, Problem> {
        if let Some(from) = self.open.iter().position(|open| *open == name) {
            let chain = self.open[from..].iter().copied().chain([name]);
            return Err(Problem::Recursion(chain.map(str::to_owned).collect()));
        }
        // Each level is a level of our own stack here, so it ends before it is known how deep it goes.
        if self.open.len() > MAX_DEPTH {
            return Err(Problem::TooDeep);
        }
        let code = match (self.done.get(name), self.policies.get(name)) {
            (Some(done), _) => done.clone(),
            (None, Some(policy)) => self.policy(policy),
            (None, None) => return Err(Problem::UnknownPolicy(name.to_owned())),
        };
        if let Some(code) = &code {
            draft.steps = draft.steps.saturating_add(code.steps);
            draft.depth = draft.depth.max(1 + code.depth);
        }
        Ok(code)
    }

    /// `None` if there was an error.
    fn steps(&mut self, draft: &mut Draft<'a>, term: &str, actions: &'a [Action]) -> Option<Box<[Step]>> {
        let mut steps = Vec::with_capacity(actions.len());
        for action in actions {
            match self.step(draft, action) {
                Ok(Some(step)) => {
                    draft.steps = draft.steps.saturating_add(step.steps());
                    draft.reads_prefix |= step.reads_prefix();
                    draft.reads_bgpsec |= step.reads_bgpsec();
                    steps.push(step);
                }
                Ok(None) => {}
                Err(problem) => self.error(draft.policy, Some(term), problem),
            }
        }
        (steps.len() == actions.len()).then(|| steps.into())
    }

    fn step(&mut self, draft: &mut Draft<'a>, action: &'a Action) -> Result<Option<Step>, Problem> {
        let matcher = |patterns: &[_]| patterns.iter().copied().collect::<CommunityMatcher>();
        Ok(Some(Step::Change(match action {
            Action::LocalPreference(value) => Change::LocalPref(*value),
            Action::Weight(value) => Change::Weight(*value),
            Action::Med(action) => Change::Med(*action),
            Action::Origin(origin) => Change::Origin(*origin),
            Action::Prepend(prepend) => Change::Prepend(*prepend),
            Action::SetCommunities(list) => Change::SetCommunities(list.clone().into()),
            Action::RemoveCommunities(patterns) => Change::RemoveCommunities(matcher(patterns)),
            Action::AddCommunities(list) => Change::AddCommunities(list.clone().into()),
            Action::ReplaceCommunities(Replacement { these, by }) => {
                Change::ReplaceCommunities(matcher(these), by.clone().into())
            }
            Action::NextHop(edit) => Change::NextHop(*edit),
            Action::Tag(value) => Change::Tag(*value),
            Action::Apply(name) => {
                let code = self.other(draft, name)?;
                return code.map(|code| draft.apply(code)).transpose();
            }
        })))
    }
}

fn built_in() -> HashMap<&'static str, Option<Arc<Code>>> {
    [Program::accept_all(), Program::reject_all()]
        .into_iter()
        .zip([ACCEPT_ALL, REJECT_ALL])
        .map(|(program, name)| (name, Some(Arc::clone(program.code()))))
        .collect()
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

/// What is known of the policy being compiled.
struct Draft<'a> {
    policy: &'a str,
    /// By number: its terms, its end, then the terms of what it applies.
    names: Vec<String>,
    steps: usize,
    depth: usize,
    reads_prefix: bool,
    reads_bgpsec: bool,
}

impl<'a> Draft<'a> {
    fn new(policy: &'a Policy) -> Self {
        let decides = policy.last.as_ref().is_some_and(|last| last.outcome != Outcome::Next);
        let end = if decides { "last" } else { "default" };
        let names = policy.terms.iter().map(|term| term.name.as_str()).chain([end]);
        Self {
            policy: &policy.name,
            names: names.map(str::to_owned).collect(),
            steps: 0,
            depth: 1,
            reads_prefix: false,
            reads_bgpsec: false,
        }
    }

    /// The step that applies a policy, whose terms get the next numbers.
    fn apply(&mut self, code: Arc<Code>) -> Result<Step, Problem> {
        let base = u16::try_from(self.names.len()).map_err(|_| Problem::TooManyTerms)?;
        self.names.extend(code.names.iter().map(|name| format!("{}: {name}", code.name)));
        Ok(Step::Apply { code, base })
    }

    fn problem(&self) -> Option<Problem> {
        match () {
            () if self.names.len() > TermRef::MAX_TERMS + 1 => Some(Problem::TooManyTerms),
            () if self.depth > MAX_DEPTH => Some(Problem::TooDeep),
            () if self.steps > MAX_STEPS => Some(Problem::TooLong(self.steps)),
            () => None,
        }
    }
}
