//! The session as its driver sees it: one peer fed by hand ([`solo`]), and two peers over a simulated
//! network in virtual time ([`world`]).

mod bfd;
mod collision;
mod establishment;
mod failures;
mod freeze;
mod invariants;
mod negotiation;
mod refresh;
mod restart;
mod solo;
mod transitions;
mod world;
