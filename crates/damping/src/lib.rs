//! Route-flap damping (RFC 2439, with the parameters of RFC 7196) as one stage of the BGP pipeline.
//!
//! Each withdrawal and each change of a route's attributes adds a penalty to the route's *figure of merit*, which
//! decays exponentially. A route whose figure reaches the suppress threshold is held back from the decision until it
//! has decayed below the reuse threshold. Only routes that have flapped have a figure; it is forgotten when it has
//! become small.
//!
//! Read first: [`Damping`]. Time comes in with each call.

mod history;
mod parameters;
mod stage;

pub use history::{CHANGE, Flaps, WITHDRAWAL};
pub use parameters::{BadParameters, Parameters};
pub use stage::{Cursor, Damping, MOST_HISTORIES};
