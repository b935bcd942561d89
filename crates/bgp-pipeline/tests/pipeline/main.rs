//! The pipeline from the outside: UPDATE bytes in, UPDATE bytes out.

mod add_path;
mod behaviour;
mod decision;
mod faults;
mod freeze;
mod journal;
mod model;
mod neighbors;
mod paths;
mod policies;
mod redistribution;
mod restart;
mod seams;
mod speaker;
mod stages;
