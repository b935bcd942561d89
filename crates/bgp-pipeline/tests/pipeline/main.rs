//! The pipeline from the outside: UPDATE bytes in, UPDATE bytes out.

mod behaviour;
mod decision;
mod faults;
mod model;
mod seams;
mod speaker;
