//! Compiled policies.

use std::sync::Arc;

use crate::{
    ACCEPT_ALL, Edits, Outcome, REJECT_ALL, Route,
    step::{Step, perform},
    test::{Test, View},
};

/// A compiled policy. Immutable and cheap to clone. Equal programs decide alike: compare the old with the
/// new one after a configuration change to see whether anything has to be evaluated again. The id is no
/// part of that.
#[derive(Clone, Debug)]
pub struct Program {
    id: ProgramId,
    code: Arc<Code>,
}

/// Names one compilation of one policy; a key for cached verdicts.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ProgramId {
    /// Which policy: 0 is [`ACCEPT_ALL`], 1 is [`REJECT_ALL`], then in the order of the source.
    pub index: u32,
    /// Which compilation: what was given to [`crate::Library::compile`].
    pub generation: u32,
}

/// What a program says of a route.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Verdict {
    /// It passes, with the edits.
    Accept,
    /// It does not, because of this term.
    Reject(TermRef),
}

impl Verdict {
    /// The same, where the first term has this number.
    pub(crate) fn numbered_from(self, base: u16) -> Self {
        match self {
            Self::Accept => Self::Accept,
            Self::Reject(TermRef(term)) => Self::Reject(TermRef(base + term)),
        }
    }
}

/// A term of a program, of a policy that it applies, or the rejection at its end; [`Program::term_name`] tells.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TermRef(u16);

impl TermRef {
    /// Terms of one policy, with those of all that it applies; the number after its own is its end.
    pub(crate) const MAX_TERMS: usize = u16::MAX as usize;
}

#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Code {
    pub(crate) name: String,
    pub(crate) first: Box<[Step]>,
    pub(crate) terms: Box<[CompiledTerm]>,
    pub(crate) last: Option<CompiledLast>,
    pub(crate) reads_prefix: bool,
    pub(crate) reads_bgpsec: bool,
    /// What is shown for each [`TermRef`]: the terms, the end, then those of applied policies.
    pub(crate) names: Box<[String]>,
    /// What one evaluation costs at most.
    pub(crate) steps: usize,
    /// Policies in the longest chain that starts here.
    pub(crate) depth: usize,
}

#[derive(PartialEq, Eq, Debug)]
pub(crate) struct CompiledTerm {
    pub(crate) tests: Box<[Test]>,
    pub(crate) steps: Box<[Step]>,
    pub(crate) outcome: Outcome,
}

#[derive(PartialEq, Eq, Debug)]
pub(crate) struct CompiledLast {
    pub(crate) steps: Box<[Step]>,
    pub(crate) outcome: Outcome,
}

/// Looks on while a program runs. Nothing is done for one that does not care.
pub(crate) trait Watch {
    /// A policy begins.
    fn begin(&mut self, _: &Code) {}
    /// A term was asked; the condition that did not hold, by number.
    fn asked(&mut self, _term: usize, _failed: Option<usize>, _: &Edits) {}
    /// What follows the terms is reached.
    fn last(&mut self) {}
    /// Some or all changes of `first`, of the term asked, or of `last` have been made.
    fn changed(&mut self, _: &Edits) {}
    /// The policy ends.
    fn end(&mut self, _: Option<Verdict>) {}
}

impl Watch for () {}

impl PartialEq for Program {
    fn eq(&self, other: &Self) -> bool {
        // Peers share programs, and sets may be long.
        Arc::ptr_eq(&self.code, &other.code) || self.code == other.code
    }
}

impl Eq for Program {}

impl Program {
    pub(crate) fn new(id: ProgramId, code: Arc<Code>) -> Self {
        Self { id, code }
    }

    pub(crate) fn code(&self) -> &Arc<Code> {
        &self.code
    }

    /// The built-in policy that lets everything pass unchanged.
    pub fn accept_all() -> Self {
        Self::built_in(0, ACCEPT_ALL, Outcome::Accept)
    }

    /// The built-in policy that lets nothing pass.
    pub fn reject_all() -> Self {
        Self::built_in(1, REJECT_ALL, Outcome::Reject)
    }

    fn built_in(index: u32, name: &str, outcome: Outcome) -> Self {
        let term = CompiledTerm { tests: Box::default(), steps: Box::default(), outcome };
        let code = Code {
            name: name.to_owned(),
            first: Box::default(),
            terms: Box::new([term]),
            last: None,
            reads_prefix: false,
            reads_bgpsec: false,
            names: Box::new([name.to_owned()]),
            steps: 1,
            depth: 1,
        };
        Self::new(ProgramId { index, generation: 0 }, Arc::new(code))
    }

    /// Which compilation this is.
    pub fn id(&self) -> ProgramId {
        self.id
    }

    /// The policy's name.
    pub fn name(&self) -> &str {
        &self.code.name
    }

    /// Whether the verdict may differ between two routes that share attribute set and next hop: whether
    /// the program looks at the prefix, the peer, the protocol, the tag, the interface or the metric. If not, verdict
    /// and edits may be kept with the attribute set.
    pub fn reads_prefix(&self) -> bool {
        self.code.reads_prefix
    }

    /// Whether it asks what is known of the signatures of paths.
    pub fn reads_bgpsec(&self) -> bool {
        self.code.reads_bgpsec
    }

    /// How many comparisons and changes one evaluation takes at most, known before it runs.
    pub fn steps(&self) -> usize {
        self.code.steps
    }

    /// The name of the term that refused a route: `TERM`, `POLICY: TERM` for one of a policy that was applied, `last`
    /// or `default` for what follows the terms.
    pub fn term_name(&self, term: TermRef) -> &str {
        self.code.names.get(usize::from(term.0)).map_or("default", |name| name)
    }

    /// Decides about a route. `edits` is cleared first, and holds what to change if the route is
    /// accepted; after a rejection it is empty.
    pub fn evaluate(&self, route: &impl Route, edits: &mut Edits) -> Verdict {
        self.evaluate_watched(route, edits, &mut ())
    }

    #[inline]
    pub(crate) fn evaluate_watched(
        &self,
        route: &impl Route,
        edits: &mut Edits,
        watch: &mut impl Watch,
    ) -> Verdict {
        edits.clear();
        let verdict = self.code.apply(route, edits, watch).unwrap_or_else(|| self.code.undecided());
        if verdict != Verdict::Accept {
            edits.clear();
        }
        verdict
    }
}

impl Code {
    fn undecided(&self) -> Verdict {
        Verdict::Reject(TermRef(self.terms.len() as u16))
    }

    /// `None` if nothing decides.
    pub(crate) fn apply<R: Route, W: Watch>(
        &self,
        route: &R,
        edits: &mut Edits,
        watch: &mut W,
    ) -> Option<Verdict> {
        watch.begin(self);
        let verdict = self.run(route, edits, watch);
        watch.end(verdict);
        verdict
    }

    fn run<R: Route, W: Watch>(&self, route: &R, edits: &mut Edits, watch: &mut W) -> Option<Verdict> {
        if !self.first.is_empty() {
            let decided = perform(&self.first, route, edits, watch);
            watch.changed(edits);
            if decided.is_some() {
                return decided;
            }
        }
        for (index, term) in self.terms.iter().enumerate() {
            let failed = term.failed(&View { route, edits });
            watch.asked(index, failed, edits);
            if failed.is_some() {
                continue;
            }
            let decided = perform(&term.steps, route, edits, watch);
            watch.changed(edits);
            if let Some(verdict) = decided.or_else(|| verdict(term.outcome, index)) {
                return Some(verdict);
            }
        }
        let last = self.last.as_ref()?;
        watch.last();
        let decided = perform(&last.steps, route, edits, watch);
        watch.changed(edits);
        decided.or_else(|| verdict(last.outcome, self.terms.len()))
    }

    /// Whether the policy lets the route pass; makes no changes.
    pub(crate) fn accepts<R: Route>(&self, view: &View<'_, R>) -> bool {
        self.decides(view) == Some(true)
    }

    fn decides<R: Route>(&self, view: &View<'_, R>) -> Option<bool> {
        decided_by(&self.first, view)
            .or_else(|| self.terms.iter().find_map(|term| term.decides(view)))
            .or_else(|| self.last.as_ref()?.decides(view))
    }
}

fn verdict(outcome: Outcome, number: usize) -> Option<Verdict> {
    match outcome {
        Outcome::Accept => Some(Verdict::Accept),
        Outcome::Reject => Some(Verdict::Reject(TermRef(number as u16))),
        Outcome::Next => None,
    }
}

fn accepts(outcome: Outcome) -> Option<bool> {
    match outcome {
        Outcome::Accept => Some(true),
        Outcome::Reject => Some(false),
        Outcome::Next => None,
    }
}

/// What a policy that these steps apply says.
fn decided_by<R: Route>(steps: &[Step], view: &View<'_, R>) -> Option<bool> {
    steps.iter().find_map(|step| match step {
        Step::Change(_) => None,
        Step::Apply { code, .. } => code.decides(view),
    })
}

impl CompiledTerm {
    /// The condition that does not hold; `None`: the term matches.
    #[inline]
    fn failed<R: Route>(&self, view: &View<'_, R>) -> Option<usize> {
        self.tests.iter().position(|test| !test.holds(view))
    }

    fn decides<R: Route>(&self, view: &View<'_, R>) -> Option<bool> {
        match self.failed(view) {
            Some(_) => None,
            None => decided_by(&self.steps, view).or_else(|| accepts(self.outcome)),
        }
    }
}

impl CompiledLast {
    fn decides<R: Route>(&self, view: &View<'_, R>) -> Option<bool> {
        decided_by(&self.steps, view).or_else(|| accepts(self.outcome))
    }
}
