//! The BGP pipeline: stages and tables from the UPDATE received to the UPDATE sent.
//!
//! ```text
//! PeerIn ─> ImportPolicy ─> [Stage …] ─> NexthopResolver ─> Decision ─> Fanout ─┬─> ExportPolicy ─> AdjRibOut ─> encoded bytes
//! peer_in    core            stage        next_hop           decision    fanout │   export          adj_rib_out  update_group
//!                                                            loc_rib            └─> RIB batches
//!                                                                                   rib_out
//! ```
//!
//! Duty: keep every route of every peer, decide, and say what each peer and the RIB are to be told. It reads
//! and writes UPDATE bytes, so its driver never sees a route.
//!
//! Never: a socket, a clock, a session state. It does not know how a session came up, only that it did.
//!
//! Read first: [`Pipeline`], the whole driver's side; then `loc_rib.rs`, where a route meets the others.
//!
//! Beside them stands `freeze.rs`: received routes as records, for the process that comes after this one.
//!
//! # Memory
//! A path is eight bytes ([`holdfast_prefix_table`] holds them): the number of its attribute set as received,
//! its source, flags. This one table is Adj-RIB-In and Loc-RIB; Adj-RIB-Out is not stored. What import policy
//! makes of a set is kept with the set.
//!
//! # Time
//! Single-threaded and bounded: no call does more than its message, its window or its budget asks for.

#[doc(hidden)]
pub mod fuzzing;

mod adj_rib_out;
mod aggregate;
mod background;
mod by_set;
mod changes;
mod check;
mod checking;
mod class;
mod config;
mod consistency;
mod core;
mod cursor;
mod decision;
mod dump;
mod effort;
mod enclosing;
mod event;
mod export;
mod fanout;
mod freeze;
mod hashes;
mod index;
mod inspect;
mod journal;
mod loc_rib;
mod neighbor_routes;
mod next_hop;
mod onward;
mod orf;
mod own_next_hop;
mod path;
mod peer_in;
mod peer_set;
mod pipeline;
mod places;
mod policy;
mod question;
mod redistribution;
mod rewrite;
mod rewriter;
mod rewriting;
mod rib_out;
mod rib_policy;
mod route;
mod route_verdicts;
mod seam;
mod secure_path;
mod sets;
mod show;
mod signatures;
mod signing;
mod slab;
mod source;
mod stage;
mod summary;
mod table;
mod told;
mod update_group;
mod validation;
mod validity;
mod verdicts;
mod verifying;
mod view;

// Tests of what the crate offers, in the executable of its unit tests.
#[cfg(test)]
extern crate self as holdfast_bgp_pipeline;
#[cfg(test)]
#[path = "../tests/mod.rs"]
mod tests;

pub use aggregate::list::{AggregateConfig, AggregateView};
pub use background::Pressure;
pub use check::CheckStage;
pub use config::{
    Limits, NextHopMode, PeerConfig, PeerIndex, PeerKind, SendPaths, SessionFacts, SignedFor, SpeakerConfig,
};
pub use consistency::Violation;
pub use decision::{LOCAL_WEIGHT, Step};
pub use dump::{DumpPage, DumpView, DumpedPath};
pub use effort::Effort;
pub use event::{Event, Reachability};
pub use export::rules::Withheld;
pub use freeze::{Freezing, ThawedSets};
pub use holdfast_bgp_wire::update::{AsSets, FamilySet, Secured};
/// What is configured about paths, as it is configured.
pub use holdfast_config::schema::{
    BgpsecValidation, DecisionRules, LocalAsnMode, NextHopRule, PathRules, PrivateAsnRule,
};
pub use inspect::{FamilyCounts, Memory, SentSecured, SentTo};
pub use journal::{Journal, JournalEntry, format::Unreadable};
pub use neighbor_routes::{NeighborPage, NeighborView, ShownSession};
pub use next_hop::Gateway;
pub use onward::{Signer, Unsigned};
pub use orf::{MOST_ORF_ENTRIES, OrfOutcome};
pub use peer_in::{DropReason, Dropped, Drops, UpdatePart};
pub use pipeline::{Pipeline, TooManySessions, origin::OriginateAttributes};
pub use policy::{Direction, Progress};
pub use redistribution::{ForeignRoute, NoRoom};
pub use rewriter::{Answer, Offered, Receiver, Replacement, Rewriter, Slot};
pub use rib_out::{RibChanges, RibNextHops, RibRun};
pub use seam::{Observer, Old, RouteEvent, RouteNumber, Seam, StreamKey};
pub use show::{PathState, PathView};
pub use signatures::{
    FAILED_HOPS, FAILED_HOPS_A_SECOND, Fault as SignatureFault, FaultReason as SignatureFaultReason, HOLD,
    SignatureCost, SignatureCounts, SignatureJob, SignatureVerdict, SignatureView,
};
pub use signing::{PATIENCE, SignatureName, SignatureStore, SigningCounts, SigningJob};
pub use source::{MOST_PATHS, RouteCounts};
pub use stage::{Batch, Cause, Release, RouteChange, SetNumber, Stage};
pub use told::{AdjRibOutSnapshot, Rewrite};
pub use update_group::chunk::Messages;
pub use validity::States;
