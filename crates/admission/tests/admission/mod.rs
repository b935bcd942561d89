//! Stages alone, and all in their order, before attempts of every kind.

mod attempt;
mod bucket;
mod chain;
mod prefix_table;
mod pressure;
mod stages;
