//! What a policy changes in the routes of a group, by number.

use std::collections::HashMap;

use holdfast_policy::Edits;
use holdfast_types::Prefix;

use crate::path::SetId;

/// The answer of a policy that does not let a set pass; all others are outcomes.
pub(super) const REFUSED: u8 = u8::MAX;

/// The answer of a policy that lets a set pass as it is: its first outcome.
pub(super) const UNCHANGED: u8 = 0;

/// What a policy changes in routes that it lets pass, by number.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Outcome(pub(super) u32);

impl Outcome {
    /// As an answer that can be kept beside a set.
    #[inline]
    pub(super) fn to_keep(self) -> Option<u8> {
        u8::try_from(self.0).ok().filter(|answer| *answer != REFUSED)
    }
}

/// The outcomes of one policy: few, but where it removes some of the values that a route has got, many.
#[derive(Debug)]
pub(super) struct Outcomes {
    /// The first changes nothing. So does the second where stages rewrite sets before: then [`UNCHANGED`] is no answer, and
    /// each set is looked for under what it has become.
    pub(super) known: Vec<Edits>,
    unchanged: u32,
    numbers: HashMap<Edits, u32>,
    /// Room for one evaluation.
    pub(super) edits: Edits,
    /// The last question to the policy in this window, with its answer.
    pub(super) last: Last,
}

/// The route that the policy was asked about last: whoever chooses from several paths asks, and asks again when it tells.
#[derive(Copy, Clone, Debug)]
pub(super) enum Last {
    /// There is no window: what is asked about may be another by the next time.
    NoWindow,
    /// Nothing yet.
    Nothing,
    /// A prefix and its set as received, and what was said.
    Route((Prefix, SetId), Option<(SetId, Outcome)>),
}

impl Outcomes {
    /// `rewrites`: whether stages rewrite sets before.
    pub(super) fn new(rewrites: bool) -> Self {
        Self {
            known: vec![Edits::default(); 1 + usize::from(rewrites)],
            unchanged: u32::from(UNCHANGED) + u32::from(rewrites),
            numbers: HashMap::new(),
            edits: Edits::default(),
            last: Last::NoWindow,
        }
    }

    /// The number of what was found out last.
    #[inline]
    pub(super) fn number(&mut self) -> Outcome {
        if self.edits.is_empty() {
            return Outcome(self.unchanged);
        }
        if let Some(number) = self.numbers.get(&self.edits) {
            return Outcome(*number);
        }
        let number = self.known.len() as u32;
        self.known.push(self.edits.clone());
        self.numbers.insert(self.edits.clone(), number);
        Outcome(number)
    }

    #[inline]
    pub(super) fn begin_window(&mut self) {
        self.last = Last::Nothing;
        while self.known.len() > usize::from(REFUSED) {
            self.known.pop().iter().for_each(|edits| {
                self.numbers.remove(edits);
            });
        }
    }

    /// The policy's answer about a route, if the last question was about this route.
    #[inline]
    pub(super) fn said_of(&self, route: (Prefix, SetId)) -> Option<Option<(SetId, Outcome)>> {
        match self.last {
            Last::Route(last, said) if last == route => Some(said),
            Last::Route(..) | Last::Nothing | Last::NoWindow => None,
        }
    }

    /// Remembers what was said of a route until the next one, or the end of the window.
    #[inline]
    pub(super) fn say(&mut self, route: (Prefix, SetId), said: Option<(SetId, Outcome)>) {
        if !matches!(self.last, Last::NoWindow) {
            self.last = Last::Route(route, said);
        }
    }
}
