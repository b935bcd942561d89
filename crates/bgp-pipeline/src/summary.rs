//! Which routes peers are not told of because a `summary-only` aggregate stands for them.
//!
//! A route that contributes to an aggregate is the reason that the aggregate is there: so the question is for its prefix
//! and attributes, and not for the state of anything. It is part of what an [`Export`](crate::export::rules::Export) is: a change
//! is announced to peers as one of their export policies is.

use std::rc::Rc;

use holdfast_policy::Program;
use holdfast_types::{IpPrefix, Ipv4Prefix, Ipv6Prefix, Prefix};

use crate::{
    core::Core,
    enclosing::Enclosing,
    path::{Path, SetId, SourceId},
};

/// One such aggregate: which routes inside it contribute.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Summary {
    contributors: Option<Program>,
}

impl Summary {
    pub(crate) fn new(contributors: Option<Program>) -> Self {
        Self { contributors }
    }
}

/// All of them.
#[derive(Clone, Debug)]
pub(crate) struct Summaries(Rc<Families>);

#[derive(Debug)]
struct Families {
    v4: Enclosing<Ipv4Prefix, Summary>,
    v6: Enclosing<Ipv6Prefix, Summary>,
}

/// Most often they are one.
impl PartialEq for Summaries {
    fn eq(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
            || self.0.v4.iter().eq(other.0.v4.iter()) && self.0.v6.iter().eq(other.0.v6.iter())
    }
}

impl Summaries {
    /// `None` if there is none.
    pub(crate) fn new(
        v4: impl Iterator<Item = (Ipv4Prefix, Summary)>,
        v6: impl Iterator<Item = (Ipv6Prefix, Summary)>,
    ) -> Option<Self> {
        let families = Families { v4: v4.collect(), v6: v6.collect() };
        let is_empty = families.v4.is_empty() && families.v6.is_empty();
        (!is_empty).then(|| Self(Rc::new(families)))
    }

    /// Whether there are any of a family.
    #[inline]
    pub(crate) fn has_any<P: IpPrefix>(&self) -> bool {
        if P::WIDTH == 32 { !self.0.v4.is_empty() } else { !self.0.v6.is_empty() }
    }

    /// Whether a path is kept back.
    pub(crate) fn keep_back(&self, core: &mut Core, prefix: Prefix, path: Path) -> bool {
        match prefix {
            Prefix::V4(prefix) => keep_back(&self.0.v4, core, prefix, path),
            Prefix::V6(prefix) => keep_back(&self.0.v6, core, prefix, path),
        }
    }
}

fn keep_back<P: IpPrefix>(summaries: &Enclosing<P, Summary>, core: &mut Core, prefix: P, path: Path) -> bool {
    let mut around = summaries.around(prefix).peekable();
    if around.peek().is_none() {
        return false;
    }
    let Some(set) = core.effective(prefix.into(), path.set) else { return false };
    around.any(|(_, summary)| {
        contributes(core, prefix.into(), (path.source, set), summary.contributors.as_ref())
    })
}

/// Whether a route of this source, whose set after import policy is `set`, contributes where that is up to `program`.
pub(crate) fn contributes(
    core: &Core,
    prefix: Prefix,
    (source, set): (SourceId, SetId),
    program: Option<&Program>,
) -> bool {
    program.is_none_or(|program| core.passes(program, prefix, source, set))
}
