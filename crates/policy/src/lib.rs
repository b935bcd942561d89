//! Routing policy: ordered terms compiled to bounded programs.
//!
//! A [`PolicySource`] is what the operator wrote, checked for form only and serialisable: it travels
//! from the manager to every process that filters routes. [`Library::compile`] turns it into one
//! [`Program`] per policy, and [`Program::evaluate`] asks a program about anything that is a [`Route`].
//!
//! Not here: protocols, tables, files. A program reads a route through the trait and never changes it:
//! what is to change comes back as [`Edits`], which the caller applies and may share between routes.
//!
//! # Meaning
//! - The terms of a policy are tried in order. A term matches when *all* its conditions hold; a condition
//!   with a list holds when *one* entry does. A term without conditions always matches.
//! - A matching term makes its changes and then accepts, rejects, or goes on with the next term.
//! - What a policy says comes `first` is changed before; what comes `last` decides where no term did.
//! - A route that nothing decided is **rejected**: in the spirit of RFC 8212 nothing passes by accident.
//! - Conditions see local preference, MED, origin, communities, next hop and tag as earlier terms of the
//!   policy left them; the AS path as it was received (prepending happens afterwards).
//! - A condition may ask another policy. That one only answers: it makes no changes, and sees none of its own.
//! - An action may apply another policy, as if its terms stood there: its changes stay, and what it decides is decided.
//! - Evaluation is bounded: there are no loops, and depth and worst-case steps of nested policies are
//!   limited when the program is compiled ([`MAX_DEPTH`], [`MAX_STEPS`]).

#[doc(hidden)]
pub mod fuzzing;

mod asn_set;
mod community;
mod compile;
mod edits;
mod path;
mod prefix_ranges;
mod prefix_set;
mod program;
mod regex;
mod route;
mod sets;
mod source;
mod step;
mod test;
mod text;
mod trace;

// Tests of what the crate offers, in the executable of its unit tests.
#[cfg(test)]
extern crate self as holdfast_policy;
#[cfg(test)]
#[path = "../tests/mod.rs"]
mod tests;

pub use asn_set::{AsnRange, ParseAsnRangeError};
pub use community::{Community, CommunityPattern, ParseCommunityError};
pub use compile::{
    CompileError, Library, MAX_DEPTH, MAX_ENTRIES, MAX_NEGATIONS, MAX_STEPS, MAX_TEXT, Problem, ReceiveError,
    SetKind,
};
pub use edits::{Edits, ListEdit, MedEdit, NextHopEdit, Prepend, PrependAs};
pub use path::{ParsePathPatternError, PathPattern};
pub use prefix_ranges::PrefixRanges;
pub use prefix_set::{ParsePrefixRangeError, PrefixRange};
pub use program::{Program, ProgramId, TermRef, Verdict};
pub use regex::{ParseRegexError, Regex};
pub use route::{
    Origin, ParseProtocolError, PathElement, PathSecurity, PathValidity, Protocol, ProtocolName, Route,
    UnknownWordError, Validity, write_path,
};
pub use source::{
    ACCEPT_ALL, Action, AsPathSet, CommunitySet, Condition, Last, MedAction, Outcome, Policy, PolicySource,
    PrefixSet, REJECT_ALL, Replacement, Term,
};
pub use trace::{Decision, Failed, Place, Trace};
