//! The pipeline from the outside: UPDATE bytes in, UPDATE bytes out.

mod add_path;
mod aggregates;
mod backups;
mod behaviour;
mod decision;
mod default_route;
mod faults;
mod freeze;
mod journal;
mod links;
mod model;
mod neighbors;
mod orf;
mod paths;
mod policies;
mod redistribution;
mod refresh;
mod restart;
mod rewriting;
mod seams;
mod signatures;
mod signing;
mod speaker;
mod stages;
mod validation;
mod views;
